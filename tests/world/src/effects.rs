//! What effects answer, without git: the same shapes from the tiny content model. Layouts and job
//! graphs come from the real configuration crate.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_gate_state::live::PendingRow;
use gatelog_gate_state::work::{NotReported, PerformKinds};
use gatelog_partition_state::work::Sending;
use gatelog_record::draft::gate::{
    ChangesFound, ChangesWanted, ConfigFile, ConfigFileSet, ConfigFilesFound, ConfigReadWanted, FactsPurpose,
    FreezeOutcome, FreezeWanted, FrozenJob, JobTraits, LayoutOutcome, LayoutWanted, NodesetAlternative, PrepareOutcome,
    PrepareRequested, PreparedBranch, PreparedState, ProjectBranch, ReportRequested, SubmitOutcome, SubmitRequested,
};
use gatelog_record::input::GateInput;
use gatelog_record::{BlobHash, ItemId, Timestamp, WorkId, codec};
use gatelog_rules_config as config;
use gatelog_rules_gate::{ConfigRemarks, config_remarks, freeze_subjects, frozen_job, own_changes, wanted_nodes};
use serde::{Deserialize, Serialize};

use crate::content::Tree;
use crate::forge::{BRANCH, Forge, Moved, local, short};

/// What a worker is told of a job: a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The job.
    pub job: String,
    /// The project of the change under test.
    pub project: String,
    /// Repositories and the commits they stand at.
    pub workspace: Vec<(String, String)>,
}

/// Jobs frozen for an item on a state.
#[derive(Clone, Debug)]
pub struct FrozenSet {
    /// The item.
    pub item: ItemId,
    /// What they test.
    pub branches: Vec<PreparedBranch>,
    /// The jobs.
    pub jobs: Vec<FrozenJob>,
}

/// A branch that was moved.
#[derive(Clone, Debug)]
pub struct Merge {
    /// The item.
    pub item: ItemId,
    /// The project.
    pub project: String,
    /// The change.
    pub change: String,
    /// Where the branch was.
    pub base: String,
    /// Where it is.
    pub commit: String,
}

/// Who sees what really happened, whatever is on the log.
#[derive(Default)]
pub struct Witness {
    /// Everything that was frozen.
    pub frozen: Vec<FrozenSet>,
    /// Specs of builds that a worker ran to success, with the tree of each repository it saw.
    pub succeeded: BTreeMap<BlobHash, BTreeMap<String, String>>,
    /// Specs of builds that a worker ended otherwise.
    pub failed: BTreeSet<BlobHash>,
    /// Merges, in their order.
    pub merges: Vec<Merge>,
}

/// Why work is not done as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is done.
    None,
    /// It is not done, and that is said.
    Before,
    /// It is done, and it is said that it is not.
    After,
}

/// Work taken up.
#[derive(Clone, Debug)]
pub struct Doing {
    /// The work.
    pub work: WorkId,
    /// What is to be done.
    pub row: PendingRow,
}

/// The process that does short work.
#[derive(Default)]
pub struct Effects {
    /// Taken up once in the life of this process.
    pub taken: BTreeSet<(WorkId, u32)>,
    /// Not done yet.
    pub doing: Vec<Doing>,
    /// From when on each piece of pending work may be taken up, by the monotonic clock.
    pub due: BTreeMap<(WorkId, u32), i64>,
}

impl Effects {
    /// Sees what is pending: what is left of a delay, in the log's time at the newest event, is waited for by the
    /// monotonic clock from when a row is first seen.
    pub fn see(&mut self, rows: &BTreeMap<WorkId, PendingRow>, newest: Timestamp, monotonic: i64) {
        self.due.retain(|(work, attempt), _| rows.get(work).is_some_and(|row| row.attempt == *attempt));
        for (work, row) in rows {
            let left = row.not_before.0.saturating_sub(newest.0).max(0);
            self.due.entry((*work, row.attempt)).or_insert(monotonic.saturating_add(left));
        }
    }
}

/// Everything effects touch.
pub struct Tools<'t> {
    /// The code-review system.
    pub forge: &'t mut Forge,
    /// The blob store.
    pub blobs: &'t MemoryBlobs,
    /// Who sees it.
    pub witness: &'t mut Witness,
}

