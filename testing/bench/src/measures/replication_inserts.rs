//! `replication.inserts`: distinct inserts of one host, sealed and in order, held by three others.

use std::sync::Arc;
use std::time::Duration;

use asterism_function::{
    Ask, Builder, Key, Late, Map, NetworkFunction, Plain4, PortNumber, Reason, Single, Value,
    Verdict, Wire, objects, state,
};
use asterism_io::ring::RingWriter;
use asterism_state::ObjectSettings;

use super::replication_hosts::{Hosts, Start, fed_ports, feed, provide_memory};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{Spread, Stopwatch};
use crate::traffic::frames::frame_between;
use crate::traffic::{Flows, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "replication.inserts",
    make: inserts,
}];

/// Inserts of a pass of the sender's loop: one burst.
const INSERTS_PER_PASS: usize = 32;
/// Passes of a window, between two deliveries.
const PASSES: usize = 16;
/// Virtual microseconds of a pass: four million inserts a second.
const PASS_US: u64 = 8;
/// Windows of a round.
const WINDOWS: usize = 256;
/// Inserts of a round.
const INSERTS_PER_ROUND: usize = INSERTS_PER_PASS * PASSES * WINDOWS;
/// Bytes of a table for an entry, generously.
const TABLE_BYTES_PER_ENTRY: usize = 240;
/// How long a group may wait for others to fill its datagram.
const LOOKAHEAD: Duration = Duration::from_micros(100);
/// Hosts: one writes, three listen.
const HOSTS: usize = 4;

/// 16 bytes: a packet's addresses, ports and protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
pub(super) struct InsertKey(u64, u64);

impl InsertKey {
    pub(super) fn of(plain: &Plain4<'_>) -> Self {
        let ports = u32::from_le_bytes(plain.ports());
        Self(
            u64::from_le_bytes(plain.addresses()),
            u64::from(plain.protocol().0) << 32 | u64::from(ports),
        )
    }
    /// What is kept under the key: any receiver can tell whether it is right.
    fn value(self) -> InsertValue {
        InsertValue(objects::hash::words(self.0, self.1, 0x1A5E))
    }
}

/// 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub(super) struct InsertValue(pub(super) u64);

/// Inserts an entry for every packet whose key has none.
struct Inserting {
    capacity: u32,
}

#[state]
struct Inserted {
    entries: Map<InsertKey, InsertValue>,
}

impl NetworkFunction for Inserting {
    type State = Inserted;

    fn state(&self, builder: &Builder) -> Inserted {
        Inserted {
            entries: builder.table("entries", self.capacity, &[]),
        }
    }

