//! ICMP errors and what is embedded in them: built, read, and rewritten with every checksum kept (RFC 5508 §4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::frames::{Recipe, recipes};
use asterism_packet::{Endpoint, FlowKey, Fragment, IcmpKind, Packet, build};
use proptest::prelude::*;

const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

/// An error around the recipe's packet, of which `quoted` bytes after the IP header are kept.
fn error_frame(recipe: &Recipe, quoted: usize) -> Vec<u8> {
    let header_length = if recipe.is_ipv6 {
        40 + 8 * recipe.options
    } else {
        20 + 4 * recipe.options
    };
    let mut packet = recipe.ip();
    packet.truncate(header_length + quoted);
    let mut outer = recipe.clone();
    outer.options = 0;
    outer.ttl = 64;
    outer.ports = [0; 4];
    outer.icmp_type = if recipe.is_ipv6 { 3 } else { 11 };
    outer.transport = if recipe.is_ipv6 { 58 } else { 1 };
    let half = if recipe.is_ipv6 { 16 } else { 4 };
    outer.addresses[..2 * half].rotate_left(half);
    outer.payload = packet;
    outer.frame()
}

fn as_version(recipe: Recipe, is_ipv6: bool) -> Recipe {
    let transport = match (recipe.transport, is_ipv6) {
        (1 | 58, false) => 1,
        (1 | 58, true) => 58,
        (other, _) => other,
    };
    let is_reply = recipe.icmp_type & 0x7f == 1 || recipe.icmp_type == 0;
    let icmp_type = match (is_ipv6, is_reply) {
        (false, false) => 8,
        (false, true) => 0,
        (true, false) => 128,
        (true, true) => 129,
    };
    let without_checksum = recipe.without_checksum && !is_ipv6;
    Recipe {
        is_ipv6,
        transport,
        icmp_type,
        without_checksum,
        ..recipe
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_embedded_ipv4_packet_is_rewritten_as_if_it_were_not(
        recipe in recipes(),
        bits in any::<u64>(),
        quoted in prop::sample::select(vec![8usize, 9, 16, 18, 20, 64, 1000]),
    ) {
        let recipe = as_version(recipe, false);
        let to = Endpoint::from_bits(bits);
        for side in 0..2 {
            let mut frame = error_frame(&recipe, quoted);
            let before = frame.clone();
            let mut packet = Packet::parse(&mut frame).expect("well-formed");
            prop_assert_eq!(packet.icmp_kind(), Some(IcmpKind::Error));
            prop_assert_eq!(packet.flow4(), None);
            let embedded = packet.embedded().expect("an embedded packet");
            prop_assert!(embedded.header_checksum_valid());
            prop_assert_eq!(embedded.protocol().0, recipe.transport);
            let has_ports = matches!(recipe.transport, 1 | 6 | 17);
            prop_assert_eq!(embedded.flow4().is_some(), has_ports);

            // (Of a transport checksum cut in half, byte 17, neither half is edited: `quoted` leaves it out.)
            // The same rewrite of the embedded packet as a frame of its own is what the error must then quote.
            let mut whole = Recipe { tags: 0, padding: 0, ..recipe.clone() }.frame();
            let mut plain = Packet::parse(&mut whole).expect("well-formed");
            prop_assert_eq!(plain.flow4(), embedded.flow4());
            prop_assert_eq!(FlowKey::of(&packet), FlowKey::of(&plain));
            if side == 0 {
                packet.set_embedded_source(to);
                plain.set_source(to);
            } else {
                packet.set_embedded_destination(to);
                plain.set_destination(to);
            }
            let length = packet.payload().len();
            prop_assert_eq!(packet.payload(), &whole[14..14 + length]);
            prop_assert_eq!(packet.verify_transport_checksum(), Some(true));
            let after = packet.embedded().expect("still there");
            prop_assert!(after.header_checksum_valid());
            prop_assert_eq!(if side == 0 { after.source() } else { after.destination() }, IpAddr::V4(to.address));

            let IpAddr::V4(source) = embedded.source() else { panic!("IPv4") };
            let IpAddr::V4(destination) = embedded.destination() else { panic!("IPv4") };
            let (source_port, destination_port) = embedded.ports().unwrap_or((0, 0));
            if side == 0 {
                packet.set_embedded_source(Endpoint::new(source, source_port, embedded.protocol()));
            } else {
                packet.set_embedded_destination(Endpoint::new(destination, destination_port, embedded.protocol()));
            }
            prop_assert_eq!(packet.bytes(), &before[..]);
        }
    }

    #[test]
    fn an_embedded_ipv6_packet_is_rewritten_as_if_it_were_not(
        recipe in recipes(),
        bits in any::<u128>(),
        port in any::<u16>(),
        quoted in prop::sample::select(vec![8usize, 9, 16, 18, 20, 64, 1000]),
    ) {
        let recipe = as_version(recipe, true);
        let to = Ipv6Addr::from_bits(bits);
        for side in 0..2 {
            let mut frame = error_frame(&recipe, quoted);
            let mut packet = Packet::parse(&mut frame).expect("well-formed");
            let embedded = packet.embedded().expect("an embedded packet");
            let mut whole = Recipe { tags: 0, padding: 0, ..recipe.clone() }.frame();
            let mut plain = Packet::parse(&mut whole).expect("well-formed");
            prop_assert_eq!(plain.ports(), embedded.ports());
            prop_assert_eq!(FlowKey::of(&packet), FlowKey::of(&plain));
            if side == 0 {
                packet.set_embedded_ipv6_source(to, Some(port));
                plain.set_ipv6_source(to);
                plain.set_source_port(port);
            } else {
                packet.set_embedded_ipv6_destination(to, Some(port));
                plain.set_ipv6_destination(to);
                plain.set_destination_port(port);
            }
            let length = packet.payload().len();
            prop_assert_eq!(packet.payload(), &whole[14..14 + length]);
            prop_assert_eq!(packet.verify_transport_checksum(), Some(true));
        }
    }

    #[test]
    fn a_quotation_cut_anywhere_breaks_nothing(recipe in recipes(), bits in any::<u64>()) {
        let header_length = if recipe.is_ipv6 { 40 + 8 * recipe.options } else { 20 + 4 * recipe.options };
        for quoted in 0..24 {
            let mut frame = error_frame(&recipe, quoted);
            let mut packet = Packet::parse(&mut frame).expect("well-formed");
            let embedded = packet.embedded().expect("its IP header is whole");
            prop_assert_eq!(embedded.ports().is_some(), quoted >= 8 && recipe.transport != 132);
            packet.set_embedded_source(Endpoint::from_bits(bits));
            packet.set_embedded_destination(Endpoint::from_bits(!bits));
            prop_assert_eq!(packet.verify_transport_checksum(), Some(true));
        }
        for kept in 0..header_length {
            let mut cut = Recipe { payload: recipe.ip()[..kept].to_vec(), icmp_type: 3, ..recipe.clone() };
            cut.transport = if recipe.is_ipv6 { 58 } else { 1 };
            let mut frame = cut.frame();
            let mut packet = Packet::parse(&mut frame).expect("well-formed");
            prop_assert_eq!(packet.embedded(), None);
            let before = packet.bytes().to_vec();
            packet.set_embedded_source(Endpoint::from_bits(bits));
            prop_assert_eq!(packet.bytes(), &before[..]);
        }
    }

    #[test]
    fn built_errors_quote_the_packet_and_go_back(recipe in recipes()) {
        let mut recipe = as_version(recipe, false);
        recipe.addresses[0] = 10;
        recipe.addresses[4] = 172;
        let original = recipe.frame();
        let mut out = [0; 800];
        let length = build::icmp_time_exceeded(&original, ROUTER, &mut out).expect("it may be sent");
        let mut out = out[..length].to_vec();
        let packet = Packet::parse(&mut out).expect("well-formed");
        let mut original_bytes = original.clone();
        let sent = Packet::parse(&mut original_bytes).expect("well-formed");
        prop_assert_eq!((packet.icmp_type(), packet.icmp_code(), packet.icmp_rest()), (Some(11), Some(0), Some([0; 4])));
        prop_assert_eq!(packet.ipv4_source(), Some(ROUTER));
        prop_assert_eq!(packet.ipv4_destination(), sent.ipv4_source());
        prop_assert_eq!(packet.ethernet_source(), sent.ethernet_destination());
        prop_assert_eq!(packet.ethernet_destination(), sent.ethernet_source());
        prop_assert_eq!(packet.layout().vlan_tags(), sent.layout().vlan_tags());
        prop_assert_eq!(packet.vlan_id(), sent.vlan_id());
        prop_assert_eq!(packet.verify_transport_checksum(), Some(true));
        prop_assert!(packet.ipv4_total_length().expect("IPv4") <= 576);
        prop_assert_eq!(packet.embedded().expect("quoted").flow4(), sent.flow4());
        // Never an error about an error.
        prop_assert_eq!(build::icmp_unreachable(packet.bytes(), ROUTER, 1, &mut [0; 800]), None);
        // Nor one that does not fit.
        for room in 0..length {
            prop_assert_eq!(build::icmp_time_exceeded(&original, ROUTER, &mut vec![0; room]), None);
        }
    }
}

#[test]
fn no_error_is_built_where_rfc_1812_forbids_it() {
    let mut frame = [0; 128];
    let mut refused = |source: [u8; 4], destination: [u8; 4]| {
        let header = build::Header4::between(source.into(), destination.into());
        let length = build::udp4(&header, 1, 2, &[0; 40], &mut frame).expect("it fits");
        build::icmp_unreachable(&frame[..length], ROUTER, 3, &mut [0; 200]).is_none()
    };
    assert!(!refused([10, 0, 0, 1], [10, 0, 0, 2]));
    for source in [
        [0, 0, 0, 0],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [255, 255, 255, 255],
    ] {
        assert!(refused(source, [10, 0, 0, 2]), "from {source:?}");
    }
    for destination in [[224, 0, 0, 1], [239, 255, 255, 250], [255, 255, 255, 255]] {
        assert!(refused([10, 0, 0, 1], destination), "to {destination:?}");
    }
    // A later fragment, and a frame to an Ethernet group.
    let header = build::Header4::between(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let length = build::udp4(&header, 1, 2, &[0; 40], &mut frame).expect("it fits");
    let mut group = frame;
    group[0] |= 1;
    assert_eq!(
        build::icmp_unreachable(&group[..length], ROUTER, 3, &mut [0; 200]),
        None
    );
    frame[20..22].copy_from_slice(&[0, 5]);
    assert_eq!(
        build::icmp_unreachable(&frame[..length], ROUTER, 3, &mut [0; 200]),
        None
    );
}

#[test]
fn fragmentation_needed_says_the_mtu() {
    let mut frame = [0; 1400];
    let header = build::Header4::between(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let length = build::udp4(&header, 1, 2, &[9; 1300], &mut frame).expect("it fits");
    let mut out = [0; 700];
    let length = build::icmp_fragmentation_needed(&frame[..length], ROUTER, 1280, &mut out)
        .expect("it may be sent");
    assert_eq!(length, 14 + 576);
    let packet = Packet::parse(&mut out[..length]).expect("well-formed");
    assert_eq!((packet.icmp_type(), packet.icmp_code()), (Some(3), Some(4)));
    assert_eq!(packet.icmp_rest(), Some([0, 0, 5, 0]));
    let embedded = packet.embedded().expect("quoted");
    assert_eq!(
        (embedded.ports(), embedded.fragment()),
        (Some((1, 2)), Fragment::Whole)
    );
}
