//! Floods, fragments and garbage.

use asterism_function::notice::{End, Notice, Outcome, QUESTION};
use asterism_function::testkit::Testkit;
use asterism_function::{Observable, Reason, Verdict};
use asterism_functions::firewall::{Firewall, FirewallConfig};

use crate::firewall::packets::*;

/// A flood of SYNs from one source, and from as many as there are: what is held is bounded by the limits and not by the
/// flood, established connections go on, and after a minute all is as before. Ten million differ from these two hundred
/// thousand in nothing: past the limit a SYN writes nothing.
#[test]
fn half_open_connections_are_bounded_by_source_and_in_total() {
    const PER_SOURCE: u32 = 64;
    const TOTAL: u32 = 1_000;
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        half_open_per_source: PER_SOURCE,
        half_open_total: TOTAL,
        flows_max: 4_096,
        sources_max: 256,
        ..config()
    }));
    let (client, server) = ((5, 40_000), (2_000_000, 80));
    passes(&mut kit, INSIDE, &tcp(client, server, SYN, (1, 0), 0));
    passes(&mut kit, OUTSIDE, &tcp(server, client, SYN_ACK, (7, 2), 0));
    passes(&mut kit, INSIDE, &tcp(client, server, ACK, (2, 8), 0));
    let mut refused = 0;
    for port in 0..20_000u16 {
        let verdict = kit.packet(OUTSIDE, &tcp((2_000_001, port), (9, 80), SYN, (1, 0), 0));
        refused += u32::from(verdict.verdict == Verdict::Drop(Reason::HalfOpenLimit));
    }
    assert_eq!(refused, 20_000 - PER_SOURCE);
    assert_eq!(kit.state().flows.len_now() as u32, 1 + PER_SOURCE);
    let noted = reported(&kit);
    assert_eq!(noted.len(), 1, "once a minute: {noted:?}");
    assert_eq!((noted[0].id, noted[0].outcome), (42, Outcome::Dropped));
    assert_eq!(noted[0].source, End::host(host(2_000_001).into()));
    assert_eq!(noted[0].destination, End::endpoint((host(9).into(), 80)));
    let held = |kit: &Testkit<Firewall>| kit.entries();
    let mut bound = None;
    for source in 0..180_000u32 {
        let syn = tcp((3_000_000 + source, 7), (9, 80), SYN, (source, 0), 0);
        kit.packet(OUTSIDE, &syn);
        if source == 20_000 {
            bound = Some(held(&kit));
        }
    }
    assert_eq!(kit.state().flows.len_now() as u32, 1 + TOTAL);
    let noted = reported(&kit);
    assert_eq!(noted.len(), 2, "one more, of all together: {noted:?}");
    let all = noted.iter().find(|notice| notice.id == 43).unwrap();
    assert_eq!(all.source, End::default(), "forged sources are not named");
    assert_eq!(all.destination, End::endpoint((host(9).into(), 80)));
    assert_eq!(all.detail, "begun outside");
    assert_eq!(
        Some(held(&kit)),
        bound,
        "the flood goes on and nothing grows"
    );
    passes(&mut kit, INSIDE, &tcp(client, server, ACK, (2, 8), 100));
    passes(&mut kit, OUTSIDE, &tcp(server, client, ACK, (8, 102), 100));
    let honest = tcp((2_000_002, 1), (9, 80), SYN, (1, 0), 0);
    drops(&mut kit, OUTSIDE, &honest, Reason::HalfOpenLimit);
    // What begins inside is counted by itself.
    passes(&mut kit, INSIDE, &tcp((6, 1), server, SYN, (1, 0), 0));
    kit.advance(100);
    passes(&mut kit, OUTSIDE, &honest);
    assert_eq!(kit.state().flows.len_now(), 2);
}

/// What it tells of what it noted.
pub(crate) fn reported(kit: &Testkit<Firewall>) -> Vec<Notice> {
    let (mut bytes, mut notices) = (Vec::new(), Vec::new());
    let function = Firewall::new(config());
    let all = (0, u32::MAX);
    assert_eq!(
        function.report(kit.state(), QUESTION, all, &mut bytes),
        None
    );
    assert!(Notice::read_all(&bytes, |notice| notices.push(notice)));
    notices
}

/// Handshakes that end are not half open: a busy client meets no limit.
#[test]
fn a_source_that_completes_its_handshakes_is_not_limited() {
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        half_open_per_source: 4,
        ..config()
    }));
    let server = (2_000_000, 443);
    for port in 1_000..1_400 {
        let client = (5, port);
        passes(&mut kit, INSIDE, &tcp(client, server, SYN, (1, 0), 0));
        if port % 2 == 0 {
            passes(&mut kit, OUTSIDE, &tcp(server, client, SYN_ACK, (7, 2), 0));
            passes(&mut kit, INSIDE, &tcp(client, server, ACK, (2, 8), 0));
        } else {
            passes(
                &mut kit,
                OUTSIDE,
                &tcp(server, client, RST | ACK, (0, 2), 0),
            );
        }
    }
    assert_eq!(reported(&kit), [], "nor is it noted");
}

