//! The station that clients, or servers, are behind: a router on a segment, which knows one gateway.
//!
//! It answers ARP for its own address, and asks for the gateway once a second until that is known, then each half minute. Every ARP
//! packet from the gateway's address teaches, gratuitous ones too: so a director that takes over gets the packets at once.

use core::time::Duration;
use std::collections::VecDeque;

use asterism_io::frame::{Burst, Frame, FramePool};
use asterism_packet::build::Header4;
use asterism_packet::{Arp, ArpOperation, MacAddress, build};
use asterism_placement::Time;
use core::net::Ipv4Addr;

use crate::addresses::LinkSide;

/// Frames that may wait to be taken by the segment.
pub(super) const OUTBOX_MAX: usize = 512;
/// Time between two questions for a gateway that is not known, and for one that is.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// The router.
#[derive(Debug)]
pub(super) struct Router {
    side: LinkSide,
    gateway: Option<MacAddress>,
    ask_due: Time,
    outbox: VecDeque<Frame>,
    /// Frames sent, and those for which there was no place.
    pub(super) sent: u64,
    pub(super) not_sent: u64,
    identification: u16,
}

impl Router {
    pub(super) fn new(side: LinkSide) -> Router {
        Router {
            side,
            gateway: None,
            ask_due: Time::ZERO,
            outbox: VecDeque::with_capacity(OUTBOX_MAX),
            sent: 0,
            not_sent: 0,
            identification: 0,
        }
    }

    /// Whether packets can be sent.
    pub(super) fn knows_gateway(&self) -> bool {
        self.gateway.is_some()
    }

    /// Frames that may be emitted before the queue is full.
    pub(super) fn room(&self) -> usize {
        OUTBOX_MAX - self.outbox.len()
    }

    /// When the gateway is asked for next.
    pub(super) fn ask_due(&self) -> Time {
        self.ask_due
    }

    /// Whether frames wait to be taken.
    pub(super) fn has_frames(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Takes an ARP packet.
    pub(super) fn take_arp(&mut self, arp: &Arp, pool: &mut FramePool, now: Time) {
        if arp.sender == self.side.gateway() && !arp.sender_mac.is_multicast() {
            self.gateway = Some(arp.sender_mac);
            self.ask_due = now.saturating_add(REFRESH_INTERVAL);
        }
        if arp.operation == ArpOperation::Request && arp.target == self.side.router() {
            let mac = self.side.router_mac();
            self.emit(pool, |out| build::arp_reply(arp, mac, out));
        }
    }

    /// Asks for the gateway, if that is due.
    pub(super) fn ask(&mut self, pool: &mut FramePool, now: Time) {
        if now < self.ask_due {
            return;
        }
        self.ask_due = now.saturating_add(ASK_INTERVAL);
        let (mac, own, gateway) = (
            self.side.router_mac(),
            self.side.router(),
            self.side.gateway(),
        );
        self.emit(pool, |out| build::arp_request(mac, own, gateway, out));
    }

    /// The headers of a packet to the gateway; `None` while the gateway is not known.
    pub(super) fn header(&mut self, source: Ipv4Addr, destination: Ipv4Addr) -> Option<Header4> {
        self.identification = self.identification.wrapping_add(1);
        Some(Header4 {
            ethernet_source: self.side.router_mac(),
            ethernet_destination: self.gateway?,
            source,
            destination,
            // A router on the path: one less than a host's 64.
            ttl: 63,
            identification: self.identification,
            dont_fragment: true,
        })
    }

    /// Writes a frame and queues it; false, and counted, without a free frame or place.
    pub(super) fn emit(
        &mut self,
        pool: &mut FramePool,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let frame = (self.room() > 0).then(|| pool.allocate()).flatten();
        let Some(mut frame) = frame else {
            self.not_sent += 1;
            return false;
        };
        let length = write(pool.space_mut(&mut frame));
        if length.is_some_and(|length| pool.set_length(&mut frame, length)) {
            self.outbox.push_back(frame);
            return true;
        }
        self.not_sent += 1;
        pool.release(frame);
        false
    }

    /// Hands queued frames to the segment.
    pub(super) fn hand_out(&mut self, burst: &mut Burst) {
        while burst.room() > 0 {
            let Some(frame) = self.outbox.pop_front() else {
                return;
            };
            self.sent += 1;
            // There is room.
            let _ = burst.push(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_packet::Packet;

    #[test]
    fn the_gateway_is_asked_for_and_follows_announcements() {
        let side = LinkSide::Inside;
        let mut router = Router::new(side);
        let mut pool = FramePool::new(8).unwrap();
        let mut burst = Burst::new();
        assert!(!router.knows_gateway());
        router.ask(&mut pool, Time::ZERO);
        router.ask(&mut pool, Time::ZERO);
        router.hand_out(&mut burst);
        assert_eq!((burst.len(), router.sent), (1, 1), "at most once a second");
        let mut frame = burst.pop().unwrap();
        let asked = Packet::parse(pool.bytes_mut(&mut frame))
            .unwrap()
            .arp()
            .unwrap();
        assert_eq!(
            (asked.sender, asked.target),
            (side.router(), side.gateway())
        );
        let mut bytes = [0; 64];
        for number in [0, 1] {
            let mac = side.director_mac(number);
            let length = match number {
                0 => build::arp_reply(&asked, mac, &mut bytes),
                _ => build::arp_request(mac, side.gateway(), side.gateway(), &mut bytes),
            };
            let packet = Packet::parse(&mut bytes[..length.unwrap()]).unwrap();
            router.take_arp(&packet.arp().unwrap(), &mut pool, Time::ZERO);
            let header = router.header(side.router(), side.router()).unwrap();
            assert_eq!(header.ethernet_destination, mac);
        }
        // A question for the router is answered.
        let mac = MacAddress([2; 6]);
        let length = build::arp_request(mac, side.gateway(), side.router(), &mut bytes);
        let packet = Packet::parse(&mut bytes[..length.unwrap()]).unwrap();
        router.take_arp(&packet.arp().unwrap(), &mut pool, Time::ZERO);
        assert!(router.has_frames());
        router.hand_out(&mut burst);
        let mut answer = burst.pop().unwrap();
        let answer = Packet::parse(pool.bytes_mut(&mut answer))
            .unwrap()
            .arp()
            .unwrap();
        assert_eq!(answer.sender_mac, side.router_mac());
    }
}
