//! Reads that name several sums of an object at once, in one hash or in those of buckets of time.
//!
//! All that were asked for since the last command are asked for together: each hash by one command, each field once. A read is answered when
//! the last of these commands is, with the sum of each field over the buckets that it names, or with that in each of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use asterism_resp::{CommandWriter, Value};
use asterism_state::{
    Query, SumsAsked, SumsRead, SumsShown, Tick, Ticket, append_sum, write_bucket_field, write_sums,
};

use crate::keys::Keys;
use crate::mutant::{self, Mutant};
use crate::reads::{Answered, Asked, KEYS_MAX, count_entries};
use crate::sums::number;

/// What a command asks for.
#[derive(Clone, Debug)]
enum What {
    /// Some fields of a bucket's hash.
    Fields(u32, Vec<Vec<u8>>),
    /// All fields of it.
    All(u32),
    /// How many keys the object has.
    Keys,
}

/// A command.
#[derive(Debug)]
pub(crate) struct Part {
    what: What,
    /// It is the last one of what was asked for together.
    is_last: bool,
}

/// What was asked for together, of one object.
#[derive(Debug)]
struct Group {
    object: u8,
    asked: Vec<Asked>,
    /// It is for people.
    is_shown: bool,
    /// By bucket and field.
    sums: BTreeMap<u32, HashMap<Vec<u8>, i64>>,
    keys: Option<i64>,
    /// A command was refused.
    is_refused: bool,
}

/// Such reads, by one connection.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    waiting: BTreeMap<u8, Vec<Asked>>,
    under_way: VecDeque<Group>,
}

impl Groups {
    /// Asks for a read. Of those that name the same only one is answered, for all.
    pub(crate) fn ask(&mut self, ticket: Ticket, query: &Query<'_>) {
        let waiting = self.waiting.entry(query.object).or_default();
        match waiting.iter_mut().find(|asked| asked.key == query.key) {
            Some(asked) => asked.tickets.push(ticket),
            None => waiting.push(Asked {
                object: query.object,
                key: query.key.to_vec(),
                tickets: vec![ticket],
            }),
        }
    }

    /// Writes the commands for all that is asked for, and hands each to `sent`; how many sums they name.
    pub(crate) fn write(
        &mut self,
        (keys, tick): (&Keys, Tick),
        out: &mut Vec<u8>,
        mut sent: impl FnMut(Part),
    ) -> u64 {
        let mut named = 0;
        for (object, asked) in core::mem::take(&mut self.waiting) {
            let mut fields: BTreeMap<u32, BTreeSet<&[u8]>> = BTreeMap::new();
            let mut counts_keys = false;
            for one in &asked {
                // An instance asks for nothing else; what is none is answered as what is not there.
                let Ok(read) = SumsRead::read(&one.key) else {
                    continue;
                };
                counts_keys |= read.counts_keys();
                let most = match mutant::active(Mutant::OneBucketRead) {
                    true => 1,
                    false => usize::MAX,
                };
                for bucket in read.each_bucket().take(most) {
                    fields.entry(bucket).or_default().extend(read.fields());
                }
            }
            let mut parts = Vec::new();
            for (bucket, fields) in fields {
                let fields: Vec<_> = fields.into_iter().map(<[u8]>::to_vec).collect();
                named += fields.len() as u64;
                let some = fields.chunks(KEYS_MAX);
                parts.extend(some.map(|some| What::Fields(bucket, some.to_vec())));
            }
            if counts_keys || parts.is_empty() {
                // Also of what names nothing, so that it is answered.
                parts.push(What::Keys);
            }
            write_parts((object, keys, tick), parts, out, &mut sent);
            self.under_way.push_back(Group::new(object, asked));
        }
        named
    }

    /// Writes the commands for what people see of an object.
    pub(crate) fn write_shown(
        &mut self,
        (object, shown, tick): (u8, SumsShown, Tick),
        keys: &Keys,
        out: &mut Vec<u8>,
        mut sent: impl FnMut(Part),
    ) {
        let buckets = keys.buckets_shown(object, tick);
        let parts = match shown {
            SumsShown::None => return,
            SumsShown::All => buckets.map(What::All).collect(),
            SumsShown::One(field) => {
                let one = |bucket| What::Fields(bucket, vec![field.to_vec()]);
                buckets.map(one).collect()
            }
        };
        write_parts((object, keys, tick), parts, out, &mut sent);
        self.under_way.push_back(Group {
            is_shown: true,
            ..Group::new(object, Vec::new())
        });
    }

