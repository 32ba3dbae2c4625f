//! What operators may ask for: enqueue, dequeue, promote, and what becomes of a tenant's outside events. Zuul: its
//! routes for administrators.
//!
//! Nothing is decided here. A request is checked for its form, its sender against the tenant file, and what it names
//! against what there is; then it is an input like any other, with its sender as the actor, and the answer waits for
//! what the gate makes of it. Zuul: without authenticators none of these paths exist.

mod ask;
mod body;
pub(crate) mod holds;
pub(crate) mod site;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use gatelog_gate_state::live::subject_name;
use gatelog_record::draft::gate::{
    ChangeKey, DequeueAsked, EnqueueAsked, IntakeAsked, PromoteAsked, TenantProject, TriggerIntake,
};
use gatelog_record::input::GateInput;
use gatelog_record::{Input, Partition};
use gatelog_rules_config::authorization::{ADMIN, Asked, Authorization};
use serde_json::{Value, json};

pub use ask::{Answer, Ask, NoOperators, NotAsked, Operators};
use body::{Fields, MANY, change_name, change_or_ref};

use crate::answers::{self, Rights, RightsOf};
use crate::auth::Person;
use crate::error::ApiError;
use crate::keys::project_of;
use crate::paths::{Right, Route, delete, get, post};
use crate::query::Query;
use crate::reading::{App, Live, Needs, Reading, mark, read};
use crate::routes::{MAX_BODY, Segments, segments};
use crate::shape::ref_id;

type Shared = State<Arc<App>>;
type Answered = Result<Response, ApiError>;
type Sent = Result<Bytes, BytesRejection>;
/// All but the body of what is sent to a path of a tenant.
type Head = (Shared, Segments<String>, HeaderMap, RawQuery);
/// The same of what is sent to a path of a project.
type ProjectHead = (Shared, Segments<(String, String)>, HeaderMap, RawQuery);

/// An answer waits so long at most until what was asked for can be read here.
const READ_TIME: Duration = Duration::from_secs(2);

/// Why what somebody may do is told as of now alone.
const OF_RIGHTS: &str = "what somebody may do goes by the newest tenant file, whatever moment they look at";

/// Permissions, by Zuul's names where Zuul has them.
const ENQUEUE: &str = "enqueue";
const DEQUEUE: &str = "dequeue";
const PROMOTE: &str = "promote";
const SET_TENANT_STATE: &str = "set-tenant-state";
const AUTOHOLD: &str = "autohold";

/// The routes of operators. The order is that of the map.
pub(crate) fn routes() -> Vec<Route> {
    let operator = Right::Operator;
    let mut routes = vec![
        get("authorizations", "/api/authorizations", root_authorizations)
            .now(OF_RIGHTS)
            .right(Right::Token)
            .answers::<Rights>(),
        get("tenant_authorizations", "/api/tenant/{tenant}/authorizations", authorizations)
            .now(OF_RIGHTS)
            .right(Right::Token)
            .answers::<Rights>(),
        post("enqueue", "/api/tenant/{tenant}/project/{*project}/enqueue", enqueue)
            .right(operator(ENQUEUE))
            .takes::<answers::EnqueueBody>()
            .answers::<bool>(),
        post("dequeue", "/api/tenant/{tenant}/project/{*project}/dequeue", dequeue)
            .right(operator(DEQUEUE))
            .takes::<answers::DequeueBody>()
            .answers::<bool>(),
        post("promote", "/api/tenant/{tenant}/promote", promote)
            .right(operator(PROMOTE))
            .takes::<answers::PromoteBody>()
            .answers::<bool>(),
        get("autohold", "/api/tenant/{tenant}/project/{*project}/autohold", holds::of_project)
            .answers::<Vec<answers::Autohold>>(),
        post("autohold", "/api/tenant/{tenant}/project/{*project}/autohold", holds::ask)
            .right(operator(AUTOHOLD))
            .takes::<answers::AutoholdBody>()
            .answers::<bool>(),
        get("autohold_list", "/api/tenant/{tenant}/autohold", holds::of_tenant)
            .parameters(holds::PARAMETERS)
            .answers::<Vec<answers::Autohold>>(),
        get("autohold_by_request_id", "/api/tenant/{tenant}/autohold/{request_id}", holds::one)
            .answers::<answers::Autohold>(),
        delete("autohold_delete", "/api/tenant/{tenant}/autohold/{request_id}", holds::remove)
            .right(operator(AUTOHOLD))
            .parameters(holds::DELETE_PARAMETERS)
            .answers_nothing(&[204]),
        post("tenant_state", "/api/tenant/{tenant}/state", state)
            .right(operator(SET_TENANT_STATE))
            .takes::<answers::TenantStateBody>()
            .answers::<()>(),
    ];
    routes.extend(site::routes());
    routes.into_iter().map(Route::of_operators).chain([site::raise_route()]).collect()
}

