//! Chains of changes, with real repositories.

mod support;

use gatelog_merging::*;
use support::*;

const LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

#[test]
fn a_chain_is_put_on_top_of_the_branch_and_a_conflict_names_its_files() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", LINES), ("b", "b\n")]);
    let base = ann.head();
    ann.change(&base, "one", &[("a", &LINES.replace('1', "one"))]);
    ann.change(&base, "two", &[("a", &LINES.replace('9', "nine"))]);
    ann.change(&base, "three", &[("a", &LINES.replace('1', "uno")), ("c", "c")]);
    let items = ["one", "two"].map(|n| item(&project, n, None, MergeMode::Merge)).to_vec();

    let done = merged(site.mirrors.prepare(&request("w1", items.clone())));
    assert_eq!(done.branches.len(), 1);
    assert_eq!(done.branches[0].base, base);
    assert_eq!(done.items[0].ahead, base);
    assert_eq!(done.items[0].commit, done.items[0].change_commit, "git merge fast-forwards");
    assert_eq!(done.items[1].ahead, done.items[0].commit);
    assert_eq!(done.items[1].commit, done.branches[0].commit);
    assert_eq!(done.items[1].files.paths, ["a"]);
    let mirror = site.mirrors.path(&project).unwrap();
    let text = git(&mirror, &["show", &format!("{}:a", done.branches[0].commit)]);
    assert_eq!(text, "one\n2\n3\n4\n5\n6\n7\n8\nnine");
    let log = git(&mirror, &["log", "-1", "--format=%an %ce %at %ct %P %s", &done.branches[0].commit]);
    let (one, two) = (&done.items[0].commit, &done.items[1].change_commit);
    let expected = format!("gatelog gatelog@localhost {DATE} {DATE} {one} {two} Merge 'refs/for/master/two'");
    assert_eq!(log, expected);

    let mut all = items;
    all.push(item(&project, "three", None, MergeMode::Merge));
    let clash = conflict(site.mirrors.prepare(&request("w2", all)));
    assert_eq!((clash.item, clash.paths.as_slice()), (2, &["a".to_owned()][..]));
    assert_eq!(clash.message, "merge conflict in a");
    assert_eq!(clash.bases[0].commit, base);
}

#[test]
fn another_merger_makes_the_same_commits() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", LINES)]);
    let base = ann.head();
    ann.change(&base, "one", &[("x", "x")]);
    ann.change(&base, "two", &[("y", "y")]);
    ann.change(&base, "three", &[("z", "z")]);
    let other = Mirrors::open(MirrorsConfig::new(site.dir.path().join("other"))).unwrap();
    other.set_source(&project, ann.bare.to_str().unwrap()).unwrap();
    use MergeMode::{Merge, MergeResolve};
    for mode in MergeMode::ALL {
        let items = ["one", "two", "three"].map(|n| item(&project, n, None, mode)).to_vec();
        let first = merged(site.mirrors.prepare(&request("same", items.clone())));
        let second = merged(other.prepare(&request("same", items.clone())));
        assert_eq!(first, second, "{mode:?}");
        assert_eq!(first, merged(site.mirrors.prepare(&request("same", items))));
        let mirror = site.mirrors.path(&project).unwrap();
        let files = git(&mirror, &["ls-tree", "--name-only", &first.branches[0].commit]);
        assert_eq!(files, "a\nx\ny\nz", "{mode:?}");
        let merges = git(&mirror, &["rev-list", "--merges", "--count", &first.branches[0].commit]);
        assert_eq!(merges, if matches!(mode, Merge | MergeResolve) { "2" } else { "0" }, "{mode:?}");
    }
}

