//! How a change enters a pipeline. What every manager does first is here; where they differ, each
//! has a file of its own.

mod dependent;
mod independent;
mod serial;
mod supercedent;

pub(crate) use dependent::Pulling;

use std::collections::BTreeMap;
use std::ops::Bound;

use gatelog_deciding::Refusal;
use gatelog_record::draft::gate::{
    ChangeKey, EnqueueRefused, ItemEnqueued, PipelineVerdict, QueueAsked, ReportAction, Subject,
};
use gatelog_record::event::GateEvent;
use gatelog_record::{ItemId, Value};
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::objects::pipeline::Manager;

use crate::decision::Decision;
use crate::layout_view::LayoutView;
use crate::requirements;
use crate::triggers::verdict;

/// The code of what would be too many changes in a pipeline.
pub(crate) const LIMIT: &str = "limit";
/// The code of what needs a change that would be one too many.
const NEEDS_OVER_LIMIT: &str = "needs-over-limit";
/// The code of changes that need each other in a circle where that is not allowed.
const CYCLE: &str = "dependency-cycle";
/// The code of what needs a change that may not enter.
const NEEDS_UNFIT: &str = "needs-unapproved";

/// A change that is to enter a pipeline.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'e> {
    /// The tenant.
    pub tenant: &'e str,
    /// Its layout.
    pub layout: &'e LayoutView,
    /// The pipeline.
    pub pipeline: &'e Pipeline,
    /// The change or ref.
    pub subject: &'e Subject,
    /// The trigger's input sequence.
    pub trigger: Option<u64>,
    /// Why, as a code.
    pub reason: &'static str,
    /// Whether somebody asked: then the pipeline's requirements do not count.
    pub asked: bool,
    /// What they gave for the parameters of the pipeline, if anything.
    pub parameters: Option<&'e BTreeMap<String, Value>>,
}

impl Entry<'_> {
    /// The queue that changes of a subject's branch share in this pipeline.
    pub(crate) fn queue_of(&self, subject: &Subject) -> String {
        self.layout.queue_name(&self.pipeline.name, &subject.project, subject.branch.as_deref())
    }

    /// Whether the pipeline may hold what comes from a connection. Zuul: `allow-other-connections`.
    pub(crate) fn knows(&self, connection: &str) -> bool {
        self.pipeline.allow_other_connections || self.pipeline.connections().contains(connection)
    }
}

/// A place in a queue.
pub(crate) struct Place<'p> {
    /// The queue.
    pub queue: String,
    /// What enters: one change or ref, or the changes of a circle.
    pub subjects: &'p [Subject],
    /// Whether it runs jobs and reports.
    pub live: bool,
    /// Why, as a code.
    pub reason: &'static str,
}

