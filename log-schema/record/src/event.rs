//! Events: what gatelog decided, in the past tense.
//!
//! A family for each domain, and one for what every domain's partition has. [`Event`] is one of any of them; which there
//! are says the list in [`crate::domains`].

use crate::draft::{capacity, gate, partition};
use crate::frozen;
use crate::kinds::family;

pub use crate::domains::Event;

family! {
    /// What the writer of any partition records about itself and its inputs.
    pub enum PartitionEvent {
        /// A writer took the partition over.
        0x0001 "writer-started" 1 WriterStarted(partition::WriterStarted);
        /// An input was taken and led to nothing else.
        0x0002 "input-taken" 1 InputTaken(partition::InputTaken);
        /// An input could not be decided.
        0x0003 "input-refused" 1 InputRefused(partition::InputRefused);
        /// The machine's clock jumped.
        0x0004 "clock-stepped" 1 ClockStepped(partition::ClockStepped);
        /// A restored or forked log was adopted.
        0x0005 "log-restored" 1 LogRestored(partition::LogRestored);
        /// The level of kinds and versions that may be written rose.
        0x0006 "level-raised" 1 LevelRaised(partition::LevelRaised);
        /// A timer was set.
        0x0007 "timer-set" 1 TimerSet(partition::TimerSet);
        /// A timer came due or was given up.
        0x0008 "timer-cleared" 1 TimerCleared(partition::TimerCleared);
        /// Messages to another domain are known to have been taken there.
        0x0009 "outbox-cleared" 1 OutboxCleared(partition::OutboxCleared);
        /// Pending work is sent out once more.
        0x000a "work-resent" 1 WorkResent(partition::WorkResent);
        /// An artificial kind that keeps the machinery of released versions and upcasting honest.
        0x00ff "sample" 2 Sample(frozen::sample::v2::Sample) released true older { 1 => frozen::sample::v1::Sample };
        /// The first of three artificial kinds of level 1, which keep the machinery of levels honest: something began.
        0x00f1 "sample-begun" 1 SampleBegun(partition::SampleBegun) since 1;
        /// The second: something was noted of it.
        0x00f2 "sample-noted" 1 SampleNoted(partition::SampleNoted) since 1;
        /// The third: it ended.
        0x00f3 "sample-ended" 1 SampleEnded(partition::SampleEnded) since 1;
    }
}

