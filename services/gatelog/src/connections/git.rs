//! The plain-git forge as a connection: answers effects, and puts what happens onto the intake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gatelog_driver_git::{
    ChangeFacts as Facts, ChangeKey as Key, EventKind, Forge, ForgeError, ForgeEvent as Happened, Notifier,
    RefSnapshot, ReportRequest, SubmitOutcome as Moved, SubmitRequest, SubmittedChange,
};
use gatelog_effects::connection::{COMMIT_MISSING, CodeReview, Trouble, chain};
use gatelog_event_log::{Log, LogError, failpoint};
use gatelog_record::draft::gate::{
    ChangeFacts, ChangeKey, ChangesFound, ChangesWanted, FactsPurpose, ReportRequested, Subject, SubmitOutcome,
    SubmitTarget,
};
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::input::IntakeInput;
use gatelog_record::{InputId, InputRecord, Stream, Value, WorkId};
use gatelog_secrets::{Keyring, KeyringError, Scope};

use super::troubles::Troubles;

/// How many changes one closure may hold.
const MAX_CLOSURE: usize = 500;

/// A plain-git forge and what its adapter needs.
pub struct GitConnection {
    name: String,
    host: String,
    forge: Forge,
    keyring: Arc<Keyring>,
}

impl GitConnection {
    /// A connection over an open forge.
    pub fn new(name: impl Into<String>, forge: Forge, keyring: Arc<Keyring>) -> GitConnection {
        let host = forge.config().canonical_host.clone();
        GitConnection { name: name.into(), host, forge, keyring }
    }

    /// Says in the server's log which repositories have no hooks that are well, with the cure. They are nobody's to change
    /// without being asked: pushes to them are noticed by polling, and nobody is told what is wrong with one.
    pub fn tell_of_hooks(&self) {
        for project in self.forge.projects().unwrap_or_default() {
            if let Ok(Some(trouble)) = self.forge.hook_troubles(&project).map(|all| all.into_iter().next()) {
                let connection = &self.name;
                tracing::warn!(project, connection, %trouble, "hooks are not well: run `gatelog project add {project}`");
            }
        }
    }

    fn canonical(&self, project: &str) -> String {
        format!("{}/{project}", self.host)
    }

