//! Sums in a store: what a packet adds counts once and only if the packet is committed, over wires that break and deaths.

use std::time::Duration;

use asterism_function::{
    Ask, Builder, Counter, Counters, Late, Map, NetworkFunction, PortNumber, Reason, Register,
    Value, Vector, Verdict, Wire, state,
};
use asterism_remote_store::ClientConfig;

use crate::tills::number_of;
use crate::wires::Faults;
use crate::world::{Setup, World, cached, client_of};

const PLACES: u32 = 8;
/// Flows that have a sum of their own.
const FLOWS_MAX: u32 = 6;
const STALENESS: Duration = Duration::from_millis(10);
/// Packets that write an entry count so much, others 1.
const WITH_ENTRY: u64 = 1 << 20;

/// What a packet does, by its number.
const READS: u32 = 3;
const ADDS: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub(crate) struct Count(u32);

/// Packets whose number can be divided by this count up a register.
const COUNTED: u32 = 20;

/// Of four packets two write an entry and add to sums, the third adds alone and reads nothing, and the fourth takes with it what the sum of its
/// flow is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meters;

#[state]
pub(crate) struct Metered {
    seen: Map<u32, ()>,
    packets: Counter,
    by_flow: Counters<u32>,
    places: Vector,
    counted: Register<Count>,
}

impl NetworkFunction for Meters {
    type State = Metered;
    fn state(&self, builder: &Builder) -> Metered {
        builder.writing(2, &[]);
        Metered {
            seen: builder.table("seen", 1 << 16, &[0]),
            packets: builder.counter("packets"),
            by_flow: builder.counters("by_flow", FLOWS_MAX),
            places: builder.vector("places", PLACES),
            counted: builder.register("counted", Count(7)),
        }
    }
    fn packet(&self, ask: Ask<'_, Metered>) -> Result<Verdict, Late> {
        let number = number_of(ask.packet().bytes());
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let flow = u32::from(flow.source_port);
        let forward = Ok(Verdict::Forward(PortNumber(0)));
        match number % 4 {
            READS => {
                let (of_flow, all) = ask.all((ask.by_flow.get(&flow), ask.packets.get()))?;
                let mut act = ask.act()?;
                assert!(of_flow <= all);
                act.packet.set_source_port(of_flow as u16);
                forward
            }
            ADDS => {
                let mut act = ask.act()?;
                act.packets.add(1);
                act.places.add(4 + flow % 4, -1);
                forward
            }
            _ => {
                let (seen, of_flow) = ask.all((ask.seen.entry(number), ask.by_flow.find(&flow)))?;
                let Some(of_flow) = of_flow else {
                    return Ok(Verdict::Drop(Reason::RateLimited));
                };
                let is_counted = number.is_multiple_of(COUNTED);
                let counted = match is_counted {
                    true => ask.counted.get()?,
                    false => Count(0),
                };
                let mut act = ask.act()?;
                if is_counted {
                    act.counted.set(Count(counted.0 + 1));
                }
                act.packets.add(WITH_ENTRY);
                act.by_flow.add(&of_flow, 1);
                act.places.add(flow % 4, 1);
                match act.seen.put(seen, ()) {
                    true => forward,
                    false => Ok(Verdict::Drop(Reason::TableFull)),
                }
            }
        }
    }
}

fn config(number: usize, commit_pipes: usize) -> ClientConfig {
    client_of(("meters", 0b1_1111), (number, commit_pipes))
}

pub(crate) fn config_cached(number: usize, commit_pipes: usize) -> ClientConfig {
    cached(config(number, commit_pipes), STALENESS)
}

fn world(
    instances: usize,
    faults: Faults,
    client: fn(usize, usize) -> ClientConfig,
) -> World<Meters> {
    let setup = Setup::of(Meters, client, faults);
    World::new(setup, instances)
}

