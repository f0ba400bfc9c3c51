//! ICMP errors: of routers and hosts on both sides, and the box's own.

use asterism_functions::nat::Side::{self, Inside, Outside};

use super::PLAIN;
use crate::live::Scenario;
use crate::live::hosts::{A, ACK, B, FAR, HOP, Hosts, OUTSIDE, Wish, X, ends, fragments, only};
use crate::recording::Frame;
use crate::wire;

pub(super) const ERRORS: Scenario = Scenario {
    name: "icmp-errors",
    about: "Unreachable, time exceeded, fragmentation needed and parameter problem, from outside and inside, about TCP, UDP and queries.",
    pre: "iifname \"g1\" udp dport 5353 dnat to 192.168.50.3:53",
    play: errors,
    ..PLAIN
};

/// Type, code, and the four bytes after the checksum.
const KINDS: &[((u8, u8), [u8; 4])] = &[
    ((3, 0), [0; 4]),
    ((3, 1), [0; 4]),
    ((3, 3), [0; 4]),
    ((3, 4), [0, 0, 0x05, 0x14]),
    ((3, 13), [0; 4]),
    ((11, 0), [0; 4]),
    ((11, 1), [0; 4]),
    ((12, 0), [20, 0, 0, 0]),
    // Not forwarded by either.
    ((4, 0), [0; 4]),
    ((5, 1), [198, 51, 100, 11]),
];

fn errors(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let mut talk = hosts.connect((A, 45_000), (X, 80))?;
    let segment = only(talk.out(hosts, ACK, &[0x41; 600])?)?;
    let datagram = only(hosts.udp(Inside, (A, 45_000), (X, 5_999), b"to a closed port")?)?;
    let far = only(hosts.udp(Inside, (B, 45_000), (FAR, 33_434), &[0x42; 900])?)?;
    let query = only(hosts.echo(Inside, (A, X), 8, 77, b"anybody there")?)?;
    // A second host with the same port and identifier: Linux chooses others.
    let other = only(hosts.udp(Inside, (B, 45_000), (X, 5_999), b"the same port")?)?;
    let other_query = only(hosts.echo(Inside, (B, X), 8, 77, b"the same identifier")?)?;
    let about = [&segment, &datagram, &far, &query, &other, &other_query];
    from_outside(hosts, &about)?;

    // From inside, about what came in: of a session, of a forward; by the host and by a router before it.
    let reply = only(talk.back(hosts, ACK, &[0x43; 600])?)?;
    let answer = only(hosts.udp(Outside, (X, 5_999), ends(&datagram)?.0, b"answer")?)?;
    let echoed = only(hosts.echo(Outside, (X, OUTSIDE), 0, ends(&query)?.0.1, b"here")?)?;
    let asked = only(hosts.udp(Outside, (X, 7_000), (OUTSIDE, 5_353), b"query")?)?;
    for (place, (kind, rest)) in KINDS.iter().enumerate() {
        for about in [&reply, &answer, &echoed, &asked] {
            let host = ends(about)?.1.0;
            let length = if place % 2 == 0 { 1_500 } else { 28 };
            hosts.error(Inside, host, *kind, *rest, about, length)?;
        }
    }
    damaged(hosts, &datagram)?;
    too_short_lived(hosts, Inside, (A, 45_000), (X, 5_999), ends(&datagram)?.0)
}

fn from_outside(hosts: &mut Hosts<'_>, about: &[&Frame]) -> Result<(), String> {
    for (place, (kind, rest)) in KINDS.iter().enumerate() {
        for about in about {
            // From a router on the way and from the host itself; whole, and cut to eight bytes.
            let from = if place % 2 == 0 { HOP } else { X };
            for length in [1_500, 28] {
                hosts.error(Outside, from, *kind, *rest, about, length)?;
            }
        }
    }
    Ok(())
}

/// What no NAT may believe.
fn damaged(hosts: &mut Hosts<'_>, about: &Frame) -> Result<(), String> {
    let kind = (3, 1);
    // Cut inside the IP header, inside the ports, to nothing.
    for length in [0, 12, 20, 22] {
        hosts.error(Outside, HOP, kind, [0; 4], about, length)?;
    }
    // A wrong checksum of the error, and of the IP header inside it.
    let end = wire::Ip::of(&about.bytes).map_or(0, |ip| ip.end);
    let quoted = about.bytes[wire::IP..end].to_vec();
    let mut frame = hosts.icmp_frame(
        Outside,
        (HOP, OUTSIDE),
        kind,
        [0; 4],
        &quoted,
        &Wish::default(),
    );
    frame[wire::IP + 22] ^= 0x40;
    hosts.raw(Outside, frame)?;
    let mut bent = quoted.clone();
    bent[10] ^= 0x40;
    let frame = hosts.icmp_frame(
        Outside,
        (HOP, OUTSIDE),
        kind,
        [0; 4],
        &bent,
        &Wish::default(),
    );
    hosts.raw(Outside, frame)?;
    // About a session that never was, and about a packet that somebody else sent.
    let mut strange = about.clone();
    wire::replace(&mut strange.bytes, wire::IP + 20, 9, wire::IP + 26, true);
    hosts.error(Outside, HOP, kind, [0; 4], &strange, 1_500)?;
    let frame = hosts.icmp_frame(Outside, (HOP, B), kind, [0; 4], &quoted, &Wish::default());
    hosts.raw(Outside, frame)?;
    Ok(())
}

