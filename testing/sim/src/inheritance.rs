//! Members die, or are only cut off, and what they held of a pool is dealt on; then they return and get it back.
//!
//! A [cluster of its own](crate::estate), with times so short that all of it happens within two minutes of its clock: flows open and
//! talk everywhere, also at members that are cut off and know of nothing; epochs reach each member at another moment. At every moment
//! no block may be granted from by two running processes, no port may be given to a flow while another has it and has talked within
//! its idle time, no flow that talks may lose its port, no group may be applied twice, and no ended entry may return. In the end all
//! that the dead held must have been given out again, and come back.
//!
//! In every other one several members are outside at once, and hear each other: one lease less than those they leave, as many, or more.

use std::time::Duration;

use asterism_placement::replicated::Delivery;
use asterism_state::BLOCK_ITEMS;

use crate::estate::{End, Estate, LEASE};
use crate::exercise::Sizes;
use crate::report::Failure;
use crate::scenario::{Draws, Scenario};

/// One seed in so many has an inheritance.
const ONE_IN: u64 = 20;
/// Of so many of them one has several members that go.
const SEVERAL_EVERY: u64 = 2;
/// How long flows go on after the last time that they must have been given out again.
const MARGIN: Duration = Duration::from_secs(3);

/// Who goes, and how the others find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// One of any number.
    One,
    /// Several at once, who are fewer than half.
    Together,
    /// Half of all: nobody may inherit before one of them is known to have ended.
    Half,
    /// One is known to have ended; when all that it held was given out again, another one goes.
    OneAfterAnother,
    /// More than half: those who are left stop, and nobody inherits.
    Most,
}

/// Whether this scenario has one.
pub(crate) fn is_due(scenario: &Scenario) -> bool {
    scenario.seed % ONE_IN == 8
}

/// The seeds that have one, in order.
#[cfg(asterism_mutants)]
pub(crate) fn nth_seed(number: u64) -> u64 {
    number * ONE_IN + 8
}

/// An inheritance, and what must hold in it.
///
/// # Errors
/// The first check that did not hold.
pub(crate) fn live_through(scenario: &Scenario) -> Result<(), Failure> {
    let mut draws = Draws::new(scenario.seed, 11);
    let mut scenario = scenario.clone();
    scenario.sizes = Sizes {
        tokens: 60_000,
        entries: 4_096,
        ports: draws.within(6, 14) as u32 * BLOCK_ITEMS + draws.within(0, 63) as u32,
        idle: [draws.within(1, 3) as u32, 1],
        ..scenario.sizes.clone()
    };
    (scenario.bounds.log_groups, scenario.bounds.log_bytes) = (8_192, 262_144);
    let several = scenario.seed / ONE_IN % SEVERAL_EVERY == 1;
    let course = match several {
        false => Course::One,
        true => draws.one_of(&[
            Course::Together,
            Course::Together,
            Course::Half,
            Course::Half,
            Course::OneAfterAnother,
            Course::OneAfterAnother,
            Course::Most,
        ]),
    };
    let gone = match course {
        Course::One => 1,
        _ => enlarge(&mut scenario, &mut draws, course),
    };
    let members = scenario.members();
    let mut ways = vec![End::Killed];
    if members > 2 {
        ways.extend([End::Silent, End::CutOff, End::CutOff]);
    }
    let all_cut_off = matches!(course, Course::Half | Course::Most)
        || course == Course::Together && draws.percent(60);
    let mut places: Vec<usize> = (0..members).collect();
    let mut victims = Vec::new();
    for _ in 0..gone {
        let end = match all_cut_off {
            true => End::CutOff,
            false => draws.one_of(&ways),
        };
        let chosen = draws.within(0, places.len() as u64 - 1) as usize;
        victims.push((places.remove(chosen), end));
    }
    let mut estate = Estate::new(scenario, draws);
    estate.pass(Duration::from_millis(400))?;
    estate.found()?;
    estate.pass(Duration::from_millis(600))?;
    match course {
        Course::One | Course::Together => leave_at_once(&mut estate, &victims)?,
        Course::Half => leave_as_half(&mut estate, &victims, &places)?,
        Course::OneAfterAnother => {
            victims[0].1 = End::Killed;
            for victim in &victims {
                leave_at_once(&mut estate, &[*victim])?;
            }
        }
        Course::Most => {
            estate.go(&victims)?;
            estate.leave(&victims)?;
            estate.pass(estate.wait(false) + MARGIN)?;
            let outside: Vec<usize> = victims.iter().map(|victim| victim.0).collect();
            estate.grants(&outside, true)?;
            estate.grants(&places, false)?;
            estate.was_inherited(false)?;
        }
    }
    let mut returning: Vec<usize> = victims.iter().map(|victim| victim.0).collect();
    let at_once = course == Course::Most || estate.draws.percent(50);
    let first = if at_once { returning.len() } else { 1 };
    let later = returning.split_off(first);
    for some in [returning, later] {
        if !some.is_empty() {
            come_back(&mut estate, &some)?;
        }
    }
    estate.all_return()
}

