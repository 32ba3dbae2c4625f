//! The live queues of a tenant, now or then.

use std::collections::BTreeMap;

use gatelog_record::Timestamp;
use serde_json::Value as Json;

use maud::html;

use super::frame::{Content, Frame, Tab};
use super::html::{Html, Piece, outside};
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
    (pipeline, html! { " " span class="muted small" { "timer " code { (time) } ", next " (next) } })
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
        Html::default()
    };
    let mut main = html! {
        div class="head" {
            h1 { "Status" }
            (summary(document))
            (own)
            a class="end small" href=(frame.to("/waits")) { "what waits, and why" }
        }
    };
    main.add(asked::intake(&document.json));
    if let Some(wait) = document.json.get("wait").filter(|wait| !wait.is_null()) {
        main.add(html! { div class="card note" { "The tenant waits: " (waiting(frame, wait)) } });
    }
    main.add(&beside.held_up);
    if frame.errors > 0 {
        main.add(html! {
            p class="note card bad-edge" {
                (Stand::Bad.mark())
                " "
                a href=(frame.to("/config-errors")) {
                    (words::many(usize::try_from(frame.errors).unwrap_or(usize::MAX), "error", "errors"))
                    " in the configuration"
                }
            }
        });
    }
    if pipelines.is_empty() {
        main.add(html! { p class="card empty" { "No pipelines yet: the tenant's configuration is not loaded." } });
    } else if count == 0 {
        main.add(nothing_queued(beside, frame, pipelines));
    }
    // What is going on comes first; pipelines without items make one line each.
    let (busy, idle): (Vec<&Pipeline>, Vec<&Pipeline>) = pipelines.iter().partition(|pipeline| items_of(pipeline) > 0);
    for pipeline in busy {
        pipeline_section(&mut main, frame, pipeline, &wanted, beside);
    }
    if !idle.is_empty() {
        let mut rows = Html::default();
        for pipeline in idle {
            let pipeline = &pipeline.json;
            rows.add(html! {
                li data-key={ "idle-" (text(pipeline, "name")) } {
                    h2 { (text(pipeline, "name")) }
                    " "
                    (manager(pipeline))
                    " "
                    span class="muted" { (text(pipeline, "description")) }
                    (beside.due(text(pipeline, "name")))
                    a class="end" href=(frame.to_with("/buildsets", &[("pipeline", text(pipeline, "name"))])) {
                        "past buildsets"
                    }
                }
            });
        }
        main.add(html! {
            section class="card idle" data-key="idle" aria-label="Empty pipelines" {
                p class="muted small" { @if count == 0 { "Pipelines" } @else { "Nothing in" } }
                ul { (rows) }
            }
        });
    }
    main.add(html! { (beside.kept) (beside.lately) });
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
        Html::default()
    } else {
        html! {
            span class="small muted" role="status" { (fit) " of " (words::many(count, "item", "items")) }
            " "
            a class="button quiet" href=(frame.to("/status")) { "Clear" }
        }
    };
    let at = if frame.then {
        html! { input type="hidden" name="at" value=(frame.at); }
    } else {
        Html::default()
    };
    html! {
        form class="mine" method="get" action=(frame.path) role="search" aria-label="Items" {
            (at)
            input
                type="search"
                name="filter"
                value=(asked)
                placeholder="your change, project or job"
                aria-label="Your change, project or job"
                maxlength="200"
                autocomplete="off"
                spellcheck="false";
            button class="quiet" { "Filter" }
            (said)
        }
    }
}

