//! A log whose reads wait for as long as the brokers are out of reach, for those who have nothing else to do: folds and
//! writers. One that cannot be read for a while is no reason for them to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatelog_event_log::{Claim, Description, EventWriter, Log, LogError, Offset, Pending, ReadBatch, ReadLimit};
use gatelog_record::{Partition, Stream};

/// How long the first wait is; doubled each time up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// A log that is read again until it answers, or the process is to end.
pub struct Patient {
    log: Arc<dyn Log>,
    stop: Arc<AtomicBool>,
}

impl Patient {
    /// Waits for this log until `stop` is set.
    pub fn new(log: Arc<dyn Log>, stop: Arc<AtomicBool>) -> Patient {
        Patient { log, stop }
    }

    fn wait<T>(&self, what: Stream, ask: impl Fn(&dyn Log) -> Result<T, LogError>) -> Result<T, LogError> {
        let mut pause = FIRST;
        loop {
            match ask(&*self.log) {
                Err(error @ (LogError::System { .. } | LogError::Busy { .. })) if !self.stopping() => {
                    tracing::warn!(stream = %what, %error, "the log cannot be read; it is tried again");
                    self.rest(pause);
                    pause = (pause * 2).min(LONGEST);
                }
                answer => return answer,
            }
        }
    }

    fn rest(&self, pause: Duration) {
        let began = Instant::now();
        while began.elapsed() < pause && !self.stopping() {
            std::thread::sleep(FIRST.min(pause));
        }
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Log for Patient {
    fn describe(&self) -> Description {
        self.log.describe()
    }

    fn append_inputs(&self, stream: Stream, records: Vec<Vec<u8>>) -> Pending<Result<Vec<Offset>, LogError>> {
        self.log.append_inputs(stream, records)
    }

    fn claim(&self, partition: Partition) -> Result<(Claim, Box<dyn EventWriter>), LogError> {
        self.log.claim(partition)
    }

    fn read(&self, stream: Stream, from: Offset, limit: ReadLimit) -> Result<ReadBatch, LogError> {
        self.wait(stream, |log| log.read(stream, from, limit))
    }

    fn end(&self, stream: Stream) -> Result<Offset, LogError> {
        self.wait(stream, |log| log.end(stream))
    }

    fn seek(&self, partition: Partition, sequence: u64) -> Result<Offset, LogError> {
        self.wait(Stream::Events(partition), |log| log.seek(partition, sequence))
    }

    fn changed(&self, stream: Stream, beyond: Offset) -> Pending<()> {
        self.log.changed(stream, beyond)
    }

    fn streams(&self) -> Result<Vec<Stream>, LogError> {
        self.log.streams()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use gatelog_event_log::MemoryLog;

    use super::*;

    #[test]
    fn a_read_waits_out_a_failure_that_passes_and_ends_with_one_that_does_not_or_the_process() {
        let stop = Arc::new(AtomicBool::new(false));
        let patient = Patient::new(Arc::new(MemoryLog::default()), Arc::clone(&stop));
        let asked = AtomicU32::new(0);
        let away = || LogError::System { what: "reading".into(), message: "no broker".into() };
        let stream = Stream::Intake(0);
        let answer = patient.wait(stream, |_| match asked.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(away()),
            asked => Ok(asked),
        });
        assert_eq!(answer, Ok(2));
        assert_eq!(patient.wait(stream, |_| Err::<(), _>(LogError::ReadOnly)), Err(LogError::ReadOnly));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(patient.wait(stream, |_| Err::<(), _>(away())), Err(away()));
    }
}
