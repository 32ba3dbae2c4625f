//! Jobs: the attribute table with every merge rule, and the reader of a definition.
//!
//! A definition keeps exactly what was written, attribute by attribute; what a job finally is gets
//! decided when it is frozen (`freeze::apply`), by this same table.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use super::job_parts::{self as parts, AttributeValue};
use super::pragma::Pragma;
use crate::ansible;
use crate::place::Place;
use crate::regexes::{Anchor, Pattern};
use crate::schema::{Attribute, Kind, Merge, Sink, Stanza, attribute};
use crate::yaml::{Entry, Mark, Node, Tag};

macro_rules! job_attributes {
    ($($variant:ident: $doc:literal = $row:expr;)*) => {
        /// An attribute of a job that is more than its identity.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum JobAttribute { $(#[doc = $doc] $variant,)* }

        impl JobAttribute {
            /// All of them, in the order in which they are applied.
            pub const ALL: &'static [JobAttribute] = &[$(JobAttribute::$variant,)*];

            /// Its row in the table.
            pub fn row(self) -> &'static Attribute {
                match self { $(JobAttribute::$variant => { const ROW: Attribute = $row; &ROW })* }
            }
        }

        /// The table: type, default, merge rule of each attribute.
        pub const TABLE: &[Attribute] = &[$($row,)*];
    };
}

const BOOL: Kind = Kind::Bool;
const NUMBER: Kind = Kind::Int { min: i64::MIN };

