//! What a carrier sets: quotas, blocks of ports, pools, rests, and how they are reported (RFC 6888).

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet};

use asterism_blocking::blocked::BLOCKED_QUESTION;
use asterism_function::testkit::{ClusterKit, Outcome, late_everywhere};
use asterism_function::{Endpoint, Observable, Reason, Verdict, notice};
use asterism_functions::nat::{
    AddressPool, Forward, NEWS_QUESTION, Nat, NatConfig, NatEvent, NatEventKind, NatReportPart,
    NatState, NatUse, PortBlocks, PortQuarantine, Prefix,
};

use crate::nat::network::{
    INSIDE, Kit, OUTSIDE, Wish, config, frame, kit_with, left_by, nat, send, tcp, the_error, udp,
};

const BLOCK: u16 = 512;
/// Longer than any session of UDP is idle, with the quarter by which announced uses may be late.
const UDP_IDLE: u32 = 400;
const REST: u32 = 120;

fn remote() -> Endpoint {
    udp([198, 51, 100, 7], 4_500)
}

fn server() -> Endpoint {
    tcp([198, 51, 100, 7], 443)
}

/// The outside endpoint of a packet from inside, or why there is none.
fn outside_of(outcome: &Outcome) -> Result<Endpoint, Reason> {
    match outcome.verdict {
        Verdict::Drop(reason) => Err(reason),
        _ => Ok(left_by(outcome, OUTSIDE).source()),
    }
}

fn open(kit: &mut Kit, inside: Endpoint) -> Result<Endpoint, Reason> {
    outside_of(&send(kit, INSIDE, inside, remote(), Wish::default()))
}

fn with_blocks(config: &mut NatConfig) {
    config.blocks = Some(PortBlocks {
        ports: BLOCK,
        per_subscriber_max: 2,
    });
    config.log = true;
}

/// The block of a port: its address and number.
fn block_of(outside: Endpoint) -> (Ipv4Addr, u16) {
    (outside.address, (outside.port - 1_024) / BLOCK)
}

fn news(function: &Nat, state: &NatState) -> (NatUse, Vec<NatEvent>) {
    let (mut counted, mut events) = (NatUse::default(), Vec::new());
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let mut part = Vec::new();
        cursor = function.report(state, NEWS_QUESTION, (from, 16), &mut part);
        assert!(NatReportPart::read_all(&part, |news| match news {
            NatReportPart::Use(of) => counted = of,
            NatReportPart::Event(event) => events.push(event),
        }));
    }
    (counted, events)
}

fn news_of(kit: &Kit) -> (NatUse, Vec<NatEvent>) {
    news(kit.function(), kit.state())
}

#[test]
fn a_subscriber_gets_no_more_ports_than_its_quota() {
    let mut kit = kit_with(|config| config.subscribers.ports_max = 3);
    for port in 0..3 {
        assert!(open(&mut kit, udp([10, 0, 0, 5], 5_000 + port)).is_ok());
    }
    let over = udp([10, 0, 0, 5], 5_003);
    let refused = send(&mut kit, INSIDE, over, remote(), Wish::default());
    assert_eq!(refused.verdict, Verdict::Drop(Reason::SubscriberQuota));
    let error = the_error(&refused);
    assert_eq!((error.icmp_type, error.code), (3, 13));
    // What it has goes on, to whomever it writes, and others are not touched (RFC 6888 REQ-11 D).
    let known = udp([10, 0, 0, 5], 5_000);
    let other = udp([198, 51, 100, 9], 53);
    assert!(outside_of(&send(&mut kit, INSIDE, known, other, Wish::default())).is_ok());
    assert!(open(&mut kit, udp([10, 0, 0, 6], 5_003)).is_ok());
    assert_eq!(news_of(&kit).0.subscribers, 2);
    kit.advance(UDP_IDLE);
    assert_eq!(news_of(&kit).0.subscribers, 0);
    assert!(open(&mut kit, over).is_ok());
}

