//! Whether a graph can be taken as one.

use std::collections::BTreeSet;

use super::{Graph, Index};
use crate::fault::Fault;

/// Names that are mentioned and never told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strangers {
    /// The names, sorted.
    pub names: Vec<String>,
    /// The nodes beside them, sorted: one of each pair mentions the other.
    pub beside: Vec<String>,
}

impl std::fmt::Display for Strangers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Tasks '{}' can't be in requires|required_for|groups|tasks for [{}] because they don't exist in the graph",
            self.names.join(", "),
            self.beside.join(", ")
        )
    }
}

impl Graph {
    /// What Fuel's check of an upload says first, if it says anything.
    ///
    /// # Errors
    /// [`Fault::Invalid`]: a cycle, or else names that no task has.
    pub fn check(&self) -> Result<(), Fault> {
        if !self.whole().is_acyclic() {
            return Err(Fault::Invalid("Tasks can not be processed because it contains cycles in it.".to_owned()));
        }
        match self.strangers() {
            Some(strangers) => Err(Fault::Invalid(strangers.to_string())),
            None => Ok(()),
        }
    }

    /// Names that no task has.
    pub fn strangers(&self) -> Option<Strangers> {
        let nameless = |index: &Index| self.task(*index).id().is_none_or(str::is_empty);
        let strange: Vec<Index> = (0..self.len()).filter(nameless).collect();
        if strange.is_empty() {
            return None;
        }
        let names: BTreeSet<&str> = strange.iter().map(|index| self.name(*index)).collect();
        let beside: BTreeSet<&str> = strange
            .iter()
            .flat_map(|index| self.after(*index).iter().chain(self.before(*index)))
            .map(|other| self.name(*other))
            .collect();
        let owned = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
        Some(Strangers { names: owned(names), beside: owned(beside) })
    }

    /// The name of the graph nearest to one that it does not have, for a hint.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        self.nodes()
            .filter(|(_, _, task)| task.id().is_some())
            .map(|(_, known, _)| (distance(name, known), known))
            .filter(|(distance, known)| *distance <= 1 + name.len().min(known.len()) / 4)
            .min()
            .map(|(_, known)| known)
    }
}

/// How many letters have to be put in, taken out or changed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, letter) in a.chars().enumerate() {
        let mut corner = line;
        row[0] = line + 1;
        for (column, other) in b.iter().enumerate() {
            let changed = corner + usize::from(letter != *other);
            corner = row[column + 1];
            row[column + 1] = changed.min(corner + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}
