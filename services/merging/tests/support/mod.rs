//! Real repositories in a directory of their own, used with the real git as people use it.
#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

pub mod histories;
pub mod peer;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gatelog_merging::*;

pub const DATE: i64 = 1_700_000_000;

pub fn try_git(dir: &Path, args: &[&str]) -> Output {
    Command::new("git")
        .current_dir(dir)
        .args([
            "-c",
            "protocol.file.allow=always",
            "-c",
            "init.defaultBranch=master",
            "-c",
            "advice.detachedHead=false",
        ])
        .args(args)
        // Nothing of the user's own configuration may change what is tested.
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("HOME", dir)
        .env("LC_ALL", "C")
        .envs([("GIT_AUTHOR_NAME", "Ann"), ("GIT_AUTHOR_EMAIL", "ann@example.org")])
        .envs([("GIT_COMMITTER_NAME", "Ann"), ("GIT_COMMITTER_EMAIL", "ann@example.org")])
        .envs([("GIT_AUTHOR_DATE", "1600000000 +0000"), ("GIT_COMMITTER_DATE", "1600000000 +0000")])
        .envs([("GIT_EDITOR", "true"), ("GIT_TERMINAL_PROMPT", "0")])
        // git 2.34 and later takes a ref that is deleted while it reads all of them for a broken one and ends.
        .env("GIT_REF_PARANOIA", "0")
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

/// A person's clone of a project, with the project's bare repository beside it.
pub struct Person {
    pub bare: PathBuf,
    pub work: PathBuf,
}

impl Person {
    /// Commits files (a text of `-` deletes one) on what is checked out.
    pub fn commit(&self, files: &[(&str, &str)], message: &str) -> String {
        for (path, text) in files {
            let path = self.work.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if *text == "-" { std::fs::remove_file(path).unwrap() } else { std::fs::write(path, text).unwrap() }
        }
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

    pub fn push(&self, to: &str) {
        git(&self.work, &["push", "-q", "--force", "origin", &format!("HEAD:{to}")]);
    }

    /// A change on top of `on`, pushed to `refs/for/master/<name>`.
    pub fn change(&self, on: &str, name: &str, files: &[(&str, &str)]) -> String {
        self.checkout(on);
        let commit = self.commit(files, name);
        self.push(&format!("refs/for/master/{name}"));
        commit
    }
}

pub struct Site {
    pub dir: tempfile::TempDir,
    pub mirrors: Mirrors,
}

impl Site {
    pub fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let mirrors = Mirrors::open(MirrorsConfig::new(dir.path().join("mirrors"))).unwrap();
        Site { dir, mirrors }
    }

    /// A project with one commit on master.
    pub fn project(&self, name: &str, files: &[(&str, &str)]) -> (ProjectKey, Person) {
        let bare = self.dir.path().join("forge").join(format!("{name}.git"));
        let work = self.dir.path().join("people").join(name);
        for dir in [&bare, &work] {
            std::fs::create_dir_all(dir).unwrap();
        }
        git(&bare, &["init", "-q", "--bare"]);
        git(&work, &["init", "-q"]);
        git(&work, &["remote", "add", "origin", bare.to_str().unwrap()]);
        let person = Person { bare, work };
        person.commit(files, "first");
        person.push("refs/heads/master");
        let key = ProjectKey::new("forge", name);
        self.mirrors.set_source(&key, &format!("file://{}", person.bare.display())).unwrap();
        (key, person)
    }
}

pub fn item(project: &ProjectKey, name: &str, commit: Option<&str>, mode: MergeMode) -> MergeItem {
    MergeItem {
        project: project.clone(),
        branch: "master".to_owned(),
        ref_name: Some(format!("refs/for/master/{name}")),
        commit: commit.map(str::to_owned),
        mode,
        date_s: DATE,
        message: None,
    }
}

pub fn request(id: &str, items: Vec<MergeItem>) -> PrepareRequest {
    PrepareRequest { id: id.to_owned(), items, bases: Vec::new(), files: FileFilter::zuul([]) }
}

#[track_caller]
pub fn merged(outcome: Result<PrepareOutcome, MergeError>) -> Prepared {
    match outcome.unwrap() {
        PrepareOutcome::Merged(prepared) => prepared,
        PrepareOutcome::Conflict(conflict) => panic!("{conflict:?}"),
    }
}

#[track_caller]
pub fn conflict(outcome: Result<PrepareOutcome, MergeError>) -> Conflict {
    match outcome.unwrap() {
        PrepareOutcome::Conflict(conflict) => conflict,
        PrepareOutcome::Merged(prepared) => panic!("{prepared:?}"),
    }
}
