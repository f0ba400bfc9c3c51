//! What must hold: what leaves and what the store holds is what one sequential box lets out and holds in the order in which the store made
//! the transactions.
//!
//! The order is the store's own: a transaction takes effect when a primary has made its `EXEC`. What no replica had when that primary was one
//! no more has not happened: the box goes back to what the promoted one has.
//!
//! Of a store with several shards each has a box of its own, and goes back alone: it has whole conversations, and nothing of others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use asterism_function::testkit::{Outcome, Pinned, RecordedCall, SEED, SequentialBox};
use asterism_function::{FlowKey, Packet, PortNumber, Tick, Verdict};
use asterism_resp::Value;
use asterism_state::{Depends, Fetch, Query, State, Transaction, hash};

use super::additions::{self, Additions, Spent, Sums};
use super::division::Division;
use super::keys::ShardKeys;
use super::ledger::{Does, GUESTS, IDLE_S, Ledger, Name, SUMS, number_of, packet};
use super::network::Incarnation;
use super::plan::{Ack, Keeps, RemotePlan};
use super::servers::{Executed, Server};
use crate::report::Failure;

/// For so long a host may read by a server that is no primary any more: it asks it each second.
const DEMOTED_US: u64 = 1_500_000;

/// A packet, by the host that it came to and its number there.
type PacketName = (Incarnation, u64);

/// What the box was given.
#[derive(Clone)]
enum What {
    Packet(Incarnation, u64, RecordedCall),
    /// A guest's idle time is over.
    Ended(Name),
}

/// The same with its time, and the primary's changes up to it.
#[derive(Clone)]
struct Step {
    now: (u64, Tick),
    offset: u64,
    what: What,
    /// What it added to sums.
    additions: Additions,
}

