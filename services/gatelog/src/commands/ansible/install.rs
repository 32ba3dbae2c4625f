//! `gatelog ansible install`: a venv for each version, made beside what is there, and named by its link when all of it is
//! there and has been started once.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use gatelog_executing::environments::{
    self, COMMON_REQUIREMENTS, Environment, FORMAT, MARKER, Marker, Package, RELEASES, Release,
};
use gatelog_executing::{Toolchain, versions};
use rustix::fs::FlockOperation;
use serde_json::Value as Json;

use super::{Place, releases};
use crate::cli::ansible::AnsibleInstallArgs;
use crate::commands::failure::{Code, Failure};

/// Asks a Python what it is, and whether it can make environments.
const PYTHON: &str = "import sys, venv, ensurepip\nprint(sys.executable, sys.version_info[0], sys.version_info[1])\n";
/// What must not reach pip: it would install elsewhere.
const NOT_FOR_PIP: [&str; 6] = ["PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT"];
/// How much of what a program said is shown where it fails.
const LAST_LINES: usize = 15;

/// Installs what is named and not there. One that fails keeps none of the others from being installed.
pub fn run(place: &Place, args: &AnsibleInstallArgs) -> Result<ExitCode, Failure> {
    let wanted = releases(&args.versions)?.unwrap_or_else(|| RELEASES.iter().collect());
    fs::create_dir_all(&place.root).map_err(|error| at(&place.root, "cannot be made", &error))?;
    let _lock = lock(&place.root)?;
    let mut failed = None;
    for release in wanted {
        if !args.upgrade
            && let Some(environment) = working(&place.root, release)?
        {
            let (ansible, directory) = (&environment.marker.ansible, environment.directory.display());
            say(&format!("Ansible {}: {ansible} is installed in {directory} (--upgrade replaces it)", release.version));
            continue;
        }
        match install(&place.root, release, args.python.as_deref()) {
            Ok(marker) => {
                let (ansible, core, packages) = (&marker.ansible, &marker.ansible_core, marker.packages.len());
                say(&format!(
                    "Ansible {}: {ansible} is installed (ansible-core {core}, {packages} packages)",
                    release.version
                ));
            }
            Err(failure) => {
                // The last one ends the command; those before it are told at once.
                if let Some(before) = failed.replace(failure) {
                    Failure::print(&before);
                }
            }
        }
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// The environment of a release that is there and starts; what is wrong with one that does not is said.
fn working(root: &Path, release: &Release) -> Result<Option<Environment>, Failure> {
    let found = match environments::find(root, release.version) {
        Ok(Some(environment)) => runtime()?.block_on(versions::start(&environment)).map(|_| Some(environment)),
        Ok(None) => Ok(None),
        Err(broken) => Err(broken.to_string()),
    };
    Ok(found.unwrap_or_else(|reason| {
        say(&format!("{reason}; another takes its place"));
        None
    }))
}

/// Runs what is asynchronous.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(Code::No, format!("cannot run programs: {error}")))
}

fn say(line: &str) {
    // What cannot be said is no reason not to install.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn at(path: &Path, what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::No, format!("{} {what}: {error}", path.display()))
        .hint("set ansible-root under [executor] to a directory that this user may write to")
}

/// One at a time: what another has begun is not taken for the leftovers of a crash.
fn lock(root: &Path) -> Result<fs::File, Failure> {
    let path = root.join(".lock");
    let file = fs::File::create(&path).map_err(|error| at(&path, "cannot be written", &error))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Failure::new(Code::InUse, format!("another `gatelog ansible install` works in {}", root.display()))
            .hint("wait until it has ended")
    })?;
    Ok(file)
}

/// Makes an environment, and lets the link name it.
fn install(root: &Path, release: &Release, python: Option<&Path>) -> Result<Marker, Failure> {
    let python = find_python(release, python)?;
    let before = sweep(root, release)?;
    let number = before.iter().map(|(number, _)| *number).max().unwrap_or(0) + 1;
    let directory = root.join(format!("{}-{number}", release.version));
    say(&format!("Ansible {}: installing into {}; this takes some minutes", release.version, directory.display()));
    let marker = make(&directory, release, &python).inspect_err(|_| {
        // What cannot be removed now is removed by the next installation.
        let _ = fs::remove_dir_all(&directory);
    })?;
    publish(root, release, &directory, &marker).map_err(|error| at(&directory, "cannot take its place", &error))?;
    // The one that was in its place stays: builds that run use it.
    let stays = before.len().saturating_sub(1);
    for (_, old) in before.into_iter().take(stays) {
        let _ = fs::remove_dir_all(old);
    }
    Ok(marker)
}

