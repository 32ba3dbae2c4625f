//! Whatever is said in whatever order: never more than there is, always a reason, and folding anew
//! gives the same state.

use std::collections::BTreeMap;

use crate::common::{Desk, ask, node, offer, owner, semaphore};
use gatelog_capacity_state::{LeaseState, Pause, owner_key};
use gatelog_record::Event;
use gatelog_record::draft::capacity::{
    LeaseEndAsked, LeaseHoldAsked, LeasePauseAsked, LeaseReleased, LeaseResumeAsked, WorkerSilent,
};
use gatelog_record::event::CapacityEvent;
use gatelog_record::input::CapacityInput;
use gatelog_rules_capacity::Limits;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Said {
    Seen { worker: u8, incarnation: u32, slots: u32, label: bool },
    Silent { worker: u8, incarnation: u32 },
    Asks { tenant: u8, build: u8, attempt: u32, label: bool, semaphores: u8, priority: u8 },
    Ends { build: u8, attempt: u32 },
    Keeps { build: u8, attempt: u32 },
    Pauses { build: u8, attempt: u32 },
    Resumes { build: u8, attempt: u32 },
    Releases { build: u8, attempt: u32, current: bool },
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        2 => (0..3_u8, 1..4_u32, 0..4_u32, any::<bool>())
            .prop_map(|(worker, incarnation, slots, label)| Said::Seen { worker, incarnation, slots, label }),
        1 => (0..3_u8, 1..4_u32).prop_map(|(worker, incarnation)| Said::Silent { worker, incarnation }),
        6 => (0..3_u8, 0..24_u8, 1..3_u32, any::<bool>(), 0..4_u8, 1..4_u8).prop_map(
            |(tenant, build, attempt, label, semaphores, priority)| Said::Asks {
                tenant, build, attempt, label, semaphores, priority
            }
        ),
        3 => (0..24_u8, 1..3_u32).prop_map(|(build, attempt)| Said::Ends { build, attempt }),
        2 => (0..24_u8, 1..3_u32).prop_map(|(build, attempt)| Said::Keeps { build, attempt }),
        2 => (0..24_u8, 1..3_u32).prop_map(|(build, attempt)| Said::Pauses { build, attempt }),
        1 => (0..24_u8, 1..3_u32).prop_map(|(build, attempt)| Said::Resumes { build, attempt }),
        4 => (0..24_u8, 1..3_u32, prop::bool::weighted(0.9))
            .prop_map(|(build, attempt, current)| Said::Releases { build, attempt, current }),
    ]
}

fn input(desk: &Desk, said: &Said) -> Option<CapacityInput> {
    Some(match said {
        Said::Seen { worker, incarnation, slots, label } => {
            let labels: &[&str] = if *label { &["small"] } else { &[] };
            CapacityInput::WorkerSeen(offer(&format!("w{worker}"), *incarnation, *slots, labels))
        }
        Said::Silent { worker, incarnation } => CapacityInput::WorkerSilent(WorkerSilent {
            worker: format!("w{worker}"),
            incarnation: incarnation.to_string(),
            silent_ms: 30_000,
        }),
        Said::Asks { tenant, build, attempt, label, semaphores, priority } => {
            let mut ask = ask(&format!("t{tenant}"), &format!("b{build}"), *attempt);
            ask.priority = u32::from(*priority) * 100;
            ask.nodes.push(node(if *label { "big" } else { "small" }));
            ask.semaphores.extend((semaphores & 1 != 0).then(|| semaphore("one", 1)));
            ask.semaphores.extend((semaphores & 2 != 0).then(|| semaphore("two", 2)));
            CapacityInput::LeaseAsked(ask)
        }
        Said::Ends { build: name, attempt } => CapacityInput::LeaseEndAsked(LeaseEndAsked {
            owner: owner("", &format!("b{name}"), *attempt),
            reason: "finished".to_owned(),
        }),
        Said::Keeps { build: name, attempt } => CapacityInput::LeaseHoldAsked(LeaseHoldAsked {
            owner: owner("", &format!("b{name}"), *attempt),
            until: None,
            request: 7,
            reason: "somebody looks".to_owned(),
        }),
        Said::Pauses { build: name, attempt } => {
            CapacityInput::LeasePauseAsked(LeasePauseAsked { owner: owner("", &format!("b{name}"), *attempt) })
        }
        Said::Resumes { build: name, attempt } => {
            CapacityInput::LeaseResumeAsked(LeaseResumeAsked { owner: owner("", &format!("b{name}"), *attempt) })
        }
        Said::Releases { build, attempt, current } => {
            let (lease, row) = desk.lease(&format!("b{build}"), *attempt)?;
            let grant = row.grant?;
            let incarnation = if *current { grant.incarnation } else { "0".to_owned() };
            CapacityInput::LeaseReleased(LeaseReleased { lease, worker: grant.worker, incarnation })
        }
    })
}

