//! Three instances, each of which sees a part of every flow, and one that dies: what is exported is what was there, once.

use std::collections::BTreeMap;

use asterism_function::records::{Record, read_records};
use asterism_function::testkit::measured;
use asterism_function::{HeavyKeys, Observable, PortNumber, Verdict};
use asterism_functions::monitor::{
    AlarmRecord, Before, CellRecord, Degree, Exporter, ExporterElection, Flow, FlowRecord, GRACE_S,
    HeavyRecord, LinkRecord, Monitor, MonitorConfig, NodeRecord, ProtocolCount, Span, Summary,
    TrafficQuery,
};

use crate::monitor::cluster::Cluster;
use crate::monitor::collector::flows;
use crate::nfcapd::Collector;
use crate::port_scan::packets::{host, syn, udp};

/// Packets and bytes that passed, by interval and flow.
type Truth = BTreeMap<(u32, Flow), (u64, u64)>;

const DELAY_US: u64 = 50_000;
const SECOND_US: u64 = 1_000_000;

/// All hosts' duties, and what they exported: interval, exporter, record.
struct Exports {
    duties: Vec<ExporterElection>,
    heard: Vec<u32>,
    done: Vec<(u32, usize, FlowRecord)>,
}

impl Exports {
    fn new(cluster: &Cluster<Monitor>, hosts: usize) -> Self {
        let now = cluster.tick();
        Self {
            duties: vec![ExporterElection::new(60, now); hosts],
            heard: vec![now; hosts],
            done: Vec::new(),
        }
    }

    /// Every host that lives looks at its election, as it does every second.
    fn query(&mut self, cluster: &Cluster<Monitor>) {
        let now = cluster.tick();
        for host in 0..self.duties.len() {
            if cluster.is_alive(host) {
                self.heard[host] = now;
            }
        }
        for host in 0..self.duties.len() {
            if !cluster.is_alive(host) {
                continue;
            }
            let before: Vec<Before> = self.heard[..host]
                .iter()
                .map(|&heard| Before { since: 0, heard })
                .collect();
            while let Some(interval) = self.duties[host].due(now, &before) {
                let mut cursor = Some(0);
                while let Some(from) = cursor {
                    cursor = cluster
                        .state(host)
                        .flows_at(interval * 60, (from, 7), |record| {
                            self.done.push((interval, host, record));
                        });
                }
            }
        }
    }
}

/// Packets dealt so that the ways of a conversation go through different instances; one instance dies in the third minute.
fn deal(dying: Option<usize>) -> (Cluster<Monitor>, Exports, Truth) {
    let mut cluster = Cluster::new(Monitor::new(MonitorConfig::default()), 3, DELAY_US, 11);
    let mut exports = Exports::new(&cluster, 3);
    let mut truth = Truth::new();
    for second in 0..300u64 {
        // A dying instance has reported what it counted in the seconds before; it dies after a flush.
        if second == 125
            && let Some(dying) = dying
        {
            cluster.kill(dying);
        }
        for number in 0..9u16 {
            let there = udp((1, 4_000 + number), (2, 53), b"question");
            let back = udp((2, 53), (1, 4_000 + number), b"a longer answer");
            for (frame, turn) in [(there, number), (back, number + 1)] {
                let wanted = usize::from(turn + second as u16) % 3;
                let member = if cluster.is_alive(wanted) {
                    wanted
                } else {
                    (wanted + 1) % 3
                };
                let verdict = cluster.packet(member, 0, &frame);
                assert_eq!(verdict, Verdict::Forward(PortNumber(1)));
                let flow = {
                    let mut bytes = frame.clone();
                    let packet = asterism_function::Packet::parse(&mut bytes).unwrap();
                    Flow::of(&packet).unwrap()
                };
                let count = truth.entry((cluster.tick() / 60, flow)).or_default();
                *count = (count.0 + 1, count.1 + frame.len() as u64 - 14);
            }
        }
        cluster.flush();
        cluster.run_to((second + 1) * SECOND_US);
        cluster.sweep();
        exports.query(&cluster);
    }
    cluster.agree();
    (cluster, exports, truth)
}

/// That each interval that is over was exported once, whole, and by which hosts.
fn check(exports: &Exports, truth: &Truth, last: u32) -> Vec<usize> {
    let mut reported = BTreeMap::new();
    let mut exporters = BTreeMap::new();
    for (interval, host, record) in &exports.done {
        let again = reported.insert((*interval, record.flow), (record.packets, record.bytes));
        assert_eq!(
            again, None,
            "interval {interval}: {} came twice",
            record.flow
        );
        assert_eq!(*exporters.entry(*interval).or_insert(*host), *host);
    }
    let over: BTreeMap<_, _> = truth
        .iter()
        .filter(|((interval, _), _)| *interval <= last)
        .map(|(key, count)| (*key, *count))
        .collect();
    assert_eq!(reported, over);
    exporters.into_values().collect()
}

