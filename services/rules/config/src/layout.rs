//! The configuration of a tenant, ready to be asked.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use crate::objects::nodeset::{Alternative, NodesetContent, NodesetShape};
use crate::objects::{
    JobDefinition, NamedObject, Nodeset, Pipeline, ProjectStanza, ProjectTemplate, Queue, Secret, Semaphore,
};
use crate::regexes::Pattern;
use crate::shared::Shared;
use crate::tenant::TenantProject;

/// What a layout knows about a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutProject {
    /// Canonical name (`host/name`).
    pub canonical_name: String,
    /// The name at its connection.
    pub name: String,
    /// The connection.
    pub connection: String,
    /// Whether it is a config project.
    pub trusted: bool,
    /// Its default branch: what a stanza says, or what the connection says.
    pub default_branch: String,
    /// Its branches.
    pub branches: Vec<String>,
    /// Whether its definitions get implied branch matchers; none decides by the number of branches.
    pub implied_branch_matchers: Option<bool>,
    /// Branches whose configuration is always read with the change.
    pub always_dynamic_branches: Vec<Pattern>,
    /// Whether its lists may name reporter jobs.
    pub allow_reporter_jobs: bool,
    /// How its changes are merged, if a stanza says.
    pub merge_mode: Option<String>,
    /// The queue it shares, if a stanza or template says.
    pub queue: Option<String>,
}

impl From<&TenantProject> for LayoutProject {
    fn from(project: &TenantProject) -> Self {
        LayoutProject {
            canonical_name: project.canonical_name.clone(),
            name: project.name.clone(),
            connection: project.connection.clone(),
            trusted: project.trusted,
            default_branch: project.default_branch.clone(),
            branches: project.branches.clone(),
            implied_branch_matchers: project.implied_branch_matchers,
            always_dynamic_branches: project.always_dynamic_branches.clone(),
            allow_reporter_jobs: project.trusted || project.allow_reporter_jobs,
            merge_mode: None,
            queue: None,
        }
    }
}

/// The configuration of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// The tenant.
    pub tenant: String,
    /// Parent of every job that names none.
    pub default_parent: String,
    /// Version of Ansible for jobs that name none.
    pub default_ansible_version: String,
    /// Longest timeout in seconds.
    pub max_job_timeout: Option<i64>,
    /// Most nodes of a job.
    pub max_nodes_per_job: Option<i64>,
    /// Most changes in one pipeline; none is without limit.
    pub max_changes_per_pipeline: Option<i64>,
    /// Most changes that may need others among those one change hangs together with; none is without limit.
    pub max_dependencies: Option<i64>,
    /// Whether labels nobody defines may be asked for all the same.
    pub use_nodepool: bool,
    /// Its projects by canonical name.
    pub projects: BTreeMap<String, LayoutProject>,
    /// Canonical names by short name.
    pub short_names: BTreeMap<String, Vec<String>>,
    /// Its pipelines by name.
    pub pipelines: BTreeMap<String, Shared<Pipeline>>,
    /// Names of pipelines in the order of definition.
    pub pipeline_order: Vec<String>,
    /// Definitions of each job, in the order in which they are applied.
    pub jobs: BTreeMap<String, Vec<Shared<JobDefinition>>>,
    /// Variants of each template, in order.
    pub templates: BTreeMap<String, Vec<Shared<ProjectTemplate>>>,
    /// Stanzas for each project (canonical name), in the order in which they are looked at.
    pub stanzas: BTreeMap<String, Vec<Shared<ProjectStanza>>>,
    /// Nodesets by name.
    pub nodesets: BTreeMap<String, Shared<Nodeset>>,
    /// Secrets by name.
    pub secrets: BTreeMap<String, Shared<Secret>>,
    /// Semaphores of the site this tenant may use, with their room; they win over its own.
    pub global_semaphores: BTreeMap<String, i64>,
    /// Semaphores by name; one that nobody defines has room for one.
    pub semaphores: BTreeMap<String, Shared<Semaphore>>,
    /// Queues by name, implicit ones among them.
    pub queues: BTreeMap<String, Shared<Queue>>,
    /// The project that has the playbooks of files beside the tenant file, if there are such files.
    pub playbook_home: Option<String>,
    /// Images, flavors, labels, sections and providers: by class, then by name.
    pub named: BTreeMap<String, BTreeMap<String, Shared<NamedObject>>>,
}

