//! What one merger prepared, another makes again in mirrors of its own.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use gatelog_driver_contract::{
    Branch, BranchNow, COMMIT_MISSING, CodeReview, Connection, Connections, DriverSchema, Found, Landing, Source,
    Target, Trouble,
};
use gatelog_effects::chain::{Chain, ensure};
use gatelog_effects::git::Repositories;
use gatelog_effects::prepare::prepare;
use gatelog_effects::review::submit;
use gatelog_event_log::MemoryBlobs;
use gatelog_merging::{Mirrors, MirrorsConfig, ProjectKey};
use gatelog_record::draft::gate::{
    ChangeKey, ChangesWanted, MergeStep, MergeSteps, PrepareOutcome, PrepareRequested, Subject, SubmitOutcome,
    SubmitRequested, SubmitTarget,
};
use gatelog_record::{BuildsetId, ItemId, Timestamp, WorkId};

fn git(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(["-c", "safe.directory=*", "-c", "user.name=Dana", "-c", "user.email=dana@example.org"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A forge that is asked where its repositories are, and that merges whatever it finds.
struct Shelf(PathBuf);

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
    fn submit_all(&self, _: WorkId, targets: &[Target<'_>]) -> Result<Vec<Landing>, Trouble> {
        let land = |target: &Target<'_>| {
            let commit = target.wanted.tested_commit.clone();
            let here = Command::new("git").arg("-C").arg(&target.objects).args(["cat-file", "-e", &commit]).output();
            match here.is_ok_and(|output| output.status.success()) {
                true => Ok(Landing::Merged(BranchNow { commit, tree: target.wanted.tested_tree.clone() })),
                false => Err(Trouble::new(COMMIT_MISSING, "it is not there").again(true)),
            }
        };
        targets.iter().map(land).collect()
    }
}

fn merger(root: &Path, name: &str) -> Repositories {
    let mut connections = Connections::default();
    let forge = Connection::new("forge", &SCHEMA);
    connections.add(forge.with_review(Arc::new(Shelf(root.to_path_buf()))));
    let mirrors = Mirrors::open(MirrorsConfig::new(root.join(name))).unwrap();
    Repositories { mirrors: Arc::new(mirrors), connections, blobs: Arc::new(MemoryBlobs::new()), begun: Arc::default() }
}

fn step(name: &str, commit: &str) -> MergeStep {
    MergeStep {
        item: ItemId([1; 16]),
        subject: Subject {
            connection: "forge".into(),
            project: "git.test/lib".into(),
            branch: Some("master".into()),
            git_ref: format!("refs/changes/{name}"),
            change: Some(format!("master/{name}")),
            patchset: Some("1".into()),
            commit: Some(commit.into()),
            old_commit: None,
            url: String::new(),
        },
        mode: "merge-resolve".into(),
    }
}

#[test]
fn another_merger_makes_the_very_commits_again_or_says_that_it_cannot() {
    let root = tempfile::tempdir().unwrap();
    let lib = root.path().join("lib");
    std::fs::create_dir_all(&lib).unwrap();
    git(&lib, &["init", "--quiet", "--initial-branch=master"]);
    let commit = |file: &str| {
        std::fs::write(lib.join(file), file).unwrap();
        git(&lib, &["add", "--all"]);
        git(&lib, &["commit", "--quiet", "--message", file]);
        git(&lib, &["rev-parse", "HEAD"])
    };
    commit("base");
    let mut steps = Vec::new();
    for name in ["one", "two"] {
        git(&lib, &["checkout", "--quiet", "-B", "work", "master"]);
        let change = commit(name);
        git(&lib, &["update-ref", &format!("refs/changes/{name}"), &change]);
        steps.push(step(name, &change));
    }
    git(&lib, &["checkout", "--quiet", "master"]);
    git(&lib, &["branch", "--quiet", "-D", "work"]);

    let (first, second) = (merger(root.path(), "first"), merger(root.path(), "second"));
    let dated = Timestamp(1_700_000_000_000_000);
    let steps = MergeSteps::from(steps);
    let wanted = PrepareRequested {
        work: WorkId([2; 16]),
        item: ItemId([1; 16]),
        buildset: BuildsetId([3; 16]),
        steps: steps.clone(),
        bases: Vec::new(),
        dated,
    };
    let PrepareOutcome::Merged(state) = prepare(&first, &wanted) else { panic!("it does not merge") };
    let chain = Chain { steps, branches: state.branches.clone(), dated };
    let key = ProjectKey::new("forge", "lib");
    let made = &state.branches[0].commit;

    // The branch moves on meanwhile: what was tested is made on what it was tested on.
    commit("later");
    assert!(!second.mirrors.has_commit(&key, made).unwrap_or(false));
    ensure(&second, "again", &chain).unwrap();
    assert!(second.mirrors.has_commit(&key, made).unwrap());
    // Where it is already, nothing is made.
    ensure(&first, "again", &chain).unwrap();

    // Whoever merges makes it first where it is not there, of one branch and of several.
    let target = SubmitTarget {
        subject: step("two", "").subject,
        at: state.branches[0].at.clone(),
        tested_base: state.branches[0].ahead.clone(),
        tested_commit: made.clone(),
        tested_tree: String::new(),
    };
    let wanted =
        |targets| SubmitRequested { work: WorkId([5; 16]), item: ItemId([1; 16]), tenant: "example".into(), targets };
    let (one, both) = (wanted(vec![target.clone()]), wanted(vec![target.clone(), target]));
    for (name, wanted) in [("fourth", &one), ("fifth", &both)] {
        let other = merger(root.path(), name);
        let outcome = submit(&other, wanted, || None);
        assert!(matches!(&outcome, SubmitOutcome::Failed { code, again: true, .. } if code == COMMIT_MISSING));
        assert_eq!(submit(&other, wanted, || Some(chain.clone())), SubmitOutcome::Merged);
    }
    let other = merger(root.path(), "sixth");
    let outcome = submit(&other, &one, || Some(Chain { dated: dated.plus_seconds(1), ..chain.clone() }));
    assert!(matches!(&outcome, SubmitOutcome::Failed { code, .. } if code == "not-reproduced"), "{outcome:?}");

    let third = merger(root.path(), "third");
    let trouble = ensure(&third, "again", &Chain { dated: dated.plus_seconds(1), ..chain }).unwrap_err();
    assert_eq!(trouble.code, "not-reproduced");
    assert!(trouble.message.contains("master") && trouble.again, "{trouble}");
}
