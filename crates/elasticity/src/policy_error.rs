//! What is wrong with policies: sentences that name the policy, the field, and what to write instead.

use std::fmt;

use super::sample::Metric;

/// What is wrong with one policy, or with two that do not go together. Nothing was changed: the rules in force stay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The text is no TOML, or a field is unknown or of another type.
    #[error("{0}")]
    Unreadable(String),
    /// There are too many policies.
    #[error(
        "{policies} policies are more than {}: join those of one cluster",
        super::policy::POLICIES_MAX
    )]
    TooMany {
        /// How many there are.
        policies: usize,
    },
    /// A name is empty or too long.
    #[error(
        "policy \"{policy}\": the name \"{name}\" must have 1 to {} bytes",
        super::sample::NAME_BYTES_MAX
    )]
    Name {
        /// The policy.
        policy: String,
        /// The name, of itself or of its cluster.
        name: String,
    },
    /// No policy of the cluster has a bound of the number of hosts.
    #[error("policy \"{policy}\": {field} is missing: write `hosts = {{ min = 2, max = 8 }}`")]
    NoBound {
        /// The first policy of the cluster.
        policy: String,
        /// The missing field.
        field: &'static str,
    },
    /// A number is outside its limits.
    #[error("policy \"{policy}\": {field} = {value} must be {least} to {most}")]
    OutOfLimits {
        /// The policy.
        policy: String,
        /// The field.
        field: &'static str,
        /// The value, as text.
        value: String,
        /// The least allowed, as text.
        least: String,
        /// The greatest allowed, as text.
        most: String,
    },
    /// The minimum of hosts is above the maximum, in one policy or in two of one cluster.
    #[error(
        "policy \"{min_of}\": hosts.min = {min} is above hosts.max = {max} of policy \"{max_of}\": write a minimum of {max} or less, or a maximum of {min} or more"
    )]
    MinAboveMax {
        /// The policy with the minimum.
        min_of: String,
        /// The minimum.
        min: u32,
        /// The policy with the maximum.
        max_of: String,
        /// The maximum.
        max: u32,
    },
    /// A window's minimum is above the maximum of hosts.
    #[error(
        "policy \"{policy}\": schedule window {window} asks for {min} hosts, above hosts.max = {max} of policy \"{max_of}\": write a minimum of {max} or less, or a maximum of {min} or more"
    )]
    WindowAboveMax {
        /// The policy with the schedule.
        policy: String,
        /// The window.
        window: String,
        /// The window's minimum.
        min: u32,
        /// The policy with the maximum.
        max_of: String,
        /// The maximum.
        max: u32,
    },
    /// A window has no days, or one of them twice.
    #[error(
        "policy \"{policy}\": schedule window {window} must name each of its days once, such as days = [\"mon\", \"fri\"]"
    )]
    WindowDays {
        /// The policy.
        policy: String,
        /// The window.
        window: String,
    },
    /// A schedule has too many windows.
    #[error(
        "policy \"{policy}\": schedule has {windows} windows, more than {}: join those that follow each other",
        super::schedule::WINDOWS_MAX
    )]
    TooManyWindows {
        /// The policy.
        policy: String,
        /// How many there are.
        windows: usize,
    },
    /// A threshold to remove hosts is not below the threshold to add them.
    #[error(
        "policy \"{policy}\": {}.in = {within} is not below {}.out = {out}: hosts would come and go for ever; write in = {most} or less",
        metric.name(), metric.name()
    )]
    InAboveOut {
        /// The policy.
        policy: String,
        /// The metric.
        metric: Metric,
        /// The threshold to remove hosts.
        within: u64,
        /// The threshold to add hosts.
        out: u64,
        /// The greatest `in` that goes with `out`.
        most: u64,
    },
    /// A threshold to remove hosts is not far enough below the threshold to add them.
    #[error(
        "policy \"{policy}\": {}.in = {within} is closer to {}.out = {out} than hysteresis_permille = {hysteresis_permille} allows: write in = {most} or less",
        metric.name(), metric.name()
    )]
    TooClose {
        /// The policy.
        policy: String,
        /// The metric.
        metric: Metric,
        /// The threshold to remove hosts.
        within: u64,
        /// The threshold to add hosts.
        out: u64,
        /// The distance that is asked for.
        hysteresis_permille: u32,
        /// The greatest `in` that goes with `out`.
        most: u64,
    },
    /// Two policies of a cluster have different values of one field.
    #[error(
        "policies \"{first}\" and \"{second}\" of cluster \"{cluster}\" both have {field}: keep it in one of them"
    )]
    Both {
        /// The cluster.
        cluster: String,
        /// The field.
        field: &'static str,
        /// One policy.
        first: String,
        /// The other one.
        second: String,
    },
    /// Hosts would be removed by their capacity and added by nothing.
    #[error(
        "policy \"{policy}\": consolidation removes hosts and no threshold adds them: write one too, such as packets_per_second = {{ out = 800_000, in = 400_000 }}"
    )]
    OnlyConsolidates {
        /// The policy.
        policy: String,
    },
    /// The first pause after a failed launch is longer than the longest.
    #[error(
        "policy \"{policy}\": back_off.first = {first} is longer than back_off.most = {most}: write a shorter first pause"
    )]
    BackOffOrder {
        /// The policy.
        policy: String,
        /// The first pause.
        first: super::time::Span,
        /// The longest pause.
        most: super::time::Span,
    },
}

/// All that is wrong with the policies of a configuration, one sentence a line. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoliciesError(pub Vec<PolicyError>);

impl PoliciesError {
    pub(super) fn one(error: PolicyError) -> PoliciesError {
        PoliciesError(vec![error])
    }
}

impl fmt::Display for PoliciesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, error) in self.0.iter().enumerate() {
            let end = if place == 0 { "" } else { "\n" };
            write!(f, "{end}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PoliciesError {}
