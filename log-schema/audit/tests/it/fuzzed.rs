//! The corpus of the fuzz target `export`, and inputs made of it; docs/fuzzing.md.

use gatelog_audit::{Frontier, PublicKey, Selection, SignedCheckpoint, Signing, export};
use gatelog_event_log::Log;

use crate::desk::{SITE, all, events, log, of_tenant, published, story};

#[path = "../../../../tests/fuzz/bodies/export.rs"]
mod bodies;
#[path = "../../../../tests/fuzz/corpus.rs"]
mod corpus;

/// The fuzzer bounds memory; here it is as it is.
fn within<T>(_most: usize, read: impl FnOnce() -> T) -> T {
    read()
}

#[test]
fn whatever_is_read_as_an_export_is_all_that_was_signed_or_refused_at_its_line() {
    if corpus::seeds_wanted() {
        seeds();
    }
    corpus::play("export", 5_000, bodies::export);
}

fn exported(log: &dyn Log, selection: &Selection, published: &[SignedCheckpoint]) -> Vec<u8> {
    let key = PublicKey(b"a key".to_vec());
    let sign = |message: &[u8]| Ok(bodies::sign(&key, message));
    let signing = Signing { site: SITE, generation: 1, key: key.clone(), sign: &sign };
    let mut text = Vec::new();
    export(log, &signing, selection, published, &mut |piece| {
        text.extend_from_slice(piece.as_bytes());
        Ok(())
    })
    .unwrap();
    text
}

fn seeds() {
    let log = log(&story(12));
    let asked = [
        ("all", all(), vec![]),
        ("tenant", of_tenant("tools"), vec![]),
        ("range", events(5, 8), vec![]),
        ("published", events(5, 8), vec![published(&log, 6)]),
        ("project", Selection { project: Some("git.example.org/app".to_owned()), ..all() }, vec![]),
    ];
    for (name, selection, published) in &asked {
        let text = exported(&log, selection, published);
        corpus::seed("export", name, &[&[0], &text]);
        corpus::seed("export", &format!("{name}-forged"), &[&[1], &text]);
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        // Each line alone at its place, and all but each.
        for at in (0..lines.len()).step_by(7) {
            let without = [&lines[..at], &lines[at + 1..]].concat().concat();
            corpus::seed("export", &format!("{name}-without-{at:02}"), &[&[1], &without]);
        }
        corpus::seed("export", &format!("{name}-head"), &[&[1], &lines[..6].concat()]);
    }
    let head = exported(&log, &all(), &[]);
    let head: Vec<u8> = head.split_inclusive(|byte| *byte == b'\n').take(6).flatten().copied().collect();
    let zeros = "0".repeat(64);
    for (name, lines) in [
        ("skip-top", format!("partition gate/0\nskip 62 {zeros}\nskip 62 {zeros}\nskip 0 {zeros}\n")),
        ("skip-high", format!("partition gate/0\nskip 63 {zeros}\nskip 4294967295 {zeros}\n")),
        ("skip-unaligned", format!("partition gate/0\nskip 0 {zeros}\nskip 1 {zeros}\n")),
        ("partition-far", "partition gate/4294967295\npartition gate/4294967296\n".to_owned()),
        ("leaf-early", format!("partition gate/0\nleaf -9223372036854775808 65535 65535 {} {zeros} \n", &zeros[..32])),
        ("leaf-short", "partition gate/0\nleaf 1 2 3\n".to_owned()),
        ("event-none", "partition gate/0\nevent \nevent ====\nevent R0UB\n".to_owned()),
        ("event-first", format!("event R0UB\nskip 0 {zeros}\n")),
        ("asked-twice", "tenant a\ntenant b\nactor x\nproject p\ntenant c\n".to_owned()),
        ("no-words", "partition\nskip\nleaf\nevent\ncheckpoint\n".to_owned()),
    ] {
        corpus::seed("export", &format!("nasty-{name}"), &[&[1], &head, lines.as_bytes()]);
    }
    let mut signed = published(&log, 6);
    corpus::seed("export", "checkpoint", &[&[2], &signed.encode()]);
    signed.checkpoint.tree = Frontier::of(u64::MAX >> 2, vec![[7; 32]; 62]).unwrap_or_default();
    signed.signature = Vec::new();
    corpus::seed("export", "nasty-checkpoint-full", &[&[2], &signed.encode()]);
    let text = String::from_utf8(signed.encode()).unwrap();
    corpus::seed("export", "nasty-checkpoint-plus", &[&[2], text.replace("generation 1", "generation +1").as_bytes()]);
    corpus::seed("export", "nasty-checkpoint-long", &[&[2], &vec![b'g'; 20_000]]);
}
