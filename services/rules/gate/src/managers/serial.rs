//! Serial: changes of one queue one after the other. Nothing is pulled in, nothing is merged.

use gatelog_deciding::Refusal;
use gatelog_record::draft::gate::PipelineVerdict;

use super::{Entry, Place};
use crate::decision::Decision;
use crate::triggers::verdict;

impl Decision<'_> {
    pub(crate) fn enter_serial(&mut self, entry: &Entry<'_>) -> Result<PipelineVerdict, Refusal> {
        let queue = entry.layout.queue_name(&entry.subject.project, entry.subject.branch.as_deref());
        self.put_in_queue(
            entry,
            Place { queue, subjects: std::slice::from_ref(entry.subject), live: true, reason: entry.reason },
        )?;
        Ok(verdict(&entry.pipeline.name, "enqueued", ""))
    }
}
