//! Gerrit as a connection: answers, merges and reports in the words of the contract.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

use gatelog_driver_contract::{
    Branch, BranchNow, CodeReview, Credentials, Found, Landing, Report, Reporter, Secret, Source, Target, Trouble,
};
use gatelog_record::draft::gate::{ChangeKey, ChangesWanted, Subject};
use gatelog_record::{Timestamp, Value, WorkId};
use gatelog_secrets::Keyring;

use crate::change::ChangeName;
use crate::client::Gerrit;
use crate::depends;
use crate::error::GerritError;
use crate::git::Git;
use crate::hearing::Hearing;
use crate::report::{InlineComment, Place, Report as Review};
use crate::submit::{Mode, SubmitTarget, Submitted, Submitter};

/// How often what is not found is asked for again, and how long in between: while a change merges, its number alone does
/// not find it for a moment.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(300);

/// Words of a reporter that are no labels.
const NO_LABELS: &[&str] = &["submit", "comment", "notify", "checks-api"];

/// A Gerrit as a connection of a site.
#[derive(Debug)]
pub struct GerritConnection {
    pub(crate) name: String,
    pub(crate) gerrit: Gerrit,
    git: Git,
    mode: Mode,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) now: fn() -> Timestamp,
    whole_topics: OnceLock<bool>,
    pub(crate) hearing: Mutex<Option<Hearing>>,
}

impl GerritConnection {
    /// A connection; nothing is asked yet.
    pub fn new(
        name: impl Into<String>,
        gerrit: Gerrit,
        git: Git,
        mode: Mode,
        keyring: Arc<Keyring>,
        now: fn() -> Timestamp,
    ) -> GerritConnection {
        let (whole_topics, hearing) = (OnceLock::new(), Mutex::new(None));
        GerritConnection { name: name.into(), gerrit, git, mode, keyring, now, whole_topics, hearing }
    }

    /// The server's version, and whether the account may stream events.
    pub(crate) fn look(&self) -> Result<(String, bool), GerritError> {
        Ok((self.gerrit.server()?.version, self.gerrit.capabilities()?.contains("streamEvents")))
    }

    fn host(&self) -> &str {
        &self.gerrit.config().canonical_hostname
    }

    pub(crate) fn trouble(&self, error: &GerritError) -> Trouble {
        trouble(error, self.now)
    }

    pub(crate) fn canonical(&self, project: &str) -> String {
        format!("{}/{project}", self.host())
    }

    pub(crate) fn local<'p>(&self, canonical: &'p str) -> Result<&'p str, Trouble> {
        let rest = canonical.strip_prefix(self.host()).and_then(|rest| rest.strip_prefix('/'));
        rest.ok_or_else(|| Trouble::new("wrong-host", format!("project {canonical} is not on {}", self.host())))
    }

    pub(crate) fn key(&self, name: &ChangeName) -> ChangeKey {
        ChangeKey { project: self.canonical(&name.project), change: name.number.to_string() }
    }

    pub(crate) fn named(&self, project: &str, change: &str) -> Result<ChangeName, Trouble> {
        let number = change.parse().map_err(|_| {
            Trouble::new("bad-name", format!("{change:?} is not a change of Gerrit: expected its number"))
        })?;
        Ok(ChangeName { project: self.local(project)?.to_owned(), number })
    }

    /// Whether one submit merges a topic; asked once.
    pub(crate) fn whole_topics(&self) -> Result<bool, GerritError> {
        if let Some(known) = self.whole_topics.get() {
            return Ok(*known);
        }
        let found = self.gerrit.server()?.submit_whole_topic;
        Ok(*self.whole_topics.get_or_init(|| found))
    }

    fn target(&self, target: &Target<'_>) -> Result<SubmitTarget, Trouble> {
        let wanted = target.wanted;
        let subject = &wanted.subject;
        let (Some(change), Some(commit)) = (&subject.change, &subject.commit) else {
            return Err(Trouble::new(
                "no-change",
                format!("{} is no change, and Gerrit merges only such", subject.git_ref),
            ));
        };
        Ok(SubmitTarget {
            change: self.named(&wanted.at.project, change)?,
            branch: wanted.at.branch.clone(),
            patchset_commit: commit.clone(),
            tested_base: wanted.tested_base.clone(),
            tested_commit: wanted.tested_commit.clone(),
            tested_tree: wanted.tested_tree.clone(),
        })
    }

    fn tell(&self, report: &Report<'_>, subject: &Subject) -> Result<(), Trouble> {
        // Refs have no place where anybody could be told.
        let (Some(change), Some(commit)) = (&subject.change, &subject.commit) else { return Ok(()) };
        let says = Says::of(report.settings);
        let request = report.request;
        let remarks = request.remarks.iter().filter(|remark| {
            remark.project == subject.project && Some(&remark.branch) == subject.branch.as_ref() && says.comments
        });
        let review = Review {
            work: request.work.to_string(),
            pipeline: Some(request.pipeline.clone()),
            change: self.named(&subject.project, change)?,
            commit: commit.clone(),
            message: if says.comments { request.message.clone() } else { String::new() },
            short_message: None,
            votes: says.votes,
            comments: remarks
                .map(|remark| InlineComment {
                    file: remark.path.clone(),
                    place: if remark.line == 0 { Place::File } else { Place::Line(remark.line) },
                    message: remark.text.clone(),
                    unresolved: false,
                })
                .collect(),
            notify: says.notify,
        };
        let told = self.gerrit.report(&review).map_err(|error| self.trouble(&error))?;
        // What is said of lines stands in the message, too: only votes are missed.
        let lost: Vec<String> = told
            .votes_not_given
            .iter()
            .filter(|(_, why)| !why.contains("not the current one"))
            .map(|(label, why)| format!("{label}: {why}"))
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        let message = format!("{change} was told, but not voted on: {}", lost.join("; "));
        Err(Trouble::new("vote-not-given", message))
    }
}

