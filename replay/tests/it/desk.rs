//! The library's desk: rules, the writer's shell around them, and a log.

use std::sync::Arc;

use gatelog_deciding::{Context, Deciding, Refusal, Rules};
use gatelog_event_log::{Log, MemoryBlobs, MemoryLog, Tail};
use gatelog_partition_state::PartitionTables;
use gatelog_record::draft::gate::NotRouted;
use gatelog_record::draft::partition::TimerSet;
use gatelog_record::event::PartitionEvent;
use gatelog_record::input::GateInput;
use gatelog_record::{BlobHash, Event, Input, InputId, InputRecord, ItemId, Partition, Stream, Timestamp};
use gatelog_replay::{Moment, Timeline};
use gatelog_tables::Maps;
use gatelog_writer::{RulesFactory, Shell};

use crate::lending::{Lending, Live, sample};

/// The rules. A generous librarian buys one copy more.
pub struct Librarian {
    pub generous: bool,
    read: Vec<BlobHash>,
}

impl Rules for Librarian {
    type State = Lending;

    /// A book is read from its blob.
    fn needs(&self, _: &Live<Maps>, input: &InputRecord) -> Vec<BlobHash> {
        match &input.input {
            Input::Gate(GateInput::NotRouted(asked)) if asked.connection == "read" => {
                let hash = BlobHash::of(asked.project.as_bytes());
                if self.read.contains(&hash) { Vec::new() } else { vec![hash] }
            }
            _ => Vec::new(),
        }
    }

    fn admit(&mut self, hash: BlobHash, _: &[u8]) -> Result<(), String> {
        self.read.push(hash);
        Ok(())
    }

    fn decide(&self, state: &Live<Maps>, input: &InputRecord, context: Context) -> Result<Vec<Event>, Refusal> {
        let mut deciding = Deciding::<Lending>::begin(state, input, context);
        let Input::Gate(GateInput::NotRouted(asked)) = &input.input else {
            let book = format!("due-{}", deciding.next_sequence());
            deciding.emit(sample("buy", &book, 1))?;
            return Ok(deciding.finish());
        };
        let (book, count) = (asked.project.as_str(), asked.table_version);
        match asked.connection.as_str() {
            "look" => {}
            "read" => deciding.emit(sample("buy", book, count))?,
            "fall" => panic!("the librarian fell from the ladder"),
            "remind" => {
                let due_at = deciding.now.plus_seconds(count as i64);
                deciding.emit(PartitionEvent::TimerSet(TimerSet { timer: book.to_owned(), due_at }))?;
            }
            "order" => {
                // Named by ids: they must come out the same.
                for _ in 0..count {
                    let id: ItemId = deciding.id();
                    deciding.emit(sample("buy", &format!("{book}-{id}"), 1))?;
                }
            }
            "buy" if self.generous && count > 4 => deciding.emit(sample("buy", book, count + 1))?,
            verb => deciding.emit(sample(verb, book, count))?,
        }
        Ok(deciding.finish())
    }
}

pub fn rules(generous: bool) -> RulesFactory<Librarian> {
    Arc::new(move || Librarian { generous, read: Vec::new() })
}

pub fn tables(live: &Live<Maps>) -> &PartitionTables<Maps> {
    &live.partition
}

/// One desk: what is asked there is decided and written down.
pub struct Desk {
    pub log: MemoryLog,
    pub partition: Partition,
    pub wall: Timestamp,
    pub blobs: MemoryBlobs,
    shell: Shell<Librarian>,
    asked: u64,
}

impl Desk {
    pub fn open(log: &MemoryLog, partition: Partition) -> Desk {
        Desk::open_at(log, partition, Timestamp(1_700_000_000_000_000), 0)
    }

    fn open_at(log: &MemoryLog, partition: Partition, wall: Timestamp, asked: u64) -> Desk {
        let timeline = Timeline::<Lending>::new(Arc::new(log.clone()), partition, None);
        let now = timeline.state_at(Moment::Newest).unwrap();
        let tail = Tail { sequence: now.position.sequence, term: now.position.term, link: now.position.link };
        let mut shell = Shell::new(partition, rules(false), tables, now.live, tail, &log.describe());
        let start = shell.start("the first gatelog", wall).unwrap();
        for frame in start.frames {
            log.insert(Stream::Events(partition), frame);
        }
        Desk { log: log.clone(), partition, wall, blobs: MemoryBlobs::new(), shell, asked }
    }

    /// The desk closes and another opens in its place.
    pub fn reopen(self) -> Desk {
        Desk::open_at(&self.log, self.partition, self.wall, self.asked)
    }

    /// Something is asked; gives the sequence of the decision's last event.
    pub fn ask(&mut self, verb: &str, book: &str, count: u64) -> u64 {
        let input = self.input(verb, book, count);
        self.put(&input)
    }

    pub fn input(&mut self, verb: &str, book: &str, count: u64) -> InputRecord {
        self.asked += 1;
        let asked = NotRouted {
            connection: verb.to_owned(),
            project: book.to_owned(),
            event: String::new(),
            table_version: count,
        };
        let id = InputId::new(format!("{} {}", self.partition, self.asked));
        InputRecord::new(id, "library", self.wall, GateInput::NotRouted(asked))
    }

    pub fn put(&mut self, input: &InputRecord) -> u64 {
        let bytes = input.close().unwrap().encode();
        let offset = self.log.insert(Stream::Inputs(self.partition), bytes.clone());
        let append = self.shell.take(offset, &bytes, self.wall, &self.blobs).unwrap();
        for frame in append.frames {
            self.log.insert(Stream::Events(self.partition), frame);
        }
        self.wall = self.wall.plus_millis(10);
        self.shell.tail().sequence
    }

    /// The machine's clock jumps.
    pub fn clock_jumps(&mut self, seconds: i64) {
        let now = self.wall.plus_seconds(seconds);
        for frame in self.shell.clock_stepped(self.wall, now).unwrap().frames {
            self.log.insert(Stream::Events(self.partition), frame);
        }
        self.wall = now;
    }
}
