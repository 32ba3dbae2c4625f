//! Tasks before and after the deployment itself, and what of a task is told to whoever runs it.
//!
//! Some tasks are known by their id: Fuel makes several of one, or fills in what only it knows. `special` has these.

pub mod plugins;
mod special;
pub mod templates;

pub(crate) use special::is_special;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::cluster::{Cluster, MASTER, Node};
use crate::conditions::{Condition, Models, Reading};
use crate::fault::Fault;
use crate::graph::{Direction, Graph, Part};
use crate::marks::Marks;
use crate::priorities::Counter;
use crate::task::Task;
use crate::values;
use crate::version::Version;

/// The stage up to which everything is done before the deployment.
pub const DEPLOY_START: &str = "deploy_start";
/// The stage from which on everything is done after it.
pub const DEPLOY_END: &str = "deploy_end";

/// One task as it is sent to be run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sent {
    /// The task of the graph it comes from; `None` for hooks of plugins.
    pub origin: Option<String>,
    /// Its type.
    pub kind: String,
    /// Where it runs; `None` is the place where only stages are passed.
    pub uids: Vec<Option<String>>,
    /// Its id as sent: not at all, as nothing, or as a text.
    pub id: Option<Value>,
    /// Whether its failure fails what it belongs to, if that is sent.
    pub fail_on_error: Option<Value>,
    /// Who is named when it fails.
    pub diagnostic_name: Option<Value>,
    /// What it is told.
    pub parameters: Option<Map<String, Value>>,
    /// Its number.
    pub priority: u64,
}

/// Before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// All that `deploy_start` waits for.
    Pre,
    /// All that waits for `deploy_end`.
    Post,
}

/// The settings of the machine that deploys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its address.
    pub master_ip: String,
    /// How often a shell task is tried again.
    pub shell_retries: u64,
    /// Seconds between two tries.
    pub shell_interval: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { master_ip: "127.0.0.1".to_owned(), shell_retries: 3, shell_interval: 1 }
    }
}

/// Everything that making tasks needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Workshop<'a> {
    /// The environment.
    pub cluster: &'a Cluster,
    /// What conditions ask.
    pub models: &'a Models,
    /// The machine that deploys.
    pub settings: &'a Settings,
    /// Whose rules.
    pub version: Version,
}

/// Who a task runs on.
pub trait Places {
    /// The uids of roles as written; nothing is written if `None`.
    ///
    /// # Errors
    /// [`Fault`] for roles that cannot be names or patterns.
    fn of(&self, roles: Option<&Value>) -> Result<Vec<Option<String>>, Fault>;
}

/// By role, among some nodes: a list of role names, `*` for all, `master`. Anything else is nobody.
pub struct ByRole<'n>(pub Vec<&'n Node>);

impl Places for ByRole<'_> {
    fn of(&self, roles: Option<&Value>) -> Result<Vec<Option<String>>, Fault> {
        match roles {
            Some(Value::String(word)) if word == "*" => Ok(self.0.iter().map(|node| Some(node.uid.clone())).collect()),
            Some(Value::String(word)) if word == MASTER => Ok(vec![Some(MASTER.to_owned())]),
            Some(list @ Value::Array(_)) => {
                let wanted: BTreeSet<String> = values::names(list)?.into_iter().collect();
                let fits = |node: &&&Node| node.all_roles().iter().any(|role| wanted.contains(role));
                Ok(self.0.iter().filter(fits).map(|node| Some(node.uid.clone())).collect())
            }
            _ => Ok(Vec::new()),
        }
    }
}

impl Workshop<'_> {
    /// The tasks before or after the deployment, in order and numbered, with those of plugins.
    ///
    /// What belongs to a stage is decided by edges alone: `groups`, `stage` and `role` do not matter.
    ///
    /// # Errors
    /// [`Fault`]: a stage that is missing, a cycle, a condition, a task that cannot be told.
    pub fn stage(&self, graph: &Graph, marks: &Marks, stage: Stage) -> Result<Vec<Sent>, Fault> {
        let part = stage_part(graph, stage)?;
        let nodes = ByRole(self.cluster.deployed());
        let mut made = Vec::new();
        for index in part.order()? {
            let task = graph.task(index);
            values::name(task.need("id")?)?;
            if marks.leaves_out(graph, index)? || !self.wants(task, &nodes)? {
                continue;
            }
            made.extend(self.make(task, &nodes)?);
        }
        let (mut sent, end) = match stage {
            Stage::Pre => (self.plugin_repositories(&nodes)?, self.plugin_tasks("pre_deployment", &nodes)?),
            Stage::Post => (Vec::new(), self.plugin_tasks("post_deployment", &nodes)?),
        };
        // Fuel 7.0: everything of plugins comes last; 8.0: their packages and scripts come first.
        if self.version >= Version::Eight {
            sent.extend(made);
        } else {
            sent.splice(0..0, made);
        }
        sent.extend(end);
        let mut counter = Counter::default();
        for one in &mut sent {
            one.priority = counter.advance();
        }
        Ok(sent)
    }

    /// The tasks of a group on one node, in the order given, numbered.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] for all but puppet, [`Fault::Missing`] for puppet's parameters, and what conditions say.
    pub fn deploy(&self, graph: &Graph, members: &[usize], uid: &str) -> Result<Vec<Sent>, Fault> {
        let mut sent = Vec::new();
        let mut counter = Counter::default();
        for index in members {
            let task = graph.task(*index);
            let id = values::name(task.need("id")?)?;
            let with_machines = id == "generate_vms";
            let kind = task.need("type")?;
            if !with_machines && kind.as_str() != Some("puppet") {
                let kind = kind.as_str().unwrap_or("?");
                let said =
                    format!("Serialization of type {kind} not supported. Task {}", values::python(&as_value(task)));
                return Err(Fault::Unsupported(said));
            }
            let uids = if with_machines { self.with_machines() } else { vec![Some(uid.to_owned())] };
            if if with_machines { uids.is_empty() } else { !self.condition(task)? } {
                continue;
            }
            let mut one = self.puppet(uids, task)?;
            one.origin = Some(id);
            one.priority = counter.advance();
            sent.push(one);
        }
        Ok(sent)
    }

    /// Whether the condition of a task holds.
    ///
    /// # Errors
    /// [`Fault`]: what the condition says.
    pub fn condition(&self, task: &Task) -> Result<bool, Fault> {
        match task.get("condition") {
            None => Ok(true),
            Some(Value::String(text)) => Condition::read(text, Reading::Fuel)?.holds(self.models),
            Some(other) => Err(Fault::Kind(format!("a condition is a text, not {}", values::python(other)))),
        }
    }

    /// The nodes that carry virtual machines.
    fn with_machines(&self) -> Vec<Option<String>> {
        self.cluster.nodes.iter().filter(|node| !node.vms.is_empty()).map(|node| Some(node.uid.clone())).collect()
    }
}

/// The nodes of a graph that belong before or after.
///
/// # Errors
/// [`Fault::NoStage`].
pub fn stage_part(graph: &Graph, stage: Stage) -> Result<Part<'_>, Fault> {
    let (anchor, direction) = match stage {
        Stage::Pre => (DEPLOY_START, Direction::Backward),
        Stage::Post => (DEPLOY_END, Direction::Forward),
    };
    let anchor = graph.find(anchor).ok_or(Fault::NoStage(anchor))?;
    Ok(graph.part(graph.whole().reach(anchor, direction)))
}

fn as_value(task: &Task) -> Value {
    Value::Object(task.fields().clone())
}
