//! Mirrors stay open between requests, and nobody can tell but by the time it takes.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use gatelog_merging::*;
use support::*;

/// So many changes of files of their own, all on the first commit of the branch.
fn changes(site: &Site, count: usize) -> (ProjectKey, Person, Vec<MergeItem>) {
    let (project, ann) = site.project("library", &[("a", "a\n")]);
    let base = ann.head();
    for n in 0..count {
        ann.change(&base, &n.to_string(), &[(&format!("f{n}"), "new\n")]);
    }
    ann.checkout(&base);
    ann.commit(&[("later", "later\n")], "the branch has moved on");
    ann.push("refs/heads/master");
    let items: Vec<MergeItem> = (0..count).map(|n| item(&project, &n.to_string(), None, MergeMode::Merge)).collect();
    let merged = items.iter().map(|one| {
        let done = merged(site.mirrors.prepare(&request("first", vec![one.clone()])));
        MergeItem { commit: Some(done.items[0].change_commit.clone()), ..one.clone() }
    });
    let merged = merged.collect();
    (project, ann, merged)
}

fn on(project: &ProjectKey, base: &str, id: &str, items: &[MergeItem]) -> PrepareRequest {
    let branch = BranchKey::new(project.clone(), "master");
    PrepareRequest { bases: vec![FrozenBase { branch, commit: base.to_owned() }], ..request(id, items.to_vec()) }
}

#[test]
fn merges_one_by_one_open_their_mirror_once() {
    let site = Site::new();
    let (project, ann, items) = changes(&site, 5);
    let base = ann.head();
    let mirrors = Mirrors::open(MirrorsConfig::new(site.dir.path().join("mirrors"))).unwrap();
    for round in 0..4 {
        for (n, one) in items.iter().enumerate() {
            merged(mirrors.prepare(&on(&project, &base, &format!("{round}-{n}"), std::slice::from_ref(one))));
        }
    }
    let openings = mirrors.openings();
    assert_eq!(openings.opened, 1);
    assert!(openings.open_already >= 19, "{openings:?}");
}

#[test]
fn what_is_repacked_pruned_or_made_anew_behind_an_open_mirror_is_opened_again() {
    let site = Site::new();
    let (project, ann, items) = changes(&site, 3);
    let base = ann.head();
    let prepare = |id: &str| merged(site.mirrors.prepare(&on(&project, &base, id, &items)));
    let first = prepare("one");
    let mirror = site.mirrors.path(&project).unwrap();
    let opened = || site.mirrors.openings().opened;

    // Somebody tidies up: all objects go into one pack, the packs and loose objects before go.
    let before = opened();
    git(&mirror, &["-c", "gc.writeCommitGraph=false", "gc", "-q", "--prune=now"]);
    assert_eq!(prepare("two"), first);
    assert_eq!(opened(), before + 1);
    assert_eq!(prepare("three"), first);
    assert_eq!(opened(), before + 1, "nothing changed since");

    // What nobody refers to any more is pruned, and asked for again.
    for id in ["first", "one", "two", "three"] {
        site.mirrors.release(&project, id).unwrap();
    }
    git(&mirror, &["repack", "-q", "-a", "-d"]);
    git(&mirror, &["prune", "--expire=now"]);
    assert!(!site.mirrors.has_commit(&project, &first.branches[0].commit).unwrap(), "it is gone");
    assert_eq!(prepare("four"), first);
    git(&mirror, &["fsck", "--strict"]);

    // Another process throws the mirror away and makes it anew.
    let other = Mirrors::open(MirrorsConfig::new(site.dir.path().join("mirrors"))).unwrap();
    other.set_source(&project, ann.bare.to_str().unwrap()).unwrap();
    other.discard(&project).unwrap();
    other.fetch(&project, &[]).unwrap();
    assert!(!site.mirrors.has_commit(&project, &first.branches[0].commit).unwrap(), "the new one never had it");
    assert_eq!(prepare("five"), first);
    git(&mirror, &["fsck", "--strict"]);
}

#[test]
fn no_more_mirrors_stay_open_than_may_and_more_are_used_all_the_same() {
    let site = Site::new();
    let mut config = MirrorsConfig::new(site.dir.path().join("few"));
    config.limits.open_mirrors = 2;
    let few = Mirrors::open(config).unwrap();
    let mut projects = Vec::new();
    for n in 0..4 {
        let (project, ann) = site.project(&format!("p{n}"), &[("a", "a\n")]);
        let change = ann.change(&ann.head(), "one", &[("b", "b\n")]);
        few.set_source(&project, ann.bare.to_str().unwrap()).unwrap();
        projects.push((project, change));
    }
    let fetch_all = |mirrors: &Mirrors| {
        for (project, change) in &projects {
            mirrors.fetch(project, &["refs/for/master/one"]).unwrap();
            assert!(mirrors.has_commit(project, change).unwrap());
        }
    };
    fetch_all(&few);
    let open_files = |root: &std::path::Path| {
        let links =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.unwrap().path().read_link().ok());
        let packs = links.filter(|link| link.starts_with(root) && link.to_string_lossy().contains("/objects/pack/"));
        let mirrors: std::collections::BTreeSet<_> =
            packs.filter_map(|link| link.ancestors().nth(3).map(ToOwned::to_owned)).collect();
        mirrors.len()
    };
    for (project, _) in &projects {
        let mirror = few.path(project).unwrap();
        git(&mirror, &["repack", "-q", "-a", "-d"]);
    }
    let root = site.dir.path().join("few");
    for _ in 0..3 {
        fetch_all(&few);
        assert!(open_files(&root) <= 2);
    }
    // One after the other through two places: each has to be opened again; two alone stay.
    let before = few.openings().opened;
    for _ in 0..5 {
        for (project, change) in &projects[..2] {
            assert!(few.has_commit(project, change).unwrap());
        }
    }
    assert!(few.openings().opened - before <= 2);
    // One chain over all of them needs more at once than stay open.
    let items: Vec<MergeItem> =
        projects.iter().map(|(project, change)| item(project, "one", Some(change), MergeMode::Merge)).collect();
    assert_eq!(merged(few.prepare(&request("all", items))).branches.len(), 4);
}

#[test]
fn many_threads_merge_while_objects_are_put_together_under_them() {
    let site = Site::new();
    let (project, ann, items) = changes(&site, 6);
    let base = ann.head();
    let expected = merged(site.mirrors.prepare(&on(&project, &base, "expected", &items)));
    let mirror = site.mirrors.path(&project).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (site, project, base, items, expected) = (&site, &project, &base, &items, &expected);
                scope.spawn(move || {
                    for round in 0..15 {
                        let id = format!("{thread}-{round}");
                        assert_eq!(&merged(site.mirrors.prepare(&on(project, base, &id, items))), expected);
                        site.mirrors.release(project, &id).unwrap();
                    }
                })
            })
            .collect();
        let tidier = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // As gatelog does it: nothing is lost, only moved.
                git(&mirror, &["repack", "-q", "-d", "--no-write-bitmap-index"]);
                git(&mirror, &["repack", "-q", "-a", "-d", "-k", "--no-write-bitmap-index"]);
            }
        });
        let done: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        tidier.join().unwrap();
        for one in done {
            one.unwrap();
        }
    });
    git(&mirror, &["fsck", "--strict"]);
    assert!(site.mirrors.openings().open_already > 0);
}
