//! A configuration folder: a tenant file, a `zuul.conf` and a tree of files for each project, loaded
//! without a server, without repositories, without a network. Reading it from a disk is the caller's.

pub mod conf;

use std::collections::{BTreeMap, BTreeSet};

use gatelog_driver_schema::Schemas;

use crate::dialect::Spelling;
use crate::findings::Finding;
use crate::layout::Layout;
use crate::load::{ConfigFile, LoadInput, load_findings};
use crate::problem::Problem;
use crate::tenant::{ProjectFacts, TenantSettings, TenantSpec};
use crate::tenant_file::{check_sources, parse_tenant_file_as};
use conf::Connection;

/// A configuration folder.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    /// The text of the tenant file.
    pub tenant_file: String,
    /// The text of `zuul.conf`.
    pub conf: String,
    /// The name under which `zuul.conf` was given.
    pub conf_name: String,
    /// Branches of projects, as `branches.json` lists them; one that is not there has `master` alone.
    pub branches: BTreeMap<String, Vec<String>>,
    /// Branches every repository has in addition, with the files of `master`.
    pub made_branches: Vec<String>,
    /// Whether it stands for a site: then a project without files is an empty repository, and every
    /// branch is protected. Zuul's own fixtures have a `zuul.conf` elsewhere; their repositories are
    /// exactly the folders that are there, and none of GitHub or GitLab protects a branch.
    pub site: bool,
    /// Whether spellings older than Zuul 14 are understood.
    pub older_spellings: bool,
    /// What may be said to drivers that are not Zuul's.
    pub schemas: Schemas,
    /// Files beside the tenant file, which may include them: name to text.
    pub beside: BTreeMap<String, String>,
    /// Files of each folder below `git/` (`ORG_PROJECT`, or `ORG_PROJECT@BRANCH` with `/` as `%2F`):
    /// path to text.
    pub trees: BTreeMap<String, BTreeMap<String, String>>,
}

/// A tenant of a folder.
#[derive(Clone, Debug)]
pub struct LoadedTenant {
    /// The tenant.
    pub settings: TenantSettings,
    /// Its layout.
    pub layout: Layout,
    /// What was found, as often as it was met.
    pub findings: Vec<Finding>,
    /// Canonical names of projects whose repositories cannot be read.
    pub unreadable: Vec<String>,
}

impl Folder {
    /// Loads all tenants.
    ///
    /// # Errors
    /// What is wrong with the tenant file, or between it and `zuul.conf`: then nothing is loaded.
    pub fn load(&self) -> Result<Vec<LoadedTenant>, Vec<Problem>> {
        let connections = conf::connections(&self.conf);
        let spelling = if self.older_spellings { Spelling::Older } else { Spelling::Zuul };
        let (specs, problems) = parse_tenant_file_as(&self.tenant_file, spelling);
        if problems.iter().any(Problem::is_error) {
            return Err(problems);
        }
        let drivers = connections.iter().map(|known| (known.name.clone(), known.driver.clone())).collect();
        let problems = check_sources(&self.tenant_file, &drivers, self.schemas);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut read = Read::default();
        specs.iter().map(|spec| self.load_tenant(&connections, spec, &mut read)).collect()
    }

