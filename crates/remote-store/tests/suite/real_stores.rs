//! The same over TCP: the embedded store's server, and the real Redis, which says `SKIPPED` where it is not installed. Stores go away too.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use asterism_embedded_store::{Server, ServerConfig};
use asterism_engine::{Instance, InstanceParts, Store};
use asterism_function::{PortNumber, Reason};
use asterism_io::frame::FramePool;
use asterism_lab::redis::Redis;
use asterism_placement::Time;
use asterism_remote_store::{RemoteConfig, RemoteStore};

use crate::over_wires::config;
use crate::tills::{Tills, judge, packet, settings};
use crate::world::SEED;
use asterism_lab::outside;

/// Packets are now and then in each other's way.
const TILLS: Tills = Tills(99);
const FLOWS: u32 = 300;
/// Packets of a test.
const PACKETS: u32 = 4_000;
/// Instances that share the store, on a thread of their own each.
const INSTANCES: u32 = 2;

/// The embedded store on a thread, until it is dropped.
struct Embedded {
    stops: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    address: SocketAddr,
}

impl Embedded {
    fn start(listen: SocketAddr) -> Self {
        let begun = Instant::now();
        let now_ms = move || 1_000_000 + begun.elapsed().as_millis() as u64;
        let server = Server::bind(ServerConfig::new(listen), now_ms);
        let mut server = server.expect("a free port");
        let address = server.address().expect("its port");
        let stops = Arc::new(AtomicBool::new(false));
        let until = stops.clone();
        let thread = std::thread::spawn(move || server.run(&until).expect("it serves"));
        Self {
            stops,
            thread: Some(thread),
            address,
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends");
        }
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// An instance, and what leaves it.
fn instance(number: u32, address: SocketAddr) -> (Instance<Tills>, Receiver<Vec<u8>>) {
    let client = config(number as usize, 1);
    let remote = RemoteConfig { address, client };
    let make = move || Box::new(RemoteStore::new(&TILLS, &remote)) as Box<dyn Store>;
    let (to, left) = channel();
    let port = outside::port(move |bytes: &[u8]| to.send(bytes.to_vec()).expect("heard"));
    let pool = FramePool::new(2_048).expect("memory for frames");
    let parts = InstanceParts::alone(SEED).with_store(make);
    let instance = parts.start(Arc::new(TILLS), settings, pool, vec![port]);
    (instance, left)
}

/// Handles its share of the packets: what left, and how many were given up.
fn run(number: u32, address: SocketAddr) -> (Vec<Vec<u8>>, u64) {
    let (mut instance, left) = instance(number, address);
    let begun = Instant::now();
    let now = || Time::from_micros(1 + begun.elapsed().as_micros() as u64);
    let mut next = number;
    while next < PACKETS || instance.tally().parked > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not end");
        instance.turn(now());
        if next < PACKETS && instance.tally().parked < 128 {
            let flow = (next / INSTANCES * 7 % FLOWS) as u16;
            assert!(instance.inject(now(), PortNumber(0), &packet(flow, next)));
            next += INSTANCES;
        }
    }
    instance.turn(now());
    let given_up = instance.tally().dropped(Reason::ParkedTooLong);
    (left.try_iter().collect(), given_up)
}

fn each_packet_takes_effect_once(address: SocketAddr) {
    let threads: Vec<_> = (0..INSTANCES)
        .map(|number| std::thread::spawn(move || run(number, address)))
        .collect();
    let left = threads.into_iter().map(|thread| thread.join());
    let left: Result<Vec<_>, _> = left.collect();
    let (left, given_up): (Vec<_>, Vec<_>) = left.expect("no instance fails").into_iter().unzip();
    let dropped = judge(TILLS, &left.concat(), PACKETS, given_up.iter().sum());
    let expected = PACKETS / 100;
    assert!(
        (expected / 2..expected * 3).contains(&dropped),
        "{dropped} were dropped, of one account in a hundred"
    );
}

#[test]
fn instances_share_the_embedded_store() {
    let embedded = Embedded::start(any_port());
    each_packet_takes_effect_once(embedded.address);
}

#[test]
fn instances_share_a_redis() {
    match Redis::start() {
        Some(redis) => each_packet_takes_effect_once(redis.address()),
        None => println!("SKIPPED instances that share a Redis: redis-server is not installed"),
    }
}

#[test]
fn a_store_that_comes_late_is_waited_for() {
    let embedded = Embedded::start(any_port());
    let address = embedded.address;
    drop(embedded);
    let (mut instance, left) = instance(0, address);
    let begun = Instant::now();
    let now = || Time::from_micros(1 + begun.elapsed().as_micros() as u64);
    assert!(instance.inject(now(), PortNumber(0), &packet(0, 1)));
    let mut store = None;
    while left.try_iter().count() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not end");
        instance.turn(now());
        if store.is_none() && begun.elapsed() > Duration::from_millis(200) {
            store = Some(Embedded::start(address));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}
