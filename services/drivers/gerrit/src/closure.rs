//! Changes with all that they need, and those that need them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::change::{Change, ChangeName, addresses};
use crate::client::{Gerrit, RelatedChange};
use crate::depends::{self, Need};
use crate::error::GerritError;

/// A change in a closure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InClosure {
    /// The change.
    pub change: Change,
    /// The changes whose patchsets are parents of its commit, with the number of that patchset: one that is not the
    /// current one means that the stack has to be rebased.
    pub git_needs: Vec<(ChangeName, u32)>,
    /// The changes of this Gerrit that its message names.
    pub depends_on: Vec<ChangeName>,
    /// Addresses that its message names and that are not of this Gerrit: other connections may know them.
    pub elsewhere: Vec<String>,
    /// What its message names of this Gerrit and that is not there (now).
    pub not_found: Vec<String>,
    /// Open changes of the same topic that would be submitted with it, where the site submits whole topics.
    pub topic: Vec<ChangeName>,
}

/// Changes and all that they need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closure {
    /// Every change, those that were asked for first.
    pub changes: Vec<InClosure>,
    /// What was asked for and is not there.
    pub missing: Vec<ChangeName>,
}

/// What a walk remembers.
#[derive(Default)]
struct Walk {
    stacks: BTreeMap<u64, RelatedChange>,
    by_number: BTreeMap<u64, Change>,
    by_topic: BTreeMap<String, Vec<ChangeName>>,
}

impl Gerrit {
    /// These changes, all that they need by git and by `Depends-On`, and, where `whole_topics`, the open changes of their
    /// topics. A stack costs one question for its order and one for each change.
    ///
    /// # Errors
    /// [`GerritError::TooMuch`] for more than [`crate::Limits::closure`] changes; any other of a request. A change that
    /// is needed and not there is no error.
    pub fn closure(&self, start: &[ChangeName], whole_topics: bool) -> Result<Closure, GerritError> {
        let (mut closure, mut walk) = (Closure::default(), Walk::default());
        let mut ahead: VecDeque<ChangeName> = start.iter().cloned().collect();
        let mut seen: BTreeSet<ChangeName> = start.iter().cloned().collect();
        let asked: BTreeSet<ChangeName> = seen.clone();
        while let Some(name) = ahead.pop_front() {
            if closure.changes.len() >= self.config().limits.closure {
                let what =
                    format!("changes that {} needs", start.first().map_or_else(String::new, ToString::to_string));
                return Err(GerritError::TooMuch { what, limit: self.config().limits.closure });
            }
            let change = match walk.by_number.remove(&name.number) {
                Some(change) => change,
                None => match self.change(&name) {
                    Ok(change) => change,
                    Err(GerritError::Missing { .. }) if asked.contains(&name) => {
                        closure.missing.push(name);
                        continue;
                    }
                    Err(GerritError::Missing { .. }) => continue,
                    Err(error) => return Err(error),
                },
            };
            let found = self.look_around(change, whole_topics, &mut walk)?;
            let next = found.git_needs.iter().map(|(name, _)| name).chain(&found.depends_on).chain(&found.topic);
            for name in next {
                if seen.insert(name.clone()) {
                    ahead.push_back(name.clone());
                }
            }
            closure.changes.push(found);
        }
        Ok(closure)
    }

    fn look_around(&self, change: Change, topics: bool, walk: &mut Walk) -> Result<InClosure, GerritError> {
        let (mut depends_on, mut elsewhere, mut not_found) = (Vec::new(), Vec::new(), Vec::new());
        for need in depends::needs(&change.message, self.config()) {
            match need {
                Need::Change { number, project } => match self.resolve(number, project, walk)? {
                    Some(name) if name != change.name => depends_on.push(name),
                    Some(_) => {}
                    None => not_found.push(self.config().below(&number.to_string())),
                },
                Need::ChangeId(id) => {
                    let named = self.changes_by_id(&id)?;
                    if named.is_empty() {
                        not_found.push(id);
                    }
                    depends_on.extend(named.into_iter().map(|other| other.name).filter(|name| *name != change.name));
                }
                Need::Elsewhere(text) => elsewhere.push(text),
            }
        }
        let mut once = BTreeSet::new();
        depends_on.retain(|name| once.insert(name.clone()));
        let topic = match &change.topic {
            Some(topic) if topics && change.is_open() => self.of_topic(topic, &change.name, walk)?,
            _ => Vec::new(),
        };
        let git_needs = if change.is_open() { self.git_needs(&change, walk)? } else { Vec::new() };
        Ok(InClosure { change, git_needs, depends_on, elsewhere, not_found, topic })
    }

