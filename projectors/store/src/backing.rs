//! Tables over RocksDB.
//!
//! A live table holds all its rows in memory and writes them through at a commit: folding never
//! reads the database for it. A temporal table reads through, with what is not yet committed on
//! top. Both can go back to the last commit.

use std::borrow::Cow;
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};
use std::iter::Peekable;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use gatelog_record::codec;
use gatelog_tables::table::Rows;
use gatelog_tables::{Backing, Factory, Life, Table, TableDef, TableError, TableKey, TableVisitorMut};
use rocksdb::WriteBatch;

use crate::engine::{Engine, Stored, unreadable};
use crate::error::StoreError;

/// RocksDB.
#[derive(Clone, Copy, Debug)]
pub struct RocksBacking;

impl Backing for RocksBacking {
    type Table<T: TableDef> = RocksTable<T>;
}

/// A table in RocksDB.
#[derive(Debug)]
pub struct RocksTable<T: TableDef> {
    engine: Arc<Engine>,
    rows: Kept<T>,
}

#[derive(Debug)]
enum Kept<T: TableDef> {
    /// All rows, and what the changed ones were at the last commit.
    Live { rows: BTreeMap<T::Key, T::Row>, before: BTreeMap<T::Key, Option<T::Row>> },
    /// The rows changed since the last commit, and those committed lately.
    Temporal { changes: BTreeMap<T::Key, Option<T::Row>>, recent: Recent<T> },
}

/// How many rows of a table are remembered beyond their commit.
const MAX_RECENT: usize = 16_384;

/// Rows as they were committed lately. A fold goes back to the newest row of what it is about again and again:
/// finding it here spares a search through the database. What is forgotten are whole commits, the oldest first, so
/// that whatever was put after a remembered row is remembered too.
#[derive(Debug)]
struct Recent<T: TableDef> {
    /// The row, and the commit that put it last.
    rows: BTreeMap<T::Key, (u64, T::Row)>,
    commits: VecDeque<(u64, Vec<T::Key>)>,
    commit: u64,
}

impl<T: TableDef> Default for Recent<T> {
    fn default() -> Self {
        Recent { rows: BTreeMap::new(), commits: VecDeque::new(), commit: 0 }
    }
}

impl<T: TableDef> Recent<T> {
    /// A commit is there.
    fn take_in(&mut self, changes: BTreeMap<T::Key, Option<T::Row>>) {
        if changes.is_empty() {
            return;
        }
        self.commit += 1;
        let mut keys = Vec::with_capacity(changes.len());
        for (key, row) in changes {
            match row {
                Some(row) => {
                    keys.push(key.clone());
                    self.rows.insert(key, (self.commit, row));
                }
                None => {
                    self.rows.remove(&key);
                }
            }
        }
        self.commits.push_back((self.commit, keys));
        while self.rows.len() > MAX_RECENT {
            let Some((commit, keys)) = self.commits.pop_front() else { break };
            for key in keys {
                if self.rows.get(&key).is_some_and(|(last, _)| *last == commit) {
                    self.rows.remove(&key);
                }
            }
        }
    }
}

/// The bytes of a row's key in the database: the table's number, so that a table's rows stand
/// together, and the key.
fn database_key<T: TableDef>(key: &T::Key) -> Vec<u8> {
    let mut out = Vec::with_capacity(34);
    out.extend_from_slice(&T::ID.to_be_bytes());
    key.write(&mut out);
    out
}

/// The first bytes after all that begin with the table's number; empty when there are none.
fn after_table<T: TableDef>() -> Vec<u8> {
    T::ID.checked_add(1).map(|next| next.to_be_bytes().to_vec()).unwrap_or_default()
}

fn damaged_row<T: TableDef>(key: &[u8], message: String) -> TableError {
    TableError::Row { table: T::NAME, key: hex::encode(key), message }
}

fn read_row<T: TableDef>(key: &[u8], row: &[u8]) -> Result<T::Row, TableError> {
    codec::decode(row).map_err(|error| damaged_row::<T>(key, error.to_string()))
}

