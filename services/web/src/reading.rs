//! One read: which moment it asks about, which tables answer, how the answer is marked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gatelog_capacity_state::{CapacityLive, LeaseRow};
use gatelog_gate_state::{Gate, GateLive, GateRead};
use gatelog_record::codec::{self, CodecError};
use gatelog_record::{BlobHash, LeaseId, Timestamp};
use gatelog_rules_config::authorization::Authorization;
use gatelog_rules_config::{Layout, Problem, TenantSettings};
use gatelog_runner::WaitError;
use gatelog_store::{RocksBacking, View};
use gatelog_tables::{Maps, Table};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::Person;
use crate::console::lines::Indexes;
use crate::error::ApiError;
use crate::followed::Followed;
use crate::health::Since;
use crate::newest::Newest;
use crate::operators::holds;
use crate::query::Query;
use crate::site::Site;
use crate::what_if::desk::Desk;

/// The header with the position an answer is as of.
pub(crate) const POSITION: HeaderName = HeaderName::from_static("gatelog-position");
/// How many reads are answered at once; more wait.
const READS: usize = 16;
/// How long a read may take, its wait for a place among the reads included.
const READ_TIME: Duration = Duration::from_secs(30);
/// How long `after` waits.
pub(crate) const AFTER_TIME: Duration = Duration::from_secs(10);
/// How many layouts are kept read.
const LAYOUTS: usize = 8;
/// Of how many tenants it is kept who may do what.
const RULES: usize = 256;
/// How many requests of operators are on their way at once; more are refused.
const ASKS: usize = 32;

/// The site and what the API keeps of its own.
pub(crate) struct App {
    pub(crate) site: Site,
    partition: String,
    reads: Semaphore,
    streams: Arc<Semaphore>,
    /// Places for those who ask for keys.
    pub(crate) keys: Arc<Semaphore>,
    /// Where the lines of consoles begin.
    pub(crate) indexes: Indexes,
    /// The tenants whose status is followed.
    pub(crate) followed: Followed,
    /// The newest status of tenants that are looked at.
    pub(crate) newest: Newest,
    /// What would have been: what was asked.
    pub(crate) what_ifs: Desk,
    /// Places for requests of operators.
    pub(crate) asks: Arc<Semaphore>,
    /// Since when parts and processes are as they are.
    pub(crate) since: Since,
    layouts: Mutex<Vec<(BlobHash, Arc<Layout>)>>,
    rules: Mutex<BTreeMap<BlobHash, Arc<Authorization>>>,
}

impl App {
    pub(crate) fn new(site: Site) -> App {
        let partition = site.gate.view().partition().to_string();
        let streams = site.streams.min(Semaphore::MAX_PERMITS);
        App {
            site,
            partition,
            reads: Semaphore::new(READS),
            streams: Arc::new(Semaphore::new(streams)),
            keys: Arc::new(Semaphore::new(crate::keys::AT_ONCE)),
            indexes: Indexes::default(),
            followed: Followed::default(),
            newest: Newest::default(),
            what_ifs: Desk::default(),
            asks: Arc::new(Semaphore::new(ASKS)),
            since: Since::default(),
            layouts: Mutex::default(),
            rules: Mutex::default(),
        }
    }