#[test]
fn every_flow_of_every_interval_is_exported_once_by_the_first_host() {
    let (cluster, exports, truth) = deal(None);
    let last = (cluster.tick() - GRACE_S) / 60 - 1;
    let exporters = check(&exports, &truth, last);
    assert_eq!(exporters, [0, 0, 0, 0]);
}

#[test]
fn when_the_exporter_dies_the_next_host_exports_and_nothing_is_missing_or_twice() {
    let (cluster, exports, truth) = deal(Some(0));
    let last = (cluster.tick() - GRACE_S) / 60 - 1;
    // It dies one second before the second interval is due; its counts of that time are in the others.
    let exporters = check(&exports, &truth, last);
    assert_eq!(exporters, [0, 1, 1, 1]);
}

#[test]
fn when_another_dies_the_first_host_exports_what_that_one_counted() {
    let (cluster, exports, truth) = deal(Some(2));
    let last = (cluster.tick() - GRACE_S) / 60 - 1;
    assert_eq!(check(&exports, &truth, last), [0, 0, 0, 0]);
}

#[test]
fn a_real_collector_sums_what_two_exporters_sent_to_what_passed() {
    let test = "a_real_collector_sums_what_two_exporters_sent_to_what_passed";
    let Some(collector) = Collector::start(test) else {
        return;
    };
    let (cluster, exports, truth) = deal(Some(0));
    let last = (cluster.tick() - GRACE_S) / 60 - 1;
    let mut senders = [Exporter::new(1), Exporter::new(2), Exporter::new(3)];
    let send = |message: &[u8]| collector.send(message);
    let now_s = 1_700_000_400;
    for (interval, host, record) in &exports.done {
        let span = Span {
            start_s: 1_700_000_000 + u64::from(interval * 60),
            length_s: 60,
        };
        senders[*host].add(record, span, now_s, send);
    }
    senders
        .iter_mut()
        .for_each(|sender| sender.finish(now_s, send));
    let mut collected: BTreeMap<Flow, (u64, u64)> = BTreeMap::new();
    for record in flows(collector) {
        let sum = collected.entry(record.flow).or_default();
        *sum = (sum.0 + record.packets, sum.1 + record.bytes);
    }
    let mut expected: BTreeMap<Flow, (u64, u64)> = BTreeMap::new();
    for ((_, flow), (packets, bytes)) in truth.iter().filter(|((of, _), _)| *of <= last) {
        let sum = expected.entry(*flow).or_default();
        *sum = (sum.0 + packets, sum.1 + bytes);
    }
    assert_eq!(collected, expected);
}

#[test]
fn a_host_with_many_peers_is_found_though_no_instance_sees_as_many() {
    let config = MonitorConfig {
        out_degree: 30,
        ..MonitorConfig::default()
    };
    let probes: Vec<_> = (0..60u16)
        .map(|target| syn(1, (100 + target, 80)))
        .collect();
    let mut apart = Cluster::new(Monitor::new(config), 3, DELAY_US, 3);
    for (place, probe) in probes.iter().enumerate() {
        apart.packet(place % 3, 0, probe);
    }
    for member in 0..3 {
        assert_eq!(
            apart.state(member).raised(),
            [],
            "twenty peers are not many"
        );
    }
    let mut together = Cluster::new(Monitor::new(config), 3, DELAY_US, 3);
    for (place, probe) in probes.iter().enumerate() {
        together.packet(place % 3, 0, probe);
        together.settle();
    }
    together.agree();
    for member in 0..3 {
        let raised = together.state(member).raised();
        assert_eq!(raised.len(), 1);
        assert_eq!(raised[0].0.host, host(1).into());
        assert_eq!(raised[0].0.degree, Degree::Out);
        assert_eq!(
            together
                .state(member)
                .links
                .out_degree(&host(1).into())
                .ok(),
            Some(60)
        );
    }
}

#[test]
fn the_heaviest_flow_is_found_though_its_packets_are_spread() {
    let config = MonitorConfig {
        places: 16,
        ..MonitorConfig::default()
    };
    let mut cluster = Cluster::new(Monitor::new(config), 3, DELAY_US, 3);
    let elephant = udp((9, 9), (10, 10), &[0; 700]);
    for number in 0..600u16 {
        let mouse = udp((number % 200, number), (11, 11), &[0; 50]);
        cluster.packet(usize::from(number) % 3, 0, &mouse);
        cluster.packet(usize::from(number + 1) % 3, 0, &elephant);
    }
    cluster.agree();
    let state = cluster.state(1);
    let heaviest = state.heavy_bytes.heaviest(1)[0];
    assert_eq!(heaviest.key.source, host(9).into());
    assert!(heaviest.sum.abs_diff(600 * 728) <= state.heavy_bytes.excess());
}

