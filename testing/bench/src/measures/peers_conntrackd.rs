//! `peers.conntrackd`: what a new flow costs both hosts, here and where the kernel's connection tracking is replicated by
//! conntrackd in FTFW, its mode that sends again what was lost.
//!
//! Theirs: two network namespaces joined by a cable, a daemon in each. Datagrams that each open a flow leave the first, whose
//! kernel tracks them and tells its daemon; that one tells the other. Counted is what both daemons take; not what making the
//! flows and their events takes the kernel.
//!
//! Flows come in three ways. *Paced*: a hundred thousand a second, ten at a time, while everybody runs as operators run them; the
//! design's figure was taken so, and it is what counts, here for both. *Flooded*: as fast as they can be made. *Held*, for
//! theirs alone: the first daemon is stopped while flows are made, and then finds all of them at once, which is the least that it
//! can take; nobody runs one so. *Reported* is a third daemon in a namespace of its own that hears of the same flows and only keeps
//! statistics: what a daemon needs to hear of flows, and to do nothing about them.
//!
//! Ours: two hosts with their sealed state channels on sockets of the loopback, each flow opened by a packet through the NAT,
//! which is included. What reading the clock takes that times each turn is taken off, *nothing* else. Times are on-CPU. What
//! arrived is compared flow by flow.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use asterism_functions::nat::Nat;
use asterism_io::clock::MonotonicClock;
use asterism_lab::{Cable, Lab, Node, Program};

use super::host_process::wait;
use super::lab::{absent, needs};
use super::nat_bench::{Placed, nat, settings};
use super::socket_pair::{Pace, SocketPair, wait_until};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{Spread, process_cpu_ns};
use crate::traffic::frames::frame_between;
use crate::traffic::{Flows, Protocol, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "peers.conntrackd",
    make: conntrackd,
}];

/// Flows of a part of a round: those that come in one way.
const FLOWS: u32 = 8_000;
/// Rounds that count, after one that warms up. The kernel's table holds 262,144 flows as it comes, and each round opens three
/// parts of them.
const ROUNDS: u32 = 9;
const WAYS: [Delivery; 3] = [Delivery::Paced, Delivery::Flooded, Delivery::Held];
/// Flows that come together where they are paced, and how long after those before: a hundred thousand a second.
const PACED_TOGETHER: usize = 10;
const PACE: Duration = Duration::from_micros(100);
/// The destination of the first flow: 10.1.0.0.
const FIRST: u32 = 0x0a01_0000;
/// The one port that all flows go to, and the one that they come from.
const PORTS: (u16, u16) = (4_000, 53);
/// Bytes of the socket buffers of a daemon: a round and more.
const SOCKET_BYTES: u32 = 64 << 20;
/// A daemon that was on no core for so long has nothing to do.
const IDLE: Duration = Duration::from_millis(40);

