//! Answers that are kept: how stale one may be that is given out, and that a flow reads what it wrote.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_embedded_store::Keyspace;
use asterism_engine::Attempt;
use asterism_function::{
    Ask, Builder, Late, Map, NetworkFunction, PortNumber, Reason, Value, Verdict, Wire, state,
};
use asterism_placement::Time;
use asterism_remote_store::{CacheConfig, Client, ClientConfig, ClientEvent, ClientTally};
use asterism_resp::Value as Reply;
use asterism_state::{Query, Ticket, hash};

use crate::tills::{number_of, packet};
use crate::wires::Faults;
use crate::world::{SEED, Setup, World};

const STALENESS: Duration = Duration::from_millis(1);
const KEYS: u64 = 6;
/// Keys that there may be; there is plenty of room.
pub(crate) const COUNTS_MAX: u32 = 1 << 14;
/// Of sources, whose ports these are.
const PAIRS_FROM: u32 = 1_500;
const ENDING_FROM: u32 = 2_000;
/// Seconds.
const IDLE: u32 = 8;
/// Packets of these numbers, by their last three bits, leave an ending key's use as it is.
const LOOKS: u32 = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
struct Count(u32);

/// Counts up a key by packets of odd numbers; others read it alone. Each packet takes the count with it. Greater keys stand for
/// two that are counted up together; still greater ones end without packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counting;

#[state]
pub(crate) struct Counts {
    counts: Map<u32, Count>,
    ending: Map<u32, Count>,
}

impl NetworkFunction for Counting {
    type State = Counts;
    fn state(&self, builder: &Builder) -> Counts {
        builder.writing(2, &[]);
        Counts {
            counts: builder.table("counts", COUNTS_MAX, &[0]),
            ending: builder.table("ending", 64, &[IDLE]),
        }
    }
    fn packet(&self, ask: Ask<'_, Counts>) -> Result<Verdict, Late> {
        let number = number_of(ask.packet().bytes());
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let key = u32::from(flow.source_port);
        let is_write = number % 2 == 1;
        if (PAIRS_FROM..ENDING_FROM).contains(&key) {
            let (one, other) =
                ask.all((ask.counts.entry(key * 2), ask.counts.entry(key * 2 + 1)))?;
            let counts = [&one, &other].map(|known| known.value().map_or(0, |count| count.0));
            let mut act = ask.act()?;
            // Both or neither, at any time.
            act.packet
                .set_source_port(u16::from(counts[0] != counts[1]));
            if is_write {
                act.counts.put(one, Count(counts[0] + 1));
                act.counts.put(other, Count(counts[0] + 1));
            }
            return Ok(Verdict::Forward(PortNumber(0)));
        }
        if key >= ENDING_FROM && is_write {
            let known = ask.ending.entry(key)?;
            let mut act = ask.act()?;
            act.ending.put(known, Count(1));
            return Ok(Verdict::Forward(PortNumber(0)));
        }
        if key >= ENDING_FROM {
            let known = ask.ending.get(&key)?;
            let mut act = ask.act()?;
            if let Some(known) = known.as_ref().filter(|_| number % 8 != LOOKS) {
                act.ending.touch(known);
            }
            return Ok(match known {
                Some(_) => Verdict::Forward(PortNumber(0)),
                None => Verdict::Drop(Reason::UnsupportedProtocol),
            });
        }
        let known = ask.counts.entry(key)?;
        let mut count = known.value().map_or(0, |count| count.0);
        let mut act = ask.act()?;
        if is_write {
            count += 1;
            act.counts.put(known, Count(count));
        }
        act.packet.set_destination_port(count as u16);
        Ok(Verdict::Forward(PortNumber(0)))
    }
}

pub(crate) fn client(number: usize, commit_pipes: usize) -> ClientConfig {
    ClientConfig {
        function: "counting".to_owned(),
        client: format!("0.1.{number}"),
        seed: SEED,
        objects: 0b11,
        commit_pipes,
        cache: Some(CacheConfig {
            entries: 4,
            staleness: STALENESS,
            staleness_away: Duration::ZERO,
            has_filter: false,
        }),
        shard: None,
    }
}

