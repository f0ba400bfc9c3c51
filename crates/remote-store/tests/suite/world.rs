//! Instances of a function that share a store in virtual time, over wires that break.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use asterism_embedded_store::{Keyspace, Session};
use asterism_engine::{Instance, InstanceParts};
use asterism_function::{NetworkFunction, PortNumber};
use asterism_io::frame::FramePool;
use asterism_lab::outside;
use asterism_placement::Time;
use asterism_remote_store::{CacheConfig, ClientConfig, ClientTally, Shard, ShardedStore, Shards};
use asterism_resp::{CommandWriter, Value as Reply};
use asterism_state::ObjectSettings;

use crate::tills::packet;
use crate::wires::{Faults, Shared, Wires};

pub(crate) const SEED: u64 = 0x5EED;
/// Microseconds of a turn.
const TURN_US: u64 = 25;
/// All that is parked has ended within so long.
const ENDING_US: u64 = 5_000_000;

thread_local! {
    /// What the instance that is made next shares with the test: an instance's end of a store is made where the instance is.
    static SHARED: RefCell<Option<(Shared, Vec<Tallies>)>> = const { RefCell::new(None) };
}

type Tallies = (Rc<RefCell<ClientTally>>, Rc<RefCell<u64>>);

/// What instances are made of.
pub(crate) struct Setup<F> {
    pub(crate) function: Arc<F>,
    pub(crate) settings: fn(&str) -> ObjectSettings,
    /// Of the client of this number.
    pub(crate) client: fn(usize, usize) -> ClientConfig,
    pub(crate) commit_pipes: usize,
    pub(crate) faults: Faults,
    /// Ports of the function.
    pub(crate) ports: usize,
    /// How many shards the store has; each has its keys in it under a name of its own.
    pub(crate) shards: usize,
}

impl<F> Setup<F> {
    /// Of a function with one port, all of whose objects are in the store.
    pub(crate) fn of(
        function: F,
        client: fn(usize, usize) -> ClientConfig,
        faults: Faults,
    ) -> Self {
        Self {
            function: Arc::new(function),
            settings: |_| ObjectSettings::REMOTE,
            client,
            commit_pipes: 2,
            faults,
            ports: 1,
            shards: 1,
        }
    }
}

/// A client of a function that has these objects in the store: its number, and its pipes. It keeps no answers.
pub(crate) fn client_of(
    (function, objects): (&str, u64),
    (number, commit_pipes): (usize, usize),
) -> ClientConfig {
    ClientConfig {
        function: function.to_owned(),
        client: format!("0.1.{number}"),
        seed: SEED,
        objects,
        commit_pipes,
        cache: None,
        shard: None,
    }
}

/// The same that keeps answers.
pub(crate) fn cached(client: ClientConfig, staleness: Duration) -> ClientConfig {
    ClientConfig {
        cache: Some(CacheConfig {
            entries: 1_024,
            staleness,
            staleness_away: staleness,
            has_filter: false,
        }),
        ..client
    }
}

pub(crate) struct World<F: NetworkFunction> {
    setup: Setup<F>,
    pub(crate) store: Shared,
    pub(crate) instances: Vec<Instance<F>>,
    /// What leaves each instance by each port.
    left: Vec<Vec<Receiver<Vec<u8>>>>,
    tallies: Vec<Tallies>,
    clients: usize,
    pub(crate) now_us: u64,
}

impl<F: NetworkFunction + Send + Sync> World<F> {
    pub(crate) fn new(setup: Setup<F>, instances: usize) -> Self {
        let mut world = Self {
            setup,
            store: Shared {
                keyspace: Rc::new(RefCell::new(Keyspace::new(1 << 30))),
                is_away: Rc::default(),
                lies_of: Rc::default(),
            },
            instances: Vec::new(),
            left: Vec::new(),
            tallies: Vec::new(),
            clients: 0,
            now_us: 0,
        };
        for _ in 0..instances {
            let (instance, left) = world.begin();
            world.instances.push(instance);
            world.left.push(left);
        }
        world
    }

    fn begin(&mut self) -> (Instance<F>, Vec<Receiver<Vec<u8>>>) {
        let tallies = (0..self.setup.shards).map(|_| Tallies::default());
        let tallies: Vec<Tallies> = tallies.collect();
        SHARED.set(Some((self.store.clone(), tallies.clone())));
        let config = (self.setup.client)(self.clients, self.setup.commit_pipes);
        self.clients += 1;
        let (function, faults) = (self.setup.function.clone(), self.setup.faults);
        let count = self.setup.shards;
        let make = move || {
            let (store, mut tallies) = SHARED.take().expect("the test put it there");
            let mut wires = |config: &ClientConfig| {
                let tallies = tallies.pop().expect("one for each shard");
                Wires::new(&*function, config, (store.clone(), faults), tallies)
            };
            if count == 1 {
                return Box::new(wires(&config)) as Box<dyn asterism_engine::Store>;
            }
            let names: Vec<String> = (0..count).map(|place| format!("s{place}")).collect();
            let all = Arc::new(Shards::new(&names, (1 << 8, 3)).expect("shards"));
            let of_shard = |place: usize| ClientConfig {
                function: format!("{}/{}", config.function, names[place]),
                shard: Some(Shard {
                    all: all.clone(),
                    place,
                }),
                ..config.clone()
            };
            let stores = (0..count).map(|place| wires(&of_shard(place))).collect();
            Box::new(ShardedStore::of(all.clone(), stores))
        };
        let parts = InstanceParts::alone(SEED).with_store(make);
        let port = |_| {
            let (to, left) = channel();
            // Nobody hears what leaves an instance that has died.
            let port = outside::port(move |bytes: &[u8]| drop(to.send(bytes.to_vec())));
            (port, left)
        };
        let (ports, left) = (0..self.setup.ports).map(port).unzip();
        let pool = FramePool::new(2_048).expect("memory for frames");
        let instance = parts.start(
            self.setup.function.clone(),
            self.setup.settings,
            pool,
            ports,
        );
        self.tallies.extend(tallies);
        (instance, left)
    }

