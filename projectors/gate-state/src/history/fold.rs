//! How the gate's events change the temporal tables.

use gatelog_record::draft::gate::{
    BuildFinished, BuildPaused, BuildResult, BuildSettled, BuildStarted, BuildsetOpened, ConfigRead, EnqueueRefused,
    FreezeOutcome, Frozen, ItemDequeued, ItemEnqueued, ItemFailing, ItemReset, LayoutActivated, LayoutOutcome,
    LayoutReady, LeaseEndWanted, LeaseWanted, NodesHeld, PrepareOutcome, Prepared, ReportAction, ReportDelivered,
    ReportRequested, SubmitRequested, Submitted, TenantConfigured, TriggerSettled, TriggerWaiting, WaitChanged,
    WaitSubject,
};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildsetId, Event, EventRecord, ItemId, Timestamp, Value};
use gatelog_tables::{Backing, FoldRefused, ReadTables, Table, TableExt};

use super::GateRead;
use super::held::{as_of, begin, end, held, look, next, replace};
use super::rows::{
    AttemptEntry, BuildEntry, BuildsetEntry, EndEntry, FrozenEntry, ItemEntry, ItemHistory, LayoutEntry, Moment,
    PreparedEntry, RefusedEntry, ReportEntry, ResetEntry, SubmitEntry, TenantEntry, TriggerEntry, WaitEntry,
};
use crate::live::{GateLive, WaitKey, subject_name};

fn illegal(message: String) -> FoldRefused {
    FoldRefused::Illegal(message)
}

impl<B: Backing> ReadTables<B> for GateRead<B> {
    type Live = GateLive<B>;

    fn apply(&mut self, _: &GateLive<B>, record: &EventRecord) -> Result<(), FoldRefused> {
        self.fold(record)
    }
}

impl<B: Backing> GateRead<B> {
    /// Folds one event. The temporal tables need nothing but themselves.
    pub(super) fn fold(&mut self, record: &EventRecord) -> Result<(), FoldRefused> {
        match &record.event {
            Event::Partition(_) => {}
            Event::Gate(event) => self.fold_own(record, event)?,
            _ => {
                return Err(illegal(format!("{} is not an event of the gate", record.event.name())));
            }
        }
        self.note(record)
    }

    fn fold_own(&mut self, record: &EventRecord, event: &GateEvent) -> Result<(), FoldRefused> {
        match event {
            GateEvent::TenantConfigured(event) => self.tenant_configured(record, event),
            GateEvent::ConfigRead(event) => self.config_read(record, event),
            GateEvent::LayoutReady(event) => self.layout_ready(record, event),
            GateEvent::LayoutActivated(event) => self.layout_activated(record, event),
            GateEvent::TriggerWaiting(event) => self.trigger_waiting(record, event),
            GateEvent::TriggerSettled(event) => self.trigger_settled(record, event),
            GateEvent::EnqueueRefused(event) => self.enqueue_refused(record, event),
            GateEvent::ItemEnqueued(event) => self.item_enqueued(record, event),
            GateEvent::BuildsetOpened(event) => self.buildset_opened(record, event),
            GateEvent::Prepared(event) => self.prepared(record, event),
            GateEvent::Frozen(event) => self.frozen(record, event),
            GateEvent::LeaseWanted(event) => self.lease_wanted(record, event),
            GateEvent::LeaseEndWanted(event) => self.lease_end_wanted(record, event),
            GateEvent::BuildStarted(event) => self.build_started(record, event),
            GateEvent::BuildPaused(event) => self.build_paused(record, event),
            GateEvent::BuildFinished(event) => self.build_finished(record, event),
            GateEvent::BuildSettled(event) => self.build_settled(record, event),
            GateEvent::NodesHeld(event) => self.nodes_held(record, event),
            GateEvent::ReturnedChanged(event) => self.returned_changed(record, event),
            GateEvent::ItemFailing(event) => self.item_failing(record, event),
            GateEvent::ItemReset(event) => self.item_reset(record, event),
            GateEvent::WaitChanged(event) => self.wait_changed(record, event),
            GateEvent::SubmitRequested(event) => self.submit_requested(record, event),
            GateEvent::Submitted(event) => self.submitted(record, event),
            GateEvent::ReportRequested(event) => self.report_requested(record, event),
            GateEvent::ReportDelivered(event) => self.report_delivered(record, event),
            GateEvent::ItemDequeued(event) => self.item_dequeued(record, event),
            // Short work under way, windows and facts are of the moment: the live tables have them, and a
            // rung of those shows them as they were. That each happened is in the moments.
            GateEvent::ConfigReadWanted(_)
            | GateEvent::LayoutWanted(_)
            | GateEvent::ChangesWanted(_)
            | GateEvent::ChangesObserved(_)
            | GateEvent::ChangesForgotten(_)
            | GateEvent::Unrouted(_)
            | GateEvent::BranchMoved(_)
            | GateEvent::PrepareRequested(_)
            | GateEvent::FreezeWanted(_)
            | GateEvent::OutcomeIgnored(_)
            | GateEvent::WindowChanged(_)
            | GateEvent::QueueReordered(_)
            | GateEvent::QueueAsked(_)
            | GateEvent::FailuresCounted(_)
            | GateEvent::BuildReady(_)
            | GateEvent::LeasePauseWanted(_)
            | GateEvent::LeaseResumeWanted(_)
            | GateEvent::BuildResumed(_)
            | GateEvent::BuildFailing(_)
            | GateEvent::SecretsGiven(_)
            | GateEvent::Accessed(_)
            | GateEvent::IntakeChanged(_)
            | GateEvent::ReportersStarted(_)
            | GateEvent::ItemMoved(_)
            | GateEvent::NodesetChanged(_)
            | GateEvent::AutoholdSet(_)
            | GateEvent::HoldEnded(_)
            | GateEvent::AutoholdEnded(_)
            | GateEvent::ArtifactsNoted(_)
            | GateEvent::TimersChanged(_)
            | GateEvent::WorkResent(_) => Ok(()),
        }
    }

