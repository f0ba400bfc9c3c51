//! Packets in each mode: what is changed, what is not, what is cut and what is refused.

use asterism_function::{Endpoint, Packet, Protocol, Reason, Verdict, build};
use asterism_functions::balancer::{Mode, Service};

use crate::balancer::network::*;

#[test]
fn a_translated_connection_both_ways() {
    let mut kit = kit(vec![service(3)]);
    let got = opened(&mut kit, client(1), asked());
    let server = endpoint_of(got);
    let mut last = None;
    for (port, flags) in [(BACKENDS, SYN_ACK), (CLIENTS, ACK), (BACKENDS, ACK)] {
        let (from, to) = if port == CLIENTS {
            (client(1), asked())
        } else {
            (server, client(1))
        };
        let outcome = send(&mut kit, port, from, to, flags);
        if port == CLIENTS {
            let flow = left_by(&outcome, BACKENDS);
            assert_eq!((flow.source(), flow.destination()), (client(1), server));
            assert_eq!(outcome.packet[..6], station(got).0);
        } else {
            let flow = left_by(&outcome, CLIENTS);
            assert_eq!((flow.source(), flow.destination()), (asked(), client(1)));
            assert_eq!(outcome.packet[..6], ROUTER.0);
        }
        assert_eq!(outcome.packet[22], 63, "one hop");
        last = Some(outcome);
    }
    assert!(last.is_some());
    kit.state()
        .flows
        .for_each(|_, connection| assert!(connection.is_established()));
}

#[test]
fn a_range_of_ports_keeps_the_port_that_was_asked_for() {
    let mut ranged = service(2);
    ranged.ports = (1_000, 2_000);
    ranged.protocol = Protocol::UDP;
    ranged.backends.iter_mut().for_each(|one| one.port = 0);
    let mut kit = kit(vec![ranged]);
    for port in [1_000, 1_500, 2_000] {
        let to = Endpoint::new(SERVICE, port, Protocol::UDP);
        let outcome = send(&mut kit, CLIENTS, udp(client(1)), to, ACK);
        assert_eq!(left_by(&outcome, BACKENDS).destination_port, port);
    }
    for port in [999, 2_001, 80] {
        let to = Endpoint::new(SERVICE, port, Protocol::UDP);
        let outcome = send(&mut kit, CLIENTS, udp(client(1)), to, ACK);
        assert_eq!(outcome.verdict, Verdict::Drop(Reason::NotForUs));
    }
}

#[test]
fn udp_moves_when_its_backend_dies() {
    let mut checked = service(3);
    checked.protocol = Protocol::UDP;
    checked.checked = true;
    let mut kit = kit(vec![checked]);
    let to = udp(asked());
    let outcome = send(&mut kit, CLIENTS, udp(client(1)), to, ACK);
    let first = left_by(&outcome, BACKENDS).destination();
    tell(&mut kit, 0, first, true);
    let outcome = send(&mut kit, CLIENTS, udp(client(1)), to, ACK);
    assert_ne!(left_by(&outcome, BACKENDS).destination(), first);
    assert_eq!(kit.state().flows.len_now(), 1);
}

#[test]
fn direct_return_changes_the_frames_addresses_alone() {
    let mut kit = kit(vec![with_mode(Mode::Direct)]);
    let before = frame(CLIENTS, client(1), asked(), SYN);
    let outcome = kit.packet(CLIENTS, &before);
    assert_eq!(outcome.verdict, Verdict::Forward(BACKENDS));
    assert_eq!(
        outcome.packet[12..],
        before[12..],
        "not even the time to live"
    );
    assert_eq!(outcome.packet[6..12], BACKENDS_MAC.0);
    let station_of_first = outcome.packet[..6].to_vec();
    for flags in [ACK, ACK, FIN_ACK] {
        let outcome = send(&mut kit, CLIENTS, client(1), asked(), flags);
        assert_eq!(outcome.packet[..6], station_of_first);
    }
    kit.state()
        .flows
        .for_each(|_, connection| assert!(connection.ended()));
}

/// The inner packet of a tunnel's, and its outer addresses; the outer header is right.
fn inner(frame: &[u8]) -> (Vec<u8>, [u8; 8]) {
    let mut whole = frame.to_vec();
    let packet = Packet::parse(&mut whole).unwrap();
    assert_eq!(packet.verify_ipv4_checksum(), Some(true));
    assert_eq!((frame[14], frame[23]), (0x45, 4), "IP in IP");
    assert_eq!(
        frame[20] & 0x40,
        frame[40] & 0x40,
        "do not fragment is copied"
    );
    assert_eq!(frame[15], frame[35], "so is the type of service");
    let mut inner = frame[..14].to_vec();
    inner.extend(&frame[34..]);
    (inner, frame[26..34].try_into().unwrap())
}

