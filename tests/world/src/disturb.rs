//! What goes wrong by itself: processes die, clocks jump, logs stall, others take over.

use gatelog_event_log::LogError;
use gatelog_record::draft::capacity::WorkerSilent;
use gatelog_record::input::CapacityInput;
use gatelog_record::{Stream, Timestamp};

use crate::carrying::Sender;
use crate::effects::Effects;
use crate::faults::Fault;
use crate::workers::Silence;
use crate::world::{CAPACITY, GATE, World};

/// After so long without a sign a worker counts as lost, in microseconds.
pub(crate) const SILENCE: i64 = 30_000_000;

/// One thing goes wrong, perhaps.
pub(crate) fn act(world: &mut World) -> Result<Option<String>, String> {
    let clocks = world.clocks();
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
                if at_gate { world.gate.start(clocks, snapshot)? } else { world.capacity.start(clocks, snapshot)? };
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
            let snapshot = world.chance.chance(500);
            let stale = if at_gate {
                world.gate.take_over(clocks, snapshot)?
            } else {
                world.capacity.take_over(clocks, snapshot)?
            };
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
            clock_jumps(world)?;
            Some("the clock was set".to_owned())
        }
        64..68 => worker(world, Fault::WorkerRestarts),
        68..71 => worker(world, Fault::WorkerDies),
        71..74 => worker(world, Fault::WorkerCutOff),
        _ => None,
    };
    Ok(told)
}

/// By how much a clock that is wrong is wrong, in seconds: back or ahead.
const WRONG: [i64; 4] = [30, 330, 3 * 3_600, 800 * 86_400];

/// The machine's clock is set: to what is right, or back, or ahead, by a little or by years. Writers that are up see it;
/// one that is down finds it so.
pub(crate) fn clock_jumps(world: &mut World) -> Result<(), String> {
    let before = world.clock_offset;
    let wrong = world.chance.pick(&WRONG).copied().unwrap_or(0);
    world.clock_offset = match world.chance.below(3) {
        0 => 0,
        1 => -wrong * 1_000_000,
        _ => wrong * 1_000_000,
    };
    let (clocks, jump) = (world.clocks(), world.clock_offset - before);
    let fault = match jump.abs() {
        0..=300_000_000 => Fault::ClockJumps,
        _ if jump < 0 => Fault::ClockJumpsBack,
        _ => Fault::ClockJumpsAhead,
    };
    if fault != Fault::ClockJumps {
        let expected = Timestamp(clocks.wall.0 - jump);
        world.gate.clock_stepped(expected, clocks)?;
        world.capacity.clock_stepped(expected, clocks)?;
    }
    world.fault(fault, format!("by {} s", jump / 1_000_000));
    Ok(())
}

fn name(at_gate: bool) -> &'static str {
    if at_gate { "gate" } else { "capacity" }
}

/// The next append of a writer fails, or is written and nobody says so.
fn append_goes_wrong(world: &mut World, at_gate: bool) -> Result<Option<String>, String> {
    let clocks = world.clocks();
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
    let told = if at_gate { world.gate.take(clocks)? } else { world.capacity.take(clocks)? };
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
    let (now, wall) = (world.monotonic, world.wall());
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
            worker.restart(now, wall);
        }
        world.mail.retain(|letter| letter.sender == Sender::Outside);
    }
    world.fault(Fault::ProcessDies, format!("{written} of {held} appends were written"));
}

/// A worker starts again, or is not heard of for a while: dead, or cut off.
fn worker(world: &mut World, fault: Fault) -> Option<String> {
    let index = world.chance.below(world.workers.len() as u64) as usize;
    let (now, wall) = (world.monotonic, world.wall());
    let until = now + world.chance.between(1, 120) * 1_000_000;
    let late = world.chance.chance(500);
    let worker = world.workers.get_mut(index)?;
    if worker.silent.is_some() {
        return None;
    }
    let gone = worker.incarnation();
    match fault {
        Fault::WorkerRestarts => worker.restart(now, wall),
        _ => worker.fall_silent(Silence { since: now, until, died: fault == Fault::WorkerDies }),
    }
    // Half of the time what it had to say is said all the same, late.
    if !late && fault != Fault::WorkerCutOff {
        world.mail.retain(|letter| letter.sender != Sender::Worker(gone.clone()) || letter.answer.is_some());
    }
    world.fault(fault, &gone);
    Some(format!("{gone} is gone"))
}

/// A worker comes back, or whoever watches presence tells capacity of one that was silent for too long.
pub(crate) fn silence(world: &mut World) -> Result<Option<String>, String> {
    let (now, wall) = (world.monotonic, world.wall());
    if let Some(worker) = world.workers.iter_mut().find(|one| one.silent.is_some_and(|silence| silence.until <= now)) {
        worker.come_back(now, wall);
        return Ok(Some(format!("{} is back", worker.incarnation())));
    }
    let Some((_, worker, incarnation)) = unheard(world).into_iter().find(|(due, ..)| *due <= now) else {
        return Ok(None);
    };
    let since = world.workers.iter().find(|one| one.name == worker).and_then(|one| one.unheard_since(&incarnation));
    let silent_ms = (now - since.unwrap_or(now)) / 1_000;
    let (times, last) = world.told_silent.entry(incarnation.clone()).or_default();
    *times += 1;
    *last = now;
    let id = format!("worker/{worker}/{incarnation}/silent/{times}");
    let told = format!("{incarnation} was silent for too long");
    let silent = WorkerSilent { worker, incarnation, silent_ms };
    world.post(Stream::Inputs(CAPACITY), id, "main", CapacityInput::WorkerSilent(silent), Sender::Outside)?;
    Ok(Some(told))
}

/// Workers that capacity believes to be there and nobody hears of: when it is to be told, worker, start.
pub(crate) fn unheard(world: &World) -> Vec<(i64, String, String)> {
    let known = world.capacity.projection.live.own.workers.rows.iter();
    let known = known.map(|(name, row)| (name, &row.offer.incarnation));
    let due = known.filter_map(|(name, incarnation)| {
        let worker = world.workers.iter().find(|worker| worker.name == *name)?;
        let since = worker.unheard_since(incarnation)?;
        let again = world.told_silent.get(incarnation).map_or(i64::MIN, |(_, last)| last + SILENCE);
        Some(((since + SILENCE).max(again), name.clone(), incarnation.clone()))
    });
    due.collect()
}
