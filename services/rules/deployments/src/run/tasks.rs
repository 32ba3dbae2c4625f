//! Tasks on nodes, run.
//!
//! A node runs one task at a time. A failed task ends its node: what it would still have run will not run, and what waits
//! for that, wherever, will not either. Each failed node counts against the groups it belongs to; when a group has more
//! of them than it bears, nothing new starts. Nodes in no group bear no failure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::board::{Board, NodeIndex, NodeState, State, TaskIndex};
use super::{Next, NotRunning, Outcome, Patience, Verdict};
use crate::fault::Fault;
use crate::relations::{OnNodes, Uid};

/// What is known of a task beyond the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    /// How often, and how long.
    pub patience: Patience,
    /// Whether its failure is one.
    pub fail_on_error: bool,
    /// How many of it may run at once; 0 for any number.
    pub at_once: usize,
}

impl Default for Manner {
    fn default() -> Manner {
        Manner { patience: Patience::ONCE, fail_on_error: true, at_once: 0 }
    }
}

/// A task that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Which.
    pub task: TaskIndex,
    /// Its name.
    pub name: String,
    /// Where.
    pub uid: Uid,
    /// The number of the try, from 1.
    pub attempt: u32,
    /// Seconds it may take.
    pub timeout: Option<u64>,
}

/// Why a task is not over, or did not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// It runs or is over.
    Nothing,
    /// It waits for these: task and node.
    Waits(Vec<(String, Uid)>),
    /// Its node runs another, too many nodes are busy, or too many of its name run.
    Turn,
    /// What it waited for failed: these.
    Failed(Vec<(String, Uid)>),
    /// Its node failed or was let go.
    Node,
    /// It keeps its place only.
    Skipped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Group {
    name: String,
    nodes: BTreeSet<NodeIndex>,
    left: i64,
}

/// A deployment of tasks on nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRun {
    board: Board,
    manners: Vec<Manner>,
    /// Tasks that only keep their place.
    idle: BTreeSet<TaskIndex>,
    attempts: Vec<u32>,
    groups: Vec<Group>,
    counted: BTreeSet<NodeIndex>,
    /// Nodes that may have something to start.
    awake: BTreeSet<NodeIndex>,
    broken: Option<String>,
    stopped: bool,
}

/// The name that failures of nodes in no group are told under.
const NO_GROUP: &str = "nodes in no group";

impl TaskRun {
    /// A deployment that has not begun. `manner` tells of each task by its origin; `nodes_at_once` is 0 for any number.
    ///
    /// # Errors
    /// [`Fault::Cycle`] with the whole path.
    pub fn new(plan: &OnNodes, manner: impl Fn(&str) -> Manner, nodes_at_once: usize) -> Result<TaskRun, Fault> {
        let mut board = Board::default();
        let mut places = std::collections::BTreeMap::new();
        let (mut manners, mut idle) = (Vec::new(), BTreeSet::new());
        for (uid, tasks) in &plan.nodes {
            let node = board.add_node(uid.as_deref().unwrap_or(""), uid.is_none());
            for task in tasks {
                let index = board.add_task(node, &task.id);
                let manner = manner(&task.origin);
                board.limit_tasks(&task.id, manner.at_once);
                manners.push(manner);
                places.insert((task.id.as_str(), uid), index);
                if matches!(task.kind.as_str(), "skipped" | "stage" | "noop") {
                    idle.insert(index);
                }
            }
        }
        let mut own = 0;
        for (_, tasks) in &plan.nodes {
            for task in tasks {
                let of = |(name, uid): &(String, Uid)| places.get(&(name.as_str(), uid)).copied();
                for before in task.requires.iter().filter_map(of) {
                    board.add_edge(before, own);
                }
                for after in task.required_for.iter().filter_map(of) {
                    board.add_edge(own, after);
                }
                own += 1;
            }
        }
        board.limit_nodes(nodes_at_once);
        board.open().map_err(|path| {
            let name = |task: &TaskIndex| {
                let item = &board.items()[*task];
                format!("{}/{}", item.name, board.seats()[item.node].name)
            };
            Fault::Cycle(path.iter().map(name).collect::<Vec<_>>().join(", "))
        })?;
        let groups = groups(plan, &board);
        let awake = (0..board.seats().len()).collect();
        let attempts = vec![0; manners.len()];
        let (counted, broken) = (BTreeSet::new(), None);
        Ok(TaskRun { board, manners, idle, attempts, groups, counted, awake, broken, stopped: false })
    }

