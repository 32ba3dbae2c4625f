//! What is asked of repositories besides merges: files of a change, branches that hold a tag, the state
//! of everything a buildset touches; and submodules.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use gatelog_merging::*;
use support::*;

const LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

#[test]
fn the_files_of_a_change_are_those_it_changes_on_its_branch() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", LINES), ("old", LINES), ("gone", "gone\n"), ("back", "1\n")]);
    let base = ann.head();
    ann.checkout(&base);
    ann.commit(&[("back", "2\n"), ("new", "x\n")], "one");
    ann.commit(&[("back", "1\n"), ("gone", "-")], "two: back as it was");
    git(&ann.work, &["mv", "old", "renamed"]);
    let change = ann.commit(&[("renamed", &LINES.replace('5', "five"))], "three: renamed and edited");
    ann.push("refs/for/master/change");
    // The branch goes on, and the change takes it in.
    ann.checkout(&base);
    let tip = ann.commit(&[("a", "moved on\n"), ("by the branch", "x")], "the branch");
    ann.push("refs/heads/master");
    ann.checkout(&change);
    git(&ann.work, &["merge", "-q", "--no-ff", "-m", "master taken in", &tip]);
    let merged = ann.head();
    ann.push("refs/for/master/merged");
    site.mirrors.fetch(&project, &["refs/for/master/change", "refs/for/master/merged"]).unwrap();
    // Between two states both names count: a job for either has to run.
    let between = site.mirrors.changed_files(&project, &base, &change).unwrap();
    assert_eq!(between.paths, ["gone", "new", "old", "renamed"]);
    // What a change came to on top of its branch. What was changed and changed back is not listed.
    for mode in MergeMode::ALL {
        let done = merged_of(&site, &project, "change", mode);
        let expected: &[&str] =
            if mode == MergeMode::CherryPick { &["old", "renamed"] } else { &["gone", "new", "old", "renamed"] };
        assert_eq!(done.items[0].files.paths, expected, "{mode:?}");
    }
    // Nor is what a merge of the branch into the change brought.
    let done = merged_of(&site, &project, "merged", MergeMode::Merge);
    assert_eq!((done.items[0].change_commit.clone(), &done.items[0].files.paths[..]), (merged, &between.paths[..]));
    let mut config = MirrorsConfig::new(site.dir.path().join("mirrors"));
    config.limits.changed_files = 2;
    let small = Mirrors::open(config).unwrap();
    small.set_source(&project, ann.bare.to_str().unwrap()).unwrap();
    let cut = &small.prepare(&request("cut", vec![item(&project, "merged", None, MergeMode::Merge)]));
    let Ok(PrepareOutcome::Merged(cut)) = cut else { panic!("{cut:?}") };
    assert_eq!((cut.items[0].files.paths.len(), cut.items[0].files.truncated), (2, true));
}

fn merged_of(site: &Site, project: &ProjectKey, name: &str, mode: MergeMode) -> Prepared {
    merged(site.mirrors.prepare(&request("q", vec![item(project, name, None, mode)])))
}

#[test]
fn a_tag_is_in_the_branches_whose_history_holds_it() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", "1\n")]);
    let first = ann.head();
    git(&ann.work, &["tag", "-a", "-m", "annotated", "v1"]);
    ann.push("refs/heads/stable/1");
    ann.commit(&[("a", "2\n")], "second");
    git(&ann.work, &["tag", "v2"]);
    ann.push("refs/heads/master");
    ann.checkout(&first);
    let alone = ann.commit(&[("a", "3\n")], "in no branch");
    git(&ann.work, &["tag", "v1.1"]);
    git(&ann.work, &["push", "-q", "origin", "--tags"]);
    site.mirrors.fetch(&project, &[]).unwrap();
    let tags = site.mirrors.tags(&project).unwrap();
    let of = |id: &str| site.mirrors.branches_containing(&project, id).unwrap();
    assert_eq!(of(&tags["v1"]), ["master", "stable/1"]);
    assert_eq!(of(&tags["v2"]), ["master"]);
    assert_eq!((of(&tags["v1.1"]), tags["v1.1"].clone()), (vec![], alone));
    // The id that a push names for an annotated tag is the tag's own.
    let own = git(&ann.work, &["rev-parse", "v1"]);
    assert_ne!(own, tags["v1"]);
    assert_eq!(of(&own), ["master", "stable/1"]);
    assert!(of(&"1".repeat(40)).is_empty());
    assert!(matches!(site.mirrors.branches_containing(&project, "v1").unwrap_err(), MergeError::BadName { .. }));
}

