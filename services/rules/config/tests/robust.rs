//! Whatever comes in, loading and freezing end, without a panic, and the same input gives the same
//! answer.

use gatelog_rules_config::dialect::Spelling;
use gatelog_rules_config::{
    ConfigFile, FreezeOptions, FreezeSubject, Layout, LoadInput, ParseCache, Severity, SourceContext, TenantProject,
    TenantSettings, freeze, load, load_cached, parse_file, parse_tenant_file, parse_tenant_file_as,
};
use proptest::prelude::*;

const GOOD: &str = r#"
- pragma: {implied-branches: [master]}
- pipeline: {name: check, manager: independent, trigger: {forge: [{event: x}]}}
- nodeset: {name: n, nodes: [{name: a, label: b}], groups: [{name: g, nodes: [a]}]}
- secret: {name: s, data: {k: !encrypted/pkcs1-oaep [YQ==, Yg==]}}
- semaphore: {name: sem, max: 2}
- queue: {name: q, type: per-branch}
- job: {name: base, parent: null, run: a.yaml}
- job:
    name: unit
    parent: base
    vars: &v {a: 1, b: [1, 2.5, ~]}
    extra-vars: {<<: *v, c: 3}
    dependencies: [{name: base, soft: true}]
    secrets: [{name: k, secret: s, pass-to-parent: true}]
    required-projects: [{name: app, override-checkout: master}]
    files: ['^doc/', {regex: x, negate: true}]
    tags: !override [x]
- project-template: {name: t, check: {jobs: [base]}}
- project: {name: ^.*$, templates: [t], queue: q, check: {jobs: [{unit: {voting: false}}]}}
"#;

fn input(text: &str) -> LoadInput {
    let mut projects = vec![TenantProject::new("forge", "conf", true), TenantProject::new("forge", "app", false)];
    for project in &mut projects {
        project.canonical_name = format!("example.com/{}", project.name);
        project.branches = vec!["master".into(), "stable".into()];
    }
    let file = |project: &str| ConfigFile {
        project: format!("example.com/{project}"),
        branch: "master".into(),
        path: "zuul.yaml".into(),
        text: text.into(),
    };
    let tenant = TenantSettings { projects, ..TenantSettings::default() };
    LoadInput { tenant, files: vec![file("conf"), file("app")] }
}

fn exercise(text: &str) -> Layout {
    let (layout, problems) = load(&input(text));
    for problem in &problems {
        assert!(!problem.to_string().is_empty());
    }
    for pipeline in layout.pipelines.keys() {
        for project in layout.projects.keys() {
            let subject = FreezeSubject {
                project: project.clone(),
                branch: Some("master".into()),
                files: Some(vec!["doc/x".into()]),
                ..FreezeSubject::default()
            };
            let outcome = freeze(&layout, &subject, pipeline, FreezeOptions::default());
            for job in &outcome.trace().jobs {
                assert!(!job.code.is_empty(), "{} has no reason", job.name);
                assert!(outcome.trace().render(&job.name).is_some());
            }
        }
    }
    layout
}

#[test]
fn the_sample_loads_and_freezes() {
    let (layout, problems) = load(&input(GOOD));
    // The same file in the untrusted project may not define the pipeline, the base job and the rest
    // again; the config project's copy is whole.
    assert!(problems.iter().all(|problem| problem.place.context.project == "example.com/app"), "{problems:#?}");
    let subject =
        FreezeSubject { project: "example.com/app".into(), branch: Some("master".into()), ..FreezeSubject::default() };
    let outcome = freeze(&layout, &subject, "check", FreezeOptions::default());
    let names: Vec<&str> = outcome.graph().unwrap().jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["base", "unit"]);
}

#[test]
fn layout_graph_and_trace_survive_being_written_down() {
    let layout = exercise(GOOD);
    let text = serde_json::to_string(&layout).unwrap();
    assert_eq!(serde_json::from_str::<Layout>(&text).unwrap(), layout);
    assert_eq!(layout.to_json()["jobs"]["unit"][0]["attributes"]["vars"]["b"][1], serde_json::json!(2.5));
    let subject =
        FreezeSubject { project: "example.com/app".into(), branch: Some("master".into()), ..FreezeSubject::default() };
    let outcome = freeze(&layout, &subject, "check", FreezeOptions::default());
    let text = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<gatelog_rules_config::FreezeOutcome>(&text).unwrap(), outcome);

    use gatelog_record::codec;
    assert_eq!(codec::decode::<Layout>(&codec::encode(&layout).unwrap()).unwrap(), layout);
    let bytes = codec::encode(&outcome).unwrap();
    assert_eq!(codec::decode::<gatelog_rules_config::FreezeOutcome>(&bytes).unwrap(), outcome);
    let parsed = parse_file(SourceContext { trusted: true, ..SourceContext::default() }, GOOD, Spelling::Zuul);
    assert_eq!(codec::decode::<gatelog_rules_config::ParsedFile>(&codec::encode(&parsed).unwrap()).unwrap(), parsed);
}

