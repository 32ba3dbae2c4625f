//! The shell without its thread: one input in, the records to append out.
//!
//! It holds the state, gives inputs their place, closes the context, asks the rules, folds what they
//! decided on an overlay, and only then makes it its own. It reads no clock and writes no log: a
//! thread ([`crate::writer`]), a simulated world and replay drive it alike.

mod ask;
mod changes;

use std::collections::BTreeMap;
use std::sync::Arc;

use gatelog_deciding::Rules;
use gatelog_event_log::checks::check_sizes;
use gatelog_event_log::{BlobError, Blobs, Description, MAX_APPEND, MAX_RECORD, Offset, Tail};
use gatelog_partition_state::PartitionTables;
use gatelog_record::draft::partition::{
    ClockStepped, InputRefused, InputTaken, LevelRaiseAsked, LevelRaised, LogRestored, OutboxCleared, OutboxDelivered,
    TimerCleared, TimerDue, WriterStarted,
};
use gatelog_record::event::PartitionEvent;
use gatelog_record::id::IdSource;
use gatelog_record::input::PartitionInput;
use gatelog_record::level::{self, GATELOG};
use gatelog_record::{
    ActorId, BlobHash, Cause, DecisionHeader, Event, EventId, EventRecord, Input, InputFrame, InputId, InputRecord,
    Partition, SiteId, Timestamp,
};
use gatelog_tables::{DomainState, FoldRefused, LiveTables, Maps};

use crate::clock::Times;
use crate::panics::catch;
use crate::published::{Changes, YellowReason};
use crate::waits::{Decided, Outcome};

/// How long a message in `InputRefused` may be, in bytes.
const MAX_MESSAGE: usize = 2_000;

/// Where a domain's live tables keep what every partition has.
pub type PartitionOf<S> = fn(&<S as DomainState>::Live<Maps>) -> &PartitionTables<Maps>;

/// Makes a domain's rules anew: at start, and after they panicked.
pub type RulesFactory<R> = Arc<dyn Fn() -> R + Send + Sync>;

/// Why the shell cannot go on with what it holds. Nothing of the input at hand was appended: the
/// partition is started again from the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShellError {
    /// The blob store failed for no fault of the input.
    #[error("input at offset {offset}: {why}")]
    BlobStore {
        /// The input.
        offset: u64,
        /// What the store said.
        why: BlobError,
    },
    /// The writer's own events do not fit the state: the state is not what the log says.
    #[error("the writer's own event {event} does not fit its state: {refused}")]
    State {
        /// The event's kind.
        event: &'static str,
        /// Why not.
        refused: FoldRefused,
    },
    /// The log holds kinds that this gatelog does not know.
    #[error(
        "the log's level is {level}, and this gatelog ({GATELOG}) knows records up to level {}: run {build}, which \
         wrote it last, or a later one",
        level::newest_read()
    )]
    Level {
        /// The log's level.
        level: u32,
        /// The build that wrote the newest term.
        build: String,
    },
    /// The writer's own event cannot be written.
    #[error("the writer's own event {event} cannot be written: {message}")]
    Write {
        /// The event's kind.
        event: &'static str,
        /// What is wrong.
        message: String,
    },
}

/// Records to be appended together, already part of the shell's state.
#[derive(Debug, Default)]
pub struct Append {
    /// The encoded records, in order.
    pub frames: Vec<Vec<u8>>,
    /// The same, open.
    pub records: Vec<EventRecord>,
    /// Their size in bytes.
    pub bytes: usize,
    /// The decision they are, unless they are the writer's own.
    pub decided: Option<Decided>,
    pub(crate) changes: Changes,
}

/// What names an input, whatever became of it.
struct Meta {
    actor: ActorId,
    key: String,
    traceparent: String,
    header: DecisionHeader,
    kind: Option<String>,
}

/// Why an input is refused.
struct Refused {
    code: &'static str,
    message: String,
}

