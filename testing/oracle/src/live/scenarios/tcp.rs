//! TCP: every way to open, close, break and reuse a connection, and damaged segments.

use asterism_functions::nat::Side::{Inside, Outside};

use super::PLAIN;
use crate::live::Scenario;
use crate::live::hosts::{
    A, ACK, B, FAR, FIN_ACK, Hosts, OUTSIDE, RST_ACK, SYN_ACK, Seg, Wish, X, Y, ends, only,
};
use crate::wire::{self, RST, SYN};

pub(super) const TCP: Scenario = Scenario {
    name: "tcp",
    about: "TCP: simultaneous open, half-close, resets, a SYN that reuses a closed session, connections older than the NAT.",
    pre: "iifname \"g1\" tcp dport 8080 dnat to 192.168.50.2:80",
    play: tcp,
    ..PLAIN
};

fn tcp(hosts: &mut Hosts<'_>) -> Result<(), String> {
    // Two hosts with one port to one remote; data both ways; closed from either side.
    for (host, remote) in [(A, (X, 80)), (B, (X, 80)), (A, (FAR, 443))] {
        let mut talk = hosts.connect((host, 45_000), remote)?;
        talk.out(hosts, ACK | 8, b"GET /")?;
        talk.back(hosts, ACK, &[0x2e; 1_400])?;
        talk.out(hosts, ACK, b"")?;
        if host == A {
            talk.close(hosts)?;
        } else {
            talk.back(hosts, FIN_ACK, b"")?;
            talk.out(hosts, FIN_ACK, b"")?;
            talk.back(hosts, ACK, b"")?;
        }
        // The last acknowledgement once more.
        talk.back(hosts, ACK, b"")?;
    }
    simultaneous_open(hosts)?;
    half_close(hosts)?;
    resets(hosts)?;
    reuse(hosts)?;
    older(hosts)?;
    // The forward.
    let (client, server) = ((X, 49_200), (A, 80));
    hosts.tcp(Outside, client, (OUTSIDE, 8_080), (SYN, 1_000, 0), b"")?;
    hosts.tcp(Inside, server, client, (SYN_ACK, 9_000, 1_001), b"")?;
    hosts.tcp(Outside, client, (OUTSIDE, 8_080), (ACK, 1_001, 9_001), b"")?;
    hosts.tcp(
        Outside,
        client,
        (OUTSIDE, 8_080),
        (ACK, 1_001, 9_001),
        b"GET /",
    )?;
    hosts.tcp(Inside, server, client, (ACK, 9_001, 1_006), b"page")?;
    hosts.tcp(Inside, server, client, (RST_ACK, 9_005, 1_006), b"")?;
    // Nobody is asked by these.
    for flags in [SYN, SYN_ACK, ACK, RST, FIN_ACK] {
        hosts.tcp(Outside, (Y, 50_000), (OUTSIDE, 45_000), (flags, 5, 5), b"")?;
        hosts.tcp(Outside, (Y, 50_000), (OUTSIDE, 9), (flags, 5, 5), b"")?;
    }
    Ok(())
}