#[test]
fn the_order_in_which_files_are_given_does_not_matter() {
    let given = input(GOOD);
    let mut turned = given.clone();
    turned.files.reverse();
    assert_eq!(load(&given), load(&turned));
}

#[test]
fn a_changed_job_runs_whatever_its_file_matchers_say() {
    let before = exercise(GOOD);
    let after = exercise(&GOOD.replace("c: 3", "c: 4"));
    let subject = FreezeSubject {
        project: "example.com/app".into(),
        branch: Some("master".into()),
        files: Some(vec!["x".into()]),
        updates_config: true,
        ..FreezeSubject::default()
    };
    let jobs = |ahead: &Layout| {
        let options = FreezeOptions { ahead: Some(ahead), ..FreezeOptions::default() };
        freeze(&after, &subject, "check", options).graph().unwrap().jobs.len()
    };
    assert_eq!(jobs(&before), 2);
    assert_eq!(jobs(&after), 1);
}

#[test]
fn a_tenant_file_is_read_with_its_problems() {
    let text = r#"
- global-semaphore: {name: g}
- tenant:
    name: one
    max-nodes-per-job: -1
    source:
      gerrit:
        untrusted-projects:
          - lib: {exclude: [job], include-branches: ['stable/.*'], implied-branch-matchers: false}
          - include: [job]
            projects: [a, {b: {include: [secret]}}]
        config-projects: [conf]
- tenant: {name: two, max-nodes: 3}
- tenat: {name: three}
- tenant:
    name: four
    source:
      gerrit:
        untrusted-projects: [x, x]
"#;
    let (tenants, problems) = parse_tenant_file(text);
    let codes: Vec<(&str, u32)> = problems.iter().map(|p| (p.code.as_str(), p.place.line)).collect();
    assert_eq!(codes, [("unknown-attribute", 13), ("unknown-item", 14), ("duplicate-project", 19)]);
    assert_eq!(tenants.len(), 1);
    let settings = &tenants[0].settings;
    assert_eq!(settings.max_nodes_per_job, None);
    assert_eq!(settings.max_job_timeout, Some(10_800));
    let names: Vec<(&str, bool)> = settings.projects.iter().map(|p| (p.name.as_str(), p.trusted)).collect();
    assert_eq!(names, [("conf", true), ("lib", false), ("a", false), ("b", false)]);
    let lib = &settings.projects[1];
    assert!(!lib.include.contains(&"job".to_owned()) && lib.include.contains(&"secret".to_owned()));
    assert!(!lib.include.contains(&"image".to_owned()));
    assert_eq!(lib.implied_branch_matchers, Some(false));
    assert_eq!(settings.projects[2].include, ["job"]);
    assert_eq!(settings.projects[3].include, ["secret"]);
    let (resolved, problems) = tenants[0].resolve(|connection, name| {
        (name != "a").then(|| gatelog_rules_config::tenant::ProjectFacts {
            canonical_name: format!("{connection}.example.com/{name}"),
            default_branch: "main".into(),
            branches: vec!["main".into(), "stable/1".into()],
        })
    });
    assert_eq!(problems.len(), 1);
    assert_eq!(resolved.projects[1].canonical_name, "gerrit.example.com/lib");
    assert_eq!(resolved.projects[1].branches, ["stable/1"]);
    assert_eq!(resolved.projects[0].config_branches(), ["main"]);
}

