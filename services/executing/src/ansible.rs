//! How `ansible-playbook` is called: its configuration, arguments, environment and plugins.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use crate::config::{ExecutorConfig, ExecutorError};
use crate::jobdir::{JobDir, write};
use crate::playbooks::PlaybookInPlace;
use crate::process::MARK;
use crate::sandbox::{Mount, Profile};
use crate::spec::{BuildSpec, Connection, Phase};
use crate::toolchain::Toolchain;

const STREAM: &str = include_str!("plugins/gatelog_stream.py");
const RETURN: &str = include_str!("plugins/zuul_return.py");
const FREEZE: &str = include_str!("plugins/gatelog_freeze.py");

/// Puts gatelog's own plugins into the build's directory.
pub(crate) fn install_plugins(job_dir: &JobDir) -> Result<(), ExecutorError> {
    let plugins = job_dir.ansible().join("plugins");
    write(&plugins.join("callback/gatelog_stream.py"), STREAM.as_bytes())?;
    write(&plugins.join("action/zuul_return.py"), RETURN.as_bytes())?;
    write(&plugins.join("action/gatelog_freeze.py"), FREEZE.as_bytes())
}

/// `ansible.cfg` of one playbook.
pub(crate) fn configuration(job_dir: &JobDir, inventory: &Path, playbook: &PlaybookInPlace) -> String {
    let plugins = job_dir.ansible().join("plugins");
    let state = job_dir.ansible_state();
    let roles = playbook.repository.join("roles");
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
         stdout_callback = gatelog_stream\n\
         display_args_to_stdout = False\n\
         localhost_warning = False\n\
         nocows = True\n\
         nocolor = True\n\
         timeout = 30\n\
         interpreter_python = auto_silent\n\
         [inventory]\n\
         enable_plugins = yaml\n\
         unparsed_warning = False\n\
         [connection]\n\
         pipelining = True\n\
         [ssh_connection]\n\
         pipelining = True\n\
         retries = 3\n\
         control_path_dir = {state}/cp\n",
        inventory = inventory.display(),
        state = state.display(),
        roles = roles.display(),
        plugins = plugins.display(),
    )
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

/// The command that runs a playbook.
pub(crate) fn command(
    toolchain: &Toolchain,
    job_dir: &JobDir,
    inventory: &Path,
    playbook: &PlaybookInPlace,
    course: Option<&Course>,
) -> Vec<OsString> {
    let mut file: OsString = "@".into();
    file.push(job_dir.zuul_vars());
    let mut words: Vec<OsString> = vec![
        toolchain.python.clone().into(),
        // Not what a job may have put into the user's own Python packages: this process may be about
        // to see secrets. Programs that tasks start are not concerned.
        "-s".into(),
        toolchain.ansible_playbook.clone().into(),
        "-i".into(),
        inventory.into(),
        "-e".into(),
        file,
    ];
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
        "zuul_execution_trusted": spec.trusted,
        "zuul_execution_canonical_name_and_path":
            format!("{}/{}", spec.checkout.project.canonical_name(), spec.path),
        "zuul_execution_branch": spec.checkout.name,
    });
    if let (Some(success), Some(map)) = (course.success, variables.as_object_mut()) {
        map.insert("zuul_success".into(), success.into());
        map.insert("zuul_will_retry".into(), course.will_retry.into());
    }
    variables
}

/// What the playbook may see and touch.
pub(crate) fn profile(
    config: &ExecutorConfig,
    toolchain: &Toolchain,
    job_dir: &JobDir,
    spec: &BuildSpec,
    playbook: &PlaybookInPlace,
    console: &Path,
) -> Profile {
    let mut profile = Profile::system(config.limits.tmp_bytes);
    let extra = if playbook.spec.trusted { &config.trusted_paths } else { &config.untrusted_paths };
    let mounts = &mut profile.mounts;
    mounts.extend(toolchain.paths.iter().cloned().map(Mount::ReadOnly));
    mounts.extend(toolchain.python_path.iter().cloned().map(Mount::ReadOnly));
    mounts.extend(extra.ro.iter().cloned().map(Mount::ReadOnly));
    mounts.extend(extra.rw.iter().cloned().map(Mount::ReadWrite));
    mounts.extend([job_dir.ansible(), job_dir.trusted(), job_dir.untrusted()].map(Mount::ReadOnly));
    mounts.extend([job_dir.ansible_state(), job_dir.home(), job_dir.work()].map(Mount::ReadWrite));
    mounts.push(Mount::ReadOnlyAt { from: console.into(), to: job_dir.logs().join("job-output.txt") });
    for node in &spec.nodeset.nodes {
        if let Connection::Local { dir } = &node.connection
            && !dir.is_empty()
        {
            mounts.push(Mount::ReadWrite(dir.into()));
        }
    }
    profile.directory = Some(job_dir.work());
    profile.environment = environment(config, toolchain, job_dir, playbook);
    profile
}

/// What the callback plugin is told to look for, where it is wanted at once that the playbook will fail. Zuul: in
/// run, and in post-run of an attempt that is not repeated.
pub(crate) fn early_failure(spec: &BuildSpec, playbook: &PlaybookInPlace, course: &Course) -> Option<String> {
    let wanted = match playbook.spec.phase {
        Phase::Run => true,
        Phase::Post => !course.will_retry,
        Phase::Pre | Phase::Cleanup => false,
    };
    wanted.then(|| serde_json::json!(spec.job.failure_output).to_string())
}

/// Where the callback plugin writes one playbook's results.
pub(crate) fn results_file(job_dir: &JobDir) -> std::path::PathBuf {
    job_dir.ansible_state().join("playbook.json")
}

fn environment(
    config: &ExecutorConfig,
    toolchain: &Toolchain,
    job_dir: &JobDir,
    playbook: &PlaybookInPlace,
) -> BTreeMap<String, OsString> {
    let sandboxed = config.sandbox != crate::config::SandboxMode::Unsandboxed;
    let search_path = config.search_path.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(":");
    let temporary = if sandboxed { "/tmp".into() } else { job_dir.work().join("tmp") };
    let mut environment: BTreeMap<String, OsString> = [
        ("ANSIBLE_CONFIG", playbook.directory.join("ansible.cfg").into()),
        ("ANSIBLE_HOME", job_dir.ansible_state().into()),
        ("GATELOG_PLAYBOOK_JSON", results_file(job_dir).into()),
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
        config.untrusted_paths = ExtraPaths { ro: vec!["/opt/tools".into()], rw: vec!["/cache".into()] };
        assert_eq!(config.sandbox, SandboxMode::Bubblewrap { bwrap: None });
        let toolchain = Toolchain {
            ansible_playbook: "/venv/bin/ansible-playbook".into(),
            python: "/venv/bin/python".into(),
            version: "2.18.0".into(),
            paths: vec!["/venv".into()],
            python_path: None,
        };
        let job_dir = JobDir::at(Path::new("/x"), spec.build, spec.attempt);
        let playbook = playbook(&spec);
        let inventory = playbook.directory.join("inventory.yaml");
        let course = Course { index: 0, success: Some(true), will_retry: false };
        let command = command(&toolchain, &job_dir, &inventory, &playbook, Some(&course));
        let console = Path::new("/logs/b/2/job-output.txt");
        let profile = profile(&config, &toolchain, &job_dir, &spec, &playbook, console);
        let argv = profile.argv(&command, crate::sandbox::Features::ALL);
        let argv: Vec<String> = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let argv = argv.join(" ").replace(" --", "\n--");
        let text = format!("{}\n{argv}\n", configuration(&job_dir, &inventory, &playbook));
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
