//! What a pipeline asks of a change: whether it has what is required and nothing that is rejected, and may be merged.
//!
//! What only some code-review systems know of a change stands in the attributes of its facts: `status` (one, or
//! several), `labels`, `hashtags`, `tags`, `score`, `draft`, `wip`, and `reviews`, each with `type`, `permission`,
//! `username`, `email` and `granted-on`.

use std::collections::BTreeMap;

use gatelog_record::draft::gate::ChangeFacts;
use gatelog_record::{Timestamp, Value};
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::regexes::Anchor;

use crate::filters::{Known, any_matches, each_of, fits_value, has_label, permission, text_of, texts_of, vote_value};

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
pub(crate) fn meets(asked: &BTreeMap<String, Value>, wanted: bool, known: Known<'_>) -> Result<(), String> {
    for (key, value) in asked {
        match key.as_str() {
            "approval" => votes_fit(value, wanted, known)?,
            "review" => reviews_fit(value, wanted, known)?,
            "status" | "label" | "labels" | "hashtags" | "tags" => words_fit(key, value, wanted, known.facts)?,
            "score" => {
                let number = |value: &Value| match value {
                    Value::Int(number) => *number,
                    _ => 0,
                };
                let has = attribute(known.facts, key).map_or(0, number);
                if (has >= number(value)) != wanted {
                    return Err(format!("the change has the score {has}"));
                }
            }
            _ => is_so(key, value, wanted, known)?,
        }
    }
    Ok(())
}

/// Whether something that is true or false of a change is as it is asked for.
fn is_so(key: &str, value: &Value, wanted: bool, known: Known<'_>) -> Result<(), String> {
    let Known { facts, current, .. } = known;
    let connection = &facts.subject.connection;
    let Some(expected) = value.as_bool() else {
        return Err(format!("requirement {key:?} of {connection} must be true or false"));
    };
    let has = match key {
        "approved" => facts.approved,
        "open" => facts.open,
        "merged" => facts.merged,
        "current-patchset" => current,
        "wip" | "draft" => attribute(facts, key).and_then(Value::as_bool).unwrap_or(false),
        other => return Err(format!("requirement {other:?} is not known for {connection}")),
    };
    if (has == expected) != wanted {
        let not = if has { "" } else { "not " };
        return Err(format!("the change is {not}{key}"));
    }
    Ok(())
}

/// Whether a change has the words that are asked for. Zuul: all labels and hashtags have to be there, one status and
/// one tag is enough, and any one that is not wanted is too much.
fn words_fit(key: &str, value: &Value, wanted: bool, facts: &ChangeFacts) -> Result<(), String> {
    let of_change = attribute(facts, if key == "label" { "labels" } else { key });
    let words = texts_of(of_change);
    let has = |one: &Value| match key {
        "hashtags" => words.iter().any(|word| any_matches(key, one, word, Anchor::Anywhere).is_ok()),
        // Where a change has several, they are asked for with expressions.
        "status" if of_change.is_some_and(|status| status.as_list().is_some()) => {
            words.iter().any(|word| any_matches(key, one, word, Anchor::Whole).is_ok())
        }
        "status" => one.as_str() == Some(words.first().copied().unwrap_or_default()),
        _ => one.as_str().is_some_and(|one| words.contains(&one)),
    };
    let mut asked = each_of(value).iter();
    let found = match key {
        "label" | "labels" | "hashtags" if wanted => asked.all(has),
        _ => asked.any(has),
    };
    if found != wanted {
        let words = words.join(", ");
        return Err(format!("the change has the {key} {words:?}"));
    }
    Ok(())
}

/// Whether a change has each approval that is asked for, or, where they are not wanted, none of them.
pub(crate) fn votes_fit(value: &Value, wanted: bool, known: Known<'_>) -> Result<(), String> {
    let votes = known.facts.approvals.as_list().unwrap_or_default();
    each_is_among("approval", value, wanted, votes, |vote, key, asked| match voter_fits(vote, key, asked, known.now)? {
        Some(fits) => Ok(fits),
        None => Ok(has_label(vote, key) && vote_value(vote).is_some_and(|cast| fits_value(asked, cast))),
    })
}

