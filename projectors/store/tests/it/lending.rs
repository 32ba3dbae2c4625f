//! A small domain for tests: a library that lends books. Its events are the artificial kind
//! `sample`: the verb is the name, the book is the note.

use gatelog_partition_state::PartitionTables;
use gatelog_record::draft::partition::WriterStarted;
use gatelog_record::event::PartitionEvent;
use gatelog_record::frozen::sample::v2::Sample;
use gatelog_record::{
    ActorId, Cause, ChainLink, Domain, Envelope, Event, EventId, EventRecord, Partition, SiteId, Timestamp,
};
use gatelog_store::Folded;
use gatelog_tables::digest::StateDigest;
use gatelog_tables::fold::TableSet;
use gatelog_tables::table::{TableVisitor, TableVisitorMut};
use gatelog_tables::{
    Backing, DomainState, Factory, FoldRefused, Life, LiveTables, Maps, Overlay, ReadTables, Table, TableDef,
    TableError, TableExt,
};

pub const PARTITION: Partition = Partition { domain: Domain::Deployments, index: 0 };
pub const SITE: SiteId = SiteId([0x67; 16]);

/// The domain, with the versions of its tables.
#[derive(Debug)]
pub struct Lending<const LIVE: u32 = 1, const READ: u32 = 1>;

macro_rules! table {
    ($name:ident, $id:literal, $text:literal, $life:ident, $key:ty, $row:ty) => {
        #[derive(Debug)]
        pub struct $name;
        impl TableDef for $name {
            const ID: u16 = $id;
            const NAME: &'static str = $text;
            const LIFE: Life = Life::$life;
            type Key = $key;
            type Row = $row;
        }
    };
}
// Copies on the shelf, by book.
table!(Shelf, 300, "shelf", Live, String, u64);
// Loans by book and reader: when they began.
table!(Loans, 301, "loans", Live, (String, u64), Timestamp);
// The copies of each book over time: from, until.
table!(Copies, 400, "copies", Temporal, (String, u64), (u64, Option<u64>));
// The same as stretches of a subject that grows: from, copies, until.
#[derive(Debug)]
pub struct Spells;
impl TableDef for Spells {
    const ID: u16 = 402;
    const NAME: &'static str = "spells";
    const LIFE: Life = Life::Temporal;
    const GROWS: bool = true;
    type Key = (String, u64);
    type Row = (u64, u64, Option<u64>);
}
// What happened, by sequence.
table!(Diary, 401, "diary", Temporal, u64, String);

gatelog_tables::tables! {
    pub struct Own { shelf: Shelf, loans: Loans }
}
gatelog_tables::tables! {
    pub struct Told { copies: Copies, diary: Diary, spells: Spells }
}

pub struct Live<B: Backing> {
    pub partition: PartitionTables<B>,
    pub own: Own<B>,
}

impl<B: Backing> TableSet<B> for Live<B> {
    fn open(factory: &mut impl Factory<B>) -> Result<Self, TableError> {
        Ok(Live { partition: PartitionTables::open(factory)?, own: Own::open(factory)? })
    }
    fn visit(&self, visitor: &mut impl TableVisitor<B>) -> Result<(), TableError> {
        self.partition.visit(visitor)?;
        self.own.visit(visitor)
    }
    fn visit_mut(&mut self, visitor: &mut impl TableVisitorMut<B>) -> Result<(), TableError> {
        self.partition.visit_mut(visitor)?;
        self.own.visit_mut(visitor)
    }
}

impl<const LIVE: u32, const READ: u32> DomainState for Lending<LIVE, READ> {
    const DOMAIN: Domain = Domain::Deployments;
    const LIVE_SCHEMA: u32 = LIVE;
    const READ_SCHEMA: u32 = READ;
    type Live<B: Backing> = Live<B>;
    type Read<B: Backing> = Told<B>;

    fn overlay(live: &Live<Maps>) -> Live<Overlay<'_>> {
        Live { partition: live.partition.overlay(), own: live.own.overlay() }
    }
}

