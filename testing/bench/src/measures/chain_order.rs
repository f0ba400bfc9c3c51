//! `chain.order`: recorded traffic through a chain on three hosts, any packet at any host, one of which dies half-way, beside the same
//! chain in one box.

mod chains;
pub(super) mod sides;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, Instance, InstanceParts, host};
use asterism_function::chain::Chain;
use asterism_function::{Endpoint, IcmpKind, Packet, PortNumber, Reason};
use asterism_functions::nat::NatState;
use asterism_io::frame::{Burst, FramePool, STRIDE_BYTES_MAX};
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{CaptureReader, Port, PortStatistics};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;

use chains::Row;
use sides::Sides;

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "chain.order",
    make: order,
}];

const INSIDE: PortNumber = PortNumber(0);
const OUTSIDE: PortNumber = PortNumber(1);
const HOSTS: usize = 3;
/// Packets of a capture in the short form.
const PACKETS_SHORT: usize = 150;
/// Of so many captures the short form plays one through the second chain.
const SCANS_SHORT: usize = 3;
/// Between two packets at least: so long every host knows what the last one changed.
const STEP: Duration = Duration::from_millis(2);
/// Of the state channel, one way.
const DELAY: Duration = Duration::from_micros(100);
/// Microseconds after which hosts tell what they counted.
const FLUSH_US: u64 = 500;
/// Bytes of each ring between an instance and its state channel.
const RING_BYTES: usize = 512 << 10;
/// What a host keeps for members that do not acknowledge it.
const LOG_BYTES: usize = 1 << 20;
const LOG_GROUPS: usize = 1 << 14;
/// Before it dies a host has reported what it counts for reports, which is reported lazily: what it had not would rightly be lost.
const TELLS: Duration = Duration::from_millis(250);
const GAP_MAX: Duration = Duration::from_secs(1);
/// A packet waits at most so long: a later fragment for the first one, others for what other hosts may have to say.
const LATE_MAX: Duration = Duration::from_millis(250);
/// After the last packet: survivors wait for what the dead host does not acknowledge, and tell counts less often meanwhile.
const SETTLE: Duration = Duration::from_millis(500);
/// Entries of tables: room for what a capture has, also where one host gets most of it.
const ENTRIES_LEAST: u32 = 1 << 9;
const ENTRIES_MOST: u32 = 1 << 14;
/// Beside the longest frame of a capture: what the pool keeps free in front, and errors that the NAT makes.
const FRAME_BYTES_MORE: usize = 1 << 10;
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

/// What hosts have to have room for.
#[derive(Clone, Copy)]
struct Namespaces {
    /// Entries of tables.
    entries: u32,
    /// Bytes of a frame's place.
    stride: usize,
}

impl Namespaces {
    fn of(frames: &[(u64, Vec<u8>)]) -> Self {
        let entries = (4 * frames.len() as u32).next_power_of_two();
        let longest = frames.iter().map(|(_, frame)| frame.len()).max();
        let stride = longest.unwrap_or(0) + FRAME_BYTES_MORE;
        Self {
            entries: entries.clamp(ENTRIES_LEAST, ENTRIES_MOST),
            stride: stride.next_multiple_of(64).min(STRIDE_BYTES_MAX),
        }
    }
}

/// Hosts with the same chain, one of them or three.
struct Hosts {
    cluster: Cluster<Chain>,
    nat: usize,
    left: Receiver<(PortNumber, Vec<u8>)>,
    alive: usize,
    packets: usize,
}

/// What became of a packet.
struct Handled {
    /// What left, without what a box is free to choose.
    left: Vec<(PortNumber, Vec<u8>)>,
    /// As which one the sender appears outside.
    appears: Option<Endpoint>,
    /// Drops of each stage and of the instance, by their reasons.
    dropped: Vec<u64>,
}