/// Who asks at a path of operators, where there is somebody who could say so.
async fn person(
    app: &Arc<App>,
    headers: &HeaderMap,
    rules: Option<&Authorization>,
    tenant: Option<&str>,
) -> Result<Person, ApiError> {
    let configured = !app.site.authenticators.is_empty();
    if !configured && !app.site.authenticators.claims_to_be_local(headers) {
        return Err(ApiError::nothing());
    }
    let person = app.person(headers, rules, tenant).await;
    if configured { person } else { person.map_err(|_| ApiError::nothing()) }
}

/// Whether the sender of a request may know that there are paths of operators.
///
/// # Errors
/// What they are told instead.
pub(crate) async fn known(app: &Arc<App>, headers: &HeaderMap, tenant: Option<&str>) -> Result<(), ApiError> {
    let rules = app.authorization(tenant).await?;
    person(app, headers, rules.as_deref(), tenant).await.map(|_| ())
}

/// The project of a path, where something stands before its end.
fn project_before<'r>(rest: &'r str, end: &str) -> Result<&'r str, ApiError> {
    rest.strip_suffix(end).filter(|project| !project.is_empty()).ok_or_else(ApiError::nothing)
}

/// One who asks, and of what rules.
struct Asking {
    app: Arc<App>,
    headers: HeaderMap,
    tenant: Option<String>,
    rules: Arc<Authorization>,
    person: Person,
}

/// Who asks, where there is somebody who could say so and the tenant is there.
async fn asking(
    app: Arc<App>,
    headers: HeaderMap,
    query: Option<String>,
    tenant: Option<String>,
) -> Result<Asking, ApiError> {
    if app.site.authenticators.is_empty() && !app.site.authenticators.claims_to_be_local(&headers) {
        return Err(ApiError::nothing());
    }
    let rules = app.authorization(tenant.as_deref()).await?;
    let person = person(&app, &headers, rules.as_deref(), tenant.as_deref()).await?;
    Query::read_only(query.as_deref(), &[])?;
    let rules = rules.ok_or_else(|| ApiError::tenant(tenant.as_deref().unwrap_or_default()))?;
    Ok(Asking { app, headers, tenant, rules, person })
}