    // ---- every event ----

    fn note(&mut self, record: &EventRecord) -> Result<(), FoldRefused> {
        let (item, build) = match &record.event {
            Event::Gate(event) => about(event),
            _ => (None, None),
        };
        // Whatever has the event's own number in its key is new: nobody need look.
        self.moments.put(
            record.sequence,
            Moment {
                at: record.recorded_at,
                kind: record.event.kind_version().kind,
                key: record.key.clone(),
                cause: record.cause,
                input: record.decision.as_ref().map(|decision| decision.input_sequence),
                item,
                build,
                actor: record.actor,
            },
        )?;
        Ok(self.sequence_at.put(record.recorded_at, record.sequence)?)
    }

    // ---- configuration ----

    fn tenant_configured(&mut self, record: &EventRecord, event: &TenantConfigured) -> Result<(), FoldRefused> {
        let loaded = event.tenant.clone();
        let key = loaded.tenant.clone();
        for project in self.unread_projects(&key, record.sequence)? {
            if !loaded.projects.iter().any(|other| other.project == project) {
                end(&mut self.unread, &(key.clone(), project), record.sequence)?;
            }
        }
        replace(&mut self.tenants, key, record.sequence, TenantEntry { loaded, configured_at: record.recorded_at })
    }

    fn config_read(&mut self, record: &EventRecord, event: &ConfigRead) -> Result<(), FoldRefused> {
        let found = &event.found;
        for project in &event.replaces {
            end(&mut self.unread, &(found.tenant.clone(), project.clone()), record.sequence)?;
        }
        for problem in &found.failed {
            let key = (found.tenant.clone(), problem.project.clone());
            // Reading is tried again and again: only a change is news.
            if as_of(&self.unread, &key, record.sequence)?.as_ref() != Some(problem) {
                replace(&mut self.unread, key, record.sequence, problem.clone())?;
            }
        }
        Ok(())
    }

    fn layout_ready(&mut self, record: &EventRecord, event: &LayoutReady) -> Result<(), FoldRefused> {
        next(&mut self.buildsets, event.buildset, record.sequence, |row| {
            if let LayoutOutcome::Made { layout, problems, .. } = &event.made.outcome {
                row.layout = Some(*layout);
                row.problems = Some(*problems);
            }
            row.config_problem.clone_from(&event.problem);
            Ok(())
        })
    }

