//! Why a job is what it is, or why it is not there: the trace of a freezing, step by step.

use gatelog_rules_config::freeze::story::{JobStory, Look};
use gatelog_rules_config::freeze::trace::{Action, FreezeTrace, JobFate};
use serde_json::Value as Json;

use super::buildset::{find, trace, trace_of};
use super::frame::{Content, Frame, Tab};
use super::html::{Html, html, put};
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
    let mut main = html!(
        r#"{}<div class="head"><h1>Why {}</h1>{}</div>"#,
        crumbs(&[
            (frame.to(&format!("/item/{}", row.item)), subjects(&item)),
            (frame.to(&format!("/buildset/{buildset}")), html!("buildset in {}", row.pipeline)),
        ]),
        job.name,
        stand.badge(fate)
    );
    put!(
        main,
        r#"<p class="card lead {}">{} <b>{}</b> {} for {} {} in {}: {} <code>{}</code></p>"#,
        if stand == Stand::Bad { "bad-edge" } else { "note" },
        stand.mark(),
        job.name,
        fate,
        short(&trace.project),
        trace.branch,
        trace.pipeline,
        job.reason,
        job.code
    );
    put!(main, "{}", looks("1. Who asks for it", "Stanzas and templates of the project", &trace.stanza_looks()));
    put!(main, "{}", looks("2. Definitions looked at", "Parents first, each with every variant", &job.looks));
    put!(main, "{}", applied(&job));
    put!(main, "{}", attributes(&job));
    put!(main, "{}", looks("5. File matchers", "What the changed files said", &job.files));
    put!(main, "{}", others(frame, uuid, &trace, name));
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
        return Html::new();
    }
    let mut rows = Html::new();
    for look in looks {
        let depth = look.path.len().min(8);
        put!(
            rows,
            r#"<li class="d{}{}">{}<div><b>{}</b> <span class="place">{}</span><br><span>{}</span> <code>{}</code></div></li>"#,
            depth,
            if look.matched { "" } else { " minor" },
            if look.matched { Stand::Good.mark() } else { Stand::Quiet.mark() },
            look.what,
            look.place.to_string(),
            look.reason,
            look.code
        );
    }
    html!(
        r#"<section class="card"><h2>{}</h2><p class="muted small">{}: a tick counted, a dash did not.</p><ol class="looks">{}</ol></section>"#,
        title,
        says,
        rows
    )
}

fn applied(job: &JobStory) -> Html {
    if job.applied.is_empty() {
        return Html::new();
    }
    let mut rows = Html::new();
    for look in &job.applied {
        put!(rows, r#"<li><b>{}</b> <span class="place">{}</span></li>"#, look.what, look.place.to_string());
    }
    html!(
        r#"<section class="card"><h2>3. Definitions applied, in order</h2><p class="muted small">A later one overrides what an earlier one set.</p><ol>{}</ol></section>"#,
        rows
    )
}

fn attributes(job: &JobStory) -> Html {
    if job.attributes.is_empty() {
        return Html::new();
    }
    let mut rows = Html::new();
    for step in &job.attributes {
        let (stand, what) = match step.action {
            Action::Set => (Stand::Good, "set"),
            Action::Replaced => (Stand::Warn, "replaced"),
            Action::Merged => (Stand::Good, "added to"),
            Action::Refused => (Stand::Bad, "refused"),
            Action::Ruled => (Stand::Quiet, "ruled"),
        };
        put!(
            rows,
            r#"<tr><th scope="row" data-label="attribute"><code>{}</code></th><td data-label="what">{} {}</td><td data-label="value"><code class="value">{}</code></td><td data-label="who"><span class="place">{}</span>{}</td><td data-label="why">{}</td></tr>"#,
            step.attribute,
            stand.mark(),
            what,
            value(&step.value),
            step.place.to_string(),
            step.before.as_ref().map_or_else(Html::new, |before| html!(
                r#"<br><span class="muted small">before: {}</span>"#,
                before.to_string()
            )),
            step.reason
        );
    }
    html!(
        r#"<section class="card"><table class="rows"><caption>4. Attributes: who set what</caption><thead><tr><th scope="col">Attribute</th><th scope="col">What</th><th scope="col">Value</th><th scope="col">Who</th><th scope="col">Why</th></tr></thead><tbody>{}</tbody></table></section>"#,
        rows
    )
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
    let mut rows = Html::new();
    for job in trace.jobs.iter().filter(|job| job.name != name) {
        let (stand, fate) = fate(job.fate);
        put!(
            rows,
            r#"<li>{} <a href="{}">{}</a> <span class="muted">{}: {}</span></li>"#,
            stand.mark(),
            parts::why(frame, uuid, &job.name),
            job.name,
            fate,
            job.reason
        );
    }
    if rows.is_empty() {
        return rows;
    }
    html!(r#"<section class="card"><h2>The other jobs</h2><ul class="plain">{}</ul></section>"#, rows)
}
