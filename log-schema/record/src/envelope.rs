//! The envelope of an event, laid out by hand so that any gatelog of any age can read it.
//!
//! Little endian throughout:
//!
//! | field | bytes | |
//! |---|---|---|
//! | magic | 2 | `GE` |
//! | envelope version | 1 | [`ENVELOPE_VERSION`] |
//! | codec | 1 | of the body |
//! | kind, kind version | 2 + 2 | select the body's shape |
//! | flags | 2 | bit 0: a decision header follows; others 0 |
//! | sequence | 8 | dense within the partition, from 1 |
//! | term | 8 | of the writer |
//! | recorded_at, wall_at | 8 + 8 | microseconds |
//! | id | 16 | |
//! | cause | 1 + 8 | 0 start, 1 input at offset, 2 event at sequence |
//! | actor | 16 | |
//! | key, traceparent | 2 + n each | text |
//! | decision header | | see [`DecisionHeader`] |
//! | body | 4 + n | |
//! | CRC32C | 4 | over all before |
//! | chain link | 32 | SHA-256 (previous link ‖ all before) |

use serde::{Deserialize, Serialize};

use crate::chain::ChainLink;
use crate::codec;
use crate::event::Event;
use crate::id::{ActorId, EventId, InputId};
use crate::kinds::{BodyError, KindVersion};
use crate::time::Timestamp;
use crate::topic::{Domain, Partition};
use crate::wire::{FrameError, Reader, put_text};

/// The newest version of the envelope.
pub const ENVELOPE_VERSION: u8 = 1;
const MAGIC: [u8; 2] = *b"GE";
const LINK: usize = 32;
const FLAG_DECISION: u16 = 1;

/// What led to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The writer itself: it took the partition over.
    Start,
    /// The input at this offset of the partition's inputs.
    Input {
        /// The offset.
        offset: u64,
    },
    /// An earlier event of the same partition.
    Event {
        /// Its sequence.
        sequence: u64,
    },
}

/// Where an input came from when another domain sent it: the receiver drops what is at or below
/// what it has had from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// The sending partition.
    pub partition: Partition,
    /// The sequence of the event that put the message into its outbox.
    pub sequence: u64,
    /// Which of that event's messages.
    pub ordinal: u32,
}

/// An event of another or the same partition, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EventRef {
    /// Its partition.
    pub partition: Partition,
    /// Its sequence.
    pub sequence: u64,
}

/// What the first event of a decision says about the input it decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionHeader {
    /// The writer's dense count of inputs taken, from 1.
    pub input_sequence: u64,
    /// The input's offset in the partition's inputs.
    pub input_offset: u64,
    /// SHA-256 of the input's frame.
    pub input_digest: [u8; 32],
    /// The only clock the decision saw.
    pub now: Timestamp,
    /// The input's id, by which repeats are known.
    pub input_id: InputId,
    /// Set when another domain sent the input.
    pub source: Option<Source>,
    /// The event whose work this input reports on, if it does.
    pub caused_by: Option<EventRef>,
}

/// An event's envelope with its body still closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Codec of the body.
    pub codec: u8,
    /// Kind and version of the body.
    pub kind_version: KindVersion,
    /// Dense, from 1.
    pub sequence: u64,
    /// The writer's term.
    pub term: u64,
    /// When it was decided; never less than the record before it.
    pub recorded_at: Timestamp,
    /// What the machine's clock said.
    pub wall_at: Timestamp,
    /// The event's id.
    pub id: EventId,
    /// What led to it.
    pub cause: Cause,
    /// Who asked, opaque.
    pub actor: ActorId,
    /// The domain's key (tenant, allocation domain, …).
    pub key: String,
    /// W3C trace context, or empty.
    pub traceparent: String,
    /// On the first event of a decision.
    pub decision: Option<DecisionHeader>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

