//! What would have been, had something been otherwise.
//!
//! First the recorded inputs are decided again, byte for byte, up to where something is otherwise: an input that is
//! left out or changed, or a decision of the rules at hand that differs. From there on ids and positions are others,
//! and what effects said no longer answers what is asked. So from there on the record's outside goes on as recorded,
//! and everything else is modelled, by [`RULES`]. What came of both is counted alike and compared.
//!
//! Nothing leaves a what-if: it reads the log and its blobs, and keeps what it makes in memory.

mod book;
mod effects;
mod inputs;
mod merging;
mod sim;
mod tally;
mod tenants;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gatelog_event_log::{Blobs, Log};
use gatelog_record::draft::gate::ChangeKey;
use gatelog_record::input::{CapacityInput, GateInput};
use gatelog_record::{BlobHash, Domain, EventRecord, EventRef, Input, InputRecord, Partition, Stream, Timestamp};
use gatelog_rules_capacity::CapacityRules;
use gatelog_rules_config::Schemas;
use gatelog_rules_gate::GateRules;
use serde::{Deserialize, Serialize};

use crate::cut::Cut;
use crate::diff::{Place, cut_of};
use crate::error::ReplayError;
use crate::explain::{Names, intake_offset};
use crate::reading::input_at;
use crate::redecide::{Again, Decision};
use crate::sealed::SealedBlobs;
use book::Book;
use sim::{Shells, Sim};
use tally::Tally;
use tenants::Tenants;
use walk::Walk;

pub use inputs::{InputNear, inputs_near};
pub use tally::{ItemDifference, ItemOutcome, JobDifference, JobOutcome, OrderDifference, Outcome, OutcomeDifference};

/// The version of the answer's shape: another gatelog is asked for the same.
pub const VERSION: u32 = 1;

const RECORDED_BUILD: &str =
    "a build of the same job of the same item on the same changes ends as recorded, as quickly";
const RECORDED_OTHER_CHAIN: &str =
    "a build of the same job of the same item on other changes ends as the newest recorded one did";
const FREQUENT_RESULT: &str =
    "any other build ends with the job's most frequent recorded result, after the middle of its recorded durations";
const UNKNOWN_JOB: &str = "a job that never ran succeeds, after the middle of all durations";
const MERGES: &str = "changes merge with what they never met, and with the files of their own that were recorded; what did not merge does not";
const KNOWN_FILES: &str = "configuration that nobody read just so is what is known of it";
const KNOWN_FACTS: &str = "changes that nobody asked for together are as they were told of nearest in time";
const FROZEN_AGAIN: &str =
    "jobs that were not frozen in the record are frozen again; pins of other repositories are left out";

/// How what did not happen is modelled.
pub const RULES: [&str; 13] = [
    "what comes from outside comes as recorded, when it was recorded: forge events, requests, signs of workers",
    "what a forge tells of gatelog's own merges comes after the merge, as long after it as recorded, if it is made",
    RECORDED_BUILD,
    RECORDED_OTHER_CHAIN,
    FREQUENT_RESULT,
    UNKNOWN_JOB,
    "work that is asked for as in the record ends as recorded nearest in time; layouts are made again from their files",
    MERGES,
    KNOWN_FILES,
    KNOWN_FACTS,
    FROZEN_AGAIN,
    "another tenant file routes no event of a project to a tenant that does not have it; what no tenant wanted then stays away",
    "merging succeeds unless the same was refused in the record; reports are delivered; nobody else moves branches",
];

/// Where an input stands.
pub type InputPlace = (Stream, u64);

/// What is otherwise.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Inputs that never came; one of the intake takes everything with it that was routed from it.
    pub without: BTreeSet<InputPlace>,
    /// Inputs that said something else.
    pub changed: BTreeMap<InputPlace, Input>,
    /// Configuration files by project (its canonical name or the end of it) and path, in place of all of its.
    pub config: BTreeMap<String, BTreeMap<String, String>>,
    /// The text of a tenant file in place of each that was loaded. Tenants that it does not have stay as they were.
    pub tenants: Option<String>,
    /// What may be said to the drivers of this gatelog: layouts are made with that.
    pub schemas: Schemas,
}

/// Configuration files by project, kept as blobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    projects: BTreeMap<String, Vec<(String, BlobHash)>>,
    schemas: Schemas,
}

