//! One partition's writer without its thread: the real [`Shell`] over the memory log, and beside it a
//! projection that is fed by nothing but records read back.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use gatelog_deciding::Rules;
use gatelog_event_log::{
    Claim, EventWriter, HistoryReader, Log, LogError, MemoryBlobs, MemoryLog, Offset, Pending, ReadLimit, ReadRecord,
    Step, Tail,
};
use gatelog_record::{EventRecord, Partition, Stream, Timestamp};
use gatelog_store::rung::{rows_of, tables_of};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{DomainState, LiveTables, Maps, TableSet};
use gatelog_writer::{LogTime, PartitionOf, RulesFactory, Shell};

/// At most so many appends wait for their acknowledgement.
const IN_FLIGHT: usize = 8;

/// Live tables in memory.
pub type LiveOf<S> = <S as DomainState>::Live<Maps>;

/// SHA-256 over everything in live tables.
///
/// # Errors
/// When a row cannot be encoded.
pub fn digest<L: TableSet<Maps>>(live: &L) -> Result<[u8; 32], String> {
    let mut digest = StateDigest::default();
    live.visit(&mut digest).map_err(|error| error.to_string())?;
    Ok(digest.finish())
}

/// Live tables written down, as a rung is: with their place and digest.
struct Snapshot {
    rows: Vec<u8>,
    tail: Tail,
    digest: [u8; 32],
}

/// What the clocks of a machine say.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// The one that is set.
    pub wall: Timestamp,
    /// The one that only goes on, in microseconds since the world began.
    pub monotonic: i64,
}

impl Clocks {
    fn monotonic(self) -> Duration {
        Duration::from_micros(u64::try_from(self.monotonic).unwrap_or(0))
    }
}

struct Running<R: Rules> {
    shell: Shell<R>,
    time: LogTime,
    events: Box<dyn EventWriter>,
    in_flight: VecDeque<(Pending<Result<Offset, LogError>>, u64)>,
    batch: VecDeque<ReadRecord>,
    next: Offset,
}

/// Where a timer stands on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    /// When it comes due, in microseconds since the world began.
    pub deadline: i64,
    /// The event that set it.
    pub set_by: u64,
}

/// What the log says, folded.
pub struct Projection<S: DomainState> {
    /// The live tables.
    pub live: LiveOf<S>,
    /// When timers come due by the monotonic clock.
    pub timers: BTreeMap<String, Armed>,
    reader: HistoryReader,
    next: Offset,
}

/// What became of appends under way.
pub enum Acknowledged {
    /// So many were acknowledged.
    Kept(usize),
    /// One was not: the writer fell over.
    Fell(String),
}

/// A partition: its writer, if it is up, and its projection.
pub struct Host<R: Rules> {
    partition: Partition,
    factory: RulesFactory<R>,
    tables: PartitionOf<R::State>,
    log: MemoryLog,
    blobs: MemoryBlobs,
    running: Option<Running<R>>,
    snapshot: Option<Snapshot>,
    /// The newest event that was acknowledged to a writer.
    acknowledged: u64,
    /// What is on the log.
    pub projection: Projection<R::State>,
}

fn fresh<S: DomainState>() -> Result<LiveOf<S>, String> {
    LiveOf::<S>::open(&mut Maps).map_err(|error| error.to_string())
}

impl<R: Rules> Host<R> {
    /// A partition whose writer is not up yet.
    ///
    /// # Errors
    /// None that ordered maps can give.
    pub fn new(
        partition: Partition,
        factory: RulesFactory<R>,
        tables: PartitionOf<R::State>,
        log: MemoryLog,
        blobs: MemoryBlobs,
    ) -> Result<Self, String> {
        let projection = Projection {
            live: fresh::<R::State>()?,
            timers: BTreeMap::new(),
            reader: HistoryReader::from_genesis(partition),
            next: Offset(0),
        };
        Ok(Host { partition, factory, tables, log, blobs, running: None, snapshot: None, acknowledged: 0, projection })
    }

