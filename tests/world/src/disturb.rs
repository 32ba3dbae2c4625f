//! What goes wrong by itself: processes die, clocks jump, logs stall, others take over.

use gatelog_event_log::LogError;
use gatelog_record::draft::capacity::WorkerSilent;
use gatelog_record::input::CapacityInput;
use gatelog_record::{Stream, Timestamp};

use crate::carrying::Sender;
use crate::effects::Effects;
use crate::faults::Fault;
use crate::known;
use crate::world::{CAPACITY, GATE, World};

/// After so long without a sign a worker counts as lost, in microseconds.
pub(crate) const SILENCE: i64 = 30_000_000;

/// One thing goes wrong, perhaps.
pub(crate) fn act(world: &mut World) -> Result<Option<String>, String> {
    let wall = world.wall();
    let at_gate = world.chance.chance(600);
    let told = match world.chance.below(200) {
        0..8 => {
            if at_gate {
                world.gate.kill()
            } else {
                world.capacity.kill()
            }
            let snapshot = world.chance.chance(500);
            let term =
                if at_gate { world.gate.start(wall, snapshot)? } else { world.capacity.start(wall, snapshot)? };
            let fault = if snapshot { Fault::WriterDiesSnapshot } else { Fault::WriterDies };
            world.fault(fault, format!("{} goes on in term {term}", name(at_gate)));
            Some("a writer died".to_owned())
        }
        8..18 => {
            let sequence = if at_gate { world.gate.keep_snapshot()? } else { world.capacity.keep_snapshot()? };
            Some(format!("{} keeps a snapshot at {sequence}", name(at_gate)))
        }
        18..30 if !world.holding => append_goes_wrong(world, at_gate)?,
        30..40 => hold(world),
        40..44 => {
            process_dies(world);
            Some("all is gone but the log".to_owned())
        }
        44..49 => {
            let stale = if at_gate { world.gate.take_over(wall)? } else { world.capacity.take_over(wall)? };
            world.fault(Fault::TakenOver, name(at_gate));
            if let (Some(record), false) = (stale, world.holding) {
                world.log.insert(Stream::Events(if at_gate { GATE } else { CAPACITY }), record);
                world.fault(Fault::StaleRecord, name(at_gate));
            }
            Some("another writer took over".to_owned())
        }
        49..56 => {
            let which = world.chance.below(3);
            let fault = world.begin_again(which);
            world.fault(fault, "");
            Some("messages are sent again".to_owned())
        }
        56..60 => {
            world.effects = Effects::default();
            world.mail.retain(|letter| letter.sender != Sender::Effects || letter.answer.is_some());
            world.fault(Fault::EffectsDie, "");
            Some("effects start again".to_owned())
        }
        60..64 => {
            let jump = world.chance.between(-900, 900) * 1_000_000;
            world.clock_offset += jump;
            let now = world.wall();
            if jump.abs() > 300_000_000 {
                let before = Timestamp(now.0 - jump);
                world.gate.clock_stepped(before, now)?;
                world.capacity.clock_stepped(before, now)?;
            }
            world.fault(Fault::ClockJumps, format!("by {} s", jump / 1_000_000));
            Some("the clock was set".to_owned())
        }
        64..68 => worker(world, true),
        68..71 => worker(world, false),
        _ => None,
    };
    Ok(told)
}

fn name(at_gate: bool) -> &'static str {
    if at_gate { "gate" } else { "capacity" }
}

/// The next append of a writer fails, or is written and nobody says so.
fn append_goes_wrong(world: &mut World, at_gate: bool) -> Result<Option<String>, String> {
    let wall = world.wall();
    let ready = if at_gate {
        world.gate.has_input() && world.gate.in_flight() == 0
    } else {
        world.capacity.has_input() && world.capacity.in_flight() == 0
    };
    if !ready {
        return Ok(None);
    }
    let fault = if world.chance.chance(600) {
        world.log.lose_next_ack();
        Fault::EventAckLost
    } else {
        let (what, message) = ("writing".to_owned(), "no space".to_owned());
        world.log.fail_next(LogError::System { what, message });
        Fault::EventAppendFails
    };
    let told = if at_gate { world.gate.take(wall)? } else { world.capacity.take(wall)? };
    world.fault(fault, name(at_gate));
    Ok(told.map(|told| format!("{} {told}", name(at_gate))))
}

