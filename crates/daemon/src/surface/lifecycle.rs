//! `/lifecycle`, `/livez`, `/readyz`: the state of the house, and asking it to stop.

use super::{
    Answer, Shared,
    problem::{Whole, body},
    tcp,
};
use crate::{office::Call, retention};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use countersign_model::{Code, HouseState, Refusal};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{net::SocketAddr, sync::atomic::Ordering};
use tokio::sync::oneshot;

pub(crate) async fn show(State(house): Shared) -> Json<Value> {
    let state = *house.state.borrow();
    Json(json!({
        "state": state,
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "home": house.home.path(),
        "profile": house.config.profile,
        "tcp": *house.tcp.lock().await,
        "degraded": house.gate.degraded,
        "reading_only": house.reading_only,
        "started_at": house.started_at,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listen {
    #[serde(default)]
    tcp: Option<SocketAddr>,
}

/// Opens the door on loopback, for those who have a token.
pub(crate) async fn listen(State(house): Shared, Whole(bytes): Whole) -> Answer<Json<Value>> {
    let Listen { tcp: wanted } = body(if bytes.is_empty() { b"{}" } else { &bytes })?;
    let wanted = wanted.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], tcp::PORT)));
    let address = tcp::open(&house, super::router(&house), wanted).await?;
    Ok(Json(json!({"tcp": address})))
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Gc {
    #[serde(default)]
    older_than_days: Option<u64>,
    #[serde(default)]
    keep_bytes: Option<u64>,
    #[serde(default)]
    dry_run: bool,
}

/// Tidies up now, by the house's rule or by the one that is named.
pub(crate) async fn gc(State(house): Shared, Whole(bytes): Whole) -> Answer<Response> {
    let asked: Gc = body(if bytes.is_empty() { b"{}" } else { &bytes })?;
    let mut rule = house.config.retention.clone();
    rule.days = asked.older_than_days.unwrap_or(rule.days);
    rule.bytes = asked.keep_bytes.unwrap_or(rule.bytes);
    Ok(Json(retention::tidy(&house, rule, asked.dry_run).await?).into_response())
}

/// Makes the index over the decisions anew.
pub(crate) async fn rebuild(State(house): Shared, Whole(bytes): Whole) -> Answer<Response> {
    let Rebuild { index: Anew::Rebuild } = body(&bytes)?;
    let (reply, done) = oneshot::channel();
    let gone = || Refusal::new(Code::Draining, "the house is going down");
    house.calls.send(Call::Rebuild { reply }).map_err(|_| gone())?;
    done.await.map_err(|_| gone())??;
    Ok(Json(json!({"index": "rebuilt"})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rebuild {
    index: Anew,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Anew {
    Rebuild,
}

pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

pub(crate) async fn ready(State(house): Shared) -> Response {
    let state = *house.state.borrow();
    let ledger = house.readers.with(|r| r.head());
    let failing = match (state, &ledger) {
        _ if house.reading_only.is_some() => house.reading_only.as_ref().map(|why| format!("ledger: {why}")),
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
