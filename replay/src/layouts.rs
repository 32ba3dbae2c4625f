//! Layouts and job graphs made again: pure functions of what stands on the log and in its blobs.
//!
//! Which secrets decipher is found where the keys are and was recorded; it is taken from there. Which commits other
//! repositories stood at is no part of a graph.

use std::collections::BTreeMap;

use gatelog_event_log::{Blobs, Log, Tail};
use gatelog_record::draft::gate::{
    FreezeOutcome, FreezeWanted, FrozenJob, JobTraits, LayoutOutcome, LayoutWanted, NodesetAlternative, SecretVerdict,
};
use gatelog_record::event::GateEvent;
use gatelog_record::{BlobHash, Event, Partition, WorkId, codec};
use gatelog_rules_config::{
    CombinedJob, FreezeOptions, FreezeOutcome as Frozen, FrozenJob as Job, JobGraph, Layout, LoadInput, ParseCache,
    Problem, Schemas, TenantSettings, combine, freeze_item, load_cached, verdicts,
};
use gatelog_rules_gate::{
    ConfigRemarks, config_remarks, freeze_subjects, frozen_job, layout_input, own_changes, wanted_nodes,
};
use serde::Serialize;

use crate::error::ReplayError;
use crate::reading::read_history;
use crate::sealed::NamingBlobs;

/// What layouts are made by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loader {
    /// Its version.
    pub version: u32,
    /// What may be said to the drivers of this gatelog.
    pub schemas: Schemas,
}

/// What making layouts and graphs again gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LayoutsVerified {
    /// How many layouts came out the same.
    pub layouts: u64,
    /// How many job graphs did, with the traces that say why.
    pub graphs: u64,
    /// How many layouts were made by another version of the loader: these are taken as recorded.
    pub of_other_loaders: u64,
    /// The first that came out otherwise, where it ended.
    pub difference: Option<LayoutDifference>,
}

/// A layout or a graph that comes out otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayoutDifference {
    /// The partition.
    pub partition: String,
    /// The event that has it.
    pub sequence: u64,
    /// What it is: `layout`, `problems`, `graph`, `trace`.
    pub what: String,
    /// What was recorded.
    pub recorded: String,
    /// What it is now.
    pub made: String,
}

