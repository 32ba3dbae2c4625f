//! `gatelog doctor`: what this host can do for each role, and a cure for each lack.
//!
//! First facts are gathered ([`Facts::gather`]); what they mean is a pure function of them ([`judge`]), so that hosts
//! that are not at hand can be judged too.

mod forge;
mod kernel;
mod limits;
mod site;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gatelog_executing::{
    ByteSize, Delegated, ExecutorError, Features, Limits, Network, NoCgroup, NoWall, Probe, Release, Served, Wall,
    host_memory,
};
use gatelog_log_kafka::FindingKind;
use serde::Serialize;
use serde_json::json;

use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::{DoctorArgs, SiteArgs};
use crate::config::{ExecutorSection, FILE, SchedulerSection, SiteConfig};
use crate::governors::{Governors, Held, Measured};
use crate::logs::{self, SitePaths};
use crate::show::{Paint, Style, clean};

/// Less free space than this stops a log soon.
const LITTLE_SPACE: u64 = 1 << 30;
/// Each build and each reader of the page holds some.
const FEW_FILES: u64 = 4096;
/// Before this no gatelog existed: a clock that says so is wrong.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Well.
    Ok,
    /// It works, but could be better or safer.
    Warning,
    /// It does not work.
    Lack,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The role that needs it, or `site`.
    pub role: &'static str,
    /// What was looked at.
    pub check: &'static str,
    /// How it went.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do; with every level but [`Level::Ok`].
    pub cure: Option<String>,
    /// The exit code it stands for.
    #[serde(skip)]
    pub code: Code,
}

/// What bubblewrap has to do with.
#[derive(Clone, Debug, Default)]
pub struct SandboxFacts {
    /// What came of trying it.
    pub tried: Option<Result<(PathBuf, Features), SandboxFailure>>,
    /// `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu).
    pub apparmor_restricts: bool,
    /// `kernel.unprivileged_userns_clone` is 0 (Debian).
    pub clone_forbidden: bool,
    /// `user.max_user_namespaces` is 0.
    pub no_namespaces: bool,
    /// This process's root is not the host's.
    pub in_chroot: bool,
    /// In a container, as far as it tells.
    pub in_container: bool,
}

/// Why there is no sandbox.
#[derive(Clone, Debug)]
pub enum SandboxFailure {
    /// There is no bubblewrap.
    Missing,
    /// It is there and fails; what it says.
    Fails(String),
}

/// A file system that something of the site lies on.
#[derive(Clone, Debug)]
pub struct DiskFacts {
    /// What lies there.
    pub what: &'static str,
    /// Where.
    pub path: PathBuf,
    /// Bytes free for this user.
    pub free: u64,
    /// Files that can still be made; `None`: the file system does not count.
    pub free_files: Option<u64>,
    /// Whether this user may write.
    pub writable: bool,
    /// Whether it lies in memory.
    pub in_memory: bool,
}

/// An address that something wants to listen on.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// The key in gatelog.toml.
    pub key: &'static str,
    /// Where.
    pub address: SocketAddr,
    /// Why it cannot; `None`: it can.
    pub taken: Option<std::io::ErrorKind>,
}

