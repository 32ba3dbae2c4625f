//! The faults there are, and what a run has met.

use std::collections::BTreeMap;

/// Everything that can go wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A writer dies and starts again from the first event.
    WriterDies,
    /// A writer dies and starts again from a snapshot.
    WriterDiesSnapshot,
    /// A writer's append is written, and it never hears of it.
    EventAckLost,
    /// A writer's append fails and nothing is written.
    EventAppendFails,
    /// The log keeps everybody waiting.
    LogHolds,
    /// The whole process dies; some of what was on its way to the log is there, the rest is not.
    ProcessDies,
    /// A second writer takes over while the first believes to own the partition.
    TakenOver,
    /// A record of the fenced writer reaches the log after all.
    StaleRecord,
    /// An input is written, and its sender never hears of it.
    InputAckLost,
    /// An input is written twice.
    InputTwice,
    /// An input's append fails.
    InputAppendFails,
    /// An input comes before one that was sent earlier.
    InputOvertakes,
    /// An input is on its way for minutes.
    InputLate,
    /// The forge delivers an event twice.
    EventDeliveredTwice,
    /// Messages between domains are sent again from the beginning.
    ForwarderForgets,
    /// A forwarder's messages are written, and it never hears of it.
    ForwarderAckLost,
    /// The intake is routed again from the beginning.
    RouterForgets,
    /// What the router sent is written, and it never hears of it.
    RouterAckLost,
    /// A timer is told twice.
    TimerTwice,
    /// The tick of a pipeline's timer is told twice.
    TickTwice,
    /// A timer is told late.
    TimerLate,
    /// The machine's clock jumps by seconds or minutes.
    ClockJumps,
    /// It goes back by more than five minutes, up to years.
    ClockJumpsBack,
    /// It goes ahead by as much.
    ClockJumpsAhead,
    /// The process that does short work dies with all it had taken up.
    EffectsDie,
    /// Work is taken up and never done.
    WorkLost,
    /// Work is done, and the answer gets lost.
    OutcomeLost,
    /// Work is done twice.
    WorkTwice,
    /// Work cannot be done just now.
    WorkFails,
    /// Work is done, but that cannot be known.
    WorkUnsure,
    /// A worker starts again and has forgotten all it ran.
    WorkerRestarts,
    /// A worker dies and comes back later, as another start.
    WorkerDies,
    /// A worker is cut off from everything for a while and goes on.
    WorkerCutOff,
    /// Somebody else pushes to a branch that is gated.
    OutsiderPushes,
    /// The rules panic, for one tenant.
    RulePanics,
    /// They do so on the outcome of work.
    OutcomePanics,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 36] = [
        Fault::WriterDies,
        Fault::WriterDiesSnapshot,
        Fault::EventAckLost,
        Fault::EventAppendFails,
        Fault::LogHolds,
        Fault::ProcessDies,
        Fault::TakenOver,
        Fault::StaleRecord,
        Fault::InputAckLost,
        Fault::InputTwice,
        Fault::InputAppendFails,
        Fault::InputOvertakes,
        Fault::InputLate,
        Fault::EventDeliveredTwice,
        Fault::ForwarderForgets,
        Fault::ForwarderAckLost,
        Fault::RouterForgets,
        Fault::RouterAckLost,
        Fault::TimerTwice,
        Fault::TickTwice,
        Fault::TimerLate,
        Fault::ClockJumps,
        Fault::ClockJumpsBack,
        Fault::ClockJumpsAhead,
        Fault::EffectsDie,
        Fault::WorkLost,
        Fault::OutcomeLost,
        Fault::WorkTwice,
        Fault::WorkFails,
        Fault::WorkUnsure,
        Fault::WorkerRestarts,
        Fault::WorkerDies,
        Fault::WorkerCutOff,
        Fault::OutsiderPushes,
        Fault::RulePanics,
        Fault::OutcomePanics,
    ];
}

/// What happened, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Faults.
    pub faults: BTreeMap<Fault, u64>,
    /// Events by kind.
    pub events: BTreeMap<&'static str, u64>,
    /// Reasons: what was waited for, why items left or were reset, why inputs led to nothing.
    pub reasons: BTreeMap<String, u64>,
}

impl Coverage {
    /// A fault happened.
    pub fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// A reason was given.
    pub fn reason(&mut self, reason: impl Into<String>) {
        *self.reasons.entry(reason.into()).or_default() += 1;
    }

    /// Adds what another run met.
    pub fn add(&mut self, other: &Coverage) {
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (kind, count) in &other.events {
            *self.events.entry(kind).or_default() += count;
        }
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }

    /// Faults that did not happen.
    pub fn missing(&self) -> Vec<Fault> {
        Fault::ALL.into_iter().filter(|fault| !self.faults.contains_key(fault)).collect()
    }
}

impl std::fmt::Display for Coverage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "faults:")?;
        for (fault, count) in &self.faults {
            writeln!(f, "  {count:>8} {fault:?}")?;
        }
        writeln!(f, "events:")?;
        for (kind, count) in &self.events {
            writeln!(f, "  {count:>8} {kind}")?;
        }
        writeln!(f, "reasons:")?;
        for (reason, count) in &self.reasons {
            writeln!(f, "  {count:>8} {reason}")?;
        }
        Ok(())
    }
}
