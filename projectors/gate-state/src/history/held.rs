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
    look(table, key, sequence, Held::clone)
}

/// The same, looked at where it stands.
pub(super) fn look<K, R, T, A>(
    table: &impl Table<T>,
    key: &K,
    sequence: u64,
    look: impl FnOnce(&Held<R>) -> A,
) -> Result<Option<A>, TableError>
where
    K: TableKey,
    R: Clone,
    T: TableDef<Key = (K, u64), Row = Held<R>>,
{
    let (first, last) = ((key.clone(), 0), (key.clone(), sequence));
    Ok(table.newest(&first, &last)?.map(|held| look(&held)))
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
    match look(table, &key, sequence, |held| (held.from, held.until))? {
        Some((from, None)) => Err(FoldRefused::exists::<T>(&(key, from))),
        _ => Ok(table.put((key, sequence), Held { from: sequence, until: None, row })?),
    }
}

/// Replaces the row that holds, which must be there; gives what the change has to say.
pub(super) fn next<K, R, T, A>(
    table: &mut impl Table<T>,
    key: K,
    sequence: u64,
    change: impl FnOnce(&mut R) -> Result<A, FoldRefused>,
) -> Result<A, FoldRefused>
where
    K: TableKey,
    R: Clone,
    T: TableDef<Key = (K, u64), Row = Held<R>>,
{
    let open = |held: &Held<R>| held.until.is_none().then_some(held.from);
    let Some(from) = look(table, &key, sequence, open)?.flatten() else {
        return Err(FoldRefused::missing::<T>(&(key, sequence)));
    };
    let (mut change, mut said) = (Some(change), None);
    let mut begin = |held: &mut Held<R>| {
        (held.from, held.until) = (sequence, None);
        said = change.take().map(|change| change(&mut held.row));
        matches!(said, Some(Ok(_)))
    };
    if from < sequence {
        let mut end = |held: &mut Held<R>| held.until = Some(sequence);
        table.succeed(&(key.clone(), from), (key.clone(), sequence), &mut end, &mut begin)?;
    } else {
        // One event may change a row twice: the second time it is the event's own row.
        table.change(&(key.clone(), sequence), &mut |held| {
            begin(held);
        })?;
    }
    said.unwrap_or_else(|| Err(FoldRefused::missing::<T>(&(key, sequence))))
}

/// A stretch is over.
fn until<K, R, T>(table: &mut impl Table<T>, key: (K, u64), sequence: u64) -> Result<(), FoldRefused>
where
    K: TableKey,
    R: Clone,
    T: TableDef<Key = (K, u64), Row = Held<R>>,
{
    match table.change(&key, &mut |held| held.until = Some(sequence))? {
        true => Ok(()),
        false => Err(FoldRefused::missing::<T>(&key)),
    }
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
    match look(table, key, sequence, |held| (held.from, held.until))? {
        Some((from, None)) => {
            if from == sequence {
                table.delete(&(key.clone(), sequence))?;
            } else {
                until(table, (key.clone(), from), sequence)?;
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}