fn read_entry<T: TableDef>(entry: Stored) -> Result<(T::Key, T::Row), TableError> {
    let (key, row) = entry.map_err(|error| unreadable(T::NAME, &error))?;
    let bare = key.get(2..).unwrap_or_default();
    let parsed = T::Key::from_bytes(bare).map_err(|error| damaged_row::<T>(bare, error.to_string()))?;
    Ok((parsed, read_row::<T>(bare, &row)?))
}

impl<T: TableDef> RocksTable<T> {
    fn open(engine: Arc<Engine>) -> Result<Self, TableError> {
        let rows = match T::LIFE {
            Life::Temporal => Kept::Temporal { changes: BTreeMap::new(), recent: Recent::default() },
            Life::Live => {
                let mut rows = BTreeMap::new();
                for entry in engine.scan(T::ID.to_be_bytes().to_vec(), after_table::<T>(), false) {
                    let (key, row) = read_entry::<T>(entry)?;
                    rows.insert(key, row);
                }
                Kept::Live { rows, before: BTreeMap::new() }
            }
        };
        Ok(RocksTable { engine, rows })
    }

    fn set(&mut self, key: T::Key, row: Option<T::Row>) {
        match &mut self.rows {
            Kept::Temporal { changes, .. } => {
                changes.insert(key, row);
            }
            Kept::Live { rows, before } => {
                let was = match row {
                    Some(row) => rows.insert(key.clone(), row),
                    None => rows.remove(&key),
                };
                if let Entry::Vacant(first) = before.entry(key) {
                    first.insert(was);
                }
            }
        }
    }

    fn stored(&self, key: &T::Key) -> Result<Option<T::Row>, TableError> {
        let bytes = database_key::<T>(key);
        match self.engine.get(T::NAME, &bytes)? {
            Some(row) => read_row::<T>(bytes.get(2..).unwrap_or_default(), &row).map(Some),
            None => Ok(None),
        }
    }

    fn rows_between(&self, from: Bound<&T::Key>, to: Bound<&T::Key>, backwards: bool) -> Rows<'_, T> {
        if !sound(from, to) {
            return Box::new(std::iter::empty());
        }
        match &self.rows {
            Kept::Live { rows, .. } => {
                let rows = rows.range((from, to)).map(|(key, row)| Ok((key.clone(), Cow::Borrowed(row))));
                if backwards { Box::new(rows.rev()) } else { Box::new(rows) }
            }
            Kept::Temporal { changes, .. } => {
                let low = match from {
                    Bound::Unbounded => T::ID.to_be_bytes().to_vec(),
                    Bound::Included(key) => database_key::<T>(key),
                    Bound::Excluded(key) => next(database_key::<T>(key)),
                };
                let high = match to {
                    Bound::Unbounded => after_table::<T>(),
                    Bound::Included(key) => next(database_key::<T>(key)),
                    Bound::Excluded(key) => database_key::<T>(key),
                };
                let stored = self.engine.scan(low, high, backwards).map(read_entry::<T>);
                let changes = changes.range((from, to));
                if backwards {
                    Box::new(Merged { stored: stored.peekable(), changes: changes.rev().peekable(), backwards })
                } else {
                    Box::new(Merged { stored: stored.peekable(), changes: changes.peekable(), backwards })
                }
            }
        }
    }

    fn write_to(&mut self, batch: &mut WriteBatch) -> Result<(), StoreError> {
        let put = |batch: &mut WriteBatch, key: &T::Key, row: Option<&T::Row>| -> Result<(), StoreError> {
            let bytes = database_key::<T>(key);
            match row {
                Some(row) => {
                    let row = codec::encode(row)
                        .map_err(|error| StoreError::Encode { what: T::NAME, message: error.to_string() })?;
                    batch.put(bytes, row);
                }
                None => batch.delete(bytes),
            }
            Ok(())
        };
        match &self.rows {
            Kept::Temporal { changes, .. } => changes.iter().try_for_each(|(key, row)| put(batch, key, row.as_ref())),
            Kept::Live { rows, before } => before.iter().try_for_each(|(key, was)| {
                let row = rows.get(key);
                if row == was.as_ref() { Ok(()) } else { put(batch, key, row) }
            }),
        }
    }

    fn forget(&mut self) {
        match &mut self.rows {
            Kept::Temporal { changes, recent } if T::GROWS => recent.take_in(std::mem::take(changes)),
            Kept::Temporal { changes, .. } => changes.clear(),
            Kept::Live { before, .. } => before.clear(),
        }
    }

    fn go_back(&mut self) {
        match &mut self.rows {
            Kept::Temporal { changes, .. } => changes.clear(),
            Kept::Live { rows, before } => {
                for (key, was) in std::mem::take(before) {
                    match was {
                        Some(row) => rows.insert(key, row),
                        None => rows.remove(&key),
                    };
                }
            }
        }
    }
}

