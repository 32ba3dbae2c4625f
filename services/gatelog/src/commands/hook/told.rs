//! What becomes of a push: what was taken, and whether anything waits.
//!
//! Whoever pushes may be another Unix user than the server, who may not look into the site: what cannot be known is not
//! told. A server is asked for a short while only.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gatelog_driver_git::RefUpdate;
use serde_json::Value as Json;

use super::{TOLD_MAX, print, updates};
use crate::cli::project::PostReceiveArgs;
use crate::client::Client;
use crate::commands::failure::{Code, Failure};
use crate::commands::operators::in_own_name;
use crate::commands::project::in_tenants::{self, Named};
use crate::config::{FILE, SiteConfig};
use crate::server::{SERVER_FILE, ServerFile, started_ticks};

/// How long a server is asked, in all.
const ASK: Duration = Duration::from_secs(1);
/// Of so many tenants it is said what they do with a change.
const TENANTS_MAX: usize = 3;

/// Runs it.
pub fn run(args: &PostReceiveArgs) -> Result<ExitCode, Failure> {
    let Some(updates) = updates()? else { return Ok(Code::Unavailable.into()) };
    let (mut lines, waiting) = taken(&args.project, &updates);
    if waiting {
        lines.extend(what_now(args));
    } else if updates.iter().any(|update| update.new.is_some() && update.name.starts_with(b"refs/heads/")) {
        lines.extend(unnamed(args));
    }
    let lines: Vec<String> = lines.iter().map(|line| format!("gatelog: {}", crate::show::clean(line))).collect();
    print(&lines);
    Ok(ExitCode::SUCCESS)
}

/// What was taken, a line for each ref of the forge, and whether gatelog has anything to do because of it.
fn taken(project: &str, updates: &[RefUpdate]) -> (Vec<String>, bool) {
    let mut lines = Vec::new();
    let (mut more, mut waiting) = (0, false);
    for update in updates {
        let Some((change, proposes)) = update.change(project) else { continue };
        let name = format!("{}/{}", change.branch, change.name);
        waiting |= update.new.is_some();
        let line = match (proposes, &update.old, &update.new) {
            (true, None, Some(_)) => format!("proposed {name}"),
            (true, Some(_), Some(_)) => format!("proposed {name} again, as a new patchset"),
            (true, _, None) => format!("abandoned {name}"),
            (false, _, Some(_)) => format!("approved {name}"),
            (false, _, None) => format!("{name} is not approved any more"),
        };
        if lines.len() < TOLD_MAX { lines.push(line) } else { more += 1 }
    }
    if more > 0 {
        lines.push(format!("… and {more} more"));
    }
    (lines, waiting)
}

/// The site, as far as whoever pushes may see it.
struct Seen {
    config: SiteConfig,
    /// The tenants that have the project; `None`: the tenant file is not here, or not for this user.
    tenants: Option<Result<Vec<Named>, String>>,
}

/// The site's configuration; `None`: it is not here, or not for this user; and what is wrong with it.
fn look(args: &PostReceiveArgs) -> Option<Result<Seen, String>> {
    std::fs::File::open(args.dir.join(FILE)).ok()?;
    Some(match SiteConfig::read(&args.dir) {
        Err(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
        Ok(config) => {
            let text = std::fs::read_to_string(args.dir.join(&config.tenant_file));
            let tenants = match text {
                Ok(text) => Some(in_tenants::of(&text, &args.connection, &args.project)),
                // A site of several processes may have its tenant file elsewhere.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && config.log.kafka.is_none() => {
                    Some(Ok(Vec::new()))
                }
                Err(_) => None,
            };
            Ok(Seen { config, tenants })
        }
    })
}

/// What is said of a branch that was pushed: only that no tenant has the project.
fn unnamed(args: &PostReceiveArgs) -> Vec<String> {
    match look(args) {
        Some(Ok(Seen { tenants: Some(Ok(tenants)), .. })) if tenants.is_empty() => vec![no_tenant(args)],
        _ => Vec::new(),
    }
}

fn no_tenant(args: &PostReceiveArgs) -> String {
    let (project, dir) = (&args.project, args.dir.display());
    format!(
        "no tenant has {project} yet, so nothing is tested; add it: gatelog project add {project} --tenant TENANT --dir {dir}"
    )
}

