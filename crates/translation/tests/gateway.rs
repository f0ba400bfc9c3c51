//! The library as an author uses it: a gateway that is no NAT of ours. It translates what leaves and what enters, routes what stays, and has
//! no common path.

use core::net::Ipv4Addr;
use core::ops::ControlFlow;

use asterism_forwarding::{
    Errors, Fragmented, Fragments, Interface, Neighbours, PacketClass, Prefix, Progress, Report,
    Route, Side, forwards, tables,
};
use asterism_function::build::{self, Header4, Segment};
use asterism_function::testkit::{ClusterKit, Outcome, Testkit, late_everywhere};
use asterism_function::{
    Ask, Builder, Endpoint, Flow4, Late, MacAddress, Map, NetworkFunction, Packet, Pool,
    PortNumber, Protocol, Reason, Table, TcpFlags, Verdict, state,
};
use asterism_translation::{
    Asked, Filtering, Forward, ForwardingPath, NatConfig, NatExemption, OutsidePorts, Refused,
    Session, SubscriberLimits, Translator, translates,
};

#[state]
struct Tables {
    sessions: Table<Session, Progress>,
    ports: Pool<OutsidePorts>,
    mappings: Map<Endpoint, Asked>,
    fragments: Fragments<Fragmented>,
    neighbours: Neighbours,
    errors: Errors,
}
forwards!(Tables, Fragmented);
translates!(Tables);

struct Gateway(Translator);

impl Gateway {
    fn leaving(&self, ask: Ask<'_, Tables>, flow: Flow4) -> Result<Verdict, Late> {
        let ends = (flow.source(), flow.destination());
        let way = self.0.way(ends.0, ends.1);
        match way {
            ForwardingPath::Out | ForwardingPath::Hairpin => {
                match self
                    .0
                    .outward(&ask, ends, way == ForwardingPath::Hairpin, false)
                {
                    Ok(outward) => {
                        let egress = outward.egress();
                        self.0.router.forward(ask, egress, |act| outward.write(act))
                    }
                    Err(stop) => match stop.refused()? {
                        Refused::Reported(reason) => {
                            self.0.router.report(ask, Report::Prohibited, reason)
                        }
                        Refused::Silently(reason) => Ok(Verdict::Drop(reason)),
                    },
                }
            }
            ForwardingPath::Inside => self.0.between_insides(ask),
            ForwardingPath::Own => self.0.own(ask),
            ForwardingPath::Unrouted => Ok(Verdict::Drop(Reason::NoRoute)),
            ForwardingPath::Refused(reason) => Ok(Verdict::Drop(reason)),
        }
    }
}

impl NetworkFunction for Gateway {
    type State = Tables;

    fn state(&self, builder: &Builder) -> Tables {
        let (sessions, ports, mappings) = self.0.tables(builder);
        let (fragments, neighbours, errors) = tables(builder, 64, 64);
        Tables {
            sessions,
            ports,
            mappings,
            fragments,
            neighbours,
            errors,
        }
    }

    fn packet(&self, ask: Ask<'_, Tables>) -> Result<Verdict, Late> {
        let ask = match self.0.exempt(ask)? {
            ControlFlow::Break(verdict) => return Ok(verdict),
            ControlFlow::Continue(ask) => ask,
        };
        let (ask, side, came) = match self.0.router.admit(ask)? {
            ControlFlow::Continue(admitted) => admitted,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        match (side, came) {
            (Side::Inside, PacketClass::Flow(flow) | PacketClass::Query(flow)) => {
                self.leaving(ask, flow)
            }
            (Side::Outside, PacketClass::Flow(flow) | PacketClass::Reply(flow)) => {
                match self.0.inward(&ask, flow.source(), flow.destination()) {
                    Ok(inward) => {
                        let egress = inward.egress();
                        self.0.router.forward(ask, egress, |act| inward.write(act))
                    }
                    Err(stop) => stop.dropped(),
                }
            }
            (Side::Inside, PacketClass::Error(flow)) => self.0.error_from_inside(ask, flow),
            (Side::Outside, PacketClass::Error(flow)) => self.0.error_from_outside(ask, flow),
            (Side::Inside, PacketClass::Reply(_)) | (Side::Outside, PacketClass::Query(_)) => {
                self.0.own(ask)
            }
        }
    }
}

const INSIDE: PortNumber = PortNumber(0);
const OUTSIDE: PortNumber = PortNumber(1);
const OURS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn mac(last: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, last])
}

