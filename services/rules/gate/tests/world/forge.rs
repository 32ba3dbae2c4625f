//! Repositories and changes, as simple as they can be: a commit is a name for the set of changes in
//! it, its configuration files, and how it came to be.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::draft::gate::{ChangeFacts, ChangeKey, Subject};
use gatelog_record::{ActorId, BlobHash, Value};

pub const CONNECTION: &str = "git";
pub const HOST: &str = "forge";

pub fn canonical(project: &str) -> String {
    format!("{HOST}/{project}")
}

/// What a commit holds.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Changes in it, with their patchsets.
    pub changes: BTreeSet<(String, u32)>,
    /// Its configuration files.
    pub config: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default)]
pub struct Project {
    pub trusted: bool,
    /// Tips of branches.
    pub branches: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default)]
pub struct Patchset {
    pub files: Vec<String>,
    pub config: BTreeMap<String, String>,
    pub depends_on: Vec<String>,
    pub stacked_on: Vec<String>,
    /// The change its commit stands on, as it was then: the forge tells that, too.
    pub built_on: Option<Subject>,
    /// As `depends_on`, but written as the end of an address.
    pub names: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Change {
    pub project: String,
    pub branch: String,
    pub patchsets: Vec<Patchset>,
    pub open: bool,
    pub merged: bool,
    pub approved: bool,
    /// Open changes of one topic may need each other.
    pub topic: Option<String>,
    /// Its ref, where it is not one of its own.
    pub git_ref: Option<String>,
    /// What else the forge tells of it.
    pub attributes: BTreeMap<String, Value>,
    /// Why the forge would not merge it.
    pub cannot_merge: Option<String>,
}

#[derive(Default)]
pub struct Forge {
    pub projects: BTreeMap<String, Project>,
    pub changes: BTreeMap<String, Change>,
    pub trees: BTreeMap<String, Tree>,
    /// Projects to which others push.
    pub pushed: BTreeSet<String>,
    /// A branch had moved although nobody but the gate pushed.
    pub surprised: bool,
    /// Pairs of changes that do not go together.
    pub conflicts: BTreeSet<(String, String)>,
    /// Changes whose content is in the branch already.
    pub hollow: BTreeSet<String>,
}

impl Forge {
    /// A commit's name, from all that went into it.
    pub fn commit(&mut self, how: &str, tree: Tree) -> String {
        let name = BlobHash::of(format!("{how} {tree:?}").as_bytes()).to_string();
        let name = name.get(..40).unwrap_or_default().to_owned();
        self.trees.insert(name.clone(), tree);
        name
    }

    pub fn project(&mut self, name: &str, trusted: bool, config: BTreeMap<String, String>) {
        let tip = self.commit(name, Tree { changes: BTreeSet::new(), config });
        let branches = BTreeMap::from([("master".to_owned(), tip)]);
        self.projects.insert(name.to_owned(), Project { trusted, branches });
    }

    /// A new branch of a project, where its default branch is.
    pub fn branch(&mut self, project: &str, branch: &str) -> Option<()> {
        let tip = self.tip(project, "master")?;
        self.projects.get_mut(project)?.branches.insert(branch.to_owned(), tip);
        Some(())
    }

    pub fn tree(&self, commit: &str) -> Tree {
        self.trees.get(commit).cloned().unwrap_or_default()
    }

    pub fn tip(&self, project: &str, branch: &str) -> Option<String> {
        self.projects.get(project)?.branches.get(branch).cloned()
    }

    pub fn key(&self, name: &str) -> Option<ChangeKey> {
        let change = self.changes.get(name)?;
        Some(ChangeKey { project: canonical(&change.project), change: format!("{}/{name}", change.branch) })
    }

    pub fn url(name: &str) -> String {
        format!("https://forge/c/{name}")
    }

    /// The name a change has in the story.
    pub fn short(change: &str) -> &str {
        change.rsplit('/').next().unwrap_or(change)
    }

    pub fn subject(&self, name: &str) -> Option<Subject> {
        let change = self.changes.get(name)?;
        let patchset = change.patchsets.len();
        Some(Subject {
            connection: CONNECTION.into(),
            project: canonical(&change.project),
            branch: Some(change.branch.clone()),
            git_ref: change.git_ref.clone().unwrap_or_else(|| format!("refs/changes/{name}/{patchset}")),
            change: Some(format!("{}/{name}", change.branch)),
            patchset: Some(patchset.to_string()),
            commit: Some(format!("{name}-ps{patchset}")),
            old_commit: None,
            url: Forge::url(name),
        })
    }

