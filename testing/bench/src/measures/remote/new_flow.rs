//! `remote.new-flow`: commands that Redis counts (`INFO commandstats`) while flows of a NAT begin and end, for each flow.
//!
//! A TCP connection is its handshake, a segment with data each way, and both FINs: eight packets, each of which comes when the one before has
//! left. A UDP flow is a question and its answer. Either has its own sessions in the store, and ends there by its keys' expiry, which takes no command.
//! The instance keeps answers, and has a filter. Many flows are under way at a time, so that reads and commits go together, or one alone.
//!
//! `PING` and `ROLE` are left out: they come with time, not with flows.

use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, channel};

use asterism_engine::Instance;
use asterism_function::build::{self, Header4, Segment};
use asterism_function::{PortNumber, TcpFlags};
use asterism_functions::nat::Nat;
use asterism_lab::outside;
use asterism_lab::redis::Redis;
use asterism_placement::Time;

use super::{DESTINATION, Home, NAT, PATIENCE_NS, REMOTE, TOGETHER, instance};
use crate::contract::{Failure, Outcome};
use crate::cores::stay_on_core;
use crate::measures::Context;
use crate::measures::nat_bench::nat;
use crate::timing::wall_ns;
use crate::traffic::frames::GATEWAY_MAC;

/// Flows of each round, and of one in which each is alone.
const FLOWS: usize = 4_000;
const FLOWS_FULL: usize = 20_000;
const FLOWS_SINGLE: usize = 200;
/// Sessions of all rounds.
const SESSIONS: u32 = 2 * (FLOWS_FULL + FLOWS_SINGLE) as u32;
/// Flows of one inside address.
const FLOWS_OF_ADDRESS: usize = 1_000;
/// Where a frame's source stands.
const SOURCE: usize = 26;
/// Where its source's port stands.
const SOURCE_PORT: usize = 34;
const SERVER_PORT: u16 = 443;
const FRAME_BYTES_MAX: usize = 128;
/// Commands that come with time.
const PERIODIC: &[&str] = &["ping", "role", "info", "config|resetstat"];

/// A packet of a flow.
#[derive(Clone, Copy)]
struct Step {
    from_inside: bool,
    /// None: a datagram.
    segment: Option<Segment>,
    data: &'static [u8],
}

const fn segment(flags: u8, sequence: u32, acknowledgement: u32) -> Option<Segment> {
    Some(Segment {
        flags: TcpFlags(flags),
        sequence,
        acknowledgement,
        window: 65_535,
    })
}

const fn step(from_inside: bool, segment: Option<Segment>, data: &'static [u8]) -> Step {
    Step {
        from_inside,
        segment,
        data,
    }
}

const SYN: u8 = TcpFlags::SYN.0;
const FIN: u8 = TcpFlags::FIN.0;
const ACK: u8 = TcpFlags::ACK.0;

const TCP: &[Step] = &[
    step(true, segment(SYN, 100, 0), b""),
    step(false, segment(SYN | ACK, 500, 101), b""),
    step(true, segment(ACK, 101, 501), b""),
    step(true, segment(ACK, 101, 501), b"what"),
    step(false, segment(ACK, 501, 105), b"that"),
    step(true, segment(FIN | ACK, 105, 505), b""),
    step(false, segment(FIN | ACK, 505, 106), b""),
    step(true, segment(ACK, 106, 506), b""),
];
const UDP: &[Step] = &[step(true, None, b"what"), step(false, None, b"that")];

/// A packet that left: of which flow, and by an outside port the endpoint that the NAT gave it.
struct Left {
    flow: usize,
    outside: Option<(Ipv4Addr, u16)>,
}

struct Bench {
    redis: Redis,
    instance: Instance<Nat>,
    left: Receiver<Left>,
    begun_ns: u64,
    /// Flows of earlier rounds.
    before: usize,
}

/// Commands a flow.
struct Counted {
    commands: f64,
    by_name: Vec<(String, f64)>,
}

pub(super) fn measure(context: &Context) -> Result<Outcome, Failure> {
    let flows = if context.full { FLOWS_FULL } else { FLOWS };
    let mut bench = Bench::start()?;
    let mut outcome = Outcome::default();
    let mut value = 0.0;
    for (name, script) in [("tcp", TCP), ("udp", UDP)] {
        for (rate, flows, together) in [
            ("together", flows, TOGETHER as usize),
            ("alone", FLOWS_SINGLE, 1),
        ] {
            let counted = bench.count(script, flows, together)?;
            context.say(&format!(
                "{name} {rate}: {:.2} commands a flow: {}",
                counted.commands,
                counted.in_words()
            ));
            if (name, rate) == ("tcp", "together") {
                value = counted.commands;
                for (command, count) in &counted.by_name {
                    outcome = outcome.variant(format!("{name}-{rate}-{command}"), *count);
                }
            }
            outcome = outcome.variant(format!("{name}-{rate}"), counted.commands);
        }
    }
    Ok(outcome.with_value(value, 1))
}

impl Counted {
    fn in_words(&self) -> String {
        let words = self.by_name.iter();
        let words: Vec<String> = words
            .map(|(name, count)| format!("{name} {count:.2}"))
            .collect();
        words.join(", ")
    }
}

fn four(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    u32::from_be_bytes(four.copied().unwrap_or_default())
}

