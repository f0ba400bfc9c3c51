//! What lies below the flows: ARP, on-link hosts, fragments, packets that are no flow.

use asterism_function::{
    Arp, ArpOperation, Endpoint, IcmpKind, MacAddress, Packet, Protocol, Reason, Verdict, build,
};

use crate::nat::network::*;

const REMOTE: [u8; 4] = [198, 51, 100, 7];
const NEIGHBOUR: [u8; 4] = [192, 168, 0, 77];
const NEIGHBOUR_MAC: MacAddress = MacAddress([2, 0, 0, 0, 9, 9]);

fn arp(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    arp_request(NEIGHBOUR_MAC, sender.into(), target.into())
}

fn arp_in(frame: &[u8]) -> Arp {
    Packet::parse(&mut frame.to_vec()).unwrap().arp().unwrap()
}

#[test]
fn arp_is_answered_for_all_our_addresses_and_no_other() {
    let mut kit = kit();
    for (port, address, mac) in [
        (INSIDE, INSIDE_ADDRESS, INSIDE_MAC),
        (OUTSIDE, OUTSIDE_ADDRESS, OUTSIDE_MAC),
        (OUTSIDE, [203, 0, 113, 2].into(), OUTSIDE_MAC),
    ] {
        let sender = if port == INSIDE {
            NEIGHBOUR
        } else {
            [203, 0, 113, 77]
        };
        let out = kit.packet(port, &arp(sender, address.octets()));
        assert_eq!(out.verdict, Verdict::Consumed);
        let [(left, reply)] = &out.emitted[..] else {
            panic!("one reply")
        };
        assert_eq!(*left, port);
        let reply = arp_in(reply);
        assert_eq!(reply.operation, ArpOperation::Reply);
        assert_eq!((reply.sender, reply.sender_mac), (address, mac));
        assert_eq!(
            (reply.target, reply.target_mac),
            (sender.into(), NEIGHBOUR_MAC)
        );
    }
    for (port, target) in [
        (INSIDE, OUTSIDE_ADDRESS.octets()),
        (OUTSIDE, INSIDE_ADDRESS.octets()),
        (INSIDE, [192, 168, 0, 5]),
    ] {
        let out = kit.packet(port, &arp(NEIGHBOUR, target));
        assert!(out.emitted.is_empty());
    }
    assert_eq!(
        kit.state().neighbours.len_now(),
        2,
        "who asks for us is learnt"
    );
}

#[test]
fn a_station_that_is_not_known_is_asked_for_once_a_second() {
    let mut kit = kit();
    let (inside, remote) = (udp(NEIGHBOUR, 4_000), udp(REMOTE, 443));
    let outside = left_by(
        &send(&mut kit, INSIDE, inside, remote, Wish::default()),
        OUTSIDE,
    )
    .source();
    let first = send(&mut kit, OUTSIDE, remote, outside, Wish::default());
    assert_eq!(first.verdict, Verdict::Drop(Reason::NoRoute));
    let [(port, request)] = &first.emitted[..] else {
        panic!("one request")
    };
    assert_eq!((*port, arp_in(request).target), (INSIDE, NEIGHBOUR.into()));
    let second = send(&mut kit, OUTSIDE, remote, outside, Wish::default());
    assert!(second.emitted.is_empty());
    kit.advance(1);
    let third = send(&mut kit, OUTSIDE, remote, outside, Wish::default());
    assert_eq!(third.emitted.len(), 1);

    let mut reply = vec![0; 60];
    let length = build::arp_reply(&arp_in(&third.emitted[0].1), NEIGHBOUR_MAC, &mut reply).unwrap();
    assert_eq!(
        kit.packet(INSIDE, &reply[..length]).verdict,
        Verdict::Consumed
    );
    for _ in 0..3 {
        let mut back = send(&mut kit, OUTSIDE, remote, outside, Wish::default());
        assert_eq!(left_by(&back, INSIDE).destination(), inside);
        let packet = Packet::parse(&mut back.packet).unwrap();
        assert_eq!(packet.ethernet_destination(), NEIGHBOUR_MAC);
        assert!(back.emitted.is_empty());
    }
    // In use for longer than it is trusted: asked again, without a gap.
    kit.advance(150);
    send(&mut kit, INSIDE, inside, remote, Wish::default());
    kit.advance(151);
    let ageing = send(&mut kit, OUTSIDE, remote, outside, Wish::default());
    left_by(&ageing, INSIDE);
    assert_eq!(ageing.emitted.len(), 1);
    let again = send(&mut kit, OUTSIDE, remote, outside, Wish::default());
    left_by(&again, INSIDE);
    assert!(again.emitted.is_empty());
}

