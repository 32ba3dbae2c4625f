//! What the objects of a layout say about each other: every name they use must exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::{Layout, NodesetError};
use crate::load::project_problem;
use crate::objects::job::{JobAttribute, JobDefinition, Parent};
use crate::objects::job_parts::{AttributeValue, ProjectFilter};
use crate::objects::project::ProjectPipeline;
use crate::place::Place;
use crate::problem::{Problem, Severity, did_you_mean};
use crate::tenant::TenantSettings;

/// Connections that exist in every tenant. Zuul: drivers without a connection of their own.
const BUILT_IN: &[&str] = &["timer", "zuul", "database", "sql"];

pub(crate) fn validate(layout: &Layout, tenant: &TenantSettings, problems: &mut Vec<Problem>) {
    for nodeset in layout.nodesets.values() {
        if let Err(error) = layout.flatten_nodeset(nodeset) {
            problems.push(nodeset_problem(layout, &error, nodeset.place.clone()));
        }
    }
    for definition in layout.jobs.values().flatten() {
        job(layout, definition, problems);
    }
    cycles(layout, problems);
    pipelines(layout, tenant, problems);
    for template in layout.templates.values().flatten() {
        for (name, pipeline) in &template.pipelines {
            project_pipeline(layout, name, pipeline, problems);
        }
    }
    let mut seen = BTreeSet::new();
    for stanza in layout.stanzas.values().flatten().filter(|stanza| seen.insert(stanza.place.clone())) {
        for name in stanza.templates.iter().filter(|name| !layout.templates.contains_key(*name)) {
            let message = format!("the project template \"{name}\" was not found");
            let problem = Problem::error("template-not-found", "Template Not Found", stanza.place.clone(), message);
            problems.push(problem.about("templates").cure(near(
                name,
                layout.templates.keys(),
                "define it, or remove it",
            )));
        }
        for (name, pipeline) in &stanza.pipelines {
            project_pipeline(layout, name, pipeline, problems);
        }
    }
}