/// Why a name of a project means nothing, or not one thing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProjectLookupError {
    /// The tenant has no such project.
    #[error("the tenant has no project \"{0}\"")]
    Unknown(String),
    /// Several connections have a project of that name.
    #[error("the project name \"{name}\" is ambiguous: {}", candidates.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Canonical names.
        candidates: Vec<String>,
    },
}

/// Why a nodeset cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodesetError {
    /// Nobody defines it.
    #[error("the nodeset \"{0}\" was not found")]
    Unknown(String),
    /// It is an alternative of itself.
    #[error("the nodeset \"{0}\" is an alternative of itself")]
    Cycle(String),
}

fn meet(seen: &mut Vec<(String, NodesetContent)>, name: &str, content: NodesetContent) -> Result<(), NodesetError> {
    let met = (name.to_owned(), content);
    if seen.contains(&met) {
        return Err(NodesetError::Cycle(name.to_owned()));
    }
    seen.push(met);
    Ok(())
}

impl Layout {
    /// The project a short or canonical name means.
    ///
    /// # Errors
    /// When no project, or more than one, has that name.
    pub fn project(&self, name: &str) -> Result<&LayoutProject, ProjectLookupError> {
        if let Some(project) = self.projects.get(name) {
            return Ok(project);
        }
        let unknown = || ProjectLookupError::Unknown(name.to_owned());
        match self.short_names.get(name).map_or(&[][..], Vec::as_slice) {
            [one] => self.projects.get(one).ok_or_else(unknown),
            [] => Err(unknown()),
            many => Err(ProjectLookupError::Ambiguous { name: name.to_owned(), candidates: many.to_vec() }),
        }
    }

    /// The definitions of a job.
    pub fn definitions(&self, job: &str) -> &[Shared<JobDefinition>] {
        self.jobs.get(job).map_or(&[], Vec::as_slice)
    }

    /// How many may hold a semaphore. Zuul: an undefined one has room for one.
    pub fn semaphore_max(&self, name: &str) -> i64 {
        let global = self.global_semaphores.get(name).copied();
        global.or_else(|| self.semaphores.get(name).map(|semaphore| semaphore.max)).unwrap_or(1)
    }

    /// The queue a project shares with others.
    pub fn queue_of(&self, canonical_name: &str) -> Option<&Queue> {
        let name = self.projects.get(canonical_name)?.queue.as_deref()?;
        self.queues.get(name).map(|queue| &**queue)
    }

    /// The project that has the playbooks of files beside the tenant file.
    pub fn playbook_home(&self) -> Option<&LayoutProject> {
        self.projects.get(self.playbook_home.as_deref()?)
    }

    /// The pipelines in the order of definition.
    pub fn pipelines_in_order(&self) -> impl Iterator<Item = &Pipeline> {
        self.pipeline_order.iter().filter_map(|name| self.pipelines.get(name)).map(|pipeline| &**pipeline)
    }

    /// What a nodeset comes to: its name and shape, or those of its alternatives in order, depth
    /// first.
    ///
    /// # Errors
    /// When it names a nodeset that does not exist, or comes back to itself.
    pub fn flatten_nodeset(&self, nodeset: &Nodeset) -> Result<Vec<(String, NodesetShape)>, NodesetError> {
        let mut found = Vec::new();
        self.flatten_into(nodeset, &mut Vec::new(), &mut found)?;
        Ok(found)
    }

