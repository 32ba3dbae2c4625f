//! The code review: changes, patchsets, votes, merges, and the events it tells of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gatelog_record::draft::gate::{ChangeFacts, ChangeKey, ReportRequested, Subject};
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::{ActorId, Value};

use crate::file::{Scenario, Step, content, texts};
use crate::repository::Bare;

/// The connection's name.
pub const CONNECTION: &str = "gerrit";
/// The host of canonical names.
pub const HOST: &str = "review.example.com";
/// The account of the system under test.
pub const ROBOT: &str = "jenkins";
/// Who votes unless the scenario says.
const REVIEWER: &str = "reviewer";
/// What a change needs to be submitted.
const LABELS: [(&str, i64); 3] = [("Approved", 1), ("Code-Review", 2), ("Verified", 2)];
/// No commit.
const ZERO: &str = "0000000000000000000000000000000000000000";

/// The state of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is open.
    New,
    /// It was merged.
    Merged,
    /// It was abandoned.
    Abandoned,
}

impl Status {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Status::New => "NEW",
            Status::Merged => "MERGED",
            Status::Abandoned => "ABANDONED",
        }
    }
}

/// A vote.
#[derive(Clone, Debug)]
pub struct Vote {
    label: String,
    value: i64,
    by: String,
}

/// A patchset.
#[derive(Clone, Debug)]
pub struct Patchset {
    commit: String,
    files: Vec<String>,
    votes: Vec<Vote>,
    /// The change it is stacked on, with the patchset.
    parent: Option<(u32, usize)>,
}

/// A change.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its name in the scenario.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// Its project.
    pub project: String,
    /// The branch it is for.
    pub branch: String,
    /// Its state.
    pub status: Status,
    /// Its patchsets.
    pub patchsets: Vec<Patchset>,
    base: String,
    depends_on: Vec<u32>,
    topic: Option<String>,
    /// Once it is merged: the changes that stood on it then.
    below: Vec<u32>,
}

impl Change {
    /// `A,2`
    pub fn id(&self) -> String {
        format!("{},{}", self.name, self.patchsets.len())
    }

    fn vote(&self, label: &str) -> i64 {
        let votes = self.patchsets.last().map(|newest| newest.votes.as_slice()).unwrap_or_default();
        votes.iter().rev().find(|vote| vote.label == label).map_or(0, |vote| vote.value)
    }

    /// What all votes on a label come to: the worst there is stands, otherwise the strongest.
    fn standing(&self, label: &str, best: i64) -> i64 {
        let votes = self.patchsets.last().map(|newest| newest.votes.as_slice()).unwrap_or_default();
        let values = votes.iter().filter(|vote| vote.label == label).map(|vote| vote.value);
        values.fold(0, |standing, value| match value {
            worst if worst == -best => worst,
            stronger if stronger.abs() > standing.abs() => stronger,
            _ => standing,
        })
    }

    /// The last vote on `Verified` of the newest patchset.
    pub fn verified(&self) -> i64 {
        self.vote("Verified")
    }

    fn add_vote(&mut self, patchset: usize, label: &str, value: i64, by: &str) {
        if let Some(found) = self.patchsets.get_mut(patchset.wrapping_sub(1)) {
            found.votes.retain(|vote| vote.label != label || vote.by != by);
            found.votes.push(Vote { label: label.to_owned(), value, by: by.to_owned() });
        }
    }
}

/// A merge that is still to be announced.
#[derive(Clone, Debug)]
struct Merge {
    number: u32,
    old: String,
    new: String,
}

/// The code review.
pub struct Gerrit {
    /// Repositories by name.
    pub repositories: BTreeMap<String, Bare>,
    /// Changes by number.
    pub changes: BTreeMap<u32, Change>,
    numbers: BTreeMap<String, u32>,
    /// Merges, as `A,1`, in their order.
    pub merges: Vec<String>,
    unannounced: Vec<Merge>,
    /// Events that were not told yet.
    pub news: Vec<ForgeEvent>,
    deliveries: u64,
}

/// A project's canonical name.
pub fn canonical(project: &str) -> String {
    format!("{HOST}/{project}")
}

