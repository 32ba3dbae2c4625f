//! Reading an export without the log it is of.
//!
//! What a verified export proves, to whoever trusts its key (or a checkpoint that was published before):
//!
//! - every event in it stands in the partition at that sequence, with exactly these bytes;
//! - between the ends of its range nothing is missing: of each event left out its time, kind, actor and key are shown,
//!   and by them it was not asked for. Of a **project** this cannot be shown, for which project an event is of is not
//!   in its leaf: there it proves what is in it, and that the site signed that this is all;
//! - the log went on from there as each checkpoint in it says.
//!
//! What it does not prove: that the site put down what really happened; and that events outside of the range were
//! recorded outside of its times, beyond the two that stand at its ends.
//!
//! An event's link is SHA-256 over the link before it and its bytes; the leaf holds the link and the tree holds the
//! leaf. So every event that is shown must follow one whose link is shown: the writer shows the one before the range.
//!
//! Without an outside checkpoint or a key that is known by other ways, an export proves only that whoever has its key
//! made it.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gatelog_event_log::MAX_RECORD;
use gatelog_record::{ActorId, ChainLink, Envelope, FrameError, KindVersion, Partition, SiteId, Timestamp};
use sha2::{Digest, Sha256};

use crate::checkpoint::{self, Check, KeyId, NoteError, PublicKey, SignedCheckpoint, number};
use crate::export::{HEAD, signed_bytes};
use crate::selection::{Bound, Selection, Side};
use crate::tree::{Frontier, Leaf, MAX_LEVEL};

/// No line is longer, in bytes.
pub const LONGEST_LINE: u64 = MAX_RECORD.div_ceil(3) * 4 + 64;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {fault}", place.as_ref().map(|place| format!(", {place}")).unwrap_or_default())]
pub struct Wrong {
    /// The line, from 1.
    pub line: u64,
    /// Which partition and event, once it is known.
    pub place: Option<Spot>,
    /// What.
    pub fault: Fault,
}

/// A place in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The partition.
    pub partition: Partition,
    /// The event that stands there, or would.
    pub sequence: u64,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} event {}", self.partition, self.sequence)
    }
}

/// What can be wrong with an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It does not begin as an export does.
    #[error("this is no export of a gatelog log: it must begin with {HEAD:?}")]
    NotAnExport,
    /// A line is not what must stand there.
    #[error("{expected} was expected here")]
    Expected {
        /// What.
        expected: &'static str,
    },
    /// A line is too long.
    #[error("the line is longer than any that gatelog writes")]
    LongLine,
    /// The bytes of an event are none.
    #[error("the event cannot be read: {0}")]
    Event(FrameError),
    /// An event stands at another place than it says.
    #[error("an event stands here that says it is event {found}: events were left out, added or exchanged")]
    Sequence {
        /// What it says.
        found: u64,
    },
    /// An event's link is not that of what stands before it.
    #[error("the chain is broken: the event's link is {found}, what stands before it gives {computed}")]
    Link {
        /// The event's link.
        found: ChainLink,
        /// The one it must have.
        computed: ChainLink,
    },
    /// An event is shown after events that are not.
    #[error("what stands before the event is not shown, so its place in the chain cannot be checked")]
    Unconnected,
    /// Time goes back.
    #[error("the event was recorded before the one in front of it")]
    Order,
    /// A node cannot stand there.
    #[error("a node over 2^{level} events cannot stand after {after} events")]
    Node {
        /// Its height.
        level: u32,
        /// Where.
        after: u64,
    },
    /// Events in the range are hidden.
    #[error("events that may be in the range are not shown")]
    Hidden,
    /// An event that was asked for is left out.
    #[error("the event belongs to what the export says it holds, but is left out")]
    LeftOut,
    /// An event is shown that was not asked for.
    #[error("the event does not belong to what the export says it holds, but is shown")]
    NotAskedFor,
    /// A partition comes twice or out of order.
    #[error("the partition comes twice or out of order")]
    Partition,
    /// A partition ends without a checkpoint.
    #[error("the partition does not end with a signed checkpoint: its end was cut off")]
    NoCheckpoint,
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// A checkpoint is of something else.
    #[error("the checkpoint is of another {what}")]
    Other {
        /// Site, generation, partition or place.
        what: &'static str,
    },
    /// A checkpoint's signature is wrong.
    #[error("the checkpoint's signature is not that of the export's key")]
    CheckpointSignature,
    /// Events and checkpoint do not agree.
    #[error("the events before it are not those that the checkpoint was signed for: something among them was changed")]
    Contradicted,
    /// The signature is wrong.
    #[error("the signature is not that of the export's key over what stands before it: something was changed")]
    Signature,
    /// The key is not the one that was expected.
    #[error("the export is signed with the key {found}, not with {expected}")]
    Key {
        /// The export's.
        found: KeyId,
        /// The one expected.
        expected: KeyId,
    },
    /// It ends too early.
    #[error("the export ends here without its signature: its end was cut off")]
    Cut,
    /// Something follows the signature.
    #[error("something follows the signature")]
    Trailing,
    /// The log is shorter than an outside checkpoint.
    #[error(
        "a checkpoint was published at event {sequence}, but the export comes from a log with only {newest} events: the \
         log's tail was cut off"
    )]
    Behind {
        /// The checkpoint's sequence.
        sequence: u64,
        /// The log's newest event.
        newest: u64,
    },
    /// The export does not show the place of an outside checkpoint.
    #[error(
        "the checkpoint at event {sequence} lies among events that the export does not show, so it cannot be held \
         against it; make the export again with --checkpoint"
    )]
    NotShown {
        /// The checkpoint's sequence.
        sequence: u64,
    },
    /// The export has nothing of the checkpoint's partition.
    #[error("the checkpoint is of {0}, of which the export has nothing")]
    NoPartition(Partition),
}

