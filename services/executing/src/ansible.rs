//! How `ansible-playbook` is called: its configuration, arguments, environment and plugins.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::config::{ExecutorConfig, ExecutorError, Network};
use crate::jobdir::{JobDir, make_dir, write};
use crate::playbooks::PlaybookInPlace;
use crate::process::MARK;
use crate::sandbox::{Mount, Profile};
use crate::spec::{BuildSpec, Connection, Phase};
use crate::ssh;
use crate::toolchain::Toolchain;

/// gatelog's own plugins, by their place below the directory of plugins.
const PLUGINS: [(&str, &str); 12] = [
    ("action/gatelog_freeze.py", include_str!("plugins/action/gatelog_freeze.py")),
    ("action/synchronize.py", include_str!("plugins/action/synchronize.py")),
    ("action/zuul_return.py", include_str!("plugins/action/zuul_return.py")),
    ("callback/gatelog_stream.py", include_str!("plugins/callback/gatelog_stream.py")),
    ("connection/local.py", include_str!("plugins/connection/local.py")),
    ("library/command.py", include_str!("plugins/library/command.py")),
    ("library/zuul_console.py", include_str!("plugins/library/zuul_console.py")),
    (RUNNER, include_str!("plugins/run/gatelog_playbook.py")),
    ("shared/gatelog_console.py", include_str!("plugins/shared/gatelog_console.py")),
    ("shared/gatelog_follow.py", include_str!("plugins/shared/gatelog_follow.py")),
    ("shared/gatelog_results.py", include_str!("plugins/shared/gatelog_results.py")),
    ("vars/gatelog_secrets.py", include_str!("plugins/vars/gatelog_secrets.py")),
];

/// The program that runs `ansible-playbook`, below the directory of plugins.
pub(crate) const RUNNER: &str = "run/gatelog_playbook.py";

/// Puts gatelog's own plugins below the executor's directory; gives their place, which is named by what they are. All
/// builds see the same files, read-only.
pub(crate) fn install_plugins(root: &Path) -> Result<PathBuf, ExecutorError> {
    let mut digest = Sha256::new();
    for (place, text) in PLUGINS {
        digest.update(place.len().to_le_bytes());
        digest.update(place);
        digest.update(text.len().to_le_bytes());
        digest.update(text);
    }
    let name: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let plugins = root.join(format!("plugins-{name}"));
    for (place, text) in PLUGINS {
        let file = plugins.join(place);
        if std::fs::read(&file).is_ok_and(|there| there == text.as_bytes()) {
            continue;
        }
        file.parent().map_or(Ok(()), make_dir)?;
        // Whole at every moment: a build of another process may be about to read it.
        let fresh = file.with_extension(format!("new-{}", std::process::id()));
        write(&fresh, text.as_bytes())?;
        std::fs::rename(&fresh, &file).map_err(ExecutorError::io("write", &file))?;
    }
    Ok(plugins)
}

/// What `ansible.cfg` says that is not the same for all playbooks.
struct Configuration<'a> {
    plugins: &'a Path,
    inventory: &'a Path,
    /// Ansible's own directory.
    state: &'a Path,
    roles: &'a str,
    /// For the sockets of SSH connections.
    sockets: &'a Path,
    ssh: &'a str,
}

