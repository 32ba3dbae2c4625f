//! Integration: the real binary as a process, real git, real Ansible in a real sandbox, a durable
//! log. What a test needs and this host lacks is said in a line `SKIPPED <what>: <why>`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where something is not as it should be")]

mod harness;

mod audit;
mod backup;
mod bad_input;
mod clocks;
mod crash;
mod crash_kafka;
mod deploying;
mod explain_job;
mod failpoints;
mod forge;
mod kafka;
mod kafka_faults;
mod kafka_generation;
mod kafka_security;
mod keys;
mod load;
mod many_keys;
mod operators;
mod pause;
mod processes;
mod replay;
mod results;
mod returned;
mod sealing;
mod settings;
mod story;
mod timers;
mod tokens;
mod waits;
