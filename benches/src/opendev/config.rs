//! What the made-up site is configured with: tenants, projects, pipelines and jobs in OpenDev's proportions.
//!
//! OpenDev has 2,472 Gerrit projects, of which 987 have a stanza of their own in its central configuration, most of them
//! in one tenant. A few projects are tested by dozens of jobs, most by a handful; a job takes from minutes (style) to two
//! hours (a whole cloud), and a twentieth of them wants more than one node.

use std::fmt::Write as _;

/// A tenant.
#[derive(Clone, Copy, Debug)]
pub struct Tenant {
    /// Its name.
    pub name: &'static str,
    /// How many projects it has besides its configuration.
    pub projects: usize,
    /// Of a thousand changes, how many are proposed here.
    pub share: u64,
}

/// Every tenant: 987 projects.
pub const TENANTS: [Tenant; 6] = [
    Tenant { name: "openstack", projects: 760, share: 800 },
    Tenant { name: "opendev", projects: 70, share: 70 },
    Tenant { name: "starlingx", projects: 60, share: 60 },
    Tenant { name: "airship", projects: 40, share: 30 },
    Tenant { name: "zuul", projects: 27, share: 25 },
    Tenant { name: "pyca", projects: 30, share: 15 },
];

/// The host of canonical names.
pub const HOST: &str = "review.opendev.example";
/// The connection.
pub const CONNECTION: &str = "forge";
/// How many of a tenant's projects share the queue of its gate.
const INTEGRATED: usize = 45;
/// How many jobs of each sort a tenant has.
const SORTS: [(&str, usize); 4] = [("style", 12), ("unit", 60), ("functional", 90), ("tempest", 110)];

/// A project's name on its connection.
pub fn project(tenant: &Tenant, index: usize) -> String {
    format!("{}/project-{index:03}", tenant.name)
}

/// The project that holds a tenant's configuration.
pub fn config_project(tenant: &Tenant) -> String {
    format!("{}/project-config", tenant.name)
}

/// A project's canonical name.
pub fn canonical(project: &str) -> String {
    format!("{HOST}/{project}")
}

/// How long a job takes on the whole, in seconds, by its name.
pub fn seconds(job: &str) -> u64 {
    let spread = |from: u64, to: u64| from + spread_of(job) % (to - from);
    match job.split('-').next().unwrap_or_default() {
        "style" | "docs" => spread(180, 480),
        "unit" => spread(240, 1_200),
        "functional" => spread(900, 2_700),
        "tempest" => spread(2_400, 6_000),
        _ => spread(120, 600),
    }
}

/// A number that follows from a text.
pub fn spread_of(text: &str) -> u64 {
    // FNV-1a, its upper half.
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
        >> 32
}

/// How many jobs a project's check has.
fn jobs_of(index: usize) -> usize {
    match index {
        0..=9 => 26 - index,
        10..=59 => 9 + index % 7,
        60..=249 => 5 + index % 5,
        _ => 3 + index % 4,
    }
}

/// The jobs of a project's check: name, whether it votes, and what it waits for.
fn check_jobs(tenant: &Tenant, index: usize) -> Vec<(String, bool)> {
    let mut jobs = vec![(format!("style-{:02}", index % 12), true), ("docs".to_owned(), true)];
    let count = jobs_of(index);
    let mut draw = 0_u64;
    while jobs.len() < count {
        draw += 1;
        let seed = spread_of(&format!("{} {index} {draw}", tenant.name));
        let (sort, of) = match seed % 100 {
            0..=59 => SORTS[1],
            60..=87 => SORTS[2],
            _ => SORTS[3],
        };
        let job = format!("{sort}-{:02}", (seed / 100) as usize % of);
        if !jobs.iter().any(|(known, _)| *known == job) {
            // Long jobs are where those are found that may fail.
            let voting = sort == "unit" || seed / 1_000 % 100 >= 22;
            jobs.push((job, voting));
        }
    }
    jobs
}

/// The tenant file: what a site is served with, and what its log names as the one in force.
///
/// # Errors
/// Never: a text takes whatever is written to it.
pub fn tenant_file() -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for tenant in &TENANTS {
        let name = tenant.name;
        writeln!(text, "- tenant:\n    name: {name}\n    source:\n      {CONNECTION}:")?;
        writeln!(text, "        config-projects: [{}]\n        untrusted-projects:", config_project(tenant))?;
        for index in 0..tenant.projects {
            writeln!(text, "          - {}", project(tenant, index))?;
        }
    }
    Ok(text)
}

