//! Floods of SYNs: whose new connections they stop, and whose they do not.

use asterism_function::notice::{End, Outcome};
use asterism_function::testkit::{ClusterKit, Testkit};
use asterism_function::{Reason, State, Verdict};
use asterism_functions::firewall::{Firewall, FirewallConfig};

use crate::firewall::hostile::reported;
use crate::firewall::packets::*;

const FORWARDED: Verdict = Verdict::Forward(INSIDE);
const TOTAL: u32 = 400;
const PER_DESTINATION: u32 = 100;
/// What is flooded, and another server beside it.
const FLOODED: u32 = 9;
const OTHER: u32 = 10;

fn firewall() -> Firewall {
    Firewall::new(FirewallConfig {
        half_open_per_destination: PER_DESTINATION,
        half_open_total: TOTAL,
        // Forged sources fill their table at once.
        sources_max: 16,
        ..config()
    })
}

/// A SYN from outside, of a source by its number.
fn syn(source: u32, server: u32) -> Vec<u8> {
    tcp((3_000_000 + source, 7), (server, 80), SYN, (source, 0), 0)
}

/// How many of so many forged sources get a SYN through to a server.
fn flood(kit: &mut Testkit<Firewall>, sources: std::ops::Range<u32>, server: u32) -> u32 {
    let passes = |source| {
        let verdict = kit.packet(OUTSIDE, &syn(source, server)).verdict;
        u32::from(verdict != Verdict::Drop(Reason::HalfOpenLimit))
    };
    sources.map(passes).sum()
}

#[test]
fn a_flood_of_one_server_leaves_room_for_others_and_for_those_inside() {
    let mut kit = Testkit::new(firewall());
    assert_eq!(flood(&mut kit, 0..20_000, FLOODED), PER_DESTINATION);
    let noted = reported(&kit);
    assert_eq!(noted.len(), 1, "{noted:?}");
    assert_eq!((noted[0].id, noted[0].outcome), (44, Outcome::Dropped));
    assert_eq!(
        noted[0].source,
        End::default(),
        "forged sources are not named"
    );
    assert_eq!(noted[0].destination, End::host(host(FLOODED).into()));
    // An honest client of another server, and the flooded server's own connections.
    passes(&mut kit, OUTSIDE, &syn(20_000, OTHER));
    passes(
        &mut kit,
        INSIDE,
        &tcp((FLOODED, 1), (2_000_000, 443), SYN, (1, 0), 0),
    );
    // Other servers are flooded, too: what is left of the link's limit, and no more.
    let rest = flood(&mut kit, 30_000..30_500, 11) + flood(&mut kit, 31_000..31_500, 12);
    assert_eq!(rest, 2 * PER_DESTINATION);
    assert_eq!(
        flood(&mut kit, 32_000..32_500, 13),
        TOTAL - 3 * PER_DESTINATION - 1
    );
    passes(
        &mut kit,
        INSIDE,
        &tcp((5, 1), (2_000_000, 443), SYN, (1, 0), 0),
    );
    kit.advance(100);
    passes(&mut kit, OUTSIDE, &syn(1, FLOODED));
}

/// A limit as large as the link's is none.
#[test]
fn destinations_may_have_no_limit_of_their_own() {
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        half_open_per_destination: TOTAL,
        ..firewall().config().clone()
    }));
    assert_eq!(flood(&mut kit, 0..1_000, FLOODED), TOTAL);
    let objects = kit.state().objects();
    let place = objects.iter().position(|name| *name == "destinations");
    assert_eq!(
        kit.entries()[place.unwrap()],
        (0, 0),
        "nor are they counted"
    );
    assert_eq!(reported(&kit)[0].id, 43);
}

/// A server whose handshakes are completed, or which refuses them, meets no limit.
#[test]
fn a_busy_server_is_not_limited() {
    let mut kit = Testkit::new(firewall());
    for number in 0..3 * PER_DESTINATION {
        let (client, server) = ((3_000_000 + number, 7), (FLOODED, 80));
        passes(&mut kit, OUTSIDE, &tcp(client, server, SYN, (1, 0), 0));
        if number % 2 == 0 {
            passes(&mut kit, INSIDE, &tcp(server, client, SYN_ACK, (7, 2), 0));
            passes(&mut kit, OUTSIDE, &tcp(client, server, ACK, (2, 8), 0));
        } else {
            passes(&mut kit, INSIDE, &tcp(server, client, RST | ACK, (0, 2), 0));
        }
    }
}

