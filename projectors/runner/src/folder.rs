//! One step after the other: read, check, fold, commit.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use gatelog_event_log::contract::Place;
use gatelog_event_log::{
    HistoryError, HistoryReader, Log, LogError, Offset, ReadLimit, ReadRecord, Step, Tail, failpoint,
};
use gatelog_record::{Envelope, Partition, Stream};
use gatelog_store::rung::EncodedRung;
use gatelog_store::{
    Folded, Known, Layout, Opened, Position, Projection, RungDir, SchemaVersion, SharedProjection, StoreError,
    StoreWarning, checkpoint, known,
};
use gatelog_tables::DomainState;

use crate::ahead::{Ahead, FarAhead};
use crate::error::RunnerError;
use crate::published::{Health, Published};

/// How a partition is folded.
#[derive(Clone, Debug)]
pub struct RunnerConfig {
    /// The root of all projections of the site.
    pub root: PathBuf,
    /// A rung at every sequence that this divides; none when 0.
    pub rung_every: u64,
    /// A checkpoint after so many events; none when 0.
    pub checkpoint_every: u64,
    /// How much is folded and committed together at most.
    pub batch: ReadLimit,
    /// How it goes while the log is far ahead.
    pub ahead: Ahead,
}

impl RunnerConfig {
    /// The defaults, below a root: a rung every 10 000 events, a checkpoint every 50 000; while the log is far
    /// ahead, a rung every 100 000 and a checkpoint when it has caught up.
    pub fn new(root: impl Into<PathBuf>) -> RunnerConfig {
        RunnerConfig {
            root: root.into(),
            rung_every: 10_000,
            checkpoint_every: 50_000,
            batch: ReadLimit { records: 1_024, bytes: 4 << 20 },
            ahead: Ahead::default(),
        }
    }
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// So many records were read and dealt with.
    Read(usize),
    /// There is nothing more for now; the log's end lies here.
    AtEnd(Offset),
}

/// The most warnings kept.
const MAX_WARNINGS: usize = 100;

/// So many events or a few more are folded, and seen by readers, before they are stored. A row that many of them change
/// is then written once; who is killed folds them again.
const STORE_EVERY: usize = 2048;

/// Feeds one partition's projection.
pub struct Folder<S: DomainState> {
    log: Arc<dyn Log>,
    partition: Partition,
    config: RunnerConfig,
    projection: SharedProjection<S>,
    published: Published,
    reader: HistoryReader,
    from: Offset,
    /// Whether `from` is only the projection's memory of an offset and not yet proven.
    hinted: bool,
    /// Whether projections of other state schemas stand beside this one.
    beside: bool,
    since_checkpoint: u64,
    warnings: VecDeque<StoreWarning>,
    stopped: Option<RunnerError>,
    /// How many full batches were read one after the other.
    full_batches: u32,
    ahead: Option<FarAhead<S>>,
    /// Whether what is folded is stored later.
    lazy: bool,
    /// How many events were folded and are not stored.
    unstored: usize,
}

impl<S: DomainState> Folder<S> {
    /// Opens the projection and checks that the log is the one it was folded from. A damaged
    /// projection is put back from a checkpoint, or deleted and begun anew; either is told in
    /// [`Folder::warnings`]. One of another state schema stays beside until this one has caught up.
    ///
    /// # Errors
    /// `Log` (`Behind` when the log is shorter than what is known), `Diverged`, `OtherSite`, `Store`.
    pub fn open(log: Arc<dyn Log>, partition: Partition, config: RunnerConfig) -> Result<Self, RunnerError> {
        let mut warnings = Vec::new();
        let layout = Layout::new(&config.root, partition);
        if let Some(known) = known(&config.root, partition, &mut Vec::new())?
            && let Err(error) = check_known(&*log, partition, &known)
        {
            // An adopted log is a new generation: what was folded from the old one is void.
            let replaced = matches!(&error, RunnerError::Diverged { .. } | RunnerError::Log(LogError::Behind { .. }));
            if !(replaced && log.describe().generation > known.generation) {
                return Err(error);
            }
            layout.delete_all()?;
            let path = layout.home().to_owned();
            let damage =
                StoreError::StoreDamaged { path, message: "its log was replaced by an adopted one".to_owned() };
            warnings.push(StoreWarning::Rebuilt { damage });
        }
        let (projection, beside) = open_projection::<S>(&config, partition, &mut warnings)?;
        let position = *projection.position();
        let tail = Tail { sequence: position.sequence, term: position.term, link: position.link };
        Ok(Folder {
            log,
            partition,
            config,
            projection: SharedProjection::new(projection),
            published: Published::new(position),
            reader: HistoryReader::after(partition, tail),
            from: Offset(position.log_offset),
            hinted: true,
            beside,
            since_checkpoint: 0,
            warnings: warnings.into(),
            stopped: None,
            full_batches: 0,
            ahead: None,
            lazy: false,
            unstored: 0,
        })
    }

