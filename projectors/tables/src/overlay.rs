//! Changes on top of tables that stay as they are: what a decision sees of its own events.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::marker::PhantomData;
use std::ops::Bound;

use crate::maps::{MapTable, sound};
use crate::table::{Backing, Rows, Table, TableDef, TableError};

/// An overlay over [`crate::Maps`].
#[derive(Clone, Copy, Debug)]
pub struct Overlay<'a>(PhantomData<&'a ()>);

impl<'a> Backing for Overlay<'a> {
    type Table<T: TableDef> = OverlayTable<'a, T>;
}

/// A table with changes of its own on top.
#[derive(Debug)]
pub struct OverlayTable<'a, T: TableDef> {
    base: &'a MapTable<T>,
    changes: BTreeMap<T::Key, Option<T::Row>>,
}

impl<'a, T: TableDef> OverlayTable<'a, T> {
    /// No changes yet.
    pub fn over(base: &'a MapTable<T>) -> Self {
        OverlayTable { base, changes: BTreeMap::new() }
    }

    /// The row of a key. What `decide` uses: it cannot fail.
    pub fn row(&self, key: &T::Key) -> Option<&T::Row> {
        match self.changes.get(key) {
            Some(change) => change.as_ref(),
            None => self.base.rows.get(key),
        }
    }

    /// The rows between two keys, in key order.
    pub fn rows<'s>(
        &'s self,
        from: Bound<&T::Key>,
        to: Bound<&T::Key>,
    ) -> impl Iterator<Item = (&'s T::Key, &'s T::Row)> + use<'s, 'a, T> {
        let ranges = sound(from, to).then(|| (self.base.rows.range((from, to)), self.changes.range((from, to))));
        ranges.into_iter().flat_map(|(base, changes)| Merged { base: base.peekable(), changes: changes.peekable() })
    }

    /// Every row, in key order.
    pub fn every(&self) -> impl Iterator<Item = (&T::Key, &T::Row)> {
        self.rows(Bound::Unbounded, Bound::Unbounded)
    }
}

struct Merged<A: Iterator, B: Iterator> {
    base: Peekable<A>,
    changes: Peekable<B>,
}

impl<'t, K: Ord, R, A, B> Iterator for Merged<A, B>
where
    K: 't,
    R: 't,
    A: Iterator<Item = (&'t K, &'t R)>,
    B: Iterator<Item = (&'t K, &'t Option<R>)>,
{
    type Item = (&'t K, &'t R);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let take_base = match (self.base.peek(), self.changes.peek()) {
                (Some((base, _)), Some((change, _))) => {
                    if base == change {
                        self.base.next();
                        false
                    } else {
                        base < change
                    }
                }
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return None,
            };
            if take_base {
                return self.base.next();
            }
            if let Some((key, Some(row))) = self.changes.next() {
                return Some((key, row));
            }
        }
    }
}

impl<T: TableDef> Table<T> for OverlayTable<'_, T> {
    fn get(&self, key: &T::Key) -> Result<Option<Cow<'_, T::Row>>, TableError> {
        Ok(self.row(key).map(Cow::Borrowed))
    }

    fn range(&self, from: Bound<&T::Key>, to: Bound<&T::Key>) -> Result<Rows<'_, T>, TableError> {
        Ok(Box::new(self.rows(from, to).map(|(key, row)| Ok((key.clone(), Cow::Borrowed(row))))))
    }

    fn range_back(&self, from: Bound<&T::Key>, to: Bound<&T::Key>) -> Result<Rows<'_, T>, TableError> {
        let mut rows: Vec<_> = self.rows(from, to).collect();
        rows.reverse();
        Ok(Box::new(rows.into_iter().map(|(key, row)| Ok((key.clone(), Cow::Borrowed(row))))))
    }

    fn put(&mut self, key: T::Key, row: T::Row) -> Result<(), TableError> {
        self.changes.insert(key, Some(row));
        Ok(())
    }

    fn delete(&mut self, key: &T::Key) -> Result<bool, TableError> {
        let there = self.row(key).is_some();
        self.changes.insert(key.clone(), None);
        Ok(there)
    }

    fn change(&mut self, key: &T::Key, change: &mut dyn FnMut(&mut T::Row)) -> Result<bool, TableError> {
        if let Some(changed) = self.changes.get_mut(key) {
            let there = changed.is_some();
            changed.iter_mut().for_each(change);
            return Ok(there);
        }
        let Some(mut row) = self.base.rows.get(key).cloned() else { return Ok(false) };
        change(&mut row);
        self.changes.insert(key.clone(), Some(row));
        Ok(true)
    }
}