job_attributes! {
    Final: "May not be changed by others." =
        attribute("final", BOOL).merge(Merge::Special).execution().default("false");
    Protected: "Only its own project may inherit from it." =
        attribute("protected", BOOL).merge(Merge::Special).execution();
    Abstract: "May not run itself." =
        attribute("abstract", BOOL).merge(Merge::Special).execution().default("false");
    Intermediate: "Only abstract jobs may inherit from it." =
        attribute("intermediate", BOOL).merge(Merge::Special).execution().default("false");
    Type: "Its part in the graph." =
        attribute("type", Kind::Choice(&["regular", "initializer", "reporter"])).merge(Merge::Replace).execution().controllable().default("regular");
    Voting: "Whether its result counts." =
        attribute("voting", BOOL).merge(Merge::Replace).controllable().default("true");
    HoldFollowingChanges: "Whether changes behind wait for it." =
        attribute("hold-following-changes", BOOL).merge(Merge::Replace).default("false");
    SuccessMessage: "Reported when it succeeds." =
        attribute("success-message", Kind::Text).merge(Merge::Replace).default("the name of the result");
    FailureMessage: "Reported when it fails." =
        attribute("failure-message", Kind::Text).merge(Merge::Replace).default("the name of the result");
    Roles: "Where roles are looked for." =
        attribute("roles", Kind::Special).merge(Merge::Special).execution().default("its own repository");
    Secrets: "Secrets of this definition's playbooks." =
        attribute("secrets", Kind::Special).default("[]");
    SecretExposure: "What happens when a secret shows up in logs." =
        attribute("secret-exposure", Kind::Choice(&["ignore", "redact", "fail"])).merge(Merge::Special).execution().default("ignore");
    Tags: "Free words." =
        attribute("tags", Kind::Texts).merge(Merge::Union).controllable().default("[]");
    Provides: "Artifacts it makes." =
        attribute("provides", Kind::Texts).merge(Merge::Union).controllable().default("[]");
    Requires: "Artifacts it needs." =
        attribute("requires", Kind::Texts).merge(Merge::Union).controllable().default("[]");
    Dependencies: "Jobs it waits for." =
        attribute("dependencies", Kind::Special).merge(Merge::ReplaceOrInherit).controllable().default("[]");
    Files: "Changed files it runs for." =
        attribute("files", Kind::Patterns(Anchor::Start)).merge(Merge::ReplaceOrInherit).controllable();
    IrrelevantFiles: "Changed files it does not run for." =
        attribute("irrelevant-files", Kind::Patterns(Anchor::Start)).merge(Merge::ReplaceOrInherit).controllable();
    MatchOnConfigUpdates: "Whether a change of its own configuration makes it run." =
        attribute("match-on-config-updates", BOOL).merge(Merge::Replace).default("true");
    Deduplicate: "Whether one build serves several changes of a cycle." =
        attribute("deduplicate", Kind::BoolOr("auto")).merge(Merge::Replace).default("auto");
    Nodeset: "Its machines." =
        attribute("nodeset", Kind::Special).merge(Merge::Replace).execution().default("no machines");
    PreRun: "Playbooks before; parents' first." =
        attribute("pre-run", Kind::Special).merge(Merge::Append).execution().controllable().default("[]");
    Run: "The playbooks that are the job." =
        attribute("run", Kind::Special).merge(Merge::Replace).execution().controllable().default("[]");
    PostRun: "Playbooks after; parents' last." =
        attribute("post-run", Kind::Special).merge(Merge::Prepend).execution().controllable().default("[]");
    CleanupRun: "Playbooks at the very end; deprecated." =
        attribute("cleanup-run", Kind::Special).merge(Merge::Prepend).execution().default("[]");
    Semaphores: "What it must hold to run." =
        attribute("semaphores", Kind::Special).merge(Merge::UnionAlways).execution().default("[]");
    PreTimeout: "Seconds for the playbooks before." =
        attribute("pre-timeout", NUMBER).merge(Merge::Replace).execution();
    Timeout: "Seconds for the playbooks before and the job." =
        attribute("timeout", NUMBER).merge(Merge::Replace).execution();
    PostTimeout: "Seconds for each playbook after." =
        attribute("post-timeout", NUMBER).merge(Merge::Replace).execution();
    Attempts: "How often it is tried." =
        attribute("attempts", NUMBER).merge(Merge::Replace).execution().default("3");
    AnsibleVersion: "Which Ansible runs it." =
        attribute("ansible-version", Kind::TextOrNumber).merge(Merge::Replace).execution().default("the tenant's");
    AnsibleSplitStreams: "Whether standard error is kept apart." =
        attribute("ansible-split-streams", BOOL).merge(Merge::Replace).execution();
    RequiredProjects: "Other repositories in its workspace." =
        attribute("required-projects", Kind::Special).merge(Merge::Union).execution().controllable().default("[]");
    IncludeProjects: "Of these projects' changes only." =
        attribute("include-projects", Kind::Special).merge(Merge::Union).execution().controllable();
    ExcludeProjects: "Of these projects' changes not." =
        attribute("exclude-projects", Kind::Special).merge(Merge::Union).execution().controllable();
    Vars: "Variables." =
        attribute("vars", Kind::Map).merge(Merge::Deep).execution().controllable().default("{}");
    ExtraVars: "Variables that win over all others." =
        attribute("extra-vars", Kind::Map).merge(Merge::Deep).execution().controllable().default("{}");
    HostVars: "Variables of single hosts." =
        attribute("host-vars", Kind::Map).merge(Merge::Deep).execution().controllable().default("{}");
    GroupVars: "Variables of groups." =
        attribute("group-vars", Kind::Map).merge(Merge::Deep).execution().controllable().default("{}");
    IncludeVars: "Files with variables." =
        attribute("include-vars", Kind::Special).merge(Merge::Union).execution().controllable().default("[]");
    AllowedProjects: "Projects it may run for." =
        attribute("allowed-projects", Kind::Texts).merge(Merge::Intersect).execution().default("all");
    OverrideCheckout: "Branch, tag or commit to check out." =
        attribute("override-checkout", Kind::Text).merge(Merge::Replace).execution();
    OverrideBranch: "An older way to name a branch; override-checkout wins." =
        attribute("override-branch", Kind::Text).merge(Merge::Replace).execution();
    PostReview: "Runs after review only." =
        attribute("post-review", BOOL).merge(Merge::Special).execution().default("false");
    FailureOutput: "Output that means failure." =
        attribute("failure-output", Kind::Texts).merge(Merge::Union).execution().controllable().default("[]");
    ImageBuildName: "The image it builds." =
        attribute("image-build-name", Kind::Text).merge(Merge::Replace).execution();
    WorkspaceScheme: "How repositories lie in the workspace." =
        attribute("workspace-scheme", Kind::Choice(&["golang", "flat", "unique"])).merge(Merge::Replace).execution().default("golang");
    WorkspaceCheckout: "Whether a work tree is checked out." =
        attribute("workspace-checkout", Kind::BoolOr("auto")).merge(Merge::Replace).execution().default("true");
    PreserveHomePaths: "Paths in the home directory playbooks may see." =
        attribute("preserve-home-paths", Kind::Texts).merge(Merge::UnionAlways).execution().default("[]");
    Auth: "Credentials, and whether jobs that inherit from it have them, too; an older spelling." =
        attribute("auth", Kind::Map).merge(Merge::Special).execution()
            .older("secrets: [...], and `final: true` unless others may inherit from it");
    Workspace: "Where repositories lie; an older spelling." =
        attribute("workspace", Kind::Text).merge(Merge::Replace).execution()
            .older("workspace-scheme; a directory of its own has no modern name");
    Host: "A machine that is no node, on which it runs; an older spelling." =
        attribute("host", Kind::Text).merge(Merge::Replace).execution()
            .older("nodeset, with the label of a static node");
    Fingerprint: "The key that machine must show; an older spelling." =
        attribute("fingerprint", Kind::Text).merge(Merge::Replace).execution()
            .older("host-key, of a static node");
    AttributeControl: "Attributes that are final from here on." =
        attribute("attribute-control", Kind::Special).merge(Merge::UnionAlways).default("{}");
}

