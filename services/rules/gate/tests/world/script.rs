//! The words of the scenarios.
//!
//! A line is one sentence; `#` begins a comment. After each sentence the world comes to rest. A block
//! follows lines that end in a colon: its lines are indented.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_gate_state::live::{BuildState, ItemRow, WaitKey};
use gatelog_record::draft::capacity::LeaseLost;
use gatelog_record::draft::gate::{
    AttemptFailing, AttemptPaused, BuildResult, DequeueAsked, TenantLoaded, TenantProject, WaitSubject, build_owner,
};
use gatelog_record::draft::intake::{ForgeEvent, TenantFile};
use gatelog_record::input::{GateInput, IntakeInput, PartitionInput};
use gatelog_record::{BlobHash, BuildId, ItemId, Value, codec};
use gatelog_rules_config::{TenantProject as ConfigProject, TenantSettings};

use super::forge::{CONNECTION, Change, Forge, Patchset, canonical};
use super::laws;
use super::shell::World;

pub const TENANT: &str = "acme";

/// Pipelines and a base job as nearly every story needs them.
const STANDARD: &str = "
- pipeline:
    name: check
    manager: independent
    trigger:
      git:
        - event: change-proposed
    success: {git: {}}
    failure: {git: {}}
    start: {git: {}}
- pipeline:
    name: gate
    manager: dependent
    require: {git: {approved: true, current-patchset: true}}
    trigger:
      git:
        - event: change-approved
    success: {git: {}}
    failure: {git: {}}
    start: {git: {}}
- job:
    name: base
    parent: null
    run: run.yaml
";

/// Plays a story; gives what it was asked to show.
pub fn play(text: &str) -> Result<String, String> {
    let mut story = Story::default();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let sentence = line.split('#').next().unwrap_or_default().trim_end();
        if sentence.trim().is_empty() {
            continue;
        }
        let mut block = String::new();
        if sentence.ends_with(':') {
            while let Some((_, next)) = lines.next_if(|(_, next)| next.starts_with(' ') || next.is_empty()) {
                block.push_str(next.strip_prefix("  ").unwrap_or(next));
                block.push('\n');
            }
        }
        let words: Vec<&str> = sentence.trim_end_matches(':').split_whitespace().collect();
        let told = story.say(&words, &block).and_then(|()| story.world.pump());
        told.map_err(|problem| format!("line {}: {sentence}\n  {problem}\n{}", number + 1, story.show()))?;
    }
    laws::begins_anew(&story.world)?;
    Ok(story.shown)
}

/// A story in the making.
#[derive(Default)]
pub struct Story {
    /// The world it happens in.
    pub world: World,
    config: String,
    pub files: BTreeMap<String, String>,
    /// Projects that are no longer in the tenant.
    left: BTreeSet<String>,
    /// Projects of which no configuration is read.
    pub plain: BTreeSet<String>,
    /// Events that are no longer asked about.
    pub forgotten: usize,
    max_dependencies: Option<i64>,
    max_changes: Option<i64>,
    version: u64,
    shown: String,
}

pub fn equal<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, found: T) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("{what}: expected {expected:?}, found {found:?}")) }
}

/// What a job returns that says which of the jobs that need it shall run.
fn child_jobs(children: &[&str]) -> Value {
    let list = children.iter().map(|name| Value::from(*name)).collect();
    let zuul = Value::Map(BTreeMap::from([("child_jobs".to_owned(), Value::List(list))]));
    Value::Map(BTreeMap::from([("zuul".to_owned(), zuul)]))
}

fn result_of(word: &str) -> Option<BuildResult> {
    use BuildResult::{Failure, NodeFailure, PostFailure, Retry, Skipped, Success, TimedOut};
    let known = [Failure, NodeFailure, PostFailure, Retry, Skipped, Success, TimedOut];
    known.into_iter().find(|result| result.word() == word)
}

