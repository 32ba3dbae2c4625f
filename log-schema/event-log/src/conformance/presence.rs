//! The suite that every presence passes.

use std::sync::Arc;
use std::time::Duration;

use super::{Outcome, PATIENCE};
use crate::contract::LogError;
use crate::presence::{MAX_BODY, MAX_COMPONENT, Presence, Sign};

/// One presence under test, with nobody there yet. A fresh one for each case.
pub trait PresenceHarness {
    /// It, as this process has it.
    fn presence(&self) -> Arc<dyn Presence>;
    /// The same as a process has it that starts now.
    fn another(&mut self) -> Arc<dyn Presence>;
    /// Lets this time pass, for all who measure ages.
    fn pass(&mut self, time: Duration);
}

/// One promise.
#[derive(Clone, Copy)]
pub struct PresenceCase {
    /// Its name.
    pub name: &'static str,
    /// Tries it.
    pub run: fn(&mut dyn PresenceHarness) -> Outcome,
}

macro_rules! cases {
    ($($name:ident,)*) => {
        /// Every case of the suite for presence.
        pub const PRESENCE_CASES: &[PresenceCase] = &[$(PresenceCase { name: stringify!($name), run: $name }),*];
    };
}

cases! {
    at_first_nobody_is_there,
    the_newest_sign_of_each_component_is_seen,
    who_withdraws_is_gone_and_may_come_back,
    age_grows_until_the_next_sign,
    other_processes_see_the_same,
    what_is_too_large_or_has_no_name_is_refused,
}

/// Runs one case by its name; for [`crate::presence_conformance`].
pub fn run_presence(name: &str, harness: &mut dyn PresenceHarness) -> Outcome {
    let case = PRESENCE_CASES.iter().find(|case| case.name == name).expect("a case of the suite");
    (case.run)(harness)
}

/// One test for each case of the suite for presence. The argument is an expression that gives a fresh
/// `Option<impl PresenceHarness>` each time it is called; for `None` the case has been skipped, and whoever gives it has
/// said why.
#[macro_export]
macro_rules! presence_conformance {
    ($make:expr) => {
        $crate::presence_conformance!(@each $make;
            at_first_nobody_is_there
            the_newest_sign_of_each_component_is_seen
            who_withdraws_is_gone_and_may_come_back
            age_grows_until_the_next_sign
            other_processes_see_the_same
            what_is_too_large_or_has_no_name_is_refused
        );
    };
    (@each $make:expr; $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let Some(mut harness) = ($make)() else { return };
                match $crate::conformance::run_presence(stringify!($name), &mut harness) {
                    $crate::conformance::Outcome::Passed => {}
                    $crate::conformance::Outcome::Skipped(why) => {
                        println!("SKIPPED {}: {why}", stringify!($name));
                    }
                }
            }
        )*

        #[test]
        fn every_case_of_the_presence_suite_is_a_test_here() {
            let here = [$(stringify!($name)),*];
            let all: Vec<&str> = $crate::conformance::PRESENCE_CASES.iter().map(|case| case.name).collect();
            assert_eq!(all, here);
        }
    };
}

const STEP: Duration = Duration::from_millis(20);

/// What is seen, once it is what is wanted.
#[track_caller]
fn seen(harness: &mut dyn PresenceHarness, presence: &dyn Presence, wanted: &[(&str, &[u8])]) -> Vec<Sign> {
    let mut waited = Duration::ZERO;
    loop {
        let signs = presence.signs().expect("signs can be read");
        let here: Vec<(&str, &[u8])> = signs.iter().map(|sign| (sign.component.as_str(), &sign.body[..])).collect();
        if here == wanted {
            return signs;
        }
        assert!(waited < PATIENCE, "seen are {here:?}, not {wanted:?}");
        harness.pass(STEP);
        waited += STEP;
    }
}

#[track_caller]
fn sign(presence: &dyn Presence, component: &str, body: &[u8]) {
    presence.sign(component, body.to_vec()).expect("a sign can be given");
}

fn at_first_nobody_is_there(harness: &mut dyn PresenceHarness) -> Outcome {
    assert_eq!(harness.presence().signs(), Ok(vec![]));
    assert_eq!(harness.presence().withdraw("never seen"), Ok(()));
    assert_eq!(harness.another().signs(), Ok(vec![]));
    Outcome::Passed
}

