//! What happened while jobs were frozen, step by step, in few words.
//!
//! The trace is the journal of a freezing: every look at a stanza or definition with its answer, and
//! every step that makes or changes a job. Freezing writes a step down and then takes it
//! ([`fold`](super::fold)), so that folding the trace alone gives the frozen jobs again, byte for
//! byte, and nothing can happen to a job that the trace does not tell. It is written in terms of what
//! was read (definitions, patterns); [`story`](super::story) puts it into words when somebody asks.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use super::graph::{FrozenNodeset, FrozenRole, Playbook, RequiredProject};
use super::matchers::{BranchMatcher, FileAnswer};
use crate::objects::job_parts::{IncludeVars, ProjectFilter};
use crate::objects::{JobAttribute, JobDefinition};
use crate::place::{Place, SourceContext};
use crate::shared::Shared;

/// What a step did to an attribute.
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

/// A look at a stanza or template of the project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StanzaLook {
    /// The name of the template; none for a stanza.
    pub template: Option<String>,
    /// Where it stands.
    pub place: Place,
    /// Which branches it is for.
    pub matcher: BranchMatcher,
    /// Whether those are the subject's.
    pub branch_matched: bool,
    /// Whether it speaks of the pipeline; looked at only where the branch matches.
    pub names_pipeline: bool,
}

/// A look at a definition of a job, or at its entry in the project's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionLook {
    /// The job it defines.
    pub job: Shared<String>,
    /// Where it stands.
    pub place: Place,
    /// How many jobs led here, this one counted; 0 for an entry in a list.
    pub depth: u32,
    /// Which branches it is for.
    pub matcher: BranchMatcher,
    /// The branch that was looked at instead of the subject's.
    pub instead: Option<String>,
    /// The answer.
    pub matched: bool,
}

/// What was asked about files, and the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileLook {
    /// The file matchers of the job.
    Matchers(FileAnswer),
    /// The change touches a file the job uses.
    JobFileChanged(String),
    /// The change alters the job.
    JobChanged,
    /// Another job depends on it.
    Forced {
        /// That job.
        by: String,
    },
    /// The same job runs for another change of the item, and this change has its share in it.
    Shared,
}

impl FileLook {
    /// The code of a job that runs because it is that of another change, too.
    pub(crate) const SHARED: &str = "shared-with-another-change";

    /// The same in words.
    pub(crate) fn shared_words() -> String {
        "the files of another change that is tested together with this one call for the same job".to_owned()
    }
}

/// What a step does to the job; where it says nothing itself, the definition says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// The definition's value, as its attribute merges.
    AsWritten,
    /// Nothing that shows in the job.
    Nothing,
    /// Roles come first.
    Roles(Vec<Shared<FrozenRole>>),
    /// The definition's secrets go to the playbooks collected so far.
    PassSecrets,
    /// Older spellings: those that inherit from the job have the definition's secrets, too.
    InheritSecrets,
    /// Older spellings: this playbook is what runs, for nobody names one.
    Playbook(Shared<Playbook>),
    /// The job runs after review only.
    PostReview,
    /// These projects, resolved, as `required-projects` merges.
    Projects(Vec<Shared<RequiredProject>>),
    /// These filters, resolved.
    Filters(Vec<ProjectFilter>),
    /// Only these projects, by their short names.
    Allow(Vec<String>),
    /// These files, resolved.
    IncludeVars(Vec<IncludeVars>),
    /// These machines.
    Nodesets(Shared<Vec<FrozenNodeset>>),
    /// This version of Ansible.
    Ansible(String),
    /// The job waits softly for an initializer.
    WaitFor(String),
    /// The job does not wait for one that does not run.
    Forget(String),
}

