//! A projection made anew from the log: RocksDB deleted, everything read, folded and committed again.
//!
//! Beside it: reading the log alone; reading and checking it; and the very same batches given to RocksDB by
//! somebody who knows them already.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gatelog_benches::Failure;
use gatelog_benches::measure::{Took, rate, scratch, timed};
use gatelog_benches::site::{GATE, Pace, Site, SiteState};
use gatelog_benches::table::{Table, per_second, percent, time};
use gatelog_event_log::{HistoryReader, Log, Offset, ReadLimit, Step};
use gatelog_log_embedded::{EmbeddedLog, Options};
use gatelog_record::Stream;
use gatelog_runner::{Ahead, Folder, RunnerConfig, Stepped};
use gatelog_store::rung::RungDir;
use gatelog_store::{Layout, Projection};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{DomainState, LiveTables, Maps, ReadTables, TableSet};
use rocksdb::{DB, WriteBatch};
use rustix::time::{ClockId, clock_gettime};

const EVENTS: usize = 300_000;
const ROUNDS: usize = 3;

/// Processor time of all threads of this process so far: RocksDB's and the allocator's own work too.
fn process_cpu() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(spent.tv_sec).unwrap_or(0), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

/// Like [`timed`], with the processor time of the whole process.
fn timed_whole<T>(run: impl FnOnce() -> T) -> (Took, Duration, T) {
    let before = process_cpu();
    let (took, made) = timed(run);
    (took, process_cpu().saturating_sub(before), made)
}

fn write_log(dir: &Path) -> Result<(usize, u64), Failure> {
    let mut site = Site::new(Pace::default())?;
    site.live_until(EVENTS)?;
    let log = EmbeddedLog::open(dir, Options::default())?;
    let (_, mut writer) = log.claim(GATE)?;
    let (mut count, mut bytes) = (0, 0);
    for chunk in site.frames.chunks(1_000) {
        count += chunk.len();
        bytes += chunk.iter().map(|frame| frame.len() as u64).sum::<u64>();
        writer.append(chunk.to_vec()).wait().ok_or("the log closed")??;
    }
    Ok((count, bytes))
}

fn read_log(log: &dyn Log, check: bool) -> Result<usize, Failure> {
    let mut reader = HistoryReader::from_genesis(GATE);
    let (mut from, mut count) = (Offset(0), 0);
    loop {
        let batch = log.read(Stream::Events(GATE), from, ReadLimit::default())?;
        if batch.records.is_empty() {
            return Ok(count);
        }
        for record in &batch.records {
            if check && matches!(reader.next(record)?, Step::StaleWriter(_)) {
                return Err("a stale writer".into());
            }
        }
        count += batch.records.len();
        from = batch.next;
    }
}

fn rebuild(log: &Arc<EmbeddedLog>, config: RunnerConfig, mut each: impl FnMut()) -> Result<u64, Failure> {
    let log: Arc<dyn Log> = Arc::clone(log) as Arc<dyn Log>;
    let mut folder = Folder::<SiteState>::open(log, GATE, config)?;
    while let Stepped::Read(_) = folder.step()? {
        each();
    }
    Ok(folder.projection().position().sequence)
}

/// The digest of all tables, folded in memory: what a rebuild must come to.
fn digest_in_memory(log: &dyn Log) -> Result<[u8; 32], Failure> {
    let mut live = <SiteState as DomainState>::Live::open(&mut Maps)?;
    let mut read = <SiteState as DomainState>::Read::open(&mut Maps)?;
    let (mut reader, mut from) = (HistoryReader::from_genesis(GATE), Offset(0));
    loop {
        let batch = log.read(Stream::Events(GATE), from, ReadLimit::default())?;
        for record in &batch.records {
            if let Step::Event(record, _) = reader.next(record)? {
                live.apply(&record)?;
                read.apply(&live, &record)?;
            }
        }
        if batch.records.is_empty() {
            let mut digest = StateDigest::default();
            live.visit(&mut digest)?;
            read.visit(&mut digest)?;
            return Ok(digest.finish());
        }
        from = batch.next;
    }
}

