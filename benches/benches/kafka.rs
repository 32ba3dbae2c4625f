//! The log on one real Apache Kafka.
//!
//! Beside it: plain librdkafka with the same guarantees on the same broker (all brokers acknowledge, idempotent;
//! transactions for events; reading what is committed).
#![expect(clippy::print_stdout, reason = "a benchmark tells whoever runs it")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use gatelog_benches::Failure;
use gatelog_benches::measure::{Spread, rate};
use gatelog_benches::site::GATE;
use gatelog_benches::small_event;
use gatelog_benches::table::{Table, per_second, percent, time, times};
use gatelog_event_log::{Claim, Log, Offset, ReadLimit};
use gatelog_kafka_broker::Broker;
use gatelog_log_kafka::{KafkaConfig, KafkaLog, init};
use gatelog_record::draft::partition::WriterStarted;
use gatelog_record::event::PartitionEvent;
use gatelog_record::{ChainLink, Event, SiteId, Stream};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, ClientContext, Message, Offset as Place, TopicPartitionList};

const RECORD: usize = 300;
const CALLERS: usize = 64;
const SECONDS: u64 = 4;
const INPUTS: Stream = Stream::Inputs(GATE);
const EVENTS: Stream = Stream::Events(GATE);
const PATIENCE: Duration = Duration::from_secs(20);

struct Tell;

impl ClientContext for Tell {}

impl ProducerContext for Tell {
    type DeliveryOpaque = Box<SyncSender<bool>>;

    fn delivery(&self, result: &DeliveryResult<'_>, to: Self::DeliveryOpaque) {
        let _ = to.send(result.is_ok());
    }
}

fn settings(broker: &Broker) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", broker.brokers())
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("socket.nagle.disable", "true")
        .set("retry.backoff.ms", "20")
        .set("linger.ms", "0");
    config
}

fn producer(broker: &Broker) -> Result<ThreadedProducer<Tell>, Failure> {
    Ok(settings(broker).create_with_context(Tell)?)
}

/// Callers who each do one thing after the other for a while; gives how long each took.
fn callers(count: usize, each: impl Fn() -> Result<(), Failure> + Sync) -> Result<(Spread, Duration), Failure> {
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let all: Result<Vec<Vec<Duration>>, Failure> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| -> Result<Vec<Duration>, Failure> {
                    let mut took = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let one = Instant::now();
                        each()?;
                        took.push(one.elapsed());
                    }
                    Ok(took)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(SECONDS));
        stop.store(true, Ordering::Relaxed);
        handles.into_iter().map(|handle| handle.join().map_err(|_| "a caller panicked")?).collect()
    });
    let took = began.elapsed();
    Ok((Spread::new(all?.concat()), took))
}

fn append(log: &dyn Log) -> Result<(), Failure> {
    log.append_inputs(INPUTS, vec![vec![7; RECORD]]).wait().ok_or("the log closed")??;
    Ok(())
}

fn plain(producer: &ThreadedProducer<Tell>, topic: &str, bytes: &[u8]) -> Result<(), Failure> {
    let (sender, told) = sync_channel(1);
    let record: BaseRecord<'_, (), [u8], _> =
        BaseRecord::with_opaque_to(topic, Box::new(sender)).partition(0).payload(bytes);
    producer.send(record).map_err(|(error, _)| error)?;
    if told.recv()? { Ok(()) } else { Err("a record was not delivered".into()) }
}

/// The records of a partition's events after a claim, one after the other.
struct Scribe {
    sequence: u64,
    term: u64,
    link: ChainLink,
}

impl Scribe {
    fn after(claim: &Claim) -> Scribe {
        Scribe { sequence: claim.last_sequence, term: claim.last_term + 1, link: claim.last_link }
    }

    fn next(&mut self) -> Result<Vec<u8>, Failure> {
        self.sequence += 1;
        let mut event = small_event(self.sequence);
        event.term = self.term;
        if self.sequence == 1 {
            event.event = Event::Partition(PartitionEvent::WriterStarted(WriterStarted {
                term: self.term,
                build: "benchmark".into(),
                registry: [0; 32],
                site: SiteId([9; 16]),
                generation: 1,
            }));
        }
        let (bytes, link) = event.close()?.encode(&self.link);
        self.link = link;
        Ok(bytes)
    }
}

fn beside(table: &mut Table, name: &str, log: &(Spread, Duration), plain: &(Spread, Duration), aim: (&str, &str)) {
    let (ours, theirs) = (rate(log.0.count(), log.1), rate(plain.0.count(), plain.1));
    table.row(&format!("{name}: appends"), per_second(ours), per_second(theirs), percent(ours / theirs), aim.0);
    for (which, at, aim) in [("p50", 0.5, ""), ("p99", 0.99, aim.1)] {
        let (ours, theirs) = (log.0.at(at), plain.0.at(at));
        let ratio = times(ours.as_secs_f64() / theirs.as_secs_f64().max(1e-9));
        table.row(&format!("{name}: wait, {which}"), time(ours), time(theirs), ratio, aim);
    }
}

