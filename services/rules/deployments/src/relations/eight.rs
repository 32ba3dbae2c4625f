//! Tasks on nodes as Fuel 8.0 places them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::resolver::{Resolver, These};
use super::{FIT, OnNodes, Placed, Uid, replaces, version_of};
use crate::fault::Fault;
use crate::hooks::{Places, Sent, Workshop};
use crate::names::Name;
use crate::task::Task;
use crate::values;

const PLUGINS_BEFORE: &str = "_plugin_pre_deployment_hook";
const PLUGINS_AFTER: &str = "_plugin_post_deployment_hook";

/// Places tasks. Of a task that becomes several, the first is `id_start`, the last `id_end`, and they wait for each
/// other; who waits for `id` waits for the last. `only` names what runs, if it names anything: everything else is
/// skipped in its place.
///
/// # Errors
/// [`Fault::TooOld`] for a task of a version below 2.0.0 that has somewhere to run, and what its making says.
pub fn place(
    workshop: &Workshop<'_>,
    resolver: &Resolver<'_>,
    tasks: &[Task],
    only: &[String],
) -> Result<OnNodes, Fault> {
    let mut placing = Placing {
        workshop,
        resolver,
        only: only.iter().map(String::as_str).collect(),
        unmarked: BTreeSet::new(),
        origins: BTreeMap::new(),
        waiting: BTreeMap::new(),
        placed: OnNodes::default(),
    };
    let hooks = plugin_hooks();
    let mut known: BTreeMap<&str, &Task> = BTreeMap::new();
    let mut groups = Vec::new();
    for task in tasks.iter().chain(&hooks) {
        if task.is_group() {
            groups.push(task);
            continue;
        }
        let id = task.id().ok_or_else(|| Fault::Missing("id".to_owned()))?;
        known.insert(id, task);
        placing.place(task, resolver, !placing.is_wanted(id))?;
    }
    for group in groups {
        let skipped = !placing.is_wanted(group.id().unwrap_or(""));
        let uids = resolver.uids(group.get("role"), false)?;
        for member in group.get("tasks").map_or(Ok(Vec::new()), values::names)? {
            let unknown = || Fault::Invalid(format!("Task {member} cannot be resolved"));
            let task = known.get(member.as_str()).ok_or_else(unknown)?;
            placing.place(task, &These(uids.clone()), skipped && !placing.is_wanted(&member))?;
        }
    }
    placing.placed.of_mut(&None);
    placing.relate()
}

fn plugin_hooks() -> Vec<Task> {
    let hook = |id: &str, requires: &str, required_for: Option<&str>| {
        let mut fields = serde_json::Map::new();
        for (name, value) in [("id", id), ("type", id), ("version", "2.0.0")] {
            fields.insert(name.to_owned(), Value::from(value));
        }
        fields.insert("requires".to_owned(), serde_json::json!([requires]));
        if let Some(name) = required_for {
            fields.insert("required_for".to_owned(), serde_json::json!([name]));
        }
        Task::from(fields)
    };
    vec![
        hook(PLUGINS_BEFORE, "pre_deployment_end", Some("deploy_start")),
        hook(PLUGINS_AFTER, "post_deployment_end", None),
    ]
}

/// What a placed task says of others, before it is known who these are.
#[derive(Clone, Default)]
struct Waiting {
    requires: Vec<String>,
    required_for: Vec<String>,
    cross_depends: Vec<Value>,
    cross_depended_by: Vec<Value>,
    exactly: Vec<(String, Uid)>,
}

struct Placing<'a> {
    workshop: &'a Workshop<'a>,
    resolver: &'a Resolver<'a>,
    only: BTreeSet<&'a str>,
    /// Tasks whose own `skipped: true` has been heeded once; Fuel forgets it then.
    unmarked: BTreeSet<String>,
    origins: BTreeMap<String, String>,
    waiting: BTreeMap<(Uid, String), Waiting>,
    placed: OnNodes,
}

