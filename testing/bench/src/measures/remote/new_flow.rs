//! `remote.new-flow`: commands that Redis counts (`INFO commandstats`) while flows of a NAT begin and end, for each flow.
//!
//! A TCP connection is its handshake, a segment with data each way, and both FINs: eight packets, each of which comes when the one before has
//! left. A UDP flow is a question and its answer. Each has sessions and mappings of its own in the store. When all packets have left, time advances
//! beyond every idle time, and the instance's client commits the ends of these entries. Commands are counted up to the last packet (`…-begin`) and from
//! then on until the store has no entry any more (`…-end`); the value is their sum.
//!
//! The instance keeps answers, and has a filter. Many flows are under way at a time, so that reads and commits go together, and many entries end
//! together; or one flow begins and ends alone before the next one begins. Then each look for entries that have ended is a flow's own.
//!
//! `PING` and `ROLE` are left out: they come with time, not with flows. So are the measure's own commands.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, channel};

use asterism_engine::Instance;
use asterism_function::build::{self, Header4, Segment};
use asterism_function::{PortNumber, TcpFlags, objects_of};
use asterism_functions::nat::Nat;
use asterism_lab::outside;
use asterism_lab::redis::Redis;
use asterism_placement::Time;

use super::wire::Asking;
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
/// Longer than any entry is kept that nobody uses: the longest idle time is that of a connection with data both ways, 2 hours and 4 minutes.
const BEYOND_IDLE_NS: u64 = 8_000 * 1_000_000_000;
/// Commits of flows whose last packet has left are made within this time.
const SETTLED_NS: u64 = 3_000_000;
/// Between two questions how many entries are left.
const ASK_NS: u64 = 1_000_000;
/// Flows of one inside address.
const FLOWS_OF_ADDRESS: usize = 1_000;
/// Where a frame's source stands.
const SOURCE: usize = 26;
/// Where its source's port stands.
const SOURCE_PORT: usize = 34;
const SERVER_PORT: u16 = 443;
const FRAME_BYTES_MAX: usize = 128;
/// Commands that come with time, and the measure's own.
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
    /// By how much time was advanced.
    leapt_ns: u64,
    /// Numbers of the objects whose entries are in the store.
    objects: Vec<usize>,
    /// Flows of earlier rounds.
    before: usize,
}

/// Commands by their names.
type Commands = BTreeMap<String, u64>;

/// Commands of some flows: until their last packets, and for their ends.
#[derive(Default)]
struct Counted {
    flows: u64,
    begin: Commands,
    end: Commands,
}

pub(super) fn measure(context: &Context) -> Result<Outcome, Failure> {
    let flows = if context.full { FLOWS_FULL } else { FLOWS };
    let mut bench = Bench::start()?;
    let mut outcome = Outcome::default();
    let mut value = 0.0;
    for (name, script) in [("tcp", TCP), ("udp", UDP)] {
        for (rate, rounds, flows, together) in [
            ("together", 1, flows, TOGETHER as usize),
            ("alone", FLOWS_SINGLE, 1, 1),
        ] {
            let mut counted = Counted::default();
            for _ in 0..rounds {
                bench.count(script, flows, together, &mut counted)?;
            }
            let (begin, end) = (
                counted.of_flow(&counted.begin),
                counted.of_flow(&counted.end),
            );
            let name = format!("{name}-{rate}");
            context.say(&format!(
                "{name}: {:.2} commands a flow: {begin:.2} until its last packet ({}), {end:.2} for its end ({})",
                begin + end,
                counted.in_words(&counted.begin),
                counted.in_words(&counted.end),
            ));
            if name == "tcp-together" {
                value = begin + end;
                for (part, commands) in [("begin", &counted.begin), ("end", &counted.end)] {
                    for (command, count) in commands {
                        let count = *count as f64 / counted.flows as f64;
                        outcome = outcome.variant(format!("{name}-{part}-{command}"), count);
                    }
                }
            }
            outcome = outcome
                .variant(format!("{name}-begin"), begin)
                .variant(format!("{name}-end"), end)
                .variant(name, begin + end);
        }
    }
    Ok(outcome
        .variant("flows-under-way", TOGETHER as f64)
        .with_value(value, 1))
}

impl Counted {
    fn of_flow(&self, commands: &Commands) -> f64 {
        commands.values().sum::<u64>() as f64 / self.flows as f64
    }

