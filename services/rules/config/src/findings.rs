//! What loading finds, in the order in which Zuul finds it.

use std::collections::BTreeSet;

use crate::objects::nodeset::{Nodeset, NodesetContent};
use crate::problem::{Problem, Severity};
use crate::timers::TIMER_INVALID;

/// A problem and the attempt that met it.
///
/// We tell everything that is wrong with a stanza; Zuul stops at the first error of each attempt to
/// make something of it. The attempt's number keeps the two comparable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The problem.
    pub problem: Problem,
    /// Which attempt met it; counted from 1.
    pub attempt: u32,
    /// Whether it is about a file as a whole, or a branch, and not about an object in it.
    pub of_file: bool,
    /// Whether Zuul does not say where. It forgets the place of a nodeset without nodes of its own.
    pub nowhere: bool,
}

/// Collects findings.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    all: Vec<Finding>,
    attempt: u32,
    nowhere: bool,
}

impl Findings {
    /// Begins the next attempt.
    pub(crate) fn begin(&mut self) {
        self.attempt = self.attempt.saturating_add(1);
        self.nowhere = false;
    }

    /// Begins the next attempt, which is about a nodeset.
    pub(crate) fn begin_nodeset(&mut self, nodeset: &Nodeset) {
        self.begin();
        self.nowhere = match &nodeset.content {
            NodesetContent::Shape(shape) => shape.nodes.is_empty(),
            NodesetContent::Alternatives(_) => true,
        };
    }

    /// Adds a problem to the attempt under way.
    pub(crate) fn push(&mut self, problem: Problem) {
        self.all.push(Finding { problem, attempt: self.attempt, of_file: false, nowhere: self.nowhere });
    }

    /// Adds a problem of a file as a whole to the attempt under way.
    pub(crate) fn push_of_file(&mut self, problem: Problem) {
        self.all.push(Finding { problem, attempt: self.attempt, of_file: true, nowhere: false });
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether an error came after the first `before` findings.
    pub(crate) fn failed_since(&self, before: usize) -> bool {
        self.all.iter().skip(before).any(|finding| finding.problem.is_error())
    }

    /// All of them, in order.
    pub(crate) fn into_vec(self) -> Vec<Finding> {
        self.all
    }
}

/// The problems for people: each once, however often it was met.
pub fn problems(findings: Vec<Finding>) -> Vec<Problem> {
    let mut seen = BTreeSet::new();
    findings.into_iter().map(|finding| finding.problem).filter(|problem| seen.insert(problem.clone())).collect()
}

/// What Zuul tells of these: of each attempt what it meets up to the first error; where the shape of a stanza is wrong,
/// that alone; nothing that only we look for.
pub fn as_told(findings: &[Finding]) -> Vec<&Finding> {
    let mut told = Vec::new();
    let mut rest = findings;
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|finding| finding.attempt == first.attempt).count();
        let (attempt, after) = rest.split_at(count);
        rest = after;
        let problems = || attempt.iter().filter(|finding| !is_ours(&finding.problem));
        if let Some(finding) = problems().find(|finding| finding.problem.is_of_schema()) {
            told.push(finding);
            continue;
        }
        for finding in problems() {
            told.push(finding);
            if finding.problem.is_error() {
                break;
            }
        }
    }
    told
}

/// Whether Zuul says nothing of it where it tells of errors.
fn is_ours(problem: &Problem) -> bool {
    problem.severity == Severity::Notice || problem.code == TIMER_INVALID
}
