//! The course of a build: set-up, pre-run, run, post-run, cleanup, and the verdict.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gatelog_log_files::manifest::RESULTS;
use gatelog_record::Value;
use gatelog_room::{Lack, without_paths};
use serde::Deserialize;
use tokio::time::Instant;

use crate::agent::Agent;
use crate::ansible::Course;
use crate::console::{Console, ConsoleReader, now};
use crate::control::{AbortReason, BuildControl};
use crate::executor::{Assigned, Registration};
use crate::git_traps::Repositories;
use crate::group::Group;
use crate::home::{self, HomeWarnings};
use crate::homes::Homes;
use crate::jobdir::{JobDir, read_limited};
use crate::json_output::{JsonOutput, Shape};
use crate::mask::{self, Mask};
use crate::outcome::{
    BuildOutcome, BuildResult, FailingTask, FailureCause, PlaybookEnding, PlaybookRun, RetryCause, Returned,
};
use crate::play::Played;
use crate::playbooks::PlaybookInPlace;
use crate::setup::{Ready, failed};
use crate::spec::{BuildSpec, Phase, SecretExposure, Timeouts};
use crate::stopwatch::Stopwatch;
use crate::variables;
use crate::workspace::Workspace;

/// The least that post-run playbooks may write when the console is full.
const LAST_WORDS: u64 = 64 << 10;

/// One attempt of one build, ready to run. Dropping it, or the future of [`run`](Build::run), kills
/// its processes; its directory is then removed by the next sweep.
pub struct Build {
    pub(crate) executor: Assigned,
    pub(crate) spec: BuildSpec,
    pub(crate) workspace: Arc<dyn Workspace>,
    pub(crate) job_dir: JobDir,
    /// `None`: the watch keeps the limits.
    pub(crate) group: Option<Arc<Group>>,
    /// While it runs.
    pub(crate) agent: Option<Agent>,
    pub(crate) console: Arc<Console>,
    pub(crate) control: BuildControl,
    pub(crate) log_dir: PathBuf,
    pub(crate) registration: Registration,
    /// The homes of its playbooks.
    pub(crate) homes: Mutex<Homes>,
    /// The repositories under test.
    pub(crate) repositories: Repositories,
    /// What is hidden wherever the build writes.
    pub(crate) mask: Arc<Mask>,
    /// Dropped once its first playbook can start.
    pub(crate) until_set_up: Option<Box<dyn Send + Sync>>,
}

/// What is known of a build while it goes on.
#[derive(Default)]
struct Progress {
    playbooks: Vec<PlaybookRun>,
    failing_task: Option<FailingTask>,
    detail: Option<String>,
    warnings: Vec<String>,
    home: HomeWarnings,
    /// What this host lacked when a playbook failed.
    lack: Option<Lack>,
}

/// What a playbook that runs after the job's own work is told of it.
#[derive(Clone, Copy)]
struct After {
    success: bool,
    /// Whether what happened is a reason to try again.
    again: bool,
}

impl After {
    fn of(verdict: &Option<BuildResult>) -> After {
        After { success: verdict.is_none(), again: matches!(verdict, Some(BuildResult::Retry(_))) }
    }
}

impl Build {
    /// Follows the console, from before the build runs until after it.
    pub fn console(&self) -> ConsoleReader {
        self.console.reader()
    }

    /// Stops the build, now or later.
    pub fn control(&self) -> BuildControl {
        self.control.clone()
    }

    /// Keeps this until the first playbook can start: whoever lets few builds be set up at once takes turns with it.
    pub fn keep_until_set_up(&mut self, turn: impl Send + Sync + 'static) {
        self.until_set_up = Some(Box::new(turn));
    }