impl Config {
    /// The files of a project, by its canonical name.
    fn of(&self, canonical: &str) -> Option<&Vec<(String, BlobHash)>> {
        let local = canonical.split_once('/').map_or(canonical, |(_, local)| local);
        // A folder's name has an underscore for every slash.
        let folder = local.replace('/', "_");
        self.projects.get(canonical).or_else(|| self.projects.get(local)).or_else(|| self.projects.get(&folder))
    }
}

/// Where it first is otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// The partition.
    pub partition: String,
    /// The first event that is otherwise, or no more.
    pub sequence: u64,
    /// When that was recorded.
    pub at: String,
    /// The offset of the input it was decided on.
    pub input_offset: u64,
    /// That input's kind.
    pub input: String,
    /// Why: `without`, `changed`, `config`, `tenants`, `rules`.
    pub why: String,
    /// In one sentence.
    pub what: String,
    /// What was decided, for people.
    pub recorded: Vec<serde_json::Value>,
    /// What is decided now.
    pub now: Vec<serde_json::Value>,
}

/// What would have been.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// [`VERSION`].
    pub version: u32,
    /// The newest event of each partition that was looked at.
    pub until: BTreeMap<String, u64>,
    /// How many decisions came out byte for byte the same before anything was otherwise.
    pub same_decisions: u64,
    /// Where it first was otherwise; nothing where it never was.
    pub divergence: Option<Divergence>,
    /// What of the outcome would have been otherwise.
    pub difference: OutcomeDifference,
    /// What came of the record.
    pub recorded: Outcome,
    /// What would have come.
    pub now: Outcome,
    /// How what did not happen is modelled.
    pub rules: Vec<String>,
    /// Which of these rules stood in for something, and how often.
    pub assumed: BTreeMap<String, u64>,
}

impl Answer {
    /// Whether nothing would have been otherwise: no decision, and so nothing that came of them.
    pub fn is_same(&self) -> bool {
        self.divergence.is_none()
    }
}

