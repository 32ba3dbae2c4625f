//! Items and buildsets.

use std::ops::Bound;

use gatelog_partition_state::work::WorkTable;
use gatelog_record::draft::gate::{
    BuildsetOpened, FailuresCounted, FreezeOutcome, FreezeWanted, Frozen, ItemDequeued, ItemEnqueued, ItemFailing,
    ItemMoved, ItemReset, PrepareOutcome, PrepareRequested, Prepared, QueueAsked, QueueBegun, QueueReordered,
    ReportAction, ReportDelivered, ReportRequested, ReportersStarted, Subject, SubmitOutcome, SubmitRequested,
    Submitted, WaitSubject, WindowChanged,
};
use gatelog_record::{BuildsetId, EventRecord, ItemId, Timestamp, WorkId};
use gatelog_tables::{Backing, FoldRefused, Table, TableExt};

use crate::live::{
    Ahead, BuildRow, BuildState, BuildsetProblem, BuildsetRow, FailuresRow, GateTables, ItemRow, Phase, ProblemKind,
    QueueRow, WaitKey, Work, subject_name,
};

/// The project and branch of a subject.
fn place_of(subject: &Subject) -> (String, Option<String>) {
    (subject.project.clone(), subject.branch.clone())
}

fn illegal(message: String) -> FoldRefused {
    FoldRefused::Illegal(message)
}

impl<B: Backing> GateTables<B> {
    /// An item's short work was asked for: one at a time.
    pub(super) fn works_on(&mut self, item: ItemId, work: WorkId) -> Result<(), FoldRefused> {
        if let Some(other) = self.items.need(&item)?.work {
            return Err(illegal(format!("item {item} asks for work {work} while work {other} is under way")));
        }
        self.items.update(&item, |row| row.work = Some(work))
    }

    /// An item's short work was answered.
    pub(super) fn answered(&mut self, item: ItemId, work: WorkId) -> Result<(), FoldRefused> {
        self.pending_work.close(work)?;
        if self.items.need(&item)?.work != Some(work) {
            return Err(illegal(format!("work {work} is not what item {item} waits for")));
        }
        self.items.update(&item, |row| row.work = None)
    }

    pub(super) fn item_enqueued(&mut self, record: &EventRecord, event: &ItemEnqueued) -> Result<(), FoldRefused> {
        let queue_key = (event.tenant.clone(), event.pipeline.clone(), event.queue.clone());
        let mut queue = match self.queues.get(&queue_key)? {
            Some(row) => row.into_owned(),
            None => QueueRow { window: event.window.unwrap_or(0), ..QueueRow::default() },
        };
        if queue.items.last().copied() != event.ahead {
            return Err(illegal(format!("item {} does not enter behind the last item of its queue", event.item)));
        }
        queue.items.push(event.item);
        if queue.first.is_none() {
            queue.first = event.subjects.first().map(place_of);
            queue.since = record.sequence;
        }
        self.queues.put(queue_key, queue)?;
        for subject in &event.subjects {
            let key = (event.tenant.clone(), subject.project.clone(), subject_name(subject), event.item);
            self.items_by_change.put(key, ())?;
        }
        self.items.insert(
            event.item,
            ItemRow {
                tenant: event.tenant.clone(),
                pipeline: event.pipeline.clone(),
                queue: event.queue.clone(),
                subjects: event.subjects.clone(),
                live: event.live,
                reason: event.reason.clone(),
                trigger: event.trigger,
                enqueued: record.sequence,
                enqueued_at: record.recorded_at,
                buildset: None,
                failing: Vec::new(),
                work: None,
                start_reported: false,
                asked: false,
                resets: 0,
                base_moved: 0,
                reporting: None,
                parameters: event.parameters.clone(),
            },
        )
    }

