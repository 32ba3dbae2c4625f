//! What pipelines may say to the forge.

use gatelog_driver_contract::{DriverSchema, Field, Shape, field, needed};

const TRIGGER: &[Field] = &[
    needed(
        "event",
        Shape::Words(&[
            "change-proposed",
            "change-approved",
            "approval-withdrawn",
            "change-abandoned",
            "change-merged",
            "ref-updated",
        ]),
    ),
    field("branch", Shape::Regexes),
    field("ref", Shape::Regexes),
    field("username", Shape::Regexes),
    field("email", Shape::Regexes),
    field("ignore-deletes", Shape::Bool),
];

const STATE: &[Field] = &[
    field("approved", Shape::Bool),
    field("open", Shape::Bool),
    field("merged", Shape::Bool),
    field("current-patchset", Shape::Bool),
];

/// A success of a pipeline that merges says `merge: true`.
const REPORTER: &[Field] = &[field("merge", Shape::Bool)];

/// gatelog's own driver for plain Git repositories; `git` among pipelines is Zuul's, which only watches.
pub const SCHEMA: DriverSchema = DriverSchema {
    name: "plain-git",
    has_projects: true,
    trigger: Some(TRIGGER),
    require: Some(STATE),
    reject: Some(STATE),
    reporter: Some(&[Shape::Nothing, Shape::Fields(REPORTER)]),
    regexes: &["branch", "ref", "username", "email"],
    // The gate moves the branch itself.
    merges_by: None,
};
