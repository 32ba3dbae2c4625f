//! What a job left in its log directory: its part of a build's page, and directories as pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use gatelog_gate_state::history::BuildEntry;
use gatelog_log_files::manifest::{CONSOLE, RESULTS};
use gatelog_log_files::{Manifest, Removal};
use gatelog_record::BuildId;
use tokio::time::timeout;

use maud::html;

use super::console::size;
use super::frame::{Content, Tab};
use super::html::{Html, Piece, segment};
use super::parts::crumbs;
use super::words::many;
use super::{Segments, Shared, answer, failed, segments};
use crate::error::ApiError;
use crate::job_logs::{self, Attempt, attempt, day, manifest, removal_told};
use crate::reading::{App, Needs};
use crate::shape::ms;
use crate::site::FoundLogs;

/// How long a build's page waits for the list of its logs.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most entries of one directory that are listed.
const LISTED: usize = 2_000;
/// The most entries on a build's page.
const ON_PAGE: usize = 30;

/// Where a file or directory (with `/` at its end) of an attempt is.
pub(crate) fn address(tenant: &str, uuid: &str, attempt: u32, path: &str) -> String {
    let path: Vec<String> = path.split('/').map(segment).collect();
    format!("/t/{}/build/{uuid}/logs/{attempt}/{}", segment(tenant), path.join("/"))
}

/// What is known of the logs of the attempt a build's page shows.
#[derive(Default)]
pub(crate) struct Logs {
    attempt: u32,
    found: Option<FoundLogs>,
    trouble: Option<String>,
    /// How long what is kept stays.
    rules: gatelog_log_files::Rules,
}

impl Logs {
    /// Whether a file is among them.
    pub(crate) fn has(&self, path: &str) -> bool {
        matches!(&self.found, Some(FoundLogs::Kept(manifest)) if manifest.file(path).is_some())
    }

    /// When they went, if they did.
    pub(crate) fn removed(&self) -> Option<&Removal> {
        match &self.found {
            Some(FoundLogs::Removed(removal)) => Some(removal),
            _ => None,
        }
    }
}

/// Looks for the logs of an attempt.
pub(crate) async fn look(app: &Arc<App>, build: BuildId, attempt: Option<u32>) -> Logs {
    let Some(attempt) = attempt else { return Logs::default() };
    let rules = app.site.job_logs.rules();
    let (found, trouble) = match timeout(PATIENCE, app.site.job_logs.find(build, attempt)).await {
        Ok(Ok(found)) => (found, None),
        Ok(Err(error)) => (None, Some(error.to_string())),
        Err(_) => (None, Some(format!("there was no answer for {} s", PATIENCE.as_secs()))),
    };
    Logs { attempt, found, trouble, rules }
}

/// The part of a build's page.
pub(crate) fn section(tenant: &str, uuid: &str, entry: &BuildEntry, logs: &Logs) -> Html {
    let mut out = Html::default();
    match &logs.found {
        Some(FoundLogs::Kept(manifest)) => {
            let of_job = manifest.files.iter().filter(|file| ![CONSOLE, RESULTS].contains(&file.path.as_str())).count();
            if of_job == 0 && manifest.left_out.is_empty() {
                return out;
            }
            let all = address(tenant, uuid, logs.attempt, "");
            let ended = entry.attempts.iter().find(|one| one.attempt == logs.attempt).and_then(|one| one.finished_at);
            let until = ended.and_then(|ended| logs.rules.until(ms(ended)));
            out.add(html! {
                section class="card" data-key={ "logs-" (logs.attempt) } {
                    header {
                        h2 { "Logs" }
                        span class="small muted" {
                            (many(manifest.files.len(), "file", "files"))
                            ", "
                            (size(manifest.bytes()))
                        }
                    }
                    (table(manifest, "", &all, ON_PAGE))
                    (beside(manifest))
                    p class="small" {
                        a href=(all) { "All files" }
                        @if let Some(until) = until {
                            " "
                            span class="muted" { "· kept until " (day(until)) }
                        }
                    }
                }
            });
        }
        Some(FoundLogs::Removed(removal)) => out.add(html! {
            section class="card" data-key={ "logs-" (logs.attempt) } {
                h2 { "Logs" }
                p class="empty" { (removal_told(removal)) }
            }
        }),
        None => {
            if let Some(trouble) = &logs.trouble {
                out.add(html! {
                    section class="card" data-key={ "logs-" (logs.attempt) } {
                        h2 { "Logs" }
                        p class="note" { "They cannot be listed now: " (trouble) "." }
                    }
                });
            }
        }
    }
    out
}

