//! Three instances behind steering that spreads every packet, with a lag, and one of them dies: no connection breaks, and
//! nothing passes that a single box would refuse.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use asterism_function::objects::{
    Call as Parked, Context, Identity, ObjectSettings, OriginName, Sequencer, Wait,
};
use asterism_function::{
    Builder, Call, Emissions, Late, NetworkFunction, Packet, PortNumber, Reason, State, Verdict,
    call,
};
use asterism_functions::firewall::{Firewall, FirewallConfig, FirewallState};

use crate::firewall::packets::*;

const MS: u64 = 1_000;
/// How long a packet waits for what others may have seen.
const SETTLE_US: u64 = 20 * MS;
const MEMBERS: usize = 3;

struct Member {
    name: OriginName,
    context: Rc<Context>,
    state: FirewallState,
    emissions: Emissions,
    alive: bool,
    parked: Vec<(Waiting, Parked, u64)>,
}

/// A packet and where it came in.
#[derive(Clone)]
struct Waiting {
    port: PortNumber,
    bytes: Vec<u8>,
    tag: Tag,
}

/// Whose packet it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tag {
    /// Of a connection, to its client or its server.
    Connection(usize, bool),
    /// Nobody may ever see it.
    Forbidden,
}

enum Event {
    Arrives(usize, Waiting),
    Reported {
        to: usize,
        from: OriginName,
        sequence: u64,
        bytes: Vec<u8>,
    },
    Again(usize),
    Timer(usize, u32),
    Attack(u32),
    Death(usize),
}

struct World {
    function: Firewall,
    members: Vec<Member>,
    events: BTreeMap<(u64, u64), Event>,
    serial: u64,
    now_us: u64,
    lag_us: u64,
    random: u64,
    connections: Vec<Connection>,
    leaked: Vec<String>,
    waited: u64,
    refused: BTreeMap<Reason, u64>,
}

/// A download, by the simplest TCP that repairs loss: the server sends a window, goes back on a timeout.
#[derive(Debug)]
struct Connection {
    client: (u32, u16),
    server: (u32, u16),
    /// What the client has, in order; what the server knows of that.
    received: u32,
    /// Segments that the client has, by number.
    segments: BTreeSet<u32>,
    acknowledged: u32,
    answered: bool,
    open: bool,
    closed: bool,
    timer: u32,
    retransmissions: u32,
}

const CLIENT_START: u32 = 0xffff_f000;
const SERVER_START: u32 = 0xffff_0000;
const BYTES: u32 = 400_000;
const SEGMENT: u32 = 1_000;
const WINDOW: u32 = 60_000;
const TIMEOUT_US: u64 = 300 * MS;

