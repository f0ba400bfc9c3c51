//! Token buckets of which the spending is in a store: what all instances spend together, over wires that break, and what they do not.

use std::time::Duration;

use asterism_function::{
    Ask, Builder, Late, Map, NetworkFunction, PortNumber, Reason, Spending, TokenBucket, TokenRate,
    Verdict, state,
};
use asterism_remote_store::ClientConfig;

use crate::tills::number_of;
use crate::wires::Faults;
use crate::world::{Setup, World, cached, client_of};

const RATE: u64 = 1_000;
const BURST: u64 = 100;
/// Microseconds after which all know what was spent, at the latest: of a commit and a read by wires that take 100.
const DELAY_US: u64 = 1_500;
/// How old an answer may be that is kept.
const STALENESS: Duration = Duration::from_millis(100);
const BEGINS_S: u64 = 1_000;

/// A packet spends a token of the bucket that all have in common, and writes an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limited;

#[state]
pub(crate) struct Limits {
    seen: Map<u32, ()>,
    budget: TokenBucket<u32>,
}

impl NetworkFunction for Limited {
    type State = Limits;
    fn state(&self, builder: &Builder) -> Limits {
        builder.writing(1, &[]);
        let rate = TokenRate {
            tokens_per_second: RATE,
            burst_tokens: BURST,
        };
        Limits {
            seen: builder.table("seen", 1 << 16, &[0]),
            budget: builder.token_bucket("budget", 8, rate, Spending::Approximate),
        }
    }
    fn packet(&self, ask: Ask<'_, Limits>) -> Result<Verdict, Late> {
        let number = number_of(ask.packet().bytes());
        let (seen, tokens) = ask.all((ask.seen.entry(number), ask.budget.tokens(&7, 1)))?;
        let Some(tokens) = tokens else {
            return Ok(Verdict::Drop(Reason::RateLimited));
        };
        let mut act = ask.act()?;
        act.budget.spend(tokens);
        match act.seen.put(seen, ()) {
            true => Ok(Verdict::Forward(PortNumber(0))),
            false => Ok(Verdict::Drop(Reason::TableFull)),
        }
    }
}

fn client(number: usize, commit_pipes: usize) -> ClientConfig {
    client_of(("limits", 0b11), (number, commit_pipes))
}

/// The same, which keeps answers.
fn keeping(number: usize, commit_pipes: usize) -> ClientConfig {
    cached(client(number, commit_pipes), STALENESS)
}

fn world(instances: usize, faults: Faults) -> World<Limited> {
    World::new(Setup::of(Limited, client, faults), instances)
}

impl World<Limited> {
    fn buckets(&self) -> Vec<i64> {
        let last = BEGINS_S + self.now_us / 1_000_000 + 1;
        let keys = (BEGINS_S..=last).map(|bucket| format!("{{limits}}1:sums:{bucket}"));
        let sums = keys.map(|key| self.hash_fields(key.as_bytes()).values().sum());
        sums.filter(|sum| *sum != 0).collect()
    }

    /// What the store has as spent is what wrote entries, while no bucket was dropped.
    fn check_spent(&self) {
        let entries = self.integer(&[b"ZCOUNT", b"{limits}0:ends", b"-inf", b"+inf"]);
        let spent: i64 = self.buckets().iter().sum();
        assert_eq!(spent, entries, "at {} µs", self.now_us);
    }

    /// Sends a packet of a flow of its own each so many microseconds, to all instances in turn, for so long; when packets left.
    fn offer(&mut self, each_us: u64, for_us: u64, number: &mut u32) -> Vec<u64> {
        let until_us = self.now_us + for_us;
        let (mut next_us, mut left) = (self.now_us, Vec::new());
        let instances = self.instances.len();
        while self.now_us < until_us {
            if self.now_us >= next_us {
                next_us += each_us;
                let (flow, to) = ((*number % 5_000) as u16, *number as usize % instances);
                self.send_packet(flow, *number, to);
                *number += 1;
            }
            self.turn();
            let count = self.left_by(0).len();
            left.extend(core::iter::repeat_n(self.now_us, count));
        }
        left
    }
}

/// Over any time no more left than so many and what refills.
fn within(left: &[u64], most: u64) {
    for (place, from_us) in left.iter().enumerate() {
        for (count, to_us) in (1..).zip(&left[place..]) {
            let refilled = RATE * (to_us - from_us) / 1_000_000;
            assert!(
                count <= most + refilled + 1,
                "{count} in {} µs",
                to_us - from_us
            );
        }
    }
}

