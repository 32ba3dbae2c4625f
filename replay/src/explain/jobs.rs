//! Why a job runs, or why it does not.

use gatelog_record::draft::gate::FreezeOutcome;
use gatelog_record::event::GateEvent;
use gatelog_record::{BlobHash, BuildId, BuildsetId, Event, EventRef, ItemId, codec};
use gatelog_rules_config::FreezeTrace;

use super::find::nearest;
use super::index::ChangeName;
use super::shapes::{JobStory, Spot};
use super::{ExplainError, Explainer, Found};

/// One freezing.
struct Freezing {
    item: ItemId,
    buildset: BuildsetId,
    spot: Spot,
    trace: BlobHash,
    builds: Vec<(String, BuildId)>,
}

impl Explainer<'_> {
    /// A build's story.
    pub(crate) fn build(&self, build: BuildId) -> Result<JobStory, ExplainError> {
        let unknown = || ExplainError::Unknown { what: build.to_string(), did_you_mean: None };
        let note = self.index.builds.get(&build).ok_or_else(unknown)?;
        let mut story = self.job(&Found::Buildset(note.buildset), &note.job)?;
        let mut records = Vec::new();
        for at in self.events_of(&Found::Build(build))? {
            records.push((at, self.record(at)?));
        }
        // Both domains by time; the gate first where they agree: it asks, capacity answers.
        records.sort_by_key(|(at, record)| (record.recorded_at, at.partition, at.sequence));
        if let Some(((first, _), rest)) = records.split_first() {
            story.way = self.way_to(*first)?;
            let steps = rest.iter().filter(|(_, record)| !record.event.name().ends_with(".wait-changed"));
            story.way.extend(steps.map(|(at, record)| self.event_step(*at, record)));
        }
        Ok(story)
    }

    /// The story of a job, of the newest freezing of what was found.
    pub(crate) fn job(&self, found: &Found, job: &str) -> Result<JobStory, ExplainError> {
        let (items, only): (Vec<ItemId>, Option<BuildsetId>) = match found {
            Found::Item(item) => (vec![*item], None),
            Found::Buildset(buildset) => (vec![self.item_of_buildset(found)?], Some(*buildset)),
            Found::Build(build) => match self.index.builds.get(build) {
                Some(note) => (vec![note.item], Some(note.buildset)),
                None => (Vec::new(), None),
            },
            Found::Change { tenant, project, change } => {
                let name = ChangeName { tenant: tenant.clone(), project: project.clone(), change: change.clone() };
                (self.index.changes.get(&name).map(|note| note.items.clone()).unwrap_or_default(), None)
            }
            Found::Event(event) => match &self.record(*event)?.event {
                Event::Gate(event) => (self.index.item_of(event).into_iter().collect(), None),
                _ => (Vec::new(), None),
            },
            Found::Lease(_) | Found::Node(_) => {
                let build = self.build_behind(found).and_then(|build| self.index.builds.get(&build));
                (build.iter().map(|note| note.item).collect(), build.map(|note| note.buildset))
            }
            Found::Worker(_) => (Vec::new(), None),
        };
        let mut last = None;
        // The newest first: with a job of that name if there is one, of the newest freezing otherwise.
        for item in items.iter().rev() {
            for freezing in self.freezings(*item)?.into_iter().rev() {
                if only.is_some_and(|only| only != freezing.buildset) {
                    continue;
                }
                match self.job_of(&freezing, job) {
                    Err(error @ ExplainError::NoJob { .. }) => {
                        last.get_or_insert(error);
                    }
                    other => return other,
                }
            }
        }
        let what = items.last().map_or_else(|| format!("{found:?}"), |item| self.index.say_item(*item));
        Err(last.unwrap_or(ExplainError::NothingFrozen { what }))
    }

    fn freezings(&self, item: ItemId) -> Result<Vec<Freezing>, ExplainError> {
        let Some(note) = self.index.items.get(&item) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for sequence in &note.events {
            let at = EventRef { partition: note.partition, sequence: *sequence };
            let record = self.record(at)?;
            let Event::Gate(GateEvent::Frozen(frozen)) = &record.event else { continue };
            let (trace, builds) = match &frozen.done.outcome {
                FreezeOutcome::Frozen { trace, jobs, .. } => {
                    let names = jobs.iter().map(|job| job.name.clone());
                    (*trace, names.zip(frozen.builds.iter().copied()).collect())
                }
                FreezeOutcome::NoJobs { trace, .. } | FreezeOutcome::Refused { trace, .. } => (*trace, Vec::new()),
                FreezeOutcome::Failed { .. } => continue,
            };
            found.push(Freezing {
                item,
                buildset: frozen.buildset,
                spot: Spot::of(&at, record.recorded_at),
                trace,
                builds,
            });
        }
        Ok(found)
    }

    fn job_of(&self, freezing: &Freezing, job: &str) -> Result<JobStory, ExplainError> {
        let trace = self.trace(&freezing.trace)?;
        let of = self.index.say_item(freezing.item);
        let build = freezing.builds.iter().find(|(name, _)| name == job).map(|(_, build)| *build);
        let rendered = trace.render(job);
        if build.is_none() && rendered.is_none() {
            let considered: Vec<String> = trace.jobs.iter().map(|job| job.name.clone()).collect();
            return Err(ExplainError::NoJob {
                job: job.to_owned(),
                what: of,
                did_you_mean: nearest(job, considered.iter().map(String::as_str)),
                considered,
            });
        }
        let build = match build {
            Some(id) => {
                let story = self.item(freezing.item)?;
                story.buildsets.into_iter().flat_map(|buildset| buildset.builds).find(|build| build.build == id)
            }
            None => None,
        };
        let note = self.index.items.get(&freezing.item);
        let data = trace.to_json();
        let of_job = data["jobs"].as_array().and_then(|jobs| jobs.iter().find(|one| one["name"] == job)).cloned();
        Ok(JobStory {
            job: job.to_owned(),
            of,
            pipeline: note.map(|note| note.pipeline.clone()).unwrap_or_default(),
            tenant: note.map(|note| note.tenant.clone()).unwrap_or_default(),
            item: freezing.item,
            buildset: freezing.buildset,
            runs: build.is_some(),
            frozen: freezing.spot.clone(),
            build,
            trace: rendered.unwrap_or_default().lines().map(str::to_owned).collect(),
            trace_data: serde_json::json!({ "stanzas": data["stanzas"], "job": of_job }),
            way: Vec::new(),
        })
    }

    fn trace(&self, hash: &BlobHash) -> Result<FreezeTrace, ExplainError> {
        let bytes = self.blobs.get(hash).map_err(crate::error::ReplayError::from)?;
        codec::decode(&bytes).map_err(|error| ExplainError::Trace { hash: *hash, message: error.to_string() })
    }
}
