//! Mirrors: fetching, crashes, many users at once; and the workspaces made from them.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use gatelog_merging::*;
use support::*;

#[test]
fn a_mirror_follows_its_repository() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", "1\n")]);
    let first = ann.head();
    ann.push("refs/heads/feature");
    git(&ann.work, &["tag", "-a", "-m", "tag", "v1"]);
    git(&ann.work, &["push", "-q", "origin", "v1"]);
    let fetched = site.mirrors.fetch(&project, &[]).unwrap();
    assert_eq!(fetched.default_branch.as_deref(), Some("master"));
    assert_eq!(fetched.branches.keys().collect::<Vec<_>>(), ["feature", "master"]);
    assert_eq!(site.mirrors.tags(&project).unwrap(), BTreeMap::from([("v1".to_owned(), first.clone())]));

    // A branch goes, and one comes that needs its name as a directory; many commits at once.
    for n in 0..130 {
        ann.commit(&[("a", &format!("{n}\n"))], "more");
    }
    ann.push("refs/heads/master");
    git(&ann.work, &["push", "-q", "origin", ":feature"]);
    git(&ann.work, &["push", "-q", "origin", ":v1"]);
    ann.push("refs/heads/feature/deep");
    site.mirrors.fetch(&project, &[]).unwrap();
    let branches = site.mirrors.branches(&project).unwrap();
    assert_eq!(branches.keys().collect::<Vec<_>>(), ["feature/deep", "master"]);
    assert_eq!(site.mirrors.branch_tip(&project, "master").unwrap(), ann.head());
    assert_eq!(site.mirrors.default_branch(&project).unwrap().as_deref(), Some("master"));
    assert!(site.mirrors.tags(&project).unwrap().is_empty());
    let mirror = site.mirrors.path(&project).unwrap();
    git(&mirror, &["fsck", "--strict"]);
    let changed = site.mirrors.changed_files(&project, &first, &ann.head()).unwrap();
    assert_eq!(changed.paths, ["a"]);
    assert!(!changed.truncated);
    let error = site.mirrors.branch_tip(&project, "feature").unwrap_err();
    assert!(matches!(error, MergeError::MissingBranch { .. }));
    // What was said before the process died is known to the next.
    let next = Mirrors::open(MirrorsConfig::new(site.dir.path().join("mirrors"))).unwrap();
    next.set_source(&project, ann.bare.to_str().unwrap()).unwrap();
    assert_eq!(next.fetch(&project, &[]).unwrap().branches, branches);
}

#[test]
fn an_empty_repository_has_an_empty_mirror() {
    let site = Site::new();
    let bare = site.dir.path().join("empty.git");
    fs::create_dir(&bare).unwrap();
    git(&bare, &["init", "-q", "--bare"]);
    let project = ProjectKey::new("forge", "empty");
    site.mirrors.set_source(&project, bare.to_str().unwrap()).unwrap();
    assert!(site.mirrors.fetch(&project, &[]).unwrap().branches.is_empty());
    assert_eq!(site.mirrors.default_branch(&project).unwrap(), None);
}

#[test]
fn a_clone_cut_short_by_a_crash_is_made_again() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", "1\n")]);
    let path = site.mirrors.path(&project).unwrap();
    let staging = path.with_extension("git.new");
    let ways: [&dyn Fn(); 4] = [
        &|| fs::create_dir_all(&path).unwrap(),
        &|| {
            fs::create_dir_all(path.join("objects/pack")).unwrap();
            fs::write(path.join("HEAD"), "ref: refs/hea").unwrap();
        },
        &|| fs::create_dir_all(staging.join("refs/heads")).unwrap(),
        &|| {
            drop(git2::Repository::init_bare(&staging).unwrap());
            fs::write(staging.join("packed-refs"), "garbage").unwrap();
        },
    ];
    for leave_behind in ways {
        leave_behind();
        assert_eq!(site.mirrors.branch_tip(&project, "master").unwrap(), ann.head());
        assert!(!staging.exists());
        git(&path, &["fsck"]);
        site.mirrors.discard(&project).unwrap();
        assert!(!path.exists());
    }
}