    pub(super) fn buildset_opened(&mut self, record: &EventRecord, event: &BuildsetOpened) -> Result<(), FoldRefused> {
        let item = self.items.need(&event.item)?;
        if item.buildset.is_some() {
            return Err(illegal(format!("item {} has a buildset already", event.item)));
        }
        let queue = (item.tenant.clone(), item.pipeline.clone(), item.queue.clone());
        let queue = self.queues.need(&queue)?.into_owned();
        self.items.update(&event.item, |row| row.buildset = Some(event.buildset))?;
        let mut ahead = Vec::with_capacity(event.ahead.len());
        for other in &event.ahead {
            ahead.push(Ahead { item: *other, buildset: self.items.need(other)?.buildset });
        }
        let stacked = match ahead.split_last() {
            Some((Ahead { buildset: Some(nearest), .. }, before)) => {
                *queue.stands_on(&*self.buildsets.need(nearest)?) == *before
            }
            _ => false,
        };
        self.buildsets.insert(
            event.buildset,
            BuildsetRow {
                item: event.item,
                opened_at: record.recorded_at,
                ahead,
                stacked,
                merged_before: queue.merges(),
                phase: Phase::Opened,
                dated: record.recorded_at,
                state: None,
                validated: false,
                layout: None,
                layout_problems: None,
                graph: None,
                trace: None,
                builds: Vec::new(),
                problem: None,
                warnings: Vec::new(),
            },
        )
    }

    pub(super) fn prepare_requested(
        &mut self,
        record: &EventRecord,
        event: &PrepareRequested,
    ) -> Result<(), FoldRefused> {
        let tenant = self.items.need(&event.item)?.tenant.clone();
        self.works_on(event.item, event.work)?;
        self.buildsets.update(&event.buildset, |row| {
            row.phase = Phase::Preparing;
            row.dated = event.dated;
        })?;
        self.chains.put(event.buildset, event.steps.clone())?;
        self.pending_work.ask(record, event.work, &tenant, Work::Prepare(event.clone()))
    }

    pub(super) fn prepared(&mut self, event: &Prepared) -> Result<(), FoldRefused> {
        self.answered(event.item, event.done.work)?;
        self.buildsets.update(&event.buildset, |row| match &event.done.outcome {
            PrepareOutcome::Merged(state) => {
                row.phase = Phase::Prepared;
                row.state = Some(state.clone());
            }
            PrepareOutcome::Conflict { message, .. } => {
                row.phase = Phase::Ended;
                row.problem = Some(BuildsetProblem {
                    kind: ProblemKind::Conflict,
                    code: "merge-conflict".into(),
                    message: message.clone(),
                    remarks: Vec::new(),
                });
            }
            PrepareOutcome::Failed { code, message, .. } => {
                row.phase = Phase::Ended;
                row.problem = Some(BuildsetProblem {
                    kind: ProblemKind::Error,
                    code: code.clone(),
                    message: message.clone(),
                    remarks: Vec::new(),
                });
            }
        })
    }

    pub(super) fn freeze_wanted(&mut self, record: &EventRecord, event: &FreezeWanted) -> Result<(), FoldRefused> {
        self.works_on(event.item, event.work)?;
        self.buildsets.update(&event.buildset, |row| {
            row.phase = Phase::Freezing;
            row.layout = Some(event.layout);
        })?;
        self.pending_work.ask(record, event.work, &event.tenant, Work::Freeze(event.clone()))
    }

    pub(super) fn frozen(&mut self, event: &Frozen) -> Result<(), FoldRefused> {
        self.answered(event.item, event.done.work)?;
        let mut row = self.buildsets.need(&event.buildset)?.into_owned();
        row.phase = Phase::Ended;
        // What does not merge stays what it is, whatever jobs it would have had.
        let conflict = row.problem.take();
        match &event.done.outcome {
            FreezeOutcome::Frozen { graph, trace, jobs, .. } => {
                if jobs.len() != event.builds.len() {
                    return Err(illegal(format!("{} jobs have {} builds", jobs.len(), event.builds.len())));
                }
                let tenant = self.items.need(&event.item)?.tenant.clone();
                for (job, build) in jobs.iter().zip(&event.builds) {
                    self.builds.insert(
                        *build,
                        BuildRow {
                            tenant: tenant.clone(),
                            item: event.item,
                            buildset: event.buildset,
                            job: job.clone(),
                            state: BuildState::Waiting,
                            attempt: 0,
                            result: None,
                            lease: None,
                            worker: None,
                            started_at: None,
                            finished_at: None,
                            log_url: None,
                            detail: None,
                            settled: None,
                            child_jobs: None,
                            paused: false,
                            pre_fail: false,
                            nodeset: 0,
                            ready: None,
                            uncounted: 0,
                        },
                    )?;
                }
                row.phase = Phase::Frozen;
                row.graph = Some(*graph);
                row.trace = Some(*trace);
                row.builds.clone_from(&event.builds);
            }
            FreezeOutcome::NoJobs { trace, in_pipeline } => {
                row.trace = Some(*trace);
                let code = if *in_pipeline { "no-jobs" } else { "not-in-pipeline" };
                row.problem = Some(BuildsetProblem {
                    kind: ProblemKind::NoJobs,
                    code: code.into(),
                    message: String::new(),
                    remarks: Vec::new(),
                });
            }
            FreezeOutcome::Refused { trace, message } => {
                row.trace = Some(*trace);
                row.problem = Some(BuildsetProblem {
                    kind: ProblemKind::Config,
                    code: "config-error".into(),
                    message: message.clone(),
                    remarks: Vec::new(),
                });
            }
            FreezeOutcome::Failed { code, message, .. } => {
                row.problem = Some(BuildsetProblem {
                    kind: ProblemKind::Error,
                    code: code.clone(),
                    message: message.clone(),
                    remarks: Vec::new(),
                });
            }
        }
        row.problem = conflict.or(row.problem);
        Ok(self.buildsets.put(event.buildset, row)?)
    }

