//! Entries that sums count, and whose end is committed: each ends once, even if instances die, and no sum is ever otherwise than its entries.

use std::sync::Arc;

use asterism_embedded_store::Keyspace;
use asterism_function::{
    Ask, Builder, Late, Map, NetworkFunction, PortNumber, Reason, Value, Vector, Verdict, Wire,
    state,
};
use asterism_placement::Time;
use asterism_remote_store::ClientConfig;
use asterism_resp::Value as Reply;
use asterism_state::{Home, ObjectSettings, Single};

use crate::kept::{self, Driven, answer, string};
use crate::tills::{number_of, packet};
use crate::wires::Faults;
use crate::world::{SEED, Setup, World};

/// Rooms, of which each has a sum.
const ROOMS: u32 = 8;
/// Seconds.
const IDLE: u32 = 4;
const SECOND_US: u64 = 1_000_000;
/// Packets with greater numbers show the way out.
const LEAVES_FROM: u32 = 1 << 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub(crate) struct Guest(u32);

/// Guests, by the ports of their packets, come to rooms. Each packet takes with it how many guests its room had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rooms {
    counts: bool,
}

#[state]
pub(crate) struct House {
    guests: Map<u32, Guest>,
    rooms: Vector,
}

impl NetworkFunction for Rooms {
    type State = House;
    fn state(&self, builder: &Builder) -> House {
        builder.writing(1, &[]);
        let mut guests = builder.table("guests", 4_096, &[IDLE]);
        let mut rooms = builder.own_vector("rooms", ROOMS);
        if self.counts {
            guests.counted_in(&mut rooms, |guest: &Single<u32>| guest.0 % ROOMS);
        }
        House { guests, rooms }
    }
    fn packet(&self, ask: Ask<'_, House>) -> Result<Verdict, Late> {
        let number = number_of(ask.packet().bytes());
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let guest = u32::from(flow.source_port);
        let (known, there) = ask.all((ask.guests.entry(guest), ask.rooms.get(guest % ROOMS)))?;
        let at = match number < LEAVES_FROM {
            true => None,
            false => ask.guests.get(&guest)?,
        };
        let mut act = ask.act()?;
        match at {
            Some(at) => act.guests.remove(&at),
            None if number >= LEAVES_FROM => {}
            None if act.guests.put(known, Guest(number)) => {}
            None => return Ok(Verdict::Drop(Reason::TableFull)),
        }
        act.packet.set_source_port(there as u16);
        Ok(Verdict::Forward(PortNumber(0)))
    }
}

pub(crate) fn settings(name: &str) -> ObjectSettings {
    match name {
        "guests" => ObjectSettings {
            home: Home::Remote,
            ..ObjectSettings::LOCAL
        },
        _ => ObjectSettings::LOCAL,
    }
}

pub(crate) fn config(number: usize, commit_pipes: usize) -> ClientConfig {
    ClientConfig {
        function: "rooms".to_owned(),
        client: format!("0.1.{number}"),
        seed: SEED,
        objects: 1,
        commit_pipes,
        cache: None,
        shard: None,
    }
}

fn world(instances: usize, faults: Faults) -> World<Rooms> {
    world_of(Rooms { counts: true }, instances, faults)
}

fn world_of(rooms: Rooms, instances: usize, faults: Faults) -> World<Rooms> {
    let setup = Setup {
        function: Arc::new(rooms),
        settings,
        client: config,
        commit_pipes: 2,
        faults,
        ports: 1,
        shards: 1,
    };
    World::new(setup, instances)
}

impl World<Rooms> {
    /// Guests of each room, by the rows of the set of ends.
    fn guests(&self) -> [i64; ROOMS as usize] {
        let rows = self.strings(&[b"ZRANGEBYSCORE", b"{rooms}0:ends", b"-inf", b"+inf"]);
        let mut guests = [0; ROOMS as usize];
        for row in rows {
            let guest = u32::from_le_bytes(*row.first_chunk().expect("a row is a number"));
            guests[(guest % ROOMS) as usize] += 1;
        }
        guests
    }

