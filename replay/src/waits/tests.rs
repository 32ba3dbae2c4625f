use std::collections::BTreeSet;

use gatelog_record::draft::gate::WaitCode;

use super::*;

/// Every word of the rules, and what each is told as.
const WORDS: &[WaitCode] = &[
    WaitCode::ChangeFacts,
    WaitCode::TriggerAhead,
    WaitCode::ConfigFiles,
    WaitCode::Layout,
    WaitCode::Window,
    WaitCode::Prepare,
    WaitCode::Freeze,
    WaitCode::Jobs,
    WaitCode::ItemAhead,
    WaitCode::NeededFailing,
    WaitCode::JobDependency,
    WaitCode::Semaphore,
    WaitCode::Lease,
    WaitCode::Running,
    WaitCode::Submit,
    WaitCode::Report,
    WaitCode::NotLive,
    WaitCode::HoldFollowing,
    WaitCode::Artifact,
    WaitCode::Paused,
];

#[test]
fn every_word_of_the_rules_and_of_capacity_has_a_reason_of_its_own() {
    for code in WORDS {
        assert_eq!(by_word(code.word()).code, code.word());
    }
    // The last of the list: a word that is new must be added here.
    assert_eq!(WORDS.iter().max(), WORDS.last());
    assert_eq!(WORDS.len(), WORDS.iter().map(|code| code.word()).collect::<BTreeSet<_>>().len());
    for word in ["no-worker", "no-slot", "semaphore", "fair-share"] {
        assert_eq!(by_word(word).code, word);
    }
    assert_eq!(by_word("of-tomorrow").code, "other");
}

#[test]
fn codes_are_there_once_and_what_holds_up_has_a_cure() {
    let codes: BTreeSet<&str> = REASONS.iter().map(|reason| reason.code).collect();
    assert_eq!(codes.len(), REASONS.len());
    for reason in REASONS {
        assert!(!reason.means.is_empty() && !reason.ends_when.is_empty(), "{}", reason.code);
        assert!(reason.standing != Standing::HeldUp || !reason.cure.is_empty(), "{}", reason.code);
    }
}

#[test]
fn the_manual_has_the_table_of_reasons() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operators.md");
    let manual = std::fs::read_to_string(file).unwrap();
    let mut table = String::from("| reason | | what it means | ends when | cure |\n|---|---|---|---|---|\n");
    for one in REASONS {
        let cure = if one.cure.is_empty() { "–" } else { one.cure };
        let standing = one.standing.word();
        table.push_str(&format!("| `{}` | {standing} | {} | {} | {cure} |\n", one.code, one.means, one.ends_when));
    }
    assert!(manual.contains(&table), "docs/operators.md, \"What waits, and why\", must hold this table:\n{table}");
}
