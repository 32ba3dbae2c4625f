//! [`EmbeddedLog`]: the contract, over a view and a committer.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use gatelog_event_log::checks::{check_events, check_sizes};
use gatelog_event_log::{
    Claim, Completer, Description, EventWriter, Log, LogError, Offset, Pending, Place, ReadBatch, ReadLimit, Survives,
    Tail, pending,
};
use gatelog_record::{Partition, Stream};
use parking_lot::{Condvar, Mutex};

use crate::commit::{Committer, Item, Owed, Queue, queue_size};
use crate::home::{Home, Lock, LogHeader, system, write_hint};
use crate::index::View;
use crate::options::{Options, ReaderOptions, Stats};
use crate::read::{read_stream, seek_stream};
use crate::recover::recover;
use crate::refresh::Follower;

/// No frame is larger than what this and the headers of its records come to.
const MOST_BYTES: u64 = 512 << 20;
/// The most records one append may carry.
const MOST_RECORDS: usize = 1 << 20;

/// What all parts of an open log share.
pub(crate) struct Shared {
    pub(crate) home: Home,
    pub(crate) site: gatelog_record::SiteId,
    header: LogHeader,
    pub(crate) options: Options,
    pub(crate) view: Mutex<View>,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) queue_changed: Condvar,
    /// A writer has said what it had to say of the inputs that wait in the queue.
    pub(crate) decided: Condvar,
    pub(crate) stats: Mutex<Stats>,
    /// Why appends are refused for now, and the cure.
    pub(crate) refusing: Mutex<Option<String>>,
    /// Set when this log is open for reading only.
    follower: Option<Mutex<Follower>>,
}

struct Running {
    thread: JoinHandle<()>,
    #[expect(dead_code, reason = "held while the log is open")]
    lock: Option<Lock>,
}

/// The embedded log. See the crate's documentation for what it promises.
pub struct EmbeddedLog {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

impl EmbeddedLog {
    /// Opens the log in this directory for writing; makes a new one when there is none.
    ///
    /// # Errors
    /// `InUse` when another process (or this one) has it open for writing; `Damaged` at a segment and
    /// byte; `Behind` when more is known of this log than is there; `System`.
    pub fn open(dir: impl AsRef<Path>, mut options: Options) -> Result<EmbeddedLog, LogError> {
        let home = Home::new(dir.as_ref());
        home.make_dirs()?;
        let lock = home.lock()?;
        options.max_append = options.max_append.min(MOST_BYTES);
        options.max_record = options.max_record.min(options.max_append);
        options.group_bytes = options.group_bytes.min(MOST_BYTES);
        let header = match home.read_header()? {
            Some(header) => header,
            None if home.segment_numbers()?.is_empty() => home.create(options.partitions)?,
            None => {
                return Err(LogError::Damaged {
                    place: Place {
                        stream: None,
                        offset: None,
                        physical: home.dir.join("HEADER").display().to_string(),
                    },
                    what: "there are segments, but the log's header is missing".to_owned(),
                });
            }
        };
        let recovered = recover(&home, header.site, &options)?;
        if recovered.cut_off > 0 {
            tracing::warn!(
                log = %home.dir.display(),
                bytes = recovered.cut_off,
                "an unfinished write at the log's end was cut off; nobody knows of anything in it"
            );
        }
        let hint = home.open_hint()?;
        let end = recovered.tip.as_ref().map_or(recovered.next.base, |tip| tip.segment.base + tip.bytes);
        write_hint(&hint, end).map_err(|error| system("writing the hint in", &home.dir, &error))?;
        let stats = Stats { cut_off: recovered.cut_off, ..Stats::default() };
        let shared = Shared::new(home, header, options, recovered.view, stats, None);
        let committer = Committer {
            shared: Arc::clone(&shared),
            tip: recovered.tip,
            next: recovered.next,
            hint,
            full: false,
            several: false,
        };
        EmbeddedLog::start(shared, Some(lock), "log-commit", move || committer.run())
    }

