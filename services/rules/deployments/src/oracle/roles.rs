//! The executor of roles with numbers, as Fuel 7.0 has it, with nodes that are made up.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::World;
use super::hooks::{Hooks, Raised};
use crate::run::report::{Report, Reports};
use crate::run::roles::{Hook, Phase, Planned, RoleRun, Script, Turn, listed};
use crate::run::{Outcome, Patience};

const ENGINE: &str = "Astute::DeploymentEngineError";

struct Play<'w> {
    info: Vec<Value>,
    pre: Vec<Value>,
    post: Vec<Value>,
    offline: Vec<String>,
    hooks: Hooks<'w>,
    reports: Reports,
    told: Vec<Value>,
    /// Which of `info` are still there, as turns of the run.
    turns: Vec<usize>,
}

/// Plays a case.
pub fn play(input: &Value, world: &dyn World) -> Value {
    let list = |field: &str| input.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let number = |field: &str, default: u64| input.get(field).and_then(Value::as_u64).unwrap_or(default);
    let info = list("info");
    let field = |turn: &Value, name: &str| turn.get(name).cloned().unwrap_or_default();
    let known = info.iter().map(|turn| (field(turn, "uid"), field(turn, "role"), field(turn, "fail_if_error")));
    let slice = usize::try_from(number("slice", 50)).unwrap_or(50);
    let mut play = Play {
        reports: Reports::new(known),
        pre: list("pre"),
        post: list("post"),
        offline: list("offline").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        hooks: Hooks::new(world, slice, number("mc_retries", 10)),
        told: Vec::new(),
        turns: Vec::new(),
        info,
    };
    let ended = play.run(slice);
    let mut answer = Map::new();
    match ended {
        Ok(()) => play.told.push(Value::Object(play.reports.end())),
        Err(Raised { class: "Timeout", .. }) => {
            answer.insert("error".to_owned(), json!("Timeout"));
            play.told.push(json!({"status": "error", "error": "Timeout of deployment is exceeded."}));
        }
        Err(Raised { class, message }) => {
            answer.insert("error".to_owned(), json!(class));
            answer.insert("message".to_owned(), json!(message.lines().next().unwrap_or("").trim()));
        }
    }
    answer.insert("events".to_owned(), json!(play.hooks.events));
    answer.insert("reports".to_owned(), json!(play.told));
    Value::Object(answer)
}