impl Asking {
    fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or_default()
    }

    /// Whether they may do this.
    fn need(&self, permission: &str, project: Option<&str>, reference: Option<&str>) -> Result<(), ApiError> {
        let asked = Asked { permission: Some(permission), project, reference };
        if self.rules.decide(self.tenant.as_deref(), &self.person.claims, &asked).admin {
            return Ok(());
        }
        tracing::info!(
            issuer = self.person.issuer,
            uid = self.person.uid,
            tenant = self.tenant(),
            permission,
            "an operator's request is not permitted"
        );
        let where_ = match &self.tenant {
            Some(tenant) => format!("in tenant {tenant}"),
            None => "on this site".to_owned(),
        };
        let what = format!("{} may not {permission} {where_}", self.person.uid);
        Err(ApiError::Forbidden { realm: self.app.realm(Some(&self.rules), self.tenant.as_deref()), what })
    }

    /// What the tables say of it, as they are now.
    async fn look<T: Send + 'static>(
        &self,
        needs: Needs,
        look: impl FnOnce(&Reading<'_>, &str) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let tenant = self.tenant().to_owned();
        self.app.blocking(move |app| read(app, None, needs, |reading| look(reading, &tenant))).await
    }

    /// Puts the request onto the log of its partition and waits for what becomes of it.
    async fn put(&self, partition: Partition, key: &str, input: Input) -> Result<Answer, ApiError> {
        let request = self.headers.get("x-request-id").and_then(|value| value.to_str().ok()).map(str::trim);
        let fine = |id: &&str| !id.is_empty() && id.len() <= 100 && id.bytes().all(|byte| byte.is_ascii_graphic());
        let request = match request {
            None => None,
            Some(id) if fine(&id) => Some(id.to_owned()),
            Some(_) => {
                let what = "X-Request-Id must be 1 to 100 visible characters";
                return Err(ApiError::BadRequest(what.into()));
            }
        };
        let ask = Ask { person: self.person.clone(), request, partition, key: key.to_owned(), input };
        let place = Arc::clone(&self.app.asks).try_acquire_owned().map_err(|_| ApiError::Busy)?;
        let operators = Arc::clone(&self.app.site.operators);
        let work = move || {
            // Held until the work is done, also where nobody waits for it any more.
            let _place = place;
            operators.ask(&ask)
        };
        let asked = tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| ApiError::Internal(format!("a request could not be made: {error}")))?;
        asked.map_err(|error| ApiError::Unavailable(error.to_string()))
    }

    /// Asks the gate, and answers with this.
    async fn ask(self, input: GateInput, answer: Value) -> Answered {
        let keeps = matches!(input, GateInput::AutoholdAsked(_));
        let app = Arc::clone(&self.app);
        let gate = app.site.gate.view().partition();
        let asked = self.put(gate, self.tenant(), input.into()).await?;
        let number = match (&asked, keeps) {
            (Answer::Decided { input, nothing: None, .. }, true) => Some(*input),
            _ => None,
        };
        let at = asked.taken()?;
        let mut response = Json(answer).into_response();
        if let Some(number) = number {
            holds::say_number(&mut response, number);
        }
        if let Some(at) = at {
            // Who asks and then reads sees what became of it. A fold that is far behind keeps nobody waiting for long:
            // the position is in the answer, and `after=` waits longer.
            let _reached = tokio::time::timeout(READ_TIME, app.site.gate_fold.subscribe().reached(at)).await;
            mark(&app, response.headers_mut(), at);
        }
        Ok(response)
    }
}

/// The fields of a body that was sent.
fn fields(sent: Sent) -> Result<Fields, ApiError> {
    let bytes = sent.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLarge(MAX_BODY),
        _ => ApiError::BadRequest(error.body_text()),
    })?;
    Fields::read(&bytes)
}

/// Who sent what to a path of a tenant, where they may do what it is for.
async fn posted(
    (State(app), path, headers, RawQuery(query)): Head,
    sent: Sent,
    permission: &str,
) -> Result<(Asking, Fields), ApiError> {
    let asking = asking(app, headers, query, Some(segments(path)?)).await?;
    asking.need(permission, None, None)?;
    Ok((asking, fields(sent)?))
}

/// A pipeline of the tenant, where its layout is known.
fn need_pipeline(reading: &Reading<'_>, tenant: &str, pipeline: &str) -> Result<(), ApiError> {
    let Some(layout) = reading.layout(tenant)? else { return Ok(()) };
    if layout.pipelines_in_order().any(|known| known.name == pipeline) {
        return Ok(());
    }
    let known: Vec<&str> = layout.pipelines_in_order().map(|known| known.name.as_str()).collect();
    let message = format!("tenant {tenant:?} has no pipeline {pipeline:?}; it has: {}", known.join(", "));
    Err(ApiError::BadRequest(message))
}

/// Who sent what to a path of a project that ends so.
async fn to_project(
    (State(app), path, headers, RawQuery(query)): ProjectHead,
    end: &str,
    sent: Sent,
) -> Result<(Asking, String, Fields), ApiError> {
    let (tenant, rest) = segments(path)?;
    let project = project_before(&rest, end)?.to_owned();
    let asking = asking(app, headers, query, Some(tenant)).await?;
    Ok((asking, project, fields(sent)?))
}

/// The project and the pipeline a request names.
async fn placed(asking: &Asking, project: &str, pipeline: &str) -> Result<TenantProject, ApiError> {
    let (project, pipeline) = (project.to_owned(), pipeline.to_owned());
    asking
        .look(Needs::History, move |reading, tenant| {
            let project = project_of(reading, tenant, &project)?;
            need_pipeline(reading, tenant, &pipeline)?;
            Ok(project)
        })
        .await
}

