//! `join.cold-100k`, `join.cold-1m`: how long a host takes to be ready that joins another which holds a large table.
//!
//! Two processes of the product on loopback, a NAT each. One holds the sessions of as many inside endpoints, opened by
//! packets through its port. The other is named in an epoch and started: from the call that makes its process to its
//! word to the service manager that it is ready (`READY=1`) is the figure. Then the digests of both must be equal. The
//! epoch is in force at the first host before the second starts, as the page on membership has it; what that takes is a
//! variant. It is wall time: sleeping is a part of it.

use std::path::Path;
use std::time::Duration;

use asterism_io::clock::MonotonicClock;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{LinkState, Port, SharedMemoryConfig, SharedMemoryPort, SharedMemoryRole};

use super::host_process::{HostProcess, PATIENCE, Products, two_addresses, wait};
use super::lab::product;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{Spread, wall_ns};
use crate::traffic::frames::frame_between;
use crate::traffic::{Flows, Protocol, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "join.cold-100k",
        make: |context| cold(context, 100_000),
    },
    Measure {
        name: "join.cold-1m",
        make: |context| cold(context, 1_000_000),
    },
];

/// Joins that a figure rests on.
const JOINS: u32 = 9;
/// Joins of the long form.
const JOINS_FULL: u32 = 25;
/// Times that all packets are sent at most until every session is there.
const FILLS_MAX: usize = 8;
/// Packets between two looks whether there is room in the port.
const BURST: usize = 32;

/// The configuration of both hosts.
fn configuration(entries: u32, addresses: &[String; 2]) -> String {
    // Each of the two members leases half of the ports of every address, and half of the table.
    let outside: Vec<String> = (0..entries.div_ceil(24_000) + 2)
        .map(|number| format!("203.0.{}.{}", 113 + number / 250, 1 + number % 250))
        .collect();
    let capacity = u64::from(entries) * 5 / 2;
    let mut text = format!(
        r#"[cluster]
key = "cluster.key"
members = ["a", "b"]
epochs = "epoch.toml"
[port]
inside = {{ kind = "shared_memory", role = "listen" }}
outside = {{ kind = "shared_memory", role = "listen" }}
[function.nat]
outside = {outside:?}
inside = ["10.0.0.0/8"]
[function.nat.inside_link]
promiscuous = true
address = "192.168.1.1/24"
next_hop = "192.168.1.2"
next_hop_mac = "02:00:00:00:01:02"
[function.nat.outside_link]
promiscuous = true
address = "203.0.112.1/24"
next_hop = "203.0.112.2"
next_hop_mac = "02:00:00:00:02:02"
[function.nat.state]
sessions = {{ placement = "replicated", capacity = {capacity} }}
"#
    );
    for (name, address) in ["a", "b"].iter().zip(addresses) {
        text.push_str(&format!(
            "[cluster.member.{name}]\naddress = \"{address}\"\n[on.{name}]\nhost = {{ control = \"{name}.sock\" }}\nport.inside.path = \"{name}.inside\"\nport.outside.path = \"{name}.outside\"\n",
        ));
    }
    text
}

fn cold(context: &Context, entries: u32) -> Result<Outcome, Failure> {
    let joins = if context.full { JOINS_FULL } else { JOINS };
    let addresses = two_addresses()?;
    let products = Products::new(&product()?, &configuration(entries, &addresses))?;
    products.epoch(&["--first"])?;
    // Both found the cluster with nothing, then one is left alone.
    let mut first = products.start("a")?;
    let mut second = products.start("b")?;
    first.wait_for_ready()?;
    second.wait_for_ready()?;
    drop(second);
    let mut epoch = 2;
    products.epoch(&["--without", "b"])?;
    in_force(&first, epoch)?;
    context.say(&format!("opening {entries} sessions"));
    fill(&first, &products, entries, context.seed)?;

    let (mut found, mut handed_in) = (Vec::new(), Vec::new());
    let (mut newcomer_cpu, mut sponsor_cpu) = (Vec::new(), Vec::new());
    for turn in 0..joins {
        epoch += 1;
        products.epoch(&["--again", "b"])?;
        let written = wall_ns();
        in_force(&first, epoch)?;
        handed_in.push((wall_ns() - written) as f64 / 1e6);

        let sponsor = first.cpu_ms()?;
        let begun = wall_ns();
        let mut second = products.start("b")?;
        let ready = second.wait_for_ready()?;
        newcomer_cpu.push(second.cpu_ms()?);
        sponsor_cpu.push(first.cpu_ms()? - sponsor);
        let took = (ready - begun) as f64 / 1e6;
        context.say(&format!("join {} took {took:.1} ms", turn + 1));
        found.push(took);
        agree(&first, &second, entries)?;
        // It dies and is left out: what its end takes is no part of a join.
        drop(second);
        epoch += 1;
        products.epoch(&["--without", "b"])?;
        in_force(&first, epoch)?;
    }
    let spread = Spread::of(&found);
    let per_second = f64::from(entries) / spread.median * 1e3;
    Ok(Outcome::of(&spread)
        .variant("entries", f64::from(entries))
        .variant("entries-per-second", per_second)
        .variant("slowest-ms", found.iter().copied().fold(0.0, f64::max))
        .variant("epoch-in-force-after-ms", Spread::of(&handed_in).median)
        .variant("newcomer-on-cpu-ms", Spread::of(&newcomer_cpu).median)
        .variant("sponsor-on-cpu-ms", Spread::of(&sponsor_cpu).median)
        .samples("joins-ms", found))
}