/// Makes every layout and every job graph of a partition of the gate again, as far as it was made by this version of
/// the loader, and compares hashes.
///
/// # Errors
/// `NoBlob`, `Log`, `History`.
pub fn verify_layouts(
    log: &dyn Log,
    blobs: &dyn Blobs,
    partition: Partition,
    loader: Loader,
) -> Result<LayoutsVerified, ReplayError> {
    let naming = NamingBlobs(blobs);
    let mut cache = ParseCache::default();
    let mut wanted: BTreeMap<WorkId, LayoutWanted> = BTreeMap::new();
    let mut graphs: BTreeMap<WorkId, FreezeWanted> = BTreeMap::new();
    let mut done = LayoutsVerified::default();
    read_history(log, partition, Tail::GENESIS, |record, _, _| {
        let sequence = record.sequence;
        let no_blob = |message| ReplayError::NoBlob { partition, sequence, message };
        let mut compare = |what: &str, recorded: String, made: String| {
            if recorded != made && done.difference.is_none() {
                let (partition, what) = (partition.to_string(), what.to_owned());
                done.difference = Some(LayoutDifference { partition, sequence, what, recorded, made });
            }
        };
        let Event::Gate(event) = record.event else { return Ok(true) };
        let made = match event {
            GateEvent::LayoutWanted(asked) => {
                wanted.insert(asked.work, asked);
                return Ok(true);
            }
            GateEvent::FreezeWanted(asked) => {
                graphs.insert(asked.work, asked);
                return Ok(true);
            }
            GateEvent::LayoutReady(ready) => ready.made,
            GateEvent::LayoutActivated(active) => active.made,
            GateEvent::Frozen(frozen) => {
                let Some(asked) = graphs.remove(&frozen.done.work) else { return Ok(true) };
                let recorded = match &frozen.done.outcome {
                    FreezeOutcome::Frozen { graph, trace, .. } => (Some(*graph), *trace),
                    FreezeOutcome::NoJobs { trace, .. } | FreezeOutcome::Refused { trace, .. } => (None, *trace),
                    FreezeOutcome::Failed { .. } => return Ok(true),
                };
                let made = match freeze_jobs(&naming, &asked).map_err(no_blob)? {
                    FreezeOutcome::Frozen { graph, trace, .. } => (Some(graph), trace),
                    FreezeOutcome::NoJobs { trace, .. } | FreezeOutcome::Refused { trace, .. } => (None, trace),
                    FreezeOutcome::Failed { message, .. } => return Err(no_blob(message)),
                };
                let name = |hash: Option<BlobHash>| hash.map_or_else(|| "no jobs".to_owned(), |hash| hash.to_string());
                compare("graph", name(recorded.0), name(made.0));
                // Whoever keeps no traces has nothing to compare.
                if recorded.1 != BlobHash::default() {
                    compare("trace", recorded.1.to_string(), made.1.to_string());
                }
                done.graphs += u64::from(done.difference.is_none());
                return Ok(done.difference.is_none());
            }
            _ => return Ok(true),
        };
        let Some(asked) = wanted.remove(&made.work) else { return Ok(true) };
        let LayoutOutcome::Made { layout, problems, secrets, loader: by, .. } = &made.outcome else { return Ok(true) };
        if *by != loader.version {
            done.of_other_loaders += 1;
            return Ok(true);
        }
        let again = make_layout(&naming, &asked, secrets, loader, &mut cache).map_err(no_blob)?;
        if let LayoutOutcome::Made { layout: now, problems: said, .. } = again {
            compare("layout", layout.to_string(), now.to_string());
            compare("problems", problems.to_string(), said.to_string());
        }
        done.layouts += u64::from(done.difference.is_none());
        Ok(done.difference.is_none())
    })?;
    Ok(done)
}

fn get(blobs: &dyn Blobs, hash: &BlobHash) -> Result<Vec<u8>, String> {
    blobs.get(hash).map_err(|error| error.to_string())
}

fn read<T: serde::de::DeserializeOwned>(blobs: &dyn Blobs, hash: &BlobHash) -> Result<T, String> {
    codec::decode(&get(blobs, hash)?).map_err(|error| format!("blob {hash} cannot be read: {error}"))
}

fn put(blobs: &dyn Blobs, value: &impl Serialize) -> Result<BlobHash, String> {
    let bytes = codec::encode(value).map_err(|error| error.to_string())?;
    blobs.put(&bytes).map_err(|error| error.to_string())
}

/// What the loader is given. A canonical name is the connection's host and the project's name there.
fn load_input(blobs: &dyn Blobs, wanted: &LayoutWanted, schemas: Schemas) -> Result<LoadInput, String> {
    let mut settings = TenantSettings::read(&get(blobs, &wanted.settings)?).map_err(|error| error.to_string())?;
    settings.schemas = schemas;
    let parts = |project: &str| project.split_once('/').map(|(host, name)| (host.to_owned(), name.to_owned()));
    let of = |connection: &str| wanted.files.iter().find(|set| set.at.connection == connection);
    layout_input(
        settings,
        &wanted.files,
        |hash| get(blobs, hash),
        |_, project| Ok(parts(project).map_or_else(|| project.to_owned(), |(_, name)| name)),
        |connection| parts(&of(connection)?.at.project).map(|(host, _)| host),
    )
}

