//! How the site is, for three who ask:
//!
//! - `health`, for those who look after the site and their alarms: every part, what is wrong and the cure. 503 only
//!   when a part has **stopped** and will not go on until somebody does something. What is `yellow` (one input was
//!   refused, a cloud answers with errors) works on and is 200: an alarm for it looks at `state`;
//! - `health/ready`, for load balancers: 200 when this process can answer reads as of now, 503 while it catches up
//!   with the log, once its folds have stopped or end, and while it drains or stops: it still answers then, but whoever
//!   is sent to it next may find nobody. The `reason` says which. Whether writers elsewhere run says nothing about that;
//! - `health/live`, for those who start processes again: 200 whenever the process answers at all. A stopped part is no
//!   reason to be killed: it stops for what a restart would only meet again, and the reads go on meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gatelog_record::Timestamp;
use gatelog_room::Lack;
use gatelog_runner::{Fold, Health};

use crate::answers::{self, Part, Ready};
use crate::reading::App;
use crate::site::{Component, PartHealth};

/// The state of a part that does not go on by itself.
const STOPPED: &str = "stopped";

/// How often it is looked how parts are, so that it is known since when.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Since when parts and processes are in the state they are in, as this process has seen it: by name, state and moment.
#[derive(Default)]
pub(crate) struct Since(Mutex<BTreeMap<String, (String, Timestamp)>>);

impl Since {
    /// Notes the states of now; what is not among them is forgotten. Says since when each is as it is, in their order.
    fn note(&self, kind: &str, states: &[(String, String)]) -> Vec<Timestamp> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let named = |name: &str| format!("{kind} {name}");
        let there: Vec<String> = states.iter().map(|(name, _)| named(name)).collect();
        known.retain(|name, _| !name.starts_with(kind) || there.contains(name));
        let mut since = Vec::with_capacity(states.len());
        for ((_, state), name) in states.iter().zip(there) {
            let entry = known.entry(name).or_insert_with(|| (state.clone(), now()));
            if entry.0 != *state {
                *entry = (state.clone(), now());
            }
            since.push(entry.1);
        }
        since
    }
}

/// The clock.
pub(crate) fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_microsecond())
}

/// Looks how parts and processes are, as long as the API is there: since when is only known to who looks.
pub(crate) fn watch(app: &Arc<App>) {
    let app = Arc::downgrade(app);
    let looking = std::thread::Builder::new().name("parts".into()).spawn(move || {
        while let Some(app) = app.upgrade() {
            let _ = (parts_since(&app), components_since(&app));
            drop(app);
            std::thread::sleep(LOOK_EVERY);
        }
    });
    if let Err(error) = looking {
        tracing::warn!(%error, "since when parts are as they are is known from when it is asked first");
    }
}

/// Every part, and since when it is as it is.
pub(crate) fn parts_since(app: &App) -> Vec<(PartHealth, Timestamp)> {
    let mut parts = folds(app);
    parts.extend(app.site.health.parts());
    let states: Vec<_> = parts.iter().map(|part| (part.part.clone(), part.state.clone())).collect();
    let since = app.since.note("part", &states);
    parts.into_iter().zip(since).collect()
}

/// Every process, and since when it is as it is.
pub(crate) fn components_since(app: &App) -> Vec<(Component, Timestamp)> {
    let present = app.site.components.present();
    let state = |one: &Component| format!("{} {}", one.state.name(), one.silent);
    let states: Vec<_> = present.iter().map(|one| (one.name.clone(), state(one))).collect();
    let since = app.since.note("process", &states);
    present.into_iter().zip(since).collect()
}

/// The document, and whether a part has stopped.
pub(crate) fn document(app: &App) -> (bool, answers::Health) {
    let mut parts = folds(app);
    parts.extend(app.site.health.parts());
    let stopped = parts.iter().any(|part| !part.well && part.state == STOPPED);
    let state = match parts.iter().all(|part| part.well) {
        true => "well",
        false if stopped => STOPPED,
        false => "yellow",
    };
    let (state, version) = (state.to_owned(), app.site.version.clone());
    let document = answers::Health { state, version, positions: app.now().positions(), parts: told(parts) };
    (stopped, document)
}

/// Whether reads can be answered as of now, and what says so.
pub(crate) fn ready(app: &App) -> (bool, Ready) {
    let parts = folds(app);
    let folds = app.site.folds.iter().zip(&parts);
    let behind = folds.into_iter().find(|(fold, _)| !matches!(fold.published().health(), Health::Following));
    let behind = behind.map(|(_, part)| format!("{} is {}", part.part, part.state));
    let reason = app.site.leaving.why().or(behind);
    (reason.is_none(), Ready { ready: reason.is_none(), reason, parts: told(parts) })
}

fn told(parts: Vec<PartHealth>) -> Vec<Part> {
    let one = |part: PartHealth| Part { part: part.part, well: part.well, state: part.state, detail: part.detail };
    parts.into_iter().map(one).collect()
}

fn folds(app: &App) -> Vec<PartHealth> {
    app.site.folds.iter().map(|one| fold(&**one)).collect()
}

fn fold(fold: &dyn Fold) -> PartHealth {
    let (well, state, detail) = match fold.published().health() {
        Health::CatchingUp => (true, "catching-up", String::new()),
        Health::Following => (true, "following", String::new()),
        Health::Stopped(error) => (false, STOPPED, with_cure(error.to_string())),
        Health::Ended => (false, "ended", "gatelog is going down".to_owned()),
    };
    PartHealth { part: format!("fold {}", fold.partition()), well, state: state.to_owned(), detail }
}

/// What is wrong with a fold, and what helps where that is room. RocksDB goes on once a write buffer of 8 MB fits.
fn with_cure(detail: String) -> String {
    match Lack::of_text(&detail) {
        Some(Lack::Disk) => {
            format!("{}; make room, 32 MB at least: it then goes on by itself", Lack::named(&detail))
        }
        Some(lack) => format!("{}; {}: it then goes on by itself", Lack::named(&detail), lack.cure()),
        None => detail,
    }
}