    /// Runs the build to its end. Ends in bounded time: every phase has its limit.
    pub async fn run(mut self) -> BuildOutcome {
        let watch = Stopwatch::start(now());
        let mut progress = Progress::default();
        self.console.say(&format!(
            "Build {} of job {}, attempt {}, starts on {}",
            self.spec.build, self.spec.job.name, self.spec.attempt, self.executor.config.hostname
        ));
        let ready = match self.begin(&mut progress.warnings).await {
            Ok(agent) => {
                self.agent = agent;
                Box::pin(self.set_up()).await
            }
            Err(stopped) => Err(stopped),
        };
        self.until_set_up = None;
        let (result, returned) = match ready {
            Ok(ready) => Box::pin(self.phases(&ready, &mut progress)).await,
            Err(stopped) => {
                let (result, detail) = *stopped;
                let result = self.not_for_want_of_room(result);
                progress.detail = Some(detail);
                (result, Returned::default())
            }
        };
        if let Some(agent) = self.agent.take() {
            agent.end().await;
        }
        Box::pin(self.finish(watch, result, returned, progress)).await
    }

    async fn finish(
        self,
        watch: Stopwatch,
        result: BuildResult,
        mut returned: Returned,
        mut progress: Progress,
    ) -> BuildOutcome {
        self.hide_secrets(&mut returned, &mut progress);
        if self.spec.job.secret_exposure == SecretExposure::Redact && self.mask.has_found() {
            progress.warnings.push("the build has written a secret, which is hidden".to_owned());
        }
        if let Some(detail) = progress.detail.as_ref().filter(|_| progress.playbooks.is_empty()) {
            let own = matches!(result, BuildResult::Retry(RetryCause::SetupFailed | RetryCause::NoRoom { .. }));
            self.console.say(&if own { without_paths(detail) } else { detail.clone() });
        }
        if let BuildResult::Retry(RetryCause::NoRoom { lack, .. }) = result {
            self.console
                .say(&format!("This host has no room ({lack}): this says nothing of the job, which begins again"));
        }
        let logs = self.keep_logs(&mut progress.warnings).await;
        progress.warnings.iter_mut().for_each(|warning| *warning = self.mask.text(warning));
        for warning in &progress.warnings {
            self.console.say(&format!("WARNING: {warning}"));
        }
        self.console.say(&format!("Build ends: {}", result.as_str()));
        self.console.end();
        progress.warnings.extend(self.console.failure());
        self.keep_own(logs).await;
        self.registration.finished();
        if !self.executor.config.keep_job_dirs {
            self.executor.discard(&self.job_dir);
        }
        if let Some(group) = self.group {
            tokio::task::spawn_blocking(move || group.remove());
        }
        BuildOutcome {
            result,
            detail: progress.detail,
            started: watch.started,
            ended: watch.now(),
            playbooks: progress.playbooks,
            returned,
            failing_task: progress.failing_task,
            log_dir: self.log_dir,
            warnings: progress.warnings,
        }
    }

