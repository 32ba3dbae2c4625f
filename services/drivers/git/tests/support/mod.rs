//! A forge, and people who use it with the real git.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gatelog_driver_git::*;

pub const HOST: &str = "git.example.org";

pub fn try_git(dir: &Path, args: &[&str]) -> Output {
    Command::new("git")
        .current_dir(dir)
        .args(["-c", "protocol.file.allow=always", "-c", "init.defaultBranch=master"])
        .args(["-c", "advice.detachedHead=false"])
        .args(args)
        // Nothing of the user's own configuration may change what is tested.
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("HOME", dir)
        .env("LC_ALL", "C")
        .envs([("GIT_AUTHOR_NAME", "Ann"), ("GIT_AUTHOR_EMAIL", "ann@example.org")])
        .envs([("GIT_COMMITTER_NAME", "Ann"), ("GIT_COMMITTER_EMAIL", "ann@example.org")])
        .envs([("GIT_AUTHOR_DATE", "1600000000 +0000"), ("GIT_COMMITTER_DATE", "1600000000 +0000")])
        .output()
        .unwrap()
}

#[track_caller]
pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = try_git(dir, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "git {args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

pub struct Site {
    pub dir: tempfile::TempDir,
    pub forge: Forge,
    pub notifier: Notifier,
}

impl Site {
    pub fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let notifier = Notifier::open(dir.path().join("pushes")).unwrap();
        let mut config = ForgeConfig::new(dir.path().join("forge"), HOST);
        config.notify = Some(notifier.directory().to_owned());
        Site { forge: Forge::open(config).unwrap(), notifier, dir }
    }

    /// A project with one commit on master, and Ann's clone of it.
    pub fn project(&self, name: &str) -> Person {
        let bare = self.forge.create(name, "master").unwrap();
        let work = self.dir.path().join("people").join(name);
        std::fs::create_dir_all(&work).unwrap();
        git(&work, &["init", "-q"]);
        git(&work, &["remote", "add", "origin", &format!("file://{}", bare.display())]);
        let person = Person { project: name.to_owned(), bare, work };
        person.commit("README", "hello\n", "first");
        person.push("HEAD:refs/heads/master");
        person
    }

    pub fn change(&self, project: &str, name: &str) -> ChangeKey {
        ChangeKey::new(project, "master", name).unwrap()
    }

    pub fn submit(&self, person: &Person, base: &str, commit: &str, changes: &[(&str, &str)]) -> SubmitOutcome {
        let changes =
            changes.iter().map(|(name, commit)| SubmittedChange { name: (*name).into(), commit: (*commit).into() });
        let request = SubmitRequest {
            project: person.project.clone(),
            branch: "master".to_owned(),
            expected_base: base.to_owned(),
            commit: commit.to_owned(),
            // Ann's clone stands for the mirror: any repository with the objects will do.
            objects: person.work.clone(),
            changes: changes.collect(),
            work_id: "work-7".to_owned(),
        };
        self.forge.submit(&request).unwrap()
    }
}

pub struct Person {
    pub project: String,
    pub bare: PathBuf,
    pub work: PathBuf,
}

impl Person {
    pub fn commit(&self, path: &str, text: &str, message: &str) -> String {
        std::fs::write(self.work.join(path), text).unwrap();
        git(&self.work, &["add", "-A"]);
        git(&self.work, &["commit", "-q", "--allow-empty", "-m", message]);
        self.head()
    }

    pub fn head(&self) -> String {
        git(&self.work, &["rev-parse", "HEAD"])
    }

    pub fn checkout(&self, what: &str) {
        git(&self.work, &["checkout", "-q", "--detach", what]);
    }

    #[track_caller]
    pub fn push(&self, what: &str) {
        git(&self.work, &["push", "-q", "--force", "origin", what]);
    }

    /// A commit on top of another, proposed.
    pub fn propose(&self, on: &str, name: &str, message: &str) -> String {
        self.checkout(on);
        let commit = self.commit(name, message, message);
        self.push(&format!("HEAD:refs/for/master/{name}"));
        commit
    }

    pub fn approve(&self, name: &str, commit: &str) {
        self.push(&format!("{commit}:refs/approved/master/{name}"));
    }

    pub fn tip(&self) -> String {
        git(&self.bare, &["rev-parse", "refs/heads/master"])
    }
}

/// Events as short lines, as somebody would tell them.
pub fn told(events: &[ForgeEvent]) -> Vec<String> {
    let line = |e: &ForgeEvent| match &e.kind {
        EventKind::ChangeProposed { change, patchset, .. } => format!("{} proposed, patchset {patchset}", change.name),
        EventKind::PatchsetPushed { change, patchset, .. } => format!("{} patchset {patchset}", change.name),
        EventKind::Approved { change, patchset, .. } => format!("{} approved, patchset {patchset}", change.name),
        EventKind::ApprovalIgnored { change, reason, .. } => format!("{} approval ignored: {reason:?}", change.name),
        EventKind::ApprovalWithdrawn { change } => format!("{} approval withdrawn", change.name),
        EventKind::Abandoned { change } => format!("{} abandoned", change.name),
        EventKind::Merged { change, patchset, .. } => format!("{} merged, patchset {patchset}", change.name),
        EventKind::BranchCreated { branch } => format!("branch {branch} created"),
        EventKind::BranchUpdated { branch, forced } => {
            format!("branch {branch} {}", if *forced { "forced" } else { "updated" })
        }
        EventKind::BranchDeleted { branch } => format!("branch {branch} deleted"),
        EventKind::TagCreated { tag } => format!("tag {tag} created"),
        EventKind::TagUpdated { tag } => format!("tag {tag} updated"),
        EventKind::TagDeleted { tag } => format!("tag {tag} deleted"),
        EventKind::RefIgnored { reason } => format!("ignored: {reason}"),
    };
    events.iter().map(line).collect()
}

/// Looks again and again, as the server does.
pub struct Watch<'a> {
    pub forge: &'a Forge,
    pub project: &'a str,
    pub known: RefSnapshot,
    pub deliveries: Vec<String>,
}

impl<'a> Watch<'a> {
    pub fn new(site: &'a Site, project: &'a str) -> Watch<'a> {
        Watch { forge: &site.forge, project, known: RefSnapshot::default(), deliveries: Vec::new() }
    }

    pub fn look(&mut self) -> Vec<String> {
        let (events, now) = self.forge.poll(self.project, &self.known).unwrap();
        // A poll that is repeated tells the same.
        assert_eq!(self.forge.poll(self.project, &self.known).unwrap(), (events.clone(), now.clone()));
        self.known = now;
        self.deliveries.extend(events.iter().map(|e| e.delivery.clone()));
        told(&events)
    }
}
