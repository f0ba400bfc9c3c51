//! Testing a function: a packet in, a packet out, and plain local state. No engine, no I/O.

mod allocations;
mod cluster;
mod contract;
mod fuzz;
mod recorded;
mod sequential;
mod store;

use std::cell::Cell;
use std::rc::Rc;

use asterism_packet::{Layout, Malformed, Packet};
use asterism_state::{
    Answered, Builder, Call as PinnedCall, Context, Identity, ObjectSettings, Query, Sequencer,
    State, Tick, Transaction, Wait,
};

use crate::chain::Place;
use crate::emissions::Emissions;
use crate::function::{Call, NetworkFunction, PortNumber, Verdict, call, refuse_late_after_act};
use crate::observable::{metrics_of, values_of};
use crate::reason::Reason;
use crate::stages::{decided, objects_of, stage_names, waits_at};

pub use allocations::{CountingAllocator, allocations};
pub use cluster::ClusterKit;
pub use contract::{Contract, Reached, Step};
pub use fuzz::fuzz_apply;
pub use recorded::{Recorded, RecordedCall, RecordedCalls};
pub use sequential::{Pinned, SequentialBox};
pub use store::{Decided, FromStore, HostileStore};

/// What became of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The function's verdict; malformed packets are dropped before they reach it.
    pub verdict: Verdict,
    /// The packet as it left.
    pub packet: Vec<u8>,
    /// Packets sent besides it.
    pub emitted: Vec<(PortNumber, Vec<u8>)>,
    /// How often the function was called: one more than it was late.
    pub calls: u32,
}

/// A function with state of its own and a clock that the test sets.
#[derive(Debug)]
pub struct Testkit<F: NetworkFunction> {
    function: F,
    state: F::State,
    context: Rc<Context>,
    emissions: Emissions,
    serial: u64,
    now_us: u64,
    allocations: u64,
    /// Where objects live that do not live here.
    store: Option<HostileStore<F>>,
    transaction: Transaction,
}

/// What a function measures under a name.
///
/// # Panics
/// If it has no such metric.
pub fn measured<F: NetworkFunction>(function: &F, state: &F::State, name: &str) -> u64 {
    let values = values_of(function, state);
    let mut metrics = metrics_of(function).iter();
    let place = metrics.position(|metric| metric.name == name);
    values[place.unwrap_or_else(|| panic!("there is no metric {name}"))]
}

/// The secret of a testkit: its random numbers and the hashes of its keys depend on it. Instances that share a [`HostileStore`] have the same.
pub const SEED: u64 = 0x5EED;
/// The time that a testkit's clock starts at: seconds since the cluster's time base.
pub const START_TICK: u32 = 1_000;

impl<F: NetworkFunction> Testkit<F> {
    /// The function on local state.
    pub fn new(function: F) -> Self {
        Self::with_settings(function, |_| ObjectSettings::LOCAL)
    }

    /// The function with every read of every packet late once.
    pub fn late(function: F) -> Self {
        Self::with_settings(function, |_| ObjectSettings {
            late_us: 1,
            ..ObjectSettings::LOCAL
        })
    }

    /// The function with those of its objects that `lives_there` names in a store, as far as they can live in one: a store that answers
    /// late, out of order, twice or never, and refuses to commit now and then.
    pub fn hostile(build: impl Fn() -> F, lives_there: impl Fn(&str) -> bool) -> Self {
        let store = HostileStore::new(&build(), lives_there);
        let names = objects_of(&build());
        let there = names
            .iter()
            .zip(0..)
            .filter(|(_, object)| store.has(*object));
        let there: Vec<&str> = there.map(|(name, _)| *name).collect();
        let mut kit = Self::with_settings(build(), move |name| match there.contains(&name) {
            true => ObjectSettings::REMOTE,
            false => ObjectSettings::LOCAL,
        });
        kit.context.expect_requests(1);
        kit.store = Some(store);
        kit.set_now();
        kit
    }

    /// The function with settings of the test's choice, by object name.
    pub fn with_settings(function: F, settings: impl Fn(&str) -> ObjectSettings + 'static) -> Self {
        Self::made(function, SEED, settings)
    }

    /// The same in a cluster with this secret.
    fn made(function: F, seed: u64, settings: impl Fn(&str) -> ObjectSettings + 'static) -> Self {
        let context = Rc::new(Context::new(
            Identity::alone(),
            Sequencer::Own(Cell::new(0)),
            seed,
            addresses(&function),
        ));
        let builder = Builder::new(context.clone(), settings);
        let state = builder.built(function.state(&builder));
        let kit = Self {
            function,
            state,
            context,
            emissions: Emissions::default(),
            serial: 0,
            now_us: 0,
            allocations: 0,
            store: None,
            transaction: Transaction::default(),
        };
        kit.context.set_now(0, START_TICK);
        kit
    }

