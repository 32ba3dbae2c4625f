//! One buildset: what was tested, the job graph, the builds, what was reported.

use gatelog_gate_state::history::{BuildEntry, BuildsetEntry, FrozenEntry, ItemEntry, PreparedEntry};
use gatelog_record::{BlobHash, BuildId, BuildsetId, codec};
use gatelog_rules_config::freeze::trace::{FreezeTrace, JobFate};

use maud::html;

use super::frame::{Content, Frame, Tab};
use super::gantt::{self, Grants};
use super::graph::{self, Node};
use super::html::{Html, Piece};
use super::parts::{self, crumbs, facts, refs_table, subjects, subjects_text};
use super::words::{self, Stand, lower, took};
use crate::builds::{gone, id};
use crate::error::ApiError;
use crate::estimate::{Ahead, Estimates, longest};
use crate::reading::Reading;
use crate::shape;

/// The most reports shown.
const REPORTS: usize = 50;

/// A buildset of a tenant, with its item.
pub(crate) fn find(
    reading: &Reading<'_>,
    tenant: &str,
    uuid: &str,
) -> Result<(BuildsetId, BuildsetEntry, ItemEntry), ApiError> {
    reading.need_tenant(tenant)?;
    let buildset: BuildsetId = id(uuid)?;
    let row = match reading.history().buildset(buildset, reading.at)? {
        Some(row) if row.tenant == tenant => row,
        _ => return Err(ApiError::NotFound(format!("tenant {tenant} has no buildset {buildset}"))),
    };
    let item = reading.history().item(row.item, reading.at)?.ok_or_else(|| gone(row.item, buildset))?;
    Ok((buildset, row, item))
}

/// How a build stands, in a word.
pub(crate) fn standing(build: &BuildEntry) -> (Stand, String) {
    match build.result {
        Some(result) => (Stand::of_result(result.word()), lower(result.word())),
        None if build.given_up() => (Stand::Warn, "given up".into()),
        None if build
            .attempt()
            .is_some_and(|attempt| attempt.started_at.is_some() && attempt.finished_at.is_none()) =>
        {
            (Stand::Running, "running".into())
        }
        None => (Stand::Waiting, "waiting".into()),
    }
}

/// How long a build ran, or has run.
pub(crate) fn ran(frame: &Frame, build: &BuildEntry) -> Html {
    match (build.started_at(), build.ended_at()) {
        (Some(start), Some(end)) => html! { span class="num" { (took(end.millis_since(start))) } },
        (Some(start), None) if !build.given_up() => words::since(shape::ms(start), frame.clock_ms()),
        _ => Html::default(),
    }
}

/// The trace of a freezing.
pub(crate) fn trace(reading: &Reading<'_>, hash: &BlobHash) -> Result<FreezeTrace, ApiError> {
    let bytes =
        reading.app.site.blobs.get(hash).map_err(|error| ApiError::Internal(format!("the explanation: {error}")))?;
    codec::decode(&bytes).map_err(|error| ApiError::Internal(format!("the explanation in blob {hash}: {error}")))
}

/// The trace's blob, when freezing came to one.
pub(crate) fn trace_of(frozen: Option<&FrozenEntry>) -> Option<&BlobHash> {
    match frozen {
        Some(
            FrozenEntry::Frozen { trace, .. } | FrozenEntry::NoJobs { trace, .. } | FrozenEntry::Refused { trace, .. },
        ) => Some(trace),
        _ => None,
    }
}

/// The builds of a buildset.
pub(crate) fn builds_of(reading: &Reading<'_>, row: &BuildsetEntry) -> Result<Vec<(BuildId, BuildEntry)>, ApiError> {
    let mut builds = Vec::with_capacity(row.builds.len());
    for build in &row.builds {
        if let Some(entry) = reading.history().build(*build, reading.at)? {
            builds.push((*build, entry));
        }
    }
    Ok(builds)
}

