//! A gate that has been busy: the real rules behind the real shell, fed by a made-up forge, workers and clock.
//!
//! Nothing here draws lots or reads a clock: the same numbers give the same history, byte for byte. Changes to
//! four projects of one tenant come in, are checked and approved, and pass a shared queue; jobs take minutes, some
//! fail, some need another attempt, a failing change makes those behind it begin anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gatelog_event_log::{Blobs, Description, MemoryBlobs, Offset, Survives, Tail};
use gatelog_gate_state::Gate;
use gatelog_gate_state::live::GateLive;
use gatelog_gate_state::work::{NotReported, PerformKinds};
use gatelog_partition_state::work::Sending;
use gatelog_record::draft::capacity::{NodeWanted, SemaphoreWanted};
use gatelog_record::draft::gate::{
    AttemptFinished, AttemptStarted, BuildResult, ChangeFacts, ChangeKey, ChangesFound, ChangesWanted, ConfigFile,
    ConfigFileSet, ConfigFilesFound, ConfigReadWanted, FreezeOutcome, FreezeWanted, FrozenJob, LayoutOutcome,
    LayoutWanted, PrepareOutcome, PrepareRequested, PreparedBranch, PreparedState, ProjectBranch, ReportAction,
    ReportRequested, Subject, SubmitOutcome, SubmitRequested, TenantLoaded, TenantProject,
};
use gatelog_record::draft::intake::TenantFile;
use gatelog_record::draft::partition::{OutboxDelivered, TimerDue};
use gatelog_record::input::{CapacityInput, GateInput, IntakeInput, PartitionInput};
use gatelog_record::{
    ActorId, BlobHash, BuildId, Domain, EventRecord, Input, InputId, InputRecord, LeaseId, Partition, SiteId, Source,
    Timestamp, Value, WorkId, codec,
};
use gatelog_rules_config as config;
use gatelog_rules_gate::{GateRules, Router};
use gatelog_tables::{Maps, TableSet};
use gatelog_writer::{Append, Shell};

use crate::Failure;
use crate::measure::{Took, timed};

/// The gate's partition.
pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
/// The one tenant.
pub const TENANT: &str = "acme";
const CONNECTION: &str = "forge";
const HOST: &str = "git.acme.example";
/// The projects that have changes.
pub const PROJECTS: [&str; 4] = ["library", "service", "client", "tools"];
const BEGINNING: i64 = 1_800_000_000_000_000;

const CONFIG: &str = "
- pipeline:
    name: check
    manager: independent
    trigger: {forge: [{event: change-proposed}]}
    start: {forge: {}}
    success: {forge: {}}
    failure: {forge: {}}
- pipeline:
    name: gate
    manager: dependent
    window: 200
    require: {forge: {approved: true, current-patchset: true}}
    trigger: {forge: [{event: change-approved}]}
    start: {forge: {}}
    success: {forge: {}}
    failure: {forge: {}}
- nodeset: {name: one, nodes: [{name: node, label: sandbox}]}
- job: {name: base, parent: null, run: playbooks/run.yaml, nodeset: one, attempts: 3}
- job: {name: build}
- job: {name: unit, dependencies: [build]}
- job: {name: integration, dependencies: [build]}
- job: {name: style, voting: false}
- job: {name: docs, files: [\"^docs/\"]}
- queue: {name: integrated}
- project: {name: library, queue: integrated, check: {jobs: [build, unit, style, docs]}, gate: {jobs: [build, unit, integration]}}
- project: {name: service, queue: integrated, check: {jobs: [build, unit, integration, style]}, gate: {jobs: [build, unit, integration]}}
- project: {name: client, queue: integrated, check: {jobs: [build, unit, style]}, gate: {jobs: [build, unit]}}
- project: {name: tools, check: {jobs: [unit, style, build]}, gate: {jobs: [build, unit]}}
";

fn canonical(project: &str) -> String {
    format!("{HOST}/{project}")
}

fn local(canonical: &str) -> &str {
    canonical.rsplit('/').next().unwrap_or(canonical)
}

/// A change.
#[derive(Clone, Debug, Default)]
struct Change {
    project: String,
    patchset: u32,
    approved: bool,
    merged: bool,
}

/// How busy it is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Seconds between two new changes.
    pub seconds_between: u64,
    /// Of a thousand attempts, how many fail.
    pub failing: u64,
    /// Of a thousand attempts, how many must be made again.
    pub again: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { seconds_between: 90, failing: 25, again: 10 }
    }
}

