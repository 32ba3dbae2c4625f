//! What it costs to order a deployment, and to say what may start next while it runs.
//!
//! Two shapes of 10,000 tasks on 1,000 nodes: by roles, where each of 20 groups has 500 tasks and 50 nodes; and on nodes,
//! where 10 tasks run on each node and wait for tasks of others. The second is then run to its end by executors that do
//! nothing. The limit beside the order is a walk over the same graph.

use std::hint::black_box;
use std::time::Duration;

use gatelog_benches::Failure;
use gatelog_benches::measure::best;
use gatelog_benches::table::{Table, time, times};
use gatelog_rules_deployments::files::{Place, Written};
use gatelog_rules_deployments::plan::{self, Options, check};
use gatelog_rules_deployments::relations::resolver::{Resolver, first};
use gatelog_rules_deployments::relations::{OnNodes, nine};
use gatelog_rules_deployments::run::Outcome;
use gatelog_rules_deployments::run::tasks::{Manner, TaskRun};
use gatelog_rules_deployments::{Cluster, Node, Selection, Task, Version};
use serde_json::{Value, json};

const RUNS: usize = 5;
const NODES: usize = 1000;
const TASKS: usize = 10_000;
const GROUPS: usize = 20;
/// What Nailgun 7.0 takes for the first shape: its graph (0.6 s), its numbers (0.1 s), and the list of every node in its
/// role, for which it sorts the whole graph each time (0.10 s a node, of which 115 were measured). Processor time, with
/// Python 2.7.18 and networkx 1.11, on the machine of docs/benchmarks.md.
const FUEL: Duration = Duration::from_secs(105);

fn task(value: Value) -> Task {
    if let Value::Object(fields) = value { fields.into() } else { Task::default() }
}

/// Groups in a chain of pairs; tasks of a group that wait for one or two before them.
fn by_roles() -> Vec<Task> {
    let mut tasks = Vec::with_capacity(TASKS + GROUPS);
    for group in 0..GROUPS {
        let before: Vec<String> = group.checked_sub(2).map(|before| format!("role-{before}")).into_iter().collect();
        let strategy = match group % 3 {
            0 => json!({"type": "one_by_one"}),
            1 => json!({"type": "parallel", "amount": 10}),
            _ => json!({"type": "parallel"}),
        };
        tasks.push(task(json!({
            "id": format!("role-{group}"), "type": "group", "role": [format!("role-{group}")], "requires": before,
            "parameters": {"strategy": strategy},
        })));
    }
    for number in 0..TASKS {
        let before = [number.checked_sub(GROUPS), number.checked_sub(7 * GROUPS)];
        let before: Vec<String> = before.into_iter().flatten().map(|before| format!("task-{before}")).collect();
        tasks.push(task(json!({
            "id": format!("task-{number}"), "type": "shell", "groups": [format!("role-{}", number % GROUPS)],
            "requires": before, "parameters": {"cmd": "true", "timeout": 60},
        })));
    }
    tasks
}

/// Ten tasks on each node; some wait for the same task on all nodes of the next role.
fn on_nodes() -> Vec<Task> {
    let per_node = TASKS / NODES;
    let of = |number: usize| {
        let before: Vec<String> = number.checked_sub(1).map(|before| format!("task-{before}")).into_iter().collect();
        let across = match number % 5 {
            4 => json!([{"name": format!("task-{}", number - 2), "role": ["role-0"]}]),
            _ => json!([]),
        };
        task(json!({
            "id": format!("task-{number}"), "type": "shell", "role": "*", "version": "2.0.0", "requires": before,
            "cross-depends": across,
        }))
    };
    (0..per_node).map(of).collect()
}

fn nodes() -> Vec<Node> {
    (0..NODES).map(|node| Node::new(&node.to_string(), &[&format!("role-{}", node % GROUPS)])).collect()
}

fn drive(plan: &OnNodes) -> Result<usize, Failure> {
    let mut run = TaskRun::new(plan, |_| Manner::default(), 0)?;
    let mut done = 0;
    let mut running = Vec::new();
    loop {
        running.extend(run.start());
        let Some(one) = running.pop() else { break };
        run.ended(one.task, &Outcome::Done)?;
        done += 1;
    }
    if run.verdict() != Some(gatelog_rules_deployments::run::Verdict::Done) {
        return Err(format!("the deployment ended as {:?}", run.verdict()).into());
    }
    Ok(done)
}

fn main() -> Result<(), Failure> {
    let cluster = Cluster::of(nodes());
    let written: Vec<Written> = by_roles().into_iter().map(|task| Written { task, place: Place::default() }).collect();
    let (checking, checked) = best(RUNS, || check::check(&written).map_err(|wrong| format!("{wrong:?}")))?;
    let selection = Selection::default();
    let options = Options { cluster: &cluster, selection: &selection, conditions: true };
    let (ordering, plan) = best(RUNS, || plan::make(&checked, options))?;
    let (walking, _) = best(RUNS, || -> Result<usize, Failure> {
        let graph = &checked.graph;
        Ok(black_box((0..graph.len()).map(|node| graph.after(node).len() + graph.name(node).len()).sum()))
    })?;
    let tasks = on_nodes();
    let (placing, placed) = best(RUNS, || {
        let deployed = cluster.deployed();
        let resolver = Resolver::new(&deployed, Version::Nine, &first);
        nine::place(&nine::Facts { common: json!({}) }, &resolver, &tasks, false)
    })?;
    let (opening, _) = best(RUNS, || TaskRun::new(&placed, |_| Manner::default(), 0))?;
    let (driving, driven) = best(RUNS, || drive(&placed))?;
    let title = format!("Deployments: {TASKS} tasks, {NODES} nodes, {GROUPS} groups (processor time)");
    let mut table = Table::new(&title);
    let ratio = times(ordering.cpu.as_secs_f64() / walking.cpu.as_secs_f64().max(1e-9));
    table.row("order by roles", time(ordering.cpu), time(walking.cpu), ratio, "100 ms");
    let ratio = times(FUEL.as_secs_f64() / ordering.cpu.as_secs_f64().max(1e-9));
    table.row("the same by Nailgun 7.0, and how much longer", time(FUEL), time(ordering.cpu), ratio, "100 times");
    table.note("look at the tasks, and make the graph", time(checking.cpu));
    table.note("steps of that order", format!("{} waves, {} tasks on nodes", plan.waves.len(), plan.size()));
    table.row("place tasks on nodes, with relations", time(placing.cpu), String::new(), String::new(), "100 ms");
    table.note("say what may start first", time(opening.cpu));
    let rate = driven as f64 / driving.cpu.as_secs_f64().max(1e-9);
    table.row(
        "run by executors that do nothing",
        format!("{rate:.0} tasks/s"),
        String::new(),
        String::new(),
        "5000 tasks/s",
    );
    table.print();
    Ok(())
}
