//! `replication.coalescing`, `paper.coalescing`: how many fewer bytes travel when accumulators keep changes back while the link is congested.
//!
//! Two hosts and a link between them in virtual time. One host counts. *Without*: on a link that takes everything, every
//! packet's changes are operations of their own, in datagrams that are filled. *With*: the same packets at the same rate, on a
//! link of a twentieth of those bytes a second, with windows of at most 100 ms. Both end when the other host has everything,
//! and digests are equal. *Without* takes long to run, so it is given the first part of the packets: totals only grow, so that
//! the others would take no fewer bytes each.
//!
//! What is counted: keyed counters under Zipf popularity, and the two sketches of the paper's section 6.5 over real captures.
//! A capture is short, so it is played again and again at the same rate, each time with other keys: nothing repeats only because
//! the capture did. `paper.coalescing` is the paper's experiment: each of the two sketches by itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, host};
use asterism_function::{
    Ask, Builder, CountMin, Counter, Counters, CountingBloom, Flow4Key, Late, NetworkFunction,
    Packet, PortNumber, Reason, Verdict, state,
};
use asterism_io::frame::{BURST, FramePool};
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{CaptureReader, MemoryPort, Port};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::traffic::frames::frame_between;
use crate::traffic::{Endpoint, Protocol, Random, SmallFrame, Zipf};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "replication.coalescing",
        make: coalescing,
    },
    Measure {
        name: "paper.coalescing",
        make: each_sketch,
    },
];

/// Packets a microsecond: of the smallest ones, a quarter of what 10 Gb/s carry.
const RATE: u32 = 4;
/// Keyed counters, and how popularity falls with their rank.
const COUNTERS: u32 = 10_000;
const EXPONENT: f64 = 1.0;
/// Keys for which the counting Bloom filter is made.
const FILTER_KEYS: u32 = 10_000;
/// The link is this part of the demand.
const LINK_PART: f64 = 20.0;
/// What travels without coalescing is measured on this part of the packets.
const PART: u32 = 10;
/// One way.
const DELAY: Duration = Duration::from_millis(1);
/// The longest window.
const WINDOW: Duration = Duration::from_millis(100);
/// How long a group may wait for others to fill its datagram.
const LOOKAHEAD: Duration = Duration::from_micros(200);
/// The interval of flushes with coalescing: the product's.
const FLUSH_US: u64 = 200;
/// Between two writes whose way is timed.
const BEAT: Duration = Duration::from_millis(5);
/// How long hosts may take to agree once no packets come.
const SETTLE: Duration = Duration::from_secs(30);
/// What says that a packet is one of those writes.
const BEAT_PORT: u16 = 9;

/// The captures: a browsing host, a chat, streaming, downloads, a peer-to-peer node, a web attack, a scan of ports.
const CAPTURES: [&str; 7] = [
    "mixed/ppp-example.pcap",
    "mixed/ndpi-1kxun.pcap",
    "bulk/ndpi-netflix.pcap",
    "manyconn/onvm-64B_download.pcap",
    "p2p/ndpi-gnutella.pcap",
    "attack/ndpi-WebattackXSS.pcap",
    "scan/ndpi-synscan.pcap",
];
/// Those of the short form.
const CAPTURES_SHORT: [&str; 3] = [
    "mixed/ndpi-1kxun.pcap",
    "p2p/ndpi-gnutella.pcap",
    "scan/ndpi-synscan.pcap",
];

/// Counts packets by flow.
struct CountFlows;

#[state]
struct FlowCounts {
    packets: Counters<Flow4Key>,
    beats: Counter,
}

impl NetworkFunction for CountFlows {
    type State = FlowCounts;

    fn state(&self, builder: &Builder) -> FlowCounts {
        FlowCounts {
            packets: builder.counters("packets", 4 * COUNTERS),
            beats: builder.counter("beats"),
        }
    }

    fn packet(&self, ask: Ask<'_, FlowCounts>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        if flow.destination_port == BEAT_PORT {
            ask.act()?.beats.add(1);
            return Ok(Verdict::Consumed);
        }
        let Some(count) = ask.packets.find(&flow.into())? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        ask.act()?.packets.add(&count, 1);
        Ok(Verdict::Consumed)
    }
}

/// Counts packets by flow in sketches: one of them, or both.
#[derive(Clone, Copy)]
struct SketchFlows {
    count_min: bool,
    counting_bloom: bool,
}

