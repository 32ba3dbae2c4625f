//! The writer's thread: it takes a partition over, reads its inputs, has each decided, appends what
//! was decided, and makes it known once the log has acknowledged it.
//!
//! Crash-only: whatever goes wrong, the thread drops all it holds and starts the partition again from
//! the log, or stops for good where that cannot help. While appends are in flight the next inputs are
//! decided on the state those appends will make; when one fails, that state is dropped with all others.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gatelog_deciding::Rules;
use gatelog_event_log::{Blobs, EventWriter, Log, LogError, Offset, Pending, ReadLimit, ReadRecord, failpoint};
use gatelog_record::{Partition, Stream, Timestamp};

use crate::clock::{Clock, LogTime, Times};
use crate::error::WriterError;
use crate::panics::{Panicked, catch};
use crate::published::{Changes, Published, WriterHealth};
use crate::recover::{Initial, Recovered, recover};
use crate::shell::{Append, Outside, PartitionOf, RulesFactory, Shell};
use crate::signal::Signal;
use crate::waits::Decided;

/// A jump of the machine's clock beyond this is recorded.
const CLOCK_STEP_MICROS: i64 = 5 * 60 * 1_000_000;
/// How long a writer that is to stop waits for what is in flight. What is not acknowledged by then is
/// found on the log by the next writer, or taken from the inputs again.
const DRAIN: Duration = Duration::from_secs(10);
/// How often it looks meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// How a writer works.
#[derive(Clone, Debug)]
pub struct Options {
    /// What stands as build in `WriterStarted`.
    pub build: String,
    /// At most so many appends wait for their acknowledgement.
    pub in_flight: usize,
    /// At most so many bytes do, but always one append.
    pub in_flight_bytes: usize,
    /// How many inputs are read at once.
    pub batch: ReadLimit,
    /// How often it starts again without having got a single decision acknowledged before it gives up.
    pub restarts: u32,
    /// How long it waits before it starts again; doubled each time, up to 50 times this.
    pub backoff: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            build: env!("CARGO_PKG_VERSION").to_owned(),
            in_flight: 64,
            in_flight_bytes: 16 << 20,
            batch: ReadLimit { records: 256, bytes: 4 << 20 },
            restarts: 10,
            backoff: Duration::from_millis(100),
        }
    }
}

/// Gives the state to start from, each time the partition is started: tables of a projection's
/// checkpoint or a rung, or [`Initial::genesis`].
pub type InitialState<R> = Box<dyn FnMut() -> Result<Initial<<R as Rules>::State>, String> + Send>;

/// Everything a writer works with.
pub struct Setup<R: Rules> {
    /// The log.
    pub log: Arc<dyn Log>,
    /// The blobs that state and inputs name.
    pub blobs: Arc<dyn Blobs>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The partition.
    pub partition: Partition,
    /// Makes the rules, at start and after a panic.
    pub rules: RulesFactory<R>,
    /// Where the domain's tables keep what every partition has.
    pub tables: PartitionOf<R::State>,
    /// The state to start from.
    pub initial: InitialState<R>,
    /// Where it makes itself known.
    pub published: Arc<Published>,
    /// How it works.
    pub options: Options,
}

/// A partition's writer, on its own thread. Dropping it stops it.
pub struct Writer {
    published: Arc<Published>,
    signal: Arc<Signal>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the writer's thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start<R: Rules + 'static>(setup: Setup<R>) -> std::io::Result<Writer> {
        let published = Arc::clone(&setup.published);
        let (signal, stop) = (Signal::new(), Arc::new(AtomicBool::new(false)));
        let name = format!("writer {}", setup.partition);
        let mut running = Running { setup, signal: Arc::clone(&signal), stop: Arc::clone(&stop), poison: None };
        let thread = std::thread::Builder::new().name(name).spawn(move || running.run())?;
        Ok(Writer { published, signal, stop, thread: Some(thread) })
    }

    /// What it makes known.
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// Lets what is in flight come home and stops.
    pub fn stop(mut self) -> WriterHealth {
        self.halt();
        self.published.health()
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.signal.raise();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(partition = %self.published.partition(), "the writer's thread died");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.halt();
    }
}

struct Running<R: Rules> {
    setup: Setup<R>,
    signal: Arc<Signal>,
    stop: Arc<AtomicBool>,
    /// An input whose decision this log does not take.
    poison: Option<(u64, String)>,
}

/// An append on its way.
struct InFlight {
    result: Pending<Result<Offset, LogError>>,
    bytes: usize,
    decided: Option<Decided>,
    changes: Changes,
}