/// The same of reviews.
fn reviews_fit(value: &Value, wanted: bool, known: Known<'_>) -> Result<(), String> {
    let reviews = attribute(known.facts, "reviews").and_then(Value::as_list).unwrap_or_default();
    each_is_among("review", value, wanted, reviews, |review, key, asked| {
        let told = text_of(review.as_map().and_then(|map| map.get(key)));
        Ok(match (key, voter_fits(review, key, asked, known.now)?) {
            (_, Some(fits)) => fits,
            ("type", None) => asked.as_str() == Some(told),
            // Zuul: whoever reviews may read.
            ("permission", None) => permission(told).max(Some(0)) >= permission(text_of(Some(asked))),
            _ => true,
        })
    })
}

/// Whether each entry that is asked for is among what a change has, or, where they are not wanted, none. All that an
/// entry asks has to be so of one of them. Zuul: never of two together.
fn each_is_among(
    what: &str,
    value: &Value,
    wanted: bool,
    had: &[Value],
    fits: impl Fn(&Value, &str, &Value) -> Result<bool, String>,
) -> Result<(), String> {
    for entry in each_of(value).iter().filter_map(Value::as_map) {
        let mut found = false;
        for one in had {
            let mut all = true;
            for (key, asked) in entry {
                all &= fits(one, key, asked)?;
            }
            found |= all;
        }
        if found != wanted {
            let verb = if wanted { "lacks" } else { "has" };
            return Err(format!("the change {verb} the {what} {}", Value::Map(entry.clone())));
        }
    }
    Ok(())
}

/// Whether a vote or a review is by whom, and as old as, somebody asks; none where that is not what is asked.
fn voter_fits(vote: &Value, key: &str, wanted: &Value, now: Timestamp) -> Result<Option<bool>, String> {
    let told = |key: &str| vote.as_map().and_then(|map| map.get(key));
    Ok(Some(match key {
        "username" | "email" => any_matches(key, wanted, text_of(told(key)), Anchor::Anywhere).is_ok(),
        "older-than" | "newer-than" => {
            let span = wanted
                .as_str()
                .and_then(seconds)
                .ok_or_else(|| format!("{key} {wanted} is not a time: write it as in \"1w 2d 3h 4m 5s\""))?;
            let granted = match told("granted-on") {
                Some(Value::Int(granted)) => *granted,
                _ => 0,
            };
            let since = now.seconds().saturating_sub(span);
            // Zuul: what was given at that very moment is newer.
            (granted >= since) == (key == "newer-than")
        }
        _ => return Ok(None),
    }))
}