/// The site.
pub struct Site {
    shell: Shell<GateRules>,
    blobs: MemoryBlobs,
    router: Router,
    intake: u64,
    inputs: u64,
    sent: u64,
    now: Timestamp,
    dice: u64,
    pace: Pace,
    tips: BTreeMap<String, String>,
    changes: BTreeMap<String, Change>,
    commits: u64,
    layouts: BTreeMap<BlobHash, Arc<config::Layout>>,
    frozen: BTreeMap<(BlobHash, String, String), FreezeOutcome>,
    answered: BTreeSet<(WorkId, u32)>,
    running: BTreeSet<(Timestamp, BuildId, u32)>,
    approve_next: VecDeque<String>,
    propose_again: VecDeque<String>,
    config: String,
    /// What deciding, folding and writing down took so far, and nothing else of the site.
    pub spent: Took,
    /// Every event so far, as it stands on the log.
    pub frames: Vec<Vec<u8>>,
    /// The newest input that was taken, with its offset.
    pub last_input: Option<(Offset, InputRecord)>,
}

impl Site {
    /// A site with its configuration in force and nothing to do.
    ///
    /// # Errors
    /// When what it says to itself does not hold together.
    pub fn new(pace: Pace) -> Result<Site, Failure> {
        Site::with(pace, CONFIG)
    }

