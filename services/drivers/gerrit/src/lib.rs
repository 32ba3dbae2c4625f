//! Gerrit as a code-review system: its events, what it knows of changes, reports, submits.
//!
//! | module | what |
//! |---|---|
//! | [`Event`], [`Reading`] | the lines of `gerrit stream-events`, and what Zuul reads from them |
//! | [`EventStream`] | those lines, over the ssh program |
//! | [`Intake`], [`Place`] | events in order, each under an id that is the same whoever listens; what was missed is fetched |
//! | [`Gerrit`] | questions: changes, closures, `Depends-On` both ways, topics, stacks, branches, permissions; reports |
//! | [`Submitter`] | merging, with the commit and tree in which each change landed |
//! | [`Git`] | the git program with the connection's credentials |
//! | [`DRIVER`], [`GerritConnection`] | all of it in the words of the contract of drivers |
//!
//! A blocking library with explicit time limits. It must never know the log, tenants or jobs, nor other drivers.
//!
//! # What is promised
//!
//! An event has the same id whether the stream told it or it was found afterwards, and after a gap of any length
//! everything that happened to a visible change is told. A report asked for twice is told once, and a submit asked for
//! twice merges once, also after a crash in between. Nothing is submitted on a branch that is not what was tested on,
//! nor together with changes that were not; and what Gerrit made of it is compared with what was tested.
//!
//! # What is not promised
//!
//! Between two looks at a branch, movements there and back are not seen, unless the stream told of them. Between the look
//! at a branch and Gerrit's merge somebody else may merge: that shows in the tree afterwards. Events without a message
//! (`reviewer-added`, a topic set by the push) are not fetched after a gap; no trigger of Zuul's is among them. A change
//! that was private or deleted when it was looked for is as if it did not exist.

mod catchup;
mod change;
mod client;
mod closure;
mod config;
mod connection;
mod depends;
mod error;
mod events;
mod facts;
mod fields;
mod git;
mod hearing;
mod http;
mod intake;
mod pairing;
mod place;
mod reading;
mod report;
mod schema;
mod settings;
mod stream;
mod submit;
#[cfg(test)]
mod testing;

pub use change::{Change, ChangeName, NotMergeable, SubmitRequirement, Vote};
pub use client::{Access, Gerrit, Ref, RelatedChange, ServerInfo};
pub use closure::{Closure, InClosure};
pub use config::{GerritConfig, Limits, SshConfig};
pub use connection::GerritConnection;
pub use depends::{Need, change_of_address, depends_on_lines, need, needs};
pub use error::GerritError;
pub use events::{
    Account, Event, EventChange, EventKind, EventPatchset, EventVote, LINE_MAX, RefUpdate, read, read_line,
};
pub use git::Git;
pub use intake::{Batch, Delivery, Intake, IntakeSettings};
pub use place::{LastOfChange, Place, RefPlace};
pub use reading::Reading;
pub use report::{COMMENT_MAX, COMMENTS_MAX, InlineComment, MESSAGE_MAX, Place as CommentPlace, Report, Reported};
pub use schema::SCHEMA;
pub use settings::{DRIVER, GerritSettings, SubmitBy};
pub use stream::{EventStream, Received};
pub use submit::{Landed, Mode, SubmitTarget, Submitted, Submitter};
