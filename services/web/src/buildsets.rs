//! Buildsets: the list, and one.

use gatelog_gate_state::history::{BuildsetEntry, FrozenEntry, List, PreparedEntry};
use gatelog_record::BuildsetId;
use gatelog_record::draft::gate::WaitSubject;

use crate::answers::{Buildset, BuildsetEvent, BuildsetWhole, Frozen, Prepared, PreparedBranch};
use crate::builds::{gone, id, projects};
use crate::error::ApiError;
use crate::filter::{Items, MAX_LOOKED_AT, Page, SubjectFilter, any, fits};
use crate::query::Query;
use crate::reading::Reading;
use crate::shape::{self, BuildPart, ms};

/// The parameters of the list.
pub(crate) const PARAMETERS: &[&str] = &[
    "project",
    "pipeline",
    "change",
    "branch",
    "patchset",
    "ref",
    "newrev",
    "uuid",
    "queue_item_uuid",
    "result",
    "complete",
    "limit",
    "skip",
    "idx_min",
    "idx_max",
    "exclude_result",
];

struct Filter<'q> {
    subject: SubjectFilter<'q>,
    pipelines: Vec<&'q str>,
    uuids: Vec<&'q str>,
    items: Vec<&'q str>,
    results: Vec<&'q str>,
    excluded: Vec<&'q str>,
    complete: Option<bool>,
}

