//! The console of an attempt: a part of its lines, what was looked for in it, where the rest is.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use gatelog_gate_state::history::BuildEntry;
use gatelog_log_files::manifest::RESULTS;
use gatelog_record::BuildId;

use maud::html;

use super::ansi;
use super::frame::{Frame, address, guard};
use super::html::{Finished, Html, Piece, segment};
use super::logs::{Logs, address as address_of};
use crate::console::lines::{self, Line, Opened, Part};
use crate::console::{self, FIND_PARAMETERS, Found, LINE_PARAMETERS, words};
use crate::error::ApiError;
use crate::job_logs::removal_told;
use crate::query::Query;
use crate::reading::App;

/// The parameters of a build's page that are about its console: which attempt; from which line on, or
/// around which; what is looked for, and from which line, or byte of it, on; whether what is stored is meant.
pub(crate) const PARAMETERS: &[&str] =
    &["attempt", "from", "line", "text", "regex", "after_line", "after_byte", "stored"];
/// How many lines stand in the page itself; the script fetches more, links lead to more.
const SHOWN: usize = 500;
/// How many lines stand before the one a link leads to.
const BEFORE: u64 = 12;
/// How much is read to count lines while the page is made, in bytes; the script has the rest counted.
const COUNTED: u64 = 16 << 20;
/// The most hits a page has at once.
const HITS: usize = 100;
/// A chunk of lines the browser lays out at once.
const CHUNK: usize = 250;

/// What is shown of a console.
#[derive(Default)]
pub(crate) struct Console {
    /// Whether there is one.
    there: bool,
    attempt: u32,
    part: Part,
    from: u64,
    /// The line that is pointed at.
    marked: Option<u64>,
    /// Whether what is shown is what is stored.
    stored: bool,
    /// Why the console cannot be read where it is.
    trouble: Option<String>,
    looked_for: Option<(String, bool, Result<Found, String>)>,
}

/// Reads the part of a console a request asks for.
pub(crate) async fn read(
    app: &Arc<App>,
    build: BuildId,
    attempts: &BTreeSet<u32>,
    query: &Query,
) -> Result<Console, ApiError> {
    let line = query.number("line", u64::MAX >> 1)?.map(|line| line.max(1));
    let from = query.number("from", u64::MAX >> 1)?;
    let from = from.or(line.map(|line| line.saturating_sub(BEFORE))).unwrap_or(1).max(1);
    let stored = query.truth("stored")?.unwrap_or(false);
    let attempt = match query.number("attempt", u64::from(u32::MAX))?.and_then(|number| u32::try_from(number).ok()) {
        Some(wanted) if attempts.contains(&wanted) => wanted,
        Some(wanted) => return Err(ApiError::NotFound(format!("build {build} has no attempt {wanted}"))),
        None => match attempts.last() {
            Some(last) => *last,
            None => return Ok(Console::default()),
        },
    };
    let mut console = Console { attempt, from, marked: line, stored, ..Console::default() };
    let mut opened = lines::open(app, build, attempt, stored).await?;
    if let Some(live) = &opened {
        match part(live, from).await {
            Ok(part) => (console.there, console.stored, console.part) = (true, live.stored, part),
            Err(error) => {
                tracing::warn!("the console of build {build} cannot be read: {error}");
                console.trouble = Some(error.to_string());
                opened = if live.stored { None } else { lines::open(app, build, attempt, true).await? };
                if let Some(stored) = &opened
                    && let Ok(part) = part(stored, from).await
                {
                    (console.there, console.stored, console.part) = (true, true, part);
                }
            }
        }
    }
    if let (Some(text), Some(opened)) = (query.one("text")?, opened.filter(|_| console.there)) {
        let regex = query.truth("regex")?.unwrap_or(false);
        let line = query.number("after_line", u64::MAX >> 1)?.unwrap_or(1);
        let after = console::Place { line, offset: query.number("after_byte", u64::MAX >> 1)? };
        let found = async {
            let wanted = console::Wanted::read(text, regex)?;
            console::hits(&opened, &wanted, after, HITS, stored).await
        };
        console.looked_for = Some((text.to_owned(), regex, found.await.map_err(|error| error.to_string())));
    }
    Ok(console)
}

