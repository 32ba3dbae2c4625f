//! The three small projects of the demo, and its four changes: real repositories with real test
//! suites, pushed with git as a developer would.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of a project: path and content.
type Files = &'static [(&'static str, &'static str)];

macro_rules! files {
    ($root:literal: $($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../demo/", $root, "/", $path)))),*]
    };
}

/// A project of the demo.
pub struct Project {
    /// Its name on the forge.
    pub name: &'static str,
    files: Files,
}

/// The projects, in the order in which they are made.
pub const PROJECTS: &[Project] = &[
    Project {
        name: "config",
        files: files!("config": "zuul.d/pipelines.yaml", "zuul.d/jobs.yaml", "playbooks/base/pre.yaml"),
    },
    Project {
        name: "library",
        files: files!("library": ".zuul.yaml", "playbooks/tests.yaml", "units.py", "tests/__init__.py", "tests/test_units.py"),
    },
    Project {
        name: "application",
        files: files!("application": ".zuul.yaml", "playbooks/integration.yaml", "route.py", "tests/__init__.py", "tests/test_route.py"),
    },
];

/// A change of the demo.
pub struct Change {
    /// Its name on the forge.
    pub name: &'static str,
    /// Its project.
    pub project: &'static str,
    /// What its commit says.
    pub message: &'static str,
    /// The change it depends on: project and name.
    pub depends_on: Option<(&'static str, &'static str)>,
    /// What it is in the story.
    pub role: &'static str,
    /// What `check` must find.
    pub check: &'static str,
    /// What `gate` must find.
    pub gate: &'static str,
    files: Files,
}

/// The changes, in the order in which they are pushed and approved.
pub const CHANGES: &[Change] = &[
    Change {
        name: "add-miles",
        project: "library",
        message: "Convert miles",
        depends_on: None,
        role: "a good change",
        check: "SUCCESS",
        gate: "SUCCESS",
        files: &[
            ("units.py", include_str!("../../demo/changes/add-miles/units.py")),
            ("tests/test_units.py", include_str!("../../demo/changes/add-miles/test_units.py")),
        ],
    },
    Change {
        name: "faster-fahrenheit",
        project: "library",
        message: "Make the conversion to Fahrenheit faster",
        depends_on: None,
        role: "its tests fail",
        check: "FAILURE",
        gate: "FAILURE",
        files: &[("units.py", include_str!("../../demo/changes/faster-fahrenheit/units.py"))],
    },
    Change {
        name: "patch-release",
        project: "library",
        message: "Release 1.0.1",
        depends_on: None,
        role: "conflicts with the first",
        check: "SUCCESS",
        gate: "MERGE_CONFLICT",
        files: &[("units.py", include_str!("../../demo/changes/patch-release/units.py"))],
    },
    Change {
        name: "show-miles",
        project: "application",
        message: "Tell distances given in miles",
        depends_on: Some(("library", "add-miles")),
        role: "depends on the first, in another project",
        check: "SUCCESS",
        gate: "SUCCESS",
        files: &[
            ("route.py", include_str!("../../demo/changes/show-miles/route.py")),
            ("tests/test_route.py", include_str!("../../demo/changes/show-miles/test_route.py")),
        ],
    },
];

/// The host part of canonical names.
pub const HOST: &str = "git.demo";

/// Why a developer's git did not do it.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// git cannot be started.
    #[error("git cannot be started: {0}; install git")]
    Start(std::io::Error),
    /// git says no.
    #[error("git {command}: {message}")]
    Failed {
        /// What it was told.
        command: String,
        /// What it said.
        message: String,
    },
    /// A file could not be written.
    #[error("{path}: {why}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
}

/// A developer with a clone of each project.
pub struct Developer {
    clones: PathBuf,
    forge: PathBuf,
}

impl Developer {
    /// Works in clones below one directory, against the forge in another.
    pub fn new(clones: PathBuf, forge: PathBuf) -> Developer {
        Developer { clones, forge }
    }

