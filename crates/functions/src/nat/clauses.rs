//! Which clause of which RFC the NAT meets, and how: one table for tests and documentation.

/// How far a clause is met.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// As written.
    Met,
    /// Met where a setting says so; the note says which.
    Configured,
    /// In part; the note says what is missing.
    Partly,
    /// Not met; the note says why.
    NotMet,
}

/// A requirement on this NAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clause {
    /// The RFC's number.
    pub rfc: u16,
    /// The requirement, as the RFC numbers it, or the section.
    pub number: &'static str,
    /// What it asks for, in our words.
    pub subject: &'static str,
    /// How far it is met.
    pub status: Status,
    /// How, or why not.
    pub note: &'static str,
}

const fn clause(
    rfc: u16,
    number: &'static str,
    subject: &'static str,
    status: Status,
    note: &'static str,
) -> Clause {
    Clause {
        rfc,
        number,
        subject,
        status,
        note,
    }
}

use Status::{Configured, Met, NotMet, Partly};

/// All clauses, in the order of the RFCs.
pub const CLAUSES: &[Clause] = &[
    clause(
        4787,
        "REQ-1",
        "endpoint-independent mapping",
        Met,
        "A new session takes the outside endpoint of any live session of its inside endpoint. Two instances that bind one endpoint within the lag may both keep theirs until idle.",
    ),
    clause(
        4787,
        "REQ-2",
        "paired outside addresses",
        Met,
        "The address is chosen by a keyed hash of the inside address; when its ports are used up, up to three others are tried.",
    ),
    clause(
        4787,
        "REQ-3",
        "no port overloading",
        Met,
        "An outside endpoint belongs to one inside endpoint until its last session is forgotten by all.",
    ),
    clause(
        4787,
        "REQ-3a",
        "ports below 1024 stay below 1024",
        Configured,
        "Only where outside_ports begins below 1024 and the port is free in the instance's leases.",
    ),
    clause(
        4787,
        "REQ-4",
        "port parity",
        Partly,
        "UDP: kept where one of three tries finds a free port of the same parity. Contiguity (RTP and RTCP) is not sought.",
    ),
    clause(
        4787,
        "REQ-5",
        "UDP idle time of two minutes or more, five by default",
        Met,
        "300 s; settings below 120 s are refused unless short_idle is set. Port 53: 60 s (REQ-5a).",
    ),
    clause(
        4787,
        "REQ-6",
        "packets from inside refresh a mapping",
        Met,
        "Packets of a session refresh it both ways; packets that belong to no session refresh nothing.",
    ),
    clause(
        4787,
        "REQ-7",
        "other networks of private addresses outside",
        Met,
        "A source from outside that is routed inside is refused; any other private address is an address like others.",
    ),
    clause(
        4787,
        "REQ-8",
        "filtering",
        Configured,
        "Endpoint-independent by default; address-dependent and address-and-port-dependent by setting.",
    ),
    clause(
        4787,
        "REQ-9",
        "hairpinning, with the outside source",
        Met,
        "On by default; two ordinary sessions, one for each host, of which no packet from outside is one.",
    ),
    clause(
        4787,
        "REQ-10",
        "application-level gateways off",
        Met,
        "There are none.",
    ),
    clause(
        4787,
        "REQ-11",
        "deterministic behaviour",
        Met,
        "Filtering and mapping do not change with what else is mapped; the port does.",
    ),
    clause(
        4787,
        "REQ-12",
        "ICMP errors end no mapping",
        Met,
        "They change no state.",
    ),
    clause(
        4787,
        "REQ-13",
        "packets too big for the next link",
        Met,
        "With DF: fragmentation needed is sent. Without DF the packet is fragmented, fragments too (REQ-13a): into at most 45 parts of at most 1,500 bytes, else it is dropped and counted.",
    ),
    clause(
        4787,
        "REQ-14",
        "fragments",
        Met,
        "In any order, both ways and on any instance: a later part that overtakes the first one waits for it, at most 100 ms and 256 packets at once, the oldest given up first (REQ-14a). Of first parts 21,845 a second have room, of those from outside half.",
    ),
    clause(
        5382,
        "REQ-1",
        "endpoint-independent mapping",
        Met,
        "As for UDP.",
    ),
    clause(
        5382,
        "REQ-2",
        "all valid sequences of TCP, simultaneous open included",
        Met,
        "Segments are followed by their control bits each way, in any order. The reset with which an inside host refuses what its binding let in leaves by that binding, without a session.",
    ),
    clause(5382, "REQ-3", "filtering", Configured, "As for UDP."),
    clause(
        5382,
        "REQ-4",
        "unsolicited SYN: no answer for six seconds",
        Met,
        "Never an answer (REQ-4a).",
    ),
    clause(
        5382,
        "REQ-5",
        "2 h 4 min established, 4 min otherwise",
        Met,
        "7,440 s and 240 s; lower settings are refused unless short_idle is set.",
    ),
    clause(
        5382,
        "REQ-6",
        "application-level gateways for TCP",
        Met,
        "There are none.",
    ),
    clause(
        5382,
        "REQ-7",
        "no port overloading, no preservation that overrides",
        Met,
        "As for UDP.",
    ),
    clause(5382, "REQ-8", "hairpinning", Met, "As for UDP."),
    clause(
        5382,
        "REQ-9",
        "ICMP errors are translated",
        Met,
        "See RFC 5508.",
    ),
    clause(
        5382,
        "REQ-10",
        "ICMP errors end no connection",
        Met,
        "They change no state.",
    ),
    clause(
        5508,
        "REQ-1",
        "ICMP queries, mapped by identifier alone",
        Met,
        "The identifier is a port.",
    ),
    clause(
        5508,
        "REQ-2",
        "60 s for ICMP queries",
        Met,
        "60 s; lower settings are refused unless short_idle is set.",
    ),
    clause(
        5508,
        "REQ-3",
        "damaged ICMP errors are dropped",
        Met,
        "The error's checksum and the IPv4 header checksum inside are verified, the transport checksum inside is not (REQ-3c). Extensions (REQ-3d) are passed on as they are.",
    ),
    clause(
        5508,
        "REQ-4",
        "errors from outside",
        Met,
        "Matched to sessions, else dropped and counted.",
    ),
    clause(
        5508,
        "REQ-5",
        "errors from inside",
        Met,
        "Matched to sessions, else to bindings; the source becomes the outside address of the host that the error is about.",
    ),
    clause(
        5508,
        "REQ-6",
        "errors refresh and end nothing",
        Met,
        "They change no state.",
    ),
    clause(
        5508,
        "REQ-7",
        "errors hairpin",
        Met,
        "Both ends inside are translated. Hairpinned queries are for basic NAT; queries to outside addresses are answered by the NAT itself.",
    ),
    clause(
        5508,
        "REQ-8",
        "refused sessions are reported",
        Met,
        "Administratively prohibited (3/13), within the rate limit.",
    ),
    clause(
        5508,
        "REQ-9",
        "a policy about ICMP",
        Configured,
        "icmp_errors_per_second = 0 sends none.",
    ),
    clause(
        5508,
        "REQ-10",
        "ICMP messages that a NAT supports itself",
        Partly,
        "Time exceeded, fragmentation needed, network unreachable, echo; redirects and source quench are dropped.",
    ),
    clause(
        5508,
        "REQ-11",
        "other ICMP messages",
        Met,
        "Dropped and counted.",
    ),
    clause(
        7857,
        "2.1",
        "four minutes for half-open connections, settings of their own for open and closing",
        Met,
        "tcp_transitory and tcp_closing.",
    ),
    clause(
        7857,
        "2.2",
        "after a reset, four minutes",
        Met,
        "The session is kept for tcp_closing. A reset whose sequence number is far from where its sender is ends nothing (RFC 5961): it was forged.",
    ),
    clause(
        7857,
        "3",
        "port overlapping",
        Met,
        "There is none: an outside endpoint has one inside endpoint.",
    ),
    clause(
        7857,
        "4",
        "address pooling paired",
        Met,
        "All protocols of an inside address share its outside address while that has free ports.",
    ),
    clause(
        7857,
        "5",
        "protocols are mapped on their own",
        Met,
        "Bindings are by protocol.",
    ),
    clause(
        7857,
        "6",
        "protocols are filtered on their own",
        Met,
        "Bindings are by protocol; the policy is one.",
    ),
    clause(
        7857,
        "7",
        "inbound packets and the refresh of mappings",
        Met,
        "Only packets of a session refresh; other packets that the policy admits do not.",
    ),
    clause(
        7857,
        "7.1",
        "errors and resets that answer do not refresh",
        Partly,
        "Errors do not; a reset of a known session refreshes it, for the short time of a closed one.",
    ),
    clause(
        7857,
        "8",
        "port parity may be off",
        Met,
        "See RFC 4787 REQ-4.",
    ),
    clause(
        7857,
        "9",
        "port randomisation",
        Partly,
        "The inside port is kept where it is free, as random as the host made it; one that replaces it is random in part.",
    ),
    clause(
        7857,
        "10",
        "IP identification after translation",
        NotMet,
        "The host's identification is kept: two inside hosts may use the same one to a remote host at once.",
    ),
    clause(
        7857,
        "11",
        "ICMP query mappings end with their last session",
        Met,
        "As all bindings.",
    ),
    clause(
        6888,
        "REQ-1",
        "what its transport protocols ask for",
        Met,
        "TCP, UDP and ICMP, as the rows of RFC 4787, 5382 and 5508 say; DCCP, SCTP and others are not forwarded.",
    ),
    clause(
        6888,
        "REQ-2",
        "paired addresses by default",
        Met,
        "By subscriber. With blocks, all blocks of a subscriber are of one address; without them, when its ports are used up, up to three others of the pool are tried.",
    ),
    clause(
        6888,
        "REQ-3",
        "no limit on size or contiguity of the outside pool",
        Partly,
        "Any addresses in any number of pools, but 255 in all.",
    ),
    clause(
        6888,
        "REQ-4",
        "a limit on outside ports for each subscriber",
        Configured,
        "subscribers.ports, over all instances and protocols together (REQ-4 B is not offered); subscribers.new_sessions limits what a subscriber may open (REQ-4 C).",
    ),
    clause(
        6888,
        "REQ-5",
        "a limit on memory for each subscriber",
        Configured,
        "subscribers.new_sessions bounds sessions: its burst and what it lets in during the longest idle time; subscribers.ports bounds bindings. Both are off by default.",
    ),
    clause(
        6888,
        "REQ-6",
        "no translation for chosen destinations",
        Configured,
        "exempt: networks, with a protocol and ports where they are given, are routed both ways without a session, ICMP errors and fragments too.",
    ),
    clause(
        6888,
        "REQ-7",
        "endpoint-independent filtering",
        Met,
        "The default.",
    ),
    clause(
        6888,
        "REQ-8",
        "a freed port is not given out at once",
        Met,
        "120 s for UDP and ICMP, and for blocks, at most as many ports as port_quarantine.ports says; TCP is followed to its end (REQ-8 A). Ports of a dead host stay in quarantine longer: one idle time.",
    ),
    clause(
        6888,
        "REQ-9",
        "mappings by the subscriber's own wish, by PCP",
        Configured,
        "port_control: MAP and ANNOUNCE of RFC 6887, with PREFER_FAILURE. With blocks the suggested port is ignored. PEER, THIRD_PARTY and FILTER are refused by their codes; NAT-PMP and UPnP are not supported.",
    ),
    clause(
        6888,
        "REQ-10",
        "managed by standard means",
        NotMet,
        "Metrics for Prometheus, status as JSON, and the log; there is no MIB.",
    ),
    clause(
        6888,
        "REQ-11",
        "when a mapping cannot be made",
        Partly,
        "The packet is dropped and counted by its reason (A), and no mapping is evicted for another (D). The sender is informed within the rate limit, but by code 13 as RFC 5508 REQ-8 requires, not by code 1 (B). Metrics inform the management (C).",
    ),
    clause(
        6888,
        "REQ-12",
        "no destinations in the log",
        Met,
        "They are never logged; there is no setting for it.",
    ),
    clause(
        6888,
        "REQ-13",
        "ports are used well",
        Partly,
        "Without blocks all ports of a pool serve all subscribers. Blocks leave ports unused, and each instance opens ports only in its own part of a block.",
    ),
    clause(
        6888,
        "REQ-14",
        "little is logged",
        Configured,
        "One line for each block and one for its end, where blocks are set.",
    ),
    clause(
        6888,
        "REQ-15",
        "ports are hard to guess",
        Partly,
        "In blocks at random within the instance's part of the block; without blocks see RFC 7857 §9.",
    ),
    clause(
        6864,
        "4.3",
        "an identification is not soon used again",
        Met,
        "Of what the NAT makes itself: drawn at random. Translated packets: see RFC 7857 §10.",
    ),
    clause(
        1812,
        "4.3.2.4",
        "errors come from the link that they leave by",
        Partly,
        "Errors about a hairpin come from the outside address that it was sent to.",
    ),
    clause(
        1812,
        "4.3.2.5",
        "errors have the type of service of their cause",
        Met,
        "With the precedence of internetwork control.",
    ),
    clause(
        1812,
        "4.3.2.7",
        "errors about what must not cause any",
        Met,
        "None about errors, later fragments, multicast and broadcast.",
    ),
    clause(
        1812,
        "4.3.2.8",
        "errors are limited",
        Configured,
        "icmp_errors_per_second, each side and instance.",
    ),
    clause(
        791,
        "3.2",
        "routers fragment",
        Met,
        "See RFC 4787 REQ-13. Options that are not to be copied become no-operations in later parts.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clause_stands_once_and_says_how() {
        for (place, clause) in CLAUSES.iter().enumerate() {
            assert!(clause.note.ends_with('.'), "{clause:?}");
            assert!(
                CLAUSES[..place]
                    .iter()
                    .all(|other| (other.rfc, other.number) != (clause.rfc, clause.number)),
                "{clause:?}"
            );
        }
    }
}
