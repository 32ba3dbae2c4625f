//! Stories in the user's words, one file each in `stories/`. Everything a story does not expect must
//! not happen: grants, losses, ends and refusals are checked off in order.

use std::collections::{BTreeMap, VecDeque};

use crate::common::{Desk, OWNER, ask, node, offer, owner, semaphore};
use gatelog_capacity_state::{LeasePhase, owner_key};
use gatelog_record::draft::capacity::{
    LeaseAsked, LeaseEndAsked, LeaseHoldAsked, LeaseOwner, LeasePauseAsked, LeaseReleased, LeaseResumeAsked, Pausable,
    PauseAsked, WorkerSeen, WorkerSilent,
};
use gatelog_record::event::{CapacityEvent, PartitionEvent};
use gatelog_record::input::{CapacityInput, PartitionInput};
use gatelog_record::{Event, Input, LeaseId};
use gatelog_rules_capacity::Limits;

struct Story {
    desk: Desk,
    offers: BTreeMap<String, (u32, WorkerSeen)>,
    asks: BTreeMap<String, LeaseAsked>,
    leases: BTreeMap<LeaseId, String>,
    /// What happened and is not yet checked off.
    happened: VecDeque<String>,
}

impl Story {
    fn take(&mut self, input: CapacityInput) {
        assert!(self.happened.is_empty(), "not expected: {:?}", self.happened);
        for event in self.desk.take(input) {
            if let Some(line) = self.tell(&event) {
                self.happened.push_back(line);
            }
        }
        let (incremental, anew) = self.desk.digests();
        assert_eq!(incremental, anew, "folding anew gives another state");
    }

