//! Explanations: why a job ran or did not, what an item waited for, what led to an event.
//!
//! Everything is told from the log and its blobs alone, as of any moment: [`Explainer::read`] goes through the
//! history once and keeps names and places, [`Explainer::find`] knows what people mean by a name, and
//! [`Explainer::explain`] reads the records that tell the story. Texts under seal are never opened.

mod find;
mod index;
mod item;
mod jobs;
mod outcomes;
mod render;
mod say;
mod shapes;
mod things;
mod timers;
mod way;

#[cfg(test)]
mod tests;

pub use find::{Found, position};
pub use render::{Line, Tone};
pub use say::{Names, short, subject};
pub use shapes::{
    AttemptStory, BuildStory, BuildsetStory, ChangeStory, EventStory, Explanation, ItemStory, JobStory, Left, Merge,
    Note, PreparedOn, Report, Spot, ThingStory, Wait, WayStep,
};

use gatelog_event_log::{Blobs, Log};
use gatelog_record::event::GateEvent;
use gatelog_record::{ActorId, BlobHash, BuildId, Event, EventRecord, EventRef, ItemId};

use crate::domains::Domains;
use crate::error::ReplayError;
use crate::reading::event_at;
use crate::timeline::Moment;
use index::{ChangeName, Index};
pub(crate) use say::{after_colon, count, span};
pub(crate) use shapes::text;
pub(crate) use way::intake_offset;

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The past cannot be read.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// There is no such tenant.
    #[error("there is no tenant {tenant:?}")]
    NoTenant {
        /// What was asked for.
        tenant: String,
        /// A tenant with a name like it.
        did_you_mean: Option<String>,
    },
    /// Nothing has this name.
    #[error(
        "nothing is known of {what:?}: it is no change and no worker, and no item, buildset, build, lease or node begins with it"
    )]
    Unknown {
        /// What was asked for.
        what: String,
        /// A change with a name like it.
        did_you_mean: Option<String>,
    },
    /// Several things have this name.
    #[error("{what:?} could be {count} things")]
    Ambiguous {
        /// What was asked for.
        what: String,
        /// Some of them.
        candidates: Vec<String>,
        /// How many there are.
        count: usize,
    },
    /// There is no such event.
    #[error("{} has no event {}: its newest is event {newest}", event.partition, event.sequence)]
    NoEvent {
        /// What was asked for.
        event: EventRef,
        /// The newest.
        newest: u64,
    },
    /// A position that cannot be read.
    #[error("{0:?} is no event: expected a sequence, such as 117 or capacity/0:31")]
    NotAPosition(String),
    /// Nobody asked for a job of this name.
    #[error("no configuration asks for a job {job:?} for {what}")]
    NoJob {
        /// What was asked for.
        job: String,
        /// Of which item.
        what: String,
        /// The jobs that were considered.
        considered: Vec<String>,
        /// One of them with a name like it.
        did_you_mean: Option<String>,
    },
    /// Jobs were never frozen.
    #[error("no jobs were ever frozen for {what}")]
    NothingFrozen {
        /// For what.
        what: String,
    },
    /// The trace of a freezing cannot be read.
    #[error("the trace {hash} cannot be read: {message}")]
    Trace {
        /// The blob.
        hash: BlobHash,
        /// Why not.
        message: String,
    },
}

impl ExplainError {
    /// What else is known.
    pub fn detail(&self) -> Vec<String> {
        match self {
            ExplainError::Ambiguous { candidates, count, .. } => {
                let more = count.saturating_sub(candidates.len());
                let more = (more > 0).then(|| format!("and {more} more"));
                candidates.iter().cloned().chain(more).collect()
            }
            ExplainError::NoJob { considered, .. } if !considered.is_empty() => {
                vec![format!("jobs considered: {}", considered.join(", "))]
            }
            _ => Vec::new(),
        }
    }

    /// What may help.
    pub fn hint(&self) -> Option<String> {
        let meant = |name: &Option<String>| name.as_ref().map(|name| format!("did you mean {name}?"));
        match self {
            ExplainError::NoTenant { did_you_mean, .. }
            | ExplainError::Unknown { did_you_mean, .. }
            | ExplainError::NoJob { did_you_mean, .. } => meant(did_you_mean),
            ExplainError::Ambiguous { .. } => Some("name one of them in full, or say which with --tenant".to_owned()),
            ExplainError::NothingFrozen { .. } => Some("leave --job out to see how far it came".to_owned()),
            ExplainError::Trace { .. } => {
                Some("see `gatelog log verify`, or restore the blob from a backup".to_owned())
            }
            _ => None,
        }
    }
}

/// The name most like what was said, if any is like it at all.
pub fn did_you_mean(what: &str, names: &[&str]) -> Option<String> {
    find::nearest(what, names.iter().copied())
}

/// Tells why, as of one moment.
pub struct Explainer<'a> {
    log: &'a dyn Log,
    blobs: &'a dyn Blobs,
    index: Index,
    people: Option<People<'a>>,
}

/// Knows the name of whoever stands behind an opaque id.
type People<'a> = Box<dyn Fn(ActorId) -> Option<String> + 'a>;

