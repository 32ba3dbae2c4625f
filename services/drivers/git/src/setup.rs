//! What gatelog sets up in a project's repository: hooks, refs that are hidden, reflogs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use git2::{Config, ConfigLevel, Oid, Repository, RepositoryInitMode, RepositoryInitOptions};

use crate::change::check_branch;
use crate::error::ForgeError;
use crate::forge::Forge;
use crate::notify::spool_name;
use crate::refs;

/// Tells our hook from others.
const HOOK_MARK: &str = "# written by gatelog";

/// What the name of a user's own hook ends with, once ours is in its place.
const OWN: &str = ".own";

/// How many levels a ref may have below its kind.
pub(crate) const LEVELS: usize = 60;

/// Asks gatelog what of a push means nothing. Only where gatelog says no (exit code 1) the push is refused: a forge must
/// not stand still because a program is missing or fails. What libgit2 could not read back, and what would keep it from
/// reading all other refs, is refused in any case. (No pattern of many stars: a shell may try for hours.)
const PRE_RECEIVE: &str = r#"#!/bin/sh
# written by gatelog: refuses a push that means nothing, and says why.
# `gatelog project add` writes it anew; a hook of your own is called pre-receive.own, and is run first.
program=@PROGRAM@
project=@PROJECT@
updates=$(cat)
if [ -x "$0.own" ]; then
    printf '%s\n' "$updates" | "$0.own" "$@" || exit 1
fi
if [ -n "$program" ]; then
    [ -x "$program" ] || program=$(command -v gatelog)
    if [ -n "$program" ]; then
        printf '%s\n' "$updates" | "$program" hook pre-receive --project "$project"
        case $? in 0) exit 0 ;; 1) exit 1 ;; esac
    fi
    echo "gatelog: this push is taken unchecked, for want of a gatelog that works;"
    echo "gatelog: whoever looks after the site runs: gatelog project add $project"
