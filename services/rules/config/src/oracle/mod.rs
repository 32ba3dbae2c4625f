//! The document the differential tests compare: what a configuration folder comes to, in the form in
//! which the real Zuul was made to print it.
//!
//! The document says for each tenant what is wrong, and for each project, branch and pipeline which
//! jobs are frozen, with everything about them.

mod body;
mod facts;
mod text;

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::findings::{Finding, as_told};
use crate::folder::{Folder, LoadedTenant};
use crate::freeze::{FreezeOptions, FreezeOutcome, FreezeSubject, freeze};
use crate::problem::Problem;
use crate::tenant::TenantProject;

/// Version of Zuul whose form and behaviour this is.
pub const ZUUL: &str = "14.3.0";

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Branches to freeze for in addition.
    pub extra_branches: Vec<String>,
    /// Files the change touches; without them file matchers are left out of consideration.
    pub files: Option<Vec<String>>,
    /// Tenants to tell about; none given is all.
    pub tenants: Vec<String>,
}

/// The document, as one line of JSON with sorted keys.
pub fn document(folder: &Folder, question: &Question) -> String {
    let mut document = Map::new();
    let mut put = |name: &str, value: Json| {
        document.insert(name.to_owned(), value);
    };
    put("format", json!(1));
    put("zuul", json!(ZUUL));
    put("conf", json!(folder.conf_name));
    put("files", json!(question.files));
    put("made_branches", json!(folder.made_branches));
    put("extra_branches", json!(question.extra_branches));
    let mut tenants = Map::new();
    match folder.load() {
        Err(problems) => {
            let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
            put("load_error", json!(said.join("\n")));
        }
        Ok(loaded) => {
            for tenant in loaded {
                if question.tenants.is_empty() || question.tenants.contains(&tenant.settings.name) {
                    tenants.insert(tenant.settings.name.clone(), tenant_facts(&tenant, folder.site, question));
                }
            }
        }
    }
    put("tenants", Json::Object(tenants));
    text::compact(&Json::Object(document)) + "\n"
}

fn error(finding: &Finding) -> Json {
    let problem = &finding.problem;
    let context = &problem.place.context;
    if finding.nowhere {
        return json!({"name": problem.name, "severity": problem.severity.to_string(), "project": null, "branch": null,
                      "path": null, "line": null, "short": problem.message});
    }
    // What is said of a project as a whole is of no branch and no file.
    let place = |text: &str| if context.branch.is_empty() { Json::Null } else { json!(text) };
    json!({
        "name": problem.name, "severity": problem.severity.to_string(), "project": context.project,
        "branch": place(&context.branch), "path": place(problem.zuul_path()),
        "line": if problem.stanza_line == 0 { Json::Null } else { json!(problem.stanza_line) },
        "short": problem.message,
    })
}

fn tenant_facts(tenant: &LoadedTenant, site: bool, question: &Question) -> Json {
    let mut facts = facts::facts(&tenant.settings, &tenant.layout, site);
    let (mut graphs, mut jobs) = (Map::new(), Map::new());
    let mut states = BTreeMap::from([("none", 0_u64), ("error", 0), ("ok", 0)]);
    for project in tenant.settings.projects.iter().filter(|p| tenant.layout.stanzas.contains_key(&p.canonical_name)) {
        for branch in branches_asked(project, question) {
            for pipeline in &tenant.layout.pipeline_order {
                let (state, graph) = graph(tenant, project, &branch, pipeline, question, &mut jobs);
                *states.entry(state).or_default() += 1;
                if let Some(graph) = graph {
                    graphs.insert(format!("{}|{branch}|{pipeline}", project.canonical_name), graph);
                }
            }
        }
    }
    let unreadable = tenant.unreadable.iter().map(|project| {
        json!({"name": "Unknown", "severity": "error", "project": project, "branch": null, "path": null,
               "line": null, "short": "the repository cannot be read"})
    });
    let errors: Vec<Json> = unreadable.chain(as_told(&tenant.findings).into_iter().map(error)).collect();
    facts.insert("errors".to_owned(), json!(errors));
    facts.insert("graphs".to_owned(), Json::Object(graphs));
    facts.insert("jobs".to_owned(), Json::Object(jobs));
    facts.insert("freeze_states".to_owned(), json!(states));
    Json::Object(facts)
}

fn graph(
    tenant: &LoadedTenant,
    project: &TenantProject,
    branch: &str,
    pipeline: &str,
    question: &Question,
    jobs: &mut Map<String, Json>,
) -> (&'static str, Option<Json>) {
    let subject = FreezeSubject {
        project: project.canonical_name.clone(),
        branch: Some(branch.to_owned()),
        reference: "refs/changes/01/1/1".to_owned(),
        files: Some(question.files.clone().unwrap_or_else(|| vec!["README".to_owned()])),
        ..FreezeSubject::default()
    };
    let options = FreezeOptions { skip_file_matchers: question.files.is_none(), ahead: None };
    match freeze(&tenant.layout, &subject, pipeline, options) {
        FreezeOutcome::NotInPipeline { .. } => ("none", None),
        FreezeOutcome::Refused { problem, .. } => {
            ("error", Some(json!({"error": format!("{}: {}", class_of(&problem), problem.message)})))
        }
        FreezeOutcome::NoJobs { .. } => ("ok", Some(json!({"jobs": []}))),
        FreezeOutcome::Frozen { graph, trace } => {
            let mut refs = Vec::new();
            for job in &graph.jobs {
                let body = body::body(&tenant.layout, &project.canonical_name, job, &trace);
                let hash = text::hash(&body);
                refs.push(json!([job.name, hash]));
                jobs.entry(hash).or_insert(body);
            }
            ("ok", Some(json!({"jobs": refs})))
        }
    }
}

fn branches_asked(project: &TenantProject, question: &Question) -> Vec<String> {
    let mut asked: Vec<String> = Vec::new();
    for branch in project.branches.iter().chain(&question.extra_branches) {
        if !asked.contains(branch) {
            asked.push(branch.clone());
        }
    }
    asked
}

/// The class of the exception with which Zuul refuses.
fn class_of(problem: &Problem) -> &'static str {
    match problem.code.as_str() {
        "template-not-found" => "TemplateNotFoundError",
        "nodeset-not-found" => "NodesetNotFoundError",
        "project-not-found" => "ProjectNotFoundError",
        "reporter-job-not-permitted" => "ReporterJobNotPermittedError",
        "secret-not-found" => "SecretNotFoundError",
        // Zuul does not look whether the secret of a playbook is there.
        "secret-of-playbook-not-found" => "AttributeError",
        "dependency-not-defined" => "JobNotDefinedError",
        "nodeset-cycle" | "dependency-cycle" | "project-ambiguous" => "Exception",
        _ => "JobConfigurationError",
    }
}
