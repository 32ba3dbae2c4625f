//! The life of blobs with what builds returned.

use gatelog_record::draft::gate::{ReturnedBlob, ReturnedChange, ReturnedChanged};
use gatelog_record::{BuildId, EventRecord, Timestamp};
use gatelog_tables::{Backing, FoldRefused, Table, TableExt};

use crate::live::{GateTables, ReturnedRow, ReturnedState};

impl<B: Backing> GateTables<B> {
    /// An outcome names blobs with what a build returned.
    pub(super) fn note_returned(
        &mut self,
        record: &EventRecord,
        build: BuildId,
        blobs: impl IntoIterator<Item = ReturnedBlob>,
    ) -> Result<(), FoldRefused> {
        let mut blobs = blobs.into_iter().peekable();
        if blobs.peek().is_none() {
            return Ok(());
        }
        let state = match self.builds.get(&build)? {
            Some(_) => ReturnedState::InUse,
            None => ReturnedState::Unused { since: record.recorded_at },
        };
        let before = self.returned.get(&build)?.map(|row| row.blobs.clone()).unwrap_or_default();
        let mut row = ReturnedRow { tenant: record.key.clone(), blobs: before, state };
        for blob in blobs {
            if !row.blobs.contains(&blob) {
                row.blobs.push(blob);
            }
        }
        Ok(self.returned.put(build, row)?)
    }

    /// A build is no longer there: nobody will read what it returned.
    pub(super) fn returned_unused(&mut self, build: BuildId, since: Timestamp) -> Result<(), FoldRefused> {
        let Some(row) = self.returned.get(&build)?.map(|row| row.into_owned()) else { return Ok(()) };
        Ok(self.returned.put(build, ReturnedRow { state: ReturnedState::Unused { since }, ..row })?)
    }

    pub(super) fn returned_changed(
        &mut self,
        record: &EventRecord,
        event: &ReturnedChanged,
    ) -> Result<(), FoldRefused> {
        let build = event.build;
        match &event.change {
            ReturnedChange::Late { blobs } => self.note_returned(record, build, blobs.iter().copied()),
            ReturnedChange::Dropped { blobs, unused_since, .. } => {
                let row = self.returned.need(&build)?.into_owned();
                if row.state != (ReturnedState::Unused { since: *unused_since }) || row.blobs != *blobs {
                    return Err(FoldRefused::Illegal(format!(
                        "what build {build} returned is dropped while it is {:?} with {} blobs",
                        row.state,
                        row.blobs.len()
                    )));
                }
                let state = ReturnedState::Dropped { at: record.recorded_at };
                Ok(self.returned.put(build, ReturnedRow { state, ..row })?)
            }
            ReturnedChange::Removed => match self.returned.remove(&build)?.state {
                ReturnedState::Dropped { .. } => Ok(()),
                state => {
                    Err(FoldRefused::Illegal(format!("what build {build} returned is removed while it is {state:?}")))
                }
            },
        }
    }
}
