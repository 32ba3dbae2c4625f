//! How a plan is made.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::check::Checked;
use super::{GroupTasks, LeftOut, NodeTurn, Plan, Wave, Why};
use crate::cluster::{Cluster, Entry, MASTER};
use crate::conditions::{Condition, Models, Reading};
use crate::fault::Fault;
use crate::graph::{Direction, Graph, Index};
use crate::hooks::plugins::StageNumber;
use crate::hooks::{DEPLOY_END, DEPLOY_START};
use crate::marks::Marks;
use crate::names::Name;
use crate::priorities::{self, Counter};
use crate::relations::resolver::{Resolver, first};
use crate::run::Patience;
use crate::run::roles::{Hook, Planned};
use crate::select::{self, Selection};
use crate::task::Task;
use crate::version::Version;

/// What a plan is made for.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The nodes and their settings.
    pub cluster: &'a Cluster,
    /// What of the graph is asked for.
    pub selection: &'a Selection,
    /// Whether conditions decide. Without settings they cannot: then every condition is taken to hold.
    pub conditions: bool,
}

/// Makes a plan.
///
/// # Errors
/// [`Fault::Invalid`] for a selection of what is not there, and for conditions that cannot be answered.
pub fn make(checked: &Checked, options: Options<'_>) -> Result<Plan, Fault> {
    let graph = &checked.graph;
    let marks = select::apply(graph, options.selection)?;
    let order = graph.whole().order()?;
    let mut making = Making {
        graph,
        checked,
        options,
        models: Models::of(options.cluster),
        left_out: BTreeSet::new(),
        used: BTreeSet::new(),
        plan: Plan { notes: checked.notes.clone(), ..Plan::default() },
    };
    let kept = making.kept(&order, &marks)?;
    making.hooks(&order, &kept)?;
    making.groups(&order, &kept)?;
    making.rest(&kept);
    making.plan.left_out = making.left_out.into_iter().collect();
    Ok(making.plan)
}

struct Making<'a> {
    graph: &'a Graph,
    checked: &'a Checked,
    options: Options<'a>,
    models: Models,
    left_out: BTreeSet<LeftOut>,
    used: BTreeSet<Index>,
    plan: Plan,
}

