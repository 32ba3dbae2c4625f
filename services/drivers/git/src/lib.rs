//! The plain-git forge: proposes, approves, reports and merges with nothing but git.
//!
//! A site without a code-review system keeps bare repositories in one directory, and people use
//! them with git alone:
//!
//! | to | push |
//! |---|---|
//! | propose change `fix` for `master` | `git push origin HEAD:refs/for/master/fix` |
//! | push a new patchset of it | the same again (with `--force` after amending) |
//! | approve what was proposed | `git push origin HEAD:refs/approved/master/fix` |
//! | take the approval back | `git push origin :refs/approved/master/fix` |
//! | abandon it | `git push origin :refs/for/master/fix` |
//! | read what the gate says | `git fetch origin refs/notes/gatelog:refs/notes/gatelog && git log --notes=gatelog` |
//!
//! The last part of the ref is the change's name, all before it is the branch, so branches may have
//! slashes and changes may not. An approval counts for the commit it names and no other.
//!
//! A synchronous library. [`Forge`] must never know pipelines, tenants or jobs: it turns refs into
//! [`ForgeEvent`]s and [`ChangeFacts`], and verdicts into merges ([`Forge::submit`]) and notes
//! ([`Forge::report`]). Everything it has to remember is in the repositories themselves, under
//! `refs/gatelog/`, where pushes are refused; a server that lost everything else finds it again.
//! [`DRIVER`] is the forge as a connection of a site, in the words of the contract of drivers.
//!
//! # What is promised
//!
//! A branch moves only from the commit that was expected, in one step, and its reflog names gatelog
//! and the work. Repeating a submit or a report, also after a crash at any moment, changes nothing
//! more. Events of a poll depend on the refs and the snapshot given, so a repeated poll repeats
//! their delivery ids.
//!
//! # What is not promised
//!
//! What came and went between two polls is not seen, except patchsets, which are counted from the
//! ref's log. Nobody is authenticated: who may push may approve; keep the directory's permissions.

mod change;
mod connection;
mod error;
mod facts;
mod forge;
mod intake;
mod meaning;
mod notify;
mod objects;
mod patchsets;
mod poll;
mod query;
mod refs;
mod report;
mod schema;
mod settings;
mod setup;
mod submit;

pub use change::ChangeKey;
pub use connection::GitConnection;
pub use error::ForgeError;
pub use forge::{Forge, ForgeConfig, Identity, Limits};
pub use meaning::{Meaningless, PushedTo, RefUpdate, Refusal};
pub use notify::Notifier;
pub use poll::{EventKind, ForgeEvent, IgnoredApproval, RefSnapshot};
pub use query::{Approval, ChangeFacts, Closure, Resolution, Unresolved};
pub use report::{Report, ReportRequest};
pub use schema::SCHEMA;
pub use settings::{DRIVER, GitSettings};
pub use setup::{HookProgram, HookTrouble, SetUp};
pub use submit::{SubmitOutcome, SubmitRequest, SubmittedChange};
