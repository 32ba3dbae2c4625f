//! The one thread that writes.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::Arc;

use gatelog_event_log::{Completer, LogError, Offset, Tail};
use gatelog_record::{Partition, Stream};
use sha2::{Digest, Sha256};

use crate::format::{Footer, FrameBuilder, FrameKind, RECORD_HEADER};
use crate::home::write_hint;
use crate::index::Tails;
use crate::log::Shared;
use crate::recover::{Next, Tip, create_segment};

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
        records: Vec<Vec<u8>>,
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
    fn size(&self) -> u64 {
        match self {
            Item::Append { size, .. } => *size,
            Item::Barrier(_) => 0,
        }
    }

    fn fail(self, message: &str) {
        let error = || LogError::Stopped { message: message.to_owned() };
        match self {
            Item::Append { owed: Owed::Inputs(completer), .. } => completer.complete(Err(error())),
            Item::Append { owed: Owed::Events(_, _, completer), .. } => completer.complete(Err(error())),
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
    /// Commits until the log closes or a write fails.
    pub(crate) fn run(mut self) {
        while let Some(group) = self.take_group() {
            if let Err((error, group)) = self.commit(group) {
                let message = error.to_string();
                tracing::error!(log = %self.shared.home.dir.display(), %message, "writing the log failed: it is stopped");
                let rest = {
                    let mut queue = self.shared.queue.lock();
                    queue.stopped = Some(message.clone());
                    queue.bytes = 0;
                    std::mem::take(&mut queue.items)
                };
                group.into_iter().chain(rest).for_each(|item| item.fail(&message));
                return;
            }
        }
    }

    /// Waits for work and takes as much as one commit may carry.
    fn take_group(&self) -> Option<Vec<Item>> {
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
        Some(group)
    }

    /// Writes a group as one frame, makes it durable, and only then shows and acknowledges it.
    fn commit(&mut self, group: Vec<Item>) -> Result<(), (io::Error, Vec<Item>)> {
        let appends = group.iter().filter(|item| matches!(item, Item::Append { .. })).count() as u64;
        if appends == 0 {
            self.publish(0, 0, group);
            return Ok(());
        }
        if let Err(error) = self.make_room(group.iter().map(Item::size).sum()) {
            return Err((error, group));
        }
        let Some(tip) = self.tip.as_mut() else {
            return Err((io::Error::other("there is no segment to write to"), group));
        };

        let mut builder = FrameBuilder::new();
        let mut ends: BTreeMap<Stream, u64> = BTreeMap::new();
        {
            let view = self.shared.view.lock();
            for item in &group {
                if let Item::Append { stream, .. } = item {
                    ends.entry(*stream).or_insert_with(|| view.streams.get(stream).map_or(0, |state| state.end));
                }
            }
        }
        let mut count = 0;
        for item in &group {
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
        if let Err(error) = tip.medium.append(&frame).and_then(|()| tip.medium.sync()) {
            return Err((error, group));
        }
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
        self.publish(index, byte, group);
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
    fn make_room(&mut self, size: u64) -> io::Result<()> {
        if let Some(tip) = self.tip.as_ref() {
            if tip.frames == 0 || tip.bytes + size <= self.shared.options.segment_bytes {
                return Ok(());
            }
            self.seal()?;
        }
        let made = create_segment(&self.shared.home, self.shared.site, &self.next, &self.shared.options.medium)?;
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
    fn seal(&mut self) -> io::Result<()> {
        let Some(mut tip) = self.tip.take() else { return Ok(()) };
        let footer = Footer {
            frames: tip.frames,
            records: tip.records,
            digest: tip.hash.finalize().into(),
            streams: self.shared.view.lock().summaries(tip.index),
        };
        let bytes = FrameBuilder::footer(&footer, tip.bytes, tip.segment.base + tip.bytes, tip.segment.salt);
        tip.medium.append(&bytes)?;
        tip.medium.sync()?;
        let mut permissions = std::fs::metadata(&tip.segment.path)?.permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&tip.segment.path, permissions)?;
        self.next.base = tip.segment.base + tip.bytes + bytes.len() as u64;
        self.next.previous_digest = footer.digest;
        tip.segment.close();
        let mut stats = self.shared.stats.lock();
        stats.syncs += 1;
        stats.sealed += 1;
        stats.bytes += bytes.len() as u64;
        Ok(())
    }
}