#[test]
fn a_frozen_base_stays_whatever_is_pushed_and_even_without_the_repository() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", LINES)]);
    let base = ann.head();
    let change = ann.change(&base, "one", &[("x", "x")]);
    let first = merged(site.mirrors.prepare(&request("w", vec![item(&project, "one", None, MergeMode::Merge)])));
    assert_eq!(first.branches[0].base, base);
    ann.checkout(&base);
    let moved = ann.commit(&[("y", "y")], "behind the gate's back");
    ann.push("refs/heads/master");

    let items = vec![item(&project, "one", Some(&change), MergeMode::Merge)];
    let mut frozen = request("w", items.clone());
    let branch = BranchKey::new(project.clone(), "master");
    frozen.bases = vec![FrozenBase { branch, commit: base }];
    assert_eq!(merged(site.mirrors.prepare(&frozen)), first);
    let now = merged(site.mirrors.prepare(&request("w", items)));
    assert_eq!(now.branches[0].base, moved);
    assert_ne!(now.branches[0].commit, first.branches[0].commit);

    std::fs::remove_dir_all(&ann.bare).unwrap();
    assert_eq!(merged(site.mirrors.prepare(&frozen)), first);
}

#[test]
fn configuration_is_read_at_the_prepared_state_of_every_touched_branch() {
    let site = Site::new();
    let (library, ann) = site.project("library", &[("a", LINES), ("zuul.yaml", "- old\n")]);
    let (app, bob) = site.project("acme/app", &[("zuul.d/jobs.yaml", "- job\n"), ("zuul.d/README", "no")]);
    ann.change(&ann.head(), "conf", &[("zuul.yaml", "- new\n")]);
    bob.change(
        &bob.head(),
        "more",
        &[
            ("zuul.d/more/x.yaml", "- x\n"),
            ("zuul.d/not/x.yaml", "- no\n"),
            ("zuul.d/not/.zuul.ignore", ""),
            ("extra/e.yaml", "- e\n"),
            (".zuul.yaml", "- later\n"),
        ],
    );
    let items = vec![item(&library, "conf", None, MergeMode::Merge), item(&app, "more", None, MergeMode::SquashMerge)];
    let mut asked = request("w", items);
    asked.files = FileFilter::zuul(["extra/"]);
    let done = merged(site.mirrors.prepare(&asked));
    let files = |at: usize| -> Vec<(String, String)> {
        let text = |f: &SourceFile| (f.path.clone(), String::from_utf8(f.content.clone()).unwrap());
        done.branches[at].files.iter().map(text).collect()
    };
    let pairs = |list: &[(&str, &str)]| list.iter().map(|(p, t)| ((*p).into(), (*t).into())).collect::<Vec<_>>();
    assert_eq!(files(0), pairs(&[("zuul.yaml", "- new\n")]));
    let expected = pairs(&[
        (".zuul.yaml", "- later\n"),
        ("extra/e.yaml", "- e\n"),
        ("zuul.d/jobs.yaml", "- job\n"),
        ("zuul.d/more/x.yaml", "- x\n"),
    ]);
    assert_eq!(files(1), expected);
    assert_eq!(done.items[1].files.paths.len(), 5);
    // The branch itself is as it was.
    let state = State::Branch("master".to_owned());
    let now = site.mirrors.read_files(&library, &state, &FileFilter::zuul([])).unwrap();
    assert_eq!(now[0].content, b"- old\n");

    asked.files.file_bytes_max = 3;
    let error = site.mirrors.prepare(&asked).unwrap_err();
    assert!(matches!(&error, MergeError::FileTooLarge { path, size: 6, .. } if path == "zuul.yaml"), "{error}");
    asked.files = FileFilter::zuul([]);
    asked.files.files_max = 1;
    assert!(matches!(site.mirrors.prepare(&asked).unwrap_err(), MergeError::TooMany { .. }));
}