/// What is known of the host.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The site's directory, and what is wrong with its configuration; `None`: no site was named.
    pub site: Option<(PathBuf, Option<String>)>,
    /// Whether a server runs this site.
    pub server_runs: bool,
    /// Whether this user is root.
    pub root: bool,
    /// The kernel.
    pub kernel: String,
    /// Processors.
    pub processors: usize,
    /// All memory and what is available of it.
    pub memory: Option<(u64, u64)>,
    /// Builds at once.
    pub slots: u32,
    /// Whether builds are to run without a sandbox.
    pub unsandboxed: bool,
    /// The limits of builds.
    pub limits: Limits,
    /// bubblewrap.
    pub sandbox: SandboxFacts,
    /// The named `ansible-playbook`, its version and Python; or why it is none.
    pub ansible: Result<(PathBuf, String, PathBuf), String>,
    /// Whether the settings name it; else it was only looked for on PATH.
    pub ansible_named: bool,
    /// What serves each version of Ansible that jobs may ask for.
    pub releases: Vec<(&'static Release, Served)>,
    /// The version that jobs get where nobody says otherwise.
    pub default_release: String,
    /// Why no builds would be taken now.
    pub held: Vec<Held>,
    /// What is wrong with the paths that the settings show to builds, and the cure.
    pub paths: Option<(String, String)>,
    /// git's version.
    pub git: Option<String>,
    /// Whether the forge needs git.
    pub has_git_connection: bool,
    /// The group for builds.
    pub cgroup: Result<Delegated, NoCgroup>,
    /// Whether the settings say to do without.
    pub cgroup_off: bool,
    /// Who refuses a build more processes than it may have.
    pub wall: Result<Wall, NoWall>,
    /// Whether the kernel filters system calls.
    pub filters_calls: bool,
    /// The network of builds.
    pub network: Network,
    /// What makes networks for builds.
    pub slirp: Option<PathBuf>,
    /// Whether builds run programs of the older processor of this one's kind.
    pub foreign_abi: bool,
    /// How many inotify instances a build may have, and how many its user has.
    pub inotify: Option<(u64, u64)>,
    /// The `ssh-agent` that builds get.
    pub ssh_agent: Option<PathBuf>,
    /// File systems.
    pub disks: Vec<DiskFacts>,
    /// The hard limit on open files.
    pub open_files: Option<u64>,
    /// What the clock says, since 1970.
    pub clock: Duration,
    /// Whether the kernel says that something keeps the clock; `None`: it does not tell.
    pub clock_kept: Option<bool>,
    /// Addresses.
    pub ports: Vec<PortFacts>,
    /// With the log on Kafka: the brokers, and what is wrong with them and its topics.
    pub kafka: Option<(String, Vec<KafkaLack>)>,
    /// The repositories of the site's forges.
    pub forge: Option<forge::ForgeFacts>,
}

/// What is wrong with a broker or topic: kind, what, cure.
pub type KafkaLack = (FindingKind, String, String);

/// Runs it.
pub fn run(site: &SiteArgs, args: &DoctorArgs) -> Result<ExitCode, Failure> {
    if args.site {
        return site::run(site, args.all, args.json);
    }
    if site.url.is_some() {
        return Err(Failure::new(Code::Usage, "doctor looks at the machine it runs on and does not take --url")
            .hint("run it on the machine the server is on; `gatelog doctor --site --url URL` asks a server"));
    }
    let facts = Facts::gather(named(site)?)?;
    let findings: Vec<Finding> = judge(&facts)
        .into_iter()
        .filter(|one| args.role.as_ref().is_none_or(|role| matters(one.role, role.name())))
        .collect();
    let code = verdict(&findings);
    let mut out = Output::new();
    let _ = if args.json {
        let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
        out.json(&json!({
            "ok": worst != Level::Lack,
            "worst": worst,
            "host": about(&facts),
            "site": facts.site.as_ref().map(|(dir, _)| dir.display().to_string()),
            "findings": findings,
        }))?
    } else {
        out.lines(&render(&about(&facts), &findings, Style::of_stdout()))?
    };
    let _ = out.flush()?;
    Ok(code.into())
}

/// The site's directory, and whether its server runs; `None`: no site was named, and there is none here.
fn named(site: &SiteArgs) -> Result<Option<(PathBuf, bool)>, Failure> {
    let by_environment = std::env::var_os("GATELOG_DIR").is_some_and(|dir| !dir.is_empty());
    if site.dir.is_none() && !by_environment && !Path::new(FILE).exists() {
        return Ok(None);
    }
    let site = site.directory("doctor")?;
    Ok(Some((site.dir().to_owned(), site.server().is_some())))
}

/// Whether a finding about `of` matters to a process with this role alone.
fn matters(of: &str, role: &str) -> bool {
    of == "site" || of == role || (of == "merger" && matches!(role, "connections" | "executor"))
}

/// The one code of all lacks, or 1 where they differ.
pub(super) fn verdict(findings: &[Finding]) -> Code {
    let codes: BTreeSet<u8> =
        findings.iter().filter(|finding| finding.level == Level::Lack).map(|finding| finding.code as u8).collect();
    let mut lacks = findings.iter().filter(|finding| finding.level == Level::Lack);
    match (codes.len(), lacks.next()) {
        (_, None) => Code::Ok,
        (1, Some(first)) => first.code,
        _ => Code::No,
    }
}

