//! What a change is called: in refs, in addresses, in commit messages.

use std::fmt;

use git2::Oid;
use serde::{Deserialize, Serialize};

use crate::error::ForgeError;

/// Where changes are proposed.
pub(crate) const FOR: &str = "refs/for/";
/// Where they are approved.
pub(crate) const APPROVED: &str = "refs/approved/";

/// The longest project, in bytes; its parts become directories.
const PROJECT_MAX: usize = 200;
/// The longest branch, in bytes.
const BRANCH_MAX: usize = 150;
/// The longest name of a change, in bytes.
const NAME_MAX: usize = 100;

/// A change: its project, the branch it is for and its name. A name may be used again once its
/// change is closed; patchsets go on counting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChangeKey {
    /// The project.
    pub project: String,
    /// The branch, without `refs/heads/`.
    pub branch: String,
    /// The name: one part, without slashes.
    pub name: String,
}

impl fmt::Display for ChangeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/+/{}/{}", self.project, self.branch, self.name)
    }
}

impl ChangeKey {
    /// A change; each part is checked.
    ///
    /// # Errors
    /// [`ForgeError::BadName`] for what cannot be a project, a branch or a name.
    pub fn new(project: &str, branch: &str, name: &str) -> Result<ChangeKey, ForgeError> {
        check_project(project)?;
        check_branch(branch)?;
        if name.is_empty() || name.len() > NAME_MAX || name.contains('/') {
            return Err(bad("change name", name, "it must have 1 to 100 bytes and no slash"));
        }
        check_ref("change name", name, &format!("{FOR}{branch}/{name}"))?;
        Ok(ChangeKey { project: project.to_owned(), branch: branch.to_owned(), name: name.to_owned() })
    }

    /// The change that a ref below `refs/for/` or `refs/approved/` speaks of.
    pub(crate) fn of_ref(project: &str, name: &str) -> Result<ChangeKey, ForgeError> {
        let rest = name.strip_prefix(FOR).or_else(|| name.strip_prefix(APPROVED));
        match rest.and_then(|rest| rest.rsplit_once('/')) {
            Some((branch, change)) => ChangeKey::new(project, branch, change),
            None => Err(bad("ref", name, "push to refs/for/<branch>/<name>")),
        }
    }

    /// The ref that proposes it.
    pub fn proposal_ref(&self) -> String {
        format!("{FOR}{}/{}", self.branch, self.name)
    }

    /// The ref that approves it.
    pub fn approval_ref(&self) -> String {
        format!("{APPROVED}{}/{}", self.branch, self.name)
    }

    /// The ref that keeps one patchset, for ever: what a merger should fetch.
    pub fn patchset_ref(&self, patchset: u32) -> String {
        format!("{}{patchset}", self.kept_under("patchsets"))
    }

    /// The ref that says a patchset has merged, and as which commit.
    pub(crate) fn merged_ref(&self, patchset: u32) -> String {
        format!("{}{patchset}", self.kept_under("merged"))
    }

    /// Always of the same depth, so that no ref's name is ever another's directory.
    pub(crate) fn kept_under(&self, what: &str) -> String {
        format!("refs/gatelog/{what}/{}/{}/", flat(&self.branch), flat(&self.name))
    }

    /// The change's address on a host, stable for ever and usable in `Depends-On:`:
    /// `https://<host>/<project>/+/<branch>/<name>`. Nothing need answer there.
    pub fn url(&self, host: &str) -> String {
        format!("https://{host}/{}/+/{}/{}", encode(&self.project), encode(&self.branch), encode(&self.name))
    }

    /// The change an address on this host names; `None` when it is another host's, or no change's.
    pub fn from_url(text: &str, host: &str) -> Option<ChangeKey> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
        let (found, path) = rest.split_once('/')?;
        if !found.eq_ignore_ascii_case(host) {
            return None;
        }
        let (project, rest) = path.split_once("/+/")?;
        let (branch, name) = rest.trim_end_matches('/').rsplit_once('/')?;
        ChangeKey::new(&decode(project)?, &decode(branch)?, &decode(name)?).ok()
    }
}

pub(crate) fn bad(what: &'static str, text: &str, why: &'static str) -> ForgeError {
    ForgeError::BadName { what, text: text.chars().take(80).collect(), why }
}

pub(crate) fn check_project(project: &str) -> Result<(), ForgeError> {
    if project.is_empty() || project.len() > PROJECT_MAX {
        return Err(bad("project", project, "it must have 1 to 200 bytes"));
    }
    if project.chars().any(|c| c.is_control() || c.is_whitespace() || "\\:?*[~^".contains(c)) {
        return Err(bad("project", project, "control characters, spaces and \\ : ? * [ ~ ^ are not allowed"));
    }
    for part in project.split('/') {
        // `+` ends the project in an address; `.git` ends its directory.
        if part.is_empty() || part == "+" || part.starts_with(['.', '-']) || part.ends_with(".git") {
            let why = "its parts must not be empty or +, begin with a dot or dash, or end in .git";
            return Err(bad("project", project, why));
        }
    }
    Ok(())
}

