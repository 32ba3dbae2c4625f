//! Why a job is what it is, or why it is not there: the trace of a freezing, step by step.

use gatelog_rules_config::freeze::story::{JobStory, Look};
use gatelog_rules_config::freeze::trace::{Action, FreezeTrace, JobFate};
use serde_json::Value as Json;

use maud::html;

use super::buildset::{find, trace, trace_of};
use super::frame::{Content, Frame, Tab};
use super::html::{Html, Piece};
use super::parts::{self, crumbs, subjects};
use super::words::Stand;
use crate::error::ApiError;
use crate::reading::Reading;
use crate::shape::short;

pub(crate) fn page(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    uuid: &str,
    name: &str,
) -> Result<Content, ApiError> {
    let (buildset, row, item) = find(reading, tenant, uuid)?;
    let missing = || ApiError::NotFound(format!("jobs were not chosen for buildset {buildset}: nothing explains them"));
    let trace = trace(reading, trace_of(row.frozen.as_ref()).ok_or_else(missing)?)?;
    let Some(job) = trace.story(name) else {
        return Err(ApiError::NotFound(format!(
            "nobody asked for a job {name:?} in {} for {} {}: neither the project nor a template names it",
            trace.pipeline, trace.project, trace.branch
        )));
    };
    let (stand, fate) = fate(job.fate);
    let mut main = html! {
        (crumbs(&[
            (frame.to(&format!("/item/{}", row.item)), subjects(&item)),
            (frame.to(&format!("/buildset/{buildset}")), html! { "buildset in " (row.pipeline) }),
        ]))
        div class="head" { h1 { "Why " (job.name) } (stand.badge(fate)) }
    };
    main.add(html! {
        p class={ "card lead " (if stand == Stand::Bad { "bad-edge" } else { "note" }) } {
            (stand.mark())
            " "
            b { (job.name) }
            " "
            (fate)
            " for "
            (short(&trace.project))
            " "
            (trace.branch)
            " in "
            (trace.pipeline)
            ": "
            (job.reason)
            " "
            code { (job.code) }
        }
    });
    main.add(looks("1. Who asks for it", "Stanzas and templates of the project", &trace.stanza_looks()));
    main.add(looks("2. Definitions looked at", "Parents first, each with every variant", &job.looks));
    main.add(applied(&job));
    main.add(attributes(&job));
    main.add(looks("5. File matchers", "What the changed files said", &job.files));
    main.add(others(frame, uuid, &trace, name));
    Ok(Content {
        title: format!("why {name}"),
        tab: Tab::Buildsets,
        kind: "why",
        main,
        item: Some(row.item),
        live: false,
    })
}

fn fate(fate: JobFate) -> (Stand, &'static str) {
    match fate {
        JobFate::Runs => (Stand::Good, "runs"),
        JobFate::Absent => (Stand::Quiet, "does not run"),
        JobFate::Refused => (Stand::Bad, "cannot run"),
    }
}

fn looks(title: &str, says: &str, looks: &[Look]) -> Html {
    if looks.is_empty() {
        return Html::default();
    }
    let mut rows = Html::default();
    for look in looks {
        let depth = look.path.len().min(8);
        rows.add(html! {
            li class={ "d" (depth) (if look.matched { "" } else { " minor" }) } {
                @if look.matched { (Stand::Good.mark()) } @else { (Stand::Quiet.mark()) }
                div {
                    b { (look.what) }
                    " "
                    span class="place" { (look.place.to_string()) }
                    br;
                    span { (look.reason) }
                    " "
                    code { (look.code) }
                }
            }
        });
    }
    html! {
        section class="card" {
            h2 { (title) }
            p class="muted small" { (says) ": a tick counted, a dash did not." }
            ol class="looks" { (rows) }
        }
    }
}

fn applied(job: &JobStory) -> Html {
    if job.applied.is_empty() {
        return Html::default();
    }
    let mut rows = Html::default();
    for look in &job.applied {
        rows.add(html! { li { b { (look.what) } " " span class="place" { (look.place.to_string()) } } });
    }
    html! {
        section class="card" {
            h2 { "3. Definitions applied, in order" }
            p class="muted small" { "A later one overrides what an earlier one set." }
            ol { (rows) }
        }
    }
}

fn attributes(job: &JobStory) -> Html {
    if job.attributes.is_empty() {
        return Html::default();
    }
    let mut rows = Html::default();
    for step in &job.attributes {
        let (stand, what) = match step.action {
            Action::Set => (Stand::Good, "set"),
            Action::Replaced => (Stand::Warn, "replaced"),
            Action::Merged => (Stand::Good, "added to"),
            Action::Refused => (Stand::Bad, "refused"),
            Action::Ruled => (Stand::Quiet, "ruled"),
        };
        rows.add(html! {
            tr {
                th scope="row" data-label="attribute" { code { (step.attribute) } }
                td data-label="what" { (stand.mark()) " " (what) }
                td data-label="value" { code class="value" { (value(&step.value)) } }
                td data-label="who" {
                    span class="place" { (step.place.to_string()) }
                    @if let Some(before) = step.before.as_ref() {
                        br;
                        span class="muted small" { "before: " (before.to_string()) }
                    }
                }
                td data-label="why" { (step.reason) }
            }
        });
    }
    html! {
        section class="card" {
            table class="rows" {
                caption { "4. Attributes: who set what" }
                thead {
                    tr {
                        th scope="col" { "Attribute" }
                        th scope="col" { "What" }
                        th scope="col" { "Value" }
                        th scope="col" { "Who" }
                        th scope="col" { "Why" }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

/// JSON text, laid out where it is long.
fn value(text: &str) -> String {
    match serde_json::from_str::<Json>(text) {
        Ok(json) if text.len() > 80 => serde_json::to_string_pretty(&json).unwrap_or_else(|_| text.to_owned()),
        _ => text.to_owned(),
    }
}

/// The other jobs of the same freezing.
fn others(frame: &Frame, uuid: &str, trace: &FreezeTrace, name: &str) -> Html {
    let mut rows = Html::default();
    for job in trace.jobs.iter().filter(|job| job.name != name) {
        let (stand, fate) = fate(job.fate);
        rows.add(html! {
            li {
                (stand.mark())
                " "
                a href=(parts::why(frame, uuid, &job.name)) { (job.name) }
                " "
                span class="muted" { (fate) ": " (job.reason) }
            }
        });
    }
    if rows.is_empty() {
        return rows;
    }
    html! { section class="card" { h2 { "The other jobs" } ul class="plain" { (rows) } } }
}