fn about(facts: &Facts) -> String {
    let user = if facts.root { "as root" } else { "as an ordinary user" };
    let memory =
        facts.memory.map_or_else(|| "unknown memory".to_owned(), |(total, _)| format!("{} of memory", ByteSize(total)));
    format!("{}, {} processors, {memory}, {user}", facts.kernel, facts.processors)
}

pub(super) fn render(about: &str, findings: &[Finding], style: Style) -> Vec<String> {
    let mut lines = vec![style.paint(Paint::Faint, &clean(about))];
    let mut role = "";
    for finding in findings {
        if finding.role != role {
            role = finding.role;
            lines.push(String::new());
            lines.push(style.paint(Paint::Bold, role));
        }
        let (word, colour) = match finding.level {
            Level::Ok => ("ok     ", Paint::Green),
            Level::Warning => ("warning", Paint::Yellow),
            Level::Lack => ("LACK   ", Paint::Red),
        };
        lines.push(format!("  {}  {:<15}  {}", style.paint(colour, word), finding.check, clean(&finding.found)));
        if let Some(cure) = &finding.cure {
            let marker = style.paint(Paint::Blue, "cure:");
            lines.extend(wrapped(&clean(cure), 80).iter().enumerate().map(|(at, part)| match at {
                0 => format!("           {marker} {part}"),
                _ => format!("                 {part}"),
            }));
        }
    }
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    lines.push(String::new());
    lines.push(match (count(Level::Lack), count(Level::Warning)) {
        (0, 0) => style.paint(Paint::Green, "All is well."),
        (0, warnings) => format!("Everything works; {}.", counted(warnings, "warning")),
        (lacks, warnings) => {
            style.paint(Paint::Red, &format!("{}, {}.", counted(lacks, "lack"), counted(warnings, "warning")))
        }
    });
    lines
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The text in lines of about this width, broken at spaces.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let full =
            lines.last().is_some_and(|line| !line.is_empty() && line.chars().count() + word.chars().count() >= width);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

// ---- what the facts mean ----

pub(super) fn ok(role: &'static str, check: &'static str, found: impl Into<String>) -> Finding {
    Finding { role, check, level: Level::Ok, found: found.into(), cure: None, code: Code::Ok }
}

pub(super) fn not_ok(
    level: Level,
    (role, check): (&'static str, &'static str),
    found: impl Into<String>,
    cure: impl Into<String>,
) -> Finding {
    Finding { role, check, level, found: found.into(), cure: Some(cure.into()), code: Code::No }
}

/// What these facts mean, role by role.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut all = vec![configuration(facts)];
    all.extend(facts.disks.iter().map(disk));
    all.push(open_files(facts));
    all.push(clock(facts));
    all.extend(kafka(facts));
    all.extend(forge::judge(facts.forge.as_ref()));
    all.push(sandbox(facts));
    all.push(ansible(facts));
    all.extend(facts.releases.iter().map(|(release, served)| release_of(facts, release, served)));
    all.extend(facts.paths.iter().map(|(found, cure)| not_ok(Level::Lack, ("executor", "paths"), found, cure)));
    all.extend(limits::governors(facts));
    all.push(limits::groups(facts));
    all.push(limits::wall(facts));
    all.push(limits::memory(facts));
    all.extend(kernel::judge(facts));
    all.push(limits::agent(facts));
    all.extend(user(facts));
    all.push(git(facts));
    all.extend(facts.ports.iter().filter(|port| port.key != "web").map(|one| port(one, facts)));
    // The order of roles is that of their first finding: what is the web's stands last.
    all.extend(facts.ports.iter().filter(|port| port.key == "web").map(|one| port(one, facts)));
    all.sort_by_key(|finding| match finding.role {
        "site" => 0,
        "executor" => 1,
        "merger" => 2,
        _ => 3,
    });
    all
}

fn configuration(facts: &Facts) -> Finding {
    match &facts.site {
        None => ok("site", "configuration", "no site was named: these are the defaults (--dir DIR names one)"),
        Some((dir, None)) => ok("site", "configuration", dir.join(FILE).display().to_string()),
        Some((dir, Some(error))) => {
            let cure = format!("correct {}; the checks below used the defaults", dir.join(FILE).display());
            Finding { code: Code::Usage, ..not_ok(Level::Lack, ("site", "configuration"), error.trim_end(), cure) }
        }
    }
}

