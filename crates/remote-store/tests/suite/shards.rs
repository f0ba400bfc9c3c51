//! A store of several shards: each has whole conversations, and one that is away holds up its own alone.

mod orders;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use asterism_embedded_store::ServerConfig;
use asterism_engine::{Attempt, Instance, InstanceParts, Store, StoreEvent};
use asterism_function::build::{self, Header4, Segment};
use asterism_function::{
    Ask, Builder, Key, Late, Map, NetworkFunction, PortNumber, Reason, TcpFlags, Verdict, Wire,
    objects_of, state,
};
use asterism_functions::firewall::{Firewall, FirewallConfig, read_rules};
use asterism_io::frame::FramePool;
use asterism_lab::outside;
use asterism_lab::redis::{Redis, RedisCluster};
use asterism_placement::Time;
use asterism_remote_store::{
    CacheConfig, ClientConfig, Listing, RemoteConfig, Shard, ShardStore, ShardedStore, Shards,
    StoreListing, StoreSnapshot, StoreStatistics,
};
use asterism_state::{ObjectSettings, Query, Ticket, Transaction, hash};

use crate::stores::{Embedded, any_port};
use crate::world::SEED;

const INSIDE: PortNumber = PortNumber(0);
const OUTSIDE: PortNumber = PortNumber(1);
const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const SYN_ACK: TcpFlags = TcpFlags(SYN.0 | ACK.0);
/// How long anything may take on a machine that has much else to do.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// For how long instances answer by what they keep.
const STALENESS: Duration = Duration::from_millis(500);

/// What is tested: a function, and which of its objects are in the store.
struct Subject<F> {
    function: Arc<F>,
    remote: &'static [&'static str],
    ports: usize,
}

fn firewall() -> Subject<Firewall> {
    let config = FirewallConfig {
        rules: read_rules("allow any on inside\n").expect("good rules"),
        settle_us: 0,
        ..FirewallConfig::default()
    };
    Subject {
        function: Arc::new(Firewall::new(config)),
        remote: &["flows", "fragments"],
        ports: 2,
    }
}

/// Instances that use the shards, on this thread.
struct Hosts<F: NetworkFunction> {
    subject: Subject<F>,
    shards: Arc<Shards>,
    addresses: Vec<Vec<SocketAddr>>,
    instances: Vec<Instance<F>>,
    left: Vec<Vec<Receiver<Vec<u8>>>>,
    /// By instance and shard.
    statistics: Vec<Vec<Arc<StoreStatistics>>>,
    begun: Instant,
    /// Their time goes so many times slower than the clock: what is to happen within some of it may take longer on a busy machine.
    slowness: u32,
}

impl<F: NetworkFunction + Send + Sync> Hosts<F> {
    /// Of each shard its servers, by its place.
    fn new(subject: Subject<F>, addresses: Vec<Vec<SocketAddr>>, instances: usize) -> Self {
        let names: Vec<String> = (0..addresses.len())
            .map(|place| format!("s{place}"))
            .collect();
        let mut hosts = Self {
            subject,
            shards: Arc::new(Shards::new(&names, (1 << 10, 5)).expect("shards")),
            addresses,
            instances: Vec::new(),
            left: Vec::new(),
            statistics: Vec::new(),
            begun: Instant::now(),
            slowness: 1,
        };
        (0..instances).for_each(|number| hosts.begin(number));
        hosts
    }

    fn remote(&self, number: usize, place: usize) -> RemoteConfig {
        let objects = objects_of(&*self.subject.function).iter().enumerate();
        let remote = objects.filter(|(_, name)| self.subject.remote.contains(name));
        let cache = CacheConfig {
            entries: 1_024,
            staleness: STALENESS,
            staleness_away: Duration::ZERO,
            has_filter: number % 3 == 2,
        };
        let client = ClientConfig {
            function: format!("fw/{}", self.shards.names()[place]),
            client: format!("0.1.{number}"),
            seed: SEED,
            objects: remote.fold(0, |bits, (place, _)| bits | 1 << place),
            commit_pipes: 2,
            cache: (!number.is_multiple_of(3)).then_some(cache),
            shard: Some(Shard {
                all: self.shards.clone(),
                place,
            }),
        };
        RemoteConfig {
            addresses: self.addresses[place].clone(),
            ..RemoteConfig::new(any_port(), client)
        }
    }

