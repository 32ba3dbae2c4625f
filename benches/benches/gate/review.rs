//! The faked code review: knows its changes, takes votes and reports in memory. Its repositories are real: branches
//! move in them as the plain-git forge moves them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gatelog_benches::Failure;
use gatelog_benches::repository::{Repository, git};
use gatelog_driver_contract::{
    Branch, BranchNow, CodeReview, DriverSchema, Found, Landing, Report, Reporter, Source, Target, Trouble,
};
use gatelog_driver_git::{Forge, ForgeConfig, SubmitOutcome as Moved, SubmitRequest};
use gatelog_merging::{MergeItem, MergeMode, ProjectKey};
use gatelog_record::draft::gate::{ChangeFacts, ChangeKey, ChangesWanted, ReportAction, Subject};
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::{ActorId, Value, WorkId};

pub const CONNECTION: &str = "gerrit";
pub const HOST: &str = "review.example.com";
/// The project with the changes.
pub const PROJECT: &str = "org/project0";
/// The project with the configuration.
pub const CONFIG: &str = "common-config";

/// A change.
struct Change {
    commit: String,
    approved: bool,
    merged: bool,
}

/// What was reported so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    pub success: usize,
    pub failure: usize,
}

/// The code review.
pub struct Review {
    root: PathBuf,
    forge: Forge,
    changes: Mutex<BTreeMap<usize, Change>>,
    told: Mutex<Told>,
}

fn canonical(project: &str) -> String {
    format!("{HOST}/{project}")
}

fn change_ref(number: usize) -> String {
    format!("refs/changes/{:02}/{number}/1", number % 100)
}