fn disk(disk: &DiskFacts) -> Finding {
    let at = ("site", "disk");
    let (what, path, free) = (disk.what, disk.path.display(), ByteSize(disk.free));
    if !disk.writable {
        let cure = format!("give the user that runs gatelog the right to write to {path}, or name another directory");
        return not_ok(Level::Lack, at, format!("{what} in {path}: not writable"), cure);
    }
    if let Some(files) = disk.free_files.filter(|files| *files < 10_000) {
        let cure = "remove small files, or put the site on a file system with more inodes";
        return not_ok(Level::Lack, at, format!("{what} in {path}: room for {files} more files only"), cure);
    }
    if disk.free < LITTLE_SPACE {
        let cure = format!("free at least {}; a log on a full disk takes nothing more", ByteSize(LITTLE_SPACE));
        return not_ok(Level::Lack, at, format!("{what} in {path}: {free} free"), cure);
    }
    if disk.in_memory {
        let cure = "put the site on a disk: what lies in memory is gone with the next start of the host";
        return not_ok(Level::Warning, at, format!("{what} in {path}: {free} free, in memory (tmpfs)"), cure);
    }
    ok("site", "disk", format!("{what} in {path}: {free} free"))
}

fn open_files(facts: &Facts) -> Finding {
    let at = ("site", "open files");
    // The soft limit is raised to the hard one when a site is served.
    match facts.open_files {
        None => ok("site", "open files", "no limit"),
        Some(hard) if hard >= FEW_FILES => ok("site", "open files", format!("limit {hard}")),
        Some(hard) => {
            let cure =
                "raise the hard limit: LimitNOFILE=65536 in the systemd unit, or nofile in /etc/security/limits.conf";
            not_ok(Level::Warning, at, format!("limit {hard}: enough for a few builds and readers only"), cure)
        }
    }
}

fn clock(facts: &Facts) -> Finding {
    let at = ("site", "clock");
    if facts.clock < EARLIEST {
        let cure = "set the clock (timedatectl set-time) and let something keep it (systemd-timesyncd, chrony)";
        return not_ok(Level::Lack, at, "it stands before 2026", cure);
    }
    match facts.clock_kept {
        Some(true) => ok("site", "clock", "kept by the network"),
        // A host that keeps its guests' clocks looks the same from within.
        _ => {
            let cure = "let something keep it (systemd-timesyncd, chrony) unless the host of this virtual machine does; times on the log come from it";
            not_ok(Level::Warning, at, "the kernel does not know of anything that keeps it", cure)
        }
    }
}

fn kafka(facts: &Facts) -> Vec<Finding> {
    let Some((brokers, problems)) = &facts.kafka else { return Vec::new() };
    if problems.is_empty() {
        return vec![ok("site", "kafka", format!("{brokers} answers, and its topics are as they must be"))];
    }
    let one = |(kind, what, cure): &(FindingKind, String, String)| Finding {
        code: Code::of_finding(*kind),
        ..not_ok(Level::Lack, ("site", "kafka"), what, cure)
    };
    problems.iter().map(one).collect()
}

fn sandbox(facts: &Facts) -> Finding {
    const AT: (&str, &str) = ("executor", "bubblewrap");
    if facts.unsandboxed {
        return not_ok(
            Level::Warning,
            AT,
            "not used: jobs can read and write whatever gatelog can",
            "remove unsandboxed from [executor] unless every job is trusted",
        );
    }
    let sandbox = &facts.sandbox;
    let (reason, cure) = match &sandbox.tried {
        Some(Ok((path, features))) if *features == Features::ALL => {
            return ok("executor", "bubblewrap", format!("{} makes sandboxes", path.display()));
        }
        Some(Ok((path, features))) => {
            let mut less = Vec::new();
            if !features.no_nested_namespaces {
                less.push("jobs can make namespaces within them");
            }
            if !features.sizes {
                less.push("their /tmp may take half of the memory");
            }
            let found = format!("{} makes sandboxes, but {}", path.display(), less.join(" and "));
            return not_ok(Level::Warning, AT, found, "install bubblewrap 0.8 or later");
        }
        None | Some(Err(SandboxFailure::Missing)) => (
            "there is none on PATH".to_owned(),
            "install it (Debian and Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap)",
        ),
        Some(Err(SandboxFailure::Fails(said))) => {
            let cure = if sandbox.in_chroot {
                "leave the chroot: the kernel makes no user namespaces in one; run gatelog on the host or in a container"
            } else if sandbox.apparmor_restricts {
                "allow it: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or an AppArmor profile for bwrap with `userns,` (Ubuntu 24.04: apt install apparmor-profiles, then link bwrap-userns-restrict into /etc/apparmor.d)"
            } else if sandbox.clone_forbidden {
                "allow it: `sysctl kernel.unprivileged_userns_clone=1`, and a file in /etc/sysctl.d to keep it"
            } else if sandbox.no_namespaces {
                "allow it: `sysctl user.max_user_namespaces=15000`, and a file in /etc/sysctl.d to keep it"
            } else if sandbox.in_container {
                "let the container make namespaces and mount /proc (podman or docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined --cap-add SYS_ADMIN), or run gatelog on the host"
            } else {
                "run `bwrap --unshare-all --ro-bind / / true` as this user and see what stands in its way; on a host where every job is trusted, unsandboxed = true in [executor] does without"
            };
            (format!("it makes no sandbox: {said}"), cure)
        }
    };
    not_ok(Level::Lack, AT, reason, cure)
}

