//! The audit: compares digests of parts of the replicas' tables while the tables go on changing (rule 27).
//!
//! Every instance keeps a digest of each of [`LEAVES`] parts of each object, updated with every entry. One member, the first
//! by name that has joined, is the *reference*. It reads its digests in *rounds*, a segment each: twice, a short while apart.
//! Of the first reading it sends all digests, with an upper bound of its holdings of each stream; of the second, the leaves
//! that have changed since, with a lower bound. A comparing member reads in between: once it holds all that the first reading
//! can contain, it reads, and notes an upper bound of its own holdings. Its reading counts once the second reading contains
//! all of it. So three readings enclose each other,
//!
//! ```text
//! reference, first  ⊆  own  ⊆  reference, second
//! ```
//!
//! and a leaf that has not changed at the reference meanwhile must be equal in the own reading. If it is not, no group in
//! transit can explain the difference. A leaf that changes faster than two readings follow each other is left for a later
//! round, and counted. No member waits, and a lost reading costs its round.
//!
//! A member's holdings are known by sequences only while it holds nothing beyond its streams' prefixes: no parts of snapshots
//! that reach further than its streams do, and no ended incarnation that is not closed. Otherwise the member does not read.

mod beside;
mod comparison;
mod excluded;
mod holds;
mod reading;
mod stream_position;
mod streams;

use core::time::Duration;
use std::collections::VecDeque;

use crate::{Incarnation, MemberId, Time};

pub use beside::{AuditEvent, Auditing};
pub use holds::Holds;
pub(super) use reading::is_well_formed;
pub use reading::{LEAVES, Leaf, Leaves, Place, Reading, SEGMENT_LEAVES, SEGMENTS, Turn, UNSURE};

pub use stream_position::StreamPosition;
pub(super) use streams::of_group;
pub use streams::{STREAM_PERIOD, StreamFault, StreamStanding};

use super::Replicator;
use crate::envelope::{KIND_AUDIT, KIND_STREAM, RawFrame};
use crate::mutant::{self, Mutant};
use comparison::{Compared, Own, compare_leaves, is_within};
use streams::{Stream, Telling};

/// A whole turn over all segments of all objects takes so long, if the readings of a round follow each other fast enough.
pub const CYCLE: Duration = Duration::from_millis(400);
/// The shortest time between the readings of a round.
const GAP_MIN: Duration = Duration::from_millis(2);
/// The longest.
const GAP_MAX: Duration = Duration::from_millis(250);
/// Rounds that a reference has under way, and readings asked of instances, at most.
const UNDER_WAY_MAX: usize = 256;

/// Has every instance of the host read its digests, at one place of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// To come back with what is read.
    pub ticket: u32,
    /// Of what.
    pub place: Place,
}

/// What became of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditResult {
    /// Whether it is equal now, or differs.
    pub equal: bool,
    /// Where.
    pub place: Place,
    /// A bit for each of the segment's leaves of which this is new.
    pub leaves: u64,
    /// Which instance of this host.
    pub lane: usize,
    /// Compared with the first instance of this member, which may be the same host.
    pub reference: MemberId,
}

/// What an auditor counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditTally {
    /// Leaves found equal.
    pub equal: u64,
    /// Leaves found different.
    pub different: u64,
    /// Leaves that changed between two readings, or that one of them was not sure of, and were left for a later round.
    pub changing: u64,
    /// Rounds that came to nothing: a reading was lost, or came before what it was to be compared with.
    pub rounds_void: u64,
    /// Readings that are none, or not of the reference.
    pub refused: u64,
    /// Ranges of streams that were delivered as they were sent.
    pub streams_equal: u64,
    /// And otherwise.
    pub streams_different: u64,
    /// Positions that were informed when the stream was past them already.
    pub streams_passed: u64,
}

/// What an own reading is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The first of a round.
    First {
        number: u32,
    },
    /// The second.
    Second {
        number: u32,
    },
    Compare,
    /// Whether the object has digests at all.
    Learn,
}

#[derive(Debug)]
struct Asked {
    ticket: u32,
    place: Place,
    holds: Holds,
    purpose: Purpose,
    left: usize,
}

/// A round of this member, as the reference.
#[derive(Clone, Copy, Debug)]
struct Round {
    number: u32,
    place: Place,
    second_at: Time,
    /// How often each leaf had changed at the first reading, once that is there.
    changes: Option<[u32; SEGMENT_LEAVES]>,
}

