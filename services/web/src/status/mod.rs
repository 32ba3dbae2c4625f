//! The live queues of a tenant, now or then.

mod document;
mod pieces;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use gatelog_gate_state::GateLive;
use gatelog_gate_state::live::{
    BuildRow, BuildState, BuildsetRow, ItemRow, ProblemKind, QueueRow, WaitKey, WaitRow, subject_name,
};
use gatelog_record::draft::gate::{BuildResult, Subject, TriggerIntake, WaitSubject};
use gatelog_record::{BuildId, ItemId};
use gatelog_rules_config::Pipeline as Configured;
use gatelog_tables::{Backing, Table, TableError};
use serde_json::{Value as Json, json};

use crate::answers::{
    ItemStatus, JobStatus, PipelineStatus, Problem, QueueLength, QueueStatus, RefStatus, Status as StatusAnswer,
    TenantState, Trigger,
};
use crate::error::ApiError;
use crate::estimate::{Ahead, Estimate, Estimates, longest};
use crate::reading::{Live, Reading};
use crate::shape::{git_ref, ms, queue_name, ref_id, seconds, wait_row};

pub(crate) use document::{Document, Item, Job, Pipeline, Queue};
use document::{ItemPiece, JobPiece};
pub(crate) use pieces::Pieces;
use pieces::{OfItem, OfJob};

/// `status`, of pieces made before where they are the same.
pub(crate) fn document(reading: &Reading<'_>, tenant: &str, pieces: &mut Pieces) -> Result<Document, ApiError> {
    reading.need_tenant(tenant)?;
    pieces.begin();
    let document = match reading.live() {
        Live::Now(live) => Status::new(reading, live, tenant, pieces)?.document(),
        Live::Then(live) => Status::new(reading, &*live, tenant, pieces)?.document(),
    }?;
    pieces.end();
    Ok(document)
}

/// `status/change/{change}`
pub(crate) fn change(reading: &Reading<'_>, tenant: &str, change: &str) -> Result<Json, ApiError> {
    reading.need_tenant(tenant)?;
    match reading.live() {
        Live::Now(live) => Status::new(reading, live, tenant, &mut Pieces::default())?.change(change),
        Live::Then(live) => Status::new(reading, &*live, tenant, &mut Pieces::default())?.change(change),
    }
}

/// How many items are in a tenant's queues, and in how many pipelines they can be.
pub(crate) fn count(reading: &Reading<'_>, tenant: &str) -> Result<(usize, usize), ApiError> {
    let pipelines = reading.layout(tenant)?.map_or(0, |layout| layout.pipelines_in_order().count());
    let items = match reading.live() {
        Live::Now(live) => queued(live, tenant)?,
        Live::Then(live) => queued(&*live, tenant)?,
    };
    Ok((items, pipelines))
}

fn queued<B: Backing>(live: &GateLive<B>, tenant: &str) -> Result<usize, ApiError> {
    let from = (tenant.to_owned(), String::new(), String::new());
    let mut items = 0;
    for entry in live.gate.queues.range(Bound::Included(&from), Bound::Unbounded)? {
        let ((of, _, _), row) = entry?;
        if of != tenant {
            break;
        }
        items += row.items.len();
    }
    Ok(items)
}

/// A queue in the tables.
struct Queued {
    pipeline: String,
    name: String,
    row: QueueRow,
}

struct Status<'r, B: Backing> {
    reading: &'r Reading<'r>,
    live: &'r GateLive<B>,
    tenant: &'r str,
    queues: Vec<Queued>,
    estimates: Estimates,
    pieces: &'r mut Pieces,
}

impl<'r, B: Backing> Status<'r, B> {
    fn new(
        reading: &'r Reading<'r>,
        live: &'r GateLive<B>,
        tenant: &'r str,
        pieces: &'r mut Pieces,
    ) -> Result<Self, ApiError> {
        let from = (tenant.to_owned(), String::new(), String::new());
        let mut queues = Vec::new();
        for entry in live.gate.queues.range(Bound::Included(&from), Bound::Unbounded)? {
            let ((of, pipeline, name), row) = entry?;
            if of != tenant {
                break;
            }
            queues.push(Queued { pipeline, name, row: row.into_owned() });
        }
        Ok(Status { reading, live, tenant, queues, estimates: Estimates::default(), pieces })
    }