impl Hosts {
    fn new(
        row: Row,
        (sides, room): (&Sides, Namespaces),
        names: std::ops::RangeInclusive<u16>,
        seed: u64,
    ) -> Result<Self, Failure> {
        let (sender, left) = channel();
        let function = Arc::new(row.chain(&sides.routes(), room.entries));
        let names: Vec<MemberId> = names.map(MemberId).collect();
        let mut network = Network::new(seed);
        network.set_defaults(LinkConditions::with_delay(DELAY));
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
            // Hundreds of clusters are made, and captures stand still for seconds of virtual time.
            config.flush_us = FLUSH_US;
            (config.up_ring_bytes, config.down_ring_bytes) = (RING_BYTES, RING_BYTES);
            config.replica.log_bytes_max = LOG_BYTES;
            config.replica.log_groups_max = LOG_GROUPS;
            let (channel, parts) = host(config, Time::ZERO).expect("a sound configuration");
            let make = |part: InstanceParts| -> Result<Instance<Chain>, Failure> {
                let pool = FramePool::with_stride(64, room.stride)
                    .map_err(|error| Failure::Unsound(format!("no memory for frames: {error}")))?;
                let ports = [INSIDE, OUTSIDE].map(|number| {
                    let left = sender.clone();
                    Box::new(Tap { number, left }) as Box<dyn Port>
                });
                Ok(part.start(function.clone(), chains::settings, pool, ports.into()))
            };
            let instances = parts.into_iter().map(make).collect::<Result<_, _>>()?;
            Ok((name, channel, instances))
        };
        let members = names.iter().map(start).collect::<Result<_, Failure>>()?;
        let mut hosts = Self {
            cluster: Cluster::new(members, network),
            nat: row.nat(),
            left,
            alive: names.len(),
            packets: 0,
        };
        hosts.run(Duration::from_millis(300));
        Ok(hosts)
    }

    fn run(&mut self, time: Duration) {
        let until = self.cluster.now() + time;
        self.cluster.run_until(until);
    }

    fn living(&self) -> impl Iterator<Item = &Instance<Chain>> {
        let members = &self.cluster.members()[..self.alive];
        members.iter().flat_map(|member| &member.instances)
    }

    fn is_parked(&self) -> bool {
        self.living().any(|instance| instance.parked() > 0)
    }

    fn dropped(&self, host: usize) -> Vec<u64> {
        let instance = &self.cluster.members()[host].instances[0];
        let all = || Reason::ALL.iter().copied();
        let stages = instance.stage_tallies();
        let by_stage = stages.flat_map(|tally| all().map(|reason| tally.dropped(reason)));
        let by_all = all().map(|reason| instance.tally().dropped(reason));
        by_stage.chain(by_all).collect()
    }

    /// Sends a packet through the next host in turn. What comes from outside goes to where its receiver appears there.
    fn packet(&mut self, port: PortNumber, frame: &[u8]) -> Result<Handled, Failure> {
        let host = self.packets % self.alive;
        self.packets += 1;
        let mut frame = frame.to_vec();
        if port == OUTSIDE
            && let Ok(mut packet) = Packet::parse(&mut frame)
        {
            let state = self.cluster.members()[host].instances[0].state();
            let nat: &NatState = state.stage(self.nat).expect("the chain has a NAT");
            sides::address(nat, &mut packet);
        }
        let before = self.dropped(host);
        let taken = self.cluster.inject(host, 0, port, &frame);
        self.run(STEP);
        let begun = self.cluster.now();
        while self.is_parked() && self.cluster.now().since(begun) < LATE_MAX {
            self.run(Duration::from_millis(1));
        }
        if !taken || self.is_parked() {
            let is = if taken {
                "still waits"
            } else {
                "was not taken"
            };
            let number = self.packets;
            return Err(Failure::Unsound(format!("packet {number} {is}")));
        }
        let after = self.dropped(host).into_iter();
        let mut left: Vec<_> = self.left.try_iter().collect();
        Ok(Handled {
            appears: left.iter_mut().find_map(sender_outside),
            left: left.into_iter().map(plainly).collect(),
            dropped: after
                .zip(before)
                .map(|(after, before)| after - before)
                .collect(),
        })
    }
}

/// The sender of a packet that left outside.
fn sender_outside((port, bytes): &mut (PortNumber, Vec<u8>)) -> Option<Endpoint> {
    let packet = Packet::parse(bytes).ok().filter(|_| *port == OUTSIDE)?;
    packet.flow4().map(|flow| flow.source())
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

/// What was played, and what differed.
#[derive(Clone, Copy, Default, Debug)]
struct Compared {
    packets: u64,
    /// Those for which the box sent something.
    sent: u64,
    differing: u64,
    /// Survivors that tell of the whole capture what the box does not.
    accounts: u64,
    captures: u64,
}

impl Compared {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.sent += other.sent;
        self.differing += other.differing;
        self.accounts += other.accounts;
        self.captures += other.captures;
    }
}