impl Bench {
    fn start() -> Result<Self, Failure> {
        let redis = Redis::start()
            .ok_or_else(|| Failure::Absent("redis-server is not installed".into()))?;
        stay_on_core(0);
        let (to, left) = channel();
        let to_outside = to.clone();
        // Nobody listens in the end.
        let inside = outside::port(move |bytes: &[u8]| {
            let flow = four(bytes, SOURCE).wrapping_sub(REMOTE) as usize;
            let _ = to.send(Left {
                flow,
                outside: None,
            });
        });
        let outside = outside::port(move |bytes: &[u8]| {
            let flow = four(bytes, DESTINATION).wrapping_sub(REMOTE) as usize;
            let port = (four(bytes, SOURCE_PORT) >> 16) as u16;
            let outside = Some((four(bytes, SOURCE).into(), port));
            let _ = to_outside.send(Left { flow, outside });
        });
        let ports = vec![inside, outside];
        let instance = instance(nat(SESSIONS, 1), NAT, Home::Cached, &redis, ports)?;
        Ok(Self {
            redis,
            instance,
            left,
            begun_ns: wall_ns(),
            before: 0,
        })
    }

    /// Has so many flows begin and end, so many of them at a time.
    fn count(
        &mut self,
        script: &[Step],
        flows: usize,
        together: usize,
    ) -> Result<Counted, Failure> {
        self.asked(&["CONFIG", "RESETSTAT"])?;
        self.run(script, flows, together)?;
        let info = self.asked(&["INFO", "commandstats"])?;
        let by_name: Vec<(String, f64)> = calls(&info)
            .map(|(name, calls)| (name.to_owned(), calls as f64 / flows as f64))
            .collect();
        Ok(Counted {
            commands: by_name.iter().map(|(_, count)| count).sum(),
            by_name,
        })
    }

    fn asked(&self, words: &[&str]) -> Result<String, Failure> {
        let answer = self.redis.command(words);
        answer.map_err(|error| Failure::Unsound(format!("redis-server: {error}")))
    }

    fn run(&mut self, script: &[Step], flows: usize, together: usize) -> Result<(), Failure> {
        let first = self.before;
        self.before += flows;
        let begun = wall_ns();
        // The step that each flow has come to, and the endpoint that the NAT gave it.
        let mut at = vec![0; flows];
        let mut given = vec![(Ipv4Addr::UNSPECIFIED, 0); flows];
        let (mut next, mut ended) = (0, 0);
        let mut due: Vec<usize> = Vec::new();
        while ended < flows {
            while next < flows && next - ended < together {
                due.push(next);
                next += 1;
            }
            let now = Time::from_micros(1 + (wall_ns() - self.begun_ns) / 1_000);
            due.retain(|flow| {
                let step = script[at[*flow]];
                let port = PortNumber(u16::from(!step.from_inside));
                let (frame, length) = frame(first + flow, &step, given[*flow]);
                !self.instance.inject(now, port, &frame[..length])
            });
            self.instance.turn(now);
            for left in self.left.try_iter() {
                let Some(flow) = left.flow.checked_sub(first).filter(|flow| *flow < flows) else {
                    return Err(Failure::Unsound("a packet of no flow left".into()));
                };
                given[flow] = left.outside.unwrap_or(given[flow]);
                at[flow] += 1;
                match at[flow] == script.len() {
                    true => ended += 1,
                    false => due.push(flow),
                }
            }
            if wall_ns() - begun > PATIENCE_NS {
                let drops: Vec<_> = self.instance.tally().drops().collect();
                return Err(Failure::Unsound(format!(
                    "{ended} of {flows} flows came to their end: {drops:?}"
                )));
            }
        }
        Ok(())
    }
}

/// A flow's packet.
fn frame(flow: usize, step: &Step, outside: (Ipv4Addr, u16)) -> ([u8; FRAME_BYTES_MAX], usize) {
    let address = 0x0A00_0001 + (flow / FLOWS_OF_ADDRESS) as u32;
    let inside = (
        Ipv4Addr::from(address),
        2_000 + (flow % FLOWS_OF_ADDRESS) as u16,
    );
    let remote = (Ipv4Addr::from(REMOTE + flow as u32), SERVER_PORT);
    let (from, to) = match step.from_inside {
        true => (inside, remote),
        false => (remote, outside),
    };
    let mut header = Header4::between(from.0, to.0);
    header.ethernet_destination = asterism_function::MacAddress(GATEWAY_MAC);
    let mut bytes = [0; FRAME_BYTES_MAX];
    let length = match &step.segment {
        Some(segment) => build::tcp4(&header, from.1, to.1, segment, step.data, &mut bytes),
        None => build::udp4(&header, from.1, to.1, step.data, &mut bytes),
    };
    (bytes, length.unwrap_or_default())
}

/// How often each command was called, of those that come with flows.
fn calls(info: &str) -> impl Iterator<Item = (&str, u64)> {
    let line = |line| {
        let line: &str = line;
        let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let calls = figures.strip_prefix("calls=")?.split(',').next()?;
        Some((name, calls.parse().ok()?))
    };
    let calls = info.lines().filter_map(line);
    calls.filter(|(name, _)| !PERIODIC.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_that_come_with_flows() {
        let info = "# Commandstats\r\ncmdstat_mget:calls=7,usec=20,usec_per_call=2.86\r\ncmdstat_ping:calls=3,usec=1\r\ncmdstat_client|tracking:calls=1,usec=4\r\n";
        let counted: Vec<_> = calls(info).collect();
        assert_eq!(counted, [("mget", 7), ("client|tracking", 1)]);
    }
}
