//! Triggers that the gate sets off itself: a change that entered a pipeline is news for those that need it, and one
//! that it merged for all that are open in its project.

use std::collections::{BTreeSet, VecDeque};

use gatelog_deciding::Refusal;
use gatelog_record::Value;
use gatelog_record::draft::gate::{ChangeKey, EnqueueRefused, FactsPurpose, Subject};
use gatelog_record::event::GateEvent;
use gatelog_rules_config::Pipeline;

use crate::decision::Decision;
use crate::filters;
use crate::layout_view::LayoutView;
use crate::managers::Entry;

/// The driver of these triggers, which needs no connection.
const DRIVER: &str = "zuul";
/// The event's name.
const PARENT_ENQUEUED: &str = "parent-change-enqueued";
/// The name of the other one.
const PROJECT_MERGED: &str = "project-change-merged";
/// How many changes may be asked in one go, because of others, whether they enter a pipeline: the rest is left out.
/// Each may come to several events, and all of them have to fit into one decision.
const MAX_SET_OFF: usize = 1_000;

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

/// Whether a pipeline takes the open changes of a project of which one was merged. Zuul: of a filter that names a
/// pipeline, too, nothing fits, since none is spoken of.
fn minds_merges(pipeline: &Pipeline) -> bool {
    pipeline
        .filters(DRIVER)
        .iter()
        .any(|filter| Pipeline::events(filter).contains(&PROJECT_MERGED) && !filter.contains_key("pipeline"))
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
                    let (trigger, reason) = (parent.trigger, "parent-enqueued");
                    let entry = own_entry(tenant, &layout, pipeline, &subject, trigger, reason);
                    count += 1;
                    if count > MAX_SET_OFF {
                        return self.left_out(&entry, &parent.subject.url);
                    }
                    self.enter(&entry)?;
                }
            }
            told.extend(std::mem::take(&mut self.entered));
        }
        Ok(())
    }

    /// The first of those that nobody asks any more whether they enter a pipeline.
    fn left_out(&mut self, entry: &Entry<'_>, because_of: &str) -> Result<(), Refusal> {
        let detail = format!(
            "{because_of} set off more than {MAX_SET_OFF} changes at once: this one and those that would come after it \
             are left out. Enqueue them by hand."
        );
        self.emit(GateEvent::EnqueueRefused(EnqueueRefused {
            tenant: entry.tenant.to_owned(),
            pipeline: entry.pipeline.name.clone(),
            subject: entry.subject.clone(),
            code: "too-many-set-off".to_owned(),
            detail,
        }))
    }

    /// Changes were merged: asks for all that are open in their projects, if a pipeline wants to know. Zuul:
    /// `project-change-merged`.
    pub(crate) fn ask_open_changes(&mut self, tenant: &str, subjects: &[Subject]) -> Result<(), Refusal> {
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        if !layout.pipelines().iter().any(|one| minds_merges(one)) {
            return Ok(());
        }
        let projects: BTreeSet<(&String, &String)> =
            subjects.iter().map(|subject| (&subject.connection, &subject.project)).collect();
        for (connection, project) in projects {
            let purpose = FactsPurpose::ProjectMerged { project: project.clone() };
            self.want_facts(tenant, connection, Vec::new(), true, purpose)?;
        }
        Ok(())
    }

    /// Tells the open changes of a project that one of it was merged.
    pub(crate) fn tell_project(&mut self, tenant: &str, project: &str, found: &[ChangeKey]) -> Result<(), Refusal> {
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        let mut count = 0;
        let mut asked: BTreeSet<&ChangeKey> = BTreeSet::new();
        for key in found.iter().filter(|key| key.project == project) {
            let open = self.change(tenant, key).filter(|row| row.facts.open);
            let Some(subject) = open.map(|row| row.facts.subject.clone()).filter(|_| asked.insert(key)) else {
                continue;
            };
            for pipeline in layout.pipelines().iter().filter(|one| minds_merges(one)) {
                let entry = own_entry(tenant, &layout, pipeline, &subject, None, "project-merged");
                count += 1;
                if count > MAX_SET_OFF {
                    return self.left_out(&entry, &format!("What was merged into {project}"));
                }
                self.enter(&entry)?;
            }
        }
        Ok(())
    }
}

/// A change that enters, if it fits, because of another.
fn own_entry<'e>(
    tenant: &'e str,
    layout: &'e LayoutView,
    pipeline: &'e Pipeline,
    subject: &'e Subject,
    trigger: Option<u64>,
    reason: &'static str,
) -> Entry<'e> {
    Entry { tenant, layout, pipeline, subject, trigger, reason, asked: false, parameters: None }
}
