//! A store of several servers: its primary is found among them, and lost, and found again. Here servers say what a test has them say.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use asterism_remote_store::AwayReason;

use crate::scripted::{Keys, Scripted, keys};
use crate::used::{Used, WITHIN};

fn servers<const N: usize>(keys: &Keys) -> [Scripted; N] {
    core::array::from_fn(|_| Scripted::start(keys))
}

fn addresses(servers: &[Scripted]) -> Vec<SocketAddr> {
    servers.iter().map(|server| server.address).collect()
}

#[test]
fn the_primary_is_found_among_its_replicas_wherever_it_stands() {
    for primary in 0..3 {
        let all: [Scripted; 3] = servers(&keys());
        for (place, server) in all.iter().enumerate() {
            if place != primary {
                server.is_replica();
            }
        }
        // Replicas have what the primary has: nothing but their role shows that they are none.
        Used::new(&[all[primary].address]).passes("at the primary alone");
        let mut used = Used::new(&addresses(&all));
        let seen = used.until("connected", |seen| seen.is_connected);
        assert_eq!(seen.address, Some(all[primary].address));
        used.passes("at the primary");
    }
    // One that knows no roles has none.
    let [alone] = servers(&keys());
    alone.says(|command| (command == "ROLE").then(|| "-ERR unknown command 'ROLE'\r\n".to_owned()));
    Used::new(&[alone.address]).passes("without roles");
}

#[test]
fn a_store_without_primary_is_away_until_one_is_promoted() {
    let all: [Scripted; 2] = servers(&keys());
    all.iter().for_each(Scripted::is_replica);
    // The third one has died.
    let dead = Scripted::start(&keys()).address;
    let mut used = Used::new(&[dead, all[0].address, all[1].address]);
    let seen = used.until("away", |seen| seen.why == AwayReason::Replica);
    assert_eq!((seen.is_connected, seen.address), (false, None));
    all[1].says(|_| None);
    used.is_at(&all[1], "promoted");
    used.passes("at the promoted one");
}

#[test]
fn a_primary_that_cannot_serve_is_passed_over() {
    let [one, other] = servers(&keys());
    for (error, expected) in [
        (
            "LOADING Redis is loading the dataset in memory",
            AwayReason::Refused,
        ),
        ("CLUSTERDOWN The cluster is down", AwayReason::Refused),
        ("MASTERDOWN Link with MASTER is down", AwayReason::Replica),
        ("NOPERM no permission for this key", AwayReason::Login),
    ] {
        let refuses = move |command: &str| (command == "GET").then(|| format!("-{error}\r\n"));
        one.says(refuses);
        let mut used = Used::new(&[one.address, other.address]);
        used.is_at(&other, error);
        used.passes(error);
        other.says(refuses);
        let mut used = Used::new(&[one.address, other.address]);
        let seen = used.until(error, |seen| seen.why == expected);
        assert!(!seen.is_connected);
        other.says(|_| None);
        used.is_at(&other, error);
    }
}

#[test]
fn a_primary_that_is_demoted_is_left_at_once_by_all_connections() {
    let keys = keys();
    let [one, other] = servers(&keys);
    // Where the first is slow to greet, the other is asked.
    other.is_replica();
    let mut used = Used::new(&[one.address, other.address]);
    used.is_at(&one, "first");
    used.passes("at the first");
    // Nothing is written: it is asked now and then.
    one.is_replica();
    used.until("demoted", |seen| seen.why == AwayReason::Replica);
    other.says(|_| None);
    used.is_at(&other, "the other");
    used.passes("at the other");
    used.has_left(&one);
    // A write finds out.
    one.says(|_| None);
    other.says(|command| match command {
        "EXEC" => Some(
            "-EXECABORT Transaction discarded because of: READONLY You can't write.\r\n".to_owned(),
        ),
        "ROLE" => Some("*1\r\n$5\r\nslave\r\n".to_owned()),
        _ => None,
    });
    used.passes("at the first again");
    used.is_at(&one, "the first again");
}

