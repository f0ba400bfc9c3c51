//! Conversations that go wrong in every way, drawn from a seed: so that agreement can be shown where no captures are.

use asterism_function::TcpFlags;
use asterism_function::build::{self, Header4, Segment};

use super::packets::framed;
use super::{Direction, Step};

/// Packets of one script.
const PACKETS: usize = 250;
/// Conversations in one script.
const TALKS: u64 = 16;
/// The first numbers of both ends.
const FIRST: [u32; 2] = [1_000, 900_000];

/// A few connections from inside and from outside, some of which the rules refuse, in turns; with strays, datagrams, echoes and
/// errors between them.
#[must_use]
pub fn script(seed: u64) -> Vec<Step> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut steps: Vec<Step> = Vec::new();
    // What each end of each conversation sends next.
    let mut sent = [FIRST; TALKS as usize];
    let mut progress = [0; TALKS as usize];
    while steps.len() < PACKETS {
        let talk = next(TALKS) as usize;
        let mut way = if next(2) == 0 {
            Direction::Out
        } else {
            Direction::In
        };
        let mut from = usize::from(way == Direction::In);
        let server_port = [22u16, 80, 9_999, 53][talk % 4];
        let ends = [
            ([10, 0, 0, 1 + talk as u8 % 3], 40_000 + talk as u16),
            ([198, 51, 100, 1], server_port),
        ];
        let (source, target) = (ends[from], ends[1 - from]);
        let header = Header4::between(source.0.into(), target.0.into());
        let mut bytes = [0; 1_600];
        let length = match next(20) {
            0 => build::udp4(&header, source.1, target.1, b"words", &mut bytes),
            1 => {
                let kind = if next(2) == 0 { 8 } else { 0 };
                build::icmp4(&header, kind, 0, [0, talk as u8, 0, 1], b"", &mut bytes)
            }
            2 if !steps.is_empty() => {
                let about = steps[next(steps.len() as u64) as usize].frame.clone();
                build::icmp_unreachable(&about, target.0.into(), 1, &mut bytes)
            }
            3 => {
                // Control bits that no TCP sends together, or an acknowledgement that is far off.
                let segment = Segment {
                    sequence: sent[talk][from],
                    acknowledgement: sent[talk][1 - from].wrapping_add(5_000_000),
                    ..Segment::with_flags(TcpFlags([0x10, 0x00, 0x29, 0x03][next(4) as usize]))
                };
                build::tcp4(&header, source.1, target.1, &segment, b"", &mut bytes)
            }
            _ => {
                let place = progress[talk];
                progress[talk] += 1;
                let Some((turn, flags, data)) = turn(place, talk) else {
                    continue;
                };
                way = turn;
                from = usize::from(way == Direction::In);
                let (source, target) = (ends[from], ends[1 - from]);
                let header = Header4::between(source.0.into(), target.0.into());
                let segment = Segment {
                    sequence: sent[talk][from],
                    acknowledgement: if flags.contains(TcpFlags::ACK) {
                        sent[talk][1 - from]
                    } else {
                        0
                    },
                    ..Segment::with_flags(flags)
                };
                let begins = TcpFlags::SYN | TcpFlags::FIN;
                sent[talk][from] += data as u32 + u32::from(flags.intersects(begins));
                let payload = &[7; 300][..data];
                build::tcp4(&header, source.1, target.1, &segment, payload, &mut bytes)
            }
        };
        if let Some(length) = length {
            steps.push(framed(way, 4, &bytes[14..length]));
        }
    }
    steps
}

/// The segment at a place of a connection: who sends it, control bits, and bytes of data. Every third connection is begun from
/// outside, every fourth is reset and not finished.
fn turn(place: usize, talk: usize) -> Option<(Direction, TcpFlags, usize)> {
    let (client, server) = if talk % 3 == 2 {
        (Direction::In, Direction::Out)
    } else {
        (Direction::Out, Direction::In)
    };
    let finish = TcpFlags::FIN | TcpFlags::ACK;
    Some(match place {
        0 => (client, TcpFlags::SYN, 0),
        1 => (server, TcpFlags::SYN | TcpFlags::ACK, 0),
        2 => (client, TcpFlags::ACK, 0),
        3..=20 if place.is_multiple_of(3) => (client, TcpFlags::ACK, 200),
        3..=20 => (server, TcpFlags::ACK, 300),
        21 if talk % 4 == 3 => (client, TcpFlags::RST | TcpFlags::ACK, 0),
        21 => (client, finish, 0),
        22 if talk % 4 != 3 => (server, finish, 0),
        23 if talk % 4 != 3 => (client, TcpFlags::ACK, 0),
        _ => return None,
    })
}

/// A connection whose server loses it without a word, then another one between the same ends and ports, and so on; each with
/// data both ways, begun from inside or from outside.
#[must_use]
pub fn lost_servers() -> Vec<Step> {
    const DATA: u32 = 200;
    let ends = [[10, 0, 0, 1], [198, 51, 100, 1]];
    let mut steps = Vec::new();
    for client in [0, 1] {
        for incarnation in 1..5u32 {
            let mut sent = [
                incarnation.wrapping_mul(1 << 30),
                incarnation.wrapping_mul(3 << 28),
            ];
            let acknowledges = TcpFlags::ACK;
            let server = 1 - client;
            for (from, flags, data) in [
                (client, TcpFlags::SYN, 0),
                (server, TcpFlags::SYN | acknowledges, 0),
                (client, acknowledges, 0),
                (client, acknowledges, DATA),
                (server, acknowledges, DATA),
                (client, acknowledges, DATA),
                (server, acknowledges, DATA),
            ] {
                let acknowledgement = sent[1 - from];
                let segment = Segment {
                    sequence: sent[from],
                    acknowledgement: if flags.contains(acknowledges) {
                        acknowledgement
                    } else {
                        0
                    },
                    window: 8_000,
                    ..Segment::with_flags(flags)
                };
                sent[from] = sent[from]
                    .wrapping_add(data)
                    .wrapping_add(flags.contains(TcpFlags::SYN).into());
                let port = |end: usize| if end == client { 40_000 } else { 80 };
                let header = Header4::between(ends[from].into(), ends[1 - from].into());
                let mut bytes = [0; 1_600];
                let payload = &[7; DATA as usize][..data as usize];
                let ports = (port(from), port(1 - from));
                let length = build::tcp4(&header, ports.0, ports.1, &segment, payload, &mut bytes);
                let way = [Direction::Out, Direction::In][from];
                steps.extend(length.map(|length| framed(way, 4, &bytes[14..length])));
            }
        }
    }
    steps
}
