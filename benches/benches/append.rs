//! Durable appends on the embedded log: independent callers who each wait for their own record.
//!
//! Beside it: the same bytes in groups of the same size, written and synced to a file on the same disk, by nobody
//! but one thread that has nothing else to do.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatelog_benches::Failure;
use gatelog_benches::measure::{Spread, rate, scratch};
use gatelog_benches::table::{Table, per_second, percent, time, times};
use gatelog_event_log::{Log, Offset, ReadLimit};
use gatelog_log_embedded::{EmbeddedLog, Options, ReaderOptions, Stats};
use gatelog_record::{Domain, Partition, Stream};

const INPUTS: Stream = Stream::Inputs(Partition { domain: Domain::Gate, index: 0 });
const RECORD: usize = 300;
const SECONDS: u64 = 1;
const ROUNDS: usize = 11;

struct Run {
    callers: Spread,
    took: Duration,
    stats: Stats,
}

impl Run {
    fn rate(&self) -> f64 {
        rate(self.callers.count(), self.took)
    }

    fn group(&self) -> usize {
        (self.stats.bytes / self.stats.syncs.max(1)) as usize
    }
}

/// So many callers append one record each, wait until it is durable, and go on with the next.
fn log_run(dir: &Path, callers: usize) -> Result<Run, Failure> {
    let log = EmbeddedLog::open(dir, Options::default())?;
    let stop = AtomicBool::new(false);
    let before = log.stats();
    let began = Instant::now();
    let waited: Result<Vec<Vec<Duration>>, Failure> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..callers)
            .map(|caller| {
                let (log, stop) = (&log, &stop);
                scope.spawn(move || -> Result<Vec<Duration>, Failure> {
                    let mut waited = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        let pending = log.append_inputs(INPUTS, vec![vec![caller as u8; RECORD]]);
                        pending.wait().ok_or("the log closed")??;
                        waited.push(began.elapsed());
                    }
                    Ok(waited)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(SECONDS));
        stop.store(true, Ordering::Relaxed);
        handles.into_iter().map(|handle| handle.join().map_err(|_| "a caller panicked")?).collect()
    });
    let took = began.elapsed();
    let after = log.stats();
    let stats = Stats {
        syncs: after.syncs - before.syncs,
        records: after.records - before.records,
        bytes: after.bytes - before.bytes,
        ..after
    };
    Ok(Run { callers: Spread::new(waited?.concat()), took, stats })
}

/// Groups of so many bytes, written and synced one after the other.
fn raw_run(path: &Path, group: usize) -> Result<Spread, Failure> {
    let mut file = File::create(path)?;
    let bytes = vec![7; group];
    let mut waited = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(SECONDS) {
        let one = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        waited.push(one.elapsed());
    }
    std::fs::remove_file(path)?;
    Ok(Spread::new(waited))
}