/// Fails unless the projection in a directory has these rows.
fn compare(root: &Path, wanted: [u8; 32]) -> Result<(), Failure> {
    match Projection::<SiteState>::open(root, GATE)?.0.digest()? == wanted {
        true => Ok(()),
        false => Err("what was rebuilt is not what a fold in memory comes to".into()),
    }
}

/// Keeps RocksDB's write-ahead logs by a second name, so that they outlive their use.
fn keep_logs(dir: &Path, kept: &Path) {
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "log")
                && let Some(name) = path.file_name()
            {
                let _ = std::fs::hard_link(&path, kept.join(name));
            }
        }
    }
}

/// The batches in a write-ahead log of RocksDB: blocks of 32 KiB, each with fragments of (checksum, length, kind).
fn batches(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let (mut found, mut whole) = (Vec::new(), Vec::new());
    for mut block in bytes.chunks(32 << 10) {
        while let Some((head, rest)) = block.split_first_chunk::<7>() {
            let length = usize::from(u16::from_le_bytes([head[4], head[5]]));
            let Some((part, rest)) = rest.split_at_checked(length) else { break };
            match head[6] {
                0 => break,
                kind @ 1..=4 => {
                    whole.extend_from_slice(part);
                    if kind == 1 || kind == 4 {
                        found.push(std::mem::take(&mut whole));
                    }
                }
                other => return Err(format!("a fragment of kind {other} in a write-ahead log").into()),
            }
            block = rest;
        }
    }
    Ok(found)
}

/// RocksDB set up as a projection sets it up.
fn database(dir: &Path) -> Result<DB, Failure> {
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(8 << 20);
    options.set_max_write_buffer_number(2);
    options.set_max_total_wal_size(32 << 20);
    options.set_max_background_jobs(2);
    options.set_level_zero_file_num_compaction_trigger(8);
    options.set_bytes_per_sync(1 << 20);
    options.set_compression_type(rocksdb::DBCompressionType::Zstd);
    let mut blocks = rocksdb::BlockBasedOptions::default();
    blocks.set_bloom_filter(10.0, false);
    options.set_block_based_table_factory(&blocks);
    Ok(DB::open(&options, dir)?)
}

