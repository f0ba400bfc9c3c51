//! When sessions end: the kernel's times and ours are made seconds.

use asterism_functions::nat::Side::{Inside, Outside};

use super::PLAIN;
use crate::live::Scenario;
use crate::live::hosts::{
    A, ACK, Connected, FIN_ACK, Hosts, OUTSIDE, RST_ACK, SYN_ACK, X, ends, only,
};
use crate::wire::{End, SYN};

pub(super) const UDP_TIMES: Scenario = Scenario {
    name: "udp-times",
    about: "UDP without a reply, with one, and as a stream; ICMP queries: before, between and after Linux's times and ours.",
    settings: "
        idle = udp 6
        idle = icmp_query 3
        linux_idle_least = 2",
    sysctls: &[
        ("netfilter/nf_conntrack_udp_timeout", "2"),
        ("netfilter/nf_conntrack_udp_timeout_stream", "6"),
        ("netfilter/nf_conntrack_icmp_timeout", "3"),
    ],
    play: udp_times,
    ..PLAIN
};

fn udp_times(hosts: &mut Hosts<'_>) -> Result<(), String> {
    // Not port 53, which has a time of its own.
    let remote = (X, 5_000);
    let open = |hosts: &mut Hosts<'_>, port| -> Result<End, String> {
        let sent = only(hosts.udp(Inside, (A, port), remote, b"question")?)?;
        Ok(ends(&sent)?.0)
    };
    let unreplied = open(hosts, 40_000)?;
    let forgotten = open(hosts, 40_001)?;
    let stream = open(hosts, 40_002)?;
    let query = only(hosts.echo(Inside, (A, X), 8, 77, b"anybody there")?)?;
    let late_query = only(hosts.echo(Inside, (A, X), 8, 78, b"anybody there")?)?;
    for round in 0..3 {
        hosts.udp(Outside, remote, stream, b"stream")?;
        hosts.pause(1_000);
        hosts.udp(Inside, (A, 40_002), remote, b"stream")?;
        if round == 0 {
            // Within two seconds: everything is there.
            hosts.udp(Outside, remote, unreplied, b"in time")?;
            hosts.echo(Outside, (X, OUTSIDE), 0, ends(&query)?.0.1, b"in time")?;
        }
    }
    // Three seconds: Linux forgot what had no reply (RFC 4787 REQ-5 forbids that for real times).
    hosts.pause(700);
    hosts.udp(Outside, remote, forgotten, b"too late for Linux")?;
    // Four more: a stream incarnations.
    hosts.pause(3_500);
    hosts.udp(Outside, remote, stream, b"still there")?;
    hosts.udp(Inside, (A, 40_002), remote, b"still there")?;
    // Both have forgotten everything.
    hosts.pause(11_000);
    for outside in [unreplied, forgotten, stream] {
        hosts.udp(Outside, remote, outside, b"too late")?;
    }
    hosts.echo(
        Outside,
        (X, OUTSIDE),
        0,
        ends(&late_query)?.0.1,
        b"too late",
    )?;
    // And begin again.
    let again = open(hosts, 40_002)?;
    hosts.udp(Outside, remote, again, b"answer")?;
    Ok(())
}

pub(super) const TCP_TIMES: Scenario = Scenario {
    name: "tcp-times",
    about: "TCP opening, established, half-closed, closed and reset: before, between and after Linux's times and ours.",
    settings: "
        idle = tcp_transitory 3
        idle = tcp_established 8
        idle = tcp_closing 3
        linux_idle_least = 3",
    sysctls: &[
        ("netfilter/nf_conntrack_tcp_timeout_syn_sent", "3"),
        ("netfilter/nf_conntrack_tcp_timeout_syn_recv", "3"),
        ("netfilter/nf_conntrack_tcp_timeout_established", "8"),
        ("netfilter/nf_conntrack_tcp_timeout_fin_wait", "3"),
        ("netfilter/nf_conntrack_tcp_timeout_close_wait", "3"),
        ("netfilter/nf_conntrack_tcp_timeout_last_ack", "3"),
        ("netfilter/nf_conntrack_tcp_timeout_time_wait", "3"),
        ("netfilter/nf_conntrack_tcp_timeout_close", "3"),
    ],
    play: tcp_times,
    ..PLAIN
};

fn tcp_times(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let remote = (X, 80);
    let syn = |hosts: &mut Hosts<'_>, port| -> Result<End, String> {
        let sent = only(hosts.tcp(Inside, (A, port), remote, (SYN, 1_000, 0), b"")?)?;
        Ok(ends(&sent)?.0)
    };
    let reply = |hosts: &mut Hosts<'_>, outside| -> Result<(), String> {
        hosts.tcp(Outside, remote, outside, (SYN_ACK, 9_000, 1_001), b"")?;
        Ok(())
    };
    let opening = syn(hosts, 40_000)?;
    let stuck = syn(hosts, 40_001)?;
    let mut established = hosts.connect((A, 40_002), remote)?;
    let mut silent = hosts.connect((A, 40_003), remote)?;
    let mut reset = hosts.connect((A, 40_004), remote)?;
    reset.out(hosts, RST_ACK, b"")?;
    let mut closed = hosts.connect((A, 40_005), remote)?;
    closed.close(hosts)?;
    let mut half: Connected = hosts.connect((A, 40_006), remote)?;
    half.out(hosts, FIN_ACK, b"")?;
    half.back(hosts, ACK, b"")?;
    let refused = syn(hosts, 40_007)?;
    hosts.tcp(Outside, remote, refused, (RST_ACK, 0, 1_001), b"")?;
    // In time for everything but the one that Linux forgets at once.
    hosts.pause(1_200);
    reply(hosts, opening)?;
    reset.back(hosts, ACK, b"under way")?;
    closed.back(hosts, ACK, b"")?;
    established.back(hosts, ACK, b"data")?;
    hosts.tcp(Outside, remote, refused, (RST_ACK, 0, 1_001), b"")?;
    // Half-closed is established to our NAT.
    hosts.pause(4_300);
    half.back(hosts, ACK, b"more")?;
    established.back(hosts, ACK, b"data")?;
    established.out(hosts, ACK, b"")?;
    // Over for all that was not established.
    hosts.pause(2_000);
    reply(hosts, stuck)?;
    reset.back(hosts, ACK, b"too late")?;
    closed.back(hosts, ACK, b"")?;
    established.back(hosts, ACK, b"data")?;
    established.out(hosts, ACK, b"")?;
    // Over for all.
    hosts.pause(15_000);
    silent.back(hosts, ACK, b"too late")?;
    established.back(hosts, ACK, b"too late")?;
    half.back(hosts, ACK, b"too late")?;
    // An old connection that goes on opens a session again.
    established.out(hosts, ACK, b"go on")?;
    Ok(())
}