    fn layout_activated(&mut self, record: &EventRecord, event: &LayoutActivated) -> Result<(), FoldRefused> {
        let made = &event.made;
        let before = held(&self.layouts, &made.tenant, record.sequence)?.map(|held| held.row).unwrap_or_default();
        let row = match &made.outcome {
            LayoutOutcome::Made { layout, problems, errors, loader, .. } => LayoutEntry {
                layout: Some(*layout),
                problems: Some(*problems),
                errors: *errors,
                loader: *loader,
                generation: event.generation,
                activated_at: record.recorded_at,
                failed: None,
            },
            LayoutOutcome::Failed { code, message } => {
                LayoutEntry { failed: Some((code.clone(), message.clone())), ..before }
            }
        };
        replace(&mut self.layouts, made.tenant.clone(), record.sequence, row)
    }

    // ---- triggers ----

    fn trigger_waiting(&mut self, record: &EventRecord, event: &TriggerWaiting) -> Result<(), FoldRefused> {
        let row = TriggerEntry {
            tenant: event.tenant.clone(),
            cause: event.cause.clone(),
            received_at: record.recorded_at,
            settled_at: None,
            verdicts: Vec::new(),
            actor: record.actor,
        };
        begin(&mut self.triggers, event.trigger, record.sequence, row)
    }

    fn trigger_settled(&mut self, record: &EventRecord, event: &TriggerSettled) -> Result<(), FoldRefused> {
        next(&mut self.triggers, event.trigger, record.sequence, |row| {
            if row.settled_at.is_some() {
                return Err(illegal(format!("trigger {} is settled already", event.trigger)));
            }
            row.settled_at = Some(record.recorded_at);
            row.verdicts.clone_from(&event.verdicts);
            Ok(())
        })?;
        end(&mut self.waits, &WaitKey(WaitSubject::Trigger(event.trigger)), record.sequence)?;
        Ok(())
    }

    fn enqueue_refused(&mut self, record: &EventRecord, event: &EnqueueRefused) -> Result<(), FoldRefused> {
        self.refused.insert(
            (event.tenant.clone(), record.sequence),
            RefusedEntry {
                at: record.recorded_at,
                pipeline: event.pipeline.clone(),
                subject: event.subject.clone(),
                code: event.code.clone(),
                detail: event.detail.clone(),
            },
        )
    }

    fn wait_changed(&mut self, record: &EventRecord, event: &WaitChanged) -> Result<(), FoldRefused> {
        let key = WaitKey(event.subject.clone());
        match event.code {
            Some(code) => {
                let row = WaitEntry {
                    code,
                    detail: event.detail.clone(),
                    since: event.since,
                    unblocks: event.unblocks.clone(),
                };
                replace(&mut self.waits, key, record.sequence, row)
            }
            None => match end(&mut self.waits, &key, record.sequence)? {
                true => Ok(()),
                false => Err(FoldRefused::missing::<super::rows::WaitHistory>(&(key, record.sequence))),
            },
        }
    }

    // ---- items and buildsets ----

    fn item_enqueued(&mut self, record: &EventRecord, event: &ItemEnqueued) -> Result<(), FoldRefused> {
        let sequence = record.sequence;
        if look(&self.items, &event.item, sequence, |_| ())?.is_some() {
            return Err(FoldRefused::exists::<ItemHistory>(&(event.item, sequence)));
        }
        self.items_of_tenant.put((event.tenant.clone(), sequence), event.item)?;
        if let Some(trigger) = event.trigger {
            self.items_of_trigger.put((trigger, sequence), event.item)?;
        }
        let row = ItemEntry {
            tenant: event.tenant.clone(),
            pipeline: event.pipeline.clone(),
            queue: event.queue.clone(),
            subjects: event.subjects.clone(),
            live: event.live,
            ahead: event.ahead,
            trigger: event.trigger,
            reason: event.reason.clone(),
            enqueued: sequence,
            enqueued_at: record.recorded_at,
            buildset: None,
            failing: Vec::new(),
            resets: Vec::new(),
            submits: Vec::new(),
            end: None,
            parameters: event.parameters.clone(),
        };
        begin(&mut self.items, event.item, sequence, row)
    }

