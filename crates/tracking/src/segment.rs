//! TCP segments, as far as a track reads them.

use asterism_function::{Packet, TcpFlags};

/// The largest window scale (RFC 7323 §2.3).
pub(crate) const SCALE_MAX: u8 = 14;

/// A TCP segment, as far as a track reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) flags: TcpFlags,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) window: u16,
    /// Of the data, in bytes; of a first fragment that of its own part.
    pub(crate) length: u32,
    pub(crate) scale: Option<u8>,
}

/// What a segment is, by the control bits that matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Syn,
    SynAck,
    Rst,
    FinAck,
    Ack,
    /// Bits that no TCP sends together.
    Invalid,
}

impl Segment {
    /// The segment of a packet; `None` if it is not TCP.
    #[inline(always)]
    pub(crate) fn of(packet: &Packet<'_>) -> Option<Self> {
        let flags = packet.tcp_flags()?;
        let options = packet.tcp_options()?;
        let layout = packet.layout();
        let data_at = layout.transport_offset() + 20 + options.len();
        Some(Self {
            flags,
            sequence: packet.tcp_sequence()?,
            acknowledgement: packet.tcp_acknowledgement()?,
            window: packet.tcp_window()?,
            length: layout.end().saturating_sub(data_at) as u32,
            scale: if flags.contains(TcpFlags::SYN) {
                window_scale(options)
            } else {
                None
            },
        })
    }

    #[inline(always)]
    pub(crate) fn class(&self) -> Class {
        const SYN: u8 = TcpFlags::SYN.0;
        const ACK: u8 = TcpFlags::ACK.0;
        const RST: u8 = TcpFlags::RST.0;
        const FIN: u8 = TcpFlags::FIN.0;
        const RST_ACK: u8 = RST | ACK;
        const SYN_ACK: u8 = SYN | ACK;
        const FIN_ACK: u8 = FIN | ACK;
        let urgent = self.flags.contains(TcpFlags::URG);
        match self.flags.0 & (SYN | ACK | RST | FIN) {
            ACK => Class::Ack,
            SYN => Class::Syn,
            SYN_ACK if !urgent => Class::SynAck,
            RST | RST_ACK if !urgent => Class::Rst,
            FIN_ACK => Class::FinAck,
            _ => Class::Invalid,
        }
    }

    /// Sequence numbers that it takes.
    #[inline]
    pub(crate) const fn size(&self) -> u32 {
        self.length
            .wrapping_add(self.flags.contains(TcpFlags::SYN) as u32)
            .wrapping_add(self.flags.contains(TcpFlags::FIN) as u32)
    }
}

/// The window scale option (RFC 7323 §2.2).
#[inline]
fn window_scale(mut options: &[u8]) -> Option<u8> {
    while let Some((&kind, rest)) = options.split_first() {
        options = match kind {
            0 => return None,
            1 => rest,
            _ => {
                let length = usize::from(*rest.first()?);
                if kind == 3 && length == 3 {
                    return rest.get(1).map(|scale| (*scale).min(SCALE_MAX));
                }
                rest.get(length.checked_sub(1)?..)?
            }
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_scales_are_found_among_options_and_damage_is_none() {
        assert_eq!(window_scale(&[2, 4, 5, 0xb4, 1, 3, 3, 7]), Some(7));
        assert_eq!(window_scale(&[3, 3, 200]), Some(SCALE_MAX));
        for damaged in [
            &[0, 3, 3, 7][..],
            &[3, 3],
            &[5, 0, 3, 3, 7],
            &[5, 1],
            &[8],
            &[3, 2, 7],
        ] {
            assert_eq!(window_scale(damaged), None, "{damaged:?}");
        }
    }
}
