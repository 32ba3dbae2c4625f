//! What people do with git, and what the forge makes of it.

mod support;

use std::fs;
use std::time::{Duration, SystemTime};

use gatelog_driver_git::*;
use support::*;

#[test]
fn the_life_of_a_change() {
    let site = Site::new();
    let ann = site.project("acme/library");
    let base = ann.head();
    let mut watch = Watch::new(&site, "acme/library");
    assert_eq!(watch.look(), ["branch master created"]);
    assert!(watch.look().is_empty());

    let first = ann.propose(&base, "fix", "fix it");
    assert_eq!(watch.look(), ["fix proposed, patchset 1"]);
    ann.approve("fix", &first);
    assert_eq!(watch.look(), ["fix approved, patchset 1"]);

    let second = ann.propose(&base, "fix", "fix it better");
    assert_eq!(watch.look(), ["fix patchset 2"]);
    let facts = site.forge.query(&site.change("acme/library", "fix")).unwrap();
    assert_eq!((facts.patchset, facts.commit.as_str(), facts.open, facts.merged), (2, second.as_str(), true, false));
    assert_eq!(facts.approved, Some(Approval { commit: first.clone(), patchset: Some(1), current: false }));

    ann.push(":refs/approved/master/fix");
    assert_eq!(watch.look(), ["fix approval withdrawn"]);
    ann.approve("fix", &first);
    let ignored = "fix approval ignored: OtherPatchset { approved: Some(1), current: 2 }";
    assert_eq!(watch.look(), [ignored]);
    // Whoever proposes an approved commit again has an approved change.
    ann.push(&format!("{first}:refs/for/master/fix"));
    assert_eq!(watch.look(), ["fix patchset 1", "fix approved, patchset 1"]);
    ann.push(&format!("{second}:refs/for/master/fix"));
    assert_eq!(watch.look(), ["fix patchset 2"]);
    ann.approve("fix", &second);
    assert_eq!(watch.look(), ["fix approved, patchset 2"]);

    assert_eq!(site.submit(&ann, &base, &second, &[("fix", &second)]), SubmitOutcome::Merged);
    assert_eq!(watch.look(), ["branch master updated", "fix merged, patchset 2"]);
    let facts = site.forge.query(&site.change("acme/library", "fix")).unwrap();
    assert_eq!((facts.patchset, facts.open, facts.merged, facts.files), (2, false, true, vec!["fix".to_owned()]));

    // The name again, for something else.
    let third = ann.propose(&second, "fix", "and more");
    assert_eq!(watch.look(), ["fix proposed, patchset 3"]);
    let facts = site.forge.query(&site.change("acme/library", "fix")).unwrap();
    assert_eq!((facts.commit, facts.open, facts.merged, facts.parents), (third, true, false, vec![second]));
    ann.push(":refs/for/master/fix");
    assert_eq!(watch.look(), ["fix abandoned"]);

    let mut unique = watch.deliveries.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), watch.deliveries.len(), "{:#?}", watch.deliveries);
}

#[test]
fn a_patchset_that_was_overwritten_between_two_looks_still_counts() {
    let site = Site::new();
    let ann = site.project("library");
    let base = ann.head();
    for text in ["a", "b", "c"] {
        ann.propose(&base, "fix", text);
    }
    let mut watch = Watch::new(&site, "library");
    assert_eq!(watch.look(), ["branch master created", "fix proposed, patchset 3"]);
    let refs = git(&ann.bare, &["for-each-ref", "--format=%(refname) %(subject)", "refs/gatelog"]);
    assert_eq!(
        refs,
        "refs/gatelog/patchsets/master/fix/1 a\nrefs/gatelog/patchsets/master/fix/2 b\n\
         refs/gatelog/patchsets/master/fix/3 c"
    );
    git(&ann.bare, &["gc", "-q", "--prune=now"]);
    git(&ann.bare, &["pack-refs", "--all"]);
    ann.push(":refs/for/master/fix");
    assert_eq!(watch.look(), ["fix abandoned"]);
    ann.propose(&base, "fix", "d");
    assert_eq!(watch.look(), ["fix proposed, patchset 4"]);
}