    async fn phases(&self, ready: &Ready, progress: &mut Progress) -> (BuildResult, Returned) {
        let mut json = match JsonOutput::create(self.log_dir.join(RESULTS)) {
            Ok(json) => json,
            Err(error) => {
                let (result, detail) = *failed(format!("cannot write job-output.json: {error}"));
                progress.detail = Some(detail);
                return (result, Returned::default());
            }
        };
        let of = |phase: Phase| ready.playbooks.iter().filter(move |playbook| playbook.spec.phase == phase);
        let limits = &self.executor.config.limits;
        let begin = Instant::now();
        let run_deadline = begin + Timeouts::or(self.spec.job.timeouts.run, limits.run);
        let pre_deadline = run_deadline.min(begin + Timeouts::or(self.spec.job.timeouts.pre, limits.run));
        // `None` is success so far.
        let mut verdict: Option<BuildResult> = None;
        let mut deepest = u32::MAX;
        for playbook in of(Phase::Pre).chain(of(Phase::Run)) {
            let phase = playbook.spec.phase;
            let deadline = if phase == Phase::Pre { pre_deadline } else { run_deadline };
            let ending = self.one(playbook, ready, None, deadline, &mut json, progress).await;
            verdict = self.verdict(phase, ending, progress);
            if verdict.is_some() {
                if phase == Phase::Pre {
                    deepest = playbook.spec.nesting_level;
                }
                break;
            }
        }
        verdict = self.without_room(verdict, progress);
        // Zuul: what was known to fail does not succeed after all.
        if verdict.is_none()
            && let Some(why) = self.control.failing()
        {
            progress.detail.get_or_insert(why);
            verdict = Some(BuildResult::Failure(FailureCause::Run));
        }
        if verdict.is_none() {
            verdict = self.pause(&mut progress.warnings).await;
        }
        if self.control.aborted() != Some(AbortReason::Shutdown) {
            self.console.allow_at_least((limits.console_bytes / 4).max(LAST_WORDS));
            verdict = self.post(ready, deepest, verdict, &mut json, progress).await;
            verdict = self.without_room(verdict, progress);
        }
        for playbook in of(Phase::Cleanup) {
            if self.control.aborted() == Some(AbortReason::Shutdown) {
                break;
            }
            self.console.allow_at_least(LAST_WORDS);
            let deadline = Instant::now() + limits.cleanup;
            let (task, detail, lack) = (progress.failing_task.clone(), progress.detail.clone(), progress.lack);
            let after = After::of(&verdict);
            self.one(playbook, ready, Some(after), deadline, &mut json, progress).await;
            // What happens here counts for nothing.
            (progress.failing_task, progress.detail, progress.lack) = (task, detail, lack);
        }
        let returned = self.returned(&mut progress.warnings);
        // Once: earlier looks would tell them before the job had said its last.
        for warning in returned.told() {
            warn(&mut progress.warnings, warning);
        }
        (verdict.unwrap_or(BuildResult::Success), returned.without_redactions())
    }

    /// The set-up ended so. Of a host without room nothing is believed: what cannot be opened easily passes for what is not
    /// there. What a program of the set-up said may be the job's doing.
    fn not_for_want_of_room(&self, result: BuildResult) -> BuildResult {
        let retry = |lack, begun| BuildResult::Retry(RetryCause::NoRoom { lack, begun });
        match result {
            BuildResult::Retry(RetryCause::NoRoom { lack, begun }) => {
                retry(lack.told_apart(self.executor.places()), begun)
            }
            BuildResult::Retry(_) | BuildResult::Error(_) => {
                self.executor.lack().map_or(result, |lack| retry(lack, true))
            }
            result => result,
        }
    }

    /// The same verdict, but not one on the job where this host had no room when a playbook failed. What others were told
    /// will fail is not repeated.
    fn without_room(&self, verdict: Option<BuildResult>, progress: &Progress) -> Option<BuildResult> {
        let Some(lack) = progress.lack.filter(|_| self.control.failing().is_none()) else { return verdict };
        let begun = progress.playbooks.iter().any(|run| run.ending != PlaybookEnding::NoSandbox);
        match verdict {
            Some(
                BuildResult::Failure(FailureCause::Run | FailureCause::RetryForbidden)
                | BuildResult::PostFailure
                | BuildResult::Retry(_),
            ) => Some(BuildResult::Retry(RetryCause::NoRoom { lack, begun })),
            verdict => verdict,
        }
    }

    /// Waits for the jobs that need this one, if it asks for that. Zuul: `zuul.pause`; only what succeeded so far does.
    async fn pause(&self, warnings: &mut Vec<String>) -> Option<BuildResult> {
        let returned = self.returned(warnings);
        if !returned.pauses() {
            return None;
        }
        self.console.say("Job paused");
        let returned = returned.without_redactions();
        self.control.pause(Returned { data: self.mask.value(&returned.data), ..returned }).await;
        if self.control.is_aborted() {
            return Some(BuildResult::Aborted);
        }
        self.console.say("Job resumed");
        None
    }