async fn part(opened: &Opened, from: u64) -> std::io::Result<Part> {
    let part = opened.lines(from, SHOWN, false).await?;
    let known = opened.count(COUNTED).await?;
    Ok(Part {
        known: known.known,
        bytes: known.bytes,
        complete: known.complete,
        ended: known.ended,
        failure: known.failure,
        ..part
    })
}

/// Where a console's pages and raw text are.
struct Places {
    page: String,
    raw: String,
    attempt: String,
    stored: bool,
    at: Option<String>,
}

impl Console {
    /// The attempt that is shown; `None` before the first.
    pub(crate) fn attempt(&self) -> Option<u32> {
        Some(self.attempt).filter(|attempt| *attempt > 0)
    }
}

impl Places {
    fn new(tenant: &str, uuid: &str, attempt: u32, stored: bool, at: Option<String>) -> Places {
        Places {
            page: format!("/t/{}/build/{uuid}", segment(tenant)),
            raw: format!("/api/tenant/{}/build/{uuid}/console", segment(tenant)),
            attempt: attempt.to_string(),
            stored,
            at,
        }
    }

    fn with(&self, path: &str, pairs: &[(&str, &str)]) -> String {
        let own = [("attempt", self.attempt.as_str())];
        let stored = self.stored.then_some(("stored", "true"));
        let at = self.at.as_deref().map(|at| ("at", at));
        address(path, own.into_iter().chain(stored).chain(pairs.iter().copied()).chain(at))
    }

    fn page(&self, pairs: &[(&str, &str)]) -> String {
        self.with(&self.page, pairs)
    }

    fn raw(&self, pairs: &[(&str, &str)]) -> String {
        self.with(&self.raw, pairs)
    }

    /// A line, for good.
    fn line(&self, line: u64) -> String {
        format!("{}#L{line}", self.page(&[("line", &line.to_string())]))
    }
}

/// Lines as rows.
fn rows(part: &Part, places: &Places, marked: Option<u64>) -> Html {
    let mut out = Html::default();
    let mut paint = ansi::paint_after(&String::from_utf8_lossy(&part.before));
    for chunk in part.lines.chunks(CHUNK) {
        let mut lines = Html::default();
        for line in chunk {
            row(line, places, marked, &mut paint, &mut lines);
        }
        out.add(html! {
            div
                class="chunk"
                data-first=(chunk.first().map_or(0, |line| line.number))
                data-next=(chunk.last().map_or(0, |line| line.number + 1))
            {
                (lines)
            }
        });
    }
    out
}

fn row(line: &Line, places: &Places, marked: Option<u64>, paint: &mut ansi::Paint, out: &mut Html) {
    let text = String::from_utf8_lossy(&line.head);
    let (stamp, said) = words::stamp(&text);
    let class = if words::fails(&text) {
        " fail"
    } else if words::begins(said) {
        " begins"
    } else {
        ""
    };
    let mut shown = Html::default();
    if !stamp.is_empty() {
        shown.add(html! { span class="ts" { (stamp) } });
    }
    let cut = ansi::line(said, paint, &mut shown) || line.cut();
    if cut {
        let size = line
            .length
            .map_or_else(|| "a line that has no end yet".to_owned(), |length| format!("a line of {}", size(length)));
        let offset = line.offset.to_string();
        let length = line.length.map(|length| length.to_string());
        let mut pairs = vec![("offset", offset.as_str())];
        pairs.extend(length.as_deref().map(|length| ("limit", length)));
        shown.add(html! {
            span class="cut" {
                " … cut: "
                (size)
                ", "
                a href=(places.raw(&pairs)) tabindex="-1" { "all of it" }
            }
        });
    }
    out.add(html! {
        div
            class={ "line" (class) (if marked == Some(line.number) { " marked" } else { "" }) }
            id={ "L" (line.number) }
        {
            a href=(places.line(line.number)) tabindex="-1" aria-label={ "line " (line.number) } {
                (line.number)
            }
            code { (shown) }
        }
    });
}

