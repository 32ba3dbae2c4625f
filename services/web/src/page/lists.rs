//! Lists of builds and buildsets, with their filters and pages.

use maud::html;

use super::frame::{Content, Frame, Tab};
use super::html::{Html, Piece};
use super::parts::reference;
use super::words;
use crate::answers::Buildset;
use crate::error::ApiError;
use crate::query::Query;
use crate::reading::Reading;
use crate::{builds, buildsets};

/// How many rows a page has unless it is said.
const ROWS: u64 = 50;

/// What a field of the filters offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    /// Any text; for example this one.
    Text(&'static str),
    /// One of the tenant's projects, or a pattern.
    Projects,
    /// One of its pipelines.
    Pipelines,
    /// One of its jobs, or a pattern.
    Jobs,
    /// One of these.
    These(&'static [&'static str]),
}

/// The fields of the filters: parameter, label, what it offers.
type Field = (&'static str, &'static str, Offer);

const BUILD_RESULTS: &[&str] = &[
    "SUCCESS",
    "FAILURE",
    "TIMED_OUT",
    "POST_FAILURE",
    "RETRY_LIMIT",
    "NODE_FAILURE",
    "MERGE_CONFLICT",
    "DISK_FULL",
    "CANCELED",
    "SKIPPED",
    "ERROR",
];
const BUILDSET_RESULTS: &[&str] =
    &["SUCCESS", "FAILURE", "MERGE_CONFLICT", "MERGE_FAILURE", "CONFIG_ERROR", "NO_JOBS", "DEQUEUED", "ERROR"];

const BUILD_FIELDS: &[Field] = &[
    ("project", "Project", Offer::Projects),
    ("pipeline", "Pipeline", Offer::Pipelines),
    ("job_name", "Job", Offer::Jobs),
    ("branch", "Branch", Offer::Text("master")),
    ("change", "Change", Offer::Text("master/fix")),
    ("result", "Result", Offer::These(BUILD_RESULTS)),
];

const BUILDSET_FIELDS: &[Field] = &[
    ("project", "Project", Offer::Projects),
    ("pipeline", "Pipeline", Offer::Pipelines),
    ("branch", "Branch", Offer::Text("master")),
    ("change", "Change", Offer::Text("master/fix")),
    ("result", "Result", Offer::These(BUILDSET_RESULTS)),
];
/// The most names a field offers.
const OFFERED: usize = 500;

pub(crate) fn builds_page(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    query: &Query,
) -> Result<Content, ApiError> {
    let rows = builds::list(reading, tenant, query)?;
    let mut body = Html::default();
    for build in &rows {
        let uuid = &build.uuid;
        let buildset = build.buildset.as_ref().map_or("", |buildset| &buildset.uuid);
        body.add(html! {
            tr data-key=(uuid) {
                td data-label="result" { (standing(build.result.as_deref(), false, build.started_ms)) }
                th scope="row" data-label="job" {
                    a href=(frame.to(&format!("/build/{uuid}"))) { (build.job_name) }
                    @if !build.voting { " " span class="chip" { "non-voting" } }
                }
                td data-label="change" { (build.git_ref.as_ref().map_or_else(Html::default, reference)) }
                td data-label="pipeline" { (build.pipeline.as_deref().unwrap_or_default()) }
                td data-label="took" class="num" {
                    (build.duration.map_or_else(String::new, |seconds| words::took((seconds * 1_000.0) as i64)))
                }
                td data-label="began" { (build.started_ms.map_or_else(Html::default, words::moment_ms)) }
                td data-label="buildset" { a href=(frame.to(&format!("/buildset/{buildset}"))) { "buildset" } }
            }
        });
    }
    let table = html! {
        table class="rows" {
            caption class="quiet" { "newest first" }
            thead {
                tr {
                    th scope="col" { "Result" }
                    th scope="col" { "Job" }
                    th scope="col" { "Change" }
                    th scope="col" { "Pipeline" }
                    th scope="col" { "Took" }
                    th scope="col" { "Began" }
                    th scope="col" { "More" }
                }
            }
            tbody { (body) }
        }
    };
    let main = html! {
        h1 { "Builds" }
        (filters(reading, frame, query, "/builds", BUILD_FIELDS)?)
        @if rows.is_empty() { (nothing(frame, "builds")) } @else { (table) }
        (pages(frame, query, "/builds", rows.len())?)
    };
    Ok(Content { title: format!("{tenant} builds"), tab: Tab::Builds, kind: "builds", main, item: None, live: false })
}