fn map(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Review {
    /// Repositories below a folder: one of the configuration, one of so many files with so many changes on its first
    /// commit, each of a new file. The same numbers make the same commits.
    pub fn new(root: &Path, config: &[(String, String)], files: usize, changes: usize) -> Result<Review, Failure> {
        let forge = Forge::open(ForgeConfig::new(root, HOST))?;
        let place = |project: &str| root.join(format!("{project}.git"));
        let mut of_config = Repository::new(place(CONFIG))?;
        of_config.commit("refs/heads/master", &[], config)?;
        of_config.done()?;
        let mut repository = Repository::new(place(PROJECT))?;
        let mut first: Vec<(String, String)> =
            (0..files).map(|file| (format!("d{}/f{file}", file % 50), format!("line {file}\n").repeat(40))).collect();
        first.push(("README".into(), "x\n".into()));
        let base = repository.commit("refs/heads/master", &[], &first)?;
        for number in 1..=changes {
            let file = (format!("master-{number}"), format!("test master {number}\n"));
            repository.commit(&change_ref(number), &[base], &[file])?;
        }
        let place = repository.done()?;
        let refs = git(&place, &["for-each-ref", "--format=%(refname) %(objectname)", "refs/changes"])?;
        let refs: BTreeMap<&str, &str> = refs.lines().filter_map(|line| line.split_once(' ')).collect();
        let mut known = BTreeMap::new();
        for number in 1..=changes {
            let commit = refs.get(change_ref(number).as_str()).ok_or("a change is not there")?;
            known.insert(number, Change { commit: (*commit).to_owned(), approved: false, merged: false });
        }
        Ok(Review { root: root.to_owned(), forge, changes: Mutex::new(known), told: Mutex::default() })
    }

    /// What was reported.
    pub fn told(&self) -> Told {
        *lock(&self.told)
    }

    /// How many changes are merged.
    pub fn merged(&self) -> usize {
        lock(&self.changes).values().filter(|change| change.merged).count()
    }

    /// A new patchset comes in.
    pub fn proposed(&self, number: usize) -> Result<ForgeEvent, Failure> {
        self.event(number, "patchset-created", Value::Null)
    }

    /// Somebody approves a change.
    pub fn approved(&self, number: usize) -> Result<ForgeEvent, Failure> {
        lock(&self.changes).get_mut(&number).ok_or("no such change")?.approved = true;
        let vote = map([("label", "Approved".into()), ("value", Value::Int(1))]);
        let attributes = map([("approvals", Value::List(vec![vote])), ("username", "reviewer".into())]);
        self.event(number, "comment-added", attributes)
    }

    /// All changes, as a merger takes them.
    pub fn items(&self, project: &ProjectKey, mode: MergeMode) -> Vec<MergeItem> {
        let changes = lock(&self.changes);
        let item = |(number, change): (&usize, &Change)| MergeItem {
            project: project.clone(),
            branch: "master".into(),
            ref_name: Some(change_ref(*number)),
            commit: Some(change.commit.clone()),
            mode,
            date_s: 1_600_000_000,
            message: None,
        };
        changes.iter().map(item).collect()
    }

    fn event(&self, number: usize, event: &str, attributes: Value) -> Result<ForgeEvent, Failure> {
        let subject = self.subject(number).ok_or("no such change")?;
        Ok(gatelog_benches::told_of(subject, CONNECTION, event, attributes, format!("{event}-{number}")))
    }

    fn subject(&self, number: usize) -> Option<Subject> {
        Some(Subject {
            connection: CONNECTION.into(),
            project: canonical(PROJECT),
            branch: Some("master".into()),
            git_ref: change_ref(number),
            change: Some(number.to_string()),
            patchset: Some("1".into()),
            commit: Some(lock(&self.changes).get(&number)?.commit.clone()),
            old_commit: None,
            url: format!("https://{HOST}/{number}"),
        })
    }

    fn facts(&self, number: usize) -> Option<ChangeFacts> {
        let subject = self.subject(number)?;
        let changes = lock(&self.changes);
        let change = changes.get(&number)?;
        let votes = if change.approved { vec![("Code-Review", 2), ("Approved", 1)] } else { Vec::new() };
        let votes = votes.into_iter().map(|(label, value)| {
            map([("label", label.into()), ("value", Value::Int(value)), ("username", "reviewer".into())])
        });
        Some(ChangeFacts {
            subject,
            open: !change.merged,
            merged: change.merged,
            approved: change.approved,
            approvals: Value::List(votes.collect()),
            cannot_merge: None,
            parents: Vec::new(),
            depends_on: Vec::new(),
            needs: Vec::new(),
            needed_by: Vec::new(),
            files: Some(vec![format!("master-{number}")]),
            owner: ActorId::SYSTEM,
            owner_identity: None,
            text: None,
            attributes: map([("missing-labels", Value::List(Vec::new()))]),
        })
    }
}

fn trouble(message: String) -> Trouble {
    Trouble::new("review", message)
}

/// What pipelines may say to it.
pub const SCHEMA: DriverSchema = DriverSchema::silent("gerrit");

impl Review {
    fn land(&self, work: WorkId, target: &Target<'_>) -> Result<Landing, Trouble> {
        let wanted = target.wanted;
        let request = SubmitRequest {
            project: PROJECT.into(),
            branch: wanted.at.branch.clone(),
            expected_base: wanted.tested_base.clone(),
            commit: wanted.tested_commit.clone(),
            objects: target.objects.clone(),
            changes: Vec::new(),
            work_id: work.to_string(),
        };
        let moved = self.forge.submit(&request).map_err(|error| trouble(error.to_string()))?;
        if !matches!(moved, Moved::Merged | Moved::AlreadyMerged) {
            return Err(trouble(format!("the branch was moved by nobody: {moved:?}")));
        }
        let number: Option<usize> = wanted.subject.change.as_deref().and_then(|change| change.parse().ok());
        if let Some(number) = number
            && let Some(change) = lock(&self.changes).get_mut(&number)
        {
            change.merged = true;
        }
        Ok(Landing::Merged(BranchNow { commit: wanted.tested_commit.clone(), tree: wanted.tested_tree.clone() }))
    }
}

impl CodeReview for Review {
    fn canonical_hostname(&self) -> &str {
        HOST
    }

    fn source(&self, project: &str) -> Result<Source, Trouble> {
        Ok(Source::open(self.root.join(format!("{project}.git")).to_string_lossy()))
    }

    fn find_changes(&self, wanted: &ChangesWanted) -> Result<Found, Trouble> {
        let mut found = Found::default();
        for key in &wanted.changes {
            match key.change.parse().ok().and_then(|number| self.facts(number)) {
                Some(facts) => found.changes.push(facts),
                None => found.missing.push(key.clone()),
            }
        }
        Ok(found)
    }

    fn change_by_url(&self, _: &str) -> Result<Option<ChangeKey>, Trouble> {
        Err(Trouble::not_offered("changes by address"))
    }

    fn changes_by_commit(&self, _: &str, _: &str) -> Result<Vec<ChangeKey>, Trouble> {
        Err(Trouble::not_offered("changes by commit"))
    }

    fn branches(&self, _: &str) -> Result<Vec<Branch>, Trouble> {
        Err(Trouble::not_offered("branches"))
    }

    fn default_branch(&self, _: &str) -> Result<Option<String>, Trouble> {
        Err(Trouble::not_offered("branches"))
    }

    fn submit_all(&self, work: WorkId, targets: &[Target<'_>]) -> Result<Vec<Landing>, Trouble> {
        targets.iter().map(|target| self.land(work, target)).collect()
    }
}

impl Reporter for Review {
    fn only_own(&self) -> bool {
        true
    }

    fn report(&self, report: &Report<'_>) -> Result<(), Trouble> {
        let mut told = lock(&self.told);
        for _ in report.subjects {
            match report.request.action {
                ReportAction::Success => told.success += 1,
                ReportAction::Start => {}
                _ => told.failure += 1,
            }
        }
        Ok(())
    }
}
