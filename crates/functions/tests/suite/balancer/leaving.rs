//! Flows of backends that take no new ones, in each mode and for each cause: what stays, what goes, and what a stranger cannot change.

use asterism_function::testkit::Outcome;
use asterism_function::{Endpoint, PortNumber, Protocol, Reason, TcpFlags, Verdict, build};
use asterism_functions::balancer::{Mode, Service};

use crate::balancer::network::*;

const MODES: [Mode; 3] = [Mode::Nat, Mode::Direct, Mode::Tunnel];
/// Of the first connection.
const FIRST: u32 = 100;
/// Of the backend that answers it.
const ANSWER: u32 = 500;
/// Of another connection, by the same ports.
const SECOND: u32 = 3_000_000_000;

/// Why the first backend takes no new flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Removed,
    Drained,
    Weightless,
    Dead,
}

/// Of a backend that lives.
const ALIVE: [Cause; 3] = [Cause::Removed, Cause::Drained, Cause::Weightless];
const ALL: [Cause; 4] = [
    Cause::Removed,
    Cause::Drained,
    Cause::Weightless,
    Cause::Dead,
];

/// A service of the backend 0 alone.
fn before(mode: Mode, protocol: Protocol) -> Service {
    let mut service = with_mode(mode);
    service.protocol = protocol;
    service.checked = true;
    service.backends.truncate(1);
    service
}

/// The backend 0 takes no new flows from here on, and the backend 1 does.
fn leave(kit: &mut Kit, (mode, protocol): (Mode, Protocol), cause: Cause) {
    let mut after = with_mode(mode);
    after.protocol = protocol;
    after.checked = true;
    after.backends.truncate(2);
    match cause {
        Cause::Removed => {
            after.backends.remove(0);
        }
        Cause::Drained => after.backends[0].drains = true,
        Cause::Weightless => after.backends[0].weight = 0,
        Cause::Dead => {}
    }
    kit.replace_function(balancer(config(vec![after])));
    if cause == Cause::Dead {
        tell(kit, 0, server(protocol), true);
    }
}

/// The backend 0, as it answers.
fn server(protocol: Protocol) -> Endpoint {
    Endpoint::new(backend(0).address, asked().port, protocol)
}

fn segment(flags: TcpFlags, sequence: u32, acknowledgement: u32) -> build::Segment {
    build::Segment {
        sequence,
        acknowledgement,
        ..build::Segment::with_flags(flags)
    }
}

fn tcp(kit: &mut Kit, port: PortNumber, segment: &build::Segment) -> Outcome {
    let (from, to) = match port {
        CLIENTS => (client(1), asked()),
        _ => (server(Protocol::TCP), client(1)),
    };
    let mut out = vec![0; 200];
    let header = header(port, from.address, to.address);
    let length = build::tcp4(&header, from.port, to.port, segment, b"asterism", &mut out);
    out.truncate(length.unwrap());
    kit.packet(port, &out)
}

/// The number of the backend that a packet goes to, in any mode.
fn backend_of(outcome: &Outcome) -> u8 {
    let frame = match &outcome.emitted[..] {
        [(BACKENDS, tunnelled)] => tunnelled,
        _ => {
            assert_eq!(outcome.verdict, Verdict::Forward(BACKENDS));
            &outcome.packet
        }
    };
    frame[5]
}

/// Opens the first connection, and lets its ends agree.
fn establish(kit: &mut Kit, mode: Mode) {
    let out = tcp(kit, CLIENTS, &segment(SYN, FIRST, 0));
    assert_eq!(backend_of(&out), 0);
    if mode == Mode::Nat {
        let answer = segment(SYN_ACK, ANSWER, FIRST + 1);
        left_by(&tcp(kit, BACKENDS, &answer), CLIENTS);
    }
    let out = tcp(kit, CLIENTS, &segment(ACK, FIRST + 1, ANSWER + 1));
    assert_eq!(backend_of(&out), 0);
}

fn each(protocol: Protocol, causes: &[Cause], mut then: impl FnMut(&mut Kit, Mode, Cause)) {
    for mode in MODES {
        for &cause in causes {
            let mut kit = kit(vec![before(mode, protocol)]);
            then(&mut kit, mode, cause);
        }
    }
}