#[test]
fn branches_and_tags_are_told_and_nonsense_is_explained() {
    let site = Site::new();
    let ann = site.project("library");
    let base = ann.head();
    let mut watch = Watch::new(&site, "library");
    watch.look();
    let next = ann.commit("a", "1", "a");
    ann.push("HEAD:refs/heads/master");
    ann.push("HEAD:refs/heads/feature/x");
    ann.push("HEAD:refs/tags/v1");
    ann.push("HEAD:refs/for/feature/x/deep");
    ann.push("HEAD:refs/for/nowhere/fix");
    ann.push("HEAD:refs/for/short");
    ann.push("HEAD^{tree}:refs/for/master/tree");
    ann.approve("ghost", &next);
    assert_eq!(
        watch.look(),
        [
            "branch feature/x created",
            "branch master updated",
            "tag v1 created",
            "deep proposed, patchset 1",
            "ignored: refs/for/master/tree does not name a commit",
            "ignored: library has no branch nowhere: push the branch first",
            "ignored: ref \"refs/for/short\" is not usable: push to refs/for/<branch>/<name>",
            "ghost approval ignored: NoSuchChange",
        ]
    );
    ann.push(&format!("{base}:refs/heads/master"));
    ann.push(":refs/heads/feature/x");
    ann.push(":refs/tags/v1");
    assert_eq!(watch.look(), ["branch feature/x deleted", "branch master forced", "tag v1 deleted"]);
    let facts = site.forge.query(&ChangeKey::new("library", "feature/x", "deep").unwrap()).unwrap();
    assert_eq!(facts.base_tip, None);
}

#[test]
fn people_cannot_write_what_gatelog_keeps() {
    let site = Site::new();
    let ann = site.project("library");
    for name in ["refs/gatelog/patchsets/master/x/1", "refs/gatelog/merged/master/x/1", "refs/notes/gatelog"] {
        let output = try_git(&ann.work, &["push", "origin", &format!("HEAD:{name}")]);
        assert!(!output.status.success(), "{name}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("hidden ref"), "{name}");
    }
    // Setting up again changes nothing, and does not double the configuration.
    site.forge.create("library", "main").unwrap();
    assert_eq!(site.forge.default_branch("library").unwrap().as_deref(), Some("master"));
    assert_eq!(git(&ann.bare, &["config", "--get-all", "receive.hideRefs"]), "refs/gatelog/\nrefs/notes/gatelog");
    assert_eq!(site.forge.set_up("library", "main").unwrap().added, Vec::<String>::new());
    assert_eq!(site.forge.hook_troubles("library").unwrap(), []);
    site.forge.create("deep/er/project", "trunk").unwrap();
    assert_eq!(site.forge.projects().unwrap(), ["deep/er/project", "library"]);
}

#[test]
fn a_push_wakes_the_server_and_succeeds_without_one() {
    let site = Site::new();
    let ann = site.project("acme/library");
    assert_eq!(site.notifier.wait(Duration::ZERO).unwrap(), ["acme/library"]);
    assert!(site.notifier.wait(Duration::ZERO).unwrap().is_empty());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| site.notifier.wait(Duration::from_secs(60)).unwrap());
        let output = try_git(&ann.work, &["push", "origin", "HEAD:refs/for/master/fix"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("gatelog: proposed master/fix"), "{said}");
        assert_eq!(waiting.join().unwrap(), ["acme/library"]);
    });
    fs::remove_dir_all(site.notifier.directory()).unwrap();
    let output = try_git(&ann.work, &["push", "origin", ":refs/for/master/fix"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("gatelog: abandoned master/fix"), "{said}");
    assert!(!said.contains("cannot") && !said.contains("No such"), "{said}");
}

