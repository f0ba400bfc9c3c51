//! The cluster's key changes while hosts exchange what they write, over networks good and bad.

use std::time::{Duration, Instant};

use asterism_engine::hash_seed;
use asterism_engine::transport::Notice;
use asterism_secure_channel::{ClusterKey, KeyRing, Refusal};

use crate::transport::hostile::relayed;
use crate::transport::hosts::{Addresses, Host, converge, exercise, host_config, meet};
use crate::transport::relay::Conditions;

/// The keys of these numbers; the first is the one that hosts begin with.
fn ring(ids: &[u8], sending: u8) -> KeyRing {
    let seed = hash_seed(&ClusterKey::from_random(1, [7; 32]));
    let keys = ids
        .iter()
        .map(|&id| ClusterKey::from_random(id, [id - 1 + 7; 32]).with_hash_seed(seed));
    KeyRing::new(keys.collect(), sending).unwrap()
}

fn take(host: &Host, keys: &KeyRing) {
    assert!(host.channel.set_keys(keys.clone()));
    let begun = Instant::now();
    let (sends, ids): (u8, Vec<u8>) = (keys.sending().id(), keys.ids().collect());
    loop {
        let snapshot = host.snapshot();
        if snapshot.sends_under == sends && snapshot.accepts.ids().count() == ids.len() {
            assert!(snapshot.accepts.ids().all(|id| ids.contains(&id)));
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "not taken up");
    }
}

fn admissions(hosts: &mut [Host]) -> usize {
    let each = hosts.iter_mut().map(|host| {
        let notices = host.take_notices().iter();
        notices
            .filter(|notice| format!("{notice:?}").contains("Admitted {"))
            .count()
    });
    each.sum()
}

fn refused(hosts: &[Host], reasons: &[Refusal]) -> u64 {
    let each = hosts.iter().map(|host| {
        let refused = host.snapshot().refused.clone();
        reasons
            .iter()
            .map(|reason| refused.get(*reason))
            .sum::<u64>()
    });
    each.sum()
}

const STEPS: [(&[u8], u8); 6] = [
    (&[1, 2], 1),
    (&[1, 2], 2),
    (&[2], 2),
    (&[2, 3], 2),
    (&[2, 3], 3),
    (&[3], 3),
];

/// Waits until every host has heard every other under this key: what was sent under one before it has come, or never will.
fn hear_each_other_under(hosts: &[Host], key: u8) {
    let begun = Instant::now();
    let hears = |host: &Host| {
        let snapshot = host.snapshot();
        let mut members = snapshot.members.iter();
        members.all(|member| member.progress.member == host.name || member.heard_under == Some(key))
    };
    while !hosts.iter().all(hears) {
        assert!(begun.elapsed() < Duration::from_secs(20), "key {key}");
    }
}

/// Host after host takes each step while all of them write. A key is dropped once nobody is heard under it any more.
fn rotate(hosts: &[Host], each: u32, done: u32) -> u32 {
    let mut done = done;
    for (ids, sending) in STEPS {
        let keys = ring(ids, sending);
        if !ids.contains(&(sending - 1)) {
            hear_each_other_under(hosts, sending);
        }
        for host in hosts {
            for host in hosts {
                let first = u32::from(host.name.0) << 16 | done;
                host.feed(first..first + each);
            }
            done += each;
            take(host, &keys);
        }
    }
    let all = hosts.len() as u32 * done;
    converge(hosts, all.into(), all as usize);
    done
}

#[test]
fn nothing_is_refused_while_keys_change_under_load() {
    let mut hosts = Addresses::new().start(3, |_, _| {});
    meet(&hosts);
    exercise(&hosts, 200, 0);
    let admitted = admissions(&mut hosts);
    let before = refused(&hosts, Refusal::ALL);
    rotate(&hosts, 100, 200);
    assert_eq!(refused(&hosts, Refusal::ALL), before, "not a datagram");
    assert_eq!(admissions(&mut hosts), admitted);
    for host in &hosts {
        let snapshot = host.snapshot();
        let others = snapshot
            .members
            .iter()
            .filter(|member| member.progress.member != host.name);
        for member in others {
            assert_eq!(
                (member.heard_under, member.without_key.datagrams),
                (Some(3), 0)
            );
        }
    }
}

