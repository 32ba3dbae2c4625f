//! Tasks on nodes, how each is, and what follows for the others when one changes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A task's place on its board.
pub type TaskIndex = usize;
/// A node's place on its board.
pub type NodeIndex = usize;

/// How a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// It waits for others.
    Pending,
    /// It may run.
    Ready,
    /// It runs.
    Running,
    /// It ended well.
    Successful,
    /// It failed.
    Failed,
    /// It will not run: something it waited for failed.
    DepFailed,
    /// It was passed over.
    Skipped,
}

impl State {
    /// Whether it failed, itself or by what it waited for.
    pub fn is_failed(self) -> bool {
        matches!(self, State::Failed | State::DepFailed)
    }

    /// Whether it stands in nobody's way.
    pub fn is_passed(self) -> bool {
        matches!(self, State::Successful | State::Skipped)
    }

    /// Whether it is over.
    pub fn is_over(self) -> bool {
        self.is_failed() || self.is_passed()
    }
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeState {
    /// It can take a task.
    Online,
    /// It runs one.
    Busy,
    /// A task of it failed, or it does not answer: it takes no other.
    Failed,
    /// It was let go: it takes no other.
    Stopped,
}

/// A task as it was put on the board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: NodeIndex,
}

/// A node as it was put on the board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// Its name.
    pub name: String,
    /// Whether it is only the place where stages are passed: what is there minds no failures.
    pub sync: bool,
    /// How it is.
    pub state: NodeState,
    /// Its tasks, in order.
    pub tasks: Vec<TaskIndex>,
    /// Those that may run, heaviest first.
    ready: BTreeSet<(Reverse<u64>, TaskIndex)>,
    /// How many of its tasks are not over.
    open: usize,
    /// How many are failed, themselves or by others.
    failed: usize,
}

/// How many of something may be at once, and are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Limit {
    most: usize,
    now: usize,
}

impl Limit {
    fn has_room(self) -> bool {
        self.most == 0 || self.now < self.most
    }
}

/// The board.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Board {
    items: Vec<Item>,
    seats: Vec<Seat>,
    states: Vec<State>,
    forward: Vec<Vec<TaskIndex>>,
    backward: Vec<Vec<TaskIndex>>,
    edges: BTreeSet<(TaskIndex, TaskIndex)>,
    /// For each task, how many of those it waits for are still in its way.
    waiting: Vec<usize>,
    weights: Vec<u64>,
    limits: BTreeMap<String, Limit>,
    nodes: Limit,
}

impl Board {
    /// Puts a node on the board.
    pub fn add_node(&mut self, name: &str, sync: bool) -> NodeIndex {
        let (tasks, ready) = (Vec::new(), BTreeSet::new());
        self.seats.push(Seat {
            name: name.to_owned(),
            sync,
            state: NodeState::Online,
            tasks,
            ready,
            open: 0,
            failed: 0,
        });
        self.seats.len() - 1
    }

    /// Puts a task on the board.
    pub fn add_task(&mut self, node: NodeIndex, name: &str) -> TaskIndex {
        let index = self.items.len();
        self.items.push(Item { name: name.to_owned(), node });
        self.states.push(State::Pending);
        self.forward.push(Vec::new());
        self.backward.push(Vec::new());
        self.seats[node].tasks.push(index);
        self.seats[node].open += 1;
        index
    }

    /// Lets one wait for another; nobody waits for itself.
    pub fn add_edge(&mut self, from: TaskIndex, to: TaskIndex) {
        if from != to && self.edges.insert((from, to)) {
            self.forward[from].push(to);
            self.backward[to].push(from);
        }
    }

    /// How many tasks of a name may run at once; 0 for any number.
    pub fn limit_tasks(&mut self, name: &str, most: usize) {
        self.limits.entry(name.to_owned()).or_default().most = most;
    }

    /// How many nodes may be busy at once; 0 for any number.
    pub fn limit_nodes(&mut self, most: usize) {
        self.nodes.most = most;
    }

    /// Says how everything starts: what waits for nothing is ready, and the heavier comes first. To be called once, when
    /// all tasks, edges and limits are there.
    ///
    /// # Errors
    /// The path of a loop, from a task back to itself.
    pub fn open(&mut self) -> Result<(), Vec<TaskIndex>> {
        self.weights = self.weigh()?;
        self.waiting = self.backward.iter().map(Vec::len).collect();
        for task in 0..self.items.len() {
            if self.waiting[task] == 0 && self.states[task] == State::Pending {
                self.become_ready(task);
            }
        }
        Ok(())
    }

    /// How much hangs on each task: for each that waits for it 1, on another node 10, and what hangs on that.
    fn weigh(&self) -> Result<Vec<u64>, Vec<TaskIndex>> {
        let mut weights = vec![None; self.items.len()];
        let mut open = vec![false; self.items.len()];
        for start in 0..self.items.len() {
            let mut stack = vec![(start, 0)];
            while let Some((task, at)) = stack.last().copied() {
                if weights[task].is_some() {
                    stack.pop();
                    continue;
                }
                open[task] = true;
                if let Some(next) = self.forward[task].get(at).copied() {
                    if let Some((_, at)) = stack.last_mut() {
                        *at += 1;
                    }
                    if open[next] && weights[next].is_none() {
                        let from = stack.iter().position(|(on, _)| *on == next).unwrap_or(0);
                        let mut path: Vec<TaskIndex> = stack.iter().skip(from).map(|(on, _)| *on).collect();
                        path.push(next);
                        return Err(path);
                    }
                    if weights[next].is_none() {
                        stack.push((next, 0));
                    }
                    continue;
                }
                let own = self.items[task].node;
                let of = |next: &TaskIndex| {
                    let step = if self.items[*next].node == own { 1_u64 } else { 10 };
                    step.saturating_add(weights[*next].unwrap_or(0))
                };
                let sum = self.forward[task].iter().map(of).fold(0, u64::saturating_add);
                weights[task] = Some(sum);
                stack.pop();
            }
        }
        Ok(weights.into_iter().map(|weight| weight.unwrap_or(0)).collect())
    }

