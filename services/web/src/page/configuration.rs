//! The tenants, and what is wrong with a tenant's configuration.

use gatelog_capacity_state::WorkerRow;

use maud::html;

use super::frame::{Content, Frame, Tab};
use super::html::{Html, Piece, segment};
use super::words::{self, Stand};
use crate::configuration;
use crate::error::ApiError;
use crate::query::Query;
use crate::reading::Reading;
use crate::site::{Component, ComponentState};
use crate::status;

/// Of how many tenants the queues are counted.
const COUNTED: usize = 50;

pub(crate) fn tenants(
    reading: &Reading<'_>,
    frame: &Frame,
    present: impl FnOnce() -> Vec<Component>,
    workers: &[(String, WorkerRow)],
) -> Result<Content, ApiError> {
    let names = reading.history().tenant_names(reading.at)?;
    let mut rows = Html::default();
    for (number, name) in names.iter().enumerate() {
        let path = format!("/t/{}", segment(name));
        if reading.rules_of(name)?.is_some_and(|rules| !rules.is_open(Some(name))) {
            let status = in_time(frame, &format!("{path}/status"));
            let words = "Not everybody may look.";
            rows.add(html! {
                li class="card" data-key=(name) {
                    h2 { a href=(status) { (name) } }
                    p class="muted" { (words) }
                }
            });
            continue;
        }
        let layout = reading.history().layout(name, reading.at)?;
        let errors = layout.map_or(0, |layout| layout.errors + u32::from(layout.failed.is_some()));
        let state = if errors > 0 {
            Stand::Bad.badge(&words::many(errors as usize, "configuration error", "configuration errors"))
        } else {
            Html::default()
        };
        let mut counted = Html::default();
        if number < COUNTED {
            let (items, pipelines) = status::count(reading, name)?;
            counted.add(html! {
                (words::many(items, "item", "items"))
                " in "
                (words::many(pipelines, "pipeline", "pipelines"))
            });
        }
        let status = in_time(frame, &format!("{path}/status"));
        rows.add(html! {
            li class="card" data-key=(name) {
                h2 { a href=(status) { (name) } }
                p class="muted" { (counted) }
                (state)
                p class="small links" {
                    a href=(in_time(frame, &format!("{path}/builds"))) { "builds" }
                    " "
                    a href=(in_time(frame, &format!("{path}/buildsets"))) { "buildsets" }
                    " "
                    a href=(in_time(frame, &format!("{path}/config-errors"))) { "configuration" }
                }
            }
        });
    }
    let main = if names.is_empty() {
        html! {
            h1 { "Tenants" }
            p class="card empty" { "There are none yet: the tenant file is not read, or names none." }
        }
    } else {
        html! { h1 { "Tenants" } ul class="tenants" { (rows) } }
    };
    // Signs of life are no part of history: of the past only the workers are told, which capacity knew.
    let components = if frame.then { workers_then(workers) } else { components(present()) };
    let what_if = in_time(frame, "/what-if");
    let main = html! {
        (main)
        p class="links" { a href=(what_if) { "What would have been, had something been otherwise" } }
        (components)
    };
    Ok(Content { title: "tenants".into(), tab: Tab::Tenants, kind: "tenants", main, item: None, live: true })
}

