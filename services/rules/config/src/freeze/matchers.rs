//! Whether a definition is for a branch, and a job for a set of changed files; each with its reason.

use crate::freeze::FreezeSubject;
use crate::layout::Layout;
use crate::objects::Pragma;
use crate::place::Place;
use crate::regexes::Pattern;

/// Which branches a definition is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchMatcher {
    /// All; why.
    Any(&'static str),
    /// Those a pattern matches; where the patterns come from.
    Patterns(Vec<Pattern>, &'static str),
    /// Exactly this one; why.
    Exactly(String, &'static str),
}

/// An answer with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Yes or no.
    pub matched: bool,
    /// Stable identifier of the reason.
    pub code: &'static str,
    /// The reason, one sentence.
    pub reason: String,
}

/// The matcher of a job or template definition.
///
/// Zuul: explicit branches; else none in a project's list; else what pragma or tenant say; else none
/// in a config project; else the branch of the file, unless its project has only one.
pub fn definition_matcher(
    layout: &Layout,
    place: &Place,
    explicit: Option<&[Pattern]>,
    pragma: &Pragma,
    project_pipeline: bool,
) -> BranchMatcher {
    if let Some(patterns) = explicit {
        return BranchMatcher::Patterns(patterns.to_vec(), "branches");
    }
    if project_pipeline {
        return BranchMatcher::Any("it stands in a project's list without `branches`");
    }
    implied_matcher(layout, place, pragma)
}

/// The matcher nobody spelt out.
fn implied_matcher(layout: &Layout, place: &Place, pragma: &Pragma) -> BranchMatcher {
    let implied = |why| match &pragma.implied_branches {
        Some(patterns) => BranchMatcher::Patterns(patterns.clone(), "implied-branches"),
        None => BranchMatcher::Exactly(place.context.branch.clone(), why),
    };
    let project = layout.projects.get(&place.context.project);
    match pragma.implied_branch_matchers {
        Some(true) => return implied("a pragma asks for the branch of the file"),
        Some(false) => return BranchMatcher::Any("a pragma turns implied branch matchers off"),
        None => {}
    }
    let Some(project) = project else { return BranchMatcher::Any("it is built in") };
    match project.implied_branch_matchers {
        Some(true) => return implied("the tenant asks for the branch of the file"),
        Some(false) => return BranchMatcher::Any("the tenant turns implied branch matchers off"),
        None => {}
    }
    if project.trusted {
        return BranchMatcher::Any("it is defined in a config project");
    }
    if !project.always_dynamic_branches.is_empty() {
        return implied("its project has always-dynamic branches");
    }
    if project.branches.len() == 1 {
        return BranchMatcher::Any("its project has only one branch");
    }
    implied("its project has several branches")
}

/// The matcher of a project stanza (`configured` is the project it is for) or of a template.
///
/// Zuul: pragmas do not count where a project configures itself, and what the tenant says about
/// implied branch matchers counts for jobs only.
pub fn stanza_matcher(
    layout: &Layout,
    place: &Place,
    explicit: Option<&[Pattern]>,
    pragma: &Pragma,
    configured: Option<&str>,
) -> BranchMatcher {
    if let Some(patterns) = explicit {
        return BranchMatcher::Patterns(patterns.to_vec(), "branches");
    }
    if configured == Some(place.context.project.as_str()) {
        if place.context.trusted {
            return BranchMatcher::Any("it stands in a config project");
        }
        return BranchMatcher::Exactly(place.context.branch.clone(), "it stands in the project itself");
    }
    let implied = || match &pragma.implied_branches {
        Some(patterns) => BranchMatcher::Patterns(patterns.clone(), "implied-branches"),
        None => BranchMatcher::Exactly(place.context.branch.clone(), "it stands on that branch"),
    };
    match pragma.implied_branch_matchers {
        Some(true) => return implied(),
        Some(false) => return BranchMatcher::Any("a pragma turns implied branch matchers off"),
        None => {}
    }
    if place.context.trusted {
        return BranchMatcher::Any("it stands in a config project");
    }
    match layout.projects.get(&place.context.project) {
        Some(project) if project.branches.len() == 1 => BranchMatcher::Any("its project has only one branch"),
        _ => implied(),
    }
}

impl BranchMatcher {
    /// Whether the subject's branch matches; `instead` is a branch to look at in its place.
    pub fn matches(&self, subject: &FreezeSubject, instead: Option<&str>) -> Answer {
        let branch = instead.or(subject.branch.as_deref());
        let found = |test: &dyn Fn(&str) -> bool| -> (bool, String) {
            match branch {
                Some(branch) => (test(branch), format!("branch {branch}")),
                None => {
                    let hit = test(&subject.reference) || subject.containing_branches.iter().any(|name| test(name));
                    (hit, format!("ref {}", subject.reference))
                }
            }
        };
        match self {
            BranchMatcher::Any(why) => {
                Answer { matched: true, code: "any-branch", reason: format!("it is for all branches: {why}") }
            }
            BranchMatcher::Patterns(patterns, source) => {
                let (matched, what) = found(&|name| patterns.iter().any(|pattern| pattern.matches(name)));
                let shown: Vec<String> = patterns.iter().map(Pattern::describe).collect();
                let verb = if matched { "matches" } else { "does not match" };
                Answer {
                    matched,
                    code: if matched { "branch-matches" } else { "branch-differs" },
                    reason: format!("{what} {verb} `{source}`: {}", shown.join(", ")),
                }
            }
            BranchMatcher::Exactly(name, why) => {
                let (matched, what) = found(&|branch| branch == name);
                let verb = if matched { "is" } else { "is not" };
                Answer {
                    matched,
                    code: if matched { "implied-branch-matches" } else { "implied-branch-differs" },
                    reason: format!("{what} {verb} the implied branch {name} ({why})"),
                }
            }
        }
    }
}

/// Whether a job is for the files a change touches.
///
/// Zuul: `/COMMIT_MSG` does not count; a change without a list of files, or with an empty one,
/// matches everything; `files: []` matches nothing else.
pub fn files_match(files: Option<&[String]>, wanted: Option<&[Pattern]>, irrelevant: Option<&[Pattern]>) -> Answer {
    let yes = |code, reason: String| Answer { matched: true, code, reason };
    let no = |code, reason: String| Answer { matched: false, code, reason };
    if wanted.is_none() && irrelevant.is_none() {
        return yes("no-file-matcher", "the job has no file matcher".to_owned());
    }
    let all: Vec<&str> =
        files.unwrap_or(&[]).iter().map(String::as_str).filter(|file| *file != "/COMMIT_MSG").collect();
    if all.is_empty() {
        return yes("no-file-list", "the change has no list of files, so every file matcher passes".to_owned());
    }
    let any = |patterns: &[Pattern], file: &str| patterns.iter().any(|pattern| pattern.matches(file));
    let mut reason = "no file is irrelevant alone".to_owned();
    if let Some(patterns) = wanted {
        match all.iter().find(|file| any(patterns, file)) {
            Some(file) => reason = format!("the file {file} matches `files`"),
            None => return no("files-differ", "no changed file matches `files`".to_owned()),
        }
    }
    if let Some(patterns) = irrelevant {
        match all.iter().find(|file| !any(patterns, file)) {
            Some(file) => reason = format!("the file {file} is relevant"),
            None => return no("files-irrelevant", "all changed files match `irrelevant-files`".to_owned()),
        }
    }
    yes("files-match", reason)
}
