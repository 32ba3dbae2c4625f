//! Signs of life, and the verdict on who gives none.
//!
//! Signs themselves are no history; only the verdict is an input. Every process gives one under its name, with what
//! others need to know of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gatelog_effects::connection::chain;
use gatelog_effects::dispatch::Duty;
use gatelog_effects::share::Peers;
use gatelog_event_log::presence::Sign;
use gatelog_event_log::{LogError, Presence};
use gatelog_record::draft::capacity::WorkerSilent;
use gatelog_record::input::CapacityInput;
use gatelog_record::{InputId, InputRecord, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::governors::Held;
use crate::roles::Role;

/// How often a process gives a sign.
pub const SIGN_EVERY: Duration = Duration::from_secs(3);
/// After this long without one, it is taken for dead.
pub const SILENT_AFTER: Duration = Duration::from_secs(30);
/// A process that could not give one for so long says so in its health.
const CUT_OFF_AFTER: Duration = Duration::from_secs(8);
/// A worker that could not give one for so long takes itself for dead, before others do.
pub const MUTE_AFTER: Duration = Duration::from_secs(20);

/// How a process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It catches up with the log.
    Initializing,
    /// It does what its roles do; also what is meant by signs that do not say.
    #[default]
    Running,
    /// It ends.
    Stopped,
}

/// What a process says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Drawn anew at each start; of a worker, the start that its leases belong to.
    pub incarnation: String,
    /// Its roles.
    pub roles: Vec<Role>,
    /// How it is.
    #[serde(default)]
    pub state: State,
    /// Where consoles of its builds can be had, if it runs any.
    pub address: Option<String>,
    /// Its API, if it has one.
    pub web: Option<String>,
    /// Its gatelog.
    pub version: String,
    /// The newest level of records it knows; 0 of a gatelog from before this was told.
    #[serde(default)]
    pub level: u32,
    /// Whether it takes nothing new and ends once it has done what it has begun.
    #[serde(default)]
    pub draining: bool,
    /// Those of its roles that somebody has paused.
    #[serde(default)]
    pub paused: Vec<Role>,
    /// How many builds it runs at once.
    pub slots: u32,
    /// Why its executor takes no builds now; nothing: it does.
    #[serde(default)]
    pub held: Vec<Held>,
    /// The zone of its executor.
    #[serde(default)]
    pub zone: Option<String>,
    /// Whether that also runs builds that are for no zone.
    #[serde(default = "yes")]
    pub allow_unzoned: bool,
    /// When it was started, in microseconds since 1970, by its own clock.
    pub started_at: i64,
}

fn yes() -> bool {
    true
}

impl Component {
    /// What a sign says. Of one that cannot be read as a whole, what can be: it is another release's, and that it is there,
    /// as which start of itself and with what level, is to be known all the same.
    fn read(sign: &Sign) -> Component {
        if let Ok(component) = serde_json::from_slice(&sign.body) {
            return component;
        }
        let told: Json = serde_json::from_slice(&sign.body).unwrap_or_default();
        let text = |key: &str| told[key].as_str().map(str::to_owned);
        let number = |key: &str| told[key].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
        let roles = told["roles"].as_array().map(Vec::as_slice).unwrap_or_default();
        Component {
            name: sign.component.clone(),
            incarnation: text("incarnation").unwrap_or_default(),
            roles: roles.iter().filter_map(|role| serde_json::from_value(role.clone()).ok()).collect(),
            state: State::default(),
            address: text("address"),
            web: text("web"),
            version: text("version").unwrap_or_else(|| "of an unknown version".to_owned()),
            level: number("level"),
            draining: false,
            paused: Vec::new(),
            slots: number("slots"),
            held: serde_json::from_value(told["held"].clone()).unwrap_or_default(),
            zone: text("zone"),
            allow_unzoned: told["allow_unzoned"].as_bool().unwrap_or(true),
            started_at: told["started_at"].as_i64().unwrap_or_default(),
        }
    }

    /// Whether it takes nothing new in a role.
    fn is_away(&self, role: Role) -> bool {
        self.draining || self.paused.contains(&role)
    }
}

