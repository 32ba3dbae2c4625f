//! What the real Nailgun and Astute answered is what `oracle` answers, where their answers are at hand.
//!
//! `GATELOG_PEER` names the folder with `fuel/cases` (default: `../shared/peer` beside the checkout); the task files that
//! cases name are in `corpus/fuel` beside it. `differences.txt` lists cases that are wanted to differ, each with a reason.
#![expect(clippy::unwrap_used, reason = "what a test cannot read ends it")]
#![expect(clippy::disallowed_methods, reason = "the cases and task files of Fuel are read where they are at hand")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gatelog_rules_deployments::oracle::{self, World};
use gatelog_rules_deployments::plan::{self, Options, check};
use gatelog_rules_deployments::{Selection, files};
use serde_json::Value;

const DIFFERENCES: &str = include_str!("differences.txt");

fn peer() -> PathBuf {
    std::env::var_os("GATELOG_PEER")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/peer"), PathBuf::from)
}

struct Corpus(PathBuf);

impl World for Corpus {
    fn tasks_file(&self, name: &str) -> Result<String, String> {
        std::fs::read_to_string(self.0.join(name)).map_err(|error| format!("{name}: {error}"))
    }

    fn is_file(&self, path: &str) -> bool {
        Path::new(path).is_file()
    }
}

/// Lists as sets with repetitions, all the way down.
fn loose(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(loose).collect();
            items.sort_by_key(key);
            Value::Array(items)
        }
        Value::Object(entries) => entries.iter().map(|(key, value)| (key.clone(), loose(value))).collect(),
        other => other.clone(),
    }
}

/// A value as text, the keys of maps sorted.
fn key(value: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(sorted).collect(),
            Value::Object(entries) => {
                let entries: BTreeMap<&String, Value> =
                    entries.iter().map(|(key, value)| (key, sorted(value))).collect();
                serde_json::to_value(entries).unwrap()
            }
            other => other.clone(),
        }
    }
    sorted(value).to_string()
}

fn told(what: &str, got: &Value, want: &Value) -> String {
    let cut = |value: &Value| key(value).chars().take(400).collect::<String>();
    format!("{what}:\n      {}\n  for {}", cut(got), cut(want))
}

fn without_numbers(rows: &Value) -> Value {
    let mut rows = rows.clone();
    for row in rows.as_array_mut().into_iter().flatten() {
        if let Some(row) = row.as_object_mut() {
            row.remove("priority");
        }
    }
    rows
}

fn one(op: &str, want: &Value, got: &Value) -> Option<String> {
    const ACCIDENTS: &[&str] =
        &["KeyError", "AttributeError", "ZeroDivisionError", "TypeError", "NetworkXError", "NetworkXUnfeasible"];
    match (want.get("error").and_then(Value::as_str), got.get("error").and_then(Value::as_str)) {
        (Some(want), Some(got)) => {
            return (!ACCIDENTS.contains(&want) && want != got).then(|| format!("the error {got} for {want}"));
        }
        (Some(_), None) => return Some(told("an error was wanted", got, want)),
        (None, Some(_)) => return Some(told("an error", got, want)),
        (None, None) => {}
    }
    let equal = match op {
        "subgraph" | "raw_subgraph" | "topology" | "groups" | "group_tasks" | "deploy" => loose(want) == loose(got),
        "pre" | "post" => loose(&without_numbers(want)) == loose(&without_numbers(got)),
        _ => key(want) == key(got),
    };
    (!equal).then(|| told("differs", got, want))
}

fn engine(want: &Value, got: &Value) -> Option<String> {
    ["success", "nodes", "events"].into_iter().find_map(|part| {
        let of = |value: &Value| {
            let value = value.get(part).cloned().unwrap_or_default();
            if part == "events" { loose(&value) } else { value }
        };
        (of(want) != of(got)).then(|| told(part, &of(got), &of(want)))
    })
}