/// A number of bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("bytes", 1)];
    let (unit, of) = UNITS.into_iter().find(|(_, of)| bytes >= *of).unwrap_or(("bytes", 1));
    let tenths = bytes / (of / 10).max(1);
    if of == 1 || tenths >= 100 {
        format!("{} {unit}", bytes / of)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// A number with its thousands apart.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// What was found.
fn found(text: &str, regex: bool, found: &Result<Found, String>, places: &Places) -> Html {
    let found = match found {
        Ok(found) => found,
        Err(error) => return html! { p class="bad-text" role="status" { (error) } },
    };
    let mut out = Html::default();
    let count = match (found.hits.len(), found.next) {
        (0, None) => "not found".to_owned(),
        (0, Some(_)) => "not found so far".to_owned(),
        (1, None) => "found on 1 line".to_owned(),
        (hits, None) => format!("found on {hits} lines"),
        (hits, Some(_)) => format!("the first {hits} lines with it"),
    };
    let more = found.next.map_or_else(Html::default, |next| {
        let (line, offset) = (next.line.to_string(), next.offset.map(|offset| offset.to_string()));
        let mut pairs = vec![("text", text), ("after_line", line.as_str())];
        pairs.extend(offset.as_deref().map(|offset| ("after_byte", offset)));
        pairs.extend(regex.then_some(("regex", "true")));
        html! {
            " "
            a
                class="more"
                href=(places.page(&pairs))
                data-from=(line)
                data-offset=(offset.as_deref().unwrap_or_default())
            {
                "look on from line "
                (thousands(next.line))
            }
        }
    });
    out.add(html! { p class="small" role="status" { b { (text) } ": " (count) (more) } });
    if found.hits.is_empty() {
        return out;
    }
    let mut hits = Html::default();
    for hit in &found.hits {
        hits.add(html! {
            li {
                a href=(places.line(hit.line)) data-line=(hit.line) { (thousands(hit.line)) }
                " "
                code { (plain(&hit.before)) mark { (plain(&hit.itself)) } (plain(&hit.after)) }
            }
        });
    }
    out.add(html! { ol class="hits" aria-label="Lines with it" tabindex="0" { (hits) } });
    out
}

/// A text without what a terminal would do.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        out.push_str(before);
        let end = after.find(|letter: char| ('@'..='~').contains(&letter));
        rest = end.and_then(|end| after.get(end + 1..)).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// Which attempts there are, and where the shown one fails first.
fn head(frame: &Frame, uuid: &str, entry: &BuildEntry, console: &Console, places: &Places) -> Html {
    let mut head = Html::default();
    if entry.attempts.len() > 1 {
        let mut tabs = Html::default();
        for attempt in &entry.attempts {
            let number = attempt.attempt.to_string();
            let current = attempt.attempt == console.attempt;
            tabs.add(html! {
                a
                    class="chip"
                    href=(frame.to_with(&format!("/build/{uuid}"), &[("attempt", &number)]))
                    aria-current=[(current).then_some("true")]
                {
                    "attempt "
                    (number)
                }
                " "
            });
        }
        head.add(html! { span class="tabs" role="group" aria-label="Attempts" { (tabs) } });
    }
    if let Some(failed) = console.part.failure {
        head.add(html! {
            a class="chip bad" id="first-failure" href=(places.line(failed)) data-line=(failed) {
                "first failure: line "
                (thousands(failed))
            }
        });
    }
    head
}

/// Looking for something, going to a line, following, and the raw text.
fn tools(frame: &Frame, places: &Places, console: &Console, running: bool, results: Option<&str>) -> Html {
    let (text, regex) = console.looked_for.as_ref().map_or(("", false), |(text, regex, _)| (text.as_str(), *regex));
    let hidden = |stored: bool| {
        let mut out = html! { input type="hidden" name="attempt" value=(console.attempt); };
        if stored {
            out.add(html! { input type="hidden" name="stored" value="true"; });
        }
        if frame.then {
            out.add(html! { input type="hidden" name="at" value=(frame.at); });
        }
        out
    };
    html! {
        div class="console-tools" {
            form id="find" method="get" action=(places.page) role="search" aria-label="In this console" {
                (hidden(console.stored))
                input
                    type="search"
                    name="text"
                    value=(text)
                    placeholder="find in this console"
                    aria-label="Find in this console"
                    maxlength="500"
                    autocomplete="off"
                    spellcheck="false"
                    required;
                label class="small" { input type="checkbox" name="regex" value="true" checked[regex]; " regex" }
                button class="quiet" { "Find" }
            }
            form id="to-line" method="get" action=(places.page) aria-label="Go to a line" {
                (hidden(console.stored))
                label class="small" for="to-line-number" { "line" }
                input
                    id="to-line-number"
                    name="line"
                    inputmode="numeric"
                    pattern="[0-9]+"
                    size="7"
                    autocomplete="off"
                    required;
                button class="quiet" { "Go" }
            }
            span class="end tools" {
                @if running {
                    button type="button" class="quiet script-only" id="follow" aria-pressed="false" { "follow" }
                    " "
                }
                a href=(places.raw(&[])) { "raw" }
                " "
                a href=(places.raw(&[("download", "true")])) download { "download" }
                @if let Some(results) = results {
                    " "
                    a href=(results) { (RESULTS) }
                }
            }
        }
    }
}

/// What stands below the lines.
fn state(console: &Console, logs: &Logs, running: bool, all_shown: bool) -> Html {
    let part = &console.part;
    match (console.there, running) {
        (false, _) if console.trouble.is_some() => html! { "Nothing to show." },
        (false, _) if logs.removed().is_some() => html! {
            (logs.removed().map(removal_told).unwrap_or_default())
        },
        (false, true) => html! { "It says nothing yet." },
        (false, false) => html! { "There is no console of this attempt here any more." },
        (true, _) if part.lines.is_empty() && part.known == 0 && part.ended => html! { "It said nothing." },
        (true, _) if part.lines.is_empty() && console.from > 1 && part.complete => {
            html! {
                "There is no line "
                (thousands(console.from))
                @if !part.ended { " yet" }
                ": "
                (thousands(part.known))
                " so far."
            }
        }
        (true, _) if part.ended && all_shown => {
            html! { "The console ends here: " (thousands(part.known)) " lines, " (size(part.bytes)) "." }
        }
        (true, true) if all_shown => html! { "It goes on." },
        (true, _) if part.lines.is_empty() => {
            html! {
                "There is no line "
                (thousands(console.from))
                " yet: "
                (thousands(part.known))
                " so far."
            }
        }
        (true, _) => html! {
            (thousands(part.known))
            " lines"
            @if part.complete { ", " (size(part.bytes)) } @else { " and more" }
            "."
        },
    }
}

/// The section of a build's page.
pub(crate) fn section(
    frame: &Frame,
    tenant: &str,
    uuid: &str,
    entry: &BuildEntry,
    console: &Console,
    logs: &Logs,
) -> Html {
    if entry.attempts.is_empty() {
        let says = if entry.result.is_some() || entry.given_up() {
            "It ran on no worker: there is nothing to read."
        } else {
            "It has not begun. What it says stands here from its first line on, as soon as there is one."
        };
        return html! {
            section class="card" data-key="console" { h2 { "Console" } p class="empty" { (says) } }
        };
    }
    let places = Places::new(tenant, uuid, console.attempt, console.stored, frame.then.then(|| frame.at.to_string()));
    let part = &console.part;
    let results = logs.has(RESULTS).then(|| address_of(tenant, uuid, console.attempt, RESULTS));
    let running =
        entry.attempts.last().is_some_and(|last| last.attempt == console.attempt && last.finished_at.is_none())
            && entry.finished_at.is_none();
    let head = head(frame, uuid, entry, console, &places);
    let trouble = console.trouble.as_ref().map_or_else(Html::default, |trouble| {
        html! {
            p class="note bad-edge card" role="status" {
                "The worker that has this console cannot be reached now: "
                (trouble)
                ". "
                @if console.there {
                    "Here is what is stored of it; the page tries the worker again when it is loaded anew."
                } @else {
                    "Nothing of it is stored yet. It is not lost: load the page again when the worker is back."
                }
            }
        }
    });
    let hits = console
        .looked_for
        .as_ref()
        .map_or_else(Html::default, |(text, regex, result)| found(text, *regex, result, &places));
    let first = part.lines.first().map_or(console.from, |line| line.number);
    let mut around = Html::default();
    if first > 1 && console.there {
        let back = first.saturating_sub(SHOWN as u64).max(1).to_string();
        around.add(html! {
            p class="small plain-only" {
                a href=(places.page(&[])) { "from its first line" }
                " · "
                a href=(places.page(&[("from", &back)])) { "lines " (back) " to " (first - 1) }
            }
        });
    }
    let all_shown = part.next > part.known && part.complete;
    let state = state(console, logs, running, all_shown);
    let next = if console.there && !all_shown {
        let next = part.next.to_string();
        html! {
            " "
            a class="plain-only" href=(places.page(&[("from", &next)])) { "Read on from line " (next) }
        }
    } else {
        Html::default()
    };
    let fails = entry.result.is_some_and(|result| !matches!(result.word(), "SUCCESS" | "SKIPPED" | "CANCELED"));
    html! {
        section
            class="card console-card"
            data-key={ "console-" (console.attempt) "-" (console.from) "-" (if console.stored { "stored" } else { "live" }) }
            data-keep="all"
        {
            header { h2 { "Console" } (head) }
            (trouble)
            @if console.there { (tools(frame, &places, console, running, results.as_deref())) }
            div id="found" { (hits) }
            (around)
            div
                class="console"
                id="console"
                role="region"
                aria-label="Console"
                tabindex="0"
                data-page=(places.page(&[]))
                data-lines=(places.with(&format!("{}/lines", places.page), &[]))
                data-found=(places.with(&format!("{}/found", places.page), &[]))
                data-known=(part.known)
                data-complete=(flag(part.complete))
                data-ended=(flag(part.ended || !console.there && !running))
                data-running=(flag(running))
                data-failure=(part.failure.map(|line| line.to_string()).unwrap_or_default())
                data-fails=(flag(fails))
            {
                (rows(part, &places, console.marked))
            }
            p class="small muted" id="console-state" { (state) (next) }
        }
    }
}

fn flag(truth: bool) -> &'static str {
    if truth { "1" } else { "0" }
}