    pub(super) fn item_failing(&mut self, event: &ItemFailing) -> Result<(), FoldRefused> {
        self.items.update(&event.item, |row| row.failing.clone_from(&event.reasons))
    }

    pub(super) fn item_reset(&mut self, record: &EventRecord, event: &ItemReset) -> Result<(), FoldRefused> {
        let mut row = self.items.need(&event.item)?.into_owned();
        if let Some(work) = row.work.take() {
            self.pending_work.close(work)?;
        }
        if let Some(buildset) = row.buildset.take() {
            self.drop_buildset(buildset, record.recorded_at)?;
        }
        row.failing.clear();
        row.asked = false;
        row.resets = row.resets.saturating_add(1);
        if event.code == "base-moved" {
            row.base_moved = row.base_moved.saturating_add(1);
        }
        Ok(self.items.put(event.item, row)?)
    }

    fn drop_buildset(&mut self, buildset: BuildsetId, at: Timestamp) -> Result<(), FoldRefused> {
        let row = self.buildsets.remove(&buildset)?;
        self.chains.delete(&buildset)?;
        for build in row.builds {
            let gone = self.builds.remove(&build)?;
            if gone.holds_lease() {
                return Err(illegal(format!("build {build} is dropped while it holds a lease")));
            }
            self.waits.delete(&WaitKey(WaitSubject::Build(build)))?;
            self.returned_unused(build, at)?;
        }
        Ok(())
    }

    pub(super) fn window_changed(&mut self, event: &WindowChanged) -> Result<(), FoldRefused> {
        let key = (event.tenant.clone(), event.pipeline.clone(), event.queue.clone());
        self.queues.update(&key, |row| row.window = event.window)
    }

    pub(super) fn queue_reordered(&mut self, event: &QueueReordered) -> Result<(), FoldRefused> {
        let key = (event.tenant.clone(), event.pipeline.clone(), event.queue.clone());
        let mut queue = self.queues.need(&key)?.into_owned();
        let (mut before, mut after) = (queue.items.clone(), event.items.clone());
        before.sort_unstable();
        after.sort_unstable();
        if before != after {
            return Err(illegal(format!("queue {} is not put into another order of the same items", event.queue)));
        }
        queue.items.clone_from(&event.items);
        let first = (event.tenant.clone(), event.pipeline.clone(), String::new());
        for entry in self.queues.range(Bound::Included(&first), Bound::Unbounded)? {
            let (other, row) = entry?;
            if (&other.0, &other.1) != (&event.tenant, &event.pipeline) {
                break;
            }
            queue.since = queue.since.min(row.since.saturating_sub(1));
        }
        self.queues.put(key, queue)?;
        for (item, subjects) in &event.turned {
            let same = |row: &ItemRow| {
                let (mut before, mut after) = (row.subjects.clone(), subjects.clone());
                before.sort_unstable();
                after.sort_unstable();
                before == after
            };
            if !same(&*self.items.need(item)?) {
                return Err(illegal(format!("item {item} does not hold the same changes in another order")));
            }
            self.items.update(item, |row| row.subjects.clone_from(subjects))?;
        }
        for item in &event.quiet {
            self.items.update(item, |row| row.start_reported = true)?;
        }
        Ok(())
    }

