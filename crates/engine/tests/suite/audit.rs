//! The auditor finds what the protocol cannot: a replica that differs though every message arrived.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{ChannelEvent, Cluster, HostConfig, Removal, host};
use asterism_function::{
    Ask, Builder, Endpoint, Flow4, Graph, Late, Map, NetworkFunction, PortNumber, Protocol, Reason,
    Verdict, state,
};
use asterism_io::frame::FramePool;
use asterism_io::link::Network;
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::replicated::audit::LEAVES;
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::audit::LeafSet;
use asterism_state::{ObjectSettings, OriginName, Wire, Writer};

/// How often each source was seen, as the last one who saw it says, and how much it sends to each destination.
struct Counting;

#[state]
struct Counted {
    seen: Map<Endpoint, Times>,
    talk: Graph<Endpoint>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, asterism_function::Value)]
struct Times(u32);

impl NetworkFunction for Counting {
    type State = Counted;
    fn state(&self, builder: &Builder) -> Counted {
        Counted {
            seen: builder.table("seen", 1_024, &[300]),
            talk: builder.graph("talk", 1_024, 300),
        }
    }
    fn packet(&self, ask: Ask<'_, Counted>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let source = flow.source();
        let known = ask.seen.get(&source)?;
        let room = match known {
            None => ask.seen.vacancy()?,
            Some(_) => None,
        };
        let link = ask.talk.link(&source, &flow.destination())?;
        let mut act = ask.act()?;
        if let Some(link) = link {
            act.talk.add(link, 64);
        }
        match (known, room) {
            (Some(at), _) => act.seen.update(&at, Times(at.value.0 + 1)),
            (None, Some(room)) => act.seen.insert(room, source, Times(1)),
            (None, None) => {}
        }
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

fn packet(source: u16) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let from = Endpoint::new([10, 0, 0, 1].into(), source, Protocol::UDP);
    let flow = Flow4 {
        source: from.address,
        destination: [192, 0, 2, 1].into(),
        source_port: from.port,
        destination_port: 53,
        protocol: 17,
    };
    let length = asterism_function::build::flow4(&flow, b"payload", &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

fn cluster(lanes: u16) -> Cluster<Counting> {
    cluster_of(3, lanes)
}

fn cluster_of(hosts: u16, lanes: u16) -> Cluster<Counting> {
    let names: Vec<_> = (1..=hosts).map(MemberId).collect();
    let member = |&name: &MemberId| {
        let key = ClusterKey::from_random(1, [7; 32]);
        let incarnation = Incarnation(u64::from(name.0) + 100);
        let secrets = [name.0 as u8; 48];
        let mut config =
            HostConfig::new(ClusterId(9), name, incarnation, names.clone(), key, secrets);
        config.audited_objects = 2;
        config.instances = lanes;
        let (channel, parts) = host(config, Time::ZERO).unwrap();
        let instances = parts.into_iter().map(|parts| {
            let ports: Vec<Box<dyn Port>> = vec![
                Box::new(MemoryPort::new("in")),
                Box::new(MemoryPort::sink("out")),
            ];
            let pool = FramePool::new(256).unwrap();
            let settings = |_: &str| ObjectSettings::REPLICATED;
            parts.start(Arc::new(Counting), settings, pool, ports)
        });
        (name, channel, instances.collect())
    };
    let mut cluster = Cluster::new(names.iter().map(member).collect(), Network::new(42));
    cluster.run_until(Time::from_micros(500_000));
    cluster
}

/// Every host sees a source now and then, for so long.
fn load(cluster: &mut Cluster<Counting>, time: Duration) {
    let until = cluster.now() + time;
    let mut number = 0;
    while cluster.now() < until {
        for host in 0..3 {
            assert!(cluster.inject(host, 0, PortNumber(0), &packet(2_000 + number % 40)));
        }
        number += 1;
        cluster.run_until(cluster.now() + Duration::from_millis(3));
    }
}

/// The third host, by name and incarnation.
const THIRD: OriginName = OriginName {
    member: 3,
    incarnation: 103,
};

/// Has a host write again what it may say of an object, all instances of it, under load; and others remove what they alone have.
fn repair(
    cluster: &mut Cluster<Counting>,
    (host, object): (usize, u8),
    removes: bool,
) -> (u64, Removal) {
    let (mut written, mut removal) = (0, Removal::NotAsked);
    for lane in 0..cluster.members()[host].instances.len() {
        let instance = &cluster.members()[host].instances[lane];
        let mut repair = instance.begin_repair(object, LeafSet::ALL, removes);
        loop {
            let instance = &mut cluster.members_mut()[host].instances[lane];
            let done = instance.go_on_with_repair(&mut repair);
            load(cluster, Duration::from_millis(1));
            if let Some(done) = done {
                written += done.entries;
                removal = removal.max(done.removal);
                break;
            }
        }
    }
    (written, removal)
}

/// By host, the parts that it says differ.
fn differing(cluster: &Cluster<Counting>) -> [u32; 3] {
    core::array::from_fn(|host| {
        let auditor = cluster.members()[host].channel.auditor();
        auditor
            .differing()
            .map(|(_, _, leaves)| leaves.count_ones())
            .sum()
    })
}

fn reported(cluster: &mut Cluster<Counting>, host: usize) -> Vec<bool> {
    let channel = &mut cluster.members_mut()[host].channel;
    core::iter::from_fn(|| channel.poll_event())
        .filter_map(|event| match event {
            ChannelEvent::Audit(finding) => Some(finding.equal),
            _ => None,
        })
        .collect()
}

#[test]
fn a_difference_is_reported_and_a_repair_ends_it() {
    for lanes in [1, 2] {
        let mut cluster = cluster(lanes);
        load(&mut cluster, Duration::from_secs(2));
        assert_eq!(differing(&cluster), [0; 3]);
        let compared = cluster.members()[2].channel.auditor().tally();
        assert!(
            compared.equal > LEAVES as u64 && compared.different == 0,
            "{compared:?}"
        );

        // The second host has an entry that nobody else has.
        let mut group = Vec::new();
        let mut out = Writer::new(&mut group, &[]);
        out.u8(0);
        Endpoint::new([10, 9, 9, 9].into(), 7, Protocol::UDP).encode(&mut out);
        out.varint(1);
        Times(5).encode(&mut out);
        out.u24(1_001);
        let odd = &mut cluster.members_mut()[1].instances[0];
        assert!(odd.apply_alone(THIRD, 1 << 40, &group));
        load(&mut cluster, Duration::from_secs(1));
        assert_eq!(differing(&cluster), [0, 1, 0]);
        assert_eq!(reported(&mut cluster, 1), [false]);

        let done = repair(&mut cluster, (1, 0), false);
        assert_eq!(done, (41, Removal::NotAsked));
        load(&mut cluster, Duration::from_secs(1));
        assert_eq!(differing(&cluster), [0; 3]);
        assert_eq!(reported(&mut cluster, 1), [true]);
        assert_eq!(cluster.members()[2].instances[0].state().seen.len_now(), 41);
    }
}

#[test]
fn what_only_one_host_has_is_removed_by_a_repair_from_another() {
    for lanes in [1, 2] {
        let mut cluster = cluster(lanes);
        load(&mut cluster, Duration::from_secs(1));
        // One entry by each host, whose removal then reaches all but the second.
        for host in 0..3 {
            assert!(cluster.inject(host, 0, PortNumber(0), &packet(5_000 + host as u16)));
        }
        load(&mut cluster, Duration::from_millis(100));
        for host in 0..3u16 {
            let mut group = Vec::new();
            let mut out = Writer::new(&mut group, &[]);
            out.tag(0, 2);
            Endpoint::new([10, 0, 0, 1].into(), 5_000 + host, Protocol::UDP).encode(&mut out);
            out.varint(1_000);
            Times(1).encode(&mut out);
            out.u24(1_001);
            for other in [0, 2] {
                for instance in &mut cluster.members_mut()[other].instances {
                    assert!(instance.apply_alone(THIRD, (1 << 40) + u64::from(host), &group));
                }
            }
        }
        load(&mut cluster, Duration::from_secs(1));
        assert_eq!(differing(&cluster), [0, 3 * u32::from(lanes), 0]);
        let entries = |cluster: &Cluster<Counting>| {
            let members = cluster.members().iter();
            let instances = members.flat_map(|member| &member.instances);
            let lengths = instances.map(|instance| instance.state().seen.len_now());
            lengths.collect::<Vec<_>>()
        };

        // A repair alone leaves what the first host knows nothing of.
        repair(&mut cluster, (0, 0), false);
        load(&mut cluster, Duration::from_secs(2));
        assert_eq!(differing(&cluster), [0, 3 * u32::from(lanes), 0]);
        let (_, removal) = repair(&mut cluster, (0, 1), true);
        assert_eq!(removal, Removal::NotOfThisObject);
        // What comes while the repair goes on stays, wherever it comes, as what comes behind it.
        let (_, removal) = repair(&mut cluster, (0, 0), true);
        assert_eq!(removal, Removal::Reported);
        for host in 0..3 {
            assert!(cluster.inject(host, 0, PortNumber(0), &packet(6_000 + host as u16)));
        }
        load(&mut cluster, Duration::from_secs(2));
        assert_eq!(differing(&cluster), [0; 3]);
        assert_eq!(entries(&cluster), vec![43; 3 * usize::from(lanes)]);
        let odd = cluster.members()[1].instances[0].state();
        assert_eq!(odd.seen.tally().removed_by_repair, 3);
    }
}

#[test]
fn before_anything_was_written_there_is_nothing_to_remove() {
    let mut cluster = cluster_of(1, 1);
    for (entries, removal) in [(0, Removal::NothingWritten), (1, Removal::Reported)] {
        let instance = &mut cluster.members_mut()[0].instances[0];
        let mut repair = instance.begin_repair(0, LeafSet::ALL, true);
        let steps = core::iter::from_fn(|| Some(instance.go_on_with_repair(&mut repair)));
        let done = steps.take(10).flatten().next().expect("it ends");
        assert_eq!((done.entries, done.removal), (entries, removal));
        assert!(cluster.inject(0, 0, PortNumber(0), &packet(2_000)));
        cluster.run_until(cluster.now() + Duration::from_millis(100));
    }
}

#[test]
fn a_weight_that_differs_is_reported_and_its_writer_puts_it_right() {
    for lanes in [1, 2] {
        let mut cluster = cluster(lanes);
        load(&mut cluster, Duration::from_secs(2));
        assert_eq!(differing(&cluster), [0; 3]);

        // The second host took another weight for that of the third.
        let to = |port| Endpoint::new([192, 0, 2, 1].into(), port, Protocol::UDP);
        let from = Endpoint::new([10, 0, 0, 1].into(), 2_000, Protocol::UDP);
        let mut group = Vec::new();
        let mut out = Writer::new(&mut group, &[]);
        out.tag(1, 0);
        from.encode(&mut out);
        to(53).encode(&mut out);
        THIRD.encode(&mut out);
        out.u16(0);
        out.varint(1);
        out.varint(1 << 30);
        out.u24(1_001);
        let weight = |cluster: &Cluster<Counting>, host: usize| {
            let state = cluster.members()[host].instances[0].state();
            state.talk.weight(&from, &to(53)).expect("never late")
        };
        let odd = &mut cluster.members_mut()[1].instances[0];
        assert!(odd.apply_alone(THIRD, 1 << 40, &group));
        load(&mut cluster, Duration::from_secs(1));
        assert_eq!(differing(&cluster), [0, 1, 0]);
        assert!(weight(&cluster, 1) > Some(1 << 30));

        // Nobody else can say what the third host added.
        assert!(repair(&mut cluster, (0, 1), false).0 > 0);
        load(&mut cluster, Duration::from_secs(1));
        assert_eq!(differing(&cluster), [0, 1, 0]);
        assert!(repair(&mut cluster, (2, 1), false).0 > 0);
        load(&mut cluster, Duration::from_secs(1));
        assert_eq!(differing(&cluster), [0; 3]);
        assert_eq!(reported(&mut cluster, 1), [false, true]);
        // Nothing is lost by that: what all hosts added is what all say, once it is reported.
        cluster.run_until(cluster.now() + Duration::from_secs(1));
        let weights = [0, 1, 2].map(|host| weight(&cluster, host));
        assert_eq!(weights, [weights[0]; 3]);
        let instances = cluster.members().iter().flat_map(|host| &host.instances);
        let seen: u64 = instances.map(|instance| instance.tally().forwarded).sum();
        let mut all = 0;
        let state = cluster.members()[0].instances[0].state();
        state.talk.for_each(|_, _, weight| all += weight);
        assert_eq!(all, seen * 64);
    }
}

/// HAProxy's issue 3161: an update of an entry that another process made is never queued for the others.
#[cfg(asterism_mutants)]
#[test]
fn an_update_that_is_never_queued_is_reported() {
    use asterism_state::mutant::{self, Mutant};

    let mut cluster = cluster(1);
    load(&mut cluster, Duration::from_secs(1));
    assert!(cluster.inject(0, 0, PortNumber(0), &packet(5_000)));
    load(&mut cluster, Duration::from_millis(50));
    mutant::select(Some(Mutant::RemoteEntryNotLogged));
    assert!(cluster.inject(1, 0, PortNumber(0), &packet(5_000)));
    mutant::select(None);
    let begun = cluster.now();
    while differing(&cluster) != [0, 1, 0] {
        load(&mut cluster, Duration::from_millis(20));
        assert!(
            cluster.now().since(begun) < Duration::from_secs(1),
            "no alarm"
        );
    }
}
