//! What is seen while a scenario is played: builds, reports, queues.

use std::collections::BTreeMap;

use gatelog_gate_state::live::{BuildRow, BuildState, GateLive, ItemRow, Phase, ProblemKind};
use gatelog_record::draft::gate::{BuildResult, ItemResult, MergeStep, ReportAction, Subject};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildId, BuildsetId, Event, EventRecord, ItemId, Value};
use gatelog_rules_config::Problem;
use gatelog_rules_gate::{AHEAD_INVALID, NEEDED_FAILING};
use gatelog_tables::Maps;
use serde_json::{Value as Json, json};

use crate::errors::{config_error, sorted_errors, without_place};
use crate::gerrit::{HOST, local};
use crate::standing::{QueueKey, Standing};

/// Where something stands in an order: kind, number, patchset, name.
pub type Key = (u8, u32, u32, String);

/// The order of queues: name, branch, what stands last.
type QueueOrder = (String, String, Vec<Key>);

/// One run of a build.
#[derive(Clone, Debug)]
pub struct Build {
    /// The build and which attempt of it.
    pub id: (BuildId, u32),
    /// The job.
    pub job: String,
    /// The pipeline.
    pub pipeline: String,
    /// The project.
    pub project: String,
    /// In a cycle: the members it belongs to.
    pub for_members: Vec<String>,
    /// What is tested together, ahead first.
    pub changes: Vec<String>,
    /// The order of that.
    pub key: Vec<Key>,
    /// How it ended.
    pub result: Option<String>,
    /// The step it began in.
    pub start: usize,
    /// The step it ended in.
    pub end: Option<usize>,
    end_round: Option<u64>,
    /// Whether it waits for others before it ends.
    pub paused: bool,
    /// Whether it has all it needs to run.
    pub begun: bool,
}

impl Build {
    /// Its place in the order of builds.
    pub fn order(&self) -> (&[Key], &str, &str, String) {
        (&self.key, &self.pipeline, &self.job, self.for_members.join("+"))
    }

    /// Whether it began and has not ended.
    pub fn open(&self) -> bool {
        self.begun && self.result.is_none()
    }
}

struct Report {
    round: u64,
    pipeline: String,
    key: Vec<Key>,
    item: Option<ItemId>,
    text: serde_json::Map<String, Json>,
}

/// Everything that was seen.
#[derive(Default)]
pub struct Observer {
    names: BTreeMap<u32, String>,
    /// The number of the step that is taken.
    pub step: usize,
    /// How often the world has settled.
    pub round: u64,
    /// Builds in the order in which they began.
    pub builds: Vec<Build>,
    reports: Vec<Report>,
    refused: Option<(String, String)>,
    paused: BTreeMap<BuildId, Value>,
    /// Builds that were paused and may go on: the attempt, and what the job returned.
    pub resumed: Vec<(BuildId, u32, Value)>,
    /// Behind whom each item stands.
    pub standing: Standing,
    /// Snapshots as they were taken.
    pub snapshots: Vec<Json>,
}

fn failing_words(reason: &str) -> String {
    match reason.split(' ').next().unwrap_or_default() {
        "job-failed" | "all-skipped" => "at least one job failed",
        NEEDED_FAILING => "a needed change is failing",
        "merge-conflict" => "it has a merge conflict",
        "config-error" => "it has an invalid configuration",
        other => other,
    }
    .to_owned()
}

impl Observer {
    /// An observer who knows the names of changes by number.
    pub fn new(names: BTreeMap<u32, String>) -> Observer {
        Observer { names, ..Observer::default() }
    }

    fn number(subject: &Subject) -> Option<u32> {
        subject.change.as_deref()?.parse().ok()
    }

    /// `A,1`, or `org/a@refs/heads/master`.
    pub fn name(&self, subject: &Subject) -> String {
        match Self::number(subject) {
            Some(number) => {
                let name = self.names.get(&number).cloned().unwrap_or_else(|| format!("#{number}"));
                format!("{name},{}", subject.patchset.as_deref().unwrap_or_default())
            }
            None => format!("{}@{}", local(&subject.project), subject.git_ref),
        }
    }

