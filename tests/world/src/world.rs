//! The world: everything there is, and its one loop. Nothing in it knows a thread or a clock.

use std::sync::{Arc, PoisonError};

use gatelog_event_log::memory::MemoryOptions;
use gatelog_event_log::{Log, LogError, MemoryBlobs, MemoryLog};
use gatelog_partition_state::PartitionTables;
use gatelog_record::draft::partition::TimerDue;
use gatelog_record::input::{IntakeInput, PartitionInput};
use gatelog_record::{Domain, Input, InputId, InputRecord, Partition, Stream, Timestamp};
use gatelog_rules_capacity::CapacityRules;
use gatelog_rules_gate::GateRules;
use gatelog_tables::Maps;

use crate::calendar::Clockwork;
use crate::carrying::{Fate, INTAKE, Lane, Mail, Routing, Sender, fate};
use crate::content::short;
use crate::effects::{Doing, Effects, Tools, Trouble, Witness};
use crate::faults::{Coverage, Fault};
use crate::forge::Forge;
use crate::host::{Acknowledged, Clocks, Host};
use crate::laws::{Laws, capacity_holds, gate_holds, waits_are_told};
use crate::marked::{MARK, Marked, Plant, Undone};
use crate::random::Random;
use crate::script::Turn;
use crate::workers::{Around, Worker};
use crate::{calendar, disturb, people, site};

/// The gate's partition.
pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
/// Capacity's partition.
pub const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
/// What the machine's clock says when the world begins.
const BEGINNING: i64 = 1_800_000_000_000_000;
/// How many lines of the trace are kept to be shown.
const SHOWN: usize = 40;
/// The tenant on whose outcomes rules may panic.
const POISONED: &str = "beta";
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
    pub(crate) gate: Host<Marked<GateRules>>,
    pub(crate) capacity: Host<Marked<CapacityRules>>,
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
    pub(crate) seed: u64,
    pub(crate) schedule: Random,
    pub(crate) chance: Random,
    pub(crate) wishes: Random,
    /// What was drawn, turn by turn, while things went wrong.
    pub(crate) turns: Vec<Turn>,
    weights: Vec<u64>,
    /// Microseconds since the world began.
    pub(crate) monotonic: i64,
    /// By how much the machine's clock was set.
    pub(crate) clock_offset: i64,
    /// Whether things go wrong and people do things.
    pub(crate) noisy: bool,
    pub(crate) holding: bool,
    /// Whether the disk is full: nothing is appended, and short work waits for room.
    pub(crate) disk_full: bool,
    pub(crate) tenant_version: u64,
    pub(crate) proposed: u32,
    pub(crate) asked: u32,
    pub(crate) clockwork: Clockwork,
    pub(crate) told_timers: std::collections::BTreeMap<(Partition, String), (u64, i64)>,
    /// How often capacity was told that a start of a worker is silent, and when last.
    pub(crate) told_silent: std::collections::BTreeMap<String, (u32, i64)>,
    pub(crate) forget: (bool, bool, bool),
    /// What the gate's decisions left undone.
    undone: Undone,
}

/// The log's time at the newest event.
fn newest(tables: &PartitionTables<Maps>) -> Timestamp {
    tables.writer.rows.get(&()).map_or(Timestamp(BEGINNING), |row| row.recorded_at)
}

impl World {
    /// The world of a seed, with its writers up and nothing said.
    ///
    /// # Errors
    /// When it cannot even begin.
    pub fn new(seed: u64) -> Result<World, String> {
        World::planted(seed, None)
    }

