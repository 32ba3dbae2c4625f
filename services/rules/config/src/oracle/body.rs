//! The body of a frozen job.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde_json::{Map, Value as Json, json};

use crate::freeze::graph::{FrozenJob, FrozenNodeset, FrozenRole, Phase, Playbook};
use crate::freeze::trace::FreezeTrace;
use crate::layout::{Layout, LayoutProject};
use crate::objects::job::{JobAttribute, JobDefinition, Parent};
use crate::objects::job_parts::{AttributeValue, Dependency, ProjectFilter, SemaphoreUse};
use crate::regexes::Pattern;
use crate::shared::Shared;

/// Everything about one frozen job.
pub(super) fn body(layout: &Layout, subject: &str, job: &FrozenJob, trace: &FreezeTrace) -> Json {
    let definitions: Vec<Shared<JobDefinition>> =
        trace.job(&job.name).map(|told| trace.applied(told).cloned().collect()).unwrap_or_default();
    let mut body: Map<String, Json> = Map::new();
    let mut put = |name: &str, value: Json| {
        body.insert(name.to_owned(), value);
    };
    put("name", json!(job.name));
    put("variants", definitions.iter().map(|definition| variant(definition)).collect());
    put("ansible_version", json!(job.ansible_version));
    put("ansible_split_streams", json!(job.ansible_split_streams));
    put("attempts", json!(job.attempts));
    put("image_build_name", json!(job.image_build_name));
    put("override_branch", json!(job.override_branch));
    put("override_checkout", json!(job.override_checkout));
    put("pre_timeout", json!(job.pre_timeout));
    put("timeout", json!(job.timeout));
    put("post_timeout", json!(job.post_timeout));
    put("voting", json!(job.voting));
    put("hold_following_changes", json!(job.hold_following_changes));
    put("success_message", json!(job.success_message));
    put("failure_message", json!(job.failure_message));
    put("provides", json!(job.provides));
    put("requires", json!(job.requires));
    put("tags", json!(job.tags));
    put("workspace_scheme", json!(job.workspace_scheme));
    put("workspace_checkout", bool_or_auto(job.workspace_checkout));
    put("deduplicate", bool_or_auto(job.deduplicate));
    put("failure_output", job.failure_output.iter().map(Pattern::regex).collect());
    put("include_vars", job.include_vars.iter().map(|file| include_vars(layout, subject, file)).collect());
    put("type", json!(job.job_type));
    put("secret_exposure", json!(job.secret_exposure));
    put("semaphores", job.semaphores.iter().map(semaphore).collect());
    put("include_projects", filters(job.include_projects.as_deref()));
    put("exclude_projects", filters(job.exclude_projects.as_deref()));
    put("affected_projects", affected(job));
    put("abstract", json!(job.is_abstract));
    put("final", json!(job.is_final));
    put("intermediate", json!(job.intermediate));
    // Zuul: told as the first definition has it, whatever later ones say.
    put("protected", json!(definitions.first().and_then(|first| first.bool(JobAttribute::Protected))));
    put("post_review", if job.post_review { json!(true) } else { Json::Null });
    put("allowed_projects", json!(job.allowed_projects));
    put("ignore_allowed_projects", if job.ignore_allowed_projects { json!(true) } else { Json::Null });
    put("match_on_config_updates", json!(job.match_on_config_updates));
    put("description", json!(job.description));
    put("parent", parent(definitions.iter().map(|definition| &**definition)));
    put("required_projects", required_projects(job));
    let mut declared = job.declared_dependencies.clone();
    declared.sort();
    put("dependencies", declared.iter().map(dependency).collect());
    let mut waited = job.dependencies.clone();
    waited.sort();
    put("graph_dependencies", waited.iter().map(dependency).collect());
    put("nodesets", job.nodesets.iter().map(nodeset).collect());
    put("vars", variables(&job.vars));
    put("extra_vars", variables(&job.extra_vars));
    put("host_vars", variables(&job.host_vars));
    put("group_vars", variables(&job.group_vars));
    for (name, phase) in
        [("pre_run", Phase::Pre), ("run", Phase::Run), ("post_run", Phase::Post), ("cleanup_run", Phase::Cleanup)]
    {
        put(name, job.phase(phase).map(|playbook| self::playbook(layout, playbook)).collect());
    }
    put("files", written(&definitions, JobAttribute::Files));
    put("irrelevant_files", written(&definitions, JobAttribute::IrrelevantFiles));
    Json::Object(body)
}