#[state]
struct FlowSketches {
    sums: CountMin<Flow4Key>,
    filter: CountingBloom<Flow4Key>,
    beats: Counter,
}

impl NetworkFunction for SketchFlows {
    type State = FlowSketches;

    fn state(&self, builder: &Builder) -> FlowSketches {
        FlowSketches {
            sums: builder.count_min("sums", 0.001, 0.01),
            filter: builder.counting_bloom("filter", FILTER_KEYS, 0.01),
            beats: builder.counter("beats"),
        }
    }

    fn packet(&self, ask: Ask<'_, FlowSketches>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let mut act = ask.act()?;
        if flow.destination_port == BEAT_PORT {
            act.beats.add(1);
        } else {
            if self.count_min {
                act.sums.add(&flow.into(), 1);
            }
            if self.counting_bloom {
                act.filter.add(&flow.into());
            }
        }
        Ok(Verdict::Consumed)
    }
}

/// A function whose timed writes can be read.
trait Beats: NetworkFunction {
    fn beats(state: &Self::State) -> u64;
}

impl Beats for CountFlows {
    fn beats(state: &FlowCounts) -> u64 {
        state.beats.get().unwrap_or(0)
    }
}

impl Beats for SketchFlows {
    fn beats(state: &FlowSketches) -> u64 {
        state.beats.get().unwrap_or(0)
    }
}

/// How changes travel.
#[derive(Clone, Copy)]
enum Delivery {
    /// Each packet's by themselves.
    Each,
    /// At every flush, on a link that takes everything.
    Flushed,
    /// As the link of so many bits a second takes them.
    Coalesced { bits_per_second: u64 },
}

/// What a run came to.
struct Ran {
    /// Of all datagrams, in both directions.
    bytes: u64,
    /// From a write to when it is seen.
    lags_ms: Vec<f64>,
    /// From the last packet until all was equal.
    settled: Duration,
    longest_window: Duration,
    /// Changes of cells, and totals with which they were reported.
    reported: (u64, u64),
}

fn coalescing(context: &Context) -> Result<Outcome, Failure> {
    let time = Duration::from_millis(if context.full { 10_000 } else { 2_500 });
    let zipf = Zipf::new(COUNTERS, EXPONENT);
    let keys = |random: &mut Random, _| u64::from(zipf.draw(random));
    let (mut worst, mut outcome) = compare(
        context,
        "zipf",
        time,
        || CountFlows,
        keys,
        Outcome::new(0.0, 0),
    )?;
    let captures = captures(context);
    let both = SketchFlows {
        count_min: true,
        counting_bloom: true,
    };
    for capture in captures {
        let (name, play) = played(capture)?;
        let found = compare(context, name, time, || both, play, outcome)?;
        worst = f64::min(worst, found.0);
        outcome = found.1;
    }
    Ok(outcome.with_value(worst, 1 + captures.len() as u32))
}

/// The paper's section 6.5: each sketch by itself.
fn each_sketch(context: &Context) -> Result<Outcome, Failure> {
    let time = Duration::from_millis(if context.full { 10_000 } else { 1_000 });
    let sketches = [("count-min", true, false), ("counting-bloom", false, true)];
    let (mut worst, mut outcome, mut runs) = (f64::INFINITY, Outcome::default(), 0);
    for capture in captures(context) {
        let (name, play) = played(capture)?;
        for (sketch, count_min, counting_bloom) in sketches {
            let function = SketchFlows {
                count_min,
                counting_bloom,
            };
            let name = format!("{name}-{sketch}");
            let found = compare(context, &name, time, || function, &play, outcome)?;
            worst = f64::min(worst, found.0);
            outcome = found.1;
            runs += 1;
        }
    }
    Ok(outcome.with_value(worst, runs))
}

fn captures(context: &Context) -> &'static [&'static str] {
    if context.full {
        &CAPTURES
    } else {
        &CAPTURES_SHORT
    }
}

/// A capture's name, and the flow of each packet as it is played again and again.
fn played(
    capture: &'static str,
) -> Result<(&'static str, impl Fn(&mut Random, usize) -> u64), Failure> {
    let flows = flows_of(&super::captures::folder()?.join(capture))?;
    let name = capture.rsplit('/').next().unwrap_or(capture);
    let play = move |_: &mut Random, number: usize| {
        let pass = (number / flows.len()) as u64;
        flows[number % flows.len()] ^ pass << 32
    };
    Ok((name.trim_end_matches(".pcap"), play))
}

