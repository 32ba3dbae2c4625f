//! The one thread that writes.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use gatelog_event_log::{Completer, LogError, Offset, Tail, failpoint};
use gatelog_record::{Partition, Stream};
use sha2::{Digest, Sha256};

use crate::format::{Footer, FrameBuilder, FrameKind, RECORD_HEADER};
use crate::home::write_hint;
use crate::index::Tails;
use crate::log::Shared;
use crate::medium::Medium;
use crate::recover::{Next, Tip, create_segment};

/// A group of more appends of one kind than this is large enough without waiting for more.
const FEW: usize = 6;

/// Who is told of an append.
pub(crate) enum Owed {
    Inputs(Completer<Result<Vec<Offset>, LogError>>),
    /// And where the partition's history stands after it.
    Events(Partition, Tail, Completer<Result<Offset, LogError>>),
}

/// Something the committer is asked to do.
pub(crate) enum Item {
    Append {
        stream: Stream,
        records: Vec<Arc<[u8]>>,
        size: u64,
        owed: Owed,
    },
    /// Completes when everything before it is durable.
    Barrier(Completer<()>),
}

/// What waits to be written.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) items: VecDeque<Item>,
    pub(crate) bytes: u64,
    /// The newest claim of each partition.
    pub(crate) claims: BTreeMap<Partition, u64>,
    /// Claims of which an append could not be written: what they append next would not follow on.
    pub(crate) failed: BTreeMap<Partition, (u64, LogError)>,
    /// No more is taken; what waits is written.
    pub(crate) closing: bool,
    /// What waits is not written either.
    pub(crate) abandoned: bool,
    /// Why nothing can be written any more.
    pub(crate) stopped: Option<String>,
}

/// What an append takes of the queue and of a frame, in bytes.
pub(crate) fn queue_size(records: &[Vec<u8>], bytes: u64) -> u64 {
    bytes + (records.len() * RECORD_HEADER) as u64
}

impl Item {
    pub(crate) fn size(&self) -> u64 {
        match self {
            Item::Append { size, .. } => *size,
            Item::Barrier(_) => 0,
        }
    }

    fn fail(self, error: &LogError) {
        match self {
            Item::Append { owed: Owed::Inputs(completer), .. } => completer.complete(Err(error.clone())),
            Item::Append { owed: Owed::Events(_, _, completer), .. } => completer.complete(Err(error.clone())),
            // Whoever waits looks at `stopped` then.
            Item::Barrier(completer) => completer.complete(()),
        }
    }
}

/// What to tell once a commit is durable.
enum Told {
    Inputs(Completer<Result<Vec<Offset>, LogError>>, Vec<Offset>),
    Events(Completer<Result<Offset, LogError>>, Offset),
    Barrier(Completer<()>),
}

pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tip: Option<Tip>,
    /// Number of the segment after the tip; its base and digest count when there is no tip.
    pub(crate) next: Next,
    pub(crate) hint: File,
    /// Whether the last write found no room.
    pub(crate) full: bool,
    /// Whether the last group had several appends, and not many: then a short wait lets more of them share one sync.
    pub(crate) several: bool,
}

/// Why a group was not written.
struct Failed {
    error: io::Error,
    /// Whether the segment is as it was before.
    undone: bool,
}

impl Failed {
    /// What is on disk is not known.
    fn unknown(error: io::Error) -> Failed {
        Failed { error, undone: false }
    }

    /// Takes back what a write may have left behind a segment's end.
    fn undo(error: io::Error, medium: &mut dyn Medium, end: u64) -> Failed {
        let undone = medium.cut(end).is_ok();
        Failed { error, undone }
    }

