//! TCP streams reassembled in a store: each segment comes to another instance, in any order or all at once, and a
//! signature that is split over them is found by the one that completes it.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;
use std::sync::Arc;

use asterism_function::build::{self, Header4, Segment};
use asterism_function::{Packet, PortNumber, Reason, TcpFlags};
use asterism_functions::signature::{
    Carrier, Response, Signature, SignatureConfig, SignatureState, Signatures,
};
use asterism_placement::Time;
use asterism_remote_store::{ClientConfig, ClientTally};
use asterism_state::{ObjectSettings, State, hash};

use crate::wires::Faults;
use crate::world::{SEED, Setup, World};

const IN: PortNumber = PortNumber(0);
const WANTED: &[u8] = b"EVIL-stuf7+X";
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const INSTANCES: usize = 3;
const ORDERS: [[usize; 3]; 6] = [
    [0, 1, 2],
    [0, 2, 1],
    [1, 0, 2],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
];
const REMOTE: [&str; 4] = ["pieces", "alerts", "streams", "blocked"];
/// Who is blocked may be a source, which talks to many.
const IN_SHARDS: usize = 3;

fn placed(some: &[&str], name: &str) -> ObjectSettings {
    match some.contains(&name) {
        true => ObjectSettings::REMOTE,
        false => ObjectSettings::LOCAL,
    }
}

fn client(number: usize, commit_pipes: usize) -> ClientConfig {
    client_with(&REMOTE, (number, commit_pipes))
}

fn client_of_shards(number: usize, commit_pipes: usize) -> ClientConfig {
    client_with(&REMOTE[..IN_SHARDS], (number, commit_pipes))
}

fn client_with(some: &[&str], (number, commit_pipes): (usize, usize)) -> ClientConfig {
    let objects = SignatureState::OBJECTS.iter().enumerate();
    let remote = objects.filter(|(_, name)| some.contains(name));
    ClientConfig {
        function: "signature".to_owned(),
        client: format!("0.1.{number}"),
        seed: SEED,
        objects: remote.fold(0, |bits, (place, _)| bits | 1 << place),
        commit_pipes,
        cache: None,
        shard: None,
    }
}

fn world(faults: Faults, shards: usize) -> World<Signatures> {
    let signature = Signature {
        id: 1,
        message: String::new(),
        bytes: WANTED.to_vec(),
        carrier: Carrier::Any,
        ports: Vec::new(),
    };
    let config = SignatureConfig {
        reassembly: true,
        response: Response::BlockConnection { block_s: 600 },
        ..SignatureConfig::new(vec![signature])
    };
    let setup = Setup {
        function: Arc::new(Signatures::new(config).expect("the configuration is right")),
        settings: match shards {
            1 => |name| placed(&REMOTE, name),
            _ => |name| placed(&REMOTE[..IN_SHARDS], name),
        },
        client: if shards == 1 {
            client
        } else {
            client_of_shards
        },
        commit_pipes: 2,
        faults,
        ports: 2,
        shards,
    };
    World::new(setup, INSTANCES)
}

fn segment(port: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    // Some of the cases are of each of these.
    let client = Ipv4Addr::new(10, 0, 0, (port % 17) as u8);
    let header = Header4::between(client, SERVER);
    let segment = Segment {
        sequence,
        ..Segment::with_flags(TcpFlags::ACK)
    };
    let length = build::tcp4(&header, port, 80, &segment, payload, &mut bytes);
    bytes.truncate(length.expect("room for a segment"));
    bytes
}

/// Every cut of the text in three, single bytes among them, in every order: sequence numbers and payloads in the order of arrival. The
/// numbers begin again within each.
fn cases(text: &[u8]) -> Vec<[(u32, Vec<u8>); 3]> {
    let mut cases = Vec::new();
    for one in 1..text.len() - 1 {
        for two in one + 1..text.len() {
            let part = |from: usize, to: usize| {
                let sequence = (u32::MAX - 5).wrapping_add(from as u32);
                (sequence, text[from..to].to_vec())
            };
            let parts = [part(0, one), part(one, two), part(two, text.len())];
            cases.extend(ORDERS.map(|order| order.map(|place| parts[place].clone())));
        }
    }
    cases
}

struct Streams {
    world: World<Signatures>,
    /// Packets that left, by the port of their client.
    left: BTreeMap<u16, usize>,
}

impl Streams {
    fn new(faults: Faults, shards: usize) -> Self {
        Self {
            world: world(faults, shards),
            left: BTreeMap::new(),
        }
    }

    fn send(&mut self, instance: usize, bytes: &[u8]) {
        let now = Time::from_micros(self.world.now_us);
        assert!(self.world.instances[instance].inject(now, IN, bytes));
    }

