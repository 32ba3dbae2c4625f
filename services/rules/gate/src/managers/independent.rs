//! Independent: each item has a queue of its own; what it needs stands ahead of it, not live.

use std::collections::BTreeSet;

use gatelog_deciding::Refusal;
use gatelog_record::WorkId;
use gatelog_record::draft::gate::{ChangeKey, PipelineVerdict, Subject};

use super::{CYCLE, Entry, LIMIT, NEEDS_UNFIT, Place};
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

/// Why changes, or one that they need, may not enter.
enum Unfit {
    /// The changes themselves would be too many: a sentence.
    Own(String),
    /// One that is needed would be one too many: the change right behind it, and a sentence.
    Pulled(Subject, String),
    /// It has been recorded, and told to whom it concerns.
    Recorded(PipelineVerdict),
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
        match self.unfit(entry, entry.subject, &own, &ahead, &mut counted)? {
            Some(Unfit::Own(detail)) => return self.turn_away(entry, LIMIT, &detail, true),
            Some(Unfit::Pulled(subject, detail)) => {
                return self.refuse_pulling_too_many(&Entry { subject: &subject, ..*entry }, &detail);
            }
            Some(Unfit::Recorded(verdict)) => return Ok(verdict),
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

    /// Why a change may not enter, with those of its circle, or why one that they need may not. Zuul: each is asked the
    /// same questions, one that is needed once it is come to; and it is counted with all that were begun with before, and
    /// once more if it is in the pipeline by then.
    fn unfit(
        &mut self,
        entry: &Entry<'_>,
        who: &Subject,
        group: &[Subject],
        ahead: &[Vec<Subject>],
        counted: &mut Counted,
    ) -> Result<Option<Unfit>, Refusal> {
        let keys: Vec<ChangeKey> = group.iter().filter_map(Subject::change_key).collect();
        // Zuul: what nobody reviewed is not run, where review is asked for, because something needs it.
        if let Some(verdict) = self.refuse_member(entry, &keys)? {
            return Ok(Some(Unfit::Recorded(verdict)));
        }
        if let Some(verdict) = self.refuse_group(&Entry { subject: who, ..*entry }, &keys)? {
            return Ok(Some(Unfit::Recorded(verdict)));
        }
        let before = counted.begun.len().saturating_add(counted.entered);
        if let Some(detail) = self.over_limit(entry, before, group.len()) {
            return Ok(Some(Unfit::Own(detail)));
        }
        counted.begun.extend(keys.iter().cloned());
        for need in self.needs_of_group(entry.tenant, &keys) {
            let is_it = |one: &&Subject| one.change_key().as_ref() == Some(&need);
            let mut found = ahead.iter().filter_map(|group| Some((group, group.iter().find(is_it)?)));
            let Some((theirs, subject)) = found.next().filter(|_| !counted.begun.contains(&need)) else { continue };
            match self.unfit(entry, subject, theirs, ahead, counted)? {
                // Zuul: told is who would have been right behind it.
                Some(Unfit::Own(detail)) => {
                    return Ok(group.last().map(|one| Unfit::Pulled(one.clone(), detail)));
                }
                // Told is the one in a circle; Zuul: and nobody for whom it is needed.
                Some(Unfit::Recorded(verdict)) if matches!(verdict.code.as_str(), CYCLE | NEEDS_UNFIT) => {
                    let detail = format!("It depends on {}, which may not enter.", subject.url);
                    let verdict = self.turn_away(&Entry { subject: who, ..*entry }, NEEDS_UNFIT, &detail, false)?;
                    return Ok(Some(Unfit::Recorded(verdict)));
                }
                None => {}
                told => return Ok(told),
            }
        }
        counted.entered = counted.entered.saturating_add(group.len());
        Ok(None)
    }
}
