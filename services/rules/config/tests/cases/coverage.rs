//! What the cases cover: every attribute of every object, every problem.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gatelog_rules_config::objects::{self, JobAttribute};
use gatelog_rules_config::yaml;

use super::{all_cases, read};

/// The attributes a case asks for.
fn asked_attributes() -> BTreeSet<String> {
    let cases = all_cases();
    let questions = cases.iter().flat_map(|(_, case)| &case.questions).filter(|(words, _)| words[0] == "job");
    let lines = questions.flat_map(|(_, expected)| expected.lines());
    lines.filter_map(|line| line.split_once(':')).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn every_attribute_of_a_job_has_a_case() {
    let asked = asked_attributes();
    let missing: Vec<&str> = JobAttribute::ALL
        .iter()
        .map(|attribute| attribute.row().name)
        // These leave nothing in the job but what other attributes tell.
        .filter(|name| !["secrets", "attribute-control"].contains(name))
        .filter(|name| !(asked.contains(*name) || *name == "nodeset" && asked.contains("nodes")))
        .collect();
    assert!(missing.is_empty(), "no case asks for {missing:?}");
}

/// The attributes of a tenant and of its projects, as the reference of the tenant file lists them.
const OF_TENANTS: &[&str] = &[
    "name",
    "source",
    "max-changes-per-pipeline",
    "max-dependencies",
    "max-nodes-per-job",
    "max-job-timeout",
    "max-oidc-ttl",
    "default-oidc-ttl",
    "allowed-oidc-issuers",
    "exclude-unprotected-branches",
    "exclude-locked-branches",
    "default-parent",
    "default-ansible-version",
    "allowed-triggers",
    "allowed-reporters",
    "allowed-labels",
    "disallowed-labels",
    "web-root",
    "admin-rules",
    "access-rules",
    "anonymous-read-access",
    "role-mappings",
    "authentication-realm",
    "semaphores",
    "use-nodepool",
    "allow-circular-dependencies",
    "report-build-page",
    "config-projects",
    "untrusted-projects",
    "projects",
    "include",
    "exclude",
    "include-provider-config",
    "shadow",
    "include-branches",
    "exclude-branches",
    "always-dynamic-branches",
    "extra-config-paths",
    "load-branch",
    "implied-branch-matchers",
    "configure-projects",
    "allow-reporter-jobs",
    "allow-base-jobs",
];

/// The keys of a tree at any depth.
fn keys_of(node: &yaml::Node, found: &mut BTreeSet<String>) {
    for entry in node.as_mapping().unwrap_or(&[]) {
        found.insert(entry.key.clone());
        keys_of(&entry.value, found);
    }
    node.as_sequence().unwrap_or(&[]).iter().for_each(|item| keys_of(item, found));
}

#[test]
fn every_attribute_of_every_object_has_a_case() {
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, case) in all_cases() {
        if let Ok((Some(root), _)) = yaml::parse::parse_lenient(&case.tenants) {
            keys_of(&root, seen.entry("tenant".to_owned()).or_default());
        }
        let texts = case.files.iter().chain(&case.ahead).map(|file| file.text.as_str());
        for text in texts.chain(case.included.iter().filter_map(|file| file.text.as_deref())) {
            let root = yaml::parse::parse(text).ok().flatten();
            let items = root.as_ref().and_then(yaml::Node::as_sequence).unwrap_or(&[]);
            for entry in items.iter().flat_map(|item| item.as_mapping().unwrap_or(&[])) {
                let keys = entry.value.as_mapping().unwrap_or(&[]);
                let own = seen.entry(entry.key.clone()).or_default();
                own.extend(keys.iter().map(|key| key.key.clone()));
                if entry.key == "project" {
                    let lists =
                        keys.iter().filter(|key| !objects::project::TABLE.iter().any(|row| row.name == key.key));
                    let said = lists.flat_map(|list| list.value.as_mapping().unwrap_or(&[]));
                    let said: Vec<String> = said.map(|one| one.key.clone()).collect();
                    seen.entry("list of jobs".to_owned()).or_default().extend(said);
                }
            }
        }
    }
    let tables = [
        ("pragma", objects::pragma::TABLE),
        ("pipeline", objects::pipeline::TABLE),
        ("queue", objects::queue::TABLE),
        ("job", objects::job::TABLE),
        ("job", objects::job::IDENTITY),
        ("project", objects::project::TABLE),
        ("list of jobs", objects::project::PIPELINE_TABLE),
        ("project-template", objects::template::TABLE),
        ("nodeset", objects::nodeset::TABLE),
        ("secret", objects::secret::TABLE),
        ("semaphore", objects::semaphore::TABLE),
        ("image", objects::named::IMAGE_TABLE),
        ("flavor", objects::named::FLAVOR_TABLE),
        ("label", objects::named::LABEL_TABLE),
        ("section", objects::named::SECTION_TABLE),
        ("provider", objects::named::PROVIDER_TABLE),
    ];
    let rows = tables.iter().flat_map(|(class, table)| table.iter().map(|row| (*class, row.name)));
    let all = rows.chain(OF_TENANTS.iter().map(|name| ("tenant", *name)));
    let missing: Vec<String> = all
        .filter(|(class, name)| !seen.get(*class).is_some_and(|keys| keys.contains(*name)))
        .map(|(class, name)| format!("{name} of {class}"))
        .collect();
    assert!(missing.is_empty(), "no case has {missing:?}");
}

/// Codes of problems in the sources: the text in a place where only a code can stand.
fn codes(text: &str, found: &mut BTreeSet<String>) {
    let own = text.split("#[cfg(test)]").next().unwrap_or(text);
    let callers = [
        "Problem::error(",
        "Problem::new(",
        ".fail(",
        ".fail_as(",
        ".error(",
        ".error_of_file(",
        ".warn(",
        "sink.add(",
        "refused(",
        "refuse(",
        "check_secret(",
    ];
    for caller in callers {
        for (at, _) in own.match_indices(caller) {
            let arguments: String = own[at + caller.len()..].chars().take(160).collect();
            let Some(code) = arguments.split('"').nth(1) else { continue };
            let before = arguments.split('"').next().unwrap_or_default();
            let is_code =
                code.contains('-') && code.chars().all(|c| c.is_ascii_lowercase() || c == '-' || c.is_ascii_digit());
            if is_code && !before.contains(['(', ')', ';', '{', '}', '!']) {
                found.insert(code.to_owned());
            }
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the sources it looks at are files")]
fn every_problem_has_a_case() {
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut all = BTreeSet::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            codes(&read(&path), &mut all);
        }
    }
    assert!(all.len() > 80, "only {} codes were found", all.len());
    let mut told = BTreeSet::new();
    for (_, case) in all_cases() {
        for (_, expected) in &case.questions {
            let words = expected.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
            told.extend(words.map(str::to_owned));
        }
    }
    let missing: Vec<&String> = all.difference(&told).filter(|code| !UNSEEN.contains(&code.as_str())).collect();
    assert!(missing.is_empty(), "no case shows {missing:?}");
    let stale: Vec<&&str> = UNSEEN.iter().filter(|code| told.contains(**code) || !all.contains(**code)).collect();
    assert!(stale.is_empty(), "these are shown, or are gone: {stale:?}");
}

/// Problems that no case shows, with the reason.
const UNSEEN: &[&str] = &[
    // Only a long configuration meets this limit: `a_chain_of_parents_has_an_end`.
    "job-parent-chain",
];
