//! `hold.kill`: connections that break when hosts die, where packets wait for a copy of what they depend on, and where they do not.
//!
//! Whole hosts run the NAT in virtual time: the shipped packet loop and state channel over links with delay, loss, repeats and
//! reordering. Connections enter at random hosts. At a random moment a host dies that was given a connection less than a one-way delay
//! ago, so no other host can have acknowledged it. The next epoch reaches the others at different times, and a new host joins
//! in the dead one's place; connections enter meanwhile too. Once all hosts agree, each connection is used in both directions, by a
//! random host each, and once more at the end. `hosts.rs` has the hosts.
//!
//! The same connections and deaths are run without held output: hosts that lose no connection there would prove nothing here.

mod hosts;

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_function::{Endpoint, Packet, PortNumber};
use asterism_io::link::LinkConditions;

use hosts::{Hosts, OUTSIDE};

use super::nat_bench::{endpoint, opening};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::traffic::{Flows, Random, Session};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "hold.kill",
    make: kill,
}];

/// Clusters, each with links and hosts of its own, and the connections of each: 10,000 together.
const CLUSTERS: u64 = 10;
const CONNECTIONS: u32 = 1_000;
/// The same in the long form.
const CLUSTERS_FULL: u64 = 40;
/// Connections opened around a death: before it, while nobody knows of it or the new host joins, and when it has joined.
const BEFORE: usize = 30;
const MEANWHILE: usize = 15;
const AFTERWARDS: usize = 5;
/// Between two connections on average, before a death and after it.
const GAP_US: u64 = 60;
const GAP_MEANWHILE_US: u64 = 1_500;
/// Connections used at once when all are tried.
const TRIED_AT_ONCE: usize = 32;
/// Without held output at least so many connections must break, or deaths came at harmless moments.
const BROKEN_LEAST: u64 = 50;
/// Remote addresses are in 198.18.0.0/15.
const REMOTE: u32 = 0xc612_0000;

/// A connection through the cluster.
struct Connection {
    session: Session,
    /// The host that its first packet came to.
    entered: usize,
    /// As which endpoint its first packet left.
    outside: Option<Endpoint>,
    is_broken: bool,
    /// Its first packet was lost with the host that it came to.
    died: bool,
    /// What its last try brought.
    answered: bool,
    kept: bool,
}

/// What became of all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    opened: u64,
    /// Those whose first packet was seen outside.
    seen: u64,
    /// Those whose first packet was lost, though the host that it came to lived.
    lost: u64,
    /// Those of the seen that broke.
    broken: u64,
    /// The same, where all datagrams arrived that the dead host had sent.
    broken_though_sent: u64,
    kills: u64,
    /// Kills of a host that held packets at that moment.
    kills_holding: u64,
    held: u64,
}

impl Found {
    fn add(&mut self, other: Self) {
        self.opened += other.opened;
        self.seen += other.seen;
        self.lost += other.lost;
        self.broken += other.broken;
        self.broken_though_sent += other.broken_though_sent;
        self.kills += other.kills;
        self.kills_holding += other.kills_holding;
        self.held += other.held;
    }
}

/// A cluster and the connections through it.
struct Run {
    hosts: Hosts,
    random: Random,
    delay: Duration,
    connections: Vec<Connection>,
    /// The number of the connection of each remote and of each inside endpoint.
    of_remote: BTreeMap<Endpoint, usize>,
    of_inside: BTreeMap<Endpoint, usize>,
    opened: usize,
    tried: usize,
    found: Found,
}

impl Run {
    /// A cluster that this seed decides.
    fn new(seed: u64, connections: u32, copies: Option<u32>) -> Result<Self, Failure> {
        let mut random = Random::new(seed ^ 0x41D5);
        let one_of = |random: &mut Random, of: &[f64]| of[random.below(of.len() as u64) as usize];
        let delay = one_of(&mut random, &[50.0, 200.0, 500.0, 1_000.0]) as u64;
        let link = LinkConditions {
            delay: Duration::from_micros(delay),
            jitter: Duration::from_micros(random.below(delay)),
            loss: one_of(&mut random, &[0.005, 0.01, 0.03, 0.08]),
            duplication: one_of(&mut random, &[0.0, 0.01, 0.05]),
            reordering: one_of(&mut random, &[0.0, 0.02, 0.05]),
            reordering_delay: Duration::from_micros(delay * 3),
            ..LinkConditions::default()
        };
        let count = one_of(&mut random, &[2.0, 3.0, 3.0, 4.0]) as u16;
        let flows = Flows::of_both(connections, seed);
        let mut run = Self {
            hosts: Hosts::new(count, connections, link, copies, seed)?,
            random,
            delay: Duration::from_micros(delay),
            connections: Vec::new(),
            of_remote: BTreeMap::new(),
            of_inside: BTreeMap::new(),
            opened: 0,
            tried: 0,
            found: Found::default(),
        };
        for (number, mut session) in flows.sessions().iter().copied().enumerate() {
            // By its remote endpoint a packet outside tells whose it is.
            session.remote.address = REMOTE | number as u32;
            run.of_remote
                .insert(endpoint(session.remote, &session), number);
            run.of_inside
                .insert(endpoint(session.inside, &session), number);
            run.connections.push(Connection {
                session,
                entered: 0,
                outside: None,
                is_broken: false,
                died: false,
                answered: false,
                kept: false,
            });
        }
        Ok(run)
    }