#[test]
fn parsing_a_file_depends_on_nothing_else() {
    let context = SourceContext {
        project: "example.com/app".into(),
        branch: "master".into(),
        path: "zuul.yaml".into(),
        trusted: true,
    };
    assert_eq!(parse_file(context.clone(), GOOD, Spelling::Older), parse_file(context, GOOD, Spelling::Older));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn arbitrary_text_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        exercise(&text);
        parse_tenant_file(&text);
    }

    #[test]
    fn yaml_like_text_never_panics(text in "(- |  |[a-z]{1,3}: |\\{|\\}|\\[|\\]|,|\n|&a |\\*a|<<: |!override |'|\"|#|\\||>|job|name|vars|1|~|\\?|:|%|@|\u{feff}|\u{85}){0,60}") {
        exercise(&text);
        parse_tenant_file(&text);
    }

    #[test]
    fn a_damaged_configuration_never_panics(at in 0usize..2000, cut in 0usize..40, put in "[ -~\n]{0,6}") {
        let chars: Vec<char> = GOOD.chars().collect();
        let at = at % chars.len();
        let damaged: String =
            chars[..at].iter().chain(put.chars().collect::<Vec<_>>().iter()).chain(chars[(at + cut).min(chars.len())..].iter()).collect();
        exercise(&damaged);
    }

    #[test]
    fn arbitrary_patterns_never_panic(regex in ".{0,40}", text in ".{0,40}") {
        use gatelog_rules_config::regexes::{Anchor, Pattern};
        for anchor in [Anchor::Start, Anchor::Whole, Anchor::Anywhere] {
            let pattern = Pattern::new(regex.clone(), false, anchor);
            let _ = pattern.check();
            let _ = pattern.matches(&text);
        }
    }
}

#[test]
fn a_tenant_may_include_files_beside_the_tenant_file() {
    let text = "
- tenant:
    name: openstack
    include:
      - global.yaml
      - openstack.yaml
- tenant:
    name: random
    include: global.yaml
    source:
      my-gerrit:
        repos:
          - stackforge/random
";
    let (mut specs, problems) = parse_tenant_file(text);
    let told: Vec<(Severity, &str, u32)> =
        problems.iter().map(|p| (p.severity, p.attribute.as_deref().unwrap_or(""), p.place.line)).collect();
    let notice = Severity::Notice;
    assert_eq!(told, [(notice, "include", 4), (notice, "include", 9), (notice, "repos", 12)]);
    let included: Vec<&str> = specs[0].settings.included.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(included, ["global.yaml", "openstack.yaml"]);
    let random = &specs[1].settings.projects[0];
    assert_eq!((random.name.as_str(), random.trusted), ("stackforge/random", false));

    // A project that such a file names is one of the tenant's; a file that is not there is told.
    let (_, missing) = load(&LoadInput { tenant: specs[0].settings.clone(), files: Vec::new() });
    assert_eq!(missing.iter().map(|p| p.code.as_str()).collect::<Vec<_>>(), ["included-file-missing"; 2]);
    specs[0].settings.included[0].text = Some("- project: {name: openstack/nova, check: {jobs: [noop]}}".into());
    specs[0].settings.included[1].text = Some(String::new());
    specs[0].imply_projects(&["my-gerrit".into()]);
    let (settings, _) = specs[0].resolve(|connection, name| {
        Some(gatelog_rules_config::tenant::ProjectFacts {
            canonical_name: format!("{connection}/{name}"),
            default_branch: "master".into(),
            branches: vec!["master".into()],
        })
    });
    let (layout, problems) = load(&LoadInput { tenant: settings, files: Vec::new() });
    assert!(problems.is_empty(), "{problems:?}");
    assert!(layout.stanzas.contains_key("my-gerrit/openstack/nova"));

    // As Zuul 14 has it, all of this is unknown.
    let (specs, problems) = parse_tenant_file_as(text, Spelling::Zuul);
    assert!(specs.is_empty());
    assert_eq!(problems.iter().filter(|problem| problem.is_error()).count(), 3);
}

#[test]
fn files_parsed_before_give_the_same_layout() {
    let mut cache = ParseCache::default();
    let texts = [GOOD.to_owned(), GOOD.replace("voting: false", "voting: 7"), "- job: [".to_owned(), "\n".to_owned()];
    for _ in 0..2 {
        for text in &texts {
            let given = input(text);
            assert_eq!(load_cached(&given, &mut cache), load(&given));
        }
    }
    // Two files of each text, and none of them twice.
    assert_eq!(cache.parsed(), 2 * texts.len() as u64);
}

#[test]
fn a_change_of_one_file_parses_that_file_alone() {
    let mut cache = ParseCache::default();
    let mut given = input(GOOD);
    load_cached(&given, &mut cache);
    for round in 0..20 {
        given.files[1].text = format!("{GOOD}- queue: {{name: q{round}}}\n");
        let before = cache.parsed();
        let (layout, _) = load_cached(&given, &mut cache);
        assert_eq!(cache.parsed(), before + 1);
        assert!(layout.queues.contains_key(&format!("q{round}")));
    }
}