#[test]
fn facts_tell_what_a_change_needs_and_who_needs_it() {
    let site = Site::new();
    let (ann, bob) = (site.project("library"), site.project("acme/app"));
    let base = ann.head();
    let low = site.change("library", "low");
    let url = low.url(HOST);
    assert_eq!(url, "https://git.example.org/library/+/master/low");
    ann.propose(&base, "low", "low");
    // Built on it, with an address of another place and one that was never proposed.
    let text = "high\n\nsome text\nDepends-On: https://elsewhere.example.org/1\n\
                depends-on: https://git.example.org/library/+/master/none\n";
    ann.propose("HEAD", "high", text);
    let high = site.change("library", "high");
    ann.propose("HEAD", "higher", "higher");
    bob.propose(&bob.head(), "use", &format!("use it\n\nDepends-On: {url}\nDepends-On: library/high\n"));
    let using = site.change("acme/app", "use");

    let facts = site.forge.query(&using).unwrap();
    assert_eq!(facts.subject, "use it");
    assert_eq!(facts.depends_on, [url.as_str(), "library/high"]);
    assert_eq!((facts.owner_name.as_str(), facts.owner_email.as_str()), ("Ann", "ann@example.org"));
    assert_eq!((facts.committed_s, facts.files.as_slice()), (1_600_000_000, &["use".to_owned()][..]));
    assert_eq!(git(&bob.bare, &["rev-parse", &facts.patchset_ref]), facts.commit);
    let facts = site.forge.query(&site.change("library", "higher")).unwrap();
    assert_eq!(facts.git_needs, [(high.clone(), 1)], "only the nearest");
    assert_eq!(facts.files, ["high", "higher", "low"]);

    let projects = site.forge.projects().unwrap();
    assert_eq!(site.forge.needed_by(&low, &projects).unwrap(), [using.clone(), high.clone()]);
    let closure = site.forge.closure(std::slice::from_ref(&using)).unwrap();
    assert_eq!(closure.changes.keys().collect::<Vec<_>>(), [&using, &high, &low]);
    assert_eq!(closure.needs[&using], [low.clone(), high.clone()]);
    assert_eq!(closure.needs[&high], std::slice::from_ref(&low));
    let lost: Vec<_> = closure.unresolved.iter().map(|u| (&u.change, &u.resolution)).collect();
    assert_eq!(lost, [(&high, &Resolution::Foreign), (&high, &Resolution::Foreign)]);
    assert!(!closure.truncated);

    // A short form that fits two changes is no address.
    ann.push("HEAD:refs/heads/stable");
    ann.push("HEAD:refs/for/stable/high");
    assert!(matches!(site.forge.resolve("library/high").unwrap(), Resolution::Ambiguous(both) if both.len() == 2));
    assert_eq!(site.forge.resolve("library/master/high").unwrap(), Resolution::Change(high));
    for text in ["", "high", "nothing/high", "https://", "../x", "library/\0"] {
        assert_eq!(site.forge.resolve(text).unwrap(), Resolution::Foreign, "{text:?}");
    }
}

#[test]
fn what_is_proposed_for_no_branch_is_in_nobodys_way() {
    let site = Site::new();
    let (ann, bob) = (site.project("library"), site.project("acme/app"));
    let base = ann.head();
    let low = site.change("library", "low");
    ann.propose(&base, "low", "low");
    bob.propose(&bob.head(), "use", &format!("use it\n\nDepends-On: {}\n", low.url(HOST)));
    let using = site.change("acme/app", "use");
    // More than are searched, none of which could ever merge.
    let mut config = site.forge.config().clone();
    config.limits.changes = 10;
    let forge = Forge::open(config).unwrap();
    let lost: Vec<String> = (0..30).map(|number| format!("{base}:refs/for/nowhere/c{number}")).collect();
    let mut push = vec!["push", "--quiet", "origin"];
    push.extend(lost.iter().map(String::as_str));
    git(&ann.work, &push);
    let projects = forge.projects().unwrap();
    assert_eq!(forge.needed_by(&low, &projects).unwrap(), std::slice::from_ref(&using));
    assert_eq!(forge.proposed_changes("library").unwrap(), std::slice::from_ref(&low));
    // Once there is the branch, they count; more of a project than are searched keep nobody waiting.
    ann.push(&format!("{base}:refs/heads/nowhere"));
    assert_eq!(forge.proposed_changes("library").unwrap().len(), 31);
    assert_eq!(forge.needed_by(&low, &projects).unwrap(), std::slice::from_ref(&using));
}

