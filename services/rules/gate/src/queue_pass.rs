//! What every item of every queue does next. Zuul: `processOneItem`, in queue order.
//!
//! One walk over a queue keeps the *chain*: the items ahead that are not failing, on which the next
//! item is to be tested. An item whose buildset stands on something else is reset, so whatever is
//! behind a failing item moves behind the nearest one that is not failing; what gatelog merged leaves
//! the chain of everybody behind without a reset.

use std::collections::BTreeSet;
use std::sync::Arc;

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{Ahead, BuildState, ItemRow, Phase, ProblemKind, Work};
use gatelog_record::draft::gate::{
    BuildResult, BuildSettled, ChangeKey, ItemDequeued, ItemFailing, ItemReset, ItemResult, LeaseEndWanted,
    ReportAction, Subject,
};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildId, ItemId};
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::objects::pipeline::Manager;

use crate::decision::Decision;
use crate::filters;
use crate::layout_view::LayoutView;

/// Why an item is failing because of what it needs.
pub(crate) const NEEDED_FAILING: &str = "needed-failing";

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
    /// Looks once at every queue of a tenant.
    pub(crate) fn run_queues(&mut self, tenant: &str) -> Result<(), Refusal> {
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        for key in self.queue_keys(tenant) {
            let Some(pipeline) = layout.pipeline(&key.1) else {
                self.empty_queue(&key)?;
                continue;
            };
            // Every round but the last lets an item go.
            let rounds = self.gate().queues.row(&key).map_or(0, |row| row.items.len());
            for _ in 0..=rounds {
                let Some(row) = self.gate().queues.row(&key) else { break };
                let walk = Walk {
                    tenant,
                    layout: &layout,
                    pipeline,
                    items: row.items.clone(),
                    window: row.window,
                    chain: Vec::new(),
                };
                if self.walk(walk)? {
                    break;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn queue_keys(&self, tenant: &str) -> Vec<(String, String, String)> {
        let from = (tenant.to_owned(), String::new(), String::new());
        let rows = self.gate().queues.rows(std::ops::Bound::Included(&from), std::ops::Bound::Unbounded);
        rows.take_while(|(key, _)| key.0 == tenant).map(|(key, _)| key.clone()).collect()
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

    /// Walks over a queue; says whether it came to the end.
    fn walk(&mut self, mut walk: Walk<'_>) -> Result<bool, Refusal> {
        for index in 0..walk.items.len() {
            let Some(item) = walk.items.get(index).copied() else { break };
            match self.step(&walk, index, item)? {
                Step::Left => return Ok(false),
                Step::Carries => walk.chain.push(item),
                Step::Fails => {}
            }
        }
        Ok(true)
    }

    fn step(&mut self, walk: &Walk<'_>, index: usize, item: ItemId) -> Result<Step, Refusal> {
        let Some(row) = self.item(item).cloned() else { return Ok(Step::Fails) };
        // What is being merged is out of everybody's hands until the answer comes.
        if self.is_merging(item) {
            return Ok(Step::Carries);
        }
        if let Some((code, detail)) = self.outdated(&row, walk.pipeline).or_else(|| self.not_ours(&row)) {
            self.leave_silently(item, code, &detail)?;
            return Ok(Step::Left);
        }
        let behind = walk.items.get(index + 1..).unwrap_or_default();
        if !row.live && !behind.iter().any(|other| self.item(*other).is_some_and(|other| other.live)) {
            self.leave_silently(item, "not-needed", "Nothing behind it needs it any more.")?;
            return Ok(Step::Left);
        }
        let ahead = walk.items.get(..index).unwrap_or_default();
        let needed = match self.needed_items(walk, &row, ahead) {
            Ok(needed) => needed,
            Err(detail) if row.live => {
                self.leave_failing(item, ItemResult::Failure, "needs-gone", &detail, true)?;
                return Ok(Step::Left);
            }
            Err(detail) => {
                self.leave_silently(item, "needs-gone", &detail)?;
                return Ok(Step::Left);
            }
        };
        if let Some(why) = self.cannot_merge(walk, &row) {
            let detail = format!("It can no longer be merged: {why}.");
            self.leave_failing(item, ItemResult::Failure, "cannot-merge", &detail, true)?;
            return Ok(Step::Left);
        }
        if !row.live {
            return Ok(Step::Carries);
        }
        let failing = |needed: &&ItemId| self.item(**needed).is_some_and(|row| !row.failing.is_empty());
        if let Some(needed) = needed.iter().find(failing) {
            let detail = format!("{}, which it needs, is failing.", self.name_of(*needed));
            self.give_up_builds(item, "needed-failing", &detail)?;
            self.set_failing(item, vec![NEEDED_FAILING.to_owned()])?;
            return Ok(Step::Fails);
        }
        if row.failing.iter().any(|reason| reason == NEEDED_FAILING) {
            self.reset(item, walk, "needs-recovered", "What it needs is no longer failing.")?;
        } else if let Some((code, detail)) = self.stands_wrong(walk, &row) {
            self.reset(item, walk, code, &detail)?;
        }
        self.go_on(walk, index, item)
    }

    /// Opens a buildset if it may, and brings the one there is further.
    fn go_on(&mut self, walk: &Walk<'_>, index: usize, item: ItemId) -> Result<Step, Refusal> {
        let Some((buildset, set)) = self.buildset_of(item) else {
            let in_window = walk.window == 0 || (index as u64) < u64::from(walk.window);
            if in_window && walk.chain.iter().all(|ahead| self.is_prepared(*ahead)) {
                self.open_buildset(walk, item)?;
            }
            return Ok(Step::Carries);
        };
        if self.item(item).is_some_and(|row| row.work.is_none()) {
            match set.phase {
                Phase::Prepared => self.choose_layout(walk, item, buildset)?,
                Phase::LayoutReady => self.want_freeze(walk, item, buildset)?,
                Phase::Frozen => self.run_jobs(walk, item, buildset)?,
                Phase::Opened | Phase::Preparing | Phase::Layout | Phase::Freezing | Phase::Ended => {}
            }
        }
        let reasons = self.reasons_to_fail(item);
        self.set_failing(item, reasons.clone())?;
        let head = !walk.chain.iter().any(|ahead| self.item(*ahead).is_some_and(|row| row.live));
        if head && self.is_complete(item) && self.finish(walk, item)? {
            return Ok(Step::Left);
        }
        Ok(if reasons.is_empty() { Step::Carries } else { Step::Fails })
    }

    /// An item that is not live has nothing to prepare.
    fn is_prepared(&self, item: ItemId) -> bool {
        let Some(row) = self.item(item) else { return false };
        !row.live || self.buildset_of(item).is_some_and(|(_, set)| set.state.is_some())
    }

    // ---- what is wrong with an item ----

    /// Whether the item's change moved on without it: a code and a sentence.
    fn outdated(&self, row: &ItemRow, pipeline: &Pipeline) -> Option<(&'static str, String)> {
        for subject in &row.subjects {
            let Some(key) = subject.change_key() else { continue };
            let Some(facts) = self.change(&row.tenant, &key).map(|row| &row.facts) else {
                return Some(("gone", "The change does not exist any more.".into()));
            };
            if !facts.open && !facts.merged {
                return Some(("abandoned", "The change was abandoned.".into()));
            }
            let moved_on = facts.subject.patchset != subject.patchset;
            if moved_on && pipeline.dequeue_on_new_patchset && (row.live || self.is_wanted_current(row, subject)) {
                let patchset = facts.subject.patchset.clone().unwrap_or_default();
                return Some(("new-patchset", format!("Patchset {patchset} took its place.")));
            }
        }
        None
    }

    /// Whether a live item's project left the tenant: a code and a sentence.
    fn not_ours(&self, row: &ItemRow) -> Option<(&'static str, String)> {
        let tenant = self.tenant(&row.tenant)?;
        let foreign = row.subjects.iter().find(|subject| tenant.project(&subject.project).is_none())?;
        row.live.then(|| ("project-gone", format!("Project {} is no longer in the tenant.", foreign.project)))
    }

    /// Whether something behind an item that is not live needs its change as it is now. Zuul: what
    /// names it by Depends-On does; a commit stacked on an old patchset is tested on that.
    fn is_wanted_current(&self, row: &ItemRow, subject: &Subject) -> bool {
        let key = (row.tenant.clone(), row.pipeline.clone(), row.queue.clone());
        let items = self.gate().queues.row(&key).map(|queue| queue.items.as_slice()).unwrap_or_default();
        items
            .iter()
            .filter_map(|item| self.item(*item))
            .flat_map(|other| &other.subjects)
            .filter_map(|other| self.change(&row.tenant, &other.change_key()?))
            .flat_map(|row| &row.facts.depends_on)
            .any(|text| !text.is_empty() && (*text == subject.url || subject.url.ends_with(text.as_str())))
    }

    /// Lets the items of a change go that are not at its current patchset, or whose change is closed.
    pub(crate) fn drop_outdated(&mut self, tenant: &str, subject: &Subject) -> Result<(), Refusal> {
        let Some(key) = subject.change_key() else { return Ok(()) };
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        for item in self.items_of(tenant, &key) {
            let Some(row) = self.item(item) else { continue };
            let Some(pipeline) = layout.pipeline(&row.pipeline) else { continue };
            if let Some((code, detail)) = self.outdated(row, pipeline)
                && !self.is_merging(item)
            {
                self.leave_silently(item, code, &detail)?;
            }
        }
        Ok(())
    }

    /// The items ahead that hold what an item needs; an error names what is in no branch and not ahead.
    fn needed_items(&self, walk: &Walk<'_>, row: &ItemRow, ahead: &[ItemId]) -> Result<Vec<ItemId>, String> {
        let mut found = Vec::new();
        if walk.pipeline.ignore_dependencies {
            return Ok(found);
        }
        let needs = row.subjects.iter().filter_map(Subject::change_key);
        for need in needs.flat_map(|key| self.needs_of(walk.tenant, &key)).collect::<BTreeSet<ChangeKey>>() {
            let holds = |item: &&ItemId| {
                let subjects = self.item(**item).map(|row| row.subjects.as_slice()).unwrap_or_default();
                subjects.iter().any(|one| one.change_key().as_ref() == Some(&need))
            };
            if let Some(item) = ahead.iter().find(holds) {
                found.push(*item);
                continue;
            }
            match self.change(walk.tenant, &need) {
                Some(change) if change.facts.merged => {}
                Some(change) => return Err(format!("Change {} is needed.", change.facts.subject.url)),
                None => return Err(format!("Change {} of {} is needed.", need.change, need.project)),
            }
        }
        Ok(found)
    }

    /// Why an item of a pipeline that merges could not be merged any more.
    fn cannot_merge(&self, walk: &Walk<'_>, row: &ItemRow) -> Option<String> {
        if walk.pipeline.manager != Manager::Dependent {
            return None;
        }
        let keys = row.subjects.iter().filter_map(Subject::change_key);
        keys.filter_map(|key| self.change(walk.tenant, &key))
            .find_map(|change| filters::can_merge(walk.pipeline, &change.facts).err())
    }

    /// Whether an item's buildset stands on something else than the chain: a code and a sentence.
    fn stands_wrong(&self, walk: &Walk<'_>, row: &ItemRow) -> Option<(&'static str, String)> {
        let set = self.buildset(row.buildset?)?;
        let wanted: Vec<Ahead> = walk
            .chain
            .iter()
            .map(|item| Ahead { item: *item, buildset: self.item(*item).and_then(|row| row.buildset) })
            .collect();
        if set.ahead == wanted {
            return None;
        }
        if set.ahead.iter().any(|ahead| self.item(ahead.item).is_none()) {
            return Some(("ahead-left", "An item ahead of it left without being merged.".into()));
        }
        let failing = |ahead: &&Ahead| self.item(ahead.item).is_some_and(|row| !row.failing.is_empty());
        if let Some(ahead) = set.ahead.iter().find(failing) {
            return Some(("ahead-failing", format!("{} ahead of it is failing.", self.name_of(ahead.item))));
        }
        Some(("ahead-changed", "What is ahead of it is tested anew.".into()))
    }

    /// What people call an item: its change.
    pub(crate) fn name_of(&self, item: ItemId) -> String {
        let subject = self.item(item).and_then(|row| row.subjects.first());
        subject.map(gatelog_gate_state::live::subject_name).unwrap_or_else(|| item.to_string())
    }

    /// Why an item is failing, by its buildset alone.
    fn reasons_to_fail(&self, item: ItemId) -> Vec<String> {
        let Some((_, set)) = self.buildset_of(item) else { return Vec::new() };
        if let Some(problem) = &set.problem {
            return vec![problem.code.clone()];
        }
        let builds = set.builds.iter().filter_map(|build| self.build(*build));
        let failed = |result: BuildResult| !matches!(result, BuildResult::Success | BuildResult::Skipped);
        let mut reasons: Vec<String> = builds
            .filter(|build| build.job.voting && build.result.is_some_and(failed))
            .map(|build| format!("job-failed {}", build.job.name))
            .collect();
        // Zuul: when every job was skipped, nothing was tested.
        if reasons.is_empty() && self.all_skipped(&set.builds) {
            reasons.push("all-skipped".into());
        }
        reasons
    }

    fn all_skipped(&self, builds: &[BuildId]) -> bool {
        let skipped = |build: &BuildId| self.build(*build).is_some_and(|row| row.result == Some(BuildResult::Skipped));
        !builds.is_empty() && builds.iter().all(skipped)
    }

    fn is_complete(&self, item: ItemId) -> bool {
        let Some((_, set)) = self.buildset_of(item) else { return false };
        match set.phase {
            Phase::Ended => true,
            Phase::Frozen => {
                set.builds.iter().all(|build| self.build(*build).is_some_and(|row| row.state == BuildState::Done))
            }
            _ => false,
        }
    }

    /// Whether an item's merge is under way.
    pub(crate) fn is_merging(&self, item: ItemId) -> bool {
        let work = self.item(item).and_then(|row| row.work).and_then(|work| self.pending(work));
        work.is_some_and(|row| matches!(row.work, Work::Submit(_)))
    }

    // ---- what is done about it ----

    pub(crate) fn set_failing(&mut self, item: ItemId, reasons: Vec<String>) -> Result<(), Refusal> {
        if self.item(item).is_none_or(|row| row.failing == reasons) {
            return Ok(());
        }
        self.emit(GateEvent::ItemFailing(ItemFailing { item, reasons }))
    }

    /// Gives an item's builds up and begins anew.
    pub(crate) fn reset(&mut self, item: ItemId, walk: &Walk<'_>, code: &str, detail: &str) -> Result<(), Refusal> {
        self.reset_behind(item, walk.chain.last().copied(), code, detail)
    }

    pub(crate) fn reset_behind(
        &mut self,
        item: ItemId,
        ahead: Option<ItemId>,
        code: &str,
        detail: &str,
    ) -> Result<(), Refusal> {
        self.give_up_builds(item, "reset", detail)?;
        self.emit(GateEvent::ItemReset(ItemReset { item, ahead, code: code.into(), detail: detail.into() }))
    }

    /// Cancels what an item runs.
    fn give_up_builds(&mut self, item: ItemId, code: &str, detail: &str) -> Result<(), Refusal> {
        let Some((buildset, set)) = self.buildset_of(item) else { return Ok(()) };
        for build in set.builds.clone() {
            let Some(row) = self.build(build) else { continue };
            if row.state == BuildState::Done {
                continue;
            }
            let (held, attempt) = (row.holds_lease(), row.attempt);
            self.emit(GateEvent::BuildSettled(BuildSettled {
                build,
                item,
                buildset,
                result: BuildResult::Canceled,
                code: code.into(),
                detail: detail.into(),
            }))?;
            if held {
                self.emit(GateEvent::LeaseEndWanted(LeaseEndWanted { build, attempt, reason: "canceled".into() }))?;
            }
        }
        Ok(())
    }

    /// An item leaves without a result. Zuul: reported only if its start was.
    pub(crate) fn leave_silently(&mut self, item: ItemId, code: &str, detail: &str) -> Result<(), Refusal> {
        let Some(row) = self.item(item).cloned() else { return Ok(()) };
        self.give_up_builds(item, "dequeued", detail)?;
        if row.start_reported
            && let Some(layout) = self.layout(&row.tenant)?
            && let Some(pipeline) = layout.pipeline(&row.pipeline)
        {
            let message = crate::report::plain(&pipeline.messages.dequeue, detail, pipeline);
            self.report_to(&row.tenant, pipeline, Some(item), ReportAction::Dequeue, &row.subjects, message)?;
        }
        self.emit(GateEvent::ItemDequeued(ItemDequeued {
            item,
            result: ItemResult::Dequeued,
            code: code.into(),
            detail: detail.into(),
            merged: false,
        }))
    }

    /// An item leaves with a report of failure.
    pub(crate) fn leave_failing(
        &mut self,
        item: ItemId,
        result: ItemResult,
        code: &str,
        detail: &str,
        shrink: bool,
    ) -> Result<(), Refusal> {
        let Some(row) = self.item(item).cloned() else { return Ok(()) };
        self.give_up_builds(item, "dequeued", detail)?;
        if let Some(layout) = self.layout(&row.tenant)?
            && let Some(pipeline) = layout.pipeline(&row.pipeline)
        {
            let action = match result {
                ItemResult::MergeConflict => ReportAction::MergeConflict,
                ItemResult::ConfigError => ReportAction::ConfigError,
                ItemResult::NoJobs => ReportAction::NoJobs,
                _ => ReportAction::Failure,
            };
            let message = self.result_message(item, &row, pipeline, action, detail);
            self.report_to(&row.tenant, pipeline, Some(item), action, &row.subjects, message)?;
            if shrink {
                self.shrink_window(&row, pipeline)?;
            }
        }
        self.emit(GateEvent::ItemDequeued(ItemDequeued {
            item,
            result,
            code: code.into(),
            detail: detail.into(),
            merged: false,
        }))
    }

    /// The item is complete and it is its turn; says whether it left.
    fn finish(&mut self, walk: &Walk<'_>, item: ItemId) -> Result<bool, Refusal> {
        let Some((_, set)) = self.buildset_of(item) else { return Ok(false) };
        if let Some(problem) = set.problem.clone() {
            let (result, shrink) = match problem.kind {
                ProblemKind::Conflict => (ItemResult::MergeConflict, true),
                ProblemKind::Config => (ItemResult::ConfigError, true),
                ProblemKind::Error => (ItemResult::Error, true),
                // Zuul: a change without jobs leaves no trace.
                ProblemKind::NoJobs => (ItemResult::NoJobs, false),
            };
            self.leave_failing(item, result, &problem.code, &problem.message, shrink)?;
            return Ok(true);
        }
        if self.item(item).is_some_and(|row| !row.failing.is_empty()) {
            self.leave_failing(item, ItemResult::Failure, "reported", "", true)?;
            return Ok(true);
        }
        if walk.pipeline.manager == Manager::Dependent {
            self.merge(walk, item)?;
            return Ok(self.item(item).is_none());
        }
        self.leave_succeeding(item, "reported", "", false)?;
        Ok(true)
    }

    /// An item leaves with a report of success.
    pub(crate) fn leave_succeeding(
        &mut self,
        item: ItemId,
        code: &str,
        detail: &str,
        merged: bool,
    ) -> Result<(), Refusal> {
        let Some(row) = self.item(item).cloned() else { return Ok(()) };
        if let Some(layout) = self.layout(&row.tenant)?
            && let Some(pipeline) = layout.pipeline(&row.pipeline)
        {
            let message = self.result_message(item, &row, pipeline, ReportAction::Success, detail);
            self.report_to(&row.tenant, pipeline, Some(item), ReportAction::Success, &row.subjects, message)?;
            self.grow_window(&row, pipeline)?;
        }
        self.emit(GateEvent::ItemDequeued(ItemDequeued {
            item,
            result: ItemResult::Success,
            code: code.into(),
            detail: detail.into(),
            merged,
        }))
    }
}
