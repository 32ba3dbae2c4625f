//! Independent: each item has a queue of its own; what it needs stands ahead of it, not live.

use gatelog_deciding::Refusal;
use gatelog_record::WorkId;
use gatelog_record::draft::gate::PipelineVerdict;

use super::{Entry, Place};
use crate::decision::Decision;
use crate::triggers::verdict;

impl Decision<'_> {
    pub(crate) fn enter_independent(&mut self, entry: &Entry<'_>) -> Result<PipelineVerdict, Refusal> {
        let mut ahead = Vec::new();
        if let Some(key) = entry.subject.change_key()
            && !entry.pipeline.ignore_dependencies
        {
            match self.needs(entry.tenant, &key) {
                Ok(needs) => {
                    ahead.extend(needs.iter().filter_map(|need| self.current_subject(entry.tenant, need)));
                }
                Err(why) => {
                    let (code, detail) = why.describe();
                    return self.turn_away(entry, code, &detail, true);
                }
            }
        }
        // Any id will do for a queue that only this item is in.
        let queue = self.deciding.id::<WorkId>().to_string();
        for subject in &ahead {
            self.put_in_queue(entry, Place { queue: queue.clone(), subject, live: false, reason: "needs" })?;
        }
        self.put_in_queue(entry, Place { queue, subject: entry.subject, live: true, reason: entry.reason })?;
        let detail = match ahead.len() {
            0 => String::new(),
            count => format!("with {count} changes it needs ahead of it"),
        };
        Ok(verdict(&entry.pipeline.name, "enqueued", detail))
    }
}
