//! Making an export.
//!
//! ```text
//! gatelog audit export 1
//! site 0f0e…
//! generation 1
//! key MIIB…                       the public key, base64
//! from all | event N | time …     the range; both ends belong to it
//! to …
//! tenant demo                     only where asked for; so are the next two
//! actor 9f8e…
//! project git.example.org/app
//! partition gate/0
//! skip 6 77aa…                    a node over 2^6 events outside of the range
//! leaf 1763719200000000 257 1 0000… 88bb… demo     an event left out: time, kind, version, actor, link, key
//! event R0UB…                     an event, whole, base64
//! checkpoint Z2F0…                what was signed of all before this line, base64
//! partition capacity/0
//! …
//! signature 7a8b…                 over SHA-256 of all before it, under a head of its own
//! ```
//!
//! Events are counted from 1 in each partition; each line but `checkpoint` goes on by what it stands for. The same log
//! gives the same bytes: an export has no time of its own.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gatelog_event_log::{HistoryError, HistoryReader, Log, LogError, Offset, ReadLimit, Step};
use gatelog_record::{Partition, SiteId, Stream, Timestamp};
use sha2::{Digest, Sha256};

use crate::checkpoint::{Checkpoint, PublicKey, Sign, SignedCheckpoint};
use crate::selection::{ProjectWalk, Selection, Side};
use crate::tree::{Frontier, Leaf, Span};

pub(crate) const HEAD: &str = "gatelog audit export 1";

/// What the signature of an export is over.
pub(crate) fn signed_bytes(digest: &[u8; 32]) -> Vec<u8> {
    format!("gatelog audit export signature 1\n{}\n", hex::encode(digest)).into_bytes()
}

/// Who signs, for which log.
pub struct Signing<'a> {
    /// The site.
    pub site: SiteId,
    /// The log's generation.
    pub generation: u32,
    /// The key's public half.
    pub key: PublicKey,
    /// Signs.
    pub sign: Sign<'a>,
}

impl Signing<'_> {
    /// Signs where a partition stands.
    ///
    /// # Errors
    /// [`ExportError::Sign`]
    pub fn checkpoint(
        &self,
        partition: Partition,
        leaf: &Leaf,
        tree: &Frontier,
        time: Timestamp,
    ) -> Result<SignedCheckpoint, ExportError> {
        let checkpoint = Checkpoint {
            site: self.site,
            generation: self.generation,
            partition,
            link: leaf.link,
            tree: tree.clone(),
            time,
            key: self.key.id(),
        };
        let signature = (self.sign)(&checkpoint.signed_bytes()).map_err(ExportError::Sign)?;
        Ok(SignedCheckpoint { checkpoint, signature })
    }
}

/// Why there is no export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log is not what was written.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The log is not what was signed.
    #[error(
        "the checkpoint of {partition} at event {sequence} that was published says otherwise than the log: one of the \
         two was changed; see `gatelog log verify`, or restore the log from a backup"
    )]
    Contradicted {
        /// The partition.
        partition: Partition,
        /// The checkpoint's sequence.
        sequence: u64,
    },
    /// The log ends before what was signed.
    #[error(
        "the checkpoint of {partition} at event {sequence} was published, but the log has only {newest} events: its \
         tail was cut off; restore it from a backup"
    )]
    Cut {
        /// The partition.
        partition: Partition,
        /// The checkpoint's sequence.
        sequence: u64,
        /// The log's newest event.
        newest: u64,
    },
    /// What was asked for cannot be written down.
    #[error("{what} {text:?} has characters that no name has")]
    Name {
        /// What.
        what: &'static str,
        /// The name.
        text: String,
    },
    /// The tree cannot grow: no log has as many events.
    #[error("{0} has more events than a proof can count")]
    TooMany(Partition),
    /// The key does not sign.
    #[error("signing failed: {0}")]
    Sign(String),
    /// What was made cannot be put anywhere.
    #[error("the export cannot be written: {0}")]
    Write(String),
}

/// What an export came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Of each partition: how many events are in it, of how many.
    pub partitions: Vec<(Partition, u64, u64)>,
    /// SHA-256 of all before the signature.
    pub digest: [u8; 32],
}

