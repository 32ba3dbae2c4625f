//! gatelog as a library: the command line, and the composition root that puts the house together.
//!
//! The program of this name is [`run`] with gatelog's own [`Parts`] and nothing else. It is a library so that another
//! program can have more parts, and start a [`Server`] in its own process.

mod audit;
mod auth;
mod cli;
mod client;
mod clock;
pub mod clouds;
mod commands;
mod config;
mod connections;
mod consoles;
mod demo;
pub mod drivers;
#[cfg(debug_assertions)]
mod failpoints;
mod forges;
mod governors;
mod job_logs;
mod logs;
mod operators;
mod patience;
mod patient_blobs;
mod presence;
mod remembering;
mod renewals;
mod returned_life;
mod roles;
mod routing;
mod sealed;
mod serve;
mod server;
mod settings;
mod show;
mod steady;
mod tenants;
mod timers;
mod web;
mod what_ifs;

pub use cli::{Parts, run};
pub use roles::{Role, Roles};
pub use server::{Server, ServerOptions, StartError};
