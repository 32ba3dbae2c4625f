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
