//! The git program: what REST cannot tell (trees) and the push of an exact commit.
//!
//! Credentials never stand in an address or on a command line, which every process of the host may read: over HTTP, git
//! asks a small program of ours (`GIT_ASKPASS`), which reads the password's file; over SSH it uses the connection's key.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::bad_name;
use crate::config::{GerritConfig, encode};
use crate::error::{GerritError, shorten};
use crate::fields::is_object_id;
use crate::stream::ssh_words;

/// Answers git's two questions. What is asked comes as the first word.
const ASKPASS: &str = "#!/bin/sh\ncase \"$1\" in\nUsername*) printf '%s\\n' \"$GATELOG_GIT_USER\" ;;\n\
                       *) exec cat \"$GATELOG_GIT_PASSWORD_FILE\" ;;\nesac\n";

/// How much of what git prints is kept.
const SAID_MAX: usize = 4 << 20;

/// The git program, with this connection's credentials.
#[derive(Debug)]
pub struct Git {
    config: GerritConfig,
    /// Holds the program that answers for the password; removed with this.
    askpass: TempDir,
}

/// What git did.
pub(crate) struct Ran {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Git {
    /// Prepares the credentials.
    ///
    /// # Errors
    /// [`GerritError::File`], [`GerritError::BadSetting`].
    pub fn new(config: GerritConfig) -> Result<Git, GerritError> {
        config.check()?;
        let wrong = |path: &Path| {
            let path = path.to_owned();
            move |why| GerritError::File { what: "cannot write", path, why }
        };
        let askpass =
            tempfile::Builder::new().prefix("gatelog-git-").tempdir().map_err(wrong(&std::env::temp_dir()))?;
        let program = askpass.path().join("askpass");
        fs::write(&program, ASKPASS).map_err(wrong(&program))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).map_err(wrong(&program))?;
        Ok(Git { config, askpass })
    }

    /// Where a project is fetched from and pushed to; without credentials.
    ///
    /// # Errors
    /// [`GerritError::BadName`] for a project whose name is no path.
    pub fn address(&self, project: &str) -> Result<String, GerritError> {
        let part_is_bad = |part: &str| part.is_empty() || part == "." || part == ".." || part.starts_with('-');
        if project.split('/').any(part_is_bad) || project.chars().any(char::is_control) {
            return Err(bad_name("project", project, "its parts must not be empty, dots, or begin with a dash"));
        }
        let path: Vec<String> = project.split('/').map(encode).collect();
        let path = path.join("/");
        if self.config.git_over_ssh {
            let ssh = &self.config.ssh;
            Ok(format!("ssh://{}@{}:{}/{path}", self.config.user, ssh.host, ssh.port))
        } else {
            Ok(self.config.below(&format!("a/{path}")))
        }
    }

    /// A git command that has the credentials, for whoever fetches by himself. It reads no configuration of the user's or
    /// the host's, and asks nobody at a terminal.
    pub fn command(&self) -> Command {
        let mut git = Command::new("git");
        // Helpers that others set up may know another password, or keep ours.
        git.args(["-c", "credential.helper=", "-c", "http.followRedirects=false", "-c", "gc.auto=0"])
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_PROTOCOL_FROM_USER", "0")
            .env("LC_ALL", "C")
            .env("GIT_ASKPASS", self.askpass.path().join("askpass"))
            .env("GATELOG_GIT_USER", &self.config.user)
            .env("GATELOG_GIT_PASSWORD_FILE", &self.config.password_file)
            .env("GIT_SSH_COMMAND", self.ssh_command())
            .env_remove("GIT_DIR")
            .env_remove("GIT_WORK_TREE")
            .stdin(Stdio::null());
        git
    }

    /// git hands this to a shell.
    fn ssh_command(&self) -> String {
        let quoted = ssh_words(&self.config).into_iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
        quoted.fold("ssh".to_owned(), |all, word| all + " " + &word)
    }

    /// Runs git in a repository, within [`crate::Limits::git`].
    pub(crate) fn run(&self, what: &str, repository: &Path, words: &[&str]) -> Result<Ran, GerritError> {
        let failed = |why: String| GerritError::Program { program: "git", what: what.to_owned(), why };
        let mut child = self
            .command()
            .arg("-C")
            .arg(repository)
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
        let deadline = Instant::now() + self.config.limits.git;
        let status = loop {
            match child.try_wait().map_err(|error| failed(error.to_string()))? {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(failed(format!("had not ended after {} s", self.config.limits.git.as_secs())));
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let text = |handle: thread::JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&handle.join().unwrap_or_default()).into_owned()
        };
        Ok(Ran { ok: status.success(), out: text(out), err: text(err) })
    }