impl Refused {
    fn new(code: &'static str, message: impl ToString) -> Refused {
        Refused { code, message: message.to_string() }
    }
}

/// Why an input is refused for what its surroundings say, not the rules: another day, with the same
/// history, they may say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// The log takes no decision of this size.
    TooLarge,
    /// A blob the decision needs is missing.
    BlobMissing,
    /// A blob the decision needs is damaged.
    BlobDamaged,
}

impl Outside {
    /// The code in `input-refused`.
    pub fn code(self) -> &'static str {
        match self {
            Outside::TooLarge => "too-large",
            Outside::BlobMissing => "blob-missing",
            Outside::BlobDamaged => "blob-damaged",
        }
    }

    /// What a code in `input-refused` stands for, if for something outside of the rules.
    pub fn of_code(code: &str) -> Option<Outside> {
        [Outside::TooLarge, Outside::BlobMissing, Outside::BlobDamaged].into_iter().find(|one| one.code() == code)
    }
}

/// One partition's decisions.
pub struct Shell<R: Rules> {
    partition: Partition,
    factory: RulesFactory<R>,
    rules: R,
    state: <R::State as DomainState>::Live<Maps>,
    tables: PartitionOf<R::State>,
    site: SiteId,
    generation: u32,
    term: u64,
    tail: Tail,
    outside: BTreeMap<u64, (Outside, String)>,
}

impl<R: Rules> Shell<R> {
    /// A shell over the state as of `tail`, in the term after it.
    pub fn new(
        partition: Partition,
        factory: RulesFactory<R>,
        tables: PartitionOf<R::State>,
        state: <R::State as DomainState>::Live<Maps>,
        tail: Tail,
        log: &Description,
    ) -> Shell<R> {
        Shell {
            partition,
            rules: factory(),
            factory,
            state,
            tables,
            site: log.site,
            generation: log.generation,
            term: tail.term + 1,
            tail,
            outside: BTreeMap::new(),
        }
    }

    /// The state, everything given out to append included.
    pub fn state(&self) -> &<R::State as DomainState>::Live<Maps> {
        &self.state
    }

    /// The part of it that every partition has.
    pub fn partition_tables(&self) -> &PartitionTables<Maps> {
        (self.tables)(&self.state)
    }

    /// The term it decides in.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Where the history stands once everything given out is appended.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Where to read inputs on.
    pub fn next_input(&self) -> Offset {
        Offset(self.place().last_input_offset.map_or(0, |last| last.saturating_add(1)))
    }

    /// The input at `offset` is refused when it comes, whatever the rules say of it: its decision turned
    /// out to be larger than the log takes, or, in a replay, was recorded as refused for a blob that was
    /// away then and may be back.
    pub fn refuse_for(&mut self, offset: u64, outside: Outside, message: String) {
        self.outside.insert(offset, (outside, message));
    }

    /// The first records of the term.
    ///
    /// # Errors
    /// [`ShellError::Level`], [`ShellError::State`], [`ShellError::Write`].
    pub fn start(&mut self, build: &str, times: impl Into<Times>) -> Result<Append, ShellError> {
        let before = self.place();
        if !level::known(before.level) {
            return Err(ShellError::Level { level: before.level, build: before.build });
        }
        let mut events = vec![PartitionEvent::WriterStarted(WriterStarted {
            term: self.term,
            build: build.to_owned(),
            registry: registry_digest(),
            site: self.site,
            generation: self.generation,
        })];
        if before.sequence > 0 && self.generation > before.generation {
            let reason =
                format!("the log was adopted as generation {} (it was {})", self.generation, before.generation);
            events.push(PartitionEvent::LogRestored(LogRestored { generation: self.generation, reason }));
        }
        self.own(events, times.into())
    }