/// From the append to a follower who has the record, one after the other: ours.
fn followed(log: &dyn Log, from: Offset) -> Result<(Spread, Duration), Failure> {
    let (sender, seen) = sync_channel(1 << 16);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut from = from;
            while !stop.load(Ordering::Relaxed) {
                match log.read(INPUTS, from, ReadLimit::default()) {
                    Ok(batch) if batch.records.is_empty() => {
                        let _ = log.changed(INPUTS, from).wait_for(Duration::from_millis(200));
                    }
                    Ok(batch) => {
                        from = batch.next;
                        for _ in &batch.records {
                            let _ = sender.send(Instant::now());
                        }
                    }
                    Err(_) => return,
                }
            }
        });
        let found = one_by_one(|| {
            let began = Instant::now();
            append(log)?;
            Ok(seen.recv_timeout(PATIENCE)?.saturating_duration_since(began))
        });
        stop.store(true, Ordering::Relaxed);
        found
    })
}

/// The same with a plain producer and a plain consumer.
fn consumed(broker: &Broker, topic: &str) -> Result<(Spread, Duration), Failure> {
    let producer = producer(broker)?;
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker.brokers())
        .set("group.id", "nobody")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .create()?;
    let (_, end) = consumer.fetch_watermarks(topic, 0, PATIENCE)?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Place::Offset(end))?;
    consumer.assign(&list)?;
    let (sender, seen) = sync_channel(1 << 16);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) {
                    std::hint::black_box(message.payload());
                    let _ = sender.send(Instant::now());
                }
            }
        });
        let found = one_by_one(|| {
            let began = Instant::now();
            plain(&producer, topic, &[7; RECORD])?;
            Ok(seen.recv_timeout(PATIENCE)?.saturating_duration_since(began))
        });
        stop.store(true, Ordering::Relaxed);
        found
    })
}

fn one_by_one(mut one: impl FnMut() -> Result<Duration, Failure>) -> Result<(Spread, Duration), Failure> {
    for _ in 0..20 {
        one()?;
    }
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < Duration::from_secs(SECONDS) {
        took.push(one()?);
    }
    Ok((Spread::new(took), began.elapsed()))
}

fn main() -> Result<(), Failure> {
    let broker = match Broker::start() {
        Ok(broker) => broker,
        Err(why) => {
            println!("SKIPPED kafka: {why}");
            return Ok(());
        }
    };
    let config = |prefix: &str| KafkaConfig {
        brokers: broker.brokers(),
        prefix: prefix.to_owned(),
        replication: 1,
        min_insync: 1,
        ..KafkaConfig::default()
    };
    init(config("ours."))?;
    init(config("plain."))?;
    let log = KafkaLog::open(config("ours."))?;
    let idempotent = producer(&broker)?;
    let mut table = Table::new("The log on one Kafka broker (limit: plain librdkafka, same guarantees, same broker)");

    // Warmed up, then in turns.
    append(&log)?;
    plain(&idempotent, "plain.gate.inputs", &[7; RECORD])?;
    for count in [CALLERS, 1] {
        let ours = callers(count, || append(&log))?;
        let theirs = callers(count, || plain(&idempotent, "plain.gate.inputs", &[7; RECORD]))?;
        let (name, aim) = match count {
            1 => ("inputs, 1 caller".to_owned(), ("", "")),
            _ => (format!("inputs, {count} callers"), ("30 k/s", "15 ms")),
        };
        beside(&mut table, &name, &ours, &theirs, aim);
    }

    let (claimed, mut writer) = log.claim(GATE)?;
    let mut scribe = Scribe::after(&claimed);
    let transactional: BaseProducer = settings(&broker).set("transactional.id", "plain-writer").create()?;
    transactional.init_transactions(PATIENCE)?;
    let mut sizes = Vec::new();
    for batch in [1, 1_000] {
        let ours = one_by_one(|| {
            let records = (0..batch).map(|_| scribe.next()).collect::<Result<Vec<_>, _>>()?;
            sizes.push(records.first().map_or(0, Vec::len));
            let began = Instant::now();
            writer.append(records).wait().ok_or("the log closed")??;
            Ok(began.elapsed())
        })?;
        let bytes = vec![7; sizes.last().copied().unwrap_or(RECORD)];
        let theirs = one_by_one(|| {
            let began = Instant::now();
            transactional.begin_transaction()?;
            for _ in 0..batch {
                let record: BaseRecord<'_, (), [u8]> = BaseRecord::to("plain.gate.events").partition(0).payload(&bytes);
                transactional.send(record).map_err(|(error, _)| error)?;
            }
            // The library's own flush looks again only after a tenth of a second.
            while transactional.in_flight_count() > 0 {
                transactional.poll(Duration::from_millis(1));
            }
            transactional.commit_transaction(PATIENCE)?;
            Ok(began.elapsed())
        })?;
        beside(&mut table, &format!("events, {batch} in each transaction"), &ours, &theirs, ("", ""));
    }
    drop(writer);
    std::hint::black_box(EVENTS);

    let end = log.end(INPUTS)?;
    let ours = followed(&log, end)?;
    let theirs = consumed(&broker, "plain.gate.inputs")?;
    beside(&mut table, "input, append to follower", &ours, &theirs, ("", ""));
    table.print();
    Ok(())
}
