//! `/openapi.json`: the API as OpenAPI 3.1, generated from the route table and the API types.

use super::{
    body::json_bytes,
    problem::HttpResult,
    routes::{Access, BodyContent, ROUTES, Route},
};
use crate::caller::Caller;
use axum::response::Response;
use bytes::Bytes;
use countersign_model::{CredentialScope, api::Problem};
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings, transform::RecursiveTransform};
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, sync::LazyLock};

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(document_text()));

pub(crate) async fn show(caller: Caller) -> HttpResult<Response> {
    caller.require_scope(CredentialScope::Observe)?;
    Ok(json_bytes(DOCUMENT.clone()))
}

/// The document, as stored in docs/openapi.json.
fn document_text() -> String {
    let mut text = serde_json::to_string_pretty(&document()).unwrap_or_default();
    text.push('\n');
    text
}

fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    settings.transforms.push(Box::new(RecursiveTransform(bound_integers)));
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut generator);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Countersign",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs the commands that AI agents request, and records them.",
            "license": {"name": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": "http://127.0.0.1:7311", "description": "The loopback listener, if it is enabled"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token from `csn token create`"},
            },
            "responses": {
                "problem": {
                    "description": "The request was refused",
                    "content": {"application/problem+json": {"schema": problem}},
                },
            },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": path_schema(name)}))
        .collect();
    parameters.extend(route.query.iter().flat_map(|schema| query_parameters(generator, *schema)));
    if route.body.is_some_and(|body| body.once) {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "A request that is sent again with the same key is executed once",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }));
    }
    let mut operation = json!({"summary": route.summary, "operationId": operation_id(route)});
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = route.body {
        let schema = (body.schema)(generator);
        operation["requestBody"] =
            json!({"required": body.required, "content": {"application/json": {"schema": schema}}});
    }
    match route.access {
        Access::Public => operation["security"] = json!([]),
        Access::Needs(scope) => operation["description"] = format!("Needs the scope `{scope}`.").into(),
    }
    operation["responses"] = responses(route, generator);
    operation
}

fn responses(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    for success in route.successes {
        let response = responses.entry(success.status.to_string()).or_insert_with(|| json!({"description": "Success"}));
        match success.body {
            BodyContent::Nothing => {}
            BodyContent::Json(schema) => {
                response["content"]["application/json"] = json!({"schema": schema(generator)});
            }
            BodyContent::Events(schema) => {
                response["description"] = "Server-sent events; the data of each event is JSON".into();
                let _ = schema(generator);
                response["content"]["text/event-stream"] = json!({"schema": {"type": "string"}});
            }
            BodyContent::Other(media) => response["content"][media] = json!({}),
        }
    }
    for status in problem_statuses(route) {
        let problem = json!({"$ref": "#/components/responses/problem"});
        responses.entry(status.to_string()).or_insert(problem);
    }
    // The HTTP server refuses these before any handler.
    let too_long = "The request line and the headers together are larger than 16 KiB";
    responses.insert("431".to_owned(), json!({"description": too_long}));
    responses.into()
}

/// Every error status of a route: those that its row implies, and those that its row adds.
fn problem_statuses(route: &Route) -> BTreeSet<u16> {
    // Any request can be malformed, come from a foreign web page, or meet a defect.
    let mut statuses = BTreeSet::from([400, 403, 500]);
    if route.access != Access::Public {
        // No token, too many connections, a daemon that starts or stops.
        statuses.extend([401, 429, 503]);
    }
    if route.path.contains("{id}") {
        // Ids may be shortened: no or several matches.
        statuses.extend([404, 409]);
    }
    if let Some(body) = route.body {
        statuses.extend([408, 413]);
        // The same key was used with another body.
        statuses.extend(body.once.then_some(422));
    }
    statuses.extend(route.refusals);
    statuses
}

/// The schema of a path parameter. Ids may be shortened, and some things have names, so any string is valid.
fn path_schema(name: &str) -> Value {
    match name {
        "digest" => json!({"type": "string", "pattern": "^(sha256:)?[0-9a-fA-F]{64}$"}),
        _ => json!({"type": "string", "minLength": 1}),
    }
}

/// JSON numbers have any size; these have the range of their format.
fn bound_integers(schema: &mut Schema) {
    let (least, most) = match schema.get("format").and_then(Value::as_str) {
        Some("uint" | "uint64") => (json!(0), json!(u64::MAX)),
        Some("uint32") => (json!(0), json!(u32::MAX)),
        Some("int64") => (json!(i64::MIN), json!(i64::MAX)),
        Some("int32") => (json!(i32::MIN), json!(i32::MAX)),
        _ => return,
    };
    if let Some(schema) = schema.as_object_mut() {
        schema.entry("minimum").or_insert(least);
        schema.entry("maximum").or_insert(most);
    }
}

/// The fields of a query type, each as a parameter.
fn query_parameters(generator: &mut SchemaGenerator, schema: super::routes::SchemaOf) -> Vec<Value> {
    let schema = schema(generator);
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.rsplit('/').next()).unwrap_or_default();
    // The fields are in the parameters; the type itself is not part of the API.
    let Some(definition) = generator.definitions_mut().remove(name) else { return Vec::new() };
    let required: Vec<Value> = definition["required"].as_array().cloned().unwrap_or_default();
    let fields = definition["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, mut schema): (String, Value)| {
        if let Ok(schema) = <&mut Schema>::try_from(&mut schema) {
            bound_integers(schema);
        }
        let required = required.iter().any(|r| r.as_str() == Some(&name));
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let mut parameter = json!({"name": name, "in": "query", "required": required, "schema": not_null(schema)});
        if let Some(description) = description {
            parameter["description"] = description;
        }
        parameter
    };
    fields.into_iter().map(parameter).collect()
}

/// A parameter that is not set is left out: a query has no null.
fn not_null(mut schema: Value) -> Value {
    if let Some(Value::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [one] = &kinds[..] {
            schema["type"] = one.clone();
        }
    }
    if let Some(Value::Array(any)) = schema.get_mut("anyOf") {
        any.retain(|one| one["type"] != "null");
        if let [one] = &any[..] {
            return one.clone();
        }
    }
    schema
}

/// For example `get_tasks_id_output`: unique, and stable between versions.
fn operation_id(route: &Route) -> String {
    let path = route.path.replace(['{', '}'], "").replace(['/', '.'], "_");
    format!("{}{path}", route.method.as_str().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED_DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

    #[test]
    fn the_stored_document_is_the_served_one() {
        let now = document_text();
        if std::env::var_os("COUNTERSIGN_WRITE_OPENAPI").is_some() {
            std::fs::write(STORED_DOCUMENT, &now).unwrap();
        }
        let stored = std::fs::read_to_string(STORED_DOCUMENT).unwrap_or_default();
        assert!(
            stored == now,
            "docs/openapi.json differs: COUNTERSIGN_WRITE_OPENAPI=1 cargo test -p countersign-daemon openapi writes it"
        );
    }

    #[test]
    fn every_route_is_described_and_every_reference_resolves() {
        let document = document();
        for route in ROUTES {
            let operation = &document["paths"][route.path][route.method.as_str().to_ascii_lowercase()];
            assert_eq!(operation["summary"], route.summary, "{} {}", route.method, route.path);
        }
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let found = document.pointer(reference.trim_start_matches('#'));
            assert!(found.is_some(), "{reference} does not resolve");
        }
    }
}
