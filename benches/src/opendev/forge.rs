//! The made-up code review: changes, patchsets and the tips of branches.

use std::collections::BTreeMap;

use gatelog_record::draft::gate::{ChangeFacts, ChangeKey, Subject};
use gatelog_record::{ActorId, BlobHash, Value};

use super::config::{CONNECTION, HOST, canonical};

/// A change.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Its project.
    pub project: String,
    /// The newest patchset.
    pub patchset: u32,
    /// Whether the newest patchset was approved.
    pub approved: bool,
    /// Whether it was merged.
    pub merged: bool,
    /// Whether somebody gave it up.
    pub abandoned: bool,
    /// The change below it.
    pub needs: Option<usize>,
    /// Whether it changes nothing but documentation.
    pub documentation: bool,
}

impl Change {
    /// Whether anything may still become of it.
    pub fn open(&self) -> bool {
        !self.merged && !self.abandoned
    }
}

/// Changes and branches.
#[derive(Debug, Default)]
pub struct Forge {
    /// Every change, by its number.
    pub changes: Vec<Change>,
    /// The tip of `master` of each project whose tip was asked for.
    tips: BTreeMap<String, String>,
    commits: u64,
}

fn commit_of(text: &str) -> String {
    BlobHash::of(text.as_bytes()).to_string().chars().take(40).collect()
}

/// The number of the change with this name.
pub fn number(name: &str) -> Option<usize> {
    name.rsplit('/').next()?.strip_prefix('I')?.parse().ok()
}

fn name(number: usize) -> String {
    format!("master/I{number}")
}

impl Forge {
    /// The tip of a project's branch.
    pub fn tip(&mut self, canonical: &str) -> String {
        match self.tips.get(canonical) {
            Some(tip) => tip.clone(),
            None => {
                let tip = commit_of(canonical);
                self.tips.insert(canonical.to_owned(), tip.clone());
                tip
            }
        }
    }

    /// Moves a branch and gives where it stood.
    pub fn move_to(&mut self, canonical: &str, commit: &str) -> String {
        let before = self.tip(canonical);
        self.tips.insert(canonical.to_owned(), commit.to_owned());
        before
    }

    /// A commit that nobody has seen.
    pub fn fresh_commit(&mut self) -> String {
        self.commits += 1;
        commit_of(&format!("commit {}", self.commits))
    }

    /// A merge is named for what goes into it, as git names it.
    pub fn merge(base: &str, commit: &str) -> String {
        commit_of(&format!("{base} {commit}"))
    }

    /// A change as events and queues name it.
    pub fn subject(&self, number: usize) -> Option<Subject> {
        let change = self.changes.get(number)?;
        let commit = commit_of(&format!("change {number} {}", change.patchset));
        Some(Subject {
            connection: CONNECTION.into(),
            project: canonical(&change.project),
            branch: Some("master".into()),
            git_ref: format!("refs/for/master/I{number}"),
            change: Some(name(number)),
            patchset: Some(change.patchset.to_string()),
            commit: Some(commit),
            old_commit: None,
            url: format!("https://{HOST}/{}/+/{number}", change.project),
        })
    }

    fn key(&self, number: usize) -> Option<ChangeKey> {
        let change = self.changes.get(number)?;
        Some(ChangeKey { project: canonical(&change.project), change: name(number) })
    }

    /// The files a change touches.
    pub fn files(&self, number: usize) -> Vec<String> {
        match self.changes.get(number) {
            Some(change) if change.documentation => vec![format!("doc/source/page-{}.rst", number % 40)],
            _ => (0..1 + number % 6).map(|file| format!("src/module-{}/part-{file}.py", number % 50)).collect(),
        }
    }

    /// What is known of a change, and of those that hang together with it.
    pub fn closure(&self, first: usize, with_needed_by: bool) -> Vec<ChangeFacts> {
        let mut numbers = vec![first];
        let mut next = 0;
        while let Some(number) = numbers.get(next).copied() {
            next += 1;
            let mut found: Vec<usize> = self.changes.get(number).and_then(|change| change.needs).into_iter().collect();
            if with_needed_by {
                found.extend(self.above(number));
            }
            found.retain(|other| !numbers.contains(other));
            numbers.extend(found);
        }
        numbers.into_iter().filter_map(|number| self.facts(number, with_needed_by)).collect()
    }

    /// The open changes that need one: never many, and proposed soon after it.
    fn above(&self, number: usize) -> Vec<usize> {
        let reach = number + 1..self.changes.len().min(number + 400);
        reach
            .filter(|other| self.changes.get(*other).is_some_and(|one| one.needs == Some(number) && one.open()))
            .collect()
    }

    fn facts(&self, number: usize, with_needed_by: bool) -> Option<ChangeFacts> {
        let change = self.changes.get(number)?;
        let below = change.needs.and_then(|below| self.subject(below)?.commit);
        let above = if with_needed_by { self.above(number) } else { Vec::new() };
        Some(ChangeFacts {
            subject: self.subject(number)?,
            open: change.open(),
            merged: change.merged,
            approved: change.approved,
            approvals: Value::Map(BTreeMap::from([("approved".to_owned(), Value::Bool(change.approved))])),
            cannot_merge: None,
            parents: below.into_iter().collect(),
            depends_on: Vec::new(),
            needs: change.needs.and_then(|below| self.key(below)).into_iter().collect(),
            needed_by: above.into_iter().filter_map(|above| self.key(above)).collect(),
            files: Some(self.files(number)),
            owner: ActorId([(number % 251) as u8; 16]),
            owner_identity: None,
            text: None,
            attributes: Value::Null,
        })
    }
}