/// What is known of an object's segment.
#[derive(Clone, Debug)]
struct Known {
    /// By instance, a bit for each leaf that differs.
    different: Vec<u64>,
    /// By instance and leaf, when it was last found equal.
    equal_at: Vec<[Time; SEGMENT_LEAVES]>,
}

/// Audits a host's replicas against the reference, or is the reference.
#[derive(Debug)]
pub struct Auditor {
    members: Vec<MemberId>,
    me: usize,
    lanes: usize,
    /// By object: it has digests by leaves.
    audited: Vec<bool>,
    /// Objects that are not compared for now, a bit for each.
    excluded: u64,
    reference: Option<MemberId>,
    next_at: Time,
    next: usize,
    number: u32,
    ticket: u32,
    rounds: VecDeque<Round>,
    /// Rounds of which the second reading was asked for.
    closing: VecDeque<Round>,
    asked: VecDeque<Asked>,
    asks: VecDeque<Ask>,
    outgoing: VecDeque<Reading>,
    compared: Vec<Option<Compared>>,
    /// Whether any of them may not have been asked for yet.
    waiting: bool,
    known: Vec<Known>,
    /// Places and instances of which something differs.
    differ: usize,
    findings: VecDeque<AuditResult>,
    /// By member; the own one stays empty.
    streams: Vec<Stream>,
    /// Of which of them something was delivered last.
    heard: usize,
    telling: Telling,
    faults: VecDeque<StreamFault>,
    tally: AuditTally,
}

impl Auditor {
    /// For a host that has so many instances, with so many objects each.
    #[must_use]
    pub fn new(replicator: &Replicator, lanes: usize, objects: usize, now: Time) -> Auditor {
        let config = replicator.config();
        let me = config.members.binary_search(&config.member).unwrap_or(0);
        let places = objects * SEGMENTS;
        let known = Known {
            different: vec![0; lanes],
            equal_at: vec![[now; SEGMENT_LEAVES]; lanes],
        };
        Auditor {
            members: config.members.clone(),
            me,
            lanes,
            audited: vec![true; objects],
            excluded: 0,
            reference: None,
            next_at: now,
            next: 0,
            number: 0,
            ticket: 0,
            rounds: VecDeque::new(),
            closing: VecDeque::new(),
            asked: VecDeque::new(),
            asks: VecDeque::new(),
            outgoing: VecDeque::new(),
            compared: (0..places).map(|_| None).collect(),
            waiting: false,
            known: vec![known; places],
            differ: 0,
            findings: VecDeque::new(),
            streams: config
                .members
                .iter()
                .map(|&member| Stream::new(member))
                .collect(),
            heard: 0,
            telling: Telling::default(),
            faults: VecDeque::new(),
            tally: AuditTally::default(),
        }
    }

    /// Whether this member and its instances are all that there is to compare.
    fn is_alone(&self, replicator: &Replicator) -> bool {
        self.lanes == 1 && replicator.is_alone()
    }

    /// Does what is due. Call it after the groups that arrived were handed to the instances, and before anything else is: what
    /// they are asked must come to them right after those.
    fn turn(&mut self, now: Time, replicator: &Replicator) {
        let reference = replicator.first_joined();
        if self.reference != reference {
            self.reference = reference;
            self.begin_again(now);
            for known in &mut self.known {
                known.different.fill(0);
                known.equal_at.fill([now; SEGMENT_LEAVES]);
            }
            self.differ = 0;
        }
        if replicator.is_alone() {
            self.telling.rest();
        } else {
            self.telling.turn(now, replicator.sent_through());
        }
        if self.audited.is_empty() || self.is_alone(replicator) {
            // Others may come; until then nothing is ever due.
            self.next_at = now + CYCLE;
            return;
        }
        if self.ticket == 0 {
            self.learn();
        }
        let leads = reference == Some(self.members[self.me]);
        let begins = leads && self.next_at <= now;
        let second = self
            .rounds
            .front()
            .is_some_and(|round| round.second_at <= now);
        if !begins && !second && !self.waiting {
            return;
        }
        let Some(holds) = replicator.holds() else {
            if second {
                self.tally.rounds_void += 1;
                self.rounds.pop_front();
            }
            self.next_at = self.next_at.max(now + GAP_MIN);
            return;
        };
        if second && let Some(round) = self.rounds.pop_front() {
            let Round { number, place, .. } = round;
            self.ask(place, holds.clone(), Purpose::Second { number });
            if self.closing.len() >= UNDER_WAY_MAX {
                self.closing.pop_front();
            }
            self.closing.push_back(round);
        }
        if begins {
            self.begin_round(now, replicator, &holds);
        }
        if !core::mem::take(&mut self.waiting) {
            return;
        }
        for index in 0..self.compared.len() {
            let Some(round) = &self.compared[index] else {
                continue;
            };
            let mut pairs = holds.least.iter().zip(&round.vector);
            let covers = pairs.all(|(least, most)| least >= most);
            if round.asked.is_none() && (covers || mutant::active(Mutant::ReadsTooEarly)) {
                let place = round.place;
                let ticket = self.ask(place, holds.clone(), Purpose::Compare);
                if let Some(round) = &mut self.compared[index] {
                    round.asked = Some(ticket);
                }
            } else if round.asked.is_none() {
                self.waiting = true;
            }
        }
    }

