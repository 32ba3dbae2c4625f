//! What is on the log.
//!
//! A **record** is an *input* (a fact or request from outside a domain) or an *event* (what gatelog
//! decided, in the past tense). This crate holds their shapes, the bytes they become, and nothing
//! else: it knows no clock, no file, no network, no state and no rule. Everything in the house may
//! depend on it; it depends on nothing in the house.
//!
//! Reading order: [`domains`] (whose records there are), [`topic`] (where they live), [`id`] (how things are named),
//! [`event`] and [`input`] (what is said), [`envelope`] and [`frame`] (how it is written down), [`chain`] (how a
//! record proves what came before it).

pub mod chain;
pub mod codec;
pub mod domains;
pub mod draft;
pub mod envelope;
pub mod event;
pub mod frame;
pub mod frozen;
pub mod id;
pub mod input;
mod kinds;
pub mod level;
pub mod returned;
pub mod sealed;
pub mod time;
pub mod topic;
pub mod value;
mod wire;

pub use chain::ChainLink;
pub use envelope::{Cause, DecisionHeader, Envelope, EventRecord, EventRef, Source};
pub use event::Event;
pub use frame::{InputFrame, InputRecord};
pub use id::{
    ActorId, BlobHash, BuildId, BuildsetId, EventId, InputId, ItemId, LeaseId, NodeId, SiteId, SubjectId, WorkId,
};
pub use input::Input;
pub use kinds::BodyError;
pub use kinds::{KindInfo, KindVersion, Lifecycle};
pub use sealed::Sealed;
pub use time::Timestamp;
pub use topic::{Domain, Partition, Stream};
pub use value::Value;
pub use wire::FrameError;
