//! What pipelines may say to Gerrit: Zuul's words.

use gatelog_driver_contract::{DriverSchema, Field, Shape, field, needed};

const APPROVAL: &[Field] = &[
    field("username", Shape::Text),
    field("email", Shape::Text),
    field("older-than", Shape::Text),
    field("newer-than", Shape::Text),
];

const STATE: &[Field] = &[
    field("approval", Shape::OpenFields(APPROVAL)),
    field("open", Shape::Bool),
    field("current-patchset", Shape::Bool),
    field("wip", Shape::Bool),
    field("hashtags", Shape::Regexes),
    field("status", Shape::Texts),
];

const EVENTS: &[&str] = &[
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
];

const TRIGGER: &[Field] = &[
    needed("event", Shape::Words(EVENTS)),
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
    field("require", Shape::Fields(STATE)),
    field("reject", Shape::Fields(STATE)),
    field("debug", Shape::Bool),
];

/// Gerrit. A reporter says labels and votes, `submit`, `comment`, `notify`.
pub const SCHEMA: DriverSchema = DriverSchema {
    has_projects: true,
    trigger: Some(TRIGGER),
    require: Some(STATE),
    reject: Some(STATE),
    reporter: Some(&[Shape::Text, Shape::Maps]),
    merges_by: Some("submit"),
    ..DriverSchema::silent("gerrit")
};
