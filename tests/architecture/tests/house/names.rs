//! Who names a domain.
//!
//! A domain is hosted, replayed and shown through lists; outside of its own crates nothing need name it but those who work
//! for it in particular. Which files do stands in [`NAMING`], which may only become shorter. How a new domain fares is shown
//! by the sample domain: so many files name it as [`MOST`] says, and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gatelog_architecture::{files, text};

mod naming;
use naming::NAMING;

/// The most files outside its own crate that name the sample domain: where its records are, and the list they are in.
const MOST: usize = 3;

/// Where [`NAMING`] stands. `GATELOG_UPDATE_NAMING` has this test write it anew.
const LIST: &str = "tests/architecture/tests/house/names/naming.rs";

/// The domains, each with the folders that are its own: its tables, its rules, its words.
const DOMAINS: &[(&str, &[&str])] = &[
    ("Gate", &["projectors/gate-state/", "services/rules/gate/", "replay/src/domains/gate.rs"]),
    ("Capacity", &["projectors/capacity-state/", "services/rules/capacity/", "replay/src/domains/capacity.rs"]),
];

/// What names a domain in source text.
fn names(domain: &str) -> Vec<String> {
    let small = domain.to_lowercase();
    let mut names: Vec<String> = ["Domain", "Event", "Input"].map(|kind| format!("{kind}::{domain}")).into();
    names.extend(["Event", "Input", "Rules", "Live", "Read"].map(|kind| format!("{domain}{kind}")));
    names.extend([format!("gatelog_{small}_state"), format!("gatelog_rules_{small}"), format!("draft::{small}")]);
    names
}

/// Whether a name stands in a text as a word of its own.
fn stands_in(text: &str, name: &str) -> bool {
    let of_a_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(of_a_word) && !text[at + name.len()..].starts_with(of_a_word))
}

/// Whether a file is there for tests or measurements alone.
fn is_of_tests(file: &str) -> bool {
    ["tests/", "benches/", "examples/", "fuzz/"]
        .iter()
        .any(|folder| file.starts_with(folder) || file.contains(&format!("/{folder}")))
        || file.ends_with("/tests.rs")
}

/// The source files that name a domain, but for those of these folders.
fn naming(domain: &str, but: &[&str], with_tests: bool) -> BTreeSet<String> {
    let names = names(domain);
    let mut found = BTreeSet::new();
    for file in files().unwrap() {
        let path = file.display().to_string();
        let counts = path.ends_with(".rs") && (with_tests || !is_of_tests(&path));
        if !counts || but.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let text = text(Path::new(&file)).unwrap_or_default();
        if names.iter().any(|name| stands_in(&text, name)) {
            found.insert(path);
        }
    }
    found
}

#[test]
fn a_domain_is_named_outside_its_own_crates_only_where_that_is_said() {
    let listed: BTreeMap<&str, &[&str]> = NAMING.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut anew = Vec::new();
    for (domain, own) in DOMAINS {
        // The records of all domains are one crate's.
        let own: Vec<&str> = own.iter().copied().chain(["log-schema/record/"]).collect();
        let found = naming(domain, &own, false);
        assert!(found.len() > 5, "hardly any file that names {domain} was found: {found:?}");
        anew.push((*domain, found.clone()));
        let may: BTreeSet<String> = listed[domain].iter().map(|file| (*file).to_owned()).collect();
        wrong.extend(found.difference(&may).map(|file| {
            format!(
                "{file} names {domain}: go through a list of domains instead, or add it to tests/house/names/naming.rs"
            )
        }));
        wrong.extend(
            may.difference(&found).map(|file| {
                format!("{file} does not name {domain} any more: take it out of tests/house/names/naming.rs")
            }),
        );
    }
    if std::env::var_os("GATELOG_UPDATE_NAMING").is_some() {
        return std::fs::write(gatelog_architecture::root().join(LIST), written(&anew)).unwrap();
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// The list as its file has it. What is added to it wants a good reason.
fn written(listed: &[(&str, BTreeSet<String>)]) -> String {
    let before = std::fs::read_to_string(gatelog_architecture::root().join(LIST)).unwrap();
    let (head, _) = before.split_once(" = &[\n").unwrap();
    let mut text = format!("{head} = &[\n");
    for (domain, files) in listed {
        let files: String = files.iter().map(|file| format!("            \"{file}\",\n")).collect();
        text.push_str(&format!("    (\n        \"{domain}\",\n        &[\n{files}        ],\n    ),\n"));
    }
    text + "];\n"
}

#[test]
fn hardly_any_file_outside_its_own_crate_names_the_sample_domain() {
    let found = naming("Sample", &["tests/sample-domain/"], true);
    assert!(found.iter().any(|file| file.starts_with("log-schema/record/src/domains/")), "{found:?}");
    assert!(found.len() <= MOST, "{} files name the sample domain, more than {MOST}: {found:?}", found.len());
}

#[test]
fn a_name_is_a_word_of_its_own() {
    assert!(stands_in("match Event::Sample(one)", "Event::Sample"));
    assert!(!stands_in("PartitionEvent::Sample(one)", "Event::Sample"));
    assert!(!stands_in("Event::SampleBegun", "Event::Sample"));
    assert!(is_of_tests("services/web/tests/it/site.rs") && is_of_tests("replay/src/explain/tests.rs"));
    assert!(!is_of_tests("services/web/src/site.rs"));
}
