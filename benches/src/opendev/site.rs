//! The site itself: what happens next, and what follows from it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gatelog_event_log::Log;
use gatelog_gate_state::live::Work;
use gatelog_log_embedded::{EmbeddedLog, FileBlobs, Options};
use gatelog_record::draft::capacity::{LeaseGranted, LeaseReleased, WorkerSeen};
use gatelog_record::draft::gate::{
    AttemptFinished, AttemptStarted, BuildResult, ReportAction, ReportRequested, TenantLoaded, TenantProject,
};
use gatelog_record::draft::intake::{ForgeEvent, TenantFile};
use gatelog_record::draft::partition::TimerDue;
use gatelog_record::event::{CapacityEvent, PartitionEvent};
use gatelog_record::input::{CapacityInput, GateInput, Input, IntakeInput, PartitionInput};
use gatelog_record::{
    BuildId, Domain, Event, EventRecord, InputId, InputRecord, LeaseId, Partition, Source, Stream, Timestamp, Value,
    codec,
};
use gatelog_rules_capacity::CapacityRules;
use gatelog_rules_config as rules_config;
use gatelog_rules_gate::{GateRules, Router};
use serde::{Deserialize, Serialize};

use super::answers::Answers;
use super::chance::Chance;
use super::config::{CONNECTION, TENANTS, canonical, config_project, project, seconds, spread_of, tenant_file, text};
use super::forge::{Change, number};
use super::host::{Host, InFlight, timers_set};
use super::life::{self, End, HOUR, MINUTE, Next, SECOND};
use super::{CAPACITY, GATE};
use crate::Failure;

/// After how many events what was taken and decided is written down.
const WRITE_EVERY: u64 = 2_000;
/// How often it is told how far it is, in events.
const TELL_EVERY: u64 = 100_000;

/// How far a history is that is being made.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Events so far.
    pub events: u64,
    /// How long making them took, in seconds.
    pub seconds: f64,
    /// Days of the site's own time.
    pub days: f64,
    /// Items in the pipelines.
    pub items: usize,
    /// Builds that wait for a slot.
    pub waiting: usize,
    /// Builds that run.
    pub running: usize,
    /// Builds that ended, attempts that do not count among them.
    pub attempts: u64,
}

impl std::fmt::Display for Progress {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Progress { events, seconds, days, items, waiting, running, attempts } = self;
        write!(
            to,
            "{events} events after {seconds:.0} s: day {days:.2}, {attempts} builds ended, {running} run, {waiting} wait; \
             {items} items"
        )
    }
}

/// A history that was made.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Made {
    /// Events of the gate.
    pub gate: u64,
    /// Events of capacity.
    pub capacity: u64,
    /// Inputs of both.
    pub inputs: u64,
    /// Builds that ended, attempts that do not count among them.
    pub attempts: u64,
    /// Attempts that run at its end.
    pub running: usize,
    /// Days of the site's own time.
    pub days: f64,
    /// How long making it took, in seconds.
    pub seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Arrive,
    Propose(usize, u32),
    Approve(usize, u32),
    Nightly,
    Restart(usize),
    End(LeaseId),
    Timer(Partition, String),
    Look,
}

/// An attempt on a worker.
struct Run {
    granted: LeaseGranted,
    pipeline: String,
    started: Timestamp,
}

/// The site.
pub struct OpenDev {
    log: Arc<EmbeddedLog>,
    gate: Host<GateRules>,
    capacity: Host<CapacityRules>,
    answers: Answers,
    router: Router,
    intake: Vec<Vec<u8>>,
    routed: u64,
    in_flight: InFlight,
    now: i64,
    agenda: BinaryHeap<Reverse<(i64, u64, Task)>>,
    tasks: u64,
    soon: VecDeque<(Partition, InputRecord)>,
    asked: BTreeMap<(BuildId, u32), (String, String)>,
    runs: BTreeMap<LeaseId, Run>,
    starts: Vec<u64>,
    sent: u64,
    attempts: u64,
    chance: Chance,
}

