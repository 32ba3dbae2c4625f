//! Which events a pipeline takes, and what it asks of a change.

use std::collections::BTreeMap;

use gatelog_record::Value;
use gatelog_record::draft::gate::ChangeFacts;
use gatelog_record::draft::intake::ForgeEvent;
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
    for (key, wanted) in filter {
        match key.as_str() {
            "event" => {}
            "branch" => {
                let branch = event.branch.as_deref().unwrap_or_default();
                any_matches(key, wanted, branch)?;
            }
            "ref" => any_matches(key, wanted, &event.git_ref)?,
            other => return Err(format!("its trigger asks for {other:?}, which {} has not", event.event)),
        }
    }
    Ok(())
}

fn any_matches(key: &str, wanted: &Value, text: &str) -> Result<(), String> {
    let one = std::slice::from_ref(wanted);
    let patterns = wanted.as_list().unwrap_or(one);
    if patterns.iter().filter_map(pattern).any(|pattern| pattern.matches(text)) {
        return Ok(());
    }
    Err(format!("{key} {text:?} does not match"))
}

/// A regular expression, or `{regex: …, negate: …}`.
fn pattern(value: &Value) -> Option<Pattern> {
    if let Some(text) = value.as_str() {
        return Some(Pattern::new(text, false, Anchor::Start));
    }
    let map = value.as_map()?;
    let regex = map.get("regex")?.as_str()?;
    let negate = map.get("negate").and_then(Value::as_bool).unwrap_or(false);
    Some(Pattern::new(regex, negate, Anchor::Start))
}

/// Whether a change has what a pipeline requires and nothing it rejects.
pub(crate) fn requirements(pipeline: &Pipeline, facts: &ChangeFacts, current: bool) -> Result<(), String> {
    let connection = &facts.subject.connection;
    for (wanted, all) in [(true, &pipeline.require), (false, &pipeline.reject)] {
        let Some(asked) = all.get(connection).and_then(Value::as_map) else { continue };
        for (key, value) in asked {
            let Some(expected) = value.as_bool() else {
                return Err(format!("requirement {key:?} of {connection} must be true or false"));
            };
            let has = match key.as_str() {
                "approved" => facts.approved,
                "open" => facts.open,
                "merged" => facts.merged,
                "current-patchset" => current,
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
    if goes_by_approvals(pipeline, &facts.subject.connection) && !facts.approved {
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