fn ansible(facts: &Facts) -> Finding {
    let at = ("executor", "ansible");
    let cure = "install ansible-core 2.16 or later (python3 -m venv DIR && DIR/bin/pip install ansible-core) and name DIR/bin/ansible-playbook as ansible-playbook of [executor]";
    let installed = |(_, served): &(&Release, Served)| matches!(served, Served::Environment(..));
    match &facts.ansible {
        // Nobody named one, and versions are installed: nothing is lacking.
        Err(_) if !facts.ansible_named && facts.releases.iter().any(installed) => {
            ok("executor", "ansible", "only the versions below")
        }
        Err(reason) => not_ok(Level::Lack, at, reason, cure),
        Ok((path, version, python)) => {
            let found = format!("ansible-core {version} ({}), Python {}", path.display(), python.display());
            let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
            let known = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            if known < (2, 14) {
                return not_ok(Level::Lack, at, format!("{found}: too old"), cure);
            }
            if known < (2, 16) {
                return not_ok(Level::Warning, at, format!("{found}: no longer cared for"), cure);
            }
            ok("executor", "ansible", found)
        }
    }
}

/// A version that jobs may ask for. Without the default one no job runs that does not ask for another.
fn release_of(facts: &Facts, release: &Release, served: &Served) -> Finding {
    const AT: (&str, &str) = ("executor", "ansible version");
    let (version, is_default) = (release.version, release.version == facts.default_release);
    let lack = if is_default { Level::Lack } else { Level::Warning };
    let cure = format!("run `gatelog ansible install {version}`");
    match served {
        Served::Environment(ansible, toolchain) => {
            let place = toolchain.ansible_playbook.display();
            ok(AT.0, AT.1, format!("{version}: {ansible}, ansible-core {} ({place})", toolchain.version))
        }
        Served::Named => {
            let found = format!(
                "{version}: not installed; the ansible-playbook above runs its jobs, with what collections it has"
            );
            ok(AT.0, AT.1, found)
        }
        Served::Substitute => {
            let found = format!(
                "{version}: not installed; the ansible-playbook above runs its jobs, although it is another version"
            );
            not_ok(Level::Warning, AT, found, cure)
        }
        Served::Nothing(None) => {
            let found = format!("{version}: not installed; builds of jobs that ask for it end ERROR");
            not_ok(lack, AT, found, cure)
        }
        Served::Nothing(Some(reason)) => not_ok(lack, AT, format!("{version}: {reason}"), cure),
    }
}

fn user(facts: &Facts) -> Option<Finding> {
    let found = "root: a hole in the kernel's sandbox would be a way to the whole host";
    let cure = "run gatelog as a user of its own (User=gatelog in the systemd unit); nothing it does needs root";
    facts.root.then(|| not_ok(Level::Warning, ("executor", "user"), found, cure))
}

fn git(facts: &Facts) -> Finding {
    match &facts.git {
        Some(version) => ok("merger", "git", version.clone()),
        None => {
            let level = if facts.has_git_connection { Level::Lack } else { Level::Warning };
            let cure = "install git: pushes to the built-in forge and many jobs need it (gatelog's own merges do not)";
            not_ok(level, ("merger", "git"), "there is none on PATH", cure)
        }
    }
}

