//! Suspended buckets and flows: their packets wait in order, and go on in order when they are resumed (Split/Merge §3.2).
//!
//! A queue belongs to one suspension. When it is resumed, its packets leave before newer ones of the same flows, which wait behind them
//! until the queue is empty. All queues share the bounds of packets and bytes; a suspension that nobody resumes ends by age, and its
//! packets are dropped. Nothing allocates after it is made.

use core::time::Duration;

use asterism_io::frame::Frame;
use asterism_packet::FlowKey;
use asterism_placement::Time;

use crate::drop::DirectorDrop;
use crate::table::Slot;

/// Suspensions at a time at most.
pub const SUSPENSIONS_MAX: usize = 256;
/// The end of a list of packets.
const NONE: u32 = u32::MAX;

/// The bounds of what waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuspendedBounds {
    /// Packets that wait at most, over all suspensions. Sane: 4,096. At most half of the frame pool.
    pub packets_max: u32,
    /// Bytes of these packets at most. Sane: 4 MiB.
    pub bytes_max: u64,
    /// How long a suspension lasts at most before it ends by itself and its packets are dropped. Sane: 5 s.
    pub age_max: Duration,
}

impl Default for SuspendedBounds {
    fn default() -> Self {
        SuspendedBounds {
            packets_max: 4_096,
            bytes_max: 4 << 20,
            age_max: Duration::from_secs(5),
        }
    }
}

/// What is suspended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suspend {
    /// A bucket.
    Bucket(u32),
    /// Both directions of a flow.
    Flow(FlowKey),
}

/// The number of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queue(u16);

/// A packet that waits.
#[derive(Debug)]
struct Waiting {
    frame: Option<Frame>,
    /// The arm that it leaves by.
    arm: u8,
    next: u32,
}

/// A suspension.
#[derive(Clone, Copy, Debug)]
struct Suspension {
    what: Suspend,
    since: Time,
    first: u32,
    last: u32,
    /// Set once it was resumed: the target that its packets leave to.
    resumed: Option<Slot>,
}

/// A packet that leaves a queue.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) frame: Frame,
    pub(crate) arm: usize,
    pub(crate) to: Slot,
}

/// All suspensions and what waits in them.
#[derive(Debug)]
pub(crate) struct Suspended {
    bounds: SuspendedBounds,
    suspensions: Box<[Option<Suspension>]>,
    used: usize,
    /// Suspensions that were resumed and whose packets are leaving, and the one whose packet left last.
    resuming: usize,
    leaving: usize,
    waiting: Box<[Waiting]>,
    free: u32,
    packets: u32,
    bytes: u64,
}

impl Suspended {
    pub(crate) fn new(bounds: SuspendedBounds) -> Suspended {
        let waiting = (0..bounds.packets_max).map(|place| Waiting {
            frame: None,
            arm: 0,
            next: if place + 1 == bounds.packets_max {
                NONE
            } else {
                place + 1
            },
        });
        Suspended {
            bounds,
            suspensions: vec![None; SUSPENSIONS_MAX].into(),
            used: 0,
            resuming: 0,
            leaving: 0,
            waiting: waiting.collect(),
            free: if bounds.packets_max == 0 { NONE } else { 0 },
            packets: 0,
            bytes: 0,
        }
    }

    /// Whether nothing is suspended.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Suspensions, packets that wait, and their bytes.
    pub(crate) fn counts(&self) -> (usize, u32, u64) {
        (self.used, self.packets, self.bytes)
    }

    /// The queue of what is suspended.
    pub(crate) fn find(&self, what: &Suspend) -> Option<Queue> {
        let is_it = |one: &Option<Suspension>| one.is_some_and(|one| one.what == *what);
        let place = self.suspensions.iter().position(is_it)?;
        Some(Queue(place as u16))
    }

    /// Begins a suspension; `None` when there are as many as may be. One that is being resumed waits again.
    pub(crate) fn begin(&mut self, what: Suspend, now: Time) -> Option<Queue> {
        if let Some(queue) = self.find(&what) {
            let suspension = self.suspensions.get_mut(usize::from(queue.0))?.as_mut()?;
            self.resuming -= usize::from(suspension.resumed.is_some());
            (suspension.resumed, suspension.since) = (None, now);
            return Some(queue);
        }
        let place = self.suspensions.iter().position(Option::is_none)?;
        self.suspensions[place] = Some(Suspension {
            what,
            since: now,
            first: NONE,
            last: NONE,
            resumed: None,
        });
        self.used += 1;
        Some(Queue(place as u16))
    }