    /// The same with a configuration of its own, of the same projects.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn with(pace: Pace, config: &str) -> Result<Site, Failure> {
        let log = Description {
            site: SiteId([9; 16]),
            generation: 1,
            survives: Survives::Nothing,
            name: "a benchmark".into(),
            partitions: 1,
        };
        let live = GateLive::<Maps>::open(&mut Maps)?;
        let shell = Shell::new(GATE, Arc::new(GateRules::new), |live| &live.partition, live, Tail::default(), &log);
        let mut site = Site {
            shell,
            blobs: MemoryBlobs::new(),
            router: Router::new(),
            intake: 0,
            inputs: 0,
            sent: 0,
            now: Timestamp(BEGINNING),
            dice: 42,
            pace,
            tips: BTreeMap::new(),
            changes: BTreeMap::new(),
            commits: 0,
            layouts: BTreeMap::new(),
            frozen: BTreeMap::new(),
            answered: BTreeSet::new(),
            running: BTreeSet::new(),
            approve_next: VecDeque::new(),
            propose_again: VecDeque::new(),
            config: config.to_owned(),
            spent: Took::default(),
            frames: Vec::new(),
            last_input: None,
        };
        let started = site.shell.start("gatelog benchmark", site.now)?;
        site.keep(started);
        for project in PROJECTS.iter().chain(&["config"]) {
            let tip = site.commit();
            site.tips.insert((*project).to_owned(), tip);
        }
        site.load_tenant()?;
        site.settle(true)?;
        Ok(site)
    }

    /// The gate's state.
    pub fn live(&self) -> &GateLive<Maps> {
        self.shell.state()
    }

    /// What the clock says.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The bytes of a blob.
    ///
    /// # Errors
    /// There is none.
    pub fn blob(&self, hash: &BlobHash) -> Result<Vec<u8>, Failure> {
        Ok(self.blobs.get(hash)?)
    }

    /// Lets changes come in and pass until there are so many events.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn live_until(&mut self, events: usize) -> Result<(), Failure> {
        let mut next = self.now;
        let mut number = self.changes.len();
        while self.frames.len() < events {
            if next <= self.now {
                next = self.now.plus_seconds(i64::try_from(self.pace.seconds_between)?);
                if let Some(name) = self.propose_again.pop_front() {
                    self.propose(&name)?;
                } else {
                    number += 1;
                    let project = *PROJECTS.get(number % PROJECTS.len()).ok_or("no such project")?;
                    self.propose_new(project, number)?;
                }
            }
            while let Some(name) = self.approve_next.pop_front() {
                self.approve(&name)?;
            }
            self.settle(true)?;
            let ends = self.running.first().map(|(at, ..)| *at);
            let timer = self.shell.partition_tables().timers.rows.values().map(|row| row.due_at).min();
            let moment = [ends, timer, Some(next)].into_iter().flatten().min().unwrap_or(next);
            self.now = self.now.max(moment);
            self.end_builds()?;
            self.tell_timers()?;
        }
        Ok(())
    }

    /// A new change, proposed; gives its name.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn propose_new(&mut self, project: &str, number: usize) -> Result<String, Failure> {
        let name = self.change(project, number);
        self.propose(&name)?;
        Ok(name)
    }

    /// A change that nobody has told of yet; gives its name.
    pub fn change(&mut self, project: &str, number: usize) -> String {
        let name = format!("change-{number}");
        self.changes.insert(name.clone(), Change { project: project.to_owned(), ..Change::default() });
        name
    }

    /// Another patchset of a change.
    fn propose(&mut self, name: &str) -> Result<(), Failure> {
        let change = self.changes.get_mut(name).ok_or("no such change")?;
        change.patchset += 1;
        change.approved = false;
        self.event(name, "change-proposed")
    }

    /// Somebody approves a change.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn approve(&mut self, name: &str) -> Result<(), Failure> {
        self.changes.get_mut(name).ok_or("no such change")?.approved = true;
        self.event(name, "change-approved")
    }

    /// Answers all that is asked; with `builds` also starts and gives leases to builds. Stops before an input that
    /// `stop` wants to see, and gives it.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn settle_until(
        &mut self,
        builds: bool,
        stop: impl Fn(&Input) -> bool,
    ) -> Result<Option<InputRecord>, Failure> {
        for _ in 0..1_000_000 {
            if self.deliver(builds)? {
                continue;
            }
            let Some(input) = self.next_answer()? else { return Ok(None) };
            if stop(&input.input) {
                return Ok(Some(input));
            }
            self.take(&input)?;
        }
        Err("the site does not come to rest".into())
    }

    /// Answers all that is asked.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn settle(&mut self, builds: bool) -> Result<(), Failure> {
        self.settle_until(builds, |_| false).map(drop)
    }

    /// The input that ends a voting build of the change at the head of the gate badly.
    pub fn head_fails(&mut self) -> Option<InputRecord> {
        self.head_ends(BuildResult::Failure)
    }

    /// The input that ends a build of the change at the head of the gate well.
    pub fn head_succeeds(&mut self) -> Option<InputRecord> {
        self.head_ends(BuildResult::Success)
    }

    fn head_ends(&mut self, result: BuildResult) -> Option<InputRecord> {
        let gate = &self.shell.state().gate;
        let of_gate = |item| gate.items.rows.get(item).is_some_and(|item| item.pipeline == "gate");
        let held = gate.builds.rows.iter().filter(|(_, row)| of_gate(&row.item) && row.holds_lease() && row.job.voting);
        let (build, attempt) = held
            .min_by_key(|(_, row)| gate.items.rows.get(&row.item).map(|item| item.enqueued))
            .map(|(build, row)| (*build, row.attempt))?;
        let finished = self.finished(build, attempt, result);
        Some(self.input(GateInput::AttemptFinished(finished)))
    }

    /// How many builds run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The first of the gate fails, and all that follows from it is done.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn reset(&mut self) -> Result<(), Failure> {
        let input = self.head_fails().ok_or("nothing runs")?;
        self.take(&input)?;
        self.settle(true)
    }

    /// Every build that runs ends well, one after the other, until none does.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn let_go(&mut self) -> Result<(), Failure> {
        while let Some((_, build, attempt)) = self.running.pop_first() {
            let finished = self.finished(build, attempt, BuildResult::Success);
            let finished = self.input(GateInput::AttemptFinished(finished));
            self.take(&finished)?;
            self.settle(true)?;
        }
        Ok(())
    }

    fn roll(&mut self, sides: u64) -> u64 {
        // Knuth's linear congruential generator.
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % sides.max(1)
    }

    fn commit(&mut self) -> String {
        self.commits += 1;
        let name = BlobHash::of(&self.commits.to_le_bytes()).to_string();
        name.chars().take(40).collect()
    }

    fn keep(&mut self, append: Append) -> Vec<EventRecord> {
        self.frames.extend(append.frames);
        append.records
    }

    // ---- inputs ----

    fn input(&mut self, input: impl Into<Input>) -> InputRecord {
        self.sent += 1;
        InputRecord::new(InputId::new(format!("benchmark/{}", self.sent)), TENANT, self.now, input)
    }

    fn take(&mut self, record: &InputRecord) -> Result<(), Failure> {
        let bytes = record.close()?.encode();
        let offset = Offset(self.inputs);
        self.inputs += 1;
        self.now = Timestamp(self.now.0 + 1_000);
        let (took, append) = timed(|| self.shell.take(offset, &bytes, self.now, &self.blobs));
        self.spent.wall += took.wall;
        self.spent.cpu += took.cpu;
        let records = self.keep(append?);
        self.last_input = Some((offset, record.clone()));
        for record in records {
            if record.event.name().contains("refused") {
                return Err(format!("the shell refused an input: {:?}", record.event).into());
            }
        }
        Ok(())
    }

    fn route(&mut self, input: &IntakeInput) -> Result<(), Failure> {
        let offset = self.intake;
        self.intake += 1;
        for routed in self.router.route(offset, input) {
            let id = InputId::new(format!("intake/{offset}/{}", routed.ordinal));
            let mut record = InputRecord::new(id, routed.key, self.now, routed.input);
            let partition = Partition { domain: Domain::Intake, index: 0 };
            record.source = Some(Source { partition, sequence: offset + 1, ordinal: routed.ordinal });
            self.take(&record)?;
        }
        Ok(())
    }

    fn load_tenant(&mut self) -> Result<(), Failure> {
        let mut settings = config::TenantSettings { name: TENANT.into(), ..config::TenantSettings::default() };
        let mut projects = Vec::new();
        for (name, trusted) in [("config", true)].into_iter().chain(PROJECTS.map(|name| (name, false))) {
            let mut project = config::TenantProject::new(CONNECTION, name, trusted);
            project.canonical_name = canonical(name);
            settings.projects.push(project);
            projects.push(TenantProject {
                connection: CONNECTION.into(),
                project: canonical(name),
                trusted,
                reads_config: true,
            });
        }
        let settings = self.blobs.put(&codec::encode(&settings)?)?;
        let tenant = TenantLoaded {
            tenant: TENANT.into(),
            version: 1,
            settings,
            web_root: "https://gate.acme.example".into(),
            projects,
        };
        let file = TenantFile { version: 1, file: BlobHash::default(), tenants: vec![tenant] };
        self.route(&IntakeInput::TenantFile(file))
    }

    fn event(&mut self, name: &str, event: &str) -> Result<(), Failure> {
        let subject = self.subject(name)?;
        let event = crate::told_of(subject, CONNECTION, event, Value::Null, self.intake.to_string());
        self.route(&IntakeInput::ForgeEvent(event))
    }

    fn subject(&self, name: &str) -> Result<Subject, Failure> {
        let change = self.changes.get(name).ok_or("no such change")?;
        let commit = BlobHash::of(format!("{name} {}", change.patchset).as_bytes()).to_string();
        Ok(Subject {
            connection: CONNECTION.into(),
            project: canonical(&change.project),
            branch: Some("master".into()),
            git_ref: format!("refs/for/master/{name}"),
            change: Some(format!("master/{name}")),
            patchset: Some(change.patchset.to_string()),
            commit: Some(commit.chars().take(40).collect()),
            old_commit: None,
            url: format!("https://{HOST}/{}/+/master/{name}", change.project),
        })
    }

    // ---- what effects answer ----

    fn next_answer(&mut self) -> Result<Option<InputRecord>, Failure> {
        let work = &self.shell.state().gate.pending_work.rows;
        let oldest = work
            .iter()
            .filter(|(id, row)| row.not_before <= self.now && !self.answered.contains(&(**id, row.attempt)))
            .min_by_key(|(id, row)| (row.requested, **id));
        let Some((id, row)) = oldest.map(|(id, row)| (*id, row.clone())) else { return Ok(None) };
        self.answered.insert((id, row.attempt));
        let input = row.work.perform(row.sending(id), self)?;
        let name = InputId::new(format!("work/{id}/{}", row.attempt));
        Ok(Some(InputRecord::new(name, row.key, self.now, input)))
    }

    fn files_of(&mut self, project: &str) -> Result<ConfigFileSet, Failure> {
        let name = local(project);
        let files = match name {
            "config" => vec![ConfigFile { path: "zuul.yaml".into(), blob: self.blobs.put(self.config.as_bytes())? }],
            _ => Vec::new(),
        };
        Ok(ConfigFileSet {
            at: ProjectBranch { connection: CONNECTION.into(), project: project.to_owned(), branch: "master".into() },
            default: true,
            commit: self.tips.get(name).cloned().unwrap_or_default(),
            files,
        })
    }

    fn make_layout(&mut self, wanted: &LayoutWanted) -> Result<LayoutOutcome, Failure> {
        let mut tenant: config::TenantSettings = codec::decode(&self.blobs.get(&wanted.settings)?)?;
        let mut files = Vec::new();
        for project in &mut tenant.projects {
            project.branches = vec!["master".into()];
        }
        for set in &wanted.files {
            for file in &set.files {
                let text = String::from_utf8(self.blobs.get(&file.blob)?)?;
                let (project, branch) = (set.at.project.clone(), set.at.branch.clone());
                files.push(config::ConfigFile { project, branch, path: file.path.clone(), text });
            }
        }
        let (layout, problems) = config::load(&config::LoadInput { tenant, files });
        if let Some(problem) = problems.iter().find(|problem| problem.severity == config::Severity::Error) {
            return Err(format!("the benchmark's own configuration: {problem}").into());
        }
        let hash = self.blobs.put(&codec::encode(&layout)?)?;
        self.layouts.insert(hash, Arc::new(layout));
        Ok(LayoutOutcome::Made {
            layout: hash,
            problems: self.blobs.put(&codec::encode(&Vec::<String>::new())?)?,
            errors: 0,
            introduced: Vec::new(),
            loader: 1,
            secrets: Vec::new(),
            warnings: Vec::new(),
        })
    }

    fn find_changes(&self, work: WorkId, attempt: u32, wanted: &ChangesWanted) -> Result<ChangesFound, Failure> {
        let mut changes = Vec::new();
        for ChangeKey { change, .. } in &wanted.changes {
            let name = local(change);
            let known = self.changes.get(name).ok_or("no such change")?;
            changes.push(ChangeFacts {
                subject: self.subject(name)?,
                open: !known.merged,
                merged: known.merged,
                approved: known.approved,
                approvals: Value::Null,
                cannot_merge: None,
                parents: Vec::new(),
                depends_on: Vec::new(),
                needs: Vec::new(),
                needed_by: Vec::new(),
                files: Some(vec!["src/lib.rs".into(), "src/main.rs".into()]),
                owner: ActorId([3; 16]),
                owner_identity: None,
                text: None,
                attributes: Value::Null,
            });
        }
        let tenant = wanted.tenant.clone();
        Ok(ChangesFound { work, attempt, tenant, changes, missing: Vec::new(), failed: None })
    }

    fn merge_chain(&mut self, wanted: &PrepareRequested) -> Result<PrepareOutcome, Failure> {
        let mut branches: BTreeMap<ProjectBranch, PreparedBranch> = BTreeMap::new();
        for step in &wanted.steps {
            let subject = &step.subject;
            let at = ProjectBranch {
                connection: subject.connection.clone(),
                project: subject.project.clone(),
                branch: "master".into(),
            };
            let tip = self.tips.get(local(&subject.project)).cloned().unwrap_or_default();
            // A merge is named for what went into it, as git names it.
            let branch = branches.entry(at.clone()).or_insert_with(|| PreparedBranch {
                at,
                base: tip.clone(),
                ahead: tip.clone(),
                commit: tip.clone(),
                tree: String::new(),
            });
            let merged = format!("{} {}", branch.commit, subject.commit.as_deref().unwrap_or_default());
            let name: String = BlobHash::of(merged.as_bytes()).to_string().chars().take(40).collect();
            branch.ahead = std::mem::replace(&mut branch.commit, name);
            branch.tree = branch.commit.chars().rev().collect();
        }
        Ok(PrepareOutcome::Merged(PreparedState {
            branches: branches.into_values().collect(),
            files: Some(vec!["src/lib.rs".into(), "src/main.rs".into()]),
            config: Vec::new(),
            touches_config: false,
            item_touches_config: false,
            containing_branches: Vec::new(),
        }))
    }

    fn freeze_jobs(&mut self, wanted: &FreezeWanted) -> Result<FreezeOutcome, Failure> {
        let own =
            wanted.steps.iter().rev().find(|step| step.item == wanted.item).ok_or("it is not in its own chain")?;
        let key = (wanted.layout, own.subject.project.clone(), wanted.pipeline.clone());
        if let Some(known) = self.frozen.get(&key) {
            return Ok(known.clone());
        }
        let layout = self.layouts.get(&wanted.layout).ok_or("a layout is nowhere")?;
        let subject = config::FreezeSubject {
            project: own.subject.project.clone(),
            branch: own.subject.branch.clone(),
            files: wanted.state.files.clone(),
            ..config::FreezeSubject::default()
        };
        let frozen = config::freeze(layout, &subject, &wanted.pipeline, config::FreezeOptions::default());
        let config::FreezeOutcome::Frozen { graph, .. } = frozen else { return Err("no jobs".into()) };
        let jobs = graph
            .jobs
            .iter()
            .map(|job| FrozenJob {
                name: job.name.clone(),
                spec: BlobHash::of(job.name.as_bytes()),
                voting: job.voting,
                attempts: u32::try_from(job.attempts).unwrap_or(1),
                dependencies: job.dependencies.iter().map(|one| (one.name.clone(), one.soft)).collect(),
                semaphores: Vec::<SemaphoreWanted>::new(),
                nodes: vec![NodeWanted { names: vec!["node".into()], label: "sandbox".into() }],
                noop: false,
                success_message: None,
                failure_message: None,
                traits: Default::default(),
            })
            .collect();
        let outcome = FreezeOutcome::Frozen {
            graph: BlobHash::of(b"graph"),
            trace: BlobHash::of(b"trace"),
            jobs,
            repo_state: Vec::new(),
        };
        self.frozen.insert(key, outcome.clone());
        Ok(outcome)
    }

    fn move_branches(&mut self, wanted: &SubmitRequested) -> SubmitOutcome {
        for target in &wanted.targets {
            let project = local(&target.at.project).to_owned();
            self.tips.insert(project, target.tested_commit.clone());
            let name = local(target.subject.change.as_deref().unwrap_or_default()).to_owned();
            if let Some(change) = self.changes.get_mut(&name) {
                change.merged = true;
            }
        }
        SubmitOutcome::Merged
    }

    // ---- capacity and workers ----

    fn deliver(&mut self, builds: bool) -> Result<bool, Failure> {
        let rows = &self.shell.partition_tables().outbox.rows;
        let Some((domain, index, sequence, ordinal)) = rows.keys().next_back().copied() else { return Ok(false) };
        let mut begun = Vec::new();
        for row in rows.values() {
            match &row.input {
                Input::Capacity(CapacityInput::LeaseAsked(ask)) => begun.extend(ask.owner.build()),
                Input::Capacity(CapacityInput::LeaseEndAsked(end)) => {
                    let ended = end.owner.build();
                    begun.retain(|one| Some(*one) != ended);
                    self.running.retain(|(_, build, attempt)| Some((*build, *attempt)) != ended);
                }
                other => return Err(format!("capacity is told {other:?}").into()),
            }
        }
        let to = Partition { domain: Domain::from_number(domain).ok_or("a message goes to no domain")?, index };
        let delivered = self.input(PartitionInput::OutboxDelivered(OutboxDelivered { to, up_to: (sequence, ordinal) }));
        self.take(&delivered)?;
        if builds {
            for (build, attempt) in begun {
                let started = AttemptStarted {
                    tenant: TENANT.into(),
                    build,
                    attempt,
                    lease: LeaseId(build.0),
                    worker: "worker-1".into(),
                    started_at: self.now,
                };
                let started = self.input(GateInput::AttemptStarted(started));
                self.take(&started)?;
                let seconds = 120 + self.roll(600);
                self.running.insert((self.now.plus_seconds(i64::try_from(seconds)?), build, attempt));
            }
        }
        Ok(true)
    }

    fn finished(&self, build: BuildId, attempt: u32, result: BuildResult) -> AttemptFinished {
        AttemptFinished {
            tenant: TENANT.into(),
            build,
            attempt,
            worker: "worker-1".into(),
            result,
            started_at: self.now.plus_seconds(-300),
            finished_at: self.now,
            detail: None,
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: Some(format!("https://gate.acme.example/logs/{build}/{attempt}/")),
            kept: Default::default(),
        }
    }

    fn end_builds(&mut self) -> Result<(), Failure> {
        while let Some((at, build, attempt)) = self.running.first().copied().filter(|(at, ..)| *at <= self.now) {
            self.running.remove(&(at, build, attempt));
            let rolled = self.roll(1_000);
            let result = match rolled {
                _ if rolled < self.pace.failing => BuildResult::Failure,
                _ if rolled < self.pace.failing + self.pace.again => BuildResult::Retry,
                _ => BuildResult::Success,
            };
            let finished = self.finished(build, attempt, result);
            let finished = self.input(GateInput::AttemptFinished(finished));
            self.take(&finished)?;
            self.settle(true)?;
        }
        Ok(())
    }

    fn tell_timers(&mut self) -> Result<(), Failure> {
        loop {
            let timers = &self.shell.partition_tables().timers.rows;
            let due = timers.iter().filter(|(_, row)| row.due_at <= self.now).min_by_key(|(_, row)| row.due_at);
            let Some((timer, due_at)) = due.map(|(name, row)| (name.clone(), row.due_at)) else { return Ok(()) };
            let told = self.input(PartitionInput::TimerDue(TimerDue { timer, due_at }));
            self.take(&told)?;
            self.settle(true)?;
        }
    }
}