fn the_newest_sign_of_each_component_is_seen(harness: &mut dyn PresenceHarness) -> Outcome {
    let presence = harness.presence();
    for (component, body) in
        [("web-1", "a"), ("executor-1", "b"), ("web-1", "c"), ("größe 🦀", ""), ("executor-1", "d")]
    {
        sign(&*presence, component, body.as_bytes());
    }
    let wanted: [(&str, &[u8]); 3] = [("executor-1", b"d"), ("größe 🦀", b""), ("web-1", b"c")];
    seen(harness, &*presence, &wanted);
    Outcome::Passed
}

fn who_withdraws_is_gone_and_may_come_back(harness: &mut dyn PresenceHarness) -> Outcome {
    let presence = harness.presence();
    sign(&*presence, "stays", b"1");
    sign(&*presence, "goes", b"2");
    seen(harness, &*presence, &[("goes", b"2"), ("stays", b"1")]);
    assert_eq!(presence.withdraw("goes"), Ok(()));
    assert_eq!(presence.withdraw("goes"), Ok(()), "again is no error");
    seen(harness, &*presence, &[("stays", b"1")]);
    let late = harness.another();
    seen(harness, &*late, &[("stays", b"1")]);
    sign(&*presence, "goes", b"3");
    seen(harness, &*presence, &[("goes", b"3"), ("stays", b"1")]);
    Outcome::Passed
}

fn age_grows_until_the_next_sign(harness: &mut dyn PresenceHarness) -> Outcome {
    let presence = harness.presence();
    sign(&*presence, "one", b"the same");
    sign(&*presence, "two", b"the same");
    let both: [(&str, &[u8]); 2] = [("one", b"the same"), ("two", b"the same")];
    seen(harness, &*presence, &both);
    let a_while = Duration::from_millis(2_500);
    harness.pass(a_while);
    let signs = seen(harness, &*presence, &both);
    assert!(signs.iter().all(|sign| sign.age >= a_while), "{signs:?}");
    // The body says nothing new, but it is a sign.
    sign(&*presence, "one", b"the same");
    let mut waited = Duration::ZERO;
    loop {
        let ages: Vec<Duration> = seen(harness, &*presence, &both).iter().map(|sign| sign.age).collect();
        if ages[0] < a_while && ages[1] >= a_while {
            return Outcome::Passed;
        }
        assert!(waited < PATIENCE, "one has signed again and two has not: {ages:?}");
        harness.pass(STEP);
        waited += STEP;
    }
}

fn other_processes_see_the_same(harness: &mut dyn PresenceHarness) -> Outcome {
    let here = harness.presence();
    let there = harness.another();
    sign(&*here, "a", b"1");
    sign(&*there, "b", b"1");
    let both: [(&str, &[u8]); 2] = [("a", b"1"), ("b", b"1")];
    seen(harness, &*here, &both);
    seen(harness, &*there, &both);
    // One that starts later sees who signed before, and does not take an old sign for a fresh one.
    let a_while = Duration::from_millis(1_500);
    harness.pass(a_while);
    let late = harness.another();
    let signs = seen(harness, &*late, &both);
    assert!(signs.iter().all(|sign| sign.age >= a_while), "{signs:?}");
    Outcome::Passed
}

fn what_is_too_large_or_has_no_name_is_refused(harness: &mut dyn PresenceHarness) -> Outcome {
    let presence = harness.presence();
    let too_large = LogError::TooLarge { size: MAX_BODY as u64 + 1, limit: MAX_BODY as u64 };
    assert_eq!(presence.sign("a", vec![0; MAX_BODY + 1]), Err(too_large));
    for wrong in ["", "a\nb", "a\u{0}", &"x".repeat(MAX_COMPONENT + 1)] {
        for refused in [presence.sign(wrong, vec![]), presence.withdraw(wrong)] {
            assert!(matches!(refused, Err(LogError::System { .. })), "{wrong:?}: {refused:?}");
        }
    }
    let longest = "x".repeat(MAX_COMPONENT);
    sign(&*presence, &longest, &vec![7; MAX_BODY]);
    seen(harness, &*presence, &[(&longest, &vec![7; MAX_BODY])]);
    Outcome::Passed
}
