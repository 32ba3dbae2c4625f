//! Zuul's drivers, as its documentation has them: sites of Zuul are read with them whether a gatelog has such a driver or
//! not. One that is registered stands in its own crate and comes first.

use std::collections::BTreeMap;

use gatelog_driver_schema::{DriverSchema, Field, Shape, field, needed};
use gatelog_record::Value;

use super::fits::fields_fit;

/// All of them.
pub(crate) const ALL: &[DriverSchema] = &[
    DriverSchema {
        has_projects: true,
        trigger: Some(GERRIT_TRIGGER),
        require: Some(GERRIT_STATE),
        reject: Some(GERRIT_STATE),
        reporter: Some(&[Shape::Text, Shape::Maps]),
        merges_by: Some("submit"),
        ..DriverSchema::silent("gerrit")
    },
    DriverSchema { has_projects: true, trigger: Some(GIT_TRIGGER), regexes: &["ref"], ..DriverSchema::silent("git") },
    DriverSchema {
        has_projects: true,
        trigger: Some(GITHUB_TRIGGER),
        require: Some(GITHUB_STATE),
        reject: Some(GITHUB_STATE),
        reporter: Some(&[Shape::ListedFields(GITHUB_REPORTER)]),
        regexes: &["event", "branch", "ref", "comment"],
        merges_by: Some("merge"),
        ..DriverSchema::silent("github")
    },
    DriverSchema {
        has_projects: true,
        trigger: Some(GITLAB_TRIGGER),
        require: Some(GITLAB_STATE),
        reject: Some(GITLAB_STATE),
        reporter: Some(&[Shape::ListedFields(GITLAB_REPORTER)]),
        regexes: &["event", "branch", "ref", "comment"],
        merges_by: Some("merge"),
        ..DriverSchema::silent("gitlab")
    },
    DriverSchema {
        has_projects: true,
        trigger: Some(PAGURE_TRIGGER),
        require: Some(PAGURE_STATE),
        reject: Some(&[]),
        reporter: Some(&[Shape::ListedFields(PAGURE_REPORTER)]),
        regexes: &["event", "ref", "comment"],
        merges_by: Some("merge"),
        ..DriverSchema::silent("pagure")
    },
    DriverSchema { trigger: Some(TIMER_TRIGGER), ..DriverSchema::silent("timer") },
    DriverSchema {
        trigger: Some(ZUUL_TRIGGER),
        reporter: Some(&[Shape::ListedFields(ZUUL_REPORTER)]),
        regexes: &["event", "pipeline"],
        ..DriverSchema::silent("zuul")
    },
    reporter("smtp", &[Shape::ListedFields(SMTP_REPORTER)]),
    reporter("mqtt", &[Shape::ListedFields(MQTT_REPORTER)]),
    reporter("sql", &[Shape::Nothing]),
    reporter("elasticsearch", &[Shape::Nothing, Shape::ListedFields(ELASTICSEARCH_REPORTER)]),
    DriverSchema::silent("aws"),
    DriverSchema::silent("azure"),
    DriverSchema::silent("openstack"),
    DriverSchema::silent("static"),
    DriverSchema::silent("kubernetes"),
];

const fn reporter(name: &'static str, shapes: &'static [Shape]) -> DriverSchema {
    DriverSchema { reporter: Some(shapes), ..DriverSchema::silent(name) }
}

const APPROVAL: &[Field] = &[
    field("username", Shape::Text),
    field("email", Shape::Text),
    field("older-than", Shape::Text),
    field("newer-than", Shape::Text),
];

const GERRIT_STATE: &[Field] = &[
    field("approval", Shape::OpenFields(APPROVAL)),
    field("open", Shape::Bool),
    field("current-patchset", Shape::Bool),
    field("wip", Shape::Bool),
    field("hashtags", Shape::Regexes),
    field("status", Shape::Texts),
];

