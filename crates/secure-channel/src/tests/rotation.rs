//! The cluster key changes while hosts run: nothing is lost to it, nothing opens twice, no nonce repeats.

use std::collections::{BTreeMap, BTreeSet};

use super::hosts::Hosts;
use super::*;
use crate::Time;

fn ring(ids: &[u8], sending: u8) -> KeyRing {
    let keys = ids.iter().map(|&id| key(id).with_hash_seed(7));
    KeyRing::new(keys.collect(), sending).unwrap()
}

fn trio(seed: u64) -> Hosts {
    let mut hosts = Hosts::new(seed);
    for member in 1..=3 {
        hosts.start(member, 100 + u64::from(member), member as u8);
    }
    hosts
}

/// One step of an operator: host after host, in an order that differs each time.
fn step(hosts: &mut Hosts, first: usize, keys: &KeyRing) {
    for at in 0..3 {
        hosts.hosts[(first + at) % 3].channel.set_keys(keys);
        hosts.run_ms(170);
    }
    hosts.run_ms(600);
}

fn no_key(hosts: &Hosts) -> u64 {
    let reasons = [Refusal::UnknownKeyId, Refusal::DroppedKeyId];
    (0..3)
        .flat_map(|at| reasons.map(|reason| hosts.refused(at, reason)))
        .sum()
}

/// What each host opened, as (sender, number): each once.
fn opened(hosts: &Hosts) -> Vec<BTreeSet<(u16, u64)>> {
    let each = hosts.hosts.iter().map(|host| {
        let all: BTreeSet<_> = host
            .opened
            .iter()
            .map(|(member, _, number)| (member.0, *number))
            .collect();
        assert_eq!(all.len(), host.opened.len(), "something opened twice");
        all
    });
    each.collect()
}

#[test]
fn three_steps_lose_nothing_and_make_no_session_again() {
    let mut hosts = trio(8);
    hosts.run_ms(1_050);
    let handshakes = |hosts: &Hosts| {
        let recorded = hosts.recorded.iter();
        recorded
            .filter(|(_, _, bytes)| bytes[0] & 0x80 != 0)
            .count()
    };
    let sent = |hosts: &Hosts| hosts.recorded.len() - handshakes(hosts);
    let arrived = |hosts: &Hosts| opened(hosts).iter().map(BTreeSet::len).sum::<usize>();
    let refused = |hosts: &Hosts| -> u64 {
        let each = hosts.hosts.iter();
        each.map(|host| host.channel.refusals().total()).sum()
    };
    let (sent_before, arrived_before) = (sent(&hosts), arrived(&hosts));
    let refused_before = refused(&hosts);
    let (met, admitted) = (handshakes(&hosts), hosts.admissions(0).len());
    for (first, (ids, sending)) in [
        (&[1, 2][..], 1),
        (&[1, 2], 2),
        (&[2], 2),
        (&[2, 3], 2),
        (&[3, 2], 3),
        (&[3], 3),
    ]
    .into_iter()
    .enumerate()
    {
        step(&mut hosts, first, &ring(ids, sending));
        for at in 0..3 {
            let channel = &hosts.hosts[at].channel;
            assert_eq!(channel.sends_under(), sending);
            assert_eq!(
                channel.accepts().collect::<BTreeSet<_>>(),
                ids.iter().copied().collect()
            );
            for other in (1..=3)
                .map(MemberId)
                .filter(|other| *other != channel.member())
            {
                assert_eq!(channel.heard_under(other), Some(sending));
                assert_eq!(channel.without_key(other), WithoutKey::default());
            }
        }
    }
    assert_eq!(
        (handshakes(&hosts), hosts.admissions(0).len()),
        (met, admitted)
    );
    assert_eq!(refused(&hosts), refused_before);
    // Some may still be under way: the wires are half a millisecond long.
    let (sent, arrived) = (sent(&hosts) - sent_before, arrived(&hosts) - arrived_before);
    assert!(
        sent > 300 && sent - arrived <= 6,
        "{sent} sent, {arrived} arrived"
    );
}