    /// What was over is over again: those that ended well are passed, all else is to be run. For running again only what
    /// failed, or going on after a stop.
    pub fn resume(&mut self, done: &[(String, Uid)]) {
        let known: BTreeSet<(&str, Option<&str>)> =
            done.iter().map(|(name, uid)| (name.as_str(), uid.as_deref())).collect();
        for task in 0..self.board.items().len() {
            let item = &self.board.items()[task];
            let seat = &self.board.seats()[item.node];
            let uid = (!seat.sync).then_some(seat.name.as_str());
            if known.contains(&(item.name.as_str(), uid)) {
                self.board.set(task, State::Successful);
            }
        }
    }

    /// Starts whatever may start. Tasks that only keep their place are passed on the way, and not told.
    pub fn start(&mut self) -> Vec<Started> {
        let mut started = Vec::new();
        while let Some(node) = self.next_awake() {
            let Some(task) = self.board.best(node) else { continue };
            if self.idle.contains(&task) {
                self.board.set(task, State::Skipped);
                self.wake(task);
                self.awake.insert(node);
                continue;
            }
            self.board.set(task, State::Running);
            self.board.set_node(node, NodeState::Busy);
            self.attempts[task] = 1;
            started.push(self.told(task));
        }
        // Who waits only for room or for a limit is looked at again when something ends.
        started
    }

    /// The next node that is awake and has room; nodes without are put back to sleep until something ends.
    fn next_awake(&mut self) -> Option<NodeIndex> {
        if self.is_ending() {
            return None;
        }
        while let Some(node) = self.awake.pop_first() {
            if self.board.has_room(node) && self.board.has_ready(node) {
                return Some(node);
            }
        }
        None
    }

    fn told(&self, task: TaskIndex) -> Started {
        let item = &self.board.items()[task];
        let seat = &self.board.seats()[item.node];
        Started {
            task,
            name: item.name.clone(),
            uid: (!seat.sync).then(|| seat.name.clone()),
            attempt: self.attempts[task],
            timeout: self.manners[task].patience.timeout,
        }
    }

    /// A try of a task ended.
    ///
    /// # Errors
    /// [`NotRunning`] if that task does not run: it ended before, or was never started.
    pub fn ended(&mut self, task: TaskIndex, outcome: &Outcome) -> Result<Next, NotRunning> {
        let running = task < self.manners.len() && self.board.state(task) == State::Running;
        if !running {
            let name = self.board.items().get(task).map_or_else(|| format!("task {task}"), |item| item.name.clone());
            return Err(NotRunning(name));
        }
        let manner = self.manners[task];
        let again = matches!(outcome, Outcome::Failed(_) | Outcome::TimedOut)
            && self.attempts[task] <= manner.patience.retries
            && !self.is_ending();
        if again {
            self.attempts[task] += 1;
            return Ok(Next::Again { attempt: self.attempts[task], after: manner.patience.interval });
        }
        let node = self.board.items()[task].node;
        let (state, seat) = match outcome {
            Outcome::Done => (State::Successful, NodeState::Online),
            Outcome::Lost => (State::Failed, NodeState::Failed),
            _ if !manner.fail_on_error => (State::Skipped, NodeState::Online),
            _ => (State::Failed, NodeState::Failed),
        };
        self.board.set_node(node, seat);
        self.board.set(task, state);
        self.board.settle(node);
        self.count_failures();
        self.wake_all();
        Ok(Next::Settled)
    }

    /// A node does not answer, whether or not it runs something.
    pub fn lost(&mut self, uid: &str) {
        let found = self.board.seats().iter().position(|seat| !seat.sync && seat.name == uid);
        let Some(node) = found.filter(|node| self.board.seats()[*node].state != NodeState::Failed) else { return };
        let running = |task: &&TaskIndex| self.board.state(**task) == State::Running;
        let running: Vec<TaskIndex> = self.board.seats()[node].tasks.iter().filter(running).copied().collect();
        self.board.set_node(node, NodeState::Failed);
        for task in running {
            self.board.set(task, State::Failed);
        }
        self.board.settle(node);
        self.count_failures();
        self.wake_all();
    }

