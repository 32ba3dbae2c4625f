//! Deployments while they run, with nodes that are made up.
#![expect(clippy::unwrap_used, reason = "what a test cannot read ends it")]

use std::collections::{BTreeMap, BTreeSet};

use gatelog_rules_deployments::relations::resolver::{Resolver, first};
use gatelog_rules_deployments::relations::{OnNodes, nine};
use gatelog_rules_deployments::run::roles::{Hook, Key, Phase, Planned, RoleRun, Script, Turn};
use gatelog_rules_deployments::run::tasks::{Manner, TaskRun, Why};
use gatelog_rules_deployments::run::{Next, Outcome, Patience, Verdict};
use gatelog_rules_deployments::{Node, Task, Version, files};
use proptest::prelude::*;
use serde_json::json;

fn planned(task: &str, retries: u32) -> Planned {
    Planned {
        task: task.to_owned(),
        kind: "shell".to_owned(),
        patience: Patience { retries, interval: 5, timeout: Some(60) },
    }
}

fn turn(uid: &str, role: &str, number: u64, critical: bool, tasks: &[&str]) -> Turn {
    let tasks = tasks.iter().map(|task| planned(task, 0)).collect();
    Turn { uid: uid.to_owned(), role: role.to_owned(), number, critical, tasks }
}

fn hook(task: &str, number: u64, uids: &[&str]) -> Hook {
    let uids = uids.iter().map(|uid| (*uid).to_owned()).collect();
    Hook { number, planned: planned(task, 1), uids, fail_on_error: true }
}

fn key(uid: &str, role: &str, task: &str) -> Key {
    Key { uid: uid.to_owned(), role: role.to_owned(), task: task.to_owned() }
}

/// What starts, as `node/role/task`.
fn begun(run: &mut RoleRun) -> Vec<String> {
    run.start().iter().map(|one| format!("{}/{}/{}", one.key.uid, one.key.role, one.key.task)).collect()
}

fn failed() -> Outcome {
    Outcome::Failed("exit code 1".to_owned())
}

/// Runs to the end; tasks named here fail.
fn finish(run: &mut RoleRun, failing: &[&str]) -> (Vec<String>, Option<Verdict>) {
    let mut told = Vec::new();
    for _ in 0..10_000 {
        let started = run.start();
        if started.is_empty() && run.running().is_empty() {
            break;
        }
        told.extend(started.iter().map(|one| format!("{}/{}/{}", one.key.uid, one.key.role, one.key.task)));
        for key in run.running() {
            let fails =
                failing.contains(&key.task.as_str()) || failing.contains(&format!("{}/{}", key.uid, key.task).as_str());
            run.ended(&key, &if fails { failed() } else { Outcome::Done }).unwrap();
        }
    }
    (told, run.verdict())
}

#[test]
fn numbers_are_barriers_and_each_node_walks_its_own_list() {
    let script = Script {
        pre: vec![hook("facts", 100, &["1", "2"])],
        turns: vec![
            turn("1", "a", 100, false, &["x", "y"]),
            turn("2", "a", 100, false, &["x", "y"]),
            turn("1", "b", 200, false, &["z"]),
        ],
        post: vec![hook("tell", 100, &["2"])],
    };
    let mut run = RoleRun::new(script, &[], 50);
    assert_eq!(begun(&mut run), ["1/pre/facts", "2/pre/facts"]);
    run.ended(&key("1", "pre", "facts"), &Outcome::Done).unwrap();
    assert_eq!(begun(&mut run), [""; 0], "the other node has not ended");
    run.ended(&key("2", "pre", "facts"), &Outcome::Done).unwrap();
    assert_eq!(begun(&mut run), ["1/a/x", "2/a/x"]);
    run.ended(&key("2", "a", "x"), &Outcome::Done).unwrap();
    assert_eq!(begun(&mut run), ["2/a/y"], "nodes do not wait for each other within a number");
    run.ended(&key("2", "a", "y"), &Outcome::Done).unwrap();
    assert_eq!(begun(&mut run), [""; 0]);
    let (told, verdict) = finish(&mut run, &[]);
    assert_eq!(told, ["1/a/y", "1/b/z", "2/post/tell"]);
    assert_eq!(verdict, Some(Verdict::Done));
}

#[test]
fn a_failed_task_ends_the_list_of_its_node_for_this_role_only() {
    let script = Script {
        turns: vec![
            turn("1", "a", 100, false, &["x", "y"]),
            turn("2", "a", 100, false, &["x", "y"]),
            turn("1", "b", 200, false, &["z"]),
        ],
        post: vec![hook("tell", 100, &["1"])],
        ..Script::default()
    };
    let (told, verdict) = finish(&mut RoleRun::new(script, &[], 50), &["1/x"]);
    assert_eq!(told, ["1/a/x", "2/a/x", "2/a/y", "1/b/z", "1/post/tell"]);
    assert_eq!(verdict, Some(Verdict::DoneWithFailures(vec!["1".to_owned()])));
}

