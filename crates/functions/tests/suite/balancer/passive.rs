//! What flows say of backends: clients that they refused or did not answer.

use asterism_function::testkit::{ClusterKit, late_everywhere, measured};
use asterism_function::{Endpoint, Reason, TcpFlags, Verdict};
use asterism_functions::balancer::{Balancer, Choice, Mode, Service};

use crate::balancer::network::*;

/// Clients' numbers of one test, far from all others.
const LATER: u32 = 10_000;

fn watched(backends: u8) -> Service {
    Service {
        passive: 3,
        ..service(backends)
    }
}

/// Clients whose SYN went to a backend.
fn clients_of(kit: &mut Kit, dead: u8, count: usize) -> Vec<Endpoint> {
    let opens = (0..LATER).map(client);
    let mut got = opens.filter(|one| opened(kit, *one, asked()) == dead);
    (0..count).map(|_| got.next().unwrap()).collect()
}

fn is_avoided(kit: &mut Kit, dead: u8, from: u32) -> bool {
    (from..from + 50).all(|number| opened(kit, client(number), asked()) != dead)
}

#[test]
fn a_backend_that_does_not_answer_gets_no_more_flows_until_it_answers() {
    let mut kit = kit(vec![watched(4)]);
    let clients = clients_of(&mut kit, 2, 12);
    let resend = |kit: &mut Kit| {
        let again = clients.iter().map(|one| opened(kit, *one, asked()));
        again.filter(|backend| *backend == 2).count()
    };
    // It had no time to answer: for a whole second nothing counts.
    assert_eq!(resend(&mut kit), 12);
    assert!(!is_avoided(&mut kit, 2, LATER));
    kit.advance(1);
    assert_eq!(resend(&mut kit), 12);
    kit.advance(1);
    assert!(is_avoided(&mut kit, 2, LATER));
    // The others' flows are where they were, and those that were informed of the death are answered by others.
    assert_eq!(resend(&mut kit), 0);
    // Its queue was long: it answers one after all, but that one was moved.
    kit.advance(1);
    let late = clients_of(&mut kit, 0, 1)[0];
    let outcome = send(&mut kit, BACKENDS, endpoint_of(0), late, SYN_ACK);
    assert_eq!(outcome.verdict, Verdict::Forward(CLIENTS));
    assert!(is_avoided(&mut kit, 2, 2 * LATER), "another one answered");
}

/// Anyone who sends each SYN twice before a backend can answer takes none away that lives, however many they are and whenever
/// a second ends.
#[test]
fn syns_that_are_sent_twice_take_no_living_backend_away() {
    let mut kit = kit(vec![watched(2)]);
    let mut number = 0;
    for _ in 0..40 {
        let forged: Vec<_> = (number..number + 24).map(client).collect();
        number += 24;
        let mut open: Vec<_> = forged
            .iter()
            .map(|one| (*one, opened(&mut kit, *one, asked())))
            .collect();
        // At the end of a second, so that the first SYNs are in one and the rest in the next.
        kit.advance(1);
        for (one, backend) in &open {
            assert_eq!(opened(&mut kit, *one, asked()), *backend);
        }
        assert!((0..2).all(|backend| !is_avoided(&mut kit, backend, LATER * 3)));
        // Then they are answered.
        for (one, backend) in open.drain(..) {
            send(&mut kit, BACKENDS, endpoint_of(backend), one, SYN_ACK);
        }
    }
}

/// What is damaged a backend does not answer, nor a SYN with FIN; anyone who sends such takes none away that lives.
#[test]
fn syns_that_no_backend_answers_take_none_away() {
    let damaged = |number| {
        let mut bytes = frame(CLIENTS, client(number), asked(), SYN);
        bytes[50] ^= 1;
        bytes
    };
    let with_fin = |number| {
        let flags = TcpFlags(SYN.0 | TcpFlags::FIN.0);
        frame(CLIENTS, client(number), asked(), flags)
    };
    let kinds: [&dyn Fn(u32) -> Vec<u8>; 2] = [&damaged, &with_fin];
    for of in kinds {
        let mut kit = kit(vec![watched(3)]);
        for number in 0..72 {
            for _ in 0..2 {
                let outcome = kit.packet(CLIENTS, &of(number));
                assert_eq!(outcome.verdict, Verdict::Forward(BACKENDS));
            }
        }
        kit.advance(2);
        assert_eq!(kit.state().health.len_now(), 0, "nothing was noted");
        assert!((0..3).all(|backend| !is_avoided(&mut kit, backend, LATER)));
    }
}

