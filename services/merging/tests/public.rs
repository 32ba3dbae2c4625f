//! Real merges from the history of public repositories: the same verdict and the same tree as git's.
//!
//! `tests/public/` holds what git said, a file for each repository: repository names, commit ids and digests of the
//! verdicts, nothing else of theirs. It is played again where the repositories are found in the
//! folder that `GATELOG_PUBLIC_REPOSITORIES` names (bare or not, as `owner+name`, `owner+name/repo`,
//! `owner/name` or `owner/name.git`; one is enough). `GATELOG_PUBLIC_RECORD=1` asks git what is not
//! recorded yet and writes the files as it goes (a file that was removed is asked anew);
//! `GATELOG_PUBLIC_ONLY` names one repository, `GATELOG_PUBLIC_PART=0/4` a fourth of its questions, for
//! several processes side by side; `GATELOG_PUBLIC_SECONDS` says how long playing may take (60).
#![expect(clippy::print_stdout, reason = "what was compared is of interest where nothing differs")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gatelog_merging::*;
use support::peer::{by_merge_tree, by_work_tree};
use support::*;

/// What is asked of a repository: how many merges in each mode. Those other than `merge` need a work
/// tree, so they are asked where that is not too large.
struct Wanted {
    name: &'static str,
    merges: usize,
    others: usize,
}

const REPOSITORIES: [Wanted; 9] = [
    Wanted { name: "openstack/openstack-ansible", merges: 300, others: 140 },
    Wanted { name: "rust-lang/cargo", merges: 450, others: 140 },
    Wanted { name: "libgit2/libgit2", merges: 300, others: 120 },
    Wanted { name: "jqlang/jq", merges: 90, others: 90 },
    Wanted { name: "git/git", merges: 450, others: 0 },
    Wanted { name: "openstack/nova", merges: 400, others: 0 },
    Wanted { name: "ansible/ansible", merges: 200, others: 0 },
    Wanted { name: "Perl/perl5", merges: 150, others: 0 },
    Wanted { name: "curl/curl", merges: 250, others: 0 },
];

const OTHERS: [MergeMode; 5] = [
    MergeMode::MergeResolve,
    MergeMode::CherryPick,
    MergeMode::SquashMerge,
    MergeMode::Rebase,
    MergeMode::RebaseFirstParent,
];

/// One question: `theirs` on top of `ours`.
#[derive(Clone, Debug)]
struct Question {
    mode: MergeMode,
    ours: String,
    theirs: String,
}

impl Question {
    /// How it stands in the record, before what git said.
    fn text(&self) -> String {
        format!("{} {} {}", self.mode.name(), self.ours, self.theirs)
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("GATELOG_PUBLIC_REPOSITORIES")?);
    let joined = name.replace('/', "+");
    let places = [joined.clone(), format!("{joined}/repo"), name.to_owned(), format!("{name}.git")];
    places.iter().map(|place| folder.join(place)).find(|place| git2::Repository::open(place).is_ok())
}

/// A mirror that borrows a repository's objects, and a work tree that does.
struct Borrowed {
    project: ProjectKey,
    mirror: PathBuf,
    work: PathBuf,
}

fn borrow(site: &Site, name: &str, from: &Path) -> Borrowed {
    let project = ProjectKey::new("public", name);
    let mirror = site.mirrors.path(&project).unwrap();
    std::fs::create_dir_all(mirror.parent().unwrap()).unwrap();
    let (from, place) = (from.to_str().unwrap(), mirror.to_str().unwrap());
    git(site.dir.path(), &["clone", "-q", "--bare", "--shared", from, place]);
    // What makes a directory a mirror that is done.
    std::fs::write(mirror.join("gatelog-mirror"), from).unwrap();
    let work = site.dir.path().join("work").join(name);
    std::fs::create_dir_all(&work).unwrap();
    git(&work, &["clone", "-q", "--shared", "--no-checkout", place, "."]);
    Borrowed { project, mirror, work }
}