fn port(port: &PortFacts, facts: &Facts) -> Finding {
    let role = if port.key == "web" { "web" } else { "executor" };
    let address = port.address;
    match port.taken {
        None if address.port() == 0 => ok(role, "port", format!("{} takes a free one", address.ip())),
        None => ok(role, "port", format!("{address} is free")),
        Some(std::io::ErrorKind::AddrInUse) if facts.server_runs => {
            ok(role, "port", format!("{address}: this site's server listens there"))
        }
        Some(kind) => {
            let (found, cure, code) = match kind {
                std::io::ErrorKind::AddrInUse => (
                    format!("{address} is in use"),
                    format!(
                        "stop what listens there (ss -ltnp 'sport = :{}'), or set listen under [{}]",
                        address.port(),
                        port.key
                    ),
                    Code::InUse,
                ),
                std::io::ErrorKind::PermissionDenied => (
                    format!("{address} is not for this user"),
                    format!("set listen under [{}] to a port of 1024 or more, behind a proxy", port.key),
                    Code::No,
                ),
                _ => (
                    format!("{address} is not an address of this host"),
                    format!("set listen under [{}] to an address of this host, such as 127.0.0.1:9000", port.key),
                    Code::No,
                ),
            };
            Finding { code, ..not_ok(Level::Lack, (role, "port"), found, cure) }
        }
    }
}

/// What a site in a directory needs of this host: ports, disks and Ansible, and what else is lacking or not done well.
pub(super) fn needed_by(dir: &Path, server_runs: bool) -> Result<Vec<Finding>, Failure> {
    let facts = Facts::gather(Some((dir.to_owned(), server_runs)))?;
    let named = |finding: &Finding| ["port", "disk", "ansible"].contains(&finding.check);
    Ok(judge(&facts).into_iter().filter(|finding| finding.level != Level::Ok || named(finding)).collect())
}

// ---- how the facts are found ----

impl Facts {
    /// Looks at this host. `site`: the site's directory, and whether its server runs.
    fn gather(site: Option<(PathBuf, bool)>) -> Result<Facts, Failure> {
        let server_runs = site.as_ref().is_some_and(|(_, runs)| *runs);
        let site = site.map(|(dir, _)| dir);
        let (config, wrong) = match &site {
            Some(dir) => match SiteConfig::read(dir) {
                Ok(config) => (Some(config), None),
                Err(error) => (None, Some(error.to_string())),
            },
            None => (None, None),
        };
        let section = config.as_ref().map_or_else(ExecutorSection::default, |config| config.executor.clone());
        let place = site.clone().unwrap_or_else(|| PathBuf::from("."));
        let settings = section.settings(&place);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(Code::No, format!("cannot run programs: {error}")))?;
        let probe = runtime.block_on(gatelog_executing::probe(&settings));
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let kafka = config.as_ref().and_then(|config| config.log.kafka.as_ref()).map(|section| {
            let findings = gatelog_log_kafka::check(logs::kafka(section, Vec::new()));
            (section.brokers.clone(), findings.into_iter().map(|one| (one.kind, one.what, one.cure)).collect())
        });
        let paths = config.as_ref().map(|config| SitePaths::new(&place, config));
        let private = paths.map_or_else(Vec::new, |paths| vec![place.clone(), paths.keys(), paths.blobs()]);
        let default_release = config.as_ref().map_or_else(SchedulerSection::default, |config| config.scheduler.clone());
        let connections = config.as_ref().map(|config| config.connection.values());
        let has_git_connection =
            connections.is_some_and(|mut all| all.any(|one| crate::forges::settings(one).is_some()));
        Ok(Facts {
            server_runs,
            root: rustix::process::geteuid().is_root(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory: host_memory(),
            slots: section.slots,
            unsandboxed: section.unsandboxed,
            limits: settings.limits.clone(),
            sandbox: sandbox_facts(&probe),
            wall: probe.wall,
            ssh_agent: probe.ssh_agent,
            slirp: probe.slirp,
            ansible: probe
                .ansible
                .map(|found| (found.ansible_playbook, found.version, found.python))
                .map_err(|error| error.to_string()),
            ansible_named: settings.ansible_playbook.is_some(),
            releases: probe.versions,
            default_release: default_release.default_ansible_version,
            held: Governors::new(section.bounds()).look(&Measured::here(&place)),
            paths: section.unusable_path(&place, &private),
            git: version_of("git"),
            has_git_connection,
            cgroup: Delegated::look(&settings.cgroup),
            cgroup_off: section.cgroup == "off",
            filters_calls: gatelog_executing::seccomp::is_there(),
            network: settings.network,
            foreign_abi: settings.foreign_abi,
            inotify: gatelog_executing::kernel::inotify_instances(section.slots),
            disks: disks(&place, config.as_ref()),
            open_files: limit.maximum,
            clock: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            clock_kept: clock_kept(),
            ports: ports(config.as_ref(), &section),
            kafka,
            forge: config.as_ref().map(|config| forge::look(&place, config)),
            site: site.map(|dir| (dir, wrong)),
        })
    }
}

