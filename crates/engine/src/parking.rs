//! Packets whose answers are late: kept in order for each flow, bounded, each with a deadline.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::{HashMap, VecDeque};

use asterism_function::Reason;
use asterism_state::{Call, Wait};

use crate::frame::Frame;
use crate::mutant::{self, Mutant};

/// Packets parked at most. At the bound no port is read; what waits for absent entries, or behind other packets, cannot
/// reach it alone.
pub const PARKED_MAX: usize = 1_024;
/// Packets parked for entries that may be on their way, at most. At the bound the oldest is dropped.
pub const PARKED_ABSENT_MAX: usize = 256;
/// Packets parked behind others of their flows, at most. At the bound the newest is dropped.
pub const PARKED_BEHIND_MAX: usize = 512;
/// Packets of one flow parked at most, fragments between two hosts being one flow. At the bound the newest is dropped: six
/// initial windows of TCP (RFC 6928).
pub const PARKED_FLOW_MAX: usize = 64;
/// Microseconds after which a parked packet is dropped, whatever it waits for.
pub const PARKED_US_MAX: u64 = 2_000_000;

/// A parked packet.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) frame: Frame,
    pub(crate) call: Call,
    /// The hash of its flow.
    pub(crate) flow: u64,
    /// It is a fragment, which others of its flow may overtake (RFC 791 §3.2): nobody waits behind it.
    pub(crate) is_fragment: bool,
    /// When it was parked first.
    pub(crate) since_us: u64,
    pub(crate) until: Until,
}

/// What a parked packet waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Its fetched reads, ready at this time.
    Fetched { at_us: u64 },
    /// News of other members, or this time.
    Absent { until_us: u64 },
    /// A packet of the same flow before it: it was not called yet.
    Turn { serial: u64 },
}

impl Until {
    pub(crate) fn new(wait: Wait, now_us: u64) -> Self {
        match wait {
            Wait::Fetch { delay_us } => Self::Fetched {
                at_us: now_us.saturating_add(delay_us),
            },
            Wait::Absent { until_us, .. } => Self::Absent { until_us },
            // A function that returns `Err` without a late read is called again at once.
            Wait::Nothing => Self::Fetched { at_us: now_us },
        }
    }

    /// The same, at this time at the latest.
    pub(crate) fn by(self, latest_us: u64) -> Self {
        match self {
            Self::Fetched { at_us } => Self::Fetched {
                at_us: at_us.min(latest_us),
            },
            Self::Absent { until_us } => Self::Absent {
                until_us: until_us.min(latest_us),
            },
            Self::Turn { .. } => self,
        }
    }
}

/// What is known of a flow with parked packets.
#[derive(Clone, Copy, Debug, Default)]
struct OfFlow {
    packets: usize,
    /// The last pass in which one of its packets was put back: those behind it wait too.
    held_in: u64,
}

/// Flows are known by hashes that nobody outside can predict: they need not be hashed again.
#[derive(Clone, Copy, Debug, Default)]
struct HashedAlready(u64);

impl Hasher for HashedAlready {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The parked packets of an instance, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Parking {
    packets: VecDeque<Parked>,
    /// Never grows: it has room for twice as many flows as packets can be parked.
    flows: HashMap<u64, OfFlow, BuildHasherDefault<HashedAlready>>,
    absent: usize,
    behind: usize,
    pass: u64,
}

impl Default for Parking {
    fn default() -> Self {
        Self {
            packets: VecDeque::with_capacity(PARKED_MAX + 64),
            flows: HashMap::with_capacity_and_hasher(
                2 * (PARKED_MAX + 64),
                BuildHasherDefault::default(),
            ),
            absent: 0,
            behind: 0,
            pass: 0,
        }
    }
}

impl Parking {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }
    /// Whether reading another burst could overflow the bound.
    pub(crate) fn is_full(&self) -> bool {
        self.packets.len() + crate::frame::BURST > PARKED_MAX
    }
    /// Whether a packet of this flow must wait behind one that is parked.
    pub(crate) fn must_follow(&self, flow: u64) -> bool {
        self.flows.contains_key(&flow)
    }

    /// Parks a packet. Gives back the one that is too many, if one is, and why.
    pub(crate) fn park(&mut self, parked: Parked) -> Option<(Parked, Reason)> {
        let of_flow = self.flows.get(&parked.flow).map_or(0, |of| of.packets);
        if of_flow >= PARKED_FLOW_MAX && !mutant::active(Mutant::FlowFillsParking) {
            return Some((parked, Reason::ParkedFlow));
        }
        let is_behind = matches!(parked.until, Until::Turn { .. });
        if is_behind
            && self.behind >= PARKED_BEHIND_MAX
            && !mutant::active(Mutant::FlowFillsParking)
        {
            return Some((parked, Reason::ParkedOverflow));
        }
        self.put(parked);
        if self.absent <= PARKED_ABSENT_MAX {
            return None;
        }
        let is_absent = |packet: &Parked| matches!(packet.until, Until::Absent { .. });
        let oldest = self.packets.iter().position(is_absent)?;
        let oldest = self.packets.remove(oldest)?;
        self.forget(&oldest);
        Some((oldest, Reason::ParkedOverflow))
    }

    fn put(&mut self, parked: Parked) {
        self.flows.entry(parked.flow).or_default().packets += 1;
        match parked.until {
            Until::Absent { .. } => self.absent += 1,
            Until::Turn { .. } => self.behind += 1,
            Until::Fetched { .. } => {}
        }
        self.packets.push_back(parked);
    }

    fn forget(&mut self, parked: &Parked) {
        match parked.until {
            Until::Absent { .. } => self.absent -= 1,
            Until::Turn { .. } => self.behind -= 1,
            Until::Fetched { .. } => {}
        }
        if let Some(of) = self.flows.get_mut(&parked.flow) {
            of.packets -= 1;
            if of.packets == 0 {
                self.flows.remove(&parked.flow);
            }
        }
    }

    /// Starts a pass over all packets: how many there are now.
    pub(crate) fn begin_pass(&mut self) -> usize {
        self.pass += 1;
        self.packets.len()
    }
    /// The next packet of the pass, and whether one of its flow was put back before it.
    pub(crate) fn next(&mut self) -> Option<(Parked, bool)> {
        let parked = self.packets.pop_front()?;
        let of = self.flows.get(&parked.flow);
        let is_held = of.is_some_and(|of| of.held_in == self.pass);
        self.forget(&parked);
        Some((parked, is_held))
    }
    /// Puts a packet of the pass back.
    pub(crate) fn keep(&mut self, parked: Parked) {
        let (flow, is_fragment) = (parked.flow, parked.is_fragment);
        self.put(parked);
        if !is_fragment {
            self.hold(flow);
        }
    }
    /// One packet of this flow is parked on: in this pass those behind it are too.
    pub(crate) fn hold(&mut self, flow: u64) {
        if let Some(of) = self.flows.get_mut(&flow) {
            of.held_in = self.pass;
        }
    }

    /// When the next parked packet becomes ready by time alone.
    pub(crate) fn next_ready_us(&self) -> Option<u64> {
        self.packets
            .iter()
            .filter_map(|packet| match packet.until {
                Until::Fetched { at_us } => Some(at_us),
                Until::Absent { until_us } => Some(until_us),
                Until::Turn { .. } => None,
            })
            .min()
    }
}
