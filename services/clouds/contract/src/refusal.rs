//! Why a cloud did not do what was asked.

use gatelog_record::Timestamp;

/// What a refusal means for whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It passes: a time-out, a rate limit, an error of the other side. Tried again; counts as a failed attempt where a
    /// machine was at stake.
    Temporary,
    /// It stays until somebody changes something: an unknown label, a bad setting, a missing right. Not tried again here.
    Permanent,
    /// Ours: a quota or a limit of ours is used up. No failed attempt; label and provider wait until something is stopped.
    Quota,
    /// Theirs: the other side has no machine of the kind at the moment. No failed attempt; another place may have one.
    Capacity,
}

/// Why a cloud did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Trouble {
    /// What it means.
    pub refusal: Refusal,
    /// For people: what is wrong, and the cure. Without credentials.
    pub message: String,
    /// Not before this moment: the other side said so.
    pub retry_at: Option<Timestamp>,
}

impl Trouble {
    /// A refusal.
    pub fn new(refusal: Refusal, message: impl Into<String>) -> Trouble {
        Trouble { refusal, message: message.into(), retry_at: None }
    }

    /// A refusal with an error and all that is behind it.
    pub fn of(refusal: Refusal, error: &dyn std::error::Error) -> Trouble {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            message.push_str(": ");
            message.push_str(&error.to_string());
            source = error.source();
        }
        Trouble::new(refusal, message)
    }
}