impl PerformKinds for Tools<'_> {
    type Error = String;

    fn config_read(&mut self, of: Sending<'_>, wanted: &ConfigReadWanted) -> Result<ConfigFilesFound, String> {
        Ok(self.read_config(of.work, of.attempt, wanted))
    }

    fn layout(&mut self, _: Sending<'_>, wanted: &LayoutWanted) -> Result<LayoutOutcome, String> {
        self.make_layout(wanted)
    }

    fn changes(&mut self, of: Sending<'_>, wanted: &ChangesWanted) -> Result<ChangesFound, String> {
        Ok(self.find_changes(of.work, of.attempt, wanted))
    }

    fn prepare(&mut self, _: Sending<'_>, wanted: &PrepareRequested) -> Result<PrepareOutcome, String> {
        self.merge_chain(wanted)
    }

    fn freeze(&mut self, _: Sending<'_>, wanted: &FreezeWanted) -> Result<FreezeOutcome, String> {
        self.freeze_jobs(wanted)
    }

    fn submit(&mut self, _: Sending<'_>, wanted: &SubmitRequested) -> Result<SubmitOutcome, String> {
        self.move_branches(wanted)
    }

    fn report(&mut self, _: Sending<'_>, wanted: &ReportRequested) -> Result<NotReported, String> {
        self.forge.report(wanted);
        Ok(None)
    }
}

