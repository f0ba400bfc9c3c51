//! Ports without a medium: packets prepared in memory for benches, fed and collected for tests.

use super::{Port, PortDrop, PortStatistics};
use crate::frame::{Burst, Frame, FramePool};
use std::collections::VecDeque;

/// A port whose packets come from memory.
///
/// Four sources: [`MemoryPort::new`] gives what is fed and collects what is sent; [`MemoryPort::looping`] turns a ring of
/// frames without copying payload; [`MemoryPort::cycling`] copies templates in turn, for more packets than there
/// are buffers; [`MemoryPort::sink`] gives nothing and counts what is sent.
#[derive(Debug)]
pub struct MemoryPort {
    name: String,
    statistics: PortStatistics,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Fed {
        waiting: VecDeque<Vec<u8>>,
        sent: Vec<Vec<u8>>,
        closed: bool,
    },
    Looping(Loop),
    Cycling {
        templates: Templates,
        next: usize,
        left: u64,
    },
    Sink,
}

/// Packets back to back in one allocation, with where each ends.
#[derive(Debug)]
struct Templates {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Templates {
    fn new<'a>(packets: impl IntoIterator<Item = &'a [u8]>) -> Templates {
        let mut templates = Templates {
            bytes: Vec::new(),
            ends: Vec::new(),
        };
        for packet in packets {
            templates.bytes.extend_from_slice(packet);
            templates.ends.push(templates.bytes.len());
        }
        templates
    }

    #[inline]
    fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.bytes.get(start..end)
    }
}

impl MemoryPort {
    /// A port for tests: `receive` gives what was fed, in order; what is sent is kept for [`MemoryPort::take_sent`].
    /// It allocates for what it collects.
    pub fn new(name: impl Into<String>) -> MemoryPort {
        MemoryPort::with_source(
            name,
            Source::Fed {
                waiting: VecDeque::new(),
                sent: Vec::new(),
                closed: false,
            },
        )
    }

    /// A port for benches: `packets` are put into frames of `pool` once and go round. A frame that is sent here goes back to
    /// the end of the ring with the bytes that it then has; one of the ring's that was released elsewhere is
    /// made again from its packet's template. Takes no more buffers than half the pool's free ones: give
    /// [`MemoryPort::cycling`] more packets than that.
    pub fn looping<'a>(
        name: impl Into<String>,
        pool: &mut FramePool,
        packets: impl IntoIterator<Item = &'a [u8]>,
    ) -> MemoryPort {
        let templates = Templates::new(packets);
        let size = templates.len().min(pool.available() / 2);
        let mut ring = FrameQueue::new(size);
        let mut statistics = PortStatistics::default();
        for index in 0..size {
            match templates
                .get(index)
                .and_then(|packet| pool.allocate_copy(packet))
            {
                Some(mut frame) => {
                    frame.set_tag(index as u32 + 1);
                    ring.push(frame);
                }
                None => statistics.count_dropped(PortDrop::TooLong),
            }
        }
        let size = ring.len();
        let source = Loop {
            ring,
            size,
            templates,
            next: 0,
            restored_bytes: 0,
        };
        let mut port = MemoryPort::with_source(name, Source::Looping(source));
        port.statistics = statistics;
        port
    }

    /// For [`MemoryPort::looping`]: a frame that comes back gets the first `bytes` bytes and the length of its template
    /// again, so that a function that rewrites headers sees the same packet each round. Costs that copy.
    #[must_use]
    pub fn restoring(mut self, bytes: usize) -> MemoryPort {
        if let Source::Looping(source) = &mut self.source {
            source.restored_bytes = bytes;
        }
        self
    }

    /// A port for benches with many flows: copies `packets` into fresh frames in turn, `rounds` times over
    /// (`u64::MAX`: for ever), and is then exhausted. What is sent is counted and released.
    pub fn cycling<'a>(
        name: impl Into<String>,
        packets: impl IntoIterator<Item = &'a [u8]>,
        rounds: u64,
    ) -> MemoryPort {
        let templates = Templates::new(packets);
        let left = rounds.saturating_mul(templates.len() as u64);
        MemoryPort::with_source(
            name,
            Source::Cycling {
                templates,
                next: 0,
                left,
            },
        )
    }

    /// A port that gives nothing, and counts and releases what is sent.
    pub fn sink(name: impl Into<String>) -> MemoryPort {
        MemoryPort::with_source(name, Source::Sink)
    }

    fn with_source(name: impl Into<String>, source: Source) -> MemoryPort {
        MemoryPort {
            name: name.into(),
            statistics: PortStatistics::default(),
            source,
        }
    }

    /// For [`MemoryPort::new`]: one more packet for `receive`. Other kinds of port ignore it.
    pub fn feed(&mut self, packet: impl Into<Vec<u8>>) {
        if let Source::Fed { waiting, .. } = &mut self.source {
            waiting.push_back(packet.into());
        }
    }

    /// For [`MemoryPort::new`]: no more will be fed, so the port is exhausted once `receive` gave all.
    pub fn close(&mut self) {
        if let Source::Fed { closed, .. } = &mut self.source {
            *closed = true;
        }
    }

    /// For [`MemoryPort::new`]: everything sent since the last call, in order.
    pub fn take_sent(&mut self) -> Vec<Vec<u8>> {
        match &mut self.source {
            Source::Fed { sent, .. } => std::mem::take(sent),
            _ => Vec::new(),
        }
    }

    /// For [`MemoryPort::looping`]: gives the ring's frames back to their pool.
    pub fn release(&mut self, pool: &mut FramePool) {
        if let Source::Looping(source) = &mut self.source {
            while let Some(frame) = source.ring.pop() {
                pool.release(frame);
            }
            source.size = 0;
        }
    }
}

