//! An Ethernet segment: a switch over any kind of port.
//!
//! One thread turns it. A frame goes to the port of its destination's station, or to all other ports whose link is up if the
//! destination is a group or unknown. `table.rs` has the stations. Each frame that goes nowhere is counted with a
//! [`SegmentDrop`]. On a packet's path nothing allocates, locks, formats or logs.

mod table;

use core::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use asterism_io::frame::{BURST, Burst, Frame, FramePool};
use asterism_io::port::{LinkState, Port, PortStatistics};
use asterism_packet::MacAddress;
use asterism_placement::Time;

pub use table::{AGE_MAX, STATIONS_MAX};

use table::Stations;

/// Ports of a segment at most.
pub const PORTS_MAX: usize = 64;
/// Frames of a segment: more than all ports receive in a turn, and copies of a flooded burst for all of them.
pub const FRAMES: usize = 2 * PORTS_MAX * BURST;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

macro_rules! reasons {
    ($($(#[doc = $meaning:literal])* $name:ident $label:literal;)*) => {
        /// Why a segment did not deliver a frame, or a copy of a flooded one. Each is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum SegmentDrop {
            $($(#[doc = $meaning])* $name,)*
        }

        impl SegmentDrop {
            /// Every reason, in the order of their numbers.
            pub const ALL: &[SegmentDrop] = &[$(SegmentDrop::$name,)*];
            /// How many there are.
            pub const COUNT: usize = SegmentDrop::ALL.len();

            /// The reason as a metric's label.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self {
                    $(SegmentDrop::$name => $label,)*
                }
            }
        }
    };
}

reasons! {
    /// The frame is shorter than an Ethernet header, or its source is a group.
    Malformed "malformed";
    /// The destination is at the port where the frame arrived.
    SamePort "same-port";
    /// The link of the destination's port is down: its host has not started, or has ended.
    LinkDown "link-down";
    /// The destination's port takes no more: its host reads too slowly.
    BackPressure "back-pressure";
    /// No frame was free for a copy of a flooded frame.
    NoFrame "no-frame";
}

/// A port of a segment, by the number that [`Segment::add_port`] returned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortNumber(u8);

impl PortNumber {
    /// The number, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Why a port or a station was not added. The segment is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// There are as many ports as may be.
    #[error("a segment has at most {PORTS_MAX} ports")]
    Ports,
    /// There is no place for the station.
    #[error("a segment has no place for another configured station: it has {STATIONS_MAX} places")]
    Stations,
    /// There is no such port.
    #[error("the segment has no port {0}")]
    NoPort(usize),
}

/// What a segment counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentStatistics {
    /// Frames received.
    pub received: u64,
    /// Frames sent, each copy of a flooded one included.
    pub sent: u64,
    /// Frames for a group or an unknown station.
    pub flooded: u64,
    /// Frames whose source found no place in the table.
    pub not_learnt: u64,
    /// Times that the link of a port went down.
    pub link_downs: u64,
    /// Ports whose link is up now.
    pub links_up_now: u64,
    /// Frames and copies that were not delivered, in the order of [`SegmentDrop::ALL`].
    pub dropped: [u64; SegmentDrop::COUNT],
}

impl SegmentStatistics {
    /// Words in which they are published.
    pub(crate) const WORDS: usize = 6 + SegmentDrop::COUNT;

    /// Frames and copies that were not delivered for a reason.
    #[must_use]
    pub fn dropped(&self, reason: SegmentDrop) -> u64 {
        self.dropped[reason as usize]
    }

    pub(crate) fn write(&self, words: &mut Vec<u64>) {
        words.extend([
            self.received,
            self.sent,
            self.flooded,
            self.not_learnt,
            self.link_downs,
            self.links_up_now,
        ]);
        words.extend(self.dropped);
    }

    pub(crate) fn read(words: &[u64]) -> Option<SegmentStatistics> {
        let (fields, dropped) = words.split_first_chunk::<6>()?;
        let [
            received,
            sent,
            flooded,
            not_learnt,
            link_downs,
            links_up_now,
        ] = *fields;
        Some(SegmentStatistics {
            received,
            sent,
            flooded,
            not_learnt,
            link_downs,
            links_up_now,
            dropped: *dropped.first_chunk()?,
        })
    }
}

/// A port and what is on its way out of it.
struct Attached {
    port: Box<dyn Port>,
    out: Burst,
    is_up: bool,
}

