//! A NAT whose sessions are in a store: any packet comes to any instance, instances die, and no outside port has two owners.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asterism_function::{Endpoint, MacAddress, Packet, PortNumber, Protocol, Reason, build};
use asterism_functions::nat::{Interface, Nat, NatConfig, Prefix, Route, Side};
use asterism_placement::Time;
use asterism_remote_store::{CacheConfig, ClientConfig, ClientTally};
use asterism_state::{ObjectSettings, hash};

use crate::wires::Faults;
use crate::world::{SEED, Setup, World};

const INSIDE: PortNumber = PortNumber(0);
const OUTSIDE: PortNumber = PortNumber(1);
const INSIDE_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const OUTSIDE_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const ROUTER: MacAddress = MacAddress([2, 0, 0, 0, 1, 1]);
const OUTSIDE_ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The outside ports; inside hosts wish for some of them.
const PORTS: (u16, u16) = (40_000, 40_031);
const PORTS_COUNT: usize = 32;
/// Inside hosts, which all use the same ports.
const HOSTS: u64 = 4;
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// Where the payload begins, which is the number of the inside endpoint.
const PAYLOAD: usize = 42;
/// Longer than a session without packets lives.
const IDLE_US: u64 = 3_600_000_000;

fn nat() -> Arc<Nat> {
    let inside_router = Ipv4Addr::new(192, 168, 0, 2);
    let outside_router = Ipv4Addr::new(203, 0, 113, 254);
    let inside = Interface::new(INSIDE, Ipv4Addr::new(192, 168, 0, 1), 24, INSIDE_MAC);
    let outside = Interface::new(OUTSIDE, OUTSIDE_ADDRESS, 24, OUTSIDE_MAC);
    let route = |prefix, side, next_hop| Route {
        prefix,
        side,
        next_hop: Some(next_hop),
    };
    let config = NatConfig {
        routes: vec![
            route(
                Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8),
                Side::Inside,
                inside_router,
            ),
            route(Prefix::ALL, Side::Outside, outside_router),
        ],
        neighbours: vec![(inside_router, ROUTER), (outside_router, ROUTER)],
        outside_ports: PORTS,
        ..NatConfig::new(inside, outside, vec![OUTSIDE_ADDRESS])
    };
    Arc::new(Nat::new(config).expect("the configuration is right"))
}

fn settings(name: &str) -> ObjectSettings {
    match name {
        "sessions" | "ports" | "mappings" => ObjectSettings::REMOTE,
        _ => ObjectSettings::LOCAL,
    }
}

fn client(number: usize, commit_pipes: usize) -> ClientConfig {
    ClientConfig {
        function: "nat".to_owned(),
        client: format!("0.1.{number}"),
        seed: SEED,
        // The sessions and the mappings: the store shows by the sessions which ports are in use.
        objects: 0b101,
        commit_pipes,
        cache: None,
        shard: None,
    }
}

/// The same with answers that are kept.
fn keeping_client(number: usize, commit_pipes: usize) -> ClientConfig {
    ClientConfig {
        cache: Some(CacheConfig {
            entries: 64,
            staleness: Duration::from_millis(2),
            staleness_away: Duration::ZERO,
            has_filter: false,
        }),
        ..client(number, commit_pipes)
    }
}

/// The same with a filter of the keys that are not there.
fn filtering_client(number: usize, commit_pipes: usize) -> ClientConfig {
    let client = keeping_client(number, commit_pipes);
    ClientConfig {
        cache: client.cache.map(|cache| CacheConfig {
            has_filter: true,
            ..cache
        }),
        ..client
    }
}

/// The inside endpoint of a number.
fn inside(number: u64) -> Endpoint {
    let (host, port) = (number % HOSTS, number / HOSTS);
    let port = PORTS.0 + port as u16;
    Endpoint::new([10, 0, 0, 1 + host as u8].into(), port, Protocol::UDP)
}

/// A datagram as it comes to the NAT.
fn datagram(port: PortNumber, from: Endpoint, to: Endpoint, number: u64) -> Vec<u8> {
    let header = build::Header4 {
        ethernet_source: ROUTER,
        ethernet_destination: if port == INSIDE {
            INSIDE_MAC
        } else {
            OUTSIDE_MAC
        },
        ..build::Header4::between(from.address, to.address)
    };
    let mut payload = [0; 24];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    let mut bytes = vec![0; 128];
    let length = build::udp4(&header, from.port, to.port, &payload, &mut bytes);
    bytes.truncate(length.expect("room for a datagram"));
    bytes
}

