//! Flows as keys: one direction of a conversation, over either IP version. Imports `host`.

use asterism_function::objects::hash;
use asterism_function::{Host, Key, Packet, Protocol, Transport, Wire};

/// One direction of a conversation: addresses, ports and transport protocol. Ports are 0 where there are none: other protocols
/// than TCP and UDP, and fragments after the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
pub struct Flow {
    /// Who sends.
    pub source: Host,
    /// Who receives.
    pub destination: Host,
    /// From which port.
    pub source_port: u16,
    /// To which port.
    pub destination_port: u16,
    /// The number of the transport protocol (IANA).
    pub protocol: u8,
}

impl Flow {
    /// The flow of a packet; `None` if it is not IP.
    #[inline(always)]
    pub fn of(packet: &Packet<'_>) -> Option<Self> {
        // Of ICMP these "ports" would be the identifier, which whoever asks chooses.
        if let Some(flow) = packet.flow4()
            && flow.protocol != Protocol::ICMP.0
        {
            return Some(Self {
                source: flow.source.into(),
                destination: flow.destination.into(),
                source_port: flow.source_port,
                destination_port: flow.destination_port,
                protocol: flow.protocol,
            });
        }
        Self::of_uncommon(packet)
    }

    #[inline(never)]
    fn of_uncommon(packet: &Packet<'_>) -> Option<Self> {
        let (source, destination) = Host::ends(packet)?;
        let has_ports = matches!(packet.layout().transport(), Transport::Tcp | Transport::Udp);
        let ports = if has_ports { packet.ports() } else { None };
        let (source_port, destination_port) = ports.unwrap_or((0, 0));
        Some(Self {
            source,
            destination,
            source_port,
            destination_port,
            protocol: packet.layout().protocol(),
        })
    }

    /// Whether it is of IPv4.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.source.address().is_ipv4()
    }
}

impl Key for Flow {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        let ((source_high, source), (destination_high, destination)) =
            (self.source.words(), self.destination.words());
        let ports = u64::from(self.protocol) << 32
            | u64::from(self.source_port) << 16
            | u64::from(self.destination_port);
        let high = hash::words(source_high, destination_high, seed);
        hash::words(hash::words(source, destination, seed), ports, high)
    }
}

impl core::fmt::Display for Flow {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            formatter,
            "{} port {} to {} port {} by protocol {}",
            self.source, self.source_port, self.destination, self.destination_port, self.protocol
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::build::{self, Header4, Segment};
    use asterism_function::{BadBytes, Reader, TcpFlags, Writer};

    #[test]
    fn only_tcp_and_udp_have_ports() {
        let header = Header4::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut bytes = [0; 128];
        let mut ports = |write: &dyn Fn(&mut [u8]) -> Option<usize>| {
            let length = write(&mut bytes).expect("it fits");
            let packet = Packet::parse(&mut bytes[..length]).expect("a packet");
            let flow = Flow::of(&packet).expect("a flow");
            (flow.protocol, flow.source_port, flow.destination_port)
        };
        let segment = Segment::with_flags(TcpFlags::ACK);
        let tcp = ports(&|out| build::tcp4(&header, 7, 80, &segment, b"", out));
        assert_eq!(tcp, (6, 7, 80));
        assert_eq!(
            ports(&|out| build::udp4(&header, 7, 53, b"", out)),
            (17, 7, 53)
        );
        // Nor have queries of ICMP, whose identifier is in no service and no record of a flow.
        for icmp_type in [8, 0, 13, 11] {
            let icmp = ports(&|out| build::icmp4(&header, icmp_type, 0, [9, 9, 0, 1], b"", out));
            assert_eq!(icmp, (1, 0, 0), "type {icmp_type}");
        }
        let mut echo6 = [0; 62];
        echo6[12..21].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 58]);
        echo6[21] = 64;
        echo6[54..60].copy_from_slice(&[128, 0, 0, 0, 9, 9]);
        let packet = Packet::parse(&mut echo6).expect("a packet");
        assert_eq!(packet.icmp_identifier(), Some(0x0909));
        let flow = Flow::of(&packet).expect("a flow");
        assert_eq!((flow.source_port, flow.destination_port), (0, 0));
    }

    #[test]
    fn flows_come_back_from_the_wire() {
        for address in ["192.0.2.1", "2001:db8::7"] {
            let host = Host::from(address.parse::<core::net::IpAddr>().unwrap());
            let flow = Flow {
                source: host,
                destination: host,
                source_port: 53,
                destination_port: 40_000,
                protocol: 17,
            };
            let mut bytes = Vec::new();
            flow.encode(&mut Writer::new(&mut bytes, &[]));
            assert_eq!(Flow::decode(&mut Reader::new(&bytes, &[])), Ok(flow));
            for length in 0..bytes.len() {
                assert_eq!(
                    Flow::decode(&mut Reader::new(&bytes[..length], &[])),
                    Err(BadBytes)
                );
            }
            assert_eq!(flow.is_ipv4(), address.contains('.'));
        }
    }
}