pub(crate) fn check_branch(branch: &str) -> Result<String, ForgeError> {
    if branch.is_empty() || branch.len() > BRANCH_MAX || flat(branch).len() > 240 {
        return Err(bad("branch", branch, "it must have 1 to 150 bytes, and few slashes"));
    }
    let name = format!("refs/heads/{branch}");
    check_ref("branch", branch, &name)?;
    Ok(name)
}

fn check_ref(what: &'static str, text: &str, name: &str) -> Result<(), ForgeError> {
    // libgit2 takes C strings: what is behind a NUL would escape its own check.
    if name.chars().any(char::is_control) || !git2::Reference::is_valid_name(name) {
        return Err(bad(what, text, "git does not allow such a ref name"));
    }
    Ok(())
}

pub(crate) fn commit_id(text: &str) -> Result<Oid, ForgeError> {
    let why = "it must have 40 hex digits";
    if text.len() != 40 {
        return Err(bad("commit id", text, why));
    }
    Oid::from_str(text).map_err(|_| bad("commit id", text, why))
}

/// A ref's part as one part without slashes.
fn flat(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2F")
}

fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/@!$&'()+,;=".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |b: Option<u8>| char::from(b?).to_digit(16);
            let value = digit(rest.next())? * 16 + digit(rest.next())?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The texts behind `Depends-On:` in a commit message, in order, each once. Zuul: the regular
/// expression `^Depends-On:(.*?)\s*$`, on any line, in any case.
pub(crate) fn depends_on(message: &str, limit: usize) -> Vec<String> {
    const WORD: &str = "depends-on:";
    let mut found = Vec::new();
    for line in message.lines() {
        let Some(head) = line.get(..WORD.len()) else { continue };
        let text = line.get(WORD.len()..).unwrap_or_default().trim();
        if head.eq_ignore_ascii_case(WORD) && !text.is_empty() && !found.iter().any(|f| f == text) {
            found.push(text.to_owned());
        }
        if found.len() >= limit {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_found_again_by_its_address() {
        for (project, branch, name) in [
            ("library", "master", "fix"),
            ("acme/c/library", "feature/a/b", "fix-1"),
            ("acme/lib#1", "stable/2.0", "50%25-é"),
        ] {
            let change = ChangeKey::new(project, branch, name).unwrap();
            let url = change.url("git.example.org");
            assert!(!url.contains([' ', '#']), "{url}");
            assert_eq!(ChangeKey::from_url(&url, "git.example.org"), Some(change.clone()));
            assert_eq!(ChangeKey::from_url(&format!("{url}/"), "GIT.example.org"), Some(change.clone()));
            assert_eq!(ChangeKey::from_url(&url, "other.example.org"), None);
            assert_eq!(ChangeKey::of_ref(project, &change.proposal_ref()).unwrap(), change);
            assert_eq!(ChangeKey::of_ref(project, &change.approval_ref()).unwrap(), change);
        }
        for url in ["", "https://h", "https://h/a/+/b", "https://h/a/+/%zz/b", "https://h/../+/b/c", "ftp://h/a/+/b/c"]
        {
            assert_eq!(ChangeKey::from_url(url, "h"), None, "{url}");
        }
    }

    #[test]
    fn hostile_names_are_named_errors() {
        let long = "x".repeat(300);
        for project in ["", "..", "a/..", "/a", "a//b", "a\0", "a\n", ".hidden", "a.git", "a/+/b", "-x", "a b", &long] {
            assert!(matches!(ChangeKey::new(project, "b", "n"), Err(ForgeError::BadName { .. })), "{project:?}");
        }
        for branch in ["", "..", "a..b", "a\0b", "a\u{1b}[31m", "a.lock", "a//b", "/a", "@{", &long, &"a/".repeat(70)] {
            assert!(matches!(ChangeKey::new("p", branch, "n"), Err(ForgeError::BadName { .. })), "{branch:?}");
        }
        for name in ["", "..", "a/b", "a\0b", "a\tb", "x.lock", ".x", "a:b", &long] {
            assert!(matches!(ChangeKey::new("p", "b", name), Err(ForgeError::BadName { .. })), "{name:?}");
        }
        for name in ["refs/for/", "refs/for/x", "refs/heads/a/b", "refs/for//x", ""] {
            assert!(ChangeKey::of_ref("p", name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn depends_on_is_read_as_zuul_reads_it() {
        let message = "Depends-On: https://h/a/+/b/c\nsubject\n\nDEPENDS-ON:x  \n Depends-On: indented\n\
                       Depends-On:\nbody Depends-On: no\ndepends-on: x\r\nDepends-Oñ: no\n";
        assert_eq!(depends_on(message, 10), ["https://h/a/+/b/c", "x"]);
        assert_eq!(depends_on(message, 1).len(), 1);
    }
}
