//! Sums over windows of time in a store: each addition counts once, in the bucket of its packet's arrival, and buckets that no window reaches
//! go away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asterism_engine::{InstanceParts, Store};
use asterism_function::{
    Ask, Builder, Late, Map, NetworkFunction, PortNumber, Reason, Verdict, Window,
    WindowedCountMin, WindowedCounters, state,
};
use asterism_io::frame::FramePool;
use asterism_placement::Time;
use asterism_remote_store::{
    ClientConfig, Listed, Listing, RemoteConfig, RemoteStore, StoreListing, StoreStatistics,
};
use asterism_resp::Value as Reply;
use asterism_state::ObjectSettings;

use crate::stores::{Kind, Stores, on};
use crate::tills::{number_of, packet};
use crate::wires::Faults;
use crate::world::{SEED, Setup, World, client_of};

/// Flows that may have a sum of their own.
const FLOWS_MAX: u32 = 6;
/// Buckets of a second: one that was added to stays for eight seconds.
const WINDOW: Window = Window {
    buckets: 3,
    bucket_seconds: 1,
};
const KEPT_US: u64 = 8_000_000;
/// Second of the cluster's time at which a test begins.
const BEGINS_S: u64 = 1_000;
/// What a packet does, by its number.
const READS: u32 = 3;
const ADDS: u32 = 2;

/// Of four packets two write an entry and add for their flow, the third adds to the sketch alone, and the fourth takes with it what was added
/// for its flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent;

#[state]
pub(crate) struct Recents {
    seen: Map<u32, ()>,
    by_flow: WindowedCounters<u32>,
    about: WindowedCountMin<u32>,
}

impl NetworkFunction for Recent {
    type State = Recents;
    fn state(&self, builder: &Builder) -> Recents {
        builder.writing(1, &[]);
        Recents {
            seen: builder.table("seen", 1 << 16, &[0]),
            by_flow: builder.windowed_counters("by_flow", FLOWS_MAX, WINDOW),
            about: builder.windowed_count_min("about", (0.02, 0.05), WINDOW),
        }
    }
    fn packet(&self, ask: Ask<'_, Recents>) -> Result<Verdict, Late> {
        let number = number_of(ask.packet().bytes());
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let flow = u32::from(flow.source_port);
        let forward = Ok(Verdict::Forward(PortNumber(0)));
        match number % 4 {
            READS => {
                let (sum, about) = ask.all((ask.by_flow.get(&flow), ask.about.get(&flow)))?;
                let mut act = ask.act()?;
                act.packet.set_source_port(sum as u16);
                act.packet.set_destination_port(about as u16);
                forward
            }
            ADDS => {
                ask.act()?.about.add(&flow, 1);
                forward
            }
            _ => {
                let (seen, of_flow) = ask.all((ask.seen.entry(number), ask.by_flow.find(&flow)))?;
                let Some(of_flow) = of_flow else {
                    return Ok(Verdict::Drop(Reason::RateLimited));
                };
                let mut act = ask.act()?;
                act.by_flow.add(&of_flow, 1);
                act.about.add(&flow, 1);
                match act.seen.put(seen, ()) {
                    true => forward,
                    false => Ok(Verdict::Drop(Reason::TableFull)),
                }
            }
        }
    }
}

pub(crate) fn config(number: usize, commit_pipes: usize) -> ClientConfig {
    client_of(("recent", 0b111), (number, commit_pipes))
}

fn world(instances: usize, faults: Faults) -> World<Recent> {
    let setup = Setup::of(Recent, config, faults);
    World::new(setup, instances)
}

impl World<Recent> {
    /// What the store has of an object, by bucket: the sum of each field.
    fn buckets(&self, object: u8) -> BTreeMap<u64, BTreeMap<Vec<u8>, i64>> {
        let last = BEGINS_S + self.now_us / 1_000_000 + 1;
        let buckets = (BEGINS_S..=last).map(|bucket| {
            let key = format!("{{recent}}{object}:sums:{bucket}");
            (bucket, self.hash_fields(key.as_bytes()))
        });
        buckets.filter(|(_, sums)| !sums.is_empty()).collect()
    }