/// The flows of a capture's packets, each as a number of 32 bits.
fn flows_of(path: &Path) -> Result<Vec<u64>, Failure> {
    let absent = |why: String| Failure::Unsound(format!("{}: {why}", path.display()));
    let mut reader = CaptureReader::open(path).map_err(|error| absent(error.to_string()))?;
    let (mut bytes, mut flows) = (Vec::new(), Vec::new());
    while let Ok(Some(_)) = reader.next(&mut bytes) {
        let flow = Packet::parse_plain(&mut bytes).and_then(|packet| packet.flow4());
        if let Some(flow) = flow {
            let source = asterism_state::hash::words(
                u64::from(flow.source.to_bits()),
                u64::from(flow.source_port),
                1,
            );
            let destination = asterism_state::hash::words(
                u64::from(flow.destination.to_bits()),
                u64::from(flow.destination_port),
                1,
            );
            flows.push(asterism_state::hash::words(source, destination, 2) >> 32);
        }
    }
    if flows.len() < 1_000 {
        return Err(absent(format!("only {} packets of flows", flows.len())));
    }
    Ok(flows)
}

/// Bytes without over bytes with, and the figures beside it.
fn compare<F: Beats>(
    context: &Context,
    name: &str,
    time: Duration,
    function: impl Fn() -> F,
    mut key: impl FnMut(&mut Random, usize) -> u64,
    outcome: Outcome,
) -> Result<(f64, Outcome), Failure> {
    context.say(name);
    let seed = context.seed;
    let part = time / PART;
    let without =
        run(function(), Delivery::Each, part, &mut key, seed)?.bytes as f64 * f64::from(PART);
    let flushed =
        run(function(), Delivery::Flushed, part, &mut key, seed)?.bytes as f64 * f64::from(PART);
    let demand = without * 8.0 / time.as_secs_f64();
    let way = Delivery::Coalesced {
        bits_per_second: (demand / LINK_PART) as u64,
    };
    let with = run(function(), way, time, &mut key, seed)?;
    if with.longest_window > WINDOW {
        return Err(Failure::Unsound(format!(
            "a window of {:?}",
            with.longest_window
        )));
    }
    let ratio = without / with.bytes as f64;
    let packets = f64::from(RATE) * time.as_micros() as f64;
    let mut lags = with.lags_ms;
    lags.sort_by(f64::total_cmp);
    let lag = |share: f64| lags[((lags.len() - 1) as f64 * share) as usize];
    let outcome = outcome
        .variant(name, ratio)
        .variant(format!("{name}-flushed-every-200-us"), without / flushed)
        .variant(
            format!("{name}-changes-per-total"),
            with.reported.0 as f64 / with.reported.1 as f64,
        )
        .variant(
            format!("{name}-bytes-per-packet-without"),
            without / packets,
        )
        .variant(
            format!("{name}-bytes-per-packet-with"),
            with.bytes as f64 / packets,
        )
        .variant(format!("{name}-demand-mbit"), demand / 1e6)
        .variant(format!("{name}-lag-ms-median"), lag(0.5))
        .variant(format!("{name}-lag-ms-longest"), lag(1.0))
        .variant(
            format!("{name}-longest-window-ms"),
            with.longest_window.as_secs_f64() * 1e3,
        )
        .variant(
            format!("{name}-settled-ms"),
            with.settled.as_secs_f64() * 1e3,
        );
    Ok((ratio, outcome))
}

/// A packet of the flow with this number.
fn frame(key: u64, port: u16) -> SmallFrame {
    let end = |address: u32, port| Endpoint { address, port };
    let inside = end(
        0x0a00_0000 | (key as u32 & 0x00ff_ffff),
        1 + (key >> 56) as u16,
    );
    let outside = end(0x2000_0000 | ((key >> 24) as u32 & 0x0fff_ffff), port);
    frame_between(Protocol::Udp, inside, outside)
}

