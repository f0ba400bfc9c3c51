//! Sources that rules block: for how long, on which instances, and what is reported when there is no room.

use asterism_blocking::blocked::{BLOCKED_QUESTION, BlockedRecord};
use asterism_function::notice::End;
use asterism_function::records::read_records;
use asterism_function::testkit::{ClusterKit, Testkit};
use asterism_function::{Observable, Reason, Tick, Verdict};
use asterism_functions::firewall::{Firewall, FirewallConfig, read_rules};

use crate::firewall::packets::*;

/// Traps that block for a minute, ten minutes and an hour, by their ports; what else comes in may pass.
const TRAPS: [(u16, Tick); 3] = [(23, 60), (24, 600), (25, 3_600)];
const MEMBERS: usize = 3;

fn firewall() -> Firewall {
    let rules = "block 1m tcp on outside to any port 23\n\
                 block 10m tcp on outside to any port 24\n\
                 block 1h tcp on outside to any port 25\n\
                 default allow\n";
    Firewall::new(FirewallConfig {
        rules: read_rules(rules).expect("good rules"),
        ..config()
    })
}

fn syn(source: u32, port: u16) -> Vec<u8> {
    tcp((source, 9), (9, port), SYN, (1, 0), 0)
}

/// A value that the firewall measures.
fn measured(kit: &Testkit<Firewall>, name: &str) -> u64 {
    let (mut values, metrics) = (Vec::new(), kit.function().metrics());
    kit.function().measure(kit.state(), &mut values);
    assert_eq!(values.len(), metrics.len());
    let place = metrics.iter().position(|metric| metric.name == name);
    values[place.expect("a metric of that name")]
}

/// When all of a table's places are taken, further sources are not blocked, which is counted; a place is free again soon after
/// its block has ended.
#[test]
fn a_full_table_blocks_nobody_else_says_so_and_is_free_again_soon() {
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        blocked_max: 2,
        events_max: 3,
        ..config()
    }));
    for source in 2_000_000..2_000_005 {
        drops(&mut kit, OUTSIDE, &syn(source, 23), Reason::Denied);
    }
    for source in [2_000_000, 2_000_001] {
        drops(&mut kit, OUTSIDE, &syn(source, 80), Reason::Blocked);
    }
    passes(&mut kit, OUTSIDE, &syn(2_000_002, 80));
    assert_eq!(measured(&kit, "blocks_without_room_total"), 3);
    assert_eq!(measured(&kit, "events_without_room_total"), 2);
    // The rule blocks for two minutes; its class is of five.
    kit.advance(120);
    passes(&mut kit, OUTSIDE, &syn(2_000_000, 80));
    kit.advance(260);
    drops(&mut kit, OUTSIDE, &syn(2_000_004, 23), Reason::Denied);
    drops(&mut kit, OUTSIDE, &syn(2_000_004, 80), Reason::Blocked);
    assert_eq!(measured(&kit, "blocks_without_room_total"), 3);
    assert_eq!(measured(&kit, "events_without_room_total"), 2);
}

/// A blocked source is reported with the rule that did, as this host has it.
#[test]
fn which_rules_block_is_reported() {
    let mut kit = Testkit::new(firewall());
    drops(&mut kit, OUTSIDE, &syn(2_000_000, 24), Reason::Denied);
    drops(&mut kit, OUTSIDE, &syn(2_000_001, 23), Reason::Denied);
    let reported = |function: &Firewall| {
        let (mut bytes, mut records) = (Vec::new(), Vec::new());
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            cursor = function.report(kit.state(), BLOCKED_QUESTION, (from, 1), &mut bytes);
        }
        assert!(read_records(&bytes, |record: BlockedRecord| records.push(record)));
        records.sort_by_key(|record| record.source);
        records
    };
    let records = reported(kit.function());
    let of = |record: &BlockedRecord| (record.source, record.by.clone());
    assert_eq!(
        records.iter().map(of).collect::<Vec<_>>(),
        [
            (
                End::host(host(2_000_000).into()),
                "line 2: block 10m tcp on outside to any port 24".to_owned()
            ),
            (
                End::host(host(2_000_001).into()),
                "line 1: block 1m tcp on outside to any port 23".to_owned()
            ),
        ]
    );
    assert_eq!(records[0].until - records[1].until, 540);
    let reloaded = Firewall::new(FirewallConfig {
        rules: read_rules("\nblock 1m tcp on outside to any port 23\n").expect("good rules"),
        ..config()
    });
    let [without, moved] = &reported(&reloaded)[..] else {
        panic!("two are blocked");
    };
    assert_eq!(without.by, "a rule that this host does not have now");
    assert_eq!(moved.by, "line 2: block 1m tcp on outside to any port 23");
}

