//! What became of a build.

use std::path::PathBuf;

use gatelog_record::Timestamp;
use gatelog_room::Lack;
use serde::{Deserialize, Serialize};

pub use crate::returned::Returned;
use crate::size::ByteSize;
use crate::spec::Phase;

/// The verdict on one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BuildResult {
    /// Every run and post playbook succeeded.
    Success,
    /// The job failed.
    Failure(FailureCause),
    /// Pre-run and run together took longer than allowed, and it happened in run.
    TimedOut,
    /// Stopped from outside.
    Aborted,
    /// A post-run playbook failed. Zuul: hides success and failure alike.
    PostFailure,
    /// This attempt says nothing about the change: try again if attempts are left.
    Retry(RetryCause),
    /// The job can not run as it is configured; trying again would not help.
    Error(String),
}

/// Why a build failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureCause {
    /// A run playbook failed.
    Run,
    /// The console grew over its limit.
    OutputLimit,
    /// The build used more memory than it may.
    MemoryLimit,
    /// The build had more processes than it may.
    ProcessLimit,
    /// The build kept more on disk than it may. Zuul: a result of its own, `DISK_FULL`.
    DiskLimit,
    /// The build wrote a secret, and its job does not allow that. Zuul: a result of its own, `SECRET_EXPOSURE`.
    SecretExposure,
    /// A pre-run playbook failed after the job had said `zuul.retry: false`.
    RetryForbidden,
}

/// Why an attempt should be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryCause {
    /// A pre-run playbook failed.
    PreFailed,
    /// The pre-run playbooks took too long.
    PreTimedOut,
    /// The workspace or the sandbox could not be prepared.
    SetupFailed,
    /// A node could not be reached.
    Unreachable,
    /// Something on this host killed Ansible (out of memory, an operator).
    Killed,
    /// This host had no room. `begun`: playbooks of the job had begun. Whoever counts attempts does not count this one.
    NoRoom {
        /// What was lacking.
        lack: Lack,
        /// Whether a playbook of the job had begun.
        begun: bool,
    },
}

impl BuildResult {
    /// Zuul's name of the result. A retry is `RETRY`; whoever counts attempts makes it
    /// `RETRY_LIMIT`.
    pub fn as_str(&self) -> &'static str {
        match self {
            BuildResult::Success => "SUCCESS",
            BuildResult::Failure(FailureCause::DiskLimit) => "DISK_FULL",
            BuildResult::Failure(FailureCause::SecretExposure) => "SECRET_EXPOSURE",
            BuildResult::Failure(_) => "FAILURE",
            BuildResult::TimedOut => "TIMED_OUT",
            BuildResult::Aborted => "ABORTED",
            BuildResult::PostFailure => "POST_FAILURE",
            BuildResult::Retry(_) => "RETRY",
            BuildResult::Error(_) => "ERROR",
        }
    }
}

/// All there is to know about an attempt that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildOutcome {
    /// The verdict.
    pub result: BuildResult,
    /// One sentence more about a verdict that is not success.
    pub detail: Option<String>,
    /// When the attempt began.
    pub started: Timestamp,
    /// When it was over.
    pub ended: Timestamp,
    /// The playbooks that ran, in order.
    pub playbooks: Vec<PlaybookRun>,
    /// What the job returned.
    pub returned: Returned,
    /// The first task that failed for good, if a playbook failed at a task.
    pub failing_task: Option<FailingTask>,
    /// Where console and inventory are kept.
    pub log_dir: PathBuf,
    /// Things a person should know that did not decide the result.
    pub warnings: Vec<String>,
}

/// One playbook that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaybookRun {
    /// When.
    pub phase: Phase,
    /// Which of its phase, from 0.
    pub index: u32,
    /// The canonical name of its project.
    pub project: String,
    /// The branch it was taken from.
    pub branch: String,
    /// Its path in the project.
    pub path: String,
    /// Whether it came from a config project.
    pub trusted: bool,
    /// When it started.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// How.
    pub ending: PlaybookEnding,
}

/// How a playbook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlaybookEnding {
    /// Well.
    Ok,
    /// With a failed task or another error of Ansible's; its exit code.
    Failed(i32),
    /// A node could not be reached.
    Unreachable,
    /// It took too long and was killed.
    TimedOut,
    /// The build was stopped.
    Aborted,
    /// The console grew over its limit and it was killed.
    OutputLimit,
    /// It used more memory than the build may and was killed.
    MemoryLimit,
    /// It had more processes than the build may and was killed.
    ProcessLimit,
    /// It kept more on disk than the build may and was killed.
    DiskLimit,
    /// It wrote a secret, and was killed.
    SecretExposure,
    /// A signal from elsewhere killed it.
    Killed(i32),
    /// The sandbox could not be made.
    NoSandbox,
}

