//! Networks, hosts and strangers that do the worst.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use asterism_engine::transport::{
    BUFFER_BYTES_MIN, Notice, PACE_BURST, RunConfig, RunMode, TransportEvent, UdpConfig,
};
use asterism_io::link::SeededRandom;
use asterism_placement::MemberId;
use asterism_secure_channel::Refusal;

use crate::transport::hosts::{Addresses, Host, converge, exercise, meet};
use crate::transport::relay::{Conditions, Relay};

/// Hosts that reach each other by a relay alone.
pub(crate) fn relayed(count: u16, conditions: Conditions) -> (Vec<Host>, Relay) {
    relayed_without(count, conditions, &[])
}

/// The same; the relay carries nothing on the paths `cut`, from the start.
pub(crate) fn relayed_without(
    count: u16,
    conditions: Conditions,
    cut: &[(usize, usize)],
) -> (Vec<Host>, Relay) {
    let addresses = Addresses::new();
    let at: Vec<SocketAddr> = (0..count).map(|number| addresses.host(number)).collect();
    let relay = Relay::start(&at, conditions, 7);
    for &(from, to) in cut {
        relay.cut(from, to, true);
    }
    let hosts = (0..count)
        .map(|number| {
            let others = (0..count).filter(|&other| other != number);
            let peers = others.map(|other| {
                let address = relay.address(usize::from(number), usize::from(other));
                (MemberId(other), address)
            });
            let udp = UdpConfig::new(addresses.host(number), peers);
            Host::start(number, count, &udp, RunConfig::default())
        })
        .collect();
    (hosts, relay)
}

#[test]
fn a_network_that_loses_repeats_and_reorders_everything_changes_nothing() {
    for count in [2, 3] {
        let (hosts, relay) = relayed(
            count,
            Conditions {
                loss: 0.1,
                copies: 2,
                waiting: 8,
            },
        );
        exercise(&hosts, 3_000, 0);
        let counts = &relay.counts;
        let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        assert!(
            read(&counts.dropped) > 0 && read(&counts.overtaken) > 20,
            "{counts:?}"
        );
        let replays: u64 = hosts
            .iter()
            .map(|host| host.snapshot().refused.get(Refusal::Replayed))
            .sum();
        assert!(replays > 20, "copies are refused: {replays}");
    }
}

