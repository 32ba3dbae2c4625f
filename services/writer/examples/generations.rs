//! A writer and readers of a log in a directory, each a process of its own, so that two releases can be tried side by side.
//!
//! ```text
//! generations write DIR    decides what standard input asks for, a line each, and prints each event
//!     lease NAME                     a lease is asked for
//!     sample NAME                    rules of the newest level answer with three events that only it has
//!     raise LEVEL NAME=LEVEL...      the log's level is to be raised while these are there
//! generations read DIR     prints each event with the digest of the state after it, until it cannot read on
//! generations fold FILE    prints the digest of a log's state: records with their length before each
//! ```
//!
//! With `GENERATION=before` in its environment a debug build is a process of the release before.
#![expect(clippy::print_stdout, reason = "this is what it is for")]

use std::error::Error;
use std::fs;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use gatelog_capacity_state::{Capacity, CapacityLive};
use gatelog_deciding::{Context, Refusal, Rules};
use gatelog_event_log::{HistoryReader, Log, MemoryBlobs, Offset, ReadLimit, ReadRecord, Step};
use gatelog_log_embedded::{EmbeddedLog, Options, ReaderOptions};
use gatelog_record::draft::capacity::{LeaseAsked, LeaseDescription};
use gatelog_record::draft::gate::build_owner;
use gatelog_record::draft::partition::{LevelRaiseAsked, SampleBegun, SampleEnded, SampleNoted};
use gatelog_record::event::PartitionEvent;
use gatelog_record::input::{CapacityInput, PartitionInput};
use gatelog_record::level::Knows;
use gatelog_record::{
    BlobHash, BuildId, Domain, Event, EventRecord, Input, InputId, InputRecord, Partition, Stream, Timestamp,
};
use gatelog_rules_capacity::CapacityRules;
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{LiveTables, Maps, TableSet};
use gatelog_writer::{Append, Shell};

const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
const START: i64 = 1_800_000_000_000_000;

type Outcome = Result<(), Box<dyn Error>>;

/// Capacity's rules, of a release that knows what samples are.
#[derive(Default)]
struct Newest(CapacityRules);

impl Rules for Newest {
    type State = Capacity;

    fn needs(&self, _: &CapacityLive<Maps>, _: &InputRecord) -> Vec<BlobHash> {
        Vec::new()
    }

    fn admit(&mut self, _: BlobHash, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn decide(&self, state: &CapacityLive<Maps>, input: &InputRecord, context: Context) -> Result<Vec<Event>, Refusal> {
        match &input.input {
            Input::Capacity(CapacityInput::LeaseAsked(ask)) if ask.share == "sample" => {
                let name = ask.description.title.clone();
                let begun = PartitionEvent::SampleBegun(SampleBegun { name: name.clone() });
                let note = "a note".to_owned();
                let noted = PartitionEvent::SampleNoted(SampleNoted { name: name.clone(), note });
                let ended = PartitionEvent::SampleEnded(SampleEnded { name, notes: 1 });
                Ok(vec![begun.into(), noted.into(), ended.into()])
            }
            _ => self.0.decide(state, input, context),
        }
    }
}

fn main() -> Outcome {
    #[cfg(debug_assertions)]
    if std::env::var("GENERATION").is_ok_and(|generation| generation == "before") {
        gatelog_record::level::become_the_release_before();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["write", dir] => write(dir),
        ["read", dir] => read(dir),
        ["fold", file] => fold(file),
        _ => Err("usage: generations write|read DIR, or generations fold FILE".into()),
    };
    if let Err(error) = done {
        println!("refused: {error}");
        std::process::exit(7);
    }
    Ok(())
}

fn write(dir: &str) -> Outcome {
    let log = EmbeddedLog::open(dir, Options::default())?;
    let (_, mut writer) = log.claim(CAPACITY)?;
    let mut state = Folded::new();
    state.follow(&log, |_, _| ())?;
    let tail = state.reader.tail();
    let rules = Arc::new(Newest::default);
    let mut shell = Shell::new(CAPACITY, rules, |live| &live.partition, state.live, tail, &log.describe());
    let mut put = |append: Append| -> Outcome {
        writer.append(append.frames).wait().ok_or("the log is gone")??;
        append.records.iter().for_each(|record| println!("{}", told(record)));
        println!("done");
        Ok(std::io::stdout().flush()?)
    };
    let now = || Timestamp(START);
    put(shell.start("generations", now())?)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let input = asked(&line).ok_or_else(|| format!("what is {line:?}?"))?;
        let bytes = input.close()?.encode();
        let offsets =
            log.append_inputs(Stream::Inputs(CAPACITY), vec![bytes.clone()]).wait().ok_or("the log is gone")??;
        let offset = offsets.first().copied().unwrap_or_default();
        put(shell.take(offset, &bytes, now(), &MemoryBlobs::new())?)?;
    }
    Ok(())
}

