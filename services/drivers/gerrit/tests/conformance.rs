//! What Zuul 14's own Gerrit driver reads from the events and changes of a real Gerrit, and what this driver does.
//!
//! The answers of Zuul's driver lie outside the checkout, where they were made; without them only the driver's own
//! fixtures are read: `tests/fixtures/events.jsonl`, lines that a real Gerrit 3.13.5 printed.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use gatelog_driver_gerrit::{
    Account, Change, ChangeName, Event, EventKind, NotMergeable, Reading, SubmitRequirement, read_line,
};
use regex::Regex;
use serde_json::{Value, json};

/// Where this driver reads an event otherwise than Zuul's: (what of which kind, why).
const DIFFERENCES: &[(&str, &str)] = &[];

fn samples() -> Option<PathBuf> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/peer/gerrit/samples");
    place.is_dir().then_some(place)
}

/// A trigger's entry, as much of it as asks for the event itself. An account that is not there fits everything, as in Zuul.
fn takes(entry: &Value, read: &Reading) -> bool {
    let fits = |pattern: &str, text: &str| Regex::new(pattern).unwrap().is_match(text);
    let begins = |pattern: &str, text: &str| fits(&format!("^(?:{pattern})"), text);
    let vote = |wanted: &Value, changed: bool| {
        let wanted = wanted.as_array().unwrap().iter().flat_map(|one| one.as_object().unwrap());
        wanted.clone().count() > 0
            && wanted.into_iter().all(|(label, value)| {
                let value = value.to_string();
                read.votes.iter().any(|vote| {
                    vote.description == *label && vote.value == value && (!changed || vote.old_value.is_some())
                })
            })
    };
    let account = |wanted: &Value, of: fn(&Account) -> Option<&str>| match read.account.as_ref().and_then(of) {
        Some(text) => begins(wanted.as_str().unwrap(), text),
        None => true,
    };
    let tag = |wanted: &Value, tags: &Option<Vec<String>>| {
        let wanted = wanted.as_str().unwrap();
        tags.as_ref().is_some_and(|tags| tags.iter().any(|tag| tag == wanted))
    };
    entry.as_object().unwrap().iter().all(|(name, wanted)| match name.as_str() {
        "event" => wanted.as_str() == Some(&read.kind),
        "comment" => read.comment.as_ref().is_some_and(|comment| fits(wanted.as_str().unwrap(), comment)),
        "approval" => vote(wanted, false),
        "approval-change" => vote(wanted, true),
        "username" => account(wanted, |account| account.username.as_deref()),
        "email" => account(wanted, |account| account.email.as_deref()),
        "added" => tag(wanted, &read.added),
        "removed" => tag(wanted, &read.removed),
        "branch" => read.branch.as_ref().is_some_and(|branch| begins(wanted.as_str().unwrap(), branch)),
        "ref" => read.git_ref.as_ref().is_some_and(|name| begins(wanted.as_str().unwrap(), name)),
        "ignore-deletes" => true,
        other => panic!("no such attribute of a trigger is known: {other}"),
    }) && !(read.deletes() && entry["ignore-deletes"] != json!(false))
}

/// The reading in the form in which Zuul's was written down.
fn as_zuul_writes(read: &Reading, filters: &[Value]) -> Value {
    let votes: Vec<Value> = read
        .votes
        .iter()
        .map(|vote| {
            let mut one = json!({"type": vote.label, "description": vote.description, "value": vote.value});
            if let Some(old) = &vote.old_value {
                one["oldValue"] = json!(old);
            }
            one
        })
        .collect();
    let taken: Vec<usize> = (0..filters.len()).filter(|at| takes(&filters[*at], read)).collect();
    json!({
        "type": read.kind, "project": read.project, "branch": read.branch, "ref": read.git_ref,
        "change": read.change.map(|number| number.to_string()), "patchset": read.patchset.map(|number| number.to_string()),
        "old": read.old, "new": read.new, "account": read.account.as_ref().and_then(|account| account.username.clone()),
        "comment": read.comment, "approvals": votes, "added": read.added, "removed": read.removed,
        "branch_ref": read.branch_moved, "default_branch": read.default_branch_changed, "taken_by": taken,
    })
}

