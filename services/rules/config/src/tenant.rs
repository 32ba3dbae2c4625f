//! The tenant file: which projects a tenant has, and what each may say.

use serde::{Deserialize, Serialize};

use crate::place::{Place, SourceContext};
use crate::problem::{Problem, Severity, did_you_mean};
use crate::regexes::{Anchor, Pattern};
use crate::schema::{Attribute, Kind, Sink, Stanza, attribute};
use crate::shared::Shared;
use crate::yaml::parse::parse_lenient;
use crate::yaml::{Entry, Mark, Node};

/// Classes an untrusted project does not contribute unless it is told to.
pub const PROVIDER_CLASSES: &[&str] = &["image", "flavor", "label", "section", "provider"];

/// Classes that `include` and `exclude` may name.
pub const LOADABLE_CLASSES: &[&str] = &[
    "pipeline",
    "job",
    "semaphore",
    "project",
    "project-template",
    "nodeset",
    "secret",
    "queue",
    "image",
    "flavor",
    "label",
    "section",
    "provider",
];

/// A tenant, with its projects resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantSettings {
    /// Its name.
    pub name: String,
    /// Parent of every job that names none.
    pub default_parent: String,
    /// Longest timeout of a job in seconds; none is without limit.
    pub max_job_timeout: Option<i64>,
    /// Most nodes of a job; none is without limit.
    pub max_nodes_per_job: Option<i64>,
    /// Most changes in one pipeline; none is without limit.
    pub max_changes_per_pipeline: Option<i64>,
    /// Most dependencies of one change; none is without limit.
    pub max_dependencies: Option<i64>,
    /// Version of Ansible for jobs that name none.
    pub default_ansible_version: String,
    /// Connections whose triggers may be used; none is all.
    pub allowed_triggers: Option<Vec<String>>,
    /// Connections whose reporters may be used; none is all.
    pub allowed_reporters: Option<Vec<String>>,
    /// Global semaphores it may use.
    pub semaphores: Vec<String>,
    /// Connections that exist; empty means that nobody has said, and nothing is checked.
    pub connections: Vec<String>,
    /// Its projects, in the order of the file: per connection, config projects first.
    pub projects: Vec<TenantProject>,
}

impl Default for TenantSettings {
    fn default() -> Self {
        TenantSettings {
            name: String::new(),
            default_parent: "base".to_owned(),
            max_job_timeout: Some(10_800),
            max_nodes_per_job: Some(5),
            max_changes_per_pipeline: None,
            max_dependencies: None,
            default_ansible_version: "11".to_owned(),
            allowed_triggers: None,
            allowed_reporters: None,
            semaphores: Vec::new(),
            connections: Vec::new(),
            projects: Vec::new(),
        }
    }
}

/// A project of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantProject {
    /// `host/name`; empty as long as nobody has resolved it.
    pub canonical_name: String,
    /// The name at its connection.
    pub name: String,
    /// The connection.
    pub connection: String,
    /// Whether it is a config project.
    pub trusted: bool,
    /// Its default branch.
    pub default_branch: String,
    /// Its branches, filters applied.
    pub branches: Vec<String>,
    /// Classes of objects it contributes.
    pub include: Vec<String>,
    /// Projects whose jobs win over jobs of the same name here.
    pub shadow: Vec<String>,
    /// Whether its definitions get implied branch matchers; none decides by the number of branches.
    pub implied_branch_matchers: Option<bool>,
    /// Branches whose configuration is always read with the change.
    pub always_dynamic_branches: Vec<Pattern>,
    /// Further configuration files and directories.
    pub extra_config_paths: Vec<String>,
    /// The branch a config project is read from; none is `master`.
    pub load_branch: Option<String>,
    /// Whether it may define jobs without a parent (config projects).
    pub allow_base_jobs: bool,
    /// Other projects it may write stanzas for (untrusted projects).
    pub configure_projects: Vec<Pattern>,
    /// Branches to take; wins over `exclude_branches`.
    pub include_branches: Vec<Pattern>,
    /// Branches to leave.
    pub exclude_branches: Vec<Pattern>,
    /// Whether unprotected branches are left out; none is as the tenant says.
    pub exclude_unprotected_branches: Option<bool>,
    /// Whether locked branches are left out; none is as the tenant says.
    pub exclude_locked_branches: Option<bool>,
    /// Whether it may define reporter jobs (untrusted projects).
    pub allow_reporter_jobs: bool,
}

