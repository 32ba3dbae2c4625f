//! The shell around the rules: what the writer does, with a clock that only moves when told.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_deciding::{Context, Rules};
use gatelog_gate_state::live::GateLive;
use gatelog_record::draft::gate::ReportRequested;
use gatelog_record::draft::partition::{InputTaken, OutboxDelivered, TimerCleared, TimerDue};
use gatelog_record::event::PartitionEvent;
use gatelog_record::id::IdSource;
use gatelog_record::input::{CapacityInput, GateInput, IntakeInput, PartitionInput};
use gatelog_record::{
    ActorId, BlobHash, Cause, DecisionHeader, Domain, Event, EventId, EventRecord, Input, InputFrame, InputId,
    InputRecord, Partition, SiteId, Source, Timestamp, WorkId,
};
use gatelog_rules_gate::{GateRules, Router};
use gatelog_tables::{LiveTables, Maps};

use super::forge::Forge;
use super::laws;

pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
const SITE: SiteId = SiteId([7; 16]);

/// Everything there is.
pub struct World {
    pub rules: GateRules,
    pub live: GateLive<Maps>,
    pub events: Vec<EventRecord>,
    pub router: Router,
    pub intake: u64,
    inputs: u64,
    pub now: Timestamp,
    pub blobs: BTreeMap<BlobHash, Vec<u8>>,
    pub forge: Forge,
    /// Kinds of work that are left undone.
    pub held: BTreeSet<String>,
    /// What was answered already: work and attempt.
    pub answered: BTreeSet<(WorkId, u32)>,
    /// Answers that were made and have not come yet, with their tenants.
    pub on_the_way: Vec<(String, GateInput)>,
    /// Kinds of work that fail, with a text.
    pub failing: BTreeMap<String, String>,
    /// How many changes every answer about changes holds at least.
    pub padded: usize,
    /// How many jobs every change has at least.
    pub padded_jobs: usize,
    /// Branches whose configuration was read, with their projects.
    pub read: BTreeSet<(String, String)>,
    /// Leases the gate asked for and did not end: build, attempt.
    pub leases: BTreeSet<(gatelog_record::BuildId, u32)>,
    /// Those of them whose attempts wait for other jobs.
    pub paused: BTreeSet<(gatelog_record::BuildId, u32)>,
    /// Reports as they were delivered and not yet expected.
    pub reports: Vec<ReportRequested>,
    pub last_report: Option<ReportRequested>,
    /// Changes in the order they were merged by the gate.
    pub merged: Vec<String>,
    /// Jobs end by themselves.
    pub auto_jobs: bool,
    /// Everything that was said.
    pub said: Vec<InputRecord>,
    sent: u64,
}

impl Default for World {
    fn default() -> Self {
        World::new()
    }
}

impl World {
    pub fn new() -> World {
        World {
            rules: GateRules::new(),
            live: GateLive::in_memory(),
            events: Vec::new(),
            router: Router::new(),
            intake: 0,
            inputs: 0,
            now: Timestamp(1_800_000_000_000_000),
            blobs: BTreeMap::new(),
            forge: Forge::default(),
            held: BTreeSet::new(),
            answered: BTreeSet::new(),
            on_the_way: Vec::new(),
            failing: BTreeMap::new(),
            padded: 0,
            padded_jobs: 0,
            read: BTreeSet::new(),
            leases: BTreeSet::new(),
            paused: BTreeSet::new(),
            reports: Vec::new(),
            last_report: None,
            merged: Vec::new(),
            auto_jobs: false,
            said: Vec::new(),
            sent: 0,
        }
    }

    pub fn put(&mut self, bytes: &[u8]) -> BlobHash {
        let hash = BlobHash::of(bytes);
        self.blobs.insert(hash, bytes.to_vec());
        hash
    }

    /// A record of the intake: routed as the shell does it.
    pub fn intake(&mut self, input: &IntakeInput) -> Result<(), String> {
        let offset = self.intake;
        self.intake += 1;
        for routed in self.router.route(offset, input) {
            let id = InputId::new(format!("intake/{offset}/{}", routed.ordinal));
            let mut record = InputRecord::new(id, routed.key, self.now, routed.input);
            let partition = Partition { domain: Domain::Intake, index: 0 };
            record.source = Some(Source { partition, sequence: offset + 1, ordinal: routed.ordinal });
            self.take(&record)?;
        }
        Ok(())
    }