impl Configuration<'_> {
    fn text(&self) -> String {
        format!(
            "[defaults]\n\
             inventory = {inventory}\n\
             local_tmp = {state}/tmp\n\
             retry_files_enabled = False\n\
             gathering = smart\n\
             fact_caching = jsonfile\n\
             fact_caching_connection = {state}/fact-cache\n\
             roles_path = {roles}\n\
             action_plugins = {plugins}/action\n\
             callback_plugins = {plugins}/callback\n\
             connection_plugins = {plugins}/connection\n\
             vars_plugins = {plugins}/vars\n\
             library = {plugins}/library\n\
             stdout_callback = gatelog_stream\n\
             display_args_to_stdout = False\n\
             localhost_warning = False\n\
             nocows = True\n\
             nocolor = True\n\
             timeout = 30\n\
             interpreter_python = auto_silent\n\
             internal_poll_interval = 0.005\n\
             [inventory]\n\
             enable_plugins = yaml\n\
             unparsed_warning = False\n\
             [connection]\n\
             pipelining = True\n\
             [ssh_connection]\n\
             pipelining = True\n\
             retries = 3\n\
             control_path_dir = {sockets}\n\
             ssh_args = {ssh}\n",
            inventory = self.inventory.display(),
            state = self.state.display(),
            roles = self.roles,
            plugins = self.plugins.display(),
            sockets = self.sockets.display(),
            ssh = self.ssh,
        )
    }
}

/// `ansible.cfg` of one playbook.
pub(crate) fn configuration(
    plugins: &Path,
    job_dir: &JobDir,
    inventory: &Path,
    playbook: &PlaybookInPlace,
    sandboxed: bool,
) -> String {
    let state = job_dir.ansible_state();
    // The path of a socket has at most 107 bytes, and a site may lie deep.
    let sockets = if sandboxed { PathBuf::from("/run/ansible-cp") } else { state.join("cp") };
    let (roles, ssh) = (roles_path(playbook), ssh::arguments(&job_dir.known_hosts()));
    Configuration { plugins, inventory, state: &state, roles: &roles, sockets: &sockets, ssh: &ssh }.text()
}

/// `ansible.cfg` of a fork server: as for playbooks, but for what is read again in each run.
pub(crate) fn server_configuration(plugins: &Path, own: &Path) -> String {
    let none = Path::new("/nonexistent");
    Configuration { plugins, inventory: none, state: own, roles: "/nonexistent", sockets: none, ssh: "-C" }.text()
}

/// Where Ansible looks for roles, first to last. Never its own default, which names places that a job can write to.
fn roles_path(playbook: &PlaybookInPlace) -> String {
    let mut paths: Vec<_> = playbook.roles.iter().filter_map(|role| role.path.clone()).collect();
    if paths.is_empty() {
        paths.push(playbook.repository.join("roles"));
    }
    paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(":")
}

/// What a playbook is told about the course of the build (`-e`).
pub(crate) struct Course {
    /// Its position in its phase, from 0.
    pub(crate) index: u32,
    /// For post-run and cleanup: whether the build succeeded so far.
    pub(crate) success: Option<bool>,
    /// For post-run and cleanup: whether another attempt will follow.
    pub(crate) will_retry: bool,
}

/// The words that make a process Python that [runs](crate::run::Run) `ansible-playbook`.
pub(crate) fn runner(toolchain: &Toolchain, plugins: &Path) -> Vec<OsString> {
    // Not what a job may have put into the user's own Python packages: this process may be about
    // to see secrets. Programs that tasks start are not concerned.
    let word = OsString::from("-s");
    vec![toolchain.python.clone().into(), word, plugins.join(RUNNER).into(), "run".into()]
}

/// The command line of `ansible-playbook`.
pub(crate) fn command(
    config: &ExecutorConfig,
    toolchain: &Toolchain,
    job_dir: &JobDir,
    inventory: &Path,
    playbook: &PlaybookInPlace,
    course: Option<&Course>,
) -> Vec<OsString> {
    let mut file: OsString = "@".into();
    file.push(job_dir.zuul_vars());
    let mut words: Vec<OsString> = vec![toolchain.ansible_playbook.clone().into(), "-i".into(), inventory.into()];
    // Zuul: above whatever the job says, below what Zuul itself does; the last word wins.
    if let Some(variables) = &config.variables {
        let mut file: OsString = "@".into();
        file.push(variables);
        words.extend(["-e".into(), file]);
    }
    words.extend(["-e".into(), file]);
    if let Some(course) = course {
        words.extend(["-e".into(), told(playbook, course).to_string().into()]);
    }
    words.push(playbook.file.clone().into());
    words
}

