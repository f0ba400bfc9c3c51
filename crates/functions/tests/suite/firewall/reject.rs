//! Rules that reject: what is answered, within which bound, and what nothing is said to.

use asterism_function::testkit::{Testkit, measured};
use asterism_function::{Packet, Reason, TcpFlags, Verdict};
use asterism_functions::firewall::{Firewall, FirewallConfig, read_rules};

use crate::firewall::packets::*;

fn kit(answers_per_second: u16) -> Testkit<Firewall> {
    let rules = "reject tcp, udp on outside to any port 113\nallow any on inside\ndefault reject\n";
    Testkit::new(Firewall::new(FirewallConfig {
        rules: read_rules(rules).expect("good rules"),
        answers_per_second,
        ..config()
    }))
}

#[test]
fn a_rejected_flow_is_answered_where_it_came_from_and_nowhere_else() {
    let mut kit = kit(10);
    let (server, client) = ((7, 113), (2_000_000, 4_000));
    let denied = Verdict::Drop(Reason::Denied);
    let outcome = kit.packet(OUTSIDE, &tcp(client, server, SYN, (100, 0), 0));
    assert_eq!(outcome.verdict, denied);
    let [(port, answer)] = &outcome.emitted[..] else {
        panic!("{:?}", outcome.emitted)
    };
    assert_eq!(*port, OUTSIDE);
    let mut answer = answer.clone();
    let packet = Packet::parse(&mut answer).expect("well-formed");
    assert_eq!(packet.tcp_flags(), Some(TcpFlags(RST.0 | TcpFlags::ACK.0)));
    assert_eq!(packet.tcp_acknowledgement(), Some(101));
    assert_eq!(packet.ports(), Some((113, 4_000)));

    let outcome = kit.packet(OUTSIDE, &udp(client, server));
    assert_eq!(outcome.verdict, denied);
    let mut answer = outcome.emitted[0].1.clone();
    let packet = Packet::parse(&mut answer).expect("well-formed");
    assert_eq!(
        (packet.icmp_type(), packet.icmp_code()),
        (Some(3), Some(13))
    );

    // The default rejects too; what is no new flow gets nothing.
    let query = echo(8, 2_000_000, 7);
    assert_eq!(kit.packet(OUTSIDE, &query).emitted.len(), 1);
    let query = to_ipv6(&query);
    let mut answer = kit.packet(OUTSIDE, &query).emitted[0].1.clone();
    let packet = Packet::parse(&mut answer).expect("well-formed");
    assert_eq!((packet.icmp_type(), packet.icmp_code()), (Some(1), Some(1)));
    let stray = kit.packet(OUTSIDE, &tcp(client, server, TcpFlags::ACK, (100, 5), 0));
    assert_eq!(stray.verdict, Verdict::Drop(Reason::NoConnection));
    assert!(stray.emitted.is_empty());
    let passed = kit.packet(INSIDE, &tcp((7, 5_000), client, SYN, (100, 0), 0));
    assert!(passed.emitted.is_empty() && passed.verdict == Verdict::Forward(OUTSIDE));
    let counted = |name| measured(kit.function(), kit.state(), name);
    assert_eq!(counted("answered_flows_total"), 4);
    assert_eq!(counted("dropped_flows_total"), 4);
}

#[test]
fn a_second_has_so_many_answers_and_no_more() {
    for most in [0, 1, 20] {
        let mut kit = kit(most);
        for second in 0..3 {
            let mut sent = 0;
            for number in 0..50 {
                let from = (1_500_000 + number, 4_000);
                let outcome = kit.packet(OUTSIDE, &tcp(from, (7, 113), SYN, (1, 0), 0));
                assert_eq!(outcome.verdict, Verdict::Drop(Reason::Denied));
                sent += outcome.emitted.len();
            }
            assert_eq!(sent, usize::from(most), "second {second}");
            kit.advance(1);
        }
        assert_eq!(kit.state().flows.len_now(), 0);
    }
}
