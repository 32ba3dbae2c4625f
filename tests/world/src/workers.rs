//! Workers: they follow capacity's leases, run what they are told, and say how it ended.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_capacity_state::{CapacityLive, LeaseState, Pause};
use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_record::draft::capacity::{LeaseReleased, WorkerSeen};
use gatelog_record::draft::gate::{AttemptFailing, AttemptFinished, AttemptPaused, AttemptStarted, BuildResult};
use gatelog_record::input::{CapacityInput, GateInput};
use gatelog_record::{BlobHash, BuildId, Input, LeaseId, Timestamp, Value};
use gatelog_tables::Maps;

use crate::effects::{Spec, Witness};
use crate::forge::Forge;
use crate::random::Random;

/// A line that makes jobs fail.
pub const BAD: &str = "BAD";

/// A worker that capacity does not know announces itself again after so long, in microseconds.
const AGAIN: i64 = 10_000_000;

/// An attempt under way.
#[derive(Clone, Debug)]
struct Run {
    build: BuildId,
    attempt: u32,
    tenant: String,
    spec: BlobHash,
    began: Timestamp,
    /// By the monotonic clock.
    ends: i64,
    /// Whether the worker stopped it by itself.
    stopped: bool,
    /// Whether it waits for the jobs that need it before it ends, or has.
    pauses: Pausing,
}

/// Whether an attempt waits for the jobs that need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pausing {
    /// It does not.
    Never,
    /// It will when it is nearly done.
    Soon,
    /// It does, until capacity lets it go on.
    Now,
}

/// A worker.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// How many attempts it runs at once.
    pub slots: u32,
    /// Which start of it this is.
    pub start: u32,
    /// Whether nothing is heard of it, and why.
    pub silent: Option<Silence>,
    /// When this start was, by its own clock.
    pub started_at: Timestamp,
    /// The same by the monotonic clock.
    pub began: i64,
    /// When it announced itself last, and how often it has.
    announced: Option<i64>,
    announcements: u32,
    runs: BTreeMap<LeaseId, Run>,
    /// What it let go of.
    over: BTreeSet<LeaseId>,
    /// What failed: its nodes stay until the lease is taken back.
    failed: BTreeSet<LeaseId>,
}

/// Why nothing is heard of a worker. Moments are those of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Since when.
    pub since: i64,
    /// When it will be back.
    pub until: i64,
    /// Whether it died and will be back as another start of itself; else it was cut off.
    pub died: bool,
}

/// A worker that cannot say that it is there stops what it runs after so long, in microseconds.
const CUT_OFF: i64 = 20_000_000;

/// Something a worker says: input id, key, input.
pub type Said = (String, String, Input);

/// What a worker sees and touches.
pub struct Around<'a> {
    /// The monotonic clock.
    pub monotonic: i64,
    /// What its clock says.
    pub wall: Timestamp,
    /// Leases, as on the log.
    pub capacity: &'a CapacityLive<Maps>,
    /// Commits.
    pub forge: &'a Forge,
    /// Specs.
    pub blobs: &'a MemoryBlobs,
    /// Who sees it.
    pub witness: &'a mut Witness,
    /// Whether things go wrong by chance.
    pub noisy: bool,
}

