//! Tables, typed, over any backing.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Bound;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fold::FoldRefused;
use crate::key::TableKey;

/// How long a table's rows live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Bounded by what is going on; held by the writer, kept in rungs.
    Live,
    /// Only grows; filled on the read side alone.
    Temporal,
}

/// What a table is.
pub trait TableDef: Debug + Send + Sync + 'static {
    /// Its number in stores and rungs: unique within a domain, never reused.
    const ID: u16;
    /// Its name.
    const NAME: &'static str;
    /// How long its rows live.
    const LIFE: Life;
    /// Whether a new key always comes after all keys that [`Table::newest`] may be asked about together with it (those
    /// of its subject): its last eight bytes are the number of the event that put it, what stands before them is the
    /// subject. Of a subject's rows only the newest is ever replaced, changed or, by the event that put it, taken away.
    const GROWS: bool = false;
    /// Its key; the order of keys is the order of their bytes.
    type Key: TableKey;
    /// Its row.
    type Row: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// Why a table could not be read or written. Maps never fail; a store may.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The store failed.
    #[error("table {table}: {message}")]
    Store {
        /// The table.
        table: &'static str,
        /// What the store said.
        message: String,
    },
    /// A row cannot be read.
    #[error(
        "table {table}: the row at key {key} is damaged: {message}; delete the projection, it is rebuilt from the log"
    )]
    Row {
        /// The table.
        table: &'static str,
        /// The key, in hex.
        key: String,
        /// What is wrong.
        message: String,
    },
}

/// An iterator over rows, in key order.
pub type Rows<'a, T> =
    Box<dyn Iterator<Item = Result<(<T as TableDef>::Key, Cow<'a, <T as TableDef>::Row>), TableError>> + 'a>;

/// One table.
pub trait Table<T: TableDef> {
    /// The row of a key.
    fn get(&self, key: &T::Key) -> Result<Option<Cow<'_, T::Row>>, TableError>;
    /// The rows between two keys, in key order.
    fn range(&self, from: Bound<&T::Key>, to: Bound<&T::Key>) -> Result<Rows<'_, T>, TableError>;
    /// The rows between two keys, backwards.
    fn range_back(&self, from: Bound<&T::Key>, to: Bound<&T::Key>) -> Result<Rows<'_, T>, TableError>;
    /// The last row between two keys, both included.
    fn newest(&self, from: &T::Key, to: &T::Key) -> Result<Option<Cow<'_, T::Row>>, TableError> {
        let last = self.range_back(Bound::Included(from), Bound::Included(to))?.next();
        Ok(last.transpose()?.map(|(_, row)| row))
    }

    /// Puts a row in, in place of the one that was there.
    fn put(&mut self, key: T::Key, row: T::Row) -> Result<(), TableError>;
    /// Takes a row out; says whether there was one.
    fn delete(&mut self, key: &T::Key) -> Result<bool, TableError>;

    /// Changes a row where it stands; says whether there was one. A backing that holds its rows need not copy them.
    fn change(&mut self, key: &T::Key, change: &mut dyn FnMut(&mut T::Row)) -> Result<bool, TableError> {
        let Some(mut row) = self.get(key)?.map(Cow::into_owned) else { return Ok(false) };
        change(&mut row);
        self.put(key.clone(), row)?;
        Ok(true)
    }

    /// The row of `key` stays as `end` leaves it, and another goes on from it under the key `next`, as `begin` makes
    /// it of the ended one; says whether there was one. A backing need not copy the row. Where `begin` says no, its event
    /// is refused, and what the tables hold is taken back with it.
    fn succeed(
        &mut self,
        key: &T::Key,
        next: T::Key,
        end: &mut dyn FnMut(&mut T::Row),
        begin: &mut dyn FnMut(&mut T::Row) -> bool,
    ) -> Result<bool, TableError> {
        let Some(mut row) = self.get(key)?.map(Cow::into_owned) else { return Ok(false) };
        end(&mut row);
        let ended = row.clone();
        if begin(&mut row) {
            self.put(key.clone(), ended)?;
            self.put(next, row)?;
        }
        Ok(true)
    }

    /// Takes a row out and gives it.
    fn take(&mut self, key: &T::Key) -> Result<Option<T::Row>, TableError> {
        let row = self.get(key)?.map(Cow::into_owned);
        if row.is_some() {
            self.delete(key)?;
        }
        Ok(row)
    }
}