fn compare(table: &mut Table, callers: usize, aim: (&str, &str)) -> Result<(), Failure> {
    let dir = tempfile::tempdir_in(scratch(env!("CARGO_TARGET_TMPDIR")))?;
    let mut runs = Vec::new();
    for round in 0..ROUNDS {
        // One after the other, so that both meet the same disk and the same neighbours.
        let log = log_run(&dir.path().join(format!("log-{round}")), callers)?;
        let raw = raw_run(&dir.path().join("raw"), log.group())?;
        runs.push((log, raw));
    }
    let share = |(log, raw): &(Run, Spread)| {
        let records = log.stats.records as f64 / log.stats.syncs.max(1) as f64;
        log.rate() / (records * raw.count() as f64 / SECONDS as f64)
    };
    let rates: Vec<String> = runs.iter().map(|(log, _)| per_second(log.rate())).collect();
    let shares: Vec<String> = runs.iter().map(|run| percent(share(run))).collect();
    // The middle round by the rate it reached.
    runs.sort_by(|(one, _), (other, _)| one.rate().total_cmp(&other.rate()));
    let run = runs.swap_remove(runs.len() / 2);
    let (log, raw) = &run;
    let records = log.stats.records as f64 / log.stats.syncs.max(1) as f64;
    let who = if callers == 1 { "1 caller".to_owned() } else { format!("{callers} callers") };
    table.row(
        &format!("{who}: appends"),
        per_second(log.rate()),
        per_second(records * raw.count() as f64 / SECONDS as f64),
        percent(share(&run)),
        aim.0,
    );
    let ratio = |share: f64| {
        let (log, raw) = (log.callers.at(share), raw.at(share));
        (time(log), time(raw), times(log.as_secs_f64() / raw.as_secs_f64().max(1e-9)))
    };
    for (name, at, aim) in [("p50", 0.5, ""), ("p99", 0.99, aim.1), ("longest", 1.0, "")] {
        let (log, raw, times) = ratio(at);
        table.row(&format!("{who}: wait, {name}"), log, raw, times, aim);
    }
    table.row(
        &format!("{who}: fdatasyncs"),
        per_second(rate(log.stats.syncs as usize, log.took)),
        per_second(raw.count() as f64 / SECONDS as f64),
        percent(rate(log.stats.syncs as usize, log.took) / (raw.count() as f64 / SECONDS as f64)),
        "",
    );
    table.note(&format!("{who}: records a sync, bytes a sync"), format!("{records:.1}, {}", log.group()));
    table.note(&format!("{who}: appends in each round"), rates.join(" "));
    table.note(&format!("{who}: ratio in each round"), shares.join(" "));
    Ok(())
}

/// What is there is opened and read again.
fn reopening(table: &mut Table) -> Result<(), Failure> {
    let dir = tempfile::tempdir_in(scratch(env!("CARGO_TARGET_TMPDIR")))?;
    let path = dir.path().join("log");
    let log = EmbeddedLog::open(&path, Options::default())?;
    let (count, batch) = (1_000_000, 10_000);
    let mut owed = Vec::new();
    for _ in 0..count / batch {
        owed.push(log.append_inputs(INPUTS, vec![vec![7; RECORD]; batch]));
        if owed.len() > 8 {
            owed.remove(0).wait().ok_or("the log closed")??;
        }
    }
    for one in owed {
        one.wait().ok_or("the log closed")??;
    }
    let bytes = log.stats().bytes as f64;
    drop(log);
    let files = std::fs::read_dir(path.join("segments"))?.collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    let mut sum = 0;
    for file in &files {
        sum = crc32c::crc32c_append(sum, &std::fs::read(file.path())?);
    }
    let raw = began.elapsed();
    std::hint::black_box(sum);
    let speed = |time: Duration| format!("{:.0} MB/s", bytes / 1e6 / time.as_secs_f64());

    let began = Instant::now();
    drop(EmbeddedLog::open(&path, Options::default())?);
    let opened = began.elapsed();
    table.row("open a log of 1 M records", time(opened), String::new(), String::new(), "");
    let log = EmbeddedLog::open_reader(&path, ReaderOptions::default())?;
    let began = Instant::now();
    let (mut from, mut read) = (Offset(0), 0);
    loop {
        let batch = log.read(INPUTS, from, ReadLimit::default())?;
        if batch.records.is_empty() {
            break;
        }
        read += batch.records.len();
        from = batch.next;
    }
    let took = began.elapsed();
    if read != count {
        return Err(format!("{read} of {count} records were read").into());
    }
    table.row("read 1 M records back", speed(took), speed(raw), percent(raw.as_secs_f64() / took.as_secs_f64()), "");
    let began = Instant::now();
    let report = log.verify()?;
    let took = began.elapsed();
    std::hint::black_box(report);
    table.row("verify it, every byte", speed(took), speed(raw), percent(raw.as_secs_f64() / took.as_secs_f64()), "");
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut table =
        Table::new("Durable appends of 300-byte records, embedded log (limit: write and fdatasync of the same groups)");
    compare(&mut table, 64, ("50 k/s", "10 ms"))?;
    compare(&mut table, 1, ("", ""))?;
    table.print();
    let mut table = Table::new("The embedded log opened and read again (limit: read the files, CRC32C over them)");
    reopening(&mut table)?;
    table.print();
    Ok(())
}
