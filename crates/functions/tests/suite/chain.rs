//! Real functions in a chain: beside the same functions called one after the other, and with every read late.

use std::net::Ipv4Addr;
use std::sync::Arc;

use asterism_blocking::manual::Order;
use asterism_function::chain::{Chain, OnFailure, Stage};
use asterism_function::records::read_records;
use asterism_function::testkit::{START_TICK, Testkit, late_everywhere, measured};
use asterism_function::{
    CONTROL, Endpoint, MacAddress, Observable, PortNumber, Protocol, Reason, TcpFlags, Verdict,
    build, objects_of,
};
use asterism_functions::firewall::{Firewall, FirewallConfig, FirewallState, read_rules};
use asterism_functions::monitor::{FlowRecord, Monitor, MonitorConfig};
use asterism_functions::nat::{
    BY_INSIDE, Interface, Nat, NatConfig, NatState, Prefix, Route, Side,
};
use asterism_functions::pass_through::{Access, PassThrough, PassThroughState};
use asterism_functions::port_scan::{PortScan, PortScanConfig, PortScanState, Response};
use asterism_functions::signature::{
    Carrier, Signature, SignatureConfig, SignatureState, Signatures,
};

const INSIDE: PortNumber = PortNumber(0);
const OUTSIDE: PortNumber = PortNumber(1);

fn scan() -> PortScan {
    PortScan::new(PortScanConfig {
        response: Response::Block { block_s: 60 },
        ports: 4,
        histories_max: 1 << 10,
        ..PortScanConfig::default()
    })
}

fn nat() -> Nat {
    let mac = MacAddress([2, 0, 0, 0, 0, 1]);
    let mut inside = Interface::new(INSIDE, Ipv4Addr::new(192, 168, 1, 1), 24, mac);
    let mut outside = Interface::new(OUTSIDE, Ipv4Addr::new(203, 0, 112, 1), 24, mac);
    inside.promiscuous = true;
    outside.promiscuous = true;
    let routers = [Ipv4Addr::new(192, 168, 1, 2), Ipv4Addr::new(203, 0, 112, 2)];
    let route = |prefix, side, next_hop| Route {
        prefix,
        side,
        next_hop: Some(next_hop),
    };
    Nat::new(NatConfig {
        routes: vec![
            route(
                Prefix::new([10, 0, 0, 0].into(), 8),
                Side::Inside,
                routers[0],
            ),
            route(Prefix::ALL, Side::Outside, routers[1]),
        ],
        neighbours: routers
            .map(|router| (router, MacAddress([2, 0, 0, 0, 0, 9])))
            .to_vec(),
        sessions_max: 1 << 10,
        ..NatConfig::new(inside, outside, vec![Ipv4Addr::new(203, 0, 113, 1)])
    })
    .unwrap()
}

fn count() -> PassThrough {
    PassThrough {
        access: Access::ReadWrite,
    }
}

fn chain() -> Chain {
    let stages = vec![
        Stage::new("scan", Arc::new(scan())),
        Stage::new("nat", Arc::new(nat())),
        Stage::new("count", Arc::new(count())),
    ];
    Chain::new(stages).unwrap()
}

fn segment(from: Endpoint, to: Endpoint, flags: TcpFlags) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let length = build::tcp4(
        &build::Header4::between(from.address, to.address),
        from.port,
        to.port,
        &build::Segment::with_flags(flags),
        &[],
        &mut bytes,
    )
    .unwrap();
    bytes.truncate(length);
    bytes
}

/// Functions as separate boxes, one behind the other.
struct Boxes {
    scan: Testkit<PortScan>,
    nat: Testkit<Nat>,
    count: Testkit<PassThrough>,
}

impl Boxes {
    /// What leaves the last box; drops say where they were.
    fn packet(&mut self, port: PortNumber, bytes: &[u8]) -> (Verdict, Vec<u8>) {
        let order = if port == INSIDE { [0, 1, 2] } else { [2, 1, 0] };
        let mut bytes = bytes.to_vec();
        for place in order {
            let outcome = match place {
                0 => self.scan.packet(port, &bytes),
                1 => self.nat.packet(port, &bytes),
                _ => self.count.packet(port, &bytes),
            };
            bytes = outcome.packet;
            if outcome.verdict != Verdict::Forward(PortNumber(port.0 ^ 1)) {
                return (outcome.verdict, bytes);
            }
        }
        (Verdict::Forward(PortNumber(port.0 ^ 1)), bytes)
    }
}