impl TenantProject {
    /// A project with Zuul's defaults.
    pub fn new(connection: &str, name: &str, trusted: bool) -> Self {
        TenantProject {
            canonical_name: String::new(),
            name: name.to_owned(),
            connection: connection.to_owned(),
            trusted,
            default_branch: "master".to_owned(),
            branches: Vec::new(),
            include: default_classes(trusted),
            shadow: Vec::new(),
            implied_branch_matchers: None,
            always_dynamic_branches: Vec::new(),
            extra_config_paths: Vec::new(),
            load_branch: None,
            allow_base_jobs: true,
            configure_projects: Vec::new(),
            include_branches: Vec::new(),
            exclude_branches: Vec::new(),
            exclude_unprotected_branches: None,
            exclude_locked_branches: None,
            allow_reporter_jobs: false,
        }
    }

    /// Whether its filters take a branch. Zuul: `include-branches` wins alone.
    pub fn takes_branch(&self, branch: &str) -> bool {
        if self.include_branches.is_empty() {
            !self.exclude_branches.iter().any(|pattern| pattern.matches(branch))
        } else {
            self.include_branches.iter().any(|pattern| pattern.matches(branch))
        }
    }

    /// The branches its configuration is read from, in order. Zuul: a config project is read from
    /// `load-branch` or `master` alone; where there is no `master`, we take the default branch.
    pub fn config_branches(&self) -> Vec<&str> {
        let has = |name: &str| self.branches.iter().any(|branch| branch == name);
        if self.trusted {
            let branch = match &self.load_branch {
                Some(branch) => branch.as_str(),
                None if has("master") || !has(&self.default_branch) => "master",
                None => &self.default_branch,
            };
            return vec![branch];
        }
        let mut branches: Vec<&str> = self.branches.iter().map(String::as_str).collect();
        branches.sort_unstable();
        branches.sort_by_key(|branch| *branch != self.default_branch);
        branches.retain(|branch| !self.always_dynamic_branches.iter().any(|pattern| pattern.matches(branch)));
        branches
    }
}

/// The classes a project contributes when the tenant file does not say.
pub fn default_classes(trusted: bool) -> Vec<String> {
    let all = LOADABLE_CLASSES.iter();
    all.filter(|class| trusted || !PROVIDER_CLASSES.contains(class)).map(|class| (*class).to_owned()).collect()
}

/// A tenant as the tenant file has it: its projects are names at connections.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantSpec {
    /// What the file says; canonical names, default branches and branches are still to be filled in.
    pub settings: TenantSettings,
    /// Where the tenant stands.
    pub place: Place,
}

/// What a connection knows about a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectFacts {
    /// `host/name`.
    pub canonical_name: String,
    /// The default branch.
    pub default_branch: String,
    /// All branches.
    pub branches: Vec<String>,
}

impl TenantSpec {
    /// Fills in what connections know. A project nobody knows is left out, with a problem.
    pub fn resolve(
        &self,
        mut lookup: impl FnMut(&str, &str) -> Option<ProjectFacts>,
    ) -> (TenantSettings, Vec<Problem>) {
        let mut settings = TenantSettings { projects: Vec::new(), ..self.settings.clone() };
        let mut problems = Vec::new();
        for project in &self.settings.projects {
            let Some(facts) = lookup(&project.connection, &project.name) else {
                let message =
                    format!("the connection \"{}\" knows no project \"{}\"", project.connection, project.name);
                let problem = Problem::error("project-unknown", "Unknown", self.place.clone(), message);
                problems.push(problem.cure("check the name and the connection in the tenant file"));
                continue;
            };
            let mut resolved = project.clone();
            resolved.canonical_name = facts.canonical_name;
            resolved.default_branch = facts.default_branch;
            resolved.branches = facts.branches.into_iter().filter(|branch| project.takes_branch(branch)).collect();
            settings.projects.push(resolved);
        }
        (settings, problems)
    }
}