impl Fault {
    /// Whether this shows no change: the export merely does not say what was asked of it.
    pub fn undecided(&self) -> bool {
        matches!(self, Fault::NotShown { .. } | Fault::NoPartition(_))
    }
}

/// What a line held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing to be shown to anybody.
    Proof,
    /// A partition begins.
    Partition(Partition),
    /// An event, its body closed.
    Event(Box<Envelope>),
}

/// What an export has of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The partition.
    pub partition: Partition,
    /// How many events are in the export.
    pub events: u64,
    /// How many lie in its range, those left out among them.
    pub in_range: u64,
    /// How many the log had.
    pub of: u64,
    /// The link of the log's newest event.
    pub link: ChainLink,
    /// When the newest checkpoint was made.
    pub time: Timestamp,
    /// How many checkpoints are in the export.
    pub checkpoints: u64,
}

/// What a whole export was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The site.
    pub site: SiteId,
    /// The log's generation.
    pub generation: u32,
    /// The key it is signed with.
    pub key: PublicKey,
    /// What was asked for.
    pub selection: Selection,
    /// Its partitions.
    pub sections: Vec<Section>,
    /// How many outside checkpoints agree with it.
    pub outside: u64,
}

/// Reads an export line by line.
pub struct Verifier<'a> {
    check: Check<'a>,
    expected_key: Option<KeyId>,
    /// Outside checkpoints, by place; each is taken away once it is found to agree.
    outside: BTreeMap<(Partition, u64), Vec<SignedCheckpoint>>,
    agreed: u64,
    hash: Sha256,
    line: u64,
    head: Head,
    open: Option<Open>,
    sections: Vec<Section>,
    ended: bool,
}

#[derive(Default)]
struct Head {
    begun: bool,
    site: Option<SiteId>,
    generation: Option<u32>,
    key: Option<PublicKey>,
    from: Option<Bound>,
    to: Option<Bound>,
    selection: Selection,
    /// How far the lines that may be missing have come.
    asked: u8,
}

/// A partition that is being read.
struct Open {
    partition: Partition,
    tree: Frontier,
    /// The newest event, if it is shown.
    shown: Option<Leaf>,
    /// The newest event that is shown, for its time.
    before: Option<Leaf>,
    /// Events were not shown of which it must yet be seen that they are before the range.
    hidden: bool,
    /// The newest line is a checkpoint.
    closed: Option<(ChainLink, Timestamp)>,
    events: u64,
    in_range: u64,
    checkpoints: u64,
}