/// How far a buildset is: how many of its jobs are over, and how long the rest is thought to take.
pub(crate) fn progress(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    row: &BuildsetEntry,
    builds: &[(BuildId, BuildEntry)],
) -> Result<Html, ApiError> {
    if builds.is_empty() || row.finished_at.is_some() || row.reset.is_some() {
        return Ok(Html::default());
    }
    let mut estimates = Estimates::default();
    let mut ahead = Vec::with_capacity(builds.len());
    let (mut over, mut unknown) = (0_usize, 0_usize);
    for (_, build) in builds {
        let done = build.result.is_some();
        over += usize::from(done);
        let estimate = estimates.of(reading, tenant, &build.job)?.map(|estimate| estimate.mean_ms);
        unknown += usize::from(!done && estimate.is_none());
        let runs =
            build.attempt().filter(|attempt| attempt.finished_at.is_none()).and_then(|attempt| attempt.started_at);
        let ran = runs.map_or(0, |start| crate::leaps::ran_ms(shape::ms(start), frame.clock_ms()));
        let left = if done { Some(0) } else { estimate.map(|estimate| (estimate - ran).max(0)) };
        let after = build.dependencies.iter().map(|(job, _)| job.clone()).collect();
        ahead.push(Ahead { name: build.job.clone(), after, left });
    }
    if over == builds.len() {
        return Ok(Html::default());
    }
    let left = match longest(&ahead).filter(|left| *left > 0) {
        Some(left) if unknown == 0 => format!("about {} left", took(left / 1_000 * 1_000)),
        Some(left) => format!("at least {} left", took(left / 1_000 * 1_000)),
        None if unknown > 0 => "never ran before: nobody knows how long it takes".to_owned(),
        None => "any moment now".to_owned(),
    };
    Ok(html! {
        div class="card progress" {
            span class="says" {
                b { (over) " of " (words::many(builds.len(), "job", "jobs")) " over" }
                span class="num muted" { (left) }
            }
            progress max=(builds.len()) value=(over) aria-label="jobs that are over" {}
        }
    })
}

pub(crate) fn page(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    uuid: &str,
    grants: &Grants,
) -> Result<Content, ApiError> {
    let (_, row, item) = find(reading, tenant, uuid)?;
    let builds = builds_of(reading, &row)?;
    let to_item = frame.to(&format!("/item/{}", row.item));
    let badge = match (&row.result, &row.reset) {
        (_, Some(_)) => Stand::Warn.badge("given up"),
        (Some(result), _) => words::result_badge(result.word()),
        (None, None) if row.first_start.is_some() => Stand::Running.badge("running"),
        (None, None) => Stand::Waiting.badge("waiting"),
    };
    let mut main = html! {
        (crumbs(&[
            (frame.to_with("/buildsets", &[("pipeline", row.pipeline.as_str())]), html! { (row.pipeline) }),
            (to_item.clone(), html! { "item" }),
        ]))
        div class="head" { h1 { (subjects(&item)) } (badge) }
    };
    let length = row.finished_at.map_or_else(
        || words::since(shape::ms(row.opened_at), frame.clock_ms()),
        |end| html! { span class="num" { (took(end.millis_since(row.opened_at))) } },
    );
    main.add(facts(&[
        ("Pipeline", html! { (row.pipeline) }),
        ("Queue", html! { (item.queue) }),
        (
            "Opened",
            html! {
                (words::moment(row.opened_at))
                " "
                span class="muted" { "by event " (row.opened) }
            },
        ),
        ("Took", length),
        ("Item", html! { a href=(to_item) { "its whole story" } }),
        ("Tested on top of", ahead(reading, frame, &row)?),
    ]));
    if let Some((code, detail)) = &row.reset {
        main.add(html! {
            p class="card note" { (Stand::Warn.mark()) " Given up for another: " code { (code) } " " (detail) }
        });
    }
    main.add(outcome(&row));
    main.add(progress(reading, frame, tenant, &row, &builds)?);
    main.add(html! {
        section class="card" {
            h2 { "Job graph" }
            (picture(frame, &builds))
            (absent(reading, frame, uuid, &row)?)
        }
    });
    main.add(html! {
        section class="card" {
            h2 { "Where the time went" }
            (gantt::draw(reading, frame, tenant, &row, &builds, grants)?)
        }
    });
    main.add(builds_table(frame, uuid, &builds));
    main.add(html! { section class="card" { (refs_table(frame, &item)) } });
    main.add(resets(frame, &row, &item));
    main.add(reports(reading, &row, &item)?);
    let title = format!("{} in {}", subjects_text(&item), row.pipeline);
    let item = Some(row.item);
    Ok(Content { title, tab: Tab::Buildsets, kind: "buildset", main, item, live: row.finished_at.is_none() })
}

