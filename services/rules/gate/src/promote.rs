//! Promoting: changes go to the head of their queue, with all they need and all that needs them.

use std::collections::BTreeSet;

use gatelog_deciding::Refusal;
use gatelog_record::ItemId;
use gatelog_record::draft::gate::{ChangeKey, PromoteAsked, QueueReordered, Subject};
use gatelog_record::event::GateEvent;

use crate::decision::Decision;

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
                self.item(**item).is_some_and(|row| {
                    row.live && row.pipeline == asked.pipeline && row.subjects.iter().any(meant)
                })
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
            return Ok(live.len() == wanted.len());
        }
        let after = self.promoted(&asked.tenant, &before, wanted);
        // What is being merged is out of everybody's hands.
        let reporting = |item: &ItemId| self.item(*item).is_some_and(|row| row.reporting.is_some());
        let fixed = before.iter().take_while(|item| self.is_merging(**item) || reporting(item)).count();
        let same = before.iter().zip(wanted).take_while(|(one, two)| one == two).count();
        let mut order: Vec<ItemId> = before.iter().take(fixed).copied().collect();
        order.extend(after.iter().filter(|item| !before.iter().take(fixed).any(|other| other == *item)));
        let again: Vec<ItemId> = order.iter().skip(same.max(fixed)).copied().collect();
        if again.is_empty() {
            return Ok(true);
        }
        let detail = if asked.reason.is_empty() { "Promoted on request." } else { asked.reason.as_str() };
        for item in &again {
            self.reset_behind(*item, None, "promoted", detail)?;
        }
        self.emit(GateEvent::QueueReordered(QueueReordered {
            tenant: asked.tenant.clone(),
            pipeline: asked.pipeline.clone(),
            queue,
            items: order,
            quiet: again,
            code: "promoted".into(),
            detail: detail.into(),
        }))?;
        Ok(true)
    }

    /// A queue's items with some at the head: each behind what it needs, before what needs it.
    fn promoted(&self, tenant: &str, items: &[ItemId], wanted: &[ItemId]) -> Vec<ItemId> {
        let mut order: Vec<ItemId> = Vec::with_capacity(items.len());
        for item in wanted.iter().chain(items).filter(|item| items.contains(item)) {
            self.place(tenant, items, *item, &mut order);
        }
        order
    }

    fn place(&self, tenant: &str, items: &[ItemId], item: ItemId, order: &mut Vec<ItemId>) {
        // What is needed goes ahead, nearest last; the stack holds an item and whether its needs were seen.
        let mut todo = vec![(item, false)];
        let mut looked: BTreeSet<ItemId> = BTreeSet::new();
        while let Some((next, ready)) = todo.pop() {
            if order.contains(&next) {
                continue;
            }
            if ready || !looked.insert(next) {
                order.push(next);
                continue;
            }
            todo.push((next, true));
            let keys: Vec<ChangeKey> = self.keys_of(next);
            let needs = self.needs_of_group(tenant, &keys);
            for need in needs.iter().rev() {
                let holder = items.iter().find(|other| self.keys_of(**other).contains(need));
                todo.extend(holder.filter(|holder| !looked.contains(*holder)).map(|holder| (*holder, false)));
            }
        }
        // Zuul: what needs it comes right behind.
        let keys = self.keys_of(item);
        for other in items {
            if !order.contains(other)
                && !self.needs_of_group(tenant, &self.keys_of(*other)).is_disjoint(&keys.iter().cloned().collect())
            {
                self.place(tenant, items, *other, order);
            }
        }
    }

    pub(crate) fn keys_of(&self, item: ItemId) -> Vec<ChangeKey> {
        let subjects = self.item(item).map(|row| row.subjects.as_slice()).unwrap_or_default();
        subjects.iter().filter_map(Subject::change_key).collect()
    }
}
