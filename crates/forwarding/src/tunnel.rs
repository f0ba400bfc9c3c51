//! Tunnels of IPv4 in IPv4 (RFC 2003).
//!
//! The inner packet's time to live is decremented, as it is forwarded (section 3.1); "don't fragment" and the type of service
//! are copied to the outer header. A packet that is too long with the outer header is refused by "fragmentation needed" with
//! the MTU that the tunnel leaves. If it may be fragmented, it is fragmented before encapsulation, so that the far end need
//! not reassemble outer packets (section 5).

use core::net::Ipv4Addr;

use asterism_function::{Cut, Packet, checksum};

/// Bytes of the outer header of a tunnel.
pub(crate) const OUTER: usize = 20;
/// IP in IP.
const PROTOCOL_IPV4: u8 = 4;
const DONT_FRAGMENT: u8 = 0x40;
/// The time to live of outer packets.
const OUTER_TTL: u8 = 64;

/// The header around a packet in a tunnel.
pub(crate) struct Outer {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) identification: [u8; 2],
}

impl Outer {
    /// Writes a packet, or a part of it, with the outer header.
    pub(crate) fn around(
        &self,
        packet: &Packet<'_>,
        cut: Option<&Cut>,
        part: usize,
        out: &mut [u8],
    ) -> Option<usize> {
        let at = packet.layout().network_offset();
        let inner_end = match cut {
            Some(cut) => cut.write(packet.bytes(), part, out)?,
            None => {
                let whole = packet.bytes().get(..packet.layout().end())?;
                out.get_mut(..whole.len())?.copy_from_slice(whole);
                whole.len()
            }
        };
        let end = inner_end + OUTER;
        let out = out.get_mut(..end)?;
        out.copy_within(at..inner_end, at + OUTER);
        let (service, dont_fragment) = (out[at + OUTER + 1], out[at + OUTER + 6] & DONT_FRAGMENT);
        let header = out.get_mut(at..at + OUTER)?;
        header.fill(0);
        header[0] = 0x45;
        header[1] = service;
        header[2..4].copy_from_slice(&u16::try_from(end - at).ok()?.to_be_bytes());
        // Parts of one packet are packets of their own here: each has another identification.
        let identification = u16::from_be_bytes(self.identification).wrapping_add(part as u16);
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        header[6] = dont_fragment;
        header[8] = OUTER_TTL;
        header[9] = PROTOCOL_IPV4;
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..20].copy_from_slice(&self.destination.octets());
        let sum = checksum::of(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        Some(end)
    }
}