impl Tools<'_> {
    /// Does a piece of work and says how it ended.
    ///
    /// # Errors
    /// When something is asked for that cannot be: a broken promise, not a fault of the world.
    pub fn perform(&mut self, doing: &Doing, trouble: Trouble) -> Result<GateInput, String> {
        let (work, of) = (&doing.row.work, doing.row.sending(doing.work));
        let fails = || work.failed(of, "unreachable", "it does not answer", true);
        match trouble {
            // Repositories are read and layouts made without asking anybody.
            _ if work.is_of_configuration() => work.perform(of, self),
            Trouble::None => work.perform(of, self),
            Trouble::After if work.is_seen_outside() => work.perform(of, self).map(|_| fails()),
            Trouble::Before | Trouble::After => Ok(fails()),
        }
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobHash, String> {
        self.blobs.put(bytes).map_err(|error| error.to_string())
    }

    fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, String> {
        self.blobs.get(hash).map_err(|error| error.to_string())
    }

    fn tree(&self, commit: &str) -> Result<Tree, String> {
        self.forge.commits.tree(commit).cloned().ok_or_else(|| format!("there is no commit {commit}"))
    }

    fn config_of(&self, commit: &str) -> Result<Vec<ConfigFile>, String> {
        let tree = self.tree(commit)?;
        let mut files = Vec::new();
        for path in tree.files.keys().filter(|path| config::is_config_path(path, &[])) {
            let text = tree.text(path).unwrap_or_default();
            files.push(ConfigFile { path: path.clone(), blob: self.put(text.as_bytes())? });
        }
        Ok(files)
    }

    fn read_config(&self, work: WorkId, attempt: u32, wanted: &ConfigReadWanted) -> ConfigFilesFound {
        let mut found =
            ConfigFilesFound { work, attempt, tenant: wanted.tenant.clone(), sets: Vec::new(), failed: Vec::new() };
        for project in &wanted.projects {
            let Some(commit) = self.forge.tips.get(local(&project.project)) else { continue };
            found.sets.push(ConfigFileSet {
                at: ProjectBranch {
                    connection: project.connection.clone(),
                    project: project.project.clone(),
                    branch: BRANCH.into(),
                },
                default: true,
                commit: commit.clone(),
                files: self.config_of(commit).unwrap_or_default(),
            });
        }
        found
    }

    fn make_layout(&self, wanted: &LayoutWanted) -> Result<LayoutOutcome, String> {
        let settings = self.get(&wanted.settings)?;
        let mut tenant: config::TenantSettings = codec::decode(&settings).map_err(|error| error.to_string())?;
        for project in &mut tenant.projects {
            project.branches.clear();
        }
        let mut files = Vec::new();
        for set in &wanted.files {
            if let Some(project) = tenant.projects.iter_mut().find(|one| one.canonical_name == set.at.project) {
                project.branches.push(set.at.branch.clone());
            }
            for file in &set.files {
                files.push(config::ConfigFile {
                    project: set.at.project.clone(),
                    branch: set.at.branch.clone(),
                    path: file.path.clone(),
                    text: String::from_utf8_lossy(&self.get(&file.blob)?).into_owned(),
                });
            }
        }
        let (mut layout, problems) = config::load(&config::LoadInput { tenant, files });
        let errors = problems.iter().filter(|problem| problem.is_error()).count();
        let ahead: Vec<config::Problem> = match &wanted.ahead {
            Some(hash) => codec::decode(&self.get(hash)?).map_err(|error| error.to_string())?,
            None => Vec::new(),
        };
        let said = match wanted.item {
            Some(_) => config_remarks(&problems, &ahead, &wanted.changed),
            None => ConfigRemarks::default(),
        };
        if let Some(base) = &wanted.base {
            layout.keep_static(&codec::decode(&self.get(base)?).map_err(|error| error.to_string())?);
        }
        Ok(LayoutOutcome::Made {
            layout: self.put(&codec::encode(&layout).map_err(|error| error.to_string())?)?,
            problems: self.put(&codec::encode(&problems).map_err(|error| error.to_string())?)?,
            errors: u32::try_from(errors).unwrap_or(u32::MAX),
            introduced: said.errors,
            loader: 1,
            secrets: Vec::new(),
            warnings: said.warnings,
        })
    }

    fn find_changes(&self, work: WorkId, attempt: u32, wanted: &ChangesWanted) -> ChangesFound {
        let mut found = ChangesFound {
            work,
            attempt,
            tenant: wanted.tenant.clone(),
            changes: Vec::new(),
            missing: Vec::new(),
            failed: None,
        };
        let asked = match &wanted.purpose {
            FactsPurpose::ProjectMerged { project } => self.forge.open_of(project),
            _ => wanted.changes.clone(),
        };
        for key in &asked {
            let name = short(&key.change);
            if self.forge.changes.contains_key(name) {
                found.changes.extend(self.forge.closure(name, wanted.with_needed_by, &wanted.among));
            } else {
                found.missing.push(key.clone());
            }
        }
        found
    }

    /// Merges a chain. The commits come out the same for the same bases and date.
    fn merge_chain(&mut self, wanted: &PrepareRequested) -> Result<PrepareOutcome, String> {
        let mut branches: BTreeMap<ProjectBranch, PreparedBranch> = BTreeMap::new();
        let (mut own_files, mut touches, mut item_touches) = (BTreeSet::new(), false, false);
        for step in &wanted.steps {
            let subject = &step.subject;
            let at = ProjectBranch {
                connection: subject.connection.clone(),
                project: subject.project.clone(),
                branch: subject.branch.clone().ok_or("a step has no branch")?,
            };
            let pinned = wanted.bases.iter().find(|pin| pin.at == at).map(|pin| pin.commit.clone());
            let base = match pinned.or_else(|| self.forge.tips.get(local(&at.project)).cloned()) {
                Some(base) => base,
                None => {
                    let message = format!("there is no branch {}", at.branch);
                    return Ok(PrepareOutcome::Failed { code: "branch-missing".into(), message, again: false });
                }
            };
            let state = branches.entry(at.clone()).or_insert_with(|| PreparedBranch {
                at,
                base: base.clone(),
                ahead: String::new(),
                commit: base,
                tree: String::new(),
            });
            let own = step.item == wanted.item;
            if own && state.ahead.is_empty() {
                state.ahead.clone_from(&state.commit);
            }
            let Some(change) = &subject.change else { continue };
            let name = short(change);
            let patchset = self
                .forge
                .changes
                .get(name)
                .and_then(|change| change.patchsets.iter().find(|one| Some(&one.commit) == subject.commit.as_ref()))
                .cloned()
                .ok_or_else(|| format!("there is no patchset {:?} of {name}", subject.patchset))?;
            let why = format!("{} {}", step.mode, wanted.dated.0);
            match self.forge.commits.merge(&state.commit, &patchset.commit, &patchset.patch, &why) {
                Ok(commit) => state.commit = commit,
                Err(paths) => {
                    let message = format!("{name} does not merge");
                    return Ok(PrepareOutcome::Conflict { subject: subject.clone(), paths, message });
                }
            }
            touches |= patchset.touches_config();
            if own {
                item_touches |= patchset.touches_config();
                own_files.extend(patchset.patch.iter().map(|edit| edit.path.clone()));
            }
        }
        let mut config = Vec::new();
        let mut prepared: Vec<PreparedBranch> = branches.into_values().collect();
        for branch in &mut prepared {
            if branch.ahead.is_empty() {
                branch.ahead.clone_from(&branch.commit);
            }
            branch.tree = self.tree(&branch.commit)?.id();
            config.push(ConfigFileSet {
                at: branch.at.clone(),
                default: true,
                commit: branch.commit.clone(),
                files: self.config_of(&branch.commit)?,
            });
        }
        Ok(PrepareOutcome::Merged(PreparedState {
            branches: prepared,
            files: Some(own_files.into_iter().collect()),
            config,
            touches_config: touches,
            item_touches_config: item_touches,
            containing_branches: Vec::new(),
        }))
    }

    fn freeze_jobs(&mut self, wanted: &FreezeWanted) -> Result<FreezeOutcome, String> {
        let read = |hash: &BlobHash| -> Result<config::Layout, String> {
            codec::decode(&self.get(hash)?).map_err(|error| error.to_string())
        };
        let layout = read(&wanted.layout)?;
        let ahead = wanted.layout_ahead.as_ref().map(read).transpose()?;
        let subjects = freeze_subjects(wanted);
        let (Some(own), Some(subject)) = (own_changes(wanted).into_iter().next_back(), subjects.last()) else {
            return Err("it is not in its own chain".into());
        };
        let options = config::FreezeOptions { ahead: ahead.as_ref(), ..config::FreezeOptions::default() };
        Ok(match config::freeze(&layout, subject, &wanted.pipeline, options) {
            config::FreezeOutcome::Frozen { graph, trace } => {
                let mut jobs = Vec::new();
                for job in &graph.jobs {
                    jobs.push(self.frozen(wanted, &own.project, &layout, &graph, job)?);
                }
                let branches = wanted.state.branches.clone();
                self.witness.frozen.push(FrozenSet { item: wanted.item, branches, jobs: jobs.clone() });
                FreezeOutcome::Frozen {
                    graph: self.put(&codec::encode(&graph).map_err(|error| error.to_string())?)?,
                    trace: self.put(&codec::encode(&trace).map_err(|error| error.to_string())?)?,
                    jobs,
                    repo_state: Vec::new(),
                }
            }
            config::FreezeOutcome::NoJobs { .. } => {
                FreezeOutcome::NoJobs { trace: BlobHash::default(), in_pipeline: true }
            }
            config::FreezeOutcome::NotInPipeline { .. } => {
                FreezeOutcome::NoJobs { trace: BlobHash::default(), in_pipeline: false }
            }
            config::FreezeOutcome::Refused { problem, .. } => {
                FreezeOutcome::Refused { trace: BlobHash::default(), message: problem.to_string() }
            }
        })
    }

    fn frozen(
        &self,
        wanted: &FreezeWanted,
        project: &str,
        layout: &config::Layout,
        graph: &config::JobGraph,
        job: &config::FrozenJob,
    ) -> Result<FrozenJob, String> {
        let spec = Spec {
            tenant: wanted.tenant.clone(),
            pipeline: wanted.pipeline.clone(),
            job: job.name.clone(),
            project: local(project).to_owned(),
            workspace: wanted
                .state
                .branches
                .iter()
                .map(|branch| (local(&branch.at.project).to_owned(), branch.commit.clone()))
                .collect(),
        };
        let spec = self.put(&serde_json::to_vec(&spec).map_err(|error| error.to_string())?)?;
        // What a job makes of a tree is the same on whatever nodes.
        let others = job.nodesets.iter().skip(1);
        let alternatives = others.map(|nodeset| NodesetAlternative { spec, nodes: wanted_nodes(nodeset) }).collect();
        let first = frozen_job(layout, graph, job, Vec::new(), spec);
        Ok(FrozenJob { traits: JobTraits { alternatives, ..first.traits }, ..first })
    }

    fn move_branches(&mut self, wanted: &SubmitRequested) -> Result<SubmitOutcome, String> {
        for target in &wanted.targets {
            let moved = self.forge.submit(&target.subject, &target.tested_base, &target.tested_commit);
            match moved {
                Moved::Already => {}
                Moved::Elsewhere(found) => {
                    return Ok(SubmitOutcome::BaseMoved {
                        at: target.at.clone(),
                        expected: target.tested_base.clone(),
                        found,
                    });
                }
                Moved::Done => {
                    let merge = Merge {
                        item: wanted.item,
                        project: local(&target.at.project).to_owned(),
                        change: short(target.subject.change.as_deref().unwrap_or_default()).to_owned(),
                        base: target.tested_base.clone(),
                        commit: target.tested_commit.clone(),
                    };
                    self.was_tested(&merge)?;
                    self.witness.merges.push(merge);
                }
            }
        }
        Ok(SubmitOutcome::Merged)
    }

    /// Whether what the branch holds now is what every voting job of its item succeeded on.
    fn was_tested(&self, merge: &Merge) -> Result<(), String> {
        let Merge { item, project, change, commit, .. } = merge;
        let merged = self.forge.tip_tree(project).id();
        let set = self
            .witness
            .frozen
            .iter()
            .rev()
            .find(|set| {
                set.item == *item
                    && set.branches.iter().any(|one| local(&one.at.project) == project && one.commit == *commit)
            })
            .ok_or_else(|| format!("{change} was merged as {commit}, for which no job was ever frozen"))?;
        for job in set.jobs.iter().filter(|job| job.voting && !job.noop) {
            let Some(saw) = self.witness.succeeded.get(&job.spec) else {
                return Err(format!("{change} was merged although no worker ran {} on it to success", job.name));
            };
            if saw.get(project) != Some(&merged) {
                return Err(format!(
                    "{change} was merged as tree {merged}; {} ran on {:?}",
                    job.name,
                    saw.get(project)
                ));
            }
        }
        Ok(())
    }
}