/// What of the logs is not there, and why.
fn beside(manifest: &Manifest) -> Html {
    let mut out = Html::default();
    if manifest.pending {
        out.add(html! {
            p class="small muted" { "Files may be missing: the attempt runs, or its executor ended early." }
        });
    }
    if manifest.left_out.is_empty() {
        return out;
    }
    let count = usize::try_from(manifest.left_out_more).unwrap_or(usize::MAX).saturating_add(manifest.left_out.len());
    let mut rows = Html::default();
    for left in &manifest.left_out {
        rows.add(html! { li { code { (left.path) } " " (left.why) } });
    }
    if manifest.left_out_more > 0 {
        rows.add(html! { li { "and " (manifest.left_out_more) " more" } });
    }
    out.add(html! {
        details { summary { (many(count, "entry", "entries")) " not kept" } ul class="plain small" { (rows) } }
    });
    out
}

/// Directories by name, each with its number of files and their bytes.
type Directories<'m> = BTreeMap<&'m str, (usize, u64)>;
/// Files, each with its name, bytes and type.
type Files<'m> = Vec<(&'m str, u64, &'m str)>;

/// What lies in a directory (`""`, or with `/` at its end).
fn entries<'m>(manifest: &'m Manifest, directory: &str) -> (Directories<'m>, Files<'m>) {
    let (mut below, mut files) = (Directories::new(), Files::new());
    for file in &manifest.files {
        let Some(rest) = file.path.strip_prefix(directory) else { continue };
        match rest.split_once('/') {
            Some((name, _)) => {
                let (count, bytes) = below.entry(name).or_default();
                *count += 1;
                *bytes += file.size;
            }
            None => files.push((rest, file.size, file.mime.as_str())),
        }
    }
    (below, files)
}

/// A directory as a table. `here` is its address.
fn table(manifest: &Manifest, directory: &str, here: &str, most: usize) -> Html {
    let (below, files) = entries(manifest, directory);
    let mut rows = Html::default();
    for (name, (count, bytes)) in below.iter().take(most) {
        rows.add(html! {
            tr {
                th scope="row" data-label="name" { a href={ (here) (segment(name)) "/" } { (name) "/" } }
                td data-label="size" class="num" { (size(*bytes)) }
                td data-label="type" class="muted" { (many(*count, "file", "files")) }
            }
        });
    }
    for (name, bytes, mime) in files.iter().take(most.saturating_sub(below.len())) {
        rows.add(html! {
            tr {
                th scope="row" data-label="name" { a href={ (here) (segment(name)) } { (name) } }
                td data-label="size" class="num" { (size(*bytes)) }
                td data-label="type" class="muted" { (mime.split(';').next().unwrap_or_default()) }
            }
        });
    }
    let more = (below.len() + files.len()).saturating_sub(most);
    let mut out = html! {
        table class="rows" {
            thead { tr { th scope="col" { "Name" } th scope="col" { "Size" } th scope="col" { "Type" } } }
            tbody { (rows) }
        }
    };
    if more > 0 {
        out.add(html! { p class="small muted" { (more) " more are not listed here; the API lists them all." } });
    }
    out
}

/// `build/{uuid}/logs`: leads to those of the newest attempt.
pub(crate) async fn newest(State(app): Shared, path: Segments<(String, String)>) -> Response {
    let (tenant, uuid) = match segments(path) {
        Ok(segments) => segments,
        Err(response) => return response,
    };
    match attempt(&app, &tenant, &uuid, None).await {
        Ok(of) => to(&tenant, of),
        Err(error) => failed(&error, Some(&tenant)),
    }
}

