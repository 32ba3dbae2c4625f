//! What every item of every queue does next. Zuul: `processOneItem`, in queue order.
//!
//! One walk over a queue keeps the *chain*: the items ahead that are not failing, on which the next
//! item is to be tested. An item whose buildset stands on something else is reset, so whatever is
//! behind a failing item moves behind the nearest one that is not failing; what gatelog merged leaves
//! the chain of everybody behind without a reset.

use std::cell::RefCell;
use std::sync::Arc;

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{Ahead, BuildsetProblem, ItemRow, Phase, ProblemKind, QueueRow, Work};
use gatelog_record::ItemId;
use gatelog_record::draft::gate::{FactsPurpose, ItemResult};
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::objects::pipeline::Manager;

use crate::decision::Decision;
use crate::ground::Ground;
use crate::layout_view::LayoutView;
use crate::touched::{QueueKey, Touch, Touched};
use crate::window::is_inside;

fn is_conflict(problem: &BuildsetProblem) -> bool {
    problem.kind == ProblemKind::Conflict
}

/// Why an item is failing because of what it needs.
pub const NEEDED_FAILING: &str = "needed-failing";

/// With what the reason begins that names a job which failed.
pub(crate) const JOB_FAILED: &str = "job-failed";

/// A queue on the walk.
pub(crate) struct Walk<'w> {
    pub tenant: &'w str,
    pub layout: &'w Arc<LayoutView>,
    pub pipeline: &'w Pipeline,
    /// The queue's items in order.
    pub items: Vec<ItemId>,
    /// Its window; 0 means without limit.
    pub window: u32,
    /// The items so far that are not failing.
    pub chain: Vec<ItemId>,
    /// The same, each with the buildset it has.
    pub standing: Vec<Ahead>,
    /// The queue without its items.
    pub queue: QueueRow,
    /// Whether the last of the chain was found to stand on all before it.
    pub sound: bool,
    /// What the chain is to the next item, once somebody asked.
    ground: RefCell<Option<Ground>>,
}

impl Walk<'_> {
    /// Whether what stands at this place is worked on.
    fn in_window(&self, index: usize) -> bool {
        is_inside(self.window, index)
    }

    /// The item carries what comes behind it.
    fn carry(&mut self, decision: &Decision<'_>, item: ItemId) {
        self.chain.push(item);
        self.standing.push(decision.stand(item));
        // What is being merged was not asked.
        self.sound = !decision.is_merging(item);
        if let Some(ground) = self.ground.get_mut() {
            ground.add(decision, item);
        }
    }

    /// What the chain is to the next item.
    pub(crate) fn ground<T>(&self, decision: &Decision<'_>, ask: impl FnOnce(&Ground) -> T) -> T {
        ask(self.ground.borrow_mut().get_or_insert_with(|| Ground::of(decision, &self.chain)))
    }
}

/// What became of an item.
enum Step {
    /// It left; the walk begins again.
    Left,
    /// It stays, and what is behind it is tested on top of it.
    Carries,
    /// It stays, and what is behind it is tested without it.
    Fails,
}

