//! A small function on a whole cluster: replication end to end.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::frame::FramePool;
use asterism_engine::link::{LinkConditions, Network};
use asterism_engine::port::{MemoryPort, Port};
use asterism_engine::{Cluster, HostConfig, host};
use asterism_function::{
    Ask, Builder, Counter, Counters, Endpoint, Late, Map, NetworkFunction, Packet, PortNumber,
    Protocol, Reason, Verdict, state,
};
use asterism_placement::seal::ClusterKey;
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_state::ObjectSettings;

/// Counts packets by source, and remembers each source's last destination.
struct FlowCounter;

#[state]
struct FlowCounts {
    packets: Counter,
    by_source: Counters<Endpoint>,
    last: Map<Endpoint, ()>,
}

impl NetworkFunction for FlowCounter {
    type State = FlowCounts;
    fn state(&self, builder: &Builder) -> FlowCounts {
        FlowCounts {
            packets: builder.counter("packets"),
            by_source: builder.counters("by_source", 4096),
            last: builder.table("last", 4096, &[300]),
        }
    }
    fn packet(&self, ask: Ask<'_, FlowCounts>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let source = flow.source();
        let Some(count) = ask.by_source.find(&source)? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let known = ask.last.get(&source)?;
        let room = if known.is_none() {
            ask.last.vacancy()?
        } else {
            None
        };
        let mut act = ask.act()?;
        act.packets.add(1);
        act.by_source.add(&count, 1);
        match (known, room) {
            (Some(known), _) => act.last.touch(&known),
            (None, Some(room)) => act.last.insert(room, source, ()),
            (None, None) => return Ok(Verdict::Drop(Reason::TableFull)),
        }
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

fn packet(source: u16) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let from = Endpoint::new(
        [10, 0, (source >> 8) as u8, source as u8].into(),
        1000 + source,
        Protocol::UDP,
    );
    let to = Endpoint::new([192, 0, 2, 1].into(), 53, Protocol::UDP);
    let flow = asterism_function::Flow4 {
        source: from.address,
        destination: to.address,
        source_port: from.port,
        destination_port: to.port,
        protocol: 17,
    };
    let length = asterism_function::build::flow4(&flow, b"payload", &mut bytes).unwrap();
    bytes.truncate(length);
    Packet::parse(&mut bytes).unwrap();
    bytes
}

fn cluster(count: u16, lanes: u16, network: Network) -> Cluster<FlowCounter> {
    let names: Vec<_> = (0..count).map(MemberId).collect();
    let members = names
        .iter()
        .map(|&name| {
            let key = ClusterKey::from_random(1, [7; 32]);
            let mut secrets = [0; 48];
            secrets[0] = name.0 as u8 + 1;
            let mut config = HostConfig::new(
                ClusterId(9),
                name,
                Incarnation(u64::from(name.0) + 100),
                names.clone(),
                key,
                secrets,
            );
            config.instances = lanes;
            let (channel, parts) = host(config, Time::ZERO).unwrap();
            let instances = parts
                .into_iter()
                .map(|parts| {
                    let ports: Vec<Box<dyn Port>> = vec![
                        Box::new(MemoryPort::new("in")),
                        Box::new(MemoryPort::sink("out")),
                    ];
                    parts.start(
                        Arc::new(FlowCounter),
                        |_| ObjectSettings::REPLICATED,
                        FramePool::new(256).unwrap(),
                        ports,
                    )
                })
                .collect();
            (name, channel, instances)
        })
        .collect();
    Cluster::new(members, network)
}

fn run(count: u16, lanes: u16, conditions: LinkConditions, packets: u64) {
    let mut network = Network::new(42);
    network.set_defaults(conditions);
    let mut cluster = cluster(count, lanes, network);
    cluster.run_until(Time::from_micros(500_000));
    for number in 0..packets {
        let member = (number % u64::from(count)) as usize;
        let lane = (number / u64::from(count) % u64::from(lanes)) as usize;
        assert!(cluster.inject(
            member,
            lane,
            PortNumber(0),
            &packet((number * 7 % 50) as u16)
        ));
        cluster.run_until(cluster.now() + Duration::from_micros(100));
    }
    // The last flush of the accumulators is still to come.
    cluster.run_until(cluster.now() + Duration::from_millis(5));
    let took = cluster.run_until_quiet(Duration::from_secs(20));
    assert!(took.is_some(), "the cluster did not become quiet");
    let first = cluster.members()[0].instances[0].digests();
    for member in cluster.members() {
        for instance in &member.instances {
            assert_eq!(instance.state().packets.get().unwrap(), packets);
            assert_eq!(instance.state().last.len(), 50);
            assert_eq!(instance.digests(), first, "members disagree");
            assert_eq!(instance.tally().groups_bad, 0);
            assert_eq!(instance.frames_in_use(), 0);
        }
    }
}

#[test]
fn three_hosts_agree() {
    run(
        3,
        1,
        LinkConditions::with_delay(Duration::from_millis(5)),
        500,
    );
}

#[test]
fn two_hosts_of_three_instances_agree() {
    run(
        2,
        3,
        LinkConditions::with_delay(Duration::from_millis(1)),
        500,
    );
}

#[test]
fn loss_and_duplication_change_nothing() {
    let conditions = LinkConditions {
        loss: 0.2,
        duplication: 0.1,
        ..LinkConditions::with_delay(Duration::from_millis(3))
    };
    run(3, 1, conditions, 500);
}