    pub(super) fn queue_asked(&mut self, record: &EventRecord, event: &QueueAsked) -> Result<(), FoldRefused> {
        let key = (event.tenant.clone(), event.pipeline.clone(), event.queue.clone());
        let mut queue = match self.queues.get(&key)? {
            Some(row) => row.into_owned(),
            None => QueueRow { window: event.window, ..QueueRow::default() },
        };
        if queue.first.is_some() {
            return Err(illegal(format!("queue {} of {} began before", event.queue, event.pipeline)));
        }
        queue.first = Some(event.first.clone());
        queue.since = record.sequence;
        Ok(self.queues.put(key, queue)?)
    }

    pub(super) fn item_moved(&mut self, event: &ItemMoved) -> Result<(), FoldRefused> {
        let item = self.items.need(&event.item)?.into_owned();
        let place = item.subjects.first().map(place_of);
        let from = (item.tenant.clone(), item.pipeline.clone(), item.queue.clone());
        let to = (item.tenant, item.pipeline, event.queue.clone());
        let mut old = self.queues.need(&from)?.into_owned();
        old.items.retain(|other| *other != event.item);
        let since = old.since;
        // What is merged is counted anew in the other queue.
        let stood_on = match &item.buildset {
            Some(buildset) => Some((*buildset, old.stands_on(&*self.buildsets.need(buildset)?).into_owned())),
            None => None,
        };
        if old.first == place {
            old.first = self.place_of_first(&old.items)?;
        }
        match old.items.is_empty() && old.window == 0 {
            true => self.queues.remove(&from).map(|_| ())?,
            false => self.queues.put(from, old)?,
        }
        let mut new = match self.queues.get(&to)? {
            Some(row) => row.into_owned(),
            None => QueueRow { window: event.window.unwrap_or(0), ..QueueRow::default() },
        };
        new.items.push(event.item);
        if new.first.is_none() {
            new.first = place;
            new.since = since;
        }
        if let Some((buildset, ahead)) = stood_on {
            let merged_before = new.merges();
            self.buildsets.update(&buildset, |row| {
                (row.ahead, row.stacked, row.merged_before) = (ahead, false, merged_before);
            })?;
        }
        self.queues.put(to, new)?;
        self.items.update(&event.item, |row| row.queue.clone_from(&event.queue))
    }

    /// Queues count as begun anew, by what is first in them.
    pub(super) fn queues_begun(&mut self, tenant: &str, begun: &[QueueBegun]) -> Result<(), FoldRefused> {
        for one in begun {
            let key = (tenant.to_owned(), one.pipeline.clone(), one.queue.clone());
            self.queues.update(&key, |row| row.first.clone_from(&one.first))?;
        }
        Ok(())
    }

    /// The same for events that do not say which: with a new layout what was still in a queue counted as having entered
    /// it anew.
    pub(super) fn queues_begin_anew(&mut self, tenant: &str) -> Result<(), FoldRefused> {
        let from = (tenant.to_owned(), String::new(), String::new());
        let mut queues = Vec::new();
        for entry in self.queues.range(Bound::Included(&from), Bound::Unbounded)? {
            let (key, row) = entry?;
            if key.0 != tenant {
                break;
            }
            queues.push((key, row.into_owned()));
        }
        for (key, mut row) in queues {
            row.first = self.place_of_first(&row.items)?;
            self.queues.put(key, row)?;
        }
        Ok(())
    }

    fn place_of_first(&self, items: &[ItemId]) -> Result<Option<(String, Option<String>)>, FoldRefused> {
        let Some(first) = items.first() else { return Ok(None) };
        Ok(self.items.need(first)?.subjects.first().map(place_of))
    }

    pub(super) fn failures_counted(&mut self, event: &FailuresCounted) -> Result<(), FoldRefused> {
        let key = (event.tenant.clone(), event.pipeline.clone());
        if event.failures == 0 && !event.disabled {
            self.failures.delete(&key)?;
            return Ok(());
        }
        Ok(self.failures.put(key, FailuresRow { failures: event.failures, disabled: event.disabled })?)
    }

    pub(super) fn submit_requested(
        &mut self,
        record: &EventRecord,
        event: &SubmitRequested,
    ) -> Result<(), FoldRefused> {
        self.works_on(event.item, event.work)?;
        self.pending_work.ask(record, event.work, &event.tenant, Work::Submit(event.clone()))
    }

