//! A trace in words: for people, and for programs as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gatelog_record::Value;

use super::fold;
use super::matchers::FileAnswer;
use super::trace::{
    Action, DefinitionLook, Effect, FileLook, FreezeTrace, JobFate, JobTrace, ParameterLook, StanzaLook, Step,
};
use crate::objects::job::{JobAttribute, JobDefinition, Mode};
use crate::objects::job_parts::AttributeValue;
use crate::place::Place;

/// One look at a stanza, template or definition: did it count, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// What was looked at: `project stanza`, `template NAME`, `job NAME`, `job NAME in the project's list`.
    pub what: String,
    /// Where it stands.
    pub place: Place,
    /// Whether it counted.
    pub matched: bool,
    /// Stable identifier of the reason.
    pub code: &'static str,
    /// The reason, one sentence.
    pub reason: String,
    /// For definitions: the chain of jobs that led here, the job asked for first.
    pub path: Vec<String>,
}

/// One step in the life of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// All there is to say about one job, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStory {
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
    /// What each of these attributes came to; of a job that does not run, as far as it came.
    pub comes_to: BTreeMap<String, String>,
    /// What the file matchers said, and what overruled them.
    pub files: Vec<Look>,
}

impl JobStory {
    /// The steps of one attribute.
    pub fn steps(&self, attribute: JobAttribute) -> impl Iterator<Item = &AttributeStep> {
        let name = attribute.row().name;
        self.attributes.iter().filter(move |step| step.attribute == name)
    }
}

impl Action {
    /// The action in words.
    pub fn words(self) -> &'static str {
        match self {
            Action::Set => "set",
            Action::Replaced => "replaced",
            Action::Merged => "added to",
            Action::Refused => "REFUSED",
            Action::Ruled => "ruled",
        }
    }

    /// Stable identifier.
    pub fn code(self) -> &'static str {
        match self {
            Action::Set => "set",
            Action::Replaced => "replaced",
            Action::Merged => "merged",
            Action::Refused => "refused",
            Action::Ruled => "ruled",
        }
    }
}

impl JobFate {
    /// The fate in words.
    pub fn words(self) -> &'static str {
        match self {
            JobFate::Runs => "runs",
            JobFate::Absent => "does not run",
            JobFate::Refused => "cannot run",
        }
    }

    /// Stable identifier.
    pub fn code(self) -> &'static str {
        match self {
            JobFate::Runs => "runs",
            JobFate::Absent => "absent",
            JobFate::Refused => "refused",
        }
    }
}

fn definition_title(definition: &JobDefinition) -> String {
    listed_title(&definition.name, definition.project_pipeline)
}

fn listed_title(name: &str, listed: bool) -> String {
    if listed { format!("job {name} in the project's list") } else { format!("job {name}") }
}

fn template_title(template: Option<&str>) -> String {
    template.map_or_else(|| "project stanza".to_owned(), |name| format!("template {name}"))
}

fn json_text<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    Value::List(texts.map(|text| Value::Str(text.to_owned())).collect()).to_string()
}

impl FreezeTrace {
    /// `branch NAME`, or `ref NAME`.
    fn subject(&self) -> String {
        format!("{} {}", if self.is_ref { "ref" } else { "branch" }, self.branch)
    }

    /// The looks at stanzas and templates, in words.
    pub fn stanza_looks(&self) -> Vec<Look> {
        self.stanzas.iter().map(|look| self.stanza_look(look)).collect()
    }

    fn stanza_look(&self, look: &StanzaLook) -> Look {
        let matched = look.branch_matched && look.names_pipeline;
        let branch = look.matcher.words(look.branch_matched, &self.subject());
        let (code, reason) = match (look.branch_matched, look.names_pipeline, &look.template) {
            (true, false, Some(_)) => ("pipeline-absent", format!("it says nothing for pipeline {}", self.pipeline)),
            (true, false, None) => {
                ("pipeline-absent", format!("{branch}; it says nothing itself for pipeline {}", self.pipeline))
            }
            _ => (look.matcher.code(look.branch_matched), branch),
        };
        let what = template_title(look.template.as_deref());
        Look { what, place: look.place.clone(), matched, code, reason, path: Vec::new() }
    }