impl Envelope {
    /// The record's bytes and its link, following `previous`.
    pub fn encode(&self, previous: &ChainLink) -> (Vec<u8>, ChainLink) {
        let mut out = Vec::with_capacity(256 + self.body.len());
        out.extend_from_slice(&MAGIC);
        out.push(ENVELOPE_VERSION);
        out.push(self.codec);
        out.extend_from_slice(&self.kind_version.kind.to_le_bytes());
        out.extend_from_slice(&self.kind_version.version.to_le_bytes());
        let flags = if self.decision.is_some() { FLAG_DECISION } else { 0 };
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.term.to_le_bytes());
        out.extend_from_slice(&self.recorded_at.0.to_le_bytes());
        out.extend_from_slice(&self.wall_at.0.to_le_bytes());
        out.extend_from_slice(&self.id.0);
        let (cause, at) = match self.cause {
            Cause::Start => (0, 0),
            Cause::Input { offset } => (1, offset),
            Cause::Event { sequence } => (2, sequence),
        };
        out.push(cause);
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(&self.actor.0);
        put_text(&mut out, &self.key);
        put_text(&mut out, &self.traceparent);
        if let Some(decision) = &self.decision {
            put_decision(&mut out, decision);
        }
        out.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.body);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        let link = previous.then(&out);
        out.extend_from_slice(&link.0);
        (out, link)
    }

    /// The envelope and the link it claims. The checksum is verified, the link is not: that needs
    /// the link before it ([`Envelope::link_after`]).
    pub fn decode(bytes: &[u8]) -> Result<(Envelope, ChainLink), FrameError> {
        let mut reader = Reader::new(bytes);
        reader.magic("an event", MAGIC)?;
        let version = reader.u8("envelope version")?;
        if version == 0 || version > ENVELOPE_VERSION {
            return Err(FrameError::Version { found: version, known: ENVELOPE_VERSION });
        }
        let checked =
            bytes.len().checked_sub(LINK + 4).ok_or(FrameError::Short { what: "checksum", missing: LINK + 4 })?;
        let (content, tail) = bytes.split_at(checked);
        let mut tail = Reader::new(tail);
        let found = tail.u32("checksum")?;
        let link = ChainLink(tail.array("chain link")?);
        let computed = crc32c::crc32c(content);
        if found != computed {
            return Err(FrameError::Checksum { found, computed });
        }
        let short = FrameError::Short { what: "codec", missing: 1 };
        let mut reader = Reader::new(content.get(3..).ok_or(short)?);
        let codec = reader.u8("codec")?;
        let kind_version = KindVersion { kind: reader.u16("kind")?, version: reader.u16("kind version")? };
        let flags = reader.u16("flags")?;
        if flags & !FLAG_DECISION != 0 {
            return Err(FrameError::Field { what: "flags", found: u64::from(flags) });
        }
        let sequence = reader.u64("sequence")?;
        let term = reader.u64("term")?;
        let recorded_at = Timestamp(reader.i64("recorded_at")?);
        let wall_at = Timestamp(reader.i64("wall_at")?);
        let id = EventId(reader.array("id")?);
        let cause = match (reader.u8("cause")?, reader.u64("cause position")?) {
            (0, 0) => Cause::Start,
            (0, position) => return Err(FrameError::Field { what: "cause position", found: position }),
            (1, offset) => Cause::Input { offset },
            (2, sequence) => Cause::Event { sequence },
            (other, _) => return Err(FrameError::Field { what: "cause", found: u64::from(other) }),
        };
        let actor = ActorId(reader.array("actor")?);
        let key = reader.text("key")?;
        let traceparent = reader.text("traceparent")?;
        let decision = if flags & FLAG_DECISION != 0 { Some(read_decision(&mut reader)?) } else { None };
        let length = reader.u32("body length")? as usize;
        let body = reader.take("body", length)?.to_vec();
        reader.end()?;
        let envelope = Envelope {
            codec,
            kind_version,
            sequence,
            term,
            recorded_at,
            wall_at,
            id,
            cause,
            actor,
            key,
            traceparent,
            decision,
            body,
        };
        Ok((envelope, link))
    }

    /// What the link of these record bytes must be after `previous`; `None` when they are too short
    /// to be a record.
    pub fn link_after(bytes: &[u8], previous: &ChainLink) -> Option<ChainLink> {
        Some(previous.then(bytes.get(..bytes.len().checked_sub(LINK)?)?))
    }

    /// Opens the body.
    pub fn open(self) -> Result<EventRecord, BodyError> {
        if self.codec != codec::BINCODE_2 {
            return Err(BodyError::Body { name: "event", why: codec::CodecError::Codec(self.codec) });
        }
        let event = Event::decode_body(self.kind_version, &self.body)?;
        Ok(EventRecord {
            sequence: self.sequence,
            term: self.term,
            recorded_at: self.recorded_at,
            wall_at: self.wall_at,
            id: self.id,
            cause: self.cause,
            actor: self.actor,
            key: self.key,
            traceparent: self.traceparent,
            decision: self.decision,
            event,
        })
    }
}

/// An event as the fold sees it: everything the envelope says, and what happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Dense, from 1.
    pub sequence: u64,
    /// The writer's term.
    pub term: u64,
    /// When it was decided.
    pub recorded_at: Timestamp,
    /// What the machine's clock said.
    pub wall_at: Timestamp,
    /// The event's id.
    pub id: EventId,
    /// What led to it.
    pub cause: Cause,
    /// Who asked, opaque.
    pub actor: ActorId,
    /// The domain's key.
    pub key: String,
    /// W3C trace context, or empty.
    pub traceparent: String,
    /// On the first event of a decision.
    pub decision: Option<DecisionHeader>,
    /// What happened.
    pub event: Event,
}

impl EventRecord {
    /// The envelope, its body closed.
    pub fn close(&self) -> Result<Envelope, codec::CodecError> {
        Ok(Envelope {
            codec: codec::BINCODE_2,
            kind_version: self.event.kind_version(),
            sequence: self.sequence,
            term: self.term,
            recorded_at: self.recorded_at,
            wall_at: self.wall_at,
            id: self.id,
            cause: self.cause,
            actor: self.actor,
            key: self.key.clone(),
            traceparent: self.traceparent.clone(),
            decision: self.decision.clone(),
            body: self.event.encode_body()?,
        })
    }

