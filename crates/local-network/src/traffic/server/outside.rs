//! Which flow has which outside endpoint: so the servers see if two flows have one at a time.

use asterism_packet::Protocol;

use crate::addresses::outside_address;
use crate::traffic::endpoints::End;

/// Ports of an address.
const PORTS: usize = 1 << 16;

/// The endpoint number of the flow that used each outside endpoint last, by protocol.
#[derive(Debug)]
pub(super) struct OutsideEndpoints {
    addresses: u8,
    /// One more than the endpoint number; 0: none.
    udp: Box<[u16]>,
    tcp: Box<[u16]>,
}

impl OutsideEndpoints {
    pub(super) fn new(addresses: u8) -> OutsideEndpoints {
        let places = usize::from(addresses) * PORTS;
        OutsideEndpoints {
            addresses,
            udp: vec![0; places].into(),
            tcp: vec![0; places].into(),
        }
    }

    /// The place of an outside endpoint; `None` if its address is none of the NAT's.
    pub(super) fn place(&self, end: End) -> Option<usize> {
        let number = (0..self.addresses).find(|number| outside_address(*number) == end.address)?;
        Some(usize::from(number) * PORTS + usize::from(end.port))
    }

    /// Notes the flow that uses a place; the flow that used it before, if that is another.
    pub(super) fn claim(&mut self, protocol: Protocol, place: usize, endpoint: u32) -> Option<u32> {
        let users = match protocol {
            Protocol::TCP => &mut self.tcp,
            _ => &mut self.udp,
        };
        let user = users.get_mut(place)?;
        let before = u32::from(core::mem::replace(user, endpoint as u16 + 1));
        before.checked_sub(1).filter(|before| *before != endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_addresses_and_ports_are_apart() {
        let mut outside = OutsideEndpoints::new(2);
        let end = |number, port| End {
            address: outside_address(number),
            port,
        };
        let place = outside.place(end(1, 5)).unwrap();
        assert_eq!(outside.place(end(2, 5)), None);
        assert_eq!(outside.claim(Protocol::UDP, place, 0), None);
        assert_eq!(outside.claim(Protocol::UDP, place, 0), None);
        assert_eq!(outside.claim(Protocol::TCP, place, 9), None);
        let other = outside.place(end(0, 5)).unwrap();
        assert_eq!(outside.claim(Protocol::UDP, other, 7), None);
        assert_eq!(outside.claim(Protocol::UDP, place, 4_095), Some(0));
        assert_eq!(outside.claim(Protocol::UDP, place, 0), Some(4_095));
    }
}