/// All records of an answer, read in parts of so many places as an instance's thread reads them.
fn looked<R: Record>(cluster: &Cluster<Monitor>, member: usize, look: TrafficQuery) -> Vec<R> {
    let (mut records, mut cursor) = (Vec::new(), Some(0));
    while let Some(from) = cursor {
        let mut part = Vec::new();
        let state = cluster.state(member);
        cursor = cluster
            .function
            .report(state, look.question(), (from, 7), &mut part);
        assert!(read_records(&part, |record| records.push(record)));
    }
    records
}

#[test]
fn what_all_counted_is_reported_by_any() {
    let config = MonitorConfig {
        places: 16,
        cells: 512,
        out_degree: 20,
        ..MonitorConfig::default()
    };
    let mut cluster = Cluster::new(Monitor::new(config), 3, DELAY_US, 3);
    let answer = udp((9, 9), (10, 10), &[0; 700]);
    for number in 0..40u16 {
        // One asks forty hosts, of which one answers a partition.
        cluster.packet(usize::from(number) % 3, 0, &syn(10, (100 + number, 80)));
        cluster.packet(usize::from(number + 1) % 3, 1, &answer);
    }
    cluster.agree();
    // None of them saw enough by itself: the next packet finds what all did.
    cluster.packet(0, 0, &syn(10, (100, 80)));
    cluster.agree();
    let node = |member: usize, number: u16| {
        let nodes = looked::<NodeRecord>(&cluster, member, TrafficQuery::Nodes);
        let of = nodes
            .iter()
            .find(|node| node.host == host(number).into())
            .copied();
        let of = of.expect("it is there");
        (nodes.len(), of.out_degree, of.in_degree)
    };
    for member in 0..3 {
        assert_eq!(node(member, 10), (42, 40, 1));
        assert_eq!(node(member, 9), (42, 1, 0));
        let mut links = looked::<LinkRecord>(&cluster, member, TrafficQuery::Links);
        links.sort_by_key(|link| link.bytes);
        let last = links.last().expect("there are edges");
        assert_eq!((links.len(), last.bytes), (41, 40 * 728));
        assert_eq!(
            (last.source, last.destination),
            (host(9).into(), host(10).into())
        );
        let protocols = looked::<ProtocolCount>(&cluster, member, TrafficQuery::Protocols);
        let udp = protocols
            .iter()
            .find(|count| count.protocol == Some((17, false)));
        assert_eq!(
            udp.map(|count| (count.packets, count.bytes)),
            Some((40, 40 * 728))
        );
        let cells = looked::<CellRecord>(&cluster, member, TrafficQuery::Sizes);
        assert_eq!(cells.iter().map(|cell| cell.packets).sum::<u64>(), 81);
        assert!(
            cells
                .iter()
                .all(|cell| cell.start == cluster.tick() / 60 * 60)
        );
        let alarms = looked::<AlarmRecord>(&cluster, member, TrafficQuery::Alarms);
        assert_eq!(alarms.len(), 1);
        assert_eq!(alarms[0].suspect.host, host(10).into());
        assert!(alarms[0].alarm.degree >= 20);
        let summary = looked::<Summary>(&cluster, member, TrafficQuery::Summary);
        let expected = Summary {
            interval_s: 60,
            places: 16,
            cells: 512,
            nodes: 42,
            links: 41,
            unrecorded: 0,
        };
        assert_eq!(summary, [expected]);
        for (look, truth) in [
            (TrafficQuery::HeavyBytes, 40 * 728),
            (TrafficQuery::HeavyPackets, 40),
        ] {
            let mut keys = HeavyKeys::new(16);
            let mut volume = 0;
            for record in looked::<HeavyRecord>(&cluster, member, look) {
                if record.flow.source == host(9).into() {
                    volume = record.volume;
                }
                keys.add(record.into());
            }
            let heaviest = keys.heaviest(1)[0];
            assert_eq!(heaviest.key.source, host(9).into());
            assert!(heaviest.at_least <= truth && truth <= heaviest.at_most);
            assert!(volume >= truth, "the sketch is never too small: {volume}");
        }
        let measured = |name| measured(&*cluster.function, cluster.state(member), name);
        assert_eq!(
            [
                "udp_packets_total",
                "udp_bytes_total",
                "tcp_packets_total",
                "talking_hosts"
            ]
            .map(measured),
            [40, 40 * 728, 41, 42]
        );
        assert_eq!(
            ["other_ip_packets_total", "unrecorded_total"].map(measured),
            [0, 0]
        );
    }
}
