//! Tasks on nodes: instead of roles with numbers, every task on every node it runs on, and what waits for what across
//! nodes.
//!
//! [`eight`] reads a list of tasks as Fuel 8.0 does, [`nine`] as 9.2 does. What comes of either is one [`OnNodes`].

pub mod eight;
pub mod nine;
pub mod resolver;
pub mod tolerance;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::fault::Fault;
use crate::task::Task;

/// A node; `None` is the place where stages are passed.
pub type Uid = Option<String>;

/// A task on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placed {
    /// Its id.
    pub id: String,
    /// The task it was made of.
    pub origin: String,
    /// Its type; `skipped` for whatever keeps its place and does nothing.
    pub kind: String,
    /// Whether its failure is one, if that was said.
    pub fail_on_error: Option<Value>,
    /// What it waits for: names and nodes.
    pub requires: Vec<(String, Uid)>,
    /// What waits for it.
    pub required_for: Vec<(String, Uid)>,
}

/// A group of nodes of which some may fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// The group's name.
    pub name: String,
    /// Its nodes, in order.
    pub uids: Vec<String>,
    /// How many of them may fail.
    pub allowed: i64,
}

/// All tasks on all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OnNodes {
    /// The nodes in the order in which tasks came to them, and the tasks of each.
    pub nodes: Vec<(Uid, Vec<Placed>)>,
    /// How many failures are borne.
    pub tolerance: Vec<Tolerance>,
    places: BTreeMap<Uid, usize>,
}

impl OnNodes {
    /// The tasks of a node.
    pub fn of(&self, uid: &Uid) -> Option<&[Placed]> {
        self.places.get(uid).and_then(|at| self.nodes.get(*at)).map(|(_, tasks)| tasks.as_slice())
    }

    fn of_mut(&mut self, uid: &Uid) -> &mut Vec<Placed> {
        let at = match self.places.get(uid) {
            Some(at) => *at,
            None => {
                self.places.insert(uid.clone(), self.nodes.len());
                self.nodes.push((uid.clone(), Vec::new()));
                self.nodes.len() - 1
            }
        };
        &mut self.nodes[at].1
    }
}

/// Whether a task takes the place of another of the same id on the same node: what runs replaces what is skipped.
fn replaces(new: &str, old: &str) -> bool {
    old != new && new != "skipped"
}

/// `2.0.0` and its like, as three numbers.
///
/// # Errors
/// [`Fault::Kind`].
fn version_of(task: &Task, default: [u64; 3]) -> Result<[u64; 3], Fault> {
    let Some(value) = task.get("version") else { return Ok(default) };
    let wrong = || Fault::Kind(format!("invalid version number {}", crate::values::python(value)));
    let text = value.as_str().ok_or_else(wrong)?;
    let mut parts = text.split('.').map(|part| part.parse::<u64>().map_err(|_| wrong()));
    let mut next = || parts.next().unwrap_or(Ok(0));
    let version = [next()?, next()?, next()?];
    if text.matches('.').count().wrapping_sub(1) > 1 { Err(wrong()) } else { Ok(version) }
}

/// From which version on a task fits a graph of tasks on nodes.
const FIT: [u64; 3] = [2, 0, 0];

/// Whether a task is of a version, or of none, that fits no graph of tasks on nodes.
pub(crate) fn is_old(task: &Task) -> bool {
    version_of(task, [1, 0, 0]).map_or(true, |version| version < FIT)
}
