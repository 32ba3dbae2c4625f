//! Measuring: wall time, the processor time of this thread, percentiles.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Failure;

/// How long something took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// By the clock on the wall.
    pub wall: Duration,
    /// Processor time of the measuring thread.
    pub cpu: Duration,
}

/// Processor time of this thread so far, by the nanosecond: what `/proc` says of a thread that runs is as old as the last
/// tick of the scheduler.
pub fn thread_cpu() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// Processor time of this process so far, and of the children that ended.
///
/// # Errors
/// When the system does not tell.
pub fn process_cpu() -> Result<Duration, Failure> {
    let own: Duration = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).try_into()?;
    Ok(own + children_cpu()?)
}

/// Processor time of the children that ended.
///
/// # Errors
/// When the system does not tell.
pub fn children_cpu() -> Result<Duration, Failure> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit_once(')').map(|(_, rest)| rest).ok_or("no fields in /proc/self/stat")?;
    let ticks: u64 = fields.split_whitespace().skip(13).take(2).map(|field| field.parse().unwrap_or(0)).sum();
    // Ticks are 10 ms on every Linux there is.
    Ok(Duration::from_millis(10 * ticks))
}

/// Processor time of a process's threads, those of one name together.
///
/// # Errors
/// When there is no such process.
pub fn threads_cpu(pid: u32) -> Result<BTreeMap<String, Duration>, Failure> {
    let mut found: BTreeMap<String, Duration> = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        // One that ended meanwhile has nothing to tell.
        let (Ok(name), Ok(text)) =
            (std::fs::read_to_string(task.join("comm")), std::fs::read_to_string(task.join("schedstat")))
        else {
            continue;
        };
        let nanoseconds = text.split_whitespace().next().and_then(|field| field.parse().ok()).unwrap_or(0);
        // Those that are many have a number at the end of their name.
        let name = name.trim().trim_end_matches(|letter: char| letter.is_ascii_digit()).to_owned();
        *found.entry(name).or_default() += Duration::from_nanos(nanoseconds);
    }
    Ok(found)
}

/// Runs it and says how long it took.
pub fn timed<T>(run: impl FnOnce() -> T) -> (Took, T) {
    let (cpu, began) = (thread_cpu(), Instant::now());
    let made = run();
    (Took { wall: began.elapsed(), cpu: thread_cpu().saturating_sub(cpu) }, made)
}

/// Runs it so many times and gives the shortest: what else runs on the machine only makes it longer.
///
/// # Errors
/// The first error.
pub fn best<T, E>(runs: usize, mut run: impl FnMut() -> Result<T, E>) -> Result<(Took, T), E> {
    let (mut took, made) = timed(&mut run);
    let mut made = made?;
    for _ in 1..runs {
        let (again, remade) = timed(&mut run);
        made = remade?;
        took.wall = took.wall.min(again.wall);
        took.cpu = took.cpu.min(again.cpu);
    }
    Ok((took, made))
}

/// Many durations of the same thing.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    sorted: Vec<Duration>,
}

impl Spread {
    /// These durations.
    pub fn new(mut all: Vec<Duration>) -> Spread {
        all.sort_unstable();
        Spread { sorted: all }
    }

    /// The duration that this share of all does not exceed.
    pub fn at(&self, share: f64) -> Duration {
        let last = self.sorted.len().saturating_sub(1);
        let index = (share * self.sorted.len() as f64) as usize;
        self.sorted.get(index.min(last)).copied().unwrap_or_default()
    }

    /// The middle one.
    pub fn median(&self) -> Duration {
        self.at(0.5)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }
}

/// So many in that time, each second.
pub fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

/// The median that criterion found for a benchmark in this run, in nanoseconds.
pub fn criterion_median(group: &str, name: &str) -> Option<f64> {
    let path = criterion_dir().join(group).join(name).join("new").join("estimates.json");
    let text = std::fs::read_to_string(path).ok()?;
    serde_json::from_str::<serde_json::Value>(&text).ok()?.get("median")?.get("point_estimate")?.as_f64()
}

/// Where criterion keeps what it found.
pub fn criterion_dir() -> std::path::PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), std::path::PathBuf::from);
    target.join("criterion")
}

/// Where a benchmark may write: `GATELOG_BENCH_DIR` if it is set (to measure another disk), else this one.
pub fn scratch(otherwise: &str) -> std::path::PathBuf {
    std::env::var_os("GATELOG_BENCH_DIR").map_or_else(|| otherwise.into(), std::path::PathBuf::from)
}
