//! Repositories as all jobs of a buildset see them, and which of their states each use gets.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gatelog_merging::RefState;
use gatelog_record::draft::gate::{FreezeWanted, FrozenRefs, Subject, TenantProject};
use gatelog_record::{BlobHash, codec};
use gatelog_rules_config::Layout;

use crate::connection::Trouble;
use crate::freeze::keep;
use crate::git::{Repositories, trouble};
use crate::spec::PinnedCheckout;

/// What is to be checked out, if it is there.
#[derive(Clone, Copy, Default)]
pub(crate) struct Override<'w> {
    /// A branch or tag.
    pub(crate) checkout: Option<&'w str>,
    /// A branch; looked at when the other names nothing that exists.
    pub(crate) branch: Option<&'w str>,
}

/// What a job says of the checkout of a project.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wish<'w> {
    /// In `required-projects`.
    pub(crate) of_project: Override<'w>,
    /// For all projects.
    pub(crate) of_job: Override<'w>,
    /// Whether the ref under test counts where it is no branch.
    pub(crate) use_ref: bool,
    /// The branch in place of the item's, where the item has none.
    pub(crate) otherwise: Option<&'w str>,
}

/// Repositories as all jobs of the buildset see them, each read once.
pub(crate) struct Pins<'a> {
    pub(crate) repositories: &'a Repositories,
    pub(crate) wanted: &'a FreezeWanted,
    pub(crate) layout: &'a Layout,
    frozen: BTreeMap<(String, String), Frozen>,
}

/// A repository at one moment.
#[derive(Clone)]
struct Frozen {
    /// All branches and tags.
    refs: Rc<RefState>,
    /// The same as a blob.
    blob: BlobHash,
}

impl Frozen {
    fn branch(&self, name: &str) -> Option<&String> {
        self.refs.get(&format!("refs/heads/{name}"))
    }

    fn tag(&self, name: &str) -> Option<&String> {
        self.refs.get(&format!("refs/tags/{name}"))
    }
}

impl<'a> Pins<'a> {
    pub(crate) fn new(repositories: &'a Repositories, wanted: &'a FreezeWanted, layout: &'a Layout) -> Pins<'a> {
        Pins { repositories, wanted, layout, frozen: BTreeMap::new() }
    }
}

impl Pins<'_> {
    /// Everything that was pinned.
    pub(crate) fn repo_state(self) -> Vec<FrozenRefs> {
        let pins = self.frozen.into_iter();
        pins.map(|((connection, project), frozen)| FrozenRefs { connection, project, refs: frozen.blob }).collect()
    }

