//! Presence: who is there now. No part of history; it goes stale within seconds and is forgotten after a day.
//!
//! # Operations
//! - [`Presence::sign`]: a component says that it is there, with whatever others need to know of it.
//! - [`Presence::withdraw`]: it says goodbye.
//! - [`Presence::signs`]: the newest sign of each component that anybody has given and not withdrawn.
//!
//! # Guarantees
//! - **Written or an error.** When `sign` or `withdraw` has returned `Ok`, every process that can read this presence
//!   will see it, soon. Neither waits for long when the other side does not answer: a component that cannot sign has to
//!   know it.
//! - **The newest replaces.** Of one component's signs, given one after the other, only the newest is seen.
//! - **Age is what this process saw.** [`Sign::age`] is measured by the monotonic clock of the process that asks, never
//!   by comparing two machines' clocks once it is following: it is the time since this process saw the sign come. Any
//!   sign makes a component young again, also one with the same body.
//! - **Blind time does not count.** While a process cannot see signs, [`Presence::signs`] is an error, and that time
//!   makes nobody older afterwards: who was young before an outage is as young after it.
//!
//! # Non-guarantees
//! - Not at once: even the process that signed may see it a little later.
//! - Nothing about what happened in between: who went away and came back between two looks was there.
//! - A sign does not outlive what keeps it: the memory's ends with the process. None is seen for more than a day.
//! - Beyond [`MAX_COMPONENTS`] components, or [`MAX_BYTES`] of bodies, those not heard of for longest are forgotten.
//!
//! # Failures
//! [`LogError::TooLarge`] and `System`, as for the log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::contract::LogError;

/// The longest name of a component, in bytes.
pub const MAX_COMPONENT: usize = 200;

/// The largest body of a sign, in bytes.
pub const MAX_BODY: usize = 64 << 10;

/// How many components are kept in mind.
pub const MAX_COMPONENTS: usize = 4_096;

/// How many bytes of bodies are kept in mind.
pub const MAX_BYTES: usize = 64 << 20;

/// After this time a sign is forgotten.
pub const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The newest sign of one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sign {
    /// Who gave it.
    pub component: String,
    /// What it said.
    pub body: Vec<u8>,
    /// How long ago this process saw it come.
    pub age: Duration,
}

/// Who is there.
pub trait Presence: Send + Sync {
    /// Says that this component is there; replaces what it said before.
    ///
    /// # Errors
    /// `TooLarge`; `System` for a name that is none, or when it could not be written.
    fn sign(&self, component: &str, body: Vec<u8>) -> Result<(), LogError>;

    /// Says that this component is gone. It need not have been there.
    ///
    /// # Errors
    /// As for [`Presence::sign`].
    fn withdraw(&self, component: &str) -> Result<(), LogError>;

    /// The newest sign of each component, ordered by name.
    ///
    /// # Errors
    /// `System` when what is known is no longer what is there.
    fn signs(&self) -> Result<Vec<Sign>, LogError>;
}

/// Checks what every implementation checks before it signs.
///
/// # Errors
/// `TooLarge`; `System` for a name that is none.
pub fn check_sign(component: &str, body: &[u8]) -> Result<(), LogError> {
    let wrong = match component.len() {
        0 => Some("it is empty".to_owned()),
        length if length > MAX_COMPONENT => Some(format!("it has {length} bytes, at most {MAX_COMPONENT} are taken")),
        _ if component.chars().any(char::is_control) => Some("it has control characters".to_owned()),
        _ => None,
    };
    if let Some(why) = wrong {
        let name: String = component.chars().take(40).collect();
        let message = format!("{why}: choose another name for the component");
        return Err(LogError::System { what: format!("presence of a component named {name:?}"), message });
    }
    if body.len() > MAX_BODY {
        return Err(LogError::TooLarge { size: body.len() as u64, limit: MAX_BODY as u64 });
    }
    Ok(())
}

/// What a process keeps in mind of the signs it has seen, within limits. Moments are those of its monotonic clock.
#[derive(Debug, Default)]
pub struct Signs {
    kept: BTreeMap<String, Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    body: Vec<u8>,
    /// How old it was when it was noted, and when that was.
    age: Duration,
    at: Duration,
}

impl Kept {
    fn age(&self, now: Duration) -> Duration {
        self.age.saturating_add(now.saturating_sub(self.at))
    }
}

impl Signs {
    /// A sign came that is so old already.
    pub fn note(&mut self, component: &str, body: Vec<u8>, age: Duration, now: Duration) {
        self.forget(component);
        self.bytes += body.len();
        self.kept.insert(component.to_owned(), Kept { body, age, at: now });
        while self.kept.len() > MAX_COMPONENTS || self.bytes > MAX_BYTES {
            let oldest = self.kept.iter().max_by_key(|(_, kept)| kept.age(now)).map(|(component, _)| component.clone());
            let Some(oldest) = oldest else { break };
            self.forget(&oldest);
        }
    }

    /// A component withdrew.
    pub fn forget(&mut self, component: &str) {
        if let Some(kept) = self.kept.remove(component) {
            self.bytes -= kept.body.len();
        }
    }

    /// Between these moments no sign could be seen: nobody grew older.
    pub fn was_blind(&mut self, from: Duration, to: Duration) {
        for kept in self.kept.values_mut().filter(|kept| kept.at <= from) {
            kept.at += to.saturating_sub(from);
        }
    }

    /// What is known, ordered by component.
    pub fn list(&mut self, now: Duration) -> Vec<Sign> {
        let too_old = |kept: &Kept| kept.age(now) > MAX_AGE;
        while let Some(component) = self.kept.iter().find(|(_, kept)| too_old(kept)).map(|(name, _)| name.clone()) {
            self.forget(&component);
        }
        let sign = |(component, kept): (&String, &Kept)| Sign {
            component: component.clone(),
            body: kept.body.clone(),
            age: kept.age(now),
        };
        self.kept.iter().map(sign).collect()
    }
}

