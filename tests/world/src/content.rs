//! What repositories hold, as small as it can be: trees of numbered lines, patches that say what a
//! line was and what it shall be, commits named after all that went into them.

use std::collections::BTreeMap;

use gatelog_record::BlobHash;

/// A file: its lines by number.
pub type File = BTreeMap<u32, String>;

/// Everything at one commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Files by path; one without lines is not there.
    pub files: BTreeMap<String, File>,
}

/// One line changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The file.
    pub path: String,
    /// The line.
    pub line: u32,
    /// What it was.
    pub before: Option<String>,
    /// What it becomes.
    pub after: Option<String>,
}

impl Tree {
    /// One line.
    pub fn line(&self, path: &str, line: u32) -> Option<&str> {
        self.files.get(path)?.get(&line).map(String::as_str)
    }

    /// The whole text of a file.
    pub fn text(&self, path: &str) -> Option<String> {
        let lines = self.files.get(path)?;
        Some(lines.values().map(|line| format!("{line}\n")).collect())
    }

    /// Its name: equal content, equal name.
    pub fn id(&self) -> String {
        let mut text = String::new();
        for (path, lines) in &self.files {
            for (number, line) in lines {
                text.push_str(&format!("{path:?} {number} {line:?}\n"));
            }
        }
        short(&text)
    }

    /// The tree with a patch on top. A line that is neither what it was nor what it shall be is a
    /// conflict; the error holds the paths.
    ///
    /// # Errors
    /// The paths in conflict.
    pub fn patched(&self, patch: &[Edit]) -> Result<Tree, Vec<String>> {
        let mut tree = self.clone();
        let mut conflicts = Vec::new();
        for edit in patch {
            let now = self.line(&edit.path, edit.line);
            if now == edit.after.as_deref() {
                continue;
            }
            if now != edit.before.as_deref() {
                if !conflicts.contains(&edit.path) {
                    conflicts.push(edit.path.clone());
                }
                continue;
            }
            let file = tree.files.entry(edit.path.clone()).or_default();
            match &edit.after {
                Some(line) => file.insert(edit.line, line.clone()),
                None => file.remove(&edit.line),
            };
            if file.is_empty() {
                tree.files.remove(&edit.path);
            }
        }
        if conflicts.is_empty() { Ok(tree) } else { Err(conflicts) }
    }
}

/// A commit.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Its content.
    pub tree: Tree,
    /// What it was put on.
    pub parents: Vec<String>,
}

/// All commits there are, whoever made them.
#[derive(Clone, Debug, Default)]
pub struct Commits {
    commits: BTreeMap<String, Commit>,
}

impl Commits {
    /// Makes a commit; the same content, parents and reason give the same name.
    pub fn add(&mut self, tree: Tree, parents: Vec<String>, why: &str) -> String {
        let name = short(&format!("{} {parents:?} {why}", tree.id()));
        self.commits.insert(name.clone(), Commit { tree, parents });
        name
    }

    /// The tree of a commit.
    pub fn tree(&self, commit: &str) -> Option<&Tree> {
        self.commits.get(commit).map(|commit| &commit.tree)
    }

    /// Whether a commit is another or stands somewhere before it.
    pub fn contains(&self, tip: &str, commit: &str) -> bool {
        let mut seen = std::collections::BTreeSet::new();
        let mut todo = vec![tip];
        while let Some(name) = todo.pop() {
            if name == commit {
                return true;
            }
            if seen.insert(name) {
                todo.extend(self.commits.get(name).into_iter().flat_map(|one| one.parents.iter().map(String::as_str)));
            }
        }
        false
    }

    /// Merges a commit that carries a patch into another. What is contained already changes nothing.
    ///
    /// # Errors
    /// The paths in conflict.
    pub fn merge(&mut self, onto: &str, commit: &str, patch: &[Edit], why: &str) -> Result<String, Vec<String>> {
        if self.contains(onto, commit) {
            return Ok(onto.to_owned());
        }
        let tree = self.tree(onto).cloned().unwrap_or_default().patched(patch)?;
        Ok(self.add(tree, vec![onto.to_owned(), commit.to_owned()], why))
    }
}

/// Forty hex digits, as a commit has.
pub fn short(text: &str) -> String {
    let mut name = BlobHash::of(text.as_bytes()).to_string();
    name.truncate(40);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(path: &str, line: u32, before: Option<&str>, after: Option<&str>) -> Edit {
        Edit { path: path.into(), line, before: before.map(Into::into), after: after.map(Into::into) }
    }

    #[test]
    fn patches_to_different_lines_go_together_in_any_order() {
        let base = Tree::default().patched(&[edit("a", 1, None, Some("x")), edit("a", 2, None, Some("y"))]).unwrap();
        let (one, two) = ([edit("a", 1, Some("x"), Some("X"))], [edit("a", 2, Some("y"), None)]);
        let forth = base.patched(&one).unwrap().patched(&two).unwrap();
        let back = base.patched(&two).unwrap().patched(&one).unwrap();
        assert_eq!(forth, back);
        assert_eq!(forth.id(), back.id());
        assert_eq!(forth.text("a").as_deref(), Some("X\n"));
        assert_ne!(forth.id(), base.id());
    }

    #[test]
    fn patches_to_one_line_conflict_unless_they_agree() {
        let base = Tree::default().patched(&[edit("a", 1, None, Some("x"))]).unwrap();
        let one = base.patched(&[edit("a", 1, Some("x"), Some("1"))]).unwrap();
        assert_eq!(one.patched(&[edit("a", 1, Some("x"), Some("2"))]), Err(vec!["a".to_owned()]));
        assert_eq!(one.patched(&[edit("a", 1, Some("x"), Some("1"))]), Ok(one.clone()));
        // Two who add the same file with other content.
        assert_eq!(one.patched(&[edit("a", 1, None, Some("3"))]), Err(vec!["a".to_owned()]));
        let gone = one.patched(&[edit("a", 1, Some("1"), None)]).unwrap();
        assert_eq!(gone, Tree::default());
    }

    #[test]
    fn a_merge_has_the_same_name_wherever_it_is_made_and_nothing_is_merged_twice() {
        let mut commits = Commits::default();
        let base = commits.add(Tree::default(), Vec::new(), "base");
        let patch = [edit("a", 1, None, Some("x"))];
        let tree = Tree::default().patched(&patch).unwrap();
        let change = commits.add(tree, vec![base.clone()], "change");
        let merged = commits.merge(&base, &change, &patch, "2026").unwrap();
        assert_eq!(commits.merge(&base, &change, &patch, "2026").unwrap(), merged);
        assert_ne!(commits.merge(&base, &change, &patch, "2027").unwrap(), merged);
        assert_eq!(commits.merge(&merged, &change, &patch, "2027").unwrap(), merged);
        assert!(commits.contains(&merged, &base) && commits.contains(&merged, &change));
        assert!(!commits.contains(&base, &merged));
        let other = [edit("a", 1, None, Some("y"))];
        let tree = Tree::default().patched(&other).unwrap();
        let rival = commits.add(tree, vec![base], "rival");
        assert_eq!(commits.merge(&merged, &rival, &other, "2026"), Err(vec!["a".to_owned()]));
    }
}
