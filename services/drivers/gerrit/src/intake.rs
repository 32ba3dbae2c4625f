//! Events in, none lost: the stream, and what was missed while nobody listened.
//!
//! The stream alone loses whatever happens while it is down, and gives no event an id. So an intake keeps its [`Place`],
//! and fetches what is behind it from the changes' messages and the refs: when the stream begins, a little later (what
//! falls between ssh's start and Gerrit's first line is not told), whenever a change's events do not join on, and once
//! in a while for the sake of whatever nobody thought of. What comes twice has the same id, and is given once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::catchup::{self, After, leaves_a_message};
use crate::client::Gerrit;
use crate::config::encode;
use crate::error::GerritError;
use crate::events::{self, Event, EventKind};
use crate::fields::{is_object_id, is_zero};
use crate::pairing::Pairing;
use crate::place::{Place, RefPlace, event_of};
use crate::stream::{EventStream, Received};

/// How far before the newest event a search begins: Gerrit's servers need not have the same time to the second.
const SLACK_S: u64 = 60;
/// How much of a long gap is looked through with one query, in seconds.
const PART_S: u64 = 6 * 3_600;
/// Into how many parts a gap is cut at most.
const PARTS_MAX: u64 = 200;
/// How many ids are remembered, so that what comes twice is given once.
const IDS_MAX: usize = 20_000;
/// How many lines are taken in one go.
const LINES_AT_ONCE: usize = 500;
/// The first and the longest wait before the stream is begun again.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long a stream must last for the wait to be short again.
const LASTED: Duration = Duration::from_secs(60);

/// An event, to be appended under its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The same for the same event, whoever listens, and whether it was told or found afterwards.
    pub id: String,
    /// What happened.
    pub event: Event,
    /// The line of the stream, where it came by that. It names persons: to be kept sealed.
    pub line: Option<Vec<u8>>,
}

/// When what is looked for.
#[derive(Clone, Debug)]
pub struct IntakeSettings {
    /// The projects whose branches and tags are compared. Of all other projects only what the stream tells is given.
    pub projects: Vec<String>,
    /// How long after the stream's begin changes are looked through again.
    pub settle: Duration,
    /// How often changes are looked through.
    pub look_every: Duration,
    /// How often branches and tags are compared: two questions a project.
    pub refs_every: Duration,
}

impl Default for IntakeSettings {
    fn default() -> IntakeSettings {
        IntakeSettings {
            projects: Vec::new(),
            settle: Duration::from_secs(5),
            look_every: Duration::from_secs(600),
            refs_every: Duration::from_secs(3_600),
        }
    }
}

/// What came.
#[derive(Debug, Default)]
pub struct Batch {
    /// Events, in order.
    pub deliveries: Vec<Delivery>,
    /// What went wrong meanwhile. The intake goes on by itself; nothing is lost by it.
    pub troubles: Vec<GerritError>,
}

/// What the stream said of a change's meta ref.
#[derive(Debug, Default)]
struct Chain {
    last: String,
    /// How many commits no event has come for.
    unclaimed: u32,
}

/// The events of one Gerrit.
#[derive(Debug)]
pub struct Intake {
    gerrit: Gerrit,
    settings: IntakeSettings,
    place: Place,
    stream: Option<(EventStream, Instant)>,
    /// When the stream is to be begun again, and how long the next wait is.
    again: (Instant, Duration),
    look_at: Instant,
    refs_at: Instant,
    /// How often changes were looked through since the stream began. The second look finds what fell between ssh's start
    /// and Gerrit's first line; only then is the stream alone enough to go by.
    looks: u32,
    chains: BTreeMap<u64, Chain>,
    /// Changes whose events do not join on.
    gaps: BTreeMap<u64, String>,
    pairing: Pairing,
    given: BTreeSet<String>,
    given_order: VecDeque<String>,
}