fn sandbox_facts(probe: &Probe) -> SandboxFacts {
    let tried = match &probe.bubblewrap {
        Ok(found) => found.clone().map(Ok),
        Err(ExecutorError::BadBubblewrap { reason, .. }) => Some(Err(SandboxFailure::Fails(reason.clone()))),
        Err(_) => Some(Err(SandboxFailure::Missing)),
    };
    let sysctl = |name: &str| {
        let text = std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    SandboxFacts {
        tried,
        apparmor_restricts: sysctl("kernel/apparmor_restrict_unprivileged_userns") == Some(1),
        clone_forbidden: sysctl("kernel/unprivileged_userns_clone") == Some(0),
        no_namespaces: sysctl("user/max_user_namespaces") == Some(0),
        in_chroot: in_chroot(),
        in_container: Path::new("/run/.containerenv").exists()
            || Path::new("/.dockerenv").exists()
            || std::env::var_os("container").is_some(),
    }
}

/// Whether the root of this process is no mount: then it is a directory somebody changed to.
fn in_chroot() -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    !mounts.is_empty() && !places.any(|place| place == "/")
}

/// The first line of what a program says of its version.
fn version_of(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}

pub(super) fn disks(place: &Path, config: Option<&SiteConfig>) -> Vec<DiskFacts> {
    let paths = config.map_or_else(|| SitePaths::bare(place), |config| SitePaths::new(place, config));
    let mut seen = BTreeSet::new();
    let wanted = [("the site", place.to_owned()), ("blobs", paths.blobs()), ("keys", paths.keys())];
    wanted
        .into_iter()
        .filter_map(|(what, path)| {
            // What does not exist yet will be made in the nearest directory that does.
            let path = std::path::absolute(path).ok()?;
            let there = path.ancestors().find(|above| above.is_dir())?.to_owned();
            let found = rustix::fs::statvfs(&there).ok()?;
            // One line for each file system is enough.
            if !seen.insert(found.f_fsid) {
                return None;
            }
            const TMPFS: u64 = 0x0102_1994;
            let kind = rustix::fs::statfs(&there).ok().and_then(|kind| u64::try_from(kind.f_type).ok());
            Some(DiskFacts {
                what,
                free: found.f_bavail.saturating_mul(found.f_frsize),
                free_files: (found.f_files > 0).then_some(found.f_favail),
                writable: rustix::fs::access(&there, rustix::fs::Access::WRITE_OK).is_ok(),
                in_memory: kind == Some(TMPFS),
                path: there,
            })
        })
        .collect()
}

/// Whether something keeps the clock, as far as systemd's or chrony's traces tell.
fn clock_kept() -> Option<bool> {
    if Path::new("/run/systemd/timesync/synchronized").exists() || Path::new("/run/chrony/chronyd.sock").exists() {
        return Some(true);
    }
    let output = Command::new("timedatectl").args(["show", "--property=NTPSynchronized", "--value"]).output().ok()?;
    match String::from_utf8_lossy(&output.stdout).trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn ports(config: Option<&SiteConfig>, section: &ExecutorSection) -> Vec<PortFacts> {
    let web = config.map(|config| config.web.clone()).unwrap_or_default();
    let mut wanted = vec![("web", web.listen)];
    if config.is_some_and(|config| config.log.kafka.is_some()) {
        wanted.push(("executor", section.listen));
    }
    let taken = |address: SocketAddr| TcpListener::bind(address).err().map(|error| error.kind());
    wanted.into_iter().map(|(key, address)| PortFacts { key, address, taken: taken(address) }).collect()
}

#[cfg(test)]
mod tests;
