//! One build: its attempts, what it waited for, its lease, what it says.

use gatelog_capacity_state::LeaseHistoryRow;
use gatelog_gate_state::history::{AttemptEntry, BuildEntry};
use gatelog_record::draft::gate::WaitSubject;
use gatelog_record::{BuildId, Timestamp};

use super::buildset::{ran, standing};
use super::console::{self, Console};
use super::frame::{Content, Frame, Tab};
use super::gantt::Grants;
use super::html::{Html, html, outside, put};
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
        attempt: row.attempt,
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
            grants.extend(row.granted_at.map(|granted| ((build, row.attempt), granted)));
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
    let mut main = html!(
        r#"{}<div class="head"><h1>{}</h1>{}{}</div>"#,
        crumbs(&[
            (frame.to(&format!("/item/{}", entry.item)), subjects(&item)),
            (to_set.clone(), html!("buildset in {}", entry.pipeline)),
        ]),
        entry.job,
        stand.badge(&word),
        if entry.voting { Html::new() } else { html!(r#"<span class="chip">non-voting</span>"#) }
    );
    if let Some(detail) = &entry.detail {
        let edge = if stand == Stand::Bad { "bad-edge" } else { "note" };
        put!(main, r#"<p class="card {}">{} {}</p>"#, edge, stand.mark(), detail);
    }
    if let Some(held) = leases.iter().find(|lease| lease.phase == "held") {
        put!(
            main,
            r#"<p class="card warn-edge">Its nodes are kept{}{} <span class="muted">Where they are is told</span> <a href="{}#kept">with the request</a>.</p>"#,
            if held.detail.is_empty() { "." } else { ": " },
            held.detail,
            frame.to("/status")
        );
    }
    let estimate = Estimates::default().of(reading, tenant, &entry.job)?;
    put!(main, "{}", progress(frame, &entry, estimate));
    let mut after = Html::new();
    for (number, (job, soft)) in entry.dependencies.iter().enumerate() {
        put!(after, "{}{}{}", if number == 0 { "" } else { ", " }, job, if *soft { " (softly)" } else { "" });
    }
    put!(
        main,
        "{}",
        facts(&[
            (if entry.finished_at.is_some() { "Took" } else { "Runs for" }, ran(frame, &entry)),
            ("Usually takes", usually(estimate)),
            ("Attempts", html!("{} of at most {}", entry.attempts.len(), entry.attempts_allowed)),
            ("Nodes", html!("{}", shape::nodeset(&entry).unwrap_or_default())),
            ("Waits for", after),
            ("Frozen", html!("{}", words::moment(entry.frozen_at))),
            ("Settled", html!("{}", entry.settled.as_deref().unwrap_or_default())),
            (
                "Explanation",
                html!(r#"<a href="{}">why this job runs, and as it does</a>"#, why(frame, &set, &entry.job))
            ),
        ])
    );
    put!(main, "{}", console::section(frame, tenant, &build.to_string(), &entry, console, logs));
    put!(main, "{}", logs::section(tenant, &build.to_string(), &entry, logs));
    put!(main, "{}", attempts_table(frame, uuid, &entry));
    put!(main, "{}", artifacts(&entry));
    let waits = shape::waits(reading, &WaitSubject::Build(build))?;
    let waits = waits_table(frame, &waits, "What it waited for");
    if !waits.is_empty() {
        put!(main, r#"<section class="card">{}</section>"#, waits);
    }
    put!(main, "{}", leases_table(frame, leases));
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
    estimate.map_or_else(Html::new, |estimate| {
        let (range, basis) = (estimate.range(), estimate.basis());
        html!(r#"<span class="num">{}</span> <span class="muted">by {}</span>"#, range, basis)
    })
}

/// How far a running build is, by how long it took before.
fn progress(frame: &Frame, entry: &BuildEntry, estimate: Option<Estimate>) -> Html {
    let running = entry.attempt().filter(|attempt| attempt.finished_at.is_none() && !entry.given_up());
    let Some(start) = running.filter(|_| entry.finished_at.is_none()).and_then(|attempt| attempt.started_at) else {
        return Html::new();
    };
    let (bar, left) = parts::meter(frame, &entry.job, ms(start), estimate);
    html!(
        r#"<div class="card progress"><span class="says">{}{}</span>{}</div>"#,
        Stand::Running.badge("running"),
        left,
        bar
    )
}

fn attempts_table(frame: &Frame, uuid: &str, entry: &BuildEntry) -> Html {
    if entry.attempts.is_empty() {
        return Html::new();
    }
    let mut rows = Html::new();
    for attempt in &entry.attempts {
        let number = attempt.attempt.to_string();
        put!(
            rows,
            r#"<tr><th scope="row" data-label="attempt"><a href="{}">{}</a></th><td data-label="result">{}</td><td data-label="worker">{}</td><td data-label="asked">{}</td><td data-label="began">{}</td><td data-label="took">{}</td><td data-label="detail">{}</td></tr>"#,
            frame.to_with(&format!("/build/{uuid}"), &[("attempt", &number)]),
            number,
            attempt_badge(entry, attempt),
            attempt.worker.as_deref().unwrap_or("–"),
            words::clock(attempt.requested_at),
            attempt.started_at.map_or_else(Html::new, words::clock),
            match (attempt.started_at, attempt.finished_at) {
                (Some(start), Some(end)) => html!(r#"<span class="num">{}</span>"#, took(end.millis_since(start))),
                (Some(start), None) if attempt.let_go.is_none() && !entry.given_up() =>
                    words::since(ms(start), frame.clock_ms()),
                _ => Html::new(),
            },
            attempt.detail.as_deref().unwrap_or_default()
        );
    }
    html!(
        r#"<section class="card"><table class="rows"><caption>Attempts</caption><thead><tr><th scope="col">Attempt</th><th scope="col">Result</th><th scope="col">Worker</th><th scope="col">Asked</th><th scope="col">Began</th><th scope="col">Took</th><th scope="col">Detail</th></tr></thead><tbody>{}</tbody></table></section>"#,
        rows
    )
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
    let mut rows = Html::new();
    for artifact in entry.attempt().map(|attempt| attempt.artifacts.as_slice()).unwrap_or_default() {
        put!(rows, r#"<li><b>{}</b> {}</li>"#, artifact.name, outside(&artifact.url, &artifact.url));
    }
    if rows.is_empty() {
        return rows;
    }
    html!(r#"<section class="card"><h2>Artifacts</h2><ul class="plain">{}</ul></section>"#, rows)
}

fn leases_table(frame: &Frame, leases: &[Lease]) -> Html {
    let until = frame.clock;
    let mut rows = Html::new();
    for lease in leases.iter().filter(|lease| lease.asked_at <= until) {
        let granted = lease.granted_at.filter(|at| *at <= until);
        let ended = lease.ended_at.filter(|at| *at <= until);
        let phase = match (granted, ended) {
            (_, Some(_)) => "ended",
            (Some(_), None) if frame.then => "granted",
            (None, None) if frame.then => "asked",
            (_, None) => &lease.phase,
        };
        put!(
            rows,
            r#"<tr><th scope="row" data-label="attempt">{}</th><td data-label="phase">{}</td><td data-label="asked">{}</td><td data-label="waited">{}</td><td data-label="worker">{}</td><td data-label="reason">{}</td></tr>"#,
            lease.attempt,
            phase,
            words::clock(lease.asked_at),
            granted.map_or_else(String::new, |at| took(at.millis_since(lease.asked_at))),
            granted.map_or("–", |_| lease.worker.as_str()),
            if lease.reason.is_empty() {
                html!("{}", lease.detail)
            } else {
                html!("<code>{}</code> {}", lease.reason, lease.detail)
            }
        );
    }
    if rows.is_empty() {
        return rows;
    }
    html!(
        r#"<section class="card"><table class="rows"><caption>Leases: what each attempt got from capacity</caption><thead><tr><th scope="col">Attempt</th><th scope="col">Phase</th><th scope="col">Asked</th><th scope="col">Waited</th><th scope="col">Worker</th><th scope="col">Reason</th></tr></thead><tbody>{}</tbody></table></section>"#,
        rows
    )
}
