//! Rules that change under flows that are known: a SYN with other numbers is for the rules in force, and flows are ended by those who may.

use std::collections::BTreeSet;

use asterism_function::records::read_records;
use asterism_function::testkit::{ClusterKit, Testkit, late_everywhere};
use asterism_function::{CONTROL, Observable, Reason, Verdict};
use asterism_functions::firewall::{
    ENDED_AT_ONCE_MAX, FLOWS_QUESTION, Firewall, FirewallConfig, FirewallState, Flow, KnownFlow,
    end_frame, read_rules,
};

use crate::firewall::packets::*;

const CLIENT: (u32, u16) = (5, 40_000);
const SERVER: (u32, u16) = (2_000_000, 443);

fn of_rules(rules: &str) -> Firewall {
    Firewall::new(FirewallConfig {
        rules: read_rules(rules).expect("good rules"),
        ..config()
    })
}

/// What a firewall tells of the flows in a state.
fn known(firewall: &Firewall, state: &FirewallState) -> Vec<KnownFlow> {
    let (mut bytes, mut flows) = (Vec::new(), Vec::new());
    let all = (0, u32::MAX);
    assert_eq!(
        firewall.report(state, FLOWS_QUESTION, all, &mut bytes),
        None
    );
    assert!(read_records(&bytes, |flow: KnownFlow| flows.push(flow)));
    flows
}

fn meant(firewall: &Firewall, state: &FirewallState) -> Vec<Flow> {
    let flows = known(firewall, state).into_iter();
    flows.map(|known| known.flow).collect()
}

/// A firewall with a connection, and the same state under other rules.
fn reloaded(rules: &str) -> Testkit<Firewall> {
    let mut kit = kit();
    passes(&mut kit, INSIDE, &tcp(CLIENT, SERVER, SYN, (1_000, 0), 0));
    passes(
        &mut kit,
        OUTSIDE,
        &tcp(SERVER, CLIENT, SYN_ACK, (9_000, 1_001), 0),
    );
    passes(
        &mut kit,
        INSIDE,
        &tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 100),
    );
    kit.replace_function(of_rules(rules));
    kit
}

/// The ends of a known connection are no way round the rules.
#[test]
fn a_syn_with_other_numbers_is_for_the_rules_in_force() {
    let mut kit = reloaded("drop tcp log");
    let syn = |number| tcp(CLIENT, SERVER, SYN, (number, 0), 0);
    drops(&mut kit, INSIDE, &syn(7_000_000), Reason::Denied);
    assert_eq!(kit.state().events().len(), 1, "as a first packet is noted");
    // Its answer answers nothing, and the connection goes on.
    let answer = tcp(SERVER, CLIENT, SYN_ACK, (500_000_000, 7_000_001), 0);
    kit.packet(OUTSIDE, &answer);
    passes(
        &mut kit,
        INSIDE,
        &tcp(CLIENT, SERVER, ACK, (1_101, 9_001), 10),
    );
    passes(
        &mut kit,
        OUTSIDE,
        &tcp(SERVER, CLIENT, ACK, (9_001, 1_111), 10),
    );
    // The connection's own SYN, sent again, is of it.
    passes(&mut kit, INSIDE, &syn(1_000));
    // What comes by the other link in its client's name is judged there.
    let mut kit = reloaded("allow tcp on inside");
    drops(&mut kit, OUTSIDE, &syn(7_000_000), Reason::Denied);
    passes(&mut kit, INSIDE, &syn(7_000_000));
    let mut kit = reloaded("block 1m tcp on inside");
    drops(&mut kit, INSIDE, &syn(7_000_000), Reason::Denied);
    let ack = tcp(CLIENT, SERVER, ACK, (1_101, 9_001), 10);
    drops(&mut kit, INSIDE, &ack, Reason::Blocked);
}

