//! The fold refuses what does not fit, and leaves no trace of what is over.

#![expect(clippy::unwrap_used, reason = "tests")]

use gatelog_capacity_state::{CapacityLive, CapacityRead, LeasePhase};
use gatelog_record::draft::capacity::{
    LeaseAsked, LeaseDescription, LeaseEnded, LeaseGranted, LeaseOwner, LeaseQueued, LeaseRefused, LeaseReleased,
    LeaseRevoked, LeaseSubject, LeaseWaitChanged, ReleaseNoted, SemaphoreWanted, WorkerJoined, WorkerLost, WorkerSeen,
};
use gatelog_record::event::CapacityEvent;
use gatelog_record::input::PartitionInput;
use gatelog_record::{
    ActorId, BlobHash, BuildId, Cause, Domain, Event, EventId, EventRecord, Input, LeaseId, Partition, SubjectId,
    Timestamp,
};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{FoldRefused, LiveTables, Maps, ReadTables, TableSet};

const LEASE: LeaseId = LeaseId([1; 16]);

struct Folded {
    live: CapacityLive<Maps>,
    read: CapacityRead<Maps>,
    sequence: u64,
}

impl Folded {
    fn new() -> Folded {
        Folded { live: CapacityLive::in_memory(), read: CapacityRead::in_memory(), sequence: 0 }
    }

    fn try_fold(&mut self, event: CapacityEvent) -> Result<(), FoldRefused> {
        let record = EventRecord {
            sequence: self.sequence + 1,
            term: 1,
            recorded_at: Timestamp(self.sequence as i64),
            wall_at: Timestamp(0),
            id: EventId::default(),
            cause: Cause::Input { offset: 0 },
            actor: ActorId::SYSTEM,
            key: "main".to_owned(),
            traceparent: String::new(),
            decision: None,
            event: event.into(),
        };
        // Refusals are found on an overlay, as the writer finds them.
        self.live.overlay().apply(&record)?;
        self.live.apply(&record)?;
        self.read.apply(&self.live, &record)?;
        self.sequence += 1;
        Ok(())
    }

    fn fold(&mut self, event: CapacityEvent) {
        self.try_fold(event).unwrap();
    }

    fn refuses(&mut self, event: CapacityEvent) -> String {
        self.try_fold(event).unwrap_err().to_string()
    }

    fn own_digest(&self) -> [u8; 32] {
        let mut digest = StateDigest::default();
        TableSet::<Maps>::visit(&self.live.own, &mut digest).unwrap();
        digest.finish()
    }
}

fn joined(incarnation: &str) -> CapacityEvent {
    let offer = WorkerSeen {
        worker: "w1".to_owned(),
        incarnation: incarnation.to_owned(),
        started_at: Timestamp(0),
        address: String::new(),
        slots: 2,
        labels: Vec::new(),
    };
    CapacityEvent::WorkerJoined(WorkerJoined { offer })
}

fn lost(incarnation: &str) -> CapacityEvent {
    CapacityEvent::WorkerLost(WorkerLost {
        worker: "w1".to_owned(),
        incarnation: incarnation.to_owned(),
        reason: "silent".to_owned(),
    })
}

fn ask() -> LeaseAsked {
    LeaseAsked {
        owner: LeaseOwner {
            partition: Partition { domain: Domain::Images, index: 3 },
            key: "debian".to_owned(),
            subject: LeaseSubject { kind: "image".to_owned(), id: SubjectId([2; 16]), attempt: 1 },
        },
        share: "images".to_owned(),
        description: LeaseDescription::default(),
        spec: BlobHash::of(b"spec"),
        nodes: Vec::new(),
        semaphores: vec![SemaphoreWanted { name: "db".to_owned(), max: 1 }],
        priority: 200,
        or_others: false,
    }
}

fn queued() -> CapacityEvent {
    CapacityEvent::LeaseQueued(LeaseQueued { lease: LEASE, ask: ask() })
}

fn waits() -> CapacityEvent {
    CapacityEvent::WaitChanged(LeaseWaitChanged {
        lease: LEASE,
        code: "no-slot".to_owned(),
        subject: String::new(),
        detail: "all slots are taken".to_owned(),
        since: Timestamp(0),
    })
}

fn granted(incarnation: &str) -> CapacityEvent {
    CapacityEvent::LeaseGranted(LeaseGranted {
        lease: LEASE,
        owner: ask().owner,
        spec: ask().spec,
        nodes: Vec::new(),
        worker: "w1".to_owned(),
        incarnation: incarnation.to_owned(),
        waited_ms: 0,
    })
}

fn revoked() -> CapacityEvent {
    CapacityEvent::LeaseRevoked(LeaseRevoked {
        lease: LEASE,
        owner: ask().owner,
        worker: "w1".to_owned(),
        reason: "canceled".to_owned(),
    })
}

fn noted() -> CapacityEvent {
    let released = LeaseReleased { lease: LEASE, worker: "w1".to_owned(), incarnation: "1".to_owned() };
    CapacityEvent::ReleaseNoted(ReleaseNoted { released })
}

