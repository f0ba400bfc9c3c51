//! The part of `remote.functions` that plays real captures through a firewall (Figure 4.5 of the StatelessNF paper): megabits a second that
//! leave it, as fast as it takes packets.
//!
//! Each round has a new instance and an empty store, so that flows begin as they did when they were captured. Packets that the firewall
//! drops by itself are left out beforehand, such as those of connections that began before the capture; all others must leave in each home.

use std::sync::mpsc::{Receiver, channel};

use asterism_engine::Instance;
use asterism_function::PortNumber;
use asterism_functions::firewall::Firewall;
use asterism_lab::outside;
use asterism_lab::redis::Redis;
use asterism_placement::Time;

use super::wire::Asking;
use super::{BURST, FIREWALL, Home, INSIDE, PATIENCE_NS, instance};
use crate::contract::Failure;
use crate::cores::{keep_on_core, stay_on_core};
use crate::measures::Context;
use crate::measures::captures::{folder, steps};
use crate::measures::chain_order::sides::Sides;
use crate::measures::functions_cost::firewall;
use crate::timing::{Spread, wall_ns};
use crate::traffic::flows::Endpoint;
use crate::traffic::frames::frame_between;
use crate::traffic::{Protocol, SmallFrame};

/// Folders with captures of ordinary traffic.
const ORDINARY: &[&str] = &["bulk", "mixed"];

/// Packets that wait at a time, at most: of one flow no more may, and a bulk transfer is one.
const TOGETHER: u64 = 64;
/// No round begins once those before have taken so long.
const ROUNDS_NS: f64 = 5e9;
/// By how much time advances in each turn while it is found out what a firewall drops: some wait for their flow.
const LEAP_NS: u64 = 100_000_000;
/// Longer ones, which an offload put together, no wire carries.
const FRAME_BYTES_MAX: usize = 1_518;

/// A packet of a capture, and the port by which it comes.
struct Packet {
    port: PortNumber,
    frame: Vec<u8>,
}

/// What a home comes to.
pub(super) struct Played {
    pub(super) name: &'static str,
    pub(super) mbps: f64,
    pub(super) packets_per_second: f64,
}

/// The captures in each home; nothing where they are not at hand.
pub(super) fn play(context: &Context) -> Result<Vec<Played>, Failure> {
    let mut packets = match packets() {
        Ok(packets) => packets,
        Err(Failure::Absent(why)) => {
            context.say(&format!("captures are left out: {why}"));
            return Ok(Vec::new());
        }
        Err(other) => return Err(other),
    };
    let redis =
        Redis::start().ok_or_else(|| Failure::Absent("redis-server is not installed".into()))?;
    stay_on_core(0);
    keep_on_core(redis.process(), 1);
    let of = packets.len();
    let mut alone = Player::start(&redis, Home::Here)?;
    alone.leap_ns = LEAP_NS;
    let mut failed = None;
    packets.retain(|packet| {
        if failed.is_none() {
            failed = alone.play(std::slice::from_ref(packet)).err();
        }
        alone.left.try_iter().count() == 1
    });
    if let Some(failed) = failed {
        return Err(failed);
    }
    if packets.len() < of / 2 {
        return Err(Failure::Unsound(format!(
            "only {} of {of} packets of the captures pass a firewall",
            packets.len()
        )));
    }
    context.say(&format!(
        "captures: {} of {of} packets pass a firewall",
        packets.len()
    ));
    let mut all = Vec::new();
    for (name, home) in [
        ("local", Home::Here),
        ("remote", Home::Store),
        ("cached", Home::Cached),
    ] {
        let played = play_in(context, &redis, &packets, home, name)?;
        context.say(&format!(
            "captures, {name}: {:.0} Mb/s, {:.0} packets/s",
            played.mbps, played.packets_per_second
        ));
        all.push(played);
    }
    Ok(all)
}

fn packets() -> Result<Vec<Packet>, Failure> {
    let mut packets = Vec::new();
    for ordinary in ORDINARY {
        let entries = std::fs::read_dir(folder()?.join(ordinary))
            .map_err(|error| Failure::Absent(format!("{ordinary}: {error}")))?;
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            // Some are of another link than Ethernet.
            let Ok(steps) = steps(&path) else { continue };
            let sides = Sides::of(steps.iter().map(|step| &step.frame[..]));
            let whole = steps.into_iter();
            let whole = whole.filter(|step| step.frame.len() <= FRAME_BYTES_MAX);
            packets.extend(whole.map(|mut step| Packet {
                port: sides.port(&mut step.frame),
                frame: step.frame,
            }));
        }
    }
    match packets.is_empty() {
        true => Err(Failure::Absent("no capture can be read".into())),
        false => Ok(packets),
    }
}

