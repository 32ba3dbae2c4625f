//! The newest status of each tenant: made once for all who ask, however many they are.
//!
//! Whoever asks gets what is as of the moment they asked or a later one, never an older one: what they have seen
//! already, or did themselves, is in it. Those who ask while one is made wait for that or the next, and share it. So
//! many who look make one document at a time of a tenant, and never one each. What is asked for as of a moment (`at`)
//! is not made here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;

use crate::error::ApiError;
use crate::page::Finished;
use crate::reading::{App, Had, Needs, Reading, Said, read};
use crate::status::{self, Document, Pieces};

/// Of how many tenants the newest is kept.
const TENANTS: usize = 64;
/// How long a page is shown to others while nothing happens: it tells how long things have taken, to the second.
const PAGE_FRESH: Duration = Duration::from_millis(500);

/// A status, as of an event.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) at: u64,
    /// The same for two that differ only in what runs on with the time. It tells nothing of another process.
    pub(crate) lasting: u64,
    /// How long it took to make it.
    pub(crate) took: Duration,
    pub(crate) document: Document,
    text: OnceLock<Bytes>,
}

impl Made {
    /// The document of the API.
    pub(crate) fn text(&self) -> Bytes {
        self.text.get_or_init(|| Bytes::from(self.document.to_string())).clone()
    }
}

/// A page of a status, as everybody sees it who asks for nothing more.
struct Page {
    at: u64,
    made: Instant,
    text: Finished,
}

/// What is kept of a tenant.
#[derive(Default)]
struct Kept {
    pieces: Pieces,
    made: Option<Arc<Made>>,
    page: Option<Page>,
}

/// The newest status of tenants, those that were asked for last.
#[derive(Default)]
pub(crate) struct Newest {
    /// The last is who was asked for last.
    tenants: Mutex<Vec<(String, Arc<Mutex<Kept>>)>>,
    lasting: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Newest {
    fn of(&self, tenant: &str) -> Arc<Mutex<Kept>> {
        let mut tenants = lock(&self.tenants);
        let entry = match tenants.iter().position(|(name, _)| name == tenant) {
            Some(place) => tenants.remove(place),
            None => {
                if tenants.len() >= TENANTS {
                    tenants.remove(0);
                }
                (tenant.to_owned(), Arc::default())
            }
        };
        let kept = Arc::clone(&entry.1);
        tenants.push(entry);
        kept
    }

    /// The status at the moment of a reading of now; made, unless it is there.
    fn at(&self, reading: &Reading<'_>, tenant: &str, kept: &mut Kept) -> Result<Arc<Made>, ApiError> {
        if let Some(made) = kept.made.as_ref().filter(|made| made.at == reading.at) {
            return Ok(Arc::clone(made));
        }
        let began = Instant::now();
        let document = status::document(reading, tenant, &mut kept.pieces)?;
        let lasting = match &kept.made {
            Some(before) if before.document.lasts(&document) => before.lasting,
            _ => self.lasting.fetch_add(1, Ordering::Relaxed),
        };
        let made = Arc::new(Made { at: reading.at, lasting, took: began.elapsed(), document, text: OnceLock::new() });
        kept.made = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// The newest event, and the tenant where it is there.
fn asked(app: &App, tenant: &str) -> Result<(u64, Result<(), ApiError>), ApiError> {
    read(app, None, Needs::History, |reading| Ok((reading.at, reading.need_tenant(tenant))))
}

/// A tenant's status as of now. Blocks.
pub(crate) fn status(app: &App, tenant: &str) -> Result<Arc<Made>, ApiError> {
    let (now, is_there) = asked(app, tenant)?;
    is_there?;
    since(app, tenant, now)
}

/// The same as of an event that was the newest, or a later one.
fn since(app: &App, tenant: &str, now: u64) -> Result<Arc<Made>, ApiError> {
    let kept = app.newest.of(tenant);
    let mut kept = lock(&kept);
    if let Some(made) = kept.made.as_ref().filter(|made| made.at >= now) {
        return Ok(Arc::clone(made));
    }
    read(app, None, Needs::Live, |reading| app.newest.at(reading, tenant, &mut kept))
}

/// A tenant's status as of now, as the API says it. Blocks.
pub(crate) fn said(app: &App, had: &Had, tenant: &str) -> Result<Said, ApiError> {
    let all = app.now();
    let (now, is_there) = asked(app, tenant)?;
    let cut = all.with(app.gate, now);
    if let Err(error) = is_there {
        return Ok((cut, Err(error)));
    }
    if had.has(app, &cut) {
        return Ok((cut, Ok(None)));
    }
    let made = since(app, tenant, now)?;
    let cut = all.with(app.gate, made.at);
    let text = (!had.has(app, &cut)).then(|| made.text());
    Ok((cut, Ok(text)))
}

/// A page of a tenant's status as of now, and which event that is. `shared`: the one that everybody sees. `read` looks
/// up what the status does not tell, while the tables are held; `make` makes the page. Blocks.
pub(crate) fn page<T>(
    app: &App,
    tenant: &str,
    shared: bool,
    look: impl FnOnce(&Reading<'_>) -> Result<T, ApiError>,
    make: impl FnOnce(T, &Document) -> Result<Finished, ApiError>,
) -> Result<(u64, Finished), ApiError> {
    let (now, is_there) = asked(app, tenant)?;
    is_there?;
    let kept = app.newest.of(tenant);
    let mut kept = lock(&kept);
    let fresh = |page: &&Page| page.at >= now && page.made.elapsed() < PAGE_FRESH;
    if let Some(page) = kept.page.as_ref().filter(fresh).filter(|_| shared) {
        return Ok((page.at, page.text.clone()));
    }
    let (made, looked) =
        read(app, None, Needs::Live, |reading| Ok((app.newest.at(reading, tenant, &mut kept)?, look(reading)?)))?;
    if !shared {
        drop(kept);
        return Ok((made.at, make(looked, &made.document)?));
    }
    let text = make(looked, &made.document)?;
    kept.page = Some(Page { at: made.at, made: Instant::now(), text: text.clone() });
    Ok((made.at, text))
}