    fn micros(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.random.below(below.max(1)))
    }

    /// Lets time pass, and notes what left.
    fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        self.hosts.run(time)?;
        self.note();
        Ok(())
    }

    fn note(&mut self) {
        for (port, mut frame) in self.hosts.take_left() {
            self.note_one(port, &mut frame);
        }
    }

    fn note_one(&mut self, port: PortNumber, frame: &mut [u8]) {
        let Some(flow) = Packet::parse(frame).ok().and_then(|packet| packet.flow4()) else {
            return;
        };
        if port == OUTSIDE {
            if let Some(&number) = self.of_remote.get(&flow.destination()) {
                let connection = &mut self.connections[number];
                let outside = *connection.outside.get_or_insert(flow.source());
                connection.kept |= outside == flow.source();
            }
        } else if let Some(&number) = self.of_inside.get(&flow.destination()) {
            let connection = &mut self.connections[number];
            connection.answered |=
                flow.source() == endpoint(connection.session.remote, &connection.session);
        }
    }

    /// Sends a packet of a connection to a random host that takes packets. A reply goes to where the first packet came from.
    fn send(&mut self, number: usize, step: usize) -> Result<usize, Failure> {
        let connection = &self.connections[number];
        let made = opening(&connection.session, connection.outside, step);
        let (port, bytes) = made.ok_or_else(|| Failure::Unsound("a packet was not made".into()))?;
        let host = self.hosts.any(&mut self.random);
        self.hosts.inject(host, port, &bytes)?;
        Ok(host)
    }

    /// Opens the next connection; the host that it entered at, if there was one left.
    fn open(&mut self) -> Result<Option<usize>, Failure> {
        if self.opened == self.connections.len() {
            return Ok(None);
        }
        let host = self.send(self.opened, 0)?;
        self.connections[self.opened].entered = host;
        self.opened += 1;
        Ok(Some(host))
    }

    /// Connections enter, then a host dies, and another one joins in its place, and all connections since the last death are used.
    fn round(&mut self) -> Result<(), Failure> {
        let victim = self.hosts.any(&mut self.random);
        let least = self.opened + BEFORE / 2 + self.random.below(BEFORE as u64 / 2) as usize;
        // Until one enters at the victim that nobody else can know yet when it dies.
        while let Some(host) = self.open()? {
            if host == victim && self.opened >= least {
                break;
            }
            let gap = self.micros(2 * GAP_US);
            self.pass(gap)?;
        }
        let moment = self.micros(self.delay.as_micros() as u64);
        self.pass(moment)?;
        let is_sent_lost = self.random.below(2) == 0;
        self.found.kills += 1;
        self.found.kills_holding += u64::from(self.hosts.held(victim) > 0);
        self.hosts.kill(victim, is_sent_lost);
        let of_victim = self.connections[self.tried..self.opened].iter_mut();
        of_victim
            .filter(|one| one.outside.is_none() && one.entered == victim)
            .for_each(|one| one.died = true);
        let noticed = Duration::from_millis(5) + self.micros(30_000);
        let returns =
            (self.random.below(2) == 0).then(|| Duration::from_millis(30) + self.micros(40_000));
        self.hosts
            .replace(victim, noticed, returns, &mut self.random)?;
        self.open_some(MEANWHILE, GAP_MEANWHILE_US)?;
        while !self.hosts.are_ready() {
            self.pass(Duration::from_millis(1))?;
        }
        self.open_some(AFTERWARDS, GAP_MEANWHILE_US)?;
        self.settle()?;
        let since = self.tried;
        self.tried = self.opened;
        self.use_all(since, is_sent_lost)
    }

    fn open_some(&mut self, count: usize, gap_us: u64) -> Result<(), Failure> {
        for _ in 0..count {
            self.open()?;
            let gap = self.micros(2 * gap_us);
            self.pass(gap)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.hosts.settle()?;
        self.note();
        Ok(())
    }

    /// Uses all connections from this number on that were seen outside and did not break yet: a reply, and when that has come a packet
    /// from inside.
    fn use_all(&mut self, since: usize, is_sent_lost: bool) -> Result<(), Failure> {
        let whole = |one: &Connection| one.outside.is_some() && !one.is_broken;
        let numbers = (since..self.opened).filter(|&number| whole(&self.connections[number]));
        let numbers: Vec<_> = numbers.collect();
        for some in numbers.chunks(TRIED_AT_ONCE) {
            for &number in some {
                let connection = &mut self.connections[number];
                (connection.answered, connection.kept) = (false, false);
                self.send(number, 1)?;
            }
            self.settle()?;
            for &number in some {
                let is_tcp = self.connections[number].session.protocol.number() == 6;
                self.send(number, if is_tcp { 2 } else { 0 })?;
            }
            self.settle()?;
            for &number in some {
                let connection = &mut self.connections[number];
                if !connection.answered || !connection.kept {
                    connection.is_broken = true;
                    self.found.broken += 1;
                    self.found.broken_though_sent += u64::from(!is_sent_lost);
                }
            }
        }
        Ok(())
    }

    /// Opens all connections, with a death now and then; in the end all are used once more.
    fn finish(mut self, context: &Context) -> Result<Found, Failure> {
        while self.opened < self.connections.len() {
            self.round()?;
        }
        self.use_all(0, true)?;
        self.found.opened = self.opened as u64;
        for connection in &self.connections {
            self.found.seen += u64::from(connection.outside.is_some());
            self.found.lost += u64::from(connection.outside.is_none() && !connection.died);
        }
        self.found.held = self.hosts.held_in_all();
        let dropped = self.hosts.dropped();
        if !dropped.is_empty() {
            context.say(&format!("dropped: {dropped:?}"));
        }
        Ok(self.found)
    }
}

