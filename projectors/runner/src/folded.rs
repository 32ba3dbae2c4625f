//! A partition as a process folds it, for those who know its domain and for those who do not.

use std::any::Any;
use std::sync::Arc;

use gatelog_partition_state::{PartitionState, WriterRow};
use gatelog_record::Partition;
use gatelog_store::SharedProjection;
use gatelog_tables::{FoldRefused, TableError, TableExt};

use crate::published::Published;
use crate::runner::Runner;

/// Up to where a sender's messages were taken: the sender's domain and index, and the sequence and ordinal.
pub type Mark = ((u8, u32), (u64, u32));

/// A partition as this process folds it, whatever its domain.
pub trait Fold: Send + Sync {
    /// The partition.
    fn partition(&self) -> Partition;

    /// Where its fold stands, with waits.
    fn published(&self) -> &Published;

    /// Where its history stands as folded, with its level; the default before the first event.
    ///
    /// # Errors
    /// The row cannot be read.
    fn place(&self) -> Result<WriterRow, FoldRefused>;

    /// Up to where it took what others sent it.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn marks(&self) -> Result<Vec<Mark>, TableError>;

    /// The [`Folded`] of its domain, for those who know which that is: [`folded`].
    fn as_any(&self) -> &dyn Any;
}

/// A partition of a known domain as this process folds it. Clones are the same.
pub struct Folded<S: PartitionState> {
    /// The partition.
    pub partition: Partition,
    /// Its tables.
    pub projection: SharedProjection<S>,
    /// Where their fold stands.
    pub published: Published,
}

impl<S: PartitionState> Clone for Folded<S> {
    fn clone(&self) -> Self {
        Folded { partition: self.partition, projection: self.projection.clone(), published: self.published.clone() }
    }
}

impl<S: PartitionState> Folded<S> {
    /// What a runner folds.
    pub fn of(runner: &Runner<S>) -> Folded<S> {
        Folded { partition: runner.partition(), projection: runner.projection(), published: runner.published() }
    }
}

impl<S: PartitionState> Fold for Folded<S> {
    fn partition(&self) -> Partition {
        self.partition
    }

    fn published(&self) -> &Published {
        &self.published
    }

    fn place(&self) -> Result<WriterRow, FoldRefused> {
        S::partition(self.projection.view().live()).place()
    }

    fn marks(&self) -> Result<Vec<Mark>, TableError> {
        let view = self.projection.view();
        S::partition(view.live()).marks.all()?.map(|row| row.map(|(sender, mark)| (sender, *mark))).collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The one of these folds that is of a domain whose state is known here.
pub fn folded<S: PartitionState>(folds: &[Arc<dyn Fold>]) -> Option<Folded<S>> {
    folds.iter().find_map(|fold| fold.as_any().downcast_ref::<Folded<S>>().cloned())
}