    /// Opens the log in this directory for reading beside its writer, which may run or not.
    ///
    /// # Errors
    /// `System` when there is no log; `Damaged`.
    pub fn open_reader(dir: impl AsRef<Path>, options: ReaderOptions) -> Result<EmbeddedLog, LogError> {
        let home = Home::new(dir.as_ref());
        let Some(header) = home.read_header()? else { return Err(home.no_log()) };
        let mut view = View::default();
        let follower = Follower::open(home.clone(), header.site, &mut view)?;
        let stats = Stats::default();
        let (view, follower) = (Mutex::new(view), Some(Mutex::new(follower)));
        let shared = Shared::new(home, header, Options::default(), view, stats, follower);
        let polling = Arc::clone(&shared);
        EmbeddedLog::start(shared, None, "log-follow", move || polling.poll(&options))
    }

    /// The site and generation of the log in this directory, without opening it; `None` when there is none.
    ///
    /// # Errors
    /// `Damaged`, `System`.
    pub fn identity(dir: impl AsRef<Path>) -> Result<Option<(gatelog_record::SiteId, u32)>, LogError> {
        let header = Home::new(dir.as_ref()).read_header()?;
        Ok(header.map(|header| (header.site, header.generation)))
    }

    /// Adopts a restored or forked log that nobody holds: its generation is raised, which is recorded
    /// with the reason in the log's header, and what was known of the log before no longer counts. The
    /// caller then records `LogRestored` in each partition. Gives the new generation.
    ///
    /// # Errors
    /// `System` when there is no log; `InUse`.
    pub fn adopt(dir: impl AsRef<Path>, reason: &str) -> Result<u32, LogError> {
        Home::new(dir.as_ref()).adopt(reason)
    }

    fn start(
        shared: Arc<Shared>,
        lock: Option<Lock>,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<EmbeddedLog, LogError> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(|error| system("starting a thread for", &shared.home.dir, &error))?;
        Ok(EmbeddedLog { shared, running: Mutex::new(Some(Running { thread, lock })) })
    }

    /// Closes the log: what waits is written, waits for change end, appends are refused from now on.
    /// Dropping does the same. A crash leaves nothing else behind than this does.
    pub fn close(&self) {
        self.end(false);
    }

    /// Ends without writing what waits, as a killed process would.
    #[cfg(test)]
    pub(crate) fn abandon(&self) {
        self.end(true);
    }

    fn end(&self, abandon: bool) {
        let running = self.running.lock().take();
        {
            let mut queue = self.shared.queue.lock();
            queue.closing = true;
            queue.abandoned |= abandon;
            self.shared.queue_changed.notify_all();
            self.shared.decided.notify_all();
        }
        if let Some(running) = running
            && running.thread.join().is_err()
        {
            tracing::error!("the log's thread panicked");
        }
        let waiters = self.shared.view.lock().close();
        drop(waiters);
    }

    /// What it has done since it was opened.
    pub fn stats(&self) -> Stats {
        *self.shared.stats.lock()
    }

    /// Why appends are refused for now, with the cure: there was no room for the last one. `None` once one was taken.
    pub fn refusing(&self) -> Option<String> {
        self.shared.refusing.lock().clone()
    }

    /// How many bytes wait to be written.
    pub fn waiting(&self) -> u64 {
        self.shared.queue.lock().bytes
    }

    /// The log's directory.
    pub fn dir(&self) -> &Path {
        &self.shared.home.dir
    }

    /// How this log came to its generation: `<generation> <when> <reason>` for each adoption.
    pub fn adoptions(&self) -> &[String] {
        &self.shared.header.adopted
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for EmbeddedLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn new(
        home: Home,
        header: LogHeader,
        options: Options,
        view: Mutex<View>,
        stats: Stats,
        follower: Option<Mutex<Follower>>,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            home,
            site: header.site,
            header,
            options,
            view,
            queue: Mutex::new(Queue::default()),
            queue_changed: Condvar::new(),
            decided: Condvar::new(),
            stats: Mutex::new(stats),
            refusing: Mutex::new(None),
            follower,
        })
    }