/// Who is there. Zuul: its page of components.
fn components(mut present: Vec<Component>) -> Html {
    if present.is_empty() {
        return Html::default();
    }
    present.sort_by(|a, b| a.name.cmp(&b.name));
    let mut rows = Html::default();
    for component in &present {
        let (stand, more) = match component.state {
            ComponentState::Running if component.paused.is_empty() => (Stand::Good, String::new()),
            ComponentState::Running => (Stand::Waiting, format!("{} paused", component.paused.join(" and "))),
            ComponentState::Initializing => (Stand::Waiting, String::new()),
            ComponentState::Draining => (Stand::Waiting, "ends what it has begun".to_owned()),
            ComponentState::Stopped if !component.silent => (Stand::Waiting, "it ends".to_owned()),
            ComponentState::Stopped => {
                let age = i64::try_from(component.last_sign.as_millis()).unwrap_or(i64::MAX);
                (Stand::Bad, format!("no sign for {}", words::took(age)))
            }
        };
        rows.add(html! {
            tr {
                th scope="row" { (component.name) }
                td { (stand.badge(component.state.name())) " " span class="small muted" { (more) } }
                td { (component.roles.join(", ")) }
                td { (component.version) }
            }
        });
    }
    html! {
        section class="card" {
            table class="rows" {
                caption { "Components" }
                thead {
                    tr {
                        th scope="col" { "Process" }
                        th scope="col" { "State" }
                        th scope="col" { "Roles" }
                        th scope="col" { "Version" }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

/// The workers there were.
fn workers_then(workers: &[(String, WorkerRow)]) -> Html {
    let mut rows = Html::default();
    for (name, row) in workers {
        rows.add(html! {
            tr {
                th scope="row" { (name) }
                td { (u64::from(row.used)) " of " (u64::from(row.offer.slots)) }
                td { (row.offer.labels.join(", ")) }
                td { (words::moment(row.joined_at)) }
            }
        });
    }
    if rows.is_empty() {
        return rows;
    }
    html! {
        section class="card" {
            table class="rows" {
                caption { "Workers then" }
                thead {
                    tr {
                        th scope="col" { "Worker" }
                        th scope="col" { "Slots used" }
                        th scope="col" { "Labels" }
                        th scope="col" { "Joined" }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

/// A path at the page's moment.
fn in_time(frame: &Frame, path: &str) -> String {
    let at = frame.at.to_string();
    super::frame::address(path, frame.then.then_some(("at", at.as_str())).into_iter())
}

pub(crate) fn errors(reading: &Reading<'_>, tenant: &str, query: &Query) -> Result<Content, ApiError> {
    let rows = configuration::errors(reading, tenant, query)?;
    let mut out = Html::default();
    for problem in &rows {
        let place = &problem.source_context;
        let mut at = html! { (place.project.as_deref().unwrap_or_default()) };
        if let Some(branch) = &place.branch {
            at.add(html! { "@" (branch) });
        }
        if let Some(path) = &place.path {
            at.add(html! { " " (path) });
        }
        if let Some(line) = problem.line.filter(|line| *line > 0) {
            at.add(html! { ":" (line) ":" (problem.column.unwrap_or_default()) });
        }
        let bad = problem.severity == "error";
        out.add(html! {
            li class={ "card problem " (if bad { "bad-edge" } else { "note" }) } {
                p {
                    @if bad { (Stand::Bad.badge("error")) } @else { (Stand::Warn.badge(&problem.severity)) }
                    " "
                    b { (problem.name) }
                    " "
                    span class="place" { (at) }
                }
                p { (problem.short_error) }
                @if let Some(cure) = problem.cure.as_deref().filter(|cure| !cure.is_empty()) {
                    p class="cure" { b { "Cure:" } " " (cure) }
                }
                details { summary { "all of it" } pre { (problem.error) } }
            }
        });
    }
    let layout = reading.history().layout(tenant, reading.at)?;
    let in_force = match &layout {
        Some(layout) => html! {
            p class="muted" {
                "Configuration "
                (layout.generation)
                " of this tenant, in force since "
                (words::moment(layout.activated_at))
            }
        },
        None => html! { p class="muted" { "No configuration is in force yet." } },
    };
    let list = if rows.is_empty() {
        html! { p class="card empty" { (Stand::Good.mark()) " Nothing is wrong with it." } }
    } else {
        html! { ol class="problems" { (out) } }
    };
    let main = html! { h1 { "Configuration" } (in_force) (list) };
    Ok(Content {
        title: format!("{tenant} configuration"),
        tab: Tab::Errors,
        kind: "config-errors",
        main,
        item: None,
        live: false,
    })
}
