//! A code-review system as simple as the plain-git forge is: projects, changes, approvals, merges by
//! compare-and-swap, reports told apart by their ids. It tells of everything that happens.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::draft::gate::{ChangeFacts, ChangeKey, ReportRequested, Subject};
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::{ActorId, Value, WorkId};
use gatelog_rules_config::is_config_path;

use crate::content::{Commits, Edit, Tree};

/// The connection's name.
pub const CONNECTION: &str = "git";
/// The host of canonical names.
pub const HOST: &str = "forge";
/// The branch everything happens on.
pub const BRANCH: &str = "master";

/// A project's canonical name.
pub fn canonical(project: &str) -> String {
    format!("{HOST}/{project}")
}

/// A project's name from its canonical one.
pub fn local(canonical: &str) -> &str {
    canonical.rsplit('/').next().unwrap_or(canonical)
}

/// A change's name from its id within the project.
pub fn short(change: &str) -> &str {
    change.rsplit('/').next().unwrap_or(change)
}

/// One state of a change.
#[derive(Clone, Debug)]
pub struct Patchset {
    /// Its commit.
    pub commit: String,
    /// What it changes.
    pub patch: Vec<Edit>,
    /// The changes it names by Depends-On.
    pub depends_on: Vec<String>,
}

impl Patchset {
    fn files(&self) -> Vec<String> {
        let paths: BTreeSet<String> = self.patch.iter().map(|edit| edit.path.clone()).collect();
        paths.into_iter().collect()
    }

    /// Whether it changes configuration.
    pub fn touches_config(&self) -> bool {
        self.patch.iter().any(|edit| is_config_path(&edit.path, &[]))
    }
}

/// A change.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its project.
    pub project: String,
    /// Its patchsets; the last is the current one.
    pub patchsets: Vec<Patchset>,
    /// Whether it is proposed.
    pub proposed: bool,
    /// The patchset that was approved, from 1.
    pub approved: Option<usize>,
    /// Patchsets that were merged, from 1.
    pub merged: BTreeSet<usize>,
}

impl Change {
    /// Whether its current patchset was merged.
    pub fn is_merged(&self) -> bool {
        self.merged.contains(&self.patchsets.len())
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.proposed && !self.is_merged()
    }
}

/// How moving a branch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It moved.
    Done,
    /// It had been moved there before.
    Already,
    /// It was somewhere else.
    Elsewhere(Option<String>),
}

/// The system.
#[derive(Default)]
pub struct Forge {
    /// Commits, those made by merging ahead of time too.
    pub commits: Commits,
    /// Tips by project.
    pub tips: BTreeMap<String, String>,
    /// Changes by name.
    pub changes: BTreeMap<String, Change>,
    /// What it has to tell and has not told.
    pub news: Vec<ForgeEvent>,
    /// Reports by their ids: how often they were delivered, and what was said.
    pub reports: BTreeMap<WorkId, (u32, ReportRequested)>,
    deliveries: u64,
}

impl Forge {
    /// A project with files.
    pub fn project(&mut self, name: &str, files: &[(&str, &str)]) {
        let mut tree = Tree::default();
        for (path, text) in files {
            let lines = (0..).zip(text.lines().map(str::to_owned)).collect();
            tree.files.insert((*path).to_owned(), lines);
        }
        let tip = self.commits.add(tree, Vec::new(), name);
        self.tips.insert(name.to_owned(), tip);
    }

    /// What a project's branch holds.
    pub fn tip_tree(&self, project: &str) -> Tree {
        self.tips.get(project).and_then(|tip| self.commits.tree(tip)).cloned().unwrap_or_default()
    }

    /// A change by name, as others call it.
    pub fn key(&self, name: &str) -> Option<ChangeKey> {
        let change = self.changes.get(name)?;
        Some(ChangeKey { project: canonical(&change.project), change: format!("{BRANCH}/{name}") })
    }

    fn tell(&mut self, project: &str, event: &str, change: Option<&str>, old: Option<String>) {
        self.deliveries += 1;
        let subject = change.and_then(|name| self.subject(name));
        let commit = match &subject {
            Some(subject) => subject.commit.clone(),
            None => self.tips.get(project).cloned(),
        };
        self.news.push(ForgeEvent {
            connection: CONNECTION.into(),
            project: canonical(project),
            event: event.into(),
            branch: Some(BRANCH.into()),
            git_ref: subject.as_ref().map_or(format!("refs/heads/{BRANCH}"), |subject| subject.git_ref.clone()),
            change: subject.as_ref().and_then(|subject| subject.change.clone()),
            patchset: subject.as_ref().and_then(|subject| subject.patchset.clone()),
            commit,
            old_commit: old,
            attributes: Value::Null,
            delivery: format!("{project}/{}", self.deliveries),
            raw: None,
        });
    }

