//! `/lifecycle`, `/livez`, `/readyz`: the state of the house, and asking it to stop.

use super::{
    Answer, Shared,
    problem::{Whole, body},
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use countersign_model::HouseState;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

pub(crate) async fn show(State(house): Shared) -> Json<Value> {
    let state = *house.state.borrow();
    Json(json!({
        "state": state,
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "home": house.home.path(),
        "profile": house.config.profile,
        "started_at": house.started_at,
    }))
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Tasks {
    Keep,
    Stop,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stop {
    /// The only state that can be asked for.
    state: Wanted,
    tasks: Tasks,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Wanted {
    Halted,
}

pub(crate) async fn stop(State(house): Shared, Whole(bytes): Whole) -> Answer<Response> {
    let Stop { state: Wanted::Halted, tasks } = body(&bytes)?;
    house.stop_tasks.store(tasks == Tasks::Stop, Ordering::SeqCst);
    house.stop.notify_one();
    Ok((StatusCode::ACCEPTED, Json(json!({"state": HouseState::Draining, "pid": std::process::id()}))).into_response())
}

pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

pub(crate) async fn ready(State(house): Shared) -> Response {
    let state = *house.state.borrow();
    let ledger = house.readers.with(|r| r.head());
    let failing = match (state, &ledger) {
        (HouseState::Running, Ok(_)) => None,
        (HouseState::Running, Err(e)) => Some(format!("ledger: {e}")),
        (state, _) => Some(format!("state: the house is {}", json!(state).as_str().unwrap_or_default())),
    };
    match failing {
        None => (StatusCode::OK, Json(json!({"ready": true}))).into_response(),
        Some(failing) => {
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"ready": false, "failing": failing}))).into_response()
        }
    }
}
