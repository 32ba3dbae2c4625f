//! The forge as a connection: answers, merges and reports in the words of the contract.

use std::sync::Arc;
use std::time::Duration;

use gatelog_driver_contract::{
    Branch, BranchNow, COMMIT_MISSING, CodeReview, Found, Landing, Report, Reporter, Source, Target, Trouble,
};
use gatelog_record::WorkId;
use gatelog_record::draft::gate::{ChangeKey as RecordKey, ChangesWanted, Subject};
use gatelog_secrets::Keyring;

use crate::change::ChangeKey;
use crate::error::ForgeError;
use crate::forge::Forge;
use crate::query::Resolution;
use crate::report::ReportRequest;
use crate::submit::{SubmitOutcome, SubmitRequest, SubmittedChange};

/// How often all refs are looked at where nobody says.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A plain-git forge as a connection of a site.
pub struct GitConnection {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) forge: Forge,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) look_every: Duration,
}

impl GitConnection {
    /// A connection over an open forge.
    pub fn new(name: impl Into<String>, forge: Forge, keyring: Arc<Keyring>) -> GitConnection {
        let host = forge.config().canonical_host.clone();
        GitConnection { name: name.into(), host, forge, keyring, look_every: LOOK_EVERY }
    }

    /// The same, whose refs are looked at this often without a reason.
    #[must_use]
    pub fn looking_every(self, look_every: Duration) -> GitConnection {
        GitConnection { look_every, ..self }
    }

    pub(crate) fn canonical(&self, project: &str) -> String {
        format!("{}/{project}", self.host)
    }

    pub(crate) fn local<'p>(&self, canonical: &'p str) -> Result<&'p str, Trouble> {
        canonical
            .strip_prefix(self.host.as_str())
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or_else(|| Trouble::new("wrong-host", format!("project {canonical} is not on {}", self.host)))
    }

    pub(crate) fn record_key(&self, key: &ChangeKey) -> RecordKey {
        RecordKey { project: self.canonical(&key.project), change: format!("{}/{}", key.branch, key.name) }
    }

    fn land(&self, work: WorkId, target: &Target<'_>) -> Result<Landing, Trouble> {
        let wanted = target.wanted;
        let project = self.local(&wanted.at.project)?;
        let subject = &wanted.subject;
        let changes = match (&subject.change, &subject.commit) {
            (Some(change), Some(commit)) => vec![SubmittedChange {
                name: change.rsplit('/').next().unwrap_or(change).to_owned(),
                commit: commit.clone(),
            }],
            _ => Vec::new(),
        };
        let request = SubmitRequest {
            project: project.to_owned(),
            branch: wanted.at.branch.clone(),
            expected_base: wanted.tested_base.clone(),
            commit: wanted.tested_commit.clone(),
            objects: target.objects.clone(),
            changes,
            work_id: work.to_string(),
        };
        let tested = || BranchNow { commit: wanted.tested_commit.clone(), tree: wanted.tested_tree.clone() };
        Ok(match self.forge.submit(&request).map_err(|error| trouble(&error))? {
            SubmitOutcome::Merged => Landing::Merged(tested()),
            // By an earlier call; the branch may have gone on since.
            SubmitOutcome::AlreadyMerged => {
                let tip = self.forge.tip(project, &wanted.at.branch).map_err(|error| trouble(&error))?;
                Landing::Merged(tip.map_or_else(tested, |(commit, tree)| BranchNow { commit, tree }))
            }
            SubmitOutcome::BaseMoved { found } => Landing::BaseMoved { found },
            SubmitOutcome::Refused { reason } => Landing::Refused { code: "refused".into(), message: reason },
        })
    }

    fn tell(&self, report: &Report<'_>, subject: &Subject) -> Result<(), Trouble> {
        let Some(commit) = &subject.commit else {
            let message = format!("{} has no commit a note could be put on", subject.git_ref);
            return Err(Trouble::new("no-commit", message));
        };
        let request = ReportRequest {
            project: self.local(&subject.project)?.to_owned(),
            commit: commit.clone(),
            report_id: report.request.work.to_string(),
            verdict: verdict(&report.request.pipeline, report.request.action.word()),
            text: report.request.message.clone(),
            date_s: report.request.requested_at.seconds(),
        };
        self.forge.report(&request).map_err(|error| trouble(&error))
    }
}

