//! Promoting: changes go to the head of their queue, with all they need and all that needs them.

use gatelog_deciding::Refusal;
use gatelog_record::ItemId;
use gatelog_record::draft::gate::{ChangeKey, PromoteAsked, QueueReordered, Subject};
use gatelog_record::event::GateEvent;
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::objects::pipeline::Manager;

use crate::decision::Decision;
use crate::health::minds_needs;
use crate::layout_view::LayoutView;
use crate::managers::{Entry, Pulling};
use crate::touched::QueueKey;

/// How many steps of needing each other are followed.
const MAX_DEPTH: usize = 500;

impl Decision<'_> {
    /// Somebody asks that changes go first, each in its queue. Zuul: all of them must be there; what leads in the
    /// wanted order already stays as it is, everything behind begins again, quietly.
    pub(crate) fn promote_asked(&mut self, asked: &PromoteAsked) -> Result<(), Refusal> {
        if self.tenant(&asked.tenant).is_none() {
            return self.nothing("no-such-tenant");
        }
        let mut queues: Vec<(String, Vec<ItemId>)> = Vec::new();
        for change in &asked.changes {
            let items = self.items_of(&asked.tenant, change);
            let current = self.current_subject(&asked.tenant, change);
            let meant = |one: &Subject| {
                one.change_key().as_ref() == Some(change)
                    && current.as_ref().is_none_or(|current| current.patchset == one.patchset)
            };
            let live = |item: &&ItemId| {
                self.item(**item)
                    .is_some_and(|row| row.live && row.pipeline == asked.pipeline && row.subjects.iter().any(meant))
            };
            let found = items.iter().find(live).and_then(|item| Some((*item, self.item(*item)?.queue.clone())));
            let Some((item, queue)) = found else { return self.nothing("not-in-pipeline") };
            match queues.iter_mut().find(|(other, _)| *other == queue) {
                Some((_, wanted)) if wanted.contains(&item) => {}
                Some((_, wanted)) => wanted.push(item),
                None => queues.push((queue, vec![item])),
            }
        }
        let before = self.deciding.events().len();
        // Zuul: a queue in which there is nothing to do ends it, the last one first.
        for (queue, wanted) in queues.into_iter().rev() {
            if !self.promote_in(asked, queue, &wanted)? {
                break;
            }
        }
        if self.deciding.events().len() == before {
            return self.nothing("in-that-order");
        }
        Ok(())
    }

    /// Lets items of a queue go first; says whether there was something to do.
    fn promote_in(&mut self, asked: &PromoteAsked, queue: String, wanted: &[ItemId]) -> Result<bool, Refusal> {
        let key = (asked.tenant.clone(), asked.pipeline.clone(), queue.clone());
        let before = self.gate().queues.row(&key).map(|row| row.items.clone()).unwrap_or_default();
        let live: Vec<ItemId> =
            before.iter().filter(|item| self.item(**item).is_some_and(|row| row.live)).copied().collect();
        if live.starts_with(wanted) {
            let all = live.len() == wanted.len();
            // Zuul: where all there is was named, in this order, the queue goes before the others even so.
            if all && !self.is_looked_at_first(&key) {
                self.emit(GateEvent::QueueReordered(QueueReordered {
                    tenant: asked.tenant.clone(),
                    pipeline: asked.pipeline.clone(),
                    queue,
                    items: before,
                    quiet: Vec::new(),
                    code: "promoted".into(),
                    detail: why_of(asked).into(),
                    turned: Vec::new(),
                }))?;
            }
            return Ok(all);
        }
        let same = before.iter().zip(wanted).take_while(|(one, two)| one == two).count();
        let there = before;
        let layout = self.layout(&asked.tenant)?;
        let Some(pipeline) = layout.as_ref().and_then(|layout| layout.pipeline(&asked.pipeline)) else {
            return Ok(true);
        };
        if let Some(layout) = &layout {
            self.pull_in_again(asked, layout, pipeline, there.get(same..).unwrap_or_default())?;
        }
        let before = self.gate().queues.row(&key).map(|row| row.items.clone()).unwrap_or_default();
        let after = self.promoted(&asked.tenant, pipeline, &before, wanted, same);
        // What is being merged is out of everybody's hands.
        let reporting = |item: &ItemId| self.item(*item).is_some_and(|row| row.reporting.is_some());
        let fixed = before.iter().take_while(|item| self.is_merging(**item) || reporting(item)).count();
        let mut order: Vec<ItemId> = before.iter().take(fixed).copied().collect();
        order.extend(after.iter().filter(|item| !before.iter().take(fixed).any(|other| other == *item)));
        let again: Vec<ItemId> = order.iter().skip(same.max(fixed)).copied().collect();
        if again.is_empty() {
            return Ok(true);
        }
        let detail = why_of(asked);
        // Zuul: as if each had left and entered again.
        for item in again.iter().filter(|item| there.contains(item)) {
            if let Some(row) = self.item(*item).cloned() {
                self.report_dequeue(*item, &row, detail)?;
            }
            self.reset_behind(*item, None, "promoted", detail)?;
        }
        let turned = again.iter().filter_map(|item| Some((*item, self.turned(&asked.tenant, *item)?))).collect();
        self.emit(GateEvent::QueueReordered(QueueReordered {
            tenant: asked.tenant.clone(),
            pipeline: asked.pipeline.clone(),
            queue,
            items: order,
            quiet: again.clone(),
            code: "promoted".into(),
            detail: detail.into(),
            turned,
        }))?;
        for item in again.into_iter().filter(|item| there.contains(item)) {
            let Some(row) = self.item(item).filter(|row| row.live).cloned() else { continue };
            self.report_enqueue(&asked.tenant, pipeline, item, &row.subjects)?;
        }
        Ok(true)
    }

    /// Whether no other queue of the pipeline in which anything is comes before this one.
    fn is_looked_at_first(&self, key: &QueueKey) -> bool {
        let since =
            |key: &QueueKey| self.gate().queues.row(key).filter(|row| !row.items.is_empty()).map(|row| row.since);
        let of_pipeline = |other: &QueueKey| other.1 == key.1 && other.2 != key.2;
        let others = self.queue_keys(&key.0).into_iter().filter(of_pipeline).filter_map(|other| since(&other)).min();
        others.is_none_or(|first| since(key).is_some_and(|ours| ours < first))
    }

    /// Zuul: what enters again brings along what needs it and may enter by now.
    fn pull_in_again(
        &mut self,
        asked: &PromoteAsked,
        layout: &LayoutView,
        pipeline: &Pipeline,
        items: &[ItemId],
    ) -> Result<(), Refusal> {
        if pipeline.manager != Manager::Dependent {
            return Ok(());
        }
        let rows = items.iter().filter_map(|item| self.item(*item)).filter(|row| row.live);
        let subjects: Vec<Subject> = rows.flat_map(|row| row.subjects.iter().cloned()).collect();
        for subject in &subjects {
            let entry = Entry {
                tenant: &asked.tenant,
                layout,
                pipeline,
                subject,
                trigger: None,
                reason: "admin",
                asked: true,
                parameters: None,
            };
            self.pull_in_behind(&entry, &mut Pulling::default())?;
        }
        Ok(())
    }

    /// The changes of a circle in the order they have when its first one is asked for.
    fn turned(&self, tenant: &str, item: ItemId) -> Option<Vec<Subject>> {
        let before = &self.item(item).filter(|row| row.subjects.len() > 1)?.subjects;
        let group = self.needs(tenant, &before.first()?.change_key()?).ok()?.pop()?;
        let of = |key: &ChangeKey| before.iter().find(|one| one.change_key().as_ref() == Some(key)).cloned();
        let after: Vec<Subject> = group.iter().filter_map(of).collect();
        (after.len() == before.len() && after != *before).then_some(after)
    }

    /// A queue's items with some at the head: each behind what it needs, before what needs it. The first few stay.
    fn promoted(
        &self,
        tenant: &str,
        pipeline: &Pipeline,
        items: &[ItemId],
        wanted: &[ItemId],
        stay: usize,
    ) -> Vec<ItemId> {
        let mut order: Vec<ItemId> = items.iter().take(stay).copied().collect();
        for item in wanted.iter().chain(items).filter(|item| items.contains(item)) {
            // Zuul: where nothing is pulled in they go in the order in which they are named.
            if pipeline.manager == Manager::Dependent && minds_needs(pipeline) {
                self.place(tenant, items, *item, MAX_DEPTH, &mut order);
            } else if !order.contains(item) {
                order.push(*item);
            }
        }
        // Whatever the facts say, nobody is lost.
        order.extend(items.iter().filter(|item| !order.contains(item)).copied().collect::<Vec<_>>());
        order
    }

    /// Puts an item behind what it needs and before what needs it. `depth` ends what can only be a fault in the facts.
    fn place(&self, tenant: &str, items: &[ItemId], item: ItemId, depth: usize, order: &mut Vec<ItemId>) {
        if depth == 0 || order.contains(&item) {
            return;
        }
        let keys = self.keys_of(item);
        for need in self.needs_of_group(tenant, &keys) {
            if let Some(holder) = items.iter().find(|other| self.keys_of(**other).contains(&need)) {
                self.place(tenant, items, *holder, depth - 1, order);
            }
        }
        // What was put behind one of its needs may have brought it along.
        if order.contains(&item) {
            return;
        }
        order.push(item);
        // Zuul: what needs it comes right behind, as far as it is found.
        for behind in keys.iter().flat_map(|key| self.found_behind(tenant, key)) {
            if let Some(other) = items.iter().find(|other| self.keys_of(**other).contains(&behind)) {
                self.place(tenant, items, *other, depth - 1, order);
            }
        }
    }

    pub(crate) fn keys_of(&self, item: ItemId) -> Vec<ChangeKey> {
        let subjects = self.item(item).map(|row| row.subjects.as_slice()).unwrap_or_default();
        subjects.iter().filter_map(Subject::change_key).collect()
    }
}

/// Why an order is wanted, in words.
fn why_of(asked: &PromoteAsked) -> &str {
    if asked.reason.is_empty() { "Promoted on request." } else { &asked.reason }
}