/// Zuul: of file matchers those of the last definition are told, even where they join others.
fn written(definitions: &[Shared<JobDefinition>], attribute: JobAttribute) -> Json {
    let last = definitions.iter().rev().find_map(|definition| definition.value(attribute));
    match last {
        Some(AttributeValue::Patterns(patterns)) => patterns.iter().map(pattern).collect(),
        _ => json!([]),
    }
}

fn pattern(pattern: &Pattern) -> Json {
    json!({"regex": pattern.regex(), "negate": pattern.negate()})
}

fn bool_or_auto(value: Option<bool>) -> Json {
    value.map_or_else(|| json!("auto"), Json::Bool)
}

fn variables(map: &BTreeMap<String, Value>) -> Json {
    Value::Map(map.clone()).to_json()
}

fn variant(definition: &JobDefinition) -> Json {
    let context = &definition.place.context;
    let matchers = |patterns: &[Pattern]| -> Json {
        let one = |pattern: &Pattern| match pattern.negate() {
            true => json!({"regex": pattern.regex(), "implied": false, "negate": true}),
            false => json!({"regex": pattern.regex(), "implied": false}),
        };
        patterns.iter().map(one).collect()
    };
    let built_in = context.project.is_empty();
    let implied = match (&definition.branches, &definition.pragma.implied_branches) {
        _ if built_in || definition.project_pipeline => Json::Null,
        (Some(_), _) => Json::Null,
        (None, Some(patterns)) => matchers(patterns),
        (None, None) => json!([{"regex": context.branch, "implied": true}]),
    };
    let mut fact = json!({
        "job": definition.name,
        "line": if built_in { Json::Null } else { json!(definition.stanza_line) },
        "project_pipeline": definition.project_pipeline,
        "branches": definition.branches.as_deref().map_or(Json::Null, matchers),
        "implied_branches": implied,
    });
    if let (Json::Object(fact), false) = (&mut fact, built_in) {
        fact.insert("project".to_owned(), json!(context.project));
        fact.insert("branch".to_owned(), json!(context.branch));
        fact.insert("path".to_owned(), json!(context.path));
    }
    fact
}

/// The parent as the last definition that names one has it; null is a base job.
fn parent<'a>(definitions: impl Iterator<Item = &'a JobDefinition>) -> Json {
    let named = definitions.filter_map(|definition| match &definition.parent {
        Parent::Default => None,
        Parent::Base => Some(Json::Null),
        Parent::Named(name) => Some(json!(name)),
    });
    named.last().unwrap_or(Json::Null)
}

fn dependency(dependency: &Dependency) -> Json {
    json!({"name": dependency.name, "soft": dependency.soft})
}

fn semaphore(semaphore: &SemaphoreUse) -> Json {
    json!({"name": semaphore.name, "resources_first": semaphore.resources_first})
}

fn filters(filters: Option<&[ProjectFilter]>) -> Json {
    let one = |filter: &ProjectFilter| match filter {
        ProjectFilter::Project(name) => json!(["name", name]),
        ProjectFilter::Change => json!(["change", null]),
        ProjectFilter::Item => json!(["item", null]),
    };
    filters.map_or(Json::Null, |filters| filters.iter().map(one).collect())
}

fn required_projects(job: &FrozenJob) -> Json {
    let one = |required: &Shared<crate::freeze::graph::RequiredProject>| {
        let fact =
            json!({"override_branch": required.override_branch, "override_checkout": required.override_checkout});
        (required.project.clone(), fact)
    };
    Json::Object(job.required_projects.iter().map(one).collect())
}

