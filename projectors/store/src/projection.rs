//! One partition's state, folded and committed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use gatelog_record::{ChainLink, EventRecord, Partition};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{DomainState, FoldRefused, LiveTables, ReadTables, TableError, TableSet};
use rocksdb::WriteBatch;

use crate::backing::{Forget, Gather, GoBack, Opener, RocksBacking, Settle, Stage, opening};
use crate::engine::{Engine, Meta};
use crate::error::StoreError;
use crate::layout::Layout;
use crate::position::{Position, SchemaVersion};
use crate::staged::{Settled, Staged};

/// How a projection was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It goes on from where it stood.
    Continued,
    /// It is new and begins at the first event. Others stand beside it, of other state schemas: they
    /// go when this one has caught up ([`Layout::retire_others`]).
    Fresh {
        /// The others.
        beside: Vec<SchemaVersion>,
    },
}

/// One event to fold: the record, its link, and the log offset after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// The event.
    pub record: EventRecord,
    /// Its link.
    pub link: ChainLink,
    /// Where to read on after it.
    pub log_offset: u64,
}

/// The tables of one partition and the position they are at.
///
/// Events are folded with [`Projection::apply`] and made to stay with [`Projection::commit`]. Any
/// failure takes everything back to the last commit, so that tables and position never disagree.
///
/// While the log is far ahead there is another way, that costs less and has more to lose: events are folded with
/// [`Projection::fold_ahead`], seen by readers at once, and written beside the fold ([`Projection::stage`],
/// [`Staged::write`], [`Projection::settle`]). A failure then takes everything back to what was handed over last.
pub struct Projection<S: DomainState> {
    engine: Arc<Engine>,
    layout: Layout,
    partition: Partition,
    live: S::Live<RocksBacking>,
    read: S::Read<RocksBacking>,
    /// What failure takes everything back to.
    kept: Position,
    /// What readers see.
    committed: Position,
    reached: Position,
    /// Rows were handed over and are not known to be stored.
    handed_over: bool,
}

impl<S: DomainState> std::fmt::Debug for Projection<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Projection").field("partition", &self.partition).field("position", &self.committed).finish()
    }
}

impl<S: DomainState> Projection<S> {
    /// Opens a partition's projection below the root of all projections, or begins a new one.
    ///
    /// # Errors
    /// `StoreDamaged` (see [`crate::checkpoint::restore`] and [`Projection::delete`]),
    /// `SchemaChanged`, `OtherPartition`, `InUse`, `System`.
    pub fn open(root: &Path, partition: Partition) -> Result<(Projection<S>, Opened), StoreError> {
        let layout = Layout::new(root, partition);
        let wanted = SchemaVersion::of::<S>();
        let path = layout.database(wanted);
        let engine = Engine::open(&path)?;
        let (position, opened) = match engine.meta()? {
            Some(meta) => {
                if (meta.domain, meta.index) != (partition.domain as u8, partition.index) {
                    let found = format!("domain {} partition {}", meta.domain, meta.index);
                    return Err(StoreError::OtherPartition { path, found, wanted: partition });
                }
                if meta.schema != wanted {
                    return Err(StoreError::SchemaChanged { path: layout.schema(wanted), found: meta.schema, wanted });
                }
                (meta.position, Opened::Continued)
            }
            None => {
                // Nothing in it at all: new, or its making was cut short.
                let beside = layout.schemas()?.into_iter().filter(|found| *found != wanted).collect();
                let position = Position::default();
                let mut batch = WriteBatch::default();
                Engine::put_meta(&mut batch, &meta::<S>(partition, position))?;
                engine.write(batch)?;
                (position, Opened::Fresh { beside })
            }
        };
        // What was not taken in before something died.
        crate::disk::remove(&layout.incoming(wanted))?;
        let (live, read) = tables::<S>(&engine, &layout)?;
        let projection = Projection {
            engine,
            layout,
            partition,
            live,
            read,
            kept: position,
            committed: position,
            reached: position,
            handed_over: false,
        };
        Ok((projection, opened))
    }

    /// Deletes a partition's projection of this state schema, with its checkpoints. Rungs and those
    /// of other schemas stay. The cure for [`StoreError::StoreDamaged`]: it is folded from the log
    /// again.
    ///
    /// # Errors
    /// `System`.
    pub fn delete(root: &Path, partition: Partition) -> Result<(), StoreError> {
        crate::disk::remove(&Layout::new(root, partition).schema(SchemaVersion::of::<S>()))
    }

    /// The partition.
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// Where its files are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where the committed state stands, or that which [`Projection::fold_ahead`] has come to.
    pub fn position(&self) -> &Position {
        &self.committed
    }

    /// The live tables, with what is not yet committed.
    pub fn live(&self) -> &S::Live<RocksBacking> {
        &self.live
    }

