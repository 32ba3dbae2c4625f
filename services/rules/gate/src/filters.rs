//! Which events a pipeline takes, and what it asks of a change.

use std::collections::BTreeMap;

use gatelog_record::draft::gate::ChangeFacts;
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::{Timestamp, Value};
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::regexes::{Anchor, Pattern};

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
    if !Pipeline::events(filter).contains(&event.event.as_str()) {
        return Err(format!("no trigger is for {}", event.event));
    }
    let told = |key: &str| event.attributes.as_map().and_then(|map| map.get(key));
    for (key, wanted) in filter {
        match key.as_str() {
            "event" => {}
            "branch" => {
                let branch = event.branch.as_deref().unwrap_or_default();
                any_matches(key, wanted, branch, Anchor::Start)?;
            }
            "ref" => any_matches(key, wanted, &event.git_ref, Anchor::Start)?,
            // Zuul: searched in the whole comment, its head included.
            "comment" => any_matches(key, wanted, text_of(told("comment")), Anchor::Anywhere)?,
            "username" => any_matches(key, wanted, text_of(told("username")), Anchor::Start)?,
            "email" => any_matches(key, wanted, text_of(told("email")), Anchor::Anywhere)?,
            "approval" => {
                let votes = told("approvals").and_then(Value::as_list).unwrap_or_default();
                for (label, value) in each_of(wanted).iter().filter_map(Value::as_map).flatten() {
                    let cast = |vote: &&Value| {
                        has_label(vote, label) && vote_value(vote).is_some_and(|cast| fits_value(value, cast))
                    };
                    if !votes.iter().any(|vote| cast(&vote)) {
                        return Err(format!("nobody voted {label} {value}"));
                    }
                }
            }
            // Zuul: a ref has no votes and nothing else of a change, so it fits neither.
            "require" | "reject" | "require-approval" | "reject-approval" => {
                let known = known.ok_or_else(|| format!("its trigger asks for {key:?}, and this is no change"))?;
                let need = key.starts_with("require");
                // Zuul: of the old word and the new one the new one counts.
                match key.strip_suffix("-approval") {
                    Some(newer) if filter.contains_key(newer) => {}
                    Some(_) => votes_fit(wanted, need, known)?,
                    None => wanted.as_map().map_or(Ok(()), |asked| meets(asked, need, known))?,
                }
            }
            // A ref that is gone concerns no pipeline, whatever this says.
            "ignore-deletes" => {}
            other => return Err(format!("its trigger asks for {other:?}, which {} has not", event.event)),
        }
    }
    Ok(())
}

