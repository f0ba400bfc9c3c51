//! Which frame leaves when, and by which port: no I/O, no clock.
//!
//! Every ordered pair of ports is a path with a link of its own. A frame goes to the port behind which its destination was
//! heard, else to all others; each copy meets its own path's fate.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use asterism_io::link::{Link, LinkConditions, LinkStatistics, SeededRandom};
use asterism_placement::Time;

/// Ethernet addresses learnt at most; frames to others go to all ports.
pub const ADDRESSES_MAX: usize = 4_096;

/// Frames under way on all paths of a wire.
#[derive(Debug)]
pub(crate) struct Schedule {
    ports: usize,
    /// By sender times `ports` plus receiver.
    paths: Vec<Link>,
    addresses: BTreeMap<[u8; 6], usize>,
    due: BinaryHeap<Reverse<Due>>,
    frames: Vec<Held>,
    free: Vec<usize>,
    held_bytes: usize,
    held_bytes_max: usize,
    /// Copies scheduled so far: of two that are due together, the one that came first leaves first.
    order: u64,
}

/// A copy of a frame under way. Compared field by field: time, then order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) time: Time,
    order: u64,
    pub(crate) to: usize,
    pub(crate) frame: usize,
    path: usize,
    number: u64,
}

/// A frame's bytes, and how many copies of it are under way.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    copies: usize,
}

impl Schedule {
    pub(crate) fn new(ports: usize, held_bytes_max: usize, seed: u64) -> Schedule {
        let mut seeds = SeededRandom::new(seed);
        let mut link = || {
            Link::new(
                unlimited(LinkConditions::default()),
                SeededRandom::new(seeds.next_u64()),
            )
        };
        Schedule {
            ports,
            paths: (0..ports * ports).map(|_| link()).collect(),
            addresses: BTreeMap::new(),
            due: BinaryHeap::new(),
            frames: Vec::new(),
            free: Vec::new(),
            held_bytes: 0,
            held_bytes_max,
            order: 0,
        }
    }

    /// Sets the conditions of a path. What is under way keeps its time.
    pub(crate) fn set(&mut self, from: usize, to: usize, conditions: LinkConditions) {
        self.paths[from * self.ports + to].conditions = unlimited(conditions);
    }

    pub(crate) fn statistics(&self, from: usize, to: usize) -> LinkStatistics {
        self.paths[from * self.ports + to].statistics
    }

    /// Takes a frame that arrived at a port. `meta_bytes` of it stand before the Ethernet header and belong to the kernel.
    pub(crate) fn accept(&mut self, arrival: Time, from: usize, bytes: &[u8], meta_bytes: usize) {
        let Some((destination, source)) = bytes
            .get(meta_bytes..)
            .and_then(|frame| Some((frame.first_chunk::<6>()?, frame[6..].first_chunk::<6>()?)))
        else {
            return;
        };
        // A group address is nobody's.
        if source[0] & 1 == 0
            && (self.addresses.len() < ADDRESSES_MAX || self.addresses.contains_key(source))
        {
            self.addresses.insert(*source, from);
        }
        let length = bytes.len() - meta_bytes;
        let receivers = match self.addresses.get(destination) {
            Some(to) => *to..*to + 1,
            None => 0..self.ports,
        };
        let mut frame = None;
        for to in receivers.filter(|to| *to != from) {
            let path = from * self.ports + to;
            let link = &mut self.paths[path];
            let arrivals = link.send(arrival, length);
            let number = link.number();
            for time in [arrivals.first, arrivals.second].into_iter().flatten() {
                if frame.is_none() && self.held_bytes + bytes.len() > self.held_bytes_max {
                    self.paths[path].statistics.queue_full += 1;
                    continue;
                }
                let place = *frame.get_or_insert_with(|| {
                    self.held_bytes += bytes.len();
                    let place = self.free.pop().unwrap_or_else(|| {
                        self.frames.push(Held::default());
                        self.frames.len() - 1
                    });
                    self.frames[place].bytes.clear();
                    self.frames[place].bytes.extend_from_slice(bytes);
                    place
                });
                self.frames[place].copies += 1;
                self.order += 1;
                self.due.push(Reverse(Due {
                    time,
                    order: self.order,
                    to,
                    frame: place,
                    path,
                    number,
                }));
            }
        }
    }