/// What a pipeline says to the reporter.
struct Says {
    votes: BTreeMap<String, i64>,
    comments: bool,
    notify: Option<String>,
}

impl Says {
    fn of(settings: &Value) -> Says {
        let mut says = Says { votes: BTreeMap::new(), comments: true, notify: None };
        let maps = settings.as_list().unwrap_or(std::slice::from_ref(settings));
        for (word, value) in maps.iter().filter_map(Value::as_map).flatten() {
            match (word.as_str(), value) {
                ("comment", Value::Bool(comments)) => says.comments = *comments,
                ("notify", Value::Str(whom)) => says.notify = Some(whom.clone()),
                (label, Value::Int(vote)) if !NO_LABELS.contains(&label) => {
                    says.votes.insert(label.to_owned(), *vote);
                }
                _ => {}
            }
        }
        says
    }
}

impl CodeReview for GerritConnection {
    fn canonical_hostname(&self) -> &str {
        self.host()
    }

    fn hosts(&self) -> Vec<String> {
        let mut hosts = vec![self.host().to_owned()];
        let own = self.gerrit.config().base_url.host_str().map(str::to_owned);
        hosts.extend(own.filter(|own| !own.eq_ignore_ascii_case(self.host())));
        hosts
    }

    fn source(&self, project: &str) -> Result<Source, Trouble> {
        let config = self.gerrit.config();
        let url = self.git.address(project).map_err(|error| self.trouble(&error))?;
        let credentials = if config.git_over_ssh {
            Credentials::Ssh { key: config.ssh.key.clone(), known_hosts: config.ssh.known_hosts.clone() }
        } else {
            let password = config.password().map_err(|error| self.trouble(&error))?;
            Credentials::Basic { user: config.user.clone(), password: Secret(password) }
        };
        Ok(Source { url, credentials: Some(credentials) })
    }

    fn find_changes(&self, wanted: &ChangesWanted) -> Result<Found, Trouble> {
        self.closure(wanted)
    }

    fn change_by_url(&self, url: &str) -> Result<Option<ChangeKey>, Trouble> {
        let Some((number, project)) = depends::change_of_address(url, self.gerrit.config()) else { return Ok(None) };
        if let Some(project) = project {
            match self.gerrit.change(&ChangeName { project, number }) {
                Ok(change) => return Ok(Some(self.key(&change.name))),
                Err(GerritError::Missing { .. }) => {}
                Err(error) => return Err(self.trouble(&error)),
            }
        }
        for look in 1..=LOOKS {
            match self.gerrit.change_by_number(number) {
                Ok(change) => return Ok(Some(self.key(&change.name))),
                Err(GerritError::NotFoundNow { .. }) if look < LOOKS => thread::sleep(BETWEEN_LOOKS),
                Err(GerritError::NotFoundNow { .. }) => break,
                Err(error) => return Err(self.trouble(&error)),
            }
        }
        Ok(None)
    }

    fn changes_by_topic(&self, topic: &str) -> Result<Vec<ChangeKey>, Trouble> {
        let found = self.gerrit.changes_by_topic(topic).map_err(|error| self.trouble(&error))?;
        Ok(found.iter().map(|change| self.key(&change.name)).collect())
    }

