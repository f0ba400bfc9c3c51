//! Flows as keys: one direction of a conversation, over either IP version.

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
        // Of ICMP these "ports" would be the identifier, which anyone who asks chooses.
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

/// A flow as it is exported: packets of one flow that differ in what else a record says are counted apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
pub struct Observed {
    /// The flow.
    pub flow: Flow,
    /// The VLAN of the outermost tag, or 0.
    pub vlan: u16,
    /// Type and code of ICMP or ICMPv6, in the upper and the lower byte; 0 of other protocols and of fragments without them.
    pub icmp: u16,
    /// As IPFIX has them: see [`Packet::fragment_flags`].
    pub fragment_flags: u8,
}

impl Observed {
    /// Untagged packets of a flow, of which nothing else is known.
    #[must_use]
    pub const fn of_flow(flow: Flow) -> Self {
        Self {
            flow,
            vlan: 0,
            icmp: 0,
            fragment_flags: 0,
        }
    }

    /// What a packet of a flow is counted as.
    #[inline(always)]
    pub fn of(packet: &Packet<'_>, flow: Flow) -> Self {
        let icmp = match flow.protocol {
            1 | 58 => packet.icmp_type().zip(packet.icmp_code()),
            _ => None,
        };
        Self {
            flow,
            vlan: packet.vlan_id().unwrap_or(0),
            icmp: icmp.map_or(0, |(icmp_type, code)| u16::from_be_bytes([icmp_type, code])),
            fragment_flags: packet.fragment_flags().unwrap_or(0),
        }
    }
}

impl Key for Observed {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        let others = u64::from(self.fragment_flags) << 32
            | u64::from(self.vlan) << 16
            | u64::from(self.icmp);
        self.flow
            .hash(seed ^ others.wrapping_mul(0x9e37_79b9_7f4a_7c15))
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
    use asterism_function::{BadBytes, Layout, Reader, TcpFlags, Writer};

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
    fn vlan_type_and_code_of_icmp_and_fragments_are_reported_apart() {
        let header = Header4::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let observed = |frame: &mut [u8]| {
            let packet = Packet::parse(frame).expect("a packet");
            let observed = Observed::of(&packet, Flow::of(&packet).expect("a flow"));
            (observed.vlan, observed.icmp, observed.fragment_flags)
        };
        let mut bytes = [0; 128];
        let length = build::icmp4(&header, 3, 1, [0; 4], b"", &mut bytes).expect("it fits");
        assert_eq!(observed(&mut bytes[..length]), (0, 0x0301, 0x40));
        let tagged = [&bytes[..12], &[0x81, 0, 0x60, 7], &bytes[12..length]].concat();
        assert_eq!(observed(&mut tagged.clone()), (7, 0x0301, 0x40));
        // Fragments of a datagram: the first, and the last.
        for (at, flags) in [(0x2000u16, 0x20), (0x0001, 0)] {
            let more = Header4 {
                dont_fragment: false,
                ..header
            };
            let length = build::udp4(&more, 7, 53, b"payload!", &mut bytes).expect("it fits");
            bytes[20..22].copy_from_slice(&at.to_be_bytes());
            let layout = Layout::parse_unverified(&bytes[..length]).expect("a packet");
            let packet = Packet::with_layout(&mut bytes[..length], layout);
            assert_eq!(packet.fragment_flags(), Some(flags));
        }
        let mut six = [0; 14 + 40 + 8 + 8];
        six[12..14].copy_from_slice(&[0x86, 0xdd]);
        six[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 16, 44, 64]);
        six[54..62].copy_from_slice(&[17, 0, 0, 9, 0, 0, 0, 1]);
        assert_eq!(observed(&mut six), (0, 0, 0x20), "more follow");
        six[57] = 8;
        assert_eq!(observed(&mut six), (0, 0, 0));
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
