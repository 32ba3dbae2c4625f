//! The one shell around decide: inbox, dedup, term, context, fold, append, outbox, timers.
//!
//! [`Shell`] is the machine without a thread: one input in, records out. [`Writer`] runs it on its own
//! thread against a log and is crash-only. [`TimerService`] tells a partition that its timers came
//! due, [`Forwarder`] carries its outbox to others; both live by what the writer makes known in
//! [`Published`] and do nothing but append inputs. [`Host`] is the three of them together.
//!
//! This crate knows no domain: rules and state come in by their traits.

mod clock;
mod error;
mod forwarder;
mod host;
mod inputs;
mod panics;
mod published;
mod receivers;
mod recover;
mod shell;
mod signal;
mod timers;
mod waits;
mod writer;

pub use clock::{Clock, LogTime, ManualClock, SystemClock, Times};
pub use error::WriterError;
pub use forwarder::Forwarder;
pub use host::Host;
pub use published::{News, OutboxKey, Published, TimerEntry, WriterHealth, WriterState, YellowReason};
pub use receivers::{Directory, Followed, Receiver};
pub use recover::Initial;
pub use shell::{
    Append, Outside, PartitionOf, RulesFactory, Shell, ShellError, event_ids, outcome_of, registry_digest,
};
pub use signal::Signal;
pub use timers::TimerService;
pub use waits::{Decided, Outcome, TooManyWait, WaitRegistry};
pub use writer::{InitialState, Options, Setup, Writer};