    /// All post-run playbooks, whatever the first of them does. Once the build was stopped, or nothing more can be
    /// written, only those that tidy up (Zuul: `cleanup`).
    async fn post(
        &self,
        ready: &Ready,
        deepest: u32,
        before: Option<BuildResult>,
        json: &mut JsonOutput,
        progress: &mut Progress,
    ) -> Option<BuildResult> {
        let limit: Duration = Timeouts::or(self.spec.job.timeouts.post, self.executor.config.limits.post);
        let mut success = before.is_none();
        let mut verdict = before;
        // A level that pre-run never reached has nothing to tidy up.
        let mut reached = ready.playbooks.iter().filter(|playbook| playbook.spec.nesting_level <= deepest);
        for playbook in reached.by_ref().filter(|playbook| playbook.spec.phase == Phase::Post) {
            let over = [
                BuildResult::Failure(FailureCause::DiskLimit),
                BuildResult::Failure(FailureCause::SecretExposure),
                BuildResult::Aborted,
            ];
            if verdict.as_ref().is_some_and(|verdict| over.contains(verdict)) && !playbook.spec.cleanup {
                continue;
            }
            if self.control.aborted() == Some(AbortReason::Shutdown) {
                return Some(BuildResult::Aborted);
            }
            let deadline = Instant::now() + limit;
            let after = After { success, again: After::of(&verdict).again };
            let ending = self.one(playbook, ready, Some(after), deadline, json, progress).await;
            // Zuul: those that follow are told.
            success &= ending == PlaybookEnding::Ok;
            let replaceable = matches!(verdict, None | Some(BuildResult::Failure(FailureCause::Run)));
            match ending {
                PlaybookEnding::Ok => {}
                PlaybookEnding::Aborted => verdict = Some(BuildResult::Aborted),
                PlaybookEnding::SecretExposure => verdict = ending.result(),
                PlaybookEnding::Unreachable
                    if replaceable && !playbook.spec.cleanup && self.control.failing().is_none() =>
                {
                    verdict = Some(BuildResult::Retry(RetryCause::Unreachable));
                }
                PlaybookEnding::DiskLimit if replaceable => {
                    verdict = Some(BuildResult::Failure(FailureCause::DiskLimit));
                }
                _ if replaceable => verdict = Some(BuildResult::PostFailure),
                _ => {}
            }
        }
        verdict
    }

    /// What the end of a pre-run or run playbook means for the build; `None`: go on.
    fn verdict(&self, phase: Phase, ending: PlaybookEnding, progress: &mut Progress) -> Option<BuildResult> {
        let pre = phase == Phase::Pre;
        let verdict = match ending {
            PlaybookEnding::Failed(_) if pre && self.returned(&mut progress.warnings).forbids_retry() => {
                BuildResult::Failure(FailureCause::RetryForbidden)
            }
            PlaybookEnding::Failed(_) if pre => BuildResult::Retry(RetryCause::PreFailed),
            PlaybookEnding::Failed(_) => BuildResult::Failure(FailureCause::Run),
            PlaybookEnding::TimedOut if pre => BuildResult::Retry(RetryCause::PreTimedOut),
            PlaybookEnding::TimedOut => BuildResult::TimedOut,
            // Zuul: what was known to fail is not repeated.
            PlaybookEnding::Unreachable if self.control.failing().is_some() => BuildResult::Failure(FailureCause::Run),
            PlaybookEnding::Killed(_) if self.control.failing().is_some() => {
                BuildResult::Error("the job was about to fail when something on this host killed it".into())
            }
            PlaybookEnding::Unreachable => BuildResult::Retry(RetryCause::Unreachable),
            ending => return ending.result(),
        };
        Some(verdict)
    }

    /// One playbook, and what it adds to what is known. What came before is given after run.
    async fn one(
        &self,
        playbook: &PlaybookInPlace,
        ready: &Ready,
        after: Option<After>,
        deadline: Instant,
        json: &mut JsonOutput,
        progress: &mut Progress,
    ) -> PlaybookEnding {
        if !playbook.spec.tidies_up() && self.control.is_aborted() {
            return PlaybookEnding::Aborted;
        }
        self.look_at_home(playbook, progress);
        let left = self.spec.attempt < self.spec.max_attempts || progress.lack.is_some();
        let will_retry = after.is_some_and(|after| after.again) && left;
        let course = Course { index: playbook.index, success: after.map(|after| after.success), will_retry };
        let played = self.play(playbook, ready, &course, deadline, json, &mut progress.warnings);
        let Played { run, failing_task, detail, lack } = Box::pin(played).await;
        progress.lack = progress.lack.or(lack);
        let ending = run.ending;
        progress.playbooks.push(run);
        if progress.failing_task.is_none() {
            progress.failing_task = failing_task;
        }
        if progress.detail.is_none() {
            progress.detail = detail;
        }
        ending
    }

