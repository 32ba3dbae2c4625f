//! Freezing the jobs of changes that are tested as one.
//!
//! Zuul: `Layout.createJobGraph` over all changes of an item, `JobGraph.deduplicateJobs`. Each change is frozen with its
//! own files, branch and stanza; one job stands in place of several that are the same, and it runs where the files of
//! any of their changes call for it.

use super::graph::{self, Candidate, FrozenJob, JobGraph};
use super::trace::{FileLook, JobFate};
use super::{FreezeOptions, FreezeOutcome, FreezeSubject, Half, Refusal};
use crate::layout::Layout;

/// Freezes the jobs of an item's changes, the one that set it off last: an outcome for each, in their order. What
/// several of them come to together is for [`combine`] to say. Where one is refused, all are.
pub fn freeze_item(
    layout: &Layout,
    subjects: &[FreezeSubject],
    pipeline: &str,
    options: FreezeOptions<'_>,
) -> Vec<FreezeOutcome> {
    let mut halves: Vec<Half<'_>> =
        subjects.iter().map(|subject| Half::gather(layout, subject, pipeline, options)).collect();
    // Zuul: whichever says it last decides for all.
    let fail_fast = halves.iter().rev().find_map(|half| half.config.as_ref().and_then(|config| config.fail_fast));
    let shared = match halves.len() {
        0 | 1 => Vec::new(),
        _ => unify(&mut halves),
    };
    let close = |(index, half): (usize, Half<'_>)| {
        let replaced = |name: &str| shared.iter().any(|one| one.replaces(index, name));
        half.close(layout, fail_fast, replaced)
    };
    halves.into_iter().enumerate().map(close).collect()
}

/// A job in place of several that are the same.
struct OneForMany {
    name: String,
    /// The changes it is for, that whose own job it is first.
    changes: Vec<usize>,
}

impl OneForMany {
    fn replaces(&self, change: usize, name: &str) -> bool {
        self.name == name && self.changes.iter().skip(1).any(|other| *other == change)
    }
}

/// Lets jobs that are one be wanted together, and what they depend on with them.
fn unify(halves: &mut [Half<'_>]) -> Vec<OneForMany> {
    let jobs: Vec<(&str, Vec<&FrozenJob>)> = halves
        .iter()
        .map(|half| (half.subject.project.as_str(), half.candidates.iter().map(|one| &one.job).collect()))
        .collect();
    let shared: Vec<OneForMany> = group(&jobs)
        .into_iter()
        .filter(|found| found.changes.len() > 1)
        .map(|found| OneForMany { name: found.job.name.clone(), changes: found.changes })
        .collect();
    // Each round but the last makes another job wanted.
    let rounds: usize = halves.iter().map(|half| half.candidates.len()).sum();
    for _ in 0..=rounds {
        let mut moved = false;
        for one in &shared {
            moved |= want_together(halves, one);
        }
        for half in halves.iter_mut() {
            half.force();
        }
        if !moved {
            break;
        }
    }
    shared
}

/// Whether a job became wanted that was not.
fn want_together(halves: &mut [Half<'_>], one: &OneForMany) -> bool {
    let is_one = |candidate: &Candidate| candidate.job.name == one.name;
    let wanted = |index: &usize| {
        halves.get(*index).is_some_and(|half| half.candidates.iter().any(|other| is_one(other) && other.wanted))
    };
    if !one.changes.iter().any(wanted) {
        return false;
    }
    let mut moved = false;
    for index in &one.changes {
        let Some(half) = halves.get_mut(*index) else { continue };
        for candidate in half.candidates.iter_mut().filter(|other| is_one(other) && !other.wanted) {
            candidate.wanted = true;
            moved = true;
            if let Some(job) = half.trace.jobs.get_mut(candidate.at) {
                job.settle(JobFate::Runs, FileLook::SHARED, FileLook::shared_words());
                job.files.push(FileLook::Shared);
            }
        }
    }
    moved
}

impl Half<'_> {
    fn force(&mut self) {
        graph::force(&mut self.candidates, &mut self.trace);
    }

    /// The outcome for this change. `replaced` says which of its jobs another change's job stands for.
    pub(super) fn close(
        mut self,
        layout: &Layout,
        fail_fast: Option<bool>,
        replaced: impl Fn(&str) -> bool,
    ) -> FreezeOutcome {
        if let Some(refusal) = self.refused.take() {
            return self.refuse(refusal);
        }
        let (Some(settings), Some(config)) = (self.settings, self.config.take()) else {
            return FreezeOutcome::NotInPipeline { trace: self.trace };
        };
        self.force();
        let subject = self.subject;
        let check = |candidate: &Candidate| -> Result<(), Refusal> {
            match replaced(&candidate.job.name) {
                true => Ok(()),
                false => super::check(layout, subject, settings, &candidate.job, &candidate.place),
            }
        };
        match graph::finish(layout, std::mem::take(&mut self.candidates), &mut self.trace, check) {
            Err(refusal) => self.refuse(refusal),
            Ok(jobs) if jobs.is_empty() => FreezeOutcome::NoJobs { trace: self.trace },
            Ok(jobs) => {
                FreezeOutcome::Frozen { graph: JobGraph { jobs, fail_fast, debug: config.debug }, trace: self.trace }
            }
        }
    }

    fn refuse(mut self, refusal: Refusal) -> FreezeOutcome {
        // What had been decided for the others no longer counts.
        for job in self.trace.jobs.iter_mut().filter(|job| job.code.is_empty() || job.fate == JobFate::Runs) {
            let reason = format!("the whole graph is refused: {}", refusal.0.message);
            job.settle(JobFate::Refused, "graph-refused", reason);
        }
        FreezeOutcome::Refused { problem: *refusal.0, trace: self.trace }
    }
}

/// A job of an item that holds several changes.
#[derive(Clone, Debug, PartialEq)]
pub struct CombinedJob<'a> {
    /// The graph it was taken from.
    pub graph: &'a JobGraph,
    /// The job; it waits for all that any of those it stands for waits for.
    pub job: FrozenJob,
    /// The changes it is for, counted from 0, that whose own job it is first.
    pub changes: Vec<u32>,
}

