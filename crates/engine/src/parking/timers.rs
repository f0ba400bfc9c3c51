//! When something is due of parked packets: a binary heap in which each packet knows where it stands. Of equal times the packet comes
//! first that was parked first.

use super::Place;

#[derive(Debug)]
pub(super) struct Timers {
    /// Time, order of parking, place.
    heap: Vec<(u64, u64, u16)>,
}

impl Timers {
    pub(super) fn new(places: usize) -> Self {
        Self {
            heap: Vec::with_capacity(places),
        }
    }

    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        self.heap.first().map(|first| first.0)
    }

    /// Whose time is the first; nobody's if there is none.
    pub(super) fn first_number(&self) -> u16 {
        self.heap.first().map_or(super::NOTHING, |first| first.2)
    }

    pub(super) fn add(&mut self, places: &mut [Place], number: u16, at_us: u64) {
        debug_assert!(
            self.heap.len() < self.heap.capacity(),
            "the heap never grows"
        );
        let order = places[usize::from(number)].order;
        self.heap.push((at_us, order, number));
        self.rise(places, self.heap.len() - 1);
    }

    pub(super) fn change(&mut self, places: &mut [Place], number: u16, at_us: u64) {
        let at = usize::from(places[usize::from(number)].timer);
        debug_assert_eq!(self.heap[at].2, number);
        let before = core::mem::replace(&mut self.heap[at].0, at_us);
        match at_us < before {
            true => self.rise(places, at),
            false => self.sink(places, at),
        }
    }

    pub(super) fn remove(&mut self, places: &mut [Place], number: u16) {
        let at = usize::from(places[usize::from(number)].timer);
        debug_assert_eq!(self.heap[at].2, number);
        self.heap.swap_remove(at);
        // The last one has taken its place.
        if let Some(&(_, _, moved)) = self.heap.get(at) {
            self.rise(places, at);
            self.sink(places, usize::from(places[usize::from(moved)].timer));
        }
    }

    fn rise(&mut self, places: &mut [Place], mut at: usize) {
        let moved = self.heap[at];
        while at > 0 {
            let above = (at - 1) / 2;
            if self.heap[above] <= moved {
                break;
            }
            self.set(places, at, self.heap[above]);
            at = above;
        }
        self.set(places, at, moved);
    }

    fn sink(&mut self, places: &mut [Place], mut at: usize) {
        let moved = self.heap[at];
        loop {
            let left = 2 * at + 1;
            let Some(&first) = self.heap.get(left) else {
                break;
            };
            let (below, of) = match self.heap.get(left + 1) {
                Some(&right) if right < first => (left + 1, right),
                _ => (left, first),
            };
            if moved <= of {
                break;
            }
            self.set(places, at, of);
            at = below;
        }
        self.set(places, at, moved);
    }

    fn set(&mut self, places: &mut [Place], at: usize, timer: (u64, u64, u16)) {
        self.heap[at] = timer;
        places[usize::from(timer.2)].timer = at as u16;
    }
}
