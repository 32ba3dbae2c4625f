//! What an explanation holds: the same for people and as JSON.

use std::fmt::Display;

use gatelog_record::{ActorId, BuildId, BuildsetId, EventRef, ItemId, LeaseId, Timestamp};
use serde::{Serialize, Serializer};

/// An explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Explanation {
    /// Of a change, through all pipelines.
    Change(ChangeStory),
    /// Of an item.
    Item(ItemStory),
    /// Of a job of an item, there or absent.
    Job(JobStory),
    /// Of an event.
    Event(EventStory),
    /// Of a lease, a node or a worker.
    Thing(ThingStory),
}

impl Explanation {
    /// The explanation as JSON: the same structure, ids in hex, times in RFC 3339.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_else(|error| serde_json::json!({ "cannot_be_shown": error.to_string() }))
    }
}

/// Where and when something stands on the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spot {
    /// The stream, such as `gate.events/0`.
    pub stream: String,
    /// The sequence; of inputs, the offset.
    pub sequence: u64,
    /// When it was recorded; of inputs, when it is said to have happened.
    #[serde(serialize_with = "text")]
    pub time: Timestamp,
}

impl Spot {
    pub(crate) fn of(event: &EventRef, time: Timestamp) -> Spot {
        let stream = gatelog_record::Stream::Events(event.partition).to_string();
        Spot { stream, sequence: event.sequence, time }
    }
}

/// Something that happened, in one sentence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// Where it stands.
    pub spot: Spot,
    /// The sentence.
    pub text: String,
}

/// A wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wait {
    /// The event that says so.
    pub spot: Spot,
    /// For what: one of the closed list of codes.
    pub code: String,
    /// Which change, semaphore, item.
    pub detail: String,
    /// What would end it.
    pub unblocks: String,
    /// Since when.
    #[serde(serialize_with = "text")]
    pub since: Timestamp,
    /// For how long, in milliseconds; `None` when it still lasts.
    pub millis: Option<i64>,
}

/// A change's story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangeStory {
    /// The tenant.
    pub tenant: String,
    /// The project's canonical name.
    pub project: String,
    /// The change.
    pub change: String,
    /// Where people look at it.
    pub url: String,
    /// Triggers that concerned it and pipelines that refused it.
    pub events: Vec<Note>,
    /// Its items, in order.
    pub items: Vec<ItemStory>,
}

/// An item's story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ItemStory {
    /// The item.
    #[serde(serialize_with = "text")]
    pub item: ItemId,
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The queue.
    pub queue: String,
    /// What it holds.
    pub subjects: Vec<String>,
    /// Whether it runs jobs and reports.
    pub live: bool,
    /// Where it was enqueued.
    pub enqueued: Spot,
    /// Why it is here, as a code.
    pub reason: String,
    /// Who asked, opaque; `None` for gatelog itself.
    #[serde(serialize_with = "maybe")]
    pub actor: Option<ActorId>,
    /// Their name, where it is known.
    pub by: Option<String>,
    /// What stood ahead of it then.
    pub ahead: Option<String>,
    /// What it waited for.
    pub waits: Vec<Wait>,
    /// Its buildsets, in order.
    pub buildsets: Vec<BuildsetStory>,
    /// When it was failing and why; resets.
    pub notes: Vec<Note>,
    /// Attempts to merge it.
    pub merges: Vec<Merge>,
    /// Its reports.
    pub reports: Vec<Report>,
    /// How it left; `None` while it is there.
    pub left: Option<Left>,
    /// From the outside event to the end: the table of what stands where.
    pub way: Vec<WayStep>,
}

/// How an item left.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Left {
    /// Where.
    pub spot: Spot,
    /// How it ended, in Zuul's terms.
    pub result: String,
    /// A code.
    pub code: String,
    /// A sentence.
    pub detail: String,
    /// Who asked for it, where somebody did: by name, or as an opaque id.
    pub by: Option<String>,
}

/// A buildset's story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BuildsetStory {
    /// The buildset.
    #[serde(serialize_with = "text")]
    pub buildset: BuildsetId,
    /// Where it was opened.
    pub opened: Spot,
    /// What it stands on, oldest first.
    pub ahead: Vec<String>,
    /// Its prepared state.
    pub prepared: Option<Note>,
    /// The branches of the prepared state.
    pub on: Vec<PreparedOn>,
    /// How its layout was made, when it has one of its own.
    pub layout: Option<Note>,
    /// Which jobs were frozen, or why none.
    pub frozen: Option<Note>,
    /// Its builds, in the order of the graph.
    pub builds: Vec<BuildStory>,
    /// Why it was given up, if it was.
    pub reset: Option<Note>,
}