    fn flatten_into(
        &self,
        nodeset: &Nodeset,
        seen: &mut Vec<(String, NodesetContent)>,
        found: &mut Vec<(String, NodesetShape)>,
    ) -> Result<(), NodesetError> {
        // Zuul: even a repetition that is no cycle is refused, of spelt out nodes too.
        meet(seen, &nodeset.name, nodeset.content.clone())?;
        match &nodeset.content {
            NodesetContent::Shape(shape) => found.push((nodeset.name.clone(), shape.clone())),
            NodesetContent::Alternatives(alternatives) => {
                for alternative in alternatives {
                    match alternative {
                        Alternative::Inline(shape) => {
                            meet(seen, "", NodesetContent::Shape(shape.clone()))?;
                            found.push((String::new(), shape.clone()));
                        }
                        Alternative::Named(name) => {
                            let inner = self.nodesets.get(name).ok_or_else(|| NodesetError::Unknown(name.clone()))?;
                            self.flatten_into(inner, seen, found)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The layout for people and tools, as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::{Map, Value as Json, json};
        let job = |definition: &JobDefinition| {
            let mut attributes: Map<String, Json> = definition
                .settings
                .iter()
                .map(|(attribute, setting)| (attribute.row().name.to_owned(), setting.value.to_value().to_json()))
                .collect();
            if let Some(branches) = &definition.branches {
                attributes.insert("branches".into(), branches.iter().map(Pattern::describe).collect());
            }
            let parent = match &definition.parent {
                crate::objects::job::Parent::Default => Json::String(self.default_parent.clone()),
                crate::objects::job::Parent::Base => Json::Null,
                crate::objects::job::Parent::Named(name) => Json::String(name.clone()),
            };
            json!({"name": definition.name, "place": definition.place.to_string(), "parent": parent,
                   "attributes": attributes})
        };
        let pipelines = |all: &BTreeMap<String, crate::objects::project::ProjectPipeline>| -> Json {
            let entry = |pipeline: &crate::objects::project::ProjectPipeline| {
                json!({"jobs": pipeline.jobs.iter().map(|one| job(one)).collect::<Vec<_>>(),
                       "debug": pipeline.debug, "fail-fast": pipeline.fail_fast})
            };
            Json::Object(all.iter().map(|(name, pipeline)| (name.clone(), entry(pipeline))).collect())
        };
        let map = |map: &BTreeMap<String, Value>| Value::Map(map.clone()).to_json();
        json!({
            "tenant": self.tenant,
            "default_parent": self.default_parent,
            "projects": self.projects.values().map(|project| json!({
                "canonical_name": project.canonical_name, "name": project.name, "connection": project.connection,
                "trusted": project.trusted, "default_branch": project.default_branch, "branches": project.branches,
                "merge_mode": project.merge_mode, "queue": project.queue,
                "stanzas": self.stanzas.get(&project.canonical_name).map_or(&[][..], Vec::as_slice).iter()
                    .map(|stanza| json!({"place": stanza.place.to_string(), "templates": stanza.templates,
                        "vars": map(&stanza.vars), "pipelines": pipelines(&stanza.pipelines)}))
                    .collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "pipelines": self.pipelines_in_order().map(|pipeline| json!({
                "name": pipeline.name, "manager": format!("{:?}", pipeline.manager).to_lowercase(),
                "description": pipeline.description, "post_review": pipeline.post_review,
                "precedence": format!("{:?}", pipeline.precedence).to_lowercase(),
                "place": pipeline.place.to_string(),
                "window": pipeline.window.size, "window_floor": pipeline.window.floor,
                "window_ceiling": pipeline.window.ceiling,
                "triggers": pipeline.triggers.iter().map(|(connection, filters)| {
                    (connection.clone(), filters.iter().map(map).collect::<Json>())
                }).collect::<Map<_, _>>(),
                "reporters": pipeline.actions.iter().map(|(action, by)| (action.clone(), map(by)))
                    .collect::<Map<_, _>>(),
            })).collect::<Vec<_>>(),
            "jobs": self.jobs.iter().map(|(name, all)| {
                (name.clone(), all.iter().map(|one| job(one)).collect::<Json>())
            }).collect::<Map<_, _>>(),
            "templates": self.templates.iter().map(|(name, all)| {
                (name.clone(), all.iter().map(|one| json!({"place": one.place.to_string(), "vars": map(&one.vars),
                    "pipelines": pipelines(&one.pipelines)})).collect::<Json>())
            }).collect::<Map<_, _>>(),
            "nodesets": self.nodesets.keys().collect::<Vec<_>>(),
            "secrets": self.secrets.keys().collect::<Vec<_>>(),
            "semaphores": self.semaphores.iter().map(|(name, one)| (name.clone(), json!({"max": one.max})))
                .collect::<Map<_, _>>(),
            "queues": self.queues.keys().collect::<Vec<_>>(),
        })
    }
}
