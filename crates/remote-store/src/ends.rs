//! Ends of entries whose idle time is over, which are committed.
//!
//! An entry in a store stays, and is found, until a client has committed its end, by the same `WATCH` and `EXEC` as packets' writes, and together with
//! what that takes from sums. So it ends once, even if clients die or pause meanwhile, and a packet that uses it first has it go on. (Timers in the
//! store, the StatelessNF paper, section 4.3.1.)
//!
//! One client at a time looks for entries whose time is over: it has the store's word for some seconds. That saves work, no more: of two that end one
//! entry, the store lets one.

use asterism_function::NetworkFunction;
use asterism_resp::{CommandWriter, Value};
use asterism_state::Tick;

use crate::keys::Keys;
use crate::loaded::{Changes, Loaded};
use crate::workbench::{Read, Workbench};

/// Entries that are ended together at most. Redis looks through all keys that a connection watches for each further one: twice as many take it
/// four times as long, and with 512 entries that was a third of its time.
const TOGETHER_MAX: usize = 128;
/// Microseconds from one look to the next, unless there was more than one could end.
const EACH_US: u64 = 1_000_000;
/// Milliseconds for which one client looks.
const WORD_MS: i64 = 2_000;
/// Replies to a look.
pub(crate) const REPLIES: usize = 3;

/// Entries of one object whose end is to be committed, by their rows.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) object: u8,
    pub(crate) rows: Vec<Vec<u8>>,
}

/// When a connection looks for such entries, and of which object.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The client, as it names itself in the store.
    name: Vec<u8>,
    objects: Vec<u8>,
    place: usize,
    due_us: u64,
    /// Entries that are ended together, at most: fewer where packets that use them come between.
    together: usize,
    /// Packets' writes come first the next time.
    yields: bool,
    is_its_turn: bool,
    is_full: bool,
}

impl Ends {
    /// Of these objects.
    pub(crate) fn new(name: Vec<u8>, objects: Vec<u8>) -> Self {
        Self {
            name,
            objects,
            place: 0,
            due_us: 0,
            together: TOGETHER_MAX,
            yields: false,
            is_its_turn: false,
            is_full: false,
        }
    }

    /// Whether it is time to look, `before` what packets write or when there is nothing else to do.
    pub(crate) fn is_due(&self, now_us: u64, before: bool) -> bool {
        now_us >= self.due_us && !(before && self.yields)
    }

    /// The last ones have ended.
    pub(crate) fn made(&mut self) {
        self.together = (self.together * 2).min(TOGETHER_MAX);
    }

    /// None of the last ones was ended, since packets used some of them meanwhile, or the store takes no ends.
    pub(crate) fn refused(&mut self, is_crossed: bool, now_us: u64) {
        if is_crossed {
            self.together = (self.together / 2).max(1);
            self.due_us = now_us;
        } else {
            self.due_us = now_us + EACH_US;
        }
    }

    /// Packets' writes had their turn.
    pub(crate) fn packets_served(&mut self) {
        self.yields = false;
    }

    /// Writes what is asked for.
    pub(crate) fn look(&mut self, tick: Tick, keys: &Keys, out: &mut Vec<u8>) {
        let object = self.objects[self.place];
        let word = keys.of_word(object);
        let mut writer = CommandWriter::new(out);
        writer.begin(6);
        writer.argument(b"SET");
        writer.argument(&word);
        writer.argument(&self.name);
        writer.argument(b"NX");
        writer.argument(b"PX");
        writer.number(WORD_MS);
        writer.command(&[b"GET", &word]);
        writer.begin(7);
        writer.argument(b"ZRANGEBYSCORE");
        writer.argument(&keys.of_ends(object));
        writer.argument(b"-inf");
        writer.argument(format!("({}", tick.saturating_sub(1)).as_bytes());
        writer.argument(b"LIMIT");
        writer.number(0);
        writer.number(self.together as i64);
    }

    /// The next reply to that, of which so many are left with this one. `Err`: that is none; `Ok(None)`: nothing is to be done yet.
    pub(crate) fn reply(
        &mut self,
        value: &Value<'_>,
        left: usize,
        now_us: u64,
    ) -> Result<Option<Claim>, ()> {
        match (left, value) {
            (REPLIES, Value::Status(_) | Value::Null | Value::Error(_)) => {
                self.is_full = matches!(value, Value::Error(why) if why.starts_with(b"OOM "));
                Ok(None)
            }
            (2, Value::String(_) | Value::Null | Value::Error(_)) => {
                // A full store gives its word to nobody, and needs ends most.
                self.is_its_turn = self.is_full || value.bytes() == Some(&self.name);
                Ok(None)
            }
            (1, Value::Error(_)) => {
                self.due_us = now_us + EACH_US;
                Ok(None)
            }
            (1, Value::Array(values)) => {
                let rows: Vec<Vec<u8>> = (values.take(self.together))
                    .filter_map(|row| row.bytes().map(<[u8]>::to_vec))
                    .collect();
                let object = self.objects[self.place];
                let has_more = rows.len() >= self.together && self.is_its_turn;
                if !has_more {
                    self.place = (self.place + 1) % self.objects.len();
                }
                self.yields = true;
                self.due_us = match has_more || self.place > 0 {
                    true => now_us,
                    false => now_us + EACH_US,
                };
                let is_any = self.is_its_turn && !rows.is_empty();
                Ok(is_any.then_some(Claim { object, rows }))
            }
            _ => Err(()),
        }
    }
}

impl Claim {
    /// Has all that is to be read of them loaded.
    pub(crate) fn load<F: NetworkFunction>(
        &self,
        (keys, bench): (&Keys, &Workbench<F>),
        loaded: &mut Loaded,
    ) {
        for row in &self.rows {
            // What is no row is taken out of the set.
            let _ = bench.reads_of(self.object, row, &mut |reads| {
                for query in reads {
                    loaded.add(keys, Read::new(query), true);
                }
            });
        }
    }

    /// Notes when these entries end, as the workbench has it now: what the set said of some was otherwise, or of entries that were gone before.
    /// How many have ended.
    pub(crate) fn note<F: NetworkFunction>(
        &self,
        bench: &mut Workbench<F>,
        changes: &mut Changes,
    ) -> u64 {
        let mut ended = 0;
        for row in &self.rows {
            let end = bench.end_of(self.object, row);
            let noted = changes.note_row(self.object, row.clone(), end);
            ended += u64::from(noted == Some(None));
        }
        ended
    }
}