/// What a term holds; dropped whole when it ends.
struct Term<R: Rules> {
    shell: Shell<R>,
    events: Box<dyn EventWriter>,
    in_flight: VecDeque<InFlight>,
    bytes: usize,
    batch: VecDeque<ReadRecord>,
    next: Offset,
    changed: Option<Pending<()>>,
    /// What the machine's clock and the monotonic one said last.
    clock: (Timestamp, Duration),
    time: LogTime,
}

impl<R: Rules> Running<R> {
    fn run(&mut self) {
        let mut fruitless = 0;
        let mut after = None;
        loop {
            if after.take().is_none() {
                self.setup.published.starting(None);
            }
            let mut progress = false;
            let ended = catch(|| self.term(&mut progress)).unwrap_or_else(|Panicked { place, message }| {
                Err(WriterError::Panicked { partition: self.setup.partition, place, message })
            });
            let Err(error) = ended else {
                self.setup.published.stopped(None, false);
                return;
            };
            fruitless = if progress { 0 } else { fruitless + 1 };
            tracing::error!(partition = %self.setup.partition, error = %error, fruitless, "the writer fell over");
            if error.is_final() || (fruitless > self.setup.options.restarts && !error.is_transient()) {
                self.setup.published.stopped(Some(error.to_string()), error.fenced());
                return;
            }
            after = Some(error.to_string());
            // Said while it waits, too.
            self.setup.published.starting(after.clone());
            if self.pause(fruitless) {
                self.setup.published.stopped(after, false);
                return;
            }
        }
    }

    /// Waits before the next start; says whether it was asked to stop.
    fn pause(&self, fruitless: u32) -> bool {
        let factor = 1_u32.checked_shl(fruitless.saturating_sub(1)).unwrap_or(u32::MAX).min(50);
        if fruitless > 0 {
            self.signal.wait(Some(self.setup.options.backoff.saturating_mul(factor)));
        }
        self.stopping()
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// One term: from taking over to stopping or falling over.
    fn term(&mut self, progress: &mut bool) -> Result<(), WriterError> {
        let mut term = self.take_over()?;
        let waker = self.signal.waker();
        let mut stopping = None;
        loop {
            self.acknowledge(&mut term, &waker, progress)?;
            if self.stopping() {
                let since = *stopping.get_or_insert_with(Instant::now);
                if term.in_flight.is_empty() || since.elapsed() > DRAIN {
                    return Ok(());
                }
                self.signal.wait(Some(LOOK));
                continue;
            }
            let options = &self.setup.options;
            if term.in_flight.len() >= options.in_flight.max(1)
                || (!term.in_flight.is_empty() && term.bytes >= options.in_flight_bytes)
            {
                self.signal.wait(None);
                continue;
            }
            match term.batch.pop_front() {
                Some(input) => self.take(&mut term, &input)?,
                None => self.read(&mut term, &waker)?,
            }
        }
    }

    fn take_over(&mut self) -> Result<Term<R>, WriterError> {
        let Setup { log, partition, published, .. } = &self.setup;
        let (log, partition, published) = (Arc::clone(log), *partition, Arc::clone(published));
        let initial = (self.setup.initial)().map_err(|message| WriterError::Initial { partition, message })?;
        let recovered = recover::<R>(log.as_ref(), partition, initial, |decided| published.waits().settle(decided))?;
        failpoint::pass("writer/claimed");
        let Recovered { live, tail, stale, events } = recovered;
        let factory = Arc::clone(&self.setup.rules);
        let mut shell = Shell::new(partition, factory, self.setup.tables, live, tail, &log.describe());
        if let Some((offset, message)) = self.poison.take() {
            shell.refuse_for(offset, Outside::TooLarge, message);
        }
        let clock = (self.setup.clock.now(), self.setup.clock.monotonic());
        published.caught_up(shell.partition_tables(), stale, clock);
        let newest = shell.partition_tables().writer.rows.get(&());
        let before = newest.map(|row| row.wall_at);
        let mut time = LogTime::new(newest.map_or(clock.0, |row| row.recorded_at), clock.1);
        let times = time.read(clock.0, clock.1);
        let next = shell.next_input();
        let mut term = Term {
            shell,
            events,
            in_flight: VecDeque::new(),
            bytes: 0,
            batch: VecDeque::new(),
            next,
            changed: None,
            clock,
            time,
        };
        let started = term.shell.start(&self.setup.options.build, times).map_err(|source| self.fell(source))?;
        Self::append(&mut term, started);
        failpoint::pass("writer/start-appended");
        // Going forward over a restart is what time does; going back is a jump.
        if let Some(before) = before
            && before.0.saturating_sub(clock.0.0) > CLOCK_STEP_MICROS
        {
            self.stepped(&mut term, before, times)?;
        }
        Ok(term)
    }

    fn fell(&self, source: crate::shell::ShellError) -> WriterError {
        WriterError::Shell { partition: self.setup.partition, why: source }
    }

    fn stepped(&self, term: &mut Term<R>, before: Timestamp, times: Times) -> Result<(), WriterError> {
        tracing::warn!(partition = %self.setup.partition, %before, now = %times.wall, "the machine's clock jumped");
        let append = term.shell.clock_stepped(before, times).map_err(|source| self.fell(source))?;
        Self::append(term, append);
        Ok(())
    }

    fn append(term: &mut Term<R>, append: Append) {
        let Append { frames, bytes, decided, mut changes, .. } = append;
        for (_, entry) in &mut changes.timers {
            *entry = entry.take().map(|entry| entry.from(term.clock.1));
        }
        let result = term.events.append(frames);
        term.bytes += bytes;
        term.in_flight.push_back(InFlight { result, bytes, decided, changes });
    }

    /// Makes known what the log has acknowledged since the last time.
    fn acknowledge(&mut self, term: &mut Term<R>, waker: &Waker, progress: &mut bool) -> Result<(), WriterError> {
        let partition = self.setup.partition;
        while let Some(front) = term.in_flight.front_mut() {
            let answer = match Pin::new(&mut front.result).poll(&mut Context::from_waker(waker)) {
                Poll::Pending => break,
                Poll::Ready(answer) => answer,
            };
            let Some(done) = term.in_flight.pop_front() else { break };
            match answer {
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    if let (LogError::TooLarge { .. }, Some(decided)) = (&error, &done.decided) {
                        self.poison = Some((decided.input_offset, format!("the decision is too large: {error}")));
                    }
                    return Err(error.into());
                }
                None => return Err(WriterError::NoAnswer { partition, sequence: done.changes.last }),
            }
            term.bytes = term.bytes.saturating_sub(done.bytes);
            failpoint::pass("writer/acknowledged");
            self.setup.published.acknowledged(term.shell.term(), done.changes);
            failpoint::pass("writer/published");
            if let Some(decided) = done.decided {
                *progress = true;
                self.setup.published.waits().settle(decided);
            }
        }
        Ok(())
    }