    fn document(mut self) -> Result<Document, ApiError> {
        let layout = self.reading.layout(self.tenant)?;
        let in_force = self.reading.history().layout(self.tenant, self.reading.at)?;
        let mut pipelines = Vec::new();
        let mut told = BTreeSet::new();
        for pipeline in layout.iter().flat_map(|layout| layout.pipelines_in_order()) {
            told.insert(pipeline.name.clone());
            pipelines.push(self.pipeline(&pipeline.name, Some(pipeline))?);
        }
        // Queues of a pipeline that is no longer configured are shown until they are empty.
        let others: BTreeSet<String> = self.queues.iter().map(|queue| queue.pipeline.clone()).collect();
        for name in others.difference(&told) {
            pipelines.push(self.pipeline(name, None)?);
        }
        let mut triggers = 0_u64;
        let from = (self.tenant.to_owned(), 0);
        for entry in self.live.gate.triggers.range(Bound::Included(&from), Bound::Unbounded)? {
            if entry?.0.0 != self.tenant {
                break;
            }
            triggers += 1;
        }
        let wait = self.wait(WaitSubject::Tenant(self.tenant.to_owned()))?.map(|row| wait_row(&row));
        let row = self.live.gate.tenants.get(&self.tenant.to_owned())?;
        let (intake, reason) =
            row.map_or_else(Default::default, |row| (row.triggers, Some(row.triggers_reason.clone())));
        let status = StatusAnswer {
            zuul_version: self.reading.app.site.version.clone(),
            position: None,
            position_ms: None,
            trigger_event_queue: QueueLength { length: triggers },
            management_event_queue: QueueLength { length: 0 },
            connection_event_queues: BTreeMap::new(),
            state: TenantState {
                trigger_queue_discarding: intake == TriggerIntake::Discarding,
                trigger_queue_paused: intake == TriggerIntake::Paused,
                result_queue_paused: false,
                reason: reason.filter(|reason| !reason.is_empty()),
                info: None,
            },
            last_reconfigured: in_force.map(|entry| ms(entry.activated_at)),
            wait,
            pipelines: Vec::new(),
        };
        let position = self.reading.app.position(self.reading.at);
        Ok(Document { json: json!(status), position, position_ms: ms(self.reading.now), pipelines })
    }

    fn change(mut self, change: &str) -> Result<Json, ApiError> {
        let mut found = Vec::new();
        for number in 0..self.queues.len() {
            for item in self.items(number)? {
                let here = item.row.subjects.iter().any(|subject| {
                    ref_id(subject) == change
                        || subject_name(subject) == change
                        || subject.commit.as_deref() == Some(change)
                });
                if here {
                    found.push(self.item(item)?.json());
                }
            }
        }
        Ok(Json::Array(found))
    }

    fn pipeline(&mut self, name: &str, pipeline: Option<&Configured>) -> Result<Pipeline, ApiError> {
        let drivers = &self.reading.app.site.drivers;
        let triggers = pipeline
            .into_iter()
            .flat_map(|pipeline| pipeline.triggers.keys())
            .map(|connection| Trigger { driver: drivers.get(connection).unwrap_or(connection).clone() })
            .collect();
        let mut queues = Vec::new();
        for number in 0..self.queues.len() {
            if self.queues.get(number).is_some_and(|queue| queue.pipeline == name) {
                queues.push(self.queue(number)?);
            }
        }
        let status = PipelineStatus {
            name: name.to_owned(),
            description: pipeline.map(|pipeline| pipeline.description.clone()),
            state: "normal".to_owned(),
            manager: pipeline.map(|pipeline| format!("{:?}", pipeline.manager).to_lowercase()),
            triggers,
            trigger_events: 0,
            result_events: 0,
            management_events: 0,
            change_queues: Vec::new(),
        };
        Ok(Pipeline { json: json!(status), queues })
    }

    fn queue(&mut self, number: usize) -> Result<Queue, ApiError> {
        let items = self.items(number)?;
        let queue = self.queues.get(number);
        let subject = items.last().and_then(|item| item.row.subjects.first());
        let json = json!(QueueStatus {
            name: queue.map(|queue| queue_name(&queue.name, subject).to_owned()),
            branch: None,
            window: queue.map_or(0, |queue| queue.row.window),
            heads: Vec::new(),
        });
        let mut heads: Vec<Vec<Item>> = Vec::new();
        for placed in items {
            let behind_another = placed.ahead.is_some();
            let item = self.item(placed)?;
            match heads.last_mut() {
                // Zuul: an item that stands behind nothing begins a row of its own.
                Some(head) if behind_another => head.push(item),
                _ => heads.push(vec![item]),
            }
        }
        Ok(Queue { json, heads })
    }