/// A monotonic clock: the time since some moment that stays the same.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Presence within one process: for one that runs all roles, for tests and for the simulated world. Clones are the same.
#[derive(Clone)]
pub struct MemoryPresence {
    clock: Clock,
    shared: Arc<Mutex<MemoryInner>>,
}

#[derive(Default)]
struct MemoryInner {
    signs: Signs,
    fail: Option<LogError>,
}

impl MemoryPresence {
    /// Nobody is there yet. The clock is the caller's: this crate has none.
    pub fn new(clock: impl Fn() -> Duration + Send + Sync + 'static) -> MemoryPresence {
        MemoryPresence { clock: Arc::new(clock), shared: Arc::default() }
    }

    /// From now on every operation fails with this error; with `None` they work again. Signs get no older meanwhile
    /// than the clock says: what is blind time is for the test to say.
    pub fn fail(&self, error: Option<LogError>) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).fail = error;
    }

    fn with<T>(&self, act: impl FnOnce(&mut Signs, Duration) -> T) -> Result<T, LogError> {
        let now = (self.clock)();
        let mut inner = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match &inner.fail {
            Some(error) => Err(error.clone()),
            None => Ok(act(&mut inner.signs, now)),
        }
    }
}

impl Presence for MemoryPresence {
    fn sign(&self, component: &str, body: Vec<u8>) -> Result<(), LogError> {
        check_sign(component, &body)?;
        self.with(|signs, now| signs.note(component, body, Duration::ZERO, now))
    }

    fn withdraw(&self, component: &str) -> Result<(), LogError> {
        check_sign(component, &[])?;
        self.with(|signs, _| signs.forget(component))
    }

    fn signs(&self) -> Result<Vec<Sign>, LogError> {
        self.with(Signs::list)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::conformance::PresenceHarness;

    const SECOND: Duration = Duration::from_secs(1);

    struct InMemory {
        presence: MemoryPresence,
        millis: Arc<AtomicU64>,
    }

    fn in_memory() -> InMemory {
        let millis = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&millis);
        let presence = MemoryPresence::new(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
        InMemory { presence, millis }
    }

    impl PresenceHarness for InMemory {
        fn presence(&self) -> Arc<dyn Presence> {
            Arc::new(self.presence.clone())
        }
        fn another(&mut self) -> Arc<dyn Presence> {
            Arc::new(self.presence.clone())
        }
        fn pass(&mut self, time: Duration) {
            self.millis.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
        }
    }

    crate::presence_conformance!(|| Some(in_memory()));

    fn names(signs: &mut Signs, now: Duration) -> Vec<String> {
        signs.list(now).into_iter().map(|sign| sign.component).collect()
    }

    #[test]
    fn who_was_not_heard_of_for_longest_makes_room() {
        let mut signs = Signs::default();
        for number in 0..MAX_COMPONENTS {
            signs.note(&format!("{number}"), vec![0; 10], Duration::ZERO, SECOND * number as u32);
        }
        let now = SECOND * MAX_COMPONENTS as u32;
        signs.note("0", b"again".to_vec(), Duration::ZERO, now);
        assert_eq!(names(&mut signs, now).len(), MAX_COMPONENTS);
        signs.note("new", vec![], Duration::ZERO, now);
        let left = names(&mut signs, now);
        assert_eq!(left.len(), MAX_COMPONENTS);
        assert!(left.contains(&"0".to_owned()) && left.contains(&"new".to_owned()) && !left.contains(&"1".to_owned()));
    }

    #[test]
    fn bodies_have_a_limit_together() {
        let mut signs = Signs::default();
        let most = MAX_BYTES / MAX_BODY;
        for number in 0..most + 3 {
            signs.note(&format!("{number:04}"), vec![0; MAX_BODY], Duration::ZERO, SECOND * number as u32);
        }
        let left = names(&mut signs, SECOND * most as u32);
        assert_eq!((left.len(), left.first().map(String::as_str)), (most, Some("0003")));
    }

    #[test]
    fn nobody_is_remembered_for_more_than_a_day() {
        let mut signs = Signs::default();
        signs.note("old", vec![], MAX_AGE - SECOND, SECOND);
        signs.note("young", vec![], Duration::ZERO, SECOND);
        assert_eq!(names(&mut signs, SECOND * 2), ["old", "young"]);
        assert_eq!(names(&mut signs, SECOND * 3), ["young"]);
    }

    #[test]
    fn blind_time_makes_nobody_older() {
        let mut signs = Signs::default();
        signs.note("before", vec![], SECOND, SECOND * 10);
        signs.note("after", vec![], SECOND, SECOND * 95);
        signs.was_blind(SECOND * 20, SECOND * 90);
        let ages: Vec<_> = signs.list(SECOND * 100).into_iter().map(|sign| (sign.component, sign.age)).collect();
        assert_eq!(ages, [("after".to_owned(), SECOND * 6), ("before".to_owned(), SECOND * 21)]);
    }

    #[test]
    fn a_presence_that_fails_says_so_until_it_works_again() {
        let presence = in_memory().presence;
        let error = LogError::System { what: "presence".to_owned(), message: "no broker".to_owned() };
        presence.fail(Some(error.clone()));
        assert_eq!(presence.sign("a", vec![]), Err(error.clone()));
        assert_eq!(presence.signs(), Err(error));
        presence.fail(None);
        assert_eq!(presence.sign("a", vec![]), Ok(()));
        assert_eq!(presence.signs().map(|signs| signs.len()), Ok(1));
    }
}