impl Story {
    /// One sentence.
    pub fn say(&mut self, words: &[&str], block: &str) -> Result<(), String> {
        match words {
            ["project", name] => {
                self.files.entry((*name).to_owned()).or_default();
                Ok(())
            }
            ["standard", "config"] => {
                self.config.push_str(STANDARD);
                Ok(())
            }
            ["config"] => {
                self.config.push_str(block);
                Ok(())
            }
            ["config", "of", project] => {
                self.files.insert((*project).to_owned(), block.to_owned());
                Ok(())
            }
            ["start"] => self.start(),
            ["restart"] => self.load_tenants(),
            ["push", project, change, rest @ ..] => self.push(project, change, rest, block),
            ["approve", change] => {
                self.change(change)?.approved = true;
                self.event(change, "change-approved")
            }
            ["withdraw", change] => {
                self.change(change)?.approved = false;
                self.event(change, "approval-withdrawn")
            }
            ["abandon", change] => {
                self.change(change)?.open = false;
                self.event(change, "change-abandoned")
            }
            ["somebody", "pushes", project] | ["somebody", "pushes", project, "silently"] => {
                self.push_branch(project, words.len() == 3)
            }
            ["the", "forge", "tells", "of", project] => self.tell_branch(project, "master", None),
            ["an", "event", "of", project, "comes"] => {
                let event = self.forge_event(project, "master", "change-proposed", None);
                self.world.intake(&IntakeInput::ForgeEvent(event))
            }
            [one, "shares", "the", "ref", "of", other] => {
                let git_ref = self.world.forge.subject(other).ok_or("no such change")?.git_ref;
                self.change(one)?.git_ref = Some(git_ref);
                self.event(one, "change-edited")
            }
            [change, "gets", "topic", topic] => {
                self.change(change)?.topic = Some((*topic).to_owned());
                self.event(change, "change-edited")
            }
            ["the", "tenant", "file", "comes", "again"] => {
                let loaded = self.world.router.tenants.get(TENANT).cloned().ok_or("there is no tenant file yet")?;
                self.world.say(TENANT, GateInput::TenantLoaded(loaded))
            }
            [one, "conflicts", "with", other] => {
                self.world.forge.conflicts.insert(((*one).into(), (*other).into()));
                Ok(())
            }
            ["hold", kind] => {
                self.world.held.insert((*kind).to_owned());
                Ok(())
            }
            ["release", kind] => {
                self.world.held.remove(*kind);
                Ok(())
            }
            ["fail", kind, message @ ..] => {
                self.world.failing.insert((*kind).to_owned(), message.join(" "));
                Ok(())
            }
            ["fail-reading", project] => {
                self.world.failing.insert(format!("reading {project}"), "it does not answer".into());
                Ok(())
            }
            ["mend", kind] => {
                self.world.failing.remove(*kind);
                Ok(())
            }
            ["mend-reading", project] => {
                self.world.failing.remove(&format!("reading {project}"));
                Ok(())
            }
            ["wait", seconds] => {
                let seconds = seconds.trim_end_matches('s').parse::<i64>().map_err(|error| error.to_string())?;
                self.world.wait(seconds * 1_000)
            }
            ["jobs", "succeed"] => {
                self.world.auto_jobs = true;
                Ok(())
            }
            ["jobs", "wait"] => {
                self.world.auto_jobs = false;
                Ok(())
            }
            ["jobs", "of", change, "succeed"] => self.all_succeed(change, None),
            ["jobs", "of", change, "in", pipeline, "succeed"] => self.all_succeed(change, Some(pipeline)),
            ["job", job, "of", change, rest @ ..] => self.job(job, change, rest),
            ["ask", ..] | ["keep", ..] | ["the", "nodes", "of", "request", ..] => self.operator(words),
            ["something", "old", "is", "said", "again", number] => {
                let number: usize = number.parse().map_err(|_| "not a number")?;
                let back = self.world.said.len().saturating_sub(number + 1);
                let Some(record) = self.world.said.get(back).cloned() else { return Err("no such input".into()) };
                self.world.take(&record)
            }
            [change, "vanishes"] => {
                self.world.forge.changes.remove(*change);
                Ok(())
            }
            [project, "leaves", "the", "tenant"] => {
                self.left.insert((*project).to_owned());
                self.load_tenants()
            }
            ["an", "older", "tenant", "file", "comes"] => {
                let loaded = self.world.router.tenants.get(TENANT).cloned().ok_or("there is no tenant file yet")?;
                let older = TenantLoaded { version: loaded.version.saturating_sub(1), ..loaded };
                self.world.say(TENANT, GateInput::TenantLoaded(older))
            }
            [number, "changes", "hang", "together"] => {
                self.world.padded = number.parse().map_err(|_| "not a number")?;
                Ok(())
            }
            [project, "gets", "branch", branch] => {
                self.world.forge.branch(project, branch).ok_or("no such project")?;
                self.tell_branch(project, branch, None)
            }
            ["branch", branch, "of", project, "goes"] => {
                let one = self.world.forge.projects.get_mut(*project).ok_or("no such project")?;
                let old = one.branches.remove(*branch);
                self.tell_branch(project, branch, old)
            }
            ["an", "old", "answer", "to", kind, "comes"] => self.world.answer_late(kind),
            ["the", "tenant", "leaves"] => {
                self.version += 1;
                let file = TenantFile { version: self.version, file: BlobHash::default(), tenants: Vec::new() };
                self.world.intake(&IntakeInput::TenantFile(file))
            }
            ["the", "tenant", "allows", number, "changes", "in", "a", "pipeline"] => {
                self.max_changes = Some(number.parse().map_err(|_| "not a number")?);
                Ok(())
            }
            ["the", "tenant", "allows", number, "dependencies"] => {
                self.max_dependencies = Some(number.parse().map_err(|_| "not a number")?);
                Ok(())
            }
            ["say", "nonsense"] => self.nonsense(),
            ["show", "queue"] => {
                self.shown.push_str(&self.show());
                Ok(())
            }
            ["expect", rest @ ..] => self.expect(rest),
            _ => self.rarer(words),
        }
    }