const TENANT: &[Attribute] = &[
    attribute("name", Kind::Text).required(),
    attribute("source", Kind::Map),
    attribute("max-changes-per-pipeline", Kind::Int { min: i64::MIN }),
    attribute("max-dependencies", Kind::Int { min: i64::MIN }),
    attribute("max-nodes-per-job", Kind::Int { min: i64::MIN }).default("5"),
    attribute("max-job-timeout", Kind::Int { min: i64::MIN }).default("10800"),
    attribute("max-oidc-ttl", Kind::Int { min: i64::MIN }).default("10800"),
    attribute("allowed-oidc-issuers", Kind::Texts),
    attribute("exclude-unprotected-branches", Kind::Bool).default("false"),
    attribute("exclude-locked-branches", Kind::Bool).default("false"),
    attribute("default-parent", Kind::Text).default("base"),
    attribute("default-ansible-version", Kind::TextOrNumber),
    attribute("allowed-triggers", Kind::Texts),
    attribute("allowed-reporters", Kind::Texts),
    attribute("allowed-labels", Kind::Patterns(Anchor::Start)),
    attribute("disallowed-labels", Kind::Patterns(Anchor::Start)),
    attribute("web-root", Kind::Text),
    attribute("admin-rules", Kind::Texts),
    attribute("access-rules", Kind::Texts),
    attribute("anonymous-read-access", Kind::Bool).default("true"),
    attribute("role-mappings", Kind::Map),
    attribute("authentication-realm", Kind::Text),
    attribute("semaphores", Kind::Texts),
    attribute("use-nodepool", Kind::Bool).default("true"),
    attribute("allow-circular-dependencies", Kind::Bool),
    attribute("report-build-page", Kind::Bool),
];

const SOURCE: &[Attribute] =
    &[attribute("config-projects", Kind::Special), attribute("untrusted-projects", Kind::Special)];

const GROUP: &[Attribute] = &[
    attribute("projects", Kind::Special),
    attribute("include", Kind::Texts),
    attribute("exclude", Kind::Texts),
    attribute("include-provider-config", Kind::Bool),
];

const PROJECT: &[Attribute] = &[
    attribute("include", Kind::Texts),
    attribute("exclude", Kind::Texts),
    attribute("include-provider-config", Kind::Bool),
    attribute("shadow", Kind::Texts),
    attribute("exclude-unprotected-branches", Kind::Bool),
    attribute("exclude-locked-branches", Kind::Bool),
    attribute("include-branches", Kind::Patterns(Anchor::Whole)),
    attribute("exclude-branches", Kind::Patterns(Anchor::Whole)),
    attribute("always-dynamic-branches", Kind::Patterns(Anchor::Whole)),
    attribute("extra-config-paths", Kind::Texts),
    attribute("load-branch", Kind::Text),
    attribute("implied-branch-matchers", Kind::Bool),
    attribute("configure-projects", Kind::Patterns(Anchor::Whole)),
    attribute("allow-reporter-jobs", Kind::Bool),
    attribute("allow-base-jobs", Kind::Bool),
    attribute("allow-circular-dependencies", Kind::Bool),
];

const TOP: &[&str] = &["tenant", "authorization-rule", "admin-rule", "role", "global-semaphore", "api-root"];

/// Reads the tenant file. A tenant with an error is left out; the others are there.
pub fn parse_tenant_file(text: &str) -> (Vec<TenantSpec>, Vec<Problem>) {
    let context = SourceContext { path: "tenant file".to_owned(), trusted: true, ..SourceContext::default() };
    let mut sink = Sink { context: Shared::new(context), text, problems: Vec::new() };
    let mut tenants: Vec<TenantSpec> = Vec::new();
    let root = match parse_lenient(text) {
        Ok((root, duplicates)) => {
            for error in duplicates {
                let cure = "Zuul takes the last one; keep only that";
                sink.add(Severity::Warning, error.code(), "Unknown", error.mark(), error.to_string()).cure =
                    cure.into();
            }
            root
        }
        Err(errors) => {
            for error in errors {
                sink.error(error.code(), "Unknown", error.mark(), error.to_string(), error.cure());
            }
            return (tenants, sink.problems);
        }
    };
    let Some(root) = root else {
        let cure = "begin with `- tenant:`";
        sink.error("not-a-list", "Unknown", Mark { line: 1, column: 1 }, "the tenant file is empty", cure);
        return (tenants, sink.problems);
    };
    let Some(items) = root.as_sequence() else {
        let message = format!("the tenant file must be a list, not {}", root.kind_name());
        sink.error("not-a-list", "Unknown", root.start, message, "begin each item with a dash, as in `- tenant:`");
        return (tenants, sink.problems);
    };
    for item in items {
        let Some([entry]) = item.as_mapping() else {
            let message = "each item of the tenant file must be a dictionary with exactly one key";
            sink.error("not-one-key", "Unknown", item.start, message, "indent the attributes below the key");
            continue;
        };
        if !TOP.contains(&entry.key.as_str()) {
            let message = format!("`{}` is not known in the tenant file", entry.key);
            let cure = match did_you_mean(&entry.key, TOP.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are: {}", TOP.join(", ")),
            };
            sink.error("unknown-item", "Unknown", entry.mark, message, cure);
            continue;
        }
        if entry.key != "tenant" {
            continue;
        }
        if let Some(spec) = tenant(&mut sink, entry) {
            if tenants.iter().any(|other| other.settings.name == spec.settings.name) {
                let message = format!("the tenant \"{}\" appears twice", spec.settings.name);
                sink.error("duplicate-tenant", "Unknown", entry.mark, message, "give each tenant a name of its own");
                continue;
            }
            tenants.push(spec);
        }
    }
    (tenants, sink.problems)
}

