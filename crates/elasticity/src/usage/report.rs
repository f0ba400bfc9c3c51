//! The input of metering: what one host counted for its tenants since it began.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Tenants of one report, and of a cluster, at most.
pub const TENANTS_MAX: usize = 1_024;
/// Bytes of the name of a tenant or a host at most.
pub const NAME_BYTES_MAX: usize = 64;
/// Packets/s of one host beyond which counts are absurd: more than 400 Gbit/s of the shortest frames.
pub const PACKETS_PER_SECOND_MAX: u64 = 1_000_000_000;
/// Bytes of one packet beyond which counts are absurd: the longest that offloads join.
pub const PACKET_BYTES_MAX: u64 = 262_144;
/// Instances of one host beyond which counts are absurd.
pub const INSTANCES_MAX: u64 = 1_024;

/// Counts of one tenant at one host since the host's incarnation began. Each of them only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Packets handled.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Flows that began.
    pub flows: u64,
    /// Time in which instances ran for the tenant, in milliseconds, summed over instances.
    pub instance_ms: u64,
}

impl Counts {
    /// The greater of each count: what is known after both reports.
    #[must_use]
    pub fn join(self, other: Counts) -> Counts {
        Counts {
            packets: self.packets.max(other.packets),
            bytes: self.bytes.max(other.bytes),
            flows: self.flows.max(other.flows),
            instance_ms: self.instance_ms.max(other.instance_ms),
        }
    }

    /// The first count that no host can have reached in a time; None if all are possible.
    #[must_use]
    pub fn absurd_after(self, ms: u64) -> Option<&'static str> {
        let ms = u128::from(ms);
        let packets_max = u128::from(PACKETS_PER_SECOND_MAX) * ms / 1_000;
        let possible = [
            ("packets", self.packets, packets_max),
            (
                "bytes",
                self.bytes,
                packets_max * u128::from(PACKET_BYTES_MAX),
            ),
            ("flows", self.flows, packets_max),
            (
                "instance_ms",
                self.instance_ms,
                ms * u128::from(INSTANCES_MAX),
            ),
        ];
        let beyond = possible
            .into_iter()
            .find(|(_, count, most)| u128::from(*count) > *most);
        beyond.map(|(name, ..)| name)
    }
}

/// What one host counted. A tenant that is absent has no news: its earlier counts stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The host.
    pub host: String,
    /// The incarnation of the host that counted.
    pub incarnation: u64,
    /// Counts by tenant.
    pub tenants: BTreeMap<String, Counts>,
}
