//! Tasks on nodes as Fuel 9.2 places them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::resolver::Resolver;
use super::tolerance::allowed;
use super::{OnNodes, Placed, Tolerance, Uid, replaces, version_of};
use crate::conditions::{Condition, Models, Reading};
use crate::fault::Fault;
use crate::names::Name;
use crate::task::Task;
use crate::values;

/// What decides whether a task runs on a node.
pub trait Conditions {
    /// Whether it does.
    ///
    /// # Errors
    /// [`Fault`]: what the condition says.
    fn holds(&self, task: &Task, uid: &Uid) -> Result<bool, Fault>;
}

/// Conditions in the old language, on what is known of a node; what nobody set is nothing. Those in YAQL are an error.
pub struct Facts {
    /// What is known of every node, and of the cluster under `cluster`.
    pub common: Value,
}

impl Conditions for Facts {
    fn holds(&self, task: &Task, _: &Uid) -> Result<bool, Fault> {
        match task.get("condition") {
            None => Ok(true),
            Some(Value::String(text)) => {
                let cluster = self.common.get("cluster").cloned().unwrap_or_default();
                let models = [("cluster".to_owned(), cluster), ("settings".to_owned(), self.common.clone())];
                let text = without_values(text);
                Condition::read(&text, Reading::Fuel)?.holds(&Models::new(models, false))
            }
            Some(value) if value.get("yaql_exp").is_some() => {
                Err(Fault::Yaql(task.id().unwrap_or("a task").to_owned()))
            }
            Some(value) => Ok(values::is_true(value)),
        }
    }
}

/// Paths of settings as facts have them: without `.value` at their ends, and two sections moved up.
fn without_values(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("settings:") {
        let (before, path) = rest.split_at(at);
        out.push_str(before);
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | ':');
        let end = path.find(|c: char| !word(c)).unwrap_or(path.len());
        let (path, after) = path.split_at(end);
        let plain = path.strip_suffix(".value").unwrap_or(path);
        if let Some(name) = plain.strip_prefix("settings:additional_components.") {
            out.push_str(&format!("settings:{name}.enabled"));
        } else if let Some(name) = plain.strip_prefix("settings:common.") {
            out.push_str(&format!("settings:{name}"));
        } else {
            out.push_str(plain);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Places tasks. Groups give their nodes the tasks they list, and say how many of their nodes may fail.
///
/// `refuse_old` refuses tasks of a version below 2.0.0, as a setting of Fuel does.
///
/// # Errors
/// [`Fault::Invalid`] for a group that lists a task nobody has, [`Fault::TooOld`], and what conditions say.
pub fn place(
    conditions: &dyn Conditions,
    resolver: &Resolver<'_>,
    tasks: &[Task],
    refuse_old: bool,
) -> Result<OnNodes, Fault> {
    let mut placing = Placing { conditions, said: BTreeMap::new(), placed: OnNodes::default() };
    let mut known: BTreeMap<&str, &Task> = BTreeMap::new();
    let mut groups = Vec::new();
    for task in tasks {
        if task.is_group() {
            groups.push(task);
            continue;
        }
        let id = task.id().ok_or_else(|| Fault::Missing("id".to_owned()))?;
        let unversioned = matches!(task.kind(), Some("stage" | "skipped"));
        if !unversioned && version_of(task, [0, 0, 0])? < super::FIT && refuse_old {
            return Err(Fault::TooOld(id.to_owned()));
        }
        known.insert(id, task);
        let uids: Vec<Uid> = if task.kind() == Some("stage") {
            vec![None]
        } else {
            resolver.uids(roles_of(task), false)?.into_iter().map(Some).collect()
        };
        for uid in uids {
            placing.put(uid, task)?;
        }
    }
    for group in groups {
        let uids = resolver.uids(roles_of(group), false)?;
        if uids.is_empty() {
            continue;
        }
        for member in group.get("tasks").map_or(Ok(Vec::new()), values::names)? {
            let unknown = || Fault::Invalid(format!("Task {member} cannot be resolved"));
            let task = known.get(member.as_str()).ok_or_else(unknown)?;
            for uid in &uids {
                placing.put(Some(uid.clone()), task)?;
            }
        }
        let allowed = allowed(group.get("fault_tolerance"), uids.len());
        let name = group.id().unwrap_or("").to_owned();
        placing.placed.tolerance.push(Tolerance { name, uids, allowed });
    }
    placing.placed.of_mut(&None);
    placing.relate(resolver)
}

fn roles_of(task: &Task) -> Option<&Value> {
    task.get("tags").or_else(|| task.get("roles")).or_else(|| task.get("role")).or_else(|| task.get("groups"))
}

fn relations<'t>(task: &'t Task, old: &str, new: &str) -> &'t [Value] {
    task.get(new).or_else(|| task.get(old)).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

struct Placing<'a> {
    conditions: &'a dyn Conditions,
    said: BTreeMap<(Uid, String), &'a Task>,
    placed: OnNodes,
}

