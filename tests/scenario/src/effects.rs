//! What is answered to the rules: facts from the code review, states from real merges, layouts and jobs
//! from the real configuration crate.

use std::collections::BTreeSet;

use gatelog_gate_state::work::{NotReported, PerformKinds};
use gatelog_merging::{
    BranchKey, FileFilter, FrozenBase, MergeItem, MergeMode, Mirrors, PrepareOutcome as Merge, PrepareRequest,
    ProjectKey,
};
use gatelog_partition_state::work::Sending;
use gatelog_record::draft::gate::{
    ChangesFound, ChangesWanted, ConfigFile, ConfigFileSet, ConfigFilesFound, ConfigReadWanted, FactsPurpose,
    FreezeOutcome, FreezeWanted, FrozenJob, LayoutOutcome, LayoutWanted, PrepareOutcome, PrepareRequested,
    PreparedBranch, PreparedState, ProjectBranch, ReportRequested, Subject, SubmitOutcome, SubmitRequested,
};
use gatelog_record::{BlobHash, WorkId, codec};
use gatelog_rules_config::{self as config, Problem, Severity};
use gatelog_rules_gate::{ConfigRemarks, config_remarks, freeze_subjects, frozen_job, own_changes};

use crate::gerrit::{CONNECTION, Gerrit, Status, canonical, local};
use crate::shell::Shell;

/// Everything effects touch.
pub struct Effects {
    /// The code review.
    pub gerrit: Gerrit,
    /// Mirrors of its repositories.
    pub mirrors: Mirrors,
    /// What is wrong with the tenant's configuration.
    pub tenant_problems: Vec<Problem>,
    answered: BTreeSet<(WorkId, u32)>,
}

fn filter() -> FileFilter {
    FileFilter::zuul([])
}

/// Effects, and the shell whose blobs they read and write.
struct On<'e> {
    effects: &'e mut Effects,
    shell: &'e mut Shell,
}

impl PerformKinds for On<'_> {
    type Error = String;

    fn config_read(&mut self, of: Sending<'_>, wanted: &ConfigReadWanted) -> Result<ConfigFilesFound, String> {
        self.effects.read_config(self.shell, of.work, of.attempt, wanted)
    }

    fn layout(&mut self, _: Sending<'_>, wanted: &LayoutWanted) -> Result<LayoutOutcome, String> {
        self.effects.make_layout(self.shell, wanted)
    }

    fn changes(&mut self, of: Sending<'_>, wanted: &ChangesWanted) -> Result<ChangesFound, String> {
        Ok(self.effects.find_changes(of.work, of.attempt, wanted))
    }

    fn prepare(&mut self, _: Sending<'_>, wanted: &PrepareRequested) -> Result<PrepareOutcome, String> {
        self.effects.prepare(self.shell, wanted)
    }

    fn freeze(&mut self, _: Sending<'_>, wanted: &FreezeWanted) -> Result<FreezeOutcome, String> {
        self.effects.freeze(self.shell, wanted)
    }

    fn submit(&mut self, _: Sending<'_>, wanted: &SubmitRequested) -> Result<SubmitOutcome, String> {
        self.effects.submit(wanted)
    }

    fn report(&mut self, _: Sending<'_>, wanted: &ReportRequested) -> Result<NotReported, String> {
        self.effects.gerrit.report(wanted);
        Ok(None)
    }
}

impl Effects {
    /// Effects on a code review.
    pub fn new(gerrit: Gerrit, mirrors: Mirrors) -> Result<Effects, String> {
        for (name, repository) in &gerrit.repositories {
            let key = ProjectKey::new(CONNECTION, name.as_str());
            let path = repository.path.to_string_lossy().into_owned();
            mirrors.set_source(&key, &path).map_err(|error| error.to_string())?;
        }
        Ok(Effects { gerrit, mirrors, tenant_problems: Vec::new(), answered: BTreeSet::new() })
    }

    /// Answers the oldest work that may be done now; says whether there was any.
    ///
    /// # Errors
    /// When something is asked for that cannot be.
    pub fn answer_one(&mut self, shell: &mut Shell) -> Result<bool, String> {
        let due = shell
            .live
            .gate
            .pending_work
            .rows
            .iter()
            .filter(|(id, row)| row.not_before <= shell.now && !self.answered.contains(&(**id, row.attempt)));
        let Some((_, id)) = due.map(|(id, row)| (row.requested, *id)).min() else { return Ok(false) };
        let Some(row) = shell.live.gate.pending_work.rows.get(&id).cloned() else { return Ok(false) };
        self.answered.insert((id, row.attempt));
        let input = row.work.perform(row.sending(id), &mut On { effects: self, shell })?;
        shell.say(&row.key, input)?;
        Ok(true)
    }