/// A segment. One thread has it.
pub struct Segment {
    pool: FramePool,
    /// By port number; `None` where a port was removed.
    ports: Vec<Option<Attached>>,
    stations: Stations,
    burst: Burst,
    statistics: SegmentStatistics,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("ports", &self.ports.len())
            .field("statistics", &self.statistics)
            .finish_non_exhaustive()
    }
}

impl Segment {
    /// A segment without ports. The seed scatters addresses in the table.
    ///
    /// # Errors
    /// There is no memory for [`FRAMES`] frames of 2 KiB.
    pub fn new(seed: u64) -> io::Result<Segment> {
        Ok(Segment {
            pool: FramePool::new(FRAMES)?,
            ports: Vec::with_capacity(PORTS_MAX),
            stations: Stations::new(seed),
            burst: Burst::new(),
            statistics: SegmentStatistics::default(),
        })
    }

    /// Attaches a port; its stations are learnt, but for those of [`Segment::add_station`].
    ///
    /// # Errors
    /// [`SegmentError::Ports`].
    pub fn add_port(&mut self, port: Box<dyn Port>) -> Result<PortNumber, SegmentError> {
        let attached = Attached {
            is_up: port.link() == LinkState::Up,
            port,
            out: Burst::new(),
        };
        let number = match self.ports.iter().position(Option::is_none) {
            Some(free) => {
                self.ports[free] = Some(attached);
                free
            }
            None if self.ports.len() < PORTS_MAX => {
                self.ports.push(Some(attached));
                self.ports.len() - 1
            }
            None => return Err(SegmentError::Ports),
        };
        Ok(PortNumber(number as u8))
    }

    /// Removes a port, whose stations are forgotten.
    ///
    /// # Errors
    /// [`SegmentError::NoPort`].
    pub fn remove_port(&mut self, number: PortNumber) -> Result<(), SegmentError> {
        let place = self.ports.get_mut(number.index());
        let place = place.ok_or(SegmentError::NoPort(number.index()))?;
        if place.take().is_none() {
            return Err(SegmentError::NoPort(number.index()));
        }
        self.stations.forget(number.0);
        Ok(())
    }

    /// Configures a station: frames to its address go to this port, whatever sources arrive elsewhere.
    ///
    /// # Errors
    /// [`SegmentError::NoPort`], [`SegmentError::Stations`].
    pub fn add_station(&mut self, mac: MacAddress, number: PortNumber) -> Result<(), SegmentError> {
        if !matches!(self.ports.get(number.index()), Some(Some(_))) {
            return Err(SegmentError::NoPort(number.index()));
        }
        if self.stations.set(mac, number.0) {
            Ok(())
        } else {
            Err(SegmentError::Stations)
        }
    }

    /// One round: a burst of each port is received and delivered. Returns how many frames were received. `now` never goes back.
    pub fn turn(&mut self, now: Time) -> usize {
        let mut received = 0;
        for number in 0..self.ports.len() {
            let Some(Some(attached)) = self.ports.get_mut(number) else {
                continue;
            };
            attached.port.advance(now);
            let is_up = attached.port.link() == LinkState::Up;
            if is_up != attached.is_up {
                attached.is_up = is_up;
                self.link_changed(number as u8, is_up);
            }
            received += self.turn_port(number, now);
        }
        self.statistics.received += received as u64;
        received
    }

    /// Sends on what ports still hold, before a sleep; a port's report of its first failure is dropped, since its counts and its
    /// link show the failure.
    pub fn flush(&mut self) {
        for attached in self.ports.iter_mut().flatten() {
            let _ = attached.port.flush(&mut self.pool);
        }
    }

