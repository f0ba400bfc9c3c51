//! Sessions of UDP and ICMP, forwards, and hairpins.

use asterism_functions::nat::Side::{Inside, Outside};

use super::PLAIN;
use crate::live::Scenario;
use crate::live::hosts::{
    A, ACK, B, FAR, FIN_ACK, Hosts, INSIDE, OUTSIDE, SYN_ACK, Wish, X, Y, ends, only,
};
use crate::wire::{self, SYN};

pub(super) const SESSIONS: Scenario = Scenario {
    name: "sessions",
    about: "UDP: one port to several remotes, two hosts with one port, replies, unsolicited packets, a forward, no checksum.",
    pre: "iifname \"g1\" udp dport 5353 dnat to 192.168.50.3:53",
    play: sessions,
    ..PLAIN
};

fn sessions(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let mut outsides = Vec::new();
    for (from, remote) in [
        ((A, 40_000), (X, 5_000)),
        ((A, 40_000), (X, 5_001)),
        ((A, 40_000), (Y, 5_000)),
        ((A, 40_000), (FAR, 53)),
        ((B, 40_000), (X, 5_000)),
        ((B, 40_000), (FAR, 53)),
        ((B, 1_000), (X, 5_000)),
        ((A, 65_535), (X, 5_000)),
    ] {
        let sent = only(hosts.udp(Inside, from, remote, b"question")?)?;
        let outside = ends(&sent)?.0;
        hosts.udp(Outside, remote, outside, b"answer")?;
        hosts.udp(Inside, from, remote, b"thanks")?;
        outsides.push((remote, outside));
    }
    // Every reply finds its host, in any order.
    for (remote, outside) in outsides.iter().rev() {
        hosts.udp(Outside, *remote, *outside, b"late answer")?;
    }
    // Strangers: another port, another address, a port that nobody has.
    let (_, outside) = outsides[0];
    hosts.udp(Outside, (X, 6_000), outside, b"stranger")?;
    hosts.udp(Outside, (FAR, 5_000), outside, b"stranger")?;
    hosts.udp(Outside, (X, 5_000), (OUTSIDE, 9), b"stranger")?;
    hosts.udp(Outside, (X, 5_000), (INSIDE, 9), b"to the inside")?;
    // A source that cannot be: from outside with an inside address.
    hosts.udp(Outside, (A, 5_000), outside, b"spoofed")?;
    // The forward, from two remotes, and an answer to each.
    for remote in [(X, 7_000), (FAR, 7_000)] {
        hosts.udp(Outside, remote, (OUTSIDE, 5_353), b"query")?;
        hosts.udp(Inside, (B, 53), remote, b"reply")?;
    }
    // No checksum stays none; data of no, odd and full length; times to live and service as they were.
    let mut frame = hosts.udp_frame(Inside, (A, 41_000), (X, 53), b"plain", &Wish::default());
    wire::put(&mut frame, wire::IP + 26, 0);
    let sent = only(hosts.raw(Inside, frame)?)?;
    let mut frame = hosts.udp_frame(Outside, (X, 53), ends(&sent)?.0, b"plain", &Wish::default());
    wire::put(&mut frame, wire::IP + 26, 0);
    hosts.raw(Outside, frame)?;
    for (length, ttl, service) in [(0, 2, 0x10), (1, 255, 0xb8), (777, 3, 0), (1_472, 64, 0x03)] {
        let wish = Wish {
            ttl,
            service,
            dont_fragment: length != 777,
        };
        let data = vec![0x5a; length];
        let frame = hosts.udp_frame(Inside, (A, 42_000), (X, 53), &data, &wish);
        let sent = only(hosts.raw(Inside, frame)?)?;
        let frame = hosts.udp_frame(Outside, (X, 53), ends(&sent)?.0, &data, &wish);
        hosts.raw(Outside, frame)?;
    }
    // Checksums through their whole range: data that make them 0x0000 and 0xffff among them.
    for number in 0..400_u16 {
        let data = number.wrapping_mul(163).to_be_bytes();
        let sent = only(hosts.udp(Inside, (A, 43_000), (X, 53), &data)?)?;
        hosts.udp(Outside, (X, 53), ends(&sent)?.0, &data)?;
    }
    Ok(())
}

pub(super) const ECHO: Scenario = Scenario {
    name: "echo",
    about: "ICMP queries: identifiers kept and exchanged, unsolicited replies, queries to the box itself.",
    play: echo,
    ..PLAIN
};

