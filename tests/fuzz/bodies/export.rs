//! Signed exports and the checkpoints in them.
//!
//! Of `super`: `within`, which holds a reader to the room it may take.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test, wherever it is compiled")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gatelog_audit::{Fault, Frontier, KeyId, Leaf, PublicKey, SignedCheckpoint, Verified, Verifier, Wrong};
use gatelog_record::{ActorId, ChainLink, Envelope, KindVersion, Timestamp};
use sha2::{Digest, Sha256};

use super::within;

/// A signature that needs no key: whoever fuzzes is a forger who has it.
pub fn sign(key: &PublicKey, message: &[u8]) -> Vec<u8> {
    Sha256::new().chain_update(&key.0).chain_update(message).finalize().to_vec()
}

fn verify(text: &[u8]) -> Result<Verified, Wrong> {
    let check = |key: &PublicKey, message: &[u8], signature: &[u8]| sign(key, message) == signature;
    let mut verifier = Verifier::new(&check, None, Vec::new());
    let mut events = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        // Twice in base64, once as bytes, once as what they say.
        let found = within(8 * line.len() + 4_096, || verifier.feed(line))?;
        events += u64::from(matches!(found, gatelog_audit::Found::Event(_)));
    }
    let verified = verifier.finish()?;
    assert_eq!(verified.sections.iter().map(|section| section.events).sum::<u64>(), events);
    Ok(verified)
}

/// The first byte: bit 0, everything a forger with the key can compute is set right; bit 1, a checkpoint alone.
pub fn export(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    if choice & 2 == 2 {
        return checkpoint(rest);
    }
    let text = if choice & 1 == 1 { forged(rest) } else { rest.to_vec() };
    let lines = text.split_inclusive(|byte| *byte == b'\n').count() as u64;
    match verify(&text) {
        Ok(verified) => {
            for section in &verified.sections {
                assert!(
                    section.events <= section.in_range && section.in_range <= section.of && section.checkpoints > 0
                );
            }
            // What is signed is all of it: nothing less, nothing more, nothing else.
            let last = text[..text.len() - 1].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            assert_eq!(verify(&text[..last]).map_err(|wrong| wrong.fault), Err(Fault::Cut));
            assert_eq!(verify(&[&text[..], b"\n"].concat()).map_err(|wrong| wrong.fault), Err(Fault::Trailing));
            let mut changed = text.clone();
            changed[last / 2] ^= 1;
            assert!(verify(&changed).is_err(), "a changed byte went unnoticed");
        }
        Err(wrong) => {
            assert!(wrong.line <= lines + 1, "{wrong}");
            assert!(wrong.to_string().starts_with(&format!("line {}", wrong.line)), "{wrong}");
        }
    }
}

fn checkpoint(bytes: &[u8]) {
    match within(8 * bytes.len() + 4_096, || SignedCheckpoint::decode(bytes)) {
        Ok(signed) => assert_eq!(signed.encode(), bytes, "a checkpoint has one form"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The text with places, checksums, links, trees and signatures as they must be, where its lines can be read at all.
fn forged(text: &[u8]) -> Vec<u8> {
    let (mut out, mut key) = (Vec::new(), PublicKey(Vec::new()));
    let (mut tree, mut link) = (Frontier::default(), ChainLink::GENESIS);
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut new = None;
        match word {
            "" | "signature" => continue,
            "key" => key = PublicKey(STANDARD.decode(rest).unwrap_or_default()),
            "partition" => (tree, link) = (Frontier::default(), ChainLink::GENESIS),
            "skip" => {
                let node = rest.split_once(' ').and_then(|(level, hash)| {
                    let mut read = [0; 32];
                    hex::decode_to_slice(hash, &mut read).ok()?;
                    Some((level.parse().ok()?, read))
                });
                let _ = node.and_then(|(level, hash)| tree.push(level, hash));
            }
            "leaf" => {
                if let Some(leaf) = leaf(rest, tree.count() + 1) {
                    link = leaf.link;
                    let _ = tree.push(0, leaf.hash());
                }
            }
            "event" => {
                if let Some((bytes, next)) = STANDARD.decode(rest).ok().and_then(|bytes| event(bytes, &tree, &link)) {
                    link = next;
                    if let Ok((envelope, _)) = Envelope::decode(&bytes) {
                        let _ = tree.push(0, Leaf::of_envelope(&envelope, link).hash());
                    }
                    new = Some(format!("event {}", STANDARD.encode(bytes)));
                }
            }
            "checkpoint" => {
                let signed = STANDARD.decode(rest).ok().and_then(|bytes| SignedCheckpoint::decode(&bytes).ok());
                if let Some(mut signed) = signed {
                    signed.checkpoint.tree = tree.clone();
                    signed.checkpoint.link = link;
                    signed.checkpoint.key = KeyId(key.id().0);
                    signed.signature = sign(&key, &signed.checkpoint.signed_bytes());
                    new = Some(format!("checkpoint {}", STANDARD.encode(signed.encode())));
                }
            }
            _ => {}
        }
        out.extend_from_slice(new.as_deref().unwrap_or(line).as_bytes());
        out.push(b'\n');
    }
    let digest: [u8; 32] = Sha256::digest(&out).into();
    let signed = format!("gatelog audit export signature 1\n{}\n", hex::encode(digest));
    out.extend_from_slice(format!("signature {}\n", hex::encode(sign(&key, signed.as_bytes()))).as_bytes());
    out
}

/// An event's bytes with the sequence, checksum and link that belong where it stands.
fn event(mut bytes: Vec<u8>, tree: &Frontier, link: &ChainLink) -> Option<(Vec<u8>, ChainLink)> {
    let content = bytes.len().checked_sub(36).filter(|content| *content >= 18)?;
    bytes.truncate(content);
    bytes[10..18].copy_from_slice(&(tree.count() + 1).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    let next = link.then(&bytes);
    bytes.extend_from_slice(&next.0);
    Some((bytes, next))
}

fn leaf(rest: &str, sequence: u64) -> Option<Leaf> {
    let mut fields = rest.splitn(6, ' ');
    let recorded_at = Timestamp(fields.next()?.parse().ok()?);
    let kind_version = KindVersion { kind: fields.next()?.parse().ok()?, version: fields.next()?.parse().ok()? };
    let actor: ActorId = fields.next()?.parse().ok()?;
    let mut link = [0; 32];
    hex::decode_to_slice(fields.next()?, &mut link).ok()?;
    Some(Leaf { sequence, recorded_at, kind_version, actor, key: fields.next()?.to_owned(), link: ChainLink(link) })
}