/// RFC 9293 §3.5: both SYNs cross.
fn simultaneous_open(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let (inside, remote) = ((A, 46_000), (X, 46_000));
    let syn = only(hosts.tcp(Inside, inside, remote, (SYN, 1_000, 0), b"")?)?;
    let outside = ends(&syn)?.0;
    hosts.tcp(Outside, remote, outside, (SYN, 9_000, 0), b"")?;
    hosts.tcp(Inside, inside, remote, (SYN_ACK, 1_000, 9_001), b"")?;
    hosts.tcp(Outside, remote, outside, (SYN_ACK, 9_000, 1_001), b"")?;
    hosts.tcp(Inside, inside, remote, (ACK, 1_001, 9_001), b"")?;
    hosts.tcp(Outside, remote, outside, (ACK, 9_001, 1_001), b"hello")?;
    hosts.tcp(Inside, inside, remote, (ACK, 1_001, 9_006), b"hello")?;
    // The other's SYN comes first: it is nobody's, then the same one passes.
    let (inside, remote) = ((A, 46_001), (X, 46_001));
    hosts.tcp(Outside, remote, (OUTSIDE, 46_001), (SYN, 9_000, 0), b"")?;
    let syn = only(hosts.tcp(Inside, inside, remote, (SYN, 1_000, 0), b"")?)?;
    let outside = ends(&syn)?.0;
    hosts.tcp(Outside, remote, outside, (SYN, 9_000, 0), b"")?;
    hosts.tcp(Inside, inside, remote, (SYN_ACK, 1_000, 9_001), b"")?;
    hosts.tcp(Outside, remote, outside, (SYN_ACK, 9_000, 1_001), b"")?;
    Ok(())
}

fn half_close(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let mut talk = hosts.connect((A, 46_100), (X, 80))?;
    talk.out(hosts, FIN_ACK, b"")?;
    talk.back(hosts, ACK, b"")?;
    for _ in 0..3 {
        talk.back(hosts, ACK, b"more and more")?;
        talk.out(hosts, ACK, b"")?;
    }
    talk.back(hosts, FIN_ACK, b"")?;
    talk.out(hosts, ACK, b"")?;
    Ok(())
}

fn resets(hosts: &mut Hosts<'_>) -> Result<(), String> {
    // A SYN that is refused.
    let syn = only(hosts.tcp(Inside, (A, 46_200), (X, 81), (SYN, 1_000, 0), b"")?)?;
    let outside = ends(&syn)?.0;
    hosts.tcp(Outside, (X, 81), outside, (RST_ACK, 0, 1_001), b"")?;
    // Linux has forgotten it, a NAT must not yet: RFC 7857 §2.2.
    hosts.tcp(Outside, (X, 81), outside, (RST_ACK, 0, 1_001), b"")?;
    // The host tries again from the same port.
    let syn = only(hosts.tcp(Inside, (A, 46_200), (X, 81), (SYN, 5_000, 0), b"")?)?;
    hosts.tcp(Outside, (X, 81), ends(&syn)?.0, (RST_ACK, 0, 5_001), b"")?;
    // Reset by the host, then by the remote; what is still under way passes.
    let mut talk = hosts.connect((A, 46_201), (X, 80))?;
    talk.out(hosts, RST_ACK, b"")?;
    talk.back(hosts, ACK, b"under way")?;
    let mut talk = hosts.connect((A, 46_202), (X, 80))?;
    talk.back(hosts, RST, b"")?;
    talk.out(hosts, ACK, b"under way")?;
    // Resets of what never was.
    hosts.tcp(Inside, (A, 46_203), (X, 80), (RST, 1_000, 0), b"")?;
    hosts.tcp(Inside, (A, 46_203), (X, 80), (RST_ACK, 1_000, 1), b"")?;
    Ok(())
}

