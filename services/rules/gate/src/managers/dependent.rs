//! Dependent: changes of one queue are tested on top of each other and merge in order; what a change
//! needs is pulled in ahead of it, what needs it behind it.

use std::collections::{BTreeSet, VecDeque};

use gatelog_deciding::Refusal;
use gatelog_record::draft::gate::{ChangeKey, PipelineVerdict, Subject};

use super::{Entry, Place};
use crate::decision::Decision;
use crate::dependencies::{Group, NeedsError};
use crate::filters;
use crate::triggers::verdict;

/// How many changes one change may pull in behind itself.
const MAX_BEHIND: usize = 200;

/// What becomes of a change that is needed.
enum Ahead {
    /// It is in the branch.
    Merged,
    /// It is in the queue.
    There,
    /// It is to be pulled in.
    Wanted(Subject),
}

/// Why a change may not enter: a code, a sentence, and whether it is reported.
type Hindrance = (&'static str, String, bool);

impl Decision<'_> {
    pub(crate) fn enter_dependent(&mut self, entry: &Entry<'_>) -> Result<PipelineVerdict, Refusal> {
        let Some(key) = entry.subject.change_key() else {
            let why = "only changes can be merged, and this is a ref";
            return self.turn_away(entry, "not-a-change", why, false);
        };
        let mut counted = BTreeSet::new();
        let answer = self.enter_with_needs(entry, &key, &mut counted)?;
        if answer.code == "enqueued" {
            self.pull_in_behind(entry, counted)?;
        }
        Ok(answer)
    }

    /// Enqueues a change, with all it needs ahead of it, or says why not.
    fn enter_with_needs(
        &mut self,
        entry: &Entry<'_>,
        key: &ChangeKey,
        counted: &mut BTreeSet<ChangeKey>,
    ) -> Result<PipelineVerdict, Refusal> {
        let groups = if entry.pipeline.ignore_dependencies {
            vec![vec![key.clone()]]
        } else {
            let queue = entry.queue_of(entry.subject);
            let there = |key: &ChangeKey| {
                self.current_subject(entry.tenant, key).is_some_and(|subject| self.is_in_queue(entry, &subject, &queue))
            };
            match self.needs_to_enter(entry.tenant, key, there, counted) {
                Ok((groups, needy)) => {
                    *counted = needy;
                    groups
                }
                Err(why) => {
                    let (code, detail) = why.describe();
                    // Zuul: what a change needs and cannot merge means silence.
                    let silent = matches!(why, NeedsError::Closed(..) | NeedsError::OverLimit(_));
                    return self.turn_away(entry, code, &detail, !silent);
                }
            }
        };
        let own = groups.last().cloned().unwrap_or_else(|| vec![key.clone()]);
        Ok(match self.enter_group(entry, &own, &groups)? {
            Some(refused) => refused,
            None => verdict(&entry.pipeline.name, "enqueued", ""),
        })
    }

    /// Enqueues changes that are tested as one, behind what they need; says why not if they may not enter.
    /// Zuul: whatever is pulled in is asked the same questions, and what is wrong with it is told to it.
    fn enter_group(
        &mut self,
        entry: &Entry<'_>,
        group: &Group,
        groups: &[Group],
    ) -> Result<Option<PipelineVerdict>, Refusal> {
        let queue = entry.queue_of(entry.subject);
        if let Some((code, why)) = self.unfit_member(entry, group) {
            return self.turn_away(entry, code, &why, false).map(Some);
        }
        if let Some(verdict) = self.refuse_group(entry, group)? {
            return Ok(Some(verdict));
        }
        let needs = match entry.pipeline.ignore_dependencies {
            true => BTreeSet::new(),
            false => self.needs_of_group(entry.tenant, group),
        };
        let mut pulled = Vec::new();
        for need in needs {
            match self.fits_ahead(entry, &need, &queue) {
                Ok(Ahead::Merged | Ahead::There) => {}
                Ok(Ahead::Wanted(subject)) => pulled.push((need, subject)),
                Err((code, detail, report)) => return self.turn_away(entry, code, &detail, report).map(Some),
            }
        }
        for (need, subject) in pulled {
            // A circle that was pulled in for the need before may hold this one too.
            if self.is_in_queue(entry, &subject, &queue) {
                continue;
            }
            let Some(theirs) = groups.iter().find(|group| group.contains(&need)) else { continue };
            let ahead = Entry { subject: &subject, reason: "needs", ..*entry };
            if self.enter_group(&ahead, theirs, groups)?.is_some() {
                // Zuul: silence; it enters by itself once what it needs does.
                let detail = format!("It depends on {}, which may not enter.", subject.url);
                return self.turn_away(entry, "needs-unapproved", &detail, false).map(Some);
            }
        }
        let subjects = match group.len() {
            0 | 1 => vec![entry.subject.clone()],
            _ => self.subjects_of(entry.tenant, group),
        };
        // Zuul: what is pulled in leaves room for the change that needs it.
        let room = usize::from(entry.reason == "needs");
        if let Some(verdict) = self.refuse_too_many(entry, 0, subjects.len().saturating_add(room))? {
            return Ok(Some(verdict));
        }
        self.put_in_queue(entry, Place { queue, subjects: &subjects, live: true, reason: entry.reason })?;
        Ok(None)
    }

    /// A member that may not enter: then none does, and nothing is said.
    fn unfit_member(&self, entry: &Entry<'_>, group: &[ChangeKey]) -> Option<(&'static str, String)> {
        for member in group {
            let Some(row) = self.change(entry.tenant, member) else {
                return Some(("change-missing", "nothing is known of the change".into()));
            };
            let mut fit = filters::can_merge(entry.pipeline, &row.facts).map_err(|why| ("cannot-merge", why));
            if !entry.knows(&row.facts.subject.connection) {
                fit = Err(("other-connection", "the pipeline takes nothing from its connection".into()));
            }
            if fit.is_ok() && !entry.asked {
                fit = filters::requirements(entry.pipeline, &row.facts, true, self.now())
                    .map_err(|why| ("requirements", why));
            }
            if let Err((code, why)) = fit {
                let own = entry.subject.change_key().as_ref() == Some(member);
                let why = if own { why } else { format!("{}, to be merged with it: {why}", row.facts.subject.url) };
                return Some((code, why));
            }
        }
        None
    }

    fn is_in_queue(&self, entry: &Entry<'_>, subject: &Subject, queue: &str) -> bool {
        let there = self.items_in(entry.tenant, &entry.pipeline.name, subject);
        there
            .into_iter()
            .filter_map(|item| self.item(item))
            .any(|item| item.queue == queue && item.subjects.iter().any(|one| super::same(one, subject)))
    }

    /// What is to be done about a change that is needed.
    fn fits_ahead(&self, entry: &Entry<'_>, need: &ChangeKey, queue: &str) -> Result<Ahead, Hindrance> {
        let Some(row) = self.change(entry.tenant, need) else {
            let detail = format!("It depends on {} of {}, which does not exist.", need.change, need.project);
            return Err(("needs-missing", detail, true));
        };
        if row.facts.merged {
            return Ok(Ahead::Merged);
        }
        let subject = &row.facts.subject;
        let theirs = entry.queue_of(subject);
        if theirs != queue {
            let detail =
                format!("It depends on {}, which is gated in queue {theirs:?}, not in {queue:?}.", subject.url);
            return Err(("needs-other-queue", detail, true));
        }
        if self.is_in_queue(entry, subject, queue) {
            return Ok(Ahead::There);
        }
        if let Err(why) = filters::can_merge(entry.pipeline, &row.facts) {
            let detail = format!("It depends on {}, and {why}.", subject.url);
            // Zuul: silence; it enters by itself once what it needs does.
            return Err(("needs-unapproved", detail, false));
        }
        Ok(Ahead::Wanted(subject.clone()))
    }

    /// Enqueues the changes that need one which is in the queue, and those that need these.
    pub(crate) fn pull_in_behind(&mut self, entry: &Entry<'_>, counted: BTreeSet<ChangeKey>) -> Result<(), Refusal> {
        if entry.pipeline.ignore_dependencies {
            return Ok(());
        }
        let Some(start) = entry.subject.change_key() else { return Ok(()) };
        // Zuul: what needs a member of a circle is not pulled in behind it.
        if self.is_in_circle(entry, entry.subject) {
            return Ok(());
        }
        let mut seen = BTreeSet::from([start.clone()]);
        let mut todo = VecDeque::from([(start, counted)]);
        while let Some((key, mut counted)) = todo.pop_front() {
            let needed_by = self.change(entry.tenant, &key).map(|row| row.facts.needed_by.clone());
            for behind in needed_by.unwrap_or_default() {
                if seen.len() > MAX_BEHIND || !seen.insert(behind.clone()) {
                    continue;
                }
                let Some(row) = self.change(entry.tenant, &behind) else { continue };
                // Zuul: whoever asked, what is pulled in behind must meet the requirements.
                if filters::requirements(entry.pipeline, &row.facts, true, self.now()).is_err() || !row.facts.open {
                    continue;
                }
                if filters::can_merge(entry.pipeline, &row.facts).is_err() {
                    continue;
                }
                let subject = row.facts.subject.clone();
                if entry.queue_of(&subject) != entry.queue_of(entry.subject) {
                    continue;
                }
                let there = self.items_in(entry.tenant, &entry.pipeline.name, &subject);
                if there.is_empty() {
                    let pulled = Entry { subject: &subject, reason: "needed-by", asked: false, ..*entry };
                    let mut with_this = counted.clone();
                    if self.enter_with_needs(&pulled, &behind, &mut with_this)?.code != "enqueued" {
                        continue;
                    }
                    // Zuul: where nothing was counted each begins by itself.
                    if !counted.is_empty() {
                        counted.clone_from(&with_this);
                    }
                    if !self.is_in_circle(entry, &subject) {
                        todo.push_back((behind, with_this));
                    }
                    continue;
                }
                if !self.is_in_circle(entry, &subject) {
                    todo.push_back((behind, counted.clone()));
                }
            }
        }
        Ok(())
    }

    fn is_in_circle(&self, entry: &Entry<'_>, subject: &Subject) -> bool {
        let there = self.items_in(entry.tenant, &entry.pipeline.name, subject);
        there.iter().filter_map(|item| self.item(*item)).any(|row| row.subjects.len() > 1)
    }
}
