//! Messages as a real Gerrit kept them, and the events that its stream told of at the same time.

use super::*;

fn account(number: u64, name: &str) -> Value {
    serde_json::json!({"_account_id": number, "name": name, "email": format!("{name}@example.com"), "username": name})
}

/// (second, author, tag, patchset, text); the id is forty times the last digit of the second.
type Said<'t> = (u64, (u64, &'t str), Option<&'t str>, u32, &'t str);

fn change(messages: &[Said<'_>]) -> Value {
    let messages: Vec<Value> = messages
        .iter()
        .map(|(second, (number, name), tag, patchset, text)| {
            let mut message = serde_json::json!({
                "id": second.to_string().repeat(40)[..40], "date": format!("2026-11-27 18:31:0{second}.000000000"),
                "_revision_number": patchset, "author": account(*number, name), "message": text,
                "accounts_in_message": if text.contains("<GERRIT") { vec![account(3, "core")] } else { Vec::new() },
            });
            if let Some(tag) = tag {
                message["tag"] = Value::from(format!("{OWN}{tag}"));
            }
            message
        })
        .collect();
    let revision = |number: u32| serde_json::json!({"_number": number, "ref": format!("refs/changes/07/7/{number}"), "kind": "REWORK"});
    serde_json::json!({
        "project": "acme/lib", "branch": "master", "_number": 7, "change_id": "I1", "status": "NEW", "topic": "t2",
        "owner": account(2, "dev"), "labels": {"Code-Review": {}, "Verified": {}, "Workflow": {}},
        "revisions": {"a".repeat(40): revision(1), "b".repeat(40): revision(2)}, "messages": messages,
    })
}

fn votes(event: &Event) -> Vec<String> {
    event
        .votes
        .iter()
        .map(|vote| format!("{} {} {}", vote.label, vote.value, vote.old_value.as_deref().unwrap_or("=")))
        .collect()
}

const CORE: (u64, &str) = (3, "core");
const DEV: (u64, &str) = (2, "dev");

#[test]
fn votes_are_what_they_were_at_each_message() {
    let change = change(&[
        (1, DEV, Some("newPatchSet"), 1, "Uploaded patch set 1."),
        (2, CORE, None, 1, "Patch Set 1: Code-Review+2 Workflow+1\n\nfine\nrecheck"),
        (3, CORE, None, 1, "Patch Set 1: -Code-Review\n\nCode-Review+2 in the text is no vote"),
        (4, CORE, Some("deleteVote"), 1, "Removed Workflow+1 by <GERRIT_ACCOUNT_3>\n"),
        (5, CORE, None, 1, "Patch Set 1: Code-Review+1 Verified-1"),
        (
            6,
            DEV,
            Some("newPatchSet"),
            2,
            "Uploaded patch set 2: Commit message was updated.\n\nCopied Votes:\n* Verified-1 (copy \
            condition: \"**changekind:NO_CODE_CHANGE**\")\n\nOutdated Votes:\n* Code-Review+1 (copy condition: \"is:MIN\")\n",
        ),
        (7, CORE, None, 2, "Patch Set 2: Workflow-1"),
        (8, DEV, Some("abandon"), 2, "Abandoned"),
        (9, CORE, None, 2, "Patch Set 2:\n\non a closed change"),
    ]);
    let caught = events_of(&change, None, &After::Time(0)).unwrap();
    let told: Vec<(String, Vec<String>)> =
        caught.iter().map(|one| (one.event.kind.to_string(), votes(&one.event))).collect();
    let expected: [(&str, &[&str]); 9] = [
        ("patchset-created", &[]),
        ("comment-added", &["Code-Review 2 0", "Verified 0 =", "Workflow 1 0"]),
        ("comment-added", &["Code-Review 0 2", "Verified 0 =", "Workflow 1 ="]),
        ("vote-deleted", &["Workflow 0 1"]),
        ("comment-added", &["Code-Review 1 0", "Verified -1 0", "Workflow 0 ="]),
        ("patchset-created", &[]),
        ("comment-added", &["Code-Review 0 =", "Verified -1 =", "Workflow -1 0"]),
        ("change-abandoned", &[]),
        ("comment-added", &[]),
    ];
    assert_eq!(told.len(), expected.len());
    for (told, (kind, votes)) in told.iter().zip(expected) {
        assert_eq!((told.0.as_str(), told.1.iter().map(String::as_str).collect::<Vec<_>>()), (kind, votes.to_vec()));
    }
    let deleted = &caught[3].event;
    assert_eq!(deleted.comment.as_deref(), Some("Removed Workflow+1 by core <core@example.com>\n"));
    assert_eq!(deleted.reviewer.as_ref().unwrap().username.as_deref(), Some("core"));
    assert_eq!(caught[6].event.patchset.as_ref().unwrap().git_ref, "refs/changes/07/7/2");
    assert_eq!(caught[6].meta, "7".repeat(40));
}

#[test]
fn only_what_is_behind_the_known_is_told() {
    let change = change(&[
        (1, DEV, Some("newPatchSet"), 1, "Uploaded patch set 1."),
        (2, CORE, None, 1, "Patch Set 1:\n\na"),
        (2, CORE, None, 1, "Patch Set 1:\n\nb"),
        (3, DEV, Some("rebaseOnBehalfOfUploader"), 1, "no event"),
        (4, CORE, Some("abandon"), 1, "Abandoned\n\nno more"),
    ]);
    let at = seconds("2026-11-27 18:31:02.000000000").unwrap();
    let told = |after: &After| -> Vec<String> {
        events_of(&change, None, after).unwrap().iter().map(|one| one.event.kind.to_string()).collect()
    };
    let meta = |digit: &str| After::Meta { meta: digit.repeat(40), at };
    assert_eq!(told(&meta("1")), ["comment-added", "comment-added", "change-abandoned"]);
    assert_eq!(told(&meta("4")), [""; 0]);
    assert_eq!(
        told(&meta("9")),
        ["comment-added", "comment-added", "change-abandoned"],
        "by time, where no message has it"
    );
    assert_eq!(told(&After::Time(at + 2)), ["change-abandoned"]);
    assert_eq!(date(at), "2026-11-27 18:31:02");
}

#[test]
fn the_texts_of_gerrits_own_messages_are_read() {
    let change = change(&[
        (1, DEV, Some("setHashtag"), 1, "Hashtag added: c\nHashtags removed: a, b"),
        (2, DEV, Some("setTopic"), 1, "Topic changed from t1 to t2"),
        (3, DEV, Some("setTopic"), 1, "Topic t2 removed"),
        (4, DEV, Some("setTopic"), 1, "Topic set to t3"),
        (5, DEV, Some("setWorkInProgress"), 1, "Set Work In Progress\n\nlater"),
        (6, DEV, Some("restore"), 1, "Restored\n\nagain"),
        (
            7,
            DEV,
            Some("merged"),
            1,
            "Change has been successfully cherry-picked as 0123456789012345678901234567890123456789",
        ),
    ]);
    let caught = events_of(&change, None, &After::Time(0)).unwrap();
    assert_eq!(
        (caught[0].event.added.clone(), caught[0].event.removed.clone()),
        (vec!["c".to_owned()], vec!["a".to_owned(), "b".to_owned()])
    );
    let topics: Vec<_> = caught[1..4].iter().map(|one| one.event.old_topic.as_deref().unwrap()).collect();
    assert_eq!(topics, ["t1", "t2", ""]);
    assert!(caught[0].event.patchset.is_none() && caught[4].event.patchset.is_some());
    assert!(caught[4].event.change.as_ref().unwrap().wip);
    assert_eq!(caught[5].event.reason.as_deref(), Some("again"));
    assert_eq!(caught[6].event.new_rev.as_deref(), Some("0123456789012345678901234567890123456789"));
}

#[test]
fn a_reply_in_the_web_ui_is_the_comment_it_was() {
    let change = change(&[
        (1, CORE, None, 1, "Patch Set 1: Code-Review+1\n\n(2 comments)\n\nunder"),
        (2, CORE, None, 1, "Patch Set 1:\n\n(1 comment)"),
    ]);
    assert!(needs_comments(&change));
    let comment = |second: u64, number: u64, text: &str| serde_json::json!({"author": account(number, "x"), "patch_set": 1, "message": text, "updated": format!("2026-11-27 18:31:0{second}.000000000")});
    let comments = serde_json::json!({
        "/PATCHSET_LEVEL": [comment(1, 3, "recheck"), comment(1, 3, "two"), comment(1, 2, "another's"), comment(3, 3, "later")],
        "a.txt": [comment(2, 3, "inline")],
    });
    let caught = events_of(&change, Some(&comments), &After::Time(0)).unwrap();
    assert_eq!(caught[0].event.comment.as_deref(), Some("Patch Set 1:\n\nrecheck\ntwo"));
    assert_eq!(caught[1].event.comment.as_deref(), Some("Patch Set 1:\n\n(1 comment)"));
    // Two replies within a second: Gerrit's own word of which is whose.
    let mut tied = comments.clone();
    for (file, at, digit) in [("/PATCHSET_LEVEL", 0, "1"), ("/PATCHSET_LEVEL", 3, "1"), ("a.txt", 0, "2")] {
        tied[file][at]["change_message_id"] = Value::from(digit.repeat(40));
    }
    let caught = events_of(&change, Some(&tied), &After::Time(0)).unwrap();
    assert_eq!(caught[0].event.comment.as_deref(), Some("Patch Set 1:\n\nrecheck\nlater"));
}

#[test]
fn votes_are_taken_apart_whatever_the_label_is_called() {
    assert_eq!(label_and_value("Code-Review+2"), Some(("Code-Review", 2)));
    assert_eq!(label_and_value("Tier-1-2"), Some(("Tier-1", -2)));
    for word in ["", "-", "+2", "Code-Review", "Verified+", "Verified+x", "Verified+99999999999999999999"] {
        assert_eq!(label_and_value(word), None, "{word:?}");
    }
}
