//! `replication.repair`: how long after it was committed an operation is applied elsewhere when the datagram that
//! carried it was lost.
//!
//! Two members and a link between them in virtual time, so that a round trip is exact and nothing but the protocol
//! takes time. Datagrams of both directions are lost. An operation counts as repaired if it is applied later than one
//! round trip after its commit, which no first sending is; also those that wait behind a lost one count.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, host};
use asterism_function::{
    Ask, Builder, Late, NetworkFunction, PortNumber, Register, Value, Verdict, Wire, state,
};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::traffic::frames::frame_between;
use crate::traffic::{Endpoint, Protocol, Random};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "replication.repair",
    make: repair,
}];

/// Round trips: within a data centre, within a country, between continents.
const ROUND_TRIPS_MS: [u64; 3] = [1, 20, 100];
/// Mean microseconds between two operations: some to a round trip, many to it, many to a datagram.
const SPACINGS_US: [u64; 3] = [50_000, 1_000, 20];
/// Of a hundred datagrams.
const LOST_PERCENT: f64 = 1.0;
/// Repaired operations for a figure, at least.
const REPAIRED_LEAST: usize = 100;

/// The function: every packet writes one value.
struct Writes;

#[state]
struct Written {
    last: Register<Number>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire, Value)]
struct Number(u32);

impl NetworkFunction for Writes {
    type State = Written;
    fn state(&self, builder: &Builder) -> Written {
        Written {
            last: builder.register("last", Number(0)),
        }
    }
    fn packet(&self, ask: Ask<'_, Written>) -> Result<Verdict, Late> {
        let number = ask.last.get()?.0.wrapping_add(1);
        let mut act = ask.act()?;
        act.last.set(Number(number));
        Ok(Verdict::Consumed)
    }
}

fn repair(context: &Context) -> Result<Outcome, Failure> {
    let mut worst = f64::MIN;
    let mut outcome = Outcome::new(0.0, 0);
    let operations = if context.full { 400_000 } else { 40_000 };
    for round_trip in ROUND_TRIPS_MS {
        for spacing in SPACINGS_US {
            let name = format!("{round_trip}ms-every-{spacing}us");
            context.say(&name);
            let link = Duration::from_millis(round_trip) / 2;
            let found = latencies(link, spacing, operations, context.seed)?;
            let beyond = beyond_two_round_trips(found, link * 2)?;
            worst = f64::max(worst, beyond);
            outcome = outcome.variant(name, beyond);
        }
    }
    Ok(outcome.with_value(worst, (ROUND_TRIPS_MS.len() * SPACINGS_US.len()) as u32))
}

/// The 99th percentile of what repaired operations took beyond two round trips, in ms.
fn beyond_two_round_trips(
    mut latencies: Vec<Duration>,
    round_trip: Duration,
) -> Result<f64, Failure> {
    latencies.retain(|latency| *latency > round_trip);
    if latencies.len() < REPAIRED_LEAST {
        return Err(Failure::Unsound(format!(
            "only {} operations were repaired",
            latencies.len()
        )));
    }
    latencies.sort_unstable();
    let at = (latencies.len() * 99).div_ceil(100) - 1;
    Ok((latencies[at].as_secs_f64() - 2.0 * round_trip.as_secs_f64()) * 1e3)
}

/// How long after its commit each operation was applied by the other member.
fn latencies(
    link: Duration,
    spacing_us: u64,
    operations: usize,
    seed: u64,
) -> Result<Vec<Duration>, Failure> {
    let names = [MemberId(1), MemberId(2)];
    let mut network = Network::new(seed);
    network.set_defaults(LinkConditions::with_delay(link));
    let members = names.map(|name| {
        let config = HostConfig::new(
            ClusterId(1),
            name,
            Incarnation(u64::from(name.0)),
            names.to_vec(),
            ClusterKey::from_random(1, [1; 32]),
            [name.0 as u8; 48],
        );
        let (channel, mut parts) = host(config, Time::ZERO).expect("a sound configuration");
        let ports: Vec<Box<dyn Port>> = vec![Box::new(MemoryPort::new("in"))];
        let pool = FramePool::new(64).expect("memory for frames");
        let instance = parts.remove(0).start(
            Arc::new(Writes),
            |_| ObjectSettings::REPLICATED,
            pool,
            ports,
        );
        (name, channel, vec![instance])
    });
    let mut cluster = Cluster::new(members.into(), network);
    cluster.run_until(Time::ZERO + link * 20 + Duration::from_secs(1));
    cluster
        .network_mut()
        .change_all(|all| all.loss = LOST_PERCENT / 100.0);
    let end = |port| Endpoint {
        address: 0x0a00_0001,
        port,
    };
    let packet = frame_between(Protocol::Udp, end(1), end(2));
    let mut random = Random::new(seed);
    let mut committed = Vec::with_capacity(operations);
    let mut found = Vec::with_capacity(operations);
    while found.len() < operations {
        let wait = random.below(2 * spacing_us) + 1;
        let until = if committed.len() < operations {
            cluster.now() + Duration::from_micros(wait)
        } else {
            cluster.now() + Duration::from_millis(1)
        };
        loop {
            let more = cluster.advance(until);
            let progress = cluster.members()[1].channel.progress();
            let applied = progress.applied(names[0]) as usize;
            while found.len() < applied.min(committed.len()) {
                let at: Time = committed[found.len()];
                found.push(cluster.now() - at);
            }
            if !more {
                break;
            }
        }
        if committed.len() < operations && cluster.inject(0, 0, PortNumber(0), &packet) {
            committed.push(cluster.now());
        }
        let last = Duration::from_micros(spacing_us * 2) * operations as u32;
        if cluster.now() > Time::ZERO + last + Duration::from_secs(60) {
            return Err(Failure::Unsound("operations were not applied".into()));
        }
    }
    Ok(found)
}