    /// Of a reader: takes in what has become durable. Of the writer: nothing to do.
    pub(crate) fn refresh(&self) -> Result<(), LogError> {
        let Some(follower) = &self.follower else { return Ok(()) };
        let woken = {
            let mut follower = follower.lock();
            let mut view = self.view.lock();
            let followed = follower.follow(&mut view);
            let woken = view.due();
            followed.map(|()| woken)
        }?;
        woken.into_iter().for_each(|waiter| waiter.complete(()));
        Ok(())
    }

    /// Of a reader: looks for more as long as somebody waits for it.
    fn poll(&self, options: &ReaderOptions) {
        let mut queue = self.queue.lock();
        while !queue.closing {
            if !self.view.lock().awaited() {
                self.queue_changed.wait(&mut queue);
                continue;
            }
            parking_lot::MutexGuard::unlocked(&mut queue, || {
                if let Err(error) = self.refresh() {
                    tracing::warn!(%error, "following the log failed");
                    // Whoever waits reads, and gets the error.
                    let waiters: Vec<_> = self
                        .view
                        .lock()
                        .streams
                        .values_mut()
                        .flat_map(|state| std::mem::take(&mut state.waiters))
                        .collect();
                    waiters.into_iter().for_each(|(_, waiter)| waiter.complete(()));
                }
            });
            if !queue.closing {
                self.queue_changed.wait_for(&mut queue, options.poll);
            }
        }
    }

    /// Why nothing can be appended, if so.
    fn refusal(&self, queue: &Queue) -> Option<LogError> {
        if self.follower.is_some() {
            return Some(LogError::ReadOnly);
        }
        if let Some(message) = &queue.stopped {
            return Some(LogError::Stopped { message: message.clone() });
        }
        queue.closing.then(|| LogError::Stopped { message: "the log was closed".to_owned() })
    }

    fn sizes(&self, records: &[Vec<u8>]) -> Result<u64, LogError> {
        let Options { max_record, max_append, .. } = self.options;
        let bytes = check_sizes(records, max_record, max_append)?;
        let size = queue_size(records, bytes);
        if records.len() > MOST_RECORDS { Err(LogError::TooLarge { size, limit: max_append }) } else { Ok(size) }
    }

    /// Puts an append into the queue, if that is not full; gives the writer that waits for it.
    fn enqueue(&self, queue: &mut Queue, limit: u64, item: Item) -> Result<Option<Completer<()>>, LogError> {
        let (waiting, size) = (queue.bytes, item.size());
        if waiting > 0 && waiting + size > limit {
            return Err(LogError::Busy { waiting });
        }
        queue.bytes += size;
        let attending = match &item {
            Item::Append { stream: stream @ Stream::Inputs(_), records, .. } => {
                self.view.lock().accept(*stream, records)
            }
            _ => None,
        };
        queue.items.push_back(item);
        self.queue_changed.notify_all();
        Ok(attending)
    }
}

impl Log for EmbeddedLog {
    fn describe(&self) -> Description {
        let header = &self.shared.header;
        Description {
            site: header.site,
            generation: header.generation,
            survives: Survives::PowerLoss,
            name: format!("embedded log in {}", self.shared.home.dir.display()),
            partitions: header.partitions,
        }
    }

