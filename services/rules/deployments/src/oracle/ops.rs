//! Questions to Fuel's graph code.

use std::collections::BTreeSet;

use gatelog_record::BlobHash;
use serde_json::{Map, Value, json};

use super::{hash_order, unchecked};
use crate::cluster::{Cluster, Entry};
use crate::conditions::{Condition, Models, Reading};
use crate::fault::Fault;
use crate::graph::{Graph, Index};
use crate::hooks::{Sent, Settings, Stage, Workshop, plugins};
use crate::marks::{Marks, members};
use crate::names::Name;
use crate::priorities;
use crate::relations::resolver::Resolver;
use crate::relations::tolerance::allowed;
use crate::relations::{OnNodes, Uid, eight, nine};
use crate::schema::{self, Wrong};
use crate::select;
use crate::task::Task;
use crate::values;
use crate::version::Version;

/// What is asked about.
pub struct Asking {
    pub tasks: Vec<Value>,
    pub cluster: Cluster,
    pub version: Version,
}

impl Asking {
    /// The answer to one question.
    pub fn answer(&self, op: &Value) -> Result<Value, Fault> {
        match op.get("op").and_then(Value::as_str).unwrap_or("") {
            "validate" => self.validate(op),
            "validate_deploy" => self.validate_deploy(op),
            "edges" => self.edges(),
            "topology" => self.topology(),
            "acyclic" => Ok(json!({"acyclic": self.graph()?.whole().is_acyclic()})),
            "groups" => self.groups(),
            "group_tasks" => self.group_tasks(op),
            "priorities" => self.priorities(op),
            "deploy" => self.deploy(op),
            "pre" => self.stage(op, Stage::Pre),
            "post" => self.stage(op, Stage::Post),
            "subgraph" => self.subgraph(op),
            "raw_subgraph" => self.raw_subgraph(op),
            "condition" => self.condition(op),
            "plugin_order" => plugin_order(op),
            "match" => matches(op),
            "task_based" => self.task_based(op),
            "lcm" => self.lcm(op),
            "fault_tolerance" => self.fault_tolerance(op),
            other => Err(Fault::Unknown(other.to_owned())),
        }
    }

    fn graph(&self) -> Result<Graph, Fault> {
        Graph::new(&unchecked(&self.tasks)?, self.version)
    }

    /// Fuel 7.0 stumbles over names that were only mentioned when it looks for groups.
    fn group_graph(&self, graph: &Graph) -> Result<(), Fault> {
        match graph.nodes().find(|(_, _, task)| task.get("type").is_none()) {
            Some(_) if self.version == Version::Seven => Err(Fault::Missing("type".to_owned())),
            _ => Ok(()),
        }
    }

    fn marks(&self, graph: &Graph, op: &Value) -> Result<Marks, Fault> {
        let stored = Marks::stored(graph);
        stored.only(graph, &texts(op, "only"))?.reexecutable(graph, &texts(op, "reexecute"))
    }

    fn validate(&self, op: &Value) -> Result<Value, Fault> {
        let first =
            |wrong: Vec<Wrong>| Fault::Invalid(wrong.into_iter().next().map_or_else(String::new, |one| one.message));
        let tasks = match op.get("body").and_then(Value::as_str) {
            Some(body) => schema::read(body, self.version).map_err(first)?,
            None => schema::tasks(Value::Array(self.tasks.clone()), self.version).map_err(first)?,
        };
        if self.version < Version::Nine {
            Graph::new(&tasks, self.version)?.check()?;
        }
        Ok(json!({"valid": true}))
    }

    fn validate_deploy(&self, op: &Value) -> Result<Value, Fault> {
        let said = op.get("tasks").cloned().unwrap_or_default();
        let first =
            |wrong: Vec<Wrong>| Fault::Invalid(wrong.first().map(|one| one.message.clone()).unwrap_or_default());
        let wanted = schema::texts(&said).map_err(first)?;
        let graph = self.graph()?;
        let unknown: BTreeSet<&str> =
            wanted.iter().map(String::as_str).filter(|name| graph.find(name).is_none()).collect();
        if unknown.is_empty() {
            return Ok(json!({"tasks": said}));
        }
        let unknown: Vec<&str> = unknown.into_iter().collect();
        Err(Fault::Invalid(format!("Tasks {} are not present in deployment graph", unknown.join(","))))
    }

