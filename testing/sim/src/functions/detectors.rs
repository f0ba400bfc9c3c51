//! The port-scan detector and the finder of signatures: evidence of which each host sees a part. Who scans is found and who does
//! not is not; a split signature is found and a part of one is not; and where that is asked for, all hosts block.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asterism_function::build::Segment;
use asterism_function::{Endpoint, Packet, Protocol, TcpFlags};
use asterism_functions::port_scan::{self, PortScan, PortScanConfig};
use asterism_functions::signature::{self, Carrier, Signature, SignatureConfig, Signatures};
use asterism_placement::Time;

use super::drive::World;
use super::hosts::{Arrival, Hosts, Left, PORTS, Place};
use super::plan::Plan;
use super::talks::frame;
use crate::report::Failure;
use crate::scenario::Draws;

/// Time for hosts to find each other.
const STARTING_US: u64 = 60_000;
const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
const RST_ACK: TcpFlags = TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0);

fn tcp(address: Ipv4Addr, port: u16) -> Endpoint {
    Endpoint::new(address, port, Protocol::TCP)
}

fn segment(flags: TcpFlags, sequence: u32) -> Segment {
    Segment {
        sequence,
        ..Segment::with_flags(flags)
    }
}

/// What comes, and when.
#[derive(Default)]
struct Coming {
    at: BTreeMap<(Time, u64), Arrival>,
    sent: u64,
}

impl Coming {
    fn add(&mut self, at: Time, arrival: Arrival) {
        self.sent += 1;
        self.at.insert((at, self.sent), arrival);
    }

    fn take(&mut self, now: Time, out: &mut Vec<Arrival>) {
        while let Some(first) = self.at.first_entry()
            && first.key().0 <= now
        {
            out.push(first.remove());
        }
    }
}

/// One who scans, and some who open connections one after another, to many ports, each of which answers.
pub(crate) struct Scanned {
    draws: Draws,
    blocks: bool,
    /// The scanner's next probe, and when it comes.
    probe: (u16, Time),
    every: Duration,
    /// Who scans nobody: which connection is next, and when it is asked for.
    peaceful: Vec<(u16, Time)>,
    coming: Coming,
    calm: Option<Time>,
    probes_handled: u64,
    calls: bool,
    passed_in_call: u64,
}

const SCANNER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const PEACEFUL: usize = 3;
/// A client asks again after so long.
const ASKS_AGAIN: Duration = Duration::from_millis(25);
/// Between two connections of one who scans nobody.
const BETWEEN: Duration = Duration::from_millis(20);
/// Probes that must have been handled: with room for those that only the dead host saw.
const PROBES_LEAST: u64 = 24;

impl Scanned {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut draws = super::drive::draws(plan);
        let start = |draws: &mut Draws| {
            Time::from_micros(STARTING_US) + draws.micros(0, plan.load.as_micros() as u64 / 2)
        };
        Self {
            blocks: draws.percent(50),
            probe: (0, start(&mut draws)),
            every: draws.micros(2_000, 9_000),
            peaceful: (0..PEACEFUL).map(|_| (0, start(&mut draws))).collect(),
            coming: Coming::default(),
            calm: None,
            probes_handled: 0,
            calls: false,
            passed_in_call: 0,
            draws,
        }
    }

    fn peaceful(number: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 8, 0, number as u8 + 1)
    }

    /// The destination of a connection of a host that does not scan.
    fn asked(number: usize, connection: u16) -> Endpoint {
        let address = Ipv4Addr::new(198, 51, 100, number as u8 + 1);
        tcp(address, 100 + connection)
    }

    fn arrival(&mut self, port: usize, ends: (Endpoint, Endpoint), flags: TcpFlags) -> Arrival {
        Arrival {
            port: PORTS[port],
            path: ends.0.to_bits() ^ ends.1.to_bits().rotate_left(9),
            host: None,
            frame: frame(ends, &segment(flags, 1), &[]),
        }
    }

    fn next_probe(&mut self) -> Arrival {
        let port = 1_000 + self.probe.0;
        self.probe.0 += 1;
        let ends = (
            tcp(SCANNER, 40_000),
            tcp(Ipv4Addr::new(198, 51, 100, 200), port),
        );
        self.arrival(0, ends, TcpFlags::SYN)
    }
}

impl World for Scanned {
    type Function = PortScan;

