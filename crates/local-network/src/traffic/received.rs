//! A frame that arrived at a station, taken apart and checked as far as every station does.

use asterism_packet::{Arp, IcmpKind, MacAddress, Packet, Protocol};

use super::endpoints::End;
use super::tcp::Arrived;
use crate::addresses::LinkSide;

/// Bytes of the longest payload that is looked at: more than any station sends.
pub(super) const PAYLOAD_MAX: usize = 1_500;

/// What a frame is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Received {
    /// ARP for everybody, or for this station.
    Arp(Arp),
    /// A datagram, whose payload has so many bytes.
    Udp(Ends, usize),
    /// A segment, whose payload has as many bytes as it says.
    Tcp(Ends, Arrived),
    /// An ICMP error: a host refused a packet.
    Refusal,
    /// A packet for this station that is malformed, or none of these.
    Unexpected,
    /// A packet for this station with a wrong checksum.
    WrongChecksum,
    /// A frame for another station.
    NotForUs,
}

/// The ends of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) source: End,
    pub(super) destination: End,
}

/// Takes a frame apart; its payload is copied, so that the frame can go.
pub(super) fn take_apart(
    bytes: &mut [u8],
    side: LinkSide,
    payload: &mut [u8; PAYLOAD_MAX],
) -> Received {
    let destination = bytes.first_chunk::<6>().copied().map(MacAddress);
    let is_ours = destination == Some(side.router_mac());
    if !is_ours && destination != Some(MacAddress::BROADCAST) {
        return Received::NotForUs;
    }
    let Ok(packet) = Packet::parse(bytes) else {
        return Received::Unexpected;
    };
    if let Some(arp) = packet.arp() {
        return Received::Arp(arp);
    }
    if !is_ours {
        return Received::NotForUs;
    }
    if packet.icmp_kind() == Some(IcmpKind::Error) {
        return Received::Refusal;
    }
    let Some(flow) = packet.flow4() else {
        return Received::Unexpected;
    };
    if packet.verify_transport_checksum() == Some(false) {
        return Received::WrongChecksum;
    }
    let carried = packet.payload();
    let Some(place) = payload.get_mut(..carried.len()) else {
        return Received::Unexpected;
    };
    place.copy_from_slice(carried);
    let ends = Ends {
        source: End {
            address: flow.source,
            port: flow.source_port,
        },
        destination: End {
            address: flow.destination,
            port: flow.destination_port,
        },
    };
    match Protocol(flow.protocol) {
        Protocol::UDP => Received::Udp(ends, carried.len()),
        Protocol::TCP => {
            let segment = packet
                .tcp_flags()
                .zip(packet.tcp_sequence())
                .zip(packet.tcp_acknowledgement());
            match segment {
                Some(((flags, sequence), acknowledgement)) => Received::Tcp(
                    ends,
                    Arrived {
                        flags,
                        sequence,
                        acknowledgement,
                        bytes: carried.len() as u32,
                    },
                ),
                None => Received::Unexpected,
            }
        }
        _ => Received::Unexpected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_packet::build::{self, Header4};

    #[test]
    fn only_what_is_for_the_station_and_whole_is_taken() {
        let side = LinkSide::Outside;
        let mut header = Header4::between(side.gateway(), side.router());
        header.ethernet_destination = side.router_mac();
        let mut frame = [0; 200];
        let length = build::udp4(&header, 5, 6, b"payload", &mut frame).unwrap();
        let mut payload = [0; PAYLOAD_MAX];
        let mut taken = |frame: &[u8]| take_apart(&mut frame.to_vec(), side, &mut payload);
        let whole = &frame[..length];
        assert!(matches!(taken(whole), Received::Udp(ends, 7) if ends.source.port == 5));
        let mut wrong = whole.to_vec();
        wrong[length - 1] ^= 1;
        assert!(matches!(taken(&wrong), Received::WrongChecksum));
        let mut refusal = [0; 200];
        let refused = build::icmp_unreachable(whole, side.gateway(), 1, &mut refusal).unwrap();
        refusal[..6].copy_from_slice(&side.router_mac().0);
        assert!(matches!(taken(&refusal[..refused]), Received::Refusal));
        wrong[0] ^= 2;
        assert!(matches!(taken(&wrong), Received::NotForUs));
        assert!(matches!(taken(&whole[..20]), Received::Unexpected));
        assert!(matches!(taken(&whole[..5]), Received::NotForUs));
        let length =
            build::arp_request(side.router_mac(), side.router(), side.gateway(), &mut frame);
        assert!(matches!(taken(&frame[..length.unwrap()]), Received::Arp(_)));
    }
}
