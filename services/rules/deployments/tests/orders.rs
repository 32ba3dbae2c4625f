//! What runs where, after what, and what is said of graphs that make no order.
#![expect(clippy::unwrap_used, reason = "what a test cannot read ends it")]

use gatelog_rules_deployments::files::{self, Problem};
use gatelog_rules_deployments::plan::check::Checked;
use gatelog_rules_deployments::plan::{self, LeftOut, Options, Plan, Why, check};
use gatelog_rules_deployments::{Cluster, Node, Selection, render};
use serde_json::json;

fn checked(text: &str) -> Result<Checked, Vec<Problem>> {
    check::check(&files::read("tasks.yaml", text).unwrap())
}

fn refused(text: &str) -> Vec<String> {
    checked(text).unwrap_err().iter().map(ToString::to_string).collect()
}

fn planned(text: &str, cluster: &Cluster, selection: &Selection) -> Plan {
    let options = Options { cluster, selection, conditions: true };
    plan::make(&checked(text).unwrap(), options).unwrap()
}

fn nodes(said: &[(&str, &str)]) -> Cluster {
    Cluster::of(said.iter().map(|(uid, role)| Node::new(uid, &[*role])).collect())
}

/// Each number with its nodes.
fn waves(plan: &Plan) -> Vec<(u64, Vec<&str>)> {
    plan.waves.iter().map(|wave| (wave.number, wave.turns.iter().map(|turn| turn.uid.as_str()).collect())).collect()
}

fn tasks_of<'p>(plan: &'p Plan, group: &str) -> Vec<&'p str> {
    let group = plan.groups.iter().find(|one| one.group == group).unwrap();
    group.tasks.iter().map(|planned| planned.task.as_str()).collect()
}

/// The example with which granular deployment was proposed, as it was written: one stage, a role misspelt, shell among
/// the tasks of groups.
const PROPOSAL: &str = "
- {id: deploy, type: stage}
- id: primary-controller
  type: group
  role: [primar-controller]
  required_for: [deploy]
  parameters: {strategy: {type: one_by_one}}
- id: controller
  type: group
  role: [controller]
  requires: [primary-controller]
  required_for: [deploy]
  parameters: {strategy: {type: parallel, amount: 2}}
- id: cinder
  type: group
  role: [cinder]
  requires: [controller]
  required_for: [deploy]
  parameters: {strategy: {type: parallel}}
- id: compute
  type: group
  role: [compute]
  requires: [controller]
  required_for: [deploy]
  parameters: {strategy: {type: parallel}}
- id: network
  type: group
  role: [network]
  requires: [controller]
  required_for: [compute, deploy]
  parameters: {strategy: {type: parallel}}
- id: setup_services
  type: puppet
  requires: [setup_network]
  groups: [controller, primary-controller, compute, network, cinder]
  required_for: [deploy]
  parameters:
    puppet_manifests: /etc/puppet/manifests/controller.pp
    puppet_modules: /etc/puppet/modules
    timeout: 360
- id: setup_network
  type: shell
  groups: [controller, primary-controller, compute, network, cinder]
  required_for: [deploy]
  parameters: {cmd: run_setup_network.sh, timeout: 120}
";

#[test]
fn the_example_of_the_proposal_runs_in_the_order_that_it_states() {
    let cluster = nodes(&[
        ("node-1", "primary-controller"),
        ("node-4", "controller"),
        ("node-2", "controller"),
        ("node-3", "controller"),
        ("node-5", "controller"),
        ("node-6", "cinder"),
        ("node-7", "network"),
        ("node-8", "compute"),
    ]);
    let plan = planned(PROPOSAL, &cluster, &Selection::default());
    assert_eq!(
        waves(&plan),
        [
            (100, vec!["node-1"]),
            (200, vec!["node-4", "node-2"]),
            (300, vec!["node-3", "node-5"]),
            (400, vec!["node-6", "node-7"]),
            (500, vec!["node-8"]),
        ]
    );
    assert_eq!(tasks_of(&plan, "compute"), ["setup_network", "setup_services"]);
    assert_eq!(plan.size(), 16);
    assert!(plan.notes.is_empty() && plan.left_out.is_empty());
}

const STAGED: &str = "
- {id: before, type: stage}
- {id: deploy_start, type: stage, requires: [before]}
- {id: deploy_end, type: stage, requires: [deploy_start]}
- {id: copy_tree, type: rsync, role: '*', required_for: [deploy_start], parameters: {src: a, dst: b}}
- {id: on_master, type: shell, role: master, requires: [copy_tree], required_for: [deploy_start], parameters: {cmd: x}}
- {id: tell, type: shell, role: [db], requires: [deploy_end], parameters: {cmd: x}}
- {id: late, type: shell, role: '*', stage: post_deployment/20, parameters: {cmd: x}}
- {id: soon, type: shell, role: '*', stage: post_deployment/-1, parameters: {cmd: x}, fail_on_error: false}
- {id: db, type: group, role: [db], requires: [deploy_start], required_for: [deploy_end], parameters: {strategy: {type: parallel}}}
- {id: app, type: group, role: [app], requires: [db], required_for: [deploy_end], parameters: {strategy: {type: parallel}}}
- {id: packages, type: shell, groups: [db, app], parameters: {cmd: x}}
- {id: database, type: shell, groups: [db], requires: [packages], parameters: {cmd: x}}
- {id: service, type: shell, groups: [/a/], requires: [database], parameters: {cmd: x}}
- {id: extra, type: shell, groups: [app], requires: [service], condition: 'settings:extra.value == true', parameters: {cmd: x}}
- {id: lonely, type: shell, role: '*', parameters: {cmd: x}}
";

