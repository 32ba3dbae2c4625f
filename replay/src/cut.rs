//! Positions of all partitions that belong together.
//!
//! Every partition stands at its own sequence at a time, by its own writer's clock. Taken as they
//! are, one could show an effect whose cause the other does not show yet. A consistent cut walks such
//! partitions back to before the effect, until none is left.

use std::collections::BTreeMap;

use gatelog_event_log::Log;
use gatelog_record::{Domain, Envelope, EventRef, Partition, Timestamp};

use crate::error::ReplayError;
use crate::reading::{envelope_at, envelopes};
use crate::timeline::{newest, sequence_at_time};

/// For each partition the sequence of the last event inside.
pub type Cut = BTreeMap<Partition, u64>;

/// How far clocks of writers may lie apart: what was recorded longer before the time asked for
/// cannot have its cause after it.
const MAX_SKEW_SECONDS: i64 = 3_600;
/// Among how many last events a cause is looked for that its own clock puts later than its effect.
const LAST: u64 = 1_024;
/// How many events are read at once on the way back.
const WINDOW: u64 = 256;

/// The consistent cut over these partitions at a time: each as late as it can be.
///
/// # Errors
/// `Log`, `Frame`.
pub fn cut_at(log: &dyn Log, partitions: &[Partition], at: Timestamp) -> Result<Cut, ReplayError> {
    let mut cut = Cut::new();
    for partition in partitions {
        cut.insert(*partition, sequence_at_time(log, *partition, at)?);
    }
    settle(log, cut, Some(at))
}

/// The consistent cut at or before these positions.
///
/// # Errors
/// `Log`, `Frame`.
pub fn cut_before(log: &dyn Log, positions: &Cut) -> Result<Cut, ReplayError> {
    let mut cut = Cut::new();
    for (partition, sequence) in positions {
        cut.insert(*partition, (*sequence).min(newest(log, *partition)?));
    }
    settle(log, cut, None)
}

/// Where another partition stood when this one had just come to an event, as late as can be: with every cause of what
/// is inside here, without any effect of what came here after.
///
/// # Errors
/// `Log`, `Frame`.
pub fn beside(log: &dyn Log, at: EventRef, other: Partition) -> Result<u64, ReplayError> {
    let Some((envelope, _)) = envelope_at(log, at.partition, at.sequence)? else {
        return Ok(log.begins(other).sequence);
    };
    let moment = envelope.recorded_at;
    let by_time = sequence_at_time(log, other, moment)?;
    let cut = Cut::from([(at.partition, at.sequence), (other, by_time)]);
    let inside = walk_back(log, other, by_time, &cut, Some(moment))?;
    // A cause is inside, also one that was recorded by a clock that was ahead.
    Ok(inside.max(newest_cause(log, at, other)?))
}

/// The newest event of another partition that one of the last events up to this one came of; 0 when there is none.
fn newest_cause(log: &dyn Log, at: EventRef, other: Partition) -> Result<u64, ReplayError> {
    let first = at.sequence.saturating_sub(LAST).max(log.begins(at.partition).sequence) + 1;
    let mut newest = 0;
    for envelope in envelopes(log, at.partition, first, at.sequence)? {
        let Some(decision) = envelope.decision else { continue };
        let source = decision.source.filter(|source| source.partition == other).map(|source| source.sequence);
        let caused_by = decision.caused_by.filter(|event| event.partition == other).map(|event| event.sequence);
        newest = newest.max(source.unwrap_or(0)).max(caused_by.unwrap_or(0));
    }
    Ok(newest)
}

/// Walks partitions back until every event inside has its cause inside.
fn settle(log: &dyn Log, mut cut: Cut, at: Option<Timestamp>) -> Result<Cut, ReplayError> {
    loop {
        let mut moved = false;
        for partition in cut.keys().copied().collect::<Vec<_>>() {
            let last = cut.get(&partition).copied().unwrap_or_default();
            let inside = walk_back(log, partition, last, &cut, at)?;
            if inside < last {
                cut.insert(partition, inside);
                moved = true;
            }
        }
        if !moved {
            return Ok(cut);
        }
    }
}

/// The last sequence of a partition up to which every event has its cause inside the cut.
fn walk_back(
    log: &dyn Log,
    partition: Partition,
    last: u64,
    cut: &Cut,
    at: Option<Timestamp>,
) -> Result<u64, ReplayError> {
    // What a partition took from another it took in the other's order: once one of its events is
    // inside, all before it are.
    let mut open: std::collections::BTreeSet<Partition> =
        cut.keys().copied().filter(|other| *other != partition).collect();
    let horizon = at.map(|at| at.plus_seconds(-MAX_SKEW_SECONDS));
    let mut inside = last;
    let mut above = last;
    while above > 0 && !open.is_empty() {
        let below = above.saturating_sub(WINDOW);
        let window = envelopes(log, partition, below + 1, above)?;
        for envelope in window.iter().rev() {
            if horizon.is_some_and(|horizon| envelope.recorded_at < horizon) {
                return Ok(inside);
            }
            if !caused_inside(envelope, cut) {
                inside = envelope.sequence - 1;
            } else if let Some(source) = envelope.decision.as_ref().and_then(|decision| decision.source) {
                open.remove(&source.partition);
            }
        }
        above = below;
    }
    Ok(inside)
}

fn caused_inside(envelope: &Envelope, cut: &Cut) -> bool {
    let Some(decision) = &envelope.decision else { return true };
    let inside = |partition: Partition, sequence: u64| {
        partition.domain == Domain::Intake || cut.get(&partition).is_none_or(|last| sequence <= *last)
    };
    decision.source.is_none_or(|source| inside(source.partition, source.sequence))
        && decision.caused_by.is_none_or(|event| inside(event.partition, event.sequence))
}
