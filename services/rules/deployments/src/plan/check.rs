//! Whether tasks as written make a graph, everything wrong told at once.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::conditions::{Condition, Reading};
use crate::fault::Fault;
use crate::files::{Place, Problem, Written};
use crate::graph::Graph;
use crate::priorities::Strategy;
use crate::schema;
use crate::task::Task;
use crate::values::python;
use crate::version::Version;

/// Tasks that were looked at, and their graph.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The graph.
    pub graph: Graph,
    /// Tasks that say by `stage` where they belong, and no stage of that name exists: the stage, the number behind it.
    pub staged: BTreeMap<String, (String, String)>,
    /// What should be known, and is no error.
    pub notes: Vec<String>,
}

/// Types that Fuel knows since 9.x, or only its executor does.
const LATER: &[&str] = &["role", "master_shell", "move_to_bootstrap", "erase_node", "upload_files", "cobbler_sync"];

/// What a type needs of its parameters.
fn needs(kind: &str) -> &'static [&'static str] {
    match kind {
        "puppet" => &["puppet_manifest", "puppet_modules"],
        "shell" => &["cmd"],
        "upload_file" => &["path"],
        "copy_files" => &["files"],
        "sync" => &["src", "dst"],
        _ => &[],
    }
}

/// Looks at tasks.
///
/// # Errors
/// Everything that is wrong.
pub fn check(written: &[Written]) -> Result<Checked, Vec<Problem>> {
    let mut checks = Checks::default();
    let tasks: Vec<Task> = written.iter().map(|one| checks.normalized(one)).collect();
    for (task, one) in tasks.iter().zip(written) {
        checks.shape(task, &one.place);
    }
    if !checks.problems.is_empty() {
        return Err(checks.problems);
    }
    let known: Vec<&str> = tasks.iter().filter_map(Task::id).collect();
    let (tasks, staged) = without_stages(&tasks, &known);
    let graph = match Graph::new(&tasks, Version::Eight) {
        Ok(graph) => graph,
        Err(fault) => return Err(vec![Problem::new(&Place::default(), fault.to_string())]),
    };
    checks.cycles(&graph, written);
    checks.strangers(&graph, written);
    if checks.problems.is_empty() {
        Ok(Checked { graph, staged, notes: checks.notes })
    } else {
        checks.problems.sort();
        Err(checks.problems)
    }
}

/// Tasks without their `stage` where no task has that name, and what it said.
fn without_stages(tasks: &[Task], known: &[&str]) -> (Vec<Task>, BTreeMap<String, (String, String)>) {
    let mut staged = BTreeMap::new();
    let plain = tasks.iter().map(|task| {
        let Some(stage) = task.get("stage").and_then(Value::as_str).filter(|stage| !known.contains(stage)) else {
            return task.clone();
        };
        let (stage, number) = stage.split_once('/').unwrap_or((stage, "0"));
        staged.insert(task.id().unwrap_or("").to_owned(), (stage.to_owned(), number.to_owned()));
        let mut fields = task.fields().clone();
        fields.remove("stage");
        fields.into()
    });
    (plain.collect(), staged)
}

#[derive(Default)]
struct Checks {
    problems: Vec<Problem>,
    notes: Vec<String>,
}

impl Checks {
    fn say(&mut self, place: &Place, message: impl Into<String>) {
        self.problems.push(Problem::new(place, message));
    }

    /// Older spellings as they are written now: `type: rsync`, `puppet_manifests`.
    fn normalized(&mut self, written: &Written) -> Task {
        let mut fields: Map<String, Value> = written.task.fields().clone();
        if fields.get("type").and_then(Value::as_str) == Some("rsync") {
            fields.insert("type".to_owned(), json!("sync"));
        }
        if let Some(parameters) = fields.get_mut("parameters").and_then(Value::as_object_mut)
            && !parameters.contains_key("puppet_manifest")
            && let Some(manifest) = parameters.shift_remove("puppet_manifests")
        {
            parameters.insert("puppet_manifest".to_owned(), manifest);
        }
        fields.into()
    }

