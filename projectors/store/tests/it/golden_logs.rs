//! Logs of older gatelogs fold to the state they always had.
//!
//! `tests/logs/<domain>-<index>.log` are the events of a log that `gatelog demo` wrote, each with its length in four bytes
//! before it; `.digests` beside it says which digest the live tables have after every 25th event, and under which version
//! of their schema. Whoever changes a state's schema writes new digests with `GATELOG_UPDATE_GOLDENS=1`, and commits both;
//! whoever changes nothing of the schema has no business to change a digest. A log stays as it is; a draft shape in it
//! that nobody can read any more is a reason for another log, not for none.

use std::fmt::Write as _;
use std::path::Path;

use gatelog_capacity_state::Capacity;
use gatelog_gate_state::Gate;
use gatelog_record::{BlobHash, ChainLink, Envelope};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{DomainState, LiveTables, Maps, TableSet};

/// The digests of a log, a line each, after the version of the schema.
fn digests<S: DomainState>(mut log: &[u8], mut live: S::Live<Maps>) -> String {
    let mut link = ChainLink::GENESIS;
    let mut told = format!("live schema {}\n", S::LIVE_SCHEMA);
    let mut sequence = 0;
    while let Some((length, rest)) = log.split_first_chunk::<4>() {
        let (bytes, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let (envelope, claimed) = Envelope::decode(bytes).unwrap();
        assert_eq!(Envelope::link_after(bytes, &link), Some(claimed), "the chain of the log");
        (link, log, sequence) = (claimed, rest, envelope.sequence);
        let event = envelope.open().unwrap_or_else(|error| panic!("event {sequence}: {error}"));
        live.apply(&event).unwrap_or_else(|refused| panic!("event {sequence}: {refused}"));
        if sequence % 25 == 0 || log.is_empty() {
            let mut digest = StateDigest::default();
            TableSet::<Maps>::visit(&live, &mut digest).unwrap();
            writeln!(told, "{sequence} {}", BlobHash(digest.finish())).unwrap();
        }
    }
    assert!(sequence > 0, "the log has events");
    told
}

fn check<S: DomainState>(name: &str, live: S::Live<Maps>) {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    let log = std::fs::read(logs.join(format!("{name}.log"))).unwrap();
    let told = digests::<S>(&log, live);
    let path = logs.join(format!("{name}.digests"));
    if std::env::var_os("GATELOG_UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, &told).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    let schema = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    assert_eq!(
        schema(&golden),
        schema(&told),
        "the state's schema changed: GATELOG_UPDATE_GOLDENS=1 writes {}; commit it",
        path.display()
    );
    assert_eq!(golden, told, "an old log of {name} folds to another state under the same schema");
}

#[test]
fn a_log_of_the_gate_folds_to_the_digests_it_always_had() {
    check::<Gate>("gate-0", gatelog_gate_state::GateLive::in_memory());
}

#[test]
fn a_log_of_capacity_folds_to_the_digests_it_always_had() {
    check::<Capacity>("capacity-0", gatelog_capacity_state::CapacityLive::in_memory());
}
