//! Whether a definition is for a branch, and a job for a set of changed files; each with its reason.

use serde::{Deserialize, Serialize};

use crate::freeze::FreezeSubject;
use crate::layout::Layout;
use crate::objects::Pragma;
use crate::place::Place;
use crate::regexes::Pattern;

/// Why a definition is for the branches it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// `branches` says so.
    Branches,
    /// `implied-branches` of a pragma says so.
    ImpliedBranches,
    /// It stands in a project's list, without `branches`.
    Listed,
    /// A pragma asks for the branch of the file.
    PragmaOn,
    /// A pragma turns implied matchers off.
    PragmaOff,
    /// The tenant asks for the branch of the file.
    TenantOn,
    /// The tenant turns implied matchers off.
    TenantOff,
    /// Nobody wrote it.
    BuiltIn,
    /// A job of a config project.
    ConfigProject,
    /// A stanza or template in a config project.
    InConfigProject,
    /// Its project has always-dynamic branches.
    AlwaysDynamic,
    /// Its project has one branch.
    OneBranch,
    /// Its project has several branches.
    SeveralBranches,
    /// A stanza for the project it stands in.
    InProject,
    /// A stanza or template that stands on that branch.
    OnBranch,
}

impl Why {
    /// The reason in words.
    pub fn words(self) -> &'static str {
        match self {
            Why::Branches => "branches",
            Why::ImpliedBranches => "implied-branches",
            Why::Listed => "it stands in a project's list without `branches`",
            Why::PragmaOn => "a pragma asks for the branch of the file",
            Why::PragmaOff => "a pragma turns implied branch matchers off",
            Why::TenantOn => "the tenant asks for the branch of the file",
            Why::TenantOff => "the tenant turns implied branch matchers off",
            Why::BuiltIn => "it is built in",
            Why::ConfigProject => "it is defined in a config project",
            Why::InConfigProject => "it stands in a config project",
            Why::AlwaysDynamic => "its project has always-dynamic branches",
            Why::OneBranch => "its project has only one branch",
            Why::SeveralBranches => "its project has several branches",
            Why::InProject => "it stands in the project itself",
            Why::OnBranch => "it stands on that branch",
        }
    }
}

/// Which branches a definition is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BranchMatcher {
    /// All.
    Any(Why),
    /// Those a pattern matches; where the patterns come from.
    Patterns(Vec<Pattern>, Why),
    /// Exactly this one.
    Exactly(String, Why),
}

/// What the file matchers of a job say about the files of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAnswer {
    /// The job has none.
    NoMatcher,
    /// The change has no list of files.
    NoList,
    /// This file matches `files`.
    Matches(String),
    /// This file is relevant.
    Relevant(String),
    /// No file matches `files`.
    Differ,
    /// All files are irrelevant.
    Irrelevant,
}

impl FileAnswer {
    /// Whether the job is called for.
    pub fn matched(&self) -> bool {
        !matches!(self, FileAnswer::Differ | FileAnswer::Irrelevant)
    }

    /// Stable identifier of the answer.
    pub fn code(&self) -> &'static str {
        match self {
            FileAnswer::NoMatcher => "no-file-matcher",
            FileAnswer::NoList => "no-file-list",
            FileAnswer::Matches(_) | FileAnswer::Relevant(_) => "files-match",
            FileAnswer::Differ => "files-differ",
            FileAnswer::Irrelevant => "files-irrelevant",
        }
    }

    /// The answer in words.
    pub fn words(&self) -> String {
        match self {
            FileAnswer::NoMatcher => "the job has no file matcher".to_owned(),
            FileAnswer::NoList => "the change has no list of files, so every file matcher passes".to_owned(),
            FileAnswer::Matches(file) => format!("the file {file} matches `files`"),
            FileAnswer::Relevant(file) => format!("the file {file} is relevant"),
            FileAnswer::Differ => "no changed file matches `files`".to_owned(),
            FileAnswer::Irrelevant => "all changed files match `irrelevant-files`".to_owned(),
        }
    }
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
        return BranchMatcher::Patterns(patterns.to_vec(), Why::Branches);
    }
    if project_pipeline {
        return BranchMatcher::Any(Why::Listed);
    }
    implied_matcher(layout, place, pragma)
}