/// The box's own errors about packets whose time ends at it.
fn too_short_lived(
    hosts: &mut Hosts<'_>,
    side: Side,
    from: wire::End,
    to: wire::End,
    outside: wire::End,
) -> Result<(), String> {
    for ttl in [1, 2] {
        for length in [0, 20, 1_000] {
            let wish = Wish {
                ttl,
                dont_fragment: length != 20,
                service: if length == 0 { 0xff } else { 0x10 },
            };
            let data = vec![0x44; length];
            let frame = hosts.udp_frame(side, from, to, &data, &wish);
            hosts.raw(side, frame)?;
            let frame = hosts.udp_frame(Outside, to, outside, &data, &wish);
            hosts.raw(Outside, frame)?;
            let frame = hosts.icmp_frame(side, (from.0, to.0), (8, 0), [0, 77, 0, 2], &data, &wish);
            hosts.raw(side, frame)?;
        }
    }
    // No error about an error: its own time ends here.
    let answer = only(hosts.udp(Outside, to, outside, b"answer")?)?;
    let end = wire::Ip::of(&answer.bytes).map_or(0, |ip| ip.end);
    let quoted = answer.bytes[wire::IP..end].to_vec();
    let wish = Wish {
        ttl: 1,
        ..Wish::default()
    };
    let frame = hosts.icmp_frame(Inside, (from.0, to.0), (3, 3), [0; 4], &quoted, &wish);
    hosts.raw(Inside, frame)?;
    Ok(())
}

pub(super) const NARROW_OUTSIDE: Scenario = Scenario {
    name: "narrow-outside",
    about: "The outside link takes 1,400 bytes: fragmentation needed, and fragmentation where it is allowed, outwards.",
    mtu: (1_500, 1_400),
    play: narrow_outside,
    ..PLAIN
};

fn narrow_outside(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let mut talk = hosts.connect((A, 45_000), (X, 80))?;
    for dont_fragment in [true, false] {
        for length in [1_360, 1_372, 1_373, 1_472] {
            let wish = Wish {
                dont_fragment,
                ..Wish::default()
            };
            let data: Vec<u8> = (0..length).map(|number| number as u8).collect();
            let frame = hosts.udp_frame(Inside, (A, 45_000), (X, 53), &data, &wish);
            hosts.raw(Inside, frame)?;
            let frame = hosts.icmp_frame(Inside, (A, X), (8, 0), [0, 9, 0, 1], &data, &wish);
            hosts.raw(Inside, frame)?;
        }
    }
    // A segment that is too long, then the same bytes in two.
    talk.out(hosts, ACK, &[0x45; 1_400])?;
    talk.ours -= 1_400;
    talk.out(hosts, ACK, &[0x45; 700])?;
    talk.out(hosts, ACK, &[0x45; 700])?;
    // Too long and at its end: time exceeded comes first.
    let wish = Wish {
        ttl: 1,
        ..Wish::default()
    };
    let frame = hosts.udp_frame(Inside, (A, 45_000), (X, 53), &[0; 1_472], &wish);
    hosts.raw(Inside, frame)?;
    // What comes in fragments leaves in smaller ones.
    let wish = Wish {
        dont_fragment: false,
        ..Wish::default()
    };
    let data: Vec<u8> = (0..4_000_u32).map(|number| (number / 3) as u8).collect();
    let frame = hosts.udp_frame(Inside, (A, 45_001), (X, 53), &data, &wish);
    hosts.raw_all(Inside, fragments(&frame, 1_480))?;
    Ok(())
}

pub(super) const NARROW_INSIDE: Scenario = Scenario {
    name: "narrow-inside",
    about: "The inside link takes 1,300 bytes: the same inwards, where the error must name the outside endpoint.",
    mtu: (1_300, 1_500),
    pre: "iifname \"g1\" udp dport 5353 dnat to 192.168.50.3:53",
    play: narrow_inside,
    ..PLAIN
};

fn narrow_inside(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let mut talk = hosts.connect((A, 45_000), (X, 80))?;
    let sent = only(hosts.udp(Inside, (A, 45_000), (X, 53), b"question")?)?;
    let same = only(hosts.udp(Inside, (B, 45_000), (X, 53), b"the same port")?)?;
    let query = only(hosts.echo(Inside, (A, X), 8, 77, b"anybody there")?)?;
    let [a, b] = ends(&query)?.0.1.to_be_bytes();
    for dont_fragment in [true, false] {
        for length in [1_272, 1_273, 1_472] {
            let wish = Wish {
                dont_fragment,
                ..Wish::default()
            };
            let data: Vec<u8> = (0..length).map(|number| number as u8).collect();
            for outside in [ends(&sent)?.0, ends(&same)?.0] {
                let frame = hosts.udp_frame(Outside, (X, 53), outside, &data, &wish);
                hosts.raw(Outside, frame)?;
            }
            let frame = hosts.udp_frame(Outside, (FAR, 7_000), (OUTSIDE, 5_353), &data, &wish);
            hosts.raw(Outside, frame)?;
            let frame = hosts.icmp_frame(Outside, (X, OUTSIDE), (0, 0), [a, b, 0, 1], &data, &wish);
            hosts.raw(Outside, frame)?;
        }
    }
    talk.back(hosts, ACK, &[0x45; 1_400])?;
    talk.theirs -= 1_400;
    talk.back(hosts, ACK, &[0x45; 700])?;
    Ok(())
}
