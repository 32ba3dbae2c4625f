//! Signs where the log stands, and puts that outside.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use gatelog_audit::export::partitions;
use gatelog_audit::{Checkpoint, ExportError, Frontier, Leaf, PublicKey, SignedCheckpoint, Signing};
use gatelog_effects::connection::chain;
use gatelog_event_log::{HistoryReader, Log, LogError, Offset, Place, ReadLimit, Step, Tail};
use gatelog_record::{Envelope, Partition, SiteId, Stream, Timestamp};
use gatelog_secrets::{Keyring, SigningKey};

use super::publisher::{Directory, PublishError, Publisher};
use crate::logs::Known;

/// So many published checkpoints of a partition are looked at, the newest first.
const LOOKED_AT: usize = 1_000;

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum NotaryError {
    /// The log cannot be read, or is not what was signed before.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// It cannot be put outside.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl From<LogError> for NotaryError {
    fn from(error: LogError) -> Self {
        NotaryError::Export(error.into())
    }
}

/// A checkpoint that was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// It.
    pub signed: SignedCheckpoint,
    /// Where it is, for people.
    pub place: String,
}

fn folder(site: SiteId, partition: Partition) -> String {
    format!("{site}/{}-{}", partition.domain, partition.index)
}

/// The beginning of the names of a generation's checkpoints: names are in the order of what they tell.
fn of_generation(generation: u32) -> String {
    format!("{generation:010}-")
}

/// The newest checkpoints of a partition that were published in this generation of the log and are signed with this
/// key, the oldest first. What is there and is none of them is told to `strange`.
pub fn published(
    publisher: &dyn Publisher,
    (site, generation): (SiteId, u32),
    partition: Partition,
    key: &PublicKey,
    strange: &mut dyn FnMut(String),
) -> Result<Vec<Published>, PublishError> {
    let folder = folder(site, partition);
    let mut names = publisher.list(&folder)?;
    names.retain(|name| name.starts_with(&of_generation(generation)) && name.ends_with(".checkpoint"));
    let mut found = Vec::new();
    for name in names.iter().rev().take(LOOKED_AT) {
        let place = format!("{folder}/{name}");
        match SignedCheckpoint::decode(&publisher.read(&place)?) {
            Ok(signed) if !signed.is_signed_by(key, &super::check) => {
                strange(format!("{place} is not signed with the site's key and does not count"));
            }
            Ok(signed) if (signed.checkpoint.site, signed.checkpoint.partition) == (site, partition) => {
                found.push(Published { signed, place });
            }
            Ok(_) => strange(format!("{place} is a checkpoint of something else and does not count")),
            Err(error) => strange(format!("{place} does not count: {error}")),
        }
    }
    found.reverse();
    Ok(found)
}

/// What the newest published checkpoints of a log know of it: the log must go as far.
///
/// # Errors
/// A sentence: the place outside cannot be read.
pub fn known(directory: &Path, keys: &Path, log: (SiteId, u32), of: &[Partition]) -> Result<Vec<Known>, String> {
    // Nothing can have been signed where there are no keys, and none are made for it.
    if !keys.exists() {
        return Ok(Vec::new());
    }
    let keyring = Keyring::open_dir(keys).map_err(|error| chain(&error))?;
    let Some(key) = keyring.known_signing_key().map_err(|error| chain(&error))? else { return Ok(Vec::new()) };
    let (outside, key) = (Directory::new(directory), super::public(&key));
    let mut known = Vec::new();
    for partition in of {
        let all = published(&outside, log, *partition, &key, &mut |what| tracing::warn!("{what}"));
        if let Some(newest) = all.map_err(|error| chain(&error))?.pop() {
            known.push(Known {
                who: format!("the signed checkpoint {}", newest.place),
                partition: *partition,
                sequence: newest.signed.checkpoint.sequence(),
                link: newest.signed.checkpoint.link,
            });
        }
    }
    Ok(known)
}

/// Whether a log goes on from what was published. Gives where it stands there.
///
/// # Errors
/// [`LogError::Behind`] when it is shorter, [`LogError::Damaged`] when it is another history.
pub fn agrees(log: &dyn Log, known: &Known) -> Result<Tail, LogError> {
    let Known { who, partition, sequence, link } = known;
    let stream = Stream::Events(*partition);
    let mut from = log.seek(*partition, *sequence)?;
    loop {
        let batch = log.read(stream, from, ReadLimit { records: 8, bytes: 1 << 20 })?;
        let place =
            |offset: Offset| Place { stream: Some(stream), offset: Some(offset), physical: log.describe().name };
        if batch.records.is_empty() {
            let knows = format!("{who} knows event {sequence} of {partition}");
            return Err(LogError::Behind { place: place(from), knows });
        }
        for record in &batch.records {
            // Records that are no part of history may stand between.
            let Ok((envelope, found)) = Envelope::decode(&record.bytes) else { continue };
            if envelope.sequence == *sequence && found == *link {
                return Ok(Tail { sequence: *sequence, term: envelope.term, link: found });
            }
            if envelope.sequence > *sequence {
                let what =
                    format!("{who} knows event {sequence} of {partition} with link {link}: this is another history");
                return Err(LogError::Damaged { place: place(record.offset), what });
            }
        }
        from = batch.next;
    }
}