/// The packets of a capture with their times: none of one with another link type. What is damaged ends it: that is other
/// measures' business.
fn frames(path: &Path, packets_max: usize) -> Vec<(u64, Vec<u8>)> {
    let Ok(mut reader) = CaptureReader::open(path) else {
        return Vec::new();
    };
    let (mut frames, mut bytes) = (Vec::new(), Vec::new());
    while frames.len() < packets_max {
        match reader.next(&mut bytes) {
            Ok(Some(packet)) => frames.push((packet.timestamp_ns, bytes.clone())),
            Ok(None) | Err(_) => break,
        }
    }
    frames
}

/// Plays a capture; hosts hear of each other after this delay.
fn compare(
    context: &Context,
    row: Row,
    path: &Path,
    packets_max: usize,
    delay: Duration,
) -> Result<Compared, Failure> {
    let frames = frames(path, packets_max);
    let Some(&(mut last_ns, _)) = frames.first() else {
        return Ok(Compared::default());
    };
    let sides = Sides::of(frames.iter().map(|(_, frame)| &frame[..]));
    let count = frames.len();
    let room = Namespaces::of(&frames);
    let mut alone = Hosts::new(row, (&sides, room), 1..=1, context.seed)?;
    let mut hosts = Hosts::new(row, (&sides, room), 1..=HOSTS as u16, context.seed)?;
    let network = hosts.cluster.network_mut();
    network.change_all(|link| *link = LinkConditions::with_delay(delay));
    let mut compared = Compared {
        packets: count as u64,
        captures: 1,
        ..Compared::default()
    };
    // As which one inside endpoints appear: outside of the box, and of the hosts.
    let mut appear: BTreeMap<Endpoint, (Endpoint, Endpoint)> = BTreeMap::new();
    for (place, (at_ns, mut frame)) in frames.into_iter().enumerate() {
        if place == count / 2 {
            let reported = hosts.cluster.now().max(alone.cluster.now()) + TELLS;
            alone.cluster.run_until(reported);
            hosts.cluster.run_until(reported);
            hosts.alive = HOSTS - 1;
            hosts.cluster.set_paused(HOSTS - 1, true);
        }
        let gap = Duration::from_nanos(at_ns.saturating_sub(last_ns)).min(GAP_MAX);
        last_ns = last_ns.max(at_ns);
        // Both at one time of the clock, or what idles out would differ.
        let now = alone.cluster.now().max(hosts.cluster.now()) + gap;
        alone.cluster.run_until(now);
        hosts.cluster.run_until(now);
        let port = sides.port(&mut frame);
        let expected = alone.packet(port, &frame)?;
        let handled = hosts.packet(port, &frame)?;
        let sender = sender(port, &mut frame);
        let both = expected.appears.zip(handled.appears);
        // Which endpoint it gives a box is free to choose, but it stays with it.
        let moved = sender.zip(both).is_some_and(|(sender, (box_s, hosts_s))| {
            let before = appear.insert(sender, (box_s, hosts_s));
            before.is_some_and(|before| before.0 == box_s && before.1 != hosts_s)
        });
        compared.sent += u64::from(!expected.left.is_empty());
        let dropped_alike = expected.dropped == handled.dropped;
        if moved || handled.left != expected.left || !dropped_alike {
            compared.differing += 1;
            context.say(&format!(
                "{} {} packet {place}: {:02x?} left by {:?}, not {:02x?} by {:?}; drops: {}",
                row.name(),
                path.display(),
                handled.left,
                handled.appears,
                expected.left,
                expected.appears,
                if dropped_alike { "alike" } else { "others" },
            ));
        }
    }
    let account = |hosts: &mut Hosts| -> Vec<Vec<String>> {
        hosts.run(SETTLE);
        let living = hosts.living();
        living.map(|host| row.account(host.state())).collect()
    };
    let expected = account(&mut alone).remove(0);
    for reported in account(&mut hosts)
        .iter()
        .filter(|reported| **reported != expected)
    {
        compared.accounts += 1;
        context.say(&format!(
            "{} {}: reported is {reported:?}, not {expected:?}",
            row.name(),
            path.display()
        ));
    }
    Ok(compared)
}

