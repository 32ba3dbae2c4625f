//! Work: read configuration files at the tips of branches. Zuul: the merger's `cat` jobs.

use gatelog_merging::State;
use gatelog_record::draft::gate::{
    ConfigFileSet, ConfigFilesFound, ConfigReadWanted, ProjectBranch, ProjectProblem, TenantProject,
};

use crate::connection::Trouble;
use crate::git::{Repositories, config_filter, trouble};

/// Reads every branch of the projects asked for. A project that cannot be read is named in the
/// answer and harms no other.
pub fn read(repositories: &Repositories, wanted: &ConfigReadWanted, attempt: u32) -> ConfigFilesFound {
    let mut found = ConfigFilesFound {
        work: wanted.work,
        attempt,
        tenant: wanted.tenant.clone(),
        sets: Vec::new(),
        failed: Vec::new(),
    };
    for project in &wanted.projects {
        match read_project(repositories, project) {
            Ok(sets) => found.sets.extend(sets),
            Err(Trouble { code, message, .. }) => {
                found.failed.push(ProjectProblem { project: project.project.clone(), code, message });
            }
        }
    }
    found
}

fn read_project(repositories: &Repositories, project: &TenantProject) -> Result<Vec<ConfigFileSet>, Trouble> {
    let key = repositories.key(&project.connection, &project.project)?;
    let fetched = repositories.mirrors.fetch(&key, &[]).map_err(|error| trouble(&error))?;
    let filter = config_filter(&[]);
    let mut sets = Vec::with_capacity(fetched.branches.len());
    for (branch, commit) in fetched.branches {
        let files = repositories
            .mirrors
            .read_files(&key, &State::Commit(commit.clone()), &filter)
            .map_err(|error| trouble(&error))?;
        sets.push(ConfigFileSet {
            at: ProjectBranch {
                connection: project.connection.clone(),
                project: project.project.clone(),
                branch: branch.clone(),
            },
            default: fetched.default_branch.as_deref() == Some(branch.as_str()),
            commit,
            files: if project.reads_config { repositories.keep(files)? } else { Vec::new() },
        });
    }
    Ok(sets)
}
