//! Packets that nobody sane sends: a drop with a reason or a packet, never a panic.

use asterism_function::{Packet, PortNumber, Reason, Verdict};
use asterism_functions::balancer::{CONTROL, Mode, StationRequest};
use asterism_functions::nat::Side;
use proptest::prelude::*;

use crate::balancer::network::*;

fn kits() -> Vec<Kit> {
    [Mode::Nat, Mode::Direct, Mode::Tunnel]
        .map(|mode| {
            let mut service = with_mode(mode);
            service.checked = true;
            kit(vec![service])
        })
        .into()
}

/// What left is a packet.
fn handle(kit: &mut Kit, port: PortNumber, bytes: &[u8]) {
    let outcome = kit.packet(port, bytes);
    if let Verdict::Forward(_) = outcome.verdict {
        let mut left = outcome.packet.clone();
        assert_eq!(left.len(), bytes.len());
        assert!(Packet::parse(&mut left).is_ok());
    }
    for (_, emitted) in &outcome.emitted {
        assert!(Packet::parse(&mut emitted.clone()).is_ok());
    }
}

#[test]
fn frames_cut_anywhere_and_bytes_changed_anywhere() {
    for mut kit in kits() {
        let server = endpoint_of(opened_any(&mut kit));
        let request = StationRequest {
            side: Side::Inside,
            address: server.address,
        };
        let examples = [
            (CLIENTS, frame(CLIENTS, client(1), asked(), SYN)),
            (CLIENTS, frame(CLIENTS, client(1), asked(), ACK)),
            (CLIENTS, frame(CLIENTS, udp(client(1)), udp(asked()), ACK)),
            (BACKENDS, frame(BACKENDS, server, client(1), SYN_ACK)),
            (CONTROL, request.frame().to_vec()),
        ];
        for (port, whole) in examples {
            for length in 0..=whole.len() {
                handle(&mut kit, port, &whole[..length]);
            }
            for place in 0..whole.len() {
                for value in [0, 1, 0x20, 0x45, 0x7f, 0x80, 0xff] {
                    let mut changed = whole.clone();
                    changed[place] = value;
                    // So that the change is seen behind the header's checksum.
                    if changed[12..15] == [8, 0, 0x45] {
                        changed[24..26].copy_from_slice(&[0, 0]);
                        let checksum = asterism_function::checksum::of(&changed[14..34]);
                        changed[24..26].copy_from_slice(&checksum.to_be_bytes());
                    }
                    handle(&mut kit, port, &changed);
                    handle(&mut kit, PortNumber(7), &changed);
                    handle(&mut kit, CONTROL, &changed);
                }
            }
        }
    }
}

fn opened_any(kit: &mut Kit) -> u8 {
    kit.packet(CLIENTS, &frame(CLIENTS, client(1), asked(), SYN));
    let mut got = None;
    kit.state()
        .flows
        .for_each(|flow, _| got = Some(flow.backend.address.octets()[3] - 10));
    got.expect("a flow")
}

#[test]
fn clients_cannot_be_ours_and_segments_out_of_nowhere_open_nothing() {
    let mut kit = kit(vec![service(2)]);
    let mut own = client(1);
    for address in [
        SERVICE,
        OWN,
        OWN_INSIDE,
        [0, 0, 0, 0].into(),
        [224, 0, 0, 1].into(),
        // A backend, and another host of their link: what answers it does not come back this way.
        [10, 0, 0, 10].into(),
        [10, 0, 0, 77].into(),
    ] {
        own.address = address;
        let outcome = send(&mut kit, CLIENTS, own, asked(), SYN);
        assert_eq!(
            outcome.verdict,
            Verdict::Drop(Reason::SpoofedSource),
            "{address}"
        );
    }
    for flags in [RST, SYN_ACK] {
        let outcome = send(&mut kit, CLIENTS, client(1), asked(), flags);
        assert_eq!(outcome.verdict, Verdict::Drop(Reason::NoBinding));
    }
    let outcome = send(&mut kit, BACKENDS, endpoint_of(0), client(1), SYN_ACK);
    assert_eq!(outcome.verdict, Verdict::Drop(Reason::NoBinding));
    assert_eq!(kit.state().flows.len_now(), 0);
}

#[test]
fn nobody_outside_can_vote() {
    let mut kit = kit(vec![service(2)]);
    let finding = asterism_functions::balancer::CheckResult {
        member: 0,
        backend: endpoint_of(0),
        is_down: true,
    };
    for port in [CLIENTS, BACKENDS] {
        let outcome = kit.packet(port, &finding.frame());
        assert!(matches!(outcome.verdict, Verdict::Drop(_)));
    }
    assert_eq!(kit.state().health.len_now(), 0);
    // Nor can a result of a backend that is not checked any more fill the table.
    kit.packet(CONTROL, &finding.frame());
    assert_eq!(kit.state().health.len_now(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn random_bytes(frames: Vec<(u8, u8, Vec<u8>)>) {
        for mut kit in kits() {
            for (port, start, bytes) in &frames {
                let port = [CLIENTS, BACKENDS, CONTROL][usize::from(port % 3)];
                handle(&mut kit, port, bytes);
                // Behind a frame's start that is right.
                let mut frame = frame(CLIENTS, client(1), asked(), SYN);
                frame.truncate(usize::from(*start) % 54);
                frame.extend(bytes);
                handle(&mut kit, port, &frame);
            }
        }
    }
}

#[test]
fn a_flood_of_new_flows_ends_at_the_table() {
    let mut small = config(vec![service(3)]);
    small.flows_max = 50;
    let mut kit = Kit::new(balancer(small));
    let full = (0..80)
        .filter(|number| {
            let outcome = send(&mut kit, CLIENTS, client(*number), asked(), SYN);
            outcome.verdict == Verdict::Drop(Reason::TableFull)
        })
        .count();
    assert_eq!((full, kit.state().flows.len_now()), (30, 50));
}
