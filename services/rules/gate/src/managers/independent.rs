//! Independent: each item has a queue of its own; what it needs stands ahead of it, not live.

use std::collections::BTreeSet;

use gatelog_deciding::Refusal;
use gatelog_record::WorkId;
use gatelog_record::draft::gate::{ChangeKey, PipelineVerdict, Subject};

use super::{Entry, LIMIT, Place};
use crate::decision::Decision;
use crate::dependencies::NeedsError;
use crate::triggers::verdict;

/// What was begun with to let one change in.
#[derive(Default)]
struct Counted {
    /// All that were begun with.
    begun: Vec<ChangeKey>,
    /// How many of these are in the pipeline by then.
    entered: usize,
}

/// What is too much.
enum TooMany {
    /// The changes that were asked for themselves: a sentence.
    Own(String),
    /// One that this change would have been right behind.
    Pulled(Subject, String),
}

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
        let changes: usize = ahead.iter().map(Vec::len).sum();
        let mut counted = Counted::default();
        match self.too_many(entry, &own, &ahead, &mut counted) {
            Some(TooMany::Own(detail)) => return self.turn_away(entry, LIMIT, &detail, true),
            Some(TooMany::Pulled(subject, detail)) => {
                return self.refuse_pulling_too_many(&Entry { subject: &subject, ..*entry }, &detail);
            }
            None => {}
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

    /// Whether some changes are too many for the pipeline, or one that they need is. Zuul: each is counted with all that
    /// were begun with before, and once more if it is in the pipeline by then.
    fn too_many(
        &self,
        entry: &Entry<'_>,
        group: &[Subject],
        ahead: &[Vec<Subject>],
        counted: &mut Counted,
    ) -> Option<TooMany> {
        let before = counted.begun.len().saturating_add(counted.entered);
        if let Some(detail) = self.over_limit(entry, before, group.len()) {
            return Some(TooMany::Own(detail));
        }
        let keys: Vec<ChangeKey> = group.iter().filter_map(Subject::change_key).collect();
        counted.begun.extend(keys.iter().cloned());
        for need in self.needs_of_group(entry.tenant, &keys) {
            let holds = |group: &&Vec<Subject>| group.iter().any(|one| one.change_key().as_ref() == Some(&need));
            let Some(theirs) = ahead.iter().find(holds).filter(|_| !counted.begun.contains(&need)) else { continue };
            match self.too_many(entry, theirs, ahead, counted) {
                // Zuul: told is who would have been right behind it.
                Some(TooMany::Own(detail)) => return group.last().map(|one| TooMany::Pulled(one.clone(), detail)),
                None => {}
                told => return told,
            }
        }
        counted.entered = counted.entered.saturating_add(group.len());
        None
    }
}