impl CodeReview for GitConnection {
    fn canonical_hostname(&self) -> &str {
        &self.host
    }

    fn source(&self, project: &str) -> Result<Source, Trouble> {
        let path = self.forge.path(project).map_err(|error| trouble(&error))?;
        Ok(Source::open(path.to_string_lossy()))
    }

    fn find_changes(&self, wanted: &ChangesWanted) -> Result<Found, Trouble> {
        self.closure(wanted)
    }

    fn change_by_url(&self, url: &str) -> Result<Option<RecordKey>, Trouble> {
        if ChangeKey::from_url(url, &self.host).is_none() {
            return Ok(None);
        }
        match self.forge.resolve(url).map_err(|error| trouble(&error))? {
            Resolution::Change(key) => Ok(Some(self.record_key(&key))),
            Resolution::Foreign | Resolution::Ambiguous(_) => Ok(None),
        }
    }

    fn changes_by_commit(&self, project: &str, commit: &str) -> Result<Vec<RecordKey>, Trouble> {
        let mut found = Vec::new();
        for key in self.forge.open_changes(project).map_err(|error| trouble(&error))? {
            match self.forge.query(&key) {
                Ok(facts) if facts.open && facts.commit == commit => found.push(self.record_key(&key)),
                Ok(_) | Err(ForgeError::NoChange { .. }) => {}
                Err(error) => return Err(trouble(&error)),
            }
        }
        Ok(found)
    }

    fn branches(&self, project: &str) -> Result<Vec<Branch>, Trouble> {
        let mut found = Vec::new();
        for name in self.forge.branches(project).map_err(|error| trouble(&error))? {
            // One that went since it was listed is none.
            if let Some((commit, _)) = self.forge.tip(project, &name).map_err(|error| trouble(&error))? {
                found.push(Branch { name, commit, protected: None });
            }
        }
        Ok(found)
    }

    fn default_branch(&self, project: &str) -> Result<Option<String>, Trouble> {
        self.forge.default_branch(project).map_err(|error| trouble(&error))
    }

    fn submit_all(&self, work: WorkId, targets: &[Target<'_>]) -> Result<Vec<Landing>, Trouble> {
        let mut landings: Vec<Landing> = Vec::with_capacity(targets.len());
        for target in targets {
            if landings.last().is_some_and(|before| !before.is_merged()) {
                landings.push(Landing::HeldBack);
                continue;
            }
            match self.land(work, target) {
                Ok(landing) => landings.push(landing),
                // Nothing was touched yet.
                Err(trouble) if landings.is_empty() => return Err(trouble),
                Err(trouble) => landings.push(Landing::Failed(trouble)),
            }
        }
        Ok(landings)
    }
}

impl Reporter for GitConnection {
    fn only_own(&self) -> bool {
        true
    }

    fn report(&self, report: &Report<'_>) -> Result<(), Trouble> {
        let told = report.subjects.iter().map(|subject| self.tell(report, subject));
        // Each is told, whatever becomes of the others; a report that is repeated replaces itself.
        told.fold(Ok(()), Result::and)
    }
}

/// The one word of a report's section: `gate:success`. What the forge takes for no word is replaced.
fn verdict(pipeline: &str, action: &str) -> String {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = pipeline.chars().take(60).map(|c| if fine(c) { c } else { '-' }).collect();
    format!("{name}:{action}")
}

/// What an error of the forge is to whoever asked.
pub(crate) fn trouble(error: &ForgeError) -> Trouble {
    match error {
        ForgeError::Locked { .. } | ForgeError::Busy { .. } | ForgeError::Io { .. } => Trouble::passing("forge", error),
        ForgeError::NoProject { .. } => Trouble::lasting("repository-vanished", error),
        ForgeError::NoChange { .. } => Trouble::lasting("change-missing", error),
        ForgeError::BadName { .. } => Trouble::lasting("bad-name", error),
        ForgeError::TooMany { .. } => Trouble::lasting("too-large", error),
        ForgeError::MissingCommit { .. } => Trouble::passing(COMMIT_MISSING, error),
        _ => Trouble::passing("forge", error),
    }
}
