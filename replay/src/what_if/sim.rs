//! What would have been: the rules over a state, with the record's outside and a model of everything else.
//!
//! The rules, the shell and the fold are those of life. What comes from outside comes as it was recorded, when it was
//! recorded; what effects, workers and timers would have said is modelled by [`super::RULES`]. Time is the record's.

use std::collections::BTreeMap;

use gatelog_deciding::Rules;
use gatelog_event_log::{Blobs, Log, Offset};
use gatelog_gate_state::Work;
use gatelog_record::draft::capacity::LeaseReleased;
use gatelog_record::draft::gate::{
    AttemptFailing, AttemptFinished, AttemptStarted, BuildResult, ChangeKey, SubmitTarget,
};
use gatelog_record::draft::partition::{OutboxDelivered, TimerDue};
use gatelog_record::event::{CapacityEvent, GateEvent, PartitionEvent};
use gatelog_record::input::{CapacityInput, GateInput, PartitionInput};
use gatelog_record::{
    BuildId, Domain, Event, EventRecord, EventRef, Input, InputId, InputRecord, LeaseId, Partition, Source, Timestamp,
    Value, WorkId,
};
use gatelog_rules_capacity::CapacityRules;
use gatelog_rules_config::ParseCache;
use gatelog_rules_gate::GateRules;
use gatelog_tables::{DomainState, Maps};
use gatelog_writer::Shell;

use super::Config;
use super::book::{Book, item_key};
use super::merging::Landed;
use super::tally::{Tally, subject_words};
use crate::error::ReplayError;
use crate::reading::event_at;

/// At most so many decisions are made; what would go on for longer is cut off, and says so.
const MAX_DECISIONS: u64 = 20_000_000;
/// A timer that is set to the past again and again comes due no more often than this, in milliseconds.
const TIMER_PAUSE: i64 = 1_000;
/// Once the record has ended and come to rest, what is still under way has so long to do so, in milliseconds.
const GRACE: i64 = 24 * 3_600_000;
/// Offsets of inputs nobody recorded.
const MODELLED: u64 = 1 << 48;

/// What is to happen.
enum Todo {
    /// Work, which attempt at it, and when it was asked for.
    Work(Partition, WorkId, u32, Timestamp),
    Start(LeaseId),
    Failing(LeaseId),
    Finish(LeaseId),
    Release(LeaseId),
    Echo(Partition, Box<InputRecord>),
}

/// An attempt under way.
#[derive(Clone)]
struct Run {
    capacity: Partition,
    owner: Partition,
    build: BuildId,
    attempt: u32,
    tenant: String,
    worker: String,
    incarnation: String,
    started: Option<Timestamp>,
    over: bool,
}

/// An echo: what a code-review system told of a merge of gatelog's own.
struct EchoTold {
    to: Partition,
    input: InputRecord,
    /// After the merge, in milliseconds.
    lag: i64,
}

/// The shells of both domains, by partition.
pub(super) type Shells = (BTreeMap<Partition, Shell<GateRules>>, BTreeMap<Partition, Shell<CapacityRules>>);

/// The world that would have been.
pub(super) struct Sim<'a> {
    pub log: &'a dyn Log,
    pub blobs: &'a dyn Blobs,
    pub book: &'a Book,
    pub config: &'a Config,
    gates: BTreeMap<Partition, Shell<GateRules>>,
    capacities: BTreeMap<Partition, Shell<CapacityRules>>,
    queue: BTreeMap<(Timestamp, u64), Todo>,
    count: u64,
    decisions: u64,
    pub now: Timestamp,
    runs: BTreeMap<LeaseId, Run>,
    told: BTreeMap<(Partition, String), Timestamp>,
    pub tally: Tally,
    /// Which rules of the model were used, and how often.
    pub assumed: BTreeMap<&'static str, u64>,
    /// What gatelog merged, with the tips of a branch before and after where that happened here.
    pub(super) merged: BTreeMap<ChangeKey, Option<(String, String)>>,
    /// The same by branch, in order.
    pub(super) landed: Landed,
    echoes: BTreeMap<ChangeKey, Vec<EchoTold>>,
    pub(super) cache: ParseCache,
    /// Where and of which kind the input is that is otherwise than recorded.
    pub in_place: Option<(Partition, &'static str)>,
    /// The first decision that was made of an input of that kind, for whoever asks what came of it.
    pub first: Vec<EventRecord>,
}

