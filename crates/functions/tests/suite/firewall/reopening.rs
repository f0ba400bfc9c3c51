//! Connections that begin again between the same ends: where the old one was lost, ended, or only looked so.

use asterism_function::testkit::{ClusterKit, Testkit};
use asterism_function::{PortNumber, Reason, TcpFlags, Verdict};
use asterism_functions::firewall::Firewall;

use crate::firewall::packets::*;

const CLIENT: (u32, u16) = (5, 40_000);
const SERVER: (u32, u16) = (2_000_000, 443);

type Numbers = (u32, u32);

fn client(flags: TcpFlags, numbers: Numbers, data: usize) -> Vec<u8> {
    tcp(CLIENT, SERVER, flags, numbers, data)
}

fn server(flags: TcpFlags, numbers: Numbers, data: usize) -> Vec<u8> {
    tcp(SERVER, CLIENT, flags, numbers, data)
}

/// A connection that begins with these numbers, up to its first data each way.
fn begins(kit: &mut Testkit<Firewall>, (of_client, of_server): Numbers) {
    let (a, b) = (of_client + 1, of_server + 1);
    passes(kit, INSIDE, &client(SYN, (of_client, 0), 0));
    passes(kit, OUTSIDE, &server(SYN_ACK, (of_server, a), 0));
    passes(kit, INSIDE, &client(ACK, (a, b), 0));
    passes(kit, INSIDE, &client(ACK, (a, b), 500));
    passes(kit, OUTSIDE, &server(ACK, (b, a + 500), 900));
}

/// The server was switched off, and nobody said so: what its client begins from the same ports goes on.
#[test]
fn a_server_that_lost_a_connection_answers_the_next_one_from_the_same_ports() {
    let mut kit = kit();
    begins(&mut kit, (1_000, 9_000));
    begins(&mut kit, (7_000_000, 50));
    begins(&mut kit, (3_000_000_000, 0xffff_ffe0));
    assert_eq!(kit.state().flows.len_now(), 1);
    // What is left of the first one is not let through.
    let old = server(ACK, (9_901, 1_501), 9);
    drops(&mut kit, OUTSIDE, &old, Reason::OutOfWindow);
}

/// What a SYN with another number does to a connection is up to the other end, and a SYN-ACK that answers no such SYN does nothing.
#[test]
fn only_an_answer_to_the_openers_own_syn_begins_a_connection_again() {
    let goes_on = |kit: &mut Testkit<Firewall>| {
        passes(kit, INSIDE, &client(ACK, (1_501, 9_901), 10));
        passes(kit, OUTSIDE, &server(ACK, (9_901, 1_511), 10));
    };
    for syn in [None, Some(7_000_000)] {
        let mut kit = kit();
        begins(&mut kit, (1_000, 9_000));
        if let Some(number) = syn {
            passes(&mut kit, INSIDE, &client(SYN, (number, 0), 0));
            // A challenge, as of an end that has the connection (RFC 5961 §4).
            passes(&mut kit, OUTSIDE, &server(ACK, (9_901, 1_501), 0));
        }
        let stray = server(SYN_ACK, (50, 60_000_001), 0);
        kit.packet(OUTSIDE, &stray);
        goes_on(&mut kit);
    }
    // Who is outside forges both.
    let mut forged = kit();
    begins(&mut forged, (1_000, 9_000));
    forged.packet(OUTSIDE, &client(SYN, (7_000_000, 0), 0));
    forged.packet(OUTSIDE, &server(SYN_ACK, (50, 7_000_001), 0));
    goes_on(&mut forged);
    // The opener's own SYN once more, and the answer that was given to it.
    let mut again = kit();
    begins(&mut again, (1_000, 9_000));
    passes(&mut again, INSIDE, &client(SYN, (1_000, 0), 0));
    passes(&mut again, OUTSIDE, &server(SYN_ACK, (9_000, 1_001), 0));
    goes_on(&mut again);
}