/// A host that writes alerts asks every function for them, some times a second.
#[test]
fn who_asks_for_alerts_takes_nothing_from_the_log() {
    let mut kit = kit_with(with_blocks);
    open(&mut kit, udp([10, 0, 0, 5], 5_000)).unwrap();
    for question in [notice::QUESTION, BLOCKED_QUESTION, 1, u32::MAX] {
        let mut answer = Vec::new();
        let next = kit
            .function()
            .report(kit.state(), question, (0, 16), &mut answer);
        assert_eq!((next, answer.len()), (None, 0), "{question}");
    }
    let allocated = |event: &NatEvent| event.kind == NatEventKind::BlockAllocated;
    assert!(news_of(&kit).1.iter().any(allocated), "asked to the log");
}

#[test]
fn a_subscriber_may_be_a_network() {
    let mut kit = kit_with(|config| {
        config.subscribers.ports_max = 3;
        config.subscribers.prefix_length = 24;
    });
    let first = open(&mut kit, udp([10, 0, 0, 5], 5_000)).unwrap();
    for host in [6, 7] {
        let outside = open(&mut kit, udp([10, 0, 0, host], 5_000)).unwrap();
        assert_eq!(outside.address, first.address, "paired with one address");
    }
    let refused = open(&mut kit, udp([10, 0, 0, 8], 5_000));
    assert_eq!(refused, Err(Reason::SubscriberQuota));
    assert!(open(&mut kit, udp([10, 0, 1, 8], 5_000)).is_ok());
}

/// Also of one port, through which any number of remote endpoints could be written to.
#[test]
fn new_sessions_of_a_subscriber_are_limited() {
    let mut kit = kit_with(|config| {
        config.subscribers.sessions_per_second = 2;
        config.subscribers.sessions_burst = 10;
    });
    let inside = udp([10, 0, 0, 5], 5_000);
    let opens = |kit: &mut Kit, count: u16| {
        let to = |port| udp([198, 51, 100, 7], port);
        let first = (kit.context().tick() % 100 * 100) as u16;
        let outcomes = (0..count).map(|port| {
            let sent = send(kit, INSIDE, inside, to(first + port), Wish::default());
            outside_of(&sent)
        });
        let outcomes: Vec<_> = outcomes.collect();
        let refused = outcomes.iter().filter_map(|one| one.err());
        assert!(refused.clone().all(|why| why == Reason::RateLimited));
        count as usize - refused.count()
    };
    assert_eq!(opens(&mut kit, 20), 10);
    kit.advance(3);
    assert_eq!(opens(&mut kit, 20), 6);
    assert!(open(&mut kit, udp([10, 0, 0, 6], 5_000)).is_ok());
}

#[test]
fn a_subscriber_has_its_ports_in_blocks_of_its_own_on_one_address() {
    let mut kit = kit_with(with_blocks);
    let mut owners: BTreeMap<(Ipv4Addr, u16), u8> = BTreeMap::new();
    for host in 5..25 {
        let mut blocks = BTreeSet::new();
        for port in 0..40 {
            let udp_port = open(&mut kit, udp([10, 0, 0, host], 5_000 + port)).unwrap();
            let inside = tcp([10, 0, 0, host], 5_000 + port);
            let tcp_port = send(&mut kit, INSIDE, inside, server(), Wish::default());
            blocks.insert(block_of(udp_port));
            blocks.insert(block_of(outside_of(&tcp_port).unwrap()));
        }
        assert_eq!(blocks.len(), 1);
        for block in blocks {
            assert_eq!(owners.insert(block, host), None, "{block:?}");
        }
    }
    // One line for each, whatever was opened in it.
    let (counted, events) = news_of(&kit);
    assert_eq!((counted.subscribers, counted.blocks_used), (20, 20));
    assert_eq!(events.len(), 20);
    for event in events {
        assert_eq!(event.kind, NatEventKind::BlockAllocated);
        let [.., host] = event.inside.address.octets();
        let block = (event.outside, (event.ports.0 - 1_024) / BLOCK);
        assert_eq!(owners[&block], host);
        assert_eq!(event.ports.1 - event.ports.0, BLOCK - 1);
    }
}

