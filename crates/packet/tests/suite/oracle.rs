//! Every field against `etherparse`, an independent parser: on all shared captures, and on them damaged at random.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use asterism_packet::{Fragment, Layout, Malformed, Network, Packet, Transport};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

/// Frames of one capture that are compared undamaged, and damaged: the large ones repeat themselves.
const FRAMES_MAX: usize = 4_000;
const DAMAGED_MAX: usize = 400;

#[test]
fn agrees_on_all_captures() {
    let Some(folder) = crate::captures::folder("agrees_on_all_captures") else {
        return;
    };
    let (mut agreed, mut malformed) = (0u32, 0u32);
    for path in crate::captures::all(&folder) {
        for (index, frame) in crate::captures::frames(&path)
            .into_iter()
            .take(FRAMES_MAX)
            .enumerate()
        {
            match compare(frame) {
                Ok(true) => agreed += 1,
                Ok(false) => malformed += 1,
                Err(difference) => panic!("{} frame {}: {difference}", path.display(), index + 1),
            }
        }
    }
    eprintln!("{agreed} frames agree, {malformed} are malformed to both or by a stricter rule");
    assert!(
        agreed > 50_000 && malformed < agreed / 50,
        "{agreed} agreed, {malformed} malformed"
    );
}

#[test]
fn agrees_on_damaged_frames() {
    let Some(folder) = crate::captures::folder("agrees_on_damaged_frames") else {
        return;
    };
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 33) as usize % below.max(1)
    };
    let mut agreed = 0u32;
    for path in crate::captures::all(&folder) {
        for frame in crate::captures::frames(&path).into_iter().take(DAMAGED_MAX) {
            for _ in 0..24 {
                let mut bytes = frame.clone();
                for _ in 0..=next(3) {
                    let at = next(bytes.len().min(80));
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = next(256) as u8;
                    }
                }
                if next(4) == 0 {
                    bytes.truncate(next(bytes.len() + 1));
                }
                match compare(bytes) {
                    Ok(same) => agreed += u32::from(same),
                    Err(difference) => panic!("{}: {difference}", path.display()),
                }
            }
        }
    }
    assert!(agreed > 10_000, "only {agreed} agreed");
}