/// Connections that are answered, and one source that tries a port after the other and is refused.
fn traffic(kit: &mut Testkit<Chain>) -> Vec<(u32, PortNumber, Vec<u8>)> {
    let tcp = |address: [u8; 4], port| Endpoint::new(address.into(), port, Protocol::TCP);
    let mut steps = Vec::new();
    let mut send = |kit: &mut Testkit<Chain>, port, bytes: Vec<u8>| {
        let outcome = kit.packet(port, &bytes);
        steps.push((0, port, bytes));
        outcome.verdict
    };
    for number in 0..40u16 {
        let scans = number % 2 == 1;
        let host = if scans { 66 } else { 1 + number as u8 };
        let inside = tcp([10, 0, 0, host], 2_000 + number);
        let remote = tcp([198, 51, 100, 7], if scans { 100 + number } else { 443 });
        send(kit, INSIDE, segment(inside, remote, TcpFlags::SYN));
        let nat = kit.state().stage::<NatState>(1).unwrap();
        let known = nat.sessions.any_of(BY_INSIDE, &inside).unwrap();
        let Some(outside) = known.map(|at| at.row.outside()) else {
            continue;
        };
        let answer = if scans {
            TcpFlags::RST | TcpFlags::ACK
        } else {
            TcpFlags::SYN | TcpFlags::ACK
        };
        send(kit, OUTSIDE, segment(remote, outside, answer));
        if !scans {
            send(kit, INSIDE, segment(inside, remote, TcpFlags::ACK));
        }
    }
    steps
}

#[test]
fn a_chain_does_what_its_functions_do_one_behind_the_other() {
    let mut chained = Testkit::new(chain());
    let steps = traffic(&mut chained);
    let mut chained = Testkit::new(chain());
    let mut boxes = Boxes {
        scan: Testkit::new(scan()),
        nat: Testkit::new(nat()),
        count: Testkit::new(count()),
    };
    let (mut forwarded, mut blocked) = (0, 0);
    for (place, (_, port, bytes)) in steps.iter().enumerate() {
        let outcome = chained.packet(*port, bytes);
        let (verdict, packet) = boxes.packet(*port, bytes);
        assert_eq!(outcome.verdict, verdict, "packet {place}");
        if let Verdict::Forward(_) = verdict {
            forwarded += 1;
            assert_eq!(outcome.packet, packet, "packet {place}");
        }
        blocked += u64::from(verdict == Verdict::Drop(Reason::Blocked));
    }
    assert!(
        forwarded > 60 && blocked > 5,
        "{forwarded} forwarded, {blocked} blocked"
    );
    let counted = chained.state().stage::<PassThroughState>(2).unwrap();
    assert_eq!(counted.packets.get(), boxes.count.state().packets.get());
    let tallies: Vec<_> = chained.state().tallies().cloned().collect();
    assert_eq!(tallies[0].dropped(Reason::Blocked), blocked);
    assert_eq!(tallies[0].asked(), tallies[0].acted);
}

#[test]
fn a_chain_fares_alike_when_every_read_of_every_stage_is_late() {
    let steps = traffic(&mut Testkit::new(chain()));
    late_everywhere(chain, &steps);
}

#[test]
fn objects_of_two_stages_of_one_kind_are_two() {
    let stages = ["one", "two"].map(|name| Stage::new(name, Arc::new(count())));
    let chain = Chain::new(stages.into()).unwrap();
    assert_eq!(objects_of(&chain), ["one.packets", "two.packets"]);
    let mut kit = Testkit::new(chain);
    let to = Endpoint::new([10, 0, 0, 2].into(), 2, Protocol::TCP);
    let from = Endpoint::new([10, 0, 0, 1].into(), 1, Protocol::TCP);
    for _ in 0..3 {
        kit.packet(INSIDE, &segment(from, to, TcpFlags::ACK));
    }
    for number in 0..2 {
        let counted = kit.state().stage::<PassThroughState>(number).unwrap();
        assert_eq!(counted.packets.get(), Ok(3));
    }
}

