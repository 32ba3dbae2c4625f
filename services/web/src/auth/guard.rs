//! Who may look: everybody where the tenant file lets everybody, else whoever a token says may.

use std::sync::Arc;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gatelog_rules_config::authorization::{Asked, Authorization};

use super::Person;
use crate::error::ApiError;
use crate::page;
use crate::paths::Right;
use crate::reading::App;

/// Lets through what its sender may read. Who may ask for what changes something, what asks for it sees by itself.
pub(crate) async fn guard(
    State((app, right)): State<(Arc<App>, Right)>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let may = match right {
        Right::Everybody | Right::LookByMessage | Right::Token | Right::Operator(_) => Ok(()),
        Right::LookAtAll | Right::OperatorOfAll(_) => may_read_all(&app, request.headers()).await,
        Right::Look => {
            let tenant = params.ok().and_then(|params| {
                params.iter().find(|(name, _)| *name == "tenant").map(|(_, tenant)| tenant.to_owned())
            });
            may_read(&app, request.headers(), tenant.as_deref()).await
        }
    };
    match may {
        Ok(()) => next.run(request).await,
        Err(error) if request.uri().path().starts_with("/api") => error.into_response(),
        Err(error) => {
            let mut response = page::failed(&error, None);
            error.mark(response.headers_mut());
            response
        }
    }
}

/// Whether the sender of a request may look at a tenant, or (none) at the root.
pub(crate) async fn may_read(app: &Arc<App>, headers: &HeaderMap, tenant: Option<&str>) -> Result<(), ApiError> {
    // Of a tenant that is not there, that is what is said.
    let Some(rules) = app.authorization(tenant).await? else { return Ok(()) };
    if rules.is_open(tenant) {
        return Ok(());
    }
    let person = app.person(headers, Some(&rules), tenant).await?;
    looks(app, &rules, tenant, &person)
}

/// Whether somebody may look at the root and at every tenant.
async fn may_read_all(app: &Arc<App>, headers: &HeaderMap) -> Result<(), ApiError> {
    let all = app.authorizations().await?;
    let closed: Vec<_> = all.iter().filter(|(tenant, rules)| !rules.is_open(tenant.as_deref())).collect();
    let Some((tenant, rules)) = closed.first() else { return Ok(()) };
    let person = app.person(headers, Some(rules), tenant.as_deref()).await?;
    closed.iter().try_for_each(|(tenant, rules)| looks(app, rules, tenant.as_deref(), &person))
}

fn looks(app: &App, rules: &Authorization, tenant: Option<&str>, person: &Person) -> Result<(), ApiError> {
    if rules.decide(tenant, &person.claims, &Asked::default()).access {
        return Ok(());
    }
    Err(ApiError::Forbidden {
        realm: app.realm(Some(rules), tenant),
        what: match tenant {
            Some(tenant) => format!("{} may not look at tenant {tenant}", person.uid),
            None => format!("{} may not look at this site", person.uid),
        },
    })
}