    /// Until all that was sent has left or was dropped.
    fn end(&mut self) {
        self.world.turn();
        self.world.end();
        for mut bytes in self.world.left_by(1) {
            let packet = Packet::parse(&mut bytes).expect("a whole packet");
            let (port, _) = packet.ports().expect("a segment");
            *self.left.entry(port).or_default() += 1;
        }
    }

    fn dropped(&self, reason: Reason) -> usize {
        let instances = self.world.instances.iter();
        let dropped = instances.map(|instance| instance.tally().dropped(reason));
        dropped.sum::<u64>() as usize
    }
}

/// The client's port of a case.
fn port(case: usize) -> u16 {
    1_024 + case as u16
}

/// Sends the segments of all cases, one of each at a time or all at once; then another one of each to any instance.
fn found_by_the_last(text: &[u8], faults: Faults, at_once: bool) -> Streams {
    let (mut streams, count) = sent(text, (faults, 1), at_once);
    for case in 0..count {
        let instance = hash::words(case as u64, 1, SEED) as usize % INSTANCES;
        streams.send(instance, &segment(port(case), 1_000, b"nothing of note"));
        if case % 90 == 0 {
            streams.end();
        }
    }
    streams.end();
    assert_eq!(streams.left.len(), count);
    streams
}

/// Sends the segments of all cases, to instances whose store has so many shards; how many cases there are.
fn sent(text: &[u8], (faults, shards): (Faults, usize), at_once: bool) -> (Streams, usize) {
    let mut streams = Streams::new(faults, shards);
    let cases = cases(text);
    // Few at a time: of what waits there is a bound.
    for (some, chunk) in cases.chunks(90).enumerate() {
        for place in 0..3 {
            for (number, parts) in chunk.iter().enumerate() {
                let case = 90 * some + number;
                let (sequence, payload) = &parts[place];
                let instance = (case + place) % INSTANCES;
                streams.send(instance, &segment(port(case), *sequence, payload));
            }
            if !at_once {
                streams.end();
            }
        }
        streams.end();
    }
    (streams, cases.len())
}

fn quiet() -> Faults {
    Faults::breaking(0, 100)
}

#[test]
fn three_instances_find_what_is_split_over_them_in_every_order() {
    let streams = found_by_the_last(WANTED, quiet(), false);
    let count = streams.left.len();
    assert_eq!(count, 330);
    assert!(
        streams.left.values().all(|left| *left == 2),
        "all but the last"
    );
    assert_eq!(streams.dropped(Reason::SignatureFound), count);
    assert_eq!(streams.dropped(Reason::ConnectionBlocked), count);
}

/// There is no lag: of segments under way at one time the store has one come last.
#[test]
fn segments_that_come_at_once_hide_nothing() {
    for faults in [
        quiet(),
        Faults {
            broken_of: 300,
            ..quiet()
        },
    ] {
        let streams = found_by_the_last(WANTED, faults, true);
        let count = streams.left.len();
        let found = streams.dropped(Reason::SignatureFound);
        assert_eq!(found, count, "each by one");
        assert_eq!(streams.dropped(Reason::ConnectionBlocked), count);
        assert!(streams.left.values().all(|left| *left == 2));
    }
}

#[test]
fn what_is_no_signature_passes() {
    let mut text = WANTED.to_vec();
    text[6] = b'$';
    let streams = found_by_the_last(&text, quiet(), true);
    assert!(streams.left.values().all(|left| *left == 4));
}

/// An instance dies after each segment, and another one begins in its place: what it knew is in the store.
#[test]
fn instances_that_die_take_nothing_with_them() {
    let mut streams = Streams::new(quiet(), 1);
    let cases = cases(WANTED);
    let some = cases.iter().enumerate().step_by(7);
    for (case, parts) in some.clone() {
        for (place, (sequence, payload)) in parts.iter().enumerate() {
            streams.send(place, &segment(port(case), *sequence, payload));
            streams.end();
            streams.world.replace(place);
        }
        streams.send(0, &segment(port(case), 1_000, b"nothing of note"));
        streams.end();
    }
    assert_eq!(streams.left.len(), some.len());
    assert!(streams.left.values().all(|left| *left == 2));
}

/// Each stream is in the shard of its conversation, whichever instances its segments come by and however often connections break.
#[test]
fn streams_are_found_in_a_store_of_several_shards() {
    let breaking = Faults {
        broken_of: 300,
        ..quiet()
    };
    let (streams, count) = sent(WANTED, (breaking, 3), true);
    assert_eq!(
        streams.dropped(Reason::SignatureFound),
        count,
        "each by one"
    );
    assert_eq!(streams.left.len(), count);
    assert!(
        streams.left.values().all(|left| *left == 2),
        "all but the last"
    );
    let tallies = streams.world.tallies();
    assert_eq!(tallies.len(), 3 * INSTANCES);
    let is_well = |one: &ClientTally| one.decided > 0 && one.misplaced == 0;
    assert!(tallies.iter().all(is_well), "{tallies:?}");
    assert!(streams.world.broken() > 20);
}
