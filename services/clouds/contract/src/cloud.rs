//! The trait.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::NodeId;

use crate::node::{NodeFound, NodeState, NodeWanted};
use crate::refusal::Trouble;

/// What a cloud can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The labels it makes nodes of by itself; empty where labels come with what is wanted ([`NodeWanted::from`]).
    pub labels: BTreeSet<String>,
    /// Whether its nodes outlive the process and are found again by [`Cloud::list`].
    pub keeps_nodes: bool,
    /// Whether nodes are there as soon as they are started.
    pub starts_at_once: bool,
    /// Whether it tells what it has room for ([`Cloud::quota`]).
    pub tells_quota: bool,
    /// The formats of images it takes, such as `qcow2`; empty where it takes none.
    pub image_formats: BTreeSet<String>,
}

/// How much of one thing there may be and is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How much there may be; `None`: without limit, as far as is known.
    pub limit: Option<u64>,
    /// How much is taken, by anybody.
    pub used: u64,
}

/// What a cloud has room for, by resource: `slots`, `instances`, `cores`, `ram`, `volumes`, … Whoever counts takes the
/// smaller of this and of what is configured.
pub type Quota = BTreeMap<String, Usage>;

/// A place that has nodes.
pub trait Cloud: Send + Sync {
    /// The cloud's name: that of its connection.
    fn name(&self) -> &str;

    /// What it can do. Asks nobody.
    fn capabilities(&self) -> Capabilities;

    /// Asks for a node, and does not wait for it. Asked again for the same node and attempt, it finds what the first call
    /// made, also where that call was cut short or its answer was lost, and says how far it is. What was left of an
    /// earlier attempt at the node is not used: it is in [`NodeState::Stopping`] or stopped first.
    ///
    /// # Errors
    /// Nothing was made, as far as is known: `poll` and `list` tell the truth.
    fn start(&self, wanted: &NodeWanted) -> Result<NodeState, Trouble>;

    /// How far a node is. Changes nothing. One that the other side does not list yet, though it was just asked for, is
    /// [`NodeState::Starting`], not absent.
    ///
    /// # Errors
    /// The other side could not be asked.
    fn poll(&self, node: NodeId) -> Result<NodeState, Trouble>;

    /// Asks for the end of all that bears the node's id, of whatever attempt, and does not wait for it. One that does not
    /// exist is stopped already.
    ///
    /// # Errors
    /// Something may be left; asked again, it goes.
    fn stop(&self, node: NodeId) -> Result<(), Trouble>;

    /// All that bears this site's id and still exists, in order, what is being made or stopped included, and two of one
    /// node as two. Whoever finds something here that nobody wants stops it once it was seen twice: what was just asked
    /// for may be listed before anybody knows of it.
    ///
    /// # Errors
    /// The other side could not be asked; a part of the list is never given for the whole.
    fn list(&self) -> Result<Vec<NodeFound>, Trouble>;

    /// What there is room for, as the other side reports it; empty where it does not.
    ///
    /// # Errors
    /// The other side could not be asked.
    fn quota(&self) -> Result<Quota, Trouble>;
}
