//! A function made of this room alone: it drops the probes of who scans, all SYNs to a service that is flooded, and what goes to a port
//! that gets too much.

use std::net::Ipv4Addr;

use asterism_detection::{
    Flood, FloodPolicy, Floods, Handshakes, Observation, Sample, Scanner, Scans, Service,
    SourceHistory, Thresholds, Traffic, VolumePolicy, Watch, flood, measures_volume, sees_floods,
    volume,
};
use asterism_function::build::{Header4, Segment, tcp4, udp4};
use asterism_function::testkit::{ClusterKit, Testkit, late_everywhere};
use asterism_function::{
    Ask, Builder, Counter, Counters, Late, Map, NetworkFunction, PortNumber, Reason, TcpFlags,
    Verdict, WindowedCountMin, state,
};

#[state]
struct Watched {
    histories: Map<Scanner, SourceHistory>,
    volume: Counters<u16>,
    watched: Map<u16, Watch>,
    syns: WindowedCountMin<Service>,
    handshakes: Map<Sample, Handshakes>,
    floods: Map<Service, Flood>,
    unrecorded: Counter,
}
sees_floods!(Watched);
measures_volume!(Watched);

struct Watchman {
    scans: Scans,
    floods: Option<Floods>,
    volume: Option<VolumePolicy>,
    most: u32,
}

/// With room for all that the tests need.
fn watchman() -> Watchman {
    let thresholds = Thresholds { ports: 7, hosts: 5 };
    let policy = VolumePolicy {
        bits: 8 * 54 * 1_000,
        window_s: 10,
        block_s: 30,
    };
    Watchman {
        scans: Scans::new(60, thresholds),
        floods: Some(Floods::new(FloodPolicy::default())),
        volume: Some(policy),
        most: 10_000,
    }
}

impl NetworkFunction for Watchman {
    type State = Watched;

    fn state(&self, builder: &Builder) -> Watched {
        let histories = self.scans.table(builder, self.most);
        let (volume, watched) = volume::tables(builder, self.volume.as_ref());
        let (syns, handshakes, floods) =
            flood::tables(builder, self.floods.as_ref(), self.most, self.most);
        Watched {
            histories,
            volume,
            watched,
            syns,
            handshakes,
            floods,
            unrecorded: builder.counter("unrecorded"),
        }
    }

    fn packet(&self, ask: Ask<'_, Watched>) -> Result<Verdict, Late> {
        let out = PortNumber(ask.port().0 ^ 1);
        let Some((source, observation)) = Observation::of(ask.packet()) else {
            return Ok(Verdict::Forward(out));
        };
        let traffic = Traffic::of(self.volume.as_ref(), &ask)?;
        if traffic
            .as_ref()
            .is_some_and(|traffic| traffic.is_blocked(ask.now()))
        {
            return Ok(Verdict::Drop(Reason::PortBlocked));
        }
        let update = match &observation {
            Some(observation) => self.scans.learn(&ask, &ask.histories, observation)?,
            None => Default::default(),
        };
        let step = match (&self.floods, &observation) {
            (None, _) => None,
            (Some(floods), None) => floods.acknowledged(&ask)?,
            (Some(floods), Some(observation)) => {
                floods.step(&ask, observation, |host| *host == exempt())?
            }
        };
        let scans = update.detected.is_some()
            && observation.is_some_and(|observation| observation.scanner == source);
        let is_flooded = step.as_ref().is_some_and(|step| step.flood().is_some());
        let addition = match traffic {
            Some(traffic) => Some(traffic.addition(&ask)?),
            None => None,
        };
        let mut act = ask.act()?;
        let unrecorded = update.write(&mut act.histories)
            + step.map_or(0, |step| step.write(&mut act))
            + addition.map_or(0, |addition| addition.write(&mut act));
        act.unrecorded.add(unrecorded);
        Ok(match scans || is_flooded {
            true => Verdict::Drop(Reason::Blocked),
            false => Verdict::Forward(out),
        })
    }
}

const IN: PortNumber = PortNumber(0);
const FORWARD: Verdict = Verdict::Forward(PortNumber(1));
const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
const RST_ACK: TcpFlags = TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0);
/// A service that clients of it use.
const SERVER: (u32, u16) = (1, 443);

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(10 << 24 | number)
}

/// Whose SYNs count for nothing.
fn exempt() -> asterism_function::Host {
    address(99).into()
}