fn kill(context: &Context) -> Result<Outcome, Failure> {
    let clusters = if context.full {
        CLUSTERS_FULL
    } else {
        CLUSTERS
    };
    let (mut held, mut at_once) = (Found::default(), Found::default());
    for cluster in 0..clusters {
        let seed = context.seed + 1_000 * cluster;
        let run = |copies| Run::new(seed, CONNECTIONS, copies)?.finish(context);
        held.add(run(Some(1))?);
        at_once.add(run(None)?);
        context.say(&format!(
            "{} connections: {} broke with held packets, {} without",
            held.opened, held.broken, at_once.broken
        ));
    }
    if at_once.broken < BROKEN_LEAST {
        return Err(Failure::Unsound(format!(
            "{} connections broke where packets leave at once: the deaths prove nothing",
            at_once.broken
        )));
    }
    if held.kills_holding == 0 || held.held < held.seen {
        return Err(Failure::Unsound("packets were not held".into()));
    }
    let share = |found: Found| found.broken as f64 * 10_000.0 / found.opened as f64;
    Ok(Outcome::new(share(held), clusters as u32)
        .variant("opened", held.opened as f64)
        .variant("seen-outside", held.seen as f64)
        .variant("first-packets-lost-by-hosts-that-live", held.lost as f64)
        .variant("kills", held.kills as f64)
        .variant("kills-while-packets-were-held", held.kills_holding as f64)
        .variant("packets-held", held.held as f64)
        .variant("at-once", share(at_once))
        .variant("at-once-seen-outside", at_once.seen as f64)
        .variant(
            "at-once-though-all-sent-arrived",
            at_once.broken_though_sent as f64 * 10_000.0 / at_once.opened as f64,
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_break_connections_only_where_packets_leave_at_once() {
        let context = Context {
            full: false,
            seed: 1,
        };
        let run = |copies| {
            let mut all = Found::default();
            for seed in 7..10 {
                let run = Run::new(seed, 200, copies).expect("it is sound");
                all.add(run.finish(&context).expect("it is sound"));
            }
            all
        };
        let held = run(Some(1));
        assert_eq!(held.broken, 0, "{held:?}");
        assert!(held.kills_holding > 0 && held.seen > 400, "{held:?}");
        assert_eq!(held, run(Some(1)), "a seed is a run");
        let at_once = run(None);
        assert!(at_once.broken > 0, "{at_once:?}");
        assert_eq!((at_once.kills, at_once.opened), (held.kills, held.opened));
    }
}
