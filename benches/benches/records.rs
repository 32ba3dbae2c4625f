//! What it costs to write an event down, to read it and to verify the chain over many.
//!
//! Beside it: copying the same bytes, and the checksum and the hash that are part of the format.

use std::hint::black_box;

use criterion::Throughput;
use gatelog_benches::Failure;
use gatelog_benches::measure::criterion_median;
use gatelog_benches::site::{Pace, Site};
use gatelog_benches::small_event;
use gatelog_benches::table::{Table, nanos, times};
use gatelog_record::{ChainLink, Envelope, EventRecord};
use sha2::{Digest, Sha256};

#[path = "support/processor.rs"]
mod processor;

/// The event of a busy gate whose size is in the middle.
fn middling_event() -> Result<EventRecord, Failure> {
    let mut site = Site::new(Pace::default())?;
    site.live_until(5_000)?;
    let mut frames = std::mem::take(&mut site.frames);
    frames.sort_by_key(Vec::len);
    let middle = frames.get(frames.len() / 2).ok_or("no events")?;
    Ok(Envelope::decode(middle)?.0.open()?)
}

fn main() -> Result<(), Failure> {
    let mut criterion = processor::criterion(30);
    let mut table = Table::new("Records (limit: copy the bytes, CRC32C and SHA-256 over them; processor time)");
    for (name, event) in [("small event", small_event(1)), ("middling event", middling_event()?)] {
        let (bytes, link) = event.close()?.encode(&ChainLink::GENESIS);
        let size = bytes.len();
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function("encode", |bencher| {
            bencher.iter(|| black_box(&event).close().map(|envelope| envelope.encode(&ChainLink::GENESIS)));
        });
        group.bench_function("decode", |bencher| {
            bencher.iter(|| Envelope::decode(black_box(&bytes)).map(|(envelope, _)| envelope.open()));
        });
        group.bench_function("link", |bencher| {
            bencher.iter(|| Envelope::link_after(black_box(&bytes), &ChainLink::GENESIS) == Some(link));
        });
        group.bench_function("limit copy", |bencher| bencher.iter(|| black_box(&bytes).to_vec()));
        group.bench_function("limit crc", |bencher| bencher.iter(|| crc32c::crc32c(black_box(&bytes))));
        group.bench_function("limit sha", |bencher| bencher.iter(|| Sha256::digest(black_box(&bytes))));
        group.finish();

        let median = |what: &str| criterion_median(name, what).unwrap_or(f64::NAN);
        let (copy, crc, sha) = (median("limit copy"), median("limit crc"), median("limit sha"));
        let mut row = |what: &str, which: &str, limit: f64| {
            let found = median(which);
            table.row(&format!("{what} a {name}, {size} bytes"), nanos(found), nanos(limit), times(found / limit), "");
        };
        row("close and encode", "encode", copy + crc + sha);
        row("decode and open", "decode", copy + crc);
        row("verify the link of", "link", sha);
    }
    criterion.final_summary();
    table.print();
    Ok(())
}
