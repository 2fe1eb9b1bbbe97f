//! The daemon itself: its state, the addresses it listens on, stopping it, removing old tasks, following its ledger.

use crate::{Call, HttpRequest, StreamCall};
use countersign_model::api::{
    GcBody, GcReport, IndexAction, IndexRebuilt, LedgerEvent, Lifecycle, ListenBody, ListenResponse, Readiness,
    RebuildBody, StopBody, StopResponse, StopTarget, StopTasks,
};
use std::{net::SocketAddr, time::Duration};

/// How long a daemon may take to report its state.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of the daemon. A daemon that does not answer within seconds counts as gone.
#[must_use]
pub fn show() -> Call<Lifecycle> {
    Call::json(HttpRequest::get(&["lifecycle"])).with_timeout(STATUS_TIMEOUT)
}

/// Whether the daemon is ready, and the reason if it is not.
#[must_use]
pub fn ready() -> Call<Readiness> {
    Call::json(HttpRequest::get(&["readyz"])).accepting_status(503)
}

/// Whether the daemon answers at all: `ok`, without a credential.
#[must_use]
pub fn alive() -> Call<Vec<u8>> {
    Call::bytes(HttpRequest::get(&["livez"]))
}

/// The description of the API, as OpenAPI 3.1.
#[must_use]
pub fn openapi() -> Call<Vec<u8>> {
    Call::bytes(HttpRequest::get(&["openapi.json"]))
}

/// Stops the daemon, with or without its tasks; without an argument, the configuration decides.
#[must_use]
pub fn stop(tasks: Option<StopTasks>) -> Call<StopResponse> {
    Call::json(HttpRequest::post(&["lifecycle"]).json(&StopBody { state: StopTarget::Halted, tasks }))
}

/// Makes the daemon listen on loopback too, for callers with a token.
#[must_use]
pub fn listen(tcp: Option<SocketAddr>) -> Call<ListenResponse> {
    Call::json(HttpRequest::post(&["listen"]).json(&ListenBody { tcp }))
}

/// Removes the files of finished tasks according to retention.
#[must_use]
pub fn gc(body: &GcBody) -> Call<GcReport> {
    Call::json(HttpRequest::post(&["gc"]).json(body))
}

/// Rebuilds the index of the ledger.
#[must_use]
pub fn rebuild() -> Call<IndexRebuilt> {
    Call::json(HttpRequest::post(&["ledger"]).json(&RebuildBody { index: IndexAction::Rebuild }))
}

/// Every decision that the caller may see, from the first one on. This stream does not end.
#[must_use]
pub fn ledger() -> StreamCall<LedgerEvent> {
    StreamCall::new(HttpRequest::get(&["events"]))
}