    /// The function.
    pub fn function(&self) -> &F {
        &self.function
    }
    /// Puts another function in its place, as when a host reads its configuration again: the state stays.
    pub fn replace_function(&mut self, function: F) {
        self.function = function;
    }
    /// The state, to read.
    pub fn state(&self) -> &F::State {
        &self.state
    }
    /// The shared part of the state.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Moves the clock, and lets entries idle out.
    pub fn advance(&mut self, seconds: u32) {
        self.now_us += u64::from(seconds) * 1_000_000;
        self.context
            .set_now(self.now_us, self.context.tick() + seconds);
        self.set_now();
        let stored = self.store.as_mut().map(HostileStore::state_mut);
        for state in core::iter::once(&mut self.state).chain(stored) {
            // Once to end entries, once to forget them.
            state.for_each_object(|object| {
                object.sweep_share(1);
                object.sweep_share(1);
            });
        }
    }

    /// Sets the clock, and lets no entry end.
    fn set_clock(&mut self, now_us: u64, tick: Tick) {
        self.now_us = now_us;
        self.context.set_now(now_us, tick);
        self.set_now();
    }

    /// Tells the time to the store.
    fn set_now(&mut self) {
        if let Some(store) = &mut self.store {
            store.set_now(self.now_us, self.context.tick());
        }
    }

    /// The state that an object lives in.
    fn home_of(&self, object: u8) -> &F::State {
        let store = self.store.as_ref();
        let there = store.filter(|store| store.has(object));
        there.map_or(&self.state, HostileStore::state)
    }

    /// Whether an object lives here, and not in a store.
    fn is_here(&self, object: u8) -> bool {
        let store = self.store.as_ref();
        !store.is_some_and(|store| store.has(object))
    }

    /// How often the store refused to commit.
    pub fn refusals(&self) -> u64 {
        self.store.as_ref().map_or(0, HostileStore::refusals)
    }

    /// Handles one packet that came in by `port`.
    pub fn packet(&mut self, port: PortNumber, bytes: &[u8]) -> Outcome {
        self.packet_pinned(port, bytes, self.next_pinned())
    }

    /// What will be pinned to the next packet, if it comes now.
    fn next_pinned(&self) -> Pinned {
        Pinned {
            serial: self.serial + 1,
            arrived_us: self.now_us,
            tick: self.context.tick(),
        }
    }

    /// Handles one packet with what is pinned to it.
    fn packet_pinned(&mut self, port: PortNumber, bytes: &[u8], pinned: Pinned) -> Outcome {
        let mut bytes = bytes.to_vec();
        self.serial = pinned.serial;
        let (verdict, calls) = match Layout::parse(&bytes) {
            Ok(layout) => self.handle(port, &mut bytes, layout, pinned),
            Err(malformed) => (
                Verdict::Drop(<Reason as From<Malformed>>::from(malformed)),
                0,
            ),
        };
        let emitted = self.take_emitted();
        Outcome {
            verdict,
            packet: bytes,
            emitted,
            calls,
        }
    }

    /// What was emitted; what a stage of a chain emitted to another goes on first.
    fn take_emitted(&mut self) -> Vec<(PortNumber, Vec<u8>)> {
        let mut left = Vec::new();
        for _ in 0..CALLS_MAX {
            let mut emitted = Vec::new();
            self.emissions
                .take(|port, frame| emitted.push((port, frame.to_vec())));
            for (port, mut frame) in emitted {
                if Place::of(port).is_none() {
                    left.push((port, frame));
                    continue;
                }
                let layout = Layout::parse(&frame).expect("functions emit whole packets");
                self.serial += 1;
                let pinned = Pinned {
                    serial: self.serial,
                    ..self.next_pinned()
                };
                if let (Verdict::Forward(to), _) = self.handle(port, &mut frame, layout, pinned) {
                    left.push((to, frame));
                }
            }
            if self.emissions.is_empty() {
                break;
            }
        }
        left
    }

    /// Entries found and held, object by object; of a pool, the items in use.
    pub fn entries(&self) -> Vec<(usize, usize)> {
        let objects = 0..self.state.objects().len() as u8;
        let each = objects.filter_map(|object| self.home_of(object).object(object));
        each.map(|object| (object.entries(), object.entries_held()))
            .collect()
    }

    /// How often calls of the function took memory from the heap, or had some grown; 0 where
    /// [`CountingAllocator`] is not the program's.
    pub fn allocations(&self) -> u64 {
        self.allocations
    }