fn nodeset(nodeset: &FrozenNodeset) -> Json {
    json!({
        "name": nodeset.name,
        "nodes": nodeset.shape.nodes.iter().map(|node| json!({"names": node.names, "label": node.label})).collect::<Json>(),
        "groups": nodeset.shape.groups.iter().map(|group| json!({"name": group.name, "nodes": group.nodes})).collect::<Json>(),
    })
}

/// Zuul: a project without any stanza has no settings, and then `master` is taken for its branch.
fn default_branch<'a>(layout: &Layout, project: &'a LayoutProject) -> &'a str {
    if layout.stanzas.contains_key(&project.canonical_name) { &project.default_branch } else { "master" }
}

fn include_vars(layout: &Layout, subject: &str, file: &crate::objects::job_parts::IncludeVars) -> Json {
    let project = file.project.as_deref().unwrap_or(subject);
    let known = layout.projects.get(project);
    json!({
        "name": file.name,
        "connection": known.map(|project| &project.connection),
        "project": known.map(|project| &project.name),
        "project_default_branch": known.map(|project| default_branch(layout, project)),
        "trusted": known.map(|project| project.trusted),
        "required": file.required,
        "use_ref": file.use_ref,
    })
}

fn playbook(layout: &Layout, playbook: &Playbook) -> Json {
    let project = layout.projects.get(&playbook.project);
    let role = |role: &Shared<FrozenRole>| {
        let project = layout.projects.get(&role.project);
        json!({
            "type": "zuul",
            "project_canonical_name": role.project,
            "target_name": role.target_name,
            "implicit": role.implicit,
            "connection": role.connection,
            "project": project.map(|project| &project.name),
            "project_default_branch": project.map(|project| default_branch(layout, project)),
        })
    };
    let semaphore = |name: &String| {
        let key = quoted(name);
        let path = match layout.global_semaphores.get(name) {
            Some(_) => format!("/zuul/global-semaphores/{key}"),
            None => format!("/zuul/semaphores/{}/{key}", layout.tenant),
        };
        json!({"name": name, "path": path, "resources_first": false, "max": layout.semaphore_max(name)})
    };
    let mut secrets: Vec<&str> = playbook.secrets.iter().map(|secret| secret.name.as_str()).collect();
    secrets.sort_unstable();
    secrets.dedup();
    json!({
        "path": playbook.path,
        "project": project.map(|project| &project.name),
        "connection": project.map(|project| &project.connection),
        "branch": playbook.branch,
        "trusted": playbook.trusted,
        "roles": playbook.roles.iter().map(role).collect::<Json>(),
        "secrets": secrets,
        "semaphores": playbook.semaphores.iter().map(semaphore).collect::<Json>(),
        "nesting_level": playbook.nesting_level,
        "cleanup": playbook.cleanup && playbook.phase != Phase::Cleanup,
    })
}

/// A name as a part of a path: letters, digits and `_.-~` stay, a blank becomes a plus.
fn quoted(name: &str) -> String {
    name.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b' ' => out.push('+'),
            b if b.is_ascii_alphanumeric() || b"_.-~".contains(&b) => out.push(char::from(b)),
            b => out.push_str(&format!("%{b:02X}")),
        }
        out
    })
}

fn affected(job: &FrozenJob) -> Json {
    let required = job.required_projects.iter().map(|required| required.project.as_str());
    let files = job.include_vars.iter().filter_map(|file| file.project.as_deref());
    let used = [Phase::Pre, Phase::Post, Phase::Cleanup].into_iter().flat_map(|phase| job.phase(phase));
    let playbooks = used.chain(job.phase(Phase::Run).take(1));
    let theirs = playbooks.flat_map(|playbook| {
        std::iter::once(playbook.project.as_str()).chain(playbook.roles.iter().map(|role| role.project.as_str()))
    });
    let all: std::collections::BTreeSet<&str> = required.chain(files).chain(theirs).collect();
    json!(all)
}