    /// What the sums say.
    fn sums(&self) -> [i64; ROOMS as usize] {
        let fields = self.strings(&[b"HGETALL", b"{rooms}1:sums"]);
        let number = |text: &[u8]| -> i64 {
            let text = core::str::from_utf8(text).expect("digits");
            text.parse().expect("a number")
        };
        let mut sums = [0; ROOMS as usize];
        for pair in fields.chunks(2) {
            sums[number(&pair[0]) as usize] = number(&pair[1]);
        }
        sums
    }

    /// Entries that are found.
    fn found(&self) -> usize {
        let keys = self.strings(&[
            b"SCAN",
            b"0",
            b"MATCH",
            b"{rooms}0:0:*",
            b"COUNT",
            b"100000",
        ]);
        // The first one is the cursor.
        keys.len() - 1
    }

    /// All that is in the store agrees: it is written at once or not at all.
    fn check(&self) {
        let (guests, sums) = (self.guests(), self.sums());
        assert_eq!(sums, guests, "at {} µs", self.now_us);
    }

    /// Passes a while, in steps of a millisecond. An instance that sleeps is woken less often still.
    fn pass(&mut self, us: u64) {
        self.pass_unchecked(us);
        self.check();
    }

    fn pass_unchecked(&mut self, us: u64) {
        let until_us = self.now_us + us;
        while self.now_us < until_us {
            self.now_us += 1_000;
            self.turn();
        }
    }

    fn send(&mut self, guest: u32, number: u32, to: usize) {
        let now = Time::from_micros(self.now_us);
        let bytes = packet(guest as u16, number);
        let to = to % self.instances.len();
        assert!(self.instances[to].inject(now, PortNumber(0), &bytes));
    }
}

/// Ends that the clients committed, of instances that died as well.
fn ended(world: &World<Rooms>) -> u64 {
    world.tallies().iter().map(|of| of.ends_committed).sum()
}

fn guests_come_and_go_and_are_counted_once() {
    let mut world = world(3, Faults::none(200));
    for number in 0..400 {
        world.send(number, number, number as usize);
        world.pass(1_000);
    }
    world.pass(100_000);
    assert_eq!(world.guests().iter().sum::<i64>(), 400);
    let left = world.left_by(0);
    assert_eq!(left.len(), 400);
    // Each learnt how many had come before.
    let learnt = left
        .iter()
        .map(|bytes| u16::from_be_bytes([bytes[34], bytes[35]]));
    assert!(learnt.max().expect("some left") >= 48);
    for number in 0..100 {
        world.send(number, LEAVES_FROM + number, number as usize * 7);
    }
    world.pass(SECOND_US);
    assert_eq!(world.guests().iter().sum::<i64>(), 300);
    // One stays: it is used again and again.
    for number in 0..12 {
        world.send(399, 1_000 + number, number as usize);
        world.pass(SECOND_US);
    }
    assert_eq!(world.guests().iter().sum::<i64>(), 1);
    assert_eq!((ended(&world), world.found()), (299, 1));
    world.pass(10 * SECOND_US);
    assert_eq!((ended(&world), world.found()), (300, 0));
    assert_eq!(world.sums(), [0; ROOMS as usize]);
}

fn ends_are_committed_once_over_wires_that_break_and_deaths() {
    let mut world = world(4, Faults::breaking(400, 300));
    let mut drawn = 1u32;
    let mut draw = |below: u32| {
        drawn = drawn.wrapping_mul(0x2C92_77B5).wrapping_add(0xAC56_4B05);
        (drawn >> 8) % below
    };
    let mut number = 0;
    for round in 0..30 {
        for _ in 0..40 {
            number += 1;
            let leaves = draw(8) == 0;
            let packet = if leaves { LEAVES_FROM + number } else { number };
            world.send(draw(300), packet, draw(4) as usize);
            world.pass(u64::from(draw(5)) * 1_000);
        }
        if round % 3 == 0 {
            world.replace(draw(4) as usize);
        }
        world.pass(u64::from(draw(3)) * SECOND_US);
    }
    assert!(ended(&world) > 200, "{} ended", ended(&world));
    assert!(world.broken() > 100, "{} broke", world.broken());
    world.pass(15 * SECOND_US);
    assert_eq!(world.sums(), [0; ROOMS as usize]);
    assert_eq!(world.found(), 0);
}