fn tcp(from: (u32, u16), to: (u32, u16), flags: TcpFlags) -> Vec<u8> {
    let segment = Segment {
        sequence: u32::from(flags != RST_ACK),
        ..Segment::with_flags(flags)
    };
    let mut frame = vec![0; 100];
    let ends = Header4::between(address(from.0), address(to.0));
    let length = tcp4(&ends, from.1, to.1, &segment, b"", &mut frame).unwrap();
    frame.truncate(length);
    frame
}

fn syn(from: (u32, u16), to: (u32, u16)) -> Vec<u8> {
    tcp(from, to, TcpFlags::SYN)
}

/// A client's handshake with [`SERVER`], each packet of it.
fn handshake(client: (u32, u16)) -> [Vec<u8>; 3] {
    [
        syn(client, SERVER),
        tcp(SERVER, client, SYN_ACK),
        tcp(client, SERVER, TcpFlags::ACK),
    ]
}

/// Whether any SYN of a window of handshakes with [`SERVER`] was found to be part of a flood, of which so many are completed.
fn is_flood(kit: &mut Testkit<Watchman>, handshakes: u32, completed: u32, first: u32) -> bool {
    let mut found = false;
    for number in 0..handshakes {
        if number % (handshakes / 10) == 0 {
            kit.advance(1);
        }
        let packets = handshake((first + number, 40_000));
        let packets = if number % handshakes.div_ceil(completed.max(1)) == 0 && completed > 0 {
            &packets[..]
        } else {
            &packets[..1]
        };
        for packet in packets {
            found |= kit.packet(IN, packet).verdict == Verdict::Drop(Reason::Blocked);
        }
    }
    found
}

#[test]
fn a_sweep_is_found_by_what_was_refused_and_a_client_of_many_services_is_let_be() {
    let mut kit = Testkit::new(watchman());
    for host in 100..160 {
        for packet in handshake((host, 40_000)) {
            assert_eq!(kit.packet(IN, &packet).verdict, FORWARD);
        }
        let (client, server) = ((7, 40_000), (host, 80));
        for (packet, port) in [
            (syn(client, server), 0),
            (tcp(server, client, SYN_ACK), 1),
            (tcp(client, server, TcpFlags::ACK), 0),
            (tcp(server, client, TcpFlags::ACK), 1),
        ] {
            let verdict = kit.packet(PortNumber(port), &packet).verdict;
            assert_eq!(verdict, Verdict::Forward(PortNumber(port ^ 1)));
        }
    }
    let mut passed = 0;
    for host in 1_000..1_020 {
        let (scanner, target) = ((8, 40_000), (host, 22));
        passed += u32::from(kit.packet(IN, &syn(scanner, target)).verdict == FORWARD);
        let refusal = kit.packet(PortNumber(1), &tcp(target, scanner, RST_ACK));
        assert_eq!(
            refusal.verdict,
            Verdict::Forward(PortNumber(0)),
            "not a probe"
        );
    }
    assert_eq!(passed, 5);
    kit.advance(180);
    let later = kit.packet(IN, &syn((8, 40_000), (2_000, 22)));
    assert_eq!(later.verdict, FORWARD, "it is forgotten");
}

fn udp(from: (u32, u16), to: (u32, u16)) -> Vec<u8> {
    let ends = Header4::between(address(from.0), address(to.0));
    let mut frame = vec![0; 64];
    let length = udp4(&ends, from.1, to.1, b"x", &mut frame).unwrap();
    frame.truncate(length);
    frame
}

#[test]
fn silent_ports_say_less_of_a_host_that_sends_and_streams_say_nothing() {
    let stopped = |kit: &mut Testkit<Watchman>, ports: u16| {
        let probe = |port: &u16| {
            let probe = udp((1, 40_000), (2, 2_000 + port));
            kit.packet(IN, &probe).verdict != FORWARD
        };
        (0..ports).filter(probe).count()
    };
    assert_eq!(stopped(&mut Testkit::new(watchman()), 16), 0);
    assert!(stopped(&mut Testkit::new(watchman()), 40) >= 15);
    let mut kit = Testkit::new(watchman());
    kit.packet(IN, &udp((1, 40_000), (2, 2_000)));
    kit.packet(PortNumber(1), &udp((2, 9_000), (1, 9_000)));
    assert_eq!(stopped(&mut kit, 40), 0, "the host sends, too");
    // Only what adds to a full history is judged.
    assert!(stopped(&mut kit, 200) >= 5);
    let mut kit = Testkit::new(watchman());
    kit.packet(PortNumber(1), &udp((2, 9_000), (1, 9_000)));
    kit.packet(IN, &udp((1, 40_000), (2, 2_000)));
    kit.packet(PortNumber(1), &udp((2, 9_001), (1, 9_000)));
    assert_eq!(stopped(&mut kit, 40), 0, "either side may send first");
    let mut kit = Testkit::new(watchman());
    for _ in 0..300 {
        assert_eq!(stopped(&mut kit, 16), 0);
        kit.advance(7);
    }
}

