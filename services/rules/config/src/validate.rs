//! What objects say about each other: names that have to exist, limits that have to hold.
//!
//! Nothing found here keeps an object out of the layout; what uses it is refused when it is frozen.

use std::collections::{BTreeMap, BTreeSet};

use crate::findings::Findings;
use crate::layout::{Layout, NodesetError};
use crate::objects::ProjectTemplate;
use crate::objects::job::{JobAttribute, JobDefinition, Parent};
use crate::objects::job_parts::AttributeValue;
use crate::objects::nodeset::NodesetShape;
use crate::objects::project::ProjectPipeline;
use crate::place::Place;
use crate::problem::{Problem, Severity, UNKNOWN, did_you_mean};
use crate::providers;
use crate::shared::Shared;
use crate::tenant::TenantSettings;
use crate::timers;

/// Labels name images, flavors and each other.
pub(crate) fn labels(layout: &Layout, findings: &mut Findings) {
    let none = BTreeMap::new();
    let of = |class: &str| layout.named.get(class).unwrap_or(&none);
    for label in of("label").values() {
        findings.begin();
        let text = |name: &str| label.attributes.get(name).and_then(gatelog_record::Value::as_str);
        let mut unknown = |attribute: &str, class: &str, name: &str| {
            let message = format!("the label \"{}\" names the {class} \"{name}\", which was not found", label.name);
            let problem = Problem::error("object-not-found", UNKNOWN, label.place.clone(), message);
            findings.push(problem.about(attribute).cure(near(name, of(class).keys(), "define it first")));
        };
        for class in ["image", "flavor"] {
            if let Some(name) = text(class).filter(|name| !of(class).contains_key(*name)) {
                unknown(class, class, name);
            }
        }
        for alias in label.texts("aliases").iter().filter(|name| !of("label").contains_key(**name)) {
            unknown("aliases", "label", alias);
        }
    }
}

/// Nodesets, jobs and pipelines.
pub(crate) fn objects(layout: &Layout, tenant: &TenantSettings, findings: &mut Findings) {
    providers::check(layout, tenant, findings);
    for nodeset in layout.nodesets.values() {
        findings.begin_nodeset(nodeset);
        if let Err(error) = layout.flatten_nodeset(nodeset) {
            findings.push(nodeset_problem(layout, &error, nodeset.place.clone()));
        }
        known_labels(layout, &nodeset.shapes(), &nodeset.place, findings);
    }
    for definition in layout.jobs.values().flatten() {
        findings.begin();
        job(layout, definition, findings);
    }
    for pipeline in layout.pipelines_in_order() {
        findings.begin();
        for name in pipeline.supercedes.iter().filter(|name| !layout.pipelines.contains_key(*name)) {
            let message = format!("the pipeline \"{}\" supercedes \"{name}\", which was not found", pipeline.name);
            let problem = Problem::error("pipeline-not-found", UNKNOWN, pipeline.place.clone(), message);
            findings.push(problem.about("supercedes").cure(near(name, layout.pipelines.keys(), "remove it")));
        }
    }
}

/// Stanzas with their templates. Zuul: a template is looked at for each project that uses it, and a
/// stanza only up to the first template that does not exist.
pub(crate) fn projects(layout: &Layout, order: &[String], findings: &mut Findings) {
    // What a template comes to is the same for all that use it.
    let of_template = |template: &ProjectTemplate| -> Vec<Problem> {
        let mut found = Findings::default();
        for (name, pipeline) in template.in_order() {
            project_pipeline(layout, name, pipeline, &mut found);
        }
        found.into_vec().into_iter().map(|finding| finding.problem).collect()
    };
    let of_variants = |variants: &Vec<Shared<ProjectTemplate>>| variants.iter().map(|one| of_template(one)).collect();
    let looked: BTreeMap<&str, Vec<Vec<Problem>>> =
        layout.templates.iter().map(|(name, variants)| (name.as_str(), of_variants(variants))).collect();
    for stanza in order.iter().filter_map(|name| layout.stanzas.get(name)).flatten() {
        let mut names = stanza.templates.iter().map(|name| (name, looked.get(name.as_str()))).peekable();
        while let Some((_, Some(variants))) = names.peek() {
            for problems in *variants {
                findings.begin();
                problems.iter().for_each(|problem| findings.push(problem.clone()));
            }
            names.next();
        }
        findings.begin();
        for (name, known) in names {
            let Some(known) = known else {
                let message = format!("the project template \"{name}\" was not found");
                let problem = Problem::error("template-not-found", "Template Not Found", stanza.place.clone(), message);
                let cure = near(name, layout.templates.keys(), "define it, or remove it");
                findings.push(problem.about("templates").cure(cure));
                continue;
            };
            known.iter().flatten().for_each(|problem| findings.push(problem.clone()));
        }
        for (name, pipeline) in stanza.in_order() {
            project_pipeline(layout, name, pipeline, findings);
        }
    }
}