    /// An instance dies with all that it has under way, and another one begins in its place.
    pub(crate) fn replace(&mut self, number: usize) {
        let (instance, left) = self.begin();
        self.instances[number] = instance;
        self.left[number] = left;
    }

    pub(crate) fn turn(&mut self) {
        self.now_us += TURN_US;
        let now = Time::from_micros(self.now_us);
        for instance in &mut self.instances {
            instance.turn(now);
        }
    }

    /// Until so many microseconds have passed.
    pub(crate) fn turn_for(&mut self, us: u64) {
        let until_us = self.now_us + us;
        while self.now_us < until_us {
            self.turn();
        }
    }

    /// Until no packet is parked.
    pub(crate) fn end(&mut self) {
        let until_us = self.now_us + ENDING_US;
        let parked = |world: &Self| -> usize {
            let instances = world.instances.iter();
            instances.map(|instance| instance.tally().parked).sum()
        };
        while parked(self) > 0 {
            assert!(self.now_us < until_us, "{} are parked", parked(self));
            self.turn();
        }
        self.turn();
        for instance in &self.instances {
            eprintln!("{:?}", instance.tally());
        }
        for of in &self.tallies {
            eprintln!("{:?}", of.0);
        }
    }

    /// What has left by a port since the last time.
    pub(crate) fn left_by(&self, port: usize) -> Vec<Vec<u8>> {
        let left = self.left.iter();
        left.flat_map(|left| left[port].try_iter()).collect()
    }

    /// What has left an instance by a port since the last time.
    pub(crate) fn left_of(&self, instance: usize, port: usize) -> Vec<Vec<u8>> {
        self.left[instance][port].try_iter().collect()
    }

    /// What the clients counted, the dead ones included.
    pub(crate) fn tallies(&self) -> Vec<ClientTally> {
        self.tallies.iter().map(|of| *of.0.borrow()).collect()
    }

    /// Connections that broke.
    pub(crate) fn broken(&self) -> u64 {
        self.tallies.iter().map(|of| *of.1.borrow()).sum()
    }

    /// What the store replies to a command.
    pub(crate) fn ask(&self, words: &[&[u8]]) -> Vec<u8> {
        let mut command = Vec::new();
        CommandWriter::new(&mut command).command(words);
        let (sent, _) = Reply::read(&command).expect("a command").expect("whole");
        let mut reply = Vec::new();
        let mut store = self.store.keyspace.borrow_mut();
        Session::new().call(&mut store, sent, &mut reply, None);
        reply
    }

    /// The strings of a reply that is an array; of those in it, if it is one of arrays.
    pub(crate) fn strings(&self, words: &[&[u8]]) -> Vec<Vec<u8>> {
        let reply = self.ask(words);
        let (reply, _) = Reply::read(&reply).expect("a reply").expect("whole");
        let mut strings = Vec::new();
        let mut take = |value: Reply<'_>| strings.extend(value.bytes().map(<[u8]>::to_vec));
        let Reply::Array(values) = reply else {
            panic!("{words:?}: {reply:?}");
        };
        for value in values {
            match value {
                Reply::Array(values) => values.for_each(&mut take),
                value => take(value),
            }
        }
        strings
    }

    pub(crate) fn integer(&self, words: &[&[u8]]) -> i64 {
        let mut numbers = Vec::new();
        self.each_reply(words, &mut |value| match value {
            Reply::Integer(number) => numbers.push(number),
            _ => numbers.push(0),
        });
        numbers[0]
    }

    pub(crate) fn each_reply(&self, words: &[&[u8]], each: &mut dyn FnMut(Reply<'_>)) {
        let reply = self.ask(words);
        match Reply::read(&reply).expect("a reply").expect("whole").0 {
            Reply::Array(values) => values.for_each(each),
            value => each(value),
        }
    }

    /// The fields of a hash.
    pub(crate) fn hash_fields(&self, key: &[u8]) -> BTreeMap<Vec<u8>, i64> {
        let mut words = Vec::new();
        self.each_reply(&[b"HGETALL", key], &mut |value| {
            words.push(value.bytes().expect("a word").to_vec());
        });
        let number = |text: &[u8]| -> i64 {
            let text = core::str::from_utf8(text).expect("digits");
            text.parse().expect("a number")
        };
        let pairs = words.chunks(2);
        pairs
            .map(|pair| (pair[0].clone(), number(&pair[1])))
            .collect()
    }

    pub(crate) fn send_packet(&mut self, flow: u16, number: u32, to: usize) {
        let now = Time::from_micros(self.now_us);
        assert!(self.instances[to].inject(now, PortNumber(0), &packet(flow, number)));
    }
}
