//! Reads of a store: all that were asked for since the last command are asked for by one, each key once.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use asterism_resp::{CommandWriter, Value};
use asterism_state::{
    LANE_ANY, LANE_CELLS, LANE_ROOM, LANE_SUM, LANE_SUMS, Query, SumsShown, Tick, Ticket,
};

use crate::cache::Cache;
use crate::cells::{Groups, Part};
use crate::filter::Piece;
use crate::keys::Keys;
use crate::mutant::{self, Mutant};
use crate::sums::{answer_of_all, answer_of_field};
use crate::workbench::NOTHING;

/// Commands whose replies are waited for, at most: what is asked for meanwhile goes together.
const COMMANDS_MAX: usize = 2;
/// Keys of one command at most.
pub(crate) const KEYS_MAX: usize = 1_024;
/// Seconds from one census of an object's entries to the next.
const CENSUS_S: Tick = 5;

/// A key that is asked for, and the reads that wait for it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) object: u8,
    pub(crate) key: Vec<u8>,
    pub(crate) tickets: Vec<Ticket>,
}

/// What a command asked for.
#[derive(Debug)]
enum Sent {
    Keys(Vec<Asked>),
    /// How many entries an object has: reads of its room, and of whether it has any.
    Count {
        object: u8,
        of: Vec<(u8, Ticket)>,
    },
    /// All sums of an object; without tickets for people.
    Sums {
        object: u8,
        tickets: Vec<Ticket>,
    },
    /// Sums of an object by their fields, which stand in place of keys.
    Fields(u8, Vec<Asked>),
    /// A part of what reads of several sums asked for.
    Cells(Part),
    /// How many entries an object has, for people.
    Census {
        object: u8,
    },
    /// Keys that are there.
    Scan(Piece),
    /// Nothing: so that answers that are kept may be given out.
    Ping,
}

/// A read that was answered.
pub(crate) struct Answered<'a> {
    pub(crate) object: u8,
    /// `None`: it is an answer to no key.
    pub(crate) key: Option<Vec<u8>>,
    /// An answer about sums: when it was asked for, and of which field; `None`: of all.
    pub(crate) sums: Option<(u64, Option<&'a [u8]>)>,
    pub(crate) tickets: &'a [Ticket],
    pub(crate) answer: &'a [u8],
}

/// Reads by one connection.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Keys in the order in which they were asked for.
    keys: Vec<Asked>,
    places: HashMap<Vec<u8>, usize>,
    counts: Vec<(u8, Vec<(u8, Ticket)>)>,
    sums: BTreeMap<u8, Vec<Ticket>>,
    /// Fields of each object, in the place of keys.
    fields: BTreeMap<u8, Vec<Asked>>,
    cells: Groups,
    /// All that wait, the sent ones included.
    waiting: HashSet<Ticket>,
    /// What was asked for, each with the time, in microseconds.
    sent: VecDeque<(u64, Sent)>,
    last_sent_us: u64,
    /// The second of the last census.
    census: Option<Tick>,
    /// Each key is asked for by a command of its own, at once.
    is_each_alone: bool,
}

impl Reads {
    /// From now on each key is asked for by a command of its own, however many replies are waited for: what batching is measured against.
    pub(crate) fn ask_each_alone(&mut self) {
        self.is_each_alone = true;
    }