impl Intake {
    /// Goes on from a place; an empty one stands for a Gerrit never seen, of whose past nothing is told.
    pub fn new(gerrit: Gerrit, place: Place, settings: IntakeSettings) -> Intake {
        let now = Instant::now();
        Intake {
            gerrit,
            settings,
            place,
            stream: None,
            again: (now, BACK_OFF.0),
            look_at: now,
            refs_at: now,
            looks: 0,
            chains: BTreeMap::new(),
            gaps: BTreeMap::new(),
            pairing: Pairing::default(),
            given: BTreeSet::new(),
            given_order: VecDeque::new(),
        }
    }

    /// How far events have been given. To be kept once they are appended.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether the stream runs, as far as is known.
    pub fn listens(&self) -> bool {
        self.stream.is_some()
    }

    /// Follows the branches and tags of these projects from now on.
    pub fn follow(&mut self, projects: Vec<String>) {
        self.settings.projects = projects;
        self.refs_at = Instant::now();
    }

    /// Has everything looked through in the next call.
    pub fn look_now(&mut self) {
        self.look_at = Instant::now();
        self.refs_at = self.look_at;
    }

    /// Forgets how far it was, and goes on from this place.
    pub fn resume(&mut self, place: Place) {
        self.place = place;
        self.given.clear();
        self.given_order.clear();
        self.gaps.clear();
        self.chains.clear();
        self.pairing.forget();
        self.looks = 0;
        self.look_now();
    }

    /// Notes where a project's branches and tags were, as it was kept.
    pub(crate) fn know_refs(&mut self, project: &str, refs: BTreeMap<String, RefPlace>) {
        self.place.refs.insert(project.to_owned(), refs);
    }

    /// Looks everything through, without waiting for the stream.
    pub fn catch_up(&mut self) -> Batch {
        let mut batch = Batch::default();
        self.look_now();
        self.look(&mut batch);
        batch
    }

    /// What comes next. Waits until something does, at most this long. Blocking; requests it makes have time limits of
    /// their own.
    pub fn next(&mut self, at_most: Duration) -> Batch {
        let (mut batch, deadline) = (Batch::default(), Instant::now() + at_most);
        loop {
            self.begin_stream(&mut batch);
            self.look(&mut batch);
            let now = Instant::now();
            for due in self.pairing.due(now) {
                self.give(due, &mut batch);
            }
            if !batch.deliveries.is_empty() || !batch.troubles.is_empty() || now >= deadline {
                return batch;
            }
            self.listen(deadline.min(self.next_due()).saturating_duration_since(now), &mut batch);
        }
    }

    fn next_due(&self) -> Instant {
        let mut next = self.look_at.min(self.refs_at);
        if self.stream.is_none() {
            next = next.min(self.again.0);
        }
        self.pairing.next_due().map_or(next, |due| next.min(due))
    }

    fn begin_stream(&mut self, batch: &mut Batch) {
        let now = Instant::now();
        if self.stream.is_some() || now < self.again.0 {
            return;
        }
        match EventStream::open(self.gerrit.config()) {
            Ok(stream) => {
                self.stream = Some((stream, now));
                // The stream first, then the search: what happens between the two is told twice rather than never.
                (self.look_at, self.refs_at, self.looks) = (now, now, 0);
                self.chains.clear();
            }
            Err(error) => {
                batch.troubles.push(error);
                self.wait_longer();
            }
        }
    }

    fn wait_longer(&mut self) {
        self.again.0 = Instant::now() + self.again.1;
        self.again.1 = (self.again.1 * 2).min(BACK_OFF.1);
    }

