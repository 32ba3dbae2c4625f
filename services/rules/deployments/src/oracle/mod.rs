//! What Fuel would answer, for comparing: questions to its graph code (7.0, 8.0, 9.2), and runs of its two executors
//! (the one of roles with numbers, of 7.0, and the one of tasks on nodes, of 9.2) with nodes that are made up.
//!
//! A case is a JSON document: `input`, and `expected` with an answer for each version that was asked. [`answer`] makes
//! the object `expected`. Here accidents of Fuel are kept: errors where it fails, a run that never ends where it hangs.

mod engine;
mod hash_order;
mod hooks;
mod ops;
mod roles;

use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Node};
use crate::fault::Fault;
use crate::task::Task;
use crate::version::Version;

/// What an answer needs of the world.
pub trait World {
    /// The text of a file of tasks that a case names.
    ///
    /// # Errors
    /// Why there is none.
    fn tasks_file(&self, name: &str) -> Result<String, String>;

    /// Whether there is a readable file at a path of the machine that deploys.
    fn is_file(&self, path: &str) -> bool;
}

/// The versions that are followed; of a case that has none of them, all it has are answered.
const FOLLOWED: &[&str] = &["7.0", "astute-7.0", "astute-9.2"];

/// Answers a case.
///
/// # Errors
/// A case that is none: no `input`, a file that cannot be read.
pub fn answer(case: &Value, world: &dyn World) -> Result<Value, String> {
    let input = case.get("input").ok_or("the case has no input")?;
    let mut answers = Map::new();
    for version in versions(case, input) {
        let answer = match version.as_str() {
            "astute-9.2" => engine::play(input),
            "astute-6.1" | "astute-7.0" => roles::play(input, world),
            graph => answers_of(input, graph, world)?,
        };
        answers.insert(version, answer);
    }
    Ok(Value::Object(answers))
}

fn versions(case: &Value, input: &Value) -> Vec<String> {
    let Some(expected) = case.get("expected").and_then(Value::as_object) else {
        let known: &[&str] = match () {
            () if input.get("ops").is_some() => &["7.0", "8.0", "9.2"],
            () if input.get("info").is_some() => &["astute-7.0"],
            () => &["astute-9.2"],
        };
        return known.iter().map(|version| (*version).to_owned()).collect();
    };
    let followed: Vec<String> =
        expected.keys().filter(|version| FOLLOWED.contains(&version.as_str())).cloned().collect();
    if followed.is_empty() { expected.keys().cloned().collect() } else { followed }
}

fn answers_of(input: &Value, version: &str, world: &dyn World) -> Result<Value, String> {
    let tasks = match input.get("tasks_file").and_then(Value::as_str) {
        Some(file) => {
            let written = crate::files::read(file, &world.tasks_file(file)?)
                .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
            written.into_iter().map(|one| Value::Object(one.task.fields().clone())).collect()
        }
        None => input.get("tasks").and_then(Value::as_array).cloned().unwrap_or_default(),
    };
    let version = match version {
        "8.0" => Version::Eight,
        "9.2" => Version::Nine,
        _ => Version::Seven,
    };
    let cluster = cluster(input).map_err(|error| format!("the case's cluster: {error}"))?;
    let asking = ops::Asking { tasks, cluster, version };
    let ops = input.get("ops").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    Ok(Value::Array(ops.iter().map(|op| asking.answer(op).unwrap_or_else(|fault| told(&fault))).collect()))
}

fn cluster(input: &Value) -> Result<Cluster, serde_json::Error> {
    let mut cluster: Cluster = match input.get("cluster") {
        Some(said) => serde_json::from_value(said.clone())?,
        None => Cluster::default(),
    };
    if let Some(nodes) = input.get("nodes") {
        cluster.nodes = serde_json::from_value(nodes.clone())?;
    }
    for node in cluster.nodes.iter_mut().filter(|node: &&mut Node| node.status.is_empty()) {
        "provisioned".clone_into(&mut node.status);
    }
    cluster.deploy = input.get("deploy").map(|said| serde_json::from_value(said.clone())).transpose()?;
    Ok(cluster)
}

/// A fault as the class of error that Fuel raises, and its first line.
fn told(fault: &Fault) -> Value {
    let class = match fault {
        Fault::Invalid(_) => "InvalidData",
        Fault::Missing(_) | Fault::Unknown(_) => "KeyError",
        Fault::Kind(_) | Fault::Undefined(_) | Fault::Yaql(_) => "TypeError",
        Fault::Amount => "ZeroDivisionError",
        Fault::Cycle(_) => "NetworkXUnfeasible",
        Fault::NoStage(_) => "AttributeError",
        Fault::Unsupported(_) => "SerializerNotSupported",
        Fault::Syntax { .. } => "ParseError",
        Fault::Pattern(..) => "error",
        Fault::TooOld(_) => "TaskBaseDeploymentNotAllowed",
        Fault::EmptyNode => "RuntimeError",
    };
    let message = match fault {
        Fault::Missing(name) => name.clone(),
        other => other.to_string(),
    };
    json!({"error": class, "message": message.lines().next().unwrap_or("")})
}

/// Tasks as Fuel takes them when nothing has looked at them before.
fn unchecked(tasks: &[Value]) -> Result<Vec<Task>, Fault> {
    let as_task = |value: &Value| {
        let fields = value.as_object().ok_or_else(|| Fault::Kind("a task is a map".to_owned()))?;
        Ok(Task::from(fields.clone()))
    };
    tasks.iter().map(as_task).collect()
}
