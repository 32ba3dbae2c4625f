//! Names of projects, branches and commits, and the directory names made of them.

use std::fmt;

use git2::Oid;

use crate::error::MergeError;

/// The longest name taken, in bytes. File systems allow 255 for one component.
const NAME_MAX: usize = 200;

/// A repository: the connection it belongs to and its name there (`acme/library`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectKey {
    /// The connection's name.
    pub connection: String,
    /// The project's name on that connection.
    pub name: String,
}

impl ProjectKey {
    /// A project of a connection. Names are checked where they are used.
    pub fn new(connection: impl Into<String>, name: impl Into<String>) -> ProjectKey {
        ProjectKey { connection: connection.into(), name: name.into() }
    }

    pub(crate) fn check(&self) -> Result<(), MergeError> {
        check_name("connection", &self.connection)?;
        check_name("project", &self.name)
    }
}

impl fmt::Display for ProjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.connection, self.name)
    }
}

/// A branch of a repository: what a chain of changes is prepared for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchKey {
    /// The project.
    pub project: ProjectKey,
    /// The branch, without `refs/heads/`.
    pub branch: String,
}

impl BranchKey {
    /// A branch of a project.
    pub fn new(project: ProjectKey, branch: impl Into<String>) -> BranchKey {
        BranchKey { project, branch: branch.into() }
    }
}

impl fmt::Display for BranchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.branch, self.project)
    }
}

fn bad(what: &'static str, text: &str, why: &'static str) -> MergeError {
    MergeError::BadName { what, text: text.chars().take(80).collect(), why }
}

fn check_name(what: &'static str, text: &str) -> Result<(), MergeError> {
    if text.is_empty() || text.len() > NAME_MAX {
        return Err(bad(what, text, "it must have 1 to 200 bytes"));
    }
    if text.chars().any(|c| c.is_control() || c == '\\') {
        return Err(bad(what, text, "control characters and backslashes are not allowed"));
    }
    if text.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(bad(what, text, "its parts between slashes must not be empty, . or .."));
    }
    Ok(())
}

/// The ref of a branch.
pub(crate) fn branch_ref(branch: &str) -> Result<String, MergeError> {
    check_ref("branch", branch, &format!("refs/heads/{branch}"))
}

/// A whole ref name, as git allows it.
pub(crate) fn full_ref(name: &str) -> Result<String, MergeError> {
    if !name.starts_with("refs/") {
        return Err(bad("ref", name, "a whole ref name begins with refs/"));
    }
    check_ref("ref", name, name)
}

fn check_ref(what: &'static str, text: &str, name: &str) -> Result<String, MergeError> {
    if name.len() > 2 * NAME_MAX {
        return Err(bad(what, text, "it is too long"));
    }
    // libgit2 takes the name as a C string; its own check would not see what is behind a NUL.
    if name.chars().any(char::is_control) || !git2::Reference::is_valid_name(name) {
        return Err(bad(what, text, "git does not allow such a ref name"));
    }
    Ok(name.to_owned())
}

/// A commit id in its whole length.
pub(crate) fn commit_id(text: &str) -> Result<Oid, MergeError> {
    if text.len() != 40 {
        return Err(bad("commit id", text, "it must have 40 hex digits"));
    }
    Oid::from_str(text).map_err(|_| bad("commit id", text, "it must have 40 hex digits"))
}

/// The id of a piece of work, which becomes a part of a ref name.
pub(crate) fn work_id(text: &str) -> Result<&str, MergeError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text.len() > 100 || !text.chars().all(fine) {
        return Err(bad("work id", text, "it must have 1 to 100 letters, digits, dashes or underscores"));
    }
    Ok(text)
}

/// One directory name for a name with slashes: everything unusual becomes `%XX`, so different names
/// never meet; a name that would be too long ends in a hash of itself.
pub(crate) fn directory_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for (at, byte) in text.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && at > 0) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    if name.len() > NAME_MAX
        && let Ok(hash) = Oid::hash_object(git2::ObjectType::Blob, text.as_bytes())
    {
        name.truncate(150);
        name.push_str(&format!("%-{hash}"));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_named_errors() {
        for name in ["", "..", "a/../b", "a//b", "/a", "a\0b", "a\nb", "a\\b", &"x".repeat(300)] {
            assert!(matches!(ProjectKey::new("c", name).check(), Err(MergeError::BadName { .. })), "{name:?}");
        }
        for branch in ["", "a..b", "a b", "a\0", "a\u{7f}", "x.lock", "-/", "@{1}", "~1", &"y".repeat(500)] {
            assert!(matches!(branch_ref(branch), Err(MergeError::BadName { .. })), "{branch:?}");
        }
        for id in ["", "abc", "zz", &"g".repeat(40), &"0".repeat(41)] {
            assert!(commit_id(id).is_err(), "{id:?}");
        }
        for id in ["", "a/b", "..", "a b"] {
            assert!(work_id(id).is_err(), "{id:?}");
        }
        assert!(full_ref("heads/x").is_err());
        assert!(branch_ref("feature/é").is_ok_and(|name| name == "refs/heads/feature/é"));
    }

    #[test]
    fn directories_of_different_names_never_meet() {
        assert_eq!(directory_name("acme/lib"), "acme%2Flib");
        assert_eq!(directory_name("acme%2Flib"), "acme%252Flib");
        assert_eq!(directory_name(".."), "%2E.");
        let long = "é".repeat(100);
        assert!(directory_name(&long).len() < 220);
        assert_ne!(directory_name(&long), directory_name(&format!("{}f", &long[..198])));
    }
}
