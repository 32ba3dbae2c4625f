//! `gatelog serve`: one process of a site, until it is told to stop.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cli::{ServeArgs, SiteArgs};
use crate::commands::failure::{Code, Failure};
use crate::commands::stop;
use crate::roles::Roles;
use crate::server::{Ended, Server, ServerOptions};

/// Runs the site.
pub fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    logging();
    open_files();
    #[cfg(debug_assertions)]
    crate::failpoints::arm()?;
    let arguments = SiteArgs { dir: args.dir.clone(), url: None };
    let site = arguments.directory("serve")?.dir().to_path_buf();
    let stop = stop::on_signals()?;
    let roles = Roles::new(&args.role);
    let options = ServerOptions { listen: args.listen, roles: roles.clone() };
    let server = Server::start(&site, options).map_err(anyhow::Error::from)?;
    tracing::info!(url = server.url(), site = %site.display(), %roles, "serving");
    while !stop.load(Ordering::Relaxed) {
        if let Some(ended) = server.ended() {
            server.stop();
            let Ended::Fenced { .. } = ended;
            return Err(Failure::new(Code::Fenced, ended.to_string())
                .hint("of the processes with one of the roles scheduler and launcher, start only one of each"));
        }
        std::thread::sleep(Duration::from_millis(100));
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
