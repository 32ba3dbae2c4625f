//! Fetching from repositories of other hosts, by the git program: over HTTP, SSH and git's own protocol.
//!
//! What comes is put below `refs/gatelog/incoming` first, so that the mirror's own refs change in one place, as they do
//! for repositories of this host. Credentials are given to git in its environment, which only the same account can read:
//! never in an address, an argument or a file of the mirror.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use git2::{ObjectType, Oid, Repository};

use crate::error::MergeError;
use crate::names::ProjectKey;
use crate::program::{Answer, git, run};

/// Where what comes is kept: branches and tags by their names, and other refs by a hash of theirs.
const INCOMING: &str = "refs/gatelog/incoming";
/// Protocols that git may speak.
const PROTOCOLS: &str = "http:https:ssh:git";
/// After how many seconds of silence an SSH server is asked whether it is there; three times, then it is given up.
const SSH_ALIVE_S: u32 = 20;

/// What a repository is fetched with.
#[derive(Clone, PartialEq, Eq)]
pub enum Access {
    /// HTTP: the value of the header `Authorization`.
    Header(String),
    /// SSH: a private key, and the hosts that are known.
    Ssh {
        /// The file of the private key.
        key: PathBuf,
        /// The file of known host keys. A host that is not in it is refused.
        known_hosts: PathBuf,
    },
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Access::Header(_) => f.write_str("Header(…)"),
            Access::Ssh { key, .. } => write!(f, "Ssh({})", key.display()),
        }
    }
}

/// A repository of another host.
pub(crate) struct Remote<'a> {
    project: &'a ProjectKey,
    url: &'a str,
    access: Option<Access>,
}

/// Whether an address is one of another host, or of a server on this one.
pub(crate) fn is_remote(url: &str) -> bool {
    let (scheme, _) = url.split_once("://").unwrap_or_default();
    PROTOCOLS.split(':').any(|known| known == scheme)
}

/// The refs of a repository, and the branch that its HEAD names, if that was asked.
pub(crate) type Refs = (BTreeMap<String, Oid>, Option<String>);

