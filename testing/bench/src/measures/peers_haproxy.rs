//! `peers.haproxy`: what an update of a counter by key costs the host that makes it and the one that hears of it, here and
//! in HAProxy, whose stick tables are shared between peers.
//!
//! The same keys in the same order, each once in a round, so that nothing can be merged. HAProxy: two processes of one
//! thread with a table of `gpc0` by source address and a `peers` section, fed over the command socket of one; a third
//! process without peers is fed the same, and what that takes is taken off: reading commands is no part of telling others.
//! Ours: two hosts with their sealed state channels on sockets of the loopback, one fed with packets by whose source address
//! a function counts; nothing is taken off but what reading the clock takes that times each turn. Times are on-CPU: of processes
//! as the kernel accounts them, of our hosts by windows of the one thread that drives both. What arrived is compared key by key.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use asterism_function::{
    Ask, Builder, Counters, Key, Late, NetworkFunction, PortNumber, Reason, Verdict, Wire, objects,
    state,
};
use asterism_io::clock::MonotonicClock;
use asterism_state::ObjectSettings;

use super::host_process::{Folder, two_addresses, wait};
use super::lab::needs;
use super::socket_pair::{ARRIVES_WITHIN, Pace, SocketPair};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{Spread, at_share, process_cpu_ns};
use crate::traffic::frames::frame_between;
use crate::traffic::{Endpoint, Protocol, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "peers.haproxy",
    make: haproxy,
}];

/// Keys, each updated once in a round.
pub(super) const KEYS: u32 = 50_000;
/// Rounds that count, after one in which every key is new.
const ROUNDS: u32 = 9;
/// Rounds of the long form.
const ROUNDS_FULL: u32 = 25;
/// Updates in a line of commands: together less than a buffer of HAProxy's.
const COMMANDS: u32 = 200;
/// Updates of which each is waited for at the other side.
const SINGLE: u32 = 200;
/// The first address: 10.0.0.0.
const FIRST_KEY: u32 = 0x0a00_0000;

// --- HAProxy

/// A process of HAProxy.
struct Peer {
    child: Child,
    socket: PathBuf,
}