/// A limit on half-open connections that finds no room to be noted is counted too.
#[test]
fn a_limit_that_cannot_be_noted_is_counted() {
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        half_open_per_source: 1,
        events_max: 1,
        ..config()
    }));
    for source in [2_000_000, 2_000_001] {
        for port in [9, 10] {
            kit.packet(OUTSIDE, &tcp((source, port), (9, 80), SYN, (1, 0), 0));
        }
    }
    assert_eq!(measured(&kit, "events_without_room_total"), 1);
}

/// Two blocks of one source, by any two rules at any two instances, at once or one after the other: every instance drops what the source
/// sends until the later end, and none holds the entry for long after it; whether the first instance goes on or dies.
#[test]
fn a_source_is_blocked_by_all_until_the_last_end_and_forgotten_soon_after() {
    const SOURCE: u32 = 2_000_000;
    for (first, first_s) in TRAPS {
        for (second, second_s) in TRAPS {
            // At once, and again right after the first block is over, while its entry is still held.
            for (gap_s, dies) in [
                (0, false),
                (0, true),
                (first_s + 1, false),
                (first_s + 1, true),
            ] {
                let what = format!("{first_s} s, then {second_s} s after {gap_s} s, {dies}");
                let mut cluster = ClusterKit::new(firewall(), MEMBERS as u16, 7);
                let denied = Verdict::Drop(Reason::Denied);
                let blocks = |cluster: &mut ClusterKit<Firewall>, member, port| {
                    assert_eq!(
                        cluster.packet(member, OUTSIDE, &syn(SOURCE, port)).verdict,
                        denied
                    );
                };
                blocks(&mut cluster, 0, first);
                if gap_s > 0 {
                    cluster.exchange();
                    cluster.advance(gap_s);
                    cluster.idle_out();
                }
                blocks(&mut cluster, 1, second);
                cluster.exchange();
                if dies {
                    cluster.kill(0);
                }
                let ends_s = first_s.max(gap_s + second_s);
                let longest_s = first_s.max(second_s);
                let mut passed_s = gap_s;
                while passed_s < ends_s {
                    cluster.idle_out();
                    for member in usize::from(dies)..MEMBERS {
                        let verdict = cluster.packet(member, OUTSIDE, &syn(SOURCE, 80)).verdict;
                        assert_eq!(
                            verdict,
                            Verdict::Drop(Reason::Blocked),
                            "{what}: {passed_s}"
                        );
                    }
                    cluster.advance(7);
                    passed_s += 7;
                }
                // A quarter of the time and two looks more.
                cluster.advance(longest_s / 4 + 2);
                cluster.idle_out();
                cluster.idle_out();
                for member in usize::from(dies)..MEMBERS {
                    assert_eq!(cluster.state(member).blocked.held(), 0, "{what}: {member}");
                }
            }
        }
    }
}

/// A short block at the end of a long one does not hold the entry for as long again.
#[test]
fn a_source_that_was_blocked_for_long_is_forgotten_by_its_last_block() {
    let mut kit = Testkit::new(firewall());
    drops(&mut kit, OUTSIDE, &syn(2_000_000, 25), Reason::Denied);
    kit.advance(3_600);
    drops(&mut kit, OUTSIDE, &syn(2_000_000, 23), Reason::Denied);
    drops(&mut kit, OUTSIDE, &syn(2_000_000, 80), Reason::Blocked);
    kit.advance(80);
    assert_eq!(kit.state().blocked.held(), 0);
}
