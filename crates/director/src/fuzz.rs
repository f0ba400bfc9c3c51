//! What the fuzz target runs: arbitrary bytes are a program of frames, commands and time for a director on ports in memory. After
//! each step every frame is counted once, every buffer is where the counts say, and every frame that left for a host is one that
//! came. A broken law is a panic.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{Port, PortStatistics};
use asterism_packet::build::{self, Header4, Segment};
use asterism_packet::{Flow4, FlowKey, MacAddress, Packet, Protocol, TcpFlags};
use asterism_placement::Time;

use crate::hosts::{Host, HostLink};
use crate::pair::PairConfig;
use crate::table::{BucketSpace, Share, Slot, Table};
use crate::{
    ArmConfig, Command, Control, Director, DirectorConfig, DirectorStatistics, Fragments, Suspend,
};

/// Steps of a program at most.
const STEPS_MAX: usize = 400;
/// Bytes of a frame at most; more than a buffer has are cut by the port.
const FRAME_BYTES_MAX: usize = 2_000;
/// Frames of the director's pool.
const FRAMES: usize = 128;
/// Turns that one step takes at most.
const TURNS_MAX: usize = 4_000;
/// Hosts that commands speak of.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Longer than any suspension lasts.
const SUSPENSIONS_END: Duration = Duration::from_secs(10);
const ARM_MACS: [MacAddress; 2] = [
    MacAddress([2, 0xd1, 0, 0, 0, 1]),
    MacAddress([2, 0xd1, 0, 0, 0, 2]),
];
const CLIENT: MacAddress = MacAddress([2, 0xc1, 0, 0, 0, 1]);
const SHARED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Runs a program; see [`replay`].
pub fn fuzz_director(data: &[u8]) {
    let _ = replay(data);
}

/// Runs a program, and returns what the director counted until its end. `None`: there was no byte to begin with, or no memory.
pub fn replay(data: &[u8]) -> Option<DirectorStatistics> {
    let mut input = Input(data);
    let mut trial = Trial::new(input.byte()?)?;
    for _ in 0..STEPS_MAX {
        let Some(operation) = input.byte() else {
            break;
        };
        trial.step(operation, &mut input)?;
        trial.check();
    }
    Some(trial.end())
}

/// The bytes that are left of a program. What is absent is zero.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }
}

/// A port whose frames come from the trial and go to it.
struct TrialPort {
    arriving: Receiver<Vec<u8>>,
    sent: Sender<Vec<u8>>,
    statistics: PortStatistics,
}

impl Port for TrialPort {
    fn name(&self) -> &str {
        "trial"
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        while burst.room() > 0
            && pool.available() > 0
            && let Ok(bytes) = self.arriving.try_recv()
        {
            // A frame that is too long for a buffer is one that never came.
            if let Some(frame) = pool.allocate_copy(&bytes)
                && let Err(frame) = burst.push(frame)
            {
                pool.release(frame);
            }
        }
        burst.len() - before
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        for frame in burst.iter() {
            // A trial that has ended reads nothing.
            let _ = self.sent.send(pool.bytes(frame).to_vec());
        }
        pool.release_all(burst);
        count
    }

    fn statistics(&self) -> PortStatistics {
        self.statistics
    }
}

/// A director, and what is known of it.
struct Trial {
    director: Director,
    control: Control,
    feeds: Vec<Sender<Vec<u8>>>,
    sent: Vec<Receiver<Vec<u8>>>,
    space: BucketSpace,
    now: Time,
    /// Frames that were fed and have not left, by what no director changes: all but the Ethernet addresses.
    fed: BTreeMap<Vec<u8>, u64>,
    frames_fed: u64,
    frames_sent: u64,
    /// Of them, those that had been fed.
    frames_passed: u64,
    /// The frame that left last.
    last: Vec<u8>,
    commands: u64,
    answers: u64,
}