/// Exports what is asked for. `published` are checkpoints that exist outside: the log is held against each, and who
/// verifies the export can hold it against them. `write` is given the text, piece by piece.
///
/// # Errors
/// [`ExportError`]; what was written by then is no export.
pub fn export(
    log: &dyn Log,
    signing: &Signing<'_>,
    selection: &Selection,
    published: &[SignedCheckpoint],
    write: &mut dyn FnMut(&str) -> Result<(), String>,
) -> Result<Exported, ExportError> {
    let mut text = Text { write, hash: Sha256::new() };
    let named = [("tenant", &selection.tenant), ("project", &selection.project)];
    for (what, name) in named.iter().filter_map(|(what, name)| name.as_ref().map(|name| (*what, name))) {
        if name.is_empty() || name.contains(char::is_control) {
            return Err(ExportError::Name { what, text: name.clone() });
        }
    }
    text.line(HEAD)?;
    text.line(&format!("site {}", signing.site))?;
    text.line(&format!("generation {}", signing.generation))?;
    text.line(&format!("key {}", STANDARD.encode(&signing.key.0)))?;
    text.line(&format!("from {}", selection.from))?;
    text.line(&format!("to {}", selection.to))?;
    if let Some(tenant) = &selection.tenant {
        text.line(&format!("tenant {tenant}"))?;
    }
    if let Some(actor) = &selection.actor {
        text.line(&format!("actor {actor}"))?;
    }
    if let Some(project) = &selection.project {
        text.line(&format!("project {project}"))?;
    }
    let mut partitions = partitions(log)?;
    partitions.retain(|partition| selection.concerns(*partition));
    let mut exported = Vec::new();
    for partition in partitions {
        let mut checkpoints: BTreeMap<u64, Vec<&SignedCheckpoint>> = BTreeMap::new();
        for signed in published.iter().filter(|signed| signed.checkpoint.partition == partition) {
            checkpoints.entry(signed.checkpoint.sequence()).or_default().push(signed);
        }
        let section = Section {
            signing,
            selection,
            partition,
            checkpoints,
            walk: selection.project.as_deref().map(ProjectWalk::new),
            tree: Frontier::default(),
            hidden: Span::after(0),
            held: None,
            newest: None,
            chosen: 0,
        };
        let (chosen, of) = section.run(log, &mut text)?;
        exported.push((partition, chosen, of));
    }
    let digest: [u8; 32] = text.hash.clone().finalize().into();
    let signature = (signing.sign)(&signed_bytes(&digest)).map_err(ExportError::Sign)?;
    text.line(&format!("signature {}", hex::encode(signature)))?;
    Ok(Exported { partitions: exported, digest })
}

/// The partitions whose events are on a log, in order.
///
/// # Errors
/// The log's.
pub fn partitions(log: &dyn Log) -> Result<Vec<Partition>, LogError> {
    let streams = log.streams()?;
    let mut partitions: Vec<Partition> = streams
        .into_iter()
        .filter_map(|stream| match stream {
            Stream::Events(partition) => Some(partition),
            _ => None,
        })
        .collect();
    partitions.sort();
    Ok(partitions)
}

struct Text<'a> {
    write: &'a mut dyn FnMut(&str) -> Result<(), String>,
    hash: Sha256,
}

impl Text<'_> {
    fn line(&mut self, line: &str) -> Result<(), ExportError> {
        let line = format!("{line}\n");
        self.hash.update(line.as_bytes());
        (self.write)(&line).map_err(ExportError::Write)
    }
}

/// A partition on its way into the export.
struct Section<'a> {
    signing: &'a Signing<'a>,
    selection: &'a Selection,
    partition: Partition,
    checkpoints: BTreeMap<u64, Vec<&'a SignedCheckpoint>>,
    walk: Option<ProjectWalk>,
    tree: Frontier,
    /// Events that are not shown, since the last line.
    hidden: Span,
    /// The newest event, where it is not known yet whether it must be shown: the last one before the range is.
    held: Option<Leaf>,
    newest: Option<Leaf>,
    chosen: u64,
}

