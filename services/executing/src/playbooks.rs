//! Playbooks of a build: the repositories they are in, and the file each path means.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::jobdir::JobDir;
use crate::roles::{self, RoleInPlace};
use crate::spec::{BuildSpec, Checkout, PlaybookSpec};

/// Where repositories of playbooks and roles lie: whether for trusted playbooks, and which state.
pub(crate) type Places = BTreeMap<(bool, Checkout), PathBuf>;

/// A playbook whose repository has its place in the build's directory.
#[derive(Clone, Debug)]
pub(crate) struct PlaybookInPlace {
    /// What was asked for.
    pub(crate) spec: PlaybookSpec,
    /// Its repository's directory.
    pub(crate) repository: PathBuf,
    /// The playbook's file.
    pub(crate) file: PathBuf,
    /// Where its configuration, inventory and secrets lie.
    pub(crate) directory: PathBuf,
    /// Its position in its phase, from 0.
    pub(crate) index: u32,
    /// The repositories its roles are looked for in.
    pub(crate) roles: Vec<RoleInPlace>,
}

/// The repositories that playbooks and their roles need, each once, and where they go.
pub(crate) fn repositories(spec: &BuildSpec, job_dir: &JobDir) -> Places {
    let mut places = Places::new();
    let mut counts = [0_u32; 2];
    let needed = spec.playbooks.iter().flat_map(|playbook| {
        let roles = playbook.roles.iter().map(|role| &role.checkout);
        std::iter::once(&playbook.checkout).chain(roles).map(|checkout| (playbook.trusted, checkout))
    });
    for (trusted, checkout) in needed {
        places.entry((trusted, checkout.clone())).or_insert_with(|| {
            let [of_untrusted, of_trusted] = &mut counts;
            let (folder, count) =
                if trusted { (job_dir.trusted(), of_trusted) } else { (job_dir.untrusted(), of_untrusted) };
            let place = folder.join(format!("project_{count}")).join(checkout.project.canonical_name());
            *count += 1;
            place
        });
    }
    places
}

/// Finds each playbook's file and puts its roles in place. An error names project, branch and path.
pub(crate) fn find(spec: &BuildSpec, job_dir: &JobDir, places: &Places) -> Result<Vec<PlaybookInPlace>, String> {
    let mut counts: BTreeMap<_, u32> = BTreeMap::new();
    let mut found = Vec::new();
    for playbook in &spec.playbooks {
        let index = counts.entry(playbook.phase).or_default();
        let Some(repository) = places.get(&(playbook.trusted, playbook.checkout.clone())) else { continue };
        let file = locate(repository, &playbook.path).map_err(|reason| {
            format!(
                "playbook {} of project {} on branch {} {reason}",
                playbook.path,
                playbook.checkout.project.canonical_name(),
                playbook.checkout.name
            )
        })?;
        let directory = job_dir.ansible().join(match playbook.phase {
            crate::spec::Phase::Run => format!("playbook_{index}"),
            phase => format!("{}_playbook_{index}", phase.as_str()),
        });
        let roles = roles::put(playbook, &directory, places)?;
        found.push(PlaybookInPlace {
            spec: playbook.clone(),
            repository: repository.clone(),
            file,
            directory,
            index: *index,
            roles,
        });
        *index += 1;
    }
    Ok(found)
}

/// The file that a playbook's path means.
fn locate(repository: &Path, path: &str) -> Result<PathBuf, String> {
    if path.is_empty() || !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err("leads out of its project: name a path below the project's root".into());
    }
    let root = fs::canonicalize(repository).map_err(|error| format!("cannot be looked for: {error}"))?;
    for ending in ["", ".yaml", ".yml"] {
        let file = repository.join(format!("{path}{ending}"));
        let Ok(real) = fs::canonicalize(&file) else { continue };
        if !real.starts_with(&root) {
            return Err("is a link that leads out of its project: put a plain file in its place".into());
        }
        if real.is_file() {
            return Ok(file);
        }
    }
    Err("does not exist: add it to that branch, or correct the job's path (also tried .yaml and .yml)".into())
}
