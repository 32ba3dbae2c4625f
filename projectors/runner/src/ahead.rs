//! While the log is far ahead: reading and checking on one thread, writing on another, the fold between them.
//!
//! Nothing here decides anything: what is read and folded is what a careful fold would read and fold, in the same
//! order, and what is stored is what it would store, many events at a time. When anything at all goes wrong, the
//! fold goes back to what is stored and goes on carefully, event by event, which tells what it is.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "reading and writing run on threads of their own beside the fold, with bounded queues between them"
)]

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use gatelog_event_log::{HistoryReader, Log, Offset, ReadLimit, Step, Tail};
use gatelog_record::{Partition, Stream};
use gatelog_store::rung::RungRows;
use gatelog_store::{Folded, Layout, Position, RungDir, Settled, SharedProjection, Staged, StoreError};
use gatelog_tables::DomainState;

use crate::folder::RunnerConfig;

/// How a partition is folded while the log is far ahead: on three threads, with rows stored many events at a time.
#[derive(Clone, Debug)]
pub struct Ahead {
    /// Begins after so many full batches in a row; never when 0.
    pub after_batches: u32,
    /// How much is stored together, about.
    pub store: ReadLimit,
    /// Of the rungs only every so many-th is written; none when 0.
    pub rungs: u64,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { after_batches: 4, store: ReadLimit { records: 32_768, bytes: 64 << 20 }, rungs: 10 }
    }
}

/// The fold while the log is far ahead.
pub(crate) struct FarAhead<S: DomainState> {
    reading: Reading,
    writing: Writing,
    partition: Partition,
    projection: SharedProjection<S>,
    rungs: RungDir,
    limit: ReadLimit,
    /// How much was folded and not handed over.
    folded: ReadLimit,
    /// Where the rows handed over last stand, and where those stand that are stored.
    handed_over: Position,
    stored: Position,
}

impl<S: DomainState> FarAhead<S> {
    /// Begins where the projection stands.
    pub fn start(
        log: Arc<dyn Log>,
        partition: Partition,
        projection: SharedProjection<S>,
        config: &RunnerConfig,
    ) -> io::Result<FarAhead<S>> {
        let rung_every = config.rung_every.saturating_mul(config.ahead.rungs);
        let position = projection.position();
        Ok(FarAhead {
            writing: Writing::start(partition)?,
            reading: Reading::start(log, partition, &position, config.batch, rung_every)?,
            partition,
            projection,
            rungs: RungDir::new(Layout::new(&config.root, partition).rungs()),
            limit: config.ahead.store,
            folded: NOTHING,
            handed_over: position,
            stored: position,
        })
    }

    /// Folds one batch and says how many events it was; `None` when it has to end.
    pub fn fold(&mut self) -> Option<usize> {
        let batch = self.reading.next()?;
        self.projection.fold_ahead(&batch.events, batch.next.0, batch.stale).ok()?;
        if batch.rung {
            self.write_rung();
        }
        self.folded.records += batch.events.len();
        self.folded.bytes += batch.bytes;
        let count = batch.events.len();
        self.reading.let_go(batch.events);
        let full = self.folded.records >= self.limit.records || self.folded.bytes >= self.limit.bytes;
        if full && !self.hand_over() {
            return None;
        }
        Some(count)
    }

    /// Hands over what was folded, once what was handed over before is stored; `false` when that is not.
    fn hand_over(&mut self) -> bool {
        if !self.settle() {
            return false;
        }
        self.folded = NOTHING;
        match self.projection.stage() {
            Ok(Some(staged)) => {
                self.handed_over = self.projection.position();
                self.writing.rows(staged);
            }
            Ok(None) => {}
            Err(_) => return false,
        }
        true
    }

    /// Waits for what was handed over to be stored.
    fn settle(&mut self) -> bool {
        let stored = self.writing.wait();
        if stored {
            self.writing.let_go(self.projection.settle());
            self.stored = self.handed_over;
        }
        stored
    }