impl Port for MemoryPort {
    fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        let statistics = &mut self.statistics;
        match &mut self.source {
            Source::Fed { waiting, .. } => {
                while burst.room() > 0 && pool.available() > 0 {
                    let Some(packet) = waiting.pop_front() else {
                        break;
                    };
                    copy_in(&packet, pool, burst, statistics);
                }
            }
            Source::Looping(source) => source.receive(pool, burst),
            Source::Cycling {
                templates,
                next,
                left,
            } => {
                while burst.room() > 0 && *left > 0 && pool.available() > 0 {
                    let Some(packet) = templates.get(*next) else {
                        break;
                    };
                    *next = if *next + 1 == templates.len() {
                        0
                    } else {
                        *next + 1
                    };
                    *left -= u64::from(*left != u64::MAX);
                    copy_in(packet, pool, burst, statistics);
                }
            }
            Source::Sink => {}
        }
        let added = burst.as_slice().get(before..).unwrap_or(&[]);
        statistics.received_packets += added.len() as u64;
        statistics.received_bytes += added.iter().map(|frame| frame.len() as u64).sum::<u64>();
        added.len()
    }

    #[inline]
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        self.statistics.sent_packets += count as u64;
        self.statistics.sent_bytes += burst.iter().map(|frame| frame.len() as u64).sum::<u64>();
        match &mut self.source {
            Source::Fed { sent, .. } => {
                sent.extend(burst.iter().map(|frame| pool.bytes(frame).to_vec()));
                pool.release_all(burst);
            }
            Source::Looping(source) => {
                for slot in burst.as_mut_slice() {
                    source.take_back(slot, pool);
                }
                burst.forget();
            }
            Source::Cycling { .. } | Source::Sink => pool.release_all(burst),
        }
        count
    }

    fn statistics(&self) -> PortStatistics {
        self.statistics
    }

    fn exhausted(&self) -> bool {
        match &self.source {
            Source::Fed {
                waiting, closed, ..
            } => *closed && waiting.is_empty(),
            Source::Looping(_) => false,
            Source::Cycling { left, .. } => *left == 0,
            Source::Sink => true,
        }
    }
}

/// The frames of [`MemoryPort::looping`].
#[derive(Debug)]
struct Loop {
    ring: FrameQueue,
    /// How many frames go round when none is elsewhere; the ring never holds more.
    size: usize,
    templates: Templates,
    /// The template that a lost frame is made from next.
    next: usize,
    restored_bytes: usize,
}