    /// An input of its own id.
    pub fn say(&mut self, tenant: &str, input: impl Into<Input>) -> Result<(), String> {
        self.sent += 1;
        let id = InputId::new(format!("test/{}", self.sent));
        self.take(&InputRecord::new(id, tenant, self.now, input))
    }

    /// Decides one input and folds what was decided.
    pub fn take(&mut self, record: &InputRecord) -> Result<(), String> {
        self.said.push(record.clone());
        let bytes = record.close().map_err(|error| error.to_string())?.encode();
        let digest = InputFrame::digest(&bytes);
        self.inputs += 1;
        self.now = Timestamp(self.now.0 + 1_000);
        for hash in self.rules.needs(&self.live, record) {
            let blob = self.blobs.get(&hash).ok_or_else(|| format!("blob {hash} is nowhere"))?;
            self.rules.admit(hash, blob)?;
        }
        // As the writer does: a timer that came due is cleared before the rules are asked, and one that
        // was replaced meanwhile is no question for them.
        let before = self.events.len();
        if let Input::Partition(PartitionInput::TimerDue(due)) = &record.input {
            let set = self.live.partition.timers.rows.get(&due.timer).is_some_and(|row| row.due_at == due.due_at);
            let event: Event = if set {
                PartitionEvent::TimerCleared(TimerCleared { timer: due.timer.clone(), fired: true }).into()
            } else {
                let reason = "timer-gone".to_owned();
                PartitionEvent::InputTaken(InputTaken { duplicate_of: None, reason }).into()
            };
            self.write(record, digest, true, event);
            let written = self.events.last().cloned().ok_or("nothing was written")?;
            self.live.apply(&written).map_err(|refused| format!("event {}: {refused}", written.event.name()))?;
            if !set {
                return laws::always_hold(self);
            }
        }
        let context = Context {
            now: self.now,
            ids: IdSource::new(SITE, 1, GATE, self.inputs, &digest),
            input_sequence: self.inputs,
            first_sequence: self.events.len() as u64 + 1,
            term: 1,
            input_offset: self.inputs - 1,
        };
        let again = self.rules.decide(&self.live, record, context.clone());
        let decided = self.rules.decide(&self.live, record, context);
        if decided != again {
            return Err(format!("{} is decided in two ways", record.input.name()));
        }
        let mut decided = decided.map_err(|refusal| format!("{}: {refusal}", record.input.name()))?;
        let first = self.events.len();
        if decided.is_empty() && first == before {
            decided.push(PartitionEvent::InputTaken(InputTaken { duplicate_of: None, reason: String::new() }).into());
        }
        for event in decided {
            let leads = self.events.len() == before;
            self.write(record, digest, leads, event);
        }
        laws::overlay_agrees(&self.live, self.events.get(first..).unwrap_or_default())?;
        for event in self.events.iter().skip(first) {
            self.live.apply(event).map_err(|refused| format!("event {}: {refused}", event.event.name()))?;
            laws::tested(&self.live, &event.event)?;
        }
        self.nothing_is_left_undone(record, &digest)?;
        laws::always_hold(self)
    }

    /// A decision looks only at what its events touch; a look at everything finds nothing more.
    fn nothing_is_left_undone(&mut self, record: &InputRecord, digest: &[u8; 32]) -> Result<(), String> {
        for hash in self.rules.needs(&self.live, record) {
            let blob = self.blobs.get(&hash).ok_or_else(|| format!("blob {hash} is nowhere"))?;
            self.rules.admit(hash, blob)?;
        }
        let context = Context {
            now: self.now,
            ids: IdSource::new(SITE, 1, GATE, self.inputs + 1_000_000, digest),
            input_sequence: self.inputs,
            first_sequence: self.events.len() as u64 + 1,
            term: 1,
            input_offset: self.inputs - 1,
        };
        let left = self.rules.left_undone(&self.live, record, context).map_err(|refusal| refusal.to_string())?;
        let name = record.input.name();
        let told: Vec<String> =
            left.iter().take(3).map(|event| format!("{} {}", event.name(), event.to_json())).collect();
        if told.is_empty() { Ok(()) } else { Err(format!("after {name} this was left undone: {}", told.join("; "))) }
    }

