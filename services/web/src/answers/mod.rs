//! What the API answers, as types: from them come the JSON and its schema in the OpenAPI document, so that neither can
//! say what the other does not.
//!
//! The order of fields is that of the answer. A field that Zuul's answer has stands where Zuul has it; gatelog's own
//! follow.

mod builds;
mod configuration;
mod operators;
mod site;
mod status;

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

pub(crate) use builds::{
    Artifact, Attempt, Build, Buildset, BuildsetEvent, BuildsetOfBuild, BuildsetWhole, Dependency, Ended, Frozen,
    GitRef, Hit, Hits, KeptBlob, Lease, LeftOutFile, LetGo, Line, Lines, LogFile, Logs, Prepared, PreparedBranch,
    Reason, WaitHeld,
};
pub(crate) use configuration::{
    Auth, Capabilities, ConfigError, Holders, Info, InfoOf, Job, JobVariant, Named, NamedTrigger, Pipeline, Project,
    Realm, Semaphore, SemaphoreHolder, SourceContext, TenantStatus, Timer, TimerBranch,
};
pub(crate) use operators::{
    Autohold, AutoholdBody, DequeueBody, EnqueueBody, HeldNodes, Level, LevelBody, LevelComponent, LevelPartition,
    LevelRaised, Paused, PromoteBody, Raised, ReasonBody, Rights, RightsOf, TenantStateBody,
};
pub(crate) use site::{
    Case, CaseAsked, Component, Connection, EventTold, Failure, Health, Issuer, Live, Part, Pause, Ready, WaitSubject,
    WaitTold, Waits,
};
pub(crate) use status::{
    Estimated, ItemStatus, JobStatus, PipelineStatus, Problem, QueueLength, QueueStatus, RefStatus, Status,
    TenantState, Trigger, Wait,
};

/// An answer, written down as JSON when it is shown.
pub(crate) struct Typed<T>(pub(crate) T);

impl<T: Serialize> fmt::Display for Typed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match serde_json::to_string(&self.0) {
            Ok(text) => f.write_str(&text),
            // These types have no keys that are no text, which is all that could be wrong with them.
            Err(error) => {
                tracing::error!(%error, "an answer cannot be written down");
                f.write_str("null")
            }
        }
    }
}

/// A code with words for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Coded {
    /// For programs.
    pub(crate) code: String,
    /// For people.
    pub(crate) detail: String,
}