#[test]
fn all_jobs_of_a_buildset_see_one_state_whatever_is_pushed_since() {
    let site = Site::new();
    let (library, ann) = site.project("library", &[("a", LINES)]);
    let (app, bob) = site.project("app", &[("b", "1\n")]);
    let base = ann.head();
    ann.push("refs/heads/stable");
    git(&ann.work, &["tag", "-a", "-m", "one", "v1"]);
    git(&ann.work, &["push", "-q", "origin", "v1"]);
    ann.change(&base, "one", &[("x", "x")]);
    // First the project of the change alone, then those its jobs need.
    let state = site.mirrors.repo_state(&BTreeSet::from([library.clone()]), &BTreeMap::new(), &RepoState::new());
    let state = state.unwrap();
    assert_eq!(state[&library].keys().collect::<Vec<_>>(), ["refs/heads/master", "refs/heads/stable", "refs/tags/v1"]);
    assert_eq!(state[&library]["refs/heads/master"], base);
    let frozen = |state: &RepoState| {
        let mut asked = request("w", vec![item(&library, "one", None, MergeMode::MergeResolve)]);
        let commit = state[&library]["refs/heads/master"].clone();
        asked.bases = vec![FrozenBase { branch: BranchKey::new(library.clone(), "master"), commit }];
        merged(site.mirrors.prepare(&asked))
    };
    let first = frozen(&state);

    // Days go by: branches and tags move, come and go, in both.
    ann.checkout(&base);
    ann.commit(&[("a", "other\n")], "moved on");
    ann.push("refs/heads/master");
    git(&ann.work, &["push", "-q", "origin", ":refs/heads/stable", ":refs/tags/v1"]);
    ann.push("refs/heads/new");
    bob.commit(&[("b", "2\n")], "moved on");
    bob.push("refs/heads/master");
    let all = BTreeSet::from([library.clone(), app.clone()]);
    let needed = BTreeMap::from([(app.clone(), BTreeSet::from(["master".to_owned()]))]);
    bob.push("refs/heads/unprotected");
    let state = site.mirrors.repo_state(&all, &needed, &state).unwrap();
    assert_eq!(state[&library]["refs/heads/master"], base, "what was known stays");
    assert_eq!(state[&app], BTreeMap::from([("refs/heads/master".to_owned(), bob.head())]));
    // Later still, and somebody else's fetch brings it all here.
    bob.commit(&[("b", "3\n")], "again");
    bob.push("refs/heads/master");
    for project in [&library, &app] {
        site.mirrors.fetch(project, &[]).unwrap();
    }
    assert_eq!(frozen(&state), first);

    let place = site.dir.path().join("late");
    let commit = first.branches[0].commit.clone();
    let branches =
        BTreeMap::from([("master".to_owned(), BranchState { commit: commit.clone(), origin: base.clone() })]);
    let asked = WorkspaceRequest {
        project: library.clone(),
        destination: place.clone(),
        branch: Some("master".to_owned()),
        commit: commit.clone(),
        branches,
        sharing: ObjectSharing::Copy,
        files: true,
    };
    site.mirrors.clone_frozen_workspace(&asked, &state[&library]).unwrap();
    assert_eq!(
        git(&place, &["for-each-ref", "--format=%(refname)"]).lines().collect::<Vec<_>>(),
        [
            "refs/heads/master",
            "refs/heads/stable",
            "refs/remotes/origin/master",
            "refs/remotes/origin/stable",
            "refs/tags/v1",
        ]
    );
    assert_eq!(git(&place, &["rev-parse", "master", "stable", "v1^{commit}"]), format!("{commit}\n{base}\n{base}"));
    assert_eq!(git(&place, &["status", "--porcelain"]), "");
    git(&place, &["fsck", "--strict"]);

    let lost = RefState::from([("refs/heads/lost".to_owned(), "1".repeat(40))]);
    let asked = WorkspaceRequest { destination: site.dir.path().join("never"), ..asked };
    let error = site.mirrors.clone_frozen_workspace(&asked, &lost).unwrap_err();
    assert!(matches!(error, MergeError::MissingCommit { .. }), "{error}");
    let bad = RefState::from([("heads/x".to_owned(), base)]);
    let error = site.mirrors.clone_frozen_workspace(&asked, &bad).unwrap_err();
    assert!(matches!(error, MergeError::BadName { .. }), "{error}");
    assert!(!asked.destination.exists());
}