    /// Changes an item that is in its pipeline.
    fn change_item<A>(
        &mut self,
        record: &EventRecord,
        item: ItemId,
        change: impl FnOnce(&mut ItemEntry) -> Result<A, FoldRefused>,
    ) -> Result<A, FoldRefused> {
        next(&mut self.items, item, record.sequence, |row| {
            if row.end.is_some() {
                return Err(illegal(format!("item {item} has left its pipeline")));
            }
            change(row)
        })
    }

    fn buildset_opened(&mut self, record: &EventRecord, event: &BuildsetOpened) -> Result<(), FoldRefused> {
        let sequence = record.sequence;
        let item = self.change_item(record, event.item, |row| {
            if row.buildset.is_some() {
                return Err(illegal(format!("item {} has a buildset already", event.item)));
            }
            row.buildset = Some(event.buildset);
            Ok(row.clone())
        })?;
        self.buildsets_of_item.put((event.item, sequence), event.buildset)?;
        // What is only looked through for what needs it was not built: no list has it.
        let listed = if item.live { item.subjects.as_slice() } else { &[] };
        if item.live {
            self.buildsets_of_tenant.put((item.tenant.clone(), sequence), event.buildset)?;
            self.buildsets_of_pipeline.put((item.tenant.clone(), item.pipeline.clone(), sequence), event.buildset)?;
        }
        for subject in listed {
            // A cycle may hold several changes of one project: the list names the buildset once.
            let key = (item.tenant.clone(), subject.project.clone(), sequence);
            self.buildsets_of_project.put(key, event.buildset)?;
            let key = (item.tenant.clone(), subject_name(subject), sequence);
            self.buildsets_of_change.put(key, event.buildset)?;
        }
        let row = BuildsetEntry {
            item: event.item,
            tenant: item.tenant,
            pipeline: item.pipeline,
            opened: sequence,
            opened_at: record.recorded_at,
            ahead: event.ahead.clone(),
            prepared: None,
            layout: None,
            problems: None,
            config_problem: None,
            frozen: None,
            builds: Vec::new(),
            first_start: None,
            last_end: None,
            message: None,
            result: None,
            finished_at: None,
            reset: None,
        };
        begin(&mut self.buildsets, event.buildset, sequence, row)
    }

    fn prepared(&mut self, record: &EventRecord, event: &Prepared) -> Result<(), FoldRefused> {
        let prepared = match &event.done.outcome {
            PrepareOutcome::Merged(state) => PreparedEntry::Merged { branches: state.branches.clone() },
            PrepareOutcome::Conflict { subject, paths, message } => {
                PreparedEntry::Conflict { subject: subject.clone(), paths: paths.clone(), message: message.clone() }
            }
            PrepareOutcome::Failed { code, message, .. } => {
                PreparedEntry::Failed { code: code.clone(), message: message.clone() }
            }
        };
        next(&mut self.buildsets, event.buildset, record.sequence, |row| {
            row.prepared = Some(prepared);
            Ok(())
        })
    }