#[test]
fn a_dependency_cycle_and_a_limit_end_a_closure() {
    let site = Site::new();
    let ann = site.project("library");
    let base = ann.head();
    let (one, two) = (site.change("library", "one"), site.change("library", "two"));
    ann.propose(&base, "one", &format!("one\n\nDepends-On: {}", two.url(HOST)));
    ann.propose(&base, "two", &format!("two\n\nDepends-On: {}", one.url(HOST)));
    let closure = site.forge.closure(std::slice::from_ref(&one)).unwrap();
    assert_eq!((closure.changes.len(), closure.truncated), (2, false));
    let mut config = site.forge.config().clone();
    config.limits.changes = 1;
    let closure = Forge::open(config).unwrap().closure(&[one]).unwrap();
    assert_eq!((closure.changes.len(), closure.truncated), (1, true));
}

#[test]
fn a_branch_moves_only_from_where_it_was_tested() {
    let site = Site::new();
    let ann = site.project("library");
    let base = ann.head();
    let change = ann.propose(&base, "fix", "fix");
    // What the gate tested: a commit only the mirror has.
    ann.checkout(&base);
    let other = ann.commit("other", "1", "somebody else's");
    ann.checkout(&base);
    git(&ann.work, &["merge", "-q", "--no-ff", "-m", "Merge fix", &change]);
    let tested = ann.head();

    ann.push(&format!("{other}:refs/heads/master"));
    let moved = SubmitOutcome::BaseMoved { found: Some(other.clone()) };
    assert_eq!(site.submit(&ann, &base, &tested, &[("fix", &change)]), moved);
    assert_eq!(ann.tip(), other);
    ann.push(&format!("{base}:refs/heads/master"));
    assert!(matches!(site.submit(&ann, &base, &other, &[]), SubmitOutcome::Merged));
    ann.push(&format!("{base}:refs/heads/master"));

    assert_eq!(site.submit(&ann, &base, &tested, &[("fix", &change)]), SubmitOutcome::Merged);
    assert_eq!(ann.tip(), tested);
    git(&ann.bare, &["fsck", "--strict"]);
    let log = git(&ann.bare, &["reflog", "show", "-1", "--format=%gn %gs", "refs/heads/master"]);
    assert_eq!(log, "gatelog gatelog: merge for work work-7");
    // Was it I? Also after somebody built on it.
    assert_eq!(site.submit(&ann, &base, &tested, &[("fix", &change)]), SubmitOutcome::AlreadyMerged);
    ann.checkout(&tested);
    ann.commit("later", "1", "later");
    ann.push("HEAD:refs/heads/master");
    assert_eq!(site.submit(&ann, &base, &tested, &[("fix", &change)]), SubmitOutcome::AlreadyMerged);
    let count = git(&ann.bare, &["reflog", "show", "--format=%gs", "refs/heads/master"]);
    assert_eq!(count.lines().filter(|l| l.contains("work-7")).count(), 2);

    // What would lose commits, or is nowhere.
    let tip = ann.tip();
    let refused = site.submit(&ann, &tip, &other, &[]);
    assert!(matches!(&refused, SubmitOutcome::Refused { reason } if reason.contains("would be lost")), "{refused:?}");
    let request = SubmitRequest {
        project: "library".to_owned(),
        branch: "master".to_owned(),
        expected_base: tip.clone(),
        commit: "1".repeat(40),
        objects: ann.work.clone(),
        changes: Vec::new(),
        work_id: "w\n".to_owned(),
    };
    assert!(matches!(site.forge.submit(&request), Err(ForgeError::MissingCommit { .. })));
    let nowhere = SubmitRequest { objects: ann.work.join("nowhere"), ..request.clone() };
    assert!(matches!(site.forge.submit(&nowhere), Err(ForgeError::MissingCommit { .. })));
    let gone = SubmitRequest { branch: "gone".to_owned(), ..request };
    assert_eq!(site.forge.submit(&gone).unwrap(), SubmitOutcome::BaseMoved { found: None });
    assert_eq!(ann.tip(), tip);
}