    fn function(&mut self) -> PortScan {
        PortScan::new(PortScanConfig {
            response: match self.blocks {
                true => port_scan::Response::Block { block_s: 600 },
                false => port_scan::Response::Detect,
            },
            histories_max: 1 << 8,
            alerts_max: 1 << 6,
            ..PortScanConfig::default()
        })
    }

    fn due(&mut self, now: Time, out: &mut Vec<Arrival>) {
        if !self.calls {
            if self.probe.1 <= now {
                self.probe.1 = now + self.every;
                let probe = self.next_probe();
                self.coming.add(now, probe);
            }
            for number in 0..PEACEFUL {
                let (connection, due) = self.peaceful[number];
                if due > now {
                    continue;
                }
                self.peaceful[number].1 = now + ASKS_AGAIN;
                let from = tcp(Self::peaceful(number), 30_000 + connection);
                let ends = (from, Self::asked(number, connection));
                let arrival = self.arrival(0, ends, TcpFlags::SYN);
                self.coming.add(now, arrival);
            }
        }
        self.coming.take(now, out);
    }

    fn taken(&mut self, arrival: &Arrival, _: Place, taken: bool) {
        let mut frame = arrival.frame.clone();
        let packet = Packet::parse(&mut frame).ok();
        let source = packet.and_then(|packet| packet.ipv4_source());
        self.probes_handled += u64::from(taken && source == Some(SCANNER));
    }

    fn leaves(&mut self, mut left: Left, hosts: &Hosts<PortScan>) -> Result<(), Failure> {
        let now = hosts.now();
        let Ok(packet) = Packet::parse(&mut left.frame) else {
            return Ok(());
        };
        let (Some(flow), Some(flags)) = (packet.flow4(), packet.tcp_flags()) else {
            return Ok(());
        };
        let back = (flow.destination(), flow.source());
        if flow.source == SCANNER {
            self.passed_in_call += u64::from(self.calls);
            // Some ports refuse, others keep silent.
            if !self.calls && flow.destination_port.is_multiple_of(2) {
                let arrival = self.arrival(1, back, RST_ACK);
                let takes = self.draws.micros(100, 3_000);
                self.coming.add(now + takes, arrival);
            }
            return Ok(());
        }
        if flags == TcpFlags::SYN {
            let arrival = self.arrival(1, back, SYN_ACK);
            let takes = self.draws.micros(100, 3_000);
            self.coming.add(now + takes, arrival);
        } else if flags == SYN_ACK {
            let number = usize::from(flow.destination.octets()[3]) - 1;
            let (connection, due) = &mut self.peaceful[number];
            if flow.destination_port == 30_000 + *connection {
                *connection += 1;
                *due = now + BETWEEN;
                let arrival = self.arrival(0, back, TcpFlags::ACK);
                self.coming.add(now, arrival);
            }
        }
        Ok(())
    }

    fn died(&mut self, _: usize, _: Time, _: &Hosts<PortScan>) {}

    fn calms(&mut self, now: Time) {
        self.calm = Some(now);
    }

    fn unfinished(&self) -> Option<String> {
        let handled = self.probes_handled;
        let connections = self
            .peaceful
            .iter()
            .map(|(connection, _)| *connection)
            .min();
        (handled < PROBES_LEAST || connections < Some(9))
            .then(|| format!("{handled} probes were handled, {:?} made", self.peaceful))
    }

    fn settles(&mut self, _: &Hosts<PortScan>) -> Result<(), Failure> {
        self.coming.at.clear();
        self.calls = true;
        Ok(())
    }

    fn roll_call(&mut self, host: usize, _: usize, _: Time, out: &mut Vec<Arrival>) {
        let probe = self.next_probe();
        out.push(Arrival {
            host: Some(host),
            ..probe
        });
    }

    fn called(&mut self, host: usize) -> Result<(), Failure> {
        if self.blocks && self.passed_in_call > 0 {
            return Err(Failure::new(
                "who is found is blocked by all",
                format!("m{host} let a probe pass"),
            ));
        }
        Ok(())
    }

