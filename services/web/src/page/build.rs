//! One build: its attempts, what it waited for, its lease, what it says.

use gatelog_capacity_state::LeaseHistoryRow;
use gatelog_gate_state::history::{AttemptEntry, BuildEntry};
use gatelog_record::draft::gate::WaitSubject;
use gatelog_record::{BuildId, Timestamp};

use maud::html;

use super::buildset::{ran, standing};
use super::console::{self, Console};
use super::frame::{Content, Frame, Tab};
use super::gantt::Grants;
use super::html::{Html, Piece, outside};
use super::logs::{self, Logs};
use super::parts::{self, crumbs, facts, subjects, subjects_text, waits_table, why};
use super::words::{self, Stand, took};
use crate::builds::{self, gone};
use crate::capacity::leases_of;
use crate::error::ApiError;
use crate::estimate::{Estimate, Estimates};
use crate::reading::{App, Reading};
use crate::shape::{self, ms};

/// The most leases shown.
const LEASES: usize = 100;

/// What capacity knows of a build's attempts.
pub(crate) struct Lease {
    attempt: u32,
    phase: String,
    asked_at: Timestamp,
    granted_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    worker: String,
    reason: String,
    detail: String,
}

/// The leases of a build as of an event of capacity's; without one as they are.
pub(crate) fn leases(app: &App, build: BuildId, at: Option<u64>) -> Result<Vec<Lease>, ApiError> {
    let view = app.site.capacity.view();
    let found = leases_of(view.temporal(), build, at.unwrap_or(u64::MAX), LEASES)?;
    let lease = |(_, row): (_, LeaseHistoryRow)| Lease {
        attempt: row.attempt(),
        phase: format!("{:?}", row.phase).to_lowercase(),
        asked_at: row.asked_at,
        granted_at: row.granted_at,
        ended_at: row.ended_at,
        worker: row.worker,
        reason: row.reason,
        detail: row.detail,
    };
    Ok(found.into_iter().map(lease).collect())
}

/// When each attempt of some builds got its worker, as of an event of capacity's.
pub(crate) fn grants(app: &App, builds: &[BuildId], at: Option<u64>) -> Result<Grants, ApiError> {
    let view = app.site.capacity.view();
    let mut grants = Grants::new();
    for build in builds.iter().copied() {
        for (_, row) in leases_of(view.temporal(), build, at.unwrap_or(u64::MAX), LEASES)? {
            grants.extend(row.granted_at.map(|granted| ((build, row.attempt()), granted)));
        }
    }
    Ok(grants)
}

pub(crate) fn page(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    uuid: &str,
    leases: &[Lease],
    console: &Console,
    logs: &Logs,
) -> Result<Content, ApiError> {
    let (build, entry) = builds::find(reading, tenant, uuid)?;
    let item = reading.history().item(entry.item, reading.at)?.ok_or_else(|| gone(entry.item, entry.buildset))?;
    let (stand, word) = standing(&entry);
    let set = entry.buildset.to_string();
    let to_set = frame.to(&format!("/buildset/{set}"));
    let mut main = html! {
        (crumbs(&[
            (frame.to(&format!("/item/{}", entry.item)), subjects(&item)),
            (to_set.clone(), html! { "buildset in " (entry.pipeline) }),
        ]))
        div class="head" {
            h1 { (entry.job) }
            (stand.badge(&word))
            @if !entry.voting { span class="chip" { "non-voting" } }
        }
    };
    if let Some(detail) = &entry.detail {
        let edge = if stand == Stand::Bad { "bad-edge" } else { "note" };
        main.add(html! { p class={ "card " (edge) } { (stand.mark()) " " (detail) } });
    }
    if let Some(held) = leases.iter().find(|lease| lease.phase == "held") {
        main.add(html! {
            p class="card warn-edge" {
                "Its nodes are kept"
                @if held.detail.is_empty() { "." } @else { ": " }
                (held.detail)
                " "
                span class="muted" { "Where they are is told" }
                " "
                a href={ (frame.to("/status")) "#kept" } { "with the request" }
                "."
            }
        });
    }
    let estimate = Estimates::default().of(reading, tenant, &entry.job)?;
    main.add(progress(frame, &entry, estimate));
    let mut after = Html::default();
    for (number, (job, soft)) in entry.dependencies.iter().enumerate() {
        after.add(html! { @if number > 0 { ", " } (job) @if *soft { " (softly)" } });
    }
    main.add(facts(&[
        (if entry.finished_at.is_some() { "Took" } else { "Runs for" }, ran(frame, &entry)),
        ("Usually takes", usually(estimate)),
        ("Attempts", html! { (entry.attempts.len()) " of at most " (entry.attempts_allowed) }),
        ("Nodes", html! { (shape::nodeset(&entry).unwrap_or_default()) }),
        ("Waits for", after),
        ("Frozen", html! { (words::moment(entry.frozen_at)) }),
        ("Settled", html! { (entry.settled.as_deref().unwrap_or_default()) }),
        ("Explanation", html! { a href=(why(frame, &set, &entry.job)) { "why this job runs, and as it does" } }),
    ]));
    main.add(console::section(frame, tenant, &build.to_string(), &entry, console, logs));
    main.add(logs::section(tenant, &build.to_string(), &entry, logs));
    main.add(attempts_table(frame, uuid, &entry));
    main.add(artifacts(&entry));
    let waits = shape::waits(reading, &WaitSubject::Build(build))?;
    let waits = waits_table(frame, &waits, "What it waited for");
    if !waits.is_empty() {
        main.add(html! { section class="card" { (waits) } });
    }
    main.add(leases_table(frame, leases));
    let title = format!("{} for {}", entry.job, subjects_text(&item));
    Ok(Content {
        title,
        tab: Tab::Builds,
        kind: "build",
        main,
        item: Some(entry.item),
        live: entry.finished_at.is_none(),
    })
}