/// Connections are tracked where a rule asks for them; the daemons' own datagrams are not.
const RULES: &str = "table ip flows {
 chain own_out { type filter hook output priority raw; oifname \"sync\" notrack; }
 chain own_in { type filter hook prerouting priority raw; iifname \"sync\" notrack; }
 chain out { type filter hook output priority filter; oifname \"flood\" ct state new counter; }
}
";

/// Flows that come paced while it is looked at how many the other daemon lacks, and how often.
const LAG_FLOWS: u32 = 16_000;
const LOOKS: u32 = 10;

/// How flows come.
#[derive(Clone, Copy, PartialEq)]
enum Delivery {
    /// A hundred thousand a second.
    Paced,
    /// As fast as they can be made.
    Flooded,
    /// As fast as they can be made, while the daemon that receives them stands still.
    Held,
}

/// A daemon in its node.
struct Daemon {
    node: Node,
    config: PathBuf,
    program: Program,
}

impl Daemon {
    /// `mode` is its `Sync` or `Stats` section.
    fn start(lab: &Lab, node: Node, mode: &str) -> Result<Self, Failure> {
        let name = node.name().to_owned();
        let file = |end: &str| lab.folder().join(format!("{name}.{end}"));
        let text = format!(
            "{mode}General {{\n HashSize 131072\n HashLimit 1048576\n LockFile {}\n UNIX {{\n Path {}\n }}\n \
             NetlinkBufferSize {SOCKET_BYTES}\n NetlinkBufferSizeMaxGrowth {SOCKET_BYTES}\n NetlinkEventsReliable On\n}}\n",
            file("lock").display(),
            file("ctl").display(),
        );
        let config = lab.file(&format!("{name}.conf"), text).map_err(absent)?;
        let program = node
            .program("conntrackd")
            .arg("-C")
            .arg(&config)
            .start()
            .map_err(absent)?;
        let daemon = Self {
            node,
            config,
            program,
        };
        wait("conntrackd to answer", || {
            if !daemon.program.runs() {
                return Err(Failure::Absent(format!(
                    "conntrackd ended at its start: {}{}",
                    daemon.program.stdout(),
                    daemon.program.stderr()
                )));
            }
            Ok(daemon.ask(&["-s"]).ok())
        })?;
        Ok(daemon)
    }

    fn ask(&self, what: &[&str]) -> Result<String, Failure> {
        let asked = self.node.program("conntrackd").arg("-C").arg(&self.config);
        let answer = asked.args(what).run();
        answer
            .map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned())
            .map_err(|error| Failure::Unsound(error.to_string()))
    }

    fn cpu_ns(&self) -> Result<u64, Failure> {
        process_cpu_ns(self.program.process_id())
            .ok_or_else(|| Failure::Unsound("conntrackd ended by itself".into()))
    }

    /// Waits until it has nothing to do.
    fn rest(&self) -> Result<(), Failure> {
        let mut before = self.cpu_ns()?;
        wait("conntrackd to come to rest", || {
            std::thread::park_timeout(IDLE);
            let now = self.cpu_ns()?;
            let rests = now == before;
            before = now;
            Ok(rests.then_some(()))
        })
    }

    /// Waits until it knows as many flows: on a busy machine it may not have begun for long.
    fn knows(&self, section: &str, all: u64) -> Result<(), Failure> {
        let known = wait("flows at a conntrackd", || {
            std::thread::park_timeout(IDLE);
            let text = self.ask(&["-s"])?;
            let known = count_of(&text, section, "current active connections");
            Ok(known.filter(|known| *known >= all))
        })?;
        if known == all {
            return Ok(());
        }
        Err(Failure::Unsound(format!(
            "{all} flows were opened, and conntrackd knows {known}"
        )))
    }

    /// Opens flows by a datagram each.
    fn open(&self, flows: Range<u32>, way: Delivery) -> Result<(), Failure> {
        self.open_and_tell(flows, way, &AtomicU32::new(0))
    }

    /// The same; `opened` is how many there are so far.
    fn open_and_tell(
        &self,
        flows: Range<u32>,
        way: Delivery,
        opened: &AtomicU32,
    ) -> Result<(), Failure> {
        let clock = MonotonicClock::new();
        let send = || -> std::io::Result<()> {
            let socket = UdpSocket::bind(("10.0.0.1", PORTS.0))?;
            let flows: Vec<u32> = flows.collect();
            let mut due = clock.now();
            for together in flows.chunks(PACED_TOGETHER) {
                for &flow in together {
                    socket.send_to(&[0; 18], (destination(flow), PORTS.1))?;
                }
                opened.fetch_add(together.len() as u32, Ordering::Relaxed);
                if way == Delivery::Paced {
                    due = due + PACE;
                    wait_until(clock, due);
                }
            }
            Ok(())
        };
        if way == Delivery::Held {
            self.program.signal(libc::SIGSTOP);
        }
        let sent = self.node.enter(send);
        if way == Delivery::Held {
            // What waits is reported in full messages.
            self.program.signal(libc::SIGCONT);
        }
        sent.map_err(absent)?
            .map_err(|error| Failure::Unsound(format!("a datagram could not be sent: {error}")))
    }
}

fn destination(flow: u32) -> Ipv4Addr {
    (FIRST + flow).into()
}

/// The flows that its lines tell of, by their first destination.
fn reported(text: &str) -> BTreeSet<Ipv4Addr> {
    let first = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let word = words.find_map(|word| word.strip_prefix("dst="))?;
        word.parse().ok()
    };
    text.lines().filter_map(first).collect()
}

/// A count in what a daemon says of itself: in its section, the first of this name.
fn count_of(text: &str, section: &str, name: &str) -> Option<u64> {
    let after = &text[text.find(section)?..];
    let line = after.lines().find(|line| line.contains(name))?;
    let numbers = line.split(|letter: char| !letter.is_ascii_digit());
    numbers
        .filter(|number| !number.is_empty())
        .find_map(|number| number.parse().ok())
}

/// Messages that it missed.
fn lost_of(text: &str) -> Option<u64> {
    let before = text
        .split("Lost msgs")
        .next()
        .filter(|before| before.len() < text.len())?;
    before.split_ascii_whitespace().last()?.parse().ok()
}

/// Two daemons that replicate, and one that only counts.
struct Peers {
    first: Daemon,
    second: Daemon,
    alone: Daemon,
    /// Where the datagrams go.
    _sink: Node,
    // Last: it ends what runs in it.
    lab: Lab,
}