    /// Where what is stored stands. Readers see this much, whatever fails from here on.
    pub fn stored(&self) -> Position {
        self.stored
    }

    // A rung that cannot be written costs time later, never the fold.
    fn write_rung(&mut self) {
        let view = self.projection.view();
        if !self.rungs.holds::<S>(self.partition, view.position())
            && let Ok(rows) = RungRows::take::<S, _>(self.partition, view.position(), view.live())
        {
            self.writing.rung(rows, self.rungs.clone());
        }
    }

    /// Stores what was folded, or, where that fails, goes back to what is stored.
    ///
    /// # Errors
    /// `StoreDamaged` when what is stored cannot be read.
    pub fn end(mut self) -> Result<Ended, StoreError> {
        let stored = self.hand_over() && self.settle();
        if !stored {
            // Nothing is on its way any more: it was waited for.
            self.projection.reload()?;
        }
        self.writing.finish();
        Ok(Ended { stored, failed_rungs: self.writing.failed_rungs() })
    }
}

/// How it ended.
pub(crate) struct Ended {
    /// Whether all that was folded could be stored.
    pub stored: bool,
    /// Why rungs were not written.
    pub failed_rungs: Vec<StoreError>,
}

/// Nothing folded yet.
const NOTHING: ReadLimit = ReadLimit { records: 0, bytes: 0 };

/// How many batches are read before they are folded.
const MAX_READ: usize = 4;
/// How many writes wait.
const MAX_JOBS: usize = 2;

/// Events read and checked, in their order.
pub(crate) struct Batch {
    pub events: Vec<Folded>,
    /// Where to read on after them.
    pub next: Offset,
    /// Records passed over.
    pub stale: u64,
    /// How many bytes of the log it is.
    pub bytes: usize,
    /// Whether a rung stands after it.
    pub rung: bool,
}

/// Reads and checks the log.
pub(crate) struct Reading {
    batches: Option<Receiver<Batch>>,
    /// Events that were folded go back: whoever made them can let go of them more cheaply.
    folded: SyncSender<Vec<Folded>>,
    thread: Option<JoinHandle<()>>,
}

impl Reading {
    /// Reads on from a position. A batch ends at every sequence that `rung_every` divides.
    pub fn start(
        log: Arc<dyn Log>,
        partition: Partition,
        position: &Position,
        limit: ReadLimit,
        rung_every: u64,
    ) -> io::Result<Reading> {
        let tail = Tail { sequence: position.sequence, term: position.term, link: position.link };
        let mut reader = HistoryReader::after(partition, tail);
        let mut from = Offset(position.log_offset);
        let (sender, batches) = sync_channel(MAX_READ);
        let (folded, done) = sync_channel(2 * MAX_READ);
        let thread = Builder::new().name(format!("read {partition}")).spawn(move || {
            while let Some(read) = read(&*log, partition, &mut reader, from, limit, rung_every) {
                for batch in read {
                    from = batch.next;
                    done.try_iter().for_each(drop);
                    if sender.send(batch).is_err() {
                        return;
                    }
                }
            }
        })?;
        Ok(Reading { batches: Some(batches), folded, thread: Some(thread) })
    }

    /// Hands back what was folded.
    pub fn let_go(&self, events: Vec<Folded>) {
        // Where there is no room for them they go here and now.
        let _ = self.folded.try_send(events);
    }

    /// The next events; `None` at the log's end, and where something is wrong with it.
    pub fn next(&self) -> Option<Batch> {
        self.batches.as_ref()?.recv().ok()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // Whoever waits for room in the queue ends by it.
        self.batches = None;
        join(&mut self.thread);
    }
}

fn join(thread: &mut Option<JoinHandle<()>>) {
    if let Some(thread) = thread.take() {
        // That it panicked shows in its queue, which ended early.
        let _ = thread.join();
    }
}