    /// The projection, for reading.
    pub fn projection(&self) -> SharedProjection<S> {
        self.projection.clone()
    }

    /// Where the fold stands.
    pub fn published(&self) -> Published {
        self.published.clone()
    }

    /// What was passed over or put right, newest last; at most 100.
    pub fn warnings(&self) -> Vec<StoreWarning> {
        self.warnings.iter().cloned().collect()
    }

    /// The partition.
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// The log.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// Reads one batch, folds and commits it; while the log is far ahead, commits only now and then.
    ///
    /// # Errors
    /// What stops the fold: everything before the event it names is committed and published. Every
    /// later step gives the same error, until [`Folder::try_again`].
    pub fn step(&mut self) -> Result<Stepped, RunnerError> {
        if let Some(stopped) = &self.stopped {
            return Err(stopped.clone());
        }
        let stepped = match self.ahead.take() {
            Some(ahead) => self.fold_ahead(ahead),
            None => self.read_and_fold(),
        };
        if let Err(error) = &stepped {
            self.stopped = Some(error.clone());
        }
        stepped
    }

    /// From now on what is folded is seen by readers at once and stored some hundred events later, by the next checkpoint,
    /// or when [`Folder::store`] is called.
    pub(crate) fn store_later(&mut self) {
        self.lazy = true;
    }

    /// Whether something is folded and not stored.
    pub(crate) fn is_unstored(&self) -> bool {
        self.unstored > 0
    }

    /// Stores what is folded.
    ///
    /// # Errors
    /// As [`Folder::step`].
    pub(crate) fn store(&mut self) -> Result<(), RunnerError> {
        if self.unstored == 0 {
            return Ok(());
        }
        self.unstored = 0;
        let stored = self.projection.commit();
        failpoint::pass("fold/stored");
        if let Err(error) = stored {
            self.stopped = Some(error.clone().into());
            return Err(error.into());
        }
        Ok(())
    }

    /// Whether what stopped the fold may pass: the projection's disk was full, or out of reach.
    pub fn may_pass(&self) -> bool {
        matches!(&self.stopped, Some(RunnerError::Store(StoreError::System { .. })))
    }

    /// Goes on from the last commit after what stopped the fold may have passed.
    pub fn try_again(&mut self) {
        if self.may_pass() {
            self.stopped = None;
            self.resume();
        }
    }

    /// Reads on from where the projection stands.
    fn resume(&mut self) {
        let position = self.projection.position();
        let tail = Tail { sequence: position.sequence, term: position.term, link: position.link };
        self.reader = HistoryReader::after(self.partition, tail);
        self.from = Offset(position.log_offset);
        self.hinted = true;
    }

    fn read_and_fold(&mut self) -> Result<Stepped, RunnerError> {
        let stream = Stream::Events(self.partition);
        // Asked before reading, so that what comes between the two is not slept through.
        let end = self.log.end(stream)?;
        let batch = self.log.read(stream, self.from, self.config.batch)?;
        if batch.records.is_empty() {
            if std::mem::take(&mut self.hinted) && self.seek()? {
                return Ok(Stepped::Read(0));
            }
            if self.beside {
                self.store()?;
            }
            self.caught_up();
            return Ok(Stepped::AtEnd(end.max(self.from)));
        }
        let mut events = Vec::with_capacity(batch.records.len());
        let mut stale = 0;
        for (index, record) in batch.records.iter().enumerate() {
            let after = batch.records.get(index + 1).map_or(batch.next, |next| next.offset);
            match self.reader.next(record) {
                Ok(Step::Event(record, link)) => {
                    let sequence = record.sequence;
                    self.hinted = false;
                    events.push(Folded { record: *record, link, log_offset: after.0 });
                    if self.config.rung_every > 0 && sequence % self.config.rung_every == 0 {
                        if !self.fold(&mut events, after, &mut stale)? {
                            return Ok(Stepped::Read(0));
                        }
                        self.store()?;
                        self.write_rung();
                    }
                }
                Ok(Step::StaleWriter(_)) => stale += 1,
                Err(_) if std::mem::take(&mut self.hinted) => {
                    self.seek()?;
                    return Ok(Stepped::Read(0));
                }
                Err(error) => return self.stop_at(&mut events, record, &mut stale, error),
            }
        }
        if !self.fold(&mut events, batch.next, &mut stale)? {
            return Ok(Stepped::Read(0));
        }
        if self.unstored >= STORE_EVERY {
            self.store()?;
        }
        self.checkpoint_if_due()?;
        // A log without an end in sight, and a projection that stands where it was read from. That the end lies beyond
        // is not enough: with some logs a record that is not ours always does.
        let bytes: usize = batch.records.iter().map(|record| record.bytes.len()).sum();
        let full = batch.records.len() >= self.config.batch.records.div_ceil(2) || bytes >= self.config.batch.bytes / 2;
        self.full_batches = if full && end > batch.next && !self.hinted { self.full_batches + 1 } else { 0 };
        if self.config.ahead.after_batches > 0 && self.full_batches >= self.config.ahead.after_batches {
            self.full_batches = 0;
            self.store()?;
            self.go_ahead();
        }
        Ok(Stepped::Read(batch.records.len()))
    }

