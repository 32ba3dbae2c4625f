//! Which stanzas, and which definitions of which jobs, apply: late-bound inheritance.

use std::collections::BTreeMap;

use gatelog_record::Value;

use super::matchers::{definition_matcher, stanza_matcher};
use super::trace::{DefinitionLook, JobTrace, ParameterLook, ProjectVars, StanzaLook};
use super::{FreezeSubject, Refusal};
use crate::layout::Layout;
use crate::objects::JobDefinition;
use crate::objects::job::{JobAttribute, Parent};
use crate::objects::job_parts::AttributeValue;
use crate::objects::parameter::Parameter;
use crate::objects::project::ProjectPipeline;
use crate::place::Place;
use crate::problem::{Problem, UNKNOWN};
use crate::shared::Shared;

/// What all matching stanzas and templates together say for one pipeline.
#[derive(Clone, Debug, Default)]
pub(crate) struct PipelineConfig {
    /// Names of jobs in the order in which they were first named.
    pub order: Vec<String>,
    /// The variants of each.
    pub variants: BTreeMap<String, Vec<Shared<JobDefinition>>>,
    /// The stanza or template each variant came from, in the same order.
    origins: BTreeMap<String, Vec<Place>>,
    pub debug: bool,
    pub fail_fast: Option<bool>,
    /// Variables of stanzas and templates, the earlier below the later; last what is given for parameters.
    pub vars: Vec<ProjectVars>,
    /// The parameters declared, each with the entry that does. Zuul: the first that declares one counts.
    declared: Vec<(Parameter, Place)>,
    /// What is given for them.
    pub parameters: Vec<ParameterLook>,
}

/// Merges what the stanzas of the subject's project say for a pipeline; none when no stanza that
/// matches speaks of it.
pub(crate) fn pipeline_config(
    layout: &Layout,
    subject: &FreezeSubject,
    pipeline: &str,
    looks: &mut Vec<StanzaLook>,
) -> Result<Option<PipelineConfig>, Refusal> {
    let mut config = PipelineConfig::default();
    let mut present = false;
    for stanza in layout.stanzas.get(&subject.project).map_or(&[][..], Vec::as_slice) {
        let matcher =
            stanza_matcher(layout, &stanza.place, stanza.branches.as_deref(), &stanza.pragma, Some(&subject.project));
        let branch_matched = matcher.matches(subject, None);
        let look = |template, place: &Place, matcher, branch_matched, names_pipeline| StanzaLook {
            template,
            place: place.clone(),
            matcher,
            branch_matched,
            names_pipeline,
        };
        if !branch_matched {
            looks.push(look(None, &stanza.place, matcher, false, false));
            continue;
        }
        for name in &stanza.templates {
            // Zuul: such a stanza gives no jobs in any pipeline.
            let Some(variants) = layout.templates.get(name) else {
                let message = format!("the project template \"{name}\" was not found");
                let problem = Problem::error("template-not-found", "Template Not Found", stanza.place.clone(), message);
                return Err(problem.about("templates").cure("define it, or remove it").into());
            };
            for template in variants {
                let matcher = stanza_matcher(layout, &template.place, None, &template.pragma, None);
                let branch_matched = matcher.matches(subject, None);
                let entry = template.pipelines.get(pipeline);
                looks.push(look(Some(name.clone()), &template.place, matcher, branch_matched, entry.is_some()));
                if let (true, Some(entry)) = (branch_matched, entry) {
                    present = true;
                    config.merge(entry, &template.place);
                    config.add_vars(Some(name), &template.place, &template.vars);
                }
            }
        }
        config.add_vars(None, &stanza.place, &stanza.vars);
        let entry = stanza.pipelines.get(pipeline);
        looks.push(look(None, &stanza.place, matcher, true, entry.is_some()));
        if let Some(entry) = entry {
            present = true;
            config.merge(entry, &stanza.place);
        }
    }
    config.take_parameters(&subject.parameters);
    Ok(present.then_some(config))
}

