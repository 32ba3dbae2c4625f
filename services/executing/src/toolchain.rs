//! The programs a build is run with, looked at once when the executor starts.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;

use crate::cgroup::Delegated;
use crate::config::{ExecutorConfig, ExecutorError, SandboxMode};
use crate::environments::Release;
use crate::network;
use crate::sandbox::{Features, Profile};
use crate::versions::{self, Served};
use crate::wall::{self, NoWall, Wall};

/// How long a program may take to say what it is.
const PROBE: Duration = Duration::from_secs(60);

/// Asks Python about itself and the Ansible it would import.
const QUESTION: &str = "import json, os, sys\n\
    import ansible\n\
    from ansible.release import __version__ as version\n\
    from importlib import metadata\n\
    try: community = metadata.version('ansible')\n\
    except metadata.PackageNotFoundError: community = None\n\
    print(json.dumps({'executable': sys.executable, 'prefix': sys.prefix, 'base_prefix': sys.base_prefix,\n\
    'packages': os.path.dirname(os.path.dirname(os.path.abspath(ansible.__file__))), 'version': version,\n\
    'community': community}))\n";

/// Reads a file as Ansible reads one of variables; says what is wrong with it.
const VARIABLES: &str = "import sys\n\
    sys.path[:0] = sys.argv[2:]\n\
    import yaml\n\
    try: data = yaml.safe_load(open(sys.argv[1], encoding='utf-8'))\n\
    except Exception as error: sys.exit(' '.join(str(error).split()))\n\
    if not isinstance(data, dict): sys.exit('it holds no mapping of names to values')\n\
    bad = [name for name in data if not isinstance(name, str) or not name.isidentifier()]\n\
    if bad: sys.exit('%r is no name of a variable' % bad[0])\n";

/// The Ansible that runs playbooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// `ansible-playbook` itself, not a shim.
    pub ansible_playbook: PathBuf,
    /// The Python it runs with; also the one for tasks on `localhost`, because what Ansible finds
    /// by itself may be a shim that only works in some directories.
    pub python: PathBuf,
    /// ansible-core's version.
    pub version: String,
    /// The version of the community package `ansible`; `None`: ansible-core is alone.
    pub community: Option<String>,
    /// What of this host the sandbox must show for it to work, besides the system's directories.
    pub paths: Vec<PathBuf>,
    /// Where Ansible's packages lie if Python finds them only by way of the user's home.
    pub python_path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Answer {
    executable: PathBuf,
    prefix: PathBuf,
    base_prefix: PathBuf,
    packages: PathBuf,
    version: String,
    #[serde(default)]
    community: Option<String>,
}

impl Toolchain {
    /// Finds the Ansible that the settings name, or `PATH` has, and asks it what it is.
    pub(crate) async fn find(config: &ExecutorConfig) -> Result<Toolchain, ExecutorError> {
        let named = match &config.ansible_playbook {
            Some(path) => path.clone(),
            None => on_path("ansible-playbook").ok_or(ExecutorError::NoAnsible)?,
        };
        Toolchain::at(&named).await
    }

    /// Asks this `ansible-playbook` what it is.
    ///
    /// # Errors
    /// It does not work.
    pub async fn at(named: &Path) -> Result<Toolchain, ExecutorError> {
        let bad = |reason: String| ExecutorError::BadAnsible { path: named.to_owned(), reason };
        let named_absolute = std::path::absolute(named).map_err(|error| bad(error.to_string()))?;
        let (ansible_playbook, python) =
            match shebang_python(&named_absolute).map_err(|error| bad(error.to_string()))? {
                Some(python) => (named_absolute, python),
                None => real_location(&named_absolute).await.map_err(bad)?,
            };
        let text = ask(&python, &["-c", QUESTION]).await.map_err(bad)?;
        let answer: Answer = serde_json::from_str(text.trim())
            .map_err(|error| bad(format!("{} said {text:?}: {error}", python.display())))?;
        let under_prefix =
            [&answer.prefix, &answer.base_prefix].iter().any(|prefix| answer.packages.starts_with(prefix));
        let python_path = (!under_prefix).then(|| answer.packages.clone());
        let wanted = [&answer.prefix, &answer.base_prefix, &answer.packages, &ansible_playbook, &answer.executable];
        let paths = shown_paths(wanted.into_iter().map(PathBuf::as_path));
        let (python, version, community) = (answer.executable, answer.version, answer.community);
        Ok(Toolchain { ansible_playbook, python, version, community, paths, python_path })
    }

    /// Whether Ansible can read a file of variables; else why not.
    pub(crate) async fn check_variables(&self, file: &Path) -> Result<(), String> {
        let mut command = vec!["-c".into(), VARIABLES.into(), file.into()];
        // PyYAML lies where Ansible does.
        command.extend(self.python_path.iter().map(Into::into));
        // In front of the reason stands "exit status: 1: ".
        run(&self.python, command)
            .await
            .map(|_| ())
            .map_err(|said| said.splitn(3, ": ").last().unwrap_or(&said).to_owned())
    }
}

