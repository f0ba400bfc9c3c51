//! Health: what is wrong, why, and what to do.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is wrong with what a caller may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// When this was true, in milliseconds since 1970.
    pub at_ms: u64,
    /// The gravest severity among items without a cause; absent if nothing is wrong.
    pub worst: Option<Severity>,
    /// The gravest first.
    pub items: Vec<HealthItem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthItem {
    /// A stable code, such as `HOST-SILENT`. Codes are never used for something else.
    pub code: String,
    /// How grave it is.
    pub severity: Severity,
    /// What it is about: the name of a host, or `cluster`.
    pub subject: String,
    /// The tenant that may see it; absent: operators and read-only callers alone.
    pub tenant: Option<String>,
    /// The code of the item whose symptom this one is. Such an item raises no alarm of its own.
    pub cause: Option<String>,
    /// What was observed, in one sentence with figures.
    pub detail: String,
    /// What to do, in one sentence.
    pub remedy: String,
    /// The page about the code, relative to the documents' root.
    pub page: String,
}

/// How grave something is. The gravest is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Nothing is lost and nothing need be done.
    Notice,
    /// Something will fail unless it is attended to.
    Warning,
    /// Packets are lost, or state may be.
    Critical,
}