impl Making<'_> {
    fn leave_out(&mut self, index: Index, why: Why) {
        self.left_out.insert(LeftOut { task: self.graph.name(index).to_owned(), why });
    }

    /// The tasks that are wanted, wherever they would run.
    fn kept(&mut self, order: &[Index], marks: &Marks) -> Result<BTreeSet<Index>, Fault> {
        let mut kept = BTreeSet::new();
        for index in order {
            let task = self.graph.task(*index);
            if task.kind() == Some("skipped") || (marks.is_marked(*index) && task.is_marked_skipped()) {
                self.leave_out(*index, Why::SwitchedOff);
            } else if task.is_internal()? {
                continue;
            } else if marks.is_marked(*index) {
                self.leave_out(*index, Why::NotAskedFor);
            } else if let Some(said) = self.refused(task)? {
                self.leave_out(*index, Why::Condition(said));
            } else {
                kept.insert(*index);
            }
        }
        Ok(kept)
    }

    /// The condition of a task, if it does not hold.
    fn refused(&self, task: &Task) -> Result<Option<String>, Fault> {
        match task.get("condition") {
            Some(Value::Bool(false)) => Ok(Some("false".to_owned())),
            Some(Value::String(text)) if self.options.conditions => {
                let holds = Condition::read(text, Reading::Strict)?.holds(&self.models).map_err(|fault| {
                    Fault::Invalid(format!("the condition of {}: {fault}", task.id().unwrap_or("a task")))
                })?;
                Ok((!holds).then(|| text.clone()))
            }
            _ => Ok(None),
        }
    }

    fn hooks(&mut self, order: &[Index], kept: &BTreeSet<Index>) -> Result<(), Fault> {
        self.plan.pre = self.stage(order, kept, DEPLOY_START, Direction::Backward, "pre_deployment")?;
        self.plan.post = self.stage(order, kept, DEPLOY_END, Direction::Forward, "post_deployment")?;
        Ok(())
    }

    /// What is reached from an anchor, or says that it belongs to the stage; one after the other.
    fn stage(
        &mut self,
        order: &[Index],
        kept: &BTreeSet<Index>,
        anchor: &str,
        direction: Direction,
        stage: &str,
    ) -> Result<Vec<Hook>, Fault> {
        let whole = self.graph.whole();
        let reached: BTreeSet<Index> =
            self.graph.find(anchor).map(|at| whole.reach(at, direction)).unwrap_or_default().into_iter().collect();
        let nodes = Resolver::new(&self.options.cluster.deployed(), Version::Nine, &first);
        let mut counter = Counter::default();
        let mut hooks = Vec::new();
        let says = |index: &Index| self.checked.staged.get(self.graph.name(*index)).filter(|(said, _)| said == stage);
        let (own, said): (Vec<Index>, Vec<Index>) = order
            .iter()
            .filter(|index| kept.contains(index) && (reached.contains(index) || says(index).is_some()))
            .partition(|index| reached.contains(index));
        let mut said: Vec<(StageNumber, Index)> = said
            .into_iter()
            .map(|index| (says(&index).map(|(_, number)| StageNumber::read(number)).unwrap_or_default(), index))
            .collect();
        said.sort_by_key(|(number, _)| *number);
        for index in own.into_iter().chain(said.into_iter().map(|(_, index)| index)) {
            let task = self.graph.task(index);
            self.used.insert(index);
            let roles = task.get("role").or_else(|| task.get("roles")).or_else(|| task.get("groups"));
            let uids = nodes.uids(roles, false)?;
            if uids.is_empty() {
                self.leave_out(index, Why::NoNode);
                continue;
            }
            hooks.push(Hook {
                number: counter.advance(),
                planned: planned(task),
                uids,
                fail_on_error: task.get("fail_on_error") != Some(&Value::Bool(false)),
            });
        }
        Ok(hooks)
    }

    fn groups(&mut self, order: &[Index], kept: &BTreeSet<Index>) -> Result<(), Fault> {
        let groups: Vec<Index> = self.graph.groups().nodes().to_vec();
        let places: BTreeMap<Index, usize> = groups.iter().enumerate().map(|(place, group)| (*group, place)).collect();
        let mut lists: Vec<Vec<Planned>> = vec![Vec::new(); groups.len()];
        for index in order.iter().filter(|index| kept.contains(index)) {
            for place in self.graph.after(*index).iter().filter_map(|group| places.get(group)) {
                lists[*place].push(planned(self.graph.task(*index)));
                self.used.insert(*index);
            }
        }
        let (entries, roles) = self.entries(&groups)?;
        let numbers = priorities::assign(&plain_groups(self.graph, &groups)?, &entries)?;
        let mut waves: BTreeMap<u64, Vec<NodeTurn>> = BTreeMap::new();
        for ((entry, role), number) in entries.iter().zip(&roles).zip(numbers) {
            let group = self.graph.find(&entry.role).and_then(|index| places.get(&index)).copied();
            let (Some(number), Some(group)) = (number, group) else { continue };
            let critical = self.is_critical(role, groups[group]);
            let turn = NodeTurn { uid: entry.uid.clone(), role: role.clone(), group, critical };
            waves.entry(number).or_default().push(turn);
        }
        self.plan.waves = waves.into_iter().map(|(number, turns)| Wave { number, turns }).collect();
        let named =
            |(index, tasks): (&Index, Vec<Planned>)| GroupTasks { group: self.graph.name(*index).to_owned(), tasks };
        self.plan.groups = groups.iter().zip(lists).map(named).collect();
        for (place, group) in groups.iter().enumerate() {
            if !self.plan.waves.iter().flat_map(|wave| &wave.turns).any(|turn| turn.group == place) {
                let members: Vec<Index> = self.graph.before(*group).to_vec();
                for member in members.into_iter().filter(|member| kept.contains(member)) {
                    self.idle(member, &places);
                }
            }
        }
        Ok(())
    }

    /// A task of groups none of which has a node.
    fn idle(&mut self, member: Index, places: &BTreeMap<Index, usize>) {
        let turns = || self.plan.waves.iter().flat_map(|wave| &wave.turns);
        let runs = |group: &Index| places.get(group).is_some_and(|place| turns().any(|turn| turn.group == *place));
        let hooked =
            self.plan.pre.iter().chain(&self.plan.post).any(|hook| hook.planned.task == self.graph.name(member));
        if !hooked && !self.graph.after(member).iter().any(runs) {
            self.leave_out(member, Why::NoNode);
        }
    }

    /// Every node in every group that one of its roles belongs to, and the role; notes for roles without a group.
    fn entries(&mut self, groups: &[Index]) -> Result<(Vec<Entry>, Vec<String>), Fault> {
        let mut wanted: Vec<(&str, Vec<Name>)> = Vec::new();
        for index in groups {
            let id = self.graph.name(*index);
            let task = self.graph.task(*index);
            let said = task.get("role").or_else(|| task.get("roles"));
            let said = said.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            let names = said.map(Name::read).collect::<Result<Vec<_>, _>>()?;
            wanted.push((id, names));
        }
        let fits = |role: &str| -> Vec<&str> {
            let runs = |(id, names): &&(&str, Vec<Name>)| *id == role || names.iter().any(|name| name.fits(role));
            wanted.iter().filter(runs).map(|(id, _)| *id).collect()
        };
        let mut by_role: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let (mut entries, mut roles, mut lost) = (Vec::new(), Vec::new(), BTreeSet::new());
        for Entry { uid, role } in self.options.cluster.entries() {
            let ids = by_role.entry(role.clone()).or_insert_with(|| fits(&role));
            if ids.is_empty() {
                lost.insert(role.clone());
            }
            for id in ids.iter() {
                entries.push(Entry { uid: uid.clone(), role: (*id).to_owned() });
                roles.push(role.clone());
            }
        }
        self.plan.notes.extend(lost.iter().map(|role| format!("no group runs for the role {role}")));
        Ok((entries, roles))
    }

    /// Whether everything ends when a node fails in a role. Fuel has a list of such roles; a group may say it, too.
    fn is_critical(&self, role: &str, group: Index) -> bool {
        const MULTINODE: &[&str] = &["controller", "ceph-osd", "primary-mongo"];
        const HA: &[&str] = &["primary-controller", "controller", "primary-mongo", "primary-swift-proxy", "ceph-osd"];
        let listed = if self.options.cluster.mode == "multinode" { MULTINODE } else { HA };
        match self.graph.task(group).get("critical") {
            Some(Value::Bool(said)) => *said,
            _ => listed.contains(&role),
        }
    }

    fn rest(&mut self, kept: &BTreeSet<Index>) {
        let unused: Vec<Index> = kept.difference(&self.used).copied().collect();
        for index in unused {
            self.leave_out(index, Why::Nowhere);
        }
    }
}

