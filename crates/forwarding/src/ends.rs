//! The key of a flow: its packets' ends as they stand in the header.

use asterism_function::{Endpoint, Key, Plain4, Protocol, Wire, objects};

/// The bit of a protocol's number that no protocol of a flow has.
const UNSEEN: u8 = 0x80;

/// Source and destination of a packet of a flow, as they stand there: 13 bytes in three words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire)]
pub struct Ends {
    addresses: u64,
    ports: u32,
    protocol: u8,
}

impl Ends {
    /// Of what stands in a header: source and destination address, source and destination port.
    #[inline(always)]
    #[must_use]
    pub fn of(addresses: [u8; 8], ports: [u8; 4], protocol: Protocol) -> Self {
        Self {
            addresses: u64::from_le_bytes(addresses),
            ports: u32::from_le_bytes(ports),
            protocol: protocol.0,
        }
    }

    /// Of a packet from one endpoint to another. Of an ICMP query the remote endpoint has no port.
    #[must_use]
    pub fn between(source: Endpoint, destination: Endpoint) -> Self {
        let address = |endpoint: Endpoint| u64::from(u32::from_le_bytes(endpoint.address.octets()));
        let port = |endpoint: Endpoint| u32::from(u16::from_le_bytes(endpoint.port.to_be_bytes()));
        Self {
            addresses: address(source) | address(destination) << 32,
            ports: port(source) | port(destination) << 16,
            protocol: source.protocol.0,
        }
    }

    /// Ends that no packet has: for rows that are found one way only.
    #[must_use]
    pub fn unseen(self) -> Self {
        Self {
            protocol: self.protocol | UNSEEN,
            ..self
        }
    }
}

impl From<&Plain4<'_>> for Ends {
    #[inline(always)]
    fn from(packet: &Plain4<'_>) -> Self {
        Self::of(packet.addresses(), packet.ports(), packet.protocol())
    }
}

impl Key for Ends {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        let rest = u64::from(self.protocol) << 32 | u64::from(self.ports);
        objects::hash::words(self.addresses, rest, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{Packet, Reader, Writer, build};

    fn end(last: u8, port: u16) -> Endpoint {
        Endpoint::new([192, 0, 2, last].into(), port, Protocol::UDP)
    }

    #[test]
    fn ends_of_endpoints_are_those_of_their_packets() {
        let header = build::Header4::between(end(1, 0).address, end(2, 0).address);
        let mut frame = vec![0; 128];
        let length = build::udp4(
            &header,
            12_345,
            53,
            b"a question of some length",
            &mut frame,
        )
        .unwrap();
        frame.truncate(length);
        let packet = Packet::parse_plain(&mut frame).unwrap();
        let plain = packet.plain4().unwrap();
        assert_eq!(
            Ends::from(&plain),
            Ends::between(end(1, 12_345), end(2, 53))
        );
    }

    #[test]
    fn unseen_ends_are_of_no_packet_and_still_tell_flows_apart() {
        let (one, other) = (
            Ends::between(end(1, 5), end(2, 80)),
            Ends::between(end(1, 5), end(3, 80)),
        );
        assert_ne!(one.unseen(), one);
        assert_ne!(one.unseen(), other.unseen());
        for ends in [one, other, one.unseen()] {
            let mut bytes = Vec::new();
            ends.encode(&mut Writer::new(&mut bytes, &[]));
            assert_eq!(bytes.len(), 13);
            assert_eq!(Ends::decode(&mut Reader::new(&bytes, &[])), Ok(ends));
        }
    }
}
