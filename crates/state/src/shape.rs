//! What hosts must have alike of a whole state: its objects, and how each is made.

use asterism_memory::hash;

use crate::layout::of_parts;
use crate::object::ObjectSettings;

/// What hosts must have alike of a whole state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The objects' names, kinds and layouts, in order: anyone who differs misreads every byte.
    pub layout: u64,
    /// That, which of them are shared, and their sizes: anyone who differs has no room for, or no use of, what others write.
    pub whole: u64,
    /// Objects that may change between local and replicated, a bit for each by its number.
    pub movable: u64,
}

impl Shape {
    pub(crate) const EMPTY: Self = Self {
        layout: 1,
        whole: 2,
        movable: 0,
    };

    /// With an object of a name and a kind, whose operations are written so, and which is made with these numbers. What nobody
    /// else writes to may be of any size; of what may be shared later it counts, and where the object is does not.
    pub(crate) fn add(
        &mut self,
        name: &str,
        settings: &ObjectSettings,
        layout: &[u64],
        made: &[u64],
    ) {
        self.layout = hash::word(hash::bytes(name.as_bytes(), of_parts(layout)), self.layout);
        let made = match settings.may_be_replicated() {
            true => hash::word(1, of_parts(made)),
            false => 0,
        };
        self.whole = hash::word(made, hash::word(self.layout, self.whole));
    }

    /// With another number that hosts must have alike however they are made.
    #[must_use]
    pub fn and(self, number: u64) -> Self {
        Self {
            layout: hash::word(number, self.layout),
            whole: hash::word(number, self.whole),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;

    #[test]
    fn every_build_has_these_numbers() {
        let mut shape = Shape::EMPTY;
        let settings = ObjectSettings::REPLICATED;
        shape.add("sessions", &settings, &[u32::LAYOUT], &[64]);
        let numbers = [<(u32, [u8; 6])>::LAYOUT, shape.layout, shape.whole];
        assert_eq!(
            numbers,
            [
                17809382094718132938,
                13929507393061739158,
                10720811068002891972
            ]
        );
    }
}
