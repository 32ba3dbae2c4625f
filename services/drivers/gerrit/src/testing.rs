//! What the tests of several modules need.

use std::time::Duration;

use url::Url;

use crate::config::{GerritConfig, Limits, SshConfig};

/// A connection that leads nowhere.
pub(crate) fn config(base: &str) -> GerritConfig {
    GerritConfig {
        base_url: Url::parse(base).unwrap(),
        canonical_hostname: "review.example.com".to_owned(),
        user: "ci".to_owned(),
        password_file: "/nonexistent".into(),
        ssh: SshConfig {
            host: "review.example.com".to_owned(),
            port: 29418,
            key: "/nonexistent".into(),
            known_hosts: "/nonexistent".into(),
            keepalive_s: 60,
        },
        git_over_ssh: false,
        replication_delay: Duration::ZERO,
        limits: Limits::default(),
    }
}

/// A change as the REST interface tells it, with what is seldom: a rename, a label that demands a vote, two requirements
/// that are not met.
pub(crate) fn change_json() -> serde_json::Value {
    let commit = "8cd64d7d13e3b1f2b56b516e0cec7d921f0cd6c0";
    let account = |number: u64, name: &str| serde_json::json!({"_account_id": number, "name": name, "username": name});
    let vote = |number: u64, name: &str, value: i64| serde_json::json!({"_account_id": number, "username": name, "value": value, "date": "2026-11-27 18:31:23.000000000"});
    let demands = |name: &str, status: &str, expression: &str| {
        serde_json::json!({"name": name, "status": status, "is_legacy": false,
            "submittability_expression_result": {"expression": expression}})
    };
    serde_json::json!({
        "project": "acme/lib", "branch": "master", "_number": 7, "change_id": "I8cd64d7d13e3b1f2b56b516e0cec7d921f0cd6c0",
        "status": "NEW", "updated": "2026-11-27 18:31:24.000000000", "topic": "", "hashtags": ["urgent"],
        "owner": account(3, "dev"), "meta_rev_id": "a6ab92cb7a5a734086b9d0d1d3dfdf593e5ef953",
        "current_revision": commit, "submit_type": "MERGE_IF_NECESSARY",
        "revisions": {commit: {"_number": 2, "ref": "refs/changes/07/7/2",
            "commit": {"parents": [{"commit": "fa02fc1e2787ae6dfa52720393ef12ad306c434d"}], "message": "Seven\n"},
            "files": {"a.txt": {}, "new.txt": {"status": "R", "old_path": "old.txt"}}}},
        "labels": {
            "Code-Review": {"approved": account(4, "core"), "all": [vote(4, "core", 2), vote(5, "ci", 0)]},
            "Verified": {"all": [vote(5, "ci", -1)]},
            "Workflow": {"optional": true},
        },
        "submit_requirements": [
            demands("Code-Review", "SATISFIED", "label:Code-Review=MAX"),
            demands("Verified", "UNSATISFIED", "label:\"Verified=MAX\" AND -label:Verified=MIN"),
            demands("Docs", "UNSATISFIED", "label:Verified-Docs=MAX"),
        ],
    })
}