pub(crate) fn buildsets_page(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    query: &Query,
) -> Result<Content, ApiError> {
    let rows = buildsets::list(reading, tenant, query)?;
    let mut body = Html::default();
    for buildset in &rows {
        let uuid = &buildset.uuid;
        let began = buildset.started_ms;
        let length = buildset.finished_ms.map_or_else(String::new, |ended| words::took(ended - began));
        body.add(html! {
            tr data-key=(uuid) {
                td data-label="result" {
                    (standing(buildset.result.as_deref(), buildset.reset.is_some(), Some(began)))
                }
                th scope="row" data-label="change" {
                    a href=(frame.to(&format!("/buildset/{uuid}"))) { (refs(buildset)) }
                }
                td data-label="pipeline" { (buildset.pipeline) }
                td data-label="took" class="num" { (length) }
                td data-label="began" { (words::moment_ms(began)) }
                td data-label="item" {
                    a href=(frame.to(&format!("/item/{}", buildset.queue_item_uuid))) { "its story" }
                }
            }
        });
    }
    let table = html! {
        table class="rows" {
            caption class="quiet" { "newest first" }
            thead {
                tr {
                    th scope="col" { "Result" }
                    th scope="col" { "Change" }
                    th scope="col" { "Pipeline" }
                    th scope="col" { "Took" }
                    th scope="col" { "Began" }
                    th scope="col" { "More" }
                }
            }
            tbody { (body) }
        }
    };
    let main = html! {
        h1 { "Buildsets" }
        (filters(reading, frame, query, "/buildsets", BUILDSET_FIELDS)?)
        @if rows.is_empty() { (nothing(frame, "buildsets")) } @else { (table) }
        (pages(frame, query, "/buildsets", rows.len())?)
    };
    Ok(Content {
        title: format!("{tenant} buildsets"),
        tab: Tab::Buildsets,
        kind: "buildsets",
        main,
        item: None,
        live: false,
    })
}

/// The newest buildsets that are over, in short.
pub(crate) fn lately(reading: &Reading<'_>, frame: &Frame, tenant: &str) -> Result<Html, ApiError> {
    let query = Query::read_only(Some("complete=true&limit=6"), buildsets::PARAMETERS)?;
    let mut rows = Html::default();
    for buildset in &buildsets::list(reading, tenant, &query)? {
        let uuid = &buildset.uuid;
        let ended = buildset.finished_ms;
        rows.add(html! {
            li data-key={ "lately-" (uuid) } {
                span {
                    (standing(buildset.result.as_deref(), buildset.reset.is_some(), Some(buildset.started_ms)))
                }
                span {
                    a href=(frame.to(&format!("/buildset/{uuid}"))) { (refs(buildset)) }
                    " "
                    span class="chip" { (buildset.pipeline) }
                }
                span class="end small muted" {
                    @if let Some(ended) = ended { (words::since(ended, frame.clock_ms())) " ago" }
                }
            }
        });
    }
    if rows.is_empty() {
        return Ok(rows);
    }
    Ok(html! { section class="card idle lately" data-key="lately" { h2 { "Lately" } ul { (rows) } } })
}

/// What a buildset tested, in a line.
fn refs(buildset: &Buildset) -> Html {
    let mut out = Html::default();
    for (number, one) in buildset.refs.iter().enumerate() {
        out.add(html! { @if number > 0 { " + " } (reference(one)) });
    }
    out
}

/// The badge of a build or buildset that may have no result.
fn standing(result: Option<&str>, given_up: bool, started_ms: Option<i64>) -> Html {
    match (result, started_ms) {
        (Some(result), _) => words::result_badge(result),
        (None, _) if given_up => words::Stand::Warn.badge("given up"),
        (None, None) => words::Stand::Waiting.badge("waiting"),
        (None, Some(_)) => words::Stand::Running.badge("running"),
    }
}

fn nothing(frame: &Frame, what: &str) -> Html {
    if frame.kept.is_empty() {
        let says = if frame.then { "yet at that moment" } else { "yet: the first change that is proposed makes some" };
        return html! {
            p class="card empty" {
                "No "
                (what)
                " "
                (says)
                ". "
                a href=(frame.to("/status")) { "See what is queued." }
            }
        };
    }
    html! { p class="card empty" { "No " (what) " here. Fewer filters show more." } }
}

