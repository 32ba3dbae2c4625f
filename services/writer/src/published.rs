//! What a writer lets others in its process know, all of it acknowledged: how it is, how far it is,
//! which timers are set, which messages wait in its outbox, whose messages it has taken.
//!
//! These are copies of rows of its state for the timer service and the forwarder. They change only
//! when the log has acknowledged the events that changed them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use gatelog_event_log::{Completer, Pending, pending};
use gatelog_partition_state::{OutboxRow, PartitionTables, TimerRow};
use gatelog_record::{Domain, Partition, Timestamp};
use gatelog_tables::Maps;

use crate::signal::Signal;
use crate::waits::WaitRegistry;

/// How many reasons for yellow are kept: the newest.
const MAX_REASONS: usize = 32;
/// How many may wait for a position at once.
const MAX_WAITING: usize = 10_000;

/// Something an operator should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YellowReason {
    /// A code: that of the `InputRefused`, or `outbox`.
    pub code: String,
    /// The event that records it; 0 if none does.
    pub sequence: u64,
    /// The input it was about, if it was about one.
    pub input_offset: Option<u64>,
    /// For people.
    pub message: String,
    /// When.
    pub at: Timestamp,
}

/// How a writer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriterState {
    /// It takes the partition over, or does so again after an error.
    Starting {
        /// Why it starts again, if it does.
        after: Option<String>,
    },
    /// It decides.
    Running,
    /// It decides, and somebody should look.
    Yellow {
        /// Why; the newest last.
        reasons: Vec<YellowReason>,
    },
    /// It does nothing any more.
    Stopped {
        /// Why, unless it was asked to stop.
        error: Option<String>,
        /// Whether another writer has taken over.
        fenced: bool,
    },
}

/// How a writer is and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterHealth {
    /// The partition.
    pub partition: Partition,
    /// How it is.
    pub state: WriterState,
    /// Its term; 0 before it has one.
    pub term: u64,
    /// The newest acknowledged event.
    pub sequence: u64,
    /// How many inputs were ever taken in this partition.
    pub inputs_taken: u64,
    /// How many records of older owners were passed over on taking over.
    pub stale_records: u64,
    /// How often it started again in this process.
    pub restarts: u64,
}

/// A timer that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerEntry {
    /// When it is due.
    pub due_at: Timestamp,
    /// The key it belongs to.
    pub key: String,
    /// Changes whenever it is set again, also to the same moment.
    pub set_by: u64,
    /// When its wait is over, by the clock's monotonic time. Measured from the decision that set it,
    /// or from when the partition was taken over.
    pub deadline: Duration,
}

impl TimerEntry {
    /// A timer seen at a moment, the deadline counted from there.
    pub(crate) fn seen(due_at: Timestamp, key: &str, set_by: u64, now: Timestamp) -> TimerEntry {
        let left = u64::try_from(due_at.0.saturating_sub(now.0)).unwrap_or(0);
        TimerEntry { due_at, key: key.to_owned(), set_by, deadline: Duration::from_micros(left) }
    }

    /// Counts the deadline from this monotonic time on.
    pub(crate) fn from(mut self, monotonic: Duration) -> TimerEntry {
        self.deadline = self.deadline.saturating_add(monotonic);
        self
    }
}

/// Key of an outbox row: domain, index, sequence, ordinal.
pub type OutboxKey = (u8, u32, u64, u32);

/// What one acknowledged append changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub last: u64,
    pub inputs_taken: u64,
    pub timers: Vec<(String, Option<TimerEntry>)>,
    pub sent: Vec<(OutboxKey, OutboxRow)>,
    pub cleared: Vec<(Partition, (u64, u32))>,
    pub mark: Option<(Partition, (u64, u32))>,
    pub yellow: Option<YellowReason>,
}

/// What somebody watches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Timers were set or cleared.
    Timers,
    /// Messages were put into the outbox, or left it.
    Outbox,
    /// More was taken of another partition's messages.
    Marks,
}

/// All of it: where a writer took over or ended.
const ALL_NEWS: [News; 3] = [News::Timers, News::Outbox, News::Marks];

struct Inner {
    ready: bool,
    health: WriterHealth,
    reasons: Vec<YellowReason>,
    timers: BTreeMap<String, TimerEntry>,
    timers_version: u64,
    outbox: BTreeMap<OutboxKey, OutboxRow>,
    marks: BTreeMap<(u8, u32), (u64, u32)>,
    watching: Vec<(News, Weak<Signal>)>,
    beyond: Vec<(u64, Completer<()>)>,
}