#[test]
fn events_are_read_as_zuul_reads_them() {
    let Some(samples) = samples() else {
        println!("SKIPPED events as Zuul's driver reads them: its answers are not beside this checkout");
        return;
    };
    for version in ["3.10.2", "3.13.5"] {
        let lines = fs::read_to_string(samples.join(format!("events-{version}.jsonl"))).unwrap();
        let zuul: Value =
            serde_json::from_slice(&fs::read(samples.join(format!("zuul-reads-{version}.json"))).unwrap()).unwrap();
        let filters = zuul["filters"].as_array().unwrap();
        let answers = zuul["events"].as_array().unwrap();
        assert_eq!((filters.len(), lines.lines().count()), (14, answers.len()));
        let (mut differ, mut fields) = (Vec::new(), 0);
        for (line, answer) in lines.lines().zip(answers) {
            let ours = as_zuul_writes(&read_line(line.as_bytes()).unwrap().reading(), filters);
            for (name, theirs) in answer.as_object().unwrap() {
                fields += 1;
                let what = format!("{name} of {}", answer["type"].as_str().unwrap());
                if ours[name] != *theirs && !DIFFERENCES.iter().any(|(known, _)| *known == what) {
                    differ.push(format!("{what}: Zuul {theirs}, here {}\n    {line}", ours[name]));
                }
            }
        }
        assert!(
            differ.is_empty(),
            "{} of {fields} differ:\n{}",
            differ.len(),
            differ[..differ.len().min(10)].join("\n")
        );
        println!("{version}: {} events, {fields} fields, {} triggers as Zuul reads them", answers.len(), filters.len());
    }
}

