//! The directory of bare repositories.

use std::fs;
use std::path::PathBuf;

use git2::{Repository, Signature};

use crate::change::{check_branch, check_project};
use crate::error::ForgeError;
use crate::poll::HEADS;
use crate::refs;
use crate::setup::HookProgram;

/// The name in reflogs and on notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name.
    pub name: String,
    /// The mail address.
    pub email: String,
}

impl Default for Identity {
    fn default() -> Self {
        Identity { name: "gatelog".to_owned(), email: "gatelog@localhost".to_owned() }
    }
}

/// Limits on what a repository may hold or a request may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most refs read from a repository.
    pub refs: usize,
    /// The most repositories.
    pub projects: usize,
    /// The most patchsets of a change.
    pub patchsets: usize,
    /// The longest commit message taken, in bytes; the rest is cut off.
    pub message_bytes: usize,
    /// The most files listed for a change; the rest is cut off.
    pub files: usize,
    /// The most `Depends-On` of a change; the rest is ignored.
    pub depends_on: usize,
    /// The most changes in a closure or a reverse search.
    pub changes: usize,
    /// The longest text of a report, in bytes; the rest is cut off.
    pub report_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            refs: 200_000,
            projects: 10_000,
            patchsets: 10_000,
            message_bytes: 64 << 10,
            files: 100_000,
            depends_on: 100,
            changes: 1000,
            report_bytes: 256 << 10,
        }
    }
}

/// How to run the forge.
#[derive(Clone, Debug)]
pub struct ForgeConfig {
    /// The directory of bare repositories: `<directory>/<project>.git`.
    pub directory: PathBuf,
    /// The host in the addresses of changes. Zuul: the connection's canonical host name.
    pub canonical_host: String,
    /// The name in reflogs and on notes.
    pub identity: Identity,
    /// Where hooks leave word of a push: see [`crate::Notifier`]. Without it there is only polling.
    pub notify: Option<PathBuf>,
    /// The gatelog that hooks ask what of a push means nothing. Without it they let all through but what would do harm.
    pub hooks: Option<HookProgram>,
    /// The limits.
    pub limits: Limits,
}

impl ForgeConfig {
    /// The defaults, in this directory.
    pub fn new(directory: impl Into<PathBuf>, canonical_host: impl Into<String>) -> ForgeConfig {
        ForgeConfig {
            directory: directory.into(),
            canonical_host: canonical_host.into(),
            identity: Identity::default(),
            notify: None,
            hooks: None,
            limits: Limits::default(),
        }
    }
}

/// The forge. Holds no open file; may be used from many threads and processes at once.
#[derive(Clone, Debug)]
pub struct Forge {
    pub(crate) config: ForgeConfig,
}

impl Forge {
    /// Opens (or makes) the directory.
    ///
    /// # Errors
    /// [`ForgeError::Io`], [`ForgeError::BadName`] for a host no address can have.
    pub fn open(config: ForgeConfig) -> Result<Forge, ForgeError> {
        let host = &config.canonical_host;
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
        if host.is_empty() || host.len() > 253 || !host.chars().all(fine) {
            return Err(crate::change::bad("canonical host", host, "use letters, digits, dots and dashes"));
        }
        fs::create_dir_all(&config.directory)
            .map_err(|e| ForgeError::io("cannot make the forge's directory", &config.directory, e))?;
        Ok(Forge { config })
    }

    /// The configuration.
    pub fn config(&self) -> &ForgeConfig {
        &self.config
    }

    /// Where a project's repository is, whether it exists or not.
    ///
    /// # Errors
    /// [`ForgeError::BadName`].
    pub fn path(&self, project: &str) -> Result<PathBuf, ForgeError> {
        check_project(project)?;
        Ok(self.config.directory.join(format!("{project}.git")))
    }

