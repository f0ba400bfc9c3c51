//! Output commit: packets held back until enough other members have the state that they depend on.
//!
//! A packet that changed a flow, or that read a change which is not confirmed, waits here after its verdict, with what the
//! function emitted because of it. It leaves once its *version* is confirmed (`crates/call-context/src/context/unconfirmed.rs`). So the
//! death of any so many hosts loses no connection of which the outside has seen a packet (Pico Replication, section 3).
//!
//! Held packets leave in the order of their versions, and those of one version in the order in which they came here. A later packet of
//! a flow waits behind the held ones of that flow, whatever it depends on itself, and for no packet of another flow: it takes the
//! version of the one before it. Ports' bursts are looked at for such followers before they are sent. Nothing here grows: packets and
//! bytes have bounds, and so has the time that a packet is held.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use asterism_function::{FlowKey, Layout, Packet, Protocol, Reason};

use crate::flow_filter::FlowFilter;
use crate::mutant::{self, Mutant};
use crate::tally::Tally;
use asterism_io::frame::{Burst, Frame, FramePool};

/// How a host holds packets back. The same on all hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldSettings {
    /// Other members that must have applied what a packet depends on: so many hosts may die at once. Bound: 1 to 63. Where fewer take
    /// part, all of them.
    pub copies: u32,
    /// Packets held at most. Bound: 1 to 65,536.
    pub packets_max: usize,
    /// Bytes of these packets at most.
    pub bytes_max: usize,
    /// How long a packet is held at most.
    pub age_max: Duration,
    /// What becomes of a packet that was held for that long, or that is one too many.
    pub overdue: Overdue,
    /// Flows of which no packet is held.
    pub exempt: Vec<FlowClass>,
}

/// What becomes of packets that cannot be held any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// They are dropped: the promise is kept, and senders send again.
    Drop,
    /// They leave, and are counted: their connections may be lost with this host.
    Release,
}

/// Flows by protocol, and by a port at either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowClass {
    /// The protocol.
    pub protocol: Protocol,
    /// Ports, one of which is at either end; `None`: any.
    pub ports: Option<RangeInclusive<u16>>,
}

impl FlowClass {
    fn has(&self, packet: &Packet<'_>) -> bool {
        packet.layout().protocol() == self.protocol.0
            && self.ports.as_ref().is_none_or(|ports| {
                let has =
                    |(source, destination)| ports.contains(&source) || ports.contains(&destination);
                packet.ports().is_some_and(has)
            })
    }
}

/// A packet that waits.
#[derive(Debug)]
struct Held {
    frame: Frame,
    port: u16,
    bytes: usize,
    /// It leaves when this version is confirmed: the greater of its own and of the one before it of its flow.
    version: u64,
    /// Of its flow, if it is one that packets wait behind.
    digest: Option<u64>,
    /// When it came, or the one behind it did that was here first.
    since_us: u64,
}

/// Why the first packet leaves.
enum Leaves {
    Confirmed,
    Overdue,
}

/// The held packets of an instance.
#[derive(Debug)]
pub(crate) struct Holding {
    settings: HoldSettings,
    age_max_us: u64,
    /// By version, and by age.
    queue: VecDeque<Held>,
    bytes: usize,
    filter: FlowFilter,
    /// How many packets of each port's burst were looked at: none of them follows a held one, or they were held.
    cleared: Vec<usize>,
    /// The last version that was confirmed when this was looked at last.
    confirmed: u64,
}

/// What a packet is held with: the frames of all packets, the counts, and the time.
pub(crate) struct At<'a> {
    pub(crate) pool: &'a mut FramePool,
    pub(crate) tally: &'a mut Tally,
    pub(crate) now_us: u64,
}

