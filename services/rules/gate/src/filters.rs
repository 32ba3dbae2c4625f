//! Which events a pipeline takes, and what it asks of a change.

use std::collections::BTreeMap;

use gatelog_record::draft::gate::ChangeFacts;
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::{Timestamp, Value};
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::regexes::{Anchor, Pattern};

/// Whether one of a pipeline's filters takes an event. An error says why none does.
pub(crate) fn takes(pipeline: &Pipeline, event: &ForgeEvent) -> Result<(), String> {
    let filters = pipeline.filters(&event.connection);
    if filters.is_empty() {
        return Err(format!("it has no trigger for {}", event.connection));
    }
    let mut why = String::new();
    for filter in filters {
        match fits(filter, event) {
            Ok(()) => return Ok(()),
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

fn fits(filter: &BTreeMap<String, Value>, event: &ForgeEvent) -> Result<(), String> {
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
    let connection = &facts.subject.connection;
    for (wanted, all) in [(true, &pipeline.require), (false, &pipeline.reject)] {
        let Some(asked) = all.get(connection).and_then(Value::as_map) else { continue };
        for (key, value) in asked {
            match key.as_str() {
                "approval" => {
                    for entry in each_of(value).iter().filter_map(Value::as_map) {
                        if has_vote(facts, entry, now)? != wanted {
                            let verb = if wanted { "lacks" } else { "has" };
                            return Err(format!("the change {verb} the approval {}", Value::Map(entry.clone())));
                        }
                    }
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

    #[test]
    fn spans_of_time_are_read_as_zuul_writes_them() {
        assert_eq!(seconds("1w 2d 3h 4m 5s"), Some(788_645));
        assert_eq!([seconds("90s"), seconds("2 days"), seconds("h")], [Some(90), None, None]);
    }
}