/// The SYN came in at one instance and its answer at another, whose word the third has.
#[test]
fn a_connection_begins_again_across_instances() {
    let mut cluster = ClusterKit::new(Firewall::new(config()), 3, 7);
    let mut turn = 0;
    let mut passes = |port: PortNumber, packet: &[u8]| {
        let verdict = cluster.packet(turn % 3, port, packet).verdict;
        assert_eq!(verdict, Verdict::Forward(PortNumber(port.0 ^ 1)));
        cluster.exchange();
        turn += 1;
    };
    for (of_client, of_server) in [(1_000, 9_000), (7_000_000, 50), (70_000_000, 5_000_000)] {
        let (a, b) = (of_client + 1, of_server + 1);
        passes(INSIDE, &client(SYN, (of_client, 0), 0));
        passes(OUTSIDE, &server(SYN_ACK, (of_server, a), 0));
        passes(INSIDE, &client(ACK, (a, b), 500));
        passes(OUTSIDE, &server(ACK, (b, a + 500), 900));
    }
    cluster.agree();
}

/// A reset that the end heeds ends a connection; one that it refuses, as blind ones are (RFC 5961 §3), does not.
#[test]
fn a_connection_whose_end_goes_on_after_a_reset_in_its_name_is_not_over() {
    for goes_on in [true, false] {
        let mut kit = kit();
        begins(&mut kit, (1_000, 9_000));
        // Within the window, and not where the server is.
        passes(&mut kit, OUTSIDE, &server(RST, (10_001, 0), 0));
        if goes_on {
            passes(&mut kit, INSIDE, &client(ACK, (1_501, 9_901), 10));
            passes(&mut kit, OUTSIDE, &server(ACK, (9_901, 1_511), 10));
        }
        kit.advance(300);
        assert_eq!(kit.state().flows.len_now(), usize::from(goes_on));
        if !goes_on {
            let late = server(ACK, (9_911, 1_511), 10);
            drops(&mut kit, OUTSIDE, &late, Reason::NoConnection);
            continue;
        }
        passes(&mut kit, INSIDE, &client(ACK, (1_511, 9_911), 10));
        // Nor does a SYN begin another one in its place.
        passes(&mut kit, INSIDE, &client(SYN, (7_000_000, 0), 0));
        kit.state()
            .flows
            .for_each(|_, track| assert!(track.is_established()));
        passes(&mut kit, OUTSIDE, &server(ACK, (9_911, 1_521), 10));
        passes(&mut kit, INSIDE, &client(ACK, (1_521, 9_921), 10));
        // It ends when both ends say so.
        passes(&mut kit, INSIDE, &client(FIN_ACK, (1_531, 9_921), 0));
        passes(&mut kit, OUTSIDE, &server(FIN_ACK, (9_921, 1_532), 0));
        kit.advance(300);
        assert_eq!(kit.state().flows.len_now(), 0);
    }
}

/// Whether the connection goes on is seen at one instance, and the reset at another.
#[test]
fn a_connection_that_goes_on_does_so_at_all_instances() {
    let mut cluster = ClusterKit::new(Firewall::new(config()), 2, 7);
    for (place, port, packet) in [
        (0, INSIDE, client(SYN, (1_000, 0), 0)),
        (1, OUTSIDE, server(SYN_ACK, (9_000, 1_001), 0)),
        (0, INSIDE, client(ACK, (1_001, 9_001), 0)),
        (1, OUTSIDE, server(ACK, (9_001, 1_001), 900)),
        (0, OUTSIDE, server(RST, (9_901, 0), 0)),
        (1, OUTSIDE, server(ACK, (9_901, 1_001), 900)),
    ] {
        let verdict = cluster.packet(place, port, &packet).verdict;
        assert_eq!(verdict, Verdict::Forward(PortNumber(port.0 ^ 1)));
        cluster.exchange();
    }
    cluster.agree();
    for member in 0..2 {
        let state = cluster.state(member);
        state
            .flows
            .for_each(|_, track| assert!(track.is_established()));
    }
}

/// TCP Fast Open: a SYN that is lost with its data is sent again without it, and either may be what is answered (RFC 7413 §4.1.3).
#[test]
fn a_syn_that_is_sent_again_without_its_data_is_the_same() {
    for acknowledged in [1_001, 1_101] {
        let mut kit = kit();
        passes(&mut kit, INSIDE, &client(SYN, (1_000, 0), 100));
        passes(&mut kit, INSIDE, &client(SYN, (1_000, 0), 0));
        passes(
            &mut kit,
            OUTSIDE,
            &server(SYN_ACK, (9_000, acknowledged), 0),
        );
        passes(&mut kit, INSIDE, &client(ACK, (acknowledged, 9_001), 0));
        passes(&mut kit, OUTSIDE, &server(ACK, (9_001, acknowledged), 10));
    }
}