type LiveOf<R> = <<R as Rules>::State as DomainState>::Live<Maps>;

impl<'a> Sim<'a> {
    pub(super) fn new(
        log: &'a dyn Log,
        blobs: &'a dyn Blobs,
        book: &'a Book,
        config: &'a Config,
        shells: Shells,
        tally: Tally,
        now: Timestamp,
    ) -> Sim<'a> {
        let (gates, capacities) = shells;
        Sim {
            log,
            blobs,
            book,
            config,
            gates,
            capacities,
            queue: BTreeMap::new(),
            count: 0,
            decisions: 0,
            now,
            runs: BTreeMap::new(),
            told: BTreeMap::new(),
            tally,
            assumed: BTreeMap::new(),
            merged: BTreeMap::new(),
            landed: Landed::new(),
            echoes: BTreeMap::new(),
            cache: ParseCache::default(),
            in_place: None,
            first: Vec::new(),
        }
    }

    /// The state of the gate that has this work.
    pub(super) fn gate(&self, partition: Partition) -> Option<&LiveOf<GateRules>> {
        self.gates.get(&partition).map(Shell::state)
    }

    pub(super) fn assume(&mut self, rule: &'static str) {
        *self.assumed.entry(rule).or_default() += 1;
    }

    fn later(&mut self, millis: i64, todo: Todo) {
        self.at(self.now.plus_millis(millis.max(1)), todo);
    }

    fn at(&mut self, at: Timestamp, todo: Todo) {
        self.count += 1;
        self.queue.insert((at.max(self.now), self.count), todo);
    }

    /// What is under way where it begins: work, leases, messages.
    pub(super) fn begin(&mut self) -> Result<(), ReplayError> {
        let mut open = Vec::new();
        for (partition, gate) in &self.gates {
            open.extend(gate.state().gate.pending_work.rows.iter().map(|(work, row)| (*partition, *work, row.clone())));
        }
        for (partition, work, row) in open {
            let usual = self.book.usual(row.work.kind());
            let told = self.book.answered.get(&work).copied();
            let (asked, due) = told.unwrap_or_else(|| (self.now, self.now.plus_millis(usual)));
            self.at(due.max(row.not_before), Todo::Work(partition, work, row.attempt, asked));
        }
        let mut runs = Vec::new();
        for (partition, capacity) in &self.capacities {
            for (lease, row) in &capacity.state().own.leases.rows {
                let Some(grant) = &row.grant else { continue };
                // Of what owns leases only builds are modelled.
                let Some((build, attempt)) = row.ask.owner.build() else { continue };
                runs.push((
                    *lease,
                    row.state,
                    Run {
                        capacity: *partition,
                        owner: row.ask.owner.partition,
                        build,
                        attempt,
                        tenant: row.ask.owner.key.clone(),
                        worker: grant.worker.clone(),
                        incarnation: grant.incarnation.clone(),
                        started: None,
                        over: row.released,
                    },
                ));
            }
        }
        for (lease, state, mut run) in runs {
            use gatelog_capacity_state::LeaseState;
            use gatelog_gate_state::live::BuildState;
            let build = self.gate(run.owner).and_then(|gate| gate.gate.builds.rows.get(&run.build)).cloned();
            let current = build.filter(|build| build.attempt == run.attempt);
            run.over |= current.as_ref().is_none_or(|build| build.state == BuildState::Done);
            run.started =
                current.as_ref().filter(|build| build.state == BuildState::Running).and_then(|build| build.started_at);
            let (started, over) = (run.started, run.over);
            self.runs.insert(lease, run);
            match state {
                LeaseState::Revoked => self.later(1, Todo::Release(lease)),
                LeaseState::Granted if !over => match started {
                    None => {
                        let (began, _) = self.spans(lease);
                        self.later(began, Todo::Start(lease));
                    }
                    Some(since) => {
                        let (_, ran) = self.spans(lease);
                        self.at(since.plus_millis(ran), Todo::Finish(lease));
                        let failing = self.failing(lease).map(|(after, _)| since.plus_millis(after));
                        if let Some(known) = failing.filter(|known| *known > self.now) {
                            self.at(known, Todo::Failing(lease));
                        }
                    }
                },
                _ => {}
            }
        }
        let all: Vec<Partition> = self.gates.keys().chain(self.capacities.keys()).copied().collect();
        all.into_iter().try_for_each(|partition| self.forward(partition))
    }

    /// When something is to happen next, of itself.
    fn next_own(&self) -> Option<Timestamp> {
        let queued = self.queue.keys().next().map(|(at, _)| *at);
        let timer = self.next_timer().map(|(at, ..)| at);
        match (queued, timer) {
            (Some(queued), Some(timer)) => Some(queued.min(timer)),
            (one, other) => one.or(other),
        }
    }

    fn next_timer(&self) -> Option<(Timestamp, Partition, String, Timestamp, String)> {
        let gates = self.gates.iter().map(|(partition, shell)| (*partition, shell.partition_tables()));
        let capacities = self.capacities.iter().map(|(partition, shell)| (*partition, shell.partition_tables()));
        let timers = gates
            .chain(capacities)
            .flat_map(|(partition, tables)| tables.timers.rows.iter().map(move |(timer, row)| (partition, timer, row)));
        let due = timers.map(|(partition, timer, row)| {
            let last = self.told.get(&(partition, timer.clone()));
            let at = last.map_or(row.due_at, |last| row.due_at.max(last.plus_millis(TIMER_PAUSE)));
            (at, partition, timer.clone(), row.due_at, row.key.clone())
        });
        due.min_by(|one, other| (one.0, one.1, &one.2).cmp(&(other.0, other.1, &other.2)))
    }

    /// Lets happen what is to happen of itself before a moment.
    pub(super) fn until(&mut self, moment: Timestamp) -> Result<(), ReplayError> {
        while let Some(next) = self.next_own().filter(|next| *next < moment) {
            if self.decisions >= MAX_DECISIONS {
                self.assume("cut off: more decisions than a what-if makes");
                self.queue.clear();
                return Ok(());
            }
            self.one(next)?;
        }
        self.now = self.now.max(moment);
        Ok(())
    }

    /// Lets what is under way come to its end, where the record came to rest.
    pub(super) fn come_to_rest(&mut self) -> Result<(), ReplayError> {
        let last = self.now.plus_millis(GRACE);
        while self.tally.anything_live() && self.decisions < MAX_DECISIONS {
            match self.next_own().filter(|next| *next < last) {
                Some(next) => self.one(next)?,
                None => break,
            }
        }
        Ok(())
    }

    fn one(&mut self, next: Timestamp) -> Result<(), ReplayError> {
        self.now = self.now.max(next);
        if let Some((at, partition, timer, due_at, key)) = self.next_timer()
            && self.queue.keys().next().is_none_or(|(queued, _)| at <= *queued)
        {
            self.told.insert((partition, timer.clone()), self.now);
            return self.say(partition, &key, PartitionInput::TimerDue(TimerDue { timer, due_at }));
        }
        match self.queue.pop_first() {
            Some((_, todo)) => self.act(todo),
            None => Ok(()),
        }
    }

    fn act(&mut self, todo: Todo) -> Result<(), ReplayError> {
        match todo {
            Todo::Echo(partition, input) => self.feed(partition, &input),
            Todo::Work(partition, work, attempt, asked) => {
                let pending = self.gate(partition).and_then(|gate| gate.gate.pending_work.rows.get(&work));
                let Some(row) = pending.filter(|row| row.attempt == attempt).cloned() else { return Ok(()) };
                let outcome = self.outcome(partition, work, &row, asked)?;
                let key = row.key.clone();
                self.say(partition, &key, outcome)
            }
            Todo::Start(lease) => {
                let (_, ran) = self.spans(lease);
                let now = self.now;
                let Some(run) = self.runs.get_mut(&lease).filter(|run| !run.over) else { return Ok(()) };
                run.started = Some(now);
                let run = run.clone();
                if let Some((after, _)) = self.failing(lease) {
                    self.later(after, Todo::Failing(lease));
                }
                self.later(ran, Todo::Finish(lease));
                let started = AttemptStarted {
                    tenant: run.tenant.clone(),
                    build: run.build,
                    attempt: run.attempt,
                    lease,
                    worker: run.worker.clone(),
                    started_at: now,
                };
                self.say(run.owner, &run.tenant, GateInput::AttemptStarted(started))
            }
            Todo::Failing(lease) => {
                let Some(run) = self.runs.get(&lease).filter(|run| !run.over).cloned() else { return Ok(()) };
                let Some((_, at)) = self.failing(lease) else { return Ok(()) };
                let Event::Gate(GateEvent::BuildFailing(told)) = event_at(self.log, at)?.event else { return Ok(()) };
                let failing = AttemptFailing {
                    tenant: run.tenant.clone(),
                    build: run.build,
                    attempt: run.attempt,
                    worker: run.worker,
                    detail: told.failing.detail,
                };
                self.say(run.owner, &run.tenant, GateInput::AttemptFailing(failing))
            }
            Todo::Finish(lease) => {
                let Some(run) = self.runs.get_mut(&lease).filter(|run| !run.over) else { return Ok(()) };
                run.over = true;
                let run = run.clone();
                let finished = self.finished(&run)?;
                self.say(run.owner, &run.tenant, GateInput::AttemptFinished(finished))
            }
            Todo::Release(lease) => {
                let Some(run) = self.runs.get_mut(&lease) else { return Ok(()) };
                let stopped = !std::mem::replace(&mut run.over, true);
                let run = run.clone();
                if stopped {
                    let finished = self.ended(&run, BuildResult::Aborted);
                    self.say(run.owner, &run.tenant, GateInput::AttemptFinished(finished))?;
                }
                let released = LeaseReleased { lease, worker: run.worker, incarnation: run.incarnation };
                self.say(run.capacity, "main", CapacityInput::LeaseReleased(released))
            }
        }
    }

    /// Something is said that nobody recorded.
    fn say(&mut self, partition: Partition, key: &str, input: impl Into<Input>) -> Result<(), ReplayError> {
        self.count += 1;
        let id = InputId::new(format!("what-if/{}", self.count));
        let record = InputRecord::new(id, key, self.now, input);
        self.feed(partition, &record)
    }

    /// An input is decided, and what follows from it is set going.
    pub(super) fn feed(&mut self, partition: Partition, input: &InputRecord) -> Result<(), ReplayError> {
        self.decide(partition, input)?;
        self.forward(partition)
    }

    fn decide(&mut self, partition: Partition, input: &InputRecord) -> Result<(), ReplayError> {
        self.decisions += 1;
        let offset = Offset(MODELLED + self.decisions);
        let frame = input.close().map_err(|error| ReplayError::NotWritable { message: error.to_string() })?.encode();
        let records = match partition.domain {
            Domain::Gate => match self.gates.get_mut(&partition) {
                Some(shell) => shell.take(offset, &frame, self.now, self.blobs)?.records,
                None => return Ok(()),
            },
            Domain::Capacity => match self.capacities.get_mut(&partition) {
                Some(shell) => shell.take(offset, &frame, self.now, self.blobs)?.records,
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        for record in &records {
            self.tally.learn(record);
            self.follow(partition, &record.event);
        }
        if self.first.is_empty() && self.in_place == Some((partition, input.input.name())) {
            self.first = records;
        }
        Ok(())
    }

    /// Work is taken up, and will be done after as long as it takes.
    fn set_to_work(&mut self, partition: Partition, work: WorkId) {
        let row = self.gate(partition).and_then(|gate| gate.gate.pending_work.rows.get(&work)).cloned();
        let Some(row) = row else { return };
        let took = self.takes(&row);
        let due = self.now.plus_millis(took.max(1)).max(row.not_before);
        self.at(due, Todo::Work(partition, work, row.attempt, self.now));
    }

    /// What an event sets going outside.
    pub(super) fn follow(&mut self, partition: Partition, event: &Event) {
        match event {
            Event::Partition(PartitionEvent::WorkResent(resent)) => self.set_to_work(partition, resent.work),
            Event::Gate(GateEvent::WorkResent(resent)) => self.set_to_work(partition, resent.work),
            Event::Gate(event) => {
                if let Some(work) = Work::asked_by(event) {
                    self.set_to_work(partition, work);
                }
            }
            Event::Capacity(CapacityEvent::LeaseGranted(granted)) => {
                let Some((build, attempt)) = granted.owner.build() else { return };
                let run = Run {
                    capacity: partition,
                    owner: granted.owner.partition,
                    build,
                    attempt,
                    tenant: granted.owner.key.clone(),
                    worker: granted.worker.clone(),
                    incarnation: granted.incarnation.clone(),
                    started: None,
                    over: false,
                };
                self.runs.insert(granted.lease, run);
                let (began, _) = self.spans(granted.lease);
                self.later(began, Todo::Start(granted.lease));
            }
            Event::Capacity(CapacityEvent::LeaseRevoked(revoked)) => self.later(1, Todo::Release(revoked.lease)),
            Event::Capacity(CapacityEvent::LeaseEnded(ended)) => {
                self.runs.remove(&ended.lease);
            }
            _ => {}
        }
    }

    /// Messages of a partition's outbox are taken by whom they are for, and that is told to it.
    fn forward(&mut self, first: Partition) -> Result<(), ReplayError> {
        let mut senders = vec![first];
        while let Some(from) = senders.pop() {
            let outbox: Vec<_> = match from.domain {
                Domain::Gate => self.gates.get(&from).map(|shell| shell.partition_tables()),
                Domain::Capacity => self.capacities.get(&from).map(|shell| shell.partition_tables()),
                _ => None,
            }
            .map(|tables| tables.outbox.rows.iter().map(|(key, row)| (*key, row.clone())).collect())
            .unwrap_or_default();
            let mut up_to: BTreeMap<Partition, (u64, u32)> = BTreeMap::new();
            for ((domain, index, sequence, ordinal), row) in outbox {
                let Some(domain) = Domain::from_number(domain) else { continue };
                let to = Partition { domain, index };
                let id = InputId::new(format!("what-if/{from}/{sequence}.{ordinal}"));
                let mut input = InputRecord::new(id, row.key.clone(), self.now, row.input.clone());
                input.source = Some(Source { partition: from, sequence, ordinal });
                self.decide(to, &input)?;
                up_to.insert(to, (sequence, ordinal));
                if !senders.contains(&to) {
                    senders.push(to);
                }
            }
            for (to, up_to) in up_to {
                self.count += 1;
                let told = PartitionInput::OutboxDelivered(OutboxDelivered { to, up_to });
                let id = InputId::new(format!("what-if/{}", self.count));
                self.decide(from, &InputRecord::new(id, "", self.now, told))?;
            }
        }
        Ok(())
    }

    // ---- workers ----

    /// The item's key, the job, and what the item stands on, of an attempt under way.
    fn about(&self, run: &Run) -> Option<(String, String, String, String)> {
        let gate = &self.gate(run.owner)?.gate;
        let build = gate.builds.rows.get(&run.build)?;
        let item = gate.items.rows.get(&build.item)?;
        let ahead = gate.buildsets.rows.get(&build.buildset).map(|set| set.ahead.as_slice()).unwrap_or_default();
        let words = ahead.iter().filter_map(|ahead| gate.items.rows.get(&ahead.item));
        let chain = words.map(|item| subject_words(&item.subjects)).collect::<Vec<_>>().join("; ");
        let key = item_key(&item.tenant, &item.pipeline, &subject_words(&item.subjects));
        Some((key, item.pipeline.clone(), build.job.name.clone(), chain))
    }

    /// How long an attempt takes to begin, and to run, in milliseconds.
    fn spans(&self, lease: LeaseId) -> (i64, i64) {
        let any = self.book.any_job.median().unwrap_or(60_000);
        let Some(run) = self.runs.get(&lease) else { return (1, any) };
        let Some((item, pipeline, job, chain)) = self.about(run) else { return (1, any) };
        match self.book.attempt_of(&item, &job, run.attempt, &chain) {
            Some((told, _)) => (told.began, told.ran),
            None => {
                let of_job = self.book.jobs.get(&(pipeline, job)).and_then(|told| told.median());
                (1, of_job.unwrap_or(any))
            }
        }
    }

    /// After how many milliseconds an attempt is known to fail, and where the record says so.
    fn failing(&self, lease: LeaseId) -> Option<(i64, EventRef)> {
        let run = self.runs.get(&lease)?;
        let (item, _, job, chain) = self.about(run)?;
        self.book.attempt_of(&item, &job, run.attempt, &chain)?.0.failing
    }

    /// How an attempt ends.
    fn finished(&mut self, run: &Run) -> Result<AttemptFinished, ReplayError> {
        let Some((item, pipeline, job, chain)) = self.about(run) else {
            return Ok(self.ended(run, BuildResult::Aborted));
        };
        let book = self.book;
        if let Some((told, same)) = book.attempt_of(&item, &job, run.attempt, &chain) {
            self.assume(if same { super::RECORDED_BUILD } else { super::RECORDED_OTHER_CHAIN });
            if let Event::Gate(GateEvent::BuildFinished(done)) = event_at(self.log, told.at)?.event {
                let ended = self.ended(run, done.finished.result);
                return Ok(AttemptFinished {
                    tenant: ended.tenant,
                    build: ended.build,
                    attempt: ended.attempt,
                    worker: ended.worker,
                    started_at: ended.started_at,
                    finished_at: ended.finished_at,
                    ..done.finished
                });
            }
        }
        let of_job = book.jobs.get(&(pipeline, job)).and_then(|told| told.result());
        self.assume(if of_job.is_some() { super::FREQUENT_RESULT } else { super::UNKNOWN_JOB });
        Ok(self.ended(run, of_job.unwrap_or(BuildResult::Success)))
    }

    fn ended(&self, run: &Run, result: BuildResult) -> AttemptFinished {
        AttemptFinished {
            tenant: run.tenant.clone(),
            build: run.build,
            attempt: run.attempt,
            worker: run.worker.clone(),
            result,
            started_at: run.started.unwrap_or(self.now),
            finished_at: self.now,
            detail: None,
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: None,
            kept: Default::default(),
        }
    }

    // ---- echoes ----

    /// A recorded input that tells of a merge of gatelog's own: it comes when that is merged here, if it is.
    pub(super) fn hold_echo(
        &mut self,
        of: ChangeKey,
        to: Partition,
        input: InputRecord,
        lag: i64,
    ) -> Result<(), ReplayError> {
        if self.merged.contains_key(&of) {
            return self.feed(to, &self.as_merged_here(&of, input));
        }
        self.echoes.entry(of).or_default().push(EchoTold { to, input, lag });
        Ok(())
    }

    pub(super) fn note_merged(&mut self, of: ChangeKey, target: &SubmitTarget) {
        self.merged.insert(of.clone(), Some((target.tested_base.clone(), target.tested_commit.clone())));
        for echo in self.echoes.remove(&of).unwrap_or_default() {
            let input = self.as_merged_here(&of, echo.input);
            self.later(echo.lag, Todo::Echo(echo.to, Box::new(input)));
        }
    }

    /// An echo as it sounds here: a branch that moved did so between the commits of this world.
    fn as_merged_here(&self, of: &ChangeKey, mut echo: InputRecord) -> InputRecord {
        if let Some(Some((base, commit))) = self.merged.get(of)
            && let Input::Gate(GateInput::TriggerReceived(received)) = &mut echo.input
            && received.event.change.is_none()
        {
            received.event.old_commit = received.event.old_commit.is_some().then(|| base.clone());
            received.event.commit = Some(commit.clone());
        }
        echo
    }
}
