//! What differs between two states: row by row, and by what the rows mean.
//!
//! [`rows_between`] compares any two sets of tables of one domain. [`compare`] does so for two moments of a whole log,
//! each a consistent cut over all partitions, and says of each difference what it is about: an item, a queue, a job, a
//! build, a lease, a node, a layout. Ids are shown by what they stand for.

mod render;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gatelog_event_log::Log;
use gatelog_record::{Domain, EventRef, Partition, Stream, Timestamp};
use gatelog_store::RungDir;
use serde::Serialize;

use crate::cut::{Cut, cut_at, cut_before, cut_beside};
use crate::domains::Domains;
use crate::error::ReplayError;
use crate::explain::Names;
use crate::reading::envelope_at;
use crate::timeline::newest;

pub use crate::reading::names_until;
pub(crate) use render::text;
pub use render::{entry_words, words};
pub use rows::{
    ChangeKind, FieldChange, RowChange, RowsBefore, TableRows, came_and_went, readable, rows_between, table_rows,
};

/// A moment of a whole log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// After this event; other partitions as of its time.
    Event(EventRef),
    /// After the last event that was recorded by then.
    Time(Timestamp),
    /// Now.
    Newest,
}

/// Where the rungs of a partition are, if there are any.
pub type RungsOf<'f> = &'f dyn Fn(Partition) -> Option<RungDir>;

/// One side of a comparison: where each partition stood.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The newest event inside, by partition.
    pub events: BTreeMap<String, u64>,
    /// When the newest of them was recorded.
    #[serde(serialize_with = "crate::explain::text")]
    pub time: Timestamp,
}

/// What a difference is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// Tenants, their configuration files, tips of branches.
    Configuration,
    /// Layouts in force.
    Layouts,
    /// Queues and their order.
    Queues,
    /// Items.
    Items,
    /// Buildsets.
    Buildsets,
    /// Which jobs an item has.
    Jobs,
    /// Builds.
    Builds,
    /// Leases.
    Leases,
    /// Nodes that are given out.
    Nodes,
    /// Workers.
    Workers,
    /// What is waited for.
    Waits,
    /// Short work under way, and triggers that wait.
    Work,
    /// Facts about changes, artifacts, requests to keep nodes, semaphores.
    Facts,
    /// What the writer keeps for itself: marks, timers, messages under way, ids taken lately.
    Bookkeeping,
}

impl About {
    /// The heading.
    pub fn word(self) -> &'static str {
        match self {
            About::Configuration => "configuration",
            About::Layouts => "layouts",
            About::Queues => "queues",
            About::Items => "items",
            About::Buildsets => "buildsets",
            About::Jobs => "jobs",
            About::Builds => "builds",
            About::Leases => "leases",
            About::Nodes => "nodes",
            About::Workers => "workers",
            About::Waits => "waits",
            About::Work => "work",
            About::Facts => "facts",
            About::Bookkeeping => "bookkeeping",
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// The partition.
    pub partition: String,
    /// What it is about, in a few words.
    pub subject: String,
    /// The difference of the row, or of what was made of several.
    #[serde(flatten)]
    pub change: RowChange,
}

/// What differs between two moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The first moment.
    pub from: Side,
    /// The second.
    pub to: Side,
    /// What differs, by what it is about.
    pub differences: BTreeMap<About, Vec<Entry>>,
}

impl Comparison {
    /// Whether nothing differs that is not bookkeeping.
    pub fn is_same(&self) -> bool {
        self.differences.keys().all(|about| *about == About::Bookkeeping)
    }
}

/// Every partition that has events.
///
/// # Errors
/// `Log`.
pub fn partitions(log: &dyn Log) -> Result<Vec<Partition>, ReplayError> {
    let mut found: Vec<Partition> = log
        .streams()?
        .into_iter()
        .filter_map(|stream| match stream {
            Stream::Events(partition) if partition.domain != Domain::Intake => Some(partition),
            _ => None,
        })
        .collect();
    found.sort();
    Ok(found)
}

/// Where every partition stood at a moment: a consistent cut. The partition of an event that was asked for stands at
/// that event.
///
/// # Errors
/// `NotYet`, `Log`, `Frame`.
pub fn cut_of(log: &dyn Log, place: Place) -> Result<Cut, ReplayError> {
    let all = partitions(log)?;
    match place {
        Place::Time(at) => cut_at(log, &all, at),
        Place::Newest => {
            let mut cut = Cut::new();
            for partition in all {
                cut.insert(partition, newest(log, partition)?);
            }
            cut_before(log, &cut)
        }
        Place::Event(EventRef { partition, sequence: 0 }) => {
            Ok(all.into_iter().map(|other| (other, 0)).chain([(partition, 0)]).collect())
        }
        Place::Event(event) => {
            if envelope_at(log, event.partition, event.sequence)?.is_none() {
                let newest = newest(log, event.partition)?;
                return Err(ReplayError::NotYet { partition: event.partition, wanted: event.sequence, newest });
            }
            cut_beside(log, event, &all)
        }
    }
}

/// What differs between two moments of a log, in the domains of a list.
///
/// # Errors
/// What reading the past gives.
pub fn compare(
    domains: &Domains,
    log: &Arc<dyn Log>,
    rungs: RungsOf<'_>,
    from: Place,
    to: Place,
) -> Result<Comparison, ReplayError> {
    let (first, second) = (cut_of(&**log, from)?, cut_of(&**log, to)?);
    let names = names_until(domains, &**log, &later(&first, &second))?;
    let mut comparison =
        Comparison { from: side(&**log, &first)?, to: side(&**log, &second)?, differences: BTreeMap::new() };
    let all: BTreeSet<Partition> = first.keys().chain(second.keys()).copied().collect();
    for partition in all {
        let at = |cut: &Cut| cut.get(&partition).copied().unwrap_or_default();
        let Some(domain) = domains.of(partition.domain) else { continue };
        let changes = domain.changes(log, partition, rungs(partition), at(&first), at(&second))?;
        for (about, entry) in entries(partition, changes, &names) {
            comparison.differences.entry(about).or_default().push(entry);
        }
    }
    Ok(comparison)
}

fn later(one: &Cut, other: &Cut) -> Cut {
    let mut cut = one.clone();
    for (partition, sequence) in other {
        let known = cut.entry(*partition).or_default();
        *known = (*known).max(*sequence);
    }
    cut
}

fn side(log: &dyn Log, cut: &Cut) -> Result<Side, ReplayError> {
    let mut time = Timestamp::ZERO;
    for (partition, sequence) in cut {
        if let Some((envelope, _)) = envelope_at(log, *partition, *sequence)? {
            time = time.max(envelope.recorded_at);
        }
    }
    Ok(Side { events: cut.iter().map(|(partition, sequence)| (partition.to_string(), *sequence)).collect(), time })
}

/// What row changes of a partition mean: each with what it is about, and what several say together.
pub fn entries(partition: Partition, changes: Vec<RowChange>, names: &Names) -> Vec<(About, Entry)> {
    let mut found = Vec::new();
    let place = partition.to_string();
    let Some(domain) = names.domains().of(partition.domain) else { return found };
    let words = domain.words();
    for (about, change) in words.together(&changes, names) {
        found.push((about, Entry { partition: place.clone(), subject: change.key.clone(), change }));
    }
    for change in changes {
        let about = words.about(change.table);
        let subject = words.subject(&change, names).unwrap_or_else(|| change.key.clone());
        found.push((about, Entry { partition: place.clone(), subject, change }));
    }
    found
}