fn check(desk: &Desk, events: &[Event]) {
    assert!(!events.is_empty(), "every input leads to an event here: capacity always says why nothing follows");
    let own = &desk.live.own;
    let mut used: BTreeMap<&str, u32> = BTreeMap::new();
    let mut semaphores: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for (lease, row) in &own.leases.rows {
        assert_eq!(row.state == LeaseState::Queued, row.grant.is_none());
        assert_eq!(row.state == LeaseState::Queued, row.wait.is_some(), "a reason while it waits, and only then");
        let key = owner_key(row.ask.owner.partition, &row.ask.owner.subject);
        assert_eq!(own.by_owner.rows.get(&key), Some(lease));
        let place = (row.ask.priority, row.ask.share.clone(), row.queued);
        assert_eq!(own.queue.rows.contains_key(&place), row.state == LeaseState::Queued);
        if let Some(grant) = &row.grant {
            let kept = row.state == LeaseState::Held;
            let there = own.workers.rows.get(&grant.worker).map(|worker| worker.offer.incarnation.as_str());
            assert!(
                there == Some(grant.incarnation.as_str()) || (kept && there.is_none()),
                "a lost worker holds what is not kept"
            );
            assert_eq!(own.by_worker.rows.get(&(grant.worker.clone(), *lease)), Some(&grant.incarnation));
            // What is kept, or was, takes nothing from anybody.
            if row.held.is_some() {
                continue;
            }
            // What waits for other jobs has its semaphores, and no slot.
            *used.entry(&grant.worker).or_default() += u32::from(row.pause != Pause::Waits);
            for wanted in &row.ask.semaphores {
                let entry = semaphores.entry(&wanted.name).or_insert((0, wanted.max));
                entry.0 += 1;
            }
        }
    }
    for (name, worker) in &own.workers.rows {
        assert_eq!(worker.used, used.get(name.as_str()).copied().unwrap_or(0));
    }
    // Beyond its slots a worker may only be after its offer shrank: never by a grant.
    for event in events {
        if let Event::Capacity(CapacityEvent::LeaseGranted(granted)) = event {
            let worker = &own.workers.rows[&granted.worker];
            assert!(worker.used <= worker.offer.slots, "{worker:?}");
        }
    }
    for (name, (held, max)) in semaphores {
        assert!(held <= max, "semaphore {name} is held {held} times of {max}");
        assert_eq!(own.semaphores.rows.keys().filter(|(held, _)| held == name).count(), held as usize);
    }
    let turns: (u32, u32) =
        own.turns.rows.values().fold((0, 0), |(queued, held), turn| (queued + turn.queued, held + turn.held));
    assert_eq!(turns, (own.queue.rows.len() as u32, own.by_worker.rows.len() as u32));
    // Nothing that could be granted waits: where nobody is passed over for another's sake, no worker
    // that would do has a free slot.
    for row in own.leases.rows.values().filter(|row| row.wait.as_ref().is_some_and(|wait| wait.code == "no-slot")) {
        let labels = || row.ask.nodes.iter().map(|node| node.label.as_str());
        assert!(!own.workers.rows.values().any(|worker| worker.free() > 0 && worker.makes(labels())));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_more_than_there_is_and_always_a_reason(saids in prop::collection::vec(said(), 1..120)) {
        let mut desk = Desk::new(Limits { considered: 4, ..Limits::default() });
        for said in &saids {
            let Some(input) = input(&desk, said) else { continue };
            let before = desk.live.own.workers.rows.clone();
            let events = desk.take(input);
            check(&desk, &events);
            // No start gives way to an earlier one, whatever comes when.
            for (name, worker) in &desk.live.own.workers.rows {
                let earlier = before.get(name).is_none_or(|before| before.offer.started_at <= worker.offer.started_at);
                prop_assert!(earlier, "{:?} took the place of {:?}", worker, before.get(name));
            }
        }
        let (incremental, anew) = desk.digests();
        prop_assert_eq!(incremental, anew);
        // The history's open rows are the leases that are not over.
        let open = desk.read.history.rows.values()
            .filter(|row| row.until.is_none() && row.ended_at.is_none()).count();
        prop_assert_eq!(open, desk.live.own.leases.rows.len());
    }

    #[test]
    fn when_all_finish_everybody_was_served(count in 1..40_usize, slots in 1..4_u32) {
        let mut desk = Desk::new(Limits::default());
        desk.take(CapacityInput::WorkerSeen(offer("w", 1, slots, &[])));
        for index in 0..count {
            desk.take(CapacityInput::LeaseAsked(ask(&format!("t{}", index % 3), &format!("b{index}"), 1)));
        }
        let mut served = 0;
        while let Some((lease, row)) = desk.live.own.leases.rows.iter().find(|(_, row)| row.grant.is_some())
            .map(|(lease, row)| (*lease, row.clone()))
        {
            let owner = row.ask.owner.clone();
            desk.take(CapacityInput::LeaseEndAsked(LeaseEndAsked { owner, reason: "finished".into() }));
            let worker = "w".to_owned();
            desk.take(CapacityInput::LeaseReleased(LeaseReleased { lease, worker, incarnation: "1".into() }));
            served += 1;
            prop_assert!(served <= count);
        }
        prop_assert_eq!(served, count);
        prop_assert!(desk.live.own.leases.rows.is_empty() && desk.live.own.turns.rows.is_empty());
    }
}
