//! Why bytes are not a packet.

use core::fmt;

/// Why bytes are not a packet. The frame is unchanged; what to do with it is the caller's choice, usually a counted drop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Malformed {
    /// The frame ends inside the Ethernet header or a VLAN tag.
    LinkTooShort,
    /// The frame ends inside the fixed part of the ARP, IPv4 or IPv6 header.
    NetworkTooShort,
    /// The version field disagrees with the Ethernet type.
    Version,
    /// The IPv4 header length is below 20 bytes, or beyond the total length.
    HeaderLength,
    /// The IPv4 or IPv6 length says more than the frame has.
    LengthBeyondFrame,
    /// The IPv4 header checksum is wrong.
    HeaderChecksum,
    /// An IPv6 extension header ends beyond the packet.
    ExtensionTooShort,
    /// IPv6 hop-by-hop options that are not the first extension header (RFC 8200 §4.1).
    ExtensionOrder,
    /// More IPv6 extension headers than are walked (8), or two fragment headers.
    TooManyExtensions,
    /// A fragment that would reach beyond the largest datagram of 65,535 bytes.
    FragmentBeyondDatagram,
    /// A whole packet that ends inside its transport header.
    TransportTooShort,
    /// The TCP data offset is below 20 bytes or beyond the packet.
    TcpDataOffset,
    /// The UDP length is below 8 bytes or beyond the packet.
    UdpLength,
    /// The source or destination of an IPv6 packet is an IPv4-mapped address, `::ffff:0:0/96`, which no packet may have
    /// (RFC 6890, table 20).
    MappedAddress,
}

impl Malformed {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Malformed; 14] = [
        Malformed::LinkTooShort,
        Malformed::NetworkTooShort,
        Malformed::Version,
        Malformed::HeaderLength,
        Malformed::LengthBeyondFrame,
        Malformed::HeaderChecksum,
        Malformed::ExtensionTooShort,
        Malformed::ExtensionOrder,
        Malformed::TooManyExtensions,
        Malformed::FragmentBeyondDatagram,
        Malformed::TransportTooShort,
        Malformed::TcpDataOffset,
        Malformed::UdpLength,
        Malformed::MappedAddress,
    ];

    /// The reason in words, for a counter's legend.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Malformed::LinkTooShort => "frame ends inside the Ethernet header",
            Malformed::NetworkTooShort => "frame ends inside the network header",
            Malformed::Version => "IP version disagrees with the Ethernet type",
            Malformed::HeaderLength => "bad IPv4 header length",
            Malformed::LengthBeyondFrame => "IP length is beyond the frame",
            Malformed::HeaderChecksum => "wrong IPv4 header checksum",
            Malformed::ExtensionTooShort => "IPv6 extension header is beyond the packet",
            Malformed::ExtensionOrder => "IPv6 hop-by-hop options are not first",
            Malformed::TooManyExtensions => "too many IPv6 extension headers",
            Malformed::FragmentBeyondDatagram => "fragment reaches beyond the largest datagram",
            Malformed::TransportTooShort => "packet ends inside the transport header",
            Malformed::TcpDataOffset => "bad TCP data offset",
            Malformed::UdpLength => "bad UDP length",
            Malformed::MappedAddress => "IPv4-mapped address in an IPv6 header",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_numbers() {
        // `parse` hands a reason on by its number.
        for (index, reason) in Malformed::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
