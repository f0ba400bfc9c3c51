//! An IPv4 packet cut into fragments, as a router does for a link that it is too long for (RFC 791 §3.2). Imports
//! `checksum`, `layout`, `packet`.

use crate::checksum::Sum;
use crate::layout::{self, Network};
use crate::packet::Packet;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
/// Options: the end of the list, nothing, and the bit of those that every fragment has.
const OPTION_END: u8 = 0;
const OPTION_NOTHING: u8 = 1;
const OPTION_COPIED: u8 = 0x80;

/// How a packet is cut: all parts but the last have the same length. Fragments may be cut again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    network_at: usize,
    transport_at: usize,
    end: usize,
    /// Data bytes in each part, a multiple of eight.
    room: usize,
}

impl Cut {
    /// Into IP packets of at most `longest` bytes. `None`: the packet is not IPv4, says "don't fragment", has no data, or
    /// `longest` leaves no room for eight bytes of it.
    #[must_use]
    pub fn of(packet: &Packet<'_>, longest: usize) -> Option<Cut> {
        let layout = packet.layout();
        if layout.network() != Network::Ipv4 || packet.ipv4_dont_fragment()? {
            return None;
        }
        let network_at = layout.network_offset();
        let header = packet.ipv4_header_length()?;
        let (transport_at, end) = (network_at + header, layout.end());
        let room = longest.checked_sub(header)? & !7;
        (room > 0 && transport_at < end).then_some(Cut {
            network_at,
            transport_at,
            end,
            room,
        })
    }

    /// How many parts there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        (self.end - self.transport_at).div_ceil(self.room)
    }

    /// Writes a part, the first is 0, of the frame that this was made of; its headers may have been edited since. Returns
    /// the part's length; `None`: there is no such part, or it does not fit.
    ///
    /// The later parts of a packet with options keep those that are marked to be copied; in the place of others they
    /// have nothing, which is an option.
    pub fn write(&self, frame: &[u8], part: usize, out: &mut [u8]) -> Option<usize> {
        let from = self
            .transport_at
            .checked_add(part.checked_mul(self.room)?)?;
        if from >= self.end {
            return None;
        }
        let to = self.end.min(from + self.room);
        let (headers, data) = (frame.get(..self.transport_at)?, frame.get(from..to)?);
        let length = headers.len() + data.len();
        let out = out.get_mut(..length)?;
        let (head, tail) = out.split_at_mut_checked(headers.len())?;
        head.copy_from_slice(headers);
        tail.copy_from_slice(data);
        let header = head.get_mut(self.network_at..)?;
        if part > 0 {
            leave_copied_options(header.get_mut(20..)?);
        }
        let total = u16::try_from(header.len() + data.len()).ok()?;
        let word = layout::word(header, 6)?;
        let offset = (word & OFFSET).checked_add(u16::try_from(part * self.room / 8).ok()?)?;
        let more = if to < self.end { MORE_FRAGMENTS } else { 0 };
        let word = word & !(OFFSET | DONT_FRAGMENT) | offset & OFFSET | more;
        let fixed = layout::array_mut::<20>(header, 0)?;
        [fixed[2], fixed[3]] = total.to_be_bytes();
        [fixed[6], fixed[7]] = word.to_be_bytes();
        [fixed[10], fixed[11]] = [0, 0];
        let checksum = Sum::ZERO.bytes(header).finish();
        let fixed = layout::array_mut::<20>(header, 0)?;
        [fixed[10], fixed[11]] = checksum;
        Some(length)
    }
}

