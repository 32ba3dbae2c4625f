//! Queues: which projects are gated together.

use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::schema::{Attribute, Kind, Sink, Stanza, attribute};
use crate::yaml::{Mark, Node};

/// Attributes of a queue.
pub const TABLE: &[Attribute] = &[
    attribute("name", Kind::Text).required(),
    attribute("type", Kind::Choice(&["all-branches", "per-branch", "branch-assigned"])).default("all-branches"),
    attribute("per-branch", Kind::Bool).default("false"),
    attribute("allow-circular-dependencies", Kind::Bool).default("false"),
    attribute("dependencies-by-topic", Kind::Bool).default("false"),
];

/// How the branches of a queue's projects share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueType {
    /// One queue for all branches.
    #[default]
    AllBranches,
    /// One queue for each branch.
    PerBranch,
    /// By the branch matchers of the project stanzas that name it.
    BranchAssigned,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// How branches share it.
    pub kind: QueueType,
    /// Whether changes may depend on each other in a circle.
    pub allow_circular_dependencies: bool,
    /// Whether changes of one topic depend on each other.
    pub dependencies_by_topic: bool,
    /// Where it is defined; built in when a project only names it.
    pub place: Place,
}

impl Queue {
    /// Zuul: a project may name a queue that nobody defines.
    pub fn implicit(name: &str) -> Self {
        Queue {
            name: name.to_owned(),
            kind: QueueType::AllBranches,
            allow_circular_dependencies: false,
            dependencies_by_topic: false,
            place: Place::default(),
        }
    }
}

/// Reads a queue.
pub fn read(sink: &mut Sink<'_>, node: &Node, mark: Mark) -> Option<Queue> {
    let mut stanza = Stanza::open(sink, "queue", node, mark, &[TABLE])?;
    let per_branch = stanza.bool("per-branch");
    if let (Some(_), Some(entry)) = (stanza.entry("type"), stanza.entry("per-branch")) {
        let message = format!("{} has both `type` and `per-branch`", stanza.title());
        stanza.fail(
            "exclusive-attributes",
            entry.mark,
            Some("per-branch"),
            message,
            "keep `type`, remove `per-branch`",
        );
    }
    let kind = match stanza.text("type").as_deref() {
        Some("per-branch") => QueueType::PerBranch,
        Some("branch-assigned") => QueueType::BranchAssigned,
        _ if per_branch == Some(true) => QueueType::PerBranch,
        _ => QueueType::AllBranches,
    };
    let circular = stanza.bool("allow-circular-dependencies").unwrap_or(false);
    let by_topic = stanza.bool("dependencies-by-topic").unwrap_or(false);
    if by_topic && !circular {
        let mark = stanza.entry("dependencies-by-topic").map_or(mark, |entry| entry.mark);
        let message =
            format!("{} uses dependencies-by-topic, but does not allow circular dependencies", stanza.title());
        let cure = "changes of one topic depend on each other: add `allow-circular-dependencies: true`";
        stanza.fail("topic-needs-circular", mark, Some("dependencies-by-topic"), message, cure);
    }
    let queue = Queue {
        name: stanza.name.clone(),
        kind,
        allow_circular_dependencies: circular,
        dependencies_by_topic: by_topic,
        place: stanza.place(),
    };
    stanza.finish(queue)
}
