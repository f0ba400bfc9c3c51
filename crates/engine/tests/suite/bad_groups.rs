//! A host that is handed what it cannot apply stops before it says that it has it: bytes of a member whose build or settings are
//! others, sealed and of the right version.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, StopReason, host};
use asterism_function::{
    Ask, Bloom, Builder, Counter, Late, NetworkFunction, PortNumber, Reason, Verdict, build, state,
};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::membership::Roster;
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

/// Remembers who sent.
struct Senders;

#[state]
struct Seen {
    packets: Counter,
    senders: Bloom<u32>,
}

impl NetworkFunction for Senders {
    type State = Seen;
    fn state(&self, builder: &Builder) -> Seen {
        Seen {
            packets: builder.counter("packets"),
            senders: builder.bloom("senders", 1_000, 0.01),
        }
    }
    fn packet(&self, ask: Ask<'_, Seen>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let sender = flow.source.to_bits();
        let mut act = ask.act()?;
        act.packets.add(1);
        act.senders.add(&sender);
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

fn packet(sender: u8) -> Vec<u8> {
    let flow = asterism_function::Flow4 {
        source: [10, 0, 0, sender].into(),
        destination: [192, 0, 2, 1].into(),
        source_port: 1_000,
        destination_port: 53,
        protocol: 17,
    };
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, b"payload", &mut bytes).expect("room for a packet");
    bytes.truncate(length);
    bytes
}

/// Hosts of `lanes` instances each, with room for so many senders, which all should have alike.
fn cluster(lanes: u16, rooms: &[u32]) -> Cluster<Senders> {
    let names: Vec<_> = (0..rooms.len() as u16).map(MemberId).collect();
    let members = names.iter().zip(rooms).map(|(&name, &capacity)| {
        let mut secrets = [0; 48];
        secrets[0] = name.0 as u8 + 1;
        let key = ClusterKey::from_random(1, [7; 32]);
        let incarnation = Incarnation(u64::from(name.0) + 100);
        let mut config =
            HostConfig::new(ClusterId(9), name, incarnation, names.clone(), key, secrets);
        config.instances = lanes;
        let (channel, parts) = host(config, Time::ZERO).expect("a good configuration");
        let instances = parts.into_iter().map(|parts| {
            let ports: Vec<Box<dyn Port>> = vec![
                Box::new(MemoryPort::new("in")),
                Box::new(MemoryPort::sink("out")),
            ];
            let settings = ObjectSettings {
                capacity,
                ..ObjectSettings::REPLICATED
            };
            let pool = FramePool::new(64).expect("memory for frames");
            parts.start(Arc::new(Senders), move |_| settings, pool, ports)
        });
        (name, channel, instances.collect())
    });
    let mut network = Network::new(42);
    network.set_defaults(LinkConditions::with_delay(Duration::from_millis(2)));
    let mut cluster = Cluster::new(members.collect(), network);
    cluster.run_until(Time::from_micros(500_000));
    for member in 0..rooms.len() {
        assert!(cluster.inject(member, 0, PortNumber(0), &packet(member as u8)));
    }
    cluster
}

/// How far one member has acknowledged another's stream, as that one knows.
fn acknowledged(cluster: &Cluster<Senders>, of: usize, by: usize) -> u64 {
    let progress = cluster.members()[of].channel.progress();
    let by = progress.member(MemberId(by as u16));
    by.expect("a member").acknowledged
}

#[test]
fn hosts_that_cannot_read_a_group_stop_and_never_acknowledge_it() {
    let mut cluster = cluster(2, &[1_000; 3]);
    cluster.run_until(cluster.now() + Duration::from_millis(50));
    assert!(cluster.run_until_quiet(Duration::from_secs(5)).is_some());
    let before = acknowledged(&cluster, 0, 1);
    assert!(before > 0 && acknowledged(&cluster, 0, 2) == before);
    let group = [0, 0xFF, 0xFF];
    let sequence = cluster.members_mut()[0].instances[1]
        .commit_foreign(&group)
        .expect("room in the log");
    assert_eq!(sequence, before + 1);
    assert!(cluster.inject(1, 0, PortNumber(0), &packet(77)));
    // What follows does not bring it by another way either.
    for sender in 0..100 {
        cluster.inject(0, 1, PortNumber(0), &packet(sender));
        cluster.run_until(cluster.now() + Duration::from_millis(20));
    }
    for by in [1, 2] {
        assert_eq!(acknowledged(&cluster, 0, by), before, "by {by}");
        for instance in &cluster.members()[by].instances {
            let why = instance.stopped();
            assert!(
                matches!(why, Some(StopReason::GroupBad { origin, sequence: of })
                    if (origin.member, of) == (0, sequence)),
                "{why:?}"
            );
            assert_eq!(instance.tally().groups_bad, 1);
        }
        assert!(!cluster.inject(by, 0, PortNumber(0), &packet(1)));
    }
    assert!(!cluster.is_quiet());
    // An epoch tells the one that is left that they are gone, and it goes on.
    let writer = &cluster.members()[0].instances[1];
    assert_eq!(writer.stopped(), None, "it reads nothing of its own");
    let roster = Roster {
        epoch: Epoch(2),
        members: vec![(MemberId(0), Some(Incarnation(100)))],
        assignment: Vec::new(),
    };
    cluster.install(0, &roster).expect("a later epoch");
    cluster.run_until(cluster.now() + Duration::from_secs(1));
    assert!(cluster.inject(0, 1, PortNumber(0), &packet(5)));
}

#[test]
fn a_member_of_other_settings_stops_who_it_tells_what_it_counts() {
    let mut cluster = cluster(1, &[1_000, 1_000, 9_000]);
    cluster.run_until(cluster.now() + Duration::from_secs(2));
    // The two that are alike read each other, and neither reads the third, which has more places. That one finds what they say in
    // its own: bytes alone cannot tell it, which is why hosts compare shapes first.
    let head = cluster.members()[2].channel.head();
    for place in 0..2 {
        let why = cluster.members()[place].instances[0].stopped();
        let why = why.unwrap_or_else(|| panic!("host {place} goes on"));
        assert_eq!(why.member(), MemberId(2), "{place}: {why:?}");
        assert!(why.to_string().contains("does not decode here"));
        assert!(acknowledged(&cluster, 2, place) < head, "by {place}");
    }
}
