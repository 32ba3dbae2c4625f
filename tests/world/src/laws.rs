//! What must hold, whatever happens: after every event, and once the world is quiet.

use std::collections::BTreeMap;

use gatelog_capacity_state::{CapacityLive, LeaseState, Pause};
use gatelog_gate_state::live::{BuildState, GateLive, WaitKey};
use gatelog_record::draft::gate::{BuildResult, ItemResult, ReportAction, SubmitOutcome, TriggerCause, WaitSubject};
use gatelog_record::event::{CapacityEvent, GateEvent, PartitionEvent};
use gatelog_record::{Event, EventRecord, ItemId, LeaseId, Timestamp, WorkId};
use gatelog_replay::waits::{Subject, TOLD_AFTER_MS, waits};
use gatelog_tables::Maps;

use crate::calendar::Ticks;
use crate::faults::Coverage;
use crate::forge::{Forge, local};

/// What is remembered of an item after it left.
#[derive(Default)]
struct Told {
    finals: u32,
    result: Option<ItemResult>,
    live: bool,
    /// When it entered, by the monotonic clock.
    entered: i64,
}

/// No item is there for longer, whatever goes wrong and however the machine's clock is set, in microseconds of the
/// monotonic clock. The longest in 330 seeds was 4,300 s; the clock goes wrong by three hours, and by years.
const LONGEST: i64 = 10_000 * 1_000_000;

/// Everything the laws remember.
#[derive(Default)]
pub struct Laws {
    items: BTreeMap<ItemId, Told>,
    /// For each report, how often its end was recorded.
    reports: BTreeMap<WorkId, u32>,
    /// The newest trigger that entered, by tenant, pipeline and project.
    lanes: BTreeMap<(String, String, String), u64>,
    /// What is to be merged, by item: project and commit.
    asked: BTreeMap<ItemId, Vec<(String, String)>>,
    /// When each start of a worker was, by its own clock.
    starts: BTreeMap<String, Timestamp>,
    /// The start of each worker that is here, or was until it started again.
    here: BTreeMap<String, String>,
    ticks: Ticks,
    /// What the monotonic clock says, in microseconds.
    pub now: i64,
    /// The longest that an item was there.
    pub longest: i64,
    /// Projects and the commits that the gate believes to have merged there.
    pub merged: Vec<(String, String)>,
}

impl Laws {
    /// An event of the gate, with the tables after it.
    ///
    /// # Errors
    /// The law that was broken.
    pub fn gate(&mut self, live: &GateLive<Maps>, record: &EventRecord, met: &mut Coverage) -> Result<(), String> {
        *met.events.entry(record.event.name()).or_default() += 1;
        match &record.event {
            Event::Gate(event) => {
                self.timers(record, event)?;
                self.gate_event(live, event, met)
            }
            Event::Partition(event) => {
                own_event(event, met);
                Ok(())
            }
            _ => Err(format!("the gate's events hold {}", record.event.name())),
        }
    }