/// Gives the signs of this process, and knows who else gave one.
pub struct Signer {
    presence: Arc<dyn Presence>,
    own: Mutex<Component>,
    /// When a sign was given last; before the first, when this process began.
    signed: Mutex<Instant>,
    /// Why the last one could not be given.
    trouble: Mutex<Option<String>>,
    /// Who was there when that was known last.
    seen: Mutex<Vec<(Component, Duration)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Signer {
    /// For a process that has given none yet.
    pub fn new(presence: Arc<dyn Presence>, own: Component) -> Signer {
        let (signed, trouble, seen) = (Mutex::new(Instant::now()), Mutex::default(), Mutex::default());
        Signer { presence, own: Mutex::new(own), signed, trouble, seen }
    }

    /// What this process says of itself.
    pub fn own(&self) -> Component {
        lock(&self.own).clone()
    }

    /// Says how it is; a process that ends does not begin anew.
    pub fn is(&self, state: State) {
        let mut own = lock(&self.own);
        if own.state != State::Stopped {
            own.state = state;
        }
    }

    /// Changes it; said with the next sign.
    pub fn change(&self, change: impl FnOnce(&mut Component)) {
        change(&mut lock(&self.own));
    }

    /// Gives a sign; says whether it was taken.
    pub fn sign(&self) -> bool {
        let own = self.own();
        let signed = match serde_json::to_vec(&own) {
            Ok(body) => self.presence.sign(&own.name, body).map_err(|error| chain(&error)),
            Err(error) => Err(error.to_string()),
        };
        match signed {
            Ok(()) => {
                *lock(&self.signed) = Instant::now();
                *lock(&self.trouble) = None;
                true
            }
            Err(error) => {
                tracing::warn!(error, "a sign of life could not be given");
                *lock(&self.trouble) = Some(error);
                false
            }
        }
    }

    /// For how long no sign was given.
    pub fn mute_for(&self) -> Duration {
        lock(&self.signed).elapsed()
    }

    /// What keeps signs from being given, once that has lasted for so long that it is no slip. They go where the log
    /// goes and are kept as safely: what cannot take them takes no inputs and no events either.
    pub fn cut_off(&self) -> Option<String> {
        let mute = self.mute_for();
        let trouble = lock(&self.trouble).clone()?;
        let told =
            || format!("nothing could be written for {} s: {trouble}; what waits goes on by itself", mute.as_secs());
        (mute >= CUT_OFF_AFTER).then(told)
    }

    /// Says goodbye.
    pub fn withdraw(&self) {
        let name = self.own().name;
        if let Err(error) = self.presence.withdraw(&name) {
            tracing::warn!(error = %chain(&error), "goodbye could not be said; others notice by themselves");
        }
    }

    /// Who is there, with the age of each one's sign.
    ///
    /// # Errors
    /// When that is not known now.
    pub fn look(&self) -> Result<Vec<(Component, Duration)>, LogError> {
        let signs = self.presence.signs()?;
        let seen: Vec<(Component, Duration)> = signs.iter().map(|sign| (Component::read(sign), sign.age)).collect();
        lock(&self.seen).clone_from(&seen);
        Ok(seen)
    }

    /// Who is there, or was when that was known last.
    pub fn last_seen(&self) -> Vec<(Component, Duration)> {
        self.look().unwrap_or_else(|_| lock(&self.seen).clone())
    }
}

impl Peers for Signer {
    fn present(&self, duty: Duty) -> Vec<String> {
        let role = role_of(duty);
        let there = |(component, age): &(Component, Duration)| {
            *age < SILENT_AFTER && component.roles.contains(&role) && !component.is_away(role)
        };
        self.last_seen().into_iter().filter(there).map(|(component, _)| component.name).collect()
    }

    fn takes(&self, duty: Duty) -> bool {
        let own = self.own();
        // Who ends and has nobody to leave it to does it to the last.
        !own.paused.contains(&role_of(duty)) && (!own.draining || self.present(duty).is_empty())
    }
}

/// Whose a duty is.
fn role_of(duty: Duty) -> Role {
    match duty {
        Duty::Merge | Duty::Compute | Duty::Submit => Role::Merger,
        Duty::Review => Role::Connections,
    }
}

/// Who is silent for too long.
#[derive(Debug)]
pub struct Verdicts {
    began: Instant,
    /// Since when there has been no sign of a worker's start at all.
    missing: BTreeMap<(String, String), Instant>,
}

/// A worker as capacity knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownWorker {
    /// Its name.
    pub name: String,
    /// Which start of it.
    pub incarnation: String,
    /// When it joined: what is said of it names this, because the same start may join again.
    pub joined_at: Timestamp,
}

