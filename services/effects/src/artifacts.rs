//! Artifacts that a build is told of: those of the jobs it waits for, and those it requires of changes ahead.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use gatelog_gate_state::Gate;
use gatelog_gate_state::history::{BuildEntry, List};
use gatelog_gate_state::live::{BuildRow, BuildState, ItemRow, subject_name};
use gatelog_record::draft::gate::{Artifact, BuildResult, Subject};
use gatelog_record::{BlobHash, BuildId, ItemId, Value};
use gatelog_store::View;
use gatelog_tables::Table;

use crate::returned::FromBuild;

/// How many of a change's builds are looked through for those of its last buildset.
const LOOKED_THROUGH: usize = 500;

/// What another build left behind.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The build, without data.
    pub from: FromBuild,
    /// What the build's worker was told, where only that says which artifacts the job provides.
    pub spec: Option<BlobHash>,
}

/// What is told of an artifact: also whose it is. Zuul: `zuul.artifacts`.
pub(crate) fn told(artifact: &Artifact, job: &str, subject: Option<&Subject>) -> Value {
    let mut told = BTreeMap::new();
    let mut put = |name: &str, value: Option<Value>| told.extend(value.map(|value| (name.to_owned(), value)));
    let text = |text: &Option<String>| text.clone().map(Value::Str);
    put("name", Some(Value::Str(artifact.name.clone())));
    put("url", Some(Value::Str(artifact.url.clone())));
    put("metadata", (artifact.metadata != Value::Null).then(|| artifact.metadata.clone()));
    put("job", Some(Value::from(job)));
    if let Some(subject) = subject {
        // The name on its host; a host has no slash.
        let name = subject.project.split_once('/').map_or(subject.project.as_str(), |(_, name)| name);
        put("project", Some(Value::from(name)));
        put("branch", text(&subject.branch));
        put("change", text(&subject.change));
        put("patchset", text(&subject.patchset));
        if subject.branch.is_none() {
            put("ref", Some(Value::from(subject.git_ref.as_str())));
            put("oldrev", text(&subject.old_commit));
            put("newrev", text(&subject.commit));
            put("tag", subject.git_ref.strip_prefix("refs/tags/").map(Value::from));
        }
    }
    Value::Map(told)
}

/// The ref of its item that a build is for: the first, where it serves several.
pub(crate) fn subject<'i>(item: &'i ItemRow, row: &BuildRow) -> Option<&'i Subject> {
    let first = row.job.traits.changes.first().copied().unwrap_or_default();
    item.subjects.get(first as usize)
}

/// The artifacts a build requires, of the changes ahead and of its own, oldest first. Zuul: of an item that is in its
/// pipeline those of its newest buildset; of a change that is only depended on, where it is in the pipeline itself, the
/// same, and otherwise those of its last buildset in that pipeline.
pub(crate) fn required(view: &View<Gate>, own: &BuildRow) -> Vec<Found> {
    let requires: BTreeSet<&str> = own.job.traits.requires.iter().map(String::as_str).collect();
    let gate = &view.live().gate;
    let Some(steps) = gate.chains.get(&own.buildset).ok().flatten().filter(|_| !requires.is_empty()) else {
        return Vec::new();
    };
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for step in steps.iter().filter(|step| seen.insert(step.item)) {
        // One that left was merged.
        let Some(item) = gate.items.get(&step.item).ok().flatten() else { continue };
        if item.live {
            found.extend(of_item(view, step.item, &requires));
        } else if let Some(other) = live_twin(view, &item) {
            found.extend(of_item(view, other, &requires));
        } else {
            found.extend(of_past(view, &item));
        }
    }
    found
}

/// Artifacts of an item that is in its pipeline.
fn of_item(view: &View<Gate>, item: ItemId, requires: &BTreeSet<&str>) -> Vec<Found> {
    let gate = &view.live().gate;
    let Some(row) = gate.items.get(&item).ok().flatten() else { return Vec::new() };
    let set = row.buildset.and_then(|set| gate.buildsets.get(&set).ok().flatten());
    let mut found = Vec::new();
    for build in set.iter().flat_map(|set| &set.builds) {
        let Some(made) = gate.builds.get(build).ok().flatten() else { continue };
        let provides = made.job.traits.provides.iter().any(|artifact| requires.contains(artifact.as_str()));
        let done = made.state == BuildState::Done && made.result == Some(BuildResult::Success);
        let Some(subject) = subject(&row, &made).filter(|subject| subject.change.is_some()) else { continue };
        if provides && (done || made.paused) {
            found.extend(left_by(view, *build, &made.job.name, subject).map(|from| Found { from, spec: None }));
        }
    }
    found
}

