//! Hosts of several builds: what they say of themselves, what they speak, and what they refuse.

use super::hosts::Hosts;
use super::*;

const TWO: Versions = Versions {
    oldest: 1,
    newest: 2,
};
const THREE: Versions = Versions {
    oldest: 2,
    newest: 3,
};

fn started(builds: &[Versions], seed: u64) -> Hosts {
    let mut hosts = Hosts::new(seed);
    for (place, &versions) in builds.iter().enumerate() {
        let member = place as u16 + 1;
        hosts.versions = versions;
        hosts.start(member, 100 + u64::from(member), member as u8);
    }
    hosts
}

fn spoken(hosts: &Hosts) -> Vec<u8> {
    let hosts = hosts.hosts.iter();
    hosts.map(|host| host.channel.speaks()).collect()
}

fn refused(hosts: &Hosts) -> u64 {
    let all = 0..hosts.hosts.len();
    let versions = [Refusal::FutureVersion, Refusal::PastVersion];
    all.map(|at| {
        let counts = versions.map(|reason| hosts.refused(at, reason));
        counts.iter().sum::<u64>()
    })
    .sum()
}

#[test]
fn hosts_speak_what_all_understand_and_change_when_the_last_is_upgraded() {
    for seed in 0..8 {
        let mut hosts = started(&[ONE, ONE, ONE], seed);
        (hosts.loss_percent, hosts.repeat_percent) = (20, 10);
        hosts.run_ms(10_000);
        for at in 0..3 {
            assert_eq!(spoken(&hosts), [1, 1, 1]);
            hosts.versions = TWO;
            hosts.restart(at, 200 + at as u64, 20 + at as u8);
            hosts.run_ms(20_000);
            assert_eq!(refused(&hosts), 0, "seed {seed}, {at} upgraded");
        }
        assert_eq!(spoken(&hosts), [2, 2, 2], "seed {seed}");
        let member = MemberId(2);
        assert_eq!(hosts.hosts[0].channel.understood_by(member), Some(TWO));
        let event = Event::Speaks { version: 2 };
        assert!(hosts.hosts[2].events.contains(&event));
        // One goes back: it must be understood as soon as it is admitted.
        hosts.versions = ONE;
        hosts.restart(1, 300, 40);
        hosts.run_ms(20_000);
        assert_eq!(spoken(&hosts), [1, 1, 1], "seed {seed}");
    }
}

#[test]
fn who_is_left_out_counts_no_more() {
    let mut hosts = started(&[TWO, ONE, TWO], 1);
    hosts.run_ms(5_000);
    assert_eq!(spoken(&hosts), [1, 1, 1]);
    for at in [0, 2] {
        hosts.hosts[at].channel.set_takes_part(MemberId(2), false);
        assert_eq!(hosts.hosts[at].channel.speaks(), 2);
    }
    hosts.hosts[0].channel.set_takes_part(MemberId(2), true);
    assert_eq!(hosts.hosts[0].channel.speaks(), 1);
    hosts.hosts[0].channel.revoke(MemberId(3));
    assert_eq!(hosts.hosts[0].channel.understood_by(MemberId(3)), None);
}

#[test]
fn builds_two_versions_apart_are_reported_from_each_other() {
    let mut hosts = started(&[ONE, THREE], 2);
    hosts.run_ms(5_000);
    assert_eq!(
        (hosts.admitted(0, 2), hosts.admitted(1, 1)),
        (None, None),
        "they have no version in common"
    );
    assert!(hosts.refused(0, Refusal::FutureVersion) > 0);
    assert!(hosts.refused(1, Refusal::PastVersion) > 0);
    assert!(hosts.hosts.iter().all(|host| host.opened.is_empty()));
}

#[test]
fn a_build_that_dropped_the_oldest_version_joins_those_that_have_not() {
    let mut hosts = started(&[TWO, TWO, THREE], 3);
    hosts.run_ms(5_000);
    assert_eq!(spoken(&hosts), [2, 2, 2]);
    assert!(hosts.hosts.iter().all(|host| host.opened.len() > 40));
}
