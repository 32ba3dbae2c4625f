//! What every domain's partition says about itself.

use serde::{Deserialize, Serialize};

use crate::id::{SiteId, WorkId};
use crate::level::Knows;
use crate::time::Timestamp;
use crate::topic::Partition;

/// A writer took the partition over. The first event of its term.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WriterStarted {
    /// The new term; one more than the last.
    pub term: u64,
    /// The build of gatelog, such as `0.1.0 (1a2b3c)`.
    pub build: String,
    /// SHA-256 over the registry of kinds and versions this writer may write.
    pub registry: [u8; 32],
    /// The site.
    pub site: SiteId,
    /// The log's generation.
    pub generation: u32,
}

/// An input was taken and led to nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputTaken {
    /// Set when the same input had been taken before: the sequence of its first event.
    pub duplicate_of: Option<u64>,
    /// Why nothing followed, as a code: of the shell `duplicate`, `nothing-to-do`, `timer-gone`,
    /// `already-cleared`; rules have their own (`already-had`, `unknown-lease`, …).
    pub reason: String,
}

/// An input could not be decided. Nothing else suffers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputRefused {
    /// A code: `unreadable`, `not-ours`, `blob-missing`, `blob-damaged`, `internal-error`,
    /// `fold-refused`, `over-budget`, `unwritable`, `too-large`, `above-level`, `level-not-known`.
    pub code: String,
    /// What was wrong, for people. Never holds anything of the input that belongs under seal.
    pub message: String,
    /// The input's kind, when it could be read.
    pub kind: Option<String>,
}

/// The machine's clock jumped by more than five minutes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockStepped {
    /// What it would say had it not jumped; at a writer's start: `wall_at` of the newest event.
    pub before: Timestamp,
    /// What it says now.
    pub now: Timestamp,
}

/// A restored or forked log was adopted as a new generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogRestored {
    /// The new generation.
    pub generation: u32,
    /// Why, in the words of whoever did it.
    pub reason: String,
}

/// The level of kinds and versions that may be written rose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelRaised {
    /// The new level.
    pub level: u32,
    /// A gatelog that knows it: the writer's own version.
    pub gatelog: String,
    /// Who was there, and knew it.
    pub present: Vec<Knows>,
}

/// Somebody asks that the level of kinds that may be written be raised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelRaiseAsked {
    /// The level.
    pub level: u32,
    /// Who is there, as it was known to whoever asks. A claim.
    pub present: Vec<Knows>,
    /// Why, in the words of whoever asks. It stays with the question: `level-raised` is read by every gatelog there ever
    /// was, and does not change.
    pub reason: String,
}

/// `in.level-raise-asked` version 1: it did not say why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelRaiseAsked1 {
    /// The level.
    pub level: u32,
    /// Who is there.
    pub present: Vec<Knows>,
}

impl From<LevelRaiseAsked1> for LevelRaiseAsked {
    fn from(old: LevelRaiseAsked1) -> LevelRaiseAsked {
        LevelRaiseAsked { level: old.level, present: old.present, reason: String::new() }
    }
}

/// Something artificial began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleBegun {
    /// Its name.
    pub name: String,
}

/// Something was noted of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleNoted {
    /// Its name.
    pub name: String,
    /// What.
    pub note: String,
}

/// It ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleEnded {
    /// Its name.
    pub name: String,
    /// How many notes there were.
    pub notes: u64,
}

/// A timer was set; one with the same name is replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerSet {
    /// Its name, unique within the partition.
    pub timer: String,
    /// When it is due.
    pub due_at: Timestamp,
}

/// A timer came due or was given up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerCleared {
    /// Its name.
    pub timer: String,
    /// Whether it came due.
    pub fired: bool,
}

/// Messages to another domain are known to have been taken there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboxCleared {
    /// The receiver.
    pub to: Partition,
    /// The sequence and ordinal up to which, inclusive.
    pub up_to: (u64, u32),
}

/// Pending work is sent out once more: its deadline passed, or trying again may help; or its deadline begins anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkResent {
    /// The work.
    pub work: WorkId,
    /// Which sending this is, from 1. The one that was: whoever does it goes on trying.
    pub attempt: u32,
    /// Not before this moment.
    pub not_before: Timestamp,
}

/// A timer came due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerDue {
    /// Its name.
    pub timer: String,
    /// When it was due.
    pub due_at: Timestamp,
}

/// Messages to another domain were taken there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboxDelivered {
    /// The receiver.
    pub to: Partition,
    /// The sequence and ordinal up to which, inclusive.
    pub up_to: (u64, u32),
}