/// A new connection between the ends of an old one.
fn reuse(hosts: &mut Hosts<'_>) -> Result<(), String> {
    for (port, reset) in [(46_300, false), (46_301, true)] {
        let mut talk = hosts.connect((A, port), (X, 80))?;
        talk.out(hosts, ACK, b"first")?;
        talk.back(hosts, ACK, b"first")?;
        if reset {
            talk.out(hosts, RST_ACK, b"")?;
        } else {
            talk.close(hosts)?;
        }
        // The numbers of the new one are beyond the old one's.
        let (inside, remote, ours, theirs) = ((A, port), (X, 80), 500_000, 900_000);
        let syn = only(hosts.tcp(Inside, inside, remote, (SYN, ours, 0), b"")?)?;
        let outside = ends(&syn)?.0;
        hosts.tcp(Outside, remote, outside, (SYN_ACK, theirs, ours + 1), b"")?;
        hosts.tcp(Inside, inside, remote, (ACK, ours + 1, theirs + 1), b"")?;
        hosts.tcp(
            Inside,
            inside,
            remote,
            (ACK, ours + 1, theirs + 1),
            b"second",
        )?;
        hosts.tcp(
            Outside,
            remote,
            outside,
            (ACK, theirs + 1, ours + 7),
            b"second",
        )?;
    }
    // A SYN is repeated, then answered; the answer is repeated.
    let (inside, remote) = ((A, 46_302), (X, 80));
    let mut outside = (OUTSIDE, 0);
    for _ in 0..3 {
        let syn = only(hosts.tcp(Inside, inside, remote, (SYN, 1_000, 0), b"")?)?;
        outside = ends(&syn)?.0;
    }
    for _ in 0..2 {
        hosts.tcp(Outside, remote, outside, (SYN_ACK, 9_000, 1_001), b"")?;
    }
    hosts.tcp(Inside, inside, remote, (ACK, 1_001, 9_001), b"")?;
    Ok(())
}

/// Connections that were there before the NAT.
fn older(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let (inside, remote) = ((A, 46_400), (X, 80));
    hosts.tcp(
        Outside,
        remote,
        (OUTSIDE, 46_400),
        (ACK, 9_000, 1_000),
        b"to nobody",
    )?;
    let sent = only(hosts.tcp(Inside, inside, remote, (ACK, 1_000, 9_000), b"go on")?)?;
    hosts.tcp(Outside, remote, ends(&sent)?.0, (ACK, 9_000, 1_005), b"yes")?;
    hosts.tcp(Inside, inside, remote, (FIN_ACK, 1_005, 9_003), b"")?;
    Ok(())
}

pub(super) const DAMAGE: Scenario = Scenario {
    name: "damage",
    about: "Wrong transport checksums stay exactly as wrong. Linux is configured not to verify them either.",
    sysctls: &[("netfilter/nf_conntrack_checksum", "0")],
    play: damage,
    ..PLAIN
};

fn damage(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let mut talk = hosts.connect((A, 45_000), (X, 80))?;
    talk.out(hosts, ACK, b"right")?;
    for wrong in [0x0001, 0x8000, 0xffff_u16] {
        let seg = Seg {
            flags: ACK,
            sequence: talk.ours,
            acknowledgement: talk.theirs,
        };
        let mut frame = hosts.tcp_frame(
            Inside,
            talk.inside,
            talk.remote,
            seg,
            b"wrong",
            &Wish::default(),
        );
        flip(&mut frame, wire::IP + 36, wrong);
        hosts.raw(Inside, frame)?;
        let mut frame = hosts.udp_frame(Inside, (A, 45_000), (X, 53), b"wrong", &Wish::default());
        flip(&mut frame, wire::IP + 26, wrong);
        let sent = only(hosts.raw(Inside, frame)?)?;
        let mut frame =
            hosts.udp_frame(Outside, (X, 53), ends(&sent)?.0, b"wrong", &Wish::default());
        flip(&mut frame, wire::IP + 26, wrong);
        hosts.raw(Outside, frame)?;
        let mut frame = hosts.icmp_frame(
            Inside,
            (A, X),
            (8, 0),
            [0, 9, 0, 1],
            b"wrong",
            &Wish::default(),
        );
        flip(&mut frame, wire::IP + 22, wrong);
        hosts.raw(Inside, frame)?;
    }
    // A wrong header checksum: a router drops it (RFC 1812 §5.2.2).
    let mut frame = hosts.udp_frame(Inside, (A, 45_000), (X, 53), b"header", &Wish::default());
    flip(&mut frame, wire::IP + 10, 1);
    hosts.raw(Inside, frame)?;
    Ok(())
}

fn flip(frame: &mut [u8], at: usize, bits: u16) {
    if let Some(word) = wire::word(frame, at) {
        wire::put(frame, at, word ^ bits);
    }
}