#[test]
fn a_full_block_is_followed_by_another_of_the_address_up_to_the_quota() {
    let mut kit = kit_with(with_blocks);
    let mut blocks = BTreeSet::new();
    for port in 0..2 * BLOCK {
        let outside = open(&mut kit, udp([10, 0, 0, 5], 5_000 + port)).unwrap();
        blocks.insert(block_of(outside));
    }
    assert_eq!(blocks.len(), 2);
    let addresses: BTreeSet<_> = blocks.iter().map(|block| block.0).collect();
    assert_eq!(addresses.len(), 1);
    let refused = open(&mut kit, udp([10, 0, 0, 5], 60_000));
    assert_eq!(refused, Err(Reason::SubscriberQuota));
    // Ports of another protocol are others.
    let inside = tcp([10, 0, 0, 5], 60_000);
    let sent = send(&mut kit, INSIDE, inside, server(), Wish::default());
    assert!(blocks.contains(&block_of(outside_of(&sent).unwrap())));
}

#[test]
fn a_block_returns_when_its_last_port_has_rested() {
    let mut kit = kit_with(|config| {
        with_blocks(config);
        config.outside_addresses.truncate(1);
        // Room for two blocks.
        config.outside_ports = (1_024, 2_047);
    });
    let first = block_of(open(&mut kit, udp([10, 0, 0, 5], 5_000)).unwrap());
    let second = block_of(open(&mut kit, udp([10, 0, 0, 6], 5_000)).unwrap());
    assert_ne!(first, second);
    let third = udp([10, 0, 0, 7], 5_000);
    assert_eq!(open(&mut kit, third), Err(Reason::PortsExhausted));
    kit.advance(UDP_IDLE);
    // Nobody uses them, and nobody else has them yet.
    assert_eq!(open(&mut kit, third), Err(Reason::PortsExhausted));
    let (counted, events) = news_of(&kit);
    assert_eq!((counted.blocks_used, counted.blocks_quarantined), (0, 2));
    assert_eq!(events.len(), 2);
    // The one whose it was may go on with it.
    let again = block_of(open(&mut kit, udp([10, 0, 0, 5], 5_001)).unwrap());
    assert_eq!(again, first);
    kit.advance(REST);
    let taken = block_of(open(&mut kit, third).unwrap());
    assert_eq!(taken, second);
    let kinds: Vec<_> = news_of(&kit)
        .1
        .iter()
        .map(|event| (event.kind, event.inside.address.octets()[3]))
        .collect();
    assert_eq!(
        kinds,
        [
            (NatEventKind::BlockFreed, 6),
            (NatEventKind::BlockAllocated, 7)
        ]
    );
}

#[test]
fn blocks_with_forwarded_ports_are_nobodys() {
    let outside = udp([203, 0, 113, 1], 1_100);
    let mut kit = kit_with(|config| {
        with_blocks(config);
        config.outside_addresses.truncate(1);
        config.outside_ports = (1_024, 2_047);
        config.forwards = vec![Forward {
            outside,
            inside: udp([10, 0, 0, 9], 53),
        }];
    });
    let taken = open(&mut kit, udp([10, 0, 0, 5], 5_000)).unwrap();
    assert_eq!(block_of(taken).1, 1);
    let other = open(&mut kit, udp([10, 0, 0, 6], 5_000));
    assert_eq!(other, Err(Reason::PortsExhausted));
    let server = open(&mut kit, udp([10, 0, 0, 9], 53));
    assert_eq!(server, Ok(outside), "the forward stays");
}

