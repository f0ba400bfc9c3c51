//! `chain.order`: recorded traffic through a chain on three hosts, any packet at any host, one of which dies half-way, beside the same
//! chain in one box.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use asterism_engine::frame::{Burst, FramePool};
use asterism_engine::link::{LinkConditions, Network};
use asterism_engine::port::{CaptureReader, Port, PortStatistics};
use asterism_engine::{Cluster, HostConfig, Instance, InstanceParts, host};
use asterism_function::chain::{Chain, Stage};
use asterism_function::{Endpoint, IcmpKind, MacAddress, Packet, Paired, PortNumber};
use asterism_functions::nat::{Interface, Nat, NatConfig, NatState, Prefix, Route, Session, Side};
use asterism_functions::pass_through::{Access, PassThrough};
use asterism_functions::port_scan::{PortScan, PortScanConfig, Response};
use asterism_placement::seal::ClusterKey;
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_state::{Absence, ObjectSettings};

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "chain.order",
    make: order,
}];

const INSIDE: PortNumber = PortNumber(0);
const OUTSIDE: PortNumber = PortNumber(1);
const HOSTS: usize = 3;
/// The stage that is the NAT.
const NAT: usize = 1;
/// Packets of a capture in the short form.
const PACKETS_SHORT: usize = 150;
/// Between two packets at least: so long every host knows what the last one changed.
const STEP: Duration = Duration::from_millis(2);
const GAP_MAX: Duration = Duration::from_secs(1);
/// A packet waits at most so long: a later fragment for the first one, others for what other hosts may have to say.
const LATE_MAX: Duration = Duration::from_millis(250);
const TICK_AT_ZERO: u32 = 1_000;
const ETHERNET_BYTES: usize = 14;

/// A port whose packets are handed in, and which tells what left.
struct Tap {
    number: PortNumber,
    left: Sender<(PortNumber, Vec<u8>)>,
}