fn asked(line: &str) -> Option<InputRecord> {
    let (verb, rest) = line.split_once(' ')?;
    let input: Input = match verb {
        "raise" => {
            let mut words = rest.split(' ');
            let level = words.next()?.parse().ok()?;
            let present = words.map(|word| {
                let (component, level) = word.split_once('=')?;
                let level = level.parse().ok()?;
                Some(Knows { component: component.to_owned(), gatelog: format!("0.{level}.0"), level })
            });
            let present = present.collect::<Option<Vec<Knows>>>()?;
            PartitionInput::LevelRaiseAsked(LevelRaiseAsked { level, present, reason: String::new() }).into()
        }
        "lease" | "sample" => {
            let mut build = [0; 16];
            build.copy_from_slice(BlobHash::of(rest.as_bytes()).0.first_chunk::<16>()?);
            let asked = LeaseAsked {
                owner: build_owner(verb, BuildId(build), 1),
                share: verb.to_owned(),
                description: LeaseDescription { title: rest.to_owned(), facts: Vec::new() },
                spec: BlobHash::of(rest.as_bytes()),
                nodes: Vec::new(),
                semaphores: Vec::new(),
                priority: 200,
                or_others: false,
            };
            CapacityInput::LeaseAsked(asked).into()
        }
        _ => return None,
    };
    Some(InputRecord::new(InputId::new(line), "main", Timestamp(START), input))
}

/// An event in a line.
fn told(record: &EventRecord) -> String {
    let more = match &record.event {
        Event::Partition(PartitionEvent::InputRefused(refused)) => format!(" {}: {}", refused.code, refused.message),
        _ => String::new(),
    };
    format!("{} {}{more}", record.sequence, record.event.name())
}

fn read(dir: &str) -> Outcome {
    let log = EmbeddedLog::open_reader(dir, ReaderOptions::default())?;
    let mut state = Folded::new();
    loop {
        state.follow(&log, |record, digest| println!("{} {digest}", told(record)))?;
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn fold(file: &str) -> Outcome {
    let bytes = fs::read(file)?;
    let mut rest = bytes.as_slice();
    let mut state = Folded::new();
    let mut offset = Offset(0);
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (record, after) =
            after.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or("it ends too early")?;
        state.take(&ReadRecord { offset, bytes: record.to_vec() })?;
        offset = Offset(offset.0 + 1);
        rest = after;
    }
    println!("{} {}", state.reader.tail().sequence, state.digest()?);
    Ok(())
}

/// The state, as far as the log was read.
struct Folded {
    reader: HistoryReader,
    live: CapacityLive<Maps>,
    from: Offset,
}

impl Folded {
    fn new() -> Folded {
        let reader = HistoryReader::from_genesis(CAPACITY);
        Folded { reader, live: CapacityLive::in_memory(), from: Offset::default() }
    }

    fn take(&mut self, record: &ReadRecord) -> Result<Option<EventRecord>, Box<dyn Error>> {
        let Step::Event(event, _) = self.reader.next(record)? else { return Ok(None) };
        self.live.apply(&event)?;
        Ok(Some(*event))
    }

    fn digest(&self) -> Result<String, Box<dyn Error>> {
        let mut digest = StateDigest::default();
        TableSet::<Maps>::visit(&self.live, &mut digest)?;
        Ok(BlobHash(digest.finish()).to_string())
    }

    fn follow(&mut self, log: &dyn Log, mut each: impl FnMut(&EventRecord, &str)) -> Outcome {
        loop {
            let batch = log.read(Stream::Events(CAPACITY), self.from, ReadLimit::default())?;
            if batch.records.is_empty() {
                return Ok(());
            }
            for record in &batch.records {
                if let Some(event) = self.take(record)? {
                    each(&event, &self.digest()?);
                }
            }
            self.from = batch.next;
        }
    }
}
