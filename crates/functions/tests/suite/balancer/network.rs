//! A balancer between a router of clients and a link of backends, and the packets that both send.

use core::net::Ipv4Addr;

use asterism_function::testkit::{Outcome, Testkit};
use asterism_function::{
    Endpoint, Flow4, MacAddress, Packet, PortNumber, Protocol, TcpFlags, Verdict, build,
};
use asterism_functions::balancer::{
    Backend, Balancer, BalancerConfig, CONTROL, CheckResult, Mode, Service,
};
use asterism_functions::nat::{Interface, Prefix, Route, Side};

pub(crate) const BACKENDS: PortNumber = PortNumber(0);
pub(crate) const CLIENTS: PortNumber = PortNumber(1);
pub(crate) const BACKENDS_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
pub(crate) const CLIENTS_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
pub(crate) const ROUTER: MacAddress = MacAddress([2, 0, 0, 0, 1, 2]);
pub(crate) const OWN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
pub(crate) const OWN_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const SERVICE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);

pub(crate) const SYN: TcpFlags = TcpFlags::SYN;
pub(crate) const ACK: TcpFlags = TcpFlags::ACK;
pub(crate) const RST: TcpFlags = TcpFlags::RST;
/// What answers a SYN that is refused.
pub(crate) const RST_ACK: TcpFlags = TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0);
pub(crate) const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
pub(crate) const FIN_ACK: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0);

pub(crate) fn station(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 2, number])
}

/// The backend of a number: at 10.0.0.(10 + number).
pub(crate) fn backend(number: u8) -> Backend {
    Backend {
        address: Ipv4Addr::new(10, 0, 0, 10 + number),
        port: 8_080,
        weight: 1,
        drains: false,
    }
}

pub(crate) fn asked() -> Endpoint {
    Endpoint::new(SERVICE, 80, Protocol::TCP)
}

pub(crate) fn service(backends: u8) -> Service {
    Service::new(asked(), (0..backends).map(backend).collect())
}

pub(crate) fn config(services: Vec<Service>) -> BalancerConfig {
    let clients = Interface::new(CLIENTS, OWN, 24, CLIENTS_MAC);
    let backends = Interface::new(BACKENDS, OWN_INSIDE, 24, BACKENDS_MAC);
    let router = Ipv4Addr::new(203, 0, 113, 254);
    let stations = (0..200).map(|number| (Ipv4Addr::new(10, 0, 0, 10 + number), station(number)));
    BalancerConfig {
        routes: vec![Route {
            prefix: Prefix::ALL,
            side: Side::Outside,
            next_hop: Some(router),
        }],
        neighbours: stations.chain([(router, ROUTER)]).collect(),
        ..BalancerConfig::new(clients, backends, services)
    }
}

pub(crate) type Kit = Testkit<Balancer>;

pub(crate) fn balancer(config: BalancerConfig) -> Balancer {
    Balancer::new(config).expect("the configuration is right")
}

pub(crate) fn kit(services: Vec<Service>) -> Kit {
    Testkit::new(balancer(config(services)))
}

pub(crate) fn client(number: u32) -> Endpoint {
    let address = Ipv4Addr::from_bits(0xc633_6400 + number / 1_000);
    Endpoint::new(address, 20_000 + (number % 1_000) as u16, Protocol::TCP)
}

pub(crate) fn udp(end: Endpoint) -> Endpoint {
    Endpoint {
        protocol: Protocol::UDP,
        ..end
    }
}

pub(crate) fn header(port: PortNumber, from: Ipv4Addr, to: Ipv4Addr) -> build::Header4 {
    let (ethernet_source, ethernet_destination) = if port == CLIENTS {
        (ROUTER, CLIENTS_MAC)
    } else {
        (station(from.octets()[3].wrapping_sub(10)), BACKENDS_MAC)
    };
    build::Header4 {
        ethernet_source,
        ethernet_destination,
        ..build::Header4::between(from, to)
    }
}

pub(crate) fn frame_of(
    header: &build::Header4,
    (from, to): (Endpoint, Endpoint),
    flags: TcpFlags,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = vec![0; 4_096];
    let length = if from.protocol == Protocol::TCP {
        let segment = build::Segment::with_flags(flags);
        build::tcp4(header, from.port, to.port, &segment, payload, &mut out)
    } else {
        build::udp4(header, from.port, to.port, payload, &mut out)
    };
    out.truncate(length.expect("room for the frame"));
    out
}

/// A packet as it arrives by a port.
pub(crate) fn frame(port: PortNumber, from: Endpoint, to: Endpoint, flags: TcpFlags) -> Vec<u8> {
    let header = header(port, from.address, to.address);
    frame_of(&header, (from, to), flags, b"asterism")
}

pub(crate) fn send(
    kit: &mut Kit,
    port: PortNumber,
    from: Endpoint,
    to: Endpoint,
    flags: TcpFlags,
) -> Outcome {
    kit.packet(port, &frame(port, from, to, flags))
}

/// The ends of the packet that left by `port`; all its checksums are right.
pub(crate) fn left_by(outcome: &Outcome, port: PortNumber) -> Flow4 {
    assert_eq!(outcome.verdict, Verdict::Forward(port));
    ends_of(&outcome.packet)
}

pub(crate) fn ends_of(frame: &[u8]) -> Flow4 {
    let mut bytes = frame.to_vec();
    let packet = Packet::parse(&mut bytes).expect("a whole packet");
    assert_eq!(packet.verify_ipv4_checksum(), Some(true));
    assert_ne!(packet.verify_transport_checksum(), Some(false));
    packet.flow4().expect("a flow")
}

/// Who gets a client's SYN, by its number.
pub(crate) fn opened(kit: &mut Kit, client: Endpoint, to: Endpoint) -> u8 {
    let outcome = send(kit, CLIENTS, client, to, SYN);
    left_by(&outcome, BACKENDS).destination.octets()[3] - 10
}

pub(crate) fn tell(kit: &mut Kit, member: u16, backend: Endpoint, is_down: bool) {
    let finding = CheckResult {
        member,
        backend,
        is_down,
    };
    let outcome = kit.packet(CONTROL, &finding.frame());
    assert_eq!(outcome.verdict, Verdict::Consumed);
}

pub(crate) fn endpoint_of(number: u8) -> Endpoint {
    let backend = backend(number);
    Endpoint::new(backend.address, backend.port, Protocol::TCP)
}

pub(crate) fn with_mode(mode: Mode) -> Service {
    let mut service = service(3);
    service.mode = mode;
    for backend in &mut service.backends {
        backend.port = 0;
    }
    service
}