#[test]
fn unasked_arp_teaches_nothing() {
    let mut kit = kit();
    let request = arp_in(&arp([192, 168, 0, 50], [192, 168, 0, 51]));
    let mut unasked = vec![0; 60];
    let length = build::arp_reply(&request, NEIGHBOUR_MAC, &mut unasked).unwrap();
    kit.packet(INSIDE, &unasked[..length]);
    // Not on the link, our own address, a configured router.
    for sender in [
        [198, 51, 100, 7],
        INSIDE_ADDRESS.octets(),
        [192, 168, 0, 2],
        [0; 4],
    ] {
        kit.packet(INSIDE, &arp(sender, INSIDE_ADDRESS.octets()));
    }
    assert!(kit.state().neighbours.is_empty_now());
}

/// The fragments of a UDP datagram, the transport checksum over all of it in the first.
pub(crate) fn fragments(
    port: asterism_function::PortNumber,
    from: Endpoint,
    to: Endpoint,
    identification: u16,
) -> Vec<Vec<u8>> {
    let wish = Wish {
        identification,
        dont_fragment: false,
        payload: &[7; 100],
        ..Wish::default()
    };
    let whole = frame(port, from, to, wish);
    let (headers, data) = whole.split_at(34);
    [(0, 64), (64, 108)]
        .iter()
        .map(|&(start, end)| {
            let mut part = headers.to_vec();
            part.extend(&data[start..end]);
            let more = if end < 108 { 0x2000 } else { 0 };
            part[16..18].copy_from_slice(&(20 + (end - start) as u16).to_be_bytes());
            part[20..22].copy_from_slice(&(more | (start as u16 / 8)).to_be_bytes());
            part[24..26].copy_from_slice(&[0, 0]);
            let checksum = asterism_function::checksum::of(&part[14..34]);
            part[24..26].copy_from_slice(&checksum.to_be_bytes());
            part
        })
        .collect()
}

/// Puts two translated fragments together again and tells their flow, if the checksum over both is right.
fn reassembled(first: &[u8], later: &[u8]) -> asterism_function::Flow4 {
    let mut whole = first.to_vec();
    whole.extend(&later[34..]);
    let length = (whole.len() - 14) as u16;
    whole[16..18].copy_from_slice(&length.to_be_bytes());
    whole[20..22].copy_from_slice(&[0, 0]);
    whole[24..26].copy_from_slice(&[0, 0]);
    let checksum = asterism_function::checksum::of(&whole[14..34]);
    whole[24..26].copy_from_slice(&checksum.to_be_bytes());
    let packet = Packet::parse(&mut whole).unwrap();
    assert_eq!(packet.verify_transport_checksum(), Some(true));
    packet.flow4().unwrap()
}

#[test]
fn fragments_are_translated_alike_in_both_directions() {
    let mut kit = kit();
    let (inside, remote) = (udp([10, 0, 0, 5], 40_000), udp(REMOTE, 443));
    let parts: Vec<_> = fragments(INSIDE, inside, remote, 9)
        .iter()
        .map(|part| kit.packet(INSIDE, part))
        .collect();
    assert!(
        parts
            .iter()
            .all(|part| part.verdict == Verdict::Forward(OUTSIDE))
    );
    let there = reassembled(&parts[0].packet, &parts[1].packet);
    assert_eq!(there.destination(), remote);
    let parts: Vec<_> = fragments(OUTSIDE, remote, there.source(), 9)
        .iter()
        .map(|part| kit.packet(OUTSIDE, part))
        .collect();
    assert!(
        parts
            .iter()
            .all(|part| part.verdict == Verdict::Forward(INSIDE))
    );
    let back = reassembled(&parts[0].packet, &parts[1].packet);
    assert_eq!((back.source(), back.destination()), (remote, inside));
    // Later parts first, or alone, or too late: nothing is guessed.
    let parts = fragments(INSIDE, inside, remote, 10);
    assert_eq!(
        kit.packet(INSIDE, &parts[1]).verdict,
        Verdict::Drop(Reason::FragmentUnmatched)
    );
    kit.packet(INSIDE, &parts[0]);
    kit.advance(40);
    assert_eq!(
        kit.packet(INSIDE, &parts[1]).verdict,
        Verdict::Drop(Reason::FragmentUnmatched)
    );
}

