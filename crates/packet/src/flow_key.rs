//! The key by which packets are kept in order.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::embedded::Embedded;
use crate::layout::{Fragment, Network};
use crate::mac::MacAddress;
use crate::packet::{PLAIN_IPV4, Packet};

/// Which packets keep their order: 40 bytes, the same in both directions.
///
/// | packet | key |
/// |---|---|
/// | with ports, or an ICMP identifier | both addresses and ports, the smaller end first, and the protocol |
/// | a fragment, first or later | both addresses and the datagram's identification, and for IPv4 the protocol |
/// | an ICMP error | the key that the packet embedded in it would have |
/// | other IP | both addresses and the protocol |
/// | not IP | both Ethernet addresses and the Ethernet type |
///
/// All fragments of one datagram have one key (RFC 791 §3.2, RFC 8200 §4.5); it is not that of their flow, which only
/// the first of them names: a fragmented datagram and whole packets of its flow may overtake each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct FlowKey {
    /// The address of the smaller end, then of the greater; of IPv4 the first word is the address.
    addresses: [[u64; 2]; 2],
    /// Ports or identification, protocol and form.
    rest: u64,
}

/// The form of a key, so that an identification is never taken for ports, nor IPv4 for IPv6.
#[derive(Clone, Copy)]
enum Form {
    Ipv4 = 1,
    Ipv6 = 2,
    Ipv4Fragment = 3,
    Ipv6Fragment = 4,
    Link = 5,
}

impl FlowKey {
    /// The key of a packet. About fifty instructions for an IPv4 packet with ports.
    #[inline]
    #[must_use]
    pub fn of(packet: &Packet<'_>) -> FlowKey {
        if let Some(frame) = packet.plain() {
            // Address and port in one number are ordered as the pair is.
            let (_, headers) = frame.split_at(PLAIN_IPV4);
            let [.., a, b, c, d, e, f, g, h, i, j, k, l] =
                *headers.first_chunk::<24>().unwrap_or(&[0; 24]);
            let source = u64::from_be_bytes([0, 0, a, b, c, d, i, j]);
            let destination = u64::from_be_bytes([0, 0, e, f, g, h, k, l]);
            let (small, great) = (source.min(destination), source.max(destination));
            return FlowKey {
                addresses: [[small >> 16, 0], [great >> 16, 0]],
                rest: FlowKey::rest(
                    small as u16,
                    great as u16,
                    packet.layout().protocol(),
                    Form::Ipv4,
                ),
            };
        }
        FlowKey::of_uncommon(packet)
    }

    /// The key of packets between two ends, in either direction: addresses of one version with ports, or with the identifier of an
    /// ICMP query twice; port 0 where the protocol has none.
    #[must_use]
    pub fn between(one: (IpAddr, u16), other: (IpAddr, u16), protocol: u8) -> FlowKey {
        FlowKey::of_ip(one.0, other.0, protocol, Some((one.1, other.1)), None)
    }

