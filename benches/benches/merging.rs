//! Merges in mirrors, each beside what git takes for the same ones in the same run.
//!
//! Chains on a small history, and single merges in a large one: with the mirror open already, and opened for each. The
//! answers are compared. Measured is the processor time of the measuring thread and of every git that was run, here by
//! the merger where it is not certain; instructions of a single merge are counted by callgrind where it is there.
#![expect(clippy::print_stdout, reason = "a benchmark tells whoever runs it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gatelog_benches::Failure;
use gatelog_benches::measure::{children_cpu, thread_cpu};
use gatelog_benches::repository::{Repository, git};
use gatelog_benches::table::{Table, time, times};
use gatelog_merging::{
    BranchKey, FileFilter, FrozenBase, MergeItem, MergeMode, Mirrors, MirrorsConfig, PrepareOutcome, PrepareRequest,
    Prepared, ProjectKey,
};

const FILES: usize = 2000;
/// Of a chain.
const CHANGES: usize = 100;
/// Of the large history.
const COMMITS: usize = 20_000;
/// Single changes in it.
const SINGLE: usize = 60;

fn main() -> Result<(), Failure> {
    if let Some(place) = std::env::var_os("GATELOG_COUNT") {
        return counted(Path::new(&place));
    }
    chains()?;
    single()
}

// ---- repositories ----

fn path(file: usize) -> String {
    format!("d{}/e{}/f{file}", file % 10, file % 100)
}

fn change_ref(number: usize) -> String {
    format!("refs/for/master/{number}")
}

/// The first commit: many files.
fn begun(place: PathBuf) -> Result<(Repository, usize), Failure> {
    let mut forge = Repository::new(place)?;
    let files: Vec<(String, String)> = (0..FILES).map(|file| (path(file), format!("{file}\n"))).collect();
    let first = forge.commit("refs/heads/master", &[], &files)?;
    Ok((forge, first))
}

// ---- measuring ----

fn each<T>(count: usize, run: impl FnOnce() -> Result<T, Failure>) -> Result<(Duration, T), Failure> {
    let spent = || Ok::<_, Failure>(thread_cpu() + children_cpu()?);
    let began = spent()?;
    let made = run()?;
    Ok((spent()?.saturating_sub(began) / u32::try_from(count)?, made))
}

fn ratio(here: Duration, there: Duration) -> String {
    times(there.as_secs_f64() / here.as_secs_f64().max(1e-9))
}

// ---- asking ----

fn mirrors(root: &Path, forge: &Path, open: usize) -> Result<(Mirrors, ProjectKey), Failure> {
    let mut config = MirrorsConfig::new(root);
    config.limits.open_mirrors = open;
    let (mirrors, project) = (Mirrors::open(config)?, ProjectKey::new("forge", "library"));
    mirrors.set_source(&project, forge.to_str().ok_or("a path that is no text")?)?;
    Ok((mirrors, project))
}

fn item(project: &ProjectKey, number: usize, commit: &str, mode: MergeMode, date_s: i64) -> MergeItem {
    MergeItem {
        project: project.clone(),
        branch: "master".to_owned(),
        ref_name: Some(change_ref(number)),
        commit: Some(commit.to_owned()),
        mode,
        date_s,
        message: None,
    }
}

fn prepare(
    mirrors: &Mirrors,
    project: &ProjectKey,
    base: &str,
    id: &str,
    items: Vec<MergeItem>,
) -> Result<Prepared, Failure> {
    let bases = vec![FrozenBase { branch: BranchKey::new(project.clone(), "master"), commit: base.to_owned() }];
    match mirrors.prepare(&PrepareRequest { id: id.to_owned(), items, bases, files: FileFilter::none() })? {
        PrepareOutcome::Merged(prepared) => Ok(prepared),
        PrepareOutcome::Conflict(conflict) => Err(conflict.message.into()),
    }
}

/// `git merge-tree` for what was prepared: the same trees must come out. A rebase first asks which commits the branch
/// has not got yet.
fn by_git(mirror: &Path, mode: MergeMode, done: &[Prepared]) -> Result<Duration, Failure> {
    let items: Vec<_> = done.iter().flat_map(|one| &one.items).collect();
    let is_rebase = matches!(mode, MergeMode::Rebase | MergeMode::RebaseFirstParent);
    let (took, ()) = each(items.len(), || {
        for item in &items {
            if is_rebase {
                let both = format!("{}...{}", item.ahead, item.change_commit);
                git(mirror, &["rev-list", "--no-merges", "--cherry-pick", "--right-only", &both])?;
            }
            let tree = git(mirror, &["merge-tree", "--write-tree", &item.ahead, &item.change_commit])?;
            if tree != item.tree {
                return Err(format!("{} on {}: git makes another tree", item.change_commit, item.ahead).into());
            }
        }
        Ok(())
    })?;
    Ok(took)
}

