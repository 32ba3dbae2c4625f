//! Work at code-review systems and reporters: ask about changes, merge for real, report.

use gatelog_record::draft::gate::{
    ChangesFound, ChangesWanted, ReportRequested, Subject, SubmitOutcome, SubmitRequested, SubmitTarget,
};
use gatelog_rules_config::drivers::BUILT_IN;

use crate::chain::{self, Chain};
use crate::connection::{COMMIT_MISSING, Connections, Landing, Report, Target, Trouble};
use crate::git::{Repositories, trouble};

/// Asks for changes; trouble is an answer too. Addresses that lead to another connection are no dependencies yet.
pub fn find_changes(connections: &Connections, wanted: &ChangesWanted, attempt: u32) -> ChangesFound {
    let found = connections.review(&wanted.connection).and_then(|connection| connection.find_changes(wanted));
    let (work, tenant) = (wanted.work, wanted.tenant.clone());
    match found {
        Ok(found) => {
            ChangesFound { work, attempt, tenant, changes: found.changes, missing: found.missing, failed: None }
        }
        Err(Trouble { code, message, .. }) => ChangesFound {
            work,
            attempt,
            tenant,
            changes: Vec::new(),
            missing: Vec::new(),
            failed: Some((code, message)),
        },
    }
}

/// Moves each branch from what was tested on to what was tested. A branch that has moved ends it:
/// nothing that comes after is touched. `chain` is how what was tested came about: where it was made elsewhere, it is
/// made again here; it is asked for only then.
pub fn submit(
    repositories: &Repositories,
    wanted: &SubmitRequested,
    chain: impl Fn() -> Option<Chain>,
) -> SubmitOutcome {
    let all = |ensured: Option<&Chain>| -> Result<SubmitOutcome, Trouble> {
        if let Some(chain) = ensured {
            chain::ensure(repositories, &format!("submit-{}", wanted.work), chain)?;
        }
        for targets in by_connection(&wanted.targets) {
            if let Some(ended) = submit_to(repositories, wanted, &targets)? {
                return Ok(ended);
            }
        }
        Ok(SubmitOutcome::Merged)
    };
    // Of several branches none moves before all that was tested is here. A single one tells itself when it is not, which
    // is seldom: nearly always it was prepared here.
    let outcome = match wanted.targets.as_slice() {
        [_] => match all(None) {
            Err(missing) if missing.code == COMMIT_MISSING => chain().map_or(Err(missing), |chain| all(Some(&chain))),
            outcome => outcome,
        },
        _ => all(chain().as_ref()),
    };
    outcome.unwrap_or_else(|Trouble { code, message, again, .. }| SubmitOutcome::Failed { code, message, again })
}

/// The targets of each connection, in the order of the first of each: a code-review system may have to merge its own
/// together.
fn by_connection(targets: &[SubmitTarget]) -> Vec<Vec<&SubmitTarget>> {
    let mut all: Vec<Vec<&SubmitTarget>> = Vec::new();
    for target in targets {
        let same = |known: &&mut Vec<&SubmitTarget>| {
            known.first().is_some_and(|first| first.at.connection == target.at.connection)
        };
        match all.iter_mut().find(same) {
            Some(known) => known.push(target),
            None => all.push(vec![target]),
        }
    }
    all
}

/// Merges what is on one connection. `None` when all of it is merged as it was tested; else how it ended.
fn submit_to(
    repositories: &Repositories,
    wanted: &SubmitRequested,
    own: &[&SubmitTarget],
) -> Result<Option<SubmitOutcome>, Trouble> {
    let Some(first) = own.first() else { return Ok(None) };
    let review = repositories.connections.review(&first.at.connection)?;
    let mut targets = Vec::with_capacity(own.len());
    for target in own {
        let key = repositories.key(&target.at.connection, &target.at.project)?;
        let objects = repositories.mirrors.path(&key).map_err(|error| trouble(&error))?;
        targets.push(Target { wanted: target, objects });
    }
    let landings = review.submit_all(wanted.work, &targets)?;
    if landings.len() != targets.len() {
        let connection = &first.at.connection;
        let message = format!("connection {connection} tells of {} targets, not of {}", landings.len(), targets.len());
        return Err(Trouble::new("internal", message));
    }
    let mut held_back = None;
    for (target, landing) in own.iter().zip(landings) {
        match landing {
            Landing::Merged(_) => {}
            Landing::MergedUntested(now) => {
                // The gate has no word for it yet: it is merged, and nothing may be built on its having been tested.
                let (project, branch) = (&target.at.project, &target.at.branch);
                let message = format!("{project} {branch} is at {}, whose content was not tested", now.commit);
                return Ok(Some(SubmitOutcome::Refused { code: "merged-untested".into(), message }));
            }
            Landing::BaseMoved { found } => {
                let expected = target.tested_base.clone();
                return Ok(Some(SubmitOutcome::BaseMoved { at: target.at.clone(), expected, found }));
            }
            Landing::Refused { code, message } => return Ok(Some(SubmitOutcome::Refused { code, message })),
            Landing::Failed(trouble) => return Err(trouble),
            // Because of another, which says why.
            Landing::HeldBack => held_back = Some(target),
        }
    }
    held_back.map_or(Ok(None), |target| {
        let message = format!("{} {} was held back, and nobody says why", target.at.project, target.at.branch);
        Err(Trouble::new("internal", message).again(true))
    })
}

/// Delivers a report to each of its reporters, whatever becomes of the others. `None` when it was delivered: code-review
/// systems are told of their own changes, and one that has none of them is passed over as long as somebody else was told.
pub fn report(connections: &Connections, wanted: &ReportRequested) -> Option<(String, String, bool)> {
    let (mut troubles, mut passed_over, mut told) = (Vec::new(), Vec::new(), false);
    for (name, settings) in &wanted.reporters {
        // What these are told concerns gatelog itself.
        if BUILT_IN.contains(&name.as_str()) {
            told = true;
            continue;
        }
        let reporter = connections.get(name).and_then(|connection| {
            let missing = || Trouble::new("no-reporter", format!("connection {name} takes no reports"));
            connection.reporter.as_ref().ok_or_else(missing)
        });
        let came = reporter.and_then(|reporter| {
            let is_own = |subject: &&Subject| !reporter.only_own() || subject.connection == *name;
            let subjects: Vec<&Subject> = wanted.subjects.iter().filter(is_own).collect();
            if subjects.is_empty() && reporter.only_own() {
                return Ok(false);
            }
            reporter.report(&Report { request: wanted, subjects: &subjects, settings }).map(|()| true)
        });
        match came {
            Ok(true) => told = true,
            Ok(false) => passed_over.push(name.as_str()),
            Err(trouble) => troubles.push(trouble),
        }
    }
    if troubles.is_empty() && !told && !passed_over.is_empty() {
        let message = format!("nobody was told: of {} none has what this is about", passed_over.join(", "));
        troubles.push(Trouble::new("nobody-told", message));
    }
    // What may pass is tried again: then it is said anew what stays.
    troubles.sort_by_key(|trouble| !trouble.again);
    let again = troubles.first()?.again;
    let code = troubles.first()?.code.clone();
    let message = troubles.iter().map(|trouble| trouble.message.as_str()).collect::<Vec<_>>().join("; ");
    Some((code, message, again))
}