impl<B: Backing> LiveTables<B> for Live<B> {
    fn apply(&mut self, record: &EventRecord) -> Result<(), FoldRefused> {
        self.partition.apply(record)?;
        let Event::Partition(PartitionEvent::Sample(Sample { name, count, note })) = &record.event else {
            return Ok(());
        };
        let book = note.clone().unwrap_or_default();
        match name.as_str() {
            "buy" => self.own.shelf.insert(book, *count),
            "lend" => {
                self.own.loans.insert((book.clone(), *count), record.recorded_at)?;
                let copies = *self.own.shelf.need(&book)?;
                let left = copies.checked_sub(1).ok_or_else(|| FoldRefused::Illegal("no copy is left".to_owned()))?;
                Ok(self.own.shelf.put(book, left)?)
            }
            "return" => {
                self.own.loans.remove(&(book.clone(), *count))?;
                self.own.shelf.update(&book, |copies| *copies += 1)
            }
            "sell" => {
                self.own.shelf.remove(&book)?;
                let lent: Vec<_> = self
                    .own
                    .loans
                    .range(std::ops::Bound::Included(&(book.clone(), 0)), std::ops::Bound::Included(&(book, u64::MAX)))?
                    .map(|loan| loan.map(|(key, _)| key))
                    .collect::<Result<_, _>>()?;
                lent.iter().try_for_each(|loan| self.own.loans.remove(loan).map(|_| ()))
            }
            "fire" => panic!("the library burns"),
            other => Err(FoldRefused::Illegal(format!("nobody knows how to {other}"))),
        }
    }
}

impl<B: Backing> ReadTables<B> for Told<B> {
    type Live = Live<B>;
    fn apply(&mut self, live: &Live<B>, record: &EventRecord) -> Result<(), FoldRefused> {
        let Event::Partition(PartitionEvent::Sample(Sample { name, note, .. })) = &record.event else {
            return Ok(());
        };
        let book = note.clone().unwrap_or_default();
        self.diary.insert(record.sequence, format!("{name} {book}"))?;
        // The row that holds ends here.
        let newest = self
            .copies
            .range_back(
                std::ops::Bound::Included(&(book.clone(), 0)),
                std::ops::Bound::Included(&(book.clone(), u64::MAX)),
            )?
            .next()
            .transpose()?
            .map(|(key, row)| (key, row.into_owned()));
        if let Some((key, (copies, None))) = newest {
            self.copies.put(key, (copies, Some(record.sequence)))?;
        }
        let now = live.own.shelf.get(&book)?.map(|copies| *copies);
        if let Some(copies) = now {
            self.copies.insert((book.clone(), record.sequence), (copies, None))?;
        }
        self.spell(book, record.sequence, now)
    }
}

impl<B: Backing> Told<B> {
    fn spell(&mut self, book: String, sequence: u64, now: Option<u64>) -> Result<(), FoldRefused> {
        let newest = self.spells.newest(&(book.clone(), 0), &(book.clone(), sequence))?.map(|row| *row);
        match (newest, now) {
            (Some((from, _, None)), Some(copies)) => {
                let mut begin = |row: &mut (u64, u64, Option<u64>)| {
                    *row = (sequence, copies, None);
                    true
                };
                let next = (book.clone(), sequence);
                self.spells.succeed(&(book, from), next, &mut |row| row.2 = Some(sequence), &mut begin)?;
            }
            (Some((from, _, None)), None) => {
                self.spells.change(&(book, from), &mut |row| row.2 = Some(sequence))?;
            }
            (_, Some(copies)) => self.spells.put((book, sequence), (sequence, copies, None))?,
            (_, None) => {}
        }
        Ok(())
    }
}

/// Both sets of tables in memory.
pub struct InMaps {
    pub live: Live<Maps>,
    pub told: Told<Maps>,
}

impl Default for InMaps {
    fn default() -> Self {
        InMaps {
            live: Live { partition: PartitionTables::in_memory(), own: Own::in_memory() },
            told: Told::in_memory(),
        }
    }
}

impl InMaps {
    pub fn apply(&mut self, record: &EventRecord) -> Result<(), FoldRefused> {
        self.live.apply(record)?;
        self.told.apply(&self.live, record)
    }

    pub fn digest(&self) -> [u8; 32] {
        let mut digest = StateDigest::default();
        self.live.visit(&mut digest).unwrap();
        self.told.visit(&mut digest).unwrap();
        digest.finish()
    }

    pub fn live_digest(&self) -> [u8; 32] {
        digest_of(&self.live)
    }
}