    fn handle(
        &mut self,
        port: PortNumber,
        bytes: &mut [u8],
        layout: Layout,
        pinned: Pinned,
    ) -> (Verdict, u32) {
        let (now_us, tick) = (self.now_us, self.context.tick());
        let mut original = bytes.to_vec();
        self.context.set_now(pinned.arrived_us, pinned.tick);
        self.context.arrive(pinned.arrived_us);
        self.context.begin(pinned.serial);
        self.context.set_now(now_us, tick);
        let mut port = port;
        let calls_max = match self.store {
            Some(_) => CALLS_OF_STORE_MAX * stage_names(&self.function).len().max(1) as u32,
            None => CALLS_MAX,
        };
        // Where a store decides, each stage's call ends before the next one's.
        self.context.set_singly(self.store.is_some());
        for calls in 1..=calls_max {
            let emitted = self.emissions.len();
            let given = Call {
                state: &mut self.state,
                context: &self.context,
                emissions: &mut self.emissions,
                port,
            };
            let before = allocations();
            let result = call(&self.function, Packet::with_layout(bytes, layout), given);
            self.allocations += allocations() - before;
            match result {
                // Of a chain that turned it round: it goes on.
                Ok(Verdict::Forward(to)) if Place::of(to).is_some() && self.store.is_none() => {
                    port = to;
                }
                Ok(verdict) => {
                    if let Some(refused) = self.end() {
                        bytes.copy_from_slice(&original);
                        self.emissions.truncate(emitted);
                        self.await_answers(refused.requests());
                        self.go_on(refused);
                        continue;
                    }
                    if let Verdict::Forward(to) = verdict
                        && Place::of(to).is_some()
                    {
                        original.copy_from_slice(bytes);
                        port = to;
                        continue;
                    }
                    // The next packet arrives when the test says so, however long this one waited.
                    self.now_us = now_us;
                    self.context.set_now(now_us, tick);
                    return (verdict, calls);
                }
                Err(_) => {
                    refuse_late_after_act(&self.context);
                    (port, _) = waits_at(&self.function, &self.state, port);
                    self.state.withdraw();
                    let (parked, wait) = self.context.park();
                    match wait {
                        Wait::Nothing => panic!("a late call says what it waits for"),
                        // Time goes on while a packet is parked; what is pinned to it must not.
                        Wait::Fetch { delay_us } => self.now_us += delay_us.max(1),
                        Wait::Answers => self.await_answers(parked.requests()),
                        Wait::TooMuch => panic!("one packet asks a store for more than it may"),
                        Wait::Absent { until_us, .. } | Wait::Written { until_us } => {
                            self.now_us = self.now_us.max(until_us);
                        }
                    }
                    self.go_on(parked);
                }
            }
        }
        panic!(
            "the function was late {calls_max} times for one packet: does it ask for something new each time?"
        );
    }
}

impl<F: NetworkFunction> Testkit<F> {
    /// Ends a packet that was handled, if the store commits what its call read and wrote; else gives back what is pinned to the packet, which is to
    /// be called again.
    fn end(&mut self) -> Option<PinnedCall> {
        let Self {
            function,
            state,
            context,
            store,
            transaction,
            ..
        } = self;
        let Some(store) = store.as_mut().filter(|_| context.is_staged()) else {
            context.end(|object, number| state.give_back(object, number));
            state.settle();
            return None;
        };
        state.for_each_object(|object| object.end_recording());
        context.seal(transaction);
        state.withdraw();
        let (mut call, _) = context.park();
        let is_committed = store.commit(transaction);
        decided(function, state, call.requests(), is_committed);
        if !is_committed {
            context.refuse(&mut call);
            return Some(call);
        }
        let here = |object| !store.has(object);
        let made = state.commit(context, transaction.writes(), here);
        made.expect("recorded writes are writes");
        context.go_on_after(&call);
        context.abandon(call, |object, number| state.give_back(object, number));
        state.settle();
        None
    }

    /// Makes the writes of a transaction to objects that another copy has in common with this one.
    fn adopt(&mut self, transaction: &Transaction, is_common: impl Fn(u8) -> bool) {
        let made = self
            .state
            .commit(&self.context, transaction.writes(), is_common);
        made.expect("recorded writes are writes");
        // What was written here is no packet's of this copy.
        self.context.end(|_, _| {});
        self.state.settle();
    }

