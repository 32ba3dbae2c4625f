//! Roles of projects: where Ansible looks for the roles that a playbook names.
//!
//! Each repository is checked out once for a build and context; each playbook has a link to it of its own,
//! `ansible/<playbook>/role_<n>/<name>`, so that a repository that is one role can have the name a job gives it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use crate::jobdir::make_dir;
use crate::playbooks::Places;
use crate::spec::{PlaybookSpec, RoleSpec};

/// A repository with roles, in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleInPlace {
    /// What was asked for.
    pub(crate) spec: RoleSpec,
    /// The link the playbook has to the repository.
    pub(crate) link: PathBuf,
    /// The repository.
    pub(crate) repository: PathBuf,
    /// The directory in which Ansible looks for roles; `None`: the repository is there for the playbook alone.
    pub(crate) path: Option<PathBuf>,
}

/// Links the repositories of a playbook's roles below the playbook's own directory.
///
/// # Errors
/// A sentence that names the project: its roles cannot be found, or the role has a name that no file can have.
pub(crate) fn put(playbook: &PlaybookSpec, directory: &Path, places: &Places) -> Result<Vec<RoleInPlace>, String> {
    let mut put = Vec::with_capacity(playbook.roles.len());
    for role in &playbook.roles {
        let Some(repository) = places.get(&(playbook.trusted, role.checkout.clone())) else { continue };
        let project = role.checkout.project.canonical_name();
        if !is_one_name(&role.target_name) {
            return Err(format!(
                "role {:?} of project {project} cannot have that name: give it one without a slash",
                role.target_name
            ));
        }
        let root = directory.join(format!("role_{}", put.len()));
        make_dir(&root).map_err(|error| error.to_string())?;
        let link = root.join(&role.target_name);
        symlink(repository, &link).map_err(|error| format!("cannot link {}: {error}", link.display()))?;
        let path = match look(repository) {
            Found::BareRole => Some(root),
            Found::Roles => Some(link.join("roles")),
            Found::Nothing if role.implicit => None,
            Found::Nothing => {
                return Err(format!(
                    "project {project} on branch {} has no roles for playbook {}: it has neither tasks/ nor roles/; \
                     take it out of the job's roles, or correct the name",
                    role.checkout.name, playbook.path
                ));
            }
            Found::LeadsOut(name) => {
                return Err(format!(
                    "{name} of project {project} on branch {} is a link that leads out of its project: put a plain \
                     directory in its place",
                    role.checkout.name
                ));
            }
        };
        put.push(RoleInPlace { spec: role.clone(), link, repository: repository.clone(), path });
    }
    Ok(put)
}

/// What a repository holds.
enum Found {
    /// One role, the repository itself.
    BareRole,
    /// A directory of roles.
    Roles,
    Nothing,
    LeadsOut(&'static str),
}

/// Zuul: a repository with `tasks/` is one role, one with `roles/` holds several.
fn look(repository: &Path) -> Found {
    for (name, found) in [("tasks", Found::BareRole), ("roles", Found::Roles)] {
        let place = repository.join(name);
        if !place.is_dir() {
            continue;
        }
        let within = |root: &Path| fs::canonicalize(&place).is_ok_and(|real| real.starts_with(root));
        return if fs::canonicalize(repository).is_ok_and(|root| within(&root)) {
            found
        } else {
            Found::LeadsOut(name)
        };
    }
    Found::Nothing
}

fn is_one_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) && !name.contains(['/', ':', '\n'])
}
