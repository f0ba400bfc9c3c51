//! Sums in a store: what transactions add to them, and what was answered of them.
//!
//! An object has its sums in one hash, each under a field, or in one for each bucket of time, which ends when no read reaches it any more. What the transactions of a batch add is summed by field, and goes with what else they
//! write, so that it is added once or not at all. Reads of sums are not checked at the commit: a hash that each packet changes would make each
//! batch begin again. For the same reason a cache keeps answers about sums for the staleness whatever the store tells of the hash.

use std::collections::{BTreeMap, HashMap};

use asterism_resp::{CommandWriter, Value, Values};
use asterism_state::{Addition, LANE_CELLS, LANE_SUM, Query, Tick, write_sums};

use crate::keys::Keys;
use crate::mutant::{self, Mutant};
use crate::workbench::NOTHING;

/// Fields of an object that are read for people, at most.
pub(crate) const FOR_PEOPLE_MAX: u64 = 4_096;

/// What a batch adds: by object, bucket and field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Additions {
    sums: BTreeMap<(u8, u32, Vec<u8>), i64>,
    /// Those whose bucket was dropped already.
    expired: u64,
}

impl Additions {
    /// Adds; what is beyond the range of a sum is not added. `is_over`: no read reaches its bucket any more.
    pub(crate) fn add(&mut self, object: u8, addition: &Addition<'_>, is_over: bool) {
        if is_over {
            self.expired += 1;
            return;
        }
        let field = addition.field.to_vec();
        let sum = self.sums.entry((object, addition.bucket, field));
        let sum = sum.or_default();
        *sum = sum.saturating_add(addition.amount);
    }

    pub(crate) fn append(&mut self, others: Self) {
        for (of, amount) in others.sums {
            let sum = self.sums.entry(of).or_default();
            *sum = sum.saturating_add(amount);
        }
        self.expired += others.expired;
    }

    /// Additions that came too late.
    pub(crate) fn expired(&self) -> u64 {
        self.expired
    }

    /// Only with that bug: writes them before the transaction of the store begins.
    pub(crate) fn write_early(&mut self, keys: &Keys, out: &mut Vec<u8>) -> usize {
        match mutant::active(Mutant::AddedBeforeExec) {
            true => core::mem::take(self).write(keys, out),
            false => 0,
        }
    }

    /// Writes them, a command for each field, and until when each bucket stays; how many commands that takes.
    pub(crate) fn write(&self, keys: &Keys, out: &mut Vec<u8>) -> usize {
        let mut writer = CommandWriter::new(out);
        let mut commands = self.sums.len();
        let mut buckets: BTreeMap<(u8, u32), Vec<&[u8]>> = BTreeMap::new();
        for ((object, bucket, field), amount) in &self.sums {
            writer.begin(4);
            writer.argument(b"HINCRBY");
            writer.argument(&keys.of_sums_in(*object, *bucket));
            writer.argument(field);
            writer.number(*amount);
            if *bucket != 0 {
                buckets.entry((*object, *bucket)).or_default().push(field);
            }
        }
        for ((object, bucket), fields) in buckets {
            let stays_s = keys.stays_s(object);
            if !mutant::active(Mutant::BucketsStay) {
                expire(&mut writer, &keys.of_sums_in(object, bucket), stays_s);
                commands += 1;
            }
            if keys.lists_keys(object) {
                commands += list_keys(&mut writer, keys, (object, bucket), &fields);
            }
        }
        commands
    }
}

fn expire(writer: &mut CommandWriter<'_>, key: &[u8], seconds: Tick) {
    writer.begin(3);
    writer.argument(b"EXPIRE");
    writer.argument(key);
    writer.number(seconds.into());
}

/// Lists the keys of which something is added in a bucket, and strikes out those of which no bucket that is kept has anything.
fn list_keys(
    writer: &mut CommandWriter<'_>,
    keys: &Keys,
    (object, bucket): (u8, u32),
    fields: &[&[u8]],
) -> usize {
    let list = keys.of_listed(object);
    writer.begin(2 + 2 * fields.len());
    writer.argument(b"ZADD");
    writer.argument(&list);
    for field in fields {
        writer.number(bucket.into());
        writer.argument(field);
    }
    let dropped = keys.dropped_before(object, bucket);
    writer.begin(4);
    writer.argument(b"ZREMRANGEBYSCORE");
    writer.argument(&list);
    writer.argument(b"-inf");
    writer.number(dropped.into());
    expire(writer, &list, keys.stays_s(object));
    3
}

/// The field that a read of sums names, or what stands for several; all of them have none.
pub(crate) fn field_of<'a>(query: &Query<'a>) -> Option<&'a [u8]> {
    matches!(query.lane, LANE_SUM | LANE_CELLS).then_some(query.key)
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
pub(crate) fn number(value: &Value<'_>) -> Option<i64> {
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
