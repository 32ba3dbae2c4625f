//! A merge is told twice: as a branch that moved, and as a change that merged. What is done after a merge must see the
//! change first, so the branch's event waits for it and is put behind it.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::events::EventKind;
use crate::fields::is_zero;
use crate::intake::Delivery;

/// How many movements wait at most; the oldest goes on without its change.
const WAITING_MAX: usize = 1_000;
/// How many merges are remembered whose branch has not been seen to move.
const MERGED_MAX: usize = 1_000;

/// Movements of branches that wait for the change that caused them. Keyed by project and commit: projects made at the
/// same time begin with the same commit.
#[derive(Debug, Default)]
pub(crate) struct Pairing {
    waiting: VecDeque<(Instant, Delivery)>,
    merged: VecDeque<(String, String)>,
    known: BTreeSet<(String, String)>,
}

impl Pairing {
    /// What goes on now that this came.
    pub(crate) fn take(&mut self, delivery: Delivery, now: Instant, patience: Duration) -> Vec<Delivery> {
        if let Some(key) = moved_branch(&delivery) {
            if self.known.contains(&key) {
                return vec![delivery];
            }
            self.waiting.push_back((now + patience, delivery));
            return if self.waiting.len() > WAITING_MAX {
                self.waiting.pop_front().map(|(_, oldest)| oldest).into_iter().collect()
            } else {
                Vec::new()
            };
        }
        if delivery.event.kind != EventKind::ChangeMerged {
            return vec![delivery];
        }
        let key = merged_change(&delivery);
        let branch = delivery.event.change.as_ref().map(|change| (change.project.clone(), change.branch.clone()));
        let mut ready = vec![delivery];
        // A merge that was found afterwards does not say its commit: it may be any that moved this branch.
        let caused = |moved: &Delivery| match (&key, &branch) {
            (Some(_), _) => moved_branch(moved) == key,
            (None, Some((project, branch))) => moved.event.ref_update.as_ref().is_some_and(|update| {
                update.project == *project && update.name.strip_prefix("refs/heads/") == Some(branch)
            }),
            (None, None) => false,
        };
        while let Some(at) = self.waiting.iter().position(|(_, moved)| caused(moved)) {
            ready.extend(self.waiting.remove(at).map(|(_, moved)| moved));
        }
        let Some(key) = key else { return ready };
        if self.known.insert(key.clone()) {
            self.merged.push_back(key);
        }
        if self.merged.len() > MERGED_MAX {
            self.merged.pop_front().map(|oldest| self.known.remove(&oldest));
        }
        ready
    }

    /// What has waited long enough.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Delivery> {
        let mut due = Vec::new();
        while self.waiting.front().is_some_and(|(deadline, _)| *deadline <= now) {
            due.extend(self.waiting.pop_front().map(|(_, moved)| moved));
        }
        due
    }

    /// When the next has waited long enough.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.waiting.front().map(|(deadline, _)| *deadline)
    }

    /// Forgets what waits: it is found again by comparing refs.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
    }
}

/// A branch that moved, and neither was made nor deleted: no merge does that.
fn moved_branch(delivery: &Delivery) -> Option<(String, String)> {
    let update = delivery.event.ref_update.as_ref()?;
    let moved = update.name.starts_with("refs/heads/") && !is_zero(&update.old) && !is_zero(&update.new);
    moved.then(|| (update.project.clone(), update.new.clone()))
}

fn merged_change(delivery: &Delivery) -> Option<(String, String)> {
    let (change, new) = (delivery.event.change.as_ref()?, delivery.event.new_rev.as_ref()?);
    Some((change.project.clone(), new.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{RefUpdate, read};
    use crate::place::event_of;

    fn moved(project: &str, name: &str, old: &str, new: &str) -> Delivery {
        let update =
            RefUpdate { project: project.to_owned(), name: name.to_owned(), old: old.repeat(40), new: new.repeat(40) };
        Delivery { id: format!("{project} {name} {new}"), event: event_of(update), line: None }
    }

    fn merged(project: &str, new: &str) -> Delivery {
        let event = read(&serde_json::json!({
            "type": "change-merged", "newRev": new.repeat(40),
            "change": {"project": project, "branch": "master", "number": 7, "id": "I"}
        }));
        Delivery { id: format!("{project} merged {new}"), event: event.unwrap(), line: None }
    }

    #[test]
    fn a_branch_waits_for_the_change_that_moved_it_and_not_for_ever() {
        let (mut pairing, begun, patience) = (Pairing::default(), Instant::now(), Duration::from_secs(10));
        let mut take = |delivery, later| -> Vec<String> {
            let now = begun + Duration::from_secs(later);
            pairing.take(delivery, now, patience).into_iter().map(|ready| ready.id).collect()
        };
        assert_eq!(take(moved("a", "refs/heads/master", "1", "2"), 0), [""; 0]);
        assert_eq!(take(moved("b", "refs/heads/master", "1", "2"), 1), [""; 0], "another project, the same commit");
        assert_eq!(take(moved("a", "refs/heads/new", "0", "2"), 1).len(), 1, "nothing merges into a new branch");
        assert_eq!(take(moved("a", "refs/tags/v1", "1", "2"), 1).len(), 1);
        assert_eq!(take(merged("a", "2"), 2), ["a merged 2", "a refs/heads/master 2"]);
        assert_eq!(take(merged("a", "3"), 3), ["a merged 3"]);
        assert_eq!(
            take(moved("a", "refs/heads/master", "2", "3"), 4),
            ["a refs/heads/master 3"],
            "its change was first"
        );
        let mut found = merged("c", "9");
        found.event.new_rev = None;
        assert_eq!(take(moved("c", "refs/heads/master", "4", "5"), 4), [""; 0]);
        assert_eq!(take(found, 4).len(), 2, "found afterwards, it does not say its commit");
        assert_eq!(pairing.next_due(), Some(begun + Duration::from_secs(11)));
        assert!(pairing.due(begun + Duration::from_secs(10)).is_empty());
        assert_eq!(pairing.due(begun + Duration::from_secs(11))[0].id, "b refs/heads/master 2");
        for number in 0..WAITING_MAX {
            pairing.take(moved("a", &format!("refs/heads/{number}"), "1", "4"), begun, patience);
        }
        assert_eq!(pairing.take(moved("a", "refs/heads/x", "1", "4"), begun, patience)[0].id, "a refs/heads/0 4");
    }
}