impl PipelineConfig {
    fn add_vars(&mut self, template: Option<&str>, place: &Place, vars: &BTreeMap<String, Value>) {
        if !vars.is_empty() {
            let (template, place) = (template.map(str::to_owned), place.clone());
            self.vars.push(ProjectVars { template, place, vars: vars.clone() });
        }
    }

    /// What is given for parameters goes above the variables of project and templates. Zuul: what is not declared, or is
    /// none of the values listed, is left out without a word.
    fn take_parameters(&mut self, given: &BTreeMap<String, Value>) {
        let mut vars: Vec<ProjectVars> = Vec::new();
        for (name, value) in given {
            let declared = self.declared.iter().find(|(one, _)| one.name == *name);
            let taken = declared.map(|(one, _)| one.take(value));
            let place = declared.map(|(_, place)| place.clone());
            let left_out = match &taken {
                Some(Ok(_)) => None,
                Some(Err(why)) => Some(why.clone()),
                None => Some("nothing that is for this branch declares it for the pipeline".to_owned()),
            };
            if let (Some(Ok(value)), Some(place)) = (taken, &place) {
                let map = BTreeMap::from([(name.clone(), value)]);
                vars.push(ProjectVars { template: None, place: place.clone(), vars: map });
            }
            self.parameters.push(ParameterLook { name: name.clone(), given: value.clone(), place, left_out });
        }
        self.vars.append(&mut vars);
    }

    /// Adds one entry. Zuul: a variant that the same stanza has brought before counts once.
    fn merge(&mut self, entry: &ProjectPipeline, origin: &Place) {
        for job in &entry.jobs {
            if !self.variants.contains_key(&job.name) {
                self.order.push(job.name.clone());
            }
            let variants = self.variants.entry(job.name.clone()).or_default();
            let origins = self.origins.entry(job.name.clone()).or_default();
            let mut known = variants.iter().zip(origins.iter());
            if !known.any(|(other, from)| from == origin && same_variant(other, job)) {
                variants.push(job.clone());
                origins.push(origin.clone());
            }
        }
        let mut declared: Vec<(Parameter, Place)> = Vec::new();
        for parameter in entry.parameters.iter().filter_map(Parameter::read) {
            // Zuul: of two in one list the last counts.
            declared.retain(|(known, _)| known.name != parameter.name);
            declared.push((parameter, entry.place.clone()));
        }
        declared.retain(|(one, _)| !self.declared.iter().any(|(known, _)| known.name == one.name));
        self.declared.append(&mut declared);
        self.debug |= entry.debug;
        self.fail_fast = self.fail_fast.or(entry.fail_fast);
    }
}

/// Whether two variants say the same.
fn same_variant(left: &JobDefinition, right: &JobDefinition) -> bool {
    left.branches == right.branches
        && left.parent == right.parent
        && left.description == right.description
        && left.settings.len() == right.settings.len()
        && left
            .settings
            .iter()
            .zip(&right.settings)
            .all(|((left, a), (right, b))| left == right && a.value == b.value && a.mode == b.mode)
}

/// Branches to look at instead of the subject's: for one project, or for all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides<'a> {
    all: Option<&'a str>,
    by_project: BTreeMap<&'a str, &'a str>,
}

impl<'a> Overrides<'a> {
    /// Those of the variants of a project's list.
    pub(crate) fn of_variants(
        layout: &'a Layout,
        subject: &FreezeSubject,
        variants: &'a [Shared<JobDefinition>],
    ) -> Self {
        let mut overrides = Overrides::default();
        for variant in variants.iter().filter(|variant| says_override(variant)) {
            let matcher =
                definition_matcher(layout, &variant.place, variant.branches.as_deref(), &variant.pragma, true);
            if matcher.matches(subject, None) {
                overrides.add(layout, variant);
            }
        }
        overrides
    }

    fn add(&mut self, layout: &'a Layout, definition: &'a JobDefinition) {
        if let Some(AttributeValue::Text(checkout)) = definition.value(JobAttribute::OverrideCheckout) {
            self.all = Some(checkout);
        }
        if let Some(AttributeValue::Projects(projects)) = definition.value(JobAttribute::RequiredProjects) {
            for used in projects {
                if let (Some(checkout), Ok(project)) = (&used.override_checkout, layout.project(&used.name)) {
                    self.by_project.insert(&project.canonical_name, checkout);
                }
            }
        }
    }

