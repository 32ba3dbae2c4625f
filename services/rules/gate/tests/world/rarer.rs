//! Words that few stories need.

use gatelog_gate_state::live::{TimerKey, TimerRow};
use gatelog_record::draft::gate::{
    AccessTold, BuildResult, Given, ReturnedBlob, ReturnedKept, ReturnedStep, ReturnedTold, SecretsOpened, TimerName,
    TimerTicked,
};
use gatelog_record::input::GateInput;
use gatelog_record::{BlobHash, Value};
use gatelog_rules_gate::GateRules;

use super::forge::{CONNECTION, Change, Forge, Patchset, canonical};
use super::script::{Story, TENANT, equal};

impl Story {
    /// One sentence.
    pub fn rarer(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["project", name, "without", "configuration"] => {
                self.files.entry((*name).to_owned()).or_default();
                self.plain.insert((*name).to_owned());
                Ok(())
            }
            ["the", "answer", "to", kind, "is", "made"] => self.world.answer_ahead(kind),
            // The newest of those that were made, so that one can overtake another.
            ["it", "comes"] => {
                let (tenant, input) = self.world.on_the_way.pop().ok_or("no answer was made")?;
                self.world.say(&tenant, input)
            }
            // What it held in memory is gone.
            ["the", "process", "restarts"] => {
                self.world.rules = GateRules::new();
                Ok(())
            }
            ["forget", "events"] => {
                self.forgotten = self.world.events.len();
                Ok(())
            }
            [change, "is", "work", "in", "progress"] => self.attribute(change, "wip", Some(Value::Bool(true))),
            [change, "is", "ready"] => self.attribute(change, "wip", None),
            // Its text was edited; the commit is the same.
            [change, "no", "longer", "depends", "on", other] => {
                let one = self.world.forge.changes.get_mut(*change).ok_or("there is no change")?;
                let newest = one.patchsets.last_mut().ok_or("it has no patchset")?;
                newest.depends_on.retain(|name| name != other);
                self.event(change, "change-edited")
            }
            // It is of the site, and comes under no tenant's name.
            ["it", "is", "told", "that", what, "of", subject, "left", "the", "site"] => {
                let (what, subject) = ((*what).to_owned(), (*subject).to_owned());
                let told = AccessTold { what, subject, detail: "all of it".to_owned() };
                self.world.say("", GateInput::AccessTold(told))
            }
            // Its text was edited, and nobody tells of it.
            [change, "is", "silently", "abandoned"] => {
                self.world.forge.changes.get_mut(*change).ok_or("there is no change")?.open = false;
                Ok(())
            }
            [change, "silently", "depends", "on", other] => {
                let one = self.world.forge.changes.get_mut(*change).ok_or("there is no change")?;
                let newest = one.patchsets.last_mut().ok_or("it has no patchset")?;
                newest.depends_on.push((*other).to_owned());
                Ok(())
            }
            // Some code reviews make one as they merge.
            [change, "silently", "gets", "another", "patchset"] => {
                let one = self.world.forge.changes.get_mut(*change).ok_or("there is no change")?;
                let newest = one.patchsets.last().cloned().ok_or("it has no patchset")?;
                one.patchsets.push(newest);
                Ok(())
            }
            ["every", "change", "has", number, "jobs"] => {
                self.world.padded_jobs = number.parse().map_err(|_| "not a number")?;
                Ok(())
            }
            ["a", "worker", "gives", secret, "to", "job", job, "of", change] => {
                let build = self.build(job, change, None)?;
                let attempt = self.world.live.gate.builds.rows.get(&build).map_or(0, |row| row.attempt);
                let (name, connection, project) = ((*secret).to_owned(), CONNECTION.to_owned(), canonical("config"));
                let given = vec![Given::Secret { name, connection, project }];
                let (tenant, worker) = (TENANT.into(), "worker-1".into());
                let opened = SecretsOpened { tenant, build, attempt, worker, given };
                self.world.say(TENANT, GateInput::SecretsOpened(opened))
            }
            // Somebody brought the same in by another way.
            ["all", "of", change, "is", "in", "the", "branch"] => {
                self.world.forge.hollow.insert((*change).to_owned());
                Ok(())
            }
            // Each needs the one before it; nobody tells of them.
            ["a", "chain", "of", number, rest @ .., "changes", "is", "in", project] => {
                let approved = rest == ["approved"];
                for index in 1..=number.parse::<usize>().map_err(|_| "not a number")? {
                    let below = (index > 1).then(|| format!("chain-{}", index - 1));
                    let patchset = Patchset { depends_on: below.into_iter().collect(), ..Patchset::default() };
                    let (project, branch) = ((*project).to_owned(), "master".to_owned());
                    let patchsets = vec![patchset];
                    let change = Change { project, branch, open: true, approved, patchsets, ..Change::default() };
                    self.world.forge.changes.insert(format!("chain-{index}"), change);
                }
                Ok(())
            }
            // Nobody tells of them either.
            [number, rest @ .., "changes", "of", project, "stand", "on", on] => {
                let approved = *rest == ["approved"];
                let known = self.world.forge.changes.keys().filter(|name| name.starts_with("many-")).count();
                for index in 1..=number.parse::<usize>().map_err(|_| "not a number")? {
                    let stacked_on = if *on == "nothing" { Vec::new() } else { vec![(*on).to_owned()] };
                    let (project, branch) = ((*project).to_owned(), "master".to_owned());
                    let patchsets = vec![Patchset { stacked_on, ..Patchset::default() }];
                    let change = Change { project, branch, open: true, approved, patchsets, ..Change::default() };
                    self.world.forge.changes.insert(format!("many-{}", known + index), change);
                }
                Ok(())
            }
            // More than a record carries, so that it is in a blob.
            ["much", "is", "returned", "by", "job", job, "of", change] => {
                let build = self.build(job, change, None)?;
                let attempt = self.world.live.gate.builds.rows.get(&build).map_or(0, |row| row.attempt);
                self.world.start_build(build)?;
                let data = Some(ReturnedBlob { blob: BlobHash([7; 32]), size: 1 << 20 });
                let kept = ReturnedKept { data, secret_data: None };
                self.world.end_build_with(build, attempt, BuildResult::Success, Value::Null, kept)
            }
            // Its attempt is another by now.
            ["much", "was", "returned", "before", "by", "job", job, "of", change] => {
                let build = self.build(job, change, None)?;
                let data = Some(ReturnedBlob { blob: BlobHash([8; 32]), size: 1 << 20 });
                let kept = ReturnedKept { data, secret_data: None };
                self.world.end_build_with(build, 77, BuildResult::Success, Value::Null, kept)
            }
            [days, "days", "pass"] => {
                let days: i64 = days.parse().map_err(|_| "not a number")?;
                self.world.now = self.world.now.plus_seconds(days * 24 * 3600);
                Ok(())
            }
            ["what", "was", "returned", "is", what @ ..] => {
                let step = match what {
                    ["due", "after", days, "days"] => {
                        ReturnedStep::Due { keep_days: days.parse().map_err(|_| "not a number")? }
                    }
                    ["removed"] => ReturnedStep::Removed,
                    _ => return Err("it is due or removed".to_owned()),
                };
                let builds: Vec<_> = self.world.live.gate.returned.rows.keys().copied().collect();
                for build in builds {
                    let told = ReturnedTold { tenant: TENANT.into(), build, step };
                    self.world.say(TENANT, GateInput::ReturnedTold(told))?;
                }
                Ok(())
            }
            ["there", "is", "no", "room", "for", kind] => self.world.no_room_for(kind),
            ["the", "timer", "of", pipeline, "ticks", "for", project, branch] => {
                let (key, row) = self.timer(pipeline, project, branch)?;
                self.tick(key, row.count)
            }
            // Another process told the same tick.
            ["the", "last", "tick", "of", pipeline, "comes", "again", "for", project, branch] => {
                let (key, row) = self.timer(pipeline, project, branch)?;
                self.tick(key, row.count.saturating_sub(1))
            }
            ["a", "timer", "that", "is", "gone", "ticks", "for", project, branch] => {
                let (pipeline, time) = ("gone".to_owned(), "0 0 * * *".to_owned());
                let (project, branch) = (canonical(project), (*branch).to_owned());
                let timer = TimerName { pipeline, project, branch, time, dereference: false };
                self.tick(TimerKey { tenant: TENANT.into(), timer }, 0)
            }
            _ => Err(format!("nobody understands {:?}", words.join(" "))),
        }
    }

    fn timer(&self, pipeline: &str, project: &str, branch: &str) -> Result<(TimerKey, TimerRow), String> {
        let named = |key: &&TimerKey| {
            let timer = &key.timer;
            timer.pipeline == pipeline && timer.project == canonical(project) && timer.branch == branch
        };
        let timers = &self.world.live.gate.timers.rows;
        let key = timers.keys().find(named).ok_or("there is no such timer")?;
        Ok((key.clone(), timers.get(key).copied().ok_or("there is no such timer")?))
    }

    fn tick(&mut self, key: TimerKey, count: u64) -> Result<(), String> {
        let (tick, TimerKey { tenant, timer }) = (self.world.now, key);
        let ticked = TimerTicked { tenant, timer, count, tick, due: tick.plus_seconds(7), missed: 2 };
        self.world.say(TENANT, GateInput::TimerTicked(ticked))
    }

    fn attribute(&mut self, change: &str, key: &str, value: Option<Value>) -> Result<(), String> {
        let one = self.world.forge.changes.get_mut(change).ok_or("there is no change")?;
        match value {
            Some(value) => one.attributes.insert(key.into(), value),
            None => one.attributes.remove(key),
        };
        Ok(())
    }

    /// Expectations that few stories have.
    pub fn expect_rarer(&self, words: &[&str]) -> Result<(), String> {
        match words {
            ["timers", rest @ ..] => {
                let timers = self.world.live.gate.timers.rows.keys().map(|key| {
                    let (project, timer) = (Forge::short(&key.timer.project), &key.timer);
                    format!("{}:{}:{project}", timer.pipeline, timer.branch)
                });
                let expected = if rest == ["none"] { Vec::new() } else { rest.to_vec() };
                let found: Vec<String> = timers.collect();
                equal("timers", expected, found.iter().map(String::as_str).collect())
            }
            ["tested", change, "in", pipeline, "on", rest @ ..] => {
                let (_, row) = self.item(change, Some(pipeline))?;
                let steps = row.buildset.and_then(|set| self.world.live.gate.chains.rows.get(&set));
                let steps = steps.ok_or("it has no buildset")?.iter();
                let mut found: Vec<&str> = steps.filter_map(|step| step.subject.change.as_deref()).collect();
                found.pop();
                let found: Vec<&str> = found.into_iter().map(Forge::short).collect();
                equal("tested on", if rest == ["nothing"] { Vec::new() } else { rest.to_vec() }, found)
            }
            // What exactly of a change is in what another is tested on.
            ["under", change, other, what @ ..] => {
                let (_, row) = self.item(change, None)?;
                let steps = row.buildset.and_then(|set| self.world.live.gate.chains.rows.get(&set));
                let steps = steps.map(|steps| &**steps).unwrap_or_default();
                let mut subjects = steps.iter().map(|step| &step.subject);
                let found = subjects
                    .find(|one| one.change.as_deref().is_some_and(|name| Forge::short(name) == *other))
                    .ok_or("it is not tested on that")?;
                let (patchset, commit) = (found.patchset.as_deref(), found.commit.as_deref());
                let found = [patchset.unwrap_or_default(), commit.unwrap_or_default(), &found.git_ref].join(" ");
                equal("what is under it", what.join(" "), found)
            }
            _ => Err(format!("nobody understands {:?}", words.join(" "))),
        }
    }
}