    /// Makes a project's first commit and pushes it.
    pub fn found(&self, project: &Project) -> Result<(), GitError> {
        let clone = self.clones.join(project.name);
        std::fs::create_dir_all(&clone).map_err(|why| GitError::Write { path: clone.clone(), why })?;
        git(&clone, &["init", "--quiet", "--initial-branch=master"])?;
        let url = self.url(project.name);
        git(&clone, &["remote", "add", "origin", &url])?;
        write(&clone, project.files)?;
        git(&clone, &["add", "--all"])?;
        git(&clone, &["commit", "--quiet", "--message", "First light"])?;
        git(&clone, &["push", "--quiet", "origin", "master"])
    }

    /// Proposes a change: a commit on top of the branch, pushed to `refs/for/`.
    pub fn propose(&self, change: &Change) -> Result<(), GitError> {
        let clone = self.clones.join(change.project);
        git(&clone, &["checkout", "--quiet", "-B", change.name, "origin/master"])?;
        write(&clone, change.files)?;
        let mut message = format!("{}\n", change.message);
        if let Some((project, name)) = change.depends_on {
            // Writing to a string cannot fail.
            let _ = write!(message, "\nDepends-On: {}\n", url_of(project, name));
        }
        git(&clone, &["commit", "--quiet", "--all", "--message", &message])?;
        git(&clone, &["push", "--quiet", "origin", &format!("HEAD:refs/for/master/{}", change.name)])
    }

    /// Approves a change as it was proposed.
    pub fn approve(&self, change: &Change) -> Result<(), GitError> {
        let clone = self.clones.join(change.project);
        let refspec = format!("{0}:refs/approved/master/{0}", change.name);
        git(&clone, &["push", "--quiet", "origin", &refspec])
    }

    /// The subjects of the commits of a project's master, newest first, merges left out.
    pub fn merged(&self, project: &str) -> Result<Vec<String>, GitError> {
        let bare = PathBuf::from(self.url(project));
        let log = git_output(&bare, &["log", "--format=%s", "--no-merges", "master"])?;
        Ok(log.lines().map(str::to_owned).collect())
    }

    fn url(&self, project: &str) -> String {
        self.forge.join(format!("{project}.git")).to_string_lossy().into_owned()
    }
}

/// The address of a change, as `Depends-On` names it.
pub fn url_of(project: &str, name: &str) -> String {
    format!("https://{HOST}/{project}/+/master/{name}")
}

fn write(clone: &Path, files: Files) -> Result<(), GitError> {
    for (path, content) in files {
        let path = clone.join(path);
        let fail = |why| GitError::Write { path: path.clone(), why };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(fail)?;
        }
        std::fs::write(&path, content).map_err(fail)?;
    }
    Ok(())
}

fn git(directory: &Path, arguments: &[&str]) -> Result<(), GitError> {
    git_output(directory, arguments).map(|_| ())
}

/// git with an identity of its own and none of the user's settings, so that the demo does the same
/// everywhere.
fn git_output(directory: &Path, arguments: &[&str]) -> Result<String, GitError> {
    let output = Command::new("git")
        .arg("-C")
        .arg(directory)
        .args(["-c", "safe.directory=*", "-c", "gc.auto=0"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_AUTHOR_NAME", "Dana Developer")
        .env("GIT_AUTHOR_EMAIL", "dana@example.org")
        .env("GIT_COMMITTER_NAME", "Dana Developer")
        .env("GIT_COMMITTER_EMAIL", "dana@example.org")
        .output()
        .map_err(GitError::Start)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(GitError::Failed {
        command: arguments.first().copied().unwrap_or_default().to_owned(),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_belongs_to_a_project_and_depends_on_another_change() {
        for change in CHANGES {
            assert!(PROJECTS.iter().any(|project| project.name == change.project), "{}", change.name);
            if let Some((project, name)) = change.depends_on {
                assert!(CHANGES.iter().any(|other| other.project == project && other.name == name));
            }
        }
    }
}
