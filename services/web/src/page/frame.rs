//! What every page has: head, navigation, the way through time, the headers.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gatelog_gate_state::history::Moment;
use gatelog_record::{ItemId, Timestamp};
use gatelog_tables::Table;
use std::ops::Bound;

use maud::{DOCTYPE, html};

use super::assets::VERSION;
use super::html::{Finished, Html, Piece, segment};
use super::words;
use crate::error::ApiError;
use crate::reading::Reading;

/// Nothing but our own files, no scripts or styles in the text, no frames.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// How far the neighbouring event of an item is looked for.
const LOOK_FOR: usize = 20_000;

/// Which entry of the navigation a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    Tenants,
    Status,
    Builds,
    Buildsets,
    Errors,
    WhatIf,
}

/// What a page is about, beside its content.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The tenant, unless it is the site.
    pub(crate) tenant: Option<String>,
    /// Its own path.
    pub(crate) path: String,
    /// Its own query, without the moment.
    pub(crate) kept: Vec<(String, String)>,
    /// Whether a moment was asked for.
    pub(crate) then: bool,
    /// Whether it is of no moment, and has no way through time.
    pub(crate) timeless: bool,
    /// The event it is as of.
    pub(crate) at: u64,
    /// The newest event.
    pub(crate) newest: u64,
    /// When the event was recorded.
    pub(crate) recorded: Timestamp,
    /// What running stretches are counted up to: then, the moment; now, the clock.
    pub(crate) clock: Timestamp,
    /// The event's kind.
    kind: Option<&'static str>,
    /// The neighbouring events of the item the page is about.
    beside: Option<(Option<u64>, Option<u64>)>,
    /// How many errors the tenant's configuration has.
    pub(crate) errors: u64,
}

/// A page's content.
pub(crate) struct Content {
    pub(crate) title: String,
    pub(crate) tab: Tab,
    /// A name for the script.
    pub(crate) kind: &'static str,
    pub(crate) main: Html,
    /// The item it is about, for steps from event to event.
    pub(crate) item: Option<ItemId>,
    /// Whether it changes as long as nobody asked for a moment.
    pub(crate) live: bool,
}

impl Frame {
    pub(crate) fn new(
        reading: &Reading<'_>,
        newest: u64,
        then: bool,
        tenant: Option<String>,
        path: String,
    ) -> Result<Frame, ApiError> {
        let kind = reading.history().moment(reading.at)?.map(|moment: Moment| words::kind(moment.kind));
        let wall = Timestamp(jiff::Timestamp::now().as_microsecond());
        let errors = match &tenant {
            Some(tenant) => match reading.history().layout(tenant, reading.at)? {
                Some(layout) => u64::from(layout.errors) + u64::from(layout.failed.is_some()),
                None => 0,
            },
            None => 0,
        };
        Ok(Frame {
            tenant,
            path,
            kept: Vec::new(),
            then,
            timeless: false,
            at: reading.at,
            newest: newest.max(reading.at),
            recorded: reading.now,
            clock: if then { reading.now } else { reading.now.max(wall) },
            kind,
            beside: None,
            errors,
        })
    }

    /// Finds the neighbouring events of an item.
    pub(crate) fn beside(&mut self, reading: &Reading<'_>, item: ItemId) -> Result<(), ApiError> {
        let moments = &reading.history().moments;
        let mut before = None;
        for entry in moments.range_back(Bound::Unbounded, Bound::Excluded(&self.at))?.take(LOOK_FOR) {
            let (sequence, moment) = entry?;
            if moment.item == Some(item) {
                before = Some(sequence);
                break;
            }
        }
        let mut after = None;
        for entry in moments.range(Bound::Excluded(&self.at), Bound::Included(&self.newest))?.take(LOOK_FOR) {
            let (sequence, moment) = entry?;
            if moment.item == Some(item) {
                after = Some(sequence);
                break;
            }
        }
        self.beside = Some((before, after));
        Ok(())
    }

    /// Milliseconds since 1970 of what stretches are counted up to.
    pub(crate) fn clock_ms(&self) -> i64 {
        crate::shape::ms(self.clock)
    }

    /// A link within the tenant, to the same moment.
    pub(crate) fn to(&self, rest: &str) -> String {
        let tenant = self.tenant.as_deref().unwrap_or_default();
        self.link(&format!("/t/{}{rest}", segment(tenant)), &[])
    }