/// One client after the other has the store's word; the death of one that had it costs some seconds.
fn one_that_dies_is_followed_by_another() {
    let mut world = world(2, Faults::none(100));
    for guest in 0..50 {
        world.send(guest, guest, 0);
    }
    world.pass(SECOND_US);
    let word = world.strings(&[b"MGET", b"{rooms}0:word"]);
    let number = usize::from(word[0].ends_with(b"0.1.1:0"));
    world.replace(number);
    world.pass(12 * SECOND_US);
    assert_eq!(world.sums(), [0; ROOMS as usize]);
    assert_eq!(ended(&world), 50);
}

/// A store without room gives its word to nobody, and takes ends.
#[test]
fn entries_of_a_full_store_end() {
    let mut world = world_of(Rooms { counts: false }, 2, Faults::none(100));
    *world.store.keyspace.borrow_mut() = Keyspace::new(20_000);
    let mut number = 0;
    let mut come = |world: &mut World<Rooms>| {
        for _ in 0..400 {
            number += 1;
            world.send(number, number, number as usize);
            world.pass_unchecked(1_000);
        }
        world.pass_unchecked(3 * SECOND_US);
        world.left_by(0).len()
    };
    let before = come(&mut world);
    assert!((20..200).contains(&before), "{before}");
    assert!(world.store.keyspace.borrow().is_full());
    world.pass_unchecked(12 * SECOND_US);
    assert_eq!((ended(&world), world.found()), (before as u64, 0));
    assert!(come(&mut world) >= 20);
}

/// Of entries that are over, one that a packet uses before they are ended goes on.
fn what_is_used_while_others_end_stays() {
    const GUESTS: u32 = 200;
    let mut world = world(2, Faults::none(40_000));
    for guest in 0..GUESTS {
        world.send(guest, guest, guest as usize);
        world.pass(1_000);
    }
    world.pass(13 * SECOND_US / 2 - world.now_us);
    // Each second one, in an order of no kind.
    for number in 0..GUESTS / 2 {
        let guest = number * 77 % (GUESTS / 2) * 2;
        world.send(guest, 1_000 + guest, guest as usize);
        world.pass(20_000);
    }
    world.pass(2 * SECOND_US);
    // Those that had ended came again.
    assert_eq!(world.found(), GUESTS as usize / 2);
    let ended = ended(&world);
    assert!(ended >= u64::from(GUESTS / 2), "{ended}");
}

/// Between the look for entries that are over and the read of one a packet may use it.
fn one_that_was_used_since_stays() {
    const COMMITS: usize = 1;
    for (touch_due, ends) in [(1_002, true), (1_018, false)] {
        let mut driven = Driven::new(&kept::client(0, 1));
        driven.client.connected(COMMITS);
        driven.client.set_tick(1_020);
        let looked = driven.sent_by(COMMITS);
        let (look, _) = Reply::read(&looked).expect("a command").expect("whole");
        let Reply::Array(words) = look else {
            panic!("{look:?}");
        };
        let names: Vec<Vec<u8>> = words.filter_map(|one| one.bytes().map(Vec::from)).collect();
        let row = string(&5_u32.to_le_bytes());
        let replies = [
            b"+OK\r\n".to_vec(),
            string(&names[2]),
            [b"*1\r\n".to_vec(), row].concat(),
        ];
        for reply in replies {
            assert!(driven.receives_by(COMMITS, &reply));
        }
        let loaded = String::from_utf8_lossy(&driven.sent_by(COMMITS)).into_owned();
        assert!(loaded.contains("WATCH"), "{loaded}");
        let entry = string(&answer(5, touch_due));
        assert!(driven.receives_by(COMMITS, b"+OK\r\n"));
        let entries = [b"*2\r\n$-1\r\n".to_vec(), entry].concat();
        assert!(driven.receives_by(COMMITS, &entries));
        let ended = String::from_utf8_lossy(&driven.sent_by(COMMITS)).into_owned();
        assert!(ended.contains("EXEC"), "{ended}");
        assert_eq!(ended.contains("DEL"), ends, "{ended}");
    }
}

/// Those that planted bugs are tried with.
pub(crate) const TESTS: [fn(); 5] = [
    one_that_was_used_since_stays,
    what_is_used_while_others_end_stays,
    guests_come_and_go_and_are_counted_once,
    ends_are_committed_once_over_wires_that_break_and_deaths,
    one_that_dies_is_followed_by_another,
];

#[test]
fn entries_end_once_with_their_sums() {
    TESTS.iter().for_each(|test| test());
}
