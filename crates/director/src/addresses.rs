//! The shared addresses of an arm: answers who asks for them, and announces them when this director becomes active.
//!
//! Only the active director calls any of it. Announcements are gratuitous ARP requests and unsolicited neighbour advertisements,
//! each [`ANNOUNCEMENTS`] times, since nobody acknowledges them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use asterism_packet::{ArpOperation, MacAddress, NeighbourAdvertisement, Packet, build};
use asterism_placement::Time;

/// Shared addresses of an arm at most.
pub const ADDRESSES_MAX: usize = 256;
/// How often each address is announced (RFC 4861 §10: MAX_NEIGHBOR_ADVERTISEMENT).
pub const ANNOUNCEMENTS: u32 = 3;
/// Time between two announcements of an address (RFC 4861 §10: RetransTimer).
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of the longest frame that is written here: a neighbour advertisement.
pub(crate) const FRAME_BYTES_MAX: usize = 86;

/// What a frame was to an arm's shared addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// A question; the answer has so many bytes.
    Answer(usize),
    /// Another station says that a shared address is its own: the other director, or an intruder.
    Conflict,
    /// Nothing.
    Nothing,
}

/// How far announcing is.
#[derive(Clone, Copy, Debug)]
struct Announcing {
    /// Rounds that are left, this one included.
    rounds: u32,
    /// The next address of the round.
    next: usize,
    due: Time,
}

/// The shared addresses of an arm.
#[derive(Debug)]
pub(crate) struct Addresses {
    mac: MacAddress,
    ipv4: Box<[Ipv4Addr]>,
    ipv6: Box<[Ipv6Addr]>,
    announcing: Option<Announcing>,
}

impl Addresses {
    pub(crate) fn new(mac: MacAddress, shared: &[IpAddr]) -> Addresses {
        let mut ipv4: Vec<Ipv4Addr> = Vec::new();
        let mut ipv6: Vec<Ipv6Addr> = Vec::new();
        for address in shared {
            match address {
                IpAddr::V4(address) => ipv4.push(*address),
                IpAddr::V6(address) => ipv6.push(*address),
            }
        }
        ipv4.sort_unstable();
        ipv6.sort_unstable();
        Addresses {
            mac,
            ipv4: ipv4.into(),
            ipv6: ipv6.into(),
            announcing: None,
        }
    }

    /// What an ARP packet asks or says of the shared addresses; the answer is written into `out`.
    pub(crate) fn arp(&self, packet: &Packet<'_>, out: &mut [u8]) -> Asked {
        let Some(arp) = packet.arp() else {
            return Asked::Nothing;
        };
        if arp.sender_mac != self.mac && self.ipv4.binary_search(&arp.sender).is_ok() {
            return Asked::Conflict;
        }
        let asks = arp.operation == ArpOperation::Request
            && !arp.sender_mac.is_multicast()
            && self.ipv4.binary_search(&arp.target).is_ok();
        if !asks {
            return Asked::Nothing;
        }
        match build::arp_reply(&arp, self.mac, out) {
            Some(length) => Asked::Answer(length),
            None => Asked::Nothing,
        }
    }

    /// What a neighbour solicitation asks of the shared addresses; the answer is written into `out`.
    pub(crate) fn solicitation(&self, packet: &Packet<'_>, out: &mut [u8]) -> Asked {
        let Some(asked) = packet.neighbour_solicitation() else {
            return Asked::Nothing;
        };
        let asker = packet.ethernet_source();
        if asker.is_multicast() || self.ipv6.binary_search(&asked.target).is_err() {
            return Asked::Nothing;
        }
        let advertised = self.advertised(asked.target);
        match build::neighbour_answer(&asked, asker, &advertised, out) {
            Some(length) => Asked::Answer(length),
            None => Asked::Nothing,
        }
    }

    /// The cluster forwards packets for others, and so does the station that has its addresses.
    fn advertised(&self, target: Ipv6Addr) -> NeighbourAdvertisement {
        NeighbourAdvertisement {
            target,
            mac: self.mac,
            is_router: true,
        }
    }

    /// Begins to announce every address.
    pub(crate) fn announce(&mut self, now: Time) {
        self.announcing = (!self.ipv4.is_empty() || !self.ipv6.is_empty()).then_some(Announcing {
            rounds: ANNOUNCEMENTS,
            next: 0,
            due: now,
        });
    }

    /// Announces no more: another director is active.
    pub(crate) fn be_silent(&mut self) {
        self.announcing = None;
    }

    /// When the next announcement is due.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.announcing.map(|announcing| announcing.due)
    }

    /// The next announcement that is due, written into `out`.
    pub(crate) fn next_announcement(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        let announcing = self.announcing.as_mut().filter(|one| now >= one.due)?;
        let place = announcing.next;
        announcing.next += 1;
        if announcing.next >= self.ipv4.len() + self.ipv6.len() {
            announcing.next = 0;
            announcing.rounds -= 1;
            announcing.due = now.saturating_add(ANNOUNCE_INTERVAL);
            if announcing.rounds == 0 {
                self.announcing = None;
            }
        }
        match self.ipv4.get(place) {
            Some(address) => build::arp_request(self.mac, *address, *address, out),
            None => {
                let address = self.ipv6.get(place.checked_sub(self.ipv4.len())?)?;
                build::neighbour_announcement(&self.advertised(*address), out)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const CLIENT: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
    const SHARED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

    fn addresses() -> Addresses {
        let six = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        Addresses::new(MAC, &[SHARED.into(), six.into()])
    }

    fn asked(mac: MacAddress, sender: Ipv4Addr, target: Ipv4Addr) -> Asked {
        let mut frame = [0; 64];
        let length = build::arp_request(mac, sender, target, &mut frame).unwrap();
        let packet = Packet::parse(&mut frame[..length]).unwrap();
        addresses().arp(&packet, &mut [0; FRAME_BYTES_MAX])
    }

    #[test]
    fn questions_for_shared_addresses_alone_are_answered() {
        assert_eq!(asked(CLIENT, OTHER, SHARED), Asked::Answer(42));
        assert_eq!(asked(CLIENT, OTHER, OTHER), Asked::Nothing);
        assert_eq!(asked(CLIENT, SHARED, SHARED), Asked::Conflict);
        assert_eq!(asked(MAC, SHARED, SHARED), Asked::Answer(42));
        assert_eq!(asked(MacAddress([3; 6]), OTHER, SHARED), Asked::Nothing);
    }

    #[test]
    fn every_address_is_announced_so_many_times() {
        let mut addresses = addresses();
        let mut out = [0; FRAME_BYTES_MAX];
        assert_eq!(addresses.next_announcement(Time::ZERO, &mut out), None);
        addresses.announce(Time::ZERO);
        let mut frames = 0;
        let mut now = Time::ZERO;
        while let Some(due) = addresses.next_due() {
            now = now.max(due);
            let length = addresses.next_announcement(now, &mut out).unwrap();
            let packet = Packet::parse(&mut out[..length]).unwrap();
            assert!(packet.ethernet_destination().is_multicast());
            assert_eq!(packet.ethernet_source(), MAC);
            frames += 1;
        }
        assert_eq!(frames, 2 * ANNOUNCEMENTS);
        assert_eq!(now, Time::ZERO.saturating_add(2 * ANNOUNCE_INTERVAL));
        addresses.announce(now);
        addresses.be_silent();
        assert_eq!(addresses.next_due(), None);
    }
}
