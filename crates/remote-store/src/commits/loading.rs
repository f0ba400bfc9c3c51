//! What a batch of transactions reads and writes is watched and read.

use asterism_function::NetworkFunction;
use asterism_resp::{CommandWriter, Value, Values};
use asterism_state::{LANE_ANY, LANE_ROOM};

use super::CommitPipe;
use crate::keys::Keys;
use crate::loaded::Loaded;
use crate::mutant::{self, Mutant};
use crate::reads::count_entries;
use crate::steps::Step;
use crate::workbench::{NOTHING, Read, Workbench};

impl<A: Copy + PartialEq> CommitPipe<A> {
    /// What the transactions read and write.
    pub(super) fn load_first<F: NetworkFunction>(
        &mut self,
        keys: &Keys,
        bench: &Workbench<F>,
        out: &mut Vec<u8>,
    ) {
        self.loaded = Loaded::default();
        (self.rounds, self.made) = (0, None);
        let loaded = &mut self.loaded;
        for (_, transaction) in &self.transactions {
            for (query, _) in transaction.reads() {
                match query.lane {
                    _ if query.is_of_sums() || keys.has_sums(query.object) => {}
                    LANE_ROOM | LANE_ANY => {
                        let count = loaded.counts.entry(query.object).or_default();
                        count.decides_any |= query.lane == LANE_ANY;
                    }
                    _ => loaded.add(keys, Read::new(&query), false),
                }
            }
            // What is none is refused when it is decided.
            let _ = bench.each_written(transaction, |object, _, entry| {
                loaded.counts.entry(object).or_default();
                for query in entry.reads {
                    loaded.add(keys, Read::new(query), true);
                }
            });
        }
        for (object, count) in &mut loaded.counts {
            count.is_watched = self.few.contains(object);
        }
        let counts = self.loaded.counts.keys().copied().collect();
        self.load(keys, counts, out);
    }

    /// Loads what is not loaded yet, and these objects' numbers of entries.
    pub(super) fn load(&mut self, keys: &Keys, counts: Vec<u8>, out: &mut Vec<u8>) {
        let is_first = self.rounds == 0;
        let new = &self.loaded.keys[self.loaded.through..];
        let watched: Vec<Vec<u8>> = (counts.iter())
            .filter(|object| self.loaded.counts[object].is_watched)
            .map(|&object| keys.of_ends(object))
            .collect();
        let own = is_first.then_some(&self.own_key);
        let watches = !mutant::active(Mutant::NothingWatched);
        let read = new.len() + usize::from(is_first);
        let mut writer = CommandWriter::new(out);
        let mut replies = 0;
        if read + watched.len() > 0 {
            writer.begin(1 + read + watched.len());
            writer.argument(b"WATCH");
            // A key that nobody writes, where nothing is watched.
            let watched = own.into_iter().chain(new).chain(&watched);
            watched.for_each(|key| writer.argument(if watches { key } else { b"nothing" }));
            replies += 1;
        }
        if read > 0 {
            writer.begin(1 + read);
            writer.argument(b"MGET");
            own.into_iter()
                .chain(new)
                .for_each(|key| writer.argument(key));
            replies += 1;
        }
        for &object in &counts {
            // Sums are not counted here.
            count_entries((keys, 0), object, out);
        }
        self.step = Step::Loading {
            replies: replies + counts.len(),
            counts,
            is_first,
        };
    }

    pub(super) fn take_answers(&mut self, values: &Values<'_>, is_first: bool) -> bool {
        let mut values = *values;
        let loaded = &mut self.loaded;
        if values.len() != loaded.keys.len() - loaded.through + usize::from(is_first) {
            return false;
        }
        if is_first {
            self.made = values.next().and_then(|value| self.made_try(&value));
        }
        for (answer, value) in self.loaded.answers[self.loaded.through..]
            .iter_mut()
            .zip(values)
        {
            answer.clear();
            answer.extend(value.bytes().unwrap_or(&NOTHING));
        }
        self.loaded.through = self.loaded.keys.len();
        true
    }

    /// Which try of what is committed now the pipe's key says was made.
    fn made_try(&self, value: &Value<'_>) -> Option<u32> {
        if mutant::active(Mutant::MadeTryForgotten) {
            return None;
        }
        let text = core::str::from_utf8(value.bytes()?).ok()?;
        let (number, made) = text.split_once('.')?;
        (number.parse() == Ok(self.number)).then(|| made.parse().ok())?
    }

    pub(super) fn take_count(&mut self, count: i64, counts: &mut Vec<u8>) -> bool {
        if counts.is_empty() {
            return false;
        }
        let count = u64::try_from(count).unwrap_or_default();
        self.loaded
            .counts
            .entry(counts.remove(0))
            .or_default()
            .entries = count;
        true
    }
}