    /// When a port has something to do without a packet.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        let ports = self.ports.iter().flatten();
        ports.filter_map(|attached| attached.port.next_due()).min()
    }

    /// What a thread without packets may sleep on.
    pub fn wait_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let ports = self.ports.iter().flatten();
        ports.filter_map(|attached| attached.port.wait_descriptor())
    }

    /// The counts now.
    #[must_use]
    pub fn statistics(&self) -> SegmentStatistics {
        let up = self.ports.iter().flatten().filter(|port| port.is_up);
        SegmentStatistics {
            not_learnt: self.stations.not_learnt,
            links_up_now: up.count() as u64,
            ..self.statistics
        }
    }

    /// The counts of a port, and whether its link is up.
    #[must_use]
    pub fn port(&self, number: PortNumber) -> Option<(PortStatistics, LinkState)> {
        let attached = self.ports.get(number.index())?.as_ref()?;
        Some((attached.port.statistics(), attached.port.link()))
    }

    /// Frames that are neither free nor with a port.
    #[must_use]
    pub fn frames_in_use(&self) -> usize {
        self.pool.in_use()
    }

    #[cold]
    fn link_changed(&mut self, number: u8, is_up: bool) {
        if !is_up {
            self.statistics.link_downs += 1;
            self.stations.forget_learnt(number);
        }
    }

    fn turn_port(&mut self, number: usize, now: Time) -> usize {
        let Some(Some(attached)) = self.ports.get_mut(number) else {
            return 0;
        };
        let received = attached.port.receive(&mut self.pool, &mut self.burst);
        if received == 0 {
            return 0;
        }
        for frame in self.burst.iter() {
            self.pool.prefetch(frame);
        }
        // Ports with frames on their way out, by bits: there are at most 64.
        let mut used = 0u64;
        let mut burst = core::mem::take(&mut self.burst);
        for frame in burst.drain() {
            used |= self.deliver(frame, number as u8, now);
        }
        self.burst = burst;
        while used != 0 {
            let to = used.trailing_zeros() as usize;
            used &= used - 1;
            self.send_out(to);
        }
        received
    }

    /// Puts a frame on its way; the bits of the ports that it leaves by.
    #[inline]
    fn deliver(&mut self, frame: Frame, from: u8, now: Time) -> u64 {
        let bytes = self.pool.bytes(&frame);
        let Some((macs, _)) = bytes.split_first_chunk::<12>() else {
            return self.drop_frame(frame, SegmentDrop::Malformed);
        };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *macs;
        let destination = MacAddress([d0, d1, d2, d3, d4, d5]);
        let source = MacAddress([s0, s1, s2, s3, s4, s5]);
        if bytes.len() < ETHERNET || source.is_multicast() {
            return self.drop_frame(frame, SegmentDrop::Malformed);
        }
        self.stations.learn(source, from, now);
        if destination.is_multicast() {
            return self.flood(frame, from);
        }
        match self.stations.find(destination, now) {
            Some(to) if to == from => self.drop_frame(frame, SegmentDrop::SamePort),
            Some(to) => self.push(frame, to),
            None => self.flood(frame, from),
        }
    }

    #[inline]
    fn push(&mut self, frame: Frame, to: u8) -> u64 {
        match self.ports.get_mut(usize::from(to)) {
            Some(Some(attached)) => {
                // As many fit as were received, and a flooded frame has one copy for each port.
                if let Err(frame) = attached.out.push(frame) {
                    return self.drop_frame(frame, SegmentDrop::BackPressure);
                }
                1 << to
            }
            _ => self.drop_frame(frame, SegmentDrop::LinkDown),
        }
    }

    fn flood(&mut self, frame: Frame, from: u8) -> u64 {
        self.statistics.flooded += 1;
        let mut used = 0;
        for to in 0..self.ports.len() as u8 {
            let is_up = matches!(self.ports.get(usize::from(to)), Some(Some(one)) if one.is_up);
            if to == from || !is_up {
                continue;
            }
            match self.pool.duplicate(&frame) {
                Some(copy) => used |= self.push(copy, to),
                None => self.statistics.dropped[SegmentDrop::NoFrame as usize] += 1,
            }
        }
        self.pool.release(frame);
        used
    }

    fn send_out(&mut self, to: usize) {
        let Some(Some(attached)) = self.ports.get_mut(to) else {
            return;
        };
        let count = attached.out.len();
        let sent = attached.port.send(&mut self.pool, &mut attached.out);
        self.statistics.sent += sent as u64;
        if sent < count {
            let reason = match attached.port.link() {
                LinkState::Up => SegmentDrop::BackPressure,
                _ => SegmentDrop::LinkDown,
            };
            self.statistics.dropped[reason as usize] += (count - sent) as u64;
        }
    }

    #[cold]
    fn drop_frame(&mut self, frame: Frame, reason: SegmentDrop) -> u64 {
        self.statistics.dropped[reason as usize] += 1;
        self.pool.release(frame);
        0
    }
}

#[cfg(test)]
mod tests;