    /// The record that the machine's clock jumped.
    ///
    /// # Errors
    /// [`ShellError::State`], [`ShellError::Write`].
    pub fn clock_stepped(&mut self, before: Timestamp, now: impl Into<Times>) -> Result<Append, ShellError> {
        let times = now.into();
        self.own(vec![PartitionEvent::ClockStepped(ClockStepped { before, now: times.wall })], times)
    }

    /// Takes the next input: there is always something to append. Of the times, the log's is what the rules see, and it
    /// is recorded: whoever decides again gives what stands there.
    ///
    /// # Errors
    /// [`ShellError`]: the shell must be dropped.
    pub fn take(
        &mut self,
        offset: Offset,
        bytes: &[u8],
        times: impl Into<Times>,
        blobs: &dyn Blobs,
    ) -> Result<Append, ShellError> {
        let Times { wall, log } = times.into();
        let now = wall.max(log).max(self.place().recorded_at);
        let (meta, input) = self.read(offset, bytes, now);
        let mut append = Append::default();
        let outcome = match input {
            Err(refused) => Err(refused),
            Ok(input) => match self.repeat(&input) {
                Some(taken) => Ok(vec![taken.into()]),
                None => self.answer(&mut append, &meta, &input, wall, blobs)?,
            },
        };
        let outcome = match (outcome, self.outside.remove(&offset.0)) {
            (_, Some((outside, message))) => Err(Refused { code: outside.code(), message }),
            (outcome, None) => outcome,
        };
        let refused = match outcome {
            Ok(mut events) => {
                if events.is_empty() && append.records.is_empty() {
                    events.push(nothing("nothing-to-do").into());
                }
                self.decide_on(&mut append, &meta, events, wall)?.err()
            }
            Err(refused) => Some(refused),
        };
        if let Some(refused) = &refused {
            self.refuse(&mut append, &meta, refused, wall)?;
        }
        self.finish(&mut append, &meta, refused);
        Ok(append)
    }

    fn place(&self) -> gatelog_partition_state::WriterRow {
        self.partition_tables().writer.rows.get(&()).cloned().unwrap_or_default()
    }

    /// Opens an input as far as it can be opened.
    fn read(&self, offset: Offset, bytes: &[u8], now: Timestamp) -> (Meta, Result<InputRecord, Refused>) {
        let digest = InputFrame::digest(bytes);
        let header = DecisionHeader {
            input_sequence: self.place().input_sequence + 1,
            input_offset: offset.0,
            input_digest: digest,
            now,
            input_id: InputId::default(),
            source: None,
            caused_by: None,
        };
        let mut meta =
            Meta { actor: ActorId::SYSTEM, key: String::new(), traceparent: String::new(), header, kind: None };
        let frame = match InputFrame::decode(bytes) {
            Ok(frame) => frame,
            Err(error) => {
                meta.header.input_id = unreadable(digest);
                return (meta, Err(Refused::new("unreadable", error)));
            }
        };
        meta.actor = frame.actor;
        meta.key = frame.key.clone();
        meta.traceparent = frame.traceparent.clone();
        meta.header.source = frame.source;
        meta.header.caused_by = frame.caused_by;
        if frame.input_id.as_str().is_empty() {
            meta.header.input_id = unreadable(digest);
            return (meta, Err(Refused::new("unreadable", "the input has no id: its sender must give it one")));
        }
        meta.header.input_id = frame.input_id.clone();
        match frame.open() {
            Ok(input) => {
                meta.kind = Some(input.input.name().to_owned());
                (meta, Ok(input))
            }
            Err(error) => (meta, Err(Refused::new("unreadable", error))),
        }
    }

