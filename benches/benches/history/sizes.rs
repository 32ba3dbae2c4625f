//! How much lies on the disk, and how many rows a state has.

use std::path::{Path, PathBuf};

use gatelog_benches::Failure;
use gatelog_record::codec;
use gatelog_tables::{MapTable, Maps, TableDef, TableError, TableSet, TableVisitor};

/// What lies below a directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Below {
    /// How many files.
    pub files: u64,
    /// How long they are together.
    pub bytes: u64,
}

/// What lies below a directory; a file that has several names there counts with each.
pub fn below(dir: &Path) -> Result<Below, Failure> {
    let mut found = Below::default();
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries {
            let entry = entry?;
            let known = entry.metadata()?;
            if known.is_dir() {
                pending.push(entry.path());
            } else {
                found.files += 1;
                found.bytes += known.len();
            }
        }
    }
    Ok(found)
}

/// The files of a directory by their names, and how long they are.
pub fn files(dir: &Path) -> Result<Vec<(PathBuf, u64)>, Failure> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        found.push((entry.path(), entry.metadata()?.len()));
    }
    found.sort();
    Ok(found)
}

/// The tables of a state: name, rows, bytes.
#[derive(Debug, Default)]
pub struct Rows(pub Vec<(&'static str, usize, usize)>);

impl TableVisitor<Maps> for Rows {
    fn visit<T: TableDef>(&mut self, table: &MapTable<T>) -> Result<(), TableError> {
        let mut bytes = 0;
        for row in table.rows.values() {
            let encoded =
                codec::encode(row).map_err(|error| TableError::Store { table: T::NAME, message: error.to_string() })?;
            bytes += encoded.len();
        }
        self.0.push((T::NAME, table.rows.len(), bytes));
        Ok(())
    }
}

/// The tables of a state, the largest first.
pub fn rows(tables: &impl TableSet<Maps>) -> Result<Rows, Failure> {
    let mut rows = Rows::default();
    tables.visit(&mut rows)?;
    rows.0.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
    Ok(rows)
}

impl Rows {
    /// Rows and bytes together.
    pub fn sum(&self) -> (usize, usize) {
        self.0.iter().fold((0, 0), |(rows, bytes), (_, more, size)| (rows + more, bytes + size))
    }

    /// The largest tables in words.
    pub fn largest(&self, count: usize) -> String {
        let told: Vec<String> = self
            .0
            .iter()
            .take(count)
            .map(|(name, rows, bytes)| format!("{name} {rows} ({} kB)", bytes / 1_000))
            .collect();
        told.join(", ")
    }
}