    /// Waits until the store has answered all that a packet asked for.
    fn await_answers(&mut self, requests: u16) {
        if self.context.has_all_answers(requests) {
            return;
        }
        let store = self.store.as_mut().expect("objects live in a store");
        loop {
            let now_us = self.now_us;
            let ask = |ticket, query: Query<'_>| store.ask(ticket, &query, now_us);
            self.context.take_requests(ask);
            let Some((due_us, FromStore::Answer(ticket, answer))) = store.next_event() else {
                // All that is under way was lost.
                self.now_us += LOST_US;
                self.context.ask_again(requests);
                continue;
            };
            self.now_us = self.now_us.max(due_us);
            if self.context.take_answer(ticket, &answer) == Answered::Complete(requests) {
                return;
            }
        }
    }

    /// Calls for a packet go on.
    fn go_on(&mut self, call: PinnedCall) {
        self.context.set_now(self.now_us, self.context.tick());
        self.context.resume(call);
        let installed = self.state.install(&self.context);
        installed.expect("the store answers what it is asked");
    }
}

/// Microseconds after which an answer is taken for lost.
const LOST_US: u64 = 1_000;

/// Addresses of a function as the wire has them.
fn addresses(function: &impl NetworkFunction) -> Vec<u32> {
    let addresses = function.addresses();
    addresses.iter().map(|address| address.to_bits()).collect()
}

fn entries(state: &impl State) -> Vec<(usize, usize)> {
    (0..state.objects().len() as u8)
        .filter_map(|object| {
            let object = state.object(object)?;
            Some((object.entries(), object.entries_held()))
        })
        .collect()
}

/// Calls for one packet after which a test gives up: a function that needs more rounds asks one thing at a
/// time where [`Ask::all`](crate::Ask::all) would do, or something new each time.
const CALLS_MAX: u32 = 8;
/// The same where a store refuses calls too, and is asked for room as well.
const CALLS_OF_STORE_MAX: u32 = 3 * CALLS_MAX;

/// Runs the same packets over local state and over state of which each read is late once, and demands the
/// same verdicts, packets, emissions and state.
///
/// Each step is the seconds that pass before it, the port, and the packet.
///
/// # Panics
/// At the first difference.
pub fn late_everywhere<F: NetworkFunction>(
    build: impl Fn() -> F,
    steps: &[(u32, PortNumber, Vec<u8>)],
) {
    let retried = compare_late(build, steps);
    assert!(
        retried || steps.is_empty(),
        "no read was ever late: the test shows nothing"
    );
}

/// Runs the same packets over local state and over state that lives, object by object, here or in a store that answers late, out of order,
/// twice or never, and refuses to commit now and then; and demands the same verdicts, packets, emissions and state. How many packets' transactions were
/// refused.
///
/// # Panics
/// At the first difference.
pub fn hostile_everywhere<F: NetworkFunction>(
    build: impl Fn() -> F,
    steps: &[(u32, PortNumber, Vec<u8>)],
) -> u64 {
    let names = objects_of(&build());
    let place = |name: &str| names.iter().position(|object| *object == name).unwrap_or(0);
    let mixes: [&dyn Fn(&str) -> bool; 3] = [&|_| true, &|name| place(name) % 2 == 0, &|name| {
        place(name) % 2 == 1
    }];
    let mut refusals = 0;
    for lives_there in mixes {
        let mut hostile = Testkit::hostile(&build, lives_there);
        compare(build(), &mut hostile, steps);
        refusals += hostile.refusals();
    }
    refusals
}

/// [`late_everywhere`], which tells whether a read was late.
fn compare_late<F: NetworkFunction>(
    build: impl Fn() -> F,
    steps: &[(u32, PortNumber, Vec<u8>)],
) -> bool {
    compare(build(), &mut Testkit::late(build()), steps)
}

/// Compares a function with one box, packet by packet. Whether a packet was called again.
fn compare<F: NetworkFunction>(
    function: F,
    late: &mut Testkit<F>,
    steps: &[(u32, PortNumber, Vec<u8>)],
) -> bool {
    let mut alone = SequentialBox::new(function, SEED);
    let mut retried = false;
    for (place, (seconds, port, packet)) in steps.iter().enumerate() {
        alone.advance(*seconds);
        late.advance(*seconds);
        let expected = alone.packet(*port, packet, late.next_pinned());
        let outcome = late.packet(*port, packet);
        retried |= outcome.calls > 1;
        assert_eq!(
            (&outcome.verdict, &outcome.packet, &outcome.emitted),
            (&expected.verdict, &expected.packet, &expected.emitted),
            "packet {place} fares differently when reads are late"
        );
        let difference = alone.difference(|object| Some(late.home_of(object)));
        assert_eq!(difference, None, "packet {place} leaves another state");
    }
    // Digests leave out levels of token buckets, and weights that others do not know.
    let here = |object| late.is_here(object).then_some(&late.state);
    let difference = alone.difference_in_content(here);
    assert_eq!(difference, None, "the packets leave another state");
    retried
}
