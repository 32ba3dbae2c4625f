//! How short work would have ended: from the record where the same was asked there, made again where it is a pure
//! function, and by a plain rule elsewhere.

use std::collections::BTreeMap;

use gatelog_event_log::Blobs;
use gatelog_gate_state::live::PendingRow;
use gatelog_gate_state::work::{NotReported, PerformKinds};
use gatelog_partition_state::work::Sending;
use gatelog_record::draft::gate::{
    ChangeFacts, ChangesFound, ChangesWanted, ConfigFile, ConfigFileSet, ConfigFilesFound, ConfigReadWanted,
    FactsPurpose, FreezeOutcome, FreezeWanted, LayoutOutcome, LayoutWanted, PrepareOutcome, PrepareRequested,
    PreparedBranch, PreparedState, ProjectBranch, ReportRequested, SubmitOutcome, SubmitRequested,
};
use gatelog_record::event::GateEvent;
use gatelog_record::input::GateInput;
use gatelog_record::{BlobHash, Event, Partition, Timestamp, WorkId};

use super::Config;
use super::book::{changes_key, config_read_key, freeze_key, prepare_key, submit_key, work_key};
use super::merging::{Below, land, own_words};
use super::sim::Sim;
use crate::error::ReplayError;
use crate::layouts::{Loader, freeze_jobs, make_layout};
use crate::reading::event_at;

/// Work of a partition as it would have been done, where it was asked for then.
struct Performed<'s, 'r> {
    sim: &'s mut Sim<'r>,
    partition: Partition,
    asked: Timestamp,
}

impl PerformKinds for Performed<'_, '_> {
    type Error = ReplayError;

    fn config_read(&mut self, of: Sending<'_>, wanted: &ConfigReadWanted) -> Result<ConfigFilesFound, ReplayError> {
        self.sim.config_read(self.partition, of.work, of.attempt, wanted, self.asked)
    }

    fn layout(&mut self, _: Sending<'_>, wanted: &LayoutWanted) -> Result<LayoutOutcome, ReplayError> {
        Ok(self.sim.layout(wanted))
    }

    fn changes(&mut self, of: Sending<'_>, wanted: &ChangesWanted) -> Result<ChangesFound, ReplayError> {
        self.sim.changes(of.work, of.attempt, wanted, self.asked)
    }

    fn prepare(&mut self, of: Sending<'_>, wanted: &PrepareRequested) -> Result<PrepareOutcome, ReplayError> {
        self.sim.prepare(self.partition, of.key, wanted, self.asked)
    }

    fn freeze(&mut self, _: Sending<'_>, wanted: &FreezeWanted) -> Result<FreezeOutcome, ReplayError> {
        self.sim.freeze(wanted, self.asked)
    }

    fn submit(&mut self, _: Sending<'_>, wanted: &SubmitRequested) -> Result<SubmitOutcome, ReplayError> {
        self.sim.submit(wanted, self.asked)
    }

    fn report(&mut self, _: Sending<'_>, _: &ReportRequested) -> Result<NotReported, ReplayError> {
        Ok(None)
    }
}

