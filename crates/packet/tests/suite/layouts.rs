//! What the parse makes of each kind of frame in the corpus, and of each kind of damage.

use std::fs;
use std::path::Path;

use asterism_packet::{Endpoint, FlowKey, Fragment, Layout, Malformed, Network, Packet, Transport};

fn corpus(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/corpus/{name}.bin")))
        .expect("in the corpus")
}

fn layout(name: &str) -> Layout {
    Layout::parse(&corpus(name)).expect("well-formed")
}

fn key(name: &str) -> FlowKey {
    FlowKey::of(&Packet::parse(&mut corpus(name)).expect("well-formed"))
}

#[test]
fn a_layout_is_small() {
    assert_eq!(size_of::<Layout>(), 8);
    assert_eq!(size_of::<FlowKey>(), 40);
}

#[test]
fn each_kind_of_frame_is_recognised() {
    use Network::{Arp, Ipv4, Ipv6, Other};
    let expected = [
        ("tcp4", Ipv4, Transport::Tcp, 14, 34, 0),
        ("tcp4_options", Ipv4, Transport::Tcp, 14, 38, 0),
        ("udp4_padded", Ipv4, Transport::Udp, 14, 34, 0),
        ("icmp_echo", Ipv4, Transport::Icmp, 14, 34, 0),
        ("gre", Ipv4, Transport::None, 14, 34, 0),
        ("vlan", Ipv4, Transport::Udp, 18, 38, 1),
        ("qinq", Ipv6, Transport::Tcp, 22, 62, 2),
        ("three_tags", Other, Transport::None, 22, 22, 2),
        ("tcp6", Ipv6, Transport::Tcp, 14, 54, 0),
        ("udp6_extensions", Ipv6, Transport::Udp, 14, 70, 0),
        ("udp6_routed", Ipv6, Transport::Udp, 14, 78, 0),
        ("authenticated6", Ipv6, Transport::Tcp, 14, 78, 0),
        ("icmp6_echo", Ipv6, Transport::Icmpv6, 14, 54, 0),
        ("arp_request", Arp, Transport::None, 14, 14, 0),
        ("mpls", Other, Transport::None, 14, 14, 0),
        ("pppoe", Other, Transport::None, 14, 14, 0),
        ("length_802_3", Other, Transport::None, 14, 14, 0),
    ];
    for (name, network, transport, network_at, transport_at, tags) in expected {
        let layout = layout(name);
        assert_eq!(
            (layout.network(), layout.transport()),
            (network, transport),
            "{name}"
        );
        assert_eq!(
            (layout.network_offset(), layout.transport_offset()),
            (network_at, transport_at),
            "{name}"
        );
        assert_eq!(layout.vlan_tags(), tags, "{name}");
        assert_eq!(layout.fragment(), Fragment::Whole, "{name}");
    }
    let padded = corpus("udp4_padded");
    assert_eq!(layout("udp4_padded").end(), padded.len() - 14);
    assert_eq!(
        Packet::parse(&mut padded.clone())
            .expect("well-formed")
            .payload(),
        b"data"
    );
}

#[test]
fn fragments_are_recognised_and_one_datagram_has_one_key() {
    for (first, later) in [
        ("first_fragment", "later_fragment"),
        ("first_fragment6", "later_fragment6"),
    ] {
        assert_eq!(
            (layout(first).fragment(), layout(first).transport()),
            (Fragment::First, Transport::Udp)
        );
        assert_eq!(
            (layout(later).fragment(), layout(later).transport()),
            (Fragment::Later, Transport::None)
        );
        assert_eq!(key(first), key(later));
    }
    assert_eq!(
        (
            layout("tiny_first_fragment").fragment(),
            layout("tiny_first_fragment").transport()
        ),
        (Fragment::First, Transport::None)
    );
    let mut frame = corpus("later_fragment6");
    let packet = Packet::parse(&mut frame).expect("well-formed");
    assert_eq!(
        (packet.fragment_offset(), packet.ipv6_identification()),
        (Some(16), Some(0xdead_beef))
    );
}