#[test]
fn what_was_merged_is_found_far_back_and_beside_the_line() {
    let site = Site::new();
    let ann = site.project("library");
    let base = ann.head();
    let beside = ann.propose(&base, "fix", "fix");
    ann.checkout(&base);
    git(&ann.work, &["merge", "-q", "--no-ff", "-m", "merge", &beside]);
    let merge = ann.head();
    for number in 0..30 {
        ann.commit("later", &number.to_string(), "later");
    }
    ann.push("HEAD:refs/heads/master");
    for merged in [&base, &beside, &merge] {
        assert_eq!(site.submit(&ann, &base, merged, &[]), SubmitOutcome::AlreadyMerged, "{merged}");
    }
}

#[test]
fn a_crash_between_moving_the_branch_and_closing_the_change_is_mended() {
    let site = Site::new();
    let ann = site.project("library");
    let base = ann.head();
    let change = ann.propose(&base, "fix", "fix");
    ann.approve("fix", &change);
    let mut watch = Watch::new(&site, "library");
    watch.look();
    // The process died right after the compare-and-swap.
    git(&ann.bare, &["update-ref", "refs/heads/master", &change]);
    assert_eq!(site.submit(&ann, &base, &change, &[("fix", &change)]), SubmitOutcome::AlreadyMerged);
    assert_eq!(watch.look(), ["branch master updated", "fix merged, patchset 1"]);
    assert_eq!(git(&ann.bare, &["for-each-ref", "refs/for", "refs/approved"]), "");
}

#[test]
fn a_patchset_pushed_while_the_old_one_merges_stays_open() {
    let site = Site::new();
    let ann = site.project("library");
    let base = ann.head();
    let old = ann.propose(&base, "fix", "old");
    let new = ann.propose(&base, "fix", "new");
    assert_eq!(site.submit(&ann, &base, &old, &[("fix", &old)]), SubmitOutcome::Merged);
    let facts = site.forge.query(&site.change("library", "fix")).unwrap();
    assert_eq!((facts.commit, facts.patchset, facts.open, facts.merged), (new, 2, true, false));
}

