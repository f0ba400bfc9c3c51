//! What must hold: each packet takes effect once, in the order of its flow, and what leaves and what the objects hold is what one sequential
//! box lets out and holds in the order of the commits.
//!
//! Objects that stay at a host are that host's own. So each host has a box, and the boxes have the objects of the store in common: what
//! a packet does is judged by the box of its host, and the other boxes adopt its writes, which the store was found to have made alike.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use asterism_engine::Instance;
use asterism_function::testkit::{Outcome, Recorded, RecordedCall, SEED, SequentialBox};
use asterism_function::{FlowKey, NetworkFunction, Packet, Tick, Verdict};
use asterism_placement::Time;
use asterism_state::{Depends, Query, State, Transaction, hash};

use super::network::Incarnation;
use crate::report::Failure;

/// A packet, by the host that it came to and its number there.
type PacketName = (Incarnation, u64);

/// What a box was given.
#[derive(Clone)]
enum Step {
    Packet(RecordedCall),
    /// The writes of another host's packet.
    Adopted(Transaction),
}

/// What a box was given, in order, each by its clock.
type Steps = Vec<((u64, Tick), Step)>;

/// What came of a host's packets in its box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ended {
    dropped: u64,
    consumed: u64,
}

/// See the module.
pub(super) struct Oracle<F: NetworkFunction> {
    make: Box<dyn Fn() -> F>,
    /// Objects that live in the store, by number.
    is_common: Vec<bool>,
    boxes: BTreeMap<Incarnation, SequentialBox<F>>,
    steps: BTreeMap<Incarnation, Steps>,
    /// The time of the last step.
    now: (u64, Tick),
    /// What was committed, in order.
    history: Vec<Transaction>,
    taken: BTreeSet<PacketName>,
    /// The last packet of each flow at each host.
    last: BTreeMap<(Incarnation, u64), u64>,
    /// Packets that are to leave a host, by port and bytes, each with the packet that they are due to.
    due: BTreeMap<(Incarnation, u16, Vec<u8>), VecDeque<u64>>,
    /// How many are due to each packet, and how many of them left.
    outputs: BTreeMap<PacketName, (usize, usize)>,
    ended: BTreeMap<Incarnation, Ended>,
    dead: BTreeSet<Incarnation>,
    /// How much was judged, by name.
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl<F: NetworkFunction> Oracle<F> {
    pub(super) fn new(make: impl Fn() -> F + 'static, is_common: Vec<bool>) -> Self {
        Self {
            make: Box::new(make),
            is_common,
            boxes: BTreeMap::new(),
            steps: BTreeMap::new(),
            now: (0, 0),
            history: Vec::new(),
            taken: BTreeSet::new(),
            last: BTreeMap::new(),
            due: BTreeMap::new(),
            outputs: BTreeMap::new(),
            ended: BTreeMap::new(),
            dead: BTreeSet::new(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what).or_default() += by;
    }

    /// A host begins: its own objects are empty, and those of the store are as they are.
    pub(super) fn begins(&mut self, host: Incarnation) {
        let history = self.history.iter().cloned();
        let steps: Steps = history
            .map(|transaction| (self.now, Step::Adopted(transaction)))
            .collect();
        self.boxes.insert(host, self.replayed(&steps));
        self.steps.insert(host, steps);
    }

    /// A host dies.
    pub(super) fn dies(&mut self, host: Incarnation) {
        self.dead.insert(host);
    }

    /// The store has committed the transaction of a call, and has these objects now.
    pub(super) fn committed(
        &mut self,
        host: Incarnation,
        (call, transaction): (&RecordedCall, &Transaction),
        (now, tick): (Time, Tick),
        store: &F::State,
    ) -> Result<(), Failure> {
        self.count("commits", 1);
        if self.dead.contains(&host) {
            self.count("commits of hosts that had died", 1);
        }
        self.now = (now.as_micros(), tick);
        for each in self.boxes.values_mut() {
            each.set_now(now.as_micros(), tick);
        }
        self.takes_effect(host, call)?;
        let is_common = common(&self.is_common);
        for (other, each) in &mut self.boxes {
            if *other != host {
                each.adopt(transaction, &is_common);
                let steps = self.steps.entry(*other).or_default();
                steps.push((self.now, Step::Adopted(transaction.clone())));
            }
        }
        self.history.push(transaction.clone());
        let in_store = |object| is_common(object).then_some(store);
        let difference = self.boxes[&host].difference(in_store);
        agrees(difference, || format!("{:?} of host {host}", call.pinned))
    }

    /// A call took effect at once: it read nothing of the store.
    pub(super) fn done(&mut self, host: Incarnation, call: &RecordedCall) -> Result<(), Failure> {
        self.count("packets without the store", 1);
        self.takes_effect(host, call)
    }

    /// A call took effect that made one read of the store, and wrote nothing there: as of a moment since it came at which that was so.
    pub(super) fn read_alone(
        &mut self,
        host: Incarnation,
        call: &RecordedCall,
        read: &Transaction,
    ) -> Result<(), Failure> {
        self.count("packets that made one read", 1);
        let all: Vec<(Query<'_>, Depends)> = read.reads().collect();
        let is_so = |alone: &SequentialBox<F>| {
            all.iter()
                .all(|(query, depends)| alone.state().is_so(query, *depends))
        };
        if is_so(&self.boxes[&host]) {
            return self.takes_effect(host, call);
        }
        self.count("packets that made one read of what has changed since", 1);
        let steps = self.steps.remove(&host).unwrap_or_default();
        let mut alone = SequentialBox::new((self.make)(), SEED);
        let mut place = None;
        for (number, step) in steps.iter().enumerate() {
            if is_so(&alone) {
                place = Some(number);
            }
            self.step(&mut alone, step);
        }
        // It came after what was before.
        let since = steps
            .iter()
            .take_while(|((at_us, _), _)| *at_us < call.pinned.arrived_us)
            .count();
        let Some(place) = place.filter(|place| *place >= since) else {
            return Err(Failure::new(
                "what a packet read was so at a time since it came",
                format!("{:?} of host {host}", call.pinned),
            ));
        };
        let (before, after) = steps.split_at(place);
        self.boxes.insert(host, self.replayed(before));
        self.steps.insert(host, before.to_vec());
        self.takes_effect(host, call)?;
        let mut alone = self.boxes.remove(&host).expect("each host has a box");
        for step in after {
            self.step(&mut alone, step);
        }
        self.boxes.insert(host, alone);
        self.steps.entry(host).or_default().extend_from_slice(after);
        Ok(())
    }

    /// A box that was given all this.
    fn replayed(&self, steps: &[((u64, Tick), Step)]) -> SequentialBox<F> {
        let mut alone = SequentialBox::new((self.make)(), SEED);
        for step in steps {
            self.step(&mut alone, step);
        }
        alone
    }

    fn step(&self, alone: &mut SequentialBox<F>, ((at_us, tick), step): &((u64, Tick), Step)) {
        alone.set_now(*at_us, *tick);
        match step {
            Step::Packet(call) => _ = alone.packet(call.port, &call.packet, call.pinned),
            Step::Adopted(transaction) => alone.adopt(transaction, common(&self.is_common)),
        }
    }

    fn takes_effect(&mut self, host: Incarnation, call: &RecordedCall) -> Result<(), Failure> {
        let name = (host, call.pinned.serial);
        if !self.taken.insert(name) {
            return Err(Failure::new(
                "no packet takes effect twice",
                format!("{name:?} did"),
            ));
        }
        let mut bytes = call.packet.clone();
        if let Ok(packet) = Packet::parse(&mut bytes) {
            let flow = FlowKey::of(&packet).hash(SEED);
            let before = self.last.insert((host, flow), name.1);
            if before > Some(name.1) {
                return Err(Failure::new(
                    "a flow keeps its order",
                    format!("{name:?} came after {before:?}"),
                ));
            }
        }
        let alone = self.boxes.get_mut(&host);
        let alone = alone.expect("each host has a box");
        let outcome = alone.packet(call.port, &call.packet, call.pinned);
        let steps = self.steps.entry(host).or_default();
        steps.push((self.now, Step::Packet(call.clone())));
        self.expect(name, outcome);
        Ok(())
    }

    /// Notes what must leave.
    fn expect(&mut self, name: PacketName, outcome: Outcome) {
        let ended = self.ended.entry(name.0).or_default();
        let forwarded = match outcome.verdict {
            Verdict::Forward(port) => Some((port, outcome.packet)),
            Verdict::Drop(_) => {
                ended.dropped += 1;
                None
            }
            Verdict::Consumed => {
                ended.consumed += 1;
                None
            }
        };
        self.count("packets emitted", outcome.emitted.len() as u64);
        let all = outcome.emitted.into_iter().chain(forwarded);
        for (port, bytes) in all {
            self.outputs.entry(name).or_default().0 += 1;
            let due = self.due.entry((name.0, port.0, bytes)).or_default();
            due.push_back(name.1);
        }
    }

    /// A packet left a host.
    pub(super) fn leaves(
        &mut self,
        host: Incarnation,
        (port, bytes): (u16, Vec<u8>),
    ) -> Result<(), Failure> {
        let hash = hash::bytes(&bytes, 0);
        let due = self.due.get_mut(&(host, port, bytes));
        let Some(serial) = due.and_then(VecDeque::pop_front) else {
            return Err(Failure::new(
                "what leaves is what one box lets out",
                format!("{hash:x} left host {host} by {port}"),
            ));
        };
        self.outputs.entry((host, serial)).or_default().1 += 1;
        Ok(())
    }

    /// Nothing is parked at a host: its own objects are those of its box.
    pub(super) fn rests(
        &self,
        host: Incarnation,
        instance: &Instance<Recorded<F>>,
    ) -> Result<(), Failure> {
        let is_common = common(&self.is_common);
        let own = |object| (!is_common(object)).then_some(instance.state());
        agrees(self.boxes[&host].difference_in_content(own), || {
            format!("at host {host}, which waits for nothing")
        })
    }

    /// All has come to its end. `living` are the instances, by the incarnations of their hosts.
    pub(super) fn judge<'i>(
        &mut self,
        living: impl Iterator<Item = (Incarnation, &'i Instance<Recorded<F>>)>,
        store: &F::State,
    ) -> Result<(), Failure> {
        for (name, (due, left)) in &self.outputs {
            let is_lost = self.dead.contains(&name.0) && *left == 0;
            if left != due && !is_lost {
                return Err(Failure::new(
                    "all that a packet lets out leaves, or nothing",
                    format!("{left} of {due} of {name:?} left"),
                ));
            }
        }
        let lost = self.outputs.values().filter(|(_, left)| *left == 0).count();
        self.count(
            "packets committed whose host died before they left",
            lost as u64,
        );
        for (host, instance) in living {
            let is_common = common(&self.is_common);
            let alone = &self.boxes[&host];
            let in_store = |object| is_common(object).then_some(store);
            agrees(alone.difference(in_store), || "in the end".to_owned())?;
            self.rests(host, instance)?;
            let tally = instance.tally();
            let ended = Ended {
                dropped: tally.dropped_total(),
                consumed: tally.consumed,
            };
            let expected = self.ended.get(&host).copied().unwrap_or_default();
            if ended != expected {
                let drops: Vec<_> = tally.drops().collect();
                return Err(Failure::new(
                    "packets end as in one box",
                    format!("{ended:?} at host {host} instead of {expected:?}: {drops:?}"),
                ));
            }
            if instance.frames_in_use() > 0 {
                return Err(Failure::new(
                    "no frame is lost",
                    format!("{} at host {host}", instance.frames_in_use()),
                ));
            }
        }
        Ok(())
    }
}

fn common(is_common: &[bool]) -> impl Fn(u8) -> bool + '_ {
    |object| is_common.get(usize::from(object)) == Some(&true)
}

fn agrees(difference: Option<String>, after: impl Fn() -> String) -> Result<(), Failure> {
    match difference {
        None => Ok(()),
        Some(difference) => Err(Failure::new(
            "objects hold what one box has",
            format!("{}: {difference}", after()),
        )),
    }
}
