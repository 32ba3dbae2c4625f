//! The world: everything there is, and its one loop. Nothing in it knows a thread or a clock.

use std::sync::Arc;

use gatelog_event_log::memory::MemoryOptions;
use gatelog_event_log::{Log, LogError, MemoryBlobs, MemoryLog};
use gatelog_gate_state::live::WaitKey;
use gatelog_partition_state::PartitionTables;
use gatelog_record::draft::gate::WaitSubject;
use gatelog_record::draft::partition::TimerDue;
use gatelog_record::input::{IntakeInput, PartitionInput};
use gatelog_record::{Domain, Input, InputId, InputRecord, Partition, Stream, Timestamp};
use gatelog_rules_capacity::CapacityRules;
use gatelog_tables::Maps;

use crate::carrying::{Fate, INTAKE, Lane, Mail, Routing, Sender, fate};
use crate::content::short;
use crate::effects::{Doing, Effects, Tools, Trouble, Witness};
use crate::faults::{Coverage, Fault};
use crate::forge::Forge;
use crate::host::{Acknowledged, Host};
use crate::laws::{Laws, capacity_holds, gate_holds};
use crate::marked::Marked;
use crate::random::Random;
use crate::workers::{Around, Worker};
use crate::{disturb, known, people, site};

/// The gate's partition.
pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
/// Capacity's partition.
pub const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
/// What the machine's clock says when the world begins.
const BEGINNING: i64 = 1_800_000_000_000_000;
/// How many lines of the trace are kept to be shown.
const SHOWN: usize = 40;
/// A timer is not told more often than this, in microseconds: one that is set to the past again and
/// again must not stop the world.
const TIMER_PAUSE: i64 = 30_000_000;

/// What happened, line by line: a digest of all, and the newest lines.
#[derive(Default)]
pub struct Trace {
    digest: String,
    lines: std::collections::VecDeque<String>,
    /// How many lines there were.
    pub count: u64,
    /// Whether every line is kept.
    pub keep_all: bool,
}

impl Trace {
    fn line(&mut self, line: String) {
        self.digest = short(&format!("{}{line}", self.digest));
        self.count += 1;
        self.lines.push_back(line);
        if !self.keep_all && self.lines.len() > SHOWN {
            self.lines.pop_front();
        }
    }

    /// A name for everything that happened.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The newest lines.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

/// What the scheduler may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    GateTakes,
    CapacityTakes,
    Routes,
    GateForwards,
    CapacityForwards,
    WorkIsTaken,
    WorkIsDone,
    MailGoes,
    WorkersGoOn,
    TimersCome,
    People,
    Disturbance,
}

const ACTS: [Act; 12] = [
    Act::GateTakes,
    Act::CapacityTakes,
    Act::Routes,
    Act::GateForwards,
    Act::CapacityForwards,
    Act::WorkIsTaken,
    Act::WorkIsDone,
    Act::MailGoes,
    Act::WorkersGoOn,
    Act::TimersCome,
    Act::People,
    Act::Disturbance,
];

/// Everything there is.
pub struct World {
    pub(crate) log: MemoryLog,
    pub(crate) blobs: MemoryBlobs,
    pub(crate) gate: Host<Marked>,
    pub(crate) capacity: Host<CapacityRules>,
    pub(crate) forge: Forge,
    pub(crate) effects: Effects,
    pub(crate) witness: Witness,
    pub(crate) workers: Vec<Worker>,
    pub(crate) routing: Routing,
    pub(crate) out: Lane,
    pub(crate) back: Lane,
    pub(crate) mail: Vec<Mail>,
    pub(crate) laws: Laws,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    pub(crate) schedule: Random,
    pub(crate) chance: Random,
    pub(crate) wishes: Random,
    weights: Vec<u64>,
    /// Microseconds since the world began.
    pub(crate) monotonic: i64,
    /// By how much the machine's clock was set.
    pub(crate) clock_offset: i64,
    /// Whether things go wrong and people do things.
    pub(crate) noisy: bool,
    pub(crate) holding: bool,
    pub(crate) tenant_version: u64,
    pub(crate) proposed: u32,
    pub(crate) asked: u32,
    told_timers: std::collections::BTreeMap<(Partition, String), (u64, i64)>,
    forget: (bool, bool, bool),
}