#[test]
fn connections_follow_the_keys_of_a_cluster_together() {
    let keys = keys();
    let [one, other, third] = servers(&keys);
    one.has_moved(&other.address.to_string());
    let mut used = Used::new(&[one.address]);
    used.is_at(&other, "redirected when it was greeted");
    used.passes("at the other");
    // One command is sent on: the other connection follows, though nothing is said to it.
    let (to, mut is_said) = (third.address, false);
    other.says(move |command| {
        let is_first = command == "MGET" && !is_said;
        is_said |= is_first;
        is_first.then(|| format!("-MOVED 7 {to}\r\n"))
    });
    let before = used.statistics.snapshot().connects;
    used.inject();
    let seen = used.is_at(&third, "redirected by a read");
    assert_eq!(seen.connects - before, 2, "both connections");
    used.passes("at the third");
    used.has_left(&other);
}

#[test]
fn redirections_in_circles_and_to_nowhere_count_as_away() {
    let keys = keys();
    let [one, other] = servers(&keys);
    one.has_moved(&other.address.to_string());
    other.has_moved(&one.address.to_string());
    let mut used = Used::new(&[one.address]);
    used.until("in circles", |seen| seen.why == AwayReason::Moved);
    for nowhere in ["", "x", "127.0.0.1", "127.0.0.1:0", ":", "\u{1F30D}:1"] {
        one.has_moved(nowhere);
        let mut used = Used::new(&[one.address]);
        used.until(nowhere, |seen| seen.why == AwayReason::NoStore);
        assert!(!used.statistics.snapshot().is_connected);
    }
    // It greets, and sends in circles what comes then.
    one.says(|_| None);
    let to = one.address;
    one.says(move |command| (command == "MGET").then(|| format!("-MOVED 7 {to}\r\n")));
    let mut used = Used::new(&[one.address]);
    used.until("greeted", |seen| seen.is_connected);
    used.inject();
    used.until("circles", |seen| seen.why == AwayReason::Moved);
    let before = used.statistics.snapshot().connects;
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        if used.instance.tally().parked == 0 {
            used.inject();
        }
        used.turn();
    }
    let made = used.statistics.snapshot().connects - before;
    assert!(made < 100, "{made} connections in half a second");
    one.says(|_| None);
    used.passes("it has them after all");
}

/// The count that a packet took with it.
fn count_of(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[34], bytes[35]])
}

/// How long one waits for a replica.
const IMPATIENCE: Duration = Duration::from_millis(200);

/// An instance whose packets leave when a replica has their writes.
fn replicated(servers: &[Scripted]) -> Used {
    Used::with(|remote| {
        remote.addresses = addresses(servers);
        remote.waits_for_replica = true;
        remote.timeout = IMPATIENCE;
    })
}

/// Turns for so long; how many packets leave meanwhile.
fn leave_within(used: &mut Used, time: Duration) -> usize {
    let until = Instant::now() + time;
    while Instant::now() < until {
        used.turn();
    }
    used.left.try_iter().count()
}

#[test]
fn a_packet_waits_until_a_replica_has_its_writes() {
    let [primary] = servers(&keys());
    let one = [primary];
    let acknowledges = |count: usize| {
        one[0].says(move |command| (command == "WAIT").then(|| format!(":{count}\r\n")));
    };
    acknowledges(0);
    let mut used = replicated(&one);
    used.is_at(&one[0], "at the primary");
    used.inject();
    assert_eq!(leave_within(&mut used, Duration::from_millis(100)), 0);
    assert_eq!(used.statistics.snapshot().tally.decided, 0);
    acknowledges(1);
    let left = used.leaves("acknowledged");
    assert_eq!(count_of(&left), 1, "it took effect once");
    // Without one for long the store counts as away, and is back as soon as there is one.
    acknowledges(0);
    used.inject();
    let seen = used.until("no replica", |seen| {
        !seen.is_connected && seen.why == AwayReason::NoReplica
    });
    assert_eq!(seen.address, Some(one[0].address));
    acknowledges(2);
    used.until("a replica", |seen| seen.is_connected);
    used.passes("with a replica");
    // Each batch has a patience of its own.
    let mut waits = 0;
    one[0].says(move |command| {
        waits += u32::from(command == "WAIT");
        (command == "WAIT").then(|| format!(":{}\r\n", u32::from(waits.is_multiple_of(2))))
    });
    let mut tries = 0;
    loop {
        let connects = used.statistics.snapshot().connects;
        for _ in 0..3 {
            used.passes("with a slow replica");
        }
        if used.statistics.snapshot().connects == connects {
            break;
        }
        // The machine stood still for longer than a batch may wait. In the next try all before it are longer ago than that.
        tries += 1;
        assert!(tries < 20, "{:?}", used.statistics.snapshot());
        leave_within(&mut used, 2 * IMPATIENCE);
    }
}

