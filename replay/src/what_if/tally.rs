//! What came of a history, counted the same way for the record and for what would have been: items with their jobs,
//! merges and the order of leaving, builds by result, node-hours.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::draft::gate::{FreezeOutcome, Subject};
use gatelog_record::event::{CapacityEvent, GateEvent};
use gatelog_record::{BuildId, Event, EventRecord, ItemId, LeaseId, Timestamp};
use serde::{Deserialize, Serialize};

/// What became of a job of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// Its result, in Zuul's word; nothing while it has none.
    pub result: Option<String>,
    /// How many attempts it had.
    pub attempts: u32,
}

/// What became of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemOutcome {
    /// Its result, in Zuul's word; nothing while it is in its pipeline.
    pub result: Option<String>,
    /// Why it left, a code.
    pub code: String,
    /// Whether gatelog merged it.
    pub merged: bool,
    /// How often it was begun anew.
    pub resets: u32,
    /// The jobs of its newest buildset.
    pub jobs: BTreeMap<String, JobOutcome>,
}

/// What came of a history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Live items by tenant, pipeline, what they hold, and which time it was.
    pub items: BTreeMap<String, ItemOutcome>,
    /// The items that were merged, in order.
    pub merges: Vec<String>,
    /// The items that left, in order.
    pub left: Vec<String>,
    /// Attempts of builds that ended, by result.
    pub attempts: BTreeMap<String, u64>,
    /// How long nodes were given out, in node-milliseconds.
    pub node_ms: i64,
    /// How many leases were granted.
    pub leases: u64,
}

/// What an item holds, in a few words.
pub(crate) fn subject_words(subjects: &[Subject]) -> String {
    subjects.iter().map(crate::explain::subject).collect::<Vec<_>>().join(" + ")
}

/// Counts as it goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    names: BTreeMap<ItemId, String>,
    times: BTreeMap<String, u32>,
    builds: BTreeMap<BuildId, (ItemId, String)>,
    given: BTreeMap<LeaseId, (Timestamp, i64)>,
    there: BTreeSet<ItemId>,
    outcome: Outcome,
}

impl Tally {
    pub(crate) fn learn(&mut self, record: &EventRecord) {
        match &record.event {
            Event::Gate(event) => self.gate(event),
            Event::Capacity(event) => self.capacity(event, record.recorded_at),
            _ => {}
        }
    }

    /// Whether an item is in a pipeline.
    pub(crate) fn anything_live(&self) -> bool {
        !self.there.is_empty()
    }

    /// What came of it, up to a moment: what nodes are still given out counts until then.
    pub(crate) fn outcome(&self, until: Timestamp) -> Outcome {
        let mut outcome = self.outcome.clone();
        outcome.node_ms +=
            self.given.values().map(|(since, nodes)| nodes * until.millis_since(*since).max(0)).sum::<i64>();
        outcome
    }

    fn item(&mut self, item: &ItemId) -> Option<&mut ItemOutcome> {
        self.outcome.items.get_mut(self.names.get(item)?)
    }

    fn job(&mut self, build: &BuildId, change: impl FnOnce(&mut JobOutcome)) {
        let Some((item, job)) = self.builds.get(build).cloned() else { return };
        if let Some(outcome) = self.item(&item) {
            change(outcome.jobs.entry(job).or_default());
        }
    }