/// Hosts 10.0.0.0/24 inside, everybody else behind 203.0.113.254; 192.0.2.0/24 is nowhere.
fn config() -> NatConfig {
    let inside = Interface::new(INSIDE, [10, 0, 0, 1].into(), 24, mac(1));
    let outside = Interface::new(OUTSIDE, OURS, 24, mac(2));
    let router = Ipv4Addr::new(203, 0, 113, 254);
    let hosts = (5..9).map(|last| (Ipv4Addr::new(10, 0, 0, last), mac(last)));
    NatConfig {
        outside_ports: (2_000, 2_999),
        routes: vec![Route {
            prefix: Prefix::new([198, 51, 100, 0].into(), 24),
            side: Side::Outside,
            next_hop: Some(router),
        }],
        neighbours: hosts.chain([(router, mac(254))]).collect(),
        ..NatConfig::new(inside, outside, vec![OURS])
    }
}

fn gateway(change: impl FnOnce(&mut NatConfig)) -> Gateway {
    let mut config = config();
    change(&mut config);
    Gateway(Translator::new(config).expect("it is right"))
}

fn udp(address: impl Into<Ipv4Addr>, port: u16) -> Endpoint {
    Endpoint::new(address.into(), port, Protocol::UDP)
}

fn host(last: u8, port: u16) -> Endpoint {
    udp([10, 0, 0, last], port)
}

fn server(last: u8, port: u16) -> Endpoint {
    udp([198, 51, 100, last], port)
}

/// A frame to the gateway from one endpoint to another.
fn frame(port: PortNumber, from: Endpoint, to: Endpoint, flags: TcpFlags) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let mut header = Header4::between(from.address, to.address);
    header.ethernet_destination = if port == INSIDE { mac(1) } else { mac(2) };
    let length = match from.protocol {
        Protocol::TCP => {
            let segment = Segment::with_flags(flags);
            build::tcp4(&header, from.port, to.port, &segment, b"", &mut bytes)
        }
        _ => build::udp4(&header, from.port, to.port, b"datagram", &mut bytes),
    };
    bytes.truncate(length.expect("it has room"));
    bytes
}

fn datagram(port: PortNumber, from: Endpoint, to: Endpoint) -> Vec<u8> {
    frame(port, from, to, TcpFlags::default())
}

/// The ends of a packet that left.
fn ends(mut outcome: Outcome) -> (Endpoint, Endpoint) {
    assert!(
        matches!(outcome.verdict, Verdict::Forward(_)),
        "{:?}",
        outcome.verdict
    );
    let packet = Packet::parse(&mut outcome.packet).expect("a packet");
    let flow = packet.flow4().expect("a flow");
    (flow.source(), flow.destination())
}

#[test]
fn ways_of_packets_from_inside() {
    let translator = gateway(|_| {}).0;
    let from = host(5, 4_000);
    let icmp = |endpoint| Endpoint {
        protocol: Protocol::ICMP,
        ..endpoint
    };
    for (from, to, way) in [
        (from, server(7, 53), ForwardingPath::Out),
        (from, udp(OURS, 2_500), ForwardingPath::Hairpin),
        (from, host(6, 53), ForwardingPath::Inside),
        (from, udp([10, 0, 0, 1], 53), ForwardingPath::Own),
        // Its own outside address answers for itself.
        (icmp(from), icmp(udp(OURS, 0)), ForwardingPath::Own),
        (from, udp([192, 0, 2, 7], 53), ForwardingPath::Unrouted),
        (
            from,
            udp([224, 0, 0, 1], 53),
            ForwardingPath::Refused(Reason::NoRoute),
        ),
        (
            server(7, 53),
            server(8, 53),
            ForwardingPath::Refused(Reason::SpoofedSource),
        ),
    ] {
        assert_eq!(translator.way(from, to), way, "{from} to {to}");
    }
    let translator = gateway(|config| config.hairpinning = false).0;
    let to_ourselves = translator.way(from, udp(OURS, 2_500));
    assert_eq!(to_ourselves, ForwardingPath::Refused(Reason::Filtered));
}

#[test]
fn what_leaves_is_answered_and_strangers_are_filtered() {
    let filtering = Filtering::AddressAndPortDependent;
    let mut kit = Testkit::new(gateway(|config| config.filtering = filtering));
    let (client, asked, stranger) = (host(5, 2_100), server(7, 53), server(8, 53));
    let (outside, to) = ends(kit.packet(INSIDE, &datagram(INSIDE, client, asked)));
    // Its port is one that is given out.
    assert_eq!((outside, to), (udp(OURS, 2_100), asked));
    let answer = kit.packet(OUTSIDE, &datagram(OUTSIDE, asked, outside));
    assert_eq!(ends(answer), (asked, client));
    let strange = kit.packet(OUTSIDE, &datagram(OUTSIDE, stranger, outside));
    assert_eq!(strange.verdict, Verdict::Drop(Reason::Filtered));
    // The binding is its inside endpoint's, no matter who it writes to (RFC 4787 REQ-1).
    let (again, _) = ends(kit.packet(INSIDE, &datagram(INSIDE, client, stranger)));
    assert_eq!(again, outside);
    let answer = kit.packet(OUTSIDE, &datagram(OUTSIDE, stranger, outside));
    assert_eq!(ends(answer), (stranger, client));
    assert_eq!(kit.state().sessions.len_now(), 2);
}

