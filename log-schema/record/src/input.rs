//! Inputs: facts and requests from outside a domain. Anyone may append one. [`Input`] is one of any family; which there
//! are says the list in [`crate::domains`].

use crate::draft::{capacity, gate, intake, partition};
use crate::kinds::family;

pub use crate::domains::Input;

family! {
    /// What any partition may be told.
    pub enum PartitionInput {
        /// A timer came due.
        0x8001 "in.timer-due" 1 TimerDue(partition::TimerDue);
        /// Messages to another domain were taken there.
        0x8002 "in.outbox-delivered" 1 OutboxDelivered(partition::OutboxDelivered);
        /// Somebody asks that the level of what may be written be raised.
        0x8003 "in.level-raise-asked" 2 LevelRaiseAsked(partition::LevelRaiseAsked) older { 1 => partition::LevelRaiseAsked1 };
        /// A lease of this partition's ended before its owner asked for that, or is refused.
        0x8004 "in.lease-lost" 1 LeaseLost(capacity::LeaseLost);
    }
}

family! {
    /// What the gate is told or asked.
    pub enum GateInput {
        /// A tenant's settings.
        0x8101 "gate.in.tenant-loaded" 1 TenantLoaded(gate::TenantLoaded);
        /// An outside event for this tenant.
        0x8102 "gate.in.trigger-received" 1 TriggerReceived(gate::TriggerReceived);
        /// An outside event for no tenant.
        0x8103 "gate.in.not-routed" 1 NotRouted(gate::NotRouted);
        /// Facts about changes.
        0x8104 "gate.in.changes-found" 1 ChangesFound(gate::ChangesFound);
        /// Configuration files.
        0x8105 "gate.in.config-files" 1 ConfigFilesFound(gate::ConfigFilesFound);
        /// A layout.
        0x8106 "gate.in.layout-made" 1 LayoutMade(gate::LayoutMade);
        /// A prepared state.
        0x8107 "gate.in.prepare-done" 1 PrepareDone(gate::PrepareDone);
        /// Frozen jobs.
        0x8108 "gate.in.freeze-done" 1 FreezeDone(gate::FreezeDone);
        /// A worker began an attempt.
        0x8109 "gate.in.attempt-started" 1 AttemptStarted(gate::AttemptStarted);
        /// A worker ended an attempt.
        0x810a "gate.in.attempt-finished" 2 AttemptFinished(gate::AttemptFinished) older { 1 => gate::older::AttemptFinished1 };
        /// Capacity lost or refused a lease: only read, from logs older than `in.lease-lost`.
        0x810b "gate.in.lease-lost" 1 LeaseLost(gate::BuildLeaseLost);
        /// How merging ended.
        0x810c "gate.in.submit-done" 1 SubmitDone(gate::SubmitDone);
        /// How reporting ended.
        0x810d "gate.in.report-done" 1 ReportDone(gate::ReportDone);
        /// Somebody asks to enqueue a change.
        0x810e "gate.in.enqueue-asked" 1 EnqueueAsked(gate::EnqueueAsked);
        /// Somebody asks to dequeue a change.
        0x810f "gate.in.dequeue-asked" 1 DequeueAsked(gate::DequeueAsked);
        /// Somebody asks that changes go to the head of their queues.
        0x8110 "gate.in.promote-asked" 1 PromoteAsked(gate::PromoteAsked);
        /// An attempt waits for the jobs that need it.
        0x8111 "gate.in.attempt-paused" 2 AttemptPaused(gate::AttemptPaused) older { 1 => gate::older::AttemptPaused1 };
        /// An attempt that still runs will fail.
        0x8112 "gate.in.attempt-failing" 1 AttemptFailing(gate::AttemptFailing);
        /// Somebody asks that outside events wait, or are dropped, or are dealt with again.
        0x8113 "gate.in.intake-asked" 1 IntakeAsked(gate::IntakeAsked);
        /// Somebody asks that nodes of builds that fail be kept.
        0x8114 "gate.in.autohold-asked" 1 AutoholdAsked(gate::AutoholdAsked);
        /// Somebody asks that a request to keep nodes be deleted.
        0x8115 "gate.in.autohold-delete-asked" 1 AutoholdDeleteAsked(gate::AutoholdDeleteAsked);
        /// Somebody asks that a tenant is configured anew.
        0x8120 "gate.in.reconfigure-asked" 1 ReconfigureAsked(gate::ReconfigureAsked);
        /// A worker opened what an attempt is given.
        0x8121 "gate.in.secrets-opened" 1 SecretsOpened(gate::SecretsOpened);
        /// Something left the site, or was made unreadable for ever.
        0x8130 "gate.in.access-told" 1 AccessTold(gate::AccessTold);
        /// What is to become, or became, of the blobs with what a build returned.
        0x8131 "gate.in.returned-told" 1 ReturnedTold(gate::ReturnedTold);
        /// A timer came due.
        0x8140 "gate.in.timer-ticked" 1 TimerTicked(gate::TimerTicked);
    }
}

family! {
    /// What capacity is told or asked.
    pub enum CapacityInput {
        /// A worker is there.
        0x8201 "capacity.in.worker-seen" 1 WorkerSeen(capacity::WorkerSeen);
        /// A worker has not been heard of.
        0x8202 "capacity.in.worker-silent" 1 WorkerSilent(capacity::WorkerSilent);
        /// An owner asks for a lease.
        0x8203 "capacity.in.lease-asked" 2 LeaseAsked(capacity::LeaseAsked) older { 1 => capacity::older::LeaseAsked1 };
        /// An owner no longer needs a lease.
        0x8204 "capacity.in.lease-end-asked" 2 LeaseEndAsked(capacity::LeaseEndAsked) older { 1 => capacity::older::LeaseEndAsked1 };
        /// A worker has let go of a lease's nodes.
        0x8205 "capacity.in.lease-released" 1 LeaseReleased(capacity::LeaseReleased);
        /// An owner asks that a lease's nodes be kept.
        0x8206 "capacity.in.lease-hold-asked" 2 LeaseHoldAsked(capacity::LeaseHoldAsked) older { 1 => capacity::older::LeaseHoldAsked1 };
        /// An owner's attempt waits for other jobs and needs no slot.
        0x8207 "capacity.in.lease-pause-asked" 2 LeasePauseAsked(capacity::LeasePauseAsked) older { 1 => capacity::older::LeasePauseAsked1 };
        /// An owner's attempt that waited goes on.
        0x8208 "capacity.in.lease-resume-asked" 2 LeaseResumeAsked(capacity::LeaseResumeAsked) older { 1 => capacity::older::LeaseResumeAsked1 };
        /// Somebody asks that a component take nothing new, or take it again.
        0x8209 "capacity.in.pause-asked" 1 PauseAsked(capacity::PauseAsked);
    }
}

family! {
    /// What code-review systems sent, and the tables by which it is routed.
    pub enum IntakeInput {
        /// An event of a code-review system.
        0x8501 "intake.forge-event" 1 ForgeEvent(intake::ForgeEvent);
        /// A tenant file came into force.
        0x8502 "intake.tenant-file" 1 TenantFile(intake::TenantFile);
    }
}
