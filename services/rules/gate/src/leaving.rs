//! What is done about an item: its builds are given up, it begins anew, it leaves, with or without a
//! report.

use std::collections::BTreeMap;

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{BuildState, ItemRow, ProblemKind};
use gatelog_record::draft::gate::{
    BuildResult, BuildSettled, ChangeKey, ItemDequeued, ItemFailing, ItemReset, ItemResult, LeaseEndWanted,
    ReportAction, ReportersStarted, Subject,
};
use gatelog_record::event::GateEvent;
use gatelog_record::{ItemId, Value};
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::objects::pipeline::Manager;

use crate::decision::Decision;
use crate::health::Outdated;
use crate::managers::Entry;
use crate::queue_pass::Walk;

/// A change that is to enter a pipeline again.
pub(crate) struct Again {
    pipeline: String,
    subject: Subject,
    trigger: Option<u64>,
}

impl Decision<'_> {
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
    pub(crate) fn give_up_builds(&mut self, item: ItemId, code: &str, detail: &str) -> Result<(), Refusal> {
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
                freed: self.freed(build),
            }))?;
            if held {
                self.emit(GateEvent::LeaseEndWanted(LeaseEndWanted { build, attempt, reason: "canceled".into() }))?;
            }
        }
        Ok(())
    }

    /// Tells that an item leaves without a result. Zuul: only where it could be told that it came, which is always
    /// but for a disabled pipeline.
    pub(crate) fn report_dequeue(&mut self, item: ItemId, row: &ItemRow, detail: &str) -> Result<(), Refusal> {
        if row.live
            && row.reporting.is_none()
            && let Some(layout) = self.layout(&row.tenant)?
            && let Some(pipeline) = layout.pipeline(&row.pipeline)
            && !self.is_disabled(&row.tenant, pipeline)
        {
            let message = crate::report::plain(&pipeline.messages.dequeue, detail, pipeline);
            self.report_to(&row.tenant, pipeline, Some(item), ReportAction::Dequeue, &row.subjects, message)?;
        }
        Ok(())
    }

    /// An item leaves without a result.
    pub(crate) fn leave_silently(&mut self, item: ItemId, code: &str, detail: &str) -> Result<(), Refusal> {
        let Some(row) = self.item(item).cloned() else { return Ok(()) };
        self.give_up_builds(item, "dequeued", detail)?;
        self.report_dequeue(item, &row, detail)?;
        self.emit(GateEvent::ItemDequeued(ItemDequeued {
            item,
            result: ItemResult::Dequeued,
            code: code.into(),
            detail: detail.into(),
            merged: false,
        }))
    }

    /// An item leaves because a change of it moved on. Zuul: of a circle, whose other changes did not, that is told
    /// when the change was abandoned; with a new patchset the others enter again, as if an operator had asked.
    pub(crate) fn leave_outdated(&mut self, item: ItemId, row: &ItemRow, why: &Outdated) -> Result<(), Refusal> {
        let circle = row.live && row.subjects.len() > 1;
        if circle && why.code == "abandoned" {
            let detail = format!("{}, to be merged together with it, was abandoned.", why.subject.url);
            return self.leave_failing(item, ItemResult::Failure, "circle-abandoned", &detail, true);
        }
        self.leave_silently(item, why.code, &why.detail)?;
        if row.live && why.code == "abandoned" {
            self.leave_the_line(row)?;
        }
        if circle && why.code == "new-patchset" {
            self.again.extend(row.subjects.iter().filter(|subject| **subject != why.subject).map(|subject| Again {
                pipeline: row.pipeline.clone(),
                subject: subject.clone(),
                trigger: row.trigger,
            }));
        }
        Ok(())
    }

    /// Zuul: what needs an abandoned change that was in its queue leaves the queue with it, also where one goes after
    /// the other, or while reporter jobs run, and nobody asks otherwise what a change needs.
    fn leave_the_line(&mut self, gone: &ItemRow) -> Result<(), Refusal> {
        let Some(layout) = self.layout(&gone.tenant)? else { return Ok(()) };
        let Some(pipeline) = layout.pipeline(&gone.pipeline) else { return Ok(()) };
        let key = (gone.tenant.clone(), gone.pipeline.clone(), gone.queue.clone());
        let items = self.gate().queues.row(&key).map(|row| row.items.clone()).unwrap_or_default();
        let unasked = pipeline.manager == Manager::Serial || items.iter().any(|item| self.is_reporting(*item));
        if !unasked || pipeline.ignore_dependencies {
            return Ok(());
        }
        let mut removed: Vec<Subject> = gone.subjects.clone();
        for item in items {
            if self.is_reporting(item) || self.is_merging(item) {
                continue;
            }
            let keys = self.keys_of(item);
            // Who stands on an older patchset does not need the one that went.
            let needs = |member: &ChangeKey, subject: &Subject| {
                let key = subject.change_key();
                self.needs_of(&gone.tenant, member).into_iter().any(|need| Some(need) == key)
                    && self.stood_on(&gone.tenant, std::iter::once(member), subject).is_none()
            };
            let lost = removed.iter().find(|subject| keys.iter().any(|member| needs(member, subject)));
            if let Some(detail) = lost.map(|subject| format!("Change {} is needed, and was abandoned.", subject.url)) {
                removed.extend(self.item(item).map(|row| row.subjects.clone()).unwrap_or_default());
                self.leave_failing(item, ItemResult::Failure, "needs-abandoned", &detail, true)?;
            }
        }
        Ok(())
    }

    /// Lets changes into pipelines that are to enter them again.
    pub(crate) fn enter_again(&mut self, tenant: &str) -> Result<(), Refusal> {
        if self.again.is_empty() {
            return Ok(());
        }
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        for again in std::mem::take(&mut self.again) {
            let Some(pipeline) = layout.pipeline(&again.pipeline) else { continue };
            let current = again.subject.change_key().and_then(|key| self.current_subject(tenant, &key));
            self.enter(&Entry {
                tenant,
                layout: &layout,
                pipeline,
                subject: current.as_ref().unwrap_or(&again.subject),
                trigger: again.trigger,
                reason: "circle-changed",
                asked: true,
                parameters: None,
            })?;
        }
        Ok(())
    }

    /// An item leaves, and what it held enters again: other changes than before are to be tested as one with it.
    /// Zuul: as if an operator had asked for each.
    pub(crate) fn begin_anew(&mut self, walk: &Walk<'_>, item: ItemId, row: &ItemRow) -> Result<(), Refusal> {
        let detail = "Other changes than before are to be tested together with it.";
        self.leave_silently(item, "circle-changed", detail)?;
        if !row.live {
            return Ok(());
        }
        for subject in &row.subjects {
            let current = subject.change_key().and_then(|key| self.current_subject(walk.tenant, &key));
            self.enter(&Entry {
                tenant: walk.tenant,
                layout: walk.layout,
                pipeline: walk.pipeline,
                subject: current.as_ref().unwrap_or(subject),
                trigger: row.trigger,
                reason: "circle-changed",
                asked: true,
                parameters: None,
            })?;
        }
        Ok(())
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
        let Some(mut row) = self.item(item).cloned() else { return Ok(()) };
        // Zuul: whatever is wrong with it, it is said only where its project takes part.
        let result = if self.takes_no_part(&row)? { ItemResult::NoJobs } else { result };
        self.note_artifacts(item)?;
        self.give_up_builds(item, "dequeued", detail)?;
        if matches!(code, "needs-gone" | "needs-abandoned" | "circle-abandoned" | "cannot-merge")
            && row.buildset.is_some()
        {
            // What its jobs came to no longer counts.
            self.emit(GateEvent::ItemReset(ItemReset { item, ahead: None, code: code.into(), detail: detail.into() }))?;
            row.buildset = None;
        }
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
            let told = self.told_as(&row.tenant, pipeline, action);
            self.report_to(&row.tenant, pipeline, Some(item), told, &row.subjects, message)?;
            if result == ItemResult::Failure && code == "reported" {
                self.count_failures(&row.tenant, pipeline, true)?;
            }
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

    /// Whether an item has no jobs in a pipeline in which none of its projects has any. What brings a layout of its own
    /// may take part by that, unless it is wrong.
    fn takes_no_part(&self, row: &ItemRow) -> Result<bool, Refusal> {
        let set = row.buildset.and_then(|set| self.buildset(set));
        let Some(in_force) = self.layout(&row.tenant)? else { return Ok(false) };
        let right = set.filter(|set| set.problem.as_ref().is_none_or(|problem| problem.kind != ProblemKind::Config));
        let own = right
            .and_then(|set| set.layout)
            .is_some_and(|own| self.gate().layouts.row(&row.tenant).is_none_or(|in_force| in_force.layout != own));
        Ok(!own && !row.subjects.iter().any(|one| in_force.in_pipeline(&one.project, &row.pipeline)))
    }

    /// The item is complete and it is its turn; says whether it left.
    pub(crate) fn finish(&mut self, walk: &Walk<'_>, item: ItemId) -> Result<bool, Refusal> {
        let Some((_, set)) = self.buildset_of(item) else { return Ok(false) };
        if let Some(problem) = set.problem.clone() {
            let result = match problem.kind {
                ProblemKind::Conflict => ItemResult::MergeConflict,
                ProblemKind::Config => ItemResult::ConfigError,
                ProblemKind::Error => ItemResult::Error,
                // Zuul: a change without jobs leaves no trace but a smaller window.
                ProblemKind::NoJobs => ItemResult::NoJobs,
            };
            self.leave_failing(item, result, &problem.code, &problem.message, true)?;
            return Ok(true);
        }
        if self.item(item).is_some_and(|row| !row.failing.is_empty()) {
            self.leave_failing(item, ItemResult::Failure, "reported", "", true)?;
            return Ok(true);
        }
        // Zuul: merging is a way to report, and a disabled pipeline does none of its own.
        if walk.pipeline.manager == Manager::Dependent && self.is_disabled(walk.tenant, walk.pipeline) {
            self.leave_succeeding(item, "disabled", "", false)?;
            return Ok(true);
        }
        if self.submits(walk.pipeline, item) && !self.is_disabled(walk.tenant, walk.pipeline) {
            self.merge(walk, item)?;
            return Ok(self.item(item).is_none());
        }
        if walk.pipeline.manager == Manager::Dependent {
            if let Some(row) = self.item(item).cloned() {
                let detail =
                    "It succeeded, and no success reporter of the pipeline merges it: add `submit` or `merge`.";
                self.leave_unmerged(item, &row, "not-submitted", detail)?;
            }
            return Ok(true);
        }
        self.leave_succeeding(item, "reported", "", false)?;
        // It may stay for its reporter jobs; then the walk comes back to it.
        Ok(true)
    }

    /// Whether what a pipeline says of a success merges the changes of an item, too. Zuul: the reporter's `submit` or
    /// `merge`, whatever manages the pipeline. A code-review system to which nothing in particular is said is one where
    /// the gate merges.
    fn submits(&self, pipeline: &Pipeline, item: ItemId) -> bool {
        let reporters = pipeline.reporters("success");
        let merges = |subject: &Subject| {
            let said = reporters.get(&subject.connection).and_then(Value::as_map).filter(|said| !said.is_empty());
            let asks = |said: &BTreeMap<String, Value>| {
                ["submit", "merge"]
                    .iter()
                    .any(|key| said.get(*key).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false))))
            };
            subject.change.is_some() && said.map_or(pipeline.manager == Manager::Dependent, asks)
        };
        self.item(item).is_some_and(|row| row.subjects.iter().all(merges))
    }

    /// An item succeeded in a pipeline that merges, and was not merged: nobody is told to, or it was refused. Zuul:
    /// merging is part of telling the success, so that is told, and nothing more of a single change, which is why the
    /// same message says here what hinders it; of a circle it is told next that it failed. What was tested on top of it
    /// begins anew; the window stays as it is.
    pub(crate) fn leave_unmerged(
        &mut self,
        item: ItemId,
        row: &ItemRow,
        code: &str,
        detail: &str,
    ) -> Result<(), Refusal> {
        if row.subjects.len() > 1 {
            self.report_success(item, row, "")?;
            return self.leave_failing(item, ItemResult::MergeFailure, code, detail, false);
        }
        self.note_artifacts(item)?;
        self.report_success(item, row, detail)?;
        self.emit(GateEvent::ItemDequeued(ItemDequeued {
            item,
            result: ItemResult::MergeFailure,
            code: code.into(),
            detail: detail.into(),
            merged: false,
        }))
    }

    /// Somebody else merged a part of a circle, the gate the rest. Zuul: of a circle the success is told before anything
    /// is merged, then that not all of it could be; what was tested on top of it is tested again on what is there.
    pub(crate) fn leave_partly_merged(&mut self, item: ItemId, row: &ItemRow, message: &str) -> Result<(), Refusal> {
        self.report_success(item, row, "")?;
        let detail = format!("Not all of it could be merged: {message}");
        self.leave_failing(item, ItemResult::MergeFailure, "already-merged", &detail, false)
    }

    /// Tells that an item succeeded, whatever becomes of it afterwards.
    fn report_success(&mut self, item: ItemId, row: &ItemRow, said: &str) -> Result<(), Refusal> {
        let Some(layout) = self.layout(&row.tenant)? else { return Ok(()) };
        let Some(pipeline) = layout.pipeline(&row.pipeline) else { return Ok(()) };
        let message = self.result_message(item, row, pipeline, ReportAction::Success, said);
        self.report_to(&row.tenant, pipeline, Some(item), ReportAction::Success, &row.subjects, message)?;
        self.count_failures(&row.tenant, pipeline, false)
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
        if !merged {
            self.note_artifacts(item)?;
        }
        if let Some(layout) = self.layout(&row.tenant)?
            && let Some(pipeline) = layout.pipeline(&row.pipeline)
        {
            let message = self.result_message(item, &row, pipeline, ReportAction::Success, detail);
            let told = self.told_as(&row.tenant, pipeline, ReportAction::Success);
            self.report_to(&row.tenant, pipeline, Some(item), told, &row.subjects, message)?;
            self.count_failures(&row.tenant, pipeline, false)?;
            // What somebody else merged in between is no success of the queue's own.
            if code != "disabled" && (merged || code != "already-merged") {
                self.grow_window(&row, pipeline)?;
            }
        }
        let reporters = self.buildset_of(item).map(|(_, set)| self.reporters_of(&set.builds)).unwrap_or_default();
        if !reporters.is_empty() {
            return self.emit(GateEvent::ReportersStarted(ReportersStarted { item, merged }));
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
