//! Who is admitted, when, and what two hosts with one identity lead to.

use core::time::Duration;

use super::hosts::Hosts;
use super::*;

fn both_ways(hosts: &Hosts) -> bool {
    hosts.admitted(0, 2).is_some()
        && hosts.admitted(1, 1).is_some()
        && hosts.hosts[0].channel.welcomed_by(MemberId(2))
        && hosts.hosts[1].channel.welcomed_by(MemberId(1))
}

#[test]
fn a_pair_admits_each_other_in_two_round_trips() {
    let mut hosts = Hosts::pair(1);
    hosts.run_ms(3);
    assert!(both_ways(&hosts));
    hosts.run_ms(2_000);
    for at in 0..2 {
        let host = &hosts.hosts[at];
        assert_eq!(hosts.admissions(at), [102 - at as u64]);
        assert_eq!(
            host.opened.len(),
            20,
            "all but the first beat, which came before the admission"
        );
        let early = hosts.refused(at, Refusal::NotAdmitted) + hosts.refused(at, Refusal::TooOld);
        assert_eq!(early, host.channel.refusals().total());
        assert_eq!(early, 1);
        // Member 3 never answers, so the Hellos to it go on, at the longest interval.
        assert!(host.channel.poll_timeout().is_some());
    }
}

/// Loss, repetition and reordering by a hundred seeds: always admitted in the end, no payload opened twice, no alarm.
#[test]
fn admission_under_faults() {
    let mut disordered = 0;
    for seed in 0..100 {
        let mut hosts = Hosts::pair(seed);
        hosts.loss_percent = 30;
        hosts.repeat_percent = 30;
        hosts.delay_us_max = 300_000;
        hosts.run_ms(8_000);
        assert!(both_ways(&hosts), "seed {seed}");
        for at in 0..2 {
            let host = &hosts.hosts[at];
            assert_eq!(hosts.admissions(at).len(), 1, "seed {seed}");
            assert_eq!(hosts.duplicates(at), [], "seed {seed}");
            let mut numbers: Vec<_> = host.opened.iter().map(|(_, _, number)| *number).collect();
            let ordered = numbers.is_sorted();
            disordered += u64::from(!ordered);
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(
                numbers.len(),
                host.opened.len(),
                "seed {seed}: a payload opened twice"
            );
            assert!(numbers.len() > 30, "seed {seed}");
        }
    }
    assert!(disordered > 150, "the test must reorder");
}

/// The receiver restarts while the sender goes on: the sender's next datagram draws a challenge.
#[test]
fn a_receiver_that_restarted_admits_again_at_once() {
    let mut hosts = Hosts::pair(3);
    hosts.run_ms(1_000);
    hosts.restart(1, 202, 22);
    hosts.run_ms(10);
    assert_eq!(hosts.admitted(1, 1), Some(101));
    assert_eq!(hosts.hosts[0].events.len(), 2);
    // Its own new incarnation has to wait out the silence of its old one.
    assert_eq!(hosts.admitted(0, 2), Some(102));
    hosts.run_ms(4_100);
    assert_eq!(hosts.admitted(0, 2), Some(202));
    assert!(both_ways(&hosts));
    assert_eq!(hosts.admissions(0), [102, 202]);
    assert_eq!(hosts.duplicates(0), [], "a restart is no duplicate");
    let replaced = Event::Admitted {
        member: MemberId(2),
        incarnation: Incarnation(202),
        replaced: Some(Incarnation(102)),
    };
    assert!(hosts.hosts[0].events.contains(&replaced));
}

/// What a host sent before it restarted arrives after its next incarnation proved itself, and is no second host.
#[test]
fn a_restart_with_datagrams_under_way_raises_no_alarm() {
    for seed in 0..30 {
        let mut hosts = Hosts::pair(seed);
        hosts.delay_us_max = 400_000;
        hosts.run_ms(3_000);
        hosts.restart(0, 201, 21);
        hosts.delay_us_max = 1_000;
        hosts.run_ms(8_000);
        assert_eq!(hosts.admissions(1), [101, 201], "seed {seed}");
        assert_eq!(hosts.duplicates(1), [], "seed {seed}");
    }
}