impl Trial {
    fn new(kind: u8) -> Option<Trial> {
        let space = BucketSpace::new(256, 9)?;
        let shared = vec![IpAddr::from(SHARED)];
        let mut arms = vec![ArmConfig::one_armed(ARM_MACS[0], shared)];
        if kind & 1 != 0 {
            let other = ArmConfig::one_armed(ARM_MACS[1], Vec::new());
            arms[0].sends_to = Some(1);
            arms.push(ArmConfig {
                sends_to: (kind & 2 != 0).then_some(0),
                ..other
            });
        }
        let count = arms.len();
        let mut config = DirectorConfig::new(arms, space);
        config.exceptions_max = 8;
        config.suspended.packets_max = 40;
        config.suspended.bytes_max = if kind & 16 != 0 { 512 } else { 8_192 };
        if kind & 4 != 0 {
            config.fragments = Fragments::WithFirst;
        }
        if kind & 8 != 0 {
            config.pair = Some((0, PairConfig::new(1, [7; 32], 5, kind >> 4)));
        }
        let (mut ports, mut feeds, mut sent) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let (feed, arriving) = channel();
            let (send, received) = channel();
            ports.push(Box::new(TrialPort {
                arriving,
                sent: send,
                statistics: PortStatistics::default(),
            }) as Box<dyn Port>);
            feeds.push(feed);
            sent.push(received);
        }
        let pool = FramePool::new(FRAMES).ok()?;
        let (director, control) = Director::new(config, ports, pool, Time::ZERO).ok()?;
        Some(Trial {
            director,
            control,
            feeds,
            sent,
            space,
            now: Time::ZERO,
            fed: BTreeMap::new(),
            frames_fed: 0,
            frames_sent: 0,
            frames_passed: 0,
            last: Vec::new(),
            commands: 0,
            answers: 0,
        })
    }

    fn step(&mut self, operation: u8, input: &mut Input<'_>) -> Option<()> {
        match operation % 16 {
            0..=3 => {
                let (flags, length) = (input.number(), usize::from(input.number()));
                let longer = if flags & 4 != 0 { 8 } else { 1 };
                let frame = input.take((length * longer).min(FRAME_BYTES_MAX));
                self.feed(flags, frame);
            }
            4 | 5 => {
                let (flags, number) = (input.number(), input.number());
                let frame = flow_frame(flags, number)?;
                self.feed(flags | 2, frame);
            }
            6 => {
                let flags = input.number();
                let frame = self.last.clone();
                self.feed(flags, frame);
            }
            7 => {
                self.turn();
            }
            8 => self.pass(Duration::from_millis(8 * u64::from(input.number()))),
            9 => {
                let (takers, drainers) = (input.number(), input.number());
                let shares = |wanted: u8| -> Option<Vec<Share<'_>>> {
                    let places = (0..NAMES.len()).filter(|place| wanted >> place & 1 != 0);
                    let share = |place| {
                        Some(Share {
                            slot: Slot::new(place)?,
                            name: NAMES[place],
                            weight: 1 + u16::from(wanted >> 4),
                        })
                    };
                    places.map(share).collect()
                };
                let takers_and = shares(takers)?;
                let drainers = shares(drainers & !takers)?;
                let moved = BTreeMap::from([(u32::from(takers), Slot::new(0)?)]);
                let table = Table::new(self.space, &takers_and, &drainers, &moved);
                self.command(Command::Table(Box::new(table)));
            }
            10 => {
                let (place, links) = (input.number(), input.number());
                let slot = Slot::new(usize::from(place) % NAMES.len())?;
                let link = |arm: u8| HostLink {
                    mac: (links >> arm & 1 != 0).then_some(MacAddress([2, 0, 0, 0, arm, place])),
                    address: (links >> (2 + arm) & 1 != 0)
                        .then_some(Ipv4Addr::new(10, 0, arm, place)),
                };
                let mut host = Host::on_first_arm(link(0));
                host.links[1] = link(1);
                self.command(match links {
                    0 => Command::RemoveHost(slot),
                    _ => Command::SetHost { slot, host },
                });
            }
            11 => {
                let (bucket, to) = (u32::from(input.number()), input.number());
                let to = Slot::new(usize::from(to) % NAMES.len())?;
                self.command(Command::MoveBucket { bucket, to });
            }
            12 => {
                let (flags, number) = (input.number(), input.number());
                let flow = key(number);
                let to = Slot::new(usize::from(flags) % NAMES.len())?;
                let idle = Duration::from_millis(10 * u64::from(flags));
                self.command(match flags >> 7 {
                    0 => Command::Pin { flow, to, idle },
                    _ => Command::Unpin(flow),
                });
            }
            13 => {
                let what = suspended(input);
                self.command(Command::Suspend(what));
            }
            14 => {
                let (what, to) = (suspended(input), input.number());
                let to = Slot::new(usize::from(to) % NAMES.len()).filter(|_| to < 0x80);
                self.command(Command::Resume { what, to });
            }
            _ => self.command(Command::Publish),
        }
        Some(())
    }

    /// A frame arrives: at the second arm by the first bit, for the arm's own Ethernet address by the second.
    fn feed(&mut self, flags: u8, mut frame: Vec<u8>) {
        let arm = usize::from(flags & 1) % self.feeds.len();
        if flags & 2 != 0
            && let Some(destination) = frame.first_chunk_mut::<6>()
        {
            *destination = ARM_MACS[arm].0;
        }
        if let Some(rest) = frame.get(12..) {
            *self.fed.entry(rest.to_vec()).or_default() += 1;
        }
        self.frames_fed += 1;
        // The director lives as long as the trial.
        let _ = self.feeds[arm].send(frame);
    }

    fn command(&mut self, command: Command) {
        // Refused while as many wait as may.
        self.commands += u64::from(self.control.send(command).is_ok());
    }

    fn turn(&mut self) -> usize {
        self.now = self.now.saturating_add(Duration::from_micros(1));
        self.director.turn(self.now)
    }

    /// Lets time pass, turning whenever something is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        for _ in 0..TURNS_MAX {
            let due = self.director.next_due();
            if due > end {
                break;
            }
            self.now = self.now.max(due);
            self.director.turn(self.now);
        }
        self.now = end;
        self.director.turn(end);
    }

    /// Every frame and every buffer is where the counts say.
    fn check(&mut self) -> DirectorStatistics {
        let counts = self.director.statistics();
        assert_eq!(
            counts.received,
            counts.forwarded
                + counts.consumed
                + counts.dropped_total()
                + counts.waiting_packets_now,
            "every frame has one end: {counts:?}"
        );
        let waiting = counts.waiting_packets_now;
        assert_eq!(self.director.frames_in_use() as u64, waiting, "{counts:?}");
        assert!(counts.received <= self.frames_fed, "{counts:?}");
        while let Ok(Some(_)) = self.control.poll() {
            self.answers += 1;
        }
        assert!(self.answers <= self.commands, "one answer a command");

        for arm in 0..self.sent.len() {
            while let Ok(frame) = self.sent[arm].try_recv() {
                self.frames_sent += 1;
                if let Some(rest) = frame.get(12..)
                    && let Some(left) = self.fed.get_mut(rest)
                    && *left > 0
                {
                    *left -= 1;
                    self.frames_passed += 1;
                }
                self.last = frame;
            }
        }
        let own = counts.answered + counts.announced + counts.probes + counts.heartbeats_sent;
        assert_eq!(self.frames_sent, counts.forwarded + own, "{counts:?}");
        assert!(
            self.frames_passed >= counts.forwarded,
            "what went to hosts is what came: {} of {counts:?}",
            self.frames_passed
        );
        counts
    }

    /// What waits ends by age, and nothing stays behind.
    fn end(mut self) -> DirectorStatistics {
        for _ in 0..TURNS_MAX {
            let received = self.turn();
            self.check();
            if received == 0 && self.answers == self.commands {
                break;
            }
        }
        assert_eq!(self.answers, self.commands, "every command is answered");
        self.pass(SUSPENSIONS_END);
        let counts = self.check();
        assert_eq!(
            (counts.waiting_packets_now, counts.waiting_bytes_now),
            (0, 0),
            "{counts:?}"
        );
        assert_eq!(counts.suspensions_now, 0, "{counts:?}");
        assert_eq!(counts.commands, self.commands, "{counts:?}");
        counts
    }
}

