//! `functions.cost`: what sharing its state costs each function of the library, on packets of flows that are known.
//!
//! Three whole hosts with replicated state, all of which take packets, against the same function with local state, which gets the
//! packets of the first one and knows the flows of all three: its tables are as large. A host's packet loop applies what the others
//! tell, and tells what it counted; its state channel runs before each pass on the same core, and its time is distinguished.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{HostConfig, Instance};
use asterism_function::{Endpoint, MacAddress, NetworkFunction, PortNumber, Protocol, TokenRate};
use asterism_functions::balancer::{Backend, Balancer, BalancerConfig, Service};
use asterism_functions::firewall::{Firewall, FirewallConfig, read_rules};
use asterism_functions::limiter::{Limit, Limiter, LimiterConfig, Unit};
use asterism_functions::monitor::{Monitor, MonitorConfig};
use asterism_functions::nat::{Interface, Prefix, Route, Side};
use asterism_functions::pass_through::{Access, PassThrough};
use asterism_functions::port_scan::{PortScan, PortScanConfig, Response};
use asterism_functions::signature::{Carrier, Signature, SignatureConfig, Signatures};
use asterism_io::ring::RingWriter;
use asterism_placement::Time;
use asterism_state::{Absence, ObjectSettings};

use super::nat_bench::nat;
use super::nat_churn::Source;
use super::paper_figure_4::{
    MEMORY_BYTES, PASS, PASS_TIME_MAX, PASS_TIME_MIN, WARM_UP, WARM_UP_PASS, as_drawn,
    local_instance, turns,
};
use super::replication_hosts::{Host, Hosts, Start, fed_ports, provide_memory};
use super::{Context, Measure};
use crate::allocations::{counted, mark_this_thread};
use crate::contract::{Failure, Outcome};
use crate::cores::stay_on_core;
use crate::timing::{LostTime, Spread, Stopwatch, wall_ns};
use crate::traffic::frames::{GATEWAY_MAC, frame_between};
use crate::traffic::{self, Flows, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "functions.cost",
    make: cost,
}];

/// Members that all take packets.
const MEMBERS: usize = 3;
/// Set-ups of each function, each with memory of its own: where tables and buffers happen to lie is worth a tenth and more to short
/// paths, the same for all pairs of one. So there are more than the least while they take no longer than `SET_UPS_TIME`.
const SET_UPS_MIN: u64 = 5;
const SET_UPS_MAX: u64 = 21;
const SET_UPS_TIME: Duration = Duration::from_secs(3);
/// Flows of each.
const KNOWN: usize = 2_000;
/// Passes of a window, and how many of them are not timed.
const PASSES: u32 = 7;
const WARM_PASSES: u32 = 2;
/// Rounds before those that count.
const WARM_ROUNDS: usize = 3;
/// Packets of a burst: members open so many flows in turn.
const BURST: usize = 32;
/// Hosts hear each other once in a window, up to 14 ms of the cluster's time. A path that takes longer than two of those is taken for
/// congested, no other: on a congested one less is reported, and costs less.
const DELIVERED_WITHIN: Duration = Duration::from_millis(40);
/// Backends of the balancer.
const BACKENDS: u8 = 10;
/// Where the balancer's service is.
pub(super) const SERVICE: [u8; 4] = [203, 0, 113, 10];
/// So many tokens that no packet is over a limit, at a rate at which no bucket is full again during a run: a full one is forgotten, and
/// the one side that knows no others' spending would have fewer keys in its tables than the other.
const PLENTY: TokenRate = TokenRate {
    tokens_per_second: 1_000,
    burst_tokens: 1 << 32,
};

/// A member's packets, and the end that it is fed by.
struct Fed {
    source: Source,
    feed: RingWriter,
}

impl Fed {
    fn pass(&mut self, packets: usize) -> Result<(), Failure> {
        // None of these opens a flow.
        self.source.pass(packets, usize::MAX, &mut self.feed)
    }
}

/// A function with local state.
struct Local<F: NetworkFunction> {
    instance: Instance<F>,
    fed: Fed,
    now: Time,
    watch: Stopwatch,
}

