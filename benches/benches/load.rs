//! A whole site's configuration from text to layout, and a change of one file of it.
//!
//! The site is the folder `openstack` below `GATELOG_CORPUS`; where that is not at hand, one of about the
//! same size is made up. Limit: splitting the same bytes into YAML events.
#![expect(clippy::print_stdout, reason = "a benchmark tells whoever runs it")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use gatelog_benches::measure::{Took, best, timed};
use gatelog_benches::table::{Table, time, times};
use gatelog_benches::{Failure, corpus};
use gatelog_rules_config::dialect::Spelling;
use gatelog_rules_config::folder::Folder;
use gatelog_rules_config::{ConfigFile, LoadInput, ParseCache, load, load_cached, yaml};

const ROUNDS: usize = 15;

fn main() -> Result<(), Failure> {
    let (name, folder) = match corpus::given() {
        Some(path) => ("the openstack corpus", corpus::read(&path)?),
        None => {
            println!("SKIPPED the openstack corpus: GATELOG_CORPUS names no folder with it; a made-up site instead");
            ("a made-up site", made_up())
        }
    };
    let before = resident();
    let loaded = folder.load().map_err(|problems| format!("the site does not load: {problems:?}"))?;
    let after = resident();
    let tenant = loaded.first().ok_or("the site has no tenant")?.settings.clone();
    drop(loaded);
    let files = files(&folder, &tenant.projects);
    let bytes: usize = files.iter().map(|file| file.text.len()).sum();
    let mut input = LoadInput { tenant, files };

    let (limit, _) = best::<_, Failure>(ROUNDS, || {
        input.files.iter().for_each(|file| drop(black_box(yaml::parse_as(&file.text, Spelling::Zuul))));
        Ok(())
    })?;
    let (whole, layout) = best::<_, Failure>(ROUNDS, || Ok(load(&input)))?;
    let mut table = Table::new(&format!(
        "Loading {name}: {} projects, {} files, {} kB, {} jobs (limit: the same bytes to trees; processor time)",
        input.tenant.projects.len(),
        input.files.len(),
        bytes / 1000,
        layout.0.jobs.len(),
    ));
    let ratio = |took: Took| times(took.cpu.as_secs_f64() / limit.cpu.as_secs_f64());
    table.row("load everything", time(whole.cpu), time(limit.cpu), ratio(whole), "120 ms");
    let mut cache = ParseCache::default();
    load_cached(&input, &mut cache);
    let mut changes = Vec::new();
    for at in 0..input.files.len() {
        let text = input.files.get(at).map(|file| file.text.clone()).unwrap_or_default();
        let mut shortest = Duration::MAX;
        for _ in 0..ROUNDS {
            if let Some(file) = input.files.get_mut(at) {
                file.text.push_str("\n# changed\n");
            }
            let (took, made) = timed(|| load_cached(&input, &mut cache));
            black_box(made);
            shortest = shortest.min(took.cpu);
            if let Some(file) = input.files.get_mut(at) {
                file.text.clone_from(&text);
            }
            // Without this the next change would be of two files: itself, and this one changed back.
            black_box(load_cached(&input, &mut cache));
        }
        changes.push(shortest);
    }
    changes.sort_unstable();
    let middle = changes.get(changes.len() / 2).copied().unwrap_or_default();
    let most = changes.last().copied().unwrap_or_default();
    table.row("one file changed, middle of all files", time(middle), String::new(), String::new(), "10 ms");
    table.note("one file changed, the largest", time(most));
    if let (Some(before), Some(after)) = (before, after) {
        table.note("memory the loaded site adds, texts of files apart", format!("{} kB", after.saturating_sub(before)));
    }
    table.print();
    Ok(())
}

/// Kilobytes this process has in memory, where the system says.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The configuration files of all projects.
fn files(folder: &Folder, projects: &[gatelog_rules_config::TenantProject]) -> Vec<ConfigFile> {
    let mut files = Vec::new();
    for project in projects {
        for branch in &project.branches {
            let own = project.name.replacen('/', "_", 1);
            let of_branch = format!("{own}@{}", branch.replace('/', "%2F"));
            let Some(tree) = folder.trees.get(&of_branch).or_else(|| folder.trees.get(&own)) else { continue };
            let config =
                tree.iter().filter(|(path, _)| gatelog_rules_config::is_config_path(path, &project.extra_config_paths));
            files.extend(config.map(|(path, text)| ConfigFile {
                project: project.canonical_name.clone(),
                branch: branch.clone(),
                path: path.clone(),
                text: text.clone(),
            }));
        }
    }
    files
}

/// 1,280 projects, whose stanzas stand in one config project; 460 jobs with a variant each.
fn made_up() -> Folder {
    let mut tenant =
        "- tenant:\n    name: made-up\n    source:\n      forge:\n        config-projects: [org/config]\n        \
                      untrusted-projects:\n"
            .to_owned();
    let mut trees: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut config = "- pipeline: {name: check, manager: independent}\n- pipeline: {name: gate, manager: dependent}\n\
                      - job: {name: base, parent: null, run: run.yaml}\n"
        .to_owned();
    for job in 0..460 {
        let parent = if job < 10 { "base".to_owned() } else { format!("job-{}", job % 10) };
        let _ = writeln!(
            config,
            "- job:\n    name: job-{job}\n    parent: {parent}\n    run: playbooks/job-{job}.yaml\n    \
             irrelevant-files:\n      - ^.*\\.rst$\n      - ^doc/.*$\n      - ^releasenotes/.*$\n    vars:\n      \
             tox_envlist: env-{job}\n- job: {{name: job-{job}, branches: ^stable/.*$, voting: false}}"
        );
    }
    for project in 0..1_280 {
        let _ = writeln!(tenant, "          - org/project-{project}");
        let name = |offset: usize| (project * 7 + offset * 31) % 460;
        let _ = writeln!(
            config,
            "- project:\n    name: org/project-{project}\n    check:\n      jobs:\n        - job-{}\n        - job-{}\n        \
             - job-{}:\n            voting: false\n    gate:\n      jobs:\n        - job-{}\n        - job-{}",
            name(0),
            name(1),
            name(2),
            name(0),
            name(1)
        );
    }
    trees.insert("org_config".to_owned(), BTreeMap::from([("zuul.yaml".to_owned(), config)]));
    Folder {
        tenant_file: tenant,
        conf: "[connection forge]\ndriver=git\nbaseurl=https://git.example.com\n".to_owned(),
        site: true,
        trees,
        ..Folder::default()
    }
}
