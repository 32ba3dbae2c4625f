//! A world from its noise to its rest, and what is judged then.

use gatelog_gate_state::live::WaitKey;
use gatelog_record::draft::gate::WaitSubject;

use crate::kept;
use crate::random::Random;
use crate::script::Turn;
use crate::workers::Worker;
use crate::world::{CAPACITY, GATE, World};

/// What makes the noise.
#[derive(Clone, Copy, Debug)]
pub enum Noise<'t> {
    /// Chance, for so many turns.
    Turns(usize),
    /// What was recorded.
    Recorded(&'t [Turn]),
}

impl World {
    /// A while in which people do things and everything goes wrong: so many turns, or those that were recorded.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn be_noisy(&mut self, noise: &Noise<'_>) -> Result<(), String> {
        self.noisy = true;
        let count = match noise {
            Noise::Turns(count) => *count,
            Noise::Recorded(turns) => turns.len(),
        };
        for index in 0..count {
            if let Noise::Recorded(turns) = noise
                && let Some(turn) = turns.get(index)
            {
                self.schedule.follow(&turn.schedule);
                self.chance.follow(&turn.faults);
                self.wishes.follow(&turn.wishes);
            }
            let before = self.trace.count;
            let stepped = self.step().map(|happened| {
                if !happened && !self.pass() {
                    self.monotonic += 1_000_000;
                }
            });
            let (schedule, faults, wishes) = (self.schedule.drawn(), self.chance.drawn(), self.wishes.drawn());
            let lines = (self.trace.count - before) as usize;
            self.turns.push(Turn { schedule, faults, wishes, lines });
            stepped?;
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
        // What is recorded ends here; what follows is the same for every run of this seed.
        self.schedule = Random::new(self.seed, "rest");
        self.chance = Random::new(self.seed, "rest");
        self.note("all is well from here on");
        self.log.flow();
        self.holding = false;
        self.fill_disk(false);
        self.forget = (false, false, false);
        let (now, wall) = (self.monotonic, self.wall());
        self.workers.iter_mut().for_each(|worker| worker.come_back(now, wall));
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
            let subject = &lease.ask.owner.subject;
            lines.push(format!("lease {id} of {subject} {:?} {:?} {:?}", lease.state, lease.wait, lease.grant));
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
        let (log, blobs) = (&self.log, &self.blobs);
        let again = gatelog_replay::redecide(log, blobs, GATE, self.gate.factory(), self.gate.tables());
        kept::same(GATE, again.map_err(|error| error.to_string())?)?;
        let again = gatelog_replay::redecide(log, blobs, CAPACITY, self.capacity.factory(), self.capacity.tables());
        kept::same(CAPACITY, again.map_err(|error| error.to_string())?).map(drop)
    }
}
