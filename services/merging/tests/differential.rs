//! Generated histories, merged here and by the git program: the same verdict, the same tree.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use gatelog_merging::*;
use git2::{Oid, Repository, Signature, Time};
use support::*;

/// A small generator: the same cases every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides).unwrap()).unwrap()
    }
}

/// Files and whether they are executable.
type Files = BTreeMap<String, (Vec<String>, bool)>;

fn edit(dice: &mut Dice, files: &mut Files, tag: &str) {
    let names: Vec<String> = files.keys().cloned().collect();
    let pick = names.get(dice.roll(names.len().max(1))).cloned();
    let (Some(name), kind) = (pick, dice.roll(12)) else { return };
    match kind {
        0 => drop(files.remove(&name)),
        1 => {
            let name = ["d/new", "e/new", "new"][dice.roll(3)];
            files.insert(name.to_owned(), (vec![format!("new by {tag}")], false));
        }
        2 => {
            // Only whole and in the same directory: renamed directories are a known difference.
            let content = files.remove(&name).unwrap();
            files.insert(format!("{name}.{}", ["x", "y"][dice.roll(2)]), content);
        }
        3 => files.get_mut(&name).unwrap().1 ^= true,
        _ => {
            let lines = &mut files.get_mut(&name).unwrap().0;
            let at = dice.roll(lines.len() + 1);
            match dice.roll(4) {
                0 => lines.insert(at, format!("{tag} {}", dice.roll(3))),
                1 if at < lines.len() => drop(lines.remove(at)),
                _ if at < lines.len() => lines[at] = format!("{tag} {}", dice.roll(2)),
                _ => lines.push(format!("{tag} end")),
            }
        }
    }
}

fn write(repo: &Repository, files: &Files, parents: &[Oid], message: &str) -> Oid {
    let mut index = git2::Index::new().unwrap();
    let mut update = git2::build::TreeUpdateBuilder::new();
    for (path, (lines, executable)) in files {
        let blob = repo.blob(format!("{}\n", lines.join("\n")).as_bytes()).unwrap();
        let mode = if *executable { git2::FileMode::BlobExecutable } else { git2::FileMode::Blob };
        update.upsert(path.as_str(), blob, mode);
    }
    let empty = repo.find_tree(index.write_tree_to(repo).unwrap()).unwrap();
    let tree = repo.find_tree(update.create_updated(repo, &empty).unwrap()).unwrap();
    let who = Signature::new("Ann", "ann@example.org", &Time::new(1_600_000_000, 0)).unwrap();
    let parents: Vec<_> = parents.iter().map(|id| repo.find_commit(*id).unwrap()).collect();
    repo.commit(None, &who, &who, message, &tree, &parents.iter().collect::<Vec<_>>()).unwrap()
}

struct Case {
    ours: Oid,
    theirs: Oid,
}