/// One read, in pieces; `None` when there is nothing more, or something a careful fold has to look at.
fn read(
    log: &dyn Log,
    partition: Partition,
    reader: &mut HistoryReader,
    from: Offset,
    limit: ReadLimit,
    rung_every: u64,
) -> Option<Vec<Batch>> {
    let found = log.read(Stream::Events(partition), from, limit).ok()?;
    if found.records.is_empty() {
        return None;
    }
    let mut pieces = Vec::new();
    let empty =
        || Batch { events: Vec::with_capacity(found.records.len()), next: from, stale: 0, bytes: 0, rung: false };
    let mut piece = empty();
    for (index, record) in found.records.iter().enumerate() {
        piece.bytes += record.bytes.len();
        piece.next = found.records.get(index + 1).map_or(found.next, |next| next.offset);
        match reader.next(record) {
            Ok(Step::Event(record, link)) => {
                piece.rung = rung_every > 0 && record.sequence % rung_every == 0;
                piece.events.push(Folded { record: *record, link, log_offset: piece.next.0 });
                if piece.rung {
                    pieces.push(std::mem::replace(&mut piece, empty()));
                }
            }
            Ok(Step::StaleWriter(_)) => piece.stale += 1,
            Err(_) => return None,
        }
    }
    if piece.bytes > 0 {
        pieces.push(piece);
    }
    Some(pieces)
}

enum Job {
    Rows(Staged),
    Rung(RungRows, RungDir),
    LetGo(Settled),
}

/// Writes what was handed over, one after the other.
pub(crate) struct Writing {
    jobs: Option<SyncSender<Job>>,
    written: Receiver<Result<(), StoreError>>,
    /// Whether rows were handed over whose end was not waited for. There are never more than one lot.
    under_way: bool,
    failed_rungs: Arc<Mutex<Vec<StoreError>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writing {
    pub fn start(partition: Partition) -> io::Result<Writing> {
        let (jobs, waiting) = sync_channel(MAX_JOBS);
        let (sender, written) = sync_channel(1);
        let failed_rungs = Arc::new(Mutex::new(Vec::new()));
        let failed = Arc::clone(&failed_rungs);
        let thread = Builder::new().name(format!("write {partition}")).spawn(move || {
            while let Ok(job) = waiting.recv() {
                match job {
                    Job::Rows(staged) => {
                        if sender.send(staged.write()).is_err() {
                            return;
                        }
                    }
                    Job::Rung(rows, dir) => {
                        if let Err(error) = rows.encode().and_then(|rung| dir.put(&rung)) {
                            failed.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                        }
                    }
                    Job::LetGo(rows) => drop(rows),
                }
            }
        })?;
        Ok(Writing { jobs: Some(jobs), written, under_way: false, failed_rungs, thread: Some(thread) })
    }

    /// Hands over rows, after those before were waited for.
    pub fn rows(&mut self, staged: Staged) {
        self.under_way = true;
        self.send(Job::Rows(staged));
    }

    /// Hands over a rung.
    pub fn rung(&self, rows: RungRows, dir: RungDir) {
        self.send(Job::Rung(rows, dir));
    }

    /// Hands over what nobody needs any more.
    pub fn let_go(&self, rows: Settled) {
        self.send(Job::LetGo(rows));
    }

    fn send(&self, job: Job) {
        // That nobody takes it any more shows when it is waited for.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }

    /// Waits for the rows handed over last: are they stored?
    pub fn wait(&mut self) -> bool {
        if !std::mem::take(&mut self.under_way) {
            return true;
        }
        match self.written.recv() {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!("{error}; it is folded again, event by event");
                false
            }
            Err(_) => false,
        }
    }

    /// Why rungs were not written.
    pub fn failed_rungs(&self) -> Vec<StoreError> {
        std::mem::take(&mut *self.failed_rungs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for everything that was handed over.
    pub fn finish(&mut self) {
        self.jobs = None;
        join(&mut self.thread);
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.finish();
    }
}
