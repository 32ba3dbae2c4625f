//! What an export is asked for, and which part of that can be proven.

use std::collections::BTreeSet;
use std::fmt;

use gatelog_record::draft::gate::FreezeOutcome;
use gatelog_record::event::GateEvent;
use gatelog_record::{ActorId, Domain, Event, EventRecord, Partition, Timestamp};
use serde_json::Value as Json;

use crate::checkpoint::number;
use crate::tree::Leaf;

/// One end of a range; both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// As far as the log goes.
    Open,
    /// This event of the gate.
    Sequence(u64),
    /// This moment, by when events were recorded.
    Time(Timestamp),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Open => f.write_str("all"),
            Bound::Sequence(sequence) => write!(f, "event {sequence}"),
            Bound::Time(time) => write!(f, "time {} {time}", time.0),
        }
    }
}

impl Bound {
    /// What [`Bound`] prints.
    pub(crate) fn read(text: &str) -> Option<Bound> {
        match text.split_once(' ') {
            None => (text == "all").then_some(Bound::Open),
            Some(("event", sequence)) => number(sequence).map(Bound::Sequence),
            Some(("time", time)) => {
                let bound = Bound::Time(number(time.split_once(' ')?.0).map(Timestamp)?);
                (bound.to_string() == text).then_some(bound)
            }
            Some(_) => None,
        }
    }
}

/// Where an event lies to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before it.
    Before,
    /// In it.
    Inside,
    /// After it.
    After,
}

/// What an export is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// From here.
    pub from: Bound,
    /// Up to here.
    pub to: Bound,
    /// Only of this tenant: events of the gate with this key.
    pub tenant: Option<String>,
    /// Only what this actor asked for.
    pub actor: Option<ActorId>,
    /// Only of this project (canonical name): events that name it, or one of its items or their builds.
    pub project: Option<String>,
}

impl Default for Selection {
    fn default() -> Self {
        Selection { from: Bound::Open, to: Bound::Open, tenant: None, actor: None, project: None }
    }
}

impl Selection {
    /// Where an event lies to the range.
    pub fn side(&self, leaf: &Leaf) -> Side {
        let before = match self.from {
            Bound::Open => false,
            Bound::Sequence(first) => leaf.sequence < first,
            Bound::Time(first) => leaf.recorded_at < first,
        };
        let after = match self.to {
            Bound::Open => false,
            Bound::Sequence(last) => leaf.sequence > last,
            Bound::Time(last) => leaf.recorded_at > last,
        };
        match (before, after) {
            (true, _) => Side::Before,
            (false, true) => Side::After,
            (false, false) => Side::Inside,
        }
    }

    /// Whether an event in the range may be one of those asked for, by what its leaf says alone.
    pub fn takes(&self, leaf: &Leaf) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == leaf.key)
            && self.actor.is_none_or(|actor| actor == leaf.actor)
    }

    /// Whether the leaves show that nothing that was asked for is missing. Which project an event is of is not in its
    /// leaf, so of a project that cannot be shown.
    pub fn shows_all(&self) -> bool {
        self.project.is_none()
    }

    /// Whether a partition can hold anything asked for. Tenants and projects are the gate's, and so are sequences.
    pub fn concerns(&self, partition: Partition) -> bool {
        let of_gate = [self.from, self.to].iter().any(|bound| matches!(bound, Bound::Sequence(_)));
        partition.domain == Domain::Gate || !(of_gate || self.tenant.is_some() || self.project.is_some())
    }
}

/// Which events are of a project.
#[derive(Clone, Debug)]
pub(crate) struct ProjectWalk {
    project: String,
    /// Ids of its items, and of their buildsets and builds, as they are printed.
    known: BTreeSet<String>,
}

impl ProjectWalk {
    pub(crate) fn new(project: &str) -> ProjectWalk {
        ProjectWalk { project: project.to_owned(), known: BTreeSet::new() }
    }

    /// Whether this event is of the project. Every event of the history must be asked about, in order: what an event
    /// says of an item's project counts for all that follow.
    pub(crate) fn of_project(&mut self, event: &EventRecord) -> bool {
        let Event::Gate(gate) = &event.event else { return false };
        match gate {
            GateEvent::ItemEnqueued(enqueued)
                if enqueued.subjects.iter().any(|subject| subject.project == self.project) =>
            {
                self.known.insert(enqueued.item.to_string());
            }
            GateEvent::BuildsetOpened(opened) if self.known.contains(&opened.item.to_string()) => {
                self.known.insert(opened.buildset.to_string());
            }
            GateEvent::Frozen(frozen) if self.known.contains(&frozen.item.to_string()) => {
                if let FreezeOutcome::Frozen { .. } = frozen.done.outcome {
                    self.known.extend(frozen.builds.iter().map(ToString::to_string));
                }
            }
            _ => {}
        }
        self.names(&event.to_json()["body"])
    }

    fn names(&self, json: &Json) -> bool {
        match json {
            Json::String(text) => *text == self.project || self.known.contains(text),
            Json::Array(items) => items.iter().any(|item| self.names(item)),
            Json::Object(fields) => fields.values().any(|value| self.names(value)),
            _ => false,
        }
    }
}
