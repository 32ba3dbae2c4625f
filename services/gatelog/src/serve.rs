//! `gatelog serve`: one process of a site, until it is told to stop.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cli::{Parts, ServeArgs, SiteArgs};
use crate::commands::failure::{Code, Failure};
use crate::commands::stop::{self, Signals};
use crate::config::SigtermMethod;
use crate::roles::Roles;
use crate::server::{Ended, Server, ServerOptions};

/// How often it is looked whether to end.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the site.
pub fn run(parts: &Parts, args: &ServeArgs) -> Result<ExitCode, Failure> {
    logging();
    open_files();
    #[cfg(debug_assertions)]
    crate::failpoints::arm()?;
    let arguments = SiteArgs { dir: args.dir.clone(), url: None };
    let site = arguments.directory("serve")?.dir().to_path_buf();
    let signals = stop::on_signals()?;
    let roles = Roles::new(&args.role);
    let options = ServerOptions { listen: args.listen, roles: roles.clone(), domains: parts.domains.clone() };
    let server = Server::start(&site, options).map_err(anyhow::Error::from)?;
    tracing::info!(url = server.url(), site = %site.display(), %roles, "serving");
    let ended = until_the_end(&server, &signals, &site);
    if let Some(ended) = ended {
        server.stop();
        let Ended::Fenced { .. } = ended;
        return Err(Failure::new(Code::Fenced, ended.to_string())
            .hint("of the processes with one of the roles scheduler and launcher, start only one of each"));
    }
    tracing::info!("stopping");
    server.stop();
    Ok(ExitCode::SUCCESS)
}

/// Lets this process have as many files and connections as its hard limit allows: what it is started with, often 1,024,
/// is kept low for the sake of programs that cannot count further, and is less than there may be streams alone. Builds
/// have a limit of their own.
fn open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "the limit on open files cannot be raised");
    }
}

/// Waits until the process is to end: since it was told to, or (an answer) since it cannot go on.
fn until_the_end(server: &Server, signals: &Signals, site: &Path) -> Option<Ended> {
    let stopping = server.stopping();
    let graceful = stopping.sigterm_method == SigtermMethod::Graceful;
    if graceful {
        signals.first_one_drains();
    }
    let mut draining: Option<(Instant, usize)> = None;
    loop {
        if let Some(ended) = server.ended() {
            return Some(ended);
        }
        // The first one drains; where it drains already, it stops.
        let to_stop = if graceful && !signals.drain() { 2 } else { 1 };
        if signals.asked() >= to_stop {
            return None;
        }
        match &mut draining {
            None if signals.drain() || signals.asked() > 0 => {
                tracing::info!(
                    limit_s = stopping.drain_limit,
                    "draining: nothing new is taken; `gatelog stop --dir {}` stops at once",
                    site.display()
                );
                server.drain();
                draining = Some((Instant::now(), usize::MAX));
            }
            None => {}
            Some((began, left_before)) => {
                let left = server.left();
                // Load balancers ask whether it is ready now and then: it answers until they have.
                if left == 0 && began.elapsed() >= stopping.at_least() {
                    tracing::info!("drained");
                    return None;
                }
                if began.elapsed() >= stopping.limit() {
                    tracing::warn!(builds = left, "drain-limit is over: what still runs begins again elsewhere");
                    return None;
                }
                if left != *left_before {
                    tracing::info!(builds = left, "draining: waits for its builds to end");
                    *left_before = left;
                }
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// The server's own log, to standard error: `GATELOG_LOG` says how much (`info`, `debug`,
/// `gatelog_effects=trace`).
pub fn logging() {
    use std::io::IsTerminal;
    let filter = tracing_subscriber::EnvFilter::try_from_env("GATELOG_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // A second subscriber in the same process (tests) is no error.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .try_init();
}