#[test]
fn a_receiver_with_tiny_buffers_loses_counts_it_and_has_everything_in_the_end() {
    let addresses = Addresses::new();
    let mut hosts = addresses.start(2, |number, udp| {
        if number == 1 {
            udp.receive_buffer_bytes = BUFFER_BYTES_MIN;
        }
    });
    meet(&hosts);
    let mut done = 0;
    // Until some were dropped: it is a matter of luck when the receiver looks.
    while hosts[1].snapshot().transport.receive_buffer_drops == 0 {
        assert!(done < 30_000, "no drops");
        exercise(&hosts, 3_000, done);
        done += 3_000;
    }
    exercise(&hosts, 500, done);
    let snapshot = hosts[1].snapshot();
    assert_eq!(snapshot.state.receive_buffer_bytes, BUFFER_BYTES_MIN);
    let begun = Instant::now();
    let is_reported = |notice: &Notice| {
        matches!(
            notice,
            Notice::Transport(TransportEvent::ReceiveBufferFull { datagrams: 1.. })
        )
    };
    while !hosts[1].take_notices().iter().any(is_reported) {
        assert!(begun.elapsed() < Duration::from_secs(10), "not reported");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Memory that this process holds, in bytes.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// In a process of its own, whose memory no other test takes.
#[test]
fn an_intruder_is_refused_counted_and_has_no_effect() {
    const ALONE: &str = "ASTERISM_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "transport::hostile::an_intruder_is_refused_counted_and_has_no_effect";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", name]).env(ALONE, "1").output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
        return;
    }
    let (mut hosts, relay) = relayed(
        2,
        Conditions {
            copies: 1,
            ..Conditions::default()
        },
    );
    exercise(&hosts, 1_000, 0);
    let before: Vec<_> = hosts.iter().map(Host::held).collect();
    let (counted, memory) = (hosts[0].snapshot().refused.total(), resident_bytes());
    let recorded = relay.take_recorded();
    assert!(recorded.len() > 20);
    let targets: Vec<SocketAddr> = hosts
        .iter()
        .map(|host| host.channel.snapshot().state.local)
        .collect();

    // What was recorded comes again: from the member's own address, and from a stranger's.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (from, to, bytes) in &recorded {
        relay.forge(*from, *to, bytes);
        relay.forge(*to, *from, bytes);
        stranger.send_to(bytes, targets[*to]).unwrap();
        std::thread::sleep(Duration::from_micros(20));
    }
    // The same, damaged; and garbage; and nothing: from many addresses.
    let mut random = SeededRandom::new(3);
    let mut attack = |round: usize| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..40 {
            let (_, to, bytes) = &recorded[(round * 40 + number) % recorded.len()];
            let mut bytes = bytes.clone();
            match number % 4 {
                0 => {
                    let place = random.up_to(bytes.len() as u64 - 1) as usize;
                    bytes[place] ^= 1 << random.up_to(7);
                }
                1 => bytes.truncate(random.up_to(bytes.len() as u64) as usize),
                2 => {
                    bytes = (0..random.up_to(9_000))
                        .map(|_| random.next_u64() as u8)
                        .collect()
                }
                _ => bytes.clear(),
            }
            socket.send_to(&bytes, targets[*to]).unwrap();
        }
    };
    (0..400).for_each(&mut attack);
    // A host that stood still meanwhile receives what its socket held, and of the rest more is sent.
    let reasons = [Refusal::Replayed, Refusal::TooShort, Refusal::Forged];
    let has_refused = |host: &Host| {
        let snapshot = host.snapshot();
        let mut reasons = reasons.iter();
        snapshot.transport.strangers_received > 1_000
            && reasons.all(|reason| snapshot.refused.get(*reason) > 0)
            && (host.name != MemberId(0) || snapshot.refused.total() > counted + 1_000)
    };
    let (begun, mut round) = (Instant::now(), 400);
    while !hosts.iter().all(has_refused) {
        let refused: Vec<_> = hosts
            .iter()
            .map(|host| host.snapshot().refused.clone())
            .collect();
        assert!(begun.elapsed() < Duration::from_secs(20), "{refused:?}");
        attack(round);
        round += 1;
    }
    for (host, before) in hosts.iter().zip(&before) {
        assert_eq!(&host.held(), before, "nothing changed");
        let snapshot = host.snapshot();
        for member in &snapshot.members {
            let is_self = member.progress.member == host.name;
            assert!(is_self || member.admitted.is_some(), "still admitted");
        }
    }
    let grown = resident_bytes().saturating_sub(memory);
    assert!(grown < 32 << 20, "{grown} bytes more");
    // Nobody was taken for another, and all goes on.
    for host in &mut hosts {
        let duplicate = |notice: &Notice| format!("{notice:?}").contains("DuplicateIdentity");
        assert!(!host.take_notices().iter().any(duplicate));
    }
    exercise(&hosts, 1_000, 1_000);
}

