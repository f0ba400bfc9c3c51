//! Flows as keys: one direction of a conversation, over either IP version. Imports `host`.

use asterism_function::objects::hash;
use asterism_function::{Host, Key, Packet, Wire};

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
        if let Some(flow) = packet.flow4() {
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
        let (source_port, destination_port) = packet.ports().unwrap_or((0, 0));
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
    use asterism_function::{BadBytes, Reader, Writer};

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
