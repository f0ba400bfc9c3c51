//! Every error of the server as a problem document (RFC 9457), with a stable code.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::counts::Refusal;
use crate::cluster_api::OrderError;
use crate::data::{PROBLEM_TYPE_PREFIX, Problem};

/// A code, its status and its title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The end of the problem's type.
    pub code: &'static str,
    /// The status of the answer.
    pub status: u16,
    /// The problem's title.
    pub title: &'static str,
}

macro_rules! codes {
    ($($name:ident $code:literal $status:literal $title:literal)*) => {
        $(const $name: Code = Code { code: $code, status: $status, title: $title };)*
        /// All codes. `docs/src/api.md` has a row for each.
        pub const CODES: &[Code] = &[$($name),*];
    };
}

codes! {
    MALFORMED "malformed" 400 "The request cannot be read"
    TOKEN_MISSING "token-missing" 401 "A token is needed"
    TOKEN_UNKNOWN "token-unknown" 401 "The token is not known"
    TOKEN_EXPIRED "token-expired" 401 "The token has expired"
    READ_ONLY "read-only" 403 "The token may not change anything"
    ORIGIN "origin" 403 "The request comes from another site"
    NOT_FOUND "not-found" 404 "There is no such thing"
    METHOD "method" 405 "The route has no such method"
    BODY_LATE "body-late" 408 "The body took too long"
    CONFLICT "conflict" 409 "The order does not fit the present state"
    BODY_LONG "body-long" 413 "The body is too long"
    TARGET_LONG "target-long" 414 "The address is too long"
    MEDIA "media" 415 "The body must be JSON"
    HOST "host" 421 "The server does not have this name"
    NOT_LEADER "not-leader" 421 "Another orchestrator leads"
    REFUSED "refused" 422 "The order makes no sense or breaks a bound"
    TOO_MANY "too-many" 429 "Too many requests"
    BROKEN "broken" 500 "The orchestrator failed"
    NO_LEADER "no-leader" 503 "No orchestrator leads"
    UNAVAILABLE "unavailable" 503 "A part of the cluster does not answer"
    BUSY "busy" 503 "Too many calls at once"
    LATE "late" 504 "The orchestrator took too long"
}

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A sentence says what cannot be read.
    Malformed(String),
    TokenMissing,
    TokenUnknown,
    TokenExpired,
    ReadOnly,
    Origin,
    /// What was looked for.
    NotFound(String),
    Method,
    BodyLate,
    BodyLong(usize),
    TargetLong(usize),
    Media,
    Host(String),
    TooMany(Duration),
    Streams,
    Broken,
    Busy,
    Late,
    Order(OrderError),
}

impl Failure {
    /// No such host, or none that the caller may see: the answers are the same.
    pub(super) fn no_host(host: &str) -> Failure {
        Failure::Order(OrderError::UnknownHost {
            host: host.to_owned(),
        })
    }