    /// When the next copy is due.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.peek().map(|Reverse(due)| due.time)
    }

    /// The next copy that is due by `now`; to be handed back to [`Schedule::left`].
    pub(crate) fn pop(&mut self, now: Time) -> Option<Due> {
        if self.next_due()? > now {
            return None;
        }
        self.due.pop().map(|Reverse(due)| due)
    }

    /// The bytes of a frame under way, with the kernel's meta-data before it.
    pub(crate) fn bytes(&self, frame: usize) -> &[u8] {
        &self.frames[frame].bytes
    }

    /// A copy has left.
    pub(crate) fn left(&mut self, due: &Due) {
        self.paths[due.path].delivered(due.number);
        let held = &mut self.frames[due.frame];
        held.copies -= 1;
        if held.copies == 0 {
            self.held_bytes -= held.bytes.len();
            self.free.push(due.frame);
        }
    }
}

/// The interfaces bound frames, not the path.
fn unlimited(conditions: LinkConditions) -> LinkConditions {
    LinkConditions {
        mtu_bytes: usize::MAX,
        ..conditions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const META: usize = 10;

    fn frame(to: u8, from: u8, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; META + length];
        bytes[META + 5] = to;
        bytes[META + 11] = from;
        bytes
    }

    fn leave(schedule: &mut Schedule, now: u64) -> Vec<(usize, u64)> {
        let mut left = Vec::new();
        while let Some(due) = schedule.pop(Time::from_micros(now)) {
            left.push((due.to, due.time.as_micros()));
            schedule.left(&due);
        }
        left
    }

    #[test]
    fn frames_go_where_their_receiver_was_heard_and_else_everywhere() {
        let mut schedule = Schedule::new(3, 1 << 20, 1);
        schedule.set(0, 2, LinkConditions::with_delay(Duration::from_millis(5)));
        schedule.accept(Time::from_micros(1_000), 0, &frame(9, 1, 60), META);
        assert_eq!(schedule.held_bytes, 70, "two copies, one buffer");
        assert_eq!(leave(&mut schedule, 1_000), [(1, 1_000)]);
        assert_eq!(schedule.next_due(), Some(Time::from_micros(6_000)));
        assert_eq!(leave(&mut schedule, 6_000), [(2, 6_000)]);
        assert_eq!(schedule.held_bytes, 0);
        // The answer finds the asker alone.
        schedule.accept(Time::from_micros(7_000), 2, &frame(1, 9, 60), META);
        assert_eq!(leave(&mut schedule, 7_000), [(0, 7_000)]);
        schedule.accept(Time::from_micros(8_000), 0, &frame(9, 1, 60), META);
        assert_eq!(leave(&mut schedule, 20_000), [(2, 13_000)]);
        assert_eq!(schedule.statistics(0, 2).delivered, 2);
        assert_eq!(schedule.statistics(0, 1).delivered, 1);
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let mut schedule = Schedule::new(2, 150, 1);
        schedule.set(0, 1, LinkConditions::with_delay(Duration::from_millis(1)));
        for _ in 0..3 {
            schedule.accept(Time::ZERO, 0, &frame(9, 1, 60), META);
        }
        assert_eq!(schedule.statistics(0, 1).queue_full, 1);
        assert_eq!(leave(&mut schedule, 1_000).len(), 2);
        // A frame longer than all room, one without an Ethernet header, and one that loops back.
        schedule.accept(Time::ZERO, 0, &frame(9, 1, 600), META);
        schedule.accept(Time::ZERO, 0, &[0; META + 11], META);
        schedule.accept(Time::ZERO, 0, &[0; META - 1], META);
        schedule.accept(Time::ZERO, 0, &frame(1, 1, 60), META);
        assert!(leave(&mut schedule, 1_000_000).is_empty());
        assert_eq!(schedule.statistics(0, 1).sent, 4);
    }

    #[test]
    fn each_path_draws_its_own_faults_and_large_frames_pass() {
        let mut schedule = Schedule::new(3, 1 << 30, 7);
        for to in [1, 2] {
            schedule.set(
                0,
                to,
                LinkConditions {
                    loss: 0.5,
                    ..LinkConditions::default()
                },
            );
        }
        let (mut both, mut one) = (0, 0);
        for time in 0..1_000 {
            schedule.accept(Time::from_micros(time), 0, &frame(9, 1, 65_000), META);
            match leave(&mut schedule, time).len() {
                0 => {}
                1 => one += 1,
                _ => both += 1,
            }
        }
        assert!(
            (400..600).contains(&one) && (200..300).contains(&both),
            "{one} {both}"
        );
    }

    #[test]
    fn addresses_are_bounded() {
        let mut schedule = Schedule::new(2, 1 << 20, 1);
        for number in 0..2 * ADDRESSES_MAX as u64 {
            let mut bytes = frame(0, 0, 60);
            bytes[META + 7..META + 12].copy_from_slice(&number.to_be_bytes()[3..]);
            schedule.accept(Time::ZERO, 0, &bytes, META);
            leave(&mut schedule, 0);
        }
        assert_eq!(schedule.addresses.len(), ADDRESSES_MAX);
    }
}