fn case(repo: &Repository, number: u64) -> Case {
    let mut dice = Dice(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for _ in 0..8 {
        dice.roll(2);
    }
    let mut files = Files::new();
    for name in ["a", "b", "d/c", "e/f/g"] {
        let count = 4 + dice.roll(14);
        files.insert(name.to_owned(), ((0..count).map(|n| format!("{name} line {n}")).collect(), false));
    }
    let base = write(repo, &files, &[], &format!("base {number}"));
    let mut side = |tag: &str, commits: usize, edits: usize| {
        let (mut files, mut tip) = (files.clone(), base);
        for n in 0..commits {
            for _ in 0..=dice.roll(edits) {
                edit(&mut dice, &mut files, tag);
            }
            tip = write(repo, &files, &[tip], &format!("{tag} {n}"));
        }
        tip
    };
    // Often the same words on both sides, so that both sometimes make the same edit.
    let same = number.is_multiple_of(3);
    let ours = side(if same { "both" } else { "ours" }, usize::from(!number.is_multiple_of(11)) * 2, 3);
    let theirs = side(if same { "both" } else { "theirs" }, 1 + usize::from(number.is_multiple_of(2)), 3);
    Case { ours, theirs }
}

/// The tree that git gets, or none for a conflict; and what it says.
fn by_git(bare: &Path, work: &Path, mode: MergeMode, case: &Case) -> (Option<String>, String) {
    let (ours, theirs) = (case.ours.to_string(), case.theirs.to_string());
    if mode == MergeMode::Merge {
        let output = try_git(bare, &["merge-tree", "--write-tree", &ours, &theirs]);
        let text = String::from_utf8(output.stdout).unwrap();
        return (output.status.success().then(|| text.trim().to_owned()), text);
    }
    git(work, &["checkout", "-q", "-f", "--detach", if mode == MergeMode::Rebase { &theirs } else { &ours }]);
    git(work, &["clean", "-q", "-ffdx"]);
    let args: &[&str] = match mode {
        MergeMode::Rebase => &["rebase", "-q", &ours],
        MergeMode::MergeResolve => &["merge", "-q", "-s", "resolve", "-m", "m", &theirs],
        MergeMode::SquashMerge => &["merge", "-q", "--squash", &theirs],
        _ => &["cherry-pick", "--keep-redundant-commits", &theirs],
    };
    let output = try_git(work, args);
    let (done, said) = (output.status.success(), format!("{output:?}"));
    let tree = if done { Some(git(work, &["write-tree"])) } else { None };
    if !done {
        let _ = try_git(work, &["rebase", "--abort"]);
        let _ = try_git(work, &["cherry-pick", "--abort"]);
        git(work, &["reset", "-q", "--hard"]);
    }
    (tree, said)
}

fn compare(mode: MergeMode, cases: u64) {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("seed", "1\n")]);
    let bare = Repository::open_bare(&ann.bare).unwrap();
    let cases: Vec<Case> = (0..cases).map(|number| case(&bare, number)).collect();
    // Refs, so that the mirror fetches them all.
    for (number, case) in cases.iter().enumerate() {
        bare.reference(&format!("refs/heads/ours/{number}"), case.ours, true, "").unwrap();
        bare.reference(&format!("refs/heads/theirs/{number}"), case.theirs, true, "").unwrap();
    }
    git(&ann.work, &["fetch", "-q", "origin"]);
    site.mirrors.fetch(&project, &[]).unwrap();
    let (mut conflicts, mut different) = (0, Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let mut one = item(&project, "x", Some(&case.theirs.to_string()), mode);
        one.branch = format!("ours/{number}");
        let mut asked = request("d", vec![one]);
        let branch = BranchKey::new(project.clone(), format!("ours/{number}"));
        asked.bases = vec![FrozenBase { branch, commit: case.ours.to_string() }];
        let (here, why) = match site.mirrors.prepare(&asked).unwrap() {
            PrepareOutcome::Merged(prepared) => (Some(prepared.branches[0].tree.clone()), String::new()),
            PrepareOutcome::Conflict(conflict) => (None, conflict.message),
        };
        let (there, said) = by_git(&ann.bare, &ann.work, mode, case);
        conflicts += usize::from(there.is_none());
        if here != there {
            different.push(format!("case {number}: here {here:?} {why}, git {there:?} {said}"));
        }
    }
    // A test in which nothing or everything conflicts would prove little.
    assert!(conflicts > cases.len() / 20 && conflicts < cases.len() * 19 / 20, "{conflicts} conflicts");
    assert!(different.is_empty(), "{different:#?}");
    println!("{mode:?}: {:?}", site.mirrors.tally());
}

#[test]
fn merge_as_git_does() {
    compare(MergeMode::Merge, 400);
}

#[test]
fn merge_resolve_as_git_does() {
    compare(MergeMode::MergeResolve, 40);
}

#[test]
fn cherry_pick_as_git_does() {
    compare(MergeMode::CherryPick, 60);
}

#[test]
fn squash_merge_as_git_does() {
    compare(MergeMode::SquashMerge, 60);
}

#[test]
fn rebase_as_git_does() {
    compare(MergeMode::Rebase, 60);
}
