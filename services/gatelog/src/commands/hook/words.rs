//! Refusals in words: the reason, and what to do instead.

use gatelog_driver_git::{Meaningless, Refusal};
use gatelog_rules_config::problem::did_you_mean;

/// How many branches are named.
const BRANCHES_MAX: usize = 8;
/// How much of a commit's id is shown.
const SHORT: usize = 10;

/// The ref of the forge that was meant, where one was written wrongly.
pub fn misspelt(name: &str) -> Option<String> {
    let (kind, rest) = name.strip_prefix("refs/")?.split_once('/')?;
    if matches!(kind, "heads" | "tags" | "notes" | "for" | "approved" | "gatelog") {
        return None;
    }
    let meant = nearest(kind, ["for", "approved"]);
    meant.map(|meant| format!("refs/{meant}/{rest}"))
}

/// The candidate that was meant by a word, if one is near enough.
fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str> + Clone) -> Option<&'c str> {
    let letters = |text: &str| {
        let mut all: Vec<char> = text.chars().take(200).collect();
        all.sort_unstable();
        all
    };
    // Two letters that changed places count as two in the distance, too many for a short word.
    let swapped = candidates.clone().into_iter().find(|candidate| letters(candidate) == letters(word));
    swapped.or_else(|| did_you_mean(word, candidates))
}

/// The reason, and the cure.
pub fn told(refusal: &Refusal, project: &str, branches: &[String]) -> (String, Option<String>) {
    let name = &refusal.ref_name;
    match &refusal.reason {
        Meaningless::NoBranch { branch, .. } => no_branch(name, branch, project, branches),
        Meaningless::BadName(reason) => (reason.clone(), nameless(name, branches)),
        Meaningless::NotUtf8 => ("its name is not UTF-8".to_owned(), Some("choose a name in UTF-8".to_owned())),
        Meaningless::NoCommit { kind, .. } => {
            let what = match *kind {
                "blob" => "a file (a blob)",
                "tree" => "a directory (a tree)",
                _ => "something else",
            };
            (
                format!("a change is a commit, and this is {what}"),
                Some(format!("push a commit: git push origin HEAD:{name}")),
            )
        }
        Meaningless::InBranch { branch, commit } => (
            format!("{} is in {branch} already: there is nothing to merge", short(commit)),
            Some(format!("commit something on top of {branch}, and push that")),
        ),
        Meaningless::Unrelated { branch, commit } => (
            format!("{} and {branch} have no commit in common: they cannot be merged", short(commit)),
            Some(format!("begin with the branch: git fetch origin {branch} && git rebase --root --onto FETCH_HEAD")),
        ),
        Meaningless::TooManyPatchsets { limit } => (
            format!("the change has {limit} patchsets, and no change may have more"),
            Some("propose it under another name".to_owned()),
        ),
        Meaningless::NoSuchChange { branch, name } => (
            format!("there is no change {name} for {branch} to approve"),
            Some(format!("propose it first: git push origin HEAD:refs/for/{branch}/{name}")),
        ),
        Meaningless::OtherCommit { approved, proposed } => {
            let change = name.replacen("refs/approved/", "refs/for/", 1);
            (
                format!("it approves {}, and what is proposed is {}", short(approved), short(proposed)),
                Some(format!(
                    "look at it, and approve that: git fetch origin {change} && git push origin FETCH_HEAD:{name}"
                )),
            )
        }
        Meaningless::Kept => {
            let read = "read the notes: git fetch origin refs/notes/gatelog:refs/notes/gatelog";
            ("only gatelog writes this ref".to_owned(), name.starts_with("refs/notes/").then(|| read.to_owned()))
        }
        Meaningless::TooDeep => (refusal.reason.to_string(), Some("use fewer slashes in its name".to_owned())),
    }
}