/// The live item of the same changes in the same pipeline.
fn live_twin(view: &View<Gate>, item: &ItemRow) -> Option<ItemId> {
    let gate = &view.live().gate;
    let subject = item.subjects.first()?;
    let key = |at: u8| (item.tenant.clone(), subject.project.clone(), subject_name(subject), ItemId([at; 16]));
    let rows = gate.items_by_change.range(Bound::Included(&key(0)), Bound::Included(&key(0xff))).ok()?;
    rows.filter_map(Result::ok).map(|((.., other), _)| other).find(|other| {
        let other = gate.items.get(other).ok().flatten();
        other.is_some_and(|other| {
            let same = |one: &Subject| item.subjects.iter().any(|own| own == one);
            other.live
                && other.pipeline == item.pipeline
                && other.subjects.len() == item.subjects.len()
                && other.subjects.iter().all(same)
        })
    })
}

/// Artifacts of the last buildset that a change had in the pipeline; which of them are provided says the spec.
fn of_past(view: &View<Gate>, item: &ItemRow) -> Vec<Found> {
    let (history, at) = (view.temporal(), view.position().sequence);
    for subject in item.subjects.iter().filter(|subject| subject.change.is_some()) {
        let name = subject_name(subject);
        let Ok(builds) = history.newest_builds(&item.tenant, List::Change(&name), at) else { continue };
        let mut last = None;
        let mut found = Vec::new();
        for build in builds.take(LOOKED_THROUGH).filter_map(Result::ok) {
            let Some(entry) = history.build(build, at).ok().flatten() else { continue };
            if entry.pipeline != item.pipeline || !is_for(view, &entry, subject) {
                continue;
            }
            if *last.get_or_insert(entry.buildset) != entry.buildset {
                break;
            }
            if entry.result == Some(BuildResult::Success) {
                let left = left_by(view, build, &entry.job, subject);
                found.extend(left.map(|from| Found { from, spec: Some(entry.spec) }));
            }
        }
        if last.is_some() {
            return found;
        }
    }
    Vec::new()
}

fn is_for(view: &View<Gate>, entry: &BuildEntry, subject: &Subject) -> bool {
    let item = view.temporal().item(entry.item, view.position().sequence).ok().flatten();
    item.is_some_and(|item| {
        item.subjects.iter().any(|one| {
            one.project == subject.project && one.change == subject.change && one.patchset == subject.patchset
        })
    })
}

/// What the newest attempt of a build left behind.
fn left_by(view: &View<Gate>, build: BuildId, job: &str, subject: &Subject) -> Option<FromBuild> {
    let entry = view.temporal().build(build, view.position().sequence).ok().flatten()?;
    let from = FromBuild::new(build, job, entry.attempt()?, Some(subject));
    Some(FromBuild { data: Value::Null, secret_data: None, ..from })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_says_whose_it_is() {
        let artifact = Artifact { name: "image".into(), url: "https://logs.test/i".into(), metadata: Value::Null };
        let change = Subject {
            connection: "forge".into(),
            project: "git.test/org/app".into(),
            branch: Some("main".into()),
            git_ref: "refs/changes/01/1/2".into(),
            change: Some("1".into()),
            patchset: Some("2".into()),
            commit: Some("c0ffee".into()),
            old_commit: None,
            url: String::new(),
        };
        let said = told(&artifact, "build-image", Some(&change)).to_json();
        let expected = serde_json::json!({
            "name": "image", "url": "https://logs.test/i", "job": "build-image", "project": "org/app", "branch": "main",
            "change": "1", "patchset": "2",
        });
        assert_eq!(said, expected);
        let tag = Subject { branch: None, change: None, patchset: None, git_ref: "refs/tags/v1".into(), ..change };
        let said = told(&artifact, "release", Some(&tag)).to_json();
        assert_eq!(
            (&said["ref"], &said["tag"], &said["newrev"]),
            (&"refs/tags/v1".into(), &"v1".into(), &"c0ffee".into())
        );
    }
}
