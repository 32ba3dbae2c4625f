//! The way of an event through the house: what stands where on the log, from the outside on.

use gatelog_record::event::GateEvent;
use gatelog_record::input::{GateInput, IntakeInput};
use gatelog_record::{ActorId, Cause, Domain, Event, EventRecord, EventRef, Input, InputRecord, ItemId, Stream};

use super::say::without;
use super::shapes::{EventStory, Note, Spot, WayStep};
use super::{ExplainError, Explainer};
use crate::error::ReplayError;
use crate::reading::input_at;

/// The longest way told.
const MAX_STEPS: usize = 10_000;
/// How many other events of a decision are listed.
const MAX_WITH: usize = 100;

impl Explainer<'_> {
    /// The causes of an event, the outside first, the event last. As [`crate::causes()`] goes, and on from a worker's
    /// word to its lease.
    pub(crate) fn way_to(&self, event: EventRef) -> Result<Vec<WayStep>, ExplainError> {
        let mut way = Vec::new();
        let mut next = Some(event);
        while let Some(at) = next.take() {
            if way.len() >= MAX_STEPS {
                return Err(ReplayError::TooManyCauses { of: event, limit: MAX_STEPS }.into());
            }
            let record = self.record(at)?;
            way.push(self.event_step(at, &record));
            match record.cause {
                // The event itself says that a writer started.
                Cause::Start => {}
                Cause::Event { sequence } => next = Some(EventRef { partition: at.partition, sequence }),
                Cause::Input { offset } => {
                    let stream = Stream::Inputs(at.partition);
                    let input = input_at(self.log, stream, offset)?;
                    way.push(self.input_step(stream, offset, &input));
                    let origin =
                        input.source.map(|source| EventRef { partition: source.partition, sequence: source.sequence });
                    match origin.or(input.caused_by) {
                        Some(origin) if origin.partition.domain == Domain::Intake => {
                            way.push(self.intake_step(origin, &input)?);
                        }
                        Some(origin) => next = Some(origin),
                        None => next = self.behind(&input),
                    }
                }
            }
        }
        way.reverse();
        Ok(way)
    }

    /// The record of the intake an input was routed from. Its source counts the intake's records from 1 where it
    /// marks how far was routed, and is the offset itself elsewhere: the record that fits is it.
    fn intake_step(&self, origin: EventRef, routed: &InputRecord) -> Result<WayStep, ExplainError> {
        let stream = Stream::Intake(origin.partition.index);
        let offset = intake_offset(self.log, origin, &routed.input);
        let record = input_at(self.log, stream, offset)?;
        Ok(self.input_step(stream, offset, &record))
    }

    /// Where a worker's word comes from, when it does not say so itself: its lease.
    fn behind(&self, input: &InputRecord) -> Option<EventRef> {
        match &input.input {
            Input::Gate(GateInput::AttemptStarted(started)) => self.index.granted.get(&started.lease).copied(),
            Input::Gate(GateInput::AttemptFinished(done)) => {
                self.index.started.get(&(done.build, done.attempt)).copied()
            }
            _ => None,
        }
    }

    /// From the outside event to an item's end.
    pub(crate) fn way_of(
        &self,
        item: ItemId,
        records: &[(EventRef, EventRecord)],
    ) -> Result<Vec<WayStep>, ExplainError> {
        let enqueued = records.iter().find(|(_, record)| {
            matches!(&record.event, Event::Gate(GateEvent::ItemEnqueued(enqueued)) if enqueued.item == item)
        });
        let Some((at, _)) = enqueued else { return Ok(Vec::new()) };
        let mut way = self.way_to(*at)?;
        let name = self.index.say_item(item);
        for (other, record) in records {
            // Waits are told where they belong; here they would hide the way.
            let wait = record.event.name().ends_with(".wait-changed");
            if other != at && !wait {
                let step = self.event_step(*other, record);
                way.push(WayStep { text: without(&step.text, &name), ..step });
            }
        }
        Ok(way)
    }

    /// The story of one event.
    pub(crate) fn event(&self, at: EventRef) -> Result<EventStory, ExplainError> {
        let record = self.record(at)?;
        let mut with = Vec::new();
        if let Cause::Input { .. } = record.cause {
            let newest = self.index.newest.get(&at.partition).copied().unwrap_or_default();
            // A decision's events stand side by side.
            let before = (1..at.sequence).rev();
            let after = at.sequence + 1..=newest;
            self.same_decision(&record, at, before, &mut with)?;
            with.reverse();
            self.same_decision(&record, at, after, &mut with)?;
        }
        let text = self.index.names.event(&record.event);
        Ok(EventStory { event: record.to_json(), text, way: self.way_to(at)?, with })
    }

    fn same_decision(
        &self,
        of: &EventRecord,
        at: EventRef,
        sequences: impl Iterator<Item = u64>,
        with: &mut Vec<Note>,
    ) -> Result<(), ExplainError> {
        for sequence in sequences {
            let other = EventRef { partition: at.partition, sequence };
            let record = self.record(other)?;
            if record.cause != of.cause || with.len() >= MAX_WITH {
                break;
            }
            with.push(self.note(&record, &other));
        }
        Ok(())
    }

    pub(crate) fn event_step(&self, at: EventRef, record: &EventRecord) -> WayStep {
        WayStep {
            step: record.event.name().to_owned(),
            spot: Spot::of(&at, record.recorded_at),
            actor: known(record.actor),
            by: self.name_of(known(record.actor)),
            text: self.index.names.event(&record.event),
        }
    }

    fn input_step(&self, stream: Stream, offset: u64, record: &InputRecord) -> WayStep {
        WayStep {
            step: record.input.name().to_owned(),
            spot: Spot { stream: stream.to_string(), sequence: offset, time: record.observed_at },
            actor: known(record.actor),
            by: self.name_of(known(record.actor)),
            text: self.index.names.input(&record.input),
        }
    }
}

/// The offset of the intake's record that an input was routed from.
pub(crate) fn intake_offset(log: &dyn gatelog_event_log::Log, origin: EventRef, routed: &Input) -> u64 {
    let stream = Stream::Intake(origin.partition.index);
    match origin.sequence.checked_sub(1) {
        Some(before) if input_at(log, stream, before).is_ok_and(|record| routed_from(routed, &record.input)) => before,
        _ => origin.sequence,
    }
}

/// Whether an input is what routing made of a record of the intake.
fn routed_from(routed: &Input, intake: &Input) -> bool {
    match (routed, intake) {
        (Input::Gate(GateInput::TriggerReceived(received)), Input::Intake(IntakeInput::ForgeEvent(event))) => {
            received.event == *event
        }
        (Input::Gate(GateInput::TenantLoaded(loaded)), Input::Intake(IntakeInput::TenantFile(file))) => {
            loaded.version == file.version
        }
        (Input::Gate(GateInput::NotRouted(what)), Input::Intake(IntakeInput::ForgeEvent(event))) => {
            (&what.connection, &what.project, &what.event) == (&event.connection, &event.project, &event.event)
        }
        _ => false,
    }
}

pub(crate) fn known(actor: ActorId) -> Option<ActorId> {
    Some(actor).filter(|actor| *actor != ActorId::SYSTEM)
}
