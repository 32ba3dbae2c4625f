//! Dependent: changes of one queue are tested on top of each other and merge in order; what a change
//! needs is pulled in ahead of it, what needs it behind it.

use std::collections::{BTreeSet, VecDeque};

use gatelog_deciding::Refusal;
use gatelog_record::draft::gate::{ChangeKey, PipelineVerdict, Subject};

use super::{Entry, Place};
use crate::decision::Decision;
use crate::filters;
use crate::triggers::verdict;

/// How many changes one change may pull in behind itself.
const MAX_BEHIND: usize = 200;

impl Decision<'_> {
    pub(crate) fn enter_dependent(&mut self, entry: &Entry<'_>) -> Result<PipelineVerdict, Refusal> {
        let Some(key) = entry.subject.change_key() else {
            let why = "only changes can be merged, and this is a ref";
            return self.turn_away(entry, "not-a-change", why, false);
        };
        let answer = self.enter_with_needs(entry, &key)?;
        if answer.code == "enqueued" {
            self.pull_in_behind(entry)?;
        }
        Ok(answer)
    }

    /// Enqueues a change, with all it needs ahead of it, or says why not.
    fn enter_with_needs(&mut self, entry: &Entry<'_>, key: &ChangeKey) -> Result<PipelineVerdict, Refusal> {
        let Some(row) = self.change(entry.tenant, key) else {
            return self.turn_away(entry, "change-missing", "nothing is known of the change", false);
        };
        if let Err(why) = filters::can_merge(entry.pipeline, &row.facts) {
            return self.turn_away(entry, "cannot-merge", &why, false);
        }
        let queue = entry.layout.queue_name(&entry.subject.project, entry.subject.branch.as_deref());
        let needs = match self.needs_in_queue(entry, key, &queue) {
            Ok(needs) => needs,
            Err((code, detail, report)) => return self.turn_away(entry, code, &detail, report),
        };
        for subject in &needs {
            self.put_in_queue(entry, Place { queue: queue.clone(), subject, live: true, reason: "needs" })?;
        }
        self.put_in_queue(entry, Place { queue, subject: entry.subject, live: true, reason: entry.reason })?;
        let detail = match needs.len() {
            0 => String::new(),
            count => format!("with {count} changes it needs ahead of it"),
        };
        Ok(verdict(&entry.pipeline.name, "enqueued", detail))
    }

    /// What a change needs and is not in its queue yet; all of it may enter. The error is a code, a
    /// sentence, and whether it is reported.
    fn needs_in_queue(
        &self,
        entry: &Entry<'_>,
        key: &ChangeKey,
        queue: &str,
    ) -> Result<Vec<Subject>, (&'static str, String, bool)> {
        if entry.pipeline.ignore_dependencies {
            return Ok(Vec::new());
        }
        let needs = self.needs(entry.tenant, key).map_err(|why| {
            let (code, mut detail) = why.describe();
            if code == "dependency-cycle" && entry.layout.allows_cycles(&key.project) {
                detail.push_str(" Its queue allows that, but gatelog cannot test changes as one yet.");
            }
            // Zuul: what a change needs and cannot merge means silence.
            (code, detail, !matches!(code, "needs-abandoned"))
        })?;
        let mut wanted = Vec::new();
        for need in needs {
            let Some(row) = self.change(entry.tenant, &need) else { continue };
            let subject = &row.facts.subject;
            let theirs = entry.layout.queue_name(&subject.project, subject.branch.as_deref());
            if theirs != queue {
                let detail = format!(
                    "It depends on {} of {}, which is gated in queue {theirs:?}, not in {queue:?}.",
                    need.change, need.project
                );
                return Err(("needs-other-queue", detail, true));
            }
            let there = self.items_in(entry.tenant, &entry.pipeline.name, subject);
            let there = there.into_iter().filter_map(|item| self.item(item));
            if there
                .into_iter()
                .any(|item| item.queue == queue && item.subjects.iter().any(|one| super::same(one, subject)))
            {
                continue;
            }
            let mut fit = filters::can_merge(entry.pipeline, &row.facts);
            if fit.is_ok() && !entry.asked {
                fit = filters::requirements(entry.pipeline, &row.facts, true);
            }
            if let Err(why) = fit {
                let detail = format!("It depends on {} of {}, and {why}.", need.change, need.project);
                // Zuul: silence; it enters by itself once what it needs does.
                return Err(("needs-unapproved", detail, false));
            }
            wanted.push(subject.clone());
        }
        Ok(wanted)
    }

    /// Enqueues the changes that need one which is in the queue, and those that need these.
    pub(crate) fn pull_in_behind(&mut self, entry: &Entry<'_>) -> Result<(), Refusal> {
        if entry.pipeline.ignore_dependencies {
            return Ok(());
        }
        let Some(start) = entry.subject.change_key() else { return Ok(()) };
        let mut seen = BTreeSet::from([start.clone()]);
        let mut todo = VecDeque::from([start]);
        while let Some(key) = todo.pop_front() {
            let needed_by = self.change(entry.tenant, &key).map(|row| row.facts.needed_by.clone());
            for behind in needed_by.unwrap_or_default() {
                if seen.len() > MAX_BEHIND || !seen.insert(behind.clone()) {
                    continue;
                }
                let Some(row) = self.change(entry.tenant, &behind) else { continue };
                // Zuul: whoever asked, what is pulled in behind must meet the requirements.
                if filters::requirements(entry.pipeline, &row.facts, true).is_err() || !row.facts.open {
                    continue;
                }
                if filters::can_merge(entry.pipeline, &row.facts).is_err() {
                    continue;
                }
                let subject = row.facts.subject.clone();
                let theirs = entry.layout.queue_name(&subject.project, subject.branch.as_deref());
                let ours = entry.layout.queue_name(&entry.subject.project, entry.subject.branch.as_deref());
                if theirs != ours {
                    continue;
                }
                let there = self.items_in(entry.tenant, &entry.pipeline.name, &subject);
                if there.is_empty() {
                    let pulled = Entry { subject: &subject, reason: "needed-by", asked: false, ..*entry };
                    if self.enter_with_needs(&pulled, &behind)?.code != "enqueued" {
                        continue;
                    }
                }
                todo.push_back(behind);
            }
        }
        Ok(())
    }
}