    fn frozen(&mut self, record: &EventRecord, event: &Frozen) -> Result<(), FoldRefused> {
        let sequence = record.sequence;
        let mut frozen_jobs = &[][..];
        let frozen = match &event.done.outcome {
            FreezeOutcome::Frozen { graph, trace, jobs, repo_state } => {
                frozen_jobs = jobs.as_slice();
                FrozenEntry::Frozen { graph: *graph, trace: *trace, repo_state: repo_state.clone() }
            }
            FreezeOutcome::NoJobs { trace, in_pipeline } => {
                FrozenEntry::NoJobs { trace: *trace, in_pipeline: *in_pipeline }
            }
            FreezeOutcome::Refused { trace, message } => {
                FrozenEntry::Refused { trace: *trace, message: message.clone() }
            }
            FreezeOutcome::Failed { code, message, .. } => {
                FrozenEntry::Failed { code: code.clone(), message: message.clone() }
            }
        };
        if frozen_jobs.len() != event.builds.len() {
            return Err(illegal(format!("{} jobs have {} builds", frozen_jobs.len(), event.builds.len())));
        }
        let buildset = next(&mut self.buildsets, event.buildset, sequence, |row| {
            row.frozen = Some(frozen);
            row.builds.clone_from(&event.builds);
            Ok(row.clone())
        })?;
        let item = held(&self.items, &buildset.item, sequence)?
            .ok_or_else(|| FoldRefused::missing::<ItemHistory>(&(buildset.item, sequence)))?
            .row;
        for (ordinal, (job, build)) in (0_u32..).zip(frozen_jobs.iter().zip(&event.builds)) {
            let tenant = || buildset.tenant.clone();
            self.builds_of_tenant.put((tenant(), sequence, ordinal), *build)?;
            self.builds_of_job.put((tenant(), job.name.clone(), sequence, ordinal), *build)?;
            for subject in &item.subjects {
                self.builds_of_project.put((tenant(), subject.project.clone(), sequence, ordinal), *build)?;
                self.builds_of_change.put((tenant(), subject_name(subject), sequence, ordinal), *build)?;
            }
            let row = BuildEntry {
                item: buildset.item,
                buildset: event.buildset,
                tenant: tenant(),
                pipeline: buildset.pipeline.clone(),
                job: job.name.clone(),
                spec: job.spec,
                voting: job.voting,
                attempts_allowed: job.attempts,
                dependencies: job.dependencies.clone(),
                semaphores: job.semaphores.clone(),
                nodes: job.nodes.clone(),
                frozen: sequence,
                ordinal,
                frozen_at: record.recorded_at,
                attempts: Vec::new(),
                result: None,
                settled: None,
                detail: None,
                finished_at: None,
                held: false,
                returned_gone: None,
            };
            begin(&mut self.builds, *build, sequence, row)?;
        }
        Ok(())
    }

    fn item_failing(&mut self, record: &EventRecord, event: &ItemFailing) -> Result<(), FoldRefused> {
        self.change_item(record, event.item, |row| {
            row.failing.clone_from(&event.reasons);
            Ok(())
        })
    }

    fn item_reset(&mut self, record: &EventRecord, event: &ItemReset) -> Result<(), FoldRefused> {
        let given_up = self.change_item(record, event.item, |row| {
            let given_up = row.buildset.take();
            row.failing.clear();
            row.ahead = event.ahead;
            row.resets.push(ResetEntry {
                at: record.recorded_at,
                sequence: record.sequence,
                buildset: given_up,
                ahead: event.ahead,
                code: event.code.clone(),
                detail: event.detail.clone(),
            });
            Ok(given_up)
        })?;
        match given_up {
            Some(buildset) => self.end_buildset(record, buildset, |row| {
                row.reset = Some((event.code.clone(), event.detail.clone()));
            }),
            None => Ok(()),
        }
    }

    fn item_dequeued(&mut self, record: &EventRecord, event: &ItemDequeued) -> Result<(), FoldRefused> {
        let buildset = self.change_item(record, event.item, |row| {
            row.end = Some(EndEntry {
                at: record.recorded_at,
                result: event.result,
                code: event.code.clone(),
                detail: event.detail.clone(),
                merged: event.merged,
            });
            Ok(row.buildset)
        })?;
        end(&mut self.waits, &WaitKey(WaitSubject::Item(event.item)), record.sequence)?;
        match buildset {
            Some(buildset) => self.end_buildset(record, buildset, |row| row.result = Some(event.result)),
            None => Ok(()),
        }
    }

