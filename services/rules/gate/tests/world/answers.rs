//! What effects would answer. Layouts and job graphs come from the real configuration crate.

use std::collections::BTreeMap;

use gatelog_gate_state::live::{BuildState, PendingRow, Work};
use gatelog_gate_state::work::{NotReported, PerformKinds};
use gatelog_partition_state::work::Sending;
use gatelog_record::draft::gate::{
    AttemptFinished, AttemptStarted, BuildResult, ChangesFound, ChangesWanted, ConfigFile, ConfigFileSet,
    ConfigFilesFound, ConfigReadWanted, FactsPurpose, FreezeOutcome, FreezeWanted, FrozenJob, JobTraits, LayoutOutcome,
    LayoutWanted, NodesetAlternative, PrepareOutcome, PrepareRequested, PreparedBranch, PreparedState, ProjectBranch,
    ReportRequested, ReturnedKept, SubmitDone, SubmitOutcome, SubmitRequested,
};
use gatelog_record::input::GateInput;
use gatelog_record::{BlobHash, BuildId, InputId, InputRecord, LeaseId, Timestamp, Value, WorkId, codec};
use gatelog_rules_config as config;
use gatelog_rules_gate::{
    ConfigRemarks, NO_ROOM, config_remarks, freeze_subjects, frozen_job, own_changes, wanted_nodes,
};

use super::forge::{Forge, Tree};
use super::shell::World;

fn local(canonical: &str) -> &str {
    canonical.rsplit('/').next().unwrap_or(canonical)
}

impl PerformKinds for World {
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
        Ok(self.merge_chain(wanted))
    }

    fn freeze(&mut self, _: Sending<'_>, wanted: &FreezeWanted) -> Result<FreezeOutcome, String> {
        self.freeze_jobs(wanted)
    }

    fn submit(&mut self, _: Sending<'_>, wanted: &SubmitRequested) -> Result<SubmitOutcome, String> {
        Ok(self.move_branches(wanted))
    }

    fn report(&mut self, _: Sending<'_>, wanted: &ReportRequested) -> Result<NotReported, String> {
        self.reports.push(wanted.clone());
        Ok(None)
    }
}

impl World {
    /// The first moment at which work may be done that may not be done yet.
    pub fn next_not_before(&self) -> Option<Timestamp> {
        self.live.gate.pending_work.rows.values().map(|row| row.not_before).filter(|moment| *moment > self.now).min()
    }

    /// Answers the oldest work that is not held.
    pub fn answer_one(&mut self) -> Result<bool, String> {
        let mut due: Vec<(u64, WorkId)> = self
            .live
            .gate
            .pending_work
            .rows
            .iter()
            .filter(|(id, row)| {
                row.not_before <= self.now
                    && !self.held.contains(row.work.kind())
                    && !self.answered.contains(&(**id, row.attempt))
            })
            .map(|(id, row)| (row.requested, *id))
            .collect();
        due.sort_unstable();
        let Some((_, id)) = due.first().copied() else { return Ok(false) };
        let Some(row) = self.live.gate.pending_work.rows.get(&id).cloned() else { return Ok(false) };
        self.answered.insert((id, row.attempt));
        let input = self.answer(id, &row)?;
        let name = InputId::new(format!("work/{id}/{}", row.attempt));
        self.take(&InputRecord::new(name, row.key.clone(), self.now, input))?;
        Ok(true)
    }

    /// An answer comes to the first sending of work that was sent again.
    pub fn answer_late(&mut self, kind: &str) -> Result<(), String> {
        let rows = self.live.gate.pending_work.rows.iter();
        let mut found =
            rows.filter(|(_, row)| row.work.kind() == kind && row.attempt > 1).map(|(id, row)| (*id, row.clone()));
        let (id, row) = found.next_back().ok_or_else(|| format!("no {kind} was sent again"))?;
        let input = self.answer(id, &PendingRow { attempt: 1, ..row.clone() })?;
        self.say(&row.key, input)
    }

