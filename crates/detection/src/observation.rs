//! The observation that one packet gives of a source's probes. Reads the packet, knows no state.

use asterism_function::{Fragment, Host, IcmpKind, Network, Packet, TcpFlags, Transport};

use crate::history::{Class, Methods, Scanner};

/// What happened to a probe, or that there was one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The scanner probes.
    Probe(Methods),
    /// A TCP segment whose ports are known and whose flags are not: a first fragment that ends before them, as `nmap -f` sends.
    Named,
    /// The part of such a segment that has its flags, which only a probe has. Its ports are in another fragment.
    Flagged(Methods),
    /// A UDP datagram or a packet of another IP protocol: a probe, unless the other one probed first and this answers it.
    Datagram,
    /// The datagram's hop limit ran out at a router: it was to find the path, as those of `traceroute` are.
    Expired,
    /// The other one accepts.
    Accepted,
    /// The other one acknowledges or sends, as in a conversation.
    Engaged,
    /// The other one refuses, or somebody reports for it: a router, or itself by another address.
    Refused {
        /// Who says so.
        reporter: Host,
    },
    /// The other one resets what the scanner sent, or the scanner what the other one accepted.
    Reset {
        /// Worth a history of its own: a reset without ACK from the side of the service, as an ACK probe gets.
        answers_ack: bool,
    },
}

/// A packet's meaning for one history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observation {
    /// Who probes, or probed.
    pub scanner: Host,
    /// By which protocol.
    pub class: Class,
    /// The probed host.
    pub target: Host,
    /// The probed port; 0 for ICMP, and the protocol's number for [`Class::Ip`].
    pub port: u16,
    /// The scanner's port, likewise.
    pub from: u16,
    /// What happened.
    pub what: What,
}

impl Observation {
    /// Reads any packet: who sent it, and what it says, if it says something. `None` if it is not IP.
    #[inline]
    #[must_use]
    pub fn of(packet: &Packet<'_>) -> Option<(Host, Option<Self>)> {
        Self::of_common(packet).or_else(|| Self::of_uncommon(packet))
    }

    /// [`Observation::of`] of a TCP or UDP packet over IPv4; `None` of another one, which is for [`Observation::of_uncommon`]. For functions that keep
    /// what is rare off their path.
    #[inline(always)]
    #[must_use]
    pub fn of_common(packet: &Packet<'_>) -> Option<(Host, Option<Self>)> {
        let flow = packet.flow4()?;
        let (source, destination) = (flow.source.into(), flow.destination.into());
        let ports = (flow.source_port, flow.destination_port);
        match packet.layout().transport() {
            Transport::Tcp => Some((source, Self::of_tcp(packet, source, destination, ports))),
            Transport::Udp => Some((source, Self::of_udp(packet, source, destination, ports))),
            _ => None,
        }
    }

    /// [`Observation::of`] of any packet, at more cost than [`Observation::of_common`] for those that it reads.
    #[inline]
    #[must_use]
    pub fn of_uncommon(packet: &Packet<'_>) -> Option<(Host, Option<Self>)> {
        let (source, destination) = Host::ends(packet)?;
        let observation = match (packet.layout().transport(), packet.ports()) {
            (Transport::Tcp, Some(ports)) => Self::of_tcp(packet, source, destination, ports),
            (Transport::Udp, Some(ports)) => Self::of_udp(packet, source, destination, ports),
            (Transport::Icmp | Transport::Icmpv6, _) => Self::of_icmp(packet, source, destination),
            _ => Self::of_no_transport(packet, source, destination),
        };
        Some((source, observation))
    }

    /// The key of the history that it is about, where each address is a source of its own: see
    /// [`Sources::one`](crate::Sources::one).
    #[inline(always)]
    #[must_use]
    pub const fn scanner(&self) -> Scanner {
        Scanner {
            host: self.scanner,
            class: self.class,
        }
    }

