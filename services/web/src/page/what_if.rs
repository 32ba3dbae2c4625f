//! What would have been: asking, and the record beside what would have come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, REFRESH};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use gatelog_replay::what_if::{Answer, Divergence, InputNear, ItemOutcome, OrderDifference};
use serde_json::Value as Json;

use maud::html;

use super::frame::{Content, Frame, Tab, respond};
use super::html::{Html, Piece};
use super::parts::{crumbs, text};
use super::words::{self, Stand};
use super::{Segments, Shared, failed, failed_at};
use crate::error::ApiError;
use crate::query::Query;
use crate::reading::{App, Needs, mark, moment, read};
use crate::what_if::desk::{Case, State as Standing};
use crate::what_if::{Question, permitted};

/// How many inputs are offered.
const OFFERED: usize = 60;
/// How many differences of a kind are shown; the JSON has all.
const SHOWN: usize = 200;

fn content(main: Html) -> Content {
    Content { title: "what if".into(), tab: Tab::WhatIf, kind: "what-if", main, item: None, live: false }
}

/// `what-if`: what can be asked near a moment, and what was asked.
pub(crate) async fn ask_page(State(app): Shared, uri: Uri) -> Response {
    let made = async {
        let query = Query::read(uri.query(), &[])?;
        let at = moment(&app, &query).await?;
        let uri = uri.clone();
        app.blocking(move |app| {
            let newest = app.site.gate.position().sequence;
            let inputs = app.site.what_ifs.inputs_near(at.unwrap_or(newest), OFFERED).map_err(ApiError::Internal)?;
            read(app, at, Needs::History, |reading| {
                let frame = Frame::new(reading, newest, at.is_some(), None, uri.path().to_owned())?;
                Ok((reading.at, frame.page(content(form(app, &inputs, at)))))
            })
        })
        .await
    };
    match made.await {
        Ok((at, page)) => {
            let mut response = respond(StatusCode::OK, page);
            mark(&app, response.headers_mut(), at);
            response
        }
        Err(error) => failed_at(&error, None, Some(&uri)),
    }
}

