//! What jobs are frozen with: the branches that hold a tag, and repositories as all jobs of a buildset see them.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use gatelog_effects::connection::{CodeReview, Connections, Trouble};
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
    ChangesFound, ChangesWanted, FreezeOutcome, FreezeWanted, MergeStep, MergeSteps, PrepareOutcome, PrepareRequested,
    ReportRequested, Subject, SubmitOutcome, SubmitTarget, TenantProject as Known,
};
use gatelog_record::{BuildsetId, ItemId, Timestamp, Value, WorkId, codec};
use gatelog_rules_config::{ConfigFile, Layout, LoadInput, TenantProject, TenantSettings, load};

/// A forge that is asked for nothing but where its repositories are.
struct Shelf(PathBuf);

impl CodeReview for Shelf {
    fn canonical_hostname(&self) -> &str {
        "git.test"
    }
    fn repository(&self, project: &str) -> Result<String, Trouble> {
        Ok(self.0.join(project).to_string_lossy().into_owned())
    }
    fn find_changes(&self, _: &ChangesWanted) -> Result<ChangesFound, Trouble> {
        unreachable!("nobody asks")
    }
    fn submit(&self, _: WorkId, _: &SubmitTarget, _: &Path) -> Result<SubmitOutcome, Trouble> {
        unreachable!("nobody merges")
    }
    fn report(&self, _: &ReportRequested, _: &Subject, _: &Value) -> Result<(), Trouble> {
        unreachable!("nobody reports")
    }
}

const BASE: &str = "
- pipeline: {name: check, manager: independent, trigger: {}}
- pipeline: {name: tag, manager: independent, post-review: true, trigger: {}}
- job: {name: base, parent: null}
";

/// A site with projects `conf`, `lib` and `app`.
struct Site {
    root: tempfile::TempDir,
    repositories: Repositories,
}

