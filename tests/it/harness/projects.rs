//! Projects for tests: small, with jobs that take as little time as Ansible allows.

/// Pipelines check and gate, and a base job without playbooks of its own.
pub const PIPELINES: &str = r"
- pipeline:
    name: check
    manager: independent
    trigger:
      forge:
        - event: change-proposed
    success:
      forge: {}
    failure:
      forge: {}

- pipeline:
    name: gate
    manager: dependent
    require:
      forge:
        open: true
        approved: true
        current-patchset: true
    trigger:
      forge:
        - event: change-approved
    success:
      forge:
        merge: true
    failure:
      forge: {}

- job:
    name: base
    parent: null
    timeout: 120

- queue:
    name: integrated
";

/// A job that passes when the project's file `verdict` says `good`.
pub const JOBS: &str = r"
- job:
    name: verdict
    run: playbooks/verdict.yaml

- project:
    queue: integrated
    check:
      jobs: [verdict]
    gate:
      jobs: [verdict]
";

/// The job's playbook.
pub const PLAYBOOK: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - name: The file says good
      command: grep -q good {{ zuul.executor.work_root }}/{{ zuul.project.src_dir }}/verdict
"#;

/// The config project's files.
pub const CONFIG: &[(&str, &str)] = &[("zuul.yaml", PIPELINES)];

/// A project that passes.
pub const PROJECT: &[(&str, &str)] =
    &[("zuul.yaml", JOBS), ("playbooks/verdict.yaml", PLAYBOOK), ("verdict", "good\n"), ("notes", "1\n2\n3\n4\n5\n")];