    /// Whether the input was taken before: by the mark of its source, or by its id.
    fn repeat(&self, input: &InputRecord) -> Option<PartitionEvent> {
        let tables = self.partition_tables();
        let known = || tables.dedup.rows.get(input.input_id.as_str()).map(|row| row.sequence);
        let duplicate =
            |of| PartitionEvent::InputTaken(InputTaken { duplicate_of: of, reason: "duplicate".to_owned() });
        if let Some(source) = &input.source {
            let sender = (source.partition.domain as u8, source.partition.index);
            if tables.marks.rows.get(&sender).is_some_and(|mark| (source.sequence, source.ordinal) <= *mark) {
                return Some(duplicate(known()));
            }
        }
        // Timers and deliveries are told apart by the rows they are about: a timer may be set again to
        // the moment at which it came due before.
        if let Input::Partition(
            PartitionInput::TimerDue(_) | PartitionInput::OutboxDelivered(_) | PartitionInput::LevelRaiseAsked(_),
        ) = input.input
        {
            return None;
        }
        known().map(|of| duplicate(Some(of)))
    }

    /// Asks the rules, after what the shell itself has to say.
    fn answer(
        &mut self,
        append: &mut Append,
        meta: &Meta,
        input: &InputRecord,
        wall: Timestamp,
        blobs: &dyn Blobs,
    ) -> Result<Result<Vec<Event>, Refused>, ShellError> {
        match &input.input {
            Input::Partition(PartitionInput::TimerDue(TimerDue { timer, due_at })) => {
                if self.partition_tables().timers.rows.get(timer).is_none_or(|row| row.due_at != *due_at) {
                    return Ok(Ok(vec![nothing("timer-gone").into()]));
                }
                // Recorded whatever the rules make of it, so it is folded before they are asked: they
                // see the timer gone and may set it again.
                let cleared = PartitionEvent::TimerCleared(TimerCleared { timer: timer.clone(), fired: true });
                self.certain(append, meta, cleared.into(), wall)?;
            }
            Input::Partition(PartitionInput::OutboxDelivered(OutboxDelivered { to, up_to })) => {
                let from = (to.domain as u8, to.index, 0, 0);
                let until = (to.domain as u8, to.index, up_to.0, up_to.1);
                if self.partition_tables().outbox.rows.range(from..=until).next().is_none() {
                    return Ok(Ok(vec![nothing("already-cleared").into()]));
                }
                let cleared = PartitionEvent::OutboxCleared(OutboxCleared { to: *to, up_to: *up_to });
                return Ok(Ok(vec![cleared.into()]));
            }
            Input::Partition(PartitionInput::LevelRaiseAsked(asked)) => return Ok(self.raise(asked)),
            _ => {}
        }
        self.ask_rules(meta, input, blobs)
    }

    /// Raises the level of what may be written, unless somebody who is there could not read it.
    fn raise(&self, asked: &LevelRaiseAsked) -> Result<Vec<Event>, Refused> {
        let LevelRaiseAsked { level, present, reason: _ } = asked;
        if *level <= self.place().level {
            return Ok(vec![nothing("nothing-to-do").into()]);
        }
        level::may_raise(*level, present).map_err(|error| Refused::new("level-not-known", error))?;
        let raised = LevelRaised { level: *level, gatelog: GATELOG.to_owned(), present: present.clone() };
        Ok(vec![PartitionEvent::LevelRaised(raised).into()])
    }

    /// Makes a decision part of the state, unless it does not fit.
    fn decide_on(
        &mut self,
        append: &mut Append,
        meta: &Meta,
        events: Vec<Event>,
        wall: Timestamp,
    ) -> Result<Result<(), Refused>, ShellError> {
        let level = self.place().level;
        if let Some(event) = events.iter().find(|event| event.level() > level) {
            let message = format!(
                "the decision's event {} belongs to level {}, the log is at level {level}: raise it first",
                event.name(),
                event.level()
            );
            return Ok(Err(Refused::new("above-level", message)));
        }
        let records = self.records(append, meta, events, wall);
        let state = &self.state;
        let folded = catch(|| {
            let mut overlay = R::State::overlay(state);
            records
                .iter()
                .try_for_each(|record| overlay.apply(record).map_err(|refused| (record.event.name(), refused)))
        });
        match folded {
            Ok(Ok(())) => {}
            Ok(Err((event, refused))) => {
                let message = format!("the decision's event {event} does not fit the state: {refused}");
                return Ok(Err(Refused::new("fold-refused", message)));
            }
            Err(panicked) => return Ok(Err(self.panicked("the fold", meta, panicked))),
        }
        let (frames, tail) = match encode(&records, self.tail) {
            Ok(encoded) => encoded,
            Err((event, message)) => {
                return Ok(Err(Refused::new("unwritable", format!("event {event}: {message}"))));
            }
        };
        if let Err(error) = check_sizes(&frames, MAX_RECORD, MAX_APPEND) {
            return Ok(Err(Refused::new("too-large", error)));
        }
        self.adopt(append, records, frames, tail)?;
        Ok(Ok(()))
    }