/// On-CPU ns of a flow.
#[derive(Clone, Copy)]
struct Theirs {
    sender: f64,
    receiver: f64,
    /// At the daemon that only counts.
    reported: f64,
}

impl Theirs {
    fn both(&self) -> f64 {
        self.sender + self.receiver
    }
}

impl Peers {
    fn start() -> Result<Self, Failure> {
        let lab = Lab::new().map_err(absent)?;
        let node = |name: &str| lab.node(name).map_err(absent);
        let [first, second, alone, sink] = [
            node("first")?,
            node("second")?,
            node("alone")?,
            node("sink")?,
        ];
        let cable = Cable::default();
        lab.cable((&first, "sync"), (&second, "sync"), &cable)
            .map_err(absent)?;
        for (node, address) in [(&first, "192.168.77.1/24"), (&second, "192.168.77.2/24")] {
            node.ip(&[format!("address add {address} dev sync")])
                .map_err(absent)?;
        }
        for (number, node) in [&first, &alone].into_iter().enumerate() {
            // What is sent goes to nobody's Ethernet address.
            lab.cable((node, "flood"), (&sink, &format!("flood{number}")), &cable)
                .map_err(absent)?;
            node.ip(&[
                "address add 10.0.0.1/30 dev flood",
                "neighbour add 10.0.0.2 lladdr 02:00:00:00:00:01 dev flood nud permanent",
                "route add 10.0.0.0/8 via 10.0.0.2 dev flood",
            ])
            .map_err(absent)?;
            let rules = node.program("nft").args(["-f", "-"]).input(RULES);
            rules.run().map_err(absent)?;
            // No flow ends while the measure runs.
            for setting in ["udp_timeout", "udp_timeout_stream"] {
                let setting = format!("net/netfilter/nf_conntrack_{setting}");
                node.sysctl(&setting, "600").map_err(absent)?;
            }
        }
        let sync = |own: &str, other: &str| {
            format!(
                "Sync {{\n Mode FTFW {{\n }}\n UDP {{\n IPv4_address {own}\n IPv4_Destination_Address {other}\n Port 3780\n \
                 Interface sync\n SndSocketBuffer {SOCKET_BYTES}\n RcvSocketBuffer {SOCKET_BYTES}\n Checksum on\n }}\n}}\n"
            )
        };
        let [one, two] = ["192.168.77.1", "192.168.77.2"];
        Ok(Self {
            first: Daemon::start(&lab, first, &sync(one, two))?,
            second: Daemon::start(&lab, second, &sync(two, one))?,
            alone: Daemon::start(&lab, alone, "Stats {\n LogFile off\n}\n")?,
            _sink: sink,
            lab,
        })
    }

    /// Opens the flows of a part.
    fn part(&self, part: u32, way: Delivery) -> Result<Theirs, Failure> {
        let flows = || part * FLOWS..(part + 1) * FLOWS;
        let daemons = [&self.first, &self.second, &self.alone];
        for daemon in daemons {
            daemon.rest()?;
        }
        let mut took = [0.0; 3];
        for (place, daemon) in daemons.into_iter().enumerate() {
            took[place] = -(daemon.cpu_ns()? as f64);
        }
        let all = u64::from((part + 1) * FLOWS);
        self.first.open(flows(), way)?;
        self.second.knows("cache external", all)?;
        self.alone.open(flows(), way)?;
        self.alone.knows("cache", all)?;
        // Acknowledgements are a part of it.
        for daemon in daemons {
            daemon.rest()?;
        }
        for (place, daemon) in daemons.into_iter().enumerate() {
            took[place] += daemon.cpu_ns()? as f64;
        }
        let [sender, receiver, reported] = took.map(|ns| ns / f64::from(FLOWS));
        Ok(Theirs {
            sender,
            receiver,
            reported,
        })
    }

    /// A round: a part in each way.
    fn round(&self, number: u32) -> Result<[Theirs; 3], Failure> {
        let part = |place: usize| self.part(WAYS.len() as u32 * number + place as u32, WAYS[place]);
        Ok([part(0)?, part(1)?, part(2)?])
    }

