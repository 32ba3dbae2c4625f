//! The log on Apache Kafka: for a site that has outgrown one machine.
//!
//! ```text
//! <prefix>intake              what code-review systems sent
//! <prefix><domain>.inputs     what a domain is asked; a topic partition for each of the domain's
//! <prefix><domain>.events     what it decided; the same
//! <prefix>gatelog.site        which site and generation this is and how many partitions it has, written by [`init`]
//! <prefix>presence            who is there now: compacted, kept for a day, no part of history; see [`KafkaPresence`]
//! ```
//! Topics of a later generation end in `.g2` and so on: see `generation`. No topic but the last is compacted or ever loses
//! a record by age or size. Which partition a record goes to is said by gatelog, never by a partitioner.
//!
//! # Inputs
//! One idempotent producer with `acks=all`. An append is **one Kafka record**, whatever it holds (see `layout`), so its
//! records are there all or none and next to each other. The place of an input is Kafka's offset and, in the low 16
//! bits, its index within the append.
//!
//! # Events
//! One transactional producer for each claimed partition, with one transactional id for each partition. A claim takes
//! that id, which fences whoever had it and ends what that one had open; commits a **control record** with a random
//! token; and reads what is committed until the token comes. Only then it knows the newest event. Control records are no
//! part of history: reading passes over them, as over the offsets of transaction markers. Appends that wait are
//! committed together, in one transaction; each is acknowledged once a reader of what is committed has seen it, because
//! the brokers answer a commit before readers see it. After the first failure a writer is dead: claim again. Whether it
//! failed because somebody else has claimed, only a control record behind its own says: brokers that gave a transaction
//! up, for it took too long, answer as if somebody had. Without one the failure is `System` and the next claim of the
//! same process looks once more before it fences anybody.
//!
//! Safety does not rest on transactions alone: an event carries sequence, term and link, and
//! [`gatelog_event_log::history`] checks them.
//!
//! # Reading
//! Consumers are assigned to one partition each, read what is committed, join no group and commit no offset. Where a
//! stream ends only its leader's last stable offset says, and what stands below it is read: no high watermark, no
//! group's offset is trusted. An offset that is no longer there (retention, a topic made anew) and a bundle whose
//! checksum fails are `Damaged` at that place. Kafka's own checksums are not looked at (see `config`): every event, every
//! input and every bundle carries one of its own, and whoever opens them checks it.
//!
//! # Security
//! What is spoken (TLS, SASL) librdkafka's own settings say; secrets among them name files (see `security`). Why brokers
//! cannot be spoken to librdkafka tells on the side only: `trouble` listens, and says it with the setting and the cure.
//!
//! # Survival
//! What is acknowledged survives the loss of all but one of `min.insync.replicas` brokers. Brokers do not wait for
//! their disks: on one broker the loss of power may lose what was acknowledged.

mod admin;
mod check;
mod claim;
mod closing;
mod config;
mod cursor;
mod fault;
mod generation;
mod inputs;
mod layout;
mod log;
mod names;
mod presence;
mod read;
mod security;
mod site;
mod trouble;
mod watch;
mod writer;

#[cfg(test)]
mod tests;

pub use admin::{Report, adopt, init, remove};
pub use check::{Finding, FindingKind, check};
pub use config::{KafkaConfig, Known};
pub use generation::{Copied, repartition};
pub use log::KafkaLog;
pub use presence::KafkaPresence;
pub use security::{Security, relative_to};