/// The environments of a release by their numbers, oldest first. What crashes left of others is removed.
fn sweep(root: &Path, release: &Release) -> Result<Vec<(u64, PathBuf)>, Failure> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root).map_err(|error| at(root, "cannot be read", &error))? {
        let entry = entry.map_err(|error| at(root, "cannot be read", &error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix(release.version).and_then(|rest| rest.strip_prefix('-')?.parse::<u64>().ok());
        let Some(number) = number else { continue };
        if entry.path().join(MARKER).exists() {
            all.push((number, entry.path()));
        } else {
            fs::remove_dir_all(entry.path()).map_err(|error| at(&entry.path(), "cannot be removed", &error))?;
        }
    }
    all.sort();
    Ok(all)
}

/// A Python that the release runs on and that can make environments: the one that is named, or the first on `PATH`.
fn find_python(release: &Release, named: Option<&Path>) -> Result<PathBuf, Failure> {
    let (oldest, newest) = release.python;
    let candidates: Vec<PathBuf> = match named {
        Some(program) => vec![program.to_owned()],
        None => std::iter::once(PathBuf::from("python3"))
            .chain((oldest..=newest).rev().map(|minor| PathBuf::from(format!("python3.{minor}"))))
            .collect(),
    };
    let mut found = Vec::new();
    for program in &candidates {
        let name = program.display();
        let output = Command::new(program).args(["-c", PYTHON]).stdin(Stdio::null()).output();
        let Ok(output) = output else { continue };
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = said.lines().last().unwrap_or("it said nothing").to_owned();
            let lacks = last.contains("No module named");
            found.push(format!("{name} {}: {last}", if lacks { "cannot make environments" } else { "fails" }));
            continue;
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = text.trim().rsplitn(3, ' ');
        let (minor, major, real) = (words.next(), words.next(), words.next());
        let minor = minor.and_then(|minor| minor.parse::<u32>().ok());
        match (real, major, minor) {
            (Some(real), Some("3"), Some(minor)) if (oldest..=newest).contains(&minor) => return Ok(real.into()),
            (_, Some(major), Some(minor)) => found.push(format!("{name} is Python {major}.{minor}")),
            _ => found.push(format!("{name} does not say what it is")),
        }
    }
    let needs = format!("Ansible {} needs Python 3.{oldest} to 3.{newest} with venv", release.version);
    let detail = if found.is_empty() { "there is no python3 on PATH".to_owned() } else { found.join("; ") };
    Err(Failure::new(Code::No, needs).detail(detail).hint(format!(
        "install one (Debian and Ubuntu: apt install python3-venv, or python3.N-venv for another N), or name it with --python; \
         3.{newest} is the newest that will do"
    )))
}

/// Makes the venv, installs into it and starts it.
fn make(directory: &Path, release: &Release, python: &Path) -> Result<Marker, Failure> {
    let mut venv = Command::new(python);
    run_quietly(venv.args(["-m", "venv"]).arg(directory), "the environment cannot be made")
        .map_err(|failure| failure.hint("install python3-venv (Debian and Ubuntu: apt install python3-venv)"))?;
    let offline = "is there a network? If it needs a proxy or another index, set HTTPS_PROXY or PIP_INDEX_URL";
    // Older ones do not tell what they installed.
    let mut newer = pip(directory);
    run_quietly(newer.args(["install", "--upgrade", "pip>=23"]), "pip cannot be brought up to date")
        .map_err(|failure| failure.hint(offline))?;
    let requirements: Vec<String> = std::iter::once(release.requirement)
        .chain(COMMON_REQUIREMENTS)
        .map(str::to_owned)
        .chain(extra_packages(release.version))
        .collect();
    let report = directory.join("pip-report.json");
    let mut install = pip(directory);
    install.arg("install").arg("--no-cache-dir").arg("--report").arg(&report).args(&requirements);
    run_quietly(&mut install, "pip cannot install it").map_err(|failure| failure.hint(offline))?;
    let packages = reported(&report).map_err(|reason| Failure::new(Code::No, reason))?;
    let started = runtime()?.block_on(Toolchain::at(&directory.join("bin/ansible-playbook")));
    let toolchain = started.map_err(|error| Failure::new(Code::No, format!("it was installed, and: {error}")))?;
    if !release.has_core(&toolchain.version) {
        let (series, version) = (release.core_series(), &toolchain.version);
        let message = format!("Ansible {} has ansible-core {series}, and {version} was installed", release.version);
        return Err(Failure::new(Code::No, message));
    }
    Ok(Marker {
        format: FORMAT,
        release: release.version.into(),
        ansible: packages.get("ansible").map(|package| package.version.clone()).unwrap_or_default(),
        ansible_core: toolchain.version,
        python: version_of(&directory.join("bin/python")),
        requirements,
        packages,
    })
}

fn pip(directory: &Path) -> Command {
    let mut command = Command::new(directory.join("bin/python"));
    command.args(["-m", "pip", "--no-input", "--disable-pip-version-check", "--quiet"]);
    for name in NOT_FOR_PIP {
        command.env_remove(name);
    }
    command
}

/// What an operator wants installed besides. Zuul: the same variables of its environment.
fn extra_packages(version: &str) -> Vec<String> {
    let names = [format!("ANSIBLE_{version}_EXTRA_PACKAGES"), "ANSIBLE_EXTRA_PACKAGES".to_owned()];
    let texts = names.iter().filter_map(|name| std::env::var(name).ok());
    texts.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Runs a program; only where it fails it is told what it said.
fn run_quietly(command: &mut Command, what: &str) -> Result<(), Failure> {
    let failed = |reason: String, detail: String| {
        let failure = Failure::new(Code::No, format!("{what}: {reason}"));
        if detail.is_empty() { failure } else { failure.detail(detail) }
    };
    let output = command.stdin(Stdio::null()).output().map_err(|error| failed(error.to_string(), String::new()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default();
    Err(failed(output.status.to_string(), last.join("\n")))
}

/// What pip says it installed.
fn reported(path: &Path) -> Result<BTreeMap<String, Package>, String> {
    let unreadable = |error: &dyn std::fmt::Display| format!("pip's report {} cannot be read: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    let report: Json = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
    let mut packages = BTreeMap::new();
    for one in report["install"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let (Some(name), Some(version)) = (one["metadata"]["name"].as_str(), one["metadata"]["version"].as_str())
        else {
            return Err(unreadable(&"a package without name or version"));
        };
        let sha256 = one["download_info"]["archive_info"]["hashes"]["sha256"].as_str().map(str::to_owned);
        packages.insert(name.to_lowercase(), Package { version: version.to_owned(), sha256 });
    }
    if !packages.contains_key("ansible") {
        return Err(unreadable(&"it names no package ansible"));
    }
    Ok(packages)
}

fn version_of(python: &Path) -> String {
    let output = Command::new(python).arg("--version").stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.trim().trim_start_matches("Python ").to_owned()
}

/// Writes the marker and lets the link name the environment. Each step is on the disk before the next.
fn publish(root: &Path, release: &Release, directory: &Path, marker: &Marker) -> std::io::Result<()> {
    let text = serde_json::to_string_pretty(marker).map_err(std::io::Error::other)?;
    rustix::fs::sync();
    let mut file = fs::File::create(directory.join(".marker"))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(directory.join(".marker"), directory.join(MARKER))?;
    fs::File::open(directory)?.sync_all()?;
    let name = directory.file_name().ok_or_else(|| std::io::Error::other("it has no name"))?;
    let new = root.join(format!(".{}-link", release.version));
    let _ = fs::remove_file(&new);
    symlink(name, &new)?;
    fs::rename(&new, environments::link(root, release.version))?;
    fs::File::open(root)?.sync_all()
}
