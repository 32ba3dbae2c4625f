//! Triggers: they wait for facts and for their turn, then each pipeline says what it makes of them.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{TriggerRow, subject_name};
use gatelog_record::ItemId;
use gatelog_record::draft::gate::{
    ChangeKey, DequeueAsked, EnqueueAsked, FactsPurpose, IntakeAsked, IntakeChanged, PipelineVerdict, Subject,
    TriggerCause, TriggerIntake, TriggerReceived, TriggerSettled, TriggerWaiting,
};
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::event::GateEvent;
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::objects::pipeline::Manager;

use crate::decision::Decision;
use crate::filters;
use crate::layout_view::LayoutView;
use crate::managers::Entry;
use crate::own_triggers;

/// How many triggers of a tenant may wait at once.
const MAX_WAITING: usize = 10_000;

/// Triggers of one lane keep their order: connection, project and branch.
pub(crate) type Lane<'c> = (&'c str, &'c str, Option<&'c str>);

pub(crate) fn verdict(pipeline: &str, code: &str, detail: impl Into<String>) -> PipelineVerdict {
    PipelineVerdict { pipeline: pipeline.to_owned(), code: code.to_owned(), detail: detail.into() }
}

/// Whether what somebody names is a ref and no change.
fn is_ref(key: &ChangeKey) -> bool {
    key.change.starts_with("refs/")
}

/// The lane of a trigger.
pub(crate) fn lane(cause: &TriggerCause) -> Lane<'_> {
    match cause {
        TriggerCause::Forge(received) => {
            let event = &received.event;
            (&event.connection, &event.project, event.branch.as_deref())
        }
        // Somebody who asks waits for nobody.
        TriggerCause::Asked(asked) => (&asked.connection, &asked.change.project, None),
        // Nor does the calendar.
        TriggerCause::Timer(ticked) => ("", &ticked.timer.project, None),
    }
}

