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
use gatelog_record::{BlobHash, LeaseId, Partition, Timestamp};
use gatelog_rules_config::authorization::Authorization;
use gatelog_rules_config::{Layout, Problem, TenantSettings};
use gatelog_runner::WaitError;
use gatelog_store::{RocksBacking, View};
use gatelog_tables::{Maps, Table};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::Person;
use crate::console::lines::Indexes;
use crate::cut::{Cut, Named, named};
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
    /// The gate's partition.
    pub(crate) gate: Partition,
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
        let gate = site.gate.view().partition();
        let streams = site.streams.min(Semaphore::MAX_PERMITS);
        App {
            site,
            gate,
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

    /// A position of the gate alone.
    pub(crate) fn position(&self, sequence: u64) -> String {
        format!("{}:{sequence}", self.gate)
    }

    /// The tag of a document as of a cut: the same document, whenever it is asked for.
    fn etag(&self, cut: &Cut) -> String {
        format!("\"{cut};{}\"", self.site.version)
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
    /// Those of a moment, beside each other as a request names them; takes a while.
    fn fetch(app: &App, at: &At) -> Result<Then, ApiError> {
        let past = &app.site.past;
        let gate = past.at(at.gate)?;
        let capacity = match holds::names_leases(&gate)? {
            true => Some(past.capacity_at(at.capacity(app)?)?),
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

/// A moment that a request asks about.
#[derive(Clone, Debug)]
pub(crate) struct At {
    /// As of which event of the gate.
    pub(crate) gate: u64,
    /// What it says of others; they stand beside the gate where it says nothing.
    named: Named,
}

impl From<u64> for At {
    fn from(gate: u64) -> At {
        At { gate, named: Named::new() }
    }
}

impl At {
    /// Where every partition stands then. Takes a while.
    pub(crate) fn cut(&self, app: &App) -> Result<Cut, ApiError> {
        app.then(self.gate, &self.named)
    }

    /// As of which event of capacity's that is. Takes a while.
    pub(crate) fn capacity(&self, app: &App) -> Result<u64, ApiError> {
        Ok(self.cut(app)?.of(app.site.capacity_partition()))
    }
}

/// The moment a request asks about: a position, a time, or the newest.
fn asked(app: &App, query: &Query) -> Result<Option<At>, ApiError> {
    let Some(text) = query.one("at")? else { return Ok(None) };
    let view = app.site.gate.view();
    let newest = view.position().sequence;
    if let Some(named) = named(text, app.gate)? {
        let Some((_, gate)) = named.iter().find(|(partition, _)| *partition == app.gate).copied() else {
            return Err(ApiError::BadRequest(format!(
                "at={text:?} says nothing of {}: a moment is one of its",
                app.gate
            )));
        };
        if gate > newest {
            let wanted = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| format!("event {text}"));
            let newest = app.now().with(app.gate, newest).to_string();
            return Err(ApiError::Beyond { wanted: wanted.unwrap_or_else(|| text.to_owned()), newest });
        }
        let named = named.into_iter().filter(|(partition, _)| *partition != app.gate).collect();
        return Ok(Some(At { gate, named }));
    }
    let moment: jiff::Timestamp = text.parse().map_err(|_| {
        ApiError::BadRequest(format!(
            "at={text:?} is neither a position (the sequence of an event, or gate/0:120,capacity/0:31) nor a time such as \
             2026-01-31T14:03:00Z"
        ))
    })?;
    Ok(Some(view.temporal().sequence_at(Timestamp(moment.as_microsecond()))?.into()))
}

/// Waits until the folds have reached what `after` names.
async fn wait(app: &Arc<App>, query: &Query) -> Result<(), ApiError> {
    let Some(text) = query.one("after")? else { return Ok(()) };
    let wrong = || {
        ApiError::BadRequest(format!("after={text:?} is neither the sequence of an event nor gate/0:120,capacity/0:31"))
    };
    let wanted = named(text, app.gate)?.ok_or_else(wrong)?;
    let _place = app.stream()?;
    let until = tokio::time::Instant::now() + AFTER_TIME;
    for (partition, sequence) in wanted {
        let fold = app.site.folds.iter().find(|fold| fold.partition() == partition);
        let published = fold.ok_or_else(|| app.unknown(partition))?.published();
        let not_yet = |at: u64| ApiError::NotYet { wanted: sequence, at, position: app.now().to_string() };
        match tokio::time::timeout_at(until, published.subscribe().reached(sequence)).await {
            Ok(Ok(_)) => {}
            Ok(Err(WaitError::NotYet { at, .. } | WaitError::Stopped { at, .. } | WaitError::Ended { at, .. })) => {
                return Err(not_yet(at));
            }
            Err(_) => return Err(not_yet(published.position().sequence)),
        }
    }
    Ok(())
}

/// Makes a document as of the moment a request asks about.
pub(crate) fn read<T>(
    app: &App,
    asked: Option<u64>,
    needs: Needs,
    render: impl FnOnce(&Reading<'_>) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    read_at(app, asked.map(At::from).as_ref(), needs, render)
}

/// The same, where the request may say more of the moment than the gate's event.
pub(crate) fn read_at<T>(
    app: &App,
    asked: Option<&At>,
    needs: Needs,
    render: impl FnOnce(&Reading<'_>) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    // The past is fetched before the tables are held: folding waits for whoever holds them. Where others are asked for as
    // of an event of their own, they are not as they are.
    let then = |newest: u64| match (asked, needs) {
        (Some(at), Needs::Live) if at.gate != newest || !at.named.is_empty() => Then::fetch(app, at).map(Some),
        _ => Ok(None),
    };
    let mut past = then(app.site.gate.position().sequence)?;
    let mut view = app.site.gate.view();
    if past.is_none() && asked.is_some_and(|at| at.gate != view.position().sequence) {
        let newest = view.position().sequence;
        drop(view);
        past = then(newest)?;
        view = app.site.gate.view();
    }
    let then = past;
    let at = asked.map_or(view.position().sequence, |at| at.gate);
    let now = view.temporal().moment(at)?.map_or(Timestamp::ZERO, |moment| moment.at);
    render(&Reading { app, at, now, view: &view, then })
}

/// What an answer says, and as of where: `None` where who asks has it already.
pub(crate) type Said = (Cut, Result<Option<Bytes>, ApiError>);

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
        // Where others stand is seen before their tables are read, and no more is said than is folded here: what comes
        // meanwhile makes the answer newer than it says, and never older.
        let now = app.now();
        let cut = match &asked {
            Some(at) => at.cut(app)?.at_most(&now).with(app.gate, at.gate),
            None => now,
        };
        // The past is not fetched for those who have it.
        if asked.is_some() && had.has(app, &cut) {
            return Ok((cut, Ok(None)));
        }
        let (cut, made) = read_at(app, asked.as_ref(), needs, |reading| {
            let cut = cut.with(app.gate, reading.at);
            let has = had.has(app, &cut);
            Ok((cut, if has { Ok(None) } else { render(reading, query).map(Some) }))
        })?;
        // Written down when folding need not wait for it.
        Ok((cut, made.map(|made| made.map(|document| document.to_string().into()))))
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
    let (cut, said) = app.blocking(move |app| say(app, &had, &query)).await?;
    let document = match said {
        Ok(document) => document,
        Err(error) => {
            // That there is nothing is an answer too, as of a position.
            let mut response = error.into_response();
            mark_cut(response.headers_mut(), &cut);
            return Ok(response);
        }
    };
    let status = if document.is_some() { StatusCode::OK } else { StatusCode::NOT_MODIFIED };
    let mut response = Response::new(document.map_or_else(Body::empty, Body::from));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    mark_cut(headers, &cut);
    headers.insert(ETAG, value(&app.etag(&cut)));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if status == StatusCode::OK {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    }
    Ok(response)
}

/// The tags of documents that who asks has already.
pub(crate) struct Had(Option<String>);

impl Had {
    /// Whether the document as of a cut is among them.
    pub(crate) fn has(&self, app: &App, cut: &Cut) -> bool {
        self.0.as_deref().is_some_and(|had| matches(had, &app.etag(cut)))
    }
}

/// Marks an answer with where all stood.
pub(crate) fn mark_cut(headers: &mut HeaderMap, cut: &Cut) {
    headers.insert(POSITION, value(&cut.to_string()));
}

/// Marks an answer that is of the gate alone with its position.
pub(crate) fn mark(app: &App, headers: &mut HeaderMap, at: u64) {
    headers.insert(POSITION, value(&app.position(at)));
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// Whether one of the tags a client has is this one. Tags hold commas themselves.
fn matches(had: &str, tag: &str) -> bool {
    had.match_indices(tag).any(|(at, _)| {
        let (before, after) = (&had[..at], &had[at + tag.len()..]);
        let begins = before.trim_end().strip_suffix("W/").unwrap_or(before).trim_end();
        (begins.is_empty() || begins.ends_with(','))
            && (after.trim_start().is_empty() || after.trim_start().starts_with(','))
    })
}

/// The sequence `at` names, for streams, pages and consoles.
pub(crate) async fn moment(app: &Arc<App>, query: &Query) -> Result<Option<u64>, ApiError> {
    Ok(moment_of_all(app, query).await?.map(|at| at.gate))
}

/// The moment `at` names.
pub(crate) async fn moment_of_all(app: &Arc<App>, query: &Query) -> Result<Option<At>, ApiError> {
    wait(app, query).await?;
    let query = query.clone();
    app.blocking(move |app| asked(app, &query)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_among_others_though_it_holds_commas() {
        let tag = "\"gate/0:4,capacity/0:1;1.0\"";
        for had in [tag.to_owned(), format!("\"x\", W/{tag}"), format!("{tag}, \"y\""), format!("W/{tag}")] {
            assert!(matches(&had, tag), "{had}");
        }
        for other in ["\"gate/0:4,capacity/0:2;1.0\"", "", "*", "x\"gate/0:4,capacity/0:1;1.0\""] {
            assert!(!matches(other, tag), "{other}");
        }
    }
}