    /// The story of one job; none when nobody asked for that job.
    pub fn story(&self, name: &str) -> Option<JobStory> {
        self.job(name).map(|job| self.job_story(job))
    }

    fn job_story(&self, job: &JobTrace) -> JobStory {
        let mut path: Vec<String> = Vec::new();
        let mut looks = Vec::with_capacity(job.looks.len());
        for look in &job.looks {
            // A look of some depth is on the way from the look before it that is one less deep.
            path.truncate(usize::try_from(look.depth.saturating_sub(1)).unwrap_or(usize::MAX));
            if look.depth > 0 {
                path.push((*look.job).clone());
            }
            looks.push(self.definition_look(look, &path));
        }
        let applied = self.applied(job).map(|definition| Look {
            what: definition_title(definition),
            place: definition.place.clone(),
            matched: true,
            code: "applied",
            reason: String::new(),
            path: Vec::new(),
        });
        let (attributes, frozen) = (self.attributes(job), fold::steps(self, job));
        let touched = attributes.iter().filter_map(|step| {
            let attribute = JobAttribute::ALL.iter().find(|known| known.row().name == step.attribute)?;
            let told = match attribute {
                // Whom it waits for is what the rules of the graph have made of it.
                JobAttribute::Dependencies => Some(frozen.waits_for()),
                other => frozen.tell(*other),
            };
            Some((step.attribute.clone(), told?))
        });
        JobStory {
            name: job.name.clone(),
            fate: job.fate,
            code: job.code.clone(),
            reason: job.reason.clone(),
            looks,
            applied: applied.collect(),
            comes_to: touched.collect(),
            attributes,
            files: job.files.iter().map(|look| file_look(job, look)).collect(),
        }
    }

    fn definition_look(&self, look: &DefinitionLook, path: &[String]) -> Look {
        let reason = match &look.instead {
            Some(branch) => {
                format!("{} (override-checkout)", look.matcher.words(look.matched, &format!("branch {branch}")))
            }
            None => look.matcher.words(look.matched, &self.subject()),
        };
        Look {
            what: listed_title(&look.job, look.depth == 0),
            place: look.place.clone(),
            matched: look.matched,
            code: look.matcher.code(look.matched),
            reason,
            path: path.to_vec(),
        }
    }

    fn attributes(&self, job: &JobTrace) -> Vec<AttributeStep> {
        let mut setters: BTreeMap<JobAttribute, Place> = BTreeMap::new();
        let mut told = Vec::new();
        let mut at: Option<&JobDefinition> = None;
        let mut tell = |attribute: JobAttribute, place: Place, action, value: String, reason: &str| {
            let before = match action {
                Action::Refused => setters.get(&attribute).cloned(),
                _ => setters.insert(attribute, place.clone()),
            };
            let (attribute, reason) = (attribute.row().name.to_owned(), reason.to_owned());
            told.push(AttributeStep { attribute, place, action, value, before, reason });
        };
        for step in &job.steps {
            match step {
                Step::Begin { definition, .. } => at = self.definition(*definition).map(|definition| &**definition),
                Step::Attribute { attribute, action, effect, reason } => {
                    let Some(definition) = at else { continue };
                    let place = match action {
                        Action::Ruled => definition.place.clone(),
                        _ => definition.place_of(*attribute),
                    };
                    let reason = match (action, effect) {
                        (Action::Ruled, Effect::Roles(_)) => "a definition brings the roles of its repository",
                        _ => reason,
                    };
                    tell(*attribute, place, *action, value(definition, *attribute, effect), reason);
                }
                Step::ProjectVars => {
                    let given = self.parameters.iter().filter(|one| one.left_out.is_none()).count();
                    for (at, vars) in self.vars.iter().enumerate() {
                        let title = template_title(vars.template.as_deref());
                        let reason = match at + given >= self.vars.len() {
                            false => format!("variables of a {title} go below those of its jobs"),
                            true => "given for a parameter: above the project's variables, below the job's".to_owned(),
                        };
                        let value = Value::Map(vars.vars.clone()).to_string();
                        tell(JobAttribute::Vars, vars.place.clone(), Action::Ruled, value, &reason);
                    }
                }
                Step::Rule { attribute, place, effect, reason } => {
                    let (value, reason) = match effect {
                        Effect::Ansible(version) => (
                            json_text(std::iter::once(version.as_str())),
                            "nobody sets it, so it is the tenant's default",
                        ),
                        Effect::WaitFor(name) => (format!("\"{name} (soft)\""), reason.as_str()),
                        Effect::Forget(name) => (format!("\"{name}\""), reason.as_str()),
                        Effect::Playbook(playbook) => {
                            let path = json_text(std::iter::once(playbook.path.as_str()));
                            tell(*attribute, place.clone().unwrap_or_default(), Action::Ruled, path, reason);
                            continue;
                        }
                        _ => (String::new(), reason.as_str()),
                    };
                    let value = value.trim_start_matches('[').trim_end_matches(']').to_owned();
                    tell(*attribute, place.clone().unwrap_or_default(), Action::Ruled, value, reason);
                }
            }
        }
        told
    }

