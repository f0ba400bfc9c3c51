//! The contract that every function meets, as tests: [`contract!`](crate::contract) writes a test for each clause.
//!
//! `reported.rs` has the clauses on names, events and the function's page; `shared.rs` those on placements and on hosts that
//! leave. The others are here.

mod reported;
mod shared;

use std::collections::BTreeSet;

use asterism_packet::{Layout, checksum};
use asterism_state::{State, hash};

use super::allocations::allocations;
use super::{HostileStore, Outcome, Testkit, compare_late, hostile_everywhere};
use crate::function::{NetworkFunction, PortNumber, Verdict};
use crate::observable::{reasons_of, report_of};
use crate::own::OwnEvent;
use crate::reason::Reason;
use crate::stages::objects_of;

/// One packet of a test: seconds that pass before it, the port, and the packet.
pub type Step = (u32, PortNumber, Vec<u8>);

/// What a function promises, and the packets that show it.
#[derive(Debug)]
pub struct Contract<F: NetworkFunction> {
    /// Makes the function.
    pub make: fn() -> F,
    /// Packets, in order, that make it do all that it does: with verdicts of every kind.
    pub steps: fn() -> Vec<Step>,
    /// Every reason under which it drops packets.
    pub reasons: &'static [(Reason, Reached)],
    /// Every kind of events that it tells of: all of [`Observable::events`](crate::Observable::events).
    pub events: &'static [(OwnEvent, Reached)],
    /// Objects that are not empty after a day of silence, each with why. All others are.
    pub keeps: &'static [(&'static str, &'static str)],
    /// Why replicas make packets leave otherwise than local state does, if they do: a member has a share of what can run out, say.
    /// Without it nothing may differ.
    pub shares: Option<&'static str>,
    /// What is written for its users: the text of its page.
    pub page: &'static str,
}

/// How a reason, or an event, is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// By the contract's packets, or by damaged ones.
    ByPackets,
    /// Not by these: why, and which test reaches it.
    Otherwise(&'static str),
}

/// Damaged packets of each test.
const DAMAGED: u64 = 4_000;
/// A day, in steps of this many seconds.
const SILENCE_STEP_S: u32 = 600;
const SILENCE_STEPS: u32 = 144;
/// Calls of a report after which it does not end.
const REPORT_CALLS_MAX: u32 = 100_000;
/// A port that nobody has.
const NO_PORT: PortNumber = PortNumber(77);

impl<F: NetworkFunction> Contract<F> {
    /// Reasons: those that packets end for are those that are listed, and each one that is listed is reached or explained.
    ///
    /// # Panics
    /// See [`Contract::names`].
    pub fn reasons(&self) {
        let mut kit = Testkit::new((self.make)());
        let mut seen = BTreeSet::new();
        for (_, outcome) in self.all_outcomes(&mut kit) {
            // What was not even a packet never came to the function.
            if let (Verdict::Drop(reason), 1..) = (outcome.verdict, outcome.calls) {
                seen.insert(reason);
            }
        }
        let own = reasons_of(kit.function());
        let name = |reason: &Reason| reason.label_among(own).unwrap_or_else(|| reason.label());
        let mut faults = Vec::new();
        for reason in &seen {
            if !self.reasons.iter().any(|(listed, _)| listed == reason) {
                faults.push(format!("{} is not listed", name(reason)));
            }
        }
        let mut listed = BTreeSet::new();
        for (reason, reached) in self.reasons {
            if !listed.insert(*reason) {
                faults.push(format!("{} is listed twice", name(reason)));
            }
            if reason.label_among(own).is_none() {
                faults.push(format!("{} is its own and has no name", name(reason)));
            }
            match (reached, seen.contains(reason)) {
                (Reached::ByPackets, false) => faults.push(format!(
                    "{} is reached by no packet: add one, or say why",
                    name(reason)
                )),
                (Reached::Otherwise(_), true) => {
                    faults.push(format!("{} is reached by packets: say so", name(reason)));
                }
                (Reached::Otherwise(""), false) => {
                    faults.push(format!("why is {} not reached?", name(reason)));
                }
                _ => {}
            }
        }
        for reason in (0..own.len()).map(Reason::own) {
            if !listed.contains(&reason) {
                faults.push(format!("{}, its own, is not listed", name(&reason)));
            }
        }
        must_be_empty(&faults);
    }