#[test]
fn locks_left_by_a_crash_do_not_stop_the_next_process() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", "1\n")]);
    site.mirrors.fetch(&project, &[]).unwrap();
    let path = site.mirrors.path(&project).unwrap();
    for lock in ["refs/heads/master.lock", "packed-refs.lock", "HEAD.lock", "config.lock"] {
        fs::write(path.join(lock), "").unwrap();
    }
    ann.commit(&[("a", "2\n")], "second");
    ann.push("refs/heads/master");
    assert_eq!(site.mirrors.fetch(&project, &[]).unwrap().branches["master"], ann.head());
}

#[test]
fn damage_is_named_and_discarding_the_mirror_mends_it() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", "1\n")]);
    let base = ann.head();
    let change = ann.change(&base, "one", &[("x", "x")]);
    let asked = request("w", vec![item(&project, "one", Some(&change), MergeMode::CherryPick)]);
    let good = merged(site.mirrors.prepare(&asked));
    let tree = git(&ann.work, &["rev-parse", &format!("{base}^{{tree}}")]);
    let path = site.mirrors.path(&project).unwrap();
    let object = path.join("objects").join(&tree[..2]).join(&tree[2..]);
    fs::remove_file(&object).unwrap();
    fs::write(&object, "not what it was").unwrap();
    // Power losses are found by the process that comes after them.
    let next = Mirrors::open(MirrorsConfig::new(site.dir.path().join("mirrors"))).unwrap();
    next.set_source(&project, ann.bare.to_str().unwrap()).unwrap();
    let error = next.prepare(&asked).unwrap_err();
    assert!(matches!(error, MergeError::Damaged { .. }), "{error:?}");
    next.discard(&project).unwrap();
    assert_eq!(merged(next.prepare(&asked)), good);
    assert_eq!(merged(site.mirrors.prepare(&asked)), good, "whoever has the damaged one open takes the new one");
}

#[test]
fn what_was_prepared_long_ago_is_let_go_and_can_be_made_again() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", "1\n")]);
    ann.change(&ann.head(), "one", &[("x", "x")]);
    let asked = request("work-1", vec![item(&project, "one", None, MergeMode::SquashMerge)]);
    let path = site.mirrors.path(&project).unwrap();
    let (week, day) = (Duration::from_secs(7 * 86_400), Duration::from_secs(86_400));
    let older = |now, most| site.mirrors.release_older(&project, week, now, most).unwrap();
    for packed in [false, true] {
        let done = merged(site.mirrors.prepare(&asked));
        if packed {
            // Then only the commit says how old it is, and that has the item's date.
            git(&path, &["pack-refs", "--all"]);
        } else {
            assert_eq!(older(SystemTime::now() + 6 * day, 10), 0);
        }
        assert_eq!(site.mirrors.prepared_ids(&project).unwrap(), ["work-1"]);
        assert_eq!(older(SystemTime::now() + 8 * day, 0), 0, "not more than asked for");
        assert_eq!(older(SystemTime::now() + 8 * day, 10), 1);
        assert!(site.mirrors.prepared_ids(&project).unwrap().is_empty());
        git(&path, &["gc", "-q", "--prune=now"]);
        assert!(!site.mirrors.has_commit(&project, &done.branches[0].commit).unwrap());
        assert_eq!(merged(site.mirrors.prepare(&asked)), done, "the same commit");
        assert!(site.mirrors.has_commit(&project, &done.branches[0].commit).unwrap(), "and it is there");
    }
}