    fn entries(&self) -> u64 {
        self.integer(&[b"ZCOUNT", b"{recent}0:ends", b"-inf", b"+inf"]) as u64
    }

    /// What the store has agrees, at any time at which no bucket was dropped. How many packets added to the sketch alone.
    fn check_sums(&self) -> u64 {
        let of_flows = self.buckets(1).into_values().flatten();
        let of_flows: i64 = of_flows.map(|(_, sum)| sum).sum();
        assert_eq!(of_flows as u64, self.entries(), "at {} µs", self.now_us);
        let (mut all, mut in_rows) = (0, 0);
        for (field, sum) in self.buckets(2).into_values().flatten() {
            match &*field {
                b"all" => all += sum,
                _ => in_rows += sum,
            }
        }
        assert_eq!(in_rows, 3 * all, "at {} µs", self.now_us);
        (all - of_flows) as u64
    }

    /// The sum of a flow and the estimate, by a packet of a number that reads.
    fn read(&mut self, flow: u16, number: u32) -> (u16, u16) {
        self.left_by(0);
        self.send_packet(flow, 4 * number + READS, 0);
        self.end();
        let left = self.left_by(0);
        let port = |from: usize| u16::from_be_bytes([left[0][from], left[0][from + 1]]);
        (port(34), port(36))
    }

    /// Sends packets of a flow that write an entry, and waits for them; how many left.
    fn add(&mut self, flow: u16, numbers: core::ops::Range<u32>) -> usize {
        self.left_by(0);
        let instances = self.instances.len();
        for number in numbers {
            self.send_packet(flow, 4 * number, number as usize % instances);
        }
        self.end();
        self.left_by(0).len()
    }

    /// Until so many seconds have passed since the begin.
    fn until_s(&mut self, seconds: u64) {
        while self.now_us < seconds * 1_000_000 + 1_000 {
            self.now_us += 1_000;
            self.turn();
        }
    }
}

fn what_is_added_counts_once_in_its_bucket() {
    let mut broken = 0;
    for delay_us in [60, 300] {
        let mut world = world(3, Faults::breaking(300, delay_us));
        world.until_s(1);
        for number in 0..600_u32 {
            world.send_packet((number % 5) as u16, number, (number * 7 % 3) as usize);
            for _ in 0..6 {
                world.turn();
            }
            world.check_sums();
        }
        world.end();
        assert_eq!(world.left_by(0).len(), 600);
        assert_eq!((world.entries(), world.check_sums()), (300, 150));
        broken += world.broken();
    }
    assert!(broken > 100, "{broken} broken connections show little");
}

fn what_is_added_agrees_with_entries_over_deaths() {
    let mut world = world(4, Faults::breaking(400, 300));
    for number in 0..800_u32 {
        world.send_packet((number % 6) as u16, number, (number * 5 % 4) as usize);
        for _ in 0..4 {
            world.turn();
        }
        world.check_sums();
        if number % 100 == 99 {
            world.replace((number / 100 % 4) as usize);
        }
    }
    world.end();
    let (added, entries) = (world.check_sums(), world.entries());
    assert!(added > 80 && entries > 150, "{added} and {entries}");
}

fn a_window_moves_on_and_what_it_has_left_goes_away() {
    let mut world = world(2, Faults::none(100));
    world.until_s(1);
    assert_eq!(world.add(1, 0..5), 5);
    assert_eq!(world.read(1, 0), (5, 5));
    world.until_s(2);
    assert_eq!(world.add(1, 10..12), 2);
    assert_eq!(world.read(1, 1), (7, 7), "both buckets");
    world.until_s(3);
    assert_eq!(world.read(1, 2), (7, 7), "of three that there are");
    world.until_s(4);
    assert_eq!(world.read(1, 3), (2, 2), "the first one is left behind");
    assert_eq!((world.buckets(1).len(), world.buckets(2).len()), (2, 2));
    world.until_s(5);
    assert_eq!(world.read(1, 4), (0, 0));
    assert_eq!(world.read(2, 4), (0, 0), "nobody added for it");
    world.until_s(3 + KEPT_US / 1_000_000);
    world.read(1, 5);
    assert!(world.buckets(1).is_empty() && world.buckets(2).is_empty());
    let kinds = [&b"{recent}1:listed"[..], b"{recent}2:listed"];
    assert!(
        kinds
            .iter()
            .all(|key| world.integer(&[b"EXISTS", key]) == 0)
    );
}