    fn judge(&mut self, hosts: &Hosts<PortScan>) -> Result<(), Failure> {
        for (at, instance) in hosts.instances() {
            let alerts = instance.state().alerts();
            let is_found = |host: Ipv4Addr| {
                let host = host.into();
                alerts.iter().any(|(subject, _)| subject.source == host)
            };
            if !is_found(SCANNER) {
                return Err(Failure::new(
                    "who scans is found",
                    format!("{at:?} knows nothing of {} probes", self.probes_handled),
                ));
            }
            if let Some(number) = (0..PEACEFUL).find(|number| is_found(Self::peaceful(*number))) {
                return Err(Failure::new(
                    "who does not scan is not found",
                    format!(
                        "{at:?} has an alert of {}; the longest lag was {:?}",
                        Self::peaceful(number),
                        hosts.lag_most
                    ),
                ));
            }
        }
        Ok(())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let connections = self
            .peaceful
            .iter()
            .map(|(connection, _)| u64::from(*connection));
        BTreeMap::from([
            ("probes", self.probes_handled),
            ("connections of who scans nobody", connections.sum()),
        ])
    }
}

const SIGNATURE: &[u8] = b"GET /asterism-needle?x=1";
const SIGNATURE_ID: u32 = 7;
/// Another list has this one alone. A stream with a part of the other holds all of it but its first byte, and of each list the whole
/// signature is the eighth of the ends of its signatures, in their order: anyone who read pieces by the other list would find it.
const OTHER: &[u8] = b"FET /asterism-needle?zzz..";
const OTHER_ID: u32 = 8;
/// Hosts take up another list within this time of each other, in microseconds, and go back after so long.
const SPREAD_US: u64 = 10_000;
const OTHER_FOR_US: (u64, u64) = (20_000, 50_000);
const STREAMS: u16 = 10;

/// A stream of segments, in one of which, or in several together, the signature is; or a part of it.
struct Stream {
    ends: (Endpoint, Endpoint),
    is_bad: bool,
    segments: Vec<Sent>,
    /// Where the next one would begin.
    end: u32,
    /// Only a dead host saw a part.
    lost: bool,
    /// A part came to a host before it was back to the list that it had.
    over_a_change: bool,
}

/// When each host takes up the other list, and when it goes back.
struct Lists {
    own: Arc<Signatures>,
    other: Arc<Signatures>,
    /// By host, and whether it is done.
    turns: Vec<[(Time, bool); 2]>,
}

/// A segment: where it begins, its bytes, when it is due, and who took it, when.
struct Sent {
    sequence: u32,
    bytes: Vec<u8>,
    due: Time,
    taken: Option<(Place, Time)>,
}

/// Streams with parts of a signature.
pub(crate) struct Streamed {
    draws: Draws,
    blocks: bool,
    streams: Vec<Stream>,
    now: Time,
    calls: bool,
    /// Streams of which a segment passed in the roll call.
    passed: Vec<u16>,
    /// In half of the seeds.
    lists: Option<Lists>,
    changes: u64,
}

impl Streamed {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut draws = super::drive::draws(plan);
        let blocks = draws.percent(50);
        let load = plan.load.as_micros() as u64;
        let streams = (0..STREAMS).map(|number| {
            let is_bad = number % 2 == 0;
            let from = tcp(Ipv4Addr::new(10, 7, 0, number as u8 + 1), 20_000);
            let to = tcp(Ipv4Addr::new(198, 51, 100, 1), 80);
            let parts = draws.within(1, 3) as usize;
            // Parts of four bytes at least.
            let (first, second) = match parts {
                1 => (SIGNATURE.len(), SIGNATURE.len()),
                2 => (draws.within(4, 20) as usize, SIGNATURE.len()),
                _ => {
                    let first = draws.within(4, 10) as usize;
                    (first, draws.within(first as u64 + 4, 20) as usize)
                }
            };
            let mut whole = SIGNATURE.to_vec();
            if !is_bad {
                // All but its last bytes.
                whole.truncate(SIGNATURE.len() - 3);
                whole.extend(b"zzz");
            }
            let pad = |draws: &mut Draws| vec![b'.'; draws.within(3, 30) as usize];
            let mut pieces = vec![pad(&mut draws)];
            pieces[0].extend(&whole[..first]);
            if first < second {
                pieces.push(whole[first..second].to_vec());
            }
            if second < SIGNATURE.len() {
                pieces.push(whole[second..].to_vec());
            }
            let last = pieces.len() - 1;
            pieces[last].extend(pad(&mut draws));
            let mut sequence = draws.word() as u32;
            // Some begin early; their parts come in any order.
            let begins = draws.within(0, load);
            let mut segments = Vec::new();
            for bytes in pieces {
                let due = Time::from_micros(STARTING_US + begins) + draws.micros(0, 20_000);
                let length = bytes.len() as u32;
                segments.push(Sent {
                    sequence,
                    bytes,
                    due,
                    taken: None,
                });
                sequence = sequence.wrapping_add(length);
            }
            Stream {
                ends: (from, to),
                is_bad,
                segments,
                end: sequence,
                lost: false,
                over_a_change: false,
            }
        });
        let streams: Vec<Stream> = streams.collect();
        let mut own = Draws::new(plan.seed, 44);
        let lists = own.percent(50).then(|| {
            let list = |bytes, id| Arc::new(signatures(blocks, bytes, id));
            Lists {
                own: list(SIGNATURE, SIGNATURE_ID),
                other: list(OTHER, OTHER_ID),
                turns: turns(&streams, plan.hosts, &mut own),
            }
        });
        Self {
            draws,
            blocks,
            streams,
            now: Time::ZERO,
            calls: false,
            passed: Vec::new(),
            lists,
            changes: 0,
        }
    }
}

