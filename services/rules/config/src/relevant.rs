//! What is wrong with a change's configuration, and not with what was there before it.

use std::collections::BTreeSet;

use crate::place::SourceContext;
use crate::problem::{Problem, Severity};

/// What of the problems of a layout concerns a change that would be tested with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relevant<'p> {
    /// Errors: they keep the change from being tested.
    pub errors: Vec<&'p Problem>,
    /// Warnings, and older spellings that the change itself brings: they are told with its report.
    pub warnings: Vec<&'p Problem>,
}

/// What concerns a change out of all `problems` of the layout it would be tested with.
///
/// Zuul: that concerns it which is not among those of the layout ahead, and everything in a branch of a project that it
/// changes itself (`changed`: canonical name and branch): who mends one of two errors there wants to know of the other.
/// Zuul tells warnings only beside an error somewhere in the tenant, whosever it is; here they are told in any case. What
/// is no more than a notice is told where the change brings it, and not each time its branch is touched.
pub fn relevant<'p>(problems: &'p [Problem], ahead: &[Problem], changed: &BTreeSet<(String, String)>) -> Relevant<'p> {
    let known: BTreeSet<Essence<'_>> = ahead.iter().map(essence).collect();
    let mut found = Relevant::default();
    for problem in problems {
        let context = &problem.place.context;
        let here = changed.contains(&(context.project.clone(), context.branch.clone()));
        let fresh = !known.contains(&essence(problem));
        match problem.severity {
            Severity::Error if fresh || here => found.errors.push(problem),
            Severity::Warning if fresh || here => found.warnings.push(problem),
            Severity::Notice if fresh && here => found.warnings.push(problem),
            _ => {}
        }
    }
    found
}

/// The errors alone.
pub fn relevant_errors<'p>(
    problems: &'p [Problem],
    ahead: &[Problem],
    changed: &BTreeSet<(String, String)>,
) -> Vec<&'p Problem> {
    relevant(problems, ahead, changed).errors
}

type Essence<'p> = (Severity, &'p SourceContext, &'p str, &'p str, Option<&'p str>);

/// What makes a problem the same: not its line, which what is written above it moves.
fn essence(problem: &Problem) -> Essence<'_> {
    (problem.severity, &problem.place.context, &problem.code, &problem.message, problem.attribute.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;
    use crate::shared::Shared;

    fn error(project: &str, line: u32, message: &str) -> Problem {
        let context = SourceContext { project: project.into(), branch: "master".into(), ..SourceContext::default() };
        Problem::error("code", "Unknown", Place { context: Shared::new(context), line, column: 1 }, message)
    }

    fn told(problems: &[Problem], ahead: &[Problem], changed: &[&str]) -> Vec<String> {
        let changed = changed.iter().map(|project| ((*project).to_owned(), "master".to_owned())).collect();
        relevant_errors(problems, ahead, &changed).iter().map(|problem| problem.message.clone()).collect()
    }

    #[test]
    fn what_was_wrong_before_is_not_told_but_in_the_branch_that_is_changed() {
        let ahead = [error("app", 3, "old"), error("lib", 9, "other")];
        let now = [error("app", 5, "old"), error("lib", 9, "other"), error("conf", 1, "new")];
        assert_eq!(told(&now, &ahead, &["conf"]), ["new"]);
        assert_eq!(told(&now, &ahead, &["app"]), ["old", "new"]);
        assert_eq!(told(&now, &ahead, &[]), ["new"]);
        assert!(told(&ahead, &now, &[]).is_empty());
    }

    #[test]
    fn a_line_further_down_makes_no_new_error_and_another_file_does() {
        let mut elsewhere = error("app", 3, "old");
        elsewhere.place.context =
            Shared::new(SourceContext { path: "b.yaml".into(), ..(*elsewhere.place.context).clone() });
        assert!(told(&[error("app", 99, "old")], &[error("app", 3, "old")], &[]).is_empty());
        assert_eq!(told(&[elsewhere], &[error("app", 3, "old")], &[]), ["old"]);
    }
}