    /// Any bytes at any port: neither a panic nor a hang, and what leaves is a packet.
    ///
    /// # Panics
    /// See [`Contract::names`].
    pub fn any_bytes(&self) {
        let mut kit = Testkit::new((self.make)());
        let (mut forwarded, mut dropped) = (0, 0);
        for (step, outcome) in self.all_outcomes(&mut kit) {
            match outcome.verdict {
                Verdict::Forward(_) => {
                    forwarded += 1;
                    assert!(
                        Layout::parse(&outcome.packet).is_ok(),
                        "{step:02x?} left as {:02x?}, which is no packet",
                        outcome.packet
                    );
                }
                Verdict::Drop(_) => dropped += 1,
                Verdict::Consumed => {}
            }
            for (_, emitted) in &outcome.emitted {
                assert!(
                    Layout::parse(emitted).is_ok(),
                    "{step:02x?} emitted {emitted:02x?}, which is no packet"
                );
            }
        }
        assert!(
            forwarded > 0 && dropped > 0,
            "{forwarded} packets left and {dropped} were dropped: the steps show nothing"
        );
        let (state, function) = (kit.state(), kit.function());
        for question in [0, 1, 2, 3, 255, u32::MAX >> 3, u32::MAX] {
            for from in [0, 1, 65_537, u32::MAX] {
                let mut cursor = Some(from);
                let mut calls = 0;
                let mut out = Vec::new();
                while let Some(at) = cursor {
                    out.clear();
                    cursor = report_of(function, state, question, (at, 16), &mut out);
                    calls += 1;
                    assert!(
                        calls < REPORT_CALLS_MAX,
                        "the report {question} from {from} on does not end"
                    );
                }
            }
        }
    }

    /// A late answer: the packet that is called again ends as one whose reads were answered at once, and leaves the same state.
    ///
    /// # Panics
    /// See [`Contract::names`].
    pub fn late_answers(&self) {
        let steps = [(self.steps)(), self.damaged()].concat();
        let retried = compare_late(self.make, &steps);
        // Sums without keys may be added to unread.
        let kit = Testkit::new((self.make)());
        let has_room = |object| {
            kit.state()
                .object(object)
                .map(|object| object.capacity())
                .is_some_and(|room| room > 0)
        };
        let reads = (0..kit.state().objects().len() as u8).any(has_room);
        assert!(
            retried || !reads,
            "no read was ever late: the steps show nothing"
        );
    }

    /// A store: packets end as they do where all state is local, and leave the same state, wherever each object lives. Of functions with
    /// objects that can live there it refuses some packets, which are called again and add nothing twice.
    ///
    /// # Panics
    /// See [`Contract::names`].
    pub fn in_a_store(&self) {
        let steps = [(self.steps)(), self.damaged()].concat();
        let refusals = hostile_everywhere(self.make, &steps);
        let store = HostileStore::<F>::new(&(self.make)(), |_| true);
        let mut objects = 0..objects_of(&(self.make)()).len() as u8;
        assert!(
            refusals > 0 || !objects.any(|object| store.has(object)),
            "no packet was refused: the steps show nothing"
        );
    }

    /// Silence: when no packet comes for a day, what was held for flows is given back. A host that is drained ends so.
    ///
    /// # Panics
    /// See [`Contract::names`].
    pub fn silence(&self) {
        let mut kit = self.after_steps(Testkit::new((self.make)()));
        for _ in 0..SILENCE_STEPS {
            kit.advance(SILENCE_STEP_S);
            // The host goes on looking: what rests goes back at a look, without packets.
            report_of(kit.function(), kit.state(), 0, (0, 16), &mut Vec::new());
        }
        let entries = kit.entries();
        let objects = kit.state().objects();
        let mut faults = self.left(&entries);
        for (name, why) in self.keeps {
            let place = objects.iter().position(|object| object == name);
            match place.map(|place| entries[place]) {
                Some((0, 0)) => faults.push(format!(
                    "{name} keeps nothing: the contract says that it does"
                )),
                Some(_) if !why.is_empty() => {}
                _ => faults.push(format!(
                    "{name}: there is no such object, or no reason why it keeps what it has"
                )),
            }
        }
        must_be_empty(&faults);
    }

    /// Of these entries, object by object, what is found or held though the contract does not say that it stays.
    fn left(&self, entries: &[(usize, usize)]) -> Vec<String> {
        let function = (self.make)();
        let keeps = |name| self.keeps.iter().any(|(keeps, _)| *keeps == name);
        let each = objects_of(&function).iter().zip(entries);
        let left = each.filter(|(name, (found, held))| found + held > 0 && !keeps(**name));
        left.map(|(name, (found, held))| {
            format!("{name} keeps entries, {found} found and {held} held: end them, or say why")
        })
        .collect()
    }

    /// The heap: once tables and lists have grown to what the packets need, calls take nothing from it.
    ///
    /// # Panics
    /// See [`Contract::names`]; or in a program whose allocator does not count.
    pub fn allocates_nothing(&self) {
        let before = allocations();
        drop(std::hint::black_box(Box::new(before)));
        assert!(
            allocations() > before,
            "allocations are not counted in this program: `contract!` sees to that"
        );
        let mut kit = Testkit::new((self.make)());
        let steps = [(self.steps)(), self.damaged()].concat();
        let mut taken = 0;
        for _ in 0..3 {
            let before = kit.allocations();
            for (seconds, port, packet) in &steps {
                kit.advance(*seconds);
                kit.packet(*port, packet);
            }
            taken = kit.allocations() - before;
            // So that the flows are new ones again.
            for _ in 0..SILENCE_STEPS {
                kit.advance(SILENCE_STEP_S);
            }
        }
        assert_eq!(taken, 0, "calls for packets took memory from the heap");
    }

