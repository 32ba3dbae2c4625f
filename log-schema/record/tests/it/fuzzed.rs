//! The corpus of the fuzz targets `envelope` and `codec`, and inputs made of it; docs/fuzzing.md.

use gatelog_record::{ChainLink, Envelope, Event, Input, InputFrame};

use crate::records;

#[path = "../../../../tests/fuzz/bodies/record.rs"]
mod bodies;
#[path = "../../../../tests/fuzz/corpus.rs"]
mod corpus;

/// The fuzzer bounds memory; here it is as it is.
fn within<T>(_most: usize, read: impl FnOnce() -> T) -> T {
    read()
}

#[test]
fn whatever_is_read_as_a_record_is_written_as_it_was_or_refused_by_its_field() {
    if corpus::seeds_wanted() {
        envelope_seeds();
    }
    corpus::play("envelope", 60_000, bodies::envelope);
}

#[test]
fn whatever_is_read_as_a_body_reads_the_same_once_written_or_is_refused_by_its_kind() {
    if corpus::seeds_wanted() {
        codec_seeds();
    }
    corpus::play("codec", 60_000, bodies::codec);
}

fn envelope_seeds() {
    for (nth, kind) in records::events().into_iter().enumerate().filter(|(nth, _)| nth % 4 == 0) {
        let record = records::event_record(nth, kind.samples[nth % kind.samples.len()].clone());
        let (bytes, _) = record.close().unwrap().encode(&ChainLink::GENESIS);
        corpus::seed("envelope", &format!("{}-unsound", kind.info.name), &[&[0], &bytes]);
        corpus::seed("envelope", kind.info.name, &[&[1], &bytes[..bytes.len() - 36]]);
    }
    for (nth, kind) in records::inputs().into_iter().enumerate().filter(|(nth, _)| nth % 4 == 0) {
        let record = records::input_record(nth, kind.samples[nth % kind.samples.len()].clone());
        let bytes = record.close().unwrap().encode();
        corpus::seed("envelope", &format!("{}-unsound", kind.info.name), &[&[2], &bytes]);
        corpus::seed("envelope", kind.info.name, &[&[3], &bytes[..bytes.len() - 4]]);
    }
    // Hand-made: lengths that lie, texts that are none, ids that are too long, nothing at all.
    let (envelope, _) = records::some_event();
    let content = |envelope: &Envelope| {
        let (bytes, _) = envelope.encode(&ChainLink::GENESIS);
        bytes[..bytes.len() - 36].to_vec()
    };
    let sound = content(&envelope);
    let body = sound.len() - envelope.body.len() - 4;
    for (name, length) in [("all", u32::MAX), ("more", envelope.body.len() as u32 + 1), ("less", 0)] {
        let lies = [&[1][..], &sound[..body], &length.to_le_bytes(), &envelope.body].concat();
        corpus::seed("envelope", &format!("nasty-body-length-{name}"), &[&lies]);
    }
    let key = sound.len() - 12;
    for at in (0..key).step_by(9) {
        let mut bytes = sound.clone();
        bytes[at] = 0xff;
        corpus::seed("envelope", &format!("nasty-byte-{at:03}"), &[&[1], &bytes]);
    }
    let mut long = InputFrame::decode(&records::some_input()).unwrap();
    let short = long.encode();
    corpus::seed("envelope", "nasty-input-cut", &[&[3], &short[..30]]);
    long.key = "k".repeat(65_535);
    corpus::seed("envelope", "nasty-long-key", &[&[3], &long.encode()[..2_000]]);
    corpus::seed("envelope", "nasty-magic-only", &[&[1], b"GE\x01"]);
    corpus::seed("envelope", "nasty-newer", &[&[1], b"GE\x02", &sound[3..]]);
}

fn codec_seeds() {
    let events: Vec<_> = records::events()
        .into_iter()
        .map(|kind| {
            let bodies: Vec<Vec<u8>> = kind.samples.iter().map(|event: &Event| event.encode_body().unwrap()).collect();
            (kind.info, bodies)
        })
        .collect();
    let inputs: Vec<_> = records::inputs()
        .into_iter()
        .map(|kind| {
            let bodies: Vec<Vec<u8>> = kind.samples.iter().map(|input: &Input| input.encode_body().unwrap()).collect();
            (kind.info, bodies)
        })
        .collect();
    let registry: Vec<u16> = Event::kinds().chain(Input::kinds()).map(|info| info.newest.kind).collect();
    for (info, bodies) in events.into_iter().chain(inputs) {
        let index = registry.iter().position(|kind| *kind == info.newest.kind).unwrap() as u16;
        let [low, high] = index.to_le_bytes();
        let widest = bodies.iter().max_by_key(|body| body.len()).unwrap();
        corpus::seed("codec", info.name, &[&[low, high, 1], widest]);
        // A text, list or map that says it is as long as can be said.
        corpus::seed(
            "codec",
            &format!("nasty-{}", info.name),
            &[&[low, high, 1, 253], &[0xff; 8], &widest[..widest.len() / 2]],
        );
    }
    // A free-form value, ever deeper: of the kind that holds one, wherever it stands there.
    for (kind, at) in [("gate.in.attempt-finished", 0_usize), ("gate.in.enqueue-asked", 1), ("gate.autohold-set", 2)] {
        if let Some(info) = Event::kinds().chain(Input::kinds()).find(|info| info.name == kind) {
            let index = registry.iter().position(|number| *number == info.newest.kind).unwrap() as u16;
            let [low, high] = index.to_le_bytes();
            corpus::seed("codec", &format!("nasty-deep-{at}"), &[&[low, high, 1], &[5, 1].repeat(1_000)]);
        }
    }
}