    /// The datagram as an answer to the other end's probe.
    #[inline(always)]
    #[must_use]
    pub const fn answered(self) -> Self {
        Self {
            scanner: self.target,
            class: self.class,
            target: self.scanner,
            port: self.from,
            from: self.port,
            what: What::Accepted,
        }
    }

    #[inline(always)]
    fn of_tcp(
        packet: &Packet<'_>,
        source: Host,
        destination: Host,
        ports: (u16, u16),
    ) -> Option<Self> {
        let flags = packet.tcp_flags()?;
        let is_zero = packet.tcp_sequence() == Some(0);
        Self::of_segment((flags, is_zero), source, destination, ports)
    }

    /// Of a segment's flags, and whether its sequence number is 0.
    #[inline(always)]
    fn of_segment(
        (flags, is_zero): (TcpFlags, bool),
        source: Host,
        destination: Host,
        (source_port, destination_port): (u16, u16),
    ) -> Option<Self> {
        let forth = |what| Self {
            scanner: source,
            class: Class::Tcp,
            target: destination,
            port: destination_port,
            from: source_port,
            what,
        };
        let back = |what| Self {
            scanner: destination,
            class: Class::Tcp,
            target: source,
            port: source_port,
            from: destination_port,
            what,
        };
        // The side with the lower port is taken for the service. Only what is said in mid-connection depends on it:
        // there the opening, which would tell for certain, may have been seen by another instance.
        let from_service = source_port <= destination_port;
        if !flags.intersects(TcpFlags::SYN | TcpFlags::RST) && flags.contains(TcpFlags::ACK) {
            return from_service.then(|| back(What::Engaged));
        }
        Some(
            match (
                flags.contains(TcpFlags::SYN),
                flags.contains(TcpFlags::RST),
                flags.contains(TcpFlags::ACK),
            ) {
                (true, true, _) => return None,
                (true, false, true) => back(What::Accepted),
                (true, false, false) => forth(What::Probe(Methods::SYN)),
                // RFC 9293 §3.5.2: a segment without ACK that finds no connection is reset with sequence number 0.
                (false, true, true) if is_zero => back(What::Refused { reporter: source }),
                (false, true, with_ack) if from_service => back(What::Reset {
                    answers_ack: !with_ack,
                }),
                (false, true, _) => forth(What::Reset { answers_ack: false }),
                // No segment of a connection lacks SYN, RST and ACK.
                (false, false, _) => forth(What::Probe(without_ack(flags))),
            },
        )
    }

    #[inline(always)]
    fn of_udp(
        packet: &Packet<'_>,
        source: Host,
        destination: Host,
        (source_port, destination_port): (u16, u16),
    ) -> Option<Self> {
        if destination.is_group() {
            return None;
        }
        // What looks for a path and may end before its target is no probe of a port, whether routers answer or not.
        if destination_port >= PATH_PORTS_FROM
            && packet.ttl().is_some_and(|limit| limit <= PATH_HOPS_MAX)
        {
            return None;
        }
        // From a system port to another one: an answer, no matter who saw the question.
        if source_port < 1024 && destination_port >= 1024 {
            return Some(Self {
                scanner: destination,
                class: Class::Udp,
                target: source,
                port: source_port,
                from: destination_port,
                what: What::Accepted,
            });
        }
        Some(Self {
            scanner: source,
            class: Class::Udp,
            target: destination,
            port: destination_port,
            from: source_port,
            what: What::Datagram,
        })
    }

