//! One decision: an input is taken in, then its tenant is brought to rest.

use std::sync::Arc;

use gatelog_deciding::work::DecidesWork;
use gatelog_deciding::{Context, Deciding, Refusal};
use gatelog_gate_state::Gate;
use gatelog_gate_state::live::{BuildRow, BuildsetRow, GateLive, GateTables, ItemRow, PendingRow, TenantRow};
use gatelog_record::draft::gate::{AccessTold, Accessed, NotRouted, OutcomeIgnored, Subject, Unrouted};
use gatelog_record::draft::partition::{InputRefused, InputTaken, OutboxCleared, OutboxDelivered};
use gatelog_record::event::{GateEvent, PartitionEvent};
use gatelog_record::input::{GateInput, PartitionInput};
use gatelog_record::{BuildId, BuildsetId, Event, Input, InputRecord, ItemId, Partition, Timestamp, WorkId};
use gatelog_tables::{Maps, Overlay};

use crate::layout_view::LayoutView;
use crate::leaving::Again;
use crate::own_triggers::Parent;
use crate::rules::GateRules;
use crate::touched::Touched;
use crate::work::waits_for_room;

/// How often a tenant is looked at before a decision is given up: each round must have decided
/// something, so only a fault in the rules comes near it.
const MAX_ROUNDS: usize = 2_000;

/// A decision in the making.
pub struct Decision<'a> {
    pub(crate) deciding: Deciding<'a, Gate>,
    rules: &'a GateRules,
    /// What was touched and not looked at yet.
    pub(crate) touched: Touched,
    /// Everything that was touched.
    pub(crate) seen: Touched,
    /// The pipeline in which a semaphore became free: the first of those that did since queues were looked at.
    pub(crate) freed_in: Option<String>,
    /// What entered a pipeline that supersedes others: the pipeline, and what it was.
    pub(crate) superseding: Vec<(String, Subject)>,
    /// What is to enter a pipeline again once the triggers at hand were settled.
    pub(crate) again: Vec<Again>,
    /// What entered a pipeline of which the changes that need it are told.
    pub(crate) entered: Vec<Parent>,
}

