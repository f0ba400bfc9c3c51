//! VLANs: the same addresses and ports on two of them are two flows, of their fragments and errors, too.

use asterism_function::build;
use asterism_function::testkit::{Testkit, late_everywhere};
use asterism_function::{PortNumber, Reason};
use asterism_functions::firewall::{Firewall, FirewallConfig};

use crate::firewall::packets::*;

const CLIENT: (u32, u16) = (5, 40_000);
const SERVER: (u32, u16) = (2_000_000, 80);

/// The frame behind these tags, outer first; as a switch writes them, with a priority.
fn tagged(frame: &[u8], ids: &[u16]) -> Vec<u8> {
    let mut bytes = frame[..12].to_vec();
    for (place, id) in ids.iter().enumerate() {
        let kind: u16 = if place + 1 < ids.len() {
            0x88a8
        } else {
            0x8100
        };
        bytes.extend(kind.to_be_bytes());
        bytes.extend((0x6000 | id).to_be_bytes());
    }
    bytes.extend(&frame[12..]);
    bytes
}

const VLANS: [&[u16]; 4] = [&[], &[10], &[20], &[10, 20]];

/// A frame of a connection whose ends begin at these numbers, and the port at which it comes in.
type Step = fn((u32, u32)) -> (PortNumber, Vec<u8>);

/// Two connections, with numbers far from each other, on each VLAN and inside one: none is judged by another's numbers.
#[test]
fn each_vlan_has_its_own_connection_between_the_same_ends() {
    let mut kit = kit();
    let numbers = |place: usize| {
        let far = place as u32 * 1_000_000_000;
        (1_000 + far, 500_000_000 + far)
    };
    let steps: [Step; 5] = [
        |(a, _)| (INSIDE, tcp(CLIENT, SERVER, SYN, (a, 0), 0)),
        |(a, b)| (OUTSIDE, tcp(SERVER, CLIENT, SYN_ACK, (b, a + 1), 0)),
        |(a, b)| (INSIDE, tcp(CLIENT, SERVER, ACK, (a + 1, b + 1), 0)),
        |(a, b)| (INSIDE, tcp(CLIENT, SERVER, ACK, (a + 1, b + 1), 700)),
        |(a, b)| (OUTSIDE, tcp(SERVER, CLIENT, ACK, (b + 1, a + 701), 900)),
    ];
    for step in steps {
        for (place, ids) in VLANS.iter().enumerate() {
            let (port, frame) = step(numbers(place));
            passes(&mut kit, port, &tagged(&frame, ids));
        }
    }
    assert_eq!(kit.state().flows.len_now(), VLANS.len());
    // The numbers of one VLAN on another.
    let (a, b) = numbers(2);
    let data = tcp(CLIENT, SERVER, ACK, (a + 701, b + 901), 9);
    drops(&mut kit, INSIDE, &tagged(&data, &[10]), Reason::OutOfWindow);
    passes(&mut kit, INSIDE, &tagged(&data, &[20]));
}

/// Who is on another VLAN answers no question of this one, be it with a datagram, a reply, a part of one or an error.
#[test]
fn what_comes_from_another_vlan_is_no_answer() {
    let about = |frame: &[u8]| {
        let router = host(2_000_009);
        let bytes = build_error(frame, router);
        part(&bytes, 0, bytes.len() - 34, false)
    };
    let udp_there = udp(CLIENT, (SERVER.0, 53));
    let udp_back = udp((SERVER.0, 53), CLIENT);
    let echo_there = echo(8, CLIENT.0, SERVER.0);
    let echo_back = echo(0, SERVER.0, CLIENT.0);
    for (own, others) in [
        (&[10][..], [&[][..], &[20], &[10, 20], &[20, 10]]),
        (&[], [&[10], &[20], &[10, 20], &[1]]),
        (&[10, 20], [&[][..], &[10], &[20], &[20, 10]]),
    ] {
        let mut kit = kit();
        passes(&mut kit, INSIDE, &tagged(&udp_there, own));
        passes(&mut kit, INSIDE, &tagged(&echo_there, own));
        for other in others {
            let udp = tagged(&udp_back, other);
            drops(&mut kit, OUTSIDE, &udp, Reason::Denied);
            let echo = tagged(&echo_back, other);
            drops(&mut kit, OUTSIDE, &echo, Reason::NoConnection);
            let error = tagged(&about(&udp_there), other);
            drops(&mut kit, OUTSIDE, &error, Reason::IcmpUnmatched);
        }
        passes(&mut kit, OUTSIDE, &tagged(&about(&udp_there), own));
        passes(&mut kit, OUTSIDE, &tagged(&udp_back, own));
        passes(&mut kit, OUTSIDE, &tagged(&echo_back, own));
    }
}