/// What Zuul says nothing about.
pub(crate) fn hints(layout: &Layout, findings: &mut Findings) {
    timers::check(layout, findings);
    findings.begin();
    cycles(layout, findings);
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
        NodesetError::Cycle(_) => Problem::error("nodeset-cycle", UNKNOWN, place, error.to_string())
            .cure("each nodeset may appear once among the alternatives"),
    }
}

fn known_labels(layout: &Layout, shapes: &[&NodesetShape], place: &Place, findings: &mut Findings) {
    let labels = layout.named.get("label");
    let wanted: BTreeSet<&str> = shapes.iter().flat_map(|shape| &shape.nodes).map(|node| node.label.as_str()).collect();
    for label in wanted.into_iter().filter(|_| !layout.use_nodepool) {
        if labels.is_some_and(|labels| labels.contains_key(label)) {
            continue;
        }
        let message = format!("the label \"{label}\" was not found");
        let problem = Problem::error("label-not-found", "Label Not Found", place.clone(), message);
        let none = BTreeMap::new();
        findings.push(problem.about("nodes").cure(near(label, labels.unwrap_or(&none).keys(), "define it first")));
    }
}

fn job(layout: &Layout, job: &JobDefinition, findings: &mut Findings) {
    let at = |attribute: JobAttribute| job.place_of(attribute);
    let push = |problem: Problem, findings: &mut Findings| findings.push(problem.in_stanza(job.stanza_line));
    if let Parent::Named(parent) = &job.parent
        && !parent.is_empty()
        && let Some(problem) = parent_problem(layout, job, parent)
    {
        push(problem, findings);
    }
    // Most entries of lists only name a job.
    if job.settings.is_empty() {
        return;
    }
    if let Some(problem) = nodeset(layout, job) {
        push(problem, findings);
    }
    if let Some(AttributeValue::Dependencies(all)) = job.value(JobAttribute::Dependencies) {
        for dependency in all.iter().filter(|dependency| !layout.jobs.contains_key(&dependency.name)) {
            let message = format!("the job \"{}\" depends on \"{}\", which was not found", job.name, dependency.name);
            let problem = Problem::error("dependency-not-found", UNKNOWN, at(JobAttribute::Dependencies), message);
            let cure = near(&dependency.name, layout.jobs.keys(), "define that job, or remove the dependency");
            push(problem.about("dependencies").cure(cure), findings);
        }
    }
    if job.has_playbooks() {
        for used in job.secrets() {
            if let Some(problem) = secret_problem(layout, job, used) {
                push(problem, findings);
            }
        }
    }
    if let Some(AttributeValue::Nodeset(nodeset)) = job.value(JobAttribute::Nodeset) {
        let place = Place { line: job.stanza_line, ..at(JobAttribute::Nodeset) };
        known_labels(layout, &nodeset.shapes(), &place, findings);
    }
}

fn secret_problem(
    layout: &Layout,
    job: &JobDefinition,
    used: &crate::objects::job_parts::SecretUse,
) -> Option<Problem> {
    let place = job.place_of(JobAttribute::Secrets);
    let problem = match layout.secrets.get(&used.secret) {
        None => {
            let message = format!("the job \"{}\" uses the secret \"{}\", which was not found", job.name, used.secret);
            let cure = near(&used.secret, layout.secrets.keys(), "define it in the same project");
            Problem::error("secret-not-found", UNKNOWN, place, message).cure(cure)
        }
        Some(_) if !crate::objects::job::is_variable_name(&used.name) => {
            let message = format!("a secret of job \"{}\" would be the variable `{}`", job.name, used.name);
            let cure = "variables have letters, digits and underscores, and some names are reserved: give it another \
                        name with `{name: ..., secret: ...}`";
            Problem::error("variable-name", UNKNOWN, place, message).cure(cure)
        }
        Some(secret) if secret.place.context.project != job.place.context.project => {
            let message = format!(
                "the secret \"{}\" of job \"{}\" is defined in another project, {}",
                used.secret, job.name, secret.place.context.project
            );
            let cure = "secrets must be defined in the project of the job that uses them";
            Problem::error("secret-not-own", UNKNOWN, place, message).cure(cure)
        }
        Some(_) => return None,
    };
    Some(problem.about("secrets"))
}

