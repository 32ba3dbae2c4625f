//! The OpenAPI document: the table of routes, written down for programs.
//!
//! Paths, methods, rights and parameters are those of the table; the schemas are those of the types that answers are
//! made of. A small writer of our own: of a document as plain as this one a library would have to be told the same again.

use std::sync::OnceLock;

use axum::body::Bytes;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json, json};

use crate::answers::Failure;
use crate::paths::{About, Moment, Right, Says};
use crate::routes::table;

/// Where the schemas stand.
const SCHEMAS: &str = "/components/schemas";

/// The document, as it is served.
pub(crate) fn document(version: &str) -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    DOCUMENT.get_or_init(|| made(table(), version).to_string().into()).clone()
}

/// The document of some routes.
fn made(table: &[About], version: &str) -> Json {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = SCHEMAS.into();
    settings.meta_schema = None;
    let mut schemas = settings.into_generator();
    let mut paths: Map<String, Json> = Map::new();
    let failure = schemas.subschema_for::<Failure>().to_value();
    for about in table.iter().filter(|about| about.is_documented()) {
        let operation = operation(about, &failure, &mut schemas);
        let path = paths.entry(about.shown()).or_insert_with(|| json!({}));
        path[about.method.to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "gatelog",
            "version": version,
            "description": "Zuul's paths and field names where Zuul has them. Every answer that `at` applies to is as of \
                            an event, which the header Gatelog-Position names.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT" } },
        },
    })
}

fn operation(about: &About, failure: &Json, schemas: &mut SchemaGenerator) -> Json {
    let mut operation = json!({
        "operationId": format!("{}_{}", about.method.to_lowercase(), about.name),
        "summary": about.name.replace('_', " "),
        "description": description(about),
        "parameters": parameters(about),
        "security": security(about.right),
        "responses": responses(about, failure, schemas),
    });
    if let Some(body) = about.takes {
        let content = json!({ "application/json": { "schema": body(schemas).to_value() } });
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

fn description(about: &About) -> String {
    let who = match about.right {
        Right::Everybody => "Open to everybody.".to_owned(),
        Right::Look => "For whoever may look at the tenant, or at the root where there is none.".to_owned(),
        Right::LookAtAll => "For whoever may look at the root and at every tenant.".to_owned(),
        Right::LookByMessage => "For whoever may look at the tenant: the first message bears the token.".to_owned(),
        Right::Token => "For whoever a token names.".to_owned(),
        Right::Operator(permission) => format!("For operators with the permission `{permission}`."),
        Right::OperatorOfAll(permission) => {
            format!("For operators with the permission `{permission}` in every tenant.")
        }
    };
    match about.moment {
        Moment::Now(why) => format!("{who} As of now alone: {why}."),
        Moment::Any | Moment::Sent => who,
    }
}

/// Where anybody may look, a token is not needed; whether that is so, the tenant file says.
fn security(right: Right) -> Json {
    match right {
        Right::Everybody | Right::LookByMessage => json!([]),
        Right::Look | Right::LookAtAll => json!([{}, { "token": [] }]),
        Right::Token | Right::Operator(_) | Right::OperatorOfAll(_) => json!([{ "token": [] }]),
    }
}

fn parameters(about: &About) -> Vec<Json> {
    let segments = about.path.split('{').skip(1).filter_map(|part| part.split('}').next());
    let segment = |name: &str| {
        let plain = name.trim_start_matches('*');
        let mut told =
            json!({ "name": plain, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } });
        if plain != name {
            told["description"] = "Slashes in it stand as they are, or as %2F.".into();
        }
        told
    };
    let moment: &[&str] = if about.moment == Moment::Any { &["at", "after"] } else { &[] };
    let query = about.parameters.iter().chain(moment).map(|name| {
        json!({ "name": name, "in": "query", "required": false, "description": meaning(name), "schema": kind(name) })
    });
    segments.map(segment).chain(query).collect()
}

/// What a parameter of several routes means.
fn meaning(name: &str) -> &'static str {
    match name {
        "at" => "The moment asked about: the sequence of an event, or a time such as 2026-01-31T14:03:00Z.",
        "after" => "Waits up to ten seconds until this event is folded.",
        "limit" => "How many are told at most.",
        "skip" => "How many are passed over first.",
        "idx_min" => "No row with a smaller `_id`.",
        "idx_max" => "No row with a larger `_id`.",
        "exclude_result" => "None with this result. May stand several times.",
        "attempt" => "Which attempt; the newest where none is named.",
        "wait" | "follow" => "Whether to wait for what is not there yet.",
        "stored" => "Whether what is stored is meant, where the worker is away.",
        "project" | "pipeline" | "branch" | "job_name" => "A `*` in it stands for anything. May stand several times.",
        _ => "Narrows the answer down.",
    }
}

/// The schema of a parameter: names mean the same everywhere.
fn kind(name: &str) -> Json {
    match name {
        "after" | "from" | "offset" => json!({ "type": "integer", "minimum": 0 }),
        "skip" => json!({ "type": "integer", "minimum": 0, "maximum": crate::filter::MAX_SKIP }),
        "idx_min" | "idx_max" => json!({ "type": "integer", "minimum": 0, "maximum": crate::filter::MAX_INDEX }),
        "limit" | "count" => json!({ "type": "integer", "minimum": 0, "maximum": crate::filter::MAX_LIMIT }),
        "attempt" => json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
        "voting" | "final" | "held" | "complete" | "regex" | "wait" | "follow" | "stored" | "all" | "brief" => {
            json!({ "type": "boolean" })
        }
        "line" => json!({ "oneOf": [{ "type": "integer", "minimum": 1 }, { "const": "last" }] }),
        _ => json!({ "type": "string" }),
    }
}

fn responses(about: &About, failure: &Json, schemas: &mut SchemaGenerator) -> Json {
    let mut told = Map::new();
    let content = match about.says {
        Says::Json(schema) => json!({ "application/json": { "schema": schema(schemas).to_value() } }),
        Says::Text(kind) => json!({ kind: { "schema": { "type": "string" } } }),
        Says::Nothing => Json::Null,
    };
    for status in about.statuses {
        let mut response = json!({ "description": words(*status) });
        if !content.is_null() {
            response["content"] = content.clone();
        }
        if about.moment == Moment::Any {
            let position = "The event that the answer is as of.";
            let header = json!({ "description": position, "schema": { "type": "string" } });
            response["headers"] = json!({ "Gatelog-Position": header });
        }
        told.insert(status.to_string(), response);
    }
    if about.moment == Moment::Any {
        told.insert("304".to_owned(), json!({ "description": "Who asks has it already." }));
    }
    let content = json!({ "application/json": { "schema": failure } });
    told.insert("default".to_owned(), json!({ "description": "Why there is no answer.", "content": content }));
    Json::Object(told)
}

fn words(status: u16) -> &'static str {
    match status {
        101 => "The websocket begins.",
        202 => "It was taken, and is not decided yet.",
        204 => "It was done, or there is no more.",
        206 => "A part of it.",
        503 => "Not all is well: the answer says what.",
        _ => "The answer.",
    }
}
