//! A cable in memory: two ports, each of which receives the packets that the other sends.
//!
//! The ends may have different frame pools and threads. A packet is copied into a ring and out of it; a full ring drops the packet
//! and counts it at the end that sends, as a switch does with a full queue.

use std::io;

use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{LinkState, Port, PortDrop, PortStatistics};
use asterism_io::ring::{ByteRing, Refused, RingReader, RingWriter};

/// Bytes of the ring of each direction. A packet of 1,514 bytes takes 1,520: at least 172 packets wait.
pub const RING_BYTES: usize = 256 * 1024;

/// One end of a cable.
#[derive(Debug)]
pub struct CablePort {
    name: String,
    writer: RingWriter,
    reader: RingReader,
    statistics: PortStatistics,
}

/// Both ends of a cable, called `one` and `other`. Nothing allocates after that.
///
/// # Errors
/// There is no memory for the rings.
pub fn cable(
    one: impl Into<String>,
    other: impl Into<String>,
) -> io::Result<(CablePort, CablePort)> {
    let (to_other, from_one) = ByteRing::new(RING_BYTES)?;
    let (to_one, from_other) = ByteRing::new(RING_BYTES)?;
    let end = |name: String, writer, reader| CablePort {
        name,
        writer,
        reader,
        statistics: PortStatistics::default(),
    };
    Ok((
        end(one.into(), to_other, from_other),
        end(other.into(), to_one, from_one),
    ))
}

impl CablePort {
    fn count_dropped(&mut self, reason: PortDrop) {
        self.statistics.dropped[reason as usize] += 1;
    }
}

impl Port for CablePort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        while burst.room() > 0 && pool.available() > 0 {
            let Some(packet) = self.reader.next() else {
                break;
            };
            let bytes = packet.len() as u64;
            let Some(frame) = pool.allocate_copy(packet) else {
                self.count_dropped(PortDrop::TooLong);
                continue;
            };
            if let Err(frame) = burst.push(frame) {
                pool.release(frame);
                break;
            }
            self.statistics.received_packets += 1;
            self.statistics.received_bytes += bytes;
        }
        self.reader.release();
        burst.len() - before
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let mut sent = 0;
        if self.link() == LinkState::Down {
            self.statistics.dropped[PortDrop::LinkDown as usize] += burst.len() as u64;
            pool.release_all(burst);
            return 0;
        }
        for frame in burst.iter() {
            match self.writer.try_push(pool.bytes(frame)) {
                Ok(()) => {
                    sent += 1;
                    self.statistics.sent_packets += 1;
                    self.statistics.sent_bytes += frame.len() as u64;
                }
                Err(Refused::Full) => self.statistics.dropped[PortDrop::QueueFull as usize] += 1,
                Err(Refused::TooLong) => self.statistics.dropped[PortDrop::TooLong as usize] += 1,
            }
        }
        self.writer.publish();
        pool.release_all(burst);
        sent
    }

    fn statistics(&self) -> PortStatistics {
        self.statistics
    }

    fn link(&self) -> LinkState {
        if self.writer.readers() > 0 {
            LinkState::Up
        } else {
            LinkState::Down
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_cross_in_order_and_a_full_cable_counts_its_drops() {
        let (mut one, mut other) = cable("one", "other").unwrap();
        let mut pools = [FramePool::new(64).unwrap(), FramePool::new(64).unwrap()];
        let mut burst = Burst::new();
        let mut sent = 0;
        let mut offered = 0u32;
        while offered < 400 {
            for _ in 0..8 {
                let mut packet = [7; 1_514];
                packet[..4].copy_from_slice(&offered.to_be_bytes());
                burst
                    .push(pools[0].allocate_copy(&packet).unwrap())
                    .unwrap();
                offered += 1;
            }
            sent += one.send(&mut pools[0], &mut burst);
        }
        let dropped = one.statistics().dropped(PortDrop::QueueFull);
        assert_eq!(sent as u64 + dropped, 400);
        assert!(sent >= 170 && dropped > 0, "{sent}");
        let mut received = 0u32;
        while other.receive(&mut pools[1], &mut burst) > 0 {
            for frame in burst.iter() {
                let bytes = pools[1].bytes(frame);
                assert_eq!(
                    (bytes.len(), &bytes[..4]),
                    (1_514, &received.to_be_bytes()[..])
                );
                received += 1;
            }
            pools[1].release_all(&mut burst);
        }
        assert_eq!(received as usize, sent);
        assert_eq!((pools[0].in_use(), pools[1].in_use()), (0, 0));
    }

    #[test]
    fn a_cable_without_its_other_end_is_down() {
        let (mut one, other) = cable("one", "other").unwrap();
        assert_eq!(one.link(), LinkState::Up);
        drop(other);
        assert_eq!(one.link(), LinkState::Down);
        let mut pool = FramePool::new(4).unwrap();
        let mut burst = Burst::new();
        burst.push(pool.allocate_copy(&[1; 60]).unwrap()).unwrap();
        assert_eq!(one.send(&mut pool, &mut burst), 0);
        assert_eq!(one.statistics().dropped(PortDrop::LinkDown), 1);
        assert_eq!(pool.in_use(), 0);
    }
}