/// The matcher nobody spelt out.
fn implied_matcher(layout: &Layout, place: &Place, pragma: &Pragma) -> BranchMatcher {
    let implied = |why| match &pragma.implied_branches {
        Some(patterns) => BranchMatcher::Patterns(patterns.clone(), Why::ImpliedBranches),
        None => BranchMatcher::Exactly(place.context.branch.clone(), why),
    };
    let project = layout.projects.get(&place.context.project);
    match pragma.implied_branch_matchers {
        Some(true) => return implied(Why::PragmaOn),
        Some(false) => return BranchMatcher::Any(Why::PragmaOff),
        None => {}
    }
    let Some(project) = project else { return BranchMatcher::Any(Why::BuiltIn) };
    match project.implied_branch_matchers {
        Some(true) => return implied(Why::TenantOn),
        Some(false) => return BranchMatcher::Any(Why::TenantOff),
        None => {}
    }
    if project.trusted {
        return BranchMatcher::Any(Why::ConfigProject);
    }
    if !project.always_dynamic_branches.is_empty() {
        return implied(Why::AlwaysDynamic);
    }
    if project.branches.len() == 1 {
        return BranchMatcher::Any(Why::OneBranch);
    }
    implied(Why::SeveralBranches)
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
        return BranchMatcher::Patterns(patterns.to_vec(), Why::Branches);
    }
    if configured == Some(place.context.project.as_str()) {
        if place.context.trusted {
            return BranchMatcher::Any(Why::InConfigProject);
        }
        return BranchMatcher::Exactly(place.context.branch.clone(), Why::InProject);
    }
    let implied = || match &pragma.implied_branches {
        Some(patterns) => BranchMatcher::Patterns(patterns.clone(), Why::ImpliedBranches),
        None => BranchMatcher::Exactly(place.context.branch.clone(), Why::OnBranch),
    };
    match pragma.implied_branch_matchers {
        Some(true) => return implied(),
        Some(false) => return BranchMatcher::Any(Why::PragmaOff),
        None => {}
    }
    if place.context.trusted {
        return BranchMatcher::Any(Why::InConfigProject);
    }
    match layout.projects.get(&place.context.project) {
        Some(project) if project.branches.len() == 1 => BranchMatcher::Any(Why::OneBranch),
        _ => implied(),
    }
}

impl BranchMatcher {
    /// Whether the subject's branch matches; `instead` is a branch to look at in its place.
    ///
    /// Zuul: what has no branch is matched by its ref, then by the branches that contain it.
    pub fn matches(&self, subject: &FreezeSubject, instead: Option<&str>) -> bool {
        let test = |name: &str| match self {
            BranchMatcher::Any(_) => true,
            BranchMatcher::Patterns(patterns, _) => patterns.iter().any(|pattern| pattern.matches(name)),
            BranchMatcher::Exactly(branch, _) => branch == name,
        };
        match instead.or(subject.branch.as_deref()) {
            Some(branch) => test(branch),
            None => test(&subject.reference) || subject.containing_branches.iter().any(|name| test(name)),
        }
    }

    /// Stable identifier of the answer.
    pub fn code(&self, matched: bool) -> &'static str {
        match (self, matched) {
            (BranchMatcher::Any(_), _) => "any-branch",
            (BranchMatcher::Patterns(..), true) => "branch-matches",
            (BranchMatcher::Patterns(..), false) => "branch-differs",
            (BranchMatcher::Exactly(..), true) => "implied-branch-matches",
            (BranchMatcher::Exactly(..), false) => "implied-branch-differs",
        }
    }

    /// The answer in words; `what` was looked at: `branch NAME`, or `ref NAME`.
    pub fn words(&self, matched: bool, what: &str) -> String {
        match self {
            BranchMatcher::Any(why) => format!("it is for all branches: {}", why.words()),
            BranchMatcher::Patterns(patterns, source) => {
                let shown: Vec<String> = patterns.iter().map(Pattern::describe).collect();
                let verb = if matched { "matches" } else { "does not match" };
                format!("{what} {verb} `{}`: {}", source.words(), shown.join(", "))
            }
            BranchMatcher::Exactly(name, why) => {
                let verb = if matched { "is" } else { "is not" };
                format!("{what} {verb} the implied branch {name} ({})", why.words())
            }
        }
    }
}

/// Whether a job is for the files a change touches.
///
/// Zuul: `/COMMIT_MSG` does not count; a change without a list of files, or with an empty one,
/// matches everything; `files: []` matches nothing else.
pub fn files_match(files: Option<&[String]>, wanted: Option<&[Pattern]>, irrelevant: Option<&[Pattern]>) -> FileAnswer {
    if wanted.is_none() && irrelevant.is_none() {
        return FileAnswer::NoMatcher;
    }
    let all: Vec<&str> =
        files.unwrap_or(&[]).iter().map(String::as_str).filter(|file| *file != "/COMMIT_MSG").collect();
    if all.is_empty() {
        return FileAnswer::NoList;
    }
    let any = |patterns: &[Pattern], file: &str| patterns.iter().any(|pattern| pattern.matches(file));
    let mut answer = FileAnswer::NoMatcher;
    if let Some(patterns) = wanted {
        match all.iter().find(|file| any(patterns, file)) {
            Some(file) => answer = FileAnswer::Matches((*file).to_owned()),
            None => return FileAnswer::Differ,
        }
    }
    if let Some(patterns) = irrelevant {
        match all.iter().find(|file| !any(patterns, file)) {
            Some(file) => answer = FileAnswer::Relevant((*file).to_owned()),
            None => return FileAnswer::Irrelevant,
        }
    }
    answer
}
