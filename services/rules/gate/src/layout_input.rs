//! What a loader is given for a layout that is wanted: by whoever makes it, and by whoever makes it again.

use std::collections::BTreeMap;

use gatelog_record::BlobHash;
use gatelog_record::draft::gate::ConfigFileSet;
use gatelog_rules_config::tenant::{ProjectFacts, TenantSpec};
use gatelog_rules_config::{ConfigFile, LoadInput, Place, TenantSettings};

/// A tenant's settings with the files of its projects. `content` gives a blob; `local` says what a project is called by
/// its connection, from the connection and the canonical name; `host` is a connection's canonical host name, where the
/// connection is known.
///
/// # Errors
/// Those of `content` and of `local`.
pub fn layout_input<E>(
    settings: TenantSettings,
    sets: &[ConfigFileSet],
    content: impl Fn(&BlobHash) -> Result<Vec<u8>, E>,
    local: impl Fn(&str, &str) -> Result<String, E>,
    host: impl Fn(&str) -> Option<String>,
) -> Result<LoadInput, E> {
    let mut facts: BTreeMap<(String, String), ProjectFacts> = BTreeMap::new();
    let mut files = Vec::new();
    for set in sets {
        let local = local(&set.at.connection, &set.at.project)?;
        let known = facts.entry((set.at.connection.clone(), local)).or_insert_with(|| ProjectFacts {
            canonical_name: set.at.project.clone(),
            default_branch: String::new(),
            branches: Vec::new(),
        });
        known.branches.push(set.at.branch.clone());
        if set.default || known.default_branch.is_empty() {
            known.default_branch.clone_from(&set.at.branch);
        }
        for file in &set.files {
            // What is not UTF-8 is shown to the loader with replacement characters, which it names where it meets them;
            // it is not a reason to do without the rest.
            let text = String::from_utf8_lossy(&content(&file.blob)?).into_owned();
            files.push(ConfigFile {
                project: set.at.project.clone(),
                branch: set.at.branch.clone(),
                path: file.path.clone(),
                text,
            });
        }
    }
    let spec = TenantSpec { settings, place: Place::default() };
    // A connection that is not configured is the only reason left for a project to be unknown; the tenant file named it
    // when it was read.
    let (tenant, _) = spec.resolve(|connection, name| {
        facts.get(&(connection.to_owned(), name.to_owned())).cloned().or_else(|| {
            // A project that could not be read has a name all the same.
            let canonical_name = format!("{}/{name}", host(connection)?);
            Some(ProjectFacts { canonical_name, default_branch: "master".into(), branches: Vec::new() })
        })
    });
    Ok(LoadInput { tenant, files })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatelog_record::draft::gate::{ConfigFile as KeptFile, ProjectBranch};
    use gatelog_rules_config::TenantProject;

    /// The files of a branch: one, which holds the branch's name.
    fn set(project: &str, branch: &str, default: bool) -> ConfigFileSet {
        ConfigFileSet {
            at: ProjectBranch { connection: "git".into(), project: project.into(), branch: branch.into() },
            default,
            commit: String::new(),
            files: vec![KeptFile { path: "zuul.yaml".into(), blob: BlobHash::of(branch.as_bytes()) }],
        }
    }

    fn made(sets: &[ConfigFileSet]) -> Result<LoadInput, String> {
        let mut tenant = TenantSettings { name: "acme".into(), ..TenantSettings::default() };
        tenant.projects = vec![TenantProject::new("git", "lib", false), TenantProject::new("git", "gone", false)];
        let content = |blob: &BlobHash| {
            let known = ["main", "stable", "next"].iter().find(|branch| BlobHash::of(branch.as_bytes()) == *blob);
            known.map(|branch| format!("# {branch}").into_bytes()).ok_or_else(|| "a blob is missing".to_owned())
        };
        let local = |connection: &str, project: &str| match (connection, project.strip_prefix("forge/")) {
            ("git", Some(local)) => Ok(local.to_owned()),
            _ => Err(format!("{project} is not of {connection}")),
        };
        layout_input(tenant, sets, content, local, |connection| (connection == "git").then(|| "forge".to_owned()))
    }

    #[test]
    fn a_loader_is_given_each_project_with_its_branches_and_files() {
        let sets = [set("forge/lib", "stable", false), set("forge/lib", "main", true), set("forge/lib", "next", false)];
        let input = made(&sets).unwrap();
        let lib = input.tenant.projects.iter().find(|one| one.canonical_name == "forge/lib").unwrap();
        assert_eq!((lib.branches.join(" ").as_str(), lib.default_branch.as_str()), ("main next stable", "main"));
        // One that could not be read has a name all the same.
        let gone = input.tenant.projects.iter().find(|one| one.canonical_name == "forge/gone").unwrap();
        assert_eq!((gone.branches.len(), gone.default_branch.as_str()), (0, "master"));
        let files: Vec<String> = input
            .files
            .iter()
            .map(|file| format!("{} {} {} {}", file.project, file.branch, file.path, file.text))
            .collect();
        let expected = ["stable", "main", "next"].map(|branch| format!("forge/lib {branch} zuul.yaml # {branch}"));
        assert_eq!(files, expected);
        // Where none says that it is the default, it is the first.
        let input = made(&[set("forge/lib", "stable", false), set("forge/lib", "next", false)]).unwrap();
        assert_eq!(input.tenant.projects[0].default_branch, "stable");
    }

    #[test]
    fn what_cannot_be_had_is_told() {
        assert_eq!(made(&[set("forge/lib", "lost", false)]).unwrap_err(), "a blob is missing");
        assert_eq!(made(&[set("elsewhere/lib", "main", false)]).unwrap_err(), "elsewhere/lib is not of git");
    }
}
