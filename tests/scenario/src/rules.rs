//! What builds result in: the scenario's `job` rules, and which builds a `release` lets go.

use gatelog_record::Value;
use regex::Regex;

use crate::file::{Step, text};
use crate::observe::Build;

/// One `job` rule.
pub struct Rule {
    job: Option<Regex>,
    change: Option<String>,
    only: bool,
    pipeline: Option<String>,
    project: Option<String>,
    /// What the build results in.
    pub result: String,
    /// What the job returns.
    pub data: Value,
    times: Option<i64>,
}

fn whole(pattern: Option<String>) -> Result<Option<Regex>, String> {
    let Some(pattern) = pattern else { return Ok(None) };
    Regex::new(&format!("^(?:{pattern})$")).map(Some).map_err(|error| format!("{pattern:?}: {error}"))
}

fn named(wanted: &str, entries: &[String]) -> bool {
    let mut flat = entries.iter().flat_map(|entry| entry.split('+'));
    flat.any(|name| name == wanted || name.rsplit_once(',').is_some_and(|(name, _)| name == wanted))
}

/// What is tested itself: the last change, or the members of a cycle that the build belongs to.
fn own(build: &Build) -> Vec<String> {
    match build.for_members.is_empty() {
        true => build.changes.last().cloned().into_iter().collect(),
        false => build.for_members.clone(),
    }
}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// When a pattern is no regular expression.
    pub fn read(step: &Step) -> Result<Rule, String> {
        Ok(Rule {
            job: whole(step.text("job"))?,
            change: step.text("change"),
            only: step.get("only").and_then(Value::as_bool).unwrap_or(false),
            pipeline: step.text("pipeline"),
            project: step.text("project"),
            result: step.text("result").unwrap_or_else(|| "SUCCESS".into()),
            data: step.get("data").cloned().unwrap_or_default(),
            times: match step.get("times") {
                Some(Value::Int(times)) => Some(*times),
                _ => None,
            },
        })
    }

    /// Whether the rule is for a build; if so one of its times is used up.
    pub fn takes(&mut self, build: &Build) -> bool {
        let fits = self.job.as_ref().is_none_or(|job| job.is_match(&build.job))
            && self.pipeline.as_ref().is_none_or(|pipeline| *pipeline == build.pipeline)
            && self.project.as_ref().is_none_or(|project| *project == build.project)
            && self.change.as_ref().is_none_or(|change| match self.only {
                true => named(change, &own(build)),
                false => named(change, &build.changes),
            });
        match self.times.as_mut() {
            _ if !fits => false,
            None => true,
            Some(times) if *times > 0 => {
                *times -= 1;
                true
            }
            Some(_) => false,
        }
    }
}

/// Which builds a `release` is about.
pub struct Selection {
    job: Option<Regex>,
    change: Option<String>,
    pipeline: Option<String>,
    project: Option<String>,
}

impl Selection {
    /// Reads a selection.
    ///
    /// # Errors
    /// When a pattern is no regular expression.
    pub fn read(value: &Value) -> Result<Selection, String> {
        let get = |key: &str| value.as_map().and_then(|map| map.get(key)).and_then(text);
        Ok(Selection {
            job: whole(text(value).or_else(|| get("job")))?,
            change: get("change"),
            pipeline: get("pipeline"),
            project: get("project"),
        })
    }

    /// Whether it is about a build.
    pub fn fits(&self, build: &Build) -> bool {
        self.job.as_ref().is_none_or(|job| job.is_match(&build.job))
            && self.pipeline.as_ref().is_none_or(|pipeline| *pipeline == build.pipeline)
            && self.project.as_ref().is_none_or(|project| *project == build.project)
            && self.change.as_ref().is_none_or(|change| named(change, &own(build)))
    }
}