const GERRIT_TRIGGER: &[Field] = &[
    needed(
        "event",
        Shape::Words(&[
            "patchset-created",
            "draft-published",
            "change-abandoned",
            "change-restored",
            "change-merged",
            "comment-added",
            "ref-updated",
            "pending-check",
            "vote-deleted",
            "hashtags-changed",
            "wip-state-changed",
        ]),
    ),
    field("uuid", Shape::Text),
    field("scheme", Shape::Text),
    field("comment_filter", Shape::Texts),
    field("comment", Shape::Regexes),
    field("email_filter", Shape::Texts),
    field("email", Shape::Regexes),
    field("username_filter", Shape::Texts),
    field("username", Shape::Regexes),
    field("branch", Shape::Regexes),
    field("ref", Shape::Regexes),
    field("ignore-deletes", Shape::Bool),
    field("approval", Shape::Maps),
    field("approval-change", Shape::Maps),
    field("require-approval", Shape::OpenFields(APPROVAL)),
    field("reject-approval", Shape::OpenFields(APPROVAL)),
    field("added", Shape::Regexes),
    field("removed", Shape::Regexes),
    field("require", Shape::Fields(GERRIT_STATE)),
    field("reject", Shape::Fields(GERRIT_STATE)),
    field("debug", Shape::Bool),
];

const PERMISSION: Shape = Shape::Word(&["read", "write", "admin"]);

const REVIEW: &[Field] = &[
    field("username", Shape::Text),
    field("email", Shape::Text),
    field("older-than", Shape::Text),
    field("newer-than", Shape::Text),
    field("type", Shape::Text),
    field("permission", PERMISSION),
];

const GITHUB_STATE: &[Field] = &[
    field("status", Shape::Texts),
    field("review", Shape::ListedFields(REVIEW)),
    field("open", Shape::Bool),
    field("merged", Shape::Bool),
    field("current-patchset", Shape::Bool),
    field("draft", Shape::Bool),
    field("label", Shape::Texts),
];

const GITHUB_EVENTS: &[&str] = &["pull_request", "pull_request_review", "push", "check_run"];

const GITHUB_TRIGGER: &[Field] = &[
    needed("event", Shape::Words(GITHUB_EVENTS)),
    field("action", Shape::Texts),
    field("branch", Shape::Regexes),
    field("ref", Shape::Regexes),
    field("comment", Shape::Regexes),
    field("label", Shape::Texts),
    field("unlabel", Shape::Texts),
    field("permission", PERMISSION),
    field("state", Shape::Texts),
    field("require-status", Shape::Texts),
    field("require", Shape::Fields(GITHUB_STATE)),
    field("reject", Shape::Fields(GITHUB_STATE)),
    field("status", Shape::Texts),
    field("check", Shape::Texts),
    field("debug", Shape::Bool),
];

/// What any trigger of GitHub has in the form that is asked for today.
const GITHUB_COMMON: &[Field] = &[
    needed("event", Shape::Word(GITHUB_EVENTS)),
    field("require", Shape::Fields(GITHUB_STATE)),
    field("reject", Shape::Fields(GITHUB_STATE)),
    field("debug", Shape::Bool),
];

const GITHUB_REPORTER: &[Field] = &[
    field("status", Shape::Word(&["pending", "success", "failure"])),
    field("comment", Shape::Bool),
    field("merge", Shape::Bool),
    field("label", Shape::Texts),
    field("unlabel", Shape::Texts),
    field("review", Shape::Word(&["approve", "request-changes", "comment"])),
    field("review-body", Shape::Text),
    field("check", Shape::Word(&["queued", "in_progress", "success", "failure", "cancelled", "skipped", "neutral"])),
];

const GITLAB_TRIGGER: &[Field] = &[
    needed("event", Shape::Words(&["gl_merge_request", "gl_push"])),
    field("action", Shape::Texts),
    field("branch", Shape::Regexes),
    field("comment", Shape::Regexes),
    field("ref", Shape::Regexes),
    field("labels", Shape::Texts),
    field("unlabels", Shape::Texts),
    field("debug", Shape::Bool),
];

const GITLAB_STATE: &[Field] = &[
    field("open", Shape::Bool),
    field("merged", Shape::Bool),
    field("approved", Shape::Bool),
    field("labels", Shape::Texts),
];