fn text_of(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list, or the value itself as the only one.
fn each_of(value: &Value) -> &[Value] {
    value.as_list().unwrap_or(std::slice::from_ref(value))
}

/// Labels are compared as Zuul does: without regard to case and to how words are parted.
fn has_label(vote: &Value, label: &str) -> bool {
    let plain = |text: &str| text.to_lowercase().replace([' ', '_'], "-");
    let of_vote = text_of(vote.as_map().and_then(|map| map.get("label")));
    plain(of_vote) == plain(label)
}

fn vote_value(vote: &Value) -> Option<i64> {
    match vote.as_map()?.get("value")? {
        Value::Int(value) => Some(*value),
        _ => None,
    }
}

fn fits_value(wanted: &Value, cast: i64) -> bool {
    each_of(wanted).iter().any(|one| match one {
        Value::Int(value) => *value == cast,
        Value::Str(text) => text.parse() == Ok(cast),
        _ => false,
    })
}

fn any_matches(key: &str, wanted: &Value, text: &str, anchor: Anchor) -> Result<(), String> {
    if each_of(wanted).iter().filter_map(|one| pattern(one, anchor)).any(|pattern| pattern.matches(text)) {
        return Ok(());
    }
    Err(format!("{key} {text:?} does not match"))
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

/// Whether a change has what a pipeline requires and nothing it rejects, at this moment.
pub(crate) fn requirements(
    pipeline: &Pipeline,
    facts: &ChangeFacts,
    current: bool,
    now: Timestamp,
) -> Result<(), String> {
    let known = Known { facts, current, now };
    for (wanted, all) in [(true, &pipeline.require), (false, &pipeline.reject)] {
        if let Some(asked) = all.get(&facts.subject.connection).and_then(Value::as_map) {
            meets(asked, wanted, known)?;
        }
    }
    Ok(())
}

/// Whether a change has what is asked for, or, where it is not wanted, nothing of it.
fn meets(asked: &BTreeMap<String, Value>, wanted: bool, known: Known<'_>) -> Result<(), String> {
    let Known { facts, current, .. } = known;
    let connection = &facts.subject.connection;
    for (key, value) in asked {
        match key.as_str() {
            "approval" => {
                votes_fit(value, wanted, known)?;
                continue;
            }
            "status" => {
                let status = attribute(facts, "status").and_then(Value::as_str).unwrap_or_default();
                let found = each_of(value).iter().any(|one| one.as_str() == Some(status));
                if found != wanted {
                    return Err(format!("the change has the status {status:?}"));
                }
                continue;
            }
            _ => {}
        }
        let Some(expected) = value.as_bool() else {
            return Err(format!("requirement {key:?} of {connection} must be true or false"));
        };
        let has = match key.as_str() {
            "approved" => facts.approved,
            "open" => facts.open,
            "merged" => facts.merged,
            "current-patchset" => current,
            "wip" => attribute(facts, "wip").and_then(Value::as_bool).unwrap_or(false),
            other => return Err(format!("requirement {other:?} is not known for {connection}")),
        };
        if (has == expected) != wanted {
            let not = if has { "" } else { "not " };
            return Err(format!("the change is {not}{key}"));
        }
    }
    Ok(())
}

/// Whether a change has each approval that is asked for, or, where they are not wanted, none of them.
fn votes_fit(value: &Value, wanted: bool, known: Known<'_>) -> Result<(), String> {
    for entry in each_of(value).iter().filter_map(Value::as_map) {
        if has_vote(known.facts, entry, known.now)? != wanted {
            let verb = if wanted { "lacks" } else { "has" };
            return Err(format!("the change {verb} the approval {}", Value::Map(entry.clone())));
        }
    }
    Ok(())
}

fn attribute<'f>(facts: &'f ChangeFacts, key: &str) -> Option<&'f Value> {
    facts.attributes.as_map()?.get(key)
}

