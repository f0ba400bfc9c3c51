//! A store that says anything: half of a reply, other bytes, other numbers, what nobody asked for. What it says of entries is believed, for nobody
//! else knows them. But no instance comes to harm by it, no packet waits for ever, and all goes on once the store says what it should.

use std::sync::Arc;

use asterism_function::NetworkFunction;
use asterism_remote_store::ClientTally;
use asterism_state::hash;

use crate::kept::Counting;
use crate::meters::Meters;
use crate::sketches::Sketches;
use crate::tills::{Tills, settings};
use crate::windows::Recent;
use crate::wires::Faults;
use crate::world::{Setup, World};
use crate::{filter, kept, meters, over_wires, sketches, windows};

const PACKETS: u32 = 400;
const FLOWS: u32 = 12;
/// Packets after the last lie.
const AFTER: u32 = 100;

/// What a store may say that nobody asked for.
const OTHERS: [&[u8]; 16] = [
    b"+OK\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"_\r\n",
    b":-1\r\n",
    b":9223372036854775807\r\n",
    b"-ERR what is that\r\n",
    b"-OOM no room\r\n",
    b"$2\r\n\0\0\r\n",
    b"*1\r\n$1\r\n\xff\r\n",
    b"*2\r\n$1\r\n0\r\n*1\r\n$3\r\nkey\r\n",
    b">2\r\n$10\r\ninvalidate\r\n_\r\n",
    b">2\r\n$10\r\ninvalidate\r\n*1\r\n:1\r\n",
    b"*2147483647\r\n",
    b"$999999999999\r\n",
];

/// Has something else come than was said: half of it, some of it twice, other bytes, other numbers, something that nobody asked for.
pub(crate) fn lie(said: &mut Vec<u8>, drawn: u64) {
    let draw = |what: u64, below: usize| (hash::words(what, drawn, 0) % below as u64) as usize;
    let (at, other) = (draw(1, said.len()), OTHERS[draw(2, OTHERS.len())]);
    match draw(0, 8) {
        0 => said.truncate(at),
        1 => said[at] = draw(3, 256) as u8,
        2 => (0..8).for_each(|bit| {
            let place = draw(4 + bit, said.len());
            said[place] ^= 1 << bit;
        }),
        3 => {
            let mut rest = said[at..].iter_mut();
            if let Some(digit) = rest.find(|byte| byte.is_ascii_digit()) {
                *digit = b'0' + draw(3, 10) as u8;
            }
        }
        4 => said.extend_from_within(at..),
        5 => {
            said.truncate(at);
            said.extend(other);
        }
        6 => *said = other.to_vec(),
        _ => drop(said.splice(0..0, other.iter().copied())),
    }
}

/// Gives packets to all instances, each of one of these flows and of a number that the function is to get.
fn give<F: NetworkFunction + Send + Sync>(
    world: &mut World<F>,
    (from, packets): (u32, u32),
    number_of: fn(u32) -> u32,
) {
    for number in from..from + packets {
        let flow = (number * 7 % FLOWS) as u16;
        world.send_packet(flow, number_of(number), (number % 3) as usize);
        (0..number % 5).for_each(|_| world.turn());
    }
    world.end();
}

/// Instances of a function are lied to for a while: what their clients counted.
fn lied_to<F: NetworkFunction + Send + Sync>(
    setup: impl Fn(Faults) -> Setup<F>,
    number_of: fn(u32) -> u32,
) -> Vec<ClientTally> {
    let mut tallies = Vec::new();
    // Delays that differ make runs that do.
    for delay_us in [100, 101] {
        for lies_of in [2, 20] {
            let mut world = World::new(setup(Faults::none(delay_us)), 3);
            world.store.lies_of.set(lies_of);
            give(&mut world, (0, PACKETS), number_of);
            world.store.lies_of.set(0);
            // What was kept of lies is kept no longer than that.
            world.turn_for(1_000_000);
            world.left_by(0);
            give(&mut world, (PACKETS, AFTER), number_of);
            let left = world.left_by(0).len();
            assert!(
                left >= AFTER as usize / 2,
                "{left} packets left, one lie of {lies_of}, {delay_us} µs"
            );
            tallies.extend(world.tallies());
        }
    }
    tallies
}

/// Lies were noticed: replies that are none to what was asked.
fn noticed(tallies: &[ClientTally]) {
    let nonsense: u64 = tallies.iter().map(|of| of.nonsense).sum();
    assert!(nonsense > 100, "{nonsense} replies were seen to be none");
}

/// Of the function of counters no packet that compares them: that they agree is what it asserts.
fn without_comparing(number: u32) -> u32 {
    number / 3 * 4 + number % 3
}

#[test]
fn tables_in_a_store_that_lies() {
    for client in [over_wires::config, over_wires::filtering] {
        let setup = |faults| Setup {
            function: Arc::new(Tills(1_000)),
            settings,
            client,
            commit_pipes: 2,
            faults,
            ports: 1,
            shards: 1,
        };
        noticed(&lied_to(setup, |number| number));
    }
}

#[test]
fn kept_answers_of_a_store_that_lies() {
    for client in [kept::client, filter::filtering_client] {
        let setup = |faults| Setup::of(Counting, client, faults);
        noticed(&lied_to(setup, |number| number));
    }
}

#[test]
fn sums_in_a_store_that_lies() {
    let sketches = |faults| Setup::of(Sketches, sketches::config_cached, faults);
    noticed(&lied_to(sketches, |number| number));
    let meters = |faults| Setup::of(Meters, meters::config_cached, faults);
    noticed(&lied_to(meters, without_comparing));
    let windows = |faults| Setup::of(Recent, windows::config, faults);
    noticed(&lied_to(windows, |number| number));
}
