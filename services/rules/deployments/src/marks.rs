//! Which tasks of a graph are left out.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fault::Fault;
use crate::graph::{Graph, Index};
use crate::values;

/// For each node of a graph whether it is marked to be left out. Its edges stay: what waits for it waits for what it
/// waited for.
#[derive(Clone, Debug)]
pub struct Marks(Vec<bool>);

impl Marks {
    /// As the tasks say themselves.
    pub fn stored(graph: &Graph) -> Marks {
        Marks(graph.nodes().map(|(_, _, task)| task.is_marked_skipped()).collect())
    }

    /// Only these tasks; no names at all leaves everything as it is. Groups and stages stay what they are.
    ///
    /// # Errors
    /// [`Fault::Missing`] if the graph has names that no task has.
    pub fn only(mut self, graph: &Graph, names: &[String]) -> Result<Marks, Fault> {
        if names.is_empty() {
            return Ok(self);
        }
        let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        for (index, _, task) in graph.nodes() {
            let id = values::name(task.need("id")?)?;
            if wanted.contains(id.as_str()) {
                self.0[index] = false;
            } else if !task.is_internal()? {
                self.0[index] = true;
            }
        }
        Ok(self)
    }

    /// All but these tasks.
    pub fn without(mut self, graph: &Graph, names: &[String]) -> Marks {
        for index in names.iter().filter_map(|name| graph.find(name)) {
            if graph.task(index).is_internal().is_ok_and(|internal| !internal) {
                self.0[index] = true;
            }
        }
        self
    }

    /// Only tasks that are to run again for all of these reasons (`reexecute_on`); no reasons leave all as it is.
    ///
    /// # Errors
    /// As [`Marks::only`].
    pub fn reexecutable(mut self, graph: &Graph, reasons: &[String]) -> Result<Marks, Fault> {
        if reasons.is_empty() {
            return Ok(self);
        }
        for (index, _, task) in graph.nodes() {
            let on = match task.get("reexecute_on") {
                None | Some(Value::Null) => None,
                Some(value) => Some(values::names(value)?),
            };
            if on.is_some_and(|on| reasons.iter().all(|reason| on.contains(reason))) {
                self.0[index] = false;
            } else if !task.is_internal()? {
                self.0[index] = true;
            }
        }
        Ok(self)
    }

    /// Whether a node is left out of what runs: it is internal, or marked.
    ///
    /// # Errors
    /// [`Fault::Missing`] if it was only mentioned.
    pub fn leaves_out(&self, graph: &Graph, index: Index) -> Result<bool, Fault> {
        Ok(graph.task(index).is_internal()? || self.is_marked(index))
    }

    /// Whether it is marked.
    pub fn is_marked(&self, index: Index) -> bool {
        self.0.get(index).copied().unwrap_or(false)
    }
}

/// The tasks of a group in the order in which they run on a node: what has an edge to the group, out of the order of the
/// whole graph, so that an order that runs through others is kept.
///
/// # Errors
/// [`Fault::Unknown`] if there is no such group, [`Fault::Missing`] if a member was only mentioned.
pub fn members(graph: &Graph, order: &[Index], marks: &Marks, group: &str) -> Result<Vec<Index>, Fault> {
    let group = graph.need(group)?;
    let belongs: BTreeSet<Index> = graph.before(group).iter().copied().collect();
    let mut members = Vec::with_capacity(belongs.len());
    for index in order.iter().filter(|index| belongs.contains(index)) {
        if !marks.leaves_out(graph, *index)? {
            members.push(*index);
        }
    }
    Ok(members)
}
