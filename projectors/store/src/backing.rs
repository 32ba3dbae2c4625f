//! Tables over RocksDB.
//!
//! A live table holds all its rows in memory and writes them through at a commit: folding never
//! reads the database for it. A temporal table reads through, with what is not yet written on
//! top. Both can go back to the last commit, or to where their rows were last handed over to be
//! written beside the fold ([`crate::staged`]).

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::iter::Peekable;
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use gatelog_record::codec;
use gatelog_tables::table::Rows;
use gatelog_tables::{Backing, Factory, Life, Table, TableDef, TableError, TableKey, TableVisitorMut};

use crate::engine::{Engine, Stored, unreadable};
use crate::error::StoreError;
use crate::newest::{Found, Newest};
use crate::staged::{Sink, TableRows};

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

/// Rows that changed. They are shared with whoever writes them.
type Changes<T> = BTreeMap<<T as TableDef>::Key, Change<<T as TableDef>::Row>>;

/// What became of a row.
#[derive(Debug)]
enum Change<R> {
    /// It was put, or is another now.
    Row(Arc<R>),
    /// The same, as its bytes: nobody changes it any more.
    Written(Vec<u8>),
    /// It was taken away.
    Gone,
}

impl<R> From<Option<Arc<R>>> for Change<R> {
    fn from(row: Option<Arc<R>>) -> Self {
        row.map_or(Change::Gone, Change::Row)
    }
}

impl<R: Clone> Change<R> {
    fn read<T: TableDef<Row = R>>(&self, key: &T::Key) -> Result<Option<Cow<'_, R>>, TableError> {
        match self {
            Change::Row(row) => Ok(Some(Cow::Borrowed(row.as_ref()))),
            Change::Written(bytes) => read_row::<T>(&key.to_bytes(), bytes).map(|row| Some(Cow::Owned(row))),
            Change::Gone => Ok(None),
        }
    }
}

#[derive(Debug)]
enum Kept<T: TableDef> {
    /// All rows, and what the changed ones were before.
    Live { rows: BTreeMap<T::Key, Arc<T::Row>>, before: BTreeMap<T::Key, Option<Arc<T::Row>>> },
    /// The rows changed, those handed over to be written, and what is known of what is stored.
    Temporal { changes: Changes<T>, staged: Option<Arc<Changes<T>>>, newest: Newest<T> },
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

fn shared<R: Clone>(row: Option<Cow<'_, R>>) -> Option<Arc<R>> {
    row.map(|row| Arc::new(row.into_owned()))
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
        let scan = || engine.scan(T::ID.to_be_bytes().to_vec(), after_table::<T>(), false);
        let rows = match T::LIFE {
            Life::Temporal => {
                let empty = T::GROWS && scan().next().is_none();
                Kept::Temporal { changes: BTreeMap::new(), staged: None, newest: Newest::new(empty) }
            }
            Life::Live => {
                let rows = scan().map(|entry| read_entry::<T>(entry).map(|(key, row)| (key, Arc::new(row))));
                Kept::Live { rows: rows.collect::<Result<_, _>>()?, before: BTreeMap::new() }
            }
        };
        Ok(RocksTable { engine, rows })
    }

    fn set(&mut self, key: T::Key, row: Option<Arc<T::Row>>) {
        match &mut self.rows {
            Kept::Temporal { changes, newest, .. } => {
                if T::GROWS {
                    match &row {
                        Some(row) => newest.put(key.clone(), Arc::clone(row)),
                        None => newest.doubt(&key),
                    }
                }
                changes.insert(key, row.into());
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
                let rows = rows.range((from, to)).map(|(key, row)| Ok((key.clone(), Cow::Borrowed(row.as_ref()))));
                if backwards { Box::new(rows.rev()) } else { Box::new(rows) }
            }
            Kept::Temporal { changes, staged, .. } => {
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
                let stored = stored.map(|entry| entry.map(|(key, row)| (key, Cow::Owned(row))));
                let staged = staged.as_deref().map(|staged| directed(staged, from, to, backwards));
                let staged = staged.into_iter().flatten();
                let changes = directed(changes, from, to, backwards);
                let stored = Merged::<T, _, _>::new(stored, staged, backwards);
                Box::new(Merged::<T, _, _>::new(stored, changes, backwards))
            }
        }
    }