    fn key(&self, subject: &Subject) -> Key {
        match Self::number(subject) {
            Some(number) => {
                let patchset = subject.patchset.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default();
                (0, number, patchset, String::new())
            }
            None => (1, 0, 0, self.name(subject)),
        }
    }

    fn sorted<'s>(&self, subjects: impl IntoIterator<Item = &'s Subject>) -> Vec<&'s Subject> {
        let mut subjects: Vec<&Subject> = subjects.into_iter().collect();
        subjects.sort_by_key(|subject| self.key(subject));
        subjects
    }

    fn names_of<'s>(&self, subjects: impl IntoIterator<Item = &'s Subject>) -> Vec<String> {
        self.sorted(subjects).into_iter().map(|subject| self.name(subject)).collect()
    }

    fn tested(&self, steps: &[MergeStep]) -> (Vec<String>, Vec<Key>) {
        let (mut names, mut keys) = (Vec::new(), Vec::new());
        for group in steps.chunk_by(|one, two| one.item == two.item) {
            let subjects = self.sorted(group.iter().map(|step| &step.subject));
            names.push(subjects.iter().map(|subject| self.name(subject)).collect::<Vec<_>>().join("+"));
            keys.extend(subjects.iter().map(|subject| self.key(subject)));
        }
        (names, keys)
    }

    /// Sees an event before it is folded.
    pub fn see(&mut self, record: &EventRecord, live: &GateLive<Maps>, problems: &BTreeMap<BuildsetId, Vec<Problem>>) {
        let Event::Gate(event) = &record.event else { return };
        match event {
            GateEvent::LeaseWanted(wanted) => {
                let gate = &live.gate;
                let Some(build) = gate.builds.rows.get(&wanted.build) else { return };
                let Some(steps) = gate.chains.rows.get(&wanted.buildset) else { return };
                let Some(item) = gate.items.rows.get(&wanted.item) else { return };
                let (changes, key) = self.tested(steps);
                let members = self.members(build, item);
                let primary = build.job.traits.changes.first().and_then(|at| item.subjects.get(*at as usize));
                let project = primary.or(item.subjects.first()).map(|subject| local(&subject.project).to_owned());
                self.builds.push(Build {
                    id: (wanted.build, wanted.attempt),
                    job: build.job.name.clone(),
                    pipeline: item.pipeline.clone(),
                    project: project.unwrap_or_default(),
                    for_members: if item.subjects.len() > 1 { self.names_of(members) } else { Vec::new() },
                    changes,
                    key,
                    result: None,
                    start: self.step,
                    end: None,
                    end_round: None,
                    paused: false,
                    begun: true,
                });
            }
            // It has its nodes and waits for a semaphore.
            GateEvent::BuildReady(event) => {
                let id = (event.started.build, event.started.attempt);
                if let Some(build) = self.builds.iter_mut().rev().find(|build| build.id == id) {
                    build.begun = false;
                }
            }
            GateEvent::BuildStarted(event) => {
                let (id, step) = ((event.started.build, event.started.attempt), self.step);
                if let Some(build) = self.builds.iter_mut().rev().find(|build| build.id == id && !build.begun) {
                    build.begun = true;
                    build.start = step;
                }
            }
            GateEvent::BuildFinished(event) => {
                self.end((event.finished.build, event.finished.attempt), event.finished.result.word());
            }
            GateEvent::LeaseEndWanted(event) if event.reason == "canceled" => {
                // What was just told to go on is at its end before it hears that it is not wanted any more.
                let goes_on = self.resumed.iter().any(|(build, ..)| *build == event.build);
                self.end((event.build, event.attempt), if goes_on { "SUCCESS" } else { "ABORTED" });
            }
            GateEvent::BuildPaused(event) => {
                self.paused.insert(event.paused.build, event.paused.data.clone());
                self.set_paused((event.paused.build, event.paused.attempt), true);
            }
            GateEvent::BuildResumed(event) => {
                let data = self.paused.remove(&event.build).unwrap_or_default();
                self.resumed.push((event.build, event.attempt, data));
            }
            GateEvent::EnqueueRefused(event) => self.refused = Some((event.code.clone(), event.detail.clone())),
            GateEvent::ReportRequested(event) => {
                let mut text = serde_json::Map::new();
                text.insert("step".into(), json!(self.step));
                text.insert("pipeline".into(), json!(event.pipeline));
                text.insert("action".into(), json!(event.action.word()));
                text.insert("changes".into(), json!(self.names_of(&event.subjects)));
                let item = event.item.and_then(|item| live.gate.items.rows.get(&item));
                // Whether the result is known only when the item leaves.
                let mut later = false;
                match (event.action, item) {
                    (ReportAction::Start | ReportAction::Enqueue, _) => {}
                    // Also what is promoted, which stays.
                    (ReportAction::Dequeue, _) => {
                        text.insert("result".into(), json!("DEQUEUED"));
                        text.insert("class".into(), json!(["dequeued"]));
                    }
                    (action, Some(item)) => {
                        later = true;
                        // These are put where they belong.
                        for key in ["result", "class"] {
                            text.insert(key.into(), Json::Null);
                        }
                        self.causes(&mut text, (action, item), live, problems);
                    }
                    (_, None) => {
                        let (code, detail) = self.refused.take().unwrap_or_default();
                        text.insert("result".into(), json!("FAILURE"));
                        self.reason(&mut text, &code, &detail, None, live);
                    }
                }
                let key = self.sorted(&event.subjects).into_iter().map(|subject| self.key(subject)).collect();
                let (round, pipeline) = (self.round, event.pipeline.clone());
                self.reports.push(Report { round, pipeline, key, item: event.item.filter(|_| later), text });
            }
            GateEvent::ItemDequeued(event) => {
                let Some(at) = self.reports.iter().rposition(|report| report.item == Some(event.item)) else { return };
                let item = live.gate.items.rows.get(&event.item);
                let mut text = std::mem::take(&mut self.reports[at].text);
                text.insert("result".into(), json!(event.result.word()));
                let warnings = item.map(|item| warnings(item, live)).unwrap_or_default();
                // What reporter jobs came to is told nobody.
                let was_told = event.result == ItemResult::Success || event.code == "reporter-failed";
                if was_told {
                    text.insert("result".into(), json!("SUCCESS"));
                    let class = if warnings.is_empty() { vec!["success".to_owned()] } else { warnings };
                    text.insert("class".into(), json!(class));
                } else {
                    self.reason(&mut text, &event.code, &event.detail, item, live);
                }
                // Of what has no jobs only wrong configuration is said.
                if event.result == ItemResult::NoJobs && !text.contains_key("config_errors") {
                    text.insert("class".into(), json!(["no_jobs"]));
                }
                let in_circle = item.is_some_and(|item| item.subjects.len() > 1);
                let not_merged = matches!(event.code.as_str(), "already-merged" | "merge-failure" | "not-submitted");
                if event.result == ItemResult::MergeFailure && not_merged && !in_circle {
                    text.insert("result".into(), json!("SUCCESS"));
                    text.insert("class".into(), json!(["success"]));
                } else if event.result == ItemResult::MergeFailure && not_merged {
                    text.insert("action".into(), json!("merge-failure"));
                    text.insert("class".into(), json!(["merge_failure"]));
                }
                self.reports[at].text = text;
                self.reports[at].item = None;
                // Of a circle the success was told before it was merged.
                for report in self.reports.iter_mut().filter(|report| report.item == Some(event.item)) {
                    report.text.insert("result".into(), json!("SUCCESS"));
                    report.text.insert("class".into(), json!(["success"]));
                    report.item = None;
                }
            }
            _ => {}
        }
    }

    /// The changes of an item that a build is for.
    fn members<'s>(&self, build: &BuildRow, item: &'s ItemRow) -> Vec<&'s Subject> {
        let changes = &build.job.traits.changes;
        let own = |at: usize| changes.is_empty() || u32::try_from(at).is_ok_and(|at| changes.contains(&at));
        self.sorted(item.subjects.iter().enumerate().filter(|(at, _)| own(*at)).map(|(_, subject)| subject))
    }

    fn set_paused(&mut self, id: (BuildId, u32), paused: bool) {
        if let Some(build) = self.builds.iter_mut().rev().find(|build| build.id == id) {
            build.paused = paused;
        }
    }

    fn end(&mut self, id: (BuildId, u32), result: &str) {
        let (step, round) = (self.step, self.round);
        if let Some(build) = self.builds.iter_mut().rev().find(|build| build.id == id && build.result.is_none()) {
            build.result = Some(result.to_owned());
            build.end = Some(step);
            build.end_round = Some(round);
        }
    }

    /// Why something is said, in the words of an observation.
    fn reason(
        &self,
        text: &mut serde_json::Map<String, Json>,
        code: &str,
        detail: &str,
        item: Option<&ItemRow>,
        live: &GateLive<Maps>,
    ) {
        let set = item.and_then(|item| item.buildset).and_then(|set| live.gate.buildsets.rows.get(&set));
        let kind = set.and_then(|set| set.problem.as_ref()).map(|problem| problem.kind);
        let mut class = Vec::new();
        let needs_failing = item.is_some_and(|item| item.failing.iter().any(|one| one == "needed-failing"));
        match code {
            "needs-gone" | "needs-missing" | "needs-abandoned" | "needs-outdated" | "circle-abandoned" => {
                class.push("dependency-failed");
            }
            _ if needs_failing && code != "reported" => class.push("dependency-failed"),
            "cannot-merge" => class.push("missing-requirement"),
            // Each of them is told.
            "needs-other-queue" => class.extend(detail.matches("which is gated in queue").map(|_| "no-shared-queue")),
            "dependency-cycle" => class.push("cycle-not-allowed"),
            "limit" | "needs-over-limit" => class.push("pipeline-limit"),
            // It stood on what is wrong and was not even merged.
            "config-error" if kind.is_none() => class.push("config-error"),
            _ => {}
        }
        match kind {
            Some(ProblemKind::Conflict) => class.push("merge-conflict"),
            Some(ProblemKind::Config) => class.push("config-error"),
            _ => {}
        }
        let warnings = item.map(|item| warnings(item, live)).unwrap_or_default();
        class.extend(warnings.iter().map(String::as_str));
        if class.is_empty() {
            class.push("failure");
        }
        let depends = class.contains(&"dependency-failed");
        text.insert("class".into(), json!(class));
        if depends {
            let needs = if code == "needs-abandoned" { Vec::new() } else { self.named_in(detail) };
            text.insert("needs".into(), json!(needs));
        }
    }

    /// The changes that a text names by their addresses.
    fn named_in(&self, text: &str) -> Vec<String> {
        let root = format!("https://{HOST}/");
        let mut found = Vec::new();
        for part in text.split(root.as_str()).skip(1) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            if let Some(name) = digits.parse().ok().and_then(|number: u32| self.names.get(&number)) {
                found.push(name.clone());
            }
        }
        found.sort();
        found.dedup();
        found
    }

    fn causes(
        &self,
        text: &mut serde_json::Map<String, Json>,
        (action, item): (ReportAction, &ItemRow),
        live: &GateLive<Maps>,
        problems: &BTreeMap<BuildsetId, Vec<Problem>>,
    ) {
        let set = item.buildset.and_then(|set| live.gate.buildsets.rows.get(&set));
        let kind = set.and_then(|set| set.problem.as_ref()).map(|problem| problem.kind);
        let told_of_ahead = set.and_then(|set| set.problem.as_ref()).map(|one| one.message.starts_with(AHEAD_INVALID));
        // What was not even merged, because what it needs is wrong, has no problem of its own.
        let ahead = told_of_ahead.unwrap_or(action == ReportAction::ConfigError);
        if ahead && kind.is_none_or(|kind| kind == ProblemKind::Config) {
            text.insert(
                "config_errors".into(),
                sorted_errors(std::iter::once(without_place("ahead-invalid", "error"))),
            );
        } else if kind == Some(ProblemKind::Config)
            && let Some(found) = item.buildset.and_then(|set| problems.get(&set))
        {
            text.insert("config_errors".into(), sorted_errors(found.iter().map(config_error)));
        }
        let jobs = self.jobs(item, live);
        if !jobs.is_empty() && kind != Some(ProblemKind::Conflict) {
            text.insert("jobs".into(), Json::Array(jobs));
        }
    }

    fn jobs(&self, item: &ItemRow, live: &GateLive<Maps>) -> Vec<Json> {
        let set = item.buildset.and_then(|set| live.gate.buildsets.rows.get(&set));
        let mut jobs: Vec<((String, Vec<String>), Json)> = Vec::new();
        for id in set.map(|set| set.builds.as_slice()).unwrap_or_default() {
            let Some(build) = live.gate.builds.rows.get(id) else { continue };
            if build.job.traits.reporter && item.reporting.is_none() {
                continue;
            }
            let status = match (build.state, build.result) {
                (_, Some(result)) => result.word(),
                (BuildState::Running | BuildState::Leased, None) if build.ready.is_none() => {
                    match self.is_paused(*id) {
                        true => "PAUSED",
                        false => "RUNNING",
                    }
                }
                _ => "WAITING",
            };
            let mut job = serde_json::Map::new();
            job.insert("name".into(), json!(build.job.name));
            job.insert("status".into(), json!(status));
            if !build.job.voting {
                job.insert("voting".into(), json!(false));
            }
            let mut members = Vec::new();
            if item.subjects.len() > 1 {
                members = self.names_of(self.members(build, item));
                members.sort();
                job.insert("for".into(), json!(members));
            }
            jobs.push(((build.job.name.clone(), members), Json::Object(job)));
        }
        jobs.sort_by(|one, two| one.0.cmp(&two.0));
        jobs.into_iter().map(|(_, job)| job).collect()
    }

    fn is_paused(&self, build: BuildId) -> bool {
        self.builds.iter().rev().find(|one| one.id.0 == build).is_some_and(|one| one.paused)
    }

    /// Notes the queues.
    pub fn snapshot(&mut self, label: &str, live: &GateLive<Maps>, pipelines: &[(String, bool, bool)]) {
        let mut all = serde_json::Map::new();
        for (pipeline, has_window, serial) in pipelines {
            let mut queues: Vec<(QueueOrder, Json)> = Vec::new();
            for (key, queue) in &live.gate.queues.rows {
                if key.1 != *pipeline || queue.items.is_empty() {
                    continue;
                }
                let window = if *serial { 1 } else { queue.window };
                let items = self.queue_items(key, window, live);
                let mut entry = serde_json::Map::new();
                entry.insert("items".into(), Json::Array(items));
                let (name, branch) = split_queue(&key.2);
                if *has_window {
                    entry.insert("queue".into(), json!(name));
                    entry.insert("window".into(), json!(window));
                    if !branch.is_empty() {
                        entry.insert("branch".into(), json!(branch));
                    }
                }
                let last = queue.items.last().and_then(|item| live.gate.items.rows.get(item));
                let last = last.map(|item| self.sorted(&item.subjects).into_iter().map(|one| self.key(one)).collect());
                let order = match has_window {
                    true => (name, branch, last.unwrap_or_default()),
                    false => (String::new(), String::new(), last.unwrap_or_default()),
                };
                queues.push((order, Json::Object(entry)));
            }
            queues.sort_by(|one, two| one.0.cmp(&two.0));
            if !queues.is_empty() {
                all.insert(pipeline.clone(), Json::Array(queues.into_iter().map(|(_, queue)| queue).collect()));
            }
        }
        self.snapshots.push(json!({"label": label, "step": self.step, "pipelines": all}));
    }

    fn queue_items(&self, queue: &QueueKey, window: u32, live: &GateLive<Maps>) -> Vec<Json> {
        let item = |(index, (item, ahead)): (usize, (ItemId, Option<ItemId>))| {
            let item = live.gate.items.rows.get(&item)?;
            let ahead = ahead.and_then(|ahead| live.gate.items.rows.get(&ahead));
            let active = window == 0 || index < window as usize;
            let mut failing: Vec<String> = item.failing.iter().map(|reason| failing_words(reason)).collect();
            failing.sort();
            failing.dedup();
            Some(json!({
                "changes": self.names_of(&item.subjects), "live": item.live, "active": active,
                "ahead": ahead.map(|ahead| self.names_of(&ahead.subjects)),
                "failing": failing, "jobs": self.jobs(item, live),
            }))
        };
        self.standing.of(queue).enumerate().filter_map(item).collect()
    }

    /// The builds, as they are written down.
    pub fn builds_json(&self) -> Vec<Json> {
        let mut builds: Vec<&Build> = self.builds.iter().filter(|build| build.begun).collect();
        builds.sort_by(|one, two| {
            let key = |build: &Build| (build.end_round.is_none(), build.end_round.unwrap_or_default());
            key(one).cmp(&key(two)).then_with(|| one.order().cmp(&two.order()))
        });
        builds
            .into_iter()
            .map(|build| {
                let mut text = json!({
                    "job": build.job, "pipeline": build.pipeline, "project": build.project, "changes": build.changes,
                    "result": build.result.as_deref().unwrap_or("RUNNING"), "start": build.start, "end": build.end,
                });
                if !build.for_members.is_empty() {
                    text["for"] = json!(build.for_members);
                }
                text
            })
            .collect()
    }

    /// The reports, as they are written down.
    pub fn reports_json(&self) -> Vec<Json> {
        let mut reports: Vec<&Report> = self.reports.iter().collect();
        reports.sort_by(|one, two| (one.round, &one.pipeline, &one.key).cmp(&(two.round, &two.pipeline, &two.key)));
        reports.into_iter().map(|report| Json::Object(report.text.clone())).collect()
    }
}

