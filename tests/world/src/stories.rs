//! Stories of their own: one thing goes wrong in an otherwise quiet world.

use gatelog_event_log::{Log, MemoryBlobs, MemoryLog};
use gatelog_record::draft::capacity::WorkerSeen;
use gatelog_record::input::CapacityInput;
use gatelog_record::{InputId, InputRecord, Stream, Timestamp};

use crate::world::{CAPACITY, World};

/// A story of its own: the first work of a world gets lost, and an hour goes by. Gives whether it was sent again.
///
/// # Errors
/// The promise that was broken.
pub fn lost_work_is_sent_again() -> Result<bool, String> {
    let mut world = World::new(0)?;
    for _ in 0..10_000 {
        if world.monotonic > 3_600_000_000 {
            break;
        }
        // Whoever does short work takes it up, and is never heard of again.
        world.effects.doing.clear();
        if !world.step()? && !world.pass() {
            break;
        }
    }
    Ok(world.coverage.events.contains_key("gate.work-resent"))
}

/// A story of its own: a worker starts a second time, and the announcement of its first start comes after that of the
/// second. Gives whether the second counts.
///
/// # Errors
/// The promise that was broken.
pub fn newest_start_counts() -> Result<bool, String> {
    let mut world = World::new(0)?;
    for start in [2, 1] {
        let seen = WorkerSeen {
            worker: "w9".into(),
            incarnation: format!("w9-{start}"),
            started_at: Timestamp(world.wall().0 + start),
            address: String::new(),
            slots: 1,
            labels: Vec::new(),
        };
        let at = Timestamp(world.wall().0 + start);
        let id = InputId::new(format!("worker/w9/w9-{start}/seen"));
        let record = InputRecord::new(id, "main", at, CapacityInput::WorkerSeen(seen));
        let frame = record.close().map_err(|error| error.to_string())?.encode();
        drop(world.log.append_inputs(Stream::Inputs(CAPACITY), vec![frame]));
    }
    for _ in 0..100 {
        world.step()?;
    }
    let known = world.capacity.projection.live.own.workers.rows.get("w9").ok_or("capacity knows no such worker")?;
    Ok(known.offer.incarnation == "w9-2")
}

/// A day of a seed without faults: people do things for so many turns, then all comes to rest. Gives what is on the log
/// and its blobs, for whoever looks at the past.
///
/// # Errors
/// The promise that was broken.
pub fn quiet_day(seed: u64, turns: usize) -> Result<(MemoryLog, MemoryBlobs), String> {
    let mut world = World::new(seed)?;
    for _ in 0..turns {
        if crate::people::tell(&mut world)?.is_none() && world.wishes.chance(60) {
            crate::people::act(&mut world)?;
        }
        if !world.step()? && !world.pass() {
            world.monotonic += 1_000_000;
        }
    }
    world.come_to_rest(200_000)?;
    Ok((world.log, world.blobs))
}

/// What came of [`weeks_of_jumping_clocks`].
#[derive(Clone, Copy, Debug)]
pub struct Weeks {
    /// How often the clock was set.
    pub jumps: u64,
    /// How many changes were merged.
    pub merged: usize,
    /// The longest that an item was there, in seconds of the monotonic clock.
    pub longest: i64,
}

/// So many days of a seed in which people do things, and nothing goes wrong but the machine's clock: every few hours it
/// is set, back or ahead, by seconds or by years, while writers are up, and while they are down. Then all comes to rest,
/// and every law is judged.
///
/// # Errors
/// The promise that was broken.
pub fn weeks_of_jumping_clocks(seed: u64, days: i64) -> Result<Weeks, String> {
    const MINUTE: i64 = 60_000_000;
    let mut world = World::new(seed)?;
    let (mut people, mut clock, mut jumps) = (0, 60 * MINUTE, 0);
    while world.monotonic < days * 24 * 60 * MINUTE {
        if world.monotonic >= people {
            crate::people::act(&mut world)?;
            people = world.monotonic + world.wishes.between(5, 90) * MINUTE;
        }
        if world.monotonic >= clock {
            // Those that are down find it set when they are started again.
            match world.chance.below(4) {
                0 => world.gate.kill(),
                1 => world.capacity.kill(),
                _ => {}
            }
            crate::disturb::clock_jumps(&mut world)?;
            jumps += 1;
            clock = world.monotonic + world.chance.between(10, 360) * MINUTE;
        }
        if crate::people::tell(&mut world)?.is_some() || world.step()? {
            continue;
        }
        let wake = people.min(clock);
        if !world.pass() || world.monotonic > wake {
            world.monotonic = wake;
        }
    }
    world.come_to_rest(200_000)?;
    world.judge()?;
    let longest = world.laws.longest / 1_000_000;
    Ok(Weeks { jumps, merged: world.witness.merges.len(), longest })
}