#[test]
fn the_longest_network_says_which_pool() {
    let address = |last| Ipv4Addr::new(203, 0, 113, last);
    let pool = |prefix: &str, outside: &[u8]| AddressPool {
        inside: vec![prefix.parse::<Prefix>().unwrap()],
        outside: outside.iter().map(|last| address(*last)).collect(),
    };
    let mut kit = kit_with(|config| {
        config.outside_addresses = (1..=6).map(address).collect();
        config.pools = vec![
            pool("10.1.0.0/16", &[2, 3]),
            pool("10.1.7.0/24", &[4]),
            pool("10.2.0.0/16", &[5]),
        ];
    });
    for (host, expected) in [
        ([10, 0, 0, 5], vec![1, 6]),
        ([10, 1, 0, 5], vec![2, 3]),
        ([10, 1, 7, 5], vec![4]),
        ([10, 2, 7, 5], vec![5]),
    ] {
        for last in 0..20 {
            let host = [host[0], host[1], host[2], host[3] + last];
            let outside = open(&mut kit, udp(host, 5_000)).unwrap();
            let last = outside.address.octets()[3];
            assert!(expected.contains(&last), "{host:?} as {outside}");
        }
    }
    let mut without = config();
    without.pools = vec![pool("10.1.0.0/16", &[1, 2])];
    let mut kit = Kit::new(nat(without));
    assert!(open(&mut kit, udp([10, 1, 0, 5], 5_000)).is_ok());
    let nobodys = open(&mut kit, udp([10, 2, 0, 5], 5_000));
    assert_eq!(nobodys, Err(Reason::PortsExhausted));
}

#[test]
fn ports_rest_before_they_are_granted_again() {
    let few = |config: &mut NatConfig| {
        config.outside_addresses.truncate(1);
        config.outside_ports = (2_000, 2_000);
    };
    let mut kit = kit_with(few);
    let (first, second) = (udp([10, 0, 0, 5], 5_000), udp([10, 0, 0, 6], 5_000));
    open(&mut kit, first).unwrap();
    kit.advance(UDP_IDLE);
    assert_eq!(open(&mut kit, second), Err(Reason::PortsExhausted));
    kit.advance(REST - 1);
    assert_eq!(open(&mut kit, second), Err(Reason::PortsExhausted));
    kit.advance(1);
    assert!(open(&mut kit, second).is_ok());
    // Connections of TCP are followed to their end, so their ports need no rest.
    let mut kit = kit_with(few);
    let connect = |kit: &mut Kit, host| {
        let inside = tcp([10, 0, 0, host], 5_000);
        outside_of(&send(kit, INSIDE, inside, server(), Wish::default()))
    };
    connect(&mut kit, 5).unwrap();
    assert_eq!(connect(&mut kit, 6), Err(Reason::PortsExhausted));
    kit.advance(10_000);
    assert!(connect(&mut kit, 6).is_ok());
    // No more rest than may.
    let mut kit = kit_with(|config| {
        few(config);
        config.outside_ports = (2_000, 2_001);
        config.port_quarantine = PortQuarantine {
            ports_max: 1,
            ..PortQuarantine::RFC
        };
    });
    for host in [5, 6] {
        open(&mut kit, udp([10, 0, 0, host], 5_000)).unwrap();
    }
    kit.advance(UDP_IDLE);
    let counted = news_of(&kit).0;
    assert_eq!(
        (counted.ports_quarantined, counted.quarantines_cut_short),
        (1, 1)
    );
    assert!(open(&mut kit, udp([10, 0, 0, 7], 5_000)).is_ok());
    assert!(open(&mut kit, udp([10, 0, 0, 8], 5_000)).is_err());
}

#[test]
fn bindings_are_reported_where_there_are_no_blocks() {
    let mut kit = kit_with(|config| config.log = true);
    let inside = udp([10, 0, 0, 5], 5_000);
    let outside = open(&mut kit, inside).unwrap();
    // A second session of the binding is no second binding.
    let other = udp([198, 51, 100, 8], 53);
    send(&mut kit, INSIDE, inside, other, Wish::default());
    let reported = |kit: &Kit, kind: NatEventKind| {
        let (_, events) = news_of(kit);
        let [event] = events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((event.kind, event.inside), (kind, inside));
        assert_eq!(event.outside, outside.address);
        assert_eq!(event.ports, (outside.port, outside.port));
    };
    reported(&kit, NatEventKind::BindingMade);
    kit.advance(UDP_IDLE);
    reported(&kit, NatEventKind::BindingEnded);
    let mut silent = kit_with(|_| {});
    open(&mut silent, inside).unwrap();
    assert!(news_of(&silent).1.is_empty());
}

