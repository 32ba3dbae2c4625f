//! What operators ask for, and what comes of it.

use std::collections::BTreeMap;

use gatelog_gate_state::live::AutoholdRow;
use gatelog_record::draft::capacity::LeaseLost;
use gatelog_record::draft::gate::{
    AutoholdAsked, AutoholdDeleteAsked, ChangeKey, DequeueAsked, EnqueueAsked, IntakeAsked, PromoteAsked,
    ReconfigureAsked, TriggerIntake, build_owner,
};
use gatelog_record::event::GateEvent;
use gatelog_record::input::{GateInput, PartitionInput};
use gatelog_record::{Event, Value};

use super::forge::{CONNECTION, canonical};
use super::script::{Story, TENANT, equal};

/// A value as it is written: several are separated by commas.
fn given(text: &str) -> Value {
    match text.contains(',') {
        true => Value::List(text.split(',').map(Value::from).collect()),
        false => Value::from(text),
    }
}

impl Story {
    /// One sentence of an operator.
    pub fn operator(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["ask", "enqueue", change, "in", pipeline] => {
                let key = self.world.forge.key(change).ok_or("no such change")?;
                let asked = EnqueueAsked {
                    tenant: TENANT.into(),
                    pipeline: (*pipeline).into(),
                    connection: CONNECTION.into(),
                    change: key,
                    reason: String::new(),
                    old_commit: None,
                    new_commit: None,
                    parameters: BTreeMap::new(),
                };
                self.world.say(TENANT, GateInput::EnqueueAsked(asked))
            }
            ["ask", "enqueue", "ref", git_ref, "of", project, rest @ .., "in", pipeline] => {
                let is_parameter = |word: &&&str| word.contains('=');
                let parameters = rest.iter().filter(is_parameter).filter_map(|word| word.split_once('='));
                let parameters = parameters.map(|(name, value)| (name.to_owned(), given(value))).collect();
                let rest: Vec<&str> = rest.iter().filter(|word| !is_parameter(word)).copied().collect();
                let at = |word: &str| {
                    rest.chunks(2).find_map(|pair| match pair {
                        [key, commit] if *key == word => Some((*commit).to_owned()),
                        _ => None,
                    })
                };
                let asked = EnqueueAsked {
                    tenant: TENANT.into(),
                    pipeline: (*pipeline).into(),
                    connection: CONNECTION.into(),
                    change: ChangeKey { project: canonical(project), change: (*git_ref).into() },
                    reason: String::new(),
                    old_commit: at("from"),
                    new_commit: at("at"),
                    parameters,
                };
                self.world.say(TENANT, GateInput::EnqueueAsked(asked))
            }
            ["ask", "dequeue", change, "from", pipeline] => {
                let key = self.world.forge.key(change).ok_or("no such change")?;
                let asked = DequeueAsked {
                    tenant: TENANT.into(),
                    pipeline: (*pipeline).into(),
                    change: key,
                    reason: String::new(),
                };
                self.world.say(TENANT, GateInput::DequeueAsked(asked))
            }
            ["ask", "promote", rest @ ..] => {
                let mut parts = rest.splitn(2, |word| *word == "in");
                let (Some(changes), Some([pipeline, why @ ..])) = (parts.next(), parts.next()) else {
                    return Err("in which pipeline?".into());
                };
                let changes = changes.iter().map(|change| self.world.forge.key(change).ok_or("no such change"));
                let asked = PromoteAsked {
                    tenant: TENANT.into(),
                    pipeline: (*pipeline).into(),
                    changes: changes.collect::<Result<_, _>>()?,
                    reason: why.join(" "),
                };
                self.world.say(TENANT, GateInput::PromoteAsked(asked))
            }
            ["keep", "nodes", "of", job, "of", project, rest @ ..] => self.keep_nodes(job, project, rest),
            ["ask", "delete", "request", number] => {
                let request = self.request(number)?.0;
                let asked = AutoholdDeleteAsked { tenant: TENANT.into(), request, reason: "looked at".into() };
                self.world.say(TENANT, GateInput::AutoholdDeleteAsked(asked))
            }
            ["the", "nodes", "of", "request", number, "are", "lost"] => {
                let held = self.request(number)?.1.held.first().cloned().ok_or("it keeps none")?;
                self.world.leases.remove(&(held.build, held.attempt));
                let lost = LeaseLost {
                    owner: build_owner(TENANT, held.build, held.attempt),
                    refused: false,
                    code: "worker-let-go".into(),
                    message: "the worker let go of the nodes".into(),
                };
                self.world.say(TENANT, PartitionInput::LeaseLost(lost))
            }
            ["ask", "to", "reconfigure", reason @ ..] => {
                let asked = ReconfigureAsked { tenant: TENANT.into(), reason: reason.join(" ") };
                self.world.say(TENANT, GateInput::ReconfigureAsked(asked))
            }
            ["ask", "to", what, "events"] => {
                let triggers = match *what {
                    "pause" => TriggerIntake::Paused,
                    "discard" => TriggerIntake::Discarding,
                    _ => TriggerIntake::Open,
                };
                let asked = IntakeAsked { tenant: TENANT.into(), triggers, reason: "it rains".into() };
                self.world.say(TENANT, GateInput::IntakeAsked(asked))
            }
            _ => Err(format!("nobody understands {:?}", words.join(" "))),
        }
    }

    /// `keep nodes of JOB of PROJECT [refs FILTER] [for N builds] [during Ns]`
    fn keep_nodes(&mut self, job: &str, project: &str, rest: &[&str]) -> Result<(), String> {
        let mut asked = AutoholdAsked {
            tenant: TENANT.into(),
            project: canonical(project),
            job: job.into(),
            ref_filter: ".*".into(),
            count: 1,
            node_expiration: 0,
            reason: "somebody looks".into(),
        };
        for pair in rest.chunks(2) {
            match pair {
                ["refs", filter] => asked.ref_filter = (*filter).into(),
                ["builds", count] => asked.count = count.parse().map_err(|_| "not a number")?,
                ["during", span] => {
                    asked.node_expiration = span.trim_end_matches('s').parse().map_err(|_| "not a number")?;
                }
                other => return Err(format!("nobody understands {:?}", other.join(" "))),
            }
        }
        self.world.say(TENANT, GateInput::AutoholdAsked(asked))
    }

    /// The requests to keep nodes that there are, counted from 1, the oldest first.
    fn request(&self, number: &str) -> Result<(u64, AutoholdRow), String> {
        let index = number.parse::<usize>().map_err(|_| "not a number")?;
        let mut rows = self.world.live.gate.autoholds.rows.iter();
        let found = rows.nth(index.saturating_sub(1)).map(|((_, request), row)| (*request, row.clone()));
        found.ok_or("there is no such request".into())
    }

    /// Expectations of what operators look at.
    pub fn expect_more(&self, words: &[&str]) -> Result<(), String> {
        match words {
            ["job", job, "of", change, "asks", "for", rest @ ..] => {
                let build = self.build(job, change, None)?;
                let asked = self.world.events.iter().rev().find_map(|record| match &record.event {
                    Event::Gate(GateEvent::LeaseWanted(wanted)) if wanted.build == build => Some(&wanted.ask),
                    _ => None,
                });
                let asked = asked.ok_or("it asked for nothing")?;
                let labels: Vec<&str> = asked.nodes.iter().map(|node| node.label.as_str()).collect();
                // What it is to run belongs to those nodes, and only the last of them is waited for.
                let row = self.world.live.gate.builds.rows.get(&build).ok_or("no such build")?;
                equal("spec", row.spec(), asked.spec)?;
                equal("others", row.has_others(), asked.or_others)?;
                equal("nodes", rest.join(" "), labels.join(" "))
            }
            ["commit", "of", change, commit] => {
                let (_, row) = self.item(change, None)?;
                let found = row.subjects.first().and_then(|one| one.commit.clone()).unwrap_or_default();
                equal("commit", *commit, found.as_str())
            }
            ["requests", number] => {
                equal("requests", *number, self.world.live.gate.autoholds.rows.len().to_string().as_str())
            }
            ["request", number, rest @ ..] => {
                let row = self.request(number)?.1;
                let keeps = row.held.len();
                equal("request", rest.join(" "), format!("used {} of {} keeps {keeps}", row.count, row.asked.count))
            }
            _ => self.expect_rarer(words),
        }
    }
}
