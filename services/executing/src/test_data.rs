//! A build for tests of texts: inventory, configuration, sandbox.

use std::path::PathBuf;

use gatelog_record::{BuildId, BuildsetId, Value};

use crate::playbooks::PlaybookInPlace;
use crate::spec::{
    BuildSpec, Checkout, Connection, GroupSpec, JobSpec, NodeSpec, Nodeset, Phase, PipelineSpec, PlaybookSpec,
    ProjectName, RefSpec, Remote, SecretVars, Timeouts, Variables, WorkspaceProject,
};
use crate::variables::HostVars;

/// A change in `gate`, two nodes, one playbook.
pub(crate) fn spec() -> BuildSpec {
    let project = ProjectName::new("git.example.org", "org/app");
    let map = |name: &str, value: &str| -> HostVars { [(name.to_owned(), Value::from(value))].into() };
    let item = RefSpec {
        project: project.clone(),
        ref_name: "refs/changes/01/1/2".into(),
        branch: Some("main".into()),
        change: Some("1".into()),
        patchset: Some("2".into()),
        change_url: Some("https://review.example.org/1".into()),
        message: Some("Fix {{ it }}\n".into()),
        commit_id: Some("c0ffee".into()),
        ..RefSpec::default()
    };
    let remote = Connection::Remote(Remote {
        plugin: "ssh".into(),
        host: "192.0.2.7".into(),
        port: Some(2222),
        ..Remote::default()
    });
    let checkout = Checkout { project, name: "main".into(), commit: "c0ffee".into(), ..Checkout::default() };
    BuildSpec {
        build: BuildId([1; 16]),
        attempt: 2,
        max_attempts: 3,
        buildset: BuildsetId([2; 16]),
        event_id: Some("e1".into()),
        tenant: "demo".into(),
        pipeline: PipelineSpec { name: "gate".into(), post_review: true },
        job: JobSpec {
            name: "unit".into(),
            voting: true,
            timeouts: Timeouts { run: Some(60), pre: None, post: None },
            child_jobs: vec!["publish".into()],
            ansible_version: "11".into(),
            ..JobSpec::default()
        },
        items: vec![item.clone()],
        build_refs: vec![item.clone()],
        buildset_refs: vec![item.clone()],
        item,
        projects: vec![WorkspaceProject {
            checkout: checkout.clone(),
            required: true,
            checkout_description: "change's branch".into(),
        }],
        playbooks: vec![PlaybookSpec {
            phase: Phase::Run,
            checkout,
            path: "run.yaml".into(),
            trusted: false,
            nesting_level: 0,
            secrets: SecretVars::default(),
            tokens: Default::default(),
            roles: Vec::new(),
            cleanup: false,
        }],
        nodeset: Nodeset {
            nodes: vec![
                NodeSpec {
                    name: "near".into(),
                    label: "sandbox".into(),
                    connection: Connection::Local { dir: "/nodes/1/home".into() },
                    properties: map("cloud", "here"),
                    ..NodeSpec::default()
                },
                NodeSpec { name: "far".into(), connection: remote, ..NodeSpec::default() },
            ],
            groups: vec![GroupSpec { name: "db".into(), nodes: vec!["far".into()] }],
        },
        variables: Variables {
            vars: [("a".to_owned(), Value::from("{{ b }}")), ("secret".to_owned(), Value::from("plain"))].into(),
            group_vars: [("db".to_owned(), map("a", "db"))].into(),
            parent_secret_data: map("parent", "canary").into(),
            ..Variables::default()
        },
        include_vars: Vec::new(),
        artifacts: Vec::new(),
        ssh_keys: Vec::new(),
        sensitive: Default::default(),
    }
}

/// Its playbook, in place below `/x`.
pub(crate) fn playbook(spec: &BuildSpec) -> PlaybookInPlace {
    PlaybookInPlace {
        spec: spec.playbooks[0].clone(),
        repository: PathBuf::from("/x/untrusted/project_0/git.example.org/org/app"),
        file: PathBuf::from("/x/untrusted/project_0/git.example.org/org/app/run.yaml"),
        directory: PathBuf::from("/x/ansible/playbook_0"),
        index: 0,
        roles: Vec::new(),
    }
}