impl Loop {
    #[inline]
    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) {
        self.ring.pop_into(burst);
        while burst.room() > 0 {
            let Some(frame) = self.make_again(pool) else {
                break;
            };
            let _ = burst.push(frame);
        }
    }

    /// The ring ran dry: its frames were dropped, or are parked. Those dropped are free in the pool again.
    #[cold]
    fn make_again(&mut self, pool: &mut FramePool) -> Option<Frame> {
        if self.size == 0 {
            return None;
        }
        let index = self.next;
        self.next = (self.next + 1) % self.size;
        let mut frame = pool.allocate_copy(self.templates.get(index)?)?;
        frame.set_tag(index as u32 + 1);
        Some(frame)
    }

    /// Takes the frame that `slot` holds; the caller forgets the slot's content.
    #[inline(always)]
    fn take_back(&mut self, slot: &mut Frame, pool: &mut FramePool) {
        // Tag 0: made by the function, not by this ring.
        if slot.tag() == 0 || self.ring.len() >= self.size {
            return pool.release(slot.alias());
        }
        if self.restored_bytes > 0
            && let Some(template) = self.templates.get(slot.tag() as usize - 1)
        {
            let bytes = self.restored_bytes.min(template.len());
            pool.reset(slot, template.len());
            pool.bytes_mut(slot)[..bytes].copy_from_slice(&template[..bytes]);
        }
        self.ring.push_from(slot);
    }
}

/// First in, first out, of a fixed size: a burst leaves it as one or two copies.
#[derive(Debug)]
struct FrameQueue {
    /// A power of two; slots outside `[head, head + length)` hold stale handles.
    slots: Box<[Frame]>,
    head: usize,
    length: usize,
}