    // ---- the site ----

    fn start(&mut self) -> Result<(), String> {
        let config = BTreeMap::from([("zuul.yaml".to_owned(), self.config.clone())]);
        self.world.forge.project("config", true, config);
        for (project, yaml) in self.files.clone() {
            let config = match yaml.is_empty() {
                true => BTreeMap::new(),
                false => BTreeMap::from([("zuul.yaml".to_owned(), yaml)]),
            };
            self.world.forge.project(&project, false, config);
        }
        self.load_tenants()
    }

    fn load_tenants(&mut self) -> Result<(), String> {
        self.version += 1;
        let names: Vec<(String, bool)> =
            self.world.forge.projects.iter().map(|(name, project)| (name.clone(), project.trusted)).collect();
        let names: Vec<_> = names.into_iter().filter(|(name, _)| !self.left.contains(name)).collect();
        let max_dependencies = self.max_dependencies;
        let max_changes_per_pipeline = self.max_changes;
        let name = TENANT.into();
        let mut settings =
            TenantSettings { name, max_dependencies, max_changes_per_pipeline, ..TenantSettings::default() };
        let mut projects = Vec::new();
        for (name, trusted) in names {
            let mut project = ConfigProject::new(CONNECTION, &name, trusted);
            project.canonical_name = canonical(&name);
            settings.projects.push(project);
            projects.push(TenantProject {
                connection: CONNECTION.into(),
                project: canonical(&name),
                trusted,
                reads_config: !self.plain.contains(&name),
            });
        }
        settings.projects.sort_by_key(|project| !project.trusted);
        let bytes = codec::encode(&settings).map_err(|error| error.to_string())?;
        let settings = self.world.put(&bytes);
        let tenant = TenantLoaded {
            tenant: TENANT.into(),
            version: self.version,
            settings,
            web_root: "https://gate".into(),
            projects,
        };
        let file = TenantFile { version: self.version, file: BlobHash::default(), tenants: vec![tenant] };
        self.world.intake(&IntakeInput::TenantFile(file))
    }

    // ---- the forge ----

    fn change(&mut self, name: &str) -> Result<&mut Change, String> {
        self.world.forge.changes.get_mut(name).ok_or_else(|| format!("there is no change {name}"))
    }