#[test]
fn ipv6_fragments_need_not_name_the_same_header() {
    // The first has destination options before UDP, and only the first is walked that far (RFC 8200 §4.5).
    let mut first = corpus("first_fragment6");
    first[54] = 60;
    first.splice(62..62, [17, 0, 1, 4, 0, 0, 0, 0]);
    first[19] += 8;
    let mut later = corpus("later_fragment6");
    later[54] = 60;
    let packet = Packet::parse(&mut first).expect("well-formed");
    assert_eq!(
        (packet.layout().protocol(), packet.ports()),
        (17, Some((5353, 53)))
    );
    let key = FlowKey::of(&packet);
    let packet = Packet::parse(&mut later).expect("well-formed");
    assert_eq!(
        (
            packet.layout().protocol(),
            packet.layout().transport_offset()
        ),
        (60, 62)
    );
    assert_eq!(FlowKey::of(&packet), key);
}

#[test]
fn a_host_that_talks_to_itself_has_one_key_in_both_directions() {
    for name in ["tcp6", "vlan", "tcp4"] {
        let mut frame = corpus(name);
        let mut packet = Packet::parse(&mut frame).expect("well-formed");
        if let Some(address) = packet.ipv6_source() {
            packet.set_ipv6_destination(address);
        } else {
            let flow = packet.flow4().expect("TCP or UDP");
            packet.set_destination(Endpoint {
                address: flow.source,
                ..flow.destination()
            });
        }
        let forward = FlowKey::of(&packet);
        let (source_port, destination_port) = packet.ports().expect("TCP or UDP");
        packet.set_source_port(destination_port);
        packet.set_destination_port(source_port);
        assert_eq!(FlowKey::of(&packet), forward, "{name}");
    }
}

#[test]
fn errors_and_what_they_are_about_have_one_key() {
    assert_eq!(key("icmp_exceeded"), key("tcp4"));
    assert_eq!(key("icmp_unreachable_whole"), key("udp4_padded"));
    assert_eq!(key("icmp_embedded_echo"), key("icmp_echo"));
    assert_eq!(key("vlan"), key("udp4_padded"));
    assert_eq!(key("tcp4_options"), key("tcp4"));
    assert_eq!(key("qinq"), key("tcp6"));
    let others = [
        "tcp4",
        "udp4_padded",
        "icmp_echo",
        "gre",
        "tcp6",
        "udp6_extensions",
        "first_fragment",
        "arp_request",
        "mpls",
    ];
    for (index, one) in others.iter().enumerate() {
        for other in &others[index + 1..] {
            assert_ne!(key(one), key(other), "{one}, {other}");
            assert_ne!(key(one).hash(1), key(other).hash(1), "{one}, {other}");
        }
    }
}

#[test]
fn a_source_routed_packet_keeps_the_checksum_of_its_last_destination() {
    let mut frame = corpus("udp6_routed");
    let mut packet = Packet::parse(&mut frame).expect("well-formed");
    assert_eq!(packet.verify_transport_checksum(), None);
    let before = packet.payload_range().start;
    let checksum = packet.bytes()[before - 2..before].to_vec();
    packet.set_ipv6_destination("2001:db8::9".parse().expect("an address"));
    assert_eq!(packet.bytes()[before - 2..before], checksum);
    packet.set_ipv6_source("2001:db8::9".parse().expect("an address"));
    assert_ne!(packet.bytes()[before - 2..before], checksum);
}