/// One step in the making of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A definition is applied from here on: its name, description and standing, and whether it
    /// counts as a list entry.
    Begin {
        /// Its number in [`FreezeTrace::definitions`].
        definition: u32,
        /// Older spellings: for a definition in no repository, that which has its playbooks.
        home: Option<Shared<SourceContext>>,
    },
    /// The definition begun last does something to an attribute.
    Attribute {
        /// The attribute.
        attribute: JobAttribute,
        /// What it does.
        action: Action,
        /// How that shows in the job.
        effect: Effect,
        /// Why, where a rule or a refusal needs words.
        reason: String,
    },
    /// The variables of project and templates ([`FreezeTrace::vars`]) go below those of the job.
    ProjectVars,
    /// A rule of the tenant or of the graph.
    Rule {
        /// The attribute.
        attribute: JobAttribute,
        /// What made the rule count, if a stanza did.
        place: Option<Place>,
        /// How that shows in the job.
        effect: Effect,
        /// Why.
        reason: String,
    },
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
    pub looks: Vec<DefinitionLook>,
    /// What made the job, in order.
    pub steps: Vec<Step>,
    /// What the file matchers said, and what overruled them.
    pub files: Vec<FileLook>,
    /// Where the definition stands that was applied last.
    pub place: Place,
}

impl JobTrace {
    pub(crate) fn new(name: &str) -> Self {
        JobTrace {
            name: name.to_owned(),
            fate: JobFate::Absent,
            code: String::new(),
            reason: String::new(),
            // Most jobs need no more, and growing costs.
            looks: Vec::with_capacity(12),
            steps: Vec::with_capacity(40),
            files: Vec::new(),
            place: Place::default(),
        }
    }

    pub(crate) fn settle(&mut self, fate: JobFate, code: &str, reason: impl Into<String>) {
        self.fate = fate;
        self.code = code.to_owned();
        self.reason = reason.into();
    }
}

/// Variables a stanza or template gives to all jobs of the project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectVars {
    /// The name of the template; none for a stanza.
    pub template: Option<String>,
    /// Where it stands.
    pub place: Place,
    /// The variables.
    pub vars: BTreeMap<String, Value>,
}

/// The whole story of one freezing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FreezeTrace {
    /// The project, by its canonical name.
    pub project: String,
    /// The branch, or the ref where there is no branch.
    pub branch: String,
    /// Whether that is a ref.
    pub is_ref: bool,
    /// The pipeline.
    pub pipeline: String,
    /// Stanzas and templates looked at.
    pub stanzas: Vec<StanzaLook>,
    /// Variables of stanzas and templates, the earlier below the later.
    pub vars: Vec<ProjectVars>,
    /// Definitions that were applied, each once.
    pub definitions: Vec<Shared<JobDefinition>>,
    /// Jobs considered, in the order of the graph.
    pub jobs: Vec<JobTrace>,
    /// What whoever enqueued the subject gave for parameters. What was taken are the last of [`FreezeTrace::vars`].
    pub parameters: Vec<ParameterLook>,
}

/// What was given for a parameter, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterLook {
    /// Its name.
    pub name: String,
    /// What was given.
    pub given: Value,
    /// The entry for the pipeline that declares it, if one does.
    pub place: Option<Place>,
    /// Why it was left out, if it was.
    pub left_out: Option<String>,
}

impl FreezeTrace {
    /// The trace of one job.
    pub fn job(&self, name: &str) -> Option<&JobTrace> {
        self.jobs.iter().find(|job| job.name == name)
    }

    /// The definitions that were applied to a job, in order; one that was refused was not.
    pub fn applied<'a>(&'a self, job: &'a JobTrace) -> impl Iterator<Item = &'a Shared<JobDefinition>> {
        job.steps.iter().enumerate().filter_map(|(at, step)| match (step, job.steps.get(at + 1)) {
            (Step::Begin { .. }, Some(Step::Attribute { action: Action::Refused, .. })) => None,
            (Step::Begin { definition, .. }, _) => self.definition(*definition),
            _ => None,
        })
    }

    /// A definition by its number.
    pub(crate) fn definition(&self, number: u32) -> Option<&Shared<JobDefinition>> {
        self.definitions.get(usize::try_from(number).ok()?)
    }
}

/// The definitions met in one freezing, each once.
#[derive(Debug, Default)]
pub(crate) struct Definitions(pub Vec<Shared<JobDefinition>>);

impl Definitions {
    /// The number of a definition.
    pub(crate) fn number(&mut self, definition: &Shared<JobDefinition>) -> u32 {
        let known = self.0.iter().rposition(|known| known.is_same(definition));
        let at = known.unwrap_or_else(|| {
            self.0.push(definition.clone());
            self.0.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }
}
