//! Which stanzas, and which definitions of which jobs, apply: late-bound inheritance.

use std::collections::BTreeMap;

use gatelog_record::Value;

use super::apply::deep_merge;
use super::matchers::{definition_matcher, stanza_matcher};
use super::trace::{JobTrace, Look};
use super::{FreezeSubject, Refusal};
use crate::layout::Layout;
use crate::objects::JobDefinition;
use crate::objects::job::{JobAttribute, Parent};
use crate::objects::job_parts::AttributeValue;
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
    /// Variables of stanzas and templates.
    pub vars: BTreeMap<String, Value>,
}

/// Merges what the stanzas of the subject's project say for a pipeline; none when no stanza that
/// matches speaks of it.
pub(crate) fn pipeline_config(
    layout: &Layout,
    subject: &FreezeSubject,
    pipeline: &str,
    looks: &mut Vec<Look>,
) -> Result<Option<PipelineConfig>, Refusal> {
    let mut config = PipelineConfig::default();
    let mut present = false;
    for stanza in layout.stanzas.get(&subject.project).map_or(&[][..], Vec::as_slice) {
        let matcher =
            stanza_matcher(layout, &stanza.place, stanza.branches.as_deref(), &stanza.pragma, Some(&subject.project));
        let answer = matcher.matches(subject, None);
        let look = |what: String, place, matched, code: &str, reason: String| Look {
            what,
            place,
            matched,
            code: code.to_owned(),
            reason,
            path: Vec::new(),
        };
        let what = "project stanza".to_owned();
        if !answer.matched {
            looks.push(look(what, stanza.place.clone(), false, answer.code, answer.reason));
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
                let what = format!("template {name}");
                let answer =
                    stanza_matcher(layout, &template.place, None, &template.pragma, None).matches(subject, None);
                match template.pipelines.get(pipeline) {
                    _ if !answer.matched => {
                        looks.push(look(what, template.place.clone(), false, answer.code, answer.reason));
                    }
                    None => {
                        let reason = format!("it says nothing for pipeline {pipeline}");
                        looks.push(look(what, template.place.clone(), false, "pipeline-absent", reason));
                    }
                    Some(entry) => {
                        looks.push(look(what, template.place.clone(), true, answer.code, answer.reason));
                        present = true;
                        config.merge(entry, &template.place);
                        deep_merge(&mut config.vars, &template.vars);
                    }
                }
            }
        }
        deep_merge(&mut config.vars, &stanza.vars);
        match stanza.pipelines.get(pipeline) {
            Some(entry) => {
                looks.push(look(what, stanza.place.clone(), true, answer.code, answer.reason));
                present = true;
                config.merge(entry, &stanza.place);
            }
            None => {
                let reason = format!("{}; it says nothing itself for pipeline {pipeline}", answer.reason);
                looks.push(look(what, stanza.place.clone(), false, "pipeline-absent", reason));
            }
        }
    }
    Ok(present.then_some(config))
}

impl PipelineConfig {
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
pub(crate) struct Overrides {
    all: Option<String>,
    by_project: BTreeMap<String, String>,
}

impl Overrides {
    /// Those of the variants of a project's list.
    pub(crate) fn of_variants(layout: &Layout, subject: &FreezeSubject, variants: &[Shared<JobDefinition>]) -> Self {
        let mut overrides = Overrides::default();
        for variant in variants {
            let matcher =
                definition_matcher(layout, &variant.place, variant.branches.as_deref(), &variant.pragma, true);
            if matcher.matches(subject, None).matched {
                overrides.add(layout, variant);
            }
        }
        overrides
    }

    fn add(&mut self, layout: &Layout, definition: &JobDefinition) {
        if let Some(AttributeValue::Text(checkout)) = definition.value(JobAttribute::OverrideCheckout) {
            self.all = Some(checkout.clone());
        }
        if let Some(AttributeValue::Projects(projects)) = definition.value(JobAttribute::RequiredProjects) {
            for used in projects {
                if let (Some(checkout), Ok(project)) = (&used.override_checkout, layout.project(&used.name)) {
                    self.by_project.insert(project.canonical_name.clone(), checkout.clone());
                }
            }
        }
    }

    /// The branch to look at for jobs of a project, if it has that branch.
    fn branch_for(&self, layout: &Layout, project: &str) -> Option<&str> {
        let branch = self.by_project.get(project).or(self.all.as_ref())?;
        let known = layout.projects.get(project)?;
        known.branches.contains(branch).then_some(branch.as_str())
    }
}

/// Most jobs in one chain of parents; more is a configuration gone wrong.
const MAX_CHAIN: usize = 200;

/// Collects the definitions that make up a job, in the order in which they are applied: depth first
/// up the parents, all matching variants at each level.
pub(crate) struct Collector<'a> {
    pub layout: &'a Layout,
    pub subject: &'a FreezeSubject,
    pub found: Vec<Shared<JobDefinition>>,
    visited: Vec<String>,
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
        stack: &mut Vec<String>,
        overrides: &Overrides,
        trace: &mut JobTrace,
    ) -> Result<Option<String>, Refusal> {
        self.visited.push(name.to_owned());
        stack.push(name.to_owned());
        let definitions = self.layout.definitions(name);
        let instead = definitions
            .first()
            .and_then(|first| overrides.branch_for(self.layout, &first.place.context.project))
            .map(str::to_owned);
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
            let answer = matcher.matches(self.subject, instead.as_deref());
            let reason = match &instead {
                Some(_) => format!("{} (override-checkout)", answer.reason),
                None => answer.reason,
            };
            trace.looks.push(Look {
                what: format!("job {name}"),
                place: definition.place.clone(),
                matched: answer.matched,
                code: answer.code.to_owned(),
                reason,
                path: stack.clone(),
            });
            if !answer.matched {
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
            local.add(self.layout, definition);
            // Zuul: a job that has been looked at is passed over, which ends every circle.
            if let Some(parent) = parent.filter(|parent| !self.visited.contains(parent)) {
                if stack.len() > MAX_CHAIN {
                    let message = format!("the job {name} has more than {MAX_CHAIN} ancestors");
                    let problem = Problem::error("job-parent-chain", UNKNOWN, definition.place.clone(), message);
                    return Err(problem.cure("shorten the chain of parents").into());
                }
                if let Some(missing) = self.collect(&parent, stack, &local, trace)? {
                    return Ok(Some(missing));
                }
            }
            if !self.found.iter().any(|other| other == definition) {
                self.found.push(definition.clone());
            }
        }
        stack.pop();
        Ok(if matched { None } else { Some(name.to_owned()) })
    }
}
