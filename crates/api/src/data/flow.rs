//! Where flows are.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Flows that one query finds at most.
pub const FLOWS_FOUND_MAX: usize = 256;

/// Which flows are looked for. A part that is absent matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FlowQuery {
    /// An address of an end, IPv4 or IPv6, before or after translation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(example = "192.0.2.1")]
    pub address: Option<String>,
    /// A port of an end; with an address, of that end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub protocol: Option<Protocol>,
    /// The host that wrote it last; no other host is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP.
    Icmp,
}

impl Protocol {
    /// Its name in queries.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Icmp => "icmp",
        }
    }
}

/// The flows that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Flows {
    /// At most 256.
    pub flows: Vec<FlowFound>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// One flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowFound {
    /// The flow, as orders name it: `tcp 192.0.2.1:40000 198.51.100.7:443`.
    pub flow: String,
    /// The host that wrote its entry last: the last of its packets that changed something went there.
    pub host: String,
    /// The hosts that were asked and have its entry: each can take its packets.
    pub held_by: Vec<String>,
    /// Its bucket of the director; absent with other steering.
    pub bucket: Option<u32>,
    /// Its ends after translation; absent without one.
    pub translated: Option<String>,
    /// Whether the director holds an exception for it.
    pub is_exception: bool,
}