/// The commits of changes, brought into the mirror.
fn fetch(mirrors: &Mirrors, project: &ProjectKey, count: usize) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = (0..count).map(change_ref).collect();
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = mirrors.fetch(project, &asked)?.refs;
    names.iter().map(|name| Ok(found.get(name).ok_or("a change did not come")?.clone())).collect()
}

// ---- chains ----

fn chains() -> Result<(), Failure> {
    /// Of the long one, which only shows how it grows.
    const LONG: usize = 400;
    let room = tempfile::tempdir()?;
    let (mut forge, first) = begun(room.path().join("forge"))?;
    for number in 0..LONG {
        forge.commit(&change_ref(number), &[first], &[(path(number * 5), "changed\n".to_owned())])?;
    }
    let forge = forge.done()?;
    let (mirrors, project) = mirrors(&room.path().join("mirrors"), &forge, 16)?;
    let changes = fetch(&mirrors, &project, LONG)?;
    let base = mirrors.branch_tip(&project, "master")?;
    let mirror = mirrors.path(&project)?;
    let mut table = Table::new(&format!(
        "A chain of {CHANGES} changes on {FILES} files, each a merge with its commit and the list of its files (limit: \
         git merge-tree for the same merge, before a rebase git rev-list --cherry-pick too; processor time for each)"
    ));
    let mut date = 0;
    for mode in MergeMode::ALL {
        let mut chain = |id: &str, count: usize| {
            // Another date each time, so that every commit is made anew.
            date += 1;
            let items = changes.iter().take(count).enumerate();
            let items = items.map(|(number, commit)| item(&project, number, commit, mode, date)).collect();
            each(count, || prepare(&mirrors, &project, &base, id, items))
        };
        chain("warm", CHANGES)?;
        let before = mirrors.tally();
        let (mut here, done) = chain("measured", CHANGES)?;
        let asked = mirrors.tally().asked - before.asked;
        for _ in 0..2 {
            here = here.min(chain("again", CHANGES)?.0);
        }
        let there = by_git(&mirror, mode, &[done])?;
        let what = format!("`{}`, git asked {asked} times", mode.name());
        table.row(&what, time(here), time(there), ratio(here, there), "");
        let long = chain("long", LONG)?.0.min(chain("long-again", LONG)?.0);
        table.row(&format!("`{}` in a chain of {LONG}", mode.name()), time(long), time(here), ratio(here, long), "");
    }
    table.print();
    Ok(())
}

// ---- single merges in a large history ----

/// What another process needs to make the same merges.
struct Large {
    room: PathBuf,
    base: String,
    changes: Vec<String>,
}

impl Large {
    fn save(&self) -> Result<(), Failure> {
        Ok(std::fs::write(self.room.join("merges"), format!("{}\n{}", self.base, self.changes.join("\n")))?)
    }

    fn load(room: &Path) -> Result<Large, Failure> {
        let text = std::fs::read_to_string(room.join("merges"))?;
        let mut lines = text.lines().map(str::to_owned);
        let base = lines.next().ok_or("no base")?;
        Ok(Large { room: room.to_owned(), base, changes: lines.collect() })
    }

    fn mirrors(&self, open: usize) -> Result<(Mirrors, ProjectKey), Failure> {
        mirrors(&self.room.join("mirrors"), &self.room.join("forge"), open)
    }

    /// Each change by itself on the branch.
    fn merge(
        &self,
        (mirrors, project): &(Mirrors, ProjectKey),
        mode: MergeMode,
        date_s: i64,
        count: usize,
    ) -> Result<Vec<Prepared>, Failure> {
        let changes = self.changes.iter().take(count).enumerate();
        changes
            .map(|(number, commit)| {
                let items = vec![item(project, number, commit, mode, date_s)];
                prepare(mirrors, project, &self.base, &format!("single-{number}"), items)
            })
            .collect()
    }
}