    /// Under which reason it is counted; `None`: the orchestrator's own answer, or a wrong address.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        Some(match self {
            Failure::Malformed(_) | Failure::Media | Failure::TargetLong(_) => Refusal::Request,
            Failure::TokenMissing => Refusal::TokenMissing,
            Failure::TokenUnknown => Refusal::TokenUnknown,
            Failure::TokenExpired => Refusal::TokenExpired,
            Failure::ReadOnly => Refusal::Scope,
            Failure::Origin => Refusal::Origin,
            Failure::Host(_) => Refusal::Host,
            Failure::BodyLate | Failure::BodyLong(_) => Refusal::Body,
            Failure::Streams => Refusal::Streams,
            Failure::Busy => Refusal::Busy,
            Failure::Late => Refusal::Late,
            Failure::NotFound(_)
            | Failure::Method
            | Failure::TooMany(_)
            | Failure::Broken
            | Failure::Order(_) => return None,
        })
    }

    fn code(&self) -> Code {
        match self {
            Failure::Malformed(_) => MALFORMED,
            Failure::TokenMissing => TOKEN_MISSING,
            Failure::TokenUnknown => TOKEN_UNKNOWN,
            Failure::TokenExpired => TOKEN_EXPIRED,
            Failure::ReadOnly => READ_ONLY,
            Failure::Origin => ORIGIN,
            Failure::NotFound(_) | Failure::Order(OrderError::UnknownHost { .. }) => NOT_FOUND,
            Failure::Method => METHOD,
            Failure::BodyLate => BODY_LATE,
            Failure::BodyLong(_) => BODY_LONG,
            Failure::TargetLong(_) => TARGET_LONG,
            Failure::Media => MEDIA,
            Failure::Host(_) => HOST,
            Failure::TooMany(_) | Failure::Streams => TOO_MANY,
            Failure::Broken => BROKEN,
            Failure::Busy => BUSY,
            Failure::Late => LATE,
            Failure::Order(OrderError::Conflict { .. }) => CONFLICT,
            Failure::Order(OrderError::NotLeader { leader: Some(_) }) => NOT_LEADER,
            Failure::Order(OrderError::NotLeader { leader: None }) => NO_LEADER,
            Failure::Order(OrderError::Refused { .. }) => REFUSED,
            Failure::Order(OrderError::Unavailable { .. }) => UNAVAILABLE,
        }
    }

    fn detail(&self) -> String {
        match self {
            Failure::Malformed(why) => why.clone(),
            Failure::TokenMissing => "send the header Authorization: Bearer TOKEN".to_owned(),
            Failure::TokenUnknown => {
                "no token of the server's file is this one; ask the operator for another".to_owned()
            }
            Failure::TokenExpired => {
                "the token has expired; ask the operator for another".to_owned()
            }
            Failure::ReadOnly => {
                "the token's scope is read-only; an order needs an operator's".to_owned()
            }
            Failure::Origin => {
                "orders from pages of other sites are refused; use the command line".to_owned()
            }
            Failure::NotFound(what) => what.clone(),
            Failure::Method => {
                "see /v1/openapi.json for the methods of each route".to_owned()
            }
            Failure::BodyLate => "send the body at once after the headers".to_owned(),
            Failure::BodyLong(most) => format!("the body has at most {most} bytes"),
            Failure::TargetLong(most) => format!("path and query have at most {most} bytes"),
            Failure::Media => {
                "send the header Content-Type: application/json, and {} if there is nothing to say".to_owned()
            }
            Failure::Host(names) => format!("address the server as {names}"),
            Failure::TooMany(_) => "ask less often; see the limits in the API's page".to_owned(),
            Failure::Streams => {
                "too many streams are open; close one, or read /v1/events from time to time".to_owned()
            }
            Failure::Broken => {
                "the orchestrator failed on this request; its log has the reason, and an order may be carried out".to_owned()
            }
            Failure::Busy => "all calls of the orchestrator are in use; nothing was done".to_owned(),
            Failure::Late => {
                "the orchestrator did not answer in time; an order may still be carried out, see /v1/events".to_owned()
            }
            Failure::Order(error) => error.to_string(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Failure::TooMany(wait) => Some(*wait),
            Failure::Busy | Failure::Late | Failure::Streams => Some(Duration::from_secs(1)),
            Failure::Order(OrderError::Unavailable { retry_after, .. }) => Some(*retry_after),
            Failure::Order(OrderError::NotLeader { leader: None }) => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// The document.
    pub(super) fn problem(&self) -> Problem {
        let Code {
            code,
            status,
            title,
        } = self.code();
        let leader = match self {
            Failure::Order(OrderError::NotLeader { leader }) => leader.clone(),
            _ => None,
        };
        let wait = self.retry_after().map(|wait| wait.as_millis());
        Problem {
            kind: format!("{PROBLEM_TYPE_PREFIX}{code}"),
            title: title.to_owned(),
            status,
            detail: self.detail(),
            leader,
            retry_after_ms: wait.map(|wait| u64::try_from(wait).unwrap_or(u64::MAX)),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let problem = self.problem();
        let status = StatusCode::from_u16(problem.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A document of strings and numbers is always JSON.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"asterism\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        if let Some(wait) = self.retry_after() {
            let seconds = wait.as_millis().div_ceil(1_000);
            if let Ok(seconds) = HeaderValue::from_str(&seconds.to_string()) {
                headers.insert(header::RETRY_AFTER, seconds);
            }
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_the_orders_have_the_status_of_their_errors() {
        let mut names: Vec<&str> = CODES.iter().map(|code| code.code).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CODES.len());
        let leader = Some("https://192.0.2.1:8443".to_owned());
        for error in [
            OrderError::UnknownHost {
                host: "h".to_owned(),
            },
            OrderError::Conflict { why: String::new() },
            OrderError::NotLeader { leader },
            OrderError::NotLeader { leader: None },
            OrderError::Refused { why: String::new() },
            OrderError::Unavailable {
                why: String::new(),
                retry_after: Duration::from_millis(1_500),
            },
        ] {
            let failure = Failure::Order(error.clone());
            assert_eq!(failure.problem().status, error.status(), "{error}");
            let response = failure.into_response();
            assert_eq!(response.status().as_u16(), error.status());
        }
    }
}