    fn load_tenant(
        &self,
        connections: &[Connection],
        spec: &TenantSpec,
        read: &mut Read,
    ) -> Result<LoadedTenant, Vec<Problem>> {
        let mut spec = spec.clone();
        spec.settings.connections = connections.iter().map(|connection| connection.name.clone()).collect();
        spec.settings.drivers =
            connections.iter().map(|connection| (connection.name.clone(), connection.driver.clone())).collect();
        spec.settings.schemas = self.schemas;
        spec.settings.older_spellings = self.older_spellings;
        for file in &mut spec.settings.included {
            file.text = self.beside.get(&file.path).cloned();
        }
        spec.imply_projects(&spec.settings.connections.clone());
        let mut unreadable = Vec::new();
        let asked = spec.settings.projects.iter().filter(|project| project.exclude_unprotected_branches == Some(true));
        let excluded: BTreeSet<(String, String)> =
            asked.map(|project| (project.connection.clone(), project.name.clone())).collect();
        let (settings, problems) = spec.resolve(|connection, name| {
            let known = connections.iter().find(|known| known.name == connection)?;
            let canonical_name = format!("{}/{name}", known.host);
            let hosted = !self.site && ["github", "gitlab"].contains(&known.driver.as_str());
            let mut branches = self.branches_of(name, hosted).filter(|_| known.readable);
            if branches.is_none() {
                unreadable.push(canonical_name.clone());
            }
            if hosted && excluded.contains(&(connection.to_owned(), name.to_owned())) {
                branches = Some(Vec::new());
            }
            Some(ProjectFacts {
                canonical_name,
                default_branch: "master".to_owned(),
                branches: branches.unwrap_or_default(),
            })
        });
        if problems.iter().any(Problem::is_error) {
            return Err(problems);
        }
        let mut files = Vec::new();
        for project in &settings.projects {
            for branch in &project.branches {
                let Some(tree) = self.tree_of(&project.name, branch) else { continue };
                files.extend(tree.iter().map(|(path, text)| ConfigFile {
                    project: project.canonical_name.clone(),
                    branch: branch.clone(),
                    path: path.clone(),
                    text: text.clone(),
                }));
            }
        }
        let input = LoadInput { tenant: settings, files };
        let (layout, mut findings) = load_findings(&input);
        let settings = input.tenant;
        findings.retain(|finding| !finding.of_file || !read.before(&settings, &finding.problem));
        read.note(&settings);
        Ok(LoadedTenant { settings, layout, findings, unreadable })
    }

    /// The branches of a repository; none when it cannot be read. Of a `hosted` one the branches are
    /// what its host says, not what was made in the repository.
    fn branches_of(&self, project: &str, hosted: bool) -> Option<Vec<String>> {
        let own = self.folder_name(project);
        let mut branches = match self.branches.get(project) {
            Some(listed) => listed.clone(),
            None if self.site || self.trees.contains_key(&own) => vec!["master".to_owned()],
            None => return None,
        };
        if self.trees.contains_key(&own) && !hosted {
            branches.extend(self.made_branches.iter().cloned());
        }
        branches.sort();
        branches.dedup();
        Some(branches)
    }

    /// In a site's folder only the first slash of a name is written as an underscore.
    fn folder_name(&self, project: &str) -> String {
        if self.site { project.replacen('/', "_", 1) } else { project.replace('/', "_") }
    }

    fn tree_of(&self, project: &str, branch: &str) -> Option<&BTreeMap<String, String>> {
        let own = self.folder_name(project);
        let of_branch = format!("{own}@{}", branch.replace('/', "%2F"));
        self.trees.get(&of_branch).or_else(|| self.trees.get(&own))
    }
}

/// Branches that tenants before have read, with the further paths they asked for: what is wrong with
/// such a file is told once. Zuul keeps what it has parsed for the tenants that follow.
#[derive(Default)]
struct Read(BTreeMap<(String, String), BTreeSet<String>>);

impl Read {
    fn note(&mut self, settings: &TenantSettings) {
        for project in settings.projects.iter().filter(|project| !project.include.is_empty()) {
            for branch in &project.branches {
                let seen = self.0.entry((project.canonical_name.clone(), branch.clone())).or_default();
                seen.extend(project.extra_config_paths.iter().cloned());
            }
        }
    }

    fn before(&self, settings: &TenantSettings, problem: &Problem) -> bool {
        let context = &problem.place.context;
        let Some(project) = settings.projects.iter().find(|project| project.canonical_name == context.project) else {
            return false;
        };
        let seen = self.0.get(&(context.project.clone(), context.branch.clone()));
        seen.is_some_and(|seen| project.extra_config_paths.iter().all(|path| seen.contains(path)))
    }
}