/// A cluster of as many members as a course needs; tells how many of them go.
fn enlarge(scenario: &mut Scenario, draws: &mut Draws, course: Course) -> usize {
    let (members, gone) = match course {
        Course::One => (scenario.members(), 1),
        Course::Together => draws.one_of(&[(5, 2), (5, 2), (6, 2), (7, 3)]),
        Course::Half => draws.one_of(&[(4, 2), (4, 2), (6, 3)]),
        Course::OneAfterAnother => (4, 2),
        Course::Most => (5, 3),
    };
    scenario.sites = None;
    // Two minutes of seven hosts are many messages: no more of them than are needed.
    scenario.bounds.keep_alive = Duration::from_millis(50);
    scenario.bounds.flush = Duration::from_millis(20);
    scenario.bounds.acknowledge_delay = Duration::from_millis(3);
    scenario.lanes = (0..members)
        .map(|_| if draws.percent(40) { 2 } else { 1 })
        .collect();
    scenario.delivery = (0..members)
        .map(|_| match draws.percent(50) {
            true => Delivery::Ordered,
            false => Delivery::Unordered,
        })
        .collect();
    scenario.skew = (0..members).map(|_| draws.micros(0, 900_000)).collect();
    let blocks = draws.within(2, 4) as u32 * members as u32;
    scenario.sizes.ports = blocks * BLOCK_ITEMS + draws.within(0, 63) as u32;
    gone
}

/// Some go, an epoch leaves them out, and what they held is given out again.
fn leave_at_once(estate: &mut Estate, victims: &[(usize, End)]) -> Result<(), Failure> {
    estate.go(victims)?;
    estate.leave(victims)?;
    let is_proved = victims.iter().all(|(_, end)| *end == End::Killed);
    estate.pass(estate.wait(is_proved) + MARGIN)?;
    estate.was_inherited(true)
}

/// Half of all is cut off and goes on, as the other half does. Then one is known to have ended: the rest of its half loses its lease
/// from that moment on.
fn leave_as_half(
    estate: &mut Estate,
    victims: &[(usize, End)],
    others: &[usize],
) -> Result<(), Failure> {
    estate.go(victims)?;
    estate.leave(victims)?;
    estate.pass(estate.wait(false) + MARGIN)?;
    estate.was_inherited(false)?;
    estate.grants(&estate.running(), true)?;
    let (dead, rest) = victims
        .split_first()
        .map_or((0, &[][..]), |(first, rest)| (first.0, rest));
    estate.die(dead)?;
    estate.fence(dead)?;
    estate.pass(LEASE / 2)?;
    estate.grants(others, true)?;
    estate.pass(estate.wait(false) + MARGIN)?;
    let rest: Vec<usize> = rest.iter().map(|victim| victim.0).collect();
    estate.grants(&rest, false)?;
    estate.was_inherited(true)
}

/// Some return, and get what is theirs back.
fn come_back(estate: &mut Estate, places: &[usize]) -> Result<(), Failure> {
    let slow = estate.come_back(places)?;
    estate.pass(Duration::from_millis(1_500))?;
    estate.go_on(slow);
    estate.pass(Duration::from_secs(2) + MARGIN)?;
    if estate.is_any_unproved() {
        // Who returns never heard those who are still outside, and waits for their leases from when it joined.
        estate.pass(estate.wait(false))?;
    }
    estate.came_back(places)?;
    estate.was_inherited(true)
}
