//! Hosts that register: any names, and why one gets no place.

use super::*;
use crate::{FORGOTTEN_AFTER, NAMES_MAX};

fn open_link() -> OrchestratorLink {
    OrchestratorLink::new(OrchestratorLinkConfig {
        cluster: ClusterId(9),
        keys: ring(1),
        salt: [2; 16],
        secret: [2; 32],
        names: Names::Any,
    })
}

#[test]
fn a_host_registers_and_learns_why_it_gets_no_place() {
    let mut pair = Pair::new();
    pair.orchestrator = open_link();
    for at in ["192.0.2.7:7400", "[2001:db8::7]:7400"] {
        let mut facts = heartbeat(process(7, 1), Stage::Awaiting, 0);
        (facts.host, facts.address) = ("new".to_owned(), Some(at.parse().unwrap()));
        pair.facts = facts.clone();
        pair.run(100, |_| false);
        assert_eq!(pair.believed.last(), Some(&facts));
    }
    for why in [
        Some(RegistrationRefused::NoFreePlace),
        Some(RegistrationRefused::AddressInUse),
        None,
    ] {
        pair.orchestrator
            .refuse("new", process(7, 2), Some(RegistrationRefused::Invalid));
        pair.orchestrator.refuse("new", process(7, 1), why);
        // Whatever is lost, it is said again.
        pair.run(400, |number| number % 3 == 0);
        assert_eq!(pair.registration.pop(), Some(why));
        assert_eq!(pair.registration, []);
    }
    pair.orchestrator
        .refuse("new", process(7, 1), Some(RegistrationRefused::NameInUse));
    let text = "epoch = 3";
    pair.orchestrator
        .offer(pair.now, "new", process(7, 1), 3, text)
        .unwrap();
    pair.run(100, |_| false);
    assert_eq!(
        pair.epochs,
        [(3, text.to_owned())],
        "an epoch ends a refusal"
    );
}

#[test]
fn a_last_word_is_answered_only_once_it_was_sent() {
    let mut pair = Pair::new();
    pair.run(200, |_| false);
    while pair.host.poll_timeout().is_none_or(|at| at > pair.now) {
        pair.run(1, |_| false);
    }
    // One was sent in this millisecond, and is answered: the next change waits a little.
    pair.run(1, |_| false);
    assert!(pair.host.is_answered());
    pair.facts.stage = Stage::Ended(1);
    pair.host.set(pair.now, pair.facts.clone());
    assert!(!pair.host.is_answered(), "nobody has heard it");
    pair.run(20, |_| false);
    assert!(pair.host.is_answered());
    assert_eq!(pair.believed.last().unwrap().stage, Stage::Ended(1));
}

#[test]
fn any_names_are_heard_so_many_at_a_time() {
    let mut link = open_link();
    let mut now = Time::ZERO + MS;
    let mut hear = |now: Time, number: usize| {
        let mut host = host_link(1);
        let mut facts = heartbeat(process(number as u64, 1), Stage::Awaiting, 0);
        facts.host = format!("n{number}");
        host.set(now, facts);
        for step in 0..2 {
            let at = now + MS * 50 * step;
            host.handle_timeout(at);
            while let Some((_, mut datagram)) = host.poll_transmit() {
                link.handle(at, address(1), &mut datagram);
            }
            while let Some((_, mut reply)) = link.poll_transmit() {
                host.handle(at, 0, &mut reply);
            }
        }
        let heard = link.poll_event().is_some();
        (heard, link.traffic().refused.names)
    };
    for number in 0..NAMES_MAX {
        assert_eq!(hear(now, number), (true, 0), "{number}");
    }
    assert_eq!(hear(now, 500), (false, 1), "all others were heard just now");
    assert_eq!(hear(now, 3).1, 1, "one that is known is heard");
    now = now + FORGOTTEN_AFTER + MS * 100;
    assert_eq!(hear(now, 500), (true, 1));
    assert_eq!(hear(now, 501), (true, 1));
}