    fn packet(&self, ask: Ask<'_, Inserted>) -> Result<Verdict, Late> {
        let Some(plain) = ask.packet().plain4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let key = InsertKey::of(&plain);
        if ask.entries.get(&key)?.is_some() {
            return Ok(Verdict::Drop(Reason::Filtered));
        }
        let Some(room) = ask.entries.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let mut act = ask.act()?;
        act.entries.insert(room, Single(key), key.value());
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

struct Bench {
    hosts: Hosts<Inserting>,
    feed: RingWriter,
    keys: Vec<SmallFrame>,
    inserted: usize,
}

impl Bench {
    fn new(rounds: usize, seed: u64) -> Result<Self, Failure> {
        let inserts = rounds * INSERTS_PER_ROUND;
        provide_memory(HOSTS * inserts * TABLE_BYTES_PER_ENTRY);
        // Each member may fill its share: the sender's must hold all.
        let function = Arc::new(Inserting {
            capacity: (inserts * HOSTS) as u32,
        });
        let (ports, feed) = fed_ports();
        let mut starts = vec![Start {
            function: function.clone(),
            ports,
        }];
        for _ in 1..HOSTS {
            starts.push(Start {
                function: function.clone(),
                ports: fed_ports().0,
            });
        }
        let hosts = Hosts::new(
            starts,
            |config| config.replica.lookahead = LOOKAHEAD,
            |_| ObjectSettings::REPLICATED,
        )?;
        let flows = Flows::of_both(inserts as u32, seed);
        let keys = flows
            .sessions()
            .iter()
            .map(|session| frame_between(session.protocol, session.inside, session.remote))
            .collect();
        Ok(Self {
            hosts,
            feed,
            keys,
            inserted: 0,
        })
    }

    /// [`INSERTS_PER_ROUND`] inserts, all acknowledged at its end: inserts per on-CPU second of the sender.
    fn round(
        &mut self,
        sender: &mut Stopwatch,
        receiver: &mut Stopwatch,
    ) -> Result<[f64; 2], Failure> {
        for _ in 0..WINDOWS {
            let next = self.inserted..self.inserted + PASSES * INSERTS_PER_PASS;
            self.inserted = next.end;
            for frame in &self.keys[next] {
                feed(&mut self.feed, frame)?;
            }
            self.feed.publish();
            self.window(PASSES, PASS_US, sender, receiver);
        }
        for _ in 0..8 {
            self.window(1, 250, sender, receiver);
        }
        let count = INSERTS_PER_ROUND as f64;
        // Three receivers took that time together.
        let received = (HOSTS - 1) as f64 * count;
        Ok([
            count / sender.take_cpu_ns() as f64 * 1e9,
            received / receiver.take_cpu_ns() as f64 * 1e9,
        ])
    }

    fn window(
        &mut self,
        passes: usize,
        pass_us: u64,
        sender: &mut Stopwatch,
        receiver: &mut Stopwatch,
    ) {
        let begin = self.hosts.now;
        let at = |pass: usize| begin + Duration::from_micros(pass_us * (pass as u64 + 1));
        let host = &mut self.hosts.members[0];
        sender.window(|| (0..passes).for_each(|pass| host.pass(at(pass), usize::MAX)));
        self.hosts.now = at(passes - 1);
        let now = self.hosts.now;
        self.hosts.deliver();
        for host in &mut self.hosts.members[1..] {
            receiver.window(|| {
                host.pass(now, usize::MAX);
                while host.has_work() {
                    host.pass(now, usize::MAX);
                }
            });
        }
        self.hosts.deliver();
    }

    /// That every insert is at every host, with its value, and that all hosts are equal.
    fn check(&mut self) -> Result<(), Failure> {
        self.hosts.settle()?;
        self.hosts.check()?;
        for host in &mut self.hosts.members {
            let state = host.instance.state();
            if state.entries.len_now() != self.inserted {
                let held = state.entries.len_now();
                return Err(Failure::Unsound(format!(
                    "{} were inserted, {held} are there",
                    self.inserted
                )));
            }
            for frame in &mut self.keys[..self.inserted] {
                let packet = asterism_function::Packet::parse(frame).ok();
                let plain = packet.as_ref().and_then(|packet| packet.plain4());
                let key = plain.map(|plain| InsertKey::of(&plain));
                let found = key.and_then(|key| state.entries.get(&key).ok().flatten());
                if found.map(|at| at.value) != key.map(InsertKey::value) {
                    return Err(Failure::Unsound(
                        "an entry has not the value that was inserted".into(),
                    ));
                }
            }
        }
        Ok(())
    }
}

fn inserts(context: &Context) -> Result<Outcome, Failure> {
    let rounds = if context.full { 25 } else { 11 };
    let mut bench = Bench::new(rounds + 1, context.seed)?;
    let (mut sender, mut receiver) = Default::default();
    bench.round(&mut sender, &mut receiver)?;
    let mut found = Vec::new();
    let mut received = Vec::new();
    let before = bench.hosts.members[0].sent();
    for _ in 0..rounds {
        let [sent, taken] = bench.round(&mut sender, &mut receiver)?;
        found.push(sent);
        received.push(taken);
    }
    let sent = bench.hosts.members[0].sent().since(before);
    bench.check()?;
    let inserted = (rounds * INSERTS_PER_ROUND) as f64;
    Ok(Outcome::of(&Spread::of(&found))
        .variant("receiver", Spread::of(&received).median)
        .variant("bytes-per-insert", sent.ethernet_bytes as f64 / inserted)
        .variant("inserts-per-datagram", inserted / sent.datagrams as f64)
        .variant("inserted", bench.inserted as f64)
        .samples("inserts", found)
        .lost(sender.lost()))
}
