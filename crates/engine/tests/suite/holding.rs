//! Packets that are held back until other members have what they depend on: nothing that the outside has seen is lost with a host.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use asterism_engine::{Cluster, FlowClass, HoldSettings, HostConfig, Overdue, host};
use asterism_function::chain::Chain;
use asterism_function::{
    Ask, Builder, Endpoint, Flow4, Late, Map, NetworkFunction, PortNumber, Protocol, Reason,
    Verdict, build, state,
};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::Port;
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

use crate::chain::letters::{self, always, stage};
use asterism_lab::outside;

/// Where the payload begins.
const PAYLOAD: usize = 42;
/// The first number of packets that depend on nothing.
const READS_NOTHING: u8 = 200;

/// Remembers who sent a packet, and answers the first one of each. Packets with numbers from [`READS_NOTHING`] on read nothing.
#[derive(Debug)]
struct Opener;

#[state]
struct Opened {
    flows: Map<Endpoint, ()>,
}

impl NetworkFunction for Opener {
    type State = Opened;
    fn state(&self, builder: &Builder) -> Opened {
        Opened {
            flows: builder.table("flows", 4_096, &[300]),
        }
    }
    fn packet(&self, ask: Ask<'_, Opened>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        if ask.packet().bytes()[PAYLOAD] >= READS_NOTHING {
            return Ok(Verdict::Forward(PortNumber(1)));
        }
        let entry = ask.flows.entry(flow.source())?;
        if entry.value().is_some() {
            return Ok(Verdict::Forward(PortNumber(1)));
        }
        let mut act = ask.act()?;
        act.flows.put(entry, ());
        act.emit(PortNumber(0), |packet, room| {
            let bytes = packet.bytes();
            room[..bytes.len()].copy_from_slice(bytes);
            // Of another flow: it follows nothing.
            room[PAYLOAD - 5] ^= 1;
            Some(bytes.len())
        });
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

fn source(flow: u16) -> Endpoint {
    Endpoint::new([10, 0, 0, 1].into(), 1_000 + flow, Protocol::UDP)
}

/// A packet of a flow with its number, short or of the common path.
fn packet(flow: u16, number: u8, to: u16, long: bool) -> Vec<u8> {
    let flow = Flow4 {
        source: source(flow).address,
        destination: [192, 0, 2, 1].into(),
        source_port: source(flow).port,
        destination_port: to,
        protocol: 17,
    };
    let mut bytes = vec![0; 128];
    let length = build::flow4(
        &flow,
        &[number; 24][..if long { 24 } else { 2 }],
        &mut bytes,
    );
    bytes.truncate(length.expect("room for a packet"));
    bytes
}

/// What left: by which member and port, of which flow, with which number.
type Left = (usize, u16, u16, u8);

/// A port of a member by which packets leave.
fn outside(member: usize, port: u16, left: Sender<Left>) -> Box<dyn Port> {
    outside::port(move |bytes| {
        let from = u16::from_be_bytes([bytes[34], bytes[35]]);
        let one = (member, port, from - 1_000, bytes[PAYLOAD]);
        left.send(one).expect("the test listens");
    })
}

const HOLD: HoldSettings = HoldSettings {
    copies: 1,
    packets_max: 64,
    bytes_max: 64 << 10,
    age_max: Duration::from_millis(100),
    overdue: Overdue::Drop,
    exempt: Vec::new(),
};

struct Hosts<F: NetworkFunction> {
    cluster: Cluster<F>,
    left: Receiver<Left>,
}

impl<F: NetworkFunction> Hosts<F> {
    /// Hosts with instances each, 100 µs apart.
    fn new(function: F, (count, lanes): (u16, u16), hold: &HoldSettings) -> Self {
        let function = Arc::new(function);
        let (sends, left) = channel();
        let names: Vec<_> = (0..count).map(MemberId).collect();
        let member = |&name: &MemberId| {
            let mut secrets = [0; 48];
            secrets[0] = name.0 as u8 + 1;
            let incarnation = Incarnation(u64::from(name.0) + 100);
            let key = ClusterKey::from_random(1, [7; 32]);
            let cluster = ClusterId(9);
            let mut config =
                HostConfig::new(cluster, name, incarnation, names.clone(), key, secrets);
            config.instances = lanes;
            config.hold = Some(hold.clone());
            let (channel, parts) = host(config, Time::ZERO).expect("a host");
            let start = |parts: asterism_engine::InstanceParts| {
                let port = |number| outside(name.0.into(), number, sends.clone());
                let settings = |_: &str| ObjectSettings {
                    holds_output: true,
                    ..ObjectSettings::REPLICATED
                };
                let pool = FramePool::new(256).expect("memory for frames");
                parts.start(function.clone(), settings, pool, vec![port(0), port(1)])
            };
            (name, channel, parts.into_iter().map(start).collect())
        };
        let members = names.iter().map(member).collect();
        let mut network = Network::new(42);
        network.set_defaults(LinkConditions::with_delay(Duration::from_micros(100)));
        let mut cluster = Cluster::new(members, network);
        cluster.run_until(Time::from_micros(500_000));
        Self { cluster, left }
    }

