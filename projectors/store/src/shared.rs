//! Reading a projection beside the fold.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gatelog_record::Partition;
use gatelog_tables::{DomainState, Maps, TableError};

use crate::backing::RocksBacking;
use crate::error::StoreError;
use crate::position::Position;
use crate::projection::{Folded, Projection};
use crate::rung::{rows_of, tables_of};
use crate::staged::{Settled, Staged};

/// A projection that one folds and many read. Readers see committed state alone (while the log is far ahead, also
/// what is folded and not stored yet: see [`SharedProjection::fold_ahead`]), and all tables at one position. Clones
/// are the same projection.
pub struct SharedProjection<S: DomainState> {
    inner: Arc<RwLock<Projection<S>>>,
}

impl<S: DomainState> Clone for SharedProjection<S> {
    fn clone(&self) -> Self {
        SharedProjection { inner: Arc::clone(&self.inner) }
    }
}

impl<S: DomainState> std::fmt::Debug for SharedProjection<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SharedProjection").field(&*self.lock()).finish()
    }
}

/// All tables at one position. Folding waits while one is held: keep it short, never across a wait.
pub struct View<'a, S: DomainState> {
    guard: RwLockReadGuard<'a, Projection<S>>,
}

impl<S: DomainState> View<'_, S> {
    /// The live tables.
    pub fn live(&self) -> &S::Live<RocksBacking> {
        self.guard.live()
    }

    /// The temporal tables.
    pub fn temporal(&self) -> &S::Read<RocksBacking> {
        self.guard.temporal()
    }

    /// Where they stand.
    pub fn position(&self) -> &Position {
        self.guard.position()
    }

    /// The partition.
    pub fn partition(&self) -> Partition {
        self.guard.partition()
    }

    /// A copy of the live tables in memory: the same type as a state of the past, and what a writer
    /// begins with.
    ///
    /// # Errors
    /// None that live tables, which are held in memory, can give.
    pub fn live_in_memory(&self) -> Result<S::Live<Maps>, TableError> {
        tables_of(&rows_of(self.live())?)
    }

    /// The projection itself: its digests, its rungs and checkpoints.
    pub fn projection(&self) -> &Projection<S> {
        &self.guard
    }
}

impl<S: DomainState> SharedProjection<S> {
    /// Shares a projection.
    pub fn new(projection: Projection<S>) -> SharedProjection<S> {
        SharedProjection { inner: Arc::new(RwLock::new(projection)) }
    }

    /// The tables for reading, at one position.
    pub fn view(&self) -> View<'_, S> {
        View { guard: self.lock() }
    }

    /// Where the committed state stands.
    pub fn position(&self) -> Position {
        *self.lock().position()
    }

    /// Folds events, passes over what is no part of history, and commits it all together, unseen by
    /// readers until it is done.
    ///
    /// # Errors
    /// As [`Projection::fold`].
    pub fn fold(&self, events: &[Folded], log_offset: u64, stale: u64) -> Result<Position, StoreError> {
        self.lock_mut().fold(events, log_offset, stale)
    }

    /// Folds events and passes over what is no part of history, seen by readers at once and stored later.
    ///
    /// # Errors
    /// As [`Projection::fold_ahead`].
    pub fn fold_ahead(&self, events: &[Folded], log_offset: u64, stale: u64) -> Result<Position, StoreError> {
        self.lock_mut().fold_ahead(events, log_offset, stale)
    }

    /// Makes everything folded stay.
    ///
    /// # Errors
    /// As [`Projection::commit`].
    pub fn commit(&self) -> Result<Position, StoreError> {
        self.lock_mut().commit()
    }

    /// Hands over what is not stored, to be written beside the fold.
    ///
    /// # Errors
    /// As [`Projection::stage`].
    pub fn stage(&self) -> Result<Option<Staged>, StoreError> {
        self.lock_mut().stage()
    }

    /// What was handed over is stored.
    pub fn settle(&self) -> Settled {
        self.lock_mut().settle()
    }

    /// Everything is as it is stored.
    ///
    /// # Errors
    /// As [`Projection::reload`].
    pub fn reload(&self) -> Result<Position, StoreError> {
        self.lock_mut().reload()
    }

    // A poisoned lock is taken all the same: folding catches its panics and takes everything back.
    fn lock(&self) -> RwLockReadGuard<'_, Projection<S>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_mut(&self) -> RwLockWriteGuard<'_, Projection<S>> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}
