//! The live queues of a tenant, now or then.

use std::collections::BTreeMap;

use gatelog_record::Timestamp;
use serde_json::Value as Json;

use super::frame::{Content, Frame, Tab};
use super::html::{Html, html, outside, put};
use super::parts::{list, meter, reference_told, text};
use super::words::{self, Stand};
use super::{asked, lists, waits};
use crate::error::ApiError;
use crate::estimate::Estimate;
use crate::query::Query;
use crate::reading::Reading;
use crate::status::{Document, Item, Job, Pipeline, Queue};
use crate::timers;

/// The most places of a window that are drawn one by one.
const DRAWN: usize = 40;

/// The parameters beside the moment: a text that items must have.
pub(crate) const PARAMETERS: &[&str] = &["filter"];

/// What the page shows beside the queues.
pub(crate) struct Beside {
    /// Whether changes can be pushed to one of the connections.
    by_git: bool,
    held_up: Html,
    kept: Html,
    lately: Html,
    /// Of each pipeline with timers, when one is due next.
    timers: BTreeMap<String, Html>,
}

impl Beside {
    /// When a pipeline begins by the calendar next; nothing where it does not.
    fn due(&self, pipeline: &str) -> Html {
        self.timers.get(pipeline).cloned().unwrap_or_default()
    }
}

/// Looks up what the queues do not tell.
pub(crate) fn beside(reading: &Reading<'_>, frame: &Frame, tenant: &str) -> Result<Beside, ApiError> {
    Ok(Beside {
        by_git: reading.app.site.drivers.values().any(|driver| driver == "plain-git"),
        held_up: waits::held_up(reading, frame, tenant)?,
        kept: asked::kept(reading, frame, tenant)?,
        lately: lists::lately(reading, frame, tenant)?,
        timers: timers::next_of_pipelines(reading, tenant)?.into_iter().map(due_next).collect(),
    })
}