    fn checkpoint_if_due(&mut self) -> Result<(), RunnerError> {
        if self.config.checkpoint_every > 0 && self.since_checkpoint >= self.config.checkpoint_every {
            self.store()?;
            self.write_checkpoint();
        }
        Ok(())
    }

    /// From here on reading and writing have threads of their own, until the log's end.
    fn go_ahead(&mut self) {
        // Without threads it goes on as before.
        match FarAhead::start(Arc::clone(&self.log), self.partition, self.projection.clone(), &self.config) {
            Ok(ahead) => self.ahead = Some(ahead),
            Err(error) => tracing::warn!(partition = %self.partition, "cannot read ahead of the fold: {error}"),
        }
    }

    /// Folds what was read ahead.
    fn fold_ahead(&mut self, mut ahead: FarAhead<S>) -> Result<Stepped, RunnerError> {
        if let Some(folded) = ahead.fold() {
            self.since_checkpoint += folded as u64;
            self.published.publish(ahead.stored());
            self.ahead = Some(ahead);
            return Ok(Stepped::Read(folded));
        }
        // The log's end, or something to look at carefully.
        let ended = ahead.end()?;
        for error in ended.failed_rungs {
            self.warn(StoreWarning::RungPassedOver(error));
        }
        if !ended.stored {
            // What fails once fails again: the rest goes event by event.
            self.config.ahead.after_batches = 0;
        }
        self.resume();
        self.published.publish(self.projection.position());
        self.checkpoint_if_due()?;
        Ok(Stepped::Read(0))
    }

    /// Steps until there is nothing more for now.
    ///
    /// # Errors
    /// As [`Folder::step`].
    pub fn catch_up(&mut self) -> Result<Position, RunnerError> {
        while let Stepped::Read(_) = self.step()? {}
        Ok(self.projection.position())
    }

    /// Folds events, and stores them unless that is for later. `false` when they could not be folded and it goes on from
    /// what is stored, event by event, which tells why.
    fn fold(&mut self, events: &mut Vec<Folded>, next: Offset, stale: &mut u64) -> Result<bool, RunnerError> {
        failpoint::pass("fold/read");
        let (count, passed) = (events.len(), std::mem::take(stale));
        let folded = match self.lazy {
            true => self.projection.fold_ahead(events, next.0, passed),
            false => self.projection.fold(events, next.0, passed),
        };
        events.clear();
        if self.lazy && folded.is_err() {
            (self.lazy, self.unstored) = (false, 0);
            self.resume();
            return Ok(false);
        }
        if self.lazy {
            self.unstored += count;
        }
        self.since_checkpoint += count as u64;
        self.from = next;
        self.published.publish(self.projection.position());
        failpoint::pass("fold/published");
        folded.map(|_| true).map_err(RunnerError::Store)
    }

    /// What could be read before a break in the history still counts.
    fn stop_at(
        &mut self,
        events: &mut Vec<Folded>,
        record: &ReadRecord,
        stale: &mut u64,
        error: HistoryError,
    ) -> Result<Stepped, RunnerError> {
        if !self.fold(events, record.offset, stale)? {
            return Ok(Stepped::Read(0));
        }
        self.store()?;
        Err(RunnerError::History(error.with_writer(&*self.log)))
    }

    /// The offset remembered may be none of this log's: events are found by their sequence. Says
    /// whether reading goes on elsewhere.
    fn seek(&mut self) -> Result<bool, RunnerError> {
        let tail = self.projection.position();
        let tail = Tail { sequence: tail.sequence, term: tail.term, link: tail.link };
        self.reader = HistoryReader::after(self.partition, tail);
        let from = self.log.seek(self.partition, tail.sequence.saturating_add(1))?;
        Ok(std::mem::replace(&mut self.from, from) > from)
    }

    fn caught_up(&mut self) {
        self.published.set_health(Health::Following);
        if std::mem::take(&mut self.beside) {
            let layout = Layout::new(&self.config.root, self.partition);
            match layout.retire_others(SchemaVersion::of::<S>()) {
                Ok(retired) => {
                    tracing::info!(partition = %self.partition, ?retired, "changed over to a new state schema")
                }
                Err(error) => self.warn(StoreWarning::ProjectionPassedOver(error)),
            }
        }
    }

