//! Repositories, and layouts whose jobs are frozen for them.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use gatelog_driver_contract::{
    Branch, CodeReview, Connection, Connections, DriverSchema, Found, Landing, Source, Target, Trouble,
};
use gatelog_effects::freeze;
use gatelog_effects::git::Repositories;
use gatelog_effects::prepare::prepare;
use gatelog_effects::spec::{JobSpec, PinnedCheckout};
use gatelog_effects::workspace::MirrorWorkspace;
use gatelog_event_log::MemoryBlobs;
use gatelog_executing::spec::{Checkout, ProjectName};
use gatelog_executing::{BuildControl, Purpose, Workspace};
use gatelog_merging::{Mirrors, MirrorsConfig};
use gatelog_record::draft::gate::{
    ChangeKey, ChangesWanted, FreezeOutcome, FreezeWanted, MergeStep, MergeSteps, PrepareOutcome, PrepareRequested,
    Subject, TenantProject as Known,
};
use gatelog_record::{BuildsetId, ItemId, Timestamp, WorkId, codec};
use gatelog_rules_config::{ConfigFile, Layout, LoadInput, TenantProject, TenantSettings, load};

/// A forge that is asked for nothing but where its repositories are.
pub struct Shelf(PathBuf);

const SCHEMA: DriverSchema = DriverSchema::silent("shelf");

impl CodeReview for Shelf {
    fn canonical_hostname(&self) -> &str {
        "git.test"
    }
    fn source(&self, project: &str) -> Result<Source, Trouble> {
        Ok(Source::open(self.0.join(project).to_string_lossy()))
    }
    fn find_changes(&self, _: &ChangesWanted) -> Result<Found, Trouble> {
        unreachable!("nobody asks")
    }
    fn change_by_url(&self, _: &str) -> Result<Option<ChangeKey>, Trouble> {
        unreachable!("nobody asks")
    }
    fn changes_by_commit(&self, _: &str, _: &str) -> Result<Vec<ChangeKey>, Trouble> {
        unreachable!("nobody asks")
    }
    fn branches(&self, _: &str) -> Result<Vec<Branch>, Trouble> {
        unreachable!("nobody asks")
    }
    fn default_branch(&self, _: &str) -> Result<Option<String>, Trouble> {
        unreachable!("nobody asks")
    }
    fn submit_all(&self, _: WorkId, _: &[Target<'_>]) -> Result<Vec<Landing>, Trouble> {
        unreachable!("nobody merges")
    }
}

const BASE: &str = "
- pipeline: {name: check, manager: independent, trigger: {}}
- pipeline: {name: tag, manager: independent, post-review: true, trigger: {}}
- job: {name: base, parent: null}
";

/// A site with projects `conf`, `lib` and `app`.
pub struct Site {
    pub root: tempfile::TempDir,
    pub repositories: Repositories,
}

impl Site {
    pub fn new() -> Site {
        let root = tempfile::tempdir().unwrap();
        let mut connections = Connections::default();
        let forge = Connection::new("forge", &SCHEMA);
        connections.add(forge.with_review(Arc::new(Shelf(root.path().to_path_buf()))));
        let mirrors = Arc::new(Mirrors::open(MirrorsConfig::new(root.path().join("mirrors"))).unwrap());
        let site = Site {
            root,
            repositories: Repositories {
                mirrors,
                connections,
                blobs: Arc::new(MemoryBlobs::new()),
                begun: Arc::default(),
            },
        };
        for project in ["conf", "lib", "app"] {
            std::fs::create_dir_all(site.place(project)).unwrap();
            site.git(project, "init --quiet --initial-branch=master");
            site.commit(project, "first");
        }
        site
    }

    pub fn place(&self, project: &str) -> PathBuf {
        self.root.path().join(project)
    }

    pub fn git(&self, project: &str, arguments: &str) -> String {
        git(&self.place(project), arguments)
    }

    /// A commit of a file of this name on the branch that is checked out.
    pub fn commit(&self, project: &str, file: &str) -> String {
        std::fs::write(self.place(project).join(file), file).unwrap();
        self.git(project, "add --all");
        self.git(project, &format!("commit --quiet --message {file}"));
        self.git(project, "rev-parse HEAD")
    }

