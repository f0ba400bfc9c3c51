//! A small function on a whole cluster: replication end to end.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, hash_seed, host};
use asterism_function::{
    Ask, Builder, CountMin, Counter, Counters, Endpoint, Late, Map, NetworkFunction, Packet,
    PortNumber, Protocol, Reason, Spending, TokenBucket, TokenRate, Verdict, state,
};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::{ClusterKey, KeyRing};
use asterism_state::ObjectSettings;

/// Counts packets by source, exactly and in a sketch, and remembers each source's last destination.
struct FlowCounter;

#[state]
struct FlowCounts {
    packets: Counter,
    by_source: Counters<Endpoint>,
    sketched: CountMin<Endpoint>,
    last: Map<Endpoint, ()>,
}

impl NetworkFunction for FlowCounter {
    type State = FlowCounts;
    fn state(&self, builder: &Builder) -> FlowCounts {
        FlowCounts {
            packets: builder.counter("packets"),
            by_source: builder.counters("by_source", 4096),
            sketched: builder.count_min("sketched", 0.01, 0.01),
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
        act.sketched.add(&source, 1);
        match (known, room) {
            (Some(known), _) => act.last.touch(&known),
            (None, Some(room)) => act.last.insert(room, source, ()),
            (None, None) => return Ok(Verdict::Drop(Reason::TableFull)),
        }
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

fn endpoint(source: u16) -> Endpoint {
    Endpoint::new(
        [10, 0, (source >> 8) as u8, source as u8].into(),
        1000 + source,
        Protocol::UDP,
    )
}

fn packet(source: u16) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let from = endpoint(source);
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

fn first_key() -> ClusterKey {
    ClusterKey::from_random(1, [7; 32])
}

fn cluster(count: u16, lanes: u16, network: Network) -> Cluster<FlowCounter> {
    let keys = vec![first_key().into(); count.into()];
    cluster_with(keys, lanes, network)
}

/// A cluster of hosts with these keys.
fn cluster_with(keys: Vec<KeyRing>, lanes: u16, network: Network) -> Cluster<FlowCounter> {
    cluster_of(FlowCounter, keys, lanes, network)
}

fn cluster_of<F: NetworkFunction>(
    function: F,
    keys: Vec<KeyRing>,
    lanes: u16,
    network: Network,
) -> Cluster<F> {
    let function = Arc::new(function);
    let names: Vec<_> = (0..keys.len() as u16).map(MemberId).collect();
    let members = names
        .iter()
        .zip(keys)
        .map(|(&name, key)| {
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
                        function.clone(),
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
    exercise(cluster(count, lanes, network), lanes, packets);
}

fn exercise(mut cluster: Cluster<FlowCounter>, lanes: u16, packets: u64) {
    let count = cluster.members().len();
    cluster.run_until(Time::from_micros(500_000));
    for number in 0..packets {
        let member = (number % count as u64) as usize;
        let lane = (number / count as u64 % u64::from(lanes)) as usize;
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
            assert_eq!(instance.state().last.len_now(), 50);
            // Anyone who hashes otherwise than the others looks for what they reported in other places.
            for source in 0..50 {
                let said = instance.state().sketched.get(&endpoint(source)).unwrap();
                assert!(
                    (packets / 50..packets / 50 + packets / 20).contains(&said),
                    "{said} of {packets} packets are said to be of {source}"
                );
            }
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

/// Hosts that started with the key files of different steps hash alike: sketches go by places.
#[test]
fn hosts_that_started_with_different_keys_agree() {
    let seed = hash_seed(&first_key());
    let both =
        [first_key(), ClusterKey::from_random(2, [9; 32])].map(|key| key.with_hash_seed(seed));
    let ring = |ids: &[usize], sending| {
        let keys = ids.iter().map(|id| both[id - 1].clone());
        KeyRing::new(keys.collect(), sending).unwrap()
    };
    for pair in [
        [KeyRing::from(first_key()), ring(&[1, 2], 1)],
        [ring(&[1, 2], 1), ring(&[2, 1], 2)],
        [ring(&[1, 2], 2), ring(&[2], 2)],
    ] {
        exercise(cluster_with(pair.into(), 1, Network::new(42)), 1, 500);
    }
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

/// Two hosts 0.2 ms apart that have found each other.
fn two_hosts_of<F: NetworkFunction>(function: F) -> Cluster<F> {
    let mut network = Network::new(42);
    network.set_defaults(LinkConditions::with_delay(Duration::from_micros(200)));
    let mut cluster = cluster_of(function, vec![first_key().into(); 2], 1, network);
    cluster.run_until(Time::from_micros(500_000));
    cluster
}

/// Spends a token of the packet's source, of which there are plenty.
struct Spender;

#[state]
struct Spent {
    tokens: TokenBucket<Endpoint>,
}

impl NetworkFunction for Spender {
    type State = Spent;
    fn state(&self, builder: &Builder) -> Spent {
        let rate = TokenRate {
            tokens_per_second: 1_000,
            burst_tokens: 1 << 32,
        };
        Spent {
            tokens: builder.token_bucket("tokens", 4096, rate, Spending::Approximate),
        }
    }
    fn packet(&self, ask: Ask<'_, Spent>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(tokens) = ask.tokens.tokens(&flow.source(), 1)? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        ask.act()?.tokens.spend(tokens);
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

/// What nobody decides by may wait on a congested path as on a free one.
#[test]
fn of_buckets_that_are_nearly_full_a_congested_path_is_reported_every_fifty_milliseconds() {
    let mut cluster = two_hosts_of(Spender);
    let offer = |cluster: &mut Cluster<Spender>, time: Duration| {
        let until = cluster.now() + time;
        let mut number = 0;
        while cluster.now() < until {
            cluster.inject(0, 0, PortNumber(0), &packet(number % 50));
            cluster.run_until(cluster.now() + Duration::from_micros(100));
            number += 1;
        }
        let reported = cluster.members()[0].instances[0].tally().counters_reported;
        let window = cluster.members()[0].channel.window();
        (reported, window.round != 0)
    };
    let (before, is_congested) = offer(&mut cluster, Duration::from_millis(200));
    assert!(!is_congested && before > 0);
    cluster
        .network_mut()
        .change_all(|link| link.delay = Duration::from_millis(5));
    let (before, is_congested) = offer(&mut cluster, Duration::from_millis(200));
    assert!(is_congested, "a round trip of 10 ms instead of 0.4");
    let (after, is_congested) = offer(&mut cluster, Duration::from_millis(500));
    assert!(is_congested);
    let reported = after - before;
    assert!(
        (400..=600).contains(&reported),
        "{reported} totals of 50 buckets in 500 ms"
    );
    let took = cluster.run_until_quiet(Duration::from_secs(20));
    assert!(took.is_some(), "the cluster did not become quiet");
}

/// Counts packets twice: for anyone who decides by it, and for reports.
struct Reporter;

#[state]
struct Reported {
    decided: Counter,
    reported: Counters<Endpoint>,
}

impl NetworkFunction for Reporter {
    type State = Reported;
    fn state(&self, builder: &Builder) -> Reported {
        Reported {
            decided: builder.counter("decided"),
            reported: builder.lazily().counters("reported", 4096),
        }
    }
    fn packet(&self, ask: Ask<'_, Reported>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(count) = ask.reported.find(&flow.source())? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let mut act = ask.act()?;
        act.decided.add(1);
        act.reported.add(&count, 1);
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

#[test]
fn what_is_reported_lazily_is_reported_five_times_a_second_and_the_rest_with_each_flush() {
    let mut cluster = two_hosts_of(Reporter);
    let reported =
        |cluster: &Cluster<Reporter>| cluster.members()[0].instances[0].tally().counters_reported;
    let (mut behind_most, mut reports) = (0, 0);
    let before = reported(&cluster);
    for number in 1..=8_000u64 {
        cluster.inject(0, 0, PortNumber(0), &packet((number % 50) as u16));
        cluster.run_until(cluster.now() + Duration::from_micros(100));
        let there = cluster.members()[1].instances[0].state();
        behind_most = behind_most.max(number - there.decided.get().unwrap());
        let mut sum = 0;
        there.reported.for_each(|_, count| sum += count);
        reports = reports.max(number - sum);
    }
    assert!(
        behind_most <= 8,
        "{behind_most} packets in a flush and the way"
    );
    assert!(
        (1_800..=2_020).contains(&reports),
        "{reports} packets in 200 ms"
    );
    let reported = reported(&cluster) - before;
    // Of the counter once in two packets.
    assert!(reported < 4_000 + 50 * 5, "{reported} totals in 800 ms");
    let took = cluster.run_until_quiet(Duration::from_secs(20));
    assert!(took.is_some(), "the cluster did not become quiet");
    cluster.run_until(cluster.now() + Duration::from_millis(210));
    let [first, second] = [0, 1].map(|place| cluster.members()[place].instances[0].digests());
    assert_eq!(first, second, "all is reported in the end");
}
