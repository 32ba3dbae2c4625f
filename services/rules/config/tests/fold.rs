//! Whatever a configuration says, folding the trace of a freezing alone gives the frozen jobs, byte for
//! byte: of random small configurations here, of every case in `cases.rs`, of a whole site in
//! `conformance.rs`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]

use gatelog_record::codec;
use gatelog_rules_config::freeze::fold;
use gatelog_rules_config::freeze::trace::JobFate;
use gatelog_rules_config::{
    ConfigFile, FreezeOptions, FreezeSubject, FreezeTrace, Layout, LoadInput, TenantProject, TenantSettings, freeze,
    load,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

const PRELUDE: &str = "
- pipeline: {name: check, manager: independent}
- pipeline: {name: gate, manager: dependent, post-review: true}
- secret: {name: key, data: {}}
- nodeset: {name: small, nodes: [{name: n, label: l}]}
- nodeset: {name: any, alternatives: [small, {nodes: [{name: o, label: m}]}]}
- job: {name: base, parent: null, pre-run: pre.yaml, run: base.yaml, post-run: post.yaml, timeout: 100}
- project-template: {name: t, vars: {from: template, t: 1}, gate: {jobs: [a, b]}}
";

/// One attribute with a value, as it stands in a flow mapping.
fn attribute() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "voting: false",
        "attempts: 5",
        "timeout: 50",
        "pre-timeout: 10",
        "post-timeout: 7",
        "abstract: true",
        "intermediate: true, abstract: true",
        "final: true",
        "protected: true",
        "post-review: true",
        "vars: {a: 1, d: {x: 1}}",
        "vars: {b: 2, d: {y: 2}}",
        "vars: !override {c: 3}",
        "extra-vars: {e: 1}",
        "host-vars: {h: {a: 1}}",
        "group-vars: !override {g: {a: 1}}",
        "tags: [x, y]",
        "tags: !override [z]",
        "provides: p",
        "requires: [q]",
        "dependencies: [a]",
        "dependencies: !inherit [{name: b, soft: true}]",
        "files: ['^src/']",
        "files: !inherit ['^doc/']",
        "irrelevant-files: ['^doc/']",
        "pre-run: one.yaml",
        "run: two.yaml",
        "run: [three.yaml, {name: four.yaml, semaphores: sem}]",
        "post-run: [five.yaml, {name: six.yaml, cleanup: true}]",
        "cleanup-run: seven.yaml",
        "roles: [{zuul: lib}]",
        "roles: [{zuul: app, name: other}]",
        "secrets: [key]",
        "secrets: [{name: k, secret: key, pass-to-parent: true}]",
        "secret-exposure: redact",
        "semaphores: [s1, {name: s2, resources-first: true}]",
        "required-projects: [lib]",
        "required-projects: !override [{name: app, override-checkout: stable}]",
        "include-projects: [{type: name, name: lib}]",
        "exclude-projects: [{type: change}]",
        "include-vars: [v.yaml, {name: w.yaml, project: lib}]",
        "allowed-projects: [app, lib]",
        "allowed-projects: [lib]",
        "override-checkout: stable",
        "nodeset: small",
        "nodeset: any",
        "nodeset: {nodes: [{name: [p, q], label: r}]}",
        "failure-output: ['x', 'a']",
        "deduplicate: false",
        "match-on-config-updates: false",
        "type: initializer",
        "ansible-version: 9",
        "ansible-split-streams: true",
        "workspace-scheme: flat",
        "workspace-checkout: auto",
        "preserve-home-paths: [.cache]",
        "description: words",
        "attribute-control: {vars: {final: true}}",
        "branches: master",
        "hold-following-changes: true",
        "success-message: fine",
        "failure-message: bad",
    ])
    .prop_map(str::to_owned)
}

fn attributes() -> impl Strategy<Value = String> {
    prop::collection::vec(attribute(), 0..5).prop_map(|all| {
        let mut kept: Vec<String> = Vec::new();
        for one in all {
            let key = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
            if !kept.iter().any(|known| known.split(", ").any(|part| key(part) == key(&one))) {
                kept.push(one);
            }
        }
        kept.join(", ")
    })
}

