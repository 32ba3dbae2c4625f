//! Asking the git program where [`crate::trees`] is not certain.
//!
//! git runs on the mirror's objects and writes none of its refs. It sees no configuration but the
//! mirror's own, so everybody who asks gets the same answer. Where it needs files it gets an empty
//! directory for the time of the question, and in it nothing but the attribute files of our side:
//! that is what a person who merges has lying there, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use git2::{Oid, Repository};
use parking_lot::Mutex;

/// Attribute files by the parts of their path.
pub(crate) type Attributes = BTreeMap<Vec<Vec<u8>>, Oid>;

/// The most that is read of an answer.
const ANSWER_MAX: u64 = 64 << 20;
/// The most that is read of complaints.
const COMPLAINT_MAX: u64 = 64 << 10;
/// The longest that git may take. Zuul: `git_timeout`.
const LONGEST: Duration = Duration::from_secs(300);

/// What git made of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Tree(Oid),
    Conflict(BTreeSet<Vec<u8>>),
}

/// `git merge` and `git merge-tree`: the default strategy.
pub(crate) fn merge_tree(
    repo: &Repository,
    ours: Oid,
    theirs: Oid,
    attributes: &Attributes,
) -> Result<Verdict, git2::Error> {
    let place = Place::new(repo, attributes)?;
    let (ours, theirs) = (ours.to_string(), theirs.to_string());
    let arguments = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages"];
    let answer = place.ask(arguments.into_iter().chain([ours.as_str(), theirs.as_str()]))?;
    let mut parts = answer.text.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    match (answer.code, parts.next().and_then(oid)) {
        (Some(0), Some(tree)) => Ok(Verdict::Tree(tree)),
        (Some(1), Some(_)) => Ok(Verdict::Conflict(parts.map(<[u8]>::to_vec).collect())),
        _ => Err(answer.trouble("merge-tree")),
    }
}

/// `git merge -s resolve`.
pub(crate) fn resolve(repo: &Repository, bases: &[Oid], ours: Oid, theirs: Oid) -> Result<Verdict, git2::Error> {
    /// What `git read-tree` takes, less the two sides.
    const BASES_MAX: usize = 6;
    let place = Place::new(repo, &Attributes::new())?;
    let bases: Vec<String> = bases.iter().take(BASES_MAX).map(Oid::to_string).collect();
    let (ours, theirs) = (ours.to_string(), theirs.to_string());
    place.demand(["read-tree", ours.as_str()])?;
    let sides = bases.iter().chain([&ours, &theirs]).map(String::as_str);
    let read = place.ask(["read-tree", "-i", "-m", "--aggressive"].into_iter().chain(sides))?;
    if read.code != Some(0) {
        // Nothing was lost here: two sides that do not even go into one index.
        return if read.complaint.starts_with("error: ") && read.code == Some(128) {
            Ok(Verdict::Conflict(BTreeSet::new()))
        } else {
            Err(read.trouble("read-tree"))
        };
    }
    // They say how a merged file is written, as they are by now.
    let named = place.demand(["ls-files", "-z", "--", ":(glob)**/.gitattributes"])?;
    let named: BTreeSet<&str> =
        named.text.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok()).collect();
    let named = named.into_iter().filter(|name| !name.is_empty());
    let _ = place.ask(["checkout-index", "-f", "-q", "--"].into_iter().chain(named))?;
    let merged = place.ask(["merge-index", "-o", "-q", "git-merge-one-file", "-a"])?;
    let unmerged = place.demand(["ls-files", "-u", "-z"])?;
    let lines = unmerged.text.split(|byte| *byte == 0);
    let paths: BTreeSet<Vec<u8>> =
        lines.filter_map(|line| line.splitn(2, |byte| *byte == b'\t').nth(1).map(<[u8]>::to_vec)).collect();
    if !paths.is_empty() {
        return Ok(Verdict::Conflict(paths));
    }
    if merged.code != Some(0) {
        return Err(merged.trouble("merge-index"));
    }
    let tree = place.demand(["write-tree"])?;
    oid(&tree.text).map(Verdict::Tree).ok_or_else(|| tree.trouble("write-tree"))
}

/// The commits that `git rebase` would apply, in its order: without merges, and without those whose
/// change the other history has in a commit of its own.
pub(crate) fn commits_to_rebase(repo: &Repository, onto: Oid, tip: Oid) -> Result<Vec<Oid>, git2::Error> {
    let place = Place::new(repo, &Attributes::new())?;
    let both = format!("{onto}...{tip}");
    let answer = place.demand([
        "rev-list",
        "--topo-order",
        "--reverse",
        "--no-merges",
        "--cherry-pick",
        "--right-only",
        both.as_str(),
        "--",
    ])?;
    let lines = answer.text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| oid(line).ok_or_else(|| answer.trouble("rev-list"))).collect()
}

/// The refs below `refs/heads/` whose history holds a commit.
pub(crate) fn branches_with(repo: &Repository, commit: Oid) -> Result<Vec<String>, git2::Error> {
    let place = Place::new(repo, &Attributes::new())?;
    let contains = format!("--contains={commit}");
    let answer = place.demand(["for-each-ref", "--format=%(refname)", contains.as_str(), "refs/heads/"])?;
    let lines = answer.text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.filter_map(|line| Some(std::str::from_utf8(line).ok()?.to_owned())).collect())
}

fn oid(text: &[u8]) -> Option<Oid> {
    Oid::from_str(std::str::from_utf8(text).ok()?.trim()).ok()
}

fn failed(what: &str, error: &std::io::Error) -> git2::Error {
    git2::Error::from_str(&format!("{what}: {error}"))
}