/// A branch of a prepared state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PreparedOn {
    /// The project.
    pub project: String,
    /// The branch.
    pub branch: String,
    /// Its tip then.
    pub base: String,
    /// With everything ahead merged.
    pub ahead: String,
    /// With the item's own changes too.
    pub commit: String,
    /// The tree that was tested.
    pub tree: String,
}

/// A build's story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BuildStory {
    /// The build.
    #[serde(serialize_with = "text")]
    pub build: BuildId,
    /// The job.
    pub job: String,
    /// Whether its result counts.
    pub voting: bool,
    /// What it waited for.
    pub waits: Vec<Wait>,
    /// Its attempts.
    pub attempts: Vec<AttemptStory>,
    /// Its result; `None` while it has none.
    pub result: Option<String>,
    /// Why it has a result without a worker, if so.
    pub settled: Option<Note>,
}

/// An attempt's story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptStory {
    /// Which, from 1.
    pub attempt: u32,
    /// Where the gate asked for its lease.
    pub asked: Spot,
    /// The lease.
    #[serde(serialize_with = "maybe")]
    pub lease: Option<LeaseId>,
    /// Where capacity queued it.
    pub queued: Option<Spot>,
    /// What the lease waited for.
    pub waits: Vec<Wait>,
    /// Where capacity granted it.
    pub granted: Option<Spot>,
    /// How long it waited for the grant, in milliseconds.
    pub waited_millis: Option<i64>,
    /// The worker.
    pub worker: Option<String>,
    /// Where its start is recorded.
    pub started: Option<Spot>,
    /// Where its end is recorded.
    pub finished: Option<Spot>,
    /// How long it ran by the worker's clock, in milliseconds.
    pub ran_millis: Option<i64>,
    /// How it ended.
    pub result: Option<String>,
    /// For people.
    pub detail: Option<String>,
    /// Where its log is.
    pub log_url: Option<String>,
    /// Where the lease was over, was refused or was taken back, in order.
    pub ended: Vec<Note>,
}

/// A merge.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Merge {
    /// Where it was asked for.
    pub asked: Note,
    /// How it ended.
    pub ended: Option<Note>,
}

/// A report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Which reporters: Zuul's name of the list.
    pub action: String,
    /// To whom.
    pub to: Vec<String>,
    /// Where it was asked for.
    pub asked: Spot,
    /// Whether and where it was delivered.
    pub ended: Option<Note>,
    /// The work, by which its end is known.
    #[serde(skip)]
    pub(crate) work: gatelog_record::WorkId,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WayStep {
    /// The kind of record.
    pub step: String,
    /// Where and when.
    pub spot: Spot,
    /// Who asked, opaque; `None` for gatelog itself.
    #[serde(serialize_with = "maybe")]
    pub actor: Option<ActorId>,
    /// Their name, where it is known.
    pub by: Option<String>,
    /// A sentence.
    pub text: String,
}

/// A job's story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobStory {
    /// The job.
    pub job: String,
    /// The item, in a few words.
    pub of: String,
    /// The pipeline.
    pub pipeline: String,
    /// The tenant.
    pub tenant: String,
    /// The item.
    #[serde(serialize_with = "text")]
    pub item: ItemId,
    /// The buildset it was considered for.
    #[serde(serialize_with = "text")]
    pub buildset: BuildsetId,
    /// Whether it runs.
    pub runs: bool,
    /// Where jobs were frozen.
    pub frozen: Spot,
    /// Its build, if it runs.
    pub build: Option<BuildStory>,
    /// Why it runs or does not, for people: matchers, parents and variants with file and line.
    pub trace: Vec<String>,
    /// The same as data.
    pub trace_data: serde_json::Value,
    /// Where a build was asked for: its way through all domains, the outside first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub way: Vec<WayStep>,
}

/// An event's story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventStory {
    /// The event, whole.
    pub event: serde_json::Value,
    /// In one sentence.
    pub text: String,
    /// From the outside to it.
    pub way: Vec<WayStep>,
    /// What the same decision brought besides it.
    pub with: Vec<Note>,
}

/// What happened to a lease, a node or a worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThingStory {
    /// What it is: `lease`, `node`, `worker`.
    pub kind: &'static str,
    /// Its id or name.
    pub id: String,
    /// What is known of it: name and value.
    pub facts: Vec<(String, String)>,
    /// Everything said of it, in the order of the log.
    pub events: Vec<Note>,
    /// How it came to be there, the outside first; empty for a worker.
    pub way: Vec<WayStep>,
}

pub(crate) fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn maybe<S: Serializer>(value: &Option<impl Display>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}
