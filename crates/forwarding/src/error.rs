//! Received ICMP errors, and the flow that each is about.
//!
//! An error must neither open nor refresh nor end a flow (RFC 5508 REQ-4 to REQ-6): outsiders can forge errors.

use core::net::IpAddr;

use asterism_function::{Embedded, Flow4, Packet, Reason};

/// Source quench (deprecated, RFC 6633) and redirect, which routers do not forward (RFC 1812 §5.2.7.2).
const NOT_FORWARDED: [u8; 2] = [4, 5];

/// The packet inside an error: only where the error is intact (RFC 5508 REQ-3), so is the IPv4 header inside (REQ-3a), and that
/// packet came from where the error goes. It may be one without ports, of another protocol or a later fragment.
pub fn quoted(packet: &Packet<'_>) -> Result<Embedded, Reason> {
    if packet
        .icmp_type()
        .is_some_and(|icmp_type| NOT_FORWARDED.contains(&icmp_type))
    {
        return Err(Reason::UnsupportedProtocol);
    }
    if packet.verify_transport_checksum() == Some(false) {
        return Err(Reason::IcmpUnmatched);
    }
    let goes_to = packet.ipv4_destination().map(IpAddr::V4);
    packet
        .embedded()
        .filter(Embedded::header_checksum_valid)
        .filter(|embedded| goes_to == Some(embedded.source()))
        .ok_or(Reason::IcmpUnmatched)
}

/// The flow of the packet inside an error, as [`quoted`] has it: only where its ports are quoted.
pub fn embedded(packet: &Packet<'_>) -> Result<Flow4, Reason> {
    quoted(packet)?.flow4().ok_or(Reason::IcmpUnmatched)
}