/// Where git runs: a mirror and, for as long as it takes, a directory of files.
struct Place<'a> {
    repo: &'a Repository,
    files: tempfile::TempDir,
}

pub(crate) struct Answer {
    /// `None`: it was killed.
    pub(crate) code: Option<i32>,
    pub(crate) text: Vec<u8>,
    pub(crate) complaint: String,
}

impl<'a> Place<'a> {
    fn new(repo: &'a Repository, attributes: &Attributes) -> Result<Place<'a>, git2::Error> {
        let files = tempfile::Builder::new().prefix("gatelog-merge-").tempdir();
        let files = files.map_err(|e| failed("cannot make a directory for git", &e))?;
        let work = files.path().join("work");
        fs::create_dir(&work).map_err(|e| failed("cannot make a directory for git", &e))?;
        for (path, id) in attributes {
            let blob = repo.find_blob(*id)?;
            write(&work, path, blob.content()).map_err(|e| failed("cannot write attributes for git", &e))?;
        }
        Ok(Place { repo, files })
    }

    /// Asks what has one answer only.
    fn demand<'b>(&self, arguments: impl IntoIterator<Item = &'b str>) -> Result<Answer, git2::Error> {
        let mut arguments = arguments.into_iter().peekable();
        let what = arguments.peek().copied().unwrap_or_default();
        let answer = self.ask(arguments)?;
        if answer.code == Some(0) { Ok(answer) } else { Err(answer.trouble(what)) }
    }

    fn ask<'b>(&self, arguments: impl IntoIterator<Item = &'b str>) -> Result<Answer, git2::Error> {
        let mut command = git();
        let work = self.files.path().join("work");
        command
            .args(["-c", "core.attributesFile=/dev/null", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0"])
            .args(["-c", "core.quotePath=false", "-c", "core.fsmonitor=false"])
            .args(arguments)
            .current_dir(&work)
            .env("GIT_DIR", self.repo.path())
            .env("GIT_WORK_TREE", &work)
            .env("GIT_INDEX_FILE", self.files.path().join("index"));
        run(command)
    }
}

/// The git program, without any configuration of the user's or the host's, and with nobody to ask.
pub(crate) fn git() -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    command
        .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_ATTR_NOSYSTEM", "1")])
        .envs([("GIT_TERMINAL_PROMPT", "0"), ("GIT_NO_REPLACE_OBJECTS", "1"), ("LC_ALL", "C")]);
    command
}

/// Runs git to its end, for at most [`LONGEST`], and reads what it says up to a limit.
pub(crate) fn run(mut command: Command) -> Result<Answer, git2::Error> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| failed("cannot run git (it has to be installed)", &e))?;
    let (out, complaint) = (child.stdout.take(), child.stderr.take());
    let child = Arc::new(Mutex::new(child));
    let watch = Watch::new(&child);
    let reader = move || {
        let mut text = Vec::new();
        // What is not read of it is of no use, and git must not wait for a reader.
        if let Some(complaint) = complaint {
            let mut complaint = complaint.take(COMPLAINT_MAX);
            let _ = complaint.read_to_end(&mut text);
            let _ = std::io::copy(&mut complaint.into_inner(), &mut std::io::sink());
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    };
    let complaint = match std::thread::Builder::new().spawn(reader) {
        Ok(complaint) => complaint,
        Err(error) => {
            // Nobody would read what git says.
            let _ = child.lock().kill();
            let _ = child.lock().wait();
            return Err(failed("cannot start a thread that reads what git says", &error));
        }
    };
    let mut text = Vec::new();
    let read = out.map_or(Ok(0), |out| out.take(ANSWER_MAX).read_to_end(&mut text));
    let ended = child.lock().wait();
    drop(watch);
    read.map_err(|e| failed("cannot read what git says", &e))?;
    let code = ended.map_err(|e| failed("cannot wait for git", &e))?.code();
    Ok(Answer { code, text, complaint: complaint.join().unwrap_or_default() })
}

/// Kills a git that takes too long. It is waited for only when its answer has been read whole, so
/// the lock is free until then.
struct Watch(#[expect(dead_code, reason = "dropping it ends the watch")] mpsc::SyncSender<()>);

impl Watch {
    fn new(child: &Arc<Mutex<Child>>) -> Watch {
        let (sender, receiver) = mpsc::sync_channel::<()>(1);
        let child = Arc::clone(child);
        // Without a thread for it git is not watched: on a host that has none to spare that is better than no answer.
        let watching = std::thread::Builder::new().spawn(move || {
            if receiver.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout) {
                tracing::warn!(seconds = LONGEST.as_secs(), "git takes too long and is killed");
                let _ = child.lock().kill();
            }
        });
        if let Err(error) = watching {
            tracing::warn!(%error, "a git is not watched");
        }
        Watch(sender)
    }
}

impl Answer {
    pub(crate) fn trouble(&self, what: &str) -> git2::Error {
        let code = self.code.map_or_else(|| "a signal".to_owned(), |code| format!("code {code}"));
        let complaint: String = self.complaint.chars().take(500).collect();
        git2::Error::from_str(&format!("git {what} ended with {code} (version 2.38 or later is needed): {complaint}"))
    }
}

/// Writes a file below a directory; a path that would lead elsewhere is left out.
fn write(place: &Path, path: &[Vec<u8>], content: &[u8]) -> std::io::Result<()> {
    let mut file = place.to_owned();
    for part in path {
        let Ok(part) = std::str::from_utf8(part) else { return Ok(()) };
        if part.is_empty() || part == "." || part.contains(['/', '\0']) || part.starts_with("..") {
            return Ok(());
        }
        file.push(part);
    }
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(file, content)
}