    fn local<'p>(&self, canonical: &'p str) -> Result<&'p str, Trouble> {
        canonical.strip_prefix(self.host.as_str()).and_then(|rest| rest.strip_prefix('/')).ok_or_else(|| Trouble {
            code: "wrong-host".into(),
            message: format!("project {canonical} is not on {}", self.host),
            again: false,
        })
    }

    fn forge_key(&self, key: &ChangeKey) -> Result<Key, Trouble> {
        let (branch, name) = key.change.rsplit_once('/').ok_or_else(|| Trouble {
            code: "bad-name".into(),
            message: format!("{:?} is not a change of this forge: expected <branch>/<name>", key.change),
            again: false,
        })?;
        Key::new(self.local(&key.project)?, branch, name).map_err(|error| trouble(&error))
    }

    fn record_key(&self, key: &Key) -> ChangeKey {
        ChangeKey { project: self.canonical(&key.project), change: format!("{}/{}", key.branch, key.name) }
    }

    /// The facts in the gate's words; what names a person or quotes a message is sealed here.
    fn facts(&self, facts: &Facts, needs: &[Key], needed_by: &[Key]) -> Result<ChangeFacts, Trouble> {
        let account = format!("{} <{}>", facts.owner_name, facts.owner_email);
        let keyring = |error: KeyringError| Trouble::passing("keyring", &error);
        let owner = self.keyring.actor(&self.name, &account).map_err(keyring)?;
        let project = self.canonical(&facts.change.project);
        let seal =
            |scope: &Scope, text: &str| self.keyring.seal(scope, text.as_bytes(), project.as_bytes()).map_err(keyring);
        let approved = facts.approved.as_ref().is_some_and(|approval| approval.current);
        let branch_gone =
            facts.base_tip.is_none().then(|| format!("there is no branch {} to merge into", facts.change.branch));
        Ok(ChangeFacts {
            subject: Subject {
                connection: self.name.clone(),
                project: project.clone(),
                branch: Some(facts.change.branch.clone()),
                git_ref: facts.patchset_ref.clone(),
                change: Some(format!("{}/{}", facts.change.branch, facts.change.name)),
                patchset: Some(facts.patchset.to_string()),
                commit: Some(facts.commit.clone()),
                old_commit: None,
                url: facts.url.clone(),
            },
            open: facts.open,
            merged: facts.merged,
            approved,
            approvals: Value::Map(BTreeMap::from([("approved".to_owned(), Value::Bool(approved))])),
            cannot_merge: branch_gone,
            parents: facts.parents.clone(),
            depends_on: facts.depends_on.clone(),
            needs: needs.iter().map(|key| self.record_key(key)).collect(),
            needed_by: needed_by.iter().map(|key| self.record_key(key)).collect(),
            files: (!facts.files_truncated).then(|| facts.files.clone()),
            owner,
            owner_identity: Some(seal(&Scope::Person(owner), &account)?),
            text: Some(seal(&Scope::Project(project.clone()), &facts.message)?),
            attributes: Value::Null,
        })
    }

    /// The open changes that need one. A repository that has vanished or is damaged has none to tell
    /// of, and must not keep the others' changes waiting.
    fn needed_by(&self, key: &Key, among: &[String]) -> Result<Vec<Key>, Trouble> {
        let mut found = Vec::new();
        for project in among {
            match self.forge.needed_by(key, std::slice::from_ref(project)) {
                Ok(changes) => found.extend(changes),
                Err(error @ (ForgeError::NoProject { .. } | ForgeError::Git { .. })) => {
                    tracing::warn!(project, error = %chain(&error), "a project is left out of a search");
                }
                Err(error) => return Err(trouble(&error)),
            }
        }
        Ok(found)
    }

    /// The open changes of a project.
    fn open_changes(&self, project: &str) -> Result<Vec<Key>, Trouble> {
        let proposed = self.forge.proposed_changes(self.local(project)?).map_err(|error| trouble(&error))?;
        let mut open = Vec::new();
        for key in proposed {
            match self.forge.query(&key) {
                Ok(facts) if facts.open => open.push(key),
                // Merged, or gone since.
                Ok(_) | Err(ForgeError::NoChange { .. }) => {}
                Err(error) => return Err(trouble(&error)),
            }
        }
        Ok(open)
    }

    fn closure(&self, wanted: &ChangesWanted) -> Result<(Vec<ChangeFacts>, Vec<ChangeKey>), Trouble> {
        let mut missing = Vec::new();
        let mut keys = Vec::new();
        if let FactsPurpose::ProjectMerged { project } = &wanted.purpose {
            keys = self.open_changes(project)?;
        }
        for change in &wanted.changes {
            let key = self.forge_key(change)?;
            match self.forge.query(&key) {
                Ok(_) => keys.push(key),
                Err(ForgeError::NoChange { .. } | ForgeError::NoProject { .. }) => missing.push(change.clone()),
                Err(error) => return Err(trouble(&error)),
            }
        }
        let among: Vec<String> =
            wanted.among.iter().filter_map(|project| self.local(project).ok().map(str::to_owned)).collect();
        // Those that need the changes asked for belong to the closure with all that they need
        // themselves; each is asked for once.
        let mut needed_by: BTreeMap<Key, Vec<Key>> = BTreeMap::new();
        let mut seeds = keys.clone();
        let mut next = 0;
        while wanted.with_needed_by && next < seeds.len() && seeds.len() <= MAX_CLOSURE {
            let key = seeds[next].clone();
            next += 1;
            let above = self.needed_by(&key, &among)?;
            for other in &above {
                if !seeds.contains(other) {
                    seeds.push(other.clone());
                }
            }
            needed_by.insert(key, above);
        }
        let closure = self.forge.closure(&seeds).map_err(|error| trouble(&error))?;
        if closure.truncated || seeds.len() > MAX_CLOSURE {
            return Err(Trouble {
                code: "too-many-changes".into(),
                message: format!("more than {MAX_CLOSURE} changes hang together here"),
                again: false,
            });
        }
        let none = Vec::new();
        let facts = closure
            .changes
            .iter()
            .map(|(key, facts)| {
                let needs = closure.needs.get(key).unwrap_or(&none);
                self.facts(facts, needs, needed_by.get(key).unwrap_or(&none))
            })
            .collect::<Result<_, _>>()?;
        Ok((facts, missing))
    }
}

impl CodeReview for GitConnection {
    fn canonical_hostname(&self) -> &str {
        &self.host
    }

    fn driver(&self) -> &str {
        "plain-git"
    }

