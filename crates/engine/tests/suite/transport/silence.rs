//! Paths that carry one direction only, and members that fall silent: each host reports the fault that it has, and its cause.

use std::time::{Duration, Instant};

use asterism_engine::transport::{Notice, PeerFault};
use asterism_placement::MemberId;

use crate::transport::hostile::relayed_without;
use crate::transport::hosts::{Host, meet};
use crate::transport::relay::Conditions;

/// The fault that a host has with another member now.
fn fault(host: &Host, with: u16) -> Option<PeerFault> {
    let snapshot = host.snapshot();
    let member = snapshot.member(MemberId(with)).unwrap();
    member.fault.map(|(fault, _)| fault)
}

/// Waits until all these faults, of a host with a member, are as said, and no others are there.
fn wait_for(hosts: &[Host], faults: &[(u16, u16, PeerFault)]) {
    let begun = Instant::now();
    let count = hosts.len() as u16;
    let pairs = || (0..count).flat_map(|host| (0..count).map(move |with| (host, with)));
    loop {
        let found: Vec<_> = pairs()
            .filter_map(|(host, with)| Some((host, with, fault(&hosts[usize::from(host)], with)?)))
            .collect();
        if found == faults {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(25),
            "{found:?}, not {faults:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

const SILENT: PeerFault = PeerFault::Silent {
    was_heard: true,
    is_unreachable: false,
};

#[test]
fn one_way_loss_is_reported_at_both_ends_with_its_cause() {
    let (mut hosts, relay) = relayed_without(2, Conditions::default(), &[]);
    meet(&hosts);
    relay.cut(0, 1, true);
    wait_for(&hosts, &[(0, 1, PeerFault::Deaf), (1, 0, SILENT)]);
    relay.cut(0, 1, false);
    wait_for(&hosts, &[]);
    for (host, with, expected) in [(0, 1, PeerFault::Deaf), (1, 0, SILENT)] {
        let member = MemberId(with);
        let is_over = |notice: &Notice| {
            *notice
                == Notice::FaultOver {
                    member,
                    fault: expected,
                }
        };
        let waited = Instant::now();
        while !hosts[host].take_notices().iter().any(is_over) {
            assert!(waited.elapsed() < Duration::from_secs(25), "it is over");
            std::thread::sleep(Duration::from_millis(50));
        }
        let notices = hosts[host].take_notices();
        let begun = notices.iter().position(|one| {
            *one == Notice::Fault {
                member,
                fault: expected,
            }
        });
        let over = notices.iter().position(is_over);
        assert!(begun.is_some() && begun < over, "{notices:?}");
        let stuck = |one: &Notice| {
            matches!(
                one,
                Notice::Fault {
                    fault: PeerFault::LongLost { .. },
                    ..
                }
            )
        };
        assert!(!notices.iter().any(stuck), "no MTU is blamed");
    }
}

#[test]
fn a_third_member_tells_a_cut_path_from_a_dead_member() {
    let (mut hosts, relay) = relayed_without(3, Conditions::default(), &[]);
    meet(&hosts);
    relay.cut(0, 1, true);
    let heard_by = MemberId(2);
    wait_for(
        &hosts,
        &[
            (0, 1, PeerFault::Deaf),
            (1, 0, PeerFault::SilentHere { heard_by }),
        ],
    );
    // All paths to one: it is cut off, and the others see that it does not receive them.
    relay.cut(2, 1, true);
    wait_for(
        &hosts,
        &[
            (0, 1, PeerFault::Deaf),
            (1, 0, PeerFault::Isolated),
            (1, 2, PeerFault::Isolated),
            (2, 1, PeerFault::Deaf),
        ],
    );
    relay.cut(0, 1, false);
    relay.cut(2, 1, false);
    wait_for(&hosts, &[]);
    drop(hosts.remove(0).stop());
    let begun = Instant::now();
    let is_left = |host: &Host| fault(host, 0) == Some(PeerFault::Left);
    while !hosts.iter().all(is_left) {
        assert!(begun.elapsed() < Duration::from_secs(25), "it left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_path_that_was_never_there_is_reported_before_any_session() {
    let (hosts, _relay) = relayed_without(2, Conditions::default(), &[(0, 1)]);
    let never = PeerFault::Silent {
        was_heard: false,
        is_unreachable: false,
    };
    wait_for(&hosts, &[(0, 1, PeerFault::HandshakeLost), (1, 0, never)]);
}