    /// The temporal tables, with what is not yet committed.
    pub fn temporal(&self) -> &S::Read<RocksBacking> {
        &self.read
    }

    /// Folds one event, which must be the next. It stays only with [`Projection::commit`].
    ///
    /// # Errors
    /// `NotNext`, `FoldRefused`, `FoldPanicked`, `StoreDamaged`; everything since the last commit
    /// has then been taken back.
    pub fn apply(&mut self, event: &Folded) -> Result<(), StoreError> {
        let record = &event.record;
        if record.sequence != self.reached.sequence.saturating_add(1) {
            let error = StoreError::NotNext {
                partition: self.partition,
                applied: self.reached.sequence,
                found: record.sequence,
            };
            self.rollback();
            return Err(error);
        }
        // A fold that panics must cost its partition only, and leave no half of an event behind.
        let folded = catch_unwind(AssertUnwindSafe(|| {
            self.live.apply(record)?;
            self.read.apply(&self.live, record)
        }));
        let (partition, sequence, kind) = (self.partition, record.sequence, record.event.name());
        let error = match folded {
            Ok(Ok(())) => {
                self.reached = self.reached.after(record, event.link, event.log_offset);
                return Ok(());
            }
            Ok(Err(FoldRefused::Table(error))) => {
                // A start finds damage in live rows, which it reads, but not in these. It must not go
                // on with them, or it stops here again and again. If even that cannot be written, the
                // error still tells the cure.
                let _ = self.engine.mark_damaged(&error.to_string());
                StoreError::table(&self.layout.schema(SchemaVersion::of::<S>()), &error)
            }
            Ok(Err(refused)) => StoreError::FoldRefused { partition, sequence, kind, refused },
            Err(panic) => StoreError::FoldPanicked { partition, sequence, kind, message: said(panic.as_ref()) },
        };
        self.rollback();
        Err(error)
    }

    /// Moves the place to read on past records that are no part of history.
    pub fn pass_over(&mut self, log_offset: u64, stale: u64) {
        self.reached.log_offset = log_offset;
        self.reached.stale = self.reached.stale.saturating_add(stale);
    }

    /// Makes everything folded stay: one batch with all rows and the position.
    ///
    /// # Errors
    /// `Encode`, `System`, `HandedOver`; everything since the last commit has then been taken back.
    pub fn commit(&mut self) -> Result<Position, StoreError> {
        if self.reached == self.kept {
            return Ok(self.kept);
        }
        let written = self.all_is_stored().and_then(|()| self.write());
        if let Err(error) = written {
            self.rollback();
            return Err(error);
        }
        let _ = self.live.visit_mut(&mut Forget);
        let _ = self.read.visit_mut(&mut Forget);
        self.kept = self.reached;
        self.committed = self.reached;
        Ok(self.committed)
    }

    /// An older row must not be written over a newer.
    fn all_is_stored(&self) -> Result<(), StoreError> {
        match self.handed_over {
            true => Err(StoreError::HandedOver { partition: self.partition }),
            false => Ok(()),
        }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        let mut gather = Gather { sink: &mut batch, failed: None };
        let gathered = self.live.visit_mut(&mut gather).and_then(|()| self.read.visit_mut(&mut gather));
        if let Err(error) = gathered {
            return Err(gather.failed.unwrap_or_else(|| StoreError::table(self.engine.path(), &error)));
        }
        Engine::put_meta(&mut batch, &meta::<S>(self.partition, self.reached))?;
        self.engine.write(batch)
    }

    /// Takes back everything since the last commit, or since rows were handed over last.
    pub fn rollback(&mut self) {
        let _ = self.live.visit_mut(&mut GoBack);
        let _ = self.read.visit_mut(&mut GoBack);
        self.committed = self.kept;
        self.reached = self.kept;
    }

    /// Folds events and passes over what is no part of history up to `log_offset`, seen by readers at once and stored
    /// later: by [`Projection::commit`], or beside the fold.
    ///
    /// # Errors
    /// As [`Projection::apply`]. Everything since the last commit, or since rows were handed over last, has then been
    /// taken back; [`Projection::position`] says how far.
    pub fn fold_ahead(&mut self, events: &[Folded], log_offset: u64, stale: u64) -> Result<Position, StoreError> {
        events.iter().try_for_each(|event| self.apply(event))?;
        self.pass_over(log_offset, stale);
        self.committed = self.reached;
        Ok(self.committed)
    }

