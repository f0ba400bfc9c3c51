//! How often each rule of a firewall decided, over all hosts: the answer to `asterism rules`.

use asterism_functions::firewall::{HITS_QUESTION, RuleHits};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use asterism_host_view::{AskError, View};

/// A firewall's rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesDocument {
    /// Each of them in order, the default last.
    pub rules: Vec<RuleDocument>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleDocument {
    /// Its line in the file; absent of the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// New flows that it decided on over all hosts, since the start of the cluster.
    pub hits: u64,
    /// What it says.
    pub rule: String,
}

/// Why there is no answer. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RulesError {
    /// The function has no rules.
    #[error("this host's function has no rules: it needs [function.firewall], alone or in a chain")]
    NoRules,
    /// The instance was not asked, or did not answer: nothing of an answer is shown.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// The rules of a host's firewall, as it has them now, and their hits.
///
/// # Errors
/// Its function has no rules, or the instance does not tell; in words.
pub fn query(view: &View) -> Result<RulesDocument, RulesError> {
    let firewall = view.firewall.ok_or(RulesError::NoRules)?;
    let mut rules = Vec::new();
    view.records(firewall, HITS_QUESTION, |rule: RuleHits| {
        rules.push(RuleDocument {
            line: (rule.line > 0).then_some(rule.line),
            hits: rule.hits,
            rule: rule.text,
        });
    })?;
    Ok(RulesDocument { rules })
}