#[test]
fn a_bad_network_and_replays_change_nothing_of_it() {
    let (mut hosts, relay) = relayed(
        2,
        Conditions {
            loss: 0.1,
            copies: 2,
            waiting: 8,
        },
    );
    exercise(&hosts, 200, 0);
    let admitted = admissions(&mut hosts);
    let done = rotate(&hosts, 60, 200);
    assert_eq!(
        admissions(&mut hosts),
        admitted,
        "no session was made again"
    );
    assert_eq!(refused(&hosts, &[Refusal::Forged]), 0);
    // What is overtaken until its key is dropped is lost once more, and sent again under another.
    let late = refused(&hosts, &[Refusal::DroppedKeyId, Refusal::UnknownKeyId]);
    assert!(late < 200, "{late} datagrams of keys that are gone");

    let before: Vec<_> = hosts.iter().map(Host::held).collect();
    let recorded = relay.take_recorded();
    let of_old_keys = recorded
        .iter()
        .filter(|(_, _, bytes)| matches!(bytes.get(1), Some(1 | 2)));
    let replayed = of_old_keys
        .map(|(from, to, bytes)| relay.forge(*from, *to, bytes))
        .count();
    assert!(
        replayed > 100,
        "{replayed} datagrams under the keys of before"
    );
    let begun = Instant::now();
    while refused(&hosts, &[Refusal::DroppedKeyId]) < replayed as u64 / 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "not refused");
    }
    // The keys come back: the replay windows have gone on, and hold for them too.
    let keys = ring(&[1, 2, 3], 3);
    hosts.iter().for_each(|host| take(host, &keys));
    let replays = refused(&hosts, &[Refusal::Replayed]);
    for (from, to, bytes) in &recorded {
        relay.forge(*from, *to, bytes);
        std::thread::sleep(Duration::from_micros(20));
    }
    let begun = Instant::now();
    while refused(&hosts, &[Refusal::Replayed]) <= replays + 100 {
        assert!(begun.elapsed() < Duration::from_secs(20), "not refused");
    }
    for (host, before) in hosts.iter().zip(&before) {
        assert_eq!(&host.held(), before, "nothing changed");
    }
    exercise(&hosts, 100, done);
    assert_eq!(admissions(&mut hosts), admitted);
}

/// A host that starts while keys change, with the file of any step, has the others' state and hashes as they do.
#[test]
fn hosts_that_start_with_different_steps_agree() {
    let addresses = Addresses::new();
    let steps = [ring(&[1], 1), ring(&[1, 2], 1), ring(&[2, 1], 2)];
    let hosts: Vec<Host> = (0..3)
        .zip(steps)
        .map(|(number, keys)| {
            let udp = addresses.unicast(number, 3);
            let config = asterism_engine::HostConfig {
                keys,
                ..host_config(number, 3)
            };
            Host::start_as(
                config,
                &udp,
                asterism_engine::transport::RunConfig::default(),
            )
        })
        .collect();
    // The first lacks the second key: it hears the second host, and hears of the third.
    let begun = Instant::now();
    let mut reported = false;
    while !reported {
        assert!(begun.elapsed() < Duration::from_secs(20), "not reported");
        reported = hosts[0].channel.events().any(|notice| {
            matches!(&notice, Notice::Channel(_))
                && format!("{notice:?}")
                    .contains("NoKey { member: MemberId(2), key_id: 2, dropped: false }")
        });
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(hosts[0].snapshot().members[2].without_key.datagrams > 0);
    take(&hosts[0], &ring(&[1, 2], 1));
    meet(&hosts);
    // Each says which keys it accepts, and that they are the same.
    let says = |host: &Host, member: usize| {
        let snapshot = host.snapshot();
        let accepts = snapshot.members[member].accepts?;
        assert_eq!(accepts.differing(&snapshot.accepts).count(), 0);
        Some(accepts.ids().collect::<Vec<u8>>())
    };
    let begun = Instant::now();
    while says(&hosts[2], 0) != Some(vec![1, 2]) || says(&hosts[0], 2) != Some(vec![2, 1]) {
        assert!(begun.elapsed() < Duration::from_secs(20), "not said");
    }
    let other = ClusterKey::from_random(3, [9; 32]).with_hash_seed(1);
    let differs = |host: &Host| {
        let snapshot = host.snapshot();
        let accepts = snapshot.members[1].accepts.unwrap();
        accepts.differing(&snapshot.accepts).collect::<Vec<u8>>()
    };
    let with = |third: ClusterKey| {
        let keys = ring(&[1, 2], 1).keys().to_vec().into_iter();
        let keys = keys.chain([third]).map(|key| key.with_hash_seed(1));
        KeyRing::new(keys.collect(), 1).unwrap()
    };
    take(&hosts[1], &with(other));
    take(&hosts[0], &with(ClusterKey::from_random(3, [8; 32])));
    let begun = Instant::now();
    while differs(&hosts[0]) != [3] {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "not distinguished"
        );
    }
    exercise(&hosts, 500, 0);
}
