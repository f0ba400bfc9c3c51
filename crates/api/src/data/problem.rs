//! Errors as problem documents (RFC 9457).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the type of every problem begins with. The code follows, and `docs/src/api.md` has a row for each.
pub const PROBLEM_TYPE_PREFIX: &str = "urn:asterism:problem:";

/// Why a request was not answered (RFC 9457, `application/problem+json`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:asterism:problem:` and a stable code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same for all problems of the type.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// This problem, in one sentence that says what to do.
    pub detail: String,
    /// The address of the leader's API, if another orchestrator leads and its address is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// After how many milliseconds a further attempt is sensible, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl Problem {
    /// The code: the type without its prefix.
    #[must_use]
    pub fn code(&self) -> &str {
        let code = self.kind.strip_prefix(PROBLEM_TYPE_PREFIX);
        code.unwrap_or(&self.kind)
    }
}