    /// The layout of configuration that stands in branches: project, branch, text.
    pub fn layout(&self, files: &[(&str, &str, &str)]) -> Layout {
        let project = |name: &str, trusted| TenantProject {
            canonical_name: format!("git.test/{name}"),
            branches: vec!["master".into(), "stable".into()],
            ..TenantProject::new("forge", name, trusted)
        };
        let tenant = TenantSettings {
            name: "example".into(),
            connections: vec!["forge".into()],
            projects: vec![project("conf", true), project("lib", false), project("app", false)],
            ..TenantSettings::default()
        };
        let file = |(number, (project, branch, text)): (usize, &(&str, &str, &str))| ConfigFile {
            project: format!("git.test/{project}"),
            branch: (*branch).to_owned(),
            path: format!("zuul.d/{number}.yaml"),
            text: (*text).to_owned(),
        };
        let files = [("conf", "master", BASE)].iter().chain(files).enumerate().map(file).collect();
        let (layout, problems) = load(&LoadInput { tenant, files });
        assert!(problems.iter().all(|problem| !problem.is_error()), "{problems:?}");
        layout
    }

    /// Prepares what a subject is, and freezes its jobs.
    pub fn freeze(&self, layout: &Layout, pipeline: &str, subject: &Subject) -> FreezeOutcome {
        let item = ItemId([1; 16]);
        let steps = MergeSteps::from(vec![MergeStep { item, subject: subject.clone(), mode: "merge".into() }]);
        let asked = PrepareRequested {
            work: WorkId([2; 16]),
            item,
            buildset: BuildsetId([3; 16]),
            steps: steps.clone(),
            bases: Vec::new(),
            dated: Timestamp(1_700_000_000_000_000),
        };
        let state = match prepare(&self.repositories, &asked) {
            PrepareOutcome::Merged(state) => state,
            other => panic!("{other:?}"),
        };
        let known = |name: &str, trusted| Known {
            connection: "forge".into(),
            project: format!("git.test/{name}"),
            trusted,
            reads_config: true,
        };
        let wanted = FreezeWanted {
            work: WorkId([4; 16]),
            item,
            buildset: BuildsetId([3; 16]),
            tenant: "example".into(),
            pipeline: pipeline.into(),
            layout: self.repositories.blobs.put(&codec::encode(layout).unwrap()).unwrap(),
            layout_ahead: None,
            steps,
            state,
            parameters: Default::default(),
            own_files: Vec::new(),
            projects: vec![known("conf", true), known("lib", false), known("app", false)],
        };
        freeze::run(&self.repositories, &wanted)
    }

    /// The repository of a job, as it stands in the build's directory.
    pub fn checked_out(&self, spec: &JobSpec, project: &str) -> PathBuf {
        let pinned = |one: &&PinnedCheckout| one.name == project;
        let pinned = spec.workspace.iter().find(pinned).unwrap();
        let checkout = Checkout {
            project: ProjectName::new(&pinned.host, &pinned.name),
            name: pinned.branch.clone(),
            commit: pinned.commit.clone(),
            previous: Some(pinned.previous.clone()),
            branches: pinned.branches.clone(),
        };
        let place = tempfile::tempdir_in(self.root.path()).unwrap().keep().join("src");
        let workspace = MirrorWorkspace::new(self.repositories.clone(), spec.refs.clone());
        workspace.materialize(&checkout, &place, Purpose::Work, &BuildControl::new()).unwrap();
        place
    }

    pub fn specs(&self, outcome: &FreezeOutcome) -> Vec<JobSpec> {
        let FreezeOutcome::Frozen { jobs, .. } = outcome else { panic!("{outcome:?}") };
        let read = |spec| JobSpec::read(&self.repositories.blobs.get(spec).unwrap()).unwrap();
        jobs.iter().map(|job| read(&job.spec)).collect()
    }
}

pub fn git(place: &Path, arguments: &str) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(place)
        .args(["-c", "safe.directory=*", "-c", "user.name=Dana", "-c", "user.email=dana@example.org"])
        .args(arguments.split(' '))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub fn tag(name: &str, commit: &str) -> Subject {
    Subject {
        connection: "forge".into(),
        project: "git.test/lib".into(),
        branch: None,
        git_ref: format!("refs/tags/{name}"),
        change: None,
        patchset: None,
        commit: Some(commit.into()),
        old_commit: None,
        url: String::new(),
    }
}

pub fn names(outcome: &FreezeOutcome) -> Vec<&str> {
    match outcome {
        FreezeOutcome::Frozen { jobs, .. } => jobs.iter().map(|job| job.name.as_str()).collect(),
        FreezeOutcome::NoJobs { .. } => Vec::new(),
        other => panic!("{other:?}"),
    }
}
