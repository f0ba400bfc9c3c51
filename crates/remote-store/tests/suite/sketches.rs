//! Sketches in a store: each addition counts once in each row and in the sum of all, over wires that break, and no estimate is too small.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_function::{
    Ask, Builder, CountMin, Late, Map, NetworkFunction, PortNumber, Reason, Verdict, state,
};
use asterism_remote_store::ClientConfig;

use crate::tills::number_of;
use crate::wires::Faults;
use crate::world::{Setup, World, cached, client_of};

const STALENESS: Duration = Duration::from_millis(10);
/// Three rows of so many cells.
const ERROR: f64 = 0.02;
const DOUBT: f64 = 0.05;
const ROWS: usize = 3;
const WIDTH: usize = 136;
/// Packets that write an entry count so much, others 1.
const WITH_ENTRY: u64 = 1 << 20;
/// What a packet does, by its number.
const READS: u32 = 3;
const ADDS: u32 = 2;

/// Of four packets two write an entry and add for their flow, the third adds alone, and the fourth takes with it what the estimate of its
/// flow is: the packets that wrote an entry, and those that only added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sketches;

#[state]
pub(crate) struct Sketched {
    seen: Map<u32, ()>,
    by_flow: CountMin<u32>,
}

impl NetworkFunction for Sketches {
    type State = Sketched;
    fn state(&self, builder: &Builder) -> Sketched {
        builder.writing(1, &[]);
        Sketched {
            seen: builder.table("seen", 1 << 16, &[0]),
            by_flow: builder.count_min("by_flow", ERROR, DOUBT),
        }
    }
    fn packet(&self, ask: Ask<'_, Sketched>) -> Result<Verdict, Late> {
        let number = number_of(ask.packet().bytes());
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let flow = u32::from(flow.source_port);
        let forward = Ok(Verdict::Forward(PortNumber(0)));
        match number % 4 {
            READS => {
                let sum = ask.by_flow.get(&flow)?;
                let mut act = ask.act()?;
                act.packet.set_source_port((sum / WITH_ENTRY) as u16);
                act.packet.set_destination_port((sum % WITH_ENTRY) as u16);
                forward
            }
            ADDS => {
                ask.act()?.by_flow.add(&flow, 1);
                forward
            }
            _ => {
                let seen = ask.seen.entry(number)?;
                let mut act = ask.act()?;
                act.by_flow.add(&flow, WITH_ENTRY);
                match act.seen.put(seen, ()) {
                    true => forward,
                    false => Ok(Verdict::Drop(Reason::TableFull)),
                }
            }
        }
    }
}

fn config(number: usize, commit_pipes: usize) -> ClientConfig {
    client_of(("sketches", 0b11), (number, commit_pipes))
}

pub(crate) fn config_cached(number: usize, commit_pipes: usize) -> ClientConfig {
    cached(config(number, commit_pipes), STALENESS)
}

fn world(
    instances: usize,
    faults: Faults,
    client: fn(usize, usize) -> ClientConfig,
) -> World<Sketches> {
    let setup = Setup::of(Sketches, client, faults);
    World::new(setup, instances)
}

impl World<Sketches> {
    /// All rows have the same sum, that of all additions, and it agrees with the entries. How many packets only added.
    fn check_rows(&self) -> u64 {
        let entries = self.integer(&[b"ZCOUNT", b"{sketches}0:ends", b"-inf", b"+inf"]);
        let mut rows = [0; ROWS];
        let mut all = 0;
        for (field, sum) in self.hash_fields(b"{sketches}1:sums") {
            match core::str::from_utf8(&field).expect("words") {
                "all" => all = sum as u64,
                place => rows[place.parse::<usize>().expect("a place") / WIDTH] += sum as u64,
            }
        }
        assert_eq!(rows, [all; ROWS], "at {} µs", self.now_us);
        assert_eq!(all / WITH_ENTRY, entries as u64, "at {} µs", self.now_us);
        all % WITH_ENTRY
    }

    /// The estimate for a flow, by a packet of a number that reads.
    fn estimate(&mut self, flow: u16, number: u32) -> (u16, u16) {
        self.left_by(0);
        self.send_packet(flow, 4 * number + READS, 0);
        self.end();
        let left = self.left_by(0);
        let port = |from: usize| u16::from_be_bytes([left[0][from], left[0][from + 1]]);
        (port(34), port(36))
    }

    fn wait(&mut self, us: u64) {
        self.turn_for(us);
        self.check_rows();
    }
}