impl FrameQueue {
    fn new(frames_max: usize) -> FrameQueue {
        let slots = (0..frames_max.next_power_of_two())
            .map(|_| Frame::EMPTY)
            .collect();
        FrameQueue {
            slots,
            head: 0,
            length: 0,
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.length
    }

    /// The caller keeps the length below what the queue was made for.
    #[inline]
    fn push(&mut self, frame: Frame) {
        let index = (self.head + self.length) & (self.slots.len() - 1);
        self.slots[index] = frame;
        self.length += 1;
    }

    /// As [`FrameQueue::push`], from memory to memory; the caller forgets the slot's content.
    #[inline(always)]
    fn push_from(&mut self, slot: &Frame) {
        let index = (self.head + self.length) & (self.slots.len() - 1);
        if let Some(free) = self.slots.get_mut(index) {
            *free = slot.alias();
            self.length += 1;
        }
    }

    fn pop(&mut self) -> Option<Frame> {
        let frame = self
            .slots
            .get(self.head)
            .filter(|_| self.length > 0)?
            .alias();
        self.advance(1);
        Some(frame)
    }

    #[inline]
    fn pop_into(&mut self, burst: &mut Burst) {
        // The second turn takes what is before the head, at the start of the memory.
        for _ in 0..2 {
            let end = (self.head + self.length).min(self.slots.len());
            let taken = burst.fill(self.slots.get(self.head..end).unwrap_or(&[]));
            self.advance(taken);
        }
    }

    #[inline]
    fn advance(&mut self, frames: usize) {
        self.head = (self.head + frames) & (self.slots.len() - 1);
        self.length -= frames;
    }
}

/// Copies a packet into a fresh frame at the burst's end; counts the one that is too long for the pool.
#[inline]
fn copy_in(
    packet: &[u8],
    pool: &mut FramePool,
    burst: &mut Burst,
    statistics: &mut PortStatistics,
) {
    if packet.len() > pool.packet_bytes_max() {
        return statistics.count_dropped(PortDrop::TooLong);
    }
    match pool.allocate_copy(packet) {
        Some(frame) => {
            if let Err(frame) = burst.push(frame) {
                pool.release(frame);
            }
        }
        None => statistics.count_dropped(PortDrop::NoBuffer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fed_comes_out_and_what_is_sent_is_collected() {
        let mut pool = FramePool::new(40).unwrap();
        let mut port = MemoryPort::new("test");
        for value in 0..50u8 {
            port.feed(vec![value; 60 + usize::from(value)]);
        }
        port.feed(vec![0; 5000]);
        let mut burst = Burst::new();
        let mut sent = Vec::new();
        assert!(!port.exhausted());
        port.close();
        while !port.exhausted() {
            port.receive(&mut pool, &mut burst);
            port.send(&mut pool, &mut burst);
            sent.extend(port.take_sent());
        }
        assert_eq!(
            sent,
            (0..50u8)
                .map(|value| vec![value; 60 + usize::from(value)])
                .collect::<Vec<_>>()
        );
        let statistics = port.statistics();
        assert_eq!(
            (statistics.received_packets, statistics.sent_packets),
            (50, 50)
        );
        assert_eq!(
            (
                statistics.dropped(PortDrop::TooLong),
                statistics.dropped_total()
            ),
            (1, 1)
        );
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn a_loop_turns_the_same_frames_and_makes_lost_ones_again() {
        let mut pool = FramePool::new(8).unwrap();
        let packets = [[1u8; 60], [2; 60], [3; 60], [4; 60], [5; 60]];
        let mut port =
            MemoryPort::looping("loop", &mut pool, packets.iter().map(|packet| &packet[..]));
        let mut port_restoring = MemoryPort::looping(
            "restoring",
            &mut pool,
            packets.iter().map(|packet| &packet[..]),
        )
        .restoring(10);
        assert_eq!(pool.in_use(), 6, "half the free buffers each");
        let mut burst = Burst::new();
        assert_eq!(
            port_restoring.receive(&mut pool, &mut burst),
            4,
            "two of its own, two made from the rest"
        );
        for frame in burst.as_mut_slice() {
            assert!(pool.trim_front(frame, 3));
            pool.bytes_mut(frame).fill(9);
        }
        port_restoring.send(&mut pool, &mut burst);
        port_restoring.receive(&mut pool, &mut burst);
        assert_eq!(
            pool.bytes(&burst.as_slice()[0]),
            [[1u8; 10].as_slice(), &[9; 50]].concat()
        );
        pool.release_all(&mut burst);

        // Two rounds without a loss, a foreign frame, then everything dropped.
        for _ in 0..2 {
            let before = pool.in_use();
            assert!(port.receive(&mut pool, &mut burst) >= 4);
            port.send(&mut pool, &mut burst);
            assert_eq!(pool.in_use(), before);
        }
        let _ = burst.push(pool.allocate_copy(&[7; 60]).unwrap());
        port.send(&mut pool, &mut burst);
        port.receive(&mut pool, &mut burst);
        assert!(burst.iter().all(|frame| pool.bytes(frame)[0] != 7));
        pool.release_all(&mut burst);
        assert!(port.receive(&mut pool, &mut burst) >= 4);
        port.send(&mut pool, &mut burst);
        port.release(&mut pool);
        port_restoring.release(&mut pool);
        assert_eq!(pool.in_use(), 0);
        assert_eq!(port.receive(&mut pool, &mut burst), 0);
    }

    #[test]
    fn cycling_gives_each_packet_so_many_times() {
        let mut pool = FramePool::new(64).unwrap();
        let packets = [[1u8; 60], [2; 60], [3; 60]];
        let mut port = MemoryPort::cycling("cycle", packets.iter().map(|packet| &packet[..]), 30);
        let mut burst = Burst::new();
        let mut seen = [0; 4];
        while !port.exhausted() {
            assert!(port.receive(&mut pool, &mut burst) > 0);
            burst
                .iter()
                .for_each(|frame| seen[usize::from(pool.bytes(frame)[0])] += 1);
            port.send(&mut pool, &mut burst);
        }
        assert_eq!(seen, [0, 30, 30, 30]);
        assert_eq!(port.statistics().sent_bytes, 90 * 60);
        let mut empty = MemoryPort::cycling("none", [], u64::MAX);
        assert_eq!(empty.receive(&mut pool, &mut burst), 0);
        assert!(empty.exhausted());
    }
}