/// A branch of merges, as a gate makes it; changes begun at some time before.
fn large(room: &Path) -> Result<Large, Failure> {
    let (mut forge, first) = begun(room.join("forge"))?;
    let (mut tip, mut line) = (first, vec![first]);
    for number in 0..COMMITS / 2 {
        // A change of one file, begun a while ago, and its merge.
        let from = line.get(line.len().saturating_sub(1 + number % 17)).copied().unwrap_or(first);
        let edit = [(path((number * 7) % FILES), format!("{number}\n"))];
        let side = forge.commit("refs/heads/master", &[from], &edit)?;
        tip = forge.commit("refs/heads/master", &[tip, side], &edit)?;
        line.push(tip);
    }
    for number in 0..SINGLE {
        let from = line.get(line.len().saturating_sub(10 + 15 * number)).copied().unwrap_or(first);
        forge.commit(&change_ref(number), &[from], &[(format!("new/{number}"), "new\n".to_owned())])?;
    }
    let forge = forge.done()?;
    let (mirrors, project) = mirrors(&room.join("mirrors"), &forge, 0)?;
    let changes = fetch(&mirrors, &project, SINGLE)?;
    let base = mirrors.branch_tip(&project, "master")?;
    Ok(Large { room: room.to_owned(), base, changes })
}

fn single() -> Result<(), Failure> {
    let room = tempfile::tempdir()?;
    let large = large(room.path())?;
    large.save()?;
    let mut table = Table::new(&format!(
        "Single merges in a history of {COMMITS} commits, of changes begun 10 to {} merges before (limit: git \
         merge-tree for the same merge, before a rebase git rev-list --cherry-pick too; processor time for each)",
        10 + 15 * SINGLE
    ));
    let (open, closed) = (large.mirrors(16)?, large.mirrors(0)?);
    let mirror = open.0.path(&open.1)?;
    let mut date = 0;
    for mode in [MergeMode::Merge, MergeMode::CherryPick, MergeMode::Rebase] {
        let mut run = |mirrors, count| {
            date += 1;
            each(count, || large.merge(mirrors, mode, date, count))
        };
        run(&open, SINGLE)?;
        let (mut here, done) = run(&open, SINGLE)?;
        here = here.min(run(&open, SINGLE)?.0);
        let anew = run(&closed, SINGLE)?.0.min(run(&closed, SINGLE)?.0);
        let there = by_git(&mirror, mode, &done)?;
        table.row(&format!("`{}`, the mirror open", mode.name()), time(here), time(there), ratio(here, there), "");
        table.row(&format!("`{}`, opened for each", mode.name()), time(anew), time(there), ratio(anew, there), "");
    }
    for (what, count) in [("the mirror open", "16"), ("opened for each", "0")] {
        match instructions(room.path(), count)? {
            Some(count) => table.note(&format!("instructions of a single `merge`, {what}"), millions(count)),
            None => println!("SKIPPED instructions of a merge: valgrind is not there"),
        }
    }
    table.print();
    Ok(())
}

fn millions(count: u64) -> String {
    format!("{:.1} M", count as f64 / 1e6)
}

/// Merges the changes once, so that what can be known is, and then again so often. Run under callgrind.
fn counted(room: &Path) -> Result<(), Failure> {
    let number = |name: &str| -> Result<usize, Failure> { Ok(std::env::var(name)?.parse()?) };
    let (large, open) = (Large::load(room)?, number("GATELOG_COUNT_OPEN")?);
    let mirrors = large.mirrors(open)?;
    for round in 0..=number("GATELOG_COUNT_ROUNDS")? {
        large.merge(&mirrors, MergeMode::Merge, 1000 + i64::try_from(round)?, COUNTED)?;
    }
    Ok(())
}

/// So many changes are merged for the instructions of one.
const COUNTED: usize = 10;

/// The instructions of one merge: what a second round adds.
fn instructions(room: &Path, open: &str) -> Result<Option<u64>, Failure> {
    let mut counts = Vec::new();
    for rounds in ["0", "1"] {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe()?)
            .envs([("GATELOG_COUNT_OPEN", open), ("GATELOG_COUNT_ROUNDS", rounds)])
            .env("GATELOG_COUNT", room)
            .output();
        let Ok(output) = output else { return Ok(None) };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let counted = said.lines().find(|line| line.contains("Collected"));
        let counted = counted.and_then(|line| line.rsplit(':').next()?.trim().parse::<u64>().ok());
        counts.push(counted.ok_or_else(|| format!("callgrind counted nothing: {said}"))?);
    }
    let [first, both] = counts[..] else { return Ok(None) };
    Ok(Some(both.saturating_sub(first) / u64::try_from(COUNTED)?))
}
