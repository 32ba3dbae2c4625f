//! Why a job is what it is, or why it is not there.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::objects::JobAttribute;
use crate::place::Place;

/// One look at a stanza, template or definition: did it count, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// What was looked at: `project stanza`, `template NAME`, `job NAME`, `job NAME in the project`.
    pub what: String,
    /// Where it stands.
    pub place: Place,
    /// Whether it counted.
    pub matched: bool,
    /// Stable identifier of the reason.
    pub code: String,
    /// The reason, one sentence.
    pub reason: String,
    /// For definitions: the chain of jobs that led here, the job asked for first.
    pub path: Vec<String>,
}

/// What a definition did to an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Nobody had set it.
    Set,
    /// It took the place of an earlier value.
    Replaced,
    /// It joined an earlier value.
    Merged,
    /// It was refused.
    Refused,
    /// It was set by a rule, not by a stanza.
    Ruled,
}

/// One step in the life of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeStep {
    /// The attribute, as it is written.
    pub attribute: String,
    /// Who.
    pub place: Place,
    /// What it did.
    pub action: Action,
    /// The value given, as JSON text.
    pub value: String,
    /// Who had set it before.
    pub before: Option<Place>,
    /// Why, where a rule or a refusal needs words.
    pub reason: String,
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobFate {
    /// It runs.
    Runs,
    /// It is absent.
    Absent,
    /// It stops the whole graph.
    Refused,
}

/// All there is to say about one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTrace {
    /// The job.
    pub name: String,
    /// What became of it.
    pub fate: JobFate,
    /// Stable identifier of the reason.
    pub code: String,
    /// The reason, one sentence.
    pub reason: String,
    /// Definitions looked at, in the order of looking.
    pub looks: Vec<Look>,
    /// Definitions applied, in the order of applying.
    pub applied: Vec<Look>,
    /// What each did to which attribute.
    pub attributes: Vec<AttributeStep>,
    /// What the file matchers said, and what overruled them.
    pub files: Vec<Look>,
}

impl JobTrace {
    pub(crate) fn new(name: &str) -> Self {
        JobTrace {
            name: name.to_owned(),
            fate: JobFate::Absent,
            code: String::new(),
            reason: String::new(),
            looks: Vec::new(),
            applied: Vec::new(),
            attributes: Vec::new(),
            files: Vec::new(),
        }
    }

    pub(crate) fn settle(&mut self, fate: JobFate, code: &str, reason: impl Into<String>) {
        self.fate = fate;
        self.code = code.to_owned();
        self.reason = reason.into();
    }

    /// The steps of one attribute.
    pub fn steps(&self, attribute: JobAttribute) -> impl Iterator<Item = &AttributeStep> {
        let name = attribute.row().name;
        self.attributes.iter().filter(move |step| step.attribute == name)
    }
}

/// The whole story of one freezing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeTrace {
    /// The project, by its canonical name.
    pub project: String,
    /// The branch or ref.
    pub branch: String,
    /// The pipeline.
    pub pipeline: String,
    /// Stanzas and templates looked at.
    pub stanzas: Vec<Look>,
    /// Jobs considered, in the order of the graph.
    pub jobs: Vec<JobTrace>,
}

impl FreezeTrace {
    /// The story of one job.
    pub fn job(&self, name: &str) -> Option<&JobTrace> {
        self.jobs.iter().find(|job| job.name == name)
    }

    /// The story of one job for people; none when nobody asked for that job.
    pub fn render(&self, name: &str) -> Option<String> {
        let job = self.job(name)?;
        let mut out = String::new();
        let fate = match job.fate {
            JobFate::Runs => "runs",
            JobFate::Absent => "does not run",
            JobFate::Refused => "cannot run",
        };
        // Writing to a String does not fail.
        let _ = writeln!(out, "{name} {fate} for {} {} in {}", self.project, self.branch, self.pipeline);
        let _ = writeln!(out, "  {} [{}]", job.reason, job.code);
        let section = |out: &mut String, title: &str, looks: &[Look]| {
            if !looks.is_empty() {
                let _ = writeln!(out, "{title}:");
            }
            for look in looks {
                let sign = if look.matched { '+' } else { '-' };
                let indent = "  ".repeat(look.path.len());
                let _ = writeln!(out, "  {sign} {indent}{} ({})", look.what, look.place);
                let _ = writeln!(out, "    {indent}{} [{}]", look.reason, look.code);
            }
        };
        section(&mut out, "project stanzas and templates", &self.stanzas);
        section(&mut out, "definitions looked at", &job.looks);
        if !job.applied.is_empty() {
            let _ = writeln!(out, "definitions applied, in order:");
        }
        for (index, look) in job.applied.iter().enumerate() {
            let _ = writeln!(out, "  {index}. {} ({})", look.what, look.place);
        }
        if !job.attributes.is_empty() {
            let _ = writeln!(out, "attributes:");
        }
        for step in &job.attributes {
            let what = match step.action {
                Action::Set => "set",
                Action::Replaced => "replaced",
                Action::Merged => "added to",
                Action::Refused => "REFUSED",
                Action::Ruled => "ruled",
            };
            let before = step.before.as_ref().map(|place| format!(", before: {place}")).unwrap_or_default();
            let why = if step.reason.is_empty() { String::new() } else { format!(" ({})", step.reason) };
            let _ = writeln!(out, "  {} {what} by {}{before}: {}{why}", step.attribute, step.place, step.value);
        }
        section(&mut out, "file matchers", &job.files);
        Some(out)
    }

    /// The whole story as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::json;
        let look = |look: &Look| {
            json!({"what": look.what, "place": look.place.to_string(), "matched": look.matched, "code": look.code,
                   "reason": look.reason, "path": look.path})
        };
        let looks = |all: &[Look]| all.iter().map(look).collect::<Vec<_>>();
        json!({
            "project": self.project, "branch": self.branch, "pipeline": self.pipeline,
            "stanzas": looks(&self.stanzas),
            "jobs": self.jobs.iter().map(|job| json!({
                "name": job.name,
                "fate": format!("{:?}", job.fate).to_lowercase(),
                "code": job.code, "reason": job.reason,
                "looks": looks(&job.looks), "applied": looks(&job.applied), "files": looks(&job.files),
                "attributes": job.attributes.iter().map(|step| json!({
                    "attribute": step.attribute, "place": step.place.to_string(),
                    "action": format!("{:?}", step.action).to_lowercase(), "value": step.value,
                    "before": step.before.as_ref().map(ToString::to_string), "reason": step.reason,
                })).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        })
    }
}