    /// As [`Git::run`], where anything but success is an error.
    pub(crate) fn done(&self, what: &str, repository: &Path, words: &[&str]) -> Result<String, GerritError> {
        let ran = self.run(what, repository, words)?;
        if ran.ok {
            return Ok(ran.out);
        }
        Err(GerritError::Program { program: "git", what: what.to_owned(), why: shorten(&ran.err, 600) })
    }

    /// Brings refs of a project into a repository, as they are named there (`refs/changes/07/7/2:refs/…`). Only these:
    /// a project has a ref for every patchset of every change.
    ///
    /// # Errors
    /// [`GerritError::Program`], [`GerritError::BadName`].
    pub fn fetch(&self, project: &str, into: &Path, refspecs: &[&str]) -> Result<(), GerritError> {
        if let Some(bad) = refspecs.iter().find(|spec| spec.starts_with('-') || spec.chars().any(char::is_control)) {
            return Err(bad_name("refspec", bad, "it must not begin with a dash"));
        }
        let address = self.address(project)?;
        let mut words = vec!["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--", &address];
        words.extend(refspecs);
        self.done(&format!("fetch from {address}"), into, &words).map(|_| ())
    }

    /// The tree of a commit that is in a repository.
    ///
    /// # Errors
    /// [`GerritError::CommitMissing`].
    pub fn tree(&self, repository: &Path, commit: &str) -> Result<String, GerritError> {
        if !is_object_id(commit) {
            return Err(bad_name("commit id", commit, "it must have 40 hex digits"));
        }
        let ran =
            self.run("rev-parse", repository, &["rev-parse", "--verify", "--quiet", &format!("{commit}^{{tree}}")])?;
        let tree = ran.out.trim().to_owned();
        if ran.ok && is_object_id(&tree) {
            return Ok(tree);
        }
        Err(GerritError::CommitMissing { commit: commit.to_owned(), place: PathBuf::from(repository) })
    }

    /// Whether a commit is another or is contained in it; both are in the repository.
    pub(crate) fn contains(&self, repository: &Path, whole: &str, part: &str) -> Result<bool, GerritError> {
        Ok(self.run("merge-base", repository, &["merge-base", "--is-ancestor", part, whole])?.ok)
    }
}

/// Reads a pipe to its end, and keeps its begin.
fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut kept = Vec::new();
        let Some(mut pipe) = pipe else { return kept };
        let mut block = [0; 8192];
        while let Ok(read) = pipe.read(&mut block) {
            if read == 0 {
                break;
            }
            let room = SAID_MAX.saturating_sub(kept.len());
            kept.extend_from_slice(&block[..read.min(room)]);
        }
        kept
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config;

    #[test]
    fn an_address_has_no_credentials_and_projects_cannot_leave_it() {
        let mut config = config("https://example.com/r/");
        let git = Git::new(config.clone()).unwrap();
        assert_eq!(git.address("acme/lib é").unwrap(), "https://example.com/r/a/acme/lib%20%C3%A9");
        for project in ["", "..", "a/../b", "a//b", "-x", "a/-x", "a\nb"] {
            assert!(git.address(project).is_err(), "{project:?}");
        }
        config.git_over_ssh = true;
        let git = Git::new(config).unwrap();
        assert_eq!(git.address("acme/lib").unwrap(), "ssh://ci@review.example.com:29418/acme/lib");
    }

    #[test]
    fn git_gets_the_password_from_its_file_and_nobody_else_sees_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config("https://example.com/");
        config.password_file = dir.path().join("password");
        fs::write(&config.password_file, "s3cret\n").unwrap();
        let git = Git::new(config).unwrap();
        let command = git.command();
        let environment: Vec<_> = command.get_envs().collect();
        assert!(!format!("{environment:?} {command:?}").contains("s3cret"));
        let program = git.askpass.path().join("askpass");
        for (question, answer) in
            [("Username for 'https://example.com': ", "ci\n"), ("Password for 'https://ci@…': ", "s3cret\n")]
        {
            let mut ask = Command::new(&program);
            ask.arg(question).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            assert_eq!(String::from_utf8(ask.output().unwrap().stdout).unwrap(), answer);
        }
    }

    #[test]
    fn a_commit_that_is_not_there_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::new(config("https://example.com/")).unwrap();
        git.done("init", dir.path(), &["init", "--quiet", "--bare"]).unwrap();
        let missing = git.tree(dir.path(), &"a".repeat(40)).unwrap_err();
        assert_eq!(missing.code(), "commit-missing");
        assert_eq!(git.tree(dir.path(), "--all").unwrap_err().code(), "bad-name");
        assert!(git.fetch("p", dir.path(), &["--upload-pack=x"]).is_err());
    }
}