impl<'a> Placing<'a> {
    fn put(&mut self, uid: Uid, task: &'a Task) -> Result<(), Fault> {
        let id = task.id().unwrap_or("").to_owned();
        let kind = values::name(task.need("type")?)?;
        let still = matches!(kind.as_str(), "skipped" | "stage");
        let runs = !still && self.conditions.holds(task, &uid)?;
        let new = Placed {
            id: id.clone(),
            origin: id.clone(),
            kind: if runs { kind } else { "skipped".to_owned() },
            fail_on_error: Some(match task.get("fail_on_error") {
                Some(said) if runs => said.clone(),
                _ => Value::Bool(runs),
            }),
            ..Placed::default()
        };
        let tasks = self.placed.of_mut(&uid);
        match tasks.iter_mut().find(|task| task.id == id) {
            Some(old) if !replaces(&new.kind, &old.kind) => return Ok(()),
            Some(old) => *old = new,
            None => tasks.push(new),
        }
        self.said.insert((uid, id), task);
        Ok(())
    }

    fn relate(self, resolver: &Resolver<'_>) -> Result<OnNodes, Fault> {
        let mut done = self.placed.clone();
        for (uid, tasks) in &mut done.nodes {
            for placed in tasks {
                let Some(task) = self.said.get(&(uid.clone(), placed.id.clone())) else { continue };
                placed.requires = self.both(uid, task, resolver, ["requires", "cross-depends", "cross_depends"])?;
                placed.required_for =
                    self.both(uid, task, resolver, ["required_for", "cross-depended-by", "cross_depended_by"])?;
            }
        }
        Ok(done)
    }

    /// What a task says of its own node and of others; each relation once.
    fn both(
        &self,
        uid: &Uid,
        task: &Task,
        resolver: &Resolver<'_>,
        [own, old, new]: [&str; 3],
    ) -> Result<Vec<(String, Uid)>, Fault> {
        let mut found = Vec::new();
        for name in task.get(own).map_or(Ok(Vec::new()), values::names)? {
            self.related(&name, &[uid.clone(), None], None, &mut found)?;
        }
        for relation in relations(task, old, new).iter().filter(|relation| values::is_true(relation)) {
            let all = Value::from("*");
            let role = relation.get("tags").or_else(|| relation.get("role")).unwrap_or(&all);
            let itself = task.id().map(|id| (id, uid));
            let (uids, itself): (Vec<Uid>, _) = if role.as_str() == Some("self") {
                (vec![uid.clone()], None)
            } else if role.is_null() {
                (vec![None], None)
            } else {
                let any = relation.get("policy").and_then(Value::as_str) == Some("any");
                (resolver.uids(Some(role), any)?.into_iter().map(Some).collect(), itself)
            };
            let name = relation.get("name").ok_or_else(|| Fault::Missing("name".to_owned()))?;
            self.related(&values::name(name)?, &uids, itself, &mut found)?;
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    fn related(
        &self,
        name: &str,
        uids: &[Uid],
        itself: Option<(&str, &Uid)>,
        found: &mut Vec<(String, Uid)>,
    ) -> Result<(), Fault> {
        let pattern = Name::read(name)?;
        for uid in uids {
            for task in self.placed.of(uid).unwrap_or(&[]) {
                if itself != Some((task.id.as_str(), uid)) && pattern.fits(&task.id) {
                    found.push((task.id.clone(), uid.clone()));
                }
            }
        }
        Ok(())
    }
}
