//! The suite, on a real broker.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use gatelog_event_log::LogError;
use gatelog_event_log::conformance::{self, Harness, Injected, Injection, Outcome};

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

fn run(name: &str) {
    let Some(broker) = broker() else { return };
    let (config, log) = fresh(broker);
    let mut harness = KafkaHarness { broker, config, log: Arc::new(log) };
    match conformance::run(name, &mut harness) {
        Outcome::Passed => {}
        Outcome::Skipped(why) => println!("SKIPPED {name}: {why}"),
    }
}

macro_rules! suite {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn every_case_of_the_suite_is_a_test_here() {
            let here = [$(stringify!($name)),*];
            let all: Vec<&str> = conformance::CASES.iter().map(|case| case.name).collect();
            assert_eq!(all, here);
        }
    };
}

// As `log_conformance!`, but a missing broker skips a case before there is a harness.
suite! {
    what_is_appended_is_read_in_order
    an_append_stands_together
    concurrent_producers_lose_nothing
    streams_do_not_mix
    reading_keeps_its_limits
    what_is_acknowledged_survives_reopening
    what_is_acknowledged_survives_a_crash
    a_new_partition_is_claimed_empty
    a_claim_says_where_the_history_stands
    a_claim_counts_what_was_in_flight
    a_second_claim_fences_the_first
    an_event_out_of_sequence_is_refused
    an_event_of_another_term_is_refused
    after_a_failure_all_later_appends_fail
    events_pipeline_in_order
    seeking_finds_the_event
    change_is_told
    an_abandoned_wait_is_forgotten
    what_is_too_large_is_refused
    events_cannot_be_appended_as_inputs
    a_second_reader_sees_what_is_acknowledged
    a_stale_term_is_no_part_of_history
    a_repeated_event_is_named
    a_torn_append_is_there_whole_or_not_at_all
    a_damaged_record_is_named
}
