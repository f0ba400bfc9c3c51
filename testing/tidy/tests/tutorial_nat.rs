//! The code of docs/src/tutorial-nat.md: a NAT made of the library's parts, run with packets in both directions, with late
//! reads, as two replicas, and by the contract of all functions.

use core::net::Ipv4Addr;
use core::ops::ControlFlow;

use asterism_forwarding::{
    Errors, Fragmented, Fragments, Neighbours, PacketClass, Progress, Side, forwards, tables,
};
use asterism_function::{
    Ask, Builder, Endpoint, Late, Map, NetworkFunction, Pool, Table, Verdict, state,
};
use asterism_translation::{Asked, OutsidePorts, Session, Translator, translates};

/// What all instances of the NAT share.
#[state]
pub struct NatState {
    /// Sessions, each found by its inside and by its outside endpoints.
    pub sessions: Table<Session, Progress>,
    /// Outside endpoints, leased to instances in blocks.
    pub ports: Pool<OutsidePorts>,
    /// Mappings that inside hosts asked for.
    pub mappings: Map<Endpoint, Asked>,
    /// First fragments, by which later ones are recognised.
    pub fragments: Fragments<Fragmented>,
    /// Ethernet addresses of neighbours.
    pub neighbours: Neighbours,
    /// ICMP errors sent in this second.
    pub errors: Errors,
}
forwards!(NatState, Fragmented);
translates!(NatState);

/// Lets inside hosts share a few outside addresses.
pub struct Nat(pub Translator);

impl NetworkFunction for Nat {
    type State = NatState;

    fn state(&self, builder: &Builder) -> NatState {
        let (sessions, ports, mappings) = self.0.tables(builder);
        let (fragments, neighbours, errors) = tables(builder, 1_024, 1_024);
        NatState {
            sessions,
            ports,
            mappings,
            fragments,
            neighbours,
            errors,
        }
    }

    fn packet(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        let (ask, side, class) = match self.0.router.admit(ask)? {
            ControlFlow::Continue(admitted) => admitted,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        match (side, class) {
            (Side::Inside, PacketClass::Flow(flow) | PacketClass::Query(flow)) => {
                self.0.outbound(ask, flow, false)
            }
            (Side::Outside, PacketClass::Flow(flow) | PacketClass::Reply(flow)) => {
                self.0.inbound(ask, flow)
            }
            (Side::Inside, PacketClass::Error(flow)) => self.0.error_from_inside(ask, flow),
            (Side::Outside, PacketClass::Error(flow)) => self.0.error_from_outside(ask, flow),
            _ => self.0.own(ask),
        }
    }

    fn addresses(&self) -> Vec<Ipv4Addr> {
        self.0.addresses()
    }

    fn schema(&self) -> u64 {
        self.0.schema()
    }
}

use asterism_forwarding::Interface;
use asterism_function::build::{Header4, Segment};
use asterism_function::objects::ObjectSettings;
use asterism_function::testkit::{ClusterKit, Contract, Reached, Step, Testkit, late_everywhere};
use asterism_function::{
    Absence, Flow4, MacAddress, Packet, PortNumber, Protocol, Reason, TcpFlags, build,
};
use asterism_translation::NatConfig;

const INSIDE: PortNumber = PortNumber(0);
const OUTSIDE: PortNumber = PortNumber(1);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 80);
const SHARED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);

/// A NAT between 10.0.0.0/24 and 203.0.113.0/24.
fn nat() -> Nat {
    let inside = Interface::new(INSIDE, [10, 0, 0, 1].into(), 24, mac(1));
    let outside = Interface::new(OUTSIDE, [203, 0, 113, 1].into(), 24, mac(2));
    let config = NatConfig {
        neighbours: vec![(HOST, mac(3)), (SERVER, mac(4))],
        ..NatConfig::new(inside, outside, vec![SHARED])
    };
    Nat(Translator::new(config).expect("the configuration has no mistake"))
}

fn mac(last: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, last])
}

fn question(protocol: Protocol) -> Flow4 {
    Flow4 {
        source: HOST,
        destination: SERVER,
        source_port: 4_000,
        destination_port: 53,
        protocol: protocol.0,
    }
}

