//! SYN floods: handshakes that are begun and not completed are found by all instances together, and nothing else is taken for them.

use asterism_function::notice::{Notice, Outcome, QUESTION};
use asterism_function::testkit::{ClusterKit, Testkit};
use asterism_function::{Observable, PortNumber, TcpFlags, Verdict};
use asterism_functions::port_scan::{
    Flood, FloodPolicy, PortScan, PortScanConfig, PortScanState, Service,
};

use crate::port_scan::capture::{detect, read, traces};
use crate::port_scan::ip::alone;
use crate::port_scan::packets::{host, syn, syn6, tcp};

const FORWARD: Verdict = Verdict::Forward(PortNumber(1));
const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
const RST_ACK: TcpFlags = TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0);
/// The flooded service.
const SERVICE: (u16, u16) = (2, 80);

/// Three instances, each of which sees the packets that chance gives it.
struct Three {
    kit: ClusterKit<PortScan>,
    /// Packets between two exchanges.
    lag: u64,
    count: u64,
}

impl Three {
    fn new(lag: u64) -> Self {
        Self::of(detect(), lag, 11)
    }

    fn of(config: PortScanConfig, lag: u64, seed: u64) -> Self {
        Self {
            kit: ClusterKit::new(PortScan::new(config), 3, seed),
            lag,
            count: 0,
        }
    }

    fn packet(&mut self, frame: &[u8]) {
        self.count += 1;
        let drawn = self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let outcome = self.kit.packet((drawn % 3) as usize, PortNumber(0), frame);
        assert_eq!(outcome.verdict, FORWARD, "nothing is dropped");
        if self.count.is_multiple_of(self.lag) {
            self.kit.exchange();
        }
    }

    /// A second passes, and all is heard.
    fn second(&mut self) {
        self.kit.exchange();
        self.kit.advance(1);
    }

    /// What all know together.
    fn floods(&mut self) -> Vec<(Service, Flood)> {
        self.kit.agree();
        for member in 0..3 {
            assert_eq!(self.kit.state(member).unrecorded.get(), Ok(0));
            assert_eq!(self.kit.state(member).floods(), self.kit.state(0).floods());
        }
        self.kit.state(0).floods()
    }
}

fn service() -> Service {
    Service {
        host: host(SERVICE.0).into(),
        port: SERVICE.1,
    }
}

/// A client that no other test packet has.
fn client(number: u32) -> (u16, u16) {
    (
        1_000 + (number % 50_000) as u16,
        40_000 + (number / 50_000) as u16,
    )
}

fn handshake(client: (u16, u16), server: (u16, u16)) -> [Vec<u8>; 3] {
    [
        tcp(client, server, TcpFlags::SYN, b""),
        tcp(server, client, SYN_ACK, b""),
        tcp(client, server, TcpFlags::ACK, b""),
    ]
}

/// The notices that one instance tells.
fn notices(state: &PortScanState) -> Vec<Notice> {
    let function = PortScan::new(detect());
    let (mut bytes, mut notices) = (Vec::new(), Vec::new());
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        cursor = function.report(state, QUESTION, (from, 16), &mut bytes);
    }
    assert!(Notice::read_all(&bytes, |notice| notices.push(notice)));
    notices
}

#[test]
fn a_flood_from_many_sources_is_found_though_no_instance_sees_half_of_it() {
    for (lag, seed) in [(1, 1), (30, 2), (200, 3)] {
        // A hundred and fifty a second: a third of them alone are no flood.
        let mut together = Three::of(detect(), lag, seed);
        let mut alone = Testkit::new(PortScan::new(detect()));
        for number in 0..150 * 12 {
            let frame = tcp(client(number), SERVICE, TcpFlags::SYN, b"");
            together.packet(&frame);
            if number % 3 == 0 {
                alone.packet(PortNumber(0), &frame);
            }
            if number % 150 == 149 {
                together.second();
                alone.advance(1);
            }
        }
        assert_eq!(alone.state().floods(), []);
        let floods = together.floods();
        let [(found, flood)] = floods[..] else {
            panic!("{floods:?}");
        };
        assert_eq!(found, service());
        assert!((500..1_100).contains(&flood.open), "{flood:?}");
        assert!(flood.sources >= 30, "{flood:?}");
        assert!(flood.first <= 1_000 + 12, "{flood:?}");
        let reported = notices(together.kit.state(1));
        let [notice] = &reported[..] else {
            panic!("{reported:?}");
        };
        assert_eq!(notice.text, "SYN flood");
        assert_eq!(notice.outcome, Outcome::Passed);
        assert_eq!(notice.source.host, None, "they are forged");
        let to = (notice.destination.host, notice.destination.port);
        assert_eq!(to, (Some(service().host), Some(80)));
    }
}