#[test]
fn a_tunnel_carries_the_packet_as_it_is() {
    let mut kit = kit(vec![with_mode(Mode::Tunnel)]);
    let outcome = send(&mut kit, CLIENTS, client(1), asked(), SYN);
    assert_eq!(outcome.verdict, Verdict::Consumed);
    let [(BACKENDS, sent)] = &outcome.emitted[..] else {
        panic!("{:?}", outcome.emitted)
    };
    let (inside, outer) = inner(sent);
    let flow = ends_of(&inside);
    assert_eq!((flow.source(), flow.destination()), (client(1), asked()));
    assert_eq!(inside[22], 63, "one hop");
    assert_eq!(outer[..4], OWN_INSIDE.octets());
    assert_eq!(outer[4..7], [10, 0, 0]);
    assert_eq!(sent[..6], station(outer[7] - 10).0);
}

fn long(size: usize, dont_fragment: bool) -> Vec<u8> {
    let header = build::Header4 {
        dont_fragment,
        identification: 7,
        ..header(CLIENTS, client(1).address, SERVICE)
    };
    frame_of(
        &header,
        (udp(client(1)), udp(asked())),
        ACK,
        &vec![5; size - 28],
    )
}

#[test]
fn what_is_too_long_for_a_tunnel_is_refused_or_cut() {
    let mut tunnel = with_mode(Mode::Tunnel);
    tunnel.protocol = Protocol::UDP;
    let mut kit = kit(vec![tunnel]);
    assert_eq!(kit.packet(CLIENTS, &long(1_480, true)).emitted.len(), 1);

    let refused = kit.packet(CLIENTS, &long(1_481, true));
    assert_eq!(refused.verdict, Verdict::Drop(Reason::PacketTooBig));
    let [(CLIENTS, error)] = &refused.emitted[..] else {
        panic!("{:?}", refused.emitted)
    };
    // Fragmentation needed, with what is left of 1,500 bytes (RFC 1191, RFC 2003 section 5.1).
    assert_eq!(
        (error[34..36].to_vec(), &error[40..42]),
        (vec![3, 4], &1_480u16.to_be_bytes()[..])
    );

    let cut = kit.packet(CLIENTS, &long(1_500, false));
    assert_eq!(cut.verdict, Verdict::Consumed);
    assert_eq!(cut.emitted.len(), 2);
    let mut data: Vec<u8> = Vec::new();
    for (_, part) in &cut.emitted {
        assert!(part.len() <= 1_514);
        let (inside, _) = inner(part);
        let mut copy = inside.clone();
        let packet = Packet::parse(&mut copy).unwrap();
        assert_eq!(packet.verify_ipv4_checksum(), Some(true));
        data.extend(&inside[34..]);
    }
    assert_eq!(data, long(1_500, false)[34..], "nothing lost");
}

#[test]
fn too_long_for_the_backends_link() {
    let mut config = config(vec![service(2)]);
    config.backends.mtu = 1_000;
    config.services[0].protocol = Protocol::UDP;
    let mut kit = Kit::new(balancer(config));
    let refused = kit.packet(CLIENTS, &long(1_400, true));
    assert_eq!(refused.verdict, Verdict::Drop(Reason::PacketTooBig));
    assert_eq!(&refused.emitted[0].1[40..42], &1_000u16.to_be_bytes());
    let cut = kit.packet(CLIENTS, &long(1_400, false));
    assert_eq!(cut.emitted.len(), 2);
}

/// A datagram in two parts.
fn parts() -> [Vec<u8>; 2] {
    let mut whole = long(1_428, false);
    let packet = Packet::parse(&mut whole).unwrap();
    let cut = asterism_function::Cut::of(&packet, 820).unwrap();
    [0, 1].map(|part| {
        let mut out = vec![0; 2_000];
        let length = cut.write(packet.bytes(), part, &mut out).unwrap();
        out.truncate(length);
        out
    })
}

#[test]
fn later_fragments_follow_the_first() {
    for mode in [Mode::Nat, Mode::Direct, Mode::Tunnel] {
        let udp_service = Service {
            protocol: Protocol::UDP,
            ..with_mode(mode)
        };
        let mut kit = kit(vec![udp_service]);
        let [first, later] = parts();
        let lost = kit.packet(CLIENTS, &later);
        assert_eq!(lost.verdict, Verdict::Drop(Reason::FragmentUnmatched));
        let (one, two) = (kit.packet(CLIENTS, &first), kit.packet(CLIENTS, &later));
        let [one, two] = [one, two].map(|outcome| match mode {
            Mode::Tunnel => inner(&outcome.emitted[0].1).0,
            _ => {
                assert_eq!(outcome.verdict, Verdict::Forward(BACKENDS));
                outcome.packet
            }
        });
        assert_eq!(one[..6], two[..6], "the same station");
        assert_eq!(one[26..34], two[26..34], "the same addresses");
    }
}

