//! Neighbour discovery for IPv6 (RFC 4861): solicitations read, advertisements and solicitations written.

use core::net::Ipv6Addr;

use crate::build::Writer;
use crate::checksum::Sum;
use crate::endpoint::Protocol;
use crate::layout::{self, Transport};
use crate::mac::MacAddress;
use crate::packet::Packet;
use crate::parse::ETHERTYPE_IPV6;

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Bytes of either message before its options.
const FIXED: usize = 24;
/// The only hop limit of such a message: no router has forwarded it (RFC 4861 §7.1).
const HOP_LIMIT: u8 = 255;
const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;
/// Options of one message that are read.
const OPTIONS_MAX: usize = 8;
/// The link's hosts.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The question which station has an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NeighbourSolicitation {
    /// The sender; unspecified while it checks that nobody has the address yet (RFC 4862 §5.4).
    pub source: Ipv6Addr,
    /// The sender's Ethernet address, if it is said.
    pub source_mac: Option<MacAddress>,
    /// The address in question.
    pub target: Ipv6Addr,
}

/// The statement that a station has an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourAdvertisement {
    /// The address.
    pub target: Ipv6Addr,
    /// Its station, which is the sender.
    pub mac: MacAddress,
    /// Whether the sender forwards packets for others.
    pub is_router: bool,
}

impl Packet<'_> {
    /// The neighbour solicitation in this frame, when it is a valid one (RFC 4861 §7.1.1), its checksum included.
    #[must_use]
    pub fn neighbour_solicitation(&self) -> Option<NeighbourSolicitation> {
        if self.layout.transport() != Transport::Icmpv6
            || self.ttl() != Some(HOP_LIMIT)
            || self.verify_transport_checksum() != Some(true)
        {
            return None;
        }
        let message = self
            .bytes()
            .get(self.layout.transport_offset()..self.layout.end())?;
        let fixed = layout::array::<FIXED>(message, 0)?;
        let target = Ipv6Addr::from_octets(*layout::array::<16>(message, 8)?);
        if fixed[0] != SOLICITATION || fixed[1] != 0 || target.is_multicast() {
            return None;
        }
        let source = self.ipv6_source()?;
        let source_mac = source_option(message.get(FIXED..)?)?;
        let is_probe = source.is_unspecified();
        let is_valid_probe =
            self.ipv6_destination() == Some(solicited_node(target)) && source_mac.is_none();
        (!is_probe || is_valid_probe).then_some(NeighbourSolicitation {
            source,
            source_mac,
            target,
        })
    }
}

/// The station in the option that names the sender's. `None` when the options are malformed or too many.
fn source_option(mut options: &[u8]) -> Option<Option<MacAddress>> {
    let mut found = None;
    for _ in 0..OPTIONS_MAX {
        let Some(&[kind, units]) = options.first_chunk::<2>() else {
            return options.is_empty().then_some(found);
        };
        let length = 8 * usize::from(units);
        let option = options.get(..length).filter(|_| length > 0)?;
        if kind == OPTION_SOURCE && units == 1 {
            found = option[2..].first_chunk().map(|mac| MacAddress(*mac));
        }
        options = options.get(length..)?;
    }
    options.is_empty().then_some(found)
}

/// The multicast address at which the station of `target` listens (RFC 4291 §2.7.1).
#[must_use]
pub const fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b] = target.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (a & 0xff), b)
}

/// The Ethernet address of an IPv6 multicast address (RFC 2464 §7).
const fn multicast_mac(address: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = address.octets();
    MacAddress([0x33, 0x33, a, b, c, d])
}

/// The answer to `solicitation`, which came from the station `asker`; to all nodes when the question was whether the
/// address is free. It overrides what the asker knew.
pub fn neighbour_answer(
    solicitation: &NeighbourSolicitation,
    asker: MacAddress,
    advertised: &NeighbourAdvertisement,
    out: &mut [u8],
) -> Option<usize> {
    if solicitation.source.is_unspecified() {
        return neighbour_announcement(advertised, out);
    }
    let to = (
        solicitation.source,
        solicitation.source_mac.unwrap_or(asker),
    );
    advertisement(advertised, to, true, out)
}

/// An advertisement that nobody asked for, to all nodes of the link: the address has moved (RFC 4861 §7.2.6).
pub fn neighbour_announcement(
    advertised: &NeighbourAdvertisement,
    out: &mut [u8],
) -> Option<usize> {
    advertisement(
        advertised,
        (ALL_NODES, multicast_mac(ALL_NODES)),
        false,
        out,
    )
}

fn advertisement(
    advertised: &NeighbourAdvertisement,
    (to, to_mac): (Ipv6Addr, MacAddress),
    is_solicited: bool,
    out: &mut [u8],
) -> Option<usize> {
    const ROUTER: u8 = 0x80;
    const SOLICITED: u8 = 0x40;
    const OVERRIDE: u8 = 0x20;
    let router = if advertised.is_router { ROUTER } else { 0 };
    let solicited = if is_solicited { SOLICITED } else { 0 };
    let message = Message {
        kind: ADVERTISEMENT,
        flags: router | solicited | OVERRIDE,
        target: advertised.target,
        option: (OPTION_TARGET, advertised.mac),
    };
    message.write(advertised.target, (to, to_mac), advertised.mac, out)
}

