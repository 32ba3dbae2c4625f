//! What a build returned, where it is in a blob of its own: shown from there, or where it was and since when it is gone.

use gatelog_gate_state::history::BuildEntry;
use gatelog_record::BuildId;
use gatelog_record::draft::gate::ReturnedBlob;
use gatelog_record::returned::ReturnedData;

use crate::answers::{Build, KeptBlob};
use crate::error::ApiError;
use crate::reading::Reading;
use crate::shape::{self, iso};

/// Puts what the newest attempt of a build returned into the build's answer, whole where it can be had. Without its blobs
/// a build is shown as its records have it.
///
/// # Errors
/// The tables cannot be read.
pub(crate) fn show(reading: &Reading<'_>, id: BuildId, entry: &BuildEntry, build: &mut Build) -> Result<(), ApiError> {
    let Some(attempt) = entry.attempt() else { return Ok(()) };
    build.data = Some(attempt.data.to_json());
    if attempt.kept.is_empty() {
        return Ok(());
    }
    // That it is gone is told of the past as well: it was there then, and is not there now.
    let gone = reading.history().build(id, u64::MAX)?.and_then(|newest| newest.returned_gone);
    let about = |of: ReturnedBlob, problem: Option<String>| KeptBlob {
        blob: of.blob.to_string(),
        size: of.size,
        gone_since: gone.map(iso),
        problem,
    };
    if let Some(kept) = attempt.kept.data {
        let read = match gone {
            Some(_) => Err(None),
            None => read(reading, id, attempt.attempt, kept).map_err(Some),
        };
        build.data_kept = Some(about(kept, read.as_ref().err().cloned().flatten()));
        if let Ok(ReturnedData { data, artifacts, .. }) = read {
            build.data = Some(data.to_json());
            build.artifacts = artifacts.iter().map(shape::artifact).collect();
        }
    }
    // What is under seal is never shown.
    build.secret_data_kept = attempt.kept.secret_data.map(|kept| about(kept, None));
    Ok(())
}

fn read(reading: &Reading<'_>, build: BuildId, attempt: u32, kept: ReturnedBlob) -> Result<ReturnedData, String> {
    let bytes = reading.app.site.blobs.get(&kept.blob).map_err(|error| error.to_string())?;
    ReturnedData::decode(&bytes, build, attempt).map_err(|error| error.to_string())
}
