//! A site with a log in memory and a real key.

use std::sync::LazyLock;

use gatelog_audit::{
    Bound, Checkpoint, ExportError, Frontier, Leaf, PublicKey, Selection, SignedCheckpoint, Signing, Verified,
    Verifier, Wrong, export,
};
use gatelog_event_log::memory::{MemoryLog, MemoryOptions};
use gatelog_event_log::{HistoryReader, Log, Offset, ReadLimit, Step};
use gatelog_record::draft::partition::{InputTaken, WriterStarted};
use gatelog_record::event::PartitionEvent;
use gatelog_record::{
    ActorId, Cause, ChainLink, Domain, Event, EventId, EventRecord, Partition, SiteId, Stream, Timestamp,
};
use gatelog_secrets::{Keyring, Rs256, SigningKey};

pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
pub const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
pub const ANN: ActorId = ActorId([0xa; 16]);
pub const SITE: SiteId = SiteId([5; 16]);

/// What happened: tenant, who asked, a note.
pub type Story = Vec<(&'static str, ActorId, String)>;

/// A site's key. Made once: it takes seconds.
pub struct Signer {
    _dir: tempfile::TempDir,
    key: std::sync::Arc<SigningKey>,
}

impl Signer {
    fn new() -> Signer {
        let dir = tempfile::tempdir().unwrap();
        let key = Keyring::open_dir(dir.path()).unwrap().signing_key().unwrap();
        Signer { _dir: dir, key }
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(self.key.public_der().to_vec())
    }

    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        self.key.sign(message).map_err(|error| error.to_string())
    }
}

/// The site's key.
pub static KEY: LazyLock<Signer> = LazyLock::new(Signer::new);
/// Somebody else's.
pub static OTHER: LazyLock<Signer> = LazyLock::new(Signer::new);

pub fn check(key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    Rs256::from_der(&key.0).is_ok_and(|key| key.verify(message, signature))
}

/// When event N is recorded: three of a time, for time does not tell one from the next.
pub fn time(sequence: u64) -> Timestamp {
    Timestamp(1_709_164_800_000_000).plus_seconds(i64::try_from(sequence / 3).unwrap())
}

/// Two tenants, one person, so many events.
pub fn story(count: usize) -> Story {
    let tenant = |index: usize| if index.is_multiple_of(3) { "tools" } else { "demo" };
    let actor = |index: usize| if index % 5 == 2 { ANN } else { ActorId::SYSTEM };
    (1..count).map(|index| (tenant(index), actor(index), format!("note {index}"))).collect()
}

/// A log of this story in the gate, and a few events in capacity.
pub fn log(story: &Story) -> MemoryLog {
    let log = MemoryLog::new(MemoryOptions { site: SITE, ..MemoryOptions::default() });
    write(&log, GATE, story);
    write(&log, CAPACITY, &vec![("main", ActorId::SYSTEM, "lease".to_owned()); 4]);
    log
}

fn write(log: &MemoryLog, partition: Partition, story: &Story) {
    let (claim, mut writer) = log.claim(partition).unwrap();
    let mut link = claim.last_link;
    let started = WriterStarted { term: 1, build: "test".into(), registry: [0; 32], site: SITE, generation: 1 };
    let first = (String::new(), ActorId::SYSTEM, PartitionEvent::WriterStarted(started));
    let taken = |note: &str| PartitionEvent::InputTaken(InputTaken { duplicate_of: None, reason: note.to_owned() });
    let rest = story.iter().map(|(tenant, actor, note)| ((*tenant).to_owned(), *actor, taken(note)));
    for (sequence, (key, actor, event)) in (1..).zip(std::iter::once(first).chain(rest)) {
        let (bytes, next) = record(sequence, key, actor, event, &link);
        writer.append(vec![bytes]).wait().unwrap().unwrap();
        link = next;
    }
}

fn record(sequence: u64, key: String, actor: ActorId, event: PartitionEvent, link: &ChainLink) -> (Vec<u8>, ChainLink) {
    let record = EventRecord {
        sequence,
        term: 1,
        recorded_at: time(sequence),
        wall_at: time(sequence),
        id: EventId([1; 16]),
        cause: Cause::Start,
        actor,
        key,
        traceparent: String::new(),
        decision: None,
        event: Event::Partition(event),
    };
    record.close().unwrap().encode(link)
}

/// An export, signed by this one.
pub fn exported_by(
    signer: &Signer,
    log: &dyn Log,
    selection: &Selection,
    published: &[SignedCheckpoint],
) -> Result<Vec<u8>, ExportError> {
    let sign = |message: &[u8]| signer.sign(message);
    let signing = Signing { site: SITE, generation: 1, key: signer.public(), sign: &sign };
    let mut text = Vec::new();
    export(log, &signing, selection, published, &mut |piece| {
        text.extend_from_slice(piece.as_bytes());
        Ok(())
    })?;
    Ok(text)
}

/// An export of the site.
pub fn exported(log: &dyn Log, selection: &Selection, published: &[SignedCheckpoint]) -> Vec<u8> {
    exported_by(&KEY, log, selection, published).unwrap()
}

pub fn verified(text: &[u8], outside: &[SignedCheckpoint]) -> Result<Verified, Wrong> {
    Verifier::new(&check, None, outside.to_vec()).verify(text)
}

/// What was published when the partition had so many events.
pub fn published_by(signer: &Signer, log: &dyn Log, partition: Partition, sequence: u64) -> SignedCheckpoint {
    let batch = log
        .read(Stream::Events(partition), Offset::default(), ReadLimit { records: usize::MAX, bytes: usize::MAX })
        .unwrap();
    let mut reader = HistoryReader::from_genesis(partition);
    let (mut tree, mut link) = (Frontier::default(), ChainLink::GENESIS);
    for record in batch.records.iter().take(usize::try_from(sequence).unwrap()) {
        let Step::Event(event, next) = reader.next(record).unwrap() else { panic!() };
        tree.push(0, Leaf::of(&event, next).hash()).unwrap();
        link = next;
    }
    assert_eq!(tree.count(), sequence, "the log has as many");
    let key = signer.public().id();
    let checkpoint = Checkpoint { site: SITE, generation: 1, partition, link, tree, time: time(sequence), key };
    let signature = signer.sign(&checkpoint.signed_bytes()).unwrap();
    SignedCheckpoint { checkpoint, signature }
}

pub fn published(log: &dyn Log, sequence: u64) -> SignedCheckpoint {
    published_by(&KEY, log, GATE, sequence)
}

pub fn all() -> Selection {
    Selection::default()
}

pub fn of_tenant(tenant: &str) -> Selection {
    Selection { tenant: Some(tenant.to_owned()), ..all() }
}

pub fn events(from: u64, to: u64) -> Selection {
    Selection { from: Bound::Sequence(from), to: Bound::Sequence(to), ..all() }
}
