//! Bodies and queries as types, with problem documents for what cannot be read.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::gate::Gate;
use super::problem::Failure;
use crate::data::NAME_BYTES_MAX;

/// A body of JSON. It must say that it is: a page of another site cannot send such a body without asking first, and is refused then.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Gate> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, gate: &Gate) -> Result<Body<T>, Failure> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("");
        let essence = kind.split(';').next().unwrap_or("").trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            return Err(Failure::Media);
        }
        let limits = gate.limits();
        let read = timeout(limits.body, Bytes::from_request(request, gate)).await;
        let bytes = match read {
            Err(_) => return Err(Failure::BodyLate),
            Ok(Ok(bytes)) => bytes,
            Ok(Err(refused)) if refused.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                return Err(Failure::BodyLong(limits.body_bytes));
            }
            Ok(Err(_)) => {
                return Err(Failure::Malformed("the body was cut off".to_owned()));
            }
        };
        serde_json::from_slice(&bytes)
            .map(Body)
            .map_err(|error| Failure::Malformed(format!("the body: {error}")))
    }
}

/// The query of an address.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Gate> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, gate: &Gate) -> Result<Asked<T>, Failure> {
        match Query::from_request_parts(parts, gate).await {
            Ok(Query(asked)) => Ok(Asked(asked)),
            Err(error) => Err(Failure::Malformed(format!(
                "the query: {}",
                error.body_text()
            ))),
        }
    }
}

/// The name of a host in an address. A name that no host can have is refused before anybody looks for it.
pub(super) struct HostName(pub(super) String);

impl FromRequestParts<Gate> for HostName {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, gate: &Gate) -> Result<HostName, Failure> {
        let Ok(Path(name)) = Path::<String>::from_request_parts(parts, gate).await else {
            return Err(Failure::Malformed(
                "the name of the host is no text".to_owned(),
            ));
        };
        match name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control) {
            true => Ok(HostName(name)),
            false => Err(Failure::Malformed(format!(
                "the name of a host has at most {NAME_BYTES_MAX} bytes and no control characters"
            ))),
        }
    }
}