fn parent_problem(layout: &Layout, job: &JobDefinition, parent: &str) -> Option<Problem> {
    let place = job.place.clone();
    let definitions = layout.definitions(parent);
    let Some(first) = definitions.first() else {
        let message = format!("the job \"{}\" has the parent \"{parent}\", which was not found", job.name);
        let cure = near(parent, layout.jobs.keys(), "define that job, or name another parent");
        return Some(Problem::error("parent-not-found", UNKNOWN, place, message).about("parent").cure(cure));
    };
    // Zuul: only what all definitions of the parent say is told here; freezing finds the rest.
    let all = |attribute| definitions.iter().all(|definition| definition.bool(attribute) == Some(true));
    let (code, message, cure) = if all(JobAttribute::Final) {
        (
            "parent-final",
            format!("the job \"{}\" inherits from \"{parent}\", which is final", job.name),
            "name another parent, or use that job as it is",
        )
    } else if all(JobAttribute::Intermediate) && job.bool(JobAttribute::Abstract) != Some(true) {
        (
            "parent-intermediate",
            format!("the job \"{}\" inherits from \"{parent}\", which is intermediate", job.name),
            "only an abstract job may inherit from it: add `abstract: true`",
        )
    } else if all(JobAttribute::Protected) && first.place.context.project != job.place.context.project {
        (
            "parent-protected",
            format!("the job \"{}\" inherits from \"{parent}\", which is protected by another project", job.name),
            "only jobs of its own project may inherit from it: name another parent",
        )
    } else if parent != job.name && definitions.iter().all(closes_auth) {
        (
            "auth-not-inherited",
            format!("the job \"{}\" inherits from \"{parent}\", whose `auth` may not be inherited", job.name),
            "add `inherit: true` to its `auth`, or name another parent",
        )
    } else {
        return None;
    };
    Some(Problem::error(code, UNKNOWN, place, message).about("parent").cure(cure))
}

fn closes_auth(definition: &Shared<JobDefinition>) -> bool {
    match definition.value(JobAttribute::Auth) {
        Some(AttributeValue::Map(auth)) => auth.get("inherit").and_then(gatelog_record::Value::as_bool) != Some(true),
        _ => false,
    }
}

fn nodeset(layout: &Layout, job: &JobDefinition) -> Option<Problem> {
    let place = job.place_of(JobAttribute::Nodeset);
    let flat = match job.value(JobAttribute::Nodeset) {
        Some(AttributeValue::NodesetName(name)) => match layout.nodesets.get(name) {
            Some(nodeset) => layout.flatten_nodeset(nodeset),
            None => Err(NodesetError::Unknown(name.clone())),
        },
        Some(AttributeValue::Nodeset(nodeset)) => layout.flatten_nodeset(nodeset),
        _ => return None,
    };
    match flat {
        Err(error) => Some(nodeset_problem(layout, &error, place).about("nodeset")),
        Ok(shapes) => {
            let most = shapes.iter().map(|(_, shape)| shape.nodes.len()).max().unwrap_or(0);
            let limit = layout.max_nodes_per_job.filter(|limit| i64::try_from(most).unwrap_or(i64::MAX) > *limit)?;
            let message =
                format!("the job \"{}\" wants {most} nodes, which exceeds tenant max-nodes-per-job {limit}", job.name);
            let cure = "use fewer nodes, or ask for a larger max-nodes-per-job";
            Some(Problem::error("max-nodes", UNKNOWN, place, message).about("nodeset").cure(cure))
        }
    }
}

/// Jobs that are, by their names, ancestors of themselves. Zuul passes a parent over that it has
/// been at before, so that freezing comes to an end; hardly as meant.
fn cycles(layout: &Layout, findings: &mut Findings) {
    let mut parents: BTreeMap<&str, Vec<(&str, &JobDefinition)>> = BTreeMap::new();
    for (name, definitions) in &layout.jobs {
        for definition in definitions {
            let parent = match &definition.parent {
                Parent::Named(parent) => parent.as_str(),
                Parent::Default => layout.default_parent.as_str(),
                Parent::Base => continue,
            };
            // A variant that names its own job as its parent is a usual way of writing.
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
                let message = format!("the jobs inherit from each other: {} -> {parent}", members.join(" -> "));
                let place = definition.place.clone();
                let problem = Problem::new(Severity::Notice, "job-parent-cycle", UNKNOWN, place, message);
                findings.push(problem.about("parent").cure("let one of them inherit from a job outside the cycle"));
            } else if !done.contains(parent) {
                chain.push((parent, 0));
            }
        }
    }
}

fn project_pipeline(layout: &Layout, name: &str, pipeline: &ProjectPipeline, findings: &mut Findings) {
    for variant in &pipeline.jobs {
        if layout.jobs.contains_key(&variant.name) {
            job(layout, variant, findings);
            continue;
        }
        let message = format!("the job \"{}\" in pipeline \"{name}\" was not found", variant.name);
        let cure = near(&variant.name, layout.jobs.keys(), "define it, or remove it from the list");
        let problem = Problem::error("job-not-found", UNKNOWN, variant.place.clone(), message);
        findings.push(problem.about("jobs").cure(cure).in_stanza(variant.stanza_line));
    }
}
