//! Explanations for the story.

use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_record::codec;
use gatelog_record::draft::gate::FreezeOutcome;
use gatelog_record::event::GateEvent;
use gatelog_rules_config::{
    ConfigFile, FreezeOptions, FreezeSubject, FreezeTrace, LoadInput, TenantProject, TenantSettings, freeze, load,
};

use crate::story::EVIL;

const CONFIG: &str = "
- pipeline: {name: gate, manager: dependent}
- job: {name: base, parent: null, run: base.yaml, attempts: 2}
- job: {name: unit, attempts: 1}
- job: {name: lint}
- job: {name: not-there, branches: other}
- project: {name: library, gate: {jobs: [unit, lint, not-there]}}
";

fn trace() -> FreezeTrace {
    let project = |name: &str, trusted| TenantProject {
        canonical_name: format!("forge.example/{name}"),
        branches: vec!["master".into()],
        ..TenantProject::new("forge", name, trusted)
    };
    let file = ConfigFile {
        project: "forge.example/config".into(),
        branch: "master".into(),
        path: "zuul.yaml".into(),
        text: CONFIG.into(),
    };
    let projects = vec![project("config", true), project("library", false)];
    let tenant = TenantSettings { projects, ..TenantSettings::default() };
    let (layout, problems) = load(&LoadInput { tenant, files: vec![file] });
    assert!(problems.is_empty(), "{problems:?}");
    let subject = FreezeSubject {
        project: "forge.example/library".into(),
        branch: Some("master".into()),
        ..FreezeSubject::default()
    };
    let mut trace = freeze(&layout, &subject, "gate", FreezeOptions::default()).trace().clone();
    for job in trace.jobs.iter_mut().filter(|job| job.name != "lint") {
        job.reason = format!("{}: {EVIL}", job.reason);
    }
    trace
}

/// The story's events with an explanation that is there.
pub fn explained(mut events: Vec<GateEvent>, blobs: &MemoryBlobs) -> Vec<GateEvent> {
    let hash = blobs.put(&codec::encode(&trace()).unwrap()).unwrap();
    for event in &mut events {
        if let GateEvent::Frozen(frozen) = event
            && let FreezeOutcome::Frozen { trace, .. } = &mut frozen.done.outcome
        {
            *trace = hash;
        }
    }
    events
}