fn to(tenant: &str, of: Attempt) -> Response {
    Redirect::temporary(&address(tenant, &of.build.to_string(), of.attempt, "")).into_response()
}

/// `build/{uuid}/logs/{attempt}`: without its last slash.
pub(crate) async fn to_top(State(app): Shared, path: Segments<(String, String, u32)>) -> Response {
    let (tenant, uuid, number) = match segments(path) {
        Ok(segments) => segments,
        Err(response) => return response,
    };
    match attempt(&app, &tenant, &uuid, Some(number)).await {
        Ok(of) => to(&tenant, of),
        Err(error) => failed(&error, Some(&tenant)),
    }
}

/// `build/{uuid}/logs/{attempt}/`
pub(crate) async fn top(
    State(app): Shared,
    path: Segments<(String, String, u32)>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    match segments(path) {
        Ok((tenant, uuid, number)) => show(app, tenant, uuid, number, String::new(), headers, uri).await,
        Err(response) => response,
    }
}

/// `build/{uuid}/logs/{attempt}/{*path}`: a file, or a directory.
pub(crate) async fn below(
    State(app): Shared,
    path: Segments<(String, String, u32, String)>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    match segments(path) {
        Ok((tenant, uuid, number, path)) => show(app, tenant, uuid, number, path, headers, uri).await,
        Err(response) => response,
    }
}

async fn show(
    app: Arc<App>,
    tenant: String,
    uuid: String,
    number: u32,
    path: String,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let found = async {
        let of = attempt(&app, &tenant, &uuid, Some(number)).await?;
        Ok::<_, ApiError>((of, manifest(&app, of).await?))
    };
    let (of, manifest) = match found.await {
        Ok(found) => found,
        Err(error) => return failed(&error, Some(&tenant)),
    };
    if let Some(file) = manifest.file(&path) {
        let sent = job_logs::send(&app, &headers, of, &manifest, file).await;
        return sent.unwrap_or_else(|error| failed(&error, Some(&tenant)));
    }
    let directory = match path.trim_end_matches('/') {
        "" => String::new(),
        path => format!("{path}/"),
    };
    if !directory.is_empty() && !manifest.files.iter().any(|file| file.path.starts_with(&directory)) {
        let told = format!("attempt {number} of build {} left no {path:?} that is kept", of.build);
        return failed(&ApiError::NotFound(told), Some(&tenant));
    }
    // Links of pages within logs are relative to their directory.
    if path != directory {
        return Redirect::temporary(&address(&tenant, &of.build.to_string(), number, &directory)).into_response();
    }
    let asked = tenant.clone();
    answer(app, uri, Some(tenant), Needs::History, &[], move |_, _, _| {
        Ok(page(&asked, &of.build.to_string(), of, &directory, &manifest))
    })
    .await
}

/// The page of a directory.
fn page(tenant: &str, build: &str, of: Attempt, directory: &str, manifest: &Manifest) -> Content {
    let to_build = format!("/t/{}/build/{build}?attempt={}", segment(tenant), of.attempt);
    let mut links = vec![
        (to_build, html! { "build" }),
        (
            address(tenant, build, of.attempt, ""),
            html! {
                "logs"
            },
        ),
    ];
    let mut path = String::new();
    for name in directory.split('/').filter(|name| !name.is_empty()) {
        path.push_str(name);
        path.push('/');
        links.push((address(tenant, build, of.attempt, &path), html! { (name) }));
    }
    let here = address(tenant, build, of.attempt, directory);
    let mut main = html! {
        (crumbs(&links))
        div class="head" { h1 { "Logs of attempt " (of.attempt) } }
        section class="card" {
            p class="small muted" {
                (many(manifest.files.len(), "file", "files"))
                ", "
                (size(manifest.bytes()))
            }
            (table(manifest, directory, &here, LISTED))
        }
    };
    let beside = beside(manifest);
    if !beside.is_empty() {
        main.add(html! { section class="card" { (beside) } });
    }
    let title = format!("Logs of build {}", build.get(..8).unwrap_or(build));
    Content { title, tab: Tab::Builds, kind: "logs", main, item: None, live: false }
}
