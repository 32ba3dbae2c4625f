//! What a tenant is: its limits, its projects, and what each may say.

use std::collections::BTreeMap;

use gatelog_driver_schema::Schemas;
use gatelog_record::codec::{self, CodecError};
use serde::{Deserialize, Serialize};

use crate::authorization::{Access, Authorization};
use crate::dialect::Spelling;
use crate::load::parse_file;
use crate::objects::job_parts::AttributeValue;
use crate::objects::{JobAttribute, JobDefinition, Object};
use crate::place::{Place, SourceContext};
use crate::problem::Problem;
use crate::regexes::Pattern;

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
    /// The room of each of those.
    pub global_semaphores: BTreeMap<String, i64>,
    /// Labels nodesets may ask for; none given is all.
    pub allowed_labels: Vec<Pattern>,
    /// Labels nodesets may not ask for.
    pub disallowed_labels: Vec<Pattern>,
    /// Whether labels nobody defines may be asked for all the same.
    pub use_nodepool: bool,
    /// Longest life of a token in seconds.
    pub max_oidc_ttl: i64,
    /// Life of a token in seconds when its secret does not say.
    pub default_oidc_ttl: i64,
    /// Issuers a secret may name.
    pub allowed_oidc_issuers: Vec<String>,
    /// Connections that exist; empty means that nobody has said, and nothing is checked.
    pub connections: Vec<String>,
    /// Drivers of connections, where known: what a pipeline says to them is checked.
    pub drivers: BTreeMap<String, String>,
    /// What may be said to the drivers of this gatelog; Zuul's are known besides. Set by whoever reads settings.
    #[serde(skip)]
    pub schemas: Schemas,
    /// Whether spellings older than Zuul 14 are understood.
    pub older_spellings: bool,
    /// Files beside the tenant file that are configuration of this tenant; an older way to say things.
    pub included: Vec<IncludedFile>,
    /// Its projects, in the order of the file: per connection, config projects first.
    pub projects: Vec<TenantProject>,
    /// Who may do what in it, and at the root of the API.
    pub authorization: Authorization,
}

impl TenantSettings {
    /// The settings of bytes, also of those that were written before settings said who may do what: then everybody may
    /// look, as everybody might.
    ///
    /// # Errors
    /// They are no settings.
    pub fn read(bytes: &[u8]) -> Result<TenantSettings, CodecError> {
        let nothing = codec::encode(&Authorization::default())?;
        codec::decode_older(bytes, &nothing, |mut older: TenantSettings| {
            older.authorization.tenants.insert(older.name.clone(), Access::default());
            Some(older)
        })
    }
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
            global_semaphores: BTreeMap::new(),
            allowed_labels: Vec::new(),
            disallowed_labels: Vec::new(),
            use_nodepool: true,
            max_oidc_ttl: 10_800,
            default_oidc_ttl: 3_600,
            allowed_oidc_issuers: Vec::new(),
            connections: Vec::new(),
            drivers: BTreeMap::new(),
            schemas: Schemas::default(),
            older_spellings: true,
            included: Vec::new(),
            projects: Vec::new(),
            authorization: Authorization::default(),
        }
    }
}

/// A configuration file beside the tenant file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncludedFile {
    /// Its name, as the tenant file has it.
    pub path: String,
    /// Its content; none as long as nobody has read it, or where it is not there.
    pub text: Option<String>,
}

impl TenantSettings {
    /// The project with the playbooks of files beside the tenant file: one called `zuul-playbooks`, or the
    /// first config project.
    pub fn playbook_home(&self) -> Option<&TenantProject> {
        if self.included.is_empty() {
            return None;
        }
        let called = |project: &&TenantProject| project.name.rsplit('/').next() == Some("zuul-playbooks");
        self.projects.iter().find(called).or_else(|| self.projects.iter().find(|project| project.trusted))
    }

    /// How its files may be written.
    pub fn spelling(&self) -> Spelling {
        if self.older_spellings { Spelling::Older } else { Spelling::Zuul }
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
    /// Branches to take, if the tenant file says; wins over `exclude_branches`.
    pub include_branches: Option<Vec<Pattern>>,
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
            include_branches: None,
            exclude_branches: Vec::new(),
            exclude_unprotected_branches: None,
            exclude_locked_branches: None,
            allow_reporter_jobs: false,
        }
    }

    /// Whether its filters take a branch. Zuul: `include-branches` wins alone; a branch that is
    /// always read with the change is not taken otherwise.
    pub fn takes_branch(&self, branch: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(branch));
        match &self.include_branches {
            Some(included) => any(included),
            None => !any(&self.exclude_branches) && !any(&self.always_dynamic_branches),
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
        branches.retain(|branch| self.takes_branch(branch));
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

/// The projects a job names.
fn projects_of(job: &JobDefinition) -> Vec<String> {
    let mut names = Vec::new();
    if let Some(AttributeValue::Names(all)) = job.value(JobAttribute::AllowedProjects) {
        names.extend(all.iter().cloned());
    }
    if let Some(AttributeValue::Projects(all)) = job.value(JobAttribute::RequiredProjects) {
        names.extend(all.iter().map(|used| used.name.clone()));
    }
    names
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
    /// Older spellings: adds the projects that files beside the tenant file name, on the tenant's own
    /// connection or the only one there is; they contribute no configuration. Call it when those files
    /// have been read.
    pub fn imply_projects(&mut self, connections: &[String]) {
        let Some(connection) =
            self.settings.projects.first().map(|project| &project.connection).or(match connections {
                [only] => Some(only),
                _ => None,
            })
        else {
            return;
        };
        let connection = connection.clone();
        let mut named: Vec<String> = Vec::new();
        for file in &self.settings.included {
            let context = SourceContext { path: file.path.clone(), trusted: true, ..SourceContext::default() };
            let text = file.text.as_deref().unwrap_or_default();
            for stanza in parse_file(context, text, self.settings.spelling()).stanzas {
                match &stanza.object {
                    Some(Object::Project(project)) => named.extend(project.name.clone()),
                    Some(Object::Job(job)) => named.extend(projects_of(job)),
                    _ => {}
                }
            }
        }
        for name in named.into_iter().filter(|name| !name.starts_with('^')) {
            if !self.settings.projects.iter().any(|known| known.name == name || known.canonical_name == name) {
                let project = TenantProject::new(&connection, &name, false);
                self.settings.projects.push(TenantProject { include: Vec::new(), ..project });
            }
        }
    }

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
            resolved.branches.sort_unstable();
            resolved.branches.sort_by_key(|branch| *branch != resolved.default_branch);
            settings.projects.push(resolved);
        }
        (settings, problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_from_before_they_said_who_may_look_are_read_and_everybody_may() {
        let settings = TenantSettings { name: "acme".into(), ..TenantSettings::default() };
        let bytes = codec::encode(&settings).unwrap();
        assert_eq!(TenantSettings::read(&bytes).unwrap(), settings);
        let nothing = codec::encode(&Authorization::default()).unwrap();
        let older = TenantSettings::read(&bytes[..bytes.len() - nothing.len()]).unwrap();
        assert!(older.authorization.tenants["acme"].anonymous_read);
        assert_eq!(older.name, "acme");
        assert!(TenantSettings::read(&bytes[..bytes.len() / 2]).is_err());
    }
}
