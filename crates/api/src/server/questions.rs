//! Handlers that have hosts asked: their status, their state. All but flows are closed to tenants: a host's state is all tenants'.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::extract::{Asked, HostName};
use super::gate::Gate;
use super::problem::Failure;
use crate::data::{
    NAME_BYTES_MAX, STATE_ENTRIES_MAX, STATE_WORD_BYTES_MAX, StateEntries, StateObjects, StateQuery,
};

/// The name of a state object in an address.
pub(super) struct ObjectName(String);

impl FromRequestParts<Gate> for ObjectName {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, gate: &Gate) -> Result<ObjectName, Failure> {
        let read: Result<Path<String>, PathRejection> = Path::from_request_parts(parts, gate).await;
        match read {
            Ok(Path(name)) if is_word(&name, NAME_BYTES_MAX) => Ok(ObjectName(name)),
            _ => Err(Failure::Malformed(format!(
                "the name of a state object has at most {NAME_BYTES_MAX} bytes and no control characters"
            ))),
        }
    }
}

fn is_word(text: &str, bytes_max: usize) -> bool {
    text.len() <= bytes_max && !text.chars().any(char::is_control)
}

/// The status of a host, as the host reports it: what `asterism status --format json` shows
#[utoipa::path(get, path = "/v1/hosts/{name}/status", tag = "hosts", params(("name" = String, Path, description = "The host")),
    responses((status = 200, description = "The status; its form is the schema asterism.status", body = serde_json::Value)))]
pub(super) async fn host_status(
    State(gate): State<Gate>,
    HostName(name): HostName,
) -> Result<Json<serde_json::Value>, Failure> {
    let asked = gate.calls.read(move |api| api.host_status(&name));
    asked.await?.map(Json).map_err(Failure::Order)
}

/// The state objects of all hosts
#[utoipa::path(get, path = "/v1/state", tag = "state",
    responses((status = 200, description = "The objects", body = StateObjects)))]
pub(super) async fn state(State(gate): State<Gate>) -> Result<Json<StateObjects>, Failure> {
    let asked = gate.calls.read(|api| api.state());
    asked.await?.map(Json).map_err(Failure::Order)
}

/// Entries of a state object, and which hosts have each
#[utoipa::path(get, path = "/v1/state/{object}", tag = "state",
    params(("object" = String, Path, description = "The object"), StateQuery),
    responses((status = 200, description = "The entries", body = StateEntries)))]
pub(super) async fn entries(
    State(gate): State<Gate>,
    ObjectName(object): ObjectName,
    Asked(query): Asked<StateQuery>,
) -> Result<Json<StateEntries>, Failure> {
    for (name, word, bytes_max) in [
        ("key", &query.key, STATE_WORD_BYTES_MAX),
        ("value", &query.value, STATE_WORD_BYTES_MAX),
        ("host", &query.host, NAME_BYTES_MAX),
    ] {
        if word.as_ref().is_some_and(|word| !is_word(word, bytes_max)) {
            return Err(Failure::Malformed(format!(
                "the query: {name} has at most {bytes_max} bytes and no control characters"
            )));
        }
    }
    let max = STATE_ENTRIES_MAX;
    let asked = gate
        .calls
        .read(move |api| api.entries(&object, &query, max));
    asked.await?.map(Json).map_err(Failure::Order)
}