    fn append_inputs(&self, stream: Stream, records: Vec<Vec<u8>>) -> Pending<Result<Vec<Offset>, LogError>> {
        if let Stream::Events(_) = stream {
            return Pending::ready(Err(LogError::System {
                what: format!("appending to {stream}"),
                message: "events are appended by the partition's writer only: use `claim`".to_owned(),
            }));
        }
        let size = match self.shared.sizes(&records) {
            Ok(size) => size,
            Err(error) => return Pending::ready(Err(error)),
        };
        let mut queue = self.shared.queue.lock();
        if let Some(refusal) = self.shared.refusal(&queue) {
            return Pending::ready(Err(refusal));
        }
        if records.is_empty() {
            return Pending::ready(Ok(Vec::new()));
        }
        let (completer, result) = pending();
        let records = records.into_iter().map(Arc::from).collect();
        let item = Item::Append { stream, records, size, owed: Owed::Inputs(completer) };
        let enqueued = self.shared.enqueue(&mut queue, self.shared.options.queue_bytes, item);
        drop(queue);
        match enqueued {
            Ok(attending) => {
                if let Some(writer) = attending {
                    writer.complete(());
                }
                result
            }
            Err(error) => Pending::ready(Err(error)),
        }
    }

    fn claim(&self, partition: Partition) -> Result<(Claim, Box<dyn EventWriter>), LogError> {
        // From here on appends of the claim before are refused; those accepted are ahead in the queue.
        let (number, barrier) = {
            let mut queue = self.shared.queue.lock();
            if let Some(refusal) = self.shared.refusal(&queue) {
                return Err(refusal);
            }
            let number = queue.claims.entry(partition).or_default();
            *number += 1;
            let number = *number;
            let (completer, barrier) = pending();
            queue.items.push_back(Item::Barrier(completer));
            self.shared.queue_changed.notify_all();
            (number, barrier)
        };
        if barrier.wait().is_none() {
            return Err(LogError::Stopped { message: "the log was closed".to_owned() });
        }
        if let Some(refusal) = self.shared.refusal(&self.shared.queue.lock()) {
            return Err(refusal);
        }
        let stream = Stream::Events(partition);
        let (tail, newest) = {
            let view = self.shared.view.lock();
            match view.streams.get(&stream) {
                None => (Tail::GENESIS, None),
                Some(state) => {
                    if let Some((offset, what)) = &state.broken {
                        return Err(LogError::Damaged { place: view.place(stream, *offset), what: what.clone() });
                    }
                    (state.tail, state.newest)
                }
            }
        };
        let last_record = match newest {
            Some(offset) => {
                let batch = self.read(stream, Offset(offset), ReadLimit { records: 1, bytes: 1 })?;
                batch.records.into_iter().next().map(|record| record.bytes)
            }
            None => None,
        };
        let claim =
            Claim { partition, last_sequence: tail.sequence, last_term: tail.term, last_link: tail.link, last_record };
        let shared = Arc::clone(&self.shared);
        let term = tail.term.saturating_add(1);
        Ok((claim, Box::new(EmbeddedWriter { shared, partition, claim: number, term, tail, failed: None })))
    }

    fn read(&self, stream: Stream, from: Offset, limit: ReadLimit) -> Result<ReadBatch, LogError> {
        let at_end = || self.shared.view.lock().streams.get(&stream).is_none_or(|state| from.0 >= state.end);
        if self.shared.follower.is_some() && at_end() {
            self.shared.refresh()?;
        }
        read_stream(&self.shared.view, stream, from, limit)
    }

    fn end(&self, stream: Stream) -> Result<Offset, LogError> {
        self.shared.refresh()?;
        Ok(Offset(self.shared.view.lock().streams.get(&stream).map_or(0, |state| state.end)))
    }

    fn seek(&self, partition: Partition, sequence: u64) -> Result<Offset, LogError> {
        self.shared.refresh()?;
        seek_stream(&self.shared.view, partition, sequence)
    }

