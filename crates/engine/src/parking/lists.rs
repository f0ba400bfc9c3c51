//! Lists of parked packets, by the numbers of their places.

use super::Place;

/// No place.
pub(super) const NOTHING: u16 = u16::MAX;

/// The neighbours of a packet in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) next: u16,
    previous: u16,
    is_in: bool,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            next: NOTHING,
            previous: NOTHING,
            is_in: false,
        }
    }
}

/// A list; `which` names it among those that a packet may be in.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) first: u16,
    last: u16,
}

impl Default for List {
    fn default() -> Self {
        Self {
            first: NOTHING,
            last: NOTHING,
        }
    }
}

impl List {
    pub(super) fn push_first(&mut self, places: &mut [Place], which: usize, number: u16) {
        self.insert_after(places, which, NOTHING, number);
    }

    pub(super) fn push_last(&mut self, places: &mut [Place], which: usize, number: u16) {
        self.insert_after(places, which, self.last, number);
    }

    /// Puts a packet behind the last one that is not greater. As a rule that is the last of all.
    pub(super) fn insert_by(
        &mut self,
        places: &mut [Place],
        which: usize,
        number: u16,
        by: impl Fn(&Place) -> u64,
    ) {
        let of = by(&places[usize::from(number)]);
        let mut before = self.last;
        while let Some(place) = places.get(usize::from(before))
            && by(place) > of
        {
            before = place.links[which].previous;
        }
        self.insert_after(places, which, before, number);
    }

    fn insert_after(&mut self, places: &mut [Place], which: usize, before: u16, number: u16) {
        debug_assert!(!places[usize::from(number)].links[which].is_in);
        let next = match places.get_mut(usize::from(before)) {
            Some(before) => core::mem::replace(&mut before.links[which].next, number),
            None => core::mem::replace(&mut self.first, number),
        };
        match places.get_mut(usize::from(next)) {
            Some(next) => next.links[which].previous = number,
            None => self.last = number,
        }
        places[usize::from(number)].links[which] = Link {
            next,
            previous: before,
            is_in: true,
        };
    }

    /// Takes a packet out, if it is in the list.
    pub(super) fn remove(&mut self, places: &mut [Place], which: usize, number: u16) {
        let link = core::mem::take(&mut places[usize::from(number)].links[which]);
        if !link.is_in {
            return;
        }
        let next_of = |number: u16| {
            places
                .get(usize::from(number))
                .map(|one| one.links[which].next)
        };
        debug_assert_eq!(next_of(link.previous).unwrap_or(self.first), number);
        match places.get_mut(usize::from(link.previous)) {
            Some(previous) => previous.links[which].next = link.next,
            None => self.first = link.next,
        }
        match places.get_mut(usize::from(link.next)) {
            Some(next) => next.links[which].previous = link.previous,
            None => self.last = link.previous,
        }
    }
}