    pub(super) fn submitted(&mut self, record: &EventRecord, event: &Submitted) -> Result<(), FoldRefused> {
        self.answered(event.item, event.done.work)?;
        // What is said to be merged already is merged, whoever did it: all the item's changes.
        let merged = match &event.done.outcome {
            SubmitOutcome::Merged => true,
            SubmitOutcome::Refused { code, .. } => code == "already-merged",
            SubmitOutcome::BaseMoved { .. } | SubmitOutcome::Failed { .. } => return Ok(()),
        };
        let item = self.items.need(&event.item)?;
        for subject in &item.subjects {
            let key = (item.tenant.clone(), subject.project.clone(), subject_name(subject));
            self.changes.change(&key, &mut |row| {
                row.submitted.clone_from(&subject.patchset);
                if merged {
                    row.facts.open = false;
                    row.facts.merged = true;
                    row.closed = row.closed.or(Some(record.sequence));
                }
            })?;
        }
        Ok(())
    }

    pub(super) fn report_requested(
        &mut self,
        record: &EventRecord,
        event: &ReportRequested,
    ) -> Result<(), FoldRefused> {
        if let (Some(item), ReportAction::Start) = (event.item, event.action) {
            self.items.update(&item, |row| row.start_reported = true)?;
        }
        self.pending_work.ask(record, event.work, &event.tenant, Work::Report(event.clone()))
    }

    pub(super) fn report_delivered(&mut self, event: &ReportDelivered) -> Result<(), FoldRefused> {
        self.pending_work.close(event.done.work).map(|_| ())
    }

    /// An item was merged: what was tested on top of it stands on the branch itself from here on. That is noted once, and
    /// forgotten when no buildset of the queue can have begun before.
    fn stands_on_the_branch(&self, merged: ItemId, queue: &mut QueueRow) -> Result<(), FoldRefused> {
        // One whose reporter jobs ran was noted when they began.
        if queue.merged.last() != Some(&merged) {
            queue.merged.push(merged);
        }
        // Looked at now and then, so that a merge costs no more the longer the queue is.
        if !queue.items.is_empty() && queue.merged.len() <= 2 * queue.items.len() + 8 {
            return Ok(());
        }
        let mut oldest = queue.merges();
        for item in &queue.items {
            if let Some(buildset) = self.items.need(item)?.buildset {
                oldest = oldest.min(self.buildsets.need(&buildset)?.merged_before);
            }
        }
        let known = usize::try_from(oldest.saturating_sub(queue.merged_before)).unwrap_or(usize::MAX);
        queue.merged.drain(..known.min(queue.merged.len()));
        queue.merged_before = queue.merged_before.max(oldest);
        Ok(())
    }

    pub(super) fn reporters_started(&mut self, event: &ReportersStarted) -> Result<(), FoldRefused> {
        let item = self.items.need(&event.item)?.into_owned();
        if item.reporting.is_some() {
            return Err(illegal(format!("item {} is being reported already", event.item)));
        }
        if event.merged {
            let key = (item.tenant, item.pipeline, item.queue);
            let mut queue = self.queues.need(&key)?.into_owned();
            self.stands_on_the_branch(event.item, &mut queue)?;
            self.queues.put(key, queue)?;
        }
        self.items.update(&event.item, |row| row.reporting = Some(event.merged))
    }

    pub(super) fn item_dequeued(&mut self, record: &EventRecord, event: &ItemDequeued) -> Result<(), FoldRefused> {
        let item = self.items.remove(&event.item)?;
        if let Some(work) = item.work {
            self.pending_work.close(work)?;
        }
        if let Some(buildset) = item.buildset {
            self.drop_buildset(buildset, record.recorded_at)?;
        }
        for subject in &item.subjects {
            let key = (item.tenant.clone(), subject.project.clone(), subject_name(subject), event.item);
            self.items_by_change.remove(&key)?;
        }
        self.waits.delete(&WaitKey(WaitSubject::Item(event.item)))?;
        let key = (item.tenant, item.pipeline, item.queue);
        let mut queue = self.queues.need(&key)?.into_owned();
        let Some(position) = queue.items.iter().position(|other| *other == event.item) else {
            return Err(illegal(format!("item {} is not in its queue", event.item)));
        };
        queue.items.remove(position);
        if event.merged {
            self.stands_on_the_branch(event.item, &mut queue)?;
        }
        if queue.items.is_empty() && queue.window == 0 {
            self.queues.remove(&key)?;
        } else {
            self.queues.put(key, queue)?;
        }
        Ok(())
    }
}