    fn forge_event(&self, project: &str, branch: &str, event: &str, change: Option<&str>) -> ForgeEvent {
        let subject = change.and_then(|change| self.world.forge.subject(change));
        ForgeEvent {
            connection: CONNECTION.into(),
            project: canonical(project),
            event: event.into(),
            branch: Some(branch.into()),
            git_ref: subject.as_ref().map_or(format!("refs/heads/{branch}"), |subject| subject.git_ref.clone()),
            change: subject.as_ref().and_then(|subject| subject.change.clone()),
            patchset: subject.as_ref().and_then(|subject| subject.patchset.clone()),
            commit: subject.and_then(|subject| subject.commit),
            old_commit: None,
            attributes: Value::Null,
            delivery: self.world.intake.to_string(),
            raw: None,
        }
    }

    pub fn event(&mut self, change: &str, event: &str) -> Result<(), String> {
        let (project, branch) = {
            let change = self.change(change)?;
            (change.project.clone(), change.branch.clone())
        };
        let event = self.forge_event(&project, &branch, event, Some(change));
        self.world.intake(&IntakeInput::ForgeEvent(event))
    }

    fn push(&mut self, project: &str, name: &str, rest: &[&str], block: &str) -> Result<(), String> {
        let mut patchset = Patchset { files: vec!["src/lib.rs".into()], ..Patchset::default() };
        let (mut kind, mut topic, mut branch) = ("", None, "master");
        for word in rest {
            match *word {
                "depends-on" | "stacked-on" | "built-on" | "files" | "with" | "topic" | "branch" | "names" => {
                    kind = word
                }
                word => match kind {
                    "depends-on" => patchset.depends_on.push(word.to_owned()),
                    "stacked-on" => patchset.stacked_on.push(word.to_owned()),
                    "built-on" => patchset.built_on = self.world.forge.subject(word),
                    "topic" => topic = Some(word.to_owned()),
                    "names" => patchset.names.push(word.to_owned()),
                    "branch" => branch = word,
                    "files" => {
                        patchset.files.retain(|file| file != "src/lib.rs");
                        patchset.files.push(word.to_owned());
                    }
                    "with" => {
                        patchset.config.insert(word.to_owned(), block.to_owned());
                    }
                    _ => return Err(format!("nobody understands {word:?}")),
                },
            }
        }
        let change = self.world.forge.changes.entry(name.to_owned()).or_default();
        change.project = project.to_owned();
        change.branch = branch.into();
        change.open = true;
        change.topic = topic.or(change.topic.take());
        // An approval counts for the patchset it was given to.
        change.approved = false;
        change.patchsets.push(patchset);
        self.event(name, "change-proposed")
    }

    fn push_branch(&mut self, project: &str, tell: bool) -> Result<(), String> {
        let old = self.world.forge.tip(project, "master");
        let tree = self.world.forge.tree(old.as_deref().unwrap_or_default());
        let how = format!("somebody {}", self.world.now.0);
        let new = self.world.forge.commit(&how, tree);
        self.world.forge.pushed.insert(project.to_owned());
        let one = self.world.forge.projects.get_mut(project).ok_or("no such project")?;
        one.branches.insert("master".into(), new);
        if tell { self.tell_branch(project, "master", old) } else { Ok(()) }
    }

    fn tell_branch(&mut self, project: &str, branch: &str, old: Option<String>) -> Result<(), String> {
        let commit = self.world.forge.tip(project, branch);
        let event = self.forge_event(project, branch, "ref-updated", None);
        self.world.intake(&IntakeInput::ForgeEvent(ForgeEvent { commit, old_commit: old, ..event }))
    }

    fn nonsense(&mut self) -> Result<(), String> {
        use gatelog_record::draft::capacity::WorkerSilent;
        use gatelog_record::input::CapacityInput;
        let before = self.world.events.len();
        let wrong =
            CapacityInput::WorkerSilent(WorkerSilent { worker: "w".into(), incarnation: "1".into(), silent_ms: 1 });
        match self.world.say(TENANT, wrong) {
            Err(problem) if problem.contains("not for this domain") => {}
            other => return Err(format!("an input for another domain was taken: {other:?}")),
        }
        equal("events", before, self.world.events.len())?;
        let asked = DequeueAsked {
            tenant: "somebody-else".into(),
            pipeline: "gate".into(),
            change: gatelog_record::draft::gate::ChangeKey { project: "x".into(), change: "y".into() },
            reason: String::new(),
        };
        self.world.say(TENANT, GateInput::DequeueAsked(asked))?;
        self.expect(&["event", "input-refused", "wrong-key"])
    }