/// What makes a definition this one; never inherited.
pub const IDENTITY: &[Attribute] = &[
    attribute("name", Kind::Text),
    attribute("parent", Kind::TextOrNull).merge(Merge::Replace).default("the tenant's default parent"),
    attribute("description", Kind::Text),
    attribute("variant-description", Kind::Text),
    attribute("branches", Kind::Patterns(Anchor::Start)).default("implied"),
    // Other names, and names without effect that Zuul still takes.
    attribute("semaphore", Kind::Special),
    attribute("success-url", Kind::Text),
    attribute("failure-url", Kind::Text),
];

/// The parent a definition names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Parent {
    /// None given: the tenant's default parent, if this is the first definition collected.
    #[default]
    Default,
    /// `parent: null`: a base job.
    Base,
    /// A job by name.
    Named(String),
}

/// Whether a value replaces or joins what was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Mode {
    /// As the table says.
    #[default]
    Usual,
    /// `!override`.
    Override,
    /// `!inherit`.
    Inherit,
}

/// One attribute as a definition sets it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setting {
    /// The value.
    pub value: AttributeValue,
    /// Whether it replaces or joins.
    pub mode: Mode,
    /// Line of the key.
    pub line: u32,
}

/// One definition of a job: the first, a variant, or the anonymous one in a project's list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobDefinition {
    /// The job's name.
    pub name: String,
    /// Where it stands.
    pub place: Place,
    /// Line at which the object starts that it is part of: its own, or a project stanza or template.
    pub stanza_line: u32,
    /// Its parent.
    pub parent: Parent,
    /// For people.
    pub description: Option<String>,
    /// The branches it spells out.
    pub branches: Option<Vec<Pattern>>,
    /// Whether it stands in a project's list of jobs.
    pub project_pipeline: bool,
    /// How the file wants to be read.
    pub pragma: Pragma,
    /// Whether it is written in an older spelling: then without `run` the playbook of its name is run.
    pub older: bool,
    /// Everything else it sets.
    pub settings: BTreeMap<JobAttribute, Setting>,
}