    /// Asks for a read, once however often.
    pub(crate) fn ask(&mut self, ticket: Ticket, query: &Query<'_>, keys: &Keys) {
        if !self.waiting.insert(ticket) {
            return;
        }
        if query.lane == LANE_SUMS {
            return self.sums.entry(query.object).or_default().push(ticket);
        }
        if query.lane == LANE_SUM {
            return self.ask_field(ticket, query);
        }
        if query.lane == LANE_CELLS {
            return self.cells.ask(ticket, query);
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
            self.keys.push(Asked {
                object: query.object,
                key: key.clone(),
                tickets: Vec::new(),
            });
            self.keys.len() - 1
        });
        self.keys[place].tickets.push(ticket);
    }

    /// Asks for the sum of a field: once of those that are under way, for there are few.
    fn ask_field(&mut self, ticket: Ticket, query: &Query<'_>) {
        let fields = self.fields.entry(query.object).or_default();
        match fields.iter_mut().find(|asked| asked.key == query.key) {
            Some(asked) => asked.tickets.push(ticket),
            None => fields.push(Asked {
                object: query.object,
                key: query.key.to_vec(),
                tickets: vec![ticket],
            }),
        }
    }

    /// Whether a read was asked for that is not answered.
    pub(crate) fn is_asked(&self, ticket: Ticket) -> bool {
        self.waiting.contains(&ticket)
    }

    /// Whether anything is waited for.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a reply is to come.
    pub(crate) fn awaits_reply(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Whether the entries of all objects are to be counted. Not in the first seconds.
    fn is_census_due(&mut self, tick: Tick) -> bool {
        let last = *self.census.get_or_insert(tick);
        let is_due = tick.saturating_sub(last) >= CENSUS_S;
        if is_due {
            self.census = Some(tick);
        }
        is_due
    }

    /// When something is to be asked for though nothing is, for the answers that are kept.
    pub(crate) fn ping_due_us(&self, cache: &Cache) -> Option<u64> {
        match self.sent.is_empty() {
            true => cache.ping_due_us(self.last_sent_us),
            false => None,
        }
    }

    /// Writes the next commands; how many keys they name.
    pub(crate) fn write(
        &mut self,
        (now_us, tick): (u64, Tick),
        (keys, objects, with_sums): (&Keys, u64, &[(u8, SumsShown)]),
        cache: Option<&mut Cache>,
        out: &mut Vec<u8>,
    ) -> u64 {
        let mut named = 0;
        let before = self.sent.len();
        let scans = self.sent.iter();
        let scans = scans.filter(|(_, sent)| matches!(sent, Sent::Scan(_)));
        let commands_max = COMMANDS_MAX + scans.count();
        if self.is_each_alone {
            self.places.clear();
            for asked in self.keys.drain(..) {
                CommandWriter::new(out).command(&[b"MGET", &asked.key]);
                named += 1;
                self.sent.push_back((now_us, Sent::Keys(vec![asked])));
            }
        }
        while self.sent.len() < commands_max && !self.keys.is_empty() {
            let count = self.keys.len().min(KEYS_MAX);
            let rest = self.keys.split_off(count);
            let asked = core::mem::replace(&mut self.keys, rest);
            self.places = (self.keys.iter().enumerate())
                .map(|(place, asked)| (asked.key.clone(), place))
                .collect();
            let mut writer = CommandWriter::new(out);
            writer.begin(count + 1);
            writer.argument(b"MGET");
            asked.iter().for_each(|asked| writer.argument(&asked.key));
            named += count as u64;
            self.sent.push_back((now_us, Sent::Keys(asked)));
        }
        if self.sent.len() <= commands_max {
            for (object, of) in self.counts.drain(..) {
                count_entries((keys, tick), object, out);
                named += 1;
                self.sent.push_back((now_us, Sent::Count { object, of }));
            }
            for (object, tickets) in core::mem::take(&mut self.sums) {
                CommandWriter::new(out).command(&[b"HGETALL", &keys.of_sums(object)]);
                named += 1;
                self.sent
                    .push_back((now_us, Sent::Sums { object, tickets }));
            }
            // After the numbers of sums: what was not there when there was no room for it is not there.
            for (object, mut asked) in core::mem::take(&mut self.fields) {
                while !asked.is_empty() {
                    let rest = asked.split_off(asked.len().min(KEYS_MAX));
                    let some = core::mem::replace(&mut asked, rest);
                    let mut writer = CommandWriter::new(out);
                    writer.begin(2 + some.len());
                    writer.argument(b"HMGET");
                    writer.argument(&keys.of_sums(object));
                    some.iter().for_each(|asked| writer.argument(&asked.key));
                    named += some.len() as u64;
                    self.sent.push_back((now_us, Sent::Fields(object, some)));
                }
            }
            let sent = |part| self.sent.push_back((now_us, Sent::Cells(part)));
            named += self.cells.write((keys, tick), out, sent);
        }
        if self.is_census_due(tick) {
            for object in (0..u64::BITS as u8).filter(|number| objects >> number & 1 != 0) {
                count_entries((keys, tick), object, out);
                self.sent.push_back((now_us, Sent::Census { object }));
            }
            for &(object, shown) in with_sums {
                let sent = |part| self.sent.push_back((now_us, Sent::Cells(part)));
                let what = (object, shown, tick);
                self.cells.write_shown(what, keys, out, sent);
            }
        }
        if let Some(cache) = cache {
            if let Some(piece) = cache.write_filter(now_us, keys, out) {
                self.sent.push_back((now_us, Sent::Scan(piece)));
            }
            if self.ping_due_us(cache).is_some_and(|due| due <= now_us) {
                CommandWriter::new(out).command(&[b"PING"]);
                self.sent.push_back((now_us, Sent::Ping));
            }
            (before..self.sent.len()).for_each(|_| cache.command_sent());
        }
        if self.sent.len() > before {
            self.last_sent_us = now_us;
        }
        named
    }

    /// The next reply. `capacity` says how many entries an object may have. False if it is none to what was asked.
    pub(crate) fn reply(
        &mut self,
        value: &Value<'_>,
        capacity: impl Fn(u8) -> u64,
        mut cache: Option<&mut Cache>,
        mut counted: impl FnMut(u8, u64),
        mut answered: impl FnMut(Option<&mut Cache>, Answered<'_>),
    ) -> bool {
        let Some((sent_us, sent)) = self.sent.pop_front() else {
            return false;
        };
        if let Some(cache) = &mut cache {
            cache.command_answered(sent_us);
        }
        let is_well = match (sent, value) {
            (Sent::Keys(asked), Value::Array(values)) if values.len() == asked.len() => {
                for (asked, value) in asked.into_iter().zip(*values) {
                    for ticket in &asked.tickets {
                        self.waiting.remove(ticket);
                    }
                    let one = Answered {
                        object: asked.object,
                        key: Some(asked.key),
                        sums: None,
                        tickets: &asked.tickets,
                        answer: value.bytes().unwrap_or(&NOTHING),
                    };
                    answered(cache.as_deref_mut(), one);
                }
                true
            }
            (Sent::Count { object, of }, Value::Integer(count)) => {
                let count = u64::try_from(*count).unwrap_or_default();
                counted(object, count);
                let room = room_answer(capacity(object).saturating_sub(count));
                let any = any_answer(count);
                for (lane, ticket) in of {
                    self.waiting.remove(&ticket);
                    let one = Answered {
                        object,
                        key: None,
                        sums: None,
                        tickets: &[ticket],
                        answer: if lane == LANE_ANY { &any } else { &room },
                    };
                    answered(None, one);
                }
                true
            }
            (Sent::Sums { object, tickets }, Value::Array(values)) => {
                for ticket in &tickets {
                    self.waiting.remove(ticket);
                }
                let one = Answered {
                    object,
                    key: None,
                    sums: Some((sent_us, None)),
                    tickets: &tickets,
                    answer: &answer_of_all(*values),
                };
                answered(None, one);
                true
            }
            (Sent::Fields(object, asked), Value::Array(values)) if values.len() == asked.len() => {
                for (asked, value) in asked.iter().zip(*values) {
                    for ticket in &asked.tickets {
                        self.waiting.remove(ticket);
                    }
                    let one = Answered {
                        object,
                        key: None,
                        sums: Some((sent_us, Some(&asked.key))),
                        tickets: &asked.tickets,
                        answer: &answer_of_field(&asked.key, &value),
                    };
                    answered(None, one);
                }
                true
            }
            (Sent::Cells(part), value) => {
                let waiting = &mut self.waiting;
                self.cells.reply(part, value, sent_us, |tickets, one| {
                    for ticket in tickets {
                        waiting.remove(ticket);
                    }
                    if let Some(one) = one {
                        answered(None, one);
                    }
                })
            }
            (Sent::Census { object }, Value::Integer(count)) => {
                counted(object, u64::try_from(*count).unwrap_or_default());
                true
            }
            (Sent::Ping, Value::Status(_)) => true,
            (Sent::Scan(piece), value) => {
                let mut cache = cache.iter_mut();
                cache.all(|cache| cache.filter_reply(piece, value, sent_us))
            }
            (sent, _) => {
                // They are asked for again.
                let tickets: Vec<Ticket> = match sent {
                    Sent::Keys(asked) | Sent::Fields(_, asked) => {
                        asked.into_iter().flat_map(|one| one.tickets).collect()
                    }
                    Sent::Count { of, .. } => of.into_iter().map(|(_, ticket)| ticket).collect(),
                    Sent::Sums { tickets, .. } => tickets,
                    Sent::Cells(_) | Sent::Census { .. } | Sent::Scan(_) | Sent::Ping => Vec::new(),
                };
                for ticket in tickets {
                    self.waiting.remove(&ticket);
                }
                false
            }
        };
        if let Some(cache) = cache {
            cache.lift_bars();
        }
        is_well
    }

    /// The connection is lost, with all that was asked by it.
    pub(crate) fn lost(&mut self) {
        let before = core::mem::take(self);
        (self.census, self.is_each_alone) = (before.census, before.is_each_alone);
        if mutant::active(Mutant::LostReadsAwaited) {
            self.waiting = before.waiting;
        }
    }
}

/// The answer to how many entries may be added.
pub(crate) fn room_answer(room: u64) -> [u8; 6] {
    let [a, b, c, d] = u32::try_from(room).unwrap_or(u32::MAX).to_le_bytes();
    [0, 0, a, b, c, d]
}

/// The answer to whether an object has entries.
pub(crate) fn any_answer(entries: u64) -> [u8; 3] {
    [1, 0, u8::from(entries > 0)]
}

/// Asks for how many entries an object has, or how many sums, of buckets of time those of the present.
pub(crate) fn count_entries((keys, tick): (&Keys, Tick), object: u8, out: &mut Vec<u8>) {
    let mut writer = CommandWriter::new(out);
    let buckets = keys.buckets_shown(object, tick);
    if keys.lists_keys(object) {
        writer.begin(4);
        writer.argument(b"ZCOUNT");
        writer.argument(&keys.of_listed(object));
        writer.number((*buckets.start()).into());
        writer.argument(b"+inf");
    } else if keys.has_sums(object) {
        writer.command(&[b"HLEN", &keys.of_sums_now(object, tick)]);
    } else {
        writer.command(&[b"ZCARD", &keys.of_ends(object)]);
    }
}