impl Section<'_> {
    fn run(mut self, log: &dyn Log, text: &mut Text<'_>) -> Result<(u64, u64), ExportError> {
        let mut reader = HistoryReader::from_genesis(self.partition);
        let mut from = Offset::default();
        loop {
            let batch = log.read(Stream::Events(self.partition), from, ReadLimit::default())?;
            if batch.records.is_empty() {
                break;
            }
            for record in &batch.records {
                if let Step::Event(event, link) = reader.next(record)? {
                    if self.newest.is_none() {
                        text.line(&format!("partition {}", self.partition))?;
                    }
                    let leaf = Leaf::of(&event, link);
                    self.tree.push(0, leaf.hash()).ok_or(ExportError::TooMany(self.partition))?;
                    let of_project = self.walk.as_mut().is_none_or(|walk| walk.of_project(&event));
                    self.take(&leaf, of_project, &record.bytes, text)?;
                    self.newest = Some(leaf);
                    self.checkpoint(text)?;
                }
            }
            from = batch.next;
        }
        let newest = self.tree.count();
        if let Some(sequence) = self.checkpoints.keys().next_back().filter(|sequence| **sequence > newest) {
            return Err(ExportError::Cut { partition: self.partition, sequence: *sequence, newest });
        }
        if let Some(leaf) = self.newest.take().filter(|_| !self.checkpoints.contains_key(&newest)) {
            self.show_hidden(text)?;
            let signed = self.signing.checkpoint(self.partition, &leaf, &self.tree, leaf.recorded_at)?;
            text.line(&format!("checkpoint {}", STANDARD.encode(signed.encode())))?;
        }
        Ok((self.chosen, newest))
    }

    fn take(&mut self, leaf: &Leaf, of_project: bool, bytes: &[u8], text: &mut Text<'_>) -> Result<(), ExportError> {
        match self.selection.side(leaf) {
            Side::Before => {
                if let Some(held) = self.held.replace(leaf.clone()) {
                    self.hide(&held)?;
                }
            }
            Side::Inside => {
                self.show_hidden(text)?;
                if self.selection.takes(leaf) && of_project {
                    self.chosen += 1;
                    text.line(&format!("event {}", STANDARD.encode(bytes)))?;
                } else {
                    text.line(&leaf_line(leaf))?;
                }
                self.hidden = Span::after(leaf.sequence);
            }
            // The first one after the range is shown, and shows where the range ended.
            Side::After if self.held.is_some() || !self.past(self.newest.as_ref()) => {
                self.show_hidden(text)?;
                text.line(&leaf_line(leaf))?;
                self.hidden = Span::after(leaf.sequence);
            }
            Side::After => self.hide(leaf)?,
        }
        Ok(())
    }

    fn past(&self, leaf: Option<&Leaf>) -> bool {
        leaf.is_some_and(|leaf| self.selection.side(leaf) == Side::After)
    }

    fn hide(&mut self, leaf: &Leaf) -> Result<(), ExportError> {
        self.hidden.push(0, leaf.hash()).ok_or(ExportError::TooMany(self.partition))
    }

    /// Writes what was not shown so far, and what was held back.
    fn show_hidden(&mut self, text: &mut Text<'_>) -> Result<(), ExportError> {
        for (level, hash) in self.hidden.nodes() {
            text.line(&format!("skip {level} {}", hex::encode(hash)))?;
        }
        self.hidden = Span::after(self.hidden.end());
        if let Some(held) = self.held.take() {
            text.line(&leaf_line(&held))?;
            self.hidden = Span::after(held.sequence);
        }
        Ok(())
    }

    /// Writes the checkpoints that were published at this place.
    fn checkpoint(&mut self, text: &mut Text<'_>) -> Result<(), ExportError> {
        let sequence = self.tree.count();
        let Some(published) = self.checkpoints.get(&sequence).cloned() else { return Ok(()) };
        self.show_hidden(text)?;
        for signed in published {
            let Checkpoint { tree, link, site, .. } = &signed.checkpoint;
            let same = *tree == self.tree && *site == self.signing.site;
            if !same || self.newest.as_ref().is_none_or(|leaf| leaf.link != *link) {
                return Err(ExportError::Contradicted { partition: self.partition, sequence });
            }
            text.line(&format!("checkpoint {}", STANDARD.encode(signed.encode())))?;
        }
        Ok(())
    }
}

fn leaf_line(leaf: &Leaf) -> String {
    let Leaf { recorded_at, kind_version, actor, key, link, .. } = leaf;
    format!("leaf {} {} {} {actor} {link} {key}", recorded_at.0, kind_version.kind, kind_version.version)
}
