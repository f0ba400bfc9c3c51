//! Packets that the NAT makes itself, or cuts: what the comparison with Linux taught (see `testing/oracle`).

use asterism_function::{Packet, Verdict};

use crate::nat::network::*;

const REMOTE: [u8; 4] = [198, 51, 100, 7];
const HOST: [u8; 4] = [10, 0, 0, 5];

static LONG: [u8; 1_400] = [0x5a; 1_400];

/// Every part that was sent by `port`: offset, whether more follow, data.
fn parts(
    outcome: &asterism_function::testkit::Outcome,
    port: asterism_function::PortNumber,
) -> Vec<(u16, bool, Vec<u8>)> {
    let parts = outcome.emitted.iter().map(|(sent_by, bytes)| {
        assert_eq!(*sent_by, port);
        let mut bytes = bytes.clone();
        let packet = Packet::parse(&mut bytes).expect("a whole packet");
        assert_eq!(packet.ttl(), Some(63));
        let more = packet.bytes()[20] & 0x20 != 0;
        let offset = packet.fragment_offset().unwrap();
        (offset, more, packet.bytes()[34..].to_vec())
    });
    parts.collect()
}

#[test]
fn rfc_4787_req_13_a_packet_too_long_is_cut_where_it_may_be() {
    let mut kit = kit_with(|config| (config.outside.mtu, config.inside.mtu) = (600, 700));
    let may_be_cut = Wish {
        dont_fragment: false,
        payload: &LONG,
        ..Wish::default()
    };
    let (inside, remote) = (udp(HOST, 40_000), udp(REMOTE, 443));
    let short = send(&mut kit, INSIDE, inside, remote, Wish::default());
    let outside = left_by(&short, OUTSIDE).source();
    for (port, from, to, by, room) in [
        (INSIDE, inside, remote, OUTSIDE, 576),
        (OUTSIDE, remote, outside, INSIDE, 680),
    ] {
        let out = send(&mut kit, port, from, to, may_be_cut);
        assert_eq!(out.verdict, Verdict::Consumed);
        let parts = parts(&out, by);
        assert_eq!(parts.len(), 3);
        let mut data = Vec::new();
        for (place, (offset, more, part)) in parts.into_iter().enumerate() {
            assert_eq!((usize::from(offset), more), (data.len(), place < 2));
            assert!(part.len() <= room);
            data.extend(part);
        }
        assert_eq!(data.len(), 8 + LONG.len());
        assert_eq!(data[8..], LONG);
    }
}

#[test]
fn a_fragment_too_long_is_cut_again() {
    let mut kit = kit_with(|config| config.outside.mtu = 600);
    let wish = Wish {
        dont_fragment: false,
        payload: &LONG,
        ..Wish::default()
    };
    let whole = frame(INSIDE, udp(HOST, 40_000), udp(REMOTE, 443), wish);
    // In two fragments: 1,000 bytes of data, then the rest.
    let cut_at = 1_000;
    for (offset, more, data) in [
        (0, 0x20, &whole[34..34 + cut_at]),
        (125, 0, &whole[34 + cut_at..]),
    ] {
        let mut fragment = whole[..34].to_vec();
        fragment.extend_from_slice(data);
        let length = (20 + data.len()) as u16;
        fragment[16..18].copy_from_slice(&length.to_be_bytes());
        fragment[20..22].copy_from_slice(&[more, offset]);
        fragment[24..26].copy_from_slice(&[0, 0]);
        let sum = asterism_function::checksum::of(&fragment[14..34]);
        fragment[24..26].copy_from_slice(&sum.to_be_bytes());
        let out = kit.packet(INSIDE, &fragment);
        if out.verdict == Verdict::Forward(OUTSIDE) {
            assert_eq!(offset, 125, "408 bytes of data fit");
            continue;
        }
        let parts = parts(&out, OUTSIDE);
        assert_eq!(parts.len(), 2);
        assert!(parts.iter().all(|(_, more, _)| *more));
        assert_eq!(parts[1].0, 576);
    }
}

#[test]
fn rfc_1812_4_3_2_5_errors_keep_the_service_and_are_not_numbered_alike() {
    let mut kit = kit();
    let mut seen = Vec::new();
    for service in [0_u8, 0x10, 0xff] {
        let wish = Wish {
            ttl: 1,
            ..Wish::default()
        };
        let mut bytes = frame(INSIDE, udp(HOST, 1), udp(REMOTE, 2), wish);
        bytes[15] = service;
        bytes[24..26].copy_from_slice(&[0, 0]);
        let sum = asterism_function::checksum::of(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        let out = kit.packet(INSIDE, &bytes);
        let mut error = out.emitted[0].1.clone();
        let packet = Packet::parse(&mut error).expect("right checksums");
        assert_eq!(packet.bytes()[15], 0xc0 | service & 0x1e);
        let identification = packet.ipv4_identification().unwrap();
        assert!(!seen.contains(&identification));
        seen.push(identification);
    }
}

#[test]
fn an_echo_reply_is_a_datagram_of_its_own() {
    let mut kit = kit();
    let kind = asterism_function::IcmpKind::Query;
    let question = echo(OUTSIDE, REMOTE.into(), OUTSIDE_ADDRESS, 5, kind);
    let mut seen = vec![0];
    for _ in 0..4 {
        let mut answer = kit.packet(OUTSIDE, &question).packet;
        let packet = Packet::parse(&mut answer).unwrap();
        assert_eq!(packet.ipv4_dont_fragment(), Some(false));
        let identification = packet.ipv4_identification().unwrap();
        assert!(!seen.contains(&identification));
        seen.push(identification);
    }
}

#[test]
fn an_error_about_a_hairpin_names_the_outside_address() {
    let mut kit = kit();
    let remote = udp(REMOTE, 443);
    let other = send(
        &mut kit,
        INSIDE,
        udp([10, 0, 0, 6], 50_000),
        remote,
        Wish::default(),
    );
    let outside = left_by(&other, OUTSIDE).source();
    let dying = Wish {
        ttl: 1,
        ..Wish::default()
    };
    let out = send(&mut kit, INSIDE, udp(HOST, 40_000), outside, dying);
    assert_eq!(the_error(&out).source, outside.address);
    let out = send(&mut kit, INSIDE, udp(HOST, 40_000), remote, dying);
    assert_eq!(the_error(&out).source, INSIDE_ADDRESS);
}