    fn config_of(&self, shell: &mut Shell, project: &str, commit: &str) -> Result<Vec<ConfigFile>, String> {
        let repository = self.gerrit.repositories.get(project).ok_or_else(|| format!("there is no {project}"))?;
        let wanted = filter();
        let files = repository.files(commit, |path| wanted.concerns(path))?;
        Ok(files.into_iter().map(|(path, text)| ConfigFile { path, blob: shell.put(text.as_bytes()) }).collect())
    }

    fn read_config(
        &self,
        shell: &mut Shell,
        work: WorkId,
        attempt: u32,
        wanted: &ConfigReadWanted,
    ) -> Result<ConfigFilesFound, String> {
        let mut sets = Vec::new();
        for project in &wanted.projects {
            let name = local(&project.project);
            let Some(repository) = self.gerrit.repositories.get(name) else { continue };
            for branch in repository.branches() {
                let Some(commit) = repository.tip(&branch) else { continue };
                let files = if project.reads_config { self.config_of(shell, name, &commit)? } else { Vec::new() };
                let at = ProjectBranch {
                    connection: CONNECTION.into(),
                    project: project.project.clone(),
                    branch: branch.clone(),
                };
                sets.push(ConfigFileSet { at, default: branch == "master", commit, files });
            }
        }
        Ok(ConfigFilesFound { work, attempt, tenant: wanted.tenant.clone(), sets, failed: Vec::new() })
    }

    fn make_layout(&mut self, shell: &mut Shell, wanted: &LayoutWanted) -> Result<LayoutOutcome, String> {
        let mut tenant: config::TenantSettings =
            codec::decode(shell.get(&wanted.settings)?).map_err(|error| error.to_string())?;
        for project in &mut tenant.projects {
            project.branches.clear();
        }
        // What pipelines say to their one connection is checked as in a whole site.
        tenant.connections = vec![CONNECTION.to_owned()];
        tenant.drivers.insert(CONNECTION.to_owned(), "gerrit".to_owned());
        let mut files = Vec::new();
        for set in &wanted.files {
            if let Some(project) = tenant.projects.iter_mut().find(|one| one.canonical_name == set.at.project)
                && project.takes_branch(&set.at.branch)
            {
                project.branches.push(set.at.branch.clone());
            }
            for file in &set.files {
                files.push(config::ConfigFile {
                    project: set.at.project.clone(),
                    branch: set.at.branch.clone(),
                    path: file.path.clone(),
                    text: String::from_utf8_lossy(shell.get(&file.blob)?).into_owned(),
                });
            }
        }
        let (mut layout, findings) = config::load_findings(&config::LoadInput { tenant, files });
        // People are told of everything that is wrong with a stanza; what is observed is what Zuul gets to see of it.
        let observed: Vec<Problem> = config::as_told(&findings).into_iter().map(|one| one.problem.clone()).collect();
        let problems = config::problems(findings);
        let ahead: Vec<Problem> = match &wanted.ahead {
            Some(hash) => codec::decode(shell.get(hash)?).map_err(|error| error.to_string())?,
            None => Vec::new(),
        };
        let changed = wanted.changed.iter().map(|at| (at.project.clone(), at.branch.clone())).collect();
        let errors = problems.iter().filter(|problem| problem.is_error());
        let introduced: Vec<Problem> = match wanted.buildset {
            Some(_) => config::relevant_errors(&observed, &ahead, &changed).into_iter().cloned().collect(),
            None => Vec::new(),
        };
        let said = match wanted.buildset {
            Some(_) => config_remarks(&problems, &ahead, &wanted.changed),
            None => ConfigRemarks::default(),
        };
        if let Some(base) = &wanted.base {
            layout.keep_static(&codec::decode(shell.get(base)?).map_err(|error| error.to_string())?);
        }
        match wanted.buildset {
            Some(buildset) => {
                shell.item_problems.insert(buildset, introduced);
            }
            None => {
                let told = |problem: &&Problem| problem.severity != Severity::Notice;
                self.tenant_problems = observed.into_iter().filter(|problem| told(&problem)).collect();
            }
        }
        let errors = u32::try_from(errors.count()).unwrap_or(u32::MAX);
        let layout = codec::encode(&layout).map_err(|error| error.to_string())?;
        let problems = codec::encode(&problems).map_err(|error| error.to_string())?;
        Ok(LayoutOutcome::Made {
            layout: shell.put(&layout),
            problems: shell.put(&problems),
            errors,
            introduced: said.errors,
            loader: 1,
            secrets: Vec::new(),
            warnings: said.warnings,
        })
    }

