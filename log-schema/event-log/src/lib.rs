//! What a log promises, and what it does not.
//!
//! The contract is in [`contract`] (log), [`blobs`] (content-addressed store) and [`presence`] (who is there now):
//! operations, guarantees, non-guarantees, failures. [`history`] says which records are a partition's history;
//! [`memory`] is the implementation for tests and the simulated world; [`conformance`] is the suite
//! that every implementation passes, whatever it is made of; [`failpoint`] names steps between which a test lets a
//! process die. This crate never knows a file, a socket, a clock or a domain's meaning.

pub mod blobs;
pub mod checks;
pub mod conformance;
pub mod contract;
pub mod failpoint;
pub mod history;
pub mod memory;
pub mod pending;
pub mod presence;

pub use blobs::{BlobError, Blobs};
pub use contract::{
    Claim, Description, EventWriter, Log, LogError, MAX_APPEND, MAX_RECORD, Offset, Place, ReadBatch, ReadLimit,
    ReadRecord, Survives,
};
pub use history::{HistoryError, HistoryReader, StaleWriter, Step, Tail};
pub use memory::{MemoryBlobs, MemoryLog};
pub use pending::{Completer, Pending, pending};
pub use presence::{MemoryPresence, Presence, Sign};