/// Groups that run for the role of their own name alone, with their strategies: entries are by group then.
fn plain_groups(graph: &Graph, groups: &[Index]) -> Result<Graph, Fault> {
    let part = graph.groups();
    let names = |indexes: Vec<Index>| indexes.iter().map(|index| graph.name(*index)).collect::<Vec<_>>();
    let plain = |index: &Index| {
        let task = graph.task(*index);
        let mut strategy = task.parameter("strategy").cloned().unwrap_or_else(|| json!({"type": "parallel"}));
        if let Some(fields) =
            strategy.as_object_mut().filter(|fields| fields.get("amount").is_some_and(Value::is_object))
        {
            fields.remove("amount");
        }
        let mut fields = Map::new();
        fields.insert("id".to_owned(), json!(graph.name(*index)));
        fields.insert("type".to_owned(), json!("group"));
        fields.insert("role".to_owned(), json!([graph.name(*index)]));
        fields.insert("requires".to_owned(), json!(names(part.before(*index).collect())));
        fields.insert("parameters".to_owned(), json!({"strategy": strategy}));
        Task::from(fields)
    };
    // The nodes first, so that they keep their order.
    let bare = groups.iter().map(|index| {
        let mut fields = Map::new();
        fields.insert("id".to_owned(), json!(graph.name(*index)));
        Task::from(fields)
    });
    Graph::new(&bare.chain(groups.iter().map(plain)).collect::<Vec<_>>(), Version::Seven)
}

/// A task as it is planned: how often it is tried, and how long it may take, are what Fuel's defaults are.
pub(super) fn planned(task: &Task) -> Planned {
    let number = |name: &str| task.parameter(name).and_then(Value::as_u64);
    let kind = task.kind().unwrap_or("").to_owned();
    let (retries, interval, timeout) = match kind.as_str() {
        "puppet" => (2, 2, Some(90 * 60)),
        "shell" => (3, 1, Some(300)),
        "sync" => (9, 0, Some(300)),
        "reboot" => (0, 0, Some(300)),
        _ => (0, 0, None),
    };
    let retries = number("retries").map_or(retries, |retries| u32::try_from(retries).unwrap_or(u32::MAX));
    let patience =
        Patience { retries, interval: number("interval").unwrap_or(interval), timeout: number("timeout").or(timeout) };
    Planned { task: task.id().unwrap_or("").to_owned(), kind, patience }
}

/// One node for every role that a graph has a group for, and the machine that deploys: for looking at an order
/// without any real node.
pub fn stand_ins(graph: &Graph) -> Cluster {
    let groups = graph.groups();
    let nodes = groups.nodes().iter().map(|index| {
        let name = graph.name(*index);
        crate::cluster::Node::new(name, &[name])
    });
    Cluster::of(nodes.filter(|node| node.uid != MASTER).collect())
}