    /// By how many ms the other daemon is behind while flows come paced, at least and at most: what it lacks of those that were
    /// open when it was asked, and of those that were when the answer was read, which a process brings.
    fn lag_ms(&self, first: u32) -> Result<[f64; 2], Failure> {
        let opened = AtomicU32::new(0);
        let ms_per_flow = PACE.as_secs_f64() * 1e3 / PACED_TOGETHER as f64;
        let now_open = || first + opened.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let flows = first..first + LAG_FLOWS;
            let opens = scope.spawn(|| self.first.open_and_tell(flows, Delivery::Paced, &opened));
            let (mut least, mut most) = (Vec::new(), Vec::new());
            while least.len() < LOOKS as usize && !opens.is_finished() {
                let asked = now_open();
                let text = self.second.ask(&["-s"])?;
                let answered = now_open();
                let known = count_of(&text, "cache external", "current active connections");
                if let Some(known) = known.filter(|_| asked > first && !opens.is_finished()) {
                    let lacks = |open: u32| (f64::from(open) - known as f64).max(0.0) * ms_per_flow;
                    least.push(lacks(asked));
                    most.push(lacks(answered));
                }
            }
            let result = opens.join();
            result.map_err(|_| Failure::Unsound("opening flows panicked".into()))??;
            Ok([least, most].map(|lags| Spread::of(&lags).median))
        })
    }

    /// That the other daemon knows every flow, and nothing else; messages that were lost on the way and sent again.
    fn check(&self, flows: u32) -> Result<u64, Failure> {
        let file = self.lab.folder().join("flows");
        let dump = format!(
            "exec conntrackd -C {} -e >{}",
            self.second.config.display(),
            file.display()
        );
        let shell = self.second.node.program("sh").args(["-c", &dump]);
        shell.run().map_err(absent)?;
        let text = std::fs::read_to_string(&file)
            .map_err(|error| Failure::Unsound(format!("no list of flows: {error}")))?;
        let opened: BTreeSet<Ipv4Addr> = (0..flows).map(destination).collect();
        let reported = reported(&text);
        if reported != opened {
            return Err(Failure::Unsound(format!(
                "the other conntrackd lacks {} of {} flows, and knows {} that nobody opened",
                opened.difference(&reported).count(),
                opened.len(),
                reported.difference(&opened).count()
            )));
        }
        lost_of(&self.second.ask(&["-s"])?)
            .ok_or_else(|| Failure::Unsound("conntrackd tells no lost messages".into()))
    }
}

/// On-CPU ns of a flow at both hosts, paced and flooded.
type Own = [[f64; 2]; 2];

/// The NAT on two hosts.
struct Ours {
    pair: SocketPair<Nat>,
    frames: Vec<SmallFrame>,
}

impl Ours {
    fn start(rounds: u32, seed: u64) -> Result<Self, Failure> {
        let flows = Flows::of(Protocol::Udp, 2 * rounds * FLOWS, seed);
        let frames = flows
            .sessions()
            .iter()
            .map(|session| frame_between(session.protocol, session.inside, session.remote));
        let placed = settings(Placed::Replicated(Duration::ZERO));
        // One of two members opens all, and all of one protocol; this is room for 1.3 million sessions, somewhat more than the
        // daemons have ([`Daemon::start`]).
        let function = Arc::new(nat(4 * rounds * FLOWS, 2));
        Ok(Self {
            pair: SocketPair::start(&function, placed)?,
            frames: frames.collect(),
        })
    }

    fn round(&mut self, number: u32) -> Result<Own, Failure> {
        let paced = Pace {
            packets: PACED_TOGETHER,
            every: PACE,
        };
        Ok([
            self.part(2 * number, paced)?,
            self.part(2 * number + 1, Pace::FLOOD)?,
        ])
    }

    fn part(&mut self, part: u32, pace: Pace) -> Result<[f64; 2], Failure> {
        let all = (part as usize + 1) * FLOWS as usize;
        let frames = &self.frames[part as usize * FLOWS as usize..all];
        let ns = self
            .pair
            .round(frames, pace, |state| match state.sessions.len_now() {
                known if known == all => Ok(()),
                known => Err(format!(
                    "{known} of {all} flows are known at the other host"
                )),
            })?;
        Ok(ns.map(|ns| ns / f64::from(FLOWS)))
    }
}

/// A round of theirs and of ours.
type Round = ([Theirs; 3], Own);