/// Where a partition stands, and what of that is outside.
struct Standing {
    reader: HistoryReader,
    from: Offset,
    tree: Frontier,
    newest: Option<Leaf>,
    published: u64,
}

/// Signs where each partition of a log stands.
pub struct Notary {
    log: Arc<dyn Log>,
    key: Arc<SigningKey>,
    publisher: Box<dyn Publisher>,
    standings: BTreeMap<Partition, Standing>,
}

impl Notary {
    /// One for a log. It goes on from what is published.
    pub fn new(log: Arc<dyn Log>, key: Arc<SigningKey>, publisher: Box<dyn Publisher>) -> Notary {
        Notary { log, key, publisher, standings: BTreeMap::new() }
    }

    /// Reads on, and signs and publishes where something happened since.
    ///
    /// # Errors
    /// [`NotaryError`]: nothing is signed of a partition that is not what was signed before.
    pub fn look(&mut self, now: Timestamp) -> Result<Vec<Published>, NotaryError> {
        let description = self.log.describe();
        let sign = |message: &[u8]| self.key.sign(message).map_err(|error| chain(&error));
        let key = super::public(&self.key);
        let id = key.id();
        let log = (description.site, description.generation);
        let signing = Signing { site: log.0, generation: log.1, key: key.clone(), sign: &sign };
        let mut made = Vec::new();
        for partition in partitions(&*self.log)? {
            if !self.standings.contains_key(&partition) {
                let standing = resume(&*self.log, &*self.publisher, log, partition, &key)?;
                self.standings.insert(partition, standing);
            }
            let Some(standing) = self.standings.get_mut(&partition) else { continue };
            standing.read_on(&*self.log, partition)?;
            let sequence = standing.tree.count();
            let Some(newest) = standing.newest.as_ref().filter(|_| sequence > standing.published) else { continue };
            let signed = signing.checkpoint(partition, newest, &standing.tree, now)?;
            if made.is_empty() {
                // Who verifies needs it; that it is the site's they must know by other ways.
                self.publisher.publish(&format!("{}/{id}.pem", log.0), self.key.public_pem().as_bytes())?;
            }
            let name = format!("{}/{}{sequence:020}.checkpoint", folder(log.0, partition), of_generation(log.1));
            standing.published = sequence;
            match self.publisher.publish(&name, &signed.encode()) {
                Ok(place) => made.push(Published { signed, place }),
                // Another process has signed the same at another moment.
                Err(PublishError::Changed { .. }) if says_the_same(&*self.publisher, &name, &signed, &key) => {}
                Err(error) => {
                    standing.published = 0;
                    return Err(error.into());
                }
            }
        }
        Ok(made)
    }
}

fn says_the_same(publisher: &dyn Publisher, name: &str, signed: &SignedCheckpoint, key: &PublicKey) -> bool {
    let there = publisher.read(name).ok().and_then(|text| SignedCheckpoint::decode(&text).ok());
    there.is_some_and(|there| {
        there.is_signed_by(key, &super::check)
            && Checkpoint { time: signed.checkpoint.time, ..there.checkpoint } == signed.checkpoint
    })
}

/// Where a partition was last signed; its beginning, where it never was.
fn resume(
    log: &dyn Log,
    publisher: &dyn Publisher,
    of: (SiteId, u32),
    partition: Partition,
    key: &PublicKey,
) -> Result<Standing, NotaryError> {
    let newest = published(publisher, of, partition, key, &mut |what| tracing::warn!("{what}"))?.pop();
    let Some(Published { signed, place }) = newest else {
        let reader = HistoryReader::from_genesis(partition);
        return Ok(Standing { reader, from: Offset(0), tree: Frontier::default(), newest: None, published: 0 });
    };
    let (sequence, link) = (signed.checkpoint.sequence(), signed.checkpoint.link);
    let who = format!("the signed checkpoint {place}");
    let tail = agrees(log, &Known { who, partition, sequence, link })?;
    let from = log.seek(partition, sequence.saturating_add(1))?;
    let reader = HistoryReader::after(partition, tail);
    Ok(Standing { reader, from, tree: signed.checkpoint.tree, newest: None, published: sequence })
}

impl Standing {
    fn read_on(&mut self, log: &dyn Log, partition: Partition) -> Result<(), ExportError> {
        loop {
            let batch = log.read(Stream::Events(partition), self.from, ReadLimit::default())?;
            if batch.records.is_empty() {
                return Ok(());
            }
            for record in &batch.records {
                if let Step::Event(event, link) = self.reader.next(record)? {
                    let leaf = Leaf::of(&event, link);
                    self.tree.push(0, leaf.hash()).ok_or(ExportError::TooMany(partition))?;
                    self.newest = Some(leaf);
                }
            }
            self.from = batch.next;
        }
    }
}