impl PlaybookEnding {
    /// Zuul's word for it on the console.
    pub(crate) fn console_word(self) -> &'static str {
        match self {
            PlaybookEnding::Ok | PlaybookEnding::Failed(_) => "RESULT_NORMAL",
            PlaybookEnding::Unreachable => "RESULT_UNREACHABLE",
            PlaybookEnding::TimedOut => "RESULT_TIMED_OUT",
            PlaybookEnding::Aborted | PlaybookEnding::Killed(_) => "RESULT_ABORTED",
            PlaybookEnding::OutputLimit => "RESULT_OUTPUT_LIMIT",
            PlaybookEnding::MemoryLimit => "RESULT_MEMORY_LIMIT",
            PlaybookEnding::ProcessLimit => "RESULT_PROCESS_LIMIT",
            PlaybookEnding::DiskLimit => "RESULT_DISK_FULL",
            PlaybookEnding::SecretExposure => "RESULT_SECRET_EXPOSURE",
            PlaybookEnding::NoSandbox => "RESULT_NO_SANDBOX",
        }
    }

    /// What a build comes to when this is how one of its playbooks ended; none where that depends on the playbook.
    pub(crate) fn result(self) -> Option<BuildResult> {
        match self {
            PlaybookEnding::Ok | PlaybookEnding::Failed(_) | PlaybookEnding::Unreachable | PlaybookEnding::TimedOut => {
                None
            }
            PlaybookEnding::Aborted => Some(BuildResult::Aborted),
            PlaybookEnding::OutputLimit => Some(BuildResult::Failure(FailureCause::OutputLimit)),
            PlaybookEnding::MemoryLimit => Some(BuildResult::Failure(FailureCause::MemoryLimit)),
            PlaybookEnding::ProcessLimit => Some(BuildResult::Failure(FailureCause::ProcessLimit)),
            PlaybookEnding::DiskLimit => Some(BuildResult::Failure(FailureCause::DiskLimit)),
            PlaybookEnding::SecretExposure => Some(BuildResult::Failure(FailureCause::SecretExposure)),
            PlaybookEnding::Killed(_) => Some(BuildResult::Retry(RetryCause::Killed)),
            PlaybookEnding::NoSandbox => Some(BuildResult::Retry(RetryCause::SetupFailed)),
        }
    }
}

/// Which limit of a build as a whole was broken, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// Bytes of memory.
    Memory { limit: u64, used: u64 },
    /// Processes and threads.
    Processes { limit: u64, used: u64 },
    /// Bytes on disk.
    Disk { limit: u64, used: u64 },
    /// Directories within each other, too many to be measured.
    Depth,
}

impl Breach {
    pub(crate) fn ending(self) -> PlaybookEnding {
        match self {
            Breach::Memory { .. } => PlaybookEnding::MemoryLimit,
            Breach::Processes { .. } => PlaybookEnding::ProcessLimit,
            Breach::Disk { .. } | Breach::Depth => PlaybookEnding::DiskLimit,
        }
    }

    /// What to tell people, with the numbers and a cure.
    pub(crate) fn text(self, playbook: &str) -> String {
        let size = |bytes: u64| ByteSize(bytes).to_string();
        match self {
            Breach::Memory { limit, used } => format!(
                "the job's memory grew to {} in {playbook}; its limit is {} ({limit} bytes): let it use less, or raise job-memory",
                size(used.max(limit)),
                size(limit)
            ),
            Breach::Processes { limit, used } => format!(
                "the job had {used} processes and threads in {playbook}; its limit is {limit}: let it start fewer, or raise job-pids"
            ),
            Breach::Disk { limit, used } => format!(
                "the job kept {} or more on disk in {playbook}; its limit is {} ({limit} bytes): let it write less, or raise job-disk",
                size(used),
                size(limit)
            ),
            Breach::Depth => format!(
                "the job put so many directories into each other in {playbook} that they cannot be measured: let it nest them less deeply"
            ),
        }
    }
}

/// The task at which a playbook failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingTask {
    /// The play's name.
    pub play: String,
    /// The task's name.
    pub task: String,
    /// The host it failed on.
    pub host: String,
    /// What it said, cut to a sentence's length. Nothing for the log of events: it is on the console.
    pub message: String,
    /// The line of the console, from 1, at which its result begins.
    pub line: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_limit_is_told_with_its_number_and_a_cure() {
        let texts = [
            Breach::Memory { limit: 256 << 20, used: 300 << 20 },
            Breach::Processes { limit: 100, used: 163 },
            Breach::Disk { limit: 10 << 30, used: 11 << 30 },
            Breach::Depth,
        ]
        .map(|breach| format!("{}: {}\n", breach.ending().console_word(), breach.text("[x]")));
        assert_eq!(
            texts.concat(),
            "RESULT_MEMORY_LIMIT: the job's memory grew to 300 MiB in [x]; its limit is 256 MiB (268435456 bytes): let it use less, or raise job-memory\n\
             RESULT_PROCESS_LIMIT: the job had 163 processes and threads in [x]; its limit is 100: let it start fewer, or raise job-pids\n\
             RESULT_DISK_FULL: the job kept 11 GiB or more on disk in [x]; its limit is 10 GiB (10737418240 bytes): let it write less, or raise job-disk\n\
             RESULT_DISK_FULL: the job put so many directories into each other in [x] that they cannot be measured: let it nest them less deeply\n"
        );
        assert_eq!(BuildResult::Failure(FailureCause::DiskLimit).as_str(), "DISK_FULL");
        assert_eq!(BuildResult::Failure(FailureCause::MemoryLimit).as_str(), "FAILURE");
    }
}
