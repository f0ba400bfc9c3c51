//! One direction of a link between two threads: a ring of datagrams with the time at which each is due.

use super::conditions::{Link, count_delivered};
use super::{LinkConditions, LinkStatistics, SeededRandom};
use crate::ring::{ByteRing, RingReader, RingWriter};
use asterism_placement::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

/// Before a datagram's bytes in the ring: when it is due, and its number.
const HEADER_BYTES: usize = 16;

/// A link from one thread to another. For both directions make two.
#[derive(Debug)]
pub struct ThreadedLink;

impl ThreadedLink {
    /// Makes a link over a ring of `ring_bytes`, with a receiver that holds up to `datagrams_max` that are not due yet.
    ///
    /// What is on its way is in the ring or with the receiver: give both together the room of the rate times the delay. When the
    /// ring is full, datagrams are dropped and counted. Both ends take `now`: hand both the same clock. Fails as
    /// [`ByteRing::new`].
    #[expect(clippy::new_ret_no_self, reason = "a link is its two ends")]
    pub fn new(
        conditions: LinkConditions,
        seed: u64,
        ring_bytes: usize,
        datagrams_max: usize,
    ) -> io::Result<(LinkSender, LinkReceiver)> {
        let (writer, reader) = ByteRing::new(ring_bytes)?;
        let sender = LinkSender {
            link: Link::new(conditions, SeededRandom::new(seed)),
            writer,
        };
        let receiver = LinkReceiver {
            reader,
            waiting: BinaryHeap::with_capacity(datagrams_max),
            spare: Vec::with_capacity(datagrams_max),
            datagrams_max,
            taken: 0,
            highest: 0,
            statistics: LinkStatistics::default(),
        };
        Ok((sender, receiver))
    }
}

/// The sending end of a [`ThreadedLink`].
#[derive(Debug)]
pub struct LinkSender {
    link: Link,
    writer: RingWriter,
}

impl LinkSender {
    /// The link's conditions, to change.
    pub fn conditions_mut(&mut self) -> &mut LinkConditions {
        &mut self.link.conditions
    }

    /// Sends a copy of `bytes`, which the receiver sees after [`LinkSender::publish`]; returns whether it was accepted.
    /// Allocates nothing.
    pub fn send(&mut self, now: Time, bytes: &[u8]) -> bool {
        let arrivals = self.link.send(now, bytes.len());
        let number = self.link.number();
        let mut accepted = false;
        for due in [arrivals.first, arrivals.second].into_iter().flatten() {
            match self.writer.reserve(HEADER_BYTES + bytes.len()) {
                Ok(space) => {
                    space[..8].copy_from_slice(&due.as_micros().to_le_bytes());
                    space[8..HEADER_BYTES].copy_from_slice(&number.to_le_bytes());
                    space[HEADER_BYTES..].copy_from_slice(bytes);
                    self.writer.commit(HEADER_BYTES + bytes.len());
                    accepted = true;
                }
                Err(_) if accepted => self.link.statistics.duplicated -= 1,
                Err(_) => self.link.statistics.queue_full += 1,
            }
        }
        accepted
    }

    /// Lets the receiver see what was sent. Once a batch.
    pub fn publish(&mut self) {
        self.writer.publish();
    }

    /// What was sent and dropped. What came out is counted at the other end.
    pub fn statistics(&self) -> LinkStatistics {
        self.link.statistics
    }
}

/// The receiving end of a [`ThreadedLink`].
#[derive(Debug)]
pub struct LinkReceiver {
    reader: RingReader,
    /// Datagrams taken from the ring before they were due.
    waiting: BinaryHeap<Reverse<Waiting>>,
    spare: Vec<Vec<u8>>,
    datagrams_max: usize,
    taken: u64,
    highest: u64,
    statistics: LinkStatistics,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: Time,
    order: u64,
    number: u64,
    bytes: Vec<u8>,
}

impl LinkReceiver {
    /// Hands every datagram due by `now` to `apply`, earliest first; returns how many. Once its buffers have grown, it
    /// allocates nothing.
    pub fn deliver(&mut self, now: Time, mut apply: impl FnMut(&[u8])) -> usize {
        let before = self.statistics.delivered;
        loop {
            self.take_from_ring(now, &mut apply);
            if !self.deliver_waiting(now, &mut apply) {
                return (self.statistics.delivered - before) as usize;
            }
        }
    }

    /// When the next datagram taken from the ring so far is due. More may be in the ring: [`LinkReceiver::deliver`] takes them.
    pub fn next_delivery(&self) -> Option<Time> {
        self.waiting.peek().map(|Reverse(waiting)| waiting.due)
    }

