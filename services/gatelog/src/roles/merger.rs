//! The role `merger`: prepares speculative states, makes layouts, freezes jobs, and merges for real what was tested.

use gatelog_effects::dispatch::Duty;

/// What it does of the gate's pending work. Of several mergers each does what falls to it (`effects/share`).
pub const DUTIES: &[Duty] = &[Duty::Merge, Duty::Compute, Duty::Submit];