fn play_in(
    context: &Context,
    redis: &Redis,
    packets: &[Packet],
    home: Home,
    name: &'static str,
) -> Result<Played, Failure> {
    let rounds = if context.full { 11 } else { 3 };
    let bytes: usize = packets.iter().map(|packet| packet.frame.len()).sum();
    let mut took: Vec<f64> = Vec::new();
    // One round at least, and no further ones where a home is slow.
    while took.len() < rounds && took.iter().sum::<f64>() < ROUNDS_NS {
        let emptied = redis.command(&["FLUSHALL"]);
        emptied.map_err(|error| Failure::Unsound(format!("redis-server: {error}")))?;
        let mut player = Player::start(redis, home)?;
        took.push(player.play(packets)? as f64);
        let left: usize = player.left.try_iter().sum();
        if left != bytes {
            let drops: Vec<_> = player.instance.tally().drops().collect();
            return Err(Failure::Unsound(format!(
                "{left} of {bytes} bytes of the captures left: {drops:?}"
            )));
        }
    }
    let ns = Spread::of(&took).median;
    Ok(Played {
        name,
        mbps: bytes as f64 * 8.0 * 1e3 / ns,
        packets_per_second: packets.len() as f64 * 1e9 / ns,
    })
}

/// A firewall that is connected to its store, if it has one.
struct Player {
    instance: Instance<Firewall>,
    /// Bytes of each packet that left.
    left: Receiver<usize>,
    begun_ns: u64,
    /// By how much time advances in a turn in which packets wait, beside what passes.
    leap_ns: u64,
}

impl Player {
    fn start(redis: &Redis, home: Home) -> Result<Self, Failure> {
        let (to, left) = channel();
        let sees = |to: std::sync::mpsc::Sender<usize>| {
            move |bytes: &[u8]| {
                // Nobody listens in the end.
                let _ = to.send(bytes.len());
            }
        };
        let ports = vec![outside::port(sees(to.clone())), outside::port(sees(to))];
        let mut started = Self {
            instance: instance(firewall(), FIREWALL, home, redis, ports, Asking::Batched)?,
            left,
            begun_ns: wall_ns(),
            leap_ns: 0,
        };
        // A packet that leaves shows that the store is there.
        let ends = [1, 2].map(|last| Endpoint {
            address: 0xC0A8_FE00 + last,
            port: 7,
        });
        let first: SmallFrame = frame_between(Protocol::Udp, ends[0], ends[1]);
        let first = Packet {
            port: INSIDE,
            frame: first.to_vec(),
        };
        started.play(&[first])?;
        match started.left.try_iter().count() {
            1 => Ok(started),
            _ => Err(Failure::Unsound("the first packet did not leave".into())),
        }
    }

    /// Plays packets until all are decided; how long it took, in ns.
    fn play(&mut self, packets: &[Packet]) -> Result<u64, Failure> {
        let begun = wall_ns();
        let mut next = 0;
        while next < packets.len() || self.instance.tally().parked > 0 {
            let now = Time::from_micros(1 + (wall_ns() - self.begun_ns) / 1_000);
            let room = TOGETHER.saturating_sub(self.instance.tally().parked as u64);
            for _ in 0..room.min(BURST) {
                let Some(packet) = packets.get(next) else {
                    break;
                };
                if !self.instance.inject(now, packet.port, &packet.frame) {
                    break;
                }
                next += 1;
            }
            self.instance.turn(now);
            if self.instance.tally().parked > 0 {
                self.begun_ns = self.begun_ns.saturating_sub(self.leap_ns);
            }
            if wall_ns() - begun > PATIENCE_NS {
                let drops: Vec<_> = self.instance.tally().drops().collect();
                return Err(Failure::Unsound(format!(
                    "{next} of {} packets were taken: {drops:?}",
                    packets.len()
                )));
            }
        }
        Ok(wall_ns() - begun)
    }
}