impl Decision<'_> {
    /// The triggers of a tenant that wait, in the order of their inputs.
    pub(crate) fn waiting(&self, tenant: &str) -> impl Iterator<Item = (u64, &TriggerRow)> {
        let from = (tenant.to_owned(), 0);
        let to = (tenant.to_owned(), u64::MAX);
        let rows = self.gate().triggers.rows(Bound::Included(&from), Bound::Included(&to));
        rows.map(|((_, trigger), row)| (*trigger, row))
    }

    /// An outside event came.
    pub(crate) fn trigger_received(&mut self, received: &TriggerReceived) -> Result<(), Refusal> {
        let Some(row) = self.tenant(&received.tenant) else { return self.nothing("no-such-tenant") };
        let (event, discarding) = (&received.event, row.triggers == TriggerIntake::Discarding);
        if row.project(&event.project).is_none() {
            return self.nothing("project-not-in-tenant");
        }
        // Where a branch is remains known, whatever is made of it.
        if event.change.is_none() {
            self.branch_updated(&received.tenant, event)?;
        }
        if discarding {
            return self.nothing("tenant-discards");
        }
        self.wait(&received.tenant, TriggerCause::Forge(received.clone()))
    }

    /// Somebody asks that outside events wait, or are dropped, or are dealt with again.
    pub(crate) fn intake_asked(&mut self, asked: &IntakeAsked) -> Result<(), Refusal> {
        match self.tenant(&asked.tenant) {
            None => self.nothing("no-such-tenant"),
            Some(row) if row.triggers == asked.triggers && row.triggers_reason == asked.reason => {
                self.nothing("already-so")
            }
            Some(_) => self.emit(GateEvent::IntakeChanged(IntakeChanged { asked: asked.clone() })),
        }
    }

    /// Whether a trigger may not be dealt with for the time being. What somebody asks for is not held up.
    pub(crate) fn is_paused(&self, tenant: &str, cause: &TriggerCause) -> bool {
        let open = self.tenant(tenant).is_none_or(|row| row.triggers == TriggerIntake::Open);
        !open && !matches!(cause, TriggerCause::Asked(_))
    }

    /// Somebody asks to enqueue a change.
    pub(crate) fn enqueue_asked(&mut self, asked: &EnqueueAsked) -> Result<(), Refusal> {
        if self.tenant(&asked.tenant).is_none() {
            return self.nothing("no-such-tenant");
        }
        self.wait(&asked.tenant, TriggerCause::Asked(asked.clone()))
    }

    pub(crate) fn wait(&mut self, tenant: &str, cause: TriggerCause) -> Result<(), Refusal> {
        if self.waiting(tenant).count() >= MAX_WAITING {
            return self.nothing("too-many-triggers-wait");
        }
        let trigger = self.deciding.input_sequence;
        let change = match &cause {
            TriggerCause::Forge(received) => received.event.change.clone().map(|change| {
                let event = &received.event;
                (event.connection.clone(), ChangeKey { project: event.project.clone(), change })
            }),
            // A ref is where it is; nobody need be asked.
            TriggerCause::Asked(asked) if is_ref(&asked.change) => None,
            TriggerCause::Timer(_) => None,
            TriggerCause::Asked(asked) => Some((asked.connection.clone(), asked.change.clone())),
        };
        self.emit(GateEvent::TriggerWaiting(TriggerWaiting {
            trigger,
            tenant: tenant.to_owned(),
            cause,
            needs_facts: change.is_some(),
        }))?;
        let Some((connection, key)) = change else { return Ok(()) };
        // Who needs a change matters to pipelines that pull it in behind, or are told of it.
        let minds = |one: &Pipeline| one.manager == Manager::Dependent || own_triggers::minds_parents(one);
        let pulls = |layout: &LayoutView| layout.pipelines().iter().any(|one| minds(one));
        let with_needed_by = self.layout(tenant)?.is_none_or(|layout| pulls(&layout));
        self.want_changes(tenant, &connection, key, with_needed_by, FactsPurpose::Trigger { trigger })
    }

    /// Settles every trigger that is ready and whose turn it is.
    pub(crate) fn settle_triggers(&mut self, tenant: &str) -> Result<(), Refusal> {
        // Nothing is ready that was not before, unless something was said of triggers.
        if !(self.touched.all || self.touched.triggers || self.seen.all || self.seen.triggers) {
            return Ok(());
        }
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        if self.awaits_config(tenant) {
            return Ok(());
        }
        let mut blocked: BTreeSet<Lane<'_>> = BTreeSet::new();
        let ready: Vec<(u64, TriggerRow)> = self
            .waiting(tenant)
            .filter(|(_, row)| {
                let lane = lane(&row.cause);
                let ready = (!row.needs_facts || row.answered) && !self.is_paused(tenant, &row.cause);
                let free = ready && !blocked.contains(&lane);
                if !free && lane.2.is_some() {
                    blocked.insert(lane);
                }
                free
            })
            .map(|(trigger, row)| (trigger, row.clone()))
            .collect();
        for (trigger, row) in ready {
            let verdicts = self.settle_trigger(tenant, &layout, trigger, &row)?;
            self.emit(GateEvent::TriggerSettled(TriggerSettled { trigger, tenant: tenant.to_owned(), verdicts }))?;
        }
        Ok(())
    }

    fn settle_trigger(
        &mut self,
        tenant: &str,
        layout: &Arc<LayoutView>,
        trigger: u64,
        row: &TriggerRow,
    ) -> Result<Vec<PipelineVerdict>, Refusal> {
        if let Some((code, message)) = &row.failed {
            return Ok(vec![verdict("", "facts-unavailable", format!("{message} ({code})"))]);
        }
        match &row.cause {
            TriggerCause::Asked(asked) => self.settle_asked(tenant, layout, trigger, asked),
            TriggerCause::Timer(ticked) => Ok(vec![self.settle_ticked(layout, trigger, ticked)?]),
            TriggerCause::Forge(received) => {
                let event = &received.event;
                let subject = match self.subject_of(tenant, event)? {
                    Ok(subject) => subject,
                    Err(verdict) => return Ok(vec![verdict]),
                };
                let mut verdicts = Vec::new();
                let facts = subject.change_key().and_then(|key| self.change(tenant, &key)).map(|row| row.facts.clone());
                let now = self.now();
                let known = facts.as_ref().map(|facts| filters::Known { facts, current: true, now });
                for pipeline in layout.pipelines() {
                    if pipeline.filters(&event.connection).is_empty() {
                        continue;
                    }
                    verdicts.push(match filters::takes(pipeline, event, known) {
                        Err(why) => verdict(&pipeline.name, "no-match", why),
                        Ok(()) => self.enter(&Entry {
                            tenant,
                            layout,
                            pipeline,
                            subject: &subject,
                            trigger: Some(trigger),
                            reason: "trigger",
                            asked: false,
                            parameters: None,
                        })?,
                    });
                    self.leave_before_the_next(tenant, layout, pipeline, &subject)?;
                }
                Ok(verdicts)
            }
        }
    }

    /// Lets what a pipeline holds of a change go that cannot stay: who follows the change reads of that before what the
    /// next pipeline makes of it.
    fn leave_before_the_next(
        &mut self,
        tenant: &str,
        layout: &Arc<LayoutView>,
        pipeline: &Pipeline,
        subject: &Subject,
    ) -> Result<(), Refusal> {
        for item in self.items_in(tenant, &pipeline.name, subject) {
            let live = self.item(item).is_some_and(|row| row.live);
            if live && !self.is_merging(item) && !self.is_reporting(item) {
                self.leave_for_its_needs(tenant, layout, pipeline, item)?;
            }
        }
        Ok(())
    }

    /// What an event is about, or why that concerns no pipeline.
    fn subject_of(&mut self, tenant: &str, event: &ForgeEvent) -> Result<Result<Subject, PipelineVerdict>, Refusal> {
        let Some(change) = &event.change else {
            if event.commit.is_none() {
                return Ok(Err(verdict("", "ref-deleted", format!("{} is gone", event.git_ref))));
            }
            return Ok(Ok(Subject {
                connection: event.connection.clone(),
                project: event.project.clone(),
                branch: event.branch.clone(),
                git_ref: event.git_ref.clone(),
                change: None,
                patchset: None,
                commit: event.commit.clone(),
                old_commit: event.old_commit.clone(),
                url: String::new(),
            }));
        };
        let key = ChangeKey { project: event.project.clone(), change: change.clone() };
        let Some(row) = self.change(tenant, &key) else {
            return Ok(Err(verdict("", "change-missing", format!("{change} does not exist any more"))));
        };
        let subject = row.facts.subject.clone();
        if event.patchset.is_some() && event.patchset != subject.patchset {
            let current = subject.patchset.unwrap_or_default();
            return Ok(Err(verdict("", "old-patchset", format!("{change} has patchset {current} by now"))));
        }
        Ok(Ok(subject))
    }

    fn settle_asked(
        &mut self,
        tenant: &str,
        layout: &LayoutView,
        trigger: u64,
        asked: &EnqueueAsked,
    ) -> Result<Vec<PipelineVerdict>, Refusal> {
        let Some(pipeline) = layout.pipeline(&asked.pipeline) else {
            return Ok(vec![verdict(&asked.pipeline, "no-such-pipeline", "the tenant has no such pipeline")]);
        };
        let known = match is_ref(&asked.change) {
            true => self.ref_subject(tenant, asked),
            false => self.change(tenant, &asked.change).map(|row| row.facts.subject.clone()),
        };
        let Some(subject) = known else {
            let mut detail = format!("{} of {} does not exist", asked.change.change, asked.change.project);
            if is_ref(&asked.change) && !asked.change.change.starts_with("refs/heads/") {
                detail = format!("where {} is must be said, too: name its commit", asked.change.change);
            }
            return Ok(vec![verdict(&asked.pipeline, "change-missing", detail)]);
        };
        let given = layout.parameters(asked);
        let entry = Entry {
            tenant,
            layout,
            pipeline,
            subject: &subject,
            trigger: Some(trigger),
            reason: "admin",
            asked: true,
            parameters: given.as_ref().ok(),
        };
        Ok(vec![match &given {
            Ok(_) => self.enter(&entry)?,
            Err(why) => self.turn_away(&entry, "parameters", why, false)?,
        }])
    }

    /// A ref that somebody names: where they say it is; a branch otherwise where it is now.
    fn ref_subject(&self, tenant: &str, asked: &EnqueueAsked) -> Option<Subject> {
        let branch = asked.change.change.strip_prefix("refs/heads/").map(str::to_owned);
        let at = |branch: &String| (tenant.to_owned(), asked.change.project.clone(), branch.clone());
        let known = branch.as_ref().and_then(|branch| self.gate().branches.row(&at(branch)));
        let commit = asked.new_commit.as_ref().or(known)?;
        Some(Subject {
            connection: asked.connection.clone(),
            project: asked.change.project.clone(),
            branch,
            git_ref: asked.change.change.clone(),
            change: None,
            patchset: None,
            commit: Some(commit.clone()),
            old_commit: asked.old_commit.clone(),
            url: String::new(),
        })
    }

    /// Somebody asks to dequeue a change. Zuul: the first live item that holds it, or anything of its ref, goes.
    pub(crate) fn dequeue_asked(&mut self, asked: &DequeueAsked) -> Result<(), Refusal> {
        let key = &asked.change;
        let known = self.change(&asked.tenant, key).map(|row| row.facts.subject.git_ref.clone());
        let git_ref = known.unwrap_or_else(|| key.change.clone());
        let meant =
            |one: &Subject| one.project == key.project && (one.git_ref == git_ref || subject_name(one) == key.change);
        let found = self.first_live(&asked.tenant, &asked.pipeline, meant);
        let Some(item) = found else { return self.nothing("not-in-pipeline") };
        if self.is_merging(item) {
            return self.nothing("being-merged");
        }
        let detail = if asked.reason.is_empty() { "Dequeued on request." } else { asked.reason.as_str() };
        self.leave_silently(item, "admin", detail)
    }

    /// The items that hold a change, or, by its name, a ref.
    pub(crate) fn items_of(&self, tenant: &str, change: &ChangeKey) -> Vec<ItemId> {
        let key = |id: [u8; 16]| (tenant.to_owned(), change.project.clone(), change.change.clone(), ItemId(id));
        let (from, to) = (key([0; 16]), key([255; 16]));
        let rows = self.gate().items_by_change.rows(Bound::Included(&from), Bound::Included(&to));
        let mut items: Vec<(u64, ItemId)> =
            rows.filter_map(|((_, _, _, item), ())| Some((self.item(*item)?.enqueued, *item))).collect();
        items.sort_unstable();
        items.into_iter().map(|(_, item)| item).collect()
    }

    /// The items of a pipeline that hold a subject, whatever its patchset.
    pub(crate) fn items_in(&self, tenant: &str, pipeline: &str, subject: &Subject) -> Vec<ItemId> {
        let key = ChangeKey { project: subject.project.clone(), change: subject_name(subject) };
        let mut items = self.items_of(tenant, &key);
        items.retain(|item| self.item(*item).is_some_and(|row| row.pipeline == pipeline));
        items
    }
}