impl World<Meters> {
    /// What the store has agrees, at any time: entries, and all sums over what wrote them. How many packets only added.
    fn check(&self) -> u64 {
        let entries = self.integer(&[b"ZCOUNT", b"{meters}0:ends", b"-inf", b"+inf"]);
        let packets = self.hash_fields(b"{meters}1:sums");
        let packets = packets.get(&b"0"[..]).copied().unwrap_or(0) as u64;
        let by_flow: i64 = self.hash_fields(b"{meters}2:sums").values().sum();
        let places = self.hash_fields(b"{meters}3:sums");
        let (mut with_entry, mut added) = (0, 0);
        for (place, sum) in places {
            match place[0] - b'0' {
                0..4 => with_entry += sum,
                _ => added -= sum,
            }
        }
        let at = self.now_us;
        let found = (packets / WITH_ENTRY, by_flow, with_entry);
        assert_eq!(found, (entries as u64, entries, entries), "at {at} µs");
        assert_eq!(packets % WITH_ENTRY, added as u64, "at {at} µs");
        let mut counted = 0;
        self.each_reply(
            &[b"ZRANGEBYSCORE", b"{meters}0:ends", b"-inf", b"+inf"],
            &mut |row| {
                let number = u32::from_le_bytes(
                    *row.bytes().expect("a row").first_chunk().expect("a number"),
                );
                counted += u32::from(number.is_multiple_of(COUNTED));
            },
        );
        let mut register = 7;
        self.each_reply(&[b"GET", b"{meters}4:0:"], &mut |value| {
            let value = value.bytes().and_then(<[u8]>::last_chunk);
            register = value.map_or(register, |value| u32::from_le_bytes(*value));
        });
        assert_eq!(register, 7 + counted, "at {at} µs");
        added as u64
    }

    fn pass(&mut self, us: u64) {
        self.turn_for(us);
        self.check();
    }
}

/// Packets that left, by what they do.
fn left(world: &World<Meters>) -> [u64; 4] {
    let mut left = [0; 4];
    for bytes in world.left_by(0) {
        left[(number_of(&bytes) % 4) as usize] += 1;
    }
    left
}

fn what_is_added_counts_once_over_wires_that_break() {
    let mut broken = 0;
    for delay_us in [60, 200, 800] {
        let mut world = world(3, Faults::breaking(300, delay_us), config);
        for number in 0..600_u32 {
            world.send_packet((number % 5) as u16, number, (number * 7 % 3) as usize);
            world.pass(150);
        }
        world.end();
        let [first, second, added, read] = left(&world);
        let dropped: u64 = world
            .instances
            .iter()
            .map(|one| one.tally().dropped_total())
            .sum();
        assert_eq!((dropped, first, second, read), (0, 150, 150, 150));
        assert_eq!((world.check(), added), (150, 150));
        broken += world.broken();
    }
    assert!(broken > 300, "{broken} broken connections show little");
}

fn what_is_added_agrees_with_entries_over_deaths() {
    let mut world = world(4, Faults::breaking(400, 300), config);
    let mut all_left = [0; 4];
    for number in 0..1_200_u32 {
        world.send_packet((number % 6) as u16, number, (number * 5 % 4) as usize);
        world.pass(100);
        if number % 100 == 99 {
            let some = left(&world);
            (0..4).for_each(|kind| all_left[kind] += some[kind]);
            world.replace((number / 100 % 4) as usize);
        }
    }
    world.end();
    let some = left(&world);
    (0..4).for_each(|kind| all_left[kind] += some[kind]);
    let added = world.check();
    assert!(
        added >= all_left[2] && added <= 300,
        "{added} of {all_left:?}"
    );
    let entries = world.integer(&[b"ZCOUNT", b"{meters}0:ends", b"-inf", b"+inf"]) as u64;
    assert!(entries >= all_left[0] + all_left[1] && entries <= 600);
    assert!(
        entries > 150 && added > 150,
        "{entries} and {added} show little"
    );
}

/// Of a batch one packet is refused and another one is committed: what the first one adds is not added until it is called again.
fn a_refused_packet_adds_nothing_beside_others() {
    let mut refused = 0;
    for turns in 0..30 {
        let mut world = world(2, Faults::none(100), config);
        // Both count up the register, and one of them has read what the other one writes.
        world.send_packet(0, 0, 0);
        world.send_packet(1, COUNTED, 1);
        (0..turns).for_each(|_| world.turn());
        world.send_packet(2, ADDS, 0);
        world.send_packet(3, 4 + ADDS, 1);
        world.end();
        assert_eq!(left(&world), [2, 0, 2, 0]);
        assert_eq!(world.check(), 2);
        let instances = world.instances.iter();
        refused += instances.map(|one| one.tally().store_refusals).sum::<u64>();
    }
    assert!(refused >= 15, "{refused} were refused");
}

