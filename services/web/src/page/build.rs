//! One build: its attempts, what it waited for, its lease, what it says.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use gatelog_gate_state::history::{AttemptEntry, BuildEntry};
use gatelog_record::draft::gate::WaitSubject;
use gatelog_record::{BuildId, Timestamp};
use gatelog_tables::Table;

use super::ansi::{self, Paint};
use super::buildset::{ran, standing};
use super::frame::{Content, Frame, Tab};
use super::html::{Html, html, outside, put, segment};
use super::parts::{crumbs, facts, subjects, subjects_text, waits_table, why};
use super::words::{self, Stand, took};
use crate::builds::{self, gone};
use crate::error::ApiError;
use crate::query::Query;
use crate::reading::{App, Reading};
use crate::shape::{self, ms};
use crate::site::ConsoleSource;

/// The parameters beside the moment: which attempt, and from where in its console.
pub(crate) const PARAMETERS: &[&str] = &["attempt", "offset", "line"];
/// How much of a console stands in the page itself; the script reads on from there.
const SHOWN: usize = 128 << 10;
/// How much is read at once.
const PIECE: usize = 64 << 10;
/// The most leases shown.
const LEASES: usize = 100;

/// Part of a console.
#[derive(Debug, Default)]
pub(crate) struct Console {
    /// Whether there is one.
    pub(crate) there: bool,
    attempt: u32,
    /// Where the part begins, in bytes and in lines.
    offset: u64,
    line: u64,
    text: String,
    /// Where the next part begins.
    next: u64,
    ended: bool,
}

/// Reads the part of a console a request asks for, to the end of its last whole line.
pub(crate) async fn console(
    app: &App,
    build: BuildId,
    attempts: &BTreeSet<u32>,
    query: &Query,
) -> Result<Console, ApiError> {
    let offset = query.number("offset", u64::MAX)?.unwrap_or(0);
    let line = query.number("line", u64::MAX >> 1)?.unwrap_or(1).max(1);
    let wanted = match query.number("attempt", u64::from(u32::MAX))?.and_then(|number| u32::try_from(number).ok()) {
        Some(wanted) if attempts.contains(&wanted) => Some(wanted),
        Some(wanted) => return Err(ApiError::NotFound(format!("build {build} has no attempt {wanted}"))),
        None => attempts.last().copied(),
    };
    let Some(attempt) = wanted else { return Ok(Console::default()) };
    let nothing = Console { attempt, offset, line, next: offset, ..Console::default() };
    let Some(source) = app.site.consoles.open(build, attempt) else { return Ok(nothing) };
    let (bytes, ended) = match part(source.as_ref(), offset).await {
        Ok(read) => read,
        Err(error) => {
            tracing::warn!("the console of build {build} cannot be read: {error}");
            return Ok(nothing);
        }
    };
    // What is shown ends with a line, unless that would be nothing.
    let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(last) if !ended => last + 1,
        None if !ended && bytes.len() < SHOWN => 0,
        _ => bytes.len(),
    };
    let shown = bytes.get(..whole).unwrap_or_default();
    let next = offset.saturating_add(u64::try_from(whole).unwrap_or(u64::MAX));
    let text = String::from_utf8_lossy(shown).into_owned();
    Ok(Console { there: true, attempt, offset, line, text, next, ended })
}

async fn part(source: &dyn ConsoleSource, from: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    let mut at = from;
    while bytes.len() < SHOWN {
        let chunk = source.read_from(at, PIECE, Duration::ZERO).await?;
        if chunk.bytes.is_empty() || chunk.next <= at {
            return Ok((bytes, chunk.ended));
        }
        bytes.extend_from_slice(&chunk.bytes);
        at = chunk.next;
        if chunk.ended {
            return Ok((bytes, true));
        }
    }
    Ok((bytes, false))
}

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

/// The leases of a build, by capacity's newest position.
pub(crate) fn leases(app: &App, build: BuildId) -> Result<Vec<Lease>, ApiError> {
    let view = app.site.capacity.view();
    let history = view.temporal();
    let mut found = Vec::new();
    let (first, last) = ((build, 0, 0), (build, u32::MAX, u64::MAX));
    for entry in history.of_build.range(Bound::Included(&first), Bound::Included(&last))?.take(LEASES) {
        let lease = *entry?.1;
        let Some(row) = history.lease_at(lease, u64::MAX)? else { continue };
        found.push(Lease {
            attempt: row.attempt,
            phase: format!("{:?}", row.phase).to_lowercase(),
            asked_at: row.asked_at,
            granted_at: row.granted_at,
            ended_at: row.ended_at,
            worker: row.worker,
            reason: row.reason,
            detail: row.detail,
        });
    }
    Ok(found)
}

