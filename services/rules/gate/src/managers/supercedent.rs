//! Supercedent: of each ref of a project the item that runs and the newest one; those between are not
//! worth running.

use gatelog_deciding::Refusal;
use gatelog_record::draft::gate::PipelineVerdict;

use super::{Entry, Place};
use crate::decision::Decision;
use crate::triggers::verdict;

impl Decision<'_> {
    pub(crate) fn enter_supercedent(&mut self, entry: &Entry<'_>) -> Result<PipelineVerdict, Refusal> {
        let subject = entry.subject;
        if let Some(verdict) = self.refuse_too_many(entry, 0, 1)? {
            return Ok(verdict);
        }
        let of = subject.branch.as_deref().unwrap_or(&subject.git_ref);
        let queue = format!("{} {of}", subject.project);
        self.put_in_queue(
            entry,
            Place { queue: queue.clone(), subjects: std::slice::from_ref(subject), live: true, reason: entry.reason },
        )?;
        let key = (entry.tenant.to_owned(), entry.pipeline.name.clone(), queue);
        let items = self.gate().queues.row(&key).map(|row| row.items.clone()).unwrap_or_default();
        let between = items.get(1..items.len().saturating_sub(1)).unwrap_or_default();
        for item in between {
            self.leave_silently(*item, "superseded", "A newer one of its ref took its place.")?;
        }
        Ok(verdict(&entry.pipeline.name, "enqueued", ""))
    }
}