/// The log begins to keep everybody waiting, lets some through, or all.
fn hold(world: &mut World) -> Option<String> {
    if !world.holding {
        world.log.hold();
        world.holding = true;
        world.fault(Fault::LogHolds, "");
        return Some("the log keeps everybody waiting".to_owned());
    }
    if world.chance.chance(600) {
        let count = 1 + world.chance.below(4) as usize;
        let released = world.log.release(count);
        return Some(format!("the log lets {released} through"));
    }
    world.log.flow();
    world.holding = false;
    Some("the log lets all through".to_owned())
}

/// Everything in the process dies; of what was on its way to the log, the oldest part is there.
fn process_dies(world: &mut World) {
    let held = world.log.held();
    let written = world.chance.below(held as u64 + 1) as usize;
    world.log.crash(written);
    world.holding = false;
    world.gate.kill();
    world.capacity.kill();
    world.routing.restart();
    world.out.restart();
    world.back.restart();
    world.effects = Effects::default();
    world.mail.retain(|letter| letter.sender != Sender::Effects);
    // Executors may be processes of their own.
    if world.chance.chance(500) {
        for worker in &mut world.workers {
            worker.restart();
        }
        world.mail.retain(|letter| letter.sender == Sender::Outside);
    }
    announce_in_order(world);
    world.fault(Fault::ProcessDies, format!("{written} of {held} appends were written"));
}

fn worker(world: &mut World, restart: bool) -> Option<String> {
    let index = world.chance.below(world.workers.len() as u64) as usize;
    let now = world.monotonic;
    let worker = world.workers.get_mut(index)?;
    if worker.silent.is_some() {
        return None;
    }
    let gone = worker.incarnation();
    let fault = if restart {
        worker.restart();
        Fault::WorkerRestarts
    } else {
        worker.fall_silent(now);
        Fault::WorkerSilent
    };
    // Half of the time what it had to say is said all the same, late.
    if world.chance.chance(500) {
        world.mail.retain(|letter| letter.sender != Sender::Worker(gone.clone()) || letter.answer.is_some());
    }
    announce_in_order(world);
    world.fault(fault, &gone);
    Some(format!("{gone} is gone"))
}

/// As long as an announcement that comes late is taken for the newest, none comes late.
pub(crate) fn announce_in_order(world: &mut World) {
    if known::stands(known::NEWEST_START) {
        let current: Vec<Sender> = world.workers.iter().map(|worker| Sender::Worker(worker.incarnation())).collect();
        world.mail.retain(|letter| !letter.what.ends_with("/seen") || current.contains(&letter.sender));
    }
}

/// Capacity is told of a worker that was silent for too long; then that one starts again.
pub(crate) fn silence(world: &mut World) -> Result<Option<String>, String> {
    let now = world.monotonic;
    let Some(index) = world.workers.iter().position(|worker| worker.silent.is_some_and(|since| now - since >= SILENCE))
    else {
        return Ok(None);
    };
    let Some(worker) = world.workers.get_mut(index) else { return Ok(None) };
    let silent = WorkerSilent {
        worker: worker.name.clone(),
        incarnation: worker.incarnation(),
        silent_ms: worker.silent.map_or(0, |since| (now - since) / 1_000),
    };
    worker.restart();
    announce_in_order(world);
    let id = format!("worker/{}/{}/silent", silent.worker, silent.incarnation);
    let told = format!("{} was silent for too long", silent.incarnation);
    world.post(Stream::Inputs(CAPACITY), id, "main", CapacityInput::WorkerSilent(silent), Sender::Outside)?;
    Ok(Some(told))
}