    fn find_changes(&self, work: WorkId, attempt: u32, wanted: &ChangesWanted) -> ChangesFound {
        let (mut changes, mut missing) = (Vec::new(), Vec::new());
        if let FactsPurpose::ProjectMerged { project } = &wanted.purpose {
            let open = self.gerrit.open_of(local(project));
            changes.extend(open.into_iter().flat_map(|number| self.gerrit.closure(number, wanted.with_needed_by)));
        }
        for key in &wanted.changes {
            let number = key.change.parse::<u32>().ok().filter(|number| self.gerrit.changes.contains_key(number));
            match number {
                Some(number) => changes.extend(self.gerrit.closure(number, wanted.with_needed_by)),
                None => missing.push(key.clone()),
            }
        }
        ChangesFound { work, attempt, tenant: wanted.tenant.clone(), changes, missing, failed: None }
    }

    fn prepare(&mut self, shell: &mut Shell, wanted: &PrepareRequested) -> Result<PrepareOutcome, String> {
        let mut items = Vec::new();
        for step in &wanted.steps {
            let Some(branch) = step.subject.branch.clone() else { continue };
            // A ref is tested as it is.
            if step.subject.change.is_none() {
                continue;
            }
            items.push(MergeItem {
                project: ProjectKey::new(CONNECTION, local(&step.subject.project)),
                branch,
                ref_name: Some(step.subject.git_ref.clone()),
                commit: step.subject.commit.clone(),
                mode: MergeMode::from_name(&step.mode).unwrap_or(MergeMode::MergeResolve),
                date_s: wanted.dated.seconds(),
                message: None,
            });
        }
        if items.is_empty() {
            return self.as_it_is(shell, wanted);
        }
        let base = |pin: &gatelog_record::draft::gate::BasePin| FrozenBase {
            branch: BranchKey::new(ProjectKey::new(CONNECTION, local(&pin.at.project)), pin.at.branch.clone()),
            commit: pin.commit.clone(),
        };
        let request = PrepareRequest {
            id: wanted.work.to_string(),
            items,
            bases: wanted.bases.iter().map(base).collect(),
            files: filter(),
        };
        match self.mirrors.prepare(&request).map_err(|error| error.to_string())? {
            Merge::Conflict(conflict) => {
                let step = wanted.steps.get(conflict.item).ok_or("the merger names no step")?;
                let (paths, message) = (conflict.paths, conflict.message);
                Ok(PrepareOutcome::Conflict { subject: step.subject.clone(), paths, message })
            }
            Merge::Merged(merged) => Ok(PrepareOutcome::Merged(prepared(shell, wanted, &merged))),
        }
    }

    /// A chain of refs: nothing is merged.
    fn as_it_is(&self, shell: &mut Shell, wanted: &PrepareRequested) -> Result<PrepareOutcome, String> {
        let (mut branches, mut config) = (Vec::new(), Vec::new());
        for step in &wanted.steps {
            let (Some(branch), Some(commit)) = (&step.subject.branch, &step.subject.commit) else { continue };
            let at = ProjectBranch {
                connection: CONNECTION.into(),
                project: step.subject.project.clone(),
                branch: branch.clone(),
            };
            branches.push(PreparedBranch {
                at: at.clone(),
                base: commit.clone(),
                ahead: commit.clone(),
                commit: commit.clone(),
                tree: String::new(),
            });
            let files = self.config_of(shell, local(&step.subject.project), commit)?;
            config.push(ConfigFileSet { at, default: branch == "master", commit: commit.clone(), files });
        }
        Ok(PrepareOutcome::Merged(PreparedState {
            branches,
            files: None,
            config,
            touches_config: false,
            item_touches_config: false,
            containing_branches: wanted.steps.iter().flat_map(|step| self.containing(&step.subject)).collect(),
        }))
    }