/// A tenant's configuration: one file of its configuration project.
///
/// # Errors
/// Never: a text takes whatever is written to it.
pub fn text(tenant: &Tenant) -> Result<String, std::fmt::Error> {
    let mut text = PIPELINES.to_owned();
    for (sort, count) in SORTS {
        for number in 0..count {
            // A twentieth of all jobs wants two nodes.
            let nodeset = if sort == "tempest" && number % 7 == 0 { "two" } else { "one" };
            writeln!(
                text,
                "- job: {{name: {sort}-{number:02}, parent: {sort}, run: playbooks/{sort}.yaml, nodeset: {nodeset}}}"
            )?;
        }
    }
    for index in 0..tenant.projects {
        let name = project(tenant, index);
        let jobs = check_jobs(tenant, index);
        let listed = |jobs: &[(String, bool)], all: bool| {
            let listed: Vec<String> = jobs
                .iter()
                .filter(|(_, voting)| all || *voting)
                .map(|(job, voting)| if *voting { job.clone() } else { format!("{job}: {{voting: false}}") })
                .collect();
            listed.join(", ")
        };
        let queue = if index < INTEGRATED { "\n    queue: integrated" } else { "" };
        writeln!(
            text,
            "- project:\n    name: {name}{queue}\n    check: {{jobs: [{}]}}\n    gate: {{jobs: [{}]}}\n    post: {{jobs: [publish]}}",
            listed(&jobs, true),
            listed(&jobs, false),
        )?;
        if index % 3 == 0 {
            writeln!(text, "    promote: {{jobs: [promote-docs]}}")?;
        }
        if index < 200 {
            let nightly: Vec<(String, bool)> = jobs.iter().skip(2).step_by(2).cloned().collect();
            let nightly = if nightly.is_empty() { "docs".to_owned() } else { listed(&nightly, true) };
            writeln!(text, "    periodic: {{jobs: [{nightly}]}}")?;
        }
    }
    Ok(text)
}

/// Pipelines, nodesets and what all jobs stand on.
const PIPELINES: &str = "
- pipeline:
    name: check
    manager: independent
    trigger: {forge: [{event: change-proposed}]}
    require: {forge: {open: true, current-patchset: true}}
    start: {forge: {}}
    success: {forge: {}}
    failure: {forge: {}}
- pipeline:
    name: gate
    manager: dependent
    require: {forge: {open: true, approved: true, current-patchset: true}}
    trigger: {forge: [{event: change-approved}]}
    start: {forge: {}}
    success: {forge: {merge: true}}
    failure: {forge: {}}
    window: 20
    window-floor: 20
    window-increase-factor: 2
- pipeline:
    name: post
    manager: supercedent
    post-review: true
    trigger: {forge: [{event: ref-updated, ref: ^refs/heads/master$}]}
- pipeline:
    name: promote
    manager: supercedent
    post-review: true
    trigger: {forge: [{event: change-merged}]}
    success: {forge: {}}
    failure: {forge: {}}
- pipeline:
    name: periodic
    manager: independent
    post-review: true
    trigger: {forge: [{event: ref-updated, ref: ^refs/heads/nightly$}]}
- nodeset: {name: one, nodes: [{name: node, label: jammy}]}
- nodeset: {name: two, nodes: [{name: controller, label: noble}, {name: compute, label: noble}]}
- queue: {name: integrated}
- job:
    name: base
    parent: null
    pre-run: [playbooks/base/pre.yaml, playbooks/base/network.yaml]
    run: playbooks/base/run.yaml
    post-run: [playbooks/base/post.yaml, playbooks/base/logs.yaml]
    nodeset: one
    timeout: 1800
    attempts: 3
    vars: {mirror: mirror.opendev.example, collect: {journal: true, config: [etc, var]}}
- job: {name: style, irrelevant-files: ['^doc/.*$'], timeout: 1800}
- job: {name: unit, irrelevant-files: ['^doc/.*$', '^.*\\.rst$'], timeout: 3600}
- job: {name: functional, irrelevant-files: ['^doc/.*$', '^.*\\.rst$', '^tests/unit/.*$'], timeout: 5400}
- job: {name: tempest, irrelevant-files: ['^doc/.*$', '^.*\\.rst$', '^tests/unit/.*$'], timeout: 10800, vars: {services: {keystone: true, glance: true, nova: true}}}
- job: {name: docs}
- job: {name: publish}
- job: {name: promote-docs, nodeset: {nodes: []}}
";