/// The variables that say where in the build a playbook is.
fn told(playbook: &PlaybookInPlace, course: &Course) -> serde_json::Value {
    let spec = &playbook.spec;
    let mut variables = serde_json::json!({
        "zuul_execution_phase": spec.phase.as_str(),
        "zuul_execution_phase_index": course.index.to_string(),
        "zuul_execution_trusted": word(spec.trusted),
        "zuul_execution_canonical_name_and_path":
            format!("{}/{}", spec.checkout.project.canonical_name(), spec.path),
        "zuul_execution_branch": spec.checkout.name,
    });
    if let (Some(success), Some(map)) = (course.success, variables.as_object_mut()) {
        map.insert("zuul_success".into(), word(success).into());
        map.insert("zuul_will_retry".into(), word(course.will_retry).into());
    }
    variables
}

/// A truth as Zuul tells it: as text, which `bool` makes a truth of.
fn word(truth: bool) -> &'static str {
    if truth { "True" } else { "False" }
}

/// What the playbook may see and touch.
pub(crate) fn profile(
    config: &ExecutorConfig,
    toolchain: &Toolchain,
    plugins: &Path,
    job_dir: &JobDir,
    spec: &BuildSpec,
    playbook: &PlaybookInPlace,
    home: PathBuf,
) -> Profile {
    let mut profile = Profile::system(config.limits.tmp_bytes);
    profile.network = config.network == Network::Host;
    let extra = if playbook.spec.trusted { &config.trusted_paths } else { &config.untrusted_paths };
    let mounts = &mut profile.mounts;
    mounts.extend(toolchain.paths.iter().cloned().map(Mount::ReadOnly));
    mounts.extend(toolchain.python_path.iter().cloned().map(Mount::ReadOnly));
    mounts.push(Mount::ReadOnly(plugins.to_owned()));
    mounts.extend(extra.ro.iter().cloned().map(Mount::ReadOnly));
    mounts.extend(extra.rw.iter().cloned().map(Mount::ReadWrite));
    // Above those of this host: who the job is, and where its home is.
    mounts.push(Mount::ReadOnlyAt { from: job_dir.passwd(), to: "/etc/passwd".into() });
    mounts.push(Mount::ReadOnlyAt { from: job_dir.group(), to: "/etc/group".into() });
    mounts.extend(config.variables.iter().cloned().map(Mount::ReadOnly));
    mounts.extend([job_dir.ansible(), job_dir.trusted(), job_dir.untrusted()].map(Mount::ReadOnly));
    mounts.extend([job_dir.ansible_state(), job_dir.work()].map(Mount::ReadWrite));
    mounts.push(Mount::ReadWriteAt { from: home, to: job_dir.home() });
    for node in &spec.nodeset.nodes {
        if let Connection::Local { dir } = &node.connection
            && !dir.is_empty()
        {
            mounts.push(Mount::ReadWrite(dir.into()));
        }
    }
    profile.directory = Some(job_dir.work());
    profile.environment = environment(config, toolchain, job_dir, spec, playbook);
    profile
}

/// Whether it is wanted at once that the playbook will fail. Zuul: in run, and in post-run of an attempt that is not
/// repeated.
pub(crate) fn tells_early(playbook: &PlaybookInPlace, course: &Course) -> bool {
    match playbook.spec.phase {
        Phase::Run => true,
        Phase::Post => !course.will_retry,
        Phase::Pre | Phase::Cleanup => false,
    }
}

/// Where one playbook's results are kept while it runs: no sandbox shows it.
pub(crate) fn results_file(job_dir: &JobDir) -> std::path::PathBuf {
    job_dir.root().join("playbook.json")
}