async fn enqueue(head: ProjectHead, sent: Sent) -> Answered {
    let (asking, project, body) = to_project(head, "/enqueue", sent).await?;
    asking.need(ENQUEUE, Some(&project), body.reference())?;
    body.only(&["pipeline", "change", "ref", "oldrev", "newrev", "parameters", "reason"])?;
    let pipeline = body.needed("pipeline")?;
    let reason = body.reason()?;
    let parameters = body.parameters()?;
    let (old_commit, new_commit) = (body.commit("oldrev")?, body.commit("newrev")?);
    let project = placed(&asking, &project, &pipeline).await?;
    let change = change_or_ref(&body, &project.project)?;
    if (old_commit.is_some() || new_commit.is_some()) && !change.change.starts_with("refs/") {
        return Err(ApiError::BadRequest("`oldrev` and `newrev` are of a ref, and the body names a change".into()));
    }
    let asked = EnqueueAsked {
        tenant: asking.tenant().to_owned(),
        pipeline,
        connection: project.connection,
        change,
        reason,
        old_commit,
        new_commit,
        parameters,
    };
    if !asked.parameters.is_empty() && !asked.takes_parameters() {
        return Err(ApiError::BadRequest("`parameters` are for branches and tags: say `ref`".into()));
    }
    asking.ask(GateInput::EnqueueAsked(asked), json!(true)).await
}

async fn dequeue(head: ProjectHead, sent: Sent) -> Answered {
    let (asking, project, body) = to_project(head, "/dequeue", sent).await?;
    asking.need(DEQUEUE, Some(&project), body.reference())?;
    body.only(&["pipeline", "change", "ref", "reason"])?;
    let pipeline = body.needed("pipeline")?;
    let reason = body.reason()?;
    let project = placed(&asking, &project, &pipeline).await?;
    let change = change_or_ref(&body, &project.project)?;
    let asked = DequeueAsked { tenant: asking.tenant().to_owned(), pipeline, change, reason };
    asking.ask(GateInput::DequeueAsked(asked), json!(true)).await
}

/// A change to be promoted, as a body names it: by its id alone, or with its project.
struct Named {
    change: String,
    project: Option<String>,
}