#[test]
fn a_flood_from_one_source_is_found_and_the_source_is_named() {
    let mut three = Three::new(7);
    for number in 0..1_000 * 8 {
        three.packet(&tcp((1, 1_024 + number), SERVICE, TcpFlags::SYN, b""));
        if number % 1_000 == 999 {
            three.second();
        }
    }
    let floods = three.floods();
    assert_eq!(floods.len(), 1);
    assert_eq!((floods[0].0, floods[0].1.sources), (service(), 1));
    let reported = notices(three.kit.state(0));
    let named = reported.iter().find(|notice| notice.id == 11);
    assert_eq!(
        named.and_then(|notice| notice.source.host),
        Some(host(1).into())
    );
}

#[test]
fn a_flood_over_ipv6_is_found() {
    let mut kit = Testkit::new(PortScan::new(detect()));
    for number in 0..500 * 8 {
        kit.packet(PortNumber(0), &syn6(100 + number, SERVICE));
        if number % 500 == 499 {
            kit.advance(1);
        }
    }
    let floods = kit.state().floods();
    assert_eq!(floods.len(), 1);
    assert_eq!(floods[0].0.host.to_string(), "2001:db8::2");
}

/// Clients that come all at once and stay: none of their packets but these is seen.
#[test]
fn a_crowd_whose_handshakes_complete_is_no_flood() {
    for lag in [1, 3, 64, 1_000] {
        for completes in [true, false] {
            let mut three = Three::new(lag);
            // A thousand in the same moment, then its answers, then what completes it; and so on for twelve seconds.
            for second in 0..12 {
                let crowd = (1_000 * second..1_000 * (second + 1)).map(client);
                let steps: Vec<_> = crowd.map(|client| handshake(client, SERVICE)).collect();
                let seen = if completes { 3 } else { 2 };
                for step in 0..seen {
                    steps.iter().for_each(|frames| three.packet(&frames[step]));
                }
                three.second();
            }
            let floods = three.floods();
            assert_eq!(floods.is_empty(), completes, "lag of {lag}: {floods:?}");
        }
    }
}

/// What completes a handshake may be heard of before its SYN: each of its packets goes another way, and nobody hears of others in between.
#[test]
fn nor_is_one_whose_packets_each_take_another_way() {
    let mut three = Three::new(u64::MAX);
    for second in 0..12 {
        for number in 0..500 {
            let frames = handshake(client(500 * second + number), SERVICE);
            for (member, frame) in frames.iter().enumerate() {
                three.kit.packet(member, PortNumber(0), frame);
            }
            if number % 50 == 49 {
                three.kit.exchange();
            }
        }
        three.second();
    }
    assert_eq!(three.floods(), []);
}

/// A flood of a busy service: ten thousand connections that go on, and the flood beside them.
#[test]
fn connections_that_go_on_neither_are_a_flood_nor_hide_one() {
    for floods in [false, true] {
        let mut three = Three::new(100);
        for second in 0..12u32 {
            for number in 0..10_000 / 4 {
                let number = number * 4 + second % 4;
                let client = (
                    20_000 + (number % 5_000) as u16,
                    10_000 + (number / 5_000) as u16,
                );
                three.packet(&tcp(client, SERVICE, TcpFlags::ACK, b"more"));
            }
            for number in 0..400 {
                let client = client(second * 400 + number);
                three.packet(&tcp(client, SERVICE, TcpFlags::SYN, b""));
                if !floods {
                    three.packet(&tcp(client, SERVICE, TcpFlags::ACK, b""));
                }
            }
            three.second();
        }
        assert_eq!(three.floods().len(), usize::from(floods));
    }
}

#[test]
fn what_looks_like_a_flood_and_is_none() {
    let mut three = Three::new(5);
    for second in 0..20u16 {
        for number in 0..300u16 {
            let drawn = second * 300 + number;
            // Backscatter of a flood elsewhere, from one service.
            three.packet(&tcp((3, 80), (10_000 + drawn, 1_025), SYN_ACK, b""));
            three.packet(&tcp((3, 80), (10_000 + drawn, 1_026), TcpFlags::RST, b""));
            // A scan of many ports, and one of many hosts.
            three.packet(&syn(4, (5, drawn)));
            three.packet(&syn(6, (10_000 + drawn, 22)));
            // A client that sends one SYN again and again.
            three.packet(&syn(7, (8, 443)));
            // A service that is down, and says so.
            let down = (drawn, 2_000);
            three.packet(&tcp(down, (9, 25), TcpFlags::SYN, b""));
            three.packet(&tcp((9, 25), down, RST_ACK, b""));
        }
        three.second();
    }
    assert_eq!(three.floods(), []);
}

#[test]
fn exempt_sources_are_part_of_no_flood_and_without_a_policy_there_is_none() {
    let exempt = PortScanConfig {
        exempt: vec![alone(host(1))],
        ..detect()
    };
    let without = PortScanConfig {
        flood: None,
        ..detect()
    };
    for (config, expected) in [(detect(), 1), (exempt, 0), (without, 0)] {
        let mut kit = Testkit::new(PortScan::new(config));
        for number in 0..1_000 * 8 {
            kit.packet(
                PortNumber(0),
                &tcp((1, 1_024 + number), SERVICE, TcpFlags::SYN, b""),
            );
            if number % 1_000 == 999 {
                kit.advance(1);
            }
        }
        assert_eq!(kit.state().floods().len(), expected);
    }
}

