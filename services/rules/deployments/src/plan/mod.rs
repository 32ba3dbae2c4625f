//! What will run where, after what, and why the rest will not: known before anything runs.
//!
//! Here gatelog does otherwise than Fuel where Fuel's way is an accident:
//!
//! - every type of task runs inside a group, not puppet alone; the six stages of Fuel need not be there;
//! - a group runs for the roles it names, and for the role of its own name;
//! - a role without a group is told, and stops nothing;
//! - everything wrong is told at once, cycles with their path, names with the nearest that exists, conditions with the
//!   column;
//! - where tasks were left out, what waited for them waits for what they waited for.

pub mod check;
mod make;

use serde::{Deserialize, Serialize};

use crate::run::roles::{Hook, Planned, Script, Turn};

pub use make::{Options, make, stand_ins};

/// The tasks that nodes of a group run, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTasks {
    /// The group.
    pub group: String,
    /// What each of its nodes runs.
    pub tasks: Vec<Planned>,
}

/// A node's turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTurn {
    /// The node.
    pub uid: String,
    /// The role for which it runs.
    pub role: String,
    /// Which of [`Plan::groups`] says what it runs.
    pub group: usize,
    /// Whether everything ends if it fails.
    pub critical: bool,
}

/// Nodes that run beside each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wave {
    /// Its number.
    pub number: u64,
    /// The nodes.
    pub turns: Vec<NodeTurn>,
}

/// Why a task does not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Its condition does not hold.
    Condition(String),
    /// It is switched off: `type: skipped`, or `skipped: true`.
    SwitchedOff,
    /// It was not asked for.
    NotAskedFor,
    /// No node has a role that it runs on.
    NoNode,
    /// It is in no group, and neither before nor after the deployment.
    Nowhere,
}

/// A task that does not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeftOut {
    /// The task.
    pub task: String,
    /// Why.
    pub why: Why,
}

/// The whole of it. The same tasks, nodes and settings make the same plan, byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Before, one after the other.
    pub pre: Vec<Hook>,
    /// Number by number.
    pub waves: Vec<Wave>,
    /// After, one after the other.
    pub post: Vec<Hook>,
    /// What nodes of each group run.
    pub groups: Vec<GroupTasks>,
    /// What does not run.
    pub left_out: Vec<LeftOut>,
    /// What should be known: roles without a group, conditions that were not looked at.
    pub notes: Vec<String>,
}

impl Plan {
    /// What a node runs in its turn.
    pub fn tasks(&self, turn: &NodeTurn) -> &[Planned] {
        self.groups.get(turn.group).map_or(&[], |group| group.tasks.as_slice())
    }

    /// How many tasks run, each node counted.
    pub fn size(&self) -> usize {
        let hooks = self.pre.iter().chain(&self.post).map(|hook| hook.uids.len());
        let turns = self.waves.iter().flat_map(|wave| &wave.turns).map(|turn| self.tasks(turn).len());
        hooks.chain(turns).sum()
    }

    /// The plan as a machine runs it.
    pub fn script(&self) -> Script {
        let turn = |number: u64, turn: &NodeTurn| Turn {
            uid: turn.uid.clone(),
            role: turn.role.clone(),
            number,
            critical: turn.critical,
            tasks: self.tasks(turn).to_vec(),
        };
        let turns =
            self.waves.iter().flat_map(|wave| wave.turns.iter().map(move |one| turn(wave.number, one))).collect();
        Script { pre: self.pre.clone(), turns, post: self.post.clone() }
    }

    /// The plan for people: a line for each step.
    pub fn lines(&self) -> Vec<String> {
        let hook = |stage: &str, hook: &Hook| {
            format!(
                "{stage} {:>5}  {} {} on {}",
                hook.number,
                hook.planned.kind,
                hook.planned.task,
                hook.uids.join(", ")
            )
        };
        let mut lines: Vec<String> = self.pre.iter().map(|one| hook("pre   ", one)).collect();
        for wave in &self.waves {
            let mut roles: Vec<(&str, Vec<&str>)> = Vec::new();
            for turn in &wave.turns {
                match roles.iter_mut().find(|(role, _)| *role == turn.role) {
                    Some((_, uids)) => uids.push(&turn.uid),
                    None => roles.push((&turn.role, vec![&turn.uid])),
                }
            }
            let told: Vec<String> = roles.iter().map(|(role, uids)| format!("{role} on {}", uids.join(", "))).collect();
            lines.push(format!("deploy {:>5}  {}", wave.number, told.join("; ")));
        }
        lines.extend(self.post.iter().map(|one| hook("post  ", one)));
        for group in self.groups.iter().filter(|group| !group.tasks.is_empty()) {
            let tasks: Vec<&str> = group.tasks.iter().map(|planned| planned.task.as_str()).collect();
            lines.push(format!("{} runs {}", group.group, tasks.join(", ")));
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines
    }
}