    /// The change of a number that an address names. The project in an address may be old (projects are renamed), so
    /// the number decides; the project helps while the index has a gap.
    fn resolve(
        &self,
        number: u64,
        project: Option<String>,
        walk: &mut Walk,
    ) -> Result<Option<ChangeName>, GerritError> {
        if let Some(change) = walk.by_number.get(&number) {
            return Ok(Some(change.name.clone()));
        }
        let by_project = project.map(|project| self.change(&ChangeName { project, number })).transpose();
        let found = match by_project {
            Ok(Some(change)) => Ok(change),
            Ok(None) | Err(GerritError::Missing { .. }) => self.change_by_number(number),
            Err(error) => return Err(error),
        };
        match found {
            Ok(change) => {
                let name = change.name.clone();
                walk.by_number.insert(number, change);
                Ok(Some(name))
            }
            Err(GerritError::NotFoundNow { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn of_topic(&self, topic: &str, but: &ChangeName, walk: &mut Walk) -> Result<Vec<ChangeName>, GerritError> {
        if !walk.by_topic.contains_key(topic) {
            let mut names = Vec::new();
            for change in self.changes_by_topic(topic)? {
                names.push(change.name.clone());
                // A merge's files are not whole in what a query finds.
                if change.parents.len() < 2 {
                    walk.by_number.insert(change.name.number, change);
                }
            }
            walk.by_topic.insert(topic.to_owned(), names);
        }
        let names = walk.by_topic.get(topic).into_iter().flatten();
        Ok(names.filter(|name| *name != but).cloned().collect())
    }

    fn git_needs(&self, change: &Change, walk: &mut Walk) -> Result<Vec<(ChangeName, u32)>, GerritError> {
        // One answer tells of the whole stack: it is asked once, unless this change stands in it with an older patchset.
        let known = walk.stacks.get(&change.name.number).is_some_and(|one| one.commit == change.commit);
        if !known {
            for one in self.related(&change.name)? {
                walk.stacks.insert(one.name.number, one);
            }
        }
        let cherry_pick = change.submit_type.as_deref() == Some("CHERRY_PICK");
        let parents = change
            .parents
            .iter()
            .filter_map(|parent| walk.stacks.values().find(|one| one.commit == *parent && one.name != change.name));
        // A cherry-pick leaves the parent behind: which patchset it is does not matter there.
        Ok(parents
            .map(|one| (one.name.clone(), if cherry_pick { one.current_patchset } else { one.patchset }))
            .collect())
    }

    /// The open changes whose messages name this one, by any form of its address or by its Change-Id. The search is one
    /// for texts, and `…/2` is in `…/22`: what is found is read again, and the number compared.
    ///
    /// # Errors
    /// See [`GerritError`].
    pub fn named_by(&self, change: &Change) -> Result<Vec<Change>, GerritError> {
        let mut texts: Vec<String> = addresses(self.config(), &change.name).into();
        let public = format!("https://{}/", self.config().canonical_hostname);
        let number = change.name.number;
        for path in [format!("{number}"), format!("#/c/{number}"), format!("c/{}/+/{number}", change.name.project)] {
            texts.push(format!("{public}{path}"));
        }
        texts.push(change.change_id.clone());
        let mut terms: Vec<String> = Vec::new();
        for text in texts {
            let term = format!("message:{{Depends-On: {text}}}");
            // Braces quote, and cannot be quoted themselves; no project has one.
            if !text.contains(['{', '}']) && !terms.contains(&term) {
                terms.push(term);
            }
        }
        let found = self.find(&format!("status:open ({})", terms.join(" OR ")))?;
        Ok(found.into_iter().filter(|other| other.name != change.name && names(other, change, self)).collect())
    }
}

fn names(other: &Change, change: &Change, gerrit: &Gerrit) -> bool {
    depends::needs(&other.message, gerrit.config()).iter().any(|need| match need {
        Need::Change { number, .. } => *number == change.name.number,
        Need::ChangeId(id) => *id == change.change_id,
        Need::Elsewhere(_) => false,
    })
}
