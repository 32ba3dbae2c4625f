//! Builds, their leases and semaphores.

use std::ops::Bound;

use gatelog_record::draft::capacity::{LeaseEndAsked, LeasePauseAsked, LeaseResumeAsked};
use gatelog_record::draft::gate::{
    ArtifactsNoted, BuildFailing, BuildFinished, BuildPaused, BuildReady, BuildResumed, BuildSettled, BuildStarted,
    LeaseEndWanted, LeasePauseWanted, LeaseResumeWanted, LeaseWanted, NodesetChanged, SemaphoreFreed, WaitSubject,
    build_owner,
};
use gatelog_record::input::CapacityInput;
use gatelog_record::{BuildId, Domain, EventRecord, Partition, Value};
use gatelog_tables::{Backing, FoldRefused, Table, TableExt};

use crate::live::{ArtifactRow, BuildState, GateLive, GateTables, WaitKey};

/// Where leases are asked for.
pub(super) const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
/// The allocation domain.
pub(super) const MAIN: &str = "main";

impl<B: Backing> GateLive<B> {
    pub(super) fn ask_for_lease(&mut self, record: &EventRecord, event: &LeaseWanted) -> Result<(), FoldRefused> {
        self.partition.send(record, 0, CAPACITY, MAIN, CapacityInput::LeaseAsked(event.ask.clone()))
    }

    pub(super) fn end_lease(&mut self, record: &EventRecord, event: &LeaseEndWanted) -> Result<(), FoldRefused> {
        let owner = build_owner(&record.key, event.build, event.attempt);
        let asked = LeaseEndAsked { owner, reason: event.reason.clone() };
        self.partition.send(record, 0, CAPACITY, MAIN, CapacityInput::LeaseEndAsked(asked))
    }

    pub(super) fn pause_lease(&mut self, record: &EventRecord, event: &LeasePauseWanted) -> Result<(), FoldRefused> {
        let asked = LeasePauseAsked { owner: build_owner(&record.key, event.build, event.attempt) };
        self.partition.send(record, 0, CAPACITY, MAIN, CapacityInput::LeasePauseAsked(asked))
    }

    pub(super) fn resume_lease(&mut self, record: &EventRecord, event: &LeaseResumeWanted) -> Result<(), FoldRefused> {
        let asked = LeaseResumeAsked { owner: build_owner(&record.key, event.build, event.attempt) };
        self.partition.send(record, 0, CAPACITY, MAIN, CapacityInput::LeaseResumeAsked(asked))
    }
}

impl<B: Backing> GateTables<B> {
    pub(super) fn lease_wanted(&mut self, event: &LeaseWanted) -> Result<(), FoldRefused> {
        let build = event.build;
        let row = self.builds.need(&build)?;
        if row.state != BuildState::Waiting || event.attempt <= row.attempt {
            return Err(FoldRefused::Illegal(format!(
                "build {build} asks for the lease of attempt {} while it is {:?} with attempt {}",
                event.attempt, row.state, row.attempt
            )));
        }
        let at_once = |name: &&String| !row.job.traits.resources_first.contains(name);
        let taken = event.taken.clone().unwrap_or_else(|| {
            row.job.semaphores.iter().map(|semaphore| &semaphore.name).filter(at_once).cloned().collect()
        });
        for semaphore in taken {
            self.semaphores.put((row.tenant.clone(), semaphore, build), ())?;
        }
        self.builds.update(&build, |row| {
            row.state = BuildState::Leased;
            row.ready = None;
            row.attempt = event.attempt;
            row.lease = None;
            row.worker = None;
            row.started_at = None;
            row.finished_at = None;
            row.pre_fail = false;
        })
    }

