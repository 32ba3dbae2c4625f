//! Tables as ordered maps.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use crate::table::{Backing, Factory, Rows, Table, TableDef, TableError};

/// Ordered maps in memory.
#[derive(Clone, Copy, Debug)]
pub struct Maps;

impl Backing for Maps {
    type Table<T: TableDef> = MapTable<T>;
}

impl Factory<Maps> for Maps {
    fn open<T: TableDef>(&mut self) -> Result<MapTable<T>, TableError> {
        Ok(MapTable::default())
    }
}

/// A table as an ordered map.
#[derive(Clone, Debug, PartialEq)]
pub struct MapTable<T: TableDef> {
    /// The rows.
    pub rows: BTreeMap<T::Key, T::Row>,
}

impl<T: TableDef> Default for MapTable<T> {
    fn default() -> Self {
        MapTable { rows: BTreeMap::new() }
    }
}

/// `BTreeMap::range` panics on a range that ends before it begins; a table's is empty.
pub(crate) fn sound<K: Ord>(from: Bound<&K>, to: Bound<&K>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from <= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from < to,
        _ => true,
    }
}

impl<T: TableDef> Table<T> for MapTable<T> {
    fn get(&self, key: &T::Key) -> Result<Option<Cow<'_, T::Row>>, TableError> {
        Ok(self.rows.get(key).map(Cow::Borrowed))
    }

    fn range(&self, from: Bound<&T::Key>, to: Bound<&T::Key>) -> Result<Rows<'_, T>, TableError> {
        if !sound(from, to) {
            return Ok(Box::new(std::iter::empty()));
        }
        Ok(Box::new(self.rows.range((from, to)).map(|(key, row)| Ok((key.clone(), Cow::Borrowed(row))))))
    }

    fn range_back(&self, from: Bound<&T::Key>, to: Bound<&T::Key>) -> Result<Rows<'_, T>, TableError> {
        if !sound(from, to) {
            return Ok(Box::new(std::iter::empty()));
        }
        Ok(Box::new(self.rows.range((from, to)).rev().map(|(key, row)| Ok((key.clone(), Cow::Borrowed(row))))))
    }

    fn newest(&self, from: &T::Key, to: &T::Key) -> Result<Option<Cow<'_, T::Row>>, TableError> {
        let last = (from <= to).then(|| self.rows.range(from..=to).next_back()).flatten();
        Ok(last.map(|(_, row)| Cow::Borrowed(row)))
    }

    fn put(&mut self, key: T::Key, row: T::Row) -> Result<(), TableError> {
        self.rows.insert(key, row);
        Ok(())
    }

    fn delete(&mut self, key: &T::Key) -> Result<bool, TableError> {
        Ok(self.rows.remove(key).is_some())
    }

    fn change(&mut self, key: &T::Key, change: &mut dyn FnMut(&mut T::Row)) -> Result<bool, TableError> {
        let row = self.rows.get_mut(key);
        let there = row.is_some();
        row.into_iter().for_each(change);
        Ok(there)
    }

    fn take(&mut self, key: &T::Key) -> Result<Option<T::Row>, TableError> {
        Ok(self.rows.remove(key))
    }
}