/// What folds say most often. An event that refers to a missing row, or makes one that is there, is
/// a [`FoldRefused`], never a silent no-op.
pub trait TableExt<T: TableDef>: Table<T> {
    /// The row, which must be there.
    fn need(&self, key: &T::Key) -> Result<Cow<'_, T::Row>, FoldRefused> {
        self.get(key)?.ok_or_else(|| FoldRefused::missing::<T>(key))
    }

    /// A new row; there must be none of this key.
    fn insert(&mut self, key: T::Key, row: T::Row) -> Result<(), FoldRefused> {
        if self.get(&key)?.is_some() {
            return Err(FoldRefused::exists::<T>(&key));
        }
        Ok(self.put(key, row)?)
    }

    /// Changes a row, which must be there.
    fn update(&mut self, key: &T::Key, change: impl FnOnce(&mut T::Row)) -> Result<(), FoldRefused> {
        let mut once = Some(change);
        let there = self.change(key, &mut |row| {
            if let Some(change) = once.take() {
                change(row);
            }
        })?;
        if there { Ok(()) } else { Err(FoldRefused::missing::<T>(key)) }
    }

    /// Takes out a row, which must be there, and gives it.
    fn remove(&mut self, key: &T::Key) -> Result<T::Row, FoldRefused> {
        self.take(key)?.ok_or_else(|| FoldRefused::missing::<T>(key))
    }

    /// Every row, in key order.
    fn all(&self) -> Result<Rows<'_, T>, TableError> {
        self.range(Bound::Unbounded, Bound::Unbounded)
    }
}

impl<T: TableDef, X: Table<T> + ?Sized> TableExt<T> for X {}

/// What tables are made of. Tables can be handed to and read from any thread.
pub trait Backing {
    /// A table of this backing.
    type Table<T: TableDef>: Table<T> + Send + Sync;
}

/// Makes the tables of a backing.
pub trait Factory<B: Backing> {
    /// Opens a table, empty or with what it held.
    fn open<T: TableDef>(&mut self) -> Result<B::Table<T>, TableError>;
}

/// Visits every table of a state in the order of its declaration (for digests, rungs, copies).
pub trait TableVisitor<B: Backing> {
    /// One table.
    fn visit<T: TableDef>(&mut self, table: &B::Table<T>) -> Result<(), TableError>;
}

/// Like [`TableVisitor`], with the tables open for writing (for commits and restores).
pub trait TableVisitorMut<B: Backing> {
    /// One table.
    fn visit<T: TableDef>(&mut self, table: &mut B::Table<T>) -> Result<(), TableError>;
}

/// Declares the tables of a state: `tables! { pub struct Name { field: Def, … } }` gives a struct
/// over any backing with `open`, `visit`, `visit_mut` and `overlay`.
#[macro_export]
macro_rules! tables {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$fdoc:meta])* $field:ident: $def:ty),* $(,)? }) => {
        $(#[$doc])*
        pub struct $name<B: $crate::Backing> {
            $($(#[$fdoc])* pub $field: B::Table<$def>,)*
        }

        impl<B: $crate::Backing> $crate::fold::TableSet<B> for $name<B> {
            fn open(factory: &mut impl $crate::Factory<B>) -> Result<Self, $crate::TableError> {
                Ok($name { $($field: factory.open::<$def>()?,)* })
            }

            fn visit(&self, visitor: &mut impl $crate::TableVisitor<B>) -> Result<(), $crate::TableError> {
                $(visitor.visit::<$def>(&self.$field)?;)*
                Ok(())
            }

            fn visit_mut(
                &mut self,
                visitor: &mut impl $crate::table::TableVisitorMut<B>,
            ) -> Result<(), $crate::TableError> {
                $(visitor.visit::<$def>(&mut self.$field)?;)*
                Ok(())
            }
        }

        impl $name<$crate::Maps> {
            /// Empty tables in memory.
            pub fn in_memory() -> Self {
                $name { $($field: Default::default(),)* }
            }

            /// The same tables, for reading, with changes of their own on top.
            pub fn overlay(&self) -> $name<$crate::Overlay<'_>> {
                $name { $($field: $crate::overlay::OverlayTable::over(&self.$field),)* }
            }
        }
    };
}
