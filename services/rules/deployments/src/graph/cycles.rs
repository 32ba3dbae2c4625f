//! Who waits for himself, and along which path.

use std::collections::VecDeque;

use super::{Graph, Index};

/// Most cycles that are told.
pub const MAX_CYCLES: usize = 50;

impl Graph {
    /// Cycles, each as the names along it from one node back to the same. Every edge that lies on a cycle lies on one
    /// of those told, up to [`MAX_CYCLES`] of them.
    pub fn cycles(&self) -> Vec<Vec<String>> {
        let component = self.components();
        let mut told: Vec<Vec<Index>> = Vec::new();
        let mut covered = std::collections::BTreeSet::new();
        for (from, to) in self.edges() {
            if told.len() >= MAX_CYCLES {
                break;
            }
            if component[from] != component[to] || covered.contains(&(from, to)) {
                continue;
            }
            let Some(path) = self.shortest(to, from, &component) else { continue };
            let mut cycle = vec![from];
            cycle.extend(path);
            covered.extend(cycle.windows(2).filter_map(|pair| pair.first().copied().zip(pair.last().copied())));
            told.push(cycle);
        }
        told.iter().map(|cycle| cycle.iter().map(|node| self.name(*node).to_owned()).collect()).collect()
    }

    /// The shortest way within one component.
    fn shortest(&self, from: Index, to: Index, component: &[usize]) -> Option<Vec<Index>> {
        let mut came: Vec<Option<Index>> = vec![None; self.len()];
        let mut queue = VecDeque::from([from]);
        let mut seen = vec![false; self.len()];
        seen[from] = true;
        while let Some(node) = queue.pop_front() {
            if node == to {
                let mut path = vec![to];
                let mut at = to;
                while at != from {
                    at = came[at]?;
                    path.push(at);
                }
                path.reverse();
                return Some(path);
            }
            for next in self.after(node) {
                if component[*next] == component[from] && !seen[*next] {
                    seen[*next] = true;
                    came[*next] = Some(node);
                    queue.push_back(*next);
                }
            }
        }
        None
    }

    /// Which nodes reach each other: a number for each node, the same for those that do.
    fn components(&self) -> Vec<usize> {
        let mut finished = Vec::with_capacity(self.len());
        let mut seen = vec![false; self.len()];
        for start in 0..self.len() {
            self.search(start, false, &mut seen, &mut finished);
        }
        let mut component = vec![usize::MAX; self.len()];
        let mut seen = vec![false; self.len()];
        for (number, start) in finished.iter().rev().enumerate() {
            let mut members = Vec::new();
            self.search(*start, true, &mut seen, &mut members);
            for member in members {
                component[member] = number;
            }
        }
        component
    }

    /// Everything not seen yet that is reached from a node, each after what is reached from it.
    fn search(&self, start: Index, backward: bool, seen: &mut [bool], found: &mut Vec<Index>) {
        if std::mem::replace(&mut seen[start], true) {
            return;
        }
        let mut stack = vec![(start, 0)];
        while let Some((node, at)) = stack.last_mut() {
            let next = if backward { self.before(*node) } else { self.after(*node) };
            let child = next.get(*at).copied();
            *at += 1;
            match child {
                Some(child) => {
                    if !std::mem::replace(&mut seen[child], true) {
                        stack.push((child, 0));
                    }
                }
                None => {
                    found.push(*node);
                    stack.pop();
                }
            }
        }
    }
}
