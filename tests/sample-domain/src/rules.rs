//! What is noted, and what is not.

use gatelog_deciding::{Context, Deciding, Refusal, Rules};
use gatelog_record::domains::sample::{NoteAsked, Noted, SampleEvent, SampleInput};
use gatelog_record::draft::partition::InputTaken;
use gatelog_record::event::PartitionEvent;
use gatelog_record::{BlobHash, Event, Input, InputRecord};
use gatelog_tables::{Maps, Table};

use crate::state::{Sample, SampleLive};

/// The rules: a note that a subject has already is not noted again.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleRules;

impl Rules for SampleRules {
    type State = Sample;

    fn needs(&self, _: &SampleLive<Maps>, _: &InputRecord) -> Vec<BlobHash> {
        Vec::new()
    }

    fn admit(&mut self, _: BlobHash, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn decide(&self, state: &SampleLive<Maps>, input: &InputRecord, context: Context) -> Result<Vec<Event>, Refusal> {
        let mut making = Deciding::<Sample>::begin(state, input, context);
        match &input.input {
            Input::Sample(SampleInput::NoteAsked(asked)) => note(&mut making, asked)?,
            Input::Partition(_) => {}
            other => return Err(Refusal::NotOurs(other.name())),
        }
        Ok(making.finish())
    }
}

fn note(making: &mut Deciding<'_, Sample>, asked: &NoteAsked) -> Result<(), Refusal> {
    let NoteAsked { subject, note } = asked.clone();
    let refused = |refused| Refusal::Fold { event: "sample.noted", refused };
    let known = making.state.own.subjects.get(&subject).map_err(|error| refused(error.into()))?;
    let (last, count) = known.map(|row| (row.note.clone(), row.count)).unwrap_or_default();
    if last == note {
        let taken = InputTaken { duplicate_of: None, reason: "noted-already".to_owned() };
        return making.emit(PartitionEvent::InputTaken(taken));
    }
    making.emit(SampleEvent::Noted(Noted { subject, note, nth: count + 1 }))
}
