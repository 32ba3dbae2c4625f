//! A debugger for history: event by event, forwards and back, with what each event made of the state.
//!
//! [`Debugger`] stands at one event of one partition and knows the state after it. What it is told are lines of text
//! ([`Debugger::command`]), so that people and scripts speak to it alike; what it answers is for people and, as JSON,
//! for programs. Going back is as quick as going on: states passed lately are kept, so many and no more
//! ([`standing`]).

mod commands;
pub mod standing;

use std::collections::BTreeMap;
use std::sync::Arc;

use gatelog_event_log::{Blobs, Log};
use gatelog_record::{Domain, EventRecord, EventRef, Partition, Timestamp};
use gatelog_store::RungDir;
use serde_json::Value as Json;

use crate::diff::RungsOf;
use crate::domains::Domains;
use crate::error::ReplayError;
use crate::explain::{ExplainError, Explainer, Tone};
use crate::reading::event_at;
use crate::timeline::{Moment, newest, sequence_at_time};
use standing::Stand;

pub use commands::HELP;

/// Why the debugger cannot do what it was told. It stands where it stood.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The past cannot be read.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// Nothing has this name, or it cannot be explained.
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// Nothing decides in this domain yet.
    #[error("there is no state of {partition} to step through: name an event of {known}")]
    NoDomain {
        /// Where was looked.
        partition: Partition,
        /// The domains there are.
        known: String,
    },
    /// It stands at the end.
    #[error("this is the newest event of {0}")]
    AtTheEnd(Partition),
    /// It stands at the beginning.
    #[error("nothing is before the first event of {0}")]
    AtTheBeginning(Partition),
    /// There is no further event of what was asked for.
    #[error("there is no {} event of {what}", if *forward { "further" } else { "earlier" })]
    NoFurther {
        /// Of what.
        what: String,
        /// In which direction was looked.
        forward: bool,
    },
    /// A command that is none.
    #[error("{0}; `help` lists what can be said")]
    Command(String),
}

/// An answer: lines for people, and the same for programs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// For people.
    pub lines: Vec<(Tone, String)>,
    /// For programs.
    pub json: Json,
    /// Whether this was the last command.
    pub quit: bool,
}

/// A debugger for history.
pub struct Debugger<'a> {
    log: Arc<dyn Log>,
    rungs: RungsOf<'a>,
    explainer: Explainer<'a>,
    stands: BTreeMap<Partition, Box<dyn Stand>>,
    at: EventRef,
    time_of: TimeOf,
}

/// Reads a time as people write it.
pub type TimeOf = fn(&str) -> Option<Timestamp>;

impl<'a> Debugger<'a> {
    /// Opens a history; it stands before the first event of the gate until it is told to go somewhere. Names are
    /// learnt from the whole history, up to now.
    ///
    /// # Errors
    /// What reading the past gives.
    pub fn open(
        domains: &Domains,
        log: &'a Arc<dyn Log>,
        blobs: &'a dyn Blobs,
        rungs: RungsOf<'a>,
        name_of: impl Fn(gatelog_record::ActorId) -> Option<String> + 'a,
        time_of: TimeOf,
    ) -> Result<Debugger<'a>, StepError> {
        let explainer = Explainer::read(domains, &**log, blobs, Moment::Newest)?.with_people(name_of);
        let at = EventRef { partition: Partition { domain: Domain::Gate, index: 0 }, sequence: 0 };
        Ok(Debugger { log: Arc::clone(log), rungs, explainer, stands: BTreeMap::new(), at, time_of })
    }

    /// Where it stands.
    pub fn at(&self) -> EventRef {
        self.at
    }

    /// How many states are kept for going back, and how many bytes they take.
    pub fn kept(&self) -> (usize, usize) {
        let kept = self.stands.values().map(|stand| stand.kept());
        kept.fold((0, 0), |(count, bytes), (more, larger)| (count + more, bytes + larger))
    }

    /// Goes to an event; a sequence of 0 is before the first.
    ///
    /// # Errors
    /// `NotYet`, `FoldRefused`, `NoDomain`, and what reading gives.
    pub fn go_to(&mut self, to: EventRef) -> Result<(), StepError> {
        self.stand(to.partition)?.go_to(to.sequence)?;
        self.at = to;
        Ok(())
    }

    /// Goes to the last event of the partition at hand that was recorded by then.
    ///
    /// # Errors
    /// As [`Debugger::go_to`].
    pub fn go_to_time(&mut self, at: Timestamp) -> Result<(), StepError> {
        let partition = self.at.partition;
        let sequence = sequence_at_time(&*self.log, partition, at)?;
        self.go_to(EventRef { partition, sequence })
    }

    /// The newest event of the partition at hand.
    fn newest(&self) -> Result<u64, StepError> {
        Ok(newest(&*self.log, self.at.partition)?)
    }

    /// The event it stands at; `None` before the first.
    fn event(&self) -> Result<Option<EventRecord>, StepError> {
        match self.at.sequence {
            0 => Ok(None),
            _ => Ok(Some(event_at(&*self.log, self.at)?)),
        }
    }

    fn stand(&mut self, partition: Partition) -> Result<&mut Box<dyn Stand>, StepError> {
        use std::collections::btree_map::Entry;
        match self.stands.entry(partition) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let rungs: Option<RungDir> = (self.rungs)(partition);
                let domain = self.explainer.names().domains().of(partition.domain);
                let domain = domain.ok_or_else(|| StepError::NoDomain {
                    partition,
                    known: self.explainer.names().domains().names(),
                })?;
                let stand = domain.stand(&self.log, partition, rungs)?;
                Ok(new.insert(stand))
            }
        }
    }
}