/// Whether one vote of a change fits everything an entry asks of it. Zuul: never two votes together.
fn has_vote(facts: &ChangeFacts, entry: &BTreeMap<String, Value>, now: Timestamp) -> Result<bool, String> {
    let votes = facts.approvals.as_list().unwrap_or_default();
    for vote in votes {
        let told = |key: &str| text_of(vote.as_map().and_then(|map| map.get(key)));
        let mut fits = true;
        for (key, wanted) in entry {
            fits &= match key.as_str() {
                "username" => any_matches(key, wanted, told("username"), Anchor::Start).is_ok(),
                "email" => any_matches(key, wanted, told("email"), Anchor::Anywhere).is_ok(),
                "older-than" | "newer-than" => {
                    let span = wanted
                        .as_str()
                        .and_then(seconds)
                        .ok_or_else(|| format!("{key} {wanted} is not a time: write it as in \"1w 2d 3h 4m 5s\""))?;
                    let granted = match vote.as_map().and_then(|map| map.get("granted-on")) {
                        Some(Value::Int(granted)) => *granted,
                        _ => 0,
                    };
                    let age = now.seconds().saturating_sub(granted);
                    if key == "older-than" { age >= span } else { age < span }
                }
                label => has_label(vote, label) && vote_value(vote).is_some_and(|cast| fits_value(wanted, cast)),
            };
        }
        if fits {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `1w 2d 3h 4m 5s` in seconds.
fn seconds(text: &str) -> Option<i64> {
    let mut total = 0_i64;
    for part in text.split_whitespace() {
        let unit = match part.chars().last()? {
            'w' => 604_800,
            'd' => 86_400,
            'h' => 3_600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        let count: i64 = part.get(..part.len() - 1)?.parse().ok()?;
        total = total.checked_add(count.checked_mul(unit)?)?;
    }
    Some(total)
}

/// Whether a change may be merged by a pipeline that merges: the code-review system would let it, it
/// is not closed, and it is approved where the pipeline goes by approvals. Zuul: `canMerge`.
pub(crate) fn can_merge(pipeline: &Pipeline, facts: &ChangeFacts) -> Result<(), String> {
    if let Some(why) = &facts.cannot_merge {
        return Err(why.clone());
    }
    // Zuul: a merged change that is approved again is gated again.
    if !facts.open && !facts.merged {
        return Err("the change is closed".into());
    }
    if attribute(facts, "wip").and_then(Value::as_bool) == Some(true) {
        return Err("it is work in progress".into());
    }
    // Zuul: labels the pipeline itself will set when it succeeds need not be there yet.
    let connection = &facts.subject.connection;
    let sets = pipeline.reporters("success").get(connection).and_then(Value::as_map);
    let missing = attribute(facts, "missing-labels").and_then(Value::as_list).unwrap_or_default();
    let missing: Vec<&str> = missing
        .iter()
        .filter_map(Value::as_str)
        .filter(|label| sets.is_none_or(|sets| !sets.contains_key(*label)))
        .collect();
    if !missing.is_empty() {
        return Err(format!("it lacks {}", missing.join(", ")));
    }
    if goes_by_approvals(pipeline, connection) && !facts.approved {
        return Err("the change is not approved".into());
    }
    Ok(())
}

fn goes_by_approvals(pipeline: &Pipeline, connection: &str) -> bool {
    let required = pipeline.require.get(connection).and_then(Value::as_map);
    let required = required.and_then(|map| map.get("approved")).and_then(Value::as_bool);
    let triggered =
        pipeline.filters(connection).iter().any(|filter| Pipeline::events(filter).contains(&"change-approved"));
    required.unwrap_or(triggered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatelog_record::ActorId;
    use gatelog_record::draft::gate::Subject;
    use gatelog_rules_config::{ConfigFile, LoadInput, TenantProject, TenantSettings, load};

    /// A pipeline as somebody would write it.
    fn pipeline(text: &str) -> Pipeline {
        let mut tenant = TenantSettings { name: "acme".into(), ..TenantSettings::default() };
        let mut project = TenantProject::new("git", "config", true);
        project.branches = vec!["master".into()];
        let (at, path) = (project.canonical_name.clone(), "zuul.yaml".to_owned());
        tenant.projects.push(project);
        let text = format!("- pipeline: {{name: one, manager: dependent, {text}}}");
        let file = ConfigFile { project: at, branch: "master".into(), path, text: text.clone() };
        let (layout, problems) = load(&LoadInput { tenant, files: vec![file] });
        assert!(problems.is_empty(), "{text}: {problems:?}");
        let found = layout.pipelines.get("one").unwrap();
        Pipeline::clone(found)
    }

    fn value(text: &str) -> Value {
        let pipeline = pipeline(&format!("require: {{git: {{it: {text}}}}}"));
        pipeline.require.get("git").and_then(Value::as_map).and_then(|map| map.get("it")).cloned().unwrap()
    }

    fn facts() -> ChangeFacts {
        ChangeFacts {
            subject: Subject {
                connection: "git".into(),
                project: "forge/lib".into(),
                branch: Some("master".into()),
                git_ref: "refs/changes/1".into(),
                change: Some("1".into()),
                patchset: Some("1".into()),
                commit: None,
                old_commit: None,
                url: "https://forge/1".into(),
            },
            open: true,
            merged: false,
            approved: true,
            approvals: value(
                "[{label: Verified, value: 1, username: jane, email: jane@example.org, granted-on: 6400}, \
                 {label: Code-Review, value: 2, username: john}, {label: Mood, value: good}]",
            ),
            cannot_merge: None,
            parents: Vec::new(),
            depends_on: Vec::new(),
            needs: Vec::new(),
            needed_by: Vec::new(),
            files: None,
            owner: ActorId::SYSTEM,
            owner_identity: None,
            text: None,
            attributes: value("{status: NEW, wip: false}"),
        }
    }

    /// Nothing is said where something is taken; otherwise the reason holds these words.
    fn check(what: &str, said: Result<(), String>, words: &str) {
        match said {
            Ok(()) => assert_eq!(words, "", "{what} is taken"),
            Err(why) => assert!(!words.is_empty() && why.contains(words), "{what}: {why}"),
        }
    }

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
                 [{label: Code-Review, value: 2}, {label: Verified, value: -1}, {label: Mood, value: good}]}",
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
            ("{event: comment-added, comment: {regex: RECHECK, negate: true}}", "does not match"),
            ("{event: comment-added, username: jan}", ""),
            ("{event: comment-added, username: ane}", "username \"jane\" does not match"),
            ("{event: comment-added, email: example}", ""),
            ("{event: comment-added, email: elsewhere}", "email \"jane@example.org\" does not match"),
            ("{event: comment-added, approval: [{code_review: 2}]}", ""),
            ("{event: comment-added, approval: [{Code-Review: [1, 2]}]}", ""),
            ("{event: comment-added, approval: {Verified: '-1'}}", ""),
            ("{event: comment-added, approval: [{Code-Review: 1}]}", "nobody voted Code-Review 1"),
            ("{event: comment-added, approval: [{Verified: 2}]}", "nobody voted Verified 2"),
            ("{event: comment-added, approval: [{Code-Review: two}]}", "nobody voted Code-Review"),
            ("{event: comment-added, approval: [{Workflow: 2}]}", "nobody voted Workflow 2"),
            ("{event: comment-added, approval: [{Code-Review: 2}, {Verified: 1}]}", "nobody voted Verified 1"),
            ("{event: comment-added, ignore-deletes: true}", ""),
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
    fn a_change_must_have_all_that_is_required_and_nothing_that_is_rejected() {
        let now = Timestamp::ZERO.plus_seconds(10_000);
        let stories = [
            ("require: {git: {approved: true, open: true, merged: false}}", ""),
            ("require: {git: {approved: false}}", "the change is approved"),
            ("reject: {git: {approved: true}}", "the change is approved"),
            ("reject: {git: {approved: false}}", ""),
            ("require: {git: {open: false}}", "the change is open"),
            ("require: {git: {merged: true}}", "the change is not merged"),
            ("require: {git: {current-patchset: true}}", "the change is not current-patchset"),
            ("require: {git: {wip: true}}", "the change is not wip"),
            ("require: {git: {status: [NEW, DRAFT]}}", ""),
            ("require: {git: {status: MERGED}}", "the change has the status \"NEW\""),
            ("reject: {git: {status: MERGED}}", ""),
            ("reject: {git: {status: [MERGED, NEW]}}", "the change has the status \"NEW\""),
            ("require: {git: {approval: [{username: jane, Verified: 1}]}}", ""),
            ("require: {git: {approval: {email: example, Verified: [1, 2]}}}", ""),
            ("require: {git: {approval: [{Verified: 1}, {Verified: 2}]}}", "lacks the approval"),
            // Zuul: never two votes together.
            ("require: {git: {approval: [{username: john, Verified: 1}]}}", "lacks the approval"),
            ("require: {git: {approval: [{username: jane, Verified: 2}]}}", "lacks the approval"),
            ("require: {git: {approval: [{Code-Review: 1}]}}", "lacks the approval"),
            ("reject: {git: {approval: [{Verified: 1}]}}", "the change has the approval"),
            ("reject: {git: {approval: [{Verified: -1}]}}", ""),
            // Jane voted an hour ago, and when John did nobody knows.
            ("require: {git: {approval: [{username: jane, older-than: 1h}]}}", ""),
            ("require: {git: {approval: [{username: jane, older-than: 61m}]}}", "lacks the approval"),
            ("require: {git: {approval: [{username: jane, newer-than: 1h}]}}", "lacks the approval"),
            ("require: {git: {approval: [{username: jane, newer-than: 61m}]}}", ""),
            ("require: {git: {approval: [{username: john, older-than: 2h}]}}", ""),
            ("require: {git: {approval: [{older-than: soon}]}}", "is not a time"),
            ("require: {git: {approved: perhaps}}", "requirement \"approved\" of git must be true or false"),
            ("require: {git: {sunny: true}}", "requirement \"sunny\" is not known for git"),
            ("require: {mail: {sunny: true}}", ""),
        ];
        for (text, words) in stories {
            check(text, requirements(&pipeline(text), &facts(), false, now), words);
        }
        check("current", requirements(&pipeline("require: {git: {current-patchset: true}}"), &facts(), true, now), "");
    }

    #[test]
    fn a_change_is_merged_if_its_forge_would_and_the_pipeline_goes_by_its_approval() {
        let by_approval = pipeline("trigger: {git: [{event: change-approved}]}, success: {git: {Verified: 2}}");
        let by_vote = pipeline("require: {git: {approved: false}}, trigger: {git: [{event: change-approved}]}");
        let by_comment = pipeline("trigger: {git: [{event: comment-added}]}");
        let asks = pipeline("require: {git: {approved: true}}, trigger: {git: [{event: comment-added}]}");
        let unapproved = ChangeFacts { approved: false, ..facts() };
        check("approved", can_merge(&by_approval, &facts()), "");
        check("unapproved", can_merge(&by_approval, &unapproved), "the change is not approved");
        check("required", can_merge(&asks, &unapproved), "the change is not approved");
        check("required and there", can_merge(&asks, &facts()), "");
        check("not required", can_merge(&by_vote, &unapproved), "");
        check("not spoken of", can_merge(&by_comment, &unapproved), "");
        let closed = ChangeFacts { open: false, ..facts() };
        check("closed", can_merge(&by_approval, &closed), "the change is closed");
        // Zuul: a merged change that is approved again is gated again, unless it lacks something.
        let lacks = |labels: &str| value(&format!("{{missing-labels: {labels}}}"));
        let merged = ChangeFacts { merged: true, ..closed };
        check("merged", can_merge(&by_approval, &merged), "");
        let merged = ChangeFacts { attributes: lacks("[Workflow]"), ..merged };
        check("merged without a label", can_merge(&by_approval, &merged), "it lacks Workflow");
        let blocked = ChangeFacts { cannot_merge: Some("a submodule is in the way".into()), ..facts() };
        check("blocked", can_merge(&by_approval, &blocked), "a submodule is in the way");
        for (attributes, words) in [("{wip: true}", "it is work in progress"), ("{wip: false}", ""), ("{}", "")] {
            let facts = ChangeFacts { attributes: value(attributes), ..facts() };
            check(attributes, can_merge(&by_approval, &facts), words);
        }
        // What the pipeline sets itself when it succeeds need not be there yet.
        for (labels, words) in
            [("[Verified]", ""), ("[Verified, Workflow]", "it lacks Workflow"), ("[A, B]", "it lacks A, B"), ("[]", "")]
        {
            let facts = ChangeFacts { attributes: lacks(labels), ..facts() };
            check(labels, can_merge(&by_approval, &facts), words);
        }
        let facts = ChangeFacts { attributes: lacks("[Verified]"), ..facts() };
        check("sets nothing", can_merge(&by_comment, &facts), "it lacks Verified");
    }

    #[test]
    fn spans_of_time_are_read_as_zuul_writes_them() {
        assert_eq!(seconds("1w 2d 3h 4m 5s"), Some(788_645));
        assert_eq!([seconds("90s"), seconds("2 days"), seconds("h")], [Some(90), None, None]);
    }
}