    fn timers(&mut self, record: &EventRecord, event: &GateEvent) -> Result<(), String> {
        match event {
            GateEvent::TimersChanged(changed) => self.ticks.changed(changed, record.recorded_at),
            GateEvent::TriggerWaiting(waiting) => {
                if let TriggerCause::Timer(ticked) = &waiting.cause {
                    self.ticks.taken(ticked)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn gate_event(&mut self, live: &GateLive<Maps>, event: &GateEvent, met: &mut Coverage) -> Result<(), String> {
        match event {
            GateEvent::ItemEnqueued(entered) => {
                self.items.insert(entered.item, Told { live: entered.live, entered: self.now, ..Told::default() });
                if let (Some(trigger), true, Some(subject)) =
                    (entered.trigger, entered.reason == "trigger", entered.subjects.first())
                {
                    let lane = (entered.tenant.clone(), entered.pipeline.clone(), subject.project.clone());
                    let newest = self.lanes.entry(lane).or_default();
                    if trigger < *newest {
                        return Err(format!("trigger {trigger} of {} entered after trigger {newest}", subject.project));
                    }
                    *newest = trigger;
                }
            }
            GateEvent::SubmitRequested(submit) => {
                tested(live, submit)?;
                let targets = submit.targets.iter();
                let targets = targets.map(|one| (local(&one.at.project).to_owned(), one.tested_commit.clone()));
                self.asked.insert(submit.item, targets.collect());
            }
            GateEvent::Submitted(submitted) => {
                if submitted.done.outcome == SubmitOutcome::Merged {
                    self.merged.extend(self.asked.get(&submitted.item).cloned().unwrap_or_default());
                }
                met.reason(match &submitted.done.outcome {
                    SubmitOutcome::Merged => "submit: merged",
                    SubmitOutcome::BaseMoved { .. } => "submit: base-moved",
                    SubmitOutcome::Refused { .. } => "submit: refused",
                    SubmitOutcome::Failed { .. } => "submit: failed",
                });
            }
            GateEvent::ReportRequested(report) => {
                if self.reports.insert(report.work, 0).is_some() {
                    return Err(format!("report {} is asked for twice", report.work));
                }
                let is_final = !matches!(report.action, ReportAction::Start | ReportAction::Enqueue);
                if let (Some(item), true) = (report.item, is_final) {
                    let told = self.items.entry(item).or_default();
                    told.finals += 1;
                    if told.finals > 1 {
                        return Err(format!("the result of item {item} is reported a second time"));
                    }
                }
            }
            GateEvent::ReportDelivered(delivered) => {
                let times = self.reports.entry(delivered.done.work).or_default();
                *times += 1;
                if *times > 1 {
                    return Err(format!("report {} ended twice", delivered.done.work));
                }
            }
            GateEvent::ItemDequeued(left) => {
                let told = self.items.entry(left.item).or_default();
                told.result = Some(left.result);
                let there = self.now - told.entered;
                self.longest = self.longest.max(there);
                if there > LONGEST {
                    return Err(format!("item {} was there for {} s", left.item, there / 1_000_000));
                }
                met.reason(format!("left: {}", left.code));
            }
            GateEvent::ItemReset(reset) => met.reason(format!("reset: {}", reset.code)),
            GateEvent::WaitChanged(wait) => {
                if let Some(code) = wait.code {
                    met.reason(format!("wait: {}", code.word()));
                }
            }
            GateEvent::EnqueueRefused(refused) => met.reason(format!("refused: {}", refused.code)),
            GateEvent::OutcomeIgnored(ignored) => met.reason(format!("ignored: {}", ignored.code)),
            GateEvent::BuildFinished(finished) => met.reason(format!("build: {}", finished.finished.result.word())),
            GateEvent::BuildSettled(settled) => met.reason(format!("settled: {}", settled.code)),
            _ => {}
        }
        Ok(())
    }

    /// A worker says that it is there, truly.
    pub fn start(&mut self, incarnation: &str, started_at: Timestamp) {
        self.starts.insert(incarnation.to_owned(), started_at);
    }

    /// No start of a worker takes the place of a later one.
    fn joined(&mut self, worker: &str, incarnation: &str) -> Result<(), String> {
        let before = self.here.insert(worker.to_owned(), incarnation.to_owned());
        let Some(before) = before.filter(|before| before != incarnation) else { return Ok(()) };
        match (self.starts.get(&before), self.starts.get(incarnation)) {
            (Some(was), Some(is)) if is < was => Err(format!("{incarnation} takes the place of the later {before}")),
            _ => Ok(()),
        }
    }

    /// An event of capacity, with the tables after it.
    ///
    /// # Errors
    /// The law that was broken.
    pub fn capacity(
        &mut self,
        live: &CapacityLive<Maps>,
        record: &EventRecord,
        met: &mut Coverage,
    ) -> Result<(), String> {
        *met.events.entry(record.event.name()).or_default() += 1;
        match &record.event {
            Event::Capacity(CapacityEvent::LeaseGranted(granted)) => {
                let worker = live.own.workers.rows.get(&granted.worker).ok_or("a lease is granted to nobody")?;
                if worker.used > worker.offer.slots {
                    return Err(format!(
                        "worker {} has {} of {} slots taken",
                        granted.worker, worker.used, worker.offer.slots
                    ));
                }
                Ok(())
            }
            Event::Capacity(CapacityEvent::WorkerJoined(joined)) => {
                self.joined(&joined.offer.worker, &joined.offer.incarnation)
            }
            Event::Capacity(CapacityEvent::WorkerLost(lost)) => {
                met.reason(format!("worker lost: {}", lost.reason));
                if lost.reason == "silent" {
                    self.here.remove(&lost.worker);
                }
                Ok(())
            }
            Event::Capacity(CapacityEvent::WaitChanged(wait)) => {
                met.reason(format!("lease: {}", wait.code));
                Ok(())
            }
            Event::Capacity(_) => Ok(()),
            Event::Partition(event) => {
                own_event(event, met);
                Ok(())
            }
            _ => Err(format!("capacity's events hold {}", record.event.name())),
        }
    }

    /// Every request has come to an end, and everybody was told once.
    ///
    /// # Errors
    /// The law that was broken.
    pub fn at_the_end(&self, forge: &Forge) -> Result<(), String> {
        for (item, told) in &self.items {
            let Some(result) = told.result else { return Err(format!("item {item} never left")) };
            let must = told.live && !matches!(result, ItemResult::Dequeued | ItemResult::NoJobs);
            if must && told.finals != 1 {
                return Err(format!("item {item} ended as {result:?} and was reported {} times", told.finals));
            }
        }
        for (work, ends) in &self.reports {
            if *ends != 1 {
                return Err(format!("report {work} came to {ends} ends"));
            }
            if !forge.reports.contains_key(work) {
                return Err(format!("report {work} is said to be delivered and never came to the forge"));
            }
        }
        match forge.reports.keys().find(|work| !self.reports.contains_key(work)) {
            Some(work) => Err(format!("report {work} came to the forge and nobody asked for it")),
            None => Ok(()),
        }
    }
}

fn own_event(event: &PartitionEvent, met: &mut Coverage) {
    match event {
        PartitionEvent::InputTaken(taken) => met.reason(format!("taken: {}", taken.reason)),
        PartitionEvent::InputRefused(refused) => met.reason(format!("input refused: {}", refused.code)),
        _ => {}
    }
}

/// What is to be merged was tested as it is, on what it is put on, and it is its turn.
fn tested(live: &GateLive<Maps>, submit: &gatelog_record::draft::gate::SubmitRequested) -> Result<(), String> {
    let gate = &live.gate;
    let item = gate.items.rows.get(&submit.item).ok_or("an item that is gone is to be merged")?;
    let set = item.buildset.and_then(|set| gate.buildsets.rows.get(&set)).ok_or("nothing was tested")?;
    let queue = (item.tenant.clone(), item.pipeline.clone(), item.queue.clone());
    let queue = gate.queues.rows.get(&queue).ok_or("its queue is gone")?;
    if !queue.stands_on(set).is_empty() {
        return Err("it is to be merged while it stands on something that is not".into());
    }
    for build in &set.builds {
        let row = gate.builds.rows.get(build).ok_or("a build is gone")?;
        let well = matches!(row.result, Some(BuildResult::Success | BuildResult::Skipped));
        if row.state != BuildState::Done || (row.job.voting && !well) {
            return Err(format!("it is to be merged although {} is {:?}", row.job.name, row.result));
        }
    }
    for ahead in queue.items.iter().take_while(|other| **other != submit.item) {
        let row = gate.items.rows.get(ahead).ok_or("an item of a queue is gone")?;
        if row.live && row.failing.is_empty() {
            return Err(format!("item {} is to be merged before item {ahead}, which is not failing", submit.item));
        }
    }
    Ok(())
}

/// What holds of the gate's tables after every input.
///
/// # Errors
/// The law that is broken.
pub fn gate_holds(live: &GateLive<Maps>) -> Result<(), String> {
    let gate = &live.gate;
    let waits = |subject: WaitSubject| gate.waits.rows.contains_key(&WaitKey(subject));
    for (id, item) in &gate.items.rows {
        if !waits(WaitSubject::Item(*id)) {
            return Err(format!("item {id} ({:?}) waits without a reason", item.subjects.first().map(|one| &one.url)));
        }
    }
    for (id, build) in &gate.builds.rows {
        if build.state != BuildState::Done && !waits(WaitSubject::Build(*id)) {
            return Err(format!("build {id} ({}) waits without a reason", build.job.name));
        }
    }
    for (_, trigger) in gate.triggers.rows.keys() {
        if !waits(WaitSubject::Trigger(*trigger)) {
            return Err(format!("trigger {trigger} waits without a reason"));
        }
    }
    let mut held: BTreeMap<(&str, &str), (u32, u32)> = BTreeMap::new();
    for (tenant, semaphore, build) in gate.semaphores.rows.keys() {
        let row = gate.builds.rows.get(build).ok_or_else(|| format!("build {build} is gone and holds {semaphore}"))?;
        if !row.holds_lease() {
            return Err(format!("build {build} holds {semaphore} and runs nowhere"));
        }
        let max = row.job.semaphores.iter().find(|one| one.name == *semaphore).map_or(1, |one| one.max);
        let slots = held.entry((tenant, semaphore)).or_insert((0, max));
        *slots = (slots.0 + 1, slots.1.max(max));
        if slots.0 > slots.1 {
            return Err(format!("semaphore {semaphore} of {tenant} is held {} times, at most {}", slots.0, slots.1));
        }
    }
    Ok(())
}

/// What holds of capacity's tables after every input.
///
/// # Errors
/// The law that is broken.
pub fn capacity_holds(live: &CapacityLive<Maps>) -> Result<(), String> {
    for (lease, row) in &live.own.leases.rows {
        if row.state == LeaseState::Queued && row.wait.is_none() {
            return Err(format!("lease {lease} waits without a reason"));
        }
    }
    for (name, worker) in &live.own.workers.rows {
        // What is kept or waits for other jobs takes no slot; of what is held nothing is a lost start's.
        let takes = |lease: &LeaseId| {
            let row = live.own.leases.rows.get(lease);
            row.is_none_or(|row| row.held.is_none() && row.pause != Pause::Waits)
        };
        let of = |holder: &String, lease: &LeaseId| holder == name && takes(lease);
        let held = live.own.by_worker.rows.keys().filter(|(holder, lease)| of(holder, lease)).count() as u64;
        let current = live
            .own
            .by_worker
            .rows
            .iter()
            .filter(|((holder, lease), incarnation)| of(holder, lease) && **incarnation == worker.offer.incarnation)
            .count() as u64;
        if current != u64::from(worker.used) || held != current {
            return Err(format!("worker {name} counts {} slots taken, {current} leases are held", worker.used));
        }
    }
    Ok(())
}

/// Every item and every build that has been there for more than a minute is told to wait for something that has a name and
/// an end.
///
/// # Errors
/// Who waits in silence.
pub fn waits_are_told(gate: &GateLive<Maps>, capacity: &CapacityLive<Maps>) -> Result<(), String> {
    let Some(now) = gate.partition.writer.rows.get(&()).map(|row| row.recorded_at) else { return Ok(()) };
    let told = waits(gate, capacity, None, now, &|_| None).map_err(|error| error.to_string())?;
    let told: BTreeMap<Subject, &str> = told.iter().map(|wait| (wait.subject.clone(), wait.reason.code)).collect();
    let is_told = |subject: Subject| match told.get(&subject) {
        None => Err(format!("{} {} waits in silence", subject.kind(), subject.id())),
        Some(&"other") => Err(format!("{} {} waits for what has no name", subject.kind(), subject.id())),
        Some(_) => Ok(()),
    };
    for (item, row) in &gate.gate.items.rows {
        if now.millis_since(row.enqueued_at) > TOLD_AFTER_MS {
            is_told(Subject::Item(*item))?;
        }
    }
    let open = gate.gate.builds.rows.iter().filter(|(_, row)| row.state != BuildState::Done);
    for (build, row) in open {
        let entered = gate.gate.items.rows.get(&row.item).map(|item| item.enqueued_at);
        if entered.is_some_and(|entered| now.millis_since(entered) > TOLD_AFTER_MS) {
            is_told(Subject::Build(*build))?;
        }
    }
    Ok(())
}