#[test]
fn prepared_commits_live_until_they_are_released() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", "1\n")]);
    ann.change(&ann.head(), "one", &[("x", "x")]);
    let done =
        merged(site.mirrors.prepare(&request("work-1", vec![item(&project, "one", None, MergeMode::SquashMerge)])));
    let path = site.mirrors.path(&project).unwrap();
    assert_eq!(
        git(&path, &["for-each-ref", "--format=%(objectname)", "refs/gatelog/prepared/work-1"]),
        done.branches[0].commit
    );
    git(&path, &["gc", "-q", "--prune=now"]);
    assert!(site.mirrors.has_commit(&project, &done.branches[0].commit).unwrap());
    assert_eq!(site.mirrors.prepared_ids(&project).unwrap(), ["work-1"]);
    for _ in 0..2 {
        site.mirrors.release(&project, "work-1").unwrap();
        assert!(site.mirrors.prepared_ids(&project).unwrap().is_empty());
    }
    site.mirrors.release(&ProjectKey::new("forge", "never-seen"), "work-1").unwrap();
}

#[test]
fn many_may_prepare_at_once_while_people_push() {
    let site = Site::new();
    let (library, ann) = site.project("library", &[("a", "1\n")]);
    let (app, bob) = site.project("app", &[("b", "1\n")]);
    let mut commits = Vec::new();
    for n in 0..4 {
        let name = format!("c{n}");
        commits.push((ann.change("master", &name, &[(&name, "x")]), bob.change("master", &name, &[(&name, "y")])));
    }
    let root = site.dir.path().join("mirrors");
    let (sources, commits) = ([(&library, &ann.bare), (&app, &bob.bare)], &commits);
    let bases = [(&library, "master"), (&app, "master")].map(|(p, b)| FrozenBase {
        branch: BranchKey::new(p.clone(), b),
        commit: git(if *p == library { &ann.bare } else { &bob.bare }, &["rev-parse", b]),
    });
    let results: Vec<Prepared> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|worker| {
                let (root, bases) = (root.clone(), bases.to_vec());
                scope.spawn(move || {
                    // As if each were a process of its own.
                    let mirrors = Mirrors::open(MirrorsConfig::new(root)).unwrap();
                    for (project, bare) in sources {
                        mirrors.set_source(project, bare.to_str().unwrap()).unwrap();
                    }
                    let mut last = None;
                    for round in 0..5 {
                        let mut items = Vec::new();
                        for (n, (in_library, in_app)) in commits.iter().enumerate() {
                            let name = format!("c{n}");
                            items.push(item(sources[0].0, &name, Some(in_library), MergeMode::Merge));
                            items.push(item(sources[1].0, &name, Some(in_app), MergeMode::Rebase));
                        }
                        let mut asked = request(&format!("w{worker}-{round}"), items);
                        asked.bases = bases.clone();
                        last = Some(merged(mirrors.prepare(&asked)));
                        mirrors.fetch(sources[round % 2].0, &["refs/for/master/c1"]).unwrap();
                        mirrors.release(sources[0].0, &asked.id).unwrap();
                    }
                    last.unwrap()
                })
            })
            .collect();
        for n in 0..5 {
            ann.commit(&[("pushed", &format!("{n}"))], "pushed");
            ann.push("refs/heads/master");
        }
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    for project in [&library, &app] {
        git(&site.mirrors.path(project).unwrap(), &["fsck"]);
    }
}

fn workspace(project: &ProjectKey, destination: &Path, commit: &str) -> WorkspaceRequest {
    WorkspaceRequest {
        project: project.clone(),
        destination: destination.to_owned(),
        branch: Some("master".to_owned()),
        commit: commit.to_owned(),
        branches: BTreeMap::new(),
        sharing: ObjectSharing::Copy,
        files: true,
    }
}