/// No key begins for which there is no room, and those that the window has left give theirs back.
fn keys_without_room_do_not_begin() {
    let mut world = world(1, Faults::none(100));
    world.until_s(1);
    for flow in 0..FLOWS_MAX as u16 {
        assert_eq!(world.add(flow, u32::from(flow)..u32::from(flow) + 1), 1);
    }
    assert_eq!(world.add(77, 10..11), 0, "no room");
    world.until_s(3);
    assert_eq!(world.add(0, 20..21), 1, "it has begun");
    assert_eq!(world.add(77, 30..31), 0, "all are in the window");
    world.until_s(4);
    assert_eq!(world.add(77, 40..41), 1, "one has stayed");
    let mut listed = Vec::new();
    world.until_s(14);
    assert_eq!(world.add(88, 50..51), 1);
    let all: [&[u8]; 4] = [b"ZRANGEBYSCORE", b"{recent}1:listed", b"-inf", b"+inf"];
    world.each_reply(&all, &mut |key| {
        listed.push(key.bytes().map(<[u8]>::to_vec))
    });
    assert_eq!(listed.len(), 1, "others are not listed any more");
}

/// The store takes a transaction when its bucket was dropped: the packet was given up long ago, and what it adds is left out and counted.
fn what_comes_too_late_is_left_out_and_counted() {
    let mut late = 0;
    for turns in 4..24 {
        let mut world = world(1, Faults::none(100));
        world.until_s(1);
        world.send_packet(1, ADDS, 0);
        (0..turns).for_each(|_| world.turn());
        world.store.is_away.set(true);
        let back_s = 4 + KEPT_US / 1_000_000;
        world.until_s(back_s);
        world.store.is_away.set(false);
        world.until_s(back_s + 1);
        let expired: u64 = world.tallies().iter().map(|of| of.additions_expired).sum();
        // It was made in time, and its bucket has ended since, or it was made too late.
        assert!(world.buckets(2).is_empty(), "{:?}", world.buckets(2));
        // In each of three rows, and in the sum of all.
        assert!(matches!(expired, 0 | 4), "{expired}");
        late += expired / 4;
    }
    assert!(late > 2, "{late} were late");
}

/// What people see is the sum over the window.
fn people_see_the_sums_of_the_window() {
    let mut world = world(2, Faults::none(100));
    world.until_s(3);
    assert_eq!(world.add(1, 0..5), 5);
    world.until_s(4);
    assert_eq!(world.add(1, 10..12), 2);
    let mut seen = (0, 0);
    for _ in 0..4_000 {
        world.now_us += 1_000;
        world.turn();
        let state = world.instances[0].state();
        let (of_flow, total) = (state.by_flow.total(&(1_001)), state.about.total());
        let mut all = 0;
        state.by_flow.for_each(|_, sum| all += sum);
        assert_eq!(all, of_flow);
        seen = seen.max((of_flow, total));
    }
    assert!([(7, 7), (2, 2)].contains(&seen), "{seen:?}");
}