    fn changes_by_commit(&self, project: &str, commit: &str) -> Result<Vec<ChangeKey>, Trouble> {
        let found = self.gerrit.changes_by_commit(commit).map_err(|error| self.trouble(&error))?;
        let current =
            |change: &&crate::Change| change.is_open() && change.commit == commit && change.name.project == project;
        Ok(found.iter().filter(current).map(|change| self.key(&change.name)).collect())
    }

    fn branches(&self, project: &str) -> Result<Vec<Branch>, Trouble> {
        let found = self.gerrit.branches(project).map_err(|error| self.trouble(&error))?;
        let branch = |found: crate::Ref| {
            let name = found.name.strip_prefix("refs/heads/")?.to_owned();
            Some(Branch { name, commit: found.revision, protected: None })
        };
        Ok(found.into_iter().filter_map(branch).collect())
    }

    fn default_branch(&self, project: &str) -> Result<Option<String>, Trouble> {
        let branch = self.gerrit.default_branch(project).map_err(|error| self.trouble(&error))?;
        // HEAD names a branch before there is one.
        let there = self.gerrit.branch(project, &branch).map_err(|error| self.trouble(&error))?;
        Ok(there.map(|_| branch))
    }

    fn submit_all(&self, _work: WorkId, targets: &[Target<'_>]) -> Result<Vec<Landing>, Trouble> {
        let mut wanted = Vec::with_capacity(targets.len());
        let mut objects: BTreeMap<String, PathBuf> = BTreeMap::new();
        for target in targets {
            let one = self.target(target)?;
            objects.insert(one.change.project.clone(), target.objects.clone());
            wanted.push(one);
        }
        let submitter = Submitter::new(&self.gerrit, &self.git, self.mode);
        let outcomes = submitter.submit_all(&wanted, &objects).map_err(|error| self.trouble(&error))?;
        Ok(outcomes.into_iter().map(|outcome| self.landing(outcome)).collect())
    }
}

impl GerritConnection {
    fn landing(&self, outcome: Submitted) -> Landing {
        match outcome {
            Submitted::Merged(landed) => Landing::Merged(BranchNow { commit: landed.commit, tree: landed.tree }),
            Submitted::MergedUntested(landed) => {
                Landing::MergedUntested(BranchNow { commit: landed.commit, tree: landed.tree })
            }
            Submitted::BaseMoved { is } => Landing::BaseMoved { found: is },
            Submitted::Refused { why } => Landing::Refused { code: "refused".to_owned(), message: why },
            Submitted::NotTried => Landing::HeldBack,
            Submitted::Failed { code, why, again, retry_at } => {
                let trouble = Trouble::new(code, why).again(again);
                Landing::Failed(match retry_at {
                    Some(at) => trouble.not_before(moment(at, self.now)),
                    None => trouble,
                })
            }
        }
    }
}

impl Reporter for GerritConnection {
    fn only_own(&self) -> bool {
        true
    }

    fn report(&self, report: &Report<'_>) -> Result<(), Trouble> {
        let mut seen = BTreeSet::new();
        let told = report.subjects.iter().filter(|subject| seen.insert((&subject.project, &subject.change)));
        let told: Vec<Result<(), Trouble>> = told.map(|subject| self.tell(report, subject)).collect();
        // Each is told, whatever becomes of the others. What passes is said first: then all is tried again, and what was
        // told is not told twice.
        let mut troubles: Vec<Trouble> = told.into_iter().filter_map(Result::err).collect();
        troubles.sort_by_key(|trouble| !trouble.again);
        troubles.into_iter().next().map_or(Ok(()), Err)
    }
}

/// A moment of the system's clock in the site's time.
fn moment(at: SystemTime, now: fn() -> Timestamp) -> Timestamp {
    let wait = at.duration_since(SystemTime::now()).unwrap_or_default();
    now().plus_millis(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX))
}

/// What an error is to whoever asked.
pub(crate) fn trouble(error: &GerritError, now: fn() -> Timestamp) -> Trouble {
    match error {
        GerritError::NotFoundNow { .. } => Trouble::not_found_now(error.code(), error.to_string()),
        GerritError::TooMuch { what, .. } if what.starts_with("changes") => {
            Trouble::new("too-many-changes", error.to_string())
        }
        _ => {
            let trouble = Trouble::new(error.code(), error.to_string()).again(error.passes());
            error.retry_at().map_or(trouble.clone(), |at| trouble.not_before(moment(at, now)))
        }
    }
}