fn ended(tell_owner: bool) -> CapacityEvent {
    CapacityEvent::LeaseEnded(LeaseEnded {
        lease: LEASE,
        reason: "worker-lost".to_owned(),
        tell_owner,
        message: "worker w1 started again".to_owned(),
    })
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let mut folded = Folded::new();
    for event in [granted("1"), revoked(), noted(), ended(false), waits()] {
        assert!(folded.refuses(event).starts_with("table leases has no row"), "before it was asked for");
    }
    assert!(folded.refuses(lost("1")).starts_with("table workers has no row"));
    folded.fold(queued());
    assert!(folded.refuses(queued()).starts_with("table leases-by-owner has a row"));
    assert!(folded.refuses(granted("1")).starts_with("table workers has no row"));
    folded.fold(joined("1"));
    assert!(folded.refuses(joined("2")).contains("joins as 2 while 1 is not lost"));
    assert!(folded.refuses(lost("2")).contains("is lost as 2 but is here as 1"));
    assert!(folded.refuses(granted("2")).contains("is granted to w1 as 2"));
    assert!(folded.refuses(revoked()).contains("is revoked but not granted"));
    assert!(folded.refuses(noted()).contains("is let go but not held"));
    folded.fold(granted("1"));
    assert!(folded.refuses(granted("1")).contains("is granted but does not wait"));
    assert!(folded.refuses(waits()).contains("waits but is not queued"));
    folded.fold(revoked());
    assert!(folded.refuses(revoked()).contains("is revoked but not granted"));
    assert!(folded.refuses(noted()).contains("is let go but not held"));
    folded.fold(ended(false));
    assert!(folded.refuses(ended(false)).starts_with("table leases has no row"));
}

#[test]
fn an_ended_lease_leaves_only_history() {
    let mut folded = Folded::new();
    folded.fold(joined("1"));
    let before = folded.own_digest();
    folded.fold(queued());
    folded.fold(waits());
    folded.fold(granted("1"));
    assert_eq!(folded.live.own.workers.rows["w1"].used, 1);
    assert_eq!(folded.live.own.semaphores.rows.len(), 1);
    folded.fold(noted());
    folded.fold(ended(false));
    assert_eq!(folded.own_digest(), before, "the live tables are as if it had never been");
    assert!(folded.live.partition.outbox.rows.is_empty());

    let phases: Vec<_> =
        (1..=6).map(|at| folded.read.lease_at(LEASE, at).unwrap().map(|row| (row.phase, row.reason))).collect();
    let row = |phase, reason: &str| Some((phase, reason.to_owned()));
    assert_eq!(
        phases,
        [
            None,
            row(LeasePhase::Queued, ""),
            row(LeasePhase::Queued, "no-slot"),
            row(LeasePhase::Granted, ""),
            row(LeasePhase::Released, ""),
            row(LeasePhase::Ended, "worker-lost"),
        ]
    );
    let last = folded.read.lease_at(LEASE, 6).unwrap().unwrap();
    assert_eq!((last.asked_at, last.granted_at, last.ended_at), (Timestamp(1), Some(Timestamp(3)), Some(Timestamp(5))));
    assert_eq!((last.worker.as_str(), last.from, last.until), ("w1", 6, None));
    let owner = ask().owner;
    let of = |kind| folded.read.leases_of(owner.partition, (kind, owner.subject.id), 6, 9).unwrap();
    assert_eq!(of("image").into_iter().map(|(lease, row)| (lease, row.attempt())).collect::<Vec<_>>(), [(LEASE, 1)]);
    assert_eq!(of("build"), []);
}

#[test]
fn the_owner_is_told_of_a_loss_and_of_a_refusal() {
    let mut folded = Folded::new();
    folded.fold(joined("1"));
    folded.fold(queued());
    folded.fold(granted("1"));
    folded.fold(lost("1"));
    folded.fold(ended(true));
    let refused = LeaseRefused { ask: ask(), code: "over-limit".to_owned(), message: "too much".to_owned() };
    folded.fold(CapacityEvent::LeaseRefused(refused));
    let told: Vec<_> = folded.live.partition.outbox.rows.iter().collect();
    assert_eq!(told.len(), 2);
    for ((key, row), (sequence, refused)) in told.into_iter().zip([(5, false), (6, true)]) {
        assert_eq!(*key, (Domain::Images as u8, 3, sequence, 0));
        assert_eq!(row.key, "debian");
        let Input::Partition(PartitionInput::LeaseLost(lost)) = &row.input else { unreachable!("{row:?}") };
        assert_eq!((&lost.owner, lost.refused), (&ask().owner, refused));
        assert!(!lost.message.is_empty());
    }
}

#[test]
fn events_of_another_domain_are_refused() {
    let mut live = CapacityLive::in_memory();
    let mut folded = Folded::new();
    folded.fold(joined("1"));
    let event = gatelog_record::event::GateEvent::LeaseEndWanted(gatelog_record::draft::gate::LeaseEndWanted {
        build: BuildId([2; 16]),
        attempt: 1,
        reason: "finished".to_owned(),
    });
    let record = EventRecord {
        sequence: 1,
        term: 1,
        recorded_at: Timestamp(0),
        wall_at: Timestamp(0),
        id: EventId::default(),
        cause: Cause::Start,
        actor: ActorId::SYSTEM,
        key: String::new(),
        traceparent: String::new(),
        decision: None,
        event: Event::Gate(event),
    };
    let refused = live.apply(&record).unwrap_err().to_string();
    assert_eq!(refused, "gate.lease-end-wanted is not an event of capacity");
}