impl Decision<'_> {
    /// Lets a change into a pipeline, or says why not. Zuul: `addChange`.
    pub(crate) fn enter(&mut self, entry: &Entry<'_>) -> Result<PipelineVerdict, Refusal> {
        let name = &entry.pipeline.name;
        self.drop_outdated(entry.tenant, entry.pipeline, entry.subject)?;
        let there = self.items_in(entry.tenant, name, entry.subject).into_iter().find(|item| {
            self.item(*item).is_some_and(|row| row.live && row.subjects.iter().any(|one| same(one, entry.subject)))
        });
        if there.is_some() {
            return Ok(verdict(name, "already-in-pipeline", "it is in the pipeline already"));
        }
        if !entry.knows(&entry.subject.connection) {
            let detail = format!("the pipeline takes nothing from {}", entry.subject.connection);
            return self.turn_away(entry, "other-connection", &detail, false);
        }
        if !entry.asked
            && let Some(key) = entry.subject.change_key()
            && let Some(row) = self.change(entry.tenant, &key)
        {
            let current = row.facts.subject.patchset == entry.subject.patchset;
            if let Err(why) = requirements::requirements(entry.pipeline, &row.facts, current, self.now()) {
                return self.turn_away(entry, "requirements", &why, false);
            }
        }
        match entry.pipeline.manager {
            Manager::Independent => self.enter_independent(entry),
            Manager::Dependent => self.enter_dependent(entry),
            Manager::Serial => self.enter_serial(entry),
            Manager::Supercedent => self.enter_supercedent(entry),
        }
    }

    /// Records why a change was not let in; tells whoever proposed it when the pipeline would.
    pub(crate) fn turn_away(
        &mut self,
        entry: &Entry<'_>,
        code: &str,
        detail: &str,
        report: bool,
    ) -> Result<PipelineVerdict, Refusal> {
        // Zuul: these are found before anybody looks for its queue.
        if !matches!(code, "other-connection" | "not-a-change" | "needs-limit") {
            self.ask_queue(entry, entry.subject)?;
        }
        self.emit(GateEvent::EnqueueRefused(EnqueueRefused {
            tenant: entry.tenant.to_owned(),
            pipeline: entry.pipeline.name.clone(),
            subject: entry.subject.clone(),
            code: code.to_owned(),
            detail: detail.to_owned(),
        }))?;
        // Zuul: only a project that takes part in the pipeline is told; and of limits only who set it off, while what
        // cannot be tested like that is told to everybody whom it concerns.
        if report
            && (entry.reason != "needed-by" || matches!(code, dependent::OTHER_QUEUE | CYCLE | NEEDS_OVER_LIMIT))
            && entry.layout.in_pipeline(&entry.subject.project, &entry.pipeline.name)
        {
            let message = crate::report::plain(&entry.pipeline.messages.failure, detail, entry.pipeline);
            self.report_to(
                entry.tenant,
                entry.pipeline,
                None,
                ReportAction::Failure,
                std::slice::from_ref(entry.subject),
                message,
            )?;
        }
        Ok(verdict(&entry.pipeline.name, code, detail))
    }

    /// Somebody looks for the queue of a change. Zuul: queues stand in the order in which they were looked for first,
    /// whatever came of it.
    pub(crate) fn ask_queue(&mut self, entry: &Entry<'_>, subject: &Subject) -> Result<(), Refusal> {
        let window = match entry.pipeline.manager {
            Manager::Dependent => entry.pipeline.window.size,
            Manager::Serial => 1,
            Manager::Independent | Manager::Supercedent => return Ok(()),
        };
        let (tenant, pipeline, queue) = (entry.tenant.to_owned(), entry.pipeline.name.clone(), entry.queue_of(subject));
        let key = (tenant, pipeline, queue);
        let there = self.gate().queues.row(&key).is_some_and(|row| row.first.is_some());
        if there || !entry.layout.in_pipeline(&subject.project, &key.1) {
            return Ok(());
        }
        let first = (subject.project.clone(), subject.branch.clone());
        let (tenant, pipeline, queue) = key;
        self.emit(GateEvent::QueueAsked(QueueAsked { tenant, pipeline, queue, first, window }))
    }

    /// Refuses an item for one of its changes that the pipeline does not take. Zuul: nothing is said.
    pub(crate) fn refuse_member(
        &mut self,
        entry: &Entry<'_>,
        group: &[ChangeKey],
    ) -> Result<Option<PipelineVerdict>, Refusal> {
        let unfit = group.iter().find_map(|member| {
            let facts = &self.change(entry.tenant, member)?.facts;
            let (subject, own) = (&facts.subject, entry.subject.change_key().as_ref() == Some(member));
            if !entry.knows(&subject.connection) {
                return Some(("other-connection", format!("the pipeline takes nothing from {}", subject.connection)));
            }
            if entry.asked || own {
                return None;
            }
            let why = requirements::requirements(entry.pipeline, facts, true, self.now()).err()?;
            Some(("requirements", format!("{}, to be tested with it: {why}", subject.url)))
        });
        match unfit {
            Some((code, why)) => self.turn_away(entry, code, &why, false).map(Some),
            None => Ok(None),
        }
    }

    /// Refuses changes that need each other in a circle where one of their queues does not allow it.
    /// Zuul: told to the change that set it off.
    pub(crate) fn refuse_group(
        &mut self,
        entry: &Entry<'_>,
        group: &[ChangeKey],
    ) -> Result<Option<PipelineVerdict>, Refusal> {
        if group.len() < 2 {
            return Ok(None);
        }
        let subjects = self.subjects_of(entry.tenant, group);
        let allowed = |one: &Subject| entry.layout.allows_cycles(&one.project, one.branch.as_deref());
        if subjects.iter().all(allowed) {
            return Ok(None);
        }
        let names: Vec<&str> = subjects.iter().map(|subject| subject.url.as_str()).collect();
        let detail =
            format!("These changes depend on each other: {}. Not every queue of theirs allows that.", names.join(", "));
        self.turn_away(entry, CYCLE, &detail, true).map(Some)
    }

    /// Refuses what would be too many changes in a pipeline. Zuul: `max-changes-per-pipeline`. With `more` changes come
    /// those that were `begun` before, for which these are pulled in or which pull them in, also where they entered
    /// since. Told is only who set it off.
    pub(crate) fn refuse_too_many(
        &mut self,
        entry: &Entry<'_>,
        begun: usize,
        more: usize,
    ) -> Result<Option<PipelineVerdict>, Refusal> {
        match self.over_limit(entry, begun, more) {
            Some(detail) => self.turn_away(entry, LIMIT, &detail, begun == 0).map(Some),
            None => Ok(None),
        }
    }

    /// Refuses what would pull in more than the limit allows. Zuul: told is who would have been right behind it.
    pub(crate) fn refuse_pulling_too_many(
        &mut self,
        entry: &Entry<'_>,
        detail: &str,
    ) -> Result<PipelineVerdict, Refusal> {
        self.turn_away(entry, NEEDS_OVER_LIMIT, detail, true)
    }

    /// Whether so many changes are too many: a sentence.
    pub(crate) fn over_limit(&self, entry: &Entry<'_>, begun: usize, more: usize) -> Option<String> {
        let limit = entry.layout.max_changes_per_pipeline()?;
        let name = entry.pipeline.name.as_str();
        let queues = self.queue_keys(entry.tenant).into_iter().filter(|key| key.1 == name);
        let items: Vec<ItemId> =
            queues.filter_map(|key| self.gate().queues.row(&key)).flat_map(|row| row.items.iter().copied()).collect();
        let there: usize = items.iter().filter_map(|item| self.item(*item)).map(|row| row.subjects.len()).sum();
        let over = there.saturating_add(begun).saturating_add(more) as u64 > limit;
        over.then(|| format!("More changes than the pipeline's limit of {limit} would be in {name}."))
    }

    /// Puts an item at the end of a queue.
    pub(crate) fn put_in_queue(&mut self, entry: &Entry<'_>, place: Place<'_>) -> Result<ItemId, Refusal> {
        let key = (entry.tenant.to_owned(), entry.pipeline.name.clone(), place.queue.clone());
        let row = self.gate().queues.row(&key);
        let ahead = row.and_then(|row| row.items.last().copied());
        let takes_part = |one: &Subject| entry.layout.in_pipeline(&one.project, &entry.pipeline.name);
        let window = match (row, entry.pipeline.manager) {
            // Zuul: what takes no part has a queue for the moment, and that has no window.
            (None, Manager::Dependent | Manager::Serial) if !place.subjects.iter().any(takes_part) => None,
            (None, Manager::Dependent) => Some(entry.pipeline.window.size),
            // Zuul: one at a time, whatever happens.
            (None, Manager::Serial | Manager::Supercedent) => Some(1),
            _ => None,
        };
        let item = self.deciding.id();
        self.emit(GateEvent::ItemEnqueued(ItemEnqueued {
            item,
            tenant: entry.tenant.to_owned(),
            pipeline: entry.pipeline.name.clone(),
            queue: place.queue,
            subjects: place.subjects.to_vec(),
            live: place.live,
            ahead,
            trigger: if place.reason == entry.reason { entry.trigger } else { None },
            reason: place.reason.to_owned(),
            window,
            parameters: entry.parameters.filter(|_| place.reason == entry.reason).cloned().unwrap_or_default(),
        }))?;
        self.note_entered(entry, place.subjects);
        if place.live {
            self.report_enqueue(entry.tenant, entry.pipeline, item, place.subjects)?;
            if !entry.pipeline.supercedes.is_empty() {
                let entered = place.subjects.iter().map(|subject| (entry.pipeline.name.clone(), subject.clone()));
                self.superseding.extend(entered);
            }
        }
        Ok(item)
    }

    /// Tells that an item came.
    pub(crate) fn report_enqueue(
        &mut self,
        tenant: &str,
        pipeline: &Pipeline,
        item: ItemId,
        subjects: &[Subject],
    ) -> Result<(), Refusal> {
        if self.is_disabled(tenant, pipeline) {
            return Ok(());
        }
        let message = crate::report::filled(&pipeline.messages.enqueue, pipeline, "");
        self.report_to(tenant, pipeline, Some(item), ReportAction::Enqueue, subjects, message)
    }

    /// Zuul: a change that enters a pipeline leaves those this one supersedes: in each the first item that holds
    /// the change at this patchset, or anything of the same ref. That happens once everybody took what came in, so
    /// what lets it into both pipelines lets it out of the other again.
    pub(crate) fn leave_superseded(&mut self, tenant: &str) -> Result<(), Refusal> {
        if self.superseding.is_empty() {
            return Ok(());
        }
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        let place = |name: &str| layout.pipelines().iter().position(|one| one.name == name);
        for (name, subject) in std::mem::take(&mut self.superseding) {
            for other in layout.pipeline(&name).map(|one| one.supercedes.as_slice()).unwrap_or_default() {
                let meant = |one: &Subject| {
                    one.project == subject.project && (one.git_ref == subject.git_ref || same(one, &subject))
                };
                if let Some(item) = self.first_live(tenant, other, meant)
                    && !self.is_merging(item)
                {
                    if place(other) < place(&name)
                        && let Some(pipeline) = layout.pipeline(other)
                        && self.leave_for_its_needs(tenant, &layout, pipeline, item)?
                    {
                        continue;
                    }
                    let detail = format!("It entered {name}, which supersedes this pipeline.");
                    self.leave_silently(item, "superseded", &detail)?;
                }
            }
        }
        Ok(())
    }

    /// The first live item of a pipeline that holds something: in each queue the first, and of these the oldest.
    pub(crate) fn first_live(&self, tenant: &str, pipeline: &str, holds: impl Fn(&Subject) -> bool) -> Option<ItemId> {
        let from = (tenant.to_owned(), pipeline.to_owned(), String::new());
        let queues = self.gate().queues.rows(Bound::Included(&from), Bound::Unbounded);
        let own = queues.take_while(|(key, _)| key.0 == tenant && key.1 == pipeline);
        let fits = |item: &&ItemId| self.item(**item).is_some_and(|row| row.live && row.subjects.iter().any(&holds));
        own.filter_map(|(_, row)| row.items.iter().find(fits).copied())
            .min_by_key(|item| self.item(*item).map(|row| row.enqueued))
    }

    /// The facts' subject of a change, which is at its current patchset.
    pub(crate) fn current_subject(&self, tenant: &str, key: &ChangeKey) -> Option<Subject> {
        self.change(tenant, key).map(|row| row.facts.subject.clone())
    }
}

/// Whether two subjects are the same change at the same patchset, or the same ref at the same commit.
pub(crate) fn same(one: &Subject, other: &Subject) -> bool {
    one.project == other.project
        && one.change == other.change
        && one.patchset == other.patchset
        && (one.change.is_some() || (one.git_ref == other.git_ref && one.commit == other.commit))
}