impl<'a> Verifier<'a> {
    /// A verifier that checks signatures with `check`, expects this key if one is given, and holds the export against
    /// checkpoints that come from elsewhere.
    pub fn new(check: Check<'a>, expected_key: Option<KeyId>, outside: Vec<SignedCheckpoint>) -> Verifier<'a> {
        let mut by_place: BTreeMap<(Partition, u64), Vec<SignedCheckpoint>> = BTreeMap::new();
        for signed in outside {
            by_place.entry((signed.checkpoint.partition, signed.checkpoint.sequence())).or_default().push(signed);
        }
        Verifier {
            check,
            expected_key,
            outside: by_place,
            agreed: 0,
            hash: Sha256::new(),
            line: 0,
            head: Head::default(),
            open: None,
            sections: Vec::new(),
            ended: false,
        }
    }

    /// Verifies an export that is in memory.
    ///
    /// # Errors
    /// [`Wrong`]: the first thing that is.
    pub fn verify(mut self, bytes: &[u8]) -> Result<Verified, Wrong> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.feed(line)?;
        }
        self.finish()
    }

    /// Takes the next line, with its line end.
    ///
    /// # Errors
    /// [`Wrong`]
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Found, Wrong> {
        self.line += 1;
        self.take(bytes).map_err(|fault| self.wrong(fault))
    }

    /// Says what the export is, once all of it was read.
    ///
    /// # Errors
    /// [`Wrong`]: its end is missing, or it does not agree with an outside checkpoint.
    pub fn finish(mut self) -> Result<Verified, Wrong> {
        self.line += 1;
        if !self.ended {
            return Err(self.wrong(Fault::Cut));
        }
        self.line = 0;
        if let Some(((partition, sequence), _)) = self.outside.pop_first() {
            let newest = self.sections.iter().find(|section| section.partition == partition).map(|section| section.of);
            let fault = match newest {
                None => Fault::NoPartition(partition),
                Some(newest) if sequence > newest => Fault::Behind { sequence, newest },
                Some(_) => Fault::NotShown { sequence },
            };
            let place = Some(Spot { partition, sequence });
            return Err(Wrong { line: 0, place, fault });
        }
        let Head { site: Some(site), generation: Some(generation), key: Some(key), selection, .. } = self.head else {
            return Err(Wrong { line: 1, place: None, fault: Fault::NotAnExport });
        };
        Ok(Verified { site, generation, key, selection, sections: self.sections, outside: self.agreed })
    }

    fn wrong(&self, fault: Fault) -> Wrong {
        let place = self
            .open
            .as_ref()
            .map(|open| Spot { partition: open.partition, sequence: open.tree.count().saturating_add(1) });
        Wrong { line: self.line, place, fault }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<Found, Fault> {
        if self.ended {
            return Err(Fault::Trailing);
        }
        if bytes.len() as u64 > LONGEST_LINE {
            return Err(Fault::LongLine);
        }
        let whole = bytes.strip_suffix(b"\n").ok_or(Fault::Cut)?;
        let text = std::str::from_utf8(whole).map_err(|_| Fault::Expected { expected: "a line of text" })?;
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        if !self.head.begun {
            if text != HEAD {
                return Err(Fault::NotAnExport);
            }
            self.head.begun = true;
            self.hash.update(bytes);
            return Ok(Found::Proof);
        }
        if word == "signature" {
            self.signature(rest)?;
            self.ended = true;
            return Ok(Found::Proof);
        }
        self.hash.update(bytes);
        match word {
            "partition" => self.partition(rest),
            "skip" | "leaf" | "event" | "checkpoint" if self.open.is_some() => self.entry(word, rest),
            _ if self.open.is_none() => self.head.take(word, rest, self.expected_key),
            _ => Err(Fault::Expected { expected: "a skip, leaf, event, checkpoint, partition or signature" }),
        }
    }

    fn partition(&mut self, rest: &str) -> Result<Found, Fault> {
        self.head.complete()?;
        self.close()?;
        let partition = checkpoint::partition(rest).ok_or(Fault::Expected { expected: "the name of a partition" })?;
        if self.sections.last().is_some_and(|last| last.partition >= partition) {
            return Err(Fault::Partition);
        }
        self.open = Some(Open {
            partition,
            tree: Frontier::default(),
            shown: None,
            before: None,
            hidden: false,
            closed: None,
            events: 0,
            in_range: 0,
            checkpoints: 0,
        });
        Ok(Found::Partition(partition))
    }

    /// Ends the partition that is being read.
    fn close(&mut self) -> Result<(), Fault> {
        let Some(open) = &self.open else { return Ok(()) };
        let Some((link, time)) = open.closed else { return Err(Fault::NoCheckpoint) };
        if open.hidden {
            return Err(Fault::Hidden);
        }
        let Open { partition, events, in_range, checkpoints, .. } = *open;
        let of = open.tree.count();
        self.sections.push(Section { partition, events, in_range, of, link, time, checkpoints });
        self.open = None;
        Ok(())
    }

    fn signature(&mut self, rest: &str) -> Result<(), Fault> {
        self.head.complete()?;
        self.close()?;
        let signature = hex::decode(rest).ok().filter(|signature| hex::encode(signature) == rest);
        let digest: [u8; 32] = self.hash.clone().finalize().into();
        let key = self.head.key.as_ref().ok_or(Fault::Signature)?;
        if !signature.is_some_and(|signature| (self.check)(key, &signed_bytes(&digest), &signature)) {
            return Err(Fault::Signature);
        }
        Ok(())
    }

    fn entry(&mut self, word: &str, rest: &str) -> Result<Found, Fault> {
        let (Some(open), selection) = (&mut self.open, &self.head.selection) else {
            return Err(Fault::Expected { expected: "a partition" });
        };
        let found = match word {
            "skip" => open.skip(rest, selection)?,
            "leaf" => {
                let leaf = read_leaf(rest, open.tree.count().saturating_add(1))
                    .ok_or(Fault::Expected { expected: "the leaf of an event" })?;
                if selection.side(&leaf) == Side::Inside && selection.takes(&leaf) && selection.shows_all() {
                    return Err(Fault::LeftOut);
                }
                open.show(leaf, selection)?;
                Found::Proof
            }
            "event" => open.event(rest, selection)?,
            _ => {
                let bytes =
                    STANDARD.decode(rest).map_err(|_| Fault::Expected { expected: "a checkpoint in base64" })?;
                let signed = SignedCheckpoint::decode(&bytes)?;
                self.head.compare(&signed, self.check)?;
                open.compare(&signed, true)?;
                open.checkpoints += 1;
                open.closed = Some((signed.checkpoint.link, signed.checkpoint.time));
                return Ok(Found::Proof);
            }
        };
        open.closed = None;
        let place = (open.partition, open.tree.count());
        for signed in self.outside.remove(&place).unwrap_or_default() {
            self.head.compare(&signed, self.check)?;
            open.compare(&signed, false)?;
            self.agreed += 1;
        }
        Ok(found)
    }
}

