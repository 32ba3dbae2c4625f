//! Which repositories a job has: its workspace, its playbooks' roles, and its files of variables.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod site;

use gatelog_effects::spec::{Attempt, JobSpec, PinnedCheckout};
use gatelog_executing::spec::PlaybookSpec;
use gatelog_record::draft::gate::Subject;
use gatelog_record::{BuildId, BuildsetId};
use site::{Site, tag};

/// A change of a project that is proposed for its master, with a commit of a file.
fn change(site: &Site, project: &str, file: &str) -> Subject {
    site.git(project, "checkout --quiet -b work master");
    let commit = site.commit(project, file);
    site.git(project, &format!("update-ref refs/changes/{file} HEAD"));
    site.git(project, "checkout --quiet master");
    site.git(project, "branch -D work");
    Subject {
        project: format!("git.test/{project}"),
        branch: Some("master".into()),
        git_ref: format!("refs/changes/{file}"),
        change: Some(file.into()),
        patchset: Some("1".into()),
        ..tag("", &commit)
    }
}

fn build(spec: &JobSpec) -> gatelog_executing::BuildSpec {
    spec.build(Attempt {
        build: BuildId([1; 16]),
        attempt: 1,
        buildset: BuildsetId([2; 16]),
        event_id: Some("7".into()),
        nodes: Vec::new(),
        messages: Vec::new(),
        parent_data: Default::default(),
        parent_secret_data: Default::default(),
        artifacts: Vec::new(),
        secrets: Default::default(),
        sensitive: Vec::new(),
        ssh_keys: Vec::new(),
    })
}

/// The roles of a playbook: name, project, what is checked out there, and why.
fn roles(playbook: &PlaybookSpec) -> Vec<String> {
    let one = |role: &gatelog_executing::spec::RoleSpec| {
        let (name, commit) = (&role.checkout.project.name, &role.checkout.commit);
        format!("{} {name} {} {commit} ({})", role.target_name, role.checkout.name, role.checkout_description)
    };
    playbook.roles.iter().map(one).collect()
}

#[test]
fn roles_are_taken_in_the_context_of_the_playbook() {
    let site = Site::new();
    let head = |project: &str| site.git(project, "rev-parse HEAD");
    let (conf, lib, app) = (head("conf"), head("lib"), head("app"));
    let subject = change(&site, "lib", "1");
    let proposed = subject.commit.clone().unwrap();
    let base = "- job: {name: run-base, pre-run: pre.yaml, roles: [{zuul: lib}]}\n";
    let config = "- job: {name: one, parent: run-base, run: r.yaml, roles: [{zuul: app, name: thing}]}
- project: {check: {jobs: [one]}}
";
    let layout = site.layout(&[("conf", "master", base), ("lib", "master", config)]);
    let spec = site.specs(&site.freeze(&layout, "check", &subject)).remove(0);
    let built = build(&spec);
    let [pre, run] = built.playbooks.as_slice() else { panic!("{:?}", built.playbooks) };
    assert!(pre.trusted && !run.trusted);
    // Whatever a change proposes for a repository of roles, a trusted playbook has what is merged.
    assert_eq!(
        roles(pre),
        [format!("lib lib master {lib} (zuul branch)"), format!("conf conf master {conf} (playbook branch)")]
    );
    assert!(!pre.roles[0].implicit && pre.roles[1].implicit);
    assert_eq!(
        roles(run),
        [
            format!("thing app master {app} (zuul branch)"),
            format!("lib lib master {proposed} (playbook branch)"),
            format!("conf conf master {conf} (zuul branch)"),
        ]
    );
    let distinct: Vec<&str> = spec.role_repositories.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(distinct, ["lib", "conf", "app", "lib", "conf"], "each state once");
    for project in ["git.test/conf", "git.test/lib", "git.test/app"] {
        assert!(spec.refs.contains_key(project), "branches and tags of {project} are frozen too");
    }
    // One that was frozen before roles were has those beside the playbook.
    let old = JobSpec { version: 4, roles: Vec::new(), role_repositories: Vec::new(), ..spec };
    let roles: Vec<(String, bool)> = build(&old)
        .playbooks
        .remove(0)
        .roles
        .into_iter()
        .map(|role| (role.checkout.project.name, role.implicit))
        .collect();
    assert_eq!(roles, [("conf".to_owned(), true)]);
}