fn limit(given: Option<i64>, default: Option<i64>) -> Option<i64> {
    match given {
        Some(number) if number < 0 => None,
        Some(number) => Some(number),
        None => default,
    }
}

fn tenant(sink: &mut Sink<'_>, entry: &Entry) -> Option<TenantSpec> {
    let mut stanza = Stanza::open(sink, "tenant", &entry.value, entry.mark, &[TENANT])?;
    let defaults = TenantSettings::default();
    let mut settings = TenantSettings {
        name: stanza.name.clone(),
        default_parent: stanza.text_or("default-parent", &defaults.default_parent),
        max_job_timeout: limit(stanza.int("max-job-timeout"), defaults.max_job_timeout),
        max_nodes_per_job: limit(stanza.int("max-nodes-per-job"), defaults.max_nodes_per_job),
        max_changes_per_pipeline: limit(stanza.int("max-changes-per-pipeline"), None),
        max_dependencies: limit(stanza.int("max-dependencies"), None),
        default_ansible_version: stanza
            .entry("default-ansible-version")
            .map(|entry| match entry.value.as_str() {
                Some(text) => text.to_owned(),
                None => entry.value.to_value().to_string(),
            })
            .unwrap_or(defaults.default_ansible_version),
        allowed_triggers: stanza.texts("allowed-triggers"),
        allowed_reporters: stanza.texts("allowed-reporters"),
        semaphores: stanza.texts("semaphores").unwrap_or_default(),
        connections: Vec::new(),
        projects: Vec::new(),
    };
    let unprotected = stanza.bool("exclude-unprotected-branches");
    let locked = stanza.bool("exclude-locked-branches");
    for source in stanza.entry("source").and_then(|entry| entry.value.as_mapping()).unwrap_or(&[]) {
        let failed = {
            let Some(mut inner) = Stanza::open(&mut *stanza.sink, "source", &source.value, source.mark, &[SOURCE])
            else {
                stanza.spoil();
                continue;
            };
            inner.name.clone_from(&source.key);
            for (key, trusted) in [("config-projects", true), ("untrusted-projects", false)] {
                for item in inner.entry(key).map_or(&[][..], |entry| entry.value.items()) {
                    project(&mut inner, item, trusted, None, &mut settings.projects);
                }
            }
            inner.failed()
        };
        if failed {
            stanza.spoil();
        }
    }
    for project in &mut settings.projects {
        project.exclude_unprotected_branches = project.exclude_unprotected_branches.or(unprotected);
        project.exclude_locked_branches = project.exclude_locked_branches.or(locked);
    }
    settings.projects.sort_by_key(|project| !project.trusted);
    let place = stanza.place();
    stanza.finish(TenantSpec { settings, place })
}

/// One entry of a list of projects: a name, a name with attributes, or a group.
fn project(
    source: &mut Stanza<'_, '_, '_>,
    item: &Node,
    trusted: bool,
    classes: Option<&[String]>,
    projects: &mut Vec<TenantProject>,
) {
    let connection = source.name.clone();
    let mut add = |source: &mut Stanza<'_, '_, '_>, project: TenantProject, mark: Mark| {
        if projects.iter().any(|other| other.connection == project.connection && other.name == project.name) {
            let message = format!("the project \"{}\" appears twice in one tenant", project.name);
            source.fail("duplicate-project", mark, None, message, "keep one of the two");
        } else {
            projects.push(project);
        }
    };
    let fresh = |name: &str| {
        let mut project = TenantProject::new(&connection, name, trusted);
        if let Some(classes) = classes {
            project.include = classes.to_vec();
        }
        project
    };
    if let Some(name) = item.as_str() {
        add(source, fresh(name), item.start);
        return;
    }
    match item.as_mapping() {
        Some(entries) if entries.len() > 1 && item.get("projects").is_some() => {
            let classes = {
                let Some(mut group) = Stanza::open(&mut *source.sink, "group", item, item.start, &[GROUP]) else {
                    return;
                };
                let classes = classes_of(&mut group, default_classes(trusted));
                let failed = group.failed();
                if failed {
                    source.spoil();
                }
                classes
            };
            for inner in item.get("projects").map_or(&[][..], |entry| entry.value.items()) {
                if inner.get("projects").is_some() {
                    let cure = "list the projects directly";
                    source.fail("nested-group", inner.start, None, "a group of projects holds another group", cure);
                    continue;
                }
                project(source, inner, trusted, Some(&classes), projects);
            }
        }
        Some([entry]) => {
            let base = fresh(&entry.key);
            let read = with_attributes(source, entry, base);
            if let Some(read) = read {
                add(source, read, entry.mark);
            }
        }
        _ => {
            let message = "a project must be a name, one name with attributes, or a group with `projects`";
            source.fail("wrong-type", item.start, None, message, "indent the attributes below the name");
        }
    }
}

