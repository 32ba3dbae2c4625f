//! What happens at a gate, on a real server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gatelog_driver_gerrit::*;
use serde_json::json;

use crate::server::{Prepared, Project, Server, until};

fn report(change: &Change, work: &str, message: &str, votes: &[(&str, i64)]) -> Report {
    Report {
        work: work.to_owned(),
        pipeline: Some("gate".to_owned()),
        change: change.name.clone(),
        commit: change.commit.clone(),
        message: message.to_owned(),
        short_message: None,
        votes: votes.iter().map(|(label, value)| ((*label).to_owned(), *value)).collect(),
        comments: Vec::new(),
        notify: None,
    }
}

fn labels(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn landed(outcome: &Submitted) -> &Landed {
    match outcome {
        Submitted::Merged(landed) => landed,
        other => panic!("not merged as tested: {other:?}"),
    }
}

fn submit(server: &Server, mode: Mode, targets: &[SubmitTarget], projects: &[&Project<'_>]) -> Vec<Submitted> {
    let (gerrit, git) = (server.gerrit(), server.git());
    Submitter::new(&gerrit, &git, mode).submit_all(targets, &Project::places(projects)).unwrap()
}

/// Somebody who listens; what it was given so far.
pub struct Listener {
    intake: Intake,
    pub heard: Vec<Delivery>,
}

impl Listener {
    pub fn new(server: &Server, place: Place, projects: &[&Project<'_>]) -> Listener {
        let settings = IntakeSettings {
            projects: projects.iter().map(|project| project.name.clone()).collect(),
            settle: Duration::from_secs(2),
            ..IntakeSettings::default()
        };
        let mut listener = Listener { intake: Intake::new(server.gerrit(), place, settings), heard: Vec::new() };
        until("the stream", || {
            listener.listen();
            (listener.intake.listens() && listener.intake.place().at > 0).then_some(())
        });
        listener
    }

    pub fn listen(&mut self) {
        self.heard.extend(self.intake.next(Duration::from_millis(100)).deliveries);
    }

    /// As it would be kept.
    pub fn place(&self) -> Place {
        serde_json::from_str(&serde_json::to_string(self.intake.place()).unwrap()).unwrap()
    }

    /// Waits for an event of a change.
    pub fn hear(&mut self, kind: &str, change: &ChangeName, text: &str) -> Event {
        let mut from = 0;
        until(&format!("{kind} of {change} with {text:?}"), || {
            if from == self.heard.len() {
                self.listen();
            }
            let found = self.heard[from..].iter().find(|delivery| {
                let event = &delivery.event;
                event.kind.as_str() == kind
                    && event.change.as_ref().is_some_and(|of| of.number == change.number)
                    && event.comment.as_deref().unwrap_or_default().contains(text)
            });
            from = self.heard.len();
            found.map(|delivery| delivery.event.clone())
        })
    }

    /// What it heard of branches and changes, by id; patchsets' refs apart.
    pub fn by_id(&self) -> BTreeMap<String, Reading> {
        let mut all = BTreeMap::new();
        for delivery in &self.heard {
            let of_patchset = delivery.event.ref_update.as_ref().is_some_and(|update| update.of_change().is_some());
            if !of_patchset {
                let twice = all.insert(delivery.id.clone(), delivery.event.reading());
                assert!(twice.is_none(), "{} was given twice", delivery.id);
            }
        }
        all
    }
}

/// Proposed, voted on, reported, merged; and what was missed meanwhile is had again.
pub fn the_life_of_a_change(server: &mut Server) {
    let project = server.project("life", "MERGE_IF_NECESSARY");
    let gerrit = server.gerrit();
    let mut listener = Listener::new(server, Place::default(), &[&project]);
    let change = project.propose(None, "a.txt", "one\ntwo\n", "Propose", "%topic=life");
    let created = listener.hear("patchset-created", &change, "");
    assert_eq!(created.reading().account.unwrap().username.as_deref(), Some("dev"));
    assert_eq!(created.change.unwrap().topic.as_deref(), Some("life"));

    let known = gerrit.change(&change).unwrap();
    assert_eq!(known.files, labels(&["/COMMIT_MSG", "a.txt"]));
    assert_eq!(known.url, server.url(&format!("c/{}/+/{}", project.name, change.number)));
    assert!(known.can_merge(&labels(&["Verified"])).is_err(), "nobody has approved it");
    let mut failed = report(&known, "work-1", "Build failed.", &[("Verified", -1)]);
    for (file, place) in
        [("a.txt", CommentPlace::Line(2)), ("other.txt", CommentPlace::Line(1)), ("/COMMIT_MSG", CommentPlace::File)]
    {
        failed.comments.push(InlineComment {
            file: file.to_owned(),
            place,
            message: "wrong".to_owned(),
            unresolved: false,
        });
    }
    let told = gerrit.report(&failed).unwrap();
    assert_eq!((told.before, told.votes.get("Verified")), (false, Some(&-1)));
    assert_eq!(told.comments_left_out, ["other.txt: not a file of this change"]);
    let again = gerrit.report(&failed).unwrap();
    assert!(again.before && again.votes.is_empty(), "told once: {again:?}");
    let event = listener.hear("comment-added", &change, "Build failed.");
    assert_eq!(event.comment.as_deref(), Some("Patch Set 1: Verified-1\n\n(2 comments)\n\nBuild failed."));
    let comments = server.rest("ci", "GET", &format!("changes/{}/comments", change.number), &json!(null));
    assert_eq!((comments["a.txt"][0]["line"].clone(), comments["a.txt"].as_array().unwrap().len()), (json!(2), 1));

    // Nobody listens for a while.
    let place = listener.place();
    let before = listener.by_id();
    drop(listener);
    server.review("core", &change, &json!({"message": "recheck", "labels": {"Code-Review": 2, "Workflow": 1}}));
    let mut listener = Listener::new(server, place, &[&project]);
    let missed = listener.hear("comment-added", &change, "recheck");
    let vote = missed.votes.iter().find(|vote| vote.label == "Workflow").unwrap();
    assert_eq!((vote.value.as_str(), vote.old_value.as_deref()), ("1", Some("0")));

    let known = gerrit.change(&change).unwrap();
    known.can_merge(&labels(&["Verified"])).unwrap();
    gerrit.report(&report(&known, "work-2", "Build succeeded.", &[("Verified", 2)])).unwrap();
    let target = project.prepare(&change, &project.tip("master"), Prepared::AsItIs);
    let merged = submit(server, Mode::ByGerrit, std::slice::from_ref(&target), &[&project]);
    assert_eq!((landed(&merged[0]).commit.as_str(), landed(&merged[0]).before), (known.commit.as_str(), false));
    let merged = submit(server, Mode::ByGerrit, &[target], &[&project]);
    assert!(landed(&merged[0]).before, "merged once");
    listener.hear("change-merged", &change, "");
    let moved = until("the branch behind its change", || {
        listener.listen();
        let at = |wanted: &dyn Fn(&Event) -> bool| listener.heard.iter().position(|heard| wanted(&heard.event));
        let merged = at(&|event| event.kind == EventKind::ChangeMerged)?;
        at(&|event| event.ref_update.as_ref().is_some_and(|update| update.name == "refs/heads/master"))
            .map(|moved| (merged, moved))
    });
    assert!(moved.0 < moved.1);
    let after = listener.by_id();
    assert!(after.keys().all(|id| !before.contains_key(id)), "what was given is not given again");
    assert_eq!(after.values().filter(|read| read.kind == "comment-added").count(), 2);
}

/// What Gerrit makes of each submit type is found and compared; a base that moves holds back everything.
pub fn every_submit_type(server: &mut Server) {
    for (kind, own_commit) in [
        ("MERGE_IF_NECESSARY", true),
        ("MERGE_ALWAYS", true),
        ("REBASE_IF_NECESSARY", true),
        ("REBASE_ALWAYS", true),
        ("CHERRY_PICK", true),
        ("FAST_FORWARD_ONLY", false),
    ] {
        let project = server.project(&format!("type-{}", kind.to_lowercase()), kind);
        let (first, second) =
            (project.propose(None, "a.txt", "a", "One", ""), project.propose(None, "b.txt", "b", "Two", ""));
        server.approve(&first);
        server.approve(&second);
        assert_eq!(server.gerrit().submit_type(&first).unwrap(), kind);
        assert_eq!(server.gerrit().project_submit_type(&project.name).unwrap(), kind);
        let base = project.tip("master");
        let stale = project.prepare(&second, &base, Prepared::Merged);
        let merged = submit(server, Mode::ByGerrit, &[project.prepare(&first, &base, Prepared::Merged)], &[&project]);
        let tip = landed(&merged[0]).commit.clone();
        assert_eq!(tip, project.tip("master"), "{kind}");
        let moved = submit(server, Mode::ByGerrit, std::slice::from_ref(&stale), &[&project]);
        assert_eq!(moved, [Submitted::BaseMoved { is: Some(tip.clone()) }], "{kind}");
        assert!(server.gerrit().change(&second).unwrap().is_open());
        let target = project.prepare(&second, &tip, Prepared::Merged);
        let merged = submit(server, Mode::ByGerrit, std::slice::from_ref(&target), &[&project]);
        if own_commit {
            assert_eq!(landed(&merged[0]).tree, target.tested_tree, "{kind}");
            assert_ne!(landed(&merged[0]).commit, target.patchset_commit, "{kind}: Gerrit made a commit of its own");
            // Others go on meanwhile; asked again, it is still found where it landed.
            project.move_branch("outside.txt");
            let again = submit(server, Mode::ByGerrit, &[target], &[&project]);
            assert_eq!(landed(&again[0]).commit, landed(&merged[0]).commit, "{kind}");
            assert!(landed(&again[0]).before && landed(&again[0]).tip != landed(&again[0]).commit);
        } else {
            assert!(
                matches!(&merged[0], Submitted::Refused { why } if why.contains("fast-forward")),
                "{:?}",
                merged[0]
            );
        }
    }
}

/// Where Gerrit merges something else than was tested, that is said; where it may not merge, too.
pub fn untested_and_refused(server: &mut Server) {
    let project = server.project("untested", "MERGE_ALWAYS");
    let change = project.propose(None, "a.txt", "a", "One", "");
    let base = project.tip("master");
    let mut target = project.prepare(&change, &base, Prepared::Merged);
    let refused = submit(server, Mode::ByGerrit, std::slice::from_ref(&target), &[&project]);
    assert!(matches!(&refused[0], Submitted::Refused { why } if why.contains("is unsatisfied")), "{refused:?}");
    server.approve(&change);
    let older = target.clone();
    let id = server.gerrit().change(&change).unwrap().change_id;
    project.push(None, "a.txt", "b", &format!("One\n\nChange-Id: {id}\n"), "");
    let newer = submit(server, Mode::ByGerrit, &[older], &[&project]);
    assert!(matches!(&newer[0], Submitted::Refused { why } if why.contains("newer patchset")), "{newer:?}");
    server.approve(&change);
    target = project.prepare(&change, &base, Prepared::Merged);
    // As if another way of merging had been tested.
    target.tested_tree = server.git().tree(&project.objects, &base).unwrap();
    let merged = submit(server, Mode::ByGerrit, std::slice::from_ref(&target), &[&project]);
    let Submitted::MergedUntested(landed) = &merged[0] else { panic!("{merged:?}") };
    assert_eq!(landed.commit, project.tip("master"));
    let other = project.propose(None, "z.txt", "z", "Two", "");
    server.rest("dev", "POST", &format!("changes/{}/abandon", other.number), &json!({}));
    let abandoned = project.prepare(&other, &project.tip("master"), Prepared::Merged);
    let refused = submit(server, Mode::ByGerrit, &[abandoned], &[&project]);
    assert!(matches!(&refused[0], Submitted::Refused { why } if why.contains("ABANDONED")), "{refused:?}");
}

/// The tested commit itself on the branch, if that is what was tested on.
pub fn exactly_what_was_tested(server: &mut Server) {
    let project = server.project("exact", "MERGE_IF_NECESSARY");
    let (first, second) =
        (project.propose(None, "a.txt", "a", "One", ""), project.propose(None, "b.txt", "b", "Two", ""));
    let base = project.tip("master");
    let one = project.prepare(&first, &base, Prepared::Merged);
    let two = project.prepare(&second, &one.tested_commit, Prepared::Merged);
    let late = project.prepare(&second, &base, Prepared::Merged);
    let targets = [one.clone(), two.clone()];
    let merged = submit(server, Mode::Exact, &targets, &[&project]);
    assert_eq!(landed(&merged[0]).commit, one.tested_commit);
    assert_eq!(
        (landed(&merged[1]).commit.as_str(), project.tip("master")),
        (two.tested_commit.as_str(), two.tested_commit.clone())
    );
    until("both changes to close", || {
        targets.iter().all(|one| server.gerrit().change(&one.change).unwrap().is_merged()).then_some(())
    });
    let again = submit(server, Mode::Exact, &targets, &[&project]);
    assert!(landed(&again[0]).before && landed(&again[1]).before);

    let third = project.propose(Some(&base), "c.txt", "c", "Three", "");
    let stale = project.prepare(&third, &two.tested_commit, Prepared::Merged);
    let tip = project.move_branch("outside.txt");
    let moved = submit(server, Mode::Exact, &[stale], &[&project]);
    assert_eq!(moved, [Submitted::BaseMoved { is: Some(tip) }]);
    assert_ne!(late.tested_commit, two.tested_commit);
    let missing = SubmitTarget {
        tested_commit: "1".repeat(40),
        ..project.prepare(&third, &project.tip("master"), Prepared::Merged)
    };
    let failed = submit(server, Mode::Exact, &[missing], &[&project]);
    assert!(matches!(&failed[0], Submitted::Failed { code: "commit-missing", again: false, .. }), "{failed:?}");
}

/// One submit merges a topic over projects; one that was not tested with it holds it back.
pub fn a_topic_over_two_projects(server: &mut Server) {
    let (lib, app) = (server.project("topic-lib", "MERGE_IF_NECESSARY"), server.project("topic-app", "MERGE_ALWAYS"));
    let (a, b) = (lib.propose(None, "a", "a", "A", "%topic=pair-1"), app.propose(None, "b", "b", "B", "%topic=pair-1"));
    let gerrit = server.gerrit();
    assert!(gerrit.server().unwrap().submit_whole_topic);
    let names = BTreeSet::from([a.clone(), b.clone()]);
    assert_eq!(
        gerrit.changes_by_topic("pair-1").unwrap().into_iter().map(|change| change.name).collect::<BTreeSet<_>>(),
        names
    );
    assert_eq!(gerrit.submitted_together(&a).unwrap(), (names.iter().cloned().collect(), 0));
    let closure = gerrit.closure(std::slice::from_ref(&a), true).unwrap();
    assert_eq!(closure.changes.iter().map(|one| one.change.name.clone()).collect::<BTreeSet<_>>(), names);
    assert_eq!(closure.changes[0].topic, std::slice::from_ref(&b));
    server.approve(&a);
    let targets =
        [lib.prepare(&a, &lib.tip("master"), Prepared::Merged), app.prepare(&b, &app.tip("master"), Prepared::Merged)];
    let alone = submit(server, Mode::ByGerrit, &targets[..1], &[&lib, &app]);
    assert!(
        matches!(&alone[0], Submitted::Refused { why } if why.contains("which was not tested with it")),
        "{alone:?}"
    );
    let early = submit(server, Mode::ByGerrit, &targets, &[&lib, &app]);
    assert!(
        matches!(&early[0], Submitted::Refused { why } if why.contains(&format!("Change {}", b.number))),
        "{early:?}"
    );
    assert_eq!(early[1], Submitted::NotTried);
    server.approve(&b);
    for before in [false, true] {
        let merged = submit(server, Mode::ByGerrit, &targets, &[&lib, &app]);
        assert_eq!((landed(&merged[0]).before, landed(&merged[1]).before), (before, before));
    }
    let submission = |name| gerrit.change(name).unwrap().submission.unwrap();
    assert_eq!(submission(&a), submission(&b));
}

/// A vote that is taken back is an event, and ends that the change may merge.
pub fn a_vote_withdrawn(server: &mut Server) {
    let project = server.project("withdrawn", "MERGE_IF_NECESSARY");
    let change = project.propose(None, "a", "a", "A", "");
    let mut listener = Listener::new(server, Place::default(), &[&project]);
    server.approve(&change);
    listener.hear("comment-added", &change, "Verified+2");
    server.gerrit().change(&change).unwrap().can_merge(&labels(&[])).unwrap();
    server.rest(
        "admin",
        "POST",
        &format!("changes/{}/reviewers/core/votes/Workflow/delete", change.number),
        &json!({}),
    );
    let deleted = listener.hear("vote-deleted", &change, "Removed Workflow+1");
    assert_eq!(deleted.reviewer.as_ref().unwrap().username.as_deref(), Some("core"));
    assert_eq!((deleted.actor.as_ref().unwrap().username.as_deref(), deleted.reading().account), (Some("admin"), None));
    let why = server.gerrit().change(&change).unwrap().can_merge(&labels(&["Verified"])).unwrap_err();
    assert!(matches!(&why, NotMergeable::Requirement { name, .. } if name == "Workflow"), "{why}");
    server.review("core", &change, &json!({"labels": {"Code-Review": 0}}));
    let withdrawn = listener.hear("comment-added", &change, "-Code-Review");
    let vote = withdrawn.votes.iter().find(|vote| vote.label == "Code-Review").unwrap();
    assert_eq!((vote.value.as_str(), vote.old_value.as_deref()), ("0", Some("2")));
}

/// Closures, Depends-On both ways, stacks, branches.
pub fn facts(server: &mut Server) {
    let (lib, app) =
        (server.project("facts-lib", "MERGE_IF_NECESSARY"), server.project("facts-app", "MERGE_IF_NECESSARY"));
    let gerrit = server.gerrit();
    let needed = lib.propose(None, "a", "a", "Needed", "");
    let id = gerrit.change(&needed).unwrap().change_id;
    let near = needed.number * 10 + 1;
    let named = |text: String| app.propose(None, "n", &text, &format!("Needs\n\nDepends-On: {text}"), "");
    let by_long = named(server.url(&format!("c/{}/+/{}", lib.name, needed.number)));
    let by_short = named(server.url(&needed.number.to_string()));
    let by_id = named(id.clone());
    let by_host = named(format!("https://review.example.com/#/c/{}", needed.number));
    let other = named(server.url(&near.to_string()));
    let elsewhere = named("https://github.com/a/b/pull/1".to_owned());
    for change in [&by_long, &by_short, &by_id, &by_host] {
        let closure = gerrit.closure(std::slice::from_ref(change), false).unwrap();
        assert_eq!(closure.changes.len(), 2, "{closure:?}");
        assert_eq!(closure.changes[0].depends_on, std::slice::from_ref(&needed));
    }
    let lonely = gerrit.closure(&[other.clone(), elsewhere.clone()], false).unwrap();
    assert_eq!(lonely.changes[0].not_found, [server.url(&near.to_string())]);
    assert_eq!(lonely.changes[1].elsewhere, ["https://github.com/a/b/pull/1"]);
    let who: BTreeSet<_> =
        gerrit.named_by(&gerrit.change(&needed).unwrap()).unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(who, BTreeSet::from([by_long, by_short, by_id, by_host]));

    let bottom = app.propose(None, "s", "1", "Stack one", "");
    let bottom_commit = app.head();
    let middle = app.propose(Some(&bottom_commit), "s", "2", "Stack two", "");
    let top = app.propose(Some(&app.head()), "s", "3", "Stack three", "");
    let bottom_id = gerrit.change(&bottom).unwrap().change_id;
    app.push(None, "s", "1b", &format!("Stack one again\n\nChange-Id: {bottom_id}\n"), "");
    let closure = gerrit.closure(std::slice::from_ref(&top), false).unwrap();
    let needs: Vec<_> = closure.changes.iter().map(|one| (one.change.name.number, one.git_needs.clone())).collect();
    assert_eq!(needs[0], (top.number, vec![(middle.clone(), 1)]));
    assert_eq!(needs[1], (middle.number, vec![(bottom.clone(), 1)]), "patchset 1, although 2 is the current one");
    assert_eq!((needs.len(), closure.changes[2].change.patchset), (3, 2));
    assert_eq!(gerrit.changes_by_commit(&bottom_commit).unwrap()[0].name, bottom);
    assert_eq!(gerrit.open_changes(&app.name).unwrap().len(), 9);
    assert!(gerrit.mergeable(&top).unwrap());

    let nowhere = ChangeName { project: app.name.clone(), number: 9_999_999 };
    assert_eq!(gerrit.change(&nowhere).unwrap_err().code(), "missing");
    assert_eq!(gerrit.change_by_number(9_999_999).unwrap_err().code(), "not-found-now");
    assert_eq!(gerrit.closure(std::slice::from_ref(&nowhere), false).unwrap().missing, [nowhere]);
    assert_eq!(gerrit.branch(&app.name, "none").unwrap(), None);
    assert_eq!(
        gerrit.branches(&app.name).unwrap(),
        [Ref { name: "refs/heads/master".to_owned(), revision: app.tip("master") }]
    );
    assert_eq!(
        (gerrit.default_branch(&app.name).unwrap().as_str(), gerrit.tags(&app.name).unwrap()),
        ("master", vec![])
    );
    assert!(gerrit.capabilities().unwrap().contains("streamEvents"));
    assert_eq!(gerrit.access(&app.name, "refs/heads/master", "push", "ci").unwrap(), Access::CannotAsk);
    let admin = Gerrit::new(server.config("admin")).unwrap();
    assert_eq!(admin.access(&app.name, "refs/heads/master", "push", "ci").unwrap(), Access::Allowed);
    assert_eq!(admin.access(&app.name, "refs/heads/master", "push", "dev").unwrap(), Access::Denied);
    assert_eq!(gerrit.permitted_votes(&top).unwrap()["Verified"], [-2, -1, 0, 1, 2]);
    let mut wrong = server.config("ci");
    std::fs::write(&wrong.password_file, "wrong\n").unwrap();
    assert_eq!(Gerrit::new(wrong.clone()).unwrap().change(&top).unwrap_err().code(), "unauthorized");
    wrong = server.config("ci");
    wrong.base_url = "http://127.0.0.1:9/".parse().unwrap();
    assert_eq!(Gerrit::new(wrong).unwrap().change(&top).unwrap_err().code(), "unreachable");
}

/// What Gerrit would refuse does not hold back the message, and nothing is told twice.
pub fn reports_that_are_refused(server: &mut Server) {
    let project = server.project("refused", "MERGE_IF_NECESSARY");
    let gerrit = server.gerrit();
    let change = project.propose(None, "a", "a\n", "A", "");
    let known = gerrit.change(&change).unwrap();
    let messages = || -> Vec<(String, String)> {
        let all = server.rest("ci", "GET", &format!("changes/{}/messages", change.number), &json!(null));
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        all.as_array().unwrap().iter().map(|one| (text(&one["tag"]), text(&one["message"]))).collect()
    };
    let mixed = report(&known, "mixed", "Told all the same.", &[("Verified", 1), ("Code-Review", 2)]);
    let told = gerrit.report(&mixed).unwrap();
    assert_eq!(told.votes, BTreeMap::from([("Verified".to_owned(), 1)]));
    assert!(told.votes_not_given["Code-Review"].contains("restricted"), "{told:?}");
    let count = messages().len();
    gerrit.report(&mixed).unwrap();
    assert_eq!(messages().len(), count, "told once: {:?}", messages());
    let unknown = gerrit.report(&report(&known, "unknown", "m", &[("Verified", 7), ("Nonsense", 1)])).unwrap();
    assert_eq!(unknown.votes_not_given.len(), 2, "{unknown:?}");
    let mut beyond = report(&known, "beyond", "A comment behind the end.", &[("Verified", -1)]);
    let place = CommentPlace::Range { start_line: 9, start_character: 0, end_line: 8, end_character: 0 };
    beyond.comments.push(InlineComment { file: "a".to_owned(), place, message: "m".to_owned(), unresolved: false });
    assert_eq!(gerrit.report(&beyond).unwrap().votes["Verified"], -1);
    let mut long = report(&known, "long", &"é".repeat(20_000), &[]);
    long.short_message = Some("The short form.".to_owned());
    assert!(gerrit.report(&long).unwrap().shortened);
    let cut = gerrit.report(&report(&known, "cut", &"😀".repeat(20_000), &[])).unwrap();
    assert!(cut.shortened);
    let last = messages().pop().unwrap();
    assert!(last.0.ends_with("~cut") && last.1.ends_with("too long for Gerrit.)"));
    let outdated = report(&known, "outdated", "Of the older patchset.", &[("Verified", 2)]);
    project.push(None, "a", "b", &format!("A\n\nChange-Id: {}\n", known.change_id), "");
    let told = gerrit.report(&outdated).unwrap();
    assert!(told.votes.is_empty() && told.votes_not_given["Verified"].contains("not the current one"), "{told:?}");
    assert!(messages().last().unwrap().1.contains("Of the older patchset."));
}

/// Gerrit is stopped, and killed, and much happens while one listener is away: it is told everything that another heard,
/// under the same ids and with the same contents.
pub fn events_missed(server: &mut Server) {
    let (away, present, changes, master) = {
        let project = server.project("missed", "REBASE_ALWAYS");
        let mut away = Listener::new(server, Place::default(), &[&project]);
        let mut present = Listener::new(server, Place::default(), &[&project]);
        let first = project.propose(None, "a", "a\n", "First", "%topic=t1");
        away.hear("patchset-created", &first, "");
        present.hear("patchset-created", &first, "");
        let away = (away.place(), away.by_id());
        let changes = much(server, &project, &first, &mut present);
        (away, present, changes, project)
    };
    let project = master.name.clone();
    drop(master);
    server.order("stop");
    let mut present = present;
    until("the stream to end", || {
        present.listen();
        (!present.listens()).then_some(())
    });
    server.order("start");
    let mut back = Listener::resume(server, away.0, std::slice::from_ref(&project));
    for change in &changes {
        back.hear("comment-added", change, "last word");
    }
    settle(&mut back);
    compare(&away.1, &present, &back);

    // The server dies in the middle, with the stream of the one and the other.
    let mut third = Listener::resume(server, back.place(), &[project]);
    server.review("core", &changes[0], &json!({"message": "before the crash"}));
    server.order("kill");
    server.order("start");
    server.review("core", &changes[0], &json!({"message": "after the crash"}));
    for listener in [&mut back, &mut third] {
        listener.hear("comment-added", &changes[0], "before the crash");
        listener.hear("comment-added", &changes[0], "after the crash");
        listener.by_id();
    }
}

/// Something of every kind, while the one listens and the other does not.
fn much(server: &Server, project: &Project<'_>, first: &ChangeName, present: &mut Listener) -> Vec<ChangeName> {
    let path = |rest: &str| format!("changes/{}/{rest}", first.number);
    let level = json!({"/PATCHSET_LEVEL": [{"message": "recheck"}, {"message": "please"}]});
    server.review("core", first, &json!({"message": "looks good", "labels": {"Code-Review": 2, "Workflow": 1}}));
    server.review("dev", first, &json!({"comments": level}));
    server.review("core", first, &json!({"message": "m", "comments": level, "labels": {"Workflow": -1}}));
    server.review("ci", first, &json!({"comments": {"a": [{"line": 1, "message": "inline"}]}}));
    // The same vote again leaves a commit and no message.
    server.review("core", first, &json!({"labels": {"Workflow": -1}}));
    server.review("core", first, &json!({"labels": {"Workflow": 0}}));
    server.rest("core", "POST", &path("hashtags"), &json!({"add": ["a", "b"]}));
    server.rest("core", "POST", &path("hashtags"), &json!({"add": ["c"], "remove": ["a"]}));
    server.rest("dev", "PUT", &path("topic"), &json!({"topic": "t2"}));
    server.rest("dev", "POST", &path("wip"), &json!({}));
    server.rest("dev", "POST", &path("ready"), &json!({}));
    server.rest("admin", "POST", &path("reviewers/core/votes/Code-Review/delete"), &json!({}));
    server.rest("dev", "POST", &path("abandon"), &json!({"message": "no more"}));
    server.rest("dev", "POST", &path("restore"), &json!({"message": "again"}));
    let id = server.gerrit().change(first).unwrap().change_id;
    server.review("core", first, &json!({"labels": {"Code-Review": 1}}));
    project.push(None, "a", "b\n", &format!("First\n\nChange-Id: {id}\n"), "");
    server.review("core", first, &json!({"message": "what is left of the votes"}));
    let second = project.propose(None, "b", "b", "Second", "");
    let third = project.propose(None, "c", "c", "Third", "");
    for change in [&second, &third] {
        server.approve(change);
        server.rest("ci", "POST", &format!("changes/{}/submit", change.number), &json!({}));
    }
    project.move_branch("outside");
    let branches = format!("projects/{}/branches/stable%2F1", project.name.replace('/', "%2F"));
    server.rest("admin", "PUT", &branches, &json!({"revision": "master"}));
    let changes = vec![first.clone(), second, third];
    for change in &changes {
        server.review("core", change, &json!({"message": "the last word"}));
        present.hear("comment-added", change, "last word");
    }
    settle(present);
    changes
}

/// Waits until what is held back to be paired has come, and nothing more does.
fn settle(listener: &mut Listener) {
    let made = |listener: &Listener| listener.heard.iter().any(|heard| heard.id.contains("refs/heads/stable/1"));
    until("the new branch", || {
        listener.listen();
        made(listener).then_some(())
    });
    let begun = std::time::Instant::now();
    until("what waits for its change", || {
        listener.listen();
        (begun.elapsed() > Duration::from_secs(12)).then_some(())
    });
}

/// The one who was away knows what the one who listened knows, with what is not fetched listed here.
fn compare(before: &BTreeMap<String, Reading>, present: &Listener, back: &Listener) {
    let (heard, fetched) = (present.by_id(), back.by_id());
    let mut differ = Vec::new();
    let mut compared = 0;
    for (id, live) in &heard {
        // A topic set by the push itself leaves no message; whoever was away compares branches, and sees only where they
        // are now.
        let skipped = live.kind == "topic-changed" || id.contains("/refs/heads/master/");
        if before.contains_key(id) || skipped || live.change.is_none() && live.kind != "ref-updated" {
            continue;
        }
        let Some(late) = fetched.get(id) else {
            differ.push(format!("{id} was not fetched: {live:?}"));
            continue;
        };
        compared += 1;
        let (mut live, mut late) = (live.clone(), late.clone());
        for read in [&mut live, &mut late] {
            // Comments of one reply on the patchset have no order afterwards.
            read.comment = read.comment.take().map(|text| {
                let mut lines: Vec<&str> = text.lines().collect();
                lines.sort_unstable();
                lines.join("\n")
            });
            // What the change is now: the stream says what it was then.
            read.topic = None;
            read.votes.sort_by(|one, other| one.label.cmp(&other.label));
            for account in read.account.iter_mut() {
                account.number = None;
            }
            // Of a ref that is found to have moved nobody knows who moved it.
            if read.kind == "ref-updated" {
                read.account = None;
            }
        }
        if live != late {
            differ.push(format!("{id}:\n  told    {live:?}\n  fetched {late:?}"));
        }
    }
    for id in fetched.keys().filter(|id| !heard.contains_key(*id) && !id.contains("/refs/heads/master/")) {
        differ.push(format!("{id} was fetched, and never told"));
    }
    assert!(differ.is_empty(), "{} of {compared}:\n{}", differ.len(), differ.join("\n"));
    assert!(compared >= 25, "only {compared} events were compared");
    println!("{compared} events fetched as they were told");
}

impl Listener {
    /// As after a restart of gatelog.
    fn resume(server: &Server, place: Place, projects: &[String]) -> Listener {
        let settings =
            IntakeSettings { projects: projects.to_vec(), settle: Duration::from_secs(2), ..IntakeSettings::default() };
        Listener { intake: Intake::new(server.gerrit(), place, settings), heard: Vec::new() }
    }

    fn listens(&self) -> bool {
        self.intake.listens()
    }
}
