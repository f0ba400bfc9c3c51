//! What a limiter measures.

use asterism_function::testkit::{Testkit, measured};
use asterism_function::{PortNumber, Reason, Verdict};
use asterism_functions::limiter::{Limiter, LimiterConfig, Tenants};

use crate::limiter::packets::{network, udp};
use crate::limiter::rules::packets;
use crate::monitor::cluster::Cluster;

#[test]
fn buckets_in_use_and_packets_without_room_are_counted() {
    let tenants = [vec![network(0x0100)], vec![network(0x0200)]];
    let mut kit = Testkit::new(Limiter::new(LimiterConfig {
        sources: packets(5, 8),
        services: packets(50, 60),
        tenant: packets(1_000, 1_000),
        tenants: Tenants::new(tenants.iter().map(Vec::as_slice)).expect("few tenants"),
        keys_max: 10,
        ..LimiterConfig::default()
    }));
    let counts = |kit: &Testkit<Limiter>| {
        [
            "source_buckets",
            "destination_buckets",
            "service_buckets",
            "tenant_buckets",
            "without_room_packets_total",
        ]
        .map(|name| measured(kit.function(), kit.state(), name))
    };
    assert_eq!(counts(&kit), [0; 5]);
    for source in 0..4 {
        let frame = udp((0x0100 + source, 1), (9, 1 + source % 2), 60);
        kit.packet(PortNumber(0), &frame);
    }
    assert_eq!(counts(&kit), [4, 0, 2, 1, 0]);
    let mut refused = 0;
    for source in 0..20 {
        let frame = udp((0x0200 + source, 1), (9, 1), 60);
        let verdict = kit.packet(PortNumber(0), &frame).verdict;
        refused += u64::from(verdict == Verdict::Drop(Reason::TableFull));
    }
    assert_eq!(refused, 14);
    assert_eq!(counts(&kit), [10, 0, 2, 2, 14]);
    // What is limited finds its bucket empty, and has one.
    for _ in 0..20 {
        kit.packet(PortNumber(0), &udp((0x0100, 1), (9, 1), 60));
    }
    assert_eq!(counts(&kit), [10, 0, 2, 2, 14]);
    for _ in 0..4 {
        kit.advance(30);
    }
    assert_eq!(counts(&kit), [0, 0, 0, 0, 14], "full ones are forgotten");
}

#[test]
fn packets_without_room_are_those_of_all_instances() {
    let config = LimiterConfig {
        sources: packets(5, 8),
        keys_max: 4,
        ..LimiterConfig::default()
    };
    let mut cluster = Cluster::new(Limiter::new(config), 2, 20_000, 5);
    for source in 0..10 {
        for member in 0..2 {
            cluster.packet(
                member,
                0,
                &udp((100 * member as u16 + source, 1), (9, 9), 60),
            );
        }
    }
    cluster.flush();
    cluster.run_to(cluster.now_us + 100_000);
    for member in 0..2 {
        let named = |name| measured(&*cluster.function, cluster.state(member), name);
        assert_eq!(named("without_room_packets_total"), 16);
        assert_eq!(named("source_buckets"), 4);
    }
}