/// What a writer lets others know.
pub struct Published {
    partition: Partition,
    inner: Mutex<Inner>,
    waits: WaitRegistry,
}

impl Published {
    /// Of a writer that has not started yet.
    pub fn new(partition: Partition) -> Arc<Published> {
        Arc::new(Published {
            partition,
            inner: Mutex::new(Inner {
                ready: false,
                health: WriterHealth {
                    partition,
                    state: WriterState::Starting { after: None },
                    term: 0,
                    sequence: 0,
                    inputs_taken: 0,
                    stale_records: 0,
                    restarts: 0,
                },
                reasons: Vec::new(),
                timers: BTreeMap::new(),
                timers_version: 0,
                outbox: BTreeMap::new(),
                marks: BTreeMap::new(),
                watching: Vec::new(),
                beyond: Vec::new(),
            }),
            waits: WaitRegistry::default(),
        })
    }

    /// The partition.
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// How the writer is and how far.
    pub fn health(&self) -> WriterHealth {
        let inner = self.lock();
        let mut health = inner.health.clone();
        if health.state == WriterState::Running && !inner.reasons.is_empty() {
            health.state = WriterState::Yellow { reasons: inner.reasons.clone() };
        }
        health
    }

    /// The newest acknowledged event.
    pub fn sequence(&self) -> u64 {
        self.lock().health.sequence
    }

    /// Completes when an event after this one is acknowledged; comes to `None` when the writer stops,
    /// or at once when 10,000 wait already.
    pub fn beyond(&self, sequence: u64) -> Pending<()> {
        let mut inner = self.lock();
        if inner.health.sequence > sequence {
            return Pending::ready(());
        }
        let (completer, pending) = pending();
        if !matches!(inner.health.state, WriterState::Stopped { .. }) && inner.beyond.len() < MAX_WAITING {
            inner.beyond.push((sequence, completer));
        }
        pending
    }

    /// Those who wait for inputs.
    pub fn waits(&self) -> &WaitRegistry {
        &self.waits
    }

    /// Raises this signal with such news, and when a writer takes over or ends, for as long as the signal lives.
    pub fn watch(&self, news: News, signal: &Arc<Signal>) {
        self.lock().watching.push((news, Arc::downgrade(signal)));
    }

    /// The timers that are set, unless they are those of version `known`.
    pub fn timers(&self, known: Option<u64>) -> Option<(u64, BTreeMap<String, TimerEntry>)> {
        let inner = self.lock();
        (inner.ready && known != Some(inner.timers_version)).then(|| (inner.timers_version, inner.timers.clone()))
    }

    /// Up to where this partition has taken `sender`'s messages: `None` while that is not known,
    /// (0, 0) when it has taken none.
    pub fn mark(&self, sender: Partition) -> Option<(u64, u32)> {
        let inner = self.lock();
        inner.ready.then(|| inner.marks.get(&(sender.domain as u8, sender.index)).copied().unwrap_or_default())
    }

    /// Those for whom messages wait in the outbox.
    pub fn receivers(&self) -> Vec<Partition> {
        let inner = self.lock();
        let mut receivers = Vec::new();
        let mut from = Bound::Unbounded;
        while let Some((&(domain, index, _, _), _)) = inner.outbox.range((from, Bound::Unbounded)).next() {
            if let Some(domain) = Domain::from_number(domain) {
                receivers.push(Partition { domain, index });
            }
            from = Bound::Excluded((domain, index, u64::MAX, u32::MAX));
        }
        receivers
    }

    /// At most `limit` messages for a receiver after a place, in order.
    pub fn outbox_after(&self, to: Partition, after: (u64, u32), limit: usize) -> Vec<(OutboxKey, OutboxRow)> {
        let (domain, index) = (to.domain as u8, to.index);
        let from = Bound::Excluded((domain, index, after.0, after.1));
        let until = Bound::Included((domain, index, u64::MAX, u32::MAX));
        let inner = self.lock();
        inner.outbox.range((from, until)).take(limit).map(|(key, row)| (*key, row.clone())).collect()
    }

    /// How many messages for a receiver lie after `after` up to `up_to`, counted up to `limit`.
    pub fn outbox_count(&self, to: Partition, after: (u64, u32), up_to: (u64, u32), limit: usize) -> usize {
        if up_to <= after {
            return 0;
        }
        let (domain, index) = (to.domain as u8, to.index);
        let from = Bound::Excluded((domain, index, after.0, after.1));
        let until = Bound::Included((domain, index, up_to.0, up_to.1));
        self.lock().outbox.range((from, until)).take(limit).count()
    }

