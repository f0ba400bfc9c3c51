//! Reads of a store: all that were asked for since the last command are asked for by one, each key once.

use std::collections::{HashMap, HashSet, VecDeque};

use asterism_resp::{CommandWriter, Value};
use asterism_state::{LANE_ANY, LANE_ROOM, Query, Ticket};

use crate::keys::Keys;
use crate::mutant::{self, Mutant};
use crate::workbench::NOTHING;

/// Commands whose replies are waited for, at most: what is asked for meanwhile goes together.
const COMMANDS_MAX: usize = 2;
/// Keys of one command at most.
const KEYS_MAX: usize = 1_024;

/// What a command asked for.
#[derive(Debug)]
enum Sent {
    /// Keys; for each the reads that wait for it.
    Keys(Vec<Vec<Ticket>>),
    /// How many entries an object has: reads of its room, and of whether it has any.
    Count { object: u8, of: Vec<(u8, Ticket)> },
}

/// Reads by one connection.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Keys in the order in which they were asked for, and who waits for each.
    keys: Vec<(Vec<u8>, Vec<Ticket>)>,
    places: HashMap<Vec<u8>, usize>,
    counts: Vec<(u8, Vec<(u8, Ticket)>)>,
    /// All that wait, the sent ones included.
    waiting: HashSet<Ticket>,
    sent: VecDeque<Sent>,
}

impl Reads {
    /// Asks for a read, once however often.
    pub(crate) fn ask(&mut self, ticket: Ticket, query: &Query<'_>, keys: &Keys) {
        if !self.waiting.insert(ticket) {
            return;
        }
        if matches!(query.lane, LANE_ROOM | LANE_ANY) {
            let known = self
                .counts
                .iter()
                .position(|(object, _)| *object == query.object);
            let place = known.unwrap_or_else(|| {
                self.counts.push((query.object, Vec::new()));
                self.counts.len() - 1
            });
            return self.counts[place].1.push((query.lane, ticket));
        }
        let mut key = keys.of_read(query);
        if mutant::active(Mutant::LaneNotInKey) {
            key = keys.of_read(&Query { lane: 0, ..*query });
        }
        let place = *self.places.entry(key).or_insert_with_key(|key| {
            self.keys.push((key.clone(), Vec::new()));
            self.keys.len() - 1
        });
        self.keys[place].1.push(ticket);
    }

    /// Whether anything is waited for.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a reply is to come.
    pub(crate) fn awaits_reply(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Writes the next commands; how many keys they name.
    pub(crate) fn write(&mut self, tick: u32, keys: &Keys, out: &mut Vec<u8>) -> u64 {
        let mut named = 0;
        while self.sent.len() < COMMANDS_MAX && !self.keys.is_empty() {
            let count = self.keys.len().min(KEYS_MAX);
            let rest = self.keys.split_off(count);
            let asked = core::mem::replace(&mut self.keys, rest);
            self.places = (self.keys.iter().enumerate())
                .map(|(place, (key, _))| (key.clone(), place))
                .collect();
            let mut writer = CommandWriter::new(out);
            writer.begin(count + 1);
            writer.argument(b"MGET");
            asked.iter().for_each(|(key, _)| writer.argument(key));
            named += count as u64;
            let tickets = asked.into_iter().map(|(_, tickets)| tickets);
            self.sent.push_back(Sent::Keys(tickets.collect()));
        }
        if self.sent.len() <= COMMANDS_MAX {
            for (object, of) in self.counts.drain(..) {
                count_entries(&keys.of_ends(object), tick, out);
                named += 1;
                self.sent.push_back(Sent::Count { object, of });
            }
        }
        named
    }

    /// The next reply. `capacity` says how many entries an object may have. False if it is none to what was asked.
    pub(crate) fn reply(
        &mut self,
        value: &Value<'_>,
        capacity: impl Fn(u8) -> u64,
        mut answer: impl FnMut(Ticket, &[u8]),
    ) -> bool {
        match (self.sent.pop_front(), value) {
            (Some(Sent::Keys(tickets)), Value::Array(values)) if values.len() == tickets.len() => {
                for (tickets, value) in tickets.iter().zip(*values) {
                    let found = value.bytes().unwrap_or(&NOTHING);
                    for &ticket in tickets {
                        self.waiting.remove(&ticket);
                        answer(ticket, found);
                    }
                }
                true
            }
            (Some(Sent::Count { object, of }), Value::Integer(count)) => {
                let count = u64::try_from(*count).unwrap_or_default();
                let room = capacity(object).saturating_sub(count);
                let room = u32::try_from(room).unwrap_or(u32::MAX).to_le_bytes();
                for (lane, ticket) in of {
                    self.waiting.remove(&ticket);
                    match lane {
                        LANE_ANY => answer(ticket, &any_answer(count)),
                        _ => answer(ticket, &[&NOTHING[..], &room].concat()),
                    }
                }
                true
            }
            (sent, _) => {
                // They are asked for again.
                match sent {
                    Some(Sent::Keys(tickets)) => tickets.iter().flatten().for_each(|ticket| {
                        self.waiting.remove(ticket);
                    }),
                    Some(Sent::Count { of, .. }) => of.iter().for_each(|(_, ticket)| {
                        self.waiting.remove(ticket);
                    }),
                    None => {}
                }
                false
            }
        }
    }

    /// The connection is lost, with all that was asked by it.
    pub(crate) fn lost(&mut self) {
        let before = core::mem::take(self);
        if mutant::active(Mutant::LostReadsAwaited) {
            self.waiting = before.waiting;
        }
    }
}

/// The answer to whether an object has entries.
pub(crate) fn any_answer(entries: u64) -> [u8; 3] {
    [1, 0, u8::from(entries > 0)]
}

/// Asks for how many entries have not ended.
pub(crate) fn count_entries(ends: &[u8], tick: u32, out: &mut Vec<u8>) {
    let mut writer = CommandWriter::new(out);
    writer.begin(4);
    writer.argument(b"ZCOUNT");
    writer.argument(ends);
    writer.number(tick.into());
    writer.argument(b"+inf");
}