/// In the middle of a stream with a part of the signature, if there is one in several segments, hosts take up the other list, each at a
/// moment of its own, and go back later.
fn turns(streams: &[Stream], hosts: usize, draws: &mut Draws) -> Vec<[(Time, bool); 2]> {
    let split: Vec<&Stream> = streams
        .iter()
        .filter(|stream| !stream.is_bad && stream.segments.len() > 1)
        .collect();
    let begun = match split.as_slice() {
        [] => Time::from_micros(STARTING_US),
        all => {
            let dues = all[draws.within(0, all.len() as u64 - 1) as usize]
                .segments
                .iter()
                .map(|sent| sent.due);
            let (first, last) = (dues.clone().min(), dues.max());
            let middle = |first: Time, last: Time| first + last.since(first) / 2;
            first
                .zip(last)
                .map_or(Time::ZERO, |(first, last)| middle(first, last))
        }
    };
    let back = begun + draws.micros(OTHER_FOR_US.0, OTHER_FOR_US.1);
    let mut turn = || {
        let mut at = |from: Time| (from + draws.micros(0, SPREAD_US), false);
        [at(begun), at(back)]
    };
    (0..hosts).map(|_| turn()).collect()
}

fn signatures(blocks: bool, bytes: &[u8], id: u32) -> Signatures {
    let signature = Signature {
        id,
        message: "a needle".to_owned(),
        bytes: bytes.to_vec(),
        carrier: Carrier::Any,
        ports: Vec::new(),
    };
    Signatures::new(SignatureConfig {
        response: match blocks {
            true => signature::Response::BlockConnection { block_s: 600 },
            false => signature::Response::Detect,
        },
        pieces_max: 1 << 8,
        alerts_max: 1 << 6,
        ..SignatureConfig::new(vec![signature])
    })
    .expect("a sound configuration")
}

impl World for Streamed {
    type Function = Signatures;

    fn function(&mut self) -> Signatures {
        signatures(self.blocks, SIGNATURE, SIGNATURE_ID)
    }

    fn reloads(&mut self, now: Time) -> Vec<(usize, Arc<Signatures>)> {
        let Some(lists) = &mut self.lists else {
            return Vec::new();
        };
        let mut due = Vec::new();
        for (host, turns) in lists.turns.iter_mut().enumerate() {
            for ((at, done), list) in turns.iter_mut().zip([&lists.other, &lists.own]) {
                if !*done && now >= *at {
                    *done = true;
                    due.push((host, list.clone()));
                }
            }
        }
        self.changes += due.len() as u64;
        due
    }

    fn due(&mut self, now: Time, out: &mut Vec<Arrival>) {
        self.now = now;
        if self.calls {
            return;
        }
        for (number, stream) in self.streams.iter_mut().enumerate() {
            for sent in &mut stream.segments {
                if sent.taken.is_some() || sent.due > now {
                    continue;
                }
                sent.due = now + ASKS_AGAIN;
                let segment = segment(TcpFlags::ACK, sent.sequence);
                let arrival = Arrival {
                    port: PORTS[0],
                    // Each segment may take a way of its own.
                    path: self.draws.word() ^ number as u64,
                    host: None,
                    frame: frame(stream.ends, &segment, &sent.bytes),
                };
                out.push(arrival.clone());
                if self.draws.percent(10) {
                    out.push(arrival);
                }
            }
        }
    }