    /// Starts nothing new. What runs goes on to its end.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    fn is_ending(&self) -> bool {
        self.stopped || self.broken.is_some()
    }

    /// Every node that failed since counts once against each of its groups.
    fn count_failures(&mut self) {
        for node in 0..self.board.seats().len() {
            if self.board.seats()[node].sync || !self.board.is_failed(node) || !self.counted.insert(node) {
                continue;
            }
            for group in self.groups.iter_mut().filter(|group| group.nodes.contains(&node)) {
                group.left -= 1;
                if group.left < 0 && self.broken.is_none() {
                    self.broken = Some(format!("too many nodes failed in {}", group.name));
                }
            }
        }
    }

    fn wake(&mut self, task: TaskIndex) {
        let nodes: Vec<NodeIndex> = self.board.after(task).iter().map(|next| self.board.items()[*next].node).collect();
        self.awake.extend(nodes);
    }

    fn wake_all(&mut self) {
        let has_ready = |node: &NodeIndex| self.board.has_ready(*node);
        let nodes: Vec<NodeIndex> = (0..self.board.seats().len()).filter(has_ready).collect();
        self.awake.extend(nodes);
    }

    /// The tasks that run now.
    pub fn running(&self) -> Vec<Started> {
        let running = |task: &TaskIndex| self.board.state(*task) == State::Running;
        (0..self.manners.len()).filter(running).map(|task| self.told(task)).collect()
    }

    /// How it ended; `None` while something runs or may start.
    pub fn verdict(&self) -> Option<Verdict> {
        let busy = self.board.seats().iter().any(|seat| seat.state == NodeState::Busy);
        let over = (0..self.board.seats().len()).all(|node| self.board.is_over(node));
        if busy || !(over || self.is_ending()) {
            return None;
        }
        let failed = |(node, seat): &(NodeIndex, &super::board::Seat)| !seat.sync && self.board.is_failed(*node);
        let nodes: Vec<String> =
            self.board.seats().iter().enumerate().filter(failed).map(|(_, seat)| seat.name.clone()).collect();
        Some(match &self.broken {
            Some(why) => Verdict::Failed { why: why.clone(), nodes },
            None if self.stopped && !over => Verdict::Stopped,
            None if nodes.is_empty() => Verdict::Done,
            None => Verdict::DoneWithFailures(nodes),
        })
    }

    /// How a task is.
    pub fn state(&self, task: TaskIndex) -> Option<State> {
        (task < self.manners.len()).then(|| self.board.state(task))
    }

    /// The tasks and nodes.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Why a task does not run, or did not.
    pub fn why(&self, task: TaskIndex) -> Why {
        let Some(state) = self.state(task) else { return Why::Nothing };
        let named = |tasks: Vec<TaskIndex>| {
            tasks.into_iter().map(|task| self.told(task)).map(|told| (told.name, told.uid)).collect()
        };
        let before = self.board.before(task);
        match state {
            State::Pending => {
                let open = before.iter().copied().filter(|other| !self.board.state(*other).is_over());
                Why::Waits(named(open.collect()))
            }
            State::Ready => Why::Turn,
            State::DepFailed => {
                let failed: Vec<TaskIndex> =
                    before.iter().copied().filter(|other| self.board.state(*other).is_failed()).collect();
                if failed.is_empty() { Why::Node } else { Why::Failed(named(failed)) }
            }
            State::Skipped if self.idle.contains(&task) => Why::Skipped,
            _ => Why::Nothing,
        }
    }
}

fn groups(plan: &OnNodes, board: &Board) -> Vec<Group> {
    let by_name: std::collections::BTreeMap<&str, NodeIndex> = board
        .seats()
        .iter()
        .enumerate()
        .filter(|(_, seat)| !seat.sync)
        .map(|(node, seat)| (seat.name.as_str(), node))
        .collect();
    let mut groups: Vec<Group> = plan
        .tolerance
        .iter()
        .map(|group| Group {
            name: group.name.clone(),
            nodes: group.uids.iter().filter_map(|uid| by_name.get(uid.as_str())).copied().collect(),
            left: group.allowed,
        })
        .collect();
    let grouped: BTreeSet<NodeIndex> = groups.iter().flat_map(|group| group.nodes.iter().copied()).collect();
    let rest: BTreeSet<NodeIndex> = by_name.into_values().filter(|node| !grouped.contains(node)).collect();
    if !rest.is_empty() {
        groups.push(Group { name: NO_GROUP.to_owned(), nodes: rest, left: 0 });
    }
    groups
}
