//! Folding in memory: a history as the gate writes it, read into its tables.
//!
//! Beside it: only opening the records, and checking the chain over them.

use std::hint::black_box;

use criterion::Throughput;
use gatelog_benches::Failure;
use gatelog_benches::measure::{criterion_median, rate};
use gatelog_benches::site::{GATE, Pace, Site, SiteState};
use gatelog_benches::table::{Table, per_second, percent};
use gatelog_event_log::{HistoryReader, Offset, ReadRecord, Step};
use gatelog_record::{Envelope, EventRecord};
use gatelog_tables::{DomainState, LiveTables, Maps, ReadTables, TableSet};

#[path = "support/processor.rs"]
mod processor;

type Live = <SiteState as DomainState>::Live<Maps>;
type Read = <SiteState as DomainState>::Read<Maps>;

const EVENTS: usize = 40_000;

/// The history's records as a log gives them.
fn history() -> Result<Vec<ReadRecord>, Failure> {
    let mut site = Site::new(Pace::default())?;
    site.live_until(EVENTS)?;
    let frames = std::mem::take(&mut site.frames);
    Ok(frames
        .into_iter()
        .enumerate()
        .map(|(offset, bytes)| ReadRecord { offset: Offset(offset as u64), bytes })
        .collect())
}

fn decode(records: &[ReadRecord]) -> Result<(), Failure> {
    for record in records {
        black_box(Envelope::decode(&record.bytes)?.0.open()?);
    }
    Ok(())
}

fn check(records: &[ReadRecord], mut each: impl FnMut(EventRecord) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut reader = HistoryReader::from_genesis(GATE);
    for record in records {
        match reader.next(record)? {
            Step::Event(record, _) => each(*record)?,
            Step::StaleWriter(_) => return Err("a stale writer".into()),
        }
    }
    Ok(())
}

fn live() -> Result<Live, Failure> {
    Ok(Live::open(&mut Maps)?)
}

fn main() -> Result<(), Failure> {
    let records = history()?;
    let mut opened = Vec::with_capacity(records.len());
    check(&records, |record| {
        opened.push(record);
        Ok(())
    })?;
    let bytes: usize = records.iter().map(|record| record.bytes.len()).sum();
    let count = records.len();

    let mut criterion = processor::criterion(10);
    let mut group = criterion.benchmark_group("fold");
    group.throughput(Throughput::Elements(count as u64));
    group.bench_function("open", |bencher| bencher.iter(|| decode(&records)));
    group.bench_function("check", |bencher| {
        bencher.iter(|| {
            check(&records, |record| {
                black_box(record);
                Ok(())
            })
        })
    });
    group.bench_function("apply", |bencher| {
        bencher.iter_with_large_drop(|| -> Result<Live, Failure> {
            let mut live = live()?;
            opened.iter().try_for_each(|record| live.apply(record))?;
            Ok(live)
        });
    });
    group.bench_function("fold", |bencher| {
        bencher.iter_with_large_drop(|| -> Result<Live, Failure> {
            let mut live = live()?;
            check(&records, |record| Ok(live.apply(&record)?))?;
            Ok(live)
        });
    });
    group.bench_function("fold all", |bencher| {
        bencher.iter_with_large_drop(|| -> Result<(Live, Read), Failure> {
            let mut live = live()?;
            let mut read = Read::open(&mut Maps)?;
            check(&records, |record| {
                live.apply(&record)?;
                Ok(read.apply(&live, &record)?)
            })?;
            Ok((live, read))
        });
    });
    group.finish();
    criterion.final_summary();

    let speed = |name: &str| {
        let nanos = criterion_median("fold", name).unwrap_or(f64::INFINITY);
        rate(count, std::time::Duration::from_nanos(nanos as u64))
    };
    let (open, checked) = (speed("open"), speed("check"));
    let mut table = Table::new(&format!(
        "Folding in memory: {count} events of the gate, {} bytes each (limit: open them and check the chain, nothing else; processor time)",
        bytes / count
    ));
    let mut row = |what: &str, name: &str, limit: f64, aim: &str| {
        let found = speed(name);
        table.row(what, per_second(found), per_second(limit), percent(found / limit), aim);
    };
    row("check the chain and open (limit: open only)", "check", open, "");
    row("live tables, from bytes", "fold", checked, "300 k/s");
    row("live tables, from open events", "apply", open, "");
    row("live and temporal tables, from bytes", "fold all", checked, "");
    table.print();
    Ok(())
}
