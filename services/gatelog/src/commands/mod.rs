//! The commands that read, and those that ask a server: a module each. What they print goes to stdout, what went wrong to stderr.

pub mod autohold;
pub mod blob_names;
pub mod check;
pub mod doctor;
pub mod encrypt;
pub mod explain;
pub mod explain_job;
pub mod failure;
pub mod folder;
pub mod freeze;
pub mod keys;
pub mod log_cat;
pub mod log_topics;
pub mod log_verify;
pub mod operators;
pub mod output;
pub mod queues;
pub mod replay;
pub mod replay_diff;
pub mod replay_step;
pub mod site;
pub mod status;
pub mod stop;
pub mod what_if;