    /// Asks of each object whether it has digests.
    fn learn(&mut self) {
        let nothing = Holds {
            least: Vec::new(),
            most: Vec::new(),
        };
        for object in 0..self.audited.len() as u8 {
            let place = Place { object, segment: 0 };
            self.ask(place, nothing.clone(), Purpose::Learn);
        }
    }

    /// Another reference, or another epoch: rounds under way mean nothing any more.
    pub fn begin_again(&mut self, now: Time) {
        self.rounds.clear();
        self.closing.clear();
        let learns = |asked: &Asked| asked.purpose == Purpose::Learn;
        self.asked.retain(learns);
        self.outgoing.clear();
        self.compared.fill_with(|| None);
        self.next_at = now;
    }

    fn begin_round(&mut self, now: Time, replicator: &Replicator, holds: &Holds) {
        let objects = (0..self.objects()).filter(|&object| self.is_audited(object));
        let places = objects.count() * SEGMENTS;
        let Some(pause) = CYCLE.checked_div(places as u32) else {
            self.next_at = now + CYCLE;
            return;
        };
        // From the time that it was due, unless that is long ago.
        self.next_at = (self.next_at + pause).max(now);
        let place = loop {
            let place = Place {
                object: (self.next / SEGMENTS) as u8,
                segment: (self.next % SEGMENTS) as u8,
            };
            self.next = (self.next + 1) % (self.audited.len() * SEGMENTS);
            if self.is_audited(place.object) {
                break place;
            }
        };
        if self.rounds.len() >= UNDER_WAY_MAX {
            return;
        }
        self.number = self.number.wrapping_add(1);
        let number = self.number;
        let second_at = now + gap(replicator);
        self.ask(place, holds.clone(), Purpose::First { number });
        self.rounds.push_back(Round {
            number,
            place,
            second_at,
            changes: None,
        });
    }

    fn ask(&mut self, place: Place, holds: Holds, purpose: Purpose) -> u32 {
        // An instance whose ring is full does not answer: what is asked later must not wait for it.
        if self.asked.len() >= UNDER_WAY_MAX {
            self.asked.pop_front();
        }
        self.ticket = self.ticket.wrapping_add(1);
        let ticket = self.ticket;
        self.asked.push_back(Asked {
            ticket,
            place,
            holds,
            purpose,
            left: self.lanes,
        });
        self.asks.push_back(Ask { ticket, place });
        ticket
    }