    /// The same, with a fault planted in the rules.
    ///
    /// # Errors
    /// When it cannot even begin.
    pub fn planted(seed: u64, plant: Option<Plant>) -> Result<World, String> {
        let mut site = Random::new(seed, "site");
        let options = MemoryOptions { offset_gap: site.below(3), ..MemoryOptions::default() };
        let log = MemoryLog::new(options);
        let blobs = MemoryBlobs::new();
        let undone = Undone::default();
        let told = Arc::clone(&undone);
        let rules = Arc::new(move || Marked::<GateRules>::planted(plant, &told));
        let mut gate = Host::new(GATE, rules, |live| &live.partition, log.clone(), blobs.clone())?;
        let rules = Arc::new(move || Marked::<CapacityRules>::planted(plant, &Undone::default()));
        let mut capacity = Host::new(CAPACITY, rules, |live| &live.partition, log.clone(), blobs.clone())?;
        let clocks = Clocks { wall: Timestamp(BEGINNING), monotonic: 0 };
        gate.start(clocks, false)?;
        capacity.start(clocks, false)?;
        let mut forge = Forge::default();
        site::found(&mut forge);
        // How often each thing gets its turn differs from world to world: some have slow writers, some
        // slow workers, some much mail on its way.
        let weights = ACTS.iter().map(|_| 1 + site.below(12)).collect();
        let workers = [("w1", 1 + site.below(4) as u32), ("w2", 2)]
            .map(|(name, slots)| Worker::new(name, slots, Timestamp(BEGINNING)))
            .into();
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
            seed,
            schedule: Random::recorded(seed, "schedule"),
            chance: Random::recorded(seed, "faults"),
            wishes: Random::recorded(seed, "workload"),
            turns: Vec::new(),
            weights,
            monotonic: 0,
            clock_offset: 0,
            noisy: false,
            holding: false,
            disk_full: false,
            tenant_version: 0,
            proposed: 0,
            asked: 0,
            clockwork: Clockwork::new()?,
            told_timers: Default::default(),
            told_silent: Default::default(),
            forget: (false, false, false),
            undone,
        };
        world.load_tenants()?;
        Ok(world)
    }

    /// What the machine's clock says.
    pub fn wall(&self) -> Timestamp {
        Timestamp(BEGINNING + self.monotonic + self.clock_offset)
    }

    /// What both clocks of the machine say.
    pub(crate) fn clocks(&self) -> Clocks {
        Clocks { wall: self.wall(), monotonic: self.monotonic }
    }

    /// The disk is full from now on, or has room again.
    pub(crate) fn fill_disk(&mut self, full: bool) {
        self.log.fill(full);
        self.disk_full = full;
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
        let undone = self.undone.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(undone) = undone {
            return Err(undone);
        }
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
        moments.extend(self.workers.iter().filter_map(|worker| Some(worker.silent?.until)));
        moments.extend(disturb::unheard(self).into_iter().map(|(due, ..)| due));
        let capacity = &self.capacity.projection.live;
        let heard = self.workers.iter().filter(|worker| worker.silent.is_none());
        moments.extend(heard.filter_map(|worker| worker.next_announcement(capacity)));
        let work = self.effects.due.iter().filter(|(key, _)| !self.effects.taken.contains(*key));
        moments.extend(work.map(|(_, due)| *due));
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
        self.laws.now = self.monotonic;
        let (laws, met) = (&mut self.laws, &mut self.coverage);
        let panics = met.reasons.get("input refused: internal-error").copied().unwrap_or(0);
        let news = self.gate.follow(self.monotonic, |live, record| laws.gate(live, record, met))?;
        for _ in panics..met.reasons.get("input refused: internal-error").copied().unwrap_or(0) {
            met.fault(Fault::RulePanics);
        }
        if news > 0 {
            gate_holds(&self.gate.projection.live)?;
            let live = &self.gate.projection.live;
            self.effects.see(&live.gate.pending_work.rows, newest(&live.partition), self.monotonic);
        }
        let news = self.capacity.follow(self.monotonic, |live, record| laws.capacity(live, record, met))?;
        if news > 0 {
            capacity_holds(&self.capacity.projection.live)?;
        }
        if self.trace.count.is_multiple_of(64) {
            self.gate.agrees()?;
            self.capacity.agrees()?;
            waits_are_told(&self.gate.projection.live, &self.capacity.projection.live)?;
        }
        Ok(())
    }

    pub(crate) fn gate_tables(&self) -> &PartitionTables<Maps> {
        &self.gate.projection.live.partition
    }

    pub(crate) fn capacity_tables(&self) -> &PartitionTables<Maps> {
        &self.capacity.projection.live.partition
    }

    fn act(&mut self, act: Act) -> Result<Option<String>, String> {
        let (clocks, wall) = (self.clocks(), self.wall());
        match act {
            Act::GateTakes => {
                if !self.gate.is_up() {
                    let snapshot = self.schedule.chance(500);
                    let term = self.gate.start(clocks, snapshot)?;
                    return Ok(Some(format!(
                        "gate starts term {term} from {}",
                        if snapshot { "a snapshot" } else { "the beginning" }
                    )));
                }
                Ok(self.gate.take(clocks)?.map(|told| format!("gate {told}")))
            }
            Act::CapacityTakes => {
                if !self.capacity.is_up() {
                    let snapshot = self.schedule.chance(500);
                    let term = self.capacity.start(clocks, snapshot)?;
                    return Ok(Some(format!("capacity starts term {term}")));
                }
                Ok(self.capacity.take(clocks)?.map(|told| format!("capacity {told}")))
            }
            Act::Routes => {
                let mark = self.gate_tables().marks.rows.get(&(INTAKE.domain as u8, INTAKE.index)).copied();
                let told = self.routing.step(&self.log, GATE, mark, self.forget.0)?;
                if self.noisy && told.is_some() && self.chance.chance(15) && self.routing.lose_answer() {
                    self.fault(Fault::RouterAckLost, "");
                }
                if self.forget.0 && self.routing.is_idle(&self.log) {
                    self.forget.0 = false;
                }
                Ok(told)
            }
            Act::GateForwards => {
                let (gate, capacity) = (&self.gate.projection.live.partition, &self.capacity.projection.live.partition);
                let told = self.out.step(&self.log, wall, gate, capacity, self.forget.1)?;
                if self.noisy && told.is_some() && self.chance.chance(15) && self.out.lose_answer() {
                    self.fault(Fault::ForwarderAckLost, "of the gate");
                }
                self.forget.1 &= told.is_none();
                Ok(told)
            }
            Act::CapacityForwards => {
                let (gate, capacity) = (&self.gate.projection.live.partition, &self.capacity.projection.live.partition);
                let told = self.back.step(&self.log, wall, capacity, gate, self.forget.2)?;
                if self.noisy && told.is_some() && self.chance.chance(15) && self.back.lose_answer() {
                    self.fault(Fault::ForwarderAckLost, "of capacity");
                }
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
        let (now, live) = (self.monotonic, &self.gate.projection.live);
        let rows = &live.gate.pending_work.rows;
        self.effects.see(rows, newest(&live.partition), now);
        self.effects.taken.retain(|(work, _)| rows.contains_key(work));
        let due: Vec<_> = rows
            .iter()
            .filter(|(id, row)| {
                let key = (**id, row.attempt);
                self.effects.due.get(&key).is_some_and(|due| *due <= now) && !self.effects.taken.contains(&key)
            })
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
        if self.effects.doing.is_empty() || self.disk_full {
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
        let mut id = format!("work/{}/{}", doing.work, doing.row.attempt);
        if self.noisy && doing.row.key == POISONED && self.chance.chance(30) {
            id = format!("{MARK}/{id}");
            self.fault(Fault::OutcomePanics, &id);
        }
        if self.noisy && self.chance.chance(8) {
            self.fault(Fault::OutcomeLost, &id);
            return Ok(Some(told));
        }
        self.post(Stream::Inputs(GATE), id, &doing.row.key, input, Sender::Effects)?;
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
            self.laws.start(&worker.incarnation(), worker.started_at);
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
        let Some((partition, timer, set_by, row)) = due else { return calendar::tell(self, self.noisy) };
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
}
