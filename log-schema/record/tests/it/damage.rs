//! Damaged, cut and made-up bytes are errors that say what is wrong, and never a panic.

use gatelog_record::{ChainLink, Envelope, Event, FrameError, Input, InputFrame, KindVersion};
use proptest::prelude::*;

use crate::records::{self, event_record, some_event, some_input};

#[test]
fn no_altered_byte_of_an_event_goes_unnoticed() {
    let (_, bytes) = some_event();
    for at in 0..bytes.len() {
        for flip in 1..=255 {
            let mut altered = bytes.clone();
            altered[at] ^= flip;
            if let Ok((_, claimed)) = Envelope::decode(&altered) {
                // The link lies outside the checksum; the chain itself must show it.
                assert!(at >= bytes.len() - 32, "byte {at} altered by {flip:#x} passed the checksum");
                assert_ne!(Envelope::link_after(&altered, &ChainLink::GENESIS), Some(claimed), "byte {at}");
            }
        }
    }
}

#[test]
fn no_altered_byte_of_an_input_goes_unnoticed() {
    let bytes = some_input();
    for at in 0..bytes.len() {
        for flip in 1..=255 {
            let mut altered = bytes.clone();
            altered[at] ^= flip;
            assert!(InputFrame::decode(&altered).is_err(), "byte {at} altered by {flip:#x} passed");
        }
    }
}

#[test]
fn a_record_cut_anywhere_or_with_more_behind_it_is_an_error() {
    let (_, event) = some_event();
    let input = some_input();
    for length in 0..event.len() {
        assert!(Envelope::decode(&event[..length]).is_err(), "an event cut at {length}");
    }
    for length in 0..input.len() {
        assert!(InputFrame::decode(&input[..length]).is_err(), "an input cut at {length}");
    }
    for more in 1..40 {
        assert!(Envelope::decode(&[&event[..], &vec![0; more]].concat()).is_err());
        assert!(InputFrame::decode(&[&input[..], &vec![0; more]].concat()).is_err());
    }
}

#[test]
fn a_body_cut_anywhere_or_with_more_behind_it_is_an_error() {
    for kind in records::events() {
        for event in &kind.samples {
            let body = event.encode_body().unwrap();
            for length in 0..body.len() {
                assert!(
                    Event::decode_body(kind.info.newest, &body[..length]).is_err(),
                    "{} at {length}",
                    kind.info.name
                );
            }
            let error = Event::decode_body(kind.info.newest, &[&body[..], &[0]].concat()).unwrap_err().to_string();
            assert_eq!(error, format!("{}: 1 bytes are left over after the value", kind.info.name));
        }
    }
}

#[test]
fn a_record_in_a_newer_envelope_says_so_before_anything_else() {
    let (_, mut event) = some_event();
    event[2] = 9;
    let error = Envelope::decode(&event).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the record has envelope version 9, this gatelog reads 1 to 1: read it with a newer gatelog"
    );
    let mut input = some_input();
    input[2] = 2;
    assert_eq!(InputFrame::decode(&input).unwrap_err(), FrameError::Version { found: 2, known: 1 });
}

#[test]
fn an_event_is_no_input_and_an_input_no_event() {
    let (_, event) = some_event();
    assert_eq!(InputFrame::decode(&event).unwrap_err(), FrameError::Magic { expected: "an input", found: *b"GE" });
    assert_eq!(Envelope::decode(&some_input()).unwrap_err(), FrameError::Magic { expected: "an event", found: *b"GI" });
}

#[test]
fn a_body_of_an_unknown_codec_is_named() {
    let (mut envelope, _) = some_event();
    envelope.codec = 7;
    let error = envelope.open().unwrap_err().to_string();
    assert_eq!(error, "event: codec 7 is not known to this gatelog: read it with a newer one");
}

#[test]
fn every_event_of_a_chain_proves_all_before_it() {
    let samples: Vec<Event> = records::events().into_iter().map(|mut kind| kind.samples.remove(0)).collect();
    let mut link = ChainLink::GENESIS;
    let mut records = Vec::new();
    for (nth, event) in samples.into_iter().enumerate() {
        let (bytes, next) = event_record(nth, event).close().unwrap().encode(&link);
        records.push(bytes);
        link = next;
    }
    // Whether the chain holds over these records.
    let holds = |records: &[Vec<u8>]| {
        let mut link = ChainLink::GENESIS;
        records.iter().all(|bytes| {
            let (_, claimed) = Envelope::decode(bytes).unwrap();
            let computed = Envelope::link_after(bytes, &link);
            link = claimed;
            computed == Some(claimed)
        })
    };
    assert!(holds(&records));
    for at in 0..records.len() - 1 {
        let mut without = records.clone();
        without.remove(at);
        assert!(!holds(&without), "the chain holds without event {at}");
        let mut swapped = records.clone();
        swapped.swap(at, at + 1);
        assert!(!holds(&swapped), "the chain holds with events {at} and {} swapped", at + 1);
    }
    // Somebody who rewrites one event, checksum and all, has to rewrite all that follow.
    let (mut forged, _) = Envelope::decode(&records[3]).unwrap();
    forged.key = "other".to_owned();
    let (_, before) = Envelope::decode(&records[2]).unwrap();
    records[3] = forged.encode(&before).0;
    assert!(!holds(&records));
    assert!(holds(&records[..4]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn made_up_bytes_are_no_record_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Envelope::decode(&bytes).is_err());
        prop_assert!(InputFrame::decode(&bytes).is_err());
        let _ = Envelope::link_after(&bytes, &ChainLink::GENESIS);
        for (magic, version) in [(b"GE", 1), (b"GI", 1)] {
            let begun = [&magic[..], &[version], &bytes].concat();
            prop_assert!(Envelope::decode(&begun).is_err());
            prop_assert!(InputFrame::decode(&begun).is_err());
        }
    }

    #[test]
    fn made_up_contents_behind_a_right_checksum_are_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let content = [b"GE\x01", &bytes[..]].concat();
        let _ = Envelope::decode(&[&content[..], &crc32c::crc32c(&content).to_le_bytes(), &[0; 32]].concat());
        let content = [b"GI\x01", &bytes[..]].concat();
        let _ = InputFrame::decode(&[&content[..], &crc32c::crc32c(&content).to_le_bytes()].concat());
    }

    #[test]
    fn made_up_bodies_are_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind: u16, version: u16) {
        for info in Event::kinds() {
            let _ = Event::decode_body(info.newest, &bytes);
        }
        for info in Input::kinds() {
            let _ = Input::decode_body(info.newest, &bytes);
        }
        let _ = Event::decode_body(KindVersion { kind, version }, &bytes);
        let _ = Input::decode_body(KindVersion { kind, version }, &bytes);
    }
}
