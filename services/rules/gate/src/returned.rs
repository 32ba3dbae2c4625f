//! How long blobs with what builds returned are kept: as long as the build is there, then as the site's setting says.

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::ReturnedState;
use gatelog_record::BuildId;
use gatelog_record::draft::gate::{ReturnedChange, ReturnedChanged, ReturnedKept, ReturnedStep, ReturnedTold};
use gatelog_record::event::GateEvent;

use crate::decision::Decision;

const DAY_MS: i64 = 24 * 3600 * 1000;

impl Decision<'_> {
    /// An outcome that is ignored names blobs: they go with the others of its build, or as they would.
    pub(crate) fn returned_late(&mut self, build: BuildId, kept: &ReturnedKept) -> Result<(), Refusal> {
        let known = self.gate().returned.row(&build).map(|row| row.blobs.as_slice()).unwrap_or_default();
        let blobs: Vec<_> = kept.blobs().filter(|blob| !known.contains(blob)).collect();
        if blobs.is_empty() {
            return Ok(());
        }
        self.emit(GateEvent::ReturnedChanged(ReturnedChanged { build, change: ReturnedChange::Late { blobs } }))
    }

    /// Somebody asks that what a build returned be given up, or says that it is removed.
    pub(crate) fn returned_told(&mut self, told: &ReturnedTold) -> Result<(), Refusal> {
        let ReturnedTold { build, step, .. } = *told;
        let subject = format!("what build {build} returned");
        let Some(row) = self.gate().returned.row(&build) else { return self.ignore(subject, "gone") };
        if row.tenant != told.tenant {
            return self.ignore(subject, "other-tenant");
        }
        let change = match (step, row.state) {
            (ReturnedStep::Due { .. }, ReturnedState::InUse) => return self.ignore(subject, "in-use"),
            (ReturnedStep::Due { .. }, ReturnedState::Dropped { .. }) => return self.ignore(subject, "already-had"),
            (ReturnedStep::Due { keep_days }, ReturnedState::Unused { since }) => {
                if self.now().millis_since(since) < i64::from(keep_days).saturating_mul(DAY_MS) {
                    return self.ignore(subject, "not-yet");
                }
                ReturnedChange::Dropped { blobs: row.blobs.clone(), unused_since: since, keep_days }
            }
            (ReturnedStep::Removed, ReturnedState::Dropped { .. }) => ReturnedChange::Removed,
            // Another outcome came in between; they go again.
            (ReturnedStep::Removed, _) => return self.ignore(subject, "not-dropped"),
        };
        self.emit(GateEvent::ReturnedChanged(ReturnedChanged { build, change }))
    }
}