fn shop() -> Cluster {
    let mut cluster = nodes(&[("1", "db"), ("2", "app"), ("3", "app")]);
    cluster.settings = json!({"extra": {"value": false}});
    cluster
}

#[test]
fn hooks_come_before_and_after_and_stages_are_sorted_by_number() {
    let plan = planned(STAGED, &shop(), &Selection::default());
    let hook = |hooks: &[gatelog_rules_deployments::run::roles::Hook]| {
        hooks
            .iter()
            .map(|hook| format!("{} {} {}", hook.number, hook.planned.task, hook.uids.join("+")))
            .collect::<Vec<_>>()
    };
    assert_eq!(hook(&plan.pre), ["100 copy_tree 1+2+3", "200 on_master master"]);
    assert_eq!(hook(&plan.post), ["100 tell 1", "200 soon 1+2+3", "300 late 1+2+3"]);
    assert_eq!(plan.pre[0].planned.kind, "sync");
    assert_eq!((plan.post[0].fail_on_error, plan.post[1].fail_on_error), (true, false));
    assert_eq!(waves(&plan), [(100, vec!["1"]), (200, vec!["2", "3"])]);
}

#[test]
fn the_plan_says_of_every_task_that_does_not_run_why() {
    let selection = Selection { skip: vec!["tell".to_owned()], ..Selection::default() };
    let plan = planned(STAGED, &shop(), &selection);
    let left_out = |task: &str, why: Why| LeftOut { task: task.to_owned(), why };
    assert_eq!(
        plan.left_out,
        [
            left_out("extra", Why::Condition("settings:extra.value == true".to_owned())),
            left_out("lonely", Why::Nowhere),
            left_out("tell", Why::NotAskedFor),
        ]
    );
    let plan = planned(
        STAGED,
        &nodes(&[("1", "db"), ("9", "monitor")]).clone(),
        &Selection { skip: vec!["extra".to_owned()], ..Selection::default() },
    );
    assert!(plan.left_out.contains(&left_out("service", Why::NoNode)), "{:?}", plan.left_out);
    assert!(!plan.left_out.contains(&left_out("packages", Why::NoNode)));
    assert_eq!(plan.notes, ["no group runs for the role monitor"]);
}

#[test]
fn order_is_kept_through_tasks_that_are_left_out() {
    let text = "
- {id: g, type: group, parameters: {strategy: {type: parallel}}}
- {id: first, type: shell, groups: [g], parameters: {cmd: x}}
- {id: middle, type: shell, requires: [first], parameters: {cmd: x}, role: '*'}
- {id: last, type: shell, groups: [g], requires: [middle], parameters: {cmd: x}}
";
    let only = |tasks: &[&str]| Selection {
        tasks: tasks.iter().map(|task| (*task).to_owned()).collect(),
        ..Selection::default()
    };
    let cluster = nodes(&[("1", "g")]);
    assert_eq!(tasks_of(&planned(text, &cluster, &only(&["last", "first"])), "g"), ["first", "last"]);
    assert_eq!(tasks_of(&planned(text, &cluster, &Selection::default()), "g"), ["first", "last"]);
}

#[test]
fn a_part_is_taken_by_start_end_skip_and_include() {
    let cluster = shop();
    let of = |selection: Selection| {
        let plan = planned(STAGED, &cluster, &selection);
        (tasks_of(&plan, "db").join(" "), tasks_of(&plan, "app").join(" "), plan.pre.len(), plan.post.len())
    };
    let some = |name: &str| Some(name.to_owned());
    let end = Selection { end: some("database"), ..Selection::default() };
    assert_eq!(of(end), ("packages database".to_owned(), "packages".to_owned(), 0, 0));
    let start = Selection { start: some("database"), skip: vec!["tell".to_owned()], ..Selection::default() };
    assert_eq!(of(start), ("database".to_owned(), "service".to_owned(), 0, 0));
    let both = Selection { start: some("packages"), end: some("service"), ..Selection::default() };
    assert_eq!(of(both), ("packages database".to_owned(), "packages service".to_owned(), 0, 0));
    let unknown = Selection { tasks: vec!["databse".to_owned(), "x".to_owned()], ..Selection::default() };
    let options = Options { cluster: &cluster, selection: &unknown, conditions: true };
    let said = plan::make(&checked(STAGED).unwrap(), options).unwrap_err().to_string();
    assert_eq!(said, "Tasks databse (is database meant?),x are not present in deployment graph");
}