/// The state's domain, for those who fold what a site made.
pub type SiteState = Gate;

impl PerformKinds for Site {
    type Error = Failure;

    fn config_read(&mut self, of: Sending<'_>, wanted: &ConfigReadWanted) -> Result<ConfigFilesFound, Failure> {
        let sets = wanted.projects.iter().map(|project| self.files_of(&project.project)).collect::<Result<_, _>>()?;
        let (work, attempt, tenant) = (of.work, of.attempt, of.key.to_owned());
        Ok(ConfigFilesFound { work, attempt, tenant, sets, failed: Vec::new() })
    }

    fn layout(&mut self, _: Sending<'_>, wanted: &LayoutWanted) -> Result<LayoutOutcome, Failure> {
        self.make_layout(wanted)
    }

    fn changes(&mut self, of: Sending<'_>, wanted: &ChangesWanted) -> Result<ChangesFound, Failure> {
        self.find_changes(of.work, of.attempt, wanted)
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

    fn report(&mut self, _: Sending<'_>, wanted: &ReportRequested) -> Result<NotReported, Failure> {
        let change = wanted.subjects.first().and_then(|subject| subject.change.as_deref()).unwrap_or_default();
        match wanted.action {
            ReportAction::Success if wanted.pipeline == "check" => {
                self.approve_next.push_back(local(change).to_owned());
            }
            ReportAction::Failure => self.propose_again.push_back(local(change).to_owned()),
            _ => {}
        }
        Ok(None)
    }
}
