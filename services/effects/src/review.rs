//! Work at code-review systems: ask about changes, merge for real, report.

use gatelog_record::draft::gate::{ChangesFound, ChangesWanted, ReportRequested, SubmitOutcome, SubmitRequested};

use crate::chain::{self, Chain};
use crate::connection::{COMMIT_MISSING, Connections, Trouble};
use crate::git::{Repositories, trouble};

/// Asks for changes; trouble is an answer too.
pub fn find_changes(connections: &Connections, wanted: &ChangesWanted, attempt: u32) -> ChangesFound {
    let found = connections.get(&wanted.connection).and_then(|connection| connection.find_changes(wanted));
    match found {
        Ok(found) => ChangesFound { work: wanted.work, attempt, tenant: wanted.tenant.clone(), ..found },
        Err(Trouble { code, message, .. }) => ChangesFound {
            work: wanted.work,
            attempt,
            tenant: wanted.tenant.clone(),
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
        for target in &wanted.targets {
            let connection = repositories.connections.get(&target.at.connection)?;
            let key = repositories.key(&target.at.connection, &target.at.project)?;
            let objects = repositories.mirrors.path(&key).map_err(|error| trouble(&error))?;
            match connection.submit(wanted.work, target, &objects)? {
                SubmitOutcome::Merged => {}
                other => return Ok(other),
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
    outcome.unwrap_or_else(|Trouble { code, message, again }| SubmitOutcome::Failed { code, message, again })
}

/// Delivers a report to each of its reporters. `None` when all have it.
pub fn report(connections: &Connections, wanted: &ReportRequested) -> Option<(String, String, bool)> {
    for (name, settings) in &wanted.reporters {
        for subject in wanted.subjects.iter().filter(|subject| subject.connection == *name) {
            let told = connections.get(name).and_then(|connection| connection.report(wanted, subject, settings));
            if let Err(Trouble { code, message, again }) = told {
                return Some((code, message, again));
            }
        }
    }
    None
}
