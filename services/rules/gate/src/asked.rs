//! What the tests of filters and requirements begin with.

use gatelog_record::draft::gate::{ChangeFacts, Subject};
use gatelog_record::{ActorId, Value};
use gatelog_rules_config::{ConfigFile, LoadInput, Pipeline, TenantProject, TenantSettings, load};

/// A pipeline as somebody would write it.
pub(crate) fn pipeline(text: &str) -> Pipeline {
    let mut tenant = TenantSettings { name: "acme".into(), ..TenantSettings::default() };
    let mut project = TenantProject::new("git", "config", true);
    project.branches = vec!["master".into()];
    let (at, path) = (project.canonical_name.clone(), "zuul.yaml".to_owned());
    tenant.projects.push(project);
    let text = format!("- pipeline: {{name: one, manager: dependent, {text}}}");
    let file = ConfigFile { project: at, branch: "master".into(), path, text: text.clone() };
    let (layout, problems) = load(&LoadInput { tenant, files: vec![file] });
    assert!(problems.is_empty(), "{text}: {problems:?}");
    let found = layout.pipelines.get("one").unwrap();
    Pipeline::clone(found)
}

/// A value as somebody would write it.
pub(crate) fn value(text: &str) -> Value {
    let pipeline = pipeline(&format!("require: {{git: {{it: {text}}}}}"));
    pipeline.require.get("git").and_then(Value::as_map).and_then(|map| map.get("it")).cloned().unwrap()
}

/// A change that is open and approved.
pub(crate) fn facts() -> ChangeFacts {
    ChangeFacts {
        subject: Subject {
            connection: "git".into(),
            project: "forge/lib".into(),
            branch: Some("master".into()),
            git_ref: "refs/changes/1".into(),
            change: Some("1".into()),
            patchset: Some("1".into()),
            commit: None,
            old_commit: None,
            url: "https://forge/1".into(),
        },
        open: true,
        merged: false,
        approved: true,
        approvals: value(
            "[{label: Verified, value: 1, username: jane, email: jane@example.org, granted-on: 6400}, \
             {label: Code-Review, value: 2, username: john}, {label: Mood, value: good}]",
        ),
        cannot_merge: None,
        parents: Vec::new(),
        depends_on: Vec::new(),
        needs: Vec::new(),
        needed_by: Vec::new(),
        files: None,
        owner: ActorId::SYSTEM,
        owner_identity: None,
        text: None,
        attributes: value(
            "{status: NEW, wip: false, draft: true, hashtags: [urgent, calm], labels: [gate, ready], tags: fine, \
             score: 2, reviews: [{type: approved, username: jane, email: jane@example.org, permission: write, \
             granted-on: 6400}, {type: changes_requested, username: john}]}",
        ),
    }
}

/// Nothing is said where something is taken; otherwise the reason holds these words.
pub(crate) fn check(what: &str, said: Result<(), String>, words: &str) {
    match said {
        Ok(()) => assert_eq!(words, "", "{what} is taken"),
        Err(why) => assert!(!words.is_empty() && why.contains(words), "{what}: {why}"),
    }
}