impl<F: NetworkFunction> Local<F> {
    /// With the flows of all members, of whose sources the first is its own.
    fn new(function: Arc<F>, mut sources: Vec<Source>, seed: u64) -> Result<Self, Failure> {
        let (ports, mut feed) = fed_ports();
        let mut instance = local_instance(function, ports, seed)?;
        let mut now = Time::ZERO;
        // In the order in which members come to know them: a burst of each in turn.
        for from in (0..KNOWN).step_by(BURST) {
            for source in &mut sources {
                source.open(BURST.min(KNOWN - from), &mut feed)?;
                instance.turn(now);
            }
            now = now + Duration::from_micros(100);
        }
        let source = sources.swap_remove(0);
        Ok(Self {
            instance,
            fed: Fed { source, feed },
            now,
            watch: Stopwatch::default(),
        })
    }

    /// On-CPU ns per packet.
    fn window(&mut self, packets: usize, time: Duration) -> Result<f64, Failure> {
        for pass in 0..PASSES {
            self.fed.pass(packets)?;
            let (instance, now) = (&mut self.instance, self.now);
            self.watch.window(|| turns(instance, now, time));
            self.now = self.now + time;
            if pass + 1 == WARM_PASSES {
                self.watch.take_cpu_ns();
            }
        }
        Ok(self.watch.take_cpu_ns() as f64 / timed(packets))
    }

    fn check(&self) -> Result<(), Failure> {
        let tally = self.instance.tally();
        if tally.received != tally.forwarded {
            let drops: Vec<_> = tally.drops().collect();
            return Err(Failure::Unsound(format!(
                "{} packets were taken and {} forwarded: {drops:?}",
                tally.received, tally.forwarded
            )));
        }
        Ok(())
    }
}

fn timed(packets: usize) -> f64 {
    ((PASSES - WARM_PASSES) as usize * packets) as f64
}

/// Three hosts, of which the first is timed.
struct Shared<F: NetworkFunction> {
    hosts: Hosts<F>,
    fed: Vec<Fed>,
    watch: Stopwatch,
    channel: Stopwatch,
}

impl<F: NetworkFunction> Shared<F> {
    fn new(function: &Arc<F>, sources: Vec<Source>) -> Result<Self, Failure> {
        let (mut fed, mut starts) = (Vec::new(), Vec::new());
        for source in sources {
            let (ports, feed) = fed_ports();
            starts.push(Start {
                function: function.clone(),
                ports,
            });
            fed.push(Fed { source, feed });
        }
        let settings = |_: &str| ObjectSettings {
            absence: Absence::Answer,
            ..ObjectSettings::REPLICATED
        };
        let free = |config: &mut HostConfig| config.replica.congested_above = DELIVERED_WITHIN;
        let mut hosts = Hosts::new(starts, free, settings)?;
        for Fed { source, feed } in &mut fed {
            source.open(KNOWN, feed)?;
        }
        // One burst at each step.
        hosts.rest(Duration::from_micros(100) * KNOWN.div_ceil(BURST) as u32);
        hosts.settle()?;
        Ok(Self {
            hosts,
            fed,
            watch: Stopwatch::default(),
            channel: Stopwatch::default(),
        })
    }

    /// On-CPU ns per packet of the first member's packet loop, and of its state channel.
    fn window(&mut self, packets: usize, time: Duration) -> Result<(f64, f64), Failure> {
        let Self {
            hosts,
            fed,
            watch,
            channel,
        } = self;
        let start = hosts.now;
        let mut first = None;
        // The others in full, and the first one last.
        for (place, (host, fed)) in hosts.members.iter_mut().zip(fed).enumerate() {
            if place == 0 {
                first = Some((host, fed));
                continue;
            }
            for pass in 0..PASSES {
                let now = start + time * pass;
                fed.pass(packets)?;
                turns(&mut host.instance, now, time);
                let some = host.mail.waiting().div_ceil((PASSES - pass) as usize);
                host.mail.pass(now, some);
            }
        }
        let (Host { instance, mail, .. }, fed) = first.expect("there are three");
        for pass in 0..PASSES {
            let now = start + time * pass;
            fed.pass(packets)?;
            // What came with the last delivery, evenly over the window.
            let some = mail.waiting().div_ceil((PASSES - pass) as usize);
            channel.window(|| mail.pass(now, some));
            mark_this_thread(true);
            watch.window(|| turns(instance, now, time));
            mark_this_thread(false);
            if pass + 1 == WARM_PASSES {
                channel.take_cpu_ns();
                watch.take_cpu_ns();
            }
        }
        hosts.deliver();
        hosts.now = start + time * PASSES;
        let packets = timed(packets);
        Ok((
            self.watch.take_cpu_ns() as f64 / packets,
            self.channel.take_cpu_ns() as f64 / packets,
        ))
    }
}

