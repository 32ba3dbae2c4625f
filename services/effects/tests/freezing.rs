//! What jobs are frozen with: the branches that hold a tag, and repositories as all jobs of a buildset see them.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod site;

use std::path::Path;
use std::sync::Arc;

use gatelog_effects::git::Repositories;
use gatelog_merging::{Mirrors, MirrorsConfig};
use gatelog_record::BuildsetId;
use gatelog_record::draft::gate::{FreezeOutcome, Subject};
use site::{Site, git, names, tag};

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
    // The job's parent stands in `conf`: its roles are the job's too.
    assert_eq!(pinned, ["git.test/app", "git.test/conf", "git.test/lib"], "the event says what was seen");
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