    /// A place among the streams and waits that are open.
    pub(crate) fn stream(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| ApiError::Full(self.site.streams))
    }

    /// The position as it stands in headers.
    pub(crate) fn position(&self, sequence: u64) -> String {
        format!("{}:{sequence}", self.partition)
    }

    /// The tag of a document as of an event: the same document, whenever it is asked for.
    fn etag(&self, sequence: u64) -> String {
        format!("\"{};{}\"", self.position(sequence), self.site.version)
    }

    /// A layout by its blob.
    pub(crate) fn layout(&self, hash: &BlobHash) -> Result<Arc<Layout>, ApiError> {
        {
            let kept = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, layout)) = kept.iter().find(|(other, _)| other == hash) {
                return Ok(Arc::clone(layout));
            }
        }
        let layout: Arc<Layout> = Arc::new(self.blob(hash, "layout")?);
        let mut kept = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= LAYOUTS {
            kept.remove(0);
        }
        kept.push((*hash, Arc::clone(&layout)));
        Ok(layout)
    }

    /// Who may do what, by the blob of a tenant's settings.
    fn rules(&self, settings: &BlobHash) -> Result<Arc<Authorization>, ApiError> {
        let kept = || self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = kept().get(settings) {
            return Ok(Arc::clone(rules));
        }
        let read = self.blob_read(settings, "tenant's settings", TenantSettings::read)?;
        let rules = Arc::new(read.authorization);
        let mut kept = kept();
        if kept.len() >= RULES {
            kept.pop_first();
        }
        kept.insert(*settings, Arc::clone(&rules));
        Ok(rules)
    }

    /// Who may do what in a tenant, or (none) at the root; none where the tenant is not there.
    pub(crate) async fn authorization(
        self: &Arc<Self>,
        tenant: Option<&str>,
    ) -> Result<Option<Arc<Authorization>>, ApiError> {
        let tenant = tenant.map(str::to_owned);
        let look = move |reading: &Reading<'_>| match &tenant {
            Some(tenant) => reading.rules_of(tenant),
            None => reading.rules_of_root().map(Some),
        };
        self.blocking(move |app| read(app, None, Needs::History, look)).await
    }

    /// The same for the root and every tenant.
    pub(crate) async fn authorizations(
        self: &Arc<Self>,
    ) -> Result<Vec<(Option<String>, Arc<Authorization>)>, ApiError> {
        let look = |reading: &Reading<'_>| {
            let mut all = vec![(None, reading.rules_of_root()?)];
            for tenant in reading.history().tenant_names(u64::MAX)? {
                if let Some(rules) = reading.rules_of(&tenant)? {
                    all.push((Some(tenant), rules));
                }
            }
            Ok(all)
        };
        self.blocking(move |app| read(app, None, Needs::History, look)).await
    }

    /// The realm people log in to.
    pub(crate) fn realm(&self, rules: Option<&Authorization>, tenant: Option<&str>) -> String {
        let own = rules.and_then(|rules| rules.realm(tenant).or_else(|| rules.realm(None)));
        own.unwrap_or_else(|| self.site.authenticators.realm()).to_owned()
    }

    /// Who bears the token of a request.
    pub(crate) async fn person(
        &self,
        headers: &HeaderMap,
        rules: Option<&Authorization>,
        tenant: Option<&str>,
    ) -> Result<Person, ApiError> {
        let person = self.site.authenticators.person(headers).await;
        person.map_err(|refused| ApiError::Unauthorized { realm: self.realm(rules, tenant), refused })
    }

    /// Problems by their blob.
    pub(crate) fn problems(&self, hash: &BlobHash) -> Result<Vec<Problem>, ApiError> {
        self.blob(hash, "list of problems")
    }

    fn blob<T: DeserializeOwned>(&self, hash: &BlobHash, what: &str) -> Result<T, ApiError> {
        self.blob_read(hash, what, codec::decode)
    }

    fn blob_read<T>(
        &self,
        hash: &BlobHash,
        what: &str,
        read: impl FnOnce(&[u8]) -> Result<T, CodecError>,
    ) -> Result<T, ApiError> {
        let bytes = self.site.blobs.get(hash).map_err(|error| ApiError::Internal(format!("the {what}: {error}")))?;
        read(&bytes).map_err(|error| ApiError::Internal(format!("the {what} in blob {hash}: {error}")))
    }

    /// Runs what blocks, in turn and not for ever.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = Arc::clone(self);
        let answered = async {
            let _place = app.reads.acquire().await.map_err(|_| ApiError::Busy)?;
            let app = Arc::clone(&app);
            tokio::task::spawn_blocking(move || work(&app))
                .await
                .map_err(|error| ApiError::Internal(format!("a request could not be answered: {error}")))?
        };
        tokio::time::timeout(READ_TIME, answered).await.map_err(|_| ApiError::Timeout)?
    }
}

/// The live tables that answer: those of now, or those of then.
pub(crate) enum Live<'v> {
    /// As they are.
    Now(&'v GateLive<RocksBacking>),
    /// As they were.
    Then(Arc<GateLive<Maps>>),
}

/// The tables that answer one read, and as of which event.
pub(crate) struct Reading<'v> {
    pub(crate) app: &'v App,
    /// As of which event.
    pub(crate) at: u64,
    /// When that was.
    pub(crate) now: Timestamp,
    view: &'v View<'v, Gate>,
    then: Option<Then>,
}

/// The live tables as they were.
struct Then {
    gate: Arc<GateLive<Maps>>,
    /// Capacity's, where the gate's name what only those tell of.
    capacity: Option<Arc<CapacityLive<Maps>>>,
}