impl JobDefinition {
    /// A job that is only named in a project's list.
    pub fn bare(name: &str, place: Place, pragma: Pragma) -> Self {
        JobDefinition {
            name: name.to_owned(),
            stanza_line: place.line,
            place,
            parent: Parent::Default,
            description: None,
            branches: None,
            project_pipeline: true,
            pragma,
            older: false,
            settings: BTreeMap::new(),
        }
    }

    /// The value of an attribute this definition sets.
    pub fn value(&self, attribute: JobAttribute) -> Option<&AttributeValue> {
        self.settings.get(&attribute).map(|setting| &setting.value)
    }

    /// A truth value this definition sets.
    pub fn bool(&self, attribute: JobAttribute) -> Option<bool> {
        match self.value(attribute) {
            Some(AttributeValue::Bool(truth)) => Some(*truth),
            _ => None,
        }
    }

    /// The secrets of this definition.
    pub fn secrets(&self) -> &[parts::SecretUse] {
        match self.value(JobAttribute::Secrets) {
            Some(AttributeValue::Secrets(secrets)) => secrets,
            _ => &[],
        }
    }

    /// Whether it names playbooks.
    pub fn has_playbooks(&self) -> bool {
        PHASES.iter().any(|attribute| self.settings.contains_key(attribute))
    }

    /// The place of one attribute.
    pub fn place_of(&self, attribute: JobAttribute) -> Place {
        let line = self.settings.get(&attribute).map_or(self.place.line, |setting| setting.line);
        Place { context: self.place.context.clone(), line, column: self.place.column }
    }

    /// Name of the job that does nothing and succeeds, and never reaches an executor.
    pub const NOOP: &'static str = "noop";

    /// Zuul's built-in job that does nothing and succeeds; it has no playbook.
    pub fn noop() -> Self {
        let setting = |value| Setting { value, mode: Mode::Usual, line: 0 };
        JobDefinition {
            parent: Parent::Base,
            description: Some("A job that will always succeed, no operation.".to_owned()),
            project_pipeline: false,
            settings: BTreeMap::from([
                (JobAttribute::Final, setting(AttributeValue::Bool(true))),
                (JobAttribute::Deduplicate, setting(AttributeValue::BoolOrAuto(Some(true)))),
            ]),
            ..JobDefinition::bare(Self::NOOP, Place::default(), Pragma::default())
        }
    }
}

/// Reads a job stanza.
pub fn read(sink: &mut Sink<'_>, node: &Node, mark: Mark, pragma: &Pragma) -> Option<JobDefinition> {
    read_any(sink, None, node, mark, pragma)
}

/// Reads a job in a project's list.
pub fn read_variant(
    sink: &mut Sink<'_>,
    name: &str,
    node: &Node,
    mark: Mark,
    pragma: &Pragma,
) -> Option<JobDefinition> {
    read_any(sink, Some(name), node, mark, pragma)
}

