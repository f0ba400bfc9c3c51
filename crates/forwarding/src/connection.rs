//! Control bits that all instances together saw in a flow's packets (RFC 9293 §3.3.2), and the idle time that follows (RFC
//! 5382, RFC 4787, RFC 5508).
//!
//! Within one incarnation of a session, bits only become set. So the observations of two instances add up in whatever order
//! they are exchanged: a SYN here and the SYN-ACK there are one handshake. A connection that begins again between the same
//! endpoints begins a new incarnation: see [`Connection::ended`].

use asterism_function::{Endpoint, Protocol, TcpFlags, Tick, Value, Wire};

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the inside host.
    Outbound = 0,
    /// To the inside host.
    Inbound = 1,
}

/// What was seen of a session: a byte whose bits join by "or".
///
/// FIN, RST and ACK as they stand in the control bits of segments from inside, and one bit higher of segments from
/// outside. A TCP connection counts as established once a segment with ACK was seen each way: that is the third
/// segment of a handshake, also of a simultaneous open (RFC 5382 §5), and of a connection older than this NAT.
#[derive(Clone, Copy, PartialEq, Eq, Wire, Value)]
#[value(idle_class = Self::class)]
pub struct Connection(#[join(or)] u8);

impl core::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self.0 >> KIND_SHIFT {
            TCP if self.ended() => "tcp ended",
            TCP if self.is_established() => "tcp established",
            TCP => "tcp transitory",
            UDP_QUERY => "dns query",
            UDP if *self == Self::MAPPING => "mapping",
            UDP => "udp",
            _ => "icmp query",
        })
    }
}

const SEEN: u8 = TcpFlags::FIN.0 | TcpFlags::RST.0 | TcpFlags::ACK.0;
const FINISHED: u8 = both(TcpFlags::FIN);
const RESET: u8 = both(TcpFlags::RST);
const ACKNOWLEDGED: u8 = both(TcpFlags::ACK);

const fn both(flag: TcpFlags) -> u8 {
    flag.0 | flag.0 << 1
}

/// What the session is of, in the two highest bits: the same for all its incarnation.
const KIND_SHIFT: u32 = 6;
const TCP: u8 = 0;
const UDP: u8 = 1;
const UDP_QUERY: u8 = 2;
const ICMP_QUERY: u8 = 3;
/// The port of DNS, whose sessions are one question and one answer.
const DNS_PORT: u16 = 53;

impl Connection {
    /// No session, but a place for some: nothing is ever seen of it, and it has an idle class of its own, the seventh, in tables
    /// that have one.
    pub const MAPPING: Self = Self(UDP << KIND_SHIFT | 1);

    /// A session with `remote` of which nothing was seen yet.
    pub fn new(remote: Endpoint) -> Self {
        let kind = match (remote.protocol, remote.port) {
            (Protocol::TCP, _) => TCP,
            (Protocol::UDP, DNS_PORT) => UDP_QUERY,
            (Protocol::UDP, _) => UDP,
            _ => ICMP_QUERY,
        };
        Self(kind << KIND_SHIFT)
    }

    /// Whether it is a TCP connection.
    #[inline(always)]
    #[must_use]
    pub const fn is_tcp(self) -> bool {
        self.0 >> KIND_SHIFT == TCP
    }

    /// After one more packet with these control bits: none of what is not TCP, which changes nothing.
    #[inline(always)]
    #[must_use]
    pub fn after(self, flags: TcpFlags, direction: Direction) -> Self {
        Self(self.0 | (flags.0 & SEEN) << (direction as u8))
    }

    /// Whether `flags` open a new connection on a session whose last one ended: its bits must not count for the
    /// new one, so the session is rewritten instead of updated.
    #[inline(always)]
    pub fn reopens(self, flags: TcpFlags) -> bool {
        flags.contains(TcpFlags::SYN) && self.ended()
    }

    /// Whether the TCP connection was reset or finished both ways.
    pub fn ended(self) -> bool {
        self.0 & RESET != 0 || self.0 & FINISHED == FINISHED
    }

    /// Whether the TCP connection was reset.
    #[must_use]
    pub const fn is_reset(self) -> bool {
        self.0 & RESET != 0
    }

    /// False only if the connection has not [`ended`](Self::ended): one test of bits, for every packet from inside. True also
    /// while the remote end alone has finished.
    #[inline(always)]
    pub fn may_have_ended(self) -> bool {
        const FINISHED_BY_REMOTE: u8 = TcpFlags::FIN.0 << (Direction::Inbound as u8);
        self.0 & (RESET | FINISHED_BY_REMOTE) != 0
    }

    /// Whether the remote end of a TCP connection said anything.
    pub fn is_answered(self) -> bool {
        self.0 & SEEN << (Direction::Inbound as u8) != 0
    }

    /// Whether the TCP handshake is complete.
    pub fn is_established(self) -> bool {
        self.0 & ACKNOWLEDGED == ACKNOWLEDGED && !self.ended()
    }
}

impl Connection {
    fn class(&self) -> u8 {
        match self.0 >> KIND_SHIFT {
            TCP if self.ended() => 2,
            TCP if self.is_established() => 1,
            TCP => 0,
            UDP if *self == Self::MAPPING => 6,
            UDP => 3,
            UDP_QUERY => 4,
            _ => 5,
        }
    }
}

/// After how many seconds without a packet a session ends. [`IdleTimes::RFC`] has the values that the RFCs ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleTimes {
    /// TCP before the handshake is complete: at least 240 (RFC 5382 REQ-5).
    pub tcp_transitory: Tick,
    /// TCP: at least 7,440, which is 2 hours and 4 minutes (RFC 5382 REQ-5).
    pub tcp_established: Tick,
    /// TCP after a reset or both FINs: at least 240 (RFC 5382 REQ-5, RFC 7857 §2.2).
    pub tcp_closing: Tick,
    /// UDP: at least 120, better 300 (RFC 4787 REQ-5).
    pub udp: Tick,
    /// UDP to port 53, which may be shorter (RFC 4787 REQ-5a).
    pub udp_dns: Tick,
    /// ICMP queries: at least 60 (RFC 5508 REQ-2).
    pub icmp_query: Tick,
}

impl IdleTimes {
    /// What the RFCs require or recommend.
    pub const RFC: Self = Self {
        tcp_transitory: 240,
        tcp_established: 7_440,
        tcp_closing: 240,
        udp: 300,
        udp_dns: 60,
        icmp_query: 60,
    };

    /// By idle class.
    #[must_use]
    pub fn classes(&self) -> [Tick; 6] {
        [
            self.tcp_transitory,
            self.tcp_established,
            self.tcp_closing,
            self.udp,
            self.udp_dns,
            self.icmp_query,
        ]
    }

    /// The least that the RFCs allow, beside each name and value, with the clause that says so.
    #[must_use]
    pub fn minima(&self) -> [(&'static str, Tick, Tick, &'static str); 5] {
        [
            ("tcp_transitory", self.tcp_transitory, 240, "RFC 5382 REQ-5"),
            (
                "tcp_established",
                self.tcp_established,
                7_440,
                "RFC 5382 REQ-5",
            ),
            ("tcp_closing", self.tcp_closing, 240, "RFC 7857 §2.2"),
            ("udp", self.udp, 120, "RFC 4787 REQ-5"),
            ("icmp_query", self.icmp_query, 60, "RFC 5508 REQ-2"),
        ]
    }
}