    // ---- workers ----

    fn items(&self, change: &str, pipeline: Option<&str>) -> Vec<(ItemId, &ItemRow)> {
        let rows = self.world.live.gate.items.rows.iter();
        let mut items: Vec<(ItemId, &ItemRow)> = rows
            .filter(|(_, row)| {
                row.live
                    && pipeline.is_none_or(|pipeline| row.pipeline == pipeline)
                    && row
                        .subjects
                        .iter()
                        .any(|one| Forge::short(one.change.as_deref().unwrap_or(&one.git_ref)) == change)
            })
            .map(|(id, row)| (*id, row))
            .collect();
        items.sort_by_key(|(_, row)| row.enqueued);
        items
    }

    pub fn item(&self, change: &str, pipeline: Option<&str>) -> Result<(ItemId, &ItemRow), String> {
        self.items(change, pipeline).pop().ok_or_else(|| format!("{change} is in no pipeline"))
    }

    fn builds(&self, change: &str, pipeline: Option<&str>) -> Result<Vec<BuildId>, String> {
        let (_, row) = self.item(change, pipeline)?;
        let set = row.buildset.and_then(|set| self.world.live.gate.buildsets.rows.get(&set));
        Ok(set.map(|set| set.builds.clone()).unwrap_or_default())
    }

    pub fn build(&self, job: &str, change: &str, pipeline: Option<&str>) -> Result<BuildId, String> {
        let builds = self.builds(change, pipeline)?;
        let found = builds
            .into_iter()
            .find(|id| self.world.live.gate.builds.rows.get(id).is_some_and(|row| row.job.name == job));
        found.ok_or_else(|| format!("{change} has no job {job}"))
    }

    fn all_succeed(&mut self, change: &str, pipeline: Option<&str>) -> Result<(), String> {
        for _ in 0..100 {
            self.world.pump()?;
            let Ok(builds) = self.builds(change, pipeline) else { return Ok(()) };
            let rows = &self.world.live.gate.builds.rows;
            let next = builds.into_iter().find(|id| rows.get(id).is_some_and(|row| row.holds_lease()));
            let Some(build) = next else { return Ok(()) };
            let attempt = rows.get(&build).map_or(1, |row| row.attempt);
            self.world.end_build(build, attempt, BuildResult::Success, Value::Null)?;
        }
        Ok(())
    }

    fn job(&mut self, job: &str, change: &str, rest: &[&str]) -> Result<(), String> {
        let (pipeline, rest) = match rest {
            ["in", pipeline, rest @ ..] => (Some(*pipeline), rest),
            rest => (None, rest),
        };
        let build = self.build(job, change, pipeline)?;
        let row = self.world.live.gate.builds.rows.get(&build).cloned().ok_or("no such build")?;
        let lost = |refused| LeaseLost {
            owner: build_owner(TENANT, build, row.attempt),
            refused,
            code: if refused { "unknown-label" } else { "worker-lost" }.into(),
            message: "the worker is gone".into(),
        };
        let mut end = |result| self.world.end_build(build, row.attempt, result, Value::Null);
        match rest {
            ["starts"] => self.world.start_build(build),
            ["succeeds"] => end(BuildResult::Success),
            ["fails"] => end(BuildResult::Failure),
            ["pauses", rest @ ..] => {
                if row.state == BuildState::Leased {
                    self.world.start_build(build)?;
                }
                let data = match rest {
                    ["with", "children", children @ ..] => child_jobs(children),
                    _ => Value::Null,
                };
                let (tenant, worker) = (TENANT.into(), "worker-1".into());
                let (attempt, secret_data, artifacts) = (row.attempt, None, Vec::new());
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
                self.world.say(TENANT, GateInput::AttemptPaused(paused))
            }
            ["will", "fail"] => {
                if row.state == BuildState::Leased {
                    self.world.start_build(build)?;
                }
                let (tenant, worker) = (TENANT.into(), "worker-1".into());
                let detail = "a task failed".into();
                let failing = AttemptFailing { tenant, build, attempt: row.attempt, worker, detail };
                self.world.say(TENANT, GateInput::AttemptFailing(failing))
            }
            ["ends", word] => end(result_of(word).ok_or_else(|| format!("no result is called {word}"))?),
            ["retries"] => end(BuildResult::Retry),
            ["cannot", "reach", "its", "node"] => end(BuildResult::Unreachable),
            ["aborts"] => end(BuildResult::Aborted),
            ["loses", "its", "worker"] => {
                self.world.leases.remove(&(build, row.attempt));
                self.world.say(TENANT, PartitionInput::LeaseLost(lost(false)))
            }
            ["gets", "no", "node"] => {
                self.world.leases.remove(&(build, row.attempt));
                self.world.say(TENANT, PartitionInput::LeaseLost(lost(true)))
            }
            ["succeeds", "saying", words @ ..] => self.world.end_saying(build, row.attempt, &words.join(" ")),
            ["succeeds", "again"] => self.world.end_build(build, row.attempt, BuildResult::Success, Value::Null),
            ["reports", "attempt", attempt] => {
                let attempt = attempt.parse().map_err(|_| "not a number")?;
                self.world.end_build(build, attempt, BuildResult::Success, Value::Null)
            }
            ["succeeds", "with", "children", children @ ..] => {
                self.world.end_build(build, row.attempt, BuildResult::Success, child_jobs(children))
            }
            ["aborts", times, "times"] => {
                let times: u32 = times.parse().map_err(|_| "not a number")?;
                for attempt in row.attempt..row.attempt + times {
                    self.world.end_build(build, attempt, BuildResult::Aborted, Value::Null)?;
                    self.world.pump()?;
                }
                Ok(())
            }
            other => Err(format!("nobody understands {:?}", other.join(" "))),
        }
    }