    /// Proposes a patchset of a change.
    pub fn propose(&mut self, project: &str, name: &str, patch: Vec<Edit>, depends_on: Vec<String>) {
        let Some(base) = self.tips.get(project).cloned() else { return };
        let tree = self.tip_tree(project).patched(&patch).unwrap_or_default();
        let change = self.changes.entry(name.to_owned()).or_insert_with(|| Change {
            project: project.to_owned(),
            patchsets: Vec::new(),
            proposed: true,
            approved: None,
            merged: BTreeSet::new(),
        });
        let commit = self.commits.add(tree, vec![base], &format!("{name} {}", change.patchsets.len() + 1));
        change.patchsets.push(Patchset { commit, patch, depends_on });
        change.proposed = true;
        // An approval counts for the patchset it was given to.
        change.approved = None;
        self.tell(project, "change-proposed", Some(name), None);
    }

    /// Approves the current patchset, or takes that back.
    pub fn approve(&mut self, name: &str, yes: bool) {
        let Some(change) = self.changes.get_mut(name) else { return };
        change.approved = yes.then_some(change.patchsets.len());
        let project = change.project.clone();
        self.tell(&project, if yes { "change-approved" } else { "approval-withdrawn" }, Some(name), None);
    }

    /// Withdraws a change altogether.
    pub fn abandon(&mut self, name: &str) {
        let Some(change) = self.changes.get_mut(name) else { return };
        change.proposed = false;
        change.approved = None;
        let project = change.project.clone();
        self.tell(&project, "change-abandoned", Some(name), None);
    }

    /// Somebody else puts a commit on a branch.
    pub fn push(&mut self, project: &str, patch: &[Edit], why: &str) {
        let Some(old) = self.tips.get(project).cloned() else { return };
        let Ok(tree) = self.tip_tree(project).patched(patch) else { return };
        let tip = self.commits.add(tree, vec![old.clone()], why);
        self.tips.insert(project.to_owned(), tip);
        self.tell(project, "ref-updated", None, Some(old));
    }

    /// Moves a branch from exactly one commit to another, and closes the change this merges.
    pub fn submit(&mut self, subject: &Subject, base: &str, commit: &str) -> Moved {
        let project = local(&subject.project).to_owned();
        let Some(tip) = self.tips.get(&project).cloned() else { return Moved::Elsewhere(None) };
        let moved = if self.commits.contains(&tip, commit) {
            Moved::Already
        } else if tip == base {
            self.tips.insert(project.clone(), commit.to_owned());
            Moved::Done
        } else {
            return Moved::Elsewhere(Some(tip));
        };
        let name = short(subject.change.as_deref().unwrap_or_default()).to_owned();
        if let Some(change) = self.changes.get_mut(&name)
            && let Some(index) = change.patchsets.iter().position(|one| Some(&one.commit) == subject.commit.as_ref())
            && change.merged.insert(index + 1)
        {
            // Somebody may have pushed another patchset since: then the change stays open.
            if index + 1 == change.patchsets.len() {
                change.proposed = false;
            }
            self.tell(&project, "change-merged", Some(&name), None);
        }
        if moved == Moved::Done {
            self.tell(&project, "ref-updated", None, Some(base.to_owned()));
        }
        moved
    }

    /// Takes a report. One that is repeated takes the place of itself.
    pub fn report(&mut self, report: &ReportRequested) {
        self.reports.entry(report.work).or_insert_with(|| (0, report.clone())).0 += 1;
    }

    fn subject(&self, name: &str) -> Option<Subject> {
        let change = self.changes.get(name)?;
        let patchset = change.patchsets.len();
        Some(Subject {
            connection: CONNECTION.into(),
            project: canonical(&change.project),
            branch: Some(BRANCH.into()),
            git_ref: format!("refs/changes/{name}/{patchset}"),
            change: Some(format!("{BRANCH}/{name}")),
            patchset: Some(patchset.to_string()),
            commit: change.patchsets.last().map(|newest| newest.commit.clone()),
            old_commit: None,
            url: format!("https://{HOST}/c/{name}"),
        })
    }

    fn needs(&self, name: &str) -> Vec<ChangeKey> {
        let newest = self.changes.get(name).and_then(|change| change.patchsets.last());
        newest.into_iter().flat_map(|newest| &newest.depends_on).filter_map(|other| self.key(other)).collect()
    }

