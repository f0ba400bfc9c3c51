//! A home on the state channel's thread: two instances of one host ask it, each gets its own answers, and what both do is what one box
//! does in the order of the commits. Answers are lost, repeated and reordered, and find the instance's ring full.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use asterism_engine::{
    Attempt, ChannelHome, HomeEvent, HostConfig, Instance, InstanceParts, StateChannel, host,
};
use asterism_function::testkit::{
    FromStore, HostileStore, Pinned, SEED, START_TICK, SequentialBox,
};
use asterism_function::{PortNumber, Verdict};
use asterism_io::frame::FramePool;
use asterism_placement::envelope::{Message, Refused};
use asterism_placement::replicated::{Deliver, Destination};
use asterism_placement::{ClusterId, Incarnation, MemberId, Protocol, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::{Query, Ticket, Transaction};

use crate::stored::{Tills, committed, lives_there, number_of, packet, settings};
use asterism_lab::outside;

/// What the home has. Here and not in the home, which can be sent to another thread.
struct Shared {
    store: HostileStore<Tills, (u16, Attempt)>,
    /// Who asked with which ticket, by the number under which the store was asked.
    asked: Vec<(u16, Ticket)>,
    /// Tickets, and who used them.
    tickets: HashMap<Ticket, HashSet<u16>>,
    /// Numbers of packets, in the order in which they were committed.
    log: Vec<u32>,
    now: Time,
}

thread_local! {
    static SHARED: RefCell<Option<Shared>> = const { RefCell::new(None) };
}

fn with<T>(what: impl FnOnce(&mut Shared) -> T) -> T {
    SHARED.with_borrow_mut(|shared| what(shared.as_mut().expect("the test made it")))
}

/// The hostile store as a protocol on the state channel.
#[derive(Debug)]
struct Hostile;

impl Protocol for Hostile {
    type Event = HomeEvent;
    fn handle(&mut self, _: Time, _: &mut Message<'_>, _: &mut dyn Deliver) -> Result<(), Refused> {
        Ok(())
    }
    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Option<Destination> {
        None
    }
    fn poll_timeout(&self) -> Option<Time> {
        with(|shared| shared.store.next_due_us().map(Time::from_micros))
    }
    fn handle_timeout(&mut self, now: Time) {
        with(|shared| shared.now = now);
    }
    fn poll_event(&mut self) -> Option<HomeEvent> {
        with(|shared| {
            let now_us = shared.now.as_micros();
            let due = shared.store.next_due_us();
            due.filter(|&due_us| due_us <= now_us)?;
            Some(match shared.store.next_event()?.1 {
                FromStore::Answer(number, answer) => {
                    let (instance, ticket) = shared.asked[number.to_bits() as usize];
                    HomeEvent::Answer {
                        instance,
                        ticket,
                        answer,
                    }
                }
                FromStore::Decision((instance, attempt), is_committed) => HomeEvent::Decision {
                    instance,
                    attempt,
                    is_committed,
                },
            })
        })
    }
}

impl ChannelHome for Hostile {
    fn ask(&mut self, now: Time, instance: u16, ticket: Ticket, query: Query<'_>) {
        with(|shared| {
            let number = Ticket::from_bits(shared.asked.len() as u64);
            shared.asked.push((instance, ticket));
            shared.tickets.entry(ticket).or_default().insert(instance);
            shared.store.ask(number, &query, now.as_micros());
        });
    }
    fn commit(&mut self, now: Time, instance: u16, attempt: Attempt, transaction: &Transaction) {
        with(|shared| {
            let name = (instance, attempt);
            let store = &mut shared.store;
            if store.ask_to_commit(name, transaction, now.as_micros()) {
                shared.log.push(committed(transaction));
            }
        });
    }
}

const INSTANCES: u16 = 2;
/// Flows, each at the instance of its number.
const FLOWS: u32 = 12;
const PACKETS: u32 = 600;
/// Microseconds between two packets.
const BETWEEN_US: u64 = 200;
/// Too few for the answers that come between two turns of the second instance.
const ANSWER_RING_BYTES: usize = 128;
/// Microseconds between two turns of the second instance; the first has one each time.
const SLOW_TURN_US: u64 = 1_000;

fn flow_of(number: u32) -> u16 {
    (number * 7 % FLOWS) as u16
}

fn instance_of(number: u32) -> usize {
    usize::from(flow_of(number) % INSTANCES)
}

/// A host alone, and what leaves each of its instances: forwarded and emitted.
struct World {
    channel: StateChannel,
    instances: Vec<Instance<Tills>>,
    outsides: Vec<[Receiver<Vec<u8>>; 2]>,
    datagram: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let mut store = HostileStore::new(&Tills, lives_there);
        store.set_now(0, START_TICK);
        SHARED.set(Some(Shared {
            store,
            asked: Vec::new(),
            tickets: HashMap::new(),
            log: Vec::new(),
            now: Time::ZERO,
        }));
        let key = ClusterKey::from_random(1, [7; 32]).with_hash_seed(SEED);
        let member = MemberId(1);
        let (cluster, incarnation) = (ClusterId(1), Incarnation(1));
        let members = vec![member];
        let mut config = HostConfig::new(cluster, member, incarnation, members, key, [9; 48]);
        config.instances = INSTANCES;
        config.tick_at_zero = START_TICK;
        let (mut channel, mut parts) = host(config, Time::ZERO).expect("a good configuration");
        channel
            .set_home(Box::new(Hostile), &mut parts, ANSWER_RING_BYTES)
            .expect("memory for rings");
        let (instances, outsides) = parts.into_iter().map(start).unzip();
        Self {
            channel,
            instances,
            outsides,
            datagram: Vec::new(),
        }
    }

    fn turn(&mut self, now: Time) {
        self.channel.turn(now);
        let is_slow = !now.as_micros().is_multiple_of(SLOW_TURN_US);
        for (number, instance) in self.instances.iter_mut().enumerate() {
            if number == 0 || !is_slow {
                instance.turn(now);
            }
        }
        self.channel.turn(now);
        while self
            .channel
            .poll_transmit(now, &mut self.datagram)
            .is_some()
        {}
    }

    fn is_idle(&self) -> bool {
        let mut instances = self.instances.iter();
        instances.all(|instance| instance.tally().parked == 0)
            && with(|shared| shared.store.next_due_us().is_none())
    }
}