#[test]
fn who_probes_through_two_instances_is_found_by_what_both_know() {
    let mut kit = ClusterKit::new(watchman(), 2, 5);
    let mut passed = 0;
    for port in 1..20 {
        let probe = syn((8, 40_000), (1_000, port));
        let outcome = kit.packet(usize::from(port % 2), IN, &probe);
        passed += u32::from(outcome.verdict == FORWARD);
        kit.exchange();
    }
    assert!((6..9).contains(&passed), "{passed} passed");
    kit.agree();
}

#[test]
fn handshakes_that_nobody_completes_are_a_flood_and_completed_ones_are_none() {
    let mut kit = Testkit::new(Watchman {
        volume: None,
        ..watchman()
    });
    assert!(!is_flood(&mut kit, 2_000, 2_000, 1_000), "all completed");
    kit.advance(60);
    assert!(!is_flood(&mut kit, 500, 0, 10_000), "half of the threshold");
    kit.advance(60);
    assert!(is_flood(&mut kit, 2_000, 0, 20_000));
    assert_eq!(kit.state().unrecorded.get(), Ok(0));
}

#[test]
fn syns_of_who_is_exempt_count_for_nothing() {
    let mut kit = Testkit::new(Watchman {
        volume: None,
        ..watchman()
    });
    for number in 0..4_000u16 {
        if number % 400 == 0 {
            kit.advance(1);
        }
        kit.packet(IN, &syn((99, 1_000 + number), SERVER));
    }
    assert!(kit.state().handshakes.is_empty_now());
}

#[test]
fn a_port_that_gets_too_much_is_blocked_for_a_while() {
    let mut kit = Testkit::new(watchman());
    let frame = tcp((9, 9_000), (2, 8_000), TcpFlags::ACK);
    let passed = |kit: &mut Testkit<Watchman>| {
        let passed = |_: &u32| kit.packet(IN, &frame).verdict == FORWARD;
        (0..3_000).filter(passed).count()
    };
    // What goes before the port is watched is not of its first window.
    assert_eq!(frame.len(), 54);
    let first = passed(&mut kit);
    assert!((1_000..1_100).contains(&first), "{first} passed");
    kit.advance(29);
    assert_eq!(passed(&mut kit), 0);
    kit.advance(1);
    assert_eq!(
        passed(&mut kit),
        1_002,
        "a window is counted from its first packet"
    );
}

#[test]
fn what_there_is_no_room_for_is_said_and_passes() {
    let mut kit = Testkit::new(Watchman {
        most: 1,
        ..watchman()
    });
    for client in 1..=10 {
        let probe = syn((client, 40_000), SERVER);
        assert_eq!(kit.packet(IN, &probe).verdict, FORWARD);
    }
    assert_eq!(kit.state().unrecorded.get(), Ok(9));
}

/// Every read of it may be late: of histories, samples, floods, volumes and watches.
#[test]
fn late_answers_change_nothing() {
    let build = || Watchman {
        volume: Some(VolumePolicy {
            bits: 8 * 54 * 2_000,
            window_s: 10,
            block_s: 30,
        }),
        ..watchman()
    };
    let mut steps = Vec::new();
    for number in 0..1_800 {
        let seconds = u32::from(number % 150 == 0);
        steps.push((seconds, IN, syn((20_000 + number, 40_000), SERVER)));
        steps.push((0, IN, syn((8, 40_000), (1_000 + number, 22))));
        let answer = tcp((1_000 + number, 22), (8, 40_000), RST_ACK);
        steps.push((0, PortNumber(1), answer));
        for _ in 0..2 {
            steps.push((0, IN, tcp((9, 9_000), (2, 8_000), TcpFlags::ACK)));
        }
    }
    let mut kit = Testkit::new(build());
    for (seconds, port, packet) in &steps {
        kit.advance(*seconds);
        kit.packet(*port, packet);
    }
    let state = kit.state();
    assert_eq!(state.floods.len_now(), 1);
    assert!(
        state
            .watched
            .get(&8_000)
            .unwrap()
            .unwrap()
            .value
            .blocked_until
            > 0
    );
    late_everywhere(build, &steps);
}