    /// All projects, sorted.
    ///
    /// # Errors
    /// [`ForgeError::Io`], [`ForgeError::TooMany`].
    pub fn projects(&self) -> Result<Vec<String>, ForgeError> {
        let mut found = Vec::new();
        let mut rest = vec![(self.config.directory.clone(), String::new())];
        while let Some((directory, prefix)) = rest.pop() {
            let wrap = |e| ForgeError::io("cannot list", &directory, e);
            for entry in fs::read_dir(&directory).map_err(wrap)? {
                let entry = entry.map_err(wrap)?;
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                if !entry.path().is_dir() {
                    continue;
                }
                match name.strip_suffix(".git") {
                    Some(last) if check_project(&format!("{prefix}{last}")).is_ok() => {
                        found.push(format!("{prefix}{last}"));
                    }
                    Some(_) => {}
                    None if prefix.len() < 200 && !name.starts_with('.') => {
                        rest.push((entry.path(), format!("{prefix}{name}/")));
                    }
                    None => {}
                }
                let limit = self.config.limits.projects;
                if found.len() + rest.len() > limit {
                    let subject = self.config.directory.display().to_string();
                    return Err(ForgeError::TooMany { what: "projects", subject, limit });
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// The branches, sorted.
    ///
    /// # Errors
    /// [`ForgeError::NoProject`], [`ForgeError::TooMany`], [`ForgeError::Git`].
    pub fn branches(&self, project: &str) -> Result<Vec<String>, ForgeError> {
        branches_of(&self.repository(project)?, project, self.config.limits.refs)
    }

    /// The branch that HEAD names.
    ///
    /// # Errors
    /// [`ForgeError::NoProject`], [`ForgeError::Git`].
    pub fn default_branch(&self, project: &str) -> Result<Option<String>, ForgeError> {
        let repo = self.repository(project)?;
        let head = repo.find_reference("HEAD").map_err(ForgeError::git(project, "cannot read HEAD"))?;
        let target = head.symbolic_target().ok().flatten();
        Ok(target.and_then(|t| t.strip_prefix("refs/heads/")).map(str::to_owned))
    }

    /// Where a branch is: its commit and the tree of that; `None` where there is no such branch.
    ///
    /// # Errors
    /// [`ForgeError::NoProject`], [`ForgeError::BadName`], [`ForgeError::Git`].
    pub fn tip(&self, project: &str, branch: &str) -> Result<Option<(String, String)>, ForgeError> {
        let repo = self.repository(project)?;
        let Some(tip) = refs::read(&repo, project, &check_branch(branch)?)? else { return Ok(None) };
        let commit = repo.find_commit(tip).map_err(ForgeError::git(project, "cannot read a branch"))?;
        Ok(Some((tip.to_string(), commit.tree_id().to_string())))
    }

    pub(crate) fn repository(&self, project: &str) -> Result<Repository, ForgeError> {
        let path = self.path(project)?;
        if !path.join("HEAD").is_file() {
            return Err(ForgeError::NoProject { project: project.to_owned(), path });
        }
        Repository::open_bare(&path).map_err(ForgeError::git(project, "cannot open it"))
    }

    /// gatelog's name, now: for reflogs, which tell when something happened here.
    pub(crate) fn signature(&self, project: &str) -> Result<Signature<'static>, ForgeError> {
        let identity = &self.config.identity;
        Signature::now(&identity.name, &identity.email).map_err(ForgeError::git(project, "the forge's identity"))
    }
}

/// The branches of a repository, sorted. Those whose names are no text are left out.
pub(crate) fn branches_of(repo: &Repository, project: &str, limit: usize) -> Result<Vec<String>, ForgeError> {
    let wrap = ForgeError::git(project, "cannot list the branches");
    let mut found = Vec::new();
    for reference in repo.references_glob(&format!("{HEADS}*")).map_err(&wrap)? {
        let reference = reference.map_err(&wrap)?;
        found.extend(reference.name().ok().and_then(|name| name.strip_prefix(HEADS)).map(str::to_owned));
        if found.len() > limit {
            return Err(ForgeError::TooMany { what: "branches", subject: project.to_owned(), limit });
        }
    }
    found.sort();
    Ok(found)
}
