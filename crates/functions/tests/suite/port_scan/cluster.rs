//! Several instances that exchange operations: evidence that is split between them adds up.

use asterism_function::testkit::ClusterKit;
use asterism_function::{PortNumber, Reason, TcpFlags, Verdict};
use asterism_functions::port_scan::{
    Alert, Class, PortScan, PortScanConfig, Response, Shape, Subject, VolumePolicy,
};

use crate::port_scan::capture::{Step, detect, read, traces};
use crate::port_scan::packets::{host, ping, syn, tcp, udp};

/// Instances of the function; what they write waits until [`Cluster::exchange`].
pub(crate) struct Cluster {
    kit: ClusterKit<PortScan>,
    count: usize,
}

impl Cluster {
    pub(crate) fn new(config: PortScanConfig, count: u16, seed: u64) -> Self {
        Self {
            kit: ClusterKit::new(PortScan::new(config), count, seed),
            count: usize::from(count),
        }
    }

    pub(crate) fn packet(&mut self, member: usize, frame: &[u8]) -> Verdict {
        let outcome = self.kit.packet(member % self.count, PortNumber(0), frame);
        outcome.verdict
    }

    pub(crate) fn advance(&mut self, seconds: u32) {
        self.kit.advance(seconds);
    }

    pub(crate) fn exchange(&mut self) {
        self.kit.exchange();
    }

    pub(crate) fn alerts(&self, member: usize) -> Vec<(Subject, Alert)> {
        self.kit.state(member).alerts()
    }

    /// The alerts, demanding that all members agree on the whole state.
    pub(crate) fn agreed(&mut self) -> Vec<(Subject, Alert)> {
        self.kit.agree();
        for member in 0..self.count {
            assert_eq!(self.alerts(member), self.alerts(0));
            assert_eq!(self.kit.state(member).unrecorded.get(), Ok(0));
        }
        self.alerts(0)
    }
}

/// Deals a capture over `count` instances, each packet to one at random, with an exchange after every `lag` packets.
pub(crate) fn deal(steps: &[Step], count: u16, lag: usize, seed: u64) -> Vec<(Subject, Alert)> {
    let mut cluster = Cluster::new(detect(), count, seed);
    let mut random = seed;
    for (place, (seconds, frame)) in steps.iter().enumerate() {
        // Some captures jump by years, which no lag does: operations carry the low bits of times.
        if *seconds > 3_600 {
            cluster.exchange();
        }
        cluster.advance(*seconds);
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        cluster.packet((random >> 33) as usize, frame);
        if place % lag == lag - 1 {
            cluster.exchange();
        }
    }
    let alerts = cluster.agreed();
    assert_eq!(cluster.kit.state(0).floods(), []);
    alerts
}

fn subject(source: u16, class: Class, shape: Shape) -> Subject {
    Subject {
        source: host(source).into(),
        class,
        shape,
    }
}

#[test]
fn nine_ports_are_a_scan_though_no_instance_sees_more_than_three() {
    let probes: Vec<_> = (0..9).map(|port| syn(1, (2, 100 + port))).collect();
    let mut alone = Cluster::new(detect(), 3, 5);
    for (place, probe) in probes.iter().enumerate() {
        alone.packet(place, probe);
    }
    for member in 0..3 {
        assert_eq!(alone.alerts(member), [], "three ports are no scan");
    }
    let mut together = Cluster::new(detect(), 3, 5);
    for (place, probe) in probes.iter().enumerate() {
        together.packet(place, probe);
        together.exchange();
    }
    let alerts = together.agreed();
    assert_eq!(alerts.len(), 1);
    assert_eq!(alerts[0].0, subject(1, Class::Tcp, Shape::Ports));
    assert!(alerts[0].1.ports >= 7);
}

#[test]
fn answers_seen_by_another_instance_count_even_if_they_overtake() {
    for lag in [1, 2, 40] {
        let mut cluster = Cluster::new(detect(), 2, 5);
        for number in 0..20 {
            // Twenty services of twenty ports on one host, all of which answer: the client's half of each connection
            // goes through one instance, the server's through the other.
            let (client, server) = ((1, 40_000 + number), (2, 1_000 + number));
            cluster.packet(0, &tcp(client, server, TcpFlags::SYN, b""));
            cluster.packet(1, &tcp(server, client, TcpFlags::SYN | TcpFlags::ACK, b""));
            if number % lag == 0 {
                cluster.exchange();
            }
            if lag == 40 && number == 5 {
                // Within a long lag each side may hold no more than is below the threshold.
                break;
            }
        }
        assert_eq!(cluster.agreed(), [], "lag of {lag} connections");
    }
}