fn classes_of(stanza: &mut Stanza<'_, '_, '_>, default: Vec<String>) -> Vec<String> {
    let mut classes = default;
    for key in ["include", "exclude"] {
        let unknown: Vec<String> = stanza
            .texts(key)
            .unwrap_or_default()
            .into_iter()
            .filter(|class| !LOADABLE_CLASSES.contains(&class.as_str()))
            .collect();
        for class in unknown {
            let mark = stanza.entry(key).map_or(stanza.mark, |entry| entry.mark);
            let cure = match did_you_mean(&class, LOADABLE_CLASSES.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are: {}", LOADABLE_CLASSES.join(", ")),
            };
            let message = format!("`{class}` in `{key}` of {} is no class of objects", stanza.title());
            stanza.fail("unknown-value", mark, Some(key), message, cure);
        }
    }
    if let Some(include) = stanza.texts("include") {
        classes = include;
    }
    if stanza.bool("include-provider-config") == Some(true) {
        for class in PROVIDER_CLASSES {
            if !classes.iter().any(|known| known == class) {
                classes.push((*class).to_owned());
            }
        }
    }
    let exclude = stanza.texts("exclude").unwrap_or_default();
    classes.retain(|class| !exclude.contains(class));
    classes
}

fn with_attributes(source: &mut Stanza<'_, '_, '_>, entry: &Entry, base: TenantProject) -> Option<TenantProject> {
    let mut project = base;
    if entry.value.is_null() {
        return Some(project);
    }
    let failed = {
        let mut stanza = Stanza::open(&mut *source.sink, "project", &entry.value, entry.mark, &[PROJECT])?;
        stanza.name.clone_from(&entry.key);
        project.include = classes_of(&mut stanza, project.include);
        project.shadow = stanza.texts("shadow").unwrap_or_default();
        project.exclude_unprotected_branches = stanza.bool("exclude-unprotected-branches");
        project.exclude_locked_branches = stanza.bool("exclude-locked-branches");
        let patterns = |key: &str| stanza.patterns(key, Anchor::Whole).unwrap_or_default();
        project.include_branches = patterns("include-branches");
        project.exclude_branches = patterns("exclude-branches");
        project.always_dynamic_branches = patterns("always-dynamic-branches");
        project.configure_projects = patterns("configure-projects");
        project.extra_config_paths = stanza.texts("extra-config-paths").unwrap_or_default();
        project.load_branch = stanza.text("load-branch");
        project.implied_branch_matchers = stanza.bool("implied-branch-matchers");
        project.allow_base_jobs = stanza.bool("allow-base-jobs").unwrap_or(true);
        project.allow_reporter_jobs = stanza.bool("allow-reporter-jobs").unwrap_or(false);
        for path in &project.extra_config_paths {
            if ["zuul.yaml", "zuul.d/", ".zuul.yaml", ".zuul.d/"].contains(&path.as_str()) {
                let mark = stanza.entry("extra-config-paths").map_or(stanza.mark, |entry| entry.mark);
                let message = format!("`{path}` in `extra-config-paths` of {} is read anyway", stanza.title());
                stanza.fail("reserved-path", mark, Some("extra-config-paths"), message, "remove it");
            }
        }
        for (key, only_for) in
            [("configure-projects", false), ("allow-reporter-jobs", false), ("allow-base-jobs", true)]
        {
            if let Some(given) = stanza.entry(key)
                && project.trusted != only_for
            {
                let kind = if only_for { "config" } else { "untrusted" };
                let message = format!("`{key}` of {} goes with {kind} projects only", stanza.title());
                stanza.fail("misplaced-attribute", given.mark, Some(key), message, "remove it");
            }
        }
        stanza.failed()
    };
    if failed {
        source.spoil();
        return None;
    }
    Some(project)
}
