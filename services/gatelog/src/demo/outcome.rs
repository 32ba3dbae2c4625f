//! How the story went, and whether it went as told.

use serde::Serialize;

/// What became of one change.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChangeOutcome {
    /// Its name.
    pub name: &'static str,
    /// Its project.
    pub project: &'static str,
    /// What it is in the story.
    pub role: &'static str,
    /// What `check` said.
    pub check: Option<String>,
    /// What `gate` said.
    pub gate: Option<String>,
    /// Whether its commit is in the branch.
    pub merged: bool,
    /// Builds of it in `gate`, with the results of all attempts and resets.
    pub gate_builds: Vec<String>,
    /// Reports on its commit, from the git notes.
    pub reports: usize,
}

/// A change that was tested again.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TestedAgain {
    /// Its name.
    pub name: String,
    /// Why, in a sentence.
    pub why: String,
}

/// What one of several processes did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessOutcome {
    /// Its name.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Its roles.
    pub roles: Vec<crate::roles::Role>,
    /// How many attempts of builds it ran.
    pub attempts: usize,
}

/// How the story went.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Whether everything went as told.
    pub ok: bool,
    /// What did not.
    pub problems: Vec<String>,
    /// The changes, in the order of the story.
    pub changes: Vec<ChangeOutcome>,
    /// Changes that were tested again in `gate`, and why.
    pub tested_again: Vec<TestedAgain>,
    /// Changes in the order in which they merged.
    pub merge_order: Vec<String>,
    /// Milliseconds from the server's start to the start of the first job.
    pub first_job_ms: Option<u64>,
    /// Milliseconds from the server's start to the end of the story.
    pub story_ms: u64,
    /// The site's directory.
    pub site: String,
    /// The API.
    pub url: String,
    /// How many events the gate decided.
    pub events: u64,
    /// The processes of the site, when there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessOutcome>,
}