    /// Writes what changed.
    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), StoreError> {
        match &self.rows {
            Kept::Temporal { changes, .. } => {
                changes.iter().try_for_each(|(key, change)| write_change::<T>(sink, key, change))
            }
            Kept::Live { rows, before } => before.iter().try_for_each(|(key, was)| {
                let row = rows.get(key);
                if row == was.as_ref() { Ok(()) } else { write_change::<T>(sink, key, &row.map(Arc::clone).into()) }
            }),
        }
    }

    /// What changed is stored now.
    fn forget(&mut self) {
        match &mut self.rows {
            Kept::Temporal { changes, .. } => changes.clear(),
            Kept::Live { before, .. } => before.clear(),
        }
    }

    /// Hands over what changed.
    fn stage(&mut self) -> Box<dyn TableRows> {
        let rows = match &mut self.rows {
            Kept::Temporal { changes, staged, .. } => {
                let handed = Arc::new(std::mem::take(changes));
                *staged = Some(Arc::clone(&handed));
                handed
            }
            Kept::Live { rows, before } => Arc::new(
                std::mem::take(before)
                    .into_iter()
                    .filter_map(|(key, was)| {
                        let row = rows.get(&key);
                        (row != was.as_ref()).then(|| (key, row.map(Arc::clone).into()))
                    })
                    .collect(),
            ),
        };
        Box::new(Handed::<T> { rows })
    }

    /// What was handed over is stored now.
    fn settle(&mut self) -> Option<Arc<Changes<T>>> {
        match &mut self.rows {
            Kept::Temporal { staged, .. } => staged.take(),
            Kept::Live { .. } => None,
        }
    }

    fn go_back(&mut self) {
        match &mut self.rows {
            Kept::Temporal { changes, newest, .. } => {
                for (key, _) in std::mem::take(changes) {
                    newest.doubt(&key);
                }
            }
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

/// One row into what is written.
fn write_change<T: TableDef>(sink: &mut dyn Sink, key: &T::Key, change: &Change<T::Row>) -> Result<(), StoreError> {
    let bytes = database_key::<T>(key);
    match change {
        Change::Row(row) => {
            let row = codec::encode(row.as_ref())
                .map_err(|error| StoreError::Encode { what: T::NAME, message: error.to_string() })?;
            sink.put(&bytes, &row)
        }
        Change::Written(row) => sink.put(&bytes, row),
        Change::Gone => sink.delete(&bytes),
    }
}

/// A table's rows on their way into the database.
struct Handed<T: TableDef> {
    rows: Arc<Changes<T>>,
}

impl<T: TableDef> TableRows for Handed<T> {
    fn number(&self) -> u16 {
        T::ID
    }

    fn write(&self, sink: &mut dyn Sink) -> Result<(), StoreError> {
        self.rows.iter().try_for_each(|(key, change)| write_change::<T>(sink, key, change))
    }
}

/// Changes between two keys, in one direction.
fn directed<'t, K: Ord, R>(
    changes: &'t BTreeMap<K, Change<R>>,
    from: Bound<&K>,
    to: Bound<&K>,
    backwards: bool,
) -> Box<dyn Iterator<Item = (&'t K, &'t Change<R>)> + 't> {
    let range = changes.range((from, to));
    if backwards { Box::new(range.rev()) } else { Box::new(range) }
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
            Kept::Live { rows, .. } => Ok(rows.get(key).map(|row| Cow::Borrowed(row.as_ref()))),
            Kept::Temporal { changes, staged, newest } => {
                if T::GROWS {
                    match newest.get(key) {
                        Found::Row(row) => return Ok(Some(Cow::Borrowed(row))),
                        Found::Nothing => return Ok(None),
                        Found::Unknown => {}
                    }
                }
                let changed = changes.get(key).or_else(|| staged.as_ref().and_then(|staged| staged.get(key)));
                match changed {
                    Some(change) => change.read::<T>(key),
                    None => Ok(self.stored(key)?.map(Cow::Owned)),
                }
            }
        }
    }

    fn range(&self, from: Bound<&T::Key>, to: Bound<&T::Key>) -> Result<Rows<'_, T>, TableError> {
        Ok(self.rows_between(from, to, false))
    }

    fn range_back(&self, from: Bound<&T::Key>, to: Bound<&T::Key>) -> Result<Rows<'_, T>, TableError> {
        Ok(self.rows_between(from, to, true))
    }

    fn newest(&self, from: &T::Key, to: &T::Key) -> Result<Option<Cow<'_, T::Row>>, TableError> {
        if let Kept::Temporal { newest, .. } = &self.rows
            && T::GROWS
            && from <= to
        {
            match newest.between(from, to) {
                Found::Row(row) => return Ok(Some(Cow::Borrowed(row))),
                Found::Nothing => return Ok(None),
                Found::Unknown => {}
            }
        }
        let last = self.rows_between(Bound::Included(from), Bound::Included(to), true).next();
        Ok(last.transpose()?.map(|(_, row)| row))
    }

    fn put(&mut self, key: T::Key, row: T::Row) -> Result<(), TableError> {
        self.set(key, Some(Arc::new(row)));
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
                    before.insert(key.clone(), Some(Arc::clone(row)));
                }
                change(Arc::make_mut(row));
            }
            Kept::Temporal { changes, staged, newest } => {
                // Whoever else holds the row sees it as it was; if nobody does, it is changed where it stands.
                let lent = if T::GROWS { newest.lend(key) } else { None };
                let changed = changes.get_mut(key).map(|change| std::mem::replace(change, Change::Gone));
                let handed = staged.as_ref().and_then(|staged| staged.get(key));
                let row = match (lent, changed, handed) {
                    (Some(row), _, _) | (None, Some(Change::Row(row)), _) => Some(row),
                    (None, None, Some(Change::Row(row))) => Some(Arc::clone(row)),
                    (None, Some(change), _) => shared(change.read::<T>(key)?),
                    (None, None, Some(change)) => shared(change.read::<T>(key)?),
                    (None, None, None) => self.stored(key)?.map(Arc::new),
                };
                let Some(mut row) = row else { return Ok(false) };
                change(Arc::make_mut(&mut row));
                self.set(key.clone(), Some(row));
            }
        }
        Ok(true)
    }

    fn succeed(
        &mut self,
        key: &T::Key,
        next: T::Key,
        end: &mut dyn FnMut(&mut T::Row),
        begin: &mut dyn FnMut(&mut T::Row) -> bool,
    ) -> Result<bool, TableError> {
        let lent = match &mut self.rows {
            Kept::Temporal { newest, .. } if T::GROWS => newest.lend(key),
            _ => None,
        };
        let row = match lent {
            Some(row) => Some(row),
            None => self.get(key)?.map(|row| Arc::new(row.into_owned())),
        };
        let Some(mut row) = row else { return Ok(false) };
        if let Kept::Temporal { changes, .. } = &mut self.rows {
            // What ends is written down at once, so that the row itself goes on without a copy, unless somebody else
            // holds it still.
            let slot = changes.entry(key.clone()).or_insert(Change::Gone);
            *slot = Change::Gone;
            end(Arc::make_mut(&mut row));
            let written = codec::encode(row.as_ref())
                .map_err(|error| TableError::Store { table: T::NAME, message: error.to_string() })?;
            *slot = Change::Written(written);
        } else {
            end(Arc::make_mut(&mut row));
            self.set(key.clone(), Some(Arc::clone(&row)));
        }
        if begin(Arc::make_mut(&mut row)) {
            self.set(next, Some(row));
        }
        Ok(true)
    }
}