fn conntrackd(context: &Context) -> Result<Outcome, Failure> {
    needs(&["conntrackd", "nft", "ip"])?;
    let rounds = 1 + ROUNDS;
    let peers = Peers::start()?;
    let mut ours = Ours::start(rounds, context.seed)?;
    let mut rounds_all: Vec<Round> = Vec::new();
    for number in 0..rounds {
        // A B, B A, ...
        let theirs_first = number % 2 == 0;
        let mut theirs = None;
        if theirs_first {
            theirs = Some(peers.round(number)?);
        }
        let own = ours.round(number)?;
        let theirs = match theirs {
            Some(theirs) => theirs,
            None => peers.round(number)?,
        };
        let both = |pair: [f64; 2]| format!("{:.0} and {:.0}", pair[0], pair[1]);
        let [paced, flooded, held] = theirs.map(|one| both([one.sender, one.receiver]));
        context.say(&format!(
            "ns per flow, sender and receiver: conntrackd paced {paced}, flooded {flooded}, held {held}; ours paced {}, flooded {}",
            both(own[0]),
            both(own[1])
        ));
        if number > 0 {
            rounds_all.push((theirs, own));
        }
    }
    let counted = WAYS.len() as u32 * rounds * FLOWS;
    let [lag_least, lag_most] = peers.lag_ms(counted)?;
    let all = counted + LAG_FLOWS;
    peers.second.knows("cache external", all.into())?;
    let lost = peers.check(all)?;
    ours.pair.check(u64::from(2 * rounds * FLOWS))?;
    let each = |what: &dyn Fn(&Round) -> f64| -> Vec<f64> { rounds_all.iter().map(what).collect() };
    let median = |what: &dyn Fn(&Round) -> f64| Spread::of(&each(what)).median;
    let sum = |own: [f64; 2]| own[0] + own[1];
    let paced = each(&|(theirs, own)| theirs[0].both() / sum(own[0]));
    let mut outcome = Outcome::of(&Spread::of(&paced))
        .variant(
            "sender",
            median(&|(theirs, own)| theirs[0].sender / own[0][0]),
        )
        .variant(
            "receiver",
            median(&|(theirs, own)| theirs[0].receiver / own[0][1]),
        )
        .variant(
            "flooded",
            median(&|(theirs, own)| theirs[1].both() / sum(own[1])),
        )
        .variant(
            "held",
            median(&|(theirs, own)| theirs[2].both() / sum(own[1])),
        )
        .variant(
            "held-without-what-it-is-reported",
            median(&|(theirs, own)| (theirs[2].both() - theirs[2].reported) / sum(own[1])),
        );
    for (way, name) in ["paced", "flooded", "held"].into_iter().enumerate() {
        outcome = outcome
            .variant(
                format!("conntrackd-{name}-sender-ns"),
                median(&|(theirs, _)| theirs[way].sender),
            )
            .variant(
                format!("conntrackd-{name}-receiver-ns"),
                median(&|(theirs, _)| theirs[way].receiver),
            )
            .variant(
                format!("conntrackd-{name}-reported-ns"),
                median(&|(theirs, _)| theirs[way].reported),
            );
    }
    for (way, name) in ["paced", "flooded"].into_iter().enumerate() {
        outcome = outcome
            .variant(
                format!("our-{name}-sender-ns"),
                median(&|(_, own)| own[way][0]),
            )
            .variant(
                format!("our-{name}-receiver-ns"),
                median(&|(_, own)| own[way][1]),
            );
    }
    Ok(outcome
        .variant("conntrackd-paced-lag-ms-at-least", lag_least)
        .variant("conntrackd-paced-lag-ms-at-most", lag_most)
        .variant("our-clock-taken-off-each-turn-ns", ours.pair.clock_ns())
        .variant("conntrackd-messages-lost-and-sent-again", lost as f64)
        .variant("flows", f64::from(rounds * FLOWS))
        .samples("paced", paced)
        .lost(ours.pair.lost()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As conntrackd 1.4.7 says it.
    const SAID: &str = "cache internal:
current active connections:	           3
connections created:		          60	failed:	           0

cache external:
current active connections:	       60000
connections created:		       60001	failed:	           2

message tracking:
                   0 Malformed msgs                    7 Lost msgs
";

    #[test]
    fn counts_are_read_from_their_section() {
        let active = "current active connections";
        assert_eq!(count_of(SAID, "cache internal", active), Some(3));
        assert_eq!(count_of(SAID, "cache external", active), Some(60_000));
        assert_eq!(lost_of(SAID), Some(7));
        assert_eq!(lost_of("0 Malformed msgs"), None);
        assert_eq!(count_of(SAID, "cache of others", active), None);
        assert_eq!(count_of(SAID, "cache external", "nothing"), None);
    }

    #[test]
    fn flows_are_reported_by_their_first_destination() {
        let text = "udp      17 src=10.0.0.1 dst=10.1.44.201 sport=4000 dport=53 [UNREPLIED] [active since 6s]\n\
                    udp      17 src=10.0.0.1 dst=10.1.0.0 sport=4000 dport=53 dst=10.0.0.1\n\nnothing\n";
        let all: Vec<_> = reported(text).into_iter().collect();
        assert_eq!(all, [destination(0), destination(44 * 256 + 201)]);
    }
}