/// Deals with an input of the record.
enum Fate {
    Same,
    Gone,
    Other(Box<InputRecord>, &'static str),
}

/// Decides the recorded inputs up to a moment again, with something otherwise.
///
/// # Errors
/// What reading the past gives; `NoSuchInput` when an input is named that was never decided.
pub fn what_if(
    log: &Arc<dyn Log>,
    blobs: &dyn Blobs,
    changes: &Changes,
    until: Option<&Cut>,
) -> Result<Answer, ReplayError> {
    let log = &**log;
    let cut = match until {
        Some(cut) => cut.clone(),
        None => cut_of(log, Place::Newest)?,
    };
    let sealed = SealedBlobs::over(blobs);
    let config = Config { schemas: changes.schemas, ..Config::keep(&changes.config, &sealed)? };
    let tenants = changes.tenants.as_deref().map(|text| Tenants::read(text, changes.schemas)).transpose()?;
    let mut asker = Asker { log, blobs: &sealed, changes, config: &config, tenants, met: BTreeSet::new() };
    let (mut gates, mut capacities) = (BTreeMap::new(), BTreeMap::new());
    for partition in cut.keys() {
        match partition.domain {
            Domain::Gate => {
                let rules = Arc::new(GateRules::default);
                gates.insert(*partition, Again::new(log, blobs, *partition, rules, |live| &live.partition)?);
            }
            Domain::Capacity => {
                let rules = Arc::new(CapacityRules::default);
                capacities.insert(*partition, Again::new(log, blobs, *partition, rules, |live| &live.partition)?);
            }
            _ => {}
        }
    }
    let mut walk = Walk::new(log, &cut)?;
    let (mut recorded, mut now) = (Tally::default(), Timestamp::ZERO);
    let (mut same, mut divergence, mut in_place) = (0, None, None);
    // As recorded, until something is otherwise.
    let mut touched: Option<(Partition, Decision)> = None;
    let mut otherwise: Vec<EventRecord> = Vec::new();
    while let Some((partition, mut decision)) = walk.next()? {
        let fate = asker.fate(partition, &decision)?;
        now = now.max(decision.records.first().map_or(now, |record| record.recorded_at));
        if let Some(why) = fate.why() {
            divergence = Some(asker.divergence(partition, &decision, why)?);
            if let Fate::Other(input, _) = &fate {
                in_place = Some((partition, input.input.name()));
            }
            touched = Some((partition, decision));
            break;
        }
        let records = decision.records.clone();
        let (goes_on, done, made) = match partition.domain {
            Domain::Gate => settle(gates.get_mut(&partition), &mut decision)?,
            _ => settle(capacities.get_mut(&partition), &mut decision)?,
        };
        if !goes_on {
            divergence = done.map(|difference| Divergence {
                partition: difference.partition,
                sequence: difference.sequence,
                at: now.to_string(),
                input_offset: difference.input_offset,
                input: difference.input,
                why: "rules".to_owned(),
                what: difference.what,
                recorded: difference.recorded,
                now: difference.decided,
            });
            records.iter().for_each(|record| recorded.learn(record));
            otherwise = made;
            touched = Some((partition, Decision::default()));
            break;
        }
        same += u64::from(records.first().is_some_and(|record| record.decision.is_some()));
        records.iter().for_each(|record| recorded.learn(record));
    }
    let mut answer = Answer {
        version: VERSION,
        until: cut.iter().map(|(partition, last)| (partition.to_string(), *last)).collect(),
        same_decisions: same,
        divergence,
        difference: OutcomeDifference::default(),
        recorded: Outcome::default(),
        now: Outcome::default(),
        rules: RULES.iter().map(|rule| (*rule).to_owned()).collect(),
        assumed: BTreeMap::new(),
    };
    let Some((partition, first)) = touched else {
        asker.all_met()?;
        answer.recorded = recorded.outcome(now);
        answer.now = answer.recorded.clone();
        answer.difference = OutcomeDifference::between(&answer.recorded, &answer.now);
        return Ok(answer);
    };
    // From here on it is otherwise.
    let book = Book::read(log, &cut)?;
    let mut shells: Shells = (BTreeMap::new(), BTreeMap::new());
    for (partition, again) in gates {
        shells.0.insert(partition, again.into_shell()?);
    }
    for (partition, again) in capacities {
        shells.1.insert(partition, again.into_shell()?);
    }
    // What the rules made of the first decision that differs is in the state and not in the record's count.
    let mut tally = recorded.clone();
    if !otherwise.is_empty() {
        tally = asker.tally_before(&cut, partition, answer.divergence.as_ref(), &otherwise)?;
    }
    let mut sim = Sim::new(log, &sealed, &book, &config, shells, tally, now);
    let merged = book.merged.iter().filter(|(_, at)| **at < now);
    sim.merged = merged.map(|(key, _)| (key.clone(), None)).collect();
    sim.landed = book.landed_before(now);
    sim.in_place = in_place;
    sim.begin()?;
    for record in &otherwise {
        sim.follow(partition, &record.event);
    }
    let mut next = Some((partition, first));
    while let Some((partition, decision)) = next {
        decision.records.iter().for_each(|record| recorded.learn(record));
        asker.go_on(&mut sim, &book, partition, &decision)?;
        next = walk.next()?;
    }
    asker.all_met()?;
    sim.until(book.end)?;
    if !recorded.anything_live() {
        sim.come_to_rest()?;
    }
    if let Some(divergence) = answer.divergence.as_mut().filter(|one| one.now.is_empty()) {
        divergence.now = sim.first.iter().map(EventRecord::to_json).collect();
    }
    answer.recorded = recorded.outcome(book.end);
    answer.now = sim.tally.outcome(sim.now.max(book.end));
    answer.difference = OutcomeDifference::between(&answer.recorded, &answer.now);
    answer.assumed = sim.assumed.iter().map(|(rule, count)| ((*rule).to_owned(), *count)).collect();
    Ok(answer)
}

type Settled = (bool, Option<crate::redecide::Difference>, Vec<EventRecord>);

fn settle<R: gatelog_deciding::Rules>(
    again: Option<&mut Again<'_, R>>,
    decision: &mut Decision,
) -> Result<Settled, ReplayError> {
    let Some(again) = again else { return Ok((true, None, Vec::new())) };
    let goes_on = again.settle(decision)?;
    Ok((goes_on, again.done.difference.take(), std::mem::take(&mut again.otherwise)))
}

impl Fate {
    fn why(&self) -> Option<&'static str> {
        match self {
            Fate::Same => None,
            Fate::Gone => Some("without"),
            Fate::Other(_, why) => Some(why),
        }
    }
}