pub(crate) fn page(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    uuid: &str,
    leases: &[Lease],
    console: &Console,
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
    let mut after = Html::new();
    for (number, (job, soft)) in entry.dependencies.iter().enumerate() {
        put!(after, "{}{}{}", if number == 0 { "" } else { ", " }, job, if *soft { " (softly)" } else { "" });
    }
    put!(
        main,
        "{}",
        facts(&[
            ("Took", ran(frame, &entry)),
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
    put!(main, "{}", console_section(frame, tenant, &build.to_string(), &entry, console));
    put!(main, "{}", attempts_table(frame, uuid, &entry));
    put!(main, "{}", artifacts(&entry));
    let waits = shape::waits(reading, &WaitSubject::Build(build))?;
    let waits = waits_table(frame, waits.as_array().map(Vec::as_slice).unwrap_or_default(), "What it waited for");
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

fn console_section(frame: &Frame, tenant: &str, uuid: &str, entry: &BuildEntry, console: &Console) -> Html {
    if entry.attempts.is_empty() {
        return if entry.result.is_some() || entry.given_up() {
            html!(
                r#"<section class="card" data-key="console"><h2>Console</h2><p class="empty">It ran on no worker: there is nothing to read.</p></section>"#
            )
        } else {
            html!(
                r#"<section class="card" data-key="console"><h2>Console</h2><p class="empty">It has not begun.</p></section>"#
            )
        };
    }
    let raw = format!("/api/tenant/{}/build/{uuid}/console?attempt={}", segment(tenant), console.attempt);
    let mut tabs = Html::new();
    if entry.attempts.len() > 1 {
        for attempt in &entry.attempts {
            let number = attempt.attempt.to_string();
            let current =
                if attempt.attempt == console.attempt { html!(r#" aria-current="true""#) } else { Html::new() };
            put!(
                tabs,
                r#"<a class="chip" href="{}"{}>attempt {}</a> "#,
                frame.to_with(&format!("/build/{uuid}"), &[("attempt", &number)]),
                current,
                number
            );
        }
    }
    let mut lines = Html::new();
    let mut number = console.line;
    let mut paint = Paint::default();
    let mut rest = console.text.as_str();
    let mut rows = Html::new();
    let mut count = 0_usize;
    let mut failed = None;
    while !rest.is_empty() {
        let (one, after) = rest.split_once('\n').unwrap_or((rest, ""));
        rest = after;
        let mut text = Html::new();
        let (stamp, said) = ansi::stamp(one);
        if !stamp.is_empty() {
            put!(text, r#"<span class="ts">{}</span>"#, stamp);
        }
        let cut = ansi::line(said, &mut paint, &mut text);
        let class = ansi::class(said);
        if class == " fail" && failed.is_none() {
            failed = Some(number);
        }
        put!(
            rows,
            r##"<div class="line{}" id="L{}"><a href="#L{}" aria-label="line {}">{}</a><code>{}{}</code></div>"##,
            class,
            number,
            number,
            number,
            number,
            text,
            if cut { html!(r#"<i class="muted"> … cut: the rest is in the raw text</i>"#) } else { Html::new() }
        );
        number += 1;
        count += 1;
        if count.is_multiple_of(200) {
            put!(lines, r#"<div class="chunk">{}</div>"#, rows);
            rows = Html::new();
        }
    }
    if !rows.is_empty() {
        put!(lines, r#"<div class="chunk">{}</div>"#, rows);
    }
    let running =
        entry.attempts.last().is_some_and(|last| last.attempt == console.attempt && last.finished_at.is_none())
            && entry.finished_at.is_none();
    let state = match (console.there, console.ended, running) {
        (false, _, true) => "It says nothing yet.",
        (false, _, false) => "There is no console of this attempt here any more.",
        (true, true, _) => "The console ends here.",
        (true, false, true) => "It goes on.",
        (true, false, false) => "There is more.",
    };
    let offset = console.next.to_string();
    let line = number.to_string();
    let attempt = console.attempt.to_string();
    let next = if console.there && !console.ended {
        html!(
            r#" <a class="plain-only" href="{}">Read on from line {}</a>"#,
            frame.to_with(&format!("/build/{uuid}"), &[("attempt", &attempt), ("offset", &offset), ("line", &line)]),
            line
        )
    } else {
        Html::new()
    };
    let first = if console.offset > 0 {
        html!(
            r#"<p class="small"><a href="{}">from its first line</a></p>"#,
            frame.to_with(&format!("/build/{uuid}"), &[("attempt", &attempt)])
        )
    } else {
        Html::new()
    };
    let more = if console.there && !console.ended || running { "1" } else { "0" };
    html!(
        r#"<section class="card console-card" data-key="console-{}-{}" data-keep="all"><header><h2>Console</h2> {}{}<span class="end tools"><label class="script-only"><input type="checkbox" id="follow" checked> follow</label> <a href="{}">raw text</a></span></header>{}<div class="console" id="console" role="region" aria-label="Console" tabindex="0" data-url="{}" data-offset="{}" data-line="{}" data-more="{}" data-page="{}">{}</div><p class="small muted" id="console-state">{}{}</p></section>"#,
        attempt,
        console.offset,
        tabs,
        failed.map_or_else(Html::new, |failed| html!(
            r##"<a class="chip bad" href="#L{}">first failure: line {}</a>"##,
            failed,
            failed
        )),
        raw,
        first,
        raw,
        offset,
        line,
        more,
        frame.to_with(&format!("/build/{uuid}"), &[("attempt", &attempt)]),
        lines,
        state,
        next
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
            (Some(_), None) => "granted",
            (None, None) if frame.then => "asked",
            (None, None) => &lease.phase,
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