#[test]
fn a_member_that_is_down_stops_nobody_and_is_served_when_it_comes() {
    let addresses = Addresses::new();
    let mut hosts: Vec<Host> = (0..2)
        .map(|number| {
            let udp = addresses.unicast(number, 3);
            Host::start(number, 3, &udp, RunConfig::default())
        })
        .collect();
    for host in &hosts {
        let first = u32::from(host.name.0) << 16;
        host.feed(first..first + 2_000);
    }
    converge(&hosts, 4_000, 4_000);
    let is_reported = |notice: &Notice| {
        matches!(
            notice,
            Notice::Transport(TransportEvent::Unreachable {
                member: MemberId(2),
                errno: libc::ECONNREFUSED,
                ..
            })
        )
    };
    for host in &mut hosts {
        let begun = Instant::now();
        let is_down = |host: &Host| {
            let snapshot = host.snapshot();
            let down = snapshot.member(MemberId(2)).unwrap();
            snapshot.transport.port_unreachable > 0
                && down.traffic.unwrap().is_unreachable
                && down.admitted.is_none()
        };
        while !is_down(host) || !host.take_notices().iter().any(is_reported) {
            assert!(begun.elapsed() < Duration::from_secs(20), "not reported");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(
            host.take_notices()
                .iter()
                .filter(|&notice| is_reported(notice))
                .count(),
            1,
            "reported once"
        );
    }
    let udp = addresses.unicast(2, 3);
    hosts.push(Host::start(2, 3, &udp, RunConfig::default()));
    converge(&hosts, 4_000, 4_000);
    let is_up = || {
        let snapshot = hosts[0].snapshot();
        let up = snapshot.member(MemberId(2)).unwrap();
        !up.traffic.unwrap().is_unreachable && up.admitted.is_some()
    };
    let begun = Instant::now();
    while !is_up() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is up");
        std::thread::sleep(Duration::from_millis(5));
    }
    exercise_more(&hosts);
}

fn exercise_more(hosts: &[Host]) {
    for host in hosts {
        let first = u32::from(host.name.0) << 16 | 8_000;
        host.feed(first..first + 100);
    }
    converge(hosts, 4_300, 4_300);
}

#[test]
fn the_bandwidth_cap_holds_and_loses_nothing() {
    const RATE: u64 = 4_000_000;
    let addresses = Addresses::new();
    let hosts = addresses.start(3, |number, udp| {
        if number == 0 {
            udp.bandwidth_bits_per_second = Some(RATE);
        }
    });
    meet(&hosts);
    let before = hosts[0].snapshot();
    let first = 0;
    hosts[0].feed(first..first + 20_000);
    converge(&hosts, 20_000, 20_000);
    let after = hosts[0].snapshot();
    let datagrams = after.transport.datagrams_sent - before.transport.datagrams_sent;
    let bytes = after.transport.bytes_sent - before.transport.bytes_sent + 28 * datagrams;
    let seconds = (after.at - before.at).as_secs_f64();
    let most = RATE as f64 * (seconds + PACE_BURST.as_secs_f64()) + 2.0 * 8.0 * 1_500.0;
    assert!(bytes as f64 * 8.0 <= most, "{bytes} bytes in {seconds} s");
    assert!(after.transport.pace_waits > 0, "the cap was met");
    assert!(
        bytes as f64 * 8.0 > most / 20.0,
        "{bytes} bytes in {seconds} s"
    );
}

#[test]
fn spinning_threads_agree_too_and_stop_when_all_is_acknowledged() {
    let addresses = Addresses::new();
    // The first has time enough for the other's acknowledgements; the second waits for none that come.
    let run_of = |number| RunConfig {
        mode: RunMode::Spin,
        flush_max: Duration::from_secs(if number == 0 { 20 } else { 1 }),
        ..RunConfig::default()
    };
    let run = run_of(1);
    let hosts: Vec<Host> = (0..2)
        .map(|number| Host::start(number, 2, &addresses.unicast(number, 2), run_of(number)))
        .collect();
    exercise(&hosts, 500, 0);
    let mut hosts = hosts.into_iter();
    let (first, second) = (hosts.next().unwrap(), hosts.next().unwrap());
    first.feed(60_000..60_500);
    let stopped = first.stop();
    assert!(stopped.snapshot.is_quiet, "{:?}", stopped.snapshot);
    assert_eq!(stopped.snapshot.thread.sleeps, 0);
    converge(std::slice::from_ref(&second), 1_500, 1_500);
    // The other is gone: this one waits for it no longer than it was set to.
    second.feed(70_000..70_010);
    let begun = Instant::now();
    let stopped = second.stop();
    assert!(!stopped.snapshot.is_quiet);
    let took = begun.elapsed();
    assert!(
        took >= run.flush_max && took < run.flush_max + Duration::from_secs(20),
        "{took:?}"
    );
}
