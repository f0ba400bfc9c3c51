//! Which packets go together: the hash of a packet, from which its bucket follows.
//!
//! A packet has two ends, each an address and a port. [`FlowBy`] says which of them count; an arm turns it into masks, so that the
//! packet path has no choice to make but the order of the ends.

use core::net::IpAddr;
use core::time::Duration;

use asterism_memory::hash;
use asterism_packet::{Embedded, FlowKey, Fragment, Network, Packet, Plain4};

use crate::drop::DirectorDrop;

/// Fragmented datagrams that are remembered at a time at most, with [`Fragments::WithFirst`].
pub const FRAGMENTS_MAX: usize = 4_096;
/// How long a fragmented datagram is remembered after its last fragment: as long as Linux waits for the rest of one.
pub const FRAGMENTS_TIME: Duration = Duration::from_secs(30);

/// What of a packet decides its bucket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlowBy {
    /// Both addresses and ports and the protocol; the two directions of a flow are apart.
    FiveTuple,
    /// The same, with both directions of a flow together.
    BothWays,
    /// Both addresses: all that two hosts say to each other is together, fragments and ICMP errors included. A store whose shards have whole
    /// conversations may be spread likewise.
    Conversation,
    /// The source address. On one arm with [`FlowBy::Destination`] on the other, all of a host's traffic is together.
    Source,
    /// The destination address.
    Destination,
    /// Address and port of the end that is outside: the source of what arrives outside, the destination of what arrives inside.
    /// A NAT leaves that end as it is, so both directions of a translated flow are together. All flows with one outside end
    /// have one bucket.
    OutsideEndpoint,
}

/// On which side of the cluster an arm is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// Where the clients of a NAT are.
    Inside,
    /// Where the rest of the world is.
    Outside,
}

/// Where fragments go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fragments {
    /// All fragments of a datagram to one target, which need not be that of its flow. Nothing is remembered.
    Together,
    /// The first by its flow, later ones after it: by addresses, identification and protocol, for [`FRAGMENTS_TIME`]. A later one
    /// that overtakes the first is dropped.
    WithFirst,
}

/// The bits of an end that are its port, and those that are its address.
const PORT: u64 = 0xffff;
const ADDRESS: u64 = 0xffff_ffff_0000;
const PROTOCOL_SHIFT: u32 = 48;

/// The two ends of a packet, each with the address above the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ends {
    source: u64,
    destination: u64,
    protocol: u8,
}

/// How the ends are ordered before they are hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    AsSent,
    Reversed,
    Sorted,
}

/// What a packet's bucket follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// This hash.
    Hash(u64),
    /// This hash, which later fragments of the datagram follow.
    First(u64),
    /// The hash of the first fragment.
    Later,
}

/// What an arm hashes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowHash {
    order: Order,
    first_mask: u64,
    second_mask: u64,
    fragments: Fragments,
    seed: u64,
}

impl FlowHash {
    pub(crate) fn new(by: FlowBy, side: Side, fragments: Fragments, seed: u64) -> FlowHash {
        const PROTOCOL: u64 = 0xff << PROTOCOL_SHIFT;
        const END: u64 = ADDRESS | PORT;
        let (order, first_mask, second_mask) = match by {
            FlowBy::FiveTuple => (Order::AsSent, END | PROTOCOL, END),
            FlowBy::BothWays => (Order::Sorted, END | PROTOCOL, END),
            FlowBy::Conversation => (Order::Sorted, ADDRESS, ADDRESS),
            FlowBy::Source => (Order::AsSent, ADDRESS, 0),
            FlowBy::Destination => (Order::Reversed, ADDRESS, 0),
            FlowBy::OutsideEndpoint => {
                let outside = match side {
                    Side::Inside => Order::Reversed,
                    Side::Outside => Order::AsSent,
                };
                (outside, END | PROTOCOL, 0)
            }
        };
        FlowHash {
            order,
            first_mask,
            second_mask,
            fragments,
            seed: asterism_rendezvous::flow_seed(seed),
        }
    }

    /// The hash of a plain packet: whole TCP or UDP over IPv4.
    #[inline(always)]
    pub(crate) fn of_plain(&self, plain: &Plain4<'_>) -> u64 {
        let addresses = u64::from_be_bytes(plain.addresses());
        let ports = u32::from_be_bytes(plain.ports());
        self.of_ends(Ends {
            source: (addresses >> 16 & ADDRESS) | u64::from(ports >> 16),
            destination: (addresses << 16 & ADDRESS) | u64::from(ports & 0xffff),
            protocol: plain.protocol().0,
        })
    }