    /// Writes one event of the decision on an input; the first carries the header.
    fn write(&mut self, record: &InputRecord, digest: [u8; 32], leads: bool, event: Event) {
        let header = DecisionHeader {
            input_sequence: self.inputs,
            input_offset: self.inputs - 1,
            input_digest: digest,
            now: self.now,
            input_id: record.input_id.clone(),
            source: record.source,
            caused_by: record.caused_by,
        };
        self.events.push(EventRecord {
            sequence: self.events.len() as u64 + 1,
            term: 1,
            recorded_at: self.now,
            wall_at: self.now,
            id: EventId::default(),
            cause: Cause::Input { offset: self.inputs - 1 },
            actor: ActorId::SYSTEM,
            key: record.key.clone(),
            traceparent: String::new(),
            decision: leads.then_some(header),
            event,
        });
    }

    /// Does everything that may be done now, until nothing is left.
    pub fn pump(&mut self) -> Result<(), String> {
        for _ in 0..20_000 {
            if self.deliver()? || self.answer_one()? || (self.auto_jobs && self.end_one_job()?) {
                continue;
            }
            return Ok(());
        }
        Err("the world does not come to rest".into())
    }

    /// Hands the outbox over to capacity.
    fn deliver(&mut self) -> Result<bool, String> {
        let rows: Vec<_> = self.live.partition.outbox.rows.iter().map(|(key, row)| (*key, row.clone())).collect();
        let Some(((domain, index, sequence, ordinal), _)) = rows.last().cloned() else { return Ok(false) };
        for (_, row) in &rows {
            match &row.input {
                Input::Capacity(CapacityInput::LeaseAsked(ask)) => {
                    self.leases.insert(attempt_of(&ask.owner));
                }
                Input::Capacity(CapacityInput::LeaseHoldAsked(hold)) => {
                    if !self.leases.contains(&attempt_of(&hold.owner)) {
                        return Err(format!("a lease is to be kept that nobody has: {hold:?}"));
                    }
                }
                Input::Capacity(CapacityInput::LeasePauseAsked(pause)) => {
                    let lease = attempt_of(&pause.owner);
                    if !self.leases.contains(&lease) || !self.paused.insert(lease) {
                        return Err(format!("a lease pauses that nobody has, or that did: {pause:?}"));
                    }
                }
                Input::Capacity(CapacityInput::LeaseResumeAsked(resume)) => {
                    if !self.paused.remove(&attempt_of(&resume.owner)) {
                        return Err(format!("a lease goes on that does not pause: {resume:?}"));
                    }
                }
                Input::Capacity(CapacityInput::LeaseEndAsked(end)) => {
                    self.paused.remove(&attempt_of(&end.owner));
                    if !self.leases.remove(&attempt_of(&end.owner)) {
                        return Err(format!("the end of a lease is asked for that nobody has: {end:?}"));
                    }
                }
                other => return Err(format!("capacity is told {other:?}")),
            }
        }
        let to = Partition { domain: Domain::from_number(domain).ok_or("a message goes to no domain")?, index };
        let delivered = PartitionInput::OutboxDelivered(OutboxDelivered { to, up_to: (sequence, ordinal) });
        self.say("", delivered)?;
        Ok(true)
    }

    /// Lets time pass; timers come due in their order.
    pub fn wait(&mut self, millis: i64) -> Result<(), String> {
        let until = self.now.plus_millis(millis);
        loop {
            self.pump()?;
            let next = self
                .live
                .partition
                .timers
                .rows
                .iter()
                .map(|(name, row)| (row.due_at, name.clone(), row.key.clone()))
                .filter(|(due_at, ..)| *due_at <= until)
                .min();
            let sooner = self.next_not_before().filter(|moment| *moment <= until);
            match (next, sooner) {
                (Some((due_at, timer, key)), moment) if moment.is_none_or(|moment| due_at <= moment) => {
                    self.now = self.now.max(due_at);
                    self.say(&key, PartitionInput::TimerDue(TimerDue { timer, due_at }))?;
                }
                (_, Some(moment)) => self.now = self.now.max(moment),
                _ => break,
            }
        }
        self.now = self.now.max(until);
        self.pump()
    }
}

/// The attempt a lease is for. The gate asks for no other.
fn attempt_of(owner: &gatelog_record::draft::capacity::LeaseOwner) -> (gatelog_record::BuildId, u32) {
    owner.build().unwrap_or_default()
}
