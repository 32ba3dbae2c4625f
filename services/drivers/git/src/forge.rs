//! The directory of bare repositories, and what gatelog sets up in each.

use std::fs;
use std::path::{Path, PathBuf};

use git2::{Repository, RepositoryInitOptions, Signature};

use crate::change::{check_branch, check_project};
use crate::error::ForgeError;
use crate::notify::spool_name;

/// Tells our hook from others.
const HOOK_MARK: &str = "# written by gatelog";

/// Says that something was pushed, and that is all: it must never fail a push, nor wait.
const HOOK: &str = r#"#!/bin/sh
# written by gatelog: tells a running server that something was pushed.
# It is harmless when no server runs: the server finds what it missed by itself.
while read -r old new ref; do
    case "$new" in *[!0]*) gone= ;; *) gone=yes ;; esac
    case "$ref" in
        refs/for/*) [ -n "$gone" ] && echo "gatelog: abandoned ${ref#refs/for/}" || echo "gatelog: proposed ${ref#refs/for/}" ;;
        refs/approved/*) [ -n "$gone" ] && echo "gatelog: approval withdrawn" || echo "gatelog: approved ${ref#refs/approved/}" ;;
    esac
done
spool=$(git config --get gatelog.notify) || exit 0
name=$(git config --get gatelog.spool-name) || exit 0
[ -d "$spool" ] && : 2>/dev/null > "$spool/$name"
exit 0
"#;

/// How many levels a ref may have below its kind.
const LEVELS: usize = 60;

/// Refuses what libgit2 could not read back, and what would keep it from reading all other refs.
/// `MOST` stands for the number of slashes allowed. (No pattern of many stars: a shell may try for hours.)
const GUARD: &str = r#"#!/bin/sh
# written by gatelog: refuses refs that could not be read back.
while read -r old new ref; do
    case "$new" in *[!0]*) ;; *) continue ;; esac
    left=MOST
    while [ "$ref" != "${ref#*/}" ]; do
        ref=${ref#*/}
        left=$((left - 1))
    done
    [ "$left" -ge 0 ] || { echo "gatelog: refused: a ref may have 60 levels at most"; exit 1; }
done
exit 0
"#;

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

    /// Makes a project's repository, or sets up one that is there already (and then leaves its
    /// HEAD alone): reflogs for all refs, the hook, and `refs/gatelog/` and the notes closed to
    /// pushes. The branch itself comes with the first push.
    ///
    /// # Errors
    /// [`ForgeError::BadName`], [`ForgeError::ForeignHook`], [`ForgeError::Git`],
    /// [`ForgeError::Io`].
    pub fn create(&self, project: &str, default_branch: &str) -> Result<PathBuf, ForgeError> {
        let path = self.path(project)?;
        let head = check_branch(default_branch)?;
        let wrap = ForgeError::git(project, "cannot set up the repository");
        let repo = if path.join("HEAD").is_file() {
            self.repository(project)?
        } else {
            let mut options = RepositoryInitOptions::new();
            options.bare(true).external_template(false).mkpath(true).initial_head(&head);
            Repository::init_opts(&path, &options).map_err(&wrap)?
        };
        let mut config = repo.config().map_err(&wrap)?;
        config.set_str("core.logAllRefUpdates", "always").map_err(&wrap)?;
        for (key, value) in [("gatelog.project", project), ("gatelog.spool-name", &spool_name(project))] {
            config.set_str(key, value).map_err(&wrap)?;
        }
        if let Some(notify) = &self.config.notify {
            config.set_str("gatelog.notify", &notify.to_string_lossy()).map_err(&wrap)?;
        }
        for hidden in ["refs/gatelog/", "refs/notes/gatelog"] {
            config.set_multivar("receive.hideRefs", &format!("^{hidden}$"), hidden).map_err(&wrap)?;
        }
        install_hook(&path, "post-receive", HOOK)?;
        // Every slash is one level; the first two are those of `refs/heads/`.
        install_hook(&path, "pre-receive", &GUARD.replace("MOST", &(LEVELS + 2).to_string()))?;
        Ok(path)
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

fn install_hook(repository: &Path, name: &str, hook: &str) -> Result<(), ForgeError> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = repository.join("hooks");
    fs::create_dir_all(&directory).map_err(|e| ForgeError::io("cannot make", &directory, e))?;
    let path = directory.join(name);
    match fs::read(&path) {
        Ok(found) if found == hook.as_bytes() => return Ok(()),
        Ok(found) if !String::from_utf8_lossy(&found).contains(HOOK_MARK) => {
            return Err(ForgeError::ForeignHook { path });
        }
        _ => {}
    }
    // Moved into place, so that no push ever runs half a hook.
    let staging = directory.join(format!("{name}.gatelog-new"));
    let wrap = |e| ForgeError::io("cannot write the hook", &path, e);
    fs::write(&staging, hook).map_err(wrap)?;
    fs::set_permissions(&staging, fs::Permissions::from_mode(0o755)).map_err(wrap)?;
    fs::rename(&staging, &path).map_err(wrap)
}
