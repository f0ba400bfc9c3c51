//! Idle times of flows.

use asterism_function::Tick;

/// After how many seconds without a packet a flow is forgotten. [`IdleTimes::DEFAULT`] has what the RFCs ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleTimes {
    /// TCP before the handshake is complete, also where it was reset.
    pub tcp_half_open: Tick,
    /// TCP (RFC 5382 REQ-5: 7,440 at least).
    pub tcp_established: Tick,
    /// TCP after a reset or both FINs.
    pub tcp_closing: Tick,
    /// UDP of which nothing was answered.
    pub udp_one_way: Tick,
    /// UDP (RFC 4787 REQ-5: 120 at least).
    pub udp: Tick,
    /// ICMP queries.
    pub icmp_query: Tick,
    /// Other protocols.
    pub other: Tick,
}

impl IdleTimes {
    /// What suits most networks.
    pub const DEFAULT: Self = Self {
        tcp_half_open: 60,
        tcp_established: 7_440,
        tcp_closing: 120,
        udp_one_way: 30,
        udp: 300,
        icmp_query: 30,
        other: 600,
    };

    /// By the idle class of a [`Track`](crate::Track): what a table of them is built with.
    #[must_use]
    pub const fn classes(&self) -> [Tick; 7] {
        [
            self.tcp_half_open,
            self.tcp_established,
            self.tcp_closing,
            self.udp_one_way,
            self.udp,
            self.icmp_query,
            self.other,
        ]
    }
}
