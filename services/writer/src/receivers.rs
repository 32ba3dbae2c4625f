//! Where a forwarder finds up to where its receivers have taken its messages: from the receiver's own writer when it is
//! in this process, or else from what this process has folded of the receiver's events ([`Followed`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gatelog_record::Partition;

use crate::published::{News, Published};
use crate::signal::Signal;

/// A partition that takes messages, as its senders see it.
pub trait Receiver: Send + Sync {
    /// The partition.
    fn partition(&self) -> Partition;
    /// Up to where it has taken `sender`'s messages, as its acknowledged events say: `None` while that is not known,
    /// (0, 0) when it has taken none.
    fn mark(&self, sender: Partition) -> Option<(u64, u32)>;
    /// Raises this signal when more was taken, for as long as the signal lives.
    fn watch(&self, signal: &Arc<Signal>);
}

impl Receiver for Published {
    fn partition(&self) -> Partition {
        Published::partition(self)
    }

    fn mark(&self, sender: Partition) -> Option<(u64, u32)> {
        Published::mark(self, sender)
    }

    fn watch(&self, signal: &Arc<Signal>) {
        Published::watch(self, News::Marks, signal);
    }
}

#[derive(Default)]
struct Inner {
    marks: Option<BTreeMap<(u8, u32), (u64, u32)>>,
    watching: Vec<Weak<Signal>>,
}

/// A partition whose writer is in another process: its marks, as somebody here folds them from its events.
pub struct Followed {
    partition: Partition,
    inner: Mutex<Inner>,
}

impl Followed {
    /// A partition of which nothing is known yet.
    pub fn new(partition: Partition) -> Arc<Followed> {
        Arc::new(Followed { partition, inner: Mutex::default() })
    }

    /// Its marks, by sender, as of a later event than before. Marks only rise: what is lower than known is passed over.
    pub fn advance(&self, marks: impl IntoIterator<Item = ((u8, u32), (u64, u32))>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = inner.marks.is_none();
        let known = inner.marks.get_or_insert_default();
        for (sender, mark) in marks {
            let row = known.entry(sender).or_default();
            if mark > *row {
                *row = mark;
                changed = true;
            }
        }
        if !changed {
            return;
        }
        inner.watching.retain(|watching| watching.strong_count() > 0);
        let watching: Vec<_> = inner.watching.iter().filter_map(Weak::upgrade).collect();
        drop(inner);
        watching.iter().for_each(|signal| signal.raise());
    }
}

impl Receiver for Followed {
    fn partition(&self) -> Partition {
        self.partition
    }

    fn mark(&self, sender: Partition) -> Option<(u64, u32)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let marks = inner.marks.as_ref()?;
        Some(marks.get(&(sender.domain as u8, sender.index)).copied().unwrap_or_default())
    }

    fn watch(&self, signal: &Arc<Signal>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).watching.push(Arc::downgrade(signal));
    }
}

/// The partitions this process sends to, by partition: where a forwarder finds its receivers' marks.
#[derive(Default)]
pub struct Directory {
    receivers: Mutex<BTreeMap<Partition, Arc<dyn Receiver>>>,
}

impl Directory {
    /// Makes a partition known, in place of what was known of it.
    pub fn insert(&self, receiver: Arc<dyn Receiver>) {
        self.receivers.lock().unwrap_or_else(PoisonError::into_inner).insert(receiver.partition(), receiver);
    }

    /// What is known of a partition.
    pub fn get(&self, partition: Partition) -> Option<Arc<dyn Receiver>> {
        self.receivers.lock().unwrap_or_else(PoisonError::into_inner).get(&partition).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use gatelog_record::Domain;

    use super::*;

    #[test]
    fn marks_of_a_followed_partition_are_unknown_until_told_and_only_rise() {
        let here = Partition { domain: Domain::Gate, index: 0 };
        let followed = Followed::new(Partition { domain: Domain::Capacity, index: 0 });
        assert_eq!(followed.mark(here), None);
        let signal = Signal::new();
        followed.watch(&signal);
        followed.advance([]);
        assert_eq!(followed.mark(here), Some((0, 0)), "it was looked, and nothing was taken");
        let sender = (here.domain as u8, here.index);
        followed.advance([(sender, (7, 1))]);
        followed.advance([(sender, (6, 9))]);
        assert_eq!(followed.mark(here), Some((7, 1)));
        let began = Instant::now();
        signal.wait(Some(Duration::from_secs(60)));
        assert!(began.elapsed() < Duration::from_secs(60), "the signal was raised");
    }
}
