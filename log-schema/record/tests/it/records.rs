//! Every kind of event and input, with as many samples as it takes to meet each of its variants.

use gatelog_record::event::PartitionEvent;
use gatelog_record::{
    ActorId, Cause, ChainLink, DecisionHeader, Domain, Envelope, Event, EventId, EventRecord, EventRef, Input, InputId,
    InputRecord, KindInfo, Partition, Source, Timestamp,
};
use serde::de::DeserializeOwned;

use crate::sampler::{Choice, Sampler};

/// A kind: how to get at it, and what the registry says of it.
pub struct Kind<T> {
    pub path: [usize; 2],
    pub info: &'static KindInfo,
    pub samples: Vec<T>,
}

fn kinds<T: DeserializeOwned>(registry: Vec<&'static KindInfo>, number: impl Fn(&T) -> u16) -> Vec<Kind<T>> {
    let mut kinds = Vec::new();
    let (mut family, mut families) = (0, 1);
    while family < families {
        let (mut member, mut members) = (0, 1);
        while member < members {
            let path = [family, member];
            let mut first = Sampler::new(&path, Choice::Nth(0));
            let sample: T = first.sample().unwrap();
            (families, members) = (first.widths[0], first.widths[1]);
            let info = registry.iter().find(|info| info.newest.kind == number(&sample)).unwrap();
            // Two more than the widest enum has variants: sample 1 has none where the enum is optional.
            let mut samples = vec![sample];
            let mut widest = first.widest;
            while (samples.len() as u64) < (widest + 2).max(3) {
                let mut sampler = Sampler::new(&path, Choice::Nth(samples.len() as u64));
                samples.push(sampler.sample().unwrap());
                widest = widest.max(sampler.widest);
            }
            kinds.push(Kind { path, info, samples });
            member += 1;
        }
        family += 1;
    }
    assert_eq!(kinds.len(), registry.len(), "not every kind in the registry was met");
    kinds
}

pub fn events() -> Vec<Kind<Event>> {
    kinds(Event::kinds().collect(), |event: &Event| event.kind_version().kind)
}

pub fn inputs() -> Vec<Kind<Input>> {
    kinds(Input::kinds().collect(), |input: &Input| input.kind_version().kind)
}

/// An event in its envelope; every second one begins a decision.
pub fn event_record(nth: usize, event: Event) -> EventRecord {
    let number = nth as u64;
    let gate = Partition { domain: Domain::Gate, index: 0 };
    let decision = nth.is_multiple_of(2).then(|| DecisionHeader {
        input_sequence: 40 + number,
        input_offset: 50 + number,
        input_digest: [0xd1; 32],
        now: Timestamp(1_790_000_000_000_000),
        input_id: InputId::new(format!("sample:{nth}")),
        source: nth.is_multiple_of(4).then_some(Source { partition: gate, sequence: 7, ordinal: 1 }),
        caused_by: (nth % 4 == 2).then_some(EventRef { partition: gate, sequence: 9 }),
    });
    EventRecord {
        sequence: 100 + number,
        term: 3,
        recorded_at: Timestamp(1_790_000_000_000_000 + nth as i64),
        wall_at: Timestamp(1_790_000_000_000_000 - nth as i64),
        id: EventId([0x1d; 16]),
        cause: match nth % 3 {
            0 => Cause::Input { offset: 50 + number },
            1 => Cause::Event { sequence: 99 + number },
            _ => Cause::Start,
        },
        actor: if nth == 0 { ActorId::SYSTEM } else { ActorId([0xac; 16]) },
        key: "example".to_owned(),
        traceparent: if nth == 0 {
            String::new()
        } else {
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()
        },
        decision,
        event,
    }
}

/// An input in its frame.
pub fn input_record(nth: usize, input: Input) -> InputRecord {
    let gate = Partition { domain: Domain::Gate, index: 0 };
    let id = InputId::new(format!("sample:{nth}"));
    let mut record = InputRecord::new(id, "example", Timestamp(1_790_000_000_000_000 + nth as i64), input);
    if nth > 0 {
        record.actor = ActorId([0xac; 16]);
        record.source = nth.is_multiple_of(2).then_some(Source { partition: gate, sequence: 7, ordinal: 1 });
        record.caused_by = (nth % 2 == 1).then_some(EventRef { partition: gate, sequence: 9 });
    }
    record
}

/// A record to be damaged: small, with a decision header.
pub fn some_event() -> (Envelope, Vec<u8>) {
    let event = Event::Partition(PartitionEvent::InputTaken(gatelog_record::draft::partition::InputTaken {
        duplicate_of: Some(12),
        reason: "duplicate".to_owned(),
    }));
    let envelope = event_record(0, event).close().unwrap();
    let (bytes, _) = envelope.encode(&ChainLink::GENESIS);
    (envelope, bytes)
}

/// The bytes of an input to be damaged.
pub fn some_input() -> Vec<u8> {
    let [input, ..] = &inputs()[0].samples[..] else { panic!("no sample") };
    input_record(2, input.clone()).close().unwrap().encode()
}