/// The tree that comes out, or none for a conflict; and why.
fn here(site: &Site, project: &ProjectKey, question: &Question) -> (Option<String>, String) {
    let mut one = item(project, "x", Some(&question.theirs), question.mode);
    one.branch = "asked".to_owned();
    let mut asked = request("public", vec![one]);
    let branch = BranchKey::new(project.clone(), "asked");
    asked.bases = vec![FrozenBase { branch, commit: question.ours.clone() }];
    match site.mirrors.prepare(&asked) {
        Ok(PrepareOutcome::Merged(prepared)) => (Some(prepared.branches[0].tree.clone()), String::new()),
        Ok(PrepareOutcome::Conflict(conflict)) => (None, conflict.message),
        Err(error) => panic!("{question:?}: {error} {:?}", std::error::Error::source(&error)),
    }
}

/// What is written of a verdict.
fn digest(tree: Option<&String>) -> String {
    tree.map_or_else(|| "conflict".to_owned(), |tree| tree[..12].to_owned())
}

/// Merges with two parents, spread over the whole history; those of several merge bases and those with
/// conflicts come by themselves.
fn merges(bare: &Path, count: usize) -> Vec<(String, String, String)> {
    let text = git(bare, &["rev-list", "--all", "--min-parents=2", "--max-parents=2", "--parents"]);
    let all: Vec<(String, String, String)> = text
        .lines()
        .filter_map(|line| {
            let mut ids = line.split(' ').map(str::to_owned);
            Some((ids.next()?, ids.next()?, ids.next()?))
        })
        .collect();
    // Many merge commits could have been fast-forwards: of those there is nothing to be learned.
    let repo = git2::Repository::open(bare).unwrap();
    let id = |text: &str| git2::Oid::from_str(text).unwrap();
    let is_merge = |(_, one, two): &(String, String, String)| {
        repo.merge_base(id(one), id(two)).is_ok_and(|base| base != id(one) && base != id(two))
    };
    let step = (all.len() / (2 * count).max(1)).max(1);
    all.into_iter().step_by(step).filter(is_merge).take(count).collect()
}

fn questions(bare: &Path, wanted: &Wanted) -> Vec<Question> {
    let merges = merges(bare, wanted.merges);
    let question = |mode, ours: &String, theirs: &String| Question { mode, ours: ours.clone(), theirs: theirs.clone() };
    let mut all: Vec<Question> = merges.iter().map(|(_, one, two)| question(MergeMode::Merge, one, two)).collect();
    let step = (merges.len() / wanted.others.max(1)).max(1);
    let repo = git2::Repository::open(bare).unwrap();
    let id = |text: &str| git2::Oid::from_str(text).unwrap();
    for (n, (at, (merge, one, two))) in merges.iter().enumerate().step_by(step).take(wanted.others).enumerate() {
        for mode in OTHERS {
            // A merge made again: on top of the side branch of another one.
            let again = merges.get(at + 1).filter(|_| mode == MergeMode::RebaseFirstParent && n % 2 == 0);
            let (ours, theirs) = again.map_or((one, two), |(_, _, other)| (other, merge));
            let is_short = || {
                let (ahead, behind) = repo.graph_ahead_behind(id(theirs), id(ours)).unwrap();
                ahead <= 15 && behind <= 900
            };
            if !matches!(mode, MergeMode::Rebase | MergeMode::RebaseFirstParent) || again.is_some() || is_short() {
                all.push(question(mode, ours, theirs));
            }
        }
    }
    all
}

/// The attribute files of a commit. Most directories are the same in many commits.
struct Attributes {
    repo: git2::Repository,
    known: BTreeMap<git2::Oid, Vec<(String, git2::Oid)>>,
}

impl Attributes {
    fn new(bare: &Path) -> Attributes {
        Attributes { repo: git2::Repository::open(bare).unwrap(), known: BTreeMap::new() }
    }

    fn of(&mut self, commit: &str) -> Vec<(String, git2::Oid)> {
        let tree = self.repo.find_commit(git2::Oid::from_str(commit).unwrap()).unwrap().tree_id();
        self.below(tree)
    }