family! {
    /// What the gate decided.
    pub enum GateEvent {
        /// A tenant's settings came into force.
        0x0101 "gate.tenant-configured" 1 TenantConfigured(gate::TenantConfigured);
        /// Configuration files are to be read.
        0x0102 "gate.config-read-wanted" 1 ConfigReadWanted(gate::ConfigReadWanted);
        /// Configuration files were read.
        0x0103 "gate.config-read" 1 ConfigRead(gate::ConfigRead);
        /// A layout is to be made from files.
        0x0104 "gate.layout-wanted" 1 LayoutWanted(gate::LayoutWanted);
        /// A layout was made for an item.
        0x0105 "gate.layout-ready" 1 LayoutReady(gate::LayoutReady);
        /// A tenant's layout came into force.
        0x0106 "gate.layout-activated" 2 LayoutActivated(gate::LayoutActivated) older { 1 => gate::older::LayoutActivated1 };
        /// Facts about changes are needed.
        0x0107 "gate.changes-wanted" 1 ChangesWanted(gate::ChangesWanted);
        /// Facts about changes were observed.
        0x0108 "gate.changes-observed" 1 ChangesObserved(gate::ChangesObserved);
        /// A trigger waits for facts.
        0x0109 "gate.trigger-waiting" 1 TriggerWaiting(gate::TriggerWaiting);
        /// A trigger was dealt with.
        0x010a "gate.trigger-settled" 1 TriggerSettled(gate::TriggerSettled);
        /// An outside event that concerns no tenant.
        0x010b "gate.unrouted" 1 Unrouted(gate::Unrouted);
        /// A change was not let into a pipeline.
        0x010c "gate.enqueue-refused" 1 EnqueueRefused(gate::EnqueueRefused);
        /// A branch's tip moved.
        0x010d "gate.branch-moved" 1 BranchMoved(gate::BranchMoved);
        /// An item entered a pipeline.
        0x0110 "gate.item-enqueued" 1 ItemEnqueued(gate::ItemEnqueued);
        /// A buildset was begun for an item on top of what is ahead of it.
        0x0111 "gate.buildset-opened" 1 BuildsetOpened(gate::BuildsetOpened);
        /// A speculative state is to be prepared.
        0x0112 "gate.prepare-requested" 1 PrepareRequested(gate::PrepareRequested);
        /// A speculative state was prepared, or could not be.
        0x0113 "gate.prepared" 1 Prepared(gate::Prepared);
        /// Jobs are to be frozen.
        0x0114 "gate.freeze-wanted" 2 FreezeWanted(gate::FreezeWanted) older { 1 => gate::older::FreezeWanted1 };
        /// Jobs were frozen.
        0x0115 "gate.frozen" 1 Frozen(gate::Frozen);
        /// An attempt of a build asks for its lease.
        0x0116 "gate.lease-wanted" 3 LeaseWanted(gate::LeaseWanted)
          older { 1 => gate::older::LeaseWanted1, 2 => gate::older::LeaseWanted2 };
        /// An attempt of a build no longer needs its lease.
        0x0117 "gate.lease-end-wanted" 1 LeaseEndWanted(gate::LeaseEndWanted);
        /// A worker began an attempt.
        0x0118 "gate.build-started" 2 BuildStarted(gate::BuildStarted) older { 1 => gate::older::BuildStarted1 };
        /// An attempt ended.
        0x0119 "gate.build-finished" 3 BuildFinished(gate::BuildFinished)
          older { 1 => gate::older::BuildFinished1, 2 => gate::older::BuildFinished2 };
        /// A build will never run, or never again.
        0x011a "gate.build-settled" 2 BuildSettled(gate::BuildSettled) older { 1 => gate::older::BuildSettled1 };
        /// An outcome that came too late or twice.
        0x011b "gate.outcome-ignored" 1 OutcomeIgnored(gate::OutcomeIgnored);
        /// An item is failing, or no longer.
        0x011c "gate.item-failing" 1 ItemFailing(gate::ItemFailing);
        /// An item's builds were given up and it starts again on another base.
        0x011d "gate.item-reset" 1 ItemReset(gate::ItemReset);
        /// A window grew or shrank.
        0x011e "gate.window-changed" 1 WindowChanged(gate::WindowChanged);
        /// What something waits for changed.
        0x011f "gate.wait-changed" 1 WaitChanged(gate::WaitChanged);
        /// A tested state is to be merged.
        0x0120 "gate.submit-requested" 1 SubmitRequested(gate::SubmitRequested);
        /// How merging ended.
        0x0121 "gate.submitted" 1 Submitted(gate::Submitted);
        /// A report is to be delivered.
        0x0122 "gate.report-requested" 1 ReportRequested(gate::ReportRequested);
        /// A report was delivered, or could not be.
        0x0123 "gate.report-delivered" 1 ReportDelivered(gate::ReportDelivered);
        /// An item left its pipeline.
        0x0124 "gate.item-dequeued" 1 ItemDequeued(gate::ItemDequeued);
        /// Pending work of the gate is sent out once more: only read, from logs older than `work-resent`.
        0x0125 "gate.work-resent" 1 WorkResent(partition::WorkResent);
        /// Facts about changes that nothing refers to any more were dropped.
        0x0126 "gate.changes-forgotten" 1 ChangesForgotten(gate::ChangesForgotten);
        /// A queue's items were put into another order.
        0x0127 "gate.queue-reordered" 1 QueueReordered(gate::QueueReordered);
        /// What failed in a row in a pipeline was counted.
        0x0128 "gate.failures-counted" 1 FailuresCounted(gate::FailuresCounted);
        /// An attempt waits for the jobs that need it.
        0x0129 "gate.build-paused" 2 BuildPaused(gate::BuildPaused) older { 1 => gate::older::BuildPaused1 };
        /// A paused attempt may go on to its end.
        0x012a "gate.build-resumed" 1 BuildResumed(gate::BuildResumed);
        /// What became of artifacts that others may need was noted.
        0x012b "gate.artifacts-noted" 1 ArtifactsNoted(gate::ArtifactsNoted);
        /// An attempt that still runs will fail.
        0x012c "gate.build-failing" 1 BuildFailing(gate::BuildFailing);
        /// Outside events wait, or are dropped, or are dealt with again.
        0x012d "gate.intake-changed" 1 IntakeChanged(gate::IntakeChanged);
        /// An item was reported; its reporter jobs run before it leaves.
        0x012e "gate.reporters-started" 1 ReportersStarted(gate::ReportersStarted);
        /// An item went to another queue.
        0x012f "gate.item-moved" 1 ItemMoved(gate::ItemMoved);
        /// A request to keep nodes of builds that fail is in force.
        0x0130 "gate.autohold-set" 1 AutoholdSet(gate::AutoholdSet);
        /// Nodes of a build that failed are kept.
        0x0131 "gate.nodes-held" 2 NodesHeld(gate::NodesHeld) older { 1 => gate::older::NodesHeld1 };
        /// Nodes of a build are no longer kept.
        0x0132 "gate.hold-ended" 1 HoldEnded(gate::HoldEnded);
        /// A request to keep nodes is in force no longer.
        0x0133 "gate.autohold-ended" 1 AutoholdEnded(gate::AutoholdEnded);
        /// The next attempt of a build asks for other nodes.
        0x0134 "gate.nodeset-changed" 1 NodesetChanged(gate::NodesetChanged);
        /// A worker has the nodes of an attempt, which waits for a semaphore.
        0x0135 "gate.build-ready" 2 BuildReady(gate::BuildReady) older { 1 => gate::older::BuildReady1 };
        /// A paused attempt needs no slot.
        0x0136 "gate.lease-pause-wanted" 1 LeasePauseWanted(gate::LeasePauseWanted);
        /// A paused attempt goes on.
        0x0137 "gate.lease-resume-wanted" 1 LeaseResumeWanted(gate::LeaseResumeWanted);
        /// A queue began, though nothing entered it.
        0x0138 "gate.queue-asked" 1 QueueAsked(gate::QueueAsked);
        /// An attempt was given secrets or keys.
        0x0140 "gate.secrets-given" 1 SecretsGiven(gate::SecretsGiven);
        /// Something left the site, or was made unreadable for ever.
        0x0150 "gate.accessed" 1 Accessed(gate::Accessed);
        /// Something became of the blobs with what a build returned.
        0x0151 "gate.returned-changed" 1 ReturnedChanged(gate::ReturnedChanged);
        /// The timers of a tenant are others than before.
        0x0160 "gate.timers-changed" 1 TimersChanged(gate::TimersChanged);
    }
}

