//! Four outside ports for more sessions than that.

use asterism_functions::nat::Side::{Inside, Outside};

use super::PLAIN;
use crate::live::Scenario;
use crate::live::hosts::{A, ACK, B, Hosts, SYN_ACK, X, Y, ends};
use crate::wire::SYN;

pub(super) const PRESSURE: Scenario = Scenario {
    name: "port-pressure",
    about: "Four outside ports: collisions, exhaustion towards one remote, and Linux's overloading towards another.",
    post: "
        oifname \"g1\" meta l4proto { tcp, udp } masquerade to :40000-40003
        oifname \"g1\" masquerade",
    play: pressure,
    ..PLAIN
};

fn pressure(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let remote = (X, 53);
    let mut opened = Vec::new();
    // Ports outside the range, in it, and the same one twice; the fifth and sixth find none.
    for inside in [
        (A, 5_000),
        (A, 40_001),
        (B, 40_001),
        (B, 40_003),
        (A, 40_000),
        (B, 5_001),
    ] {
        let sent = hosts.udp(Inside, inside, remote, b"question")?;
        if let Some(sent) = sent.first() {
            opened.push((inside, ends(sent)?.0));
        }
    }
    for (_, outside) in &opened {
        hosts.udp(Outside, remote, *outside, b"answer")?;
    }
    for (inside, _) in opened.iter().rev() {
        hosts.udp(Inside, *inside, remote, b"thanks")?;
    }
    // Who has a port may talk to anybody.
    for (inside, _) in &opened {
        let sent = hosts.udp(Inside, *inside, (Y, 53), b"question")?;
        if let Some(sent) = sent.first() {
            hosts.udp(Outside, (Y, 53), ends(sent)?.0, b"answer")?;
        }
    }
    // TCP has ports of its own. The fifth connection is to another remote: Linux gives a port twice.
    let mut opened = Vec::new();
    for (inside, remote) in [
        ((A, 50_001), (X, 80)),
        ((A, 50_002), (X, 80)),
        ((B, 50_001), (X, 80)),
        ((B, 50_002), (X, 80)),
        ((B, 50_003), (X, 80)),
        ((B, 50_004), (Y, 80)),
    ] {
        let sent = hosts.tcp(Inside, inside, remote, (SYN, 1_000, 0), b"")?;
        if let Some(sent) = sent.iter().find(|sent| sent.side == Outside) {
            opened.push((inside, remote, ends(sent)?.0));
        }
    }
    for (inside, remote, outside) in &opened {
        hosts.tcp(Outside, *remote, *outside, (SYN_ACK, 9_000, 1_001), b"")?;
        hosts.tcp(Inside, *inside, *remote, (ACK, 1_001, 9_001), b"")?;
    }
    Ok(())
}