fn flow(number: u8) -> Flow4 {
    Flow4 {
        source: Ipv4Addr::new(10, 1, 0, number % 16),
        destination: SHARED,
        source_port: 10_000 + u16::from(number),
        destination_port: 80,
        protocol: match number & 1 {
            0 => Protocol::UDP.0,
            _ => Protocol::TCP.0,
        },
    }
}

fn key(number: u8) -> FlowKey {
    let flow = flow(number);
    FlowKey::between(
        (flow.source.into(), flow.source_port),
        (flow.destination.into(), flow.destination_port),
        flow.protocol,
    )
}

/// A whole frame of a flow; of TCP with these flags.
fn flow_frame(flags: u8, number: u8) -> Option<Vec<u8>> {
    let flow = flow(number);
    let mut out = [0; 200];
    let length = match flow.protocol == Protocol::TCP.0 {
        false => build::flow4(&flow, b"payload", &mut out)?,
        true => {
            let header = Header4::between(flow.source, flow.destination);
            let begins = if flags & 8 != 0 {
                TcpFlags::SYN
            } else {
                TcpFlags::ACK
            };
            let segment = Segment::with_flags(begins);
            let ports = (flow.source_port, flow.destination_port);
            build::tcp4(&header, ports.0, ports.1, &segment, b"", &mut out)?
        }
    };
    let frame = out.get_mut(..length)?;
    let mut packet = Packet::parse(frame).ok()?;
    packet.set_ethernet(CLIENT, ARM_MACS[0]);
    Some(frame.to_vec())
}

fn suspended(input: &mut Input<'_>) -> Suspend {
    let (kind, number) = (input.number(), input.number());
    match kind & 1 {
        0 => Suspend::Bucket(u32::from(number) + 256 * u32::from(kind >> 7)),
        _ => Suspend::Flow(key(number)),
    }
}