#[test]
fn of_many_who_submit_at_once_one_wins_and_locks_of_the_dead_are_removed() {
    let site = Site::new();
    let ann = site.project("library");
    let base = ann.head();
    let commits: Vec<String> = (0..6)
        .map(|n| {
            ann.checkout(&base);
            ann.commit("a", &format!("{n}"), "rival")
        })
        .collect();
    let lock = ann.bare.join("refs/heads/master.lock");
    fs::write(&lock, "").unwrap();
    let file = fs::File::options().write(true).open(&lock).unwrap();
    // The clock went back since: it cannot be told by that how old it is.
    file.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
    let outcomes: Vec<SubmitOutcome> = std::thread::scope(|scope| {
        let (site, ann, base) = (&site, &ann, base.as_str());
        let workers: Vec<_> = commits.iter().map(|c| scope.spawn(move || site.submit(ann, base, c, &[]))).collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let tip = ann.tip();
    for (commit, outcome) in commits.iter().zip(outcomes) {
        let lost = SubmitOutcome::BaseMoved { found: Some(tip.clone()) };
        assert_eq!(outcome, if *commit == tip { SubmitOutcome::Merged } else { lost });
    }
    assert!(commits.contains(&tip));
}

#[test]
fn reports_are_notes_and_never_double() {
    let site = Site::new();
    let ann = site.project("library");
    let commit = ann.propose(&ann.head(), "fix", "fix");
    let request = |id: &str, verdict: &str, text: &str| ReportRequest {
        project: "library".to_owned(),
        commit: commit.clone(),
        report_id: id.to_owned(),
        verdict: verdict.to_owned(),
        text: text.to_owned(),
        date_s: 1_700_000_000,
    };
    // Somebody has a note there already.
    git(&ann.bare, &["notes", "--ref=gatelog", "add", "-m", "by hand", &commit]);
    site.forge.report(&request("check-1", "SUCCESS", "Build succeeded.\n\n- unit : SUCCESS")).unwrap();
    std::thread::scope(|scope| {
        for n in 0..6 {
            let (forge, request) = (&site.forge, &request);
            scope.spawn(move || {
                for _ in 0..2 {
                    forge.report(&request(&format!("gate-{n}"), "FAILURE", &format!("text {n}"))).unwrap();
                }
            });
        }
    });
    let reports = site.forge.read_reports("library", &commit).unwrap();
    let mut ids: Vec<_> = reports.iter().map(|r| r.report_id.as_str()).collect();
    assert_eq!(ids.remove(0), "check-1");
    ids.sort_unstable();
    assert_eq!(ids, ["gate-0", "gate-1", "gate-2", "gate-3", "gate-4", "gate-5"]);
    let before = git(&ann.bare, &["rev-parse", "refs/notes/gatelog"]);
    site.forge.report(&request("gate-3", "FAILURE", "text 3\n")).unwrap();
    assert_eq!(git(&ann.bare, &["rev-parse", "refs/notes/gatelog"]), before, "nothing new, nothing written");
    site.forge.report(&request("gate-3", "SUCCESS", "\u{1b}[2Jbetter")).unwrap();

    git(&ann.work, &["fetch", "-q", "origin", "refs/notes/gatelog:refs/notes/gatelog"]);
    let seen = git(&ann.work, &["notes", "--ref=gatelog", "show", &commit]);
    let head = "by hand\n\n[gatelog report check-1 SUCCESS]\nBuild succeeded.\n\n- unit : SUCCESS\n";
    assert!(seen.starts_with(head), "{seen}");
    assert!(seen.contains("[gatelog report gate-3 SUCCESS]\n[2Jbetter"), "{seen}");
    assert_eq!(seen.matches("[gatelog report").count(), 7);
    assert_eq!(git(&ann.work, &["notes", "--ref=gatelog", "list"]).lines().count(), 1);

    for (id, verdict) in [("a b", "X"), ("", "X"), ("a", "X]\n"), ("a\0", "X")] {
        assert!(matches!(site.forge.report(&request(id, verdict, "")), Err(ForgeError::BadName { .. })), "{id:?}");
    }
    let mut lost = request("a", "X", "");
    lost.commit = "2".repeat(40);
    assert!(matches!(site.forge.report(&lost), Err(ForgeError::MissingCommit { .. })));
}

#[test]
fn what_has_vanished_or_cannot_be_is_a_named_error() {
    let site = Site::new();
    let ann = site.project("library");
    let unknown = site.change("library", "never");
    assert!(matches!(site.forge.query(&unknown), Err(ForgeError::NoChange { .. })));
    assert!(matches!(site.forge.poll("other", &RefSnapshot::default()), Err(ForgeError::NoProject { .. })));
    for project in ["..", "../library", "a\0b", "", "x/../library", &"p".repeat(5000)] {
        let error = site.forge.poll(project, &RefSnapshot::default()).unwrap_err();
        assert!(matches!(error, ForgeError::BadName { .. }), "{project:?}: {error}");
        assert!(error.to_string().len() < 300);
    }
    // The parts are public: they may hold anything.
    for name in ["a\0b", "..", "a/b", "\u{1b}[2J", &"n".repeat(5000)] {
        let change = ChangeKey { name: name.to_owned(), ..unknown.clone() };
        assert!(matches!(site.forge.query(&change), Err(ForgeError::BadName { .. })), "{name:?}");
    }
    // Refs that git itself would not have made.
    fs::create_dir_all(ann.bare.join("refs/for/master")).unwrap();
    fs::write(ann.bare.join("refs/for/master/broken"), "not a commit id\n").unwrap();
    let (events, _) = site.forge.poll("library", &RefSnapshot::default()).unwrap();
    assert_eq!(told(&events), ["branch master created"], "one broken ref does not hide the others");
    fs::remove_file(ann.bare.join("refs/for/master/broken")).unwrap();

    fs::remove_dir_all(&ann.bare).unwrap();
    let error = site.forge.poll("library", &RefSnapshot::default()).unwrap_err();
    assert!(matches!(error, ForgeError::NoProject { .. }), "{error}");
    assert!(matches!(Forge::open(ForgeConfig::new(site.dir.path(), "a/b")), Err(ForgeError::BadName { .. })));
}

#[test]
fn refs_that_are_nested_too_deeply_hide_no_others() {
    let site = Site::new();
    let ann = site.project("library");
    let before = RefSnapshot::default();
    git(&ann.work, &["push", "-q", "origin", "HEAD:refs/for/master/fix"]);
    let (_, before) = site.forge.poll("library", &before).unwrap();
    for prefix in ["heads", "tags", "for"] {
        let deep = format!("HEAD:refs/{prefix}/{}x", "d/".repeat(100));
        let pushed = try_git(&ann.work, &["push", "-q", "origin", &deep]);
        assert!(!pushed.status.success());
        assert!(String::from_utf8_lossy(&pushed.stderr).contains("60 levels at most"), "{pushed:?}");
        let fine = format!("HEAD:refs/{prefix}/{}x", "d/".repeat(50));
        git(&ann.work, &["push", "-q", "origin", &fine]);
    }
    let (events, before) = site.forge.poll("library", &before).unwrap();
    assert_eq!(events.len(), 3, "{events:#?}");
    // Where it got past the hook, it is an error that names it, and nothing is taken for deleted.
    let path = ann.bare.join("refs/for").join("e/".repeat(100));
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("x"), format!("{}\n", git(&ann.work, &["rev-parse", "HEAD"]))).unwrap();
    let error = site.forge.poll("library", &before).unwrap_err();
    assert!(
        matches!(&error, ForgeError::TooDeep { path, .. } if path.starts_with(ann.bare.join("refs/for/e"))),
        "{error}"
    );
    std::fs::remove_dir_all(ann.bare.join("refs/for/e")).unwrap();
    assert_eq!(site.forge.poll("library", &before).unwrap().0, []);
}

#[test]
fn what_a_hook_refuses_is_what_a_poll_passes_over() {
    let site = Site::new();
    let ann = site.project("library");
    let base = ann.head();
    let fix = ann.propose(&base, "fix", "fix it");
    let next = ann.commit("b", "b", "b");
    let (_, before) = site.forge.poll("library", &RefSnapshot::default()).unwrap();
    let tree = git(&ann.work, &["rev-parse", "HEAD^{tree}"]);
    git(&ann.work, &["tag", "--annotate", "--message", "v", "v1"]);
    let tag = git(&ann.work, &["rev-parse", "v1"]);
    let long = format!("refs/for/master/{}", "x".repeat(101));
    let cases: [(&str, &String, bool); 13] = [
        ("refs/for/master/one", &next, true),
        ("refs/for/master/two", &tag, true),
        ("refs/for/nowhere/one", &next, false),
        ("refs/for/short", &next, false),
        (&long, &next, false),
        ("refs/for/master/tree", &tree, false),
        ("refs/approved/master/fix", &fix, true),
        ("refs/approved/master/one", &tag, true),
        ("refs/approved/master/two", &base, false),
        ("refs/approved/master/ghost", &next, false),
        ("refs/approved/short", &next, false),
        ("refs/heads/other", &next, true),
        ("refs/tags/t", &tree, true),
    ];
    let to = PushedTo {
        repository: ann.bare.clone(),
        // The objects of the push: as git keeps them apart until it is accepted.
        quarantine: Some(ann.work.join(".git/objects")),
        project: "library".to_owned(),
        limits: Limits::default(),
    };
    let zero = "0".repeat(40);
    let updates: Vec<RefUpdate> = cases
        .iter()
        .map(|(name, new, _)| RefUpdate::parse(format!("{zero} {new} {name}").as_bytes()).unwrap())
        .collect();
    let refused: Vec<String> = to.check(&updates).unwrap().into_iter().map(|one| one.ref_name).collect();
    for (name, new, _) in &cases {
        git(&ann.work, &["push", "-q", "origin", &format!("+{new}:refs/carry/it")]);
        git(&ann.bare, &["update-ref", name, new]);
    }
    let (events, _) = site.forge.poll("library", &before).unwrap();
    for (name, _, taken) in cases {
        let event = events.iter().find(|event| event.ref_name == name).unwrap();
        let passed_over = matches!(event.kind, EventKind::RefIgnored { .. } | EventKind::ApprovalIgnored { .. });
        assert_eq!((refused.iter().any(|one| one == name), passed_over), (!taken, !taken), "{name}: {event:?}");
    }
}

#[test]
fn a_push_is_judged_by_what_will_be_there_after_it() {
    let site = Site::new();
    let ann = site.project("library");
    let base = ann.head();
    let fix = ann.commit("a", "a", "a");
    let zero = "0".repeat(40);
    let check = |updates: &[(&str, &str, &str)], patchsets: usize| {
        let to = PushedTo {
            repository: ann.bare.clone(),
            quarantine: Some(ann.work.join(".git/objects")),
            project: "library".to_owned(),
            limits: Limits { patchsets, refs: 3, ..Limits::default() },
        };
        let read = |(old, new, name): &(&str, &str, &str)| RefUpdate::parse(format!("{old} {new} {name}").as_bytes());
        let refused = to.check(&updates.iter().map(|one| read(one).unwrap()).collect::<Vec<_>>());
        refused.map(|all| all.into_iter().map(|one| one.reason.to_string()).collect::<Vec<_>>())
    };
    let (new, gone) = (|name| (&*zero, &*fix, name), |name| (&*base, &*zero, name));
    let none = Vec::<String>::new();
    assert_eq!(check(&[("refs/heads/new", &*base)].map(|(name, id)| (&*zero, id, name)), 9).unwrap(), none);
    assert_eq!(check(&[(&zero, &base, "refs/heads/new"), new("refs/for/new/x")], 9).unwrap(), none);
    let missing = ["library has no branch master: push the branch first"];
    assert_eq!(check(&[gone("refs/heads/master"), new("refs/for/master/x")], 9).unwrap(), missing);
    let merged = format!("commit {fix} is in master already: there is nothing to merge");
    assert_eq!(check(&[new("refs/for/master/x"), (&base, &fix, "refs/heads/master")], 9).unwrap(), [merged]);
    assert_eq!(check(&[new("refs/for/master/x"), new("refs/approved/master/x")], 9).unwrap(), none);
    assert_eq!(check(&[gone("refs/for/nowhere/x"), gone("refs/approved/short")], 9).unwrap(), none);
    let kept = "gatelog alone writes this ref";
    assert_eq!(check(&[gone("refs/notes/gatelog"), new("refs/gatelog/merged/a/b/1")], 9).unwrap(), [kept, kept]);
    assert!(matches!(
        check(&[new("refs/a"), new("refs/b"), new("refs/c"), new("refs/d")], 9),
        Err(ForgeError::TooMany { .. })
    ));
    // A change that has as many patchsets as it may: an old one may come again, and no new one.
    ann.push(&format!("{fix}:refs/for/master/x"));
    site.forge.poll("library", &RefSnapshot::default()).unwrap();
    assert_eq!(check(&[new("refs/for/master/x")], 1).unwrap(), none);
    let second = ann.commit("b", "b", "b");
    assert_eq!(
        check(&[(&fix, &second, "refs/for/master/x")], 1).unwrap(),
        ["the change has 1 patchsets, and may have no more"]
    );
}

#[test]
#[cfg(unix)]
fn a_ref_whose_name_is_not_utf_8_is_told_and_means_nothing() {
    use std::os::unix::ffi::OsStrExt as _;
    let site = Site::new();
    let ann = site.project("library");
    let head = git(&ann.work, &["rev-parse", "HEAD"]);
    let (_, before) = site.forge.poll("library", &RefSnapshot::default()).unwrap();
    for name in [&b"refs/for/master/\xff"[..], b"refs/for/master/\xfe", b"refs/heads/\xc3\x28", b"refs/tags/\x80"] {
        let done = std::process::Command::new("git")
            .current_dir(&ann.bare)
            .arg("update-ref")
            .arg(std::ffi::OsStr::from_bytes(name))
            .arg(&head)
            .status();
        assert!(done.unwrap().success());
    }
    let (events, after) = site.forge.poll("library", &before).unwrap();
    assert!(!events.is_empty());
    for event in &events {
        let EventKind::RefIgnored { reason } = &event.kind else { panic!("{event:?}") };
        assert!(reason.contains("not UTF-8") && event.ref_name.contains('\u{fffd}'), "{event:?}");
    }
    assert_eq!(site.forge.poll("library", &after).unwrap().0, []);
    assert!(!git(&ann.bare, &["for-each-ref"]).contains("patchsets"), "nothing was kept of them");
}