/// A change of which Zuul wrote down what its verdict needs. What the requirements demand is how that site was made.
fn change(read: &Value) -> Change {
    let text = |name: &str| read[name].as_str().unwrap_or_default().to_owned();
    let requirement = |(name, status): (&String, &Value)| SubmitRequirement {
        name: name.clone(),
        status: status.as_str().unwrap().to_owned(),
        expression: format!("label:{name}=MAX AND -label:{name}=MIN"),
    };
    Change {
        name: ChangeName { project: text("project"), number: text("number").parse().unwrap() },
        branch: text("branch"),
        change_id: text("id"),
        url: text("url"),
        patchset: text("patchset").parse().unwrap(),
        commit: text("commit"),
        git_ref: text("ref"),
        parents: Vec::new(),
        message: String::new(),
        files: BTreeSet::new(),
        files_truncated: false,
        commentable_files: BTreeSet::new(),
        status: text("status"),
        wip: read["wip"].as_bool().unwrap(),
        topic: None,
        hashtags: Vec::new(),
        owner: Account::default(),
        updated: String::new(),
        votes: Vec::new(),
        missing_labels: read["missing_labels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|label| label.as_str().unwrap().to_owned())
            .collect(),
        submit_requirements: read["submit_requirements"].as_object().unwrap().iter().map(requirement).collect(),
        mergeable: None,
        submit_type: None,
        meta: None,
        submission: None,
    }
}

#[test]
fn what_may_be_merged_is_what_zuul_says() {
    let Some(samples) = samples() else {
        println!("SKIPPED verdicts on merging as Zuul's driver gives them: its answers are not beside this checkout");
        return;
    };
    let mut verdicts = 0;
    for version in ["3.10.2", "3.13.5"] {
        let zuul: Value =
            serde_json::from_slice(&fs::read(samples.join(format!("zuul-reads-{version}.json"))).unwrap()).unwrap();
        let changes = zuul["changes"].as_array().unwrap();
        assert_eq!(changes.len(), 21);
        for read in changes {
            for (sets, labels) in
                [("none", &[][..]), ("Verified", &["Verified"]), ("all", &["Verified", "Workflow", "Code-Review"])]
            {
                let sets_votes: BTreeSet<String> = labels.iter().map(|label| (*label).to_owned()).collect();
                let theirs = &read["can_merge"][sets];
                let ours = match change(read).can_merge(&sets_votes) {
                    Ok(()) => json!(true),
                    Err(NotMergeable::MissingLabels(labels)) => {
                        json!(format!("missing labels: {{'{}'}}", labels.join("', '")))
                    }
                    // Both name the first that is not met; the order was lost when Zuul's answer was written down.
                    Err(NotMergeable::Requirement { .. }) => json!("submit requirement: {'name': '"),
                    Err(other) => json!(other.to_string()),
                };
                let agrees = match (&ours, theirs) {
                    (Value::String(ours), Value::String(theirs)) => theirs.starts_with(ours),
                    (ours, theirs) => ours == theirs,
                };
                let of = format!("{version}, change {}, a pipeline that votes {sets}", read["number"]);
                assert!(agrees, "{of}: Zuul {theirs}, here {ours}");
                verdicts += 1;
            }
        }
    }
    println!("{verdicts} verdicts as Zuul's");
}

fn fixtures() -> Vec<Event> {
    let lines = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/events.jsonl")).unwrap();
    lines.lines().map(|line| read_line(line.as_bytes()).unwrap()).collect()
}

#[test]
fn every_kind_of_event_of_a_real_gerrit_is_read() {
    let mut by_kind: BTreeMap<String, Vec<Event>> = BTreeMap::new();
    for event in fixtures() {
        assert!(!matches!(event.kind, EventKind::Other(_)), "{event:?}");
        assert!(event.created.is_some() && event.project.is_some(), "{event:?}");
        by_kind.entry(event.kind.to_string()).or_default().push(event);
    }
    let kinds: Vec<&str> = by_kind.keys().map(String::as_str).collect();
    assert_eq!(
        kinds,
        [
            "change-abandoned",
            "change-merged",
            "change-restored",
            "comment-added",
            "hashtags-changed",
            "patchset-created",
            "project-created",
            "project-head-updated",
            "ref-updated",
            "topic-changed",
            "vote-deleted",
            "wip-state-changed",
        ]
    );
    let only = |kind: &str| &by_kind[kind][0];
    let who = |event: &Event| event.actor.as_ref().and_then(|account| account.username.clone()).unwrap_or_default();
    for (kind, actor, patchset) in [
        ("patchset-created", "dev", true),
        ("change-merged", "ci", true),
        ("change-abandoned", "dev", true),
        ("hashtags-changed", "core", false),
        ("topic-changed", "dev", false),
        ("wip-state-changed", "dev", true),
        ("vote-deleted", "core", true),
    ] {
        let event = only(kind);
        assert_eq!((who(event).as_str(), event.patchset.is_some()), (actor, patchset), "{kind}");
        assert_eq!(event.reading().account.is_none(), ["wip-state-changed", "vote-deleted"].contains(&kind), "{kind}");
    }
    assert_eq!(only("hashtags-changed").reading().added, Some(vec!["urgent".to_owned()]));
    assert_eq!(only("project-head-updated").reading().branch.as_deref(), Some("main"));
    assert!(only("change-merged").new_rev.is_some());
    let withdrawn = by_kind["comment-added"]
        .iter()
        .find(|event| event.comment.as_deref() == Some("Patch Set 1: -Code-Review"))
        .unwrap();
    let vote = withdrawn.votes.iter().find(|vote| vote.label == "Code-Review").unwrap();
    assert_eq!((vote.value.as_str(), vote.old_value.as_deref()), ("0", Some("1")));
    let refs = &by_kind["ref-updated"];
    assert!(refs.iter().any(Event::is_meta) && refs.iter().any(|event| event.reading().deletes()));
    assert!(refs.iter().all(
        |event| event.reading().branch_moved == event.ref_update.as_ref().unwrap().name.starts_with("refs/heads/")
    ));
}
