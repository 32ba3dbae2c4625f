//! Which events a pipeline takes. Zuul: event filters.
//!
//! What a filter asks of an event stands in the event's attributes under the filter's own word: `comment`, `username`,
//! `email`, `action`, `label`, `state`, …, a text or a list of texts. Votes are in `approvals`, each with `label`,
//! `value` and, where it was changed, `old-value`; comments on a whole patchset in `patchset-comments`.

use std::collections::BTreeMap;

use gatelog_record::draft::gate::ChangeFacts;
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::{Timestamp, Value};
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::regexes::{Anchor, Pattern};

use crate::requirements::{meets, votes_fit};

/// What is known of the change that an event is about.
#[derive(Clone, Copy)]
pub(crate) struct Known<'k> {
    /// The change as it is now.
    pub facts: &'k ChangeFacts,
    /// Whether the event is about its current patchset.
    pub current: bool,
    /// The time.
    pub now: Timestamp,
}

/// Whether one of a pipeline's filters takes an event, about a change or none. An error says why none does.
pub(crate) fn takes(pipeline: &Pipeline, event: &ForgeEvent, known: Option<Known<'_>>) -> Result<(), String> {
    let filters = pipeline.filters(&event.connection);
    if filters.is_empty() {
        return Err(format!("it has no trigger for {}", event.connection));
    }
    let mut why = String::new();
    for filter in filters {
        match fits(filter, event, known) {
            Ok(()) => return Ok(()),
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

fn fits(filter: &BTreeMap<String, Value>, event: &ForgeEvent, known: Option<Known<'_>>) -> Result<(), String> {
    // Zuul: an event's name is an expression, too, and its end is free: `pull_request` takes reviews of one.
    if !Pipeline::events(filter).iter().any(|name| event.event.starts_with(name)) {
        return Err(format!("no trigger is for {}", event.event));
    }
    let told = |key: &str| event.attributes.as_map().and_then(|map| map.get(key));
    for (key, wanted) in filter {
        match key.as_str() {
            // A ref that is gone concerns no pipeline, whatever `ignore-deletes` says. `debug` asks for nothing.
            "event" | "ignore-deletes" | "debug" => {}
            "branch" => {
                let branch = event.branch.as_deref().unwrap_or_default();
                any_matches(key, wanted, branch, Anchor::Start)?;
            }
            "ref" => any_matches(key, wanted, &event.git_ref, Anchor::Start)?,
            // Zuul: searched in the whole comment, its head included.
            "comment" => {
                let of_patchset = texts_of(told("patchset-comments"));
                if !of_patchset.iter().any(|text| any_matches(key, wanted, text, Anchor::Anywhere).is_ok()) {
                    any_matches(key, wanted, text_of(told(key)), Anchor::Anywhere)?;
                }
            }
            "username" | "email" => any_matches(key, wanted, text_of(told(key)), Anchor::Anywhere)?,
            // Zuul: of the old word and the new one the new one counts.
            "comment_filter" | "username_filter" | "email_filter" => {
                let newer = key.trim_end_matches("_filter");
                if !filter.contains_key(newer) {
                    any_matches(newer, wanted, text_of(told(newer)), Anchor::Anywhere)?;
                }
            }
            "approval" | "approval-change" => {
                let votes = told("approvals").and_then(Value::as_list).unwrap_or_default();
                let is_new = |vote: &Value| key == "approval" || has_changed(vote);
                // Zuul: of a label that is named twice the last value counts.
                let labels: BTreeMap<&String, &Value> =
                    each_of(wanted).iter().filter_map(Value::as_map).flatten().collect();
                for (label, value) in labels {
                    let cast = |vote: &Value| {
                        has_label(vote, label) && vote_value(vote).is_some_and(|cast| fits_value(value, cast))
                    };
                    if !votes.iter().any(|vote| cast(vote) && is_new(vote)) {
                        return Err(format!("nobody voted {label} {value}"));
                    }
                }
            }
            "added" | "removed" => {
                let words = texts_of(told(key));
                if !words.iter().any(|word| any_matches(key, wanted, word, Anchor::Anywhere).is_ok()) {
                    return Err(format!("{key} {words:?} does not match"));
                }
            }
            // Zuul: of what a check is called only what asks for a check looks at it.
            "uuid" | "scheme" if event.event != "pending-check" => {}
            "uuid" => one_of(key, wanted, &texts_of(told("uuid")))?,
            "scheme" => one_of(key, wanted, &[text_of(told("uuid")).split(':').next().unwrap_or_default()])?,
            // Zuul: the old word of GitHub's for an action.
            "action" if wanted.as_str() == Some("requested") => {
                one_of(key, &"rerequested".into(), &texts_of(told(key)))?;
            }
            "action" | "label" | "unlabel" | "labels" | "unlabels" | "state" | "tag" => {
                one_of(key, wanted, &texts_of(told(key)))?;
            }
            "status" | "check" => any_matches(key, wanted, text_of(told(key)), Anchor::Whole)?,
            "permission" => {
                let (has, least) = (text_of(told(key)), text_of(Some(wanted)));
                if permission(has) < permission(least) {
                    return Err(format!("the permission {has:?} is less than {least:?}"));
                }
            }
            // Zuul: a ref has no votes and nothing else of a change, so it fits neither.
            "require" | "reject" | "require-approval" | "reject-approval" | "require-status" => {
                let known = known.ok_or_else(|| format!("its trigger asks for {key:?}, and this is no change"))?;
                let need = key.starts_with("require");
                // Zuul: of the old word and the new one the new one counts.
                match key.split_once('-') {
                    Some((newer, _)) if filter.contains_key(newer) => {}
                    Some((_, "approval")) => votes_fit(wanted, need, known)?,
                    Some((_, old)) => meets(&BTreeMap::from([(old.to_owned(), wanted.clone())]), need, known)?,
                    None => wanted.as_map().map_or(Ok(()), |asked| meets(asked, need, known))?,
                }
            }
            other => return Err(format!("its trigger asks for {other:?}, which {} has not", event.event)),
        }
    }
    Ok(())
}

pub(crate) fn text_of(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

/// A text, or the texts of a list.
pub(crate) fn texts_of(value: Option<&Value>) -> Vec<&str> {
    value.map(each_of).unwrap_or_default().iter().filter_map(Value::as_str).collect()
}

/// The items of a list, or the value itself as the only one.
pub(crate) fn each_of(value: &Value) -> &[Value] {
    value.as_list().unwrap_or(std::slice::from_ref(value))
}

/// Whether a vote is for a label. Zuul: it is called exactly so.
pub(crate) fn has_label(vote: &Value, label: &str) -> bool {
    text_of(vote.as_map().and_then(|map| map.get("label"))) == label
}

pub(crate) fn vote_value(vote: &Value) -> Option<i64> {
    number(vote, "value")
}

/// Whether a vote was another before. Zuul: one that nobody had cast was none.
fn has_changed(vote: &Value) -> bool {
    number(vote, "old-value").is_some_and(|old| vote_value(vote) != Some(old))
}

fn number(vote: &Value, key: &str) -> Option<i64> {
    match vote.as_map()?.get(key)? {
        Value::Int(value) => Some(*value),
        _ => None,
    }
}

pub(crate) fn fits_value(wanted: &Value, cast: i64) -> bool {
    each_of(wanted).iter().any(|one| match one {
        Value::Int(value) => *value == cast,
        Value::Str(text) => text.parse() == Ok(cast),
        _ => false,
    })
}

/// How much somebody may do who may do this. Zuul: each may do what those before may.
pub(crate) fn permission(word: &str) -> Option<usize> {
    ["read", "write", "admin"].iter().position(|one| *one == word)
}

pub(crate) fn any_matches(key: &str, wanted: &Value, text: &str, anchor: Anchor) -> Result<(), String> {
    if each_of(wanted).iter().filter_map(|one| pattern(one, anchor)).any(|pattern| pattern.matches(text)) {
        return Ok(());
    }
    Err(format!("{key} {text:?} does not match"))
}

/// Whether one of the words that are wanted is told, as it is written.
fn one_of(key: &str, wanted: &Value, told: &[&str]) -> Result<(), String> {
    if texts_of(Some(wanted)).iter().any(|word| told.contains(word)) {
        return Ok(());
    }
    Err(format!("{key} {told:?} is not what is asked for"))
}

/// Whether one of some patterns fits the beginning of a text.
pub(crate) fn matches_start(wanted: &Value, text: &str) -> bool {
    any_matches("", wanted, text, Anchor::Start).is_ok()
}

/// A regular expression, or `{regex: …, negate: …}`.
fn pattern(value: &Value, anchor: Anchor) -> Option<Pattern> {
    if let Some(text) = value.as_str() {
        return Some(Pattern::new(text, false, anchor));
    }
    let map = value.as_map()?;
    let regex = map.get("regex")?.as_str()?;
    let negate = map.get("negate").and_then(Value::as_bool).unwrap_or(false);
    Some(Pattern::new(regex, negate, anchor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::{check, facts, pipeline, value};

    #[test]
    fn an_event_is_taken_by_the_first_filter_that_fits_it() {
        let event = ForgeEvent {
            connection: "git".into(),
            project: "forge/lib".into(),
            event: "comment-added".into(),
            branch: Some("stable/1".into()),
            git_ref: "refs/changes/1".into(),
            change: Some("1".into()),
            patchset: Some("1".into()),
            commit: None,
            old_commit: None,
            attributes: value(
                "{comment: please RECHECK now, username: jane, email: jane@example.org, approvals: \
                 [{label: Code-Review, value: 2, old-value: 0}, {label: Verified, value: -1, old-value: -1}, \
                 {label: Workflow, value: 1}, {label: Mood, value: good}], \
                 patchset-comments: [sooner or, LATER], added: [urgent, security], removed: calm}",
            ),
            delivery: "1".into(),
            raw: None,
        };
        let stories = [
            ("{event: comment-added}", ""),
            ("{event: change-merged}", "no trigger is for comment-added"),
            ("{event: [change-merged, comment-added]}", ""),
            ("{event: change-merged}, {event: comment-added}", ""),
            ("{event: comment-added, branch: stable/.*}", ""),
            ("{event: comment-added, branch: table/.*}", "branch \"stable/1\" does not match"),
            ("{event: comment-added, ref: [refs/tags/.*, refs/changes/.*]}", ""),
            ("{event: comment-added, ref: changes/.*}", "ref \"refs/changes/1\" does not match"),
            ("{event: comment-added, comment: RECHECK}", ""),
            ("{event: comment-added, comment: approve}", "comment \"please RECHECK now\" does not match"),
            ("{event: comment-added, comment: {regex: approve, negate: true}}", ""),
            ("{event: comment-added, comment: {regex: ., negate: true}}", "does not match"),
            ("{event: comment-added, username: {regex: jane, negate: true}}", "does not match"),
            ("{event: comment-added, username: {regex: john, negate: true}}", ""),
            ("{event: comment-added, username: jan}", ""),
            // Zuul: whoever votes is searched for, as comments are.
            ("{event: comment-added, username: ane}", ""),
            ("{event: comment-added, username: john}", "username \"jane\" does not match"),
            ("{event: comment-added, email: example}", ""),
            ("{event: comment-added, email: elsewhere}", "email \"jane@example.org\" does not match"),
            ("{event: comment-added, approval: [{Code-Review: 2}]}", ""),
            ("{event: comment-added, approval: [{code-review: 2}]}", "nobody voted code-review 2"),
            ("{event: comment-added, approval: [{Code-Review: [1, 2]}]}", ""),
            ("{event: comment-added, approval: {Verified: '-1'}}", ""),
            ("{event: comment-added, approval: [{Code-Review: 1}]}", "nobody voted Code-Review 1"),
            ("{event: comment-added, approval: [{Verified: 2}]}", "nobody voted Verified 2"),
            ("{event: comment-added, approval: [{Code-Review: two}]}", "nobody voted Code-Review"),
            ("{event: comment-added, approval: [{Workflow: 2}]}", "nobody voted Workflow 2"),
            ("{event: comment-added, approval: [{Code-Review: 2}, {Verified: 1}]}", "nobody voted Verified 1"),
            // Zuul: of a label that is named twice the last value counts.
            ("{event: comment-added, approval: [{Code-Review: 1}, {Code-Review: 2}]}", ""),
            ("{event: comment-added, approval: [{Code-Review: 2}, {Code-Review: 1}]}", "nobody voted Code-Review 1"),
            ("{event: comment-added, approval-change: [{Code-Review: 2}]}", ""),
            ("{event: comment-added, approval-change: [{Verified: -1}]}", "nobody voted Verified -1"),
            ("{event: comment-added, approval-change: [{Workflow: 1}]}", "nobody voted Workflow 1"),
            ("{event: comment-added, approval: [{Workflow: 1}]}", ""),
            ("{event: comment-added, comment_filter: RECHECK}", ""),
            ("{event: comment-added, comment_filter: approve}", "comment \"please RECHECK now\" does not match"),
            ("{event: comment-added, username_filter: ane}", ""),
            ("{event: comment-added, username_filter: john}", "username \"jane\" does not match"),
            ("{event: comment-added, email_filter: example}", ""),
            ("{event: comment-added, email_filter: elsewhere}", "email \"jane@example.org\" does not match"),
            // Of the old word and the new one the new one counts.
            ("{event: comment-added, comment_filter: approve, comment: RECHECK}", ""),
            ("{event: comment-added, comment_filter: RECHECK, comment: approve}", "does not match"),
            ("{event: comment-added, comment: LATER}", ""),
            ("{event: comment-added, comment: please$}", "does not match"),
            ("{event: comment-added, uuid: 'lint:x', scheme: lint}", ""),
            ("{event: comment-added, added: urg}", ""),
            ("{event: comment-added, added: [calm, sec.*ity]}", ""),
            ("{event: comment-added, added: calm}", "added [\"urgent\", \"security\"] does not match"),
            ("{event: comment-added, removed: calm}", ""),
            ("{event: comment-added, removed: urgent}", "removed [\"calm\"] does not match"),
            ("{event: comment-added, ignore-deletes: true, debug: true}", ""),
            // Zuul: the end of an event's name is free.
            ("{event: comment}", ""),
            ("{event: comment-added, weather: fine}", "its trigger asks for \"weather\""),
        ];
        for (filters, words) in stories {
            let pipeline = pipeline(&format!("trigger: {{git: [{filters}]}}"));
            check(filters, takes(&pipeline, &event, None), words);
        }
        let facts = facts();
        let known = Known { facts: &facts, current: true, now: Timestamp::ZERO.plus_seconds(10_000) };
        let stories = [
            ("require-approval: [{Verified: 1}]", ""),
            ("require-approval: {username: jane, Verified: 1}", ""),
            ("require-approval: [{Verified: 1}, {Verified: 2}]", "lacks the approval"),
            ("reject-approval: [{Verified: -1}]", ""),
            ("reject-approval: [{Code-Review: 2}]", "has the approval"),
            ("require: {approval: [{Verified: 1}], open: true}", ""),
            ("require: {approval: [{Verified: 2}]}", "lacks the approval"),
            ("require: {open: false}", "the change is open"),
            ("require: {current-patchset: false}", "the change is current-patchset"),
            ("reject: {status: NEW}", "the change has the status \"NEW\""),
            ("reject: {approval: [{Verified: -1}]}", ""),
            // The old word says nothing where the new one is used.
            ("require-approval: [{Verified: 2}], require: {open: true}", ""),
            ("reject-approval: [{Verified: 1}], reject: {open: false}", ""),
        ];
        for (asked, words) in stories {
            let pipeline = pipeline(&format!("trigger: {{git: [{{event: comment-added, {asked}}}]}}"));
            check(asked, takes(&pipeline, &event, Some(known)), words);
        }
        for asked in ["require: {open: true}", "reject: {open: false}", "reject-approval: [{Verified: -1}]"] {
            let pipeline = pipeline(&format!("trigger: {{git: [{{event: comment-added, {asked}}}]}}"));
            check(asked, takes(&pipeline, &event, None), "this is no change");
        }
        let elsewhere = pipeline("trigger: {mail: [{event: comment-added}]}");
        check("another connection", takes(&elsewhere, &event, None), "it has no trigger for git");
    }

    #[test]
    fn what_other_forges_tell_is_asked_for_in_their_words() {
        let event = |name: &str, attributes: &str| ForgeEvent {
            connection: "git".into(),
            project: "forge/lib".into(),
            event: name.into(),
            branch: Some("master".into()),
            git_ref: "refs/pull/1/head".into(),
            change: Some("1".into()),
            patchset: None,
            commit: None,
            old_commit: None,
            attributes: value(attributes),
            delivery: "1".into(),
            raw: None,
        };
        let labelled = event("pull_request", "{action: labeled, label: gate, unlabel: hold, permission: write}");
        let reviewed = event("pull_request_review", "{action: submitted, state: approved}");
        let told = event("pull_request", "{action: status, status: 'zuul:check:success'}");
        let ran = event("check_run", "{action: rerequested, check: 'zuul:gate:failure'}");
        let merge_request = event("gl_merge_request", "{action: labeled, labels: [gate, ready], unlabels: [hold]}");
        let tagged = event("pg_pull_request", "{action: tagged, tag: [gate, x], status: success}");
        let pending = event("pending-check", "{uuid: 'lint:strict'}");
        let stories = [
            (&labelled, "{event: pull_request}", ""),
            (&labelled, "{event: pull_request_review}", "no trigger is for pull_request"),
            (&labelled, "{event: pull_request, action: [opened, labeled]}", ""),
            (&labelled, "{event: pull_request, action: label}", "action [\"labeled\"] is not what is asked for"),
            (&labelled, "{event: pull_request, label: [gate, x]}", ""),
            (&labelled, "{event: pull_request, label: hold}", "label [\"gate\"] is not"),
            (&labelled, "{event: pull_request, unlabel: hold}", ""),
            (&labelled, "{event: pull_request, unlabel: gate}", "unlabel [\"hold\"] is not"),
            (&labelled, "{event: pull_request, permission: read}", ""),
            (&labelled, "{event: pull_request, permission: write}", ""),
            (&labelled, "{event: pull_request, permission: admin}", "permission \"write\" is less than \"admin\""),
            (&reviewed, "{event: pull_request_review, action: submitted, state: [approved]}", ""),
            (&reviewed, "{event: pull_request, permission: read}", "permission \"\" is less than \"read\""),
            (&reviewed, "{event: pull_request_review, state: dismissed}", "state [\"approved\"] is not"),
            (&told, "{event: pull_request, status: ['x', 'zuul:.*:success']}", ""),
            (&told, "{event: pull_request, status: 'zuul:check'}", "status \"zuul:check:success\" does not match"),
            (&ran, "{event: check_run, action: requested, check: '.*failure'}", ""),
            (&ran, "{event: check_run, action: completed}", "action [\"rerequested\"] is not"),
            (&ran, "{event: check_run, check: 'gate'}", "check \"zuul:gate:failure\" does not match"),
            (&told, "{event: pull_request, action: requested}", "action [\"status\"] is not"),
            (&merge_request, "{event: gl_merge_request, labels: [ready], unlabels: [x, hold]}", ""),
            (&merge_request, "{event: gl_merge_request, labels: hold}", "labels [\"gate\", \"ready\"] is not"),
            (&merge_request, "{event: gl_merge_request, unlabels: gate}", "unlabels [\"hold\"] is not"),
            (&tagged, "{event: pg_pull_request, tag: [x, y], status: success}", ""),
            (&tagged, "{event: pg_pull_request, tag: y}", "tag [\"gate\", \"x\"] is not"),
            (&pending, "{event: pending-check, uuid: 'lint:strict', scheme: lint}", ""),
            (&pending, "{event: pending-check, uuid: lint}", "uuid [\"lint:strict\"] is not"),
            (&pending, "{event: pending-check, scheme: strict}", "scheme [\"lint\"] is not"),
        ];
        for (event, filter, words) in stories {
            let pipeline = pipeline(&format!("trigger: {{git: [{filter}]}}"));
            check(filter, takes(&pipeline, event, None), words);
        }
        let mut facts = facts();
        facts.attributes = value("{status: ['zuul:check:success']}");
        let known = Known { facts: &facts, current: true, now: Timestamp::ZERO };
        for (asked, words) in [
            ("require-status: 'zuul:check:success'", ""),
            ("require-status: ['zuul:gate:.*']", "the change has the status"),
            ("require-status: ['zuul:gate:.*'], require: {open: true}", ""),
        ] {
            let pipeline = pipeline(&format!("trigger: {{git: [{{event: pull_request, {asked}}}]}}"));
            check(asked, takes(&pipeline, &told, Some(known)), words);
        }
    }
}