fn cluster<F: Beats>(function: F, way: Delivery, seed: u64) -> Cluster<F> {
    let names = [MemberId(1), MemberId(2)];
    let mut network = Network::new(seed);
    network.set_defaults(LinkConditions::with_delay(DELAY));
    if let Delivery::Coalesced { bits_per_second } = way {
        network.link_mut(0, 1).bits_per_second = Some(bits_per_second);
    }
    let function = Arc::new(function);
    let members = names.map(|name| {
        let mut config = HostConfig::new(
            ClusterId(1),
            name,
            Incarnation(u64::from(name.0)),
            names.to_vec(),
            ClusterKey::from_random(1, [1; 32]),
            [name.0 as u8; 48],
        );
        config.replica.lookahead = LOOKAHEAD;
        config.flush_us = match way {
            Delivery::Each => 0,
            Delivery::Flushed | Delivery::Coalesced { .. } => FLUSH_US,
        };
        config.replica.coalescing_max = match way {
            Delivery::Coalesced { .. } => WINDOW,
            Delivery::Each | Delivery::Flushed => Duration::ZERO,
        };
        let (channel, mut parts) = host(config, Time::ZERO).expect("a sound configuration");
        let ports: Vec<Box<dyn Port>> = vec![Box::new(MemoryPort::new("in"))];
        let pool = FramePool::new(2 * BURST).expect("memory for frames");
        let instance = parts.remove(0).start(
            function.clone(),
            |_| ObjectSettings::REPLICATED,
            pool,
            ports,
        );
        (name, channel, vec![instance])
    });
    Cluster::new(members.into(), network)
}

fn run<F: Beats>(
    function: F,
    way: Delivery,
    time: Duration,
    key: &mut impl FnMut(&mut Random, usize) -> u64,
    seed: u64,
) -> Result<Ran, Failure> {
    let mut cluster = cluster(function, way, seed);
    cluster.run_until(Time::from_micros(300_000));
    let mut random = Random::new(seed);
    let sent = |cluster: &Cluster<F>| {
        let all = cluster.members().iter();
        all.map(|member| member.channel.tally().bytes_sent)
            .sum::<u64>()
    };
    let before = sent(&cluster);
    let beat = frame(0, BEAT_PORT);
    let start = cluster.now();
    let mut longest_window = Duration::ZERO;
    let mut beats: Vec<Time> = Vec::new();
    let mut lags_ms = Vec::new();
    let mut number = 0;
    // Of each packet's own changes, one packet at a time; else a burst at a time.
    let tick = match way {
        Delivery::Each => Duration::from_micros(1),
        _ => Duration::from_micros(BURST as u64 / u64::from(RATE)),
    };
    let count = RATE as usize * tick.as_micros() as usize;
    let mut frames: Vec<SmallFrame> = Vec::with_capacity(count);
    let mut refused = 0;
    let mut see = |cluster: &Cluster<F>, beats: &[Time], lags_ms: &mut Vec<f64>| {
        let seen = F::beats(cluster.members()[1].instances[0].state()) as usize;
        while lags_ms.len() < seen.min(beats.len()) {
            let lag = cluster.now().since(beats[lags_ms.len()]);
            lags_ms.push(lag.as_secs_f64() * 1e3);
        }
        let window = cluster.members()[0].channel.window();
        if window.round != 0 {
            let open = cluster.now().since(window.opened);
            longest_window = longest_window.max(open.min(window.length));
        }
    };
    while cluster.now().since(start) < time {
        frames.clear();
        for _ in 0..count {
            frames.push(frame(key(&mut random, number), 7));
            number += 1;
        }
        match way {
            Delivery::Each => {
                for frame in &frames {
                    refused += usize::from(!cluster.inject(0, 0, PortNumber(0), frame));
                    cluster.step();
                }
            }
            _ => {
                let burst = frames.iter().map(|frame| &frame[..]);
                refused += count - cluster.inject_burst(0, 0, PortNumber(0), burst);
            }
        }
        let passed = cluster.now().since(start);
        if passed >= BEAT * beats.len() as u32 && cluster.inject(0, 0, PortNumber(0), &beat) {
            beats.push(cluster.now());
        }
        cluster.run_until(cluster.now() + tick);
        see(&cluster, &beats, &mut lags_ms);
    }
    let end = cluster.now();
    loop {
        cluster.run_until(cluster.now() + Duration::from_micros(100));
        see(&cluster, &beats, &mut lags_ms);
        let [here, there] = [0, 1].map(|place| cluster.members()[place].instances[0].digests());
        if here == there && cluster.is_quiet() && lags_ms.len() == beats.len() {
            break;
        }
        if cluster.now().since(end) > SETTLE {
            return Err(Failure::Unsound("the hosts do not agree".into()));
        }
    }
    if refused > 0 {
        return Err(Failure::Unsound(format!("{refused} packets were refused")));
    }
    let tally = cluster.members()[0].instances[0].tally();
    Ok(Ran {
        bytes: sent(&cluster) - before,
        lags_ms,
        settled: cluster.now().since(end),
        longest_window,
        reported: (tally.counter_changes, tally.counters_reported),
    })
}