fn near<'a>(name: &str, known: impl Iterator<Item = &'a String>, otherwise: &str) -> String {
    match did_you_mean(name, known.map(String::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => otherwise.to_owned(),
    }
}

pub(crate) fn nodeset_problem(layout: &Layout, error: &NodesetError, place: Place) -> Problem {
    match error {
        NodesetError::Unknown(name) => {
            let cure = near(name, layout.nodesets.keys(), "define it, or spell the nodes out in the job");
            Problem::error("nodeset-not-found", "Nodeset Not Found", place, error.to_string()).cure(cure)
        }
        NodesetError::Cycle(_) => Problem::error("nodeset-cycle", "Unknown", place, error.to_string())
            .cure("each nodeset may appear once among the alternatives"),
    }
}

fn job(layout: &Layout, job: &JobDefinition, problems: &mut Vec<Problem>) {
    let at = |attribute: JobAttribute| job.place_of(attribute);
    if let Parent::Named(parent) = &job.parent
        && !job.project_pipeline
    {
        parent_problems(layout, job, parent, problems);
    }
    if let Some(AttributeValue::Dependencies(all)) = job.value(JobAttribute::Dependencies) {
        for dependency in all.iter().filter(|dependency| !layout.jobs.contains_key(&dependency.name)) {
            let message = format!("the job \"{}\" depends on \"{}\", which was not found", job.name, dependency.name);
            let problem = Problem::error("dependency-not-found", "Unknown", at(JobAttribute::Dependencies), message);
            let cure = near(&dependency.name, layout.jobs.keys(), "define that job, or remove the dependency");
            problems.push(problem.about("dependencies").cure(cure));
        }
    }
    nodeset(layout, job, problems);
    for used in job.secrets() {
        let place = at(JobAttribute::Secrets);
        match layout.secrets.get(&used.secret) {
            None => {
                let message =
                    format!("the job \"{}\" uses the secret \"{}\", which was not found", job.name, used.secret);
                let cure = near(&used.secret, layout.secrets.keys(), "define it in the same project");
                problems
                    .push(Problem::error("secret-not-found", "Unknown", place, message).about("secrets").cure(cure));
            }
            Some(secret) if secret.place.context.project != job.place.context.project => {
                let message = format!(
                    "the secret \"{}\" of job \"{}\" is defined in another project, {}",
                    used.secret, job.name, secret.place.context.project
                );
                let cure = "secrets must be defined in the project of the job that uses them";
                problems.push(Problem::error("secret-not-own", "Unknown", place, message).about("secrets").cure(cure));
            }
            Some(_) => {}
        }
    }
    let mut names: Vec<(JobAttribute, &str)> = Vec::new();
    if let Some(AttributeValue::Projects(all)) = job.value(JobAttribute::RequiredProjects) {
        names.extend(all.iter().map(|used| (JobAttribute::RequiredProjects, used.name.as_str())));
    }
    if let Some(AttributeValue::Names(all)) = job.value(JobAttribute::AllowedProjects) {
        names.extend(all.iter().map(|name| (JobAttribute::AllowedProjects, name.as_str())));
    }
    for attribute in [JobAttribute::IncludeProjects, JobAttribute::ExcludeProjects] {
        if let Some(AttributeValue::Filters(all)) = job.value(attribute) {
            names.extend(all.iter().filter_map(|filter| match filter {
                ProjectFilter::Project(name) => Some((attribute, name.as_str())),
                ProjectFilter::Change | ProjectFilter::Item => None,
            }));
        }
    }
    for (attribute, name) in names {
        if let Err(error) = layout.project(name) {
            problems.push(project_problem(layout, &error, at(attribute)).about(attribute.row().name));
        }
    }
}

fn parent_problems(layout: &Layout, job: &JobDefinition, parent: &str, problems: &mut Vec<Problem>) {
    let place = job.place.clone();
    let definitions = layout.definitions(parent);
    if definitions.is_empty() {
        let message = format!("the job \"{}\" has the parent \"{parent}\", which was not found", job.name);
        let cure = near(parent, layout.jobs.keys(), "define that job, or name another parent");
        problems.push(Problem::error("parent-not-found", "Unknown", place, message).about("parent").cure(cure));
        return;
    }
    let all = |attribute| definitions.iter().all(|definition| definition.bool(attribute) == Some(true));
    if parent == job.name {
        return;
    }
    if all(JobAttribute::Final) {
        let message = format!("the job \"{}\" inherits from \"{parent}\", which is final", job.name);
        let cure = "name another parent, or use that job as it is";
        problems.push(Problem::error("parent-final", "Unknown", place, message).about("parent").cure(cure));
    } else if all(JobAttribute::Intermediate) && job.bool(JobAttribute::Abstract) != Some(true) {
        let message = format!("the job \"{}\" inherits from \"{parent}\", which is intermediate", job.name);
        let cure = "only an abstract job may inherit from it: add `abstract: true`";
        problems.push(Problem::error("parent-intermediate", "Unknown", place, message).about("parent").cure(cure));
    } else if all(JobAttribute::Protected)
        && definitions.iter().all(|other| other.place.context.project != job.place.context.project)
    {
        let message =
            format!("the job \"{}\" inherits from \"{parent}\", which is protected by another project", job.name);
        let cure = "only jobs of its own project may inherit from it: name another parent";
        problems.push(Problem::error("parent-protected", "Unknown", place, message).about("parent").cure(cure));
    }
}

fn nodeset(layout: &Layout, job: &JobDefinition, problems: &mut Vec<Problem>) {
    let place = job.place_of(JobAttribute::Nodeset);
    let flat = match job.value(JobAttribute::Nodeset) {
        Some(AttributeValue::NodesetName(name)) => match layout.nodesets.get(name) {
            // What is wrong inside a named nodeset has been said where it is defined.
            Some(nodeset) => Ok(layout.flatten_nodeset(nodeset).unwrap_or_default()),
            None => Err(NodesetError::Unknown(name.clone())),
        },
        Some(AttributeValue::Nodeset(nodeset)) => layout.flatten_nodeset(nodeset),
        _ => return,
    };
    match flat {
        Err(error) => problems.push(nodeset_problem(layout, &error, place).about("nodeset")),
        Ok(shapes) => {
            let most = shapes.iter().map(|(_, shape)| shape.nodes.len()).max().unwrap_or(0);
            if let Some(limit) = layout.max_nodes_per_job
                && i64::try_from(most).unwrap_or(i64::MAX) > limit
            {
                let message = format!(
                    "the job \"{}\" wants {most} nodes, which exceeds tenant max-nodes-per-job {limit}",
                    job.name
                );
                let cure = "use fewer nodes, or ask for a larger max-nodes-per-job";
                problems.push(
                    Problem::error("max-nodes", "Max Nodes Exceeded", place, message).about("nodeset").cure(cure),
                );
            }
        }
    }
}

/// Jobs that are, by their names, ancestors of themselves.
fn cycles(layout: &Layout, problems: &mut Vec<Problem>) {
    let mut parents: BTreeMap<&str, Vec<(&str, &JobDefinition)>> = BTreeMap::new();
    for (name, definitions) in &layout.jobs {
        for definition in definitions {
            let parent = match &definition.parent {
                Parent::Named(parent) => parent.as_str(),
                Parent::Default => layout.default_parent.as_str(),
                Parent::Base => continue,
            };
            // A variant that names its own job as its parent is passed over when freezing.
            if parent != name {
                parents.entry(name).or_default().push((parent, definition));
            }
        }
    }
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in parents.keys().copied().collect::<Vec<_>>() {
        if done.contains(start) {
            continue;
        }
        // Depth first, without recursion: the chain of names, and how many parents of each were tried.
        let mut chain: Vec<(&str, usize)> = vec![(start, 0)];
        while let Some((name, tried)) = chain.last_mut() {
            let next = parents.get(*name).and_then(|all| all.get(*tried));
            *tried += 1;
            let Some((parent, definition)) = next.copied() else {
                done.insert(*name);
                chain.pop();
                continue;
            };
            if let Some(from) = chain.iter().position(|(name, _)| *name == parent) {
                let members: Vec<&str> = chain.iter().skip(from).map(|(name, _)| *name).collect();
                let limited = members
                    .iter()
                    .any(|name| layout.definitions(name).iter().any(|definition| definition.branches.is_some()));
                let severity = if limited { Severity::Warning } else { Severity::Error };
                let message = format!("Dependency cycle in jobs: {} -> {parent}", members.join(" -> "));
                let problem = Problem::new(severity, "job-parent-cycle", "Unknown", definition.place.clone(), message);
                problems.push(problem.about("parent").cure("let one of them inherit from a job outside the cycle"));
            } else if !done.contains(parent) {
                chain.push((parent, 0));
            }
        }
    }
}

fn pipelines(layout: &Layout, tenant: &TenantSettings, problems: &mut Vec<Problem>) {
    for pipeline in layout.pipelines_in_order() {
        for name in pipeline.supercedes.iter().filter(|name| !layout.pipelines.contains_key(*name)) {
            let message = format!("the pipeline \"{}\" supercedes \"{name}\", which was not found", pipeline.name);
            let problem = Problem::error("pipeline-not-found", "Unknown", pipeline.place.clone(), message);
            problems.push(problem.about("supercedes").cure(near(name, layout.pipelines.keys(), "remove it")));
        }
        for connection in pipeline.connections() {
            let known = tenant.connections.iter().any(|name| name == connection) || BUILT_IN.contains(&connection);
            if !tenant.connections.is_empty() && !known {
                let message = format!(
                    "the pipeline \"{}\" uses the connection \"{connection}\", which is unknown",
                    pipeline.name
                );
                let problem =
                    Problem::error("unknown-connection", "Unknown Connection", pipeline.place.clone(), message);
                problems.push(problem.cure(near(
                    connection,
                    tenant.connections.iter(),
                    "check the site's connections",
                )));
            }
        }
        let forbidden =
            |allowed: &Option<Vec<String>>, name: &String| allowed.as_ref().is_some_and(|all| !all.contains(name));
        let reporters = pipeline
            .actions
            .values()
            .flat_map(BTreeMap::keys)
            .filter(|name| forbidden(&tenant.allowed_reporters, name));
        let triggers = pipeline.triggers.keys().filter(|name| forbidden(&tenant.allowed_triggers, name));
        for (what, name) in triggers.map(|name| ("trigger", name)).chain(reporters.map(|name| ("reporter", name))) {
            let message = format!(
                "the pipeline \"{}\" uses the {what} \"{name}\", which this tenant does not allow",
                pipeline.name
            );
            let problem =
                Problem::error("connection-not-allowed", "Unknown Connection", pipeline.place.clone(), message);
            problems.push(problem.cure(format!("see allowed-{what}s of the tenant")));
        }
    }
}

fn project_pipeline(layout: &Layout, name: &str, pipeline: &ProjectPipeline, problems: &mut Vec<Problem>) {
    for job_variant in &pipeline.jobs {
        if layout.jobs.contains_key(&job_variant.name) {
            job(layout, job_variant, problems);
            continue;
        }
        let message = format!("the job \"{}\" in pipeline \"{name}\" was not found", job_variant.name);
        let cure = near(&job_variant.name, layout.jobs.keys(), "define it, or remove it from the list");
        let problem = Problem::error("job-not-found", "Unknown", job_variant.place.clone(), message);
        problems.push(problem.about("jobs").cure(cure));
    }
    if !pipeline.parameters.is_empty() && layout.pipelines.get(name).is_some_and(|known| !known.allow_parameters) {
        let message = format!("the pipeline \"{name}\" does not allow parameters");
        let problem = Problem::error("parameters-not-allowed", "Unknown", pipeline.place.clone(), message);
        problems.push(problem.about("parameters").cure("remove them, or set `allow-parameters` of the pipeline"));
    }
}