/// The bytes that come right after these.
fn next(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.push(0);
    bytes
}

/// `BTreeMap::range` panics on a range that ends before it begins; a table's is empty.
fn sound<K: Ord>(from: Bound<&K>, to: Bound<&K>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from <= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from < to,
        _ => true,
    }
}

impl<T: TableDef> Table<T> for RocksTable<T> {
    fn get(&self, key: &T::Key) -> Result<Option<Cow<'_, T::Row>>, TableError> {
        match &self.rows {
            Kept::Live { rows, .. } => Ok(rows.get(key).map(Cow::Borrowed)),
            Kept::Temporal { changes, recent } => match (changes.get(key), recent.rows.get(key)) {
                (Some(change), _) => Ok(change.as_ref().map(Cow::Borrowed)),
                (None, Some((_, row))) => Ok(Some(Cow::Borrowed(row))),
                (None, None) => Ok(self.stored(key)?.map(Cow::Owned)),
            },
        }
    }

    fn range(&self, from: Bound<&T::Key>, to: Bound<&T::Key>) -> Result<Rows<'_, T>, TableError> {
        Ok(self.rows_between(from, to, false))
    }

    fn range_back(&self, from: Bound<&T::Key>, to: Bound<&T::Key>) -> Result<Rows<'_, T>, TableError> {
        Ok(self.rows_between(from, to, true))
    }

    fn newest(&self, from: &T::Key, to: &T::Key) -> Result<Option<Cow<'_, T::Row>>, TableError> {
        if let Kept::Temporal { changes, recent } = &self.rows
            && T::GROWS
            && from <= to
        {
            // A new key is never less than one that is there, so what was put lately hides the rest; whoever was
            // taken out again hides nothing.
            let changed = changes.range(from..=to).next_back();
            let known = recent.rows.range(from..=to).next_back();
            match (changed, known) {
                (Some((key, Some(row))), known) if known.is_none_or(|(other, _)| other <= key) => {
                    return Ok(Some(Cow::Borrowed(row)));
                }
                (None, Some((_, (_, row)))) => return Ok(Some(Cow::Borrowed(row))),
                _ => {}
            }
        }
        let last = self.rows_between(Bound::Included(from), Bound::Included(to), true).next();
        Ok(last.transpose()?.map(|(_, row)| row))
    }

    fn put(&mut self, key: T::Key, row: T::Row) -> Result<(), TableError> {
        self.set(key, Some(row));
        Ok(())
    }

    fn delete(&mut self, key: &T::Key) -> Result<bool, TableError> {
        let there = self.get(key)?.is_some();
        if there {
            self.set(key.clone(), None);
        }
        Ok(there)
    }

    fn change(&mut self, key: &T::Key, change: &mut dyn FnMut(&mut T::Row)) -> Result<bool, TableError> {
        match &mut self.rows {
            Kept::Live { rows, before } => {
                let Some(row) = rows.get_mut(key) else { return Ok(false) };
                if !before.contains_key(key) {
                    before.insert(key.clone(), Some(row.clone()));
                }
                change(row);
            }
            Kept::Temporal { changes, recent } => {
                if let Some(changed) = changes.get_mut(key) {
                    let Some(row) = changed else { return Ok(false) };
                    change(row);
                    return Ok(true);
                }
                let known = recent.rows.get(key).map(|(_, row)| row.clone());
                let row = match known {
                    Some(row) => Some(row),
                    None => self.stored(key)?,
                };
                let Some(mut row) = row else { return Ok(false) };
                change(&mut row);
                self.set(key.clone(), Some(row));
            }
        }
        Ok(true)
    }
}

