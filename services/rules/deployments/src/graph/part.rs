//! A part of a graph: some of its nodes in an order, and the edges among them.

use super::{Graph, Index};
use crate::fault::Fault;

/// Which way edges are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To what waits.
    Forward,
    /// To what is waited for.
    Backward,
}

/// Some nodes of a graph.
#[derive(Clone, Debug)]
pub struct Part<'g> {
    graph: &'g Graph,
    nodes: Vec<Index>,
    inside: Vec<bool>,
}

impl<'g> Part<'g> {
    pub(super) fn new(graph: &'g Graph, nodes: Vec<Index>) -> Part<'g> {
        let mut inside = vec![false; graph.len()];
        for node in &nodes {
            inside[*node] = true;
        }
        Part { graph, nodes, inside }
    }

    /// Its nodes in order.
    pub fn nodes(&self) -> &[Index] {
        &self.nodes
    }

    /// Whether a node belongs to it.
    pub fn has(&self, node: Index) -> bool {
        self.inside.get(node).copied().unwrap_or(false)
    }

    /// What waits for a node, within this part.
    pub fn after(&self, node: Index) -> impl Iterator<Item = Index> + '_ {
        self.graph.after(node).iter().copied().filter(|other| self.inside[*other])
    }

    /// What a node waits for, within this part.
    pub fn before(&self, node: Index) -> impl Iterator<Item = Index> + '_ {
        self.graph.before(node).iter().copied().filter(|other| self.inside[*other])
    }

    /// The order in which the nodes can be taken: each after all that it waits for.
    ///
    /// Of nodes that do not wait for each other, the later comes first: the search goes into the last of what waits
    /// for a node before it goes into the first. Fuel's order is this one, so it is ours.
    ///
    /// # Errors
    /// [`Fault::Cycle`], naming one node of a cycle; [`Graph::cycles`] tells the whole path.
    pub fn order(&self) -> Result<Vec<Index>, Fault> {
        let (mut open, mut done) = (vec![false; self.graph.len()], vec![false; self.graph.len()]);
        let mut finished = Vec::with_capacity(self.nodes.len());
        let mut stack = Vec::new();
        for start in &self.nodes {
            if done[*start] {
                continue;
            }
            stack.push(*start);
            while let Some(node) = stack.last().copied() {
                if done[node] {
                    stack.pop();
                    continue;
                }
                open[node] = true;
                let before = stack.len();
                for next in self.after(node).filter(|next| !done[*next]) {
                    if open[next] {
                        return Err(Fault::Cycle(self.graph.name(next).to_owned()));
                    }
                    stack.push(next);
                }
                if stack.len() == before {
                    done[node] = true;
                    finished.push(node);
                    stack.pop();
                }
            }
        }
        finished.reverse();
        Ok(finished)
    }

    /// Whether no node waits for itself, however far away.
    pub fn is_acyclic(&self) -> bool {
        self.order().is_ok()
    }

    /// A node and all that is reached from it, each after everything that is reached from it.
    pub fn reach(&self, start: Index, direction: Direction) -> Vec<Index> {
        if !self.has(start) {
            return Vec::new();
        }
        let turned = (direction == Direction::Backward).then(|| self.turned());
        let next_of = |node: Index| -> Vec<Index> {
            turned.as_ref().map_or_else(|| self.after(node).collect(), |turned| turned[node].clone())
        };
        let mut seen = vec![false; self.graph.len()];
        let mut reached = Vec::new();
        let mut stack = vec![(start, next_of(start), 0)];
        seen[start] = true;
        while let Some((node, next, at)) = stack.last_mut() {
            let found = next.get(*at).copied();
            *at += 1;
            match found {
                Some(child) if !seen[child] => {
                    seen[child] = true;
                    stack.push((child, next_of(child), 0));
                }
                Some(_) => {}
                None => {
                    reached.push(*node);
                    stack.pop();
                }
            }
        }
        reached
    }

    /// What each node waits for, in the order of this part's nodes.
    fn turned(&self) -> Vec<Vec<Index>> {
        let mut turned = vec![Vec::new(); self.graph.len()];
        for node in &self.nodes {
            for next in self.after(*node) {
                turned[next].push(*node);
            }
        }
        turned
    }
}
