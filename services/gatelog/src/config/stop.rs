//! `[stop]`: how a process of the site ends.

use std::time::Duration;

use serde::Deserialize;

/// What SIGTERM (and Ctrl-C) asks of a process. Zuul: `sigterm_method` of its executor and merger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SigtermMethod {
    /// It stops at once: builds are stopped and begin again elsewhere, or with the next start.
    #[default]
    Stop,
    /// It drains first; the second SIGTERM stops it at once.
    Graceful,
}

/// How a process ends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StopSection {
    /// What SIGTERM asks of it.
    #[serde(default)]
    pub sigterm_method: SigtermMethod,
    /// How long a process that drains waits for its builds, in seconds; then it stops at once.
    #[serde(default = "default_limit")]
    pub drain_limit: u64,
}

/// As long as a build takes at most where nobody says otherwise. Zuul: `max-job-timeout`.
fn default_limit() -> u64 {
    10_800
}

impl Default for StopSection {
    fn default() -> Self {
        StopSection { sigterm_method: SigtermMethod::default(), drain_limit: default_limit() }
    }
}

impl StopSection {
    /// How long draining may take.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.drain_limit)
    }
}