#[test]
fn a_sweep_and_a_udp_scan_are_found_in_parts() {
    let mut cluster = Cluster::new(detect(), 3, 9);
    for number in 0..30 {
        cluster.packet(usize::from(number), &ping(1, 100 + number));
        cluster.packet(usize::from(number), &syn(2, (100 + number, 23)));
        cluster.packet(
            usize::from(number),
            &udp((3, 50_000), (100, 2_000 + number), b"x"),
        );
        cluster.exchange();
    }
    let found: Vec<_> = cluster
        .agreed()
        .into_iter()
        .map(|(subject, _)| subject)
        .collect();
    assert_eq!(found.len(), 3);
    for expected in [
        subject(1, Class::Icmp, Shape::Hosts),
        subject(2, Class::Tcp, Shape::Hosts),
        subject(3, Class::Udp, Shape::Ports),
    ] {
        assert!(found.contains(&expected), "{expected:?}");
    }
}

#[test]
fn a_source_blocked_by_one_instance_is_blocked_by_all() {
    let block = PortScanConfig {
        response: Response::Block { block_s: 100 },
        ..PortScanConfig::default()
    };
    let mut cluster = Cluster::new(block, 3, 5);
    let mut verdict = Verdict::Consumed;
    for port in 0..20 {
        verdict = cluster.packet(0, &syn(1, (2, port)));
    }
    assert_eq!(verdict, Verdict::Drop(Reason::Blocked));
    let unrelated = udp((1, 9), (7, 9), b"x");
    assert_eq!(
        cluster.packet(1, &unrelated),
        Verdict::Forward(PortNumber(1)),
        "within the lag"
    );
    cluster.exchange();
    assert_eq!(
        cluster.packet(1, &unrelated),
        Verdict::Drop(Reason::Blocked)
    );
    assert_eq!(
        cluster.packet(2, &syn(9, (2, 1))),
        Verdict::Forward(PortNumber(1)),
        "others are not"
    );
    cluster.advance(100);
    assert_eq!(
        cluster.packet(2, &unrelated),
        Verdict::Forward(PortNumber(1)),
        "the block has ended"
    );
}

#[test]
fn one_entry_however_many_instances_find_it_at_once() {
    let mut cluster = Cluster::new(detect(), 3, 5);
    for member in 0..3 {
        for port in 0..30 {
            cluster.packet(member, &syn(1, (2, port)));
        }
        cluster.advance(1);
    }
    let alerts = cluster.agreed();
    assert_eq!(alerts.len(), 1);
    assert_eq!(alerts[0].1.first, 1_000, "the earliest time stands");
}

#[test]
fn clocks_that_differ_lose_no_evidence() {
    let config = PortScanConfig {
        // Sums of windows hold for clocks that differ by no more than is stated.
        flood: None,
        ..detect()
    };
    let mut cluster = Cluster::new(config, 2, 5);
    // Three windows behind.
    cluster.kit.set_behind(1, 180);
    for port in 0..10 {
        cluster.packet(usize::from(port % 2), &syn(1, (2, port)));
        cluster.exchange();
    }
    assert_eq!(cluster.agreed().len(), 1);
}

#[test]
fn a_port_is_blocked_by_the_volume_of_all_instances() {
    let volume = VolumePolicy {
        bits: 100_000,
        ..VolumePolicy::default()
    };
    let mut cluster = Cluster::new(
        PortScanConfig {
            volume: Some(volume),
            ..detect()
        },
        2,
        5,
    );
    let frame = udp((1, 9_000), (2, 9), &[0; 1_000]);
    let bits = 8 * frame.len() as u64;
    let allowed = volume.bits / bits;
    let mut passed = 0;
    for number in 0..40 {
        passed += u64::from(cluster.packet(number, &frame) == Verdict::Forward(PortNumber(1)));
        cluster.exchange();
    }
    assert_eq!(
        passed,
        allowed + 1,
        "the packet that passes the threshold is the last"
    );
    assert_eq!(
        cluster.packet(0, &udp((1, 9_000), (2, 10), b"")),
        Verdict::Forward(PortNumber(1))
    );
    cluster.agreed();
}

#[test]
fn captures_dealt_over_three_instances_give_the_labelled_scanners() {
    let Some(traces) = traces("captures_dealt_over_three_instances_give_the_labelled_scanners")
    else {
        return;
    };
    for label in crate::port_scan::labelled::labels(&traces) {
        let steps = read(&traces.join(&label.file));
        for (lag, seed) in [(1, 3), (2, 4), (16, 5)] {
            // Ten probes within one lag are known to nobody in time.
            if lag > steps.len() / 5 {
                continue;
            }
            let found = deal(&steps, 3, lag, seed);
            label.check(&found, &format!("lag of {lag} packets"));
        }
    }
}

#[test]
fn the_secret_seldom_decides() {
    let Some(traces) = traces("the_secret_seldom_decides") else {
        return;
    };
    const SEEDS: u64 = 20;
    for label in crate::port_scan::labelled::labels(&traces) {
        let steps = read(&traces.join(&label.file));
        let fits = (1..=SEEDS)
            .filter(|seed| label.fits(&deal(&steps, 1, 1, seed * 7_919)))
            .count() as u64;
        // The shortest captures have ten probes, of which chance may put several into one bit.
        let least = if steps.len() > 20 { SEEDS } else { SEEDS - 1 };
        assert!(fits >= least, "{}: {fits} of {SEEDS} seeds", label.file);
    }
}
