//! `remote.*`: a NAT, and a firewall, whose flows are in the real Redis, on this machine's loopback.
//!
//! The packet loop polls on one core, the store has the other one. A packet of a known flow costs one read of the store; that of a new
//! flow three reads in turn and a commit. Nothing is cached, but where that is measured: each packet asks.
//!
//! - `remote.latency`: packets of known flows become due at half the rate that the NAT takes at most. What a packet takes, less what one
//!   `GET` takes that a client of this program asks for by itself, in the same run.
//!
//! The others have files of their own: `remote/batching.rs`, `remote/ceiling.rs`, `remote/functions.rs` with `remote/capture.rs`,
//! `remote/new_flow.rs` and `remote/timers.rs`; `remote/wire.rs` is how some ask or watch. Three have firewalls of a laboratory
//! (`remote/firewalls.rs`): `remote.elastic`, `remote.failure` and `remote.store-death`.

mod batching;
mod capture;
mod ceiling;
mod datagrams;
mod elastic;
mod failure;
mod firewalls;
mod functions;
mod new_flow;
mod store_death;
mod timers;
mod wire;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use asterism_engine::{Instance, InstanceParts, Store};
use asterism_function::{NetworkFunction, PortNumber, objects_of};
use asterism_functions::nat::Nat;
use asterism_io::frame::FramePool;
use asterism_io::port::Port;
use asterism_lab::outside;
use asterism_lab::redis::Redis;
use asterism_placement::Time;
use asterism_remote_store::{CacheConfig, ClientConfig, RemoteConfig, RemoteStore};
use asterism_state::ObjectSettings;

use self::new_flow::calls;
use self::wire::{Asking, Wire};
use super::functions_cost::SERVICE;
use super::nat_bench::nat;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::cores::{keep_on_core, stay_on_core};
use crate::timing::{Spread, process_cpu_ns, thread_cpu_ns, wall_ns};
use crate::traffic::flows::Endpoint;
use crate::traffic::frames::frame_between;
use crate::traffic::{Protocol, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "remote.batching",
        make: batching::measure,
    },
    Measure {
        name: "remote.ceiling",
        make: ceiling::measure,
    },
    Measure {
        name: "remote.elastic",
        make: elastic::measure,
    },
    Measure {
        name: "remote.failure",
        make: failure::measure,
    },
    Measure {
        name: "remote.functions",
        make: functions::measure,
    },
    Measure {
        name: "remote.latency",
        make: latency,
    },
    Measure {
        name: "remote.new-flow",
        make: new_flow::measure,
    },
    Measure {
        name: "remote.store-death",
        make: store_death::measure,
    },
    Measure {
        name: "remote.timers",
        make: timers::measure,
    },
];

const INSIDE: PortNumber = PortNumber(0);
/// Known flows.
const FLOWS: usize = 10_000;
/// Packets that wait for the store at a time, at most.
const TOGETHER: u64 = 448;
/// Packets that are handed over between two turns.
const BURST: u64 = 32;
/// Packets of a round, and of one in which each is alone.
const ROUND: u64 = 60_000;
const ROUND_SINGLE: u64 = 5_000;
/// Each flow's remote address begins here: packets that leave are known by it.
const REMOTE: u32 = 0xC633_0000;
/// Where a packet's destination stands.
const DESTINATION: usize = 30;
/// Answers to single reads that the round trip is the median of.
const ROUND_TRIPS: usize = 20_000;
/// Nothing takes longer.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Where the sessions are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// In the instance's own memory.
    Here,
    Store,
    /// The same, and the instance keeps answers.
    Cached,
}

/// Room for more than all flows.
const CACHE: CacheConfig = CacheConfig {
    entries: 65_536,
    staleness: Duration::from_millis(100),
    has_filter: true,
    staleness_away: Duration::ZERO,
};

/// A function, and its store.
struct Remote<F: NetworkFunction> {
    redis: Redis,
    instance: Instance<F>,
    left: Receiver<(usize, u64)>,
    frames: Vec<SmallFrame>,
    begun_ns: u64,
    next: usize,
}

/// How long something took, and for how much of it the packet loop was on its core, where it polls.
struct Took {
    wall_ns: u64,
    cpu_ns: u64,
}

/// Objects that are in the store.
const NAT: &[&str] = &["sessions", "ports", "mappings"];
const FIREWALL: &[&str] = &["flows", "fragments"];
const BALANCER: &[&str] = &["flows"];

/// Where a flow comes from.
fn inside(flow: usize) -> Endpoint {
    Endpoint {
        address: 0x0A00_0001 + (flow / 50_000) as u32,
        port: 2_000 + (flow % 50_000) as u16,
    }
}

/// A packet of a flow to a server of its own.
fn to_server(flow: usize) -> SmallFrame {
    let remote = Endpoint {
        address: REMOTE + flow as u32,
        port: 53,
    };
    frame_between(Protocol::Udp, inside(flow), remote)
}

