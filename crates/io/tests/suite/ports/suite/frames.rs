//! Frames for the suite, whole and with work left to do, and what must hold of them afterwards.

use asterism_io::frame::{Frame, FramePool};
use asterism_io::port::{Offload, Segmentation};
use asterism_packet::{Flow4, Packet, build, checksum::Sum};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Payload of a full TCP segment in these tests.
pub(crate) const SEGMENT_BYTES: usize = 1_400;

/// A UDP datagram of `bytes` bytes in all (at least 46), its payload marked with `number`.
pub(crate) fn numbered(number: u32, bytes: usize) -> Vec<u8> {
    let flow = Flow4 {
        source: Ipv4Addr::new(10, 77, 0, 1),
        destination: Ipv4Addr::new(10, 77, 0, 2),
        source_port: 1_000 + (number % 50_000) as u16,
        destination_port: 9,
        protocol: 17,
    };
    let mut payload = vec![number as u8; bytes - 42];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    let mut frame = vec![0; bytes];
    build::flow4(&flow, &payload, &mut frame).expect("it fits");
    addressed(&mut frame);
    frame
}

/// A frame of an Ethernet type that nobody handles.
pub(crate) fn experimental(bytes: usize) -> Vec<u8> {
    let mut frame = vec![bytes as u8; bytes.max(14)];
    addressed(&mut frame);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame.truncate(bytes);
    frame
}

fn addressed(frame: &mut [u8]) {
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
}

/// What is sent long.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Long {
    Tcp4,
    Tcp6,
    Udp4,
}

/// A packet with `payload` bytes of payload, in a frame that notes that its checksum is missing and, beyond a segment, that it
/// is to be cut. The checksum's field holds what a function may have made of it: nonsense.
pub(crate) fn unfinished(pool: &mut FramePool, long: Long, payload: usize, tagged: bool) -> Frame {
    let mut packet = vec![0; 12];
    addressed(&mut packet);
    if tagged {
        packet.extend([0x81, 0x00, 0x00, 0x07]);
    }
    let transport_bytes = if matches!(long, Long::Udp4) { 8 } else { 32 };
    let total = transport_bytes + payload;
    if matches!(long, Long::Tcp6) {
        packet.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        packet.extend((total as u16).to_be_bytes());
        packet.extend([6, 64]);
        packet.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets());
        packet.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets());
    } else {
        packet.extend([0x08, 0x00]);
        let at = packet.len();
        packet.extend([0x45, 0]);
        packet.extend(((20 + total) as u16).to_be_bytes());
        let protocol = if matches!(long, Long::Udp4) { 17 } else { 6 };
        packet.extend([0xab, 0xcd, 0x40, 0, 64, protocol, 0, 0]);
        packet.extend([10, 77, 0, 1, 10, 77, 0, 2]);
        let sum = Sum::ZERO.bytes(&packet[at..]).finish();
        packet[at + 10..at + 12].copy_from_slice(&sum);
    }
    let start = packet.len();
    let (offset, tcp) = match long {
        Long::Udp4 => {
            packet.extend([0x0b, 0xb8, 0, 9]);
            packet.extend((total as u16).to_be_bytes());
            packet.extend([0xde, 0xad]);
            (6, false)
        }
        _ => {
            packet.extend([0x0b, 0xb8, 0, 9]);
            packet.extend(0xffff_f000u32.to_be_bytes());
            packet.extend([0, 0, 0, 1, 0x80, 0x19, 0xff, 0xff, 0xde, 0xad, 0, 0]);
            packet.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
            (16, true)
        }
    };
    packet.extend((0..payload).map(|at| (at / 7) as u8));
    let mut frame = pool.allocate_copy(&packet).expect("a buffer");
    let offload = Offload {
        checksum_start: start as u16,
        checksum_offset: offset,
        segmentation: (payload > SEGMENT_BYTES).then_some(Segmentation {
            tcp,
            congestion: false,
            segment_bytes: SEGMENT_BYTES as u16,
        }),
    };
    offload.note(pool, &mut frame);
    frame
}

/// Checks packets that came of [`unfinished`]: their checksums (`partial`: or just the pseudo header's sum), their sequence
/// numbers, and their payload taken together.
pub(crate) fn check_finished(
    packets: &[Vec<u8>],
    payload: usize,
    partial: bool,
) -> Result<(), String> {
    let mut together = Vec::new();
    for (number, packet) in packets.iter().enumerate() {
        let mut copy = packet.clone();
        let parsed = Packet::parse(&mut copy).map_err(|why| {
            format!(
                "packet {number} of {} bytes is malformed: {why:?}",
                packet.len()
            )
        })?;
        let valid = parsed.verify_transport_checksum() == Some(true);
        let promised = partial && has_pseudo_sum(packet);
        if !valid && !promised {
            return Err(format!("packet {number} has a wrong checksum"));
        }
        if parsed.verify_ipv4_checksum() == Some(false) {
            return Err(format!("packet {number} has a wrong IPv4 checksum"));
        }
        if let Some(sequence) = parsed.tcp_sequence() {
            let wanted = 0xffff_f000u32.wrapping_add(together.len() as u32);
            if sequence != wanted {
                return Err(format!(
                    "packet {number} begins at {sequence:#x}, not {wanted:#x}"
                ));
            }
            let last = number + 1 == packets.len();
            let flags = parsed.tcp_flags().map_or(0, |flags| flags.0);
            if (flags & 0x09 != 0) != last {
                return Err(format!("packet {number} has flags {flags:#x}"));
            }
        }
        together.extend_from_slice(parsed.payload());
    }
    let right = together.len() == payload
        && together
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == (at / 7) as u8);
    if !right {
        return Err(format!(
            "{} bytes of payload came of {payload}, or they are not the same",
            together.len()
        ));
    }
    Ok(())
}

/// Whether the checksum's field holds the sum of the pseudo header: what a device completes.
pub(crate) fn has_pseudo_sum(packet: &[u8]) -> bool {
    let mut copy = packet.to_vec();
    let Ok(parsed) = Packet::parse(&mut copy) else {
        return false;
    };
    let layout = *parsed.layout();
    let (at, length) = (
        layout.transport_offset(),
        layout.end() - layout.transport_offset(),
    );
    let protocol = layout.protocol();
    let sum = match (parsed.ipv4_source(), parsed.ipv6_source()) {
        (Some(source), _) => Sum::pseudo_header4(
            source,
            parsed.ipv4_destination().unwrap_or(source),
            protocol,
            length as u16,
        ),
        (_, Some(source)) => Sum::pseudo_header6(
            source,
            parsed.ipv6_destination().unwrap_or(source),
            protocol,
            length as u32,
        ),
        _ => return false,
    };
    let [high, low] = sum.finish();
    let field = at + if protocol == 6 { 16 } else { 6 };
    packet.get(field..field + 2) == Some(&[!high, !low])
}
