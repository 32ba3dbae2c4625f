//! The executor of tasks on nodes, as Fuel 9.2 has it, with nodes that are made up.
//!
//! It looks at all nodes in turn, pass after pass; a started task ends so many passes later. It notices late that a node
//! will run no more: tasks that were ready there stay ready, and who waits for them waits for ever. [`crate::run`] does
//! not do that.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::run::board::{Board, NodeIndex, NodeState, State, TaskIndex};

/// After so many passes there is no end in sight.
const MOST_PASSES: u64 = 2000;

struct Group {
    uids: BTreeSet<String>,
    left: i64,
}

struct Play {
    board: Board,
    data: Vec<Value>,
    ends: BTreeMap<NodeIndex, (TaskIndex, u64)>,
    critical: Vec<NodeIndex>,
    groups: Vec<Group>,
    events: Vec<Value>,
    pass: u64,
    stop_at: Option<u64>,
    brake: bool,
}

/// Plays a case.
pub fn play(input: &Value) -> Value {
    match prepared(input).and_then(Play::run) {
        Ok(answer) => answer,
        Err((class, message)) => json!({"error": class, "message": message}),
    }
}

type Failure = (&'static str, String);

fn prepared(input: &Value) -> Result<Play, Failure> {
    let mut board = Board::default();
    let list = |field: &str| -> Vec<&str> {
        input.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let nodes: Vec<(&String, &Value)> = input.get("nodes").and_then(Value::as_object).into_iter().flatten().collect();
    let (mut seats, mut tasks, mut data) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let (mut critical, offline) = (Vec::new(), list("offline"));
    for (uid, _) in &nodes {
        let sync = input.get("sync").and_then(Value::as_str) == Some(uid);
        let node = board.add_node(uid, sync);
        seats.insert(uid.as_str(), node);
        if list("critical").contains(&uid.as_str()) {
            critical.push(node);
        }
        if offline.contains(&uid.as_str()) {
            board.set_node(node, NodeState::Failed);
        }
    }
    let all =
        || nodes.iter().flat_map(|(uid, tasks)| tasks.as_array().into_iter().flatten().map(move |task| (*uid, task)));
    let id = |task: &Value| task.get("id").and_then(Value::as_str).unwrap_or("").to_owned();
    for (uid, task) in all() {
        let node = seats.get(uid.as_str()).copied().unwrap_or(0);
        let known = tasks.get(&(id(task), uid.clone())).copied();
        let index: TaskIndex = known.unwrap_or_else(|| board.add_task(node, &id(task)));
        tasks.insert((id(task), uid.clone()), index);
        data.resize(data.len().max(index + 1), Value::Null);
        data[index] = task.clone();
    }
    let find = |named: &Value| -> Result<TaskIndex, Failure> {
        let part = |at: usize| named.get(at).and_then(Value::as_str).unwrap_or("").to_owned();
        let unknown = || ("Deployment::InvalidArgument", format!("there is no task {named}"));
        tasks.get(&(part(0), part(1))).copied().ok_or_else(unknown)
    };
    let related = |task: &Value, field: &str| task.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    for (uid, task) in all() {
        let Some(own) = tasks.get(&(id(task), uid.clone())).copied() else { continue };
        for other in related(task, "requires") {
            board.add_edge(find(&other)?, own);
        }
        for other in related(task, "required_for") {
            board.add_edge(own, find(&other)?);
        }
        board.limit_tasks(&id(task), most(task.get("strategy")));
    }
    if let Some(most) = input.get("max_nodes").and_then(Value::as_u64) {
        board.limit_nodes(usize::try_from(most).unwrap_or(0));
    }
    if let Some(pieces) = input.get("subgraphs").and_then(Value::as_array) {
        let kept = kept(&board, pieces, &find)?;
        for (index, data) in data.iter_mut().enumerate().filter(|(index, _)| !kept.contains(index)) {
            let _ = index;
            data["type"] = json!("skipped");
        }
    }
    opened(&mut board)?;
    Ok(Play {
        board,
        data,
        ends: BTreeMap::new(),
        critical,
        groups: groups(input),
        events: Vec::new(),
        pass: 0,
        stop_at: input.get("stop_at").and_then(Value::as_u64),
        brake: false,
    })
}

fn opened(board: &mut Board) -> Result<(), Failure> {
    board.open().map_err(|path| {
        let told = |task: &TaskIndex| {
            let item = &board.items()[*task];
            format!("Task[{}/{}]", item.name, board.seats()[item.node].name)
        };
        let path: Vec<String> = path.iter().map(told).collect();
        ("LoopDetected", format!("Cluster[]: Loop detected! Path: {}", path.join(", ")))
    })
}

/// How many of a task may run at once; 0 for any number.
fn most(strategy: Option<&Value>) -> usize {
    let field = |name: &str| strategy.and_then(|strategy| strategy.get(name));
    match field("type").and_then(Value::as_str) {
        Some("one_by_one") => 1,
        Some("parallel") => {
            field("amount").and_then(Value::as_u64).and_then(|most| usize::try_from(most).ok()).unwrap_or(0)
        }
        _ => 0,
    }
}

/// The tasks of pieces of the graph: of each, what is reached from its starts and reaches its ends.
fn kept(
    board: &Board,
    pieces: &[Value],
    find: &dyn Fn(&Value) -> Result<TaskIndex, Failure>,
) -> Result<BTreeSet<TaskIndex>, Failure> {
    let reached = |piece: &Value, side: &str, forward: bool| -> Result<Option<BTreeSet<TaskIndex>>, Failure> {
        let mut stack = Vec::new();
        for named in piece.get(side).and_then(Value::as_array).into_iter().flatten() {
            stack.push(find(named)?);
        }
        let mut seen = BTreeSet::new();
        while let Some(task) = stack.pop() {
            if seen.insert(task) {
                stack.extend(if forward { board.after(task) } else { board.before(task) });
            }
        }
        Ok((!seen.is_empty()).then_some(seen))
    };
    let all: BTreeSet<TaskIndex> = (0..board.items().len()).collect();
    let mut kept = BTreeSet::new();
    for piece in pieces {
        let from = reached(piece, "start", true)?.unwrap_or_else(|| all.clone());
        let to = reached(piece, "end", false)?.unwrap_or_else(|| all.clone());
        kept.extend(from.intersection(&to).copied());
    }
    Ok(kept)
}

fn groups(input: &Value) -> Vec<Group> {
    let groups = input.get("fault_tolerance_groups").and_then(Value::as_array).into_iter().flatten();
    groups
        .map(|group| Group {
            uids: group
                .get("node_ids")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            left: group.get("fault_tolerance").and_then(Value::as_i64).unwrap_or(0),
        })
        .filter(|group| !group.uids.is_empty())
        .collect()
}

impl Play {
    fn nodes(&self) -> std::ops::Range<NodeIndex> {
        0..self.board.seats().len()
    }

    fn state(&self, node: NodeIndex) -> NodeState {
        self.board.seats()[node].state
    }

    fn run(mut self) -> Result<Value, Failure> {
        for node in self.nodes() {
            self.board.settle(node);
        }
        let failed: Vec<NodeIndex> =
            self.nodes().collect::<Vec<_>>().into_iter().filter(|node| self.failed(*node)).collect();
        for node in failed {
            self.count_failure(node);
        }
        loop {
            if self.nodes().all(|node| self.board.is_successful(node)) {
                return Ok(self.answer(true));
            }
            let critical = self.failed_critical();
            if !critical.is_empty() {
                for node in critical {
                    self.board.settle(node);
                }
                self.brake = true;
            }
            let finished = |node: NodeIndex| {
                matches!(self.state(node), NodeState::Failed | NodeState::Stopped) || self.board.is_over(node)
            };
            if self.nodes().all(finished) {
                let success = self.failed_critical().is_empty();
                return Ok(self.answer(success));
            }
            self.pass += 1;
            if self.pass > MOST_PASSES {
                return Err(("RuntimeError", "no end in sight".to_owned()));
            }
            for node in self.nodes() {
                self.visit(node);
            }
        }
    }

    fn visit(&mut self, node: NodeIndex) {
        if self.state(node) == NodeState::Stopped {
            return;
        }
        self.poll(node);
        if self.is_stopping() && self.board.has_room(node) {
            self.board.set_node(node, NodeState::Stopped);
        }
        self.count_failure(node);
        if !self.board.has_room(node) {
            return;
        }
        let Some(task) = self.board.best(node) else { return };
        let ticks = self.data[task].get("ticks").and_then(Value::as_u64).unwrap_or(1);
        self.ends.insert(node, (task, self.pass + ticks));
        self.tell("start", node, task);
        self.board.set(task, State::Running);
        self.board.set_node(node, NodeState::Busy);
    }

    fn tell(&mut self, what: &str, node: NodeIndex, task: TaskIndex) {
        let (uid, name) = (&self.board.seats()[node].name, &self.board.items()[task].name);
        self.events.push(json!([self.pass, what, uid, name]));
    }

    fn poll(&mut self, node: NodeIndex) {
        let over = |(_, end): &(TaskIndex, u64)| self.pass >= *end;
        let Some((task, _)) = self.ends.get(&node).copied().filter(over) else { return };
        self.ends.remove(&node);
        let data = &self.data[task];
        let still = matches!(data.get("type").and_then(Value::as_str), Some("skipped" | "stage" | "noop"));
        let failed = data.get("status").and_then(Value::as_str) == Some("failed");
        let minds = data.get("fail_on_error") != Some(&Value::Bool(false));
        let (state, word) = match (still, failed) {
            (true, _) => (State::Skipped, "skipped"),
            (_, true) if !minds => (State::Skipped, "skipped"),
            (_, true) => (State::Failed, "failed"),
            _ => (State::Successful, "successful"),
        };
        self.board.set(task, state);
        self.tell(word, node, task);
        self.board.set_node(node, if state == State::Failed { NodeState::Failed } else { NodeState::Online });
    }

    fn is_stopping(&mut self) -> bool {
        self.brake = self.brake || self.stop_at.is_some_and(|at| self.pass >= at);
        self.brake
    }

    /// Whether a node failed. To ask that of a node that was let go settles its tasks.
    fn failed(&mut self, node: NodeIndex) -> bool {
        if self.state(node) == NodeState::Stopped {
            self.board.settle(node);
        }
        self.board.is_failed(node)
    }

    fn failed_critical(&mut self) -> Vec<NodeIndex> {
        let critical = self.critical.clone();
        critical.into_iter().filter(|node| self.failed(*node) && self.state(*node) != NodeState::Stopped).collect()
    }

    fn count_failure(&mut self, node: NodeIndex) {
        if self.is_stopping() || !self.failed(node) {
            return;
        }
        let name = self.board.seats()[node].name.clone();
        for group in &mut self.groups {
            if group.uids.remove(&name) {
                group.left -= 1;
            }
        }
        if self.groups.iter().any(|group| group.left < 0) {
            self.board.settle(node);
            self.brake = true;
        }
    }

    fn answer(self, success: bool) -> Value {
        let word = |state: NodeState| match state {
            NodeState::Online => "online",
            NodeState::Busy => "busy",
            NodeState::Failed => "failed",
            NodeState::Stopped => "skipped",
        };
        let state = |state: State| match state {
            State::Pending => "pending",
            State::Ready => "ready",
            State::Running => "running",
            State::Successful => "successful",
            State::Failed => "failed",
            State::DepFailed => "dep_failed",
            State::Skipped => "skipped",
        };
        let mut nodes: Vec<[&str; 2]> =
            self.board.seats().iter().map(|seat| [seat.name.as_str(), word(seat.state)]).collect();
        nodes.sort_unstable();
        let (mut tasks, mut weights) = (Vec::new(), Vec::new());
        for (index, item) in self.board.items().iter().enumerate() {
            let uid = &self.board.seats()[item.node].name;
            tasks.push((item.name.clone(), uid.clone(), state(self.board.state(index))));
            weights.push((item.name.clone(), uid.clone(), self.board.weight(index)));
        }
        tasks.sort_unstable();
        weights.sort_unstable();
        let of = |wanted: &dyn Fn(NodeIndex) -> bool| -> Vec<&str> {
            let mut names: Vec<&str> = self
                .board
                .seats()
                .iter()
                .enumerate()
                .filter(|(node, _)| wanted(*node))
                .map(|(_, seat)| seat.name.as_str())
                .collect();
            names.sort_unstable();
            names
        };
        let stopped = |node: NodeIndex| self.state(node) == NodeState::Stopped;
        let failed = |node: NodeIndex| self.board.is_failed(node) && !stopped(node);
        let failed_tasks: Vec<[&String; 2]> =
            tasks.iter().filter(|(_, _, state)| *state == "failed").map(|(name, uid, _)| [name, uid]).collect();
        let all = self.nodes().all(|node| self.board.is_successful(node));
        json!({
            "success": success, "events": self.events, "nodes": nodes, "tasks": tasks, "weights": weights,
            "failed_nodes": if all { Vec::new() } else { of(&failed) },
            "skipped_nodes": if all { Vec::new() } else { of(&stopped) },
            "failed_tasks": failed_tasks,
        })
    }
}
