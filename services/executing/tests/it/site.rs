//! A small site for tests: real git repositories, real Ansible, a real sandbox.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gatelog_executing::spec::{
    Checkout, JobSpec, Nodeset, Phase, PipelineSpec, PlaybookSpec, ProjectName, RefSpec, SecretVars, Timeouts,
    Variables, WorkspaceProject,
};
use gatelog_executing::{
    BuildControl, BuildOutcome, BuildSpec, Executor, ExecutorConfig, ExecutorError, Purpose, SandboxMode, Workspace,
    WorkspaceError,
};
use gatelog_record::{BuildId, BuildsetId, Value};

pub const HOST: &str = "git.example.org";

/// Repositories by the git program: what gatelog's own merging does in production.
pub struct GitWorkspace {
    origin: PathBuf,
}

pub fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl Workspace for GitWorkspace {
    fn materialize(
        &self,
        checkout: &Checkout,
        place: &Path,
        purpose: Purpose,
        _: &BuildControl,
    ) -> Result<(), WorkspaceError> {
        let origin = self.origin.join(&checkout.project.name);
        if !origin.exists() {
            return Err(WorkspaceError::Missing {
                project: checkout.project.canonical_name(),
                commit: checkout.commit.clone(),
                reason: "there is no such repository".into(),
            });
        }
        git(&self.origin, &["clone", "-q", "--no-checkout", &origin.to_string_lossy(), &place.to_string_lossy()]);
        git(place, &["checkout", "-q", "-B", &checkout.name, &checkout.commit]);
        if purpose == Purpose::WorkWithoutFiles {
            git(place, &["sparse-checkout", "set", "--no-cone", "!/*"]);
        }
        let previous = checkout.previous.as_ref().unwrap_or(&checkout.commit);
        git(place, &["update-ref", &format!("refs/remotes/origin/{}", checkout.name), previous]);
        git(place, &["remote", "set-url", "origin", "file:///dev/null"]);
        Ok(())
    }

    /// Files of variables are JSON here, which is YAML too.
    fn variables(&self, checkout: &Checkout, path: &str) -> Result<Option<BTreeMap<String, Value>>, WorkspaceError> {
        let origin = self.origin.join(&checkout.project.name);
        let file = format!("{}:{path}", checkout.commit);
        if git(&origin, &["ls-tree", "--name-only", &checkout.commit, path]).is_empty() {
            return Ok(None);
        }
        let json: serde_json::Value = serde_json::from_str(&git(&origin, &["show", &file])).unwrap();
        Ok(Value::from_json(&json).as_map().cloned())
    }
}

pub struct Site {
    pub folder: tempfile::TempDir,
    pub executor: Executor,
    next: std::cell::Cell<u8>,
}

impl Site {
    /// `None`, and a word about it, if this host has not what builds need.
    pub async fn open(what: &str, change: impl FnOnce(&mut ExecutorConfig)) -> Option<Site> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("git")).unwrap();
        let executor = open_executor(what, folder.path(), change).await?;
        Some(Site { folder, executor, next: std::cell::Cell::new(1) })
    }

    /// Commits these files to a repository, made if it is new; the commit.
    pub fn commit(&self, project: &str, files: &[(&str, &str)]) -> String {
        let place = self.folder.path().join("git").join(project);
        if !place.exists() {
            std::fs::create_dir_all(&place).unwrap();
            git(&place, &["init", "-q"]);
        }
        for (name, content) in files {
            let file = place.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content).unwrap();
        }
        git(&place, &["add", "."]);
        git(&place, &["commit", "-q", "--allow-empty", "-m", "change"]);
        git(&place, &["rev-parse", "HEAD"])
    }

    /// A build of a job with these playbooks, all in `config`, on `org/app`.
    pub fn spec(&self, config: &str, app: &str, playbooks: &[(Phase, &str, u32)]) -> BuildSpec {
        let number = self.next.get();
        self.next.set(number + 1);
        let mut spec = spec(number, config, app, playbooks);
        // Tests run beside each other: a build's control group has the build's name, whatever site it is of.
        static BUILDS: AtomicU32 = AtomicU32::new(1);
        spec.build.0[..4].copy_from_slice(&BUILDS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        spec
    }

    pub async fn run(&self, spec: BuildSpec) -> (BuildOutcome, String) {
        let build = self.executor.prepare(spec, self.workspace()).await.unwrap();
        let outcome = build.run().await;
        let text = console(&outcome);
        (outcome, text)
    }

    pub fn workspace(&self) -> Arc<GitWorkspace> {
        workspace(self.folder.path())
    }
}

