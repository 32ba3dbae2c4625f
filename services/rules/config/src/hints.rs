//! What a layout holds and nothing uses: not wrong, but worth a look before it is pushed.

use std::collections::BTreeSet;

use crate::layout::Layout;
use crate::objects::JobDefinition;
use crate::objects::job::{JobAttribute, Parent};
use crate::objects::job_parts::AttributeValue;
use crate::objects::nodeset::{Alternative, Nodeset, NodesetContent};
use crate::objects::project::ProjectPipeline;
use crate::place::Place;
use crate::problem::{Problem, Severity, UNKNOWN, did_you_mean};

/// Names in use, by class of object.
#[derive(Default)]
struct Used<'a> {
    jobs: BTreeSet<&'a str>,
    templates: BTreeSet<&'a str>,
    nodesets: BTreeSet<&'a str>,
    secrets: BTreeSet<&'a str>,
    semaphores: BTreeSet<&'a str>,
    queues: BTreeSet<&'a str>,
}

/// Objects nobody uses, and entries of projects for pipelines nobody defines.
pub fn unused(layout: &Layout) -> Vec<Problem> {
    let mut used = Used::default();
    let mut problems = Vec::new();
    for definition in layout.jobs.values().flatten() {
        job(&mut used, definition, false);
    }
    let stanzas = layout.stanzas.values().flatten();
    let stanza_entries = stanzas.clone().flat_map(|stanza| stanza.in_order());
    let templates = layout.templates.values().flatten();
    let template_entries = templates.clone().flat_map(|template| template.in_order());
    for (name, entry) in stanza_entries.chain(template_entries) {
        for variant in &entry.jobs {
            job(&mut used, variant, true);
        }
        unknown_pipeline(layout, name, entry, &mut problems);
    }
    for stanza in stanzas {
        used.templates.extend(stanza.templates.iter().map(String::as_str));
        used.queues.extend(stanza.queue.as_deref());
    }
    used.queues.extend(templates.filter_map(|template| template.queue.as_deref()));
    for nodeset in layout.nodesets.values() {
        alternatives(&mut used, nodeset);
    }
    used.jobs.insert(JobDefinition::NOOP);
    used.jobs.insert(&layout.default_parent);
    let first = |places: &[Place]| places.first().cloned().unwrap_or_default();
    for (name, definitions) in &layout.jobs {
        let places: Vec<Place> = definitions.iter().map(|definition| definition.place.clone()).collect();
        hint(
            &mut problems,
            "job",
            name,
            used.jobs.contains(name.as_str()),
            first(&places),
            "no project lists it, and no job inherits from it",
        );
    }
    for (name, variants) in &layout.templates {
        let places: Vec<Place> = variants.iter().map(|template| template.place.clone()).collect();
        hint(
            &mut problems,
            "project-template",
            name,
            used.templates.contains(name.as_str()),
            first(&places),
            "no project names it",
        );
    }
    for (name, one) in &layout.nodesets {
        hint(
            &mut problems,
            "nodeset",
            name,
            used.nodesets.contains(name.as_str()),
            one.place.clone(),
            "no job names it",
        );
    }
    for (name, one) in &layout.secrets {
        hint(&mut problems, "secret", name, used.secrets.contains(name.as_str()), one.place.clone(), "no job names it");
    }
    for (name, one) in &layout.semaphores {
        hint(
            &mut problems,
            "semaphore",
            name,
            used.semaphores.contains(name.as_str()),
            one.place.clone(),
            "no job or playbook names it",
        );
    }
    for (name, one) in &layout.queues {
        hint(
            &mut problems,
            "queue",
            name,
            used.queues.contains(name.as_str()),
            one.place.clone(),
            "no project names it",
        );
    }
    problems
}

fn hint(problems: &mut Vec<Problem>, class: &str, name: &str, used: bool, place: Place, why: &str) {
    if !used {
        let message = format!("the {class} \"{name}\" is not used: {why}");
        let problem = Problem::new(Severity::Notice, "unused", UNKNOWN, place, message);
        problems.push(problem.cure("remove it, or leave it for users in other tenants"));
    }
}

fn unknown_pipeline(layout: &Layout, name: &str, entry: &ProjectPipeline, problems: &mut Vec<Problem>) {
    if layout.pipelines.contains_key(name) {
        return;
    }
    let message = format!("the jobs for \"{name}\" never run: there is no pipeline of that name");
    let problem = Problem::new(Severity::Notice, "pipeline-unknown", UNKNOWN, entry.place.clone(), message);
    let cure = match did_you_mean(name, layout.pipelines.keys().map(String::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "remove them, or define the pipeline".to_owned(),
    };
    problems.push(problem.cure(cure));
}

fn job<'a>(used: &mut Used<'a>, definition: &'a JobDefinition, listed: bool) {
    if listed {
        used.jobs.insert(&definition.name);
    }
    match &definition.parent {
        Parent::Named(parent) if *parent != definition.name => {
            used.jobs.insert(parent);
        }
        _ => {}
    }
    used.secrets.extend(definition.secrets().iter().map(|secret| secret.secret.as_str()));
    for setting in definition.settings.values() {
        match &setting.value {
            AttributeValue::NodesetName(name) => {
                used.nodesets.insert(name);
            }
            AttributeValue::Nodeset(nodeset) => alternatives(used, nodeset),
            AttributeValue::Semaphores(all) => used.semaphores.extend(all.iter().map(|one| one.name.as_str())),
            AttributeValue::Playbooks(all) => {
                used.semaphores.extend(all.iter().flat_map(|one| &one.semaphores).map(String::as_str));
            }
            _ => {}
        }
    }
    if let Some(AttributeValue::Dependencies(all)) = definition.value(JobAttribute::Dependencies) {
        used.jobs.extend(all.iter().filter(|one| !one.soft).map(|one| one.name.as_str()));
    }
}

fn alternatives<'a>(used: &mut Used<'a>, nodeset: &'a Nodeset) {
    if let NodesetContent::Alternatives(all) = &nodeset.content {
        used.nodesets.extend(all.iter().filter_map(|alternative| match alternative {
            Alternative::Named(name) => Some(name.as_str()),
            Alternative::Inline(_) => None,
        }));
    }
}