fn split_queue(name: &str) -> (String, String) {
    match local(name).split_once(':') {
        Some((queue, branch)) => (queue.to_owned(), branch.to_owned()),
        None => (local(name).to_owned(), String::new()),
    }
}

/// A result by its word.
pub fn result_of(word: &str) -> Option<BuildResult> {
    use BuildResult::{Failure, PostFailure, Retry, Success, TimedOut};
    [Success, Failure, TimedOut, PostFailure, Retry].into_iter().find(|result| result.word() == word)
}

/// Whether a buildset has its jobs.
pub fn has_jobs(phase: Phase) -> bool {
    phase == Phase::Frozen
}

/// What Zuul warns of when it loads the configuration that an item changes: files beside those it reads.
fn warnings(item: &ItemRow, live: &GateLive<Maps>) -> Vec<String> {
    const ROOTS: [&str; 4] = ["zuul.yaml", "zuul.d", ".zuul.yaml", ".zuul.d"];
    let set = item.buildset.and_then(|set| live.gate.buildsets.rows.get(&set));
    let Some(state) = set.and_then(|set| set.state.as_ref()).filter(|state| state.item_touches_config) else {
        return Vec::new();
    };
    let root = |path: &str| ROOTS.iter().position(|root| Some(*root) == path.split('/').next());
    let mut found = Vec::new();
    for files in &state.config {
        let read = files.files.iter().filter_map(|file| root(&file.path)).min();
        for file in files.files.iter().filter(|file| root(&file.path).is_some() && root(&file.path) != read) {
            let (project, branch) = (local(&files.at.project), &files.at.branch);
            let which = format!("{project}/{}@{branch}", file.path);
            found.push(format!(
                "warning: Configuration in {which} ignored because project-branch is already configured"
            ));
        }
    }
    found
}
