//! What passes and what does not, one box alone.

use asterism_function::records::read_records;
use asterism_function::testkit::{Testkit, late_everywhere};
use asterism_function::{Observable, PortNumber, Reason, TcpFlags, Verdict, build};
use asterism_functions::firewall::{Firewall, FirewallConfig, HITS_QUESTION, RuleHits, read_rules};

use crate::firewall::packets::*;

const CLIENT: (u32, u16) = (5, 40_000);
const SERVER: (u32, u16) = (2_000_000, 443);

/// A connection from inside, up to its first data each way.
fn begun(kit: &mut Testkit<Firewall>) {
    passes(kit, INSIDE, &tcp(CLIENT, SERVER, SYN, (1_000, 0), 0));
    passes(
        kit,
        OUTSIDE,
        &tcp(SERVER, CLIENT, SYN_ACK, (9_000, 1_001), 0),
    );
    passes(kit, INSIDE, &tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 0));
    passes(kit, INSIDE, &tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 500));
    passes(kit, OUTSIDE, &tcp(SERVER, CLIENT, ACK, (9_001, 1_501), 900));
}

#[test]
fn a_connection_from_inside_passes_both_ways_and_one_from_outside_does_not() {
    let mut kit = kit();
    begun(&mut kit);
    let (client, server) = ((6, 50_000), (2_000_001, 50_000));
    drops(
        &mut kit,
        OUTSIDE,
        &tcp(server, client, SYN, (1, 0), 0),
        Reason::Denied,
    );
    passes(&mut kit, OUTSIDE, &tcp(server, (6, 80), SYN, (1, 0), 0));
    drops(
        &mut kit,
        OUTSIDE,
        &tcp(server, client, ACK, (1, 1), 5),
        Reason::NoConnection,
    );
    drops(
        &mut kit,
        INSIDE,
        &tcp(client, server, SYN_ACK, (1, 2), 0),
        Reason::NoConnection,
    );
    drops(
        &mut kit,
        PortNumber(2),
        &tcp(client, server, SYN, (1, 0), 0),
        Reason::NotForUs,
    );
}

#[test]
fn ipv6_is_judged_as_ipv4_is() {
    let mut kit = kit();
    for (port, packet) in [
        (INSIDE, tcp(CLIENT, SERVER, SYN, (1_000, 0), 0)),
        (OUTSIDE, tcp(SERVER, CLIENT, SYN_ACK, (9_000, 1_001), 0)),
        (INSIDE, tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 0)),
        (INSIDE, udp((5, 9), (2_000_000, 53))),
        (OUTSIDE, udp((2_000_000, 53), (5, 9))),
        (INSIDE, echo(8, 5, 2_000_000)),
        (OUTSIDE, echo(0, 2_000_000, 5)),
    ] {
        passes(&mut kit, port, &to_ipv6(&packet));
    }
    let unknown = to_ipv6(&tcp(SERVER, (6, 9), SYN, (1, 0), 0));
    drops(&mut kit, OUTSIDE, &unknown, Reason::Denied);
    assert_eq!(kit.state().flows.len_now(), 3);
}

#[test]
fn segments_far_from_the_window_are_dropped_and_near_ones_pass() {
    let mut kit = kit();
    begun(&mut kit);
    let window = 65_536;
    for (sequence, acknowledgement, verdict) in [
        (9_901, 1_501, Ok(())),
        // As much as the client offered, and what another instance can have let through.
        (9_901 + window, 1_501, Ok(())),
        (9_901 + 4 * window, 1_501, Err(Reason::OutOfWindow)),
        (
            9_901_u32.wrapping_sub(4 * window),
            1_501,
            Err(Reason::OutOfWindow),
        ),
        (9_901, 1_501 + 4 * window, Err(Reason::OutOfWindow)),
        (
            9_901,
            1_501_u32.wrapping_sub(4 * window),
            Err(Reason::OutOfWindow),
        ),
    ] {
        let mut fresh = self::kit();
        begun(&mut fresh);
        let segment = tcp(SERVER, CLIENT, ACK, (sequence, acknowledgement), 100);
        match verdict {
            Ok(()) => passes(&mut fresh, OUTSIDE, &segment),
            Err(reason) => drops(&mut fresh, OUTSIDE, &segment, reason),
        }
    }
    let blind = tcp(SERVER, CLIENT, RST, (9_901 + 8 * window, 0), 0);
    drops(&mut kit, OUTSIDE, &blind, Reason::OutOfWindow);
    passes(
        &mut kit,
        OUTSIDE,
        &tcp(SERVER, CLIENT, ACK, (9_901, 1_501), 9),
    );
}

