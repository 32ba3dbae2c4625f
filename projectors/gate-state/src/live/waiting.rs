//! What waits: facts, triggers, reasons.

use gatelog_record::draft::gate::{ChangeFacts, TriggerCause, WaitCode, WaitSubject};
use gatelog_record::{BuildId, ItemId, Timestamp, WorkId};
use gatelog_tables::table::Life;
use gatelog_tables::{KeyError, TableDef, TableKey};
use serde::{Deserialize, Serialize};

/// Facts about changes, by tenant, project (canonical name) and change.
#[derive(Debug)]
pub struct Changes;
impl TableDef for Changes {
    const ID: u16 = 25;
    const NAME: &'static str = "changes";
    const LIFE: Life = Life::Live;
    type Key = (String, String, String);
    type Row = ChangeRow;
}

/// What is known of a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeRow {
    /// The facts.
    pub facts: ChangeFacts,
    /// The event that asked for them: they are not older than that.
    pub as_of: u64,
    /// The event by which the change became known to be closed, while it is.
    pub closed: Option<u64>,
    /// The patchset that a gate has merged, or tried to, while this was known.
    pub submitted: Option<String>,
}

/// Triggers that wait, by tenant and the sequence of their input.
#[derive(Debug)]
pub struct Triggers;
impl TableDef for Triggers {
    const ID: u16 = 26;
    const NAME: &'static str = "triggers";
    const LIFE: Life = Life::Live;
    type Key = (String, u64);
    type Row = TriggerRow;
}

/// A trigger that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerRow {
    /// What came.
    pub cause: TriggerCause,
    /// Whether it needs facts that are newer than itself.
    pub needs_facts: bool,
    /// The event by which it began to wait.
    pub sequence: u64,
    /// Since when it waits.
    pub since: Timestamp,
    /// The work it waits for.
    pub work: Option<WorkId>,
    /// Whether it was answered.
    pub answered: bool,
    /// Why the facts could not be had: code and text.
    pub failed: Option<(String, String)>,
}

/// Who waits, as a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WaitKey(pub WaitSubject);

impl TableKey for WaitKey {
    fn write(&self, out: &mut Vec<u8>) {
        match &self.0 {
            WaitSubject::Tenant(tenant) => {
                out.push(0);
                tenant.write(out);
            }
            WaitSubject::Trigger(trigger) => {
                out.push(1);
                trigger.write(out);
            }
            WaitSubject::Item(item) => {
                out.push(2);
                item.write(out);
            }
            WaitSubject::Build(build) => {
                out.push(3);
                build.write(out);
            }
        }
    }

    fn read(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        Ok(WaitKey(match u8::read(bytes)? {
            0 => WaitSubject::Tenant(String::read(bytes)?),
            1 => WaitSubject::Trigger(u64::read(bytes)?),
            2 => WaitSubject::Item(ItemId::read(bytes)?),
            3 => WaitSubject::Build(BuildId::read(bytes)?),
            _ => return Err(KeyError("nobody of this kind waits")),
        }))
    }
}

/// What everything waits for.
#[derive(Debug)]
pub struct Waits;
impl TableDef for Waits {
    const ID: u16 = 33;
    const NAME: &'static str = "waits";
    const LIFE: Life = Life::Live;
    type Key = WaitKey;
    type Row = WaitRow;
}

/// What something waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitRow {
    /// For what.
    pub code: WaitCode,
    /// A sentence: which change, which semaphore, which item.
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
    /// What would unblock it.
    pub unblocks: String,
}