    /// The record as JSON for people (`gatelog log cat`).
    pub fn to_json(&self) -> serde_json::Value {
        let cause = match self.cause {
            Cause::Start => serde_json::json!("start"),
            Cause::Input { offset } => serde_json::json!({ "input": offset }),
            Cause::Event { sequence } => serde_json::json!({ "event": sequence }),
        };
        let mut json = serde_json::json!({
            "sequence": self.sequence,
            "term": self.term,
            "recorded_at": self.recorded_at.to_string(),
            "kind": self.event.name(),
            "version": self.event.kind_version().version,
            "id": self.id.to_string(),
            "cause": cause,
            "key": self.key,
        });
        if self.actor != ActorId::SYSTEM {
            json["actor"] = self.actor.to_string().into();
        }
        if let Some(decision) = &self.decision {
            json["input"] = serde_json::json!({
                "sequence": decision.input_sequence,
                "offset": decision.input_offset,
                "id": decision.input_id.as_str(),
                "digest": hex::encode(decision.input_digest),
            });
            if let Some(source) = &decision.source {
                json["input"]["source"] = format!("{} {}.{}", source.partition, source.sequence, source.ordinal).into();
            }
            if let Some(caused_by) = &decision.caused_by {
                json["input"]["caused_by"] = format!("{} {}", caused_by.partition, caused_by.sequence).into();
            }
        }
        json["body"] = pretty(self.event.to_json());
        json
    }
}

/// Ids and hashes are byte arrays to serde; people want hex.
pub(crate) fn pretty(json: serde_json::Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match json {
        Json::Array(items) => {
            let bytes: Option<Vec<u8>> =
                items.iter().map(|item| item.as_u64().and_then(|number| u8::try_from(number).ok())).collect();
            match bytes {
                Some(bytes) if bytes.len() == 16 || bytes.len() == 32 => Json::String(hex::encode(bytes)),
                _ => Json::Array(items.into_iter().map(pretty).collect()),
            }
        }
        Json::Object(map) => Json::Object(map.into_iter().map(|(key, value)| (key, pretty(value))).collect()),
        other => other,
    }
}

fn put_partition(out: &mut Vec<u8>, partition: Partition) {
    out.push(partition.domain as u8);
    out.extend_from_slice(&partition.index.to_le_bytes());
}

fn read_partition(reader: &mut Reader<'_>) -> Result<Partition, FrameError> {
    let number = reader.u8("domain")?;
    let domain = Domain::from_number(number).ok_or(FrameError::Field { what: "domain", found: u64::from(number) })?;
    Ok(Partition { domain, index: reader.u32("partition index")? })
}

fn put_decision(out: &mut Vec<u8>, decision: &DecisionHeader) {
    out.extend_from_slice(&decision.input_sequence.to_le_bytes());
    out.extend_from_slice(&decision.input_offset.to_le_bytes());
    out.extend_from_slice(&decision.input_digest);
    out.extend_from_slice(&decision.now.0.to_le_bytes());
    put_text(out, decision.input_id.as_str());
    put_origin(out, &decision.source, &decision.caused_by);
}

fn read_decision(reader: &mut Reader<'_>) -> Result<DecisionHeader, FrameError> {
    let input_sequence = reader.u64("input sequence")?;
    let input_offset = reader.u64("input offset")?;
    let input_digest = reader.array("input digest")?;
    let now = Timestamp(reader.i64("now")?);
    let input_id = reader.input_id()?;
    let (source, caused_by) = read_origin(reader)?;
    Ok(DecisionHeader { input_sequence, input_offset, input_digest, now, input_id, source, caused_by })
}

/// Source and causing event, each behind a byte that says whether it is there.
pub(crate) fn put_origin(out: &mut Vec<u8>, source: &Option<Source>, caused_by: &Option<EventRef>) {
    out.push(u8::from(source.is_some()));
    if let Some(source) = source {
        put_partition(out, source.partition);
        out.extend_from_slice(&source.sequence.to_le_bytes());
        out.extend_from_slice(&source.ordinal.to_le_bytes());
    }
    out.push(u8::from(caused_by.is_some()));
    if let Some(caused_by) = caused_by {
        put_partition(out, caused_by.partition);
        out.extend_from_slice(&caused_by.sequence.to_le_bytes());
    }
}

pub(crate) fn read_origin(reader: &mut Reader<'_>) -> Result<(Option<Source>, Option<EventRef>), FrameError> {
    let source = match reader.u8("source flag")? {
        0 => None,
        1 => Some(Source {
            partition: read_partition(reader)?,
            sequence: reader.u64("source sequence")?,
            ordinal: reader.u32("source ordinal")?,
        }),
        other => return Err(FrameError::Field { what: "source flag", found: u64::from(other) }),
    };
    let caused_by = match reader.u8("cause flag")? {
        0 => None,
        1 => Some(EventRef { partition: read_partition(reader)?, sequence: reader.u64("cause sequence")? }),
        other => return Err(FrameError::Field { what: "cause flag", found: u64::from(other) }),
    };
    Ok((source, caused_by))
}
