//! Runs what a connection tells: listening and catching up, onto the intake.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatelog_driver_contract::{Batch, Heard, Intake, Listening, Sink, Trouble, chain};
use gatelog_event_log::{Log, LogError, failpoint};
use gatelog_record::input::IntakeInput;
use gatelog_record::{InputId, InputRecord, Stream};

use super::troubles::Troubles;

/// The projects of a connection that tenants have, by their names there.
pub type Wanted = Box<dyn Fn() -> BTreeSet<String> + Send>;

/// How often it is looked whether the projects are there that tenants have.
const WANTED_EVERY: Duration = Duration::from_secs(5);
/// How long one wait for news lasts at most: the end of the process is noticed after it.
const GLANCE: Duration = Duration::from_millis(250);
/// How long after trouble a connection is asked again that is not looked at every so often.
const PAUSE: Duration = Duration::from_secs(5);
/// The file of a part without a name.
const WHOLE: &str = ".whole.json";

/// Watches a connection and puts what happens onto the intake.
pub struct Watch {
    name: String,
    intake: Arc<dyn Intake>,
    keeping: Keeping,
    wanted: Wanted,
}

/// What the events of a connection are kept with.
struct Keeping {
    name: String,
    log: Arc<dyn Log>,
    places: PathBuf,
    stop: Arc<AtomicBool>,
    troubles: Arc<Troubles>,
}

impl Watch {
    /// Places are kept below `places`: a lost one only means that events are sent once more under the ids they had. What
    /// goes wrong is noted in `troubles`, also that a project is not there which tenants have (`wanted`).
    pub fn new(
        name: &str,
        intake: Arc<dyn Intake>,
        log: Arc<dyn Log>,
        places: PathBuf,
        (troubles, wanted): (Arc<Troubles>, Wanted),
        stop: Arc<AtomicBool>,
    ) -> Watch {
        let keeping = Keeping { name: name.to_owned(), log, places, stop, troubles };
        Watch { name: name.to_owned(), intake, keeping, wanted }
    }

    /// Runs until it is stopped: at every piece of news, and every so often without any.
    pub fn run(self) {
        let Watch { name, intake, mut keeping, wanted } = self;
        let troubles = Arc::clone(&keeping.troubles);
        let look_every = intake.look_every();
        let mut listening: Option<Box<dyn Listening + '_>> = None;
        let mut missed: Option<Instant> = None;
        let mut next_look = Some(Instant::now());
        while !keeping.stopping() {
            let now = Instant::now();
            if missed.is_none_or(|before| before.elapsed() >= WANTED_EVERY) {
                missed = Some(now);
                if let Ok(Some(there)) = intake.projects() {
                    troubles.there(&name, &there.iter().map(String::as_str).collect(), &wanted());
                }
            }
            if next_look.is_some_and(|at| at <= now) {
                let mut deaf = None;
                // First to listen, then to catch up: what happens in between is heard.
                if listening.is_none() {
                    match intake.listen() {
                        Ok(heard) => listening = Some(heard),
                        Err(trouble) => deaf = Some(trouble),
                    }
                }
                let came = intake.recover(&mut keeping);
                next_look = match (&came, &deaf) {
                    (Ok(()), None) => look_every.map(|every| now + every),
                    _ => Some(now + look_every.unwrap_or(PAUSE)),
                };
                note(&troubles, &name, came, deaf.filter(|_| look_every.is_none()));
            }
            let left = next_look.map_or(GLANCE, |at| at.saturating_duration_since(Instant::now())).min(GLANCE);
            match listening.as_mut().map(|listening| listening.next(left, &mut keeping)) {
                Some(Ok(Heard::Everything)) => {}
                Some(Ok(Heard::Gap)) => next_look = Some(Instant::now()),
                Some(Err(trouble)) => {
                    tracing::warn!(connection = name, error = %trouble, "news is not heard at once");
                    listening = None;
                    let again = Instant::now() + look_every.unwrap_or(PAUSE);
                    next_look = Some(next_look.map_or(again, |at| at.min(again)));
                    std::thread::sleep(left);
                }
                None => std::thread::sleep(left),
            }
        }
    }
}

/// Notes how the connection as a whole is.
fn note(troubles: &Troubles, name: &str, came: Result<(), Trouble>, deaf: Option<Trouble>) {
    let came = came.and_then(|()| deaf.map_or(Ok(()), Err)).map_err(|trouble| trouble.message);
    if let Err(error) = &came {
        tracing::warn!(connection = name, error, "the connection cannot be asked; it is tried again");
    }
    troubles.looked(name, "", &came);
}

impl Keeping {
    fn file(&self, part: &str) -> PathBuf {
        match part {
            "" => self.places.join(WHOLE),
            part => self.places.join(format!("{}.json", part.replace('/', "%2F"))),
        }
    }

