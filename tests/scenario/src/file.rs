//! Scenario files.

use std::collections::BTreeMap;

use gatelog_record::Value;
use gatelog_rules_config::yaml::Node;
use gatelog_rules_config::yaml::parse::parse_lenient;

/// Every branch begins with these.
const BASE_FILES: [(&str, &str); 2] = [("README", "readme\n"), ("playbooks/run.yaml", "- hosts: all\n  tasks: []\n")];

/// Files by their path.
pub type Files = BTreeMap<String, String>;

/// A repository as it is at the beginning.
#[derive(Clone, Debug)]
pub struct Repository {
    /// Its name.
    pub name: String,
    /// Whether it is a config project.
    pub config: bool,
    /// Files of each branch; `master` is always there.
    pub branches: BTreeMap<String, Files>,
    /// Its options in the tenant file.
    pub tenant: Value,
}

/// One step: its name and what it says.
#[derive(Clone, Debug)]
pub struct Step {
    /// `push`, `approve`, …
    pub name: String,
    /// What stands behind it.
    pub value: Value,
    /// The steps of a `batch`.
    pub steps: Vec<Step>,
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Options of the tenant.
    pub tenant: BTreeMap<String, Value>,
    /// Repositories in the order of the file.
    pub repositories: Vec<Repository>,
    /// The steps.
    pub steps: Vec<Step>,
    /// Numbers of changes by name, in the order of the pushes.
    pub numbers: BTreeMap<String, u32>,
}

fn known(name: &str) -> bool {
    const STEPS: [&str; 24] = [
        "push",
        "patchset",
        "approve",
        "unapprove",
        "vote",
        "comment",
        "abandon",
        "restore",
        "merge",
        "job",
        "release",
        "finish",
        "snapshot",
        "reconfigure",
        "enqueue",
        "dequeue",
        "promote",
        "branch",
        "delete_branch",
        "tag",
        "batch",
        "settle",
        "tick",
        "timer",
    ];
    STEPS.contains(&name)
}

/// A file's content: text as it stands, anything else written down (what YAML reads is what was meant).
pub fn content(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Str(text) => Some(text.clone()),
        other => Some(format!("{:#}\n", other.to_json())),
    }
}

fn files(node: Option<&Node>) -> Files {
    let mut files: Files = BASE_FILES.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    for entry in node.and_then(Node::as_mapping).unwrap_or_default() {
        match content(&entry.value.to_value()) {
            Some(text) => files.insert(entry.key.clone(), text),
            None => files.remove(&entry.key),
        };
    }
    files
}

fn repository(name: &str, node: &Node) -> Repository {
    let value = |key: &str| node.get(key).map(|entry| &entry.value);
    let mut branches = BTreeMap::from([("master".to_owned(), files(value("files")))]);
    for entry in value("branches").and_then(Node::as_mapping).unwrap_or_default() {
        branches.insert(entry.key.clone(), files(Some(&entry.value)));
    }
    Repository {
        name: name.to_owned(),
        config: value("config").is_some_and(|node| node.to_value() == Value::Bool(true)),
        branches,
        tenant: value("tenant").map(Node::to_value).unwrap_or_default(),
    }
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(name: &str, text: &str) -> Result<Scenario, String> {
        let (root, _) = parse_lenient(text).map_err(|errors| {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            format!("{name}: {}", texts.join("; "))
        })?;
        let root = root.ok_or_else(|| format!("{name}: the file is empty"))?;
        let part = |key: &str| root.get(key).map(|entry| &entry.value);
        let mut scenario = Scenario {
            name: part("name").and_then(Node::as_str).unwrap_or(name).to_owned(),
            tenant: part("tenant").map(Node::to_value).and_then(|one| one.as_map().cloned()).unwrap_or_default(),
            repositories: Vec::new(),
            steps: Vec::new(),
            numbers: BTreeMap::new(),
        };
        for entry in part("repos").and_then(Node::as_mapping).ok_or_else(|| format!("{name}: it has no repos"))? {
            scenario.repositories.push(repository(&entry.key, &entry.value));
        }
        let steps = part("steps").and_then(Node::as_sequence).ok_or_else(|| format!("{name}: it has no steps"))?;
        for node in steps {
            let step = scenario.step(node).map_err(|problem| format!("{name}: {problem}"))?;
            scenario.steps.push(step);
        }
        Ok(scenario)
    }

    fn step(&mut self, node: &Node) -> Result<Step, String> {
        let (key, value) = match (node.as_str(), node.as_mapping()) {
            (Some(word), _) => (word.to_owned(), None),
            (None, Some([entry])) => (entry.key.clone(), Some(&entry.value)),
            _ => return Err(format!("a step at line {} is neither a word nor one key", node.start.line)),
        };
        if !known(&key) {
            return Err(format!("nobody knows the step {key:?} at line {}", node.start.line));
        }
        let mut step = Step { name: key, value: value.map(Node::to_value).unwrap_or_default(), steps: Vec::new() };
        if step.name == "batch" {
            for inner in value.and_then(Node::as_sequence).unwrap_or_default() {
                let inner = self.step(inner)?;
                step.steps.push(inner);
            }
        }
        if step.name == "push" {
            let name = step.text("name").ok_or_else(|| format!("the push at line {} has no name", node.start.line))?;
            let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX).saturating_add(1);
            if self.numbers.insert(name.clone(), number).is_some() {
                return Err(format!("{name} is pushed twice"));
            }
        }
        Ok(step)
    }

    /// The name of a change by its number.
    pub fn change_name(&self, number: u32) -> String {
        let found = self.numbers.iter().find(|(_, other)| **other == number);
        found.map_or_else(|| format!("#{number}"), |(name, _)| name.clone())
    }

    /// The tenant file. JSON is YAML.
    pub fn tenant_file(&self) -> String {
        let entry = |repository: &Repository| match &repository.tenant {
            Value::Map(options) if !options.is_empty() => {
                Value::Map(BTreeMap::from([(repository.name.clone(), repository.tenant.clone())]))
            }
            _ => Value::Str(repository.name.clone()),
        };
        let of = |config: bool| {
            Value::List(self.repositories.iter().filter(|one| one.config == config).map(entry).collect())
        };
        let source =
            BTreeMap::from([("config-projects".to_owned(), of(true)), ("untrusted-projects".to_owned(), of(false))]);
        let mut tenant = self.tenant.clone();
        tenant.insert("name".into(), "tenant-one".into());
        tenant.insert("source".into(), Value::Map(BTreeMap::from([("gerrit".to_owned(), Value::Map(source))])));
        let file = Value::List(vec![Value::Map(BTreeMap::from([("tenant".to_owned(), Value::Map(tenant))]))]);
        file.to_json().to_string()
    }
}

impl Step {
    /// The text under a key; or the whole value, for a key that is empty.
    pub fn text(&self, key: &str) -> Option<String> {
        text(if key.is_empty() { &self.value } else { self.get(key)? })
    }

    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.value.as_map()?.get(key)
    }

    /// The change a step is about: the value itself, or what stands under `change`.
    pub fn change(&self) -> Option<String> {
        self.text("").or_else(|| self.text("change"))
    }
}

/// A scalar as text.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::Str(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The texts of a list.
pub fn texts(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_list).unwrap_or_default().iter().filter_map(text).collect()
}