    // ---- expectations ----

    fn queue(&self, pipeline: &str) -> Vec<String> {
        let gate = &self.world.live.gate;
        let queues = gate.queues.rows.iter().filter(|(key, _)| key.1 == pipeline);
        let mut items: Vec<(u64, ItemId, usize)> = queues
            .flat_map(|(_, row)| row.items.iter().enumerate())
            .filter_map(|(index, item)| Some((gate.items.rows.get(item)?.enqueued, *item, index)))
            .collect();
        items.sort_unstable();
        items.into_iter().map(|(_, item, _)| self.name(item)).collect()
    }

    fn name(&self, item: ItemId) -> String {
        let Some(row) = self.world.live.gate.items.rows.get(&item) else { return item.to_string() };
        let names = row.subjects.iter().map(|one| one.change.clone().unwrap_or_else(|| one.git_ref.clone()));
        let names: Vec<String> = names.map(|name| Forge::short(&name).to_owned()).collect();
        let name = names.join("+");
        if row.live { name } else { format!("({name})") }
    }

    fn expect(&mut self, words: &[&str]) -> Result<(), String> {
        let owned = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
        match words {
            ["queue", pipeline, rest @ ..] => {
                let expected = if rest == ["empty"] { Vec::new() } else { owned(rest) };
                equal("queue", expected, self.queue(pipeline))
            }
            ["merged", rest @ ..] => {
                let expected = if rest == ["nothing"] { Vec::new() } else { owned(rest) };
                equal("merged", expected, self.world.merged.clone())
            }
            ["builds", "of", change, rest @ ..] => {
                let (pipeline, rest) = match rest {
                    ["in", pipeline, rest @ ..] => (Some(*pipeline), rest),
                    rest => (None, rest),
                };
                let builds = self.builds(change, pipeline)?;
                let rows = builds.iter().filter_map(|id| self.world.live.gate.builds.rows.get(id));
                let found: Vec<String> = rows
                    .map(|row| {
                        let state = format!("{:?}", row.state).to_lowercase();
                        format!("{}={}", row.job.name, row.result.map_or(state, |result| result.word().to_owned()))
                    })
                    .collect();
                let expected = if rest == ["none"] { Vec::new() } else { owned(rest) };
                equal("builds", expected, found)
            }
            ["attempt", number, "of", job, "of", change] => {
                let build = self.build(job, change, None)?;
                let found = self.world.live.gate.builds.rows.get(&build).map_or(0, |row| row.attempt);
                equal("attempt", *number, found.to_string().as_str())
            }
            ["tested", change, "on", rest @ ..] => {
                let (_, row) = self.item(change, None)?;
                let steps = row.buildset.and_then(|set| self.world.live.gate.chains.rows.get(&set));
                let chain = steps.ok_or("it has no buildset")?.iter().filter_map(|step| step.subject.change.as_deref());
                let mut found: Vec<String> = chain.map(|change| Forge::short(change).to_owned()).collect();
                found.pop();
                let expected = if rest == ["nothing"] { Vec::new() } else { owned(rest) };
                equal("tested on", expected, found)
            }
            ["resets", "of", change, number] => {
                let (_, row) = self.item(change, None)?;
                equal("resets", *number, row.resets.to_string().as_str())
            }
            ["failing", change, rest @ ..] => {
                let (_, row) = self.item(change, Some("gate")).or_else(|_| self.item(change, None))?;
                let expected = rest.join(" ");
                let expected = if expected == "nothing" { String::new() } else { expected };
                equal("failing", expected, row.failing.join(", "))
            }
            ["window", pipeline, rest @ ..] => {
                let queues = self.world.live.gate.queues.rows.iter();
                let found: Vec<u32> = queues.filter(|(key, _)| key.1 == *pipeline).map(|(_, row)| row.window).collect();
                equal("window", owned(rest), found.iter().map(u32::to_string).collect())
            }
            ["wait", "of", change, code] => {
                let (id, _) = self.item(change, None)?;
                let row = self.world.live.gate.waits.rows.get(&WaitKey(WaitSubject::Item(id)));
                equal("wait", *code, row.map_or("nothing", |row| row.code.word()))
            }
            ["wait", "of", change, code, "for", seconds] => {
                let (id, _) = self.item(change, None)?;
                let row = self.world.live.gate.waits.rows.get(&WaitKey(WaitSubject::Item(id)));
                let row = row.filter(|row| row.code.word() == *code).ok_or("it does not wait for that")?;
                equal("waited", *seconds, format!("{}s", self.world.now.millis_since(row.since) / 1_000).as_str())
            }
            ["wait", "of", "job", job, "of", change, code] => {
                let build = self.build(job, change, None)?;
                let row = self.world.live.gate.waits.rows.get(&WaitKey(WaitSubject::Build(build)));
                equal("wait", *code, row.map_or("nothing", |row| row.code.word()))
            }
            ["triggers", rest @ ..] => {
                let waits = &self.world.live.gate.waits.rows;
                let triggers = self.world.live.gate.triggers.rows.keys();
                let found: Vec<String> = triggers
                    .map(|(_, trigger)| waits.get(&WaitKey(WaitSubject::Trigger(*trigger))))
                    .map(|row| row.map_or("nothing".to_owned(), |row| row.code.word().to_owned()))
                    .collect();
                let expected = if rest == ["none"] { Vec::new() } else { owned(rest) };
                equal("triggers", expected, found)
            }
            ["report", change, pipeline, action] => {
                let position = self.world.reports.iter().position(|report| {
                    let changes = report.subjects.iter().map(|one| one.change.as_deref().unwrap_or(&one.git_ref));
                    report.pipeline == *pipeline
                        && report.action.word() == *action
                        && changes.map(Forge::short).any(|name| name == *change)
                });
                let position = position.ok_or("there is no such report")?;
                self.world.last_report = Some(self.world.reports.remove(position));
                Ok(())
            }
            ["no", "more", "reports"] => {
                let left: Vec<String> = self.world.reports.iter().map(describe).collect();
                equal("reports", Vec::new(), left)
            }
            ["forget", "reports"] => {
                self.world.reports.clear();
                Ok(())
            }
            ["it", "says", rest @ ..] => {
                let text = rest.join(" ");
                let said = self.world.last_report.as_ref().map(|report| report.message.clone()).unwrap_or_default();
                let flat = said.split_whitespace().collect::<Vec<_>>().join(" ");
                if flat.contains(&text) { Ok(()) } else { Err(format!("it says {said:?}")) }
            }
            ["it", "does", "not", "say", rest @ ..] => {
                let said = self.world.last_report.as_ref().ok_or("there was no report")?.message.clone();
                if said.contains(&rest.join(" ")) { Err(format!("it says {said:?}")) } else { Ok(()) }
            }
            ["remark", project, path, line] => {
                let remarks =
                    self.world.last_report.as_ref().map(|report| report.remarks.as_slice()).unwrap_or_default();
                let said: Vec<String> = remarks
                    .iter()
                    .map(|remark| {
                        format!(
                            "{} {} {}",
                            remark.project.rsplit('/').next().unwrap_or_default(),
                            remark.path,
                            remark.line
                        )
                    })
                    .collect();
                if said.contains(&format!("{project} {path} {line}")) {
                    Ok(())
                } else {
                    Err(format!("it remarks on {said:?}"))
                }
            }
            ["no", "remarks"] => {
                let remarks = self.world.last_report.as_ref().map_or(0, |report| report.remarks.len());
                equal("remarks", 0, remarks)
            }
            ["event", kind, rest @ ..] => {
                if self.has_event(kind, rest) {
                    Ok(())
                } else {
                    Err("there is no such event".into())
                }
            }
            ["no", "event", kind, rest @ ..] => {
                if self.has_event(kind, rest) {
                    Err("there is such an event".into())
                } else {
                    Ok(())
                }
            }
            ["pending", rest @ ..] => {
                let mut found: Vec<String> = self
                    .world
                    .live
                    .gate
                    .pending_work
                    .rows
                    .values()
                    .map(|row| format!("{}/{}", row.work.kind(), row.attempt))
                    .collect();
                found.sort();
                let expected = if rest == ["nothing"] { Vec::new() } else { owned(rest) };
                equal("pending", expected, found)
            }
            ["layouts", number] => {
                let found = self.world.live.gate.layouts.rows.get(TENANT).map_or(0, |row| row.generation);
                equal("layouts", *number, found.to_string().as_str())
            }
            ["leases", number] => equal("leases", *number, self.world.leases.len().to_string().as_str()),
            _ => self.expect_more(words),
        }
    }

