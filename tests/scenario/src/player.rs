//! Plays a scenario step by step.

use std::collections::BTreeMap;

use gatelog_gate_state::live::{BuildState, TimerKey};
use gatelog_merging::{Mirrors, MirrorsConfig};
use gatelog_record::draft::capacity::LeaseAsked;
use gatelog_record::draft::gate::{
    AttemptFinished, AttemptPaused, AttemptStarted, BuildResult, ChangeKey, DequeueAsked, EnqueueAsked, PromoteAsked,
    TenantLoaded, TenantProject, TimerTicked,
};
use gatelog_record::draft::intake::TenantFile;
use gatelog_record::draft::partition::OutboxDelivered;
use gatelog_record::input::{CapacityInput, GateInput, IntakeInput, PartitionInput};
use gatelog_record::{BlobHash, BuildId, Domain, Input, LeaseId, Partition, Value, codec};
use gatelog_rules_config::objects::pipeline::Manager;
use gatelog_rules_config::tenant::ProjectFacts;
use gatelog_rules_config::{Layout, Problem, parse_tenant_file};
use serde_json::{Value as Json, json};

use crate::effects::Effects;
use crate::errors::{config_error, sorted_errors};
use crate::file::{Scenario, Step, texts};
use crate::gerrit::{CONNECTION, Gerrit, Status, canonical};
use crate::observe::{Observer, result_of};
use crate::rules::{Rule, Selection};
use crate::shell::Shell;

/// The tenant.
const TENANT: &str = "tenant-one";
/// How often the world may be looked at until it has settled.
const MAX_MOVES: usize = 50_000;
/// How many builds `finish` lets go.
const MAX_BUILDS: usize = 400;

struct Player<'s> {
    scenario: &'s Scenario,
    shell: Shell,
    effects: Effects,
    rules: Vec<Rule>,
    tenant_version: u64,
}

/// Plays a scenario and says what was seen.
///
/// # Errors
/// When the file asks for what cannot be, or the rules break a promise.
pub fn play(scenario: &Scenario) -> Result<Json, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for repositories: {error}"))?;
    let gerrit = Gerrit::new(scenario, folder.path())?;
    let mirrors =
        Mirrors::open(MirrorsConfig::new(folder.path().join("mirrors"))).map_err(|error| error.to_string())?;
    let names = scenario.numbers.iter().map(|(name, number)| (*number, name.clone())).collect();
    let mut shell = Shell::default();
    shell.seen = Observer::new(names);
    let effects = Effects::new(gerrit, mirrors)?;
    let mut player = Player { scenario, shell, effects, rules: Vec::new(), tenant_version: 0 };
    player.load_tenant()?;
    player.settle()?;
    for (at, step) in scenario.steps.iter().enumerate() {
        player.shell.seen.step = at + 1;
        let tell = |problem: String| format!("{}, step {}, {}: {problem}", scenario.name, at + 1, step.name);
        player.take(step).map_err(tell)?;
        if !matches!(step.name.as_str(), "job" | "snapshot" | "release" | "finish") {
            player.settle().map_err(tell)?;
        }
    }
    Ok(player.observation())
}

