//! Windows: how many items of a queue are worked on at once.

use std::collections::BTreeMap;

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::ItemRow;
use gatelog_record::ItemId;
use gatelog_record::draft::gate::{ItemMoved, Subject, WindowChanged};
use gatelog_record::event::GateEvent;
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::objects::pipeline::{Manager, Step, Window};

use crate::decision::Decision;
use crate::touched::QueueKey;

/// The window after a success.
pub(crate) fn grown(settings: &Window, window: u32) -> u32 {
    let grown = match settings.increase {
        Step::Linear => window.saturating_add(settings.increase_factor),
        Step::Exponential => window.saturating_mul(settings.increase_factor.max(1)),
    };
    settings.ceiling.map_or(grown, |ceiling| grown.min(ceiling))
}

/// The window after a failure.
pub(crate) fn shrunk(settings: &Window, window: u32) -> u32 {
    let shrunk = match settings.decrease {
        Step::Linear => window.saturating_sub(settings.decrease_factor),
        Step::Exponential => window / settings.decrease_factor.max(1),
    };
    shrunk.max(settings.floor).min(window.max(settings.floor))
}

/// Whether what stands at a place of a queue is worked on. A window of 0 has no end.
pub(crate) fn is_inside(window: u32, index: usize) -> bool {
    window == 0 || (index as u64) < u64::from(window)
}

/// Whether a window never changes. Zuul: one that is multiplied and divided by one; it follows its configuration.
fn is_static(settings: &Window) -> bool {
    settings.increase == Step::Exponential
        && settings.decrease == Step::Exponential
        && settings.increase_factor == 1
        && settings.decrease_factor == 1
}

/// A window that a queue had.
pub(crate) struct Kept {
    pipeline: String,
    /// The project and branch of what came first into the queue.
    project: String,
    branch: Option<String>,
    window: u32,
}