#[test]
fn what_no_replica_has_is_looked_for_at_another_primary() {
    let both: [Scripted; 2] = servers(&keys());
    // The first one has lost its replicas, and does not know that it is to be none any more.
    both[0].says(|command| (command == "WAIT").then(|| ":0\r\n".to_owned()));
    both[1].says(|command| (command == "WAIT").then(|| ":1\r\n".to_owned()));
    let mut used = replicated(&both);
    used.is_at(&both[0], "at the first");
    used.passes("by the second");
    used.is_at(&both[1], "at the second");
    used.has_left(&both[0]);
}

#[test]
fn a_commit_whose_acknowledgement_was_lost_is_acknowledged_before_it_counts() {
    let [primary] = servers(&keys());
    let one = [primary];
    // The connection ends behind `EXEC`, and so does the next one that waits; then a replica comes late. A connection that wrote nothing is
    // answered by the number of replicas, as Redis does.
    let waits = Arc::new(AtomicU32::new(0));
    let (waited, mut has_written) = (waits.clone(), false);
    one[0].says(move |command| {
        match command {
            "WAIT 0" => has_written = false,
            "SET" | "EXEC" => has_written = true,
            _ => {}
        }
        let is_wait = command == "WAIT";
        let count = waited.fetch_add(is_wait.into(), Ordering::Relaxed);
        match count {
            _ if !is_wait => None,
            _ if !has_written => Some(":1\r\n".to_owned()),
            0..2 => Some(String::new()),
            2..7 => Some(":0\r\n".to_owned()),
            _ => Some(":1\r\n".to_owned()),
        }
    });
    let mut used = replicated(&one);
    used.inject();
    let until = Instant::now() + WITHIN;
    let left = loop {
        assert!(Instant::now() < until, "{:?}", used.statistics.snapshot());
        used.turn();
        if let Ok(left) = used.left.try_recv() {
            break left;
        }
        // It was given up; what it wrote is there, and the next one counts on.
        if used.instance.tally().parked == 0 {
            used.inject();
        }
    };
    let given_up = used.sent - 1;
    assert_eq!(u32::from(count_of(&left)), 1, "and {given_up} given up");
    let waits = waits.load(Ordering::Relaxed);
    assert!(waits >= 8, "{waits} waits");
    let seen = used.statistics.snapshot();
    assert!(seen.connects >= 4, "{seen:?}");
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_a_failover_are_found() {
    use asterism_remote_store::mutant::{Mutant, select};

    let tests: [(Mutant, fn()); 4] = [
        (
            Mutant::ReplicaTakenForPrimary,
            the_primary_is_found_among_its_replicas_wherever_it_stands,
        ),
        (
            Mutant::MovedAlone,
            connections_follow_the_keys_of_a_cluster_together,
        ),
        (
            Mutant::ReplicaNotAwaited,
            a_packet_waits_until_a_replica_has_its_writes,
        ),
        (
            Mutant::WaitWithoutWrite,
            a_commit_whose_acknowledgement_was_lost_is_acknowledged_before_it_counts,
        ),
    ];
    for (planted, test) in tests {
        select(Some(planted));
        let found = std::panic::catch_unwind(test).is_err();
        select(None);
        assert!(found, "{planted:?}");
    }
}