impl Verdicts {
    /// Of a process that begins now.
    pub fn new(now: Instant) -> Verdicts {
        Verdicts { began: now, missing: BTreeMap::new() }
    }

    /// It is not known who is there: whoever is missing is counted anew from when it is.
    pub fn blind(&mut self) {
        self.missing.clear();
    }

    /// Of the workers capacity knows, those that are silent for too long; nobody before this process is as old as that.
    pub fn silent(&mut self, known: &[KnownWorker], seen: &[(Component, Duration)], now: Instant) -> Vec<InputRecord> {
        self.missing.retain(|(name, incarnation), _| {
            known.iter().any(|worker| worker.name == *name && worker.incarnation == *incarnation)
        });
        let mut silent = Vec::new();
        for worker in known {
            let key = (worker.name.clone(), worker.incarnation.clone());
            let sign = seen
                .iter()
                .find(|(component, _)| component.name == worker.name && component.incarnation == worker.incarnation);
            let age = match sign {
                Some((_, age)) => {
                    self.missing.remove(&key);
                    *age
                }
                None => now.saturating_duration_since(*self.missing.entry(key).or_insert(now)),
            };
            if age < SILENT_AFTER || now.saturating_duration_since(self.began) < SILENT_AFTER {
                continue;
            }
            let KnownWorker { name, incarnation, joined_at } = worker;
            let input = CapacityInput::WorkerSilent(WorkerSilent {
                worker: name.clone(),
                incarnation: incarnation.clone(),
                silent_ms: i64::try_from(age.as_millis()).unwrap_or(i64::MAX),
            });
            let id = InputId::new(format!("worker/{name}/{incarnation}/silent/{}", joined_at.0));
            silent.push(InputRecord::new(id, "main", crate::clock::now(), input));
        }
        silent
    }
}

