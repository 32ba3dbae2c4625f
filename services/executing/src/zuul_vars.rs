//! The `zuul` variable: what a job may know about itself (Zuul: "job variables").

use std::path::Path;

use base64::Engine;

use crate::jobdir::JobDir;
use crate::playbooks::PlaybookInPlace;
use crate::spec::{BuildSpec, Phase, ProjectName, RefSpec};
use crate::yaml::Yaml;
use gatelog_record::Value;

/// Entries of a YAML map.
type Entries = Vec<(String, Yaml)>;

/// Puts the entry there if there is a value.
fn put(entries: &mut Entries, name: &str, value: Option<Yaml>) {
    if let Some(value) = value {
        entries.push((name.into(), value));
    }
}

fn text(value: Option<&String>) -> Option<Yaml> {
    value.map(Yaml::text)
}

/// Text that people wrote: never a template.
fn foreign(value: Option<&String>) -> Option<Yaml> {
    value.map(|value| Yaml::Unsafe(value.clone()))
}

fn path(path: &Path) -> Yaml {
    Yaml::text(path.to_string_lossy())
}

fn project(spec: &BuildSpec, name: &ProjectName) -> Entries {
    vec![
        ("name".into(), Yaml::text(&name.name)),
        ("short_name".into(), Yaml::text(name.short_name())),
        ("canonical_hostname".into(), Yaml::text(&name.canonical_hostname)),
        ("canonical_name".into(), Yaml::text(name.canonical_name())),
        ("src_dir".into(), Yaml::text(name.src_dir(spec.job.workspace_scheme))),
    ]
}

/// What is said of a ref wherever it is mentioned.
fn ref_entries(spec: &BuildSpec, item: &RefSpec) -> Entries {
    let mut entries = vec![("project".into(), Yaml::Map(project(spec, &item.project)))];
    put(&mut entries, "branch", text(item.branch.as_ref()));
    put(&mut entries, "tag", text(item.tag.as_ref()));
    put(&mut entries, "change", text(item.change.as_ref()));
    put(&mut entries, "patchset", text(item.patchset.as_ref()));
    put(&mut entries, "change_url", foreign(item.change_url.as_ref()));
    put(&mut entries, "change_message", foreign(item.message.as_ref()));
    put(&mut entries, "topic", foreign(item.topic.as_ref()));
    put(&mut entries, "oldrev", text(item.old_commit.as_ref()));
    put(&mut entries, "newrev", text(item.new_commit.as_ref()));
    put(&mut entries, "commit_id", text(item.commit_id.as_ref()));
    put(&mut entries, "bundle_id", text(item.bundle_id.as_ref()));
    entries
}

fn seconds(seconds: Option<u32>) -> Yaml {
    Yaml::Value(seconds.map_or(Value::Null, |seconds| Value::Int(i64::from(seconds))))
}

/// The whole variable.
pub(crate) fn zuul(spec: &BuildSpec, job_dir: &JobDir, hostname: &str, playbooks: &[PlaybookInPlace]) -> Yaml {
    let truth = |truth: bool| Yaml::Value(Value::Bool(truth));
    let number = |number: u32| Yaml::Value(Value::Int(i64::from(number)));
    let mut entries: Entries = vec![
        ("build".into(), Yaml::text(spec.build.to_string())),
        ("buildset".into(), Yaml::text(spec.buildset.to_string())),
        ("event_id".into(), Yaml::text(&spec.event_id)),
        ("tenant".into(), Yaml::text(&spec.tenant)),
        ("pipeline".into(), Yaml::text(&spec.pipeline.name)),
        ("post_review".into(), truth(spec.pipeline.post_review)),
        ("job".into(), Yaml::text(&spec.job.name)),
        ("voting".into(), truth(spec.job.voting)),
        ("attempts".into(), number(spec.attempt)),
        ("max_attempts".into(), number(spec.max_attempts)),
        ("timeout".into(), seconds(spec.job.timeouts.run)),
        ("pre_timeout".into(), seconds(spec.job.timeouts.pre)),
        ("post_timeout".into(), seconds(spec.job.timeouts.post)),
        ("jobtags".into(), Yaml::texts(&spec.job.tags)),
        ("_inheritance_path".into(), Yaml::texts(&spec.job.inheritance_path)),
        ("child_jobs".into(), Yaml::texts(&spec.job.child_jobs)),
        ("ref".into(), Yaml::text(&spec.item.ref_name)),
    ];
    put(&mut entries, "override_checkout", text(spec.job.override_checkout.as_ref()));
    entries.extend(ref_entries(spec, &spec.item));
    let encoded = spec.item.message.as_ref().map(|text| base64::engine::general_purpose::STANDARD.encode(text));
    put(&mut entries, "message", encoded.map(Yaml::text));
    let items = spec.items.iter().map(|item| Yaml::Map(ref_entries(spec, item))).collect();
    entries.push(("items".into(), Yaml::List(items)));
    entries.push(("build_refs".into(), Yaml::List(vec![Yaml::Map(ref_entries(spec, &spec.item))])));
    if !spec.artifacts.is_empty() {
        let artifacts = spec.artifacts.iter().cloned().map(Yaml::Value).collect();
        entries.push(("artifacts".into(), Yaml::List(artifacts)));
    }
    let projects = spec.projects.iter().map(|workspace| {
        let mut entries = project(spec, &workspace.checkout.project);
        entries.push(("required".into(), truth(workspace.required)));
        entries.push(("checkout".into(), Yaml::text(&workspace.checkout.name)));
        entries.push(("checkout_description".into(), Yaml::text(&workspace.checkout_description)));
        entries.push(("commit".into(), Yaml::text(&workspace.checkout.commit)));
        (workspace.checkout.project.canonical_name(), Yaml::Map(entries))
    });
    entries.push(("projects".into(), Yaml::Map(projects.collect())));
    entries.push(("playbook_context".into(), playbook_context(playbooks)));
    let executor = vec![
        ("hostname".into(), Yaml::text(hostname)),
        ("src_root".into(), path(&job_dir.work().join("src"))),
        ("log_root".into(), path(&job_dir.logs())),
        ("work_root".into(), path(&job_dir.work())),
        ("result_data_file".into(), path(&job_dir.results())),
        ("inventory_file".into(), path(&job_dir.inventory())),
    ];
    entries.push(("executor".into(), Yaml::Map(executor)));
    Yaml::Map(entries)
}

fn playbook_context(playbooks: &[PlaybookInPlace]) -> Yaml {
    let mut projects: Entries = Vec::new();
    for playbook in playbooks {
        let place = playbook.repository.to_string_lossy().into_owned();
        if projects.iter().all(|(known, _)| *known != place) {
            let checkout = &playbook.spec.checkout;
            let entry = vec![
                ("canonical_name".into(), Yaml::text(checkout.project.canonical_name())),
                ("checkout".into(), Yaml::text(&checkout.name)),
                ("commit".into(), Yaml::text(&checkout.commit)),
            ];
            projects.push((place, Yaml::Map(entry)));
        }
    }
    let of = |phase: Phase| {
        let those = playbooks.iter().filter(|playbook| playbook.spec.phase == phase);
        Yaml::List(those.map(|playbook| Yaml::Map(vec![("path".into(), path(&playbook.file))])).collect())
    };
    Yaml::Map(vec![
        ("playbook_projects".into(), Yaml::Map(projects)),
        ("pre_playbooks".into(), of(Phase::Pre)),
        ("playbooks".into(), of(Phase::Run)),
        ("post_playbooks".into(), of(Phase::Post)),
    ])
}