    /// All tasks.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// All nodes.
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// How a task is.
    pub fn state(&self, task: TaskIndex) -> State {
        self.states[task]
    }

    /// How much hangs on a task.
    pub fn weight(&self, task: TaskIndex) -> u64 {
        self.weights.get(task).copied().unwrap_or(0)
    }

    /// What a task waits for.
    pub fn before(&self, task: TaskIndex) -> &[TaskIndex] {
        &self.backward[task]
    }

    /// What waits for a task.
    pub fn after(&self, task: TaskIndex) -> &[TaskIndex] {
        &self.forward[task]
    }

    fn become_ready(&mut self, task: TaskIndex) {
        self.states[task] = State::Ready;
        let entry = (Reverse(self.weight(task)), task);
        self.seats[self.items[task].node].ready.insert(entry);
    }

    /// Says how a task is now. What follows for those that wait for it, and for those that wait for them, follows at once.
    pub fn set(&mut self, task: TaskIndex, state: State) {
        let mut changes = vec![(task, state)];
        while let Some((task, state)) = changes.pop() {
            let old = self.states[task];
            if old == state {
                continue;
            }
            self.count(task, old, state);
            self.states[task] = state;
            if !state.is_over() {
                continue;
            }
            for next in self.forward[task].clone() {
                let sync = self.seats[self.items[next].node].sync;
                let clears = |state: State| state.is_passed() || (sync && state.is_over());
                if clears(state) && !clears(old) {
                    self.waiting[next] = self.waiting[next].saturating_sub(1);
                    if self.waiting[next] == 0 && self.states[next] == State::Pending {
                        self.become_ready(next);
                    }
                }
                if state.is_failed() && !sync && !self.states[next].is_failed() {
                    changes.push((next, State::DepFailed));
                }
            }
        }
    }

    fn count(&mut self, task: TaskIndex, old: State, new: State) {
        let entry = (Reverse(self.weight(task)), task);
        let seat = &mut self.seats[self.items[task].node];
        if old == State::Ready {
            seat.ready.remove(&entry);
        }
        if new == State::Ready {
            seat.ready.insert(entry);
        }
        if new.is_over() && !old.is_over() {
            seat.open = seat.open.saturating_sub(1);
        }
        if new.is_failed() && !old.is_failed() {
            seat.failed += 1;
        }
        if let Some(limit) = self.limits.get_mut(&self.items[task].name) {
            match (old == State::Running, new == State::Running) {
                (false, true) => limit.now += 1,
                (true, false) => limit.now = limit.now.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Says how a node is now.
    pub fn set_node(&mut self, node: NodeIndex, state: NodeState) {
        let old = std::mem::replace(&mut self.seats[node].state, state);
        match (old == NodeState::Busy, state == NodeState::Busy) {
            (false, true) => self.nodes.now += 1,
            (true, false) => self.nodes.now = self.nodes.now.saturating_sub(1),
            _ => {}
        }
    }

    /// Settles what a node will not run any more: on a failed node it counts as failed, on a stopped one as passed over.
    pub fn settle(&mut self, node: NodeIndex) {
        let state = match self.seats[node].state {
            NodeState::Failed => State::DepFailed,
            NodeState::Stopped => State::Skipped,
            _ => return,
        };
        for task in self.seats[node].tasks.clone() {
            if matches!(self.states[task], State::Pending | State::Ready) {
                self.set(task, state);
            }
        }
    }

    /// Whether a node can take a task: it is idle, and not too many are busy.
    pub fn has_room(&self, node: NodeIndex) -> bool {
        self.seats[node].state == NodeState::Online && self.nodes.has_room()
    }

    /// The task that a node takes next: of those that may run, and of whose name not too many run, the one on which most
    /// hangs; of several the first.
    pub fn best(&self, node: NodeIndex) -> Option<TaskIndex> {
        let has_room = |task: &TaskIndex| self.limits.get(&self.items[*task].name).is_none_or(|limit| limit.has_room());
        self.seats[node].ready.iter().map(|(_, task)| *task).find(has_room)
    }

    /// Whether a node has a task that may run but for limits.
    pub fn has_ready(&self, node: NodeIndex) -> bool {
        !self.seats[node].ready.is_empty()
    }

    /// Whether all tasks of a node are over.
    pub fn is_over(&self, node: NodeIndex) -> bool {
        self.seats[node].open == 0
    }

    /// Whether a node failed, or a task of it did, be it by others.
    pub fn is_failed(&self, node: NodeIndex) -> bool {
        self.seats[node].state == NodeState::Failed || self.seats[node].failed > 0
    }

    /// Whether all tasks of a node were passed.
    pub fn is_successful(&self, node: NodeIndex) -> bool {
        self.seats[node].open == 0 && self.seats[node].failed == 0
    }
}
