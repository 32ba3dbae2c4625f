//! Windows: how many items of a queue are worked on at once.

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::ItemRow;
use gatelog_record::draft::gate::{ItemMoved, WindowChanged};
use gatelog_record::event::GateEvent;
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::objects::pipeline::{Manager, Step, Window};

use crate::decision::Decision;

/// The window after a success.
pub(crate) fn grown(settings: &Window, window: u32) -> u32 {
    let grown = match settings.increase {
        Step::Linear => window.saturating_add(settings.increase_factor),
        Step::Exponential => window.saturating_mul(settings.increase_factor.max(1)),
    };
    settings.ceiling.map_or(grown, |ceiling| grown.min(ceiling.max(window)))
}

/// The window after a failure.
pub(crate) fn shrunk(settings: &Window, window: u32) -> u32 {
    let shrunk = match settings.decrease {
        Step::Linear => window.saturating_sub(settings.decrease_factor),
        Step::Exponential => window / settings.decrease_factor.max(1),
    };
    shrunk.max(settings.floor).min(window.max(settings.floor))
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

    /// Zuul: with a new configuration a queue begins with the window it is configured to have. (It keeps its own while
    /// the project that came into it first still has an item there; which one that was is not known here.)
    pub(crate) fn renew_windows(&mut self, tenant: &str) -> Result<(), Refusal> {
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        for key in self.queue_keys(tenant) {
            let Some(window) = self.gate().queues.row(&key).map(|row| row.window) else { continue };
            let Some(pipeline) = layout.pipeline(&key.1) else { continue };
            if pipeline.manager != Manager::Dependent || window == pipeline.window.size {
                continue;
            }
            let (tenant, pipeline, queue, window) = (key.0, key.1, key.2, pipeline.window.size);
            let code = "reconfigured".into();
            self.emit(GateEvent::WindowChanged(WindowChanged { tenant, pipeline, queue, window, code }))?;
        }
        Ok(())
    }

    /// With a new layout every item goes to the queue its project shares by now. Zuul: what it was tested with stays,
    /// as long as it stands on the same.
    pub(crate) fn lay_queues(&mut self, tenant: &str) -> Result<(), Refusal> {
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        for key in self.queue_keys(tenant) {
            let Some(pipeline) = layout.pipeline(&key.1) else { continue };
            let window = match pipeline.manager {
                Manager::Dependent => pipeline.window.size,
                Manager::Serial => 1,
                Manager::Independent | Manager::Supercedent => continue,
            };
            let items = self.gate().queues.row(&key).map(|row| row.items.clone()).unwrap_or_default();
            for item in items {
                let Some(subject) = self.item(item).and_then(|row| row.subjects.first()) else { continue };
                let queue = layout.queue_name(&key.1, &subject.project, subject.branch.as_deref());
                if queue != key.2 {
                    let window = layout.in_pipeline(&subject.project, &key.1).then_some(window);
                    self.emit(GateEvent::ItemMoved(ItemMoved { item, queue, window }))?;
                }
            }
        }
        Ok(())
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
        let new = change(&pipeline.window, window);
        if new == window {
            return Ok(());
        }
        let (tenant, pipeline, queue) = key;
        self.emit(GateEvent::WindowChanged(WindowChanged { tenant, pipeline, queue, window: new, code: code.into() }))
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
}