/// A project's name from its canonical one.
pub fn local(canonical: &str) -> &str {
    canonical.strip_prefix(HOST).and_then(|rest| rest.strip_prefix('/')).unwrap_or(canonical)
}

fn map(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

impl Gerrit {
    /// A code review with the scenario's repositories.
    ///
    /// # Errors
    /// Trouble with git.
    pub fn new(scenario: &Scenario, root: &Path) -> Result<Gerrit, String> {
        let mut repositories = BTreeMap::new();
        for repository in &scenario.repositories {
            let mut bare = Bare::create(root.join(format!("{}.git", repository.name.replace('/', "_"))))?;
            if let Some(files) = repository.branches.get("master") {
                bare.first_commit("master", files)?;
            }
            for (branch, files) in repository.branches.iter().filter(|(name, _)| *name != "master") {
                bare.first_commit(branch, files)?;
            }
            repositories.insert(repository.name.clone(), bare);
        }
        Ok(Gerrit {
            repositories,
            changes: BTreeMap::new(),
            numbers: scenario.numbers.clone(),
            merges: Vec::new(),
            unannounced: Vec::new(),
            news: Vec::new(),
            deliveries: 0,
        })
    }

    /// A repository.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn repository(&mut self, name: &str) -> Result<&mut Bare, String> {
        self.repositories.get_mut(name).ok_or_else(|| format!("there is no repository {name}"))
    }

    fn number(&self, name: &str) -> Result<u32, String> {
        self.numbers.get(name).copied().ok_or_else(|| format!("there is no change {name}"))
    }

    /// A change by its name.
    ///
    /// # Errors
    /// When it was not pushed (yet).
    pub fn change(&mut self, name: &str) -> Result<&mut Change, String> {
        let number = self.number(name)?;
        self.changes.get_mut(&number).ok_or_else(|| format!("{name} was not pushed yet"))
    }

    fn tell_change(&mut self, number: u32, event: &str, attributes: Value) {
        let Some(subject) = self.subject(number, None) else { return };
        self.tell(ForgeEvent {
            connection: CONNECTION.into(),
            project: subject.project.clone(),
            event: event.into(),
            branch: subject.branch.clone(),
            git_ref: subject.git_ref.clone(),
            change: subject.change.clone(),
            patchset: subject.patchset.clone(),
            commit: subject.commit.clone(),
            old_commit: None,
            attributes,
            delivery: String::new(),
            raw: None,
        });
    }

    fn tell(&mut self, mut event: ForgeEvent) {
        self.deliveries += 1;
        event.delivery = self.deliveries.to_string();
        self.news.push(event);
    }

    /// Tells that a ref moved.
    pub fn tell_ref(&mut self, project: &str, git_ref: &str, old: Option<String>, new: Option<String>) {
        self.tell(ForgeEvent {
            connection: CONNECTION.into(),
            project: canonical(project),
            event: "ref-updated".into(),
            branch: git_ref.strip_prefix("refs/heads/").map(str::to_owned),
            git_ref: git_ref.to_owned(),
            change: None,
            patchset: None,
            commit: new.filter(|commit| commit != ZERO),
            old_commit: old.filter(|commit| commit != ZERO),
            attributes: Value::Null,
            delivery: String::new(),
            raw: None,
        });
    }

    /// Announces every merge that was not announced; says whether there was one.
    pub fn announce(&mut self) -> bool {
        let merges = std::mem::take(&mut self.unannounced);
        for merge in &merges {
            let Some(change) = self.changes.get(&merge.number) else { continue };
            let (project, branch) = (change.project.clone(), change.branch.clone());
            self.tell_change(merge.number, "change-merged", Value::Null);
            let (old, new) = (Some(merge.old.clone()), Some(merge.new.clone()));
            self.tell_ref(&project, &format!("refs/heads/{branch}"), old, new);
        }
        !merges.is_empty()
    }

    // ---- steps ----

    fn files_of(step: &Step, name: &str, patchset: usize) -> BTreeMap<String, Option<String>> {
        match step.get("files").and_then(Value::as_map) {
            Some(files) => files.iter().map(|(path, value)| (path.clone(), content(value))).collect(),
            None => BTreeMap::from([(format!("{name}.txt"), Some(format!("{name} {patchset}\n")))]),
        }
    }

    fn needs_of(&self, step: &Step) -> Vec<u32> {
        let number = |(at, name): (u32, String)| self.numbers.get(&name).copied().unwrap_or(900 + at);
        (0..).zip(texts(step.get("depends_on"))).map(number).collect()
    }

    /// A new change.
    ///
    /// # Errors
    /// When the step names what is not there.
    pub fn push(&mut self, step: &Step) -> Result<(), String> {
        let name = step.text("name").unwrap_or_default();
        let project = step.text("project").ok_or_else(|| format!("{name} has no project"))?;
        let branch = step.text("branch").unwrap_or_else(|| "master".into());
        let number = self.number(&name)?;
        let files = Self::files_of(step, &name, 1);
        let parent = match step.text("parent") {
            Some(parent) => {
                let parent = self.change(&parent)?;
                Some((parent.number, parent.patchsets.len()))
            }
            None => None,
        };
        let base = match parent {
            Some((number, _)) => self.newest_commit(number),
            None => self.repository(&project)?.tip(&branch),
        };
        let base = base.ok_or_else(|| format!("{project} has no branch {branch}"))?;
        let commit = self.repository(&project)?.commit(&base, &files, &name)?;
        self.repository(&project)?.set_ref(&change_ref(number, 1), &commit)?;
        let change = Change {
            name,
            number,
            project,
            branch,
            status: Status::New,
            patchsets: vec![Patchset { commit, files: files.into_keys().collect(), votes: Vec::new(), parent }],
            base,
            depends_on: self.needs_of(step),
            topic: step.text("topic"),
            below: Vec::new(),
        };
        self.changes.insert(number, change);
        self.tell_change(number, "patchset-created", Value::Null);
        Ok(())
    }

    fn newest_commit(&self, number: u32) -> Option<String> {
        self.changes.get(&number)?.patchsets.last().map(|newest| newest.commit.clone())
    }

    /// A new patchset.
    ///
    /// # Errors
    /// When the step names what is not there.
    pub fn patchset(&mut self, step: &Step) -> Result<(), String> {
        let name = step.change().unwrap_or_default();
        let change = self.change(&name)?.clone();
        let number = change.patchsets.len() + 1;
        let files = Self::files_of(step, &name, number);
        let old_parent = change.patchsets.last().and_then(|newest| newest.parent);
        let rebase = step.get("rebase").and_then(Value::as_bool);
        let mut base = change.base.clone();
        if rebase == Some(true) {
            base = self.repository(&change.project)?.tip(&change.branch).unwrap_or(base);
        }
        let mut parent = None;
        if let Some((on, at)) = old_parent {
            let newest = self.changes.get(&on).map_or(at, |other| other.patchsets.len());
            parent = Some((on, newest));
            if rebase != Some(false) {
                base = self.newest_commit(on).unwrap_or(base);
            }
        }
        let depends_on = match step.get("message").is_some() || step.get("depends_on").is_some() {
            true => self.needs_of(step),
            false => change.depends_on.clone(),
        };
        let commit = self.repository(&change.project)?.commit(&base, &files, &name)?;
        self.repository(&change.project)?.set_ref(&change_ref(change.number, number), &commit)?;
        let found = self.change(&name)?;
        found.base = base;
        found.depends_on = depends_on;
        found.patchsets.push(Patchset { commit, files: files.into_keys().collect(), votes: Vec::new(), parent });
        self.tell_change(change.number, "patchset-created", Value::Null);
        Ok(())
    }

    fn vote(&mut self, name: &str, label: &str, value: i64, by: &str, told: bool) -> Result<(), String> {
        let change = self.change(name)?;
        let (number, newest) = (change.number, change.patchsets.len());
        change.add_vote(newest, label, value, by);
        if told {
            let vote = map([("label", label.into()), ("value", Value::Int(value))]);
            // Whoever votes, the harness of the real Zuul tells of it in the name of one and the same.
            let attributes = map([
                ("approvals", Value::List(vec![vote])),
                ("username", "author_phil".into()),
                ("email", "author@example.com".into()),
                ("comment", format!("Patch Set {newest}: {label}{value:+}").into()),
            ]);
            self.tell_change(number, "comment-added", attributes);
        }
        Ok(())
    }

    /// A step on a change that is there: votes, comments, abandoning.
    ///
    /// # Errors
    /// When the step names what is not there.
    pub fn change_step(&mut self, step: &Step) -> Result<(), String> {
        let name = step.change().unwrap_or_default();
        let change = self.change(&name)?;
        let (number, newest) = (change.number, change.patchsets.len());
        match step.name.as_str() {
            "approve" => {
                self.vote(&name, "Code-Review", 2, REVIEWER, false)?;
                self.vote(&name, "Approved", 1, REVIEWER, true)
            }
            "unapprove" => self.vote(&name, "Approved", 0, REVIEWER, true),
            "vote" => {
                let value = match step.get("value") {
                    Some(Value::Int(value)) => *value,
                    _ => 0,
                };
                let by = step.text("by").unwrap_or_else(|| REVIEWER.into());
                self.vote(&name, &step.text("label").unwrap_or_default(), value, &by, true)
            }
            "comment" => {
                let text = step.text("text").unwrap_or_default();
                let attributes = map([
                    ("approvals", Value::List(Vec::new())),
                    ("comment", format!("Patch Set {newest}:\n\n{text}").into()),
                ]);
                self.tell_change(number, "comment-added", attributes);
                Ok(())
            }
            "abandon" => {
                change.status = Status::Abandoned;
                self.tell_change(number, "change-abandoned", Value::Null);
                Ok(())
            }
            "restore" => {
                change.status = Status::New;
                self.tell_change(number, "change-restored", Value::Null);
                Ok(())
            }
            // Gerrit, and the harness: not before what it stands on.
            "merge" if self.open_parent(number).is_some() => Ok(()),
            "merge" => self.merge(number).map(|_| ()),
            other => Err(format!("{other} is no step on a change")),
        }
    }

    /// Merges a change into its branch as it is now; false when it conflicts. Of that the harness of the real Zuul says
    /// that the change is merged, though its branch stays where it was: so it is here.
    ///
    /// # Errors
    /// Trouble with git.
    pub fn merge(&mut self, number: u32) -> Result<bool, String> {
        let Some(change) = self.changes.get(&number).cloned() else { return Ok(false) };
        let commit = self.newest_commit(number).unwrap_or_default();
        let repository = self.repository(&change.project)?;
        let Some(old) = repository.tip(&change.branch) else { return Ok(false) };
        let Some(new) = repository.merge(&old, &commit)? else {
            if let Some(change) = self.changes.get_mut(&number) {
                change.status = Status::Merged;
            }
            return Ok(false);
        };
        self.moved(number, old, new)?;
        Ok(true)
    }

    fn moved(&mut self, number: u32, old: String, new: String) -> Result<(), String> {
        let newest = self.changes.get(&number).map_or(0, |change| change.patchsets.len());
        let stands_on_it = |other: &&Change| {
            let parent = other.patchsets.last().and_then(|newest| newest.parent);
            other.status == Status::New && parent == Some((number, newest))
        };
        let below = self.changes.values().filter(stands_on_it).map(|other| other.number).collect();
        let Some(change) = self.changes.get_mut(&number) else { return Ok(()) };
        change.below = below;
        change.status = Status::Merged;
        let (project, branch, id) = (change.project.clone(), change.branch.clone(), change.id());
        self.repository(&project)?.set_ref(&format!("refs/heads/{branch}"), &new)?;
        self.merges.push(id);
        self.unannounced.push(Merge { number, old, new });
        Ok(())
    }

    /// Why the system may not submit a change, if it may not. Its own vote comes with the report.
    pub fn not_submittable(&self, number: u32) -> Option<String> {
        let change = self.changes.get(&number)?;
        let missing: Vec<&str> = self.missing_labels(change).into_iter().filter(|label| *label != "Verified").collect();
        if !missing.is_empty() {
            return Some(format!("it lacks {}", missing.join(", ")));
        }
        self.open_parent(number).map(|parent| format!("{}, on which it stands, is not merged", parent.name))
    }

    /// The change on which one stands, as long as it is not merged.
    fn open_parent(&self, number: u32) -> Option<&Change> {
        let (on, _) = self.changes.get(&number)?.patchsets.last()?.parent?;
        self.changes.get(&on).filter(|parent| parent.status != Status::Merged)
    }

    /// Submits a change as it was tested, if the branch is where it was tested; otherwise merges it
    /// where the branch is.
    ///
    /// # Errors
    /// Trouble with git.
    pub fn submit(&mut self, number: u32, base: &str, commit: &str, mirror: &Path) -> Result<bool, String> {
        let Some(change) = self.changes.get(&number).cloned() else { return Ok(false) };
        let repository = self.repository(&change.project)?;
        if repository.tip(&change.branch).as_deref() != Some(base) {
            return self.merge(number);
        }
        repository.fetch(mirror, commit)?;
        self.moved(number, base.to_owned(), commit.to_owned())?;
        Ok(true)
    }

    /// Takes a report: votes for the patchsets it is about.
    pub fn report(&mut self, report: &ReportRequested) {
        for (connection, settings) in &report.reporters {
            let Some(settings) = settings.as_map().filter(|_| connection == CONNECTION) else { continue };
            for subject in &report.subjects {
                let number = subject.change.as_deref().and_then(|text| text.parse::<u32>().ok());
                let patchset = subject.patchset.as_deref().and_then(|text| text.parse::<usize>().ok());
                let Some(change) = number.and_then(|number| self.changes.get_mut(&number)) else { continue };
                for (label, value) in settings {
                    if let Value::Int(value) = value {
                        change.add_vote(patchset.unwrap_or_default(), label, *value, ROBOT);
                    }
                }
            }
        }
    }

    // ---- questions ----

    /// A change as the subject of an item, at its newest or a given patchset.
    pub fn subject(&self, number: u32, patchset: Option<usize>) -> Option<Subject> {
        let change = self.changes.get(&number)?;
        let at = patchset.unwrap_or(change.patchsets.len());
        let found = change.patchsets.get(at.checked_sub(1)?)?;
        Some(Subject {
            connection: CONNECTION.into(),
            project: canonical(&change.project),
            branch: Some(change.branch.clone()),
            git_ref: change_ref(number, at),
            change: Some(number.to_string()),
            patchset: Some(at.to_string()),
            commit: Some(found.commit.clone()),
            old_commit: None,
            url: format!("https://{HOST}/{number}"),
        })
    }

    /// A change by number, as others name it.
    pub fn key(&self, number: u32) -> Option<ChangeKey> {
        let change = self.changes.get(&number)?;
        Some(ChangeKey { project: canonical(&change.project), change: number.to_string() })
    }

    fn missing_labels(&self, change: &Change) -> Vec<&'static str> {
        LABELS
            .iter()
            .filter(|(label, value)| change.standing(label, *value) < *value)
            .map(|(label, _)| *label)
            .collect()
    }

    /// The changes a change needs: by its message, by the commit it stands on.
    fn needs(&self, change: &Change) -> (Vec<u32>, Option<(u32, usize)>) {
        let parent = change.patchsets.last().and_then(|newest| newest.parent);
        // Zuul: whoever stands on an abandoned change needs it nevertheless, and on an older patchset than was merged, too.
        let unmerged = |(number, at): &(u32, usize)| {
            let merged = |other: &Change| other.status == Status::Merged && other.patchsets.len() == *at;
            self.changes.get(number).is_some_and(|other| !merged(other))
        };
        (change.depends_on.clone(), parent.filter(unmerged))
    }

    fn needed_by(&self, number: u32) -> Vec<u32> {
        // Zuul: who stood on it when it was merged is remembered.
        let below = self.changes.get(&number).map(|change| change.below.clone()).unwrap_or_default();
        let needs = |other: &Change| {
            let (named, parent) = self.needs(other);
            // Children are known of the newest patchset alone.
            let newest = self.changes.get(&number).map_or(0, |change| change.patchsets.len());
            named.iter().any(|named| begins_alike(*named, number))
                || below.contains(&other.number)
                || (other.status == Status::New && parent == Some((number, newest)))
        };
        // Zuul asks the code review for all whose message names a change, whatever became of them.
        let others = self.changes.values().filter(|other| other.number != number);
        others.filter(|other| needs(other)).map(|other| other.number).collect()
    }

    /// The other open changes of a change's topic.
    fn of_topic(&self, change: &Change) -> Vec<u32> {
        let Some(topic) = &change.topic else { return Vec::new() };
        let same = |other: &&Change| {
            other.status == Status::New && other.topic.as_ref() == Some(topic) && other.number != change.number
        };
        self.changes.values().filter(same).map(|other| other.number).collect()
    }

    fn facts(&self, number: u32, with_needed_by: bool) -> Option<ChangeFacts> {
        let change = self.changes.get(&number)?;
        let newest = change.patchsets.last()?;
        let (named, parent) = self.needs(change);
        let mut needs: Vec<ChangeKey> = Vec::new();
        for other in parent.map(|(number, _)| number).into_iter().chain(named.iter().copied()) {
            if let Some(key) = self.key(other)
                && !needs.contains(&key)
            {
                needs.push(key);
            }
        }
        let votes = newest.votes.iter().map(|vote| {
            map([
                ("label", vote.label.as_str().into()),
                ("value", Value::Int(vote.value)),
                ("username", vote.by.as_str().into()),
                ("email", format!("{}@example.com", vote.by).into()),
            ])
        });
        let missing = self.missing_labels(change).into_iter().map(Value::from).collect();
        let stacked = parent.and_then(|(number, at)| self.subject(number, Some(at)));
        let mut attributes = BTreeMap::from([("missing-labels".to_owned(), Value::List(missing))]);
        if let Some(topic) = &change.topic {
            attributes.insert("topic".into(), topic.as_str().into());
            let others = self.of_topic(change).into_iter().filter_map(|other| self.key(other));
            let told = others.map(|key| map([("project", key.project.into()), ("change", key.change.into())]));
            attributes.insert("topic-changes".into(), Value::List(told.collect()));
        }
        if let Some(stacked) = stacked {
            attributes.insert(
                "stacked-on".into(),
                map([
                    ("change", stacked.change.unwrap_or_default().into()),
                    ("patchset", stacked.patchset.unwrap_or_default().into()),
                    ("commit", stacked.commit.unwrap_or_default().into()),
                    ("ref", stacked.git_ref.into()),
                ]),
            );
        }
        Some(ChangeFacts {
            subject: self.subject(number, None)?,
            open: change.status == Status::New,
            merged: change.status == Status::Merged,
            approved: change.vote("Approved") > 0,
            approvals: Value::List(votes.collect()),
            cannot_merge: None,
            parents: Vec::new(),
            depends_on: named.iter().map(|number| format!("https://{HOST}/{number}")).collect(),
            needs,
            needed_by: if with_needed_by {
                self.needed_by(number).into_iter().filter_map(|other| self.key(other)).collect()
            } else {
                Vec::new()
            },
            files: Some(newest.files.clone()),
            owner: ActorId::SYSTEM,
            owner_identity: None,
            text: None,
            attributes: Value::Map(attributes),
        })
    }

    /// The open changes of a project.
    pub fn open_of(&self, project: &str) -> Vec<u32> {
        let open = |change: &&Change| change.project == project && change.status == Status::New;
        self.changes.values().filter(open).map(|change| change.number).collect()
    }

    /// A change and all that hangs together with it.
    pub fn closure(&self, start: u32, with_needed_by: bool) -> Vec<ChangeFacts> {
        let mut seen = BTreeSet::new();
        let mut todo = vec![start];
        let mut found = Vec::new();
        while let Some(number) = todo.pop() {
            if !seen.insert(number) {
                continue;
            }
            let Some(facts) = self.facts(number, with_needed_by) else { continue };
            let next = facts.needs.iter().chain(&facts.needed_by).filter_map(|key| key.change.parse::<u32>().ok());
            todo.extend(next);
            todo.extend(self.changes.get(&number).map(|change| self.of_topic(change)).unwrap_or_default());
            found.push(facts);
        }
        found
    }
}

/// Whether the search of the harness's code review finds a message that names one change when it is asked for another:
/// it looks for the address as a piece of text, so whoever names 11 is found for 1.
fn begins_alike(named: u32, asked: u32) -> bool {
    named.to_string().starts_with(&asked.to_string())
}

fn change_ref(number: u32, patchset: usize) -> String {
    format!("refs/changes/{:02}/{number}/{patchset}", number % 100)
}