#[test]
fn the_modes_do_what_git_calls_so() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", LINES)]);
    let base = ann.head();
    // Two commits; the branch has the first in a commit of its own, and has gone on since.
    ann.checkout(&base);
    ann.commit(&[("x", "x1\n")], "x1");
    let change = ann.commit(&[("y", "y\n")], "y");
    ann.push("refs/for/master/two");
    ann.checkout(&base);
    ann.commit(&[("x", "x1\n")], "x1, picked by hand");
    let tip = ann.commit(&[("x", "x2\n")], "and changed");
    ann.push("refs/heads/master");
    let mirror = site.mirrors.path(&project).unwrap();
    let subjects =
        |prepared: &Prepared| git(&mirror, &["log", "--format=%s", &format!("{tip}..{}", prepared.branches[0].commit)]);
    let run = |mode| site.mirrors.prepare(&request("m", vec![item(&project, "two", None, mode)]));
    assert_eq!(conflict(run(MergeMode::Merge)).paths, ["x"]);
    assert_eq!(subjects(&merged(run(MergeMode::Rebase))), "y");
    assert_eq!(subjects(&merged(run(MergeMode::CherryPick))), "y");
    let log = merged(run(MergeMode::CherryPick)).branches[0].commit.clone();
    assert_eq!(
        git(&mirror, &["log", "-1", "--format=%an %cn %at %ct", &log]),
        format!("Ann gatelog 1600000000 {DATE}")
    );

    // What is in the branch already.
    ann.checkout(&tip);
    git(&ann.work, &["merge", "-q", "--no-ff", "-s", "ours", "-m", "all of it", &change]);
    let tip = ann.head();
    ann.push("refs/heads/master");
    for mode in [MergeMode::Merge, MergeMode::MergeResolve, MergeMode::Rebase, MergeMode::SquashMerge] {
        let done = merged(run(mode));
        let adds_nothing = done.branches[0].commit == tip;
        assert_eq!(adds_nothing, mode != MergeMode::SquashMerge, "{mode:?}");
        assert!(done.items[0].files.paths.is_empty(), "{mode:?}");
    }
    // No history in common.
    git(&ann.work, &["checkout", "-q", "--orphan", "alien"]);
    ann.commit(&[("alien", "")], "alien");
    ann.push("refs/for/master/alien");
    let alien = conflict(site.mirrors.prepare(&request("m", vec![item(&project, "alien", None, MergeMode::Merge)])));
    assert!(alien.message.contains("no commit in common"), "{}", alien.message);
}

#[test]
fn bad_input_is_a_named_error() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", LINES)]);
    let change = ann.change(&ann.head(), "one", &[("x", "x")]);
    let one = item(&project, "one", None, MergeMode::Merge);
    let run = |item: MergeItem| site.mirrors.prepare(&request("w", vec![item])).unwrap_err();

    let error = run(MergeItem { branch: "nowhere".to_owned(), ..one.clone() });
    assert!(matches!(error, MergeError::MissingBranch { .. }), "{error}");
    let error = run(MergeItem { ref_name: Some("refs/for/master/none".to_owned()), ..one.clone() });
    assert!(matches!(&error, MergeError::MissingRef { name, .. } if name == "refs/for/master/none"), "{error}");
    let error = run(MergeItem { commit: Some("1".repeat(40)), ..one.clone() });
    assert!(matches!(error, MergeError::MissingCommit { .. }), "{error}");
    let error = run(MergeItem { commit: Some("1".repeat(40)), ref_name: None, ..one.clone() });
    assert!(matches!(error, MergeError::MissingCommit { .. }), "{error}");
    let error = run(MergeItem { commit: None, ref_name: None, ..one.clone() });
    assert!(matches!(error, MergeError::MissingCommit { .. }), "{error}");
    let error = run(MergeItem { project: ProjectKey::new("forge", "other"), ..one.clone() });
    assert!(matches!(error, MergeError::UnknownProject { .. }), "{error}");
    for branch in ["..", "a\0b", "a\u{1b}b", &"x".repeat(1000)] {
        let error = run(MergeItem { branch: branch.to_owned(), commit: Some(change.clone()), ..one.clone() });
        assert!(matches!(error, MergeError::BadName { .. }), "{branch:?}: {error}");
        let error = run(MergeItem { ref_name: Some(format!("refs/for/{branch}")), ..one.clone() });
        assert!(matches!(error, MergeError::BadName { .. }), "{branch:?}: {error}");
    }
    let error = site.mirrors.prepare(&request("../../x", vec![one.clone()])).unwrap_err();
    assert!(matches!(error, MergeError::BadName { what: "work id", .. }), "{error}");
    let blob = git(&ann.work, &["hash-object", "-w", "a"]);
    git(&ann.work, &["push", "-q", "origin", &format!("{blob}:refs/for/master/blob")]);
    let error = run(MergeItem { ref_name: Some("refs/for/master/blob".to_owned()), ..one.clone() });
    assert!(matches!(error, MergeError::MissingCommit { .. }), "{error}");

    for url in ["ftp://example.org/x.git", "ext://h/x", "file://relative"] {
        site.mirrors.set_source(&project, url).unwrap();
        let error = site.mirrors.fetch(&project, &[]).unwrap_err();
        assert!(matches!(error, MergeError::UnsupportedUrl { .. }), "{url}: {error}");
    }
    std::fs::create_dir_all(site.dir.path().join("empty")).unwrap();
    for place in ["gone", "empty"] {
        site.mirrors.set_source(&project, site.dir.path().join(place).to_str().unwrap()).unwrap();
        let error = site.mirrors.fetch(&project, &[]).unwrap_err();
        assert!(matches!(error, MergeError::Vanished { .. }), "{place}: {error}");
    }
}