    // A rung or checkpoint that cannot be written costs time later, never the fold.
    fn write_rung(&mut self) {
        let dir = RungDir::new(Layout::new(&self.config.root, self.partition).rungs());
        let encoded = {
            let view = self.projection.view();
            // Of a fold before this one.
            if dir.holds::<S>(self.partition, view.position()) {
                return;
            }
            EncodedRung::new::<S, _>(self.partition, view.position(), view.live())
        };
        failpoint::pass("rung/made");
        let put = encoded.and_then(|rung| dir.put(&rung));
        failpoint::pass("rung/written");
        if let Err(error) = put {
            self.warn(StoreWarning::RungPassedOver(error));
        }
    }

    fn write_checkpoint(&mut self) {
        self.since_checkpoint = 0;
        failpoint::pass("checkpoint/due");
        let made = checkpoint::create(self.projection.view().projection());
        failpoint::pass("checkpoint/written");
        if let Err(error) = made {
            self.warn(StoreWarning::ProjectionPassedOver(error));
        }
    }

    fn warn(&mut self, warning: StoreWarning) {
        tracing::warn!(partition = %self.partition, "{warning}");
        if self.warnings.len() >= MAX_WARNINGS {
            self.warnings.pop_front();
        }
        self.warnings.push_back(warning);
    }
}

/// Deletes a partition's projection and folds it from the log again, to the log's end. Nobody may
/// have it open.
///
/// # Errors
/// As [`Folder::open`] and [`Folder::step`].
pub fn rebuild<S: DomainState>(
    log: Arc<dyn Log>,
    partition: Partition,
    config: RunnerConfig,
) -> Result<Folder<S>, RunnerError> {
    Projection::<S>::delete(&config.root, partition)?;
    let mut folder = Folder::open(log, partition, config)?;
    folder.catch_up()?;
    Ok(folder)
}

fn open_projection<S: DomainState>(
    config: &RunnerConfig,
    partition: Partition,
    warnings: &mut Vec<StoreWarning>,
) -> Result<(Projection<S>, bool), RunnerError> {
    let (projection, opened) = match Projection::<S>::open(&config.root, partition) {
        Ok(opened) => opened,
        Err(damage) if damage.is_cured_by_rebuild() => {
            if let Some(projection) = checkpoint::restore::<S>(&config.root, partition, warnings)? {
                let sequence = projection.position().sequence;
                warnings.push(StoreWarning::RestoredFromCheckpoint { damage, sequence });
                (projection, Opened::Continued)
            } else {
                Projection::<S>::delete(&config.root, partition)?;
                warnings.push(StoreWarning::Rebuilt { damage });
                Projection::<S>::open(&config.root, partition)?
            }
        }
        Err(error) => return Err(error.into()),
    };
    for warning in warnings.iter() {
        tracing::warn!(%partition, "{warning}");
    }
    // Asked again rather than taken from `opened`: a change-over may have been cut short.
    let wanted = SchemaVersion::of::<S>();
    let beside = projection.layout().schemas()?.iter().any(|found| *found != wanted);
    if let Opened::Fresh { beside } = &opened
        && !beside.is_empty()
    {
        tracing::info!(%partition, ?beside, "building a projection of a new state schema beside the old one");
    }
    Ok((projection, beside))
}

/// Whether the log has the event that is known, with the link that is known.
fn check_known(log: &dyn Log, partition: Partition, known: &Known) -> Result<(), RunnerError> {
    let site = log.describe().site;
    if known.site != site {
        return Err(RunnerError::OtherSite { partition, by: known.by.clone(), known: known.site, log: site });
    }
    let stream = Stream::Events(partition);
    let mut from = log.seek(partition, known.sequence)?;
    loop {
        let batch = log.read(stream, from, ReadLimit { records: 16, bytes: 1 << 20 })?;
        for record in &batch.records {
            // What cannot be read is the history reader's to name, with more said about it.
            let Ok((envelope, link)) = Envelope::decode(&record.bytes) else { return Ok(()) };
            if link == known.link && envelope.sequence == known.sequence {
                return Ok(());
            }
            // Records of an old owner may stand between.
            if envelope.term >= known.term && envelope.sequence >= known.sequence {
                let found = if envelope.sequence == known.sequence {
                    link.to_string()
                } else {
                    format!("event {} in its place", envelope.sequence)
                };
                return Err(RunnerError::Diverged {
                    partition,
                    by: known.by.clone(),
                    sequence: known.sequence,
                    known: known.link,
                    found,
                });
            }
        }
        if batch.records.is_empty() {
            let place = Place { stream: Some(stream), offset: Some(log.end(stream)?), physical: log.describe().name };
            let knows = format!("{} has folded event {}", known.by, known.sequence);
            return Err(LogError::Behind { place, knows }.into());
        }
        from = batch.next;
    }
}