/// The items a buildset stood on, in order.
fn ahead(reading: &Reading<'_>, frame: &Frame, row: &BuildsetEntry) -> Result<Html, ApiError> {
    let mut out = Html::default();
    for (number, ahead) in row.ahead.iter().enumerate() {
        let name = match reading.history().item(*ahead, reading.at)? {
            Some(item) => subjects(&item),
            None => html! { (ahead.to_string()) },
        };
        out.add(html! { @if number > 0 { ", then " } a href=(frame.to(&format!("/item/{ahead}"))) { (name) } });
    }
    Ok(if out.is_empty() {
        html! { "its branch alone" }
    } else {
        out
    })
}

/// What stopped it before jobs ran, and what it was told.
fn outcome(row: &BuildsetEntry) -> Html {
    let mut out = Html::default();
    match &row.prepared {
        Some(PreparedEntry::Conflict { subject, paths, message }) => out.add(html! {
            p class="card bad-edge" {
                (Stand::Bad.mark())
                " "
                (parts::subject(subject))
                " does not merge: "
                (message)
                " "
                span class="muted" { (paths.join(", ")) }
            }
        }),
        Some(PreparedEntry::Failed { code, message }) => out.add(html! {
            p class="card bad-edge" {
                (Stand::Bad.mark())
                " It could not be prepared: "
                code { (code) }
                " "
                (message)
            }
        }),
        _ => {}
    }
    match &row.frozen {
        Some(FrozenEntry::Refused { message, .. }) => out.add(html! {
            div class="card bad-edge" {
                p { (Stand::Bad.mark()) " The configuration is wrong for this item" }
                pre { (message) }
            }
        }),
        Some(FrozenEntry::Failed { code, message }) => out.add(html! {
            p class="card bad-edge" {
                (Stand::Bad.mark())
                " No jobs could be chosen: "
                code { (code) }
                " "
                (message)
            }
        }),
        Some(FrozenEntry::NoJobs { in_pipeline, .. }) => out.add(html! {
            p class="card note" {
                "No job runs: "
                @if *in_pipeline { "none of the project's jobs matched" } @else { "the project is not in this pipeline" }
            }
        }),
        _ => {}
    }
    if let Some(problem) = &row.config_problem {
        out.add(html! { div class="card bad-edge" { h2 { "Configuration" } pre { (problem) } } });
    }
    out
}

/// The graph of some builds.
fn picture(frame: &Frame, builds: &[(BuildId, BuildEntry)]) -> Html {
    let node = |(id, build): &(BuildId, BuildEntry)| {
        let (stand, word) = standing(build);
        let more = match (build.started_at(), build.ended_at()) {
            (Some(start), Some(end)) => took(end.millis_since(start)),
            _ if build.attempts.len() > 1 => format!("attempt {}", build.attempts.len()),
            _ => String::new(),
        };
        Node {
            name: build.job.clone(),
            to: frame.to(&format!("/build/{id}")),
            stand,
            word,
            more,
            voting: build.voting,
            after: build.dependencies.clone(),
        }
    };
    let nodes: Vec<Node> = builds.iter().map(node).collect();
    if nodes.is_empty() {
        return html! { p class="empty" { "No jobs: they are not chosen yet, or there are none." } };
    }
    graph::draw(&nodes)
}

/// Jobs that were looked at and do not run.
fn absent(reading: &Reading<'_>, frame: &Frame, uuid: &str, row: &BuildsetEntry) -> Result<Html, ApiError> {
    let Some(hash) = trace_of(row.frozen.as_ref()) else { return Ok(Html::default()) };
    let trace = match trace(reading, hash) {
        Ok(trace) => trace,
        // The rest of the page stands without it.
        Err(error) => return Ok(html! { p class="small muted" { (error.to_string()) } }),
    };
    let mut out = Html::default();
    for job in trace.jobs.iter().filter(|job| job.fate != JobFate::Runs) {
        out.add(html! {
            li {
                @if job.fate == JobFate::Refused { (Stand::Bad.mark()) } @else { (Stand::Quiet.mark()) }
                " "
                a href=(parts::why(frame, uuid, &job.name)) { (job.name) }
                " "
                span class="muted" { (job.reason) }
            }
        });
    }
    Ok(if out.is_empty() {
        out
    } else {
        html! { h3 { "Jobs that do not run" } ul class="plain absent" { (out) } }
    })
}

