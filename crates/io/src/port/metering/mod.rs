//! A wrapping port that counts packets, bytes and new flows of each tenant by the addresses behind the port.
//!
//! What comes in by it belongs to the tenant of its source address, what goes out to that of its destination address. A packet of no
//! tenant is not counted. The loop that owns the port is the only writer of its counts; others read them at any time. Counting
//! allocates nothing, and has neither locks nor atomic read-modify-writes. Read `map.rs` (whose an address is) and `flows.rs` (which
//! flows are new).

mod flows;
mod map;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asterism_packet::{FlowKey, Fragment, Packet, Plain4, Protocol, TcpFlags};
use asterism_placement::Time;

use super::{LinkState, Port, PortError, PortStatistics};
use crate::frame::{Burst, Frame, FramePool};
use flows::RecentFlows;
pub use flows::{FLOW_IDLE_SECONDS, FLOWS_KNOWN};
pub use map::TenantMap;

/// Counts of one tenant by one loop since the port was made. They only grow.
#[derive(Debug, Default)]
pub struct TenantCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
    flows: AtomicU64,
}

/// What [`TenantCounters`] held at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantCounts {
    /// Packets in and out.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Flows that began.
    pub flows: u64,
}

impl TenantCounters {
    /// The counts now. Each is as new as any reader can have it.
    #[must_use]
    pub fn read(&self) -> TenantCounts {
        TenantCounts {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            flows: self.flows.load(Ordering::Relaxed),
        }
    }
}

/// By the only writer, so that a load and a store do.
#[inline(always)]
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

/// Whose packet it is, and what it may begin.
struct Metered {
    tenant: usize,
    /// The packet may be the first of a flow.
    may_begin: bool,
}

/// Whether a packet comes in by the port or goes out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passing {
    In,
    Out,
}

/// Another port, of which packets are counted by tenant.
#[derive(Debug)]
pub struct MeteringPort<P> {
    inner: P,
    map: Arc<TenantMap>,
    counters: Arc<[TenantCounters]>,
    flows: RecentFlows,
    /// Random, so that senders cannot choose flows that count as one.
    seed: u64,
    now_seconds: u64,
}

impl<P: Port> MeteringPort<P> {
    /// Wraps `inner`. The counters are by tenant, in the order of the map, and written by this port alone; tenants without one are not
    /// counted. Takes the memory of [`FLOWS_KNOWN`] flows, eight bytes each.
    pub fn new(
        inner: P,
        map: Arc<TenantMap>,
        counters: Arc<[TenantCounters]>,
        seed: u64,
    ) -> MeteringPort<P> {
        MeteringPort {
            inner,
            map,
            counters,
            flows: RecentFlows::new(),
            seed,
            now_seconds: 0,
        }
    }

    #[inline]
    fn count(&mut self, pool: &mut FramePool, frames: &mut [Frame], passing: Passing) {
        for frame in frames {
            let bytes = frame.len() as u64;
            let (metered, key) = match Packet::parse_plain(pool.bytes_mut(frame)) {
                Some(packet) => {
                    match packet
                        .plain4()
                        .and_then(|plain| self.of_plain(&plain, passing))
                    {
                        Some(metered) if metered.may_begin => (metered, Some(FlowKey::of(&packet))),
                        Some(metered) => (metered, None),
                        None => continue,
                    }
                }
                None => match self.of_uncommon(pool.bytes_mut(frame), passing) {
                    Some(found) => found,
                    None => continue,
                },
            };
            let Some(counters) = self.counters.get(metered.tenant) else {
                continue;
            };
            add(&counters.packets, 1);
            add(&counters.bytes, bytes);
            if let Some(key) = key
                && self.flows.is_new(key.hash(self.seed), self.now_seconds)
            {
                add(&counters.flows, 1);
            }
        }
    }

    #[inline(always)]
    fn of_plain(&self, plain: &Plain4<'_>, passing: Passing) -> Option<Metered> {
        let [a, b, c, d, e, f, g, h] = plain.addresses();
        let own = match passing {
            Passing::In => u32::from_be_bytes([a, b, c, d]),
            Passing::Out => u32::from_be_bytes([e, f, g, h]),
        };
        Some(Metered {
            tenant: self.map.of_ipv4(own)?,
            may_begin: match plain.protocol() {
                Protocol::TCP => begins(plain.tcp_flags()),
                _ => passing == Passing::In,
            },
        })
    }

    /// Whose a packet is that is no plain one: of IPv6, a fragment, ICMP, with options or tags. `None`: of nobody, or no IP packet.
    #[inline(never)]
    fn of_uncommon(
        &self,
        bytes: &mut [u8],
        passing: Passing,
    ) -> Option<(Metered, Option<FlowKey>)> {
        let packet = Packet::parse(bytes).ok()?;
        let tenant = match passing {
            Passing::In => match packet.ipv4_source() {
                Some(source) => self.map.of_ipv4(source.to_bits()),
                None => self.map.of_ipv6(packet.ipv6_source()?.to_bits()),
            },
            Passing::Out => match packet.ipv4_destination() {
                Some(destination) => self.map.of_ipv4(destination.to_bits()),
                None => self.map.of_ipv6(packet.ipv6_destination()?.to_bits()),
            },
        }?;
        // Fragments are of flows that nobody knows, and errors of others' flows.
        let is_whole = packet.layout().fragment() == Fragment::Whole && packet.embedded().is_none();
        let may_begin = is_whole
            && match packet.tcp_flags() {
                Some(flags) => begins(flags),
                None => passing == Passing::In,
            };
        let metered = Metered { tenant, may_begin };
        let key = may_begin.then(|| FlowKey::of(&packet));
        Some((metered, key))
    }
}

/// Whether a TCP segment begins a connection.
#[inline(always)]
fn begins(flags: TcpFlags) -> bool {
    flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::ACK)
}

impl<P: Port> Port for MeteringPort<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        let received = self.inner.receive(pool, burst);
        let frames = burst.as_mut_slice().get_mut(before..).unwrap_or_default();
        self.count(pool, frames, Passing::In);
        received
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        self.count(pool, burst.as_mut_slice(), Passing::Out);
        self.inner.send(pool, burst)
    }

    fn statistics(&self) -> PortStatistics {
        self.inner.statistics()
    }

    fn advance(&mut self, now: Time) {
        self.now_seconds = now.as_micros() / 1_000_000;
        self.inner.advance(now);
    }

    fn next_due(&self) -> Option<Time> {
        self.inner.next_due()
    }

    fn exhausted(&self) -> bool {
        self.inner.exhausted()
    }

    fn flush(&mut self, pool: &mut FramePool) -> Result<(), PortError> {
        self.inner.flush(pool)
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_descriptor()
    }

    fn link(&self) -> LinkState {
        self.inner.link()
    }
}
