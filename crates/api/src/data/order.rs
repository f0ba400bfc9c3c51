//! Orders: what a caller wants changed. Each names the desired state, so that an order that comes twice does no more than one.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Bytes of the name of a host, a tenant or a token.
pub const NAME_BYTES_MAX: usize = 64;
/// Characters of the reason of an order.
pub const REASON_CHARACTERS_MAX: usize = 256;

/// What a caller wants changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The host keeps its flows and gets no new ones.
    Drain {
        /// The host.
        host: String,
        /// See [`Drain`].
        body: Drain,
    },
    /// The host gets packets again.
    Restore {
        /// The host.
        host: String,
        /// See [`Restore`].
        body: Restore,
    },
    /// The operator declares that a process has ended.
    Fence {
        /// The host.
        host: String,
        /// See [`Fence`].
        body: Fence,
    },
    /// The host's place is free for another host.
    Forget {
        /// The host.
        host: String,
        /// See [`Forget`].
        body: Forget,
    },
    /// So many hosts.
    Scale(Scale),
    /// A bucket or a flow to a host.
    Move(Move),
}

impl Order {
    /// The host that the order is about, or to which it moves something.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match self {
            Order::Drain { host, .. }
            | Order::Restore { host, .. }
            | Order::Fence { host, .. }
            | Order::Forget { host, .. } => Some(host),
            Order::Scale(_) => None,
            Order::Move(order) => Some(&order.to),
        }
    }

    /// The reason that the caller gave.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Order::Drain { body, .. } => body.reason.as_deref(),
            Order::Restore { body, .. } => body.reason.as_deref(),
            Order::Fence { body, .. } => body.reason.as_deref(),
            Order::Forget { body, .. } => body.reason.as_deref(),
            Order::Scale(order) => order.reason.as_deref(),
            Order::Move(order) => order.reason.as_deref(),
        }
    }
}

/// The host keeps its flows and gets no new ones. Where the steering cannot tell flows apart, it gets no packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "the disk is replaced"}))]
pub struct Drain {
    /// Why, for the event log: 256 characters at most, without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")]
    pub reason: Option<String>,
}

/// The host gets packets again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "the disk was replaced"}))]
pub struct Restore {
    /// Why, for the event log: 256 characters at most, without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")]
    pub reason: Option<String>,
}

/// The operator declares that no process of the host runs in this incarnation or an earlier one. A false declaration lets two processes
/// use one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"incarnation": 1, "reason": "the power is off"}))]
pub struct Fence {
    /// The incarnation that has ended. An incarnation that was not named yet is a conflict.
    pub incarnation: u64,
    /// Why, for the event log: 256 characters at most, without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")]
    pub reason: Option<String>,
}

/// The host is gone for good, and its place is free for another one. A conflict while it takes part, or while nothing proves that its last
/// process has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "the machine was given back"}))]
pub struct Forget {
    /// Why, for the event log: 256 characters at most, without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")]
    pub reason: Option<String>,
}

/// So many hosts. The policies' bounds hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"to": 3}))]
pub struct Scale {
    /// How many hosts there shall be.
    pub to: u32,
    /// Why, for the event log: 256 characters at most, without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")]
    pub reason: Option<String>,
}

/// A bucket or a flow to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"what": {"bucket": 17}, "to": "alpha"}))]
pub struct Move {
    /// What is moved.
    pub what: MoveWhat,
    /// The host that gets it.
    pub to: String,
    /// Why, for the event log: 256 characters at most, without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")]
    pub reason: Option<String>,
}

/// What is moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MoveWhat {
    /// A bucket of the director, with all its flows.
    Bucket(u32),
    /// All buckets of a range.
    Buckets(BucketRange),
    /// One flow, as `/v1/flows` names it.
    Flow(String),
}

/// Buckets of the director.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BucketRange {
    /// The first.
    pub first: u32,
    /// The last, which belongs to it.
    pub last: u32,
}

/// An order was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrderAccepted {
    /// Whether it changed the desired state; false: this was ordered before.
    pub changed: bool,
    /// What follows, in one sentence.
    pub detail: String,
    /// The number of the newest event when the order was taken: what follows has later numbers.
    pub events_after: u64,
}
