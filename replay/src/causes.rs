//! From an event back to what came from outside.

use gatelog_event_log::Log;
use gatelog_record::{Cause, DecisionHeader, Domain, EventRecord, EventRef, InputRecord, Partition, Stream};

use crate::error::ReplayError;
use crate::reading::{event_at, input_at};

/// The longest chain followed.
pub const MAX_STEPS: usize = 10_000;

/// One step back.
#[derive(Clone, Debug, PartialEq)]
pub enum CauseStep {
    /// An event.
    Event {
        /// Its partition.
        partition: Partition,
        /// It.
        record: Box<EventRecord>,
    },
    /// The input an event decided.
    Input {
        /// The stream it stands in.
        stream: Stream,
        /// Its offset.
        offset: u64,
        /// It.
        record: Box<InputRecord>,
    },
    /// The writer itself: it took the partition over, or its clock jumped. Nothing came from outside.
    Writer {
        /// Its partition.
        partition: Partition,
    },
}

impl CauseStep {
    /// The step as JSON, for people.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            CauseStep::Event { partition, record } => {
                serde_json::json!({ "partition": partition.to_string(), "event": record.to_json() })
            }
            CauseStep::Input { stream, offset, record } => {
                serde_json::json!({ "stream": stream.to_string(), "offset": offset, "input": record.to_json() })
            }
            CauseStep::Writer { partition } => {
                serde_json::json!({ "partition": partition.to_string(), "writer": "started" })
            }
        }
    }
}

/// An event and its causes, newest first, back to the input that came from outside (the intake's,
/// an API's, a worker's, a timer's) or to the writer itself.
///
/// # Errors
/// `NoEvent`, `NoInput`, `Log`, `Frame`, `Body`, `TooManyCauses`.
pub fn causes(log: &dyn Log, of: EventRef) -> Result<Vec<CauseStep>, ReplayError> {
    let mut steps = Vec::new();
    let mut next = Some(of);
    while let Some(at) = next {
        if steps.len() >= MAX_STEPS {
            return Err(ReplayError::TooManyCauses { of, limit: MAX_STEPS });
        }
        let record = event_at(log, at)?;
        let cause = record.cause;
        let header = record.decision.clone();
        steps.push(CauseStep::Event { partition: at.partition, record: Box::new(record) });
        next = match cause {
            Cause::Start => {
                steps.push(CauseStep::Writer { partition: at.partition });
                None
            }
            Cause::Event { sequence } => Some(EventRef { partition: at.partition, sequence }),
            Cause::Input { offset } => {
                let stream = Stream::Inputs(at.partition);
                let record = input_at(log, stream, offset)?;
                let header = match header {
                    Some(header) => Some(header),
                    None => decision_of(log, at, offset)?,
                };
                let origin = origin(header.as_ref(), &record);
                steps.push(CauseStep::Input { stream, offset, record: Box::new(record) });
                match origin {
                    Some(origin) if origin.partition.domain == Domain::Intake => {
                        // The intake decides nothing and has no sequences: its records are named by
                        // their offset, counted from 1 as events are.
                        let stream = Stream::Intake(origin.partition.index);
                        let offset = origin.sequence.saturating_sub(1);
                        let record = Box::new(input_at(log, stream, offset)?);
                        steps.push(CauseStep::Input { stream, offset, record });
                        None
                    }
                    origin => origin,
                }
            }
        };
    }
    Ok(steps)
}

/// Where an input came from: the event that sent it, or the event whose work it reports on.
fn origin(header: Option<&DecisionHeader>, input: &InputRecord) -> Option<EventRef> {
    let source = header.map_or(input.source, |header| header.source.or(input.source));
    let caused_by = header.map_or(input.caused_by, |header| header.caused_by.or(input.caused_by));
    source.map(|source| EventRef { partition: source.partition, sequence: source.sequence }).or(caused_by)
}

/// The header of the decision an event belongs to: it stands on the decision's first event.
fn decision_of(log: &dyn Log, event: EventRef, offset: u64) -> Result<Option<DecisionHeader>, ReplayError> {
    let mut sequence = event.sequence;
    while let Some(earlier) = sequence.checked_sub(1).filter(|earlier| *earlier > 0) {
        sequence = earlier;
        let record = event_at(log, EventRef { partition: event.partition, sequence })?;
        if record.cause != (Cause::Input { offset }) {
            return Ok(None);
        }
        if record.decision.is_some() {
            return Ok(record.decision);
        }
    }
    Ok(None)
}