/// Hosts with nothing to say find each other again after a restart, under loss.
#[test]
fn silent_hosts_admit_each_other_again() {
    for seed in 0..30 {
        let mut hosts = Hosts::pair(seed);
        hosts.loss_percent = 40;
        hosts.hosts[0].beats = false;
        hosts.hosts[1].beats = false;
        hosts.run_ms(60_000);
        assert!(both_ways(&hosts), "seed {seed}");
        hosts.restart(1, 202, 22);
        hosts.hosts[1].beats = false;
        hosts.run_ms(60_000);
        assert!(both_ways(&hosts), "seed {seed}");
        assert_eq!(
            (hosts.admitted(0, 2), hosts.admitted(1, 1)),
            (Some(202), Some(101))
        );
    }
}

/// One datagram draws one challenge, and the echo is lost: Hellos make up for it.
#[test]
fn a_lost_echo_is_made_up_for() {
    let mut hosts = Hosts::pair(10);
    hosts.run_ms(1_050);
    hosts.hosts[1].channel.revoke(MemberId(1));
    let (now, mut datagram) = (hosts.now, Vec::new());
    hosts.hosts[0].channel.seal(&[0; 8], &mut datagram).unwrap();
    let refused = hosts.hosts[1].channel.handle(now, 0, &mut datagram);
    assert_eq!(refused, Err(Refusal::NotAdmitted));
    hosts.hosts[1].channel.poll_transmit(&mut datagram).unwrap();
    assert_eq!(
        hosts.hosts[0].channel.handle(now, 1, &mut datagram),
        Ok(None)
    );
    hosts.hosts[0].channel.poll_transmit(&mut datagram).unwrap();
    hosts.hosts[0].beats = false;
    hosts.run_ms(200);
    assert_eq!(hosts.admitted(1, 1), Some(101));
    assert!(both_ways(&hosts));
}

#[test]
fn hellos_to_a_dead_member_grow_rare() {
    let mut hosts = Hosts::new(11);
    hosts.start(1, 101, 1);
    hosts.start(2, 102, 2);
    hosts.hosts[1].alive = false;
    hosts.hosts[0].beats = false;
    hosts.run_ms(60_000);
    // 50 ms doubling to a second, then each second.
    let hellos = hosts.recorded.iter().filter(|(_, to, _)| *to == 1).count();
    assert!((60..=66).contains(&hellos), "{hellos} in a minute");
}

#[test]
fn two_hosts_with_one_identity_are_reported_and_the_first_stays() {
    let mut hosts = Hosts::pair(4);
    hosts.run_ms(1_000);
    // The same member; the copied disk says even the same incarnation. Only the salt differs.
    let copy = hosts.start(1, 101, 77);
    hosts.run_ms(20_000);
    let report = Event::DuplicateIdentity {
        member: MemberId(1),
        live: Incarnation(101),
        other: Incarnation(101),
    };
    assert_eq!(hosts.duplicates(1), [report, report], "one in ten seconds");
    assert_eq!(hosts.admissions(1), [101], "the first stays: no flapping");
    assert!(hosts.refused(1, Refusal::DuplicateIdentity) > 10);
    // Each of the two hears of the other as well, by the Hellos to their common name.
    assert!(!hosts.duplicates(0).is_empty() || !hosts.duplicates(copy).is_empty());
    let opened_of_copy = |hosts: &Hosts| hosts.hosts[1].opened.len();
    // The first stops: the copy takes over after the silence, and this is said.
    hosts.hosts[0].alive = false;
    hosts.run_ms(5);
    let before = opened_of_copy(&hosts);
    hosts.run_ms(2_000);
    assert_eq!(opened_of_copy(&hosts), before);
    hosts.run_ms(3_000);
    assert_eq!(hosts.admissions(1), [101, 101]);
    assert!(opened_of_copy(&hosts) > before);
    // It returns (it was only cut off): reported, and the copy now is the one that stays.
    hosts.hosts[0].alive = true;
    hosts.run_ms(12_000);
    assert_eq!(hosts.admissions(1), [101, 101]);
    assert!(hosts.duplicates(1).len() >= 3);
}

