//! Objects that are not compared for a while: those that not all members share, or that some did not share until just now.

use crate::Time;

use super::{Auditor, Place, Purpose, SEGMENTS};

impl Auditor {
    /// These objects, a bit for each, are not compared until the next call, here or with others. Those that are from now on count
    /// as found equal now.
    pub fn exclude(&mut self, now: Time, objects: u64) {
        let changed = self.excluded ^ objects;
        self.excluded = objects;
        if changed == 0 {
            return;
        }
        let is_changed = |place: &Place| changed >> place.object & 1 != 0;
        self.rounds.retain(|round| !is_changed(&round.place));
        self.closing.retain(|round| !is_changed(&round.place));
        self.asked
            .retain(|asked| asked.purpose == Purpose::Learn || !is_changed(&asked.place));
        self.outgoing.retain(|reading| !is_changed(&reading.place));
        for (index, known) in self.known.iter_mut().enumerate() {
            if changed >> (index / SEGMENTS) & 1 == 0 {
                continue;
            }
            self.compared[index] = None;
            for (different, equal_at) in known.different.iter_mut().zip(&mut known.equal_at) {
                self.differ -= usize::from(*different != 0);
                *different = 0;
                equal_at.fill(now);
            }
        }
    }
}
