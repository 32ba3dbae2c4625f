//! One playbook: start it, follow what it writes, stop it when it must stop, say how it ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use gatelog_log_files::manifest::RESULTS;
use gatelog_room::{Lack, without_paths};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ansible::{self, Course};
use crate::build::Build;
use crate::channel::Message;
use crate::config::ExecutorError;
use crate::confine::{Confinement, kernel_process_limit};
use crate::console::now;
use crate::homes::{Homes, Sharing};
use crate::jobdir::clear;
use crate::json_output::{Cut, JsonOutput, PlaybookJson};
use crate::kernel;
use crate::lines::Lines;
use crate::network::Maker;
use crate::outcome::{Breach, FailingTask, PlaybookEnding, PlaybookRun};
use crate::playbooks::PlaybookInPlace;
use crate::process::{gate, kill_marked};
use crate::run::{Run, text};
use crate::running::{Exit, HOLD, HOLDER, Running, Start};
use crate::setup::Ready;
use crate::spec::{Connection, Phase, SecretExposure};
use crate::stopwatch::Stopwatch;
use crate::usage::measure;
use crate::wall::{self, Wall};
use crate::watch::{Bounds, Post};

/// How long output is read on after the process has ended (something may hold the pipe).
const DRAIN: Duration = Duration::from_secs(2);
/// How long processes that stayed behind are hunted.
pub(crate) const HUNT: Duration = Duration::from_secs(10);
/// How long a killed process may take to be gone.
const DEATH: Duration = Duration::from_secs(30);

/// The shell that waits in a sandbox.
const SHELL: &str = "/bin/sh";

/// How far output may be ahead of its pace.
const BURST: Duration = Duration::from_millis(50);
/// What a cleanup playbook may write on a full disk, besides a quarter of the limit.
const LAST_ROOM: u64 = 16 << 20;

/// A playbook that is over.
pub(crate) struct Played {
    pub(crate) run: PlaybookRun,
    pub(crate) failing_task: Option<FailingTask>,
    /// What went wrong before or beside Ansible.
    pub(crate) detail: Option<String>,
    /// What this host lacks, where that may be why the playbook failed.
    pub(crate) lack: Option<Lack>,
}

/// How a process ended, and what it complained of beside the callback.
pub(crate) struct Ended {
    pub(crate) ending: PlaybookEnding,
    pub(crate) said: Option<String>,
    pub(crate) breach: Option<Breach>,
    /// The lines of the console at which results of failed tasks begin, by the number of the failure.
    pub(crate) failures: BTreeMap<u64, u64>,
    /// Whether no process is left, for certain.
    pub(crate) empty: bool,
}

