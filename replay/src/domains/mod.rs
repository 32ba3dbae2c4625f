//! The list of domains as replay sees them: each can be folded to any moment, verified, decided again, compared and told in
//! words, whatever its state and its rules are.
//!
//! [`ReplayDomain`] is what a domain is to replay; [`Of`] makes one of a domain's rules (which name its state) and of its
//! [`Words`]. [`Domains`] is the list that commands hand in; [`domains`] is gatelog's own. A new domain is one more [`Of`].

mod capacity;
mod gate;
mod of;

use std::fmt;
use std::sync::Arc;

use gatelog_event_log::{Blobs, Log};
use gatelog_partition_state::WriterRow;
use gatelog_record::{Domain, Event, Input, Partition};
use gatelog_store::RungDir;
use gatelog_store::rung::EncodedRung;

use crate::diff::{About, RowChange};
use crate::error::ReplayError;
use crate::explain::Names;
use crate::redecide::Redecided;
use crate::step::standing::Stand;
use crate::timeline::Moment;
use crate::verify::{BlobsOf, Verified};

pub use capacity::{CAPACITY, CapacityWords};
pub use gate::{GATE, GateWords};
pub use of::Of;

/// What a domain is to replay.
pub trait ReplayDomain: Send + Sync {
    /// The domain.
    fn domain(&self) -> Domain;

    /// How its records and rows are told.
    fn words(&self) -> &dyn Words;

    /// A state of a partition that can be led to any of its events, before the first.
    ///
    /// # Errors
    /// None that ordered maps can give.
    fn stand(
        &self,
        log: &Arc<dyn Log>,
        partition: Partition,
        rungs: Option<RungDir>,
    ) -> Result<Box<dyn Stand>, ReplayError>;

    /// The rows that are not the same after two events; 0 is before the first.
    ///
    /// # Errors
    /// As [`crate::Timeline::state_at`].
    fn changes(
        &self,
        log: &Arc<dyn Log>,
        partition: Partition,
        rungs: Option<RungDir>,
        from: u64,
        to: u64,
    ) -> Result<Vec<RowChange>, ReplayError>;

    /// Where a partition stands at a moment: position, level, who wrote it.
    ///
    /// # Errors
    /// As [`crate::Timeline::state_at`].
    fn place(
        &self,
        log: &Arc<dyn Log>,
        partition: Partition,
        rungs: Option<RungDir>,
        moment: Moment,
    ) -> Result<WriterRow, ReplayError>;

    /// The state after an event, written down as a rung: what a slice that begins there takes along.
    ///
    /// # Errors
    /// As [`crate::Timeline::state_at`].
    fn rung(&self, log: &Arc<dyn Log>, partition: Partition, sequence: u64) -> Result<EncodedRung, ReplayError>;

    /// Chain, fold and rungs, checked over a partition's whole history: [`crate::verify()`].
    ///
    /// # Errors
    /// The first thing that is wrong.
    fn verify(
        &self,
        log: &dyn Log,
        partition: Partition,
        rungs: Option<&RungDir>,
        blobs: Option<(&dyn Blobs, BlobsOf<'_>)>,
    ) -> Result<Verified, ReplayError>;

    /// A partition's inputs through the rules again: [`crate::redecide()`].
    ///
    /// # Errors
    /// As there.
    fn redecide(&self, log: &dyn Log, blobs: &dyn Blobs, partition: Partition) -> Result<Redecided, ReplayError>;
}

/// How a domain's records and rows are told.
pub trait Words: Send + Sync {
    /// An event of the domain in one sentence; `None` for one of another.
    fn event(&self, event: &Event, names: &Names) -> Option<String>;

    /// An input for the domain in one sentence; `None` for one of another.
    fn input(&self, input: &Input, names: &Names) -> Option<String>;

    /// What the rows of one of its tables are about. Those of the tables that every partition has are bookkeeping.
    fn about(&self, _table: &str) -> About {
        About::Bookkeeping
    }

    /// A row by what it stands for; `None`: its key says it.
    fn subject(&self, _change: &RowChange, _names: &Names) -> Option<String> {
        None
    }

    /// What several rows say together, beside what each says.
    fn together(&self, _changes: &[RowChange], _names: &Names) -> Vec<(About, RowChange)> {
        Vec::new()
    }
}

/// A list of domains, in the order in which they are told. Clones are the same list.
#[derive(Clone)]
pub struct Domains(Arc<[&'static dyn ReplayDomain]>);

/// gatelog's own.
pub fn domains() -> Domains {
    Domains::default()
}

impl Default for Domains {
    fn default() -> Domains {
        [&GATE as &'static dyn ReplayDomain, &CAPACITY].into_iter().collect()
    }
}

impl FromIterator<&'static dyn ReplayDomain> for Domains {
    fn from_iter<I: IntoIterator<Item = &'static dyn ReplayDomain>>(list: I) -> Domains {
        Domains(list.into_iter().collect())
    }
}

impl fmt::Debug for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|domain| domain.domain().name())).finish()
    }
}

impl Domains {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn ReplayDomain> {
        self.0.iter().copied()
    }

    /// The one that is called so; `None` where nothing decides in it.
    pub fn of(&self, domain: Domain) -> Option<&'static dyn ReplayDomain> {
        self.iter().find(|one| one.domain() == domain)
    }

    /// In which order partitions are read whose events name things of others: those of the list first, in its order.
    pub fn order(&self, partition: Partition) -> (usize, Partition) {
        let place = self.iter().position(|one| one.domain() == partition.domain);
        (place.unwrap_or(usize::MAX), partition)
    }

    /// Their names, for messages: `gate or capacity`.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.iter().map(|domain| domain.domain().name()).collect();
        match names.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
            None => "none".to_owned(),
        }
    }
}
