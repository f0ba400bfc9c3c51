//! Sums in a store: what transactions add to them, and what was answered of them.
//!
//! An object has its sums in one hash, each under a field. What the transactions of a batch add is summed by field, and goes with what else they
//! write, so that it is added once or not at all. Reads of sums are not checked at the commit: a hash that each packet changes would make each
//! batch begin again. For the same reason a cache keeps answers about sums for the staleness whatever the store tells of the hash.

use std::collections::{BTreeMap, HashMap};

use asterism_resp::{CommandWriter, Value, Values};
use asterism_state::{LANE_SUM, Query, write_sums};

use crate::keys::Keys;
use crate::mutant::{self, Mutant};
use crate::workbench::NOTHING;

/// Fields of an object that are read for people, at most.
pub(crate) const FOR_PEOPLE_MAX: u64 = 4_096;

/// What a batch adds: by object and field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Additions(BTreeMap<(u8, Vec<u8>), i64>);

impl Additions {
    /// Adds; what is beyond the range of a sum is not added.
    pub(crate) fn add(&mut self, object: u8, field: &[u8], amount: i64) {
        let sum = self.0.entry((object, field.to_vec())).or_default();
        *sum = sum.saturating_add(amount);
    }

    pub(crate) fn append(&mut self, others: Self) {
        for ((object, field), amount) in others.0 {
            self.add(object, &field, amount);
        }
    }

    /// Only with that bug: writes them before the transaction of the store begins.
    pub(crate) fn write_early(&mut self, keys: &Keys, out: &mut Vec<u8>) -> usize {
        match mutant::active(Mutant::AddedBeforeExec) {
            true => core::mem::take(self).write(keys, out),
            false => 0,
        }
    }

    /// Writes them, a command for each field; how many commands that takes.
    pub(crate) fn write(&self, keys: &Keys, out: &mut Vec<u8>) -> usize {
        let mut writer = CommandWriter::new(out);
        for ((object, field), amount) in &self.0 {
            writer.begin(4);
            writer.argument(b"HINCRBY");
            writer.argument(&keys.of_sums(*object));
            writer.argument(field);
            writer.number(*amount);
        }
        self.0.len()
    }
}

/// The field that a read of sums names; all of them have none.
pub(crate) fn field_of<'a>(query: &Query<'a>) -> Option<&'a [u8]> {
    (query.lane == LANE_SUM).then_some(query.key)
}

/// The answer to a read of a field that has this value.
pub(crate) fn answer_of_field(field: &[u8], value: &Value<'_>) -> Vec<u8> {
    let mut answer = Vec::new();
    // What somebody else put there is none.
    write_sums(number(value).map(|sum| (field, sum)), &mut answer);
    answer
}

/// The answer to a read of all fields of a hash: those that are not zero.
pub(crate) fn answer_of_all(fields: Values<'_>) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut fields = fields;
    let pairs = core::iter::from_fn(|| Some((fields.next()?, fields.next()?)));
    let sums = pairs.filter_map(|(field, sum)| Some((field.bytes()?, number(&sum)?)));
    write_sums(sums.filter(|(_, sum)| *sum != 0), &mut answer);
    answer
}

/// A number in decimal digits.
fn number(value: &Value<'_>) -> Option<i64> {
    core::str::from_utf8(value.bytes()?).ok()?.parse().ok()
}

/// Answers about sums that are kept, each for the staleness.
#[derive(Debug)]
pub(crate) struct KeptSums {
    staleness_us: u64,
    most: usize,
    /// By what was read, each with the time at which it was asked for.
    answers: HashMap<Vec<u8>, (u64, Vec<u8>)>,
    /// What is looked for.
    read: Vec<u8>,
}

impl KeptSums {
    pub(crate) fn new(staleness_us: u64, most: usize) -> Self {
        Self {
            staleness_us,
            most,
            answers: HashMap::new(),
            read: Vec::new(),
        }
    }

    /// What is read: a field of an object, or all fields.
    fn name_read(&mut self, object: u8, field: Option<&[u8]>) {
        self.read.clear();
        self.read.extend([object, u8::from(field.is_some())]);
        self.read.extend(field.unwrap_or_default());
    }

    /// Keeps the answer to a read that was sent at this time, unless there is no such sum: whether there is room for one is as of now. Where
    /// there is no memory, all that are kept go.
    pub(crate) fn keep(
        &mut self,
        (object, field): (u8, Option<&[u8]>),
        sent_us: u64,
        answer: &[u8],
    ) {
        if answer == NOTHING {
            return;
        }
        if self.answers.len() >= self.most {
            self.answers.clear();
        }
        self.name_read(object, field);
        self.answers
            .insert(self.read.clone(), (sent_us, answer.to_vec()));
    }

    /// The answer to a read, if it may be given out.
    pub(crate) fn get(&mut self, query: &Query<'_>, now_us: u64) -> Option<&[u8]> {
        self.name_read(query.object, field_of(query));
        let (sent_us, answer) = self.answers.get(&self.read)?;
        let age_us = now_us.saturating_sub(*sent_us);
        (age_us <= self.staleness_us || mutant::active(Mutant::SumsGivenOutForEver))
            .then_some(&**answer)
    }
}