    fn edges(&self) -> Result<Value, Fault> {
        let graph = self.graph()?;
        let nodes: Vec<&str> = graph.nodes().map(|(_, name, _)| name).collect();
        let mut edges: Vec<[&str; 2]> = graph.edges().map(|(from, to)| [graph.name(from), graph.name(to)]).collect();
        edges.sort_unstable();
        Ok(json!({"nodes": nodes, "edges": edges}))
    }

    fn topology(&self) -> Result<Value, Fault> {
        let graph = self.graph()?;
        let ids = told_ids(&graph, &graph.whole().order()?)?;
        Ok(json!({"order": ids, "acyclic": true}))
    }

    fn groups(&self) -> Result<Value, Fault> {
        let graph = self.graph()?;
        self.group_graph(&graph)?;
        let groups = graph.groups();
        let mut edges: Vec<[&str; 2]> = Vec::new();
        for from in groups.nodes() {
            edges.extend(groups.after(*from).map(|to| [graph.name(*from), graph.name(to)]));
        }
        edges.sort_unstable();
        Ok(json!({"order": told_ids(&graph, &groups.order()?)?, "edges": edges}))
    }

    fn group_tasks(&self, op: &Value) -> Result<Value, Fault> {
        let graph = self.graph()?;
        let marks = self.marks(&graph, op)?;
        let mut names = texts(op, "groups");
        if names.is_empty() {
            let groups = graph.nodes().filter(|(_, _, task)| task.is_group());
            names = groups.map(|(_, name, _)| name.to_owned()).collect();
        }
        let mut answer = Map::new();
        if names.is_empty() {
            return Ok(Value::Object(answer));
        }
        let order = graph.whole().order()?;
        for name in names {
            let tasks = members(&graph, &order, &marks, &name)?;
            answer.insert(name, json!(told_ids(&graph, &tasks)?));
        }
        Ok(Value::Object(answer))
    }

    fn numbers(&self, graph: &Graph, entries: &[Entry]) -> Result<Vec<Option<u64>>, Fault> {
        self.group_graph(graph)?;
        priorities::assign(graph, entries)
    }

    fn priorities(&self, op: &Value) -> Result<Value, Fault> {
        let graph = self.graph()?;
        self.marks(&graph, op)?;
        let entries = match op.get("serialized_nodes").and_then(Value::as_array) {
            None => self.cluster.entries(),
            Some(nodes) => nodes.iter().map(entry).collect::<Result<_, _>>()?,
        };
        let numbers = self.numbers(&graph, &entries)?;
        let row = |(entry, number): (&Entry, &Option<u64>)| json!([entry.uid, entry.role, number]);
        Ok(Value::Array(entries.iter().zip(&numbers).map(row).collect()))
    }

    fn deploy(&self, op: &Value) -> Result<Value, Fault> {
        let graph = self.graph()?;
        let marks = self.marks(&graph, op)?;
        let entries = self.cluster.entries();
        let numbers = self.numbers(&graph, &entries)?;
        let (models, settings) = (Models::of(&self.cluster), Settings::default());
        let workshop = self.workshop(&models, &settings);
        let order = graph.whole().order();
        let mut rows = Vec::new();
        for (entry, number) in entries.iter().zip(numbers) {
            graph.need(&entry.role)?;
            let tasks = members(&graph, order.as_ref().map_err(Clone::clone)?, &marks, &entry.role)?;
            let sent = workshop.deploy(&graph, &tasks, &entry.uid)?;
            if is_asked(op, "brief") {
                let ids: Vec<&Option<String>> = sent.iter().map(|one| &one.origin).collect();
                rows.push(json!([entry.uid, entry.role, number, ids]));
            } else {
                let tasks: Vec<Value> = sent.iter().map(|one| shown(one, is_asked(op, "parameters"))).collect();
                rows.push(json!({"uid": entry.uid, "role": entry.role, "priority": number, "tasks": tasks}));
            }
        }
        Ok(Value::Array(rows))
    }