fn builds_table(frame: &Frame, uuid: &str, builds: &[(BuildId, BuildEntry)]) -> Html {
    if builds.is_empty() {
        return Html::default();
    }
    let mut rows = Html::default();
    for (id, build) in builds {
        let (stand, word) = standing(build);
        let worker = build.attempt().and_then(|attempt| attempt.worker.as_deref()).unwrap_or("–");
        rows.add(html! {
            tr data-key=(id.to_string()) {
                td data-label="result" { (stand.badge(&word)) }
                th scope="row" data-label="job" {
                    a href=(frame.to(&format!("/build/{id}"))) { (build.job) }
                    @if !build.voting { " " span class="chip" { "non-voting" } }
                }
                td data-label="took" { (ran(frame, build)) }
                td data-label="attempts" class="num" { (build.attempts.len()) }
                td data-label="worker" { (worker) }
                td data-label="detail" {
                    (build.detail.as_deref().or(build.settled.as_deref()).unwrap_or_default())
                }
                td data-label="why" { a href=(parts::why(frame, uuid, &build.job)) { "why it is so" } }
            }
        });
    }
    html! {
        section class="card" {
            table class="rows" {
                caption { "Builds" }
                thead {
                    tr {
                        th scope="col" { "Result" }
                        th scope="col" { "Job" }
                        th scope="col" { "Took" }
                        th scope="col" { "Attempts" }
                        th scope="col" { "Worker" }
                        th scope="col" { "Detail" }
                        th scope="col" { "Explanation" }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

/// What was given up before this buildset.
fn resets(frame: &Frame, row: &BuildsetEntry, item: &ItemEntry) -> Html {
    let mut rows = Html::default();
    for reset in item.resets.iter().filter(|reset| reset.sequence <= row.opened) {
        let before = reset.buildset.map_or_else(Html::default, |buildset| {
            html! { " " a href=(frame.to(&format!("/buildset/{buildset}"))) { "the buildset given up" } }
        });
        rows.add(html! {
            li {
                (Stand::Warn.mark())
                " "
                (words::moment(reset.at))
                " "
                code { (reset.code) }
                " "
                (reset.detail)
                (before)
            }
        });
    }
    if rows.is_empty() {
        return rows;
    }
    html! { section class="card" { h2 { "Resets before it" } ul class="plain" { (rows) } } }
}

fn reports(reading: &Reading<'_>, row: &BuildsetEntry, item: &ItemEntry) -> Result<Html, ApiError> {
    if row.reset.is_some() {
        return Ok(Html::default());
    }
    let mut out = Html::default();
    for work in reading.history().reports_of(row.item, reading.at)?.take(REPORTS) {
        let Some(report) = reading.history().report(work?, reading.at)? else { continue };
        let state = match (&report.failed, report.answered_at) {
            (Some((code, text)), _) => html! {
                (Stand::Bad.badge("not delivered"))
                " "
                code { (code) }
                " "
                (text)
            },
            (None, Some(_)) => Stand::Good.badge("delivered"),
            (None, None) => Stand::Running.badge("under way"),
        };
        out.add(html! {
            article class="report" {
                header {
                    h3 { (format!("{:?}", report.action).to_lowercase()) }
                    " "
                    span class="muted" { "to " (report.connections.join(", ")) }
                    " "
                    (state)
                    " "
                    span class="end small muted" { (words::moment(report.requested_at)) }
                }
                pre { (parts::linked(&report.message)) }
            }
        });
    }
    if let Some(end) = &item.end {
        out.add(html! {
            p class="closing" {
                (words::result_badge(end.result.word()))
                " "
                code { (end.code) }
                " "
                (end.detail)
                @if end.merged { " · merged by gatelog" }
                " "
                span class="muted" { (words::moment(end.at)) }
            }
        });
    }
    Ok(if out.is_empty() {
        out
    } else {
        html! { section class="card" { h2 { "Reports" } (out) } }
    })
}
