//! Contract clauses on shared state: a function does not depend on its placement, and continues on other hosts after a drain.

use asterism_state::{ObjectSettings, State};

use super::{Contract, SILENCE_STEP_S, SILENCE_STEPS, Step, must_be_empty};
use crate::function::NetworkFunction;
use crate::observable::report_of;
use crate::testkit::{ClusterKit, Outcome, SEED, Testkit};

/// Instances of the clusters.
pub(super) const MEMBERS: u16 = 3;
/// Packets between two exchanges, where instances hear each other late.
const PACKETS_PER_EXCHANGE: usize = 5;

/// Packets that are dealt to a cluster's instances, at one moment: entries of a cluster end when all agree.
pub(super) struct Spread<F: NetworkFunction> {
    pub(super) cluster: ClusterKit<F>,
    steps: Vec<Step>,
}

impl<F: NetworkFunction> Spread<F> {
    /// The steps of a contract, and damaged ones, for so many instances.
    pub(super) fn over(contract: &Contract<F>, members: u16) -> Self {
        Self {
            cluster: ClusterKit::new((contract.make)(), members, SEED),
            steps: contract.still().0,
        }
    }

    /// Deals all of them to all instances, which hear each other now and then.
    pub(super) fn all(&mut self) {
        for (place, (_, port, packet)) in self.steps.iter().enumerate() {
            // One that now waits for another packet is left as it is.
            let now = self.cluster.now_us();
            let member = place % usize::from(MEMBERS);
            let _ = self.cluster.packet_since(member, now, *port, packet);
            if place % PACKETS_PER_EXCHANGE == PACKETS_PER_EXCHANGE - 1 {
                self.cluster.exchange();
            }
        }
        self.cluster.agree();
    }
}

impl<F: NetworkFunction> Contract<F> {
    /// Placement-blind: the same packets come to the same end with local state, with replicated state that nobody shares, and at a
    /// member of a cluster; members that hear all agree in the end, no matter who got the packets.
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
        let (still, alone) = self.still();
        for members in [1, MEMBERS] {
            let mut cluster = ClusterKit::new((self.make)(), members, SEED);
            let outcomes = deal(&mut cluster, 0, &still);
            cluster.agree();
            if self.shares.is_none() {
                let with = format!("at one of {members} with replicas");
                assert_equal(&still, &alone, &outcomes, &with);
            }
        }
        Spread::over(self, MEMBERS).all();
    }

    /// Drain: a host reads no more packets, tells all that it wrote, and leaves. What it knew of flows goes on at another one, packet by
    /// packet as if there had been one host; and it ends there, without the one that left.
    ///
    /// # Panics
    /// See [`Contract::names`].
    pub fn drain(&self) {
        let (still, alone) = self.still();
        let mut cluster = ClusterKit::new((self.make)(), MEMBERS, SEED);
        let (before, after) = still.split_at((self.steps)().len() / 2);
        let mut outcomes = deal(&mut cluster, 0, before);
        cluster.drain(0);
        outcomes.extend(deal(&mut cluster, 1, after));
        cluster.agree();
        if self.shares.is_none() {
            assert_equal(&still, &alone, &outcomes, "where the first host is drained");
        }
        for _ in 0..SILENCE_STEPS {
            cluster.advance(SILENCE_STEP_S);
            cluster.idle_out();
            for member in 1..usize::from(MEMBERS) {
                let function = cluster.function();
                report_of(function, cluster.state(member), 0, (0, 16), &mut Vec::new());
            }
        }
        cluster.agree();
        for member in 1..usize::from(MEMBERS) {
            must_be_empty(&self.left(&cluster.entries(member)));
        }
    }

    /// All packets at one moment, without those that wait for others, and what becomes of them at one host alone. Entries of a cluster
    /// end when all agree, so for a cluster time stands still.
    fn still(&self) -> (Vec<Step>, Vec<Outcome>) {
        let mut still = [(self.steps)(), self.damaged()].concat();
        for (seconds, ..) in &mut still {
            *seconds = 0;
        }
        loop {
            let mut kit = Testkit::new((self.make)());
            let each = still
                .iter()
                .map(|(_, port, packet)| kit.packet(*port, packet));
            let outcomes: Vec<Outcome> = each.collect();
            let mut waited = outcomes.iter().map(|outcome| outcome.calls > 1);
            let before = still.len();
            still.retain(|_| waited.next() != Some(true));
            if still.len() == before {
                return (still, outcomes);
            }
        }
    }
}

/// Hands packets to one of a cluster's instances; all hear of each at once. A packet that waits has no outcome: where instances have
/// shares, the packet that it waits for may have been dropped here.
fn deal<F: NetworkFunction>(
    cluster: &mut ClusterKit<F>,
    member: usize,
    steps: &[Step],
) -> Vec<Outcome> {
    let each = steps.iter().filter_map(|(_, port, packet)| {
        let outcome = cluster.packet_since(member, cluster.now_us(), *port, packet);
        cluster.exchange();
        outcome.ok()
    });
    each.collect()
}

fn assert_equal(steps: &[Step], expected: &[Outcome], outcomes: &[Outcome], with: &str) {
    assert_eq!(outcomes.len(), steps.len(), "{with}, packets wait");
    for ((step, expected), outcome) in steps.iter().zip(expected).zip(outcomes) {
        assert_eq!(
            (&outcome.verdict, &outcome.packet, &outcome.emitted),
            (&expected.verdict, &expected.packet, &expected.emitted),
            "{with}, a packet fares differently: {step:02x?}"
        );
    }
}