impl<'a> Explainer<'a> {
    /// Goes through the history of every partition up to a moment; records are told in the words of these domains. A sequence is one of the first gate partition;
    /// other partitions are then read up to the time of that event.
    ///
    /// # Errors
    /// `NotYet`, `Log`, `History`.
    pub fn read(
        domains: &Domains,
        log: &'a dyn Log,
        blobs: &'a dyn Blobs,
        until: Moment,
    ) -> Result<Explainer<'a>, ExplainError> {
        Ok(Explainer { log, blobs, index: Index::read(domains, log, until)?, people: None })
    }

    /// With the names of those who asked: the log has opaque ids.
    pub fn with_people(self, people: impl Fn(ActorId) -> Option<String> + 'a) -> Explainer<'a> {
        Explainer { people: Some(Box::new(people)), ..self }
    }

    /// The name of whoever asked, where it is known.
    pub(crate) fn name_of(&self, actor: Option<ActorId>) -> Option<String> {
        self.people.as_ref()?(actor?)
    }

    /// Whoever asked, by name or by id; nobody where gatelog itself did.
    pub(crate) fn who(&self, actor: ActorId) -> Option<String> {
        let actor = way::known(actor)?;
        Some(self.name_of(Some(actor)).unwrap_or_else(|| format!("actor {}", short(&actor))))
    }

    /// What people mean by a name: an event's position (`117`, `capacity/0:31`), a change (its name, the last part of
    /// its name, with its project, its URL), or the first digits of the uuid of an item, buildset or build.
    ///
    /// # Errors
    /// `Unknown`, `Ambiguous`, `NoTenant`, `NoEvent`, `NotAPosition`.
    pub fn find(&self, what: &str, tenant: Option<&str>) -> Result<Found, ExplainError> {
        self.index.find(what, tenant)
    }

    /// The explanation; with a job's name, of that job: also why it did not run.
    ///
    /// # Errors
    /// `NoJob`, `NothingFrozen`, `Trace`, and what reading the past gives.
    pub fn explain(&self, found: &Found, job: Option<&str>) -> Result<Explanation, ExplainError> {
        if let Some(job) = job {
            return self.job(found, job).map(Explanation::Job);
        }
        match found {
            Found::Item(item) => self.item(*item).map(Explanation::Item),
            Found::Buildset(buildset) => {
                let mut story = self.item(self.item_of_buildset(found)?)?;
                story.buildsets.retain(|one| one.buildset == *buildset);
                Ok(Explanation::Item(story))
            }
            Found::Build(build) => self.build(*build).map(Explanation::Job),
            Found::Change { tenant, project, change } => {
                let name = ChangeName { tenant: tenant.clone(), project: project.clone(), change: change.clone() };
                self.change(&name).map(Explanation::Change)
            }
            Found::Event(event) => self.event(*event).map(Explanation::Event),
            Found::Lease(lease) => self.lease(*lease).map(Explanation::Thing),
            Found::Node(node) => self.node(*node).map(Explanation::Thing),
            Found::Worker(worker) => self.worker(worker).map(Explanation::Thing),
        }
    }

    fn item_of_buildset(&self, found: &Found) -> Result<ItemId, ExplainError> {
        let unknown = |what: String| ExplainError::Unknown { what, did_you_mean: None };
        match found {
            Found::Buildset(buildset) => {
                self.index.buildsets.get(buildset).copied().ok_or_else(|| unknown(buildset.to_string()))
            }
            _ => Err(unknown(format!("{found:?}"))),
        }
    }

    /// Everything that happened to a change, through all pipelines.
    fn change(&self, name: &ChangeName) -> Result<ChangeStory, ExplainError> {
        let note = self.index.changes.get(name).cloned().unwrap_or_default();
        let items = note.items.iter().map(|item| self.item(*item)).collect::<Result<Vec<_>, _>>()?;
        let events = note.events.iter().map(|at| Ok(self.note(&self.record(*at)?, at)));
        Ok(ChangeStory {
            tenant: name.tenant.clone(),
            project: name.project.clone(),
            change: name.change.clone(),
            url: note.url,
            events: events.collect::<Result<_, ExplainError>>()?,
            items,
        })
    }

    /// Every event that tells of what was found, in the order of the log.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn events_of(&self, found: &Found) -> Result<Vec<EventRef>, ExplainError> {
        self.index
            .events_of(found)
            .ok_or_else(|| ExplainError::Unknown { what: format!("{found:?}"), did_you_mean: None })
    }

    /// The item an event is about.
    pub fn item_of(&self, event: &Event) -> Option<ItemId> {
        match event {
            Event::Gate(event) => self.index.item_of(event),
            Event::Capacity(event) => {
                self.index.builds.get(&self.index.build_of_capacity(event)?).map(|note| note.item)
            }
            _ => None,
        }
    }

    /// The build an event is about.
    pub fn build_of(&self, event: &Event) -> Option<BuildId> {
        match event {
            Event::Gate(event) => index::build_of(event),
            Event::Capacity(event) => self.index.build_of_capacity(event),
            _ => None,
        }
    }

    /// What ids stand for.
    pub fn names(&self) -> &Names {
        &self.index.names
    }

    fn record(&self, at: EventRef) -> Result<EventRecord, ExplainError> {
        Ok(event_at(self.log, at)?)
    }

    fn note(&self, record: &EventRecord, at: &EventRef) -> Note {
        let mut text = self.index.names.event(&record.event);
        // Of all that is one decision, who asked is said where it begins, and where an item begins anew.
        if (record.decision.is_some() || matches!(record.event, Event::Gate(GateEvent::ItemReset(_))))
            && let Some(who) = self.who(record.actor)
        {
            text.push_str(&format!("; by {who}"));
        }
        Note { spot: Spot::of(at, record.recorded_at), text }
    }
}