fn attribute<'f>(facts: &'f ChangeFacts, key: &str) -> Option<&'f Value> {
    facts.attributes.as_map()?.get(key)
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
    use crate::asked::{check, facts, pipeline, value};

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
            ("require: {git: {approval: [{username: oh, Code-Review: 2}]}}", ""),
            ("require: {git: {approval: [{username: j}]}}", ""),
            ("reject: {git: {approval: [{username: j}]}}", "the change has the approval"),
            ("require: {git: {approval: {email: example, Verified: [1, 2]}}}", ""),
            ("require: {git: {approval: [{Verified: 1}, {Verified: 2}]}}", "lacks the approval"),
            // Zuul: never two votes together.
            ("require: {git: {approval: [{username: john, Verified: 1}]}}", "lacks the approval"),
            ("require: {git: {approval: [{username: jane, Verified: 2}]}}", "lacks the approval"),
            ("require: {git: {approval: [{Code-Review: 1}]}}", "lacks the approval"),
            ("reject: {git: {approval: [{Verified: 1}]}}", "the change has the approval"),
            ("reject: {git: {approval: [{Verified: -1}]}}", ""),
            // Jane voted an hour ago, and when John did nobody knows.
            ("require: {git: {approval: [{username: jane, older-than: 59m}]}}", ""),
            // Zuul: exactly as old is newer.
            ("require: {git: {approval: [{username: jane, older-than: 1h}]}}", "lacks the approval"),
            ("require: {git: {approval: [{username: jane, older-than: 61m}]}}", "lacks the approval"),
            ("require: {git: {approval: [{username: jane, newer-than: 1h}]}}", ""),
            ("require: {git: {approval: [{username: jane, newer-than: 59m}]}}", "lacks the approval"),
            ("require: {git: {approval: [{username: jane, newer-than: 61m}]}}", ""),
            ("require: {git: {approval: [{username: john, older-than: 2h}]}}", ""),
            ("require: {git: {approval: [{older-than: soon}]}}", "is not a time"),
            ("require: {git: {approved: perhaps}}", "requirement \"approved\" of git must be true or false"),
            ("require: {git: {sunny: true}}", "requirement \"sunny\" is not known for git"),
            ("require: {mail: {sunny: true}}", ""),
            ("require: {git: {draft: false}}", "the change is draft"),
            ("reject: {git: {draft: false}}", ""),
            ("require: {git: {hashtags: urg}}", ""),
            ("require: {git: {hashtags: [urgent, cal.]}}", ""),
            ("require: {git: {hashtags: [urgent, sunny]}}", "the change has the hashtags \"urgent, calm\""),
            ("reject: {git: {hashtags: [sunny, calm]}}", "the change has the hashtags"),
            ("reject: {git: {hashtags: sunny}}", ""),
            ("require: {git: {label: [gate, ready]}}", ""),
            ("require: {git: {label: [gate, hold]}}", "the change has the label \"gate, ready\""),
            ("reject: {git: {label: [hold, gate]}}", "the change has the label"),
            ("reject: {git: {label: gat}}", ""),
            ("require: {git: {labels: [gate]}}", ""),
            ("require: {git: {labels: [gate, hold]}}", "the change has the labels"),
            ("reject: {git: {labels: hold}}", ""),
            ("require: {git: {tags: [x, fine]}}", ""),
            ("require: {git: {tags: [x, y]}}", "the change has the tags \"fine\""),
            ("require: {git: {score: 2}}", ""),
            ("require: {git: {score: 1}}", ""),
            ("require: {git: {score: 3}}", "the change has the score 2"),
            ("require: {git: {review: {type: approved, permission: write}}}", ""),
            ("require: {git: {review: {type: approved, permission: admin}}}", "lacks the review"),
            ("require: {git: {review: [{username: oh, permission: read}]}}", ""),
            ("require: {git: {review: [{username: john, permission: write}]}}", "lacks the review"),
            ("require: {git: {review: [{type: dismissed}]}}", "lacks the review"),
            ("require: {git: {review: [{email: example, type: approved}]}}", ""),
            ("require: {git: {review: [{username: jane, older-than: 2h}]}}", "lacks the review"),
            ("reject: {git: {review: [{type: changes_requested}]}}", "the change has the review"),
            ("reject: {git: {review: [{type: changes_requested, permission: admin}]}}", ""),
        ];
        for (text, words) in stories {
            check(text, requirements(&pipeline(text), &facts(), false, now), words);
        }
        let told = |attributes: &str| ChangeFacts { attributes: value(attributes), ..facts() };
        for (text, attributes, words) in [
            ("require: {git: {status: 'zuul:.*:success'}}", "{status: ['zuul:check:success', other]}", ""),
            ("require: {git: {status: 'zuul:check'}}", "{status: ['zuul:check:success']}", "the change has the status"),
            (
                "reject: {git: {status: 'zuul:.*'}}",
                "{status: [other, 'zuul:check:success']}",
                "the change has the status",
            ),
            ("reject: {git: {status: 'zuul:.*'}}", "{status: [other]}", ""),
            ("require: {git: {status: N.W}}", "{status: NEW}", "the change has the status \"NEW\""),
            ("require: {git: {status: ''}}", "{}", ""),
            ("require: {git: {score: 0}}", "{}", ""),
            ("require: {git: {score: 1}}", "{score: many}", "the change has the score 0"),
            ("require: {git: {wip: true}}", "{wip: true}", ""),
            ("require: {git: {wip: true}}", "{draft: true}", "the change is not wip"),
            ("require: {git: {review: {username: jane}}}", "{}", "lacks the review"),
            ("reject: {git: {review: {username: jane}}}", "{}", ""),
        ] {
            check(text, requirements(&pipeline(text), &told(attributes), false, now), words);
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