fn job(name: &str, parent: Option<&str>, attributes: &str) -> String {
    let parent = parent.map(|parent| format!(", parent: {parent}")).unwrap_or_default();
    let comma = if attributes.is_empty() { "" } else { ", " };
    format!("- job: {{name: {name}{parent}{comma}{attributes}}}\n")
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Definitions of four jobs, each with a parent before it or the base job.
fn definitions() -> impl Strategy<Value = String> {
    let one =
        (0..NAMES.len(), prop::option::of(0..NAMES.len()), attributes()).prop_map(|(name, parent, attributes)| {
            let parent = parent.and_then(|parent| NAMES.get(..name).and_then(|before| before.get(parent)));
            job(NAMES[name], parent.copied(), &attributes)
        });
    prop::collection::vec(one, 1..9).prop_map(|all| all.concat())
}

fn stanza(name: &str) -> impl Strategy<Value = String> + use<> {
    let name = name.to_owned();
    let lists = prop::collection::vec((prop::sample::select(NAMES.to_vec()), attributes()), 1..5);
    (lists, prop::bool::ANY).prop_map(move |(jobs, vars)| {
        let jobs: Vec<String> = jobs.iter().map(|(job, attributes)| format!("{job}: {{{attributes}}}")).collect();
        let jobs = jobs.iter().map(|job| format!("{{{job}}}")).collect::<Vec<_>>().join(", ");
        let vars = if vars { ", vars: {from: project, d: {z: 1}}" } else { "" };
        format!(
            "- project: {{name: {name}, templates: [t]{vars}, check: {{jobs: [{jobs}]}}, gate: {{jobs: [{jobs}]}}}}\n"
        )
    })
}

fn layout(conf: &str, app: &str) -> Layout {
    let project = |name: &str, trusted: bool, branches: &[&str]| TenantProject {
        canonical_name: format!("example.com/{name}"),
        branches: branches.iter().map(|branch| (*branch).to_owned()).collect(),
        ..TenantProject::new("forge", name, trusted)
    };
    let file = |project: &str, text: String| ConfigFile {
        project: format!("example.com/{project}"),
        branch: "master".into(),
        path: "zuul.yaml".into(),
        text,
    };
    let projects = vec![
        project("conf", true, &["master"]),
        project("app", false, &["master", "stable"]),
        project("lib", false, &["master"]),
    ];
    let files = vec![file("conf", format!("{PRELUDE}{conf}")), file("app", app.to_owned())];
    load(&LoadInput { tenant: TenantSettings { projects, ..TenantSettings::default() }, files }).0
}

/// Freezes for the project in both pipelines; how many jobs were folded.
fn folds_back(layout: &Layout, files: Option<Vec<String>>) -> usize {
    let mut jobs = 0;
    for (pipeline, branch) in [("check", "master"), ("gate", "master"), ("gate", "stable")] {
        let subject = FreezeSubject {
            project: "example.com/app".into(),
            branch: Some(branch.into()),
            files: files.clone(),
            ..FreezeSubject::default()
        };
        let outcome = freeze(layout, &subject, pipeline, FreezeOptions::default());
        let trace: FreezeTrace = codec::decode(&codec::encode(outcome.trace()).unwrap()).unwrap();
        let frozen = outcome.graph().map_or(&[][..], |graph| &graph.jobs);
        for job in frozen {
            let folded = fold::job(&trace, &job.name);
            assert_eq!(codec::encode(&folded).unwrap(), codec::encode(&Some(job)).unwrap(), "{}", job.name);
            jobs += 1;
        }
        let runs = trace.jobs.iter().filter(|job| job.fate == JobFate::Runs).count();
        assert_eq!(runs, frozen.len());
        for job in &trace.jobs {
            // And every trace can be told, also of a job that is absent or refused.
            assert!(trace.render(&job.name).unwrap().lines().count() > 1);
        }
    }
    jobs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn folding_the_trace_alone_gives_the_frozen_job(
        conf in definitions(),
        own in definitions(),
        stanza in stanza("app"),
        trusted in prop::bool::ANY,
        files in prop::option::of(prop::sample::select(vec!["src/a", "doc/b", "one.yaml"])),
    ) {
        let own = if trusted { String::new() } else { own };
        let (conf, app) = if trusted { (conf + &stanza, own) } else { (String::new(), own + &stanza) };
        folds_back(&layout(&conf, &app), files.map(|file| vec![file.to_owned()]));
    }
}

#[test]
fn the_generator_makes_jobs_that_run() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut jobs = 0;
    for _ in 0..100 {
        let conf = definitions().new_tree(&mut runner).unwrap().current();
        let stanza = stanza("app").new_tree(&mut runner).unwrap().current();
        jobs += folds_back(&layout(&(conf + &stanza), ""), None);
    }
    assert!(jobs > 50, "only {jobs} jobs ran");
}
