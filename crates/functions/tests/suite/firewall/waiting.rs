//! What waits for what other instances may have seen, and what does not.

use asterism_function::testkit::{ClusterKit, Outcome};
use asterism_function::{Late, PortNumber, Reason, TcpFlags, Verdict};
use asterism_functions::firewall::{Firewall, FirewallConfig};

use crate::firewall::packets::*;

const CLIENT: (u32, u16) = (5, 40_000);
const SERVER: (u32, u16) = (2_000_000, 443);
const SETTLE_US: u32 = 20_000;

fn cluster() -> ClusterKit<Firewall> {
    let function = Firewall::new(FirewallConfig {
        settle_us: SETTLE_US,
        ..config()
    });
    ClusterKit::new(function, 2, 7)
}

/// A packet that arrives now: `Err` if it waits.
fn comes(
    kit: &mut ClusterKit<Firewall>,
    member: usize,
    port: PortNumber,
    packet: &[u8],
) -> Result<Verdict, Late> {
    let now = kit.now_us();
    let outcome: Result<Outcome, Late> = kit.packet_since(member, now, port, packet);
    outcome.map(|outcome| outcome.verdict)
}

fn passes_now(kit: &mut ClusterKit<Firewall>, member: usize, port: PortNumber, packet: &[u8]) {
    let verdict = comes(kit, member, port, packet).expect("it does not wait");
    assert_eq!(verdict, Verdict::Forward(PortNumber(port.0 ^ 1)));
}

/// A connection that both instances know, with its first data each way.
fn begun(kit: &mut ClusterKit<Firewall>) {
    for (port, packet) in [
        (INSIDE, tcp(CLIENT, SERVER, SYN, (1_000, 0), 0)),
        (OUTSIDE, tcp(SERVER, CLIENT, SYN_ACK, (9_000, 1_001), 0)),
        (INSIDE, tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 0)),
        (INSIDE, tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 500)),
        (OUTSIDE, tcp(SERVER, CLIENT, ACK, (9_001, 1_501), 900)),
    ] {
        passes_now(kit, 0, port, &packet);
    }
    kit.exchange();
}

/// What waits holds up its flow: a forged segment must not, which anybody can send who knows two addresses and ports.
#[test]
fn what_cannot_be_of_an_established_connection_is_dropped_at_once() {
    let (far, window) = (0x4000_0000_u32, 65_536);
    let out_of_window = Ok(Verdict::Drop(Reason::OutOfWindow));
    let no_connection = Ok(Verdict::Drop(Reason::NoConnection));
    let rst_ack = TcpFlags(RST.0 | ACK.0);
    for (flags, sequence, acknowledgement, verdict) in [
        (RST, 9_901 + far, 0, out_of_window),
        (RST, 9_901 + 8 * window, 0, out_of_window),
        (rst_ack, 9_901, 1_501 + far, out_of_window),
        (ACK, 9_901 + far, 1_501, out_of_window),
        (ACK, 9_901, 1_501 + far, out_of_window),
        (
            ACK,
            9_901_u32.wrapping_sub(4 * window),
            1_501,
            out_of_window,
        ),
        (FIN_ACK, 9_901 + far, 1_501, out_of_window),
        (SYN, 77, 0, no_connection),
    ] {
        for member in 0..2 {
            let mut kit = cluster();
            begun(&mut kit);
            let forged = tcp(SERVER, CLIENT, flags, (sequence, acknowledgement), 0);
            let came = comes(&mut kit, member, OUTSIDE, &forged);
            assert_eq!(came, verdict, "{flags:?} {sequence} {acknowledgement}");
        }
    }
}

/// What another instance let through moves the bounds, and its word may be on its way.
#[test]
fn segments_that_overtook_the_word_of_others_before_them_wait() {
    let mut kit = cluster();
    begun(&mut kit);
    let mut sequence = 9_901;
    for _ in 0..200 {
        let segment = tcp(SERVER, CLIENT, ACK, (sequence, 1_501), 1_000);
        passes_now(&mut kit, 0, OUTSIDE, &segment);
        sequence += 1_000;
    }
    let next = tcp(SERVER, CLIENT, ACK, (sequence, 1_501), 1_000);
    let answer = tcp(CLIENT, SERVER, ACK, (1_501, sequence), 0);
    assert!(comes(&mut kit, 1, OUTSIDE, &next).is_err());
    assert!(comes(&mut kit, 1, INSIDE, &answer).is_err());
    kit.tell(0, 1);
    passes_now(&mut kit, 1, OUTSIDE, &next);
    passes_now(&mut kit, 1, INSIDE, &answer);
}

/// The answer to a SYN that uses the ports of an ended connection is none to that one: it waits for the word of its SYN.
#[test]
fn an_answer_that_overtook_the_word_of_a_syn_that_uses_ports_again_waits() {
    let mut kit = cluster();
    begun(&mut kit);
    passes_now(
        &mut kit,
        0,
        INSIDE,
        &tcp(CLIENT, SERVER, FIN_ACK, (1_501, 9_901), 0),
    );
    passes_now(
        &mut kit,
        0,
        OUTSIDE,
        &tcp(SERVER, CLIENT, FIN_ACK, (9_901, 1_502), 0),
    );
    passes_now(
        &mut kit,
        0,
        INSIDE,
        &tcp(CLIENT, SERVER, ACK, (1_502, 9_902), 0),
    );
    kit.exchange();
    passes_now(
        &mut kit,
        0,
        INSIDE,
        &tcp(CLIENT, SERVER, SYN, (7_000_000, 0), 0),
    );
    let answer = tcp(SERVER, CLIENT, SYN_ACK, (50, 7_000_001), 0);
    assert!(comes(&mut kit, 1, OUTSIDE, &answer).is_err());
    kit.tell(0, 1);
    passes_now(&mut kit, 1, OUTSIDE, &answer);
    kit.exchange();
    passes_now(
        &mut kit,
        0,
        INSIDE,
        &tcp(CLIENT, SERVER, ACK, (7_000_001, 51), 0),
    );
    // What nobody asked for any more is dropped, once nobody can tell of a SYN.
    let mut ended = cluster();
    begun(&mut ended);
    passes_now(
        &mut ended,
        0,
        OUTSIDE,
        &tcp(SERVER, CLIENT, RST, (9_901, 0), 0),
    );
    let since = ended.now_us();
    assert!(comes(&mut ended, 0, OUTSIDE, &answer).is_err());
    ended.advance_us(u64::from(SETTLE_US));
    let outcome = ended
        .packet_since(0, since, OUTSIDE, &answer)
        .expect("it waited");
    assert_eq!(outcome.verdict, Verdict::Drop(Reason::NoConnection));
}
