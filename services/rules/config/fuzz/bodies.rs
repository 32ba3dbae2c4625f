//! What the fuzz targets do with their bytes; `tests/fuzz_corpus.rs` does it with the corpus.

use gatelog_rules_config::dialect::Spelling;
use gatelog_rules_config::regexes::{Anchor, Pattern, Verdict};
use gatelog_rules_config::tenant::IncludedFile;
use gatelog_rules_config::{
    ConfigFile, FreezeOptions, FreezeSubject, LoadInput, TenantProject, TenantSettings, freeze, load, machines,
    parse_tenant_file_as,
};

/// The first byte chooses how the rest is read.
pub fn load_any(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let older = choice & 1 == 1;
    if choice & 2 == 2 {
        let spelling = if older { Spelling::Older } else { Spelling::Zuul };
        let (specs, problems) = parse_tenant_file_as(&text, spelling);
        problems.iter().for_each(|problem| drop(problem.to_string()));
        for mut spec in specs {
            spec.imply_projects(&["forge".to_owned()]);
            drop(spec.resolve(|_, _| None));
        }
        return;
    }
    let mut projects = vec![TenantProject::new("forge", "conf", true), TenantProject::new("forge", "app", false)];
    for project in &mut projects {
        project.canonical_name = format!("example.com/{}", project.name);
        project.branches = vec!["master".into(), "stable".into()];
    }
    let file = |project: &str, branch: &str| ConfigFile {
        project: format!("example.com/{project}"),
        branch: branch.into(),
        path: "zuul.yaml".into(),
        text: text.clone().into_owned(),
    };
    let files = match choice & 12 {
        0 => vec![file("conf", "master")],
        4 => vec![file("app", "master"), file("app", "stable")],
        _ => vec![file("conf", "master"), file("app", "master")],
    };
    let included = match choice & 16 {
        0 => Vec::new(),
        _ => vec![IncludedFile { path: "all.yaml".into(), text: Some(text.clone().into_owned()) }],
    };
    let tenant = TenantSettings {
        name: "t".into(),
        projects,
        included,
        older_spellings: older,
        connections: vec!["forge".into()],
        drivers: [("forge".to_owned(), "gerrit".to_owned())].into(),
        ..TenantSettings::default()
    };
    let (layout, problems) = load(&LoadInput { tenant, files });
    problems.iter().for_each(|problem| drop(problem.to_string()));
    for provider in layout.named.get("provider").into_iter().flatten() {
        drop(machines::of_provider(&layout, provider.0));
    }
    for pipeline in layout.pipelines.keys().take(4) {
        for project in layout.projects.keys() {
            let subject = FreezeSubject {
                project: project.clone(),
                branch: Some("master".into()),
                files: Some(vec!["doc/x".into()]),
                ..FreezeSubject::default()
            };
            let options = FreezeOptions { ahead: Some(&layout), ..FreezeOptions::default() };
            let outcome = freeze(&layout, &subject, pipeline, options);
            for job in &outcome.trace().jobs {
                drop(outcome.trace().render(&job.name));
            }
        }
    }
}

/// The first byte chooses the anchor; a zero byte parts the expression from the text.
pub fn regex_any(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let regex = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let anchor = match choice % 3 {
        0 => Anchor::Start,
        1 => Anchor::Whole,
        _ => Anchor::Anywhere,
    };
    let plain = Pattern::new(regex.clone(), false, anchor);
    let verdict = plain.check();
    let found = plain.matches(&text);
    let not = Pattern::new(regex, true, anchor).matches(&text);
    match verdict {
        // What RE2 takes always answers, and the opposite question with the opposite.
        Verdict::Good => assert_ne!(found, not),
        // Backtracking may give up, and then says no to both.
        Verdict::Deprecated(_) => assert!(!(found && not)),
        Verdict::Invalid(_) => assert!(!found && !not),
    }
}
