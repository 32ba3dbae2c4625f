//! A domain of its rules, its state and its words.

use std::marker::PhantomData;
use std::sync::Arc;

use gatelog_deciding::Rules;
use gatelog_event_log::{Blobs, Log};
use gatelog_partition_state::{PartitionState, WriterRow};
use gatelog_record::{Domain, Partition};
use gatelog_store::RungDir;
use gatelog_store::rung::EncodedRung;
use gatelog_tables::{DomainState, Maps};

use super::{ReplayDomain, Words};
use crate::diff::{RowChange, rows_between};
use crate::error::ReplayError;
use crate::redecide::{Redecided, redecide};
use crate::step::standing::{Stand, Standing};
use crate::timeline::{Moment, Timeline};
use crate::verify::{BlobsOf, Verified, verify};

/// A domain that decides by some rules, told in some words.
pub struct Of<R, W> {
    words: W,
    rules: PhantomData<fn() -> R>,
}

impl<R, W> Of<R, W> {
    /// The domain of these rules, told in these words.
    pub const fn new(words: W) -> Of<R, W> {
        Of { words, rules: PhantomData }
    }
}

impl<R, W> ReplayDomain for Of<R, W>
where
    R: Rules + Default + 'static,
    R::State: PartitionState,
    W: Words,
{
    fn domain(&self) -> Domain {
        R::State::DOMAIN
    }

    fn words(&self) -> &dyn Words {
        &self.words
    }

    fn stand(
        &self,
        log: &Arc<dyn Log>,
        partition: Partition,
        rungs: Option<RungDir>,
    ) -> Result<Box<dyn Stand>, ReplayError> {
        Ok(Box::new(Standing::<R::State>::new(Arc::clone(log), partition, rungs)?))
    }

    fn changes(
        &self,
        log: &Arc<dyn Log>,
        partition: Partition,
        rungs: Option<RungDir>,
        from: u64,
        to: u64,
    ) -> Result<Vec<RowChange>, ReplayError> {
        let timeline = Timeline::<R::State>::new(Arc::clone(log), partition, rungs);
        let before = timeline.state_at(Moment::Sequence(from))?;
        let after = timeline.state_at(Moment::Sequence(to))?;
        rows_between(&before.live, &after.live)
    }

    fn place(
        &self,
        log: &Arc<dyn Log>,
        partition: Partition,
        rungs: Option<RungDir>,
        moment: Moment,
    ) -> Result<WriterRow, ReplayError> {
        let at = Timeline::<R::State>::new(Arc::clone(log), partition, rungs).state_at(moment)?;
        let sequence = at.position.sequence;
        R::State::partition(&at.live).place().map_err(|refused| ReplayError::FoldRefused {
            partition,
            sequence,
            kind: "writer",
            refused,
        })
    }

    fn rung(&self, log: &Arc<dyn Log>, partition: Partition, sequence: u64) -> Result<EncodedRung, ReplayError> {
        let timeline = Timeline::<R::State>::new(Arc::clone(log), partition, None);
        let at = timeline.state_at(Moment::Sequence(sequence))?;
        Ok(EncodedRung::new::<R::State, Maps>(partition, &at.position, &at.live)?)
    }

    fn verify(
        &self,
        log: &dyn Log,
        partition: Partition,
        rungs: Option<&RungDir>,
        blobs: Option<(&dyn Blobs, BlobsOf<'_>)>,
    ) -> Result<Verified, ReplayError> {
        verify::<R::State>(log, partition, rungs, blobs)
    }

    fn redecide(&self, log: &dyn Log, blobs: &dyn Blobs, partition: Partition) -> Result<Redecided, ReplayError> {
        redecide(log, blobs, partition, Arc::new(R::default), R::State::partition::<Maps>)
    }
}