impl Port for Tap {
    fn name(&self) -> &str {
        "tap"
    }
    fn receive(&mut self, _: &mut FramePool, _: &mut Burst) -> usize {
        0
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        for frame in burst.iter() {
            // Who listens ends with the measure.
            let _ = self.left.send((self.number, pool.bytes(frame).to_vec()));
        }
        let count = burst.len();
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}

/// A NAT for any capture: private addresses are inside, all else outside, each behind a router.
fn nat() -> Nat {
    let mac = MacAddress([2, 0, 0, 0, 0, 1]);
    let (near, far) = (Ipv4Addr::new(100, 64, 0, 2), Ipv4Addr::new(203, 0, 112, 2));
    let mut inside = Interface::new(INSIDE, Ipv4Addr::new(100, 64, 0, 1), 24, mac);
    let mut outside = Interface::new(OUTSIDE, Ipv4Addr::new(203, 0, 112, 1), 24, mac);
    for interface in [&mut inside, &mut outside] {
        interface.promiscuous = true;
        interface.mtu = 0;
    }
    let private = [
        ([10, 0, 0, 0], 8),
        ([172, 16, 0, 0], 12),
        ([192, 168, 0, 0], 16),
    ];
    let mut routes: Vec<Route> = private
        .into_iter()
        .map(|(address, length)| Route {
            prefix: Prefix::new(address.into(), length),
            side: Side::Inside,
            next_hop: Some(near),
        })
        .collect();
    routes.push(Route {
        prefix: Prefix::ALL,
        side: Side::Outside,
        next_hop: Some(far),
    });
    Nat::new(NatConfig {
        routes,
        neighbours: [near, far]
            .map(|router| (router, MacAddress([2, 0, 0, 0, 0, 9])))
            .to_vec(),
        sessions_max: 1 << 14,
        ..NatConfig::new(inside, outside, vec![Ipv4Addr::new(203, 0, 113, 1)])
    })
    .expect("a sound configuration")
}

fn chain() -> Chain {
    let scan = PortScan::new(PortScanConfig {
        response: Response::Block { block_s: 600 },
        trails_max: 1 << 13,
        ..PortScanConfig::default()
    });
    let count = PassThrough {
        access: Access::ReadWrite,
    };
    let stages = vec![
        Stage::new("port-scan", Arc::new(scan)),
        Stage::new("nat", Arc::new(nat())),
        Stage::new("count", Arc::new(count)),
    ];
    Chain::new(stages).expect("a sound chain")
}

fn settings(name: &str) -> ObjectSettings {
    ObjectSettings {
        absence: match name {
            "nat.ports" => Absence::Wait { us: 20_000 },
            _ => Absence::Answer,
        },
        ..ObjectSettings::REPLICATED
    }
}

/// Hosts with the same chain, one of them or three.
struct Hosts {
    cluster: Cluster<Chain>,
    left: Receiver<(PortNumber, Vec<u8>)>,
    alive: usize,
    packets: usize,
}

impl Hosts {
    fn new(count: usize, seed: u64) -> Result<Self, Failure> {
        let (sender, left) = channel();
        let function = Arc::new(chain());
        let names: Vec<MemberId> = (1..=count as u16).map(MemberId).collect();
        let mut network = Network::new(seed);
        network.set_defaults(LinkConditions::with_delay(Duration::from_micros(100)));
        let start = |&name: &MemberId| {
            let mut config = HostConfig::new(
                ClusterId(1),
                name,
                Incarnation(u64::from(name.0)),
                names.clone(),
                ClusterKey::from_random(1, [1; 32]),
                [name.0 as u8; 48],
            );
            config.tick_at_zero = TICK_AT_ZERO;
            let (channel, parts) = host(config, Time::ZERO).expect("a sound configuration");
            let make = |part: InstanceParts| -> Result<Instance<Chain>, Failure> {
                let pool = FramePool::with_stride(256, 16 << 10)
                    .map_err(|error| Failure::Unsound(format!("no memory for frames: {error}")))?;
                let ports = [INSIDE, OUTSIDE].map(|number| {
                    let left = sender.clone();
                    Box::new(Tap { number, left }) as Box<dyn Port>
                });
                Ok(part.start(function.clone(), settings, pool, ports.into()))
            };
            let instances = parts.into_iter().map(make).collect::<Result<_, _>>()?;
            Ok((name, channel, instances))
        };
        let members = names.iter().map(start).collect::<Result<_, Failure>>()?;
        let mut hosts = Self {
            cluster: Cluster::new(members, network),
            left,
            alive: count,
            packets: 0,
        };
        hosts.run(Duration::from_millis(300));
        Ok(hosts)
    }

    fn run(&mut self, time: Duration) {
        let until = self.cluster.now() + time;
        self.cluster.run_until(until);
    }

    fn is_parked(&self) -> bool {
        let members = &self.cluster.members()[..self.alive];
        let mut instances = members.iter().flat_map(|member| &member.instances);
        instances.any(|instance| instance.parked() > 0)
    }