    fn below(&mut self, tree: git2::Oid) -> Vec<(String, git2::Oid)> {
        if let Some(known) = self.known.get(&tree) {
            return known.clone();
        }
        let mut found = Vec::new();
        let mut directories = Vec::new();
        for entry in &self.repo.find_tree(tree).unwrap() {
            let name = String::from_utf8_lossy(entry.name_bytes()).into_owned();
            match entry.kind() {
                Some(git2::ObjectType::Blob) if name == ".gitattributes" => found.push((name, entry.id())),
                Some(git2::ObjectType::Tree) => directories.push((name, entry.id())),
                _ => {}
            }
        }
        for (name, id) in directories {
            found.extend(self.below(id).into_iter().map(|(path, id)| (format!("{name}/{path}"), id)));
        }
        self.known.insert(tree, found.clone());
        found
    }
}

#[derive(Default)]
struct Sums {
    questions: usize,
    conflicts: usize,
    /// Of all, and of those that were certain in memory.
    ours: [Duration; 2],
    theirs: [Duration; 2],
}

/// What the record says: questions as [`Question::text`] has them, and what git said.
fn recorded(name: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file(name)).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    lines.map(|(asked, said)| (asked.to_owned(), said.to_owned())).collect()
}

/// Which part of the questions is asked, counted from 0, and of how many.
fn part() -> (usize, usize) {
    let text = std::env::var("GATELOG_PUBLIC_PART").unwrap_or_else(|_| "0/1".to_owned());
    let (part, parts) = text.split_once('/').unwrap_or_else(|| panic!("GATELOG_PUBLIC_PART is {text:?}, not like 0/4"));
    (part.parse().unwrap(), parts.parse().unwrap())
}

/// Asks git what it was not asked yet, writes down what it says, and compares.
fn record(site: &Site, wanted: &Wanted, from: &Path) -> Vec<String> {
    let borrowed = borrow(site, wanted.name, from);
    let mut attributes = Attributes::new(&borrowed.mirror);
    let mut known = recorded(wanted.name);
    let (part, parts) = part();
    let (questions, mut different) = (questions(&borrowed.mirror, wanted), Vec::new());
    let write = |known: &mut BTreeMap<String, String>| {
        // Others may record their parts of the same.
        known.extend(recorded(wanted.name));
        let said = questions.iter().filter_map(|one| known.get_key_value(&one.text()));
        let lines: Vec<String> = said.map(|(asked, said)| format!("{asked} {said}\n")).collect();
        let whole = file(wanted.name).with_extension(std::process::id().to_string());
        std::fs::write(&whole, format!("# {}\n{}", wanted.name, lines.concat())).unwrap();
        std::fs::rename(whole, file(wanted.name)).unwrap();
    };
    let mut sums: BTreeMap<&str, (Sums, Tally)> = BTreeMap::new();
    for (at, question) in questions.iter().enumerate() {
        let Question { mode, ours, theirs } = question;
        if known.contains_key(&question.text()) || at / OTHERS.len() % parts != part {
            continue;
        }
        let before = site.mirrors.tally();
        let begun = Instant::now();
        let (tree, why) = here(site, &borrowed.project, question);
        let took = begun.elapsed();
        let after = site.mirrors.tally();
        let files = if *mode == MergeMode::Merge { attributes.of(ours) } else { Vec::new() };
        let begun = Instant::now();
        let (there, said) = match mode {
            MergeMode::Merge => by_merge_tree(&borrowed.work, &files, ours, theirs),
            mode => by_work_tree(&borrowed.work, *mode, ours, theirs),
        };
        if said.contains("You have unstaged changes") {
            // Files whose line ends are not as their attributes say: git refuses to begin.
            println!("{} {mode:?} {ours} {theirs}: cannot be asked in a work tree", wanted.name);
            continue;
        }
        let (sum, tally) = sums.entry(mode.name()).or_default();
        let git_took = begun.elapsed();
        let is_certain = after.asked == before.asked && after.in_memory > before.in_memory;
        for at in 0..=usize::from(is_certain) {
            sum.theirs[at] += git_took;
            sum.ours[at] += took;
        }
        sum.questions += 1;
        sum.conflicts += usize::from(there.is_none());
        tally.in_memory += after.in_memory - before.in_memory;
        tally.asked += after.asked - before.asked;
        if tree != there {
            different.push(format!("{} {question:?}: here {tree:?} {why}, git {there:?} {said}", wanted.name));
        }
        known.insert(question.text(), digest(there.as_ref()));
        if known.len().is_multiple_of(10) {
            // What is left is asked next time, should somebody end this.
            write(&mut known);
        }
    }
    write(&mut known);
    for (mode, (sum, tally)) in sums {
        let [ours, theirs] = [sum.ours, sum.theirs].map(|times| times.map(|time| time.as_secs_f64()));
        println!(
            "{} {mode}: {} merges, {} conflicts; {} certain in memory, git asked {} times; {:.1} s here, {:.1} s git; \
             where certain {:.2} s here, {:.2} s git",
            wanted.name,
            sum.questions,
            sum.conflicts,
            tally.in_memory,
            tally.asked,
            ours[0],
            theirs[0],
            ours[1],
            theirs[1],
        );
    }
    different
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/public").join(format!("{}.txt", name.replace('/', "+")))
}

