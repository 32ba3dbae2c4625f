//! What jobs of an item may use of items ahead: artifacts, and jobs that hold everybody up.

use std::collections::BTreeMap;

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{ArtifactRow, BuildRow, BuildState, Phase};
use gatelog_record::draft::gate::{ArtifactsNoted, BuildResult};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildId, ItemId};

use crate::decision::Decision;
use crate::queue_pass::Walk;

/// What became of the job that makes an artifact.
enum Made {
    /// It is there.
    Yes,
    /// It may still come.
    NotYet,
    /// It will not.
    Never,
}

/// How far the item is that stands for a change.
enum Stand<'s> {
    /// Its jobs are known.
    Jobs(Vec<&'s BuildRow>),
    /// They will be.
    Unknown,
    /// It is not there any more.
    Over,
}

impl Decision<'_> {
    /// The job of an item ahead for which everything behind waits. Zuul: `hold-following-changes`.
    pub(crate) fn holds_following(&self, ahead: &[ItemId]) -> Option<String> {
        for item in ahead.iter().rev() {
            if self.item(*item).is_none_or(|row| !row.live) {
                return None;
            }
            let (_, set) = self.buildset_of(*item)?;
            if set.phase != Phase::Frozen {
                return None;
            }
            let holds = |build: &&BuildId| {
                self.build(**build).is_some_and(|row| {
                    row.job.traits.hold_following_changes && row.result != Some(BuildResult::Success)
                })
            };
            if let Some(build) = set.builds.iter().find(holds).and_then(|build| self.build(*build)) {
                return Some(build.job.name.clone());
            }
        }
        None
    }

    /// The builds an item stands for: its own, or, when it is not live, those of the live item of the same
    /// changes in its pipeline.
    fn builds_for(&self, item: ItemId) -> Stand<'_> {
        let Some(row) = self.item(item) else { return Stand::Over };
        let holder = match row.live {
            true => Some(item),
            false => row.subjects.iter().find_map(|subject| {
                let items = self.items_in(&row.tenant, &row.pipeline, subject);
                items.into_iter().find(|other| {
                    self.item(*other).is_some_and(|other| {
                        other.live && other.subjects.iter().any(|one| crate::managers::same(one, subject))
                    })
                })
            }),
        };
        let Some(holder) = holder else { return Stand::Over };
        match self.buildset_of(holder) {
            Some((_, set)) if set.phase == Phase::Frozen => {
                Stand::Jobs(set.builds.iter().filter_map(|build| self.build(*build)).collect())
            }
            // One that ended without jobs leaves at once, or fails, and is then in nobody's chain.
            _ => Stand::Unknown,
        }
    }

    /// Zuul: the nearest item is asked first, and who cannot tell yet ends it. As long as an item is there its jobs may
    /// begin again, so that one of them failed says nothing before it left.
    fn made(&self, ahead: &[ItemId], artifact: &String) -> Made {
        for item in ahead.iter().rev() {
            let builds = match self.builds_for(*item) {
                Stand::Jobs(builds) => builds,
                Stand::Unknown => return Made::NotYet,
                // What became of it when its own time was counts.
                Stand::Over if self.remembered(*item, artifact) == Some(false) => return Made::Never,
                Stand::Over => continue,
            };
            let there = |build: &&BuildRow| match build.state {
                BuildState::Done => build.result == Some(BuildResult::Success),
                _ => build.paused,
            };
            if !builds.iter().filter(|build| build.job.traits.provides.contains(artifact)).all(there) {
                return Made::NotYet;
            }
        }
        Made::Yes
    }

    /// What became of an artifact of an item's changes, when they were tested themselves.
    fn remembered(&self, item: ItemId, artifact: &String) -> Option<bool> {
        let row = self.item(item)?;
        row.subjects.iter().find_map(|subject| {
            let key = subject.change_key()?;
            let rows = self.gate().artifacts.row(&(row.tenant.clone(), key.project, key.change))?;
            let fits = |one: &&ArtifactRow| {
                one.pipeline == row.pipeline && one.patchset == subject.patchset && one.artifact == *artifact
            };
            rows.iter().find(fits).map(|one| one.made)
        })
    }

    /// Notes what became of the artifacts of an item that leaves, for those that need them later.
    pub(crate) fn note_artifacts(&mut self, item: ItemId) -> Result<(), Refusal> {
        let Some((_, set)) = self.buildset_of(item) else { return Ok(()) };
        let mut artifacts: BTreeMap<String, bool> = BTreeMap::new();
        for build in set.builds.iter().filter_map(|build| self.build(*build)) {
            let Some(result) = build.result else { continue };
            for artifact in &build.job.traits.provides {
                let made = artifacts.entry(artifact.clone()).or_insert(true);
                *made &= result == BuildResult::Success;
            }
        }
        if artifacts.is_empty() {
            return Ok(());
        }
        let artifacts = artifacts.into_iter().collect();
        self.emit(GateEvent::ArtifactsNoted(ArtifactsNoted { item, artifacts }))
    }

    /// An artifact a build needs that is still to come.
    pub(crate) fn awaited_artifact(&self, ahead: &[ItemId], row: &BuildRow) -> Option<String> {
        let awaited = |artifact: &&String| matches!(self.made(ahead, artifact), Made::NotYet);
        row.job.traits.requires.iter().find(awaited).cloned()
    }

    /// Why an artifact a build needs will never come.
    pub(crate) fn lost_artifact(&self, walk: &Walk<'_>, row: &BuildRow) -> Option<String> {
        let lost = |artifact: &&String| matches!(self.made(&walk.chain, artifact), Made::Never);
        let artifact = row.job.traits.requires.iter().find(lost)?;
        Some(format!("The job that makes {artifact} failed for a change ahead."))
    }
}