/// What a stage tells is what it would tell alone; the others of the chain are not asked.
#[test]
fn a_stage_is_asked_for_a_report_by_its_number() {
    let monitor = Monitor::new(MonitorConfig::default());
    let stages = vec![
        Stage::new("count", Arc::new(count())),
        Stage::new("monitor", Arc::new(monitor)),
    ];
    let mut chained = Testkit::new(Chain::new(stages).unwrap());
    let mut alone = Testkit::new(monitor);
    for port in 1..20 {
        let tcp = |address: [u8; 4], port| Endpoint::new(address.into(), port, Protocol::TCP);
        let (from, to) = (tcp([10, 0, 0, 1], port), tcp([10, 0, 0, 2], 443));
        let bytes = segment(from, to, TcpFlags::SYN);
        let verdicts = [
            chained.packet(INSIDE, &bytes).verdict,
            alone.packet(INSIDE, &bytes).verdict,
        ];
        assert_eq!(verdicts, [Verdict::Forward(OUTSIDE); 2]);
    }
    let interval = START_TICK / monitor.config().interval_s;
    let all = (0, u32::MAX);
    let mut own = Vec::new();
    monitor.report(alone.state(), interval, all, &mut own);
    let ask = |stage, out: &mut Vec<u8>| {
        let question = Chain::question(stage, interval).unwrap();
        chained
            .function()
            .report(chained.state(), question, all, out)
    };
    let records = |bytes: &[u8]| {
        let mut records = Vec::new();
        assert!(read_records(bytes, |record: FlowRecord| records.push((
            record.flow,
            record.packets,
            record.bytes
        ))));
        records.sort();
        records
    };
    let mut reported = Vec::new();
    assert_eq!(ask(1, &mut reported), None);
    assert_eq!(records(&reported), records(&own));
    assert_eq!(records(&reported).len(), 19);
    for other in [0, 7] {
        let mut nothing = Vec::new();
        assert_eq!(ask(other, &mut nothing), None);
        assert!(nothing.is_empty());
    }
    assert_eq!(Chain::question(8, interval), None);
    assert_eq!(Chain::question(1, 1 << 29), None);
}

