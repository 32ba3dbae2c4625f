//! What tokens of jobs (secrets with `oidc`) are verified by: who issues them, and the public halves of the keys. At the
//! paths of OpenID Connect Discovery and at Zuul's, older ones included; open to everybody, as those who verify tokens
//! are no users of the site.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::answers::Issuer;
use crate::error::ApiError;
use crate::paths::{Right, Route, get};
use crate::reading::App;
use crate::site::PublicKey;

/// Why these are not answered as of a moment.
const OF_NOW: &str = "a token is verified now, by the keys that are there";
/// How long an answer may be kept. A key that is new is looked for by its name all the same.
const KEPT: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// The routes. A tenant in one of them changes nothing: keys and issuer are those of the site.
pub(crate) fn routes() -> Vec<Route> {
    let issuer = [
        ("openid_configuration", "/.well-known/openid-configuration"),
        ("oidc_openid_configuration", "/oidc/.well-known/openid-configuration"),
        ("tenant_openid_configuration", "/oidc/tenant/{tenant}/.well-known/openid-configuration"),
    ];
    let sets = [
        ("jwks", "/oidc/jwks"),
        ("tenant_jwks", "/oidc/tenant/{tenant}/jwks"),
        ("oidc_jwks_old", "/oidc/.well-known/jwks"),
        ("jwks_old", "/.well-known/jwks"),
        ("tenant_jwks_old", "/oidc/{tenant}/jwks"),
        ("tenant_jwks_oldest", "/oidc/{tenant}/.well-known/jwks"),
    ];
    let issuer = issuer.into_iter().map(|(name, path)| get(name, path, configuration).answers::<Issuer>());
    let sets = sets.into_iter().map(|(name, path)| get(name, path, keys).answers::<Value>());
    issuer.chain(sets).map(|route| route.now(OF_NOW).right(Right::Everybody).unlisted()).collect()
}

/// Who issues tokens.
async fn configuration(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let Some(issuer) = &app.site.issuer else {
        // Zuul answers with an empty name, by which nobody finds anything.
        let message = "this site issues no tokens: `root` under [web] in gatelog.toml does not say how it is reached";
        return Err(ApiError::NotFound(message.to_owned()));
    };
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let mut response = Json(Issuer {
        issuer: issuer.clone(),
        jwks_uri: format!("{issuer}/oidc/jwks"),
        claims_supported: texts(&["aud", "iat", "iss", "name", "sub", "custom"]),
        response_types_supported: texts(&["id_token"]),
        id_token_signing_alg_values_supported: texts(&["RS256"]),
        subject_types_supported: texts(&["public"]),
    })
    .into_response();
    response.headers_mut().insert(CACHE_CONTROL, KEPT);
    Ok(response)
}

/// The public halves of the keys.
async fn keys(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let text = app.blocking(|app: &App| app.site.keys.public(&PublicKey::Tokens).map_err(ApiError::Internal)).await?;
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response.headers_mut().insert(CACHE_CONTROL, KEPT);
    Ok(response)
}