    fn facts(&self, name: &str, with_needed_by: bool, among: &[String]) -> Option<ChangeFacts> {
        let change = self.changes.get(name)?;
        let newest = change.patchsets.last()?;
        let own = self.key(name)?;
        let needed_by = self
            .changes
            .iter()
            .filter(|(other, one)| {
                with_needed_by
                    && one.is_open()
                    && among.contains(&canonical(&one.project))
                    && self.needs(other).contains(&own)
            })
            .filter_map(|(other, _)| self.key(other))
            .collect();
        Some(ChangeFacts {
            subject: self.subject(name)?,
            open: change.is_open(),
            merged: change.is_merged(),
            approved: change.approved == Some(change.patchsets.len()),
            approvals: Value::Null,
            cannot_merge: None,
            parents: Vec::new(),
            depends_on: newest.depends_on.iter().map(|other| format!("https://{HOST}/c/{other}")).collect(),
            needs: if change.is_merged() { Vec::new() } else { self.needs(name) },
            needed_by,
            files: Some(newest.files()),
            owner: ActorId::SYSTEM,
            owner_identity: None,
            text: None,
            attributes: Value::Null,
        })
    }

    /// The open changes of a project.
    pub fn open_of(&self, project: &str) -> Vec<ChangeKey> {
        let open = self.changes.iter().filter(|(_, one)| one.is_open() && canonical(&one.project) == project);
        open.filter_map(|(name, _)| self.key(name)).collect()
    }

    /// A change and all that hangs together with it.
    pub fn closure(&self, start: &str, with_needed_by: bool, among: &[String]) -> Vec<ChangeFacts> {
        let mut seen = BTreeSet::new();
        let mut todo = vec![start.to_owned()];
        let mut found = Vec::new();
        while let Some(name) = todo.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let Some(facts) = self.facts(&name, with_needed_by, among) else { continue };
            todo.extend(facts.needs.iter().chain(&facts.needed_by).map(|key| short(&key.change).to_owned()));
            found.push(facts);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<Edit> {
        vec![Edit { path: "a".into(), line: 0, before: Some("x".into()), after: Some(text.into()) }]
    }

    #[test]
    fn a_branch_moves_from_what_was_expected_or_not_at_all() {
        let mut forge = Forge::default();
        forge.project("lib", &[("a", "x\nz\n")]);
        forge.propose("lib", "c1", line("y"), Vec::new());
        forge.approve("c1", true);
        let base = forge.tips["lib"].clone();
        let patchset = forge.changes["c1"].patchsets[0].clone();
        let merged = forge.commits.merge(&base, &patchset.commit, &patchset.patch, "m").unwrap();
        let subject = forge.subject("c1").unwrap();
        assert!(forge.facts("c1", false, &[]).unwrap().approved);
        assert_eq!(forge.submit(&subject, "elsewhere", &merged), Moved::Elsewhere(Some(base.clone())));
        assert_eq!(forge.submit(&subject, &base, &merged), Moved::Done);
        assert_eq!(forge.submit(&subject, &base, &merged), Moved::Already);
        assert_eq!(forge.tip_tree("lib").text("a").as_deref(), Some("y\nz\n"));
        let facts = forge.facts("c1", false, &[]).unwrap();
        assert!(facts.merged && !facts.open);
        let told: Vec<&str> = forge.news.iter().map(|news| news.event.as_str()).collect();
        assert_eq!(told, ["change-proposed", "change-approved", "change-merged", "ref-updated"]);
    }

    #[test]
    fn a_new_patchset_needs_a_new_approval_and_stays_open_when_the_old_one_is_merged() {
        let mut forge = Forge::default();
        forge.project("lib", &[("a", "x\n")]);
        forge.propose("lib", "c1", line("y"), Vec::new());
        forge.approve("c1", true);
        let old = forge.subject("c1").unwrap();
        let base = forge.tips["lib"].clone();
        let patchset = forge.changes["c1"].patchsets[0].clone();
        let merged = forge.commits.merge(&base, &patchset.commit, &patchset.patch, "m").unwrap();
        forge.propose("lib", "c1", line("w"), Vec::new());
        assert!(!forge.facts("c1", false, &[]).unwrap().approved);
        assert_eq!(forge.submit(&old, &base, &merged), Moved::Done);
        assert!(forge.changes["c1"].is_open());
    }

    #[test]
    fn what_hangs_together_is_found_from_either_end() {
        let mut forge = Forge::default();
        forge.project("lib", &[("a", "x\n")]);
        forge.project("app", &[("a", "x\n")]);
        forge.propose("lib", "c1", line("y"), Vec::new());
        forge.propose("app", "c2", line("y"), vec!["c1".into()]);
        let among = [canonical("lib"), canonical("app")];
        assert_eq!(forge.closure("c1", true, &among).len(), 2);
        assert_eq!(forge.closure("c1", true, &among[..1]).len(), 1, "projects of others are not looked at");
        assert_eq!(forge.closure("c2", false, &among).len(), 2);
    }
}