fn named(value: &Value) -> Result<Named, ApiError> {
    let bad = || {
        let what = "each of `changes` must be a change such as \"1234,5\", or {\"project\": …, \"change\": …}";
        ApiError::BadRequest(what.into())
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    match value {
        Value::String(change) if !change.is_empty() => Ok(Named { change: change.clone(), project: None }),
        Value::Object(map) if map.len() == 2 => {
            let (change, project) =
                (text(map.get("change")).ok_or_else(bad)?, text(map.get("project")).ok_or_else(bad)?);
            Ok(Named { change, project: Some(project) })
        }
        _ => Err(bad()),
    }
}

/// Which change is meant: one that is in the pipeline.
fn meant(reading: &Reading<'_>, tenant: &str, pipeline: &str, named: &Named) -> Result<ChangeKey, ApiError> {
    let wanted = match &named.project {
        Some(name) => Some(project_of(reading, tenant, name)?.project),
        None => None,
    };
    let mut found: Vec<ChangeKey> = Vec::new();
    let Live::Now(live) = reading.live() else {
        return Err(ApiError::Internal("the queues as they are cannot be read".into()));
    };
    let name = change_name(&named.change);
    for row in gatelog_tables::TableExt::all(&live.gate.items)? {
        let (_, item) = row?;
        if item.tenant != tenant || item.pipeline != pipeline || !item.live {
            continue;
        }
        for subject in &item.subjects {
            let fits = wanted.as_ref().is_none_or(|wanted| *wanted == subject.project)
                && (ref_id(subject) == named.change || subject_name(subject) == name);
            if let Some(key) = subject.change_key().filter(|key| fits && !found.contains(key)) {
                found.push(key);
            }
        }
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(ApiError::Declined {
            code: "not-in-pipeline".into(),
            message: format!("{} is not in {pipeline}", named.change),
        }),
        [one, other, ..] => Err(ApiError::BadRequest(format!(
            "{:?} could be a change of {} or of {}: write {{\"project\": …, \"change\": …}}",
            named.change, one.project, other.project
        ))),
    }
}

async fn promote(head: Head, sent: Sent) -> Answered {
    let (asking, body) = posted(head, sent, PROMOTE).await?;
    body.only(&["pipeline", "changes", "reason"])?;
    let (pipeline, reason) = (body.needed("pipeline")?, body.reason()?);
    let list = body.get("changes").and_then(Value::as_array).filter(|list| !list.is_empty() && list.len() <= MANY);
    let list = list.ok_or_else(|| ApiError::BadRequest(format!("`changes` must be a list of 1 to {MANY} changes")))?;
    let list = list.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    let of = pipeline.clone();
    let changes = asking.look(Needs::Live, move |reading, tenant| {
        need_pipeline(reading, tenant, &of)?;
        list.iter().map(|one| meant(reading, tenant, &of, one)).collect::<Result<Vec<_>, _>>()
    });
    let changes = changes.await?;
    let asked = PromoteAsked { tenant: asking.tenant().to_owned(), pipeline, changes, reason };
    asking.ask(GateInput::PromoteAsked(asked), json!(true)).await
}

/// Zuul: a tenant's state. What a body does not name stays as it is.
async fn state(head: Head, sent: Sent) -> Answered {
    let (asking, body) = posted(head, sent, SET_TENANT_STATE).await?;
    body.only(&["trigger_queue_discarding", "trigger_queue_paused", "result_queue_paused", "reason", "info"])?;
    let (discarding, paused) = (body.truth("trigger_queue_discarding")?, body.truth("trigger_queue_paused")?);
    if body.truth("result_queue_paused")? == Some(true) {
        return Err(ApiError::BadRequest("`result_queue_paused`: results are never held up by gatelog".into()));
    }
    if body.text("info")?.is_some_and(|info| !info.is_empty()) {
        return Err(ApiError::BadRequest("`info` is not kept: say it in `reason`".into()));
    }
    let reason = body.text("reason")?;
    let now = asking.look(Needs::Live, |reading, tenant| {
        let Live::Now(live) = reading.live() else { return Ok(Default::default()) };
        let row = gatelog_tables::Table::get(&live.gate.tenants, &tenant.to_owned())?;
        Ok(row.map_or_else(Default::default, |row| (row.triggers, row.triggers_reason.clone())))
    });
    let (triggers, known): (TriggerIntake, String) = now.await?;
    let discarding = discarding.unwrap_or(triggers == TriggerIntake::Discarding);
    let paused = paused.unwrap_or(triggers == TriggerIntake::Paused);
    let triggers = match (discarding, paused) {
        (true, _) => TriggerIntake::Discarding,
        (false, true) => TriggerIntake::Paused,
        (false, false) => TriggerIntake::Open,
    };
    let tenant = asking.tenant().to_owned();
    let asked = IntakeAsked { tenant, triggers, reason: reason.unwrap_or(known) };
    asking.ask(GateInput::IntakeAsked(asked), Value::Null).await
}

async fn authorizations((State(app), path, headers, RawQuery(query)): Head) -> Answered {
    let asking = asking(app, headers, query, Some(segments(path)?)).await?;
    Ok(Json(told(&asking)).into_response())
}

async fn root_authorizations(State(app): Shared, headers: HeaderMap, RawQuery(query): RawQuery) -> Answered {
    let asking = asking(app, headers, query, None).await?;
    Ok(Json(told(&asking)).into_response())
}

/// What somebody may, as Zuul tells it: with role mappings a tenant's answer has no `admin`.
fn told(asking: &Asking) -> Rights {
    let (tenant, claims) = (asking.tenant.as_deref(), &asking.person.claims);
    let found = asking.rules.permissions(tenant, claims);
    let everywhere = claims.pointer("/zuul/admin").and_then(Value::as_str) == Some("*");
    let scope = tenant.unwrap_or(if everywhere { "*" } else { "<root>" });
    let whole = tenant.is_none() || !asking.rules.is_mapped(tenant);
    Rights {
        zuul: RightsOf {
            permissions: found.iter().map(|permission| ((*permission).to_owned(), json!(true))).collect(),
            scope: vec![scope.to_owned()],
            admin: whole.then(|| found.contains(ADMIN)),
        },
    }
}
