//! What left the site is told to the log. Whoever exports may have no way to the log: on one machine a running server
//! alone appends. So a note is left beside the keys, before anything is handed out, and the process that owns the gate
//! turns it into an input, now or at its next start.

use std::path::Path;

use gatelog_effects::connection::chain;
use gatelog_record::draft::gate::AccessTold;
use gatelog_record::input::GateInput;
use gatelog_record::{ActorId, InputId, InputRecord, Timestamp};
use gatelog_secrets::Keyring;
use serde::{Deserialize, Serialize};

use crate::renewals;

/// Where notes are, below the keys.
pub const FOLDER: &str = "told";

/// Something left the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Who did it.
    pub actor: ActorId,
    /// When.
    pub at: Timestamp,
    /// Of which tenant; empty: of all of the site.
    pub tenant: String,
    /// What.
    pub what: AccessTold,
}

impl Told {
    /// The input it becomes.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn input(&self, note: &str) -> Result<Vec<u8>, String> {
        let id = InputId::new(format!("told/{note}"));
        let input = GateInput::AccessTold(self.what.clone());
        let mut record = InputRecord::new(id, self.tenant.as_str(), self.at, input);
        record.actor = self.actor;
        Ok(record.close().map_err(|error| chain(&error))?.encode())
    }
}

/// Who runs this process, as the log knows them: the Unix user, by number, for there need not be a name.
///
/// # Errors
/// Trouble with the keys.
pub fn own_actor(keyring: &Keyring) -> Result<ActorId, String> {
    use std::os::unix::fs::MetadataExt;
    let user = std::fs::metadata("/proc/self").map_or_else(|_| "unknown".to_owned(), |own| own.uid().to_string());
    keyring.actor("host", &user).map_err(|error| chain(&error))
}

/// Leaves a note, durable when this returns.
///
/// # Errors
/// A sentence: why it cannot be left.
pub fn leave(keys: &Path, keyring: &Keyring, tenant: &str, what: AccessTold) -> Result<(), String> {
    let told = Told { actor: own_actor(keyring)?, at: crate::clock::now(), tenant: tenant.to_owned(), what };
    renewals::leave_in(keys, FOLDER, &told)
}