/// What is said when all queues are empty: how something gets into them.
fn nothing_queued(beside: &Beside, frame: &Frame, pipelines: &[Pipeline]) -> Html {
    if frame.then {
        return html! { div class="card empty-state" { p class="lead" { "Nothing was queued." } } };
    }
    let triggered = pipelines.iter().any(|pipeline| !list(&pipeline.json, "triggers").is_empty());
    let how = if beside.by_git {
        html! {
            "Push to "
            code { "refs/for/<branch>/<name>" }
            " of a project to propose a change, and to "
            code { "refs/approved/<branch>/<name>" }
            " to approve it."
        }
    } else if triggered {
        html! { "A change that is proposed or approved at the review system comes here by itself." }
    } else {
        html! { "No pipeline has a trigger: nothing gets in until one is configured." }
    };
    html! {
        div class="card empty-state" { p class="lead" { "Nothing is queued." } p class="muted" { (how) } }
    }
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
    let mut out = html! { (words::many(count, "item", "items")) };
    if running > 0 {
        out.add(html! { ", " (words::many(running, "job", "jobs")) " running" });
    }
    if failing > 0 {
        out.add(html! { ", " (failing) " failing" });
    }
    match document.json["trigger_event_queue"]["length"].as_u64() {
        None | Some(0) => {}
        Some(triggers) => out.add(html! { ", " (triggers) " waiting to be looked at" }),
    }
    html! { p class="summary" id="summary" role="status" aria-live="polite" { (out) } }
}

fn manager(pipeline: &Json) -> Html {
    match text(pipeline, "manager") {
        "" => Html::default(),
        manager => html! { span class="chip" { (manager) } },
    }
}

fn pipeline_section(out: &mut Html, frame: &Frame, pipeline: &Pipeline, wanted: &Wanted, beside: &Beside) {
    let name = text(&pipeline.json, "name");
    if !pipeline.items().any(|item| wanted.fits(name, item)) {
        return;
    }
    let mut queues = Html::default();
    for queue in &pipeline.queues {
        queue_section(&mut queues, frame, &pipeline.json, queue, wanted);
    }
    out.add(html! {
        section class="pipeline card" data-key={ "pipeline-" (name) } aria-label={ "Pipeline " (name) } {
            header {
                h2 { (name) }
                " "
                (manager(&pipeline.json))
                " "
                span class="count" { (items_of(pipeline)) }
                span class="muted desc" { (text(&pipeline.json, "description")) }
                (beside.due(name))
                a class="end" href=(frame.to_with("/buildsets", &[("pipeline", name)])) { "past buildsets" }
            }
            (queues)
        }
    });
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
        (all.last().map_or("", |item| text(&item.piece.json, "uuid")), Html::default())
    } else {
        let name = text(&queue.json, "name");
        (name, html! { header { h3 { (name) } (window_meter(window, &all)) } })
    };
    let mut rows = Html::default();
    let mut before: Option<&str> = None;
    let mut outside_window = false;
    for item in &all {
        let json = &item.piece.json;
        if json["active"] == false && !outside_window {
            outside_window = true;
            rows.add(html! {
                li class="window-end" data-key="window-end" {
                    span {
                        "the window ends here: "
                        (words::many(usize::try_from(window).unwrap_or(usize::MAX), "item", "items"))
                        " at a time"
                    }
                }
            });
        }
        if wanted.fits(name, item) {
            item_row(&mut rows, frame, item, before, &names);
        }
        before = Some(text(json, "uuid"));
    }
    out.add(html! { section class="queue" data-key={ "queue-" (key) } { (header) ol class="items" { (rows) } } });
}