/// A packet to the NAT by one of its ports.
fn packet(port: PortNumber, flow: Flow4) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let length = match Protocol(flow.protocol) {
        Protocol::TCP => build::tcp4(
            &Header4::between(flow.source, flow.destination),
            flow.source_port,
            flow.destination_port,
            &Segment::with_flags(TcpFlags::SYN),
            b"",
            &mut bytes,
        ),
        _ => build::flow4(&flow, b"hello", &mut bytes),
    };
    bytes.truncate(length.expect("the buffer is long enough"));
    bytes[..6].copy_from_slice(&mac(if port == INSIDE { 1 } else { 2 }).0);
    bytes
}

/// The flow of a packet that left.
fn flow(packet: &[u8]) -> Flow4 {
    let mut bytes = packet.to_vec();
    let packet = Packet::parse(&mut bytes).expect("only packets leave");
    packet.flow4().expect("only flows leave")
}

#[test]
fn a_reply_finds_its_way_back() {
    for protocol in [Protocol::UDP, Protocol::TCP] {
        let mut kit = Testkit::new(nat());
        let question = question(protocol);
        let asked = kit.packet(INSIDE, &packet(INSIDE, question));
        assert_eq!(asked.verdict, Verdict::Forward(OUTSIDE));
        let outside = flow(&asked.packet);
        assert_eq!((outside.source, outside.destination), (SHARED, SERVER));

        let reply = packet(OUTSIDE, outside.reversed());
        let answered = kit.packet(OUTSIDE, &reply);
        assert_eq!(answered.verdict, Verdict::Forward(INSIDE));
        assert_eq!(flow(&answered.packet), question.reversed());
    }
}

/// Packets that open a session, answer it and come long after it ended.
fn steps() -> Vec<Step> {
    let mut kit = Testkit::new(nat());
    let mut steps = Vec::new();
    for protocol in [Protocol::UDP, Protocol::TCP, Protocol::ICMP] {
        let asks = packet(INSIDE, question(protocol));
        let outside = flow(&kit.packet(INSIDE, &asks).packet);
        let answers = packet(OUTSIDE, outside.reversed());
        steps.push((0, INSIDE, asks));
        steps.push((1, OUTSIDE, answers.clone()));
        steps.push((100_000, OUTSIDE, answers));
    }
    steps
}

#[test]
fn late_reads_change_nothing() {
    late_everywhere(nat, &steps());
}

#[test]
fn the_other_host_knows_the_way_back() {
    let question = question(Protocol::UDP);
    let mut hosts = ClusterKit::new(nat(), 2, 1);
    let asked = hosts.packet(0, INSIDE, &packet(INSIDE, question));
    let reply = packet(OUTSIDE, flow(&asked.packet).reversed());
    hosts.exchange();
    let answered = hosts.packet(1, OUTSIDE, &reply);
    assert_eq!(answered.verdict, Verdict::Forward(INSIDE));
    assert_eq!(flow(&answered.packet), question.reversed());
    hosts.agree();
}

#[test]
fn a_reply_may_wait_for_the_session() {
    let waits = |object: &str| ObjectSettings {
        absence: match object {
            "ports" => Absence::Wait { us: 20_000 },
            _ => Absence::Answer,
        },
        ..ObjectSettings::REPLICATED
    };
    let mut hosts = ClusterKit::with_settings(nat(), 2, 1, waits);
    let asked = hosts.packet(0, INSIDE, &packet(INSIDE, question(Protocol::UDP)));
    let reply = packet(OUTSIDE, flow(&asked.packet).reversed());

    // The first host leases the port, so the second host waits for the first one's updates.
    hosts.advance_us(1_000);
    let arrived = hosts.now_us();
    assert!(hosts.packet_since(1, arrived, OUTSIDE, &reply).is_err());
    hosts.exchange();
    let answered = hosts.packet(1, OUTSIDE, &reply);
    assert_eq!(answered.verdict, Verdict::Forward(INSIDE));
}

asterism_function::contract! {
    small_nat: Contract {
        make: nat,
        steps,
        reasons: &[
            (Reason::FragmentUnmatched, Reached::ByPackets),
            (Reason::NoBinding, Reached::ByPackets),
            (Reason::NoRoute, Reached::ByPackets),
            (Reason::NotForUs, Reached::ByPackets),
            (Reason::SpoofedSource, Reached::ByPackets),
            (Reason::UnsupportedProtocol, Reached::ByPackets),
        ],
        events: &[],
        keeps: &[("ports", "a port that rests returns when the next session is opened")],
        shares: Some("ports are leased to members in blocks, so each grants others"),
        page: include_str!("../../../docs/src/tutorial-nat.md"),
    },
}