impl Build {
    /// Runs a playbook until it ends or must end.
    pub(crate) async fn play(
        &self,
        playbook: &PlaybookInPlace,
        ready: &Ready,
        course: &Course,
        deadline: Instant,
        json: &mut JsonOutput,
        warnings: &mut Vec<String>,
    ) -> Played {
        let spec = &playbook.spec;
        let kind = if spec.trusted { "trusted" } else { "untrusted" };
        let project = spec.checkout.project.canonical_name();
        let name = format!("[{kind} : {project}/{}@{}]", spec.path, spec.checkout.name);
        self.console.say(&format!("{} START: {name}", spec.phase.label()));
        let watch = Stopwatch::start(now());
        let results = ansible::results_file(&self.job_dir);
        let (ended, own) = match self.run_process(playbook, ready, course, deadline).await {
            Ok(ended) => (ended, None),
            Err(error) => {
                let said = error.to_string();
                let own = self.executor.lack_told(&said);
                let (ending, breach, failures) = (PlaybookEnding::NoSandbox, None, BTreeMap::new());
                (Ended { ending, said: Some(said), breach, failures, empty: false }, own)
            }
        };
        let left = if ended.empty { 0 } else { kill_marked(self.job_dir.root(), HUNT).await };
        if left > 0 {
            warnings.push(format!("{left} processes of {name} could not be killed"));
        }
        // Before anything is read or written where the job could write.
        if let Err(error) = self.job_dir.tidy(false) {
            warnings.push(format!("what {name} left behind could not be tidied: {error}"));
        }
        if self.executor.bwrap.is_some() {
            let closed = self.homes().close(&self.sharing(playbook));
            warnings.extend(closed.unwrap_or_else(|error| {
                vec![format!("what {name} left in its home directory is not given to later playbooks: {error}")]
            }));
        }
        self.learn();
        let read = PlaybookJson::read(&results, self.executor.config.limits.json_bytes, &self.mask);
        let document = read.unwrap_or_else(|error| {
            warnings.push(format!("results of {name} are missing in job-output.json: {error}"));
            PlaybookJson::default()
        });
        let has_results = document.is_complete();
        if spec.phase == Phase::Run && document.ran_nowhere() {
            warnings.push(if self.spec.nodeset.nodes.is_empty() {
                format!("no host had a task of {name}: the job has no nodes, so `hosts: all` is nobody, and `hosts: localhost` the executor")
            } else {
                format!("no host had a task of {name}: none of its `hosts` is a node of the job, or its plays have no tasks")
            });
        }
        let refused = |said: &&String| said.starts_with("bwrap: ");
        let ending = match ended.ending {
            PlaybookEnding::Failed(_) | PlaybookEnding::Ok if !document.unreachable.is_empty() => {
                PlaybookEnding::Unreachable
            }
            PlaybookEnding::Failed(_) if !has_results && ended.said.as_ref().filter(refused).is_some() => {
                PlaybookEnding::NoSandbox
            }
            ending => ending,
        };
        // In what it wrote last, or in its results.
        let ending = if self.ends_by_exposure() { PlaybookEnding::SecretExposure } else { ending };
        let detail = match ending {
            PlaybookEnding::Ok => None,
            PlaybookEnding::Unreachable => Some(format!("cannot reach {}", document.unreachable.join(", "))),
            PlaybookEnding::Killed(signal) => {
                Some(format!("{name} was killed by signal {signal} from outside: the host may be out of memory"))
            }
            PlaybookEnding::TimedOut => Some(format!("{name} took too long")),
            PlaybookEnding::MemoryLimit | PlaybookEnding::ProcessLimit | PlaybookEnding::DiskLimit => {
                ended.breach.map(|breach| breach.text(&name))
            }
            PlaybookEnding::SecretExposure => {
                Some(format!("{name} has written a secret, and `secret-exposure: fail` lets no build go on that does"))
            }
            PlaybookEnding::OutputLimit => Some(format!(
                "the console grew over its limit of {} bytes in {name}: let the job write less, or to files",
                self.executor.config.limits.console_bytes
            )),
            PlaybookEnding::Failed(_) | PlaybookEnding::NoSandbox if !has_results => ended.said,
            _ => None,
        };
        let lack = own.or_else(|| self.lack_at(ending));
        if let Some(detail) = &detail {
            // Its own words may name its own places.
            let told = if ending == PlaybookEnding::NoSandbox { without_paths(detail) } else { detail.clone() };
            self.console.say(&told);
        }
        if ending != PlaybookEnding::NoSandbox {
            let cut = Cut { result: ending.console_word(), detail: detail.as_deref() };
            if let Err(error) = json.add(playbook, &document, cut) {
                warnings.push(format!("job-output.json is not complete: {error}"));
            }
        }
        if let Err(error) = json.copy_to(&self.job_dir.logs().join(RESULTS)) {
            warnings.push(format!("job-output.json could not be shown to the job: {error}"));
        }
        self.console.say(&format!("{} END {}: {name}", spec.phase.label(), ending.console_word()));
        let run = PlaybookRun {
            phase: spec.phase,
            index: playbook.index,
            project,
            branch: spec.checkout.name.clone(),
            path: spec.path.clone(),
            trusted: spec.trusted,
            started: watch.started,
            ended: watch.now(),
            ending,
        };
        let failing_task = match ending {
            PlaybookEnding::Ok => None,
            _ => document.failing_task.map(|task| task.at(&ended.failures)),
        };
        Played { run, failing_task, detail, lack }
    }