/// Makes a layout, with these verdicts about its secrets.
///
/// # Errors
/// Which blob cannot be had or read.
pub fn make_layout(
    blobs: &dyn Blobs,
    wanted: &LayoutWanted,
    secrets: &[SecretVerdict],
    loader: Loader,
    cache: &mut ParseCache,
) -> Result<LayoutOutcome, String> {
    let input = load_input(blobs, wanted, loader.schemas)?;
    let (mut layout, mut problems) = load_cached(&input, cache);
    problems.extend(verdicts::problems(&layout, secrets, &input.files));
    let ahead: Vec<Problem> = wanted.ahead.as_ref().map(|hash| read(blobs, hash)).transpose()?.unwrap_or_default();
    let errors = problems.iter().filter(|problem| problem.is_error()).count();
    let said = match wanted.item {
        Some(_) => config_remarks(&problems, &ahead, &wanted.changed),
        None => ConfigRemarks::default(),
    };
    if let Some(base) = &wanted.base {
        layout.keep_static(&read(blobs, base)?);
    }
    Ok(LayoutOutcome::Made {
        layout: put(blobs, &layout)?,
        problems: put(blobs, &problems)?,
        errors: u32::try_from(errors).unwrap_or(u32::MAX),
        introduced: said.errors,
        loader: loader.version,
        secrets: secrets.to_vec(),
        warnings: said.warnings,
    })
}

/// Freezes jobs: the graph and its trace as recorded ones are; what a worker would be told is named after the job
/// alone.
///
/// # Errors
/// Which blob cannot be had or read.
pub(crate) fn freeze_jobs(blobs: &dyn Blobs, wanted: &FreezeWanted) -> Result<FreezeOutcome, String> {
    let layout: Layout = read(blobs, &wanted.layout)?;
    let ahead: Option<Layout> = wanted.layout_ahead.as_ref().map(|hash| read(blobs, hash)).transpose()?;
    freeze_on(blobs, &layout, ahead.as_ref(), wanted)
}

/// The same with layouts that are at hand: the one the request names, and that of what is ahead, if it names one.
///
/// # Errors
/// What cannot be written down.
pub fn freeze_on(
    blobs: &dyn Blobs,
    layout: &Layout,
    ahead: Option<&Layout>,
    wanted: &FreezeWanted,
) -> Result<FreezeOutcome, String> {
    let options = FreezeOptions { ahead, ..FreezeOptions::default() };
    let own = own_changes(wanted);
    let (mut graphs, mut in_pipeline, mut trace) = (Vec::new(), false, BlobHash::default());
    for (change, outcome) in own.iter().zip(freeze_item(layout, &freeze_subjects(wanted), &wanted.pipeline, options)) {
        trace = put(blobs, outcome.trace())?;
        in_pipeline |= !matches!(outcome, Frozen::NotInPipeline { .. });
        let graph = match outcome {
            Frozen::Frozen { graph, .. } => graph,
            Frozen::NotInPipeline { .. } | Frozen::NoJobs { .. } => JobGraph::default(),
            Frozen::Refused { problem, .. } => {
                return Ok(FreezeOutcome::Refused { trace, message: problem.to_string() });
            }
        };
        graphs.push((change.project.clone(), graph));
    }
    let mut jobs = Vec::new();
    let graph = match graphs.as_slice() {
        [(_, alone)] => {
            for job in &alone.jobs {
                jobs.push(frozen(blobs, layout, alone, job, Vec::new())?);
            }
            alone.clone()
        }
        several => {
            let mut together = JobGraph::default();
            for CombinedJob { graph, job, changes } in combine(several) {
                jobs.push(frozen(blobs, layout, graph, &job, changes)?);
                together.jobs.push(job);
            }
            together
        }
    };
    if jobs.is_empty() {
        return Ok(FreezeOutcome::NoJobs { trace, in_pipeline });
    }
    Ok(FreezeOutcome::Frozen { graph: put(blobs, &graph)?, trace, jobs, repo_state: Vec::new() })
}

fn frozen(
    blobs: &dyn Blobs,
    layout: &Layout,
    graph: &JobGraph,
    job: &Job,
    changes: Vec<u32>,
) -> Result<FrozenJob, String> {
    let spec = put(blobs, job)?;
    let others = job.nodesets.iter().skip(1);
    let alternatives = others.map(|nodeset| NodesetAlternative { spec, nodes: wanted_nodes(nodeset) }).collect();
    let first = frozen_job(layout, graph, job, changes, spec);
    Ok(FrozenJob { traits: JobTraits { alternatives, ..first.traits }, ..first })
}