impl Holding {
    /// For an instance of so many ports. Takes all memory that it needs.
    pub(crate) fn new(settings: HoldSettings, seed: u64, ports: usize) -> Self {
        Self {
            age_max_us: settings.age_max.as_micros() as u64,
            queue: VecDeque::with_capacity(settings.packets_max),
            bytes: 0,
            filter: FlowFilter::new(seed),
            cleared: vec![0; ports],
            confirmed: 0,
            settings,
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether more is confirmed than the last time.
    pub(crate) fn note_confirmed(&mut self, version: u64) -> bool {
        core::mem::replace(&mut self.confirmed, version) != version
    }

    /// When the first packet is overdue.
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        self.queue
            .front()
            .map(|first| first.since_us.saturating_add(self.age_max_us))
    }

    /// Whether packets of this flow leave at once.
    pub(crate) fn is_exempt(&self, frame: &mut [u8]) -> bool {
        if self.settings.exempt.is_empty() {
            return false;
        }
        let Ok(layout) = Layout::parse_unverified(frame) else {
            return false;
        };
        let packet = Packet::with_layout(frame, layout);
        self.settings.exempt.iter().any(|class| class.has(&packet))
    }

    /// Holds a packet that leaves by a port until a version is confirmed. `outgoing` is what is to leave by that port before it.
    pub(crate) fn hold(
        &mut self,
        frame: Frame,
        port: u16,
        version: u64,
        outgoing: &mut Burst,
        at: &mut At<'_>,
    ) {
        self.take_followers(port, outgoing, at);
        self.push(frame, port, version, at);
        if self.is_empty() {
            // It was too long to be held at all: the burst is sent without another look.
            self.sent(port.into());
        }
    }

    /// Takes the packets out of a port's burst that follow held ones of their flow. Those that were looked at before stay.
    pub(crate) fn take_followers(&mut self, port: u16, outgoing: &mut Burst, at: &mut At<'_>) {
        let Some(cleared) = self.cleared.get(usize::from(port)).copied() else {
            return;
        };
        if !self.is_empty()
            && outgoing.len() > cleared
            && !mutant::active(Mutant::HeldFlowOvertaken)
        {
            let mut number = 0;
            let pool = &mut *at.pool;
            let mut followers = Burst::new();
            outgoing.extract(
                |frame| {
                    number += 1;
                    number > cleared && self.follows(pool, frame)
                },
                |frame| _ = followers.push(frame),
            );
            for frame in followers.drain() {
                self.push(frame, port, 0, at);
                self.begin_again(at.now_us);
            }
        }
        self.clear(port, outgoing.len());
    }

    /// In a planted bug all held packets are as young as this one.
    fn begin_again(&mut self, now_us: u64) {
        if mutant::active(Mutant::FollowersProlongHolding) {
            self.queue
                .iter_mut()
                .for_each(|held| held.since_us = now_us);
        }
    }

    /// So many packets of a port's burst were looked at.
    fn clear(&mut self, port: u16, count: usize) {
        if let Some(cleared) = self.cleared.get_mut(usize::from(port)) {
            *cleared = count;
        }
    }

    /// A port's burst was sent.
    #[inline]
    pub(crate) fn sent(&mut self, port: usize) {
        if let Some(cleared) = self.cleared.get_mut(port) {
            *cleared = 0;
        }
    }

    fn push(&mut self, frame: Frame, port: u16, version: u64, at: &mut At<'_>) {
        let bytes = at.pool.bytes(&frame).len();
        let is_full = self.queue.len() >= self.settings.packets_max
            || self.bytes + bytes > self.settings.bytes_max;
        if is_full && self.settings.overdue == Overdue::Drop {
            at.tally.drop(Reason::HeldOverflow);
            return at.pool.release(frame);
        }
        let digest = digest(at.pool, &frame);
        let before = digest.and_then(|digest| self.version_of(digest));
        let version = version.max(before.unwrap_or(0));
        if let Some(digest) = digest {
            self.filter.add(digest);
        }
        self.bytes += bytes;
        let place = self.place_of(version);
        let since_us = match self.queue.get(place) {
            Some(next) => next.since_us,
            None => at.now_us,
        };
        let held = Held {
            frame,
            port,
            bytes,
            version,
            digest,
            since_us,
        };
        self.queue.insert(place, held);
        at.tally.held += 1;
        at.tally.held_most = at.tally.held_most.max(self.queue.len());
        self.report(at.tally);
    }

    /// The version that the last held packet of a flow waits for. Looks at every held packet, where the filter says that there may be one.
    #[inline]
    fn version_of(&self, digest: u64) -> Option<u64> {
        if !self.filter.has(digest) {
            return None;
        }
        let mut held = self.queue.iter().rev();
        let last = held.find(|held| held.digest == Some(digest))?;
        match mutant::active(Mutant::FollowersWaitForAll) {
            true => self.queue.back().map(|held| held.version),
            false => Some(last.version),
        }
    }

    /// Where a packet waits that waits for this version: behind all that wait for no greater one.
    fn place_of(&self, version: u64) -> usize {
        let greater = self.queue.iter().rev();
        let greater = greater.take_while(|held| held.version > version);
        self.queue.len() - greater.count()
    }

    /// Whether a packet of this flow is held.
    #[inline]
    fn follows(&self, pool: &mut FramePool, frame: &Frame) -> bool {
        digest(pool, frame).is_some_and(|digest| self.version_of(digest).is_some())
    }

    fn report(&self, tally: &mut Tally) {
        (tally.held_now, tally.held_bytes) = (self.queue.len(), self.bytes);
        debug_assert_eq!(self.queue.is_empty(), self.bytes == 0);
    }

    /// Whether the first packet leaves now, and why.
    fn first_leaves(&self, confirmed: u64, now_us: u64) -> Option<Leaves> {
        let first = self.queue.front()?;
        let age_us = now_us.saturating_sub(first.since_us);
        let is_one_too_many =
            self.queue.len() > self.settings.packets_max || self.bytes > self.settings.bytes_max;
        if first.version <= confirmed {
            Some(Leaves::Confirmed)
        } else if age_us >= self.age_max_us || is_one_too_many {
            Some(Leaves::Overdue)
        } else {
            None
        }
    }

    /// Takes the next packet that leaves now, and the port by which it does. Drops overdue ones, if that is what becomes of them.
    pub(crate) fn next(&mut self, confirmed: u64, at: &mut At<'_>) -> Option<(u16, Frame)> {
        loop {
            let why = self.first_leaves(confirmed, at.now_us)?;
            let first = self.queue.pop_front()?;
            self.bytes -= first.bytes;
            if let Some(digest) = first.digest {
                self.filter.remove(digest);
            }
            self.report(at.tally);
            let overdue = match mutant::active(Mutant::OverdueLeavesAnyway) {
                true => Overdue::Release,
                false => self.settings.overdue,
            };
            match (why, overdue) {
                (Leaves::Confirmed, _) => return Some((first.port, first.frame)),
                (Leaves::Overdue, Overdue::Release) => {
                    at.tally.released_unconfirmed += 1;
                    return Some((first.port, first.frame));
                }
                (Leaves::Overdue, Overdue::Drop) => {
                    at.tally.drop(Reason::HeldTooLong);
                    at.pool.release(first.frame);
                }
            }
        }
    }

    /// The packet that left last stands in its port's burst now.
    pub(crate) fn left(&mut self, port: u16, outgoing: &Burst) {
        self.clear(port, outgoing.len());
    }
}

/// The digest of a packet's flow; `None`: nobody waits behind it.
fn digest(pool: &mut FramePool, frame: &Frame) -> Option<u64> {
    let mut alias = frame.alias();
    let bytes = pool.bytes_mut(&mut alias);
    if Packet::parse_plain(bytes).is_some() {
        return FlowKey::digest_of_plain(bytes);
    }
    let layout = Layout::parse_unverified(bytes).ok()?;
    Some(FlowKey::of(&Packet::with_layout(bytes, layout)).digest())
}