    /// What this host lacks now that a playbook has ended so, where it may have ended so for that. What a job used up that
    /// was its own (its limits, `/tmp`) is not asked for.
    fn lack_at(&self, ending: PlaybookEnding) -> Option<Lack> {
        match ending {
            PlaybookEnding::Failed(_)
            | PlaybookEnding::Unreachable
            | PlaybookEnding::Killed(_)
            | PlaybookEnding::NoSandbox => self.lack(),
            _ => None,
        }
    }

    /// What this host lacks now where the build writes.
    fn lack(&self) -> Option<Lack> {
        self.executor.lack().or_else(|| self.places().iter().find_map(|place| Lack::at(place)))
    }

    /// The process, from its start to its end.
    async fn run_process(
        &self,
        playbook: &PlaybookInPlace,
        ready: &Ready,
        course: &Course,
        deadline: Instant,
    ) -> Result<Ended, ExecutorError> {
        let guarded = self.is_guarded(playbook);
        let sandboxed = self.executor.bwrap.is_some();
        if guarded {
            let work = self.job_dir.work();
            for told in self.repositories.disarm(&work).map_err(ExecutorError::io("take traps out of", &work))? {
                self.console.say(&told);
            }
        }
        if sandboxed {
            let preserved = &self.spec.job.preserve_home_paths;
            let opened = self.homes().open(&self.sharing(playbook), preserved);
            for told in opened.map_err(ExecutorError::io("make a home in", &self.job_dir.homes()))? {
                self.console.say(&told);
            }
        }
        let mut tidied = self.job_dir.tidy(guarded);
        if guarded && tidied.is_ok() {
            tidied = self.forget_facts(playbook, &ready.frozen);
        }
        tidied.map_err(ExecutorError::io("tidy", self.job_dir.root()))?;
        let tokens = self.issue_tokens(playbook).await?;
        let secrets = self.secrets_text(playbook, tokens);
        let inventory = self.prepare_playbook(playbook, ready)?;
        self.start(playbook, &inventory, Some(course), secrets, deadline).await
    }

    /// Ansible, with everything in its place. Without a course it is told nothing of phases.
    pub(crate) async fn start(
        &self,
        playbook: &PlaybookInPlace,
        inventory: &std::path::Path,
        course: Option<&Course>,
        secrets: Option<String>,
        deadline: Instant,
    ) -> Result<Ended, ExecutorError> {
        let results = ansible::results_file(&self.job_dir);
        clear(&results).map_err(ExecutorError::io("remove", &results))?;
        let results = Results::create(&results, self.executor.config.limits.json_bytes);
        let results = results.map_err(ExecutorError::io("write", &ansible::results_file(&self.job_dir)))?;
        let limits = &self.executor.config.limits;
        let mut bounds = Bounds {
            memory: limits.memory_bytes,
            processes: limits.processes,
            disk: limits.disk_bytes,
            places: self.places(),
        };
        if playbook.spec.tidies_up()
            && let Some(disk) = bounds.disk.as_mut()
        {
            // Whatever came before, there is room to tidy up: also where a build had written more than its limit
            // before it was ended.
            let there = measure(&bounds.places, disk.saturating_mul(4)).map_or(0, |usage| usage.bytes);
            *disk = there.max(*disk).saturating_add(*disk / 4).saturating_add(LAST_ROOM);
        }
        let confinement = Confinement::of(limits);
        let group = self.group.clone();
        let confine = move |pid| {
            confinement.apply(pid)?;
            group.as_ref().map_or(Ok(()), |group| group.enter(pid))
        };
        let start = self.call(playbook, inventory, course, secrets);
        let early = course.is_some_and(|course| ansible::tells_early(playbook, course));
        let patterns = if early { self.spec.job.failure_output.clone() } else { Vec::new() };
        let lines = Lines::new(limits.console_line_bytes).watching(patterns);
        let running = Running::start(start, confine).await.map_err(ExecutorError::io("start", self.program()))?;
        let handle = running.outer.handle.clone();
        let post = self.executor.watch.post(running.roots(), handle, bounds, self.group.clone());
        if playbook.spec.tidies_up() {
            Ok(self.follow(running, post, (lines, results), deadline, self.control.wait_shutdown()).await)
        } else {
            Ok(self.follow(running, post, (lines, results), deadline, self.control.wait()).await)
        }
    }