fn build_error(about: &[u8], router: core::net::Ipv4Addr) -> Vec<u8> {
    frame(|out| build::icmp_unreachable(about, router, 1, out))
}

/// Later fragments are of their VLAN's datagram: the same identification on another one is another datagram.
#[test]
fn later_fragments_pass_on_the_vlan_of_the_first_one() {
    let mut kit = kit();
    let whole = frame(|out| {
        let header = build::Header4::between(host(CLIENT.0), host(SERVER.0));
        build::udp4(&header, 9, 53, &[7; 600], out)
    });
    let (first, later) = (part(&whole, 0, 400, true), part(&whole, 400, 208, false));
    passes(&mut kit, INSIDE, &tagged(&first, &[10]));
    for other in [&[][..], &[20], &[10, 20]] {
        let there = tagged(&later, other);
        drops(&mut kit, INSIDE, &there, Reason::FragmentUnmatched);
    }
    passes(&mut kit, INSIDE, &tagged(&later, &[10]));
    // A priority tag names no VLAN.
    passes(&mut kit, INSIDE, &tagged(&first, &[0]));
    passes(&mut kit, INSIDE, &later);
}

/// Where the directions of a path have VLANs of their own, as with private VLANs, those no longer separate flows.
#[test]
fn a_path_with_another_vlan_each_way_needs_the_setting() {
    let answers = |per_vlan: bool| {
        let config = FirewallConfig {
            per_vlan,
            ..config()
        };
        let mut kit = Testkit::new(Firewall::new(config));
        passes(&mut kit, INSIDE, &tagged(&udp(CLIENT, SERVER), &[100]));
        kit.packet(OUTSIDE, &tagged(&udp(SERVER, CLIENT), &[200]))
            .verdict
    };
    use asterism_function::Verdict;
    assert_eq!(answers(true), Verdict::Drop(Reason::Denied));
    assert_eq!(answers(false), Verdict::Forward(INSIDE));
}

/// What is noted of a flow names its VLAN, and so does its entry.
#[test]
fn flows_are_shown_with_their_vlan() {
    let mut kit = kit();
    passes(&mut kit, INSIDE, &tagged(&udp(CLIENT, SERVER), &[10, 20]));
    let mut shown = Vec::new();
    kit.state()
        .flows
        .for_each(|row, _| shown.push(format!("{:?}", row.0)));
    assert_eq!(
        shown,
        ["udp 10.0.0.5:40000 and 10.30.132.128:80 vlan 10.20"]
    );
}

#[test]
fn late_reads_change_nothing_on_vlans() {
    let mut packets = Vec::new();
    for ids in VLANS {
        for (wait, port, frame) in [
            (0, INSIDE, tcp(CLIENT, SERVER, SYN, (1_000, 0), 0)),
            (0, OUTSIDE, tcp(SERVER, CLIENT, SYN_ACK, (9_000, 1_001), 0)),
            (0, INSIDE, tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 100)),
            (0, INSIDE, udp(CLIENT, (SERVER.0, 53))),
        ] {
            packets.push((wait, port, tagged(&frame, ids)));
        }
    }
    late_everywhere(|| Firewall::new(config()), &packets);
}