family! {
    /// What capacity decided.
    pub enum CapacityEvent {
        /// A worker offers slots.
        0x0201 "capacity.worker-joined" 1 WorkerJoined(capacity::WorkerJoined);
        /// A worker is gone.
        0x0202 "capacity.worker-lost" 1 WorkerLost(capacity::WorkerLost);
        /// A lease was asked for and waits.
        0x0203 "capacity.lease-queued" 2 LeaseQueued(capacity::LeaseQueued) older { 1 => capacity::older::LeaseQueued1 };
        /// A lease was granted, whole.
        0x0204 "capacity.lease-granted" 2 LeaseGranted(capacity::LeaseGranted) older { 1 => capacity::older::LeaseGranted1 };
        /// A lease was taken back.
        0x0205 "capacity.lease-revoked" 2 LeaseRevoked(capacity::LeaseRevoked) older { 1 => capacity::older::LeaseRevoked1 };
        /// A lease is over and its resources are free.
        0x0206 "capacity.lease-ended" 1 LeaseEnded(capacity::LeaseEnded);
        /// A lease cannot ever be granted.
        0x0207 "capacity.lease-refused" 2 LeaseRefused(capacity::LeaseRefused) older { 1 => capacity::older::LeaseRefused1 };
        /// What a lease waits for changed.
        0x0208 "capacity.wait-changed" 1 WaitChanged(capacity::LeaseWaitChanged);
        /// A worker let go of a lease before its owner asked for its end.
        0x0209 "capacity.release-noted" 1 ReleaseNoted(capacity::ReleaseNoted);
        /// A lease's nodes are kept although its attempt is over.
        0x020a "capacity.lease-held" 2 LeaseHeld(capacity::LeaseHeld) older { 1 => capacity::older::LeaseHeld1 };
        /// A lease's attempt waits for other jobs: its slot is free.
        0x020b "capacity.lease-paused" 1 LeasePaused(capacity::LeasePaused);
        /// A lease's attempt goes on.
        0x020c "capacity.lease-resumed" 1 LeaseResumed(capacity::LeaseResumed);
        /// A component takes nothing new, or takes it again.
        0x020d "capacity.pause-changed" 1 PauseChanged(capacity::PauseChanged);
    }
}