    /// The items of a queue with where each stands.
    fn items(&self, number: usize) -> Result<Vec<Placed<'r>>, ApiError> {
        let Some(queue) = self.queues.get(number) else { return Ok(Vec::new()) };
        let mut items: Vec<Placed<'r>> = Vec::new();
        let live = self.live;
        let mut places: BTreeMap<ItemId, usize> = BTreeMap::new();
        // The nearest item ahead that is not failing.
        let mut sound = None;
        for (place, id) in queue.row.items.iter().enumerate() {
            let Some(row) = live.gate.items.get(id)? else {
                return Err(ApiError::Internal(format!(
                    "queue {} names item {id}, which is not in the tables",
                    queue.name
                )));
            };
            let buildset = match &row.buildset {
                Some(buildset) => live.gate.buildsets.get(buildset)?,
                None => None,
            };
            let ahead = match &buildset {
                Some(buildset) => queue.row.stands_on(buildset).last().map(|ahead| ahead.item),
                // What it will stand on: the nearest item ahead that is not failing.
                None => sound,
            };
            // An item ahead that has left without being merged is none.
            let ahead = ahead.filter(|ahead| places.contains_key(ahead));
            let active = queue.row.window == 0 || place < queue.row.window as usize;
            if row.failing.is_empty() {
                sound = Some(*id);
            }
            if let Some(place) = ahead.and_then(|ahead| places.get(&ahead))
                && let Some(other) = items.get_mut(*place)
            {
                other.behind.push(*id);
            }
            places.insert(*id, items.len());
            items.push(Placed { id: *id, row, buildset, ahead, behind: Vec::new(), active });
        }
        Ok(items)
    }

    fn item(&mut self, item: Placed<'r>) -> Result<Item, ApiError> {
        let live = self.live;
        let mut jobs = Vec::new();
        let mut ahead = Vec::new();
        for id in item.buildset.iter().flat_map(|buildset| &buildset.builds) {
            let Some(build) = live.gate.builds.get(id)? else { continue };
            let (job, left) = self.job(*id, &build, &item.row)?;
            let after = build.job.dependencies.iter().map(|(job, _)| job.clone()).collect();
            ahead.push(Ahead { name: build.job.name.clone(), after, left });
            jobs.push(job);
        }
        let wait = self.wait(WaitSubject::Item(item.id))?;
        let owners: Result<Vec<Option<String>>, ApiError> =
            item.row.subjects.iter().map(|subject| self.owner(subject)).collect();
        let of = OfItem {
            row: &item.row,
            problem: item.buildset.as_ref().and_then(|buildset| buildset.problem.as_ref()),
            ahead: item.ahead,
            behind: &item.behind,
            active: item.active,
            wait: wait.as_deref(),
            owners: &owners?,
        };
        let piece = self.pieces.item(item.id, &of, || item_piece(item.id, &of));
        Ok(Item { piece, remaining: longest(&ahead), jobs })
    }

    /// The owner of a change, by an opaque id: the name is under seal.
    fn owner(&self, subject: &Subject) -> Result<Option<String>, ApiError> {
        let key = (self.tenant.to_owned(), subject.project.clone(), subject_name(subject));
        Ok(self.live.gate.changes.get(&key)?.map(|row| row.facts.owner.to_string()))
    }

    /// A job, and how much longer it is thought to take, in milliseconds.
    fn job(&mut self, id: BuildId, build: &BuildRow, item: &ItemRow) -> Result<(Job, Option<i64>), ApiError> {
        let estimate = self.estimates.of(self.reading, self.tenant, &build.job.name)?;
        let estimated_ms = estimate.map(|estimate| estimate.mean_ms);
        let running = build.state == BuildState::Running;
        let elapsed = match (build.started_at, build.finished_at) {
            (Some(start), Some(end)) if !running => Some(end.millis_since(start).max(0)),
            (Some(start), _) if running => {
                Some(crate::leaps::ran_ms(crate::shape::ms(start), crate::shape::ms(self.reading.now)))
            }
            _ => None,
        };
        let remaining = match (build.result, estimated_ms) {
            (Some(_), _) => Some(0),
            (None, Some(estimated)) => Some((estimated - elapsed.filter(|_| running).unwrap_or(0)).max(0)),
            (None, None) => None,
        };
        let wait = self.wait(WaitSubject::Build(id))?;
        let of = OfJob { build, pipeline: &item.pipeline, wait: wait.as_deref(), estimate };
        let tenant = self.tenant;
        let piece = self.pieces.job(id, &of, || job_piece(tenant, id, &of));
        Ok((Job { piece, elapsed, remaining: remaining.filter(|_| item.live) }, remaining))
    }

    fn wait(&self, subject: WaitSubject) -> Result<Option<Cow<'r, WaitRow>>, TableError> {
        self.live.gate.waits.get(&WaitKey(subject))
    }
}