    /// The same with parameters.
    pub(crate) fn to_with(&self, rest: &str, pairs: &[(&str, &str)]) -> String {
        let tenant = self.tenant.as_deref().unwrap_or_default();
        self.link(&format!("/t/{}{rest}", segment(tenant)), pairs)
    }

    fn link(&self, path: &str, pairs: &[(&str, &str)]) -> String {
        let at = self.at.to_string();
        let at = self.then.then_some(("at", at.as_str()));
        address(path, pairs.iter().copied().chain(at))
    }

    /// This page at another moment.
    fn here(&self, at: Option<u64>) -> String {
        let at = at.map(|at| at.to_string());
        let kept = self.kept.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        address(&self.path, kept.chain(at.as_deref().map(|at| ("at", at))))
    }

    fn hidden(&self) -> Html {
        let mut out = Html::default();
        for (name, value) in &self.kept {
            out.add(html! { input type="hidden" name=(name) value=(value); });
        }
        out
    }

    /// Says of a page of the past that it is one.
    fn banner(&self, kind: &str) -> Html {
        html! {
            p class="banner" id="banner" {
                span {
                    "as of "
                    b { "event " (self.at) }
                    " "
                    span class="muted" { (kind) }
                    " · "
                    (words::moment(self.recorded))
                }
                " "
                a class="button" id="back-to-now" href=(self.here(None)) { "back to now" }
            }
        }
    }

    /// Asks for a moment by its name.
    fn goto(&self) -> Html {
        html! {
            details class="goto" data-keep="open" {
                summary { "Go to a time" }
                form method="get" action=(self.path) {
                    (self.hidden())
                    label for="goto-at" { "Event or time" }
                    " "
                    input id="goto-at" name="at" placeholder="2026-01-31T14:03:00Z" autocomplete="off" required;
                    " "
                    button { "Go" }
                }
            }
        }
    }

    /// The way through time.
    fn time(&self) -> Html {
        let step = |at: Option<u64>, sign: &str, says: &str, key: &str| match at {
            Some(at) => html! {
                a class="step" href=(self.here(Some(at))) data-step=(key) aria-label=(says) title=(says) {
                    (sign)
                }
            },
            None => html! {
                span class="step off" data-step=(key) title=(says) aria-hidden="true" { (sign) }
            },
        };
        let mut beside = Html::default();
        if let Some((before, after)) = self.beside {
            beside.add(html! {
                span class="pair" role="group" aria-label="Events of this item" {
                    (step(before, "«", "previous event of this item", "item-back"))
                    span class="muted small" { "item" }
                    (step(after, "»", "next event of this item", "item-on"))
                }
            });
        }
        let kind = self.kind.unwrap_or("nothing yet");
        let said = html! { "event " (self.at) " of " (self.newest) ", " (kind) ", " (plain(self.recorded)) };
        let slider = html! {
            form class="slider" method="get" action=(self.path) {
                (self.hidden())
                span class="pair" role="group" aria-label="Events" {
                    (step(self.at.checked_sub(1), "‹", "previous event", "back"))
                    (step((self.at < self.newest).then(|| self.at + 1), "›", "next event", "on"))
                }
                input
                    type="range"
                    id="at"
                    name="at"
                    min="0"
                    max=(self.newest)
                    value=(self.at)
                    step="1"
                    aria-label="Position of the gate"
                    aria-valuetext=(said)
                    autocomplete="off";
                output for="at" id="at-told" { b { (self.at) } span class="muted" { " / " (self.newest) } }
                button class="plain-only" { "Show" }
                (beside)
            }
        };
        html! {
            section
                class={ "time" (if self.then { " then" } else { "" }) }
                id="time"
                aria-label="Time"
                data-at=(self.at)
                data-newest=(self.newest)
                data-then=(if self.then { "1" } else { "0" })
            {
                @if self.then { (self.banner(kind)) }
                (slider)
                (self.goto())
            }
        }
    }