fi
printf '%s\n' "$updates" | while read -r old new ref; do
    case "$new" in *[!0]*) ;; *) continue ;; esac
    left=@MOST@
    while [ "$ref" != "${ref#*/}" ]; do
        ref=${ref#*/}
        left=$((left - 1))
    done
    [ "$left" -ge 0 ] || { echo "gatelog: refused: a ref may have @LEVELS@ levels at most"; exit 1; }
done || exit 1
exit 0
"#;

/// Leaves word of the push, and tells the pusher what becomes of it. It must never fail a push.
const POST_RECEIVE: &str = r#"#!/bin/sh
# written by gatelog: tells a running server that something was pushed, and the pusher what becomes of it.
# It is harmless when no server runs: the server finds what it missed by itself.
# `gatelog project add` writes it anew; a hook of your own is called post-receive.own, and is run, too.
program=@PROGRAM@
project=@PROJECT@
connection=@CONNECTION@
site=@SITE@
word=@WORD@
updates=$(cat)
[ -z "$word" ] || (: > "$word") 2>/dev/null
if [ -x "$0.own" ]; then
    printf '%s\n' "$updates" | "$0.own" "$@"
fi
if [ -n "$program" ]; then
    [ -x "$program" ] || program=$(command -v gatelog)
    if [ -n "$program" ]; then
        printf '%s\n' "$updates" |
            "$program" hook post-receive --project "$project" --connection "$connection" --dir "$site" && exit 0
    fi
fi
printf '%s\n' "$updates" | while read -r old new ref; do
    case "$new" in *[!0]*) gone= ;; *) gone=yes ;; esac
    case "$ref" in
        refs/for/*) [ -n "$gone" ] && echo "gatelog: abandoned ${ref#refs/for/}" || echo "gatelog: proposed ${ref#refs/for/}" ;;
        refs/approved/*) [ -n "$gone" ] && echo "gatelog: approval withdrawn" || echo "gatelog: approved ${ref#refs/approved/}" ;;
    esac
done
exit 0
"#;

const HOOKS: [(&str, &str); 2] = [("pre-receive", PRE_RECEIVE), ("post-receive", POST_RECEIVE)];

/// The gatelog that hooks ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookProgram {
    /// The binary, by its whole path. Where it is gone, hooks look for `gatelog` on `PATH`.
    pub program: PathBuf,
    /// The site's directory, by its whole path.
    pub site: PathBuf,
    /// The connection's name.
    pub connection: String,
}

/// What was done to set a repository up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUp {
    /// Where it is.
    pub path: PathBuf,
    /// Whether it was not there before.
    pub is_new: bool,
    /// What was added to one that was there, one phrase each.
    pub added: Vec<String>,
}

/// What is wrong with a hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookTrouble {
    /// There is none.
    #[error("no {hook}")]
    Missing {
        /// The hook.
        hook: &'static str,
    },
    /// It may not be run.
    #[error("{hook} is not executable")]
    NotExecutable {
        /// The hook.
        hook: &'static str,
    },
    /// It is not gatelog's.
    #[error("{hook} is not gatelog's")]
    Foreign {
        /// The hook.
        hook: &'static str,
    },
    /// It is gatelog's, of another release or for another site or project.
    #[error("{hook} is of another release, site or project")]
    Other {
        /// The hook.
        hook: &'static str,
    },
    /// The gatelog it asks is not there.
    #[error("{hook} asks {program}, which is not there", program = program.display())]
    NoProgram {
        /// The hook.
        hook: &'static str,
        /// What it asks.
        program: PathBuf,
    },
    /// git runs hooks of another directory.
    #[error("core.hooksPath is {path}: git does not run this repository's hooks")]
    Elsewhere {
        /// What the repository's configuration says.
        path: String,
    },
}

impl Forge {
    /// Makes a project's repository, or sets up one that is there already (and then leaves its HEAD alone): reflogs for
    /// all refs, the hooks, `refs/gatelog/` and the notes closed to pushes, and the former hidden. The branch itself
    /// comes with the first push, or by [`Forge::make_branches`].
    ///
    /// # Errors
    /// As [`Forge::set_up`].
    pub fn create(&self, project: &str, default_branch: &str) -> Result<PathBuf, ForgeError> {
        self.set_up(project, default_branch).map(|done| done.path)
    }

    /// The same, and says what was done. Doing it again does nothing. A hook of the user's own is kept, as
    /// `<hook>.own`, and run by ours.
    ///
    /// # Errors
    /// [`ForgeError::BadName`], [`ForgeError::ForeignHook`] where a user's hook cannot be kept,
    /// [`ForgeError::HooksElsewhere`], [`ForgeError::Git`], [`ForgeError::Io`].
    pub fn set_up(&self, project: &str, default_branch: &str) -> Result<SetUp, ForgeError> {
        let path = self.path(project)?;
        let head = check_branch(default_branch)?;
        let wrap = ForgeError::git(project, "cannot set up the repository");
        let is_new = !path.join("HEAD").is_file();
        let repo = if is_new { init(&path, &head).map_err(&wrap)? } else { self.repository(project)? };
        let mut config = repo.config().and_then(|all| all.open_level(ConfigLevel::Local)).map_err(&wrap)?;
        if let Some(path) = hooks_elsewhere(&config) {
            return Err(ForgeError::HooksElsewhere { project: project.to_owned(), path });
        }
        let mut added = Vec::new();
        // A pusher's own `core.hooksPath` would keep these hooks from being run.
        for (key, value) in
            [("core.logAllRefUpdates", "always"), ("core.hooksPath", "hooks"), ("gatelog.project", project)]
        {
            if set(&mut config, key, value).map_err(&wrap)? {
                added.push(format!("{key} = {value}"));
            }
        }
        for (key, hidden) in [
            ("receive.hideRefs", "refs/gatelog/"),
            ("receive.hideRefs", "refs/notes/gatelog"),
            ("uploadpack.hideRefs", "refs/gatelog/"),
        ] {
            if hide(&mut config, key, hidden).map_err(&wrap)? {
                added.push(format!("{key} = {hidden}"));
            }
        }
        for (name, _) in HOOKS {
            added.extend(install_hook(&path, name, &self.hook(project, name))?);
        }
        Ok(SetUp { path, is_new, added })
    }

    /// What is wrong with the hooks of a project; nothing where all is well.
    ///
    /// # Errors
    /// [`ForgeError::NoProject`], [`ForgeError::Git`].
    pub fn hook_troubles(&self, project: &str) -> Result<Vec<HookTrouble>, ForgeError> {
        let repo = self.repository(project)?;
        let wrap = ForgeError::git(project, "cannot read its configuration");
        let config = repo.config().and_then(|all| all.open_level(ConfigLevel::Local)).map_err(&wrap)?;
        if let Some(path) = hooks_elsewhere(&config) {
            return Ok(vec![HookTrouble::Elsewhere { path }]);
        }
        Ok(HOOKS.iter().filter_map(|(hook, _)| self.hook_trouble(project, repo.path(), hook)).collect())
    }

    fn hook_trouble(&self, project: &str, repository: &Path, hook: &'static str) -> Option<HookTrouble> {
        let path = repository.join("hooks").join(hook);
        let Ok(found) = fs::read(&path) else { return Some(HookTrouble::Missing { hook }) };
        let found = String::from_utf8_lossy(&found).into_owned();
        if !found.contains(HOOK_MARK) {
            return Some(HookTrouble::Foreign { hook });
        }
        if !fs::metadata(&path).is_ok_and(|known| known.permissions().mode() & 0o111 != 0) {
            return Some(HookTrouble::NotExecutable { hook });
        }
        // Which binary it asks may differ, as long as that is there.
        let line = |text: &str| text.lines().find(|line| line.starts_with("program=")).map(str::to_owned);
        let ours = self.hook(project, hook);
        let (Some(theirs), Some(own)) = (line(&found), line(&ours)) else { return Some(HookTrouble::Other { hook }) };
        if ours.replacen(&own, &theirs, 1) != found {
            return Some(HookTrouble::Other { hook });
        }
        let program = PathBuf::from(unquoted(theirs.trim_start_matches("program=")));
        let is_there = program.as_os_str().is_empty() || program.is_file();
        (!is_there).then_some(HookTrouble::NoProgram { hook, program })
    }

    /// The text of a hook.
    fn hook(&self, project: &str, name: &str) -> String {
        let text = HOOKS.iter().find(|(hook, _)| *hook == name).map_or("", |(_, text)| text);
        let asked = self.config.hooks.as_ref();
        let path =
            |path: Option<&PathBuf>| quoted(&path.map_or_else(String::new, |path| path.to_string_lossy().into_owned()));
        let word = self.config.notify.as_ref().map(|directory| directory.join(spool_name(project)));
        text.replace("@PROGRAM@", &path(asked.map(|asked| &asked.program)))
            .replace("@SITE@", &path(asked.map(|asked| &asked.site)))
            .replace("@CONNECTION@", &quoted(asked.map_or("", |asked| &asked.connection)))
            .replace("@WORD@", &path(word.as_ref()))
            .replace("@PROJECT@", &quoted(project))
            // Every slash is one level; the first two are those of `refs/heads/`.
            .replace("@MOST@", &(LEVELS + 2).to_string())
            .replace("@LEVELS@", &LEVELS.to_string())
    }

    /// Makes those of these branches that are not there: at the commit of the branch that HEAD names, or, where there is
    /// none, at a first commit without files. Gives those it made.
    ///
    /// # Errors
    /// [`ForgeError::BadName`], [`ForgeError::NoProject`], [`ForgeError::Locked`], [`ForgeError::Git`].
    pub fn make_branches(&self, project: &str, branches: &[String]) -> Result<Vec<String>, ForgeError> {
        let repo = self.repository(project)?;
        let wrap = ForgeError::git(project, "cannot make a branch");
        let who = self.signature(project)?;
        let mut start: Option<Oid> = repo.head().ok().and_then(|head| head.target());
        let mut made = Vec::new();
        for branch in branches {
            let name = check_branch(branch)?;
            if let Some(there) = refs::read(&repo, project, &name)? {
                start.get_or_insert(there);
                continue;
            }
            let commit = match start {
                Some(commit) => commit,
                None => {
                    let tree = repo.treebuilder(None).and_then(|empty| empty.write()).map_err(&wrap)?;
                    let tree = repo.find_tree(tree).map_err(&wrap)?;
                    let message = format!("Begin {project}\n");
                    repo.commit(None, &who, &who, &message, &tree, &[]).map_err(&wrap)?
                }
            };
            start = Some(commit);
            let message = "gatelog: branch made with its project";
            refs::compare_and_swap(&repo, project, &name, None, Some(commit), &who, message)?;
            made.push(branch.clone());
        }
        if !made.is_empty() {
            self.leave_word(project);
        }
        Ok(made)
    }

    /// Lets HEAD name a branch.
    ///
    /// # Errors
    /// [`ForgeError::BadName`], [`ForgeError::NoProject`], [`ForgeError::Git`].
    pub fn set_default_branch(&self, project: &str, branch: &str) -> Result<(), ForgeError> {
        let name = check_branch(branch)?;
        self.repository(project)?.set_head(&name).map_err(ForgeError::git(project, "cannot set HEAD"))
    }
}

/// Makes a repository. Where its directory is a group's to write, it is, too: whoever may push is decided there.
fn init(path: &Path, head: &str) -> Result<Repository, git2::Error> {
    let above = path.ancestors().skip(1).find_map(|above| fs::metadata(above).ok());
    let mut options = RepositoryInitOptions::new();
    options.bare(true).external_template(false).mkpath(true).initial_head(head);
    if above.is_some_and(|above| above.permissions().mode() & 0o020 != 0) {
        options.mode(RepositoryInitMode::SHARED_GROUP);
    }
    Repository::init_opts(path, &options)
}

/// Where git looks for hooks, if that is not in the repository.
fn hooks_elsewhere(config: &Config) -> Option<String> {
    config.get_string("core.hooksPath").ok().filter(|path| path != "hooks")
}

fn set(config: &mut Config, key: &str, value: &str) -> Result<bool, git2::Error> {
    if config.get_string(key).is_ok_and(|known| known == value) {
        return Ok(false);
    }
    config.set_str(key, value).map(|()| true)
}

/// Adds a value to those of a key that has several.
fn hide(config: &mut Config, key: &str, value: &str) -> Result<bool, git2::Error> {
    let mut known = false;
    if let Ok(values) = config.multivar(key, None) {
        values.for_each(|entry| known |= entry.value().is_ok_and(|one| one == value))?;
    }
    if !known {
        config.set_multivar(key, &format!("^{value}$"), value)?;
    }
    Ok(!known)
}

/// Puts a hook into place; gives what was done, one phrase each.
fn install_hook(repository: &Path, name: &str, hook: &str) -> Result<Vec<String>, ForgeError> {
    let directory = repository.join("hooks");
    fs::create_dir_all(&directory).map_err(|e| ForgeError::io("cannot make", &directory, e))?;
    let path = directory.join(name);
    let runs = |path: &Path| fs::metadata(path).is_ok_and(|known| known.permissions().mode() & 0o111 != 0);
    let mut done = Vec::new();
    match fs::read(&path) {
        Ok(found) if found == hook.as_bytes() && runs(&path) => return Ok(done),
        Ok(found) if !String::from_utf8_lossy(&found).contains(HOOK_MARK) => {
            let own = directory.join(format!("{name}{OWN}"));
            if own.symlink_metadata().is_ok() {
                return Err(ForgeError::ForeignHook { path, own });
            }
            // A second name first: at no moment there is no hook.
            fs::hard_link(&path, &own)
                .or_else(|_| fs::copy(&path, &own).map(drop))
                .map_err(|e| ForgeError::io("cannot keep a hook as", &own, e))?;
            done.push(format!("{name} was your own: it is kept as {name}{OWN}, and run by the new one"));
        }
        _ => {}
    }
    // Moved into place, so that no push ever runs half a hook.
    let staging = directory.join(format!("{name}.gatelog-new"));
    let wrap = |e| ForgeError::io("cannot write the hook", &path, e);
    fs::write(&staging, hook).map_err(wrap)?;
    fs::set_permissions(&staging, fs::Permissions::from_mode(0o755)).map_err(wrap)?;
    fs::rename(&staging, &path).map_err(wrap)?;
    done.push(format!("hook {name}"));
    Ok(done)
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The text of such a word.
fn unquoted(word: &str) -> String {
    let inner = word.strip_prefix('\'').and_then(|word| word.strip_suffix('\'')).unwrap_or(word);
    inner.replace(r"'\''", "'")
}