fn read_any(
    sink: &mut Sink<'_>,
    listed_as: Option<&str>,
    node: &Node,
    mark: Mark,
    pragma: &Pragma,
) -> Option<JobDefinition> {
    let before = sink.problems.len();
    let mut stanza = Stanza::open(sink, "job", node, mark, &[TABLE, IDENTITY])?;
    match listed_as {
        Some(name) => {
            stanza.name = name.to_owned();
            if let Some(entry) = stanza.entry("name") {
                let message = format!("`name` is not an attribute of {} in a list of jobs", stanza.title());
                stanza.fail(
                    "unknown-attribute",
                    entry.mark,
                    Some("name"),
                    message,
                    "the key above is its name: remove it",
                );
            }
        }
        None if stanza.name.is_empty() => {
            stanza.fail("missing-attribute", mark, Some("name"), "this job needs the attribute `name`", "add `name:`");
        }
        None => {}
    }
    let mut settings = BTreeMap::new();
    for attribute in JobAttribute::ALL {
        if let Some(entry) = stanza.entry(attribute.row().name)
            && let Some(setting) = setting(&mut stanza, *attribute, entry)
        {
            settings.insert(*attribute, setting);
        }
    }
    if let Some(entry) = stanza.entry("semaphore").filter(|entry| entry.value.as_sequence().is_some()) {
        let message = format!("`semaphore` of {} must be one, not a list", stanza.title());
        stanza.fail("wrong-type", entry.value.start, Some("semaphore"), message, "write `semaphores`");
    }
    if let Some(entry) = stanza.entry("semaphore")
        && !settings.contains_key(&JobAttribute::Semaphores)
        && let Some(setting) = setting(&mut stanza, JobAttribute::Semaphores, entry)
    {
        settings.insert(JobAttribute::Semaphores, setting);
    }
    settings.retain(|attribute, setting| !says_nothing(*attribute, &setting.value));
    let parent = match stanza.entry("parent") {
        None => Parent::Default,
        Some(entry) => entry.value.as_str().map_or(Parent::Base, |name| Parent::Named(name.to_owned())),
    };
    let definition = JobDefinition {
        name: stanza.name.clone(),
        place: stanza.place(),
        stanza_line: mark.line,
        parent,
        description: stanza.text("description"),
        branches: stanza.patterns("branches", Anchor::Start),
        project_pipeline: listed_as.is_some(),
        pragma: pragma.clone(),
        older: false,
        settings,
    };
    check(&mut stanza, &definition);
    let definition = stanza.finish(definition);
    // Zuul reads the attributes in this order and stops at the first error.
    let problems = sink.problems.get_mut(before..).unwrap_or_default();
    problems.sort_by_key(|problem| {
        let attribute = problem.attribute.as_deref().unwrap_or("");
        (!problem.is_of_schema(), READING_ORDER.iter().position(|name| *name == attribute))
    });
    definition
}

const PHASES: &[JobAttribute] =
    &[JobAttribute::PreRun, JobAttribute::Run, JobAttribute::PostRun, JobAttribute::CleanupRun];

/// Attributes whose values can be wrong though their types are right.
const READING_ORDER: &[&str] = &[
    "post-review",
    "ansible-version",
    "roles",
    "cleanup-run",
    "intermediate",
    "nodeset",
    "include-projects",
    "exclude-projects",
    "semaphores",
    "vars",
    "extra-vars",
    "host-vars",
    "group-vars",
    "branches",
    "files",
    "irrelevant-files",
    "failure-output",
    "preserve-home-paths",
];

/// Zuul: an empty value of these is as good as none.
fn says_nothing(attribute: JobAttribute, value: &AttributeValue) -> bool {
    use JobAttribute as A;
    match (attribute, value) {
        (A::Tags | A::Provides | A::Requires | A::AllowedProjects, AttributeValue::Names(all)) => all.is_empty(),
        (_, AttributeValue::Playbooks(all)) => all.is_empty(),
        (_, AttributeValue::Semaphores(all)) => all.is_empty(),
        (_, AttributeValue::Roles(all)) => all.is_empty(),
        (_, AttributeValue::IncludeVars(all)) => all.is_empty(),
        _ => false,
    }
}

fn setting(stanza: &mut Stanza<'_, '_, '_>, attribute: JobAttribute, entry: &Entry) -> Option<Setting> {
    let node = &entry.value;
    let mode = match node.tag {
        Some(Tag::Override) => Mode::Override,
        Some(Tag::Inherit) => Mode::Inherit,
        _ => Mode::Usual,
    };
    if attribute.row().kind == Kind::Special && node.tag.is_some() {
        let allowed = attribute.row().merge.takes_tags() && node.tag != Some(Tag::Encrypted);
        if !allowed {
            let tag = node.tag.map_or("", Tag::as_str);
            let message = format!("the tag {tag} does not go with `{}` of {}", entry.key, stanza.title());
            stanza.fail("misplaced-tag", node.start, Some(&entry.key), message, "remove the tag");
            return None;
        }
    }
    let value = parts::read(stanza, attribute, entry)?;
    Some(Setting { value, mode, line: entry.mark.line })
}