impl Player<'_> {
    fn load_tenant(&mut self) -> Result<(), String> {
        let (specs, problems) = parse_tenant_file(&self.scenario.tenant_file());
        if let Some(problem) = problems.iter().find(|problem| problem.is_error()) {
            return Err(format!("the tenant file: {problem}"));
        }
        let spec = specs.first().ok_or("the tenant file has no tenant")?;
        let repositories = &self.effects.gerrit.repositories;
        let (settings, problems) = spec.resolve(|_, name| {
            let repository = repositories.get(name)?;
            Some(ProjectFacts {
                canonical_name: canonical(name),
                default_branch: "master".into(),
                branches: repository.branches(),
            })
        });
        if let Some(problem) = problems.first() {
            return Err(format!("the tenant file: {problem}"));
        }
        let projects = settings.projects.iter().map(|project| TenantProject {
            connection: project.connection.clone(),
            project: project.canonical_name.clone(),
            trusted: project.trusted,
            reads_config: !project.include.is_empty(),
        });
        let projects = projects.collect();
        let settings = self.shell.put(&codec::encode(&settings).map_err(|error| error.to_string())?);
        self.tenant_version += 1;
        let version = self.tenant_version;
        let tenant = TenantLoaded { tenant: TENANT.into(), version, settings, web_root: String::new(), projects };
        let file = TenantFile { version, file: BlobHash::default(), tenants: vec![tenant] };
        self.shell.intake(&IntakeInput::TenantFile(file))
    }

    // ---- settling ----

    /// Lets everything happen that happens by itself, merges announced, until nothing does.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            self.pump()?;
            self.shell.seen.round += 1;
            if !self.effects.gerrit.announce() {
                return Ok(());
            }
        }
    }

    fn pump(&mut self) -> Result<(), String> {
        for _ in 0..MAX_MOVES {
            if self.tell_news()?
                || self.deliver()?
                || self.go_on()?
                || self.effects.answer_one(&mut self.shell)?
                || self.wait()?
            {
                continue;
            }
            return Ok(());
        }
        Err("the world does not settle".into())
    }

    fn tell_news(&mut self) -> Result<bool, String> {
        let news = std::mem::take(&mut self.effects.gerrit.news);
        for event in &news {
            self.shell.intake(&IntakeInput::ForgeEvent(event.clone()))?;
        }
        Ok(!news.is_empty())
    }

    /// Work that is not to be done yet is waited for.
    fn wait(&mut self) -> Result<bool, String> {
        let work = self.shell.live.gate.pending_work.rows.values();
        let now = self.shell.now;
        let Some(next) = work.map(|row| row.not_before).filter(|moment| *moment > now).min() else { return Ok(false) };
        self.shell.wait_until(next)?;
        Ok(true)
    }

    /// Builds that were paused and may go on end as they would have.
    fn go_on(&mut self) -> Result<bool, String> {
        let Some((build, attempt, data)) = self.shell.seen.resumed.pop() else { return Ok(false) };
        self.end((build, attempt), BuildResult::Success, data)?;
        Ok(true)
    }

    /// The worker ends an attempt.
    fn end(&mut self, (build, attempt): (BuildId, u32), result: BuildResult, data: Value) -> Result<(), String> {
        let finished = AttemptFinished {
            tenant: TENANT.into(),
            build,
            attempt,
            worker: "worker".into(),
            result,
            started_at: self.shell.now,
            finished_at: self.shell.now,
            detail: None,
            data,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: None,
            kept: Default::default(),
        };
        self.shell.say(TENANT, GateInput::AttemptFinished(finished))
    }

    /// Leases are granted at once, and their builds begin.
    fn deliver(&mut self) -> Result<bool, String> {
        let outbox = &self.shell.live.partition.outbox.rows;
        let rows: Vec<_> = outbox.iter().map(|(key, row)| (*key, row.input.clone())).collect();
        let Some(((domain, index, sequence, ordinal), _)) = rows.last().cloned() else { return Ok(false) };
        let to = Partition { domain: Domain::from_number(domain).ok_or("a message goes to no domain")?, index };
        let delivered = PartitionInput::OutboxDelivered(OutboxDelivered { to, up_to: (sequence, ordinal) });
        self.shell.say("", delivered)?;
        for (_, input) in rows {
            if let Input::Capacity(CapacityInput::LeaseAsked(ask)) = input {
                self.begin(&ask)?;
            }
        }
        Ok(true)
    }

    fn begin(&mut self, ask: &LeaseAsked) -> Result<(), String> {
        let (build, attempt) = ask.owner.build().ok_or("a lease is asked for that is for no build")?;
        let waits = self.shell.live.gate.builds.rows.get(&build);
        if waits.is_none_or(|row| row.state != BuildState::Leased || row.attempt != attempt) {
            return Ok(());
        }
        let started = AttemptStarted {
            tenant: TENANT.into(),
            build,
            attempt,
            lease: LeaseId(build.0),
            worker: "worker".into(),
            started_at: self.shell.now,
        };
        self.shell.say(TENANT, GateInput::AttemptStarted(started))
    }

    // ---- steps ----

    fn take(&mut self, step: &Step) -> Result<(), String> {
        if matches!(step.name.as_str(), "patchset" | "abandon" | "restore" | "merge" | "vote" | "unapprove") {
            let name = step.change().unwrap_or_default();
            if self.effects.gerrit.change(&name)?.status == Status::Merged {
                return Ok(());
            }
        }
        match step.name.as_str() {
            "push" => self.effects.gerrit.push(step),
            "patchset" => self.effects.gerrit.patchset(step),
            "approve" | "unapprove" | "vote" | "comment" | "abandon" | "restore" | "merge" => {
                self.effects.gerrit.change_step(step)
            }
            "job" => {
                self.rules.push(Rule::read(step)?);
                Ok(())
            }
            "release" => self.release(step),
            "finish" => self.finish(),
            "snapshot" => self.snapshot(step),
            "reconfigure" => self.load_tenant(),
            "enqueue" | "dequeue" => self.ask(step),
            "promote" => self.promote(step),
            "batch" => step.steps.iter().try_for_each(|inner| self.take(inner)),
            "branch" | "delete_branch" | "tag" => self.move_ref(step),
            "timer" => self.timer(step),
            "tick" => {
                let seconds = step.text("").and_then(|text| text.parse().ok()).unwrap_or(0);
                let moment = self.shell.now.plus_seconds(seconds);
                self.shell.wait_until(moment)
            }
            _ => Ok(()),
        }
    }

    /// A timer of a pipeline comes due for a branch of a project.
    fn timer(&mut self, step: &Step) -> Result<(), String> {
        let named = |key: &str| step.text(key).ok_or_else(|| format!("which {key}?"));
        let (pipeline, project) = (named("pipeline")?, canonical(&named("project")?));
        let branch = step.text("branch").unwrap_or_else(|| "master".to_owned());
        let fits = |key: &&TimerKey| {
            let timer = &key.timer;
            (&timer.pipeline, &timer.project, &timer.branch) == (&pipeline, &project, &branch)
        };
        let timers = &self.shell.live.gate.timers.rows;
        let Some((key, row)) = timers.iter().find(|(key, _)| fits(key)) else {
            return Err(format!("{pipeline} has no timer for {project} {branch}"));
        };
        let (TimerKey { tenant, timer }, count) = (key.clone(), row.count);
        let ticked = TimerTicked { tenant, timer, count, tick: self.shell.now, due: self.shell.now, missed: 0 };
        self.shell.say(TENANT, GateInput::TimerTicked(ticked))
    }

    fn snapshot(&mut self, step: &Step) -> Result<(), String> {
        let pipelines = match self.shell.live.gate.layouts.rows.get(TENANT) {
            Some(row) => {
                let layout: Layout = codec::decode(self.shell.get(&row.layout)?).map_err(|error| error.to_string())?;
                let kind =
                    |manager| (matches!(manager, Manager::Dependent | Manager::Serial), manager == Manager::Serial);
                let all = layout.pipelines_in_order();
                all.map(|one| (one.name.clone(), kind(one.manager).0, kind(one.manager).1)).collect()
            }
            None => Vec::new(),
        };
        let label = step.text("").unwrap_or_default();
        self.shell.seen.snapshot(&label, &self.shell.live, &pipelines);
        Ok(())
    }

    /// The builds that run now, in their order.
    fn running(&self) -> Vec<(BuildId, u32)> {
        let mut open: Vec<_> = self.shell.seen.builds.iter().filter(|build| build.open() && !build.paused).collect();
        open.sort_by(|one, two| one.order().cmp(&two.order()));
        open.into_iter().map(|build| build.id).collect()
    }

    fn release(&mut self, step: &Step) -> Result<(), String> {
        let selection = Selection::read(&step.value)?;
        for id in self.running() {
            let build = self.shell.seen.builds.iter().rev().find(|build| build.id == id);
            if build.is_some_and(|build| build.open() && selection.fits(build)) {
                self.let_go(id)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        for _ in 0..MAX_BUILDS {
            let Some(first) = self.running().first().copied() else { return Ok(()) };
            self.let_go(first)?;
        }
        Err(format!("more than {MAX_BUILDS} builds"))
    }

    fn let_go(&mut self, id: (BuildId, u32)) -> Result<(), String> {
        let Some(build) = self.shell.seen.builds.iter().rev().find(|build| build.id == id).cloned() else {
            return Ok(());
        };
        let rule = self.rules.iter_mut().rev().find_map(|rule| rule.takes(&build).then_some(&*rule));
        let (result, data) = rule.map_or(("SUCCESS", Value::Null), |rule| (rule.result.as_str(), rule.data.clone()));
        let result = result_of(result).ok_or_else(|| format!("nobody knows the result {result:?}"))?;
        let pauses = |data: &Value| {
            let told = data.as_map().and_then(|map| map.get("zuul")).and_then(Value::as_map);
            told.and_then(|map| map.get("pause")) == Some(&Value::Bool(true))
        };
        if result == BuildResult::Success && pauses(&data) {
            let (tenant, worker) = (TENANT.into(), "worker".into());
            let (build, attempt, secret_data, artifacts) = (id.0, id.1, None, Vec::new());
            let paused = AttemptPaused {
                tenant,
                build,
                attempt,
                worker,
                data,
                secret_data,
                artifacts,
                kept: Default::default(),
            };
            self.shell.say(TENANT, GateInput::AttemptPaused(paused))?;
            return self.settle();
        }
        self.end(id, result, data)?;
        self.settle()
    }

    fn ask(&mut self, step: &Step) -> Result<(), String> {
        let pipeline = step.text("pipeline").unwrap_or_default();
        let key = match step.text("change") {
            Some(name) => {
                let number = self.effects.gerrit.change(&name)?.number;
                self.effects.gerrit.key(number).ok_or("there is no such change")?
            }
            None => ChangeKey {
                project: canonical(&step.text("project").unwrap_or_default()),
                change: step.text("ref").unwrap_or_default(),
            },
        };
        let (tenant, reason) = (TENANT.to_owned(), String::new());
        let input: GateInput = if step.name == "enqueue" {
            EnqueueAsked {
                parameters: std::collections::BTreeMap::new(),
                tenant,
                pipeline,
                connection: CONNECTION.into(),
                change: key,
                reason,
                old_commit: None,
                new_commit: None,
            }
            .into()
        } else {
            DequeueAsked { tenant, pipeline, change: key, reason }.into()
        };
        self.shell.say(TENANT, input)
    }

    fn promote(&mut self, step: &Step) -> Result<(), String> {
        let mut changes = Vec::new();
        for name in texts(step.get("changes")) {
            let number = self.effects.gerrit.change(&name)?.number;
            changes.extend(self.effects.gerrit.key(number));
        }
        let pipeline = step.text("pipeline").unwrap_or_default();
        let asked = PromoteAsked { tenant: TENANT.into(), pipeline, changes, reason: String::new() };
        self.shell.say(TENANT, GateInput::PromoteAsked(asked))
    }

    fn move_ref(&mut self, step: &Step) -> Result<(), String> {
        let project = step.text("project").unwrap_or_default();
        let name = step.text("name").unwrap_or_default();
        let gerrit = &mut self.effects.gerrit;
        let repository = gerrit.repository(&project)?;
        match step.name.as_str() {
            "tag" => {
                let branch = step.text("branch").unwrap_or_else(|| "master".into());
                let tip = repository.tip(&branch).ok_or_else(|| format!("there is no branch {branch}"))?;
                let git_ref = format!("refs/tags/{name}");
                repository.set_ref(&git_ref, &tip)?;
                gerrit.tell_ref(&project, &git_ref, None, Some(tip));
            }
            "branch" => {
                let from = step.text("from").unwrap_or_else(|| "master".into());
                let tip = repository.tip(&from).ok_or_else(|| format!("there is no branch {from}"))?;
                let git_ref = format!("refs/heads/{name}");
                repository.set_ref(&git_ref, &tip)?;
                gerrit.tell_ref(&project, &git_ref, None, Some(tip));
            }
            _ => {
                let old = repository.tip(&name);
                let git_ref = format!("refs/heads/{name}");
                repository.drop_ref(&git_ref)?;
                gerrit.tell_ref(&project, &git_ref, old, None);
            }
        }
        Ok(())
    }

    // ---- what was seen ----

    fn observation(&self) -> Json {
        let changes: BTreeMap<u32, Json> = self
            .effects
            .gerrit
            .changes
            .values()
            .map(|change| {
                let state = json!({
                    "status": change.status.word(), "patchset": change.patchsets.len(), "verified": change.verified(),
                });
                (change.number, state)
            })
            .collect();
        let name = |number: u32| self.scenario.change_name(number);
        let changes: serde_json::Map<String, Json> =
            changes.into_iter().map(|(number, state)| (name(number), state)).collect();
        let told = |problem: &&Problem| problem.severity != gatelog_rules_config::Severity::Notice;
        let errors = self.effects.tenant_problems.iter().filter(told).map(config_error);
        json!({
            "scenario": self.scenario.name,
            "builds": self.shell.seen.builds_json(),
            "changes": changes,
            "merges": self.effects.gerrit.merges,
            "reports": self.shell.seen.reports_json(),
            "snapshots": self.shell.seen.snapshots,
            "config_errors": sorted_errors(errors),
        })
    }
}