/// A packet that was given to an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    key: u64,
    instance: usize,
    at_us: u64,
}

/// What left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    given: Given,
    is_write: bool,
    count: u16,
    at_us: u64,
}

/// Packets to instances that share a store, whose keys `key` says by the number of the packet and a drawn one; all that left, and what the
/// clients counted.
pub(crate) fn run(
    client: fn(usize, usize) -> ClientConfig,
    key: fn(u64, u64) -> u64,
    (faults, seed): (Faults, u64),
) -> (Vec<Left>, Vec<ClientTally>) {
    let setup = Setup::of(Counting, client, faults);
    let mut world = World::new(setup, 3);
    let draw = |number: u64, what: u64, below: u64| hash::words(number, what, seed) % below;
    let mut given = BTreeMap::new();
    let mut left = Vec::new();
    let mut note = |world: &World<Counting>, given: &BTreeMap<u32, Given>| {
        for instance in 0..3 {
            for bytes in world.left_of(instance, 0) {
                let number = number_of(&bytes);
                left.push(Left {
                    given: given[&number],
                    is_write: number % 2 == 1,
                    count: u16::from_be_bytes([bytes[36], bytes[37]]),
                    at_us: world.now_us,
                });
            }
        }
    };
    for step in 0..3_000 {
        let is_write = draw(step, 1, 8) == 0;
        let number = step as u32 * 2 + u32::from(is_write);
        let packet_of = Given {
            key: key(step, draw(step, 2, u64::MAX)),
            instance: draw(step, 3, 3) as usize,
            at_us: world.now_us,
        };
        given.insert(number, packet_of);
        let bytes = packet(packet_of.key as u16, number);
        let now = Time::from_micros(world.now_us);
        assert!(world.instances[packet_of.instance].inject(now, PortNumber(0), &bytes));
        for _ in 0..draw(step, 4, 8) {
            world.turn();
            note(&world, &given);
        }
    }
    world.end();
    note(&world, &given);
    (left, world.tallies())
}

/// Each count is written once. Each read is as of a time since the staleness before its packet came, and of what went before in its flow.
pub(crate) fn judge(left: &[Left]) {
    let mut written: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
    for one in left.iter().filter(|one| one.is_write) {
        written.entry(one.given.key).or_default().push(one.count);
    }
    for (key, counts) in &mut written {
        counts.sort_unstable();
        let all = 1..=counts.len() as u16;
        assert!(counts.iter().copied().eq(all), "key {key}: {counts:?}");
    }
    let stale_us = STALENESS.as_micros() as u64;
    for one in left {
        let before = |other: &&Left| {
            let is_before = other.is_write && other.given.key == one.given.key;
            let is_of_flow = other.given.instance == one.given.instance;
            let since_us = match is_of_flow && other.given.at_us < one.given.at_us {
                // They waited for each other.
                true => one.at_us,
                false => one.given.at_us.saturating_sub(stale_us),
            };
            is_before && other.at_us < since_us
        };
        let least = left.iter().filter(before).map(|other| other.count).max();
        assert!(Some(one.count) >= least, "{one:?} after {least:?}");
    }
}

#[test]
fn what_is_kept_is_never_staler_than_it_may_be() {
    let mut hits = 0;
    for seed in 0..6 {
        let faults = Faults {
            broken_of: if seed % 2 == 0 { 0 } else { 3_000 },
            delay_us: [40, 150, 400][seed as usize % 3],
            away_us: 20_000,
        };
        let (left, tallies) = run(client, |_, drawn| drawn % KEYS, (faults, seed));
        assert!(left.len() > 2_900, "{} packets left", left.len());
        judge(&left);
        hits += tallies.iter().map(|tally| tally.cache_hits).sum::<u64>();
    }
    assert!(hits > 2_000, "{hits} reads were answered by what was kept");
}