    /// The branch to look at for jobs of a project, if it has that branch.
    fn branch_for(&self, layout: &Layout, project: &str) -> Option<&'a str> {
        let branch = self.by_project.get(project).copied().or(self.all)?;
        let known = layout.projects.get(project)?;
        known.branches.iter().any(|known| known == branch).then_some(branch)
    }
}

/// Whether a definition has anything to say about branches to look at.
fn says_override(definition: &JobDefinition) -> bool {
    let settings = &definition.settings;
    settings.contains_key(&JobAttribute::OverrideCheckout) || settings.contains_key(&JobAttribute::RequiredProjects)
}

/// Most jobs in one chain of parents; more is a configuration gone wrong.
const MAX_CHAIN: usize = 200;

/// Collects the definitions that make up a job, in the order in which they are applied: depth first
/// up the parents, all matching variants at each level.
pub(crate) struct Collector<'a> {
    pub layout: &'a Layout,
    pub subject: &'a FreezeSubject,
    pub found: Vec<Shared<JobDefinition>>,
    visited: Vec<Shared<String>>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(layout: &'a Layout, subject: &'a FreezeSubject) -> Self {
        Collector { layout, subject, found: Vec::new(), visited: Vec::new() }
    }

    /// Collects a job and its ancestors. `Ok(Some(name))` names the job of which no definition
    /// matched.
    pub(crate) fn collect(
        &mut self,
        name: &str,
        stack: &mut Vec<Shared<String>>,
        overrides: &Overrides<'a>,
        trace: &mut JobTrace,
    ) -> Result<Option<String>, Refusal> {
        let shared = Shared::new(name.to_owned());
        self.visited.push(shared.clone());
        stack.push(shared.clone());
        let layout = self.layout;
        let definitions = layout.definitions(name);
        let instead = definitions.first().and_then(|first| overrides.branch_for(layout, &first.place.context.project));
        let mut matched = false;
        // Zuul: what one definition overrides counts for the parents of those after it, too.
        let mut local = overrides.clone();
        for definition in definitions {
            let matcher = definition_matcher(
                self.layout,
                &definition.place,
                definition.branches.as_deref(),
                &definition.pragma,
                false,
            );
            let answer = matcher.matches(self.subject, instead);
            trace.looks.push(DefinitionLook {
                job: shared.clone(),
                place: definition.place.clone(),
                depth: u32::try_from(stack.len()).unwrap_or(u32::MAX),
                matcher,
                instead: instead.map(str::to_owned),
                matched: answer,
            });
            if !answer {
                continue;
            }
            matched = true;
            let parent = match &definition.parent {
                Parent::Base => None,
                Parent::Named(parent) => Some(parent.clone()),
                // Zuul: only the first definition of all gets the default parent.
                Parent::Default if self.found.is_empty() => Some(self.layout.default_parent.clone()),
                Parent::Default => None,
            };
            local.add(layout, definition);
            // Zuul: one without a name is none.
            let parent = parent.filter(|parent| !parent.is_empty());
            // Zuul: a job that has been looked at is passed over, which ends every circle.
            if let Some(parent) = parent.filter(|parent| !self.visited.iter().any(|known| **known == *parent)) {
                if stack.len() > MAX_CHAIN {
                    let message = format!("the job {name} has more than {MAX_CHAIN} ancestors");
                    let problem = Problem::error("job-parent-chain", UNKNOWN, definition.place.clone(), message);
                    return Err(problem.cure("shorten the chain of parents").into());
                }
                if let Some(missing) = self.collect(&parent, stack, &local, trace)? {
                    return Ok(Some(missing));
                }
            }
            if !self.found.iter().any(|other| other.is_same(definition) || other == definition) {
                self.found.push(definition.clone());
            }
        }
        stack.pop();
        Ok(if matched { None } else { Some(name.to_owned()) })
    }
}