    /// The partition.
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// Makes its rules.
    pub fn factory(&self) -> RulesFactory<R> {
        RulesFactory::clone(&self.factory)
    }

    /// Where its tables have what every partition has.
    pub fn tables(&self) -> PartitionOf<R::State> {
        self.tables
    }

    /// Whether its writer is up.
    pub fn is_up(&self) -> bool {
        self.running.is_some()
    }

    /// How many appends wait for their acknowledgement.
    pub fn in_flight(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.in_flight.len())
    }

    /// Takes the partition over: claims it and folds what is on the log, from the beginning or from the
    /// newest snapshot. Gives the term.
    ///
    /// # Errors
    /// A sentence that says which promise was broken.
    pub fn start(&mut self, clocks: Clocks, from_snapshot: bool) -> Result<u64, String> {
        let (mut live, tail) = match self.snapshot.as_ref().filter(|_| from_snapshot) {
            Some(snapshot) => {
                let live: LiveOf<R::State> = tables_of(&snapshot.rows).map_err(|error| error.to_string())?;
                if digest(&live)? != snapshot.digest {
                    return Err(format!("{}: a snapshot came back with another digest", self.partition));
                }
                (live, snapshot.tail)
            }
            None => (fresh::<R::State>()?, Tail::GENESIS),
        };
        let (claim, events) = self.log.claim(self.partition).map_err(|error| error.to_string())?;
        let Claim { last_sequence, last_link, .. } = claim;
        if last_sequence < self.acknowledged {
            return Err(format!(
                "{}: event {} was acknowledged and is gone: the log ends at {last_sequence}",
                self.partition, self.acknowledged
            ));
        }
        let mut reader = HistoryReader::after(self.partition, tail);
        let mut from = self.log.seek(self.partition, tail.sequence + 1).map_err(|error| error.to_string())?;
        while reader.tail().sequence < last_sequence {
            let batch = self
                .log
                .read(Stream::Events(self.partition), from, ReadLimit::default())
                .map_err(|error| error.to_string())?;
            if batch.records.is_empty() {
                return Err(format!("{}: the log is shorter than its claim said", self.partition));
            }
            from = batch.next;
            for bytes in &batch.records {
                let Step::Event(record, _) = reader.next(bytes).map_err(|error| error.to_string())? else { continue };
                live.apply(&record).map_err(|refused| {
                    format!("{}: event {} does not fold: {refused}", self.partition, record.sequence)
                })?;
            }
        }
        if reader.tail().link != last_link {
            return Err(format!("{}: the fold ends in another link than the claim", self.partition));
        }
        let shell = Shell::new(
            self.partition,
            RulesFactory::clone(&self.factory),
            self.tables,
            live,
            reader.tail(),
            &self.log.describe(),
        );
        let next = shell.next_input();
        let newest = (self.tables)(shell.state()).writer.rows.get(&()).map_or(clocks.wall, |row| row.recorded_at);
        let time = LogTime::new(newest, clocks.monotonic());
        let mut running = Running { shell, time, events, in_flight: VecDeque::new(), batch: VecDeque::new(), next };
        let times = running.time.read(clocks.wall, clocks.monotonic());
        let started = running.shell.start("world", times).map_err(|error| error.to_string())?;
        running.append(started.frames);
        let term = running.shell.term();
        self.running = Some(running);
        Ok(term)
    }

    /// The writer dies; what it had in flight may or may not come to be written.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Another writer takes over while this one still believes that it owns the partition. Gives a
    /// record of the old term, as it would reach a log that cannot fence at once, if there was an input
    /// to make one of.
    ///
    /// # Errors
    /// When the old writer could still append, or the new one cannot start.
    pub fn take_over(&mut self, clocks: Clocks, from_snapshot: bool) -> Result<Option<Vec<u8>>, String> {
        let Some(mut old) = self.running.take() else { return Ok(None) };
        self.start(clocks, from_snapshot)?;
        let Some(input) = self.read_one(&mut old)? else { return Ok(None) };
        let times = old.time.read(clocks.wall, clocks.monotonic());
        let append = old
            .shell
            .take(input.offset, &input.bytes, times, &self.blobs)
            .map_err(|error| format!("{}: {error}", self.partition))?;
        let stale = append.frames.first().cloned();
        match old.events.append(append.frames).wait_for(Duration::ZERO) {
            Ok(Some(Err(LogError::Fenced { .. }))) => Ok(stale),
            Ok(other) => Err(format!("{}: a writer that was fenced off got {other:?}", self.partition)),
            Err(_) => Err(format!("{}: a writer that was fenced off is not told so", self.partition)),
        }
    }

    fn read_one(&self, running: &mut Running<R>) -> Result<Option<ReadRecord>, String> {
        if running.batch.is_empty() {
            let limit = ReadLimit { records: 16, ..ReadLimit::default() };
            let read = self
                .log
                .read(Stream::Inputs(self.partition), running.next, limit)
                .map_err(|error| error.to_string())?;
            running.next = read.next;
            running.batch = read.records.into();
        }
        Ok(running.batch.pop_front())
    }

    /// Whether an input waits to be taken.
    pub fn has_input(&self) -> bool {
        let Some(running) = &self.running else { return false };
        !running.batch.is_empty() || self.log.end(Stream::Inputs(self.partition)).is_ok_and(|end| end > running.next)
    }

    /// Takes the next input, if there is one and not too much is in flight. Gives what became of it.
    ///
    /// # Errors
    /// When the shell itself gives up.
    pub fn take(&mut self, clocks: Clocks) -> Result<Option<String>, String> {
        let Some(mut running) = self.running.take() else { return Ok(None) };
        if running.in_flight.len() >= IN_FLIGHT {
            self.running = Some(running);
            return Ok(None);
        }
        let Some(input) = self.read_one(&mut running)? else {
            self.running = Some(running);
            return Ok(None);
        };
        let times = running.time.read(clocks.wall, clocks.monotonic());
        let append = running
            .shell
            .take(input.offset, &input.bytes, times, &self.blobs)
            .map_err(|error| format!("{}: {error}", self.partition))?;
        let first = append.records.first();
        let told = format!(
            "input {} {} -> {}",
            input.offset.0,
            first.and_then(|first| first.decision.as_ref()).map_or("?", |decision| decision.input_id.as_str()),
            append.records.iter().map(|record| record.event.name()).collect::<Vec<_>>().join(" ")
        );
        running.append(append.frames);
        self.running = Some(running);
        Ok(Some(told))
    }

    /// The machine's clock jumped: the writer records it.
    ///
    /// # Errors
    /// When the shell itself gives up.
    pub fn clock_stepped(&mut self, before: Timestamp, clocks: Clocks) -> Result<(), String> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let times = running.time.read(clocks.wall, clocks.monotonic());
        let append = running.shell.clock_stepped(before, times).map_err(|error| error.to_string())?;
        running.append(append.frames);
        Ok(())
    }

    /// Looks what the log has acknowledged.
    pub fn acknowledge(&mut self) -> Acknowledged {
        let mut kept = 0;
        while let Some(running) = &mut self.running {
            let Some((pending, last)) = running.in_flight.pop_front() else { break };
            match pending.wait_for(Duration::ZERO) {
                Err(pending) => {
                    running.in_flight.push_front((pending, last));
                    break;
                }
                Ok(Some(Ok(_))) => {
                    self.acknowledged = self.acknowledged.max(last);
                    kept += 1;
                }
                Ok(other) => {
                    self.running = None;
                    return Acknowledged::Fell(match other {
                        Some(Err(error)) => error.to_string(),
                        _ => format!("no acknowledgement of event {last} came"),
                    });
                }
            }
        }
        Acknowledged::Kept(kept)
    }

    /// Folds what is new on the log; `seen` is told of each event, with the tables after it.
    ///
    /// # Errors
    /// A broken history, an event that does not fold, or what `seen` has to say.
    pub fn follow(
        &mut self,
        monotonic: i64,
        mut seen: impl FnMut(&LiveOf<R::State>, &EventRecord) -> Result<(), String>,
    ) -> Result<usize, String> {
        let mut count = 0;
        loop {
            let projection = &mut self.projection;
            let batch = self
                .log
                .read(Stream::Events(self.partition), projection.next, ReadLimit::default())
                .map_err(|error| error.to_string())?;
            if batch.records.is_empty() {
                return Ok(count);
            }
            projection.next = batch.next;
            for bytes in &batch.records {
                let step = projection.reader.next(bytes).map_err(|error| error.to_string())?;
                let Step::Event(record, _) = step else { continue };
                projection.live.apply(&record).map_err(|refused| {
                    format!("{}: event {} does not fold: {refused}", self.partition, record.sequence)
                })?;
                projection.arm(&record, monotonic);
                seen(&projection.live, &record)?;
                count += 1;
            }
        }
    }

    /// Compares the writer's state with what the log folds to, if they stand at the same event. Gives
    /// whether they do.
    ///
    /// # Errors
    /// When they differ.
    pub fn agrees(&self) -> Result<bool, String> {
        let Some(running) = &self.running else { return Ok(false) };
        if running.shell.tail() != self.projection.reader.tail() {
            return Ok(false);
        }
        if digest(running.shell.state())? != digest(&self.projection.live)? {
            return Err(format!(
                "{}: the writer's state at event {} is not what the log folds to",
                self.partition,
                running.shell.tail().sequence
            ));
        }
        Ok(true)
    }

    /// Keeps the tables as they are, to start from.
    ///
    /// # Errors
    /// When a row cannot be encoded.
    pub fn keep_snapshot(&mut self) -> Result<u64, String> {
        let live = &self.projection.live;
        let rows = rows_of(live).map_err(|error| error.to_string())?;
        let tail = self.projection.reader.tail();
        self.snapshot = Some(Snapshot { rows, tail, digest: digest(live)? });
        Ok(tail.sequence)
    }

    /// Where the history stands.
    pub fn tail(&self) -> Tail {
        self.projection.reader.tail()
    }

    /// Folds everything from the beginning once more and compares.
    ///
    /// # Errors
    /// When it comes to something else.
    pub fn refold(&self) -> Result<(), String> {
        let mut live = fresh::<R::State>()?;
        let mut reader = HistoryReader::from_genesis(self.partition);
        for bytes in self.log.records(Stream::Events(self.partition)) {
            let Step::Event(record, _) = reader.next(&bytes).map_err(|error| error.to_string())? else { continue };
            live.apply(&record).map_err(|refused| refused.to_string())?;
        }
        if digest(&live)? != digest(&self.projection.live)? {
            return Err(format!("{}: all events from the beginning fold to another state", self.partition));
        }
        Ok(())
    }
}

impl<R: Rules> Running<R> {
    fn append(&mut self, frames: Vec<Vec<u8>>) {
        let last = self.shell.tail().sequence;
        self.in_flight.push_back((self.events.append(frames), last));
    }
}

impl<S: DomainState> Projection<S> {
    /// Waits are measured by the monotonic clock from the moment a timer's event is seen.
    fn arm(&mut self, record: &EventRecord, monotonic: i64) {
        use gatelog_record::Event;
        use gatelog_record::event::PartitionEvent;
        match &record.event {
            Event::Partition(PartitionEvent::TimerSet(set)) => {
                let wait = set.due_at.0.saturating_sub(record.recorded_at.0).max(0);
                let armed = Armed { deadline: monotonic.saturating_add(wait), set_by: record.sequence };
                self.timers.insert(set.timer.clone(), armed);
            }
            Event::Partition(PartitionEvent::TimerCleared(cleared)) => {
                self.timers.remove(&cleared.timer);
            }
            _ => {}
        }
    }
}
