//! Packets whose answers are late: kept in order for each flow, bounded, each with a deadline.

use std::collections::VecDeque;

use asterism_state::{Call, Wait};

use crate::frame::Frame;

/// Packets parked for reads at most. At the bound no port is read.
pub const PARKED_MAX: usize = 1_024;
/// Packets parked for entries that may be on their way, at most. At the bound the oldest is dropped.
pub const PARKED_ABSENT_MAX: usize = 256;
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
}

/// A set of flows by 10 bits of their hashes: may say yes for another flow, which only delays it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowFilter([u64; 16]);

impl FlowFilter {
    pub(crate) fn add(&mut self, flow: u64) {
        self.0[(flow >> 6 & 15) as usize] |= 1 << (flow & 63);
    }
    #[inline]
    pub(crate) fn may_hold(&self, flow: u64) -> bool {
        self.0[(flow >> 6 & 15) as usize] & 1 << (flow & 63) != 0
    }
}

/// The parked packets of an instance, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Parking {
    packets: VecDeque<Parked>,
    flows: FlowFilter,
    absent: usize,
}

impl Default for Parking {
    fn default() -> Self {
        Self {
            packets: VecDeque::with_capacity(PARKED_MAX + 64),
            flows: FlowFilter::default(),
            absent: 0,
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
    #[inline]
    pub(crate) fn must_follow(&self, flow: u64) -> bool {
        self.flows.may_hold(flow)
    }

    /// Parks a packet. Gives back the oldest one that waits for an absent entry if there are too many.
    pub(crate) fn park(&mut self, parked: Parked) -> Option<Parked> {
        let is_absent = matches!(parked.until, Until::Absent { .. });
        if !parked.is_fragment {
            self.flows.add(parked.flow);
        }
        self.packets.push_back(parked);
        self.absent += usize::from(is_absent);
        if self.absent <= PARKED_ABSENT_MAX {
            return None;
        }
        let oldest = self
            .packets
            .iter()
            .position(|packet| matches!(packet.until, Until::Absent { .. }))?;
        self.absent -= 1;
        self.packets.remove(oldest)
    }

    /// Starts a pass over all packets: how many there are now.
    pub(crate) fn begin_pass(&mut self) -> usize {
        self.flows = FlowFilter::default();
        self.absent = 0;
        self.packets.len()
    }
    /// The next packet of the pass.
    pub(crate) fn next(&mut self) -> Option<Parked> {
        self.packets.pop_front()
    }
    /// Puts a packet of the pass back.
    pub(crate) fn keep(&mut self, parked: Parked) -> Option<Parked> {
        self.park(parked)
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
