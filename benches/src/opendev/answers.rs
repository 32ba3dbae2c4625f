//! What mergers and connections answer: real layouts and real job graphs of a made-up code review.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gatelog_effects::layout::LOADER;
use gatelog_event_log::{BlobError, Blobs, MemoryBlobs};
use gatelog_gate_state::work::{NotReported, PerformKinds};
use gatelog_log_embedded::FileBlobs;
use gatelog_partition_state::work::Sending;
use gatelog_record::draft::gate::{
    ChangesFound, ChangesWanted, ConfigFile, ConfigFileSet, ConfigFilesFound, ConfigReadWanted, FreezeOutcome,
    FreezeWanted, LayoutOutcome, LayoutWanted, PrepareOutcome, PrepareRequested, PreparedBranch, PreparedState,
    ProjectBranch, ReportRequested, SubmitOutcome, SubmitRequested,
};
use gatelog_record::{BlobHash, WorkId, codec};
use gatelog_replay::layouts::{Loader, freeze_on, make_layout};
use gatelog_rules_config::{Layout, ParseCache, Problem};

use super::chance::Chance;
use super::forge::{Forge, number};
use crate::Failure;

/// How many blobs wait until they are made durable together.
const TOGETHER: usize = 1_000;

/// Blobs of the site. Those that decisions read are in memory too.
pub struct Kept {
    memory: MemoryBlobs,
    disk: FileBlobs,
    known: BTreeSet<BlobHash>,
    waiting: Vec<Vec<u8>>,
}

impl Kept {
    /// Blobs that are kept there.
    pub fn new(disk: FileBlobs) -> Kept {
        Kept { memory: MemoryBlobs::new(), disk, known: BTreeSet::new(), waiting: Vec::new() }
    }

    /// Those in memory, for whoever decides.
    pub fn memory(&self) -> &MemoryBlobs {
        &self.memory
    }

    /// Keeps a blob, in memory too.
    pub fn put(&mut self, bytes: &[u8]) -> Result<BlobHash, BlobError> {
        let hash = self.memory.put(bytes)?;
        self.keep(hash, || Ok(bytes.to_vec()))?;
        Ok(hash)
    }

    fn keep(&mut self, hash: BlobHash, bytes: impl Fn() -> Result<Vec<u8>, BlobError>) -> Result<(), BlobError> {
        if self.known.insert(hash) {
            self.waiting.push(bytes()?);
        }
        if self.waiting.len() >= TOGETHER { self.write() } else { Ok(()) }
    }

    /// Makes what waits durable: before the records that name it.
    pub fn write(&mut self) -> Result<(), BlobError> {
        let waiting = std::mem::take(&mut self.waiting);
        let slices: Vec<&[u8]> = waiting.iter().map(Vec::as_slice).collect();
        self.disk.put_many(&slices).map(drop)
    }
}

/// Who answers.
pub struct Answers {
    /// The code review.
    pub forge: Forge,
    /// Blobs.
    pub kept: Kept,
    /// The text of the configuration of each configuration project, by its canonical name.
    pub config: BTreeMap<String, String>,
    /// Branches that moved: project, from where, to where. Whoever watches the code review tells of them.
    pub moved: Vec<(String, String, String)>,
    /// Changes that were merged.
    pub merged: Vec<usize>,
    layouts: BTreeMap<BlobHash, Arc<Layout>>,
    parsed: ParseCache,
    chance: Chance,
}

impl Answers {
    /// Nothing has been asked yet.
    pub fn new(disk: FileBlobs, config: BTreeMap<String, String>) -> Answers {
        Answers {
            forge: Forge::default(),
            kept: Kept::new(disk),
            config,
            moved: Vec::new(),
            merged: Vec::new(),
            layouts: BTreeMap::new(),
            parsed: ParseCache::default(),
            chance: Chance::new(7),
        }
    }

    fn read(&mut self, work: WorkId, attempt: u32, wanted: &ConfigReadWanted) -> Result<ConfigFilesFound, Failure> {
        let mut sets = Vec::with_capacity(wanted.projects.len());
        for project in &wanted.projects {
            let files = match self.config.get(&project.project) {
                Some(text) => vec![ConfigFile { path: "zuul.yaml".into(), blob: self.kept.put(text.as_bytes())? }],
                None => Vec::new(),
            };
            sets.push(ConfigFileSet {
                at: ProjectBranch {
                    connection: project.connection.clone(),
                    project: project.project.clone(),
                    branch: "master".into(),
                },
                default: true,
                commit: self.forge.tip(&project.project),
                files,
            });
        }
        Ok(ConfigFilesFound { work, attempt, tenant: wanted.tenant.clone(), sets, failed: Vec::new() })
    }

    fn make_layout(&mut self, wanted: &LayoutWanted) -> Result<LayoutOutcome, Failure> {
        let loader = Loader { version: LOADER, ..Loader::default() };
        let outcome = make_layout(&self.kept.memory, wanted, &[], loader, &mut self.parsed)?;
        if let LayoutOutcome::Made { layout, problems, errors, .. } = &outcome {
            if *errors > 0 {
                let problems: Vec<Problem> = codec::decode(&self.kept.memory.get(problems)?)?;
                let first = problems.iter().find(|problem| problem.is_error()).map(ToString::to_string);
                return Err(format!("the site's own configuration: {}", first.unwrap_or_default()).into());
            }
            for hash in [layout, problems] {
                let bytes = self.kept.memory.get(hash)?;
                self.kept.put(&bytes)?;
            }
            self.layouts.insert(*layout, Arc::new(codec::decode(&self.kept.memory.get(layout)?)?));
        }
        Ok(outcome)
    }

