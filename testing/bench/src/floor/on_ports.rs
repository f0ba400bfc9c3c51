//! The hand-written NAT between ports: the loop around it that takes bursts from two ports and gives each packet to the one it
//! leaves by.

use asterism_io::frame::{BURST, Burst, FramePool};
use asterism_io::port::Port;

use super::{Nat, Verdict, hash, key_of};
use crate::memory::prefetch;
use crate::traffic::SmallFrame;

/// A hand-written NAT between an inside and an outside port.
pub struct OnPorts<P: Port> {
    /// The NAT.
    pub nat: Nat<true>,
    /// Its frames.
    pub pool: FramePool,
    /// Inside, outside.
    pub ports: [P; 2],
    outgoing: [Burst; 2],
    burst: Burst,
}

impl<P: Port> OnPorts<P> {
    /// Joins them.
    pub fn new(nat: Nat<true>, pool: FramePool, ports: [P; 2]) -> Self {
        Self {
            nat,
            pool,
            ports,
            outgoing: [Burst::new(), Burst::new()],
            burst: Burst::new(),
        }
    }

    /// Reads a burst from each port, sends on what is to be sent on, and tells how many packets were read.
    #[inline]
    pub fn turn(&mut self, now_ticks: u32) -> usize {
        let mut read = 0;
        for port in 0..2 {
            read += self.ports[port].receive(&mut self.pool, &mut self.burst);
            self.handle(now_ticks);
        }
        for (port, outgoing) in self.ports.iter_mut().zip(&mut self.outgoing) {
            if !outgoing.is_empty() {
                port.send(&mut self.pool, outgoing);
            }
        }
        read
    }

    #[inline(always)]
    fn handle(&mut self, now_ticks: u32) {
        let mut keys = [(0u64, 0u64, 0usize); BURST];
        for frame in self.burst.as_slice() {
            self.pool.prefetch(frame);
        }
        for (frame, key) in self.burst.as_slice().iter().zip(&mut keys) {
            let Some(bytes) = self.pool.bytes(frame).first_chunk() else {
                continue;
            };
            let (addresses, ports_protocol) = key_of::<true>(bytes, frame.len() as u16);
            let home = hash(addresses, ports_protocol) & self.nat.mask;
            prefetch(&self.nat.slots[home]);
            *key = (addresses, ports_protocol, home);
        }
        for (mut frame, (addresses, ports_protocol, home)) in self.burst.drain().zip(&keys) {
            let room: Option<&mut SmallFrame> = self.pool.bytes_mut(&mut frame).first_chunk_mut();
            let verdict = match (self.nat.find(*addresses, *ports_protocol, *home), room) {
                (Some(place), Some(room)) => self.nat.translate(place, room, now_ticks),
                _ => Verdict::Drop,
            };
            let outgoing = match verdict {
                Verdict::Drop => {
                    self.pool.release(frame);
                    continue;
                }
                Verdict::ToInside => &mut self.outgoing[0],
                Verdict::ToOutside => &mut self.outgoing[1],
            };
            if let Err(frame) = outgoing.push(frame) {
                self.pool.release(frame);
            }
        }
    }
}