    fn begin(&mut self, number: usize) {
        let statistics: Vec<Arc<StoreStatistics>> =
            self.addresses.iter().map(|_| Arc::default()).collect();
        let each = (0..self.shards.count()).map(|place| self.remote(number, place));
        let each: Vec<_> = each.zip(statistics.iter().cloned()).collect();
        let (function, shards) = (self.subject.function.clone(), self.shards.clone());
        let make = move || Box::new(ShardedStore::new(&*function, shards, each)) as Box<dyn Store>;
        let port = |_| {
            let (to, left) = channel();
            (
                outside::port(move |bytes: &[u8]| drop(to.send(bytes.to_vec()))),
                left,
            )
        };
        let (ports, left) = (0..self.subject.ports).map(port).unzip();
        let remote = self.subject.remote;
        let settings = move |name: &str| match remote.contains(&name) {
            true => ObjectSettings::REMOTE,
            false => ObjectSettings::LOCAL,
        };
        let parts = InstanceParts::alone(SEED).with_store(make);
        let pool = FramePool::new(2_048).expect("memory for frames");
        let instance = parts.start(self.subject.function.clone(), settings, pool, ports);
        self.instances.push(instance);
        self.left.push(left);
        self.statistics.push(statistics);
    }

    fn now(&self) -> Time {
        Time::from_micros(1 + (self.begun.elapsed() / self.slowness).as_micros() as u64)
    }

    fn turn(&mut self) {
        let now = self.now();
        for instance in &mut self.instances {
            instance.turn(now);
        }
        // The stores need the processor too.
        std::thread::sleep(Duration::from_micros(20));
    }

    fn turn_until(&mut self, mut is_so: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + ENDS_WITHIN;
        while !is_so(self) {
            assert!(Instant::now() < until, "it does not end: {:?}", self.all());
            self.turn();
        }
    }

    fn connected(&mut self) {
        self.turn_until(|hosts| hosts.all().iter().all(|one| one.is_connected));
    }

    fn parked(&self) -> usize {
        let instances = self.instances.iter();
        instances.map(|instance| instance.tally().parked).sum()
    }

    fn inject(&mut self, number: usize, port: PortNumber, frame: &[u8]) {
        let now = self.now();
        assert!(self.instances[number].inject(now, port, frame));
    }

    /// Sends a packet through an instance, and waits for it: whether it left by the other port, as it came.
    fn passes(&mut self, number: usize, port: PortNumber, frame: &[u8]) -> bool {
        self.inject(number, port, frame);
        self.turn();
        self.turn_until(|hosts| hosts.parked() == 0);
        self.turn();
        let left = self.left[number].iter().enumerate();
        let left: Vec<_> = left
            .flat_map(|(port, left)| left.try_iter().map(move |bytes| (port, bytes)))
            .collect();
        left == [(usize::from(port.0 ^ 1), frame.to_vec())]
    }

    /// The same, of what another instance has just made possible: until it is heard of here, answers that are kept may say otherwise.
    fn passes_soon(&mut self, number: usize, port: PortNumber, frame: &[u8]) -> bool {
        let until = self.now() + STALENESS;
        loop {
            let is_last = self.now() > until;
            let has_passed = self.passes(number, port, frame);
            if has_passed || is_last {
                return has_passed;
            }
        }
    }

    fn all(&self) -> Vec<StoreSnapshot> {
        let all = self.statistics.iter().flatten();
        all.map(|one| one.snapshot()).collect()
    }

    fn misplaced(&self) -> u64 {
        self.all().iter().map(|one| one.tally.misplaced).sum()
    }