pub fn workspace(folder: &Path) -> Arc<GitWorkspace> {
    Arc::new(GitWorkspace { origin: folder.join("git") })
}

pub async fn open_executor(what: &str, folder: &Path, change: impl FnOnce(&mut ExecutorConfig)) -> Option<Executor> {
    let mut config = ExecutorConfig::new(folder.join("executor"), folder.join("logs"));
    config.ansible_playbook = std::env::var_os("GATELOG_ANSIBLE_PLAYBOOK").map(PathBuf::from);
    // Whatever Ansible this host has will do, but where a test is about versions.
    config.ansible_any_version = true;
    config.limits.kill_grace = Duration::from_millis(500);
    change(&mut config);
    match Executor::open(config).await {
        Ok(executor) => Some(executor),
        Err(error @ (ExecutorError::NoAnsible | ExecutorError::NoBubblewrap | ExecutorError::BadBubblewrap { .. })) => {
            println!("SKIPPED {what}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub fn spec(number: u8, config: &str, app: &str, playbooks: &[(Phase, &str, u32)]) -> BuildSpec {
    let project = ProjectName::new(HOST, "org/app");
    let playbook = |(phase, path, level): &(Phase, &str, u32)| PlaybookSpec {
        phase: *phase,
        checkout: checkout("config", config),
        path: (*path).to_owned(),
        trusted: true,
        nesting_level: *level,
        secrets: SecretVars::default(),
        tokens: Default::default(),
        roles: Vec::new(),
        cleanup: false,
    };
    let item = RefSpec {
        project: project.clone(),
        ref_name: "refs/changes/01/1/1".into(),
        branch: Some("main".into()),
        change: Some("1".into()),
        patchset: Some("1".into()),
        message: Some("Add {{ lookup('pipe', 'echo injected') }}".into()),
        ..RefSpec::default()
    };
    BuildSpec {
        build: BuildId([number; 16]),
        attempt: 1,
        max_attempts: 3,
        buildset: BuildsetId([9; 16]),
        event_id: Some("e1".into()),
        tenant: "demo".into(),
        pipeline: PipelineSpec { name: "check".into(), post_review: false },
        job: JobSpec {
            name: "unit-tests".into(),
            voting: true,
            timeouts: Timeouts { run: Some(120), pre: None, post: Some(120) },
            ..JobSpec::default()
        },
        items: vec![item.clone()],
        build_refs: vec![item.clone()],
        buildset_refs: vec![item.clone()],
        item,
        projects: vec![WorkspaceProject {
            checkout: checkout("org/app", app),
            required: false,
            checkout_description: "change's branch".into(),
        }],
        playbooks: playbooks.iter().map(playbook).collect(),
        nodeset: Nodeset::default(),
        variables: Variables::default(),
        include_vars: Vec::new(),
        artifacts: Vec::new(),
        ssh_keys: Vec::new(),
        sensitive: Default::default(),
    }
}

pub fn checkout(project: &str, commit: &str) -> Checkout {
    Checkout {
        project: ProjectName::new(HOST, project),
        name: "main".into(),
        commit: commit.to_owned(),
        ..Checkout::default()
    }
}

pub fn console(outcome: &BuildOutcome) -> String {
    std::fs::read_to_string(outcome.log_dir.join("job-output.txt")).unwrap()
}

/// Waits until the condition holds; fails after a while.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether any process on this host has this word in its command line.
pub fn is_running(word: &str) -> bool {
    let own = std::process::id().to_string();
    std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit())
            && name.to_string_lossy() != own
            && std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
    })
}

/// A playbook of tasks for localhost.
pub fn play(tasks: &str) -> String {
    format!("- hosts: localhost\n  gather_facts: false\n  tasks:\n{tasks}")
}

/// The same on all nodes.
pub fn play_on_nodes(tasks: &str) -> String {
    play(tasks).replacen("localhost", "all", 1)
}

pub fn unsandboxed(config: &mut ExecutorConfig) {
    config.sandbox = SandboxMode::Unsandboxed;
}