    /// What instances are to read next. All that they got before, and nothing more, must be in it.
    fn poll_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    /// What an instance read, having written up to `written` of this member's stream itself; no digests: the object has none.
    pub fn read(
        &mut self,
        now: Time,
        lane: usize,
        ticket: u32,
        written: u64,
        leaves: Option<&Leaves>,
    ) {
        let Some(at) = self.asked.iter().position(|asked| asked.ticket == ticket) else {
            return;
        };
        let asked = &mut self.asked[at];
        asked.left = asked.left.saturating_sub(1);
        let (place, purpose, me) = (asked.place, asked.purpose, self.me);
        let mut most = asked.holds.most.clone();
        let least = asked.holds.least.clone();
        if asked.left == 0 {
            self.asked.remove(at);
        }
        let Some(&leaves) = leaves else {
            let audited = self.audited.get_mut(usize::from(place.object));
            if let Some(audited) = audited.filter(|_| self.excluded >> place.object & 1 == 0) {
                *audited = false;
            }
            return;
        };
        if purpose == Purpose::Learn {
            return;
        }
        most[me] = most[me].max(written);
        let digests = leaves.map(|leaf| leaf.digest);
        let changes = leaves.map(|leaf| leaf.changes);
        match purpose {
            Purpose::First { number } if lane == 0 => {
                let mut rounds = self.rounds.iter_mut();
                if let Some(round) = rounds.find(|round| round.number == number) {
                    round.changes = Some(changes);
                    self.say(now, number, place, most, Turn::First(Box::new(digests)));
                }
            }
            Purpose::Second { number } if lane == 0 => {
                let at = self.closing.iter().position(|round| round.number == number);
                let round = at.and_then(|at| self.closing.remove(at));
                let Some(before) = round.and_then(|round| round.changes) else {
                    self.tally.rounds_void += 1;
                    return;
                };
                let pairs = before.iter().zip(&changes).enumerate();
                let changed = pairs.fold(0, |bits, (leaf, (before, after))| {
                    let changed = before != after || digests[leaf] == UNSURE;
                    bits | u64::from(changed) << leaf
                });
                self.say(now, number, place, least, Turn::Second(changed));
            }
            Purpose::First { .. } | Purpose::Second { .. } | Purpose::Learn => {}
            Purpose::Compare => {
                let known = self
                    .compared
                    .get_mut(place.index())
                    .and_then(Option::as_mut);
                if let Some(round) = known.filter(|round| round.asked == Some(ticket))
                    && let Some(own) = round.own.get_mut(lane)
                {
                    *own = Some(Own { most, digests });
                }
            }
        }
    }

    /// A reading of this member, as the reference.
    fn say(&mut self, now: Time, number: u32, place: Place, vector: Vec<u64>, turn: Turn) {
        let reading = Reading {
            number,
            place,
            vector,
            turn,
        };
        if self.lanes > 1 {
            self.take(now, self.members[self.me], reading.clone());
        }
        if self.members.len() > 1 && self.outgoing.len() < UNDER_WAY_MAX {
            self.outgoing.push_back(reading);
        }
    }

    /// Writes a message to all that has this member's next reading; false if there is none.
    fn poll_reading(&mut self, replicator: &mut Replicator, buffer: &mut Vec<u8>) -> bool {
        let reading = self.outgoing.pop_front();
        if let Some(reading) = &reading {
            replicator.write_reading(reading, buffer);
        }
        reading.is_some()
    }

    /// A frame that a member sent: a reading, or how far its stream is.
    fn handle(
        &mut self,
        now: Time,
        (from, incarnation): (MemberId, Incarnation),
        frame: RawFrame<'_>,
    ) {
        match frame.kind {
            KIND_AUDIT => self.handle_reading(now, from, frame.body),
            KIND_STREAM => {
                if let Some(position) = StreamPosition::read(frame.body) {
                    self.reported(from, incarnation, position);
                }
            }
            _ => {}
        }
    }

    fn handle_reading(&mut self, now: Time, from: MemberId, body: &[u8]) {
        let reading = Reading::read(body, self.members.len());
        match reading.filter(|reading| usize::from(reading.place.object) < self.audited.len()) {
            // As the reference itself knows best, and after an epoch for a moment others do not know yet.
            Some(reading) if self.reference == Some(from) && from != self.members[self.me] => {
                if self.excluded >> reading.place.object & 1 == 0 {
                    self.take(now, from, reading);
                }
            }
            _ => self.tally.refused += 1,
        }
    }

    fn take(&mut self, now: Time, from: MemberId, reading: Reading) {
        let place = &mut self.compared[reading.place.index()];
        let Reading { number, vector, .. } = reading;
        match reading.turn {
            Turn::First(digests) => {
                self.tally.rounds_void += u64::from(place.is_some());
                self.waiting = true;
                *place = Some(Compared {
                    number,
                    place: reading.place,
                    vector,
                    digests,
                    asked: None,
                    own: vec![None; self.lanes],
                });
            }
            Turn::Second(changed) => match place.take_if(|round| round.number == number) {
                Some(round) => self.compare(now, from, &round, (&vector, changed)),
                None => self.tally.rounds_void += 1,
            },
        }
    }