#[test]
fn what_is_read_of_several_keys_was_so_at_one_time() {
    let setup = Setup::of(Counting, client_that_serves_known, Faults::none(150));
    let mut world = World::new(setup, 3);
    let draw = |number: u64, what: u64, below: u64| hash::words(number, what, 3) % below;
    let mut left = 0;
    for step in 0..4_000 {
        let number = step as u32 * 2 + u32::from(draw(step, 1, 10) == 0);
        let bytes = packet(500 + draw(step, 2, 4) as u16, number);
        let now = Time::from_micros(world.now_us);
        let to = draw(step, 3, 3) as usize;
        assert!(world.instances[to].inject(now, PortNumber(0), &bytes));
        for _ in 0..draw(step, 4, 10) {
            world.turn();
        }
        for bytes in world.left_by(0) {
            assert_eq!(
                bytes[34..36],
                [0, 0],
                "one of two was seen without the other"
            );
            left += 1;
        }
    }
    world.end();
    let instances = world.instances.iter();
    let alone: u64 = instances.map(|one| one.tally().store_reads_alone).sum();
    assert!(
        left > 3_500 && alone > 1_000,
        "{left} left, {alone} of them of one time"
    );
}

fn client_that_serves_known(number: usize, commit_pipes: usize) -> ClientConfig {
    ClientConfig {
        cache: Some(CacheConfig {
            entries: 64,
            staleness: STALENESS,
            staleness_away: Duration::from_secs(10),
            has_filter: false,
        }),
        ..client(number, commit_pipes)
    }
}

/// A packet of each of so many flows, known or new ones; how many left, and how many wait or were dropped.
fn pass(world: &mut World<Counting>, flows: core::ops::Range<u16>, number: u32) -> (usize, usize) {
    let count = flows.len();
    for flow in flows {
        let bytes = packet(1_000 + flow, number);
        let now = Time::from_micros(world.now_us);
        assert!(world.instances[0].inject(now, PortNumber(0), &bytes));
    }
    for _ in 0..200 {
        world.turn();
    }
    let left = world.left_of(0, 0).len();
    (left, count - left)
}

#[test]
fn known_flows_go_on_while_the_store_is_away_as_long_as_they_may() {
    for (client, goes_on) in [
        (client as fn(usize, usize) -> ClientConfig, false),
        (client_that_serves_known, true),
    ] {
        let mut world = one_instance(client);
        let known = 0..4;
        assert_eq!(pass(&mut world, known.clone(), 1), (4, 0));
        assert_eq!(pass(&mut world, known.clone(), 2), (4, 0));
        world.store.is_away.set(true);
        world.turn();
        let (left, _) = pass(&mut world, known.clone(), 4);
        assert_eq!(left, if goes_on { 4 } else { 0 });
        if !goes_on {
            continue;
        }
        // Their uses are to be announced, and nobody can be driven.
        for seconds in [3, 6] {
            world.now_us = seconds * 1_000_000;
            assert_eq!(pass(&mut world, known.clone(), 4), (4, 0), "{seconds} s");
        }
        let tally = world.tallies()[0];
        assert!(tally.decided_away >= 4, "{tally:?}");
        // Flows that nobody knew, and what is to be written, wait for the store.
        assert_eq!(pass(&mut world, 10..14, 4), (0, 4));
        assert_eq!(pass(&mut world, known.clone(), 3), (0, 4));
        world.store.is_away.set(false);
        for _ in 0..4_000 {
            world.turn();
        }
        assert_eq!(world.left_of(0, 0).len(), 4, "what was written is");
        assert_eq!(pass(&mut world, known.clone(), 6), (4, 0));
        // It is away for longer than that.
        world.store.is_away.set(true);
        world.turn();
        world.now_us += 10_000_000;
        assert_eq!(pass(&mut world, known, 8), (0, 4));
    }
}