    /// Whether the sender is gone and everything came out.
    pub fn is_finished(&self) -> bool {
        self.waiting.is_empty() && self.reader.is_finished()
    }

    /// What came out: `delivered` and `reordered`.
    pub fn statistics(&self) -> LinkStatistics {
        self.statistics
    }

    /// Empties the ring, as far as there is room to hold what is not due. A datagram due with none waiting goes straight from
    /// the ring to `apply`.
    fn take_from_ring(&mut self, now: Time, apply: &mut impl FnMut(&[u8])) {
        while self.waiting.len() < self.datagrams_max
            && let Some(record) = self.reader.next()
        {
            let Some((header, bytes)) = record.split_first_chunk::<HEADER_BYTES>() else {
                continue;
            };
            let [due, number] = [0, 8].map(|at| {
                let mut word = [0; 8];
                word.copy_from_slice(&header[at..at + 8]);
                u64::from_le_bytes(word)
            });
            let due = Time::from_micros(due);
            if due <= now && self.waiting.is_empty() {
                count_delivered(&mut self.statistics, &mut self.highest, number);
                apply(bytes);
                continue;
            }
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(bytes);
            self.taken += 1;
            self.waiting.push(Reverse(Waiting {
                due,
                order: self.taken,
                number,
                bytes: buffer,
            }));
        }
        self.reader.release();
    }

    /// Whether any was due.
    fn deliver_waiting(&mut self, now: Time, apply: &mut impl FnMut(&[u8])) -> bool {
        let before = self.waiting.len();
        while self.next_delivery().is_some_and(|due| due <= now)
            && let Some(Reverse(waiting)) = self.waiting.pop()
        {
            count_delivered(&mut self.statistics, &mut self.highest, waiting.number);
            apply(&waiting.bytes);
            self.spare.push(waiting.bytes);
        }
        self.waiting.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn datagrams_come_out_when_due_on_one_thread() {
        let conditions = LinkConditions {
            delay: Duration::from_millis(10),
            duplication: 0.3,
            reordering: 0.3,
            reordering_delay: Duration::from_millis(5),
            ..LinkConditions::default()
        };
        let (mut sender, mut receiver) = ThreadedLink::new(conditions, 1, 1 << 16, 1000).unwrap();
        let mut received = Vec::new();
        for number in 0..2000u64 {
            let now = Time::from_micros(number * 100);
            assert!(sender.send(now, &number.to_le_bytes()));
            sender.publish();
            receiver.deliver(now, |bytes| {
                let sent = u64::from_le_bytes(bytes.try_into().unwrap());
                assert!(
                    (10_000..=15_000).contains(&(number * 100 - sent * 100)),
                    "sent {sent}, came {number}"
                );
                received.push(sent);
            });
        }
        drop(sender.writer);
        receiver.deliver(Time::MAX, |bytes| {
            received.push(u64::from_le_bytes(bytes.try_into().unwrap()))
        });
        assert!(receiver.is_finished() && receiver.next_delivery().is_none());
        assert!(receiver.statistics().reordered > 100);
        assert_eq!(
            received.len() as u64,
            2000 + sender.link.statistics.duplicated
        );
        received.sort_unstable();
        received.dedup();
        assert_eq!(received, (0..2000).collect::<Vec<_>>());
    }

    #[test]
    fn a_receiver_that_does_not_come_costs_bounded_memory() {
        let (mut sender, mut receiver) = ThreadedLink::new(
            LinkConditions::with_delay(Duration::from_secs(1)),
            1,
            4096,
            10,
        )
        .unwrap();
        for _ in 0..100 {
            sender.send(Time::ZERO, &[0; 100]);
        }
        sender.publish();
        let accepted = 100 - sender.statistics().queue_full;
        assert!((30..36).contains(&accepted), "{accepted}");
        assert_eq!(receiver.deliver(Time::ZERO, |_| ()), 0);
        assert_eq!(receiver.waiting.len(), 10);
        assert_eq!(receiver.deliver(Time::MAX, |_| ()), accepted as usize);
    }

    #[test]
    fn two_threads() {
        let (mut sender, mut receiver) =
            ThreadedLink::new(LinkConditions::default(), 1, 1 << 16, 64).unwrap();
        let count = 50_000u64;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut next = 0;
                while next < count {
                    let accepted = sender.send(Time::ZERO, &next.to_le_bytes());
                    next += u64::from(accepted);
                    if !accepted || next.is_multiple_of(16) {
                        sender.publish();
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0u64;
            while !receiver.is_finished() {
                receiver.deliver(Time::ZERO, |bytes| {
                    assert_eq!(bytes, expected.to_le_bytes());
                    expected += 1;
                });
                std::thread::yield_now();
            }
            assert_eq!(expected, count);
        });
    }
}
