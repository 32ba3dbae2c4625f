//! `gatelog check --site`: what a start with the `gatelog.toml` of now would meet, before it is tried.
//!
//! It reads: the log is not opened for writing, and what has to be written to look at repositories goes into a temporary
//! directory. A server that runs goes on undisturbed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use gatelog_driver_contract::{Connections, Lack, Opening, chain};
use gatelog_effects::config_read;
use gatelog_effects::git::Repositories;
use gatelog_effects::layout::load_input;
use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_merging::{Mirrors, MirrorsConfig};
use gatelog_record::WorkId;
use gatelog_record::draft::gate::{ConfigReadWanted, ConfigScope, LayoutPurpose, LayoutWanted, TenantLoaded};
use gatelog_rules_config::load::load;
use gatelog_rules_config::{Problem, Severity};
use gatelog_secrets::Keyring;
use serde_json::{Value as Json, json};

use super::summary;
use crate::cli::{CheckArgs, CheckFormat, SiteArgs};
use crate::commands::doctor::{self, Finding, Level, not_ok, ok};
use crate::commands::failure::{Code, Failure};
use crate::commands::output::Output;
use crate::commands::site::Site;
use crate::config::SiteConfig;
use crate::drivers;
use crate::logs::SitePaths;
use crate::settings::{self, Change, Settings};
use crate::show::{Paint, Style, clean};
use crate::tenants::{self, WebRoot};

/// What was found.
struct Found {
    findings: Vec<Finding>,
    problems: Vec<Problem>,
    changes: Vec<Change>,
    runs: bool,
}

/// Looks and tells. Exit code 1 when a start would fail or leave something out, or for a warning with `--strict`.
pub fn run(of: &SiteArgs, args: &CheckArgs) -> Result<ExitCode, Failure> {
    if args.format == CheckFormat::Sarif {
        return Err(Failure::new(Code::Usage, "check --site does not print SARIF").hint("use --format json"));
    }
    let site = of.directory("check --site")?;
    let Some(config) = site.config()? else {
        let message = format!("there is no {} in {}", crate::config::FILE, site.dir().display());
        return Err(Failure::new(Code::NotFound, message));
    };
    let mut found = look(&site, &config)?;
    if !args.hints {
        found.problems.retain(|problem| problem.severity != Severity::Notice);
    }
    let code = found.verdict(args.strict);
    let mut out = Output::new();
    let _ = match args.format {
        CheckFormat::Json => out.json(&json!({
            "ok": code == Code::Ok,
            "site": site.dir().display().to_string(),
            "runs": found.runs,
            "findings": found.findings,
            "problems": found.problems.iter().map(Problem::to_json).collect::<Vec<Json>>(),
            "settings": found.changes,
        }))?,
        _ => out.lines(&lines(&site, &found, code))?,
    };
    let _ = out.flush()?;
    Ok(code.into())
}

impl Found {
    fn verdict(&self, strict: bool) -> Code {
        let is_bad = |problem: &Problem| match problem.severity {
            Severity::Error => true,
            Severity::Warning => strict,
            Severity::Notice => false,
        };
        match doctor::verdict(&self.findings) {
            // The same code as `serve` has for it.
            Code::Ok if self.changes.iter().any(|change| change.refused.is_some()) => Code::Usage,
            Code::Ok if self.problems.iter().any(is_bad) => Code::No,
            Code::Ok if strict && self.findings.iter().any(|one| one.level == Level::Warning) => Code::No,
            code => code,
        }
    }
}

fn lines(site: &Site, found: &Found, code: Code) -> Vec<String> {
    let style = Style::of_stdout();
    let runs = if found.runs { "its server runs" } else { "no server runs" };
    let mut lines = doctor::render(&format!("{}: {runs}", site.dir().display()), &found.findings, style);
    // The verdict is on all of it.
    let _ = lines.pop();
    lines.push(style.paint(Paint::Bold, "configuration of the tenants"));
    lines.extend(found.problems.iter().map(|problem| format!("{problem}\n")));
    lines.push(format!("  {}", summary(&found.problems)));
    lines.push(String::new());
    lines.push(style.paint(Paint::Bold, "settings that a start changes"));
    for change in &found.changes {
        let colour = if change.refused.is_some() { Paint::Red } else { Paint::Yellow };
        lines.push(format!("  {}", style.paint(colour, &clean(&change.to_string()))));
    }
    if found.changes.is_empty() {
        lines.push("  none".to_owned());
    }
    lines.push(String::new());
    lines.push(match code {
        Code::Ok => style.paint(Paint::Green, "It can be started so."),
        _ => style.paint(Paint::Red, "Correct this before a start."),
    });
    lines
}