impl Head {
    fn take(&mut self, word: &str, rest: &str, expected_key: Option<KeyId>) -> Result<Found, Fault> {
        let wrong = |expected| Fault::Expected { expected };
        match (&self.site, &self.generation, &self.key, &self.from, &self.to) {
            (None, ..) => self.site = Some(line(word, rest, "site", canonical).ok_or(wrong("the site"))?),
            (_, None, ..) => {
                self.generation = Some(line(word, rest, "generation", number).ok_or(wrong("the log's generation"))?);
            }
            (_, _, None, ..) => {
                let key = line(word, rest, "key", |rest| STANDARD.decode(rest).ok()).ok_or(wrong("the public key"))?;
                let key = PublicKey(key);
                if let Some(expected) = expected_key.filter(|expected| *expected != key.id()) {
                    return Err(Fault::Key { found: key.id(), expected });
                }
                self.key = Some(key);
            }
            (_, _, _, None, _) => {
                self.from = Some(line(word, rest, "from", Bound::read).ok_or(wrong("the range's beginning"))?);
            }
            (_, _, _, _, None) => {
                self.to = Some(line(word, rest, "to", Bound::read).ok_or(wrong("the range's end"))?);
                self.selection.from = self.from.unwrap_or(Bound::Open);
                self.selection.to = self.to.unwrap_or(Bound::Open);
            }
            _ => {
                let name = || Some(rest.to_owned()).filter(|name| !name.is_empty() && !name.contains(char::is_control));
                let order = match word {
                    "tenant" => 1,
                    "actor" => 2,
                    "project" => 3,
                    _ => return Err(wrong("a partition or the signature")),
                };
                if order <= self.asked {
                    return Err(wrong("a partition or the signature"));
                }
                self.asked = order;
                match word {
                    "tenant" => self.selection.tenant = Some(name().ok_or(wrong("a tenant's name"))?),
                    "actor" => self.selection.actor = Some(canonical::<ActorId>(rest).ok_or(wrong("an actor's id"))?),
                    _ => self.selection.project = Some(name().ok_or(wrong("a project's name"))?),
                }
            }
        }
        Ok(Found::Proof)
    }

    fn complete(&self) -> Result<(), Fault> {
        if self.to.is_some() { Ok(()) } else { Err(Fault::Expected { expected: "the rest of the export's head" }) }
    }

    /// Whether a checkpoint is this site's, signed with the export's key.
    fn compare(&self, signed: &SignedCheckpoint, check: Check<'_>) -> Result<(), Fault> {
        let checkpoint = &signed.checkpoint;
        if Some(checkpoint.site) != self.site {
            return Err(Fault::Other { what: "site" });
        }
        // Of an earlier generation it counts as well: what was restored has the same past.
        if Some(checkpoint.generation) > self.generation {
            return Err(Fault::Other { what: "generation" });
        }
        match &self.key {
            Some(key) if signed.is_signed_by(key, check) => Ok(()),
            _ => Err(Fault::CheckpointSignature),
        }
    }
}

