//! Independent: each item has a queue of its own; what it needs stands ahead of it, not live.

use std::collections::BTreeSet;

use gatelog_deciding::Refusal;
use gatelog_record::WorkId;
use gatelog_record::draft::gate::{PipelineVerdict, Subject};

use super::{Entry, Place};
use crate::decision::Decision;
use crate::dependencies::NeedsError;
use crate::triggers::verdict;

impl Decision<'_> {
    pub(crate) fn enter_independent(&mut self, entry: &Entry<'_>) -> Result<PipelineVerdict, Refusal> {
        let mut ahead: Vec<Vec<Subject>> = Vec::new();
        let mut own = vec![entry.subject.clone()];
        if let Some(key) = entry.subject.change_key()
            && !entry.pipeline.ignore_dependencies
        {
            match self.needs_to_enter(entry.tenant, &key, |_| false, &BTreeSet::new()) {
                Ok((mut groups, _)) => {
                    let group = groups.pop().unwrap_or_default();
                    // Zuul: what nobody reviewed is not run, where review is asked for, because something needs it.
                    for members in std::iter::once(&group).chain(groups.iter().rev()) {
                        if let Some(verdict) = self.refuse_member(entry, members)? {
                            return Ok(verdict);
                        }
                    }
                    if let Some(verdict) = self.refuse_group(entry, &group)? {
                        return Ok(verdict);
                    }
                    ahead.extend(groups.iter().map(|group| self.subjects_of(entry.tenant, group)));
                    for subject in ahead.iter_mut().flatten() {
                        // Zuul: a commit is tested on the patchset it stands on, even if there is a newer one.
                        if let Some(stood_on) =
                            self.stood_on(entry.tenant, groups.iter().chain([&group]).flatten(), subject)
                        {
                            *subject = stood_on;
                        }
                    }
                    if group.len() > 1 {
                        own = self.subjects_of(entry.tenant, &group);
                    }
                }
                Err(why) => {
                    let (code, detail) = why.describe();
                    return self.turn_away(entry, code, &detail, !matches!(why, NeedsError::OverLimit(_)));
                }
            }
        }
        ahead.retain(|subjects| !subjects.is_empty());
        let mut changes = 0_usize;
        for subjects in &ahead {
            let pulled = Entry { subject: subjects.first().unwrap_or(entry.subject), ..*entry };
            // Zuul: room is left for the change that pulls it in.
            if let Some(verdict) = self.refuse_too_many(&pulled, changes, subjects.len().saturating_add(1))? {
                return Ok(verdict);
            }
            changes = changes.saturating_add(subjects.len());
        }
        if let Some(verdict) = self.refuse_too_many(entry, changes, own.len())? {
            return Ok(verdict);
        }
        // Any id will do for a queue that only this item is in.
        let queue = self.deciding.id::<WorkId>().to_string();
        for subjects in &ahead {
            self.put_in_queue(entry, Place { queue: queue.clone(), subjects, live: false, reason: "needs" })?;
        }
        self.put_in_queue(entry, Place { queue, subjects: &own, live: true, reason: entry.reason })?;
        let detail = match changes {
            0 => String::new(),
            count => format!("with {count} changes it needs ahead of it"),
        };
        Ok(verdict(&entry.pipeline.name, "enqueued", detail))
    }
}
