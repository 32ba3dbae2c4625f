//! Promoting: changes go to the head of their queue, with all they need and all that needs them.

use std::collections::BTreeSet;

use gatelog_deciding::Refusal;
use gatelog_record::ItemId;
use gatelog_record::draft::gate::{ChangeKey, PromoteAsked, QueueReordered, Subject};
use gatelog_record::event::GateEvent;

use crate::decision::Decision;

impl Decision<'_> {
    /// Somebody asks that changes go first. Zuul: what leads in the wanted order already stays as it is;
    /// everything behind begins again, quietly.
    pub(crate) fn promote_asked(&mut self, asked: &PromoteAsked) -> Result<(), Refusal> {
        if self.tenant(&asked.tenant).is_none() {
            return self.nothing("no-such-tenant");
        }
        let mut wanted: Vec<ItemId> = Vec::new();
        for change in &asked.changes {
            let items = self.items_of(&asked.tenant, change);
            let live = |item: &&ItemId| self.item(**item).is_some_and(|row| row.live && row.pipeline == asked.pipeline);
            if let Some(item) = items.iter().find(live)
                && !wanted.contains(item)
            {
                wanted.push(*item);
            }
        }
        let Some(first) = wanted.first().and_then(|item| self.item(*item)) else {
            return self.nothing("not-in-pipeline");
        };
        let queue = first.queue.clone();
        let key = (asked.tenant.clone(), asked.pipeline.clone(), queue.clone());
        let before = self.gate().queues.row(&key).map(|row| row.items.clone()).unwrap_or_default();
        let after = self.promoted(&asked.tenant, &before, &wanted);
        // What is being merged is out of everybody's hands.
        let reporting = |item: &ItemId| self.item(*item).is_some_and(|row| row.reporting.is_some());
        let fixed = before.iter().take_while(|item| self.is_merging(**item) || reporting(item)).count();
        let same = before.iter().zip(&wanted).take_while(|(one, two)| one == two).count();
        let mut order: Vec<ItemId> = before.iter().take(fixed).copied().collect();
        order.extend(after.iter().filter(|item| !before.iter().take(fixed).any(|other| other == *item)));
        let again: Vec<ItemId> = order.iter().skip(same.max(fixed)).copied().collect();
        if again.is_empty() {
            return self.nothing("in-that-order");
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
        }))
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
