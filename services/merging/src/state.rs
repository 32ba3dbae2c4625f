//! The state of whole repositories at one moment: what all jobs of a buildset see.

use std::collections::{BTreeMap, BTreeSet};

use git2::Oid;

use crate::error::MergeError;
use crate::mirrors::Mirrors;
use crate::names::ProjectKey;
use crate::seen::Moment;

/// Branches and tags of one repository by their whole names, and the ids they name (of an annotated
/// tag its own).
pub type RefState = BTreeMap<String, String>;

/// The refs of all repositories that a buildset touches. Zuul: `repo_state`, saved at the first merge;
/// with the projects of all jobs added, the global repo state.
pub type RepoState = BTreeMap<ProjectKey, RefState>;

impl Mirrors {
    /// Brings these projects' mirrors up to date and says what all their branches and tags are at.
    /// What `known` says already is taken from there, so that a state grows with the jobs that turn out
    /// to be needed and never contradicts itself. `branches` keeps only these branches of a project
    /// (and all its tags) where it is given. Zuul: `exclude-unprotected-branches` saves only those
    /// that are needed.
    ///
    /// # Errors
    /// As [`Mirrors::fetch`], for the first project that fails.
    pub fn repo_state(
        &self,
        projects: &BTreeSet<ProjectKey>,
        branches: &BTreeMap<ProjectKey, BTreeSet<String>>,
        known: &RepoState,
    ) -> Result<RepoState, MergeError> {
        let mut state = known.clone();
        for project in projects {
            if state.contains_key(project) {
                continue;
            }
            let kept = branches.get(project);
            let is_kept = |name: &str| match name.strip_prefix("refs/heads/") {
                Some(branch) => kept.is_none_or(|kept| kept.contains(branch)),
                None => true,
            };
            let refs = self.refs_now(project)?;
            let refs = refs.into_iter().filter(|(name, _)| is_kept(name)).map(|(name, id)| (name, id.to_string()));
            state.insert(project.clone(), refs.collect());
        }
        Ok(state)
    }

    /// Now, to ask later what was read since ([`Mirrors::refs_since`]).
    pub fn moment(&self) -> Moment {
        self.seen.lock().moment()
    }

    /// All branches and tags of a project as they were read at some time since a moment: now, if nobody did.
    ///
    /// # Errors
    /// As [`Mirrors::fetch`].
    pub fn refs_since(&self, project: &ProjectKey, moment: Moment) -> Result<RefState, MergeError> {
        let seen = self.seen.lock().since(project, moment);
        let told = |(name, id): (&String, &Oid)| (name.clone(), id.to_string());
        match seen {
            Some(refs) => Ok(refs.iter().map(told).collect()),
            None => Ok(self.refs_now(project)?.iter().map(told).collect()),
        }
    }

    /// All branches and tags of one moment.
    fn refs_now(&self, project: &ProjectKey) -> Result<BTreeMap<String, Oid>, MergeError> {
        self.fetch_all(project, &[]).map(|offer| offer.refs)
    }
}