/// What one definition may not say, whatever others say.
fn check(stanza: &mut Stanza<'_, '_, '_>, job: &JobDefinition) {
    let mark = |stanza: &Stanza<'_, '_, '_>, key: &str| stanza.entry(key).map_or(stanza.mark, |entry| entry.mark);
    let seconds = |attribute| match job.value(attribute) {
        Some(AttributeValue::Int(seconds)) => Some(*seconds),
        _ => None,
    };
    if let (Some(pre), Some(all)) = (seconds(JobAttribute::PreTimeout), seconds(JobAttribute::Timeout))
        && pre > all
    {
        let message = format!("the pre-timeout of {} ({pre} s) exceeds its timeout ({all} s)", stanza.title());
        let at = mark(stanza, "pre-timeout");
        let cure = "the timeout covers the playbooks before, too: raise it, or lower pre-timeout";
        stanza.fail_as(
            "pre-timeout-exceeds-timeout",
            "Pre-Timeout Exceeds Timeout",
            at,
            Some("pre-timeout"),
            message,
            cure,
        );
    }
    if job.bool(JobAttribute::Intermediate) == Some(true) && job.bool(JobAttribute::Abstract) != Some(true) {
        let at = mark(stanza, "intermediate");
        let message = format!("{} is intermediate, but not abstract", stanza.title());
        stanza.fail("intermediate-not-abstract", at, Some("intermediate"), message, "add `abstract: true`");
    }
    if let Some(AttributeValue::Text(version)) = job.value(JobAttribute::AnsibleVersion)
        && !ansible::is_supported(version)
    {
        let at = mark(stanza, "ansible-version");
        let message = format!("Ansible {version} of {} is not supported", stanza.title());
        let cure = format!("choose one of: {}", ansible::SUPPORTED.join(", "));
        stanza.fail("ansible-version", at, Some("ansible-version"), message, cure);
    }
    if job.bool(JobAttribute::PostReview) == Some(false) {
        let at = mark(stanza, "post-review");
        let message = format!("`post-review` of {} is false, which takes no effect back", stanza.title());
        let cure = "only `post-review: true` may be said; remove it";
        stanza.fail("post-review-false", at, Some("post-review"), message, cure);
    }
    for name in ["vars", "extra-vars"] {
        if let Some(entry) = stanza.entry(name) {
            check_variable_names(stanza, name, &entry.value, RESERVED_IN_JOBS);
        }
    }
    for name in ["host-vars", "group-vars"] {
        for inner in stanza.entry(name).and_then(|entry| entry.value.as_mapping()).unwrap_or(&[]) {
            if inner.value.as_mapping().is_none() {
                let message = format!("`{name}` of {} for \"{}\" must be a dictionary", stanza.title(), inner.key);
                stanza.fail("wrong-type", inner.value.start, Some(name), message, "");
            }
            check_variable_names(stanza, name, &inner.value, RESERVED_IN_JOBS);
        }
    }
    older(stanza, job);
    let held: Vec<&str> = match job.value(JobAttribute::Semaphores) {
        Some(AttributeValue::Semaphores(all)) => all.iter().map(|use_of| use_of.name.as_str()).collect(),
        _ => Vec::new(),
    };
    for attribute in PHASES {
        let Some(AttributeValue::Playbooks(playbooks)) = job.value(*attribute) else { continue };
        for semaphore in playbooks.iter().flat_map(|playbook| &playbook.semaphores) {
            if held.contains(&semaphore.as_str()) {
                let name = attribute.row().name;
                let at = mark(stanza, name);
                let message =
                    format!("{} and a playbook of it both want the semaphore \"{semaphore}\"", stanza.title());
                stanza.fail(
                    "semaphore-twice",
                    at,
                    Some("semaphores"),
                    message,
                    "let either the job or the playbook hold it",
                );
            }
        }
    }
    if let Some(AttributeValue::Names(paths)) = job.value(JobAttribute::PreserveHomePaths) {
        for path in paths.iter().filter(|path| matches!(path.as_str(), ".ssh/config" | ".kube/config")) {
            let at = mark(stanza, "preserve-home-paths");
            let message = format!("{} may not preserve {path}", stanza.title());
            let cure = "that file is written anew for each playbook: remove it";
            stanza.fail("reserved-path", at, Some("preserve-home-paths"), message, cure);
        }
    }
}

