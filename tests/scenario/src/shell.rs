//! The loop around the rules: what a writer does, with everything kept in memory and a clock that moves
//! a little with each input.

use std::collections::BTreeMap;

use gatelog_deciding::{Context, Rules};
use gatelog_gate_state::live::{GateLive, WaitKey};
use gatelog_record::draft::gate::WaitSubject;
use gatelog_record::draft::partition::{InputTaken, TimerCleared, TimerDue};
use gatelog_record::event::PartitionEvent;
use gatelog_record::id::IdSource;
use gatelog_record::input::{IntakeInput, PartitionInput};
use gatelog_record::{
    ActorId, BlobHash, BuildsetId, Cause, DecisionHeader, Domain, Event, EventId, EventRecord, Input, InputFrame,
    InputId, InputRecord, Partition, SiteId, Source, Timestamp,
};
use gatelog_rules_config::Problem;
use gatelog_rules_gate::{GateRules, Router};
use gatelog_tables::{LiveTables, Maps};

use crate::observe::Observer;

const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
const SITE: SiteId = SiteId([5; 16]);

/// Rules, tables and log.
pub struct Shell {
    rules: GateRules,
    /// The tables.
    pub live: GateLive<Maps>,
    /// The log.
    pub events: Vec<EventRecord>,
    router: Router,
    intake: u64,
    inputs: u64,
    said: u64,
    /// The clock.
    pub now: Timestamp,
    /// Blobs.
    pub blobs: BTreeMap<BlobHash, Vec<u8>>,
    /// Who looks on.
    pub seen: Observer,
    /// What was wrong with the configuration of items.
    pub item_problems: BTreeMap<BuildsetId, Vec<Problem>>,
}

impl Default for Shell {
    fn default() -> Self {
        Shell {
            rules: GateRules::new(),
            live: GateLive::in_memory(),
            events: Vec::new(),
            router: Router::new(),
            intake: 0,
            inputs: 0,
            said: 0,
            now: Timestamp(1_800_000_000_000_000),
            blobs: BTreeMap::new(),
            seen: Observer::default(),
            item_problems: BTreeMap::new(),
        }
    }
}

impl Shell {
    /// Keeps a blob.
    pub fn put(&mut self, bytes: &[u8]) -> BlobHash {
        let hash = BlobHash::of(bytes);
        self.blobs.entry(hash).or_insert_with(|| bytes.to_vec());
        hash
    }

    /// A blob.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, hash: &BlobHash) -> Result<&[u8], String> {
        self.blobs.get(hash).map(Vec::as_slice).ok_or_else(|| format!("blob {hash} is nowhere"))
    }

    /// A record of the intake, routed.
    ///
    /// # Errors
    /// When the rules refuse it.
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

    /// An input.
    ///
    /// # Errors
    /// When the rules refuse it.
    pub fn say(&mut self, tenant: &str, input: impl Into<Input>) -> Result<(), String> {
        self.said += 1;
        let id = InputId::new(format!("said/{}", self.said));
        self.take(&InputRecord::new(id, tenant, self.now, input))
    }

    /// Decides one input and folds what was decided.
    fn take(&mut self, record: &InputRecord) -> Result<(), String> {
        let bytes = record.close().map_err(|error| error.to_string())?.encode();
        let digest = InputFrame::digest(&bytes);
        self.inputs += 1;
        self.now = Timestamp(self.now.0 + 1_000);
        for hash in self.rules.needs(&self.live, record) {
            let blob = self.blobs.get(&hash).ok_or_else(|| format!("blob {hash} is nowhere"))?;
            self.rules.admit(hash, blob)?;
        }
        if let Input::Partition(PartitionInput::TimerDue(due)) = &record.input {
            let cleared = PartitionEvent::TimerCleared(TimerCleared { timer: due.timer.clone(), fired: true });
            self.write(record, digest, true, cleared.into())?;
        }
        let context = Context {
            now: self.now,
            ids: IdSource::new(SITE, 1, GATE, self.inputs, &digest),
            input_sequence: self.inputs,
            first_sequence: self.events.len() as u64 + 1,
            term: 1,
            input_offset: self.inputs - 1,
        };
        let decided = self.rules.decide(&self.live, record, context);
        let mut decided = decided.map_err(|refusal| format!("{}: {refusal}", record.input.name()))?;
        if decided.is_empty() {
            decided.push(PartitionEvent::InputTaken(InputTaken { duplicate_of: None, reason: String::new() }).into());
        }
        for (at, event) in decided.into_iter().enumerate() {
            self.write(record, digest, at == 0, event)?;
        }
        self.seen.standing.settle(&self.live);
        self.nothing_without_a_reason()
    }

    fn write(&mut self, record: &InputRecord, digest: [u8; 32], leads: bool, event: Event) -> Result<(), String> {
        let header = DecisionHeader {
            input_sequence: self.inputs,
            input_offset: self.inputs - 1,
            input_digest: digest,
            now: self.now,
            input_id: record.input_id.clone(),
            source: record.source,
            caused_by: record.caused_by,
        };
        let record = EventRecord {
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
        };
        self.seen.see(&record, &self.live, &self.item_problems);
        self.live.apply(&record).map_err(|refused| format!("event {}: {refused}", record.event.name()))?;
        self.events.push(record);
        Ok(())
    }

    /// The law: whatever waits has a reason.
    fn nothing_without_a_reason(&self) -> Result<(), String> {
        let waits = &self.live.gate.waits.rows;
        for (id, item) in &self.live.gate.items.rows {
            if !waits.contains_key(&WaitKey(WaitSubject::Item(*id))) {
                return Err(format!("item {id} in {} waits without a reason", item.pipeline));
            }
        }
        for (id, build) in &self.live.gate.builds.rows {
            if build.result.is_none() && !waits.contains_key(&WaitKey(WaitSubject::Build(*id))) {
                return Err(format!("build {id} of {} waits without a reason", build.job.name));
            }
        }
        Ok(())
    }

    /// Lets the clock go to a moment; timers that come due on the way are told.
    ///
    /// # Errors
    /// When the rules refuse one.
    pub fn wait_until(&mut self, moment: Timestamp) -> Result<(), String> {
        loop {
            let timers = self.live.partition.timers.rows.iter();
            let due = timers.map(|(name, row)| (row.due_at, name.clone(), row.key.clone())).min();
            let Some((due_at, timer, key)) = due.filter(|(due_at, ..)| *due_at <= moment) else { break };
            self.now = self.now.max(due_at);
            self.say(&key, PartitionInput::TimerDue(TimerDue { timer, due_at }))?;
        }
        self.now = self.now.max(moment);
        Ok(())
    }
}