    fn refuse(
        &mut self,
        append: &mut Append,
        meta: &Meta,
        refused: &Refused,
        wall: Timestamp,
    ) -> Result<(), ShellError> {
        let mut message = refused.message.clone();
        let mut length = message.len().min(MAX_MESSAGE);
        while !message.is_char_boundary(length) {
            length -= 1;
        }
        message.truncate(length);
        let event = PartitionEvent::InputRefused(InputRefused {
            code: refused.code.to_owned(),
            message,
            kind: meta.kind.clone(),
        });
        self.certain(append, meta, event.into(), wall)
    }

    /// An event of the shell itself, which must fit.
    fn certain(&mut self, append: &mut Append, meta: &Meta, event: Event, wall: Timestamp) -> Result<(), ShellError> {
        let records = self.records(append, meta, vec![event], wall);
        let (frames, tail) =
            encode(&records, self.tail).map_err(|(event, message)| ShellError::Write { event, message })?;
        self.adopt(append, records, frames, tail)
    }

    /// The writer's own records, which no input causes.
    fn own(&mut self, events: Vec<PartitionEvent>, Times { wall, log }: Times) -> Result<Append, ShellError> {
        let recorded_at = wall.max(log).max(self.place().recorded_at);
        let term = self.term;
        let first = self.tail.sequence + 1;
        let seed = BlobHash::of(&[b"own".as_slice(), &term.to_le_bytes(), &first.to_le_bytes()].concat());
        let mut ids = IdSource::new(self.site, self.generation, self.partition, 0, &seed.0);
        let records: Vec<EventRecord> = (first..)
            .zip(events)
            .map(|(sequence, event)| EventRecord {
                sequence,
                term,
                recorded_at,
                wall_at: wall,
                id: ids.next(),
                cause: Cause::Start,
                actor: ActorId::SYSTEM,
                key: String::new(),
                traceparent: String::new(),
                decision: None,
                event: event.into(),
            })
            .collect();
        let mut append = Append::default();
        let (frames, tail) =
            encode(&records, self.tail).map_err(|(event, message)| ShellError::Write { event, message })?;
        self.adopt(&mut append, records, frames, tail)?;
        append.changes = self.changes(&append.records);
        Ok(append)
    }

    fn records(&self, append: &Append, meta: &Meta, events: Vec<Event>, wall: Timestamp) -> Vec<EventRecord> {
        let before = append.records.len();
        let mut ids = event_ids(self.site, self.generation, self.partition, &meta.header);
        for _ in 0..before {
            let _: EventId = ids.next();
        }
        (self.tail.sequence + 1..)
            .zip(events)
            .enumerate()
            .map(|(index, (sequence, event))| EventRecord {
                sequence,
                term: self.term,
                recorded_at: meta.header.now,
                wall_at: wall,
                id: ids.next(),
                cause: Cause::Input { offset: meta.header.input_offset },
                actor: meta.actor,
                key: meta.key.clone(),
                traceparent: meta.traceparent.clone(),
                decision: (before + index == 0).then(|| meta.header.clone()),
                event,
            })
            .collect()
    }