    fn after_steps(&self, mut kit: Testkit<F>) -> Testkit<F> {
        for (seconds, port, packet) in (self.steps)() {
            kit.advance(seconds);
            kit.packet(port, &packet);
        }
        kit
    }

    /// What became of the steps, and then of damaged ones at every port.
    fn all_outcomes(&self, kit: &mut Testkit<F>) -> Vec<(Step, Outcome)> {
        let steps = [(self.steps)(), self.damaged()].concat();
        let each = steps.into_iter().map(|step| {
            kit.advance(step.0);
            let outcome = kit.packet(step.1, &step.2);
            (step, outcome)
        });
        each.collect()
    }

    /// The steps' packets with bytes overwritten, cut and appended, at their own ports, at each other's and at ports that do not
    /// exist; some with the IPv4 checksum put right, so that what is wrong behind it is seen. And bytes that are nothing.
    fn damaged(&self) -> Vec<Step> {
        let steps = (self.steps)();
        assert!(!steps.is_empty(), "there are no steps");
        let damage = |number: u64| {
            let draw = |place: u64| hash::words(number, place, 0xC047);
            let below = |place: u64, count: usize| (draw(place) % count as u64) as usize;
            let (_, own, packet) = &steps[below(0, steps.len())];
            let mut packet = packet.clone();
            match number % 8 {
                0 => {
                    packet = (0..below(1, 120))
                        .map(|at| draw(100 + at as u64) as u8)
                        .collect()
                }
                1 => packet.truncate(below(1, packet.len() + 1)),
                2 => packet.extend(core::iter::repeat_n(0xA5, below(1, 64))),
                _ => {}
            }
            if !packet.is_empty() {
                for change in 0..draw(2) % 4 {
                    let at = below(10 + change, packet.len());
                    packet[at] = draw(20 + change) as u8;
                }
            }
            if draw(3) % 4 != 0 {
                mend_checksum(&mut packet);
            }
            let port = match draw(4) % 8 {
                0 => NO_PORT,
                1 => PortNumber(draw(5) as u16 & 0x7f),
                2 => steps[below(6, steps.len())].1,
                _ => *own,
            };
            (u32::from(number % 97 == 96), port, packet)
        };
        (0..DAMAGED).map(damage).collect()
    }
}

/// Puts right the checksum of an IPv4 header without options.
fn mend_checksum(packet: &mut [u8]) {
    if packet.len() >= 34 && packet[12..15] == [8, 0, 0x45] {
        packet[24..26].copy_from_slice(&[0, 0]);
        let sum = checksum::of(&packet[14..34]);
        packet[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}

fn must_be_empty(faults: &[String]) {
    assert!(
        faults.is_empty(),
        "the contract is not met:\n{}",
        faults.join("\n")
    );
}

/// Tests of the contract that every network function meets: `contract! { name: a_contract(), }`, once in a test program, with a line
/// for each function; the right side is a [`Contract`](crate::testkit::Contract). See its methods for the clauses.
#[macro_export]
macro_rules! contract {
    ($($name:ident: $contract:expr),+ $(,)?) => {
        #[global_allocator]
        static CONTRACT_ALLOCATOR: $crate::testkit::CountingAllocator =
            $crate::testkit::CountingAllocator;

        $(
            mod $name {
                use super::*;
                #[test]
                fn has_names_by_the_convention() {
                    ($contract).names();
                }
                #[test]
                fn has_a_page_that_names_what_it_shows() {
                    ($contract).documentation();
                }
                #[test]
                fn tells_of_the_events_that_it_lists() {
                    ($contract).events();
                }
                #[test]
                fn drops_for_the_reasons_that_it_lists() {
                    ($contract).reasons();
                }
                #[test]
                fn survives_any_bytes_at_any_port() {
                    ($contract).any_bytes();
                }
                #[test]
                fn is_the_same_when_answers_are_late() {
                    ($contract).late_answers();
                }
                #[test]
                fn is_the_same_when_a_store_is_hostile() {
                    ($contract).in_a_store();
                }
                #[test]
                fn is_blind_to_where_its_state_lives() {
                    ($contract).placements();
                }
                #[test]
                fn goes_on_at_others_when_a_host_is_drained() {
                    ($contract).drain();
                }
                #[test]
                fn gives_all_back_in_silence() {
                    ($contract).silence();
                }
                #[test]
                fn takes_nothing_from_the_heap_for_a_packet() {
                    ($contract).allocates_nothing();
                }
            }
        )+
    };
}
