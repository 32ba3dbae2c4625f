//! What the gate decides. Pure.
//!
//! The way of an outside event through here: [`routing`] (which tenants it concerns), `triggers`
//! (it waits for facts and for its turn), `changes` (facts are asked for and taken in), `filters`
//! (which pipelines it fits), `managers` (how it enters a queue, with what it needs: `dependencies`),
//! `queue_pass` (what every item does next; `health` says what is wrong with it, `leaving` what is
//! done about that), `prepare` (on which `ground`), `item_layout`, `freeze`, `jobs` (its builds), `submit` (merging for
//! real), `report`. Beside it: `config` (files and layouts of a tenant), `work` (what is sent again,
//! and for how long), `touched` (where a decision has to look), `window`, `waits` (why everything waits).
//!
//! [`GateRules`] is what the shell calls. One input is one [`Decision`]: the input is taken in, then
//! the tenant it concerns is brought to rest: configuration, triggers and queues are looked at until
//! nothing more happens, and the reasons for every wait are written down.

mod artifacts;
#[cfg(test)]
mod asked;
mod changes;
mod config;
mod decision;
mod dependencies;
mod filters;
mod freeze;
mod ground;
mod health;
mod holds;
mod item_layout;
mod jobs;
pub mod layout_input;
mod layout_view;
mod leaving;
mod look_through;
mod managers;
mod own_triggers;
mod prepare;
mod promote;
mod queue_pass;
mod report;
mod requirements;
mod returned;
pub mod routing;
mod rules;
mod submit;
mod tenant_file;
mod timers;
mod touched;
mod triggers;
mod waits;
mod window;
mod work;

pub use decision::Decision;
pub use freeze::{freeze_subjects, frozen_job, own_changes, wanted_nodes};
pub use item_layout::{AHEAD_INVALID, ConfigRemarks, config_remarks};
pub use layout_input::layout_input;
pub use layout_view::LayoutView;
pub use queue_pass::NEEDED_FAILING;
pub use routing::{RoutedInput, Router};
pub use rules::GateRules;
pub use tenant_file::{routed_projects, tenant_settings};
pub use work::NO_ROOM;