impl Peer {
    /// Starts it; `peers` is its `peers` section, if it has one.
    fn start(folder: &Folder, name: &str, peers: &str) -> Result<Self, Failure> {
        let socket = folder.path(&format!("{name}.sock"));
        let shared = if peers.is_empty() {
            ""
        } else {
            " peers cluster"
        };
        let text = format!(
            "global\n    nbthread 1\n    stats socket {} mode 600 level admin\n    localpeer {name}\n\
             defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n\
             {peers}backend keys\n    stick-table type ip size {} expire 1h store gpc0{shared}\n",
            socket.display(),
            4 * KEYS,
        );
        let config = folder.write(&format!("{name}.cfg"), &text)?;
        let child = Command::new("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Failure::Absent(format!("haproxy was not started: {error}")))?;
        let peer = Self { child, socket };
        wait("haproxy to listen", || {
            Ok(UnixStream::connect(&peer.socket).ok().map(drop))
        })?;
        Ok(peer)
    }

    /// Has it do commands; what it answers.
    fn command(&self, line: &str) -> Result<String, Failure> {
        let ask = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(&self.socket)?;
            stream.write_all(line.as_bytes())?;
            stream.write_all(b"\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        ask().map_err(|error| Failure::Unsound(format!("haproxy does not answer: {error}")))
    }

    /// Writes this round's number to every key.
    fn feed(&self, lines: &[String]) -> Result<(), Failure> {
        for line in lines {
            let answer = self.command(line)?;
            // An error is a sentence.
            if !answer.trim().is_empty() {
                return Err(Failure::Unsound(format!("haproxy refuses: {answer}")));
            }
        }
        Ok(())
    }

    fn cpu_ns(&self) -> Result<u64, Failure> {
        process_cpu_ns(self.child.id())
            .ok_or_else(|| Failure::Unsound("haproxy ended by itself".into()))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two that share a table, and one that keeps the same to itself.
struct Peers {
    first: Peer,
    second: Peer,
    alone: Peer,
    _folder: Folder,
}

impl Peers {
    fn start() -> Result<Self, Failure> {
        let folder = Folder::new()?;
        let [first, second] = two_addresses()?;
        let peers = format!("peers cluster\n    peer a {first}\n    peer b {second}\n");
        Ok(Self {
            first: Peer::start(&folder, "a", &peers)?,
            second: Peer::start(&folder, "b", &peers)?,
            alone: Peer::start(&folder, "c", "")?,
            _folder: folder,
        })
    }

    /// On-CPU ns of an update: at the first beyond what it costs without peers, and at the second.
    fn round(&self, number: u32) -> Result<Theirs, Failure> {
        let lines = commands(number);
        let (first, second) = (self.first.cpu_ns()?, self.second.cpu_ns()?);
        self.first.feed(&lines)?;
        let last = format!("show table keys key {}", address(KEYS - 1));
        let value = format!("gpc0={number}\n");
        wait("updates at the other peer", || {
            let shown = self.second.command(&last)?;
            Ok(shown.contains(&value).then_some(()))
        })?;
        let per_update = |ns: u64| ns as f64 / f64::from(KEYS);
        let (first, second) = (
            self.first.cpu_ns()?.saturating_sub(first),
            self.second.cpu_ns()?.saturating_sub(second),
        );
        let alone = self.alone.cpu_ns()?;
        self.alone.feed(&lines)?;
        let alone = self.alone.cpu_ns()?.saturating_sub(alone);
        Ok(Theirs {
            sender: per_update(first) - per_update(alone),
            sender_whole: per_update(first),
            receiver: per_update(second),
        })
    }

    /// Microseconds from the first's answer to an update until the second shows it, one at a time. Looking takes some tens of
    /// them.
    fn propagation(&self, number: u32) -> Result<Vec<f64>, Failure> {
        let clock = MonotonicClock::new();
        let updates = 0..SINGLE;
        let each = updates.map(|key| {
            let key = address(key);
            let set = format!("set table keys key {key} data.gpc0 {number}");
            self.first.feed(&[set])?;
            let began = clock.now();
            let (show, value) = (
                format!("show table keys key {key}"),
                format!("gpc0={number}\n"),
            );
            while !self.second.command(&show)?.contains(&value) {
                if clock.now() > began + ARRIVES_WITHIN {
                    return Err(Failure::Unsound("an update did not arrive".into()));
                }
            }
            Ok((clock.now() - began).as_micros() as f64)
        });
        each.collect()
    }

    /// That the second has every key with its last value.
    fn check(&self, number: u32) -> Result<(), Failure> {
        let table = self.second.command("show table keys")?;
        let value = format!("gpc0={number}");
        let right = table
            .lines()
            .filter(|line| line.split_ascii_whitespace().any(|word| word == value))
            .count();
        if right == KEYS as usize {
            Ok(())
        } else {
            Err(Failure::Unsound(format!(
                "{right} of {KEYS} keys have their last value at the other peer of HAProxy"
            )))
        }
    }
}

#[derive(Clone, Copy)]
struct Theirs {
    sender: f64,
    sender_whole: f64,
    receiver: f64,
}

pub(super) fn address(key: u32) -> std::net::Ipv4Addr {
    (FIRST_KEY + key).into()
}

/// The lines that write `number` to every key.
fn commands(number: u32) -> Vec<String> {
    let keys: Vec<u32> = (0..KEYS).collect();
    let line = |keys: &[u32]| {
        let set = |key: &u32| format!("set table keys key {} data.gpc0 {number}", address(*key));
        keys.iter().map(set).collect::<Vec<_>>().join(";")
    };
    keys.chunks(COMMANDS as usize).map(line).collect()
}

// --- ours

/// A source address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire)]
pub(super) struct Source(u32);

impl Key for Source {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        objects::hash::words(self.0.into(), 0, seed)
    }
}

/// Counts packets by source address.
pub(super) struct CountSources;

#[state]
pub(super) struct SourceCounts {
    packets: Counters<Source>,
}

impl NetworkFunction for CountSources {
    type State = SourceCounts;

    fn state(&self, builder: &Builder) -> SourceCounts {
        // Each of the two members may start half of them.
        SourceCounts {
            packets: builder.counters("packets", 4 * KEYS),
        }
    }

    fn packet(&self, ask: Ask<'_, SourceCounts>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(count) = ask.packets.find(&Source(flow.source.into()))? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        ask.act()?.packets.add(&count, 1);
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

/// Two hosts that count packets by source address, and a packet from each.
pub(super) struct Ours {
    pub(super) pair: SocketPair<CountSources>,
    frames: Vec<SmallFrame>,
}

impl Ours {
    pub(super) fn start() -> Result<Self, Failure> {
        let remote = Endpoint {
            address: 0xc633_6402,
            port: 53,
        };
        let frames = (0..KEYS).map(|key| {
            let inside = Endpoint {
                address: FIRST_KEY + key,
                port: 4_000,
            };
            frame_between(Protocol::Udp, inside, remote)
        });
        Ok(Self {
            pair: SocketPair::start(&Arc::new(CountSources), |_| ObjectSettings::REPLICATED)?,
            frames: frames.collect(),
        })
    }

    /// On-CPU ns of an update at both hosts.
    pub(super) fn round(&mut self, number: u32) -> Result<[f64; 2], Failure> {
        let arrived = |state: &SourceCounts| match right(state, number) {
            KEYS => Ok(()),
            right => Err(format!(
                "{right} of {KEYS} counters have their sum at the other host"
            )),
        };
        let ns = self.pair.round(&self.frames, Pace::FLOOD, arrived)?;
        Ok(ns.map(|ns| ns / f64::from(KEYS)))
    }
}

/// Microseconds from a packet to its being counted at the other host, one at a time.
fn propagation(ours: &mut Ours, before: u32) -> Result<Vec<f64>, Failure> {
    let each = (0..SINGLE).map(|key| {
        let arrived = |state: &SourceCounts| {
            let counted = state.packets.get(&Source(FIRST_KEY + key));
            counted.is_ok_and(|counted| counted == u64::from(before + 1))
        };
        let frame = ours.frames[key as usize];
        let took = ours.pair.propagate(&frame, arrived)?;
        Ok(took.as_micros() as f64)
    });
    each.collect()
}

/// Counters that have this sum.
fn right(state: &SourceCounts, sum: u32) -> u32 {
    let mut right = 0;
    state
        .packets
        .for_each(|_, count| right += u32::from(count == u64::from(sum)));
    right
}

// --- the measure

fn haproxy(context: &Context) -> Result<Outcome, Failure> {
    needs(&["haproxy"])?;
    let rounds = if context.full { ROUNDS_FULL } else { ROUNDS };
    let peers = Peers::start()?;
    let mut ours = Ours::start()?;
    // Every key is new.
    peers.round(1)?;
    ours.round(1)?;
    let (mut theirs_all, mut ours_all) = (Vec::new(), Vec::new());
    for number in 2..rounds + 2 {
        // A B, B A, ...
        if number % 2 == 0 {
            theirs_all.push(peers.round(number)?);
            ours_all.push(ours.round(number)?);
        } else {
            ours_all.push(ours.round(number)?);
            theirs_all.push(peers.round(number)?);
        }
        let (theirs, [sender, receiver]) = (
            theirs_all[theirs_all.len() - 1],
            ours_all[ours_all.len() - 1],
        );
        context.say(&format!(
            "ns per update, sender and receiver: HAProxy {:.0} and {:.0}, ours {sender:.0} and {receiver:.0}",
            theirs.sender, theirs.receiver
        ));
    }
    peers.check(rounds + 1)?;
    ours.pair.check(u64::from(KEYS * (rounds + 1)))?;
    let theirs_arrive = peers.propagation(rounds + 2)?;
    let ours_arrive = propagation(&mut ours, rounds + 1)?;
    let pairs = || theirs_all.iter().zip(&ours_all);
    let sender: Vec<f64> = pairs()
        .map(|(theirs, ours)| theirs.sender / ours[0])
        .collect();
    let receiver: Vec<f64> = pairs()
        .map(|(theirs, ours)| theirs.receiver / ours[1])
        .collect();
    let (at_sender, at_receiver) = (Spread::of(&sender), Spread::of(&receiver));
    let worse = if at_sender.median < at_receiver.median {
        at_sender
    } else {
        at_receiver
    };
    let median = |figures: Vec<f64>| Spread::of(&figures).median;
    let theirs = |what: fn(&Theirs) -> f64| median(theirs_all.iter().map(what).collect());
    Ok(Outcome::of(&worse)
        .variant("sender", at_sender.median)
        .variant("receiver", at_receiver.median)
        .variant("haproxy-sender-ns", theirs(|one| one.sender))
        .variant(
            "haproxy-sender-with-commands-ns",
            theirs(|one| one.sender_whole),
        )
        .variant("haproxy-receiver-ns", theirs(|one| one.receiver))
        .variant(
            "our-sender-ns",
            median(ours_all.iter().map(|one| one[0]).collect()),
        )
        .variant(
            "our-receiver-ns",
            median(ours_all.iter().map(|one| one[1]).collect()),
        )
        .variant("updates", f64::from(KEYS * rounds))
        .variant("haproxy-propagation-us", Spread::of(&theirs_arrive).median)
        .variant("haproxy-propagation-99-us", at_share(&theirs_arrive, 0.99))
        .variant("our-propagation-us", Spread::of(&ours_arrive).median)
        .variant("our-propagation-99-us", at_share(&ours_arrive, 0.99))
        .samples("sender", sender)
        .samples("receiver", receiver)
        .lost(ours.pair.lost()))
}