    fn adopt(
        &mut self,
        append: &mut Append,
        records: Vec<EventRecord>,
        frames: Vec<Vec<u8>>,
        tail: Tail,
    ) -> Result<(), ShellError> {
        for record in &records {
            self.state.apply(record).map_err(|refused| ShellError::State { event: record.event.name(), refused })?;
        }
        self.tail = tail;
        append.bytes += frames.iter().map(Vec::len).sum::<usize>();
        append.frames.extend(frames);
        append.records.extend(records);
        Ok(())
    }

    fn finish(&self, append: &mut Append, meta: &Meta, refused: Option<Refused>) {
        append.changes = self.changes(&append.records);
        let first = append.records.first().map_or(0, |record| record.sequence);
        let outcome = outcome_of(&append.records);
        if let Some(refused) = refused
            // Whoever asks for a level is told; nothing here is the worse for it.
            && !matches!(refused.code, "unreadable" | "level-not-known")
        {
            append.changes.yellow = Some(YellowReason {
                code: refused.code.to_owned(),
                sequence: self.tail.sequence,
                input_offset: Some(meta.header.input_offset),
                message: refused.message,
                at: meta.header.now,
            });
        }
        append.decided = Some(Decided {
            input_offset: meta.header.input_offset,
            input_id: meta.header.input_id.clone(),
            first,
            last: self.tail.sequence,
            outcome,
        });
    }
}

/// An event's kind and why it cannot be written.
type Unwritable = (&'static str, String);

/// The frames of records that follow `tail`, and where the history stands after them.
fn encode(records: &[EventRecord], mut tail: Tail) -> Result<(Vec<Vec<u8>>, Tail), Unwritable> {
    let mut frames = Vec::with_capacity(records.len());
    for record in records {
        let envelope = record.close().map_err(|error| (record.event.name(), error.to_string()))?;
        let (frame, link) = envelope.encode(&tail.link);
        frames.push(frame);
        tail = Tail { sequence: record.sequence, term: record.term, link };
    }
    Ok((frames, tail))
}

/// The id of an input that has none that can be read.
fn unreadable(digest: [u8; 32]) -> InputId {
    InputId::new(format!("unreadable:{}", BlobHash(digest)))
}

fn nothing(reason: &str) -> PartitionEvent {
    PartitionEvent::InputTaken(InputTaken { duplicate_of: None, reason: reason.to_owned() })
}

/// How an input was dealt with, from the events of its decision.
pub fn outcome_of(records: &[EventRecord]) -> Outcome {
    match records.last().map(|record| (&record.event, records.len())) {
        Some((Event::Partition(PartitionEvent::InputRefused(refused)), _)) => {
            Outcome::Refused { code: refused.code.clone(), message: refused.message.clone() }
        }
        Some((Event::Partition(PartitionEvent::InputTaken(taken)), 1)) if taken.reason == "duplicate" => {
            Outcome::Duplicate { of: taken.duplicate_of }
        }
        Some((Event::Partition(PartitionEvent::InputTaken(taken)), 1)) => {
            Outcome::NothingToDo { reason: taken.reason.clone() }
        }
        _ => Outcome::Decided,
    }
}

/// Where the ids of a decision's events come from: like the ids the rules draw for what they name,
/// with the digest marked, so that no event shares its id with an item or a lease.
pub fn event_ids(site: SiteId, generation: u32, partition: Partition, header: &DecisionHeader) -> IdSource {
    let marked = BlobHash::of(&[b"event".as_slice(), &header.input_digest].concat());
    IdSource::new(site, generation, partition, header.input_sequence, &marked.0)
}

/// SHA-256 over the kinds and versions this build may write.
pub fn registry_digest() -> [u8; 32] {
    let mut text = String::new();
    for kind in Event::kinds() {
        text.push_str(&format!("{:04x} {} {}\n", kind.newest.kind, kind.newest.version, kind.name));
    }
    BlobHash::of(text.as_bytes()).0
}