// --- three instances

fn cluster(change: impl FnOnce(&mut NatConfig)) -> ClusterKit<Nat> {
    let mut config = config();
    change(&mut config);
    ClusterKit::new(nat(config), 3, 11)
}

fn open_at(
    cluster: &mut ClusterKit<Nat>,
    member: usize,
    inside: Endpoint,
) -> Result<Endpoint, Reason> {
    let bytes = frame(INSIDE, inside, remote(), Wish::default());
    outside_of(&cluster.packet(member, INSIDE, &bytes))
}

fn news_at(cluster: &ClusterKit<Nat>, member: usize) -> (NatUse, Vec<NatEvent>) {
    news(cluster.function(), cluster.state(member))
}

/// While no word passes each instance keeps the quota by itself; once word has passed nobody grants beyond it.
#[test]
fn the_quota_of_a_cluster_is_passed_only_by_what_was_not_yet_reported() {
    const MOST: u32 = 10;
    let opened = |cluster: &mut ClusterKit<Nat>, rounds: u16, reported_every: u16| {
        let mut opened = 0;
        for number in 0..rounds {
            let inside = udp([10, 0, 0, 5], 5_000 + number);
            let member = usize::from(number % 3);
            opened += u32::from(open_at(cluster, member, inside).is_ok());
            if number % reported_every == reported_every - 1 {
                cluster.exchange();
            }
        }
        opened
    };
    let mut reported = cluster(|config| config.subscribers.ports_max = MOST);
    assert_eq!(opened(&mut reported, 60, 1), MOST);
    // Word every six packets: each instance opens two at most that the others do not know.
    let mut late = cluster(|config| config.subscribers.ports_max = MOST);
    let sum = opened(&mut late, 60, 6);
    assert!((MOST..=MOST + 4).contains(&sum), "{sum}");
    let mut apart = cluster(|config| config.subscribers.ports_max = MOST);
    assert_eq!(opened(&mut apart, 60, 100), 3 * MOST);
    apart.agree();
    for member in 0..3 {
        let refused = open_at(&mut apart, member, udp([10, 0, 0, 5], 9_000));
        assert_eq!(refused, Err(Reason::SubscriberQuota));
        assert!(open_at(&mut apart, member, udp([10, 0, member as u8 + 1, 5], 9_000)).is_ok());
    }
}

#[test]
fn new_sessions_are_limited_over_all_instances() {
    let mut cluster = cluster(|config| {
        config.subscribers.sessions_per_second = 1;
        config.subscribers.sessions_burst = 9;
    });
    let mut opened = 0;
    for number in 0..30 {
        let member = usize::from(number % 3);
        opened +=
            u32::from(open_at(&mut cluster, member, udp([10, 0, 0, 5], 5_000 + number)).is_ok());
        cluster.exchange();
    }
    assert_eq!(opened, 9);
}