    /// Takes secrets out of what leaves the executor. What was returned in secret is sealed by whoever takes it.
    fn hide_secrets(&self, returned: &mut Returned, progress: &mut Progress) {
        returned.data = self.mask.value(&returned.data);
        progress.detail = progress.detail.as_deref().map(|detail| self.mask.text(detail));
        if let Some(task) = &mut progress.failing_task {
            for text in [&mut task.play, &mut task.task, &mut task.host, &mut task.message] {
                *text = self.mask.text(text);
            }
        }
    }

    /// Hides from now on what the job has returned in secret, and what it wants hidden.
    pub(crate) fn learn(&self) {
        let returned = self.returned(&mut Vec::new());
        let redactions = returned.redactions().into_iter().map(str::to_owned);
        self.mask.add(redactions.chain(mask::texts(&returned.secret_data)));
    }

    /// Warns of what earlier playbooks left in the home directory.
    fn look_at_home(&self, playbook: &PlaybookInPlace, progress: &mut Progress) {
        let (home, own) = (self.job_dir.home(), self.home_of(playbook));
        let of = home::Left { job: &self.spec.job, playbook: &playbook.spec, home: &home, own: &own };
        for warning in progress.home.look(of) {
            warn(&mut progress.warnings, warning);
        }
    }

    /// What the job has returned so far.
    fn returned(&self, warnings: &mut Vec<String>) -> Returned {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct File {
            data: serde_json::Value,
            secret_data: serde_json::Value,
        }
        let limits = &self.executor.config.limits;
        let read = read_limited(&self.job_dir.results(), limits.returned_bytes);
        let parsed = match read {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Returned::default(),
            Err(error) => Err(error.to_string()),
            Ok(text) if Shape::of(&text).values > limits.returned_values => {
                Err(format!("it has more than {} values", limits.returned_values))
            }
            // The parser's own words may quote the data, which may be secret.
            Ok(text) => serde_json::from_slice::<File>(&text).map_err(|_| "it is no valid JSON document".to_owned()),
        };
        match parsed {
            Ok(file) => {
                let returned =
                    Returned { data: Value::from_json(&file.data), secret_data: Value::from_json(&file.secret_data) };
                for warning in unusable(&returned) {
                    warn(warnings, warning);
                }
                returned
            }
            Err(reason) => {
                warn(warnings, format!("what the job returned is lost: {reason}"));
                Returned::default()
            }
        }
    }
}

/// Adds a warning that is not there yet.
fn warn(warnings: &mut Vec<String>, warning: String) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

/// What to say of returned names that other jobs will not have as variables. Both kinds of data are looked at; Zuul
/// means to, and looks at `data` twice. Of secret data not even a name is told.
fn unusable(returned: &Returned) -> Vec<String> {
    const TOLD: usize = 5;
    let names = |value: &Value| -> Vec<String> {
        let map = value.as_map().into_iter().flatten();
        let bad = map.filter(|(name, _)| *name != "zuul" && variables::refused(name).is_some());
        bad.map(|(name, _)| format!("{:?}", name.chars().take(60).collect::<String>())).collect()
    };
    let (open, secret) = (names(&returned.data), names(&returned.secret_data));
    let mut warnings = Vec::new();
    if !open.is_empty() {
        let more = if open.len() > TOLD { ", …" } else { "" };
        let first = open.get(..TOLD).unwrap_or(&open).join(", ");
        warnings.push(format!("what the job returned cannot all be variables of other jobs: {first}{more}"));
    }
    if !secret.is_empty() {
        let count = secret.len();
        warnings.push(format!("of the secret_data that the job returned, {count} cannot be variables of other jobs"));
    }
    warnings
}
