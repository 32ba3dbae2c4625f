//! What operators asked for that stands: whether a tenant's outside events wait, and which nodes are kept.

use serde_json::Value as Json;

use super::frame::Frame;
use super::html::{Html, html, put};
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
        return Html::new();
    };
    let reason = match text(state, "reason") {
        "" => Html::new(),
        reason => html!(" {}", reason),
    };
    html!(
        r#"<p class="card warn-edge" data-key="intake" role="status"><span class="mark warn" aria-hidden="true">{}</span> <b>{}</b>{} <span class="muted">{}</span></p>"#,
        sign,
        what,
        reason,
        then
    )
}

/// The requests to keep nodes, with what each keeps; nothing where there are none.
pub(crate) fn kept(reading: &Reading<'_>, frame: &Frame, tenant: &str) -> Result<Html, ApiError> {
    let mut rows = Html::new();
    for request in holds::list(reading, tenant, None)? {
        let refs = match request.ref_filter.as_str() {
            ".*" => html!(r#"<span class="muted">any</span>"#),
            filter => html!("<code>{}</code>", filter),
        };
        put!(
            rows,
            r#"<tr data-key="kept-{}"><th scope="row" data-label="request">{}</th><td data-label="job">{}</td><td data-label="project">{}</td><td data-label="refs">{}</td><td data-label="why">{}</td><td data-label="kept">{} of {}{}</td></tr>"#,
            request.id,
            request.id,
            request.job,
            short(&request.project),
            refs,
            request.reason,
            request.current_count,
            request.max_count,
            nodes(frame, &request)
        );
    }
    if rows.is_empty() {
        return Ok(rows);
    }
    Ok(html!(
        r#"<section class="card" id="kept" data-key="kept"><table class="rows"><caption>Nodes to be kept when a job fails</caption><thead><tr><th scope="col">Request</th><th scope="col">Job</th><th scope="col">Project</th><th scope="col">Refs</th><th scope="col">Why</th><th scope="col">Kept</th></tr></thead><tbody>{}</tbody></table></section>"#,
        rows
    ))
}

fn nodes(frame: &Frame, request: &Autohold) -> Html {
    let mut rows = Html::new();
    for held in &request.nodes {
        let build = &held.build;
        let mut names = Html::new();
        for node in &held.nodes {
            put!(names, "<code>{}</code> ", node);
        }
        put!(
            rows,
            r#"<li>node {} of worker {}, of <a href="{}">this build</a>, for {}{}</li>"#,
            names,
            held.worker.as_deref().unwrap_or_default(),
            frame.to(&format!("/build/{build}")),
            words::since(held.since_ms, frame.clock_ms()),
            held.until_ms.map_or_else(Html::new, |until| html!(", until {}", words::moment_ms(until)))
        );
    }
    if rows.is_empty() { rows } else { html!(r#"<ul class="plain small">{}</ul>"#, rows) }
}