    /// The answer to the oldest work of a kind is made now, and comes later.
    pub fn answer_ahead(&mut self, kind: &str) -> Result<(), String> {
        let rows = self.live.gate.pending_work.rows.iter();
        let mut due: Vec<_> = rows
            .filter(|(id, row)| row.work.kind() == kind && !self.answered.contains(&(**id, row.attempt)))
            .map(|(id, row)| (row.requested, *id, row.clone()))
            .collect();
        due.sort_unstable_by_key(|(requested, id, _)| (*requested, *id));
        let (_, id, row) = due.into_iter().next().ok_or_else(|| format!("no {kind} is asked for"))?;
        self.answered.insert((id, row.attempt));
        let input = self.answer(id, &row)?;
        self.on_the_way.push((row.key, input));
        Ok(())
    }

    /// Who does the work of a kind has no room for it, says so, and goes on trying.
    pub fn no_room_for(&mut self, kind: &str) -> Result<(), String> {
        self.failing.insert(kind.to_owned(), format!("{NO_ROOM}disk-full there is no room"));
        let rows = self.live.gate.pending_work.rows.iter();
        let waiting: Vec<_> =
            rows.filter(|(_, row)| row.work.kind() == kind).map(|(id, row)| (*id, row.clone())).collect();
        for (id, row) in waiting {
            let input = self.answer(id, &row)?;
            self.say(&row.key, input)?;
        }
        self.failing.remove(kind);
        Ok(())
    }

