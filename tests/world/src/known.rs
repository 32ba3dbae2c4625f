//! Faults of the house that the world has found and that stand: each with what it keeps the world from
//! asserting. A test prints each as `SKIPPED <invariant>: <why>`, and says when one stands no longer.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The invariant that does not hold.
    pub invariant: &'static str,
    /// Why, and what would mend it.
    pub why: &'static str,
}

/// Work past its deadline is sent again. Mended; its story stays.
pub const OVERDUE_WORK: Known = Known {
    invariant: "work-past-its-deadline-is-sent-again",
    why: "the shell folds TimerCleared before it asks the rules, and the gate's timer_due takes a timer that is gone \
          for one that was replaced: nothing is resent, and the timer is set again to the moment that has passed",
};

/// The newest start of a worker is the one that counts. Mended; its story stays.
pub const NEWEST_START: Known = Known {
    invariant: "the-newest-start-of-a-worker-counts",
    why: "a WorkerSeen of an older start that arrives after that of a newer one takes its place, nothing tells the two \
          apart by age, and a worker announces itself only once: leases then go to nobody for ever",
};

/// All that stand.
pub const KNOWN: &[Known] = &[];

/// Whether one of them stands.
pub fn stands(known: Known) -> bool {
    KNOWN.contains(&known)
}
