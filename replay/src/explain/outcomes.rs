//! What became of short work, in a sentence.

use gatelog_record::draft::gate::{FreezeOutcome, PrepareOutcome, SubmitOutcome};

use super::say::{commit_name, count, list, or, subject};

pub(super) fn prepared(outcome: &PrepareOutcome) -> String {
    match outcome {
        PrepareOutcome::Merged(state) => {
            let branches = state.branches.iter().map(|branch| {
                let (base, commit) = (commit_name(&branch.base), commit_name(&branch.commit));
                format!("{} of {} at {base} becomes {commit}", branch.at.branch, branch.at.project)
            });
            format!("prepared: {}", branches.collect::<Vec<_>>().join(", "))
        }
        PrepareOutcome::Conflict { subject: which, paths, .. } => {
            format!("{} does not merge: conflict in {}", subject(which), or(&paths.join(", "), "its history"))
        }
        PrepareOutcome::Failed { code, message, again } => {
            let again = if *again { "; it is tried again" } else { "" };
            format!("could not be prepared: {message} [{code}]{again}")
        }
    }
}

pub(super) fn frozen(outcome: &FreezeOutcome) -> String {
    match outcome {
        FreezeOutcome::Frozen { jobs, .. } => {
            let names = list(jobs.iter().map(|job| job.name.as_str()));
            format!("{}: {names}", count(jobs.len(), "job"))
        }
        FreezeOutcome::NoJobs { in_pipeline: true, .. } => "no job runs: none matches".to_owned(),
        FreezeOutcome::NoJobs { in_pipeline: false, .. } => {
            "no job runs: the project is not in this pipeline".to_owned()
        }
        FreezeOutcome::Refused { message, .. } => format!("jobs cannot be frozen: {message}"),
        FreezeOutcome::Failed { code, message, again } => {
            let again = if *again { "; it is tried again" } else { "" };
            format!("jobs could not be frozen: {message} [{code}]{again}")
        }
    }
}

pub(super) fn submitted(outcome: &SubmitOutcome) -> String {
    match outcome {
        SubmitOutcome::Merged => "merged exactly what was tested".to_owned(),
        SubmitOutcome::BaseMoved { at, expected, found } => {
            let found = found.as_deref().map_or("gone".to_owned(), |found| format!("at {}", commit_name(found)));
            let expected = commit_name(expected);
            format!("was not merged: {} of {} was tested at {expected} and is {found}", at.branch, at.project)
        }
        SubmitOutcome::Refused { code, message } => format!("was not merged: {message} [{code}]"),
        SubmitOutcome::Failed { code, message, again } => {
            let again = if *again { "; it is tried again" } else { "" };
            format!("could not be merged: {message} [{code}]{again}")
        }
    }
}