    fn freeze(&mut self, shell: &mut Shell, wanted: &FreezeWanted) -> Result<FreezeOutcome, String> {
        let read = |hash: &BlobHash| -> Result<config::Layout, String> {
            codec::decode(shell.get(hash)?).map_err(|error| error.to_string())
        };
        let layout = read(&wanted.layout)?;
        let ahead = wanted.layout_ahead.as_ref().map(read).transpose()?;
        let options = config::FreezeOptions { ahead: ahead.as_ref(), ..config::FreezeOptions::default() };
        let trace = BlobHash::default();
        let mut graphs = Vec::new();
        let mut in_pipeline = false;
        let outcomes = config::freeze_item(&layout, &freeze_subjects(wanted), &wanted.pipeline, options);
        for (change, outcome) in own_changes(wanted).into_iter().zip(outcomes) {
            match outcome {
                config::FreezeOutcome::Frozen { graph, .. } => {
                    in_pipeline = true;
                    graphs.push((change.project.clone(), graph));
                }
                config::FreezeOutcome::NoJobs { .. } => {
                    in_pipeline = true;
                    graphs.push((change.project.clone(), config::JobGraph::default()));
                }
                config::FreezeOutcome::NotInPipeline { .. } => {
                    graphs.push((change.project.clone(), config::JobGraph::default()));
                }
                config::FreezeOutcome::Refused { problem, .. } => {
                    let message = problem.to_string();
                    let problem = Problem { code: "freeze-error".into(), ..problem };
                    shell.item_problems.insert(wanted.buildset, vec![problem]);
                    return Ok(FreezeOutcome::Refused { trace, message });
                }
            }
        }
        let jobs: Vec<FrozenJob> = config::combine(&graphs)
            .into_iter()
            .map(|config::CombinedJob { graph, job, changes }| {
                let changes = if graphs.len() > 1 { changes } else { Vec::new() };
                // Nodes are not what these scenarios are about.
                FrozenJob {
                    nodes: Vec::new(),
                    ..frozen_job(&layout, graph, &job, changes, BlobHash::of(job.name.as_bytes()))
                }
            })
            .collect();
        Ok(match jobs.is_empty() {
            true => FreezeOutcome::NoJobs { trace, in_pipeline },
            false => FreezeOutcome::Frozen { graph: BlobHash::default(), trace, jobs, repo_state: Vec::new() },
        })
    }

    /// The branches that hold a ref that is none itself.
    fn containing(&self, subject: &Subject) -> Vec<String> {
        let repository = self.gerrit.repositories.get(local(&subject.project));
        match (&subject.branch, &subject.commit, repository) {
            (None, Some(commit), Some(repository)) => repository.containing(commit),
            _ => Vec::new(),
        }
    }

    fn submit(&mut self, wanted: &SubmitRequested) -> Result<SubmitOutcome, String> {
        let mut by_others = false;
        for target in &wanted.targets {
            let number = target.subject.change.as_deref().and_then(|text| text.parse::<u32>().ok());
            let number = number.ok_or("what is submitted is no change")?;
            let refused = |message: String| SubmitOutcome::Refused { code: "not-submittable".into(), message };
            if self.gerrit.changes.get(&number).is_some_and(|change| change.status == Status::Merged) {
                by_others = true;
                continue;
            }
            if let Some(why) = self.gerrit.not_submittable(number) {
                return Ok(refused(why));
            }
            let key = ProjectKey::new(CONNECTION, local(&target.at.project));
            let mirror = self.mirrors.path(&key).map_err(|error| error.to_string())?;
            if !self.gerrit.submit(number, &target.tested_base, &target.tested_commit, &mirror)? {
                return Ok(refused("it conflicts with the branch".into()));
            }
        }
        if by_others {
            let message = "It was merged by somebody else.".into();
            return Ok(SubmitOutcome::Refused { code: "already-merged".into(), message });
        }
        Ok(SubmitOutcome::Merged)
    }
}

fn prepared(shell: &mut Shell, wanted: &PrepareRequested, merged: &gatelog_merging::Prepared) -> PreparedState {
    let filter = filter();
    let steps: Vec<_> = wanted.steps.iter().filter(|step| step.subject.change.is_some()).collect();
    let (mut files, mut touches_config, mut item_touches_config) = (BTreeSet::new(), false, false);
    for (step, item) in steps.iter().zip(&merged.items) {
        let touches = item.files.paths.iter().any(|path| filter.concerns(path));
        touches_config |= touches;
        if step.item == wanted.item {
            item_touches_config |= touches;
            files.extend(item.files.paths.iter().cloned());
        }
    }
    let (mut branches, mut config) = (Vec::new(), Vec::new());
    for branch in &merged.branches {
        let project = canonical(&branch.branch.project.name);
        let on = |step: &gatelog_record::draft::gate::MergeStep| {
            step.subject.project == project && step.subject.branch.as_deref() == Some(branch.branch.branch.as_str())
        };
        let first = steps.iter().zip(&merged.items).find(|(step, _)| step.item == wanted.item && on(step));
        let ahead = first.map_or_else(|| branch.commit.clone(), |(_, item)| item.ahead.clone());
        let at = ProjectBranch { connection: CONNECTION.into(), project, branch: branch.branch.branch.clone() };
        let kept =
            branch.files.iter().map(|file| ConfigFile { path: file.path.clone(), blob: shell.put(&file.content) });
        config.push(ConfigFileSet {
            at: at.clone(),
            default: at.branch == "master",
            commit: branch.commit.clone(),
            files: kept.collect(),
        });
        branches.push(PreparedBranch {
            at,
            base: branch.base.clone(),
            ahead,
            commit: branch.commit.clone(),
            tree: branch.tree.clone(),
        });
    }
    PreparedState {
        branches,
        files: Some(files.into_iter().collect()),
        config,
        touches_config,
        item_touches_config,
        containing_branches: Vec::new(),
    }
}