impl World {
    fn new(lag_us: u64, seed: u64, connections: usize) -> Self {
        let function = Firewall::new(FirewallConfig {
            settle_us: SETTLE_US as u32,
            ..config()
        });
        let members = (0..MEMBERS as u16)
            .map(|member| {
                let name = OriginName {
                    member,
                    incarnation: 1,
                };
                let identity = Identity {
                    own: name,
                    members: (0..MEMBERS as u16).collect(),
                    lane: (0, 1),
                };
                let sequencer = Sequencer::Own(Cell::new(0));
                let context = Rc::new(Context::new(identity, sequencer, 7, Vec::new()));
                let settings = |_: &str| ObjectSettings::REPLICATED;
                let state = function.state(&Builder::new(context.clone(), settings));
                Member {
                    name,
                    context,
                    state,
                    emissions: Emissions::default(),
                    alive: true,
                    parked: Vec::new(),
                }
            })
            .collect();
        Self {
            function,
            members,
            events: BTreeMap::new(),
            serial: 0,
            now_us: 0,
            lag_us,
            random: seed,
            connections: (0..connections)
                .map(|number| Connection {
                    client: (5 + number as u32, 40_000),
                    server: (2_000_000, 443),
                    received: 0,
                    segments: BTreeSet::new(),
                    acknowledged: 0,
                    answered: false,
                    open: false,
                    closed: false,
                    timer: 0,
                    retransmissions: 0,
                })
                .collect(),
            leaked: Vec::new(),
            waited: 0,
            refused: BTreeMap::new(),
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn at(&mut self, delay_us: u64, event: Event) {
        self.serial += 1;
        self.events
            .insert((self.now_us + delay_us, self.serial), event);
    }

    /// To a living instance, whichever.
    fn send(&mut self, port: PortNumber, bytes: Vec<u8>, tag: Tag) {
        let alive: Vec<usize> = (0..MEMBERS)
            .filter(|&place| self.members[place].alive)
            .collect();
        let place = alive[self.draw(alive.len() as u64) as usize];
        let delay = 500 + self.draw(300);
        self.at(delay, Event::Arrives(place, Waiting { port, bytes, tag }));
    }

    fn handle(&mut self, place: usize, packet: Waiting, again: Option<Parked>) {
        let member = &mut self.members[place];
        if !member.alive {
            return;
        }
        member
            .context
            .set_now(self.now_us, 1_000 + (self.now_us / 1_000_000) as u32);
        let is_first = again.is_none();
        match again {
            Some(parked) => member.context.resume(parked),
            None => {
                self.serial += 1;
                member.context.arrive(self.now_us);
                member.context.begin(self.serial);
            }
        }
        let mut bytes = packet.bytes.clone();
        let given = Call {
            state: &mut member.state,
            context: &member.context,
            emissions: &mut member.emissions,
            port: packet.port,
        };
        let result: Result<Verdict, Late> =
            call(&self.function, Packet::parse(&mut bytes).unwrap(), given);
        match result {
            Err(_) => {
                let (parked, wait) = member.context.park();
                let (Wait::Absent { until_us, .. } | Wait::Written { until_us }) = wait else {
                    panic!("replicas are late for nothing else")
                };
                member.parked.push((packet, parked, until_us));
                if is_first {
                    self.waited += 1;
                    let delay = until_us.saturating_sub(self.now_us);
                    self.at(delay, Event::Again(place));
                }
            }
            Ok(verdict) => {
                member.context.end(|_, _| {});
                member.state.settle();
                member
                    .state
                    .for_each_object(|object| _ = object.flush(&mut 1_000_000));
                let (from, mut groups) = (member.name, Vec::new());
                member
                    .context
                    .take_groups(|sequence, bytes| groups.push((sequence, bytes.to_vec())));
                for (sequence, bytes) in groups {
                    for to in (0..MEMBERS).filter(|to| *to != place) {
                        let bytes = bytes.clone();
                        let reported = Event::Reported {
                            to,
                            from,
                            sequence,
                            bytes,
                        };
                        self.at(self.lag_us, reported);
                    }
                }
                match verdict {
                    Verdict::Drop(reason) => *self.refused.entry(reason).or_default() += 1,
                    _ => self.arrived(packet),
                }
            }
        }
    }

    /// A packet came through.
    fn arrived(&mut self, packet: Waiting) {
        let mut bytes = packet.bytes;
        let parsed = Packet::parse(&mut bytes).unwrap();
        let (flags, sequence, acknowledgement) = (
            parsed.tcp_flags().unwrap(),
            parsed.tcp_sequence().unwrap(),
            parsed.tcp_acknowledgement().unwrap(),
        );
        let length = (parsed.bytes().len() - 54) as u32;
        let Tag::Connection(number, to_client) = packet.tag else {
            self.leaked.push(format!("{flags:?} at {} us", self.now_us));
            return;
        };
        if to_client {
            let connection = &mut self.connections[number];
            if flags == SYN_ACK {
                connection.answered = true;
                self.acknowledge(number, ACK);
                return;
            }
            let number_of = sequence.wrapping_sub(SERVER_START + 1) / SEGMENT;
            assert_eq!(length, SEGMENT);
            connection.segments.insert(number_of);
            while connection
                .segments
                .contains(&(connection.received / SEGMENT))
            {
                connection.received += SEGMENT;
            }
            let done = connection.received == BYTES;
            self.acknowledge(number, if done { FIN_ACK } else { ACK });
            return;
        }
        if flags == SYN {
            let connection = &self.connections[number];
            let (client, server) = (connection.client, connection.server);
            let numbers = (SERVER_START, CLIENT_START + 1);
            let answer = tcp(server, client, SYN_ACK, numbers, 0);
            self.send(OUTSIDE, answer, Tag::Connection(number, true));
            return;
        }
        let connection = &mut self.connections[number];
        let known = acknowledgement.wrapping_sub(SERVER_START + 1);
        let first = !connection.open;
        connection.open = true;
        connection.closed |= flags == FIN_ACK;
        if known > connection.acknowledged && known <= BYTES || first {
            let before = connection.acknowledged;
            connection.acknowledged = known.min(BYTES);
            let from = if first { 0 } else { before + WINDOW };
            let to = connection.acknowledged + WINDOW;
            self.data(number, from, to);
        }
    }

    fn acknowledge(&mut self, number: usize, flags: asterism_function::TcpFlags) {
        let connection = &self.connections[number];
        let acknowledged = (SERVER_START + 1).wrapping_add(connection.received);
        let numbers = (CLIENT_START + 1, acknowledged);
        let packet = tcp(connection.client, connection.server, flags, numbers, 0);
        self.send(INSIDE, packet, Tag::Connection(number, false));
    }

    /// The server sends what lies between two places.
    fn data(&mut self, number: usize, from: u32, to: u32) {
        let (client, server) = (
            self.connections[number].client,
            self.connections[number].server,
        );
        let mut at = from;
        while at < to.min(BYTES) {
            let numbers = ((SERVER_START + 1).wrapping_add(at), CLIENT_START + 1);
            let packet = tcp(server, client, ACK, numbers, SEGMENT as usize);
            // The link keeps their order; instances may not.
            self.send(OUTSIDE, packet, Tag::Connection(number, true));
            at += SEGMENT;
        }
    }

    fn timer(&mut self, number: usize, serial: u32) {
        let connection = &mut self.connections[number];
        if connection.closed || serial != connection.timer {
            return;
        }
        connection.timer += 1;
        connection.retransmissions += 1;
        let (client, server) = (connection.client, connection.server);
        let (answered, open, from) = (
            connection.answered,
            connection.open,
            connection.acknowledged,
        );
        if !answered {
            let packet = tcp(client, server, SYN, (CLIENT_START, 0), 0);
            self.send(INSIDE, packet, Tag::Connection(number, false));
        } else if !open || self.connections[number].received == BYTES {
            let done = self.connections[number].received == BYTES;
            self.acknowledge(number, if done { FIN_ACK } else { ACK });
            if !open {
                // The server's own timer (RFC 9293 §3.10.8): what it said may have died with an instance.
                let numbers = (SERVER_START, CLIENT_START + 1);
                let answer = tcp(server, client, SYN_ACK, numbers, 0);
                self.send(OUTSIDE, answer, Tag::Connection(number, true));
            }
        } else {
            self.data(number, from, from + 4 * SEGMENT);
        }
        let serial = self.connections[number].timer;
        self.at(TIMEOUT_US, Event::Timer(number, serial));
    }

    /// What nobody inside asked for, and what only looks like an answer.
    fn attack(&mut self, number: u32) {
        let source = 2_000_000 + number % 3;
        let target = (5 + number % 40, 40_000);
        for (port, flags) in [(444, ACK), (444, SYN_ACK), (444, SYN), (443, SYN)] {
            // Of a connection that there is only a SYN of its server is none of anybody's.
            let target = if port == 443 {
                (target.0, 39_999)
            } else {
                target
            };
            let packet = tcp((source, port), target, flags, (7, CLIENT_START + 1), 9);
            self.send(OUTSIDE, packet, Tag::Forbidden);
        }
        // Far outside any window of a connection that is known.
        let far = SERVER_START.wrapping_sub(0x4000_0000);
        let blind = tcp((2_000_000, 443), target, RST, (far, 0), 0);
        let known = self.connections.get((target.0 - 5) as usize);
        if known.is_some_and(|connection| connection.open && !connection.closed) {
            self.send(OUTSIDE, blind, Tag::Forbidden);
        }
        self.at(4 * MS, Event::Attack(number + 1));
    }

    fn run(&mut self, until_us: u64) {
        for number in 0..self.connections.len() {
            let serial = self.connections[number].timer;
            self.at(number as u64 * 3 * MS, Event::Timer(number, serial));
        }
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > until_us || self.connections.iter().all(|one| one.closed) {
                break;
            }
            self.now_us = time;
            match event {
                Event::Arrives(place, packet) => self.handle(place, packet, None),
                Event::Reported {
                    to,
                    from,
                    sequence,
                    bytes,
                } => {
                    // What a dead instance had sent is on its way all the same.
                    let member = &mut self.members[to];
                    member
                        .context
                        .set_now(time, 1_000 + (time / 1_000_000) as u32);
                    let applied = member.state.apply(&member.context, from, sequence, &bytes);
                    applied.expect("a group can be read");
                    self.again(to);
                }
                Event::Again(place) => self.again(place),
                Event::Timer(number, serial) => self.timer(number, serial),
                Event::Attack(number) => self.attack(number),
                Event::Death(place) => {
                    // Nothing that it wrote within the lag reaches anybody, and what waited there is lost.
                    let name = self.members[place].name;
                    self.members[place].alive = false;
                    self.members[place].parked.clear();
                    self.events.retain(
                        |_, event| !matches!(event, Event::Reported { from, .. } if *from == name),
                    );
                }
            }
        }
    }

    /// Calls again what waits.
    fn again(&mut self, place: usize) {
        for (packet, parked, _) in std::mem::take(&mut self.members[place].parked) {
            self.handle(place, packet, Some(parked));
        }
    }
}

/// Lag and seeds: each connection's packets go through all three instances, and the second dies in the middle.
#[test]
fn no_connection_breaks_and_nothing_forbidden_passes_though_one_of_three_dies() {
    let mut waited = 0;
    for (lag_us, seed) in [(0, 1), (MS, 2), (5 * MS, 3), (5 * MS, 4), (15 * MS, 5)] {
        let mut world = World::new(lag_us, seed, 40);
        world.at(10 * MS, Event::Attack(0));
        world.at(60 * MS, Event::Death(1));
        world.run(20_000 * MS);
        let broken: Vec<_> = world.connections.iter().filter(|one| !one.closed).collect();
        assert!(broken.is_empty(), "lag {lag_us} seed {seed}: {broken:?}");
        assert_eq!(
            world.leaked,
            Vec::<String>::new(),
            "lag {lag_us} seed {seed}"
        );
        assert!(world.connections.iter().all(|one| one.received == BYTES));
        assert!(
            world.refused[&Reason::NoConnection] > 100,
            "{:?}",
            world.refused
        );
        assert!(
            world.refused[&Reason::OutOfWindow] > 10,
            "{:?}",
            world.refused
        );
        waited += world.waited;
    }
    assert!(waited > 1_000, "{waited} packets waited");
}

/// Without a death nothing is dropped that belongs to a connection: what overtook waited.
#[test]
fn what_overtakes_waits_and_is_not_dropped() {
    let mut world = World::new(5 * MS, 9, 30);
    world.run(20_000 * MS);
    assert!(world.connections.iter().all(|one| one.closed));
    assert_eq!(world.refused, BTreeMap::new());
    assert!(world.waited > 30, "{} packets waited", world.waited);
    let extra: u32 = world
        .connections
        .iter()
        .map(|one| one.retransmissions)
        .sum();
    assert_eq!(extra, 30, "each timer's first turn begins its connection");
}

/// Once everything is reported, replicas are equal.
#[test]
fn replicas_agree_once_all_is_reported() {
    let mut world = World::new(3 * MS, 11, 10);
    world.run(20_000 * MS);
    while let Some(((time, _), event)) = world.events.pop_first() {
        world.now_us = time;
        match event {
            Event::Reported {
                to,
                from,
                sequence,
                bytes,
            } => {
                let member = &mut world.members[to];
                let applied = member.state.apply(&member.context, from, sequence, &bytes);
                applied.expect("a group can be read");
            }
            Event::Arrives(place, packet) => world.handle(place, packet, None),
            _ => {}
        }
    }
    let digests = world.members[0].state.digests();
    for member in &world.members[1..] {
        assert_eq!(member.state.digests(), digests);
    }
}