fn what_is_added_counts_once_in_each_row() {
    let mut broken = 0;
    for delay_us in [60, 300] {
        let mut world = world(3, Faults::breaking(300, delay_us), config);
        let mut sent: BTreeMap<u16, (u16, u16)> = BTreeMap::new();
        for number in 0..600_u32 {
            let flow = (number % 5) as u16;
            let of_flow = sent.entry(flow).or_default();
            match number % 4 {
                READS => {}
                ADDS => of_flow.1 += 1,
                _ => of_flow.0 += 1,
            }
            world.send_packet(flow, number, (number * 7 % 3) as usize);
            world.wait(150);
        }
        world.end();
        assert_eq!(world.left_by(0).len(), 600);
        assert_eq!(world.check_rows(), 150);
        broken += world.broken();
        for (place, (flow, sums)) in (0..).zip(sent) {
            // Of five flows none has all its cells in common with others.
            assert_eq!(world.estimate(flow, 1_000 + place), sums, "of {flow}");
        }
        assert_eq!(world.estimate(77, 2_000), (0, 0), "nobody added for it");
    }
    assert!(broken > 100, "{broken} broken connections show little");
}

fn what_is_added_agrees_with_entries_over_deaths() {
    let mut world = world(4, Faults::breaking(400, 300), config);
    for number in 0..800_u32 {
        world.send_packet((number % 6) as u16, number, (number * 5 % 4) as usize);
        world.wait(100);
        if number % 100 == 99 {
            world.replace((number / 100 % 4) as usize);
        }
    }
    world.end();
    let added = world.check_rows();
    assert!(added > 100, "{added} show little");
}

/// Of more flows than a row has cells: no estimate is too small, whatever is added beside it.
fn estimates_are_never_too_small() {
    let mut world = world(2, Faults::none(100), config);
    let flows = 3 * WIDTH as u16;
    for number in 0..u32::from(flows) {
        world.send_packet(number as u16, 4 * number + ADDS, (number % 2) as usize);
        world.turn();
    }
    world.end();
    let mut exceed = 0;
    for flow in 0..flows {
        let (with_entry, added) = world.estimate(flow, u32::from(flow));
        assert!(with_entry == 0 && added >= 1, "{added} of {flow}");
        exceed += u32::from(f64::from(added) > 1.0 + ERROR * f64::from(flows));
    }
    assert!(f64::from(exceed) <= DOUBT * f64::from(flows), "{exceed}");
}

/// An estimate that was answered is given out for the staleness, and no longer.
fn estimates_that_are_kept_are_as_old_as_they_may_be() {
    let mut world = world(2, Faults::none(100), config_cached);
    world.send_packet(1, ADDS, 1);
    world.end();
    assert_eq!(world.estimate(1, 0), (0, 1));
    for number in 1..4 {
        world.send_packet(1, 4 * number + ADDS, 1);
    }
    world.end();
    assert!(world.now_us < STALENESS.as_micros() as u64);
    assert_eq!(world.estimate(1, 1), (0, 1), "as it was");
    world.wait(STALENESS.as_micros() as u64);
    assert_eq!(world.estimate(1, 2), (0, 4));
    let hits: u64 = world.tallies().iter().map(|of| of.cache_hits).sum();
    assert!(hits > 0);
}

/// An estimate is one request, and people hear what was added in all.
fn an_estimate_is_one_request_of_a_cell_in_each_row() {
    let mut world = world(1, Faults::none(100), config);
    world.send_packet(1, ADDS, 0);
    world.end();
    assert_eq!(world.tallies()[0].keys_read, 0);
    let before_us = world.now_us;
    assert_eq!(world.estimate(1, 0), (0, 1));
    assert_eq!(world.tallies()[0].keys_read, ROWS as u64);
    let took_us = world.now_us - before_us;
    assert!(took_us < 2 * 2 * 100, "{took_us} µs");
    let total = |world: &World<Sketches>| world.instances[0].state().by_flow.total();
    assert_eq!(total(&world), 0, "it was not asked for yet");
    let until_us = world.now_us + 12_000_000;
    while world.now_us < until_us {
        world.now_us += 10_000;
        world.turn();
    }
    assert_eq!(total(&world), 1);
}

/// Those that planted bugs are tried with.
pub(crate) const TESTS: [fn(); 5] = [
    what_is_added_counts_once_in_each_row,
    what_is_added_agrees_with_entries_over_deaths,
    estimates_are_never_too_small,
    estimates_that_are_kept_are_as_old_as_they_may_be,
    an_estimate_is_one_request_of_a_cell_in_each_row,
];

#[test]
fn sketches_in_a_store_are_those_of_committed_packets() {
    TESTS.iter().for_each(|test| test());
}