#[test]
fn each_request_of_a_queue_merges_only_what_none_before_it_merged() {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", LINES)]);
    let first = ann.head();
    let names: Vec<String> = (0..6).map(|n| n.to_string()).collect();
    for name in &names {
        ann.change(&first, name, &[(&format!("f{name}"), "new\n")]);
    }
    ann.checkout(&first);
    let base = ann.commit(&[("later", "later\n")], "the branch has moved on");
    ann.push("refs/heads/master");
    let merges = |mirrors: &Mirrors| mirrors.tally().in_memory + mirrors.tally().asked;
    for mode in MergeMode::ALL {
        let items: Vec<MergeItem> = names.iter().map(|name| item(&project, name, None, mode)).collect();
        let mut whole = None;
        for count in 1..=items.len() {
            let before = merges(&site.mirrors);
            let id = format!("{}-{count}", mode.name());
            whole = Some(merged(site.mirrors.prepare(&request(&id, items[..count].to_vec()))));
            assert_eq!(merges(&site.mirrors), before + 1, "{id}");
        }
        // Whoever knows nothing from before comes to the same.
        let other = Mirrors::open(MirrorsConfig::new(site.dir.path().join(mode.name()))).unwrap();
        other.set_source(&project, ann.bare.to_str().unwrap()).unwrap();
        assert_eq!(whole, Some(merged(other.prepare(&request("whole", items.clone())))), "{mode:?}");

        // The first is merged for real: what stood on it stands on the branch now, and is the same.
        let branch = BranchKey::new(project.clone(), "master");
        let ahead = whole.unwrap().items[0].commit.clone();
        let bases = vec![FrozenBase { branch, commit: ahead.clone() }];
        let next = PrepareRequest { bases, ..request("next", items[1..].to_vec()) };
        let before = merges(&site.mirrors);
        let on_it = merged(site.mirrors.prepare(&next));
        assert_eq!(merges(&site.mirrors), before, "{mode:?}");
        assert_eq!(on_it, merged(other.prepare(&next)), "{mode:?}");

        // What a commit says and when is part of it.
        let mut later = items.clone();
        later[1].date_s += 1;
        later[4].message = Some("Said otherwise".to_owned());
        let before = merges(&site.mirrors);
        let again = merged(site.mirrors.prepare(&request("later", later.clone())));
        assert!(merges(&site.mirrors) > before, "{mode:?}");
        let fresh = Mirrors::open(MirrorsConfig::new(site.dir.path().join(format!("{}-2", mode.name())))).unwrap();
        fresh.set_source(&project, ann.bare.to_str().unwrap()).unwrap();
        assert_eq!(again, merged(fresh.prepare(&request("later", later))), "{mode:?}");
        assert_eq!(again.branches[0].base, base);
    }
}