    /// Hands over everything that was folded and is not stored, to be written beside the fold; `None` when there is
    /// nothing. Until [`Projection::settle`] nothing else can be handed over or committed.
    ///
    /// # Errors
    /// `HandedOver`.
    pub fn stage(&mut self) -> Result<Option<Staged>, StoreError> {
        self.all_is_stored()?;
        if self.reached == self.kept {
            return Ok(None);
        }
        let mut stage = Stage::default();
        let staged = self.live.visit_mut(&mut stage).and_then(|()| self.read.visit_mut(&mut stage));
        staged.map_err(|error| self.damaged(&error))?;
        self.handed_over = true;
        self.kept = self.reached;
        self.committed = self.reached;
        let name = format!("{:020}.sst", self.reached.sequence);
        Ok(Some(Staged {
            engine: Arc::clone(&self.engine),
            tables: stage.tables,
            meta: meta::<S>(self.partition, self.reached),
            path: self.layout.incoming(SchemaVersion::of::<S>()).join(name),
        }))
    }

    /// What was handed over is stored: [`Staged::write`] said so. Gives rows that nobody needs any more: to let go of
    /// them takes time, which another thread may have.
    pub fn settle(&mut self) -> Settled {
        let mut settle = Settle::default();
        let _ = self.live.visit_mut(&mut settle);
        let _ = self.read.visit_mut(&mut settle);
        self.handed_over = false;
        Settled { _rows: settle.rows }
    }

    /// Everything is as it is stored, whatever was folded or handed over since: after [`Staged::write`] failed, and
    /// while none runs.
    ///
    /// # Errors
    /// `StoreDamaged`.
    pub fn reload(&mut self) -> Result<Position, StoreError> {
        let (live, read) = tables::<S>(&self.engine, &self.layout)?;
        let stored = self.engine.meta()?.map(|meta| meta.position).unwrap_or_default();
        (self.live, self.read) = (live, read);
        (self.kept, self.committed, self.reached) = (stored, stored, stored);
        self.handed_over = false;
        Ok(stored)
    }

    /// Whether all that readers see is stored.
    pub fn is_stored(&self) -> bool {
        !self.handed_over && self.kept == self.committed
    }

    /// Folds events, passes over what is no part of history up to `log_offset`, and commits it all
    /// together. When one of them cannot be folded, those before it are committed and the error is
    /// given.
    ///
    /// # Errors
    /// As [`Projection::apply`] and [`Projection::commit`]; [`Projection::position`] says how far it
    /// came.
    pub fn fold(&mut self, events: &[Folded], log_offset: u64, stale: u64) -> Result<Position, StoreError> {
        for (count, event) in events.iter().enumerate() {
            if let Err(error) = self.apply(event) {
                // Everything was taken back; what went well goes in again.
                for event in events.iter().take(count) {
                    self.apply(event)?;
                }
                self.commit()?;
                return Err(error);
            }
        }
        self.pass_over(log_offset, stale);
        self.commit()
    }

    /// The digest of the live tables: the same for the same events on every backing.
    ///
    /// # Errors
    /// `StoreDamaged`.
    pub fn live_digest(&self) -> Result<[u8; 32], StoreError> {
        let mut digest = StateDigest::default();
        self.live.visit(&mut digest).map_err(|error| self.damaged(&error))?;
        Ok(digest.finish())
    }

    /// The digest of all tables, live and temporal.
    ///
    /// # Errors
    /// `StoreDamaged`.
    pub fn digest(&self) -> Result<[u8; 32], StoreError> {
        let mut digest = StateDigest::default();
        self.live.visit(&mut digest).map_err(|error| self.damaged(&error))?;
        self.read.visit(&mut digest).map_err(|error| self.damaged(&error))?;
        Ok(digest.finish())
    }

    /// Makes committed state survive loss of power; without it a crash of the machine may leave the
    /// projection older, which the log mends.
    ///
    /// # Errors
    /// `System`.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.engine.db().flush_wal(true).map_err(|error| StoreError::System {
            what: "cannot sync the projection in",
            path: self.engine.path().to_owned(),
            message: error.into_string(),
        })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    fn damaged(&self, error: &TableError) -> StoreError {
        StoreError::table(&self.layout.schema(SchemaVersion::of::<S>()), error)
    }
}

type Tables<S> = (<S as DomainState>::Live<RocksBacking>, <S as DomainState>::Read<RocksBacking>);

/// The tables as they are stored.
fn tables<S: DomainState>(engine: &Arc<Engine>, layout: &Layout) -> Result<Tables<S>, StoreError> {
    let mut opener = Opener::new(engine);
    let failed = |error| opening(&layout.schema(SchemaVersion::of::<S>()), error);
    let live = S::Live::open(&mut opener).map_err(failed)?;
    let read = S::Read::open(&mut opener).map_err(failed)?;
    Ok((live, read))
}

fn meta<S: DomainState>(partition: Partition, position: Position) -> Meta {
    Meta { domain: partition.domain as u8, index: partition.index, schema: SchemaVersion::of::<S>(), position }
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}