    fn repository(&self, project: &str) -> Result<String, Trouble> {
        let path = self.forge.path(project).map_err(|error| trouble(&error))?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn find_changes(&self, wanted: &ChangesWanted) -> Result<ChangesFound, Trouble> {
        let (changes, missing) = self.closure(wanted)?;
        Ok(ChangesFound {
            work: wanted.work,
            attempt: 0,
            tenant: wanted.tenant.clone(),
            changes,
            missing,
            failed: None,
        })
    }

    fn submit(&self, work: WorkId, target: &SubmitTarget, objects: &Path) -> Result<SubmitOutcome, Trouble> {
        let subject = &target.subject;
        let changes = match (&subject.change, &subject.commit) {
            (Some(change), Some(commit)) => vec![SubmittedChange {
                name: change.rsplit('/').next().unwrap_or(change).to_owned(),
                commit: commit.clone(),
            }],
            _ => Vec::new(),
        };
        let request = SubmitRequest {
            project: self.local(&target.at.project)?.to_owned(),
            branch: target.at.branch.clone(),
            expected_base: target.tested_base.clone(),
            commit: target.tested_commit.clone(),
            objects: objects.to_path_buf(),
            changes,
            work_id: work.to_string(),
        };
        Ok(match self.forge.submit(&request).map_err(|error| trouble(&error))? {
            Moved::Merged | Moved::AlreadyMerged => SubmitOutcome::Merged,
            Moved::BaseMoved { found } => {
                SubmitOutcome::BaseMoved { at: target.at.clone(), expected: target.tested_base.clone(), found }
            }
            Moved::Refused { reason } => SubmitOutcome::Refused { code: "refused".into(), message: reason },
        })
    }

    fn report(&self, report: &ReportRequested, subject: &Subject, _settings: &Value) -> Result<(), Trouble> {
        let Some(commit) = &subject.commit else {
            return Err(Trouble {
                code: "no-commit".into(),
                message: format!("{} has no commit a note could be put on", subject.git_ref),
                again: false,
            });
        };
        let request = ReportRequest {
            project: self.local(&subject.project)?.to_owned(),
            commit: commit.clone(),
            report_id: report.work.to_string(),
            verdict: verdict(&report.pipeline, report.action.word()),
            text: report.message.clone(),
            date_s: report.requested_at.seconds(),
        };
        self.forge.report(&request).map_err(|error| trouble(&error))
    }
}

/// The one word of a report's section: `gate:success`. What the forge takes for no word is replaced.
fn verdict(pipeline: &str, action: &str) -> String {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = pipeline.chars().take(60).map(|c| if fine(c) { c } else { '-' }).collect();
    format!("{name}:{action}")
}

fn trouble(error: &ForgeError) -> Trouble {
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

/// Watches the forge and puts what happens onto the intake.
pub struct GitIntake {
    connection: Arc<GitConnection>,
    log: Arc<dyn Log>,
    snapshots: PathBuf,
    poll_every: Duration,
    stop: Arc<AtomicBool>,
    troubles: Arc<Troubles>,
    wanted: Wanted,
}

/// The projects of a connection that tenants have, by their names there.
pub type Wanted = Box<dyn Fn() -> BTreeSet<String> + Send>;

/// How often it is looked whether the projects are there that tenants have.
const WANTED_EVERY: Duration = Duration::from_secs(5);

impl GitIntake {
    /// Snapshots of refs are kept below `snapshots`: a lost one only means that events are sent once
    /// more under the ids they had.
    pub fn new(
        connection: Arc<GitConnection>,
        log: Arc<dyn Log>,
        snapshots: PathBuf,
        poll_every: Duration,
        stop: Arc<AtomicBool>,
    ) -> GitIntake {
        let (troubles, wanted): (_, Wanted) = (Arc::default(), Box::new(BTreeSet::new));
        GitIntake { connection, log, snapshots, poll_every, stop, troubles, wanted }
    }

    /// What goes wrong is noted here, also that a project is not there which tenants have.
    pub fn telling(self, troubles: Arc<Troubles>, wanted: Wanted) -> GitIntake {
        GitIntake { troubles, wanted, ..self }
    }

    /// Runs until it is stopped: at every poke of a hook, and every so often without one.
    pub fn run(self, notifier: &Notifier) {
        let mut missed: Option<std::time::Instant> = None;
        while !self.stop.load(Ordering::Relaxed) {
            let listed = self.connection.forge.projects().map_err(|error| chain(&error));
            self.troubles.looked(&self.connection.name, "", &listed);
            let projects = listed.unwrap_or_else(|error| {
                tracing::warn!(error, "the forge's projects cannot be listed");
                Vec::new()
            });
            if missed.is_none_or(|before| before.elapsed() >= WANTED_EVERY) {
                missed = Some(std::time::Instant::now());
                let there = projects.iter().map(String::as_str).collect();
                self.troubles.there(&self.connection.name, &there, &(self.wanted)());
            }
            for project in &projects {
                self.look(project);
            }
            let began = std::time::Instant::now();
            while began.elapsed() < self.poll_every && !self.stop.load(Ordering::Relaxed) {
                let left = self.poll_every.saturating_sub(began.elapsed()).min(Duration::from_millis(250));
                match notifier.wait(left) {
                    Ok(pushed) => pushed.iter().for_each(|project| self.look(project)),
                    Err(error) => {
                        tracing::warn!(error = %chain(&error), "pushes are not noticed at once");
                        std::thread::sleep(left);
                    }
                }
            }
        }
    }

    fn look(&self, project: &str) {
        let looked = self.try_look(project);
        self.troubles.looked(&self.connection.name, project, &looked);
        if let Err(error) = looked {
            tracing::warn!(project, error, "a project could not be looked at; it is tried again");
        }
    }

    fn try_look(&self, project: &str) -> Result<(), String> {
        let file = self.snapshots.join(format!("{}.json", project.replace('/', "%2F")));
        let known: RefSnapshot = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(_) => RefSnapshot::default(),
        };
        let (events, snapshot) = self.connection.forge.poll(project, &known).map_err(|error| chain(&error))?;
        if events.is_empty() {
            return Ok(());
        }
        let records = events
            .iter()
            .map(|event| {
                let key = format!("{}/{}", self.connection.name, self.connection.canonical(project));
                let id = InputId::new(format!("{}/{}", self.connection.name, event.delivery));
                let input = IntakeInput::ForgeEvent(self.forge_event(event));
                let frame = InputRecord::new(id, key, crate::clock::now(), input).close();
                frame.map(|frame| frame.encode()).map_err(|error| chain(&error))
            })
            .collect::<Result<Vec<_>, _>>()?;
        failpoint::pass("intake/found");
        let appended: Option<Result<_, LogError>> = self.log.append_inputs(Stream::Intake(0), records).wait();
        appended.ok_or("the log is closing")?.map_err(|error| chain(&error))?;
        failpoint::pass("intake/appended");
        // Only now is the snapshot kept: what dies in between is sent again under the same ids.
        let bytes = serde_json::to_vec(&snapshot).map_err(|error| chain(&error))?;
        // Of this process alone: another with this role may write its own at this moment.
        let part = file.with_extension(format!("{}.part", std::process::id()));
        std::fs::create_dir_all(&self.snapshots)
            .and_then(|()| std::fs::write(&part, bytes))
            .and_then(|()| std::fs::rename(&part, &file))
            .map_err(|error| format!("{}: {error}", file.display()))
    }

    fn forge_event(&self, event: &Happened) -> ForgeEvent {
        let (name, change, patchset) = match &event.kind {
            EventKind::ChangeProposed { change, patchset, .. } | EventKind::PatchsetPushed { change, patchset, .. } => {
                ("change-proposed", Some(change), Some(*patchset))
            }
            EventKind::Approved { change, patchset, .. } => ("change-approved", Some(change), Some(*patchset)),
            EventKind::ApprovalIgnored { change, .. } => ("approval-ignored", Some(change), None),
            EventKind::ApprovalWithdrawn { change } => ("approval-withdrawn", Some(change), None),
            EventKind::Abandoned { change } => ("change-abandoned", Some(change), None),
            EventKind::Merged { change, patchset, .. } => ("change-merged", Some(change), Some(*patchset)),
            EventKind::BranchCreated { .. }
            | EventKind::BranchUpdated { .. }
            | EventKind::BranchDeleted { .. }
            | EventKind::TagCreated { .. }
            | EventKind::TagUpdated { .. }
            | EventKind::TagDeleted { .. } => ("ref-updated", None, None),
            EventKind::RefIgnored { .. } => ("ref-ignored", None, None),
        };
        let reason = match &event.kind {
            EventKind::RefIgnored { reason } => Some(reason.clone()),
            EventKind::ApprovalIgnored { reason, .. } => Some(format!("{reason:?}")),
            _ => None,
        };
        let branch = change
            .map(|change| change.branch.clone())
            .or_else(|| event.ref_name.strip_prefix("refs/heads/").map(str::to_owned));
        ForgeEvent {
            connection: self.connection.name.clone(),
            project: self.connection.canonical(&event.project),
            event: name.to_owned(),
            branch,
            git_ref: event.ref_name.clone(),
            change: change.map(|change| format!("{}/{}", change.branch, change.name)),
            patchset: patchset.map(|number| number.to_string()),
            commit: event.new.clone(),
            old_commit: event.old.clone(),
            attributes: reason
                .map_or(Value::Null, |reason| Value::Map(BTreeMap::from([("reason".to_owned(), Value::Str(reason))]))),
            delivery: event.delivery.clone(),
            raw: None,
        }
    }
}
