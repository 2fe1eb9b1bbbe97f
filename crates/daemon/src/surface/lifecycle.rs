//! `/lifecycle`, `/livez`, `/readyz`: the state of the house, and asking it to stop.

use super::{
    Answer, Shared,
    arrive::Who,
    problem::{Whole, body},
    tcp,
};
use crate::{house::House, office::Call, retention, seal::Sealing};
use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use countersign_model::{Code, HouseState, Refusal};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{net::SocketAddr, sync::atomic::Ordering};
use tokio::sync::oneshot;

pub(crate) async fn show(State(house): Shared, who: Who) -> Json<Value> {
    let state = *house.state.borrow();
    Json(json!({
        "state": state,
        "reason": *house.reason.borrow(),
        "pid": std::process::id(),
        // Whom the house takes the caller for.
        "you": who.kind,
        "version": env!("CARGO_PKG_VERSION"),
        "home": house.home.path(),
        "machine": house.people.is_machine(),
        "profile": house.config.profile,
        "tcp": *house.tcp.lock().await,
        "degraded": house.gate.degraded,
        "reading_only": house.reading_only.why(),
        "receipts": house.sealing.borrow().trouble(),
        "shutdown": *house.last_steps.borrow(),
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
    /// As the configuration says, if nothing is said.
    #[serde(default)]
    tasks: Option<Tasks>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Wanted {
    Halted,
}

pub(crate) async fn stop(State(house): Shared, Whole(bytes): Whole) -> Answer<Response> {
    let Stop { state: Wanted::Halted, tasks } = body(&bytes)?;
    if let Some(tasks) = tasks {
        house.stop_tasks.store(tasks == Tasks::Stop, Ordering::SeqCst);
    }
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

/// What must hold before the house is ready, each with what is wrong.
fn checks(house: &House) -> Vec<(&'static str, Option<String>)> {
    let state = *house.state.borrow();
    let ledger = match (house.reading_only.why(), house.readers.with(|r| r.head())) {
        (Some(why), _) => Some(why.to_owned()),
        (None, Err(e)) => Some(e.to_string()),
        (None, Ok(_)) => None,
    };
    let looked_for = house.keeper.looked_for.load(Ordering::Relaxed);
    let recovery = match (state, looked_for) {
        (HouseState::Boot | HouseState::Recovering, _) => Some("not done yet".to_owned()),
        (_, 0) => None,
        (_, n) => Some(format!("the supervisors of {n} tasks do not answer yet")),
    };
    let sockets = (!house.socket.exists()).then(|| "the socket is gone".to_owned());
    let keys = match &*house.sealing.borrow() {
        Sealing::Works | Sealing::Stuck(_) => None,
        Sealing::Fails(why) => Some(format!("receipts are not made out: {why}")),
    };
    let serving = match state {
        HouseState::Running => None,
        state => Some(format!("the house is {}", json!(state).as_str().unwrap_or_default())),
    };
    vec![("ledger", ledger), ("recovery", recovery), ("sockets", sockets), ("keys", keys), ("state", serving)]
}

pub(crate) async fn ready(State(house): Shared) -> Response {
    let checks = checks(&house);
    let clean = |why: &String| countersign_redact::text_by_shape(why).into_inner();
    let told: serde_json::Map<String, Value> = checks
        .iter()
        .map(|(name, why)| ((*name).to_owned(), why.as_ref().map_or_else(|| "ok".to_owned(), clean).into()))
        .collect();
    match checks.iter().find_map(|(name, why)| Some(format!("{name}: {}", clean(why.as_ref()?)))) {
        None => (StatusCode::OK, Json(json!({"ready": true, "checks": told}))).into_response(),
        Some(failing) => {
            let body = json!({"ready": false, "failing": failing, "checks": told});
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], Json(body)).into_response()
        }
    }
}