#[test]
fn a_workspace_shows_the_change_under_test_and_leads_nowhere() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", "1\n"), ("dir/b", "b\n")]);
    let base = ann.head();
    ann.push("refs/heads/stable/1");
    git(&ann.work, &["tag", "v1"]);
    git(&ann.work, &["push", "-q", "origin", "v1"]);
    ann.change(&base, "one", &[("one", "1")]);
    ann.change(&base, "two", &[("two", "2"), ("run.sh", "#!/bin/sh\n")]);
    let items = ["one", "two"].map(|n| item(&project, n, None, MergeMode::Merge)).to_vec();
    let done = merged(site.mirrors.prepare(&request("w", items)));
    for sharing in [ObjectSharing::Copy, ObjectSharing::Link] {
        let place = site.dir.path().join(format!("src-{sharing:?}/forge/library"));
        let mut asked = workspace(&project, &place, &done.items[1].commit);
        asked.sharing = sharing;
        let origin = done.items[1].ahead.clone();
        asked.branches.insert("master".to_owned(), BranchState { commit: origin.clone(), origin });
        site.mirrors.clone_workspace(&asked).unwrap();
        assert_eq!(git(&place, &["status", "--porcelain", "--branch"]), "## master...origin/master [ahead 2]");
        let log = git(&place, &["log", "--format=%s", "--first-parent", "origin/master..master"]);
        assert_eq!(log, "Merge 'refs/for/master/two'");
        assert_eq!(git(&place, &["config", "remote.origin.url"]), "file:///dev/null");
        assert_eq!(git(&place, &["branch", "--format=%(refname:short)"]), "master\nstable/1");
        assert_eq!(git(&place, &["rev-parse", "stable/1", "origin/stable/1", "v1"]), [base.as_str(); 3].join("\n"));
        assert_eq!(fs::read_to_string(place.join("dir/b")).unwrap(), "b\n");
        assert!(place.join("one").exists() && place.join("two").exists());
        git(&place, &["fsck", "--strict"]);
        assert!(!place.join(".git/objects/info/alternates").exists());
        // A job may commit there.
        fs::write(place.join("new"), "new").unwrap();
        git(&place, &["add", "-A"]);
        git(&place, &["commit", "-q", "-m", "by a job"]);
        let error = site.mirrors.clone_workspace(&asked).unwrap_err();
        assert!(matches!(error, MergeError::DestinationTaken { .. }), "{error}");
    }
    // Without files it is the same repository, and git does not take them for deleted.
    let place = site.dir.path().join("src-without-files");
    let asked = WorkspaceRequest { files: false, ..workspace(&project, &place, &done.items[1].commit) };
    site.mirrors.clone_workspace(&asked).unwrap();
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "only .git");
    assert_eq!(git(&place, &["status", "--porcelain"]), "");
    assert_eq!(git(&place, &["show", "HEAD:two"]), "2");
}

#[test]
fn a_workspace_can_be_detached_and_files_come_without_a_repository() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", "1\n"), ("dir/b", "b\n")]);
    let commit = ann.head();
    std::os::unix::fs::symlink("a", ann.work.join("link")).unwrap();
    let linked = ann.commit(&[], "link");
    ann.push("refs/heads/master");
    let place = site.dir.path().join("detached");
    site.mirrors.clone_workspace(&WorkspaceRequest { branch: None, ..workspace(&project, &place, &commit) }).unwrap();
    assert_eq!(git(&place, &["rev-parse", "HEAD"]), commit);
    assert!(!try_git(&place, &["symbolic-ref", "HEAD"]).status.success());
    assert!(!place.join("link").exists());

    let place = site.dir.path().join("files");
    site.mirrors.materialize(&project, &linked, &place).unwrap();
    assert_eq!(fs::read_to_string(place.join("link")).unwrap(), "1\n");
    assert_eq!(fs::read_to_string(place.join("dir/b")).unwrap(), "b\n");
    assert!(!place.join(".git").exists());

    let place = site.dir.path().join("never");
    let error = site.mirrors.clone_workspace(&workspace(&project, &place, &"1".repeat(40))).unwrap_err();
    assert!(matches!(error, MergeError::MissingCommit { .. }), "{error}");
    assert!(!place.exists());
    let mut asked = workspace(&project, &place, &commit);
    asked.branches.insert("bad..name".to_owned(), BranchState { commit: commit.clone(), origin: commit });
    assert!(matches!(site.mirrors.clone_workspace(&asked).unwrap_err(), MergeError::BadName { .. }));
    assert!(!place.exists(), "what was begun is removed");
}