    fn listen(&mut self, at_most: Duration, batch: &mut Batch) {
        let mut wait = at_most;
        for _ in 0..LINES_AT_ONCE {
            let Some((stream, begun)) = &mut self.stream else {
                std::thread::sleep(wait.min(Duration::from_millis(200)));
                return;
            };
            let begun = *begun;
            match stream.next(wait) {
                None => return,
                Some(Received::Line(line)) => match events::read_line(&line) {
                    Ok(event) => self.told(event, line, batch),
                    // What it was shows in the messages.
                    Err(error) => {
                        batch.troubles.push(error);
                        self.look_at = Instant::now();
                    }
                },
                Some(Received::TooLong { bytes }) => {
                    let what = format!("bytes ({bytes}) of an event of the stream");
                    batch.troubles.push(GerritError::TooMuch { what, limit: events::LINE_MAX });
                    self.look_at = Instant::now();
                }
                Some(Received::End { why }) => {
                    self.stream = None;
                    self.looks = 0;
                    self.pairing.forget();
                    if begun.elapsed() > LASTED {
                        self.again.1 = BACK_OFF.0;
                    }
                    self.wait_longer();
                    batch.troubles.push(GerritError::Program { program: "ssh", what: "stream-events".to_owned(), why });
                    return;
                }
            }
            wait = Duration::ZERO;
        }
    }

    /// A line of the stream.
    fn told(&mut self, event: Event, line: Vec<u8>, batch: &mut Batch) {
        if event.kind == EventKind::DroppedOutput {
            self.look_now();
            return;
        }
        if let Some(update) = &event.ref_update {
            if let Some(number) = update.change_of_meta() {
                self.meta_moved(number, &update.project.clone(), &update.old.clone(), &update.new.clone());
                return;
            }
            let id = self.place.movement(update);
            let of_branch = update.name.starts_with("refs/heads/") || update.name.starts_with("refs/tags/");
            let id = match id {
                // A patchset's ref is made once.
                _ if !of_branch => format!("{}/{}/{}..{}", update.project, update.name, update.old, update.new),
                Some(id) => id,
                None => return,
            };
            return self.pair(Delivery { id, event, line: Some(line) }, batch);
        }
        let Some(change) = &event.change else {
            let about = event.new_head.clone().unwrap_or_default();
            let (project, at) = (event.project.clone().unwrap_or_default(), event.created.unwrap_or_default());
            let id = format!("{project}/{}/{about}/{at}", event.kind);
            return self.give(Delivery { id, event, line: Some(line) }, batch);
        };
        let (number, project) = (change.number, change.project.clone());
        let chain = self.chains.entry(number).or_default();
        let joins = !chain.last.is_empty() && chain.unclaimed <= 1;
        chain.unclaimed = 0;
        let id = delivery_id(number, &chain.last, &event);
        if leaves_a_message(&event.kind) {
            if !joins {
                // Which of several commits it came with is not certain: its messages know.
                self.gaps.insert(number, project);
            }
            // What went before it is fetched first, and this with it.
            if self.gaps.contains_key(&number) {
                return;
            }
        }
        self.pair(Delivery { id, event, line: Some(line) }, batch);
    }

    fn meta_moved(&mut self, number: u64, project: &str, old: &str, new: &str) {
        if self.chains.len() > IDS_MAX {
            self.chains.clear();
        }
        let chain = self.chains.entry(number).or_default();
        let last = if chain.last.is_empty() {
            self.place.changes.get(&number).map(|last| &last.meta)
        } else {
            Some(&chain.last)
        };
        let joins = match last {
            Some(last) => last == old || last == new,
            None => is_zero(old) || self.looks >= 2,
        };
        if !joins {
            self.gaps.insert(number, project.to_owned());
        }
        chain.last = new.to_owned();
        chain.unclaimed += 1;
    }

    fn pair(&mut self, delivery: Delivery, batch: &mut Batch) {
        let patience = self.gerrit.config().replication_delay + Duration::from_secs(10);
        for ready in self.pairing.take(delivery, Instant::now(), patience) {
            self.give(ready, batch);
        }
    }