/// Wires that lose, repeat, delay and reorder; everything recorded is replayed at the end under all keys.
#[test]
fn bad_wires_change_nothing() {
    for seed in 0..12 {
        let mut hosts = trio(seed);
        (hosts.loss_percent, hosts.repeat_percent, hosts.delay_us_max) = (15, 30, 250_000);
        hosts.run_ms(3_000);
        let admitted: Vec<_> = (0..3).map(|at| hosts.admissions(at)).collect();
        for (first, (ids, sending)) in [
            (&[1, 2][..], 1),
            (&[1, 2], 2),
            (&[1, 2], 1),
            (&[2, 1], 2),
            (&[2], 2),
        ]
        .into_iter()
        .enumerate()
        {
            step(&mut hosts, first + seed as usize, &ring(ids, sending));
        }
        hosts.run_ms(1_000);
        assert_eq!(no_key(&hosts), 0, "seed {seed}");
        let now: Vec<_> = (0..3).map(|at| hosts.admissions(at)).collect();
        assert_eq!(now, admitted, "seed {seed}: a session was made again");
        for at in 0..3 {
            let forged = hosts.refused(at, Refusal::Forged);
            assert_eq!(forged, 0, "seed {seed}");
        }
        // Replays: of the dropped key, and under the one in use.
        let before = opened(&hosts);
        let old: Vec<_> = hosts.recorded.clone();
        for (from, to, bytes) in old.iter().filter(|(_, _, bytes)| bytes[0] & 0x80 == 0) {
            hosts.deliver(*from, *to, bytes.clone());
        }
        // What had been lost on the way under the key in use may open now, once; what had opened must not.
        opened(&hosts);
        assert!(
            no_key(&hosts) > 0 && before.iter().all(|all| all.len() > 100),
            "seed {seed}"
        );
        // The old key comes back: the windows have gone on, so nothing of it opens again.
        for at in 0..3 {
            hosts.hosts[at].channel.set_keys(&ring(&[1, 2], 2));
        }
        for (from, to, bytes) in &old {
            hosts.deliver(*from, *to, bytes.clone());
        }
        opened(&hosts);
    }
}

/// The counter goes on over all changes, also back to a key that was used: no (key, counter) is used twice.
#[test]
fn nonces_never_repeat() {
    let mut hosts = trio(3);
    for (first, (ids, sending)) in [
        (&[1, 2][..], 1),
        (&[1, 2], 2),
        (&[1, 2], 1),
        (&[2, 1], 2),
        (&[1], 1),
        (&[1, 2], 2),
    ]
    .into_iter()
    .cycle()
    .take(18)
    .enumerate()
    {
        step(&mut hosts, first, &ring(ids, sending));
    }
    let mut used: BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>> = BTreeMap::new();
    for (_, _, bytes) in &hosts.recorded {
        // Key, member, session and incarnation name the session key; then the counter, which is the nonce.
        let name = [&bytes[1..8], &bytes[12..24]].concat();
        let nonce = (name, bytes[24..32].to_vec());
        let before = used.entry(nonce).or_insert_with(|| bytes.clone());
        assert_eq!(before, bytes, "two datagrams under one nonce");
    }
    let keys: BTreeSet<u8> = hosts
        .recorded
        .iter()
        .map(|(_, _, bytes)| bytes[1])
        .collect();
    assert_eq!(keys, [1, 2].into());
}