    fn in_words(&self, commands: &Commands) -> String {
        let words = commands.iter().map(|(name, count)| {
            let count = *count as f64 / self.flows as f64;
            format!("{name} {count:.2}")
        });
        words.collect::<Vec<_>>().join(", ")
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
        let function = nat(SESSIONS, 1);
        let objects = objects_of(&function);
        let objects = objects.iter().enumerate();
        let objects = objects.filter(|(_, name)| NAT.contains(name) && **name != "ports");
        let objects = objects.map(|(number, _)| number).collect();
        let instance = instance(function, NAT, Home::Cached, &redis, ports, Asking::Batched)?;
        Ok(Self {
            redis,
            instance,
            left,
            begun_ns: wall_ns(),
            leapt_ns: 0,
            objects,
            before: 0,
        })
    }

    /// Has so many flows begin, so many of them at a time, and end.
    fn count(
        &mut self,
        script: &[Step],
        flows: usize,
        together: usize,
        counted: &mut Counted,
    ) -> Result<(), Failure> {
        counted.flows += flows as u64;
        self.asked(&["CONFIG", "RESETSTAT"])?;
        self.run(script, flows, together)?;
        self.settle()?;
        let begun = self.commands(0)?;
        let entries = self.entries()?;
        if entries < flows as u64 {
            let why = format!("of {flows} flows the store has {entries} entries");
            return Err(Failure::Unsound(why));
        }
        self.asked(&["CONFIG", "RESETSTAT"])?;
        let own = self.end()?;
        self.settle()?;
        let ended = self.commands(own)?;
        for (all, more) in [(&mut counted.begin, begun), (&mut counted.end, ended)] {
            for (name, calls) in more {
                *all.entry(name).or_default() += calls;
            }
        }
        Ok(())
    }

    /// Commands since they were last reset, but for so many of `ZCARD`.
    fn commands(&self, own: u64) -> Result<Commands, Failure> {
        let info = self.asked(&["INFO", "commandstats"])?;
        let mut commands: Commands = calls(&info)
            .map(|(name, calls)| (name.to_owned(), calls))
            .collect();
        if let Some(count) = commands.get_mut("zcard") {
            *count = count.saturating_sub(own);
        }
        commands.retain(|_, count| *count > 0);
        Ok(commands)
    }

    /// Entries of all objects in the store; each object is a command.
    fn entries(&self) -> Result<u64, Failure> {
        let mut entries = 0;
        for object in &self.objects {
            let asked = self.asked(&["ZCARD", &format!("{{bench}}{object}:ends")])?;
            let count: Result<u64, _> = asked.trim().parse();
            entries += count.map_err(|error| Failure::Unsound(format!("{asked}: {error}")))?;
        }
        Ok(entries)
    }

    fn now(&self) -> Time {
        Time::from_micros(1 + (wall_ns() - self.begun_ns + self.leapt_ns) / 1_000)
    }

    /// Waits until what was begun is done.
    fn settle(&mut self) -> Result<(), Failure> {
        let begun = wall_ns();
        while wall_ns() - begun < SETTLED_NS || self.instance.tally().parked > 0 {
            let now = self.now();
            self.instance.turn(now);
            if wall_ns() - begun > PATIENCE_NS {
                return Err(Failure::Unsound("packets wait for the store".into()));
            }
        }
        Ok(())
    }

    /// Advances time beyond all idle times until the store has no entry any more; with how many commands that was found out.
    fn end(&mut self) -> Result<u64, Failure> {
        self.leapt_ns += BEYOND_IDLE_NS;
        let (begun, mut own, mut asked_ns) = (wall_ns(), 0, 0);
        loop {
            let now = self.now();
            self.instance.turn(now);
            if wall_ns() - asked_ns < ASK_NS {
                continue;
            }
            let left = self.entries()?;
            own += self.objects.len() as u64;
            if left == 0 {
                return Ok(own);
            }
            asked_ns = wall_ns();
            if asked_ns - begun > PATIENCE_NS {
                let why = format!("{left} entries have not ended though their time is over");
                return Err(Failure::Unsound(why));
            }
        }
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
            let now = self.now();
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
pub(super) fn calls(info: &str) -> impl Iterator<Item = (&str, u64)> {
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
