//! What it costs to write an event down, to read it and to verify the chain over many.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gatelog_benches::small_event;
use gatelog_record::{ChainLink, Envelope};

fn records(criterion: &mut Criterion) {
    let event = small_event(1);
    let Ok(envelope) = event.close() else { return };
    let (bytes, link) = envelope.encode(&ChainLink::GENESIS);

    let mut group = criterion.benchmark_group("event");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("close and encode", |bencher| {
        bencher.iter(|| black_box(&event).close().map(|envelope| envelope.encode(&ChainLink::GENESIS)));
    });
    group.bench_function("decode and open", |bencher| {
        bencher.iter(|| Envelope::decode(black_box(&bytes)).map(|(envelope, _)| envelope.open()));
    });
    group.bench_function("verify link", |bencher| {
        bencher.iter(|| Envelope::link_after(black_box(&bytes), &ChainLink::GENESIS) == Some(link));
    });
    group.finish();
}

criterion_group!(benches, records);
criterion_main!(benches);
