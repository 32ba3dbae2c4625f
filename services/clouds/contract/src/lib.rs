//! What a cloud is to gatelog: it starts nodes, says how far they are, stops them, and tells what it holds.
//!
//! Nothing waits until a machine is there. [`Cloud::start`] asks for it and returns; [`Cloud::poll`] says how far it is;
//! [`Cloud::stop`] asks for its end. Whoever calls may die between asking and recording, so everything is addressed by
//! node id, the site's id and the node's are kept in whatever is made, and [`Cloud::list`] finds it by them.
//!
//! What is asked of each cloud, because none of it can be had from the other side:
//! - **Once, though asked twice.** Clouds ignore client tokens, list late, and give two for one. [`Cloud::start`] looks
//!   for what bears the node's id before it makes anything; what was made twice is stopped by the one [`Cloud::stop`].
//! - **Refusals are told apart** ([`Refusal`]): what a quota or a full cloud refuses is no failed attempt, what passes is
//!   tried again, what is lasting is not.
//! - **Only what bears this site's id is touched**, or told of.
//! - A cloud does not wait out a rate limit: it says when to come again ([`Trouble::retry_at`]).
//!
//! Calls may block for as long as one request to the other side takes, with a time-out of the cloud's own, and come from
//! several threads at once.
//!
//! Images that gatelog builds are no part of this trait: a cloud that takes them has a part of its own for that beside it
//! in [`Opened`].

mod cloud;
mod driver;
mod node;
mod refusal;

pub use cloud::{Capabilities, Cloud, Quota, Usage};
pub use driver::{CloudDriver, CloudSettings, Opened, Opening, SettingsError};
pub use node::{NodeConnection, NodeFound, NodeReady, NodeState, NodeWanted};
pub use refusal::{Refusal, Trouble};
