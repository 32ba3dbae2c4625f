//! Why a job runs, or not, and where each of its values comes from: the trace of a freezing, and for a
//! job nobody asked for where it is asked for instead.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::matchers::stanza_matcher;
use super::trace::FreezeTrace;
use super::{FreezeOptions, FreezeOutcome, FreezeSubject, freeze};
use crate::layout::Layout;
use crate::objects::job::JobDefinition;
use crate::objects::project::ProjectPipeline;
use crate::place::Place;
use crate::problem::{Problem, did_you_mean};
use crate::shared::Shared;

/// An explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The job.
    pub job: String,
    /// Whether it runs.
    pub runs: bool,
    /// The trace of the freezing.
    pub trace: FreezeTrace,
    /// Why the whole graph is refused, if it is.
    pub refused: Option<Problem>,
    /// For a job nobody asks for here: what is known of it, one sentence each.
    pub hints: Vec<String>,
}

/// Explains one job of a subject in a pipeline.
pub fn explain(
    layout: &Layout,
    subject: &FreezeSubject,
    pipeline: &str,
    job: &str,
    options: FreezeOptions<'_>,
) -> Explanation {
    let outcome = freeze(layout, subject, pipeline, options);
    let runs = outcome.graph().is_some_and(|graph| graph.job(job).is_some());
    let (trace, refused) = match outcome {
        FreezeOutcome::Refused { problem, trace } => (trace, Some(problem)),
        FreezeOutcome::Frozen { trace, .. }
        | FreezeOutcome::NoJobs { trace }
        | FreezeOutcome::NotInPipeline { trace } => (trace, None),
    };
    let hints = if trace.job(job).is_none() { hints(layout, subject, pipeline, job) } else { Vec::new() };
    Explanation { job: job.to_owned(), runs, trace, refused, hints }
}

impl Explanation {
    /// The explanation for people.
    pub fn render(&self) -> String {
        let FreezeTrace { project, branch, pipeline, .. } = &self.trace;
        let mut out = self.trace.render(&self.job).unwrap_or_else(|| {
            let job = &self.job;
            let mut out = format!("{job} does not run for {project} {branch} in {pipeline}\n");
            // Writing to a String does not fail.
            let _ = match &self.refused {
                Some(_) => writeln!(out, "  the freezing ended before it came to this job [not-reached]"),
                None => writeln!(out, "  no stanza or template that counts here lists it [not-asked-for]"),
            };
            self.trace.render_stanzas(&mut out);
            out
        });
        if !self.hints.is_empty() {
            out.push_str("what else is known of it:\n");
        }
        for hint in &self.hints {
            let _ = writeln!(out, "  {hint}");
        }
        if let Some(problem) = &self.refused {
            out.push_str("the whole graph is refused:\n");
            for line in problem.to_string().lines() {
                let _ = writeln!(out, "  {line}");
            }
        }
        out
    }

    /// The explanation for programs.
    pub fn to_json(&self) -> Json {
        let whole = self.trace.to_json();
        json!({
            "project": self.trace.project, "branch": self.trace.branch, "pipeline": self.trace.pipeline,
            "name": self.job, "runs": self.runs,
            "stanzas": whole["stanzas"],
            "job": self.trace.story(&self.job).map_or(Json::Null, |story| story.to_json()),
            "hints": self.hints,
            "problem": self.refused.as_ref().map_or(Json::Null, Problem::to_json),
        })
    }
}

/// What is known of a job nobody asks for: that it is not there, or who would ask for it.
fn hints(layout: &Layout, subject: &FreezeSubject, pipeline: &str, job: &str) -> Vec<String> {
    let mut hints = Vec::new();
    if !layout.projects.contains_key(&subject.project) {
        hints.push(format!("the tenant has no project {}", subject.project));
    }
    if !layout.pipelines.contains_key(pipeline) {
        let near = did_you_mean(pipeline, layout.pipelines.keys().map(String::as_str));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        hints.push(format!("the tenant has no pipeline {pipeline}{near}"));
    }
    match layout.definitions(job).first() {
        Some(first) => hints.push(format!("it is defined at {}", first.place)),
        None => {
            let near = did_you_mean(job, layout.jobs.keys().map(String::as_str));
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            hints.push(format!("no job of that name is defined{near}"));
        }
    }
    for stanza in layout.stanzas.get(&subject.project).map_or(&[][..], Vec::as_slice) {
        let matcher =
            stanza_matcher(layout, &stanza.place, stanza.branches.as_deref(), &stanza.pragma, Some(&subject.project));
        let stanza_counts = matcher.matches(subject, None);
        let whole = format!("project stanza ({})", stanza.place);
        listed(&mut hints, &whole, stanza_counts, stanza.pipelines.iter(), pipeline, job);
        for name in &stanza.templates {
            for template in layout.templates.get(name).into_iter().flatten() {
                let matcher = stanza_matcher(layout, &template.place, None, &template.pragma, None);
                let counts = stanza_counts && matcher.matches(subject, None);
                let whole = format!("template {name} ({}), used at {}", template.place, stanza.place);
                listed(&mut hints, &whole, counts, template.pipelines.iter(), pipeline, job);
            }
        }
    }
    hints
}

fn listed<'a>(
    hints: &mut Vec<String>,
    whole: &str,
    counts: bool,
    entries: impl Iterator<Item = (&'a String, &'a ProjectPipeline)>,
    pipeline: &str,
    job: &str,
) {
    let at = |entry: &ProjectPipeline| -> Option<Place> {
        let found: Option<&Shared<JobDefinition>> = entry.jobs.iter().find(|one| one.name == job);
        found.map(|one| one.place.clone())
    };
    for (name, entry) in entries {
        let Some(place) = at(entry) else { continue };
        if name != pipeline {
            let but = if counts { "" } else { ", which is not for this branch either" };
            hints.push(format!("pipeline {name} lists it, at {place}, in {whole}{but}"));
        } else if !counts {
            hints.push(format!("it is listed at {place}, but that is not for this branch: {whole}"));
        }
    }
}