    #[inline(always)]
    fn of_ends(&self, ends: Ends) -> u64 {
        let (first, second) = match self.order {
            Order::AsSent => (ends.source, ends.destination),
            Order::Reversed => (ends.destination, ends.source),
            Order::Sorted => (
                ends.source.min(ends.destination),
                ends.source.max(ends.destination),
            ),
        };
        let first = first | u64::from(ends.protocol) << PROTOCOL_SHIFT;
        hash::words(
            first & self.first_mask,
            second & self.second_mask,
            self.seed,
        )
    }

    /// What the bucket of any packet follows from.
    #[inline(never)]
    pub(crate) fn of(&self, packet: &Packet<'_>) -> Result<Flow, DirectorDrop> {
        let layout = packet.layout();
        let addresses = match layout.network() {
            Network::Ipv4 => packet
                .ipv4_source()
                .zip(packet.ipv4_destination())
                .map(|(source, destination)| (source.into(), destination.into())),
            Network::Ipv6 => packet
                .ipv6_source()
                .zip(packet.ipv6_destination())
                .map(|(source, destination)| (source.into(), destination.into())),
            Network::Arp | Network::Other => None,
        };
        let (source, destination): (IpAddr, IpAddr) = addresses.ok_or(DirectorDrop::NotIp)?;
        if layout.fragment() == Fragment::Whole
            && let Some(embedded) = packet.embedded()
        {
            return Ok(Flow::Hash(self.of_embedded(&embedded)));
        }
        let needs_ports = (self.first_mask | self.second_mask) & PORT != 0;
        let follows = self.fragments == Fragments::WithFirst && needs_ports;
        let ports = match layout.fragment() {
            Fragment::Later if follows => return Ok(Flow::Later),
            Fragment::First | Fragment::Later if !follows => {
                let identification = match layout.network() {
                    Network::Ipv4 => packet.ipv4_identification().map(u32::from),
                    _ => packet.ipv6_identification(),
                };
                return Ok(Flow::Hash(self.of_fragment(
                    (source, destination),
                    layout.protocol(),
                    identification.unwrap_or(0),
                )));
            }
            Fragment::Whole | Fragment::First | Fragment::Later => packet.ports().unwrap_or((0, 0)),
        };
        let hash = self.of_ends(self.ends((source, destination), ports, layout.protocol()));
        Ok(match layout.fragment() {
            Fragment::Whole => Flow::Hash(hash),
            Fragment::First | Fragment::Later => Flow::First(hash),
        })
    }

    /// The hash of packets that arrive where this error did and belong to the flow of the packet in it, which went the other way.
    fn of_embedded(&self, embedded: &Embedded) -> u64 {
        let addresses = (embedded.destination(), embedded.source());
        let is_fragment = embedded.fragment() != Fragment::Whole;
        match embedded.ports() {
            Some((source, destination))
                if !is_fragment || self.fragments == Fragments::WithFirst =>
            {
                let ports = (destination, source);
                self.of_ends(self.ends(addresses, ports, embedded.protocol().0))
            }
            _ if is_fragment => {
                self.of_fragment(addresses, embedded.protocol().0, embedded.identification())
            }
            _ => self.of_ends(self.ends(addresses, (0, 0), embedded.protocol().0)),
        }
    }

    /// The same for all fragments of a datagram: the identification stands for the ports.
    fn of_fragment(&self, addresses: (IpAddr, IpAddr), protocol: u8, identification: u32) -> u64 {
        let port = (identification ^ identification >> 16) as u16;
        // Later fragments of IPv6 may name another protocol than the first (RFC 8200 §4.5).
        let protocol = if addresses.0.is_ipv4() { protocol } else { 0 };
        self.of_ends(self.ends(addresses, (port, port), protocol))
    }

    fn ends(&self, addresses: (IpAddr, IpAddr), ports: (u16, u16), protocol: u8) -> Ends {
        let end =
            |address: IpAddr, port: u16| hash::address(address, self.seed) << 16 | u64::from(port);
        Ends {
            source: end(addresses.0, ports.0),
            destination: end(addresses.1, ports.1),
            protocol,
        }
    }
}