#[test]
fn everything_wrong_is_told_at_once_with_its_place() {
    let text = "
- {id: a, type: shell, requires: [b], groups: [grp], parameters: {cmd: x}}
- {id: b, type: shell, requires: [c], parameters: {cmd: x}}
- {id: c, type: shell, requires: [a], parameters: {cmd: x}}
- {id: d, type: shell, requires: [d], parameters: {cmd: x}}
- {id: grp1, type: group, parameters: {strategy: {type: parallel}}}
";
    assert_eq!(
        refused(text),
        [
            "tasks.yaml:2:3: a: there is no task, group or stage grp (is grp1 meant?)",
            "tasks.yaml:2:3: these wait for each other: a → c → b → a",
            "tasks.yaml:5:3: these wait for each other: d → d",
        ]
    );
    let text = "
- {id: g, type: group, parameters: {strategy: {type: sideways}}}
- {id: h, type: group, parameters: {strategy: {type: parallel, amount: 0}}}
- {id: p, type: puppet, groups: [g]}
- {id: c, type: shell, groups: g, parameters: {cmd: x}, condition: 'true @ or false'}
- {id: m, type: master_shell, parameters: {cmd: x}}
- {id: r, type: dance}
";
    let said = refused(text);
    assert_eq!(said.len(), 8, "{said:#?}");
    assert!(said[0].contains("'sideways' is not one of ['parallel', 'one_by_one']"), "{said:#?}");
    assert!(said[1].contains("h: amount must be 1 or more"));
    assert!(said[2].contains("p: a task of type puppet needs parameters.puppet_manifest"));
    assert!(said[4].contains("c: groups must be a list of names"));
    assert!(said[5].contains("c: condition, column 6: '@' is not expected here"), "{said:#?}");
    assert!(said[6].contains("known since 9.x only (say version: 2.0.0 or later)"));
    assert!(said[7].contains("'dance' is not one of"));
    let broken = files::read("tasks.yaml", "- {id: a").unwrap_err();
    assert!(broken[0].to_string().starts_with("tasks.yaml:"), "{broken:?}");
    assert!(files::read("tasks.yaml", "a: b").unwrap_err()[0].message.contains("a list of tasks is wanted"));
}

#[test]
fn the_api_of_the_proposal_can_be_asked_in_conditions() {
    let text = |condition: &str| {
        format!(
            "- {{id: g, type: group, parameters: {{strategy: {{type: parallel}}}}}}\n\
             - {{id: t, type: shell, groups: [g], parameters: {{cmd: x}}, condition: \"{condition}\"}}\n"
        )
    };
    let mut cluster = nodes(&[("1", "g"), ("2", "g"), ("3", "zabbix-server")]);
    cluster.deploy = Some(vec!["1".to_owned(), "2".to_owned()]);
    let runs = |condition: &str| {
        let plan = planned(&text(condition), &cluster, &Selection::default());
        !plan.groups[0].tasks.is_empty()
    };
    assert!(runs("api.cluster_status == 'new' and api.nodes_count() < 9"));
    assert!(!runs("api.nodes_count() > 2"));
    assert!(runs("api.role_in_cluster('zabbix-server') and not api.role_in_deployment('zabbix-server')"));
    assert!(runs("cluster:mode == 'ha_compact'"));
    let options = Options { cluster: &cluster, selection: &Selection::default(), conditions: true };
    let unset = plan::make(&checked(&text("settings:a.b == 1")).unwrap(), options).unwrap_err();
    assert!(unset.to_string().contains("the condition of t: Value of settings:a.b is undefined"), "{unset}");
}

#[test]
fn a_node_in_several_roles_runs_them_after_each_other() {
    let text = "
- {id: a, type: group, parameters: {strategy: {type: parallel}}}
- {id: b, type: group, parameters: {strategy: {type: parallel}}}
- {id: one, type: group, parameters: {strategy: {type: one_by_one}}}
- {id: t, type: shell, groups: [a, b, one], parameters: {cmd: x}}
";
    let cluster =
        Cluster::of(vec![Node::new("1", &["a", "b"]), Node::new("2", &["b", "one"]), Node::new("3", &["one"])]);
    let plan = planned(text, &cluster, &Selection::default());
    assert_eq!(waves(&plan), [(100, vec!["2"]), (200, vec!["3"]), (300, vec!["1", "2"]), (400, vec!["1"])]);
}

#[test]
fn the_same_files_and_nodes_make_the_same_plan() {
    let plan = || serde_json::to_string(&planned(STAGED, &shop(), &Selection::default())).unwrap();
    assert_eq!(plan(), plan());
}

#[test]
fn a_graph_can_be_drawn() {
    let graph = checked(STAGED).unwrap().graph;
    let without = ["stage".to_owned()];
    let dot = render::dot(&graph, &without);
    assert!(dot.contains("\"packages\" -> \"db\";") && !dot.contains("deploy_start"));
    let json = render::json(&graph, &[]);
    assert!(json["edges"].as_array().unwrap().contains(&json!(["database", "service"])));
    let svg = render::svg(&graph, &without).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains(">packages</text>"));
}
