//! Edits repair checksums to what a full recomputation gives, and an edit and its opposite give the packet back.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::frames::{Recipe, recipes};
use asterism_packet::{
    Endpoint, FlowKey, Fragment, Layout, MacAddress, Malformed, Network, Packet, Protocol,
    Transport, checksum,
};
use proptest::prelude::*;

/// What the recipe becomes when its fields are changed and its checksums are computed again.
fn rewritten(
    recipe: &Recipe,
    address_at: usize,
    address: &[u8],
    ports: [Option<u16>; 2],
) -> Vec<u8> {
    let mut recipe = recipe.clone();
    let frame = recipe.frame();
    recipe.addresses[address_at..address_at + address.len()].copy_from_slice(address);
    // The recipe takes the identification of IPv4 from the ports; an edit does not touch it.
    let identification_at = 14 + 4 * recipe.tags + 4;
    for (index, port) in ports.into_iter().enumerate() {
        if let Some(port) = port {
            recipe.ports[2 * index..2 * index + 2].copy_from_slice(&port.to_be_bytes());
        }
    }
    let mut after = recipe.frame();
    if !recipe.is_ipv6 {
        let header = identification_at - 4..identification_at + 16 + 4 * recipe.options;
        after[identification_at..identification_at + 2]
            .copy_from_slice(&frame[identification_at..identification_at + 2]);
        after[identification_at + 6..identification_at + 8].fill(0);
        let sum = crate::frames::checksum(&after[header]);
        after[identification_at + 6..identification_at + 8].copy_from_slice(&sum.to_be_bytes());
    }
    after
}