    fn keep(&self, part: &str, batch: Batch) -> Result<(), String> {
        if !batch.events.is_empty() {
            let records = batch
                .events
                .into_iter()
                .map(|event| {
                    let key = format!("{}/{}", self.name, event.project);
                    let id = InputId::new(format!("{}/{}", self.name, event.delivery));
                    let input = IntakeInput::ForgeEvent(event);
                    let frame = InputRecord::new(id, key, crate::clock::now(), input).close();
                    frame.map(|frame| frame.encode()).map_err(|error| chain(&error))
                })
                .collect::<Result<Vec<_>, _>>()?;
            failpoint::pass("intake/found");
            let appended: Option<Result<_, LogError>> = self.log.append_inputs(Stream::Intake(0), records).wait();
            appended.ok_or("the log is closing")?.map_err(|error| chain(&error))?;
            failpoint::pass("intake/appended");
        }
        // Only now is the place kept: what dies in between is sent again under the same ids.
        let Some(place) = batch.place else { return Ok(()) };
        let file = self.file(part);
        // Of this process alone: another with this role may write its own at this moment.
        let new = file.with_extension(format!("{}.part", std::process::id()));
        std::fs::create_dir_all(&self.places)
            .and_then(|()| std::fs::write(&new, place))
            .and_then(|()| std::fs::rename(&new, &file))
            .map_err(|error| format!("{}: {error}", file.display()))
    }
}

impl Sink for Keeping {
    fn place(&mut self, part: &str) -> Option<Vec<u8>> {
        std::fs::read(self.file(part)).ok()
    }

    fn take(&mut self, part: &str, found: Result<Batch, Trouble>) -> Result<(), Trouble> {
        let looked = match found {
            Ok(batch) => self.keep(part, batch),
            Err(trouble) => Err(trouble.message),
        };
        self.troubles.looked(&self.name, part, &looked);
        looked.map_err(|error| {
            tracing::warn!(connection = self.name, part, error, "a look came to nothing; it is tried again");
            Trouble::new("intake", error).again(true)
        })
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use gatelog_event_log::MemoryLog;
    use gatelog_record::draft::intake::ForgeEvent;
    use gatelog_record::{InputFrame, Value};

    use super::*;

    /// A connection that ends what it listens to once, then may have missed something, then is stopped. It tells what
    /// there is up to how often it was looked at.
    #[derive(Default)]
    struct Scripted {
        said: Mutex<Vec<&'static str>>,
        stop: Arc<AtomicBool>,
    }

    impl Scripted {
        fn say(&self, what: &'static str) -> usize {
            let mut said = self.said.lock().unwrap();
            said.push(what);
            said.iter().filter(|one| **one == what).count()
        }
    }

    fn event(number: usize) -> ForgeEvent {
        ForgeEvent {
            connection: "there".into(),
            project: "there.test/app".into(),
            event: "ref-updated".into(),
            branch: None,
            git_ref: "refs/heads/master".into(),
            change: None,
            patchset: None,
            commit: None,
            old_commit: None,
            attributes: Value::Null,
            delivery: number.to_string(),
            raw: None,
        }
    }

    impl Intake for Scripted {
        fn recover(&self, sink: &mut dyn Sink) -> Result<(), Trouble> {
            let looked = self.say("look");
            let known: usize = sink.place("a/b").map_or(0, |place| String::from_utf8(place).unwrap().parse().unwrap());
            let events = (known + 1..=looked).map(event).collect();
            sink.take("a/b", Ok(Batch { events, place: Some(looked.to_string().into_bytes()) }))
        }
        fn listen(&self) -> Result<Box<dyn Listening + '_>, Trouble> {
            self.say("listen");
            Ok(Box::new(Ears(self)))
        }
        fn look_every(&self) -> Option<Duration> {
            // Long enough to be no reason of a look here, short enough to try again after trouble.
            Some(Duration::from_millis(200))
        }
    }

    struct Ears<'s>(&'s Scripted);

    impl Listening for Ears<'_> {
        fn next(&mut self, _: Duration, _: &mut dyn Sink) -> Result<Heard, Trouble> {
            match self.0.say("next") {
                1 => Err(Trouble::new("closed", "the other side closed")),
                2 => Ok(Heard::Gap),
                _ => {
                    self.0.stop.store(true, Ordering::Relaxed);
                    Ok(Heard::Everything)
                }
            }
        }
    }

    #[test]
    fn it_listens_first_then_catches_up_and_does_so_again_after_trouble_and_after_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        let log = Arc::new(MemoryLog::default());
        let intake = Arc::new(Scripted::default());
        let troubles: Arc<Troubles> = Arc::default();
        let telling: (_, Wanted) = (Arc::clone(&troubles), Box::new(BTreeSet::new));
        let (places, stop) = (dir.path().join("there"), Arc::clone(&intake.stop));
        Watch::new("there", Arc::clone(&intake) as _, Arc::clone(&log) as _, places.clone(), telling, stop).run();
        let said = intake.said.lock().unwrap().clone();
        assert_eq!(said, ["listen", "look", "next", "listen", "look", "next", "look", "next"]);
        // Each event once, with the place kept behind the last.
        let records = log.records(Stream::Intake(0));
        let ids: Vec<InputId> =
            records.iter().map(|record| InputFrame::decode(&record.bytes).unwrap().input_id).collect();
        assert_eq!(ids, ["there/1", "there/2", "there/3"].map(InputId::new));
        assert_eq!(std::fs::read_to_string(places.join("a%2Fb.json")).unwrap(), "3");
        assert!(troubles.parts().is_empty(), "{:?}", troubles.parts());
    }
}