/// What somebody else put there is nothing.
fn what_is_no_sum_counts_as_nothing() {
    let mut world = world(1, Faults::none(100));
    world.until_s(1);
    let bucket = format!("{{recent}}1:sums:{}", BEGINS_S + 2);
    let key = 1_001_u32.to_le_bytes();
    world.each_reply(&[b"HSET", bucket.as_bytes(), &key, b"many"], &mut |_| {});
    let sketch = format!("{{recent}}2:sums:{}", BEGINS_S + 2);
    world.each_reply(&[b"SET", sketch.as_bytes(), b"many"], &mut |reply| {
        assert!(matches!(reply, Reply::Status(_)));
    });
    world.left_by(0);
    world.send_packet(1, READS, 0);
    // A key of another kind is refused as long as it is there.
    for _ in 0..200 {
        world.turn();
    }
    assert_eq!(world.left_by(0).len(), 0);
    world.each_reply(&[b"DEL", sketch.as_bytes()], &mut |_| {});
    world.end();
    assert_eq!(world.left_by(0).len(), 1);
    assert_eq!(world.read(1, 1), (0, 0));
}

/// A store over TCP has the sums, ends them, and lists them.
fn a_store_has_them_and_lists_them(stores: Stores) {
    const PACKETS: u32 = 240;
    let remote = || RemoteConfig {
        client: config(0, 1),
        ..stores.remote(0)
    };
    let at_instance = remote();
    let make = move || {
        let statistics = Arc::new(StoreStatistics::default());
        Box::new(RemoteStore::new(&Recent, &at_instance, statistics)) as Box<dyn Store>
    };
    let port = asterism_lab::outside::port(|_: &[u8]| {});
    let pool = FramePool::new(512).expect("memory for frames");
    let parts = InstanceParts::alone(SEED).with_store(make);
    let settings = |_: &str| ObjectSettings::REMOTE;
    let mut instance = parts.start(Arc::new(Recent), settings, pool, vec![port]);
    let begun = Instant::now();
    // The window is of three seconds: all packets come within them on a busy machine too.
    let passed = || begun.elapsed() / 10;
    let now = || Time::from_micros(1 + passed().as_micros() as u64);
    for number in 0..PACKETS {
        assert!(instance.inject(now(), PortNumber(0), &packet(1, number)));
        instance.turn(now());
        let is_last = number + 1 == PACKETS;
        while instance.tally().parked > if is_last { 0 } else { 8 } {
            assert!(begun.elapsed() < Duration::from_secs(60));
            instance.turn(now());
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    let tick = (BEGINS_S + passed().as_secs()) as u32;
    let mut listed = Vec::new();
    let listing = StoreListing::new(Arc::new(Recent), vec![remote()]);
    let all = listing.list(None, tick, &|| false, &mut |object, shown| {
        if object > 0 {
            listed.push((object, format!("{shown:?}")));
        }
        true
    });
    assert_eq!(all, Listed::default());
    // Half of the packets wrote an entry, all of one flow; a sketch has no keys.
    assert_eq!(listed, [(1, format!("1001 = {} in 3 s", PACKETS / 2))]);
    let Some((_, redis)) = stores.holder() else {
        return;
    };
    let ask = |words: &[&str]| redis.command(words).expect("it answers");
    let keys = ask(&["KEYS", "{recent}?:sums:*"]);
    assert!(keys.lines().count() >= 2, "{keys}");
    for key in keys.lines().chain(["{recent}1:listed"]) {
        let left: u64 = ask(&["TTL", key]).parse().expect("seconds");
        assert!(left * 1_000_000 <= KEPT_US, "{key}: {left}");
    }
}

#[test]
fn the_embedded_store_has_sums_over_windows() {
    on(Kind::Embedded, a_store_has_them_and_lists_them);
}

#[test]
fn a_redis_has_sums_over_windows() {
    on(Kind::Redis, a_store_has_them_and_lists_them);
}

/// Those that planted bugs are tried with.
pub(crate) const TESTS: [fn(); 7] = [
    a_window_moves_on_and_what_it_has_left_goes_away,
    keys_without_room_do_not_begin,
    what_is_added_counts_once_in_its_bucket,
    what_is_added_agrees_with_entries_over_deaths,
    what_comes_too_late_is_left_out_and_counted,
    people_see_the_sums_of_the_window,
    what_is_no_sum_counts_as_nothing,
];

#[test]
fn sums_over_windows_in_a_store_are_those_of_committed_packets() {
    TESTS.iter().for_each(|test| test());
}
