//! The suite, with segments of the usual size and with tiny ones.

use std::time::Duration;

use super::*;
use crate::ReaderOptions;
use gatelog_event_log::conformance::{Harness, Injected, Injection, read_all};

struct EmbeddedHarness {
    dir: TempDir,
    options: fn() -> Options,
    log: Arc<EmbeddedLog>,
}

impl EmbeddedHarness {
    fn new(options: fn() -> Options) -> EmbeddedHarness {
        let dir = TempDir::new().unwrap();
        let log = Arc::new(open(&dir, options()));
        EmbeddedHarness { dir, options, log }
    }

    fn open_again(&mut self) -> Injected {
        match EmbeddedLog::open(self.dir.path(), (self.options)()) {
            Ok(log) => {
                self.log = Arc::new(log);
                Injected::Done
            }
            Err(error) => Injected::Refused(error),
        }
    }
}

impl Harness for EmbeddedHarness {
    fn log(&self) -> Arc<dyn Log> {
        self.log.clone()
    }

    fn reopen(&mut self) {
        self.log.close();
        assert!(matches!(self.open_again(), Injected::Done));
    }

    fn crash(&mut self) {
        self.log.abandon();
        assert!(matches!(self.open_again(), Injected::Done));
    }

    fn reader(&mut self) -> Option<Arc<dyn Log>> {
        let options = ReaderOptions { poll: Duration::from_millis(1) };
        Some(arc(EmbeddedLog::open_reader(self.dir.path(), options).unwrap()))
    }

    fn inject(&mut self, injection: Injection) -> Injected {
        match injection {
            Injection::Insert { stream, record } => {
                append_unchecked(&self.log, stream, record);
                self.log.abandon();
            }
            Injection::Damage { stream, offset } => {
                let records = read_all(&*self.log, stream).unwrap();
                let record = records.iter().find(|record| record.offset == offset).unwrap();
                self.log.abandon();
                let damaged = (1..=segments(self.dir.path())).any(|number| {
                    let path = segment(self.dir.path(), number);
                    let bytes = fs::read(&path).unwrap();
                    let at = bytes.windows(record.bytes.len()).position(|window| window == record.bytes);
                    at.map(|at| flip(&path, at as u64 + 20)).is_some()
                });
                assert!(damaged, "the record is in some segment");
            }
            Injection::Torn { stream, records } => {
                let end = self.log.end(stream).unwrap().0;
                let records: Vec<_> =
                    records.into_iter().zip(end..).map(|(record, offset)| (stream, offset, record)).collect();
                let (path, at, frame) = next_frame(&self.log, &records);
                self.log.abandon();
                write_bytes(&path, at, &frame[..frame.len() * 2 / 3]);
            }
        }
        self.open_again()
    }

    fn at_once(&self, work: Vec<Box<dyn FnOnce() + Send>>) {
        threads(work);
    }

    fn limits(&self) -> (u64, u64) {
        (10_000, 40_000)
    }
}

mod usual_segments {
    use super::{EmbeddedHarness, usual};
    gatelog_event_log::log_conformance!(|| EmbeddedHarness::new(usual));
}

mod tiny_segments {
    use super::{EmbeddedHarness, tiny};
    gatelog_event_log::log_conformance!(|| EmbeddedHarness::new(tiny));
}