impl Open {
    fn skip(&mut self, rest: &str, selection: &Selection) -> Result<Found, Fault> {
        let wrong = Fault::Expected { expected: "the node over events that are not shown" };
        let (level, hash) = rest.split_once(' ').ok_or(wrong.clone())?;
        let level: u32 = number(level).filter(|level| *level <= MAX_LEVEL).ok_or(wrong.clone())?;
        let hash = checkpoint::hash(hash).filter(|read| hex::encode(read) == hash).ok_or(wrong)?;
        let after = self.tree.count();
        self.tree.push(level, hash).ok_or(Fault::Node { level, after })?;
        self.shown = None;
        match self.before.as_ref().map(|leaf| selection.side(leaf)) {
            // In front of the range or all of it: what comes next must be in front of the range, too.
            None | Some(Side::Before) => self.hidden = true,
            Some(Side::Inside) => return Err(Fault::Hidden),
            Some(Side::After) => {}
        }
        Ok(Found::Proof)
    }

    /// Goes on with an event or leaf.
    fn show(&mut self, leaf: Leaf, selection: &Selection) -> Result<(), Fault> {
        if self.before.as_ref().is_some_and(|before| before.recorded_at > leaf.recorded_at) {
            return Err(Fault::Order);
        }
        let side = selection.side(&leaf);
        if self.hidden && side != Side::Before {
            return Err(Fault::Hidden);
        }
        self.hidden = false;
        self.in_range += u64::from(side == Side::Inside);
        let after = self.tree.count();
        self.tree.push(0, leaf.hash()).ok_or(Fault::Node { level: 0, after })?;
        self.before = Some(leaf.clone());
        self.shown = Some(leaf);
        Ok(())
    }

    fn event(&mut self, rest: &str, selection: &Selection) -> Result<Found, Fault> {
        let bytes = STANDARD.decode(rest).map_err(|_| Fault::Expected { expected: "an event in base64" })?;
        let (envelope, found) = Envelope::decode(&bytes).map_err(Fault::Event)?;
        if envelope.sequence != self.tree.count().saturating_add(1) {
            return Err(Fault::Sequence { found: envelope.sequence });
        }
        let previous = match (&self.shown, self.tree.count()) {
            (Some(leaf), _) => leaf.link,
            (None, 0) => ChainLink::GENESIS,
            (None, _) => return Err(Fault::Unconnected),
        };
        let computed = Envelope::link_after(&bytes, &previous).unwrap_or_default();
        if computed != found {
            return Err(Fault::Link { found, computed });
        }
        let leaf = Leaf::of_envelope(&envelope, found);
        if selection.side(&leaf) != Side::Inside || !selection.takes(&leaf) {
            return Err(Fault::NotAskedFor);
        }
        self.show(leaf, selection)?;
        self.events += 1;
        Ok(Found::Event(Box::new(envelope)))
    }

    /// Whether what was read so far is what a checkpoint was signed for. `own`: it stands in the export, here.
    fn compare(&self, signed: &SignedCheckpoint, own: bool) -> Result<(), Fault> {
        let checkpoint = &signed.checkpoint;
        if checkpoint.partition != self.partition {
            return Err(Fault::Other { what: "partition" });
        }
        if own && checkpoint.sequence() != self.tree.count() {
            return Err(Fault::Other { what: "place" });
        }
        let same_link = self.shown.as_ref().is_none_or(|leaf| leaf.link == checkpoint.link);
        if checkpoint.tree == self.tree && same_link { Ok(()) } else { Err(Fault::Contradicted) }
    }
}

fn line<T>(word: &str, rest: &str, expected: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    if word == expected { read(rest) } else { None }
}

/// An id as gatelog writes it.
fn canonical<T: std::str::FromStr + fmt::Display>(text: &str) -> Option<T> {
    number(text)
}

fn read_leaf(rest: &str, sequence: u64) -> Option<Leaf> {
    let mut fields = rest.splitn(6, ' ');
    let recorded_at = Timestamp(number(fields.next()?)?);
    let kind_version = KindVersion { kind: number(fields.next()?)?, version: number(fields.next()?)? };
    let actor = canonical(fields.next()?)?;
    let link = fields.next()?;
    let link = ChainLink(checkpoint::hash(link).filter(|read| hex::encode(read) == link)?);
    let key = fields.next()?.to_owned();
    Some(Leaf { sequence, recorded_at, kind_version, actor, key, link })
}
