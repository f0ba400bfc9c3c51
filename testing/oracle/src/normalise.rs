//! What recordings have that no wire would carry, put right before the comparison.
//!
//! | found | what is done |
//! |---|---|
//! | anything but IPv4 (ARP, IPv6) | left out: the neighbours of a recording are configured, IPv6 is switched off |
//! | a TCP or UDP checksum that is the sum of the pseudo header alone, as kernels leave it to hardware | completed, in what arrived and in what Linux sent alike |
//! | a TCP segment longer than its link's MTU, as segmentation offload leaves it | cut into segments of the MTU, in both alike: sequence and identification count up, FIN and PSH on the last |
//! | bytes after the IP packet (Ethernet padding) | cut off |

use asterism_functions::nat::Side;

use crate::recording::Frame;
use crate::setup::Setup;
use crate::wire::{self, FIN, IP, Ip, TCP};

const PSH: u8 = 8;

/// What was changed or left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Normalised {
    /// Frames left out because they are not IPv4.
    pub not_ipv4: u64,
    /// Checksums completed.
    pub checksums: u64,
    /// Segments that were cut, each into several.
    pub segmented: u64,
}

pub(crate) fn normalise(
    frames: Vec<Frame>,
    setup: &Setup,
) -> Result<(Vec<Frame>, Normalised), String> {
    let mut counts = Normalised::default();
    let mut kept = Vec::with_capacity(frames.len());
    for mut frame in frames {
        if wire::word(&frame.bytes, 12) != Some(0x0800) {
            counts.not_ipv4 += 1;
            continue;
        }
        let ip = Ip::of(&frame.bytes)
            .ok_or_else(|| format!("the frame at {} us is not all there", frame.time_us))?;
        frame.bytes.truncate(IP + ip.length);
        let was_partial = complete(&mut frame.bytes, &ip);
        counts.checksums += u64::from(was_partial);
        let mtu = link_mtu(setup, frame.side);
        if ip.protocol == TCP && ip.length > mtu && !ip.is_fragment() {
            counts.segmented += 1;
            for bytes in segments(&frame.bytes, &ip, mtu) {
                kept.push(Frame {
                    bytes,
                    ..frame.clone()
                });
            }
        } else {
            kept.push(frame);
        }
    }
    Ok((kept, counts))
}

/// What hosts of a link send at most: the largest of both, since a recording may narrow the box's own links.
fn link_mtu(setup: &Setup, side: Side) -> usize {
    const ETHERNET: u16 = 1_500;
    setup.interface(side).mtu.max(ETHERNET).into()
}

/// Completes a checksum that is the pseudo header's sum alone.
fn complete(bytes: &mut [u8], ip: &Ip) -> bool {
    let Some(at) = ip.checksum_at() else {
        return false;
    };
    let partial = wire::fold(ip.pseudo_header());
    if ip.protocol == wire::ICMP
        || ip.checksum_is_right(bytes) != Some(false)
        || wire::word(bytes, at) != Some(partial)
    {
        return false;
    }
    fill(bytes, ip, at);
    true
}

fn fill(bytes: &mut [u8], ip: &Ip, at: usize) {
    wire::put(bytes, at, 0);
    let sum = !wire::fold(ip.pseudo_header() + wire::sum(&bytes[ip.body()]));
    let is_udp = ip.protocol == wire::UDP;
    wire::put(bytes, at, if is_udp && sum == 0 { 0xffff } else { sum });
}

