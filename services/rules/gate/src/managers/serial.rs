//! Serial: changes of one queue one after the other. Nothing is pulled in, nothing is merged.

use gatelog_deciding::Refusal;
use gatelog_record::draft::gate::PipelineVerdict;

use super::{Entry, Place};
use crate::decision::Decision;
use crate::dependencies::NeedsError;
use crate::triggers::verdict;

impl Decision<'_> {
    pub(crate) fn enter_serial(&mut self, entry: &Entry<'_>) -> Result<PipelineVerdict, Refusal> {
        // Zuul: what is on no branch has no queue here.
        if entry.subject.branch.is_none() {
            let why = "changes go one after the other on a branch, and this is on none";
            return self.turn_away(entry, "not-a-change", why, false);
        }
        let mut subjects = vec![entry.subject.clone()];
        if let Some(key) = entry.subject.change_key()
            && !entry.pipeline.ignore_dependencies
        {
            match self.needs(entry.tenant, &key) {
                // Zuul: what needs each other in a circle stands together here, too.
                Ok(groups) => {
                    let group = groups.last().map(Vec::as_slice).unwrap_or_default();
                    if let Some(verdict) = self.refuse_member(entry, group)? {
                        return Ok(verdict);
                    }
                    if let Some(verdict) = self.refuse_group(entry, group)? {
                        return Ok(verdict);
                    }
                    if group.len() > 1 {
                        subjects = self.subjects_of(entry.tenant, group);
                    }
                }
                Err(why @ NeedsError::OverLimit(_)) => {
                    let (code, detail) = why.describe();
                    return self.turn_away(entry, code, &detail, false);
                }
                // What it needs is nobody's business here.
                Err(_) => {}
            }
        }
        if let Some(verdict) = self.refuse_too_many(entry, 0, subjects.len())? {
            return Ok(verdict);
        }
        let queue = entry.queue_of(entry.subject);
        self.put_in_queue(entry, Place { queue, subjects: &subjects, live: true, reason: entry.reason })?;
        Ok(verdict(&entry.pipeline.name, "enqueued", ""))
    }
}
