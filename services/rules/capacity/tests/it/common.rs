//! A capacity partition without log and thread: inputs in, events folded, history kept.

use gatelog_capacity_state::{Capacity, CapacityLive, CapacityRead, LeaseRow, owner_key};
use gatelog_deciding::{Context, Rules};
use gatelog_record::draft::capacity::{
    LeaseAsked, LeaseDescription, LeaseOwner, LeaseSubject, NodeWanted, SemaphoreWanted, WorkerSeen,
};
use gatelog_record::id::IdSource;
use gatelog_record::input::CapacityInput;
use gatelog_record::{
    ActorId, BlobHash, Cause, DecisionHeader, Domain, Event, EventId, EventRecord, InputId, InputRecord, LeaseId,
    Partition, SiteId, SubjectId, Timestamp,
};
use gatelog_rules_capacity::{CapacityRules, Limits};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{DomainState, LiveTables, Maps, ReadTables, TableSet};

/// The partition that decides.
pub const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
/// The partition that owns every lease here.
pub const OWNER: Partition = Partition { domain: Domain::Deployments, index: 3 };

/// An attempt at something of somebody's: a domain that has nothing to do with builds.
pub fn owner(key: &str, name: &str, attempt: u32) -> LeaseOwner {
    let mut id = [0; 16];
    id.copy_from_slice(&BlobHash::of(name.as_bytes()).0[..16]);
    let subject = LeaseSubject { kind: "kettle".to_owned(), id: SubjectId(id), attempt };
    LeaseOwner { partition: OWNER, key: key.to_owned(), subject }
}

/// What an owner asks for, with everything it need not say left plain.
pub fn ask(share: &str, name: &str, attempt: u32) -> LeaseAsked {
    LeaseAsked {
        owner: owner(share, name, attempt),
        share: share.to_owned(),
        description: LeaseDescription { title: format!("kettle {name}"), facts: Vec::new() },
        spec: BlobHash::of(name.as_bytes()),
        nodes: Vec::new(),
        semaphores: Vec::new(),
        priority: 200,
        or_others: false,
    }
}

/// A node with a label.
pub fn node(label: &str) -> NodeWanted {
    NodeWanted { names: vec![label.to_owned()], label: label.to_owned() }
}

/// A slot of a semaphore.
pub fn semaphore(name: &str, max: u32) -> SemaphoreWanted {
    SemaphoreWanted { name: name.to_owned(), max }
}

/// A worker's offer.
pub fn offer(worker: &str, incarnation: u32, slots: u32, labels: &[&str]) -> WorkerSeen {
    WorkerSeen {
        worker: worker.to_owned(),
        incarnation: incarnation.to_string(),
        started_at: Timestamp(i64::from(incarnation)),
        address: format!("{worker}:7900"),
        slots,
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
    }
}

/// A partition in memory.
pub struct Desk {
    rules: CapacityRules,
    /// Its live tables.
    pub live: CapacityLive<Maps>,
    /// Its temporal tables.
    pub read: CapacityRead<Maps>,
    /// Every event so far.
    pub log: Vec<EventRecord>,
    inputs: u64,
    /// What its clock says; a second passes with every input.
    pub now: Timestamp,
}

impl Desk {
    /// An empty one.
    pub fn new(limits: Limits) -> Desk {
        Desk {
            rules: CapacityRules::with_limits(limits),
            live: CapacityLive::in_memory(),
            read: CapacityRead::in_memory(),
            log: Vec::new(),
            inputs: 0,
            now: Timestamp(1_800_000_000_000_000),
        }
    }

    /// Takes an input; gives the events of its decision.
    pub fn take(&mut self, input: CapacityInput) -> Vec<Event> {
        self.inputs += 1;
        self.now = self.now.plus_seconds(1);
        let first = self.log.len() as u64 + 1;
        let input_id = InputId::new(format!("input {}", self.inputs));
        let input = InputRecord::new(input_id.clone(), "main", self.now, input);
        let context = Context {
            now: self.now,
            ids: IdSource::new(SiteId([1; 16]), 1, CAPACITY, self.inputs, &[0; 32]),
            input_sequence: self.inputs,
            first_sequence: first,
            term: 1,
            input_offset: self.inputs,
        };
        let events = self.rules.decide(&self.live, &input, context).unwrap();
        for (index, event) in events.iter().enumerate() {
            let record = EventRecord {
                sequence: first + index as u64,
                term: 1,
                recorded_at: self.now,
                wall_at: self.now,
                id: EventId::default(),
                cause: Cause::Input { offset: self.inputs },
                actor: ActorId::SYSTEM,
                key: "main".to_owned(),
                traceparent: String::new(),
                decision: (index == 0).then(|| DecisionHeader {
                    input_sequence: self.inputs,
                    input_offset: self.inputs,
                    input_digest: [0; 32],
                    now: self.now,
                    input_id: input_id.clone(),
                    source: None,
                    caused_by: None,
                }),
                event: event.clone(),
            };
            self.live.apply(&record).unwrap();
            self.read.apply(&self.live, &record).unwrap();
            self.log.push(record);
        }
        events
    }

    /// The lease of an attempt, while it is not over.
    pub fn lease(&self, name: &str, attempt: u32) -> Option<(LeaseId, LeaseRow)> {
        let key = owner_key(OWNER, &owner("", name, attempt).subject);
        let lease = *self.live.own.by_owner.rows.get(&key)?;
        Some((lease, self.live.own.leases.rows.get(&lease)?.clone()))
    }

    /// The digest of the live tables, and that of tables into which the whole log is folded anew.
    pub fn digests(&self) -> ([u8; 32], [u8; 32]) {
        let mut anew = CapacityLive::in_memory();
        for record in &self.log {
            anew.apply(record).unwrap();
        }
        (digest(&self.live), digest(&anew))
    }
}

fn digest(live: &<Capacity as DomainState>::Live<Maps>) -> [u8; 32] {
    let mut digest = StateDigest::default();
    TableSet::<Maps>::visit(live, &mut digest).unwrap();
    digest.finish()
}