/// Who forges outside both ends of his connections settles none: nor does he make room on any link's limit.
#[test]
fn only_the_other_end_settles_a_connection_by_its_own_link() {
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        half_open_total: 4,
        ..config()
    }));
    let mut through = 0;
    for number in 0..100 {
        let (client, server) = ((3_000_000 + number, 7), (FLOODED, 80));
        let syn = tcp(client, server, SYN, (1, 0), 0);
        through += u32::from(kit.packet(OUTSIDE, &syn).verdict == FORWARDED);
        kit.packet(OUTSIDE, &tcp(server, client, RST | ACK, (0, 2), 0));
    }
    assert_eq!(through, 4);
    let begun = |port| tcp((5, port), (2_000_000, 443), SYN, (1, 0), 0);
    for port in 0..4 {
        passes(&mut kit, INSIDE, &begun(port));
    }
    drops(&mut kit, INSIDE, &begun(4), Reason::HalfOpenLimit);
}

/// A SYN and the reset of its own end leave no entry behind, and count as the SYN alone does.
#[test]
fn a_flood_of_syns_that_their_own_end_resets_is_bounded_and_fills_nothing() {
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        flows_max: 1_000,
        ..firewall().config().clone()
    }));
    let mut through = 0;
    for number in 0..20_000 {
        let (client, server) = ((3_000_000 + number, 7), (9 + number % 100, 80));
        let syn = tcp(client, server, SYN, (1, 0), 0);
        through += u32::from(kit.packet(OUTSIDE, &syn).verdict == FORWARDED);
        for packet in [
            tcp(client, server, RST, (2, 0), 0),
            tcp(client, server, RST | ACK, (2, 77), 0),
        ] {
            kit.packet(OUTSIDE, &packet);
        }
        passes(&mut kit, INSIDE, &udp((5, 9), (2_000_000, 53)));
    }
    assert_eq!(through, TOTAL);
    assert_eq!(kit.state().flows.len_now(), 1);
    let begun = tcp((5, 1), (2_000_000, 443), SYN, (1, 0), 0);
    passes(&mut kit, INSIDE, &begun);
}

/// The same where the server answers: what was never complete does not stay longer than what is half open.
#[test]
fn connections_that_are_reset_before_they_are_complete_count_and_go_as_half_open_ones_do() {
    let mut kit = Testkit::new(firewall());
    let mut through = 0;
    for number in 0..2_000 {
        let (client, server) = ((3_000_000 + number, 7), (9 + number % 100, 80));
        let syn = tcp(client, server, SYN, (1, 0), 0);
        if kit.packet(OUTSIDE, &syn).verdict != FORWARDED {
            continue;
        }
        through += 1;
        passes(
            &mut kit,
            INSIDE,
            &tcp(server, client, SYN_ACK, (7_000_000, 2), 0),
        );
        passes(&mut kit, OUTSIDE, &tcp(client, server, RST, (2, 0), 0));
    }
    assert_eq!(through, TOTAL);
    kit.advance(100);
    assert_eq!(kit.state().flows.len_now(), 0);
    // Who has seen the answer acknowledges it, and forges nothing: a check of a server's health, say.
    for number in 0..2 * TOTAL {
        let (client, server) = ((3_000_000 + number, 7), (9 + number % 100, 80));
        passes(&mut kit, OUTSIDE, &tcp(client, server, SYN, (1, 0), 0));
        passes(
            &mut kit,
            INSIDE,
            &tcp(server, client, SYN_ACK, (7_000_000, 2), 0),
        );
        let reset = tcp(client, server, RST | ACK, (2, 7_000_001), 0);
        passes(&mut kit, OUTSIDE, &reset);
    }
}