#[test]
fn other_protocols_are_counted() {
    let mut kit = kit();
    let mut gre = frame(
        INSIDE,
        udp([10, 0, 0, 5], 1),
        udp(REMOTE, 2),
        Wish::default(),
    );
    gre[23] = Protocol(47).0;
    gre[24..26].copy_from_slice(&[0, 0]);
    let checksum = asterism_function::checksum::of(&gre[14..34]);
    gre[24..26].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(
        kit.packet(INSIDE, &gre).verdict,
        Verdict::Drop(Reason::UnsupportedProtocol)
    );
    let mut other = frame(
        INSIDE,
        udp([10, 0, 0, 5], 1),
        udp(REMOTE, 2),
        Wish::default(),
    );
    other[12..14].copy_from_slice(&[0x88, 0xcc]);
    assert_eq!(
        kit.packet(INSIDE, &other).verdict,
        Verdict::Drop(Reason::UnsupportedProtocol)
    );
}

#[test]
fn inside_links_are_routed_without_translation() {
    let mut kit = kit();
    let (one, two) = (udp([192, 168, 0, 50], 1), udp([10, 0, 0, 5], 2));
    let out = send(&mut kit, INSIDE, one, two, Wish::default());
    let flow = left_by(&out, INSIDE);
    assert_eq!((flow.source(), flow.destination()), (one, two));
    assert!(kit.state().sessions.is_empty_now());

    // What answers a host whose packets came straight, and what says that they did not arrive. That the port is also
    // seen outside changes nothing.
    let remote = udp(REMOTE, 443);
    left_by(
        &send(&mut kit, INSIDE, one, remote, Wish::default()),
        OUTSIDE,
    );
    let came = frame(INSIDE, two, one, Wish::default());
    let unreachable = |from| icmp(INSIDE, from, two.address, 3, 3, [0; 4], &came[14..]);
    let reply = |from| echo(INSIDE, from, two.address, 77, IcmpKind::Reply);
    let before = digests(&kit);
    for packet in [
        echo(INSIDE, one.address, two.address, 77, IcmpKind::Query),
        reply(one.address),
        unreachable(one.address),
        unreachable([192, 168, 0, 60].into()),
    ] {
        let mut out = kit.packet(INSIDE, &packet);
        assert_eq!(out.verdict, Verdict::Forward(INSIDE));
        let routed = Packet::parse(&mut out.packet).unwrap();
        assert_eq!(routed.ttl(), Some(63));
        assert_eq!(routed.verify_ipv4_checksum(), Some(true));
        assert_eq!(routed.ethernet_destination(), INSIDE_ROUTER);
        // Nothing else is edited: addresses, and what is behind the header.
        assert_eq!(out.packet[26..], packet[26..]);
    }
    assert_eq!(digests(&kit), before);
    for packet in [reply(REMOTE.into()), unreachable(REMOTE.into())] {
        let out = kit.packet(INSIDE, &packet);
        assert_eq!(out.verdict, Verdict::Drop(Reason::SpoofedSource));
    }
    // About a packet of the NAT's own, to that port: it must not leave.
    let own = udp(INSIDE_ADDRESS.octets(), 5_351);
    let came = frame(INSIDE, own, one, Wish::default());
    let error = icmp(
        INSIDE,
        one.address,
        INSIDE_ADDRESS,
        3,
        3,
        [0; 4],
        &came[14..],
    );
    let out = kit.packet(INSIDE, &error);
    assert_eq!(out.verdict, Verdict::Drop(Reason::IcmpUnmatched));
}