impl<'q> Filter<'q> {
    fn read(query: &'q Query) -> Result<Filter<'q>, ApiError> {
        Ok(Filter {
            subject: SubjectFilter::read(query),
            pipelines: query.all("pipeline"),
            uuids: query.all("uuid"),
            items: query.all("queue_item_uuid"),
            results: query.all("result"),
            excluded: query.all("exclude_result"),
            complete: query.truth("complete")?,
        })
    }

    fn buildset(&self, id: BuildsetId, row: &BuildsetEntry) -> bool {
        let result = row.result.map(|result| result.word());
        // What was given up for another is shown to those who ask for what never got a result.
        (row.reset.is_none() || self.complete == Some(false))
            && any(&self.pipelines, |value| fits(value, &row.pipeline))
            && any(&self.uuids, |value| value.parse() == Ok(id))
            && any(&self.items, |value| value.parse() == Ok(row.item))
            && any(&self.results, |value| result == Some(value))
            && !self.excluded.iter().any(|value| result == Some(*value))
            && self.complete.is_none_or(|complete| complete == result.is_some())
    }
}

/// `buildsets`
pub(crate) fn list(reading: &Reading<'_>, tenant: &str, query: &Query) -> Result<Vec<Buildset>, ApiError> {
    reading.need_tenant(tenant)?;
    let (filter, page) = (Filter::read(query)?, Page::read(query)?);
    let history = reading.history();
    let projects = projects(reading, tenant)?;
    let at = reading.at.min(page.index_max);
    let item = match filter.items.as_slice() {
        [one] => one.parse().ok(),
        _ => None,
    };
    let ids: Box<dyn Iterator<Item = _>> = if !filter.uuids.is_empty() {
        Box::new(filter.uuids.iter().filter_map(|uuid| uuid.parse().ok()).map(Ok))
    } else if let Some(item) = item {
        history.buildsets_of(item, at)?
    } else {
        let list = match (filter.subject.list(&projects), filter.pipelines.as_slice()) {
            (Some(list), _) => list,
            (None, [pipeline]) if !pipeline.contains('*') => List::Pipeline(pipeline),
            _ => List::Tenant,
        };
        history.newest_buildsets(tenant, list, at)?
    };
    let mut items = Items::default();
    let (mut found, mut skip) = (Vec::new(), page.skip);
    for (looked_at, id) in ids.enumerate() {
        if found.len() >= page.limit {
            break;
        }
        if looked_at >= MAX_LOOKED_AT {
            return Err(ApiError::TooWide(MAX_LOOKED_AT));
        }
        let id = id?;
        let Some(row) = history.buildset(id, reading.at)? else { continue };
        if row.opened < page.index_min {
            break;
        }
        if row.tenant != tenant || !page.holds(row.opened) || !filter.buildset(id, &row) {
            continue;
        }
        let Some(item) = items.get(reading, row.item)? else { continue };
        // An item that is not live only stands for what a live one needs: nobody is told of it.
        if !item.live || !filter.subject.item(item) {
            continue;
        }
        if skip > 0 {
            skip -= 1;
            continue;
        }
        let event = shape::Event::of(reading, item)?;
        found.push(shape::buildset(id, &row, item, &event));
    }
    Ok(found)
}

/// `buildset/{uuid}`
pub(crate) fn one(reading: &Reading<'_>, tenant: &str, uuid: &str) -> Result<BuildsetWhole, ApiError> {
    reading.need_tenant(tenant)?;
    let buildset: BuildsetId = id(uuid)?;
    let row = match reading.history().buildset(buildset, reading.at)? {
        Some(row) if row.tenant == tenant => row,
        _ => return Err(ApiError::NotFound(format!("tenant {tenant} has no buildset {buildset}"))),
    };
    let item = reading.history().item(row.item, reading.at)?.ok_or_else(|| gone(row.item, buildset))?;
    let event = shape::Event::of(reading, &item)?;
    let mut builds = Vec::with_capacity(row.builds.len());
    for build in &row.builds {
        if let Some(entry) = reading.history().build(*build, reading.at)? {
            builds.push(shape::build(*build, &entry, &item, &event, BuildPart::Within));
        }
    }
    Ok(BuildsetWhole {
        buildset: shape::buildset(buildset, &row, &item, &event),
        builds,
        events: events(&row, &item),
        waits: shape::waits(reading, &WaitSubject::Item(row.item))?,
        prepared: row.prepared.as_ref().map(prepared),
        frozen: row.frozen.as_ref().map(frozen),
        config_problem: row.config_problem.clone(),
        layout: row.layout.map(|hash| hash.to_string()),
        ahead: row.ahead.iter().map(ToString::to_string).collect(),
    })
}

fn prepared(prepared: &PreparedEntry) -> Prepared {
    let branch = |branch: &gatelog_record::draft::gate::PreparedBranch| PreparedBranch {
        project: shape::short(&branch.at.project).to_owned(),
        project_canonical: branch.at.project.clone(),
        branch: branch.at.branch.clone(),
        base: branch.base.clone(),
        ahead: branch.ahead.clone(),
        commit: branch.commit.clone(),
        tree: branch.tree.clone(),
    };
    match prepared {
        PreparedEntry::Merged { branches } => Prepared::Merged { branches: branches.iter().map(branch).collect() },
        PreparedEntry::Conflict { subject, paths, message } => Prepared::Conflict {
            git_ref: Box::new(shape::git_ref(subject)),
            paths: paths.clone(),
            message: message.clone(),
        },
        PreparedEntry::Failed { code, message } => Prepared::Failed { code: code.clone(), message: message.clone() },
    }
}

fn frozen(frozen: &FrozenEntry) -> Frozen {
    match frozen {
        FrozenEntry::Frozen { graph, trace, .. } => Frozen::Jobs { graph: graph.to_string(), trace: trace.to_string() },
        FrozenEntry::NoJobs { trace, in_pipeline } => {
            Frozen::NoJobs { trace: trace.to_string(), in_pipeline: *in_pipeline }
        }
        FrozenEntry::Refused { trace, message } => {
            Frozen::Refused { trace: trace.to_string(), message: message.clone() }
        }
        FrozenEntry::Failed { code, message } => Frozen::Failed { code: code.clone(), message: message.clone() },
    }
}

/// Zuul's events of a buildset: what befell its item.
fn events(row: &BuildsetEntry, item: &gatelog_gate_state::history::ItemEntry) -> Vec<BuildsetEvent> {
    let event = |at, kind: &str, description: String| BuildsetEvent {
        event_time: shape::iso(at),
        event_type: kind.to_owned(),
        description,
        event_ms: ms(at),
    };
    let mut told =
        vec![event(item.enqueued_at, "item-enqueued", format!("enqueued into {}: {}", item.pipeline, item.reason))];
    for reset in item.resets.iter().filter(|reset| reset.sequence <= row.opened || row.reset.is_some()) {
        told.push(event(reset.at, "item-reset", format!("{}: {}", reset.code, reset.detail)));
    }
    told.push(event(row.opened_at, "buildset-opened", format!("on top of {} items", row.ahead.len())));
    for submit in item.submits.iter().filter(|submit| submit.requested_at >= row.opened_at) {
        told.push(event(submit.requested_at, "submit-requested", format!("{} branches", submit.targets.len())));
    }
    if let Some(end) = item.end.as_ref().filter(|_| row.reset.is_none()) {
        told.push(event(end.at, "item-dequeued", format!("{}: {}", end.code, end.detail)));
    }
    told.sort_by_key(|event| event.event_ms);
    told
}