    /// The two addresses, of a key of IP packets.
    #[must_use]
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let form = self.rest as u8;
        let is = |one: Form| form == one as u8;
        let address = |[first, second]: [u64; 2]| match is(Form::Ipv4) || is(Form::Ipv4Fragment) {
            true => IpAddr::V4(Ipv4Addr::from_bits(first as u32)),
            false => IpAddr::V6(Ipv6Addr::from_bits(
                u128::from(first) << 64 | u128::from(second),
            )),
        };
        let [one, other] = self.addresses;
        (!is(Form::Link)).then(|| (address(one), address(other)))
    }

    /// A hash of the key for tables and for spreading flows over instances. Not cryptographic: `seed` must be secret
    /// where senders may choose keys that collide.
    #[inline]
    #[must_use]
    pub fn hash(&self, seed: u64) -> u64 {
        let [[a, b], [c, d]] = self.addresses;
        let first = mix(a ^ seed, c ^ 0x9e37_79b9_7f4a_7c15);
        let second = mix(
            b ^ seed.rotate_left(32) ^ 0xd1b5_4a32_d192_ed03,
            d ^ 0xaef1_7502_b3a9_4bd1,
        );
        mix(first ^ second ^ self.rest, seed ^ 0x8bb8_4b93_962e_acc9)
    }

    /// A number that packets of one key have in common, and few others: for telling cheaply that a packet's key is none of some.
    #[inline]
    #[must_use]
    pub fn digest(&self) -> u64 {
        let [[a, b], [c, d]] = self.addresses;
        (a ^ c) << 16 ^ b ^ d ^ (self.rest >> 48 ^ self.rest >> 32 & 0xffff)
    }

    /// The [`FlowKey::digest`] of a plain packet, whose headers need not be parsed for it: some ten instructions. Of another packet any
    /// number; `None` if the frame is shorter than the headers of a plain one.
    #[inline(always)]
    #[must_use]
    pub fn digest_of_plain(frame: &[u8]) -> Option<u64> {
        let (addresses, ports) = frame.get(PLAIN_IPV4 + 12..)?.split_first_chunk()?;
        let addresses = u64::from_be_bytes(*addresses);
        let ports = u32::from_be_bytes(*ports.first_chunk()?);
        let addresses = (addresses >> 32 ^ addresses) & 0xffff_ffff;
        let ports = (ports >> 16 ^ ports) & 0xffff;
        Some(addresses << 16 ^ u64::from(ports))
    }

    #[inline(never)]
    fn of_uncommon(packet: &Packet<'_>) -> FlowKey {
        let layout = packet.layout();
        if layout.fragment() == Fragment::Whole
            && let Some(embedded) = packet.embedded()
        {
            return FlowKey::of_embedded(&embedded);
        }
        let ends = match layout.network() {
            Network::Ipv4 => packet
                .ipv4_source()
                .zip(packet.ipv4_destination())
                .map(|(s, d)| (s.into(), d.into())),
            Network::Ipv6 => packet
                .ipv6_source()
                .zip(packet.ipv6_destination())
                .map(|(s, d)| (s.into(), d.into())),
            Network::Arp | Network::Other => None,
        };
        let Some((source, destination)) = ends else {
            return FlowKey::of_link(packet);
        };
        let identification = match (layout.fragment(), layout.network()) {
            (Fragment::Whole, _) => None,
            (_, Network::Ipv4) => packet.ipv4_identification().map(u32::from),
            (_, _) => packet.ipv6_identification(),
        };
        FlowKey::of_ip(
            source,
            destination,
            layout.protocol(),
            packet.ports(),
            identification,
        )
    }

    fn of_embedded(embedded: &Embedded) -> FlowKey {
        let identification = match embedded.fragment() {
            Fragment::Whole => None,
            Fragment::First | Fragment::Later => Some(embedded.identification()),
        };
        FlowKey::of_ip(
            embedded.source(),
            embedded.destination(),
            embedded.protocol().0,
            embedded.ports(),
            identification,
        )
    }

    /// The key of an IP packet; of a fragment when there is an identification.
    fn of_ip(
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        ports: Option<(u16, u16)>,
        identification: Option<u32>,
    ) -> FlowKey {
        let is_ipv4 = source.is_ipv4();
        let (source, destination) = (words(source), words(destination));
        let Some(identification) = identification else {
            let (source_port, destination_port) = ports.unwrap_or((0, 0));
            let form = if is_ipv4 { Form::Ipv4 } else { Form::Ipv6 };
            return FlowKey::symmetric(
                (source, source_port),
                (destination, destination_port),
                protocol,
                form,
            );
        };
        // Later IPv6 fragments may name another protocol than the first (RFC 8200 §4.5), so it is not in their key.
        let (protocol, form) = if is_ipv4 {
            (protocol, Form::Ipv4Fragment)
        } else {
            (0, Form::Ipv6Fragment)
        };
        let mut key = FlowKey::symmetric((source, 0), (destination, 0), protocol, form);
        key.rest |= u64::from(identification) << 32;
        key
    }

    fn of_link(packet: &Packet<'_>) -> FlowKey {
        let ends = (
            mac_words(packet.ethernet_source()),
            mac_words(packet.ethernet_destination()),
        );
        let ethertype = packet.ethertype();
        FlowKey::symmetric((ends.0, ethertype), (ends.1, ethertype), 0, Form::Link)
    }

    #[inline(always)]
    fn symmetric(
        one: ([u64; 2], u16),
        other: ([u64; 2], u16),
        protocol: u8,
        form: Form,
    ) -> FlowKey {
        let (small, great) = if one <= other {
            (one, other)
        } else {
            (other, one)
        };
        FlowKey {
            addresses: [small.0, great.0],
            rest: FlowKey::rest(small.1, great.1, protocol, form),
        }
    }

    #[inline(always)]
    fn rest(small_port: u16, great_port: u16, protocol: u8, form: Form) -> u64 {
        u64::from(small_port) << 48
            | u64::from(great_port) << 32
            | u64::from(protocol) << 8
            | form as u64
    }
}

fn words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => [u64::from(address.to_bits()), 0],
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            [(bits >> 64) as u64, bits as u64]
        }
    }
}

fn mac_words(MacAddress([a, b, c, d, e, f]): MacAddress) -> [u64; 2] {
    [u64::from_be_bytes([0, 0, a, b, c, d, e, f]), 0]
}

/// Both halves of the 128-bit product.
#[inline(always)]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