/// Whether both parse `bytes`, and then alike; an error names the difference.
fn compare(mut bytes: Vec<u8>) -> Result<bool, String> {
    if is_ipv6_without_length(&bytes) {
        return Ok(false);
    }
    let oracle_bytes = bytes.clone();
    let oracle = SlicedPacket::from_ethernet(&oracle_bytes);
    let layout = match Layout::parse_unverified(&bytes) {
        Ok(layout) => layout,
        Err(reason) => return explain(reason, oracle.ok(), &bytes),
    };
    let packet = Packet::with_layout(&mut bytes, layout);
    let oracle = match oracle {
        Ok(oracle) => oracle,
        // What is passed through unread here may be malformed further in.
        Err(_) if layout.network() == Network::Other => return Ok(false),
        // etherparse looks into what is a protocol like any other here: IGMP, an authentication header in IPv4, ICMP of
        // the other IP version.
        Err(_) if layout.network() == Network::Ipv4 && matches!(layout.protocol(), 2 | 51 | 58) => {
            return Ok(false);
        }
        Err(_) if layout.network() == Network::Ipv6 && matches!(layout.protocol(), 1 | 2) => {
            return Ok(false);
        }
        Err(error) => return Err(format!("only here well-formed: {error:?}, {layout:?}")),
    };
    let mut differences = Vec::new();
    let mut check = |what: &str, same: bool| {
        if !same {
            differences.push(what.to_string());
        }
    };
    check(
        "VLAN tags",
        oracle.vlan_ids().len() >= usize::from(layout.vlan_tags()),
    );
    match (&oracle.net, layout.network()) {
        (Some(NetSlice::Ipv4(ip)), Network::Ipv4) => {
            let header = ip.header();
            check("source", packet.ipv4_source() == Some(header.source_addr()));
            check(
                "destination",
                packet.ipv4_destination() == Some(header.destination_addr()),
            );
            check("TTL", packet.ttl() == Some(header.ttl()));
            check(
                "identification",
                packet.ipv4_identification() == Some(header.identification()),
            );
            check(
                "DF",
                packet.ipv4_dont_fragment() == Some(header.dont_fragment()),
            );
            check("DSCP", packet.dscp() == Some(header.dcp().value()));
            check(
                "offset",
                packet.fragment_offset() == Some(header.fragments_offset().byte_offset()),
            );
            check(
                "fragment",
                (layout.fragment() != Fragment::Whole) == header.is_fragmenting_payload(),
            );
            let valid = is_valid_header(header.slice());
            check(
                "header checksum",
                packet.verify_ipv4_checksum() == Some(valid),
            );
            let verified = Layout::parse(packet.bytes());
            check(
                "verified parse",
                verified
                    == if valid {
                        Ok(layout)
                    } else {
                        Err(Malformed::HeaderChecksum)
                    },
            );
        }
        (Some(NetSlice::Ipv6(ip)), Network::Ipv6) => {
            let header = ip.header();
            check("source", packet.ipv6_source() == Some(header.source_addr()));
            check(
                "destination",
                packet.ipv6_destination() == Some(header.destination_addr()),
            );
            check("hop limit", packet.ttl() == Some(header.hop_limit()));
            check("DSCP", packet.dscp() == Some(header.dscp().value()));
            check(
                "flow label",
                packet.ipv6_flow_label() == Some(header.flow_label().value()),
            );
            check(
                "fragment",
                (layout.fragment() != Fragment::Whole) == ip.is_payload_fragmented(),
            );
            check("protocol", ip.payload().ip_number.0 == layout.protocol());
        }
        (Some(NetSlice::Arp(_)), Network::Arp | Network::Other) | (_, Network::Other) => {
            return Ok(true);
        }
        (other, network) => return Err(format!("network {network:?}, etherparse {other:?}")),
    }
    match (&oracle.transport, layout.transport()) {
        (Some(TransportSlice::Tcp(tcp)), Transport::Tcp) => {
            let flags = packet.tcp_flags().expect("TCP").0;
            let bits = [
                tcp.fin(),
                tcp.syn(),
                tcp.rst(),
                tcp.psh(),
                tcp.ack(),
                tcp.urg(),
                tcp.ece(),
                tcp.cwr(),
            ];
            check(
                "ports",
                packet.ports() == Some((tcp.source_port(), tcp.destination_port())),
            );
            check(
                "flags",
                bits.iter()
                    .enumerate()
                    .all(|(bit, set)| (flags >> bit & 1 == 1) == *set),
            );
            check(
                "sequence",
                packet.tcp_sequence() == Some(tcp.sequence_number()),
            );
            check(
                "acknowledgement",
                packet.tcp_acknowledgement() == Some(tcp.acknowledgment_number()),
            );
            check("window", packet.tcp_window() == Some(tcp.window_size()));
            check("options", packet.tcp_options() == Some(tcp.options()));
            check("payload", packet.payload() == tcp.payload());
            if let Some(valid) = packet.verify_transport_checksum() {
                check(
                    "checksum",
                    tcp_checksum(&packet, tcp).map(|sum| same_checksum(sum, tcp.checksum()))
                        == Some(valid),
                );
            }
        }
        (Some(TransportSlice::Udp(udp)), Transport::Udp) => {
            check(
                "ports",
                packet.ports() == Some((udp.source_port(), udp.destination_port())),
            );
            check("length", packet.udp_length() == Some(udp.length()));
            check("payload", packet.payload() == udp.payload());
            if let Some(valid) = packet.verify_transport_checksum() {
                check(
                    "checksum",
                    udp_checksum(&packet, udp).map(|sum| same_checksum(sum, udp.checksum()))
                        == Some(valid),
                );
            }
        }
        (Some(TransportSlice::Icmpv4(icmp)), Transport::Icmp) => {
            check(
                "type",
                packet.icmp_type() == Some(icmp.type_u8())
                    && packet.icmp_code() == Some(icmp.code_u8()),
            );
            check("rest", packet.icmp_rest() == Some(icmp.bytes5to8()));
        }
        (Some(TransportSlice::Icmpv6(icmp)), Transport::Icmpv6) => {
            check(
                "type",
                packet.icmp_type() == Some(icmp.type_u8())
                    && packet.icmp_code() == Some(icmp.code_u8()),
            );
            check("rest", packet.icmp_rest() == Some(icmp.bytes5to8()));
            check(
                "checksum",
                packet.verify_transport_checksum() == icmpv6_checksum(&packet, icmp),
            );
        }
        (None | Some(TransportSlice::Igmp(_)), Transport::None) => {}
        // ICMP of the other IP version is an unknown protocol here.
        (Some(TransportSlice::Icmpv4(_)), Transport::None) if layout.network() == Network::Ipv6 => {
        }
        (Some(TransportSlice::Icmpv6(_)), Transport::None) if layout.network() == Network::Ipv4 => {
        }
        // etherparse reads no transport header from a fragment, this crate the one in a first fragment.
        (None, _) if layout.fragment() == Fragment::First => {}
        (other, transport) => return Err(format!("transport {transport:?}, etherparse {other:?}")),
    }
    if differences.is_empty() {
        Ok(true)
    } else {
        Err(format!("{} differ in {layout:?}", differences.join(", ")))
    }
}

