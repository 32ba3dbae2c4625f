//! Builds: the list, and one.

use gatelog_gate_state::history::{BuildEntry, List};
use gatelog_record::draft::gate::WaitSubject;
use gatelog_record::{BuildId, BuildsetId, ItemId};

use crate::answers::{Build, Dependency};
use crate::error::ApiError;
use crate::filter::{Items, MAX_LOOKED_AT, Page, SubjectFilter, any, fits};
use crate::query::Query;
use crate::reading::Reading;
use crate::returned;
use crate::shape::{self, BUILDS_OF_EVENT, BuildPart, build_index};

/// The parameters of the list.
pub(crate) const PARAMETERS: &[&str] = &[
    "project",
    "pipeline",
    "change",
    "branch",
    "patchset",
    "ref",
    "newrev",
    "uuid",
    "job_name",
    "queue_item_uuid",
    "voting",
    "nodeset",
    "result",
    "final",
    "held",
    "complete",
    "limit",
    "skip",
    "idx_min",
    "idx_max",
    "exclude_result",
];

struct Filter<'q> {
    subject: SubjectFilter<'q>,
    pipelines: Vec<&'q str>,
    uuids: Vec<&'q str>,
    jobs: Vec<&'q str>,
    items: Vec<&'q str>,
    nodesets: Vec<&'q str>,
    results: Vec<&'q str>,
    excluded: Vec<&'q str>,
    voting: Option<bool>,
    last: Option<bool>,
    held: Option<bool>,
    complete: Option<bool>,
}

impl<'q> Filter<'q> {
    fn read(query: &'q Query) -> Result<Filter<'q>, ApiError> {
        Ok(Filter {
            subject: SubjectFilter::read(query),
            pipelines: query.all("pipeline"),
            uuids: query.all("uuid"),
            jobs: query.all("job_name"),
            items: query.all("queue_item_uuid"),
            nodesets: query.all("nodeset"),
            results: query.all("result"),
            excluded: query.all("exclude_result"),
            voting: query.truth("voting")?,
            last: query.truth("final")?,
            held: query.truth("held")?,
            complete: query.truth("complete")?,
        })
    }

    fn build(&self, id: BuildId, build: &BuildEntry) -> bool {
        let result = build.result.map(|result| result.word());
        // What was given up before it began never was a build in Zuul's sense.
        (!build.given_up() || build.attempt().is_some_and(|attempt| attempt.started_at.is_some()))
            && any(&self.pipelines, |value| fits(value, &build.pipeline))
            && any(&self.uuids, |value| value.parse() == Ok(id))
            && any(&self.jobs, |value| fits(value, &build.job))
            && any(&self.items, |value| value.parse() == Ok(build.item))
            && any(&self.nodesets, |value| shape::nodeset(build).as_deref() == Some(value))
            && any(&self.results, |value| result == Some(value))
            && !self.excluded.iter().any(|value| result == Some(*value))
            && self.voting.is_none_or(|voting| voting == build.voting)
            // Zuul lists an attempt that was tried again as a build that is not final; here it stands
            // in its build.
            && self.last.is_none_or(|last| last)
            && self.held.is_none_or(|held| held == build.held)
            && self.complete.is_none_or(|complete| complete == result.is_some())
    }
}

/// `builds`
pub(crate) fn list(reading: &Reading<'_>, tenant: &str, query: &Query) -> Result<Vec<Build>, ApiError> {
    reading.need_tenant(tenant)?;
    let (filter, page) = (Filter::read(query)?, Page::read(query)?);
    let history = reading.history();
    let projects = projects(reading, tenant)?;
    let ids: Box<dyn Iterator<Item = _>> = if filter.uuids.is_empty() {
        let list = match (filter.subject.list(&projects), filter.jobs.as_slice()) {
            (Some(list @ List::Change(_)), _) => list,
            (_, [job]) if !job.contains('*') => List::Job(job),
            (list, _) => list.unwrap_or(List::Tenant),
        };
        history.newest_builds(tenant, list, reading.at.min(page.index_max / BUILDS_OF_EVENT))?
    } else {
        Box::new(filter.uuids.iter().filter_map(|uuid| uuid.parse().ok()).map(Ok))
    };
    let mut items = Items::default();
    let (mut found, mut skip) = (Vec::new(), page.skip);
    for (looked_at, id) in ids.enumerate() {
        if found.len() >= page.limit {
            break;
        }
        if looked_at >= MAX_LOOKED_AT {
            return Err(ApiError::TooWide(MAX_LOOKED_AT));
        }
        let id = id?;
        let Some(build) = history.build(id, reading.at)? else { continue };
        if build_index(&build) < page.index_min {
            break;
        }
        if build.tenant != tenant || !page.holds(build_index(&build)) || !filter.build(id, &build) {
            continue;
        }
        let Some(item) = items.get(reading, build.item)? else { continue };
        if !filter.subject.item(item) {
            continue;
        }
        if skip > 0 {
            skip -= 1;
            continue;
        }
        let event = shape::Event::of(reading, item)?;
        found.push(shape::build(id, &build, item, &event, BuildPart::Listed));
    }
    Ok(found)
}

/// The canonical names of a tenant's projects.
pub(crate) fn projects(reading: &Reading<'_>, tenant: &str) -> Result<Vec<String>, ApiError> {
    let entry = reading.history().tenant(tenant, reading.at)?;
    Ok(entry
        .map(|entry| entry.loaded.projects.into_iter().map(|project| project.project).collect())
        .unwrap_or_default())
}

/// The id in a path.
pub(crate) fn id<T: std::str::FromStr<Err = gatelog_record::id::IdError>>(text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|error: gatelog_record::id::IdError| ApiError::NotFound(error.to_string()))
}

/// A build of a tenant, by the text of its id.
pub(crate) fn find(reading: &Reading<'_>, tenant: &str, uuid: &str) -> Result<(BuildId, BuildEntry), ApiError> {
    reading.need_tenant(tenant)?;
    let build: BuildId = id(uuid)?;
    match reading.history().build(build, reading.at)? {
        Some(entry) if entry.tenant == tenant => Ok((build, entry)),
        _ => Err(ApiError::NotFound(format!("tenant {tenant} has no build {build}"))),
    }
}

/// `build/{uuid}`
pub(crate) fn one(reading: &Reading<'_>, tenant: &str, uuid: &str) -> Result<Build, ApiError> {
    let (id, entry) = find(reading, tenant, uuid)?;
    let item = reading.history().item(entry.item, reading.at)?.ok_or_else(|| gone(entry.item, entry.buildset))?;
    let event = shape::Event::of(reading, &item)?;
    let mut build = shape::build(id, &entry, &item, &event, BuildPart::Alone);
    returned::show(reading, id, &entry, &mut build)?;
    let dependency = |(job, soft): &(String, bool)| Dependency { name: job.clone(), soft: *soft };
    build.dependencies = Some(entry.dependencies.iter().map(dependency).collect());
    build.waits = Some(shape::waits(reading, &WaitSubject::Build(id))?);
    Ok(build)
}

/// A row refers to one that is not there.
pub(crate) fn gone(item: ItemId, buildset: BuildsetId) -> ApiError {
    ApiError::Internal(format!(
        "the tables name item {item} of buildset {buildset}, which is not in them; delete the projection, it is rebuilt from the log"
    ))
}