fn look(site: &Site, config: &SiteConfig) -> Result<Found, Failure> {
    let (dir, runs) = (site.dir(), site.server().is_some());
    let mut findings = vec![ok("site", "gatelog.toml", "can be read")];
    findings.extend(files(dir, config));
    findings.extend(directories(dir, config));
    let scratch = Scratch::new().map_err(|error| Failure::new(Code::No, format!("no temporary directory: {error}")))?;
    let (connections, told) = connections(dir, config, &scratch.0)?;
    let mut problems = BTreeSet::new();
    let (mut of_tenants, mut problems_of) = (told, Vec::new());
    match tenant_file(dir, config, &connections) {
        Err(finding) => findings.push(finding),
        Ok((blobs, loaded)) => {
            findings.push(ok("site", "tenant file", tenants_of(&loaded)));
            problems_of.extend(loaded.problems);
            let mirrors = Mirrors::open(MirrorsConfig::new(scratch.0.join("mirrors")));
            let mirrors = mirrors.map_err(|error| Failure::new(Code::No, chain(&error)))?;
            let repositories =
                Repositories { mirrors: Arc::new(mirrors), connections, blobs: Arc::new(blobs), begun: Arc::default() };
            for tenant in loaded.tenants {
                let (lacking, of_tenant) = configuration(&repositories, tenant);
                of_tenants.extend(lacking);
                problems_of.extend(of_tenant);
            }
        }
    }
    findings.extend(of_tenants);
    findings.extend(doctor::needed_by(dir, runs)?);
    // The site itself first; each role once.
    findings.sort_by_key(|finding| (finding.role != "site", finding.role));
    // Tenants share repositories; what is wrong in one place is told once.
    problems_of.retain(|problem| problems.insert(problem.clone()));
    let changes = settings::changes(dir, &Settings::of_file(dir).unwrap_or_default(), config);
    Ok(Found { findings, problems: problems_of, changes, runs })
}

/// A directory of its own that goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Scratch> {
        let now = crate::clock::now().0;
        let path = std::env::temp_dir().join(format!("gatelog-check-{}-{now}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, directory = %self.0.display(), "a temporary directory is left");
        }
    }
}

/// The connections, as far as their directories are there.
fn connections(dir: &Path, config: &SiteConfig, scratch: &Path) -> Result<(Connections, Vec<Finding>), Failure> {
    const AT: (&str, &str) = ("connections", "repositories");
    let keyring = Keyring::open_dir(scratch.join("keys")).map_err(|error| Failure::new(Code::No, chain(&error)))?;
    let (keyring, mut findings) = (Arc::new(keyring), Vec::new());
    let mut known = Connections::new(drivers::schemas());
    for (name, connection) in &config.connection {
        let (keyring, now) = (Arc::clone(&keyring), crate::clock::now);
        let looked = connection.settings.look(&Opening { name, site: dir, keyring, now, program: None });
        findings.push(match looked.found {
            Ok(found) => ok(AT.0, AT.1, format!("{name}: {found}")),
            Err(Lack { what, cure }) => not_ok(Level::Lack, AT, format!("{name}: {what}"), cure),
        });
        looked.connection.into_iter().for_each(|connection| known.add(connection));
    }
    Ok((known, findings))
}

/// Files that settings name and that must be read.
fn files(dir: &Path, config: &SiteConfig) -> Vec<Finding> {
    const AT: (&str, &str) = ("site", "files");
    let mut findings = Vec::new();
    let executor = &config.executor;
    let s3 = config.job_logs.s3.as_ref().map(|s3| &s3.secret_access_key_file);
    for (key, file) in [
        ("variables under [executor]", executor.variables.as_ref()),
        ("private-key-file under [executor]", executor.private_key_file.as_ref()),
        ("secret-access-key-file under [job-logs.s3]", s3),
    ] {
        let Some(path) = file.map(|file| dir.join(file)) else { continue };
        if let Err(error) = std::fs::read(&path) {
            let cure = format!("correct {key}, or put the file there");
            findings.push(not_ok(Level::Lack, AT, format!("{}: {error}", path.display()), cure));
        }
    }
    if let Err(error) = crate::auth::check(dir, config) {
        findings.push(not_ok(Level::Lack, AT, error.to_string(), "correct [auth], or put the file there"));
    }
    findings
}