    fn tell(&mut self, event: &Event) -> Option<String> {
        let event = match event {
            Event::Capacity(event) => event,
            Event::Partition(PartitionEvent::InputTaken(taken)) => return Some(format!("nothing {}", taken.reason)),
            other => panic!("{} is not for capacity", other.name()),
        };
        let name = |lease: &LeaseId| self.leases[lease].clone();
        match event {
            CapacityEvent::LeaseQueued(queued) => {
                let name = self.asks.iter().find(|(_, known)| **known == queued.ask).unwrap().0.clone();
                self.leases.insert(queued.lease, name);
                None
            }
            CapacityEvent::LeaseGranted(granted) => {
                assert_eq!(granted.nodes.len(), self.asks[&name(&granted.lease)].nodes.len(), "all nodes or none");
                Some(format!("granted {} to {}", name(&granted.lease), granted.worker))
            }
            CapacityEvent::LeaseRevoked(revoked) => {
                Some(format!("revoked {} from {} {}", name(&revoked.lease), revoked.worker, revoked.reason))
            }
            CapacityEvent::LeasePaused(paused) => Some(format!("paused {}", name(&paused.lease))),
            CapacityEvent::LeaseResumed(resumed) => Some(format!("resumed {}", name(&resumed.lease))),
            CapacityEvent::LeaseHeld(held) => Some(format!("held {} on {}", name(&held.lease), held.worker)),
            CapacityEvent::LeaseEnded(ended) if ended.tell_owner => Some(format!("lost {}", name(&ended.lease))),
            CapacityEvent::LeaseEnded(ended) => Some(format!("ended {} {}", name(&ended.lease), ended.reason)),
            CapacityEvent::ReleaseNoted(noted) => Some(format!("noted release of {}", name(&noted.released.lease))),
            CapacityEvent::LeaseRefused(refused) => {
                let name = self.asks.iter().find(|(_, known)| known.owner == refused.ask.owner).unwrap().0;
                Some(format!("refused {name} {}", refused.code))
            }
            CapacityEvent::WorkerLost(lost) => Some(format!("worker {} lost {}", lost.worker, lost.reason)),
            CapacityEvent::PauseChanged(changed) => {
                let word = if changed.asked.paused { "paused" } else { "resumed" };
                Some(format!("{} {} {word}", changed.asked.role.word(), changed.asked.component))
            }
            CapacityEvent::WorkerJoined(_) | CapacityEvent::WaitChanged(_) => None,
        }
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["worker", name, "slots", slots, rest @ ..] => {
                let labels: Vec<&str> = match rest {
                    ["labels", labels, "joins"] => labels.split(',').collect(),
                    ["joins"] => Vec::new(),
                    _ => panic!("how does the worker join?"),
                };
                let offer = offer(name, 1, slots.parse().unwrap(), &labels);
                self.offers.insert((*name).to_owned(), (1, offer.clone()));
                self.take(CapacityInput::WorkerSeen(offer));
            }
            ["worker", name, "restarts"] => {
                let (incarnation, offer) = self.offers.get_mut(*name).unwrap();
                *incarnation += 1;
                offer.incarnation = incarnation.to_string();
                offer.started_at = offer.started_at.plus_seconds(60);
                let offer = offer.clone();
                self.take(CapacityInput::WorkerSeen(offer));
            }
            ["worker", name, "restarts", "with", "its", "clock", "an", "hour", "back"] => {
                let (incarnation, offer) = self.offers.get_mut(*name).unwrap();
                *incarnation += 1;
                offer.incarnation = incarnation.to_string();
                offer.started_at = offer.started_at.plus_seconds(-3_600);
                let offer = offer.clone();
                self.take(CapacityInput::WorkerSeen(offer));
            }
            ["the", "old", "worker", name, "is", "seen", "again"] => {
                let mut offer = self.offers[*name].1.clone();
                offer.incarnation = (self.offers[*name].0 - 1).to_string();
                offer.started_at = offer.started_at.plus_seconds(-60);
                self.take(CapacityInput::WorkerSeen(offer));
            }
            ["worker", name, "is", "seen", "again"] => {
                let offer = self.offers[*name].1.clone();
                self.take(CapacityInput::WorkerSeen(offer));
            }
            ["worker", name, "changes", "to", "slots", slots] => {
                let offer = &mut self.offers.get_mut(*name).unwrap().1;
                offer.slots = slots.parse().unwrap();
                let offer = offer.clone();
                self.take(CapacityInput::WorkerSeen(offer));
            }
            ["worker", name, "falls", "silent"] => self.silent(name, 0),
            ["the", "old", "worker", name, "falls", "silent"] => self.silent(name, 1),
            [role @ ("executor" | "merger"), name, "is", "paused", "because", reason @ ..] => {
                self.pause(role, name, true, &reason.join(" "));
            }
            [role @ ("executor" | "merger"), name, "is", "resumed"] => self.pause(role, name, false, ""),
            ["tenant", tenant, "asks", "build", name, rest @ ..] => {
                let asked = wanted(ask(tenant, name, 1), rest);
                let attempt = asked.owner.subject.attempt;
                let known = if attempt == 1 { (*name).to_owned() } else { format!("{name}.{attempt}") };
                self.asks.insert(known, asked.clone());
                self.take(CapacityInput::LeaseAsked(asked));
            }
            ["owner", "ends", name] => self.end(name, "finished"),
            ["owner", "keeps", name] => {
                let (owner, request, reason) = (self.owner(name), 7, "somebody looks".to_owned());
                self.take(CapacityInput::LeaseHoldAsked(LeaseHoldAsked { owner, until: None, request, reason }));
            }
            ["owner", "pauses", name] => {
                let owner = self.owner(name);
                self.take(CapacityInput::LeasePauseAsked(LeasePauseAsked { owner }));
            }
            ["owner", "resumes", name] => {
                let owner = self.owner(name);
                self.take(CapacityInput::LeaseResumeAsked(LeaseResumeAsked { owner }));
            }
            ["owner", "lets", "go", "of", name] => self.end(name, "hold-expired"),
            ["owner", "cancels", name] => self.end(name, "canceled"),
            ["worker", "releases", name] => self.release(name, 0),
            ["the", "old", "worker", "releases", name] => self.release(name, 1),
            ["finish", name] => {
                self.end(name, "finished");
                let revoked = self.happened.pop_front().unwrap();
                assert!(revoked.starts_with(&format!("revoked {name} ")), "{revoked}");
                self.release(name, 0);
                assert_eq!(self.happened.pop_front().unwrap(), format!("ended {name} finished"));
            }
            ["expect", name, "waits", code, rest @ ..] => {
                let row = self.row(name);
                let wait = row.unwrap_or_else(|| panic!("{name} has no lease")).wait.unwrap();
                assert_eq!((wait.code.as_str(), wait.subject.as_str()), (*code, rest.join(" ").as_str()), "{wait:?}");
                assert!(!wait.detail.is_empty());
            }
            ["expect", name, "has", "no", "lease"] => assert!(self.row(name).is_none()),
            ["expect", "worker", name, "uses", used, "of", slots] => {
                let row = &self.desk.live.own.workers.rows[*name];
                assert_eq!((row.used, row.offer.slots), (used.parse().unwrap(), slots.parse().unwrap()));
            }
            ["expect", "owner", "is", "told", name, code] => {
                let told = self.desk.live.partition.outbox.rows.iter().any(|(key, row)| {
                    let Input::Partition(PartitionInput::LeaseLost(lost)) = &row.input else { return false };
                    (key.0, key.1) == (OWNER.domain as u8, OWNER.index)
                        && row.key == self.asks[*name].owner.key
                        && lost.owner == self.asks[*name].owner
                        && lost.code == *code
                        && !lost.message.is_empty()
                        && lost.refused == matches!(*code, "over-limit" | "no-worker")
                });
                assert!(told, "the owner is not told");
            }
            ["expect", "history", name, phases @ ..] => self.history(name, phases),
            ["expect", "nothing", "live"] => {
                let own = &self.desk.live.own;
                assert!(own.leases.rows.is_empty() && own.queue.rows.is_empty() && own.by_owner.rows.is_empty());
                assert!(own.semaphores.rows.is_empty() && own.turns.rows.is_empty() && own.by_worker.rows.is_empty());
            }
            ["expect", rest @ ..] => assert_eq!(self.happened.pop_front().unwrap_or_default(), rest.join(" ")),
            _ => panic!("not understood"),
        }
    }

    fn row(&self, name: &str) -> Option<gatelog_capacity_state::LeaseRow> {
        let owner = &self.asks[name].owner;
        let lease = self.desk.live.own.by_owner.rows.get(&owner_key(owner.partition, &owner.subject))?;
        self.desk.live.own.leases.rows.get(lease).cloned()
    }

    /// Whose lease goes by a name; of one that nobody asked for, somebody's.
    fn owner(&self, name: &str) -> LeaseOwner {
        self.asks.get(name).map_or_else(|| owner("nobody", name, 1), |ask| ask.owner.clone())
    }

    fn silent(&mut self, name: &str, older: u32) {
        let (incarnation, _) = &self.offers[name];
        let incarnation = (incarnation - older).to_string();
        self.take(CapacityInput::WorkerSilent(WorkerSilent {
            worker: name.to_owned(),
            incarnation,
            silent_ms: 30_000,
        }));
    }

    fn pause(&mut self, role: &str, name: &str, paused: bool, reason: &str) {
        let role = if role == "merger" { Pausable::Merger } else { Pausable::Executor };
        let asked = PauseAsked { role, component: name.to_owned(), paused, reason: reason.to_owned() };
        self.take(CapacityInput::PauseAsked(asked));
    }

    fn end(&mut self, name: &str, reason: &str) {
        let owner = self.owner(name);
        self.take(CapacityInput::LeaseEndAsked(LeaseEndAsked { owner, reason: reason.to_owned() }));
    }

    fn release(&mut self, name: &str, older: u32) {
        let lease = *self.leases.iter().find(|(_, known)| *known == name).unwrap().0;
        let grant = self.row(name).and_then(|row| row.grant);
        let (worker, incarnation) = match grant {
            Some(grant) => (grant.worker, grant.incarnation.parse::<u32>().unwrap() - older),
            None => ("w1".to_owned(), 1),
        };
        let incarnation = incarnation.to_string();
        self.take(CapacityInput::LeaseReleased(LeaseReleased { lease, worker, incarnation }));
    }

    fn history(&self, name: &str, phases: &[&str]) {
        let lease = *self.leases.iter().find(|(_, known)| *known == name).unwrap().0;
        let rows: Vec<_> = self.desk.read.history.rows.iter().filter(|(key, _)| key.0 == lease).collect();
        let mut found: Vec<&str> = rows
            .iter()
            .map(|(_, row)| match row.phase {
                LeasePhase::Queued => "queued",
                LeasePhase::Granted => "granted",
                LeasePhase::Revoked => "revoked",
                LeasePhase::Released => "released",
                LeasePhase::Ended => "ended",
                LeasePhase::Held => "held",
                LeasePhase::Paused => "paused",
            })
            .collect();
        found.dedup();
        assert_eq!(found, phases);
        for pair in rows.windows(2) {
            assert_eq!(pair[0].1.until, Some(pair[1].1.from), "a row ends where the next begins");
        }
        let (_, last) = rows.last().unwrap();
        assert_eq!(last.until, None);
        let at_the_end = self.desk.read.lease_at(lease, self.desk.log.len() as u64).unwrap();
        assert_eq!(at_the_end.as_ref(), Some(*last));
        assert_eq!(self.desk.read.lease_at(lease, rows[0].1.from - 1).unwrap(), None, "before it was asked for");
    }
}