    fn compare(
        &mut self,
        now: Time,
        reference: MemberId,
        round: &Compared,
        (vector, changed): (&[u64], u64),
    ) {
        // The reference's first instance is what the others of its host are compared with.
        let first_lane = usize::from(reference == self.members[self.me]);
        for lane in first_lane..self.lanes {
            let own = round.own[lane].as_ref();
            let Some(own) = own.filter(|own| is_within(own, vector)) else {
                self.tally.rounds_void += 1;
                continue;
            };
            let (equal, different) = compare_leaves(round, own, changed);
            debug_assert_eq!(equal & different, 0);
            let decided = (equal | different).count_ones();
            self.tally.changing += SEGMENT_LEAVES as u64 - u64::from(decided);
            self.tally.equal += u64::from(equal.count_ones());
            self.tally.different += u64::from(different.count_ones());
            self.note_difference(now, reference, (round.place, lane), equal, different);
        }
    }

    /// Remembers which leaves are equal and which differ, and reports of which that is new.
    fn note_difference(
        &mut self,
        now: Time,
        reference: MemberId,
        (place, lane): (Place, usize),
        equal: u64,
        different: u64,
    ) {
        let known = &mut self.known[place.index()];
        for (leaf, equal_at) in known.equal_at[lane].iter_mut().enumerate() {
            if equal >> leaf & 1 != 0 {
                *equal_at = now;
            }
        }
        let before = known.different[lane];
        known.different[lane] = before & !equal | different;
        self.differ += usize::from(known.different[lane] != 0);
        self.differ -= usize::from(before != 0);
        for (equal, leaves) in [(false, different & !before), (true, equal & before)] {
            if leaves != 0 && self.findings.len() < UNDER_WAY_MAX {
                self.findings.push_back(AuditResult {
                    equal,
                    place,
                    leaves,
                    lane,
                    reference,
                });
            }
        }
    }

    /// What became known: parts that differ from now on, or are equal again.
    fn poll_finding(&mut self) -> Option<AuditResult> {
        self.findings.pop_front()
    }

    /// What was counted.
    #[must_use]
    pub fn tally(&self) -> AuditTally {
        self.tally
    }

    /// The member with which this host compares itself; its own name if others compare themselves with it.
    #[must_use]
    pub fn reference(&self) -> Option<MemberId> {
        self.reference
    }

    /// All parts that differ now: where, which instance, which leaves.
    pub fn differing(&self) -> impl Iterator<Item = (Place, usize, u64)> + '_ {
        // Mostly nothing does, and that is asked often.
        let some = if self.differ > 0 {
            &self.known[..]
        } else {
            &[]
        };
        some.iter().enumerate().flat_map(|(index, known)| {
            let place = Place {
                object: (index / SEGMENTS) as u8,
                segment: (index % SEGMENTS) as u8,
            };
            let lanes = known.different.iter().enumerate();
            lanes
                .filter(|(_, leaves)| **leaves != 0)
                .map(move |(lane, &leaves)| (place, lane, leaves))
        })
    }

    /// How many objects there are.
    #[must_use]
    pub fn objects(&self) -> u8 {
        self.audited.len() as u8
    }

    /// Whether an object has digests to compare.
    #[must_use]
    pub fn is_audited(&self, object: u8) -> bool {
        self.audited
            .get(usize::from(object))
            .is_some_and(|&audited| audited && self.excluded >> object & 1 == 0)
    }

    /// Since when every part of an object was found equal at least once, at all instances that are compared; `None` if
    /// nothing is: this host is the reference and has one instance, or the object has no digests.
    #[must_use]
    pub fn equal_since(&self, object: u8) -> Option<Time> {
        let first_lane = usize::from(self.reference == Some(self.members[self.me]));
        let places = usize::from(object) * SEGMENTS..(usize::from(object) + 1) * SEGMENTS;
        let known = self.known.get(places).filter(|_| self.is_audited(object))?;
        let lanes = known
            .iter()
            .flat_map(|known| known.equal_at.iter().skip(first_lane));
        lanes.flatten().min().copied()
    }

    /// When the auditor is due next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let audits = (0..self.objects()).any(|object| self.is_audited(object));
        let leads = self.reference == Some(self.members[self.me]) && audits;
        let second = self.rounds.front().map(|round| round.second_at);
        let next = leads.then_some(self.next_at);
        let times = [second, next, self.telling.at];
        times.into_iter().flatten().min()
    }
}

/// The time between the readings of a round: long enough for the farthest member to read in between.
fn gap(replicator: &Replicator) -> Duration {
    let members = replicator.progress().members().iter();
    let round_trips = members.map(|member| {
        let round_trip = member.round_trip;
        round_trip.average + 2 * round_trip.deviation
    });
    let longest = round_trips.max().unwrap_or_default();
    (longest + GAP_MIN).clamp(GAP_MIN, GAP_MAX)
}

#[cfg(test)]
mod tests;