    fn find(&self, work: WorkId, attempt: u32, wanted: &ChangesWanted) -> ChangesFound {
        let tenant = wanted.tenant.clone();
        let mut found = ChangesFound { work, attempt, tenant, changes: Vec::new(), missing: Vec::new(), failed: None };
        for key in &wanted.changes {
            match number(&key.change) {
                Some(number) => found.changes.extend(self.forge.closure(number, wanted.with_needed_by)),
                None => found.missing.push(key.clone()),
            }
        }
        found
    }

    fn merge_chain(&mut self, wanted: &PrepareRequested) -> Result<PrepareOutcome, Failure> {
        let mut branches: BTreeMap<ProjectBranch, PreparedBranch> = BTreeMap::new();
        let mut files = BTreeSet::new();
        for step in &wanted.steps {
            let subject = &step.subject;
            let own = step.item == wanted.item;
            let at = ProjectBranch {
                connection: subject.connection.clone(),
                project: subject.project.clone(),
                branch: subject.branch.clone().ok_or("a step without a branch")?,
            };
            let pinned = wanted.bases.iter().find(|pin| pin.at == at).map(|pin| pin.commit.clone());
            let base = pinned.unwrap_or_else(|| self.forge.tip(&at.project));
            let branch = branches.entry(at.clone()).or_insert_with(|| PreparedBranch {
                at,
                base: base.clone(),
                ahead: base.clone(),
                commit: base,
                tree: String::new(),
            });
            let Some(change) = subject.change.as_deref().and_then(number) else { continue };
            if own {
                // One of 120 does not merge with what was merged since.
                if self.chance.happens(8) {
                    let paths = self.forge.files(change).into_iter().take(1).collect();
                    let message = "a file was changed on both sides".to_owned();
                    return Ok(PrepareOutcome::Conflict { subject: subject.clone(), paths, message });
                }
                files.extend(self.forge.files(change));
            }
            let merged = Forge::merge(&branch.commit, subject.commit.as_deref().unwrap_or_default());
            branch.ahead = std::mem::replace(&mut branch.commit, merged);
        }
        for branch in branches.values_mut() {
            branch.tree = branch.commit.chars().rev().collect();
        }
        Ok(PrepareOutcome::Merged(PreparedState {
            branches: branches.into_values().collect(),
            files: Some(files.into_iter().collect()),
            config: Vec::new(),
            touches_config: false,
            item_touches_config: false,
            containing_branches: Vec::new(),
        }))
    }

    /// What is made is kept on the disk alone: nobody here reads it.
    fn freeze_jobs(&mut self, wanted: &FreezeWanted) -> Result<FreezeOutcome, Failure> {
        let layout = Arc::clone(self.layouts.get(&wanted.layout).ok_or("a layout that nobody made")?);
        let made = MemoryBlobs::new();
        let outcome = freeze_on(&made, &layout, None, wanted)?;
        if let FreezeOutcome::Refused { message, .. } | FreezeOutcome::Failed { message, .. } = &outcome {
            return Err(format!("jobs cannot be frozen: {message}").into());
        }
        for hash in made.list()? {
            self.kept.keep(hash, || made.get(&hash))?;
        }
        Ok(outcome)
    }

    fn move_branches(&mut self, wanted: &SubmitRequested) -> SubmitOutcome {
        for target in &wanted.targets {
            let before = self.forge.move_to(&target.at.project, &target.tested_commit);
            self.moved.push((target.at.project.clone(), before, target.tested_commit.clone()));
            if let Some(number) = target.subject.change.as_deref().and_then(number)
                && let Some(change) = self.forge.changes.get_mut(number)
            {
                change.merged = true;
                self.merged.push(number);
            }
        }
        SubmitOutcome::Merged
    }
}

impl PerformKinds for Answers {
    type Error = Failure;

    fn config_read(&mut self, of: Sending<'_>, wanted: &ConfigReadWanted) -> Result<ConfigFilesFound, Failure> {
        self.read(of.work, of.attempt, wanted)
    }

    fn layout(&mut self, _: Sending<'_>, wanted: &LayoutWanted) -> Result<LayoutOutcome, Failure> {
        self.make_layout(wanted)
    }

    fn changes(&mut self, of: Sending<'_>, wanted: &ChangesWanted) -> Result<ChangesFound, Failure> {
        Ok(self.find(of.work, of.attempt, wanted))
    }

    fn prepare(&mut self, _: Sending<'_>, wanted: &PrepareRequested) -> Result<PrepareOutcome, Failure> {
        self.merge_chain(wanted)
    }

    fn freeze(&mut self, _: Sending<'_>, wanted: &FreezeWanted) -> Result<FreezeOutcome, Failure> {
        self.freeze_jobs(wanted)
    }

    fn submit(&mut self, _: Sending<'_>, wanted: &SubmitRequested) -> Result<SubmitOutcome, Failure> {
        Ok(self.move_branches(wanted))
    }

    fn report(&mut self, _: Sending<'_>, _: &ReportRequested) -> Result<NotReported, Failure> {
        Ok(None)
    }
}