    /// Gives what was not given yet, and moves the place on.
    fn give(&mut self, delivery: Delivery, batch: &mut Batch) {
        if let Some(update) = &delivery.event.ref_update
            && (update.name.starts_with("refs/heads/") || update.name.starts_with("refs/tags/"))
        {
            // What waited may have been found by a search meanwhile.
            if self.place.movement(update).is_none() {
                return;
            }
            self.place.moved(update);
        }
        if !self.given.insert(delivery.id.clone()) {
            return;
        }
        self.given_order.push_back(delivery.id.clone());
        if self.given_order.len() > IDS_MAX {
            self.given_order.pop_front().map(|oldest| self.given.remove(&oldest));
        }
        let at = delivery.event.created.unwrap_or_default();
        // Until all before it was looked through, what the stream tells is no sign that nothing was missed.
        if self.looks >= 2 {
            self.place.at = self.place.at.max(at);
        }
        let meta = delivery.id.split('/').nth(1).unwrap_or_default();
        if let Some(change) = &delivery.event.change
            && is_object_id(meta)
            && !self.gaps.contains_key(&change.number)
        {
            self.place.took(change.number, meta, at);
        }
        batch.deliveries.push(delivery);
    }

    /// Looks for what was missed, where that is due.
    fn look(&mut self, batch: &mut Batch) {
        while let Some((number, project)) = self.gaps.pop_first() {
            if let Err(error) = self.look_at_change(number, &project, batch) {
                self.gaps.insert(number, project);
                return self.trouble(error, batch);
            }
        }
        let now = Instant::now();
        if now >= self.look_at {
            match self.look_through(batch) {
                Ok(()) => {
                    let wait = if self.looks == 0 { self.settings.settle } else { self.settings.look_every };
                    self.look_at = Instant::now() + wait;
                    self.looks = self.looks.saturating_add(1);
                }
                Err(error) => return self.trouble(error, batch),
            }
        }
        if now >= self.refs_at {
            match self.look_at_refs(batch) {
                Ok(()) => self.refs_at = Instant::now() + self.settings.refs_every,
                Err(error) => self.trouble(error, batch),
            }
        }
    }

    /// Tries again when the server says so, or soon.
    fn trouble(&mut self, error: GerritError, batch: &mut Batch) {
        let wait = error.retry_at().and_then(|at| at.duration_since(SystemTime::now()).ok());
        let again = Instant::now() + wait.unwrap_or(BACK_OFF.0).max(BACK_OFF.0);
        self.look_at = self.look_at.max(again);
        self.refs_at = self.refs_at.max(again);
        batch.troubles.push(error);
    }

    fn look_through(&mut self, batch: &mut Batch) -> Result<(), GerritError> {
        let newest = self.gerrit.rest.get("the newest change", "changes/?n=1&q=is:open+OR+is:closed")?;
        let newest = newest[0]["updated"].as_str().and_then(catchup::seconds).unwrap_or_default();
        if self.place.at == 0 {
            return self.begin_at(newest);
        }
        let (since, known) = (self.since(), self.place.at);
        let (mut from, mut last) = (since, 0);
        let part = PART_S.max(newest.saturating_sub(since) / PARTS_MAX);
        loop {
            // After a long gap there is more than one query finds: each change is found in the part of its last update.
            let until = from.saturating_add(part);
            let before = if until < newest { format!(" before:{{{}}}", catchup::date(until)) } else { String::new() };
            let query = format!("after:{{{}}}{before}", catchup::date(from));
            let mut found = Vec::new();
            for change in &self.gerrit.pages(&query, catchup::OPTIONS)? {
                found.extend(self.missed(change, since)?);
            }
            // Gerrit's time has seconds; within one, each change's own order is kept.
            found.sort_by_key(|(at, _)| *at);
            last = found.last().map_or(last, |(at, _)| last.max(*at));
            for (_, delivery) in found {
                self.pair(delivery, batch);
            }
            if until >= newest {
                break;
            }
            from = until.saturating_sub(SLACK_S);
        }
        self.place.at = self.place.at.max(last);
        self.place.looked = last.max(known);
        Ok(())
    }