    pub(super) fn build_started(&mut self, event: &BuildStarted) -> Result<(), FoldRefused> {
        let started = &event.started;
        let row = self.builds.need(&started.build)?;
        if row.state != BuildState::Leased || row.attempt != started.attempt {
            return Err(FoldRefused::Illegal(format!(
                "build {} begins attempt {} while it is {:?} with attempt {}",
                started.build, started.attempt, row.state, row.attempt
            )));
        }
        for semaphore in event.taken.as_ref().unwrap_or(&row.job.traits.resources_first) {
            self.semaphores.put((row.tenant.clone(), semaphore.clone(), started.build), ())?;
        }
        self.builds.update(&started.build, |row| {
            row.ready = None;
            row.state = BuildState::Running;
            row.lease = Some(started.lease);
            row.worker = Some(started.worker.clone());
            row.started_at = Some(started.started_at);
        })
    }

    pub(super) fn build_ready(&mut self, event: &BuildReady) -> Result<(), FoldRefused> {
        let started = &event.started;
        let row = self.builds.need(&started.build)?;
        if row.state != BuildState::Leased || row.attempt != started.attempt || row.ready.is_some() {
            return Err(FoldRefused::Illegal(format!(
                "build {} has the nodes of attempt {} while it is {:?} with attempt {}",
                started.build, started.attempt, row.state, row.attempt
            )));
        }
        // Events that did not say let it keep what it had.
        self.let_go(started.build, Some(event.freed.as_deref().unwrap_or_default()))?;
        self.builds.update(&started.build, |row| row.ready = Some(started.clone()))
    }

    pub(super) fn build_paused(&mut self, record: &EventRecord, event: &BuildPaused) -> Result<(), FoldRefused> {
        let paused = &event.paused;
        let mut row = self.builds.need(&paused.build)?.into_owned();
        if row.state != BuildState::Running || row.attempt != paused.attempt || row.paused {
            return Err(FoldRefused::Illegal(format!(
                "build {} pauses attempt {} while it is {:?} with attempt {}",
                paused.build, paused.attempt, row.state, row.attempt
            )));
        }
        row.paused = true;
        row.child_jobs = child_jobs(&paused.data);
        self.builds.put(paused.build, row)?;
        self.note_returned(record, paused.build, paused.kept.blobs())
    }

    pub(super) fn build_failing(&mut self, event: &BuildFailing) -> Result<(), FoldRefused> {
        let failing = &event.failing;
        let row = self.builds.need(&failing.build)?;
        if row.state != BuildState::Running || row.attempt != failing.attempt {
            return Err(FoldRefused::Illegal(format!(
                "build {} will fail in attempt {} while it is {:?} with attempt {}",
                failing.build, failing.attempt, row.state, row.attempt
            )));
        }
        self.builds.update(&failing.build, |row| {
            row.pre_fail = true;
            row.detail = Some(failing.detail.clone());
        })
    }

    pub(super) fn artifacts_noted(&mut self, event: &ArtifactsNoted) -> Result<(), FoldRefused> {
        let item = self.items.need(&event.item)?.into_owned();
        for subject in &item.subjects {
            let Some(key) = subject.change_key() else { continue };
            let key = (item.tenant.clone(), key.project, key.change);
            let mut rows = self.artifacts.get(&key)?.map(|rows| rows.into_owned()).unwrap_or_default();
            // Of an older patchset nobody asks any more.
            rows.retain(|row| row.pipeline != item.pipeline || row.patchset == subject.patchset);
            for (artifact, made) in &event.artifacts {
                rows.retain(|row| row.pipeline != item.pipeline || row.artifact != *artifact);
                rows.push(ArtifactRow {
                    pipeline: item.pipeline.clone(),
                    patchset: subject.patchset.clone(),
                    artifact: artifact.clone(),
                    made: *made,
                });
            }
            self.artifacts.put(key, rows)?;
        }
        Ok(())
    }

    pub(super) fn build_resumed(&mut self, event: &BuildResumed) -> Result<(), FoldRefused> {
        self.builds.update(&event.build, |row| row.paused = false)
    }

    /// The build's newest attempt is over: what it held is free.
    fn let_go(&mut self, build: BuildId, freed: Option<&[SemaphoreFreed]>) -> Result<(), FoldRefused> {
        let Some(freed) = freed else { return self.let_go_by_name(build) };
        let tenant = self.builds.need(&build)?.tenant.clone();
        for free in freed {
            self.semaphores.remove(&(tenant.clone(), free.semaphore.clone(), free.build))?;
        }
        Ok(())
    }