/// Directories that must be read and written to.
fn directories(dir: &Path, config: &SiteConfig) -> Vec<Finding> {
    let paths = SitePaths::new(dir, config);
    let logs = config.job_logs.dir.as_ref().map(|logs| dir.join(logs));
    let own = [dir.to_owned(), paths.log(), paths.projections(), paths.keys(), paths.blobs()];
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for path in own.into_iter().chain(logs).chain(config.audit.directory(dir)) {
        let path = std::path::absolute(&path).unwrap_or(path);
        // What is not there yet is made in the nearest directory that is.
        let Some(there) = path.ancestors().find(|above| above.is_dir()) else { continue };
        let all = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        if rustix::fs::access(there, all).is_err() && seen.insert(there.to_owned()) {
            let found = format!("this user may not read and write {}", there.display());
            let cure = "run the check and gatelog as the user the directory belongs to";
            findings.push(not_ok(Level::Lack, ("site", "directories"), found, cure));
        }
    }
    findings
}

/// The tenant file as `serve` reads it, and its blobs.
fn tenant_file(
    dir: &Path,
    config: &SiteConfig,
    connections: &Connections,
) -> Result<(MemoryBlobs, tenants::Loaded), Finding> {
    let (path, blobs) = (dir.join(&config.tenant_file), MemoryBlobs::new());
    let web_root = WebRoot { url: config.web.root.as_deref().unwrap_or_default(), lasts: true };
    let default_ansible = &config.scheduler.default_ansible_version;
    match tenants::load(&path, default_ansible, connections, &blobs, None, web_root) {
        Ok(loaded) => Ok((blobs, loaded)),
        Err(error) => {
            let cure = "correct the file, or tenant-file in gatelog.toml";
            Err(not_ok(Level::Lack, ("site", "tenant file"), chain(&error), cure))
        }
    }
}

/// The tenants of a file, in a few words.
fn tenants_of(loaded: &tenants::Loaded) -> String {
    match loaded.tenants.as_slice() {
        [one] => format!("can be read: tenant {}", one.tenant),
        all => format!("can be read: {} tenants", all.len()),
    }
}

/// What is wrong with a tenant's configuration as its repositories have it now.
fn configuration(repositories: &Repositories, loaded: TenantLoaded) -> (Vec<Finding>, Vec<Problem>) {
    let (work, tenant) = (WorkId([0; 16]), loaded.tenant.clone());
    let (scope, projects) = (ConfigScope::Tenant, loaded.projects);
    let wanted = ConfigReadWanted { work, tenant: tenant.clone(), scope, projects };
    let read = config_read::read(repositories, &wanted, 1);
    let lacking = read.failed.iter().map(|one| {
        let found = format!("tenant {tenant}: {}: {} ({})", one.project, one.message, one.code);
        let cure = "bring the repository to its connection, or take the project out of the tenant file";
        not_ok(Level::Lack, ("connections", "projects"), found, cure)
    });
    let mut findings: Vec<Finding> = lacking.collect();
    let wanted = LayoutWanted {
        work,
        tenant: tenant.clone(),
        purpose: LayoutPurpose::Tenant,
        item: None,
        buildset: None,
        settings: loaded.settings,
        files: read.sets,
        ahead: None,
        changed: Vec::new(),
        base: None,
    };
    let blobs: &dyn Blobs = &*repositories.blobs;
    match load_input(blobs, &repositories.connections, &wanted) {
        Ok(input) => (findings, load(&input).1),
        Err(trouble) => {
            let at = ("site", "configuration");
            findings.push(not_ok(Level::Lack, at, format!("tenant {tenant}: {trouble}"), "see what is said above"));
            (findings, Vec::new())
        }
    }
}