/// Knows what becomes of recorded inputs.
struct Asker<'a> {
    log: &'a dyn Log,
    blobs: &'a dyn Blobs,
    changes: &'a Changes,
    config: &'a Config,
    tenants: Option<Tenants>,
    /// The inputs asked about that were met.
    met: BTreeSet<InputPlace>,
}

impl Asker<'_> {
    /// What becomes of the input of a decision.
    fn fate(&mut self, partition: Partition, decision: &Decision) -> Result<Fate, ReplayError> {
        let header = decision.records.first().and_then(|record| record.decision.as_ref());
        let Some(header) = header else { return Ok(Fate::Same) };
        let nothing = self.changes.without.is_empty() && self.changes.changed.is_empty();
        if nothing && self.changes.config.is_empty() && self.tenants.is_none() {
            return Ok(Fate::Same);
        }
        let place = (Stream::Inputs(partition), header.input_offset);
        // What cannot be read was refused, and says nothing that could be otherwise.
        let Ok(mut input) = input_at(self.log, place.0, place.1) else { return Ok(Fate::Same) };
        let mut places = vec![place];
        if let Some(source) = header.source.filter(|source| source.partition.domain == Domain::Intake) {
            let origin = EventRef { partition: source.partition, sequence: source.sequence };
            let offset = intake_offset(self.log, origin, &input.input);
            places.push((Stream::Intake(source.partition.index), offset));
        }
        for place in places {
            if self.changes.without.contains(&place) {
                self.met.insert(place);
                return Ok(Fate::Gone);
            }
            if let Some(other) = self.changes.changed.get(&place) {
                self.met.insert(place);
                if place.0 == Stream::Inputs(partition) {
                    input.input = other.clone();
                    return Ok(Fate::Other(Box::new(input), "changed"));
                }
                if let Some(routed) = routed_anew(&input.input, other) {
                    input.input = routed;
                    return Ok(Fate::Other(Box::new(input), "changed"));
                }
            }
        }
        if let Input::Gate(GateInput::ConfigFilesFound(found)) = &mut input.input {
            let before = found.clone();
            found.sets.iter_mut().for_each(|set| effects::replace_files(self.config, set));
            if *found != before {
                return Ok(Fate::Other(Box::new(input), "config"));
            }
        }
        if let (Input::Gate(GateInput::TriggerReceived(received)), Some(tenants)) = (&input.input, &self.tenants)
            && tenants.leaves_out(&received.tenant, &received.event.project)
        {
            return Ok(Fate::Gone);
        }
        if let (Input::Gate(GateInput::TenantLoaded(loaded)), Some(tenants)) = (&mut input.input, &mut self.tenants)
            && let Some(other) = tenants.other(loaded, self.blobs)?
        {
            *loaded = other;
            return Ok(Fate::Other(Box::new(input), "tenants"));
        }
        Ok(Fate::Same)
    }

    fn divergence(&self, partition: Partition, decision: &Decision, why: &str) -> Result<Divergence, ReplayError> {
        let mut names = Names::default();
        decision.records.iter().for_each(|record| names.learn(&record.event));
        let first = decision.records.first();
        let offset = first.and_then(|record| record.decision.as_ref()).map_or(0, |header| header.input_offset);
        let input = input_at(self.log, Stream::Inputs(partition), offset)?;
        let said = names.input(&input.input);
        let what = match why {
            "without" => format!("left out: {said}"),
            "config" => format!("other configuration than was read: {said}"),
            "tenants" => format!("another tenant file: {said}"),
            _ => format!("changed: {said}"),
        };
        Ok(Divergence {
            partition: partition.to_string(),
            sequence: first.map_or(0, |record| record.sequence),
            at: first.map_or(Timestamp::ZERO, |record| record.recorded_at).to_string(),
            input_offset: offset,
            input: input.input.name().to_owned(),
            why: why.to_owned(),
            what,
            recorded: decision.records.iter().map(EventRecord::to_json).collect(),
            now: Vec::new(),
        })
    }

    /// A recorded decision's input, as the model's world takes it: only what comes from outside.
    fn go_on(
        &mut self,
        sim: &mut Sim<'_>,
        book: &Book,
        partition: Partition,
        decision: &Decision,
    ) -> Result<(), ReplayError> {
        let Some(first) = decision.records.first() else { return Ok(()) };
        let Some(header) = &first.decision else { return Ok(()) };
        let fate = self.fate(partition, decision)?;
        let input = match fate {
            Fate::Gone => return Ok(()),
            Fate::Other(input, _) => *input,
            Fate::Same => match input_at(self.log, Stream::Inputs(partition), header.input_offset) {
                Ok(input) => input,
                Err(_) => return Ok(()),
            },
        };
        if !is_outside(&input.input) {
            return Ok(());
        }
        sim.until(first.recorded_at)?;
        match echo_of(&input.input, book, first.recorded_at) {
            Some((key, lag)) => sim.hold_echo(key, partition, input, lag),
            None => sim.feed(partition, &input),
        }
    }

    /// The count up to before the decision that differs, and with what is decided in its place.
    fn tally_before(
        &self,
        cut: &Cut,
        partition: Partition,
        at: Option<&Divergence>,
        otherwise: &[EventRecord],
    ) -> Result<Tally, ReplayError> {
        let mut walk = Walk::new(self.log, cut)?;
        let mut tally = Tally::default();
        let begins = otherwise.first().map_or(0, |record| record.sequence);
        while let Some((of, decision)) = walk.next()? {
            let first = decision.records.first().map_or(0, |record| record.sequence);
            if of == partition && first >= begins && at.is_some() {
                break;
            }
            decision.records.iter().for_each(|record| tally.learn(record));
        }
        otherwise.iter().for_each(|record| tally.learn(record));
        Ok(tally)
    }

    /// Every input that was asked about was met, and a tenant of the tenant file.
    fn all_met(&self) -> Result<(), ReplayError> {
        self.tenants.as_ref().map_or(Ok(()), Tenants::any_met)?;
        let asked = self.changes.without.iter().chain(self.changes.changed.keys());
        match asked.into_iter().find(|place| !self.met.contains(place)) {
            Some((stream, offset)) => Err(ReplayError::NoSuchInput { stream: *stream, offset: *offset }),
            None => Ok(()),
        }
    }
}