/// Paths are asymmetric: what one instance opened the next goes on with, and packets of one subscriber come to all.
#[test]
fn a_subscribers_block_is_one_for_all_instances_and_survives_a_death() {
    let mut cluster = cluster(with_blocks);
    let mut owners: BTreeMap<(Ipv4Addr, u16), BTreeSet<u8>> = BTreeMap::new();
    let mut bound = Vec::new();
    for host in 5..35 {
        for number in 0..6_u16 {
            let member = usize::from(host as u16 + number) % 3;
            let inside = udp([10, 0, 0, host], 5_000 + number);
            let outside = open_at(&mut cluster, member, inside).unwrap();
            owners.entry(block_of(outside)).or_default().insert(host);
            bound.push((inside, outside));
            cluster.exchange();
        }
    }
    assert_eq!(owners.len(), 30, "one block each");
    assert!(owners.values().all(|hosts| hosts.len() == 1));
    let ports: BTreeSet<_> = bound.iter().map(|(_, outside)| *outside).collect();
    assert_eq!(ports.len(), bound.len());
    // Each block is reported by one instance.
    let reported: Vec<_> = (0..3).map(|member| news_at(&cluster, member)).collect();
    assert_eq!(
        reported
            .iter()
            .map(|(_, events)| events.len())
            .sum::<usize>(),
        30
    );
    assert!(
        reported.iter().all(|(_, events)| events.len() > 2),
        "by all of them"
    );
    assert!(
        reported
            .iter()
            .all(|(counted, _)| counted.blocks_used == 30)
    );

    cluster.kill(1);
    cluster.agree();
    for (inside, outside) in &bound {
        for member in [0, 2] {
            assert_eq!(open_at(&mut cluster, member, *inside), Ok(*outside));
            let reply = frame(OUTSIDE, remote(), *outside, Wish::default());
            let came = cluster.packet(member, OUTSIDE, &reply);
            assert_eq!(left_by(&came, INSIDE).destination(), *inside);
        }
    }
    // New ports of the same subscribers come of the same blocks, and nobody else's.
    for host in 5..35 {
        for member in [0, 2] {
            let inside = udp([10, 0, 0, host], 6_000 + member as u16);
            let outside = open_at(&mut cluster, member, inside).unwrap();
            assert_eq!(owners[&block_of(outside)], BTreeSet::from([host]));
        }
    }
}

/// Blocks of a cluster return only when all know that their last session ended, and then are given to others by who leases them,
/// who also tells of it.
#[test]
fn blocks_of_a_cluster_return_and_are_reported_once() {
    let mut cluster = cluster(|config| {
        with_blocks(config);
        config.outside_addresses.truncate(1);
    });
    let mut first_owners = BTreeMap::new();
    for host in 5..65 {
        for step in 0..3 {
            // Each gives out its third of the blocks.
            let member = (usize::from(host) + step) % 3;
            let inside = udp([10, 0, 0, host], 5_000 + member as u16);
            let outside = open_at(&mut cluster, member, inside).unwrap();
            first_owners.insert(block_of(outside), host);
            cluster.exchange();
        }
    }
    assert_eq!(first_owners.len(), 60);
    cluster.advance(UDP_IDLE);
    cluster.idle_out();
    for member in 0..3 {
        let (counted, _) = news_at(&cluster, member);
        assert_eq!((counted.blocks_used, counted.blocks_quarantined), (0, 60));
    }
    cluster.advance(REST);
    let mut freed = BTreeMap::new();
    for member in 0..3 {
        // Each look frees a bounded number.
        for _ in 0..2 {
            for event in news_at(&cluster, member).1 {
                assert_eq!(event.kind, NatEventKind::BlockFreed);
                let block = (event.outside, (event.ports.0 - 1_024) / BLOCK);
                let host = event.inside.address.octets()[3];
                assert_eq!(freed.insert(block, host), None, "reported once");
            }
        }
        let (counted, _) = news_at(&cluster, member);
        assert_eq!((counted.subscribers, counted.blocks_quarantined), (0, 0));
    }
    assert_eq!(freed, first_owners);
    // All can be had again, each by one.
    let mut taken = BTreeSet::new();
    for host in 0..126 {
        let begin = usize::from(host) % 3;
        let inside = udp([10, 0, 1, host], 5_000);
        let mut members = (0..3).map(|step| (begin + step) % 3);
        let outside = members.find_map(|member| open_at(&mut cluster, member, inside).ok());
        let block = outside.map(block_of);
        assert!(block.is_none_or(|block| taken.insert(block)), "{host}");
        cluster.exchange();
    }
    assert_eq!(taken.len(), 126);
}

