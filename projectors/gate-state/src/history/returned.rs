//! Since when what a build returned is gone.

use gatelog_record::EventRecord;
use gatelog_record::draft::gate::{ReturnedChange, ReturnedChanged};
use gatelog_tables::{Backing, FoldRefused};

use super::GateRead;
use super::held::{held, next};

impl<B: Backing> GateRead<B> {
    pub(super) fn returned_changed(
        &mut self,
        record: &EventRecord,
        event: &ReturnedChanged,
    ) -> Result<(), FoldRefused> {
        let gone = match &event.change {
            ReturnedChange::Dropped { .. } => record.recorded_at,
            ReturnedChange::Late { .. } | ReturnedChange::Removed => return Ok(()),
        };
        // A late outcome may be of a build that never was here; the live table alone has its blobs.
        if held(&self.builds, &event.build, record.sequence)?.is_none() {
            return Ok(());
        }
        next(&mut self.builds, event.build, record.sequence, |row| {
            row.returned_gone = Some(gone);
            Ok(())
        })
    }
}
