//! What every domain's rules are to the shell around them.
//!
//! `decide(&state, &input, &context) → events` is pure. The context is closed: the moment, the ids,
//! and the blobs that state and input name. Rules see their own events through [`Deciding`], which
//! folds each onto an overlay of the state as it is emitted, so that the next rule reads what the
//! one before it decided. Nothing here knows a clock, a file or a log. What every domain decides of its pending work
//! in the same way is [`work`].

pub mod work;

use gatelog_record::id::IdSource;
use gatelog_record::{ActorId, BlobHash, Cause, Event, EventId, EventRecord, InputRecord, Timestamp};
use gatelog_tables::{DomainState, FoldRefused, LiveTables, Maps, Overlay};

/// Why an input could not be decided. The shell records it; nothing else suffers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An event of the decision does not fit the state: a fault in the rules.
    #[error("the decision's event {event} does not fit the state: {refused}")]
    Fold {
        /// The event's kind.
        event: &'static str,
        /// Why not.
        refused: FoldRefused,
    },
    /// The decision became too large.
    #[error("the decision became larger than its budget of {limit} events")]
    OverBudget {
        /// The limit.
        limit: usize,
    },
    /// A blob that state or input name could not be had.
    #[error("blob {hash} is needed for this decision: {message}")]
    Blob {
        /// The blob.
        hash: BlobHash,
        /// What is wrong with it.
        message: String,
    },
    /// The input does not belong to this domain.
    #[error("an input of kind {0} is not for this domain")]
    NotOurs(&'static str),
}

/// The most events one decision may have.
pub const MAX_EVENTS: usize = 20_000;

/// What a decision may know besides state and input.
#[derive(Clone, Debug)]
pub struct Context {
    /// The only clock a decision sees.
    pub now: Timestamp,
    /// Where its ids come from.
    pub ids: IdSource,
    /// The writer's count of this input; a trigger is named by it.
    pub input_sequence: u64,
    /// The sequence its first event will have.
    pub first_sequence: u64,
    /// The writer's term.
    pub term: u64,
    /// The offset of the input.
    pub input_offset: u64,
}

/// A domain's rules.
///
/// `needs` and `admit` fill what a decision reads from blobs (layouts above all): the shell asks
/// which blobs are wanting, fetches and admits them. What is admitted is a pure function of the
/// blob's bytes, so holding it changes no decision; rules bound how much they hold.
pub trait Rules: Send {
    /// The state they decide on.
    type State: DomainState;

    /// The blobs, named by state or input, that deciding this input reads and that are not held.
    fn needs(&self, state: &<Self::State as DomainState>::Live<Maps>, input: &InputRecord) -> Vec<BlobHash>;

    /// Takes in a blob. An error refuses the input that needs it.
    fn admit(&mut self, hash: BlobHash, bytes: &[u8]) -> Result<(), String>;

    /// Decides one input. An empty answer is recorded as `InputTaken`.
    fn decide(
        &self,
        state: &<Self::State as DomainState>::Live<Maps>,
        input: &InputRecord,
        context: Context,
    ) -> Result<Vec<Event>, Refusal>;
}

/// A decision in the making: the state with the decision's own events on top.
pub struct Deciding<'a, S: DomainState> {
    /// What the rules read.
    pub state: S::Live<Overlay<'a>>,
    /// The only clock.
    pub now: Timestamp,
    /// The writer's count of this input.
    pub input_sequence: u64,
    /// Who asked.
    pub actor: ActorId,
    /// The key of the input.
    pub key: String,
    context: Context,
    events: Vec<Event>,
}

impl<'a, S: DomainState> Deciding<'a, S> {
    /// Begins a decision on one input.
    pub fn begin(state: &'a S::Live<Maps>, input: &InputRecord, context: Context) -> Self {
        Deciding {
            state: S::overlay(state),
            now: context.now,
            input_sequence: context.input_sequence,
            actor: input.actor,
            key: input.key.clone(),
            context,
            events: Vec::new(),
        }
    }

    /// The next id of this decision.
    pub fn id<T: From<[u8; 16]>>(&mut self) -> T {
        self.context.ids.next()
    }

    /// Decides an event: it is folded onto the overlay at once.
    pub fn emit(&mut self, event: impl Into<Event>) -> Result<(), Refusal> {
        if self.events.len() >= MAX_EVENTS {
            return Err(Refusal::OverBudget { limit: MAX_EVENTS });
        }
        let event = event.into();
        let kind = event.name();
        let record = EventRecord {
            sequence: self.next_sequence(),
            term: self.context.term,
            recorded_at: self.now,
            wall_at: self.now,
            id: EventId::default(),
            cause: Cause::Input { offset: self.context.input_offset },
            actor: self.actor,
            key: self.key.clone(),
            traceparent: String::new(),
            decision: None,
            event,
        };
        self.state.apply(&record).map_err(|refused| Refusal::Fold { event: kind, refused })?;
        self.events.push(record.event);
        Ok(())
    }

    /// The sequence the next event will have.
    pub fn next_sequence(&self) -> u64 {
        self.context.first_sequence + self.events.len() as u64
    }

    /// What was decided so far.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Ends the decision.
    pub fn finish(self) -> Vec<Event> {
        self.events
    }
}