impl World {
    /// The world of a seed, with its writers up and nothing said.
    ///
    /// # Errors
    /// When it cannot even begin.
    pub fn new(seed: u64) -> Result<World, String> {
        let mut schedule = Random::new(seed, "schedule");
        let options = MemoryOptions { offset_gap: schedule.below(3), ..MemoryOptions::default() };
        let log = MemoryLog::new(options);
        let blobs = MemoryBlobs::new();
        let mut gate = Host::new(GATE, Arc::new(Marked::default), |live| &live.partition, log.clone(), blobs.clone())?;
        let mut capacity =
            Host::new(CAPACITY, Arc::new(CapacityRules::default), |live| &live.partition, log.clone(), blobs.clone())?;
        gate.start(Timestamp(BEGINNING), false)?;
        capacity.start(Timestamp(BEGINNING), false)?;
        let mut forge = Forge::default();
        site::found(&mut forge);
        // How often each thing gets its turn differs from world to world: some have slow writers, some
        // slow workers, some much mail on its way.
        let weights = ACTS.iter().map(|_| 1 + schedule.below(12)).collect();
        let workers = vec![Worker::new("w1", 1 + schedule.below(4) as u32), Worker::new("w2", 2)];
        let mut world = World {
            log,
            blobs,
            gate,
            capacity,
            forge,
            effects: Effects::default(),
            witness: Witness::default(),
            workers,
            routing: Routing::default(),
            out: Lane::new(GATE, CAPACITY),
            back: Lane::new(CAPACITY, GATE),
            mail: Vec::new(),
            laws: Laws::default(),
            trace: Trace::default(),
            coverage: Coverage::default(),
            schedule,
            chance: Random::new(seed, "faults"),
            wishes: Random::new(seed, "workload"),
            weights,
            monotonic: 0,
            clock_offset: 0,
            noisy: false,
            holding: false,
            tenant_version: 0,
            proposed: 0,
            asked: 0,
            told_timers: Default::default(),
            forget: (false, false, false),
        };
        world.load_tenants()?;
        Ok(world)
    }

    /// What the machine's clock says.
    pub fn wall(&self) -> Timestamp {
        Timestamp(BEGINNING + self.monotonic + self.clock_offset)
    }

    /// Writes a line.
    pub(crate) fn note(&mut self, text: impl AsRef<str>) {
        let line = format!("{:>10.3} {}", self.monotonic as f64 / 1e6, text.as_ref());
        self.trace.line(line);
    }

    pub(crate) fn fault(&mut self, fault: Fault, text: impl AsRef<str>) {
        self.coverage.fault(fault);
        self.note(format!("FAULT {fault:?} {}", text.as_ref()));
    }

    /// The tenant file comes into force, once more.
    pub(crate) fn load_tenants(&mut self) -> Result<(), String> {
        self.tenant_version += 1;
        let file = site::tenant_file(&self.blobs, self.tenant_version)?;
        let id = format!("tenants/{}", self.tenant_version);
        self.post(Stream::Intake(0), id, "", IntakeInput::TenantFile(file), Sender::Outside)
    }

    /// Puts an input into the mail.
    pub(crate) fn post(
        &mut self,
        to: Stream,
        id: String,
        key: &str,
        input: impl Into<Input>,
        sender: Sender,
    ) -> Result<(), String> {
        let record = InputRecord::new(InputId::new(id.clone()), key, self.wall(), input);
        let frame = record.close().map_err(|error| error.to_string())?.encode();
        let mut ready = self.monotonic;
        if self.noisy {
            ready += self.chance.between(0, 2_000_000);
            if self.chance.chance(15) {
                ready += self.chance.between(30, 500) * 1_000_000;
                self.fault(Fault::InputLate, &id);
            }
        }
        self.mail.push(Mail { to, frame, what: id, sender, ready, answer: None });
        Ok(())
    }

