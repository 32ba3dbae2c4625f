//! The frame of an input. Apart from the events' envelope on purpose: inputs have many producers,
//! no sequence, no term and no link; the writer gives them their place.
//!
//! Little endian: magic `GI`, version 1, codec 1, kind 2, kind version 2, observed_at 8, actor 16,
//! input id, key and traceparent (2 + n each), source and causing event (a flag byte each, then
//! their fields), body 4 + n, CRC32C 4.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::codec;
use crate::envelope::{EventRef, Source, put_origin, read_origin};
use crate::id::{ActorId, InputId};
use crate::input::Input;
use crate::kinds::{BodyError, KindVersion};
use crate::time::Timestamp;
use crate::wire::{FrameError, Reader, put_text};

/// The newest version of the frame.
pub const FRAME_VERSION: u8 = 1;
const MAGIC: [u8; 2] = *b"GI";

/// An input with its body still closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFrame {
    /// Codec of the body.
    pub codec: u8,
    /// Kind and version of the body.
    pub kind_version: KindVersion,
    /// When the sender says it happened. A claim.
    pub observed_at: Timestamp,
    /// Who asks, opaque.
    pub actor: ActorId,
    /// Repeats carry the same.
    pub input_id: InputId,
    /// The domain's key (tenant, allocation domain, connection and project).
    pub key: String,
    /// W3C trace context, or empty.
    pub traceparent: String,
    /// Set when another domain sends it.
    pub source: Option<Source>,
    /// The event whose work this reports on.
    pub caused_by: Option<EventRef>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

impl InputFrame {
    /// The frame's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + self.body.len());
        out.extend_from_slice(&MAGIC);
        out.push(FRAME_VERSION);
        out.push(self.codec);
        out.extend_from_slice(&self.kind_version.kind.to_le_bytes());
        out.extend_from_slice(&self.kind_version.version.to_le_bytes());
        out.extend_from_slice(&self.observed_at.0.to_le_bytes());
        out.extend_from_slice(&self.actor.0);
        put_text(&mut out, self.input_id.as_str());
        put_text(&mut out, &self.key);
        put_text(&mut out, &self.traceparent);
        put_origin(&mut out, &self.source, &self.caused_by);
        out.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.body);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// The frame of bytes; the checksum is verified.
    pub fn decode(bytes: &[u8]) -> Result<InputFrame, FrameError> {
        let mut reader = Reader::new(bytes);
        reader.magic("an input", MAGIC)?;
        let version = reader.u8("frame version")?;
        if version == 0 || version > FRAME_VERSION {
            return Err(FrameError::Version { found: version, known: FRAME_VERSION });
        }
        let checked = bytes.len().checked_sub(4).ok_or(FrameError::Short { what: "checksum", missing: 4 })?;
        let (content, tail) = bytes.split_at(checked);
        let found = Reader::new(tail).u32("checksum")?;
        let computed = crc32c::crc32c(content);
        if found != computed {
            return Err(FrameError::Checksum { found, computed });
        }
        let short = FrameError::Short { what: "codec", missing: 1 };
        let mut reader = Reader::new(content.get(3..).ok_or(short)?);
        let codec = reader.u8("codec")?;
        let kind_version = KindVersion { kind: reader.u16("kind")?, version: reader.u16("kind version")? };
        let observed_at = Timestamp(reader.i64("observed_at")?);
        let actor = ActorId(reader.array("actor")?);
        let input_id = reader.input_id()?;
        let key = reader.text("key")?;
        let traceparent = reader.text("traceparent")?;
        let (source, caused_by) = read_origin(&mut reader)?;
        let length = reader.u32("body length")? as usize;
        let body = reader.take("body", length)?.to_vec();
        reader.end()?;
        Ok(InputFrame { codec, kind_version, observed_at, actor, input_id, key, traceparent, source, caused_by, body })
    }

    /// SHA-256 of the frame's bytes: what a decision says it decided on.
    pub fn digest(bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    /// Opens the body.
    pub fn open(self) -> Result<InputRecord, BodyError> {
        if self.codec != codec::BINCODE_2 {
            return Err(BodyError::Body { name: "input", why: codec::CodecError::Codec(self.codec) });
        }
        let input = Input::decode_body(self.kind_version, &self.body)?;
        Ok(InputRecord {
            observed_at: self.observed_at,
            actor: self.actor,
            input_id: self.input_id,
            key: self.key,
            traceparent: self.traceparent,
            source: self.source,
            caused_by: self.caused_by,
            input,
        })
    }
}

/// An input as `decide` sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputRecord {
    /// When the sender says it happened. A claim.
    pub observed_at: Timestamp,
    /// Who asks, opaque.
    pub actor: ActorId,
    /// Repeats carry the same.
    pub input_id: InputId,
    /// The domain's key.
    pub key: String,
    /// W3C trace context, or empty.
    pub traceparent: String,
    /// Set when another domain sends it.
    pub source: Option<Source>,
    /// The event whose work this reports on.
    pub caused_by: Option<EventRef>,
    /// What is said.
    pub input: Input,
}

impl InputRecord {
    /// An input of gatelog itself with nothing but its id, key and content; the rest can be set after.
    pub fn new(input_id: InputId, key: impl Into<String>, observed_at: Timestamp, input: impl Into<Input>) -> Self {
        InputRecord {
            observed_at,
            actor: ActorId::SYSTEM,
            input_id,
            key: key.into(),
            traceparent: String::new(),
            source: None,
            caused_by: None,
            input: input.into(),
        }
    }

    /// The same, saying which event's work it reports on.
    pub fn caused_by(mut self, event: EventRef) -> Self {
        self.caused_by = Some(event);
        self
    }

    /// The frame, its body closed.
    pub fn close(&self) -> Result<InputFrame, codec::CodecError> {
        Ok(InputFrame {
            codec: codec::BINCODE_2,
            kind_version: self.input.kind_version(),
            observed_at: self.observed_at,
            actor: self.actor,
            input_id: self.input_id.clone(),
            key: self.key.clone(),
            traceparent: self.traceparent.clone(),
            source: self.source,
            caused_by: self.caused_by,
            body: self.input.encode_body()?,
        })
    }

    /// The input as JSON for people (`gatelog log cat`).
    pub fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({
            "kind": self.input.name(),
            "version": self.input.kind_version().version,
            "input_id": self.input_id.as_str(),
            "observed_at": self.observed_at.to_string(),
            "key": self.key,
        });
        if self.actor != ActorId::SYSTEM {
            json["actor"] = self.actor.to_string().into();
        }
        if let Some(source) = &self.source {
            json["source"] = format!("{} {}.{}", source.partition, source.sequence, source.ordinal).into();
        }
        if let Some(caused_by) = &self.caused_by {
            json["caused_by"] = format!("{} {}", caused_by.partition, caused_by.sequence).into();
        }
        json["body"] = crate::envelope::pretty(self.input.to_json());
        json
    }
}