/// etherparse takes an IPv6 payload length of zero for "up to the end of the frame"; here it is zero.
fn is_ipv6_without_length(bytes: &[u8]) -> bool {
    let mut at = 12;
    while matches!(bytes.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8])) {
        at += 4;
    }
    bytes.get(at..at + 2) == Some(&[0x86, 0xdd]) && bytes.get(at + 6..at + 8) == Some(&[0, 0])
}

/// Rules here that etherparse does not have.
fn explain(
    reason: Malformed,
    oracle: Option<SlicedPacket<'_>>,
    bytes: &[u8],
) -> Result<bool, String> {
    let Some(oracle) = oracle else {
        return Ok(false);
    };
    match (reason, oracle.transport) {
        (
            Malformed::FragmentBeyondDatagram
            | Malformed::TooManyExtensions
            | Malformed::MappedAddress,
            _,
        ) => Ok(false),
        // Zero, "as long as the packet", belongs to IPv6 jumbograms only (RFC 2675).
        (Malformed::UdpLength, Some(TransportSlice::Udp(udp))) if udp.length() == 0 => Ok(false),
        _ => Err(format!(
            "malformed only here: {reason}, {:02x?}",
            &bytes[..bytes.len().min(64)]
        )),
    }
}

fn addresses(packet: &Packet<'_>) -> (IpAddr, IpAddr) {
    match (packet.ipv4_source(), packet.ipv4_destination()) {
        (Some(source), Some(destination)) => (source.into(), destination.into()),
        _ => (
            packet.ipv6_source().unwrap_or(Ipv6Addr::UNSPECIFIED).into(),
            packet
                .ipv6_destination()
                .unwrap_or(Ipv6Addr::UNSPECIFIED)
                .into(),
        ),
    }
}

/// RFC 791 word by word: etherparse writes the header again, and so loses the reserved flag.
fn is_valid_header(header: &[u8]) -> bool {
    let mut sum: u32 = header
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

/// Zero has two forms in one's complement, and a receiver that sums accepts both.
fn same_checksum(one: u16, other: u16) -> bool {
    one == other || (one.is_multiple_of(0xffff) && other.is_multiple_of(0xffff))
}

fn tcp_checksum(packet: &Packet<'_>, tcp: &etherparse::TcpSlice<'_>) -> Option<u16> {
    match addresses(packet) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => tcp
            .calc_checksum_ipv4(source.octets(), destination.octets())
            .ok(),
        (IpAddr::V6(source), IpAddr::V6(destination)) => tcp
            .calc_checksum_ipv6(source.octets(), destination.octets())
            .ok(),
        _ => None,
    }
}

fn udp_checksum(packet: &Packet<'_>, udp: &etherparse::UdpSlice<'_>) -> Option<u16> {
    let header = udp.to_header();
    match addresses(packet) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => header
            .calc_checksum_ipv4_raw(source.octets(), destination.octets(), udp.payload())
            .ok(),
        (IpAddr::V6(source), IpAddr::V6(destination)) => header
            .calc_checksum_ipv6_raw(source.octets(), destination.octets(), udp.payload())
            .ok(),
        _ => None,
    }
}

fn icmpv6_checksum(packet: &Packet<'_>, icmp: &etherparse::Icmpv6Slice<'_>) -> Option<bool> {
    packet.verify_transport_checksum()?;
    let (source, destination) = (packet.ipv6_source()?, packet.ipv6_destination()?);
    Some(icmp.is_checksum_valid(source.octets(), destination.octets()))
}

#[test]
fn agrees_on_built_frames() {
    let mut random = 1u64;
    for _ in 0..5_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let [a, b, c, d, e, f, g, h] = random.to_be_bytes();
        let flow = asterism_packet::Flow4 {
            source: Ipv4Addr::new(a, b, c, d),
            destination: Ipv4Addr::new(e, f, d, a),
            source_port: u16::from_be_bytes([b, e]),
            destination_port: u16::from_be_bytes([c, f]),
            protocol: [6, 17, 1][usize::from(a ^ h) % 3],
        };
        let payload: Vec<u8> = (0..usize::from(g))
            .map(|index| (index as u8).wrapping_mul(h))
            .collect();
        let mut frame = [0; 512];
        let length = asterism_packet::build::flow4(&flow, &payload, &mut frame).expect("it fits");
        assert_eq!(compare(frame[..length].to_vec()), Ok(true), "{flow}");
    }
}
