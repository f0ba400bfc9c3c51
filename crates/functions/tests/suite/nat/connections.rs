//! RFC 5382 and RFC 7857: TCP connections and how long they are remembered.

use asterism_function::{Reason, TcpFlags, Verdict};

use crate::nat::network::*;

const INSIDE_END: ([u8; 4], u16) = ([10, 0, 0, 5], 40_000);
const REMOTE_END: ([u8; 4], u16) = ([198, 51, 100, 7], 443);

/// Sends segments, `(from inside, flags)` each; all are forwarded.
fn talk(kit: &mut Kit, segments: &[(bool, TcpFlags)]) {
    let (inside, remote) = (
        tcp(INSIDE_END.0, INSIDE_END.1),
        tcp(REMOTE_END.0, REMOTE_END.1),
    );
    for (from_inside, flags) in segments {
        let outcome = if *from_inside {
            send(kit, INSIDE, inside, remote, flagged(*flags))
        } else {
            let mut outside = None;
            kit.state()
                .sessions
                .for_each(|session, _| outside = Some(session.outside()));
            send(
                kit,
                OUTSIDE,
                remote,
                outside.expect("a session"),
                flagged(*flags),
            )
        };
        assert!(
            matches!(outcome.verdict, Verdict::Forward(_)),
            "{:?}",
            outcome.verdict
        );
    }
}

/// Whether a connection that went so far is still there after that many seconds of silence.
fn remembered_after(segments: &[(bool, TcpFlags)], seconds: u32) -> bool {
    let mut kit = kit();
    talk(&mut kit, segments);
    kit.advance(seconds);
    !kit.state().sessions.is_empty_now()
}

const HANDSHAKE: [(bool, TcpFlags); 3] = [(true, SYN), (false, SYN_ACK), (true, ACK)];

fn after_handshake(more: &[(bool, TcpFlags)]) -> Vec<(bool, TcpFlags)> {
    [&HANDSHAKE, more].concat()
}

#[test]
fn req_5_established_connections_last_two_hours_and_four_minutes() {
    assert!(remembered_after(&HANDSHAKE, 7_440));
    assert!(!remembered_after(&HANDSHAKE, 7_440 + 7_440 / 4 + 2));
    // Half-closed is established (RFC 5382 §5).
    assert!(remembered_after(
        &after_handshake(&[(true, FIN_ACK), (false, ACK)]),
        7_440
    ));
}

#[test]
fn req_5_others_last_four_minutes() {
    let ended = [
        after_handshake(&[(true, FIN_ACK), (false, FIN_ACK), (true, ACK)]),
        after_handshake(&[(false, RST)]),
        after_handshake(&[(true, RST | ACK)]),
        vec![(true, SYN)],
        vec![(true, SYN), (false, SYN_ACK)],
    ];
    for segments in ended {
        assert!(remembered_after(&segments, 240), "{segments:?}");
        assert!(!remembered_after(&segments, 240 + 60 + 2), "{segments:?}");
    }
}

#[test]
fn req_2_a_simultaneous_open_is_a_handshake() {
    let segments = [(true, SYN), (false, SYN), (true, SYN_ACK), (false, SYN_ACK)];
    assert!(remembered_after(&segments, 7_440));
}

#[test]
fn a_connection_older_than_the_nat_is_taken_up_but_not_by_a_reset() {
    assert!(remembered_after(&[(true, ACK), (false, ACK)], 7_440));
    let mut kit = kit();
    let (inside, remote) = (
        tcp(INSIDE_END.0, INSIDE_END.1),
        tcp(REMOTE_END.0, REMOTE_END.1),
    );
    let out = send(&mut kit, INSIDE, inside, remote, flagged(RST));
    assert_eq!(out.verdict, Verdict::Drop(Reason::NoBinding));
}

#[test]
fn ports_that_are_used_again_begin_a_new_incarnation() {
    for opener in [true, false] {
        let mut segments = after_handshake(&[(true, FIN_ACK), (false, FIN_ACK), (true, ACK)]);
        segments.extend([(opener, SYN), (!opener, SYN_ACK), (opener, ACK)]);
        assert!(
            remembered_after(&segments, 7_440),
            "opened from inside: {opener}"
        );
    }
}

#[test]
fn req_4_an_unsolicited_syn_is_dropped_in_silence() {
    let mut kit = kit();
    let outside = tcp(OUTSIDE_ADDRESS.octets(), 40_000);
    let remote = tcp(REMOTE_END.0, REMOTE_END.1);
    let out = send(&mut kit, OUTSIDE, remote, outside, flagged(SYN));
    assert_eq!(out.verdict, Verdict::Drop(Reason::NoBinding));
    assert!(out.emitted.is_empty());
}

#[test]
fn an_established_segment_writes_nothing() {
    let mut kit = kit();
    talk(&mut kit, &HANDSHAKE);
    talk(&mut kit, &[(false, ACK)]);
    let before = kit.state().sessions.tally();
    let digest = digests(&kit);
    talk(
        &mut kit,
        &[(true, ACK), (false, ACK), (true, TcpFlags::PSH | ACK)],
    );
    assert_eq!(digests(&kit), digest);
    assert_eq!(kit.state().sessions.tally(), before);
}
