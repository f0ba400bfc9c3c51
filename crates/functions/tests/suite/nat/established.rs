//! New and known flows in both directions, and what their packets look like.

use asterism_function::{Packet, Reason, TcpFlags, Verdict};

use crate::nat::network::*;

#[test]
fn a_reply_comes_back_to_the_endpoint_that_asked() {
    for (inside, remote) in [
        (tcp([10, 0, 0, 5], 40_000), tcp([198, 51, 100, 7], 443)),
        (udp([10, 0, 0, 5], 40_000), udp([198, 51, 100, 7], 443)),
    ] {
        let mut kit = kit();
        let out = send(&mut kit, INSIDE, inside, remote, flagged(TcpFlags::SYN));
        let translated = left_by(&out, OUTSIDE);
        assert_eq!(translated.destination(), remote);
        assert!(
            kit.function()
                .config()
                .outside_addresses
                .contains(&translated.source)
        );
        assert_eq!(translated.source_port, 40_000, "the port is kept");

        let reply = flagged(TcpFlags::SYN | TcpFlags::ACK);
        let back = send(&mut kit, OUTSIDE, remote, translated.source(), reply);
        let restored = left_by(&back, INSIDE);
        assert_eq!(restored.source(), remote);
        assert_eq!(restored.destination(), inside);

        // Known now, both ways.
        for _ in 0..3 {
            let out = send(&mut kit, INSIDE, inside, remote, Wish::default());
            assert_eq!(left_by(&out, OUTSIDE), translated);
            let back = send(
                &mut kit,
                OUTSIDE,
                remote,
                translated.source(),
                Wish::default(),
            );
            assert_eq!(left_by(&back, INSIDE), restored);
        }
        assert_eq!(kit.state().sessions.len_now(), 1);
    }
}

#[test]
fn a_forwarded_packet_has_a_hop_less_and_goes_to_the_next_station() {
    let mut kit = kit();
    let (inside, remote) = (udp([10, 0, 0, 5], 40_000), udp([198, 51, 100, 7], 443));
    for _ in 0..2 {
        let mut out = send(&mut kit, INSIDE, inside, remote, Wish::default());
        let translated = left_by(&out, OUTSIDE);
        let packet = Packet::parse(&mut out.packet).unwrap();
        assert_eq!(packet.ttl(), Some(63));
        assert_eq!(packet.ethernet_source(), OUTSIDE_MAC);
        assert_eq!(packet.ethernet_destination(), OUTSIDE_ROUTER);

        let mut back = send(
            &mut kit,
            OUTSIDE,
            remote,
            translated.source(),
            Wish::default(),
        );
        let packet = Packet::parse(&mut back.packet).unwrap();
        assert_eq!(packet.ttl(), Some(63));
        assert_eq!(packet.ethernet_source(), INSIDE_MAC);
        assert_eq!(packet.ethernet_destination(), INSIDE_ROUTER);
    }
}

#[test]
fn nobody_gets_in_uninvited() {
    let mut kit = kit();
    let outside = tcp(OUTSIDE_ADDRESS.octets(), 40_000);
    let out = send(
        &mut kit,
        OUTSIDE,
        tcp([198, 51, 100, 7], 443),
        outside,
        flagged(TcpFlags::SYN),
    );
    assert_eq!(out.verdict, Verdict::Drop(Reason::NoBinding));
    assert!(kit.state().sessions.is_empty_now());
}

#[test]
fn frames_for_others_and_from_nowhere_are_dropped() {
    let mut kit = kit();
    let (inside, remote) = (udp([10, 0, 0, 5], 40_000), udp([198, 51, 100, 7], 443));
    let mut stray = frame(INSIDE, inside, remote, Wish::default());
    stray[5] ^= 1;
    assert_eq!(
        kit.packet(INSIDE, &stray).verdict,
        Verdict::Drop(Reason::NotForUs)
    );
    let spoofed = send(
        &mut kit,
        INSIDE,
        udp([198, 51, 100, 9], 1),
        remote,
        Wish::default(),
    );
    assert_eq!(spoofed.verdict, Verdict::Drop(Reason::SpoofedSource));
    let spoofed = send(
        &mut kit,
        OUTSIDE,
        inside,
        udp(OUTSIDE_ADDRESS.octets(), 40_000),
        Wish::default(),
    );
    assert_eq!(spoofed.verdict, Verdict::Drop(Reason::SpoofedSource));
    assert!(kit.state().sessions.is_empty_now());
}
