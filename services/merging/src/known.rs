//! Merges that were made before.
//!
//! Each request lists all changes ahead of its own, and of a queue each request but one was asked before all but the last:
//! what comes of a change on a state follows from the two, the mode and the date, so it is looked up. With it stays
//! what is known of where the state comes from, for the change that comes next. The cost of a queue then grows
//! with its length and not with its square. Nothing here is on disk; a commit that is gone is made again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use git2::Oid;

use crate::line::Line;
use crate::names::ProjectKey;
use crate::pick::MergeMode;
use crate::prepare::PreparedItem;

/// How many merges are known at once.
const MERGES_MAX: usize = 8192;
/// A merge that changes more files than this is made again.
const PATHS_MAX: usize = 256;
/// How many states are known with where they come from.
const LINES_MAX: usize = 32;

/// All that a merge follows from, but for its message and its project.
pub(crate) type Cause = (Oid, Oid, MergeMode, i64);

/// A merge that was made.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    /// The message of its commit.
    pub message: String,
    /// What it came to.
    pub item: PreparedItem,
    /// The state after it.
    pub commit: Oid,
    /// The commits made for it.
    pub made: Arc<[Oid]>,
}

/// What is known, the oldest goes first.
#[derive(Debug, Default)]
pub(crate) struct Known {
    merges: BTreeMap<ProjectKey, BTreeMap<Cause, Arc<Made>>>,
    order: VecDeque<(ProjectKey, Cause)>,
    lines: VecDeque<(ProjectKey, Oid, Line)>,
}

impl Known {
    /// The same merge, with the same message.
    pub(crate) fn merge(&self, project: &ProjectKey, cause: &Cause, message: &str) -> Option<Arc<Made>> {
        let made = self.merges.get(project)?.get(cause)?;
        (made.message == message).then(|| Arc::clone(made))
    }

    /// Notes a merge.
    pub(crate) fn note(&mut self, project: &ProjectKey, cause: Cause, merge: Made) {
        if merge.item.files.truncated || merge.item.files.paths.len() > PATHS_MAX {
            return;
        }
        let of_project = self.merges.entry(project.clone()).or_default();
        if of_project.insert(cause, Arc::new(merge)).is_none() {
            self.order.push_back((project.clone(), cause));
        }
        if self.order.len() > MERGES_MAX
            && let Some((project, cause)) = self.order.pop_front()
            && let Some(of_project) = self.merges.get_mut(&project)
        {
            of_project.remove(&cause);
            if of_project.is_empty() {
                self.merges.remove(&project);
            }
        }
    }

    /// Where a state comes from.
    pub(crate) fn line(&self, project: &ProjectKey, state: Oid) -> Option<Line> {
        let found = self.lines.iter().rev().find(|(of, at, _)| *at == state && of == project);
        found.map(|(.., line)| line.clone())
    }

    /// Notes where a state comes from, unless that has become too much to carry along.
    pub(crate) fn note_line(&mut self, project: &ProjectKey, state: Oid, line: Line) {
        if line.is_long() || self.lines.iter().any(|(of, at, _)| *at == state && of == project) {
            return;
        }
        if self.lines.len() >= LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back((project.clone(), state, line));
    }
}