    fn answer(&mut self, work: WorkId, row: &PendingRow) -> Result<GateInput, String> {
        let fails = self.failing.get(row.work.kind()).cloned();
        // What begins with a code of the server is of that.
        let own = fails.as_ref().and_then(|message| message.split(' ').next()).filter(|word| word.starts_with(NO_ROOM));
        let code = own.unwrap_or("unreachable").to_owned();
        let of = row.sending(work);
        match (&row.work, fails) {
            // What cannot be read is said of each project; see `reading`.
            (Work::ConfigRead(_), _) | (_, None) => row.work.perform(of, self),
            (Work::Submit(_), Some(message)) if message == "refused" || message == "already-merged" => {
                let outcome = SubmitOutcome::Refused { code: message, message: "the forge says no".into() };
                Ok(SubmitDone { work, attempt: row.attempt, tenant: row.key.clone(), outcome }.into())
            }
            (_, Some(message)) => Ok(row.work.failed(of, &code, &message, true)),
        }
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
            let name = Forge::short(&key.change);
            if self.forge.changes.contains_key(name) {
                found.changes.extend(self.forge.closure(name, wanted.with_needed_by));
            } else {
                found.missing.push(key.clone());
            }
        }
        let one = found.changes.first().cloned();
        for number in found.changes.len()..self.padded {
            let Some(mut facts) = one.clone() else { break };
            facts.subject.change = Some(format!("master/padding-{number}"));
            found.changes.push(facts);
        }
        found
    }

    fn files(&mut self, tree: &Tree) -> Vec<ConfigFile> {
        tree.config
            .iter()
            .map(|(path, text)| ConfigFile { path: path.clone(), blob: self.put(text.as_bytes()) })
            .collect()
    }

    fn read_config(&mut self, work: WorkId, attempt: u32, wanted: &ConfigReadWanted) -> ConfigFilesFound {
        let mut found =
            ConfigFilesFound { work, attempt, tenant: wanted.tenant.clone(), sets: Vec::new(), failed: Vec::new() };
        for project in &wanted.projects {
            let name = local(&project.project).to_owned();
            if let Some(message) = self.failing.get(&format!("reading {name}")) {
                found.failed.push(gatelog_record::draft::gate::ProjectProblem {
                    project: project.project.clone(),
                    code: "unreachable".into(),
                    message: message.clone(),
                });
                continue;
            }
            let branches = self.forge.projects.get(&name).map(|one| one.branches.clone()).unwrap_or_default();
            for (branch, commit) in branches {
                self.read.insert((project.project.clone(), branch.clone()));
                let files = self.files(&self.forge.tree(&commit));
                found.sets.push(ConfigFileSet {
                    at: ProjectBranch {
                        connection: project.connection.clone(),
                        project: project.project.clone(),
                        branch: branch.clone(),
                    },
                    default: branch == "master",
                    commit,
                    files,
                });
            }
        }
        found
    }

    fn make_layout(&mut self, wanted: &LayoutWanted) -> Result<LayoutOutcome, String> {
        let settings = self.blobs.get(&wanted.settings).ok_or("the settings are nowhere")?;
        let mut tenant: config::TenantSettings = codec::decode(settings).map_err(|error| error.to_string())?;
        let mut files = Vec::new();
        for project in &mut tenant.projects {
            project.branches.clear();
        }
        for set in &wanted.files {
            let was_read = self.read.contains(&(set.at.project.clone(), set.at.branch.clone()));
            if was_read && set.default != (set.at.branch == "master") {
                return Err(format!("whether {:?} is the default branch was read otherwise", set.at));
            }
            if let Some(project) = tenant.projects.iter_mut().find(|one| one.canonical_name == set.at.project) {
                project.branches.push(set.at.branch.clone());
            }
            for file in &set.files {
                let text = self.blobs.get(&file.blob).ok_or("a file is nowhere")?;
                files.push(config::ConfigFile {
                    project: set.at.project.clone(),
                    branch: set.at.branch.clone(),
                    path: file.path.clone(),
                    text: String::from_utf8_lossy(text).into_owned(),
                });
            }
        }
        let (mut layout, problems) = config::load(&config::LoadInput { tenant, files });
        let ahead: Vec<config::Problem> = match &wanted.ahead {
            Some(hash) => codec::decode(self.blobs.get(hash).ok_or("the problems ahead are nowhere")?)
                .map_err(|error| error.to_string())?,
            None => Vec::new(),
        };
        let said = match wanted.item {
            Some(_) => config_remarks(&problems, &ahead, &wanted.changed),
            None => ConfigRemarks::default(),
        };
        if let Some(base) = &wanted.base {
            let base = self.blobs.get(base).ok_or("the tenant's layout is nowhere")?;
            layout.keep_static(&codec::decode(base).map_err(|error| error.to_string())?);
        }
        let errors = problems.iter().filter(|problem| problem.is_error()).count();
        let layout = codec::encode(&layout).map_err(|error| error.to_string())?;
        let problems = codec::encode(&problems).map_err(|error| error.to_string())?;
        Ok(LayoutOutcome::Made {
            layout: self.put(&layout),
            problems: self.put(&problems),
            errors: errors as u32,
            introduced: said.errors,
            loader: 1,
            secrets: Vec::new(),
            warnings: said.warnings,
        })
    }

    /// Merges a chain; the commits come out the same for the same bases and date.
    fn merge_chain(&mut self, wanted: &PrepareRequested) -> PrepareOutcome {
        let mut branches: BTreeMap<ProjectBranch, PreparedBranch> = BTreeMap::new();
        let (mut own_files, mut touches, mut item_touches) = (Vec::new(), false, false);
        for step in &wanted.steps {
            let subject = &step.subject;
            // A tag is where it is: nothing is merged.
            if subject.change.is_none() && subject.branch.is_none() {
                continue;
            }
            let Some(branch) = subject.branch.clone() else {
                return PrepareOutcome::Failed {
                    code: "no-branch".into(),
                    message: format!("{} has no branch", subject.git_ref),
                    again: false,
                };
            };
            let at = ProjectBranch {
                connection: subject.connection.clone(),
                project: subject.project.clone(),
                branch: branch.clone(),
            };
            let pinned = wanted.bases.iter().find(|pin| pin.at == at).map(|pin| pin.commit.clone());
            let Some(base) = pinned.or_else(|| self.forge.tip(local(&subject.project), &branch)) else {
                return PrepareOutcome::Failed {
                    code: "branch-missing".into(),
                    message: format!("there is no branch {branch}"),
                    again: false,
                };
            };
            let state = branches.entry(at.clone()).or_insert_with(|| PreparedBranch {
                at,
                base: base.clone(),
                ahead: base.clone(),
                commit: base.clone(),
                tree: String::new(),
            });
            let own = step.item == wanted.item;
            let Some(change) = &subject.change else { continue };
            let name = Forge::short(change);
            let number: u32 = subject.patchset.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
            let mut tree = self.forge.tree(&state.commit);
            let clash = |(other, _): &&(String, u32)| {
                self.forge.conflicts.contains(&(name.to_owned(), other.clone()))
                    || self.forge.conflicts.contains(&(other.clone(), name.to_owned()))
            };
            if let Some((other, _)) = tree.changes.iter().find(clash) {
                return PrepareOutcome::Conflict {
                    subject: subject.clone(),
                    paths: vec!["README".into()],
                    message: format!("{name} does not merge with {other}"),
                };
            }
            if self.forge.hollow.contains(name) {
                continue;
            }
            let patchset = self
                .forge
                .changes
                .get(name)
                .and_then(|change| change.patchsets.get((number as usize).checked_sub(1)?))
                .cloned()
                .unwrap_or_default();
            tree.changes.insert((name.to_owned(), number));
            tree.config.extend(patchset.config.clone());
            touches |= !patchset.config.is_empty();
            let before = state.commit.clone();
            let how = format!("{before} {name} {number} {} {}", step.mode, wanted.dated.0);
            state.commit = self.forge.commit(&how, tree.clone());
            state.tree = format!("{:?}", tree.changes);
            if own {
                state.ahead = before;
                item_touches |= !patchset.config.is_empty();
                own_files.extend(patchset.files.iter().cloned());
                own_files.extend(patchset.config.keys().cloned());
            } else {
                state.ahead.clone_from(&state.commit);
            }
        }
        let branches: Vec<PreparedBranch> = branches.into_values().collect();
        let config = branches
            .iter()
            .map(|branch| ConfigFileSet {
                at: branch.at.clone(),
                // A merge knows nothing of that.
                default: false,
                commit: branch.commit.clone(),
                files: self.files(&self.forge.tree(&branch.commit)),
            })
            .collect();
        PrepareOutcome::Merged(PreparedState {
            branches,
            files: Some(own_files),
            config,
            touches_config: touches,
            item_touches_config: item_touches,
            containing_branches: Vec::new(),
        })
    }

    fn freeze_jobs(&mut self, wanted: &FreezeWanted) -> Result<FreezeOutcome, String> {
        let read = |hash: &BlobHash| -> Result<config::Layout, String> {
            codec::decode(self.blobs.get(hash).ok_or("a layout is nowhere")?).map_err(|error| error.to_string())
        };
        let layout = read(&wanted.layout)?;
        let ahead = wanted.layout_ahead.as_ref().map(read).transpose()?;
        let options = config::FreezeOptions { ahead: ahead.as_ref(), ..config::FreezeOptions::default() };
        let trace = BlobHash::default();
        let (mut graphs, mut in_pipeline) = (Vec::new(), false);
        let outcomes = config::freeze_item(&layout, &freeze_subjects(wanted), &wanted.pipeline, options);
        for (own, outcome) in own_changes(wanted).into_iter().zip(outcomes) {
            let graph = match outcome {
                config::FreezeOutcome::Frozen { graph, .. } => graph,
                config::FreezeOutcome::NoJobs { .. } => config::JobGraph::default(),
                config::FreezeOutcome::NotInPipeline { .. } => {
                    graphs.push((own.project.clone(), config::JobGraph::default()));
                    continue;
                }
                config::FreezeOutcome::Refused { problem, .. } => {
                    return Ok(FreezeOutcome::Refused { trace, message: problem.to_string() });
                }
            };
            in_pipeline = true;
            graphs.push((own.project.clone(), graph));
        }
        let together = graphs.len() > 1;
        let mut jobs: Vec<FrozenJob> = config::combine(&graphs)
            .into_iter()
            .map(|config::CombinedJob { graph, job, changes }| {
                let changes = if together { changes } else { Vec::new() };
                let first = frozen_job(&layout, graph, &job, changes, BlobHash::of(job.name.as_bytes()));
                let others = job.nodesets.iter().enumerate().skip(1).map(|(index, set)| NodesetAlternative {
                    spec: BlobHash::of(format!("{} on nodeset {index}", job.name).as_bytes()),
                    nodes: wanted_nodes(set),
                });
                FrozenJob { traits: JobTraits { alternatives: others.collect(), ..first.traits }, ..first }
            })
            .collect();
        let first = jobs.first().cloned();
        for number in jobs.len()..self.padded_jobs {
            let Some(mut job) = first.clone() else { break };
            job.dependencies = vec![(std::mem::replace(&mut job.name, format!("padding-{number}")), false)];
            jobs.push(job);
        }
        Ok(match jobs.is_empty() {
            true => FreezeOutcome::NoJobs { trace, in_pipeline },
            false => FreezeOutcome::Frozen { graph: BlobHash::default(), trace, jobs, repo_state: Vec::new() },
        })
    }

    fn move_branches(&mut self, wanted: &SubmitRequested) -> SubmitOutcome {
        for target in &wanted.targets {
            let project = local(&target.at.project).to_owned();
            let tip = self.forge.tip(&project, &target.at.branch);
            if tip.as_ref() != Some(&target.tested_base) {
                self.forge.surprised |= !self.forge.pushed.contains(&project);
                return SubmitOutcome::BaseMoved {
                    at: target.at.clone(),
                    expected: target.tested_base.clone(),
                    found: tip,
                };
            }
            let (before, after) = (self.forge.tree(&target.tested_base), self.forge.tree(&target.tested_commit));
            if after.changes.len() > before.changes.len() + 1 {
                let message = "more than one change would be merged at once".into();
                return SubmitOutcome::Refused { code: "untested".into(), message };
            }
            if let Some(one) = self.forge.projects.get_mut(&project) {
                one.branches.insert(target.at.branch.clone(), target.tested_commit.clone());
            }
            let name = Forge::short(target.subject.change.as_deref().unwrap_or_default()).to_owned();
            if let Some(change) = self.forge.changes.get_mut(&name) {
                change.merged = true;
                change.open = false;
            }
            self.merged.push(name);
        }
        SubmitOutcome::Merged
    }

    // ---- workers ----

    /// A worker begins the newest attempt of a build.
    pub fn start_build(&mut self, build: BuildId) -> Result<(), String> {
        let Some(row) = self.live.gate.builds.rows.get(&build).cloned() else { return Err("no such build".into()) };
        if row.state != BuildState::Leased {
            return Err(format!("job {} is {:?} and cannot start", row.job.name, row.state));
        }
        let started = AttemptStarted {
            tenant: row.tenant.clone(),
            build,
            attempt: row.attempt,
            lease: LeaseId(build.0),
            worker: "worker-1".into(),
            started_at: self.now,
        };
        self.say(&row.tenant, GateInput::AttemptStarted(started))
    }

    /// A worker ends an attempt of a build.
    pub fn end_build(&mut self, build: BuildId, attempt: u32, result: BuildResult, data: Value) -> Result<(), String> {
        self.end_build_with(build, attempt, result, data, ReturnedKept::default())
    }

    /// As `end_build`, with more of what it returned in blobs.
    pub fn end_build_with(
        &mut self,
        build: BuildId,
        attempt: u32,
        result: BuildResult,
        data: Value,
        kept: ReturnedKept,
    ) -> Result<(), String> {
        let tenant = self.live.gate.builds.rows.get(&build).map_or("acme".to_owned(), |row| row.tenant.clone());
        let finished = AttemptFinished {
            tenant: tenant.clone(),
            build,
            attempt,
            worker: "worker-1".into(),
            result,
            started_at: self.now,
            finished_at: self.now.plus_seconds(303),
            detail: None,
            data,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: None,
            kept,
        };
        self.say(&tenant, GateInput::AttemptFinished(finished))
    }

    /// A worker ends an attempt of a build well, and says something about it.
    pub fn end_saying(&mut self, build: BuildId, attempt: u32, text: &str) -> Result<(), String> {
        let tenant = self.live.gate.builds.rows.get(&build).map_or("acme".to_owned(), |row| row.tenant.clone());
        let finished = AttemptFinished {
            tenant: tenant.clone(),
            build,
            attempt,
            worker: "worker-1".into(),
            result: BuildResult::Success,
            started_at: self.now,
            finished_at: self.now,
            detail: Some(text.to_owned()),
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: None,
            kept: Default::default(),
        };
        self.say(&tenant, GateInput::AttemptFinished(finished))
    }

    /// Ends one build that runs or waits for a worker, well.
    pub fn end_one_job(&mut self) -> Result<bool, String> {
        let next =
            self.live.gate.builds.rows.iter().find(|(_, row)| row.holds_lease()).map(|(id, row)| (*id, row.attempt));
        let Some((build, attempt)) = next else { return Ok(false) };
        self.end_build(build, attempt, BuildResult::Success, Value::Null)?;
        Ok(true)
    }
}