impl Placing<'_> {
    fn is_wanted(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.contains(id)
    }

    fn place(&mut self, task: &Task, places: &dyn Places, skip: bool) -> Result<(), Fault> {
        let id = task.id().unwrap_or("").to_owned();
        let kind = task.need("type")?.as_str().unwrap_or("");
        let hook = matches!(kind, PLUGINS_BEFORE | PLUGINS_AFTER);
        let still = matches!(kind, "skipped" | "stage");
        let skipped = skip
            || (task.is_marked_skipped() && self.unmarked.insert(id.clone()))
            || !(hook || still || self.workshop.wants_on_nodes(task, places)?);
        let made = match kind {
            PLUGINS_BEFORE => self.workshop.hooks_of_plugins(true, places)?,
            PLUGINS_AFTER => self.workshop.hooks_of_plugins(false, places)?,
            "skipped" | "stage" => vec![self.workshop.nothing(still_places(task, places)?, task)],
            _ => self.workshop.make_on_nodes(task, places)?,
        };
        if made.is_empty() {
            return Ok(());
        }
        if kind != "stage" && version_of(task, [1, 0, 0])? < FIT {
            return Err(Fault::TooOld(id));
        }
        for (one, name, waiting) in chain(task, made)? {
            self.origins.insert(name.clone(), id.clone());
            let kind = if skipped { "skipped".to_owned() } else { one.kind };
            for uid in one.uids {
                self.put(uid, &kind, &name, &id, one.fail_on_error.as_ref(), &waiting);
            }
        }
        Ok(())
    }

    fn put(&mut self, uid: Uid, kind: &str, name: &str, origin: &str, fail: Option<&Value>, waiting: &Waiting) {
        let tasks = self.placed.of_mut(&uid);
        let new = Placed {
            id: name.to_owned(),
            origin: origin.to_owned(),
            kind: kind.to_owned(),
            fail_on_error: fail.cloned(),
            ..Placed::default()
        };
        match tasks.iter_mut().find(|task| task.id == name) {
            Some(old) if !replaces(kind, &old.kind) => return,
            Some(old) => *old = new,
            None => tasks.push(new),
        }
        self.waiting.insert((uid, name.to_owned()), waiting.clone());
    }

    fn relate(self) -> Result<OnNodes, Fault> {
        let mut done = self.placed.clone();
        for (uid, tasks) in &mut done.nodes {
            for task in tasks {
                let Some(waiting) = self.waiting.get(&(uid.clone(), task.id.clone())) else { continue };
                let here = [uid.clone(), None];
                for name in &waiting.requires {
                    self.related(name, &here, false, &mut task.requires)?;
                }
                for name in &waiting.required_for {
                    self.related(name, &here, true, &mut task.required_for)?;
                }
                self.across(uid, &waiting.cross_depends, false, &mut task.requires)?;
                self.across(uid, &waiting.cross_depended_by, true, &mut task.required_for)?;
                task.requires.extend(waiting.exactly.iter().cloned());
            }
        }
        Ok(done)
    }

    fn across(&self, uid: &Uid, relations: &[Value], after: bool, found: &mut Vec<(String, Uid)>) -> Result<(), Fault> {
        for relation in relations {
            let all = Value::from("*");
            let role = relation.get("role").unwrap_or(&all);
            let uids: Vec<Uid> = if role.as_str() == Some("self") {
                vec![uid.clone()]
            } else {
                let any = relation.get("policy").and_then(Value::as_str) == Some("any");
                self.resolver.uids(Some(role), any)?.into_iter().map(Some).collect()
            };
            let name = relation.get("name").ok_or_else(|| Fault::Missing("name".to_owned()))?;
            self.related(&values::name(name)?, &uids, after, found)?;
        }
        Ok(())
    }

    /// The tasks of a name on some nodes. Of a task that became several, the last one, or the first for who comes
    /// before.
    fn related(&self, name: &str, uids: &[Uid], after: bool, found: &mut Vec<(String, Uid)>) -> Result<(), Fault> {
        let pattern = Name::read(name)?;
        for uid in uids {
            let tasks = self.placed.of(uid).ok_or(Fault::EmptyNode)?;
            let mut seen: BTreeSet<&str> = BTreeSet::new();
            for task in tasks {
                if task.id == name {
                    found.push((task.id.clone(), uid.clone()));
                    continue;
                }
                let origin = self.origins.get(&task.id).map_or(task.id.as_str(), String::as_str);
                if seen.contains(origin) || !pattern.fits(origin) {
                    continue;
                }
                seen.insert(origin);
                let end = if after { "_start" } else { "_end" };
                let id = if origin == task.id { task.id.clone() } else { format!("{origin}{end}") };
                found.push((id, uid.clone()));
            }
        }
        Ok(())
    }
}

/// Where what does nothing stands: with nothing said, only where stages are passed.
fn still_places(task: &Task, places: &dyn Places) -> Result<Vec<Uid>, Fault> {
    match task.get("groups").or_else(|| task.get("role")).filter(|said| !said.is_null()) {
        None => Ok(vec![None]),
        said => places.of(said),
    }
}

/// Names what a task became, and divides among it what the task said of others.
fn chain(task: &Task, made: Vec<Sent>) -> Result<Vec<(Sent, String, Waiting)>, Fault> {
    let id = task.id().unwrap_or("");
    let names = |field: &str| task.get(field).map_or(Ok(Vec::new()), values::names);
    let list = |field: &str| task.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let last = made.len().saturating_sub(1);
    let mut parts: Vec<(Sent, String, Waiting)> = Vec::with_capacity(made.len());
    for (place, sent) in made.into_iter().enumerate() {
        let name = match place {
            _ if last == 0 => id.to_owned(),
            0 => format!("{id}_start"),
            _ if place == last => format!("{id}_end"),
            _ => format!("{id}#{place}"),
        };
        let mut waiting = Waiting::default();
        if place == 0 {
            waiting.requires = names("requires")?;
            waiting.cross_depends = list("cross-depends");
        }
        if place == last {
            waiting.required_for = names("required_for")?;
            waiting.cross_depended_by = list("cross-depended-by");
        }
        if let Some((before, name, _)) = parts.last() {
            if before.uids == sent.uids {
                waiting.requires.push(name.clone());
            } else {
                waiting.exactly.extend(before.uids.iter().map(|uid| (name.clone(), uid.clone())));
            }
        }
        parts.push((sent, name, waiting));
    }
    Ok(parts)
}