    fn needs(&self, name: &str) -> Vec<ChangeKey> {
        let Some(newest) = self.changes.get(name).and_then(|change| change.patchsets.last()) else { return Vec::new() };
        let below = newest.built_on.iter().filter_map(|one| one.change.as_deref()).map(Forge::short);
        let named = newest.depends_on.iter().chain(&newest.stacked_on).chain(&newest.names).map(String::as_str);
        named.chain(below).filter_map(|other| self.key(other)).collect()
    }

    /// The other open changes of a change's topic.
    fn of_topic(&self, name: &str) -> Vec<String> {
        let topic = self.changes.get(name).and_then(|change| change.topic.clone());
        let same = |other: &&String| {
            let change = self.changes.get(*other);
            *other != name && change.is_some_and(|one| one.open && one.topic.is_some() && one.topic == topic)
        };
        self.changes.keys().filter(same).cloned().collect()
    }

    /// The open changes of a project.
    pub fn open_of(&self, project: &str) -> Vec<ChangeKey> {
        let open = self.changes.iter().filter(|(_, one)| one.open && canonical(&one.project) == project);
        open.filter_map(|(name, _)| self.key(name)).collect()
    }

    pub fn facts(&self, name: &str, with_needed_by: bool) -> Option<ChangeFacts> {
        let change = self.changes.get(name)?;
        let newest = change.patchsets.last()?;
        let own = self.key(name)?;
        // Of what is merged it is remembered what stood on it.
        let stood_on_it = |one: &Change| {
            change.merged && one.patchsets.last().is_some_and(|newest| newest.stacked_on.iter().any(|on| on == name))
        };
        let counts = |other: &str, one: &Change| one.open && self.needs(other).contains(&own) || stood_on_it(one);
        let needed_by = self.changes.iter().filter(|(other, one)| counts(other, one));
        let needed_by = needed_by.filter_map(|(other, _)| self.key(other));
        let topic = self.of_topic(name).into_iter().filter_map(|other| self.key(&other)).map(|key| {
            let (project, change) = (Value::Str(key.project), Value::Str(key.change));
            Value::Map(BTreeMap::from([("project".to_owned(), project), ("change".to_owned(), change)]))
        });
        let depends_on = newest.depends_on.iter().map(|other| Forge::url(other));
        let mut attributes = change.attributes.clone();
        attributes.insert("topic-changes".to_owned(), Value::List(topic.collect()));
        if let Some(below) = &newest.built_on {
            let told = [
                ("change", below.change.clone()),
                ("patchset", below.patchset.clone()),
                ("commit", below.commit.clone()),
                ("ref", Some(below.git_ref.clone())),
            ];
            let told = told.into_iter().filter_map(|(key, value)| Some((key.to_owned(), Value::Str(value?))));
            attributes.insert("stacked-on".to_owned(), Value::Map(told.collect()));
        }
        Some(ChangeFacts {
            subject: self.subject(name)?,
            open: change.open,
            merged: change.merged,
            approved: change.approved,
            approvals: Value::Null,
            cannot_merge: change.cannot_merge.clone(),
            parents: Vec::new(),
            depends_on: depends_on.chain(newest.names.iter().map(|other| format!("c/{other}"))).collect(),
            needs: if change.merged { Vec::new() } else { self.needs(name) },
            needed_by: if with_needed_by { needed_by.collect() } else { Vec::new() },
            files: Some(newest.files.iter().chain(newest.config.keys()).cloned().collect()),
            owner: ActorId::SYSTEM,
            owner_identity: None,
            text: None,
            attributes: Value::Map(attributes),
        })
    }

    /// A change and all that hangs together with it.
    pub fn closure(&self, start: &str, with_needed_by: bool) -> Vec<ChangeFacts> {
        let mut seen = BTreeSet::new();
        let mut todo = vec![start.to_owned()];
        let mut found = Vec::new();
        while let Some(name) = todo.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let Some(facts) = self.facts(&name, with_needed_by) else { continue };
            todo.extend(self.of_topic(&name));
            todo.extend(facts.needs.iter().chain(&facts.needed_by).map(|key| Forge::short(&key.change).to_owned()));
            found.push(facts);
        }
        found
    }
}