    /// Whether it is worth trying again: there was no room, and nothing was written.
    fn is_full(&self) -> bool {
        self.undone && matches!(self.error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

impl Drop for Committer {
    /// However the thread ends, nobody is left waiting for it.
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        if !queue.closing && queue.stopped.is_none() {
            queue.stopped = Some("the thread that commits ended unexpectedly".to_owned());
        }
        let left = std::mem::take(&mut queue.items);
        drop(queue);
        drop(left);
    }
}

impl Committer {
    /// Commits until the log closes or a write fails. A full disk is no end: what found no room is
    /// refused, and the next append tries again.
    pub(crate) fn run(mut self) {
        while let Some(mut group) = self.take_group() {
            let Err(failed) = self.commit(&mut group) else { continue };
            let full = failed.is_full();
            self.refuse(group, &failed);
            if !full {
                return;
            }
        }
        self.give_room_back();
    }

    /// Leaves the last segment without the room that nothing was written to.
    fn give_room_back(&mut self) {
        let abandoned = self.shared.queue.lock().abandoned;
        if !abandoned
            && let Some(tip) = self.tip.as_mut()
            && let Err(error) = tip.medium.finish()
        {
            tracing::debug!(%error, "the room of the last segment could not be given back: it is when the log is opened");
        }
    }

    /// Refuses a group that could not be written, and what waits behind it.
    fn refuse(&mut self, group: Vec<Item>, failed: &Failed) {
        let log = self.shared.home.dir.display();
        let message = failed.error.to_string();
        let error = if failed.is_full() {
            if !std::mem::replace(&mut self.full, true) {
                tracing::error!(%log, %message, "there is no room for the log: appends are refused until there is");
            }
            let message = format!("{message}; make room on its file system, gatelog then goes on by itself");
            let error = LogError::System { what: format!("appending to the log in {log}"), message };
            *self.shared.refusing.lock() = Some(error.to_string());
            error
        } else {
            tracing::error!(%log, %message, "writing the log failed: it is stopped");
            LogError::Stopped { message: message.clone() }
        };
        let (all, woken): (Vec<Item>, _) = {
            let mut queue = self.shared.queue.lock();
            let all: Vec<Item> = group.into_iter().chain(std::mem::take(&mut queue.items)).collect();
            queue.bytes = 0;
            if !failed.is_full() {
                queue.stopped = Some(message);
            }
            let events = all.iter().filter_map(|item| match item {
                Item::Append { owed: Owed::Events(partition, ..), .. } => Some(*partition),
                _ => None,
            });
            // Who has read inputs that are refused now may not go on from them either.
            let (misled, woken) = self.shared.view.lock().refuse_accepted();
            for partition in events.chain(misled) {
                if let Some(claim) = queue.claims.get(&partition).copied() {
                    queue.failed.insert(partition, (claim, error.clone()));
                }
            }
            (all, woken)
        };
        all.into_iter().for_each(|item| item.fail(&error));
        woken.into_iter().for_each(|waiter| waiter.complete(()));
    }

    /// Waits for work and takes as much as one commit may carry. What a partition's writer is about to say of inputs
    /// that wait here is waited for, but not for long: both then share a sync.
    fn take_group(&mut self) -> Option<Vec<Item>> {
        let mut queue = self.shared.queue.lock();
        loop {
            if queue.abandoned {
                queue.items.clear();
                return None;
            }
            if !queue.items.is_empty() {
                break;
            }
            if queue.closing {
                return None;
            }
            self.shared.queue_changed.wait(&mut queue);
        }
        let linger = self.shared.options.linger;
        if self.several && !queue.closing {
            parking_lot::MutexGuard::unlocked(&mut queue, || std::thread::sleep(linger));
        } else {
            let until = Instant::now() + linger;
            while !queue.closing && self.shared.view.lock().is_being_decided() {
                if self.shared.decided.wait_until(&mut queue, until).timed_out() {
                    break;
                }
            }
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some(item) = queue.items.front() {
            bytes += item.size();
            if bytes > self.shared.options.group_bytes && !group.is_empty() {
                break;
            }
            let Some(item) = queue.items.pop_front() else { break };
            queue.bytes = queue.bytes.saturating_sub(item.size());
            group.push(item);
        }
        // An input and what was decided of it are one thing, not two that came together.
        let count = |inputs| {
            let of_kind = |item: &&Item| matches!(item, Item::Append { owed: Owed::Inputs(_), .. }) == inputs;
            group.iter().filter(|item| matches!(item, Item::Append { .. })).filter(of_kind).count()
        };
        self.several = (2..=FEW).contains(&count(true).max(count(false)));
        self.shared.view.lock().committing = true;
        Some(group)
    }

    /// Writes a group as one frame, makes it durable, and only then shows and acknowledges it; the
    /// group is empty then.
    fn commit(&mut self, group: &mut Vec<Item>) -> Result<(), Failed> {
        let appends = group.iter().filter(|item| matches!(item, Item::Append { .. })).count() as u64;
        if appends == 0 {
            self.publish(0, 0, std::mem::take(group));
            return Ok(());
        }
        self.make_room(group.iter().map(Item::size).sum())?;
        let Some(tip) = self.tip.as_mut() else {
            return Err(Failed::unknown(io::Error::other("there is no segment to write to")));
        };

        let mut builder = FrameBuilder::new();
        let mut ends: BTreeMap<Stream, u64> = BTreeMap::new();
        {
            let view = self.shared.view.lock();
            for item in group.iter() {
                if let Item::Append { stream, .. } = item {
                    ends.entry(*stream).or_insert_with(|| view.streams.get(stream).map_or(0, |state| state.end));
                }
            }
        }
        let mut count = 0;
        for item in group.iter() {
            if let Item::Append { stream, records, .. } = item {
                let end = ends.entry(*stream).or_default();
                for record in records {
                    builder.record(*stream, *end, record);
                    *end += 1;
                    count += 1;
                }
            }
        }
        let byte = tip.bytes;
        let frame = builder.finish(FrameKind::Records, tip.segment.base + byte, tip.segment.salt);
        failpoint::pass("log/before-write");
        if let Err(error) = tip.medium.append(&frame) {
            return Err(Failed::undo(error, &mut *tip.medium, byte));
        }
        failpoint::pass("log/written");
        // A wait for the disk that fails leaves it open what is there: nothing is tried again.
        tip.medium.sync().map_err(Failed::unknown)?;
        failpoint::pass("log/durable");
        tip.hash.update(&frame);
        tip.bytes += frame.len() as u64;
        tip.frames += 1;
        tip.records += count;
        if let Err(error) = write_hint(&self.hint, tip.segment.base + tip.bytes) {
            tracing::debug!(%error, "the hint could not be written; readers will lag by one commit");
        }
        {
            let mut stats = self.shared.stats.lock();
            stats.syncs += 1;
            stats.frames += 1;
            stats.appends += appends;
            stats.records += count;
            stats.bytes += frame.len() as u64;
        }
        drop(frame);

        let index = tip.index;
        if std::mem::take(&mut self.full) {
            *self.shared.refusing.lock() = None;
            tracing::info!(log = %self.shared.home.dir.display(), "there is room for the log again");
        }
        failpoint::pass("log/hinted");
        self.publish(index, byte, std::mem::take(group));
        Ok(())
    }

    fn publish(&self, index: usize, byte: u64, group: Vec<Item>) {
        let mut told = Vec::with_capacity(group.len());
        let woken = {
            let mut view = self.shared.view.lock();
            let mut ends: BTreeMap<Stream, u64> = BTreeMap::new();
            let mut all = Vec::new();
            let mut tails = Tails::new();
            for item in group {
                match item {
                    Item::Barrier(completer) => told.push(Told::Barrier(completer)),
                    Item::Append { stream, records, owed, .. } => {
                        let end = ends
                            .entry(stream)
                            .or_insert_with(|| view.streams.get(&stream).map_or(0, |state| state.end));
                        let first = *end;
                        for record in records {
                            all.push((stream, *end, record));
                            *end += 1;
                        }
                        match owed {
                            Owed::Inputs(completer) => {
                                told.push(Told::Inputs(completer, (first..*end).map(Offset).collect()));
                            }
                            Owed::Events(partition, tail, completer) => {
                                let newest = end.saturating_sub(1);
                                tails.insert(partition, (tail, newest));
                                told.push(Told::Events(completer, Offset(newest)));
                            }
                        }
                    }
                }
            }
            view.admit_written(index, byte, all, &tails, self.shared.options.hot_bytes);
            view.committing = false;
            view.due()
        };
        for one in told {
            match one {
                Told::Inputs(completer, offsets) => completer.complete(Ok(offsets)),
                Told::Events(completer, offset) => completer.complete(Ok(offset)),
                Told::Barrier(completer) => completer.complete(()),
            }
        }
        woken.into_iter().for_each(|waiter| waiter.complete(()));
    }

    /// Makes the tip a segment that has room for so many bytes more.
    fn make_room(&mut self, size: u64) -> Result<(), Failed> {
        if let Some(tip) = self.tip.as_ref() {
            if tip.frames == 0 || tip.bytes + size <= self.shared.options.segment_bytes {
                return Ok(());
            }
            self.seal()?;
        }
        // A segment that was not made leaves nothing behind that counts.
        let made = create_segment(&self.shared.home, self.shared.site, &self.next, &self.shared.options)
            .map_err(|error| Failed { error, undone: true })?;
        let (segment, medium, header) = made;
        let mut hash = Sha256::new();
        hash.update(&header);
        let index = {
            let mut view = self.shared.view.lock();
            view.segments.push(Arc::clone(&segment));
            view.segments.len() - 1
        };
        self.next.number += 1;
        let bytes = header.len() as u64;
        self.tip = Some(Tip { index, segment, bytes, hash, frames: 0, records: 0, medium });
        Ok(())
    }

    /// Ends the tip with its footer; it never changes again.
    fn seal(&mut self) -> Result<(), Failed> {
        let Some(tip) = self.tip.as_mut() else { return Ok(()) };
        let footer = Footer {
            frames: tip.frames,
            records: tip.records,
            digest: tip.hash.clone().finalize().into(),
            streams: self.shared.view.lock().summaries(tip.index),
        };
        let bytes = FrameBuilder::footer(&footer, tip.bytes, tip.segment.base + tip.bytes, tip.segment.salt);
        if let Err(error) = tip.medium.append(&bytes) {
            return Err(Failed::undo(error, &mut *tip.medium, tip.bytes));
        }
        failpoint::pass("log/footer-written");
        tip.medium.finish().map_err(Failed::unknown)?;
        failpoint::pass("log/footer-durable");
        let mut permissions = std::fs::metadata(&tip.segment.path).map_err(Failed::unknown)?.permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&tip.segment.path, permissions).map_err(Failed::unknown)?;
        failpoint::pass("log/sealed");
        self.next.base = tip.segment.base + tip.bytes + bytes.len() as u64;
        self.next.previous_digest = footer.digest;
        tip.segment.close();
        self.tip = None;
        let mut stats = self.shared.stats.lock();
        stats.syncs += 1;
        stats.sealed += 1;
        stats.bytes += bytes.len() as u64;
        Ok(())
    }
}
