//! Reading, checking, folding and verifying the history.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use gatelog_benches::Failure;
use gatelog_benches::measure::{Took, rate, thread_cpu, timed};
use gatelog_benches::opendev::{CAPACITY, GATE, OpenDev};
use gatelog_benches::table::{Table, per_second, percent, time};
use gatelog_capacity_state::Capacity;
use gatelog_effects::layout::LOADER;
use gatelog_event_log::{HistoryReader, Log, Offset, ReadLimit, Step};
use gatelog_gate_state::Gate;
use gatelog_log_embedded::{EmbeddedLog, FileBlobs, ReaderOptions};
use gatelog_record::{EventRecord, Partition, Stream};
use gatelog_replay::layouts::{Loader, verify_layouts};
use gatelog_replay::redecide;
use gatelog_rules_capacity::CapacityRules;
use gatelog_rules_gate::GateRules;
use gatelog_tables::{DomainState, LiveTables, Maps, TableSet};

use crate::{History, PARTITIONS, mega, sizes};

/// Of how many events every decision is made again.
const PART: u64 = 200_000;

/// Reads every checked event of a partition.
fn each(
    log: &dyn Log,
    partition: Partition,
    mut take: impl FnMut(&EventRecord) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut reader = HistoryReader::from_genesis(partition);
    let mut from = Offset(0);
    loop {
        let batch = log.read(Stream::Events(partition), from, ReadLimit::default())?;
        if batch.records.is_empty() {
            return Ok(());
        }
        for record in &batch.records {
            if let Step::Event(record, _) = reader.next(record)? {
                take(&record)?;
            }
        }
        from = batch.next;
    }
}

/// The files read by somebody who only computes CRC32C over them.
fn raw(history: &History) -> Result<(Took, u64), Failure> {
    let (took, bytes) = timed(|| -> Result<u64, Failure> {
        let (mut sum, mut bytes) = (0, 0);
        for (path, _) in history.segments()? {
            let text = std::fs::read(path)?;
            sum = crc32c::crc32c_append(sum, &text);
            bytes += text.len() as u64;
        }
        std::hint::black_box(sum);
        Ok(bytes)
    });
    Ok((took, bytes?))
}

/// Both rates of a limit and of what stands beside it, by processor time where one thread does the work.
fn row(table: &mut Table, what: &str, count: u64, took: Took, limit: Took, aim: &str) {
    let speed = |took: Took| rate(count as usize, took.cpu);
    table.row(what, per_second(speed(took)), per_second(speed(limit)), percent(speed(took) / speed(limit)), aim);
    table.note(&format!("{what}: by the clock"), time(took.wall));
}

/// Every byte, and every record of both partitions.
pub fn measure(history: &History, table: &mut Table) -> Result<(), Failure> {
    let log = history.log()?;
    // Once for the page cache.
    raw(history)?;
    let (limit, bytes) = raw(history)?;
    let (took, report) = timed(|| log.verify());
    report?;
    let speed = |took: Took| format!("{:.0} MB/s", bytes as f64 / 1e6 / took.wall.as_secs_f64());
    table.row(
        "verify every byte of the segments (limit: read, CRC32C)",
        speed(took),
        speed(limit),
        percent(limit.wall.as_secs_f64() / took.wall.as_secs_f64()),
        "",
    );
    let shared: &dyn Log = log.as_ref();
    let (took, read) = timed(|| {
        let mut count = 0_u64;
        for (partition, _) in PARTITIONS {
            each(shared, partition, |_| {
                count += 1;
                Ok(())
            })?;
        }
        Ok::<_, Failure>(count)
    });
    if read? != history.events() {
        return Err("not every event was read".into());
    }
    row(table, "verify the chain: read, check and open every event", history.events(), took, limit, "1 M/s");
    Ok(())
}

fn live<S: DomainState>(log: &dyn Log, partition: Partition) -> Result<(Took, S::Live<Maps>), Failure> {
    let mut live = S::Live::<Maps>::open(&mut Maps)?;
    let (took, folded) = timed(|| each(log, partition, |record| Ok(live.apply(record)?)));
    folded?;
    Ok((took, live))
}

/// Live tables in memory, from the first event to the last.
pub fn fold(history: &History, table: &mut Table) -> Result<(), Failure> {
    let log = history.log()?;
    let shared: &dyn Log = log.as_ref();
    let (limit, read) = timed(|| each(shared, GATE, |_| Ok(())));
    read?;
    let (took, gate) = live::<Gate>(shared, GATE)?;
    row(table, "fold live tables of the gate (limit: read and check)", history.made.gate, took, limit, "300 k/s");
    let rows = sizes::rows(&gate)?;
    let (count, bytes) = rows.sum();
    table.note("state: live rows of the gate at the end", format!("{count}, {}", mega(bytes as u64)));
    table.note("state: the largest live tables", rows.largest(6));
    let (took, capacity) = live::<Capacity>(shared, CAPACITY)?;
    let (count, bytes) = sizes::rows(&capacity)?.sum();
    table.note("fold live tables of capacity", per_second(rate(history.made.capacity as usize, took.cpu)));
    table.note("state: live rows of capacity at the end", format!("{count}, {}", mega(bytes as u64)));
    Ok(())
}

/// Every decision of a part made again, and every layout and job graph.
pub fn verify(history: &History, table: &mut Table, home: &Path) -> Result<(), Failure> {
    // The same history from its beginning, but shorter.
    let dir = tempfile::tempdir_in(home)?;
    let part = PART.min(history.events());
    let made = OpenDev::make(&dir.path().join("log"), part, |_| {})?;
    let log = EmbeddedLog::open_reader(dir.path().join("log"), ReaderOptions::default())?;
    let blobs = FileBlobs::open_reader(dir.path().join("log").join("blobs"));
    let (before, began) = (thread_cpu(), Instant::now());
    let gate = redecide(&log, &blobs, GATE, Arc::new(GateRules::default), |live| &live.partition)?;
    let capacity = redecide(&log, &blobs, CAPACITY, Arc::new(CapacityRules::default), |live| &live.partition)?;
    let took = Took { wall: began.elapsed(), cpu: thread_cpu().saturating_sub(before) };
    for done in [&gate, &capacity] {
        if let Some(difference) = &done.difference {
            return Err(format!("decided otherwise: {difference:?}").into());
        }
    }
    let events = (gate.events + capacity.events) as usize;
    let making = made.seconds / part as f64 * 1e6;
    table.row(
        &format!("decide the first {part} events again (limit: making them)"),
        per_second(rate(events, took.cpu)),
        per_second(1e6 / making),
        percent(making / (took.cpu.as_secs_f64() / events as f64 * 1e6)),
        "",
    );
    let (took, layouts) = timed(|| verify_layouts(&log, &blobs, GATE, Loader { version: LOADER, ..Loader::default() }));
    let layouts = layouts?;
    if let Some(difference) = layouts.difference {
        return Err(format!("made otherwise: {difference:?}").into());
    }
    table.note(&format!("make {} layouts and {} job graphs again", layouts.layouts, layouts.graphs), time(took.wall));
    Ok(())
}
