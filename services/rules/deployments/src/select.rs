//! Parts of a graph that are asked for.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::graph::{Direction, Graph, Index};
use crate::marks::Marks;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    /// Only these tasks, if there are any.
    pub tasks: Vec<String>,
    /// Not these.
    pub skip: Vec<String>,
    /// From this one on: it and all that waits for it.
    pub start: Option<String>,
    /// Up to this one: it and all it waits for.
    pub end: Option<String>,
    /// These even though they are marked as skipped.
    pub include: Vec<String>,
}

impl Selection {
    /// Whether everything is asked for.
    pub fn is_everything(&self) -> bool {
        *self == Selection::default()
    }
}

/// The nodes between two: from one on, up to another, or on any way from one to the other. What comes last in an
/// order comes first here if only a start is given.
///
/// # Errors
/// [`Fault::Unknown`] for a name the graph does not have, or an end that does not come after the start.
pub fn between(graph: &Graph, start: Option<&str>, end: Option<&str>) -> Result<Vec<Index>, Fault> {
    let unknown = |name: &str| Fault::Unknown(name.to_owned());
    let mut part = graph.whole();
    if let Some(name) = start {
        let start = graph.find(name).ok_or_else(|| unknown(name))?;
        part = graph.part(part.reach(start, Direction::Forward));
    }
    if let Some(name) = end {
        let end = graph.find(name).filter(|end| part.has(*end)).ok_or_else(|| unknown(name))?;
        part = graph.part(part.reach(end, Direction::Backward));
    }
    Ok(part.nodes().to_vec())
}

/// What of it would run: no groups, no stages, nothing that is skipped unless it is included.
///
/// # Errors
/// As [`between`], and [`Fault::Missing`] for a name that was only mentioned.
pub fn runnable(
    graph: &Graph,
    marks: &Marks,
    start: Option<&str>,
    end: Option<&str>,
    include: &[String],
) -> Result<Vec<Index>, Fault> {
    let mut chosen = Vec::new();
    for index in between(graph, start, end)? {
        if !marks.leaves_out(graph, index)? || include.iter().any(|name| name == graph.name(index)) {
            chosen.push(index);
        }
    }
    Ok(chosen)
}

/// The marks that a selection leaves: everything else is left out, and keeps its edges.
///
/// # Errors
/// [`Fault::Invalid`] names every task that the graph does not have, with the nearest that it has.
pub fn apply(graph: &Graph, selection: &Selection) -> Result<Marks, Fault> {
    let named = selection.tasks.iter().chain(&selection.skip).chain(&selection.include);
    let named = named.chain(&selection.start).chain(&selection.end);
    let unknown: BTreeSet<&String> = named.filter(|name| graph.find(name).is_none()).collect();
    if !unknown.is_empty() {
        let told: Vec<String> = unknown
            .into_iter()
            .map(|name| graph.nearest(name).map_or_else(|| name.clone(), |near| format!("{name} (is {near} meant?)")))
            .collect();
        return Err(Fault::Invalid(format!("Tasks {} are not present in deployment graph", told.join(","))));
    }
    let stored = Marks::stored(graph);
    let mut wanted: Vec<String> = selection.tasks.clone();
    if selection.start.is_some() || selection.end.is_some() {
        let (start, end) = (selection.start.as_deref(), selection.end.as_deref());
        let within = runnable(graph, &stored, start, end, &selection.include)?;
        let within: Vec<String> = within.into_iter().map(|index| graph.name(index).to_owned()).collect();
        wanted =
            if wanted.is_empty() { within } else { wanted.into_iter().filter(|one| within.contains(one)).collect() };
        if wanted.is_empty() {
            // A list without tasks would mean all of them.
            return Ok(stored.without(graph, &graph.nodes().map(|(_, name, _)| name.to_owned()).collect::<Vec<_>>()));
        }
    } else if wanted.is_empty() {
        let included = |(_, name, task): &(Index, &str, &crate::task::Task)| {
            !task.is_marked_skipped() || selection.include.iter().any(|one| one == name)
        };
        wanted = graph.nodes().filter(included).map(|(_, name, _)| name.to_owned()).collect();
    }
    Ok(stored.only(graph, &wanted)?.without(graph, &selection.skip))
}
