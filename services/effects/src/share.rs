//! Who of several does a piece of work. Pending work is one table that all of them read; each takes what falls to it by
//! rendezvous hashing over those present. Two that see different peers for a moment may both do the same: the first
//! outcome counts, the other is recorded as a duplicate.

use std::sync::Arc;

use gatelog_partition_state::work::Work;
use gatelog_record::BlobHash;

use crate::dispatch::{Due, Duty};

/// Who else does the work of a duty now.
pub trait Peers: Send + Sync {
    /// The names of those present who take new work, in any order; whoever asks may be missing.
    fn present(&self, duty: Duty) -> Vec<String>;

    /// Whether whoever asks takes new work itself. Who is paused does not, even where nobody else is there.
    fn takes(&self, _: Duty) -> bool {
        true
    }
}

/// Nobody else: one process does it all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Peers for Alone {
    fn present(&self, _: Duty) -> Vec<String> {
        Vec::new()
    }
}

/// One of those who share the work.
#[derive(Clone)]
pub struct Share {
    own: String,
    peers: Arc<dyn Peers>,
}

impl Share {
    /// The share of the one of this name.
    pub fn new(own: impl Into<String>, peers: Arc<dyn Peers>) -> Share {
        Share { own: own.into(), peers }
    }

    /// Those present for a duty now.
    pub(crate) fn present(&self, duty: Duty) -> Vec<String> {
        self.peers.present(duty)
    }

    /// Whether this one takes new work of a duty.
    pub(crate) fn takes(&self, duty: Duty) -> bool {
        self.peers.takes(duty)
    }

    /// Whether this one is to do it, when these are present.
    pub(crate) fn is_mine<W: Work>(&self, due: &Due<W>, present: &[String]) -> bool {
        if present.iter().all(|peer| *peer == self.own) {
            return true;
        }
        let key = key(due);
        let own = weight(&self.own, &key);
        present.iter().filter(|peer| **peer != self.own).all(|peer| weight(peer, &key) < own)
    }
}

/// What decides who does it: where it has a place to be kept warm, such as a repository, that; for anything else the work
/// itself. What is sent again falls to somebody of its own each time: the one before did not answer.
fn key<W: Work>(due: &Due<W>) -> String {
    match due.request.place() {
        Some(place) if due.attempt <= 1 => format!("repository {place}"),
        _ => format!("work {} {}", due.work, due.attempt),
    }
}

fn weight(name: &str, key: &str) -> BlobHash {
    BlobHash::of(format!("{name}\n{key}").as_bytes())
}

#[cfg(test)]
mod tests {
    use gatelog_gate_state::Work;
    use gatelog_record::draft::gate::{ReportAction, ReportRequested};
    use gatelog_record::{Timestamp, WorkId};

    use super::{Alone, Arc, Due, Share};

    fn due(number: u8, attempt: u32) -> Due<Work> {
        let work = WorkId([number; 16]);
        Due {
            work,
            attempt,
            key: "t".into(),
            requested_by: 1,
            request: Work::Report(ReportRequested {
                work,
                tenant: "t".into(),
                item: None,
                pipeline: "check".into(),
                action: ReportAction::Success,
                reporters: Vec::new(),
                subjects: Vec::new(),
                message: String::new(),
                remarks: Vec::new(),
                requested_at: Timestamp::ZERO,
            }),
        }
    }

    #[test]
    fn each_work_falls_to_exactly_one_of_those_present() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let shares = names.clone().map(|name| Share::new(name, Arc::new(Alone)));
        let mut counts = [0; 3];
        for number in 0..=255 {
            let mine: Vec<usize> = (0..3).filter(|index| shares[*index].is_mine(&due(number, 1), &names)).collect();
            assert_eq!(mine.len(), 1, "{number}");
            counts[mine[0]] += 1;
        }
        assert!(counts.iter().all(|count| *count > 40), "{counts:?}");
    }

    #[test]
    fn whoever_is_alone_or_does_not_see_itself_still_does_its_part() {
        let share = Share::new("a", Arc::new(Alone));
        assert!(share.is_mine(&due(1, 1), &[]));
        assert!(share.is_mine(&due(1, 1), &["a".to_owned()]));
        let others = ["b".to_owned()];
        let (a, b) = (Share::new("a", Arc::new(Alone)), Share::new("b", Arc::new(Alone)));
        let both = ["a".to_owned(), "b".to_owned()];
        for number in 0..=255 {
            assert_eq!(a.is_mine(&due(number, 1), &others), a.is_mine(&due(number, 1), &both));
            assert_ne!(a.is_mine(&due(number, 1), &both), b.is_mine(&due(number, 1), &both));
        }
    }

    #[test]
    fn what_is_sent_again_goes_to_another_sooner_or_later() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let share = Share::new("a", Arc::new(Alone));
        let mine: Vec<bool> = (1..=30).map(|attempt| share.is_mine(&due(1, attempt), &names)).collect();
        assert!(mine.contains(&true) && mine.contains(&false));
    }
}
