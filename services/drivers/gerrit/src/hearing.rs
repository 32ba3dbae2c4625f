//! What happens at Gerrit, in the words of the contract.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use gatelog_driver_contract::{Batch as Told, Heard, Intake as Hears, Listening, Sink, Trouble};
use gatelog_record::Value;
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_secrets::Scope;
use serde::{Deserialize, Serialize};

use crate::client::Gerrit;
use crate::connection::GerritConnection;
use crate::events::EventVote;
use crate::fields::is_zero;
use crate::intake::{Batch, Delivery, Intake, IntakeSettings};
use crate::place::{LastOfChange, Place};

/// What is heard, and what of it was kept.
#[derive(Debug)]
pub(crate) struct Hearing {
    intake: Intake,
    /// Whether the last that was told was trouble.
    troubled: bool,
}

/// The place of the changes, which is that of the connection as a whole. Branches and tags have one for each project.
#[derive(Debug, Default, Serialize, Deserialize)]
struct OfChanges {
    at: u64,
    began: u64,
    looked: u64,
    changes: BTreeMap<u64, LastOfChange>,
}

/// The part of the connection that is no project.
const CHANGES: &str = "";

impl GerritConnection {
    fn hearing(&self) -> MutexGuard<'_, Option<Hearing>> {
        self.hearing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins where what was kept ends.
    fn begin(&self, sink: &mut dyn Sink) -> Result<Hearing, Trouble> {
        let gerrit = Gerrit::new(self.gerrit.config().clone()).map_err(|error| self.trouble(&error))?;
        let kept: OfChanges =
            sink.place(CHANGES).and_then(|place| serde_json::from_slice(&place).ok()).unwrap_or_default();
        let OfChanges { at, began, looked, changes } = kept;
        let place = Place { at, began, looked, changes, refs: BTreeMap::new() };
        let intake = Intake::new(gerrit, place, IntakeSettings::default());
        Ok(Hearing { intake, troubled: false })
    }

    /// Tells what came. Where it could not be kept, all that is known here is forgotten: it is told again from the place
    /// that was kept.
    fn hand_over(&self, hearing: &mut Hearing, batch: Batch, sink: &mut dyn Sink) -> Result<(), Trouble> {
        // Each part's place goes with the last of its events: what comes before it is kept before it.
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        let mut runs: Vec<(String, Vec<ForgeEvent>)> = Vec::new();
        for delivery in &batch.deliveries {
            let part = part_of(delivery);
            let event = self.event(delivery)?;
            match runs.last_mut() {
                Some((of, events)) if *of == part => events.push(event),
                _ => runs.push((part.clone(), vec![event])),
            }
            last.insert(part, runs.len() - 1);
        }
        for (at, (part, events)) in runs.into_iter().enumerate() {
            let place = if last.get(&part) == Some(&at) { self.place_of(hearing, &part)? } else { None };
            sink.take(&part, Ok(Told { events, place }))?;
        }
        if let Some(error) = batch.troubles.first() {
            hearing.troubled = true;
            sink.take(CHANGES, Err(self.trouble(error)))?;
        } else if std::mem::take(&mut hearing.troubled) {
            sink.take(CHANGES, Ok(Told::default()))?;
        }
        Ok(())
    }

    fn place_of(&self, hearing: &Hearing, part: &str) -> Result<Option<Vec<u8>>, Trouble> {
        let place = hearing.intake.place();
        let kept = if part == CHANGES {
            let changes = place.changes.clone();
            serde_json::to_vec(&OfChanges { at: place.at, began: place.began, looked: place.looked, changes })
        } else {
            match place.refs.get(part) {
                Some(refs) => serde_json::to_vec(refs),
                None => return Ok(None),
            }
        };
        kept.map(Some).map_err(|error| Trouble::lasting("place", &error))
    }