    fn inject(&mut self, member: usize, packet: &[u8]) {
        assert!(self.cluster.inject(member, 0, PortNumber(0), packet));
    }

    fn run(&mut self, us: u64) -> Vec<Left> {
        let until = self.cluster.now() + Duration::from_micros(us);
        self.cluster.run_until(until);
        let mut left: Vec<_> = self.left.try_iter().collect();
        // Of packets by several ports the order means nothing.
        left.sort_by_key(|left| left.1);
        left
    }

    fn dropped(&self, member: usize, reason: Reason) -> u64 {
        self.cluster.members()[member].instances[0]
            .tally()
            .dropped(reason)
    }

    fn cut(&mut self, is_cut: bool) {
        let change = |link: &mut LinkConditions| link.partitioned = is_cut;
        self.cluster.network_mut().change_all(change);
    }
}

impl Hosts<Opener> {
    /// How many other members have a flow.
    fn copies(&self, flow: u16, besides: usize) -> usize {
        let members = self.cluster.members().iter().enumerate();
        let others = members.filter(|(place, _)| *place != besides);
        let has = |instance: &asterism_engine::Instance<Opener>| {
            let row = source(flow).into();
            instance.state().flows.value_now(&row).is_some()
        };
        others
            .filter(|(_, member)| member.instances.iter().all(has))
            .count()
    }
}

/// Opens flows at all members on lossy links: of what left, each other member asked for has the flow. Each packet leaves once.
fn whatever_left_others_have(count: u16, copies: u32) {
    let mut hosts = Hosts::new(Opener, (count, 1), &HoldSettings { copies, ..HOLD });
    hosts.cluster.network_mut().change_all(|link| {
        (link.loss, link.jitter) = (0.05, Duration::from_micros(80));
    });
    let mut seen = BTreeSet::new();
    for flow in 0..300 {
        let member = usize::from(flow % count);
        hosts.inject(member, &packet(flow, 1, 53, flow % 2 == 0));
        for _ in 0..12 {
            for left in hosts.run(10) {
                let there = hosts.copies(left.2, left.0);
                assert!(there >= copies as usize, "{left:?} left: {there} have it");
                assert!(seen.insert(left), "{left:?} left twice");
            }
        }
    }
    seen.extend(hosts.run(50_000));
    assert_eq!(seen.len(), 600, "each packet and each answer left");
}

#[test]
fn what_the_outside_saw_so_many_other_members_have() {
    for (count, copies) in [(2, 1), (3, 1), (3, 2), (5, 2)] {
        whatever_left_others_have(count, copies);
    }
}

/// A packet that changed a flow leaves a round trip later, what reads nothing at once, and no packet of a flow before one ahead of it.
fn flows_keep_their_order() {
    let mut hosts = Hosts::new(Opener, (3, 1), &HOLD);
    hosts.inject(0, &packet(1, 1, 53, true));
    hosts.inject(0, &packet(1, 2, 53, false));
    hosts.inject(0, &packet(1, 3, 53, true));
    hosts.inject(0, &packet(2, 204, 53, true));
    assert_eq!(hosts.run(190), [(0, 1, 2, 204)], "the others wait");
    hosts.inject(0, &packet(1, 5, 53, true));
    let mut all = hosts.run(400);
    all.retain(|left| left.1 == 1);
    assert_eq!(all, [1, 2, 3, 5].map(|number| (0, 1, 1, number)));
    let tally = hosts.cluster.members()[0].instances[0].tally().clone();
    assert_eq!((tally.held_now, tally.held_bytes), (0, 0));
    assert!(tally.held >= 4 && tally.held_most >= 3, "{tally:?}");
    hosts.inject(0, &packet(1, 6, 53, true));
    assert_eq!(hosts.run(1), [(0, 1, 1, 6)], "nothing new: at once");
}

#[test]
fn packets_of_a_flow_leave_in_order_and_those_of_others_at_once() {
    flows_keep_their_order();
}

/// A packet that depends on nothing waits behind held ones of its flow.
fn followers_wait() {
    let mut hosts = Hosts::new(Opener, (2, 1), &HOLD);
    let numbers = [200, 1, 201, 2, 202];
    let burst = numbers.map(|number| packet(1, number, 53, number % 2 == 0));
    let packets = burst.iter().map(Vec::as_slice);
    let taken = hosts.cluster.inject_burst(0, 0, PortNumber(0), packets);
    assert_eq!(taken, numbers.len());
    assert_eq!(
        hosts.run(100),
        [(0, 1, 1, 200)],
        "what came before left before"
    );
    let mut all = hosts.run(400);
    all.retain(|left| left.1 == 1);
    assert_eq!(all, [1, 201, 2, 202].map(|number| (0, 1, 1, number)));
}

/// A later packet of a flow leaves with its flow, although another flow's packet was held before it.
fn flows_wait_for_themselves() {
    let mut hosts = Hosts::new(Opener, (2, 1), &HOLD);
    hosts.inject(0, &packet(1, 1, 53, true));
    assert_eq!(hosts.run(150), []);
    hosts.inject(0, &packet(2, 1, 53, true));
    hosts.inject(0, &packet(1, READS_NOTHING + 1, 53, true));
    let mut left = hosts.run(150);
    left.retain(|left| left.1 == 1);
    assert_eq!(left, [(0, 1, 1, 1), (0, 1, 1, READS_NOTHING + 1)]);
    let mut left = hosts.run(300);
    left.retain(|left| left.1 == 1);
    assert_eq!(left, [(0, 1, 2, 1)]);
}

#[test]
fn a_flow_waits_for_no_packet_of_another_one() {
    flows_wait_for_themselves();
}

#[test]
fn what_was_handed_on_before_a_held_packet_leaves_before_it() {
    followers_wait();
}

#[test]
fn exempt_flows_leave_at_once() {
    let exempt = vec![FlowClass {
        protocol: Protocol::UDP,
        ports: Some(53..=53),
    }];
    let mut hosts = Hosts::new(Opener, (2, 1), &HoldSettings { exempt, ..HOLD });
    hosts.inject(0, &packet(1, 1, 53, true));
    hosts.inject(0, &packet(2, 2, 54, true));
    let all = hosts.run(50);
    assert!(all.contains(&(0, 1, 1, 1)), "{all:?}");
    assert!(!all.contains(&(0, 1, 2, 2)), "{all:?}");
}

/// A packet that nobody confirms is dropped at its age limit, if the operator says so.
fn overdue_packets_are_dropped() {
    let mut hosts = Hosts::new(Opener, (2, 1), &HOLD);
    hosts.cut(true);
    hosts.inject(0, &packet(1, 1, 53, true));
    assert_eq!(hosts.run(90_000), []);
    assert_eq!(hosts.run(20_000), []);
    assert_eq!(hosts.dropped(0, Reason::HeldTooLong), 2);
    hosts.cut(false);
    hosts.run(300_000);
    hosts.inject(0, &packet(1, 2, 53, true));
    assert_eq!(hosts.run(1_000), [(0, 1, 1, 2)], "it is confirmed by now");
}

#[test]
fn a_packet_that_nobody_confirms_is_dropped_or_leaves_as_the_operator_says() {
    overdue_packets_are_dropped();
    let overdue = Overdue::Release;
    let mut hosts = Hosts::new(Opener, (2, 1), &HoldSettings { overdue, ..HOLD });
    hosts.cut(true);
    hosts.inject(0, &packet(1, 1, 53, true));
    assert_eq!(hosts.run(90_000), []);
    assert_eq!(hosts.run(20_000), [(0, 0, 1, 1), (0, 1, 1, 1)]);
    let tally = hosts.cluster.members()[0].instances[0].tally();
    assert_eq!(tally.released_unconfirmed, 2);
}

/// A flow that keeps sending is held no longer than another one.
fn followers_prolong_nothing() {
    let mut hosts = Hosts::new(Opener, (2, 1), &HOLD);
    hosts.cut(true);
    hosts.inject(0, &packet(1, 1, 53, true));
    for number in 0..8 {
        assert_eq!(hosts.run(12_000), []);
        hosts.inject(0, &packet(1, READS_NOTHING + number, 53, true));
    }
    let left = hosts.run(12_000);
    assert_eq!(hosts.dropped(0, Reason::HeldTooLong), 2, "after 108 ms");
    assert_eq!(left, [], "those behind it wait for what it waited for");
    hosts.cut(false);
    hosts.run(100_000);
    let tally = hosts.cluster.members()[0].instances[0].tally();
    assert_eq!(tally.held_now, 0);
}

#[test]
fn packets_behind_a_held_one_do_not_prolong_its_wait() {
    followers_prolong_nothing();
}

#[test]
fn packets_and_bytes_held_are_bounded() {
    let bounded = |packets_max, bytes_max, overdue| {
        let hold = HoldSettings {
            packets_max,
            bytes_max,
            overdue,
            ..HOLD
        };
        let mut hosts = Hosts::new(Opener, (2, 1), &hold);
        hosts.cut(true);
        for flow in 0..50 {
            hosts.inject(0, &packet(flow, 1, 53, true));
            hosts.run(1);
            let tally = hosts.cluster.members()[0].instances[0].tally();
            assert!(tally.held_now <= packets_max + 2 && tally.held_bytes <= bytes_max + 200);
        }
        let instance = &hosts.cluster.members()[0].instances[0];
        assert_eq!(instance.frames_in_use(), instance.held());
        let tally = instance.tally();
        (
            tally.dropped(Reason::HeldOverflow),
            tally.released_unconfirmed,
            tally.held_now,
        )
    };
    assert_eq!(bounded(40, 1 << 20, Overdue::Drop), (60, 0, 40));
    assert_eq!(bounded(40, 1 << 20, Overdue::Release), (0, 60, 40));
    let (dropped, _, held) = bounded(4_000, 1_000, Overdue::Drop);
    assert_eq!(dropped + held as u64, 100);
    assert!((10..=20).contains(&held), "{held}");
}

#[test]
fn a_host_alone_holds_nothing_back() {
    let mut hosts = Hosts::new(Opener, (1, 2), &HOLD);
    hosts.inject(0, &packet(1, 1, 53, true));
    assert_eq!(hosts.run(1_000), [(0, 0, 1, 1), (0, 1, 1, 1)]);
}

/// What another instance of the host wrote, no other host may have yet.
fn siblings_wait_too() {
    let mut hosts = Hosts::new(Opener, (2, 2), &HOLD);
    hosts.inject(0, &packet(1, 1, 53, true));
    assert_eq!(hosts.run(60), []);
    assert!(
        hosts
            .cluster
            .inject(0, 1, PortNumber(0), &packet(1, 2, 53, true))
    );
    assert_eq!(hosts.run(60), [], "it read what only this host has");
    assert_eq!(hosts.run(600).len(), 3);
}

#[test]
fn a_packet_waits_for_what_another_instance_of_its_host_wrote() {
    siblings_wait_too();
}

/// The last stage depends on nothing, the first one has written.
fn chains_wait_for_every_stage() {
    let chain = Chain::new(vec![stage(b'a'), always("out", 1)]).expect("a chain");
    let mut hosts = Hosts::new(chain, (2, 1), &HOLD);
    for flow in [1, 2] {
        hosts.inject(0, &letters::packet(flow, 1, b"--", false));
        assert_eq!(
            hosts.run(150),
            [],
            "no other host has what the first stage wrote"
        );
        assert_eq!(hosts.run(600).len(), 1);
    }
}

#[test]
fn a_packet_waits_for_what_every_stage_wrote() {
    chains_wait_for_every_stage();
}

#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_held_output_are_found() {
    use asterism_engine::mutant as engine;
    use asterism_placement::mutant as placement;
    use asterism_state::mutant as state;