    fn has_event(&self, kind: &str, words: &[&str]) -> bool {
        self.world.events.iter().skip(self.forgotten).any(|record| {
            let name = record.event.name();
            let text = record.to_json()["body"].to_string();
            (name == kind || name.strip_prefix("gate.") == Some(kind)) && words.iter().all(|word| text.contains(word))
        })
    }

    /// Everything in the pipelines, for people.
    pub fn show(&self) -> String {
        let gate = &self.world.live.gate;
        let mut text = String::new();
        for (key, queue) in &gate.queues.rows {
            text.push_str(&format!("  {} {} (window {}):\n", key.1, key.2, queue.window));
            for item in &queue.items {
                let Some(row) = gate.items.rows.get(item) else { continue };
                let wait = gate.waits.rows.get(&WaitKey(WaitSubject::Item(*item)));
                let wait = wait.map_or("nothing".to_owned(), |row| format!("{} ({})", row.code.word(), row.detail));
                text.push_str(&format!("    {} waits for {wait}, failing {:?}\n", self.name(*item), row.failing));
                let set = row.buildset.and_then(|set| gate.buildsets.rows.get(&set));
                for build in set.map(|set| set.builds.as_slice()).unwrap_or_default() {
                    let Some(row) = gate.builds.rows.get(build) else { continue };
                    text.push_str(&format!(
                        "      {} {:?} attempt {} {:?}\n",
                        row.job.name, row.state, row.attempt, row.result
                    ));
                }
            }
        }
        for report in &self.world.reports {
            text.push_str(&format!("  report {}\n", describe(report)));
        }
        text.push_str(&format!("  merged {:?}, last events:\n", self.world.merged));
        for record in self.world.events.iter().rev().take(6).rev() {
            let mut body = record.to_json()["body"].to_string();
            body.truncate(140);
            text.push_str(&format!("    {} {body}\n", record.event.name()));
        }
        text
    }
}

fn describe(report: &gatelog_record::draft::gate::ReportRequested) -> String {
    let changes: Vec<&str> =
        report.subjects.iter().map(|one| Forge::short(one.change.as_deref().unwrap_or(&one.git_ref))).collect();
    format!("{} {} {}", changes.join("+"), report.pipeline, report.action.word())
}