    /// An event in the gate's words: what rules ask for in plain fields, the line as it came under seal.
    fn event(&self, delivery: &Delivery) -> Result<ForgeEvent, Trouble> {
        let read = delivery.event.reading();
        let project = self.canonical(read.project.as_deref().unwrap_or_default());
        let commit = delivery.event.patchset.as_ref().map(|patchset| patchset.revision.clone());
        let raw = match &delivery.line {
            Some(line) => {
                let scope = Scope::intake(&self.name, (self.now)());
                let sealed = self.keyring.seal(&scope, line, project.as_bytes());
                Some(sealed.map_err(|error| Trouble::passing("keyring", &error))?)
            }
            None => None,
        };
        let mut attributes = BTreeMap::new();
        let account = read.account.unwrap_or_default();
        let texts = [
            ("comment", read.comment),
            ("username", account.username),
            ("email", account.email),
            ("topic", read.topic),
            ("uuid", read.check),
        ];
        attributes.extend(texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), Value::Str(text?)))));
        for (key, tags) in [("added", read.added), ("removed", read.removed)] {
            attributes
                .extend(tags.map(|tags| (key.to_owned(), Value::List(tags.into_iter().map(Value::Str).collect()))));
        }
        if !read.votes.is_empty() {
            attributes.insert("approvals".to_owned(), Value::List(read.votes.iter().map(vote).collect()));
        }
        Ok(ForgeEvent {
            connection: self.name.clone(),
            project,
            event: read.kind,
            branch: read.branch,
            git_ref: read.git_ref.unwrap_or_default(),
            change: read.change.map(|number| number.to_string()),
            patchset: read.patchset.map(|number| number.to_string()),
            commit: commit.or(read.new.filter(|new| !is_zero(new))),
            old_commit: read.old.filter(|old| !is_zero(old)),
            attributes: Value::Map(attributes),
            delivery: delivery.id.clone(),
            raw,
        })
    }
}

/// The project, for its branches and tags; the connection as a whole for everything else.
fn part_of(delivery: &Delivery) -> String {
    let update = delivery.event.ref_update.as_ref().filter(|update| update.of_change().is_none());
    update.map_or_else(|| CHANGES.to_owned(), |update| update.project.clone())
}

fn vote(vote: &EventVote) -> Value {
    let number = |text: &String| text.parse().map_or_else(|_| Value::Str(text.clone()), Value::Int);
    let mut map = BTreeMap::from([
        ("label".to_owned(), Value::Str(vote.description.clone())),
        ("value".to_owned(), number(&vote.value)),
    ]);
    map.extend(vote.old_value.as_ref().map(|old| ("old-value".to_owned(), number(old))));
    Value::Map(map)
}

impl Hears for GerritConnection {
    fn recover(&self, sink: &mut dyn Sink) -> Result<(), Trouble> {
        let mut guard = self.hearing();
        let mut hearing = match guard.take() {
            Some(hearing) => hearing,
            None => self.begin(sink)?,
        };
        let projects = self.gerrit.projects().map_err(|error| self.trouble(&error))?;
        let mut fresh = Vec::new();
        for project in &projects {
            if sink.stopping() {
                return Ok(());
            }
            if !hearing.intake.place().refs.contains_key(project) {
                match sink.place(project).and_then(|place| serde_json::from_slice(&place).ok()) {
                    Some(refs) => hearing.intake.know_refs(project, refs),
                    None => fresh.push(project.clone()),
                }
            }
        }
        let new = hearing.intake.place().at == 0;
        hearing.intake.follow(projects.into_iter().collect());
        let batch = hearing.intake.catch_up();
        if let Some(error) = batch.troubles.first() {
            let trouble = self.trouble(error);
            *guard = Some(hearing);
            return Err(trouble);
        }
        self.hand_over(&mut hearing, batch, sink)?;
        // What was seen for the first time is known from here on, although there is nothing to tell.
        for part in fresh.iter().map(String::as_str).chain(new.then_some(CHANGES)) {
            let place = self.place_of(&hearing, part)?;
            sink.take(part, Ok(Told { events: Vec::new(), place }))?;
        }
        *guard = Some(hearing);
        Ok(())
    }

    fn listen(&self) -> Result<Box<dyn Listening + '_>, Trouble> {
        Ok(Box::new(Listener { connection: self }))
    }

    fn look_every(&self) -> Option<Duration> {
        // It looks by itself: it knows what was missed.
        None
    }

    fn projects(&self) -> Result<Option<BTreeSet<String>>, Trouble> {
        Ok(None)
    }
}

/// Who listens.
struct Listener<'c> {
    connection: &'c GerritConnection,
}

impl Listening for Listener<'_> {
    fn next(&mut self, at_most: Duration, sink: &mut dyn Sink) -> Result<Heard, Trouble> {
        let mut guard = self.connection.hearing();
        // Taken out: what ends in trouble begins anew from what was kept.
        let mut hearing = match guard.take() {
            Some(hearing) => hearing,
            None => self.connection.begin(sink)?,
        };
        let batch = hearing.intake.next(at_most);
        self.connection.hand_over(&mut hearing, batch, sink)?;
        *guard = Some(hearing);
        Ok(Heard::Everything)
    }
}

impl std::fmt::Debug for Listener<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener of {}", self.connection.name)
    }
}
