//! The table of routes, and what is made of it.

use std::collections::BTreeSet;

use gatelog_web::{About, Moment, Right};

use super::*;

/// Every reference in a document to another place of it.
fn references(json: &Json, found: &mut BTreeSet<String>) {
    match json {
        Json::Object(map) => {
            found.extend(map.get("$ref").and_then(Json::as_str).map(str::to_owned));
            map.values().for_each(|value| references(value, found));
        }
        Json::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_openapi_document_tells_of_every_route_of_the_api_and_of_nothing_else() {
    let site = told(40).await;
    let document = site.served.json("/api/openapi.json").await;
    assert_eq!((&document["openapi"], &document["info"]["title"]), (&json!("3.1.0"), &json!("gatelog")));
    let (mut told, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            told.insert((path.clone(), method.to_uppercase()));
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} stands twice");
            assert!(operation["responses"]["default"]["content"]["application/json"]["schema"].is_object(), "{id}");
            let named = path.matches('{').count();
            let segments = operation["parameters"].as_array().unwrap().iter().filter(|one| one["in"] == "path");
            assert_eq!(segments.count(), named, "{id}");
        }
    }
    let documented = gatelog_web::table().iter().filter(|route| route.is_documented());
    let table: BTreeSet<_> = documented.map(|route| (route.shown(), route.method.to_owned())).collect();
    assert_eq!(told, table);
    let mut referred = BTreeSet::new();
    references(&document, &mut referred);
    for place in referred {
        let found = document.pointer(place.strip_prefix('#').unwrap());
        assert!(found.is_some_and(Json::is_object), "{place} is not there");
    }
    let limit = &document["paths"]["/api/tenant/{tenant}/builds"]["get"]["parameters"];
    let limit = limit.as_array().unwrap().iter().find(|one| one["name"] == "limit").unwrap();
    assert_eq!(limit["schema"], json!({ "type": "integer", "minimum": 0, "maximum": 1000 }));
}

#[test]
fn no_two_routes_are_the_same_and_what_changes_something_takes_a_permission() {
    let mut known = BTreeSet::new();
    for About { name, path, method, right, moment, .. } in gatelog_web::table() {
        assert!(known.insert((*path, *method)), "{method} {path} stands twice");
        assert!(known.insert((*name, *method)), "the name {name} of {method} {path} stands twice");
        let permission = matches!(right, Right::Operator(_) | Right::OperatorOfAll(_));
        assert_eq!(*method != "GET", permission, "{method} {path}: {right:?}");
        assert_eq!(*method == "GET", *moment != Moment::Sent && !permission, "{method} {path}: {moment:?}");
    }
    // What everybody may ask for, whatever the tenant file says, is little, and listed here on purpose.
    let open = gatelog_web::table().iter().filter(|route| route.right == Right::Everybody && route.is_api());
    let open: Vec<&str> = open.map(|route| route.name).collect();
    assert_eq!(open, ["openapi", "info", "health", "live", "ready", "tenant_info"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn options_and_refusals_name_the_methods_of_the_table() {
    let site = told(40).await;
    let of = |path: &str| {
        let mut methods = Vec::new();
        for route in gatelog_web::table().iter().filter(|route| route.path == path) {
            methods.extend(if route.method == "GET" { vec!["GET", "HEAD"] } else { vec![route.method] });
        }
        methods.push("OPTIONS");
        methods.join(", ")
    };
    for route in gatelog_web::table() {
        let path = route.shown().replace("{tenant}", "demo").replace(['{', '}'], "");
        let url = format!("{}{path}", site.served.base);
        let options = site.served.http.request(reqwest::Method::OPTIONS, &url).send().await.unwrap();
        assert_eq!(options.status(), 204, "{path}");
        assert_eq!(options.headers()["access-control-allow-methods"], of(route.path), "{path}");
        let refused = site.served.http.request(reqwest::Method::PATCH, &url).send().await.unwrap();
        // Without authenticators nobody learns of paths of operators.
        let hidden = gatelog_web::table().iter().filter(|one| one.path == route.path).all(About::is_of_operators);
        assert_eq!(refused.status(), if hidden { 404 } else { 405 }, "{path}");
        if !hidden {
            assert_eq!(refused.headers()["allow"], of(route.path), "{path}");
        }
    }
}