fn wanted(mut ask: LeaseAsked, mut words: &[&str]) -> LeaseAsked {
    loop {
        words = match words {
            [] => return ask,
            ["attempt", attempt, rest @ ..] => {
                ask.owner.subject.attempt = attempt.parse().unwrap();
                rest
            }
            ["label", label, rest @ ..] => {
                ask.nodes.push(node(label));
                rest
            }
            ["semaphore", name, "max", max, rest @ ..] => {
                ask.semaphores.push(semaphore(name, max.parse().unwrap()));
                rest
            }
            ["or", "others", rest @ ..] => {
                ask.or_others = true;
                rest
            }
            ["priority", "high", rest @ ..] => {
                ask.priority = 100;
                rest
            }
            ["priority", "low", rest @ ..] => {
                ask.priority = 300;
                rest
            }
            other => panic!("not understood: {other:?}"),
        };
    }
}

fn tell(name: &str, text: &str) {
    let mut limits = Limits::default();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with('#') || line.starts_with("limit ")) {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["limit", "considered", count] => limits.considered = count.parse().unwrap(),
            ["limit", "queued", count] => limits.queued = count.parse().unwrap(),
            ["limit", "nodes", count] => limits.per_lease = count.parse().unwrap(),
            _ => {}
        }
    }
    let mut story = Story {
        desk: Desk::new(limits),
        offers: BTreeMap::new(),
        asks: BTreeMap::new(),
        leases: BTreeMap::new(),
        happened: VecDeque::new(),
    };
    for (number, line) in lines {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| story.line(line)));
        assert!(told.is_ok(), "{name}:{}: {line}", number + 1);
    }
    assert!(story.happened.is_empty(), "{name}: not expected at the end: {:?}", story.happened);
}

macro_rules! stories {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            tell(concat!(stringify!($name), ".txt"), include_str!(concat!("stories/", stringify!($name), ".txt")));
        }
    )*};
}

stories! {
    a_build_gets_a_slot
    a_paused_build_needs_no_slot
    executors_are_paused
    fairness_between_tenants
    priorities
    semaphores
    labels
    order_of_end_and_release
    a_worker_restarts
    a_worker_falls_silent
    slots_shrink_and_grow
    repeats_and_strangers
    limits
    waiting_limit
    nodes_are_kept
}