/// What gatelog does with a change now, and what it waits for.
fn what_now(args: &PostReceiveArgs) -> Vec<String> {
    let dir = args.dir.display();
    let seen = match look(args) {
        None => return Vec::new(),
        Some(seen) => seen,
    };
    let running = running(&args.dir);
    let seen = match seen {
        Ok(seen) => seen,
        // A server that runs has read what it needed before.
        Err(_) if running.is_some() => return Vec::new(),
        Err(error) => return vec![format!("it waits: no gatelog runs for {dir}, and none can: {error}")],
    };
    let named = match seen.tenants {
        Some(Ok(named)) if named.is_empty() => return vec![no_tenant(args)],
        Some(Ok(named)) => named,
        Some(Err(error)) if running.is_none() => {
            return vec![format!("it waits: no gatelog runs for {dir}, and its tenant file has an error: {error}")];
        }
        Some(Err(_)) | None => Vec::new(),
    };
    let Some(server) = running else {
        return vec![format!(
            "it waits: no gatelog runs for {dir}; it is taken up when one starts: gatelog serve --dir {dir}"
        )];
    };
    let Some(url) = server.url else { return Vec::new() };
    let Ok(client) = Client::within(url.clone(), ASK) else { return Vec::new() };
    let asked = Asked { client: in_own_name(&args.dir, client), began: Instant::now() };
    let shown = seen.config.web.root.unwrap_or(url);
    let mut lines = asked.health();
    for tenant in named.iter().take(TENANTS_MAX) {
        lines.push(asked.tenant(&tenant.tenant, &args.project, &shown));
    }
    lines
}

/// The process that serves a directory; `None`: none does.
fn running(dir: &Path) -> Option<ServerFile> {
    let text = std::fs::read_to_string(dir.join(SERVER_FILE)).ok()?;
    let said: ServerFile = serde_json::from_str(&text).ok()?;
    // What was killed leaves its file behind, and its number may be another's by now.
    (started_ticks(said.pid)? == said.started_ticks).then_some(said)
}

/// A server that is asked for a while.
struct Asked {
    client: Client,
    began: Instant,
}

impl Asked {
    fn get(&self, path: &str) -> Option<Json> {
        if self.began.elapsed() >= ASK {
            return None;
        }
        self.client.get(path).ok()
    }

    /// The parts of the server that have stopped.
    fn health(&self) -> Vec<String> {
        // One that has stopped in part says so with the status 503, and the document.
        let Some(health) = self.client.get_any("/api/health") else { return Vec::new() };
        let parts = health["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let stopped = parts.iter().filter(|part| part["state"] == "stopped" && part["well"] == false);
        let text = |part: &Json, key: &str| part[key].as_str().unwrap_or_default().to_owned();
        stopped
            .take(2)
            .map(|part| format!("it waits: {} has stopped: {}", text(part, "part"), text(part, "detail")))
            .collect()
    }

    /// What a tenant does with a change of a project.
    fn tenant(&self, tenant: &str, project: &str, shown: &str) -> String {
        let shown = shown.trim_end_matches('/');
        let at = crate::commands::encrypt::escaped(tenant);
        let page = format!("{shown}/t/{at}/status");
        let Some(projects) = self.get(&format!("/api/tenant/{at}/projects")) else {
            return format!("tenant {tenant}: {page}");
        };
        let names = projects.as_array().map(Vec::as_slice).unwrap_or_default();
        if !names.iter().any(|one| one["name"] == project) {
            return format!(
                "it waits: the gatelog that runs does not know yet that tenant {tenant} has {project}; start it again"
            );
        }
        let Some(status) = self.get(&format!("/api/tenant/{at}/status")) else {
            return format!("tenant {tenant}: {page}");
        };
        let reason = status["state"]["reason"].as_str().map(|reason| format!(" ({reason})")).unwrap_or_default();
        if status["state"]["trigger_queue_discarding"] == true {
            return format!("nothing comes of it: tenant {tenant} drops what is pushed at the moment{reason}");
        }
        if status["state"]["trigger_queue_paused"] == true {
            return format!("it waits: tenant {tenant} is paused{reason}");
        }
        if status["pipelines"].as_array().is_some_and(Vec::is_empty) {
            return format!(
                "it waits: tenant {tenant} has no pipelines yet; its config projects define them: {shown}/t/{at}/config-errors"
            );
        }
        format!("tenant {tenant}: {page}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ref_of_the_forge_has_a_line_and_many_are_counted() {
        let (one, none) = ("1".repeat(40), "0".repeat(40));
        let read =
            |lines: &[String]| lines.iter().filter_map(|line| RefUpdate::parse(line.as_bytes())).collect::<Vec<_>>();
        let updates = read(&[
            format!("{none} {one} refs/heads/main"),
            format!("{none} {one} refs/for/main/fix"),
            format!("{one} {one} refs/for/feature/x/fix"),
            format!("{one} {none} refs/for/main/old"),
            format!("{none} {one} refs/approved/main/fix"),
            format!("{one} {none} refs/approved/main/old"),
            "nonsense".to_owned(),
        ]);
        assert_eq!(
            taken("app", &updates),
            (
                [
                    "proposed main/fix",
                    "proposed feature/x/fix again, as a new patchset",
                    "abandoned main/old",
                    "approved main/fix",
                    "main/old is not approved any more"
                ]
                .map(str::to_owned)
                .to_vec(),
                true
            )
        );
        let many: Vec<String> = (0..25).map(|number| format!("{none} {one} refs/for/main/c{number}")).collect();
        let (lines, _) = taken("app", &read(&many));
        assert_eq!((lines.len(), lines.last().map(String::as_str)), (TOLD_MAX + 1, Some("… and 15 more")));
        assert!(!taken("app", &read(&[format!("{one} {none} refs/for/main/fix")])).1);
    }
}