impl<'a> Remote<'a> {
    pub(crate) fn new(project: &'a ProjectKey, url: &'a str, access: Option<Access>) -> Remote<'a> {
        Remote { project, url, access }
    }

    /// Brings branches, tags and the refs asked for, with all they hold, below [`INCOMING`] of a mirror, and tells what
    /// they are. HEAD is asked for where the mirror's names no branch that came: it is asked apart, and on a server with
    /// many refs that takes long.
    ///
    /// # Errors
    /// [`MergeError::MissingRef`], [`MergeError::Vanished`], [`MergeError::TooMany`]; [`MergeError::Git`] for what may
    /// pass.
    pub(crate) fn bring(&self, mirror: &Repository, names: &[String], limit: usize) -> Result<Refs, MergeError> {
        let mut specs = vec![format!("+refs/heads/*:{INCOMING}/heads/*"), format!("+refs/tags/*:{INCOMING}/tags/*")];
        for name in names.iter().filter(|name| !is_branch_or_tag(name)) {
            specs.push(format!("+{name}:{}", self.asked(name)?));
        }
        let mut fetch = self.command(mirror.path());
        fetch
            .args(["fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"])
            .args(["--no-recurse-submodules", "--end-of-options", self.url])
            .args(&specs);
        let answer = self.run(fetch)?;
        if answer.code != Some(0) {
            return Err(self.trouble("fetch", &answer));
        }
        let refs = self.incoming(mirror, names, limit)?;
        let of_mirror = mirror.find_reference("HEAD").ok();
        let of_mirror = of_mirror.and_then(|head| head.symbolic_target().ok().flatten().map(str::to_owned));
        let head = match of_mirror.filter(|head| refs.contains_key(head)) {
            Some(head) => Some(head),
            None => self.head(mirror)?,
        };
        Ok((refs, head))
    }

    fn incoming(
        &self,
        mirror: &Repository,
        names: &[String],
        limit: usize,
    ) -> Result<BTreeMap<String, Oid>, MergeError> {
        let wrap = |error| MergeError::git(self.project, "cannot read the refs that came", error);
        let mut refs = BTreeMap::new();
        for kind in ["heads", "tags"] {
            let below = format!("{INCOMING}/{kind}/");
            for reference in mirror.references_glob(&format!("{below}*")).map_err(wrap)? {
                let reference = reference.map_err(wrap)?;
                // Names that are not UTF-8 cannot be configured, so nobody asks for them.
                let (Ok(name), Some(id)) = (reference.name(), reference.target()) else { continue };
                let Some(own) = name.strip_prefix(&below) else { continue };
                refs.insert(format!("refs/{kind}/{own}"), id);
                if refs.len() > limit {
                    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
                    return Err(MergeError::TooMany { what: "refs", subject: self.project.to_string(), limit });
                }
            }
        }
        for name in names.iter().filter(|name| !is_branch_or_tag(name)) {
            let kept = self.asked(name)?;
            refs.insert(name.clone(), mirror.refname_to_id(&kept).map_err(wrap)?);
        }
        Ok(refs)
    }

    /// Where a ref that is neither branch nor tag is kept.
    fn asked(&self, name: &str) -> Result<String, MergeError> {
        let hash = Oid::hash_object(ObjectType::Blob, name.as_bytes());
        let hash = hash.map_err(|error| MergeError::git(self.project, "cannot name a ref", error))?;
        Ok(format!("{INCOMING}/asked/{hash}"))
    }

    /// The branch that the repository's HEAD names.
    fn head(&self, mirror: &Repository) -> Result<Option<String>, MergeError> {
        let mut ask = self.command(mirror.path());
        ask.args(["ls-remote", "--quiet", "--symref", "--end-of-options", self.url, "HEAD"]);
        let answer = self.run(ask)?;
        if answer.code != Some(0) {
            return Err(self.trouble("ls-remote", &answer));
        }
        let text = String::from_utf8_lossy(&answer.text);
        let named = |line: &str| Some(line.strip_prefix("ref: ")?.strip_suffix("\tHEAD")?.to_owned());
        Ok(text.lines().find_map(named))
    }

    fn command(&self, mirror: &Path) -> Command {
        let mut command = git();
        command
            .args(["-c", "credential.helper=", "-c", "http.followRedirects=false", "-c", "gc.auto=0"])
            .env("GIT_DIR", mirror)
            .env("GIT_ALLOW_PROTOCOL", PROTOCOLS)
            .env("GIT_ASKPASS", "true")
            .env("SSH_ASKPASS", "true");
        match &self.access {
            Some(Access::Header(value)) => {
                command
                    .env("GIT_CONFIG_COUNT", "1")
                    .env("GIT_CONFIG_KEY_0", "http.extraHeader")
                    .env("GIT_CONFIG_VALUE_0", format!("Authorization: {value}"));
            }
            Some(Access::Ssh { key, known_hosts }) => {
                command.env("GIT_SSH_COMMAND", ssh(key, known_hosts)).env("GIT_SSH_VARIANT", "ssh");
            }
            None => {}
        }
        command
    }

    fn run(&self, command: Command) -> Result<Answer, MergeError> {
        run(command).map_err(|error| MergeError::git(self.project, "cannot fetch", error))
    }

    /// What git's complaint means. It may name the address, which holds no credentials.
    fn trouble(&self, what: &str, answer: &Answer) -> MergeError {
        let said = answer.complaint.to_lowercase();
        if let Some((_, name)) = answer.complaint.split_once("couldn't find remote ref ") {
            let name = name.split_whitespace().next().unwrap_or_default().to_owned();
            return MergeError::MissingRef { project: self.project.clone(), name };
        }
        let gone = ["not found", "does not appear to be a git repository", "does not exist"];
        if gone.iter().any(|words| said.contains(words)) && !said.contains("could not resolve") {
            let detail = answer.complaint.lines().next().unwrap_or_default().chars().take(300).collect();
            return MergeError::Vanished { project: self.project.clone(), url: self.url.to_owned(), detail };
        }
        MergeError::git(self.project, "cannot fetch", answer.trouble(what))
    }
}

fn is_branch_or_tag(name: &str) -> bool {
    name.starts_with("refs/heads/") || name.starts_with("refs/tags/")
}

/// The program by which git reaches SSH servers; git hands it to a shell.
fn ssh(key: &Path, known_hosts: &Path) -> String {
    let quoted = |path: &Path| format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"));
    // ssh reads the value of an option as words of its own, with quotes.
    let hosts = known_hosts.to_string_lossy().replace('\\', r"\\").replace('"', "\\\"");
    let hosts = quoted(Path::new(&format!("UserKnownHostsFile=\"{hosts}\"")));
    format!(
        "ssh -F none -i {} -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=yes -o {hosts} \
         -o GlobalKnownHostsFile=none -o ServerAliveInterval={SSH_ALIVE_S} -o ServerAliveCountMax=3",
        quoted(key)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_protocol_of_gits_is_of_another_host() {
        for url in ["https://review.example/a/p", "http://127.0.0.1:8080/p", "ssh://me@host:29418/p", "git://host/p"] {
            assert!(is_remote(url), "{url}");
        }
        for url in ["/srv/git/p.git", "file:///srv/git/p.git", "ext::sh -c id", "ext://x", "relative/p"] {
            assert!(!is_remote(url), "{url}");
        }
    }

    #[test]
    fn paths_are_quoted_for_the_shell_and_for_ssh() {
        let said = ssh(Path::new("/a b/it's"), Path::new("/a b/known"));
        assert!(said.starts_with(r"ssh -F none -i '/a b/it'\''s' "), "{said}");
        assert!(said.contains("-o 'UserKnownHostsFile=\"/a b/known\"' "), "{said}");
    }

    #[test]
    fn credentials_are_never_shown() {
        assert!(!format!("{:?}", Access::Header("Basic c2VjcmV0".into())).contains("c2VjcmV0"));
    }
}