/// Rows with changes on top, in one direction.
struct Merged<T, A: Iterator, B: Iterator> {
    below: Peekable<A>,
    changes: Peekable<B>,
    backwards: bool,
    table: PhantomData<T>,
}

impl<T, A: Iterator, B: Iterator> Merged<T, A, B> {
    fn new(below: A, changes: B, backwards: bool) -> Self {
        Merged { below: below.peekable(), changes: changes.peekable(), backwards, table: PhantomData }
    }
}

type Entries<'t, K, R> = Result<(K, Cow<'t, R>), TableError>;

impl<'t, T, A, B> Iterator for Merged<T, A, B>
where
    T: TableDef,
    A: Iterator<Item = Entries<'t, T::Key, T::Row>>,
    B: Iterator<Item = (&'t T::Key, &'t Change<T::Row>)>,
{
    type Item = Entries<'t, T::Key, T::Row>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let take_below = match (self.below.peek(), self.changes.peek()) {
                // An error goes out at once: nothing may be read past it.
                (Some(Err(_)), _) | (Some(_), None) => true,
                (Some(Ok((below, _))), Some((change, _))) => {
                    let order = if self.backwards { (*change).cmp(below) } else { below.cmp(change) };
                    if order.is_eq() {
                        self.below.next();
                    }
                    order.is_lt()
                }
                (None, Some(_)) => false,
                (None, None) => return None,
            };
            if take_below {
                return self.below.next();
            }
            let (key, change) = self.changes.next()?;
            match change.read::<T>(key) {
                Ok(Some(row)) => return Some(Ok((key.clone(), row))),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
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

/// Gathers what changed.
pub(crate) struct Gather<'b> {
    pub sink: &'b mut dyn Sink,
    pub failed: Option<StoreError>,
}

impl TableVisitorMut<RocksBacking> for Gather<'_> {
    fn visit<T: TableDef>(&mut self, table: &mut RocksTable<T>) -> Result<(), TableError> {
        table.write_to(self.sink).map_err(|error| {
            let message = error.to_string();
            self.failed = Some(error);
            TableError::Store { table: T::NAME, message }
        })
    }
}

/// Hands over what changed, to be written beside the fold.
#[derive(Default)]
pub(crate) struct Stage {
    pub tables: Vec<Box<dyn TableRows>>,
}

impl TableVisitorMut<RocksBacking> for Stage {
    fn visit<T: TableDef>(&mut self, table: &mut RocksTable<T>) -> Result<(), TableError> {
        self.tables.push(table.stage());
        Ok(())
    }
}

/// What was handed over is stored.
#[derive(Default)]
pub(crate) struct Settle {
    /// Rows that nobody needs any more.
    pub rows: Vec<Box<dyn Any + Send>>,
}

impl TableVisitorMut<RocksBacking> for Settle {
    fn visit<T: TableDef>(&mut self, table: &mut RocksTable<T>) -> Result<(), TableError> {
        if let Some(rows) = table.settle() {
            self.rows.push(Box::new(rows));
        }
        Ok(())
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