fn role(want: &Value, got: &Value) -> Option<String> {
    if want.get("error").is_some() != got.get("error").is_some() {
        return Some(told("error", got, want));
    }
    let events = |value: &Value| value.get("events").and_then(Value::as_array).cloned().unwrap_or_default();
    let of_node = |value: &Value| -> BTreeMap<String, Vec<Value>> {
        let is_task = |event: &&Value| event[0] == "task";
        let uids: Vec<Value> = events(value).iter().filter(is_task).map(|event| event[1].clone()).collect();
        let kept = |uid: &Value| {
            events(value).into_iter().filter(|event| event[0] != "task" || event[1] == *uid).collect::<Vec<_>>()
        };
        uids.into_iter().map(|uid| (uid.to_string(), kept(&uid))).collect()
    };
    let hooks = |value: &Value| events(value).into_iter().filter(|event| event[0] != "task").collect::<Vec<_>>();
    if of_node(want) != of_node(got) || hooks(want) != hooks(got) {
        return Some(told("events", &Value::Array(events(got)), &Value::Array(events(want))));
    }
    let last = |value: &Value| {
        let reports = value.get("reports").and_then(Value::as_array).cloned().unwrap_or_default();
        reports.into_iter().rfind(|report| report.get("nodes").is_none()).unwrap_or_default()
    };
    (key(&last(want)) != key(&last(got))).then(|| told("final report", &last(got), &last(want)))
}

fn differences(case: &Value, answer: &Value) -> Vec<String> {
    let expected = case["expected"].as_object().unwrap();
    let mut found = Vec::new();
    for (version, got) in answer.as_object().unwrap() {
        let want = &expected[version];
        if want.is_object() {
            let by_roles = want.get("reports").is_some() || want.get("error").is_some();
            let why = if by_roles { role(want, got) } else { engine(want, got) };
            found.extend(why.map(|why| format!("{version}: {why}")));
            continue;
        }
        let ops = case["input"]["ops"].as_array().unwrap();
        assert_eq!(got.as_array().unwrap().len(), ops.len());
        for (at, op) in ops.iter().enumerate() {
            let op = op["op"].as_str().unwrap();
            let why = one(op, &want[at], &got[at]);
            found.extend(why.map(|why| format!("{version}, question {at} ({op}): {why}")));
        }
    }
    found
}

#[test]
fn what_fuel_answered_is_what_we_answer() {
    let peer = peer();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(peer.join("fuel/cases"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    if paths.is_empty() {
        println!(
            "SKIPPED the answers of the real Nailgun and Astute: there are none here (GATELOG_PEER names their folder)"
        );
        return;
    }
    let wanted: Vec<&str> = DIFFERENCES
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let corpus = Corpus(peer.join("../corpus/fuel"));
    let (mut equal, mut unwanted) = (0, 0);
    for path in &paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let case: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let answer = oracle::answer(&case, &corpus).unwrap();
        let found = differences(&case, &answer);
        match (found.is_empty(), wanted.contains(&name.as_str())) {
            (true, false) => equal += 1,
            (true, true) => panic!("{name} is said to differ and does not: take it out of differences.txt"),
            (false, true) => println!("{name} differs, as we want it to"),
            (false, false) => {
                unwanted += 1;
                eprintln!("{name} differs\n  {}", found.iter().take(3).cloned().collect::<Vec<_>>().join("\n  "));
            }
        }
    }
    println!("{equal} of {} cases equal", paths.len());
    assert!(wanted.len() <= 10, "more than ten differences are wanted");
    assert_eq!(unwanted, 0, "{unwanted} of {} cases differ", paths.len());
}

#[test]
fn real_task_files_load_and_order() {
    let peer = peer();
    for (file, tasks) in [("tasks.yaml", 86), ("tasks-7.0.yaml", 131), ("tasks-8.0.yaml", 174), ("tasks-9.2.yaml", 204)]
    {
        let Ok(text) = std::fs::read_to_string(peer.join("../corpus/fuel").join(file)) else {
            println!("SKIPPED the real {file}: it is not here (GATELOG_PEER names the folder beside it)");
            continue;
        };
        let written = files::read(file, &text).unwrap();
        assert_eq!(written.len(), tasks, "{file}");
        let checked = check::check(&written).unwrap_or_else(|problems| {
            panic!("{file}: {}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        });
        let cluster = plan::stand_ins(&checked.graph);
        let options = Options { cluster: &cluster, selection: &Selection::default(), conditions: false };
        let plan = plan::make(&checked, options).unwrap();
        let groups = plan.groups.iter().filter(|group| !group.tasks.is_empty()).count();
        println!("{file}: {} waves, {groups} groups with tasks, {} tasks run", plan.waves.len(), plan.size());
        assert!(plan.waves.len() > 2 && plan.size() > 50, "{file}");
    }
}
