//! Explanations for the story.

use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_record::codec;
use gatelog_record::draft::gate::FreezeOutcome;
use gatelog_record::event::GateEvent;
use gatelog_rules_config::freeze::trace::{Action, AttributeStep, FreezeTrace, JobFate, JobTrace, Look};
use gatelog_rules_config::{Place, Shared, SourceContext};

use crate::story::EVIL;

fn place(line: u32) -> Place {
    let context = SourceContext {
        project: "forge.example/config".into(),
        branch: "master".into(),
        path: "zuul.yaml".into(),
        trusted: true,
    };
    Place { context: Shared::new(context), line, column: 3 }
}

fn look(what: &str, matched: bool, code: &str, path: &[&str]) -> Look {
    Look {
        what: what.into(),
        place: place(7),
        matched,
        code: code.into(),
        reason: format!("it says {EVIL}"),
        path: path.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn trace() -> FreezeTrace {
    let step = |action, before| AttributeStep {
        attribute: "parent".into(),
        place: place(20),
        action,
        value: "\"base\"".into(),
        before,
        reason: String::new(),
    };
    let unit = JobTrace {
        name: "unit".into(),
        fate: JobFate::Runs,
        code: "asked-for".into(),
        reason: "it is asked for".into(),
        looks: vec![
            look("job unit", true, "branch-matched", &["unit"]),
            look("job base", true, "no-matcher", &["unit", "base"]),
        ],
        applied: vec![look("job base", true, "no-matcher", &["unit", "base"])],
        attributes: vec![step(Action::Set, None), step(Action::Replaced, Some(place(9)))],
        files: vec![look("files", false, "no-file-matched", &[])],
    };
    let absent = JobTrace {
        name: "not-there".into(),
        fate: JobFate::Absent,
        code: "no-definition".into(),
        reason: EVIL.into(),
        looks: vec![],
        applied: vec![],
        attributes: vec![],
        files: vec![],
    };
    let lint = JobTrace { name: "lint".into(), ..unit.clone() };
    FreezeTrace {
        project: "forge.example/library".into(),
        branch: "master".into(),
        pipeline: "gate".into(),
        stanzas: vec![look("project stanza", true, "project-matched", &[])],
        jobs: vec![unit, lint, absent],
    }
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