/// What the rules would deny, by who opened a flow and where; a flow that is ended is unknown, of every protocol.
#[test]
fn flows_that_rules_deny_are_reported_and_end() {
    let mut kit = reloaded("allow udp on inside\nallow tcp on inside to any port 80");
    let dns = (SERVER.0, 53);
    passes(&mut kit, INSIDE, &udp(CLIENT, dns));
    let denied = |kit: &Testkit<Firewall>| {
        let flows = known(kit.function(), kit.state()).into_iter();
        let denied = flows.filter(|known| known.is_denied);
        denied.map(|known| known.flow).collect::<Vec<_>>()
    };
    assert_eq!(kit.state().flows.len_now(), 2);
    let reported = denied(&kit);
    assert_eq!(reported.len(), 1);
    assert_eq!(
        kit.packet(CONTROL, &end_frame(&reported)).verdict,
        Verdict::Consumed
    );
    assert_eq!(kit.state().flows.len_now(), 1);
    let ack = tcp(CLIENT, SERVER, ACK, (1_101, 9_001), 10);
    drops(&mut kit, INSIDE, &ack, Reason::NoConnection);
    // What nobody knows is ended already.
    assert_eq!(
        kit.packet(CONTROL, &end_frame(&reported)).verdict,
        Verdict::Consumed
    );
    // Datagrams go on under rules that deny them, until they are ended.
    kit.replace_function(of_rules("default drop"));
    passes(&mut kit, OUTSIDE, &udp(dns, CLIENT));
    passes(&mut kit, INSIDE, &udp(CLIENT, dns));
    let reported = denied(&kit);
    assert_eq!(reported.len(), 1);
    kit.packet(CONTROL, &end_frame(&reported));
    drops(&mut kit, INSIDE, &udp(CLIENT, dns), Reason::Denied);
    drops(&mut kit, OUTSIDE, &udp(dns, CLIENT), Reason::Denied);
}

/// Reported at one instance, flows end at all of them, also where one has just seen a packet of theirs.
#[test]
fn flows_that_are_ended_at_one_instance_are_ended_at_all() {
    let mut cluster = ClusterKit::new(of_rules("allow udp on inside"), 3, 7);
    let frames: Vec<_> = (0..20).map(|port| udp((5, 4_000 + port), SERVER)).collect();
    for (place, frame) in frames.iter().enumerate() {
        let passed = cluster.packet(place % 3, INSIDE, frame).verdict;
        assert_eq!(passed, Verdict::Forward(OUTSIDE));
    }
    cluster.exchange();
    let firewall = of_rules("default drop");
    let flows = meant(&firewall, cluster.state(0));
    assert_eq!(flows.len(), frames.len());
    // A packet of each at another instance, of which the first has not heard.
    for frame in &frames {
        cluster.packet(1, INSIDE, frame);
    }
    for some in flows.chunks(ENDED_AT_ONCE_MAX) {
        let reported = cluster.packet(0, CONTROL, &end_frame(some)).verdict;
        assert_eq!(reported, Verdict::Consumed);
    }
    cluster.exchange();
    for member in 0..3 {
        assert_eq!(cluster.state(member).flows.len_now(), 0, "at {member}");
    }
}

/// Frames that come back as they were, and nothing else: damaged, cut or of too many.
#[test]
fn orders_that_are_none_end_nothing() {
    let mut kit = kit();
    for port in 0..10 {
        passes(&mut kit, INSIDE, &udp((5, 4_000 + port), SERVER));
    }
    let flows = meant(kit.function(), kit.state());
    assert_eq!(flows.iter().collect::<BTreeSet<_>>().len(), 10);
    let frame = end_frame(&flows[..2]);
    // Behind the Ethernet header and the order's kind both flows have as many bytes.
    let each = (frame.len() - 15) / 2;
    for length in
        (0..frame.len()).filter(|length| *length < 15 || !(*length - 15).is_multiple_of(each))
    {
        let outcome = kit.packet(CONTROL, &frame[..length]);
        assert!(matches!(outcome.verdict, Verdict::Drop(_)), "{length}");
    }
    let other = [&frame[..], &[0]].concat();
    assert_eq!(
        kit.packet(CONTROL, &other).verdict,
        Verdict::Drop(Reason::UnsupportedProtocol)
    );
    assert_eq!(
        kit.packet(CONTROL, &end_frame(&flows)).verdict,
        Verdict::Consumed
    );
    assert_eq!(kit.state().flows.len_now(), 10 - ENDED_AT_ONCE_MAX);
}

#[test]
fn late_reads_change_nothing_where_flows_end() {
    let flow = {
        let mut kit = kit();
        passes(&mut kit, INSIDE, &udp(CLIENT, SERVER));
        meant(kit.function(), kit.state())
    };
    let packets = [
        (0, INSIDE, tcp(CLIENT, SERVER, SYN, (1_000, 0), 0)),
        (0, OUTSIDE, tcp(SERVER, CLIENT, SYN_ACK, (9_000, 1_001), 0)),
        (0, INSIDE, tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 10)),
        (0, INSIDE, tcp(CLIENT, SERVER, SYN, (7_000_000, 0), 0)),
        (0, INSIDE, udp(CLIENT, SERVER)),
        (0, CONTROL, end_frame(&flow)),
        (0, INSIDE, udp(CLIENT, SERVER)),
    ];
    late_everywhere(|| Firewall::new(config()), &packets);
}