pub fn digest_of<B: Backing>(tables: &impl TableSet<B>) -> [u8; 32] {
    let mut digest = StateDigest::default();
    tables.visit(&mut digest).unwrap();
    digest.finish()
}

/// A history in the making: events that fit, with their links and bytes.
#[derive(Default)]
pub struct Story {
    pub events: Vec<Folded>,
    pub bytes: Vec<Vec<u8>>,
    /// Digest of all tables, and of the live ones, after each event; at 0 before the first.
    pub digests: Vec<[u8; 32]>,
    pub live_digests: Vec<[u8; 32]>,
    pub state: InMaps,
    term: u64,
    link: ChainLink,
}

impl Story {
    /// A story whose first event says that a writer began.
    pub fn begin() -> Story {
        let mut story = Story::default();
        story.digests.push(story.state.digest());
        story.live_digests.push(story.state.live_digest());
        story.restart();
        story
    }

    /// The story of these lines, such as `buy dune 2`.
    pub fn of(lines: &str) -> Story {
        let mut story = Story::begin();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut words = line.split(' ');
            let (verb, book) = (words.next().unwrap(), words.next().unwrap());
            let count = words.next().map_or(0, |count| count.parse().unwrap());
            story.tell(verb, book, count);
        }
        story
    }

    /// A long story of so many events.
    pub fn long(events: usize) -> Story {
        let mut story = Story::begin();
        let books = ["dune", "emma", "ilias", "momo", "ulysses"];
        let mut number = 0_u64;
        while story.events.len() < events {
            number += 1;
            let book = books[(number * 7 % 5) as usize];
            let verb = ["buy", "lend", "lend", "return", "lend", "sell"][(number * 5 % 6) as usize];
            if !story.try_tell(verb, book, if verb == "buy" { 3 } else { number % 4 }) && number.is_multiple_of(3) {
                story.restart();
            }
        }
        story
    }

    /// A new writer takes over.
    pub fn restart(&mut self) {
        self.term += 1;
        let started =
            WriterStarted { term: self.term, build: "test".to_owned(), registry: [0; 32], site: SITE, generation: 1 };
        self.push(PartitionEvent::WriterStarted(started).into(), true);
    }

    /// Something happens that must fit.
    pub fn tell(&mut self, verb: &str, book: &str, count: u64) {
        assert!(self.try_tell(verb, book, count), "{verb} {book} {count} does not fit the story");
    }

    /// Something happens if it fits; folded on an overlay first, as a writer does.
    pub fn try_tell(&mut self, verb: &str, book: &str, count: u64) -> bool {
        let event = sample(verb, book, count);
        let fits = <Lending>::overlay(&self.state.live).apply(&self.next_record(event.clone())).is_ok();
        if fits {
            self.push(event, true);
        }
        fits
    }

    /// Something goes onto the log that does not fit the state.
    pub fn tell_wrong(&mut self, verb: &str, book: &str, count: u64) {
        self.push(sample(verb, book, count), false);
    }

    fn next_record(&self, event: Event) -> EventRecord {
        let sequence = self.events.len() as u64 + 1;
        let at = Timestamp(1_700_000_000_000_000).plus_millis(sequence as i64 / 2 * 1_000);
        EventRecord {
            sequence,
            term: self.term,
            recorded_at: at,
            wall_at: at,
            id: EventId([sequence as u8; 16]),
            cause: Cause::Start,
            actor: ActorId::SYSTEM,
            key: "library".to_owned(),
            traceparent: String::new(),
            decision: None,
            event,
        }
    }

    fn push(&mut self, event: Event, fold: bool) {
        let record = self.next_record(event);
        let (bytes, link) = record.close().unwrap().encode(&self.link);
        assert!(Envelope::decode(&bytes).is_ok());
        if fold {
            self.state.apply(&record).unwrap();
        }
        self.digests.push(self.state.digest());
        self.live_digests.push(self.state.live_digest());
        self.link = link;
        self.events.push(Folded { log_offset: record.sequence, record, link });
        self.bytes.push(bytes);
    }
}

pub fn sample(verb: &str, book: &str, count: u64) -> Event {
    PartitionEvent::Sample(Sample { name: verb.to_owned(), count, note: Some(book.to_owned()) }).into()
}
