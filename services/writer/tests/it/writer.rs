//! The writer against a memory log: what it records, what it survives, what it refuses.

use std::sync::Arc;

use crate::common::{CAPACITY, GATE, START, Site, Touchy, asks, asks_with, digest, eventually, quick, worker};
use gatelog_event_log::memory::MemoryOptions;
use gatelog_event_log::{BlobError, Blobs, Log, LogError, MemoryLog, Tail};
use gatelog_record::draft::partition::{InputRefused, InputTaken};
use gatelog_record::event::PartitionEvent;
use gatelog_record::{ActorId, BlobHash, Cause, Event, InputFrame, InputId, InputRecord, Source, Stream, Timestamp};
use gatelog_writer::{Initial, Options, Outcome, Shell, Writer, WriterState};

fn taken(event: &Event) -> &InputTaken {
    match event {
        Event::Partition(PartitionEvent::InputTaken(taken)) => taken,
        other => panic!("{other:?}"),
    }
}

fn refused(event: &Event) -> &InputRefused {
    match event {
        Event::Partition(PartitionEvent::InputRefused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_input_becomes_events_with_their_place_and_cause() {
    let site = Site::new();
    let writer = site.writer();
    let waits = writer.published().waits();
    let joined = site.say(&worker("w1", 1, 1));
    let mut ask = asks("a", "b1");
    ask.actor = ActorId([7; 16]);
    ask.traceparent = "00-1-2-01".to_owned();
    let frame = ask.close().unwrap().encode();
    let asked = site.say_bytes(frame.clone());
    let decided = waits.for_offset(asked).unwrap().wait().unwrap();
    assert_eq!((decided.first, decided.last, decided.outcome), (3, 4, Outcome::Decided));
    // Asking again finds it, by offset and by id.
    assert_eq!(waits.for_offset(asked).unwrap().wait().unwrap().first, 3);
    assert_eq!(waits.for_id(&InputId::new("ask b1")).unwrap().wait().unwrap().first, 3);
    assert_eq!(writer.published().sequence(), 4);
    assert_eq!(writer.published().health().state, WriterState::Running);

    let history = site.history(CAPACITY);
    let names: Vec<_> = history.iter().map(|record| record.event.name()).collect();
    assert_eq!(names, ["writer-started", "capacity.worker-joined", "capacity.lease-queued", "capacity.lease-granted"]);
    let Event::Partition(PartitionEvent::WriterStarted(started)) = &history[0].event else { panic!() };
    assert_eq!((started.term, started.build.as_str(), started.generation), (1, "test", 1));
    assert_eq!(started.site, site.log.describe().site);
    assert_eq!(history[0].cause, Cause::Start);
    let header = history[2].decision.as_ref().unwrap();
    assert_eq!((header.input_sequence, header.input_offset), (2, asked.0));
    assert_eq!(header.input_digest, InputFrame::digest(&frame));
    assert_eq!(header.now, START);
    assert_eq!(history[1].decision.as_ref().unwrap().input_offset, joined.0);
    assert_eq!(history[3].decision, None, "only the first event of a decision has the header");
    for record in &history[2..] {
        assert_eq!(record.cause, Cause::Input { offset: asked.0 });
        assert_eq!(
            (record.actor, record.traceparent.as_str(), record.key.as_str()),
            (ActorId([7; 16]), "00-1-2-01", "main")
        );
        assert_eq!(record.term, 1);
    }
    let mut ids: Vec<_> = history.iter().map(|record| record.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), history.len(), "every event has its own id");
    let health = writer.stop();
    assert_eq!(health.state, WriterState::Stopped { error: None, fenced: false });
}

#[test]
fn a_rule_that_panics_for_one_tenant_costs_one_input() {
    let site = Site::new();
    let writer = site.writer();
    let before = site.say(&asks("a", "b1"));
    let cursed = site.say(&asks("cursed", "canary-name"));
    let after = site.say(&asks("b", "b2"));
    let waits = writer.published().waits();
    let decided = waits.for_offset(cursed).unwrap().wait().unwrap();
    waits.for_offset(after).unwrap().wait().unwrap();
    assert!(matches!(decided.outcome, Outcome::Refused { ref code, .. } if code == "internal-error"), "{decided:?}");

    assert_eq!(site.names(before), ["capacity.lease-queued", "capacity.wait-changed"]);
    assert_eq!(site.names(after), ["capacity.lease-queued", "capacity.wait-changed"]);
    let decision = site.decision(cursed);
    assert_eq!(decision.len(), 1);
    let refused = refused(&decision[0].event);
    assert_eq!((refused.code.as_str(), refused.kind.as_deref()), ("internal-error", Some("capacity.in.lease-asked")));
    let digest = BlobHash(decision[0].decision.as_ref().unwrap().input_digest).to_string();
    assert!(refused.message.contains(&digest) && refused.message.contains("common.rs:"), "{}", refused.message);
    assert!(!refused.message.contains("canary"), "a panic's own words may quote the input: {}", refused.message);

    let WriterState::Yellow { reasons } = writer.published().health().state else { panic!() };
    assert_eq!((reasons[0].code.as_str(), reasons[0].sequence), ("internal-error", decision[0].sequence));
    assert_eq!(reasons[0].input_offset, Some(cursed.0));
    assert_eq!(writer.published().health().restarts, 0, "the partition did not fall over");
}

#[test]
fn a_decision_that_does_not_fit_the_state_is_refused() {
    let site = Site::new();
    let writer = site.writer();
    let lied = site.say(&asks("liar", "b1"));
    let after = site.say(&asks("a", "b2"));
    writer.published().waits().for_offset(after).unwrap().wait().unwrap();
    let decision = site.decision(lied);
    assert_eq!(refused(&decision[0].event).code, "fold-refused");
    assert!(refused(&decision[0].event).message.contains("table leases has no row"), "{decision:?}");
    assert!(matches!(writer.published().health().state, WriterState::Yellow { .. }));
}

#[test]
fn what_cannot_be_read_is_refused_and_nothing_else_suffers() {
    let site = Site::new();
    let writer = site.writer();
    let garbage = site.say_bytes(b"not a frame".to_vec());
    let mut unknown = asks("a", "b1").close().unwrap();
    unknown.kind_version.kind = 0x82ff;
    let unknown = site.say_bytes(unknown.encode());
    let mut damaged = asks("a", "b1").close().unwrap();
    damaged.body.truncate(3);
    let damaged = site.say_bytes(damaged.encode());
    let mut nameless = asks("a", "b1");
    nameless.input_id = InputId::default();
    let nameless = site.say(&nameless);
    let mut foreign = asks("a", "b3").close().unwrap();
    foreign.input_id = InputId::new("foreign");
    foreign.kind_version.kind = 0x8502;
    foreign.body = gatelog_record::codec::encode(&(1_u32, "x")).unwrap();
    let foreign = site.say_bytes(foreign.encode());
    // The same id as that of the first unknown one: it was taken, so this is a repeat.
    let good = site.say(&asks("a", "b2"));
    writer.published().waits().for_offset(good).unwrap().wait().unwrap();
    for offset in [garbage, unknown, damaged, nameless, foreign] {
        let decision = site.decision(offset);
        assert_eq!(decision.len(), 1, "{decision:?}");
        assert_eq!(refused(&decision[0].event).code, "unreadable");
        assert!(!refused(&decision[0].event).message.is_empty());
    }
    assert_eq!(site.names(good), ["capacity.lease-queued", "capacity.wait-changed"]);
    assert_eq!(writer.published().health().state, WriterState::Running);
}

#[test]
fn a_repeat_is_known_by_its_id() {
    let site = Site::new();
    let writer = site.writer();
    site.log.duplicate_next_input();
    let asked = site.say(&asks("a", "b1"));
    let last = site.say(&asks("a", "b1"));
    let decided = writer.published().waits().for_offset(last).unwrap().wait().unwrap();
    assert_eq!(decided.outcome, Outcome::Duplicate { of: Some(2) });
    let history = site.history(CAPACITY);
    assert_eq!(site.decision(asked)[0].sequence, 2);
    assert_eq!(history.len(), 5, "started, queued, waits, and two repeats");
    for record in &history[3..] {
        assert_eq!(taken(&record.event), &InputTaken { duplicate_of: Some(2), reason: "duplicate".to_owned() });
    }
}

#[test]
fn a_repeat_is_known_by_the_mark_of_its_source() {
    let site = Site::new();
    let writer = site.writer();
    let from = |sequence, ordinal, name: &str| {
        let mut input = asks("a", name);
        input.source = Some(Source { partition: GATE, sequence, ordinal });
        input
    };
    site.say(&from(10, 0, "b1"));
    site.say(&from(10, 1, "b2"));
    // Not the id of anything taken, but at or below the mark.
    let below = site.say(&from(9, 7, "b3"));
    let at = site.say(&from(10, 1, "b4"));
    let above = site.say(&from(11, 0, "b5"));
    writer.published().waits().for_offset(above).unwrap().wait().unwrap();
    for offset in [below, at] {
        assert_eq!(taken(&site.decision(offset)[0].event).reason, "duplicate");
    }
    assert_eq!(site.names(above), ["capacity.lease-queued", "capacity.wait-changed"]);
    assert_eq!(writer.published().mark(GATE), Some((11, 0)));
    assert_eq!(site.fold(CAPACITY).partition.marks.rows[&(GATE.domain as u8, 0)], (11, 0));
}

#[test]
fn a_blob_that_is_missing_or_damaged_is_an_error_of_its_tenant() {
    let site = Site::new();
    let writer = site.writer();
    let waits = writer.published().waits();
    let there = site.blobs.put(b"a spec").unwrap();
    let damaged = site.blobs.put(b"another spec").unwrap();
    assert!(site.blobs.damage(&damaged));
    let nonsense = site.blobs.put(b"nonsense").unwrap();
    let missing = BlobHash::of(b"a third");
    let say = |name: &str, hash: BlobHash| site.say(&asks_with("blobby", name, |ask| ask.spec = hash));
    let expected = [
        (say("b1", missing), missing, "blob-missing"),
        (say("b2", damaged), damaged, "blob-damaged"),
        (say("b3", nonsense), nonsense, "blob-damaged"),
    ];
    let good = say("b4", there);
    let other = site.say(&asks("a", "b5"));
    waits.for_offset(other).unwrap().wait().unwrap();
    for (offset, hash, code) in expected {
        let decision = site.decision(offset);
        let refused = refused(&decision[0].event);
        assert_eq!(refused.code, code);
        assert!(refused.message.contains(&hash.to_string()), "{}", refused.message);
    }
    for offset in [good, other] {
        assert_eq!(site.names(offset), ["capacity.lease-queued", "capacity.wait-changed"]);
    }
}

#[test]
fn a_blob_store_that_fails_costs_no_input() {
    struct Flaky(gatelog_event_log::MemoryBlobs, std::sync::atomic::AtomicU32);
    impl Blobs for Flaky {
        fn put(&self, bytes: &[u8]) -> Result<BlobHash, BlobError> {
            self.0.put(bytes)
        }
        fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, BlobError> {
            if self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 12 {
                return Err(BlobError::Store { what: "get", message: "unreachable".to_owned() });
            }
            self.0.get(hash)
        }
        fn has(&self, hash: &BlobHash) -> Result<bool, BlobError> {
            self.0.has(hash)
        }
        fn list(&self) -> Result<Vec<BlobHash>, BlobError> {
            self.0.list()
        }
        fn remove(&self, hash: &BlobHash) -> Result<(), BlobError> {
            self.0.remove(hash)
        }
    }
    let site = Site::new();
    let there = site.blobs.put(b"a spec").unwrap();
    let mut setup = site.setup(CAPACITY, Options { restarts: 2, ..quick() });
    setup.blobs = Arc::new(Flaky(site.blobs.clone(), Default::default()));
    let writer = Writer::start(setup).unwrap();
    let asked = site.say(&asks_with("blobby", "b1", |ask| ask.spec = there));
    let decided = writer.published().waits().for_offset(asked).unwrap().wait().unwrap();
    assert_eq!(decided.outcome, Outcome::Decided);
    assert_eq!(writer.published().health().restarts, 12);
    assert_eq!(site.names(asked), ["capacity.lease-queued", "capacity.wait-changed"]);
}

#[test]
fn a_clock_that_jumps_is_recorded_and_history_never_goes_back() {
    let site = Site::new();
    let writer = site.writer();
    let waits = writer.published().waits();
    let first = site.say(&asks("a", "b1"));
    waits.for_offset(first).unwrap().wait().unwrap();
    let back = START.plus_seconds(-600);
    site.clock.jump_to(back);
    let second = site.say(&asks("a", "b2"));
    waits.for_offset(second).unwrap().wait().unwrap();
    // An hour that really passes is no jump, nor is a small correction.
    site.clock.advance(std::time::Duration::from_secs(3_600));
    site.clock.jump_to(back.plus_seconds(3_600 + 200));
    let third = site.say(&asks("a", "b3"));
    waits.for_offset(third).unwrap().wait().unwrap();

    let history = site.history(CAPACITY);
    let steps: Vec<_> = history
        .iter()
        .filter_map(|record| match &record.event {
            Event::Partition(PartitionEvent::ClockStepped(stepped)) => Some((record, stepped)),
            _ => None,
        })
        .collect();
    assert_eq!(steps.len(), 1);
    let (record, stepped) = steps[0];
    assert_eq!((stepped.before, stepped.now), (START, back));
    assert_eq!((record.cause, record.decision.clone()), (Cause::Start, None));
    let second = &site.decision(second)[0];
    assert_eq!((second.recorded_at, second.wall_at), (START, back));
    assert_eq!(second.decision.as_ref().unwrap().now, START);
    // The log's time goes on from there: what was to come due in this hour did.
    let third = &site.decision(third)[0];
    assert_eq!((third.recorded_at, third.wall_at), (START.plus_seconds(3_600), back.plus_seconds(3_800)));
    site.fold(CAPACITY);
    drop(writer);
    // A new writer sees that the clock went back since the newest event.
    site.clock.jump_to(START);
    let writer = site.writer();
    let fourth = site.say(&asks("a", "b4"));
    writer.published().waits().for_offset(fourth).unwrap().wait().unwrap();
    let steps = site.history(CAPACITY).iter().filter(|record| record.event.name() == "clock-stepped").count();
    assert_eq!(steps, 2);
}

#[test]
fn an_append_that_fails_or_is_lost_starts_the_partition_again() {
    for lost in [false, true] {
        let site = Site::new();
        let writer = site.writer();
        let waits = writer.published().waits();
        let first = site.say(&asks("a", "b1"));
        waits.for_offset(first).unwrap().wait().unwrap();
        // The fault must meet the append of events, not that of the input: the input is put past it.
        let frame = asks("a", "b2").close().unwrap().encode();
        if lost {
            site.log.lose_next_ack();
        } else {
            let message = "the disk hiccuped".to_owned();
            site.log.fail_next(LogError::System { what: "append".to_owned(), message });
        }
        let second = site.log.insert(Stream::Inputs(CAPACITY), frame);
        let decided = waits.for_offset(second).unwrap().wait().unwrap();
        assert_eq!(decided.outcome, Outcome::Decided);
        let third = site.say(&asks("a", "b3"));
        waits.for_offset(third).unwrap().wait().unwrap();
        let health = writer.published().health();
        assert_eq!((health.restarts, health.term), (1, 2));
        for offset in [first, second, third] {
            assert_eq!(site.names(offset), ["capacity.lease-queued", "capacity.wait-changed"], "lost: {lost}");
        }
        assert_eq!(site.fold(CAPACITY).own.leases.rows.len(), 3);
    }
}

#[test]
fn the_next_inputs_are_decided_while_appends_are_in_flight() {
    let site = Site::new();
    let offsets: Vec<_> = (0..6).map(|index| site.say(&asks("a", &format!("b{index}")))).collect();
    site.log.hold();
    let writer = Writer::start(site.setup(CAPACITY, Options { in_flight: 4, ..quick() })).unwrap();
    eventually("four appends are in flight", || site.log.held() == 4);
    let last = writer.published().waits().for_offset(offsets[5]).unwrap();
    let last = last.wait_for(std::time::Duration::from_millis(30)).err().unwrap();
    assert_eq!((site.log.held(), writer.published().sequence()), (4, 0), "never more than the limit");
    assert!(site.history(CAPACITY).is_empty());
    assert_eq!(site.log.release(2), 2);
    eventually("two more are sent", || site.log.held() == 4 && writer.published().sequence() > 0);
    site.log.flow();
    assert_eq!(last.wait().unwrap().outcome, Outcome::Decided);
    assert_eq!(site.fold(CAPACITY).own.queue.rows.len(), 6);
}

#[test]
fn a_crash_with_appends_in_flight_loses_nothing_and_repeats_nothing() {
    for written in 0..6 {
        let site = Site::new();
        site.say(&worker("w1", 1, 2));
        for index in 0..4 {
            site.say(&asks("a", &format!("b{index}")));
        }
        site.log.hold();
        let writer = site.writer();
        eventually("all are in flight", || site.log.held() == 6);
        site.log.crash(written);
        drop(writer);
        let writer = site.writer();
        let last = site.say(&asks("a", "last"));
        writer.published().waits().for_offset(last).unwrap().wait().unwrap();
        let live = site.fold(CAPACITY);
        assert_eq!(live.own.leases.rows.len(), 5, "{written} written");
        assert_eq!(live.own.workers.rows["w1"].used, 2);
        assert_eq!(live.partition.writer.rows[&()].input_sequence, 6);
    }
}

#[test]
fn what_is_decided_before_its_input_is_acknowledged_never_outlives_it() {
    let stream = Stream::Inputs(CAPACITY);
    for written in 0..=8 {
        let site = Site::new();
        let before = site.say(&asks("a", "before"));
        let writer = site.writer();
        writer.published().waits().for_offset(before).unwrap().wait().unwrap();
        let sequence = writer.published().sequence();
        site.log.hold();
        let coming: Vec<_> = (0..3)
            .map(|index| {
                let frame = asks("a", &format!("b{index}")).close().unwrap().encode();
                site.log.append_inputs(stream, vec![frame])
            })
            .collect();
        eventually("all are decided", || site.log.held() == 6);
        assert_eq!(site.log.records(stream).len(), 1, "nobody else sees them");
        assert_eq!(writer.published().sequence(), sequence, "and nothing that was decided of them");
        if written > 6 {
            site.log.flow();
            for result in coming {
                let offset = result.wait().unwrap().unwrap()[0];
                writer.published().waits().for_offset(offset).unwrap().wait().unwrap();
                assert_eq!(site.names(offset), ["capacity.lease-queued", "capacity.wait-changed"]);
            }
            assert_eq!(writer.published().health().restarts, 0);
            continue;
        }
        site.log.crash(written);
        drop(writer);
        // Each input that is there is decided once, by whichever writer; of the others there is nothing.
        let writer = site.writer();
        let last = site.say(&asks("a", "last"));
        writer.published().waits().for_offset(last).unwrap().wait().unwrap();
        let there = site.log.records(stream);
        for record in &there {
            assert_eq!(site.names(record.offset), ["capacity.lease-queued", "capacity.wait-changed"], "{written}");
        }
        assert_eq!(site.fold(CAPACITY).own.leases.rows.len(), there.len(), "{written} written");
    }
}

#[test]
fn a_writer_that_was_taken_over_stops() {
    let site = Site::new();
    let writer = site.writer();
    let first = site.say(&asks("a", "b1"));
    writer.published().waits().for_offset(first).unwrap().wait().unwrap();
    let other = site.writer();
    eventually("the other has started", || other.published().health().state == WriterState::Running);
    let second = site.say(&asks("a", "b2"));
    other.published().waits().for_offset(second).unwrap().wait().unwrap();
    eventually("the old one knows", || {
        matches!(writer.published().health().state, WriterState::Stopped { fenced: true, error: Some(_) })
    });
    assert_eq!(other.published().health().term, 2);
    let (names, folded) = (site.names(second), site.fold(CAPACITY));
    assert_eq!(names, ["capacity.lease-queued", "capacity.wait-changed"], "once");
    assert_eq!(folded.own.leases.rows.len(), 2);
}

#[test]
fn a_decision_the_log_finds_too_large_is_refused() {
    let site = Site::on(MemoryLog::new(MemoryOptions { max_append: 4_000, max_record: 2_500, ..Default::default() }));
    let writer = site.writer();
    // The input fits, its events (the ask and its place) do not fit in one append with it.
    let large = site.say(&asks_with("a", "b1", |ask| ask.description.title = "x".repeat(2_250)));
    let after = site.say(&asks("a", "b2"));
    let waits = writer.published().waits();
    let decided = waits.for_offset(large).unwrap().wait().unwrap();
    assert!(matches!(decided.outcome, Outcome::Refused { ref code, .. } if code == "too-large"), "{decided:?}");
    waits.for_offset(after).unwrap().wait().unwrap();
    assert_eq!(site.names(large), ["input-refused"]);
    assert_eq!(site.names(after), ["capacity.lease-queued", "capacity.wait-changed"]);
}

#[test]
fn a_log_adopted_as_a_new_generation_says_so_once() {
    let site = Site::new();
    let writer = site.writer();
    let first = site.say(&asks("a", "b1"));
    writer.published().waits().for_offset(first).unwrap().wait().unwrap();
    drop(writer);
    let adopted = Site::on(MemoryLog::new(MemoryOptions { generation: 2, ..Default::default() }));
    for stream in [Stream::Inputs(CAPACITY), Stream::Events(CAPACITY)] {
        for record in site.log.records(stream) {
            adopted.log.insert(stream, record.bytes);
        }
    }
    for _ in 0..2 {
        let writer = adopted.writer();
        eventually("it runs", || writer.published().health().state == WriterState::Running);
    }
    let history = adopted.history(CAPACITY);
    let names: Vec<_> = history.iter().skip(3).map(|record| record.event.name()).collect();
    assert_eq!(names, ["writer-started", "log-restored", "writer-started"]);
    assert_eq!(adopted.fold(CAPACITY).partition.writer.rows[&()].generation, 2);
}

#[test]
fn it_starts_from_a_known_state_and_stops_if_that_knows_more_than_the_log() {
    let site = Site::new();
    let writer = site.writer();
    for index in 0..5 {
        let offset = site.say(&asks("a", &format!("b{index}")));
        writer.published().waits().for_offset(offset).unwrap().wait().unwrap();
    }
    drop(writer);
    // As of event 7, as a checkpoint would have it.
    let mut tail = Tail::GENESIS;
    let mut live = gatelog_capacity_state::CapacityLive::in_memory();
    let mut reader = gatelog_event_log::HistoryReader::from_genesis(CAPACITY);
    for record in site.log.records(Stream::Events(CAPACITY)).iter().take(7) {
        let gatelog_event_log::Step::Event(event, _) = reader.next(record).unwrap() else { panic!() };
        gatelog_tables::LiveTables::<gatelog_tables::Maps>::apply(&mut live, &event).unwrap();
        tail = reader.tail();
    }
    let mut start = Some(Initial { live, tail });
    let mut setup = site.setup(CAPACITY, quick());
    setup.initial = Box::new(move || start.take().ok_or_else(|| "only once".to_owned()));
    let writer = Writer::start(setup).unwrap();
    let offset = site.say(&asks("a", "b9"));
    writer.published().waits().for_offset(offset).unwrap().wait().unwrap();
    drop(writer);
    assert_eq!(site.fold(CAPACITY).own.leases.rows.len(), 6);

    site.log.truncate(Stream::Events(CAPACITY), 4);
    let mut setup = site.setup(CAPACITY, quick());
    setup.initial = Box::new(move || Ok(Initial { live: gatelog_capacity_state::CapacityLive::in_memory(), tail }));
    let writer = Writer::start(setup).unwrap();
    eventually("it stops", || matches!(writer.published().health().state, WriterState::Stopped { .. }));
    let WriterState::Stopped { error: Some(error), fenced: false } = writer.published().health().state else {
        panic!()
    };
    assert!(error.contains("stands at event 7, the log ends at event 4"), "{error}");
}

#[test]
fn a_history_that_cannot_be_trusted_stops_the_writer_at_the_place() {
    let site = Site::new();
    let writer = site.writer();
    let offset = site.say(&asks("a", "b1"));
    writer.published().waits().for_offset(offset).unwrap().wait().unwrap();
    drop(writer);
    let second = site.log.records(Stream::Events(CAPACITY))[1].offset;
    assert!(site.log.tamper(Stream::Events(CAPACITY), second, 60));
    let writer = site.writer();
    eventually("it stops", || matches!(writer.published().health().state, WriterState::Stopped { .. }));
    let WriterState::Stopped { error: Some(error), .. } = writer.published().health().state else { panic!() };
    assert!(error.contains(&format!("offset {}", second.0)), "{error}");
    let waiting = writer.published().waits().for_id(&InputId::new("never")).unwrap();
    drop(writer);
    drop(waiting);
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let site = Site::new();
    let blobs = site.blobs.clone();
    let log = site.log.describe();
    let inputs: Vec<InputRecord> = vec![
        worker("w1", 1, 2),
        asks("a", "b1"),
        asks("cursed", "b2"),
        asks("b", "b3"),
        asks("a", "b1"),
        worker("w1", 2, 1),
    ];
    let mut runs = Vec::new();
    for _ in 0..2 {
        let Initial { live, tail } = Initial::<gatelog_capacity_state::Capacity>::genesis().unwrap();
        let mut shell: Shell<Touchy> =
            Shell::new(CAPACITY, Arc::new(Default::default), |live| &live.partition, live, tail, &log);
        let mut frames = shell.start("test", START).unwrap().frames;
        for (index, input) in inputs.iter().enumerate() {
            let bytes = input.close().unwrap().encode();
            let offset = gatelog_event_log::Offset(index as u64 * 3);
            let wall = Timestamp(START.0 + index as i64);
            frames.extend(shell.take(offset, &bytes, wall, &blobs).unwrap().frames);
        }
        runs.push((frames, digest(shell.state()), shell.tail()));
    }
    assert_eq!(runs[0], runs[1]);
    assert!(runs[0].0.len() > inputs.len());
}