impl<'a> Decision<'a> {
    fn begin(rules: &'a GateRules, state: &'a GateLive<Maps>, input: &InputRecord, context: Context) -> Decision<'a> {
        let deciding = Deciding::begin(state, input, context);
        Decision {
            deciding,
            rules,
            touched: Touched::default(),
            seen: Touched::default(),
            freed_in: None,
            superseding: Vec::new(),
            again: Vec::new(),
            entered: Vec::new(),
        }
    }

    /// Looks at the whole of a tenant.
    pub(crate) fn look_at_all(
        rules: &'a GateRules,
        state: &'a GateLive<Maps>,
        input: &InputRecord,
        context: Context,
    ) -> Result<Vec<Event>, Refusal> {
        let mut decision = Decision::begin(rules, state, input, context);
        decision.touched.all = true;
        decision.touched.everything = true;
        decision.settle(&input.key)?;
        Ok(decision.deciding.finish())
    }

    /// Decides one input.
    pub(crate) fn run(
        rules: &'a GateRules,
        state: &'a GateLive<Maps>,
        input: &InputRecord,
        context: Context,
    ) -> Result<Vec<Event>, Refusal> {
        let mut decision = Decision::begin(rules, state, input, context);
        match &input.input {
            Input::Gate(GateInput::NotRouted(what)) => decision.not_routed(what)?,
            // Of the site, and of no tenant's queues.
            Input::Gate(GateInput::AccessTold(told)) => decision.access_told(told)?,
            Input::Gate(body) if tenant_named(body).is_some_and(|tenant| tenant != input.key) => {
                let message = wrong_key(&input.key, tenant_named(body).unwrap_or_default());
                decision.refuse("wrong-key", message, input.input.name())?;
            }
            Input::Gate(body) => {
                decision.take(body)?;
                decision.settle(&input.key)?;
            }
            Input::Partition(PartitionInput::TimerDue(due)) => {
                // Now and then everything is looked at: other rules may have been in force when it was last.
                decision.touched.all = true;
                decision.timer_due(&input.key, due)?;
                decision.settle(&input.key)?;
            }
            Input::Partition(PartitionInput::LeaseLost(lost)) if lost.owner.key != input.key => {
                decision.refuse("wrong-key", wrong_key(&input.key, &lost.owner.key), input.input.name())?;
            }
            Input::Partition(PartitionInput::LeaseLost(lost)) => {
                decision.lease_lost(lost)?;
                decision.settle(&input.key)?;
            }
            Input::Partition(PartitionInput::OutboxDelivered(delivered)) => decision.outbox_delivered(delivered)?,
            other => return Err(Refusal::NotOurs(other.name())),
        }
        Ok(decision.deciding.finish())
    }

    pub(crate) fn take(&mut self, input: &GateInput) -> Result<(), Refusal> {
        if let Some((work, attempt)) = waits_for_room(input) {
            return self.begin_deadline_anew(work, attempt);
        }
        match input {
            GateInput::TenantLoaded(loaded) => self.tenant_loaded(loaded),
            GateInput::ConfigFilesFound(found) => self.config_found(found),
            GateInput::LayoutMade(made) => self.layout_made(made),
            GateInput::TriggerReceived(received) => self.trigger_received(received),
            GateInput::NotRouted(what) => self.not_routed(what),
            GateInput::AccessTold(told) => self.access_told(told),
            GateInput::ChangesFound(found) => self.changes_found(found),
            GateInput::EnqueueAsked(asked) => self.enqueue_asked(asked),
            GateInput::DequeueAsked(asked) => self.dequeue_asked(asked),
            GateInput::PromoteAsked(asked) => self.promote_asked(asked),
            GateInput::AttemptPaused(paused) => self.attempt_paused(paused),
            GateInput::AttemptFailing(failing) => self.attempt_failing(failing),
            GateInput::IntakeAsked(asked) => self.intake_asked(asked),
            GateInput::AutoholdAsked(asked) => self.autohold_asked(asked),
            GateInput::AutoholdDeleteAsked(asked) => self.autohold_delete_asked(asked),
            GateInput::ReconfigureAsked(asked) => self.reconfigure_asked(asked),
            GateInput::SecretsOpened(opened) => self.secrets_opened(opened),
            GateInput::ReturnedTold(told) => self.returned_told(told),
            GateInput::TimerTicked(ticked) => self.timer_ticked(ticked),
            GateInput::PrepareDone(done) => self.prepare_done(done),
            GateInput::FreezeDone(done) => self.freeze_done(done),
            GateInput::AttemptStarted(started) => self.attempt_started(started),
            GateInput::AttemptFinished(finished) => self.attempt_finished(finished),
            GateInput::LeaseLost(lost) => self.lease_lost(&lost.clone().into()),
            GateInput::SubmitDone(done) => self.submit_done(done),
            GateInput::ReportDone(done) => self.report_done(done),
        }
    }

    /// Looks at everything of a tenant until nothing more happens.
    fn settle(&mut self, tenant: &str) -> Result<(), Refusal> {
        if self.tenant(tenant).is_none() {
            return Ok(());
        }
        self.arm_timers(tenant)?;
        for _ in 0..MAX_ROUNDS {
            let before = self.deciding.events().len();
            self.configure(tenant)?;
            // Zuul: what comes in is placed before the queues are looked at.
            self.settle_triggers(tenant)?;
            self.enter_again(tenant)?;
            self.leave_superseded(tenant)?;
            self.run_queues(tenant)?;
            self.tell_children(tenant)?;
            if self.deciding.events().len() == before {
                let rest = std::mem::take(&mut self.touched);
                self.seen.merge(&rest);
                self.forget_changes(tenant)?;
                self.note_waits(tenant)?;
                return self.set_timers(tenant);
            }
        }
        Err(Refusal::OverBudget { limit: MAX_ROUNDS })
    }

    fn not_routed(&mut self, what: &NotRouted) -> Result<(), Refusal> {
        let reason = if what.table_version == 0 { "no-tenant-file" } else { "project-in-no-tenant" };
        self.emit(GateEvent::Unrouted(Unrouted { what: what.clone(), reason: reason.into() }))
    }

    /// It has happened: nothing is decided, but it is told.
    fn access_told(&mut self, told: &AccessTold) -> Result<(), Refusal> {
        self.emit(GateEvent::Accessed(Accessed { told: told.clone() }))
    }

    fn outbox_delivered(&mut self, delivered: &OutboxDelivered) -> Result<(), Refusal> {
        let to: Partition = delivered.to;
        let from = (to.domain as u8, to.index, 0, 0);
        let up_to = (to.domain as u8, to.index, delivered.up_to.0, delivered.up_to.1);
        let range = (std::ops::Bound::Included(&from), std::ops::Bound::Included(&up_to));
        if self.deciding.state.partition.outbox.rows(range.0, range.1).next().is_none() {
            return self.nothing("already-had");
        }
        self.deciding.emit(PartitionEvent::OutboxCleared(OutboxCleared { to, up_to: delivered.up_to }))
    }

    // ---- saying ----

    pub(crate) fn emit(&mut self, event: GateEvent) -> Result<(), Refusal> {
        self.touch(&event);
        self.deciding.emit(event)
    }

    /// The input is taken and leads to nothing.
    pub(crate) fn nothing(&mut self, reason: &str) -> Result<(), Refusal> {
        self.deciding.emit(PartitionEvent::InputTaken(InputTaken { duplicate_of: None, reason: reason.into() }))
    }

    /// The input is wrong in itself.
    pub(crate) fn refuse(&mut self, code: &str, message: String, kind: &str) -> Result<(), Refusal> {
        self.deciding.emit(PartitionEvent::InputRefused(InputRefused {
            code: code.into(),
            message,
            kind: Some(kind.into()),
        }))
    }

    /// An outcome came too late or twice.
    pub(crate) fn ignore(&mut self, subject: String, code: &str) -> Result<(), Refusal> {
        self.emit(GateEvent::OutcomeIgnored(OutcomeIgnored { subject, code: code.into() }))
    }

    // ---- reading ----

    pub(crate) fn now(&self) -> Timestamp {
        self.deciding.now
    }

    pub(crate) fn gate(&self) -> &GateTables<Overlay<'a>> {
        &self.deciding.state.gate
    }

    pub(crate) fn tenant(&self, tenant: &str) -> Option<&TenantRow> {
        self.gate().tenants.row(&tenant.to_owned())
    }

    pub(crate) fn item(&self, item: ItemId) -> Option<&ItemRow> {
        self.gate().items.row(&item)
    }

    pub(crate) fn buildset(&self, buildset: BuildsetId) -> Option<&BuildsetRow> {
        self.gate().buildsets.row(&buildset)
    }

    /// The buildset an item has.
    pub(crate) fn buildset_of(&self, item: ItemId) -> Option<(BuildsetId, &BuildsetRow)> {
        let id = self.item(item)?.buildset?;
        Some((id, self.buildset(id)?))
    }

    pub(crate) fn build(&self, build: BuildId) -> Option<&BuildRow> {
        self.gate().builds.row(&build)
    }

    pub(crate) fn pending(&self, work: WorkId) -> Option<&PendingRow> {
        self.gate().pending_work.row(&work)
    }

    /// The layout in force, if there is one.
    ///
    /// # Errors
    /// When there is one and it is not held: the shell did not ask what is needed.
    pub(crate) fn layout(&self, tenant: &str) -> Result<Option<Arc<LayoutView>>, Refusal> {
        let Some(row) = self.gate().layouts.row(&tenant.to_owned()) else { return Ok(None) };
        match self.rules.layout(&row.layout) {
            Some(view) => Ok(Some(Arc::clone(view))),
            None => Err(Refusal::Blob { hash: row.layout, message: "the layout in force was not admitted".into() }),
        }
    }
}