impl Site {
    fn new() -> Site {
        let root = tempfile::tempdir().unwrap();
        let mut connections = Connections::default();
        connections.add("forge", Arc::new(Shelf(root.path().to_path_buf())));
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

    fn place(&self, project: &str) -> PathBuf {
        self.root.path().join(project)
    }

    fn git(&self, project: &str, arguments: &str) -> String {
        git(&self.place(project), arguments)
    }

    /// A commit of a file of this name on the branch that is checked out.
    fn commit(&self, project: &str, file: &str) -> String {
        std::fs::write(self.place(project).join(file), file).unwrap();
        self.git(project, "add --all");
        self.git(project, &format!("commit --quiet --message {file}"));
        self.git(project, "rev-parse HEAD")
    }

    /// The layout of configuration that stands in branches: project, branch, text.
    fn layout(&self, files: &[(&str, &str, &str)]) -> Layout {
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
        let file = |(project, branch, text): &(&str, &str, &str)| ConfigFile {
            project: format!("git.test/{project}"),
            branch: (*branch).to_owned(),
            path: "zuul.yaml".into(),
            text: (*text).to_owned(),
        };
        let files = [("conf", "master", BASE)].iter().chain(files).map(file).collect();
        let (layout, problems) = load(&LoadInput { tenant, files });
        assert!(problems.iter().all(|problem| !problem.is_error()), "{problems:?}");
        layout
    }

    /// Prepares what a subject is, and freezes its jobs.
    fn freeze(&self, layout: &Layout, pipeline: &str, subject: &Subject) -> FreezeOutcome {
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
    fn checked_out(&self, spec: &JobSpec, project: &str) -> PathBuf {
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

    fn specs(&self, outcome: &FreezeOutcome) -> Vec<JobSpec> {
        let FreezeOutcome::Frozen { jobs, .. } = outcome else { panic!("{outcome:?}") };
        let read = |spec| JobSpec::read(&self.repositories.blobs.get(spec).unwrap()).unwrap();
        jobs.iter().map(|job| read(&job.spec)).collect()
    }
}

fn git(place: &Path, arguments: &str) -> String {
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

fn tag(name: &str, commit: &str) -> Subject {
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

fn names(outcome: &FreezeOutcome) -> Vec<&str> {
    match outcome {
        FreezeOutcome::Frozen { jobs, .. } => jobs.iter().map(|job| job.name.as_str()).collect(),
        FreezeOutcome::NoJobs { .. } => Vec::new(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pushed_tag_runs_the_jobs_of_the_branches_that_hold_it() {
    let site = Site::new();
    // Each branch says itself what is released from it.
    let of = |branch: &str| {
        format!("- job: {{name: release-{branch}, run: r.yaml}}\n- project: {{tag: {{jobs: [release-{branch}]}}}}\n")
    };
    let both = site.git("lib", "rev-parse HEAD");
    site.git("lib", "branch stable");
    let on_master = site.commit("lib", "new");
    site.git("lib", "checkout --quiet stable");
    let on_stable = site.commit("lib", "fix");
    site.git("lib", "checkout --quiet master");
    let layout = site.layout(&[("lib", "master", &of("master")), ("lib", "stable", &of("stable"))]);
    let jobs = |name: &str, commit: &str| {
        site.git("lib", &format!("tag --annotate --message x {name} {commit}"));
        let outcome = site.freeze(&layout, "tag", &tag(name, commit));
        names(&outcome).join(" ")
    };
    assert_eq!(jobs("v2.0", &on_master), "release-master");
    assert_eq!(jobs("v1.1", &on_stable), "release-stable");
    assert_eq!(jobs("v1.0", &both), "release-master release-stable");
    // A commit that no branch holds any more.
    site.git("lib", "checkout --quiet --detach");
    let lost = site.commit("lib", "lost");
    site.git("lib", "checkout --quiet master");
    assert_eq!(jobs("v0.9", &lost), "");
    // The id of the tag itself does as well, and the job stands on the tag, on no branch.
    let id = site.git("lib", "rev-parse v1.1");
    assert_ne!(id, on_stable);
    let outcome = site.freeze(&layout, "tag", &tag("v1.1", &id));
    assert_eq!(names(&outcome), ["release-stable"]);
    let place = site.checked_out(&site.specs(&outcome)[0], "lib");
    assert_eq!(git(&place, "describe --exact-match"), "v1.1");
    assert_eq!(git(&place, "rev-parse --abbrev-ref HEAD"), "HEAD");
    assert_eq!(git(&place, "for-each-ref --format=%(refname:short) refs/heads"), "master\nstable");
}

#[test]
fn all_jobs_of_a_buildset_see_one_state_however_late_they_start() {
    let site = Site::new();
    site.git("lib", "branch stable");
    site.git("lib", "checkout --quiet -b doomed");
    let doomed = site.commit("lib", "doomed");
    site.git("lib", "checkout --quiet master");
    site.git("lib", "tag v1.0");
    let change = {
        site.git("app", "checkout --quiet -b work");
        let change = site.commit("app", "change");
        site.git("app", "update-ref refs/changes/1 HEAD");
        site.git("app", "checkout --quiet master");
        site.git("app", "branch -D work");
        change
    };
    let config = "- job: {name: one, run: r.yaml, required-projects: [lib]}
- job: {name: late, run: r.yaml, required-projects: [{name: lib, override-checkout: v1.0}]}
- project: {check: {jobs: [one, late]}}
";
    let layout = site.layout(&[("app", "master", config)]);
    let subject = Subject {
        project: "git.test/app".into(),
        branch: Some("master".into()),
        git_ref: "refs/changes/1".into(),
        change: Some("1".into()),
        patchset: Some("1".into()),
        ..tag("", &change)
    };
    let outcome = site.freeze(&layout, "check", &subject);
    assert_eq!(names(&outcome), ["one", "late"]);
    let FreezeOutcome::Frozen { repo_state, .. } = &outcome else { unreachable!() };
    let pinned: Vec<&str> = repo_state.iter().map(|one| one.project.as_str()).collect();
    assert_eq!(pinned, ["git.test/app", "git.test/lib"], "the event says what was seen");
    let refs = |place: &Path| git(place, "for-each-ref --format=%(refname)=%(objectname)");
    let specs = site.specs(&outcome);
    let early = refs(&site.checked_out(&specs[0], "lib"));
    for expected in ["refs/heads/stable=", "refs/heads/doomed=", "refs/tags/v1.0="] {
        assert!(early.contains(expected), "{early}");
    }

    // Before the other starts, people push to every branch, move a tag, delete a branch, and a merger sees it.
    let before = site.git("lib", "rev-parse master");
    site.commit("lib", "later");
    site.git("lib", "branch --force stable master");
    site.git("lib", "tag --force v1.0");
    site.git("lib", "tag v2.0");
    site.git("lib", "branch -D doomed");
    site.git("lib", "reflog expire --expire=now --all");
    site.git("lib", "gc --quiet --prune=now");
    let key = site.repositories.key("forge", "git.test/lib").unwrap();
    site.repositories.mirrors.fetch(&key, &[]).unwrap();

    assert_eq!(refs(&site.checked_out(&specs[0], "lib")), early, "a second attempt");
    let place = site.checked_out(&specs[1], "lib");
    assert_eq!(refs(&place), early, "a job that starts days later");
    assert_eq!(git(&place, "rev-parse HEAD"), before);
    assert_eq!(git(&place, "rev-parse --abbrev-ref HEAD"), "HEAD", "it asked for a tag");
    assert!(!place.join("later").exists());

    // A worker elsewhere never had what the deleted branch named: its builds are without it, and run.
    let elsewhere = Site {
        root: tempfile::tempdir().unwrap(),
        repositories: Repositories {
            mirrors: Arc::new(Mirrors::open(MirrorsConfig::new(site.root.path().join("elsewhere"))).unwrap()),
            begun: Arc::default(),
            ..site.repositories.clone()
        },
    };
    let place = elsewhere.checked_out(&specs[0], "lib");
    assert_eq!(git(&place, "rev-parse HEAD"), before);
    let there = refs(&place);
    assert!(!there.contains(&doomed) && there.contains(&format!("refs/heads/stable={before}")), "{there}");
}

#[test]
fn a_buildset_sees_repositories_as_they_were_read_since_it_began() {
    let mut site = Site::new();
    let commit = site.git("lib", "rev-parse HEAD");
    site.git("lib", "tag v1.0");
    let config = "- job: {name: one, run: r.yaml, required-projects: [app]}\n- project: {tag: {jobs: [one]}}\n";
    let layout = site.layout(&[("lib", "master", config)]);
    let seen = |site: &Site| {
        let specs = site.specs(&site.freeze(&layout, "tag", &tag("v1.0", &commit)));
        specs[0].workspace.iter().find(|one| one.name == "app").unwrap().commit.clone()
    };
    // It began; a merger reads the repository for somebody else; only then is there something new.
    let Repositories { begun, mirrors, .. } = &site.repositories;
    begun.note(BuildsetId([3; 16]), mirrors);
    let first = site.git("app", "rev-parse HEAD");
    let key = site.repositories.key("forge", "git.test/app").unwrap();
    mirrors.fetch(&key, &[]).unwrap();
    let second = site.commit("app", "second");
    assert_eq!(seen(&site), first);
    // Whoever begins now sees it, as does a process that does not know when it began.
    site.repositories.begun = Arc::default();
    site.repositories.begun.note(BuildsetId([3; 16]), &site.repositories.mirrors);
    assert_eq!(seen(&site), second);
    let third = site.commit("app", "third");
    assert_eq!(seen(&site), second, "it was read since");
    site.repositories.begun = Arc::default();
    assert_eq!(seen(&site), third);
}