#[test]
fn datagrams_without_answers_leave() {
    each(Protocol::UDP, &ALL, |kit, mode, cause| {
        let one = |kit: &mut Kit| {
            let out = send(kit, CLIENTS, udp(client(1)), udp(asked()), ACK);
            backend_of(&out)
        };
        assert_eq!(one(kit), 0);
        leave(kit, (mode, Protocol::UDP), cause);
        // A dead one answers nobody: its flows leave at once.
        let is_dead = cause == Cause::Dead;
        assert_eq!(one(kit), u8::from(is_dead), "{mode} {cause:?}");
        let mut last = 0;
        for _ in 0..8 {
            kit.advance(60);
            last = one(kit);
        }
        assert_eq!(last, 1, "{mode} {cause:?}");
    });
}

#[test]
fn datagrams_with_answers_stay() {
    for cause in ALIVE {
        let mut kit = kit(vec![before(Mode::Nat, Protocol::UDP)]);
        send(&mut kit, CLIENTS, udp(client(1)), udp(asked()), ACK);
        leave(&mut kit, (Mode::Nat, Protocol::UDP), cause);
        for _ in 0..20 {
            kit.advance(60);
            let (from, to) = (server(Protocol::UDP), udp(client(1)));
            left_by(&send(&mut kit, BACKENDS, from, to, ACK), CLIENTS);
            let out = send(&mut kit, CLIENTS, udp(client(1)), udp(asked()), ACK);
            assert_eq!(backend_of(&out), 0, "{cause:?}");
        }
    }
}

#[test]
fn an_established_connection_stays_and_another_by_its_ports_leaves() {
    each(Protocol::TCP, &ALIVE, |kit, mode, cause| {
        establish(kit, mode);
        leave(kit, (mode, Protocol::TCP), cause);
        let what = format!("{mode} {cause:?}");
        let goes_on = segment(ACK, FIRST + 9, ANSWER + 1);
        assert_eq!(backend_of(&tcp(kit, CLIENTS, &goes_on)), 0, "{what}");
        // Its own SYN, which comes late.
        let out = tcp(kit, CLIENTS, &segment(SYN, FIRST, 0));
        assert_eq!(backend_of(&out), 0, "{what}");
        // Another one, forged or not: until it is acknowledged both connections go on.
        for _ in 0..2 {
            let out = tcp(kit, CLIENTS, &segment(SYN, SECOND, 0));
            assert_eq!(backend_of(&out), 1, "{what}");
            assert_eq!(backend_of(&tcp(kit, CLIENTS, &goes_on)), 0, "{what}");
        }
        assert_eq!(kit.state().flows.len_now(), 2, "{what}");
        // The client goes on with the second one.
        let won = segment(ACK, SECOND + 1, 901);
        assert_eq!(backend_of(&tcp(kit, CLIENTS, &won)), 1, "{what}");
        assert_eq!(kit.state().flows.len_now(), 1, "{what}");
        let later = segment(ACK, SECOND + 9, 901);
        assert_eq!(backend_of(&tcp(kit, CLIENTS, &later)), 1, "{what}");
    });
}

/// Nothing is lost with a connection whose backend is dead by its checks, so any SYN leaves at once. All else of it stays.
#[test]
fn an_established_connection_of_a_dead_backend_is_left_at_once() {
    each(Protocol::TCP, &[Cause::Dead], |kit, mode, cause| {
        establish(kit, mode);
        leave(kit, (mode, Protocol::TCP), cause);
        let goes_on = segment(ACK, FIRST + 9, ANSWER + 1);
        assert_eq!(backend_of(&tcp(kit, CLIENTS, &goes_on)), 0, "{mode}");
        let out = tcp(kit, CLIENTS, &segment(SYN, SECOND, 0));
        assert_eq!(backend_of(&out), 1, "{mode}");
        assert_eq!(kit.state().flows.len_now(), 1, "{mode}");
    });
}