    /// The same for events that do not say what becomes free: those of one name in a buildset held one slot together,
    /// and whichever ended first let go of it.
    fn let_go_by_name(&mut self, build: BuildId) -> Result<(), FoldRefused> {
        let row = self.builds.need(&build)?;
        let (tenant, buildset, job) = (&row.tenant, row.buildset, row.job.name.as_str());
        let mut free = Vec::new();
        for semaphore in &row.job.semaphores {
            let key = |id: [u8; 16]| (tenant.clone(), semaphore.name.clone(), BuildId(id));
            let (from, to) = (key([0; 16]), key([255; 16]));
            for entry in self.semaphores.range(Bound::Included(&from), Bound::Included(&to))? {
                let (key, ()) = entry.map(|(key, row)| (key, *row))?;
                let other = self.builds.get(&key.2)?;
                if other.is_some_and(|other| other.buildset == buildset && other.job.name == job) {
                    free.push(key);
                }
            }
        }
        for key in free {
            self.semaphores.delete(&key)?;
        }
        Ok(())
    }

    pub(super) fn build_finished(&mut self, record: &EventRecord, event: &BuildFinished) -> Result<(), FoldRefused> {
        let finished = &event.finished;
        let row = self.builds.need(&finished.build)?;
        if !row.holds_lease() || row.attempt != finished.attempt {
            return Err(FoldRefused::Illegal(format!(
                "build {} ends attempt {} while it is {:?} with attempt {}",
                finished.build, finished.attempt, row.state, row.attempt
            )));
        }
        if event.retry == event.result.is_some() {
            return Err(FoldRefused::Illegal(format!(
                "build {} has a result exactly when there is no other attempt",
                finished.build
            )));
        }
        self.let_go(finished.build, event.freed.as_deref())?;
        if !event.retry {
            self.waits.delete(&WaitKey(WaitSubject::Build(finished.build)))?;
        }
        self.builds.update(&finished.build, |row| {
            row.ready = None;
            row.started_at = Some(finished.started_at);
            row.finished_at = Some(finished.finished_at);
            row.log_url.clone_from(&finished.log_url);
            row.detail.clone_from(&finished.detail);
            row.result = event.result;
            row.state = if event.retry { BuildState::Waiting } else { BuildState::Done };
            row.pre_fail &= !event.retry;
            row.paused &= !event.retry;
            if !event.retry {
                row.child_jobs = child_jobs(&finished.data);
            }
        })?;
        self.note_returned(record, finished.build, finished.kept.blobs())
    }

    pub(super) fn nodeset_changed(&mut self, event: &NodesetChanged) -> Result<(), FoldRefused> {
        let row = self.builds.need(&event.build)?;
        if row.state != BuildState::Waiting {
            return Err(FoldRefused::Illegal(format!(
                "build {} is to have other nodes while it is {:?} with attempt {}",
                event.build, row.state, row.attempt
            )));
        }
        self.builds.update(&event.build, |row| {
            row.nodeset = event.nodeset;
            row.uncounted = row.uncounted.saturating_add(u32::from(event.uncounted));
        })
    }

    pub(super) fn build_settled(&mut self, event: &BuildSettled) -> Result<(), FoldRefused> {
        if self.builds.need(&event.build)?.state == BuildState::Done {
            return Err(FoldRefused::Illegal(format!("build {} has its result already", event.build)));
        }
        self.let_go(event.build, event.freed.as_deref())?;
        self.waits.delete(&WaitKey(WaitSubject::Build(event.build)))?;
        self.builds.update(&event.build, |row| {
            row.state = BuildState::Done;
            row.ready = None;
            row.result = Some(event.result);
            row.settled = Some(event.code.clone());
            row.detail = (!event.detail.is_empty()).then(|| event.detail.clone());
        })
    }
}

/// Zuul: `zuul.child_jobs` in what a job returned.
fn child_jobs(data: &Value) -> Option<Vec<String>> {
    let list = data.as_map()?.get("zuul")?.as_map()?.get("child_jobs")?.as_list()?;
    Some(list.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}