    pub(crate) fn starting(&self, after: Option<String>) {
        let mut inner = self.lock();
        inner.health.restarts += u64::from(after.is_some());
        inner.health.state = WriterState::Starting { after };
        Self::wake(inner, &ALL_NEWS);
    }

    /// The writer has caught up: everything here is replaced by what its state says.
    pub(crate) fn caught_up(
        &self,
        tables: &PartitionTables<Maps>,
        stale: u64,
        (now, monotonic): (Timestamp, Duration),
    ) {
        let place = tables.writer.rows.get(&()).cloned().unwrap_or_default();
        let mut inner = self.lock();
        inner.ready = true;
        inner.health.stale_records = stale;
        inner.health.inputs_taken = place.input_sequence;
        inner.health.sequence = place.sequence;
        let now = now.max(place.recorded_at);
        let seen = |row: &TimerRow| TimerEntry::seen(row.due_at, &row.key, place.sequence, now).from(monotonic);
        inner.timers = tables.timers.rows.iter().map(|(name, row)| (name.clone(), seen(row))).collect();
        inner.timers_version += 1;
        inner.outbox = tables.outbox.rows.clone();
        inner.marks = tables.marks.rows.clone();
        Self::wake(inner, &ALL_NEWS);
    }

    /// An append was acknowledged.
    pub(crate) fn acknowledged(&self, term: u64, changes: Changes) {
        let mut inner = self.lock();
        inner.health.term = term;
        inner.health.sequence = changes.last;
        inner.health.inputs_taken = inner.health.inputs_taken.max(changes.inputs_taken);
        inner.health.state = WriterState::Running;
        let mut news = Vec::new();
        if !changes.timers.is_empty() {
            inner.timers_version += 1;
            news.push(News::Timers);
        }
        if !changes.sent.is_empty() || !changes.cleared.is_empty() {
            news.push(News::Outbox);
        }
        for (name, entry) in changes.timers {
            match entry {
                Some(entry) => inner.timers.insert(name, entry),
                None => inner.timers.remove(&name),
            };
        }
        inner.outbox.extend(changes.sent);
        for (to, up_to) in changes.cleared {
            let from = (to.domain as u8, to.index, 0, 0);
            let until = (to.domain as u8, to.index, up_to.0, up_to.1);
            let done: Vec<_> = inner.outbox.range(from..=until).map(|(key, _)| *key).collect();
            done.iter().for_each(|key| {
                inner.outbox.remove(key);
            });
        }
        if let Some((sender, mark)) = changes.mark {
            let known = inner.marks.entry((sender.domain as u8, sender.index)).or_default();
            *known = mark.max(*known);
            news.push(News::Marks);
        }
        if let Some(reason) = changes.yellow {
            inner.yellow(reason);
        }
        Self::wake(inner, &news);
    }

    pub(crate) fn yellow(&self, reason: YellowReason) {
        self.lock().yellow(reason);
    }

    pub(crate) fn stopped(&self, error: Option<String>, fenced: bool) {
        let mut inner = self.lock();
        inner.health.state = WriterState::Stopped { error, fenced };
        let abandoned = std::mem::take(&mut inner.beyond);
        Self::wake(inner, &ALL_NEWS);
        drop(abandoned);
        self.waits.abandon();
    }

    /// Wakes those who watch for any of this, and those who wait for an event that is there now.
    fn wake(mut inner: MutexGuard<'_, Inner>, news: &[News]) {
        let mut watching = Vec::new();
        if !news.is_empty() {
            inner.watching.retain(|(_, watching)| watching.strong_count() > 0);
            let theirs = inner.watching.iter().filter(|(watched, _)| news.contains(watched));
            watching.extend(theirs.filter_map(|(_, signal)| signal.upgrade()));
        }
        let sequence = inner.health.sequence;
        let (due, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut inner.beyond).into_iter().partition(|(beyond, _)| sequence > *beyond);
        inner.beyond = rest;
        drop(inner);
        due.into_iter().for_each(|(_, completer)| completer.complete(()));
        watching.iter().for_each(|signal| signal.raise());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn yellow(&mut self, reason: YellowReason) {
        if self.reasons.len() >= MAX_REASONS {
            self.reasons.remove(0);
        }
        self.reasons.push(reason);
    }
}
