//! Lists of tasks as they stand in files.

use gatelog_record::Value as Plain;
use gatelog_rules_config::yaml::{self, Node, NodeKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::cluster::Cluster;
use crate::task::Task;

/// Where something stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The file.
    pub file: String,
    /// Line, from 1; 0 for the file as a whole.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}:{}", self.file, self.line, self.column) }
    }
}

/// Something wrong with what was written, where, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem at a place.
    pub fn new(place: &Place, message: impl Into<String>) -> Problem {
        Problem { place: place.clone(), message: message.into(), hint: None }
    }

    /// With what to do.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Problem {
        Problem { hint: Some(hint.into()), ..self }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.place.file.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

/// A task and where it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    /// The task.
    pub task: Task,
    /// Where.
    pub place: Place,
}

/// Whether a file of this name holds tasks: `*tasks.yaml`.
pub fn is_tasks_file(name: &str) -> bool {
    name.ends_with("tasks.yaml") || name.ends_with("tasks.yml")
}

/// Reads a list of tasks. Of a key given twice the last counts, as in Fuel.
///
/// # Errors
/// What is wrong: no YAML, no list, items that are no maps.
pub fn read(file: &str, text: &str) -> Result<Vec<Written>, Vec<Problem>> {
    let place = |line, column| Place { file: file.to_owned(), line, column };
    let root = match yaml::parse_lenient(text) {
        Ok((root, _)) => root,
        Err(errors) => {
            let told = |error: &yaml::YamlError| {
                let at = error.mark();
                Problem::new(&place(at.line, at.column), error.to_string())
            };
            return Err(errors.iter().map(told).collect());
        }
    };
    let Some(root) = root else { return Ok(Vec::new()) };
    let Some(items) = root.as_sequence() else {
        if root.is_null() {
            return Ok(Vec::new());
        }
        let at = place(root.start.line, root.start.column);
        return Err(vec![Problem::new(&at, format!("a list of tasks is wanted, not {}", root.kind_name()))]);
    };
    let (mut written, mut problems) = (Vec::with_capacity(items.len()), Vec::new());
    for item in items {
        let place = place(item.start.line, item.start.column);
        match value(item) {
            Value::Object(fields) => written.push(Written { task: fields.into(), place }),
            _ => problems.push(Problem::new(&place, format!("a task is a map, not {}", item.kind_name()))),
        }
    }
    if problems.is_empty() { Ok(written) } else { Err(problems) }
}

/// Reads a cluster: its nodes, which of them are deployed, and what conditions may ask for.
///
/// # Errors
/// What is wrong, in a sentence.
pub fn read_cluster(text: &str) -> Result<Cluster, String> {
    let (root, _) = yaml::parse_lenient(text)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let value = root.as_ref().map(value).ok_or("there is nothing in it")?;
    let mut cluster: Cluster = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    if let Some(nodes) = value.get("nodes") {
        cluster.nodes = serde_json::from_value(nodes.clone()).map_err(|error| format!("nodes: {error}"))?;
    }
    cluster.deploy = value
        .get("deploy")
        .map(|deploy| serde_json::from_value(deploy.clone()).map_err(|error| format!("deploy: {error}")))
        .transpose()?;
    for node in cluster.nodes.iter_mut().filter(|node| node.status.is_empty()) {
        "provisioned".clone_into(&mut node.status);
    }
    Ok(cluster)
}

/// A YAML node as free-form data, in the order written.
pub fn value(node: &Node) -> Value {
    match &node.kind {
        NodeKind::Sequence(items) => Value::Array(items.iter().map(value).collect()),
        NodeKind::Mapping(entries) => {
            let mut map = Map::new();
            for entry in entries {
                map.insert(entry.key.clone(), value(&entry.value));
            }
            Value::Object(map)
        }
        NodeKind::Scalar { value, .. } => scalar(value),
    }
}

fn scalar(plain: &Plain) -> Value {
    match plain {
        Plain::Bool(it) => Value::Bool(*it),
        Plain::Int(number) => Value::from(*number),
        Plain::Number(text) => text.parse::<Number>().map_or_else(|_| Value::String(text.clone()), Value::Number),
        Plain::Str(text) => Value::String(text.clone()),
        _ => Value::Null,
    }
}