#[test]
fn known_flows_go_on_while_the_store_is_full() {
    let (known, new) = (0..4, 10..14);
    for (client, goes_on) in [
        (client as fn(usize, usize) -> ClientConfig, false),
        (client_that_serves_known, true),
    ] {
        let mut world = one_instance(client);
        *world.store.keyspace.borrow_mut() = Keyspace::new(1 << 20);
        assert_eq!(pass(&mut world, known.clone(), 1), (4, 0));
        world.ask(&[b"SET", b"of another", &[7; 1 << 20]]);
        assert!(world.store.keyspace.borrow().is_full());
        // Their uses are to be announced: that is refused, and half a second later it is clear that it goes on.
        world.now_us = 3_000_000;
        assert_eq!(pass(&mut world, known.clone(), 4), (0, 4));
        for _ in 0..28_000 {
            world.turn();
        }
        let left = world.left_of(0, 0).len();
        assert_eq!(left, if goes_on { 4 } else { 0 });
        let passes = if goes_on { (4, 0) } else { (0, 4) };
        for _ in 0..2 {
            world.now_us += 1_000_000;
            assert_eq!(pass(&mut world, known.clone(), 4), passes);
        }
        let tally = world.tallies()[0];
        assert_eq!(tally.decided_away >= 12, goes_on, "{tally:?}");
        assert_eq!(pass(&mut world, new.clone(), 1), (0, 4));
        world.ask(&[b"DEL", b"of another"]);
        for _ in 0..4_000 {
            world.turn();
        }
        world.left_of(0, 0);
        assert_eq!(pass(&mut world, new.clone(), 3), (4, 0));
        assert_eq!(pass(&mut world, known.clone(), 6), (4, 0));
    }
}

fn client_that_serves_known_for_long(number: usize, commit_pipes: usize) -> ClientConfig {
    let client = client_that_serves_known(number, commit_pipes);
    ClientConfig {
        cache: client.cache.map(|cache| CacheConfig {
            staleness_away: Duration::from_secs(60),
            ..cache
        }),
        ..client
    }
}

fn one_instance(client: fn(usize, usize) -> ClientConfig) -> World<Counting> {
    let setup = Setup::of(Counting, client, Faults::none(100));
    World::new(setup, 1)
}

#[test]
fn an_entry_that_stays_here_is_not_found_once_it_has_ended() {
    let mut world = one_instance(client_that_serves_known_for_long);
    let key = 0..1;
    for number in [1, LOOKS, LOOKS] {
        assert_eq!(pass(&mut world, key.clone(), number), (1, 0));
    }
    world.store.is_away.set(true);
    // It was written in second 1, and its next use was to be announced two seconds later: it may have been used as late.
    for (second, is_there) in [(5, true), (IDLE + 3, true), (IDLE + 4, false)] {
        world.now_us = u64::from(second) * 1_000_000;
        let left = usize::from(is_there);
        let passed = pass(&mut world, key.clone(), LOOKS);
        assert_eq!(passed, (left, 1 - left), "in second {second}");
    }
}

#[test]
fn a_packet_that_writes_by_what_stays_here_is_called_again_as_it_came() {
    let mut world = one_instance(client);
    let pair = PAIRS_FROM as u16 - 1_000;
    // Three that read, of which the first one asks the store and the second one the cache; then one that writes.
    for number in (0..10).flat_map(|round| [0, 2, 4, 1].map(|number| round * 8 + number)) {
        let sent = packet(pair, number);
        let now = Time::from_micros(world.now_us);
        assert!(world.instances[0].inject(now, PortNumber(0), &sent));
        (0..100).for_each(|_| world.turn());
        let left = world.left_of(0, 0);
        assert_eq!(left.len(), 1, "packet {number}");
        assert_eq!(left[0][34..36], [0, 0], "both were the same");
        assert_eq!(
            left[0][36..38],
            sent[36..38],
            "its other port is as it came"
        );
    }
    let tally = world.instances[0].tally();
    assert!(tally.store_reads_alone >= 15, "{tally:?}");
    assert!(tally.answered_at_once >= 30, "{tally:?}");
}

/// A client with one connection, to which a test says what the store would.
pub(crate) struct Driven {
    pub(crate) client: Client<Counting, Attempt>,
    tickets: u64,
    pub(crate) now_us: u64,
}

pub(crate) const READS: usize = 0;
const ENDING: u8 = 1;

impl Driven {
    pub(crate) fn new(config: &ClientConfig) -> Self {
        let mut client = Client::new(&Counting, config);
        client.connected(READS);
        client.set_tick(1_000);
        Self {
            client,
            tickets: 0,
            now_us: 1_000_000,
        }
    }