    /// The reply to a command. With the last one of a group `answered` takes what became of each read, `None`: it is to be asked for again.
    /// False if it is none to what was asked.
    pub(crate) fn reply(
        &mut self,
        part: Part,
        value: &Value<'_>,
        sent_us: u64,
        mut answered: impl FnMut(&[Ticket], Option<Answered<'_>>),
    ) -> bool {
        let Some(group) = self.under_way.front_mut() else {
            return false;
        };
        let is_well = group.take(&part, value);
        group.is_refused |= !is_well;
        if !part.is_last {
            return is_well;
        }
        let Some(group) = self.under_way.pop_front() else {
            return false;
        };
        for asked in &group.asked {
            let answer = (!group.is_refused).then(|| group.answer(&asked.key));
            // Whether there is room for a key that is not there is as of now.
            let is_kept = !group.is_absent(&asked.key);
            let one = answer.as_ref().map(|answer| Answered {
                object: group.object,
                key: None,
                sums: is_kept.then_some((sent_us, Some(&*asked.key))),
                tickets: &asked.tickets,
                answer,
            });
            answered(&asked.tickets, one);
        }
        if group.is_shown && !group.is_refused {
            let one = Answered {
                object: group.object,
                key: None,
                sums: Some((sent_us, None)),
                tickets: &[],
                answer: &group.answer_shown(),
            };
            answered(&[], Some(one));
        }
        is_well
    }
}

/// Writes commands for parts.
fn write_parts(
    (object, keys, tick): (u8, &Keys, Tick),
    parts: Vec<What>,
    out: &mut Vec<u8>,
    sent: &mut impl FnMut(Part),
) {
    let last = parts.len().saturating_sub(1);
    for (place, what) in parts.into_iter().enumerate() {
        let mut writer = CommandWriter::new(out);
        match &what {
            What::Fields(bucket, fields) => {
                writer.begin(2 + fields.len());
                writer.argument(b"HMGET");
                writer.argument(&keys.of_sums_in(object, *bucket));
                fields.iter().for_each(|field| writer.argument(field));
            }
            What::All(bucket) => {
                writer.command(&[b"HGETALL", &keys.of_sums_in(object, *bucket)]);
            }
            What::Keys => count_entries((keys, tick), object, out),
        }
        let is_last = place == last;
        sent(Part { what, is_last });
    }
}

impl Group {
    fn new(object: u8, asked: Vec<Asked>) -> Self {
        Self {
            object,
            asked,
            is_shown: false,
            sums: BTreeMap::new(),
            keys: None,
            is_refused: false,
        }
    }

    /// Takes the sums of a reply. False if it is none.
    fn take(&mut self, part: &Part, value: &Value<'_>) -> bool {
        match (&part.what, *value) {
            (What::Keys, Value::Integer(count)) => {
                self.keys = Some(count.max(0));
                true
            }
            (What::Fields(bucket, fields), Value::Array(values)) => {
                let sums = self.sums.entry(*bucket).or_default();
                let is_well = fields.len() == values.len();
                for (field, value) in fields.iter().zip(values).filter(|_| is_well) {
                    if let Some(sum) = number(&value) {
                        sums.insert(field.clone(), sum);
                    }
                }
                is_well
            }
            (What::All(bucket), Value::Array(mut values)) => {
                let sums = self.sums.entry(*bucket).or_default();
                while let (Some(field), Some(value)) = (values.next(), values.next()) {
                    if let (Some(field), Some(sum)) = (field.bytes(), number(&value)) {
                        sums.insert(field.to_vec(), sum);
                    }
                }
                true
            }
            _ => false,
        }
    }

    /// Whether a read counts keys, and finds none of its own.
    fn is_absent(&self, request: &[u8]) -> bool {
        SumsRead::read(request).is_ok_and(|read| {
            let is_there = |field: &[u8]| {
                let mut buckets = read.each_bucket();
                buckets.any(|bucket| self.sum(bucket, field).is_some())
            };
            read.counts_keys() && !read.fields().any(is_there)
        })
    }

    fn sum(&self, bucket: u32, field: &[u8]) -> Option<i64> {
        self.sums.get(&bucket)?.get(field).copied()
    }

    /// The answer to a read.
    fn answer(&self, request: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        let Ok(read) = SumsRead::read(request) else {
            write_sums([], &mut answer);
            return answer;
        };
        if read.asked == SumsAsked::ByBucket {
            return self.answer_by_bucket(&read);
        }
        let over_all = |field: &[u8]| {
            let sums = read
                .each_bucket()
                .filter_map(|bucket| self.sum(bucket, field));
            sums.reduce(i64::saturating_add)
        };
        let sums = read
            .fields()
            .filter_map(|field| Some((field, over_all(field)?)));
        write_sums(sums, &mut answer);
        if let Some(keys) = self.keys.filter(|_| read.counts_keys()) {
            append_sum(b"", keys, &mut answer);
        }
        answer
    }

    /// The answer to one of sums in single buckets, the first bucket first.
    fn answer_by_bucket(&self, read: &SumsRead<'_>) -> Vec<u8> {
        let (mut answer, mut name) = (Vec::new(), Vec::new());
        write_sums([], &mut answer);
        for (bucket, field) in read.each_sum() {
            if let Some(sum) = self.sum(bucket, field) {
                name.clear();
                write_bucket_field(bucket, field, &mut name);
                append_sum(&name, sum, &mut answer);
            }
        }
        answer
    }

    /// What people see: the sum of each field over all buckets.
    fn answer_shown(&self) -> Vec<u8> {
        let mut sums: BTreeMap<&[u8], i64> = BTreeMap::new();
        for (field, sum) in self.sums.values().flatten() {
            let known = sums.entry(field).or_default();
            *known = known.saturating_add(*sum);
        }
        let mut answer = Vec::new();
        write_sums(sums, &mut answer);
        answer
    }
}