    fn dropped(&self, reason: Reason) -> u64 {
        let instances = self.instances.iter();
        instances.map(|one| one.tally().dropped(reason)).sum()
    }

    /// Entries of an object in each shard.
    fn entries(&self, object: u8) -> Vec<usize> {
        let of_shard = |place: usize| {
            let listing =
                StoreListing::new(self.subject.function.clone(), vec![self.remote(0, place)]);
            let mut count = 0;
            let listed = listing.list(Some(object), 1_000, &|| false, &mut |_, _| {
                count += 1;
                true
            });
            assert!(listed.is_whole(), "the shard answers: {listed:?}");
            count
        };
        (0..self.shards.count()).map(of_shard).collect()
    }

    fn shard_of(&self, one: Ipv4Addr, other: Ipv4Addr) -> usize {
        let seed = self.shards.conversation_seed();
        let (one, other) = (IpAddr::V4(one), IpAddr::V4(other));
        self.shards.of(hash::conversation(one, other, seed))
    }
}

fn client(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, number % 3, number)
}

fn server(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, number % 5)
}

fn frame(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut bytes = vec![0; 1_600];
    let length = write(&mut bytes).expect("it fits");
    bytes.truncate(length);
    bytes
}

fn tcp(
    (from, to): (Ipv4Addr, Ipv4Addr),
    (source, destination): (u16, u16),
    flags: TcpFlags,
    (sequence, acknowledgement): (u32, u32),
) -> Vec<u8> {
    let segment = Segment {
        sequence,
        acknowledgement,
        window: 64_000,
        ..Segment::with_flags(flags)
    };
    let header = Header4::between(from, to);
    frame(|out| build::tcp4(&header, source, destination, &segment, b"", out))
}

fn udp((from, to): (Ipv4Addr, Ipv4Addr), (source, destination): (u16, u16)) -> Vec<u8> {
    let header = Header4::between(from, to);
    let payload = [7; 64];
    frame(|out| build::udp4(&header, source, destination, &payload, out))
}

/// The same between IPv6 addresses that end as those do.
fn to_ipv6(frame: &[u8]) -> Vec<u8> {
    let transport = &frame[34..];
    let mut bytes = frame[..12].to_vec();
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    bytes.extend((transport.len() as u16).to_be_bytes());
    bytes.extend([frame[23], 64]);
    for at in [26, 30] {
        bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(&frame[at..at + 4]);
    }
    bytes.extend(transport);
    bytes
}