#[test]
fn a_forged_syn_is_forgotten_and_its_connection_stays() {
    each(Protocol::TCP, &ALIVE, |kit, mode, cause| {
        establish(kit, mode);
        leave(kit, (mode, Protocol::TCP), cause);
        tcp(kit, CLIENTS, &segment(SYN, SECOND, 0));
        for seconds in [30, 100, 100] {
            kit.advance(seconds);
            let goes_on = segment(ACK, FIRST + 9, ANSWER + 1);
            let out = tcp(kit, CLIENTS, &goes_on);
            assert_eq!(backend_of(&out), 0, "{mode} {cause:?}");
        }
        assert_eq!(kit.state().flows.len_now(), 1, "{mode} {cause:?}");
    });
}

#[test]
fn a_connection_that_is_not_answered_leaves() {
    each(Protocol::TCP, &ALL, |kit, mode, cause| {
        tcp(kit, CLIENTS, &segment(SYN, FIRST, 0));
        leave(kit, (mode, Protocol::TCP), cause);
        for number in [FIRST, SECOND] {
            let out = tcp(kit, CLIENTS, &segment(SYN, number, 0));
            assert_eq!(backend_of(&out), 1, "{mode} {cause:?}");
        }
        assert_eq!(kit.state().flows.len_now(), 1, "{mode} {cause:?}");
    });
}

#[test]
fn a_half_closed_connection_keeps_its_backend() {
    each(Protocol::TCP, &ALL, |kit, mode, cause| {
        establish(kit, mode);
        let fin = segment(FIN_ACK, FIRST + 1, ANSWER + 1);
        assert_eq!(backend_of(&tcp(kit, CLIENTS, &fin)), 0);
        leave(kit, (mode, Protocol::TCP), cause);
        for seconds in [20, 100, 100] {
            kit.advance(seconds);
            let acknowledges = segment(ACK, FIRST + 10, ANSWER + 1);
            let out = tcp(kit, CLIENTS, &acknowledges);
            assert_eq!(backend_of(&out), 0, "{mode} {cause:?}");
        }
        kit.advance(3_600 * 3);
        assert_eq!(kit.state().flows.len_now(), 0, "{mode} {cause:?}");
    });
}

#[test]
fn a_blind_reset_ends_nothing() {
    for mode in MODES {
        for blind in [SECOND, FIRST.wrapping_sub(1 << 20), FIRST + (1 << 20)] {
            let mut kit = kit(vec![before(mode, Protocol::TCP)]);
            establish(&mut kit, mode);
            let reset = segment(RST, blind, 0);
            assert_eq!(backend_of(&tcp(&mut kit, CLIENTS, &reset)), 0);
            if mode == Mode::Nat {
                left_by(&tcp(&mut kit, BACKENDS, &reset), CLIENTS);
            }
            kit.advance(3_600);
            assert_eq!(kit.state().flows.len_now(), 1, "{mode} {blind}");
            // Its own ends it.
            tcp(&mut kit, CLIENTS, &segment(RST, FIRST + 1, 0));
            kit.advance(60);
            assert_eq!(kit.state().flows.len_now(), 0, "{mode} {blind}");
        }
    }
}

/// A client on the backends' link; what the backend sees; what it is refused.
#[test]
fn a_backend_is_a_client_of_its_own_service() {
    let mut kit = kit(vec![service(1)]);
    let inside = Endpoint::new(backend(0).address, 4_000, Protocol::TCP);
    let out = send(&mut kit, BACKENDS, inside, asked(), SYN);
    let seen = left_by(&out, BACKENDS);
    assert_eq!(seen.destination(), endpoint_of(0));
    assert_eq!(seen.source().address, OWN_INSIDE);
    assert_eq!(out.packet[..6], station(0).0);
    let out = send(&mut kit, BACKENDS, endpoint_of(0), seen.source(), SYN_ACK);
    let answer = left_by(&out, BACKENDS);
    assert_eq!((answer.source(), answer.destination()), (asked(), inside));
    let out = send(&mut kit, BACKENDS, inside, asked(), ACK);
    assert_eq!(left_by(&out, BACKENDS), seen);
    assert_eq!(kit.state().flows.len_now(), 1);
    // In the other modes backends have the service's address themselves.
    for mode in [Mode::Direct, Mode::Tunnel] {
        let mut kit = Kit::new(balancer(config(vec![with_mode(mode)])));
        let out = send(&mut kit, BACKENDS, inside, asked(), SYN);
        assert_eq!(out.verdict, Verdict::Drop(Reason::NoBinding), "{mode}");
    }
}
