//! How far the events of a Gerrit have been taken, to go on from there after whatever happens.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::client::Ref;
use crate::events::{Event, EventKind, RefUpdate};
use crate::fields::is_zero;

/// How many changes' last commits are kept; those of the changes that were still longest go first, and for them time
/// alone decides.
const CHANGES_MAX: usize = 2_000;

/// How far events have been taken. The caller keeps it, together with the events it came with: an event that was taken
/// and whose place was lost comes again, under the same id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Up to when, in seconds since 1970 by Gerrit's clock; 0 where nothing was ever taken.
    pub at: u64,
    /// From when on events are taken: what was before this Gerrit was first listened to is told by nobody.
    pub began: u64,
    /// Up to when all changes were looked through: the next look begins there, whatever the stream told since.
    pub looked: u64,
    /// Of each change, what was taken last.
    pub changes: BTreeMap<u64, LastOfChange>,
    /// The branches and tags of each project, by their whole names.
    pub refs: BTreeMap<String, BTreeMap<String, RefPlace>>,
}

/// What was taken last of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastOfChange {
    /// The commit of its meta ref.
    pub meta: String,
    /// When, by Gerrit's clock.
    pub at: u64,
}

/// What a branch or tag was when it was last told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefPlace {
    /// Its commit; zeros where it was deleted.
    pub revision: String,
    /// How often it has moved. This keeps the ids apart when it moves there and back and there again.
    pub moves: u64,
}

impl Place {
    /// Notes an event of a change.
    pub(crate) fn took(&mut self, number: u64, meta: &str, at: u64) {
        self.changes.insert(number, LastOfChange { meta: meta.to_owned(), at });
        if self.changes.len() > CHANGES_MAX {
            let oldest = self.changes.iter().min_by_key(|(_, last)| last.at).map(|(number, _)| *number);
            oldest.and_then(|number| self.changes.remove(&number));
        }
    }

    /// The id of a ref's movement; `None` where it is known already. With [`Place::moved`] behind it.
    pub(crate) fn movement(&self, update: &RefUpdate) -> Option<String> {
        let known = self.refs.get(&update.project).and_then(|refs| refs.get(&update.name));
        if known.is_some_and(|known| known.revision == update.new) {
            return None;
        }
        let moves = known.map_or(0, |known| known.moves);
        Some(format!("{}/{}/{}..{}/{moves}", update.project, update.name, update.old, update.new))
    }

    /// Notes a ref's movement, in a project whose refs are known: of another, what the rest is would be taken for new.
    pub(crate) fn moved(&mut self, update: &RefUpdate) {
        let Some(refs) = self.refs.get_mut(&update.project) else { return };
        let moves = refs.get(&update.name).map_or(0, |known| known.moves);
        refs.insert(update.name.clone(), RefPlace { revision: update.new.clone(), moves: moves + 1 });
    }

    /// What has moved in a project since; a project never seen is noted, and nothing told of it.
    pub(crate) fn compare(&mut self, project: &str, now: &[Ref]) -> Vec<RefUpdate> {
        let Some(known) = self.refs.get(project) else {
            let first = |found: &Ref| (found.name.clone(), RefPlace { revision: found.revision.clone(), moves: 0 });
            self.refs.insert(project.to_owned(), now.iter().map(first).collect());
            return Vec::new();
        };
        let update = |name: &str, old: &str, new: &str| RefUpdate {
            project: project.to_owned(),
            name: name.to_owned(),
            old: old.to_owned(),
            new: new.to_owned(),
        };
        let mut moved = Vec::new();
        let mut gone: BTreeMap<&String, &RefPlace> =
            known.iter().filter(|(_, place)| !is_zero(&place.revision)).collect();
        for found in now {
            let zeros = "0".repeat(found.revision.len());
            let old = gone.remove(&found.name).map_or(zeros.as_str(), |place| place.revision.as_str());
            if old != found.revision {
                moved.push(update(&found.name, old, &found.revision));
            }
        }
        for (name, place) in gone {
            moved.push(update(name, &place.revision, &"0".repeat(place.revision.len())));
        }
        moved
    }
}

/// The event of a ref that was found to have moved.
pub(crate) fn event_of(update: RefUpdate) -> Event {
    let project = Some(update.project.clone());
    Event { project, ref_update: Some(update), ..Event::of(EventKind::RefUpdated) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, digit: &str) -> Ref {
        Ref { name: format!("refs/heads/{name}"), revision: digit.repeat(40) }
    }

    #[test]
    fn what_moved_meanwhile_is_found_and_each_movement_has_an_id_of_its_own() {
        let mut place = Place::default();
        assert_eq!(place.compare("p", &[found("a", "1"), found("b", "1")]), [], "a new project tells nothing");
        let mut ids = Vec::new();
        let mut go = |place: &mut Place, now: &[Ref]| {
            let moved = place.compare("p", now);
            for update in &moved {
                ids.push(place.movement(update).unwrap());
                place.moved(update);
                assert_eq!(place.movement(update), None, "told once");
            }
            moved
                .iter()
                .map(|update| format!("{} {}{}", update.name, &update.old[..1], &update.new[..1]))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            go(&mut place, &[found("a", "2"), found("c", "1")]),
            ["refs/heads/a 12", "refs/heads/c 01", "refs/heads/b 10"]
        );
        assert_eq!(
            go(&mut place, &[found("a", "1"), found("b", "1")]),
            ["refs/heads/a 21", "refs/heads/b 01", "refs/heads/c 10"]
        );
        assert_eq!(go(&mut place, &[found("a", "2"), found("b", "1")]), ["refs/heads/a 12"]);
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "{ids:?}");
        let text = serde_json::to_string(&place).unwrap();
        assert_eq!(serde_json::from_str::<Place>(&text).unwrap(), place);
    }
}