/// What routing would have made of a changed record of the intake, where it made this of the recorded one.
fn routed_anew(routed: &Input, other: &Input) -> Option<Input> {
    use gatelog_record::input::IntakeInput;
    match (routed, other) {
        (Input::Gate(GateInput::TriggerReceived(received)), Input::Intake(IntakeInput::ForgeEvent(event))) => {
            let mut received = received.clone();
            received.event = event.clone();
            Some(GateInput::TriggerReceived(received).into())
        }
        _ => None,
    }
}

/// Whether an input comes from outside, and not of what gatelog did.
fn is_outside(input: &Input) -> bool {
    match input {
        Input::Gate(input) => matches!(
            input,
            GateInput::TenantLoaded(_)
                | GateInput::TriggerReceived(_)
                | GateInput::NotRouted(_)
                | GateInput::EnqueueAsked(_)
                | GateInput::DequeueAsked(_)
                | GateInput::PromoteAsked(_)
                | GateInput::IntakeAsked(_)
                | GateInput::AutoholdAsked(_)
                | GateInput::AutoholdDeleteAsked(_)
                | GateInput::ReconfigureAsked(_)
                | GateInput::TimerTicked(_)
        ),
        Input::Capacity(input) => matches!(
            input,
            CapacityInput::WorkerSeen(_) | CapacityInput::WorkerSilent(_) | CapacityInput::PauseAsked(_)
        ),
        _ => false,
    }
}

/// Of which of gatelog's own merges an input tells, and how long after it: of a branch that moved to what gatelog put
/// there, or of a change that it merged. A change may be merged just as it was proposed: what is told of a change
/// before names the same commit and is no echo.
fn echo_of(input: &Input, book: &Book, at: Timestamp) -> Option<(ChangeKey, i64)> {
    let Input::Gate(GateInput::TriggerReceived(received)) = input else { return None };
    let event = &received.event;
    let key = match &event.change {
        None => {
            let branch = event.branch.as_deref().or_else(|| event.git_ref.strip_prefix("refs/heads/"))?;
            book.commits.get(&(event.project.clone(), branch.to_owned(), event.commit.clone()?))?.clone()
        }
        Some(change) if event.event.contains("merged") => {
            ChangeKey { project: event.project.clone(), change: change.clone() }
        }
        Some(_) => return None,
    };
    let merged = book.merged.get(&key)?;
    Some((key, at.millis_since(*merged).max(0)))
}