impl Play<'_> {
    fn run(&mut self, slice: usize) -> Result<(), Raised> {
        if self.info.is_empty() {
            let message = "Deployment info are not provided!".to_owned();
            return Err(Raised { class: "RuntimeError", message });
        }
        self.leave_out_offline()?;
        let mut run = RoleRun::new(self.script(), &[], slice);
        loop {
            match run.phase() {
                Phase::Pre(at) => self.hook(at, true).map(|()| run.hook_ended(true))?,
                Phase::Post(at) => {
                    let ended = self.hook(at, false);
                    if ended.is_err() {
                        self.fail_all();
                    }
                    ended.map(|()| run.hook_ended(true))?;
                }
                Phase::Slice(_) => self.slice(&mut run)?,
                Phase::Over => return Ok(()),
            }
        }
    }

    fn tell(&mut self, reports: Vec<Report>, error: Option<&str>) {
        let nodes = self.reports.tell(reports);
        if nodes.is_empty() {
            return;
        }
        let mut told = Map::new();
        told.insert("nodes".to_owned(), json!(nodes));
        if let Some(error) = error {
            told.insert("error".to_owned(), json!(error));
        }
        self.told.push(Value::Object(told));
    }

    fn leave_out_offline(&mut self) -> Result<(), Raised> {
        let uid = |turn: &Value| turn.get("uid").and_then(Value::as_str).unwrap_or("").to_owned();
        let silent: Vec<String> = self.info.iter().map(uid).filter(|uid| self.offline.contains(uid)).collect();
        self.turns = (0..self.info.len()).filter(|at| !silent.contains(&uid(&self.info[*at]))).collect();
        if silent.is_empty() {
            return Ok(());
        }
        let of = |uid: &String| {
            report(json!({
                "uid": uid, "status": "error", "error_type": "provision", "role": "hook",
                "error_msg": "Node is not ready for deployment: mcollective has not answered",
            }))
        };
        self.tell(silent.iter().map(of).collect(), Some("Node is not ready for deployment"));
        let critical = |turn: &&Value| turn.get("fail_if_error") == Some(&Value::Bool(true));
        let missing: Vec<String> =
            self.info.iter().filter(critical).map(uid).filter(|uid| silent.contains(uid)).collect();
        if !missing.is_empty() {
            let message = format!("Critical nodes are not available for deployment: {}", listed(&missing));
            return Err(Raised { class: ENGINE, message });
        }
        if self.turns.is_empty() {
            return Err(Raised {
                class: "NoMethodError",
                message: "undefined method `[]' for nil:NilClass".to_owned(),
            });
        }
        let there: BTreeSet<String> =
            self.turns.iter().map(|at| uid(&self.info[*at])).chain(["master".to_owned()]).collect();
        for hooks in [&mut self.pre, &mut self.post] {
            for hook in hooks.iter_mut() {
                if let Some(uids) = hook.get_mut("uids").and_then(Value::as_array_mut) {
                    uids.retain(|uid| uid.as_str().is_some_and(|uid| there.contains(uid)));
                }
            }
            hooks.retain(|hook| hook.get("uids").and_then(Value::as_array).is_some_and(|uids| !uids.is_empty()));
        }
        Ok(())
    }

    fn script(&mut self) -> Script {
        let priority = |value: &Value| value.get("priority").and_then(Value::as_u64).unwrap_or(0);
        for hooks in [&mut self.pre, &mut self.post] {
            hooks.sort_by_key(priority);
        }
        let planned = |task: &Value| Planned {
            task: task.get("id").and_then(Value::as_str).unwrap_or("").to_owned(),
            kind: "puppet".to_owned(),
            patience: Patience::ONCE,
        };
        // A hook runs as one thing; where it runs is not the machine's business.
        let hooks = |hooks: &[Value]| -> Vec<Hook> {
            let of = |hook: &Value| Hook {
                number: priority(hook),
                planned: planned(hook),
                uids: vec!["*".to_owned()],
                fail_on_error: true,
            };
            hooks.iter().map(of).collect()
        };
        let turn = |at: &usize| {
            let said = &self.info[*at];
            let text = |name: &str| said.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
            Turn {
                uid: text("uid"),
                role: text("role"),
                number: priority(said),
                critical: said.get("fail_if_error") == Some(&Value::Bool(true)),
                tasks: sorted_tasks(said).iter().map(planned).collect(),
            }
        };
        Script { pre: hooks(&self.pre), turns: self.turns.iter().map(turn).collect(), post: hooks(&self.post) }
    }

    fn hook(&mut self, at: usize, before: bool) -> Result<(), Raised> {
        let hooks = if before { &self.pre } else { &self.post };
        let hook = hooks.get(at).cloned().unwrap_or_default();
        let Some(said) = self.hooks.run(&hook)? else { return Ok(()) };
        if matches!(hook.get("fail_on_error"), Some(Value::Bool(false) | Value::Null)) {
            return Ok(());
        }
        let name = ["id", "diagnostic_name", "type"].iter().find_map(|field| hook.get(*field)?.as_str()).unwrap_or("");
        let of = |uid: &Value| {
            report(json!({
                "uid": uid, "status": "error", "error_type": "deploy", "role": "hook", "hook": name, "error_msg": said,
            }))
        };
        let reports = hook.get("uids").and_then(Value::as_array).into_iter().flatten().map(of).collect();
        let message = format!("Failed to execute hook '{name}' {said}");
        self.tell(reports, Some(&message));
        Err(Raised { class: ENGINE, message })
    }

    /// After a failure behind the deployment all nodes count as failed: else they would not be deployed again.
    fn fail_all(&mut self) {
        let mut seen = BTreeSet::new();
        let uids: Vec<Value> = self.turns.iter().filter_map(|at| self.info[*at].get("uid").cloned()).collect();
        let of = |uid: Value| report(json!({"uid": uid, "status": "error", "role": "hook", "error_type": "deploy"}));
        let reports = uids.into_iter().filter(|uid| seen.insert(uid.to_string())).map(of).collect();
        self.tell(reports, None);
    }

    /// One slice, tick by tick.
    fn slice(&mut self, run: &mut RoleRun) -> Result<(), Raised> {
        let turns: Vec<usize> = run.slice().to_vec();
        let report_of = |turn: usize, script: &Script, status: &str, progress: Option<u64>| {
            let turn = &script.turns[turn];
            let mut said = report(json!({"uid": turn.uid, "status": status, "role": turn.role}));
            match progress {
                Some(progress) => said.insert("progress".to_owned(), json!(progress)),
                None => said.insert("error_type".to_owned(), json!("deploy")),
            };
            said
        };
        let script = run.script().clone();
        let has_tasks = |turn: &&usize| !script.turns[**turn].tasks.is_empty();
        let idle =
            turns.iter().filter(|turn| !has_tasks(turn)).map(|turn| report_of(*turn, &script, "ready", Some(100)));
        self.tell(idle.collect(), None);
        let busy: Vec<usize> = turns.iter().filter(has_tasks).copied().collect();
        let begun = busy.iter().map(|turn| report_of(*turn, &script, "deploying", Some(0))).collect();
        self.tell(begun, None);
        let phase = run.phase();
        let mut left: BTreeMap<usize, (u64, String)> = BTreeMap::new();
        self.begin(run, &busy, &script, &mut left);
        while run.phase() == phase && !left.is_empty() {
            let mut reports = Vec::new();
            for turn in busy.iter().copied() {
                let Some((ticks, status)) = left.get_mut(&turn) else { continue };
                if status == "timeout" {
                    let failed = busy.iter().map(|turn| report_of(*turn, &script, "error", None)).collect();
                    self.tell(failed, None);
                    return Err(Raised { class: "Timeout", message: "execution expired".to_owned() });
                }
                *ticks = ticks.saturating_sub(1);
                if *ticks > 0 {
                    continue;
                }
                let well = status == "ready";
                left.remove(&turn);
                self.end(run, &script.turns[turn], well);
                self.begin(run, &[turn], &script, &mut left);
                if !left.contains_key(&turn) {
                    let (status, progress) = if well { ("ready", Some(100)) } else { ("error", None) };
                    reports.push(report_of(turn, &script, status, progress));
                }
            }
            self.tell(reports, None);
        }
        match run.verdict() {
            Some(crate::run::Verdict::Failed { why, .. }) => Err(Raised { class: ENGINE, message: why }),
            _ => Ok(()),
        }
    }

    fn end(&self, run: &mut RoleRun, turn: &Turn, well: bool) {
        let outcome = if well { Outcome::Done } else { Outcome::Failed(String::new()) };
        let running: Vec<_> =
            run.running().into_iter().filter(|key| key.uid == turn.uid && key.role == turn.role).collect();
        for key in running {
            let _ = run.ended(&key, &outcome);
        }
    }

    /// Starts what may start for some turns, and notes how it will go.
    fn begin(
        &mut self,
        run: &mut RoleRun,
        turns: &[usize],
        script: &Script,
        left: &mut BTreeMap<usize, (u64, String)>,
    ) {
        if !run.slice().iter().any(|turn| turns.contains(turn)) {
            return;
        }
        for started in run.start() {
            let is_it = |turn: &&usize| {
                let turn = &script.turns[**turn];
                turn.uid == started.key.uid && turn.role == started.key.role
            };
            let Some(turn) = turns.iter().find(is_it) else { continue };
            let said = &self.info[self.turns[*turn]];
            let at = run.place(*turn);
            let task = sorted_tasks(said).into_iter().nth(at).unwrap_or_default();
            self.hooks.events.push(json!(["task", started.key.uid, started.key.role, task.get("id")]));
            let ticks = task.get("ticks").and_then(Value::as_u64).unwrap_or(1);
            let status = task.get("status").and_then(Value::as_str).unwrap_or("ready").to_owned();
            left.insert(*turn, (ticks, status));
        }
    }
}

fn sorted_tasks(turn: &Value) -> Vec<Value> {
    let mut tasks = turn.get("tasks").and_then(Value::as_array).cloned().unwrap_or_default();
    tasks.sort_by_key(|task| task.get("priority").and_then(Value::as_u64).unwrap_or(0));
    tasks
}

fn report(value: Value) -> Report {
    if let Value::Object(report) = value { report } else { Report::new() }
}