/// Instances that have not heard of each other for a while give a subscriber a block each, and never one to two subscribers.
#[test]
fn instances_that_are_cut_off_share_no_block() {
    let mut cluster = cluster(|config| {
        with_blocks(config);
        config.outside_addresses.truncate(1);
    });
    let mut owners: BTreeMap<(Ipv4Addr, u16), BTreeSet<u8>> = BTreeMap::new();
    let mut sum = 0;
    for round in 0..4_u16 {
        for host in 5..20 {
            for member in 0..3 {
                let inside = udp([10, 0, 0, host], 5_000 + 10 * round + member as u16);
                let opened = open_at(&mut cluster, member, inside);
                if let Ok(outside) = opened {
                    owners.entry(block_of(outside)).or_default().insert(host);
                    sum += 1;
                }
            }
        }
        cluster.exchange();
    }
    assert!(owners.values().all(|hosts| hosts.len() == 1), "{owners:?}");
    assert_eq!(owners.len(), 45, "one for each instance and subscriber");
    assert_eq!(sum, 4 * 15 * 3);
    cluster.agree();
}

/// What is set has bounds, and says so.
#[test]
fn every_fault_of_what_carriers_set_is_found() {
    let fields = |change: fn(&mut NatConfig)| {
        let mut config = config();
        change(&mut config);
        match Nat::new(config) {
            Ok(_) => Vec::new(),
            Err(faults) => faults.iter().map(|fault| fault.field).collect::<Vec<_>>(),
        }
    };
    let blocks = |ports, per_subscriber_max| {
        Some(PortBlocks {
            ports,
            per_subscriber_max,
        })
    };
    assert!(fields(with_blocks).is_empty());
    let mut found = Vec::new();
    for change in [
        |c: &mut NatConfig| c.subscribers.prefix_length = 7,
        |c: &mut NatConfig| c.subscribers.prefix_length = 33,
        |c: &mut NatConfig| c.subscribers.count_max = 0,
        |c: &mut NatConfig| c.subscribers.sessions_per_second = 1,
    ] {
        found.push(fields(change));
    }
    assert!(
        found.iter().all(|fields| fields[..] == ["subscribers"]),
        "{found:?}"
    );
    for wrong in [
        blocks(0, 1),
        blocks(500, 1),
        blocks(16_448, 1),
        blocks(512, 0),
        blocks(512, 33),
    ] {
        let mut config = config();
        config.blocks = wrong;
        let faults = Nat::new(config).unwrap_err();
        assert!(
            faults.iter().all(|fault| fault.field == "blocks"),
            "{faults:?}"
        );
    }
    let rest = fields(|c| {
        with_blocks(c);
        c.port_quarantine.seconds = 1;
    });
    assert_eq!(rest, ["port_quarantine"]);
    let pool = |outside: Ipv4Addr| AddressPool {
        inside: vec![Prefix::new([10, 1, 0, 0].into(), 16)],
        outside: vec![outside],
    };
    let mut twice = config();
    twice.pools = vec![pool(twice.outside_addresses[0]); 2];
    let mut unknown = config();
    unknown.pools = vec![pool([9, 9, 9, 9].into())];
    let mut empty = config();
    empty.pools = vec![AddressPool {
        inside: Vec::new(),
        outside: Vec::new(),
    }];
    for (config, count) in [(twice, 2), (unknown, 1), (empty, 1)] {
        let faults = Nat::new(config).unwrap_err();
        assert_eq!(faults.len(), count, "{faults:?}");
        assert!(faults.iter().all(|fault| fault.field == "pools"));
    }
}

#[test]
fn subscribers_fare_alike_when_reads_are_late() {
    let mut steps = Vec::new();
    for number in 0..600_u16 {
        let host = (number % 7) as u8;
        let inside = if number % 3 == 0 {
            tcp([10, 0, 0, host], 5_000 + number)
        } else {
            udp([10, 0, 0, host], 5_000 + number)
        };
        let to = if number % 3 == 0 { server() } else { remote() };
        let frame = frame(INSIDE, inside, to, Wish::default());
        let pause = if number % 200 == 199 { 700 } else { 0 };
        steps.push((pause, INSIDE, frame));
    }
    let make = || {
        let mut config = config();
        with_blocks(&mut config);
        config.blocks = Some(PortBlocks {
            ports: 64,
            per_subscriber_max: 1,
        });
        config.subscribers.ports_max = 60;
        config.subscribers.sessions_per_second = 5;
        config.subscribers.sessions_burst = 40;
        nat(config)
    };
    late_everywhere(make, &steps);
}
