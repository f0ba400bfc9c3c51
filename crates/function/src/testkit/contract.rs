//! The contract that every function meets, as tests: [`contract!`](crate::contract) writes one for each clause.

use std::collections::BTreeSet;

use asterism_packet::{Layout, checksum};
use asterism_state::{Capacity, ObjectSettings, State, hash};

use super::allocations::allocations;
use super::{ClusterKit, Outcome, SEED, Testkit, compare_late};
use crate::function::{NetworkFunction, PortNumber, Verdict};
use crate::own::{check_own, is_words};
use crate::reason::Reason;

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
    /// Objects that are not empty after a day of silence, each with why. All others are.
    pub keeps: &'static [(&'static str, &'static str)],
    /// Why replicas make packets leave otherwise than local state does, if they do: a member has a share of what can run out, say.
    /// Without it nothing may differ.
    pub shares: Option<&'static str>,
}

/// How a reason is reached.
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
/// Instances of the clusters.
const MEMBERS: u16 = 3;

impl<F: NetworkFunction> Contract<F> {
    /// Names: of objects, of the function's own reasons and metrics; and a value for each metric.
    ///
    /// # Panics
    /// Where the contract is not met; so do all clauses.
    pub fn names(&self) {
        let function = (self.make)();
        let objects = function.objects();
        for (place, name) in objects.iter().enumerate() {
            // Of a chain: stage.object.
            let (stage, object) = name.rsplit_once('.').unwrap_or(("stage", name));
            assert!(
                is_words(object, b'_') && is_words(stage, b'-'),
                "the object {name:?} is to be called by words joined by underscores"
            );
            assert!(
                !objects[..place].contains(name),
                "two objects are called {name:?}"
            );
        }
        if function.stages().is_empty() {
            check_own(function.reasons(), function.metrics())
                .unwrap_or_else(|error| panic!("{error}"));
        }
        let kit = self.after_steps(Testkit::new(function));
        assert_eq!(
            kit.state().objects(),
            objects,
            "the state has the objects that the function names"
        );
        let mut values = Vec::new();
        kit.function().measure(kit.state(), &mut values);
        assert_eq!(
            values.len(),
            kit.function().metrics().len(),
            "each metric has one value"
        );
    }

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
        let own = kit.function().reasons();
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
                    cursor = function.report(state, question, (at, 16), &mut out);
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
                .look(object, Capacity)
                .is_some_and(|room| room > 0)
        };
        let reads = (0..kit.state().objects().len() as u8).any(has_room);
        assert!(
            retried || !reads,
            "no read was ever late: the steps show nothing"
        );
    }

    /// Placement-blind: the same packets come to the same end with local state, with replicated state that nobody shares, and at a
    /// member of a cluster; members that hear all agree in the end, whoever got the packets.
    ///
    /// # Panics
    /// See [`Contract::names`].
    pub fn placements(&self) {
        let steps = [(self.steps)(), self.damaged()].concat();
        let run = |settings: ObjectSettings| {
            let mut kit = Testkit::with_settings((self.make)(), move |_| settings);
            let each = steps.iter().map(|(seconds, port, packet)| {
                kit.advance(*seconds);
                kit.packet(*port, packet)
            });
            let outcomes: Vec<Outcome> = each.collect();
            (outcomes, kit.state().digests(), kit.entries())
        };
        let local = run(ObjectSettings::LOCAL);
        assert_equal(
            &steps,
            &local.0,
            &run(ObjectSettings::LOCAL).0,
            "the same again",
        );
        // Entries of a cluster end when all agree, so for these time stands still; and nothing waits for another packet.
        let mut still: Vec<Step> = steps
            .into_iter()
            .map(|(_, port, packet)| (0, port, packet))
            .collect();
        let alone = loop {
            let mut kit = Testkit::new((self.make)());
            let each = still
                .iter()
                .map(|(_, port, packet)| kit.packet(*port, packet));
            let outcomes: Vec<Outcome> = each.collect();
            let mut waited = outcomes.iter().map(|outcome| outcome.calls > 1);
            let before = still.len();
            still.retain(|_| waited.next() != Some(true));
            if still.len() == before {
                break outcomes;
            }
        };
        for members in [1, MEMBERS] {
            let mut cluster = ClusterKit::new((self.make)(), members, SEED);
            let outcomes: Vec<Outcome> = still
                .iter()
                .map(|(_, port, packet)| {
                    let outcome = cluster.packet(0, *port, packet);
                    cluster.exchange();
                    outcome
                })
                .collect();
            cluster.agree();
            if self.shares.is_none() {
                let with = format!("at one of {members} with replicas");
                assert_equal(&still, &alone, &outcomes, &with);
            }
        }
        let mut cluster = ClusterKit::new((self.make)(), MEMBERS, SEED);
        for (place, (_, port, packet)) in still.iter().enumerate() {
            // One that now waits for another packet is left as it is.
            let now = cluster.now_us();
            let _ = cluster.packet_since(place % usize::from(MEMBERS), now, *port, packet);
            if place % 5 == 4 {
                cluster.exchange();
            }
        }
        cluster.agree();
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
            kit.function()
                .report(kit.state(), 0, (0, 16), &mut Vec::new());
        }
        let objects = kit.state().objects();
        let mut faults = Vec::new();
        for (name, why) in self.keeps {
            if !objects.contains(name) || why.is_empty() {
                faults.push(format!(
                    "{name}: there is no such object, or no reason why it keeps what it has"
                ));
            }
        }
        for (name, (found, held)) in objects.iter().zip(kit.entries()) {
            let keeps = self.keeps.iter().any(|(keeps, _)| keeps == name);
            match (keeps, found + held > 0) {
                (false, true) => faults.push(format!(
                    "{name} keeps entries, {found} found and {held} held: end them, or say why"
                )),
                (true, false) => {
                    faults.push(format!(
                        "{name} keeps nothing: the contract says that it does"
                    ));
                }
                _ => {}
            }
        }
        must_be_empty(&faults);
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

fn assert_equal(steps: &[Step], expected: &[Outcome], outcomes: &[Outcome], with: &str) {
    for ((step, expected), outcome) in steps.iter().zip(expected).zip(outcomes) {
        assert_eq!(
            (&outcome.verdict, &outcome.packet, &outcome.emitted),
            (&expected.verdict, &expected.packet, &expected.emitted),
            "{with}, a packet fares differently: {step:02x?}"
        );
    }
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
                fn is_blind_to_where_its_state_lives() {
                    ($contract).placements();
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