/// A piece of a page, for the script.
fn fragment(made: Result<Html, ApiError>) -> Response {
    let (status, html) = match made {
        Ok(html) => (StatusCode::OK, html),
        Err(error) => (error.status(), html! { p class="bad-text" { (error.to_string()) } }),
    };
    let mut response = (status, Body::from(Finished::new(html))).into_response();
    guard(&mut response);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The moment a piece was asked for, as it was said.
fn then(query: &Query) -> Result<Option<String>, ApiError> {
    Ok(query.one("at")?.map(str::to_owned))
}

/// `build/{uuid}/lines`: lines of a console as they stand in its page.
pub(crate) async fn lines_piece(app: Arc<App>, tenant: String, uuid: String, uri: Uri) -> Response {
    let made = async {
        let query = Query::read(uri.query(), LINE_PARAMETERS)?;
        let asked = console::asked(&app, &tenant, &uuid, &query).await?;
        let attempt = asked.attempt.unwrap_or_default();
        let opened = asked.there(&app).await?;
        let part = console::wanted_lines(&app, &opened, &query).await?;
        let places = Places::new(&tenant, &uuid, attempt, query.truth("stored")?.unwrap_or(false), then(&query)?);
        Ok(html! {
            div
                id="part"
                data-next=(part.next)
                data-known=(part.known)
                data-size=(size(part.bytes))
                data-complete=(flag(part.complete))
                data-ended=(flag(part.ended))
                data-failure=(part.failure.map(|line| line.to_string()).unwrap_or_default())
            {
                (rows(&part, &places, None))
            }
        })
    };
    fragment(made.await)
}

/// `build/{uuid}/found`: what was found in a console, as it stands in its page.
pub(crate) async fn found_piece(app: Arc<App>, tenant: String, uuid: String, uri: Uri) -> Response {
    let made = async {
        let query = Query::read(uri.query(), FIND_PARAMETERS)?;
        let asked = console::asked(&app, &tenant, &uuid, &query).await?;
        let attempt = asked.attempt.unwrap_or_default();
        let opened = asked.there(&app).await?;
        let hits = console::wanted_hits(&opened, &query).await?;
        let places = Places::new(&tenant, &uuid, attempt, query.truth("stored")?.unwrap_or(false), then(&query)?);
        let text = query.one("text")?.unwrap_or_default();
        Ok(found(text, query.truth("regex")?.unwrap_or(false), &Ok(hits), &places))
    };
    fragment(made.await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_for_people() {
        for (bytes, text) in
            [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 kB"), (104_857_600, "104 MB"), (1_073_741_824, "1.0 GB")]
        {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(thousands(1), "1");
        assert_eq!(thousands(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(plain("a\u{1b}[31mb\u{1b}[0mc\u{1b}["), "abc");
    }
}