/// What the control side tells a stage comes to it and no other, wherever it stands, also one that gets copies; a stage that does not know
/// what it says drops it, as do the numbers of no stage. Of each answer late it fares alike.
#[test]
fn a_stage_is_reported_which_to_block_by_its_number() {
    let chain = || {
        let signatures = SignatureConfig::new(vec![Signature {
            id: 1,
            message: String::new(),
            bytes: b"EVIL-stuf7+X".to_vec(),
            carrier: Carrier::Any,
            ports: Vec::new(),
        }]);
        let rules = FirewallConfig {
            rules: read_rules("default allow\n").unwrap(),
            settle_us: 0,
            ..FirewallConfig::default()
        };
        let watch = Stage::new("watch", Arc::new(Signatures::new(signatures).unwrap()));
        let stages = vec![
            Stage::new("count", Arc::new(count())).on_failure(OnFailure::Bypass),
            Stage::new("scan", Arc::new(scan())),
            watch.mirrors(),
            Stage::new("nat", Arc::new(nat())),
            Stage::new("guard", Arc::new(Firewall::new(rules))),
        ];
        Chain::new(stages).unwrap()
    };
    let source = Ipv4Addr::new(10, 0, 0, 1);
    let outside = Ipv4Addr::new(203, 0, 113, 1);
    let order = |source: Ipv4Addr| Order::Block {
        source: source.into(),
        seconds: 60,
    };
    let at = |stage| Chain::control(stage).unwrap();
    let mut kit = Testkit::new(chain());
    let blocked = |kit: &Testkit<Chain>| {
        let state = kit.state();
        [
            state.stage::<PortScanState>(1).unwrap().blocked.len_now(),
            state.stage::<SignatureState>(2).unwrap().manual.len_now(),
            state.stage::<FirewallState>(4).unwrap().blocked.len_now(),
        ]
    };
    let mut steps = Vec::new();
    let mut reported = |kit: &mut Testkit<Chain>, port, frame: Vec<u8>| {
        let verdict = kit.packet(port, &frame).verdict;
        steps.push((0, port, frame));
        verdict
    };
    assert_eq!(
        reported(&mut kit, at(1), order(source).frame()),
        Verdict::Consumed
    );
    assert_eq!(blocked(&kit), [1, 0, 0]);
    assert_eq!(
        reported(&mut kit, at(2), order(source).frame()),
        Verdict::Consumed
    );
    assert_eq!(blocked(&kit), [1, 1, 0]);
    assert_eq!(
        reported(&mut kit, at(4), order(outside).frame()),
        Verdict::Consumed
    );
    assert_eq!(blocked(&kit), [1, 1, 1]);
    let tcp = |address, port| Endpoint::new(address, port, Protocol::TCP);
    let remote = tcp(Ipv4Addr::new(198, 51, 100, 7), 443);
    let syn = |from| segment(tcp(from, 2_000), remote, TcpFlags::SYN);
    let dropped = Verdict::Drop(Reason::Blocked);
    assert_eq!(reported(&mut kit, INSIDE, syn(source)), dropped);
    // Another one's packet has the blocked address where the last stage sees it.
    let other = Ipv4Addr::new(10, 0, 0, 2);
    assert_eq!(reported(&mut kit, INSIDE, syn(other)), dropped);
    let tally = |kit: &Testkit<Chain>, stage: usize, reason| {
        kit.state().tallies().nth(stage).unwrap().dropped(reason)
    };
    assert_eq!(tally(&kit, 1, Reason::Blocked), 1);
    assert_eq!(tally(&kit, 4, Reason::Blocked), 1);
    let lift = Order::Unblock(outside.into()).frame();
    assert_eq!(reported(&mut kit, at(4), lift), Verdict::Consumed);
    assert_eq!(
        reported(&mut kit, INSIDE, syn(other)),
        Verdict::Forward(OUTSIDE)
    );
    // It does not know the frame, and whatever is done when it fails nobody else gets it.
    let unknown = Verdict::Drop(Reason::NotForUs);
    assert_eq!(reported(&mut kit, at(0), order(source).frame()), unknown);
    assert_eq!(tally(&kit, 0, Reason::NotForUs), 1);
    assert_eq!(reported(&mut kit, at(5), order(source).frame()), unknown);
    assert_eq!(reported(&mut kit, CONTROL, order(source).frame()), unknown);
    assert_eq!(Chain::control(8), None);
    assert_eq!(blocked(&kit), [1, 1, 0]);
    late_everywhere(chain, &steps);
}

/// Stages measure what their functions do alone, each under its name; a chain may have more metrics than a function.
#[test]
fn stages_tell_the_metrics_of_their_functions() {
    let watches = ["first", "second", "third"];
    let monitor = |name| Stage::new(name, Arc::new(Monitor::new(MonitorConfig::default())));
    let chain = Chain::new(watches.map(monitor).into()).unwrap();
    assert!(chain.metrics().len() > asterism_function::OWN_METRICS_MAX);
    let scans = Stage::new("scans", Arc::new(scan()));
    let chain = Chain::new(vec![monitor("watch"), scans]).unwrap();
    let mut kit = Testkit::new(chain);
    let end = |last, port| Endpoint::new(Ipv4Addr::new(10, 0, 0, last), port, Protocol::TCP);
    for port in 1..=20 {
        kit.packet(
            INSIDE,
            &segment(end(1, 40_000), end(2, port), TcpFlags::SYN),
        );
    }
    let named = |name| measured(kit.function(), kit.state(), name);
    assert_eq!(named("watch.tcp_packets_total"), 20);
    assert_eq!(named("watch.talking_hosts"), 2);
    assert_eq!(named("scans.watched_trails"), 1);
    assert_eq!(named("scans.alerts_total"), 1);
    assert_eq!(named("scans.blocked_sources"), 1);
}