/// What a function's pairs gave.
struct Found {
    outcome: Outcome,
    worst: Option<Spread>,
    lost: LostTime,
}

impl Found {
    /// One function more.
    fn with<F: NetworkFunction>(
        mut self,
        context: &Context,
        name: &str,
        function: F,
        frames: fn(&Flows) -> Vec<SmallFrame>,
    ) -> Result<Self, Failure> {
        let function = Arc::new(function);
        let mut pairs = Pairs::default();
        // Kept until the end, or the next one would lie where the one before lay.
        let mut set_ups = Vec::new();
        let end_ns = wall_ns() + SET_UPS_TIME.as_nanos() as u64;
        for set_up in 0..SET_UPS_MAX {
            if set_up >= SET_UPS_MIN && wall_ns() >= end_ns {
                break;
            }
            let seed = context.seed + 1_000 * set_up;
            let source = |member: u64| {
                let seed = seed + 100 * member;
                let flows = Flows::of(traffic::Protocol::Udp, KNOWN as u32, seed);
                Source::of(frames(&flows), seed)
            };
            let sources = || (0..MEMBERS as u64).map(source).collect::<Vec<_>>();
            let mut local = Local::new(function.clone(), sources(), seed)?;
            let mut shared = Shared::new(&function, sources())?;
            pairs.measure(context, &mut local, &mut shared)?;
            self.lost = self.lost.and(local.watch.lost()).and(shared.watch.lost());
            set_ups.push((local, shared));
        }
        let spread = Spread::of(&pairs.ratios);
        context.say(&format!("{name}: {:.3}", spread.median));
        let median = |of: &[f64]| Spread::of(of).median;
        // Flushes and what others tell fall into some windows only, which a median passes over.
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        self.outcome = self
            .outcome
            .variant(name, spread.median)
            .variant(
                format!("{name}-of-means"),
                mean(&pairs.locals) / mean(&pairs.owns),
            )
            .variant(format!("{name}-local-ns"), median(&pairs.locals))
            .variant(format!("{name}-replicated-ns"), median(&pairs.owns))
            .variant(format!("{name}-channel-ns"), median(&pairs.channels))
            .variant(format!("{name}-allocations"), pairs.allocations as f64)
            .variant(format!("{name}-set-ups"), set_ups.len() as f64)
            .samples(name, pairs.ratios);
        if self
            .worst
            .as_ref()
            .is_none_or(|worst| spread.median < worst.median)
        {
            self.worst = Some(spread);
        }
        Ok(self)
    }
}

/// Pairs of windows of all set-ups of a function.
#[derive(Default)]
struct Pairs {
    ratios: Vec<f64>,
    locals: Vec<f64>,
    owns: Vec<f64>,
    channels: Vec<f64>,
    allocations: u64,
}

impl Pairs {
    fn measure<F: NetworkFunction>(
        &mut self,
        context: &Context,
        local: &mut Local<F>,
        shared: &mut Shared<F>,
    ) -> Result<(), Failure> {
        let mut time = Duration::from_micros(300);
        for _ in 0..WARM_ROUNDS {
            let ns = (local.window(PASS, time)? * PASS as f64) as u64;
            time = Duration::from_nanos(ns).clamp(PASS_TIME_MIN, PASS_TIME_MAX);
            shared.window(PASS, time)?;
        }
        // So long that an instance has learnt whether prefetching pays.
        for _ in 0..WARM_UP.as_nanos().div_ceil((time * PASSES).as_nanos()) {
            local.window(WARM_UP_PASS, time)?;
            shared.window(WARM_UP_PASS, time)?;
        }
        let rounds = if context.full { 15 } else { 5 };
        let (measured, taken) = counted(|| -> Result<(), Failure> {
            for _ in 0..rounds {
                // A B B A.
                let before = local.window(PASS, time)?;
                let (first, channel) = shared.window(PASS, time)?;
                let (second, _) = shared.window(PASS, time)?;
                let alone = f64::midpoint(before, local.window(PASS, time)?);
                let own = f64::midpoint(first, second);
                self.ratios.push(alone / own);
                self.locals.push(alone);
                self.owns.push(own);
                self.channels.push(channel);
            }
            Ok(())
        });
        measured?;
        self.allocations += taken.allocations;
        local.check()?;
        // What is reported lazily is reported by then.
        shared.hosts.rest(Duration::from_millis(250));
        shared.hosts.settle()?;
        shared.hosts.check()
    }
}