/// How long a job usually takes, and by what that is judged.
fn usually(estimate: Option<Estimate>) -> Html {
    estimate.map_or_else(Html::default, |estimate| {
        let (range, basis) = (estimate.range(), estimate.basis());
        html! { span class="num" { (range) } " " span class="muted" { "by " (basis) } }
    })
}

/// How far a running build is, by how long it took before.
fn progress(frame: &Frame, entry: &BuildEntry, estimate: Option<Estimate>) -> Html {
    let running = entry.attempt().filter(|attempt| attempt.finished_at.is_none() && !entry.given_up());
    let Some(start) = running.filter(|_| entry.finished_at.is_none()).and_then(|attempt| attempt.started_at) else {
        return Html::default();
    };
    let (bar, left) = parts::meter(frame, &entry.job, ms(start), estimate);
    html! {
        div class="card progress" { span class="says" { (Stand::Running.badge("running")) (left) } (bar) }
    }
}

fn attempts_table(frame: &Frame, uuid: &str, entry: &BuildEntry) -> Html {
    if entry.attempts.is_empty() {
        return Html::default();
    }
    let mut rows = Html::default();
    for attempt in &entry.attempts {
        let number = attempt.attempt.to_string();
        rows.add(html! {
            tr {
                th scope="row" data-label="attempt" {
                    a href=(frame.to_with(&format!("/build/{uuid}"), &[("attempt", &number)])) { (number) }
                }
                td data-label="result" { (attempt_badge(entry, attempt)) }
                td data-label="worker" { (attempt.worker.as_deref().unwrap_or("–")) }
                td data-label="asked" { (words::clock(attempt.requested_at)) }
                td data-label="began" { (attempt.started_at.map_or_else(Html::default, words::clock)) }
                td data-label="took" {
                    @match (attempt.started_at, attempt.finished_at) {
                        (Some(start), Some(end)) => { span class="num" { (took(end.millis_since(start))) } }
                        (Some(start), None) if attempt.let_go.is_none() && !entry.given_up() => {
                            (words::since(ms(start), frame.clock_ms()))
                        }
                        _ => {}
                    }
                }
                td data-label="detail" { (attempt.detail.as_deref().unwrap_or_default()) }
            }
        });
    }
    html! {
        section class="card" {
            table class="rows" {
                caption { "Attempts" }
                thead {
                    tr {
                        th scope="col" { "Attempt" }
                        th scope="col" { "Result" }
                        th scope="col" { "Worker" }
                        th scope="col" { "Asked" }
                        th scope="col" { "Began" }
                        th scope="col" { "Took" }
                        th scope="col" { "Detail" }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

fn attempt_badge(entry: &BuildEntry, attempt: &AttemptEntry) -> Html {
    match (attempt.result, &attempt.let_go) {
        (Some(result), _) => words::result_badge(result.word()),
        (None, Some((reason, _))) => Stand::Warn.badge(reason),
        (None, None) if entry.given_up() => Stand::Warn.badge("given up"),
        (None, None) if attempt.started_at.is_some() => Stand::Running.badge("running"),
        (None, None) => Stand::Waiting.badge("waiting"),
    }
}

fn artifacts(entry: &BuildEntry) -> Html {
    let mut rows = Html::default();
    for artifact in entry.attempt().map(|attempt| attempt.artifacts.as_slice()).unwrap_or_default() {
        rows.add(html! { li { b { (artifact.name) } " " (outside(&artifact.url, &artifact.url)) } });
    }
    if rows.is_empty() {
        return rows;
    }
    html! { section class="card" { h2 { "Artifacts" } ul class="plain" { (rows) } } }
}

fn leases_table(frame: &Frame, leases: &[Lease]) -> Html {
    let until = frame.clock;
    let mut rows = Html::default();
    for lease in leases.iter().filter(|lease| lease.asked_at <= until) {
        let granted = lease.granted_at.filter(|at| *at <= until);
        let ended = lease.ended_at.filter(|at| *at <= until);
        let phase = match (granted, ended) {
            (_, Some(_)) => "ended",
            (Some(_), None) if frame.then => "granted",
            (None, None) if frame.then => "asked",
            (_, None) => &lease.phase,
        };
        rows.add(html! {
            tr {
                th scope="row" data-label="attempt" { (lease.attempt) }
                td data-label="phase" { (phase) }
                td data-label="asked" { (words::clock(lease.asked_at)) }
                td data-label="waited" {
                    (granted.map_or_else(String::new, |at| took(at.millis_since(lease.asked_at))))
                }
                td data-label="worker" { (granted.map_or("–", |_| lease.worker.as_str())) }
                td data-label="reason" {
                    @if lease.reason.is_empty() { (lease.detail) } @else { code { (lease.reason) } " " (lease.detail) }
                }
            }
        });
    }
    if rows.is_empty() {
        return rows;
    }
    html! {
        section class="card" {
            table class="rows" {
                caption { "Leases: what each attempt got from capacity" }
                thead {
                    tr {
                        th scope="col" { "Attempt" }
                        th scope="col" { "Phase" }
                        th scope="col" { "Asked" }
                        th scope="col" { "Waited" }
                        th scope="col" { "Worker" }
                        th scope="col" { "Reason" }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}