    /// The story of one job for people; none when nobody asked for that job.
    pub fn render(&self, name: &str) -> Option<String> {
        let job = self.story(name)?;
        let mut out = String::new();
        // Writing to a String does not fail.
        let _ = writeln!(out, "{name} {} for {} {} in {}", job.fate.words(), self.project, self.branch, self.pipeline);
        let _ = writeln!(out, "  {} [{}]", job.reason, job.code);
        self.render_stanzas(&mut out);
        section(&mut out, "parameters given", &self.parameter_looks());
        section(&mut out, "definitions looked at", &job.looks);
        if !job.applied.is_empty() {
            let _ = writeln!(out, "definitions applied, in order:");
        }
        for (index, look) in job.applied.iter().enumerate() {
            let _ = writeln!(out, "  {index}. {} ({})", look.what, look.place);
        }
        job.render_attributes(&mut out);
        section(&mut out, "file matchers", &job.files);
        Some(out)
    }

    fn parameter_looks(&self) -> Vec<Look> {
        let look = |one: &ParameterLook| Look {
            what: format!("{} = {}", one.name, one.given),
            place: one.place.clone().unwrap_or_default(),
            matched: one.left_out.is_none(),
            code: if one.left_out.is_none() { "parameter-taken" } else { "parameter-left-out" },
            reason: one.left_out.clone().unwrap_or_else(|| "a variable of every job".to_owned()),
            path: Vec::new(),
        };
        self.parameters.iter().map(look).collect()
    }

    pub(crate) fn render_stanzas(&self, out: &mut String) {
        section(out, "project stanzas and templates", &self.stanza_looks());
    }

    /// The whole story as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::json;
        json!({
            "project": self.project, "branch": self.branch, "pipeline": self.pipeline,
            "stanzas": looks_json(&self.stanza_looks()), "parameters": looks_json(&self.parameter_looks()),
            "jobs": self.jobs.iter().map(|job| self.job_story(job).to_json()).collect::<Vec<_>>(),
        })
    }
}

impl JobStory {
    /// What became of each attribute, and under it who did what to it, in order.
    fn render_attributes(&self, out: &mut String) {
        let mut names: Vec<&str> = Vec::new();
        for step in &self.attributes {
            if !names.contains(&step.attribute.as_str()) {
                names.push(&step.attribute);
            }
        }
        if !names.is_empty() {
            out.push_str("attributes:\n");
        }
        for name in names {
            // Writing to a String does not fail.
            let _ = match self.comes_to.get(name).filter(|value| !value.is_empty()) {
                Some(value) => writeln!(out, "  {name}: {value}"),
                None => writeln!(out, "  {name}:"),
            };
            for step in self.attributes.iter().filter(|step| step.attribute == name) {
                let what = step.action.words();
                let place = if step.place == Place::default() { String::new() } else { format!(" by {}", step.place) };
                let value = if step.value.is_empty() { String::new() } else { format!(": {}", step.value) };
                let why = if step.reason.is_empty() { String::new() } else { format!(" ({})", step.reason) };
                let _ = writeln!(out, "    {what}{place}{value}{why}");
            }
        }
    }

