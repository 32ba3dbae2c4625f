//! The console of an attempt: a part of its lines, what was looked for in it, where the rest is.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use gatelog_gate_state::history::BuildEntry;
use gatelog_log_files::manifest::RESULTS;
use gatelog_record::BuildId;

use super::ansi;
use super::frame::{Frame, address, guard};
use super::html::{Html, html, put, segment};
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
    let mut out = Html::new();
    let mut paint = ansi::paint_after(&String::from_utf8_lossy(&part.before));
    for chunk in part.lines.chunks(CHUNK) {
        put!(
            out,
            r#"<div class="chunk" data-first="{}" data-next="{}">"#,
            chunk.first().map_or(0, |line| line.number),
            chunk.last().map_or(0, |line| line.number + 1)
        );
        for line in chunk {
            row(line, places, marked, &mut paint, &mut out);
        }
        put!(out, "</div>");
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
    let mut shown = Html::new();
    if !stamp.is_empty() {
        put!(shown, r#"<span class="ts">{}</span>"#, stamp);
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
        put!(
            shown,
            r#"<span class="cut"> … cut: {}, <a href="{}" tabindex="-1">all of it</a></span>"#,
            size,
            places.raw(&pairs)
        );
    }
    put!(
        out,
        r#"<div class="line{}{}" id="L{}"><a href="{}" tabindex="-1" aria-label="line {}">{}</a><code>{}</code></div>"#,
        class,
        if marked == Some(line.number) { " marked" } else { "" },
        line.number,
        places.line(line.number),
        line.number,
        line.number,
        shown
    );
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
        Err(error) => return html!(r#"<p class="bad-text" role="status">{}</p>"#, error),
    };
    let mut out = Html::new();
    let count = match (found.hits.len(), found.next) {
        (0, None) => "not found".to_owned(),
        (0, Some(_)) => "not found so far".to_owned(),
        (1, None) => "found on 1 line".to_owned(),
        (hits, None) => format!("found on {hits} lines"),
        (hits, Some(_)) => format!("the first {hits} lines with it"),
    };
    let more = found.next.map_or_else(Html::new, |next| {
        let (line, offset) = (next.line.to_string(), next.offset.map(|offset| offset.to_string()));
        let mut pairs = vec![("text", text), ("after_line", line.as_str())];
        pairs.extend(offset.as_deref().map(|offset| ("after_byte", offset)));
        pairs.extend(regex.then_some(("regex", "true")));
        html!(
            r#" <a class="more" href="{}" data-from="{}" data-offset="{}">look on from line {}</a>"#,
            places.page(&pairs),
            line,
            offset.as_deref().unwrap_or_default(),
            thousands(next.line)
        )
    });
    put!(out, r#"<p class="small" role="status"><b>{}</b>: {}{}</p>"#, text, count, more);
    if found.hits.is_empty() {
        return out;
    }
    put!(out, r#"<ol class="hits" aria-label="Lines with it" tabindex="0">"#);
    for hit in &found.hits {
        put!(
            out,
            r#"<li><a href="{}" data-line="{}">{}</a> <code>{}<mark>{}</mark>{}</code></li>"#,
            places.line(hit.line),
            hit.line,
            thousands(hit.line),
            plain(&hit.before),
            plain(&hit.itself),
            plain(&hit.after)
        );
    }
    put!(out, "</ol>");
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
        return html!(
            r#"<section class="card" data-key="console"><h2>Console</h2><p class="empty">{}</p></section>"#,
            says
        );
    }
    let places = Places::new(tenant, uuid, console.attempt, console.stored, frame.then.then(|| frame.at.to_string()));
    let part = &console.part;
    let running =
        entry.attempts.last().is_some_and(|last| last.attempt == console.attempt && last.finished_at.is_none())
            && entry.finished_at.is_none();
    let mut head = Html::new();
    if entry.attempts.len() > 1 {
        put!(head, r#"<span class="tabs" role="group" aria-label="Attempts">"#);
        for attempt in &entry.attempts {
            let number = attempt.attempt.to_string();
            let current = attempt.attempt == console.attempt;
            put!(
                head,
                r#"<a class="chip" href="{}"{}>attempt {}</a> "#,
                frame.to_with(&format!("/build/{uuid}"), &[("attempt", &number)]),
                if current { html!(r#" aria-current="true""#) } else { Html::new() },
                number
            );
        }
        put!(head, "</span>");
    }
    if let Some(failed) = part.failure {
        put!(
            head,
            r#"<a class="chip bad" id="first-failure" href="{}" data-line="{}">first failure: line {}</a>"#,
            places.line(failed),
            failed,
            thousands(failed)
        );
    }
    let (text, regex) = console.looked_for.as_ref().map_or(("", false), |(text, regex, _)| (text.as_str(), *regex));
    let hidden = |stored: bool| {
        let mut out = html!(r#"<input type="hidden" name="attempt" value="{}">"#, console.attempt);
        if stored {
            put!(out, r#"<input type="hidden" name="stored" value="true">"#);
        }
        if frame.then {
            put!(out, r#"<input type="hidden" name="at" value="{}">"#, frame.at);
        }
        out
    };
    let tools = html!(
        r#"<div class="console-tools"><form id="find" method="get" action="{}" role="search" aria-label="In this console">{}<input type="search" name="text" value="{}" placeholder="find in this console" aria-label="Find in this console" maxlength="500" autocomplete="off" spellcheck="false" required><label class="small"><input type="checkbox" name="regex" value="true"{}> regex</label><button class="quiet">Find</button></form><form id="to-line" method="get" action="{}" aria-label="Go to a line">{}<label class="small" for="to-line-number">line</label><input id="to-line-number" name="line" inputmode="numeric" pattern="[0-9]+" size="7" autocomplete="off" required><button class="quiet">Go</button></form><span class="end tools">{}<a href="{}">raw</a> <a href="{}" download>download</a>{}</span></div>"#,
        places.page,
        hidden(console.stored),
        text,
        if regex { html!(" checked") } else { Html::new() },
        places.page,
        hidden(console.stored),
        if running {
            html!(
                r#"<button type="button" class="quiet script-only" id="follow" aria-pressed="false">follow</button> "#
            )
        } else {
            Html::new()
        },
        places.raw(&[]),
        places.raw(&[("download", "true")]),
        match logs.has(RESULTS) {
            true => html!(r#" <a href="{}">{}</a>"#, address_of(tenant, uuid, console.attempt, RESULTS), RESULTS),
            false => Html::new(),
        }
    );
    let trouble = console.trouble.as_ref().map_or_else(Html::new, |trouble| {
        html!(
            r#"<p class="note bad-edge card" role="status">The worker that has this console cannot be reached now: {}. {}</p>"#,
            trouble,
            if console.there {
                "Here is what is stored of it; the page tries the worker again when it is loaded anew."
            } else {
                "Nothing of it is stored yet. It is not lost: load the page again when the worker is back."
            }
        )
    });
    let hits = console
        .looked_for
        .as_ref()
        .map_or_else(Html::new, |(text, regex, result)| found(text, *regex, result, &places));
    let first = part.lines.first().map_or(console.from, |line| line.number);
    let mut around = Html::new();
    if first > 1 && console.there {
        let back = first.saturating_sub(SHOWN as u64).max(1).to_string();
        put!(
            around,
            r#"<p class="small plain-only"><a href="{}">from its first line</a> · <a href="{}">lines {} to {}</a></p>"#,
            places.page(&[]),
            places.page(&[("from", &back)]),
            back,
            first - 1
        );
    }
    let all_shown = part.next > part.known && part.complete;
    let state = match (console.there, running) {
        (false, _) if console.trouble.is_some() => html!("Nothing to show."),
        (false, _) if logs.removed().is_some() => html!("{}", logs.removed().map(removal_told).unwrap_or_default()),
        (false, true) => html!("It says nothing yet."),
        (false, false) => html!("There is no console of this attempt here any more."),
        (true, _) if part.lines.is_empty() && part.known == 0 && part.ended => html!("It said nothing."),
        (true, _) if part.lines.is_empty() && console.from > 1 && part.complete => {
            html!(
                "There is no line {}{}: {} so far.",
                thousands(console.from),
                if part.ended { "" } else { " yet" },
                thousands(part.known)
            )
        }
        (true, _) if part.ended && all_shown => {
            html!("The console ends here: {} lines, {}.", thousands(part.known), size(part.bytes))
        }
        (true, true) if all_shown => html!("It goes on."),
        (true, _) if part.lines.is_empty() => {
            html!("There is no line {} yet: {} so far.", thousands(console.from), thousands(part.known))
        }
        (true, _) => html!(
            "{} lines{}.",
            thousands(part.known),
            if part.complete { html!(", {}", size(part.bytes)) } else { html!(" and more") }
        ),
    };
    let next = if console.there && !all_shown {
        let next = part.next.to_string();
        html!(r#" <a class="plain-only" href="{}">Read on from line {}</a>"#, places.page(&[("from", &next)]), next)
    } else {
        Html::new()
    };
    let fails = entry.result.is_some_and(|result| !matches!(result.word(), "SUCCESS" | "SKIPPED" | "CANCELED"));
    html!(
        r#"<section class="card console-card" data-key="console-{}-{}-{}" data-keep="all"><header><h2>Console</h2>{}</header>{}{}<div id="found">{}</div>{}<div class="console" id="console" role="region" aria-label="Console" tabindex="0" data-page="{}" data-lines="{}" data-found="{}" data-known="{}" data-complete="{}" data-ended="{}" data-running="{}" data-failure="{}" data-fails="{}">{}</div><p class="small muted" id="console-state">{}{}</p></section>"#,
        console.attempt,
        console.from,
        if console.stored { "stored" } else { "live" },
        head,
        trouble,
        if console.there { tools } else { Html::new() },
        hits,
        around,
        places.page(&[]),
        places.with(&format!("{}/lines", places.page), &[]),
        places.with(&format!("{}/found", places.page), &[]),
        part.known,
        flag(part.complete),
        flag(part.ended || !console.there && !running),
        flag(running),
        part.failure.map(|line| line.to_string()).unwrap_or_default(),
        flag(fails),
        rows(part, &places, console.marked),
        state,
        next
    )
}

fn flag(truth: bool) -> &'static str {
    if truth { "1" } else { "0" }
}

/// A piece of a page, for the script.
fn fragment(made: Result<Html, ApiError>) -> Response {
    let (status, html) = match made {
        Ok(html) => (StatusCode::OK, html),
        Err(error) => (error.status(), html!(r#"<p class="bad-text">{}</p>"#, error.to_string())),
    };
    let mut response = (status, html.into_string()).into_response();
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
        Ok(html!(
            r#"<div id="part" data-next="{}" data-known="{}" data-size="{}" data-complete="{}" data-ended="{}" data-failure="{}">{}</div>"#,
            part.next,
            part.known,
            size(part.bytes),
            flag(part.complete),
            flag(part.ended),
            part.failure.map(|line| line.to_string()).unwrap_or_default(),
            rows(&part, &places, None)
        ))
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