/// Flows alone never leave a service without backends; checks may.
#[test]
fn where_flows_speak_against_all_backends_they_are_not_heeded() {
    for choice in [Choice::Hash, Choice::LeastConnections] {
        let service = Service {
            choice,
            checked: true,
            ..watched(3)
        };
        let mut kit = kit(vec![service]);
        for _ in 0..2 {
            for number in 0..72 {
                opened(&mut kit, client(number), asked());
            }
        }
        kit.advance(2);
        assert_eq!(measured(kit.function(), kit.state(), "alive_backends"), 0);
        let got: std::collections::BTreeSet<_> = (LATER..LATER + 60)
            .map(|number| opened(&mut kit, client(number), asked()))
            .collect();
        assert_eq!(got.len(), 3);
        // Those that are dead by checks stay so.
        tell(&mut kit, 0, endpoint_of(1), true);
        assert!(is_avoided(&mut kit, 1, 2 * LATER));
        for backend in [0, 2] {
            tell(&mut kit, 0, endpoint_of(backend), true);
        }
        let refused = send(&mut kit, CLIENTS, client(3 * LATER), asked(), SYN);
        assert_eq!(refused.verdict, Verdict::Drop(Reason::NoBackend));
        // One that hosts find alive again is better than none, whatever flows say of it.
        kit.advance(1);
        tell(&mut kit, 0, endpoint_of(1), false);
        assert_eq!(opened(&mut kit, client(3 * LATER), asked()), 1);
    }
}

/// The first answer passes an instance that has not heard of the failure; the backend sends it again, as its client says nothing.
#[test]
fn a_syn_that_a_backend_sends_again_clears_what_its_first_one_could_not() {
    let function = balancer(config(vec![watched(3)]));
    let mut two: ClusterKit<Balancer> = ClusterKit::new(function, 2, 7);
    two.advance_us(50_000);
    let opens = |two: &mut ClusterKit<Balancer>, number| {
        let bytes = frame(CLIENTS, client(number), asked(), SYN);
        ends_of(&two.packet(0, CLIENTS, &bytes).packet).destination()
    };
    let forged: Vec<_> = (0..60)
        .map(|number| (number, opens(&mut two, number)))
        .collect();
    two.exchange();
    for (number, backend) in &forged {
        assert_eq!(opens(&mut two, *number), *backend);
        let answer = frame(BACKENDS, *backend, client(*number), SYN_ACK);
        two.packet(1, BACKENDS, &answer);
    }
    two.exchange();
    two.advance_us(1_000_000);
    for (number, backend) in &forged {
        let answer = frame(BACKENDS, *backend, client(*number), SYN_ACK);
        two.packet(1, BACKENDS, &answer);
    }
    two.exchange();
    two.advance_us(1_000_000);
    let seen: std::collections::BTreeSet<_> = (LATER..LATER + 60)
        .map(|number| opens(&mut two, number))
        .collect();
    assert_eq!(seen.len(), 3, "all of them live");
}

#[test]
fn an_answer_brings_it_back_and_so_does_time() {
    let mut kit = kit(vec![watched(3)]);
    let clients = clients_of(&mut kit, 1, 13);
    let waits = clients[12];
    let die = |kit: &mut Kit, clients: &[Endpoint]| {
        for one in clients {
            let outcome = send(kit, BACKENDS, endpoint_of(1), *one, RST_ACK);
            assert_eq!(outcome.verdict, Verdict::Forward(CLIENTS));
        }
    };
    die(&mut kit, &clients[..12]);
    assert!(is_avoided(&mut kit, 1, LATER));
    kit.advance(1);
    send(&mut kit, BACKENDS, endpoint_of(1), waits, SYN_ACK);
    assert!(!is_avoided(&mut kit, 1, 2 * LATER));

    let mut kit = crate::balancer::network::kit(vec![watched(3)]);
    let clients = clients_of(&mut kit, 1, 12);
    die(&mut kit, &clients);
    kit.advance(30);
    assert!(is_avoided(&mut kit, 1, LATER));
    kit.advance(1);
    assert!(!is_avoided(&mut kit, 1, 2 * LATER), "it is tried again");
}

