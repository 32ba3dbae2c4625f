//! The graph: tasks, groups and stages as nodes, what they say of each other as edges.

pub mod check;
pub mod cycles;
pub mod part;

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::Fault;
use crate::names::Name;
use crate::task::Task;
use crate::values;
use crate::version::Version;

pub use part::{Direction, Part};

/// A node's place in its graph.
pub type Index = usize;

/// Most edges of a graph. A list of tasks that would make more is refused.
pub const MAX_EDGES: usize = 4_000_000;

/// Tasks and the edges between them.
///
/// Everything keeps the order in which it was first mentioned: that is what decides between tasks that do not wait for
/// each other. A name that is mentioned and never told is a node without fields.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    names: BTreeMap<String, Index>,
    nodes: Vec<(String, Task)>,
    out: Vec<Vec<Index>>,
    into: Vec<Vec<Index>>,
    edges: BTreeSet<(Index, Index)>,
}

impl Graph {
    /// Builds the graph of a list of tasks.
    ///
    /// # Errors
    /// [`Fault::Missing`] for a task without id, [`Fault::Kind`] for relations that are no lists of names,
    /// [`Fault::Pattern`], and [`Fault::Invalid`] beyond [`MAX_EDGES`].
    pub fn new(tasks: &[Task], version: Version) -> Result<Graph, Fault> {
        let mut graph = Graph::default();
        for task in tasks {
            graph.add(task, version)?;
        }
        if version.patterns() {
            graph.add_groups()?;
        }
        Ok(graph)
    }

    fn add(&mut self, task: &Task, version: Version) -> Result<(), Fault> {
        let id = values::name(task.need("id")?)?;
        let own = self.mention(&id);
        self.nodes[own].1.merge(task);
        for other in listed(task, "required_for")? {
            let other = self.mention(&other);
            self.edge(own, other)?;
        }
        for other in listed(task, "requires")? {
            let other = self.mention(&other);
            self.edge(other, own)?;
        }
        if !version.patterns() {
            for other in listed(task, "groups")? {
                let other = self.mention(&other);
                self.edge(own, other)?;
            }
            for other in listed(task, "tasks")? {
                let other = self.mention(&other);
                self.edge(other, own)?;
            }
        }
        if let Some(stage) = task.get("stage") {
            let stage = self.mention(&values::name(stage)?);
            self.edge(own, stage)?;
        }
        Ok(())
    }

    /// Memberships in a second pass, when all groups are known: entries of `groups` may be patterns.
    ///
    /// Fuel 8.0: an entry that fits no group left over by the entries before it is a group of that name.
    fn add_groups(&mut self) -> Result<(), Fault> {
        let mut patterns: BTreeMap<String, Name> = BTreeMap::new();
        let groups: Vec<Index> = (0..self.nodes.len()).filter(|index| self.nodes[*index].1.is_group()).collect();
        let mut at = 0;
        // Nodes that are mentioned on the way are looked at, too; they have no fields.
        while at < self.nodes.len() {
            let wanted = listed(&self.nodes[at].1, "groups")?;
            let members = listed(&self.nodes[at].1, "tasks")?;
            let mut left = groups.clone();
            for text in wanted {
                if !patterns.contains_key(&text) {
                    patterns.insert(text.clone(), Name::read(&text)?);
                }
                let Some(name) = patterns.get(&text) else { continue };
                let (fitting, others): (Vec<Index>, Vec<Index>) =
                    left.iter().partition(|group| name.fits(&self.nodes[**group].0));
                for group in &fitting {
                    self.edge(at, *group)?;
                }
                if fitting.is_empty() {
                    let phantom = self.mention(&text);
                    self.edge(at, phantom)?;
                }
                left = others;
            }
            for member in members {
                let member = self.mention(&member);
                self.edge(member, at)?;
            }
            at += 1;
        }
        Ok(())
    }

    fn mention(&mut self, name: &str) -> Index {
        if let Some(index) = self.names.get(name) {
            return *index;
        }
        let index = self.nodes.len();
        self.names.insert(name.to_owned(), index);
        self.nodes.push((name.to_owned(), Task::default()));
        self.out.push(Vec::new());
        self.into.push(Vec::new());
        index
    }

    fn edge(&mut self, from: Index, to: Index) -> Result<(), Fault> {
        if self.edges.insert((from, to)) {
            if self.edges.len() > MAX_EDGES {
                return Err(Fault::Invalid(format!("the tasks make more than {MAX_EDGES} edges")));
            }
            self.out[from].push(to);
            self.into[to].push(from);
        }
        Ok(())
    }

    /// How many nodes it has.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node of a name.
    pub fn find(&self, name: &str) -> Option<Index> {
        self.names.get(name).copied()
    }

    /// The node of a name that has to be there.
    ///
    /// # Errors
    /// [`Fault::Unknown`].
    pub fn need(&self, name: &str) -> Result<Index, Fault> {
        self.find(name).ok_or_else(|| Fault::Unknown(format!("The node {name} is not in the digraph.")))
    }

    /// A node's name.
    pub fn name(&self, index: Index) -> &str {
        &self.nodes[index].0
    }

    /// A node's task; without fields if it was only mentioned.
    pub fn task(&self, index: Index) -> &Task {
        &self.nodes[index].1
    }

    /// All nodes in order.
    pub fn nodes(&self) -> impl Iterator<Item = (Index, &str, &Task)> {
        self.nodes.iter().enumerate().map(|(index, (name, task))| (index, name.as_str(), task))
    }

    /// What waits for a node, in order.
    pub fn after(&self, index: Index) -> &[Index] {
        &self.out[index]
    }

    /// What a node waits for, in order.
    pub fn before(&self, index: Index) -> &[Index] {
        &self.into[index]
    }

    /// All edges, by the places of their ends.
    pub fn edges(&self) -> impl Iterator<Item = (Index, Index)> + '_ {
        self.edges.iter().copied()
    }

    /// Whether one waits for the other directly.
    pub fn has_edge(&self, from: Index, to: Index) -> bool {
        self.edges.contains(&(from, to))
    }

    /// All of it.
    pub fn whole(&self) -> Part<'_> {
        Part::new(self, (0..self.len()).collect())
    }

    /// Only these nodes, in this order, and the edges among them.
    pub fn part(&self, nodes: Vec<Index>) -> Part<'_> {
        Part::new(self, nodes)
    }

    /// The groups and the edges directly between them.
    pub fn groups(&self) -> Part<'_> {
        self.part(self.nodes().filter(|(_, _, task)| task.is_group()).map(|(index, ..)| index).collect())
    }
}

fn listed(task: &Task, field: &str) -> Result<Vec<String>, Fault> {
    task.get(field).map_or(Ok(Vec::new()), values::names)
}
