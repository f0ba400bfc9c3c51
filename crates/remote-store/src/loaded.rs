//! What a batch of transactions has loaded of the store (`commits.rs`), and the commands that write what has become of it.

use std::collections::{BTreeMap, HashMap};

use asterism_function::NetworkFunction;
use asterism_resp::CommandWriter;
use asterism_state::Tick;

use crate::decisions::{Count, ends_of};
use crate::keys::Keys;
use crate::mutant::{self, Mutant};
use crate::workbench::{NOTHING, Read, Workbench};

/// Seconds that what ends stays longer.
const GRACE_S: Tick = 1;

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

    /// The other keys of entries that were found under keys of what may be written.
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
            if !loaded.may_change[place] {
                continue;
            }
            let answer = loaded.answers[place].clone();
            let object = loaded.reads[place].object;
            // What is no answer is found out when it is installed.
            let _ = bench.each_entry(object, &answer, &mut |entry| {
                for query in entry.reads {
                    loaded.add(keys, Read::new(query), true);
                }
            });
        }
    }
}

/// Writes what has become of the keys, by the workbench; how many commands that takes.
pub(crate) fn write_changes<F: NetworkFunction>(
    loaded: &Loaded,
    tick: Tick,
    (keys, bench): (&Keys, &mut Workbench<F>),
    out: &mut Vec<u8>,
) -> usize {
    let mut commands = 0;
    for place in 0..loaded.reads.len() {
        if !loaded.may_change[place] {
            continue;
        }
        let read = &loaded.reads[place];
        let new = bench.extract(&read.query()).to_vec();
        let old = &loaded.answers[place];
        if new == *old {
            continue;
        }
        let ends = ends_of(bench, read.object, &new);
        let key = &loaded.keys[place];
        let mut writer = CommandWriter::new(out);
        commands += 1;
        let all_end = ends.iter().map(|(_, end)| *end).collect::<Option<Vec<_>>>();
        let stays = bench.commits_ends(read.object) && !mutant::active(Mutant::EndsUncommitted);
        match all_end.map(|all| all.into_iter().max()) {
            _ if ends.is_empty() => writer.command(&[b"DEL", key]),
            Some(Some(last)) if !stays => {
                writer.begin(5);
                writer.argument(b"SET");
                writer.argument(key);
                writer.argument(&new);
                writer.argument(b"EX");
                writer.number((last.saturating_sub(tick) + GRACE_S).into());
            }
            _ => writer.command(&[b"SET", key, &new]),
        }
        if read.lane != 0 {
            continue;
        }
        // Each entry is under one key of the first lane.
        let ends_key = keys.of_ends(read.object);
        let before = ends_of(bench, read.object, old);
        let mut writer = CommandWriter::new(out);
        for (row, _) in before {
            if !ends.iter().any(|(known, _)| *known == row) {
                writer.command(&[b"ZREM", &ends_key, &row]);
                commands += 1;
            }
        }
        for (row, end) in &ends {
            writer.begin(4);
            writer.argument(b"ZADD");
            writer.argument(&ends_key);
            match end {
                Some(end) => writer.number((*end).into()),
                None => writer.argument(b"+inf"),
            }
            writer.argument(row);
            commands += 1;
        }
    }
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
