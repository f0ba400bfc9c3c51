//! What a batch of transactions has loaded of the store (`commits.rs`), and the commands that write what has become of it.

use std::collections::{BTreeMap, HashMap};

use asterism_function::NetworkFunction;
use asterism_resp::CommandWriter;
use asterism_state::Tick;

use crate::decisions::{Count, RowEnd, ends_of};
use crate::keys::Keys;
use crate::mutant::{self, Mutant};
use crate::sums::Additions;
use crate::workbench::{NOTHING, Read, Workbench};

/// What was loaded of the store.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) keys: Vec<Vec<u8>>,
    places: HashMap<Vec<u8>, usize>,
    pub(crate) reads: Vec<Read>,
    pub(crate) answers: Vec<Vec<u8>>,
    /// What is under a key may be written.
    pub(crate) may_change: Vec<bool>,
    pub(crate) counts: BTreeMap<u8, Count>,
    /// What the transactions add to sums.
    pub(crate) additions: Additions,
    /// Keys up to here are loaded.
    pub(crate) through: usize,
}

impl Loaded {
    pub(crate) fn add(&mut self, keys: &Keys, read: Read, may_change: bool) {
        let key = keys.of_read(&read.query());
        match self.places.get(&key) {
            Some(&place) => self.may_change[place] |= may_change,
            None => {
                self.places.insert(key.clone(), self.keys.len());
                self.keys.push(key);
                self.reads.push(read);
                self.answers.push(NOTHING.to_vec());
                self.may_change.push(may_change);
            }
        }
    }

    /// The other keys of entries that may be shadowed from now on, or no more: those found under a key that one entry has at a time, if what is
    /// there may be written, and all that are shadowed. Others of a group are as they were, however many there are.
    pub(crate) fn add_those_in_the_way<F: NetworkFunction>(
        &mut self,
        keys: &Keys,
        bench: &Workbench<F>,
    ) {
        if mutant::active(Mutant::OtherKeysNotLoaded) {
            return;
        }
        let loaded = self;
        for place in 0..loaded.keys.len() {
            let answer = loaded.answers[place].clone();
            let Read { object, lane, .. } = loaded.reads[place];
            let may_change = loaded.may_change[place];
            // What is no answer is found out when it is installed.
            let _ = bench.each_entry(object, &answer, &mut |entry| {
                let has_key_alone = usize::from(lane) < entry.unique;
                if entry.is_shadowed || may_change && has_key_alone {
                    for query in entry.reads {
                        loaded.add(keys, Read::new(query), true);
                    }
                }
            });
        }
    }
}

/// What becomes of keys, and of the sets that say when entries end.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Keys with nothing under them any more.
    gone: Vec<Vec<u8>>,
    /// Keys, and what is under them.
    kept: Vec<(Vec<u8>, Vec<u8>)>,
    /// Rows of each object, and when they end; `None` beside a row: it is gone.
    rows: BTreeMap<u8, BTreeMap<Vec<u8>, Option<Option<Tick>>>>,
}

impl Changes {
    /// Those of all keys that may have changed, by the workbench.
    pub(crate) fn of<F: NetworkFunction>(loaded: &Loaded, bench: &mut Workbench<F>) -> Self {
        let mut changes = Self::default();
        for place in 0..loaded.reads.len() {
            if !loaded.may_change[place] {
                continue;
            }
            let read = &loaded.reads[place];
            let new = bench.extract(&read.query());
            let old = &loaded.answers[place];
            if new == *old {
                continue;
            }
            let key = loaded.keys[place].clone();
            // Each entry is under one key of the first lane.
            let has_rows = read.lane == 0;
            if new == NOTHING {
                changes.gone.push(key);
                if has_rows {
                    changes.note_rows(read.object, &ends_of(bench, read.object, old), &[]);
                }
                continue;
            }
            let new = new.to_vec();
            if has_rows {
                let before = ends_of(bench, read.object, old);
                let after = ends_of(bench, read.object, &new);
                changes.note_rows(read.object, &before, &after);
            }
            changes.kept.push((key, new));
        }
        changes
    }

    /// Notes what has become of the rows under one key.
    fn note_rows(&mut self, object: u8, before: &[RowEnd], after: &[RowEnd]) {
        for (row, _) in before {
            if !after.iter().any(|(known, _)| known == row) {
                self.note_row(object, row.clone(), None);
            }
        }
        for (row, end) in after.iter().filter(|row_end| !before.contains(row_end)) {
            self.note_row(object, row.clone(), Some(*end));
        }
    }

    /// Notes when the entry of a row ends, instead of what was noted before, which is returned; `None` beside a row: it is gone.
    pub(crate) fn note_row(
        &mut self,
        object: u8,
        row: Vec<u8>,
        end: Option<Option<Tick>>,
    ) -> Option<Option<Option<Tick>>> {
        self.rows.entry(object).or_default().insert(row, end)
    }

    /// Writes them, each command for as many as it can name; how many commands that takes.
    pub(crate) fn write(&self, keys: &Keys, out: &mut Vec<u8>) -> usize {
        let mut writer = CommandWriter::new(out);
        let mut commands = 0;
        if !self.kept.is_empty() {
            writer.begin(1 + 2 * self.kept.len());
            writer.argument(b"MSET");
            for (key, value) in &self.kept {
                writer.argument(key);
                writer.argument(value);
            }
            commands += 1;
        }
        if !self.gone.is_empty() {
            writer.begin(1 + self.gone.len());
            writer.argument(b"DEL");
            self.gone.iter().for_each(|key| writer.argument(key));
            commands += 1;
        }
        for (&object, rows) in &self.rows {
            let ends_key = keys.of_ends(object);
            let there = rows.iter().filter_map(|(row, end)| Some((row, (*end)?)));
            let gone = rows.iter().filter(|(_, end)| end.is_none());
            let (added, removed) = (there.clone().count(), gone.clone().count());
            if removed > 0 {
                writer.begin(2 + removed);
                writer.argument(b"ZREM");
                writer.argument(&ends_key);
                gone.for_each(|(row, _)| writer.argument(row));
                commands += 1;
            }
            if added > 0 {
                writer.begin(2 + 2 * added);
                writer.argument(b"ZADD");
                writer.argument(&ends_key);
                for (row, end) in there {
                    match end {
                        Some(end) => writer.number(end.into()),
                        None => writer.argument(b"+inf"),
                    }
                    writer.argument(row);
                }
                commands += 1;
            }
        }
        commands
    }
}

/// Writes what has come to sums, by the workbench; how many commands that takes.
pub(crate) fn write_sums<F: NetworkFunction>(
    (keys, bench): (&Keys, &mut Workbench<F>),
    out: &mut Vec<u8>,
) -> usize {
    let mut commands = 0;
    bench.take_sums(|object, place, amount| {
        let mut writer = CommandWriter::new(out);
        writer.begin(4);
        writer.argument(b"HINCRBY");
        writer.argument(&keys.of_sums(object));
        writer.number(place.into());
        writer.number(amount);
        commands += 1;
    });
    commands
}

/// Keys of which the store knows more than was read of them: they were written, or are otherwise than a transaction read.
#[derive(Debug)]
pub(crate) enum Outdated {
    Keys(Vec<Vec<u8>>),
    /// It is not known which.
    All,
}

impl Default for Outdated {
    fn default() -> Self {
        Self::Keys(Vec::new())
    }
}
