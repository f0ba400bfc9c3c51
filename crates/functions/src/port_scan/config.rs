//! What an operator chooses.

use asterism_detection::sources::IPV6_PREFIX;
use asterism_detection::{FloodPolicy, Thresholds, VolumePolicy};
use asterism_function::{IpPrefix, Tick};

/// What is done about a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Response {
    /// An alert is raised; every packet passes.
    Detect,
    /// An alert is raised, and all that the source sends is dropped by every instance for so many seconds. A source
    /// that still probes afterwards is blocked again. Source addresses can be forged: where nothing filters them, a
    /// block can be brought upon somebody else, so exempt those that must not be cut off.
    Block {
        /// Seconds.
        block_s: Tick,
    },
}

/// What an operator chooses; `PortScanConfig::default()` is meant for a network's edge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortScanConfig {
    /// What is done about a scan. Default: blocked for 10 minutes.
    pub response: Response,
    /// Seconds of a window; evidence counts in the current one and the one before, so a scan slower than
    /// `ports` probes in this time is not found. Default 60; 0 is taken as 1.
    pub window_s: Tick,
    /// Distinct TCP ports without any answer that make a port scan, provided that they are three times as many as the
    /// hosts that gave none; and distinct IP protocols that were refused. Default 7: nobody's clients miss seven services of one host, and the shortest scan worth
    /// the name has ten probes. At most some 200 can be distinguished.
    pub ports: u16,
    /// Distinct hosts that refused which make a sweep, provided that they are two to four times as many as the
    /// unanswered ports, and no fewer than the hosts that the source converses with. One that has kept silent for a
    /// window counts half, one that may yet answer a quarter: so that a browser that opens connections to some
    /// eighteen hosts within a round trip is let be. Default 5. Pinged hosts count in full, whether they answer or
    /// not.
    pub hosts: u16,
    /// How much it takes by UDP, if scans by UDP are looked for. Default: [`Thresholds::UDP`].
    pub udp: Option<Thresholds>,
    /// Whether a scan by UDP has the response that others have; else it only raises an alert. Default: it has.
    pub udp_blocks: bool,
    /// Bits of an IPv6 address that are one source's: its evidence and its block are of all addresses that begin with them, since a host
    /// chooses its addresses within its link's prefix. Default 64; 128 tells all addresses apart.
    pub ipv6_prefix: u8,
    /// Sources that never raise an alert: monitoring, resolvers, name servers. Their handshakes are part of no flood.
    pub exempt: Vec<IpPrefix>,
    /// The volume policy, if there is one. Default: none.
    pub volume: Option<VolumePolicy>,
    /// What makes a SYN flood, if they are looked for. Default: [`FloodPolicy::default`].
    pub flood: Option<FloodPolicy>,
    /// Histories of sources at most, over the whole cluster: up to four for each source that is active within two windows, some
    /// 200 bytes each. Default 65,536. When they run out, probes of new sources are counted as unrecorded.
    pub histories_max: u32,
    /// Samples of handshakes at most, over the whole cluster: up to three for each service that gets a quarter of a flood in SYNs,
    /// some 250 bytes each. Default 4,096. When they run out, handshakes with further services are counted as unrecorded.
    pub samples_max: u32,
    /// Alerts, blocks and floods at most, each. Default 8,192.
    pub alerts_max: u32,
    /// Seconds for which an alert is kept after its last news. Default 3,600.
    pub alert_keep_s: Tick,
}

impl Default for PortScanConfig {
    fn default() -> Self {
        Self {
            response: Response::Block { block_s: 600 },
            window_s: 60,
            ports: 7,
            hosts: 5,
            udp: Some(Thresholds::UDP),
            udp_blocks: true,
            ipv6_prefix: IPV6_PREFIX,
            exempt: Vec::new(),
            volume: None,
            flood: Some(FloodPolicy::default()),
            histories_max: 1 << 16,
            samples_max: 1 << 12,
            alerts_max: 1 << 13,
            alert_keep_s: 3_600,
        }
    }
}