    // ---- one step ----

    /// One step of the world. Gives whether anything happened.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn step(&mut self) -> Result<bool, String> {
        self.listen()?;
        let total: u64 = self.weights.iter().sum();
        let mut drawn = self.schedule.below(total);
        let mut first = 0;
        for (index, weight) in self.weights.iter().enumerate() {
            if drawn < *weight {
                first = index;
                break;
            }
            drawn -= weight;
        }
        for offset in 0..ACTS.len() {
            let Some(act) = ACTS.get((first + offset) % ACTS.len()).copied() else { continue };
            // What nobody needs is done only when it is its turn.
            if offset > 0 && self.noisy && matches!(act, Act::People | Act::Disturbance) {
                continue;
            }
            if let Some(line) = self.act(act)? {
                self.note(line);
                self.monotonic += self.schedule.between(100, 20_000);
                if self.noisy && self.schedule.chance(30) {
                    self.monotonic += self.schedule.between(0, 20_000_000);
                }
                self.listen()?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets time pass until something can happen; says whether there is such a moment.
    pub(crate) fn pass(&mut self) -> bool {
        let mut moments: Vec<i64> = Vec::new();
        moments.extend(self.mail.iter().filter(|mail| mail.answer.is_none()).map(|mail| mail.ready));
        moments.extend(self.workers.iter().filter(|worker| worker.silent.is_none()).filter_map(Worker::next_end));
        moments.extend(self.workers.iter().filter_map(|worker| Some(worker.silent? + disturb::SILENCE)));
        let offset = BEGINNING + self.clock_offset;
        let work = self.gate.projection.live.gate.pending_work.rows.iter();
        moments.extend(
            work.filter(|(id, row)| !self.effects.taken.contains(&(**id, row.attempt)))
                .map(|(_, row)| row.not_before.0 - offset),
        );
        for (partition, timers) in [(GATE, &self.gate.projection.timers), (CAPACITY, &self.capacity.projection.timers)]
        {
            for (name, armed) in timers {
                let told = self.told_timers.get(&(partition, name.clone()));
                if told.is_none_or(|(set_by, _)| *set_by != armed.set_by) {
                    let pause = told.map_or(i64::MIN, |(_, at)| at + TIMER_PAUSE);
                    moments.push(armed.deadline.max(pause));
                }
            }
        }
        let Some(next) = moments.into_iter().filter(|moment| *moment > self.monotonic).min() else { return false };
        self.monotonic = next;
        true
    }

    /// Looks at what the log has: acknowledgements, and new events.
    fn listen(&mut self) -> Result<(), String> {
        if let Acknowledged::Fell(why) = self.gate.acknowledge() {
            self.note(format!("gate falls over: {why}"));
        }
        if let Acknowledged::Fell(why) = self.capacity.acknowledge() {
            self.note(format!("capacity falls over: {why}"));
        }
        let (laws, met) = (&mut self.laws, &mut self.coverage);
        let panics = met.reasons.get("input refused: internal-error").copied().unwrap_or(0);
        let news = self.gate.follow(self.monotonic, |live, record| laws.gate(live, record, met))?;
        for _ in panics..met.reasons.get("input refused: internal-error").copied().unwrap_or(0) {
            met.fault(Fault::RulePanics);
        }
        if news > 0 {
            gate_holds(&self.gate.projection.live)?;
        }
        let news = self.capacity.follow(self.monotonic, |live, record| laws.capacity(live, record, met))?;
        if news > 0 {
            capacity_holds(&self.capacity.projection.live)?;
        }
        if self.trace.count.is_multiple_of(64) {
            self.gate.agrees()?;
            self.capacity.agrees()?;
        }
        Ok(())
    }

    fn gate_tables(&self) -> &PartitionTables<Maps> {
        &self.gate.projection.live.partition
    }

    fn capacity_tables(&self) -> &PartitionTables<Maps> {
        &self.capacity.projection.live.partition
    }

    fn act(&mut self, act: Act) -> Result<Option<String>, String> {
        let wall = self.wall();
        match act {
            Act::GateTakes => {
                if !self.gate.is_up() {
                    let snapshot = self.schedule.chance(500);
                    let term = self.gate.start(wall, snapshot)?;
                    return Ok(Some(format!(
                        "gate starts term {term} from {}",
                        if snapshot { "a snapshot" } else { "the beginning" }
                    )));
                }
                Ok(self.gate.take(wall)?.map(|told| format!("gate {told}")))
            }
            Act::CapacityTakes => {
                if !self.capacity.is_up() {
                    let snapshot = self.schedule.chance(500);
                    let term = self.capacity.start(wall, snapshot)?;
                    return Ok(Some(format!("capacity starts term {term}")));
                }
                Ok(self.capacity.take(wall)?.map(|told| format!("capacity {told}")))
            }
            Act::Routes => {
                let mark = self.gate_tables().marks.rows.get(&(INTAKE.domain as u8, INTAKE.index)).copied();
                let told = self.routing.step(&self.log, GATE, mark, self.forget.0)?;
                if self.forget.0 && self.routing.is_idle(&self.log) {
                    self.forget.0 = false;
                }
                Ok(told)
            }
            Act::GateForwards => {
                let (gate, capacity) = (&self.gate.projection.live.partition, &self.capacity.projection.live.partition);
                let told = self.out.step(&self.log, wall, gate, capacity, self.forget.1)?;
                self.forget.1 &= told.is_none();
                Ok(told)
            }
            Act::CapacityForwards => {
                let (gate, capacity) = (&self.gate.projection.live.partition, &self.capacity.projection.live.partition);
                let told = self.back.step(&self.log, wall, capacity, gate, self.forget.2)?;
                self.forget.2 &= told.is_none();
                Ok(told)
            }
            Act::WorkIsTaken => Ok(self.take_work()),
            Act::WorkIsDone => self.do_work(),
            Act::MailGoes => Ok(self.send_mail()),
            Act::WorkersGoOn => self.workers_go_on(),
            Act::TimersCome => self.timers_come(),
            Act::People => {
                if self.noisy {
                    people::act(self)
                } else {
                    people::tell(self)
                }
            }
            Act::Disturbance => {
                if self.noisy {
                    disturb::act(self)
                } else {
                    Ok(None)
                }
            }
        }
    }

    /// The router or a forwarder begins again with what was taken already.
    pub(crate) fn begin_again(&mut self, which: u64) -> Fault {
        match which {
            0 => {
                self.routing.restart();
                self.forget.0 = true;
                Fault::RouterForgets
            }
            1 => {
                self.out.restart();
                self.forget.1 = true;
                Fault::ForwarderForgets
            }
            _ => {
                self.back.restart();
                self.forget.2 = true;
                Fault::ForwarderForgets
            }
        }
    }

    fn take_work(&mut self) -> Option<String> {
        let wall = self.wall();
        let rows = &self.gate.projection.live.gate.pending_work.rows;
        self.effects.taken.retain(|(work, _)| rows.contains_key(work));
        let due: Vec<_> = rows
            .iter()
            .filter(|(id, row)| row.not_before <= wall && !self.effects.taken.contains(&(**id, row.attempt)))
            .collect();
        let (work, row) = self.schedule.pick(&due).map(|(work, row)| (**work, (*row).clone()))?;
        self.effects.taken.insert((work, row.attempt));
        let told = format!("effects take up {} {work} attempt {}", row.work.kind(), row.attempt);
        // Only work that is sent again after its deadline may get lost for good in one life of a process.
        if self.noisy && self.chance.chance(8) {
            self.fault(Fault::WorkLost, &told);
            return Some(told);
        }
        if self.noisy && self.chance.chance(20) {
            self.effects.doing.push(Doing { work, row: row.clone() });
            self.fault(Fault::WorkTwice, &told);
        }
        self.effects.doing.push(Doing { work, row });
        Some(told)
    }

    fn do_work(&mut self) -> Result<Option<String>, String> {
        if self.effects.doing.is_empty() {
            return Ok(None);
        }
        let index = self.schedule.below(self.effects.doing.len() as u64) as usize;
        let doing = self.effects.doing.swap_remove(index);
        let kind = doing.row.work.kind();
        let told = format!("effects do {kind} {} attempt {}", doing.work, doing.row.attempt);
        let mut trouble = Trouble::None;
        if self.noisy && !matches!(kind, "layout" | "config-read") {
            trouble = match self.chance.below(1_000) {
                0..40 => Trouble::Before,
                40..80 => Trouble::After,
                _ => Trouble::None,
            };
        }
        match trouble {
            Trouble::None => {}
            Trouble::After if matches!(kind, "submit" | "report") => self.fault(Fault::WorkUnsure, &told),
            _ => self.fault(Fault::WorkFails, &told),
        }
        let mut tools = Tools { forge: &mut self.forge, blobs: &self.blobs, witness: &mut self.witness };
        let input = tools.perform(&doing, trouble)?;
        let id = format!("work/{}/{}", doing.work, doing.row.attempt);
        if self.noisy && self.chance.chance(8) {
            self.fault(Fault::OutcomeLost, &id);
            return Ok(Some(told));
        }
        self.post(Stream::Inputs(GATE), id, &doing.row.tenant, input, Sender::Effects)?;
        Ok(Some(told))
    }

    fn send_mail(&mut self) -> Option<String> {
        // Answers first: a letter that is on the log is done with.
        let mut told = None;
        let mut rest = Vec::with_capacity(self.mail.len());
        for mut letter in std::mem::take(&mut self.mail) {
            match letter.answer.take().map(fate) {
                Some(Fate::Kept) => {}
                Some(Fate::Open(answer)) => {
                    letter.answer = Some(answer);
                    rest.push(letter);
                }
                Some(Fate::Unknown) => {
                    told = Some(format!("{} is not known to have come and is sent again", letter.what));
                    letter.ready = self.monotonic + 100_000;
                    rest.push(letter);
                }
                None => rest.push(letter),
            }
        }
        self.mail = rest;
        if told.is_some() {
            return told;
        }
        let now = self.monotonic;
        let ready = |letter: &Mail| letter.answer.is_none() && letter.ready <= now;
        let all: Vec<usize> = (0..self.mail.len()).filter(|at| self.mail.get(*at).is_some_and(ready)).collect();
        let index = *self.schedule.pick(&all)?;
        if all.first().is_some_and(|oldest| *oldest < index) {
            self.coverage.fault(Fault::InputOvertakes);
        }
        if self.noisy && !self.holding {
            match self.chance.below(1_000) {
                0..20 => {
                    self.log.lose_next_ack();
                    self.coverage.fault(Fault::InputAckLost);
                }
                20..50 => {
                    self.log.duplicate_next_input();
                    self.coverage.fault(Fault::InputTwice);
                }
                50..70 => {
                    let (what, message) = ("writing".to_owned(), "no space".to_owned());
                    self.log.fail_next(LogError::System { what, message });
                    self.coverage.fault(Fault::InputAppendFails);
                }
                _ => {}
            }
        }
        let letter = self.mail.get_mut(index)?;
        letter.answer = Some(self.log.append_inputs(letter.to, vec![letter.frame.clone()]));
        Some(format!("mail {} to {}", letter.what, letter.to))
    }

    fn workers_go_on(&mut self) -> Result<Option<String>, String> {
        if let Some(told) = disturb::silence(self)? {
            return Ok(Some(told));
        }
        let wall = self.wall();
        let first = self.schedule.below(self.workers.len() as u64) as usize;
        for offset in 0..self.workers.len() {
            let index = (first + offset) % self.workers.len();
            let Some(worker) = self.workers.get_mut(index) else { continue };
            let mut around = Around {
                monotonic: self.monotonic,
                wall,
                capacity: &self.capacity.projection.live,
                forge: &self.forge,
                blobs: &self.blobs,
                witness: &mut self.witness,
                noisy: self.noisy,
            };
            let Some((told, said)) = worker.step(&mut around, &mut self.schedule)? else { continue };
            let sender = Sender::Worker(worker.incarnation());
            for (id, key, input) in said {
                let to = if matches!(input, Input::Capacity(_)) { CAPACITY } else { GATE };
                self.post(Stream::Inputs(to), id, &key, input, sender.clone())?;
            }
            return Ok(Some(told));
        }
        Ok(None)
    }

    fn timers_come(&mut self) -> Result<Option<String>, String> {
        let now = self.monotonic;
        let late = if self.noisy && self.chance.chance(100) { 40_000_000 } else { 0 };
        let mut due = None;
        let mut held_back = false;
        for (partition, timers, rows) in [
            (GATE, &self.gate.projection.timers, &self.gate_tables().timers.rows),
            (CAPACITY, &self.capacity.projection.timers, &self.capacity_tables().timers.rows),
        ] {
            for (name, armed) in timers.iter().filter(|(_, armed)| armed.deadline <= now) {
                let told = self.told_timers.get(&(partition, name.clone()));
                let again = told.is_some_and(|(set_by, at)| *set_by == armed.set_by || at + TIMER_PAUSE > now);
                if again {
                    continue;
                }
                if armed.deadline + late > now {
                    held_back = true;
                    continue;
                }
                if let Some(row) = rows.get(name) {
                    due = Some((partition, name.clone(), armed.set_by, row.clone()));
                }
            }
        }
        if held_back {
            self.coverage.fault(Fault::TimerLate);
        }
        let Some((partition, timer, set_by, row)) = due else { return Ok(None) };
        self.told_timers.insert((partition, timer.clone()), (set_by, now));
        let id = format!("timer:{timer}@{}", row.due_at.0);
        let told = format!("timer {timer} of {partition} is due");
        let input = PartitionInput::TimerDue(TimerDue { timer, due_at: row.due_at });
        let twice = self.noisy && self.chance.chance(100);
        for _ in 0..=u8::from(twice) {
            self.post(Stream::Inputs(partition), id.clone(), &row.key, input.clone(), Sender::Outside)?;
        }
        if twice {
            self.fault(Fault::TimerTwice, &id);
        }
        Ok(Some(told))
    }

    // ---- from beginning to end ----

    /// A while in which people do things and everything goes wrong.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn be_noisy(&mut self, steps: u64) -> Result<(), String> {
        self.noisy = true;
        for _ in 0..steps {
            if !self.step()? && !self.pass() {
                self.monotonic += 1_000_000;
            }
        }
        self.noisy = false;
        Ok(())
    }

    /// Nothing goes wrong any more, and nobody wants anything more: until all is done.
    ///
    /// # Errors
    /// The promise that was broken, or what is left when nothing more happens.
    pub fn come_to_rest(&mut self, steps: u64) -> Result<(), String> {
        self.noisy = false;
        self.note("all is well from here on");
        self.log.flow();
        self.holding = false;
        self.forget = (false, false, false);
        for worker in &mut self.workers {
            if worker.silent.is_some() {
                worker.restart();
            }
        }
        disturb::announce_in_order(self);
        if known::stands(known::OVERDUE_WORK) {
            // Nobody but another life of the effects finds what was lost.
            self.effects = Effects::default();
        }
        for _ in 0..steps {
            if self.step()? {
                continue;
            }
            if self.left().is_empty() {
                return Ok(());
            }
            if !self.pass() {
                return Err(format!("nothing more happens, and there is left: {}", self.left().join("; ")));
            }
        }
        Err(format!("it does not come to rest; there is left: {}", self.left().join("; ")))
    }

    /// What is not done yet.
    pub fn left(&self) -> Vec<String> {
        let gate = &self.gate.projection.live.gate;
        let mut left = Vec::new();
        let mut some = |what: &str, count: usize| {
            if count > 0 {
                left.push(format!("{count} {what}"));
            }
        };
        some("items", gate.items.rows.len());
        some("triggers", gate.triggers.rows.len());
        some("pieces of work", gate.pending_work.rows.len());
        some("builds", gate.builds.rows.len());
        some("semaphores held", gate.semaphores.rows.len());
        some("leases", self.capacity.projection.live.own.leases.rows.len());
        some("messages of the gate", self.gate_tables().outbox.rows.len());
        some("messages of capacity", self.capacity_tables().outbox.rows.len());
        some("letters", self.mail.len());
        some("news of the forge", self.forge.news.len());
        some("attempts", self.workers.iter().map(Worker::running).sum());
        some("appends", self.gate.in_flight() + self.capacity.in_flight());
        if self.gate.has_input() || self.capacity.has_input() || !self.routing.is_idle(&self.log) {
            left.push("inputs to be taken".to_owned());
        }
        if !self.out.is_idle() || !self.back.is_idle() {
            left.push("messages on their way".to_owned());
        }
        left
    }

    /// The same in detail, for whoever has to find out why.
    pub fn details(&self) -> Vec<String> {
        let gate = &self.gate.projection.live.gate;
        let capacity = &self.capacity.projection.live.own;
        let mut lines = Vec::new();
        for (id, item) in &gate.items.rows {
            let wait = gate.waits.rows.get(&WaitKey(WaitSubject::Item(*id)));
            let names: Vec<_> = item.subjects.iter().map(|one| one.change.as_ref().unwrap_or(&one.git_ref)).collect();
            let wait = wait.map_or("nothing".to_owned(), |row| format!("{} ({})", row.code.word(), row.detail));
            lines.push(format!("item {id} {names:?} in {} of {} waits for {wait}", item.pipeline, item.tenant));
        }
        for (id, build) in &gate.builds.rows {
            lines.push(format!("build {id} {} {:?} attempt {}", build.job.name, build.state, build.attempt));
        }
        for (id, row) in &gate.pending_work.rows {
            lines.push(format!("work {id} {} attempt {}", row.work.kind(), row.attempt));
        }
        for (id, lease) in &capacity.leases.rows {
            let (build, attempt) = (lease.ask.build, lease.ask.attempt);
            lines.push(format!(
                "lease {id} of {build} attempt {attempt} {:?} {:?} {:?}",
                lease.state, lease.wait, lease.grant
            ));
        }
        for row in capacity.workers.rows.values() {
            lines.push(format!("worker {} has {} of {} taken", row.offer.incarnation, row.used, row.offer.slots));
        }
        for worker in &self.workers {
            lines.push(format!("worker {} really runs {}", worker.incarnation(), worker.running()));
        }
        lines
    }

    /// What must hold once all is done.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn judge(&self) -> Result<(), String> {
        if !self.gate.agrees()? || !self.capacity.agrees()? {
            return Err("a writer does not stand where its log ends".into());
        }
        self.gate.refold()?;
        self.capacity.refold()?;
        self.laws.at_the_end(&self.forge)?;
        let happened = self.witness.merges.iter().map(|merge| (&merge.project, &merge.commit));
        for (project, commit) in self.laws.merged.iter().map(|(project, commit)| (project, commit)).chain(happened) {
            let tip = self.forge.tips.get(project).map(String::as_str).unwrap_or_default();
            if !self.forge.commits.contains(tip, commit) {
                return Err(format!("{commit} was merged and is not in {project}"));
            }
        }
        self.redecide()
    }

    fn redecide(&self) -> Result<(), String> {
        let same = |again: gatelog_replay::Redecided| match again.difference {
            None => Ok(()),
            Some(difference) => Err(format!(
                "{}: decided again, {} at offset {}: {}",
                difference.partition, difference.input, difference.input_offset, difference.what
            )),
        };
        let (log, blobs) = (&self.log, &self.blobs);
        let again = gatelog_replay::redecide(log, blobs, GATE, self.gate.factory(), self.gate.tables());
        same(again.map_err(|error| error.to_string())?)?;
        let again = gatelog_replay::redecide(log, blobs, CAPACITY, self.capacity.factory(), self.capacity.tables());
        same(again.map_err(|error| error.to_string())?)
    }
}
