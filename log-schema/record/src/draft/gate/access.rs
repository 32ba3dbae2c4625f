//! Who took something out of the site, or made it unreadable.

use serde::{Deserialize, Serialize};

/// Input: something left the site, or was made unreadable for ever. Who did it is the input's actor. Told by whoever did
/// it, once it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessTold {
    /// What: a code. `audit-exported`, `log-exported`, `key-shown`, `key-forgotten`, `site-backed-up`, `log-adopted`.
    pub what: String,
    /// Of what: a tenant, a project, the scope of a key. Empty: of all of the site.
    pub subject: String,
    /// The rest, in words: the range, the digest of what was exported. Never holds what belongs under seal.
    pub detail: String,
}

/// Something left the site, or was made unreadable for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accessed {
    /// What was told.
    pub told: AccessTold,
}
