//! How the gate's events change the live tables.

mod building;
mod configuration;
mod holds;
mod queueing;
mod returned;
mod timers;
mod waiting;

use gatelog_partition_state::work::WorkTable;
use gatelog_record::event::GateEvent;
use gatelog_record::{Event, EventRecord};
use gatelog_tables::{Backing, FoldRefused, LiveTables};

use crate::live::{GateLive, GateTables};

impl<B: Backing> LiveTables<B> for GateLive<B> {
    fn apply(&mut self, record: &EventRecord) -> Result<(), FoldRefused> {
        self.partition.apply(record)?;
        match &record.event {
            Event::Partition(event) => self.gate.pending_work.apply(event),
            Event::Gate(event) => self.apply_own(record, event),
            _ => Err(FoldRefused::Illegal(format!("{} is not an event of the gate", record.event.name()))),
        }
    }
}

impl<B: Backing> GateLive<B> {
    fn apply_own(&mut self, record: &EventRecord, event: &GateEvent) -> Result<(), FoldRefused> {
        let gate: &mut GateTables<B> = &mut self.gate;
        match event {
            GateEvent::TenantConfigured(event) => gate.tenant_configured(record, event),
            GateEvent::ConfigReadWanted(event) => gate.config_read_wanted(record, event),
            GateEvent::ConfigRead(event) => gate.config_read(record, event),
            GateEvent::LayoutWanted(event) => gate.layout_wanted(record, event),
            GateEvent::LayoutReady(event) => gate.layout_ready(event),
            GateEvent::LayoutActivated(event) => gate.layout_activated(record, event),
            GateEvent::BranchMoved(event) => gate.branch_moved(event),

            GateEvent::ChangesWanted(event) => gate.changes_wanted(record, event),
            GateEvent::ChangesObserved(event) => gate.changes_observed(record, event),
            GateEvent::ChangesForgotten(event) => gate.changes_forgotten(event),
            GateEvent::TriggerWaiting(event) => gate.trigger_waiting(record, event),
            GateEvent::TriggerSettled(event) => gate.trigger_settled(event),
            GateEvent::IntakeChanged(event) => gate.intake_changed(event),
            GateEvent::WaitChanged(event) => gate.wait_changed(event),
            GateEvent::WorkResent(event) => gate.pending_work.resend(event),
            // These say what was not done; nothing live remembers it.
            GateEvent::Unrouted(_) | GateEvent::EnqueueRefused(_) | GateEvent::OutcomeIgnored(_) => Ok(()),
            // For whoever asks later; that it happened is in the history's moments.
            GateEvent::SecretsGiven(_) | GateEvent::Accessed(_) => Ok(()),

            GateEvent::ItemEnqueued(event) => gate.item_enqueued(record, event),
            GateEvent::BuildsetOpened(event) => gate.buildset_opened(record, event),
            GateEvent::PrepareRequested(event) => gate.prepare_requested(record, event),
            GateEvent::Prepared(event) => gate.prepared(event),
            GateEvent::FreezeWanted(event) => gate.freeze_wanted(record, event),
            GateEvent::Frozen(event) => gate.frozen(event),
            GateEvent::ItemFailing(event) => gate.item_failing(event),
            GateEvent::ItemReset(event) => gate.item_reset(record, event),
            GateEvent::ReportersStarted(event) => gate.reporters_started(event),
            GateEvent::ItemMoved(event) => gate.item_moved(event),
            GateEvent::WindowChanged(event) => gate.window_changed(event),
            GateEvent::QueueReordered(event) => gate.queue_reordered(event),
            GateEvent::QueueAsked(event) => gate.queue_asked(record, event),
            GateEvent::FailuresCounted(event) => gate.failures_counted(event),
            GateEvent::SubmitRequested(event) => gate.submit_requested(record, event),
            GateEvent::Submitted(event) => gate.submitted(record, event),
            GateEvent::ReportRequested(event) => gate.report_requested(record, event),
            GateEvent::ReportDelivered(event) => gate.report_delivered(event),
            GateEvent::ItemDequeued(event) => gate.item_dequeued(record, event),

            GateEvent::LeaseWanted(event) => {
                self.gate.lease_wanted(event)?;
                self.ask_for_lease(record, event)
            }
            GateEvent::LeaseEndWanted(event) => self.end_lease(record, event),
            GateEvent::LeasePauseWanted(event) => self.pause_lease(record, event),
            GateEvent::LeaseResumeWanted(event) => self.resume_lease(record, event),
            GateEvent::BuildStarted(event) => gate.build_started(event),
            GateEvent::BuildReady(event) => gate.build_ready(event),
            GateEvent::BuildPaused(event) => gate.build_paused(record, event),
            GateEvent::BuildResumed(event) => gate.build_resumed(event),
            GateEvent::BuildFailing(event) => gate.build_failing(event),
            GateEvent::ArtifactsNoted(event) => gate.artifacts_noted(event),
            GateEvent::BuildFinished(event) => gate.build_finished(record, event),
            GateEvent::BuildSettled(event) => gate.build_settled(event),
            GateEvent::NodesetChanged(event) => gate.nodeset_changed(event),

            GateEvent::AutoholdSet(event) => gate.autohold_set(record, event),
            GateEvent::NodesHeld(event) => {
                self.gate.nodes_held(record, event)?;
                self.ask_for_hold(record, event)
            }
            GateEvent::HoldEnded(event) => {
                self.gate.hold_ended(event)?;
                if event.tell { self.end_hold(record, event) } else { Ok(()) }
            }
            GateEvent::AutoholdEnded(event) => gate.autohold_ended(event),

            GateEvent::ReturnedChanged(event) => gate.returned_changed(record, event),
            GateEvent::TimersChanged(event) => gate.timers_changed(record, event),
        }
    }
}
