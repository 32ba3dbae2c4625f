//! A domain that gatelog does not have: it keeps notes of subjects. What stands here is all that a domain needs to be hosted,
//! and its records in `log-schema/record/src/domains`: a state with its fold, rules, words, and one entry in two lists.
//!
//! A program that hosts it beside gatelog's own domains is `main.rs`; that it works like any of them is shown by `tests/`.

pub mod rules;
pub mod state;
pub mod words;

use gatelog_hosting::Hosted;
use gatelog_replay::domains::Of;

use rules::SampleRules;
use words::SampleWords;

/// The domain as replay has it.
pub static SAMPLE: Of<SampleRules, SampleWords> = Of::new(SampleWords);
/// The domain as a process hosts it: where the scheduler is.
pub static HOSTED_SAMPLE: Hosted<SampleRules> = Hosted::new("scheduler", &SAMPLE);

/// gatelog's parts, and this domain.
pub fn parts() -> gatelog::Parts {
    gatelog::Parts { domains: gatelog_hosting::domains().with(&HOSTED_SAMPLE) }
}