    /// What was frozen of the repositories of these checkouts.
    pub(crate) fn refs_of<'b>(
        &self,
        checkouts: impl Iterator<Item = &'b PinnedCheckout>,
    ) -> BTreeMap<String, BlobHash> {
        let used: BTreeSet<String> = checkouts.map(PinnedCheckout::canonical_name).collect();
        let frozen = self.frozen.iter().map(|((_, project), frozen)| (project.clone(), frozen.blob));
        frozen.filter(|(project, _)| used.contains(project)).collect()
    }

    pub(crate) fn project(&self, canonical: &str) -> Result<&TenantProject, Trouble> {
        self.wanted.projects.iter().find(|project| project.project == canonical).ok_or_else(|| {
            let message = format!("project {canonical} is not in tenant {}", self.wanted.tenant);
            Trouble::new("unknown-project", message)
        })
    }

    /// The branches and tags of a project as merged.
    fn merged(&mut self, project: &TenantProject) -> Result<Frozen, Trouble> {
        let at = (project.connection.clone(), project.project.clone());
        if let Some(frozen) = self.frozen.get(&at) {
            return Ok(frozen.clone());
        }
        let key = self.repositories.key(&project.connection, &project.project)?;
        let mirrors = &self.repositories.mirrors;
        // What was read for the merge, or for another item since, tells as much.
        let began = self.repositories.begun.of(self.wanted.buildset).unwrap_or_else(|| mirrors.moment());
        let mut refs: RefState = mirrors.refs_since(&key, began).map_err(|error| trouble(&error))?;
        // A branch of the prepared state stands where the whole buildset was prepared on.
        for prepared in &self.wanted.state.branches {
            if prepared.at.project == project.project && prepared.at.connection == project.connection {
                refs.insert(format!("refs/heads/{}", prepared.at.branch), prepared.base.clone());
            }
        }
        let blob = keep(self.repositories, codec::encode(&refs))?;
        let frozen = Frozen { refs: Rc::new(refs), blob };
        self.frozen.insert(at, frozen.clone());
        Ok(frozen)
    }

    /// A project on a branch or tag. `speculative` takes the chain of changes in; otherwise only what is
    /// merged counts (playbooks of config projects).
    pub(crate) fn pin(
        &mut self,
        project: &TenantProject,
        branch: &str,
        speculative: bool,
        description: &str,
    ) -> Result<PinnedCheckout, Trouble> {
        let merged = self.merged(project)?;
        let host = self.repositories.connections.review(&project.connection)?.canonical_hostname().to_owned();
        let name = self.repositories.connections.local_name(&project.connection, &project.project)?.to_owned();
        let mut state = merged.branch(branch).map(|commit| (commit.clone(), commit.clone()));
        let mut moved = BTreeMap::new();
        for prepared in &self.wanted.state.branches {
            if speculative && prepared.at.project == project.project && prepared.at.connection == project.connection {
                if prepared.at.branch == branch {
                    state = Some((prepared.commit.clone(), prepared.ahead.clone()));
                } else {
                    moved.insert(prepared.at.branch.clone(), prepared.commit.clone());
                }
            }
        }
        if state.is_none()
            && let Some(id) = merged.tag(branch)
        {
            let key = self.repositories.key(&project.connection, &project.project)?;
            let commit = self.repositories.mirrors.commit_of(&key, id).map_err(|error| trouble(&error))?;
            state = Some((commit.clone(), commit));
        }
        let (commit, previous) = state.ok_or_else(|| {
            let message = format!("project {} has no branch or tag {branch}", project.project);
            Trouble::new("branch-missing", message)
        })?;
        Ok(PinnedCheckout {
            connection: project.connection.clone(),
            host,
            name,
            branch: branch.to_owned(),
            commit,
            previous,
            branches: moved,
            required: false,
            description: description.to_owned(),
        })
    }

    /// The project of a tag that is to be tested, where the tag is; `None`: it was deleted, or that is what the event says.
    fn pin_tag(&mut self, project: &TenantProject, own: &Subject) -> Result<Option<PinnedCheckout>, Trouble> {
        let (Some(tag), Some(commit)) = (own.git_ref.strip_prefix("refs/tags/"), &own.commit) else { return Ok(None) };
        if self.merged(project)?.tag(tag).is_none() {
            return Ok(None);
        }
        let key = self.repositories.key(&project.connection, &project.project)?;
        let commit = self.repositories.mirrors.commit_of(&key, commit).map_err(|error| trouble(&error))?;
        Ok(Some(PinnedCheckout {
            connection: project.connection.clone(),
            host: self.repositories.connections.review(&project.connection)?.canonical_hostname().to_owned(),
            name: self.repositories.connections.local_name(&project.connection, &project.project)?.to_owned(),
            branch: tag.to_owned(),
            previous: commit.clone(),
            commit,
            branches: BTreeMap::new(),
            required: false,
            description: "tag ref".to_owned(),
        }))
    }

    /// A project on the branch or tag that a job has there, and why. Zuul: `resolveBranch`, first hit.
    ///
    /// # Errors
    /// It has none of them, not even its default branch.
    pub(crate) fn resolve(
        &mut self,
        project: &TenantProject,
        own: &Subject,
        wish: Wish<'_>,
        speculative: bool,
    ) -> Result<PinnedCheckout, Trouble> {
        let merged = self.merged(project)?;
        let is_branch = |name: &&str| merged.branch(name).is_some();
        let is_ref = |name: &&str| is_branch(name) || merged.tag(name).is_some();
        let Wish { of_project, of_job, use_ref, otherwise } = wish;
        let overrides = [
            (of_project.checkout.filter(is_ref), "project override ref"),
            (of_project.branch.filter(is_branch), "project override branch"),
            (of_job.checkout.filter(is_ref), "job override ref"),
            (of_job.branch.filter(is_branch), "job override branch"),
        ];
        for (name, why) in overrides {
            if let Some(name) = name {
                return self.pin(project, name, speculative, why);
            }
        }
        if use_ref && own.project == project.project && own.branch.is_none() && own.change.is_none() {
            if let Some(pinned) = self.pin_tag(project, own)? {
                return Ok(pinned);
            }
            if let Some(branch) = own.git_ref.strip_prefix("refs/heads/").filter(is_branch) {
                return self.pin(project, branch, speculative, "branch ref");
            }
        }
        let default = self.default_branch(project);
        let branches =
            [(own.branch.as_deref().or(otherwise), "zuul branch"), (Some(default.as_str()), "project default branch")];
        for (branch, why) in branches {
            if let Some(branch) = branch.filter(is_branch) {
                return self.pin(project, branch, speculative, why);
            }
        }
        let message = format!("project {} does not have the default branch {default}", project.project);
        Err(Trouble::new("branch-missing", message))
    }

    /// The default branch of a project, as configuration says. Zuul: `master` where nothing is known of it.
    pub(crate) fn default_branch(&self, project: &TenantProject) -> String {
        let known = self.layout.projects.get(&project.project);
        known.map_or_else(|| "master".to_owned(), |known| known.default_branch.clone())
    }
}
