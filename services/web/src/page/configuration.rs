//! The tenants, and what is wrong with a tenant's configuration.

use gatelog_capacity_state::WorkerRow;

use super::frame::{Content, Frame, Tab};
use super::html::{Html, html, put, segment};
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
    let mut rows = Html::new();
    for (number, name) in names.iter().enumerate() {
        let path = format!("/t/{}", segment(name));
        if reading.rules_of(name)?.is_some_and(|rules| !rules.is_open(Some(name))) {
            let status = in_time(frame, &format!("{path}/status"));
            let words = "Not everybody may look.";
            put!(
                rows,
                r#"<li class="card" data-key="{}"><h2><a href="{}">{}</a></h2><p class="muted">{}</p></li>"#,
                name,
                status,
                name,
                words
            );
            continue;
        }
        let layout = reading.history().layout(name, reading.at)?;
        let errors = layout.map_or(0, |layout| layout.errors + u32::from(layout.failed.is_some()));
        let state = if errors > 0 {
            Stand::Bad.badge(&words::many(errors as usize, "configuration error", "configuration errors"))
        } else {
            Html::new()
        };
        let mut counted = Html::new();
        if number < COUNTED {
            let (items, pipelines) = status::count(reading, name)?;
            put!(
                counted,
                "{} in {}",
                words::many(items, "item", "items"),
                words::many(pipelines, "pipeline", "pipelines")
            );
        }
        let status = in_time(frame, &format!("{path}/status"));
        put!(
            rows,
            r#"<li class="card" data-key="{}"><h2><a href="{}">{}</a></h2><p class="muted">{}</p>{}<p class="small links"><a href="{}">builds</a> <a href="{}">buildsets</a> <a href="{}">configuration</a></p></li>"#,
            name,
            status,
            name,
            counted,
            state,
            in_time(frame, &format!("{path}/builds")),
            in_time(frame, &format!("{path}/buildsets")),
            in_time(frame, &format!("{path}/config-errors"))
        );
    }
    let main = if names.is_empty() {
        html!(
            r#"<h1>Tenants</h1><p class="card empty">There are none yet: the tenant file is not read, or names none.</p>"#
        )
    } else {
        html!(r#"<h1>Tenants</h1><ul class="tenants">{}</ul>"#, rows)
    };
    // Signs of life are no part of history: of the past only the workers are told, which capacity knew.
    let components = if frame.then { workers_then(workers) } else { components(present()) };
    let what_if = in_time(frame, "/what-if");
    let main = html!(
        r#"{}<p class="links"><a href="{}">What would have been, had something been otherwise</a></p>{}"#,
        main,
        what_if,
        components
    );
    Ok(Content { title: "tenants".into(), tab: Tab::Tenants, kind: "tenants", main, item: None, live: true })
}

/// Who is there. Zuul: its page of components.
fn components(mut present: Vec<Component>) -> Html {
    if present.is_empty() {
        return Html::new();
    }
    present.sort_by(|a, b| a.name.cmp(&b.name));
    let mut rows = Html::new();
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
        put!(
            rows,
            r#"<tr><th scope="row">{}</th><td>{} <span class="small muted">{}</span></td><td>{}</td><td>{}</td></tr>"#,
            component.name,
            stand.badge(component.state.name()),
            more,
            component.roles.join(", "),
            component.version
        );
    }
    html!(
        r#"<section class="card"><table class="rows"><caption>Components</caption><thead><tr><th scope="col">Process</th><th scope="col">State</th><th scope="col">Roles</th><th scope="col">Version</th></tr></thead><tbody>{}</tbody></table></section>"#,
        rows
    )
}

/// The workers there were.
fn workers_then(workers: &[(String, WorkerRow)]) -> Html {
    let mut rows = Html::new();
    for (name, row) in workers {
        put!(
            rows,
            r#"<tr><th scope="row">{}</th><td>{} of {}</td><td>{}</td><td>{}</td></tr>"#,
            name,
            u64::from(row.used),
            u64::from(row.offer.slots),
            row.offer.labels.join(", "),
            words::moment(row.joined_at)
        );
    }
    if rows.is_empty() {
        return rows;
    }
    html!(
        r#"<section class="card"><table class="rows"><caption>Workers then</caption><thead><tr><th scope="col">Worker</th><th scope="col">Slots used</th><th scope="col">Labels</th><th scope="col">Joined</th></tr></thead><tbody>{}</tbody></table></section>"#,
        rows
    )
}

/// A path at the page's moment.
fn in_time(frame: &Frame, path: &str) -> String {
    let at = frame.at.to_string();
    super::frame::address(path, frame.then.then_some(("at", at.as_str())).into_iter())
}

pub(crate) fn errors(reading: &Reading<'_>, tenant: &str, query: &Query) -> Result<Content, ApiError> {
    let rows = configuration::errors(reading, tenant, query)?;
    let mut out = Html::new();
    for problem in &rows {
        let place = &problem.source_context;
        let mut at = html!("{}", place.project.as_deref().unwrap_or_default());
        if let Some(branch) = &place.branch {
            put!(at, "@{}", branch);
        }
        if let Some(path) = &place.path {
            put!(at, " {}", path);
        }
        if let Some(line) = problem.line.filter(|line| *line > 0) {
            put!(at, ":{}:{}", line, problem.column.unwrap_or_default());
        }
        let bad = problem.severity == "error";
        put!(
            out,
            r#"<li class="card problem {}"><p>{} <b>{}</b> <span class="place">{}</span></p><p>{}</p>{}<details><summary>all of it</summary><pre>{}</pre></details></li>"#,
            if bad { "bad-edge" } else { "note" },
            if bad { Stand::Bad.badge("error") } else { Stand::Warn.badge(&problem.severity) },
            problem.name,
            at,
            problem.short_error,
            match problem.cure.as_deref().unwrap_or_default() {
                "" => Html::new(),
                cure => html!(r#"<p class="cure"><b>Cure:</b> {}</p>"#, cure),
            },
            problem.error
        );
    }
    let layout = reading.history().layout(tenant, reading.at)?;
    let in_force = match &layout {
        Some(layout) => html!(
            r#"<p class="muted">Configuration {} of this tenant, in force since {}</p>"#,
            layout.generation,
            words::moment(layout.activated_at)
        ),
        None => html!(r#"<p class="muted">No configuration is in force yet.</p>"#),
    };
    let list = if rows.is_empty() {
        html!(r#"<p class="card empty">{} Nothing is wrong with it.</p>"#, Stand::Good.mark())
    } else {
        html!(r#"<ol class="problems">{}</ol>"#, out)
    };
    let main = html!("<h1>Configuration</h1>{}{}", in_force, list);
    Ok(Content {
        title: format!("{tenant} configuration"),
        tab: Tab::Errors,
        kind: "config-errors",
        main,
        item: None,
        live: false,
    })
}