#[test]
fn merges_of_public_repositories_are_as_git_said() {
    let begun = Instant::now();
    let seconds = std::env::var("GATELOG_PUBLIC_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let is_recording = std::env::var_os("GATELOG_PUBLIC_RECORD").is_some();
    let only = std::env::var("GATELOG_PUBLIC_ONLY").ok();
    let site = Site::new();
    let (mut missing, mut different, mut played, mut left) = (Vec::new(), Vec::new(), 0, 0);
    let mut sums: BTreeMap<(&str, &str), (usize, usize, Tally)> = BTreeMap::new();
    for wanted in REPOSITORIES.iter().filter(|wanted| only.as_deref().is_none_or(|only| only == wanted.name)) {
        let Some(from) = find(wanted.name) else {
            missing.push(wanted.name);
            continue;
        };
        if is_recording {
            different.extend(record(&site, wanted, &from));
            continue;
        }
        let borrowed = borrow(&site, wanted.name, &from);
        for line in std::fs::read_to_string(file(wanted.name)).unwrap().lines().filter(|line| !line.starts_with('#')) {
            let parts: Vec<&str> = line.split(' ').collect();
            let [mode, ours, theirs, verdict] = parts[..] else { panic!("{line}") };
            if begun.elapsed() > Duration::from_secs(seconds) {
                left += 1;
                continue;
            }
            let mode = MergeMode::from_name(mode).unwrap();
            let question = Question { mode, ours: ours.to_owned(), theirs: theirs.to_owned() };
            let before = site.mirrors.tally();
            let (tree, why) = here(&site, &borrowed.project, &question);
            let after = site.mirrors.tally();
            played += 1;
            let (merges, conflicts, tally) = sums.entry((mode.name(), wanted.name)).or_default();
            *merges += 1;
            *conflicts += usize::from(tree.is_none());
            tally.in_memory += after.in_memory - before.in_memory;
            tally.asked += after.asked - before.asked;
            if digest(tree.as_ref()) != verdict {
                different.push(format!("{} {question:?}: here {tree:?} {why}, git {verdict}", wanted.name));
            }
        }
    }
    if !missing.is_empty() {
        println!(
            "SKIPPED merges of public repositories: {} not found in the folder GATELOG_PUBLIC_REPOSITORIES",
            missing.join(", ")
        );
    }
    for ((mode, name), (merges, conflicts, tally)) in sums {
        println!(
            "{mode} {name}: {merges} merges, {conflicts} conflicts; {} certain in memory, git asked {} times",
            tally.in_memory, tally.asked
        );
    }
    println!(
        "merges of public repositories: {played} played, {left} left for want of time; {:?}",
        site.mirrors.tally()
    );
    assert!(different.is_empty(), "{} differ: {different:#?}", different.len());
}
