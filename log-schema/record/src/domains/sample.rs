//! The records of an artificial domain, which no gatelog hosts: they keep it true that a domain is one entry of the list.
//! Who folds, decides and tells them is a crate among the tests.

use serde::{Deserialize, Serialize};

use crate::kinds::family;

family! {
    /// What the sample domain decided.
    pub enum SampleEvent {
        /// Something was noted.
        0x7f01 "sample.noted" 1 Noted(Noted);
    }
}

family! {
    /// What the sample domain is asked.
    pub enum SampleInput {
        /// Somebody asks that something be noted.
        0xff01 "sample.in.note-asked" 1 NoteAsked(NoteAsked);
    }
}

/// Somebody asks that something be noted of a subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoteAsked {
    /// Of what.
    pub subject: String,
    /// What.
    pub note: String,
}

/// Something was noted of a subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noted {
    /// Of what.
    pub subject: String,
    /// What.
    pub note: String,
    /// The how manieth note of the subject this is, from 1.
    pub nth: u64,
}