impl Sim<'_> {
    /// How long a piece of work takes, in milliseconds.
    pub(super) fn takes(&self, row: &PendingRow) -> i64 {
        let took = work_key(&row.work).and_then(|key| self.book.took(&key, self.now));
        took.unwrap_or_else(|| self.book.usual(row.work.kind()))
    }

    /// How a piece of work ends.
    pub(super) fn outcome(
        &mut self,
        partition: Partition,
        work: WorkId,
        row: &PendingRow,
        asked: Timestamp,
    ) -> Result<GateInput, ReplayError> {
        row.work.perform(row.sending(work), &mut Performed { sim: self, partition, asked })
    }

    fn layout(&mut self, wanted: &LayoutWanted) -> LayoutOutcome {
        let told = self.book.verdicts.get(&wanted.tenant);
        let nearest = told.and_then(|told| told.iter().min_by_key(|(at, ..)| at.millis_since(self.now).abs()));
        let (secrets, version) = nearest.map(|(_, secrets, loader)| (secrets.clone(), *loader)).unwrap_or_default();
        let loader = Loader { version, schemas: self.config.schemas };
        let made = make_layout(self.blobs, wanted, &secrets, loader, &mut self.cache);
        made.unwrap_or_else(|message| LayoutOutcome::Failed { code: "what-if".into(), message })
    }

    fn told(&self, key: &str, asked: Timestamp) -> Result<Option<GateEvent>, ReplayError> {
        let Some(told) = self.book.nearest(key, asked) else { return Ok(None) };
        match event_at(self.log, told.at)?.event {
            Event::Gate(event) => Ok(Some(event)),
            _ => Ok(None),
        }
    }

    fn config_read(
        &mut self,
        partition: Partition,
        work: WorkId,
        attempt: u32,
        wanted: &ConfigReadWanted,
        asked: Timestamp,
    ) -> Result<ConfigFilesFound, ReplayError> {
        let mut found = match self.told(&config_read_key(wanted), asked)? {
            Some(GateEvent::ConfigRead(read)) => read.found,
            _ => {
                // Nobody read just these: what is known of them is what is there.
                self.assume(super::KNOWN_FILES);
                let rows = self.gate(partition).map(|gate| &gate.gate.config_files.rows);
                let mut sets: Vec<ConfigFileSet> = Vec::new();
                for project in &wanted.projects {
                    let of_project = rows
                        .into_iter()
                        .flatten()
                        .filter(|((tenant, name, _), _)| *tenant == wanted.tenant && *name == project.project);
                    let before = sets.len();
                    sets.extend(of_project.map(|(_, set)| set.clone()));
                    // Of a project that was never read yet: as it was found nearest in time, whoever it was read for.
                    if sets.len() == before
                        && let Some(at) = self.book.config_near(&project.project, asked)
                        && let Event::Gate(GateEvent::ConfigRead(read)) = event_at(self.log, at)?.event
                    {
                        sets.extend(read.found.sets.into_iter().filter(|set| set.at.project == project.project));
                    }
                }
                ConfigFilesFound { work, attempt, tenant: wanted.tenant.clone(), sets, failed: Vec::new() }
            }
        };
        for set in &mut found.sets {
            replace_files(self.config, set);
        }
        Ok(ConfigFilesFound { work, attempt, ..found })
    }

    fn changes(
        &mut self,
        work: WorkId,
        attempt: u32,
        wanted: &ChangesWanted,
        asked: Timestamp,
    ) -> Result<ChangesFound, ReplayError> {
        let mut found = match self.told(&changes_key(wanted), asked)? {
            Some(GateEvent::ChangesObserved(observed)) => observed.found,
            _ => {
                self.assume(super::KNOWN_FACTS);
                let mut found = ChangesFound {
                    work,
                    attempt,
                    tenant: wanted.tenant.clone(),
                    changes: Vec::new(),
                    missing: Vec::new(),
                    failed: None,
                };
                // Each change, and what it needs, as it was told of nearest in time.
                let mut asked = match &wanted.purpose {
                    FactsPurpose::ProjectMerged { project } => self.open_of(project),
                    _ => wanted.changes.clone(),
                };
                let mut index = 0;
                while let Some(key) = asked.get(index).cloned() {
                    index += 1;
                    match self.fact(&key) {
                        Some(facts) => {
                            asked.extend(
                                facts.needs.iter().filter(|need| !asked.contains(need)).cloned().collect::<Vec<_>>(),
                            );
                            found.changes.push(facts);
                        }
                        None => found.missing.push(key),
                    }
                }
                found
            }
        };
        for facts in &mut found.changes {
            self.as_it_is_here(facts);
        }
        Ok(ChangesFound { work, attempt, ..found })
    }

    /// The changes of a project that were open when they were told of nearest in time.
    fn open_of(&self, project: &str) -> Vec<gatelog_record::draft::gate::ChangeKey> {
        let own = self.book.facts.keys().filter(|key| key.project == project);
        own.filter(|key| self.fact(key).is_some_and(|facts| facts.open)).cloned().collect()
    }

    fn fact(&self, key: &gatelog_record::draft::gate::ChangeKey) -> Option<ChangeFacts> {
        let told = self.book.facts.get(key)?;
        told.iter().min_by_key(|(at, _)| at.millis_since(self.now).abs()).map(|(_, facts)| facts.clone())
    }

    /// What gatelog merged, or did not, is as it is here and not as it was recorded.
    fn as_it_is_here(&self, facts: &mut ChangeFacts) {
        let Some(key) = facts.subject.change_key() else { return };
        if self.merged.contains_key(&key) {
            (facts.open, facts.merged) = (false, true);
        } else if facts.merged && self.book.merged.contains_key(&key) {
            (facts.open, facts.merged) = (true, false);
        }
    }

    fn prepare(
        &mut self,
        partition: Partition,
        tenant: &str,
        wanted: &PrepareRequested,
        asked: Timestamp,
    ) -> Result<PrepareOutcome, ReplayError> {
        let below = Below::of(wanted, &self.landed);
        let own = own_words(&wanted.steps, wanted.item);
        if let Some(conflict) = self.book.preparations.conflict(&own, &below, &self.landed, asked)
            && let Event::Gate(GateEvent::Prepared(prepared)) = event_at(self.log, conflict.at)?.event
        {
            return Ok(prepared.done.outcome);
        }
        let told = self.book.nearest(&prepare_key(&wanted.steps), asked);
        let recorded = match self.told(&prepare_key(&wanted.steps), asked)? {
            Some(GateEvent::Prepared(prepared)) => Some(prepared.done.outcome),
            _ => None,
        };
        let same = told.is_some_and(|told| self.book.preparations.on_the_same(&own, told.at, &below, &self.landed));
        let (state, same) = match recorded {
            Some(PrepareOutcome::Merged(state)) => (state, same),
            // These did not merge on another base; on this one nothing says so.
            Some(_) | None => {
                self.assume(super::MERGES);
                (self.unseen(partition, tenant, wanted)?, false)
            }
        };
        Ok(PrepareOutcome::Merged(self.on_what_is_here(partition, tenant, wanted, state, same)))
    }

    /// A chain nobody prepared: it merges, with the files that the item's own changes have in the record.
    fn unseen(
        &mut self,
        partition: Partition,
        tenant: &str,
        wanted: &PrepareRequested,
    ) -> Result<PreparedState, ReplayError> {
        let own = match self.book.own.get(&own_words(&wanted.steps, wanted.item)) {
            Some(at) => match event_at(self.log, *at)?.event {
                Event::Gate(GateEvent::Prepared(prepared)) => match prepared.done.outcome {
                    PrepareOutcome::Merged(state) => Some(state),
                    _ => None,
                },
                _ => None,
            },
            None => None,
        };
        let mut state = PreparedState {
            branches: Vec::new(),
            files: own.as_ref().and_then(|own| own.files.clone()),
            config: Vec::new(),
            touches_config: own.as_ref().is_some_and(|own| own.touches_config),
            item_touches_config: own.as_ref().is_some_and(|own| own.item_touches_config),
            containing_branches: own.as_ref().map(|own| own.containing_branches.clone()).unwrap_or_default(),
        };
        let known = self.gate(partition).map(|gate| &gate.gate.config_files.rows);
        for step in &wanted.steps {
            let Some(branch) = step.subject.branch.clone() else { continue };
            let (connection, project) = (step.subject.connection.clone(), step.subject.project.clone());
            let at = ProjectBranch { connection, project, branch };
            if state.branches.iter().any(|known| known.at == at) {
                continue;
            }
            let of_own = own.as_ref().and_then(|own| own.config.iter().find(|set| set.at == at));
            let key = (tenant.to_owned(), at.project.clone(), at.branch.clone());
            let of_branch = known.and_then(|known| known.get(&key));
            let set = if state.item_touches_config { of_own.or(of_branch) } else { of_branch.or(of_own) };
            state.config.extend(set.cloned());
            let recorded = own.as_ref().and_then(|own| own.branches.iter().find(|branch| branch.at == at));
            state.branches.push(recorded.cloned().unwrap_or(PreparedBranch {
                at,
                base: String::new(),
                ahead: String::new(),
                commit: String::new(),
                tree: String::new(),
            }));
        }
        Ok(state)
    }

    /// A prepared state on the bases that are there: commits and trees are named after what went into them, unless
    /// they are the record's own. `same` says that the branches are where they were when it was recorded, whatever the
    /// gate knows of what others pushed.
    fn on_what_is_here(
        &self,
        partition: Partition,
        tenant: &str,
        wanted: &PrepareRequested,
        mut state: PreparedState,
        same: bool,
    ) -> PreparedState {
        let tips = self.gate(partition).map(|gate| &gate.gate.branches.rows);
        for branch in &mut state.branches {
            let pinned = wanted.bases.iter().find(|pin| pin.at == branch.at).map(|pin| pin.commit.clone());
            let key = (tenant.to_owned(), branch.at.project.clone(), branch.at.branch.clone());
            let recorded = same.then(|| branch.base.clone());
            let base = pinned.or(recorded).or_else(|| tips.and_then(|tips| tips.get(&key)).cloned());
            let base = base.unwrap_or_else(|| branch.base.clone());
            if base == branch.base && !branch.commit.is_empty() {
                continue;
            }
            // With one more step each, so that what stands ahead comes out the same for whoever is behind.
            let mut commit = base.clone();
            branch.ahead.clone_from(&commit);
            for step in &wanted.steps {
                let here = step.subject.project == branch.at.project
                    && step.subject.branch.as_ref() == Some(&branch.at.branch);
                if !here {
                    continue;
                }
                if step.item == wanted.item {
                    branch.ahead.clone_from(&commit);
                }
                commit = named(&[&commit, &crate::explain::subject(&step.subject), &step.mode]);
            }
            branch.tree = named(&["tree", &commit]);
            (branch.base, branch.commit) = (base, commit);
        }
        if !state.item_touches_config && !state.touches_config {
            for set in &mut state.config {
                replace_files(self.config, set);
            }
        }
        state
    }

    fn freeze(&mut self, wanted: &FreezeWanted, asked: Timestamp) -> Result<FreezeOutcome, ReplayError> {
        if let Some(GateEvent::Frozen(frozen)) = self.told(&freeze_key(wanted), asked)? {
            return Ok(frozen.done.outcome);
        }
        self.assume(super::FROZEN_AGAIN);
        Ok(freeze_jobs(self.blobs, wanted).unwrap_or_else(|message| FreezeOutcome::Failed {
            code: "what-if".into(),
            message,
            again: false,
        }))
    }

    fn submit(&mut self, wanted: &SubmitRequested, asked: Timestamp) -> Result<SubmitOutcome, ReplayError> {
        if let Some(GateEvent::Submitted(submitted)) = self.told(&submit_key(wanted), asked)? {
            // Only refusals stand in the book.
            return Ok(submitted.done.outcome);
        }
        for target in &wanted.targets {
            land(&mut self.landed, target);
            if let Some(key) = target.subject.change_key() {
                self.note_merged(key, target);
            }
        }
        Ok(SubmitOutcome::Merged)
    }
}

/// A commit of the model: it is of no repository.
fn named(parts: &[&str]) -> String {
    BlobHash::of(parts.join("\n").as_bytes()).to_string().chars().take(40).collect()
}

/// The files of a project, where others are to be taken for them.
pub(super) fn replace_files(config: &Config, set: &mut ConfigFileSet) {
    let Some(files) = config.of(&set.at.project) else { return };
    let files = files.iter().map(|(path, blob)| ConfigFile { path: path.clone(), blob: *blob });
    set.files = files.collect();
}

/// Configuration to be taken for the recorded one.
impl Config {
    /// Keeps files under their own names in a blob store.
    ///
    /// # Errors
    /// What the store says.
    pub(super) fn keep(
        files: &BTreeMap<String, BTreeMap<String, String>>,
        blobs: &dyn Blobs,
    ) -> Result<Config, ReplayError> {
        let mut projects = BTreeMap::new();
        for (project, files) in files {
            let mut kept = Vec::new();
            for (path, text) in files {
                kept.push((path.clone(), blobs.put(text.as_bytes())?));
            }
            projects.insert(project.clone(), kept);
        }
        Ok(Config { projects, ..Config::default() })
    }
}
