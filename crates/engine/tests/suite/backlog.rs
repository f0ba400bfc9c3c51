//! What a state channel keeps for instances and members that stand still ends: memory is bounded, no matter who wrote it, and scans stop
//! when nobody takes them.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{BACKLOG_BYTES_MAX, Cluster, HostConfig, host};
use asterism_function::{
    Ask, Builder, Endpoint, Flow4, Late, Map, NetworkFunction, PortNumber, Protocol, Reason, Value,
    Verdict, Wire, build, state,
};
use asterism_io::frame::FramePool;
use asterism_io::link::Network;
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::membership::Roster;
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

/// Keeps much for each source.
struct Hoard;

#[state]
struct HoardState {
    seen: Map<Endpoint, Much>,
}

#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)]
struct Much([u8; 200]);

impl NetworkFunction for Hoard {
    type State = HoardState;
    fn state(&self, builder: &Builder) -> HoardState {
        HoardState {
            seen: builder.table("seen", 4096, &[300]),
        }
    }
    fn packet(&self, ask: Ask<'_, HoardState>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(room) = ask.seen.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        ask.act()?.seen.insert(room, flow.source(), Much([7; 200]));
        Ok(Verdict::Consumed)
    }
}

/// The first packet of a source.
fn packet(source: u16) -> Vec<u8> {
    let flow = Flow4 {
        source: [10, 0, 0, 1].into(),
        destination: [192, 0, 2, 1].into(),
        source_port: 1_000 + source,
        destination_port: 53,
        protocol: Protocol::UDP.0,
    };
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, b"payload", &mut bytes).expect("room");
    bytes.truncate(length);
    bytes
}

/// Two hosts; the first has two instances and little room for what waits for them.
fn cluster(backlog_bytes_max: usize) -> Cluster<Hoard> {
    let names = [MemberId(0), MemberId(1)];
    let members = names.map(|name| {
        let mut config = HostConfig::new(
            ClusterId(9),
            name,
            Incarnation(5),
            names.to_vec(),
            ClusterKey::from_random(1, [7; 32]),
            [name.0 as u8 + 1; 48],
        );
        config.instances = 2 - name.0;
        config.up_ring_bytes = 128 << 10;
        config.down_ring_bytes = 128 << 10;
        config.replica.log_groups_max = 1_024;
        let (mut channel, parts) = host(config, Time::ZERO).expect("a good configuration");
        channel.set_backlog_bytes_max(backlog_bytes_max);
        let start = |parts: asterism_engine::InstanceParts| {
            let ports: Vec<Box<dyn Port>> = vec![Box::new(MemoryPort::sink("inside"))];
            let settings = |_: &str| ObjectSettings {
                capacity: 1 << 16,
                ..ObjectSettings::REPLICATED
            };
            let pool = FramePool::new(256).expect("memory");
            parts.start(Arc::new(Hoard), settings, pool, ports)
        };
        (name, channel, parts.into_iter().map(start).collect())
    });
    Cluster::new(members.into(), Network::new(3))
}

#[test]
fn what_siblings_write_waits_in_their_rings_while_an_instance_stands_still() {
    const BOUND: usize = 256 << 10;
    const SOURCES: u16 = 8_000;
    let mut cluster = cluster(BOUND);
    cluster.run_until(Time::from_micros(500_000));
    cluster.set_stalled(0, 1, true);
    let (mut most, mut written) = (0, 0);
    let mut patience = 0;
    while written < SOURCES && patience < 100 {
        if cluster.inject(0, 0, PortNumber(0), &packet(written)) {
            (written, patience) = (written + 1, 0);
        } else {
            patience += 1;
        }
        cluster.run_until(cluster.now() + Duration::from_micros(50));
        most = most.max(cluster.members()[0].channel.backlog_bytes());
    }
    let tally = cluster.members()[0].channel.tally();
    assert!(most > BOUND / 2, "something waits: {most} bytes");
    assert!(
        most <= BOUND + (16 << 10),
        "{most} bytes wait for an instance that stands still"
    );
    assert!(written < SOURCES && tally.held_by_log > 0);

    // Once it goes on nothing is lost, and the rest is taken.
    cluster.set_stalled(0, 1, false);
    while written < SOURCES {
        if cluster.inject(0, 0, PortNumber(0), &packet(written)) {
            written += 1;
        }
        cluster.run_until(cluster.now() + Duration::from_micros(50));
    }
    let took = cluster.run_until_quiet(Duration::from_secs(20));
    assert!(took.is_some(), "the cluster did not become quiet");
    assert_eq!(cluster.members()[0].channel.backlog_bytes(), 0);
    let members = cluster.members().iter();
    for instance in members.flat_map(|member| &member.instances) {
        assert_eq!(instance.state().seen.len_now(), usize::from(SOURCES));
    }
}

#[test]
fn who_scans_for_an_incarnation_that_an_epoch_ends_stops_scanning() {
    const SOURCES: u16 = 4_000;
    let mut cluster = cluster(BACKLOG_BYTES_MAX);
    cluster.run_until(Time::from_micros(500_000));
    cluster.set_paused(1, true);
    let mut written = 0;
    while written < SOURCES {
        written += u16::from(cluster.inject(0, 0, PortNumber(0), &packet(written)));
        cluster.run_until(cluster.now() + Duration::from_micros(500));
    }
    cluster.set_paused(1, false);
    let under_way = |cluster: &Cluster<Hoard>| {
        let (is_under_way, _) = cluster.members()[0].instances[0].snapshot_under_way();
        is_under_way
    };
    let until = cluster.now() + Duration::from_secs(5);
    while !under_way(&cluster) {
        cluster.run_until(cluster.now() + Duration::from_micros(50));
        assert!(
            cluster.now() < until,
            "the paused one did not fall off the log"
        );
    }
    let roster = Roster {
        epoch: Epoch(2),
        members: vec![(MemberId(0), Some(Incarnation(5)))],
        assignment: Vec::new(),
    };
    cluster.set_paused(1, true);
    cluster.install(0, &roster).expect("a good roster");
    cluster.run_until(cluster.now() + Duration::from_millis(100));
    assert!(!under_way(&cluster), "nobody takes what it scans for");
}