impl Decision<'_> {
    /// Looks once at every queue of a tenant that was touched.
    pub(crate) fn run_queues(&mut self, tenant: &str) -> Result<(), Refusal> {
        let touched = std::mem::take(&mut self.touched);
        self.seen.merge(&touched);
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        let queues = self.queues_in_order(tenant, &layout, touched);
        self.freed_in = None;
        for (key, mut touch) in queues {
            // Zuul: what becomes free in a pipeline is there for its own queues before the next one is looked at.
            if self.freed_in.as_ref().is_some_and(|pipeline| *pipeline != key.1) {
                self.touched.queues.entry(key).or_default().merge(&touch);
                continue;
            }
            let Some(pipeline) = layout.pipeline(&key.1) else {
                self.empty_queue(&key)?;
                continue;
            };
            // Every round but the last lets an item go.
            let rounds = self.gate().queues.row(&key).map_or(0, |row| row.items.len());
            for _ in 0..=rounds {
                let Some(row) = self.gate().queues.row(&key) else { break };
                // While an item's reporter jobs run nothing else happens in its queue, but that what moved on goes.
                let reporting = row.items.iter().position(|item| self.is_reporting(*item));
                if reporting.is_some() && self.drop_one_outdated(pipeline, &row.items.clone())? {
                    touch.whole = true;
                    continue;
                }
                let Some(row) = self.gate().queues.row(&key) else { break };
                let places = reporting.map_or_else(|| touch.places(&row.items), |index| Some((index, index + 1)));
                let Some((first, until)) = places else { break };
                let walk = self.walk_from(tenant, &layout, pipeline, row, first);
                if self.walk(walk, &key, &touch, first..until)? {
                    break;
                }
                touch.whole = true;
            }
        }
        Ok(())
    }

    /// A walk over a queue that is about to come to the item at `first`.
    fn walk_from<'w>(
        &self,
        tenant: &'w str,
        layout: &'w Arc<LayoutView>,
        pipeline: &'w Pipeline,
        row: &QueueRow,
        first: usize,
    ) -> Walk<'w> {
        let sound = |item: &&ItemId| self.item(**item).is_some_and(|row| row.failing.is_empty());
        let ahead = row.items.get(..first).unwrap_or_default();
        let mut queue = row.clone();
        let items = std::mem::take(&mut queue.items);
        let chain: Vec<ItemId> = ahead.iter().filter(sound).copied().collect();
        Walk {
            tenant,
            layout,
            pipeline,
            items,
            window: row.window,
            standing: chain.iter().map(|item| self.stand(*item)).collect(),
            chain,
            queue,
            sound: false,
            ground: RefCell::new(None),
        }
    }

    pub(crate) fn queue_keys(&self, tenant: &str) -> Vec<QueueKey> {
        let from = (tenant.to_owned(), String::new(), String::new());
        let rows = self.gate().queues.rows(std::ops::Bound::Included(&from), std::ops::Bound::Unbounded);
        rows.take_while(|(key, _)| key.0 == tenant).map(|(key, _)| key.clone()).collect()
    }

    /// The queues of a tenant in the order in which they are looked at: what may be taken by one alone goes to the
    /// pipeline in which it became free, then to the one that is defined first, and there to the queue that began
    /// first.
    fn queues_in_order(&self, tenant: &str, layout: &LayoutView, touched: Touched) -> Vec<(QueueKey, Touch)> {
        let whole = || Touch { whole: true, ..Touch::default() };
        let mut keys: Vec<(QueueKey, Touch)> = match touched.all {
            true => self.queue_keys(tenant).into_iter().map(|key| (key, whole())).collect(),
            false => touched.queues.into_iter().filter(|(key, _)| key.0 == tenant).collect(),
        };
        let place = |name: &str| layout.pipelines().iter().position(|one| one.name == name).unwrap_or(usize::MAX);
        keys.sort_by_cached_key(|(key, _)| {
            let since = self.gate().queues.row(key).map_or(u64::MAX, |row| row.since);
            (self.freed_in.as_ref() != Some(&key.1), place(&key.1), since)
        });
        keys
    }

    /// The pipeline of a queue is gone: so are its items.
    fn empty_queue(&mut self, key: &(String, String, String)) -> Result<(), Refusal> {
        let items = self.gate().queues.row(key).map(|row| row.items.clone()).unwrap_or_default();
        for item in items {
            if !self.is_merging(item) {
                self.leave_silently(item, "pipeline-gone", "The tenant has no such pipeline any more.")?;
            }
        }
        Ok(())
    }

    /// Walks over what was touched of a queue, at least within these places and further where something comes of it;
    /// says whether it came to the end. What nothing touched is passed.
    fn walk(
        &mut self,
        mut walk: Walk<'_>,
        key: &QueueKey,
        touch: &Touch,
        places: std::ops::Range<usize>,
    ) -> Result<bool, Refusal> {
        let mut open = touch.whole;
        for index in places.start..walk.items.len() {
            let Some(item) = walk.items.get(index).copied() else { break };
            let anew = self.touched.queues.get(key);
            open |= touch.from.contains(&item) || self.touched.all || anew.is_some_and(Touch::is_open);
            let behind = walk.items.get(index..).unwrap_or_default();
            let comes = || anew.is_some_and(|anew| behind.iter().any(|item| anew.names(*item)));
            if index >= places.end && !open && !comes() {
                break;
            }
            let named = open || touch.names(item) || anew.is_some_and(|anew| anew.names(item));
            if self.item(item).is_some_and(|row| row.reporting.is_some()) {
                return Ok(!self.run_reporters(&walk, index, item)?);
            }
            if !named && let Some(row) = self.item(item) {
                if row.failing.is_empty() {
                    walk.carry(self, item);
                }
                continue;
            }
            match self.step(&walk, index, item)? {
                Step::Left => return Ok(false),
                Step::Carries => walk.carry(self, item),
                Step::Fails => {}
            }
        }
        Ok(true)
    }

    fn step(&mut self, walk: &Walk<'_>, index: usize, item: ItemId) -> Result<Step, Refusal> {
        let Some(row) = self.item(item) else { return Ok(Step::Fails) };
        // What is being merged is out of everybody's hands until the answer comes.
        if self.is_merging(item) {
            return Ok(Step::Carries);
        }
        // Nearly always.
        if self.is_unchanged(walk.pipeline, row) {
            return self.bring_further(walk, index, item);
        }
        let row = row.clone();
        if let Some(why) = self.outdated(&row, walk.pipeline) {
            self.leave_outdated(item, &row, &why)?;
            return Ok(Step::Left);
        }
        if let Some((code, detail)) = self.not_ours(&row) {
            self.leave_silently(item, code, &detail)?;
            return Ok(Step::Left);
        }
        let behind = walk.items.get(index + 1..).unwrap_or_default();
        if !row.live && !behind.iter().any(|other| self.item(*other).is_some_and(|other| other.live)) {
            self.leave_silently(item, "not-needed", "Nothing behind it needs it any more.")?;
            return Ok(Step::Left);
        }
        if self.circle_changed(walk.pipeline, &row) {
            self.begin_anew(walk, item, &row)?;
            return Ok(Step::Left);
        }
        let Some(needed) = self.needed_or_leave(walk, index, item, &row)? else { return Ok(Step::Left) };
        if !row.live {
            self.look_through(walk, index, item)?;
            return Ok(Step::Carries);
        }
        let failing = |needed: &&ItemId| self.item(**needed).is_some_and(|row| !row.failing.is_empty());
        if let Some(needed) = needed.iter().find(failing) {
            let detail = format!("{}, which it needs, is failing.", self.name_of(*needed));
            self.fail_to_merge_with(walk, index, item, *needed)?;
            self.skip_unmerged(walk, item)?;
            self.give_up_builds(item, "needed-failing", &detail)?;
            let mut reasons = vec![NEEDED_FAILING.to_owned()];
            // Zuul: whether it merges is not asked while what it needs is failing.
            reasons.extend(self.reasons_to_fail(item).into_iter().filter(|reason| reason.starts_with(JOB_FAILED)));
            self.set_failing(item, reasons)?;
            // Zuul: what needs one behind it, as it may where needs are ignored, is told when it is its turn.
            let ahead = walk.items.get(..index).unwrap_or_default();
            let first = !ahead.iter().any(|ahead| self.item(*ahead).is_some_and(|row| row.live));
            return match first && self.is_complete(item) && self.finish(walk, item)? {
                true => Ok(Step::Left),
                false => Ok(Step::Fails),
            };
        }
        self.bring_further(walk, index, item)
    }

    /// The items that an item needs; `None` when it left because it may not be merged or needs what it cannot have.
    fn needed_or_leave(
        &mut self,
        walk: &Walk<'_>,
        index: usize,
        item: ItemId,
        row: &ItemRow,
    ) -> Result<Option<Vec<ItemId>>, Refusal> {
        // Zuul: that it may not be merged itself is said before what it needs.
        if let Some(why) = self.cannot_merge(walk, row) {
            let detail = format!("It can no longer be merged: {why}.");
            self.leave_failing(item, ItemResult::Failure, "cannot-merge", &detail, true)?;
            return Ok(None);
        }
        let ahead = walk.items.get(..index).unwrap_or_default();
        match self.needed_items(walk, row, ahead) {
            Ok(needed) => Ok(Some(needed)),
            Err((code, detail)) if row.live => {
                self.leave_failing(item, ItemResult::Failure, code, &detail, true)?;
                Ok(None)
            }
            Err((code, detail)) => {
                self.leave_silently(item, code, &detail)?;
                Ok(None)
            }
        }
    }

    /// Lets an item go now that its own queue would let go for what it needs, before a pipeline that is defined later
    /// takes what came in: Zuul looks at the queues of one pipeline before it asks the next. Says whether it left.
    pub(crate) fn leave_for_its_needs(
        &mut self,
        tenant: &str,
        layout: &Arc<LayoutView>,
        pipeline: &Pipeline,
        item: ItemId,
    ) -> Result<bool, Refusal> {
        let Some(row) = self.item(item).cloned() else { return Ok(false) };
        let key = (tenant.to_owned(), pipeline.name.clone(), row.queue.clone());
        let Some(queue) = self.gate().queues.row(&key) else { return Ok(false) };
        let Some(index) = queue.items.iter().position(|other| *other == item) else { return Ok(false) };
        let otherwise = self.outdated(&row, pipeline).is_some() || self.circle_changed(pipeline, &row);
        if otherwise || self.is_unchanged(pipeline, &row) {
            return Ok(false);
        }
        let walk = self.walk_from(tenant, layout, pipeline, queue, index);
        Ok(self.needed_or_leave(&walk, index, item, &row)?.is_none())
    }

    /// Begins an item anew that stands on something else than what is ahead of it, and brings it further.
    fn bring_further(&mut self, walk: &Walk<'_>, index: usize, item: ItemId) -> Result<Step, Refusal> {
        let Some(row) = self.item(item) else { return Ok(Step::Fails) };
        if row.failing.iter().any(|reason| reason == NEEDED_FAILING) {
            self.reset(item, walk, "needs-recovered", "What it needs is no longer failing.")?;
        } else if let Some((code, detail)) = self.stands_wrong(walk, row) {
            self.reset(item, walk, code, &detail)?;
        }
        self.go_on(walk, index, item)
    }

    /// Opens a buildset if it may, and brings the one there is further.
    fn go_on(&mut self, walk: &Walk<'_>, index: usize, item: ItemId) -> Result<Step, Refusal> {
        let Some((buildset, set)) = self.buildset_of(item) else {
            if walk.in_window(index) {
                let settled = walk.ground(self, Ground::is_settled);
                if settled && let Some(wrong) = self.wrong_ahead(walk).map(str::to_owned) {
                    self.leave_behind_wrong(walk, item, &wrong)?;
                    return Ok(Step::Left);
                }
                if settled {
                    self.open_buildset(walk, item)?;
                } else if !walk.ground(self, Ground::holds) {
                    // Zuul: it has its place on what is ahead, even should the window shrink before that is prepared.
                    self.begin_buildset(walk, item)?;
                }
            }
            return Ok(Step::Carries);
        };
        let active = walk.in_window(index);
        if self.item(item).is_some_and(|row| row.work.is_none()) {
            match set.phase {
                Phase::Frozen => self.run_jobs(walk, item, buildset, active)?,
                Phase::Opened => {
                    if walk.ground(self, Ground::is_settled) {
                        self.want_prepare(walk, item, buildset)?;
                    }
                }
                // Zuul: the jobs of what fell out of the window are frozen where they are known before it is merged.
                _ if !active && self.item(item).is_some_and(|row| self.may_change_configuration(row)) => {}
                Phase::Prepared => self.choose_layout(walk, item, buildset)?,
                Phase::LayoutReady => self.want_freeze(walk, item, buildset)?,
                Phase::Ended => self.skip_unmerged(walk, item)?,
                Phase::Preparing | Phase::Layout | Phase::Freezing => {}
            }
        }
        let mut reasons = self.reasons_to_fail(item);
        // Zuul: whether it merges, and its configuration, count only as long as it is in the window.
        if !active {
            reasons.retain(|reason| reason.starts_with(JOB_FAILED));
        }
        self.set_failing(item, reasons.clone())?;
        let head = !walk.chain.iter().any(|ahead| self.item(*ahead).is_some_and(|row| row.live));
        if head && self.is_complete(item) && self.finish(walk, item)? {
            return Ok(Step::Left);
        }
        Ok(if reasons.is_empty() { Step::Carries } else { Step::Fails })
    }

    /// Zuul: what entered before it was known that a change it needs does not merge was to be merged on top of it, and
    /// does not merge either. What enters later is not tried.
    fn fail_to_merge_with(
        &mut self,
        walk: &Walk<'_>,
        index: usize,
        item: ItemId,
        needed: ItemId,
    ) -> Result<(), Refusal> {
        let Some((_, set)) = self.buildset_of(needed) else { return Ok(()) };
        let is_new = match set.phase {
            Phase::Preparing => true,
            Phase::Freezing | Phase::Ended => set.problem.as_ref().is_some_and(is_conflict) && set.builds.is_empty(),
            _ => false,
        };
        let begun = self.buildset_of(item).map(|(buildset, set)| (buildset, set.phase));
        if begun.is_some_and(|(_, phase)| phase != Phase::Opened)
            || !walk.in_window(index)
            || !is_new
            || walk.pipeline.manager != Manager::Dependent
        {
            return Ok(());
        }
        let chain = walk.queue.stands_on(set).iter().map(|ahead| ahead.item).chain([needed]).collect();
        let on_it = Walk {
            items: Vec::new(),
            chain,
            standing: Vec::new(),
            queue: QueueRow::default(),
            sound: false,
            ground: RefCell::new(None),
            ..*walk
        };
        match begun {
            Some((buildset, _)) => self.want_prepare(&on_it, item, buildset),
            None => self.open_buildset(&on_it, item),
        }
    }

    /// Zuul: the jobs of what does not merge are known, and skipped; but for what may change configuration, whose jobs
    /// nobody knows before it is merged.
    fn skip_unmerged(&mut self, walk: &Walk<'_>, item: ItemId) -> Result<(), Refusal> {
        let Some((buildset, set)) = self.buildset_of(item) else { return Ok(()) };
        if self.item(item).is_some_and(|row| row.work.is_some()) || !set.problem.as_ref().is_some_and(is_conflict) {
            return Ok(());
        }
        match set.phase {
            Phase::Ended if set.layout.is_none() => {
                let known = self.item(item).is_some_and(|row| !self.may_change_configuration(row));
                match known && self.nearest(walk).is_none_or(|nearest| nearest.layout.is_some()) {
                    true => self.want_freeze(walk, item, buildset),
                    false => Ok(()),
                }
            }
            Phase::Frozen => self.run_jobs(walk, item, buildset, true),
            _ => Ok(()),
        }
    }

    /// Whether an item is on its way into the branch: what enters now is better tested on that branch.
    pub(crate) fn is_leaving(&self, item: ItemId) -> bool {
        let work = self.item(item).and_then(|row| row.work).and_then(|work| self.pending(work)).map(|row| &row.work);
        match work {
            Some(Work::Submit(_)) => true,
            Some(Work::Changes(wanted)) => matches!(wanted.purpose, FactsPurpose::BeforeSubmit { .. }),
            _ => false,
        }
    }

    /// What an item is to those behind it.
    fn stand(&self, item: ItemId) -> Ahead {
        Ahead { item, buildset: self.item(item).and_then(|row| row.buildset) }
    }
}
