//! Triggers that the gate sets off itself: a change that entered a pipeline is news for those that need it.

use std::collections::VecDeque;

use gatelog_deciding::Refusal;
use gatelog_record::Value;
use gatelog_record::draft::gate::Subject;
use gatelog_rules_config::Pipeline;

use crate::decision::Decision;
use crate::filters;
use crate::layout_view::LayoutView;
use crate::managers::Entry;

/// The driver of these triggers, which needs no connection.
const DRIVER: &str = "zuul";
/// The event's name.
const PARENT_ENQUEUED: &str = "parent-change-enqueued";
/// How many changes may be asked in one go, because of others, whether they enter a pipeline: the rest is left out.
const MAX_SET_OFF: usize = 10_000;

/// A change that entered a pipeline of which others may be told.
pub(crate) struct Parent {
    pipeline: String,
    subject: Subject,
    trigger: Option<u64>,
}

/// Whether a pipeline has a trigger for changes whose parent entered some other.
pub(crate) fn minds_parents(pipeline: &Pipeline) -> bool {
    pipeline.filters(DRIVER).iter().any(|filter| Pipeline::events(filter).contains(&PARENT_ENQUEUED))
}

/// Whether anybody is told of what enters a pipeline. Zuul: only where a trigger names it in so many words.
fn is_named(layout: &LayoutView, name: &str) -> bool {
    let text = |value: &Value| {
        let plain = value.as_str().or_else(|| value.as_map()?.get("regex")?.as_str());
        plain == Some(name)
    };
    let names = |value: &Value| value.as_list().map_or_else(|| text(value), |values| values.iter().any(text));
    layout
        .pipelines()
        .iter()
        .flat_map(|one| one.filters(DRIVER))
        .any(|filter| Pipeline::events(filter).contains(&PARENT_ENQUEUED) && filter.get("pipeline").is_some_and(names))
}

/// Whether a pipeline is triggered by what entered another. Zuul: a filter that names none takes what others name.
fn takes(pipeline: &Pipeline, from: &str) -> bool {
    pipeline.filters(DRIVER).iter().any(|filter| {
        let named = filter.get("pipeline").is_none_or(|wanted| filters::matches_start(wanted, from));
        Pipeline::events(filter).contains(&PARENT_ENQUEUED) && named
    })
}

impl Decision<'_> {
    /// Remembers that changes entered a pipeline.
    pub(crate) fn note_entered(&mut self, entry: &Entry<'_>, subjects: &[Subject]) {
        let name = &entry.pipeline.name;
        if is_named(entry.layout, name) {
            let news = subjects.iter().filter(|subject| subject.change.is_some()).map(|subject| Parent {
                pipeline: name.clone(),
                subject: subject.clone(),
                trigger: entry.trigger,
            });
            self.entered.extend(news);
        }
    }

    /// Tells the changes that need one which entered a pipeline. Zuul: `parent-change-enqueued`.
    pub(crate) fn tell_children(&mut self, tenant: &str) -> Result<(), Refusal> {
        if self.entered.is_empty() {
            return Ok(());
        }
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        let mut told: VecDeque<Parent> = std::mem::take(&mut self.entered).into();
        let mut count = 0;
        while let Some(parent) = told.pop_front() {
            let Some(key) = parent.subject.change_key() else { continue };
            for child in self.found_behind(tenant, &key) {
                let Some(subject) = self.current_subject(tenant, &child) else { continue };
                for pipeline in layout.pipelines().iter().filter(|one| takes(one, &parent.pipeline)) {
                    count += 1;
                    if count > MAX_SET_OFF {
                        return Ok(());
                    }
                    self.enter(&Entry {
                        tenant,
                        layout: &layout,
                        pipeline,
                        subject: &subject,
                        trigger: parent.trigger,
                        reason: "parent-enqueued",
                        asked: false,
                        parameters: None,
                    })?;
                }
            }
            told.extend(std::mem::take(&mut self.entered));
        }
        Ok(())
    }
}