#[cfg(test)]
impl Component {
    /// One that runs, for tests.
    pub fn that_runs(name: &str, incarnation: &str, roles: &[Role]) -> Component {
        Component {
            name: name.into(),
            incarnation: incarnation.into(),
            roles: roles.to_vec(),
            state: State::Running,
            address: None,
            web: None,
            version: "1".into(),
            level: 0,
            draining: false,
            paused: Vec::new(),
            slots: 0,
            held: Vec::new(),
            zone: None,
            allow_unzoned: true,
            started_at: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use gatelog_event_log::MemoryPresence;

    use super::*;

    fn known(name: &str, incarnation: &str) -> KnownWorker {
        KnownWorker { name: name.into(), incarnation: incarnation.into(), joined_at: Timestamp(7) }
    }

    fn names(silent: &[InputRecord]) -> Vec<&str> {
        silent.iter().map(|record| record.input_id.as_str()).collect()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_worker_is_silent_thirty_seconds_after_its_last_sign_but_not_before_the_judge_is_as_old() {
        let began = Instant::now();
        let mut verdicts = Verdicts::new(began);
        let workers = [known("w1", "a"), known("w2", "b")];
        let old = |age| vec![(Component::that_runs("w1", "a", &[]), age)];
        assert_eq!(verdicts.silent(&workers, &old(SECOND * 40), began), []);
        assert_eq!(verdicts.silent(&workers, &old(SECOND * 29), began + SECOND * 29), []);
        let silent = verdicts.silent(&workers, &old(SECOND * 29), began + SECOND * 30);
        assert_eq!(names(&silent), ["worker/w2/b/silent/7"], "w2 was never heard of");
        let silent = verdicts.silent(&workers, &old(SECOND * 30), began + SECOND * 31);
        assert_eq!(names(&silent), ["worker/w1/a/silent/7", "worker/w2/b/silent/7"]);
    }

    #[test]
    fn another_start_of_a_worker_has_its_own_time_and_time_without_sight_does_not_count() {
        let began = Instant::now();
        let mut verdicts = Verdicts::new(began);
        let workers = [known("w1", "a")];
        let late = began + SECOND * 100;
        let another = vec![(Component::that_runs("w1", "new", &[]), SECOND)];
        assert_eq!(verdicts.silent(&workers, &another, late), [], "it may not have announced itself yet");
        verdicts.blind();
        assert_eq!(verdicts.silent(&workers, &another, late + SECOND * 31), []);
        assert_eq!(verdicts.silent(&workers, &another, late + SECOND * 60), []);
        assert_eq!(verdicts.silent(&workers, &another, late + SECOND * 61).len(), 1);
    }

    #[test]
    fn peers_are_those_of_the_role_who_gave_a_sign_lately() {
        let presence = Arc::new(MemoryPresence::new(|| Duration::ZERO));
        let signer = Signer::new(Arc::clone(&presence) as _, Component::that_runs("a", "1", &[Role::Merger]));
        let other =
            Signer::new(Arc::clone(&presence) as _, Component::that_runs("b", "1", &[Role::Merger, Role::Connections]));
        assert!(signer.sign() && other.sign());
        assert_eq!(signer.present(Duty::Submit), ["a", "b"]);
        assert_eq!(signer.present(Duty::Review), ["b"]);
        let error = LogError::System { what: "presence".into(), message: "gone".into() };
        presence.fail(Some(error));
        assert!(!signer.sign());
        assert_eq!(signer.cut_off(), None, "that may be a slip");
        *lock(&signer.signed) -= CUT_OFF_AFTER;
        assert!(signer.cut_off().is_some_and(|why| why.contains("for 8 s: presence: gone")), "{:?}", signer.cut_off());
        assert_eq!(signer.present(Duty::Review), ["b"], "as it was known last");
        presence.fail(None);
        assert!(signer.sign());
        assert_eq!(signer.cut_off(), None);
        other.withdraw();
        assert_eq!(signer.present(Duty::Review), Vec::<String>::new());
    }

    #[test]
    fn who_is_paused_or_drains_leaves_the_work_to_others() {
        let presence = Arc::new(MemoryPresence::new(|| Duration::ZERO));
        let signer =
            Signer::new(Arc::clone(&presence) as _, Component::that_runs("a", "1", &[Role::Merger, Role::Connections]));
        let other =
            Signer::new(Arc::clone(&presence) as _, Component::that_runs("b", "1", &[Role::Merger, Role::Connections]));
        other.change(|own| own.paused = vec![Role::Merger]);
        assert!(signer.sign() && other.sign());
        assert_eq!((signer.present(Duty::Merge), signer.present(Duty::Review).len()), (vec!["a".to_owned()], 2));
        assert_eq!((other.takes(Duty::Merge), other.takes(Duty::Review)), (false, true));
        signer.change(|own| own.draining = true);
        assert!(signer.sign());
        assert_eq!((other.present(Duty::Review), other.present(Duty::Compute)), (vec!["b".to_owned()], Vec::new()));
        assert!(!signer.takes(Duty::Review), "the other does it");
        assert!(signer.takes(Duty::Compute), "there is nobody it could leave it to");
    }

    #[test]
    fn an_older_release_tells_no_level_and_a_newer_one_may_tell_more_than_can_be_read() {
        let presence = Arc::new(MemoryPresence::new(|| Duration::ZERO));
        let signer = Signer::new(Arc::clone(&presence) as _, Component::that_runs("a", "1", &[Role::Web]));
        let older = r#"{"name":"old","incarnation":"i","roles":["merger"],"state":"running","address":null,"web":null,
            "version":"0.0.9","slots":0,"started_at":7}"#;
        let newer = r#"{"name":"new","incarnation":"n","roles":["merger","weaver"],"state":"dreaming","version":"9.1.0",
            "level":12}"#;
        for (name, body) in [("old", older), ("new", newer), ("odd", "no JSON at all")] {
            presence.sign(name, body.as_bytes().to_vec()).unwrap();
        }
        let seen = signer.look().unwrap();
        let told = |of: &str| {
            let component = seen.iter().map(|(component, _)| component).find(|one| one.name == of).unwrap();
            (component.incarnation.clone(), component.roles.clone(), component.version.clone(), component.level)
        };
        assert_eq!(told("old"), ("i".into(), vec![Role::Merger], "0.0.9".into(), 0));
        assert_eq!(told("new"), ("n".into(), vec![Role::Merger], "9.1.0".into(), 12));
        assert_eq!(told("odd"), (String::new(), Vec::new(), "of an unknown version".into(), 0));
    }
}