fn item_piece(id: ItemId, of: &OfItem<'_>) -> ItemPiece {
    let row = of.row;
    let result = of.problem.map(|problem| match problem.kind {
        ProblemKind::Conflict => "MERGE_CONFLICT",
        ProblemKind::Config => "CONFIG_ERROR",
        ProblemKind::NoJobs => "NO_JOBS",
        ProblemKind::Error => "ERROR",
    });
    let refs = row.subjects.iter().zip(of.owners).map(|(subject, owner)| reference(subject, owner.as_deref()));
    ItemPiece::new(&ItemStatus {
        id: id.to_string(),
        uuid: id.to_string(),
        active: of.active,
        live: row.live,
        refs: refs.collect(),
        item_ahead: of.ahead.map(|ahead| ahead.to_string()),
        items_behind: of.behind.iter().map(ToString::to_string).collect(),
        failing_reasons: row.failing.clone(),
        zuul_ref: row.buildset.map(|buildset| format!("Z{buildset}")),
        buildset: row.buildset.map(|buildset| buildset.to_string()),
        enqueue_time: ms(row.enqueued_at),
        remaining_time: None,
        result: result.map(str::to_owned),
        problem: of.problem.map(|problem| Problem { code: problem.code.clone(), message: problem.message.clone() }),
        reason: row.reason.clone(),
        resets: row.resets,
        wait: of.wait.map(wait_row),
        jobs: Vec::new(),
    })
}

fn reference(subject: &Subject, owner: Option<&str>) -> RefStatus {
    let of = git_ref(subject);
    RefStatus {
        id: ref_id(subject),
        url: subject.url.clone(),
        git_ref: of.git_ref,
        project: of.project,
        project_canonical: of.project_canonical,
        owner: owner.map(str::to_owned),
        branch: of.branch,
        change: of.change,
        patchset: of.patchset,
        oldrev: of.oldrev,
        newrev: of.newrev,
        ref_url: of.ref_url,
        commit: of.commit,
    }
}

fn job_piece(tenant: &str, id: BuildId, of: &OfJob<'_>) -> JobPiece {
    let (build, estimate) = (of.build, of.estimate);
    let running = build.state == BuildState::Running;
    let uuid = id.to_string();
    // What ran without a worker has no console.
    let said = build.attempt > 0;
    let console = said.then(|| format!("/api/tenant/{}/build/{uuid}/console", segment(tenant)));
    let wait = of.wait.map(wait_row);
    JobPiece::new(&JobStatus {
        name: build.job.name.clone(),
        dependencies: build.job.dependencies.iter().map(|(job, _)| job.clone()).collect(),
        elapsed_time: None,
        remaining_time: None,
        url: console.clone(),
        report_url: build.log_url.clone().filter(|_| build.result.is_some()).or(console),
        result: build.result.map(|result| result.word().to_owned()),
        voting: build.job.voting,
        uuid,
        execute_time: build.started_at.map(seconds),
        start_time: build.started_at.map(seconds),
        end_time: build.finished_at.filter(|_| !running).map(seconds),
        estimate: estimate.map(Estimate::told),
        estimated_time: estimate.map(|estimate| (estimate.mean_ms + 500) / 1_000),
        pipeline: of.pipeline.to_owned(),
        canceled: build.result == Some(BuildResult::Canceled),
        paused: build.paused,
        pre_fail: build.pre_fail,
        retry: build.attempt > 1,
        snapshotting: false,
        tries: build.attempt,
        queued: build.result.is_none() && !running,
        waiting_status: wait.as_ref().map(|wait| wait.detail.clone()),
        worker: build.worker.clone(),
        detail: build.detail.clone(),
        settled: build.settled.clone(),
        wait,
    })
}

/// An item with its place in its queue.
struct Placed<'r> {
    id: ItemId,
    row: Cow<'r, ItemRow>,
    buildset: Option<Cow<'r, BuildsetRow>>,
    ahead: Option<ItemId>,
    behind: Vec<ItemId>,
    active: bool,
}

/// A text as one segment of a path.
fn segment(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