/// What an executor with these settings would find on this host.
#[derive(Debug)]
pub struct Probe {
    /// The `ansible-playbook` that the settings name, or `PATH` has.
    pub ansible: Result<Toolchain, ExecutorError>,
    /// What serves each version of Ansible that jobs may ask for.
    pub versions: Vec<(&'static Release, Served)>,
    /// The bubblewrap and the best sandbox it makes; `None` if the settings do without.
    pub bubblewrap: Result<Option<(PathBuf, Features)>, ExecutorError>,
    /// Who refuses a build more processes than it may have.
    pub wall: Result<Wall, NoWall>,
    /// The `ssh-agent` that builds get; `None`: they get none, and a build that is given keys fails.
    pub ssh_agent: Option<PathBuf>,
    /// What makes networks for builds.
    pub slirp: Option<PathBuf>,
}

/// Looks for Ansible and bubblewrap and tries them, without opening an executor.
pub async fn probe(config: &ExecutorConfig) -> Probe {
    let bubblewrap = find_bubblewrap(config).await;
    let sandbox = bubblewrap.as_ref().ok().and_then(Option::as_ref);
    let wall = wall::look(config.limits.processes.is_some(), &Delegated::look(&config.cgroup), sandbox);
    let ansible = Toolchain::find(config).await;
    let versions = versions::served(config, &ansible).await;
    Probe { ansible, versions, bubblewrap, wall, ssh_agent: on_path("ssh-agent"), slirp: on_path(network::PROGRAM) }
}

/// Finds bubblewrap and lets it make a sandbox, as good a one as it can. `None`: configured to do
/// without.
pub async fn find_bubblewrap(config: &ExecutorConfig) -> Result<Option<(PathBuf, Features)>, ExecutorError> {
    let path = match &config.sandbox {
        SandboxMode::Unsandboxed => return Ok(None),
        SandboxMode::Bubblewrap { bwrap: Some(path) } => path.clone(),
        SandboxMode::Bubblewrap { bwrap: None } => on_path("bwrap").ok_or(ExecutorError::NoBubblewrap)?,
    };
    let mut reason = None;
    for features in Features::LADDER {
        let argv = Profile::system(config.limits.tmp_bytes).argv(&["true".into()], features);
        match run(&path, argv).await {
            Ok(_) => return Ok(Some((path, features))),
            // The first is about the best sandbox; a later one may only repeat it.
            Err(said) => reason = reason.or(Some(said)),
        }
    }
    Err(ExecutorError::BadBubblewrap { path, reason: reason.unwrap_or_default() })
}

/// The paths to show, each with what it really is, without those that are shown anyway.
fn shown_paths<'a>(wanted: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut all = BTreeSet::new();
    for path in wanted {
        all.insert(path.to_owned());
        all.extend(fs::canonicalize(path));
    }
    let system: Vec<PathBuf> = ["/usr", "/bin", "/sbin", "/lib", "/lib64"].map(PathBuf::from).to_vec();
    let mut shown: Vec<PathBuf> = Vec::new();
    // In order, so a directory comes before what lies in it.
    for path in all {
        if path != Path::new("/") && !system.iter().chain(&shown).any(|parent| path.starts_with(parent)) {
            shown.push(path);
        }
    }
    shown
}

/// A program on this process's `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The Python a script says it is for; `None` if it is no Python script (a version manager's shim).
fn shebang_python(script: &Path) -> std::io::Result<Option<PathBuf>> {
    let mut start = Vec::new();
    fs::File::open(script)?.take(1024).read_to_end(&mut start)?;
    let start = String::from_utf8_lossy(&start);
    let mut lines = start.lines();
    let Some(mut words) = lines.next().and_then(|line| line.strip_prefix("#!")).map(str::split_whitespace) else {
        return Ok(None);
    };
    let python =
        |word: &str| Path::new(word).file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let found = match words.next() {
        Some(program) if python(program) => Some(PathBuf::from(program)),
        Some(program) if program.ends_with("/env") => words.find(|word| python(word)).and_then(on_path),
        // pip writes this where the path is too long for the first line: '''exec' "/path" "$0" "$@"
        Some("/bin/sh") => lines
            .next()
            .and_then(|line| line.strip_prefix("'''exec' "))
            .and_then(|rest| rest.trim_matches(|c| c == '"' || c == ' ').split('"').next().map(str::trim))
            .filter(|path| python(path))
            .map(PathBuf::from),
        _ => None,
    };
    Ok(found.filter(|path| is_program(path)))
}

/// Where the program behind a shim lies, and its Python, by what it says about itself.
async fn real_location(shim: &Path) -> Result<(PathBuf, PathBuf), String> {
    let text = ask(shim, &["--version"]).await?;
    let field = |name: &str| {
        text.lines().find_map(|line| {
            line.trim().strip_prefix(name)?.trim().strip_prefix('=').map(|rest| rest.trim().to_owned())
        })
    };
    let location = field("executable location");
    let python = field("python version")
        .and_then(|version| version.rsplit_once('(').map(|(_, path)| path.trim_end_matches(')').to_owned()));
    match (location, python) {
        (Some(location), Some(python)) if python.starts_with('/') => Ok((location.into(), python.into())),
        _ => Err("it does not say where it lies and which Python it uses".into()),
    }
}

async fn ask(program: &Path, arguments: &[&str]) -> Result<String, String> {
    run(program, arguments.iter().map(Into::into).collect()).await
}

async fn run(program: &Path, arguments: Vec<std::ffi::OsString>) -> Result<String, String> {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true).current_dir("/");
    let output = match tokio::time::timeout(PROBE, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer within {} s", PROBE.as_secs())),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{}: {last}", output.status))
}