fn no_branch(name: &str, branch: &str, project: &str, branches: &[String]) -> (String, Option<String>) {
    let named = name.rsplit('/').next().unwrap_or_default();
    if branches.is_empty() {
        let reason = format!("{project} has no branch {branch}, nor any other");
        return (
            reason,
            Some(format!("push the branch first, without your change: git push origin COMMIT:refs/heads/{branch}")),
        );
    }
    let reason = format!("{project} has no branch {branch}; it has {}", listed(branches));
    // `refs/for/feature/x` was meant for the branch feature/x.
    let whole = format!("{branch}/{named}");
    let cure = if branches.contains(&whole) {
        format!("a change has a name of its own: refs/for/{whole}/NAME")
    } else if let Some(near) = nearest(branch, branches.iter().map(String::as_str)) {
        format!("did you mean refs/for/{near}/{named}?")
    } else {
        format!("push the branch first, or propose the change for another: refs/for/BRANCH/{named}")
    };
    (reason, Some(cure))
}

/// What helps where a ref's name is that of no change.
fn nameless(name: &str, branches: &[String]) -> Option<String> {
    let rest = name.strip_prefix("refs/for/").or_else(|| name.strip_prefix("refs/approved/"))?;
    let kind = if name.starts_with("refs/for/") { "for" } else { "approved" };
    // As one pushes to Gerrit.
    let branch = rest.split(['%', '/']).next().unwrap_or(rest);
    match branches.iter().find(|one| *one == rest || (!rest.contains('/') && *one == branch)) {
        Some(branch) => Some(format!("a change has a name of its own: refs/{kind}/{branch}/NAME")),
        None if rest.contains('/') => Some("choose another name for the branch or the change".to_owned()),
        None => None,
    }
}

fn listed(branches: &[String]) -> String {
    let shown: Vec<&str> = branches.iter().take(BRANCHES_MAX).map(String::as_str).collect();
    match branches.len().saturating_sub(BRANCHES_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The beginning of a commit's id; what is none is left as it is.
fn short(commit: &str) -> &str {
    let is_id = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { commit.get(..SHORT).unwrap_or(commit) } else { commit }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, reason: Meaningless) -> String {
        let branches = ["main", "feature/x", "stable/1.0"].map(str::to_owned);
        let refusal = Refusal { ref_name: name.to_owned(), reason };
        let (reason, cure) = told(&refusal, "app", &branches);
        format!("{reason} | {}", cure.unwrap_or_default())
    }

    #[test]
    fn a_branch_that_is_not_there_is_named_with_those_that_are_and_the_nearest() {
        let none = |name: &str, branch: &str| {
            said(name, Meaningless::NoBranch { project: "app".to_owned(), branch: branch.to_owned() })
        };
        let has = "it has main, feature/x, stable/1.0";
        assert_eq!(
            none("refs/for/mian/fix", "mian"),
            format!("app has no branch mian; {has} | did you mean refs/for/main/fix?")
        );
        assert!(none("refs/for/feature/x", "feature").ends_with("a name of its own: refs/for/feature/x/NAME"));
        assert!(none("refs/for/unheard/fix", "unheard").contains("push the branch first, or propose"));
    }

    #[test]
    fn a_ref_that_is_written_wrongly_is_understood() {
        assert_eq!(misspelt("refs/fro/main/fix").as_deref(), Some("refs/for/main/fix"));
        assert_eq!(misspelt("refs/or/main/fix").as_deref(), Some("refs/for/main/fix"));
        assert_eq!(misspelt("refs/aproved/main/fix").as_deref(), Some("refs/approved/main/fix"));
        for fine in
            ["refs/heads/for", "refs/for/main/fix", "refs/notes/commits", "refs/changes/1/1/1", "refs/stash", "HEAD"]
        {
            assert_eq!(misspelt(fine), None, "{fine}");
        }
        let gerrit = said("refs/for/main%topic=x", Meaningless::BadName("push to refs/for/<branch>/<name>".to_owned()));
        assert!(gerrit.ends_with("refs/for/main/NAME"), "{gerrit}");
    }
}
