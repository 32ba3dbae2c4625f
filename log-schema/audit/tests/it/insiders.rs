//! Somebody with the log, and even with the site's key, makes an export that says otherwise: what finds it.

use gatelog_audit::{Fault, Selection, Spot, Verifier};

use crate::desk::*;

/// The story, with one event changed.
fn changed(count: usize, at: usize) -> Story {
    let mut story = story(count);
    story[at].2 = "nothing to see here".into();
    story
}

#[test]
fn an_outside_checkpoint_finds_a_past_that_was_written_anew() {
    let true_log = log(&story(40));
    let outside = published(&true_log, 30);
    for at in (0..29).step_by(4) {
        // Whoever has the site's key signs what they like: by itself such an export is sound.
        let forged = exported(&log(&changed(40, at)), &of_tenant("tools"), &[]);
        assert!(verified(&forged, &[]).is_ok());
        let wrong = verified(&forged, std::slice::from_ref(&outside)).unwrap_err();
        assert_eq!(wrong.fault, Fault::Contradicted, "event {}", at + 2);
        assert_eq!(wrong.place.unwrap().partition, GATE);
    }
    // What came after the checkpoint it does not know of.
    assert!(verified(&exported(&log(&changed(40, 35)), &all(), &[]), &[outside]).is_ok());
}

#[test]
fn an_outside_checkpoint_finds_a_tail_that_was_cut_off() {
    let true_log = log(&story(40));
    let outside = published(&true_log, 36);
    for left in [1, 2, 17, 35] {
        let forged = exported(&log(&story(left)), &all(), &[]);
        let wrong = verified(&forged, std::slice::from_ref(&outside)).unwrap_err();
        assert_eq!(wrong.fault, Fault::Behind { sequence: 36, newest: left as u64 });
        assert_eq!(wrong.place, Some(Spot { partition: GATE, sequence: 36 }));
        assert!(wrong.to_string().contains("the log's tail was cut off"), "{wrong}");
    }
    assert!(verified(&exported(&log(&story(36)), &all(), &[]), &[outside]).is_ok());
}

#[test]
fn another_key_is_found_by_the_key_that_is_expected_and_by_any_checkpoint() {
    let forged = exported_by(&OTHER, &log(&changed(20, 4)), &all(), &[]).unwrap();
    assert!(verified(&forged, &[]).is_ok(), "by itself it only proves that whoever has its key made it");
    let wrong = Verifier::new(&check, Some(KEY.public().id()), Vec::new()).verify(&forged).unwrap_err();
    assert_eq!(wrong.fault, Fault::Key { found: OTHER.public().id(), expected: KEY.public().id() });
    let outside = published(&log(&story(20)), 15);
    assert_eq!(verified(&forged, &[outside]).unwrap_err().fault, Fault::CheckpointSignature);
    let sound = exported(&log(&story(20)), &all(), &[]);
    assert!(Verifier::new(&check, Some(KEY.public().id()), Vec::new()).verify(&sound).is_ok());
}

#[test]
fn a_checkpoint_of_another_site_or_a_later_generation_does_not_count() {
    let log = log(&story(20));
    let text = exported(&log, &all(), &[]);
    let sound = published(&log, 15);
    let mut other = sound.clone();
    other.checkpoint.site.0[3] ^= 1;
    assert_eq!(verified(&text, &[other]).unwrap_err().fault, Fault::Other { what: "site" });
    let mut other = sound.clone();
    other.checkpoint.generation = 2;
    assert_eq!(verified(&text, &[other]).unwrap_err().fault, Fault::Other { what: "generation" });
    let mut other = sound;
    other.signature[5] ^= 1;
    assert_eq!(verified(&text, &[other]).unwrap_err().fault, Fault::CheckpointSignature);
}

/// Puts the site's signature under an export anew, as an insider would.
fn signed_anew(text: &str) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let body = &text[..text.rfind("signature ").unwrap()];
    let digest: [u8; 32] = Sha256::digest(body.as_bytes()).into();
    let message = format!("gatelog audit export signature 1\n{}\n", hex::encode(digest));
    let signature = hex::encode(KEY.sign(message.as_bytes()).unwrap());
    format!("{body}signature {signature}\n").into_bytes()
}

#[test]
fn a_line_that_is_left_out_added_or_exchanged_is_named_at_its_place_before_any_signature() {
    let log = log(&story(30));
    let text = String::from_utf8(exported(&log, &of_tenant("tools"), &[])).unwrap();
    assert!(verified(&signed_anew(&text), &[]).is_ok(), "the insider's signature is right");
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| line.starts_with("partition ")).unwrap() + 1;
    let last = lines.len() - 2;
    let told = |lines: &[&str]| verified(&signed_anew(&format!("{}\n", lines.join("\n"))), &[]).unwrap_err();
    let mut named = 0;
    for at in first..last {
        let mut left_out = lines.clone();
        left_out.remove(at);
        let wrong = told(&left_out);
        assert_eq!(wrong.place.unwrap().partition, GATE, "{wrong}");
        let mut twice = lines.clone();
        twice.insert(at, lines[at]);
        assert!(told(&twice).line > at as u64);
        if at + 1 < last {
            let mut exchanged = lines.clone();
            exchanged.swap(at, at + 1);
            assert!(told(&exchanged).line > at as u64);
        }
        // An event made into a leaf: it was asked for.
        if lines[at].starts_with("event ") {
            named += 1;
        }
    }
    assert!(named > 5);
    // An event of the tenant is hidden as if it were another's: its leaf says whose it is.
    let tools = exported(&log, &of_tenant("demo"), &[]);
    let tools = String::from_utf8(tools).unwrap();
    let leaf = tools.lines().find(|line| line.starts_with("leaf ") && line.ends_with(" tools")).unwrap();
    let (sequence, _) = (1..).zip(tools.lines().skip(first)).find(|(_, line)| *line == leaf).unwrap();
    let mut hidden = lines.clone();
    hidden[first + sequence - 1] = leaf;
    let wrong = told(&hidden);
    assert_eq!(wrong.fault, Fault::LeftOut);
    assert_eq!(wrong.place, Some(Spot { partition: GATE, sequence: sequence as u64 }));
    // With another tenant's name in it, it is not the leaf that was signed.
    let renamed = leaf.replace(" tools", " demo");
    hidden[first + sequence - 1] = &renamed;
    assert_eq!(told(&hidden).fault, Fault::Contradicted);
}

#[test]
fn events_of_a_range_cannot_be_hidden_in_a_node() {
    let log = log(&story(30));
    // The range of one export put over the body of a smaller one.
    let small = String::from_utf8(exported(&log, &events(10, 12), &[])).unwrap();
    for (from, to) in [(10, 12), (9, 12), (10, 13), (1, 12), (10, 30)] {
        let text = small.replace("from event 10", &format!("from event {from}"));
        let text = text.replace("to event 12", &format!("to event {to}"));
        let found = verified(&signed_anew(&text), &[]);
        match (from, to) {
            (10, 12) => assert!(found.is_ok()),
            _ => assert!(matches!(found.unwrap_err().fault, Fault::Hidden | Fault::LeftOut), "{from} to {to}"),
        }
    }
    let asked = Selection { actor: Some(ANN), ..events(10, 12) };
    assert!(verified(&exported(&log, &asked, &[]), &[]).is_ok());
}