/// A packet of a flow to the balancer's service.
fn to_service(flow: usize) -> SmallFrame {
    let service = Endpoint {
        address: u32::from_be_bytes(SERVICE),
        port: 53,
    };
    frame_between(Protocol::Udp, inside(flow), service)
}

fn start_nat(home: Home) -> Result<Remote<Nat>, Failure> {
    let function = (nat(FLOWS as u32, 1), to_server as fn(usize) -> _);
    Remote::open(FLOWS, function, NAT, home, Asking::Batched)
}

/// A client of the store, without a cache.
fn config<F: NetworkFunction>(function: &F, in_store: &[&str], redis: &Redis) -> RemoteConfig {
    // A pool's items are shown by the table whose rows have them, and are in no store themselves.
    let objects = objects_of(function).iter().zip(0..);
    let objects = objects.filter(|(name, _)| in_store.contains(name) && **name != "ports");
    let client = ClientConfig {
        function: "bench".to_owned(),
        client: "bench".to_owned(),
        seed: 1,
        objects: objects.fold(0, |bits, (_, number)| bits | 1 << number),
        commit_pipes: 8,
        cache: None,
        shard: None,
    };
    RemoteConfig::new(redis.address(), client)
}

/// An instance of a function, with these objects of it in its home.
fn instance<F: NetworkFunction + Send + Sync>(
    function: F,
    in_store: &'static [&'static str],
    home: Home,
    redis: &Redis,
    ports: Vec<Box<dyn Port>>,
    asking: Asking,
) -> Result<Instance<F>, Failure> {
    let function = Arc::new(function);
    let mut config = config(&*function, in_store, redis);
    config.client.cache = (home == Home::Cached).then_some(CACHE);
    let of_store = function.clone();
    let make = move || match asking {
        Asking::Batched => {
            Box::new(RemoteStore::new(&*of_store, &config, Arc::default())) as Box<dyn Store>
        }
        asking => {
            let is_watched = matches!(asking, Asking::Watched(_));
            let mut store = RemoteStore::over(Wire(asking), &*of_store, &config, Arc::default());
            if !is_watched {
                store.ask_each_alone();
            }
            Box::new(store)
        }
    };
    let pool = FramePool::new(4_096).map_err(|error| Failure::Absent(error.to_string()))?;
    let parts = InstanceParts::alone(1).with_store(make);
    let settings = move |name: &str| match home != Home::Here && in_store.contains(&name) {
        true => ObjectSettings::REMOTE,
        false => ObjectSettings::LOCAL,
    };
    Ok(parts.start(function, settings, pool, ports))
}

impl<F: NetworkFunction + Send + Sync> Remote<F> {
    /// With so many flows open.
    fn open(
        flows: usize,
        (function, frame): (F, fn(usize) -> SmallFrame),
        in_store: &'static [&'static str],
        home: Home,
        asking: Asking,
    ) -> Result<Self, Failure> {
        let redis = Redis::start()
            .ok_or_else(|| Failure::Absent("redis-server is not installed".into()))?;
        stay_on_core(0);
        keep_on_core(redis.process(), 1);
        let (to, left) = channel();
        let sees = move |bytes: &[u8]| {
            let address = bytes[DESTINATION..].first_chunk().copied();
            let flow = u32::from_be_bytes(address.unwrap_or_default()).wrapping_sub(REMOTE);
            // Nobody listens in the end.
            let _ = to.send((flow as usize, wall_ns()));
        };
        let ports = vec![outside::port(|_| {}), outside::port(sees)];
        let instance = instance(function, in_store, home, &redis, ports, asking)?;
        let mut remote = Self {
            redis,
            instance,
            left,
            frames: (0..flows).map(frame).collect(),
            begun_ns: wall_ns(),
            next: 0,
        };
        remote.drive(flows as u64, TOGETHER)?;
        Ok(remote)
    }

    fn now(&self) -> Time {
        Time::from_micros(1 + (wall_ns() - self.begun_ns) / 1_000)
    }

    fn send(&mut self) -> bool {
        let now = self.now();
        let taken = self.instance.inject(now, INSIDE, &self.frames[self.next]);
        if taken {
            self.next = (self.next + 1) % self.frames.len();
        }
        taken
    }

    /// So many packets of the next flows, as a port hands them over; how many were taken.
    fn send_burst(&mut self, packets: usize) -> u64 {
        let now = self.now();
        let (frames, next) = (&self.frames, self.next);
        let burst = (0..packets).map(|number| &frames[(next + number) % frames.len()][..]);
        let taken = self.instance.inject_burst(now, INSIDE, burst);
        self.next = (next + taken) % self.frames.len();
        taken as u64
    }

    /// Packets of flows in turn, of which so many wait at a time at most; how long it took.
    fn drive(&mut self, packets: u64, together: u64) -> Result<Took, Failure> {
        let (begun, cpu) = (wall_ns(), thread_cpu_ns());
        let (mut sent, mut back) = (0, 0);
        while back < packets {
            let room = together.saturating_sub(sent - back).min(packets - sent);
            sent += self.send_burst(room.min(BURST) as usize);
            let now = self.now();
            self.instance.turn(now);
            back += self.left.try_iter().count() as u64;
            if wall_ns() - begun > PATIENCE_NS {
                let drops: Vec<_> = self.instance.tally().drops().collect();
                return Err(Failure::Unsound(format!(
                    "{back} of {sent} packets came back: {drops:?}"
                )));
            }
        }
        Ok(Took {
            wall_ns: wall_ns() - begun,
            cpu_ns: thread_cpu_ns() - cpu,
        })
    }

    /// Packets a second at most.
    fn rate(&mut self, context: &Context) -> Result<Vec<f64>, Failure> {
        let rounds = if context.full { 21 } else { 7 };
        self.drive(ROUND, TOGETHER)?;
        (0..rounds)
            .map(|_| Ok(ROUND as f64 * 1e9 / self.drive(ROUND, TOGETHER)?.wall_ns as f64))
            .collect()
    }

    /// Commands by which the store was asked for keys.
    fn reading_commands(&self) -> Result<u64, Failure> {
        let info = self.redis.command(&["INFO", "commandstats"]);
        let info = info.map_err(|error| Failure::Unsound(format!("redis-server: {error}")))?;
        let of_mget = calls(&info).find(|(name, _)| *name == "mget");
        Ok(of_mget.map_or(0, |(_, calls)| calls))
    }

    fn store_cpu_ns(&self) -> Result<u64, Failure> {
        process_cpu_ns(self.redis.process())
            .ok_or_else(|| Failure::Unsound("redis-server ended by itself".into()))
    }
}