fn environment(
    config: &ExecutorConfig,
    toolchain: &Toolchain,
    job_dir: &JobDir,
    spec: &BuildSpec,
    playbook: &PlaybookInPlace,
) -> BTreeMap<String, OsString> {
    let sandboxed = config.sandbox != crate::config::SandboxMode::Unsandboxed;
    let search_path = config.search_path.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(":");
    let temporary = if sandboxed { "/tmp".into() } else { job_dir.work().join("tmp") };
    let mut environment: BTreeMap<String, OsString> = [
        ("ANSIBLE_CONFIG", playbook.directory.join("ansible.cfg").into()),
        ("ANSIBLE_HOME", job_dir.ansible_state().into()),
        ("GATELOG_CONSOLE_PORT", config.console_port.to_string().into()),
        ("GATELOG_JSON_BYTES", config.limits.json_bytes.to_string().into()),
        ("GATELOG_PLAYBOOK_DIRECTORY", playbook.directory.clone().into()),
        ("GATELOG_RESULT_DATA_FILE", job_dir.results().into()),
        ("HOME", job_dir.home().into()),
        ("LANG", "C.UTF-8".into()),
        ("PATH", search_path.into()),
        ("TMPDIR", temporary.into()),
        ("ZUUL_JOBDIR", job_dir.root().into()),
        (MARK, job_dir.root().into()),
    ]
    .map(|(name, value): (&str, OsString)| (name.to_owned(), value))
    .into();
    if spec.job.split_streams {
        environment.insert("GATELOG_SPLIT_STREAMS".into(), "1".into());
    }
    if let Some(path) = &toolchain.python_path {
        environment.insert("PYTHONPATH".into(), path.into());
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ExtraPaths, SandboxMode};
    use crate::test_data::{playbook, spec};

    /// Everything a playbook is called with, as text.
    fn everything() -> String {
        let mut spec = spec();
        spec.playbooks[0].trusted = false;
        let mut config = ExecutorConfig::new("/x", "/logs");
        config.search_path = vec!["/usr/bin".into(), "/bin".into()];
        config.trusted_paths = ExtraPaths { ro: vec!["/only/trusted".into()], rw: vec![] };
        config.variables = Some("/etc/gatelog/site.yaml".into());
        config.untrusted_paths = ExtraPaths { ro: vec!["/opt/tools".into()], rw: vec!["/cache".into()] };
        assert_eq!(config.sandbox, SandboxMode::Bubblewrap { bwrap: None });
        let toolchain = Toolchain {
            ansible_playbook: "/venv/bin/ansible-playbook".into(),
            python: "/venv/bin/python".into(),
            version: "2.18.0".into(),
            community: None,
            paths: vec!["/venv".into()],
            python_path: None,
        };
        let job_dir = JobDir::at(Path::new("/x"), spec.build, spec.attempt);
        let playbook = playbook(&spec);
        let inventory = playbook.directory.join("inventory.yaml");
        let course = Course { index: 0, success: Some(true), will_retry: false };
        let arguments = command(&config, &toolchain, &job_dir, &inventory, &playbook, Some(&course));
        let plugins = Path::new("/x/plugins-0");
        let profile = profile(&config, &toolchain, plugins, &job_dir, &spec, &playbook, job_dir.home());
        let mut argv = profile.argv(&runner(&toolchain, plugins), crate::sandbox::Features::ALL);
        argv.push("--".into());
        argv.extend(arguments);
        let argv: Vec<String> = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let argv = argv.join(" ").replace(" --", "\n--");
        let text = format!("{}\n{argv}\n", configuration(plugins, &job_dir, &inventory, &playbook, true));
        text.replace(&job_dir.root().to_string_lossy().into_owned(), "JOB")
    }

    #[test]
    fn a_playbook_is_called_like_this() {
        let text = everything();
        assert_eq!(
            text,
            include_str!("goldens/call.txt"),
            "the call changed; if that is meant, the new golden:\n{text}"
        );
        assert!(!text.contains("/only/trusted"), "an untrusted playbook sees what is for trusted ones");
        assert!(!text.contains("--bind JOB JOB"), "the owner's file is in reach of the job");
    }
}