/// The earliest times of all floods that one instance ever knew, while a service gets so many SYNs in each second.
fn times(seconds: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut kit = Testkit::new(PortScan::new(detect()));
    let (mut times, mut sent) = (Vec::new(), 0);
    for count in seconds {
        for _ in 0..count {
            sent += 1;
            kit.packet(
                PortNumber(0),
                &tcp(client(sent), SERVICE, TcpFlags::SYN, b""),
            );
        }
        times.extend(kit.state().floods().iter().map(|(_, flood)| flood.first));
        kit.advance(1);
    }
    times.dedup();
    times
}

#[test]
fn a_flood_is_reported_once_a_minute_and_not_again_when_it_wavers() {
    let steady = times((0..200).map(|_| 400));
    assert!((2..=4).contains(&steady.len()), "{steady:?}");
    assert!(steady.windows(2).all(|pair| pair[1] - pair[0] >= 60));
    // Below the threshold from the tenth second on, but not below its half: it goes on.
    let ebbs = times((0..200).map(|second| if second < 10 { 400 } else { 65 }));
    assert!(ebbs.len() >= 2, "{ebbs:?}");
    // The same without a flood before.
    assert_eq!(times((0..200).map(|_| 65)), []);
    // It is over.
    let over = times((0..200).map(|second| if second < 10 { 400 } else { 10 }));
    assert_eq!(over.len(), 1, "{over:?}");
}

#[test]
fn thresholds_are_kept_about() {
    for handshakes in [16, 100, 2_000, 20_000] {
        let policy = FloodPolicy {
            handshakes,
            window_s: 3,
        };
        let mut found = [0; 2];
        for seed in 1..=10 {
            for (place, share) in [(0, 60), (1, 170)] {
                let mut three = Three::of(
                    PortScanConfig {
                        flood: Some(policy),
                        ..detect()
                    },
                    10_000,
                    seed,
                );
                for second in 0..9 {
                    for number in 0..handshakes * share / 300 {
                        let drawn = second * handshakes + number;
                        three.packet(&tcp(client(drawn), SERVICE, TcpFlags::SYN, b""));
                    }
                    three.second();
                }
                found[place] += three.floods_alone();
            }
        }
        // Six tenths of the threshold are none, and seventeen are one.
        assert!(found[0] <= 1 && found[1] >= 9, "{handshakes}: {found:?}");
    }
}

impl Three {
    /// How many are known, whether or not there was room for all histories.
    fn floods_alone(&mut self) -> usize {
        self.kit.agree();
        self.kit.state(0).floods().len()
    }
}

#[test]
fn services_beyond_the_bound_are_counted_and_pass() {
    let config = PortScanConfig {
        samples_max: 4,
        ..detect()
    };
    let mut kit = Testkit::new(PortScan::new(config));
    for second in 0..10u16 {
        for number in 0..200u16 {
            for service in 0..10 {
                let client = (1_000 + second * 200 + number, 5_000);
                let frame = tcp(client, (100 + service, 80), TcpFlags::SYN, b"");
                assert_eq!(kit.packet(PortNumber(0), &frame).verdict, FORWARD);
            }
        }
        kit.advance(1);
    }
    assert_eq!(kit.state().handshakes.len_now(), 4);
    assert!(
        kit.state()
            .unrecorded
            .get()
            .is_ok_and(|count| count > 1_000)
    );
    assert!((1..=4).contains(&kit.state().floods().len()));
}

/// Captures of other floods hold no SYNs, and of other traffic no flood; one that is laid over them is found.
#[test]
fn captures_have_no_flood_but_the_one_that_is_laid_over_them() {
    let Some(traces) = traces("captures_have_no_flood_but_the_one_that_is_laid_over_them") else {
        return;
    };
    for file in [
        "flood/sv-dhcp-request-flood.pcap",
        "flood/sv-ipv6-dos-ext-headers-6.pcap",
        "scan/simple-scan-backscatter.pcap",
        "nmap/benign-http-burst.pcap",
        "nmap/nmap-sS-top1000.pcap",
        "attack/ndpi-WebattackXSS.pcap",
        "attack/slips-ssh-bruteforce.pcap",
        "manyconn/onvm-64B_download.pcap",
    ] {
        let steps = read(&traces.join(file));
        assert!(steps.len() > 100, "{file}");
        for floods in [false, true] {
            let mut three = Three::new(4);
            // Spread over twelve seconds: denser than they were.
            let of_second = steps.len().div_ceil(12);
            for (second, part) in (0u32..).zip(steps.chunks(of_second)) {
                part.iter().for_each(|(_, frame)| three.packet(frame));
                for number in 0..if floods { 400 } else { 0 } {
                    let client = client(second * 400 + number);
                    three.packet(&tcp(client, SERVICE, TcpFlags::SYN, b""));
                }
                three.second();
            }
            let found = three.floods();
            assert_eq!(found.len(), usize::from(floods), "{file}: {found:?}");
        }
    }
}