    fn changed(&self, stream: Stream, beyond: Offset) -> Pending<()> {
        let result = {
            let mut view = self.shared.view.lock();
            if view.closed {
                return Pending::lost();
            }
            let state = view.streams.entry(stream).or_default();
            if Offset(state.end) > beyond {
                return Pending::ready(());
            }
            let (completer, result) = pending();
            state.wait(beyond, completer);
            result
        };
        if self.shared.follower.is_some() {
            // Under the lock, so that a poller about to sleep is not missed.
            let _queue = self.shared.queue.lock();
            self.shared.queue_changed.notify_all();
        }
        result
    }

    fn streams(&self) -> Result<Vec<Stream>, LogError> {
        self.shared.refresh()?;
        let view = self.shared.view.lock();
        Ok(view.streams.iter().filter(|(_, state)| state.end > 0).map(|(stream, _)| *stream).collect())
    }
}

/// The writer of one partition's events.
struct EmbeddedWriter {
    shared: Arc<Shared>,
    partition: Partition,
    claim: u64,
    term: u64,
    tail: Tail,
    failed: Option<LogError>,
}

impl EmbeddedWriter {
    fn try_append(&mut self, records: Vec<Vec<u8>>) -> Result<Pending<Result<Offset, LogError>>, LogError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        self.check_claim(&self.shared.queue.lock())?;
        let size = self.shared.sizes(&records)?;
        let tail = check_events(self.partition, &self.tail, self.term, &records)?;
        let stream = Stream::Events(self.partition);
        if records.is_empty() {
            let end = self.shared.view.lock().streams.get(&stream).map_or(0, |state| state.end);
            return Ok(Pending::ready(Ok(Offset(end))));
        }
        let mut queue = self.shared.queue.lock();
        self.check_claim(&queue)?;
        let (completer, result) = pending();
        let records = records.into_iter().map(Arc::from).collect();
        let item = Item::Append { stream, records, size, owed: Owed::Events(self.partition, tail, completer) };
        let limit = self.shared.options.queue_bytes.saturating_mul(4);
        self.shared.enqueue(&mut queue, limit, item)?;
        self.tail = tail;
        Ok(result)
    }

    fn check_claim(&self, queue: &Queue) -> Result<(), LogError> {
        if let Some(refusal) = self.shared.refusal(queue) {
            return Err(refusal);
        }
        if queue.claims.get(&self.partition) == Some(&self.claim) {
            return match queue.failed.get(&self.partition) {
                Some((claim, error)) if *claim == self.claim => Err(error.clone()),
                _ => Ok(()),
            };
        }
        Err(LogError::Fenced { partition: self.partition, term: self.term })
    }
}

impl EventWriter for EmbeddedWriter {
    fn append(&mut self, records: Vec<Vec<u8>>) -> Pending<Result<Offset, LogError>> {
        match self.try_append(records) {
            Ok(result) => result,
            Err(error) => {
                self.failed = Some(error.clone());
                Pending::ready(Err(error))
            }
        }
    }

    fn accepted(&mut self, from: Offset, limit: ReadLimit) -> Result<ReadBatch, LogError> {
        let (batch, woken) = {
            let queue = self.shared.queue.lock();
            self.check_claim(&queue)?;
            self.shared.view.lock().show_accepted(self.partition, self.claim, from, limit)
        };
        woken.into_iter().for_each(|waiter| waiter.complete(()));
        Ok(batch)
    }

    fn awaits(&mut self, beyond: Offset) -> Result<Option<Pending<()>>, LogError> {
        let (completer, result) = pending();
        let woken = {
            let queue = self.shared.queue.lock();
            self.check_claim(&queue)?;
            let woken = self.shared.view.lock().await_accepted(self.partition, self.claim, beyond, completer);
            self.shared.decided.notify_all();
            woken
        };
        woken.into_iter().for_each(|waiter| waiter.complete(()));
        Ok(Some(result))
    }
}

impl Drop for EmbeddedWriter {
    fn drop(&mut self) {
        let _queue = self.shared.queue.lock();
        self.shared.view.lock().leave(self.partition, self.claim);
        self.shared.decided.notify_all();
    }
}
