//! Numbers: which nodes run beside each other, and which after each other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cluster::Entry;
use crate::fault::Fault;
use crate::graph::{Direction, Graph, Index, Part};
use crate::task::Task;
use crate::values;

/// The distance between two numbers. Fuel: room for hands to put something between.
pub const STEP: u64 = 100;

/// Gives out numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter(u64);

impl Counter {
    /// The next number.
    pub fn advance(&mut self) -> u64 {
        self.0 = self.0.saturating_add(STEP);
        self.0
    }
}

/// How the nodes of a group run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// One after the other.
    OneByOne,
    /// All at once.
    Parallel,
    /// So many at once. Fuel takes a negative amount for its opposite.
    Chunks(u64),
    /// Nobody knows it: no node gets a number. Fuel does so silently.
    Unknown(String),
}

impl Strategy {
    /// The strategy of a group.
    ///
    /// # Errors
    /// [`Fault::Missing`] without `parameters.strategy.type`, [`Fault::Kind`] for an amount that is no number.
    pub fn of(group: &Task) -> Result<Strategy, Fault> {
        let strategy =
            group.need("parameters")?.get("strategy").ok_or_else(|| Fault::Missing("strategy".to_owned()))?;
        let kind = strategy.get("type").ok_or_else(|| Fault::Missing("type".to_owned()))?;
        match kind.as_str() {
            Some("one_by_one") => Ok(Strategy::OneByOne),
            Some("parallel") => match strategy.get("amount") {
                None => Ok(Strategy::Parallel),
                Some(Value::Bool(amount)) => Ok(Strategy::Chunks(u64::from(*amount))),
                Some(amount) => whole(amount).map(|amount| Strategy::Chunks(amount.unsigned_abs())).ok_or_else(|| {
                    Fault::Kind(format!("amount must be a whole number, not {}", values::python(amount)))
                }),
            },
            _ => Ok(Strategy::Unknown(values::python(kind))),
        }
    }
}

/// A whole number, also one written with a point.
fn whole(value: &Value) -> Option<i64> {
    let text = value.as_number()?.to_string();
    text.strip_suffix(".0").unwrap_or(&text).parse().ok()
}

/// A group as far as numbers are concerned.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its node in the graph.
    pub index: Index,
    /// Its place in the order of groups.
    pub waits_for: BTreeSet<Index>,
}

/// The groups with all the groups each waits for, however far away; only edges directly between groups count.
pub fn groups(groups: &Part<'_>) -> Vec<Group> {
    let ancestors = |index: Index| {
        let mut reached: BTreeSet<Index> = groups.reach(index, Direction::Backward).into_iter().collect();
        // A group that waits for itself alone waits for nobody else; one in a longer cycle waits for its companions.
        reached.remove(&index);
        reached
    };
    groups.nodes().iter().map(|index| Group { index: *index, waits_for: ancestors(*index) }).collect()
}

/// The numbers of entries, as Fuel gives them: `None` for an entry whose role belongs to no group that got its turn.
///
/// Groups take their turn when all groups they wait for have had theirs or have no entries. Of those whose turn it is,
/// the one-by-one groups come first, each entry with a number of its own; then the chunked ones, a number a chunk; then
/// all plain parallel ones together, in rounds that take every node at most once.
///
/// # Errors
/// [`Fault::Missing`] for groups without strategy or role, [`Fault::Amount`], [`Fault::Kind`].
pub fn assign(graph: &Graph, entries: &[Entry]) -> Result<Vec<Option<u64>>, Fault> {
    let part = graph.groups();
    let groups = groups(&part);
    let mut by_role: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        by_role.entry(&entry.role).or_default().push(place);
    }
    let mut done: BTreeSet<Index> =
        part.nodes().iter().copied().filter(|group| !by_role.contains_key(graph.name(*group))).collect();
    let mut numbers = vec![None; entries.len()];
    let mut counter = Counter::default();
    loop {
        let turn = |group: &&Group| !done.contains(&group.index) && group.waits_for.is_subset(&done);
        let level: Vec<Index> = groups.iter().filter(turn).map(|group| group.index).collect();
        if level.is_empty() {
            return Ok(numbers);
        }
        Level { graph, entries, by_role: &by_role, numbers: &mut numbers, counter: &mut counter }.number(&level)?;
        done.extend(level);
    }
}

struct Level<'a> {
    graph: &'a Graph,
    entries: &'a [Entry],
    by_role: &'a BTreeMap<&'a str, Vec<usize>>,
    numbers: &'a mut [Option<u64>],
    counter: &'a mut Counter,
}

impl Level<'_> {
    fn number(&mut self, level: &[Index]) -> Result<(), Fault> {
        let mut parallel = Vec::new();
        let mut single = Vec::new();
        for index in level {
            match Strategy::of(self.graph.task(*index))? {
                Strategy::OneByOne => single.push(*index),
                Strategy::Unknown(_) => {}
                other => parallel.push((*index, other)),
            }
        }
        for index in single {
            for place in self.places(index)? {
                self.numbers[place] = Some(self.counter.advance());
            }
        }
        let mut plain = Vec::new();
        for (index, strategy) in parallel {
            let places = self.places(index)?;
            match strategy {
                Strategy::Chunks(amount) => self.chunks(&places, amount)?,
                _ => plain.extend(places),
            }
        }
        self.rounds(plain);
        Ok(())
    }

    /// The entries of a group, in order of its roles.
    fn places(&self, index: Index) -> Result<Vec<usize>, Fault> {
        let roles = values::names(self.graph.task(index).need("role")?)?;
        Ok(roles.iter().filter_map(|role| self.by_role.get(role.as_str())).flatten().copied().collect())
    }

    fn chunks(&mut self, places: &[usize], amount: u64) -> Result<(), Fault> {
        let Some(amount) = usize::try_from(amount).ok().filter(|amount| *amount > 0) else {
            return if places.is_empty() { Ok(()) } else { Err(Fault::Amount) };
        };
        for chunk in places.chunks(amount) {
            let number = self.counter.advance();
            for place in chunk {
                self.numbers[*place] = Some(number);
            }
        }
        Ok(())
    }

    fn rounds(&mut self, mut left: Vec<usize>) {
        while !left.is_empty() {
            let number = self.counter.advance();
            let mut taken: BTreeSet<&str> = BTreeSet::new();
            let mut later = Vec::new();
            for place in left {
                if taken.insert(&self.entries[place].uid) {
                    self.numbers[place] = Some(number);
                } else {
                    later.push(place);
                }
            }
            left = later;
        }
    }
}