#[test]
fn two_silent_hosts_with_one_identity_do_not_take_turns_unsaid() {
    let mut hosts = Hosts::pair(5);
    hosts.run_ms(1_000);
    hosts.start(1, 301, 77);
    for turn in 0..4 {
        let speaker = if turn % 2 == 0 { 2 } else { 0 };
        hosts.hosts[0].beats = speaker == 0;
        hosts.hosts[2].beats = speaker == 2;
        hosts.run_ms(8_000);
    }
    assert!(
        hosts.admissions(1).len() > 1,
        "the test must make them take turns"
    );
    assert!(!hosts.duplicates(1).is_empty());
}

#[test]
fn the_epoch_lets_in_at_once_and_keeps_others_out() {
    let mut hosts = Hosts::pair(6);
    hosts.run_ms(1_000);
    hosts.restart(0, 201, 21);
    let now = hosts.now;
    let receiver = &mut hosts.hosts[1].channel;
    receiver.admit_by_epoch(now, MemberId(1), Incarnation(201), None);
    assert_eq!(
        receiver.admitted(MemberId(1)),
        None,
        "the old incarnation is closed"
    );
    hosts.run_ms(5);
    assert_eq!(hosts.admitted(1, 1), Some(201), "no silence is waited for");
    // A third incarnation that no epoch names.
    hosts.restart(0, 301, 31);
    hosts.run_ms(6_000);
    assert_eq!(hosts.admitted(1, 1), Some(201));
    assert!(hosts.refused(1, Refusal::WrongIncarnation) > 10);
    // Named with its salt, it needs no handshake.
    let now = hosts.now;
    hosts.hosts[1]
        .channel
        .admit_by_epoch(now, MemberId(1), Incarnation(301), Some([31; 16]));
    assert_eq!(hosts.admitted(1, 1), Some(301));
    let opened = hosts.hosts[1].opened.len();
    hosts.run_ms(1_000);
    assert!(hosts.hosts[1].opened.len() >= opened + 9);
}

#[test]
fn the_truth_store_does_not_admit_strangers_or_this_host() {
    let mut hosts = Hosts::pair(7);
    for member in [1, 9] {
        hosts.hosts[0].channel.admit_by_epoch(
            hosts.now,
            MemberId(member),
            Incarnation(1),
            Some([1; 16]),
        );
        assert_eq!(hosts.hosts[0].channel.admitted(MemberId(member)), None);
    }
    assert_eq!(hosts.hosts[0].channel.poll_event(), None);
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let config = |version, oldest| SecureConfig {
        wire_version: version,
        wire_version_oldest: oldest,
        ..SecureConfig::new(key(1), CLUSTER, MemberId(1), Incarnation(1), Vec::new())
    };
    let error = |config| SecureChannel::new(config, [1; 16], [1; 32]).err();
    assert_eq!(error(config(128, 1)), Some(SecureConfigError::WireVersion));
    assert_eq!(error(config(1, 2)), Some(SecureConfigError::WireVersion));
    assert_eq!(error(config(127, 0)), None);
}

