//! Which changes merge with which, from what the record says of them.
//!
//! A change is prepared on a branch, with everything gatelog merged there before, and on what stands ahead of it. In
//! another order the same changes may be merged already that stood ahead in the record, and the other way round: so
//! what counts is which changes are below, wherever they are.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::draft::gate::{MergeStep, PrepareRequested, SubmitTarget};
use gatelog_record::{EventRef, ItemId, Timestamp};

/// At most so many preparations of the same changes are compared, those asked for nearest in time.
const MAX_COMPARED: usize = 32;

/// A preparation of the record that came to an end.
#[derive(Clone, Debug)]
pub(crate) struct PrepareTold {
    /// When it was asked for.
    pub asked: Timestamp,
    /// The event that has the outcome.
    pub at: EventRef,
    /// Whether a change did not merge.
    pub conflict: bool,
    below: Below,
}

/// What a preparation stands on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Below {
    /// How much gatelog had merged, by branch.
    landed: BTreeMap<String, usize>,
    /// The changes of items ahead.
    ahead: BTreeSet<String>,
}

/// What gatelog merged into each branch, in order.
pub(crate) type Landed = BTreeMap<String, Vec<String>>;

/// Notes a merge, and gives the branch it is on.
pub(crate) fn land(landed: &mut Landed, target: &SubmitTarget) -> String {
    let branch = branch(&target.at.project, Some(&target.at.branch));
    landed.entry(branch.clone()).or_default().push(crate::explain::subject(&target.subject));
    branch
}

fn branch(project: &str, branch: Option<&str>) -> String {
    format!("{project}@{}", branch.unwrap_or_default())
}

impl Below {
    /// What is below an item's own changes.
    pub(crate) fn of(wanted: &PrepareRequested, landed: &Landed) -> Below {
        let branches = wanted.steps.iter().map(|step| {
            let branch = branch(&step.subject.project, step.subject.branch.as_deref());
            let merged = landed.get(&branch).map_or(0, Vec::len);
            (branch, merged)
        });
        let ahead = wanted.steps.iter().filter(|step| step.item != wanted.item);
        Below { landed: branches.collect(), ahead: ahead.map(|step| crate::explain::subject(&step.subject)).collect() }
    }

    /// The changes below, without those merged first of all that all of these have.
    fn changes<'b>(&'b self, landed: &'b Landed, common: &BTreeMap<&str, usize>) -> BTreeSet<&'b str> {
        let merged = self.landed.iter().flat_map(|(branch, merged)| {
            let from = common.get(branch.as_str()).copied().unwrap_or_default().min(*merged);
            landed.get(branch).and_then(|all| all.get(from..*merged)).unwrap_or_default()
        });
        merged.map(String::as_str).chain(self.ahead.iter().map(String::as_str)).collect()
    }
}

/// Every preparation of the record, by the item's own changes.
#[derive(Debug, Default)]
pub(crate) struct Preparations {
    told: BTreeMap<String, Vec<PrepareTold>>,
    /// What gatelog merged in the record.
    pub landed: Landed,
}

impl Preparations {
    pub(crate) fn note(&mut self, own: String, below: Below, asked: Timestamp, at: EventRef, conflict: bool) {
        self.told.entry(own).or_default().push(PrepareTold { asked, at, conflict, below });
    }

    /// The recorded conflict that stands in the way of an item's own changes on what is below them here; `None`
    /// where they merge, or nothing says that they do not.
    pub(crate) fn conflict(&self, own: &str, here: &Below, landed: &Landed, now: Timestamp) -> Option<&PrepareTold> {
        let mut told: Vec<&PrepareTold> = self.told.get(own)?.iter().collect();
        if !told.iter().any(|one| one.conflict) {
            return None;
        }
        told.sort_by_key(|one| one.asked.millis_since(now).abs());
        told.truncate(MAX_COMPARED);
        let same = self.same(here, landed, &told);
        let below: Vec<(&PrepareTold, BTreeSet<&str>)> =
            told.into_iter().map(|one| (one, one.below.changes(&self.landed, &same))).collect();
        let here = here.changes(landed, &same);
        // Just this was prepared: the record has the answer.
        if let Some((one, _)) = below.iter().find(|(_, changes)| *changes == here) {
            return one.conflict.then_some(one);
        }
        let clean: Vec<&BTreeSet<&str>> = below.iter().filter(|(one, _)| !one.conflict).map(|(_, on)| on).collect();
        // It merged on these and more.
        if clean.iter().any(|on| here.is_subset(on)) {
            return None;
        }
        // What was below when it did not merge, and was not when it did, is what it does not merge with.
        let conflicts = below.iter().filter(|(one, _)| one.conflict);
        let mut culprits = conflicts.map(|(one, on)| {
            let fewest = clean.iter().map(|merged| on.difference(merged).copied().collect::<BTreeSet<_>>());
            let fewest = fewest.min_by_key(BTreeSet::len);
            // Never merged at all: what stood ahead of it is known, how old its branch was is not.
            (*one, fewest.unwrap_or_else(|| one.below.ahead.iter().map(String::as_str).collect()))
        });
        culprits.find(|(_, culprits)| culprits.is_subset(&here)).map(|(one, _)| one)
    }

    /// Whether gatelog had merged into the branches just what it merged here when this was prepared in the record. Then
    /// the branches were where they are here: what others pushed there, they push as recorded, before the gate hears of it.
    pub(crate) fn on_the_same(&self, own: &str, at: EventRef, here: &Below, landed: &Landed) -> bool {
        let told = self.told.get(own).and_then(|told| told.iter().find(|one| one.at == at));
        let merged = |of: &Landed, branch: &str, count: usize| -> Vec<String> {
            of.get(branch).into_iter().flatten().take(count).cloned().collect()
        };
        let same =
            |(branch, count): (&String, &usize)| merged(landed, branch, *count) == merged(&self.landed, branch, *count);
        told.is_some_and(|told| told.below.landed == here.landed && here.landed.iter().all(same))
    }

    /// How many merges into each branch are the same first of all, here and below each of these.
    fn same<'b>(&self, here: &'b Below, landed: &Landed, told: &[&'b PrepareTold]) -> BTreeMap<&'b str, usize> {
        let branches = here.landed.iter().map(|(branch, merged)| {
            let (ours, recorded) = (landed.get(branch), self.landed.get(branch));
            let pairs = ours.into_iter().flatten().zip(recorded.into_iter().flatten());
            let same = pairs.take_while(|(ours, recorded)| ours == recorded).count().min(*merged);
            let least = told.iter().filter_map(|one| one.below.landed.get(branch)).min().copied();
            (branch.as_str(), same.min(least.unwrap_or_default()))
        });
        branches.collect()
    }
}

/// An item's own changes, within its chain.
pub(crate) fn own_words(steps: &[MergeStep], item: ItemId) -> String {
    let own: Vec<MergeStep> = steps.iter().filter(|step| step.item == item).cloned().collect();
    super::book::steps_words(&own)
}
