//! Events' envelopes, inputs' frames and the bodies of both.
//!
//! Of `super`: `within`, which holds a reader to the room it may take.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test, wherever it is compiled")]

use gatelog_record::{BodyError, ChainLink, Envelope, Event, FrameError, Input, InputFrame, KindInfo, KindVersion};

use super::within;

/// What a body may take, beside [`BODY_TIMES`] for each of its bytes: the codec makes room for a text before it reads
/// it, and for some elements of a list.
const BODY_ROOM: usize = gatelog_record::codec::MAX_BODY + (4 << 20);
/// A map of one entry, three bytes on the log, is a node of eleven in memory.
const BODY_TIMES: usize = 1_024;

/// The first byte: bit 0, checksum and link are set right; bit 1, an input and not an event.
#[allow(dead_code, reason = "each target has its own")]
pub fn envelope(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let sound = choice & 1 == 1;
    let mut bytes = rest.to_vec();
    if sound {
        bytes.extend_from_slice(&crc32c::crc32c(rest).to_le_bytes());
    }
    if choice & 2 == 2 {
        input(&bytes, sound);
    } else {
        if sound {
            bytes.extend_from_slice(&ChainLink::GENESIS.then(&bytes).0);
        }
        event(&bytes, sound);
    }
}

#[allow(dead_code, reason = "each target has its own")]
fn event(bytes: &[u8], sound: bool) {
    match within(2 * bytes.len() + 1_024, || Envelope::decode(bytes)) {
        Ok((envelope, link)) => {
            let (again, next) = envelope.encode(&ChainLink::GENESIS);
            let unlinked = bytes.len() - link.0.len();
            assert_eq!(again[..unlinked], bytes[..unlinked], "an envelope has one form");
            assert_eq!(bytes[unlinked..], link.0);
            assert_eq!(Envelope::link_after(bytes, &ChainLink::GENESIS), Some(next));
            let body = envelope.body.len();
            match within(BODY_TIMES * body + BODY_ROOM, || envelope.open()) {
                Ok(record) => {
                    let closed = record.close().unwrap();
                    let (_, kept) = (record.to_json(), closed.clone().encode(&ChainLink::GENESIS).0);
                    let (read, _) = Envelope::decode(&kept).unwrap();
                    assert_eq!(read, closed);
                    assert_eq!(read.open().unwrap(), record);
                }
                Err(error) => named(&error),
            }
        }
        Err(error) => placed(&error, bytes.len(), sound),
    }
}

#[allow(dead_code, reason = "each target has its own")]
fn input(bytes: &[u8], sound: bool) {
    match within(2 * bytes.len() + 1_024, || InputFrame::decode(bytes)) {
        Ok(frame) => {
            assert_eq!(frame.encode(), bytes, "a frame has one form");
            let body = frame.body.len();
            match within(BODY_TIMES * body + BODY_ROOM, || frame.open()) {
                Ok(record) => {
                    let closed = record.close().unwrap();
                    let (_, kept) = (record.to_json(), closed.encode());
                    let read = InputFrame::decode(&kept).unwrap();
                    assert_eq!(read, closed);
                    assert_eq!(read.open().unwrap(), record);
                }
                Err(error) => named(&error),
            }
        }
        Err(error) => placed(&error, bytes.len(), sound),
    }
}

/// An error of a frame says which field is wrong; the offset is added by whoever read the record.
#[allow(dead_code, reason = "each target has its own")]
fn placed(error: &FrameError, length: usize, sound: bool) {
    match error {
        FrameError::Short { what, missing } => assert!(!what.is_empty() && *missing > 0),
        FrameError::Field { what, .. } | FrameError::Text { what } => assert!(!what.is_empty()),
        FrameError::Trailing(count) => assert!(*count > 0 && *count < length),
        FrameError::Checksum { found, computed } => assert!(found != computed && !sound, "{error}"),
        FrameError::Magic { .. } | FrameError::Version { .. } => {}
    }
}

/// An error of a body says of which kind it is.
fn named(error: &BodyError) {
    let told = error.to_string();
    match error {
        BodyError::UnknownKind(kind) => assert!(told.contains(&kind.to_string()), "{told}"),
        BodyError::UnknownVersion { name, .. } | BodyError::Body { name, .. } => assert!(told.contains(name), "{told}"),
    }
}

/// The first two bytes: a kind; the third: which version of it, counted back from the one after the newest.
#[allow(dead_code, reason = "each target has its own")]
pub fn codec(data: &[u8]) {
    let [kind, more, version, body @ ..] = data else { return };
    let kinds: Vec<(bool, &KindInfo)> =
        Event::kinds().map(|info| (true, info)).chain(Input::kinds().map(|info| (false, info))).collect();
    let chosen = usize::from(u16::from_le_bytes([*kind, *more])) % kinds.len();
    let (event, info) = kinds[chosen];
    let newest = info.newest.version;
    let kind_version =
        KindVersion { kind: info.newest.kind, version: (newest + 1).saturating_sub(u16::from(*version)) };
    let most = BODY_TIMES * body.len() + BODY_ROOM;
    let wrong = if event {
        match within(most, || Event::decode_body(kind_version, body)) {
            Ok(read) => {
                let kept = read.encode_body().unwrap();
                assert_eq!(read.kind_version(), info.newest);
                assert_eq!(Event::decode_body(info.newest, &kept), Ok(read.clone()));
                assert!(!read.to_json().is_null() || kept.is_empty());
                return;
            }
            Err(error) => error,
        }
    } else {
        match within(most, || Input::decode_body(kind_version, body)) {
            Ok(read) => {
                let kept = read.encode_body().unwrap();
                assert_eq!(read.kind_version(), info.newest);
                assert_eq!(Input::decode_body(info.newest, &kept), Ok(read));
                return;
            }
            Err(error) => error,
        }
    };
    assert!(!matches!(wrong, BodyError::UnknownKind(_)), "{wrong}");
    let known = (1..=newest).contains(&kind_version.version);
    assert_eq!(known, matches!(wrong, BodyError::Body { .. }), "{wrong}");
    named(&wrong);
}