/// A host that has not the new key yet: counted, reported once in a while, and healed without a handshake.
#[test]
fn a_host_without_the_key_is_reported_and_heals() {
    let mut hosts = trio(5);
    hosts.run_ms(1_050);
    let admitted = hosts.admissions(2).len();
    for at in 0..2 {
        hosts.hosts[at].channel.set_keys(&ring(&[1, 2], 2));
    }
    hosts.run_ms(15_000);
    let channel = &hosts.hosts[2].channel;
    let known = channel.without_key(MemberId(1));
    assert_eq!(known.datagrams, channel.without_key(MemberId(2)).datagrams);
    assert!((140..=160).contains(&known.datagrams), "{known:?}");
    assert!(matches!(known.last, Some((2, at)) if hosts.now.since(at).as_millis() < 200));
    assert_eq!(hosts.refused(2, Refusal::UnknownKeyId), 2 * known.datagrams);
    assert_eq!(channel.heard_under(MemberId(1)), Some(1), "as before");
    let reported = |hosts: &Hosts, wanted: Event| {
        let events = hosts.hosts[2].events.iter();
        events.filter(|event| **event == wanted).count()
    };
    let missing = Event::NoKey {
        member: MemberId(1),
        key_id: 2,
        dropped: false,
    };
    assert_eq!(reported(&hosts, missing), 2, "at most once in ten seconds");
    // The third still speaks under the old key, which the others accept.
    assert_eq!(no_key(&hosts), 2 * known.datagrams);
    let heard = |hosts: &Hosts| opened(hosts)[2].len();
    let before = heard(&hosts);
    hosts.hosts[2].channel.set_keys(&ring(&[1, 2], 2));
    hosts.run_ms(1_000);
    assert!(heard(&hosts) >= before + 18, "heard again at once");
    assert_eq!(
        hosts.admissions(2).len(),
        admitted,
        "in the session that there was"
    );
    assert_eq!(hosts.hosts[2].channel.heard_under(MemberId(1)), Some(2));
    // The other mistake: a key that others still send under is dropped.
    hosts.hosts[2].channel.set_keys(&ring(&[3], 3));
    hosts.run_ms(300);
    let dropped = Event::NoKey {
        member: MemberId(1),
        key_id: 2,
        dropped: true,
    };
    assert_eq!(
        reported(&hosts, dropped),
        0,
        "reported this member a moment ago"
    );
    hosts.run_ms(10_000);
    assert_eq!(reported(&hosts, dropped), 1);
    assert!(hosts.refused(2, Refusal::DroppedKeyId) > 100);
}

/// Another secret under a number that is in use: what a wrong copy of a file does, and its cure.
#[test]
fn another_secret_of_the_same_number_is_forged_until_it_is_put_right() {
    let mut hosts = trio(6);
    hosts.run_ms(1_050);
    let wrong = KeyRing::from(ClusterKey::from_random(1, [0x77; 32]));
    hosts.hosts[2].channel.set_keys(&wrong);
    hosts.run_ms(1_000);
    assert!(hosts.refused(2, Refusal::Forged) > 10 && hosts.refused(0, Refusal::Forged) > 5);
    assert_eq!(no_key(&hosts), 0);
    let admitted = hosts.admissions(2).len();
    hosts.hosts[2].channel.set_keys(&KeyRing::from(key(1)));
    let before = opened(&hosts)[2].len();
    hosts.run_ms(1_000);
    assert!(opened(&hosts)[2].len() >= before + 18);
    assert_eq!(hosts.admissions(2).len(), admitted);
}

/// Strangers can name any key and member: it costs a count each, and an event in ten seconds for each member.
#[test]
fn a_flood_of_unknown_keys_tells_little() {
    let mut hosts = trio(7);
    hosts.run_ms(1_050);
    let genuine = hosts
        .recorded
        .iter()
        .find(|(from, _, bytes)| *from == 1 && bytes[0] & 0x80 == 0);
    let genuine = genuine.unwrap().2.clone();
    let events = |hosts: &Hosts| {
        let of = hosts.hosts[0].events.iter();
        of.filter(|event| matches!(event, Event::NoKey { .. }))
            .count()
    };
    for number in 0..20_000_u32 {
        let mut datagram = genuine.clone();
        datagram[1] = 2 + (number % 250) as u8;
        datagram[2] = (number / 250 % 5) as u8;
        hosts.deliver(1, 0, datagram);
    }
    hosts.run_ms(100);
    // Members 2 and 3; not this host itself, not strangers.
    assert_eq!(events(&hosts), 2);
    assert_eq!(hosts.refused(0, Refusal::UnknownKeyId), 20_000);
    let other = hosts.hosts[0].channel.without_key(MemberId(2));
    assert_eq!(other.datagrams, 4_000);
    assert_eq!(
        hosts.hosts[0].channel.without_key(MemberId(9)),
        WithoutKey::default()
    );
    assert!(other.last.is_some_and(|(_, at)| at > Time::ZERO));
}