    fn gate(&mut self, event: &GateEvent) {
        match event {
            GateEvent::ItemEnqueued(enqueued) if enqueued.live => {
                let words = subject_words(&enqueued.subjects);
                let name = format!("{} {} {words}", enqueued.tenant, enqueued.pipeline);
                let times = self.times.entry(name.clone()).or_default();
                *times += 1;
                let name = if *times == 1 { name } else { format!("{name} (time {times})") };
                self.outcome.items.insert(name.clone(), ItemOutcome::default());
                self.names.insert(enqueued.item, name);
                self.there.insert(enqueued.item);
            }
            GateEvent::Frozen(frozen) => {
                let jobs: Vec<String> = match &frozen.done.outcome {
                    FreezeOutcome::Frozen { jobs, .. } => jobs.iter().map(|job| job.name.clone()).collect(),
                    _ => Vec::new(),
                };
                for (build, job) in frozen.builds.iter().zip(&jobs) {
                    self.builds.insert(*build, (frozen.item, job.clone()));
                }
                if let Some(item) = self.item(&frozen.item) {
                    item.jobs = jobs.into_iter().map(|job| (job, JobOutcome::default())).collect();
                }
            }
            GateEvent::BuildStarted(started) => {
                self.job(&started.started.build, |job| job.attempts = job.attempts.max(started.started.attempt));
            }
            GateEvent::BuildFinished(finished) => {
                let word = finished.finished.result.word();
                *self.outcome.attempts.entry(word.to_owned()).or_default() += 1;
                if let Some(result) = finished.result {
                    self.job(&finished.finished.build, |job| job.result = Some(result.word().to_owned()));
                }
            }
            GateEvent::BuildSettled(settled) => {
                self.job(&settled.build, |job| job.result = Some(settled.result.word().to_owned()));
            }
            GateEvent::ItemReset(reset) => {
                if let Some(item) = self.item(&reset.item) {
                    item.resets += 1;
                }
            }
            GateEvent::ItemDequeued(left) => {
                self.there.remove(&left.item);
                let Some(name) = self.names.remove(&left.item) else { return };
                self.outcome.left.push(name.clone());
                if left.merged {
                    self.outcome.merges.push(name.clone());
                }
                if let Some(item) = self.outcome.items.get_mut(&name) {
                    item.result = Some(left.result.word().to_owned());
                    item.code.clone_from(&left.code);
                    item.merged = left.merged;
                }
                self.builds.retain(|_, (item, _)| *item != left.item);
            }
            _ => {}
        }
    }

    fn capacity(&mut self, event: &CapacityEvent, now: Timestamp) {
        match event {
            CapacityEvent::LeaseGranted(granted) => {
                self.outcome.leases += 1;
                self.given.insert(granted.lease, (now, granted.nodes.len() as i64));
            }
            CapacityEvent::LeaseEnded(ended) => {
                if let Some((since, nodes)) = self.given.remove(&ended.lease) {
                    self.outcome.node_ms += nodes * now.millis_since(since).max(0);
                }
            }
            _ => {}
        }
    }
}

/// Something of an item that would have been otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemDifference {
    /// The item.
    pub item: String,
    /// What of it: `result`, `code`, `merged`, `resets`.
    pub what: String,
    /// What it was.
    pub recorded: String,
    /// What it would have been.
    pub now: String,
}

/// A job that would have been otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDifference {
    /// The item.
    pub item: String,
    /// The job.
    pub job: String,
    /// What became of it; nothing where it was not among the item's jobs.
    pub recorded: Option<JobOutcome>,
    /// What would have become of it.
    pub now: Option<JobOutcome>,
}

/// How an order would have been otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderDifference {
    /// Only in the record.
    pub only_recorded: Vec<String>,
    /// Only in what would have been.
    pub only_now: Vec<String>,
    /// Those in both that come after others than they did: as they were, in order.
    pub recorded: Vec<String>,
    /// The same, as they would have been.
    pub now: Vec<String>,
}

/// What of two outcomes is not the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutcomeDifference {
    /// Items that would never have entered.
    pub items_gone: Vec<String>,
    /// Items that would have entered and did not.
    pub items_come: Vec<String>,
    /// Items in both that would have been otherwise.
    pub items: Vec<ItemDifference>,
    /// Jobs of items in both.
    pub jobs: Vec<JobDifference>,
    /// The order in which items left.
    pub order: OrderDifference,
    /// Merges, and their order.
    pub merges: OrderDifference,
    /// Attempts of builds by result: recorded and now, where they differ.
    pub attempts: BTreeMap<String, (u64, u64)>,
    /// Node-milliseconds: recorded and now.
    pub node_ms: (i64, i64),
    /// Leases granted: recorded and now.
    pub leases: (u64, u64),
}