#[test]
fn a_hairpin_is_translated_at_both_ends() {
    let service = Forward {
        outside: udp(OURS, 53),
        inside: host(6, 5_300),
    };
    let mut kit = Testkit::new(gateway(|config| config.forwards = vec![service]));
    let client = host(5, 2_100);
    let there = kit.packet(INSIDE, &datagram(INSIDE, client, service.outside));
    assert_eq!(there.verdict, Verdict::Forward(INSIDE));
    assert_eq!(ends(there), (udp(OURS, 2_100), service.inside));
    let question = datagram(INSIDE, service.inside, udp(OURS, 2_100));
    let back = kit.packet(INSIDE, &question);
    assert_eq!(ends(back), (service.outside, client));
}

#[test]
fn who_is_refused_is_reported_or_not_and_leaves_nothing() {
    let mut kit = Testkit::new(gateway(|config| {
        config.subscribers = SubscriberLimits {
            ports_max: 1,
            ..SubscriberLimits::NONE
        };
    }));
    let asked = server(7, 53);
    ends(kit.packet(INSIDE, &datagram(INSIDE, host(5, 2_100), asked)));
    let second = kit.packet(INSIDE, &datagram(INSIDE, host(5, 2_101), asked));
    assert_eq!(second.verdict, Verdict::Drop(Reason::SubscriberQuota));
    assert_eq!(second.emitted.len(), 1, "its sender is reported");
    let tcp = |endpoint| Endpoint {
        protocol: Protocol::TCP,
        ..endpoint
    };
    let (from, to) = (tcp(host(6, 2_100)), tcp(server(7, 80)));
    let reset = kit.packet(INSIDE, &frame(INSIDE, from, to, TcpFlags::RST));
    assert_eq!(reset.verdict, Verdict::Drop(Reason::NoBinding));
    assert!(reset.emitted.is_empty());
    assert_eq!(kit.state().sessions.len_now(), 1);
    ends(kit.packet(INSIDE, &datagram(INSIDE, host(6, 2_101), asked)));
}

#[test]
fn exempt_destinations_are_routed_as_they_are() {
    let exempt = NatExemption::all(Prefix::new([198, 51, 100, 8].into(), 32));
    let mut kit = Testkit::new(gateway(|config| config.exempt = vec![exempt]));
    let client = host(5, 2_100);
    let plain = kit.packet(INSIDE, &datagram(INSIDE, client, server(8, 53)));
    assert_eq!(ends(plain), (client, server(8, 53)));
    let answer = kit.packet(OUTSIDE, &datagram(OUTSIDE, server(8, 53), client));
    assert_eq!(ends(answer), (server(8, 53), client));
    assert_eq!(kit.state().sessions.len_now(), 0);
    let (translated, _) = ends(kit.packet(INSIDE, &datagram(INSIDE, client, server(7, 53))));
    assert_eq!(translated.address, OURS);
}

/// What one instance opened is answered by another, once it was reported; before, the answer waits.
#[test]
fn answers_come_by_any_instance() {
    let mut cluster = ClusterKit::new(gateway(|_| {}), 2, 7);
    let (client, asked) = (host(5, 2_100), server(7, 53));
    let (outside, _) = ends(cluster.packet(0, INSIDE, &datagram(INSIDE, client, asked)));
    let answer = datagram(OUTSIDE, asked, outside);
    let early = cluster.packet(1, OUTSIDE, &answer);
    assert_eq!(early.verdict, Verdict::Drop(Reason::NoBinding));
    cluster.exchange();
    assert_eq!(ends(cluster.packet(1, OUTSIDE, &answer)), (asked, client));
    cluster.agree();
}

#[test]
fn what_is_late_ends_as_what_is_not() {
    let (client, asked) = (host(5, 2_100), server(7, 53));
    let packets = [
        (0, INSIDE, datagram(INSIDE, client, asked)),
        (0, OUTSIDE, datagram(OUTSIDE, asked, udp(OURS, 2_100))),
        (1, INSIDE, datagram(INSIDE, host(6, 2_100), server(8, 53))),
        (0, INSIDE, datagram(INSIDE, host(6, 9), udp(OURS, 2_100))),
        (
            0,
            OUTSIDE,
            datagram(OUTSIDE, server(9, 53), udp(OURS, 2_900)),
        ),
    ];
    late_everywhere(|| gateway(|_| {}), &packets);
}