#[test]
fn a_full_table_refuses_new_flows_and_keeps_the_known() {
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        flows_max: 100,
        ..config()
    }));
    let server = (2_000_000, 53);
    for port in 0..100 {
        passes(&mut kit, INSIDE, &udp((5, 1_000 + port), server));
    }
    drops(
        &mut kit,
        INSIDE,
        &udp((5, 2_000), server),
        Reason::TableFull,
    );
    passes(&mut kit, OUTSIDE, &udp(server, (5, 1_000)));
}

/// A datagram's parts pass where its first part did, in any order, and none writes over a transport header.
#[test]
fn fragments_follow_the_first_and_overwrite_no_header() {
    let mut kit = kit();
    let client = (5, 40_000);
    let syn = tcp(client, (2_000_000, 80), SYN, (1, 0), 64);
    drops(
        &mut kit,
        INSIDE,
        &part(&syn, 0, 16, true),
        Reason::FragmentTiny,
    );
    let late = kit.packet(INSIDE, &part(&syn, 24, 60, false));
    assert_eq!(
        (late.verdict, late.calls),
        (Verdict::Drop(Reason::FragmentUnmatched), 2)
    );
    passes(&mut kit, INSIDE, &part(&syn, 0, 24, true));
    passes(&mut kit, INSIDE, &part(&syn, 24, 60, false));
    // Overlapping data is the receiver's to refuse; an overlapped header is not let through.
    passes(&mut kit, INSIDE, &part(&syn, 24, 40, true));
    drops(
        &mut kit,
        INSIDE,
        &part(&syn, 8, 24, true),
        Reason::FragmentTiny,
    );
    drops(
        &mut kit,
        INSIDE,
        &part(&syn, 16, 24, true),
        Reason::FragmentTiny,
    );
    // Of a datagram that was refused nothing passes.
    let refused = tcp((2_000_000, 9), (6, 81), SYN, (1, 0), 64);
    drops(
        &mut kit,
        OUTSIDE,
        &part(&refused, 0, 24, true),
        Reason::Denied,
    );
    drops(
        &mut kit,
        OUTSIDE,
        &part(&refused, 24, 60, false),
        Reason::FragmentUnmatched,
    );
}

/// Datagrams that were whole take no places from others for longer than a moment.
#[test]
fn fragmented_datagrams_hold_their_places_for_seconds() {
    const PLACES: u32 = 64;
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        fragments_max: PLACES,
        ..config()
    }));
    let both = |kit: &mut Testkit<Firewall>, number: u32| {
        let whole = tcp((number, 40_000), (2_000_000, 80), SYN, (1, 0), 64);
        let first = kit.packet(INSIDE, &part(&whole, 0, 24, true));
        let second = kit.packet(INSIDE, &part(&whole, 24, 60, false));
        [first, second].map(|part| matches!(part.verdict, Verdict::Forward(_)))
    };
    for number in 0..PLACES {
        assert_eq!(both(&mut kit, 5 + number), [true; 2], "{number}");
    }
    assert_eq!(both(&mut kit, 500), [true, false], "there is no place");
    kit.advance(4);
    for number in 0..PLACES {
        assert_eq!(both(&mut kit, 1_000 + number), [true; 2], "{number}");
    }
}

/// Any bytes, and packets with any byte changed, give a verdict.
#[test]
fn garbage_gives_a_verdict() {
    let mut kit = kit();
    let seeds = [
        tcp((5, 1), (2_000_000, 2), SYN, (1, 0), 20),
        udp((5, 1), (2_000_000, 2)),
        echo(8, 5, 2_000_000),
        to_ipv6(&tcp((5, 1), (2_000_000, 2), ACK, (1, 0), 20)),
    ];
    let mut random = 1u64;
    let mut next = move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize
    };
    let mut forwarded = 0;
    for turn in 0..60_000 {
        let mut packet = seeds[turn % seeds.len()].clone();
        for _ in 0..next() % 4 {
            let at = 14 + next() % (packet.len() - 14);
            packet[at] = next() as u8;
        }
        if next() % 8 == 0 {
            packet.truncate(next() % (packet.len() + 1));
        }
        let port = if next() % 2 == 0 { INSIDE } else { OUTSIDE };
        forwarded += usize::from(matches!(
            kit.packet(port, &packet).verdict,
            Verdict::Forward(_)
        ));
    }
    assert!(forwarded > 1_000, "{forwarded} forwarded show nothing");
}