    /// Sends a packet through the next host in turn; gives what left, with the endpoints that a NAT chooses left out. An answer
    /// goes to where its session appears outside.
    fn packet(
        &mut self,
        port: PortNumber,
        frame: &[u8],
    ) -> Result<Vec<(PortNumber, Vec<u8>)>, Failure> {
        let host = self.packets % self.alive;
        self.packets += 1;
        let mut frame = frame.to_vec();
        if port == OUTSIDE
            && let Ok(mut packet) = Packet::parse(&mut frame)
            && let Some(flow) = packet.flow4()
        {
            let asked = flow.reversed();
            let key = Session::new(asked.source(), asked.destination(), asked.source(), false);
            let state = self.cluster.members()[host].instances[0].state();
            let nat = state.stage::<NatState>(NAT).expect("the chain has a NAT");
            let found = nat.sessions.by_left(&key.left()).ok().flatten();
            if let Some(found) = found {
                packet.set_destination(found.row.outside());
            }
        }
        let taken = self.cluster.inject(host, 0, port, &frame);
        self.run(STEP);
        let begun = self.cluster.now();
        while self.is_parked() && self.cluster.now().since(begun) < LATE_MAX {
            self.run(Duration::from_millis(1));
        }
        if !taken || self.is_parked() {
            return Err(Failure::Unsound("a packet was not handled".into()));
        }
        Ok(self.left.try_iter().map(plainly).collect())
    }
}

/// What left, without what a box is free to choose: outside endpoints, also of the packet inside an ICMP error, and the
/// identification of the errors that it makes itself.
fn plainly((port, mut bytes): (PortNumber, Vec<u8>)) -> (PortNumber, Vec<u8>) {
    if port == OUTSIDE
        && let Ok(mut packet) = Packet::parse(&mut bytes)
        && let Some(flow) = packet.flow4()
    {
        let none = Endpoint::new(Ipv4Addr::UNSPECIFIED, 0, flow.source().protocol);
        packet.set_source(none);
    }
    let is_error = Packet::parse(&mut bytes)
        .ok()
        .and_then(|packet| packet.icmp_kind())
        .is_some_and(|kind| matches!(kind, IcmpKind::Error));
    if is_error && let Some(ip) = bytes.get_mut(ETHERNET_BYTES..) {
        forget_choices(ip, port);
    }
    (port, bytes)
}

/// Zeroes in an ICMP error what a box chose: the identification and what is summed over it, and where the packet inside it went.
fn forget_choices(ip: &mut [u8], port: PortNumber) {
    let zero = |ip: &mut [u8], from: usize, count: usize| {
        if let Some(bytes) = ip.get_mut(from..from + count) {
            bytes.fill(0);
        }
    };
    zero(ip, 4, 2);
    zero(ip, 10, 2);
    if port != OUTSIDE {
        return;
    }
    // The packet inside was to an outside endpoint.
    let inner = usize::from(ip[0] & 15) * 4 + 8;
    let Some((&[version, ..], &[.., protocol])) =
        ip.get(inner..inner + 1).zip(ip.get(inner + 9..inner + 10))
    else {
        return;
    };
    let transport = inner + usize::from(version & 15) * 4;
    zero(ip, transport + 2, 2);
    zero(ip, transport + if protocol == 17 { 6 } else { 16 }, 2);
    // Over all of that.
    zero(ip, inner - 6, 2);
}

/// Captures below a folder, in the order of their names.
fn captures(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            captures(&path, found)?;
        } else if path
            .extension()
            .is_some_and(|end| end == "pcap" || end == "pcapng")
        {
            found.push(path);
        }
    }
    Ok(())
}

/// Packets of a capture that differ, and packets.
fn compare(context: &Context, path: &Path, packets_max: usize) -> Result<(u64, u64), Failure> {
    // Those of another link type, and those that are damaged on purpose, are other measures' business.
    let Ok(mut reader) = CaptureReader::open(path) else {
        return Ok((0, 0));
    };
    let mut frames: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut bytes = Vec::new();
    while frames.len() < packets_max {
        match reader.next(&mut bytes) {
            Ok(Some(packet)) => frames.push((packet.timestamp_ns, bytes.clone())),
            Ok(None) | Err(_) => break,
        }
    }
    if frames.is_empty() {
        return Ok((0, 0));
    }
    let mut alone = Hosts::new(1, context.seed)?;
    let mut hosts = Hosts::new(HOSTS, context.seed)?;
    let mut differing = 0;
    let mut last_ns = frames[0].0;
    let count = frames.len();
    for (place, (at_ns, mut frame)) in frames.into_iter().enumerate() {
        if place == count / 2 {
            hosts.alive = HOSTS - 1;
            hosts.cluster.set_paused(HOSTS - 1, true);
        }
        let gap = Duration::from_nanos(at_ns.saturating_sub(last_ns)).min(GAP_MAX);
        last_ns = last_ns.max(at_ns);
        // Both at one time of the clock, or what idles out would differ.
        let now = alone.cluster.now().max(hosts.cluster.now()) + gap;
        alone.cluster.run_until(now);
        hosts.cluster.run_until(now);
        let source = Packet::parse(&mut frame)
            .ok()
            .and_then(|packet| packet.ipv4_source());
        let port = match source {
            Some(source) if !source.is_private() => OUTSIDE,
            _ => INSIDE,
        };
        let expected = alone.packet(port, &frame)?;
        let left = hosts.packet(port, &frame)?;
        if left != expected {
            differing += 1;
            context.say(&format!(
                "{} packet {place}: {left:02x?} left, not {expected:02x?}",
                path.display()
            ));
        }
    }
    Ok((differing, count as u64))
}

