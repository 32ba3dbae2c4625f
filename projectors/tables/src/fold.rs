//! Folding: what a state is to those who run it.

use gatelog_record::{Domain, EventRecord};

use crate::key::TableKey;
use crate::maps::Maps;
use crate::overlay::Overlay;
use crate::table::{Backing, Factory, TableDef, TableError, TableVisitor, TableVisitorMut};

/// Why an event does not fit the state. Named at the event's position by whoever folds; the fold
/// stops there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldRefused {
    /// It refers to a row that is not there.
    #[error("table {table} has no row {key}")]
    Missing {
        /// The table.
        table: &'static str,
        /// The key.
        key: String,
    },
    /// It makes a row that is there already.
    #[error("table {table} has a row {key} already")]
    Exists {
        /// The table.
        table: &'static str,
        /// The key.
        key: String,
    },
    /// It does not fit what the row says.
    #[error("{0}")]
    Illegal(String),
    /// The tables failed.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl FoldRefused {
    /// A row that is not there.
    pub fn missing<T: TableDef>(key: &T::Key) -> FoldRefused {
        FoldRefused::Missing { table: T::NAME, key: format!("{key:?}") }
    }

    /// A row that is there already.
    pub fn exists<T: TableDef>(key: &T::Key) -> FoldRefused {
        FoldRefused::Exists { table: T::NAME, key: format!("{key:?}") }
    }
}

/// A domain's state, named once for all backings. Implemented by a marker type (`Gate`, `Capacity`).
pub trait DomainState: Send + Sync + 'static {
    /// The domain.
    const DOMAIN: Domain;
    /// Raised whenever the meaning or shape of a live table changes: rungs and stores of another
    /// version are not read but rebuilt from the log.
    const LIVE_SCHEMA: u32;
    /// The same for the temporal tables.
    const READ_SCHEMA: u32;
    /// The live tables: all the writer holds, all a rung keeps.
    type Live<B: Backing>: LiveTables<B>;
    /// The temporal tables, folded on the read side alone.
    type Read<B: Backing>: ReadTables<B, Live = Self::Live<B>>;

    /// The live tables as they are, with changes of their own on top.
    fn overlay(live: &Self::Live<Maps>) -> Self::Live<Overlay<'_>>;
}

/// Tables that can be opened and visited. The `tables!` macro gives a struct the inherent methods
/// these forward to.
pub trait TableSet<B: Backing>: Sized + Send + Sync {
    /// Opens the tables.
    fn open(factory: &mut impl Factory<B>) -> Result<Self, TableError>;
    /// Visits every table in the order of its declaration.
    fn visit(&self, visitor: &mut impl TableVisitor<B>) -> Result<(), TableError>;
    /// Visits every table, open for writing, in the same order.
    fn visit_mut(&mut self, visitor: &mut impl TableVisitorMut<B>) -> Result<(), TableError>;
}

/// The live tables of a domain's partition.
pub trait LiveTables<B: Backing>: TableSet<B> {
    /// Folds one event.
    fn apply(&mut self, record: &EventRecord) -> Result<(), FoldRefused>;
}

/// The temporal tables of a domain's partition. They see the event and the live tables after it.
pub trait ReadTables<B: Backing>: TableSet<B> {
    /// The live tables beside them.
    type Live: LiveTables<B>;
    /// Folds one event, after the live tables have.
    fn apply(&mut self, live: &Self::Live, record: &EventRecord) -> Result<(), FoldRefused>;
}

/// The bytes of a key for people.
pub fn key_hex<K: TableKey>(key: &K) -> String {
    key.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}
