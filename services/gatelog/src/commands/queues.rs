//! The queues of a site that no server answers for: a tenant's status document from its live tables. The same words
//! as the API's, without what needs history (estimates).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use gatelog_event_log::Blobs;
use gatelog_gate_state::GateLive;
use gatelog_gate_state::live::{BuildRow, BuildState, ItemRow, QueueRow, WaitKey};
use gatelog_record::draft::gate::{Subject, WaitSubject};
use gatelog_record::{BuildId, ItemId, Timestamp, codec};
use gatelog_rules_config::Layout;
use gatelog_tables::{Backing, Table, TableError, TableExt};
use serde_json::{Value as Json, json};

use super::failure::{Code, Failure};

impl From<TableError> for Failure {
    fn from(error: TableError) -> Failure {
        Failure::new(Code::No, error.to_string())
    }
}

/// The tenants there are.
pub fn tenants<B: Backing>(live: &GateLive<B>) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for row in live.gate.tenants.all()? {
        names.push(row?.0);
    }
    Ok(names)
}

/// A tenant's status document.
pub fn document<B: Backing>(live: &GateLive<B>, blobs: &dyn Blobs, tenant: &str) -> Result<Json, Failure> {
    let mut queues: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    let from = (tenant.to_owned(), String::new(), String::new());
    for entry in live.gate.queues.range(Bound::Included(&from), Bound::Unbounded)? {
        let ((of, pipeline, name), row) = entry?;
        if of != tenant {
            break;
        }
        queues.entry(pipeline).or_default().push(queue(live, &name, &row)?);
    }
    let mut pipelines = Vec::new();
    let layout = layout(live, blobs, tenant)?;
    for pipeline in layout.iter().flat_map(|layout| layout.pipelines_in_order()) {
        pipelines.push(json!({
            "name": pipeline.name,
            "manager": format!("{:?}", pipeline.manager).to_lowercase(),
            "change_queues": queues.remove(&pipeline.name).unwrap_or_default(),
        }));
    }
    // Pipelines that are configured no longer are shown until they are empty.
    for (name, queues) in queues {
        pipelines.push(json!({ "name": name, "manager": null, "change_queues": queues }));
    }
    let wait = wait(live, WaitSubject::Tenant(tenant.to_owned()))?;
    Ok(json!({ "tenant": tenant, "wait": wait, "pipelines": pipelines }))
}

/// The layout a tenant has; none as long as it has never been made.
pub fn layout<B: Backing>(live: &GateLive<B>, blobs: &dyn Blobs, tenant: &str) -> Result<Option<Layout>, Failure> {
    let Some(row) = live.gate.layouts.get(&tenant.to_owned())? else { return Ok(None) };
    let bytes = blobs.get(&row.layout)?;
    codec::decode(&bytes).map(Some).map_err(|error| {
        Failure::new(Code::Integrity, format!("the layout {} of tenant {tenant} cannot be read", row.layout))
            .detail(error.to_string())
    })
}

fn queue<B: Backing>(live: &GateLive<B>, name: &str, row: &QueueRow) -> Result<Json, Failure> {
    let mut rows: Vec<(ItemId, ItemRow)> = Vec::new();
    for item in &row.items {
        if let Some(found) = live.gate.items.get(item)? {
            rows.push((*item, found.into_owned()));
        }
    }
    let there: BTreeSet<ItemId> = rows.iter().map(|(item, _)| *item).collect();
    let mut heads: Vec<Vec<Json>> = Vec::new();
    for (place, (item, found)) in rows.iter().enumerate() {
        let buildset = match &found.buildset {
            Some(buildset) => live.gate.buildsets.get(buildset)?.map(|row| row.into_owned()),
            None => None,
        };
        let ahead = match &buildset {
            Some(buildset) => row.stands_on(buildset).last().map(|ahead| ahead.item),
            None => rows.iter().take(place).rev().find(|(_, other)| other.failing.is_empty()).map(|(other, _)| *other),
        };
        let ahead = ahead.filter(|ahead| there.contains(ahead));
        let mut jobs = Vec::new();
        for build in buildset.iter().flat_map(|buildset| &buildset.builds) {
            if let Some(row) = live.gate.builds.get(build)? {
                jobs.push(job(live, *build, &row)?);
            }
        }
        let one = json!({
            "id": item.to_string(),
            "live": found.live,
            "active": row.window == 0 || place < row.window as usize,
            "refs": found.subjects.iter().map(reference).collect::<Vec<_>>(),
            "item_ahead": ahead.map(|ahead| ahead.to_string()),
            "failing_reasons": found.failing,
            "buildset": found.buildset.map(|buildset| buildset.to_string()),
            "enqueue_time": millis(found.enqueued_at),
            "problem": buildset.as_ref().and_then(|buildset| buildset.problem.as_ref())
                .map(|problem| json!({ "code": problem.code, "message": problem.message })),
            "reason": found.reason,
            "resets": found.resets,
            "wait": wait(live, WaitSubject::Item(*item))?,
            "jobs": jobs,
        });
        match heads.last_mut() {
            Some(head) if ahead.is_some() => head.push(one),
            _ => heads.push(vec![one]),
        }
    }
    Ok(json!({ "name": name, "window": row.window, "heads": heads }))
}

fn reference(subject: &Subject) -> Json {
    let project = subject.project.split_once('/').map_or(subject.project.as_str(), |(_, name)| name);
    let id = match (&subject.change, &subject.patchset) {
        (Some(change), Some(patchset)) => format!("{change},{patchset}"),
        (Some(change), None) => change.clone(),
        _ => subject.commit.clone().unwrap_or_else(|| subject.git_ref.clone()),
    };
    json!({ "id": id, "project": project, "project_canonical": subject.project, "url": subject.url, "ref": subject.git_ref })
}

fn job<B: Backing>(live: &GateLive<B>, id: BuildId, row: &BuildRow) -> Result<Json, Failure> {
    let running = row.state == BuildState::Running;
    let seconds = |at: Timestamp| millis(at) as f64 / 1_000.0;
    Ok(json!({
        "name": row.job.name,
        "uuid": id.to_string(),
        "voting": row.job.voting,
        "result": row.result.map(|result| result.word()),
        "start_time": row.started_at.map(seconds),
        "end_time": row.finished_at.filter(|_| !running).map(seconds),
        "tries": row.attempt,
        "worker": row.worker,
        "detail": row.detail,
        "settled": row.settled,
        "wait": wait(live, WaitSubject::Build(id))?,
    }))
}

fn wait<B: Backing>(live: &GateLive<B>, subject: WaitSubject) -> Result<Json, Failure> {
    Ok(match live.gate.waits.get(&WaitKey(subject))? {
        Some(row) => json!({ "code": row.code.word(), "detail": row.detail, "since_ms": millis(row.since),
                             "unblocks": row.unblocks }),
        None => Json::Null,
    })
}

fn millis(at: Timestamp) -> i64 {
    at.0.div_euclid(1_000)
}
