//! Rows that hold for a stretch of events.

use std::ops::Bound;

use gatelog_tables::{FoldRefused, Table, TableDef, TableError, TableKey};
use serde::{Deserialize, Serialize};

/// A row as it was over a stretch of events. Its key ends in the event from which it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held<R> {
    /// The event from which this holds.
    pub from: u64,
    /// The event from which it no longer does; `None` while it does.
    pub until: Option<u64>,
    /// What holds.
    pub row: R,
}

/// The row of a subject as of an event; `None` when it was not there yet or no longer.
///
/// # Errors
/// When the table cannot be read.
pub fn as_of<K, R, T>(table: &impl Table<T>, key: &K, sequence: u64) -> Result<Option<R>, TableError>
where
    K: TableKey,
    R: Clone,
    T: TableDef<Key = (K, u64), Row = Held<R>>,
{
    Ok(held(table, key, sequence)?.filter(|held| held.until.is_none_or(|until| sequence < until)).map(|held| held.row))
}

/// The newest stretch of a subject that began at or before an event, over or not.
pub(super) fn held<K, R, T>(table: &impl Table<T>, key: &K, sequence: u64) -> Result<Option<Held<R>>, TableError>
where
    K: TableKey,
    R: Clone,
    T: TableDef<Key = (K, u64), Row = Held<R>>,
{
    let (first, last) = ((key.clone(), 0), (key.clone(), sequence));
    let mut rows = table.range_back(Bound::Included(&first), Bound::Included(&last))?;
    Ok(rows.next().transpose()?.map(|(_, held)| held.into_owned()))
}

/// Every stretch of a subject that began at or before an event, oldest first.
///
/// # Errors
/// When the table cannot be read.
pub fn stretches<K, R, T>(table: &impl Table<T>, key: &K, sequence: u64) -> Result<Vec<Held<R>>, TableError>
where
    K: TableKey,
    R: Clone,
    T: TableDef<Key = (K, u64), Row = Held<R>>,
{
    let (first, last) = ((key.clone(), 0), (key.clone(), sequence));
    table
        .range(Bound::Included(&first), Bound::Included(&last))?
        .map(|entry| entry.map(|(_, held)| held.into_owned()))
        .collect()
}

/// A row that begins to hold; none of this subject may hold already.
pub(super) fn begin<K, R, T>(table: &mut impl Table<T>, key: K, sequence: u64, row: R) -> Result<(), FoldRefused>
where
    K: TableKey,
    R: Clone,
    T: TableDef<Key = (K, u64), Row = Held<R>>,
{
    match held(table, &key, sequence)? {
        Some(before) if before.until.is_none() => Err(FoldRefused::exists::<T>(&(key, before.from))),
        _ => Ok(table.put((key, sequence), Held { from: sequence, until: None, row })?),
    }
}

/// Replaces the row that holds, which must be there, and gives what follows it.
pub(super) fn next<K, R, T>(
    table: &mut impl Table<T>,
    key: K,
    sequence: u64,
    change: impl FnOnce(&mut R) -> Result<(), FoldRefused>,
) -> Result<R, FoldRefused>
where
    K: TableKey,
    R: Clone,
    T: TableDef<Key = (K, u64), Row = Held<R>>,
{
    let before = match held(table, &key, sequence)? {
        Some(before) if before.until.is_none() => before,
        _ => return Err(FoldRefused::missing::<T>(&(key, sequence))),
    };
    let mut row = before.row.clone();
    change(&mut row)?;
    // One event may change a row twice: the second time it is the event's own row.
    if before.from < sequence {
        table.put((key.clone(), before.from), Held { until: Some(sequence), ..before })?;
    }
    table.put((key, sequence), Held { from: sequence, until: None, row: row.clone() })?;
    Ok(row)
}

/// Puts a row in, in place of the one that holds, if one does.
pub(super) fn replace<K, R, T>(table: &mut impl Table<T>, key: K, sequence: u64, row: R) -> Result<(), FoldRefused>
where
    K: TableKey,
    R: Clone,
    T: TableDef<Key = (K, u64), Row = Held<R>>,
{
    end(table, &key, sequence)?;
    Ok(table.put((key, sequence), Held { from: sequence, until: None, row })?)
}

/// Ends the row that holds; says whether one did.
pub(super) fn end<K, R, T>(table: &mut impl Table<T>, key: &K, sequence: u64) -> Result<bool, FoldRefused>
where
    K: TableKey,
    R: Clone,
    T: TableDef<Key = (K, u64), Row = Held<R>>,
{
    match held(table, key, sequence)? {
        Some(before) if before.until.is_none() => {
            if before.from == sequence {
                table.delete(&(key.clone(), sequence))?;
            } else {
                table.put((key.clone(), before.from), Held { until: Some(sequence), ..before })?;
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}