    /// A Gerrit that was never seen: what is there is past. What happens within this very second is not, so what is past
    /// of it is noted.
    fn begin_at(&mut self, newest: u64) -> Result<(), GerritError> {
        if newest == 0 {
            // No change at all: whatever will be found is new, by whatever clock within a day of ours.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            self.place.began = now.saturating_sub(86_400).max(1);
            (self.place.at, self.place.looked) = (self.place.began, self.place.began);
            return Ok(());
        }
        for change in self.gerrit.pages(&format!("after:{{{}}}", catchup::date(newest)), catchup::OPTIONS)? {
            let last = change["messages"].as_array().and_then(|all| all.last()).and_then(|last| last["id"].as_str());
            if let (Some(number), Some(last)) = (change["_number"].as_u64(), last) {
                self.place.took(number, last, newest);
            }
        }
        self.place.began = newest;
        (self.place.at, self.place.looked) = (newest, newest);
        Ok(())
    }

    fn since(&self) -> u64 {
        self.place.looked.min(self.place.at).saturating_sub(SLACK_S).max(self.place.began)
    }

    fn look_at_change(&mut self, number: u64, project: &str, batch: &mut Batch) -> Result<(), GerritError> {
        let what = format!("change {number} of {project}");
        let path = format!("changes/{}~{number}?{}", encode(project), catchup::OPTIONS);
        // Deleted, or hidden meanwhile: nothing can be told of it.
        let Some(change) = self.gerrit.rest.look(&what, &path)? else { return Ok(()) };
        let since = self.since();
        for (_, delivery) in self.missed(&change, since)? {
            self.pair(delivery, batch);
        }
        Ok(())
    }

    /// What is behind the place of one change.
    fn missed(&self, change: &Value, since: u64) -> Result<Vec<(u64, Delivery)>, GerritError> {
        let number = change["_number"].as_u64().unwrap_or_default();
        let after = match self.place.changes.get(&number) {
            // The stream's time is that of the event, which may be a little later than the message's.
            Some(last) => After::Meta { meta: last.meta.clone(), at: last.at.saturating_sub(2) },
            None => After::Time(since),
        };
        let comments = if catchup::needs_comments(change) {
            let project = change["project"].as_str().unwrap_or_default();
            let path = format!("changes/{}~{number}/comments", encode(project));
            self.gerrit.rest.look(&format!("the comments of change {number}"), &path)?
        } else {
            None
        };
        let mut missed = Vec::new();
        for caught in catchup::events_of(change, comments.as_ref(), &after)? {
            let mut event = caught.event;
            if let Some(change) = &mut event.change {
                change.url = Some(self.gerrit.config().below(&format!("c/{}/+/{}", change.project, change.number)));
            }
            let id = delivery_id(number, &caught.meta, &event);
            missed.push((caught.at, Delivery { id, event, line: None }));
        }
        Ok(missed)
    }

    fn look_at_refs(&mut self, batch: &mut Batch) -> Result<(), GerritError> {
        for project in self.settings.projects.clone() {
            let mut refs = match self.gerrit.branches(&project) {
                Ok(refs) => refs,
                // A project that is not there (yet) has no branches.
                Err(GerritError::NotFoundNow { .. }) => continue,
                Err(error) => return Err(error),
            };
            refs.extend(self.gerrit.tags(&project)?);
            for update in self.place.compare(&project, &refs) {
                if let Some(id) = self.place.movement(&update) {
                    self.give(Delivery { id, event: event_of(update), line: None }, batch);
                }
            }
        }
        Ok(())
    }
}

/// What an event of a change is called, by the commit of the meta ref that it came with.
fn delivery_id(number: u64, meta: &str, event: &Event) -> String {
    // One commit may add several reviewers, each with an event of its own.
    let whom = match (&event.kind, &event.reviewer) {
        (EventKind::Other(_), Some(account)) => account.username.as_deref().or(account.email.as_deref()),
        _ => None,
    };
    match whom {
        Some(whom) => format!("{number}/{meta}/{}/{whom}", event.kind),
        None => format!("{number}/{meta}/{}", event.kind),
    }
}
