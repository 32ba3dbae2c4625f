//! What a fold may say to its tables.
//!
//! `apply` is written against [`Backing`]: the same code fills ordered maps ([`maps`]: the writer's
//! state, tests, rungs), an overlay over them ([`overlay`]: a decision's own events before they are
//! appended) and RocksDB (`gatelog-store`). This crate never knows what a row means, a file, a clock.

pub mod digest;
pub mod fold;
pub mod key;
pub mod maps;
pub mod overlay;
pub mod table;

pub use fold::{DomainState, FoldRefused, LiveTables, ReadTables, TableSet};
pub use key::{KeyError, TableKey};
pub use maps::{MapTable, Maps};
pub use overlay::{Overlay, OverlayTable};
pub use table::{Backing, Factory, Life, Table, TableDef, TableError, TableExt, TableVisitor, TableVisitorMut};