    /// A buildset is over; builds of it that have no result never get one.
    fn end_buildset(
        &mut self,
        record: &EventRecord,
        buildset: BuildsetId,
        change: impl FnOnce(&mut BuildsetEntry),
    ) -> Result<(), FoldRefused> {
        let builds = next(&mut self.buildsets, buildset, record.sequence, |row| {
            row.finished_at = Some(record.recorded_at);
            change(row);
            Ok(row.builds.clone())
        })?;
        for build in builds {
            end(&mut self.waits, &WaitKey(WaitSubject::Build(build)), record.sequence)?;
            let unfinished = look(&self.builds, &build, record.sequence, |held| held.row.result.is_none())?;
            if unfinished == Some(true) {
                next(&mut self.builds, build, record.sequence, |row| {
                    row.finished_at = Some(record.recorded_at);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    // ---- builds ----

    fn lease_wanted(&mut self, record: &EventRecord, event: &LeaseWanted) -> Result<(), FoldRefused> {
        next(&mut self.builds, event.build, record.sequence, |row| {
            open(row, "asks for a lease")?;
            if row.attempt().is_some_and(|newest| newest.attempt >= event.attempt) {
                return Err(illegal(format!("build {} has attempt {} already", event.build, event.attempt)));
            }
            row.attempts.push(AttemptEntry {
                attempt: event.attempt,
                requested_at: record.recorded_at,
                lease: None,
                worker: None,
                started_at: None,
                finished_at: None,
                result: None,
                detail: None,
                data: Value::Null,
                secret_data: None,
                artifacts: Vec::new(),
                kept: Default::default(),
                log_url: None,
                let_go: None,
            });
            Ok(())
        })
    }

    fn lease_end_wanted(&mut self, record: &EventRecord, event: &LeaseEndWanted) -> Result<(), FoldRefused> {
        next(&mut self.builds, event.build, record.sequence, |row| {
            let attempt = attempt(row, event.attempt)?;
            attempt.let_go = Some((event.reason.clone(), record.recorded_at));
            Ok(())
        })
    }

    fn build_started(&mut self, record: &EventRecord, event: &BuildStarted) -> Result<(), FoldRefused> {
        let started = &event.started;
        let buildset = next(&mut self.builds, started.build, record.sequence, |row| {
            open(row, "begins")?;
            let attempt = attempt(row, started.attempt)?;
            attempt.lease = Some(started.lease);
            attempt.worker = Some(started.worker.clone());
            attempt.started_at = Some(started.started_at);
            Ok(row.buildset)
        })?;
        self.buildset_span(record, buildset, Some(started.started_at), None)
    }

    /// What a job returned until it waits for those that need it is theirs at once.
    fn build_paused(&mut self, record: &EventRecord, event: &BuildPaused) -> Result<(), FoldRefused> {
        let paused = &event.paused;
        next(&mut self.builds, paused.build, record.sequence, |row| {
            open(row, "pauses")?;
            let attempt = attempt(row, paused.attempt)?;
            attempt.data = paused.data.clone();
            attempt.secret_data.clone_from(&paused.secret_data);
            attempt.artifacts.clone_from(&paused.artifacts);
            attempt.kept = paused.kept;
            Ok(())
        })
    }

    fn build_finished(&mut self, record: &EventRecord, event: &BuildFinished) -> Result<(), FoldRefused> {
        let finished = &event.finished;
        let (buildset, tenant, job) = next(&mut self.builds, finished.build, record.sequence, |row| {
            open(row, "ends")?;
            let attempt = attempt(row, finished.attempt)?;
            attempt.worker = Some(finished.worker.clone());
            attempt.started_at = Some(finished.started_at);
            attempt.finished_at = Some(finished.finished_at);
            attempt.result = Some(finished.result);
            attempt.detail.clone_from(&finished.detail);
            attempt.data = finished.data.clone();
            attempt.secret_data.clone_from(&finished.secret_data);
            attempt.artifacts.clone_from(&finished.artifacts);
            attempt.kept = finished.kept;
            attempt.log_url.clone_from(&finished.log_url);
            if event.result.is_some() {
                row.result = event.result;
                row.detail.clone_from(&finished.detail);
                row.finished_at = Some(record.recorded_at);
            }
            Ok((row.buildset, row.tenant.clone(), row.job.clone()))
        })?;
        if event.result.is_some() {
            end(&mut self.waits, &WaitKey(WaitSubject::Build(finished.build)), record.sequence)?;
        }
        if event.result == Some(BuildResult::Success) {
            let took = finished.finished_at.millis_since(finished.started_at);
            let key = (tenant, job, record.sequence);
            self.durations_of_job.put(key, u64::try_from(took).unwrap_or(0))?;
        }
        self.buildset_span(record, buildset, Some(finished.started_at), Some(finished.finished_at))
    }

    fn build_settled(&mut self, record: &EventRecord, event: &BuildSettled) -> Result<(), FoldRefused> {
        next(&mut self.builds, event.build, record.sequence, |row| {
            open(row, "is settled")?;
            row.result = Some(event.result);
            row.settled = Some(event.code.clone());
            row.detail = (!event.detail.is_empty()).then(|| event.detail.clone());
            row.finished_at = Some(record.recorded_at);
            Ok(())
        })?;
        end(&mut self.waits, &WaitKey(WaitSubject::Build(event.build)), record.sequence)?;
        Ok(())
    }

    fn nodes_held(&mut self, record: &EventRecord, event: &NodesHeld) -> Result<(), FoldRefused> {
        next(&mut self.builds, event.build, record.sequence, |row| {
            row.held = true;
            Ok(())
        })
    }

    fn buildset_span(
        &mut self,
        record: &EventRecord,
        buildset: BuildsetId,
        start: Option<Timestamp>,
        stop: Option<Timestamp>,
    ) -> Result<(), FoldRefused> {
        let span = |held: &super::held::Held<BuildsetEntry>| (held.row.first_start, held.row.last_end);
        let (mut first, mut last) = look(&self.buildsets, &buildset, record.sequence, span)?.unwrap_or_default();
        let spanned = (first, last);
        first = first.into_iter().chain(start).min();
        last = last.into_iter().chain(stop).max();
        if spanned == (first, last) {
            return Ok(());
        }
        next(&mut self.buildsets, buildset, record.sequence, |row| {
            row.first_start = first;
            row.last_end = last;
            Ok(())
        })
    }

    // ---- merging for real, reporting ----

    fn submit_requested(&mut self, record: &EventRecord, event: &SubmitRequested) -> Result<(), FoldRefused> {
        self.change_item(record, event.item, |row| {
            row.submits.push(SubmitEntry {
                work: event.work,
                requested_at: record.recorded_at,
                targets: event.targets.clone(),
                done_at: None,
                outcome: None,
            });
            Ok(())
        })
    }

    fn submitted(&mut self, record: &EventRecord, event: &Submitted) -> Result<(), FoldRefused> {
        self.change_item(record, event.item, |row| {
            let submit = row
                .submits
                .iter_mut()
                .find(|submit| submit.work == event.done.work && submit.outcome.is_none())
                .ok_or_else(|| illegal(format!("item {} has no merge {} under way", event.item, event.done.work)))?;
            submit.done_at = Some(record.recorded_at);
            submit.outcome = Some(event.done.outcome.clone());
            Ok(())
        })
    }

    fn report_requested(&mut self, record: &EventRecord, event: &ReportRequested) -> Result<(), FoldRefused> {
        let row = ReportEntry {
            tenant: event.tenant.clone(),
            item: event.item,
            pipeline: event.pipeline.clone(),
            action: event.action,
            connections: event.reporters.iter().map(|(connection, _)| connection.clone()).collect(),
            subjects: event.subjects.clone(),
            message: event.message.clone(),
            requested_at: record.recorded_at,
            answered_at: None,
            failed: None,
        };
        begin(&mut self.reports, event.work, record.sequence, row)?;
        let Some(item) = event.item else { return Ok(()) };
        self.reports_of_item.put((item, record.sequence), event.work)?;
        // Zuul: a buildset's message is what was reported of it at its end.
        if matches!(event.action, ReportAction::Enqueue | ReportAction::Start | ReportAction::Dequeue) {
            return Ok(());
        }
        let buildset = look(&self.items, &item, record.sequence, |held| held.row.buildset)?.flatten();
        match buildset {
            Some(buildset) => next(&mut self.buildsets, buildset, record.sequence, |row| {
                row.message = Some(event.message.clone());
                Ok(())
            }),
            None => Ok(()),
        }
    }

    fn report_delivered(&mut self, record: &EventRecord, event: &ReportDelivered) -> Result<(), FoldRefused> {
        next(&mut self.reports, event.done.work, record.sequence, |row| {
            row.answered_at = Some(record.recorded_at);
            row.failed = event.done.failed.clone().map(|(code, message, _)| (code, message));
            Ok(())
        })
    }
}

/// A build without a result.
fn open(row: &BuildEntry, does: &str) -> Result<(), FoldRefused> {
    match row.result {
        Some(result) => Err(illegal(format!("a build of {} {does} but is {} already", row.job, result.word()))),
        None => Ok(()),
    }
}

fn attempt(row: &mut BuildEntry, number: u32) -> Result<&mut AttemptEntry, FoldRefused> {
    let job = row.job.clone();
    row.attempts
        .iter_mut()
        .find(|attempt| attempt.attempt == number)
        .ok_or_else(|| illegal(format!("a build of {job} has no attempt {number}")))
}

/// The item and build an event is about.
fn about(event: &GateEvent) -> (Option<ItemId>, Option<gatelog_record::BuildId>) {
    match event {
        GateEvent::LayoutWanted(event) => (event.item, None),
        GateEvent::LayoutReady(event) => (Some(event.item), None),
        GateEvent::BranchMoved(event) => (event.by, None),
        GateEvent::ItemEnqueued(event) => (Some(event.item), None),
        GateEvent::BuildsetOpened(event) => (Some(event.item), None),
        GateEvent::PrepareRequested(event) => (Some(event.item), None),
        GateEvent::Prepared(event) => (Some(event.item), None),
        GateEvent::FreezeWanted(event) => (Some(event.item), None),
        GateEvent::Frozen(event) => (Some(event.item), None),
        GateEvent::LeaseWanted(event) => (Some(event.item), Some(event.build)),
        GateEvent::LeaseEndWanted(event) => (None, Some(event.build)),
        GateEvent::LeasePauseWanted(event) => (None, Some(event.build)),
        GateEvent::LeaseResumeWanted(event) => (None, Some(event.build)),
        GateEvent::BuildStarted(event) => (Some(event.item), Some(event.started.build)),
        GateEvent::BuildFinished(event) => (Some(event.item), Some(event.finished.build)),
        GateEvent::BuildReady(event) => (Some(event.item), Some(event.started.build)),
        GateEvent::BuildPaused(event) => (Some(event.item), Some(event.paused.build)),
        GateEvent::BuildResumed(event) => (Some(event.item), Some(event.build)),
        GateEvent::BuildFailing(event) => (Some(event.item), Some(event.failing.build)),
        GateEvent::SecretsGiven(event) => (Some(event.item), Some(event.opened.build)),
        GateEvent::ArtifactsNoted(event) => (Some(event.item), None),
        GateEvent::BuildSettled(event) => (Some(event.item), Some(event.build)),
        GateEvent::ItemFailing(event) => (Some(event.item), None),
        GateEvent::ItemReset(event) => (Some(event.item), None),
        GateEvent::ReportersStarted(event) => (Some(event.item), None),
        GateEvent::ItemMoved(event) => (Some(event.item), None),
        GateEvent::NodesetChanged(event) => (Some(event.item), Some(event.build)),
        GateEvent::NodesHeld(event) => (Some(event.item), Some(event.build)),
        GateEvent::HoldEnded(event) => (None, Some(event.build)),
        GateEvent::ReturnedChanged(event) => (None, Some(event.build)),
        GateEvent::WaitChanged(event) => match &event.subject {
            WaitSubject::Item(item) => (Some(*item), None),
            WaitSubject::Build(build) => (None, Some(*build)),
            WaitSubject::Tenant(_) | WaitSubject::Trigger(_) => (None, None),
        },
        GateEvent::SubmitRequested(event) => (Some(event.item), None),
        GateEvent::Submitted(event) => (Some(event.item), None),
        GateEvent::ReportRequested(event) => (event.item, None),
        GateEvent::ReportDelivered(event) => (event.item, None),
        GateEvent::ItemDequeued(event) => (Some(event.item), None),
        GateEvent::TenantConfigured(_)
        | GateEvent::ConfigReadWanted(_)
        | GateEvent::ConfigRead(_)
        | GateEvent::LayoutActivated(_)
        | GateEvent::ChangesWanted(_)
        | GateEvent::ChangesObserved(_)
        | GateEvent::ChangesForgotten(_)
        | GateEvent::TriggerWaiting(_)
        | GateEvent::TriggerSettled(_)
        | GateEvent::Unrouted(_)
        | GateEvent::EnqueueRefused(_)
        | GateEvent::OutcomeIgnored(_)
        | GateEvent::IntakeChanged(_)
        | GateEvent::Accessed(_)
        | GateEvent::AutoholdSet(_)
        | GateEvent::AutoholdEnded(_)
        | GateEvent::WindowChanged(_)
        | GateEvent::QueueReordered(_)
        | GateEvent::QueueAsked(_)
        | GateEvent::FailuresCounted(_)
        | GateEvent::TimersChanged(_)
        | GateEvent::WorkResent(_) => (None, None),
    }
}