    fn homes(&self) -> MutexGuard<'_, Homes> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who shares the home of this playbook.
    fn sharing(&self, playbook: &PlaybookInPlace) -> Sharing {
        Sharing::of(&playbook.spec, self.has_secrets(playbook))
    }

    /// The home of this playbook. The executor's own, before the first of the job's, have that of all.
    pub(crate) fn home_of(&self, playbook: &PlaybookInPlace) -> PathBuf {
        let own = self.homes().place(&self.sharing(playbook));
        if own.is_dir() { own } else { self.job_dir.home() }
    }

    /// Whether something was hidden just now, and that ends the build.
    fn ends_by_exposure(&self) -> bool {
        self.spec.job.secret_exposure == SecretExposure::Fail && self.mask.take_found()
    }

    /// What a job can write to on disk.
    fn places(&self) -> Vec<PathBuf> {
        let nodes = self.spec.nodeset.nodes.iter().filter_map(|node| match &node.connection {
            Connection::Local { dir } if !dir.is_empty() => Some(PathBuf::from(dir)),
            _ => None,
        });
        std::iter::once(self.job_dir.root().to_owned()).chain(nodes).collect()
    }

    /// How many process numbers the sandbox gets; `None`: as many as the host has.
    fn numbers(&self) -> Option<u64> {
        let walled = self.executor.wall == Ok(Wall::Namespace);
        self.executor.config.limits.processes.filter(|_| walled).map(wall::numbers)
    }

    fn program(&self) -> &std::path::Path {
        self.executor.bwrap.as_ref().map_or(std::path::Path::new(SHELL), |(path, _)| path)
    }

    /// How a playbook is started.
    fn call(
        &self,
        playbook: &PlaybookInPlace,
        inventory: &std::path::Path,
        course: Option<&Course>,
        secrets: Option<String>,
    ) -> Start {
        let (config, toolchain, plugins) = (&self.executor.config, &self.executor.toolchain, &self.executor.plugins);
        let home = self.home_of(playbook);
        let mut profile = ansible::profile(config, toolchain, plugins, &self.job_dir, &self.spec, playbook, home);
        if let Some(agent) = &self.agent {
            agent.show(&mut profile, playbook.spec.trusted, self.executor.bwrap.is_some());
        }
        if course.is_some_and(|course| ansible::tells_early(playbook, course)) {
            profile.environment.insert("GATELOG_EARLY_FAILURE".into(), "1".into());
        }
        let sandboxed = self.executor.bwrap.is_some();
        if self.is_guarded(playbook) {
            // A repository that nobody made one of, anywhere in the work tree, is none.
            let settings = [("COUNT", "1"), ("KEY_0", "safe.bareRepository"), ("VALUE_0", "explicit")];
            let settings = settings.map(|(name, value)| (format!("GIT_CONFIG_{name}"), value.into()));
            profile.environment.extend(settings);
        }
        let counted = self.executor.wall == Ok(Wall::User);
        let run = Run {
            arguments: ansible::command(config, toolchain, &self.job_dir, inventory, playbook, course)
                .iter()
                .map(text)
                .collect(),
            environment: profile.environment.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            directory: text(self.job_dir.work()),
            sandboxed,
            processes: config.limits.processes.filter(|_| counted).map(kernel_process_limit),
            secrets,
            filter: sandboxed.then(|| self.executor.filter.clone()).flatten(),
            kernel: if sandboxed { kernel::limits(config) } else { Vec::new() },
            holder: None,
        };
        let mut words: Vec<OsString> = [SHELL, "-c", HOLD, HOLDER].map(Into::into).into();
        words.extend(ansible::runner(toolchain, plugins));
        let mut command = gate(self.program(), self.numbers().is_some());
        match &self.executor.bwrap {
            Some((_, features)) => command.args(profile.argv(&words, *features)).current_dir(self.job_dir.root()),
            None => command.args(words.iter().skip(1)).current_dir(self.job_dir.work()),
        };
        // The same environment for bubblewrap itself: it carries the mark, and nothing of ours.
        command.env_clear().envs(&profile.environment).process_group(0);
        let network = self.executor.slirp.as_ref().map(|program| Maker::new(program, toolchain, plugins));
        Start { command, numbers: self.numbers(), run, network, server: self.executor.fork_server() }
    }

