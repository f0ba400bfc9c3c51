//! Timers of flows: a wheel of lists, one timer for each flow.
//!
//! A timer is set, moved and cancelled in constant time; a timer beyond the wheel's horizon fires at the horizon, and its flow sets
//! it again. Nothing allocates after the wheel is made.

use asterism_placement::Time;

/// Microseconds of a slot: how late a timer may fire.
pub(super) const SLOT_US: u64 = 1_000;
/// Slots: the horizon is some four seconds.
const SLOTS: usize = 4_096;
/// The end of a list.
const NONE: u32 = u32::MAX;

/// The timer of a flow.
#[derive(Clone, Copy, Debug)]
struct Timer {
    /// The slot that it is in, [`NONE`] if it is not set.
    slot: u32,
    before: u32,
    after: u32,
}

/// The timers.
#[derive(Debug)]
pub(super) struct Wheel {
    timers: Box<[Timer]>,
    /// The first timer of each slot.
    first: Box<[u32]>,
    /// A bit for each slot with timers.
    used: Box<[u64]>,
    /// The tick whose slot is looked at next. No timer is in a slot before it.
    tick: u64,
}

impl Wheel {
    /// Timers for so many flows, none of them set.
    pub(super) fn new(flows: usize) -> Wheel {
        let unset = Timer {
            slot: NONE,
            before: NONE,
            after: NONE,
        };
        Wheel {
            timers: vec![unset; flows].into(),
            first: vec![NONE; SLOTS].into(),
            used: vec![0; SLOTS / 64].into(),
            tick: 0,
        }
    }

    /// Sets or moves the timer of a flow.
    pub(super) fn set(&mut self, flow: u32, due: Time) {
        self.cancel(flow);
        let tick = due.as_micros().div_ceil(SLOT_US);
        let tick = tick.clamp(self.tick, self.tick + SLOTS as u64 - 1);
        let slot = (tick % SLOTS as u64) as u32;
        let Some(timer) = self.timers.get_mut(flow as usize) else {
            return;
        };
        let after = self.first[slot as usize];
        *timer = Timer {
            slot,
            before: NONE,
            after,
        };
        if let Some(next) = self.timers.get_mut(after as usize) {
            next.before = flow;
        }
        self.first[slot as usize] = flow;
        self.used[slot as usize / 64] |= 1 << (slot % 64);
    }

    /// Cancels the timer of a flow.
    pub(super) fn cancel(&mut self, flow: u32) {
        let Some(timer) = self.timers.get_mut(flow as usize) else {
            return;
        };
        let Timer {
            slot,
            before,
            after,
        } = *timer;
        if slot == NONE {
            return;
        }
        timer.slot = NONE;
        if let Some(next) = self.timers.get_mut(after as usize) {
            next.before = before;
        }
        match self.timers.get_mut(before as usize) {
            Some(previous) => previous.after = after,
            None => {
                self.first[slot as usize] = after;
                if after == NONE {
                    self.used[slot as usize / 64] &= !(1 << (slot % 64));
                }
            }
        }
    }

    /// The next flow whose timer is due; the timer is not set any more.
    pub(super) fn expire(&mut self, now: Time) -> Option<u32> {
        let last = now.as_micros() / SLOT_US;
        while self.tick <= last {
            let Some(tick) = self.next_tick().filter(|tick| *tick <= last) else {
                self.tick = last;
                return None;
            };
            self.tick = tick;
            let flow = self.first[(tick % SLOTS as u64) as usize];
            if flow != NONE {
                self.cancel(flow);
                return Some(flow);
            }
        }
        None
    }

    /// When the next timer is due.
    pub(super) fn next_due(&self) -> Option<Time> {
        Some(Time::from_micros(self.next_tick()? * SLOT_US))
    }

    /// The first tick from now on whose slot has timers.
    fn next_tick(&self) -> Option<u64> {
        let start = (self.tick % SLOTS as u64) as usize;
        let words = self.used.len();
        // The first word is looked at twice: its bits from the start on, and at last those before.
        for step in 0..=words {
            let place = (start / 64 + step) % words;
            let mut bits = self.used[place];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let slot = place * 64 + bits.trailing_zeros() as usize;
                let ahead = (slot + SLOTS - start) % SLOTS;
                return Some(self.tick + ahead as u64);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_micros(ms * SLOT_US)
    }

    #[test]
    fn timers_fire_once_in_order_and_not_early() {
        let mut wheel = Wheel::new(100);
        for flow in 0..100 {
            wheel.set(flow, at(1_000 - 7 * u64::from(flow)));
        }
        wheel.cancel(3);
        wheel.set(5, at(2));
        assert_eq!(wheel.next_due(), Some(at(2)));
        let mut fired = Vec::new();
        for now in 0..1_100 {
            while let Some(flow) = wheel.expire(at(now)) {
                let due = if flow == 5 {
                    2
                } else {
                    1_000 - 7 * u64::from(flow)
                };
                assert_eq!(due, now, "{flow}");
                fired.push(flow);
            }
        }
        assert_eq!((fired.len(), fired[0]), (99, 5));
        assert_eq!(wheel.next_due(), None);
    }

    #[test]
    fn a_timer_beyond_the_horizon_fires_at_it_and_an_old_one_at_once() {
        let mut wheel = Wheel::new(2);
        assert_eq!(wheel.expire(at(10_000)), None);
        wheel.set(0, at(1_000_000));
        wheel.set(1, at(3));
        assert_eq!(wheel.expire(at(10_000)), Some(1));
        let due = wheel.next_due().unwrap();
        assert!(due > at(14_000) && due < at(14_100), "{due:?}");
        assert_eq!(wheel.expire(at(14_000)), None);
        assert_eq!(wheel.expire(at(20_000)), Some(0));
    }

    #[test]
    fn setting_a_timer_while_others_fire_keeps_the_lists_whole() {
        let mut wheel = Wheel::new(64);
        let mut fired = 0;
        for flow in 0..64 {
            wheel.set(flow, at(1));
        }
        for now in 1..2_000 {
            while let Some(flow) = wheel.expire(at(now)) {
                fired += 1;
                let next = now + 1 + u64::from(flow) % 13;
                wheel.set(flow, at(next));
                wheel.set((flow + 1) % 64, at(next));
            }
        }
        assert!(fired > 10_000, "{fired}");
        let mut last = 0;
        while wheel.expire(at(10_000)).is_some() {
            last += 1;
        }
        assert_eq!(last, 64, "no timer is lost");
    }
}