fn order(context: &Context) -> Result<Outcome, Failure> {
    let mut found = Vec::new();
    let folder = super::captures::folder()?;
    captures(&folder, &mut found)
        .map_err(|error| Failure::Absent(format!("no captures: {error}")))?;
    let packets_max = if context.full {
        usize::MAX
    } else {
        PACKETS_SHORT
    };
    let (mut differing, mut packets, mut with_packets) = (0u64, 0u64, 0u32);
    for (place, path) in found.iter().enumerate() {
        if place % 20 == 0 {
            context.say(&format!("capture {place} of {}", found.len()));
        }
        let (differ, all) = compare(context, path, packets_max)?;
        differing += differ;
        packets += all;
        with_packets += u32::from(all > 0);
    }
    Ok(Outcome::new(differing as f64, with_packets)
        .variant("packets", packets as f64)
        .variant("captures", f64::from(with_packets)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_hosts_send_what_one_box_sends() {
        let context = Context {
            full: false,
            seed: 1,
        };
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../asterism/data"));
        for (name, packets) in [("trex-http_get_0.pcap", 15), ("nmap-sT-top200.pcap", 150)] {
            let compared = compare(&context, &folder.join(name), PACKETS_SHORT).unwrap();
            assert_eq!(compared.0, 0, "{name}");
            assert!(compared.1 >= packets, "{name}: {} packets", compared.1);
        }
    }

    /// An ICMP error (destination unreachable) about a UDP datagram, with this identification, and this port inside.
    fn error(identification: u8, inner_port: u8, inner_host: u8) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 56, 0, identification]);
        frame.extend([0, 0, 64, 1, 0, 0, 203, 0, 113, 1, 198, 51, 100, inner_host]);
        let sum: u32 = frame[ETHERNET_BYTES..]
            .chunks(2)
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        let header_checksum = !((sum & 0xffff) as u16 + (sum >> 16) as u16);
        frame[ETHERNET_BYTES + 10..][..2].copy_from_slice(&header_checksum.to_be_bytes());
        frame.extend([3, 3, 0, 0, 0, 0, 0, 0]);
        frame.extend([0x45, 0, 0, 28, 0, 7, 0, 0, 64, 17, 0, 0]);
        frame.extend([198, 51, 100, inner_host, 203, 0, 113, 1]);
        frame.extend([0, 53, 0, inner_port, 0, 8, inner_port, 0]);
        frame
    }

    #[test]
    fn only_what_a_box_chooses_is_left_out() {
        let one =
            |identification, port, host| plainly((OUTSIDE, error(identification, port, host)));
        assert_eq!(one(1, 10, 7), one(2, 20, 7));
        assert_ne!(one(1, 10, 7), one(1, 10, 8));
        let inside = |port| plainly((INSIDE, error(1, port, 7)));
        assert_ne!(inside(10), inside(20), "inside the client's port stands");
    }
}