/// What older spellings may not say.
fn older(stanza: &mut Stanza<'_, '_, '_>, job: &JobDefinition) {
    let both = job.settings.contains_key(&JobAttribute::Host) && job.settings.contains_key(&JobAttribute::Nodeset);
    if let Some(entry) = stanza.entry("host").filter(|_| both) {
        let message = format!("{} has both `host` and machines of its own", stanza.title());
        stanza.fail("exclusive-attributes", entry.mark, Some("host"), message, "keep one of the two");
    }
    let Some(entry) = stanza.entry("auth") else { return };
    for inner in entry.value.as_mapping().unwrap_or(&[]) {
        match inner.key.as_str() {
            "inherit" if inner.value.as_scalar().and_then(Value::as_bool).is_some() => {}
            "inherit" => {
                let message = format!("`inherit` in `auth` of {} must be true or false", stanza.title());
                stanza.fail("wrong-type", inner.value.start, Some("auth"), message, "");
            }
            "swift" if !job.place.context.trusted => {
                let message = format!("{} uses `swift`, which only config projects may", stanza.title());
                stanza.fail(
                    "swift-not-permitted",
                    inner.mark,
                    Some("auth"),
                    message,
                    "move the job to a config project",
                );
            }
            "swift" if inner.value.items().iter().all(|item| item.get("container").is_some()) => {}
            "swift" => {
                let message = format!("`swift` in `auth` of {} must be a list of containers", stanza.title());
                stanza.fail("wrong-type", inner.value.start, Some("auth"), message, "write `- container: NAME`");
            }
            other => {
                let message = format!("`{other}` is not known in `auth` of {}", stanza.title());
                let cure = match crate::problem::did_you_mean(other, ["secrets", "inherit", "swift"]) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "known are: secrets, inherit, swift".to_owned(),
                };
                stanza.fail("unknown-attribute", inner.mark, Some("auth"), message, cure);
            }
        }
    }
}

/// Variables that are set for each build.
pub const RESERVED: &[&str] = &["zuul", "zuul_node", "nodepool", "unsafe_vars", "zuul_user_dir"];

/// The same, and those that decide where a playbook runs.
pub const RESERVED_IN_JOBS: &[&str] = &[
    "zuul",
    "zuul_node",
    "nodepool",
    "unsafe_vars",
    "zuul_user_dir",
    "ansible_connection",
    "ansible_host",
    "ansible_python_interpreter",
    "ansible_shell_executable",
    "ansible_user",
];

/// Whether a text has the shape of a variable's name.
pub fn is_variable_shape(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a secret may be the variable of that name.
pub fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !RESERVED_IN_JOBS.contains(&name)
}

/// Variable names Ansible would refuse, or that are Zuul's own.
pub fn check_variable_names(stanza: &mut Stanza<'_, '_, '_>, attribute: &str, node: &Node, reserved: &[&str]) {
    for entry in node.as_mapping().unwrap_or(&[]) {
        if reserved.contains(&entry.key.as_str()) {
            let message = format!("the variable `{}` in `{attribute}` of {} is reserved", entry.key, stanza.title());
            let cure = "it is set for each build and cannot be given: choose another name";
            stanza.fail("variable-reserved", entry.mark, Some(attribute), message, cure);
        } else if !is_variable_shape(&entry.key) || !matches!(entry.resolved, Value::Str(_)) {
            let message =
                format!("`{}` in `{attribute}` of {} is not a name for a variable", entry.key, stanza.title());
            let cure = "use letters, digits and underscores, with a letter first";
            stanza.fail("variable-name", entry.mark, Some(attribute), message, cure);
        }
    }
}