    /// Asks for a key: what it is answered at once, or else what is sent.
    pub(crate) fn ask(&mut self, key: u32) -> Result<Vec<u8>, Vec<u8>> {
        self.tickets += 1;
        let query = Query {
            object: ENDING,
            lane: 0,
            hash: u64::from(key),
            key: &key.to_le_bytes(),
            conversation: 0,
        };
        let ticket = Ticket::from_bits(self.tickets);
        self.client.ask(ticket, &query, self.now_us);
        if let Some(ClientEvent::Answer { answer, .. }) = self.client.next_event() {
            return Ok(answer);
        }
        Err(self.sent())
    }

    pub(crate) fn sent(&mut self) -> Vec<u8> {
        self.sent_by(READS)
    }

    pub(crate) fn sent_by(&mut self, connection: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        self.client.write(connection, self.now_us, &mut sent);
        sent
    }

    /// The store sends this. Whether it is what a store may send.
    pub(crate) fn receives(&mut self, bytes: &[u8]) -> bool {
        self.receives_by(READS, bytes)
    }

    pub(crate) fn receives_by(&mut self, connection: usize, bytes: &[u8]) -> bool {
        let (value, _) = Reply::read(bytes).expect("a value").expect("whole");
        let is_well = self.client.reply(connection, &value, self.now_us);
        while self.client.next_event().is_some() {}
        is_well
    }
}

#[test]
fn keys_are_asked_for_one_by_one_where_that_is_wanted() {
    let config = ClientConfig {
        cache: None,
        ..client(0, 1)
    };
    for (each_alone, commands) in [(false, 2), (true, 6)] {
        let mut driven = Driven::new(&config);
        if each_alone {
            driven.client.ask_each_alone();
            // A connection that was lost changes nothing.
            driven.client.lost(READS);
            driven.client.connected(READS);
        }
        let mut sent: Vec<u8> = (1..=3)
            .filter_map(|key| driven.ask(key).err())
            .collect::<Vec<_>>()
            .concat();
        // Nothing waits for replies but two commands at most, unless each is alone.
        for key in 4..=6 {
            let query = Query {
                object: ENDING,
                lane: 0,
                hash: key,
                key: &(key as u32).to_le_bytes(),
                conversation: 0,
            };
            driven
                .client
                .ask(Ticket::from_bits(100 + key), &query, driven.now_us);
        }
        sent.extend(driven.sent());
        let count = sent.windows(4).filter(|bytes| *bytes == b"MGET").count();
        assert_eq!(count, commands);
        for _ in 0..commands {
            assert!(driven.receives(b"*1\r\n_\r\n"));
        }
        assert_eq!(driven.sent().is_empty(), each_alone);
    }
}

/// The reply with the entry of a key whose next use is announced in that second.
fn entry(key: u32, touch_due: u32) -> Vec<u8> {
    [b"*1\r\n".to_vec(), string(&answer(key, touch_due))].concat()
}

/// What a store has under the key of that entry.
pub(crate) fn answer(key: u32, touch_due: u32) -> Vec<u8> {
    let mut answer = vec![9, 0];
    answer.extend(key.to_le_bytes());
    answer.extend(7_u32.to_le_bytes());
    answer.push(0);
    answer.extend(touch_due.to_le_bytes());
    answer
}

pub(crate) fn string(bytes: &[u8]) -> Vec<u8> {
    let mut string = format!("${}\r\n", bytes.len()).into_bytes();
    string.extend(bytes);
    string.extend(b"\r\n");
    string
}

#[test]
fn an_entry_that_has_ended_is_asked_for() {
    let mut driven = Driven::new(&client(0, 1));
    assert!(driven.ask(5).is_err());
    // Eight seconds after its last use, which may have been as late.
    assert!(driven.receives(&entry(5, 1_002)));
    for (tick, is_kept) in [(1_000, true), (1_010, true), (1_011, false)] {
        driven.client.set_tick(tick);
        assert_eq!(driven.ask(5).is_ok(), is_kept, "in second {tick}");
    }
}