fn echo(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let mut outsides = Vec::new();
    // Two hosts with one identifier to one remote; one host with several to several.
    for (host, remote, identifier) in [
        (A, X, 7_700),
        (A, Y, 7_700),
        (B, X, 7_700),
        (B, FAR, 7_700),
        (A, X, 7_701),
        (A, X, 3),
        (A, X, 65_535),
    ] {
        let sent = only(hosts.echo(Inside, (host, remote), 8, identifier, b"asterism")?)?;
        let outside = ends(&sent)?.0;
        hosts.echo(Outside, (remote, OUTSIDE), 0, outside.1, b"asterism")?;
        hosts.echo(Inside, (host, remote), 8, identifier, b"again")?;
        outsides.push((remote, outside.1));
    }
    for (remote, identifier) in outsides.iter().rev() {
        hosts.echo(Outside, (*remote, OUTSIDE), 0, *identifier, b"later")?;
    }
    // Replies that nobody asked for.
    hosts.echo(Outside, (FAR, OUTSIDE), 0, 7_701, b"stranger")?;
    hosts.echo(Outside, (X, OUTSIDE), 0, 9, b"stranger")?;
    hosts.echo(Inside, (A, X), 0, 9, b"reply from inside")?;
    // A timestamp is a query as well.
    let stamps = [0; 12];
    let frame = hosts.icmp_frame(
        Inside,
        (A, X),
        (13, 0),
        [0, 77, 0, 1],
        &stamps,
        &Wish::default(),
    );
    let sent = only(hosts.raw(Inside, frame)?)?;
    let [a, b] = ends(&sent)?.0.1.to_be_bytes();
    let frame = hosts.icmp_frame(
        Outside,
        (X, OUTSIDE),
        (14, 0),
        [a, b, 0, 1],
        &stamps,
        &Wish::default(),
    );
    hosts.raw(Outside, frame)?;
    // The box itself, from both sides, and its outside address from inside.
    hosts.echo(Outside, (X, OUTSIDE), 8, 50, b"are you there")?;
    hosts.echo(Inside, (A, INSIDE), 8, 51, b"are you there")?;
    hosts.echo(Inside, (A, OUTSIDE), 8, 52, b"are you there")?;
    let wish = Wish {
        ttl: 1,
        dont_fragment: false,
        service: 0x10,
    };
    let frame = hosts.icmp_frame(Outside, (X, OUTSIDE), (8, 0), [0, 53, 0, 2], b"near", &wish);
    hosts.raw(Outside, frame)?;
    Ok(())
}

pub(super) const HAIRPIN: Scenario = Scenario {
    name: "hairpin",
    about: "Inside hosts that reach each other, and themselves, by a forwarded outside endpoint.",
    post: "
        oifname \"g1\" masquerade
        iifname \"g0\" oifname \"g0\" snat to 198.51.100.1",
    pre: "
        ip daddr 198.51.100.1 tcp dport 8080 dnat to 192.168.50.2:80
        ip daddr 198.51.100.1 udp dport 5353 dnat to 192.168.50.2:53",
    play: hairpin,
    ..PLAIN
};

fn hairpin(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let (web, web_outside) = ((A, 80), (OUTSIDE, 8_080));
    for client in [(B, 45_000), (B, 45_001), (A, 45_000)] {
        let syn = only(hosts.tcp(Inside, client, web_outside, (SYN, 1_000, 0), b"")?)?;
        let seen = ends(&syn)?.0;
        hosts.tcp(Inside, web, seen, (SYN_ACK, 9_000, 1_001), b"")?;
        hosts.tcp(Inside, client, web_outside, (ACK, 1_001, 9_001), b"")?;
        hosts.tcp(Inside, client, web_outside, (ACK, 1_001, 9_001), b"GET /")?;
        hosts.tcp(Inside, web, seen, (ACK, 9_001, 1_006), b"page")?;
        hosts.tcp(Inside, client, web_outside, (FIN_ACK, 1_006, 9_005), b"")?;
        hosts.tcp(Inside, web, seen, (FIN_ACK, 9_005, 1_007), b"")?;
        hosts.tcp(Inside, client, web_outside, (ACK, 1_007, 9_006), b"")?;
    }
    // UDP, with an error of the server's about it, whole and cut to eight bytes of UDP.
    for length in [1_500, 28] {
        let question = only(hosts.udp(Inside, (B, 46_000), (OUTSIDE, 5_353), b"question")?)?;
        let seen = ends(&question)?.0;
        hosts.error(Inside, A, (3, 3), [0; 4], &question, length)?;
        hosts.udp(Inside, (A, 53), seen, b"answer")?;
    }
    // The answer's error, from the client.
    let question = only(hosts.udp(Inside, (B, 46_001), (OUTSIDE, 5_353), b"question")?)?;
    let answer = only(hosts.udp(Inside, (A, 53), ends(&question)?.0, b"answer")?)?;
    hosts.error(Inside, B, (3, 3), [0; 4], &answer, 1_500)?;
    // A hairpin whose time to live ends at the box.
    let wish = Wish {
        ttl: 1,
        ..Wish::default()
    };
    let frame = hosts.udp_frame(Inside, (B, 46_002), (OUTSIDE, 5_353), b"short-lived", &wish);
    hosts.raw(Inside, frame)?;
    // From outside to the same forward, meanwhile.
    hosts.udp(Outside, (X, 7_000), (OUTSIDE, 5_353), b"query")?;
    hosts.udp(Inside, (A, 53), (X, 7_000), b"reply")?;
    // A port that nobody forwards.
    hosts.udp(Inside, (B, 46_000), (OUTSIDE, 9), b"nobody")?;
    Ok(())
}
