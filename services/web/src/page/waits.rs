//! What waits, and why: the worst first.

use gatelog_replay::waits::{Standing, TOLD_AFTER_MS, Wait};

use super::frame::{Content, Frame, Tab};
use super::html::{Html, html, put, segment};
use super::words;
use crate::error::ApiError;
use crate::query::Query;
use crate::reading::Reading;
use crate::shape::ms;
use crate::waits::{self, CapacityThen, Told};

/// How many are named on the page of the queues.
const NAMED: usize = 5;

/// The page of a tenant's waits.
pub(crate) fn page(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    query: &Query,
    then: &CapacityThen,
) -> Result<Content, ApiError> {
    let all = query.truth("all")?.unwrap_or(false);
    let told = waits::of_reading(reading, then, Some(tenant), Vec::new(), all)?;
    let other = match all {
        true => {
            html!(r#"<a class="button quiet" href="{}">Only what waits for more than a minute</a>"#, frame.to("/waits"))
        }
        false => {
            html!(
                r#"<a class="button quiet" href="{}">Shorter waits, too</a>"#,
                frame.to_with("/waits", &[("all", "true")])
            )
        }
    };
    let mut main = html!(
        r#"<div class="head"><h1>What waits, and why</h1><p class="summary" role="status">{}</p>{}</div>"#,
        summary(&told),
        other
    );
    if told.waits.is_empty() {
        let minutes = TOLD_AFTER_MS / 60_000;
        let said = if all {
            "Nothing waits.".to_owned()
        } else {
            format!("Nothing has waited for more than {minutes} minute.")
        };
        put!(main, r#"<div class="card empty-state"><p class="lead">{}</p></div>"#, said);
    }
    for (standing, title) in [
        (Standing::HeldUp, "Held up: does not go on by itself"),
        (Standing::Waiting, "Waits its turn"),
        (Standing::Working, "Being worked on"),
    ] {
        let of: Vec<&Wait> = told.waits.iter().filter(|wait| wait.reason.standing == standing).collect();
        if !of.is_empty() {
            put!(main, r#"<section class="card">{}</section>"#, table(frame, &told, title, &of));
        }
    }
    if told.left_off > 0 {
        put!(main, r#"<p class="muted">{} more, which have waited less long.</p>"#, told.left_off);
    }
    Ok(Content { title: format!("{tenant} waits"), tab: Tab::Status, kind: "waits", main, item: None, live: true })
}

fn summary(told: &Told) -> String {
    let count = |standing| told.waits.iter().filter(|wait| wait.reason.standing == standing).count();
    format!(
        "{} held up, {} waiting, {} worked on",
        count(Standing::HeldUp),
        count(Standing::Waiting),
        count(Standing::Working)
    )
}

fn table(frame: &Frame, told: &Told, title: &str, waits: &[&Wait]) -> Html {
    let mut rows = Html::new();
    for wait in waits {
        put!(
            rows,
            r#"<tr><th scope="row" data-label="what">{}</th><td data-label="reason"><code title="{}">{}</code></td><td data-label="why">{}</td><td data-label="since">{}</td><td data-label="for how long">{}</td><td data-label="ends when">{}</td></tr>"#,
            name(frame, wait),
            wait.reason.means,
            wait.reason.code,
            why(wait),
            words::moment_ms(ms(wait.since)),
            words::since(ms(wait.since), ms(told.now)),
            wait.ends_when.as_str()
        );
    }
    html!(
        r#"<table class="rows"><caption>{}</caption><thead><tr><th scope="col">What</th><th scope="col">Reason</th><th scope="col">Why, and the cure</th><th scope="col">Since</th><th scope="col">How long</th><th scope="col">Ends when</th></tr></thead><tbody>{}</tbody></table>"#,
        title,
        rows
    )
}

fn name(frame: &Frame, wait: &Wait) -> Html {
    match waits::page_of(wait) {
        Some((kind, id)) => {
            html!(r#"<a href="{}">{}</a>"#, frame.to(&format!("/{kind}/{}", segment(&id))), wait.name.as_str())
        }
        None => html!("{}", wait.name.as_str()),
    }
}

fn why(wait: &Wait) -> Html {
    let detail = if wait.detail.is_empty() { wait.reason.means } else { wait.detail.as_str() };
    let mut out = coded(detail);
    if wait.reason.standing == Standing::HeldUp && !wait.cure.is_empty() {
        put!(out, r#"<br><span class="muted">cure: {}</span>"#, coded(&wait.cure));
    }
    out
}

/// A text in which commands and keys stand between backticks.
fn coded(text: &str) -> Html {
    let mut out = Html::new();
    let mut parts = text.split('`').peekable();
    let mut code = false;
    while let Some(part) = parts.next() {
        match (code, parts.peek()) {
            (true, Some(_)) => put!(out, "<code>{}</code>", part),
            // Without its end it is none.
            (true, None) => put!(out, "`{}", part),
            (false, _) => put!(out, "{}", part),
        }
        code = !code;
    }
    out
}

/// What of a tenant is held up, for the page of its queues; empty when nothing is.
pub(crate) fn held_up(reading: &Reading<'_>, frame: &Frame, tenant: &str) -> Result<Html, ApiError> {
    if frame.then {
        return Ok(Html::new());
    }
    let told = waits::of_reading(reading, &None, Some(tenant), Vec::new(), false)?;
    let held: Vec<&Wait> = told.waits.iter().filter(|wait| wait.reason.standing == Standing::HeldUp).collect();
    if held.is_empty() {
        return Ok(Html::new());
    }
    let mut rows = Html::new();
    for wait in held.iter().take(NAMED) {
        put!(
            rows,
            r#"<li>{} <code>{}</code> {} <span class="muted">· for {}</span></li>"#,
            name(frame, wait),
            wait.reason.code,
            coded(if wait.detail.is_empty() { wait.reason.means } else { wait.detail.as_str() }),
            words::since(ms(wait.since), ms(told.now))
        );
    }
    Ok(html!(
        r#"<section class="card note bad-edge" data-key="held-up" aria-label="Held up"><p><b>{} held up</b> <a href="{}">what waits, and why</a></p><ul>{}</ul></section>"#,
        held.len(),
        frame.to("/waits"),
        rows
    ))
}

#[cfg(test)]
mod tests {
    use super::coded;

    #[test]
    fn what_stands_between_backticks_is_code_and_nothing_is_taken_as_html() {
        for (text, shown) in [
            ("plain <b>", "plain &lt;b&gt;"),
            ("run `gatelog x` now", "run <code>gatelog x</code> now"),
            ("one ` alone", "one ` alone"),
        ] {
            assert_eq!(coded(text).into_string(), shown);
        }
    }
}