fn segments(frame: &[u8], ip: &Ip, mtu: usize) -> Vec<Vec<u8>> {
    let header = usize::from(frame[ip.transport + 12] >> 4) * 4;
    let data_at = ip.transport + header;
    let room = mtu.saturating_sub(data_at - ip.at).max(1);
    let data = frame.get(data_at..ip.end).unwrap_or(&[]);
    let last = data.len().div_ceil(room).saturating_sub(1);
    let sequence = [0, 1, 2, 3].map(|byte| frame[ip.transport + 4 + byte]);
    let sequence = u32::from_be_bytes(sequence);
    let mut segments = Vec::new();
    for (place, part) in data.chunks(room).enumerate() {
        let mut bytes = frame[..data_at].to_vec();
        bytes.extend_from_slice(part);
        let length = (bytes.len() - ip.at) as u16;
        let own = ip.identification.wrapping_add(place as u16);
        let next = sequence.wrapping_add((place * room) as u32);
        wire::put(&mut bytes, ip.at + 2, length);
        wire::put(&mut bytes, ip.at + 4, own);
        bytes[ip.transport + 4..ip.transport + 8].copy_from_slice(&next.to_be_bytes());
        if place != last {
            bytes[ip.transport + 13] &= !(FIN | PSH);
        }
        wire::put(&mut bytes, ip.at + 10, 0);
        let sum = !wire::fold(wire::sum(&bytes[ip.at..ip.transport]));
        wire::put(&mut bytes, ip.at + 10, sum);
        if let Some(segment) = Ip::of(&bytes) {
            fill(&mut bytes, &segment, ip.transport + 16);
        }
        segments.push(bytes);
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{TcpFlags, build};

    fn setup() -> Setup {
        let text = "
            inside = 192.168.50.1/24 02:00:00:00:00:01 mtu 1400
            outside = 198.51.100.1/24 02:00:00:00:00:02 mtu 1500
        ";
        Setup::read(text, "").unwrap()
    }

    fn segment(payload: &[u8]) -> Vec<u8> {
        let header = build::Header4::between([192, 168, 50, 2].into(), [198, 51, 100, 10].into());
        let fin = TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0 | PSH);
        let mut out = vec![0; 65_600];
        let fields = build::Segment::with_flags(fin);
        let length = build::tcp4(&header, 1, 2, &fields, payload, &mut out).unwrap();
        out.truncate(length);
        out
    }

    fn of(bytes: Vec<u8>) -> Frame {
        Frame {
            time_us: 0,
            side: Side::Inside,
            bytes,
        }
    }

    #[test]
    fn a_checksum_left_to_hardware_is_completed() {
        let whole = segment(b"payload");
        let mut partial = whole.clone();
        let ip = Ip::of(&partial).unwrap();
        let sum = wire::fold(ip.pseudo_header());
        wire::put(&mut partial, ip.transport + 16, sum);
        let (frames, counts) = normalise(vec![of(partial)], &setup()).unwrap();
        assert_eq!((counts.checksums, &frames[0].bytes), (1, &whole));
        // One that is merely wrong stays so.
        let mut wrong = whole;
        wrong[ip.transport + 16] ^= 0x55;
        let (frames, counts) = normalise(vec![of(wrong.clone())], &setup()).unwrap();
        assert_eq!((counts.checksums, &frames[0].bytes), (0, &wrong));
    }

    #[test]
    fn a_super_packet_is_cut_as_hardware_would() {
        let payload: Vec<u8> = (0..4_000_u32).map(|number| number as u8).collect();
        let (frames, counts) = normalise(vec![of(segment(&payload))], &setup()).unwrap();
        assert_eq!((counts.segmented, frames.len()), (1, 3));
        let mut data = Vec::new();
        for (place, frame) in frames.iter().enumerate() {
            let ip = Ip::of(&frame.bytes).unwrap();
            assert!(ip.length <= 1_500);
            assert_eq!(ip.checksum_is_right(&frame.bytes), Some(true));
            assert_eq!(
                wire::fold(wire::sum(&frame.bytes[IP..ip.transport])),
                0xffff
            );
            assert_eq!(ip.identification, place as u16);
            let fin = ip.tcp_flags(&frame.bytes).unwrap() & FIN != 0;
            assert_eq!(fin, place == 2, "FIN on the last alone");
            data.extend_from_slice(&frame.bytes[ip.transport + 20..]);
        }
        assert_eq!(data, payload);
    }

    #[test]
    fn padding_is_cut_off_and_what_is_not_ipv4_left_out() {
        let whole = segment(b"");
        let mut padded = whole.clone();
        padded.resize(60, 0);
        let mut arp = vec![0; 42];
        arp[12..14].copy_from_slice(&[8, 6]);
        let (frames, counts) = normalise(vec![of(arp), of(padded)], &setup()).unwrap();
        assert_eq!((counts.not_ipv4, frames.len()), (1, 1));
        assert_eq!(frames[0].bytes, whole);
        let mut cut = whole;
        cut.truncate(50);
        assert!(normalise(vec![of(cut)], &setup()).is_err());
    }
}
