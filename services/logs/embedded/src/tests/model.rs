//! The log against the simplest model of it: a list of records for each stream.

use std::collections::BTreeMap;

use super::*;
use gatelog_event_log::{ReadLimit, Tail, history};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// Inputs to one of three streams, with these sizes.
    Inputs(u8, Vec<u16>),
    /// So many events.
    Events(u8),
    /// A new claim.
    Claim,
    Reopen,
    Crash,
    /// A crash in the middle of a write of which so many bytes (modulo its length) are there.
    Torn(u16),
    /// Read from somewhere, with a limit.
    Read(u8, u16, u8, u16),
    Seek(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8, prop::collection::vec(0..400_u16, 1..4)).prop_map(|(stream, sizes)| Step::Inputs(stream, sizes)),
        4 => (1..5_u8).prop_map(Step::Events),
        1 => Just(Step::Claim),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
        1 => any::<u16>().prop_map(Step::Torn),
        3 => (0..4_u8, any::<u16>(), 1..6_u8, 1..2_000_u16).prop_map(|(a, b, c, d)| Step::Read(a, b, c, d)),
        1 => any::<u16>().prop_map(Step::Seek),
    ]
}

const STREAMS: [Stream; 4] =
    [Stream::Intake(0), INPUTS, Stream::Inputs(Partition { domain: Domain::Capacity, index: 1 }), EVENTS];

struct World {
    dir: TempDir,
    options: fn() -> Options,
    log: EmbeddedLog,
    writer: Option<(Scribe, Box<dyn EventWriter>)>,
    model: BTreeMap<Stream, Vec<Vec<u8>>>,
    tail: Tail,
    filler: u8,
}

impl World {
    fn new(options: fn() -> Options) -> World {
        let dir = TempDir::new().unwrap();
        let log = open(&dir, options());
        let model = STREAMS.into_iter().map(|stream| (stream, Vec::new())).collect();
        World { dir, options, log, writer: None, model, tail: Tail::GENESIS, filler: 0 }
    }

    fn again(&mut self) {
        self.writer = None;
        self.log = open(&self.dir, (self.options)());
        self.check();
    }

    fn claim(&mut self) {
        let (scribe, writer) = claim(&self.log);
        assert_eq!(scribe.tail, self.tail);
        self.writer = Some((scribe, writer));
    }

    fn check(&self) {
        for (stream, records) in &self.model {
            assert!(contents(&self.log, *stream) == *records, "{stream}");
        }
        let report = history::verify(&self.log, GATE);
        assert_eq!((report.error, report.tail), (None, self.tail));
        let verified = self.log.verify().unwrap();
        assert_eq!(verified.records, self.model.values().map(|records| records.len() as u64).sum::<u64>());
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Inputs(stream, sizes) => {
                let stream = STREAMS[usize::from(stream)];
                self.filler = self.filler.wrapping_add(1);
                let records: Vec<_> = sizes.into_iter().map(|size| vec![self.filler; usize::from(size)]).collect();
                let kept = self.model.get_mut(&stream).unwrap();
                let offsets = arrived(self.log.append_inputs(stream, records.clone())).unwrap();
                assert_eq!(offsets[0], Offset(kept.len() as u64));
                kept.extend(records);
            }
            Step::Events(count) => {
                if self.writer.is_none() {
                    self.claim();
                }
                let (scribe, writer) = self.writer.as_mut().unwrap();
                let records = scribe.several(usize::from(count));
                arrived(writer.append(records.clone())).unwrap();
                self.tail = scribe.tail;
                self.model.get_mut(&EVENTS).unwrap().extend(records);
            }
            Step::Claim => self.claim(),
            Step::Reopen => {
                self.log.close();
                self.again();
            }
            Step::Crash => {
                self.log.abandon();
                self.again();
            }
            Step::Torn(length) => {
                if segments(self.dir.path()) == 0 {
                    return;
                }
                let offset = self.model[&INPUTS].len() as u64;
                let (path, at, frame) = next_frame(&self.log, &[(INPUTS, offset, vec![0xee; 300])]);
                self.log.abandon();
                write_bytes(&path, at, &frame[..usize::from(length) % frame.len()]);
                self.again();
            }
            Step::Read(stream, from, records, bytes) => {
                let stream = STREAMS[usize::from(stream)];
                let kept = &self.model[&stream];
                let from = usize::from(from) % (kept.len() + 1);
                let limit = ReadLimit { records: usize::from(records), bytes: usize::from(bytes) };
                let batch = self.log.read(stream, Offset(from as u64), limit).unwrap();
                let mut sum = 0;
                let expected: Vec<_> = kept[from..]
                    .iter()
                    .enumerate()
                    .take_while(|(index, record)| {
                        sum += record.len();
                        *index == 0 || (*index < limit.records && sum <= limit.bytes)
                    })
                    .map(|(_, record)| record.clone())
                    .collect();
                assert_eq!(batch.next, Offset((from + expected.len()) as u64));
                assert!(batch.records.into_iter().map(|record| record.bytes).eq(expected));
            }
            Step::Seek(sequence) => {
                let sequence = u64::from(sequence) % (self.tail.sequence + 2);
                let expected = sequence.max(1) - 1;
                assert_eq!(self.log.seek(GATE, sequence), Ok(Offset(expected)));
            }
        }
    }
}

fn small() -> Options {
    Options { segment_bytes: 3_000, hot_bytes: 1_000, ..Options::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_a_list_for_each_stream(steps in prop::collection::vec(step(), 1..60), cold in any::<bool>()) {
        let mut world = World::new(if cold { tiny } else { small });
        for step in steps {
            world.take(step);
        }
        world.check();
        world.log.close();
        world.again();
    }
}