impl OpenDev {
    /// Makes a history of so many events of gate and capacity together, in a new log in this directory.
    ///
    /// # Errors
    /// When the log cannot be written, or something does not hold together.
    pub fn make(dir: &Path, events: u64, tell: impl Fn(Progress)) -> Result<Made, Failure> {
        let began = Instant::now();
        let mut site = OpenDev::new(dir)?;
        let (mut written, mut told) = (0, TELL_EVERY);
        loop {
            let count = site.gate.sequence() + site.capacity.sequence();
            if count >= written + WRITE_EVERY || count >= events {
                site.write()?;
                written = count;
            }
            if count >= told {
                tell(site.progress(count, began.elapsed()));
                told += TELL_EVERY;
            }
            if count >= events {
                break;
            }
            site.next()?;
        }
        site.in_flight.settle(0)?;
        Ok(Made {
            gate: site.gate.sequence(),
            capacity: site.capacity.sequence(),
            inputs: site.gate.taken() + site.capacity.taken(),
            attempts: site.attempts,
            running: site.runs.len(),
            days: site.days(),
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    fn new(dir: &Path) -> Result<OpenDev, Failure> {
        let log = Arc::new(EmbeddedLog::open(dir, Options::default())?);
        let blobs = FileBlobs::open(dir.join("blobs"))?;
        let shared: &dyn Log = log.as_ref();
        let start = Timestamp(life::BEGINNING);
        let gate = Host::new(shared, GATE, GateRules::default, |live| &live.partition, start)?;
        let capacity = Host::new(shared, CAPACITY, CapacityRules::default, |live| &live.partition, start)?;
        let mut texts = BTreeMap::new();
        for tenant in &TENANTS {
            texts.insert(canonical(&config_project(tenant)), text(tenant)?);
        }
        let mut site = OpenDev {
            log,
            gate,
            capacity,
            answers: Answers::new(blobs, texts),
            router: Router::new(),
            intake: Vec::new(),
            routed: 0,
            in_flight: InFlight::default(),
            now: life::BEGINNING,
            agenda: BinaryHeap::new(),
            tasks: 0,
            soon: VecDeque::new(),
            asked: BTreeMap::new(),
            runs: BTreeMap::new(),
            starts: vec![0; life::WORKERS],
            sent: 0,
            attempts: 0,
            chance: Chance::new(42),
        };
        site.load_tenants()?;
        for worker in 0..life::WORKERS {
            site.announce(worker);
            let step = life::RESTART_EVERY / life::WORKERS as i64;
            site.later(life::RESTART_EVERY + worker as i64 * step, Task::Restart(worker));
        }
        site.later(life::NIGHT, Task::Nightly);
        site.later(0, Task::Arrive);
        site.settle()?;
        Ok(site)
    }

    fn days(&self) -> f64 {
        (self.now - life::BEGINNING) as f64 / life::DAY as f64
    }

    fn progress(&self, events: u64, took: Duration) -> Progress {
        Progress {
            events,
            seconds: took.as_secs_f64(),
            days: self.days(),
            items: self.gate.state().gate.items.rows.len(),
            waiting: self.asked.len().saturating_sub(self.runs.len()),
            running: self.runs.len(),
            attempts: self.attempts,
        }
    }

    fn write(&mut self) -> Result<(), Failure> {
        self.answers.kept.write()?;
        let log: &dyn Log = self.log.as_ref();
        let first = self.routed - self.intake.len() as u64;
        self.in_flight.inputs(log, Stream::Intake(0), std::mem::take(&mut self.intake), first)?;
        self.gate.write(log, &mut self.in_flight)?;
        self.capacity.write(log, &mut self.in_flight)
    }

    fn later(&mut self, micros: i64, task: Task) {
        self.at(self.now + micros, task);
    }

    fn at(&mut self, at: i64, task: Task) {
        self.tasks += 1;
        self.agenda.push(Reverse((at, self.tasks, task)));
    }

    // ---- what happens ----

    fn next(&mut self) -> Result<(), Failure> {
        let Some(Reverse((at, _, task))) = self.agenda.pop() else { return Err("nothing happens any more".into()) };
        self.now = self.now.max(at);
        match task {
            Task::Arrive => self.arrive()?,
            Task::Propose(number, patchset) => self.propose(number, patchset)?,
            Task::Approve(number, patchset) => self.approve(number, patchset)?,
            Task::Nightly => self.nightly()?,
            Task::Restart(worker) => self.restart(worker),
            Task::End(lease) => self.end(lease),
            Task::Timer(partition, timer) => self.timer(partition, timer),
            Task::Look => {}
        }
        self.settle()
    }

    fn arrive(&mut self) -> Result<(), Failure> {
        let wait = life::next_change(&mut self.chance, self.now);
        self.later(wait, Task::Arrive);
        let mut drawn = self.chance.below(1_000);
        let of = TENANTS.iter().find(|known| {
            let here = drawn < known.share;
            drawn = drawn.saturating_sub(known.share);
            here
        });
        let of = of.ok_or("the shares of tenants are less than a thousand")?;
        let project = project(of, self.chance.lopsided(of.projects));
        let number = self.answers.forge.changes.len();
        let needs = if self.chance.happens(life::STACKED) { self.lately(number, &project) } else { None };
        let documentation = self.chance.happens(life::DOCUMENTATION);
        self.answers.forge.changes.push(Change { project, needs, documentation, ..Change::default() });
        self.propose(number, 0)
    }

    /// The newest open change of a project, if there was one lately.
    fn lately(&self, before: usize, project: &str) -> Option<usize> {
        let changes = &self.answers.forge.changes;
        let lately = before.saturating_sub(300)..before;
        lately.rev().find(|number| changes.get(*number).is_some_and(|one| one.project == project && one.open()))
    }

    /// Another patchset after this one.
    fn propose(&mut self, number: usize, patchset: u32) -> Result<(), Failure> {
        let change = self.answers.forge.changes.get_mut(number).ok_or("no such change")?;
        if !change.open() || change.patchset != patchset {
            return Ok(());
        }
        change.patchset += 1;
        change.approved = false;
        let now = change.patchset;
        if let Some(wait) = life::impatience(&mut self.chance) {
            self.later(wait, Task::Propose(number, now));
        }
        self.change_event(number, "change-proposed")
    }

    fn approve(&mut self, number: usize, patchset: u32) -> Result<(), Failure> {
        let change = self.answers.forge.changes.get(number).ok_or("no such change")?;
        if !change.open() || change.patchset != patchset {
            return Ok(());
        }
        // Whoever approves a change approves what it stands on.
        let mut below = vec![number];
        while let Some(needs) = below.last().and_then(|last| self.answers.forge.changes.get(*last)?.needs) {
            below.push(needs);
        }
        for number in below.into_iter().rev() {
            let Some(change) = self.answers.forge.changes.get_mut(number) else { continue };
            if change.open() && !change.approved {
                change.approved = true;
                self.change_event(number, "change-approved")?;
            }
        }
        Ok(())
    }

    fn nightly(&mut self) -> Result<(), Failure> {
        self.later(life::DAY, Task::Nightly);
        for tenant in &TENANTS {
            for index in 0..tenant.projects.min(life::NIGHTLY) {
                let commit = self.answers.forge.fresh_commit();
                self.ref_event(&canonical(&project(tenant, index)), "nightly", None, commit)?;
            }
        }
        Ok(())
    }

    fn announce(&mut self, worker: usize) {
        let start = self.starts.get(worker).copied().unwrap_or_default();
        let seen = WorkerSeen {
            worker: worker_name(worker),
            incarnation: format!("start-{start}"),
            started_at: Timestamp(self.now),
            address: format!("{}.opendev.example:7900", worker_name(worker)),
            slots: life::SLOTS,
            labels: Vec::new(),
        };
        self.say(CAPACITY, CapacityInput::WorkerSeen(seen), "main");
    }

    /// What ran there is lost and begins anew elsewhere.
    fn restart(&mut self, worker: usize) {
        self.later(life::RESTART_EVERY * life::WORKERS as i64, Task::Restart(worker));
        let name = worker_name(worker);
        self.runs.retain(|_, run| run.granted.worker != name);
        if let Some(start) = self.starts.get_mut(worker) {
            *start += 1;
        }
        self.announce(worker);
    }

    fn end(&mut self, lease: LeaseId) {
        let Some(run) = self.runs.get(&lease) else { return };
        let granted = run.granted.clone();
        let Some((build, attempt)) = granted.owner.build() else { return };
        let item = self.gate.state().gate.builds.rows.get(&build).map(|row| spread_of(&row.item.to_string()));
        let result = match life::end(&mut self.chance, &run.pipeline, item.unwrap_or_default()) {
            End::Success => BuildResult::Success,
            End::Failure => BuildResult::Failure,
            End::TimedOut => BuildResult::TimedOut,
            End::PostFailure => BuildResult::PostFailure,
            End::Retry => BuildResult::Retry,
        };
        let finished = AttemptFinished {
            tenant: granted.owner.key.clone(),
            build,
            attempt,
            worker: granted.worker.clone(),
            result,
            started_at: run.started,
            finished_at: Timestamp(self.now),
            detail: None,
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: Some(format!("https://storage.opendev.example/{build}/{attempt}/")),
            kept: Default::default(),
        };
        self.attempts += 1;
        self.say(GATE, GateInput::AttemptFinished(finished), &granted.owner.key);
        // Nodes of what failed stay until it is known whether somebody wants to look at them.
        if result == BuildResult::Success || granted.nodes.is_empty() {
            self.release(lease);
        }
    }

    fn release(&mut self, lease: LeaseId) {
        let Some(run) = self.runs.remove(&lease) else { return };
        let (worker, incarnation) = (run.granted.worker, run.granted.incarnation);
        self.say(CAPACITY, CapacityInput::LeaseReleased(LeaseReleased { lease, worker, incarnation }), "main");
    }

    fn timer(&mut self, partition: Partition, timer: String) {
        let tables = if partition == GATE { self.gate.tables() } else { self.capacity.tables() };
        let Some(row) = tables.timers.rows.get(&timer) else { return };
        // Set again meanwhile: then there is another entry for it.
        if row.due_at.0 <= self.now {
            let (due_at, key) = (row.due_at, row.key.clone());
            self.say(partition, PartitionInput::TimerDue(TimerDue { timer, due_at }), &key);
        }
    }

    // ---- inputs ----

    fn say(&mut self, to: Partition, input: impl Into<Input>, key: &str) {
        self.sent += 1;
        let id = InputId::new(format!("opendev/{:010}", self.sent));
        self.soon.push_back((to, InputRecord::new(id, key, Timestamp(self.now), input)));
    }

    fn change_event(&mut self, number: usize, event: &str) -> Result<(), Failure> {
        let subject = self.answers.forge.subject(number).ok_or("no such change")?;
        self.route(IntakeInput::ForgeEvent(crate::told_of(
            subject,
            CONNECTION,
            event,
            Value::Null,
            format!("{event}-{number}-{}", self.routed),
        )))
    }

    fn ref_event(&mut self, project: &str, branch: &str, old: Option<String>, new: String) -> Result<(), Failure> {
        self.route(IntakeInput::ForgeEvent(ForgeEvent {
            connection: CONNECTION.into(),
            project: project.to_owned(),
            event: "ref-updated".into(),
            branch: Some(branch.to_owned()),
            git_ref: format!("refs/heads/{branch}"),
            change: None,
            patchset: None,
            commit: Some(new),
            old_commit: old,
            attributes: Value::Null,
            delivery: format!("ref-updated-{}", self.routed),
            raw: None,
        }))
    }

    fn route(&mut self, input: IntakeInput) -> Result<(), Failure> {
        let (offset, now) = (self.routed, Timestamp(self.now));
        self.routed += 1;
        let name = format!("forge/{offset}");
        for routed in self.router.route(offset, &input) {
            let mut record =
                InputRecord::new(InputId::new(format!("{name}/{}", routed.key)), routed.key, now, routed.input);
            let partition = Partition { domain: Domain::Intake, index: 0 };
            record.source = Some(Source { partition, sequence: offset + 1, ordinal: routed.ordinal });
            self.soon.push_back((GATE, record));
        }
        self.intake.push(InputRecord::new(InputId::new(name), "", now, input).close()?.encode());
        Ok(())
    }

    fn load_tenants(&mut self) -> Result<(), Failure> {
        let text = tenant_file()?;
        let (specs, problems) = rules_config::parse_tenant_file(&text);
        if let Some(problem) = problems.first() {
            return Err(format!("the site's own tenant file: {problem}").into());
        }
        let mut tenants = Vec::new();
        for spec in specs {
            let mut settings = spec.settings;
            settings.connections = vec![CONNECTION.into()];
            settings.drivers = BTreeMap::from([(CONNECTION.to_owned(), "plain-git".to_owned())]);
            let mut projects = Vec::new();
            for known in &mut settings.projects {
                known.canonical_name = canonical(&known.name);
                projects.push(TenantProject {
                    connection: known.connection.clone(),
                    project: known.canonical_name.clone(),
                    trusted: known.trusted,
                    reads_config: true,
                });
            }
            tenants.push(TenantLoaded {
                tenant: settings.name.clone(),
                version: 1,
                settings: self.answers.kept.put(&codec::encode(&settings)?)?,
                projects,
                web_root: "https://zuul.opendev.example".into(),
            });
        }
        let file = self.answers.kept.put(text.as_bytes())?;
        self.route(IntakeInput::TenantFile(TenantFile { version: 1, file, tenants }))
    }

    // ---- what follows ----

    fn settle(&mut self) -> Result<(), Failure> {
        for _ in 0..1_000_000 {
            if let Some((to, record)) = self.soon.pop_front() {
                self.take(to, &record)?;
            } else if !self.forward() && !self.work()? {
                return self.tell_moves();
            }
        }
        Err("the site does not come to rest".into())
    }

    fn take(&mut self, to: Partition, record: &InputRecord) -> Result<(), Failure> {
        // A millisecond for each decision.
        self.now += 1_000;
        let (now, blobs) = (Timestamp(self.now), self.answers.kept.memory());
        let records =
            if to == GATE { self.gate.take(record, now, blobs)? } else { self.capacity.take(record, now, blobs)? };
        let timers: Vec<(String, i64)> = timers_set(&records).map(|(timer, due)| (timer.to_owned(), due.0)).collect();
        for (timer, due) in timers {
            self.at(due, Task::Timer(to, timer));
        }
        for record in records {
            self.follow(record);
        }
        Ok(())
    }

    /// What workers and those who wait make of an event.
    fn follow(&mut self, record: EventRecord) {
        match record.event {
            Event::Capacity(CapacityEvent::LeaseGranted(granted)) => self.begin(granted),
            Event::Capacity(CapacityEvent::LeaseRevoked(revoked)) => self.release(revoked.lease),
            Event::Capacity(CapacityEvent::LeaseEnded(ended)) => {
                self.runs.remove(&ended.lease);
            }
            Event::Partition(PartitionEvent::WorkResent(resent)) => self.at(resent.not_before.0, Task::Look),
            _ => {}
        }
    }

    fn begin(&mut self, granted: LeaseGranted) {
        let (lease, started) = (granted.lease, Timestamp(self.now));
        let Some((build, attempt)) = granted.owner.build() else { return };
        let (pipeline, job) = self.asked.get(&(build, attempt)).cloned().unwrap_or_default();
        let began = AttemptStarted {
            tenant: granted.owner.key.clone(),
            build,
            attempt,
            lease,
            worker: granted.worker.clone(),
            started_at: started,
        };
        self.say(GATE, GateInput::AttemptStarted(began), &granted.owner.key);
        let whole = seconds(&job);
        let took = whole * 3 / 4 + self.chance.below(whole / 2);
        self.later(i64::try_from(took).unwrap_or(HOUR) * SECOND, Task::End(lease));
        self.runs.insert(lease, Run { granted, pipeline, started });
    }

    /// Brings messages from one domain to the other.
    fn forward(&mut self) -> bool {
        let now = Timestamp(self.now);
        let mut found = self.gate.messages(CAPACITY, now);
        for message in &found {
            match &message.input {
                Input::Capacity(CapacityInput::LeaseAsked(ask)) => {
                    let (pipeline, job) = (ask.description.fact("pipeline"), ask.description.fact("job"));
                    let asked = ask.owner.build().map(|build| (build, (pipeline.to_owned(), job.to_owned())));
                    self.asked.extend(asked);
                }
                Input::Capacity(CapacityInput::LeaseEndAsked(end)) => {
                    end.owner.build().and_then(|build| self.asked.remove(&build));
                }
                _ => {}
            }
        }
        let to_capacity = found.len();
        found.extend(self.capacity.messages(GATE, now));
        for (index, message) in found.into_iter().enumerate() {
            self.soon.push_back((if index < to_capacity { CAPACITY } else { GATE }, message));
        }
        // What was given out before stands in the queue before this.
        let told = [(GATE, self.gate.taken_by(CAPACITY, now)), (CAPACITY, self.capacity.taken_by(GATE, now))];
        self.soon.extend(told.into_iter().filter_map(|(to, told)| Some((to, told?))));
        !self.soon.is_empty()
    }

    /// Answers the oldest short work.
    fn work(&mut self) -> Result<bool, Failure> {
        let pending = &self.gate.state().gate.pending_work.rows;
        let ready = pending.iter().filter(|(_, row)| row.not_before.0 <= self.now);
        let oldest = ready.min_by_key(|(id, row)| (row.requested, **id)).map(|(id, row)| (*id, row.clone()));
        let Some((id, row)) = oldest else { return Ok(false) };
        let input = row.work.perform(row.sending(id), &mut self.answers)?;
        if let Work::Report(report) = &row.work {
            self.reported(report);
        }
        let name = InputId::new(format!("work/{id}/{}", row.attempt));
        self.soon.push_back((GATE, InputRecord::new(name, row.key, Timestamp(self.now), input)));
        Ok(true)
    }

    /// What people do when they read a report.
    fn reported(&mut self, report: &ReportRequested) {
        for subject in &report.subjects {
            let Some(number) = subject.change.as_deref().and_then(number) else { continue };
            let Some(change) = self.answers.forge.changes.get(number) else { continue };
            let (patchset, said) = (change.patchset, subject.patchset.as_deref());
            if said.and_then(|said| said.parse().ok()) != Some(patchset) {
                continue;
            }
            let next = match report.action {
                ReportAction::Success if report.pipeline == "check" => life::after_success(&mut self.chance),
                ReportAction::Failure | ReportAction::MergeConflict if report.pipeline != "promote" => {
                    life::after_failure(&mut self.chance)
                }
                _ => continue,
            };
            match next {
                Next::Approve(wait) => self.later(wait, Task::Approve(number, patchset)),
                Next::Propose(wait) => self.later(MINUTE + wait, Task::Propose(number, patchset)),
                Next::Rest => {}
            }
        }
    }

    /// The code review tells of what was merged.
    fn tell_moves(&mut self) -> Result<(), Failure> {
        let (moved, merged) = (std::mem::take(&mut self.answers.moved), std::mem::take(&mut self.answers.merged));
        if moved.is_empty() {
            return Ok(());
        }
        for number in merged {
            self.change_event(number, "change-merged")?;
        }
        for (project, old, new) in moved {
            self.ref_event(&project, "master", Some(old), new)?;
        }
        self.settle()
    }
}

fn worker_name(worker: usize) -> String {
    format!("ze{:02}", worker + 1)
}
