//! Where an answer stands: as of which event of every partition.
//!
//! Written `gate/0:120,capacity/0:31`: the gate first, then what else is hosted, in the order of the list of domains.
//! `at=` and `after=` take the same, and a bare number, which is the gate's.

use std::fmt;
use std::sync::Arc;

use gatelog_record::{Domain, Partition};
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::reading::App;

/// The most partitions that one cut names.
const MOST: usize = 64;

/// As of which event of each partition something is told, in the order in which they are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut(Arc<[(Partition, u64)]>);

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (partition, sequence)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{partition}:{sequence}")?;
        }
        Ok(())
    }
}

impl Cut {
    /// As of which event of a partition; before its first where it is not named.
    pub(crate) fn of(&self, partition: Partition) -> u64 {
        self.0.iter().find(|(one, _)| *one == partition).map_or(0, |(_, sequence)| *sequence)
    }

    /// The same with another event of a partition.
    pub(crate) fn with(&self, partition: Partition, sequence: u64) -> Cut {
        let one = |(of, at): &(Partition, u64)| (*of, if *of == partition { sequence } else { *at });
        Cut(self.0.iter().map(one).collect())
    }

    /// The same, where no partition is further than in another.
    pub(crate) fn at_most(&self, other: &Cut) -> Cut {
        Cut(self.0.iter().map(|(of, at)| (*of, (*at).min(other.of(*of)))).collect())
    }

    /// The event of each partition, by its name.
    pub(crate) fn positions(&self) -> Map<String, Value> {
        self.0.iter().map(|(partition, sequence)| (partition.to_string(), Value::from(*sequence))).collect()
    }
}

/// A position that a request names: of the partitions it names.
pub(crate) type Named = Vec<(Partition, u64)>;

/// Reads a position: a bare number is the gate's. `None` where the text is neither that nor a cut.
///
/// # Errors
/// A partition stands twice, or there are too many.
pub(crate) fn named(text: &str, gate: Partition) -> Result<Option<Named>, ApiError> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        // A number that is too large is beyond every event there is.
        return Ok(Some(vec![(gate, text.parse().unwrap_or(u64::MAX))]));
    }
    let mut found = Named::new();
    for piece in text.split(',') {
        let Some(one) = place(piece.trim()) else { return Ok(None) };
        if found.iter().any(|(partition, _)| *partition == one.0) || found.len() >= MOST {
            return Err(ApiError::BadRequest(format!("{text:?} names {} twice, or too many partitions", one.0)));
        }
        found.push(one);
    }
    Ok(Some(found))
}

/// `gate/0:120`
fn place(text: &str) -> Option<(Partition, u64)> {
    let (partition, sequence) = text.rsplit_once(':')?;
    let (domain, index) = partition.split_once('/')?;
    let partition = Partition { domain: Domain::from_name(domain)?, index: index.parse().ok()? };
    let digits = !sequence.is_empty() && sequence.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| (partition, sequence.parse().unwrap_or(u64::MAX)))
}

impl App {
    /// Where every fold stands now. Tables that are read afterwards are as of these events or of later ones: a document
    /// that is marked so is never taken for a newer one than it is.
    pub(crate) fn now(&self) -> Cut {
        Cut(self.site.folds.iter().map(|fold| (fold.partition(), fold.published().position().sequence)).collect())
    }

    /// Where all stood when the gate had just come to an event; of what a request names, there. Takes a while.
    ///
    /// # Errors
    /// The log cannot be read; `Beyond`: what is named has not come yet; `BadRequest`: it is not here.
    pub(crate) fn then(&self, gate: u64, named: &[(Partition, u64)]) -> Result<Cut, ApiError> {
        let now = self.now();
        for (partition, sequence) in named {
            let Some((_, newest)) = now.0.iter().find(|(one, _)| one == partition) else {
                return Err(self.unknown(*partition));
            };
            if sequence > newest {
                let wanted = format!("event {sequence} of {partition}");
                return Err(ApiError::Beyond { wanted, newest: now.to_string() });
            }
        }
        let all_named = now.0.iter().all(|(one, _)| *one == self.gate || named.iter().any(|(other, _)| other == one));
        let beside = if all_named { Vec::new() } else { self.site.past.beside(gate)? };
        let place = |partition: Partition| match named.iter().chain(&beside).find(|(one, _)| *one == partition) {
            _ if partition == self.gate => gate,
            Some((_, sequence)) => *sequence,
            None => 0,
        };
        Ok(Cut(now.0.iter().map(|(partition, _)| (*partition, place(*partition))).collect()))
    }

    /// That a partition is not here.
    pub(crate) fn unknown(&self, partition: Partition) -> ApiError {
        let there: Vec<String> = self.site.folds.iter().map(|fold| fold.partition().to_string()).collect();
        ApiError::BadRequest(format!("there is no partition {partition} here; there are: {}", there.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
    const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };

    #[test]
    fn a_position_is_a_number_of_the_gate_or_names_its_partitions() {
        let read = |text: &str| named(text, GATE).unwrap();
        assert_eq!(read("120"), Some(vec![(GATE, 120)]));
        assert_eq!(read("99999999999999999999999"), Some(vec![(GATE, u64::MAX)]));
        let cut = read("gate/0:120,capacity/0:31").unwrap();
        assert_eq!(cut, [(GATE, 120), (CAPACITY, 31)]);
        assert_eq!(Cut(cut.into()).to_string(), "gate/0:120,capacity/0:31");
        for none in
            ["", "yesterday", "2026-01-31T14:03:00Z", "gate/0", "gate:1", "intake/0:1", "gate/0:1,", "gate/0:-1"]
        {
            assert_eq!(read(none), None, "{none}");
        }
        assert!(named("gate/0:1,gate/0:2", GATE).is_err());
    }

    #[test]
    fn a_cut_is_moved_in_one_partition_alone() {
        let cut = Cut([(GATE, 120), (CAPACITY, 31)].into());
        assert_eq!(cut.with(GATE, 7).to_string(), "gate/0:7,capacity/0:31");
        let less = Cut([(GATE, 119), (CAPACITY, 40)].into());
        assert_eq!(cut.at_most(&less).to_string(), "gate/0:119,capacity/0:31");
        assert_eq!(
            (cut.of(CAPACITY), Value::Object(cut.positions())),
            (31, serde_json::json!({ "gate/0": 120, "capacity/0": 31 }))
        );
    }
}
