//! What waits, and why: the worst first.

use gatelog_replay::waits::{Standing, TOLD_AFTER_MS, Wait};

use maud::html;

use super::frame::{Content, Frame, Tab};
use super::html::{Html, Piece, segment};
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
            html! {
                a class="button quiet" href=(frame.to("/waits")) { "Only what waits for more than a minute" }
            }
        }
        false => {
            html! {
                a class="button quiet" href=(frame.to_with("/waits", &[("all", "true")])) {
                    "Shorter waits, too"
                }
            }
        }
    };
    let mut main = html! {
        div class="head" {
            h1 { "What waits, and why" }
            p class="summary" role="status" { (summary(&told)) }
            (other)
        }
    };
    if told.waits.is_empty() {
        let minutes = TOLD_AFTER_MS / 60_000;
        let said = if all {
            "Nothing waits.".to_owned()
        } else {
            format!("Nothing has waited for more than {minutes} minute.")
        };
        main.add(html! { div class="card empty-state" { p class="lead" { (said) } } });
    }
    for (standing, title) in [
        (Standing::HeldUp, "Held up: does not go on by itself"),
        (Standing::Waiting, "Waits its turn"),
        (Standing::Working, "Being worked on"),
    ] {
        let of: Vec<&Wait> = told.waits.iter().filter(|wait| wait.reason.standing == standing).collect();
        if !of.is_empty() {
            main.add(html! { section class="card" { (table(frame, &told, title, &of)) } });
        }
    }
    if told.left_off > 0 {
        main.add(html! { p class="muted" { (told.left_off) " more, which have waited less long." } });
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
    let mut rows = Html::default();
    for wait in waits {
        rows.add(html! {
            tr {
                th scope="row" data-label="what" { (name(frame, wait)) }
                td data-label="reason" { code title=(wait.reason.means) { (wait.reason.code) } }
                td data-label="why" { (why(wait)) }
                td data-label="since" { (words::moment_ms(ms(wait.since))) }
                td data-label="for how long" { (words::since(ms(wait.since), ms(told.now))) }
                td data-label="ends when" { (wait.ends_when.as_str()) }
            }
        });
    }
    html! {
        table class="rows" {
            caption { (title) }
            thead {
                tr {
                    th scope="col" { "What" }
                    th scope="col" { "Reason" }
                    th scope="col" { "Why, and the cure" }
                    th scope="col" { "Since" }
                    th scope="col" { "How long" }
                    th scope="col" { "Ends when" }
                }
            }
            tbody { (rows) }
        }
    }
}

fn name(frame: &Frame, wait: &Wait) -> Html {
    match waits::page_of(wait) {
        Some((kind, id)) => {
            html! { a href=(frame.to(&format!("/{kind}/{}", segment(&id)))) { (wait.name.as_str()) } }
        }
        None => html! { (wait.name.as_str()) },
    }
}

fn why(wait: &Wait) -> Html {
    let detail = if wait.detail.is_empty() { wait.reason.means } else { wait.detail.as_str() };
    let mut out = coded(detail);
    if wait.reason.standing == Standing::HeldUp && !wait.cure.is_empty() {
        out.add(html! { br; span class="muted" { "cure: " (coded(&wait.cure)) } });
    }
    out
}

/// A text in which commands and keys stand between backticks.
fn coded(text: &str) -> Html {
    let mut out = Html::default();
    let mut parts = text.split('`').peekable();
    let mut code = false;
    while let Some(part) = parts.next() {
        match (code, parts.peek()) {
            (true, Some(_)) => out.add(html! { code { (part) } }),
            // Without its end it is none.
            (true, None) => out.add(html! { "`" (part) }),
            (false, _) => out.add(part),
        }
        code = !code;
    }
    out
}

/// What of a tenant is held up, for the page of its queues; empty when nothing is.
pub(crate) fn held_up(reading: &Reading<'_>, frame: &Frame, tenant: &str) -> Result<Html, ApiError> {
    if frame.then {
        return Ok(Html::default());
    }
    let told = waits::of_reading(reading, &None, Some(tenant), Vec::new(), false)?;
    let held: Vec<&Wait> = told.waits.iter().filter(|wait| wait.reason.standing == Standing::HeldUp).collect();
    if held.is_empty() {
        return Ok(Html::default());
    }
    let mut rows = Html::default();
    for wait in held.iter().take(NAMED) {
        rows.add(html! {
            li {
                (name(frame, wait))
                " "
                code { (wait.reason.code) }
                " "
                (coded(if wait.detail.is_empty() { wait.reason.means } else { wait.detail.as_str() }))
                " "
                span class="muted" { "· for " (words::since(ms(wait.since), ms(told.now))) }
            }
        });
    }
    Ok(html! {
        section class="card note bad-edge" data-key="held-up" aria-label="Held up" {
            p { b { (held.len()) " held up" } " " a href=(frame.to("/waits")) { "what waits, and why" } }
            ul { (rows) }
        }
    })
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