    /// The whole page.
    pub(crate) fn page(&self, content: Content) -> Finished {
        let mut nav = Html::default();
        if self.tenant.is_some() {
            let errors = match self.errors {
                0 => Html::default(),
                errors => html! { " " span class="count bad" { (errors) } },
            };
            for (tab, rest, name, more) in [
                (Tab::Status, "/status", "Status", Html::default()),
                (Tab::Builds, "/builds", "Builds", Html::default()),
                (Tab::Buildsets, "/buildsets", "Buildsets", Html::default()),
                (Tab::Errors, "/config-errors", "Configuration", errors),
            ] {
                nav.add(html! { li { a href=(self.to(rest)) aria-current=[(tab == content.tab).then_some("page")] { (name) (more) } } });
            }
        }
        let tenant = match &self.tenant {
            Some(tenant) => {
                html! { a class="tenant" href=(self.to("/status")) { (tenant) } }
            }
            None => Html::default(),
        };
        let live = match (content.live, self.then) {
            (true, false) => html! { span class="live" id="live" data-state="still" { "as of now" } },
            (false, false) => Html::default(),
            (_, true) => html! { span class="live past" { "the past" } },
        };
        let body = html! {
            a class="skip" href="#main" { "Skip to the content" }
            header class="top" {
                div class="bar" {
                    a class="logo" href=(self.link("/", &[])) {
                        img src={ "/assets/" (*VERSION) "/icon.svg" } alt="" width="22" height="22";
                        "gatelog"
                    }
                    (tenant)
                    nav aria-label="Main" { ul { (nav) } }
                    (live)
                }
            }
            @if !self.timeless { (self.time()) }
            main
                id="main"
                tabindex="-1"
                data-page=(content.kind)
                data-live=(if content.live && !self.then { "1" } else { "0" })
                data-tenant=(self.tenant.as_deref().unwrap_or_default())
                data-clock=(self.clock_ms())
            {
                (content.main)
            }
            footer {
                span class="muted" {
                    "Everything here is told from the log: any page can be asked for with "
                    code { "?at=" }
                    ". "
                }
                a href="/api" { "API" }
            }
        };
        document(&content.title, body)
    }
}

fn plain(at: Timestamp) -> String {
    let text = at.to_string().replace('T', " ");
    text.split('.').next().unwrap_or_default().to_owned()
}

/// A path with a query.
pub(crate) fn address<'a>(path: &str, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = path.to_owned();
    for (number, (name, value)) in pairs.enumerate() {
        out.push(if number == 0 { '?' } else { '&' });
        out.push_str(&format!("{}={}", segment(name), segment(value)));
    }
    out
}

fn document(title: &str, body: Html) -> Finished {
    Finished::new(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " · gatelog" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="stylesheet" href={ "/assets/" (*VERSION) "/gatelog.css" };
                link rel="icon" href={ "/assets/" (*VERSION) "/icon.svg" } type="image/svg+xml";
                script src={ "/assets/" (*VERSION) "/gatelog.js" } defer {}
                script src={ "/assets/" (*VERSION) "/console.js" } defer {}
            }
            body { (body) }
        }
    })
}

/// What is said when there is no page; what it leads to is as of the same moment, if there was one.
pub(crate) fn error_page(error: &ApiError, tenant: Option<&str>, at: Option<&str>) -> Finished {
    // A moment that cannot be shown is not asked for again.
    let wrong = matches!(error, ApiError::Beyond { .. } | ApiError::BadRequest(_));
    let at = at.filter(|_| !wrong).map(|at| ("at", at));
    let to = |path: &str| address(path, at.into_iter());
    let back = match tenant {
        Some(tenant) => html! {
            p {
                a class="button" href=(to(&format!("/t/{}/status", segment(tenant)))) {
                    "To the status of "
                    (tenant)
                }
            }
        },
        None => Html::default(),
    };
    let title = match error.status() {
        StatusCode::NOT_FOUND => "There is nothing here",
        StatusCode::GONE => "This was removed",
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "This is not for everybody",
        StatusCode::BAD_REQUEST => "This cannot be asked",
        StatusCode::RANGE_NOT_SATISFIABLE => "That has not happened yet",
        StatusCode::UNPROCESSABLE_ENTITY => "That is too much at once",
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT | StatusCode::BAD_GATEWAY => "Not just now",
        _ => "Something inside is wrong",
    };
    let body = html! {
        header class="top" {
            div class="bar" {
                a class="logo" href="/" {
                    img src={ "/assets/" (*VERSION) "/icon.svg" } alt="" width="22" height="22";
                    "gatelog"
                }
            }
        }
        main id="main" data-page="error" {
            div class="card lost" {
                p class="big" aria-hidden="true" { (u32::from(error.status().as_u16())) }
                h1 { (title) }
                p { (error.to_string()) }
                (back)
                p { a class="button" href=(to("/")) { "To the tenants" } }
            }
        }
    };
    document(title, body)
}

/// A page with its headers.
pub(crate) fn respond(status: StatusCode, page: Finished) -> Response {
    let mut response = (status, Body::from(page)).into_response();
    guard(&mut response);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The headers that keep a page to itself.
pub(crate) fn guard(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}
