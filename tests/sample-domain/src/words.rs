//! Its records and rows in words.

use gatelog_record::domains::sample::{SampleEvent, SampleInput};
use gatelog_record::{Event, Input};
use gatelog_replay::Words;
use gatelog_replay::diff::{About, RowChange};
use gatelog_replay::explain::Names;

/// The domain's words.
#[derive(Clone, Copy, Debug)]
pub struct SampleWords;

impl Words for SampleWords {
    fn event(&self, event: &Event, _: &Names) -> Option<String> {
        match event {
            Event::Sample(SampleEvent::Noted(noted)) => {
                Some(format!("note {} of {}: {}", noted.nth, noted.subject, noted.note))
            }
            _ => None,
        }
    }

    fn input(&self, input: &Input, _: &Names) -> Option<String> {
        match input {
            Input::Sample(SampleInput::NoteAsked(asked)) => {
                Some(format!("somebody notes of {}: {}", asked.subject, asked.note))
            }
            _ => None,
        }
    }

    fn about(&self, table: &str) -> About {
        if table == "subjects" { About::Facts } else { About::Bookkeeping }
    }

    fn subject(&self, change: &RowChange, _: &Names) -> Option<String> {
        (change.table == "subjects").then(|| format!("notes of {}", change.key))
    }
}