fn wrong_key(key: &str, tenant: &str) -> String {
    format!("the input came under key {key:?} but is for tenant {tenant:?}: send it under the tenant's name")
}

/// The tenant an input says it is for.
fn tenant_named(input: &GateInput) -> Option<&str> {
    Some(match input {
        GateInput::TenantLoaded(body) => &body.tenant,
        GateInput::TriggerReceived(body) => &body.tenant,
        GateInput::NotRouted(_) | GateInput::AccessTold(_) => return None,
        GateInput::ChangesFound(body) => &body.tenant,
        GateInput::ConfigFilesFound(body) => &body.tenant,
        GateInput::LayoutMade(body) => &body.tenant,
        GateInput::PrepareDone(body) => &body.tenant,
        GateInput::FreezeDone(body) => &body.tenant,
        GateInput::AttemptStarted(body) => &body.tenant,
        GateInput::AttemptFinished(body) => &body.tenant,
        GateInput::LeaseLost(body) => &body.tenant,
        GateInput::SubmitDone(body) => &body.tenant,
        GateInput::ReportDone(body) => &body.tenant,
        GateInput::EnqueueAsked(body) => &body.tenant,
        GateInput::DequeueAsked(body) => &body.tenant,
        GateInput::PromoteAsked(body) => &body.tenant,
        GateInput::AttemptPaused(body) => &body.tenant,
        GateInput::AttemptFailing(body) => &body.tenant,
        GateInput::IntakeAsked(body) => &body.tenant,
        GateInput::AutoholdAsked(body) => &body.tenant,
        GateInput::AutoholdDeleteAsked(body) => &body.tenant,
        GateInput::ReconfigureAsked(body) => &body.tenant,
        GateInput::SecretsOpened(body) => &body.tenant,
        GateInput::ReturnedTold(body) => &body.tenant,
        GateInput::TimerTicked(body) => &body.tenant,
    })
}