#[test]
fn errors_find_the_other_end() {
    for mode in [Mode::Nat, Mode::Direct] {
        let service = match mode {
            Mode::Nat => service(3),
            _ => with_mode(mode),
        };
        let mut kit = kit(vec![service]);
        let request = send(&mut kit, CLIENTS, client(1), asked(), SYN);
        let station = request.packet[..6].to_vec();
        // A router says of the server's answer that it is too long.
        let answer = frame_of(
            &build::Header4::between(SERVICE, client(1).address),
            (asked(), client(1)),
            ACK,
            b"long",
        );
        let router = Endpoint::new([198, 18, 0, 1].into(), 0, Protocol::ICMP);
        let mut error = vec![0; 600];
        let length =
            build::icmp_fragmentation_needed(&answer, router.address, 1_400, &mut error).unwrap();
        error.truncate(length);
        error[..6].copy_from_slice(&CLIENTS_MAC.0);
        let outcome = kit.packet(CLIENTS, &error);
        assert_eq!(outcome.verdict, Verdict::Forward(BACKENDS), "{mode}");
        assert_eq!(outcome.packet[..6], station);
        let mut bytes = outcome.packet.clone();
        let packet = Packet::parse(&mut bytes).unwrap();
        assert_eq!(packet.verify_transport_checksum(), Some(true));
        let about = packet.embedded().unwrap().flow4().unwrap();
        assert_eq!(about.destination(), client(1));
        if mode == Mode::Nat {
            assert_eq!(
                Some(about.source.into()),
                packet.ipv4_destination().map(std::net::IpAddr::from)
            );
            assert_eq!(about.source_port, 8_080);
        } else {
            assert_eq!(about.source(), asked());
        }
    }
    // A backend says that nobody listens.
    let mut kit = kit(vec![service(3)]);
    let request = send(&mut kit, CLIENTS, client(1), asked(), SYN);
    let server = left_by(&request, BACKENDS).destination();
    let mut error = vec![0; 600];
    let length = build::icmp_unreachable(&request.packet, server.address, 3, &mut error).unwrap();
    error.truncate(length);
    error[..6].copy_from_slice(&BACKENDS_MAC.0);
    let outcome = kit.packet(BACKENDS, &error);
    assert_eq!(outcome.verdict, Verdict::Forward(CLIENTS));
    let mut bytes = outcome.packet.clone();
    let packet = Packet::parse(&mut bytes).unwrap();
    assert_eq!(packet.ipv4_source(), Some(SERVICE));
    assert_eq!(
        packet.embedded().unwrap().flow4().unwrap().destination(),
        asked()
    );
}

#[test]
fn it_answers_for_its_services_and_itself() {
    let mut kit = kit(vec![service(1)]);
    let mut request = vec![0; 60];
    let asker = [203, 0, 113, 77].into();
    for (address, port, answers) in [
        (SERVICE, CLIENTS, 1),
        (OWN, CLIENTS, 1),
        (OWN_INSIDE, BACKENDS, 1),
        (SERVICE, BACKENDS, 0),
        ([203, 0, 113, 99].into(), CLIENTS, 0),
    ] {
        build::arp_request(ROUTER, asker, address, &mut request).unwrap();
        let outcome = kit.packet(port, &request);
        assert_eq!(outcome.verdict, Verdict::Consumed);
        assert_eq!(outcome.emitted.len(), answers, "{address}");
    }
    let ping = |to, source: std::net::Ipv4Addr| {
        let mut out = vec![0; 200];
        let header = header(CLIENTS, source, to);
        let length = build::icmp4(&header, 8, 0, [0, 9, 0, 1], b"ping", &mut out).unwrap();
        out.truncate(length);
        out
    };
    let outcome = kit.packet(CLIENTS, &ping(SERVICE, client(1).address));
    assert_eq!(outcome.verdict, Verdict::Forward(CLIENTS));
    assert_eq!(outcome.packet[34], 0, "an echo reply");
    assert_eq!(ends_of(&outcome.packet).source, SERVICE);
    let outcome = kit.packet(CLIENTS, &ping(SERVICE, SERVICE));
    assert_eq!(outcome.verdict, Verdict::Drop(Reason::SpoofedSource));
}