#[test]
fn one_client_does_not_make_a_backend_dead_and_resets_of_open_connections_say_nothing() {
    let mut kit = kit(vec![watched(3)]);
    let clients = clients_of(&mut kit, 1, 12);
    for _ in 0..20 {
        assert_eq!(opened(&mut kit, clients[0], asked()), 1);
        kit.advance(1);
    }
    for one in &clients[1..] {
        send(&mut kit, BACKENDS, endpoint_of(1), *one, SYN_ACK);
        send(&mut kit, CLIENTS, *one, asked(), ACK);
        send(&mut kit, BACKENDS, endpoint_of(1), *one, RST);
    }
    assert!(!is_avoided(&mut kit, 1, LATER));
    // Nor do resets of connections in the middle of which it was asked: nobody knew whose they were.
    let mut kit = crate::balancer::network::kit(vec![watched(3)]);
    for number in 0..60 {
        let sent = send(&mut kit, CLIENTS, client(number), asked(), ACK);
        let backend = ends_of(&sent.packet).destination();
        send(&mut kit, BACKENDS, backend, client(number), RST);
    }
    assert!((0..3).all(|backend| !is_avoided(&mut kit, backend, LATER)));
    // Where nothing fails, nothing is written of backends.
    let mut kit = crate::balancer::network::kit(vec![watched(3)]);
    for one in clients_of(&mut kit, 1, 12) {
        send(&mut kit, BACKENDS, endpoint_of(1), one, SYN_ACK);
    }
    assert_eq!(kit.state().health.len_now(), 0);
    // Where flows are not to say anything, they do not.
    let mut kit = crate::balancer::network::kit(vec![service(3)]);
    for one in clients_of(&mut kit, 1, 12) {
        send(&mut kit, BACKENDS, endpoint_of(1), one, RST_ACK);
    }
    assert!(!is_avoided(&mut kit, 1, LATER));
    assert_eq!(kit.state().health.len_now(), 0);
}

/// SYNs by one instance, refusals by the second, and the third avoids the backend.
#[test]
fn instances_find_out_together() {
    for choice in [Choice::Hash, Choice::LeastConnections] {
        let service = Service {
            choice,
            ..watched(3)
        };
        let function = balancer(config(vec![service]));
        let mut three: ClusterKit<Balancer> = ClusterKit::new(function, 3, 7);
        three.advance_us(50_000);
        let goes_to = |three: &mut ClusterKit<Balancer>, member, number| {
            let bytes = frame(CLIENTS, client(number), asked(), SYN);
            let outcome = three.packet(member, CLIENTS, &bytes);
            assert_eq!(outcome.verdict, Verdict::Forward(BACKENDS));
            ends_of(&outcome.packet).destination()
        };
        let of: Vec<_> = (0..60)
            .map(|number| (goes_to(&mut three, 0, number), number))
            .collect();
        three.exchange();
        for (server, number) in of {
            if server == endpoint_of(1) {
                let bytes = frame(BACKENDS, server, client(number), RST_ACK);
                three.packet(1, BACKENDS, &bytes);
            }
        }
        assert!((LATER..LATER + 60).any(|number| goes_to(&mut three, 2, number) == endpoint_of(1)));
        three.exchange();
        for member in 0..3 {
            let from = 2 * LATER + 100 * member as u32;
            for number in from..from + 60 {
                assert_ne!(goes_to(&mut three, member, number), endpoint_of(1));
            }
        }
        three.agree();
    }
}

#[test]
fn late_reads_change_nothing() {
    let mut steps = Vec::new();
    for number in 0..30 {
        let opens = frame(CLIENTS, client(number), asked(), SYN);
        steps.extend([(0, CLIENTS, opens.clone()), (1, CLIENTS, opens)]);
        for server in 0..3 {
            let flags = if server == 0 { SYN_ACK } else { RST_ACK };
            let answer = frame(BACKENDS, endpoint_of(server), client(number), flags);
            steps.push((0, BACKENDS, answer));
        }
    }
    late_everywhere(|| balancer(config(vec![watched(3)])), &steps);
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let udp = Service {
        protocol: asterism_function::Protocol::UDP,
        ..watched(2)
    };
    let direct = Service {
        passive: 1,
        ..with_mode(Mode::Direct)
    };
    let many = Service {
        passive: 6,
        ..watched(2)
    };
    for (service, needle) in [(udp, "not seen"), (direct, "not seen"), (many, "too many")] {
        let faults = Balancer::new(config(vec![service])).unwrap_err();
        assert!(faults[0].to_string().contains(needle), "{faults:?}");
    }
}
