//! Compares the calls with the API description: every route has a call, and each call uses only what its route accepts.

use super::*;
use crate::HttpRequest;
use countersign_model::{
    ApprovalId, Choice, Digest, Request, SessionId, SignalName, TaskId, Tool,
    api::{OutputQuery, SearchQuery, StdinBody, TaskQuery},
    cast::Version,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn from_json<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

/// One of each call, with all its parameters.
fn every_call() -> Vec<HttpRequest> {
    let task: TaskId = "tk_01jcx3v9q8k2m4tz".parse().unwrap();
    let approval: ApprovalId = "ap_01jcx3v9q8k2m4tz".parse().unwrap();
    let session: SessionId = "se_01jcx3v9q8k2m4tz".parse().unwrap();
    let digest: Digest = from_json(json!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    let request = Request::new(Tool::Shell, from_json(json!({"command": "ls", "cwd": "/"})));
    let conversation = json!({"agent": "a", "id": "c", "cwd": "/"});
    let query = TaskQuery { text: Some("a b".to_owned()), limit: Some(1), ..TaskQuery::default() };
    let output = OutputQuery { offset_bytes: Some(0), max_bytes: Some(1), ..OutputQuery::default() };
    let search = SearchQuery { pattern: "x&y".to_owned(), regex: true, ..SearchQuery::default() };
    let paged = json!({"limit": 1});
    vec![
        tasks::ask(&request).with_key("k").request,
        tasks::check(&request).request,
        tasks::list(&query).request,
        tasks::show(task).request,
        tasks::wait(task, 1).request,
        tasks::events(task).request,
        tasks::replayed_events(task, 2.0).request,
        tasks::terminal_events(task).request,
        tasks::tool_task_events(task).request,
        control::cancel(task, Some("why")).request,
        control::signal(task, SignalName::INT).request,
        control::stdin(task, &StdinBody::text("x")).request,
        control::resize(task, 24, 80).request,
        output::page(task, &output).request,
        output::bytes(task, &output).request,
        output::search(task, &search).request,
        output::screen(task).request,
        output::cast(task, Some(Version::V3)).request,
        approvals::list(&from_json(paged.clone())).request,
        approvals::show(approval).request,
        approvals::answer(approval, &from_json(json!({"choice": Choice::Once}))).request,
        approvals::events().request,
        grants::list(&from_json(paged.clone())).request,
        grants::show("gr_1").request,
        grants::add(&from_json(json!({"verb": "ls", "directory": null}))).request,
        grants::revoke("gr_1").request,
        grants::narrow("gr_1").request,
        sessions::list(&from_json(paged.clone())).request,
        sessions::open(&from_json(json!({"title": "t"}))).request,
        sessions::show(session).request,
        sessions::set_directory(session, "/").request,
        sessions::end(session).request,
        tokens::list().request,
        tokens::create(&from_json(json!({"name": "n", "kind": "agent", "scopes": ["run"]}))).request,
        tokens::revoke("n").request,
        receipts::list(&from_json(paged)).request,
        receipts::show(task, 1).request,
        receipts::signed_head().request,
        receipts::artifact(digest).request,
        receipts::keys().request,
        receipts::rotate_key(true).request,
        lifecycle::show().request,
        lifecycle::ready().request,
        lifecycle::alive().request,
        lifecycle::openapi().request,
        lifecycle::stop(None).request,
        lifecycle::listen(Some(([127, 0, 0, 1], 1).into())).request,
        lifecycle::gc(&from_json(json!({"dry_run": true}))).request,
        lifecycle::rebuild().request,
        lifecycle::ledger().request,
        hooks::before(&from_json(json!({"conversation": conversation, "command": "ls"}))).request,
        hooks::after(&from_json(json!({"conversation": conversation, "tool_use": "1"}))).request,
        hooks::redeem("t", &from_json(json!({"command": "ls", "cwd": "/"}))).request,
        hooks::ticket_task("t").request,
        mcp::session(&from_json(json!({"conversation": conversation}))).request,
        mcp::stdio(session).request,
    ]
}

/// The route of a path: a route with a literal part takes precedence over one with a placeholder.
fn route_of<'a>(paths: &'a serde_json::Map<String, Value>, path: &str) -> &'a str {
    let parts: Vec<&str> = path.split('/').collect();
    let matches = |route: &&String| {
        let names: Vec<&str> = route.split('/').collect();
        names.len() == parts.len() && names.iter().zip(&parts).all(|(name, part)| name.starts_with('{') || name == part)
    };
    let route = paths.keys().filter(matches).min_by_key(|route| route.matches('{').count());
    route.unwrap_or_else(|| panic!("there is no route for {path}"))
}

#[test]
fn every_route_has_a_call_that_matches_its_description() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut called = BTreeSet::new();
    for request in every_call() {
        let (path, query) = request.target().split_once('?').unwrap_or((request.target(), ""));
        let route = route_of(paths, path);
        let method = request.method().to_lowercase();
        let described = &paths[route][&method];
        assert!(described.is_object(), "{method} {route} is not described");
        let parameters: BTreeSet<&str> = described["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|p| p["in"] == "query")
            .filter_map(|p| p["name"].as_str())
            .collect();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split('=').next().unwrap();
            assert!(parameters.contains(name), "{method} {route} has no parameter {name}");
        }
        let takes_body = described.get("requestBody").is_some();
        assert_eq!(request.has_body(), takes_body, "{method} {route}");
        called.insert((method, route.to_owned()));
    }
    let elsewhere = ["/mcp", "/tasks/{id}/attach"];
    let described = paths.iter().filter(|(route, _)| !elsewhere.contains(&route.as_str()));
    let described = described.flat_map(|(route, item)| {
        let methods = item.as_object().unwrap().keys().filter(|m| ["get", "post", "delete"].contains(&m.as_str()));
        methods.map(|method| (method.clone(), route.clone())).collect::<Vec<_>>()
    });
    assert_eq!(called, described.collect());
}
