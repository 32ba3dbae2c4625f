//! Lists of builds and buildsets, with their filters and pages.

use serde_json::Value as Json;

use super::frame::{Content, Frame, Tab};
use super::html::{Html, html, put};
use super::parts::{list, reference, text};
use super::words;
use crate::error::ApiError;
use crate::query::Query;
use crate::reading::Reading;
use crate::{builds, buildsets};

/// How many rows a page has unless it is said.
const ROWS: u64 = 50;

/// The fields of the filters: parameter, label, an example.
type Field = (&'static str, &'static str, &'static str);

const BUILD_FIELDS: &[Field] = &[
    ("project", "Project", "library"),
    ("pipeline", "Pipeline", "gate"),
    ("job_name", "Job", "unit*"),
    ("branch", "Branch", "master"),
    ("change", "Change", "master/fix"),
    ("result", "Result", "FAILURE"),
];

const BUILDSET_FIELDS: &[Field] = &[
    ("project", "Project", "library"),
    ("pipeline", "Pipeline", "gate"),
    ("branch", "Branch", "master"),
    ("change", "Change", "master/fix"),
    ("result", "Result", "FAILURE"),
];

pub(crate) fn builds_page(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    query: &Query,
) -> Result<Content, ApiError> {
    let document = builds::list(reading, tenant, query)?;
    let rows = document.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut body = Html::new();
    for build in rows {
        let uuid = text(build, "uuid");
        put!(
            body,
            r#"<tr data-key="{}"><td data-label="result">{}</td><th scope="row" data-label="job"><a href="{}">{}</a>{}</th><td data-label="change">{}</td><td data-label="pipeline">{}</td><td data-label="took" class="num">{}</td><td data-label="began">{}</td><td data-label="buildset"><a href="{}">buildset</a></td></tr>"#,
            uuid,
            standing(build),
            frame.to(&format!("/build/{uuid}")),
            text(build, "job_name"),
            if build["voting"] == false { html!(r#" <span class="chip">non-voting</span>"#) } else { Html::new() },
            reference(&build["ref"]),
            text(build, "pipeline"),
            build["duration"].as_f64().map_or_else(String::new, |seconds| words::took((seconds * 1_000.0) as i64)),
            build["started_ms"].as_i64().map_or_else(Html::new, words::moment_ms),
            frame.to(&format!("/buildset/{}", text(&build["buildset"], "uuid")))
        );
    }
    let table = html!(
        r#"<table class="rows"><caption>Builds, newest first</caption><thead><tr><th scope="col">Result</th><th scope="col">Job</th><th scope="col">Change</th><th scope="col">Pipeline</th><th scope="col">Took</th><th scope="col">Began</th><th scope="col">More</th></tr></thead><tbody>{}</tbody></table>"#,
        body
    );
    let main = html!(
        r#"<h1>Builds</h1>{}{}{}"#,
        filters(frame, query, "/builds", BUILD_FIELDS)?,
        if rows.is_empty() { nothing("builds") } else { table },
        pages(frame, query, "/builds", rows.len())?
    );
    Ok(Content { title: format!("{tenant} builds"), tab: Tab::Builds, kind: "builds", main, item: None, live: false })
}

pub(crate) fn buildsets_page(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    query: &Query,
) -> Result<Content, ApiError> {
    let document = buildsets::list(reading, tenant, query)?;
    let rows = document.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut body = Html::new();
    for buildset in rows {
        let uuid = text(buildset, "uuid");
        let mut refs = Html::new();
        for (number, one) in list(buildset, "refs").iter().enumerate() {
            put!(refs, "{}{}", if number == 0 { "" } else { " + " }, reference(one));
        }
        let (began, ended) = (buildset["started_ms"].as_i64(), buildset["finished_ms"].as_i64());
        let length = began.zip(ended).map_or_else(String::new, |(began, ended)| words::took(ended - began));
        put!(
            body,
            r#"<tr data-key="{}"><td data-label="result">{}</td><th scope="row" data-label="change"><a href="{}">{}</a></th><td data-label="pipeline">{}</td><td data-label="took" class="num">{}</td><td data-label="began">{}</td><td data-label="item"><a href="{}">its story</a></td></tr>"#,
            uuid,
            standing(buildset),
            frame.to(&format!("/buildset/{uuid}")),
            refs,
            text(buildset, "pipeline"),
            length,
            began.map_or_else(Html::new, words::moment_ms),
            frame.to(&format!("/item/{}", text(buildset, "queue_item_uuid")))
        );
    }
    let table = html!(
        r#"<table class="rows"><caption>Buildsets, newest first</caption><thead><tr><th scope="col">Result</th><th scope="col">Change</th><th scope="col">Pipeline</th><th scope="col">Took</th><th scope="col">Began</th><th scope="col">More</th></tr></thead><tbody>{}</tbody></table>"#,
        body
    );
    let main = html!(
        r#"<h1>Buildsets</h1>{}{}{}"#,
        filters(frame, query, "/buildsets", BUILDSET_FIELDS)?,
        if rows.is_empty() { nothing("buildsets") } else { table },
        pages(frame, query, "/buildsets", rows.len())?
    );
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
    let document = buildsets::list(reading, tenant, &query)?;
    let mut rows = Html::new();
    for buildset in document.as_array().into_iter().flatten() {
        let uuid = text(buildset, "uuid");
        let mut refs = Html::new();
        for (number, one) in list(buildset, "refs").iter().enumerate() {
            put!(refs, "{}{}", if number == 0 { "" } else { " + " }, reference(one));
        }
        let ended = buildset["finished_ms"].as_i64();
        put!(
            rows,
            r#"<li data-key="lately-{}">{} <a href="{}">{}</a> <span class="chip">{}</span><span class="end small muted">{}</span></li>"#,
            uuid,
            standing(buildset),
            frame.to(&format!("/buildset/{uuid}")),
            refs,
            text(buildset, "pipeline"),
            ended.map_or_else(Html::new, |ended| html!("{} ago", words::since(ended, frame.clock_ms())))
        );
    }
    if rows.is_empty() {
        return Ok(rows);
    }
    Ok(html!(r#"<section class="card idle" data-key="lately"><h2>Lately</h2><ul>{}</ul></section>"#, rows))
}

/// The badge of a build or buildset that may have no result.
fn standing(row: &Json) -> Html {
    match row["result"].as_str() {
        Some(result) => words::result_badge(result),
        None if row.get("reset").is_some_and(|reset| !reset.is_null()) => words::Stand::Warn.badge("given up"),
        None if row["started_ms"].is_null() => words::Stand::Waiting.badge("waiting"),
        None => words::Stand::Running.badge("running"),
    }
}

fn nothing(what: &str) -> Html {
    html!(r#"<p class="card empty">No {} here. Fewer filters show more.</p>"#, what)
}

/// The filters as a plain form.
fn filters(frame: &Frame, query: &Query, rest: &str, fields: &[Field]) -> Result<Html, ApiError> {
    let mut inputs = Html::new();
    for (name, label, example) in fields {
        let value = query.all(name).first().copied().unwrap_or_default().to_owned();
        put!(
            inputs,
            r#"<label>{}<input name="{}" value="{}" placeholder="{}" autocomplete="off" spellcheck="false"></label>"#,
            *label,
            *name,
            value,
            *example
        );
    }
    // Parameters that have no field of their own go along.
    for (name, value) in &frame.kept {
        let known = fields.iter().any(|(field, _, _)| field == name);
        if !known && name != "skip" && name != "idx_max" && !value.is_empty() {
            put!(inputs, r#"<input type="hidden" name="{}" value="{}">"#, name, value);
        }
    }
    if frame.then {
        put!(inputs, r#"<input type="hidden" name="at" value="{}">"#, frame.at);
    }
    let path = frame.path.clone();
    let clear = if fields.iter().any(|(name, _, _)| !query.all(name).is_empty()) {
        html!(r#"<a class="button quiet" href="{}">Clear</a>"#, frame.to(rest))
    } else {
        Html::new()
    };
    Ok(html!(
        r#"<form class="filters card" method="get" action="{}" role="search" aria-label="Filters">{}<span class="buttons"><button>Filter</button>{}</span></form>"#,
        path,
        inputs,
        clear
    ))
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
        html!(r#"<a class="button quiet" rel="{}" href="{}">{}</a>"#, says, frame.to_with(rest, &pairs), sign)
    };
    let mut out = Html::new();
    if skip > 0 {
        put!(out, "{}", link(skip.saturating_sub(limit), "prev", "← newer"));
    }
    let full = u64::try_from(shown).unwrap_or(u64::MAX) >= limit;
    if full && limit > 0 && skip + limit <= crate::filter::MAX_SKIP {
        put!(out, "{}", link(skip + limit, "next", "older →"));
    }
    Ok(if out.is_empty() { out } else { html!(r#"<nav class="pages" aria-label="Pages">{}</nav>"#, out) })
}