    fn taken(&mut self, arrival: &Arrival, at: Place, taken: bool) {
        let mut frame = arrival.frame.clone();
        let Ok(packet) = Packet::parse(&mut frame) else {
            return;
        };
        let (Some(source), Some(sequence)) = (packet.ipv4_source(), packet.tcp_sequence()) else {
            return;
        };
        let stream = &mut self.streams[usize::from(source.octets()[3]) - 1];
        let mut segments = stream.segments.iter_mut();
        if taken && let Some(sent) = segments.find(|sent| sent.sequence == sequence) {
            sent.taken.get_or_insert((at, self.now));
        }
        let is_back = |lists: &Lists| lists.turns[at.host][1].1;
        stream.over_a_change |= !self.lists.as_ref().is_none_or(is_back);
    }

    fn leaves(&mut self, mut left: Left, _: &Hosts<Signatures>) -> Result<(), Failure> {
        let packet = Packet::parse(&mut left.frame).ok();
        if self.calls
            && let Some(source) = packet.and_then(|packet| packet.ipv4_source())
        {
            let stream = u16::from(source.octets()[3]) - 1;
            self.passed.push(stream);
        }
        Ok(())
    }

    fn died(&mut self, victim: usize, reported: Time, _: &Hosts<Signatures>) {
        for stream in &mut self.streams {
            let mut segments = stream.segments.iter();
            stream.lost |= segments.any(|sent| {
                sent.taken
                    .is_some_and(|(by, at)| by.host == victim && at >= reported)
            });
        }
    }

    fn unfinished(&self) -> Option<String> {
        let is_back = |lists: &Lists| lists.turns.iter().all(|turns| turns[1].1);
        if !self.lists.as_ref().is_none_or(is_back) {
            return Some("hosts still have the other list".to_owned());
        }
        let mut all = self.streams.iter().enumerate();
        let waits = |stream: &Stream| stream.segments.iter().any(|sent| sent.taken.is_none());
        let (number, _) = all.find(|(_, stream)| waits(stream))?;
        Some(format!("not all of stream {number} was taken"))
    }

    fn settles(&mut self, _: &Hosts<Signatures>) -> Result<(), Failure> {
        self.calls = true;
        Ok(())
    }

    /// Of each stream what follows: who knows all parts finds the signature now at the latest.
    fn roll_call(&mut self, host: usize, _: usize, _: Time, out: &mut Vec<Arrival>) {
        self.passed.clear();
        for stream in &self.streams {
            let segment = segment(TcpFlags::ACK, stream.end);
            out.push(Arrival {
                port: PORTS[0],
                path: 0,
                host: Some(host),
                frame: frame(stream.ends, &segment, b"........"),
            });
        }
    }

    fn called(&mut self, host: usize) -> Result<(), Failure> {
        for (number, stream) in self.streams.iter().enumerate() {
            let has_passed = self.passed.contains(&(number as u16));
            if stream.lost || stream.is_bad && stream.over_a_change {
                continue;
            }
            if has_passed == (self.blocks && stream.is_bad) {
                return Err(Failure::new(
                    "what is found is blocked by all, and nothing else is",
                    format!("m{host} let stream {number} pass: {has_passed}"),
                ));
            }
        }
        Ok(())
    }

    fn judge(&mut self, hosts: &Hosts<Signatures>) -> Result<(), Failure> {
        for (at, instance) in hosts.instances() {
            let alerts = instance.state().alerts();
            let of = |stream: &Stream| {
                let source = stream.ends.0.address.into();
                let mut of = alerts.iter();
                of.any(|(subject, _)| subject.stream.source.0 == source)
            };
            for (number, stream) in self.streams.iter().enumerate() {
                let is_found = of(stream);
                if is_found && !stream.is_bad {
                    return Err(Failure::new(
                        "a part of a signature is none",
                        format!("{at:?} has an alert of stream {number}"),
                    ));
                }
                if !is_found && stream.is_bad && !stream.lost && !stream.over_a_change {
                    return Err(Failure::new(
                        "a split signature is found",
                        format!("{at:?} has no alert of stream {number}"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let of = |wanted: fn(&&Stream) -> bool| self.streams.iter().filter(wanted).count() as u64;
        BTreeMap::from([
            ("signatures", of(|stream| stream.is_bad && !stream.lost)),
            ("streams lost with their host", of(|stream| stream.lost)),
            ("streams with a part alone", of(|stream| !stream.is_bad)),
            ("lists of signatures changed", self.changes),
            (
                "signatures over a change of lists",
                of(|stream| stream.is_bad && stream.over_a_change),
            ),
        ])
    }
}
