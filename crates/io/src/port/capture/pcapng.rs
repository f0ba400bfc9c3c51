//! The blocks of pcapng: sections, interfaces and the three kinds that hold packets. Others are skipped.

use super::reader::{CaptureReader, Format, Outcome, check_link_type, packet};
use super::{CaptureProblem, CapturedPacket, INTERFACES_MAX};

/// What an interface description says that matters for packets.
#[derive(Clone, Copy)]
pub(super) struct Interface {
    link_type: u16,
    snap_length: u32,
    /// `if_tsresol`: units per second, a power of ten, or of two with the top bit set.
    resolution: u8,
    offset_seconds: i64,
}

pub(super) const BLOCK_SECTION: u32 = 0x0A0D_0D0A;
const BLOCK_INTERFACE: u32 = 1;
const BLOCK_PACKET_OBSOLETE: u32 = 2;
const BLOCK_SIMPLE_PACKET: u32 = 3;
const BLOCK_ENHANCED_PACKET: u32 = 6;

impl CaptureReader {
    pub(super) fn next_pcapng(&mut self, into: &mut Vec<u8>) -> Outcome<Option<CapturedPacket>> {
        loop {
            if self.at_end()? {
                return Ok(None);
            }
            let kind = self.word()?;
            if kind == BLOCK_SECTION {
                self.read_section_header()?;
                continue;
            }
            let length = self.word()?;
            if length < 12 || !length.is_multiple_of(4) {
                return Err(CaptureProblem::Malformed(
                    "a block's length is not a multiple of 4, or less than 12",
                ));
            }
            // What the block holds between its two lengths, less what was read of it.
            let mut left = length - 12;
            let mut found = None;
            match kind {
                BLOCK_INTERFACE => self.read_interface(&mut left)?,
                BLOCK_ENHANCED_PACKET | BLOCK_PACKET_OBSOLETE => {
                    found =
                        Some(self.read_packet(kind == BLOCK_PACKET_OBSOLETE, &mut left, into)?);
                }
                BLOCK_SIMPLE_PACKET => found = Some(self.read_simple_packet(&mut left, into)?),
                _ => {}
            }
            self.end_block(left, length)?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// After a section header's type: byte order, version, then the interfaces begin again.
    pub(super) fn read_section_header(&mut self) -> Outcome<()> {
        let length: [u8; 4] = self.array()?;
        let order: [u8; 4] = self.array()?;
        self.big_endian = match u32::from_le_bytes(order) {
            0x1A2B_3C4D => false,
            0x4D3C_2B1A => true,
            _ => {
                return Err(CaptureProblem::Malformed(
                    "a section header without its byte-order mark",
                ));
            }
        };
        let length = self.ordered(length);
        if length < 28 || !length.is_multiple_of(4) {
            return Err(CaptureProblem::Malformed(
                "a section header's length is not a multiple of 4, or less than 28",
            ));
        }
        let version: [u8; 2] = self.array()?;
        let major = if self.big_endian {
            u16::from_be_bytes(version)
        } else {
            u16::from_le_bytes(version)
        };
        if major != 1 {
            return Err(CaptureProblem::Malformed(
                "a section of a pcapng version other than 1",
            ));
        }
        self.format = Format::Pcapng {
            interfaces: Vec::new(),
        };
        self.end_block(length - 18, length)
    }

    fn read_interface(&mut self, left: &mut u32) -> Outcome<()> {
        let short =
            CaptureProblem::Malformed("an interface description that is too short for its fields");
        take(left, 8, &short)?;
        let link_type: [u8; 2] = self.array()?;
        let link_type = if self.big_endian {
            u16::from_be_bytes(link_type)
        } else {
            u16::from_le_bytes(link_type)
        };
        self.skip(2)?;
        let mut interface = Interface {
            link_type,
            snap_length: self.word()?,
            resolution: 6,
            offset_seconds: 0,
        };
        while *left >= 4 {
            take(left, 4, &short)?;
            let head: [u8; 4] = self.array()?;
            let half = |at: usize| {
                let half = [head[at], head[at + 1]];
                if self.big_endian {
                    u16::from_be_bytes(half)
                } else {
                    u16::from_le_bytes(half)
                }
            };
            let (code, value_bytes) = (half(0), u32::from(half(2)));
            let padded = value_bytes.next_multiple_of(4);
            take(left, padded, &short)?;
            match (code, value_bytes) {
                (0, _) => {
                    self.skip(u64::from(padded))?;
                    break;
                }
                (9, 1) => interface.resolution = self.array::<4>()?[0],
                (14, 8) => {
                    let value: [u8; 8] = self.array()?;
                    interface.offset_seconds = if self.big_endian {
                        i64::from_be_bytes(value)
                    } else {
                        i64::from_le_bytes(value)
                    };
                }
                _ => self.skip(u64::from(padded))?,
            }
        }
        match &mut self.format {
            Format::Pcapng { interfaces } if interfaces.len() < INTERFACES_MAX => {
                interfaces.push(interface);
                Ok(())
            }
            _ => Err(CaptureProblem::Malformed(
                "a section with more than 4096 interfaces",
            )),
        }
    }

    fn read_packet(
        &mut self,
        obsolete: bool,
        left: &mut u32,
        into: &mut Vec<u8>,
    ) -> Outcome<CapturedPacket> {
        let short =
            CaptureProblem::Malformed("a packet block that is too short for the packet it claims");
        take(left, 20, &short)?;
        let number: [u8; 4] = self.array()?;
        let number = match (obsolete, self.big_endian) {
            (false, _) => self.ordered(number),
            // The obsolete block has 16 bits of interface, then 16 of a drop count.
            (true, true) => u32::from(u16::from_be_bytes([number[0], number[1]])),
            (true, false) => u32::from(u16::from_le_bytes([number[0], number[1]])),
        };
        let units = u64::from(self.word()?) << 32 | u64::from(self.word()?);
        let captured = self.word()?;
        let original = self.word()?;
        let interface = self.interface(number)?;
        take(
            left,
            captured.checked_next_multiple_of(4).unwrap_or(u32::MAX),
            &short,
        )?;
        self.bytes(captured, into)?;
        self.skip(u64::from(captured.next_multiple_of(4) - captured))?;
        Ok(packet(
            interface.nanoseconds(units),
            captured,
            original,
            number,
        ))
    }

    fn read_simple_packet(
        &mut self,
        left: &mut u32,
        into: &mut Vec<u8>,
    ) -> Outcome<CapturedPacket> {
        let short = CaptureProblem::Malformed(
            "a simple packet block that is too short for the packet it claims",
        );
        take(left, 4, &short)?;
        let original = self.word()?;
        let interface = self.interface(0)?;
        let snap_length = if interface.snap_length == 0 {
            u32::MAX
        } else {
            interface.snap_length
        };
        // The block itself says no captured length: the wire's, the snap length or the block's end, whichever is first.
        let captured = original.min(snap_length).min(*left);
        // `left` is a multiple of 4, so the padding fits too.
        take(left, captured.next_multiple_of(4), &short)?;
        self.bytes(captured, into)?;
        self.skip(u64::from(captured.next_multiple_of(4) - captured))?;
        Ok(packet(self.last_timestamp_ns, captured, original, 0))
    }

    fn interface(&self, number: u32) -> Outcome<Interface> {
        let found = match &self.format {
            Format::Pcapng { interfaces } => interfaces.get(number as usize),
            Format::Pcap { .. } => None,
        };
        let interface = *found.ok_or(CaptureProblem::Malformed(
            "a packet of an interface that was not described",
        ))?;
        check_link_type(interface.link_type)?;
        Ok(interface)
    }

    /// Skips the rest of a block and checks that its second length repeats the first.
    fn end_block(&mut self, left: u32, length: u32) -> Outcome<()> {
        self.skip(u64::from(left))?;
        if self.word()? == length {
            Ok(())
        } else {
            Err(CaptureProblem::Malformed("a block's two lengths differ"))
        }
    }
}

impl Interface {
    /// Nanoseconds since 1970 of a timestamp in this interface's units, clamped to what 64 bits hold.
    fn nanoseconds(&self, units: u64) -> u64 {
        let units = i128::from(units);
        let exponent = u32::from(self.resolution & 0x7F);
        let nanoseconds = if self.resolution & 0x80 != 0 {
            (units * 1_000_000_000).checked_shr(exponent).unwrap_or(0)
        } else if exponent <= 9 {
            units * 10i128.pow(9 - exponent)
        } else {
            10i128
                .checked_pow(exponent - 9)
                .map_or(0, |divisor| units / divisor)
        };
        let shifted = nanoseconds + i128::from(self.offset_seconds) * 1_000_000_000;
        shifted.clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// Takes `bytes` from what is left of a block.
fn take(left: &mut u32, bytes: u32, otherwise: &CaptureProblem) -> Outcome<()> {
    match left.checked_sub(bytes) {
        Some(rest) => {
            *left = rest;
            Ok(())
        }
        None => Err(otherwise.clone()),
    }
}