#[test]
fn submodules_are_merged_by_what_they_name_and_never_followed() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", LINES)]);
    let name = |digit: char| digit.to_string().repeat(40);
    let submodule = |on: &str, change: &str, digit: char| {
        ann.checkout(on);
        std::fs::write(ann.work.join(".gitmodules"), "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib.git\n")
            .unwrap();
        git(&ann.work, &["add", ".gitmodules"]);
        git(&ann.work, &["update-index", "--add", "--cacheinfo", &format!("160000,{},lib", name(digit))]);
        git(&ann.work, &["commit", "-q", "-m", change]);
        ann.push(&format!("refs/for/master/{change}"));
        ann.head()
    };
    // It comes with a change, moves with the next, while the branch goes on.
    let first = submodule(&ann.head(), "added", '1');
    ann.push("refs/heads/master");
    submodule(&first, "moved", '2');
    submodule(&first, "moved-elsewhere", '3');
    ann.checkout(&first);
    ann.commit(&[("a", "on\n")], "on");
    git(&ann.work, &["update-index", "--add", "--cacheinfo", &format!("160000,{},lib", name('1'))]);
    ann.push("refs/heads/master");
    let mirror = site.mirrors.path(&project).unwrap();
    for mode in MergeMode::ALL {
        let items = |names: &[&str]| names.iter().map(|n| item(&project, n, None, mode)).collect();
        let done = merged(site.mirrors.prepare(&request("s", items(&["moved"]))));
        let commit = &done.branches[0].commit;
        assert_eq!(git(&mirror, &["rev-parse", &format!("{commit}:lib")]), name('2'), "{mode:?}");
        assert_eq!(done.items[0].files.paths, ["lib"], "{mode:?}");
        // Nobody has the commits it names, so nobody can say which holds the other.
        let clash = conflict(site.mirrors.prepare(&request("s", items(&["moved", "moved-elsewhere"]))));
        assert_eq!((clash.item, clash.paths), (1, vec!["lib".to_owned()]), "{mode:?}");
        let place = site.dir.path().join(mode.name());
        let asked = WorkspaceRequest {
            project: project.clone(),
            destination: place.clone(),
            branch: Some("master".to_owned()),
            commit: commit.clone(),
            branches: BTreeMap::new(),
            sharing: ObjectSharing::Copy,
            files: true,
        };
        site.mirrors.clone_workspace(&asked).unwrap();
        assert_eq!(git(&place, &["status", "--porcelain"]), "");
        assert_eq!(std::fs::read_dir(place.join("lib")).unwrap().count(), 0, "an empty directory, nothing fetched");
        assert!(!place.join(".git/modules").exists());
    }
}