    /// Reads output until the process is gone; ends it when time, console or patience is over.
    async fn follow(
        &self,
        mut running: Running,
        mut post: Post,
        (mut lines, mut results): (Lines, Results),
        deadline: Instant,
        abort: impl Future,
    ) -> Ended {
        let limits = &self.executor.config.limits;
        let mut abort = pin!(abort);
        let mut buffer = vec![0; 64 << 10];
        let mut out = Vec::new();
        let mut status: Option<std::io::Result<Exit>> = None;
        let mut stopped: Option<PlaybookEnding> = None;
        // The next moment at which patience is over: kill, give up on the output, give up at all.
        let mut patience: Option<Instant> = None;
        let mut killed = false;
        // The output, and the channel.
        let mut open = (true, true);
        let mut breach = None;
        let mut pace = Pace::new(limits.console_rate);
        while status.is_none() || open != (false, false) {
            tokio::select! {
                // While this waits nothing is read, and the job waits too.
                () = sleep_until(pace.next), if pace.is_ahead() => pace.rest(),
                told = running.channel.hear(), if open.1 && !pace.is_ahead() => match told {
                    Ok(None) | Err(_) => open.1 = false,
                    Ok(Some(Message { from, bytes })) => match lines.told(from, bytes, &mut out) {
                        Some(result) => results.keep(result),
                        None => pace.take(bytes.len()),
                    },
                },
                read = running.output.read(&mut buffer), if open.0 && !pace.is_ahead() => match read {
                    Ok(0) | Err(_) => open.0 = false,
                    Ok(count) => {
                        pace.take(count);
                        lines.feed(buffer.get(..count).unwrap_or_default(), &mut out);
                    }
                },
                exit = &mut running.exit, if status.is_none() => {
                    status = Some(exit.unwrap_or_else(|_| Err(std::io::Error::other("nobody waited for it"))));
                    patience = Some(Instant::now() + DRAIN);
                    killed = true;
                },
                Ok(broken) = &mut post.breach, if breach.is_none() => {
                    // The watch has killed it.
                    breach = Some(broken);
                    stopped.get_or_insert(broken.ending());
                    if !killed {
                        patience = Some(Instant::now() + DEATH);
                        self.kill_strays().await;
                    }
                    killed = true;
                },
                () = sleep_until(deadline), if stopped.is_none() && status.is_none() => {
                    stopped = Some(PlaybookEnding::TimedOut);
                    running.terminate();
                    patience = Some(Instant::now() + limits.kill_grace);
                },
                _ = &mut abort, if stopped.is_none() && status.is_none() => {
                    stopped = Some(PlaybookEnding::Aborted);
                    running.terminate();
                    patience = Some(Instant::now() + limits.kill_grace);
                },
                () = sleep_until(patience.unwrap_or(deadline)), if patience.is_some() => {
                    if killed {
                        break;
                    }
                    running.kill();
                    killed = true;
                    patience = Some(Instant::now() + DEATH);
                    self.kill_strays().await;
                },
            }
            if let Some(ending) = self.show(&mut lines, &mut out).filter(|_| stopped.is_none()) {
                stopped = Some(ending);
                running.kill();
                killed = true;
                patience = Some(Instant::now() + DEATH);
            }
        }
        lines.finish(&mut out);
        // At the end of the console there is nobody left to stop.
        self.show(&mut lines, &mut out);
        if stopped.is_none() {
            // The kernel may have ended it before the watch looked.
            breach = post.refused();
            stopped = breach.map(Breach::ending);
        }
        let empty = matches!(status, Some(Ok(Exit { empty: true, .. })));
        let ending = stopped.unwrap_or(match status {
            Some(Ok(exit)) => ending_of(exit.status),
            _ => PlaybookEnding::Killed(9),
        });
        Ended { ending, said: lines.complaint, breach, failures: lines.failures, empty }
    }

