//! What the git program makes of two commits, in a work tree as a person (or Zuul) uses it.

use std::path::Path;

use gatelog_merging::MergeMode;

use super::{git, try_git};

/// The tree that `git merge-tree` gets with these attribute files and no others lying in the work
/// tree, or none for a conflict; and what it says. Of what lies there git reads nothing else when it
/// merges.
pub fn by_merge_tree(
    work: &Path,
    attributes: &[(String, git2::Oid)],
    ours: &str,
    theirs: &str,
) -> (Option<String>, String) {
    let repo = git2::Repository::open(work).unwrap();
    for (path, id) in attributes {
        let path = work.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, repo.find_blob(*id).unwrap().content()).unwrap();
    }
    let output = try_git(work, &["merge-tree", "--write-tree", ours, theirs]);
    for (path, _) in attributes {
        std::fs::remove_file(work.join(path)).unwrap();
    }
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let tree = output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    assert!(tree.is_some() || output.status.code() == Some(1) || text.contains("unrelated"), "{text}");
    (tree, text)
}

/// The tree that git leaves in a work tree, or none for a conflict; and what it says.
pub fn by_work_tree(work: &Path, mode: MergeMode, ours: &str, theirs: &str) -> (Option<String>, String) {
    use MergeMode::{CherryPick, Merge, MergeResolve, Rebase, RebaseFirstParent, SquashMerge};
    let repo = git2::Repository::open(work).unwrap();
    let is_merge = repo.find_commit(git2::Oid::from_str(theirs).unwrap()).unwrap().parent_count() > 1;
    let mode = match mode {
        CherryPick if is_merge => MergeResolve,
        RebaseFirstParent if is_merge => Merge,
        RebaseFirstParent => Rebase,
        mode => mode,
    };
    git(work, &["checkout", "-q", "-f", "--detach", if mode == Rebase { theirs } else { ours }]);
    git(work, &["clean", "-q", "-ffdx"]);
    let args: &[&str] = match mode {
        Rebase | RebaseFirstParent => &["rebase", "-q", ours],
        Merge => &["merge", "-q", "-m", "m", theirs],
        MergeResolve => &["merge", "-q", "-s", "resolve", "-m", "m", theirs],
        SquashMerge => &["merge", "-q", "--squash", theirs],
        CherryPick => &["cherry-pick", "--keep-redundant-commits", theirs],
    };
    let output = try_git(work, args);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        return (Some(git(work, &["write-tree"])), said);
    }
    for command in ["rebase", "cherry-pick", "merge"] {
        let _ = try_git(work, &[command, "--abort"]);
    }
    git(work, &["reset", "-q", "--hard"]);
    (None, said)
}
