//! [`KafkaLog`]: the contract, over brokers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gatelog_event_log::checks::check_sizes;
use gatelog_event_log::{
    Claim, Description, EventWriter, Log, LogError, Offset, Pending, ReadBatch, ReadLimit, Survives,
};
use gatelog_record::{Partition, Stream};

use crate::admin::{self, Site};
use crate::claim::Claims;
use crate::config::KafkaConfig;
use crate::cursor::Reach;
use crate::inputs::Inputs;
use crate::names::{MOST_INPUTS, Names, with_index};
use crate::read::Reader;
use crate::watch::Watch;

/// The log on Kafka. See the crate's documentation for what it promises.
pub struct KafkaLog {
    reach: Arc<Reach>,
    site: Site,
    reader: Arc<Reader>,
    claims: Claims,
    inputs: Inputs,
    watch: Watch,
    read_only: bool,
    closed: AtomicBool,
}

impl KafkaLog {
    /// Opens the log that [`crate::init`] created.
    ///
    /// # Errors
    /// `System` when no broker answers or there is no log; `Damaged`; `Behind` when more is known of this log than is
    /// there.
    pub fn open(config: KafkaConfig) -> Result<KafkaLog, LogError> {
        KafkaLog::begin(config, false)
    }

    /// Opens it for reading only.
    ///
    /// # Errors
    /// As [`KafkaLog::open`].
    pub fn open_reader(config: KafkaConfig) -> Result<KafkaLog, LogError> {
        KafkaLog::begin(config, true)
    }

    fn begin(config: KafkaConfig, read_only: bool) -> Result<KafkaLog, LogError> {
        let mut reach = Reach::new(config)?;
        let site = admin::read_site(&mut reach)?;
        let reach = Arc::new(reach);
        let reader = Arc::new(Reader::new(Arc::clone(&reach)));
        let claims = Claims::new(Arc::clone(&reach), Arc::clone(&reader));
        for known in &reach.config.known {
            claims.take_up(known)?;
        }
        Ok(KafkaLog {
            site,
            reader,
            claims,
            inputs: Inputs::new(Arc::clone(&reach)),
            watch: Watch::new(Arc::clone(&reach)),
            reach,
            read_only,
            closed: AtomicBool::new(false),
        })
    }

    /// Closes the log: what waits is written, waits for change end, appends are refused from now on. Dropping does
    /// the same. A crash leaves nothing else behind than this does.
    pub fn close(&self) {
        self.end(false);
    }

    /// Ends without writing what waits, as a killed process would.
    #[cfg(test)]
    pub(crate) fn abandon(&self) {
        self.end(true);
    }

    fn end(&self, abandon: bool) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.claims.end(abandon);
        self.inputs.end(abandon);
        self.watch.end();
    }

    fn refusal(&self) -> Option<LogError> {
        if self.read_only {
            return Some(LogError::ReadOnly);
        }
        let closed = self.closed.load(Ordering::Acquire);
        closed.then(|| LogError::Stopped { message: "the log was closed".to_owned() })
    }

    /// The stream, if this log has so many partitions.
    fn known(&self, stream: Stream) -> Result<Stream, LogError> {
        let partitions = self.site.partitions;
        if stream.index() < partitions {
            return Ok(stream);
        }
        Err(LogError::System {
            what: format!("{stream}"),
            message: format!("this log has {partitions} partitions, counted from 0"),
        })
    }

    fn try_append(
        &self,
        stream: Stream,
        records: Vec<Vec<u8>>,
    ) -> Result<Pending<Result<Vec<Offset>, LogError>>, LogError> {
        if let Stream::Events(_) = stream {
            return Err(LogError::System {
                what: format!("appending to {stream}"),
                message: "events are appended by the partition's writer only: use `claim`".to_owned(),
            });
        }
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let size = check_sizes(&records, self.reach.config.max_record, self.reach.config.max_append)?;
        if records.len() > MOST_INPUTS {
            return Err(LogError::System {
                what: format!("appending {} inputs to {stream} at once", records.len()),
                message: format!("an append takes at most {MOST_INPUTS}: append them in several"),
            });
        }
        if records.is_empty() {
            return Ok(Pending::ready(Ok(Vec::new())));
        }
        self.inputs.append(self.known(stream)?, records, size)
    }

    #[cfg(test)]
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }
}

impl Drop for KafkaLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl Log for KafkaLog {
    fn describe(&self) -> Description {
        Description {
            site: self.site.site,
            generation: self.site.generation,
            survives: Survives::ReplicaLoss(self.site.survives),
            name: format!("log on Kafka at {}, topics {}*", self.reach.config.brokers, self.reach.config.prefix),
            partitions: self.site.partitions,
        }
    }

    fn append_inputs(&self, stream: Stream, records: Vec<Vec<u8>>) -> Pending<Result<Vec<Offset>, LogError>> {
        self.try_append(stream, records).unwrap_or_else(|error| Pending::ready(Err(error)))
    }

    fn claim(&self, partition: Partition) -> Result<(Claim, Box<dyn EventWriter>), LogError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        self.known(Stream::Events(partition))?;
        self.claims.claim(partition)
    }

    fn read(&self, stream: Stream, from: Offset, limit: ReadLimit) -> Result<ReadBatch, LogError> {
        self.reader.read(self.known(stream)?, from, limit)
    }

    fn end(&self, stream: Stream) -> Result<Offset, LogError> {
        self.reader.end(self.known(stream)?)
    }

    fn seek(&self, partition: Partition, sequence: u64) -> Result<Offset, LogError> {
        self.known(Stream::Events(partition))?;
        self.reader.seek(partition, sequence)
    }

    fn changed(&self, stream: Stream, beyond: Offset) -> Pending<()> {
        match self.known(stream) {
            Ok(stream) => self.watch.changed(stream, beyond),
            Err(_) => Pending::lost(),
        }
    }

    fn streams(&self) -> Result<Vec<Stream>, LogError> {
        let mut found = Vec::new();
        for topic in Names::partitioned() {
            for index in 0..self.site.partitions {
                let stream = with_index(topic, index);
                if self.reader.end(stream)? > Offset(0) {
                    found.push(stream);
                }
            }
        }
        found.sort();
        Ok(found)
    }
}