/// The key of a single flow: both directions of it.
#[inline(always)]
pub(crate) fn key_of(packet: &Packet<'_>) -> FlowKey {
    FlowKey::of(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_packet::build::{self, Header4};
    use asterism_packet::{Endpoint, Flow4};
    use core::net::Ipv4Addr;

    const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
    const NAT: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
    const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 8);

    fn hash(by: FlowBy, side: Side) -> FlowHash {
        FlowHash::new(by, side, Fragments::Together, 5)
    }

    fn flow(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Flow4 {
        Flow4 {
            source: source.0,
            destination: destination.0,
            source_port: source.1,
            destination_port: destination.1,
            protocol: 6,
        }
    }

    fn frame(flow: &Flow4) -> Vec<u8> {
        let mut frame = vec![0; 200];
        let length = build::flow4(flow, b"payload", &mut frame).unwrap();
        frame.truncate(length);
        frame
    }

    fn of(hash: &FlowHash, frame: &[u8]) -> u64 {
        let mut frame = frame.to_vec();
        let packet = Packet::parse(&mut frame).unwrap();
        let Flow::Hash(found) = hash.of(&packet).unwrap() else {
            panic!("a hash");
        };
        if let Some(plain) = packet.plain4() {
            assert_eq!(hash.of_plain(&plain), found);
        }
        found
    }

    #[test]
    fn directions_meet_where_they_are_to() {
        let there = flow((CLIENT, 4_000), (SERVER, 80));
        let (sent, answer) = (frame(&there), frame(&there.reversed()));
        let both = hash(FlowBy::BothWays, Side::Inside);
        assert_eq!(of(&both, &sent), of(&both, &answer));
        let apart = hash(FlowBy::FiveTuple, Side::Inside);
        assert_ne!(of(&apart, &sent), of(&apart, &answer));

        // Through a NAT only the outside end stays.
        let outside = flow((SERVER, 80), (NAT, 61_000));
        let inside = hash(FlowBy::OutsideEndpoint, Side::Inside);
        let outer = hash(FlowBy::OutsideEndpoint, Side::Outside);
        assert_eq!(of(&inside, &sent), of(&outer, &frame(&outside)));
        let other_port = flow((SERVER, 81), (NAT, 61_000));
        assert_ne!(of(&inside, &sent), of(&outer, &frame(&other_port)));

        let source = hash(FlowBy::Source, Side::Inside);
        let destination = hash(FlowBy::Destination, Side::Outside);
        assert_eq!(of(&source, &sent), of(&destination, &answer));
        let other = flow((CLIENT, 4_001), (NAT, 53));
        assert_eq!(of(&source, &sent), of(&source, &frame(&other)));
    }

    #[test]
    fn an_icmp_error_goes_where_its_flow_goes() {
        // The cluster sent to the server; a router on the way returns an error to the arm where the server's answers arrive.
        let sent = flow((NAT, 61_000), (SERVER, 80));
        let mut error = [0; 700];
        let router = Ipv4Addr::new(192, 0, 2, 1);
        let length = build::icmp_unreachable(&frame(&sent), router, 1, &mut error).unwrap();
        for by in [FlowBy::FiveTuple, FlowBy::BothWays, FlowBy::OutsideEndpoint] {
            let hash = hash(by, Side::Outside);
            let answer = frame(&sent.reversed());
            assert_eq!(of(&hash, &error[..length]), of(&hash, &answer), "{by:?}");
        }
    }

    #[test]
    fn fragments_stay_together_or_follow_the_first() {
        let header = Header4 {
            dont_fragment: false,
            identification: 77,
            ..Header4::between(CLIENT, SERVER)
        };
        let mut whole = vec![0; 1_000];
        let length = build::udp4(&header, 9, 53, &[1; 600], &mut whole).unwrap();
        whole.truncate(length);
        let mut first = whole.clone();
        set_fragment(&mut first, 0x2000);
        let mut later = whole.clone();
        set_fragment(&mut later, 0x0010);
        let together = hash(FlowBy::BothWays, Side::Inside);
        assert_eq!(of(&together, &first), of(&together, &later));
        assert_ne!(of(&together, &first), of(&together, &whole));

        let follow = FlowHash::new(FlowBy::BothWays, Side::Inside, Fragments::WithFirst, 5);
        let kind = |frame: &mut [u8]| follow.of(&Packet::parse(frame).unwrap());
        let Ok(Flow::Hash(hash)) = kind(&mut whole) else {
            panic!("a hash");
        };
        assert_eq!(kind(&mut first), Ok(Flow::First(hash)));
        assert_eq!(kind(&mut later), Ok(Flow::Later));
        // Where ports do not count, nothing need be remembered.
        let source = FlowHash::new(FlowBy::Source, Side::Inside, Fragments::WithFirst, 5);
        assert_eq!(of(&source, &first), of(&source, &later));
        assert_eq!(of(&source, &first), of(&source, &whole));
    }

    fn set_fragment(frame: &mut [u8], bits: u16) {
        frame[20..22].copy_from_slice(&bits.to_be_bytes());
        frame[24..26].fill(0);
        let sum = asterism_packet::checksum::Sum::ZERO.bytes(&frame[14..34]);
        let sum = sum.finish();
        frame[24..26].copy_from_slice(&sum);
    }

    #[test]
    fn what_is_no_ip_is_refused() {
        let mut arp = [0; 64];
        let endpoint = Endpoint::from_bits(0);
        let length = build::arp_request(
            asterism_packet::MacAddress([2; 6]),
            endpoint.address,
            CLIENT,
            &mut arp,
        );
        let packet = Packet::parse(&mut arp[..length.unwrap()]).unwrap();
        let hash = hash(FlowBy::FiveTuple, Side::Inside);
        assert_eq!(hash.of(&packet), Err(DirectorDrop::NotIp));
    }
}