fn cost(context: &Context) -> Result<Outcome, Failure> {
    stay_on_core(0);
    provide_memory(MEMORY_BYTES);
    let flows = (KNOWN * MEMBERS) as u32;
    let found = Found {
        outcome: Outcome::new(0.0, 0),
        worst: None,
        lost: LostTime::default(),
    };
    let found = found
        .with(context, "nat", nat(flows, MEMBERS as u32), as_drawn)?
        .with(context, "firewall", firewall(), as_drawn)?
        .with(context, "balancer", balancer(), to_the_service)?
        .with(context, "port-scan", port_scan(), as_drawn)?
        .with(context, "signature", signatures(), as_drawn)?
        .with(
            context,
            "monitor",
            Monitor::new(MonitorConfig::default()),
            as_drawn,
        )?
        .with(context, "limiter", limiter(), as_drawn)?
        .with(
            context,
            "pass-through",
            PassThrough {
                access: Access::Write,
            },
            as_drawn,
        )?;
    let worst = found
        .worst
        .ok_or_else(|| Failure::Unsound("no function was measured".into()))?;
    Ok(found
        .outcome
        .with_value(worst.median, worst.runs)
        .quartiles(worst.first_quartile, worst.third_quartile)
        .lost(found.lost))
}

pub(super) fn firewall() -> Firewall {
    Firewall::new(FirewallConfig {
        rules: read_rules("allow any on inside\n").expect("good rules"),
        ..FirewallConfig::default()
    })
}

/// Detects, and blocks nobody: of the flows here nobody answers.
fn port_scan() -> PortScan {
    PortScan::new(PortScanConfig {
        response: Response::Detect,
        ..PortScanConfig::default()
    })
}

fn signatures() -> Signatures {
    let signature = |(place, bytes): (usize, &&[u8])| Signature {
        id: place as u32 + 1,
        message: format!("signature {place}"),
        bytes: bytes.to_vec(),
        carrier: Carrier::Any,
        ports: Vec::new(),
    };
    let list: [&[u8]; 4] = [
        b"/etc/passwd",
        b"cmd.exe /c",
        b"() { :; };",
        b"SELECT * FROM",
    ];
    let list = list.iter().enumerate().map(signature).collect();
    Signatures::new(SignatureConfig::new(list)).expect("good signatures")
}

fn limiter() -> Limiter {
    Limiter::new(LimiterConfig {
        sources: Some(Limit {
            unit: Unit::Packets,
            rate: PLENTY,
        }),
        ..LimiterConfig::default()
    })
}

/// Of clients by port 0, with backends on the link behind port 1, where no client is: they are of 10.0.0.0/8.
pub(super) fn balancer() -> Balancer {
    let mac = MacAddress(GATEWAY_MAC);
    let clients = Interface::new(PortNumber(0), [203, 0, 112, 1].into(), 24, mac);
    let backends = Interface::new(PortNumber(1), [172, 16, 0, 1].into(), 24, mac);
    let router = core::net::Ipv4Addr::new(203, 0, 112, 2);
    let of = |number: u8| Backend {
        address: [172, 16, 0, 10 + number].into(),
        port: 8_053,
        weight: 1,
        drains: false,
    };
    let asked = Endpoint::new(SERVICE.into(), 53, Protocol::UDP);
    let services = vec![Service::new(asked, (0..BACKENDS).map(of).collect())];
    let stations = (0..BACKENDS).map(|number| {
        let address = of(number).address;
        (address, MacAddress([2, 0, 0, 0, 1, number]))
    });
    Balancer::new(BalancerConfig {
        routes: vec![Route {
            prefix: Prefix::ALL,
            side: Side::Outside,
            next_hop: Some(router),
        }],
        neighbours: stations
            .chain([(router, MacAddress([2, 0, 0, 0, 0, 0x20]))])
            .collect(),
        ..BalancerConfig::new(clients, backends, services)
    })
    .expect("a sound configuration")
}

/// Each flow's source asks the balancer's service.
fn to_the_service(flows: &Flows) -> Vec<SmallFrame> {
    let frame = |session: &traffic::Session| {
        let service = traffic::Endpoint {
            address: u32::from_be_bytes(SERVICE),
            port: 53,
        };
        frame_between(session.protocol, session.inside, service)
    };
    flows.sessions().iter().map(frame).collect()
}