#[test]
fn what_a_store_tells_is_taken_for_no_reply() {
    let mut driven = Driven::new(&client(0, 1));
    for (heard, is_kept) in [
        (&b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nx\r\n"[..], true),
        (b">3\r\n+message\r\n+a\r\n+b\r\n", true),
        (
            b">2\r\n$10\r\ninvalidate\r\n*2\r\n+a\r\n$18\r\n{counting}1:0:\x05\0\0\0\r\n",
            false,
        ),
        (b">2\r\n$10\r\ninvalidate\r\n_\r\n", false),
    ] {
        assert!(driven.ask(5).is_err());
        // It comes between the command and its reply.
        assert!(driven.receives(heard));
        assert!(driven.receives(&entry(5, 1_002)));
        assert!(driven.ask(5).is_ok());
        assert!(driven.receives(heard));
        let text = String::from_utf8_lossy(heard);
        assert_eq!(driven.ask(5).is_ok(), is_kept, "{text}");
        if !is_kept {
            assert!(driven.receives(&entry(5, 1_002)));
        }
        driven.client.lost(READS);
        driven.client.connected(READS);
    }
    for heard in [
        &b">2\r\n$10\r\ninvalidate\r\n:1\r\n"[..],
        b">1\r\n$10\r\ninvalidate\r\n",
        b">2\r\n$10\r\ninvalidate\r\n*1\r\n:1\r\n",
        b">0\r\n",
    ] {
        assert!(
            !driven.receives(heard),
            "{}",
            String::from_utf8_lossy(heard)
        );
    }
    // One that commits hears nothing.
    let (value, _) = Reply::read(b">2\r\n$10\r\ninvalidate\r\n_\r\n")
        .unwrap()
        .unwrap();
    assert!(!driven.client.reply(1, &value, driven.now_us));
}

#[test]
fn the_store_is_asked_often_enough_for_what_is_kept_to_be_given_out() {
    let mut driven = Driven::new(&client(0, 1));
    assert_eq!(driven.client.next_due_us(), None);
    assert!(driven.ask(5).is_err());
    assert!(driven.receives(&entry(5, 1_002)));
    let mut asked = 0;
    for _ in 0..40 {
        driven.now_us += 50;
        let due = driven.client.next_due_us().expect("something is kept");
        let sent = driven.sent();
        assert_eq!(sent.is_empty(), due > driven.now_us);
        if !sent.is_empty() {
            assert_eq!(sent, b"*1\r\n$4\r\nPING\r\n");
            assert!(driven.client.awaits_reply(READS) && driven.client.is_waiting());
            assert!(driven.receives(b"+PONG\r\n"));
            asked += 1;
        }
        assert!(driven.ask(5).is_ok());
    }
    assert_eq!(asked, 8, "in twice the staleness");
    // It falls silent.
    driven.now_us += STALENESS.as_micros() as u64 + 1;
    assert!(driven.ask(5).is_err());
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
pub(crate) const TESTS: [fn(); 7] = [
    a_packet_that_writes_by_what_stays_here_is_called_again_as_it_came,
    an_entry_that_stays_here_is_not_found_once_it_has_ended,
    what_is_read_of_several_keys_was_so_at_one_time,
    known_flows_go_on_while_the_store_is_away_as_long_as_they_may,
    what_is_kept_is_never_staler_than_it_may_be,
    an_entry_that_has_ended_is_asked_for,
    what_a_store_tells_is_taken_for_no_reply,
];

/// The same, of bugs of the instance that keeps entries.
#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_entries_that_stay_are_found() {
    use asterism_engine::mutant as engine;
    use asterism_state::mutant as state;

    let finds = || {
        let mut tests = TESTS.iter();
        tests.any(|test| std::panic::catch_unwind(*test).is_err())
    };
    for planted in [
        engine::Mutant::KeptHoweverOld,
        engine::Mutant::RetractedAsEdited,
    ] {
        engine::select(Some(planted));
        let is_found = finds();
        engine::select(None);
        assert!(is_found, "{planted:?} survived");
    }
    state::select(Some(state::Mutant::KeptOutlivesItsEnd));
    let is_found = finds();
    state::select(None);
    assert!(is_found, "it survived");
}