    /// Takes back a suspension in which nothing waits.
    pub(crate) fn cancel(&mut self, queue: Queue) {
        if let Some(place) = self.suspensions.get_mut(usize::from(queue.0))
            && place.is_some_and(|one| one.first == NONE)
        {
            *place = None;
            self.used -= 1;
        }
    }

    /// The suspended buckets, those that are being resumed included.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = u32> + '_ {
        let all = self.suspensions.iter().flatten();
        all.filter_map(|one| match one.what {
            Suspend::Bucket(bucket) => Some(bucket),
            Suspend::Flow(_) => None,
        })
    }

    /// Adds a packet at the end of a queue, or hands it back with the reason why it cannot wait.
    pub(crate) fn hold(
        &mut self,
        queue: Queue,
        frame: Frame,
        arm: usize,
    ) -> Result<(), (Frame, DirectorDrop)> {
        let bytes = frame.len() as u64;
        if self.bytes + bytes > self.bounds.bytes_max {
            return Err((frame, DirectorDrop::SuspendedBytes));
        }
        let place = self.free;
        let suspension = self.suspensions.get_mut(usize::from(queue.0));
        let (Some(waiting), Some(Some(suspension))) =
            (self.waiting.get_mut(place as usize), suspension)
        else {
            return Err((frame, DirectorDrop::SuspendedPackets));
        };
        self.free = waiting.next;
        *waiting = Waiting {
            frame: Some(frame),
            arm: arm as u8,
            next: NONE,
        };
        let last = suspension.last;
        suspension.last = place;
        match self.waiting.get_mut(last as usize) {
            Some(before) => before.next = place,
            None => suspension.first = place,
        }
        self.packets += 1;
        self.bytes += bytes;
        Ok(())
    }

    /// Lets the packets of a queue go to a target from now on.
    pub(crate) fn resume(&mut self, queue: Queue, to: Slot) {
        if let Some(Some(suspension)) = self.suspensions.get_mut(usize::from(queue.0)) {
            self.resuming += usize::from(suspension.resumed.is_none());
            suspension.resumed = Some(to);
        }
    }

    /// The next packet of a resumed queue, oldest first.
    pub(crate) fn next_leaving(&mut self) -> Option<Leaving> {
        if self.resuming == 0 || self.packets == 0 {
            return None;
        }
        let places = self.suspensions.len();
        for place in (self.leaving..places).chain(0..self.leaving) {
            let resumed = self.suspensions[place].and_then(|one| one.resumed);
            if let Some(to) = resumed
                && let Some((frame, arm)) = self.pop(place)
            {
                self.leaving = place;
                return Some(Leaving { frame, arm, to });
            }
        }
        None
    }

    /// A resumed suspension whose packets have left: it is over, and this is what was suspended.
    pub(crate) fn end_resumed(&mut self) -> Option<(Suspend, Slot)> {
        if self.resuming == 0 {
            return None;
        }
        let ended = self.suspensions.iter_mut().find_map(|place| {
            let to = place.filter(|one| one.first == NONE)?.resumed?;
            place.take().map(|one| (one.what, to))
        });
        self.used -= usize::from(ended.is_some());
        self.resuming -= usize::from(ended.is_some());
        ended
    }

    /// A suspension that is too old: its packets go to `drop` and it is over. `None` when no other is.
    pub(crate) fn end_old(&mut self, now: Time, mut drop: impl FnMut(Frame)) -> Option<Suspend> {
        let age_max = self.bounds.age_max;
        let is_old = |one: &Option<Suspension>| {
            one.is_some_and(|one| one.resumed.is_none() && now.since(one.since) >= age_max)
        };
        let place = self.suspensions.iter().position(is_old)?;
        while let Some((frame, _)) = self.pop(place) {
            drop(frame);
        }
        self.used -= 1;
        self.suspensions[place].take().map(|one| one.what)
    }

    /// When the next suspension is too old.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let waits = self.suspensions.iter().flatten();
        waits
            .filter(|one| one.resumed.is_none())
            .map(|one| one.since.saturating_add(self.bounds.age_max))
            .min()
    }

    fn pop(&mut self, place: usize) -> Option<(Frame, usize)> {
        let suspension = self.suspensions.get_mut(place)?.as_mut()?;
        let first = suspension.first;
        let waiting = self.waiting.get_mut(first as usize)?;
        let frame = waiting.frame.take()?;
        suspension.first = waiting.next;
        if suspension.first == NONE {
            suspension.last = NONE;
        }
        waiting.next = self.free;
        self.free = first;
        self.packets -= 1;
        self.bytes -= frame.len() as u64;
        Some((frame, usize::from(waiting.arm)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_io::frame::FramePool;

    fn suspended(packets_max: u32, bytes_max: u64) -> (Suspended, FramePool) {
        let bounds = SuspendedBounds {
            packets_max,
            bytes_max,
            age_max: Duration::from_secs(1),
        };
        (Suspended::new(bounds), FramePool::new(64).unwrap())
    }

    #[test]
    fn packets_leave_in_the_order_in_which_they_came() {
        let (mut suspended, mut pool) = suspended(8, 1_000);
        let target = Slot::new(5).unwrap();
        let one = suspended.begin(Suspend::Bucket(1), Time::ZERO).unwrap();
        let other = suspended.begin(Suspend::Bucket(2), Time::ZERO).unwrap();
        for value in 0..8 {
            let frame = pool.allocate_copy(&[value]).unwrap();
            let queue = if value % 2 == 0 { one } else { other };
            suspended.hold(queue, frame, 0).unwrap();
        }
        let frame = pool.allocate_copy(&[9]).unwrap();
        let (frame, reason) = suspended.hold(one, frame, 0).unwrap_err();
        assert_eq!(reason, DirectorDrop::SuspendedPackets);
        pool.release(frame);
        assert!(suspended.next_leaving().is_none(), "nothing is resumed");
        suspended.resume(one, target);
        assert_eq!(suspended.end_resumed(), None);
        let mut left = Vec::new();
        while let Some(leaving) = suspended.next_leaving() {
            assert_eq!(leaving.to, target);
            left.push(pool.bytes(&leaving.frame)[0]);
            pool.release(leaving.frame);
        }
        assert_eq!(left, [0, 2, 4, 6]);
        assert_eq!(suspended.end_resumed(), Some((Suspend::Bucket(1), target)));
        assert_eq!(suspended.end_resumed(), None);
        assert_eq!(suspended.counts(), (1, 4, 4));
    }

    #[test]
    fn bounds_of_bytes_and_age_hold() {
        let (mut suspended, mut pool) = suspended(8, 100);
        let queue = suspended.begin(Suspend::Bucket(1), Time::ZERO).unwrap();
        suspended
            .hold(queue, pool.allocate_copy(&[0; 80]).unwrap(), 0)
            .unwrap();
        let (frame, reason) = suspended
            .hold(queue, pool.allocate_copy(&[0; 21]).unwrap(), 0)
            .unwrap_err();
        assert_eq!(reason, DirectorDrop::SuspendedBytes);
        pool.release(frame);
        let due = suspended.next_due().unwrap();
        let before = Time::from_micros(due.as_micros() - 1);
        assert_eq!(suspended.end_old(before, |_| ()), None);
        let mut dropped = 0;
        let ended = suspended.end_old(due, |frame| {
            dropped += frame.len();
            pool.release(frame);
        });
        assert_eq!((ended, dropped), (Some(Suspend::Bucket(1)), 80));
        assert_eq!((suspended.counts(), pool.in_use()), ((0, 0, 0), 0));
    }

    #[test]
    fn suspensions_are_bounded() {
        let (mut suspended, _pool) = suspended(8, 100);
        for bucket in 0..SUSPENSIONS_MAX as u32 {
            assert!(
                suspended
                    .begin(Suspend::Bucket(bucket), Time::ZERO)
                    .is_some()
            );
        }
        assert_eq!(suspended.begin(Suspend::Bucket(999), Time::ZERO), None);
        assert!(suspended.begin(Suspend::Bucket(3), Time::ZERO).is_some());
        let old = Time::from_micros(2_000_000);
        while suspended.end_old(old, |_| ()).is_some() {}
        assert!(suspended.is_empty());
    }
}