fn start(parts: InstanceParts) -> (Instance<Tills>, [Receiver<Vec<u8>>; 2]) {
    let [(to_forward, forwarded), (to_emit, emitted)] = [channel(), channel()];
    let ports = [to_forward, to_emit].map(|to| {
        outside::port(move |bytes: &[u8]| to.send(bytes.to_vec()).expect("the test listens"))
    });
    let pool = FramePool::new(2_048).expect("memory for frames");
    let instance = parts.start(Arc::new(Tills), settings, pool, ports.into());
    (instance, [forwarded, emitted])
}

fn by_number(left: &Receiver<Vec<u8>>) -> BTreeMap<u32, Vec<u8>> {
    let left: Vec<_> = left.try_iter().collect();
    let each = left.iter().map(|bytes| (number_of(bytes), bytes.clone()));
    let by_number: BTreeMap<_, _> = each.collect();
    assert_eq!(by_number.len(), left.len(), "none leaves twice");
    by_number
}

#[test]
fn two_instances_ask_a_home_on_the_channel_and_each_gets_its_own_answers() {
    let mut world = World::new();
    let mut now_us = 0;
    for number in 0..PACKETS {
        while now_us < u64::from(number) * BETWEEN_US {
            now_us += 50;
            world.turn(Time::from_micros(now_us));
        }
        let instance = &mut world.instances[instance_of(number)];
        let bytes = packet(flow_of(number), number);
        assert!(instance.inject(Time::from_micros(now_us), PortNumber(0), &bytes));
    }
    while !world.is_idle() {
        now_us += 50;
        assert!(now_us < 60_000_000, "it does not end");
        world.turn(Time::from_micros(now_us));
    }
    world.turn(Time::from_micros(
        now_us.next_multiple_of(SLOW_TURN_US) + SLOW_TURN_US,
    ));

    // One box, in the order of the commits.
    let log = with(|shared| shared.log.clone());
    assert_eq!(log.len(), PACKETS as usize, "each is committed once");
    let mut alone = SequentialBox::new(Tills, SEED);
    alone.set_now(0, START_TICK);
    let pinned = Pinned {
        tick: START_TICK,
        ..Pinned::default()
    };
    let mut expected = vec![[BTreeMap::new(), BTreeMap::new()]; usize::from(INSTANCES)];
    let mut last = HashMap::new();
    for &number in &log {
        let before = last.insert(flow_of(number), number);
        assert!(
            before < Some(number),
            "{number} overtook {before:?} of its flow"
        );
        let bytes = packet(flow_of(number), number);
        let outcome = alone.packet(PortNumber(0), &bytes, pinned);
        let [forwarded, emitted] = &mut expected[instance_of(number)];
        if let Verdict::Forward(_) = outcome.verdict {
            forwarded.insert(number, outcome.packet);
        }
        for (_, bytes) in outcome.emitted {
            emitted.insert(number_of(&bytes), bytes);
        }
    }
    for (outsides, expected) in world.outsides.iter().zip(&expected) {
        let left = outsides.each_ref().map(by_number);
        assert!(&left == expected, "an instance sent what it should not");
    }
    with(|shared| {
        let in_store = |object| (shared.store.has(object)).then_some(shared.store.state());
        assert_eq!(alone.difference(in_store), None);
        let both = shared.tickets.values().filter(|users| users.len() > 1);
        let both = both.count();
        assert!(both > 100, "{both} tickets of both instances show little");
        let refusals = shared.store.refusals();
        assert!(refusals > 100, "{refusals} refusals show little");
        let tallies = world.instances.iter().map(|instance| instance.tally());
        let heard: u64 = tallies.map(|tally| tally.store_refusals).sum();
        assert_eq!(heard, refusals, "an instance hears of each of its own once");
    });
    let lost = world.channel.tally().answers_lost;
    assert!(lost > 50, "{lost} answers without room show little");
    for instance in &world.instances {
        assert_eq!(instance.frames_in_use(), 0, "no frame is lost");
        assert_eq!(instance.tally().store_without_room, 0);
    }
}

#[cfg(asterism_mutants)]
#[test]
fn an_answer_to_another_instance_is_found() {
    use asterism_engine::mutant::{Mutant, select};
    select(Some(Mutant::AnswerToFirstInstance));
    let test = two_instances_ask_a_home_on_the_channel_and_each_gets_its_own_answers;
    let result = std::panic::catch_unwind(test);
    select(None);
    assert!(result.is_err(), "it survived");
}