#[test]
fn a_scaled_window_is_as_large_as_both_ends_agreed() {
    let mut kit = kit();
    let scaled = |from, to, flags, numbers, scale: u8| {
        let plain = tcp(from, to, flags, numbers, 0);
        // Four bytes of options: no operation, window scale.
        let mut bytes = plain.clone();
        bytes.extend([1, 3, 3, scale]);
        bytes[46] = 6 << 4;
        let whole = part(&bytes, 0, bytes.len() - 34, false);
        assert_eq!(whole.len(), plain.len() + 4);
        whole
    };
    passes(
        &mut kit,
        INSIDE,
        &scaled(CLIENT, SERVER, SYN, (1_000, 0), 7),
    );
    passes(
        &mut kit,
        OUTSIDE,
        &scaled(SERVER, CLIENT, SYN_ACK, (9_000, 1_001), 7),
    );
    passes(
        &mut kit,
        INSIDE,
        &tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 0),
    );
    // 64,000 times 128 is some eight million.
    let far = tcp(SERVER, CLIENT, ACK, (5_000_000, 1_001), 100);
    passes(&mut kit, OUTSIDE, &far);
    let mut unscaled = self::kit();
    begun(&mut unscaled);
    drops(&mut unscaled, OUTSIDE, &far, Reason::OutOfWindow);
}

#[test]
fn what_no_tcp_sends_is_dropped_without_waiting() {
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        settle_us: 20_000,
        ..config()
    }));
    for flags in [0, 0x29, 0x03, 0x06, 0x3f, 0x01, 0x07] {
        let packet = tcp(CLIENT, SERVER, TcpFlags(flags), (1, 1), 0);
        let outcome = kit.packet(INSIDE, &packet);
        assert_eq!(
            outcome.verdict,
            Verdict::Drop(Reason::BadTcpFlags),
            "{flags:#x}"
        );
        assert_eq!(outcome.calls, 1);
    }
    let stray = kit.packet(INSIDE, &tcp(CLIENT, SERVER, ACK, (1, 1), 0));
    assert_eq!(
        (stray.verdict, stray.calls),
        (Verdict::Drop(Reason::NoConnection), 2)
    );
    let refused = kit.packet(OUTSIDE, &tcp(SERVER, CLIENT, SYN, (1, 0), 0));
    assert_eq!(
        (refused.verdict, refused.calls),
        (Verdict::Drop(Reason::Denied), 1)
    );
}

#[test]
fn an_ended_connection_may_begin_again_and_a_refused_one_is_forgotten() {
    let mut kit = kit();
    begun(&mut kit);
    passes(
        &mut kit,
        INSIDE,
        &tcp(CLIENT, SERVER, FIN_ACK, (1_501, 9_901), 0),
    );
    passes(
        &mut kit,
        OUTSIDE,
        &tcp(SERVER, CLIENT, FIN_ACK, (9_901, 1_502), 0),
    );
    passes(
        &mut kit,
        INSIDE,
        &tcp(CLIENT, SERVER, ACK, (1_502, 9_902), 0),
    );
    // The other way it would be a new connection, which the rules refuse.
    drops(
        &mut kit,
        OUTSIDE,
        &tcp(SERVER, CLIENT, SYN, (77, 0), 0),
        Reason::Denied,
    );
    passes(
        &mut kit,
        INSIDE,
        &tcp(CLIENT, SERVER, SYN, (4_000_000_000, 0), 0),
    );
    passes(
        &mut kit,
        OUTSIDE,
        &tcp(SERVER, CLIENT, SYN_ACK, (5, 4_000_000_001), 0),
    );
    let refused = (SERVER.0, 444);
    passes(&mut kit, INSIDE, &tcp(CLIENT, refused, SYN, (1, 0), 0));
    passes(
        &mut kit,
        OUTSIDE,
        &tcp(refused, CLIENT, RST | ACK, (0, 2), 0),
    );
    drops(
        &mut kit,
        OUTSIDE,
        &tcp(refused, CLIENT, ACK, (1, 2), 9),
        Reason::NoConnection,
    );
}

