//! What an operator chooses for a firewall. Plain values: reading them from a file is the binary's work, but for the rules,
//! which `text` reads.

use asterism_function::Tick;
use asterism_tracking::{IdleTimes, Tracker};

use super::rules::Rules;

/// How a firewall is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirewallConfig {
    /// Which new flows pass.
    pub rules: Rules,
    /// After how long flows are forgotten.
    pub idle: IdleTimes,
    /// TCP connections whose beginning was not seen go on if the rules let them begin: for starting a firewall in a
    /// network that has some.
    pub picks_up: bool,
    /// Paths may show one direction of a TCP connection alone ([`Tracker::asymmetric`]).
    pub asymmetric: bool,
    /// The same addresses and ports on two VLANs are two flows ([`Tracker::per_vlan`]).
    pub per_vlan: bool,
    /// Half-open TCP connections that one source may have begun within the last minute, over all instances.
    pub half_open_per_source: u32,
    /// Half-open TCP connections to one destination begun within the last minute, over all sources and instances; as many as
    /// [`FirewallConfig::half_open_total`] or more: destinations have no limit of their own. The default is a quarter of it: one that is
    /// flooded leaves room for connections to others, and a server whose clients are 100 ms away gets there with 40,000 new
    /// connections a second.
    pub half_open_per_destination: u32,
    /// Half-open TCP connections begun on one link within the last minute, over all sources and instances.
    pub half_open_total: u32,
    /// Microseconds that a packet waits for what another instance may have seen, before it is dropped for fitting no flow.
    /// 0 where there are no other instances.
    pub settle_us: u32,
    /// Flows that a rule rejects and that are answered in a second at most, on each link and by each instance; 0 answers none.
    pub answers_per_second: u16,
    /// Flows at most, over the whole cluster.
    pub flows_max: u32,
    /// Fragmented datagrams at most.
    pub fragments_max: u32,
    /// Blocked sources at most.
    pub blocked_max: u32,
    /// Noted events at most.
    pub events_max: u32,
    /// Sources whose handshakes are counted at most.
    pub sources_max: u32,
    /// Destinations whose handshakes are counted at most.
    pub destinations_max: u32,
}

/// Seconds for which an event is kept: a rule notes a source once in so long.
pub(super) const EVENT_IDLE: [Tick; 1] = [60];

impl Default for FirewallConfig {
    fn default() -> Self {
        let Tracker {
            picks_up,
            asymmetric,
            per_vlan,
            settle_us,
            limits,
        } = Tracker::default();
        Self {
            rules: Rules::default(),
            idle: IdleTimes::DEFAULT,
            picks_up,
            asymmetric,
            per_vlan,
            half_open_per_source: limits.per_source,
            half_open_per_destination: limits.per_destination,
            half_open_total: limits.per_link,
            settle_us,
            answers_per_second: 1_000,
            flows_max: 65_536,
            fragments_max: 65_536,
            blocked_max: 8_192,
            events_max: 8_192,
            sources_max: 8_192,
            destinations_max: 8_192,
        }
    }
}