    /// Puts lines on the console. Gives how the playbook must end, if it must.
    fn show(&self, lines: &mut Lines, out: &mut Vec<u8>) -> Option<PlaybookEnding> {
        // On a host without room it may not fail after all: then nobody is told before it has ended.
        if let Some(why) = lines.failing.take().filter(|_| self.lack().is_none()) {
            self.control.note_failing(self.mask.text(&why));
        }
        lines.count(self.console.lines());
        if out.is_empty() {
            return None;
        }
        let over = self.console.push(out).is_err();
        out.clear();
        let exposed = self.ends_by_exposure().then_some(PlaybookEnding::SecretExposure);
        exposed.or(over.then_some(PlaybookEnding::OutputLimit))
    }

    /// Without a sandbox the death of one is not the death of all.
    async fn kill_strays(&self) {
        if self.executor.bwrap.is_none() {
            let _ = timeout(DEATH, kill_marked(self.job_dir.root(), HUNT)).await;
        }
    }
}

/// The results of a playbook, as its callback tells them.
struct Results {
    file: File,
    /// Bytes that still fit.
    room: u64,
}

impl Results {
    fn create(path: &Path, most: u64) -> std::io::Result<Results> {
        Ok(Results { file: OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?, room: most })
    }

    /// A part of them. What does not fit, or cannot be written, is missing; then they are not complete, which is told.
    fn keep(&mut self, part: &[u8]) {
        self.room = self.room.saturating_sub(part.len() as u64);
        if self.room == 0 || self.file.write_all(part).is_err() {
            self.room = 0;
        }
    }
}

/// Keeps the console to so many bytes a second, in the middle.
struct Pace {
    rate: u64,
    /// When what was taken so far is due.
    next: Instant,
    ahead: bool,
}

impl Pace {
    fn new(rate: u64) -> Pace {
        Pace { rate: rate.max(1), next: Instant::now(), ahead: false }
    }

    fn take(&mut self, bytes: usize) {
        let now = Instant::now();
        // Time that was not used is not saved up.
        self.next = self.next.max(now) + Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / self.rate);
        self.ahead = self.next > now + BURST;
    }

    fn is_ahead(&self) -> bool {
        self.ahead
    }

    fn rest(&mut self) {
        self.ahead = false;
    }
}

/// What an exit status means. Bubblewrap hands on a signal as 128 and its number.
fn ending_of(status: ExitStatus) -> PlaybookEnding {
    match (status.code(), status.signal()) {
        (Some(0), _) => PlaybookEnding::Ok,
        (Some(code @ 129..=159), _) => PlaybookEnding::Killed(code - 128),
        (Some(code), _) => PlaybookEnding::Failed(code),
        (None, signal) => PlaybookEnding::Killed(signal.unwrap_or(9)),
    }
}