    fn workshop<'a>(&'a self, models: &'a Models, settings: &'a Settings) -> Workshop<'a> {
        Workshop { cluster: &self.cluster, models, settings, version: self.version }
    }

    fn stage(&self, op: &Value, stage: Stage) -> Result<Value, Fault> {
        let graph = self.graph()?;
        let marks = self.marks(&graph, op)?;
        let (models, settings) = (Models::of(&self.cluster), Settings::default());
        let sent = self.workshop(&models, &settings).stage(&graph, &marks, stage)?;
        Ok(Value::Array(sent.iter().map(|one| shown(one, is_asked(op, "parameters"))).collect()))
    }

    fn subgraph(&self, op: &Value) -> Result<Value, Fault> {
        let graph = self.graph()?;
        let (start, end) = (text(op, "start"), text(op, "end"));
        if start.is_none() && end.is_none() {
            let ids =
                unchecked(&self.tasks)?.iter().map(|task| task.need("id").cloned()).collect::<Result<Vec<_>, _>>()?;
            return Ok(json!({"ids": ids}));
        }
        let include = texts(op, "include");
        let chosen = select::runnable(&graph, &Marks::stored(&graph), start, end, &include)?;
        let ids: Vec<Option<&Value>> = chosen.iter().map(|index| graph.task(*index).get("id")).collect();
        Ok(json!({"ids": ids}))
    }

    fn raw_subgraph(&self, op: &Value) -> Result<Value, Fault> {
        let graph = self.graph()?;
        let nodes = select::between(&graph, text(op, "start"), text(op, "end"))?;
        let part = graph.part(nodes.clone());
        let names: Vec<&str> = nodes.iter().map(|index| graph.name(*index)).collect();
        let order: Vec<Option<&Value>> = part.order()?.iter().map(|index| graph.task(*index).get("id")).collect();
        Ok(json!({"ids": names, "order": order}))
    }

    fn condition(&self, op: &Value) -> Result<Value, Fault> {
        let said = op.get("expression").and_then(Value::as_str).unwrap_or("");
        let strict = op.get("strict").is_none_or(values::is_true);
        let models = match op.get("models").and_then(Value::as_object) {
            Some(models) => Models::new(models.clone(), strict),
            None if strict => Models::of(&self.cluster),
            None => Models::of(&self.cluster).lax(),
        };
        Ok(json!({"value": Condition::read(said, Reading::Fuel)?.evaluate(&models)?}))
    }

    fn task_based(&self, op: &Value) -> Result<Value, Fault> {
        if self.version != Version::Eight {
            return Ok(json!({"unsupported": true}));
        }
        let (models, settings) = (Models::of(&self.cluster), Settings::default());
        let workshop = self.workshop(&models, &settings);
        let resolver = Resolver::new(&self.cluster.deployed(), self.version, &hash_order::first);
        let placed = eight::place(&workshop, &resolver, &unchecked(&self.tasks)?, &texts(op, "only"))?;
        Ok(Value::Object(graph_of(&placed)))
    }

    fn lcm(&self, op: &Value) -> Result<Value, Fault> {
        if self.version != Version::Nine {
            return Ok(json!({"unsupported": true}));
        }
        let mut common = op.get("info").and_then(Value::as_object).cloned().unwrap_or_default();
        common.entry("cluster").or_insert_with(|| json!({"id": self.cluster.id, "mode": self.cluster.mode}));
        let facts = nine::Facts { common: Value::Object(common) };
        let resolver = Resolver::new(&self.cluster.deployed(), self.version, &hash_order::first);
        let placed = nine::place(&facts, &resolver, &unchecked(&self.tasks)?, false)?;
        let group = |group: &crate::relations::Tolerance| {
            let mut uids: Vec<Uid> = group.uids.iter().cloned().map(Some).collect();
            uids.sort_by_key(uid_key);
            json!({"name": group.name, "node_ids": uids, "fault_tolerance": group.allowed})
        };
        let groups: Vec<Value> = placed.tolerance.iter().map(group).collect();
        Ok(json!({"graph": graph_of(&placed), "fault_tolerance_groups": groups}))
    }

    fn fault_tolerance(&self, op: &Value) -> Result<Value, Fault> {
        if self.version != Version::Nine {
            return Ok(json!({"unsupported": true}));
        }
        let row = |pair: &Value| {
            let (said, total) = (pair.get(0), pair.get(1).and_then(Value::as_u64).unwrap_or(0));
            json!([said, total, allowed(said, usize::try_from(total).unwrap_or(usize::MAX))])
        };
        Ok(op.get("pairs").and_then(Value::as_array).map_or_else(|| json!([]), |pairs| pairs.iter().map(row).collect()))
    }
}

fn matches(op: &Value) -> Result<Value, Fault> {
    let name = Name::read(text(op, "pattern").unwrap_or(""))?;
    Ok(texts(op, "names").iter().map(|one| json!([one, name.fits(one)])).collect())
}