/// What a read takes that is alone, in µs.
fn round_trip_us(redis: &Redis) -> Result<f64, Failure> {
    let absent = |error: std::io::Error| Failure::Absent(error.to_string());
    let mut stream = TcpStream::connect(redis.address()).map_err(absent)?;
    stream.set_nodelay(true).map_err(absent)?;
    stream.set_nonblocking(true).map_err(absent)?;
    let command = b"*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n";
    let mut took = Vec::with_capacity(ROUND_TRIPS);
    let mut answer = [0; 64];
    for _ in 0..ROUND_TRIPS {
        let begun = wall_ns();
        stream.write_all(command).map_err(absent)?;
        loop {
            match stream.read(&mut answer) {
                Ok(0) => return Err(Failure::Unsound("redis-server hung up".into())),
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(absent(error)),
            }
        }
        took.push((wall_ns() - begun) as f64 / 1e3);
    }
    Ok(Spread::of(&took).median)
}

fn latency(context: &Context) -> Result<Outcome, Failure> {
    let mut nat = start_nat(Home::Store)?;
    let rate = Spread::of(&nat.rate(context)?).median;
    let apart_ns = 2.0 * 1e9 / rate;
    let rounds = if context.full { 11 } else { 5 };
    let (mut middle, mut high, mut trips) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let trip = round_trip_us(&nat.redis)?;
        let mut took = nat.paced(apart_ns)?;
        took.sort_unstable();
        let at = |share: f64| took[(took.len() as f64 * share) as usize] as f64 / 1e3;
        middle.push(at(0.5) - trip);
        high.push(at(0.95) - trip);
        trips.push(trip);
    }
    let spread = |of: &[f64]| Spread::of(of).median;
    Ok(Outcome::new(spread(&middle), rounds)
        .variant("at-95", spread(&high))
        .variant("round-trip-us", spread(&trips))
        .variant("packets-per-second", rate / 2.0))
}

impl<F: NetworkFunction + Send + Sync> Remote<F> {
    /// Packets of flows in turn, so far apart; how long each took from when it was due, in ns.
    fn paced(&mut self, apart_ns: f64) -> Result<Vec<u64>, Failure> {
        let packets = (1e9 / apart_ns) as usize;
        let begun = wall_ns();
        // No flow has two packets under way: the one of its turn before has left long ago.
        let mut due = vec![0; FLOWS];
        let mut took = Vec::with_capacity(packets);
        let mut sent = 0;
        while took.len() < packets {
            let now_ns = wall_ns();
            for _ in 0..BURST {
                let due_ns = begun + (sent as f64 * apart_ns) as u64;
                if sent == packets || due_ns > now_ns {
                    break;
                }
                let flow = self.next;
                if !self.send() {
                    break;
                }
                due[flow] = due_ns;
                sent += 1;
            }
            let now = self.now();
            self.instance.turn(now);
            for (flow, at_ns) in self.left.try_iter() {
                let due_ns = due.get(flow).copied().unwrap_or(at_ns);
                took.push(at_ns.saturating_sub(due_ns));
            }
            if now_ns - begun > PATIENCE_NS {
                return Err(Failure::Unsound(format!(
                    "{} of {sent} packets came back",
                    took.len()
                )));
            }
        }
        Ok(took)
    }
}
