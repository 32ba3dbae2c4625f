//! The `zuul` variable: what a job may know about itself (Zuul: "job variables").

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine;

use crate::jobdir::JobDir;
use crate::playbooks::{Places, PlaybookInPlace};
use crate::roles::RoleInPlace;
use crate::spec::{BuildSpec, Phase, ProjectName, RefSpec, VarsFile, WorkspaceCheckout};
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
    if item.change.is_some() {
        // Zuul: there also where the code review system knows no topics.
        let topic = foreign(item.topic.as_ref()).unwrap_or(Yaml::Value(Value::Null));
        entries.push(("topic".into(), topic));
    }
    put(&mut entries, "oldrev", text(item.old_commit.as_ref()));
    put(&mut entries, "newrev", text(item.new_commit.as_ref()));
    put(&mut entries, "commit_id", text(item.commit_id.as_ref()));
    put(&mut entries, "bundle_id", text(item.bundle_id.as_ref()));
    entries
}

fn seconds(seconds: Option<u32>) -> Yaml {
    Yaml::Value(seconds.map_or(Value::Null, |seconds| Value::Int(i64::from(seconds))))
}

/// What the executor adds to what a job is told.
#[derive(Clone, Copy)]
pub(crate) struct Executing<'a> {
    /// The build's directory.
    pub(crate) job_dir: &'a JobDir,
    /// This host's name.
    pub(crate) hostname: &'a str,
    /// The playbooks.
    pub(crate) playbooks: &'a [PlaybookInPlace],
    /// The repositories they and their roles lie in.
    pub(crate) places: &'a Places,
}

/// The whole variable.
pub(crate) fn zuul(spec: &BuildSpec, executing: Executing<'_>) -> Yaml {
    let Executing { job_dir, hostname, playbooks, places } = executing;
    let truth = |truth: bool| Yaml::Value(Value::Bool(truth));
    let number = |number: u32| Yaml::Value(Value::Int(i64::from(number)));
    let mut entries: Entries = vec![
        ("build".into(), Yaml::text(spec.build.to_string())),
        ("buildset".into(), Yaml::text(spec.buildset.to_string())),
        ("event_id".into(), spec.event_id.as_ref().map_or(Yaml::Value(Value::Null), Yaml::text)),
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
        ("ansible_version".into(), Yaml::text(&spec.job.ansible_version)),
        ("deduplicate".into(), spec.job.deduplicate.map_or(Yaml::text("auto"), truth)),
        ("workspace_checkout".into(), workspace_checkout(spec.job.workspace_checkout)),
        ("image_build_name".into(), text(spec.job.image_build_name.as_ref()).unwrap_or(Yaml::Value(Value::Null))),
        ("include_vars".into(), Yaml::List(spec.include_vars.iter().map(vars_file).collect())),
        ("ref".into(), Yaml::text(&spec.item.ref_name)),
        // Zuul: what the nodes of kubectl connections are; there are none here.
        ("resources".into(), Yaml::Map(Vec::new())),
    ];
    put(&mut entries, "override_checkout", text(spec.job.override_checkout.as_ref()));
    entries.extend(ref_entries(spec, &spec.item));
    let encoded = spec.item.message.as_ref().map(|text| base64::engine::general_purpose::STANDARD.encode(text));
    put(&mut entries, "message", encoded.map(Yaml::text));
    let items = spec.items.iter().map(|item| Yaml::Map(ref_entries(spec, item))).collect();
    entries.push(("items".into(), Yaml::List(items)));
    entries.push(("build_refs".into(), refs(spec, &spec.build_refs)));
    entries.push(("buildset_refs".into(), refs(spec, &spec.buildset_refs)));
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
    entries.push(("playbook_context".into(), playbook_context(job_dir.root(), playbooks, places)));
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

/// The refs of an item. Zuul: these have `src_dir` also beside their project.
fn refs(spec: &BuildSpec, refs: &[RefSpec]) -> Yaml {
    let one = |item: &RefSpec| {
        let mut entries = ref_entries(spec, item);
        entries.push(("src_dir".into(), Yaml::text(item.project.src_dir(spec.job.workspace_scheme))));
        Yaml::Map(entries)
    };
    Yaml::List(refs.iter().map(one).collect())
}

fn workspace_checkout(wanted: WorkspaceCheckout) -> Yaml {
    match wanted {
        WorkspaceCheckout::Always => Yaml::Value(Value::Bool(true)),
        WorkspaceCheckout::Never => Yaml::Value(Value::Bool(false)),
        WorkspaceCheckout::Auto => Yaml::text("auto"),
    }
}

fn vars_file(file: &VarsFile) -> Yaml {
    let truth = |truth: bool| Yaml::Value(Value::Bool(truth));
    Yaml::Map(vec![
        ("name".into(), Yaml::text(&file.path)),
        ("connection".into(), Yaml::text(&file.connection)),
        ("project".into(), Yaml::text(&file.checkout.project.name)),
        ("project_default_branch".into(), Yaml::text(&file.default_branch)),
        ("trusted".into(), truth(file.trusted)),
        ("required".into(), truth(file.required)),
        ("use_ref".into(), truth(file.use_ref)),
    ])
}

/// Zuul: all paths are relative to the build's directory.
fn playbook_context(root: &Path, playbooks: &[PlaybookInPlace], places: &Places) -> Yaml {
    let relative = |place: &Path| path(place.strip_prefix(root).unwrap_or(place));
    let projects: BTreeMap<String, Yaml> = places
        .iter()
        .map(|((_, checkout), place)| {
            let entry = vec![
                ("canonical_name".into(), Yaml::text(checkout.project.canonical_name())),
                ("checkout".into(), Yaml::text(&checkout.name)),
                ("commit".into(), Yaml::text(&checkout.commit)),
            ];
            let place = place.strip_prefix(root).unwrap_or(place).to_string_lossy().into_owned();
            (place, Yaml::Map(entry))
        })
        .collect();
    let role = |role: &RoleInPlace| {
        let place = role.path.as_deref()?;
        Some(Yaml::Map(vec![
            ("link_name".into(), relative(&role.link)),
            ("link_target".into(), relative(&role.repository)),
            ("role_path".into(), relative(place)),
            ("checkout_description".into(), Yaml::text(&role.spec.checkout_description)),
            ("checkout".into(), Yaml::text(&role.spec.checkout.name)),
        ]))
    };
    let of = |phase: Phase| {
        let those = playbooks.iter().filter(|playbook| playbook.spec.phase == phase);
        let one = |playbook: &PlaybookInPlace| {
            let roles = playbook.roles.iter().filter_map(role).collect();
            Yaml::Map(vec![("path".into(), relative(&playbook.file)), ("roles".into(), Yaml::List(roles))])
        };
        Yaml::List(those.map(one).collect())
    };
    Yaml::Map(vec![
        ("playbook_projects".into(), Yaml::Map(projects.into_iter().collect())),
        ("pre_playbooks".into(), of(Phase::Pre)),
        ("playbooks".into(), of(Phase::Run)),
        ("post_playbooks".into(), of(Phase::Post)),
    ])
}