/// A host whose disk was restored has an old epoch. It learns of the later one from any member that it says Hello to, also from one whose
/// incarnation it does not know, and also if it goes on sending in a session that others have closed.
#[test]
fn a_later_epoch_is_noticed_whatever_else_is_refused() {
    let later = |hosts: &Hosts, at: usize| hosts.hosts[at].channel.later_epoch();
    let epoch = |hosts: &mut Hosts, at: usize, epoch: u32| {
        hosts.hosts[at].channel.set_epoch(Epoch(epoch));
    };
    let known = Some((MemberId(2), Epoch(2)));

    // Members of one incarnation in two epochs, while the file is copied.
    let mut hosts = Hosts::pair(1);
    hosts.run_ms(200);
    assert_eq!((later(&hosts, 0), later(&hosts, 1)), (None, None));
    epoch(&mut hosts, 1, 2);
    hosts.run_ms(150);
    assert_eq!((later(&hosts, 0), later(&hosts, 1)), (known, None));
    epoch(&mut hosts, 0, 2);
    assert_eq!(later(&hosts, 0), None);

    // Each knows another incarnation of the other.
    let mut hosts = Hosts::pair(2);
    let now = hosts.now;
    let admit = |hosts: &mut Hosts, at: usize, member: u16, incarnation: u64| {
        let channel = &mut hosts.hosts[at].channel;
        channel.admit_by_epoch(now, MemberId(member), Incarnation(incarnation), None);
    };
    epoch(&mut hosts, 0, 1);
    epoch(&mut hosts, 1, 2);
    admit(&mut hosts, 0, 2, 99);
    admit(&mut hosts, 1, 1, 99);
    hosts.run_ms(200);
    assert_eq!((later(&hosts, 0), later(&hosts, 1)), (known, None));
    assert!(hosts.admitted(0, 2).is_none() && hosts.admitted(1, 1).is_none());

    // One that ran is left out, and goes on sending.
    let mut hosts = Hosts::pair(3);
    hosts.run_ms(200);
    epoch(&mut hosts, 1, 2);
    hosts.hosts[1].channel.revoke(MemberId(1));
    hosts.hosts[1].beats = false;
    hosts.run_ms(150);
    assert_eq!(later(&hosts, 0), known);

    // A recording of an earlier session, of a cluster that was begun again since, is no evidence.
    let recorded: Vec<_> = hosts
        .recorded
        .iter()
        .filter(|(from, to, _)| (*from, *to) == (1, 0))
        .map(|(_, _, bytes)| bytes.clone())
        .collect();
    assert!(recorded.len() > 5);
    hosts.restart(0, 101, 11);
    hosts.hosts[1].alive = false;
    epoch(&mut hosts, 0, 1);
    let now = hosts.now;
    for mut datagram in recorded {
        let _ = hosts.hosts[0].channel.handle(now, 1, &mut datagram);
    }
    assert_eq!(later(&hosts, 0), None);
}

/// A pair of hosts with these settings; runs them for a second.
fn with_terms(first: &str, second: &str) -> Hosts {
    let mut hosts = Hosts::new(7);
    for (member, text) in [(1, first), (2, second)] {
        let ms = Duration::from_millis;
        hosts.terms = Some(Terms::new(text, ms(20), ms(1_000)));
        hosts.start(member, 100 + u64::from(member), member as u8);
    }
    hosts.run_ms(1_000);
    hosts
}

#[test]
fn a_member_with_another_list_of_members_is_not_admitted_and_shown() {
    let hosts = with_terms("members = a, b", "members = a, b");
    assert!(both_ways(&hosts));
    let hosts = with_terms("members = a, b", "members = a, b, c");
    assert!(hosts.admitted(0, 2).is_none() && hosts.admitted(1, 1).is_none());
    for (at, other, text) in [(0, 2, "members = a, b, c"), (1, 1, "members = a, b")] {
        let channel = &hosts.hosts[at].channel;
        assert!(channel.refusals().get(Refusal::OtherTerms) > 3);
        let shown = channel.other_terms(hosts.now, MemberId(other));
        assert_eq!(shown.map(Terms::text), Some(text));
        let later = hosts.now + Duration::from_secs(11);
        assert_eq!(channel.other_terms(later, MemberId(other)), None);
    }
}

/// By one list both hosts are member 1: each gets the other's list under its own number.
#[test]
fn hosts_that_take_each_other_for_another_member_see_why() {
    let mut hosts = Hosts::new(8);
    for (text, salt) in [("members = a, b", 1), ("members = b, a", 2)] {
        let ms = Duration::from_millis;
        hosts.terms = Some(Terms::new(text, ms(20), ms(1_000)));
        hosts.start(1, 101, salt);
    }
    hosts.run_ms(1_000);
    for (at, text) in [(0, "members = b, a"), (1, "members = a, b")] {
        let shown = hosts.hosts[at].channel.other_terms(hosts.now, MemberId(1));
        assert_eq!(shown.map(Terms::text), Some(text));
    }
}

/// The planted bugs of admission by other epochs and other settings are found here. Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_admission_are_found() {
    use crate::mutant::{self, Mutant};
    for (planted, test) in [
        (
            Mutant::LaterEpochIgnored,
            a_later_epoch_is_noticed_whatever_else_is_refused as fn(),
        ),
        (
            Mutant::TermsNotCompared,
            a_member_with_another_list_of_members_is_not_admitted_and_shown,
        ),
    ] {
        mutant::select(Some(planted));
        let run = std::panic::catch_unwind(test);
        mutant::select(None);
        assert!(run.is_err(), "{planted:?} is alive");
    }
}