/// The ends of a datagram that left, and its number; `None` for an error message.
fn read(bytes: &[u8]) -> Option<(Endpoint, Endpoint, u64)> {
    let mut bytes = bytes.to_vec();
    let number = u64::from_be_bytes(*bytes[PAYLOAD..].first_chunk().expect("its number"));
    let packet = Packet::parse(&mut bytes).expect("a whole packet");
    let flow = packet.flow4()?;
    let is_datagram = flow.source().protocol == Protocol::UDP;
    is_datagram.then(|| (flow.source(), flow.destination(), number))
}

struct Nats {
    world: World<Nat>,
    /// The outside endpoint that each inside one was seen with.
    seen: BTreeMap<u64, Endpoint>,
    /// Datagrams that left either way.
    left: u64,
    seed: u64,
    draws: u64,
}

impl Nats {
    fn new(instances: usize, faults: Faults, seed: u64) -> Self {
        Self::with(client, instances, faults, seed)
    }

    fn with(
        client: fn(usize, usize) -> ClientConfig,
        instances: usize,
        faults: Faults,
        seed: u64,
    ) -> Self {
        let setup = Setup {
            function: nat(),
            settings,
            client,
            commit_pipes: 2,
            faults,
            ports: 2,
            shards: 1,
        };
        Self {
            world: World::new(setup, instances),
            seen: BTreeMap::new(),
            left: 0,
            seed,
            draws: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.draws += 1;
        hash::words(self.draws, 0x00AD_D4E5, self.seed) % below
    }

    fn send(&mut self, port: PortNumber, bytes: &[u8]) {
        let to = self.draw(self.world.instances.len() as u64) as usize;
        let now = Time::from_micros(self.world.now_us);
        assert!(self.world.instances[to].inject(now, port, bytes));
    }

    /// A datagram of an inside endpoint to the server.
    fn send_out(&mut self, number: u64) {
        let server = Endpoint::new(SERVER, 53, Protocol::UDP);
        self.send(INSIDE, &datagram(INSIDE, inside(number), server, number));
    }

    /// The server's answer to one.
    fn send_in(&mut self, number: u64) {
        let server = Endpoint::new(SERVER, 53, Protocol::UDP);
        if let Some(&outside) = self.seen.get(&number) {
            self.send(OUTSIDE, &datagram(OUTSIDE, server, outside, number));
        }
    }

    /// Looks at what left: each inside endpoint has one outside endpoint, which no other has.
    fn look(&mut self) {
        let left = |port| self.world.left_by(port).into_iter();
        let (outward, inward) = (left(1), left(0));
        for (outside, _, number) in outward.filter_map(|bytes| read(&bytes)) {
            self.left += 1;
            let known = *self.seen.entry(number).or_insert(outside);
            assert_eq!(known, outside, "the port of {number} changed");
            let mut others = self.seen.iter().filter(|(other, _)| **other != number);
            let other = others.find(|(_, known)| **known == outside);
            assert_eq!(other, None, "{number} has the port of another one");
        }
        for (_, to, number) in inward.filter_map(|bytes| read(&bytes)) {
            self.left += 1;
            assert_eq!(to, inside(number), "an answer went astray");
        }
    }

    fn turn_until(&mut self, at_us: u64) {
        while self.world.now_us < at_us {
            self.world.turn();
        }
        self.look();
    }

    fn end(&mut self) {
        self.world.end();
        self.look();
    }

    fn dropped(&self, reason: Reason) -> u64 {
        let instances = self.world.instances.iter();
        instances
            .map(|instance| instance.tally().dropped(reason))
            .sum()
    }
}

/// Datagrams of so many endpoints both ways; instances die, if they do.
fn exchanged(nats: &mut Nats, endpoints: u64, dies: bool) -> u64 {
    let mut sent = 0;
    for step in 0..600 {
        let number = nats.draw(endpoints);
        let is_answer = nats.draw(2) == 0 && nats.seen.contains_key(&number);
        match is_answer {
            true => nats.send_in(number),
            false => nats.send_out(number),
        }
        sent += 1;
        if dies && step % 60 == 59 {
            let victim = nats.draw(nats.world.instances.len() as u64) as usize;
            nats.world.replace(victim);
        }
        let next_us = nats.world.now_us + 25 + nats.draw(400);
        nats.turn_until(next_us);
    }
    nats.end();
    sent
}

#[test]
fn any_instance_translates_any_packet_and_no_port_has_two_owners() {
    for (seed, instances) in [(1, 1), (2, 2), (3, 3), (4, 4)] {
        let mut nats = Nats::new(instances, Faults::none(200), seed);
        // Most ports; each is wished for by all hosts. When nearly none is left, a packet would ask for more than it may.
        let sent = exchanged(&mut nats, 26, false);
        assert_eq!(nats.left, sent, "none is lost");
        let wished = |(number, outside): (&u64, &Endpoint)| outside.port == inside(*number).port;
        let first = nats.seen.iter().filter(|&one| wished(one)).count();
        assert!((4..=7).contains(&first), "{first} of 7 ports are as wished");
    }
}

#[test]
fn instances_die_and_no_session_is_lost() {
    for seed in 10..14 {
        let faults = Faults::breaking(if seed % 2 == 0 { 400 } else { 0 }, 150);
        let mut nats = Nats::new(3, faults, seed);
        let sent = exchanged(&mut nats, 24, true);
        assert!(nats.left >= sent - sent / 5, "{} of {sent}", nats.left);
        // The dead had no state: all goes on as before.
        let before = nats.left;
        for number in nats.seen.keys().copied().collect::<Vec<_>>() {
            nats.send_out(number);
            nats.send_in(number);
        }
        nats.end();
        assert_eq!(nats.left, before + 2 * nats.seen.len() as u64);
    }
}

#[test]
fn instances_that_keep_answers_translate_alike_and_ask_less() {
    let read = |client: fn(usize, usize) -> ClientConfig| {
        let mut nats = Nats::with(client, 3, Faults::none(200), 5);
        let sent = exchanged(&mut nats, 24, false);
        assert_eq!(nats.left, sent, "none is lost");
        let tallies = nats.world.tallies();
        let sum = |of: fn(&ClientTally) -> u64| tallies.iter().map(of).sum::<u64>();
        (sum(|tally| tally.keys_read), sum(|tally| tally.cache_hits))
    };
    let (asked, none) = read(client);
    let (asked_less, hits) = read(keeping_client);
    assert_eq!(none, 0);
    assert!(hits > 100, "{hits} reads were answered by what was kept");
    assert!(
        asked_less + hits / 2 < asked,
        "{asked_less} keys of {asked}"
    );
    for seed in 30..34 {
        let faults = Faults::breaking(if seed % 2 == 0 { 400 } else { 0 }, 150);
        let mut nats = Nats::with(keeping_client, 3, faults, seed);
        let sent = exchanged(&mut nats, 24, true);
        assert!(nats.left >= sent - sent / 5, "{} of {sent}", nats.left);
    }
}

#[test]
fn a_new_flow_reads_nothing_that_is_not_there() {
    // Of one host, so that each wishes for a port that is free.
    const FLOWS: u64 = 28;
    let read = |client: fn(usize, usize) -> ClientConfig| {
        let mut nats = Nats::with(client, 2, Faults::none(200), 6);
        let soon = |nats: &mut Nats| {
            let soon_us = nats.world.now_us + 5_000;
            nats.turn_until(soon_us);
        };
        // The first one of each instance asks for the room of the sessions.
        for _ in 0..2 {
            nats.send_out(0);
            soon(&mut nats);
        }
        let sum = |nats: &Nats, of: fn(&ClientTally) -> u64| {
            let tallies = nats.world.tallies();
            tallies.iter().map(of).sum::<u64>()
        };
        let before = sum(&nats, |tally| tally.keys_read);
        let first = nats.left;
        for number in 1..FLOWS {
            nats.send_out(number * HOSTS);
            soon(&mut nats);
        }
        assert_eq!(nats.left - first, FLOWS - 1, "none is lost");
        let read = sum(&nats, |tally| tally.keys_read) - before;
        let answers = sum(&nats, |tally| tally.filter_answers);
        let per_flow = read as f64 / (FLOWS - 1) as f64;
        println!("{per_flow:.2} keys read by a new flow, {answers} answers of the filter");
        (per_flow, answers)
    };
    let (without, none) = read(keeping_client);
    let (with, answers) = read(filtering_client);
    assert!(
        without >= 2.0 && none == 0,
        "{without} keys, {none} answers"
    );
    assert!(
        with < 0.1 && answers > FLOWS,
        "{with} keys, {answers} answers"
    );
}

#[test]
fn instances_with_a_filter_translate_alike() {
    for seed in 40..44 {
        let faults = Faults::breaking(if seed % 2 == 0 { 400 } else { 0 }, 150);
        let mut nats = Nats::with(filtering_client, 3, faults, seed);
        let dies = seed >= 42;
        let sent = exchanged(&mut nats, 24, dies);
        assert!(nats.left >= sent - sent / 5, "{} of {sent}", nats.left);
        assert!(dies || seed % 2 == 0 || nats.left == sent, "none is lost");
    }
}

#[test]
fn ports_run_out_and_are_free_again_once_their_sessions_have_ended() {
    let mut nats = Nats::new(2, Faults::none(100), 21);
    for number in 0..PORTS_COUNT as u64 + 4 {
        nats.send_out(number);
        let soon_us = nats.world.now_us + 20_000;
        nats.turn_until(soon_us);
    }
    nats.end();
    // A packet asks for so many ports; later ones know of those that others found.
    for _ in 0..6 {
        for number in 0..PORTS_COUNT as u64 {
            nats.send_out(number);
        }
        nats.end();
    }
    assert_eq!(nats.seen.len(), PORTS_COUNT);
    assert!(nats.dropped(Reason::PortsExhausted) > 0);
    // Nobody hears that a session ended.
    nats.world.now_us += IDLE_US;
    nats.seen.clear();
    for number in 100..100 + PORTS_COUNT as u64 {
        nats.send_out(number);
        let soon_us = nats.world.now_us + 20_000;
        nats.turn_until(soon_us);
    }
    nats.end();
    assert!(
        nats.seen.len() > PORTS_COUNT * 3 / 4,
        "{} of {PORTS_COUNT} ports are granted again",
        nats.seen.len()
    );
}

#[test]
pub(crate) fn a_packet_whose_hosts_other_sessions_end_meanwhile_is_called_again() {
    let mut refused = 0;
    for turns in 0..60 {
        let mut nats = Nats::new(1, Faults::none(200), 51);
        nats.send_out(0);
        nats.end();
        let server = Endpoint::new([198, 51, 100, 8].into(), 53, Protocol::UDP);
        nats.send(INSIDE, &datagram(INSIDE, inside(0), server, 0));
        (0..turns).for_each(|_| nats.world.turn());
        // If it has read by now of its host's other session and is not committed, that is gone.
        for lane in 0..4 {
            let lane = format!("{{nat}}0:{lane}:*").into_bytes();
            let scan = [&b"SCAN"[..], b"0", b"MATCH", &lane, b"COUNT", b"1000"];
            for key in &nats.world.strings(&scan)[1..] {
                nats.world.ask(&[b"DEL", key]);
            }
        }
        nats.end();
        let tally = nats.world.instances[0].tally();
        assert_eq!(tally.forwarded, 2);
        refused += tally.store_refusals;
    }
    assert!(refused > 0, "no packet depended on the session");
}

#[test]
fn sessions_of_busy_hosts_are_committed_and_end() {
    const ENDPOINTS: u64 = 16;
    const SERVERS: u64 = 100;
    let mut nats = Nats::new(3, Faults::none(200), 50);
    for step in 0..ENDPOINTS * SERVERS {
        let (number, server) = (step % ENDPOINTS, step / ENDPOINTS);
        let server = Endpoint::new([198, 51, 100, server as u8].into(), 53, Protocol::UDP);
        nats.send(INSIDE, &datagram(INSIDE, inside(number), server, number));
        let next_us = nats.world.now_us + 50;
        nats.turn_until(next_us);
    }
    nats.end();
    assert_eq!(nats.left, ENDPOINTS * SERVERS, "none is lost");
    let there = |nats: &Nats, ends: &[u8]| {
        let ends = &[b"ZRANGEBYSCORE", ends, b"-inf", b"+inf"];
        nats.world.strings(ends).len() as u64
    };
    assert_eq!(there(&nats, b"{nat}0:ends"), ENDPOINTS * SERVERS);
    nats.world.now_us += IDLE_US;
    let until_us = nats.world.now_us + 5_000_000;
    nats.turn_until(until_us);
    for kept in [&b"{nat}0:"[..], b"{nat}2:"] {
        let keys = [kept, b"*"].concat();
        let scan = [&b"SCAN"[..], b"0", b"MATCH", &keys, b"COUNT", b"1000000"];
        let mut left = nats.world.strings(&scan);
        // The cursor, and which client ends entries.
        left.retain(|name| name != b"0" && !name.ends_with(b":word"));
        assert_eq!(left, Vec::<Vec<u8>>::new(), "all sessions have ended");
    }
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn a_grant_that_the_store_does_not_confirm_is_found() {
    use asterism_translation::mutant::{Mutant, select};

    select(Some(Mutant::GrantUnconfirmed));
    let test = any_instance_translates_any_packet_and_no_port_has_two_owners;
    let found = std::panic::catch_unwind(test).is_err();
    select(None);
    assert!(found, "two hosts had one port, and nothing was found");
}
