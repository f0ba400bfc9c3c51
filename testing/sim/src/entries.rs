//! No entry of any table goes back: neither an older generation of it returns after a newer one, nor a use that was over.
//!
//! This is seen of each instance by itself, over all that happens to it: entries that it has forgotten are remembered here. What an
//! instance holds of a row only grows by the rules of the tables, so whatever is less was brought back by an old copy.

use std::collections::BTreeMap;

use asterism_engine::{Cluster, Instance};
use asterism_function::Tick;
use asterism_state::EntryAge;

use crate::checks::{Checked, instances, name};
use crate::exercise::Exercise;
use crate::report::Failure;

/// Tables whose entries end, in the order of their numbers here.
const TABLES: [&str; 5] = ["winners", "sessions", "banned", "visited", "pairs"];

/// One look in so many is taken.
const LOOKS_EACH: u32 = 4;

/// The most that was seen of a row at an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Past {
    generation: u64,
    /// The last use that was seen to be over, of that generation.
    over: Tick,
}

impl Past {
    /// Takes up what is seen now; what is wrong with it.
    fn see(&mut self, age: EntryAge) -> Option<&'static str> {
        if age.generation < self.generation {
            return age.is_live.then_some("is of an older generation");
        }
        if age.generation > self.generation {
            *self = Self {
                generation: age.generation,
                over: 0,
            };
        }
        if !age.is_live {
            // One that was removed may live on by a use that crossed its removal, in the same generation.
            let over = if age.is_removed { 0 } else { age.seen };
            self.over = self.over.max(over);
            return None;
        }
        (age.seen <= self.over).then_some("is kept by a use that was over")
    }
}

/// What was seen of all instances.
#[derive(Debug, Default)]
pub struct Entries {
    /// By member and instance; by table and row.
    seen: BTreeMap<(usize, usize), BTreeMap<(u8, u32), Past>>,
    looks: u32,
}

/// Calls `each` for what an instance holds of the tables whose entries end, ended ones too.
fn visit(instance: &Instance<Exercise>, mut each: impl FnMut((u8, u32), EntryAge)) {
    let state = instance.state();
    let both = |left: u16, right: u16| u32::from(left) << 16 | u32::from(right);
    state
        .winners
        .for_each_age(|row, age| each((0, row.0.into()), age));
    state
        .sessions
        .for_each_age(|row, age| each((1, both(row.0, row.1)), age));
    state
        .banned
        .for_each_age(|row, age| each((2, row.0.into()), age));
    state
        .visited
        .for_each_age(|row, age| each((3, row.0.into()), age));
    state
        .pairs
        .for_each_age(|row, age| each((4, both(row.0, row.1)), age));
}

impl Entries {
    /// The instances of a member are those of another incarnation, which hold nothing.
    pub(crate) fn begins(&mut self, member: usize) {
        self.seen.retain(|at, _| at.0 != member);
    }

    /// Looks at all instances every so many calls.
    ///
    /// # Errors
    /// An entry went back.
    pub(crate) fn query(&mut self, cluster: &Cluster<Exercise>) -> Checked {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_EACH) {
            self.look_at_all(cluster)
        } else {
            Ok(())
        }
    }

    fn look_at_all(&mut self, cluster: &Cluster<Exercise>) -> Checked {
        for (at, instance) in instances(cluster) {
            let known = self.seen.entry(at).or_default();
            let mut fault = None;
            visit(instance, |row, age| {
                let past = known.entry(row).or_default();
                let before = *past;
                if let Some(what) = past.see(age) {
                    fault = Some((row, before, age, what));
                }
            });
            if let Some(((table, row), before, age, what)) = fault {
                return Err(Failure::new(
                    "nothing ended returns",
                    format!(
                        "{}: row {row:#x} of {} {what}: {before:?} was seen, now {age:?}",
                        name(at),
                        TABLES[usize::from(table)]
                    ),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(generation: u64, seen: Tick, is_live: bool, is_removed: bool) -> EntryAge {
        EntryAge {
            generation,
            seen,
            is_live,
            is_removed,
        }
    }

    #[test]
    fn an_entry_that_ended_goes_on_by_a_later_use_or_generation_alone() {
        let mut past = Past::default();
        assert_eq!(past.see(age(1, 10, true, false)), None);
        assert_eq!(past.see(age(1, 12, false, false)), None, "it idled out");
        assert!(past.see(age(1, 12, true, false)).is_some());
        assert_eq!(past.see(age(1, 13, true, false)), None, "a later use");
        assert_eq!(past.see(age(2, 9, false, true)), None, "it was removed");
        assert_eq!(
            past.see(age(2, 9, true, false)),
            None,
            "and written meanwhile"
        );
        assert!(past.see(age(1, 20, true, false)).is_some());
        assert_eq!(past.see(age(3, 1, true, false)), None);
    }
}