    fn shape(&mut self, task: &Task, place: &Place) {
        let name = task.id().unwrap_or("a task without id");
        let kind = task.kind().unwrap_or("");
        let mut known = task.fields().clone();
        if LATER.contains(&kind) {
            known.insert("type".to_owned(), json!("puppet"));
        }
        // 9.2 alone takes expressions where lists are wanted; what is no list of names is told below.
        if let Err(wrong) = schema::tasks(Value::Array(vec![Value::Object(known)]), Version::Nine) {
            for one in wrong {
                let field = one.path.split_once('.').map(|(_, field)| format!("{field}: ")).unwrap_or_default();
                self.say(place, format!("{name}: {field}{}", one.message));
            }
            return;
        }
        if task.id().is_none_or(str::is_empty) {
            self.say(place, "a task has an empty id");
        }
        for field in ["groups", "tasks", "requires", "required_for"] {
            if task.get(field).is_some_and(|value| !is_list_of_names(value)) {
                let problem = Problem::new(place, format!("{name}: {field} must be a list of names"));
                self.problems.push(problem.hint(format!("write {field}: [name]")));
            }
        }
        if task.is_group() {
            self.strategy(task, place);
        } else if LATER.contains(&kind) && crate::relations::is_old(task) {
            let problem = Problem::new(place, format!("{name}: the type {kind} is known since 9.x only"));
            self.problems.push(problem.hint("say version: 2.0.0 or later"));
        }
        self.parameters(task, place, kind);
        self.condition(task, place);
    }

    fn parameters(&mut self, task: &Task, place: &Place, kind: &str) {
        let name = task.id().unwrap_or("");
        if crate::hooks::is_special(name) {
            return;
        }
        for wanted in needs(kind) {
            if task.parameter(wanted).is_none() {
                self.say(place, format!("{name}: a task of type {kind} needs parameters.{wanted}"));
            }
        }
    }

    fn strategy(&mut self, task: &Task, place: &Place) {
        let name = task.id().unwrap_or("");
        if task.parameter("strategy").is_none() {
            return;
        }
        if task.parameter("strategy").and_then(|strategy| strategy.get("amount")).is_some_and(Value::is_object) {
            self.notes.push(format!("{name}: how many nodes run at once is an expression; all of them do"));
            return;
        }
        match Strategy::of(task) {
            Ok(_) => {
                let amount = task.parameter("strategy").and_then(|strategy| strategy.get("amount"));
                if amount.and_then(Value::as_i64).is_some_and(|amount| amount < 1) {
                    self.say(place, format!("{name}: amount must be 1 or more"));
                }
            }
            Err(fault) => self.say(place, format!("{name}: {fault}")),
        }
    }

    fn condition(&mut self, task: &Task, place: &Place) {
        let name = task.id().unwrap_or("");
        match task.get("condition") {
            None | Some(Value::Bool(_)) => {}
            Some(Value::String(text)) => match Condition::read(text, Reading::Strict) {
                Ok(_) => {}
                Err(Fault::Syntax { said, column }) => {
                    let at = if said.is_empty() { "its end".to_owned() } else { format!("'{said}'") };
                    self.say(place, format!("{name}: condition, column {column}: {at} is not expected here"));
                }
                Err(fault) => self.say(place, format!("{name}: condition: {fault}")),
            },
            Some(value) if value.get("yaql_exp").is_some() => {
                self.notes.push(format!("{name}: its condition is written in YAQL and taken to hold"));
            }
            Some(value) => self.say(place, format!("{name}: a condition is a text, not {}", python(value))),
        }
    }

    fn cycles(&mut self, graph: &Graph, written: &[Written]) {
        for cycle in graph.cycles() {
            let place = cycle.first().map(|name| place_of(written, name)).unwrap_or_default();
            self.say(&place, format!("these wait for each other: {}", cycle.join(" → ")));
        }
    }

    fn strangers(&mut self, graph: &Graph, written: &[Written]) {
        for (index, name, task) in graph.nodes() {
            if task.id().is_some() {
                continue;
            }
            let beside: Vec<&str> =
                graph.before(index).iter().chain(graph.after(index)).map(|i| graph.name(*i)).collect();
            let place = beside.first().map(|name| place_of(written, name)).unwrap_or_default();
            let problem =
                Problem::new(&place, format!("{}: there is no task, group or stage {name}", beside.join(", ")));
            self.problems.push(match graph.nearest(name) {
                Some(near) => problem.hint(format!("is {near} meant?")),
                None => problem,
            });
        }
    }
}

fn place_of(written: &[Written], name: &str) -> Place {
    written.iter().find(|one| one.task.id() == Some(name)).map(|one| one.place.clone()).unwrap_or_default()
}

fn is_list_of_names(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}