impl Worker {
    /// A worker that has not said a word.
    pub fn new(name: &str, slots: u32, started_at: Timestamp) -> Worker {
        Worker {
            name: name.to_owned(),
            slots,
            start: 1,
            silent: None,
            started_at,
            began: 0,
            announced: None,
            announcements: 0,
            runs: BTreeMap::new(),
            over: BTreeSet::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Which start of it this is, as a word.
    pub fn incarnation(&self) -> String {
        format!("{}-{}", self.name, self.start)
    }

    /// It starts again and knows nothing of what it ran.
    pub fn restart(&mut self, monotonic: i64, wall: Timestamp) {
        self.start += 1;
        self.silent = None;
        self.started_at = wall;
        self.began = monotonic;
        self.announced = None;
        self.announcements = 0;
        self.runs.clear();
        self.over.clear();
        self.failed.clear();
    }

    /// Nothing is heard of it for a while. If it died, what it ran is over.
    pub fn fall_silent(&mut self, silence: Silence) {
        self.silent = Some(silence);
        if silence.died {
            self.runs.clear();
        }
    }

    /// It is back: as another start, or as it was, less what it stopped by itself meanwhile.
    pub fn come_back(&mut self, monotonic: i64, wall: Timestamp) {
        let Some(silence) = self.silent.take() else { return };
        if silence.died {
            self.restart(monotonic, wall);
        } else if monotonic - silence.since >= CUT_OFF {
            for run in self.runs.values_mut() {
                run.ends = monotonic;
                run.stopped = true;
            }
        }
    }

    /// Since when a start of it, by this word, has not been heard of; `None` if it is.
    pub fn unheard_since(&self, incarnation: &str) -> Option<i64> {
        if incarnation == self.incarnation() { self.silent.map(|silence| silence.since) } else { Some(self.began) }
    }

    /// How many attempts it runs.
    pub fn running(&self) -> usize {
        self.runs.len()
    }

    /// When the next of its attempts ends.
    pub fn next_end(&self) -> Option<i64> {
        self.runs.values().filter(|run| run.pauses != Pausing::Now).map(|run| run.ends).min()
    }

    /// Does one thing, if there is one to do: a word for the trace, and what it says.
    ///
    /// # Errors
    /// When it is given more than it offered, or a spec it cannot read.
    pub fn step(
        &mut self,
        around: &mut Around<'_>,
        random: &mut Random,
    ) -> Result<Option<(String, Vec<Said>)>, String> {
        if self.silent.is_some() {
            return Ok(None);
        }
        if self.must_announce(around.capacity, around.monotonic) {
            self.announced = Some(around.monotonic);
            self.announcements += 1;
            return Ok(Some((format!("{} is there", self.incarnation()), vec![self.seen()])));
        }
        let leases = &around.capacity.own.leases.rows;
        let held: Vec<(LeaseId, LeaseState, bool)> = leases
            .iter()
            .filter(|(_, row)| {
                row.grant
                    .as_ref()
                    .is_some_and(|held| held.worker == self.name && held.incarnation == self.incarnation())
            })
            .map(|(lease, row)| (*lease, row.state, row.pause == Pause::Over))
            .collect();
        let there: BTreeSet<LeaseId> = held.iter().map(|(lease, ..)| *lease).collect();
        self.over.retain(|lease| there.contains(lease));
        self.failed.retain(|lease| there.contains(lease));
        // Taken for lost although it was only slow to be heard: what it ran is another's now.
        if let Some(lease) = self.runs.keys().copied().find(|lease| !there.contains(lease)) {
            self.runs.remove(&lease);
            return Ok(Some((format!("{} stops what it has no lease for any more", self.name), Vec::new())));
        }
        let to_do: Vec<(LeaseId, bool)> = held
            .into_iter()
            .map(|(lease, state, resumed)| (lease, state, resumed, state == LeaseState::Revoked))
            .filter(|(lease, state, resumed, revoked)| match self.runs.get(lease) {
                Some(run) if run.pauses == Pausing::Now => *revoked || *resumed || run.stopped,
                Some(run) => *revoked || run.ends <= around.monotonic,
                // What is kept is left as it is, and so is what may be.
                None if *state == LeaseState::Held || self.failed.contains(lease) => *revoked,
                None => !self.over.contains(lease),
            })
            .map(|(lease, _, _, revoked)| (lease, revoked))
            .collect();
        let Some((lease, revoked)) = random.pick(&to_do).copied() else { return Ok(None) };
        match self.runs.remove(&lease) {
            None if revoked => {
                self.over.insert(lease);
                let what = if self.failed.remove(&lease) { "what failed" } else { "what it does not run" };
                Ok(Some((format!("{} lets go of {what}", self.name), vec![self.released(lease)])))
            }
            None => self.begin(around, random, lease).map(Some),
            Some(run) if run.pauses == Pausing::Soon && !revoked && !run.stopped => {
                let said = vec![self.paused(&run)];
                let told = format!("{} pauses {} attempt {}", self.name, run.build, run.attempt);
                self.runs.insert(lease, Run { pauses: Pausing::Now, ..run });
                Ok(Some((told, said)))
            }
            Some(run) => {
                let result = match revoked || run.stopped {
                    true => BuildResult::Aborted,
                    false => self.result(around, random, &run)?,
                };
                let mut said = vec![self.finished(&run, result, around.wall)];
                if matches!(result, BuildResult::Success | BuildResult::Aborted) {
                    self.over.insert(lease);
                    said.push(self.released(lease));
                } else {
                    self.failed.insert(lease);
                }
                // Some know before the end that they will fail; on the way one word may overtake another.
                if result == BuildResult::Failure && random.chance(500) {
                    said.insert(0, self.failing(&run));
                }
                Ok(Some((format!("{} ends {} attempt {}: {}", self.name, run.build, run.attempt, result.word()), said)))
            }
        }
    }

    /// Whether capacity knows this start of it.
    fn is_known(&self, capacity: &CapacityLive<Maps>) -> bool {
        capacity.own.workers.rows.get(&self.name).is_some_and(|row| row.offer.incarnation == self.incarnation())
    }

    fn must_announce(&self, capacity: &CapacityLive<Maps>, now: i64) -> bool {
        !self.is_known(capacity) && self.announced.is_none_or(|last| now >= last + AGAIN)
    }

    /// When it will announce itself again, if capacity does not know it then.
    pub fn next_announcement(&self, capacity: &CapacityLive<Maps>) -> Option<i64> {
        (!self.is_known(capacity)).then(|| self.announced.map_or(0, |last| last + AGAIN))
    }

    fn begin(
        &mut self,
        around: &Around<'_>,
        random: &mut Random,
        lease: LeaseId,
    ) -> Result<(String, Vec<Said>), String> {
        let at_work = self.runs.values().filter(|run| run.pauses != Pausing::Now).count();
        if at_work as u64 >= u64::from(self.slots) {
            return Err(format!("worker {} is to run more than the {} attempts it offers", self.name, self.slots));
        }
        let row = around.capacity.own.leases.rows.get(&lease).ok_or("a lease is gone")?;
        let (build, attempt) = row.ask.owner.build().ok_or("a lease is for no build")?;
        let job = row.ask.description.fact("job");
        let longest = if random.chance(50) { 900 } else { 120 };
        let long = random.between(1, longest);
        let run = Run {
            build,
            attempt,
            tenant: row.ask.owner.key.clone(),
            spec: row.ask.spec,
            began: around.wall,
            ends: around.monotonic + long * 1_000_000,
            stopped: false,
            // Only a job that holds no semaphore: what needs it may want the same one.
            pauses: match around.noisy && job == "tests" && random.chance(80) {
                true => Pausing::Soon,
                false => Pausing::Never,
            },
        };
        let started = AttemptStarted {
            tenant: run.tenant.clone(),
            build: run.build,
            attempt: run.attempt,
            lease,
            worker: self.name.clone(),
            started_at: around.wall,
        };
        let id = format!("build/{}/{}/started", run.build, run.attempt);
        let told = format!("{} begins {} ({}) attempt {}", self.name, run.build, job, run.attempt);
        let said = vec![(id, run.tenant.clone(), GateInput::AttemptStarted(started).into())];
        self.runs.insert(lease, run);
        Ok((told, said))
    }

    /// What a job makes of the tree it sees.
    fn result(&self, around: &mut Around<'_>, random: &mut Random, run: &Run) -> Result<BuildResult, String> {
        let bytes = around.blobs.get(&run.spec).map_err(|error| error.to_string())?;
        let spec: Spec = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        let mut saw = BTreeMap::new();
        let mut bad = false;
        for (project, commit) in &spec.workspace {
            let tree = around.forge.commits.tree(commit).ok_or_else(|| format!("there is no commit {commit}"))?;
            bad |= tree.files.values().flat_map(BTreeMap::values).any(|line| line.starts_with(BAD));
            saw.insert(project.clone(), tree.id());
        }
        let result = match random.below(1_000) {
            _ if bad && spec.job == "tests" => BuildResult::Failure,
            0..40 if around.noisy => BuildResult::Failure,
            40..140 if around.noisy => BuildResult::Retry,
            140..170 if around.noisy => BuildResult::TimedOut,
            170..200 if around.noisy => BuildResult::PostFailure,
            200..210 if around.noisy => BuildResult::Aborted,
            210..300 if around.noisy => BuildResult::Unreachable,
            _ => BuildResult::Success,
        };
        if result == BuildResult::Success {
            around.witness.succeeded.insert(run.spec, saw);
        } else {
            around.witness.failed.insert(run.spec);
        }
        Ok(result)
    }

    fn seen(&self) -> Said {
        let seen = WorkerSeen {
            worker: self.name.clone(),
            incarnation: self.incarnation(),
            started_at: self.started_at,
            address: "127.0.0.1:1".into(),
            slots: self.slots,
            labels: Vec::new(),
        };
        (
            format!("worker/{}/{}/seen/{}", self.name, self.incarnation(), self.announcements),
            "main".into(),
            CapacityInput::WorkerSeen(seen).into(),
        )
    }

    fn failing(&self, run: &Run) -> Said {
        let failing = AttemptFailing {
            tenant: run.tenant.clone(),
            build: run.build,
            attempt: run.attempt,
            worker: self.name.clone(),
            detail: "a task failed".into(),
        };
        let id = format!("build/{}/{}/failing", run.build, run.attempt);
        (id, run.tenant.clone(), GateInput::AttemptFailing(failing).into())
    }

    fn paused(&self, run: &Run) -> Said {
        let paused = AttemptPaused {
            tenant: run.tenant.clone(),
            build: run.build,
            attempt: run.attempt,
            worker: self.name.clone(),
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            kept: Default::default(),
        };
        let id = format!("build/{}/{}/paused", run.build, run.attempt);
        (id, run.tenant.clone(), GateInput::AttemptPaused(paused).into())
    }

    fn finished(&self, run: &Run, result: BuildResult, now: Timestamp) -> Said {
        let finished = AttemptFinished {
            tenant: run.tenant.clone(),
            build: run.build,
            attempt: run.attempt,
            worker: self.name.clone(),
            result,
            started_at: run.began,
            finished_at: now,
            detail: None,
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: None,
            kept: Default::default(),
        };
        let id = format!("build/{}/{}/finished", run.build, run.attempt);
        (id, run.tenant.clone(), GateInput::AttemptFinished(finished).into())
    }

    fn released(&self, lease: LeaseId) -> Said {
        let released = LeaseReleased { lease, worker: self.name.clone(), incarnation: self.incarnation() };
        (format!("lease/{lease}/released"), "main".into(), CapacityInput::LeaseReleased(released).into())
    }
}
