//! Proof of what is on a log, for those who do not have it.
//!
//! The chain ([`gatelog_record::chain`]) says that nothing before an event was changed; to see it, one needs every
//! record. Beside it stands a **tree** ([`tree`], RFC 6962's): a leaf for each event, made of what events are chosen by
//! (time, kind, actor, key) and of its link. Who knows the tree's nodes at some sequence can be shown any events before
//! it, and shown of those left out that they are others, without being given them.
//!
//! - A [`Checkpoint`] names link and tree of a partition at a sequence and is signed by the site. Published outside, it
//!   holds the site to its past: no later log that differs before that sequence can agree with it.
//! - An export ([`export`]) is one text file: chosen events whole, the leaves of those left out between them, nodes
//!   for all that lies outside of the range, the checkpoints on the way, and the site's signature over everything.
//!   [`Verifier`] reads it without any log.
//!
//! What an export proves, and what it does not, is on [`verify`]. Signing and checking signatures is the caller's:
//! nothing here knows a key's private half, a clock or a file.

pub mod checkpoint;
pub mod export;
pub mod selection;
pub mod tree;
pub mod verify;

pub use checkpoint::{Check, Checkpoint, KeyId, NoteError, PublicKey, Sign, SignedCheckpoint};
pub use export::{ExportError, Exported, Signing, export};
pub use selection::{Bound, Selection};
pub use tree::{Frontier, Hash, Leaf};
pub use verify::{Fault, Found, Section, Spot, Verified, Verifier, Wrong};