/// Opens a session from each of so many inside endpoints.
fn fill(host: &HostProcess, products: &Products, entries: u32, seed: u64) -> Result<(), Failure> {
    let flows = Flows::of(Protocol::Udp, entries, seed);
    let mut inside = PortEnd::open(&products.path("a.inside"))?;
    let mut outside = PortEnd::open(&products.path("a.outside"))?;
    for _ in 0..FILLS_MAX {
        for sessions in flows.sessions().chunks(BURST) {
            let frames: Vec<SmallFrame> = sessions
                .iter()
                .map(|session| frame_between(session.protocol, session.inside, session.remote))
                .collect();
            inside.send_all(&frames, || outside.drop_all())?;
        }
        outside.drop_all();
        // What it shows is as old as its last look at itself.
        std::thread::park_timeout(Duration::from_millis(300));
        if live(&host.status(&[])?)? == u64::from(entries) {
            return Ok(());
        }
    }
    let live = live(&host.status(&[])?)?;
    Err(Failure::Unsound(format!(
        "{entries} sessions were opened, {live} are there"
    )))
}

/// Waits until a host has put an epoch in force, and the incarnations that ended are closed.
fn in_force(host: &HostProcess<'_>, epoch: u64) -> Result<(), Failure> {
    wait(
        "an epoch to be in force and ended incarnations to be closed",
        || {
            let status = host.status(&[])?;
            let closed = status["ended"].as_array().is_some_and(Vec::is_empty);
            Ok((closed && status["epoch"] == epoch).then_some(()))
        },
    )
}

/// That both have all entries, and the same.
fn agree(first: &HostProcess, second: &HostProcess, entries: u32) -> Result<(), Failure> {
    let digests = |host: &HostProcess| {
        let status = host.status(&["--digests"])?;
        let objects = status["instances"][0]["objects"].as_array();
        let digests = objects.into_iter().flatten();
        Ok::<_, Failure>(
            digests
                .map(|object| object["digest"].to_string())
                .collect::<Vec<_>>(),
        )
    };
    // That of the newcomer first: it was ready before.
    let (joined, known) = (digests(second)?, digests(first)?);
    if joined.is_empty() || joined != known {
        return Err(Failure::Unsound(
            "the digests of both hosts differ after the join".into(),
        ));
    }
    // Counts are shown some ten times a second.
    wait("the entries at both", || {
        let count = live(&first.status(&[])?)?.min(live(&second.status(&[])?)?);
        Ok((count == u64::from(entries)).then_some(()))
    })
}

/// Sessions that a host shows.
fn live(status: &serde_json::Value) -> Result<u64, Failure> {
    let objects = status["instances"][0]["objects"].as_array();
    objects
        .into_iter()
        .flatten()
        .find(|object| object["name"] == "sessions")
        .and_then(|object| object["live"].as_u64())
        .ok_or_else(|| Failure::Unsound("a host does not show its sessions".into()))
}

/// The other end of a host's port.
struct PortEnd {
    port: SharedMemoryPort,
    pool: FramePool,
    clock: MonotonicClock,
}

impl PortEnd {
    fn open(path: &Path) -> Result<Self, Failure> {
        let config = SharedMemoryConfig::new("bench", path, SharedMemoryRole::Connect);
        let absent = |error: &dyn core::fmt::Display| Failure::Absent(error.to_string());
        let mut end = Self {
            port: SharedMemoryPort::open(&config).map_err(|error| absent(&error))?,
            pool: FramePool::new(512).map_err(|error| absent(&error))?,
            clock: MonotonicClock::new(),
        };
        wait("the link to a port", || {
            end.port.advance(end.clock.now());
            Ok((end.port.link() == LinkState::Up).then_some(()))
        })?;
        Ok(end)
    }

    /// Sends frames, and does something else while there is no room for all.
    fn send_all(
        &mut self,
        frames: &[SmallFrame],
        mut meanwhile: impl FnMut(),
    ) -> Result<(), Failure> {
        let until = wall_ns() + PATIENCE.as_nanos() as u64;
        let mut sent = 0;
        while sent < frames.len() {
            let mut burst = Burst::default();
            for frame in &frames[sent..] {
                if let Some(frame) = self.pool.allocate_copy(frame) {
                    // There is room: no more than a burst is handed in.
                    let _ = burst.push(frame);
                }
            }
            self.port.advance(self.clock.now());
            // What found no room is the end of the burst, and goes again.
            sent += self.port.send(&mut self.pool, &mut burst);
            if sent < frames.len() {
                meanwhile();
                std::thread::yield_now();
            }
            if wall_ns() > until {
                return Err(Failure::Unsound("a host takes no packets".into()));
            }
        }
        let _ = self.port.flush(&mut self.pool);
        Ok(())
    }

    /// Takes what came and drops it.
    fn drop_all(&mut self) {
        let mut burst = Burst::default();
        self.port.advance(self.clock.now());
        while self.port.receive(&mut self.pool, &mut burst) > 0 {
            self.pool.release_all(&mut burst);
        }
    }
}