#[test]
fn idle_flows_are_forgotten_after_the_time_of_their_kind() {
    let mut kit = kit();
    begun(&mut kit);
    passes(&mut kit, INSIDE, &tcp((7, 7), SERVER, SYN, (1, 0), 0));
    passes(&mut kit, INSIDE, &udp((5, 9), SERVER));
    passes(&mut kit, INSIDE, &udp((5, 10), SERVER));
    passes(&mut kit, OUTSIDE, &udp(SERVER, (5, 10)));
    passes(&mut kit, INSIDE, &echo(8, 5, SERVER.0));
    assert_eq!(kit.state().flows.len_now(), 5);
    for (seconds, left) in [(50, 3), (50, 2), (400, 1), (10_000, 0)] {
        kit.advance(seconds);
        assert_eq!(kit.state().flows.len_now(), left, "after {seconds} s more");
    }
    drops(&mut kit, OUTSIDE, &udp(SERVER, (5, 10)), Reason::Denied);
}

#[test]
fn errors_about_a_flow_pass_and_others_do_not() {
    let mut kit = kit();
    begun(&mut kit);
    let about =
        |packet: &[u8]| frame(|out| build::icmp_unreachable(packet, host(2_000_009), 1, out));
    let known = tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 500);
    passes(&mut kit, OUTSIDE, &about(&known));
    // Quoted with the TTL that it had left, under the checksum of another one: as Linux, the error passes.
    let mut stale = known.clone();
    stale[22] -= 1;
    passes(&mut kit, OUTSIDE, &about(&stale));
    passes(
        &mut kit,
        OUTSIDE,
        &about(&[&known[..24], &[0, 0], &known[26..]].concat()),
    );
    let unknown = tcp((5, 40_001), SERVER, ACK, (1, 1), 9);
    drops(&mut kit, OUTSIDE, &about(&unknown), Reason::IcmpUnmatched);
    // To another host than the one that sent what it is about.
    let mut elsewhere = about(&known);
    elsewhere[33] ^= 1;
    let whole = part(&elsewhere, 0, elsewhere.len() - 34, false);
    drops(&mut kit, OUTSIDE, &whole, Reason::IcmpUnmatched);
    passes(&mut kit, INSIDE, &echo(8, 5, SERVER.0));
    passes(&mut kit, OUTSIDE, &about(&echo(8, 5, SERVER.0)));
    drops(
        &mut kit,
        OUTSIDE,
        &echo(0, SERVER.0, 6),
        Reason::NoConnection,
    );
}

#[test]
fn connections_are_picked_up_only_where_that_is_chosen() {
    let middle = tcp(CLIENT, SERVER, ACK, (1, 1), 9);
    drops(&mut kit(), INSIDE, &middle, Reason::NoConnection);
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        picks_up: true,
        ..config()
    }));
    passes(&mut kit, INSIDE, &middle);
    passes(&mut kit, OUTSIDE, &tcp(SERVER, CLIENT, ACK, (1, 10), 9));
    drops(
        &mut kit,
        OUTSIDE,
        &tcp(SERVER, (6, 9), ACK, (1, 10), 9),
        Reason::Denied,
    );
}