/// The jobs of an item that holds several changes: those of each change, and one in place of several that
/// are the same. Zuul: `deduplicateJobs`. A graph stands with the canonical name of its change's project.
pub fn combine(graphs: &[(String, JobGraph)]) -> Vec<CombinedJob<'_>> {
    let jobs: Vec<(&str, Vec<&FrozenJob>)> =
        graphs.iter().map(|(project, graph)| (project.as_str(), graph.jobs.iter().collect())).collect();
    let mut combined = Vec::new();
    for found in group(&jobs) {
        let Some((_, graph)) = found.changes.first().and_then(|first| graphs.get(*first)) else { continue };
        let mut job = found.job.clone();
        for other in found.others {
            for dependency in &other.dependencies {
                if !job.dependencies.contains(dependency) {
                    job.dependencies.push(dependency.clone());
                }
            }
        }
        let changes = found.changes.into_iter().map(|change| u32::try_from(change).unwrap_or(u32::MAX)).collect();
        combined.push(CombinedJob { graph, job, changes });
    }
    combined
}

/// A job, and those of other changes that it stands for.
struct Found<'a> {
    job: &'a FrozenJob,
    others: Vec<&'a FrozenJob>,
    changes: Vec<usize>,
}

/// Jobs of several changes, each set with its change's project, with the same ones taken together.
fn group<'a>(sets: &[(&str, Vec<&'a FrozenJob>)]) -> Vec<Found<'a>> {
    let mut found: Vec<Found<'a>> = Vec::new();
    // Zuul: what serves several is the job of the change that set the item off, which stands last.
    let last = sets.len().saturating_sub(1);
    let order = sets.iter().enumerate().skip(last).chain(sets.iter().enumerate().take(last));
    for (change, (project, jobs)) in order {
        for job in jobs {
            let same = found.iter_mut().find(|one| {
                let near = one.changes.first().and_then(|first| sets.get(*first)).is_some_and(|(of, _)| of == project);
                let apart = job.include_vars.iter().any(|file| file.zuul_project) && !near;
                let auto = near || !job.required_projects.is_empty() || job.name == "noop";
                one.job.name == job.name && job.deduplicate.unwrap_or(auto) && !apart && alike(one.job, job)
            });
            match same {
                Some(one) => {
                    one.others.push(job);
                    one.changes.push(change);
                }
                None => found.push(Found { job, others: Vec::new(), changes: vec![change] }),
            }
        }
    }
    // Zuul: in the order of the changes, each at the place of the job that is left.
    found.sort_by_key(|one| one.changes.first().copied());
    found
}

/// Whether two jobs would do the same thing, however each came to be and whatever called for it. Zuul:
/// `FrozenJob.isEqual`.
fn alike(one: &FrozenJob, two: &FrozenJob) -> bool {
    let bare = |job: &FrozenJob| FrozenJob {
        description: None,
        dependencies: Vec::new(),
        files: None,
        irrelevant_files: None,
        match_on_config_updates: false,
        is_abstract: false,
        intermediate: false,
        is_final: false,
        protected_by: None,
        post_review: false,
        allowed_projects: None,
        ignore_allowed_projects: false,
        inheritance_path: Vec::new(),
        ..job.clone()
    };
    bare(one) == bare(two)
}