/// Stored rows with the changes on top, in one direction.
struct Merged<A: Iterator, B: Iterator> {
    stored: Peekable<A>,
    changes: Peekable<B>,
    backwards: bool,
}

type Entries<'t, K, R> = Result<(K, Cow<'t, R>), TableError>;

impl<'t, K, R, A, B> Iterator for Merged<A, B>
where
    K: Ord + Clone + 't,
    R: Clone + 't,
    A: Iterator<Item = Result<(K, R), TableError>>,
    B: Iterator<Item = (&'t K, &'t Option<R>)>,
{
    type Item = Entries<'t, K, R>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let take_stored = match (self.stored.peek(), self.changes.peek()) {
                // An error goes out at once: nothing may be read past it.
                (Some(Err(_)), _) | (Some(_), None) => true,
                (Some(Ok((stored, _))), Some((change, _))) => {
                    let order = if self.backwards { (*change).cmp(stored) } else { stored.cmp(change) };
                    if order.is_eq() {
                        self.stored.next();
                    }
                    order.is_lt()
                }
                (None, Some(_)) => false,
                (None, None) => return None,
            };
            if take_stored {
                return self.stored.next().map(|entry| entry.map(|(key, row)| (key, Cow::Owned(row))));
            }
            if let Some((key, Some(row))) = self.changes.next() {
                return Some(Ok((key.clone(), Cow::Borrowed(row))));
            }
        }
    }
}

/// Opens tables of a database; each number may stand for one table only.
pub(crate) struct Opener {
    engine: Arc<Engine>,
    numbers: BTreeSet<u16>,
}

impl Opener {
    pub fn new(engine: &Arc<Engine>) -> Opener {
        // Number 0 is where the position stands.
        Opener { engine: Arc::clone(engine), numbers: BTreeSet::from([0]) }
    }
}

impl Factory<RocksBacking> for Opener {
    fn open<T: TableDef>(&mut self) -> Result<RocksTable<T>, TableError> {
        if !self.numbers.insert(T::ID) {
            let message =
                format!("its number {} is taken by another table: numbers are unique, 0 is the store's", T::ID);
            return Err(TableError::Store { table: T::NAME, message });
        }
        RocksTable::open(Arc::clone(&self.engine))
    }
}

/// Gathers what changed into a batch.
pub(crate) struct Gather<'b> {
    pub batch: &'b mut WriteBatch,
    pub failed: Option<StoreError>,
}

impl TableVisitorMut<RocksBacking> for Gather<'_> {
    fn visit<T: TableDef>(&mut self, table: &mut RocksTable<T>) -> Result<(), TableError> {
        table.write_to(self.batch).map_err(|error| {
            let message = error.to_string();
            self.failed = Some(error);
            TableError::Store { table: T::NAME, message }
        })
    }
}

/// After a commit: what was changed is now what is stored.
pub(crate) struct Forget;

impl TableVisitorMut<RocksBacking> for Forget {
    fn visit<T: TableDef>(&mut self, table: &mut RocksTable<T>) -> Result<(), TableError> {
        table.forget();
        Ok(())
    }
}

/// Back to the last commit.
pub(crate) struct GoBack;

impl TableVisitorMut<RocksBacking> for GoBack {
    fn visit<T: TableDef>(&mut self, table: &mut RocksTable<T>) -> Result<(), TableError> {
        table.go_back();
        Ok(())
    }
}

/// What a failure to open tables means for the projection in `path`.
pub(crate) fn opening(path: &Path, error: TableError) -> StoreError {
    StoreError::table(path, &error)
}
