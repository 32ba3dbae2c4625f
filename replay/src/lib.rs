//! Replay: what the log is for.
//!
//! - [`timeline`]: [`Timeline`], a partition's state at any position or time, from the nearest rung
//!   and a fold, or from the first event.
//! - [`cut`]: positions of all partitions that belong together at a time: no effect without its cause.
//! - [`domains`]: the list of domains that all this is of, each with its rules and words.
//! - [`causes`]: from any event back to what came from outside.
//! - [`diff`]: what differs between two moments.
//! - [`step`]: a debugger: event by event, forwards and back.
//! - [`verify`]: chain, fold and rungs checked over the whole history.
//! - [`layouts`]: layouts and job graphs made again.
//! - [`redecide`]: recorded inputs through the rules again; a difference is a bug.
//! - [`waits`]: what everything waits for, and what ends it.
//! - [`what_if`]: the same with something otherwise, and what would have come of it.
//!
//! All of it reads; nothing here appends, and no answer depends on when it is asked. It works on a
//! running site's log and on one that is open for reading only.

pub mod causes;
pub mod cut;
pub mod diff;
pub mod domains;
mod error;
pub mod explain;
pub mod layouts;
mod reading;
pub mod redecide;
mod sealed;
pub mod step;
pub mod timeline;
pub mod verify;
pub mod waits;
pub mod what_if;

pub use causes::{CauseStep, causes};
pub use cut::{Cut, cut_at};
pub use diff::{Comparison, Place, compare};
pub use domains::{Domains, ReplayDomain, Words, domains};
pub use error::ReplayError;
pub use redecide::{Difference, Redecided, redecide};
pub use timeline::{At, Full, Moment, Timeline};
pub use verify::{Verified, verify};
