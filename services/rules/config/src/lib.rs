//! Configuration files in, a layout and its problems out; a layout and a change in, a frozen job
//! graph and its trace out. Pure.
//!
//! The way of a configuration file: [`files`] chooses it, [`yaml`] makes a tree with marks of it,
//! [`objects`] read their stanzas by the tables of [`schema`], [`load`] puts the objects of all
//! files together into a [`Layout`] and checks what they say about each other. [`freeze`](fn@freeze)
//! answers which jobs a change gets in a pipeline, and why.
//!
//! Nothing here knows a clock, a file system or a network, and nothing on the way from outside
//! panics: what is wrong becomes a [`Problem`] with its place and its cure, and the rest goes on.

mod ansible;
mod assemble;
pub mod authorization;
pub mod cache;
pub mod dialect;
pub mod drivers;
pub mod files;
pub mod findings;
pub mod folder;
pub mod freeze;
pub mod hints;
pub mod layout;
pub mod load;
pub mod machines;
pub mod objects;
pub mod oracle;
pub mod place;
pub mod problem;
pub mod providers;
pub mod regexes;
pub mod relevant;
mod reparse;
pub mod schema;
pub mod shared;
mod speculative;
pub mod tenant;
mod tenant_file;
pub mod timers;
mod validate;
pub mod verdicts;
pub mod yaml;

pub use assemble::assemble;
pub use cache::ParseCache;
pub use files::{is_config_path, select_config_files};
pub use findings::{Finding, as_told, problems};
pub use freeze::graph::{FrozenJob, JobGraph, Phase, Playbook};
pub use freeze::together::{CombinedJob, combine, freeze_item};
pub use freeze::trace::FreezeTrace;
pub use freeze::{FreezeOptions, FreezeOutcome, FreezeSubject, freeze};
pub use gatelog_driver_schema::{DriverSchema, Schemas};
pub use layout::Layout;
pub use load::{ConfigFile, LoadInput, ParsedFile, load, load_cached, load_findings, parse_file};
pub use objects::pipeline::Pipeline;
pub use place::{Place, SourceContext};
pub use problem::{Problem, Severity};
pub use relevant::{Relevant, relevant, relevant_errors};
pub use shared::Shared;
pub use tenant::{TenantProject, TenantSettings};
pub use tenant_file::{
    check_sources, parse_authorization, parse_tenant_file, parse_tenant_file_as, parse_tenant_file_with,
};