/// What came from outside lately, each to be left out.
fn inputs_near(inputs: &[InputNear]) -> Html {
    let mut rows = Html::default();
    let mut seen = BTreeSet::new();
    for input in inputs {
        // One event of a forge may have gone to several tenants.
        if !seen.insert(&input.place) {
            continue;
        }
        rows.add(html! {
            tr {
                td data-label="leave out" {
                    input
                        type="checkbox"
                        name="without"
                        value=(input.place)
                        aria-label={ "leave out " (input.place) };
                }
                th scope="row" data-label="input" { code { (input.place) } }
                td data-label="says" { (input.says) }
                td data-label="tenant" { (input.tenant) }
                td data-label="event" class="num" { (input.sequence) }
                td data-label="when" { (words::moment(input.at)) }
            }
        });
    }
    if rows.is_empty() {
        html! { p class="empty" { "Nothing from outside came up to here lately." } }
    } else {
        html! {
            table class="rows" {
                caption { "Had these never come" }
                thead {
                    tr {
                        th scope="col" { "Leave out" }
                        th scope="col" { "Input" }
                        th scope="col" { "What it said" }
                        th scope="col" { "Tenant" }
                        th scope="col" { "Event" }
                        th scope="col" { "When" }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

/// Where it takes a token, one is asked for.
fn token(app: &App) -> Html {
    match app.site.authenticators.is_empty() {
        true => Html::default(),
        false => html! {
            section class="card" {
                h2 { "Who asks" }
                p {
                    label for="token" { "A token of an operator of every tenant (" code { "admin" } ")" }
                    " "
                    input id="token" name="token" type="password" autocomplete="off" size="40";
                }
            }
        },
    }
}

/// The what-ifs there are.
fn asked(app: &App) -> Html {
    let mut asked = Html::default();
    for case in app.what_ifs.all() {
        asked.add(html! {
            tr {
                th scope="row" { a href={ "/what-if/" (case.id) } { (case.question.words()) } }
                td { (badge(&case.state())) }
                td { (words::moment(case.asked_at)) }
            }
        });
    }
    if asked.is_empty() {
        asked
    } else {
        html! {
            section class="card" {
                table class="rows" {
                    caption { "Asked lately" }
                    thead {
                        tr {
                            th scope="col" { "What if" }
                            th scope="col" { "Answer" }
                            th scope="col" { "Asked" }
                        }
                    }
                    tbody { (asked) }
                }
            }
        }
    }
}

/// What else could be otherwise.
fn otherwise() -> Html {
    html! {
        section class="card" {
            h2 { "Had an input said something else" }
            p {
                label for="change" { "Input" }
                " "
                input id="change" name="change" placeholder="gate.inputs:7" autocomplete="off";
            }
            p {
                label for="said" { "What of its body would have been otherwise, as JSON" }
                textarea
                    id="said"
                    name="said"
                    rows="4"
                    spellcheck="false"
                    placeholder=(r#"{"result": "Failure"}"#)
                {}
            }
        }
        section class="card" {
            h2 { "Had the configuration been another" }
            p {
                label for="project" { "Project" }
                " "
                input id="project" name="project" placeholder="org/app" autocomplete="off";
                " "
                label for="path" { "File" }
                " "
                input id="path" name="path" placeholder=".zuul.yaml" autocomplete="off";
            }
            p {
                label for="content" { "Its text; it stands in place of all configuration of the project" }
                textarea id="content" name="content" rows="8" spellcheck="false" {}
            }
        }
        section class="card" {
            h2 { "Had the tenant file been another" }
            p {
                label for="tenants" { "Its text; tenants that it does not have stay as they were" }
                textarea id="tenants" name="tenants" rows="6" spellcheck="false" {}
            }
        }
    }
}

fn form(app: &App, inputs: &[InputNear], at: Option<u64>) -> Html {
    let mut hidden = Html::default();
    let mut until = html! { "Looked at is everything there is." };
    if let Some(at) = at {
        hidden.add(html! { input type="hidden" name="at" value=(at); });
        until = html! { "Looked at is what there was up to event " (at) "." };
    }
    html! {
        h1 { "What would have been" }
        p class="muted" {
            "The record is decided again with something otherwise. Nothing is changed by it: it runs by itself, shut in. "
            (until)
        }
        (asked(app))
        form class="what-if" method="post" action="/what-if" {
            (hidden)
            section class="card" {
                (inputs_near(inputs))
                p {
                    label for="more" { "Or these, by where they stand" }
                    " "
                    input
                        id="more"
                        name="more"
                        placeholder="intake:41, gate.inputs:7"
                        autocomplete="off"
                        size="40";
                }
            }
            (otherwise())
            (token(app))
            p { button { "Ask" } }
        }
    }
}

/// The fields of a form.
struct Form(Vec<(String, String)>);

impl Form {
    fn read(bytes: &[u8]) -> Result<Form, ApiError> {
        let text = std::str::from_utf8(bytes).map_err(|_| ApiError::BadRequest("the form is not UTF-8".into()))?;
        let uri: Result<Uri, _> = format!("/?{}", text.replace('+', "%20")).parse();
        let pairs = match uri {
            Ok(uri) if text.len() < 60_000 => super::pairs(&uri),
            _ => {
                let cure = "the form is too long: send it as JSON to /api/what-if";
                return Err(ApiError::BadRequest(cure.into()));
            }
        };
        Ok(Form(pairs))
    }

    fn one(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, value)| field == name && !value.trim().is_empty()).map(|(_, value)| value.as_str())
    }

    fn question(&self) -> Result<Question, ApiError> {
        let mut question = Question::default();
        let ticked = self
            .0
            .iter()
            .filter(|(name, value)| name == "without" && !value.is_empty())
            .map(|(_, value)| value.as_str());
        let more = self.one("more").unwrap_or_default().split(',').map(str::trim).filter(|place| !place.is_empty());
        question.without = ticked.chain(more).map(str::to_owned).collect();
        match (self.one("change"), self.one("said")) {
            (Some(place), Some(said)) => {
                let said: Json = serde_json::from_str(said).map_err(|error| {
                    ApiError::BadRequest(format!("what input {place} said instead is not JSON: {error}"))
                })?;
                question.change.insert(place.trim().to_owned(), said);
            }
            (None, None) => {}
            _ => return Err(ApiError::BadRequest("an input and what it said instead go together".into())),
        }
        match (self.one("project"), self.one("path"), self.one("content")) {
            (Some(project), path, Some(content)) => {
                let path = path.unwrap_or(".zuul.yaml").trim().to_owned();
                let files = BTreeMap::from([(path, content.replace("\r\n", "\n"))]);
                question.config.insert(project.trim().to_owned(), files);
            }
            (None, None, None) => {}
            _ => return Err(ApiError::BadRequest("a project and the text of its file go together".into())),
        }
        question.tenants = self.one("tenants").map(|text| text.replace("\r\n", "\n"));
        if let Some(at) = self.one("at") {
            question.at = Some(at.parse().map_err(|_| ApiError::BadRequest(format!("at={at:?} is no event")))?);
        }
        question.checked()
    }
}

/// Forms of other sites ask for nothing.
fn from_here(headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.get("sec-fetch-site").and_then(|value| value.to_str().ok()) {
        Some("cross-site" | "same-site") => Err(ApiError::BadRequest("this form was sent by another site".into())),
        _ => Ok(()),
    }
}

/// Who sends a form: by its field, as a browser sends no header.
async fn sender(app: &Arc<App>, mut headers: HeaderMap, form: &Form) -> Result<String, ApiError> {
    if let Some(token) = form.one("token") {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
        headers.insert(AUTHORIZATION, value.map_err(|_| ApiError::BadRequest("that is no token".into()))?);
    }
    permitted(app, &headers).await
}

/// `what-if`, sent.
pub(crate) async fn ask(State(app): Shared, headers: HeaderMap, body: Bytes) -> Response {
    let made = async {
        from_here(&headers)?;
        let form = Form::read(&body)?;
        let by = sender(&app, headers, &form).await?;
        app.what_ifs.ask(&app, form.question()?, by)
    };
    match made.await {
        Ok(case) => Redirect::to(&format!("/what-if/{}", case.id)).into_response(),
        Err(error) => failed(&error, None),
    }
}

/// `what-if/{id}/cancel`, sent.
pub(crate) async fn cancel(State(app): Shared, path: Segments<String>, headers: HeaderMap, body: Bytes) -> Response {
    let made = async {
        let id = crate::routes::segments(path)?;
        from_here(&headers)?;
        sender(&app, headers, &Form::read(&body)?).await?;
        let case = app.what_ifs.find(&id)?;
        case.cancel();
        Ok::<_, ApiError>(case)
    };
    match made.await {
        Ok(case) => Redirect::to(&format!("/what-if/{}", case.id)).into_response(),
        Err(error) => failed(&error, None),
    }
}

fn badge(state: &Standing) -> Html {
    match state {
        Standing::Waiting => Stand::Waiting.badge("waits for its turn"),
        Standing::Running => Stand::Running.badge("is being answered"),
        Standing::Answered(answer) if answer.is_same() => Stand::Good.badge("nothing would have been otherwise"),
        Standing::Answered(_) => Stand::Good.badge("answered"),
        Standing::Failed(_) => Stand::Bad.badge("no answer"),
        Standing::Cancelled => Stand::Quiet.badge("cancelled"),
    }
}

/// `what-if/{id}`: the question and its answer.
pub(crate) async fn answer_page(State(app): Shared, path: Segments<String>, uri: Uri) -> Response {
    let made = async {
        Query::read_only(uri.query(), &[])?;
        let case = app.what_ifs.find(&crate::routes::segments(path)?)?;
        let asked = Arc::clone(&case);
        let uri = uri.clone();
        let page = app.blocking(move |app| {
            let newest = app.site.gate.position().sequence;
            read(app, None, Needs::History, |reading| {
                let mut frame = Frame::new(reading, newest, false, None, uri.path().to_owned())?;
                frame.timeless = true;
                Ok(frame.page(content(told(app, &asked))))
            })
        });
        Ok::<_, ApiError>((case, page.await?))
    };
    match made.await {
        Ok((case, page)) => {
            let mut response = respond(StatusCode::OK, page);
            if case.state().is_open() {
                // Without a script, too, the answer comes by itself.
                response.headers_mut().insert(REFRESH, HeaderValue::from_static("1"));
            }
            response
        }
        Err(error) => failed_at(&error, None, Some(&uri)),
    }
}

fn told(app: &App, case: &Case) -> Html {
    let state = case.state();
    let back = case.question.at.map_or_else(|| "/what-if".to_owned(), |at| format!("/what-if?at={at}"));
    let mut main = html! {
        (crumbs(&[(back, html! { "What would have been" })]))
        div class="head" { h1 { "What if: " (case.question.words()) } (badge(&state)) }
        p class="muted" {
            "asked "
            (words::moment(case.asked_at))
            @if !case.by.is_empty() { " by " (case.by) }
            "; "
            a href={ "/api/what-if/" (case.id) } { "as JSON" }
            "; kept for a day"
        }
    };
    match &state {
        Standing::Waiting | Standing::Running => {
            let token = match app.site.authenticators.is_empty() {
                true => Html::default(),
                false => html! {
                    label { "token " input name="token" type="password" autocomplete="off"; }
                    " "
                },
            };
            main.add(html! {
                section class="card" {
                    p {
                        "Every recorded input is decided again. That takes a moment; this page is loaded again by itself."
                    }
                    form method="post" action={ "/what-if/" (case.id) "/cancel" } {
                        (token)
                        button class="quiet" { "Cancel" }
                    }
                }
            });
        }
        Standing::Failed(why) => main.add(html! { p class="card bad-edge" { (Stand::Bad.mark()) " " (why) } }),
        Standing::Cancelled => main.add(html! { p class="card" { "It was ended before there was an answer." } }),
        Standing::Answered(answer) => main.add(answered(answer)),
    }
    main
}

fn answered(answer: &Answer) -> Html {
    let until: Vec<String> = answer.until.iter().map(|(partition, last)| format!("{partition} event {last}")).collect();
    let Some(first) = &answer.divergence else {
        return html! {
            p class="card good-edge" {
                (Stand::Good.mark())
                " Nothing would have been otherwise: all "
                (answer.same_decisions)
                " decisions are the same. "
                span class="muted" { "Looked at up to " (until.join(", ")) "." }
            }
        };
    };
    let mut main = divergence(first, answer.same_decisions, &until.join(", "));
    let of = &answer.difference;
    if of.is_same() {
        main.add(html! {
            p class="card good-edge" {
                (Stand::Good.mark())
                " Items, jobs, merges and their order would have been the same all the same."
            }
        });
    }
    main.add(html! {
        (numbers(answer))
        (items(answer))
        (jobs(answer))
        (order("merges", "Merges", &of.merges, &answer.recorded.merges, &answer.now.merges))
        (order("order", "Order of leaving", &of.order, &answer.recorded.left, &answer.now.left))
    });
    let mut rules = Html::default();
    for rule in &answer.rules {
        let used = match answer.assumed.get(rule) {
            Some(times) => html! { " " span class="chip" { (*times) " times" } },
            None => Html::default(),
        };
        rules.add(html! { li { (rule) (used) } });
    }
    main.add(html! {
        details class="card" {
            summary { "How what did not happen is modelled" }
            ul class="plain small" { (rules) }
        }
    });
    main
}

fn kinds(events: &[Json]) -> Html {
    let mut out = Html::default();
    for event in events {
        out.add(html! { li { code { (text(event, "kind")) } } });
    }
    if out.is_empty() {
        html! { p class="empty" { "nothing" } }
    } else {
        html! {
            ol class="plain" { (out) }
        }
    }
}

fn divergence(first: &Divergence, same: u64, until: &str) -> Html {
    let link = if first.partition == "gate/0" {
        html! { a href={ "/?at=" (first.sequence) } { (first.partition) " event " (first.sequence) } }
    } else {
        html! { (first.partition) " event " (first.sequence) }
    };
    html! {
        section class="card warn-edge" id="divergence" {
            h2 { "Otherwise from " (link) " on" }
            p {
                (first.what)
                " "
                span class="chip" { (first.why) }
                " "
                span class="muted" {
                    (first.at)
                    "; input "
                    (first.input)
                    " at offset "
                    (first.input_offset)
                    ". "
                    (same)
                    " decisions before it are the same; looked at up to "
                    (until)
                    "."
                }
            }
            div class="sides" {
                div { h3 { "Recorded" } (kinds(&first.recorded)) }
                div {
                    h3 { "Would have been" }
                    @if first.why == "without" { p class="empty" { "nothing: it never came" } } @else { (kinds(&first.now)) }
                }
            }
        }
    }
}

/// Two numbers beside each other.
fn pair(name: &str, was: &str, is: &str) -> Html {
    let class = if was == is { "" } else { "other" };
    html! {
        tr class=(class) { th scope="row" { (name) } td class="num" { (was) } td class="num" { (is) } }
    }
}

fn numbers(answer: &Answer) -> Html {
    let (was, is) = (&answer.recorded, &answer.now);
    let mut rows = pair("items", &was.items.len().to_string(), &is.items.len().to_string());
    rows.add(pair("merges", &was.merges.len().to_string(), &is.merges.len().to_string()));
    let results: BTreeSet<&String> = was.attempts.keys().chain(is.attempts.keys()).collect();
    for result in results {
        let of = |attempts: &BTreeMap<String, u64>| attempts.get(result).copied().unwrap_or_default().to_string();
        rows.add(pair(&format!("attempts: {}", words::lower(result)), &of(&was.attempts), &of(&is.attempts)));
    }
    rows.add(pair("leases", &was.leases.to_string(), &is.leases.to_string()));
    let hours = |ms: i64| format!("{:.2}", ms as f64 / 3_600_000.0);
    rows.add(pair("node-hours", &hours(was.node_ms), &hours(is.node_ms)));
    html! {
        section class="card" {
            table class="rows" id="numbers" {
                caption { "In numbers" }
                thead {
                    tr {
                        th scope="col" { "What" }
                        th scope="col" { "Recorded" }
                        th scope="col" { "Would have been" }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

/// What became of an item, as a cell.
fn outcome(item: Option<&ItemOutcome>) -> Html {
    let Some(item) = item else { return html! { span class="muted" { "never came" } } };
    let mut out = match &item.result {
        Some(result) => words::result_badge(result),
        None => Stand::Waiting.badge("still there"),
    };
    if item.merged {
        out.add(html! { " " span class="chip" { "merged" } });
    }
    if item.resets > 0 {
        out.add(html! { " " span class="muted small" { (words::many(item.resets as usize, "reset", "resets")) } });
    }
    if !item.code.is_empty() {
        out.add(html! { " " span class="muted small" { (item.code) } });
    }
    out
}

fn table(id: &str, caption: &str, head: &str, rows: Html, left_out: usize) -> Html {
    if rows.is_empty() {
        return rows;
    }
    let more = match left_out {
        0 => Html::default(),
        many => html! { p class="small muted" { "and " (many) " more, which the JSON has" } },
    };
    html! {
        section class="card" {
            table class="rows" id=(id) {
                caption { (caption) }
                thead {
                    tr {
                        th scope="col" { (head) }
                        th scope="col" { "Recorded" }
                        th scope="col" { "Would have been" }
                    }
                }
                tbody { (rows) }
            }
            (more)
        }
    }
}

fn items(answer: &Answer) -> Html {
    let of = &answer.difference;
    let otherwise = of.items.iter().map(|one| &one.item);
    let names: BTreeSet<&String> = of.items_gone.iter().chain(&of.items_come).chain(otherwise).collect();
    let mut rows = Html::default();
    for name in names.iter().take(SHOWN) {
        rows.add(html! {
            tr {
                th scope="row" { (name) }
                td data-label="recorded" { (outcome(answer.recorded.items.get(*name))) }
                td data-label="would have been" { (outcome(answer.now.items.get(*name))) }
            }
        });
    }
    table("items", "Items", "Tenant, pipeline, change", rows, names.len().saturating_sub(SHOWN))
}

fn jobs(answer: &Answer) -> Html {
    let of = &answer.difference.jobs;
    let cell = |job: &Option<gatelog_replay::what_if::JobOutcome>| match job {
        None => html! { span class="muted" { "no such job" } },
        Some(job) => {
            let result = job.result.as_deref().map_or_else(|| Stand::Waiting.badge("no result"), words::result_badge);
            html! {
                (result)
                " "
                span class="muted small" { (words::many(job.attempts as usize, "attempt", "attempts")) }
            }
        }
    };
    let mut rows = Html::default();
    for one in of.iter().take(SHOWN) {
        rows.add(html! {
            tr {
                th scope="row" { (one.job) " " span class="muted small" { (one.item) } }
                td data-label="recorded" { (cell(&one.recorded)) }
                td data-label="would have been" { (cell(&one.now)) }
            }
        });
    }
    table("jobs", "Jobs of items in both", "Job", rows, of.len().saturating_sub(SHOWN))
}

/// Two orders beside each other, with what is only in one and what stands elsewhere marked.
fn order(id: &str, head: &str, of: &OrderDifference, recorded: &[String], now: &[String]) -> Html {
    if *of == OrderDifference::default() {
        return Html::default();
    }
    let list = |names: &[String], only: &[String], moved: &[String], sign: &str| {
        // What is alike at the beginning is passed over.
        let alike = recorded.iter().zip(now).take_while(|(one, other)| one == other).count();
        let from = alike.saturating_sub(2);
        let mut out = Html::default();
        for name in names.iter().skip(from).take(SHOWN) {
            let (mark, class) = match () {
                () if only.contains(name) => (sign, "other"),
                () if moved.contains(name) => ("~", "other"),
                () => ("", ""),
            };
            out.add(html! { li class=(class) { span class="sign" aria-hidden="true" { (mark) } " " (name) } });
        }
        html! { ol start=(from + 1) { (out) } }
    };
    html! {
        section class="card" id=(id) {
            h2 { (head) }
            div class="sides" {
                div { h3 { "Recorded" } (list(recorded, &of.only_recorded, &of.recorded, "−")) }
                div { h3 { "Would have been" } (list(now, &of.only_now, &of.now, "+")) }
            }
        }
    }
}