/// The question which station has `target`, from `source` at the station `mac`.
pub fn neighbour_solicitation(
    mac: MacAddress,
    source: Ipv6Addr,
    target: Ipv6Addr,
    out: &mut [u8],
) -> Option<usize> {
    let message = Message {
        kind: SOLICITATION,
        flags: 0,
        target,
        option: (OPTION_SOURCE, mac),
    };
    let to = solicited_node(target);
    message.write(source, (to, multicast_mac(to)), mac, out)
}

struct Message {
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    option: (u8, MacAddress),
}

impl Message {
    fn write(
        &self,
        from: Ipv6Addr,
        (to, to_mac): (Ipv6Addr, MacAddress),
        from_mac: MacAddress,
        out: &mut [u8],
    ) -> Option<usize> {
        const LENGTH: u8 = FIXED as u8 + 8;
        let mut message = [0; LENGTH as usize];
        message[0] = self.kind;
        message[4] = self.flags;
        message[8..24].copy_from_slice(&self.target.octets());
        message[24] = self.option.0;
        message[25] = 1;
        message[26..].copy_from_slice(&self.option.1.0);
        let sum = Sum::pseudo_header6(from, to, Protocol::ICMPV6.0, u32::from(LENGTH));
        [message[2], message[3]] = sum.bytes(&message).finish();
        let mut writer = Writer { out, at: 0 };
        writer.put(&to_mac.0)?;
        writer.put(&from_mac.0)?;
        writer.put(&ETHERTYPE_IPV6.to_be_bytes())?;
        writer.put(&[0x60, 0, 0, 0, 0, LENGTH, Protocol::ICMPV6.0, HOP_LIMIT])?;
        writer.put(&from.octets())?;
        writer.put(&to.octets())?;
        writer.put(&message)?;
        Some(writer.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);
    const ASKER: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
    const TARGET: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);
    const SOURCE: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);

    fn question(source: Ipv6Addr) -> Vec<u8> {
        let mut frame = [0; 128];
        let length = neighbour_solicitation(ASKER, source, TARGET, &mut frame).unwrap();
        frame[..length].to_vec()
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let mut frame = question(SOURCE);
        let packet = Packet::parse(&mut frame).unwrap();
        let asked = packet.neighbour_solicitation().unwrap();
        assert_eq!((asked.source, asked.target), (SOURCE, TARGET));
        assert_eq!(asked.source_mac, Some(ASKER));
        assert_eq!(
            packet.ethernet_destination(),
            MacAddress([0x33, 0x33, 0xff, 0x12, 0x34, 0x56])
        );
        let advertised = NeighbourAdvertisement {
            target: TARGET,
            mac: MAC,
            is_router: true,
        };
        let mut out = [0; 128];
        let length = neighbour_answer(&asked, ASKER, &advertised, &mut out).unwrap();
        let answer = Packet::parse(&mut out[..length]).unwrap();
        assert_eq!(answer.verify_transport_checksum(), Some(true));
        assert_eq!(answer.ethernet_destination(), ASKER);
        assert_eq!(answer.ipv6_destination(), Some(SOURCE));
        assert_eq!(answer.icmp_rest(), Some([0xe0, 0, 0, 0]));
        assert_eq!(answer.ttl(), Some(255));
        assert_eq!(answer.neighbour_solicitation(), None);
        assert_eq!(
            neighbour_answer(&asked, ASKER, &advertised, &mut [0; 85]),
            None
        );
    }

    #[test]
    fn a_check_for_a_free_address_is_answered_to_all() {
        // Written with an option, which such a question must not have: taken off again.
        let mut frame = question(Ipv6Addr::UNSPECIFIED);
        assert_eq!(
            Packet::parse(&mut frame).unwrap().neighbour_solicitation(),
            None
        );
        frame.truncate(frame.len() - 8);
        frame[19] = FIXED as u8;
        frame[56..58].fill(0);
        let sum = Sum::pseudo_header6(
            Ipv6Addr::UNSPECIFIED,
            solicited_node(TARGET),
            58,
            FIXED as u32,
        );
        let sum = sum.bytes(&frame[54..]).finish();
        frame[56..58].copy_from_slice(&sum);
        let asked = Packet::parse(&mut frame).unwrap().neighbour_solicitation();
        let asked = asked.unwrap();
        assert_eq!(asked.source_mac, None);
        let advertised = NeighbourAdvertisement {
            target: TARGET,
            mac: MAC,
            is_router: false,
        };
        let mut out = [0; 128];
        let length = neighbour_answer(&asked, ASKER, &advertised, &mut out).unwrap();
        let answer = Packet::parse(&mut out[..length]).unwrap();
        assert_eq!(answer.ipv6_destination(), Some(ALL_NODES));
        assert_eq!(answer.icmp_rest(), Some([0x20, 0, 0, 0]));
    }

    #[test]
    fn what_a_router_forwarded_or_damaged_is_no_question() {
        let whole = question(SOURCE);
        for place in [21, 54, 55, 62, 78, 79] {
            let mut frame = whole.clone();
            frame[place] ^= 1;
            if let Ok(packet) = Packet::parse(&mut frame) {
                assert_eq!(packet.neighbour_solicitation(), None, "byte {place}");
            }
        }
        for length in 0..whole.len() {
            if let Ok(packet) = Packet::parse(&mut whole[..length].to_vec()) {
                assert_eq!(packet.neighbour_solicitation(), None);
            }
        }
    }
}