/// See the module: of one shard.
pub(super) struct Oracle {
    division: Division,
    place: usize,
    keys: ShardKeys,
    ack: Ack,
    /// How old an answer may be, and how far behind a replica.
    stale_us: u64,
    lag_us: u64,
    ledger: Ledger,
    alone: SequentialBox<Ledger>,
    steps: Vec<Step>,
    /// What had been done when a primary was one no more, and until when its reads may come.
    past: Vec<(u64, Vec<Step>)>,
    /// The object, the lane, the hash and the key of the store's keys.
    known: BTreeMap<Vec<u8>, (u8, u8, u64, Vec<u8>)>,
    taken: BTreeSet<PacketName>,
    last: BTreeMap<(Incarnation, u64), u64>,
    due: BTreeMap<(Incarnation, u16, Vec<u8>), VecDeque<u64>>,
    /// Calls that were answered by what their hosts keep, and when: what they let out has not left yet.
    kept: Vec<(Incarnation, RecordedCall, u64)>,
    outputs: BTreeMap<PacketName, (usize, usize)>,
    forgotten: BTreeSet<PacketName>,
    pub(super) dead: BTreeSet<Incarnation>,
    /// When each guest was there last, by the packet that had it stay.
    guests: BTreeMap<Name, Tick>,
    /// What packets have added, and when they spent.
    adds: bool,
    sums: Sums,
    spent: Spent,
    /// What was added since the sums were looked at.
    added: Additions,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Oracle {
    pub(super) fn new(plan: &RemotePlan, division: &Division, place: usize) -> Self {
        let ledger = Ledger::new(plan).in_shard_of(division.count());
        Self {
            division: division.clone(),
            place,
            keys: ShardKeys::of(&division.function(place)),
            ack: plan.ack,
            stale_us: match plan.keeps {
                Keeps::Nothing => 0,
                _ => plan.staleness.as_micros() as u64,
            },
            lag_us: plan.shards[place].lag_us,
            ledger,
            alone: SequentialBox::new(ledger, SEED),
            steps: Vec::new(),
            past: Vec::new(),
            known: BTreeMap::new(),
            taken: BTreeSet::new(),
            last: BTreeMap::new(),
            due: BTreeMap::new(),
            kept: Vec::new(),
            outputs: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            dead: BTreeSet::new(),
            guests: BTreeMap::new(),
            adds: plan.adds,
            sums: Sums::default(),
            added: Additions::new(),
            spent: Spent::default(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what).or_default() += by;
    }

    /// A primary has made a transaction: of these calls, in this order.
    pub(super) fn executed(
        &mut self,
        executed: &Executed,
        committed: &[(Incarnation, RecordedCall, Transaction)],
        now: (u64, Tick),
        server: &mut Server,
    ) -> Result<(), Failure> {
        self.alone.set_now(now.0, now.1);
        for (host, call, transaction) in committed {
            self.count("commits", 1);
            if self.division.of_packet(&call.packet) != self.place {
                return Err(self.astray(&format!("{:?} of host {host}", call.pinned)));
            }
            if self.dead.contains(host) {
                self.count("commits of hosts that had died", 1);
            }
            self.reads_are_so(*host, call, transaction)?;
            let added = match self.adds {
                true => additions::of(self.alone.state(), transaction)?,
                false => Additions::new(),
            };
            self.takes_effect((*host, call), &added, (now, executed.offset))?;
            self.added.extend(added);
        }
        let [ends, sums] = [(GUESTS, &b"ends"[..]), (SUMS, b"sums")];
        let counted = [ends, sums].map(|(object, name)| self.keys.of_object(object, name));
        let mut counts_change = false;
        for words in &executed.commands {
            counts_change |= words.get(1).is_some_and(|key| counted.contains(key));
            if executed.is_claim() && words[0] == b"DEL" {
                let guests = self.keys.of_object(GUESTS, b"0:");
                for row in words[1..]
                    .iter()
                    .filter_map(|key| key.strip_prefix(&guests[..]))
                {
                    self.ends(row, (now, executed.offset))?;
                }
            }
        }
        for words in &executed.commands {
            match &words[0][..] {
                b"MSET" => {
                    for pair in words[1..].chunks_exact(2) {
                        self.holds(&pair[0], Some(&pair[1]))?;
                    }
                }
                b"DEL" => {
                    for key in &words[1..] {
                        self.holds(key, None)?;
                    }
                }
                _ => {}
            }
        }
        match counts_change {
            true => self.keys.sums_count_guests(server),
            false => Ok(()),
        }
    }

    /// All that the primary has made is known: what was added is in its sums.
    pub(super) fn sums_are_so(&mut self, server: &mut Server) -> Result<(), Failure> {
        let added = core::mem::take(&mut self.added);
        self.sums.are_there((&self.keys, server), Some(&added))
    }

    fn reads_are_so(
        &mut self,
        host: Incarnation,
        call: &RecordedCall,
        transaction: &Transaction,
    ) -> Result<(), Failure> {
        for (query, depends) in transaction.reads() {
            self.note(&query)?;
            if !query.is_of_sums() && !self.alone.state().is_so(&query, depends) {
                let Query {
                    object, lane, key, ..
                } = query;
                return Err(Failure::new(
                    "what a packet read is so when it is committed",
                    format!(
                        "{object}:{lane}:{key:x?} of {:?} of host {host}",
                        call.pinned
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Something that is another shard's is here.
    fn astray(&self, what: &str) -> Failure {
        Failure::new(
            "a shard has whole conversations, and its own alone",
            format!("{what} in shard {}", self.place),
        )
    }

    fn note(&mut self, query: &Query<'_>) -> Result<(), Failure> {
        let Query {
            object,
            lane,
            hash,
            key,
            conversation: _,
        } = *query;
        let at = self.alone.state().object(object);
        if !self.division.has(self.place, at.map(|at| at as _), query) {
            return Err(self.astray(&format!("{object}:{lane}:{key:x?}")));
        }
        if query.is_of_sums() {
            return Ok(());
        }
        let name = format!("{lane}:");
        let name = [&self.keys.of_object(object, name.as_bytes())[..], key].concat();
        let known = (object, lane, hash, key.to_vec());
        self.known.entry(name).or_insert(known);
        Ok(())
    }

    /// The time of a guest is over, and its end is committed.
    fn ends(&mut self, row: &[u8], (now, offset): ((u64, Tick), u64)) -> Result<(), Failure> {
        let guest = Name::of_row(row);
        let failed = |what| Err(Failure::new(what, format!("{guest:?} at second {}", now.1)));
        match self.guests.remove(&guest) {
            None => return failed("an entry ends once"),
            Some(since) if now.1 + 1 < since + IDLE_S => {
                return failed("an entry ends when its time is over");
            }
            Some(_) => {}
        }
        self.count("entries whose end was committed", 1);
        let step = Step {
            now,
            offset,
            what: What::Ended(guest),
            additions: Vec::new(),
        };
        make(&mut self.alone, &step);
        self.steps.push(step);
        Ok(())
    }

    /// What the store has under a key is what the box has.
    fn holds(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Failure> {
        if !self.keys.has(key) {
            return Err(self.astray(&format!("{key:x?}")));
        }
        let Some((object, _)) = self.keys.parts(key) else {
            return Ok(());
        };
        if let (Some(value), Some(at)) = (value, self.alone.state().object(object)) {
            let mut reads = Vec::new();
            let entries = Fetch::each_entry(at, value, &mut |entry| {
                let each = entry.reads.iter();
                reads.extend(
                    each.map(|read| (read.object, read.lane, read.hash, read.key.to_vec())),
                );
            });
            if entries.is_err() {
                return Err(Failure::new(
                    "the store holds answers",
                    format!("{key:x?}: {value:x?}"),
                ));
            }
            for (object, lane, hash, key) in reads {
                self.note(&Query {
                    object,
                    lane,
                    hash,
                    key: &key,
                    conversation: 0,
                })?;
            }
        }
        let Some((object, lane, hash, of)) = self.known.get(key) else {
            return Err(Failure::new(
                "the store holds what hosts wrote",
                format!("{key:x?}"),
            ));
        };
        let query = Query {
            object: *object,
            lane: *lane,
            hash: *hash,
            key: of,
            conversation: 0,
        };
        let mut answer = Vec::new();
        self.alone.state().extract(&query, &mut answer);
        let [expected, found] = [&answer[..], value.unwrap_or(&[0, 0])].map(stable_part);
        if expected != found {
            return Err(Failure::new(
                "the store holds what one box has",
                format!("{object}:{lane}:{of:x?}: {found:x?} instead of {expected:x?}"),
            ));
        }
        Ok(())
    }

    fn takes_effect(
        &mut self,
        (host, call): (Incarnation, &RecordedCall),
        additions: &Additions,
        (now, offset): ((u64, Tick), u64),
    ) -> Result<(), Failure> {
        let name = (host, call.pinned.serial);
        if !self.taken.insert(name) {
            return Err(Failure::new(
                "no packet takes effect twice",
                format!("{name:?} did"),
            ));
        }
        let flow = flow_of(call);
        let before = self.last.insert((host, flow), name.1);
        if before > Some(name.1) {
            return Err(Failure::new(
                "a flow keeps its order",
                format!("{name:?} came after {before:?}"),
            ));
        }
        let step = Step {
            now,
            offset,
            what: What::Packet(host, flow, call.clone()),
            additions: additions.clone(),
        };
        self.sums.add(additions);
        self.spent
            .note(host, (call.pinned.arrived_us, now.0), additions);
        let outcome = make(&mut self.alone, &step);
        self.note_guest(&step);
        self.steps.push(step);
        self.expect(name, outcome);
        Ok(())
    }

    /// Which guest stays or goes by a packet.
    fn note_guest(&mut self, step: &Step) {
        match &step.what {
            What::Packet(_, _, call) => match guest_of(call) {
                Some((guest, true)) => _ = self.guests.insert(guest, step.now.1),
                Some((guest, false)) => _ = self.guests.remove(&guest),
                None => {}
            },
            What::Ended(guest) => _ = self.guests.remove(guest),
        }
    }

    /// A call took effect by what it read alone: as of a moment since it came, or that the staleness is before that, at which that was so.
    pub(super) fn read_alone(
        &mut self,
        host: Incarnation,
        call: &RecordedCall,
        read: &Transaction,
        now_us: u64,
    ) -> Result<(), Failure> {
        self.count("packets that read alone", 1);
        let name = (host, call.pinned.serial);
        let all: Vec<(Query<'_>, Depends)> = read.reads().collect();
        let outcome = self.at_a_moment((host, call, now_us), |alone| {
            let mut all = all.iter();
            let are_so = all.all(|(query, depends)| alone.state().is_so(query, *depends));
            are_so.then(|| alone.packet(call.port, &call.packet, call.pinned))
        });
        let Some(outcome) = outcome else {
            return Err(Failure::new(
                "what a packet read was so within the staleness",
                format!("{:?} of host {host}", call.pinned),
            ));
        };
        self.expect(name, outcome);
        Ok(())
    }

    /// A call took effect that found all that it read in what its host keeps of the store: it is judged by what leaves.
    pub(super) fn was_kept(&mut self, host: Incarnation, call: &RecordedCall, now_us: u64) {
        self.count("packets that kept entries answered", 1);
        let name = (host, call.pinned.serial);
        self.outputs.entry(name).or_default().0 += 1;
        self.kept.push((host, call.clone(), now_us));
    }

    /// The packet that this is of, if one box would have let this out at a moment within the staleness.
    fn of_kept(&mut self, host: Incarnation, port: u16, bytes: &[u8]) -> Option<u64> {
        let number = number_of(bytes);
        let is_it =
            |(of, call, _): &(_, RecordedCall, _)| *of == host && number_of(&call.packet) == number;
        let place = self.kept.iter().position(is_it)?;
        let (_, call, now_us) = self.kept.remove(place);
        let outcome = self.at_a_moment((host, &call, now_us), |alone| {
            let outcome = alone.packet(call.port, &call.packet, call.pinned);
            let is_so = outcome.verdict == Verdict::Forward(PortNumber(port))
                && outcome.emitted.is_empty()
                && outcome.packet == bytes;
            is_so.then_some(outcome)
        });
        outcome.map(|_| call.pinned.serial)
    }

    /// What `found` finds in the box as it is now, or else as it was at a moment since the packet came, or that the staleness is before that.
    fn at_a_moment(
        &mut self,
        (host, call, now_us): (Incarnation, &RecordedCall, u64),
        found: impl Fn(&mut SequentialBox<Ledger>) -> Option<Outcome>,
    ) -> Option<Outcome> {
        if let Some(outcome) = found(&mut self.alone) {
            return Some(outcome);
        }
        self.count("packets that read what has changed since", 1);
        let since_us = call.pinned.arrived_us.saturating_sub(self.stale_us);
        let past = self.past.iter().rev();
        // A primary that was demoted answers with what it had, and then as a replica.
        let is_recent =
            |until_us: u64| until_us + DEMOTED_US + self.stale_us + self.lag_us >= now_us;
        let past: Vec<&Vec<Step>> = past
            .filter(|(until_us, _)| is_recent(*until_us))
            .map(|(_, steps)| steps)
            .collect();
        let since_us = match past.is_empty() {
            true => since_us,
            false => since_us.saturating_sub(self.lag_us),
        };
        let mut last = None;
        for steps in core::iter::once(&self.steps).chain(past) {
            let own = (host, flow_of(call));
            let after = steps.iter().rposition(|step| match &step.what {
                // What only had its guest go wrote nothing of what is read.
                What::Packet(host, flow, call) => {
                    (*host, *flow) == own && matches!(guest_of(call), Some((_, true)))
                }
                What::Ended(_) => false,
            });
            let first = steps.partition_point(|step| step.now.0 < since_us);
            let first = first.max(after.map_or(0, |after| after + 1));
            let mut alone = SequentialBox::new(self.ledger, SEED);
            for place in 0..=steps.len() {
                if place >= first {
                    last = found(&mut alone).or(last);
                }
                if let Some(step) = steps.get(place) {
                    make(&mut alone, step);
                }
            }
            if last.is_some() {
                break;
            }
        }
        last
    }

    /// Notes what must leave.
    fn expect(&mut self, name: PacketName, outcome: Outcome) {
        let forwarded = match outcome.verdict {
            Verdict::Forward(port) => Some((port, outcome.packet)),
            _ => None,
        };
        for (port, bytes) in outcome.emitted.into_iter().chain(forwarded) {
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
        let due = self.due.get_mut(&(host, port, bytes.clone()));
        let serial = due.and_then(VecDeque::pop_front);
        let Some(serial) = serial.or_else(|| self.of_kept(host, port, &bytes)) else {
            return Err(Failure::new(
                "what leaves is what one box lets out",
                format!("{hash:x} left host {host} by {port}"),
            ));
        };
        self.outputs.entry((host, serial)).or_default().1 += 1;
        if self.forgotten.contains(&(host, serial)) {
            self.count("packets that left and were forgotten by the store", 1);
        }
        Ok(())
    }

    /// A primary is one no more: what was done beyond these changes has not happened.
    pub(super) fn goes_back(&mut self, offset: u64, now: (u64, Tick)) -> Result<(), Failure> {
        self.past.push((now.0, self.steps.clone()));
        let kept = self.steps.partition_point(|step| step.offset <= offset);
        let undone = self.steps.split_off(kept);
        if undone.is_empty() {
            return Ok(());
        }
        for step in &undone {
            let What::Packet(host, _, call) = &step.what else {
                continue;
            };
            self.count("commits that a failover undid", 1);
            let name = (*host, call.pinned.serial);
            self.taken.remove(&name);
            let left = self.outputs.get(&name).map_or(0, |(_, left)| *left);
            if self.ack == Ack::Primary {
                let is_new = self.forgotten.insert(name);
                let forgotten = left as u64 * u64::from(is_new);
                self.count(
                    "packets that left and were forgotten by the store",
                    forgotten,
                );
                continue;
            }
            if left > 0 {
                return Err(Failure::new(
                    "what left is not forgotten",
                    format!("{name:?} left, and no replica has what it wrote"),
                ));
            }
            self.outputs.remove(&name);
            self.due.retain(|(of, _, _), due| {
                due.retain(|serial| (*of, *serial) != name);
                !due.is_empty()
            });
        }
        self.alone = SequentialBox::new(self.ledger, SEED);
        self.last.clear();
        self.guests.clear();
        self.sums = Sums::default();
        for step in self.steps.clone() {
            make(&mut self.alone, &step);
            self.sums.add(&step.additions);
            self.note_guest(&step);
            if let What::Packet(host, flow, call) = &step.what {
                self.last.insert((*host, *flow), call.pinned.serial);
            }
        }
        Ok(())
    }

    /// Guests that there are.
    pub(super) fn guests(&self) -> usize {
        self.guests.len()
    }

    /// All has come to its end.
    pub(super) fn judge(&mut self, server: &mut Server) -> Result<(), Failure> {
        for (name, (due, left)) in &self.outputs {
            let is_lost = self.dead.contains(&name.0) && *left == 0;
            let may_differ = is_lost || self.forgotten.contains(name);
            if left != due && !may_differ {
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
        let known: Vec<Vec<u8>> = self.known.keys().cloned().collect();
        for key in &known {
            if self.keys.parts(key).is_none() {
                continue;
            }
            let reply = server.ask(&[b"GET", key]);
            let value = Value::read(&reply).ok().flatten();
            let value = value.and_then(|(value, _)| value.bytes().map(<[u8]>::to_vec));
            self.holds(key, value.as_deref())?;
        }
        self.sums.are_there((&self.keys, server), None)?;
        self.spent.judge()?;
        if self.adds {
            let spent = self.spent.count();
            self.count("tokens that packets spent", spent);
        }
        self.keys.sums_count_guests(server)
    }
}

/// Gives a box a step.
fn make(alone: &mut SequentialBox<Ledger>, step: &Step) -> Outcome {
    alone.set_now(step.now.0, step.now.1);
    match &step.what {
        What::Packet(_, _, call) => alone.packet(call.port, &call.packet, call.pinned),
        What::Ended(guest) => {
            let pinned = Pinned {
                serial: u64::MAX,
                arrived_us: step.now.0,
                tick: step.now.1,
            };
            let leaves = packet(*guest, 0, Does::Leaves);
            alone.packet(PortNumber(0), &leaves, pinned)
        }
    }
}

fn flow_of(call: &RecordedCall) -> u64 {
    let mut bytes = call.packet.clone();
    Packet::parse(&mut bytes).map_or(0, |packet| FlowKey::of(&packet).hash(SEED))
}

/// The guest of a packet that has it stay, or go.
fn guest_of(call: &RecordedCall) -> Option<(Name, bool)> {
    super::ledger::guest_of(&call.packet)
}

/// The part of an answer that must be the same.
fn stable_part(answer: &[u8]) -> &[u8] {
    let length = answer
        .first_chunk()
        .map_or(0, |&length| u16::from_le_bytes(length));
    answer.get(2..2 + usize::from(length)).unwrap_or(answer)
}
