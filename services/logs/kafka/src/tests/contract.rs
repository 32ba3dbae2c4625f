//! The suite, on a real broker.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use gatelog_event_log::LogError;
use gatelog_event_log::conformance::{Harness, Injected, Injection};

use super::*;

struct KafkaHarness {
    broker: &'static Broker,
    config: KafkaConfig,
    log: Arc<KafkaLog>,
}

impl KafkaHarness {
    fn open_again(&mut self) {
        self.log = Arc::new(KafkaLog::open(self.config.clone()).unwrap());
    }

    /// Flips a bit of a record in the broker's own files.
    fn damage(&self, stream: Stream, offset: Offset) {
        let records = read_all(&*self.log, stream).unwrap();
        let record = records.into_iter().find(|record| record.offset == offset).unwrap();
        let topic = self.config.names().unwrap().topic(stream);
        let dir = self.broker.data().join(format!("{topic}-{}", stream.index()));
        let damaged = fs::read_dir(dir).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            let Some(at) = bytes.windows(record.bytes.len()).position(|window| window == record.bytes) else {
                return false;
            };
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&[bytes[at + 20] ^ 0x10], at as u64 + 20).unwrap();
            true
        });
        assert!(damaged, "the record is in some segment");
    }
}

impl Harness for KafkaHarness {
    fn log(&self) -> Arc<dyn Log> {
        self.log.clone()
    }

    fn reopen(&mut self) {
        self.log.close();
        self.open_again();
    }

    fn crash(&mut self) {
        self.log.abandon();
        self.open_again();
    }

    fn reader(&mut self) -> Option<Arc<dyn Log>> {
        Some(arc(KafkaLog::open_reader(self.config.clone()).unwrap()))
    }

    fn inject(&mut self, injection: Injection) -> Injected {
        match injection {
            Injection::Insert { stream, record } => insert(&self.config, stream, &record),
            Injection::Damage { stream, offset } => self.damage(stream, offset),
            // What is torn on Kafka is a transaction whose producer went away.
            Injection::Torn { stream, records } => {
                let torn = raw_producer(&self.config, Some(&format!("{}torn", self.config.prefix)));
                torn.init_transactions(PATIENCE).unwrap();
                torn.begin_transaction().unwrap();
                records.iter().for_each(|record| send(&torn, &self.config, stream, record));
                torn.flush(PATIENCE).unwrap();
                drop(torn);
                let next = raw_producer(&self.config, Some(&format!("{}torn", self.config.prefix)));
                next.init_transactions(PATIENCE).unwrap();
            }
        }
        self.log.abandon();
        match KafkaLog::open(self.config.clone()) {
            Ok(log) => {
                self.log = Arc::new(log);
                Injected::Done
            }
            Err(error @ LogError::Damaged { .. }) => Injected::Refused(error),
            Err(error) => panic!("{error}"),
        }
    }

    fn at_once(&self, work: Vec<Box<dyn FnOnce() + Send>>) {
        threads(work);
    }

    fn limits(&self) -> (u64, u64) {
        (self.config.max_record, self.config.max_append)
    }
}

fn make() -> Option<KafkaHarness> {
    let broker = broker()?;
    let (config, log) = fresh(broker);
    Some(KafkaHarness { broker, config, log: Arc::new(log) })
}

gatelog_event_log::log_conformance!(where there is one: make);