fn pinned(spec: &JobSpec) -> Vec<String> {
    let one = |one: &PinnedCheckout| {
        format!("{} {} ({}){}", one.name, one.branch, one.description, if one.required { " required" } else { "" })
    };
    spec.workspace.iter().map(one).collect()
}

#[test]
fn checkouts_are_chosen_in_zuuls_order_and_projects_can_be_left_out() {
    let site = Site::new();
    site.git("lib", "branch stable");
    site.git("app", "branch stable");
    site.git("lib", "tag v1");
    let config = "- job: {name: of-project, run: r.yaml, override-checkout: stable,
        required-projects: [{name: app, override-checkout: gone, override-branch: stable}]}
- job: {name: of-job, run: r.yaml, override-checkout: gone, override-branch: stable, required-projects: [app]}
- job: {name: tag, run: r.yaml, required-projects: [{name: lib, override-checkout: v1}]}
- job: {name: without, run: conf.yaml, exclude-projects: [app]}
- job: {name: only, run: r.yaml, include-projects: [conf], required-projects: [lib]}
- project: {check: {jobs: [of-project, of-job, tag, without, only]}}
";
    let layout = site.layout(&[("conf", "master", &config.replace("- project: {", "- project: {name: app, "))]);
    let subject = change(&site, "app", "1");
    let outcome = site.freeze(&layout, "check", &subject);
    let seen: Vec<Vec<String>> = site.specs(&outcome).iter().map(pinned).collect();
    assert_eq!(seen[0], ["app stable (project override branch) required"]);
    assert_eq!(seen[1], ["app stable (job override branch) required"]);
    assert_eq!(seen[2], ["app master (zuul branch)", "lib v1 (project override ref) required"]);
    assert_eq!(seen[3], Vec::<String>::new(), "the job leaves its project out");
    assert_eq!(seen[4], ["lib master (zuul branch) required"], "what it requires it has");
}

#[test]
fn a_project_that_is_left_out_is_there_all_the_same_when_something_of_it_runs() {
    let site = Site::new();
    let config = "- job: {name: one, run: r.yaml, exclude-projects: [app]}\n- project: {check: {jobs: [one]}}\n";
    let layout = site.layout(&[("app", "master", config)]);
    let subject = change(&site, "app", "1");
    let spec = site.specs(&site.freeze(&layout, "check", &subject)).remove(0);
    assert_eq!(pinned(&spec), ["app master (zuul branch)"]);
    assert_eq!(Some(&spec.playbooks[0].commit), subject.commit.as_ref(), "the playbook is the proposed one");
}

#[test]
fn files_of_variables_are_pinned_with_what_is_to_be_known_of_them() {
    let site = Site::new();
    site.git("lib", "branch stable");
    site.git("app", "tag v1");
    let config = "- job: {name: one, run: r.yaml, include-vars: [own.yaml, {name: l.yaml, project: lib, required: false}, {name: z.yaml, zuul-project: true}, {name: y.yaml, zuul-project: true, use-ref: false}]}
- project: {name: app, check: {jobs: [one]}, tag: {jobs: [one]}}
";
    let layout = site.layout(&[("conf", "master", config)]);
    let files = |subject: &Subject, pipeline: &str| -> Vec<String> {
        let spec = site.specs(&site.freeze(&layout, pipeline, subject)).remove(0);
        let one = |file: &gatelog_executing::spec::VarsFile| {
            let (trusted, required) =
                (if file.trusted { " trusted" } else { "" }, if file.required { " required" } else { "" });
            format!("{} {} {}{trusted}{required}", file.path, file.checkout.project.name, file.checkout.name)
        };
        build(&spec).include_vars.iter().map(one).collect()
    };
    let subject = change(&site, "app", "1");
    assert_eq!(
        files(&subject, "check"),
        [
            "own.yaml conf master trusted required",
            "l.yaml lib master",
            "z.yaml app master required",
            "y.yaml app master required"
        ]
    );
    let commit = site.git("app", "rev-parse v1");
    let release = Subject { project: "git.test/app".into(), ..tag("v1", &commit) };
    assert_eq!(
        files(&release, "tag"),
        [
            "own.yaml conf master trusted required",
            "l.yaml lib master",
            "z.yaml app v1 required",
            "y.yaml app master required"
        ]
    );
}
