//! A NAT with routers on both sides, and the packets that hosts behind them send.

use core::net::Ipv4Addr;

use asterism_function::testkit::{Outcome, Testkit};
use asterism_function::{
    Endpoint, Flow4, IcmpKind, MacAddress, Packet, PortNumber, Protocol, TcpFlags, Verdict, build,
};
use asterism_functions::nat::{Interface, Nat, NatConfig, Prefix, Route, Side};

pub(crate) const INSIDE: PortNumber = PortNumber(0);
pub(crate) const OUTSIDE: PortNumber = PortNumber(1);
pub(crate) const INSIDE_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
pub(crate) const OUTSIDE_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
pub(crate) const INSIDE_ROUTER: MacAddress = MacAddress([2, 0, 0, 0, 1, 1]);
pub(crate) const OUTSIDE_ROUTER: MacAddress = MacAddress([2, 0, 0, 0, 1, 2]);
pub(crate) const INSIDE_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
pub(crate) const OUTSIDE_ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// Two outside addresses; 10.0.0.0/8 behind a router inside, everything else behind one outside.
pub(crate) fn config() -> NatConfig {
    let inside = Interface::new(INSIDE, INSIDE_ADDRESS, 24, INSIDE_MAC);
    let outside = Interface::new(OUTSIDE, OUTSIDE_ADDRESS, 24, OUTSIDE_MAC);
    let addresses = vec![OUTSIDE_ADDRESS, Ipv4Addr::new(203, 0, 113, 2)];
    let inside_router = Ipv4Addr::new(192, 168, 0, 2);
    let outside_router = Ipv4Addr::new(203, 0, 113, 254);
    NatConfig {
        routes: vec![
            Route {
                prefix: Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8),
                side: Side::Inside,
                next_hop: Some(inside_router),
            },
            Route {
                prefix: Prefix::ALL,
                side: Side::Outside,
                next_hop: Some(outside_router),
            },
        ],
        neighbours: vec![
            (inside_router, INSIDE_ROUTER),
            (outside_router, OUTSIDE_ROUTER),
        ],
        ..NatConfig::new(inside, outside, addresses)
    }
}

pub(crate) fn nat(config: NatConfig) -> Nat {
    Nat::new(config).expect("the configuration is right")
}

pub(crate) fn kit() -> Testkit<Nat> {
    Testkit::new(nat(config()))
}

pub(crate) fn kit_with(change: impl FnOnce(&mut NatConfig)) -> Testkit<Nat> {
    let mut config = config();
    change(&mut config);
    Testkit::new(nat(config))
}

pub(crate) fn tcp(address: [u8; 4], port: u16) -> Endpoint {
    Endpoint::new(address.into(), port, Protocol::TCP)
}
pub(crate) fn udp(address: [u8; 4], port: u16) -> Endpoint {
    Endpoint::new(address.into(), port, Protocol::UDP)
}

/// What a test wants to say about a packet besides its ends.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) flags: TcpFlags,
    pub(crate) ttl: u8,
    pub(crate) identification: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) payload: &'static [u8],
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            flags: TcpFlags::ACK,
            ttl: 64,
            identification: 1,
            dont_fragment: true,
            payload: b"asterism",
        }
    }
}

pub(crate) fn flagged(flags: TcpFlags) -> Wish {
    Wish {
        flags,
        ..Wish::default()
    }
}

/// Bytes of the shortest Ethernet frame, without its checksum.
const FRAME_BYTES_MIN: usize = 60;

/// A packet between two endpoints, as it arrives at `port` of the NAT.
pub(crate) fn frame(port: PortNumber, from: Endpoint, to: Endpoint, wish: Wish) -> Vec<u8> {
    let (source, destination) = if port == INSIDE {
        (INSIDE_ROUTER, INSIDE_MAC)
    } else {
        (OUTSIDE_ROUTER, OUTSIDE_MAC)
    };
    let header = build::Header4 {
        ethernet_source: source,
        ethernet_destination: destination,
        ttl: wish.ttl,
        identification: wish.identification,
        dont_fragment: wish.dont_fragment,
        ..build::Header4::between(from.address, to.address)
    };
    let mut out = vec![0; 2_048];
    let length = match from.protocol {
        Protocol::TCP => {
            let segment = build::Segment::with_flags(wish.flags);
            build::tcp4(
                &header,
                from.port,
                to.port,
                &segment,
                wish.payload,
                &mut out,
            )
        }
        Protocol::UDP => build::udp4(&header, from.port, to.port, wish.payload, &mut out),
        other => panic!("no frames of protocol {other}"),
    };
    // Padded, as frames are on a wire; shorter ones never take the common path.
    out.truncate(length.expect("room for the frame").max(FRAME_BYTES_MIN));
    out
}