/// When a pipeline begins by the calendar next.
fn due_next((pipeline, (time, at)): (String, (String, Timestamp))) -> (String, Html) {
    let next = words::moment_ms(crate::shape::ms(at));
    (pipeline, html!(r#" <span class="muted small">timer <code>{}</code>, next {}</span>"#, time, next))
}

pub(crate) fn page(
    frame: &Frame,
    tenant: &str,
    query: &Query,
    document: &Document,
    beside: &Beside,
) -> Result<Content, ApiError> {
    let wanted = Wanted(query.one("filter")?.unwrap_or_default().to_lowercase());
    let pipelines = &document.pipelines;
    let count: usize = pipelines.iter().map(items_of).sum();
    let own = if count > 1 || !wanted.0.is_empty() {
        filter(frame, query.one("filter")?.unwrap_or_default(), &wanted, document, count)
    } else {
        Html::new()
    };
    let mut main = html!(
        r#"<div class="head"><h1>Status</h1>{}{}<a class="end small" href="{}">what waits, and why</a></div>"#,
        summary(document),
        own,
        frame.to("/waits")
    );
    put!(main, "{}", asked::intake(&document.json));
    if let Some(wait) = document.json.get("wait").filter(|wait| !wait.is_null()) {
        put!(main, r#"<div class="card note">The tenant waits: {}</div>"#, waiting(frame, wait));
    }
    put!(main, "{}", beside.held_up);
    if frame.errors > 0 {
        put!(
            main,
            r#"<p class="note card bad-edge">{} <a href="{}">{} in the configuration</a></p>"#,
            Stand::Bad.mark(),
            frame.to("/config-errors"),
            words::many(usize::try_from(frame.errors).unwrap_or(usize::MAX), "error", "errors")
        );
    }
    if pipelines.is_empty() {
        put!(main, r#"<p class="card empty">No pipelines yet: the tenant's configuration is not loaded.</p>"#);
    } else if count == 0 {
        put!(main, "{}", nothing_queued(beside, frame, pipelines));
    }
    // What is going on comes first; pipelines without items make one line each.
    let (busy, idle): (Vec<&Pipeline>, Vec<&Pipeline>) = pipelines.iter().partition(|pipeline| items_of(pipeline) > 0);
    for pipeline in busy {
        pipeline_section(&mut main, frame, pipeline, &wanted, beside);
    }
    if !idle.is_empty() {
        let mut rows = Html::new();
        for pipeline in idle {
            let pipeline = &pipeline.json;
            put!(
                rows,
                r#"<li data-key="idle-{}"><h2>{}</h2> {} <span class="muted">{}</span>{}<a class="end" href="{}">past buildsets</a></li>"#,
                text(pipeline, "name"),
                text(pipeline, "name"),
                manager(pipeline),
                text(pipeline, "description"),
                beside.due(text(pipeline, "name")),
                frame.to_with("/buildsets", &[("pipeline", text(pipeline, "name"))])
            );
        }
        put!(
            main,
            r#"<section class="card idle" data-key="idle" aria-label="Empty pipelines"><p class="muted small">{}</p><ul>{}</ul></section>"#,
            if count == 0 { "Pipelines" } else { "Nothing in" },
            rows
        );
    }
    put!(main, "{}{}", beside.kept, beside.lately);
    Ok(Content { title: format!("{tenant} status"), tab: Tab::Status, kind: "status", main, item: None, live: true })
}

/// A text that items must have somewhere: in lower case; empty has everything.
struct Wanted(String);

impl Wanted {
    fn fits(&self, pipeline: &str, item: &Item) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.0);
        self.0.is_empty()
            || has(pipeline)
            || list(&item.piece.json, "refs")
                .iter()
                .any(|one| ["project", "id", "branch", "url"].iter().any(|name| has(text(one, name))))
            || item.jobs.iter().any(|job| has(text(&job.piece.json, "name")))
    }
}

/// The field where people look for their change.
fn filter(frame: &Frame, asked: &str, wanted: &Wanted, document: &Document, count: usize) -> Html {
    let fit: usize = document
        .pipelines
        .iter()
        .map(|pipeline| pipeline.items().filter(|item| wanted.fits(text(&pipeline.json, "name"), item)).count())
        .sum();
    let said = if wanted.0.is_empty() {
        Html::new()
    } else {
        html!(
            r#"<span class="small muted" role="status">{} of {}</span> <a class="button quiet" href="{}">Clear</a>"#,
            fit,
            words::many(count, "item", "items"),
            frame.to("/status")
        )
    };
    let at = if frame.then { html!(r#"<input type="hidden" name="at" value="{}">"#, frame.at) } else { Html::new() };
    html!(
        r#"<form class="mine" method="get" action="{}" role="search" aria-label="Items">{}<input type="search" name="filter" value="{}" placeholder="your change, project or job" aria-label="Your change, project or job" maxlength="200" autocomplete="off" spellcheck="false"><button class="quiet">Filter</button>{}</form>"#,
        frame.path,
        at,
        asked,
        said
    )
}

/// What is said when all queues are empty: how something gets into them.
fn nothing_queued(beside: &Beside, frame: &Frame, pipelines: &[Pipeline]) -> Html {
    if frame.then {
        return html!(r#"<div class="card empty-state"><p class="lead">Nothing was queued.</p></div>"#);
    }
    let triggered = pipelines.iter().any(|pipeline| !list(&pipeline.json, "triggers").is_empty());
    let how = if beside.by_git {
        html!(
            "Push to <code>refs/for/&lt;branch&gt;/&lt;name&gt;</code> of a project to propose a change, and to <code>refs/approved/&lt;branch&gt;/&lt;name&gt;</code> to approve it."
        )
    } else if triggered {
        html!("A change that is proposed or approved at the review system comes here by itself.")
    } else {
        html!("No pipeline has a trigger: nothing gets in until one is configured.")
    };
    html!(r#"<div class="card empty-state"><p class="lead">Nothing is queued.</p><p class="muted">{}</p></div>"#, how)
}

fn items_of(pipeline: &Pipeline) -> usize {
    pipeline.items().count()
}

/// One sentence, read aloud when it changes.
fn summary(document: &Document) -> Html {
    let (mut count, mut failing, mut running) = (0, 0, 0);
    for item in document.pipelines.iter().flat_map(Pipeline::items) {
        count += 1;
        failing += usize::from(stand(item) == Stand::Bad);
        running += item.jobs.iter().filter(|job| is_running(&job.piece.json)).count();
    }
    let mut out = html!("{}", words::many(count, "item", "items"));
    if running > 0 {
        put!(out, ", {} running", words::many(running, "job", "jobs"));
    }
    if failing > 0 {
        put!(out, ", {} failing", failing);
    }
    match document.json["trigger_event_queue"]["length"].as_u64() {
        None | Some(0) => {}
        Some(triggers) => put!(out, ", {} waiting to be looked at", triggers),
    }
    html!(r#"<p class="summary" id="summary" role="status" aria-live="polite">{}</p>"#, out)
}

fn manager(pipeline: &Json) -> Html {
    match text(pipeline, "manager") {
        "" => Html::new(),
        manager => html!(r#"<span class="chip">{}</span>"#, manager),
    }
}

fn pipeline_section(out: &mut Html, frame: &Frame, pipeline: &Pipeline, wanted: &Wanted, beside: &Beside) {
    let name = text(&pipeline.json, "name");
    if !pipeline.items().any(|item| wanted.fits(name, item)) {
        return;
    }
    put!(
        out,
        r#"<section class="pipeline card" data-key="pipeline-{}" aria-label="Pipeline {}"><header><h2>{}</h2> {} <span class="count">{}</span><span class="muted desc">{}</span>{}<a class="end" href="{}">past buildsets</a></header>"#,
        name,
        name,
        name,
        manager(&pipeline.json),
        items_of(pipeline),
        text(&pipeline.json, "description"),
        beside.due(name),
        frame.to_with("/buildsets", &[("pipeline", name)])
    );
    for queue in &pipeline.queues {
        queue_section(out, frame, &pipeline.json, queue, wanted);
    }
    put!(out, "</section>");
}

fn queue_section(out: &mut Html, frame: &Frame, pipeline: &Json, queue: &Queue, wanted: &Wanted) {
    let name = text(pipeline, "name");
    let all: Vec<&Item> = queue.heads.iter().flatten().collect();
    if !all.iter().any(|item| wanted.fits(name, item)) {
        return;
    }
    let names: BTreeMap<&str, &Json> =
        all.iter().map(|item| (text(&item.piece.json, "uuid"), &item.piece.json)).collect();
    let window = queue.json["window"].as_u64().unwrap_or_default();
    // Where each item has a queue of its own, the queue has nothing to say.
    let (key, header) = if pipeline["manager"] == "independent" {
        (all.last().map_or("", |item| text(&item.piece.json, "uuid")), Html::new())
    } else {
        let name = text(&queue.json, "name");
        (name, html!("<header><h3>{}</h3>{}</header>", name, window_meter(window, &all)))
    };
    put!(out, r#"<section class="queue" data-key="queue-{}">{}<ol class="items">"#, key, header);
    let mut before: Option<&str> = None;
    let mut outside_window = false;
    for item in &all {
        let json = &item.piece.json;
        if json["active"] == false && !outside_window {
            outside_window = true;
            put!(
                out,
                r#"<li class="window-end" data-key="window-end"><span>the window ends here: {} at a time</span></li>"#,
                words::many(usize::try_from(window).unwrap_or(usize::MAX), "item", "items")
            );
        }
        if wanted.fits(name, item) {
            item_row(out, frame, item, before, &names);
        }
        before = Some(text(json, "uuid"));
    }
    put!(out, "</ol></section>");
}

/// The window, drawn: a square for each place, filled where an item stands.
fn window_meter(window: u64, items: &[&Item]) -> Html {
    if window == 0 {
        return html!(r#"<span class="muted small">no window: every item at once</span>"#);
    }
    let places = usize::try_from(window).unwrap_or(usize::MAX).min(DRAWN);
    let mut cells = Html::new();
    for (number, place) in (0..places.max(items.len().min(DRAWN))).enumerate() {
        let class = items.get(place).map_or("free", |item| stand(item).class());
        let beyond = if place >= places { " beyond" } else { "" };
        put!(
            cells,
            r#"<rect class="cell {}{}" x="{}" y="1" width="7" height="10" rx="1.5"/>"#,
            class,
            beyond,
            number * 9
        );
    }
    let width = places.max(items.len().min(DRAWN)) * 9;
    html!(
        r#"<span class="window"><svg viewBox="0 0 {} 12" width="{}" height="12" aria-hidden="true" focusable="false">{}</svg> <span class="small muted">window {} of {}</span></span>"#,
        width,
        width,
        cells,
        items.iter().filter(|item| item.piece.json["active"] == true).count(),
        window
    )
}

fn is_running(job: &Json) -> bool {
    job["result"].is_null() && !job["start_time"].is_null() && job["queued"] == false
}

/// How an item stands.
fn stand(item: &Item) -> Stand {
    let json = &item.piece.json;
    if !list(json, "failing_reasons").is_empty() || json["result"].is_string() {
        return Stand::Bad;
    }
    if item.jobs.iter().any(|job| is_running(&job.piece.json)) {
        return Stand::Running;
    }
    if !item.jobs.is_empty() && item.jobs.iter().all(|job| job.piece.json["result"].is_string()) {
        return Stand::Good;
    }
    Stand::Waiting
}

fn item_row(out: &mut Html, frame: &Frame, whole: &Item, before: Option<&str>, names: &BTreeMap<&str, &Json>) {
    let item = &whole.piece.json;
    let uuid = text(item, "uuid");
    let stand = stand(whole);
    let ahead = item["item_ahead"].as_str();
    let mut refs = Html::new();
    let mut outsides = Html::new();
    for (number, one) in list(item, "refs").iter().enumerate() {
        put!(refs, "{}{}", if number == 0 { "" } else { " + " }, reference_told(one));
        if text(one, "url").starts_with("http") {
            put!(outsides, " {}", outside(text(one, "url"), "review ↗"));
        }
    }
    let chained = if ahead.is_some() && ahead == before { " chained" } else { "" };
    let word = match stand {
        Stand::Bad => "failing",
        Stand::Good => "passed",
        Stand::Running => "running",
        _ => "waiting",
    };
    put!(
        out,
        r#"<li class="item {}{}" data-key="item-{}"><span class="rail" aria-hidden="true"></span><article><header><h4><a href="{}">{}</a></h4>{}{}"#,
        stand.class(),
        chained,
        uuid,
        frame.to(&format!("/item/{uuid}")),
        refs,
        outsides,
        stand.badge(word)
    );
    if item["live"] == false {
        put!(out, r#" <span class="chip" title="it runs nothing itself">only needed by others</span>"#);
    }
    let enqueued = item["enqueue_time"].as_i64().unwrap_or_default();
    let buildset = item["buildset"].as_str().map_or_else(Html::new, |buildset| {
        html!(r#" · <a href="{}">job graph</a>"#, frame.to(&format!("/buildset/{buildset}")))
    });
    put!(
        out,
        r#"<span class="end small muted">{}<span>in the queue for {}</span>{}</span></header>"#,
        eta(whole),
        words::since(enqueued, frame.clock_ms()),
        buildset
    );
    if let Some(ahead) = ahead.filter(|ahead| Some(*ahead) != before)
        && let Some(other) = names.get(ahead)
    {
        let mut refs = Html::new();
        for one in list(other, "refs") {
            put!(refs, "{}", reference_told(one));
        }
        put!(
            out,
            r#"<p class="small muted">tested on top of <a href="{}">{}</a>, not of what failed</p>"#,
            frame.to(&format!("/item/{ahead}")),
            refs
        );
    }
    let problem = item.get("problem").filter(|problem| !problem.is_null());
    for reason in list(item, "failing_reasons") {
        // The problem tells it in more words.
        if problem.is_some_and(|problem| text(problem, "code") == reason.as_str().unwrap_or_default()) {
            continue;
        }
        put!(out, r#"<p class="reason bad-text">{} {}</p>"#, Stand::Bad.mark(), reason.as_str().unwrap_or_default());
    }
    if let Some(problem) = problem {
        put!(
            out,
            r#"<p class="reason bad-text">{} <code>{}</code> {}</p>"#,
            Stand::Bad.mark(),
            text(problem, "code"),
            text(problem, "message")
        );
    }
    if let Some(wait) = item.get("wait").filter(|wait| !wait.is_null()) {
        put!(out, r#"<p class="reason">{}</p>"#, waiting(frame, wait));
    }
    if !whole.jobs.is_empty() {
        put!(out, r#"<ul class="jobs" aria-label="Jobs">"#);
        for job in &whole.jobs {
            job_row(out, frame, job);
        }
        put!(out, "</ul>");
    }
    if let Some(resets) = item["resets"].as_u64().filter(|resets| *resets > 0) {
        put!(
            out,
            r#"<p class="small muted">{} begun anew {}</p>"#,
            Stand::Warn.mark(),
            words::many(usize::try_from(resets).unwrap_or(usize::MAX), "time", "times")
        );
    }
    put!(out, "</article></li>");
}

/// How long an item is thought to need.
fn eta(item: &Item) -> Html {
    match item.remaining {
        Some(left) if left > 0 => html!(
            r#"<span title="the longest way through its jobs, by the mean of their last successes">about {} left</span> · "#,
            words::took(left / 1_000 * 1_000)
        ),
        _ => Html::new(),
    }
}

fn waiting(frame: &Frame, wait: &Json) -> Html {
    let since = wait["since_ms"].as_i64().unwrap_or_default();
    let mut out = html!(
        r#"<span class="mark waiting" aria-hidden="true">◌</span> <code>{}</code> {} <span class="muted">for {}</span>"#,
        text(wait, "code"),
        text(wait, "detail"),
        words::since(since, frame.clock_ms())
    );
    if !text(wait, "unblocks").is_empty() {
        put!(out, r#" <span class="muted">· goes on with: {}</span>"#, text(wait, "unblocks"));
    }
    out
}

/// A job's row, as far as it stays as it is while nothing happens to the job.
#[derive(Debug)]
pub(crate) struct JobHtml {
    before: Html,
    /// The bar and what is left of a job that runs come before it.
    runs: bool,
}

impl JobHtml {
    fn of(frame: &Frame, job: &Job) -> JobHtml {
        let (json, uuid) = (&job.piece.json, text(&job.piece.json, "uuid"));
        let runs = is_running(json);
        let (stand, says) = match (json["result"].as_str(), runs) {
            (Some(result), _) => {
                let length = job.elapsed.map_or_else(String::new, words::took);
                let says = html!(r#"{} <span class="num muted">{}</span>"#, words::result_badge(result), length);
                (Stand::of_result(result), says)
            }
            (None, true) => (Stand::Running, Stand::Running.badge("running")),
            (None, false) => (Stand::Waiting, html!("{} {}", Stand::Waiting.badge("waiting"), why(&json["wait"]))),
        };
        let mut more = Html::new();
        if json["voting"] == false {
            put!(more, r#" <span class="chip">non-voting</span>"#);
        }
        if let Some(tries) = json["tries"].as_u64().filter(|tries| *tries > 1) {
            put!(more, r#" <span class="chip">attempt {}</span>"#, tries);
        }
        let mut before = html!(
            r#"<li class="job {}" data-key="job-{}"><span class="name"><a href="{}">{}</a>{}</span><span class="says">{}"#,
            stand.class(),
            uuid,
            frame.to(&format!("/build/{uuid}")),
            text(json, "name"),
            more,
            says
        );
        if !runs {
            put!(before, r#"</span><span class="meter"></span></li>"#);
        }
        JobHtml { before, runs }
    }
}

/// What a job waits for.
fn why(wait: &Json) -> Html {
    match text(wait, "detail") {
        "" => html!(""),
        detail => html!(
            r#"<span class="muted"><code>{}</code> {}{}</span>"#,
            text(wait, "code"),
            detail,
            match text(wait, "unblocks") {
                "" => html!(""),
                unblocks => html!(" · goes on with: {}", unblocks),
            }
        ),
    }
}

fn job_row(out: &mut Html, frame: &Frame, job: &Job) {
    let html = job.piece.html.get_or_init(|| JobHtml::of(frame, job));
    put!(out, "{}", html.before);
    if html.runs {
        let json = &job.piece.json;
        let start_ms = json["start_time"].as_f64().map(|seconds| (seconds * 1_000.0) as i64);
        let estimate = Estimate::read(&json["estimate"]);
        let (bar, left) = meter(frame, text(json, "name"), start_ms.unwrap_or_default(), estimate);
        put!(out, r#"{}</span><span class="meter">{}</span></li>"#, left, bar);
    }
}