/// The window, drawn: a square for each place, filled where an item stands.
fn window_meter(window: u64, items: &[&Item]) -> Html {
    if window == 0 {
        return html! { span class="muted small" { "no window: every item at once" } };
    }
    let places = usize::try_from(window).unwrap_or(usize::MAX).min(DRAWN);
    let mut cells = Html::default();
    for (number, place) in (0..places.max(items.len().min(DRAWN))).enumerate() {
        let class = items.get(place).map_or("free", |item| stand(item).class());
        let beyond = if place >= places { " beyond" } else { "" };
        cells.add(html! {
            rect class={ "cell " (class) (beyond) } x=(number * 9) y="1" width="7" height="10" rx="1.5" {}
        });
    }
    let width = places.max(items.len().min(DRAWN)) * 9;
    html! {
        span class="window" {
            svg viewBox={ "0 0 " (width) " 12" } width=(width) height="12" aria-hidden="true" focusable="false" {
                (cells)
            }
            " "
            span class="small muted" {
                "window "
                (items.iter().filter(|item| item.piece.json["active"] == true).count())
                " of "
                (window)
            }
        }
    }
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

/// What there is to say of an item below its name: what it stands on, what is wrong, what it waits for, its jobs.
fn notes(frame: &Frame, whole: &Item, before: Option<&str>, names: &BTreeMap<&str, &Json>) -> Html {
    let item = &whole.piece.json;
    let mut more = Html::default();
    if let Some(ahead) = item["item_ahead"].as_str().filter(|ahead| Some(*ahead) != before)
        && let Some(other) = names.get(ahead)
    {
        let mut refs = Html::default();
        for one in list(other, "refs") {
            refs.add(reference_told(one));
        }
        more.add(html! {
            p class="small muted" {
                "tested on top of "
                a href=(frame.to(&format!("/item/{ahead}"))) { (refs) }
                ", not of what failed"
            }
        });
    }
    let problem = item.get("problem").filter(|problem| !problem.is_null());
    for reason in list(item, "failing_reasons") {
        // The problem tells it in more words.
        if problem.is_some_and(|problem| text(problem, "code") == reason.as_str().unwrap_or_default()) {
            continue;
        }
        more.add(html! {
            p class="reason bad-text" { (Stand::Bad.mark()) " " (reason.as_str().unwrap_or_default()) }
        });
    }
    if let Some(problem) = problem {
        more.add(html! {
            p class="reason bad-text" {
                (Stand::Bad.mark())
                " "
                code { (text(problem, "code")) }
                " "
                (text(problem, "message"))
            }
        });
    }
    if let Some(wait) = item.get("wait").filter(|wait| !wait.is_null()) {
        more.add(html! { p class="reason" { (waiting(frame, wait)) } });
    }
    if !whole.jobs.is_empty() {
        let mut jobs = Html::default();
        for job in &whole.jobs {
            jobs.add(job_row(frame, job));
        }
        more.add(html! { ul class="jobs" aria-label="Jobs" { (jobs) } });
    }
    if let Some(resets) = item["resets"].as_u64().filter(|resets| *resets > 0) {
        more.add(html! {
            p class="small muted" {
                (Stand::Warn.mark())
                " begun anew "
                (words::many(usize::try_from(resets).unwrap_or(usize::MAX), "time", "times"))
            }
        });
    }
    more
}

fn item_row(out: &mut Html, frame: &Frame, whole: &Item, before: Option<&str>, names: &BTreeMap<&str, &Json>) {
    let item = &whole.piece.json;
    let uuid = text(item, "uuid");
    let stand = stand(whole);
    let ahead = item["item_ahead"].as_str();
    let mut refs = Html::default();
    let mut outsides = Html::default();
    for (number, one) in list(item, "refs").iter().enumerate() {
        refs.add(html! { @if number > 0 { " + " } (reference_told(one)) });
        if text(one, "url").starts_with("http") {
            outsides.add(html! { " " (outside(text(one, "url"), "review ↗")) });
        }
    }
    let chained = if ahead.is_some() && ahead == before { " chained" } else { "" };
    let word = match stand {
        Stand::Bad => "failing",
        Stand::Good => "passed",
        Stand::Running => "running",
        _ => "waiting",
    };
    let needed = if item["live"] == false {
        html! { " " span class="chip" title="it runs nothing itself" { "only needed by others" } }
    } else {
        Html::default()
    };
    let enqueued = item["enqueue_time"].as_i64().unwrap_or_default();
    let buildset = item["buildset"].as_str().map_or_else(Html::default, |buildset| {
        html! { " · " a href=(frame.to(&format!("/buildset/{buildset}"))) { "job graph" } }
    });
    out.add(html! {
        li class={ "item " (stand.class()) (chained) } data-key={ "item-" (uuid) } {
            span class="rail" aria-hidden="true" {}
            article {
                header {
                    h4 { a href=(frame.to(&format!("/item/{uuid}"))) { (refs) } }
                    (outsides)
                    (stand.badge(word))
                    (needed)
                    span class="end small muted" {
                        (eta(whole))
                        span { "in the queue for " (words::since(enqueued, frame.clock_ms())) }
                        (buildset)
                    }
                }
                (notes(frame, whole, before, names))
            }
        }
    });
}

/// How long an item is thought to need.
fn eta(item: &Item) -> Html {
    match item.remaining {
        Some(left) if left > 0 => html! {
            span title="the longest way through its jobs, by the mean of their last successes" {
                "about "
                (words::took(left / 1_000 * 1_000))
                " left"
            }
            " · "
        },
        _ => Html::default(),
    }
}

fn waiting(frame: &Frame, wait: &Json) -> Html {
    let since = wait["since_ms"].as_i64().unwrap_or_default();
    let mut out = html! {
        span class="mark waiting" aria-hidden="true" { "◌" }
        " "
        code { (text(wait, "code")) }
        " "
        (text(wait, "detail"))
        " "
        span class="muted" { "for " (words::since(since, frame.clock_ms())) }
    };
    if !text(wait, "unblocks").is_empty() {
        out.add(html! { " " span class="muted" { "· goes on with: " (text(wait, "unblocks")) } });
    }
    out
}

/// A job's row, as far as it stays as it is while nothing happens to the job.
#[derive(Debug)]
pub(crate) struct JobHtml {
    class: &'static str,
    uuid: String,
    name: Html,
    says: Html,
    /// What is left of a job that runs, and the bar, are told anew each time.
    runs: bool,
}

impl JobHtml {
    fn of(frame: &Frame, job: &Job) -> JobHtml {
        let (json, uuid) = (&job.piece.json, text(&job.piece.json, "uuid"));
        let runs = is_running(json);
        let (stand, says) = match (json["result"].as_str(), runs) {
            (Some(result), _) => {
                let length = job.elapsed.map_or_else(String::new, words::took);
                let says = html! { (words::result_badge(result)) " " span class="num muted" { (length) } };
                (Stand::of_result(result), says)
            }
            (None, true) => (Stand::Running, Stand::Running.badge("running")),
            (None, false) => (
                Stand::Waiting,
                html! {
                    (Stand::Waiting.badge("waiting"))
                    " "
                    (why(&json["wait"]))
                },
            ),
        };
        let mut more = Html::default();
        if json["voting"] == false {
            more.add(html! { " " span class="chip" { "non-voting" } });
        }
        if let Some(tries) = json["tries"].as_u64().filter(|tries| *tries > 1) {
            more.add(html! { " " span class="chip" { "attempt " (tries) } });
        }
        let name = html! { a href=(frame.to(&format!("/build/{uuid}"))) { (text(json, "name")) } (more) };
        JobHtml { class: stand.class(), uuid: uuid.to_owned(), name, says, runs }
    }
}

/// What a job waits for.
fn why(wait: &Json) -> Html {
    match text(wait, "detail") {
        "" => Html::default(),
        detail => html! {
            span class="muted" {
                code { (text(wait, "code")) }
                " "
                (detail)
                @match text(wait, "unblocks") {
                    "" => {}
                    unblocks => { " · goes on with: " (unblocks) }
                }
            }
        },
    }
}

fn job_row(frame: &Frame, job: &Job) -> Html {
    let html = job.piece.html.get_or_init(|| JobHtml::of(frame, job));
    let (bar, left) = if html.runs {
        let json = &job.piece.json;
        let start_ms = json["start_time"].as_f64().map(|seconds| (seconds * 1_000.0) as i64);
        let estimate = Estimate::read(&json["estimate"]);
        meter(frame, text(json, "name"), start_ms.unwrap_or_default(), estimate)
    } else {
        (Html::default(), Html::default())
    };
    html! {
        li class={ "job " (html.class) } data-key={ "job-" (html.uuid) } {
            span class="name" { (html.name) }
            span class="says" { (html.says) (left) }
            span class="meter" { (bar) }
        }
    }
}
