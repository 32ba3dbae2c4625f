//! How a process is asked to end: by signals, and by `gatelog stop`, which sends them.
//!
//! SIGTERM and Ctrl-C ask to stop, SIGUSR1 (Zuul's signal for it) to drain first. Whoever runs looks at [`Signals`].

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::SiteArgs;
use crate::cli::processes::StopArgs;
use crate::server::{SERVER_FILE, ServerFile, started_ticks};

/// How long a process may take to end once it was told to stop at once.
const ENDS: Duration = Duration::from_secs(90);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What was asked of this process by signals.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// How often it was asked to stop.
    asked: Arc<AtomicU32>,
    /// Set once it was asked for anything.
    any: Arc<AtomicBool>,
    /// Whether it was asked to drain.
    drain: Arc<AtomicBool>,
    /// How often it may be asked to stop before the next one ends it on the spot, less one.
    patience: Arc<AtomicU32>,
}

impl Signals {
    /// How often it was asked to stop.
    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    /// Whether it was asked to drain.
    pub fn drain(&self) -> bool {
        self.drain.load(Ordering::SeqCst)
    }

    /// A flag that is set once it was asked to stop or to drain, for those who have nothing to drain.
    pub fn any(&self) -> &Arc<AtomicBool> {
        &self.any
    }

    /// The first signal to stop asks to drain only: one more is needed before the process ends on the spot.
    pub fn first_one_drains(&self) {
        self.patience.store(1, Ordering::SeqCst);
    }

    fn told_to_drain(&self) {
        self.drain.store(true, Ordering::SeqCst);
        self.any.store(true, Ordering::SeqCst);
    }

    fn told_to_stop(&self) {
        self.any.store(true, Ordering::SeqCst);
        if self.asked.fetch_add(1, Ordering::SeqCst) > self.patience.load(Ordering::SeqCst) {
            // Whatever dies, the log tells how to go on.
            std::process::exit(130);
        }
    }
}

/// Listens to signals. The second one that asks to stop ends the process on the spot.
pub fn on_signals() -> anyhow::Result<Signals> {
    let signals = Signals::default();
    let told = signals.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("signals")?;
    let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async move {
                use tokio::signal::unix::{SignalKind, signal};
                let all = signal(SignalKind::terminate()).and_then(|terminate| {
                    Ok((terminate, signal(SignalKind::interrupt())?, signal(SignalKind::user_defined1())?))
                });
                let (mut terminate, mut interrupt, mut drain) = match all {
                    Ok(all) => {
                        let _ = ready.send(Ok(()));
                        all
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                loop {
                    tokio::select! {
                        _ = terminate.recv() => told.told_to_stop(),
                        _ = interrupt.recv() => told.told_to_stop(),
                        _ = drain.recv() => told.told_to_drain(),
                    }
                }
            });
        })
        .context("signals")?;
    is_ready.recv().context("signals")?.context("signals")?;
    Ok(signals)
}

/// A process that serves a directory, held by more than its number: nobody else can get its signals.
struct Serving {
    pid: i32,
    start: u64,
    handle: rustix::fd::OwnedFd,
}

impl Serving {
    /// The one that serves this directory.
    fn of(dir: &Path) -> Result<Serving, Failure> {
        let nobody = || Failure::new(Code::NotFound, format!("no server runs in {}", dir.display()));
        let text = std::fs::read_to_string(dir.join(SERVER_FILE)).map_err(|_| nobody())?;
        let said: ServerFile = serde_json::from_str(&text).map_err(|error| {
            Failure::new(Code::No, format!("{}: {error}", dir.join(SERVER_FILE).display()))
                .hint("stop the process by its number")
        })?;
        let pid = i32::try_from(said.pid).ok().and_then(Pid::from_raw).ok_or_else(nobody)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| nobody())?;
        if said.started_ticks == 0 {
            let what = format!("process {pid} does not say when it began, as releases before this one do not");
            return Err(Failure::new(Code::No, what).hint(format!("stop it by its number: kill -TERM {pid}")));
        }
        // What was killed leaves its file behind, and its number may be another's by now.
        if started_ticks(said.pid) != Some(said.started_ticks) {
            return Err(nobody());
        }
        Ok(Serving { pid: pid.as_raw_nonzero().get(), start: said.started_ticks, handle })
    }

    fn send(&self, signal: Signal) -> Result<(), Failure> {
        pidfd_send_signal(&self.handle, signal).map_err(|error| {
            let code = if error == rustix::io::Errno::PERM { Code::NotAllowed } else { Code::No };
            Failure::new(code, format!("process {} cannot be told to stop: {error}", self.pid))
                .hint("run this as the user the server runs as")
        })
    }

    /// Whether it ends within a time.
    fn ends(&self, within: Duration) -> bool {
        let began = Instant::now();
        loop {
            let there = u32::try_from(self.pid).ok().and_then(started_ticks) == Some(self.start);
            if !there || began.elapsed() >= within {
                return !there;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// `stop`
pub fn run(site: &SiteArgs, args: &StopArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("stop")?;
    let serving = Serving::of(site.dir())?;
    let mut late = None;
    if args.drain {
        serving.send(Signal::USR1)?;
        if !serving.ends(args.within.map_or(Duration::MAX, Duration::from_secs)) {
            late = args.within;
        }
    }
    // What has ended since is past all signals.
    if (!args.drain || late.is_some()) && !serving.ends(Duration::ZERO) {
        serving.send(Signal::TERM)?;
    }
    if !serving.ends(ENDS) {
        return Err(Failure::new(Code::Unavailable, format!("process {} has not ended yet", serving.pid))
            .hint("`kill -9` is safe: what was acknowledged is on the log"));
    }
    if let Some(within) = late {
        let what = format!("process {} had not ended its builds after {within} s and was stopped at once", serving.pid);
        return Err(Failure::new(Code::Unavailable, what).hint("what it ran begins again elsewhere"));
    }
    let mut out = Output::new();
    let _ = out.line(&format!("process {} has ended", serving.pid))?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}