#[test]
fn a_source_is_blocked_for_its_time_and_noted_once() {
    let mut kit = kit();
    let scanner = (2_000_007, 999);
    passes(&mut kit, OUTSIDE, &tcp(scanner, (6, 80), SYN, (1, 0), 0));
    for _ in 0..5 {
        let outcome = kit.packet(OUTSIDE, &tcp(scanner, (5, 23), SYN, (1, 0), 0));
        assert!(matches!(outcome.verdict, Verdict::Drop(_)));
    }
    drops(
        &mut kit,
        OUTSIDE,
        &tcp(scanner, (6, 80), SYN, (1, 0), 0),
        Reason::Blocked,
    );
    let now = 1_000;
    assert_eq!(kit.state().blocked(now).len(), 1);
    let events = kit.state().events();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].1.line, events[0].1.first), (1, now));
    kit.advance(119);
    drops(
        &mut kit,
        OUTSIDE,
        &tcp(scanner, (6, 80), SYN, (1, 0), 0),
        Reason::Blocked,
    );
    kit.advance(1);
    passes(&mut kit, OUTSIDE, &tcp(scanner, (6, 80), SYN, (1, 0), 0));
}

#[test]
fn rules_tell_how_often_they_decided() {
    let mut kit = kit();
    begun(&mut kit);
    for port in 0..3 {
        let knock = tcp((2_000_007, 999), (6, 90 + port), SYN, (1, 0), 0);
        drops(&mut kit, OUTSIDE, &knock, Reason::Denied);
    }
    let all = kit.function().config().rules.rules().len();
    for step in [1, 2, 100] {
        let (mut reported, mut cursor) = (Vec::new(), Some(0));
        while let Some(from) = cursor {
            let mut part = Vec::new();
            let range = (from, step);
            cursor = kit
                .function()
                .report(kit.state(), HITS_QUESTION, range, &mut part);
            assert!(read_records(&part, |rule: RuleHits| reported.push(rule)));
            assert!(!read_records(&part[1..], |_: RuleHits| ()) || part.is_empty());
        }
        assert_eq!(reported.len(), all + 1);
        let default = reported.last().expect("the default is reported");
        assert_eq!((default.line, default.hits), (0, 3));
        assert_eq!(default.text, "default drop");
        let allowed = reported
            .iter()
            .filter(|rule| rule.text.starts_with("allow"));
        assert_eq!(allowed.map(|rule| rule.hits).sum::<u64>(), 1);
        let lines: Vec<&str> = RULES.lines().collect();
        for rule in &reported[..all] {
            assert_eq!(lines[rule.line as usize - 1].trim(), rule.text);
        }
    }
}

#[test]
fn late_reads_change_nothing() {
    let rules = read_rules(RULES).unwrap();
    let build = || {
        Firewall::new(FirewallConfig {
            rules: rules.clone(),
            ..config()
        })
    };
    let scanner = (2_000_007, 999);
    let datagram = udp((5, 9), SERVER);
    late_everywhere(
        build,
        &[
            (0, INSIDE, tcp(CLIENT, SERVER, SYN, (1_000, 0), 0)),
            (0, OUTSIDE, tcp(SERVER, CLIENT, SYN_ACK, (9_000, 1_001), 0)),
            (0, INSIDE, tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 0)),
            (1, OUTSIDE, tcp(SERVER, CLIENT, ACK, (9_001, 1_001), 700)),
            (0, INSIDE, part(&datagram, 0, 8, true)),
            (0, INSIDE, part(&datagram, 8, 8, false)),
            (0, INSIDE, echo(8, 5, SERVER.0)),
            (0, OUTSIDE, echo(0, SERVER.0, 5)),
            (0, OUTSIDE, tcp(scanner, (5, 23), SYN, (1, 0), 0)),
            (1, OUTSIDE, tcp(scanner, (5, 80), SYN, (1, 0), 0)),
            (200, OUTSIDE, tcp(scanner, (5, 80), SYN, (1, 0), 0)),
            (0, OUTSIDE, tcp(scanner, (5, 81), ACK, (1, 0), 0)),
        ],
    );
}