#[test]
fn each_damage_has_its_reason() {
    let with = |name: &str, changes: &[(usize, u8)]| {
        let mut frame = corpus(name);
        changes.iter().for_each(|(at, byte)| frame[*at] = *byte);
        Layout::parse_unverified(&frame)
    };
    assert_eq!(Layout::parse(&[]), Err(Malformed::LinkTooShort));
    assert_eq!(
        Layout::parse(&corpus("vlan")[..17]),
        Err(Malformed::LinkTooShort)
    );
    assert_eq!(
        Layout::parse(&corpus("tcp4")[..33]),
        Err(Malformed::NetworkTooShort)
    );
    assert_eq!(with("tcp4", &[(14, 0x65)]), Err(Malformed::Version));
    assert_eq!(with("tcp6", &[(14, 0x45)]), Err(Malformed::Version));
    assert_eq!(with("tcp4", &[(14, 0x44)]), Err(Malformed::HeaderLength));
    assert_eq!(with("tcp4", &[(17, 19)]), Err(Malformed::HeaderLength));
    assert_eq!(
        with("tcp4", &[(16, 0x40)]),
        Err(Malformed::LengthBeyondFrame)
    );
    assert_eq!(
        with("tcp6", &[(18, 0x40)]),
        Err(Malformed::LengthBeyondFrame)
    );
    assert_eq!(
        with("udp6_extensions", &[(55, 200)]),
        Err(Malformed::ExtensionTooShort)
    );
    assert_eq!(
        with("authenticated6", &[(55, 0)]),
        Err(Malformed::ExtensionTooShort)
    );
    assert_eq!(
        with("udp6_extensions", &[(54, 0)]),
        Err(Malformed::ExtensionOrder)
    );
    assert_eq!(
        with("first_fragment6", &[(54, 44), (57, 0)]),
        Err(Malformed::TooManyExtensions)
    );
    assert_eq!(
        with("later_fragment", &[(20, 0x1f), (21, 0xff)]),
        Err(Malformed::FragmentBeyondDatagram)
    );
    assert_eq!(with("tcp4", &[(17, 39)]), Err(Malformed::TransportTooShort));
    assert_eq!(with("tcp4", &[(46, 0x40)]), Err(Malformed::TcpDataOffset));
    assert_eq!(with("tcp4", &[(46, 0xf0)]), Err(Malformed::TcpDataOffset));
    assert_eq!(with("udp4_padded", &[(39, 7)]), Err(Malformed::UdpLength));
    assert_eq!(with("udp4_padded", &[(39, 200)]), Err(Malformed::UdpLength));
    for name in ["tcp6", "udp6_extensions", "icmp6_echo"] {
        for at in [22, 38] {
            let mapped = |bits: u8| [(at + 10, bits), (at + 11, 0xff)];
            let mut changes: Vec<(usize, u8)> = (at..at + 10).map(|at| (at, 0)).collect();
            changes.extend(mapped(0xff));
            assert_eq!(
                with(name, &changes),
                Err(Malformed::MappedAddress),
                "{name} {at}"
            );
            changes.extend(mapped(0xfe));
            assert!(with(name, &changes).is_ok(), "{name} {at}: another prefix");
        }
    }
    let mut frame = corpus("tcp4");
    for at in 14..34 {
        for bit in 0..8 {
            frame[at] ^= 1 << bit;
            assert!(
                Layout::parse(&frame).is_err(),
                "bit {bit} of byte {at} flipped unnoticed"
            );
            frame[at] ^= 1 << bit;
        }
    }
    frame[22] -= 1;
    assert_eq!(Layout::parse(&frame), Err(Malformed::HeaderChecksum));
    assert!(Layout::parse_unverified(&frame).is_ok());
}

#[test]
fn extension_headers_are_walked_up_to_a_bound() {
    let frame = |headers: usize| {
        let mut frame = corpus("tcp6")[..54].to_vec();
        frame[20] = 60;
        frame[18..20].copy_from_slice(&((8 * headers + 8) as u16).to_be_bytes());
        for header in 1..=headers {
            frame.extend([if header < headers { 60 } else { 58 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        frame.extend([128, 0, 0, 0, 0, 1, 0, 1]);
        Layout::parse(&frame).map(|layout| layout.transport())
    };
    for headers in 1..=8 {
        assert_eq!(frame(headers), Ok(Transport::Icmpv6));
    }
    assert_eq!(frame(9), Err(Malformed::TooManyExtensions));
}