fn plugin_order(op: &Value) -> Result<Value, Fault> {
    let tasks = unchecked(op.get("tasks").and_then(Value::as_array).map_or(&[][..], Vec::as_slice))?;
    let sorted = plugins::by_stage_number(tasks)?;
    Ok(sorted.iter().map(|task: &Task| task.get("stage").cloned().unwrap_or_default()).collect())
}

fn texts(op: &Value, field: &str) -> Vec<String> {
    let items = op.get(field).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn text<'v>(op: &'v Value, field: &str) -> Option<&'v str> {
    op.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn is_asked(op: &Value, field: &str) -> bool {
    op.get(field).is_some_and(values::is_true)
}

fn entry(node: &Value) -> Result<Entry, Fault> {
    let field = |name: &str| node.get(name).ok_or_else(|| Fault::Missing(name.to_owned())).and_then(values::name);
    Ok(Entry { role: field("role")?, uid: field("uid")? })
}

fn told_ids(graph: &Graph, nodes: &[Index]) -> Result<Vec<Value>, Fault> {
    nodes.iter().map(|index| graph.task(*index).need("id").cloned()).collect()
}

/// Nothing first, then numbers, then texts.
fn uid_key(uid: &Uid) -> (u8, i64, String) {
    match uid {
        None => (0, 0, String::new()),
        Some(text) => text.parse().map_or_else(|_| (2, 0, text.clone()), |number| (1, number, String::new())),
    }
}

fn graph_of(placed: &OnNodes) -> Map<String, Value> {
    let relations = |relations: &[(String, Uid)]| {
        let mut sorted: Vec<&(String, Uid)> = relations.iter().collect();
        sorted.sort_by_key(|(name, uid)| (uid_key(uid), name.clone()));
        sorted.into_iter().map(|(name, uid)| json!([name, uid])).collect::<Vec<_>>()
    };
    let mut graph = Map::new();
    for (uid, tasks) in &placed.nodes {
        let mut tasks: Vec<_> = tasks.iter().collect();
        tasks.sort_by(|a, b| a.id.cmp(&b.id));
        let row = |task: &&crate::relations::Placed| {
            json!({
                "id": task.id, "type": task.kind, "fail_on_error": task.fail_on_error,
                "requires": relations(&task.requires), "required_for": relations(&task.required_for),
            })
        };
        graph.insert(uid.clone().unwrap_or_else(|| "null".to_owned()), tasks.iter().map(row).collect());
    }
    graph
}

/// A task that is sent, with its parameters or their digest.
fn shown(sent: &Sent, with_parameters: bool) -> Value {
    let mut uids = sent.uids.clone();
    uids.sort_by_key(uid_key);
    let mut shown = Map::new();
    shown.insert("type".to_owned(), json!(sent.kind));
    shown.insert("priority".to_owned(), json!(sent.priority));
    shown.insert("uids".to_owned(), json!(uids));
    let said = [("id", &sent.id), ("fail_on_error", &sent.fail_on_error), ("diagnostic_name", &sent.diagnostic_name)];
    for (name, value) in said {
        if let Some(value) = value {
            shown.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(origin) = &sent.origin {
        shown.insert("origin".to_owned(), json!(origin));
    }
    let parameters = sent.parameters.clone().map_or(Value::Null, Value::Object);
    if with_parameters {
        shown.insert("parameters".to_owned(), parameters);
    } else {
        let mut text = String::new();
        canonical(&mut text, &parameters);
        let digest = BlobHash::of(text.as_bytes()).to_string();
        shown.insert("parameters_sha256_16".to_owned(), json!(digest.get(..16)));
    }
    Value::Object(shown)
}

/// JSON with sorted keys, no blanks, and nothing but ASCII.
fn canonical(out: &mut String, value: &Value) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                canonical(out, item);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            let mut keys: Vec<&String> = entries.keys().collect();
            keys.sort();
            out.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                canonical(out, &Value::String(key.clone()));
                out.push(':');
                canonical(out, entries.get(key).unwrap_or(&Value::Null));
            }
            out.push('}');
        }
        other => {
            for unit in other.to_string().chars() {
                if unit.is_ascii() {
                    out.push(unit);
                } else {
                    let mut pair = [0; 2];
                    for half in unit.encode_utf16(&mut pair) {
                        out.push_str(&format!("\\u{half:04x}"));
                    }
                }
            }
        }
    }
}