#[test]
fn everything_ends_when_a_node_that_may_not_fail_has_failed() {
    let script = Script {
        turns: vec![
            turn("1", "a", 100, true, &["x"]),
            turn("2", "a", 100, true, &["x", "y"]),
            turn("3", "b", 200, false, &["z"]),
        ],
        post: vec![hook("tell", 100, &["1"])],
        ..Script::default()
    };
    let (told, verdict) = finish(&mut RoleRun::new(script.clone(), &[], 50), &["1/x"]);
    assert_eq!(told, ["1/a/x", "2/a/x", "2/a/y"], "the slice goes to its end");
    let why = "Deployment failed on nodes 1".to_owned();
    assert_eq!(verdict, Some(Verdict::Failed { why, nodes: vec!["1".to_owned()] }));
    let run = RoleRun::new(script, &["2".to_owned()], 50);
    let Some(Verdict::Failed { why, .. }) = run.verdict() else { panic!() };
    assert_eq!(why, "Critical nodes are not available for deployment: [\"2\"]");
}

#[test]
fn a_hook_is_tried_again_on_the_node_where_it_failed() {
    let script = Script { pre: vec![hook("facts", 100, &["1", "2"])], ..Script::default() };
    let mut run = RoleRun::new(script, &[], 50);
    run.start();
    let facts = key("2", "pre", "facts");
    assert_eq!(run.ended(&key("1", "pre", "facts"), &Outcome::Done), Ok(Next::Settled));
    assert_eq!(run.ended(&facts, &Outcome::TimedOut), Ok(Next::Again { attempt: 2, after: 5 }));
    assert_eq!(run.ended(&facts, &failed()), Ok(Next::Settled));
    let Some(Verdict::Failed { why, nodes }) = run.verdict() else { panic!() };
    assert_eq!((why.as_str(), nodes), ("Failed to execute hook 'facts' on [\"2\"]", vec!["2".to_owned()]));
    assert!(run.ended(&facts, &Outcome::Done).is_err(), "it does not run any more");
}

#[test]
fn slices_are_no_larger_than_they_may_be() {
    let turns = (1..=5).map(|uid| turn(&uid.to_string(), "a", 100, false, &["x"])).collect();
    let mut run = RoleRun::new(Script { turns, ..Script::default() }, &[], 2);
    assert_eq!(begun(&mut run).len(), 2);
    let (_, verdict) = finish(&mut run, &[]);
    assert_eq!(verdict, Some(Verdict::Done));
}

#[test]
fn what_was_stopped_goes_on_where_it_was_and_runs_nothing_twice() {
    let script = Script {
        pre: vec![hook("facts", 100, &["1"])],
        turns: vec![turn("1", "a", 100, false, &["x", "y"]), turn("2", "a", 200, false, &["x"])],
        ..Script::default()
    };
    let mut run = RoleRun::new(script.clone(), &[], 50);
    run.start();
    run.ended(&key("1", "pre", "facts"), &Outcome::Done).unwrap();
    run.start();
    run.stop();
    assert_eq!(run.verdict(), None, "what runs goes on to its end");
    run.ended(&key("1", "a", "x"), &Outcome::Done).unwrap();
    assert_eq!((begun(&mut run), run.verdict()), (Vec::new(), Some(Verdict::Stopped)));
    let mut again = RoleRun::new(script, &[], 50);
    again.resume(run.done().cloned());
    assert_eq!(again.phase(), Phase::Slice(0));
    let (told, verdict) = finish(&mut again, &[]);
    assert_eq!((told, verdict), (vec!["1/a/y".to_owned(), "2/a/x".to_owned()], Some(Verdict::Done)));
}

#[test]
fn a_node_that_is_lost_runs_nothing_more() {
    let script = Script {
        turns: vec![
            turn("1", "a", 100, false, &["x"]),
            turn("2", "a", 100, false, &["x"]),
            turn("1", "b", 200, false, &["z"]),
        ],
        ..Script::default()
    };
    let mut run = RoleRun::new(script, &[], 50);
    run.start();
    run.lost("1");
    let (told, verdict) = finish(&mut run, &[]);
    assert_eq!((told, verdict), (Vec::new(), Some(Verdict::DoneWithFailures(vec!["1".to_owned()]))));
}

