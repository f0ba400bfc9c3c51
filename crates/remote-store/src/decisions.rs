//! Which transactions are made and which are refused, at the workbench, of which `commits.rs` has loaded what they read and write.

use std::collections::BTreeMap;

use asterism_function::NetworkFunction;
use asterism_state::{
    BadBytes, Depends, LANE_ANY, LANE_ROOM, Query, Tick, Transaction, stable_hash,
};

use crate::mutant::{self, Mutant};
use crate::reads::any_answer;
use crate::sums::Additions;
use crate::workbench::{NOTHING, Read, Workbench};

/// How many entries an object has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) entries: u64,
    pub(crate) is_watched: bool,
    /// Some transaction depends on whether there is any.
    pub(crate) decides_any: bool,
}

/// Of so few entries their number is watched where a transaction asks whether there is any: more than two claims end.
const FEW: u64 = 1_024;
/// Where so few may be added their number is watched: a quarter of the capacity, within these bounds. Others may add some meanwhile.
const FEW_ROOM: core::ops::RangeInclusive<u64> = 256..=4_096;

impl Count {
    /// Whether what others add or end meanwhile may matter, to an object of this capacity.
    pub(crate) fn decides(&self, capacity: u64) -> bool {
        let room = capacity.saturating_sub(self.entries);
        let few_room = (capacity / 4).clamp(*FEW_ROOM.start(), *FEW_ROOM.end());
        room < few_room || self.decides_any && self.entries < FEW
    }
}

/// Whether what a transaction read is answered as it was, and there is room for what it adds.
pub(crate) fn still_holds<F: NetworkFunction>(
    transaction: &Transaction,
    counts: &BTreeMap<u8, Count>,
    bench: &mut Workbench<F>,
) -> bool {
    let entries = |object: u8| counts.get(&object).map_or(0, |count| count.entries);
    let is_read_so = transaction.reads().all(|(query, depends)| {
        let answered = match depends {
            Depends::OnAnswer(hash) => hash,
            Depends::OnEntry(hash) => return has_member(&query, hash, bench),
        };
        let answer = match query.lane {
            _ if query.is_of_sums() => stable_hash(&NOTHING),
            LANE_ROOM => stable_hash(&NOTHING),
            LANE_ANY => stable_hash(&any_answer(entries(query.object))),
            _ => stable_hash(bench.extract(&query)),
        };
        answer == answered
    });
    let mut added: BTreeMap<u8, u64> = BTreeMap::new();
    let written = bench.each_written(transaction, |object, adds, _| {
        *added.entry(object).or_default() += u64::from(adds);
    });
    let mut added = added.into_iter();
    (is_read_so || mutant::active(Mutant::ReadsUnchecked))
        && written.is_ok()
        && added
            .all(|(object, count)| count == 0 || entries(object) + count <= bench.capacity(object))
}

/// Whether the member of a group is there that a transaction took.
fn has_member<F: NetworkFunction>(query: &Query<'_>, hash: u64, bench: &Workbench<F>) -> bool {
    bench.has_entry(query, hash) || mutant::active(Mutant::MemberUnchecked)
}

/// Makes the writes of a transaction at the workbench, counts entries, and notes what it adds to sums.
pub(crate) fn make<F: NetworkFunction>(
    transaction: &Transaction,
    (counts, additions): (&mut BTreeMap<u8, Count>, &mut Additions),
    bench: &mut Workbench<F>,
) -> Result<(), BadBytes> {
    let added = bench.additions(transaction)?;
    let mut rows: Vec<(Read, Vec<u8>)> = Vec::new();
    bench.each_written(transaction, |_, _, entry| {
        if let Some(first) = entry.reads.first() {
            let row = (Read::new(first), entry.row.to_vec());
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    })?;
    let there = |bench: &mut Workbench<F>| -> Vec<bool> {
        let is_there = |(read, row): &(Read, Vec<u8>)| {
            let answer = bench.extract(&read.query()).to_vec();
            let known = ends_of(bench, read.object, &answer);
            known.iter().any(|(known, _)| known == row)
        };
        rows.iter().map(is_there).collect()
    };
    let before = there(bench);
    bench.commit(transaction)?;
    let after = there(bench);
    for ((read, _), (before, after)) in rows.iter().zip(before.iter().zip(after)) {
        if let Some(count) = counts.get_mut(&read.object) {
            count.entries += u64::from(after);
            count.entries -= u64::from(*before).min(count.entries);
        }
    }
    additions.append(added);
    Ok(())
}

/// A row, and the second at which its entry ends; `None`: it does not end by itself.
pub(crate) type RowEnd = (Vec<u8>, Option<Tick>);

/// The rows of an answer.
pub(crate) fn ends_of<F: NetworkFunction>(
    bench: &Workbench<F>,
    object: u8,
    answer: &[u8],
) -> Vec<RowEnd> {
    let mut ends = Vec::new();
    let _ = bench.each_entry(object, answer, &mut |entry| {
        ends.push((entry.row.to_vec(), entry.ends));
    });
    ends
}