/// A server that refuses all that comes: the flood of what it refuses fills nothing.
#[test]
fn what_a_server_refuses_is_forgotten_at_once() {
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        flows_max: 100,
        ..firewall().config().clone()
    }));
    for number in 0..5_000 {
        let (client, server) = ((3_000_000 + number, 7), (FLOODED, 80));
        passes(&mut kit, OUTSIDE, &tcp(client, server, SYN, (1, 0), 0));
        passes(&mut kit, INSIDE, &tcp(server, client, RST | ACK, (0, 2), 0));
        // Between packets a host looks for what everybody knows to have ended.
        if number % 50 == 49 {
            kit.advance(1);
        }
    }
    assert_eq!(kit.state().flows.len_now(), 0);
}

/// SYN, answer and acknowledgement, all forged by one who sees none of it: nothing is established by them.
#[test]
fn a_handshake_that_one_link_forges_opens_nothing() {
    let mut kit = Testkit::new(firewall());
    for number in 0..1_000 {
        let (client, server) = ((3_000_000 + number, 7), (9 + number % 100, 80));
        for packet in [
            tcp(client, server, SYN, (1, 0), 0),
            tcp(server, client, SYN_ACK, (7, 2), 0),
            tcp(client, server, ACK, (2, 8), 0),
            tcp(client, server, ACK, (2, 8), 9),
            // A simultaneous open.
            tcp(server, client, SYN, (7, 0), 0),
            tcp(client, server, SYN_ACK, (1, 8), 0),
            tcp(server, client, ACK, (8, 2), 0),
        ] {
            kit.packet(OUTSIDE, &packet);
        }
    }
    let mut established = 0;
    let mut half_open = 0;
    kit.state().flows.for_each(|_, track| {
        established += u32::from(track.is_established());
        half_open += u32::from(track.is_half_open());
    });
    assert_eq!((established, half_open), (0, TOTAL));
    kit.advance(100);
    assert_eq!(kit.state().flows.len_now(), 0);
}

/// A half-open connection is not held by what says nothing new of it: they would add up, minute by minute.
#[test]
fn syns_sent_again_do_not_hold_half_open_connections() {
    let mut kit = Testkit::new(firewall());
    for _ in 0..5 {
        assert_eq!(flood(&mut kit, 0..2 * TOTAL, FLOODED), PER_DESTINATION);
        kit.advance(50);
        flood(&mut kit, 0..PER_DESTINATION, FLOODED);
        kit.advance(50);
        assert_eq!(kit.state().flows.len_now(), 0);
        kit.advance(30);
    }
}

/// Three instances that tell each other after every tenth packet: all together let through the limit and what they could not know;
/// and handshakes that begin at one and end at another count as ended.
#[test]
fn the_limits_count_over_all_instances() {
    const LAG: u32 = 10;
    let mut cluster = ClusterKit::new(firewall(), 3, 7);
    let mut through = 0;
    for source in 0..2_000u32 {
        let verdict = cluster
            .packet(source as usize % 3, OUTSIDE, &syn(source, FLOODED))
            .verdict;
        through += u32::from(verdict != Verdict::Drop(Reason::HalfOpenLimit));
        if source % LAG == LAG - 1 {
            cluster.exchange();
        }
    }
    assert!(
        (PER_DESTINATION..PER_DESTINATION + LAG).contains(&through),
        "{through}"
    );
    let passes = |cluster: &mut ClusterKit<Firewall>, member: u32, port, packet: &[u8]| {
        let verdict = cluster.packet(member as usize % 3, port, packet).verdict;
        assert!(matches!(verdict, Verdict::Forward(_)), "{verdict:?}");
        cluster.exchange();
    };
    for number in 0..2 * TOTAL {
        let (client, server) = ((3_500_000 + number, 7), (OTHER, 80));
        passes(
            &mut cluster,
            number,
            OUTSIDE,
            &tcp(client, server, SYN, (1, 0), 0),
        );
        passes(
            &mut cluster,
            number + 1,
            INSIDE,
            &tcp(server, client, SYN_ACK, (7, 2), 0),
        );
        passes(
            &mut cluster,
            number + 2,
            OUTSIDE,
            &tcp(client, server, ACK, (2, 8), 0),
        );
    }
    passes(
        &mut cluster,
        0,
        INSIDE,
        &tcp((5, 1), (2_000_000, 443), SYN, (1, 0), 0),
    );
    cluster.agree();
}
