//! What sources were seen to offer, and when.
//!
//! A buildset may begin with whatever was read since it was asked for: preparing it reads the repositories of its
//! changes, and reading them once more to freeze its jobs would tell nothing that counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use git2::Oid;

use crate::names::ProjectKey;

/// Of how many repositories it is known; what was read longest ago goes first.
const REPOSITORIES_MAX: usize = 256;
/// A repository with more refs is read again each time.
const REFS_MAX: usize = 10_000;

/// Branches and tags by their whole names, and the ids they name.
pub(crate) type Refs = BTreeMap<String, Oid>;

/// A moment in the life of [`Mirrors`](crate::Mirrors): before or after any reading of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// The newest reading of each repository.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    moments: u64,
    readings: BTreeMap<ProjectKey, (Moment, Arc<Refs>)>,
}

fn is_kept(name: &str) -> bool {
    name.starts_with("refs/heads/") || name.starts_with("refs/tags/")
}

impl Seen {
    /// Now: later than what was asked before.
    pub(crate) fn moment(&mut self) -> Moment {
        self.moments += 1;
        Moment(self.moments)
    }

    /// Notes what a reading found that began then.
    pub(crate) fn note(&mut self, project: &ProjectKey, began: Moment, refs: &Refs) {
        if let Some((known, there)) = self.readings.get_mut(project) {
            if *known >= began {
                return;
            }
            if **there == *refs {
                *known = began;
                return;
            }
        }
        if refs.len() > REFS_MAX {
            self.forget(project);
            return;
        }
        let kept = refs.iter().filter(|(name, _)| is_kept(name)).map(|(name, id)| (name.clone(), *id)).collect();
        self.readings.insert(project.clone(), (began, Arc::new(kept)));
        if self.readings.len() > REPOSITORIES_MAX {
            let oldest = self.readings.iter().min_by_key(|(_, (began, _))| *began).map(|(project, _)| project.clone());
            oldest.into_iter().for_each(|project| self.forget(&project));
        }
    }

    /// What the newest reading found, if it began after a moment.
    pub(crate) fn since(&self, project: &ProjectKey, moment: Moment) -> Option<Arc<Refs>> {
        let (began, refs) = self.readings.get(project)?;
        (*began > moment).then(|| Arc::clone(refs))
    }

    /// What was read of a project counts no more.
    pub(crate) fn forget(&mut self, project: &ProjectKey) {
        self.readings.remove(project);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> ProjectKey {
        ProjectKey::new("git", format!("project-{number}"))
    }

    fn refs(names: &[&str]) -> Refs {
        names.iter().map(|name| ((*name).to_owned(), Oid::ZERO_SHA1)).collect()
    }

    #[test]
    fn what_was_read_counts_for_those_who_began_before() {
        let mut seen = Seen::default();
        let before = seen.moment();
        let began = seen.moment();
        let during = seen.moment();
        seen.note(&key(1), began, &refs(&["refs/heads/master", "refs/changes/01/1/1"]));
        assert_eq!(*seen.since(&key(1), before).unwrap(), refs(&["refs/heads/master"]), "branches and tags alone");
        assert_eq!(seen.since(&key(1), during), None, "it began before that");
        assert_eq!(seen.since(&key(1), began), None);
        assert_eq!(seen.since(&key(2), before), None);
    }

    #[test]
    fn the_newest_reading_counts_in_whichever_order_they_end() {
        let mut seen = Seen::default();
        let start = seen.moment();
        let (first, second) = (seen.moment(), seen.moment());
        seen.note(&key(1), second, &refs(&["refs/tags/new"]));
        seen.note(&key(1), first, &refs(&["refs/tags/old"]));
        assert_eq!(*seen.since(&key(1), start).unwrap(), refs(&["refs/tags/new"]));
        let third = seen.moment();
        seen.note(&key(1), third, &refs(&["refs/tags/new"]));
        assert!(seen.since(&key(1), second).is_some(), "the same was read again");
    }

    #[test]
    fn what_is_too_much_or_too_old_is_read_again() {
        let mut seen = Seen::default();
        let start = seen.moment();
        for number in 0..=REPOSITORIES_MAX {
            let began = seen.moment();
            seen.note(&key(number), began, &refs(&["refs/heads/master"]));
        }
        assert_eq!(seen.since(&key(0), start), None);
        assert!(seen.since(&key(1), start).is_some());
        let many: Refs = (0..=REFS_MAX).map(|number| (format!("refs/tags/{number}"), Oid::ZERO_SHA1)).collect();
        let began = seen.moment();
        seen.note(&key(1), began, &many);
        assert_eq!(seen.since(&key(1), start), None);
        seen.forget(&key(2));
        assert_eq!(seen.since(&key(2), start), None);
    }
}
