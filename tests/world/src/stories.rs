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
    Ok(world.coverage.events.contains_key("work-resent"))
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

/// What came of [`unattended_weeks`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Weeks {
    /// How often the clock was set.
    pub jumps: u64,
    /// How often the disk was full.
    pub fills: u64,
    /// How many ticks of timers were taken.
    pub ticks: u64,
    /// How many changes were merged.
    pub merged: usize,
    /// The longest that an item was there, in seconds of the monotonic clock, those with a full disk included.
    pub longest: i64,
}

const MINUTE: i64 = 60_000_000;

/// So many days of a seed in which people do things, timers tick, and nothing goes wrong but the machine's clock and its
/// disk: every few hours the clock is set, back or ahead, by seconds or by years, while writers are up, and while they are
/// down; a few times a day the disk is full for up to half an hour. Then all comes to rest, and every law is judged.
///
/// # Errors
/// The promise that was broken.
pub fn unattended_weeks(seed: u64, days: i64) -> Result<Weeks, String> {
    let mut world = World::new(seed)?;
    let mut weeks = Weeks::default();
    let (mut people, mut clock, mut disk, mut calendar) = (0, 60 * MINUTE, 200 * MINUTE, 0);
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
            weeks.jumps += 1;
            clock = world.monotonic + world.chance.between(10, 360) * MINUTE;
        }
        if world.monotonic >= disk {
            let full = !world.disk_full;
            world.fill_disk(full);
            weeks.fills += u64::from(full);
            let (least, most) = if full { (1, 30) } else { (120, 600) };
            disk = world.monotonic + world.chance.between(least, most) * MINUTE;
        }
        // Who owns the gate looks at the calendar all the time; once a minute is enough for what is due.
        if world.monotonic >= calendar {
            while crate::calendar::tell(&mut world, true)?.is_some() {
                weeks.ticks += 1;
            }
            calendar = world.monotonic + MINUTE;
        }
        if world.disk_full {
            // Those who fail try again now and then, and not all the time.
            world.monotonic += MINUTE / 10;
        }
        if crate::people::tell(&mut world)?.is_some() || world.step()? {
            continue;
        }
        let wake = people.min(clock).min(disk).min(calendar);
        if !world.pass() || world.monotonic > wake {
            world.monotonic = wake;
        }
    }
    world.come_to_rest(200_000)?;
    world.judge()?;
    weeks.merged = world.witness.merges.len();
    weeks.longest = world.laws.longest / 1_000_000;
    Ok(weeks)
}
