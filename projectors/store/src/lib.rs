//! Stored projections: RocksDB behind the tables, rungs for time travel, checkpoints for the start.
//!
//! One database for each (domain, partition). One write batch holds the rows of all tables and the
//! position they are at ([`Position`]): there is no moment at which state and position disagree,
//! whatever dies. Nothing here is the truth: all of it can be deleted and is folded from the log
//! again, byte for byte.
//!
//! - [`backing`]: [`RocksBacking`], the third backing of tables. Live tables hold their rows in
//!   memory and write them through; temporal tables read through.
//! - [`projection`]: [`Projection`], folding and committing. [`shared`]: reading it beside the fold.
//!   [`staged`]: writing beside the fold, while the log is far ahead.
//! - [`rung`]: the live tables alone at one sequence, as one file.
//! - [`checkpoint`]: copies of the database for a start after damage.
//! - [`layout`]: what lies where; [`known`]: what all of it knows of the log.
//!
//! This crate never knows a log, a thread of its own, a clock, or what a row means.

pub mod backing;
pub mod checkpoint;
mod disk;
mod engine;
mod error;
mod journals;
pub mod known;
pub mod layout;
mod newest;
pub mod position;
pub mod projection;
pub mod rung;
pub mod shared;
pub mod staged;

pub use backing::{RocksBacking, RocksTable};
pub use error::{StoreError, StoreWarning};
pub use known::{Known, known};
pub use layout::Layout;
pub use position::{Position, SchemaVersion};
pub use projection::{Folded, Opened, Projection};
pub use rung::{Rung, RungDir, RungEntry, RungHeader};
pub use shared::{SharedProjection, View};
pub use staged::{Settled, Staged};
