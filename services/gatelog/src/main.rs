//! gatelog: the command line, and the composition root that puts the house together.

mod audit;
mod auth;
mod cli;
mod client;
mod clock;
mod commands;
mod config;
mod connections;
mod consoles;
mod demo;
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

/// A site allocates small texts without end, in many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run()
}