impl Then {
    /// Those of a moment; takes a while.
    fn fetch(app: &App, at: u64) -> Result<Then, ApiError> {
        let past = &app.site.past;
        let gate = past.at(at)?;
        let capacity = match holds::names_leases(&gate)? {
            true => Some(past.capacity_at(past.capacity_beside(at)?)?),
            false => None,
        };
        Ok(Then { gate, capacity })
    }
}

impl Reading<'_> {
    /// The temporal tables; read them as of [`Reading::at`].
    pub(crate) fn history(&self) -> &GateRead<RocksBacking> {
        self.view.temporal()
    }

    /// The live tables.
    pub(crate) fn live(&self) -> Live<'_> {
        match &self.then {
            Some(then) => Live::Then(Arc::clone(&then.gate)),
            None => Live::Now(self.view.live()),
        }
    }

    /// Something of a lease as capacity has it, now or then.
    pub(crate) fn of_lease<T: Default>(&self, lease: LeaseId, of: impl FnOnce(&LeaseRow) -> T) -> Result<T, ApiError> {
        let row = match &self.then {
            None => self.app.site.capacity.view().live().own.leases.get(&lease)?.map(|row| of(&row)),
            Some(Then { capacity: Some(capacity), .. }) => capacity.own.leases.get(&lease)?.map(|row| of(&row)),
            Some(Then { capacity: None, .. }) => None,
        };
        Ok(row.unwrap_or_default())
    }

    /// Whether a tenant is there: 404 otherwise. Before the first event every tenant that ever came is
    /// an empty one.
    pub(crate) fn need_tenant(&self, tenant: &str) -> Result<(), ApiError> {
        let at = if self.at == 0 { u64::MAX } else { self.at };
        self.history().tenant(tenant, at)?.map(|_| ()).ok_or_else(|| ApiError::tenant(tenant))
    }

    /// Who may do what in a tenant, by its newest settings, whatever moment is asked about.
    pub(crate) fn rules_of(&self, tenant: &str) -> Result<Option<Arc<Authorization>>, ApiError> {
        match self.history().tenant(tenant, u64::MAX)? {
            Some(entry) => self.app.rules(&entry.loaded.settings).map(Some),
            None => Ok(None),
        }
    }

    /// Who may do what at the root: every tenant of the newest tenant file knows.
    pub(crate) fn rules_of_root(&self) -> Result<Arc<Authorization>, ApiError> {
        let mut newest: Option<(u64, BlobHash)> = None;
        for tenant in self.history().tenant_names(u64::MAX)? {
            if let Some(entry) = self.history().tenant(&tenant, u64::MAX)?
                && newest.is_none_or(|(version, _)| entry.loaded.version > version)
            {
                newest = Some((entry.loaded.version, entry.loaded.settings));
            }
        }
        match newest {
            Some((_, settings)) => self.app.rules(&settings),
            None => Ok(Arc::default()),
        }
    }

    /// A tenant's layout in force, if there is one.
    pub(crate) fn layout(&self, tenant: &str) -> Result<Option<Arc<Layout>>, ApiError> {
        match self.history().layout(tenant, self.at)?.and_then(|entry| entry.layout) {
            Some(hash) => self.app.layout(&hash).map(Some),
            None => Ok(None),
        }
    }
}

/// Which tables a document is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The temporal ones.
    History,
    /// The live ones too.
    Live,
}

/// The moment a request asks about: a sequence, or the newest.
fn asked(app: &App, query: &Query) -> Result<Option<u64>, ApiError> {
    let Some(text) = query.one("at")? else { return Ok(None) };
    let view = app.site.gate.view();
    let newest = view.position().sequence;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let beyond = || ApiError::Beyond { wanted: format!("event {text}"), newest: app.position(newest) };
        let sequence: u64 = text.parse().map_err(|_| beyond())?;
        return if sequence > newest { Err(beyond()) } else { Ok(Some(sequence)) };
    }
    let moment: jiff::Timestamp = text.parse().map_err(|_| {
        ApiError::BadRequest(format!(
            "at={text:?} is neither the sequence of an event nor a time such as 2026-01-31T14:03:00Z"
        ))
    })?;
    Ok(Some(view.temporal().sequence_at(Timestamp(moment.as_microsecond()))?))
}

