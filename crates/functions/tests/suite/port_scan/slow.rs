//! Scans of one probe each ten seconds, for hours, dealt over three instances; and clients as slow as they, which are none.

use asterism_function::TcpFlags;
use asterism_functions::port_scan::{Alert, Class, PortScanConfig, Shape, Subject};

use crate::port_scan::capture::detect;
use crate::port_scan::cluster::Cluster;
use crate::port_scan::packets::{host, ping, syn, tcp, udp};

const SYN_ACK: TcpFlags = TcpFlags(0x12);
/// Seconds between two probes.
const PACE: u32 = 10;
/// Probes: three hours of them.
const PROBES: u16 = 1_080;

/// What is found when each turn's packets, the first of them through another instance than the others, are followed by a pause.
fn found(window_s: u32, turn: impl Fn(u16) -> Vec<Vec<u8>>) -> Vec<(Subject, Alert)> {
    let config = PortScanConfig {
        window_s,
        ..detect()
    };
    let mut cluster = Cluster::new(config, 3, 5);
    for number in 0..PROBES {
        for (place, frame) in turn(number).iter().enumerate() {
            cluster.packet(usize::from(number) + place, frame);
            cluster.exchange();
        }
        cluster.advance(PACE);
    }
    cluster.agreed()
}

#[test]
fn a_slow_scan_over_ports_is_found_within_its_window() {
    for window_s in [60, 300] {
        let alerts = found(window_s, |number| vec![syn(1, (2, 1_000 + number))]);
        assert_eq!(alerts.len(), 1, "window of {window_s} s");
        let (subject, alert) = alerts[0];
        assert_eq!((subject.class, subject.shape), (Class::Tcp, Shape::Ports));
        assert_eq!(subject.source, host(1).into());
        assert_eq!(alert.target.0, host(2).into());
        // Seven ports take a minute, and a window may begin in between.
        assert!(alert.first <= 1_000 + 2 * 7 * PACE, "{alert:?}");
    }
    let slower = found(10, |number| vec![syn(1, (2, 1_000 + number))]);
    assert_eq!(slower, [], "two windows hold two probes");
}

#[test]
fn a_slow_sweep_over_hosts_is_found_whether_they_refuse_keep_silent_or_answer_pings() {
    let refused = TcpFlags::RST | TcpFlags::ACK;
    let refusing = found(60, |number| {
        let target = (100 + number, 23);
        vec![syn(1, target), tcp(target, (1, 40_000), refused, b"")]
    });
    let silent = found(300, |number| vec![syn(1, (100 + number, 23))]);
    let pinged = found(60, |number| vec![ping(1, 100 + number)]);
    for (alerts, class) in [
        (refusing, Class::Tcp),
        (silent, Class::Tcp),
        (pinged, Class::Icmp),
    ] {
        assert_eq!(alerts.len(), 1, "{class:?}");
        let subject = alerts[0].0;
        assert_eq!((subject.class, subject.shape), (class, Shape::Hosts));
        assert_eq!(subject.source, host(1).into());
    }
}

#[test]
fn a_slow_client_of_many_hosts_and_of_many_ports_is_no_scanner() {
    let alerts = found(300, |number| {
        // A connection to another server each time, and a question to another port of one host, all answered; one service that is
        // down and tried for ever; a watcher that pings the same few hosts.
        let (client, server) = ((1, 40_000), (100 + number, 443));
        let (asker, service) = ((3, 50_000), (4, 2_000 + number));
        vec![
            tcp(client, server, TcpFlags::SYN, b""),
            tcp(server, client, SYN_ACK, b""),
            tcp(client, server, TcpFlags::ACK, b"question"),
            tcp(server, client, TcpFlags::ACK, b"answer"),
            udp(asker, service, b"?"),
            udp(service, asker, b"!"),
            syn(5, (6, 443)),
            ping(7, 8 + number % 3),
        ]
    });
    assert_eq!(alerts, []);
}