/// Somebody wrote a string where sums are: the store makes a batch without them, which is counted, and no packet waits for it.
fn what_the_store_makes_in_part_is_counted() {
    let mut world = world(1, Faults::none(100), config);
    world.send_packet(0, ADDS, 0);
    world.end();
    assert_eq!(world.tallies()[0].torn, 0);
    world.ask(&[b"SET", b"{meters}1:sums", b"not a hash"]);
    for number in 1..4 {
        world.send_packet(0, 4 * number + ADDS, 0);
        world.end();
    }
    assert_eq!(left(&world)[ADDS as usize], 4);
    assert_eq!(world.tallies()[0].torn, 3);
}

/// No key begins for which there is no room, as far as the store's answer says; and a packet that was dropped has added nothing.
fn keys_without_room_do_not_begin() {
    let mut world = world(1, Faults::none(100), config);
    for flow in 0..FLOWS_MAX + 3 {
        world.send_packet(flow as u16, 4 * flow, 0);
        world.end();
    }
    assert_eq!(left(&world)[0], u64::from(FLOWS_MAX));
    assert_eq!(
        world.hash_fields(b"{meters}2:sums").len(),
        FLOWS_MAX as usize
    );
    world.check();
    // Those that have begun go on.
    world.send_packet(0, 400, 0);
    world.end();
    assert_eq!(left(&world)[0], 1);
}

/// A sum that was answered is given out for the staleness, and no longer.
fn sums_that_are_kept_are_as_old_as_they_may_be() {
    let mut world = world(2, Faults::none(100), config_cached);
    let read = |world: &mut World<Meters>, number: u32| {
        world.send_packet(1, 4 * number + READS, 0);
        world.end();
        let left = world.left_by(0);
        u16::from_be_bytes([left[0][34], left[0][35]])
    };
    world.send_packet(1, 0, 1);
    world.end();
    world.left_by(0);
    assert_eq!(read(&mut world, 0), 1);
    for number in 1..4 {
        world.send_packet(1, 4 * number, 1);
    }
    world.end();
    world.left_by(0);
    assert!(world.now_us < STALENESS.as_micros() as u64);
    assert_eq!(read(&mut world, 1), 1, "as it was");
    world.pass(STALENESS.as_micros() as u64);
    assert_eq!(read(&mut world, 2), 4);
    let hits: u64 = world.tallies().iter().map(|of| of.cache_hits).sum();
    assert!(hits > 0);
}

/// Packets that write nothing in the store are not committed; those that add are, by two round trips however many they are.
fn what_is_only_read_costs_no_commit() {
    let mut world = world(1, Faults::none(100), config);
    for number in 0..40 {
        world.send_packet(number as u16 % 5, 4 * number + READS, 0);
    }
    world.end();
    assert_eq!(world.tallies()[0].decided, 0);
    assert_eq!(left(&world)[3], 40);
    let before_us = world.now_us;
    for number in 0..40 {
        world.send_packet(number as u16, 4 * number + ADDS, 0);
    }
    world.end();
    assert_eq!((world.tallies()[0].decided, left(&world)[2]), (40, 40));
    let took_us = world.now_us - before_us;
    // Two batches, as there are two connections that commit.
    assert!(took_us < 10 * 2 * 100, "{took_us} µs");
}

/// Those that planted bugs are tried with.
pub(crate) const TESTS: [fn(); 7] = [
    what_the_store_makes_in_part_is_counted,
    a_refused_packet_adds_nothing_beside_others,
    what_is_added_counts_once_over_wires_that_break,
    what_is_added_agrees_with_entries_over_deaths,
    keys_without_room_do_not_begin,
    sums_that_are_kept_are_as_old_as_they_may_be,
    what_is_only_read_costs_no_commit,
];

#[test]
fn sums_in_a_store_are_those_of_committed_packets() {
    TESTS.iter().for_each(|test| test());
}
