//! What operators asked for that stands: whether a tenant's outside events wait, and which nodes are kept.

use serde_json::Value as Json;

use maud::html;

use super::frame::Frame;
use super::html::{Html, Piece};
use super::parts::text;
use super::words;
use crate::answers::Autohold;
use crate::error::ApiError;
use crate::operators::holds;
use crate::reading::Reading;
use crate::shape::short;

/// Says that outside events wait or are dropped, and why, by a tenant's status.
pub(crate) fn intake(document: &Json) -> Html {
    let state = &document["state"];
    let (sign, what, then) = if state["trigger_queue_discarding"] == true {
        ("⊘", "Events from outside are dropped.", "What is queued goes on; what comes meanwhile is gone.")
    } else if state["trigger_queue_paused"] == true {
        ("‖", "Events from outside wait.", "What is queued goes on; what comes meanwhile is dealt with afterwards.")
    } else {
        return Html::default();
    };
    let reason = match text(state, "reason") {
        "" => Html::default(),
        reason => html! { " " (reason) },
    };
    html! {
        p class="card warn-edge" data-key="intake" role="status" {
            span class="mark warn" aria-hidden="true" { (sign) }
            " "
            b { (what) }
            (reason)
            " "
            span class="muted" { (then) }
        }
    }
}

/// The requests to keep nodes, with what each keeps; nothing where there are none.
pub(crate) fn kept(reading: &Reading<'_>, frame: &Frame, tenant: &str) -> Result<Html, ApiError> {
    let mut rows = Html::default();
    for request in holds::list(reading, tenant, None)? {
        let refs = match request.ref_filter.as_str() {
            ".*" => html! { span class="muted" { "any" } },
            filter => html! { code { (filter) } },
        };
        rows.add(html! {
            tr data-key={ "kept-" (request.id) } {
                th scope="row" data-label="request" { (request.id) }
                td data-label="job" { (request.job) }
                td data-label="project" { (short(&request.project)) }
                td data-label="refs" { (refs) }
                td data-label="why" { (request.reason) }
                td data-label="kept" {
                    (request.current_count)
                    " of "
                    (request.max_count)
                    (nodes(frame, &request))
                }
            }
        });
    }
    if rows.is_empty() {
        return Ok(rows);
    }
    Ok(html! {
        section class="card" id="kept" data-key="kept" {
            table class="rows" {
                caption { "Nodes to be kept when a job fails" }
                thead {
                    tr {
                        th scope="col" { "Request" }
                        th scope="col" { "Job" }
                        th scope="col" { "Project" }
                        th scope="col" { "Refs" }
                        th scope="col" { "Why" }
                        th scope="col" { "Kept" }
                    }
                }
                tbody { (rows) }
            }
        }
    })
}

fn nodes(frame: &Frame, request: &Autohold) -> Html {
    let mut rows = Html::default();
    for held in &request.nodes {
        let build = &held.build;
        let mut names = Html::default();
        for node in &held.nodes {
            names.add(html! { code { (node) } " " });
        }
        rows.add(html! {
            li {
                "node "
                (names)
                " of worker "
                (held.worker.as_deref().unwrap_or_default())
                ", of "
                a href=(frame.to(&format!("/build/{build}"))) { "this build" }
                ", for "
                (words::since(held.since_ms, frame.clock_ms()))
                @if let Some(until) = held.until_ms { ", until " (words::moment_ms(until)) }
            }
        });
    }
    if rows.is_empty() {
        rows
    } else {
        html! { ul class="plain small" { (rows) } }
    }
}