    /// Reads on, or sleeps until there is something to do.
    fn read(&self, term: &mut Term<R>, waker: &Waker) -> Result<(), WriterError> {
        let stream = Stream::Inputs(self.setup.partition);
        if let Some(changed) = &mut term.changed {
            match Pin::new(changed).poll(&mut Context::from_waker(waker)) {
                Poll::Pending => {
                    self.signal.wait(None);
                    return Ok(());
                }
                Poll::Ready(Some(())) => term.changed = None,
                Poll::Ready(None) => return Err(WriterError::Closed { partition: self.setup.partition }),
            }
        }
        let mut read = self.setup.log.read(stream, term.next, self.setup.options.batch)?;
        if read.records.is_empty() {
            read = term.events.accepted(term.next, self.setup.options.batch)?;
        }
        term.next = read.next;
        term.batch = read.records.into();
        if term.batch.is_empty() {
            let early = term.events.awaits(term.next)?;
            term.changed = Some(early.unwrap_or_else(|| self.setup.log.changed(stream, term.next)));
        }
        Ok(())
    }

    fn take(&mut self, term: &mut Term<R>, input: &ReadRecord) -> Result<(), WriterError> {
        let (wall, monotonic) = (self.setup.clock.now(), self.setup.clock.monotonic());
        let passed = i64::try_from(monotonic.saturating_sub(term.clock.1).as_micros()).unwrap_or(i64::MAX);
        let expected = Timestamp(term.clock.0.0.saturating_add(passed));
        term.clock = (wall, monotonic);
        let times = term.time.read(wall, monotonic);
        if wall.0.saturating_sub(expected.0).saturating_abs() > CLOCK_STEP_MICROS {
            self.stepped(term, expected, times)?;
        }
        failpoint::pass("writer/input-read");
        let append = term
            .shell
            .take(input.offset, &input.bytes, times, self.setup.blobs.as_ref())
            .map_err(|source| self.fell(source))?;
        failpoint::pass("writer/decided");
        Self::append(term, append);
        failpoint::pass("writer/appended");
        Ok(())
    }
}
