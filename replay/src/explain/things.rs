//! Leases, nodes and workers: what was asked, what was given, and for whom.

use gatelog_record::draft::capacity::LeaseAsked;
use gatelog_record::event::CapacityEvent;
use gatelog_record::{BuildId, Event, EventRecord, EventRef, LeaseId, NodeId};

use super::say::span;
use super::shapes::{Note, ThingStory};
use super::{ExplainError, Explainer, Found};

/// How many events of a worker are told: the newest ones.
const MAX_EVENTS: usize = 200;

impl Explainer<'_> {
    /// The build that a lease or a node is for.
    pub(crate) fn build_behind(&self, found: &Found) -> Option<BuildId> {
        match found {
            Found::Lease(lease) => self.index.leases.get(lease).copied(),
            Found::Node(node) => self.index.leases.get(self.index.nodes.get(node)?).copied(),
            Found::Build(build) => Some(*build),
            _ => None,
        }
    }

    /// The story of a lease.
    pub(crate) fn lease(&self, lease: LeaseId) -> Result<ThingStory, ExplainError> {
        let events = self.events_of(&Found::Lease(lease))?;
        let records = self.records(&events)?;
        let (mut facts, mut asked) = (Vec::new(), None);
        for (at, record) in &records {
            let Event::Capacity(event) = &record.event else { continue };
            match event {
                CapacityEvent::LeaseQueued(queued) => {
                    asked = Some((*at, record.recorded_at));
                    facts.extend(self.of_ask(&queued.ask));
                }
                CapacityEvent::LeaseGranted(granted) => {
                    facts.push(("worker".into(), format!("{} ({})", granted.worker, granted.incarnation)));
                    for node in &granted.nodes {
                        facts.push(("node".into(), format!("{} {}", node.node, node.wanted.label)));
                    }
                    facts.push(("waited".into(), span(granted.waited_ms)));
                }
                CapacityEvent::LeaseEnded(ended) => {
                    let after =
                        asked.map(|(_, since)| span(record.recorded_at.millis_since(since))).unwrap_or_default();
                    facts.push(("ended".into(), format!("{} after {after}", ended.reason)));
                }
                _ => {}
            }
        }
        facts.push(("now".into(), phase(&records).to_owned()));
        let way = match asked {
            Some((at, _)) => self.way_to(at)?,
            None => Vec::new(),
        };
        Ok(ThingStory { kind: "lease", id: lease.to_string(), facts, events: self.notes(&records), way })
    }

    /// The story of a node: that of the lease it was given out with.
    pub(crate) fn node(&self, node: NodeId) -> Result<ThingStory, ExplainError> {
        let unknown = || ExplainError::Unknown { what: node.to_string(), did_you_mean: None };
        let lease = *self.index.nodes.get(&node).ok_or_else(unknown)?;
        let mut story = self.lease(lease)?;
        story.facts.insert(0, ("lease".into(), lease.to_string()));
        Ok(ThingStory { kind: "node", id: node.to_string(), ..story })
    }

    /// The story of a worker: when it came and went, and what it was given; the newest of it.
    pub(crate) fn worker(&self, worker: &str) -> Result<ThingStory, ExplainError> {
        let all = self.events_of(&Found::Worker(worker.to_owned()))?;
        let newest = all.get(all.len().saturating_sub(MAX_EVENTS)..).unwrap_or_default();
        let records = self.records(newest)?;
        let mut facts = Vec::new();
        for (_, record) in records.iter().rev() {
            match &record.event {
                Event::Capacity(CapacityEvent::WorkerJoined(joined)) => {
                    let offer = &joined.offer;
                    let labels = if offer.labels.is_empty() { "any".to_owned() } else { offer.labels.join(", ") };
                    facts.push(("slots".into(), offer.slots.to_string()));
                    facts.push(("labels".into(), labels));
                    facts.push(("address".into(), offer.address.clone()));
                }
                Event::Capacity(CapacityEvent::WorkerLost(lost)) => {
                    facts.push(("gone".into(), lost.reason.clone()));
                }
                _ => continue,
            }
            break;
        }
        let granted = records.iter().filter(|(_, record)| record.event.name() == "capacity.lease-granted").count();
        facts.push(("granted".into(), format!("{granted} leases")));
        if all.len() > newest.len() {
            facts.push(("older".into(), format!("{} events before these", all.len() - newest.len())));
        }
        Ok(ThingStory { kind: "worker", id: worker.to_owned(), facts, events: self.notes(&records), way: Vec::new() })
    }

    fn of_ask(&self, ask: &LeaseAsked) -> Vec<(String, String)> {
        let labels: Vec<&str> = ask.nodes.iter().map(|node| node.label.as_str()).collect();
        let subject = &ask.owner.subject;
        let what = match subject.build() {
            Some((build, _)) => self.index.names.build(build),
            None => ask.description.title.clone(),
        };
        let mut facts = vec![
            ("for".to_owned(), format!("{what} attempt {}", subject.attempt)),
            (subject.kind.clone(), subject.id.to_string()),
        ];
        // The name of a build says which job it is of.
        facts.extend(ask.description.facts.iter().filter(|(name, _)| name != "job").cloned());
        facts.push(("asked for".to_owned(), labels.join(", ")));
        if !ask.semaphores.is_empty() {
            let names: Vec<&str> = ask.semaphores.iter().map(|semaphore| semaphore.name.as_str()).collect();
            facts.push(("semaphores".to_owned(), names.join(", ")));
        }
        facts
    }

    fn records(&self, events: &[EventRef]) -> Result<Vec<(EventRef, EventRecord)>, ExplainError> {
        events.iter().map(|at| Ok((*at, self.record(*at)?))).collect()
    }

    fn notes(&self, records: &[(EventRef, EventRecord)]) -> Vec<Note> {
        records.iter().map(|(at, record)| self.note(record, at)).collect()
    }
}

/// How far a lease is.
fn phase(records: &[(EventRef, EventRecord)]) -> &'static str {
    let told = records.iter().rev().find_map(|(_, record)| match &record.event {
        Event::Capacity(CapacityEvent::LeaseQueued(_)) => Some("waits"),
        Event::Capacity(CapacityEvent::LeaseGranted(_)) => Some("granted"),
        Event::Capacity(CapacityEvent::LeaseHeld(_)) => Some("held"),
        Event::Capacity(CapacityEvent::LeaseRevoked(_)) => Some("revoked"),
        Event::Capacity(CapacityEvent::LeaseEnded(_)) => Some("over"),
        _ => None,
    });
    told.unwrap_or("waits")
}