    type Bug = (&'static str, fn(), fn());
    let all: [Bug; 10] = [
        (
            "an unconfirmed read leaves",
            || state::select(Some(state::Mutant::UnconfirmedReadLeaves)),
            siblings_wait_too,
        ),
        (
            "the first change confirms all",
            || state::select(Some(state::Mutant::FirstChangeConfirmsAll)),
            || whatever_left_others_have(3, 1),
        ),
        (
            "a stage forgets what a packet depends on",
            || state::select(Some(state::Mutant::StageForgetsDependency)),
            chains_wait_for_every_stage,
        ),
        (
            "what was sent counts as confirmed",
            || placement::select(Some(placement::Mutant::ConfirmedWhenSent)),
            || whatever_left_others_have(3, 1),
        ),
        (
            "one of two that are asked for is enough",
            || placement::select(Some(placement::Mutant::ConfirmedByOneOfMany)),
            || whatever_left_others_have(3, 2),
        ),
        (
            "a packet overtakes held ones of its flow",
            || engine::select(Some(engine::Mutant::HeldFlowOvertaken)),
            followers_wait,
        ),
        (
            "what a function emits leaves early",
            || engine::select(Some(engine::Mutant::EmissionLeavesEarly)),
            || whatever_left_others_have(3, 1),
        ),
        (
            "an overdue packet leaves although such packets are dropped",
            || engine::select(Some(engine::Mutant::OverdueLeavesAnyway)),
            overdue_packets_are_dropped,
        ),
        (
            "later packets of a flow prolong the wait of held ones",
            || engine::select(Some(engine::Mutant::FollowersProlongHolding)),
            followers_prolong_nothing,
        ),
        (
            "later packets of a flow wait for other flows",
            || engine::select(Some(engine::Mutant::FollowersWaitForAll)),
            flows_wait_for_themselves,
        ),
    ];
    for (what, plant, test) in all {
        let found = std::thread::spawn(move || {
            plant();
            test();
        });
        assert!(found.join().is_err(), "not found: {what}");
    }
}
