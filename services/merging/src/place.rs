//! What makes a directory a repository, written at once and without libgit2: it would write the configuration anew for
//! every key, and look for what cannot be there yet.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use git2::Oid;

use crate::mirrors::Identity;

/// A repository without objects and files, that leads nowhere.
pub(crate) struct Skeleton<'a> {
    /// The name on commits made there.
    pub(crate) identity: &'a Identity,
    /// The branch that is checked out and its whole name; `None`: none is.
    pub(crate) upstream: Option<(&'a str, &'a str)>,
    /// The commit that is checked out.
    pub(crate) head: &'a str,
    /// All refs, as whole names.
    pub(crate) refs: &'a BTreeMap<String, Oid>,
}

impl Skeleton<'_> {
    /// Writes it. An error names the place.
    pub(crate) fn write(&self, work_tree: &Path) -> Result<(), (PathBuf, io::Error)> {
        let git = work_tree.join(".git");
        for directory in
            ["", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags", "info", "hooks"]
        {
            let path = git.join(directory);
            fs::create_dir(&path).map_err(|error| (path, error))?;
        }
        let head = self.upstream.map_or_else(|| format!("{}\n", self.head), |(_, name)| format!("ref: {name}\n"));
        for (name, text) in [("config", self.config()), ("packed-refs", self.packed_refs()), ("HEAD", head)] {
            let path = git.join(name);
            fs::write(&path, text).map_err(|error| (path, error))?;
        }
        Ok(())
    }

    fn config(&self) -> String {
        let (name, email) = (quoted(&self.identity.name), quoted(&self.identity.email));
        let mut text = format!(
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
             [remote \"origin\"]\n\turl = file:///dev/null\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
             [user]\n\tname = {name}\n\temail = {email}\n"
        );
        if let Some((branch, merge)) = self.upstream {
            // A name between quotes knows no other escape than these two.
            let branch = branch.replace('\\', "\\\\").replace('"', "\\\"");
            // Writing to a String cannot fail.
            let _ = write!(text, "[branch \"{branch}\"]\n\tremote = origin\n\tmerge = {}\n", quoted(merge));
        }
        text
    }

    fn packed_refs(&self) -> String {
        let mut text = String::from("# pack-refs with: sorted \n");
        for (name, id) in self.refs {
            let _ = writeln!(text, "{id} {name}");
        }
        text
    }
}

/// A value as git's configuration has it. It cannot hold the character 0.
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for character in value.chars().filter(|character| *character != '\0') {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_reads_what_was_written_whatever_is_in_the_names() {
        let folder = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let output =
                std::process::Command::new("git").arg("-C").arg(folder.path()).args(arguments).output().unwrap();
            assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned()
        };
        let identity =
            Identity { name: "A \"quoted\" \\ name # ; ü\nand\tmore ".into(), email: "ci@example.org".into() };
        let id = Oid::from_str(&"1".repeat(40)).unwrap();
        let branch = "feature/\"x\";#='";
        let merge = format!("refs/heads/{branch}");
        let refs = BTreeMap::from([(merge.clone(), id), ("refs/tags/v1".to_owned(), id)]);
        let skeleton = Skeleton { identity: &identity, upstream: Some((branch, &merge)), head: "", refs: &refs };
        skeleton.write(folder.path()).unwrap();
        assert_eq!(git(&["config", "user.name"]), identity.name);
        assert_eq!(git(&["config", &format!("branch.{branch}.merge")]), merge);
        assert_eq!(git(&["symbolic-ref", "HEAD"]), merge);
        assert_eq!(git(&["rev-parse", "v1"]), id.to_string());
        assert_eq!(git(&["rev-parse", "--is-bare-repository"]), "false");
        let config = git2::Config::open(&folder.path().join(".git/config")).unwrap();
        assert_eq!(config.get_string("user.name").unwrap(), identity.name);
        let (path, _) = skeleton.write(folder.path()).unwrap_err();
        assert_eq!(path, folder.path().join(".git/"));
    }
}