/// The endpoint of who sends a packet from inside.
fn sender(port: PortNumber, frame: &mut [u8]) -> Option<Endpoint> {
    let packet = Packet::parse(frame).ok().filter(|_| port == INSIDE)?;
    packet.flow4().map(|flow| flow.source())
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
    let mut compared = Row::ALL.map(|_| Compared::default());
    for (place, path) in found.iter().enumerate() {
        if place % 20 == 0 {
            context.say(&format!("capture {place} of {}", found.len()));
        }
        for (row, sum) in Row::ALL.into_iter().zip(&mut compared) {
            if row == Row::Scans && !context.full && place % SCANS_SHORT != 0 {
                continue;
            }
            sum.add(compare(context, row, path, packets_max, DELAY)?);
        }
    }
    let all = compared.iter().fold(Compared::default(), |mut all, one| {
        all.add(*one);
        all
    });
    let mut outcome = Outcome::new(all.differing as f64, compared[0].captures as u32)
        .variant("accounts", all.accounts as f64);
    for (row, one) in Row::ALL.into_iter().zip(compared) {
        let figures = [
            ("packets", one.packets),
            ("sent", one.sent),
            ("differing", one.differing),
            ("captures", one.captures),
        ];
        for (name, figure) in figures {
            outcome = outcome.variant(format!("{}-{name}", row.name()), figure as f64);
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use asterism_functions::nat::Side;

    use super::*;

    #[test]
    fn three_hosts_send_what_one_box_sends() {
        let context = Context {
            full: false,
            seed: 1,
        };
        let folder = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../crates/rehearsal/data"
        ));
        for (name, packets) in [("trex-http_get_0.pcap", 15), ("nmap-sT-top200.pcap", 150)] {
            for row in Row::ALL {
                let path = folder.join(name);
                let compared = compare(&context, row, &path, PACKETS_SHORT, DELAY).unwrap();
                assert_eq!((compared.differing, compared.accounts), (0, 0), "{name}");
                assert!(compared.packets >= packets, "{name}: {compared:?}");
                assert!(compared.sent >= 15, "{name}: {compared:?}");
            }
        }
    }

    #[test]
    fn hosts_that_hear_of_each_other_too_late_differ() {
        let context = Context {
            full: false,
            seed: 1,
        };
        let path = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../crates/rehearsal/data"
        ));
        let path = path.join("trex-http_get_0.pcap");
        for row in Row::ALL {
            let late = Duration::from_secs(30);
            let compared = compare(&context, row, &path, PACKETS_SHORT, late).unwrap();
            assert!(compared.differing > 0, "{compared:?}");
            assert_eq!(compared.accounts, 2, "{compared:?}");
        }
    }

    /// Who spoke first is inside where addresses do not tell, and a route says so.
    #[test]
    fn hosts_of_one_kind_of_address_are_on_two_sides() {
        let frame = |from: [u8; 4], to: [u8; 4]| {
            let mut frame = error(1, 10, 7);
            frame[ETHERNET_BYTES + 12..][..4].copy_from_slice(&from);
            frame[ETHERNET_BYTES + 16..][..4].copy_from_slice(&to);
            let ip = &mut frame[ETHERNET_BYTES..];
            ip[10..12].fill(0);
            let sum: u32 = ip[..20]
                .chunks(2)
                .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
                .sum();
            ip[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
            frame
        };
        let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (public, other) = ([198, 51, 100, 1], [198, 51, 100, 2]);
        let frames = [
            frame(near, far),
            frame(public, other),
            frame(near, [10, 0, 0, 255]),
        ];
        let sides = Sides::of(frames.iter().map(|frame| &frame[..]));
        let routes = [(far.into(), Side::Outside), (public.into(), Side::Inside)];
        assert_eq!(sides.routes(), routes);
        let port = |from| sides.port(&mut frame(from, [192, 0, 2, 1]));
        assert_eq!([near, public].map(port), [INSIDE; 2]);
        assert_eq!([far, other].map(port), [OUTSIDE; 2]);
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