/// Tasks on the nodes 1 to 3, all of the role `n`; 1 is also `one`.
fn on_nodes(text: &str) -> OnNodes {
    let tasks: Vec<Task> = files::read("tasks.yaml", text).unwrap().into_iter().map(|one| one.task).collect();
    let nodes = [Node::new("1", &["n", "one"]), Node::new("2", &["n"]), Node::new("3", &["n"])];
    let resolver = Resolver::new(&nodes.iter().collect::<Vec<_>>(), Version::Nine, &first);
    nine::place(&nine::Facts { common: json!({}) }, &resolver, &tasks, false).unwrap()
}

const ACROSS: &str = "
- {id: go, type: stage}
- {id: base, type: shell, role: [n], requires: [go]}
- {id: lead, type: shell, role: [one], requires: [base]}
- {id: follow, type: shell, role: [n], requires: [base], cross-depends: [{name: lead, role: [one]}]}
- {id: idle, type: skipped, role: [n], requires: [base], required_for: [follow]}
- {id: end, type: stage, cross-depends: [{name: follow}]}
- {id: crew, type: group, role: [n], fault_tolerance: 1}
";

/// Runs to the end, a task at a time, the first that runs first; what is named here fails.
fn finish_tasks(run: &mut TaskRun, failing: &[&str]) -> Vec<String> {
    let mut told = Vec::new();
    let mut running = Vec::new();
    for _ in 0..10_000 {
        running.extend(run.start());
        if running.is_empty() {
            break;
        }
        let one = running.remove(0);
        let name = format!("{}/{}", one.name, one.uid.clone().unwrap_or_default());
        let outcome = if failing.contains(&name.as_str()) { failed() } else { Outcome::Done };
        run.ended(one.task, &outcome).unwrap();
        told.push(name);
    }
    told
}

fn once(_: &str) -> Manner {
    Manner::default()
}

#[test]
fn tasks_wait_for_tasks_on_other_nodes() {
    let mut run = TaskRun::new(&on_nodes(ACROSS), once, 0).unwrap();
    let told = finish_tasks(&mut run, &[]);
    assert_eq!(told[..3], ["base/1", "base/2", "base/3"]);
    assert_eq!(told[3], "lead/1");
    assert_eq!(told.len(), 7);
    assert_eq!(run.verdict(), Some(Verdict::Done));
}

#[test]
fn as_many_nodes_may_fail_as_their_group_bears() {
    let mut run = TaskRun::new(&on_nodes(ACROSS), once, 0).unwrap();
    let told = finish_tasks(&mut run, &["base/2"]);
    assert!(told.contains(&"follow/3".to_owned()) && !told.contains(&"follow/2".to_owned()));
    assert_eq!(run.verdict(), Some(Verdict::DoneWithFailures(vec!["2".to_owned()])));
    let mut run = TaskRun::new(&on_nodes(ACROSS), once, 0).unwrap();
    finish_tasks(&mut run, &["base/2", "base/3"]);
    let Some(Verdict::Failed { why, nodes }) = run.verdict() else { panic!("{:?}", run.verdict()) };
    assert_eq!((why.as_str(), nodes.len()), ("too many nodes failed in crew", 2));
}

#[test]
fn who_waits_for_what_a_failed_node_would_have_run_does_not_wait_for_ever() {
    // Two tasks of node 1 are ready; one fails, and the other is what node 2 waits for.
    let text = "
- {id: bad, type: shell, role: [one]}
- {id: good, type: shell, role: [one]}
- {id: after, type: shell, role: [n], cross-depends: [{name: good, role: [one]}]}
- {id: crew, type: group, role: [n], fault_tolerance: 3}
";
    let mut run = TaskRun::new(&on_nodes(text), once, 0).unwrap();
    let started = run.start();
    let first = &started[0];
    assert_eq!(first.name, "good", "most hangs on it");
    run.ended(first.task, &failed()).unwrap();
    assert!(run.start().is_empty());
    assert!(matches!(run.verdict(), Some(Verdict::DoneWithFailures(nodes)) if nodes.len() == 3));
    let after = run.board().items().iter().position(|item| item.name == "after").unwrap();
    assert!(matches!(run.why(after), Why::Failed(_) | Why::Node));
}

#[test]
fn no_more_nodes_and_no_more_of_a_task_run_than_may() {
    let limited = |name: &str| Manner { at_once: usize::from(name == "base"), ..Manner::default() };
    let mut run = TaskRun::new(&on_nodes(ACROSS), limited, 0).unwrap();
    assert_eq!(run.start().len(), 1);
    let mut run = TaskRun::new(&on_nodes(ACROSS), once, 2).unwrap();
    assert_eq!(run.start().len(), 2);
    finish_tasks(&mut run, &[]);
}