/// The names a field offers.
fn offered(reading: &Reading<'_>, tenant: &str, offer: Offer) -> Result<Vec<String>, ApiError> {
    let layout = match offer {
        Offer::Pipelines | Offer::Jobs => reading.layout(tenant)?,
        _ => None,
    };
    Ok(match offer {
        Offer::Text(_) => Vec::new(),
        Offer::These(names) => names.iter().map(|name| (*name).to_owned()).collect(),
        Offer::Projects => {
            let projects = builds::projects(reading, tenant)?;
            projects.iter().take(OFFERED).map(|project| crate::shape::short(project).to_owned()).collect()
        }
        Offer::Pipelines => layout
            .iter()
            .flat_map(|layout| layout.pipelines_in_order())
            .take(OFFERED)
            .map(|pipeline| pipeline.name.clone())
            .collect(),
        Offer::Jobs => layout.iter().flat_map(|layout| layout.jobs.keys()).take(OFFERED).cloned().collect(),
    })
}

/// The filters as a plain form.
fn filters(
    reading: &Reading<'_>,
    frame: &Frame,
    query: &Query,
    rest: &str,
    fields: &[Field],
) -> Result<Html, ApiError> {
    let tenant = frame.tenant.as_deref().unwrap_or_default();
    let mut inputs = Html::default();
    for (name, label, offer) in fields {
        let value = query.all(name).first().copied().unwrap_or_default().to_owned();
        let names = offered(reading, tenant, *offer)?;
        let closed = matches!(offer, Offer::These(_) | Offer::Pipelines);
        let mut options = Html::default();
        for one in &names {
            let chosen = closed && *one == value;
            let shown = if matches!(offer, Offer::These(_)) { words::lower(one) } else { one.clone() };
            options.add(html! { option value=(one) selected[chosen] { (shown) } });
        }
        if closed {
            // What was asked for by hand stays asked for.
            if !value.is_empty() && !names.contains(&value) {
                options.add(html! { option value=(value) selected { (value) } });
            }
            inputs.add(html! { label { (*label) select name=(*name) { option value="" { "any" } (options) } } });
            continue;
        }
        let example = match offer {
            Offer::Text(example) => (*example).to_owned(),
            _ => names.first().cloned().unwrap_or_default(),
        };
        let list = (!names.is_empty()).then(|| format!("names-{name}"));
        if let Some(list) = &list {
            inputs.add(html! { datalist id=(list) { (options) } });
        }
        inputs.add(html! {
            label {
                (*label)
                input
                    name=(*name)
                    value=(value)
                    placeholder=(example)
                    autocomplete="off"
                    spellcheck="false"
                    list=[list];
            }
        });
    }
    // Parameters that have no field of their own go along.
    for (name, value) in &frame.kept {
        let known = fields.iter().any(|(field, _, _)| field == name);
        if !known && name != "skip" && name != "idx_max" && !value.is_empty() {
            inputs.add(html! { input type="hidden" name=(name) value=(value); });
        }
    }
    if frame.then {
        inputs.add(html! { input type="hidden" name="at" value=(frame.at); });
    }
    let path = frame.path.clone();
    let clear = if fields.iter().any(|(name, _, _)| !query.all(name).is_empty()) {
        html! { a class="button quiet" href=(frame.to(rest)) { "Clear" } }
    } else {
        Html::default()
    };
    Ok(html! {
        form class="filters card" method="get" action=(path) role="search" aria-label="Filters" {
            (inputs)
            span class="buttons" { button { "Filter" } (clear) }
        }
    })
}

/// Links to the pages before and after.
fn pages(frame: &Frame, query: &Query, rest: &str, shown: usize) -> Result<Html, ApiError> {
    let limit = query.number("limit", crate::filter::MAX_LIMIT)?.unwrap_or(ROWS);
    let skip = query.number("skip", crate::filter::MAX_SKIP)?.unwrap_or(0);
    let link = |skip: u64, says: &str, sign: &str| {
        let skip = skip.to_string();
        let kept = frame.kept.iter().filter(|(name, value)| name != "skip" && !value.is_empty());
        let mut pairs: Vec<(&str, &str)> = kept.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        if skip != "0" {
            pairs.push(("skip", &skip));
        }
        html! { a class="button quiet" rel=(says) href=(frame.to_with(rest, &pairs)) { (sign) } }
    };
    let mut out = Html::default();
    if skip > 0 {
        out.add(link(skip.saturating_sub(limit), "prev", "← newer"));
    }
    let full = u64::try_from(shown).unwrap_or(u64::MAX) >= limit;
    if full && limit > 0 && skip + limit <= crate::filter::MAX_SKIP {
        out.add(link(skip + limit, "next", "older →"));
    }
    Ok(if out.is_empty() {
        out
    } else {
        html! { nav class="pages" aria-label="Pages" { (out) } }
    })
}