    /// The story as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::json;
        json!({
            "name": self.name, "fate": self.fate.code(), "code": self.code, "reason": self.reason,
            "looks": looks_json(&self.looks), "applied": looks_json(&self.applied), "files": looks_json(&self.files),
            "comes_to": self.comes_to,
            "attributes": self.attributes.iter().map(|step| json!({
                "attribute": step.attribute, "place": step.place.to_string(), "action": step.action.code(),
                "value": step.value, "before": step.before.as_ref().map(ToString::to_string), "reason": step.reason,
            })).collect::<Vec<_>>(),
        })
    }
}

fn looks_json(all: &[Look]) -> serde_json::Value {
    all.iter()
        .map(|look| {
            serde_json::json!({"what": look.what, "place": look.place.to_string(), "matched": look.matched,
                "code": look.code, "reason": look.reason, "path": look.path})
        })
        .collect()
}

fn section(out: &mut String, title: &str, looks: &[Look]) {
    if !looks.is_empty() {
        let _ = writeln!(out, "{title}:");
    }
    for look in looks {
        let sign = if look.matched { '+' } else { '-' };
        let indent = "  ".repeat(look.path.len());
        let _ = writeln!(out, "  {sign} {indent}{} ({})", look.what, look.place);
        let _ = writeln!(out, "    {indent}{} [{}]", look.reason, look.code);
    }
}

fn file_look(job: &JobTrace, look: &FileLook) -> Look {
    let (matched, code, reason) = match look {
        FileLook::Matchers(answer) => (answer.matched(), answer.code(), FileAnswer::words(answer)),
        FileLook::JobFileChanged(path) => {
            (true, "job-file-changed", format!("the change touches {path}, which the job uses"))
        }
        FileLook::JobChanged => (true, "job-changed", "the change alters the definition of the job".to_owned()),
        FileLook::Forced { by } => {
            (true, "forced-by-dependent", format!("job {by} depends on it, which overrules its file matchers"))
        }
        FileLook::Shared => (true, FileLook::SHARED, FileLook::shared_words()),
    };
    Look { what: format!("job {}", job.name), place: job.place.clone(), matched, code, reason, path: Vec::new() }
}

/// The value a definition gives, as JSON text with its tag; of a rule the value of the rule.
fn value(definition: &JobDefinition, attribute: JobAttribute, effect: &Effect) -> String {
    match effect {
        Effect::PostReview => return "true".to_owned(),
        Effect::PassSecrets | Effect::InheritSecrets => {
            let all = matches!(effect, Effect::InheritSecrets);
            let passed = definition.secrets().iter().filter(|used| all || used.pass_to_parent);
            return json_text(passed.map(|used| used.name.as_str()));
        }
        Effect::Allow(names) if !definition.settings.contains_key(&attribute) => {
            return json_text(names.iter().map(String::as_str));
        }
        Effect::Roles(all) if !definition.settings.contains_key(&attribute) => {
            return json_text(all.iter().map(|role| role.project.as_str()));
        }
        _ => {}
    }
    let Some(setting) = definition.settings.get(&attribute) else { return String::new() };
    let tag = match setting.mode {
        Mode::Usual => "",
        Mode::Override => "!override ",
        Mode::Inherit => "!inherit ",
    };
    // Machines by name: what they come to is what one wants to know, too.
    let machines = match (&setting.value, effect) {
        (AttributeValue::NodesetName(_), Effect::Nodesets(nodesets)) => {
            let shown: Vec<String> = nodesets.iter().map(|nodeset| nodeset.shape.tell()).collect();
            format!(" ({})", shown.join(" or "))
        }
        _ => String::new(),
    };
    format!("{tag}{}{machines}", setting.value.to_value())
}