fn one_instance_spends_what_there_is() {
    let mut world = world(1, Faults::none(100));
    let left = world.offer(250, 2_000_000, &mut 0);
    // Packets leave as they are committed, some of them together.
    within(&left, BURST + RATE * DELAY_US / 1_000_000);
    let count = left.len() as u64;
    assert!(count >= BURST + RATE * 19 / 10, "{count}");
    world.check_spent();
}

fn several_instances_spend_no_more_than_stated() {
    let mut world = world(3, Faults::none(100));
    let left = world.offer(100, 3_000_000, &mut 0);
    let refilled = RATE * DELAY_US / 1_000_000;
    within(&left, 2 * BURST + 2 * (BURST + refilled));
    // What was spent twice is paid back.
    let count = left.len() as u64;
    assert!(
        (RATE * 5 / 2..=BURST + RATE * 3 + BURST).contains(&count),
        "{count}"
    );
    world.check_spent();
}

/// Packets wait for their decisions all the while: what others spent stays unknown up to the tokens of these, and not of each bucket of time again.
fn a_slow_store_raises_no_rate() {
    const WIRE_US: u64 = 15_000;
    let mut world = world(2, Faults::none(WIRE_US));
    let left = world.offer(400, 9_000_000, &mut 0);
    // A commit and a read, each of which may just miss the one before.
    let refilled = RATE * 12 * WIRE_US / 1_000_000;
    let count = left.len() as u64;
    println!("slow {count}");
    assert!(
        (RATE * 8..=BURST + RATE * 9 + BURST + refilled + BURST).contains(&count),
        "{count}"
    );
    world.end();
    world.check_spent();
}

/// The delay is longer by the age of answers, and with it the excess.
fn answers_that_are_kept_delay_no_more_than_stated() {
    let mut world = World::new(Setup::of(Limited, keeping, Faults::none(100)), 2);
    let left = world.offer(200, 3_000_000, &mut 0);
    let refilled = RATE * (DELAY_US + STALENESS.as_micros() as u64) / 1_000_000;
    within(&left, 2 * BURST + BURST + refilled);
    let count = left.len() as u64;
    assert!(
        (RATE * 5 / 2..=BURST + RATE * 3 + BURST + refilled).contains(&count),
        "{count}"
    );
    world.check_spent();
}

fn what_is_spent_counts_once_over_wires_that_break() {
    let mut world = world(3, Faults::breaking(300, 200));
    let mut number = 0;
    for _ in 0..60 {
        world.offer(500, 20_000, &mut number);
        world.check_spent();
    }
    world.end();
    world.check_spent();
    assert!(world.broken() > 20, "{}", world.broken());
}

fn an_instance_that_begins_knows_what_was_spent() {
    let mut world = world(2, Faults::none(100));
    let mut number = 0;
    let mut left = world.offer(250, 1_000_000, &mut number);
    for place in [0, 1, 0] {
        world.replace(place);
        left.extend(world.offer(250, 300_000, &mut number));
    }
    let refilled = RATE * DELAY_US / 1_000_000;
    within(&left, 2 * BURST + BURST + refilled);
    world.check_spent();
}

fn what_is_full_again_leaves_nothing_in_the_store() {
    let mut world = world(1, Faults::none(100));
    let left = world.offer(250, 50_000, &mut 0);
    assert!(!left.is_empty() && !world.buckets().is_empty());
    while world.now_us < 20_000_000 {
        world.now_us += 10_000;
        world.turn();
    }
    assert!(world.buckets().is_empty());
    assert_eq!(world.instances[0].state().budget.in_use(), 0);
}

/// Those that planted bugs are tried with.
pub(crate) const TESTS: [fn(); 7] = [
    one_instance_spends_what_there_is,
    several_instances_spend_no_more_than_stated,
    a_slow_store_raises_no_rate,
    answers_that_are_kept_delay_no_more_than_stated,
    what_is_spent_counts_once_over_wires_that_break,
    an_instance_that_begins_knows_what_was_spent,
    what_is_full_again_leaves_nothing_in_the_store,
];

#[test]
fn tokens_in_a_store_are_spent_as_seldom_as_stated() {
    TESTS.iter().for_each(|test| test());
}