/// One of two parts of a datagram.
fn part(frame: &[u8], is_first: bool) -> Vec<u8> {
    const FIRST_BYTES: usize = 40;
    let data = &frame[34..];
    let (data, word) = match is_first {
        true => (&data[..FIRST_BYTES], 0x2000),
        false => (&data[FIRST_BYTES..], FIRST_BYTES as u16 / 8),
    };
    let mut bytes = frame[..34].to_vec();
    bytes.extend(data);
    let total = (bytes.len() - 14) as u16;
    for (at, word) in [(16, total), (20, word), (24, 0)] {
        bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
    }
    let words = bytes[14..34].chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    bytes[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    bytes
}

/// Flows of all kinds, each of whose packets comes by another instance than the one before.
fn flows_pass_by_any_instance(mut hosts: Hosts<Firewall>) {
    const CONVERSATIONS: u8 = 24;
    hosts.connected();
    let count = hosts.instances.len();
    let mut next = 0;
    let mut any = || {
        next += 1;
        next % count
    };
    let mut expected = vec![0; hosts.shards.count()];
    for number in 0..CONVERSATIONS {
        let there = (client(number), server(number));
        let back = (there.1, there.0);
        let ports = (40_000, 80);
        for (port, bytes) in [
            (INSIDE, tcp(there, ports, SYN, (1_000, 0))),
            (OUTSIDE, tcp(back, (80, 40_000), SYN_ACK, (9_000, 1_001))),
            (INSIDE, tcp(there, ports, ACK, (1_001, 9_001))),
            (INSIDE, udp(there, (5_000, 53))),
            (OUTSIDE, udp(back, (53, 5_000))),
        ] {
            assert!(
                hosts.passes_soon(any(), port, &bytes),
                "{number}: {bytes:?}"
            );
        }
        // What nobody asked for does not come in, and leaves nothing anywhere.
        assert!(!hosts.passes(any(), OUTSIDE, &udp(back, (53, 5_001))));
        // An error of a router is about the flow, whose addresses are not its own.
        let router = Ipv4Addr::new(192, 0, 2, 1);
        let about = udp(there, (5_000, 53));
        let error = frame(|out| build::icmp_unreachable(&about, router, 1, out));
        assert!(hosts.passes_soon(any(), OUTSIDE, &error), "{number}");
        // Of a fragmented datagram the second part alone has no ports.
        let whole = udp(there, (5_000, 53));
        assert!(hosts.passes_soon(any(), INSIDE, &part(&whole, true)));
        assert!(hosts.passes_soon(any(), INSIDE, &part(&whole, false)));
        let v6 = to_ipv6(&udp(there, (6_000, 123)));
        assert!(hosts.passes_soon(any(), INSIDE, &v6), "{number}");
        let v6_back = to_ipv6(&udp(back, (123, 6_000)));
        assert!(hosts.passes_soon(any(), OUTSIDE, &v6_back), "{number}");
        expected[hosts.shard_of(there.0, there.1)] += 2;
    }
    assert_eq!(hosts.misplaced(), 0, "{:?}", hosts.all());
    let flows = hosts.entries(0);
    assert_eq!(flows.iter().sum::<usize>(), usize::from(CONVERSATIONS) * 3);
    // Of IPv6 there is one more in some shard.
    let has_own = flows.iter().zip(&expected).all(|(flows, own)| flows >= own);
    assert!(has_own, "{flows:?}, at least {expected:?}");
    let used = flows.iter().filter(|flows| **flows > 0).count();
    assert!(used * 2 > flows.len(), "{flows:?}");
}

fn embedded(count: usize) -> Vec<Embedded> {
    (0..count).map(|_| Embedded::start(any_port())).collect()
}

fn each_alone(stores: &[Embedded]) -> Vec<Vec<SocketAddr>> {
    stores.iter().map(|store| vec![store.address]).collect()
}

pub(crate) fn flows_are_in_the_shards_of_their_conversations() {
    let stores = embedded(2);
    flows_pass_by_any_instance(Hosts::new(firewall(), each_alone(&stores), 3));
}

#[test]
fn flows_are_in_the_shards_of_their_conversations_by_any_instance() {
    flows_are_in_the_shards_of_their_conversations();
}

#[test]
fn shards_are_redis_servers() {
    let stores: Option<Vec<Redis>> = (0..3).map(|_| Redis::start()).collect();
    let Some(stores) = stores else {
        return println!("SKIPPED: redis-server is not installed");
    };
    let addresses = stores.iter().map(|store| vec![store.address()]).collect();
    flows_pass_by_any_instance(Hosts::new(firewall(), addresses, 2));
}

/// More shards than members: each is where its slot is, and what moves is followed.
#[test]
fn shards_are_slots_of_a_redis_cluster() {
    let Some(cluster) = RedisCluster::start(3) else {
        return println!("SKIPPED: redis-server is not installed");
    };
    let members: Vec<_> = cluster.members.iter().map(Redis::address).collect();
    let mut hosts = Hosts::new(firewall(), vec![members; 6], 2);
    hosts.connected();
    let there = (client(1), server(1));
    let place = hosts.shard_of(there.0, there.1);
    assert!(hosts.passes_soon(0, INSIDE, &udp(there, (5_000, 53))));
    let key = format!("{{fw/s{place}}}layout");
    let from = cluster.holder(&key);
    cluster.move_slot(&key, (from + 1) % 3);
    assert!(hosts.passes_soon(1, OUTSIDE, &udp((there.1, there.0), (53, 5_000))));
    assert_ne!(cluster.holder(&key), from);
    flows_pass_by_any_instance(hosts);
}

#[test]
fn a_shard_that_is_away_holds_up_its_own_conversations_alone() {
    let mut stores = embedded(2);
    let mut hosts = Hosts::new(firewall(), each_alone(&stores), 3);
    // A packet may wait for two seconds.
    hosts.slowness = 8;
    hosts.connected();
    let of = |hosts: &Hosts<Firewall>, place| {
        let mut numbers = 0..200;
        let number =
            numbers.find(|number| hosts.shard_of(client(*number), server(*number)) == place);
        let number = number.expect("each shard has some");
        (client(number), server(number))
    };
    let (here, away) = (of(&hosts, 0), of(&hosts, 1));
    for there in [here, away] {
        assert!(hosts.passes_soon(0, INSIDE, &udp(there, (5_000, 53))));
    }
    let address = stores[1].address;
    stores[1].end();
    let is_away = |hosts: &Hosts<Firewall>| {
        let statistics = hosts.statistics.iter();
        statistics
            .clone()
            .all(|one| !one[1].snapshot().is_connected)
    };
    hosts.turn_until(is_away);
    for number in 0..3 {
        hosts.inject(number, INSIDE, &udp(away, (5_000, 53)));
        // While that waits, others come and go.
        hosts.inject(number, INSIDE, &udp(here, (5_000, 53)));
        hosts.inject(number, INSIDE, &udp(here, (7_000 + number as u16, 53)));
        let mut came = 0;
        hosts.turn_until(|hosts| {
            came += hosts.left[number][1].try_iter().count();
            came >= 2 && hosts.parked() == number + 1
        });
        assert_eq!(came, 2);
    }
    assert_eq!(hosts.dropped(Reason::ParkedTooLong), 0);
    // It comes back, empty: what it had is lost with it, and its packets go on within the two seconds that they may wait.
    stores.push(Embedded::start(address));
    hosts.turn_until(|hosts| hosts.parked() == 0);
    hosts.turn();
    assert_eq!(hosts.dropped(Reason::ParkedTooLong), 0);
    let left = hosts.left.iter().map(|ports| ports[1].try_iter().count());
    assert_eq!(left.sum::<usize>(), 3);
    assert_eq!(hosts.misplaced(), 0);
}

/// A key that says of itself that it is of another conversation than its packets now and then are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
#[key(between = Self::hosts)]
struct Astray {
    source: u32,
}

impl Astray {
    fn hosts(&self) -> (IpAddr, IpAddr) {
        let ends = (Ipv4Addr::from_bits(self.source), Ipv4Addr::LOCALHOST);
        (ends.0.into(), ends.1.into())
    }
}

/// Counts sources, by keys that are not of its packets.
struct Counting;

#[state]
struct Sources {
    sources: Map<Astray, ()>,
}

impl NetworkFunction for Counting {
    type State = Sources;
    fn state(&self, builder: &Builder) -> Sources {
        Sources {
            sources: builder.table("sources", 1_024, &[600]),
        }
    }
    fn packet(&self, ask: Ask<'_, Sources>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let source = flow.source.to_bits();
        let known = ask.sources.entry(Astray { source })?;
        let mut act = ask.act()?;
        act.sources.put(known, ());
        Ok(Verdict::Forward(PortNumber(0)))
    }
}

pub(crate) fn keys_of_other_conversations_are_refused_and_counted() {
    const PACKETS: u8 = 20;
    let stores = embedded(2);
    let subject = Subject {
        function: Arc::new(Counting),
        remote: &["sources"],
        ports: 1,
    };
    let mut hosts = Hosts::new(subject, each_alone(&stores), 1);
    hosts.connected();
    let mut expected = [0; 2];
    for number in 0..PACKETS {
        let there = (client(number), server(number));
        hosts.inject(0, INSIDE, &udp(there, (5_000, 53)));
        let of_key = hosts.shard_of(there.0, Ipv4Addr::LOCALHOST);
        expected[of_key] += usize::from(of_key == hosts.shard_of(there.0, there.1));
    }
    hosts.turn();
    hosts.turn_until(|hosts| hosts.parked() == 0);
    hosts.turn();
    let passed: usize = expected.iter().sum();
    let lost = u64::from(PACKETS) - passed as u64;
    assert!(lost > 0 && passed > 0, "{expected:?}");
    assert_eq!(hosts.left[0][0].try_iter().count(), passed);
    assert_eq!(hosts.dropped(Reason::ParkedTooLong), lost);
    assert!(hosts.misplaced() >= lost);
    assert_eq!(hosts.entries(0), expected);
}

#[test]
fn a_function_whose_keys_are_of_other_conversations_is_found_out() {
    keys_of_other_conversations_are_refused_and_counted();
}

/// A table has room for its capacity over all shards together.
#[test]
fn each_shard_has_room_for_its_part() {
    a_shard_has_room_for_its_part();
}

pub(crate) fn a_shard_has_room_for_its_part() {
    let stores = embedded(2);
    let mut config = FirewallConfig {
        rules: read_rules("allow any on inside\n").expect("good rules"),
        settle_us: 0,
        ..FirewallConfig::default()
    };
    config.flows_max = 64;
    let subject = Subject {
        function: Arc::new(Firewall::new(config)),
        ..firewall()
    };
    let mut hosts = Hosts::new(subject, each_alone(&stores), 2);
    hosts.connected();
    for number in 0..200_u8 {
        let there = (client(number), server(number));
        hosts.passes(usize::from(number % 2), INSIDE, &udp(there, (5_000, 53)));
    }
    assert_eq!(hosts.entries(0), [32, 32]);
    assert_eq!(hosts.dropped(Reason::TableFull), 200 - 64);
}

/// One address twice costs no flow. one address twice does not lose a flow by it.
#[test]
fn two_shards_of_one_server_have_keys_of_their_own() {
    let store = Embedded::start_with(ServerConfig::new(any_port()));
    let mut hosts = Hosts::new(firewall(), vec![vec![store.address]; 2], 1);
    hosts.connected();
    // Two shards of one server have keys of their own.
    assert!(hosts.passes_soon(0, INSIDE, &udp((client(1), server(1)), (5_000, 53))));
    assert_eq!(hosts.entries(0).iter().sum::<usize>(), 1);
}

/// A shard of which answers are fresh or not.
struct Fresh(bool);

impl Store for Fresh {
    fn ask(&mut self, _: Ticket, _: Query<'_>, _: Time) {}
    fn keeps(&mut self, _: Time) -> bool {
        self.0
    }
    fn commit(&mut self, _: Attempt, _: &Transaction, _: Time) {}
    fn next_event(&mut self, _: Time) -> Option<StoreEvent<'_>> {
        None
    }
}

impl ShardStore for Fresh {
    fn take_event(&mut self, _: Time) -> bool {
        false
    }
    fn event(&self) -> Option<StoreEvent<'_>> {
        None
    }
}

pub(crate) fn entries_stay_while_all_shards_are_fresh() {
    let names = ["a".to_owned(), "b".to_owned()];
    let shards = Arc::new(Shards::new(&names, (1 << 8, 5)).expect("shards"));
    for fresh in [[true; 2], [true, false], [false, true], [false; 2]] {
        let mut store = ShardedStore::of(shards.clone(), fresh.map(Fresh).into());
        assert_eq!(store.keeps(Time::ZERO), fresh == [true; 2], "{fresh:?}");
    }
}

#[test]
fn entries_stay_at_an_instance_while_all_shards_are_fresh() {
    entries_stay_while_all_shards_are_fresh();
}

/// Those that planted bugs are tried with.
#[cfg(asterism_mutants)]
pub(crate) const TESTS: [fn(); 4] = [
    entries_stay_while_all_shards_are_fresh,
    flows_are_in_the_shards_of_their_conversations,
    a_shard_has_room_for_its_part,
    keys_of_other_conversations_are_refused_and_counted,
];
