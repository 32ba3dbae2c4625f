//! Generated histories, merged here and by the git program: the same verdict, the same tree.
//!
//! With renamed, deleted and moved files and directories, modes, symbolic links, line ends,
//! attributes, submodules, directories in the place of files, and several merge bases.
//! `GATELOG_MERGES_SEED=N` plays one case again, `GATELOG_MERGES_SECONDS=N` plays each mode longer.
#![expect(clippy::print_stdout, reason = "what was compared is of interest where nothing differs")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

mod support;

use std::time::{Duration, Instant};

use gatelog_merging::*;
use git2::Repository;
use support::histories::case;
use support::peer::{by_merge_tree, by_work_tree};
use support::*;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Plays at least `least` cases, and more for as long as there is time.
fn compare(mode: MergeMode, least: u64, seconds: u64) {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("seed", "1\n")]);
    let bare = Repository::open_bare(&ann.bare).unwrap();
    // Both borrow the objects, so that cases can be made as they are needed.
    let mirror = site.mirrors.path(&project).unwrap();
    site.mirrors.fetch(&project, &[]).unwrap();
    for objects in [mirror.join("objects"), ann.work.join(".git/objects")] {
        std::fs::write(objects.join("info/alternates"), ann.bare.join("objects").to_str().unwrap()).unwrap();
    }
    let seconds = number("GATELOG_MERGES_SECONDS").unwrap_or(seconds);
    let (begun, one) = (Instant::now(), number("GATELOG_MERGES_SEED"));
    let numbers = one.map_or(0..100_000, |one| one..one + 1);
    let (mut played, mut conflicts, mut crossed, mut different) = (0u64, 0u64, 0u64, Vec::new());
    for number in numbers {
        if played >= least && begun.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        let case = case(&bare, number);
        let (ours, theirs) = (case.ours.to_string(), case.theirs.to_string());
        let put = |on: &str, changes: &[&str]| {
            let items = changes.iter().map(|change| item(&project, "x", Some(change), mode));
            let items = items.map(|item| MergeItem { branch: "asked".to_owned(), ..item }).collect();
            let mut asked = request("d", items);
            let branch = BranchKey::new(project.clone(), "asked");
            asked.bases = vec![FrozenBase { branch, commit: on.to_owned() }];
            match site.mirrors.prepare(&asked).unwrap() {
                PrepareOutcome::Merged(prepared) => (Some(prepared.branches[0].tree.clone()), String::new()),
                PrepareOutcome::Conflict(conflict) => (None, conflict.message),
            }
        };
        let (here, why) = put(&ours, &[&theirs]);
        if matches!(mode, MergeMode::Merge | MergeMode::MergeResolve) {
            // The first is fast-forwarded, so the second finds the same state, as part of a chain.
            assert_eq!(put(&case.base.to_string(), &[&ours, &theirs]).0, here, "GATELOG_MERGES_SEED={number}");
        }
        let has_attributes = || git(&ann.bare, &["ls-tree", "-r", "--name-only", &ours]).contains(".gitattributes");
        let (there, said) = if mode == MergeMode::Merge && !has_attributes() {
            by_merge_tree(&ann.bare, &[], &ours, &theirs)
        } else {
            by_work_tree(&ann.work, mode, &ours, &theirs)
        };
        played += 1;
        conflicts += u64::from(there.is_none());
        crossed += u64::from(case.is_crossed);
        if here != there {
            different.push(format!(
                "GATELOG_MERGES_SEED={number} (git -C {} ... {ours} {theirs}): here {here:?} {why}, git {there:?} {said}",
                ann.bare.display()
            ));
        }
    }
    println!("{mode:?}: {played} cases, {conflicts} conflicts, {crossed} crossed, {:?}", site.mirrors.tally());
    if !different.is_empty() && one.is_some() {
        println!("kept in {}", site.dir.keep().display());
    }
    assert!(different.is_empty(), "{} of {played} differ: {different:#?}", different.len());
    // A test in which nothing or everything conflicts would prove little.
    assert!(one.is_some() || (conflicts > played / 20 && conflicts < played * 19 / 20), "{conflicts} conflicts");
}

#[test]
fn merge_as_git_does() {
    compare(MergeMode::Merge, 60, 8);
}

#[test]
fn merge_resolve_as_git_does() {
    compare(MergeMode::MergeResolve, 30, 4);
}

#[test]
fn cherry_pick_as_git_does() {
    compare(MergeMode::CherryPick, 30, 4);
}

#[test]
fn squash_merge_as_git_does() {
    compare(MergeMode::SquashMerge, 20, 3);
}

#[test]
fn rebase_as_git_does() {
    compare(MergeMode::Rebase, 30, 4);
}

#[test]
fn rebase_first_parent_as_git_does() {
    compare(MergeMode::RebaseFirstParent, 30, 4);
}
