//! Changes, merges, reports: all by the `git` program and by files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use gatelog_driver_contract::{
    Branch, BranchNow, CodeReview, Found, Keyring, Landing, Report, Reporter, Source, Target, Trouble,
};
use gatelog_record::draft::gate::{ChangeFacts, ChangeKey, ChangesWanted, Subject};
use gatelog_record::{Value, WorkId};

/// The directory, as a connection.
pub struct Shelf {
    pub name: String,
    pub host: String,
    pub root: PathBuf,
    pub keyring: Arc<Keyring>,
}

impl Shelf {
    pub fn repository(&self, project: &str) -> PathBuf {
        self.root.join(format!("{project}.git"))
    }

    pub fn canonical(&self, project: &str) -> String {
        format!("{}/{project}", self.host)
    }

    fn local<'p>(&self, canonical: &'p str) -> Result<&'p str, Trouble> {
        let local = canonical.strip_prefix(self.host.as_str()).and_then(|rest| rest.strip_prefix('/'));
        local.ok_or_else(|| Trouble::new("wrong-host", format!("{canonical} is not on {}", self.host)))
    }

    /// Where a ref is; `None`: there is none.
    pub fn commit_of(&self, project: &str, name: &str) -> Result<Option<String>, Trouble> {
        let (fine, out) = git(&self.repository(project), &["rev-parse", "--verify", "--quiet", name])?;
        Ok(fine.then_some(out))
    }

    /// A change as a subject; `None`: there is no such change.
    pub fn subject(&self, project: &str, change: &str) -> Result<Option<Subject>, Trouble> {
        let git_ref = format!("refs/changes/{change}");
        let Some(commit) = self.commit_of(project, &git_ref)? else { return Ok(None) };
        Ok(Some(Subject {
            connection: self.name.clone(),
            project: self.canonical(project),
            branch: Some("master".into()),
            git_ref,
            change: Some(change.to_owned()),
            patchset: Some("1".into()),
            commit: Some(commit),
            old_commit: None,
            url: format!("https://{}/{project}/{change}", self.host),
        }))
    }

    fn facts(&self, project: &str, change: &str) -> Result<Option<ChangeFacts>, Trouble> {
        let Some(subject) = self.subject(project, change)? else { return Ok(None) };
        let commit = subject.commit.clone().unwrap_or_default();
        let (merged, _) = git(&self.repository(project), &["merge-base", "--is-ancestor", &commit, "master"])?;
        let owner = self.keyring.actor(&self.name, "somebody");
        Ok(Some(ChangeFacts {
            subject,
            open: !merged,
            merged,
            approved: true,
            approvals: Value::Null,
            cannot_merge: None,
            parents: Vec::new(),
            depends_on: Vec::new(),
            needs: Vec::new(),
            needed_by: Vec::new(),
            files: None,
            owner: owner.map_err(|error| Trouble::passing("keyring", &error))?,
            owner_identity: None,
            text: None,
            attributes: Value::Null,
        }))
    }

    /// Moves a branch by a push with a lease: from exactly the base to exactly the commit.
    fn land(&self, target: &Target<'_>) -> Result<Landing, Trouble> {
        let wanted = target.wanted;
        let repository = self.repository(self.local(&wanted.at.project)?);
        let branch = format!("refs/heads/{}", wanted.at.branch);
        let (merged, _) = git(&repository, &["merge-base", "--is-ancestor", &wanted.tested_commit, &branch])?;
        if !merged {
            let lease = format!("--force-with-lease={branch}:{}", wanted.tested_base);
            let move_to = format!("{}:{branch}", wanted.tested_commit);
            let place = repository.to_string_lossy();
            let (moved, _) = git(&target.objects, &["push", "--quiet", &lease, &place, &move_to])?;
            if !moved {
                let (there, found) = git(&repository, &["rev-parse", "--verify", "--quiet", &branch])?;
                return Ok(Landing::BaseMoved { found: there.then_some(found) });
            }
        }
        let (_, commit) = git(&repository, &["rev-parse", &branch])?;
        let (_, tree) = git(&repository, &["rev-parse", &format!("{branch}^{{tree}}")])?;
        Ok(Landing::Merged(BranchNow { commit, tree }))
    }
}

impl CodeReview for Shelf {
    fn canonical_hostname(&self) -> &str {
        &self.host
    }

    fn source(&self, project: &str) -> Result<Source, Trouble> {
        Ok(Source::open(self.repository(project).to_string_lossy()))
    }

    fn find_changes(&self, wanted: &ChangesWanted) -> Result<Found, Trouble> {
        let mut found = Found::default();
        for key in &wanted.changes {
            match self.facts(self.local(&key.project)?, &key.change)? {
                Some(facts) => found.changes.push(facts),
                None => found.missing.push(key.clone()),
            }
        }
        Ok(found)
    }

    fn change_by_url(&self, url: &str) -> Result<Option<ChangeKey>, Trouble> {
        let path = url.strip_prefix(&format!("https://{}/", self.host));
        let Some((project, change)) = path.and_then(|path| path.rsplit_once('/')) else { return Ok(None) };
        let known = self.subject(project, change)?;
        Ok(known.map(|subject| ChangeKey { project: subject.project, change: change.to_owned() }))
    }

    fn changes_by_commit(&self, _: &str, _: &str) -> Result<Vec<ChangeKey>, Trouble> {
        Err(Trouble::not_offered("changes by their commits"))
    }

    fn branches(&self, project: &str) -> Result<Vec<Branch>, Trouble> {
        let commit = self.commit_of(project, "refs/heads/master")?;
        Ok(commit.into_iter().map(|commit| Branch { name: "master".into(), commit, protected: None }).collect())
    }

    fn default_branch(&self, _: &str) -> Result<Option<String>, Trouble> {
        Ok(Some("master".into()))
    }

    fn submit_all(&self, _: WorkId, targets: &[Target<'_>]) -> Result<Vec<Landing>, Trouble> {
        let mut landings: Vec<Landing> = Vec::new();
        for target in targets {
            let held_back = landings.last().is_some_and(|last| !last.is_merged());
            landings.push(if held_back { Landing::HeldBack } else { self.land(target)? });
        }
        Ok(landings)
    }
}

impl Reporter for Shelf {
    fn only_own(&self) -> bool {
        true
    }

    fn report(&self, report: &Report<'_>) -> Result<(), Trouble> {
        let request = report.request;
        let aloud = report.settings.as_map().and_then(|map| map.get("aloud")) == Some(&Value::Bool(true));
        let message = if aloud { request.message.to_uppercase() } else { request.message.clone() };
        let text = format!("{} {}\n{message}\n", request.pipeline, request.action.word());
        let file = self.root.join("reports").join(request.work.to_string());
        std::fs::write(file, text).map_err(|error| Trouble::passing("shelf", &error))
    }
}

/// Runs git in a repository; says whether it went well, and what it said.
fn git(repository: &Path, arguments: &[&str]) -> Result<(bool, String), Trouble> {
    let output = Command::new("git").arg("-C").arg(repository).args(arguments).output();
    let output = output.map_err(|error| Trouble::passing("git", &error))?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned()))
}