/// Waits until the fold has reached what `after` names.
async fn wait(app: &Arc<App>, query: &Query) -> Result<(), ApiError> {
    let Some(wanted) = query.number("after", u64::MAX)? else { return Ok(()) };
    let _place = app.stream()?;
    let mut fold = app.site.gate_fold.subscribe();
    let reached = tokio::time::timeout(AFTER_TIME, fold.reached(wanted)).await;
    let not_yet = |at: u64| ApiError::NotYet { wanted, at, position: app.position(at) };
    match reached {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(WaitError::NotYet { at, .. } | WaitError::Stopped { at, .. } | WaitError::Ended { at, .. })) => {
            Err(not_yet(at))
        }
        Err(_) => Err(not_yet(app.site.gate_fold.position().sequence)),
    }
}

/// Makes a document as of the moment a request asks about.
pub(crate) fn read<T>(
    app: &App,
    asked: Option<u64>,
    needs: Needs,
    render: impl FnOnce(&Reading<'_>) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    // The past is fetched before the tables are held: folding waits for whoever holds them.
    let mut then = None;
    if let (Some(at), Needs::Live) = (asked, needs)
        && at != app.site.gate.position().sequence
    {
        then = Some(Then::fetch(app, at)?);
    }
    let mut view = app.site.gate.view();
    if let (Some(at), Needs::Live, None) = (asked, needs, &then)
        && at != view.position().sequence
    {
        drop(view);
        then = Some(Then::fetch(app, at)?);
        view = app.site.gate.view();
    }
    let at = asked.unwrap_or(view.position().sequence);
    let now = view.temporal().moment(at)?.map_or(Timestamp::ZERO, |moment| moment.at);
    render(&Reading { app, at, now, view: &view, then })
}

/// What an answer says, as of which event: `None` where who asks has it already.
pub(crate) type Said = (u64, Result<Option<Bytes>, ApiError>);

/// Answers a read with a document.
pub(crate) async fn answer<T: ToString>(
    app: Arc<App>,
    headers: HeaderMap,
    query: Query,
    needs: Needs,
    render: impl FnOnce(&Reading<'_>, &Query) -> Result<T, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    answer_with(app, headers, query, move |app, had, query| {
        let asked = asked(app, query)?;
        // The past is not fetched for those who have it.
        if let Some(at) = asked
            && had.has(app, at)
        {
            return Ok((at, Ok(None)));
        }
        let (at, made) = read(app, asked, needs, |reading| match had.has(app, reading.at) {
            true => Ok((reading.at, Ok(None))),
            false => Ok((reading.at, render(reading, query).map(Some))),
        })?;
        // Written down when folding need not wait for it.
        Ok((at, made.map(|made| made.map(|document| document.to_string().into()))))
    })
    .await
}

/// Answers a read with what is said to it.
pub(crate) async fn answer_with(
    app: Arc<App>,
    headers: HeaderMap,
    query: Query,
    say: impl FnOnce(&App, &Had, &Query) -> Result<Said, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    wait(&app, &query).await?;
    let had = Had(headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()).map(str::to_owned));
    let (at, said) = app.blocking(move |app| say(app, &had, &query)).await?;
    let document = match said {
        Ok(document) => document,
        Err(error) => {
            // That there is nothing is an answer too, as of a position.
            let mut response = error.into_response();
            mark(&app, response.headers_mut(), at);
            return Ok(response);
        }
    };
    let status = if document.is_some() { StatusCode::OK } else { StatusCode::NOT_MODIFIED };
    let mut response = Response::new(document.map_or_else(Body::empty, Body::from));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    mark(&app, headers, at);
    headers.insert(ETAG, value(&app.etag(at)));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if status == StatusCode::OK {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    }
    Ok(response)
}

/// The tags of documents that who asks has already.
pub(crate) struct Had(Option<String>);

impl Had {
    /// Whether the document as of an event is among them.
    pub(crate) fn has(&self, app: &App, at: u64) -> bool {
        self.0.as_deref().is_some_and(|had| matches(had, &app.etag(at)))
    }
}

/// Marks an answer with its position.
pub(crate) fn mark(app: &App, headers: &mut HeaderMap, at: u64) {
    headers.insert(POSITION, value(&app.position(at)));
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// Whether one of the tags a client has is this one.
fn matches(had: &str, tag: &str) -> bool {
    had.split(',').map(|one| one.trim().trim_start_matches("W/")).any(|one| one == tag)
}

/// The sequence `at` names, for streams and consoles.
pub(crate) async fn moment(app: &Arc<App>, query: &Query) -> Result<Option<u64>, ApiError> {
    wait(app, query).await?;
    let query = query.clone();
    app.blocking(move |app| asked(app, &query)).await
}