fn leave_copied_options(options: &mut [u8]) {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let length = match kind {
            OPTION_END => break,
            OPTION_NOTHING => 1,
            _ => usize::from(options.get(at + 1).copied().unwrap_or(0)).max(2),
        };
        let end = (at + length).min(options.len());
        if kind & OPTION_COPIED == 0 {
            options[at..end].fill(OPTION_NOTHING);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use std::vec::Vec;

    fn datagram(data: usize, options: &[u8]) -> Vec<u8> {
        let header = build::Header4 {
            dont_fragment: false,
            identification: 7,
            ..build::Header4::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
        };
        let payload: Vec<u8> = (0..data).map(|number| (number * 3) as u8).collect();
        let mut out = std::vec![0; data + 200];
        let length = build::udp4(&header, 1, 2, &payload, &mut out).unwrap();
        out.truncate(length);
        out.splice(34..34, options.iter().copied());
        out[14] += (options.len() / 4) as u8;
        let total = (out.len() - 14) as u16;
        out[16..18].copy_from_slice(&total.to_be_bytes());
        out[24..26].copy_from_slice(&[0, 0]);
        let checksum = Sum::ZERO.bytes(&out[14..34 + options.len()]).finish();
        out[24..26].copy_from_slice(&checksum);
        out
    }

    fn parts(frame: &mut [u8], longest: usize) -> Vec<Vec<u8>> {
        let packet = Packet::parse(frame).unwrap();
        let cut = Cut::of(&packet, longest).unwrap();
        let parts = (0..cut.count()).map(|part| {
            let mut out = std::vec![0; 2_000];
            let length = cut.write(packet.bytes(), part, &mut out).unwrap();
            out.truncate(length);
            assert_eq!(
                cut.write(packet.bytes(), part, &mut out[..length - 1]),
                None
            );
            out
        });
        let parts = parts.collect();
        assert_eq!(
            cut.write(packet.bytes(), cut.count(), &mut [0; 2_000]),
            None
        );
        parts
    }

    /// Puts parts together: the data in order, each part right and in its place, the last one alone without "more".
    fn joined(parts: &[Vec<u8>], longest: usize) -> Vec<u8> {
        let mut data = Vec::new();
        for (place, part) in parts.iter().enumerate() {
            let mut part = part.clone();
            let length = part.len();
            assert!(length - 14 <= longest);
            let packet = Packet::parse(&mut part).unwrap();
            assert_eq!(packet.fragment_offset(), Some(data.len() as u16));
            assert_eq!(packet.ipv4_identification(), Some(7));
            let more = packet.bytes()[20] & 0x20 != 0;
            assert_eq!(more, place + 1 < parts.len());
            let header = packet.ipv4_header_length().unwrap();
            data.extend_from_slice(&packet.bytes()[14 + header..]);
        }
        data
    }

    #[test]
    fn parts_are_the_datagram() {
        for data in [1, 8, 100, 1_400, 1_472, 4_000] {
            for longest in [28, 68, 576, 1_300, 1_500] {
                let mut frame = datagram(data, &[]);
                let wanted = frame[34..].to_vec();
                let parts = parts(&mut frame, longest);
                assert_eq!(joined(&parts, longest), wanted);
            }
        }
    }

    #[test]
    fn a_fragment_is_cut_again_in_its_place() {
        let mut frame = datagram(4_000, &[]);
        let wanted = frame[34..].to_vec();
        let mut all = Vec::new();
        for mut part in parts(&mut frame, 1_500) {
            all.extend(parts(&mut part, 600));
        }
        assert_eq!(joined(&all, 600), wanted);
    }

    #[test]
    fn later_parts_have_only_the_options_to_be_copied() {
        // Record route (not copied), then router alert (copied), then the end.
        let options = [7, 7, 4, 0, 0, 0, 0, 0x94, 4, 0, 0, 0];
        let mut frame = datagram(3_000, &options);
        let wanted = frame[46..].to_vec();
        let parts = parts(&mut frame, 1_500);
        assert_eq!(joined(&parts, 1_500), wanted);
        assert_eq!(parts[0][34..46], options);
        assert_eq!(parts[1][34..46], [1, 1, 1, 1, 1, 1, 1, 0x94, 4, 0, 0, 0]);
        // Options that are no list.
        for nonsense in [[7, 0, 0, 0], [7, 200, 0, 0], [0x94, 1, 7, 1]] {
            let mut frame = datagram(3_000, &nonsense);
            assert_eq!(super::tests::parts(&mut frame, 1_500).len(), 3);
        }
    }

    #[test]
    fn what_cannot_be_cut_is_not() {
        let mut frame = datagram(3_000, &[]);
        let packet = Packet::parse(&mut frame).unwrap();
        assert_eq!(Cut::of(&packet, 27), None, "no room for eight bytes");
        assert_eq!(Cut::of(&packet, 0), None);
        let header = build::Header4::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut out = [0; 200];
        let length = build::udp4(&header, 1, 2, b"must not be cut", &mut out).unwrap();
        let packet = Packet::parse(&mut out[..length]).unwrap();
        assert_eq!(Cut::of(&packet, 68), None, "don't fragment");
    }
}
