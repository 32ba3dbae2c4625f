//! What the house asks of a code-review system. Each driver's adapter answers it; effects know no
//! driver by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use gatelog_record::draft::gate::{ChangesFound, ChangesWanted, ReportRequested, Subject, SubmitOutcome, SubmitTarget};
use gatelog_record::{Value, WorkId};

/// Why something could not be done, in the form the gate's inputs carry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Trouble {
    /// A code, such as `repository-vanished`.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether trying again may help.
    pub again: bool,
}

impl Trouble {
    /// Trouble that trying again may end.
    pub fn passing(code: impl Into<String>, error: &dyn std::error::Error) -> Trouble {
        Trouble { code: code.into(), message: chain(error), again: true }
    }

    /// Trouble that stays until somebody does something.
    pub fn lasting(code: impl Into<String>, error: &dyn std::error::Error) -> Trouble {
        Trouble { code: code.into(), message: chain(error), again: false }
    }
}

/// An error and all that is behind it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// The code of trouble with a commit that is not where it was said to be: [`CodeReview::submit`].
pub const COMMIT_MISSING: &str = "commit-missing";

/// A code-review system.
pub trait CodeReview: Send + Sync {
    /// The host part of its projects' canonical names.
    fn canonical_hostname(&self) -> &str;

    /// Its driver, as the configuration rules know it (`plain-git`): what pipelines say to it is checked by
    /// that. Of an unknown one, such as the empty name, nothing is checked.
    fn driver(&self) -> &str {
        ""
    }

    /// Where a project (by its name on this connection) can be fetched.
    fn repository(&self, project: &str) -> Result<String, Trouble>;

    /// The closure of changes asked for. `work`, `attempt` and `tenant` of the answer are set by the caller.
    fn find_changes(&self, wanted: &ChangesWanted) -> Result<ChangesFound, Trouble>;

    /// Moves a branch from exactly `tested_base` to exactly `tested_commit`, whose objects are in the
    /// repository at `objects`. Doing it twice is once. Where the commit, or that repository, is not there, nothing is
    /// moved and the trouble is [`COMMIT_MISSING`]: it is made there and asked for again.
    fn submit(&self, work: WorkId, target: &SubmitTarget, objects: &Path) -> Result<SubmitOutcome, Trouble>;

    /// Delivers a report. Doing it twice is once: `work` names it.
    fn report(&self, report: &ReportRequested, subject: &Subject, settings: &Value) -> Result<(), Trouble>;
}

/// The connections of a site, by name.
#[derive(Clone, Default)]
pub struct Connections {
    by_name: BTreeMap<String, Arc<dyn CodeReview>>,
}

impl Connections {
    /// Adds one.
    pub fn add(&mut self, name: impl Into<String>, connection: Arc<dyn CodeReview>) {
        self.by_name.insert(name.into(), connection);
    }

    /// One by name.
    pub fn get(&self, name: &str) -> Result<&Arc<dyn CodeReview>, Trouble> {
        self.by_name.get(name).ok_or_else(|| Trouble {
            code: "unknown-connection".into(),
            message: format!("there is no connection {name:?} in this site's gatelog.toml"),
            again: false,
        })
    }

    /// Every connection.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Arc<dyn CodeReview>)> {
        self.by_name.iter()
    }

    /// A project's name on its connection, from its canonical name.
    pub fn local_name<'p>(&self, connection: &str, canonical: &'p str) -> Result<&'p str, Trouble> {
        let host = self.get(connection)?.canonical_hostname();
        canonical.strip_prefix(host).and_then(|rest| rest.strip_prefix('/')).ok_or_else(|| Trouble {
            code: "wrong-host".into(),
            message: format!("project {canonical} is not on {host}, the host of connection {connection}"),
            again: false,
        })
    }
}
