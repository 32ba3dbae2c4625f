//! Runs one build: workspace, inventory, Ansible in a sandbox, console, result.
//!
//! An [`Executor`] is opened once; it finds Ansible and bubblewrap and says what is wrong with them.
//! [`Executor::prepare`] takes a [`BuildSpec`], which is complete in itself, and gives a [`Build`]
//! with a console that can be followed and a [`BuildControl`] that can stop it. [`Build::run`]
//! always gives a [`BuildOutcome`]: what goes wrong with a build is a verdict, not an error.
//!
//! This crate knows nothing of the log and nothing of merging: repositories come through the
//! [`Workspace`] trait.
//!
//! Reading order: [`spec`] (what to run), [`build`] (the course of a build), [`play`] (one
//! playbook), [`reach`] and [`ssh`] (hosts over a network), [`roles`] (of other projects), [`frozen`]
//! (variables of playbooks that hold secrets), [`sandbox`] and [`ansible`] (how it is called), [`forkserver`] and [`running`] (its processes),
//! [`jobdir`] (where things lie), [`console`], [`outcome`] and [`returned`] (what a job hands over),
//! [`executor`] (leftovers), [`environments`] and [`versions`] (which Ansible).
//!
//! A job is taken for hostile. What it sees is in [`sandbox`]; what one of its processes may use,
//! in [`confine`]; what all of them may use, in [`cgroup`], [`cgroup_v1`] and [`group`] (kept by the
//! kernel) and in [`watch`], [`usage`] and [`held`] (kept by this process where there is no group, and for the disk always). What refuses a fork bomb where
//! there is no group is in [`wall`]. What it may do with its SSH agent is in [`agent`] and [`agent_proxy`].

mod agent;
mod agent_keys;
mod agent_proxy;
mod agent_wire;
mod ansible;
mod build;
pub mod cgroup;
mod cgroup_v1;
mod channel;
pub mod config;
mod confine;
pub mod console;
pub mod control;
pub mod environments;
pub mod executor;
mod forkserver;
mod frozen;
mod git_traps;
mod group;
mod held;
mod home;
mod homes;
mod identity;
mod inventory;
mod jobdir;
mod json_output;
mod keeping;
pub mod kernel;
mod lines;
mod mask;
mod network;
pub mod outcome;
mod play;
mod playbooks;
mod process;
mod procfs;
mod reach;
mod results;
mod returned;
mod roles;
mod run;
mod running;
pub mod sandbox;
mod screen;
pub mod seccomp;
mod setup;
pub mod size;
pub mod spec;
mod ssh;
mod stopwatch;
#[cfg(test)]
mod test_data;
pub mod toolchain;
mod usage;
mod variables;
pub mod versions;
pub mod wall;
mod watch;
pub mod workspace;
mod yaml;
mod zuul_vars;

pub use build::Build;
pub use cgroup::{CgroupSetting, Delegated, NoCgroup};
pub use config::{ExecutorConfig, ExecutorError, ExtraPaths, Limits, Network, SandboxMode};
pub use console::{ConsoleChunk, ConsoleReader};
pub use control::{AbortReason, BuildControl};
pub use environments::Release;
pub use executor::{Executor, Keeper, SweepReport};
pub use keeping::{KeptAttempt, kept};
pub use outcome::{BuildOutcome, BuildResult, FailingTask, FailureCause, PlaybookEnding, PlaybookRun, RetryCause};
pub use procfs::host_memory;
pub use results::ResultsReader;
pub use returned::{CommentLevel, CommentRange, FileComment, Returned, SnapshotNode};
pub use sandbox::{Features, Mount, Profile};
pub use size::{ByteSize, CountLimit, SizeLimit};
pub use spec::BuildSpec;
pub use stopwatch::Stopwatch;
pub use toolchain::{Probe, Toolchain, find_bubblewrap, probe};
pub use variables::deep_merge;
pub use versions::Served;
pub use wall::{NoWall, Wall};
pub use workspace::{Purpose, Workspace, WorkspaceError};