impl Decision<'_> {
    /// An item's queue did well.
    pub(crate) fn grow_window(&mut self, item: &ItemRow, pipeline: &Pipeline) -> Result<(), Refusal> {
        self.change_window(item, pipeline, "success", grown)
    }

    /// A failure of an item was reported.
    pub(crate) fn shrink_window(&mut self, item: &ItemRow, pipeline: &Pipeline) -> Result<(), Refusal> {
        self.change_window(item, pipeline, "failure", shrunk)
    }

    /// Whose queues have which windows before a layout comes into force, in the order in which they began.
    pub(crate) fn windows(&self, tenant: &str) -> Vec<Kept> {
        let mut kept: Vec<(u64, Kept)> = Vec::new();
        for key in self.queue_keys(tenant) {
            let Some(row) = self.gate().queues.row(&key) else { continue };
            let Some((project, branch)) = row.first.clone() else { continue };
            kept.push((row.since, Kept { pipeline: key.1, project, branch, window: row.window }));
        }
        kept.sort_by_key(|(since, _)| *since);
        kept.into_iter().map(|(_, kept)| kept).collect()
    }

    /// Zuul: with a new configuration a queue begins with the window it is configured to have. The window that a queue
    /// had goes to the one in which the project that came first into the old one has an item now, but never below
    /// the floor.
    pub(crate) fn renew_windows(&mut self, tenant: &str, windows: Vec<Kept>) -> Result<(), Refusal> {
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        let mut renewed = BTreeMap::new();
        for key in self.queue_keys(tenant) {
            if let Some(pipeline) = layout.pipeline(&key.1).filter(|one| one.manager == Manager::Dependent) {
                // Zuul: what takes no part in the pipeline any more has a queue without a window.
                let items = self.gate().queues.row(&key).map(|row| row.items.as_slice()).unwrap_or_default();
                let subjects = items.iter().filter_map(|item| self.item(*item)?.subjects.first());
                let takes_part = |one: &Subject| layout.in_pipeline(&one.project, &key.1);
                let window =
                    if items.is_empty() || subjects.into_iter().any(takes_part) { pipeline.window.size } else { 0 };
                renewed.insert(key, window);
            }
        }
        for kept in windows.into_iter().filter(|kept| kept.window > 0) {
            let Some(pipeline) = layout.pipeline(&kept.pipeline).filter(|one| !is_static(&one.window)) else {
                continue;
            };
            let queue = layout.queue_name(&kept.pipeline, &kept.project, kept.branch.as_deref());
            let key = (tenant.to_owned(), kept.pipeline, queue);
            let items = self.gate().queues.row(&key).map(|row| row.items.as_slice()).unwrap_or_default();
            let is_theirs = |item: &ItemRow| item.subjects.first().is_some_and(|one| one.project == kept.project);
            if items.iter().filter_map(|item| self.item(*item)).any(is_theirs)
                && let Some(window) = renewed.get_mut(&key)
            {
                *window = kept.window.max(pipeline.window.floor);
            }
        }
        for (key, window) in renewed {
            self.set_window(key, window, "reconfigured")?;
        }
        Ok(())
    }

    fn set_window(&mut self, key: QueueKey, window: u32, code: &str) -> Result<(), Refusal> {
        if self.gate().queues.row(&key).is_none_or(|row| row.window == window) {
            return Ok(());
        }
        let (tenant, pipeline, queue) = key;
        self.emit(GateEvent::WindowChanged(WindowChanged { tenant, pipeline, queue, window, code: code.into() }))
    }

    /// With a new layout every item goes to the queue its project shares by now. Zuul: what it was tested with stays,
    /// as long as it stands on the same. Queues are laid anew, one after the other in the order in which they began: in
    /// what becomes one queue the items of the older one are ahead.
    pub(crate) fn lay_queues(&mut self, tenant: &str) -> Result<(), Refusal> {
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        for pipeline in layout.pipelines() {
            let window = match pipeline.manager {
                Manager::Dependent => pipeline.window.size,
                Manager::Serial => 1,
                Manager::Independent | Manager::Supercedent => continue,
            };
            let mut laid: BTreeMap<String, Vec<ItemId>> = BTreeMap::new();
            let mut order = Vec::new();
            for (queue, items) in self.queues_as_begun(tenant, &pipeline.name) {
                for item in items {
                    let Some(subject) = self.item(item).and_then(|row| row.subjects.first()) else { continue };
                    let to = layout.queue_name(&pipeline.name, &subject.project, subject.branch.as_deref());
                    let window = layout.in_pipeline(&subject.project, &pipeline.name).then_some(window);
                    laid.entry(to.clone()).or_default().push(item);
                    order.push((item, queue.clone(), to, window));
                }
            }
            // Where those that stay are not ahead of those that come, all of them come.
            let mixed = |(queue, items): (&String, &Vec<ItemId>)| {
                let stays = |item: &&ItemId| self.item(**item).is_some_and(|row| row.queue == *queue);
                let staying = items.iter().filter(stays).count();
                (staying != items.iter().take_while(stays).count()).then(|| queue.clone())
            };
            let mixed: Vec<String> = laid.iter().filter_map(mixed).collect();
            for (item, from, queue, window) in order {
                if queue != from || mixed.contains(&queue) {
                    self.emit(GateEvent::ItemMoved(ItemMoved { item, queue, window }))?;
                }
            }
        }
        Ok(())
    }

    /// The queues of a pipeline with their items, in the order in which they began.
    fn queues_as_begun(&self, tenant: &str, pipeline: &str) -> Vec<(String, Vec<ItemId>)> {
        let keys = self.queue_keys(tenant).into_iter().filter(|key| key.1 == pipeline);
        let mut queues: Vec<(u64, String, Vec<ItemId>)> = keys
            .filter_map(|key| {
                let row = self.gate().queues.row(&key)?;
                Some((row.since, key.2, row.items.clone()))
            })
            .collect();
        queues.sort_by_key(|(since, ..)| *since);
        queues.into_iter().map(|(_, queue, items)| (queue, items)).collect()
    }

    fn change_window(
        &mut self,
        item: &ItemRow,
        pipeline: &Pipeline,
        code: &str,
        change: fn(&Window, u32) -> u32,
    ) -> Result<(), Refusal> {
        let key = (item.tenant.clone(), item.pipeline.clone(), item.queue.clone());
        let Some(window) = self.gate().queues.row(&key).map(|row| row.window) else { return Ok(()) };
        if pipeline.manager != Manager::Dependent || window == 0 {
            return Ok(());
        }
        self.set_window(key, change(&pipeline.window, window), code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(ceiling: Option<u32>, increase: Step, decrease: Step) -> Window {
        Window { size: 20, floor: 3, ceiling, increase, increase_factor: 1, decrease, decrease_factor: 2 }
    }

    #[test]
    fn as_observed_one_more_for_a_success_and_half_for_a_failure() {
        let usual = settings(None, Step::Linear, Step::Exponential);
        assert_eq!(grown(&usual, 20), 21);
        assert_eq!([shrunk(&usual, 20), shrunk(&usual, 10), shrunk(&usual, 5), shrunk(&usual, 3)], [10, 5, 3, 3]);
    }

    #[test]
    fn a_ceiling_ends_growth_and_a_factor_of_nothing_harms_nobody() {
        let capped = settings(Some(22), Step::Linear, Step::Linear);
        assert_eq!([grown(&capped, 21), grown(&capped, 22), shrunk(&capped, 4)], [22, 22, 3]);
        let odd =
            Window { increase_factor: 0, decrease_factor: 0, ..settings(None, Step::Exponential, Step::Exponential) };
        assert_eq!([grown(&odd, 7), shrunk(&odd, 7)], [7, 7]);
    }

    #[test]
    fn a_window_that_is_multiplied_and_divided_by_one_never_changes() {
        let steps = [Step::Linear, Step::Exponential];
        for increase in steps {
            for decrease in steps {
                for (increase_factor, decrease_factor) in [(1, 1), (1, 2), (2, 1)] {
                    let set = Window { increase_factor, decrease_factor, ..settings(None, increase, decrease) };
                    let never = (increase, decrease, increase_factor, decrease_factor)
                        == (Step::Exponential, Step::Exponential, 1, 1);
                    assert_eq!(is_static(&set), never, "{set:?}");
                }
            }
        }
    }
}