#[test]
fn failures_that_are_none_are_passed_and_tries_are_counted() {
    let manner = |name: &str| Manner {
        patience: Patience { retries: 1, interval: 7, timeout: Some(9) },
        fail_on_error: name != "lead",
        ..Manner::default()
    };
    let mut run = TaskRun::new(&on_nodes(ACROSS), manner, 0).unwrap();
    let started = run.start();
    assert_eq!(started[0].timeout, Some(9));
    assert_eq!(run.ended(started[0].task, &failed()), Ok(Next::Again { attempt: 2, after: 7 }));
    for one in &started {
        assert_eq!(run.ended(one.task, &Outcome::Done), Ok(Next::Settled));
    }
    assert!(run.ended(started[0].task, &Outcome::Done).is_err());
    let lead = run.start().into_iter().find(|one| one.name == "lead").unwrap();
    run.ended(lead.task, &failed()).unwrap();
    run.ended(lead.task, &failed()).unwrap();
    finish_tasks(&mut run, &[]);
    assert_eq!(run.verdict(), Some(Verdict::Done));
}

#[test]
fn tasks_on_nodes_are_stopped_and_go_on() {
    let plan = on_nodes(ACROSS);
    let mut run = TaskRun::new(&plan, once, 0).unwrap();
    let started = run.start();
    run.stop();
    for one in &started {
        run.ended(one.task, &Outcome::Done).unwrap();
    }
    assert!(run.start().is_empty());
    assert_eq!(run.verdict(), Some(Verdict::Stopped));
    let done: Vec<_> = started.iter().map(|one| (one.name.clone(), one.uid.clone())).collect();
    let mut again = TaskRun::new(&plan, once, 0).unwrap();
    again.resume(&done);
    let told = finish_tasks(&mut again, &[]);
    assert_eq!((told.len(), again.verdict()), (4, Some(Verdict::Done)));
}

#[test]
fn a_loop_is_told_with_its_path() {
    let text = "
- {id: a, type: shell, role: [one], requires: [b]}
- {id: b, type: shell, role: [one], requires: [a]}
";
    let fault = TaskRun::new(&on_nodes(text), once, 0).unwrap_err();
    assert_eq!(fault.to_string(), "tasks wait for each other: a/1, b/1, a/1");
}

/// A random graph of tasks on nodes: relations go from lower to higher numbers, so there is no loop.
fn any_plan() -> impl Strategy<Value = (String, Vec<bool>, i64, usize)> {
    let relation = (0..30_usize, 0..30_usize);
    let tasks = prop::collection::vec((0..3_usize, prop::bool::weighted(0.2)), 1..30);
    (tasks, prop::collection::vec(relation, 0..60), 0..4_i64, 0..3_usize).prop_map(|(tasks, relations, bears, most)| {
        let mut text = format!("- {{id: crew, type: group, role: [n], fault_tolerance: {bears}}}\n");
        let roles = ["[one]", "[n]", "'*'"];
        for (number, (role, _)) in tasks.iter().enumerate() {
            let before: Vec<String> = relations
                .iter()
                .filter(|(from, to)| *to == number && from < to && *from < tasks.len())
                .map(|(from, _)| format!("{{name: t{from}}}"))
                .collect();
            let role = roles[*role];
            text.push_str(&format!(
                "- {{id: t{number}, type: shell, role: {role}, cross-depends: [{}]}}\n",
                before.join(", ")
            ));
        }
        (text, tasks.iter().map(|(_, fails)| *fails).collect(), bears, most)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever fails: no task twice, none before what it waits for, and every run ends.
    #[test]
    fn every_run_ends_in_order((text, fails, _, most) in any_plan(), seed in 0..1000_usize) {
        let plan = on_nodes(&text);
        let mut run = TaskRun::new(&plan, once, most).unwrap();
        let mut running = Vec::new();
        let mut done: BTreeSet<(String, Option<String>)> = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for step in 0..100_000_usize {
            for one in run.start() {
                prop_assert!(seen.insert(one.task), "{} runs twice", one.name);
                let placed = plan.of(&one.uid).unwrap().iter().find(|task| task.id == one.name).unwrap();
                for before in &placed.requires {
                    prop_assert!(done.contains(before), "{} runs before {}", one.name, before.0);
                }
                running.push(one);
            }
            let mut busy: BTreeMap<_, usize> = BTreeMap::new();
            for one in &running {
                *busy.entry(one.uid.clone()).or_default() += 1;
            }
            prop_assert!(busy.values().all(|count| *count == 1) && (most == 0 || busy.len() <= most));
            if running.is_empty() {
                break;
            }
            let one = running.remove((seed + step * 7) % running.len());
            let number: usize = one.name[1..].parse().unwrap();
            let fail = fails[number] && (seed + number).is_multiple_of(2);
            run.ended(one.task, &if fail { failed() } else { Outcome::Done }).unwrap();
            if !fail {
                done.insert((one.name, one.uid));
            }
        }
        prop_assert!(run.verdict().is_some());
    }
}