    #[inline]
    fn of_icmp(packet: &Packet<'_>, source: Host, destination: Host) -> Option<Self> {
        let (icmp_type, code) = (packet.icmp_type()?, packet.icmp_code()?);
        let is_icmpv6 = packet.layout().transport() == Transport::Icmpv6;
        let kind = if is_icmpv6 {
            IcmpKind::of_icmpv6(icmp_type)
        } else {
            IcmpKind::of_icmp(icmp_type)
        };
        if kind == IcmpKind::Query && !destination.is_group() {
            return Some(Self {
                scanner: source,
                class: Class::Icmp,
                target: destination,
                port: 0,
                from: 0,
                what: What::Probe(Methods::PING),
            });
        }
        // Destination unreachable, but for the code that asks for smaller packets; of ICMPv6 also that the next header is unknown.
        let is_refusal = match is_icmpv6 {
            true => icmp_type == 1 || (icmp_type, code) == (4, 1),
            false => icmp_type == 3 && code != 4,
        };
        let is_expiry = code == 0 && icmp_type == if is_icmpv6 { 3 } else { 11 };
        if !is_refusal && !is_expiry {
            return None;
        }
        let embedded = packet.embedded()?;
        let protocol = embedded.protocol().0;
        let (class, (from, port)) = match protocol {
            6 => (Class::Tcp, embedded.ports()?),
            17 => (Class::Udp, embedded.ports()?),
            1 | 58 => return None,
            _ => (Class::Ip, (protocol.into(), protocol.into())),
        };
        if is_expiry && class != Class::Udp {
            return None;
        }
        Some(Self {
            scanner: embedded.source().into(),
            class,
            target: embedded.destination().into(),
            port,
            from,
            what: match is_refusal {
                true => What::Refused { reporter: source },
                false => What::Expired,
            },
        })
    }

    /// Of a packet without a transport header that is known and whole: other IP protocols, and TCP in fragments that cut its header.
    #[inline]
    fn of_no_transport(packet: &Packet<'_>, source: Host, destination: Host) -> Option<Self> {
        let layout = packet.layout();
        if destination.is_group() {
            return None;
        }
        let bytes = packet.bytes().get(..layout.end())?;
        let payload = bytes.get(layout.transport_offset()..)?;
        let forth = |class, (from, port), what| Self {
            scanner: source,
            class,
            target: destination,
            port,
            from,
            what,
        };
        let own = if layout.network() == Network::Ipv6 {
            58
        } else {
            1
        };
        match (layout.protocol(), layout.fragment()) {
            (6, Fragment::First) => {
                let ports = payload.first_chunk::<4>()?;
                let ports = (
                    u16::from_be_bytes([ports[0], ports[1]]),
                    u16::from_be_bytes([ports[2], ports[3]]),
                );
                let Some(flags) = payload.get(FLAGS_AT) else {
                    return Some(forth(Class::Tcp, ports, What::Named));
                };
                let is_zero = payload[4..8] == [0; 4];
                Self::of_segment((TcpFlags(*flags), is_zero), source, destination, ports)
            }
            (6, Fragment::Later) => {
                let offset = usize::from(packet.fragment_offset()?);
                let flags = TcpFlags(*payload.get(FLAGS_AT.checked_sub(offset)?)?);
                if flags.intersects(TcpFlags::RST | TcpFlags::ACK) {
                    return None;
                }
                let methods = match flags.contains(TcpFlags::SYN) {
                    true => Methods::SYN,
                    false => without_ack(flags),
                };
                Some(forth(Class::Tcp, (0, 0), What::Flagged(methods)))
            }
            (6 | 17, _) | (_, Fragment::Later) => None,
            (protocol, _) if protocol == own => None,
            (protocol, _) => {
                let number = protocol.into();
                Some(forth(Class::Ip, (number, number), What::Datagram))
            }
        }
    }
}

/// Where a TCP header has its flags.
const FLAGS_AT: usize = 13;
/// Ports of datagrams that look for a path: `traceroute` begins at 33,434, `mtr` at 33,000.
const PATH_PORTS_FROM: u16 = 33_000;
/// Hops that such a datagram has left at most: tools stop after 30. Systems send others with 64 or more, of which no path takes so many.
const PATH_HOPS_MAX: u8 = 30;

#[inline]
fn without_ack(flags: TcpFlags) -> Methods {
    match flags.0 & 0x3f {
        0 => Methods::NULL,
        0x01 => Methods::FIN,
        _ => Methods::XMAS,
    }
}