/// An ICMP echo request or reply.
pub(crate) fn echo(
    port: PortNumber,
    from: Ipv4Addr,
    to: Ipv4Addr,
    identifier: u16,
    kind: IcmpKind,
) -> Vec<u8> {
    let icmp_type = if kind == IcmpKind::Query { 8 } else { 0 };
    let [high, low] = identifier.to_be_bytes();
    icmp(port, from, to, icmp_type, 0, [high, low, 0, 1], b"ping")
}

/// Any ICMP message.
pub(crate) fn icmp(
    port: PortNumber,
    from: Ipv4Addr,
    to: Ipv4Addr,
    icmp_type: u8,
    code: u8,
    rest: [u8; 4],
    payload: &[u8],
) -> Vec<u8> {
    let (source, destination) = if port == INSIDE {
        (INSIDE_ROUTER, INSIDE_MAC)
    } else {
        (OUTSIDE_ROUTER, OUTSIDE_MAC)
    };
    let header = build::Header4 {
        ethernet_source: source,
        ethernet_destination: destination,
        ..build::Header4::between(from, to)
    };
    let mut out = vec![0; 2_048];
    let length = build::icmp4(&header, icmp_type, code, rest, payload, &mut out);
    out.truncate(length.expect("room for the frame"));
    out
}

/// What a station sends that wants to know who has an address.
pub(crate) fn arp_request(mac: MacAddress, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut out = vec![0; 60];
    build::arp_request(mac, sender, target, &mut out).unwrap();
    out
}

/// Sends a packet in by a port.
pub(crate) fn send(
    kit: &mut Testkit<Nat>,
    port: PortNumber,
    from: Endpoint,
    to: Endpoint,
    wish: Wish,
) -> Outcome {
    kit.packet(port, &frame(port, from, to, wish))
}

/// The ends of the packet that left by `port`; all its checksums are right.
pub(crate) fn left_by(outcome: &Outcome, port: PortNumber) -> Flow4 {
    assert_eq!(outcome.verdict, Verdict::Forward(port));
    let mut bytes = outcome.packet.clone();
    let packet = Packet::parse(&mut bytes).expect("a whole packet");
    assert_eq!(packet.verify_ipv4_checksum(), Some(true));
    assert_ne!(packet.verify_transport_checksum(), Some(false));
    packet.flow4().expect("a flow")
}

pub(crate) type Kit = Testkit<Nat>;

pub(crate) const SYN: TcpFlags = TcpFlags::SYN;
pub(crate) const ACK: TcpFlags = TcpFlags::ACK;
pub(crate) const RST: TcpFlags = TcpFlags::RST;
pub(crate) const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
pub(crate) const RST_ACK: TcpFlags = TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0);
pub(crate) const FIN_ACK: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0);

pub(crate) fn digests(kit: &Kit) -> Vec<u64> {
    asterism_function::State::digests(kit.state())
}

/// An ICMP error that the NAT sent.
pub(crate) struct IcmpError {
    pub(crate) port: PortNumber,
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) icmp_type: u8,
    pub(crate) code: u8,
    pub(crate) rest: [u8; 4],
    pub(crate) quoted: Flow4,
}

/// The one packet that was emitted, an ICMP error with right checksums.
pub(crate) fn the_error(outcome: &Outcome) -> IcmpError {
    let [(port, bytes)] = &outcome.emitted[..] else {
        panic!("{} packets emitted instead of one", outcome.emitted.len());
    };
    let mut bytes = bytes.clone();
    let packet = Packet::parse(&mut bytes).expect("a whole packet");
    assert_eq!(packet.verify_transport_checksum(), Some(true));
    IcmpError {
        port: *port,
        source: packet.ipv4_source().unwrap(),
        destination: packet.ipv4_destination().unwrap(),
        icmp_type: packet.icmp_type().unwrap(),
        code: packet.icmp_code().unwrap(),
        rest: packet.icmp_rest().unwrap(),
        quoted: packet.embedded().unwrap().flow4().unwrap(),
    }
}