impl OutcomeDifference {
    /// Between the record and what would have been.
    pub fn between(recorded: &Outcome, now: &Outcome) -> OutcomeDifference {
        let missing = |of: &Outcome, from: &Outcome| -> Vec<String> {
            of.items.keys().filter(|name| !from.items.contains_key(*name)).cloned().collect()
        };
        let mut difference = OutcomeDifference {
            items_gone: missing(recorded, now),
            items_come: missing(now, recorded),
            order: order(&recorded.left, &now.left),
            merges: order(&recorded.merges, &now.merges),
            node_ms: (recorded.node_ms, now.node_ms),
            leases: (recorded.leases, now.leases),
            ..OutcomeDifference::default()
        };
        for (item, was) in &recorded.items {
            let Some(is) = now.items.get(item) else { continue };
            let shown = |result: &Option<String>| result.clone().unwrap_or_else(|| "still there".to_owned());
            let mut note = |what: &str, recorded: String, now: String| {
                if recorded != now {
                    let (item, what) = (item.clone(), what.to_owned());
                    difference.items.push(ItemDifference { item, what, recorded, now });
                }
            };
            note("result", shown(&was.result), shown(&is.result));
            note("code", was.code.clone(), is.code.clone());
            note("merged", was.merged.to_string(), is.merged.to_string());
            note("resets", was.resets.to_string(), is.resets.to_string());
            let jobs: BTreeSet<&String> = was.jobs.keys().chain(is.jobs.keys()).collect();
            for job in jobs {
                let (recorded, now) = (was.jobs.get(job).cloned(), is.jobs.get(job).cloned());
                if recorded != now {
                    difference.jobs.push(JobDifference { item: item.clone(), job: job.clone(), recorded, now });
                }
            }
        }
        let results: BTreeSet<&String> = recorded.attempts.keys().chain(now.attempts.keys()).collect();
        for result in results {
            let of = |outcome: &Outcome| outcome.attempts.get(result).copied().unwrap_or_default();
            if of(recorded) != of(now) {
                difference.attempts.insert(result.clone(), (of(recorded), of(now)));
            }
        }
        difference
    }

    /// Whether items, jobs, merges and their order are the same; node-hours apart, which depend on the model's times.
    pub fn is_same(&self) -> bool {
        self.items_gone.is_empty()
            && self.items_come.is_empty()
            && self.items.is_empty()
            && self.jobs.is_empty()
            && self.order == OrderDifference::default()
            && self.merges == OrderDifference::default()
            && self.attempts.is_empty()
    }
}

fn order(recorded: &[String], now: &[String]) -> OrderDifference {
    let (was, is): (BTreeSet<&String>, BTreeSet<&String>) = (recorded.iter().collect(), now.iter().collect());
    let only = |of: &[String], other: &BTreeSet<&String>| -> Vec<String> {
        of.iter().filter(|name| !other.contains(name)).cloned().collect()
    };
    let both = |of: &[String], other: &BTreeSet<&String>| -> Vec<String> {
        of.iter().filter(|name| other.contains(name)).cloned().collect()
    };
    let (first, second) = (both(recorded, &is), both(now, &was));
    // What stands in the same place from the front and from the back is not told.
    let front = first.iter().zip(&second).take_while(|(one, other)| one == other).count();
    let back = first
        .iter()
        .rev()
        .zip(second.iter().rev())
        .take(first.len().min(second.len()).saturating_sub(front))
        .take_while(|(one, other)| one == other)
        .count();
    let middle = |of: &[String]| of.get(front..of.len().saturating_sub(back)).unwrap_or_default().to_vec();
    OrderDifference {
        only_recorded: only(recorded, &is),
        only_now: only(now, &was),
        recorded: middle(&first),
        now: middle(&second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_order_is_told_where_it_differs_and_nowhere_else() {
        assert_eq!(order(&names("a b c d"), &names("a b c d")), OrderDifference::default());
        let found = order(&names("a b c d e"), &names("a c b e f"));
        assert_eq!((found.only_recorded, found.only_now), (names("d"), names("f")));
        assert_eq!((found.recorded, found.now), (names("b c"), names("c b")));
    }

    #[test]
    fn outcomes_differ_by_item_job_merge_and_count() {
        let mut recorded = Outcome::default();
        let mut item = ItemOutcome { result: Some("SUCCESS".into()), merged: true, ..ItemOutcome::default() };
        item.jobs.insert("tests".into(), JobOutcome { result: Some("SUCCESS".into()), attempts: 1 });
        recorded.items.insert("t gate a".into(), item.clone());
        recorded.merges.push("t gate a".into());
        recorded.left.push("t gate a".into());
        let same = OutcomeDifference::between(&recorded, &recorded);
        assert!(same.is_same());
        let mut now = recorded.clone();
        let of = now.items.get_mut("t gate a").unwrap();
        (of.result, of.merged) = (Some("FAILURE".into()), false);
        of.jobs.insert("tests".into(), JobOutcome { result: Some("FAILURE".into()), attempts: 1 });
        now.merges.clear();
        now.attempts.insert("FAILURE".into(), 1);
        let found = OutcomeDifference::between(&recorded, &now);
        assert!(!found.is_same());
        let told: Vec<&str> = found.items.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(told, ["result", "merged"]);
        assert_eq!((found.jobs.len(), found.merges.only_recorded.as_slice()), (1, &["t gate a".to_owned()][..]));
        assert_eq!(found.attempts["FAILURE"], (0, 1));
    }
}