/// The ports that setting a source (0) or destination (1) port changes.
fn changed_ports(recipe: &Recipe, side: usize, port: u16) -> [Option<u16>; 2] {
    match recipe.transport {
        1 | 58 => [Some(port), None],
        6 | 17 if side == 0 => [Some(port), None],
        6 | 17 => [None, Some(port)],
        _ => [None, None],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_ipv4_rewrite_is_a_full_recomputation(recipe in recipes(), bits in any::<u64>()) {
        let recipe = Recipe { is_ipv6: false, transport: if recipe.transport == 58 { 1 } else { recipe.transport }, icmp_type: recipe.icmp_type & 8, ..recipe };
        let to = Endpoint::from_bits(bits);
        for side in 0..2 {
            let mut frame = recipe.frame();
            let before = frame.clone();
            let mut packet = Packet::parse(&mut frame).expect("well-formed");
            let flow = packet.flow4();
            let ports = changed_ports(&recipe, side, to.port);
            if side == 0 { packet.set_source(to) } else { packet.set_destination(to) }
            let expected = rewritten(&recipe, 4 * side, &to.address.octets(), ports);
            prop_assert_eq!(packet.bytes(), &expected[..]);
            prop_assert_eq!(packet.verify_ipv4_checksum(), Some(true));
            prop_assert!(packet.verify_transport_checksum() != Some(false));
            prop_assert_eq!(Layout::parse(packet.bytes()), Ok(*packet.layout()));
            if let Some(flow) = flow {
                if side == 0 { packet.set_source(flow.source()) } else { packet.set_destination(flow.destination()) }
                prop_assert_eq!(packet.bytes(), &before[..]);
            }
        }
    }

    #[test]
    fn an_ipv6_rewrite_is_a_full_recomputation(recipe in recipes(), bits in any::<u128>(), port in any::<u16>()) {
        let recipe = Recipe {
            is_ipv6: true,
            without_checksum: false,
            transport: if recipe.transport == 1 { 58 } else { recipe.transport },
            icmp_type: 128 | recipe.icmp_type & 1,
            ..recipe
        };
        let to = Ipv6Addr::from_bits(bits);
        for side in 0..2 {
            let mut frame = recipe.frame();
            let before = frame.clone();
            let mut packet = Packet::parse(&mut frame).expect("well-formed");
            let address = if side == 0 { packet.ipv6_source() } else { packet.ipv6_destination() }.expect("IPv6");
            let ports = packet.ports();
            let mut set = |to: Ipv6Addr, port: u16| if side == 0 {
                packet.set_ipv6_source(to);
                packet.set_source_port(port);
            } else {
                packet.set_ipv6_destination(to);
                packet.set_destination_port(port);
            };
            set(to, port);
            prop_assert_eq!(&frame[..], &rewritten(&recipe, 16 * side, &to.octets(), changed_ports(&recipe, side, port))[..]);
            let mut packet = Packet::parse(&mut frame).expect("well-formed");
            prop_assert!(packet.verify_transport_checksum() != Some(false));
            let ports = ports.unwrap_or((0, 0));
            let mut set = |to: Ipv6Addr, port: u16| if side == 0 {
                packet.set_ipv6_source(to);
                packet.set_source_port(port);
            } else {
                packet.set_ipv6_destination(to);
                packet.set_destination_port(port);
            };
            set(address, if side == 0 { ports.0 } else { ports.1 });
            prop_assert_eq!(&frame[..], &before[..]);
        }
    }

    #[test]
    fn the_time_to_live_loses_one(recipe in recipes()) {
        let mut frame = recipe.frame();
        let before = frame.clone();
        let mut packet = Packet::parse(&mut frame).expect("well-formed");
        let left = packet.decrement_ttl();
        if recipe.ttl <= 1 {
            prop_assert_eq!(left, None);
            prop_assert_eq!(packet.bytes(), &before[..]);
        } else {
            prop_assert_eq!(left, Some(recipe.ttl - 1));
            prop_assert_eq!(packet.bytes(), &Recipe { ttl: recipe.ttl - 1, ..recipe }.frame()[..]);
        }
    }

    #[test]
    fn link_edits_touch_the_link_alone(recipe in recipes(), id in any::<u16>()) {
        let mut frame = recipe.frame();
        let before = frame.clone();
        let mut packet = Packet::parse(&mut frame).expect("well-formed");
        let (source, destination, vlan) = (packet.ethernet_source(), packet.ethernet_destination(), packet.vlan_id());
        prop_assert_eq!(vlan, (recipe.tags > 0).then_some(10));
        prop_assert_eq!(packet.inner_vlan_id(), (recipe.tags > 1).then_some(11));
        packet.set_ethernet(MacAddress([1; 6]), MacAddress([3; 6]));
        packet.set_vlan_id(id);
        prop_assert_eq!((packet.ethernet_source(), packet.ethernet_destination()), (MacAddress([1; 6]), MacAddress([3; 6])));
        prop_assert_eq!(packet.vlan_id(), vlan.map(|_| id & 0x0fff));
        packet.set_ethernet(source, destination);
        packet.set_vlan_id(vlan.unwrap_or(0));
        prop_assert_eq!(packet.bytes(), &before[..]);
    }

    #[test]
    fn both_directions_have_one_key(recipe in recipes(), seed in any::<u64>()) {
        let forward = FlowKey::of(&Packet::parse(&mut recipe.frame()).expect("well-formed"));
        let mut back = recipe.clone();
        let half = if recipe.is_ipv6 { 16 } else { 4 };
        back.addresses[..2 * half].rotate_left(half);
        if matches!(recipe.transport, 6 | 17) {
            back.ports.rotate_left(2);
        }
        // Neither tags nor options nor padding belong to a flow.
        let back = Recipe { tags: (recipe.tags + 1) % 3, options: (recipe.options + 1) % 4, padding: 0, ..back };
        let backward = FlowKey::of(&Packet::parse(&mut back.frame()).expect("well-formed"));
        prop_assert_eq!(forward, backward);
        prop_assert_eq!(forward.hash(seed), backward.hash(seed));
        prop_assert_eq!(forward.digest(), backward.digest());
        let mut frame = recipe.frame();
        if Packet::parse_plain(&mut frame).is_some() {
            prop_assert_eq!(FlowKey::digest_of_plain(&frame), Some(forward.digest()));
        }
        let other = Recipe { ports: [recipe.ports[0], recipe.ports[1] ^ 1, recipe.ports[2], recipe.ports[3]], ..recipe.clone() };
        let other = FlowKey::of(&Packet::parse(&mut other.frame()).expect("well-formed"));
        prop_assert_eq!(other == forward, recipe.transport == 132);
    }

    #[test]
    fn truncation_is_always_noticed(recipe in recipes()) {
        let frame = recipe.frame();
        let end = frame.len() - recipe.padding;
        for length in 0..end {
            let reason = Layout::parse(&frame[..length]).expect_err("cut");
            prop_assert!(matches!(reason, Malformed::LinkTooShort | Malformed::NetworkTooShort | Malformed::LengthBeyondFrame));
        }
        prop_assert_eq!(Layout::parse(&frame[..end]).map(|layout| layout.end()), Ok(end));
    }

    #[test]
    fn arbitrary_bytes_break_nothing(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        asterism_packet::fuzz::fuzz_packet(&bytes);
    }

    #[test]
    fn arbitrary_ip_bytes_break_nothing(mut bytes in prop::collection::vec(any::<u8>(), 14..300), is_ipv6 in any::<bool>()) {
        bytes[12..14].copy_from_slice(if is_ipv6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
        asterism_packet::fuzz::fuzz_packet(&bytes);
        let length = bytes.len();
        if length >= 34 && !is_ipv6 {
            bytes[14] = 0x45;
            bytes[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
            bytes[20..22].fill(0);
            bytes[24..26].fill(0);
            let sum = crate::frames::checksum(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            asterism_packet::fuzz::fuzz_packet(&bytes);
        }
    }

    #[test]
    fn the_sum_of_any_bytes_is_that_of_rfc_1071(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert_eq!(checksum::of(&bytes), crate::frames::checksum(&bytes));
    }
}

/// Cuts an IPv4 packet into fragments of `size` bytes of payload, a multiple of eight.
fn fragments(recipe: &Recipe, size: usize) -> Vec<Vec<u8>> {
    let frame = recipe.frame();
    let header_end = 14 + 4 * recipe.tags + 20 + 4 * recipe.options;
    let payload = &frame[header_end..frame.len() - recipe.padding];
    let count = payload.len().div_ceil(size);
    let mut parts = Vec::new();
    for (index, part) in payload.chunks(size).enumerate() {
        let mut header = frame[..header_end].to_vec();
        let ip = &mut header[14 + 4 * recipe.tags..];
        let total_length = (ip.len() + part.len()) as u16;
        let flags = (u16::from(index + 1 < count) << 13) | (index * size / 8) as u16;
        ip[2..4].copy_from_slice(&total_length.to_be_bytes());
        ip[6..8].copy_from_slice(&flags.to_be_bytes());
        ip[10..12].fill(0);
        let sum = crate::frames::checksum(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        parts.push([header, part.to_vec()].concat());
    }
    parts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rewritten_fragments_reassemble_to_the_rewritten_datagram(recipe in recipes(), bits in any::<u64>()) {
        let transport = if recipe.transport == 58 { 1 } else { recipe.transport };
        let mut recipe = Recipe { is_ipv6: false, transport, icmp_type: recipe.icmp_type & 8, ..recipe };
        recipe.payload.resize(120, 7);
        let to = Endpoint::from_bits(bits);
        let mut whole = recipe.frame();
        let mut packet = Packet::parse(&mut whole).expect("well-formed");
        packet.set_source(to);
        packet.set_destination(to);
        let header_end = packet.layout().transport_offset();
        let expected = packet.bytes()[header_end..packet.layout().end()].to_vec();

        let mut reassembled: Vec<u8> = Vec::new();
        let mut keys = Vec::new();
        for (index, mut part) in fragments(&recipe, 48).into_iter().enumerate() {
            let mut packet = Packet::parse(&mut part).expect("well-formed");
            prop_assert_eq!(packet.layout().fragment(), if index == 0 { Fragment::First } else { Fragment::Later });
            prop_assert_eq!(packet.fragment_offset(), Some(48 * index as u16));
            prop_assert_eq!(packet.flow4().is_some(), index == 0 && transport != 132);
            keys.push(FlowKey::of(&packet));
            packet.set_source(to);
            packet.set_destination(to);
            prop_assert_eq!(packet.verify_ipv4_checksum(), Some(true));
            prop_assert_eq!(packet.ipv4_source(), Some(to.address));
            reassembled.extend(&packet.bytes()[header_end..]);
        }
        prop_assert_eq!(reassembled, expected);
        prop_assert!(keys.windows(2).all(|pair| pair[0] == pair[1]) && keys.len() > 2);
    }
}

#[test]
fn a_wrong_layout_is_safe_and_a_longer_one_is_refused() {
    let mut short = [0u8; 60];
    let mut long = vec![0; 1514];
    asterism_packet::build::udp4(
        &asterism_packet::build::Header4::between(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST),
        1,
        2,
        &[0; 1000],
        &mut long,
    )
    .expect("it fits");
    let layout = Layout::parse(&long).expect("well-formed");
    let packet = Packet::with_layout(&mut short, layout);
    assert_eq!(packet.layout().network(), Network::Other);
    let packet = Packet::with_layout(&mut long, layout);
    assert_eq!(
        (packet.layout(), packet.layout().transport()),
        (&layout, Transport::Udp)
    );
    assert_eq!(
        packet.flow4().expect("UDP").destination(),
        Endpoint::new(Ipv4Addr::LOCALHOST, 2, Protocol::UDP)
    );
}