const GITLAB_REPORTER: &[Field] = &[
    field("comment", Shape::Bool),
    field("approval", Shape::Bool),
    field("merge", Shape::Bool),
    field("label", Shape::Texts),
    field("unlabel", Shape::Texts),
];

const PAGURE_TRIGGER: &[Field] = &[
    needed("event", Shape::Words(&["pg_pull_request", "pg_pull_request_review", "pg_push"])),
    field("action", Shape::Texts),
    field("ref", Shape::Regexes),
    field("comment", Shape::Regexes),
    field("status", Shape::Texts),
    field("tag", Shape::Texts),
    field("debug", Shape::Bool),
];

const PAGURE_STATE: &[Field] = &[
    field("score", Shape::Int),
    field("open", Shape::Bool),
    field("merged", Shape::Bool),
    field("status", Shape::Text),
    field("tags", Shape::Texts),
];

const PAGURE_REPORTER: &[Field] = &[
    field("status", Shape::Word(&["pending", "success", "failure"])),
    field("comment", Shape::Bool),
    field("merge", Shape::Bool),
];

const GIT_TRIGGER: &[Field] = &[
    needed("event", Shape::Words(&["ref-updated"])),
    field("ref", Shape::Regexes),
    field("ignore-deletes", Shape::Bool),
    field("debug", Shape::Bool),
];

const TIMER_TRIGGER: &[Field] =
    &[needed("time", Shape::Text), field("dereference", Shape::Bool), field("debug", Shape::Bool)];

const ZUUL_TRIGGER: &[Field] = &[
    needed(
        "event",
        Shape::Words(&["parent-change-enqueued", "project-change-merged", "image-build", "image-validate"]),
    ),
    field("pipeline", Shape::Regexes),
    field("debug", Shape::Bool),
];

const ZUUL_REPORTER: &[Field] = &[field("image-built", Shape::Bool), field("image-validated", Shape::Bool)];

const SMTP_REPORTER: &[Field] = &[field("to", Shape::Text), field("from", Shape::Text), field("subject", Shape::Text)];

const MQTT_REPORTER: &[Field] =
    &[needed("topic", Shape::Text), field("qos", Shape::Int), field("include-returned-data", Shape::Bool)];

const ELASTICSEARCH_REPORTER: &[Field] =
    &[field("index", Shape::Text), field("index-vars", Shape::Bool), field("index-returned-vars", Shape::Bool)];

/// What is wrong with a trigger of GitHub in the form asked for today.
pub(super) fn github_wrong(filter: &BTreeMap<String, Value>) -> Option<String> {
    const ACTION: &str = "action";
    const STATES: &[&str] = &["approved", "commented", "changes_requested", "dismissed", "pending"];
    let event = filter.get("event").and_then(Value::as_str)?;
    if let Some(why) = fields_fit(GITHUB_COMMON, filter, true) {
        return Some(why);
    }
    let action = filter.get(ACTION).and_then(Value::as_str).unwrap_or("");
    let own: &[Field] = match (event, action) {
        ("pull_request", "comment") => &[field(ACTION, Shape::Anything), field("comment", Shape::Regexes)],
        ("pull_request", "labeled" | "unlabeled") => &[field(ACTION, Shape::Anything), field("label", Shape::Texts)],
        ("pull_request", "status") => &[field(ACTION, Shape::Anything), field("status", Shape::Texts)],
        ("pull_request", _) => &[field(
            ACTION,
            Shape::Words(&["opened", "changed", "closed", "reopened", "converted_to_draft", "ready_for_review"]),
        )],
        ("pull_request_review", _) => {
            &[field(ACTION, Shape::Words(&["submitted", "dismissed"])), field("state", Shape::Words(STATES))]
        }
        ("push", _) => &[field("ref", Shape::Regexes)],
        _ => &[field(ACTION, Shape::Words(&["rerequested", "completed"])), field("check", Shape::Texts)],
    };
    let further: &[Field] = match event {
        "pull_request" => &[field("branch", Shape::Regexes), field("permission", PERMISSION)],
        "pull_request_review" => &[field("branch", Shape::Regexes)],
        _ => &[],
    };
    fields_fit(&[GITHUB_COMMON, own, further].concat(), filter, false)
}