fn main() -> Result<(), Failure> {
    let dir = tempfile::tempdir_in(scratch(env!("CARGO_TARGET_TMPDIR")))?;
    let (count, bytes) = write_log(&dir.path().join("log"))?;
    let log = Arc::new(EmbeddedLog::open(dir.path().join("log"), Options::default())?);
    let shared: &dyn Log = log.as_ref();
    let digest = digest_in_memory(shared)?;

    const LONG: Took = Took { wall: Duration::MAX, cpu: Duration::MAX };
    let mut best = [(LONG, Duration::MAX); 6];
    let mut put = |index: usize, (took, whole): (Took, Duration)| {
        if let Some((best, least)) = best.get_mut(index) {
            best.wall = best.wall.min(took.wall);
            best.cpu = best.cpu.min(took.cpu);
            *least = whole.min(*least);
        }
    };
    let (mut changes, mut changed) = (0, 0);
    let mut rung = (Duration::MAX, Duration::MAX, 0);
    for round in 0..ROUNDS {
        let (took, whole, read) = timed_whole(|| read_log(shared, false));
        put(0, (took, whole));
        if read? != count {
            return Err("not everything was read".into());
        }
        let (took, whole, read) = timed_whole(|| read_log(shared, true));
        put(1, (took, whole));
        read?;

        let root = dir.path().join(format!("with-rungs-{round}"));
        let (took, whole, folded) = timed_whole(|| rebuild(&log, RunnerConfig::new(&root), || {}));
        put(2, (took, whole));
        if folded? != count as u64 {
            return Err("not everything was folded".into());
        }
        let rungs = RungDir::new(Layout::new(&root, GATE).rungs());
        let newest = rungs.list()?.pop().ok_or("no rung was written")?;
        let (took, read) = timed(|| gatelog_store::rung::read::<SiteState>(&newest.path, GATE));
        rung.1 = rung.1.min(took.wall);
        let read = read?;
        let (took, encoded) = timed(|| -> Result<PathBuf, Failure> {
            let encoded =
                gatelog_store::rung::EncodedRung::new::<SiteState, _>(GATE, &read.header.position, &read.live)?;
            Ok(RungDir::new(dir.path().join("rung")).put(&encoded)?)
        });
        rung.0 = rung.0.min(took.wall);
        rung.2 = std::fs::metadata(encoded?)?.len();
        compare(&root, digest)?;
        std::fs::remove_dir_all(&root)?;

        let root = dir.path().join(format!("bare-{round}"));
        let bare = RunnerConfig { rung_every: 0, checkpoint_every: 0, ..RunnerConfig::new(&root) };
        let (took, whole, folded) = timed_whole(|| rebuild(&log, bare.clone(), || {}));
        put(3, (took, whole));
        folded?;
        std::fs::remove_dir_all(&root)?;

        // Event by event, as a server follows its log.
        let kept = dir.path().join(format!("kept-{round}"));
        std::fs::create_dir_all(&kept)?;
        let careful = RunnerConfig { ahead: Ahead { after_batches: 0, ..Ahead::default() }, ..bare };
        let (took, whole, folded) = timed_whole(|| rebuild(&log, careful, || keep_logs(&root, &kept)));
        put(4, (took, whole));
        folded?;
        compare(&root, digest)?;
        std::fs::remove_dir_all(&root)?;

        let mut logs: Vec<PathBuf> =
            std::fs::read_dir(&kept)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        logs.sort();
        let mut all = Vec::new();
        for path in logs {
            all.extend(batches(&std::fs::read(path)?)?);
        }
        changed = all.iter().map(Vec::len).sum();
        changes = 0;
        let database = database(&dir.path().join(format!("raw-{round}")))?;
        let (took, whole, written) = timed_whole(|| -> Result<(), Failure> {
            for batch in &all {
                let batch = WriteBatch::from_data(batch);
                changes += batch.len();
                database.write(batch)?;
            }
            Ok(())
        });
        written?;
        put(5, (took, whole));
        drop(database);
        std::fs::remove_dir_all(dir.path().join(format!("raw-{round}")))?;
        std::fs::remove_dir_all(&kept)?;
    }
    let [read, checked, with_rungs, bare, careful, raw] = best;
    let mut table = Table::new(&format!(
        "RocksDB rebuilt from the embedded log: {count} events of the gate, {} bytes each; {changes} row changes, {} bytes each (limit: the same batches to RocksDB)",
        bytes / count as u64,
        changed / changes.max(1)
    ));
    let speed = |took: Took| rate(count, took.wall);
    let limit = speed(raw.0);
    let mut row = |what: &str, (took, _): (Took, Duration), aim: &str| {
        table.row(what, per_second(speed(took)), per_second(limit), percent(speed(took) / limit), aim);
    };
    row("rebuild, as a server does it (rungs, checkpoint)", with_rungs, "100 k/s");
    row("rebuild, rows alone", bare, "100 k/s");
    row("rows alone, as a server follows its log", careful, "");
    row("read the log alone", read, "");
    row("read and check the log", checked, "");
    let each = |spent: Duration| time(spent / count as u32);
    for (what, (took, whole)) in [
        ("rebuild as a server does it", with_rungs),
        ("rebuild, rows alone", bare),
        ("rows alone, as a server follows its log", careful),
        ("read and check the log", checked),
        ("same batches", raw),
    ] {
        table.note(
            &format!("{what}: processor time an event, of the calling thread and of all"),
            format!("{} and {}", each(took.cpu), each(whole)),
        );
    }
    table.note(&format!("write a rung of {} kB, durably", rung.2 / 1_000), time(rung.0));
    table.note("read and check a rung", time(rung.1));
    table.print();
    Ok(())
}
